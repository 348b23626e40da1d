--- Pooling and resizing of ONNX by amp's ops: functions of a node that give its results.
-- @module amp.io.onnx.pool
local Node = require 'amp.io.onnx.node'
local layers = require 'amp.io.onnx.layers'
local ops = require 'amp.ops'
local proto = require 'amp.io.onnx.proto'
local get, cast = ops.get, Node.cast

local M = {}

local function window(n, x)
  local spatial = layers.rank_of(n, x)
  local kernel = n:ints('kernel_shape', spatial)
  if not kernel then n:fail "has no attribute 'kernel_shape'" end
  local w = layers.window(n, x, kernel, spatial)
  w.ceil, w.spatial = n:attr('ceil_mode', 0) == 1, spatial
  w.dense, w.direct = true, w.equal
  for k = 1, spatial do
    w.dense = w.dense and w.dilation[k] == 1
    w.direct = w.direct and w.before[k] <= kernel[k] / 2
  end
  return w
end

-- How many windows there are in spatial dimension k, and how many elements they cover.
local function covered(n, x, w, k)
  local size, reach = x:size(k + 2), (w.kernel[k] - 1) * w.dilation[k] + 1
  local room = size + w.before[k] + w.after[k] - reach
  local count = (w.ceil and math.ceil or math.floor)(room / w.stride[k]) + 1
  if w.ceil and (count - 1) * w.stride[k] >= size + w.before[k] then count = count - 1 end
  if count < 1 then n:fail('its window of %d is larger than its data of %d', reach, size + w.before[k] + w.after[k]) end
  return (count - 1) * w.stride[k] + reach
end

-- Pads after the data with which whole windows cover exactly what they reach.
local function exact(n, x, w)
  local after = {}
  for k = 1, w.spatial do after[k] = covered(n, x, w, k) - x:size(k + 2) - w.before[k] end
  return after
end

-- Places of max pooling in a whole tensor, from 0, of those in each plane, from 1.
local function places(n, x, index, w, order)
  local sizes = x:size()
  local plane = 1
  for k = 1, w.spatial do plane = plane * sizes[k + 2] end
  local at = get 'sub'(index, 1)
  if order == 1 then -- columns first: of a plane H x W
    if w.spatial ~= 2 then n:fail "attribute 'storage_order' is 1 for data that are no images" end
    local row = get 'floor_divide'(at, sizes[4])
    local column = get 'sub'(at, get 'mul'(row, sizes[4]))
    at = get 'add'(get 'mul'(column, sizes[3]), row)
  end
  local shape = {sizes[1], sizes[2]}
  for k = 1, w.spatial do shape[k + 2] = 1 end
  local first = get 'arange'(0, sizes[1] * sizes[2], 1, 'int64', 'cpu')
  return get 'add'(at, get 'reshape'(get 'mul'(first, plane), shape))
end

function M.MaxPool(n)
  local x = n:tensor(1)
  local w, order = window(n, x), n:attr('storage_order', 0)
  local dtype, both = x.dtype, n:results() > 1
  if not proto.floats[dtype] then x = cast(x, 'float32') end
  local padding, ceil, padded = w.before, w.ceil, x
  if not w.direct then
    if both then n:fail 'gives places for pads that are not the same on both sides, which is not supported' end
    padded = layers.spatially(n, x, w.before, exact(n, x, w), -math.huge)
    padding, ceil = 0, false
  end
  local f = get('max_pool' .. w.spatial .. 'd')
  if not both then return cast((f(padded, w.kernel, w.stride, padding, w.dilation, ceil, false)), dtype) end
  local values, index = f(padded, w.kernel, w.stride, padding, w.dilation, ceil, true)
  return cast(values, dtype), places(n, x, index, w, order)
end

-- Sums over windows of any pads and dilations, by a convolution with ones.
local function window_sums(n, x, w, after)
  local sizes, ones = x:size(), {1, 1}
  local flat = {-1, 1}
  for k = 1, w.spatial do ones[k + 2], flat[k + 2] = w.kernel[k], sizes[k + 2] end
  local padded = layers.spatially(n, get 'reshape'(x, flat), w.before, after, 0)
  local out = get('conv' .. w.spatial .. 'd')(padded, n:full(ones, 1, x.dtype), nil, w.stride, 0, w.dilation, 1)
  local back = {sizes[1], sizes[2]}
  local made = out:size()
  for k = 1, w.spatial do back[k + 2] = made[k + 2] end
  return get 'reshape'(out, back)
end

function M.AveragePool(n)
  local x = n:tensor(1)
  local w, count_pads = window(n, x), n:attr('count_include_pad', 0) == 1
  if w.direct and w.dense then
    return get('avg_pool' .. w.spatial .. 'd')(x, w.kernel, w.stride, w.before, w.ceil, count_pads)
  end
  local after, mask, inside = exact(n, x, w), {1, 1}, {before = w.before, kernel = w.kernel, stride = w.stride, dilation = w.dilation, spatial = w.spatial}
  local rest = {unpack(after)}
  for k = 1, w.spatial do mask[k + 2] = x:size(k + 2) end
  local ones = n:full(mask, 1, x.dtype)
  if count_pads then -- pads count, what lies beyond them does not
    local own = {}
    for k = 1, w.spatial do
      own[k] = math.min(w.after[k], after[k])
      rest[k] = after[k] - own[k]
      mask[k + 2] = x:size(k + 2) + w.before[k] + own[k]
    end
    ones = n:full(mask, 1, x.dtype)
    inside.before = {}
    for k = 1, w.spatial do inside.before[k] = 0 end
  end
  return get 'div'(window_sums(n, x, w, after), window_sums(n, ones, inside, rest))
end

function M.LpPool(n)
  local x = n:tensor(1)
  local w, p = window(n, x), n:attr('p', 2)
  local powers = get 'pow'(get 'abs'(x), p)
  return get 'pow'(window_sums(n, powers, w, exact(n, x, w)), 1 / p)
end

-- Places are of the whole tensor, from 0.
function M.MaxUnpool(n)
  local x = n:tensor(1)
  if n:has(3) then n:fail 'has an output_shape (operand 3), which is not supported' end
  local w = window(n, x)
  local shape, total = {x:size(1), x:size(2)}, x:size(1) * x:size(2)
  for k = 1, w.spatial do
    shape[k + 2] = (x:size(k + 2) - 1) * w.stride[k] + w.kernel[k] - w.before[k] - w.after[k]
    total = total * shape[k + 2]
  end
  local at = get 'add'(get 'reshape'(n:tensor(2), {-1}), 1)
  return get 'reshape'(get 'index_copy'(n:full({total}, 0, x.dtype), 1, at, get 'reshape'(x, {-1})), shape)
end

local function spatial_dims(x)
  local dims = {}
  for d = 3, x:dim() do dims[#dims + 1] = d end
  return dims
end

function M.GlobalAveragePool(n) local x = n:tensor(1) return get 'mean'(x, spatial_dims(x), true) end
function M.GlobalMaxPool(n) local x = n:tensor(1) return get 'amax'(x, spatial_dims(x), true) end
function M.GlobalLpPool(n)
  local x = n:tensor(1)
  return get 'norm'(x, n:attr('p', 2), spatial_dims(x), true)
end

-- -- Resizing ----------------------------------------------------------------------------------------------

-- Along dimension d by an index of the nearest elements, or by a matrix of weights; both are made of what is known.
local function coordinate(mode, i, scale, from, to, roi)
  if mode == 'half_pixel' then return (i + 0.5) / scale - 0.5 end
  if mode == 'half_pixel_symmetric' then
    local adjust = to / (scale * from)
    local center = from / 2
    return center * (1 - adjust) + (i + 0.5) / scale - 0.5
  end
  if mode == 'pytorch_half_pixel' then return to > 1 and (i + 0.5) / scale - 0.5 or 0 end
  if mode == 'align_corners' then return scale * from ~= 1 and i * (from - 1) / (scale * from - 1) or 0 end
  if mode == 'asymmetric' then return i / scale end
  if mode == 'tf_crop_and_resize' then
    return to > 1 and roi[1] * (from - 1) + i * (roi[2] - roi[1]) * (from - 1) / (to - 1) or 0.5 * (roi[1] + roi[2]) * (from - 1)
  end
end

local function nearest(mode, v)
  if mode == 'round_prefer_floor' then return math.ceil(v - 0.5) end
  if mode == 'round_prefer_ceil' then return math.floor(v + 0.5) end
  if mode == 'floor' then return math.floor(v) end
  return math.ceil(v)
end

local function cubic_weight(t, a)
  t = math.abs(t)
  if t <= 1 then return ((a + 2) * t - (a + 3)) * t * t + 1 end
  if t < 2 then return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a end
  return 0
end

-- Weights of element i: {place from 0 = weight}.
local function weights_of(o, x, scale, from)
  local list = {}
  local stretch = o.antialias and scale < 1 and scale or 1
  local reach = (o.mode == 'linear' and 1 or 2) / stretch
  local total = 0
  for k = math.floor(x - reach), math.ceil(x + reach) do
    local t = (k - x) * stretch
    local weight = o.mode == 'linear' and math.max(0, 1 - math.abs(t)) or cubic_weight(t, o.a)
    local inside = k >= 0 and k < from
    if weight ~= 0 and (inside or not o.exclude) then
      local at = math.max(0, math.min(from - 1, k))
      list[at] = (list[at] or 0) + weight
      total = total + weight
    end
  end
  if o.exclude or o.antialias then
    for k, v in pairs(list) do list[k] = v / total end
  end
  return list
end

local function along(n, x, d, from, to, scale, o, roi)
  n:room(from * to)
  local host, outside = require 'amp.io.onnx.host', {}
  local crop = o.coordinate == 'tf_crop_and_resize'
  local index, rows, some = {}, {}, false
  for i = 0, to - 1 do
    local v = coordinate(o.coordinate, i, scale, from, to, roi)
    outside[i + 1] = crop and (v < 0 or v > from - 1) and 1 or 0
    some = some or outside[i + 1] == 1
    if o.mode == 'nearest' then index[i + 1] = math.max(0, math.min(from - 1, nearest(o.nearest, v))) + 1
    else
      local w = weights_of(o, v, scale, from)
      for k = 0, from - 1 do rows[#rows + 1] = w[k] or 0 end
    end
  end
  local out
  if o.mode == 'nearest' then out = get 'index_select'(x, d, n.model:tensor {h = index, dtype = 'int64', shape = {to}})
  else
    local matrix = n.model:tensor {h = rows, dtype = x.dtype, shape = {to, from}}
    out = get 'transpose'(get 'linear'(get 'transpose'(x, d, x:dim()), matrix), d, x:dim())
  end
  if not some then return out end
  local shape = {}
  for k = 1, x:dim() do shape[k] = k == d and to or 1 end
  local mask = get 'reshape'(n.model:tensor(host.value(outside, 'bool')), shape)
  return cast(get 'where'(mask, o.beyond, out), x.dtype)
end

local coordinates = {half_pixel = true, half_pixel_symmetric = true, pytorch_half_pixel = true, align_corners = true, asymmetric = true,
  tf_crop_and_resize = true}
local rounds = {round_prefer_floor = true, round_prefer_ceil = true, floor = true, ceil = true}

local function policy(n, x, dims, sizes, scales)
  local how = n:attr('keep_aspect_ratio_policy', 'stretch')
  if how == 'stretch' or not sizes then return end
  local best
  for _, d in ipairs(dims) do
    local s = sizes[d] / x:size(d)
    if not best or how == 'not_larger' and s < best or how == 'not_smaller' and s > best then best = s end
  end
  for _, d in ipairs(dims) do
    scales[d] = best
    sizes[d] = math.floor(best * x:size(d) + 0.5)
  end
end

-- Nearest by a whole factor, and linear between half pixels or corners, are amp's interpolate: they follow free sizes.
local linear = {'linear', 'bilinear', 'trilinear'}
local function interpolated(n, x, o, sizes, scales)
  local spatial = x:dim() - 2
  if spatial < 1 or spatial > 3 or sizes[1] or sizes[2] or o.antialias or o.exclude then return nil end
  local factor = {}
  for k = 1, spatial do
    factor[k] = scales[k + 2] or sizes[k + 2] and sizes[k + 2] / x:size(k + 2) or 1
    if o.mode == 'nearest' and (factor[k] % 1 ~= 0 or factor[k] < 1 or o.coordinate ~= 'asymmetric' or o.nearest ~= 'floor') then return nil end
  end
  local total = x:numel()
  for k = 1, spatial do total = total * factor[k] end
  n:room(total)
  if o.mode == 'nearest' then return get 'interpolate'(x, nil, factor, 'nearest') end
  if o.mode ~= 'linear' or not (o.coordinate == 'half_pixel' or o.coordinate == 'pytorch_half_pixel' or o.coordinate == 'align_corners') then return nil end
  local to, by_scale = {}, not sizes[x:dim()]
  for k = 1, spatial do by_scale = by_scale and factor[k] % 1 == 0 and factor[k] >= 1 end
  if by_scale then return get 'interpolate'(x, nil, factor, linear[spatial], o.coordinate == 'align_corners') end
  for k = 1, spatial do
    if factor[k] * x:size(k + 2) < 2 then return nil end
    to[k] = sizes[k + 2] or math.floor(factor[k] * x:size(k + 2))
    if math.abs(to[k] - factor[k] * x:size(k + 2)) > 1e-6 then return nil end
  end
  return get 'interpolate'(x, to, nil, linear[spatial], o.coordinate == 'align_corners')
end

local function resize(n, x, o, sizes, scales, roi)
  n.read.roi = true
  local dims = {}
  for d = 1, x:dim() do
    if sizes[d] or scales[d] then dims[#dims + 1] = d end
  end
  policy(n, x, dims, sizes[dims[1]] and sizes, scales)
  local same = {}
  for _, d in ipairs(dims) do -- dimensions that keep their size
    same[d] = (scales[d] or sizes[d] / x:size(d)) == 1 and o.coordinate ~= 'tf_crop_and_resize'
    if same[d] then sizes[d], scales[d] = nil, nil end
  end
  local out = interpolated(n, x, o, sizes, scales)
  if out then return out end
  local dtype = x.dtype
  if o.mode ~= 'nearest' and not proto.floats[dtype] then x = cast(x, 'float32') end
  for _, d in ipairs(dims) do
    if not same[d] then
      local from = x:size(d)
      local to = sizes[d] or math.floor(from * scales[d] + 1e-9)
      if to < 1 or to ~= to then n:fail('makes size %s of %d', tostring(to), from) end
      x = along(n, x, d, from, to, scales[d] or to / from, o, roi[d])
    end
  end
  return cast(x, dtype)
end

function M.Resize(n)
  local x = n:tensor(1)
  local o = {mode = n:attr('mode', 'nearest'), coordinate = n:attr('coordinate_transformation_mode', n.opset < 11 and 'asymmetric' or 'half_pixel'),
    nearest = n:attr('nearest_mode', n.opset < 11 and 'floor' or 'round_prefer_floor'), a = n:attr('cubic_coeff_a', -0.75),
    exclude = n:attr('exclude_outside', 0) == 1, antialias = n:attr('antialias', 0) == 1, beyond = n:attr('extrapolation_value', 0)}
  n:attr('keep_aspect_ratio_policy', 'stretch')
  if o.mode == 'bilinear' then o.mode = 'linear' end
  if o.mode ~= 'nearest' and o.mode ~= 'linear' and o.mode ~= 'cubic' then n:fail("attribute 'mode' is '%s'", o.mode) end
  if not coordinates[o.coordinate] then n:fail("attribute 'coordinate_transformation_mode' is '%s'", o.coordinate) end
  if not rounds[o.nearest] then n:fail("attribute 'nearest_mode' is '%s'", o.nearest) end
  local at = n.opset < 11 and 2 or 3
  local factors = n:has(at) and n:list(at, 'scales') or nil
  local wanted = n.opset >= 11 and n:has(4) and n:list(4, 'sizes') or nil
  if factors and #factors == 0 then factors = nil end
  if not factors and not wanted then n:fail 'has neither scales nor sizes' end
  local axes, region = n:ints 'axes', n.opset >= 11 and n:has(2) and n:list(2, 'roi') or {}
  local list = wanted or factors
  local many = axes and #axes or x:dim()
  if #list ~= many then n:fail('has %d sizes or scales of %d dimensions', #list, many) end
  local sizes, scales, roi = {}, {}, {}
  for i = 1, many do
    local d = axes and n:dim(axes[i], x:dim()) or i
    if wanted then sizes[d] = wanted[i] else scales[d] = factors[i] end
    roi[d] = {region[i] or 0, region[i + many] or 1}
    if factors and (factors[i] <= 0 or factors[i] ~= factors[i]) then n:fail('has the scale %s', tostring(factors[i])) end
  end
  return resize(n, x, o, sizes, scales, roi)
end

function M.Upsample(n)
  local x = n:tensor(1)
  local factors = n:has(2) and n:list(2, 'scales') or n:attr 'scales'
  local mode = n:attr('mode', 'nearest')
  if mode == 'bilinear' then mode = 'linear' end
  if mode ~= 'nearest' and mode ~= 'linear' then n:fail("attribute 'mode' is '%s'", mode) end
  if not factors or #factors ~= x:dim() then n:fail('has no scales of %d dimensions', x:dim()) end
  local scales = {}
  for d = 1, x:dim() do scales[d] = factors[d] end
  return resize(n, x, {mode = mode, coordinate = 'asymmetric', nearest = 'floor', a = -0.75}, {}, scales, {})
end

function M.GridSample(n)
  local mode = n:attr('mode', 'linear')
  local names = {linear = 'bilinear', bilinear = 'bilinear', nearest = 'nearest', cubic = 'bicubic', bicubic = 'bicubic'}
  if not names[mode] then n:fail("attribute 'mode' is '%s'", mode) end
  return get 'grid_sample'(n:tensor(1), n:tensor(2), names[mode], n:attr('padding_mode', 'zeros'), n:attr('align_corners', 0) == 1)
end

return M

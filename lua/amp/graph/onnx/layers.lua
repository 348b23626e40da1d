--- Products, convolutions, pooling, normalisations and losses in ONNX: functions of the writer and a node that give the names of its
-- results.
-- @module amp.graph.onnx.layers
local elementwise = require 'amp.graph.onnx.elementwise'
local index = require 'amp.graph.onnx.index'
local shape = require 'amp.graph.onnx.shape'

local X = {}

-- -- Products ----------------------------------------------------------------------------------------------

for _, name in ipairs {'matmul', 'mm', 'bmm', 'mv', 'dot', 'vdot'} do
  X[name] = function(e, n)
    local dtype = n:result().dtype
    return e:emit('MatMul', {n:input(1, dtype), n:input(2, dtype)})
  end
end

local function linear(e, x, w, b, rank)
  if rank == 2 then return e:emit('Gemm', {x, w, b}, {transB = 1}) end
  local out = e:emit('MatMul', {x, e:emit('Transpose', {w}, {perm = {1, 0}})})
  return b ~= '' and e:emit('Add', {out, b}) or out
end

function X.linear(e, n) return linear(e, n:input(1), n:input(2), n:input(3), n:rank(1)) end

function X.linear_act(e, n)
  if n:result(2) then n:fail 'keeps its argument; export the graph before it is optimized' end
  local out, act, dtype = X.linear(e, n), n:attr 'act', n:result().dtype
  if act == 'relu' then return e:emit('Relu', {out}) end
  local function o(op, ...) return e:emit(op, {...}) end
  return elementwise.gelu_of(act == 'gelu_tanh' and 'tanh' or 'none', out, o, function(v) return e:scalar(v, dtype) end)
end

local function scaled(e, name, by, dtype) return by == 1 and name or e:emit('Mul', {name, e:scalar(by, dtype)}) end

local function sum_and_product(e, n)
  local dtype = n:result().dtype
  local product = scaled(e, e:emit('MatMul', {n:input(2, dtype), n:input(3, dtype)}), n:attr 'alpha', dtype)
  if n:attr 'beta' == 0 then return product end
  return e:emit('Add', {scaled(e, n:input(1, dtype), n:attr 'beta', dtype), product})
end
X.addmm, X.baddbmm, X.addmv = sum_and_product, sum_and_product, sum_and_product

function X.outer(e, n)
  local dtype = n:result().dtype
  return e:emit('Mul', {e:emit('Unsqueeze', {n:input(1, dtype), e:ints {1}}), n:input(2, dtype)})
end

function X.vecdot(e, n)
  local dtype = n:result().dtype
  local product = e:emit('Mul', {n:input(1, dtype), n:input(2, dtype)})
  return index.reduce_by(e, 'ReduceSum', product, {n:dim('dim', n:rank(1))}, false)
end

function X.chain_matmul(e, n)
  local out = n:input(1)
  for i = 2, #n.inputs do out = e:emit('MatMul', {out, n:input(i)}) end
  return out
end

local function label(k)
  if k <= 26 then return string.char(96 + k) end
  if k <= 52 then return string.char(64 + k - 26) end
end

local function letters(code)
  local text, dots = {}, false
  code = require('ffi').cast('int64_t', code)
  while code ~= 0 do
    local k = tonumber(code % 64)
    if k <= 52 then text[#text + 1] = label(k)
    elseif not dots then
      text[#text + 1], dots = '...', true
    end
    code = code / 64
  end
  return table.concat(text)
end

function X.einsum(e, n)
  local slots, parts, names = n.slots, {}, {}
  for i = 1, tonumber(slots[0].i) do
    parts[i], names[i] = letters(slots[i].i), n:input(i, n:result().dtype)
  end
  local out
  for _, a in ipairs(n.row.args) do
    if a.name == 'output' then out = letters(slots[a.slot].i) end
  end
  return e:emit('Einsum', names, {equation = table.concat(parts, ',') .. '->' .. out})
end

-- -- Convolution and pooling -------------------------------------------------------------------------------

-- f(x) for data with a batch; a single sample gets one for a while. rank: of data with a batch.
local function batched(e, n, rank, f)
  local x = n:input(1)
  if n:rank(1) == rank then return f(x) end
  local results = {f(e:emit('Unsqueeze', {x, e:ints {0}}))}
  for i, name in ipairs(results) do results[i] = e:emit('Squeeze', {name, e:ints {0}}) end
  return unpack(results)
end

local function twice(list)
  local out = {unpack(list)}
  for i = 1, #list do out[#list + i] = list[i] end
  return out
end

-- Pads and ceil_mode of pooling. amp starts no window beyond the data and the pads before it; ONNX says that of opset 22 on only, so
-- where it matters the pads after the data are those that the windows reach. Third: these count more than the op's own.
local function window_ends(n, k, kernel, dilation)
  local padding, stride = n:numbers 'padding', n:numbers 'stride' or kernel
  local pads, rank, differs, beyond = twice(padding), n:rank(1), false, false
  if not n:attr 'ceil_mode' then return pads, false, false end
  for i = 1, k do
    local d = rank - k + i
    if n:fixed(1, d) then
      local size, reach = n:shape(1)[d], (kernel[i] - 1) * (dilation and dilation[i] or 1) + 1
      local naive, count = math.ceil((size + 2 * padding[i] - reach) / stride[i]) + 1, n:result().shape[d]
      differs = differs or naive ~= count
      pads[k + i] = math.max(0, (count - 1) * stride[i] + reach - size - padding[i])
      beyond = beyond or pads[k + i] > padding[i]
    elseif padding[i] > 0 or stride[i] > kernel[i] then n:fail 'has a counterpart for ceil_mode with pads for fixed sizes only' end
  end
  if not differs then return twice(padding), true, false end
  return pads, false, beyond and not dilation and n:attr 'count_include_pad'
end

for k = 1, 3 do
  X['conv' .. k .. 'd'] = function(e, n)
    return batched(e, n, k + 2, function(x)
      return e:emit('Conv', {x, n:input(2), n:input(3)}, {strides = n:numbers 'stride', pads = twice(n:numbers 'padding'),
        dilations = n:numbers 'dilation', group = n:attr 'groups', kernel_shape = {unpack(n:shape(2), 3)}})
    end)
  end
  X['conv_transpose' .. k .. 'd'] = function(e, n)
    local stride, extra, large = n:numbers 'stride', n:numbers 'output_padding', false
    for i = 1, k do large = large or extra[i] >= stride[i] end
    return batched(e, n, k + 2, function(x)
      local attrs = {strides = stride, pads = twice(n:numbers 'padding'), dilations = n:numbers 'dilation', group = n:attr 'groups',
        kernel_shape = {unpack(n:shape(2), 3)}}
      if not large then
        attrs.output_padding = extra
        return e:emit('ConvTranspose', {x, n:input(2), n:input(3)}, attrs)
      end
      local padding = n:numbers 'padding' -- output_padding that only dilation allows: more of the product is kept
      for i = 1, k do attrs.pads[k + i] = padding[i] - extra[i] end
      for i = 1, k do
        if attrs.pads[k + i] < 0 then n:fail 'has a counterpart for output_padding below the stride or up to padding only' end
      end
      return e:emit('ConvTranspose', {x, n:input(2), n:input(3)}, attrs)
    end)
  end
  X['max_pool' .. k .. 'd'] = function(e, n)
    local kernel, places = n:numbers 'kernel_size', n:attr 'return_indices'
    local pads, ceil = window_ends(n, k, kernel, n:numbers 'dilation')
    local values, at = batched(e, n, k + 2, function(x)
      return e:emit('MaxPool', {x}, {kernel_shape = kernel, strides = n:numbers 'stride' or kernel, pads = pads,
        dilations = n:numbers 'dilation', ceil_mode = ceil}, places and 2 or 1)
    end)
    if not places then return values end
    local plane = 1
    for d = n:rank(1) - k + 1, n:rank(1) do plane = plane * n:size(1, d) end
    return values, index.raised_index(e, n, e:emit('Mod', {at, e:scalar(plane, 'int64')}), 2)
  end
  X['avg_pool' .. k .. 'd'] = function(e, n)
    local kernel, divisor = n:numbers 'kernel_size', k > 1 and n:attr 'divisor_override' or nil
    local pads, ceil, beyond = window_ends(n, k, kernel)
    if divisor and n:attr 'ceil_mode' then n:fail 'has no counterpart for divisor_override with ceil_mode' end
    if beyond then n:fail 'has no counterpart for this ceil_mode: windows reach beyond the pads that count' end
    local out = batched(e, n, k + 2, function(x)
      return e:emit('AveragePool', {x}, {kernel_shape = kernel, strides = n:numbers 'stride' or kernel, pads = pads,
        ceil_mode = ceil, count_include_pad = divisor ~= nil or n:attr 'count_include_pad'})
    end)
    if not divisor then return out end
    local count = 1
    for i = 1, k do count = count * kernel[i] end
    return e:emit('Mul', {out, e:scalar(count / divisor, n:result().dtype)})
  end
  -- Windows of adaptive pooling: whole steps are pooling, others a product with a matrix along each dimension.
  X['adaptive_avg_pool' .. k .. 'd'] = function(e, n)
    local out, rank, dtype = n:numbers 'output_size', n:rank(1), n:dtype(1)
    local x, ones = n:input(1), true
    for i = 1, k do ones = ones and out[i] == 1 end
    local axes = {}
    for i = 1, k do axes[i] = rank - k + i - 1 end
    if ones then return index.reduce_by(e, 'ReduceMean', x, axes, true) end
    for i = 1, k do
      local size, weights = n:size(1, rank - k + i), {}
      for o = 0, out[i] - 1 do
        local first, last = math.floor(o * size / out[i]), math.ceil((o + 1) * size / out[i])
        for at = 0, size - 1 do weights[at * out[i] + o + 1] = at >= first and at < last and 1 / (last - first) or 0 end
      end
      local perm = {}
      for d = 1, rank do perm[d] = d - 1 end
      perm[axes[i] + 1], perm[rank] = rank - 1, axes[i]
      local turn = axes[i] ~= rank - 1
      if turn then x = e:emit('Transpose', {x}, {perm = perm}) end
      x = e:emit('MatMul', {x, e:const(weights, dtype, {size, out[i]})})
      if turn then x = e:emit('Transpose', {x}, {perm = perm}) end
    end
    return x
  end
  X['adaptive_max_pool' .. k .. 'd'] = function(e, n)
    local out, rank, kernel, ones = n:numbers 'output_size', n:rank(1), {}, true
    if n:attr 'return_indices' then n:fail 'has no counterpart with indices' end
    for i = 1, k do ones = ones and out[i] == 1 end
    local axes = {}
    for i = 1, k do axes[i] = rank - k + i - 1 end
    if ones then return index.reduce_by(e, 'ReduceMax', n:input(1), axes, true) end
    for i = 1, k do
      kernel[i] = n:size(1, rank - k + i) / out[i]
      if kernel[i] % 1 ~= 0 then n:fail 'has a counterpart for sizes that are multiples of output_size only' end
    end
    return batched(e, n, k + 2, function(x) return e:emit('MaxPool', {x}, {kernel_shape = kernel, strides = kernel}) end)
  end
  X['lp_pool' .. k .. 'd'] = function(e, n)
    local kernel, p = n:numbers 'kernel_size', n:attr 'norm_type'
    if n:attr 'ceil_mode' or p % 1 ~= 0 then n:fail 'has a counterpart without ceil_mode and for whole norm_type only' end
    return batched(e, n, k + 2, function(x) return e:emit('LpPool', {x}, {kernel_shape = kernel, strides = n:numbers 'stride' or kernel, p = p}) end)
  end
end

local modes = {constant = 'constant', reflect = 'reflect', replicate = 'edge'}

-- Circular pads: pieces from the other end.
local function circular(e, n)
  local list, rank, x = n:numbers 'pad', n:rank(1), n:input(1)
  for i = 1, #list, 2 do
    local axis, before, after, parts = rank - (i + 1) / 2, list[i], list[i + 1], {}
    if before < 0 or after < 0 then n:fail 'has no counterpart for negative circular pads' end
    if before > 0 then parts[1] = e:emit('Slice', {x, e:ints {-before}, e:ints {e.LAST}, e:ints {axis}}) end
    parts[#parts + 1] = x
    if after > 0 then parts[#parts + 1] = e:emit('Slice', {x, e:ints {0}, e:ints {after}, e:ints {axis}}) end
    if #parts > 1 then x = e:emit('Concat', parts, {axis = axis}) end
  end
  return x
end

function X.pad(e, n)
  local list, mode, rank = n:list 'pad', n:attr 'mode', n:rank(1)
  if mode == 'circular' then return circular(e, n) end
  if not modes[mode] then n:fail("has no counterpart for the mode '%s' in opset %d", mode, e.opset) end
  local pads = {}
  for d = 1, rank do
    local at = 2 * (rank - d) + 1
    pads[d], pads[rank + d] = list[at] or 0, list[at + 1] or 0
  end
  local dtype = n:dtype(1)
  local wide = dtype == 'bool' and 'int32' or dtype
  local out = e:emit('Pad', {n:input(1, wide), e:shape(pads), mode == 'constant' and e:scalar(n:attr 'value', wide) or ''}, {mode = modes[mode]})
  return e:cast(out, wide, dtype)
end

local resize = {nearest = {mode = 'nearest', coordinate_transformation_mode = 'asymmetric', nearest_mode = 'floor'},
  ['nearest-exact'] = {mode = 'nearest', coordinate_transformation_mode = 'half_pixel', nearest_mode = 'round_prefer_ceil'},
  linear = {mode = 'linear', coordinate_transformation_mode = 'half_pixel'},
  bicubic = {mode = 'cubic', coordinate_transformation_mode = 'half_pixel'}}
resize.bilinear, resize.trilinear = resize.linear, resize.linear

function X.interpolate(e, n)
  local mode, size, factor, rank = n:attr 'mode', n:list 'size', n:numbers 'scale_factor', n:rank(1)
  if n:attr 'antialias' then n:fail('has no counterpart with antialias in opset %d', e.opset) end
  if not resize[mode] then n:fail("has no counterpart for the mode '%s'", mode) end
  local attrs = {}
  for k, v in pairs(resize[mode]) do attrs[k] = v end
  if n:attr 'align_corners' then attrs.coordinate_transformation_mode = 'align_corners' end
  if mode == 'bicubic' then attrs.cubic_coeff_a = e.float(-0.75) end
  local spatial = rank - 2
  if size then
    while #size < spatial do size[#size + 1] = size[1] end
    local head = e:emit('Slice', {e:emit('Shape', {n:input(1)}), e:ints {0}, e:ints {2}, e:ints {0}})
    return e:emit('Resize', {n:input(1), '', '', e:emit('Concat', {head, e:shape(size)}, {axis = 0})}, attrs)
  end
  if n:attr 'recompute_scale_factor' then n:fail 'has no counterpart with recompute_scale_factor' end
  local scales = {1, 1}
  for k = 1, spatial do
    scales[k + 2] = factor[k] or factor[1]
    local s = n:shape(1)[k + 2]
    -- a size that stays is not resampled in these modes
    if mode ~= 'bicubic' and mode ~= 'nearest-exact' and n:fixed(1, k + 2) and math.floor(s * scales[k + 2]) == s then scales[k + 2] = 1 end
  end
  return e:emit('Resize', {n:input(1), '', e:const(scales, 'float32')}, attrs)
end

function X.grid_sample(e, n)
  if e.opset < 16 then n:fail 'has a counterpart from opset 16 on' end
  if n:rank(1) ~= 4 then n:fail 'has a counterpart for images only' end
  return e:emit('GridSample', {n:input(1), n:input(2)}, {mode = n:attr 'mode', padding_mode = n:attr 'padding_mode', align_corners = n:attr 'align_corners'})
end

function X.pixel_shuffle(e, n)
  if n:rank(1) ~= 4 then n:fail 'has a counterpart for N x C x H x W only' end
  return e:emit('DepthToSpace', {n:input(1)}, {blocksize = n:attr 'upscale_factor', mode = 'CRD'})
end

function X.pixel_unshuffle(e, n)
  local r = n:attr 'downscale_factor'
  if n:rank(1) ~= 4 then n:fail 'has a counterpart for N x C x H x W only' end
  local c, h, w = n:size(1, 2), n:size(1, 3) / r, n:size(1, 4) / r
  local x = e:emit('Reshape', {n:input(1), e:ints {0, c, h, r, w, r}})
  x = e:emit('Transpose', {x}, {perm = {0, 1, 3, 5, 2, 4}})
  return e:emit('Reshape', {x, e:ints {0, c * r * r, h, w}})
end

function X.channel_shuffle(e, n)
  local groups, c, rank = n:attr 'groups', n:size(1, 2), n:rank(1)
  local rest = {}
  for d = 3, rank do rest[#rest + 1] = n:size(1, d) end
  local batch = n:fixed(1, 1) and n:shape(1)[1] or -1
  local x = shape.reshape_to(e, n:input(1), {batch, groups, c / groups, unpack(rest)})
  local perm = {0, 2, 1}
  for d = 3, rank do perm[d + 1] = d end
  return shape.reshape_to(e, e:emit('Transpose', {x}, {perm = perm}), {batch, c, unpack(rest)})
end

-- -- Normalisations ----------------------------------------------------------------------------------------

local function eval_only(n, name)
  if n:attr(name or 'training') then n:fail 'is in training mode; call net:eval() before the graph is traced' end
end

-- A weight of `count` channels, or ones or zeros.
local function channel(e, n, i, count, value, dtype)
  if n:has(i) then return n:input(i, dtype) end
  local list = {}
  for k = 1, count do list[k] = value end
  return e:const(list, dtype)
end

local function normalised(e, n, x)
  local c, dtype = n:size(1, 2), n:dtype(1)
  return e:emit('BatchNormalization', {x, channel(e, n, 4, c, 1, dtype), channel(e, n, 5, c, 0, dtype), n:input(2, dtype), n:input(3, dtype)},
    {epsilon = e.float(n:attr 'eps')})
end

function X.batch_norm(e, n)
  if n:attr 'training' or not n:has(2) or not n:has(3) then
    n:fail 'is in training mode, or has no running statistics; call net:eval() before the graph is traced'
  end
  return normalised(e, n, n:input(1))
end
X.sync_batch_norm = X.batch_norm

function X.batch_norm_act(e, n) -- residual is operand 2
  eval_only(n)
  local moved = setmetatable({inputs = {n.inputs[1], n.inputs[3], n.inputs[4], n.inputs[5], n.inputs[6]}}, {__index = n})
  local out = normalised(e, moved, n:input(1))
  if n:has(2) then out = e:emit('Add', {out, n:input(2)}) end
  return n:attr 'relu' and e:emit('Relu', {out}) or out
end

function X.instance_norm(e, n)
  if not n:attr 'use_input_stats' then
    if n:rank(1) < 3 then n:fail 'has a counterpart for data with a batch only' end
    return normalised(e, n, n:input(1))
  end
  local c, dtype = n:size(1, 2), n:dtype(1)
  return e:emit('InstanceNormalization', {n:input(1), channel(e, n, 4, c, 1, dtype), channel(e, n, 5, c, 0, dtype)}, {epsilon = e.float(n:attr 'eps')})
end

function X.group_norm(e, n)
  local groups, rank, c, dtype = n:attr 'num_groups', n:rank(1), n:size(1, 2), n:dtype(1)
  local ones, zeros, full = {}, {}, e:emit('Shape', {n:input(1)})
  for k = 1, groups do ones[k], zeros[k] = 1, 0 end
  local fixed, rest = true, 1
  for d = 1, rank do
    fixed = fixed and n:fixed(1, d)
    if d > 1 then rest = rest * n:shape(1)[d] end
  end
  local x = shape.reshape_to(e, n:input(1), fixed and {n:shape(1)[1], groups, rest / groups} or {0, groups, -1})
  x = e:emit('InstanceNormalization', {x, e:const(ones, dtype), e:const(zeros, dtype)}, {epsilon = e.float(n:attr 'eps')})
  x = e:emit('Reshape', {x, full})
  local wide = {c}
  for d = 3, rank do wide[d - 1] = 1 end
  if n:has(2) then x = e:emit('Mul', {x, e:emit('Reshape', {n:input(2, dtype), e:ints(wide)})}) end
  if n:has(3) then x = e:emit('Add', {x, e:emit('Reshape', {n:input(3, dtype), e:ints(wide)})}) end
  return x
end

local function layer_norm(e, n, x, at, dtype)
  local sizes, eps, axes = n:numbers 'shape', n:attr 'eps', {}
  local weight, bias = n:has(at) and n:input(at, dtype) or '', n:has(at + 1) and n:input(at + 1, dtype) or ''
  if e.opset >= 17 then
    if weight == '' then
      local ones, count = {}, 1
      for _, s in ipairs(sizes) do count = count * s end
      for k = 1, count do ones[k] = 1 end
      weight = e:const(ones, dtype, sizes)
    end
    return e:emit('LayerNormalization', {x, weight, bias}, {axis = -#sizes, epsilon = e.float(eps)})
  end
  for k = 1, #sizes do axes[k] = k - 1 - #sizes end
  local off = e:emit('Sub', {x, e:emit('ReduceMean', {x}, {axes = axes, keepdims = 1})})
  local square = e:emit('ReduceMean', {e:emit('Mul', {off, off})}, {axes = axes, keepdims = 1})
  local out = e:emit('Div', {off, e:emit('Sqrt', {e:emit('Add', {square, e:scalar(eps, dtype)})})})
  if weight ~= '' then out = e:emit('Mul', {out, weight}) end
  return bias ~= '' and e:emit('Add', {out, bias}) or out
end

function X.layer_norm(e, n)
  local dtype = n:result().dtype
  return layer_norm(e, n, n:input(1, dtype), 2, dtype)
end

function X.add_layer_norm(e, n)
  local dtype = n:result().dtype
  local sum = e:emit('Add', {n:input(1, dtype), n:input(2, dtype)})
  return layer_norm(e, n, sum, 3, dtype), sum
end

function X.rms_norm(e, n)
  local sizes, dtype, axes = n:numbers 'shape', n:result().dtype, {}
  local x = n:input(1, dtype)
  local eps = n:attr 'eps' or ({float32 = 2 ^ -23, float64 = 2 ^ -52, float16 = 2 ^ -10, bfloat16 = 2 ^ -7})[dtype]
  for k = 1, #sizes do axes[k] = k - 1 - #sizes end
  local square = e:emit('ReduceMean', {e:emit('Mul', {x, x})}, {axes = axes, keepdims = 1})
  local out = e:emit('Div', {x, e:emit('Sqrt', {e:emit('Add', {square, e:scalar(eps, dtype)})})})
  return n:has(2) and e:emit('Mul', {out, n:input(2, dtype)}) or out
end

function X.local_response_norm(e, n)
  local size = n:attr 'size'
  if size % 2 == 0 or n:rank(1) < 3 then n:fail 'has a counterpart for odd sizes and data with spatial dimensions only' end
  local attrs = {size = size, alpha = e.float(n:attr 'alpha'), beta = e.float(n:attr 'beta'), bias = e.float(n:attr 'k')}
  if n:rank(1) == 4 then return e:emit('LRN', {n:input(1)}, attrs) end
  local fixed, rest = true, 1
  for d = 1, n:rank(1) do
    fixed = fixed and n:fixed(1, d)
    if d > 2 then rest = rest * n:shape(1)[d] end
  end
  local image = fixed and {n:shape(1)[1], n:shape(1)[2], rest, 1} or {0, 0, -1, 1} -- which is what runtimes take
  local out = e:emit('LRN', {shape.reshape_to(e, n:input(1), image)}, attrs)
  return e:emit('Reshape', {out, e:emit('Shape', {n:input(1)})})
end

-- -- Softmax and losses ------------------------------------------------------------------------------------

local function softmax(op, turned)
  return function(e, n)
    local dtype = n:result().dtype
    if n:rank(1) == 0 then n:fail 'has no counterpart for scalars' end
    local x = n:input(1, dtype)
    return e:emit(op, {turned and e:emit('Neg', {x}) or x}, {axis = n:dim('dim', n:rank(1))})
  end
end
X.softmax, X.log_softmax, X.softmin = softmax 'Softmax', softmax 'LogSoftmax', softmax('Softmax', true)

local function reduced(e, n, loss)
  local how = n:attr 'reduction'
  if how == 'none' then return loss end
  return e:emit(how == 'mean' and 'ReduceMean' or 'ReduceSum', {loss}, {keepdims = 0})
end

function X.mse_loss(e, n)
  local dtype = n:result().dtype
  local off = e:emit('Sub', {n:input(1, dtype), n:input(2, dtype)})
  return reduced(e, n, e:emit('Mul', {off, off}))
end

function X.l1_loss(e, n)
  local dtype = n:result().dtype
  return reduced(e, n, e:emit('Abs', {e:emit('Sub', {n:input(1, dtype), n:input(2, dtype)})}))
end

-- Labels count from 0 in ONNX; the label that is ignored, too.
local function labels(e, n)
  return e:emit('Sub', {n:input(2, 'int64'), e:scalar(1, 'int64')}), n:attr 'ignore_index' - 1
end

function X.cross_entropy(e, n)
  if n:dtype(2):find 'float' then n:fail 'has a counterpart for labels, not for probabilities' end
  if n:attr 'label_smoothing' ~= 0 then n:fail 'has no counterpart with label_smoothing' end
  if n:rank(1) < 2 then n:fail 'has a counterpart for data with a batch only' end
  local target, ignored = labels(e, n)
  return e:emit('SoftmaxCrossEntropyLoss', {n:input(1), target, n:input(3)}, {reduction = n:attr 'reduction', ignore_index = ignored})
end

function X.nll_loss(e, n)
  if n:rank(1) < 2 then n:fail 'has a counterpart for data with a batch only' end
  local target, ignored = labels(e, n)
  return e:emit('NegativeLogLikelihoodLoss', {n:input(1), target, n:input(3)}, {reduction = n:attr 'reduction', ignore_index = ignored})
end

X.linear_of = linear

return X

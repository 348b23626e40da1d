--- Ops of ONNX that move elements, by amp's: functions of a node that give its results.
-- @module amp.io.onnx.shape
local Node = require 'amp.io.onnx.node'
local host = require 'amp.io.onnx.host'
local ops = require 'amp.ops'
local proto = require 'amp.io.onnx.proto'
local get, cast = ops.get, Node.cast

local M = {}

local function sizes(t) return {unpack(t:size())} end

function M.Shape(n)
  local s = sizes(n:tensor(1))
  local first, last = n:attr('start', 0), n:attr('end', #s)
  local function limited(k) return math.max(0, math.min(#s, k < 0 and k + #s or k)) end
  local h = {}
  for d = limited(first) + 1, limited(last) do h[#h + 1] = s[d] end
  return host.value(h, 'int64')
end

function M.Size(n) return host.value({n:tensor(1):numel()}, 'int64', {}) end

function M.Reshape(n)
  local x = n:tensor(1)
  local list = n:has(2) and n:list(2, 'shape') or n:ints 'shape'
  if not list then n:fail 'has no shape' end
  local shape, zero = {}, n:attr('allowzero', 0) == 0
  for d, s in ipairs(list) do
    if s == 0 and zero then
      if d > x:dim() then n:fail('size %d is 0, of %d dimensions', d, x:dim()) end
      s = x:size(d)
    end
    shape[d] = s
  end
  return get 'reshape'(x, shape)
end

function M.Flatten(n)
  local x = n:tensor(1)
  local axis = n:attr('axis', 1)
  if axis < 0 then axis = axis + x:dim() end
  if axis < 0 or axis > x:dim() then n:fail('axis %d of %d dimensions', axis, x:dim()) end
  if axis == 1 and x:dim() > 1 then return get 'flatten'(x, 2, -1) end -- follows any size
  local s, before, after = sizes(x), 1, 1
  for d = 1, #s do
    if d <= axis then before = before * s[d] else after = after * s[d] end
  end
  return get 'reshape'(x, {before, after})
end

function M.Transpose(n)
  local x = n:tensor(1)
  local perm, dims = n:ints 'perm', {}
  for d = 1, x:dim() do dims[d] = perm and n:dim(perm[d] or -100, x:dim()) or x:dim() + 1 - d end
  if perm and #perm ~= x:dim() then n:fail("attribute 'perm' has %d axes of %d", #perm, x:dim()) end
  if x:dim() == 0 then return x end
  return get 'permute'(x, dims)
end

function M.Squeeze(n)
  local x = n:tensor(1)
  local dims = n:axes(2, x:dim())
  if not dims then
    dims = {}
    for d, s in ipairs(sizes(x)) do
      if s == 1 then dims[#dims + 1] = d end
    end
  end
  for i = #dims, 1, -1 do
    if x:size(dims[i]) ~= 1 then n:fail('dimension %d has size %d, not 1', dims[i], x:size(dims[i])) end
    x = get 'squeeze'(x, dims[i])
  end
  return x
end

function M.Unsqueeze(n)
  local x = n:tensor(1)
  local list = n:has(2) and n:list(2, 'axes') or n:ints 'axes' or {}
  local dims = n:axes(2, x:dim() + #list)
  for _, d in ipairs(dims or {}) do x = get 'unsqueeze'(x, d) end
  return x
end

function M.Concat(n)
  local list, dtype = {}, nil
  for i = 1, #n.inputs do
    list[i] = n:tensor(i)
    dtype = dtype or list[i].dtype
  end
  local d, total = n:dim(n:attr('axis', 0), list[1]:dim()), 0
  for i = 1, #list do
    if list[i].dtype ~= dtype then n:fail 'joins tensors of several dtypes' end
    total = total + list[i]:numel()
  end
  n:room(total)
  if #list == 1 then return list[1] end
  return get 'cat'(list, d)
end

function M.Split(n)
  local x = n:tensor(1)
  local d = n:dim(n:attr('axis', 0), x:dim())
  local size = x:size(d)
  local list = n:has(2) and n:list(2, 'split') or n:ints 'split'
  if not list then
    local count = n:attr('num_outputs', #n.outputs)
    if count ~= #n.outputs then n:fail("attribute 'num_outputs' is %d, it has %d results", count, #n.outputs) end
    local each = math.ceil(size / count)
    list = {}
    for i = 1, count do list[i] = math.max(0, math.min(each, size - each * (i - 1))) end
  end
  n:attr 'num_outputs'
  local out, at = {}, 1
  for i = 1, #n.outputs do
    if not list[i] then n:fail('has %d results of %d pieces', #n.outputs, #list) end
    out[i] = get 'narrow'(x, d, at, list[i])
    at = at + list[i]
  end
  if at ~= size + 1 then n:fail('its pieces have %d elements of %d', at - 1, size) end
  return unpack(out)
end

local function slice(n, x, d, start, stop, step)
  local size = x:size(d)
  local function limited(k, low, high) return math.max(low, math.min(high, k < 0 and k + size or k)) end
  if step == 0 then n:fail 'has the step 0' end
  if step > 0 then
    if start == 0 and stop >= 2 ^ 31 - 1 and step == 1 then return x end
    if step == 1 then
      local from, to = limited(start, 0, size), limited(stop, 0, size)
      return get 'narrow'(x, d, from + 1, math.max(0, to - from))
    end
    local from, to = limited(start, 0, size), limited(stop, 0, size)
    if from >= to then return get 'narrow'(x, d, 1, 0) end
    return get 'slice'(x, d, from + 1, to, step)
  end
  local from, to = limited(start, 0, size - 1), limited(stop, -1, size - 1)
  if size == 0 or from <= to then return get 'narrow'(x, d, 1, 0) end
  -- the elements to + 1 ... from, and of those every step-th from the last on
  local part = get 'flip'(get 'narrow'(x, d, to + 2, from - to), {d})
  return step == -1 and part or get 'slice'(part, d, 1, from - to, -step)
end

function M.Slice(n)
  local x = n:tensor(1)
  local starts = n:has(2) and n:list(2, 'starts') or n:ints 'starts'
  local ends = n:has(3) and n:list(3, 'ends') or n:ints 'ends'
  if not starts or not ends or #starts ~= #ends then n:fail 'has no starts and ends of the same number' end
  local axes = n:has(4) and n:list(4, 'axes') or n:ints 'axes'
  local steps = n:list(5, 'steps')
  for i = 1, #starts do
    local d = n:dim(axes and axes[i] or i - 1, x:dim())
    x = slice(n, x, d, starts[i], ends[i], steps and steps[i] or 1)
  end
  return x
end

-- Sizes of two shapes broadcast.
local function joined(n, a, b)
  local count, out = math.max(#a, #b), {}
  for d = 1, count do
    local x, y = a[d - count + #a] or 1, b[d - count + #b] or 1
    if x ~= y and x ~= 1 and y ~= 1 then n:fail('size %d of dimension %d does not become %d', x, d, y) end
    out[d] = x == 1 and y or x
  end
  return out
end

function M.Expand(n)
  local x = n:tensor(1)
  return get 'expand'(x, joined(n, sizes(x), n:list(2, 'shape')))
end

function M.Tile(n)
  local x, repeats = n:tensor(1), n:list(2, 'repeats')
  if #repeats ~= x:dim() then n:fail('has %d repeats of %d dimensions', #repeats, x:dim()) end
  local total, some = x:numel(), false
  for _, r in ipairs(repeats) do
    if r < 0 then n:fail('has the repeat %d', r) end
    total, some = total * r, some or r ~= 1
  end
  n:room(total)
  if not some then return x end
  return get 'repeat'(x, repeats)
end

local modes = {constant = 'constant', reflect = 'reflect', edge = 'replicate', wrap = 'circular'}

-- Pads of dimension 1..: begin, end; by amp's op, more dimensions than it pads at once one after the other.
function M.padded(n, x, before, after, mode, value)
  local rank, list, total = x:dim(), {}, 1
  local some = false
  for d = rank, 1, -1 do
    list[#list + 1], list[#list + 2] = before[d] or 0, after[d] or 0
    some = some or before[d] ~= 0 or after[d] ~= 0
    total = total * (x:size(d) + math.abs(before[d]) + math.abs(after[d]))
  end
  n:room(total)
  if not some then return x end
  while #list > 2 and list[#list] == 0 and list[#list - 1] == 0 do list[#list], list[#list - 1] = nil, nil end
  local dtype = x.dtype
  if dtype == 'bool' then x = cast(x, 'uint8') end
  if mode == 'constant' then return cast(get 'pad'(x, list, 'constant', value or 0), dtype) end
  for i = 1, #list, 2 do -- one dimension at a time, moved to the end
    if list[i] ~= 0 or list[i + 1] ~= 0 then
      local d = rank - (i - 1) / 2
      local shape
      if rank < 2 then x = get 'unsqueeze'(x, 1) else x = get 'transpose'(x, d, rank) end
      shape = sizes(x)
      x = get 'reshape'(x, {1, -1, shape[#shape]})
      x = get 'pad'(x, {list[i], list[i + 1]}, mode, 0)
      shape[#shape] = shape[#shape] + list[i] + list[i + 1]
      x = get 'reshape'(x, shape)
      if rank < 2 then x = get 'squeeze'(x, 1) else x = get 'transpose'(x, d, rank) end
    end
  end
  return cast(x, dtype)
end

function M.Pad(n)
  local x = n:tensor(1)
  local rank = x:dim()
  local mode = modes[n:attr('mode', 'constant')]
  if not mode then n:fail("attribute 'mode' is '%s'", n:attr 'mode') end
  local pads = n:has(2) and n:list(2, 'pads') or n:ints 'pads'
  local value = n:has(3) and n:scalar(3, 'constant_value') or n:attr('value', 0)
  local axes = n:list(4, 'axes')
  local many = axes and #axes or rank
  if not pads or #pads ~= 2 * many then n:fail('has %d pads of %d dimensions', pads and #pads or 0, many) end
  local before, after = {}, {}
  for d = 1, rank do before[d], after[d] = 0, 0 end
  for i = 1, many do
    local d = axes and n:dim(axes[i], rank) or i
    before[d], after[d] = pads[i], pads[i + many]
  end
  return M.padded(n, x, before, after, mode, value)
end

-- -- Making ------------------------------------------------------------------------------------------------

function M.Constant(n)
  local v = n:attr 'value'
  if v then
    if n.attrs.value.field ~= 't' then n:fail "attribute 'value' is no tensor" end
    return v
  end
  for name, dtype in pairs {value_int = 'int64', value_float = 'float32'} do
    v = n:attr(name)
    if v ~= nil then return host.value({v}, dtype, {}) end
  end
  for name, dtype in pairs {value_ints = 'int64', value_floats = 'float32'} do
    v = n:attr(name)
    if v ~= nil then return host.value({unpack(v)}, dtype) end
  end
  n:fail 'has no value that is a tensor or numbers'
end

function M.ConstantOfShape(n)
  local shape = n:list(1, 'input')
  local v = n:attr 'value'
  local x, dtype = 0, 'float32'
  if v then
    if n.attrs.value.field ~= 't' or not v.h or #v.h ~= 1 then n:fail "attribute 'value' is no tensor of one element" end
    x, dtype = v.h[1], v.dtype
  end
  for _, s in ipairs(shape) do
    if s < 0 then n:fail('has the size %d', s) end
  end
  local out = {t = n:full(shape, x, dtype), dtype = dtype, shape = {unpack(shape)}}
  if host.count(shape) <= 64 then
    out.h = {}
    for i = 1, host.count(shape) do out.h[i] = x end
  end
  return out
end

function M.Range(n)
  local start, limit, step = n:scalar(1, 'start'), n:scalar(2, 'limit'), n:scalar(3, 'delta')
  local dtype = n:value(1).dtype
  if step == 0 then n:fail 'has the step 0' end
  local count = math.max(0, math.ceil((limit - start) / step))
  n:room(count)
  local out = {t = get 'arange'(start, limit, step, dtype, 'cpu'), dtype = dtype, shape = {count}}
  if count <= 64 then
    out.h = {}
    for i = 1, count do out.h[i] = start + (i - 1) * step end
  end
  return out
end

function M.EyeLike(n)
  local x = n:tensor(1)
  if x:dim() ~= 2 then n:fail 'takes a matrix' end
  local dtype = proto.dtypes[n:attr('dtype', proto.number[x.dtype])]
  if not proto.known[dtype] then n:fail("attribute 'dtype' is %s, which amp has not", tostring(dtype)) end
  local k, rows, columns = n:attr('k', 0), x:size(1), x:size(2)
  local ones = n:full({rows, columns}, 1, 'float32')
  return cast(get 'triu'(get 'tril'(ones, k), k), dtype)
end

function M.Trilu(n)
  local k = n:has(2) and n:scalar(2, 'k') or 0
  return get(n:attr('upper', 1) == 1 and 'triu' or 'tril')(n:tensor(1), k)
end

function M.DepthToSpace(n)
  local x, b, mode = n:tensor(1), n:attr('blocksize', 0), n:attr('mode', 'DCR')
  local s = sizes(x)
  if #s ~= 4 or b < 1 or s[2] % (b * b) ~= 0 or mode ~= 'DCR' and mode ~= 'CRD' then n:fail 'takes N x C x H x W, C a multiple of blocksize^2' end
  if mode == 'CRD' then return get 'pixel_shuffle'(x, b) end
  x = get 'reshape'(x, {s[1], b, b, s[2] / (b * b), s[3], s[4]})
  return get 'reshape'(get 'permute'(x, {1, 4, 5, 2, 6, 3}), {s[1], s[2] / (b * b), s[3] * b, s[4] * b})
end

function M.SpaceToDepth(n)
  local x, b = n:tensor(1), n:attr('blocksize', 0)
  local s = sizes(x)
  if #s ~= 4 or b < 1 or s[3] % b ~= 0 or s[4] % b ~= 0 then n:fail 'takes N x C x H x W, H and W multiples of blocksize' end
  x = get 'reshape'(x, {s[1], s[2], s[3] / b, b, s[4] / b, b})
  return get 'reshape'(get 'permute'(x, {1, 4, 6, 2, 3, 5}), {s[1], s[2] * b * b, s[3] / b, s[4] / b})
end

return M

--- Values that are known while a model is read: shapes and what is computed of them, as lists of numbers.
--
-- A value is {dtype, shape, h = its elements in C order}. M.ops[op](node, values) gives the node's result, or nil where it can't.
-- @module amp.io.onnx.host
local ffi = require 'ffi'
local proto = require 'amp.io.onnx.proto'

local M = {}
local ops = {}
M.ops = ops

local MOST, DIMENSIONS = 4096, 8

local function count(shape)
  local n = 1
  for _, s in ipairs(shape) do n = n * s end
  return n
end
M.count = count

local single = ffi.new 'float[1]'
local function rounded(v, dtype)
  if dtype ~= 'float32' then return v end
  single[0] = v
  return tonumber(single[0])
end

function M.value(h, dtype, shape)
  shape = shape or {#h}
  if #h > MOST or #shape > DIMENSIONS or count(shape) ~= #h then return nil end
  for i = 1, #h do
    if h[i] == nil then return nil end
  end
  if dtype == 'float32' then
    for i = 1, #h do h[i] = rounded(h[i], dtype) end
  end
  return {h = h, dtype = dtype, shape = shape}
end
local value = M.value

-- -- Broadcasting ------------------------------------------------------------------------------------------

local function joined(a, b)
  local n, out = math.max(#a, #b), {}
  for d = 1, n do
    local x, y = a[d - n + #a] or 1, b[d - n + #b] or 1
    if x ~= y and x ~= 1 and y ~= 1 then return nil end
    out[d] = x == 1 and y or x
  end
  return out
end

-- Elements of v as one of this shape.
local function spread(v, shape)
  local n, out = count(shape), {}
  if n > MOST or #shape > DIMENSIONS then return nil end
  local strides, step = {}, 1
  for d = #v.shape, 1, -1 do
    strides[d + #shape - #v.shape] = v.shape[d] == 1 and 0 or step
    step = step * v.shape[d]
  end
  for i = 0, n - 1 do
    local rest, at = i, 0
    for d = #shape, 1, -1 do
      at = at + rest % shape[d] * (strides[d] or 0)
      rest = math.floor(rest / shape[d])
    end
    out[i + 1] = v.h[at + 1]
  end
  return out
end

local function pairwise(f, dtype)
  return function(_, v)
    if #v ~= 2 then return nil end
    local shape = joined(v[1].shape, v[2].shape)
    local a, b = shape and spread(v[1], shape), shape and spread(v[2], shape)
    if not a or not b then return nil end
    local integer, out = not proto.floats[v[1].dtype], {}
    for i = 1, #a do
      out[i] = f(a[i], b[i], integer)
      if out[i] == nil then return nil end
    end
    return value(out, dtype or v[1].dtype, shape)
  end
end

local function whole(v) return v < 0 and math.ceil(v) or math.floor(v) end
local function truth(v) return v and 1 or 0 end

ops.Add = pairwise(function(a, b) return a + b end)
ops.Sub = pairwise(function(a, b) return a - b end)
ops.Mul = pairwise(function(a, b) return a * b end)
ops.Div = pairwise(function(a, b, integer)
  if not integer then return a / b end
  if b ~= 0 then return whole(a / b) end
end)
ops.Max = pairwise(function(a, b) return math.max(a, b) end)
ops.Min = pairwise(function(a, b) return math.min(a, b) end)
ops.Equal = pairwise(function(a, b) return truth(a == b) end, 'bool')
ops.Less = pairwise(function(a, b) return truth(a < b) end, 'bool')
ops.LessOrEqual = pairwise(function(a, b) return truth(a <= b) end, 'bool')
ops.Greater = pairwise(function(a, b) return truth(a > b) end, 'bool')
ops.GreaterOrEqual = pairwise(function(a, b) return truth(a >= b) end, 'bool')
ops.And = pairwise(function(a, b) return truth(a ~= 0 and b ~= 0) end, 'bool')
ops.Or = pairwise(function(a, b) return truth(a ~= 0 or b ~= 0) end, 'bool')
ops.Pow = pairwise(function(a, b, integer)
  if not integer or b >= 0 then return a ^ b end
end)
function ops.Mod(n, v)
  local remainder = n:attr('fmod', 0) == 1 and math.fmod or function(a, b) return a % b end
  return pairwise(function(a, b, integer)
    if b ~= 0 or not integer then return remainder(a, b) end
  end)(n, v)
end

local function each(f)
  return function(_, v)
    local out = {}
    for i, x in ipairs(v[1].h) do out[i] = f(x) end
    return value(out, v[1].dtype, v[1].shape)
  end
end

ops.Identity = each(function(x) return x end)
ops.Neg = each(function(x) return -x end)
ops.Abs = each(math.abs)
ops.Floor = each(math.floor)
ops.Ceil = each(math.ceil)
ops.Sqrt = each(math.sqrt)
ops.Not = each(function(x) return truth(x == 0) end)

function ops.Cast(n, v)
  local dtype = proto.dtypes[n:attr('to')]
  n:attr('saturate', 1)
  if not proto.known[dtype] or dtype == 'float16' or dtype == 'bfloat16' then return nil end
  local out = {}
  for i, x in ipairs(v[1].h) do
    if dtype == 'bool' then out[i] = truth(x ~= 0)
    elseif proto.floats[dtype] then out[i] = x
    elseif dtype == 'int64' or dtype == 'int32' then
      if x ~= x or math.abs(x) >= 2 ^ 31 and dtype == 'int32' then return nil end
      out[i] = whole(x)
    else return nil end
  end
  return value(out, dtype, v[1].shape)
end

function ops.Where(_, v)
  local shape = joined(v[1].shape, v[2].shape)
  shape = shape and joined(shape, v[3].shape)
  if not shape then return nil end
  local c, a, b = spread(v[1], shape), spread(v[2], shape), spread(v[3], shape)
  if not (c and a and b) then return nil end
  local out = {}
  for i = 1, #c do out[i] = c[i] ~= 0 and a[i] or b[i] end
  return value(out, v[2].dtype, shape)
end

-- -- Moving elements ---------------------------------------------------------------------------------------

-- The same elements in another shape.
local function shaped(v, shape) return value({unpack(v.h)}, v.dtype, shape) end

local function axis_of(axis, rank)
  if axis < 0 then axis = axis + rank end
  return axis >= 0 and axis < rank and axis + 1 or nil
end

local function axes_of(n, v, rank)
  local list = v[2] and v[2].h or n:attr 'axes'
  if not list then return nil end
  local set = {}
  for _, a in ipairs(list) do
    local d = axis_of(a, rank)
    if not d then return nil end
    set[d] = true
  end
  return set
end

function ops.Unsqueeze(n, v)
  local list = v[2] and v[2].h or n:attr 'axes'
  local set = list and axes_of(n, v, #v[1].shape + #list)
  if not set then return nil end
  local shape, at = {}, 0
  for d = 1, #v[1].shape + #list do
    if set[d] then shape[d] = 1
    else
      at = at + 1
      shape[d] = v[1].shape[at]
    end
  end
  return #shape == #v[1].shape + #list and shaped(v[1], shape) or nil
end

function ops.Squeeze(n, v)
  local set, shape = axes_of(n, v, #v[1].shape), {}
  if not set and (v[2] or n:attr 'axes') then return nil end
  for d, s in ipairs(v[1].shape) do
    if set and set[d] and s ~= 1 then return nil end
    if not (set and set[d] or not set and s == 1) then shape[#shape + 1] = s end
  end
  return shaped(v[1], shape)
end

function ops.Reshape(n, v)
  local shape, known, open, zero = {}, 1, nil, n:attr('allowzero', 0) == 0
  for d, s in ipairs(v[2].h) do
    if s == 0 and zero then s = v[1].shape[d] or -2 end
    if s == -1 then open = d else known = known * s end
    shape[d] = s
  end
  if open then shape[open] = known > 0 and #v[1].h / known or -1 end
  return shaped(v[1], shape)
end

function ops.Flatten(_, v) return #v[1].shape == 1 and shaped(v[1], {1, #v[1].h}) or nil end

function ops.Concat(n, v)
  local out = {}
  for _, x in ipairs(v) do
    if #x.shape ~= 1 or axis_of(n:attr('axis', 0), 1) ~= 1 or #out + #x.h > MOST then return nil end
    for _, e in ipairs(x.h) do out[#out + 1] = e end
  end
  return value(out, v[1].dtype)
end

function ops.Gather(n, v)
  local data, index = v[1], v[2]
  if #data.shape ~= 1 or axis_of(n:attr('axis', 0), 1) ~= 1 then return nil end
  local out = {}
  for i, k in ipairs(index.h) do
    out[i] = data.h[k < 0 and k + #data.h + 1 or k + 1]
    if out[i] == nil then return nil end
  end
  return value(out, data.dtype, index.shape)
end

-- Elements of dimension d at these places from 0.
local function picked(v, d, places)
  local inner, outer, shape, out = 1, 1, {unpack(v.shape)}, {}
  for k = d + 1, #shape do inner = inner * shape[k] end
  for k = 1, d - 1 do outer = outer * shape[k] end
  for o = 0, outer - 1 do
    for _, at in ipairs(places) do
      for i = 1, inner do out[#out + 1] = v.h[(o * shape[d] + at) * inner + i] end
    end
  end
  shape[d] = #places
  return value(out, v.dtype, shape)
end

local function sliced(v, d, start, stop, step)
  local size, places = v.shape[d], {}
  local function limited(x, low, high) return math.max(low, math.min(high, x < 0 and x + size or x)) end
  if step > 0 then
    for i = limited(start, 0, size), limited(stop, 0, size) - 1, step do places[#places + 1] = i end
  else
    for i = limited(start, 0, size - 1), limited(stop, -1, size - 1) + 1, step do places[#places + 1] = i end
  end
  return picked(v, d, places)
end

function ops.Slice(n, v)
  local function of(i, name) return v[i] and v[i].h or not v[i] and n:attr(name) end
  local starts, ends, axes, steps = of(2, 'starts'), of(3, 'ends'), of(4, 'axes'), v[5] and v[5].h
  if not starts or not ends or #starts ~= #ends then return nil end
  local out = v[1]
  for i = 1, #starts do
    local d, step = axis_of(axes and axes[i] or i - 1, #v[1].shape), steps and steps[i] or 1
    if not d or step == 0 then return nil end
    out = sliced(out, d, starts[i], ends[i], step)
  end
  return out ~= v[1] and out or nil
end

function ops.Transpose(n, v)
  local perm, shape, strides, step = n:attr 'perm', {}, {}, 1
  local from, rank = v[1].shape, #v[1].shape
  for d = rank, 1, -1 do strides[d], step = step, step * from[d] end
  local by = {}
  for d = 1, rank do
    local k = perm and perm[d] and perm[d] + 1 or not perm and rank + 1 - d
    if not k or not from[k] then return nil end
    shape[d], by[d] = from[k], strides[k]
  end
  local out = {}
  for i = 0, #v[1].h - 1 do
    local rest, at = i, 0
    for d = rank, 1, -1 do
      at = at + rest % shape[d] * by[d]
      rest = math.floor(rest / shape[d])
    end
    out[i + 1] = v[1].h[at + 1]
  end
  return value(out, v[1].dtype, shape)
end

function ops.Expand(_, v)
  for _, s in ipairs(v[2].h) do
    if s < 0 then return nil end
  end
  local shape = joined(v[1].shape, v[2].h)
  local h = shape and spread(v[1], shape)
  return h and value(h, v[1].dtype, shape) or nil
end

function ops.Size(_, v) return value({#v[1].h}, 'int64', {}) end
function ops.Shape(_, v) return value({unpack(v[1].shape)}, 'int64') end

local function reduction(f)
  return function(n, v)
    n:attr('noop_with_empty_axes', 0)
    if #v > 1 and v[2] or n:attr 'axes' and #v[1].shape ~= 1 then return nil end
    if #v[1].h == 0 then return nil end
    local all
    for _, x in ipairs(v[1].h) do all = all == nil and x or all ~= nil and f(all, x) end
    local shape = {}
    if n:attr('keepdims', 1) == 1 then
      for d = 1, #v[1].shape do shape[d] = 1 end
    end
    return value({all}, v[1].dtype, shape)
  end
end
ops.ReduceProd = reduction(function(a, b) return a * b end)
ops.ReduceSum = reduction(function(a, b) return a + b end)
ops.ReduceMax = reduction(math.max)
ops.ReduceMin = reduction(math.min)

return M

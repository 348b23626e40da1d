--- Readers of sizes while a graph is recorded.
-- The size of what `nonzero`, a mask, `unique` and the like give depends on values. Ops may work with it, in every run with that
-- run's size; a size that the script reads would stay what it was. The library knows such tensors (amp_graph_varies), and
-- meanwhile each reader of sizes asks it first.
-- @module amp.graph.readers
local ffi = require 'ffi'
local bit = require 'bit'
local core = require 'amp.ffi'
local err = require 'amp.error'
local index = require 'amp.tensor.index'
local tensor = require 'amp.tensor'
local words = require 'amp.precision.autocast_state'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

local function refuse(op, d)
  err.throw_code('unsupported', op, '%s of this tensor depends on values (as of nonzero, a mask, unique), and a graph that is recorded would '
    .. 'keep the one of this run; let ops take the tensor as it is (view(-1), sum, mean), or do this part outside of the graph',
    d and ('size %d'):format(d) or 'a size')
end

local function bits_of(t)
  if not istype(ref_t, t) or t.ptr_ == nil then return 0 end
  return C.amp_graph_varies(S, t)
end

-- Bit of dimension d (may be negative); nil: there is no such dimension, as the reader itself says.
local function bit_of(t, d)
  local n = t.ptr_.ndim
  local k = type(d) == 'number' and (d < 0 and d + n or d - 1)
  return k and k >= 0 and k < n and bit.lshift(1, k) or 0
end

local function check(op, t, d)
  local bits = bits_of(t)
  if bits == 0 then return end
  if d == nil then refuse(op) end
  if bit.band(bits, bit_of(t, d)) ~= 0 then refuse(op, d) end
end

-- -- Readers --------------------------------------------------------------------------------------

local function of_dimension(op, f)
  return function(t, d, ...)
    check(op, t, d)
    return f(t, d, ...)
  end
end

local function of_all(op, f)
  return function(t, ...)
    check(op, t)
    return f(t, ...)
  end
end

local function of_other(op, f)
  return function(t, u, ...)
    check(op, u)
    return f(t, u, ...)
  end
end

-- split(t, size, dim), and the like
local function of_third(op, f)
  return function(t, n, d, ...)
    check(op, t, type(d) == 'table' and d.dim or d or 1)
    return f(t, n, d, ...)
  end
end

local function of_second_or_first(op, f)
  return function(t, d, ...)
    check(op, t, d or 1)
    return f(t, d, ...)
  end
end

-- -- Answers that are no sizes -----------------------------------------------------------------------

local asked -- of the recording: a list of {tensor, name, value}, or {tensor, fits}

-- What a tensor answers is noted, so that whoever keeps the graph may ask again.
local function note_flag(name)
  local f = tensor.properties[name]
  return f, function(t)
    local value = f(t)
    if asked then asked[#asked + 1] = {tensor = t, name = name, value = value} end
    return value
  end
end

local function note_layout(t)
  if not asked or not istype(ref_t, t) or t.ptr_ == nil then return end
  local p = t.ptr_
  local CONTIGUOUS, strides = C.AMP_T_CONTIGUOUS, {}
  local whole = bit.band(C.amp_tensor_flags(t), CONTIGUOUS) ~= 0
  for d = 1, p.ndim do strides[d] = tonumber(p.stride[d - 1]) end
  asked[#asked + 1] = {tensor = t, fits = function(v)
    if whole then return bit.band(C.amp_tensor_flags(v), CONTIGUOUS) ~= 0 end
    for d = 1, #strides do
      if v.ptr_.stride[d - 1] ~= strides[d] then return false end
    end
    return true
  end}
end

local function of_layout(wrap)
  return function(op, f)
    local g = wrap(op, f)
    return function(t, ...)
      note_layout(t)
      return g(t, ...)
    end
  end
end

-- Where a view begins in its memory is another place in each call.
local function refused(op)
  return function()
    err.throw_code('unsupported', op, 'a graph is recorded, which can\'t hold what happens here: a place in memory is read')
  end
end

local wrappers = {
  storage_offset = refused,
  size = of_dimension, stride = of_layout(of_dimension), numel = of_all, nelement = of_all, nElement = of_all, is_contiguous = of_layout(of_all),
  expand_as = of_other, view_as = of_other, reshape_as = of_other, split = of_third, chunk = of_third, tensor_split = of_third,
  unbind = of_second_or_first, unstack = of_second_or_first,
}

-- A number from the end, or a range that ends there.
local function from_end(e)
  if type(e) == 'number' then return e < 0 end
  if type(e) ~= 'table' then return false end
  for i = 1, 2 do
    if type(e[i]) == 'number' and e[i] < 0 then return true end
  end
  return false
end

local function check_index(t, list)
  local bits = bits_of(t)
  if bits == 0 then return end
  if type(list) == 'number' then list = {list} end
  local d = 1
  for i = 1, #list do
    local e = list[i]
    if from_end(e) and bit.band(bits, bit_of(t, d)) ~= 0 then refuse('index', d) end
    d = d + (istype(ref_t, e) and e.ptr_ ~= nil and e.dtype == 'bool' and e:dim() or 1)
  end
end

local function alive(t, op)
  local p = tensor.alive(t, op)
  check(op, t, p.ndim > 0 and 1 or nil)
  return p
end

-- -- In and out -------------------------------------------------------------------------------------

local depth, before = 0, nil
local wrapped = {} -- by name: a method, and what stands for it

local function put_in()
  local methods, properties = tensor.methods, tensor.properties
  before = {methods = {}, shape = properties.shape, grad = properties.grad}
  for _, name in ipairs {'requires_grad', 'is_leaf'} do before[name], properties[name] = note_flag(name) end
  for name, wrap in pairs(wrappers) do
    local f = methods[name]
    before.methods[name] = f
    if not wrapped[name] or wrapped[name][1] ~= f then wrapped[name] = {f, wrap(name, f)} end
    methods[name] = wrapped[name][2]
  end
  properties.shape = of_all('shape', properties.shape)
  properties.grad = function(t)
    tensor.alive(t, 'grad')
    err.throw_code('unsupported', 'grad', 'a graph is recorded, which can\'t hold what happens here: a gradient is read')
  end
  index.guard = check_index
  tensor.guard(alive)
  words.asked = function(device)
    if asked then asked.regions = true end
    return device
  end
end

local function take_out()
  for name, f in pairs(before.methods) do tensor.methods[name] = f end
  for _, name in ipairs {'shape', 'grad', 'requires_grad', 'is_leaf'} do tensor.properties[name] = before[name] end
  index.guard = nil
  words.asked = false
  tensor.guard(nil)
  before = nil
end

--- Readers ask from now on. Gives the function that ends it, which may be called twice.
-- @tparam table list gets what is asked of tensors that is no size: {tensor, name, value} and {tensor, fits}; its `regions` is true
-- if the caller's region was asked for
return function(list)
  depth = depth + 1
  if depth == 1 then put_in() end
  local on, outer = true, asked
  asked = list
  return function()
    if not on then return end
    on = false
    asked = outer
    depth = depth - 1
    if depth == 0 then take_out() end
  end
end

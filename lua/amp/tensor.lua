--- The tensor: a handle (a struct by value) with methods, properties and operators.
-- `__gc` is a C function; `__index` is a Lua function over the plain table `methods`, so
-- methods may be added at any time. Methods that are ops come from amp.ops when first
-- called. One tensor may have several handles: key tables by `t:id()`.
-- @module amp.tensor
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.call'
local err = require 'amp.error'
local ops = require 'amp.ops'
local types = require 'amp.types'
local util = require 'amp.util'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype, band = ffi.istype, require('bit').band

local M = {}

local methods = {}
M.methods = methods

--- Whether a value is a tensor.
function M.is(v) return istype(ref_t, v) end

local function alive(t, op)
  if t.ptr_ == nil then err.throw(op, 'the tensor was freed (by t:free() or at the end of an amp.scope)') end
  return t.ptr_
end
M.alive = alive

local function self_check(t, op)
  if not istype(ref_t, t) then
    err.throw(op, 'is a method of tensors and is called as t:%s(...); got %s first', op, util.show(t))
  end
  return alive(t, op)
end
M.self_check = self_check

-- -- Sizes ---------------------------------------------------------------------------

local Size = {}
Size.__index = Size
Size.__tostring = function(s) return util.shape(s) end
Size.__eq = function(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end
Size.__concat = function(a, b) return tostring(a) .. tostring(b) end

local function sizes(p)
  local s = {}
  for i = 1, p.ndim do s[i] = tonumber(p.size[i - 1]) end
  return s
end

local function dimension(p, d, op)
  local n = p.ndim
  if type(d) ~= 'number' or d % 1 ~= 0 then err.throw(op, 'a dimension must be an integer, got %s', util.show(d)) end
  local k = d < 0 and d + n + 1 or d
  if k < 1 or k > n then
    err.throw_code('index', op, 'dimension %d is out of range for a tensor of %d dimension%s (%s)', d, n, n == 1 and '' or 's',
      util.shape(sizes(p)))
  end
  return k
end
M.dimension = dimension

--- Sizes as a list that prints as "2x3", or one size.
-- @tparam ?number d dimension
function methods.size(t, d)
  local p = self_check(t, 'size')
  if d ~= nil then return tonumber(p.size[dimension(p, d, 'size') - 1]) end
  return setmetatable(sizes(p), Size)
end

--- Strides in elements, as a list or one of them.
function methods.stride(t, d)
  local p = self_check(t, 'stride')
  if d ~= nil then return tonumber(p.stride[dimension(p, d, 'stride') - 1]) end
  local s = {}
  for i = 1, p.ndim do s[i] = tonumber(p.stride[i - 1]) end
  return s
end

--- Number of dimensions.
function methods.dim(t) return self_check(t, 'dim').ndim end
--- Number of elements.
function methods.numel(t) return tonumber(self_check(t, 'numel').numel) end
--- Place of the first element in its storage, in elements from 0.
function methods.storage_offset(t) return tonumber(self_check(t, 'storage_offset').offset) end
--- Bytes of an element.
function methods.element_size(t) return C.amp_dtype_size(self_check(t, 'element_size').dtype) end
--- Whether the dtype is float64, float32, float16 or bfloat16.
function methods.is_floating_point(t) return types.is_float(self_check(t, 'is_floating_point').dtype) end

--- A number that is unique to the tensor: the same for all its handles, never reused.
function methods.id(t) return tonumber(self_check(t, 'id').id) end

--- Whether elements lie in C order ('contiguous') or in that of channels-last images.
-- @tparam ?table options {memory_format = 'channels_last'}
function methods.is_contiguous(t, options)
  local p = self_check(t, 'is_contiguous')
  local format = type(options) == 'table' and options.memory_format or options
  if format == nil or format == 'contiguous' then return band(p.flags, 4) ~= 0 end
  if format ~= 'channels_last' then
    err.throw('is_contiguous', "memory_format must be 'contiguous' or 'channels_last', got %s", util.show(format))
  end
  if p.ndim ~= 4 then return false end
  local want = 1
  for _, i in ipairs { 1, 3, 2, 0 } do
    if p.size[i] ~= 1 and tonumber(p.stride[i]) ~= want then return false end
    want = want * tonumber(p.size[i])
  end
  return true
end

local pointers = { float64 = 'double *', float32 = 'float *', int64 = 'int64_t *', int32 = 'int32_t *', int16 = 'int16_t *',
  int8 = 'int8_t *', uint8 = 'uint8_t *', bool = 'uint8_t *', float16 = 'uint16_t *', bfloat16 = 'uint16_t *' }
--- Address of the first element (a cdata pointer of the dtype's C type, uint16_t for 16-bit floats).
-- LuaJIT takes some NaNs that are read through such a pointer for values of its own (a table, a function): read by it only what was
-- computed here; `item` and `tolist` give plain NaNs, whatever the bits.
function methods.data_ptr(t)
  local p = self_check(t, 'data_ptr')
  local at = C.amp_data_ptr(S, t)
  if at == nil and p.numel > 0 then err.raise 'data_ptr' end
  return ffi.cast(pointers[types.dtype_name[p.dtype]], at)
end

-- -- Values ----------------------------------------------------------------------------

local scratch = ffi.new 'double[1]'

--- The only element, as a Lua number (booleans as true or false).
function methods.item(t)
  local p = self_check(t, 'item')
  call.try('item', C.amp_item, S, t, scratch)
  if p.dtype == 9 then return scratch[0] ~= 0 end
  return scratch[0]
end

--- All elements as nested tables of numbers; a scalar gives a number.
function methods.tolist(t)
  local p = self_check(t, 'tolist')
  local n, nd = tonumber(p.numel), p.ndim
  if nd == 0 then return methods.item(t) end
  local data = ffi.new('double[?]', math.max(n, 1))
  call.try('tolist', C.amp_read, S, t, data, n)
  local boolean = p.dtype == 9
  local size, at = sizes(p), 0
  local function level(d)
    local list = {}
    if d == nd then
      for i = 1, size[d] do
        local v = data[at]
        at = at + 1
        if boolean then list[i] = v ~= 0 else list[i] = v end
      end
    else
      for i = 1, size[d] do list[i] = level(d + 1) end
    end
    return list
  end
  return level(1)
end

-- -- Properties ------------------------------------------------------------------------

local properties = {}
M.properties = properties

--- Sizes, a list.
function properties.shape(t) return sizes(alive(t, 'shape')) end
--- Number of dimensions.
function properties.ndim(t) return alive(t, 'ndim').ndim end
--- The dtype's name.
function properties.dtype(t) return types.dtype_name[alive(t, 'dtype').dtype] end
--- Where the tensor is: 'cpu', 'cuda:1' ...
function properties.device(t)
  local p = alive(t, 'device')
  return types.device_string(p.device, p.device_index)
end
--- Whether gradients flow to it; may be set on leaves.
function properties.requires_grad(t)
  alive(t, 'requires_grad')
  return band(C.amp_tensor_flags(t), 3) ~= 0
end
--- Whether it was made by the user, not by a recorded op.
function properties.is_leaf(t)
  alive(t, 'is_leaf')
  return band(C.amp_tensor_flags(t), 2) == 0
end
--- Whether it is on a GPU.
function properties.is_cuda(t) return alive(t, 'is_cuda').device == 1 end

--- The gradient that backward left, nil if there is none; may be set.
function properties.grad(t)
  alive(t, 'grad')
  if C.amp_grad_defined(t) == 0 then return nil end
  local g = call.make('grad', C.amp_grad_get, t)
  if g.ptr_ == nil then return nil end
  return g
end

local setters = {}

function setters.requires_grad(t, on)
  alive(t, 'requires_grad')
  if type(on) ~= 'boolean' then err.throw('requires_grad', 'must be true or false, got %s', util.show(on)) end
  call.check(C.amp_requires_grad(S, t, on and 1 or 0), 'requires_grad')
end

function setters.grad(t, g)
  alive(t, 'grad')
  if type(g) == 'nil' then
    call.check(C.amp_grad_set(S, t, nil), 'grad')
  elseif istype(ref_t, g) then
    call.check(C.amp_grad_set(S, t, g), 'grad')
  else
    err.throw('grad', 'must be a tensor or nil, got %s', util.show(g))
  end
end

-- -- Metatable --------------------------------------------------------------------------

local function unknown(k)
  local names = ops.names(true)
  for name in pairs(methods) do names[#names + 1] = name end
  for name in pairs(properties) do names[#names + 1] = name end
  err.throw(nil, "Tensor has no method or property '%s'%s", k, util.hint(k, names))
end

local index_get, index_set -- amp.index, when first needed

local function index(t, k)
  local m = methods[k]
  if m then return m end
  if type(k) == 'string' then
    local p = properties[k]
    if p then return p(t) end
    m = ops.method(k)
    if m then
      methods[k] = m
      return m
    end
    unknown(k)
  end
  if not index_get then index_get = require('amp.index').get end
  return index_get(t, k)
end

local function newindex(t, k, v)
  if type(k) == 'string' then
    local set = setters[k]
    if set then return set(t, v) end
    if properties[k] or methods[k] or ops.method(k) then err.throw(nil, "'%s' of a tensor can't be assigned", k) end
    err.throw(nil, "Tensor has no field '%s' to assign%s; data of your own goes into a table keyed by t:id()", k,
      util.hint(k, { 'grad', 'requires_grad' }))
  end
  if not index_set then index_set = require('amp.index').set end
  index_set(t, k, v)
end

local neg = ops.get 'neg'

-- Fixed for good: LuaJIT compiles against it. What may change goes through `index`.
ffi.metatype(ref_t, {
  __gc = C.amp_collect,
  __index = index,
  __newindex = newindex,
  __add = ops.get 'add', __sub = ops.get 'sub', __mul = ops.get 'mul', __div = ops.get 'div',
  __mod = ops.get 'mod', __pow = ops.get 'pow',
  __unm = function(a) return neg(a) end,
  __len = function(t)
    local p = alive(t, 'size')
    if p.ndim == 0 then return 0 end
    return tonumber(p.size[0])
  end,
  __eq = function(a, b)
    return istype(ref_t, a) and istype(ref_t, b) and a.ptr_ == b.ptr_
  end,
  __lt = function() err.throw('lt', 'a < b compares no tensors element by element in Lua; use a:lt(b)') end,
  __le = function() err.throw('le', 'a <= b compares no tensors element by element in Lua; use a:le(b)') end,
  __concat = function(a, b) return tostring(a) .. tostring(b) end,
  __tostring = function(t) return require('amp.print').tostring(t) end,
  __call = function() err.throw(nil, 'a tensor is not a function (t(...) was written; indexing is t[{...}])') end,
})

-- -- Methods that are no rows -------------------------------------------------------------

require 'amp.methods'(M)

return M

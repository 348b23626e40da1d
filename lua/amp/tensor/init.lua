--- The tensor: a handle (a struct by value) with methods, properties and operators.
-- `__gc` is a C function; `__index` is a Lua function over the plain table `methods`, so
-- methods may be added at any time. Methods that are ops come from amp.ops when first
-- called. One tensor may have several handles: key tables by `t:id()`.
-- @module amp.tensor
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local ops = require 'amp.ops'
local types = require 'amp.types'
local util = require 'amp.util'
local waits = require 'amp.core.waits'
local C, S, ref_t = core.C, core.S, core.ref_t
local CONTIGUOUS, HISTORY, TRACKED = C.AMP_T_CONTIGUOUS, C.AMP_T_HISTORY, C.AMP_T_REQUIRES_GRAD + C.AMP_T_HISTORY
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

local Size = { is_sizes = true }

--- Number of elements of a tensor of these sizes.
local function elements(s)
  local n = 1
  for i = 1, #s do n = n * s[i] end
  return n
end

-- Negative places count from the end; 0 is what other languages begin with.
Size.__index = function(s, k)
  if type(k) == 'number' then
    local n = #s
    if k < 0 and k >= -n and k % 1 == 0 then return rawget(s, n + 1 + k) end
    if k == 0 or k < 0 then
      err.throw_code('index', nil, 'there is no size %s: the dimensions of a shape (%s) are counted from 1 to %d, or from -1 to -%d',
        tostring(k), tostring(s), n, n)
    end
    return nil
  end
  return Size.methods[k]
end
Size.methods = { numel = elements }
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
function methods.size(t, d, excess)
  local p = self_check(t, 'size')
  if excess ~= nil then err.throw('size', 'takes 1 argument, a dimension; x:size() gives all sizes') end
  if d ~= nil then return tonumber(p.size[dimension(p, d, 'size') - 1]) end
  return setmetatable(sizes(p), Size)
end

--- Strides in elements, as a list or one of them.
function methods.stride(t, d, excess)
  local p = self_check(t, 'stride')
  if excess ~= nil then err.throw('stride', 'takes 1 argument, a dimension; x:stride() gives all strides') end
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
function methods.is_floating_point(t) return types.has_gradient(self_check(t, 'is_floating_point').dtype) end

--- A number that is unique to the tensor: the same for all its handles, never reused.
function methods.id(t) return tonumber(self_check(t, 'id').id) end

--- Whether elements lie in C order ('contiguous') or in that of channels-last images.
-- @tparam ?table options {memory_format = 'channels_last'}
function methods.is_contiguous(t, options)
  local p = self_check(t, 'is_contiguous')
  local format = options
  if type(options) == 'table' then
    format = require('amp.options').read('is_contiguous', options, { 'memory_format' }).memory_format
  end
  if format == nil or format == 'contiguous' then return band(p.flags, CONTIGUOUS) ~= 0 end
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
  int8 = 'int8_t *', uint8 = 'uint8_t *', bool = 'uint8_t *', float16 = 'uint16_t *', bfloat16 = 'uint16_t *',
  float8_e4m3 = 'uint8_t *', float8_e5m2 = 'uint8_t *' }
--- Address of the first element (a cdata pointer of the dtype's C type, uint16_t for 16-bit floats, uint8_t for 8-bit ones).
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
  call.attempt('item', C.amp_item, S, t, scratch)
  local v = scratch[0]
  if p.dtype == 9 then return v ~= 0 end
  if waits.pending then waits.look() end
  return v
end

local function row(data, at, n, boolean)
  local list = {}
  for i = 1, n do
    local v = data[at + i - 1]
    if boolean then list[i] = v ~= 0 else list[i] = v end
  end
  return list
end

-- Dimension d of a list of sizes and those within it, of which the first element is data[at], and of whose elements there are n.
local function nested(size, d, data, at, n, boolean)
  if d == #size then return row(data, at, n, boolean) end
  local list, count = {}, size[d]
  n = n / count
  for i = 1, count do list[i] = nested(size, d + 1, data, at + (i - 1) * n, n, boolean) end
  return list
end

local few = ffi.new 'double[64]' -- no two reads are in it at once

--- All elements as nested tables of numbers; a scalar gives a number.
function methods.tolist(t)
  local p = self_check(t, 'tolist')
  local n, nd, boolean = tonumber(p.numel), p.ndim, p.dtype == 9
  if nd == 0 then return methods.item(t) end
  local data = n <= 64 and few or ffi.new('double[?]', n)
  local single = nd == 1 or nd == 2 and p.size[0] == 1 -- calls no function that calls itself
  local size = not single and sizes(p)
  call.attempt('tolist', C.amp_read, S, t, data, n) -- the last use of t: it may go from here on, and p with it
  if single then
    local list = row(data, 0, n, boolean)
    if waits.pending then waits.look() end
    return nd == 1 and list or { list }
  end
  return nested(size, 1, data, 0, n, boolean)
end

-- -- Properties ------------------------------------------------------------------------

local properties = {}
M.properties = properties

--- Sizes, a list.
function properties.shape(t) return setmetatable(sizes(alive(t, 'shape')), Size) end
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
  call.here()
  return band(C.amp_tensor_flags(t), TRACKED) ~= 0
end
--- Whether it was made by the user, not by a recorded op.
function properties.is_leaf(t)
  alive(t, 'is_leaf')
  return band(C.amp_tensor_flags(t), HISTORY) == 0
end
--- Whether it is on a GPU.
function properties.is_cuda(t) return alive(t, 'is_cuda').device == 1 end

--- The gradient that backward left, nil if there is none; may be set.
function properties.grad(t)
  alive(t, 'grad')
  call.here()
  if C.amp_grad_defined(t) == 0 then return nil end
  local g = call.make_here('grad', C.amp_grad_get, t)
  if g.ptr_ == nil then return nil end
  return g
end

--- The tensor with its dimensions in the opposite order: of a matrix, its transpose.
function properties.T(t)
  local n = alive(t, 'T').ndim
  if n == 2 then return ops.get 't'(t) end
  local dims = {}
  for i = 1, n do dims[i] = n + 1 - i end
  return n < 2 and t or ops.get 'permute'(t, dims)
end

--- The matrices in the last two dimensions transposed.
function properties.mT(t)
  local n = alive(t, 'mT').ndim
  if n < 2 then err.throw_code('shape', 'mT', 'needs 2 dimensions or more, got %s', util.shape(sizes(t.ptr_))) end
  return ops.get 'transpose'(t, -2, -1)
end

--- The same elements without history; may be set to a tensor, whose memory and shape the tensor then has.
function properties.data(t)
  alive(t, 'data')
  return call.make('data', C.amp_detach, t)
end

local setters = {}
local data_sets = 0

--- How often a tensor was given other data, which may have another dtype and shape.
function M.data_sets() return data_sets end

--- Give a tensor the data of another one.
function M.set_data(op, t, u)
  data_sets = data_sets + 1
  call.try(op, C.amp_set_data, S, t, u)
end

function setters.data(t, u)
  alive(t, 'data')
  if not istype(ref_t, u) then err.throw('data', 'must be a tensor, got %s', util.show(u)) end
  alive(u, 'data')
  M.set_data('data', t, u)
end

function setters.requires_grad(t, on)
  alive(t, 'requires_grad')
  call.here()
  if type(on) ~= 'boolean' then err.throw('requires_grad', 'must be true or false, got %s', util.show(on)) end
  call.attempt('requires_grad', C.amp_requires_grad, S, t, on and 1 or 0)
end

function setters.grad(t, g)
  alive(t, 'grad')
  call.here()
  if type(g) == 'nil' then
    call.attempt('grad', C.amp_grad_set, S, t, nil)
  elseif istype(ref_t, g) then
    call.attempt('grad', C.amp_grad_set, S, t, g)
  else
    err.throw('grad', 'must be a tensor or nil, got %s', util.show(g))
  end
end

-- -- Metatable --------------------------------------------------------------------------

local function unknown(k)
  local names = ops.names(true)
  for name in pairs(methods) do names[#names + 1] = name end
  for name in pairs(properties) do names[#names + 1] = name end
  local habits = require 'amp.core.habits'
  err.throw_code('name', nil, "Tensor has no method or property '%s'%s", k, habits.hint(habits.tensor, k, names))
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
  if not index_get then index_get = require('amp.tensor.index').get end
  return index_get(t, k)
end

local sized = alive -- while a graph is recorded also a check of what is read

--- What is asked before a size is read by #t or a loop over t. nil: nothing but that the tensor is alive.
function M.guard(f) sized = f or alive end

local function newindex(t, k, v)
  if type(k) == 'string' then
    local set = setters[k]
    if set then return set(t, v) end
    if properties[k] or methods[k] or ops.method(k) then err.throw(nil, "'%s' of a tensor can't be assigned", k) end
    err.throw(nil, "Tensor has no field '%s' to assign%s; data of your own goes into a table keyed by t:id()", k,
      util.hint(k, { 'grad', 'requires_grad', 'data' }))
  end
  if not index_set then index_set = require('amp.tensor.index').set end
  index_set(t, k, v)
end

local neg = ops.get 'neg'

-- -- What Lua's own operators and loops do with tensors ---------------------------------

local function written(v, name) return type(v) == 'number' and tostring(v) or name end

local function not_compared(sign, method, a, b)
  if type(a) == 'number' then -- Lua turns a > b into b < a
    err.throw(method, "a tensor is compared with a number by its own method, t:%s(%s), element by element; the value of one element is t:item() %s %s",
      sign == '<' and 'gt' or 'ge', tostring(a), sign == '<' and '>' or '>=', tostring(a))
  end
  local other = written(b, 'b')
  err.throw(method, 'a %s %s compares no tensors element by element in Lua; use a:%s(%s), or a:item() for a single value', sign, other, method, other)
end

M.strict = false -- amp.strict() is in force: what is never true is an error

local function compared_with_number(a, b)
  local n = type(a) == 'number' and a or b
  err.throw('eq', '== with a number is never true of a tensor; t:eq(%s) compares its elements, t:item() == %s the value of a single one',
    tostring(n), tostring(n))
end

-- for i, row in ipairs(t): views of the first dimension
local function rows(t)
  local p = sized(t, 'ipairs')
  if p.ndim == 0 then err.throw_code('index', 'ipairs', 'a scalar (0 dimensions) has no elements to go through; t:item() gives its value') end
  local n, select_, i = tonumber(p.size[0]), ops.get 'select', 0
  return function()
    i = i + 1
    if i <= n then return i, select_(t, 1, i) end
  end
end

-- Fixed for good: LuaJIT compiles against it. What may change goes through `index`.
ffi.metatype(ref_t, {
  __gc = C.amp_collect,
  __index = index,
  __newindex = newindex,
  __add = ops.get 'add', __sub = ops.get 'sub', __mul = ops.get 'mul', __div = ops.get 'div',
  __mod = ops.get 'mod', __pow = ops.get 'pow',
  __unm = function(a) return neg(a) end,
  __len = function(t)
    local p = sized(t, 'size')
    if p.ndim == 0 then return 0 end
    return tonumber(p.size[0])
  end,
  __eq = function(a, b)
    if istype(ref_t, a) and istype(ref_t, b) then return a.ptr_ == b.ptr_ end
    if M.strict and (type(a) == 'number' or type(b) == 'number') then compared_with_number(a, b) end
    return false
  end,
  __lt = function(a, b) not_compared('<', 'lt', a, b) end,
  __le = function(a, b) not_compared('<=', 'le', a, b) end,
  __ipairs = rows,
  __pairs = rows,
  __concat = function(a, b) return tostring(a) .. tostring(b) end,
  __tostring = function(t) return require('amp.tensor.print').tostring(t) end,
  __call = function()
    err.throw(nil, 'a tensor is not a function: t(...) or a for loop over t was written; indexing is t[{...}], a loop over its rows '
      .. 'for i, row in ipairs(t) do')
  end,
})

-- -- Methods that are no rows -------------------------------------------------------------

require 'amp.tensor.methods'(M)

-- amp.Tensor(2, 3), as PyTorch and Torch7 have it
setmetatable(M, { __call = function(_, ...)
  local first = ...
  local example = type(first) == 'number' and 'amp.empty' or 'amp.tensor'
  err.throw('Tensor', 'makes no tensors: amp.empty(2, 3), amp.zeros(2, 3) are of a shape, amp.tensor{1, 2, 3} has values%s',
    first == nil and '' or ('; here: %s(...)'):format(example))
end })

return M

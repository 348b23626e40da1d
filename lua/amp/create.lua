--- Creation of tensors.
-- Shapes are `f(2, 3)` or `f({2, 3})`; options stand in one table last:
-- `{dtype = 'float16', device = 'cuda', requires_grad = true}`.
-- @module amp.create
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.call'
local err = require 'amp.error'
local ops = require 'amp.ops'
local types = require 'amp.types'
local util = require 'amp.util'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

local M = {}

-- -- Arguments ----------------------------------------------------------------------------

local known = { 'dtype', 'device', 'requires_grad', 'memory_format' }

local function check_options(op, o)
  for k in pairs(o) do
    if k ~= 'dtype' and k ~= 'device' and k ~= 'requires_grad' and k ~= 'memory_format' then
      err.throw(op, 'unknown option %s%s (there are %s)', util.show(k), util.hint(k, known), table.concat(known, ', '))
    end
  end
  if o.dtype ~= nil then types.dtype(o.dtype, op) end
  if o.device ~= nil then types.device(o.device, op) end
  if o.requires_grad ~= nil and type(o.requires_grad) ~= 'boolean' then
    err.throw(op, "option 'requires_grad' must be true or false, got %s", util.show(o.requires_grad))
  end
  return o
end

local none = {}

-- An options table, or none where v is nil.
local function options(op, v)
  if v == nil then return none end
  if type(v) ~= 'table' or v[1] ~= nil then
    err.throw(op, 'options must be a table like {dtype = ...}, got %s', util.show(v))
  end
  return check_options(op, v)
end

local function finish(t, o)
  if o.memory_format == 'channels_last' then t = ops.get 'contiguous'(t, 'channels_last') end
  if o.requires_grad then t.requires_grad = true end
  return t
end

local function size_check(op, list)
  for i = 1, #list do
    local v = list[i]
    if type(v) ~= 'number' or v % 1 ~= 0 then
      err.throw(op, 'size %d of the shape must be an integer, got %s', i, util.show(v))
    end
    if v < 0 then err.throw_code('shape', op, 'size %d of the shape is negative: %d', i, v) end
  end
  if #list > 8 then err.throw_code('shape', op, 'a tensor has at most 8 dimensions, got %d', #list) end
  return list
end

-- Shape and options out of f(2, 3, {...}), f({2, 3}, {...}).
local function shaped(op, ...)
  local n = select('#', ...)
  local first = ...
  if type(first) == 'table' and (first[1] ~= nil or next(first) == nil) then
    if n > 2 then err.throw(op, 'takes a shape and options, got %d arguments', n) end
    return size_check(op, first), options(op, (select(2, ...)))
  end
  local list = { ... }
  local o = none
  while n > 0 and list[n] == nil do n = n - 1 end
  if n > 0 and type(list[n]) == 'table' then
    o = options(op, list[n])
    list[n] = nil
    n = n - 1
  end
  for i = 1, n do
    if list[i] == nil then err.throw(op, 'size %d of the shape must be an integer, got nil', i) end
  end
  return size_check(op, list), o
end
M.shaped = shaped

-- -- From values -----------------------------------------------------------------------------

local MISSING = {}

local function place(path)
  local s = {}
  for i = 1, #path do s[i] = '[' .. path[i] .. ']' end
  return table.concat(s)
end

-- Sizes along the first elements, and whether all leaves seen are booleans.
local function measure(data)
  local shape, v = {}, data
  while type(v) == 'table' do
    shape[#shape + 1] = #v
    if #v == 0 then break end
    v = v[1]
  end
  return shape
end

local function fill(op, data, shape)
  local n = 1
  for i = 1, #shape do n = n * shape[i] end
  local buffer = ffi.new('double[?]', math.max(n, 1))
  local at, path, depth = 0, {}, #shape
  local booleans = 0
  local function walk(v, d)
    if d > depth then
      local t = type(v)
      if t == 'number' then buffer[at] = v
      elseif t == 'boolean' then
        buffer[at] = v and 1 or 0
        booleans = booleans + 1
      elseif t == 'cdata' and (istype('int64_t', v) or istype('uint64_t', v)) then buffer[at] = tonumber(v)
      elseif istype(ref_t, v) then
        if v:dim() ~= 0 then
          err.throw(op, 'element %s is a tensor of shape %s; join tensors with amp.stack or amp.cat', place(path), v:size())
        end
        local x = v:item()
        buffer[at] = type(x) == 'boolean' and (x and 1 or 0) or x
      elseif t == 'table' then
        err.throw_code('shape', op, 'the table is ragged: element %s is a table, others at that depth are numbers', place(path))
      else
        err.throw(op, 'element %s must be a number, got %s', place(path), util.show(v))
      end
      at = at + 1
      return
    end
    if type(v) ~= 'table' then
      err.throw_code('shape', op, 'the table is ragged: element %s is %s, others at that depth are tables', place(path), util.show(v))
    end
    if #v ~= shape[d] then
      err.throw_code('shape', op, 'the table is ragged: %s has %d elements, but the first at that depth has %d',
        #path == 0 and 'it' or 'element ' .. place(path), #v, shape[d])
    end
    for i = 1, shape[d] do
      path[d] = i
      local x = v[i]
      walk(x == nil and MISSING or x, d + 1)
    end
    path[d] = nil
  end
  walk(data, 1)
  return buffer, n, booleans
end

local size_buffer = ffi.new 'int64_t[8]'
local function sizes_of(shape)
  for i = 1, #shape do size_buffer[i - 1] = shape[i] end
  return size_buffer
end

local function dtype_of(o, fallback)
  if o.dtype then return types.dtype_code[o.dtype] end
  return fallback or types.default_dtype()
end

local function place_on_device(t, o)
  local device = o.device and types.device_code[o.device] or types.default_device()
  if device ~= 0 then t = ops.get 'to_device'(t, types.device_string(math.floor(device / 256), device % 256)) end
  return finish(t, o)
end

--- A tensor of a number, a nested table of numbers (or booleans), or a copy of a tensor.
-- @tparam number|table|Tensor data
-- @tparam ?table o {dtype, device, requires_grad}
-- @treturn Tensor
-- @raise ragged tables, elements that are no numbers
-- @usage amp.tensor({{1, 2}, {3, 4}}, {dtype = 'int64'})
function M.tensor(data, o)
  o = options('tensor', o)
  if istype(ref_t, data) then
    local t = ops.get 'clone'(data:detach())
    t = t:to { dtype = o.dtype or t.dtype, device = o.device or t.device }
    return finish(t, o)
  end
  if type(data) == 'nil' then err.throw('tensor', 'expected a number, a table or a tensor, got nil') end
  if type(data) ~= 'table' then data = { data }
    local buffer, _, booleans = fill('tensor', data, { 1 })
    local t = call.make('tensor', C.amp_from_double, buffer, 0, size_buffer, dtype_of(o, booleans == 1 and 9 or nil))
    return place_on_device(t, o)
  end
  local shape = measure(data)
  if #shape > 8 then err.throw_code('shape', 'tensor', 'the table is nested %d deep; a tensor has at most 8 dimensions', #shape) end
  local buffer, n, booleans = fill('tensor', data, shape)
  local fallback = n > 0 and booleans == n and 9 or nil
  local t = call.make('tensor', C.amp_from_double, buffer, #shape, sizes_of(shape), dtype_of(o, fallback))
  return place_on_device(t, o)
end

--- A tensor over foreign memory, which must outlive it; nothing is copied.
-- @tparam cdata pointer
-- @tparam table shape
-- @tparam ?string dtype default 'float32'
function M.from_ptr(pointer, shape, dtype)
  if type(pointer) ~= 'cdata' then err.throw('from_ptr', 'argument 1 must be a cdata pointer or array, got %s', util.show(pointer)) end
  if type(shape) == 'number' then shape = { shape } end
  if type(shape) ~= 'table' then err.throw('from_ptr', 'argument 2 must be a list of sizes, got %s', util.show(shape)) end
  size_check('from_ptr', shape)
  local code = dtype and types.dtype(dtype, 'from_ptr') or types.default_dtype()
  local ok, address = pcall(ffi.cast, 'void *', pointer)
  if not ok then err.throw('from_ptr', 'argument 1 must be a pointer or an array, got %s', tostring(pointer)) end
  return call.make('from_ptr', C.amp_from_ptr, address, #shape, sizes_of(shape), code)
end

--- A tensor of the bytes of a Lua string (copied), as files hold them.
-- @tparam string bytes
-- @tparam table shape
-- @tparam string dtype
function M.from_string(bytes, shape, dtype)
  size_check('from_string', shape)
  return call.make('from_string', C.amp_from_bytes, bytes, #bytes, #shape, sizes_of(shape), types.dtype(dtype, 'from_string'))
end

-- -- By shape -------------------------------------------------------------------------------------

local full, empty, rand, randn = ops.get 'full', ops.get 'empty', ops.get 'rand', ops.get 'randn'

function M.zeros(...)
  local shape, o = shaped('zeros', ...)
  return finish(full(shape, 0, o.dtype, o.device), o)
end

function M.ones(...)
  local shape, o = shaped('ones', ...)
  return finish(full(shape, 1, o.dtype, o.device), o)
end

function M.empty(...)
  local shape, o = shaped('empty', ...)
  return finish(empty(shape, o.dtype, o.device), o)
end

function M.rand(...)
  local shape, o = shaped('rand', ...)
  return finish(rand(shape, o.dtype, o.device), o)
end

function M.randn(...)
  local shape, o = shaped('randn', ...)
  return finish(randn(shape, o.dtype, o.device), o)
end

local function value_of(op, v)
  if istype(ref_t, v) then v = v:item() end
  if type(v) == 'boolean' then return v and 1 or 0, true end
  if type(v) ~= 'number' then err.throw(op, "argument 'value' must be a number, got %s", util.show(v)) end
  return v, false
end

--- full({2, 3}, 7, {...}), full(2, 7) for a vector
function M.full(shape, value, o)
  if type(shape) == 'number' then shape = { shape } end
  if type(shape) ~= 'table' then err.throw('full', "argument 1 'shape' must be a list of sizes, got %s", util.show(shape)) end
  o = options('full', o)
  local boolean
  value, boolean = value_of('full', value)
  return finish(full(size_check('full', shape), value, o.dtype or boolean and 'bool' or nil, o.device), o)
end

--- eye(n), eye(n, m)
function M.eye(n, m, o)
  if type(m) == 'table' then m, o = nil, m end
  o = options('eye', o)
  return finish(ops.get 'eye'(n, m, o.dtype, o.device), o)
end

--- arange(stop) from 0, arange(start, stop), arange(start, stop, step); stop is not included
function M.arange(...)
  local n, o = select('#', ...), none
  local a, b, c = ...
  local last = select(n, ...)
  if n > 1 and type(last) == 'table' then
    o = options('arange', last)
    n = n - 1
    if n == 1 then b = nil elseif n == 2 then c = nil end
  end
  if n == 1 or b == nil then a, b = 0, a end
  if n > 3 then err.throw('arange', 'takes start, stop, step and options, got %d arguments', n) end
  for _, v in ipairs { a, b, c } do
    if type(v) ~= 'number' then err.throw('arange', 'takes numbers, got %s', util.show(v)) end
  end
  return finish(ops.get 'arange'(a, b, c, o.dtype, o.device), o)
end

--- linspace(first, last, steps): both ends included
function M.linspace(first, last, steps, o)
  o = options('linspace', o)
  return finish(ops.get 'linspace'(first, last, steps, o.dtype, o.device), o)
end

--- randint(high, shape), randint(low, high, shape): integers in [low, high), low 0 by default
function M.randint(low, high, shape, o)
  if type(high) == 'table' then low, high, shape, o = 0, low, high, shape end
  if type(shape) == 'number' then shape = { shape } end
  if type(shape) ~= 'table' then
    err.throw('randint', 'expected randint(high, shape) or randint(low, high, shape), shape being a list, got %s', util.show(shape))
  end
  o = options('randint', o)
  return finish(ops.get 'randint'(low, high, size_check('randint', shape), o.dtype, o.device), o)
end

--- randperm(n): 1..n in random order
function M.randperm(n, o)
  o = options('randperm', o)
  return finish(ops.get 'randperm'(n, o.dtype, o.device), o)
end

-- -- Like another ------------------------------------------------------------------------------------

local function like(op, t, o)
  if not istype(ref_t, t) then err.throw(op, "argument 1 'input' must be a tensor, got %s", util.show(t)) end
  o = options(op, o)
  return t.shape, { dtype = o.dtype or t.dtype, device = o.device or t.device, requires_grad = o.requires_grad,
    memory_format = o.memory_format }
end

for _, name in ipairs { 'zeros', 'ones', 'empty', 'rand', 'randn' } do
  local op, make = name .. '_like', M[name]
  M[op] = function(t, o)
    local shape, full_options = like(op, t, o)
    return make(shape, full_options)
  end
end

function M.full_like(t, value, o)
  local shape, full_options = like('full_like', t, o)
  return M.full(shape, value, full_options)
end

function M.randint_like(t, low, high, o)
  if type(high) ~= 'number' then low, high, o = 0, low, high end
  local shape, full_options = like('randint_like', t, o)
  return M.randint(low, high, shape, full_options)
end

-- -- Defaults and seeds ---------------------------------------------------------------------------------

--- dtype of new tensors (a float dtype); 'float32' at the start.
function M.set_default_dtype(dtype)
  local code = types.dtype(dtype, 'set_default_dtype')
  if not types.is_float(code) then err.throw_code('dtype', 'set_default_dtype', 'must be a float dtype, got %s', dtype) end
  S.default_dtype = code
end

function M.get_default_dtype() return types.dtype_name[S.default_dtype] end

--- Device of new tensors; 'cpu' at the start.
function M.set_default_device(device)
  local code = types.device(device, 'set_default_device')
  S.default_device, S.default_device_index = math.floor(code / 256), code % 256
end

function M.get_default_device() return types.device_string(S.default_device, S.default_device_index) end

--- Start all random sequences of this Lua state anew.
-- @tparam number n an integer
function M.manual_seed(n)
  if type(n) ~= 'number' or n % 1 ~= 0 or math.abs(n) > 2 ^ 53 then
    err.throw('manual_seed', 'the seed must be an integer, got %s', util.show(n))
  end
  S.seed = ffi.cast('uint64_t', ffi.cast('int64_t', n))
  S.rng_offset = 0
end

--- Seed and position of the generator, as plain data for a checkpoint.
-- @treturn table {seed, offset}, numbers
function M.get_rng_state()
  return { seed = tonumber(ffi.cast('int64_t', S.seed)), offset = tonumber(S.rng_offset) }
end

--- @tparam table state what get_rng_state gave
function M.set_rng_state(state)
  if type(state) ~= 'table' or type(state.seed) ~= 'number' or type(state.offset) ~= 'number' then
    err.throw('set_rng_state', 'expected a table {seed =, offset =} of numbers, got %s', util.show(state))
  end
  M.manual_seed(state.seed)
  S.rng_offset = state.offset
end

return M

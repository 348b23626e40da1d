--- Creation of tensors.
-- Shapes are `f(2, 3)` or `f({2, 3})`; options stand in one table last:
-- `{dtype = 'float16', device = 'cuda', requires_grad = true}`.
-- @module amp.tensor.create
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local ops = require 'amp.ops'
local shapes = require 'amp.tensor.creation_arguments'
local types = require 'amp.types'
local util = require 'amp.util'
local S, ref_t = core.S, core.ref_t
local istype = ffi.istype

local none, options, finish, size_check, shaped = shapes.none, shapes.options, shapes.finish, shapes.size_check, shapes.shaped

local M = {}

for name, f in pairs(require 'amp.tensor.from_values') do M[name] = f end

-- -- By shape -------------------------------------------------------------------------------------

local full, empty, rand, randn = ops.get 'full', ops.get 'empty', ops.get 'rand', ops.get 'randn'

--- zeros(2, 3), zeros({2, 3}, {dtype, device, requires_grad})
function M.zeros(...)
  local shape, o = shaped('zeros', ...)
  return finish(full(shape, 0, o.dtype, o.device), o)
end

--- ones(2, 3), ones({2, 3}, {dtype, device, requires_grad})
function M.ones(...)
  local shape, o = shaped('ones', ...)
  return finish(full(shape, 1, o.dtype, o.device), o)
end

--- empty(2, 3): elements are whatever the memory holds
function M.empty(...)
  local shape, o = shaped('empty', ...)
  return finish(empty(shape, o.dtype, o.device), o)
end

--- rand(2, 3): uniform in [0, 1)
function M.rand(...)
  local shape, o = shaped('rand', ...)
  return finish(rand(shape, o.dtype, o.device), o)
end

--- randn(2, 3): normal, mean 0 and standard deviation 1
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
  if n == 0 then err.throw('arange', 'takes start, stop, step and options, got nothing') end
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

--- logspace(first, last, steps, base): powers of base (10), the exponents evenly spaced, both ends included
function M.logspace(first, last, steps, base, o)
  if type(base) == 'table' then base, o = nil, base end
  o = options('logspace', o)
  return finish(ops.get 'logspace'(first, last, steps, base, o.dtype, o.device), o)
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
  local format = o.memory_format
  if (format == nil or format == 'preserve') and t:dim() == 4 and not t:is_contiguous() and t:is_contiguous 'channels_last' then
    format = 'channels_last'
  end
  return t.shape, { dtype = o.dtype or t.dtype, device = o.device or t.device, requires_grad = o.requires_grad, memory_format = format }
end

for _, name in ipairs { 'zeros', 'ones', 'empty', 'rand', 'randn' } do
  local op, make = name .. '_like', M[name]
  --- As the function without _like, with shape, dtype and device of t, as far as {dtype, device} do not say otherwise, and in the
  -- layout of t where that is channels-last and no {memory_format} is given.
  M[op] = function(t, o)
    local shape, full_options = like(op, t, o)
    return make(shape, full_options)
  end
end

--- full_like(t, 7, {...}): the value everywhere, shape and dtype of t
function M.full_like(t, value, o)
  local shape, full_options = like('full_like', t, o)
  return M.full(shape, value, full_options)
end

--- randint_like(t, high), randint_like(t, low, high): integers in [low, high), shape and dtype of t
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

--- dtype of new tensors.
function M.get_default_dtype() return types.dtype_name[S.default_dtype] end

--- Device of new tensors; 'cpu' at the start.
function M.set_default_device(device)
  local code = types.device(device, 'set_default_device')
  S.default_device, S.default_device_index = math.floor(code / 256), code % 256
end

--- Device of new tensors.
function M.get_default_device() return types.device_string(S.default_device, S.default_device_index) end

--- Start all random sequences of this Lua state anew.
-- @tparam number n an integer
function M.manual_seed(n)
  if type(n) ~= 'number' or n % 1 ~= 0 or math.abs(n) > 2 ^ 53 then
    err.throw('manual_seed', 'the seed must be an integer, got %s', util.show(n))
  end
  call.here()
  call.here()
  if core.C.amp_graph_recording(S) ~= 0 then
    err.throw_code('unsupported', 'manual_seed', 'a graph is recorded, which can\'t set the seed: do it before the graph runs')
  end
  S.seed = ffi.cast('uint64_t', ffi.cast('int64_t', n))
  S.rng_offset = 0
  M.epochs.n = 0
end

-- n: epochs that loaders began since the seed was set. Each has random numbers of its own (data/draws.lua).
M.epochs = { n = 0 }

--- Seed and position of the generator, as plain data for a checkpoint.
-- @treturn table {seed, offset}, numbers; and epochs, where loaders began any
function M.get_rng_state()
  local n = M.epochs.n
  call.here()
  return { seed = tonumber(ffi.cast('int64_t', S.seed)), offset = tonumber(S.rng_offset), epochs = n > 0 and n or nil }
end

--- @tparam table state what get_rng_state gave
function M.set_rng_state(state)
  if type(state) ~= 'table' or type(state.seed) ~= 'number' or type(state.offset) ~= 'number' then
    err.throw('set_rng_state', 'expected a table {seed =, offset =} of numbers, got %s', util.show(state))
  end
  local epochs = state.epochs
  if epochs ~= nil and (type(epochs) ~= 'number' or epochs % 1 ~= 0 or epochs < 0) then
    err.throw('set_rng_state', 'epochs must be an integer from 0, got %s', util.show(epochs))
  end
  M.manual_seed(state.seed)
  S.rng_offset = state.offset
  M.epochs.n = epochs or 0
end

return M

--- Tensors to bytes and back, for the file formats.
--
-- Reading a tensor's bytes goes through copies of at most CHUNK bytes, so that
-- saving needs little memory and leaves no mark on the tensors saved (asking a
-- parameter for its data pointer would end the reuse of its casts).
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local call = require 'amp.call'
local types = require 'amp.types'

local M = {}
local CHUNK = 2 ^ 24

--- Bytes of an element of a dtype.
function M.width(dtype) return core.C.amp_dtype_size(types.dtype_code[dtype]) end

--- Call fn(pointer, bytes) on a tensor's elements in C order, piece by piece.
function M.each(t, fn)
  local width = M.width(t.dtype)
  local step = CHUNK / width
  local flat = t:detach():reshape(-1)
  local n = flat:numel()
  for first = 1, n, step do
    local count = math.min(step, n - first + 1)
    local piece = flat:narrow(1, first, count):to('cpu'):clone()
    fn(ffi.cast('const uint8_t *', piece:data_ptr()), count * width)
    piece:free()
  end
end

local sizes = ffi.new('int64_t[8]')

--- A tensor on the CPU with a copy of bytes in C order.
-- @param p pointer to them
-- @tparam number n bytes; must be what shape and dtype need
-- @tparam table shape list of sizes
-- @tparam string dtype
-- Truth values become 0 or 1, whatever byte stands for true.
function M.tensor(p, n, shape, dtype)
  if dtype == 'bool' then return M.tensor(p, n, shape, 'uint8'):ne(0) end
  for d = 1, #shape do sizes[d - 1] = shape[d] end
  return call.make('io', core.C.amp_from_bytes, p, n, #shape, sizes, types.dtype_code[dtype])
end

--- Number of elements of a shape, nil when it is no possible one.
function M.count(shape)
  local n = 1
  if #shape > 8 then return nil end
  for _, s in ipairs(shape) do
    if type(s) ~= 'number' or s % 1 ~= 0 or s < 0 or s >= 2 ^ 53 then return nil end
    n = n * s
  end
  return n < 2 ^ 53 and n or nil
end

--- The tensors that a table holds under its keys must be tensors: a checked, sorted list of names.
function M.names(op, tensors)
  local raise = require('amp.error').throw
  if type(tensors) ~= 'table' then raise(op, 'a table of tensors by name expected, got %s', type(tensors)) end
  local names = {}
  for name, t in pairs(tensors) do
    if type(name) ~= 'string' then raise(op, 'names are strings, got a %s', type(name)) end
    if not amp.is_tensor(t) then raise(op, "'%s': a tensor expected, got %s", name, type(t)) end
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

return M

--- Tensors to bytes and back, for the file formats.
--
-- Reading a tensor's bytes goes through copies of at most CHUNK bytes, so that
-- saving needs little memory and leaves no mark on the tensors saved (asking a
-- parameter for its data pointer would end the reuse of its casts).
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local types = require 'amp.types'

local M = {}
local CHUNK = 2 ^ 24
local MEMORY = -6

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

-- A shape as the library takes it.
local function sizes_of(shape)
  if #shape > 8 then err.throw_code('shape', 'io', '%d dimensions are too many; at most 8 are supported', #shape) end
  for d = 1, #shape do sizes[d - 1] = shape[d] end
  return sizes
end

--- A tensor on the CPU with a copy of bytes in C order.
-- @param p pointer to them
-- @tparam number n bytes; must be what shape and dtype need
-- @tparam table shape list of sizes
-- @tparam string dtype
-- Truth values become 0 or 1, whatever byte stands for true.
function M.tensor(p, n, shape, dtype)
  if dtype == 'bool' then return M.tensor(p, n, shape, 'uint8'):ne(0) end
  return call.make('io', core.C.amp_from_bytes, p, n, #shape, sizes_of(shape), types.dtype_code[dtype])
end

local Bytes = {}
Bytes.__index = Bytes

--- Bytes in memory, read as a file (amp.io.file) is.
-- @param p pointer to them
-- @tparam number n how many
-- @param anchor what keeps them alive
function M.bytes(p, n, anchor) return setmetatable({p = ffi.cast('const uint8_t *', p), size = n, anchor = anchor}, Bytes) end

function Bytes:read(to, n, at)
  if at + n > self.size then return nil, string.format('it ends at byte %.0f, %.0f bytes early: it was cut off', self.size, at + n - self.size) end
  ffi.copy(to, self.p + at, n)
  return true
end

local function swapped(p, bytes, width)
  local q = ffi.new('uint8_t[?]', math.max(bytes, 1))
  for i = 0, bytes - width, width do
    for k = 0, width - 1 do q[i + k] = p[i + width - 1 - k] end
  end
  return q
end

--- A tensor on the CPU of elements in C order that stand in a file (or M.bytes) from byte `at` on.
-- @param f
-- @tparam number at
-- @tparam table shape list of sizes
-- @tparam string dtype
-- @tparam ?boolean swap they are in the other byte order
-- @param ?crc uint32_t[1] that goes on over their bytes
-- @treturn ?Tensor nil and the reason where they can't be read
function M.read(f, at, shape, dtype, swap, crc)
  if not f.fd then
    local width, n = M.width(dtype), M.count(shape) * M.width(dtype)
    if at + n > f.size then return nil, 'it was cut off' end
    local p = f.p + at
    if crc then crc[0] = core.C.amp_crc32(crc[0], p, n) end
    return M.tensor(swap and width > 1 and swapped(p, n, width) or p, n, shape, dtype)
  end
  local list, t = sizes_of(shape), core.ref_t()
  local rc = core.C.amp_from_file(core.S, t, f.fd, at, #shape, list, types.dtype_code[dtype], swap and 1 or 0, crc)
  if rc == MEMORY then
    collectgarbage()
    rc = core.C.amp_from_file(core.S, t, f.fd, at, #shape, list, types.dtype_code[dtype], swap and 1 or 0, crc)
  end
  if rc < 0 and rc ~= MEMORY then return nil, ffi.string(core.S.err.message) end
  call.check(rc, 'io', t)
  return t
end

--- A name out of a file as it may stand in a message: of one line, and not too long.
function M.show(name)
  name = tostring(name):gsub('[%c\127]', '?')
  return #name > 80 and name:sub(1, 60) .. '...' .. name:sub(-17) or name
end

--- Raise again what was caught while a file was read: an error of amp's gets the file's name.
function M.rethrow(op, path, e)
  if err.is(e) then err.throw_code(e.code, op, "'%s': %s", path, e.message) end
  error(e, 0)
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
  local raise = err.throw
  if type(tensors) ~= 'table' then raise(op, 'a table of tensors by name expected, got %s', require('amp.util').kind(tensors)) end
  local names = {}
  for name, t in pairs(tensors) do
    if type(name) ~= 'string' then raise(op, 'names are strings, got a %s', type(name)) end
    if not amp.is_tensor(t) then raise(op, "'%s': a tensor expected, got %s", name, require('amp.util').kind(t)) end
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

return M

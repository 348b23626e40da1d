--- idx files, the format of MNIST and its relatives, plain or gzip.
--
-- A file is a magic number (two zeros, a type, the number of dimensions), the
-- sizes as big-endian 32-bit numbers, then the elements in C order. Every field
-- is checked against the file before anything is allocated from it.
local ffi = require 'ffi'
local amp = require 'amp'
local gzip = require 'amp.data.gzip'
local file_kind = require 'amp.io.kind'
local limit = require 'amp.io.limit'
local options = require 'amp.options'
local raise = require('amp.error').throw

local M = {}

-- type byte -> dtype, bytes an element
local types = {
  [0x08] = {'uint8', 1}, [0x09] = {'int8', 1}, [0x0B] = {'int16', 2},
  [0x0C] = {'int32', 4}, [0x0D] = {'float32', 4}, [0x0E] = {'float64', 8},
}
local MAX_RATIO = 1032 -- gzip never shrinks by more

local function swap(p, width, n) -- big-endian elements to this machine's order
  if width == 1 or ffi.abi('be') then return end
  for i = 0, n - 1 do
    local at = p + i * width
    for j = 0, width / 2 - 1 do at[j], at[width - 1 - j] = at[width - 1 - j], at[j] end
  end
end

local function header(reader, most)
  local b = ffi.new('uint8_t[4]')
  local ok, why = reader:read(b, 4)
  if not ok then return nil, 'an idx file begins with 4 bytes of magic, but ' .. why end
  local kind, ndim = types[b[2]], b[3]
  if b[0] ~= 0 or b[1] ~= 0 or not kind or ndim < 1 or ndim > 8 then
    return nil, string.format('not an idx file: magic 0x%02x%02x%02x%02x, expected 0x0000, a type '
      .. '(08 09 0b 0c 0d 0e) and 1 to 8 dimensions%s', b[0], b[1], b[2], b[3], reader.f and file_kind.hint(reader.f, 'idx') or '')
  end
  local sizes, count = {}, 1
  for d = 1, ndim do
    ok, why = reader:read(b, 4)
    if not ok then return nil, string.format('%d sizes expected, but %s', ndim, why) end
    sizes[d] = ((b[0] * 256 + b[1]) * 256 + b[2]) * 256 + b[3]
    count = count * sizes[d]
  end
  for d = 1, ndim do -- beside a size of 0 the others may not be absurd either
    if sizes[d] > 2 ^ 31 - 1 then return nil, string.format('an impossible size, %.0f, of dimension %d', sizes[d], d) end
  end
  local bytes = count * kind[2]
  local most_held = reader.compressed and reader.size * MAX_RATIO or reader.size - 4 - 4 * ndim
  if bytes > most_held then
    return nil, string.format('its header promises %s elements (%.0f bytes of %s), more than a file of %d bytes holds',
      table.concat(sizes, 'x'), bytes, kind[1], reader.size)
  end
  ok, why = limit.new(most, reader.size):take(bytes)
  if not ok then return nil, why end
  return {sizes = sizes, count = count, bytes = bytes, dtype = kind[1], width = kind[2]}
end

--- Read an idx file.
-- @tparam string path plain or gzip
-- @tparam ?table given max_bytes (the most that the tensor may take; 100 times the file's size and at least 256 MiB where it isn't
-- given)
-- @treturn Tensor of the file's shape and type (uint8 int8 int16 int32 float32 float64), on the CPU
-- @raise with the file's name: missing, not idx, damaged, cut off, longer than its header says
-- @usage local images = amp.data.idx('train-images-idx3-ubyte.gz') -- uint8, 8500x28x28
function M.read(path, given)
  if type(path) ~= 'string' then raise('data.idx', 'a path expected, got ' .. require('amp.util').kind(path)) end
  local o = options.read('data.idx', given, {'max_bytes'})
  limit.check('data.idx', o.max_bytes)
  local reader, why = gzip.open(path)
  if not reader then raise('data.idx', string.format("cannot read '%s': %s", path, why)) end
  local h, t, ok
  h, why = header(reader, o.max_bytes)
  if h then
    ok, t = pcall(amp.empty, h.sizes, {dtype = h.dtype, device = 'cpu'})
    if not ok then why = type(t) == 'table' and t.message or tostring(t) end
    if ok and h.count > 0 then
      local p = ffi.cast('uint8_t *', t:data_ptr())
      ok, why = reader:read(p, h.bytes)
      if ok then swap(p, h.width, h.count)
      else why = string.format('%s elements of %s expected, but %s', table.concat(h.sizes, 'x'), h.dtype, why) end
    end
    if ok then ok, why = reader:finish() end
  end
  reader:close()
  if not ok then raise('data.idx', string.format("'%s': %s", path, why)) end
  return t
end

return M

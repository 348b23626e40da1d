--- PNG files out of pixels.
--
-- Rows are filtered by what leaves the smallest differences and deflated by zlib; on a machine without
-- zlib the data are stored uncompressed, which every reader takes as well. Bytes of a file are written whole
-- or not at all. 8 bits a channel: gray, gray and alpha, RGB, RGBA.
local bit = require 'bit'
local ffi = require 'ffi'
local core = require 'amp.ffi'
local C = core.C
local abs, min = math.abs, math.min

ffi.cdef [[
int amp_z_compress2(uint8_t *to, unsigned long *to_size, const uint8_t *from, unsigned long size, int level) __asm__("compress2");
unsigned long amp_z_compress_bound(unsigned long size) __asm__("compressBound");
]]

local M = {}

local COLOR = {0, 4, 2, 6} -- PNG's colour type by number of channels
local MOST = 2 ^ 31 - 1

local function be32(v)
  return string.char(bit.band(bit.rshift(v, 24), 255), bit.band(bit.rshift(v, 16), 255), bit.band(bit.rshift(v, 8), 255), bit.band(v, 255))
end

local function chunk(put, kind, data, n)
  n = n or #data
  put(be32(n) .. kind)
  put(data, n)
  put(be32(bit.tobit(C.amp_crc32(C.amp_crc32(0, kind, 4), data, n))))
end

-- -- Filters ---------------------------------------------------------------------------------

local function paeth(a, b, c)
  local p = a + b - c
  local pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
  if pa <= pb and pa <= pc then return a end
  return pb <= pc and b or c
end
M.paeth = paeth

-- A filtered row into `out`: none, sub, up or Paeth's predictor. Gives the sum of differences.
local function filter(kind, row, above, n, step, out)
  local sum = 0
  for i = 0, n - 1 do
    local a = i >= step and row[i - step] or 0
    local b = above and above[i] or 0
    local guess = 0
    if kind == 1 then guess = a
    elseif kind == 2 then guess = b
    elseif kind == 4 then guess = paeth(a, b, (above and i >= step) and above[i - step] or 0) end
    local v = bit.band(row[i] - guess, 255)
    out[i] = v
    sum = sum + min(v, 256 - v)
  end
  return sum
end

local function filtered(pixels, width, height, channels)
  local n = width * channels
  local out = ffi.new('uint8_t[?]', math.max((n + 1) * height, 1))
  local try = ffi.new('uint8_t[?]', math.max(n, 1))
  for y = 0, height - 1 do
    local row, above = pixels + y * n, y > 0 and pixels + (y - 1) * n or nil
    local to, best = out + y * (n + 1), nil
    for _, kind in ipairs {0, 1, 2, 4} do
      local sum = filter(kind, row, above, n, channels, try)
      if best == nil or sum < best then
        best = sum
        to[0] = kind
        ffi.copy(to + 1, try, n)
      end
    end
  end
  return out, (n + 1) * height
end

-- -- Deflating -------------------------------------------------------------------------------

local function adler32(data, n)
  local a, b = 1, 0
  for i = 0, n - 1 do
    a = (a + data[i]) % 65521
    b = (b + a) % 65521
  end
  return bit.bor(bit.lshift(b, 16), a)
end

-- zlib's format with blocks that are only stored.
local function stored(data, n)
  local out = {'\120\1'}
  local at = 0
  repeat
    local size = min(n - at, 65535)
    local last = at + size >= n
    out[#out + 1] = string.char(last and 1 or 0, size % 256, math.floor(size / 256), 255 - size % 256, 255 - math.floor(size / 256))
    out[#out + 1] = ffi.string(data + at, size)
    at = at + size
  until last
  out[#out + 1] = be32(adler32(data, n))
  return table.concat(out)
end

local function deflated(data, n, level)
  local zlib = level > 0 and require('amp.data.gzip').zlib()
  if not zlib then
    local s = stored(data, n)
    return s, #s
  end
  local size = ffi.new('unsigned long[1]', zlib.amp_z_compress_bound(n))
  local to = ffi.new('uint8_t[?]', tonumber(size[0]))
  if zlib.amp_z_compress2(to, size, data, n, level) ~= 0 then
    local s = stored(data, n)
    return s, #s
  end
  return to, tonumber(size[0])
end

-- -- Files -------------------------------------------------------------------------------------

--- Write pixels as a PNG through put(data, bytes).
-- @tparam function put
-- @param pixels pointer to height x width x channels bytes
-- @tparam number width
-- @tparam number height
-- @tparam number channels 1 to 4
-- @tparam ?number level of compression from 0 (none) to 9
function M.write(put, pixels, width, height, channels, level)
  assert(COLOR[channels] and width >= 1 and height >= 1 and width <= MOST and height <= MOST)
  local function out(data, n) put(data, n or #data) end
  out '\137PNG\r\n\26\n'
  chunk(out, 'IHDR', be32(width) .. be32(height) .. string.char(8, COLOR[channels], 0, 0, 0))
  local data, n = filtered(ffi.cast('const uint8_t *', pixels), width, height, channels)
  local packed, size = deflated(data, n, level or 6)
  local at, left = packed, size
  if type(packed) == 'string' then at = ffi.cast('const uint8_t *', packed) end
  repeat -- a chunk's length has 31 bits
    local part = min(left, 2 ^ 30)
    chunk(out, 'IDAT', at, part)
    at, left = at + part, left - part
  until left == 0
  chunk(out, 'IEND', '')
  return packed -- referenced until here
end

--- The bytes of a PNG as a string.
function M.encode(pixels, width, height, channels, level)
  local parts = {}
  M.write(function(data, n) parts[#parts + 1] = type(data) == 'string' and data or ffi.string(data, n) end, pixels, width, height, channels, level)
  return table.concat(parts)
end

return M

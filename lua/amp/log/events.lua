--- Event files, as TensorBoard reads them.
--
-- A file is a sequence of records: length (8 bytes), its checksum, data, their checksum (4 bytes each, CRC-32C,
-- masked). Each record is an Event in protocol buffers' encoding: wall_time = 1, step = 2, file_version = 3, summary = 5; a
-- summary's values have tag = 1, simple_value = 2, image = 4, histo = 5, tensor = 8, metadata = 9.
local bit = require 'bit'
local ffi = require 'ffi'
local files = require 'amp.log.files'
local band, bxor, rshift, lshift, bor, tobit = bit.band, bit.bxor, bit.rshift, bit.lshift, bit.bor, bit.tobit

local M = {}

-- -- Checksums ------------------------------------------------------------------------------------

local crc_table
local function crc32c(s)
  if not crc_table then
    crc_table = ffi.new 'int32_t[256]'
    for i = 0, 255 do
      local c = i
      for _ = 1, 8 do c = band(c, 1) ~= 0 and bxor(rshift(c, 1), 0x82f63b78) or rshift(c, 1) end
      crc_table[i] = c
    end
  end
  local p, c = ffi.cast('const uint8_t *', s), -1
  for i = 0, #s - 1 do c = bxor(crc_table[band(bxor(c, p[i]), 255)], rshift(c, 8)) end
  return bxor(c, -1)
end
M.crc32c = crc32c

local word = ffi.new 'uint32_t[1]'
local function le32(v)
  word[0] = ffi.cast('uint32_t', tobit(v))
  return ffi.string(word, 4)
end

local function masked(s)
  local c = crc32c(s)
  return le32(tobit(bor(rshift(c, 15), lshift(c, 17)) + 0xa282ead8))
end

local function record(data)
  local length = le32(#data) .. '\0\0\0\0'
  return length .. masked(length) .. data .. masked(data)
end

-- -- Protocol buffers ---------------------------------------------------------------------------------

local function varint(v)
  local out = {}
  repeat
    local low = v % 128
    v = (v - low) / 128
    out[#out + 1] = string.char(v > 0 and low + 128 or low)
  until v == 0
  return table.concat(out)
end

local double, float = ffi.new 'double[1]', ffi.new 'float[1]'
local function f64(v)
  double[0] = v
  return ffi.string(double, 8)
end
local function f32(v)
  float[0] = v
  return ffi.string(float, 4)
end

local function field(number, kind) return varint(number * 8 + kind) end
local function bytes(number, s) return field(number, 2) .. varint(#s) .. s end
local function integer(number, v) return field(number, 0) .. varint(v) end
local function real(number, v) return field(number, 1) .. f64(v) end
local function packed(number, list)
  local parts = {}
  for i, v in ipairs(list) do parts[i] = f64(v) end
  return bytes(number, table.concat(parts))
end

local function event(time, step, summary) return real(1, time) .. integer(2, step) .. bytes(5, bytes(1, summary)) end

-- -- Files ---------------------------------------------------------------------------------------------

local Writer = {}
Writer.__index = Writer
local made = 0

--- A new event file in a folder.
-- @return a writer, or nil and the reason
function M.open(folder, time)
  made = made + 1
  local path = ('%s/events.out.tfevents.%010d.%s.%d.%d'):format(folder, time, files.host(), files.process(), made)
  local out, why = files.append(path)
  if not out then return nil, why end
  local self = setmetatable({out = out, path = path}, Writer)
  local ok
  ok, why = out:write(record(real(1, time) .. bytes(3, 'brain.Event:2')))
  if not ok then return nil, why end
  return self
end

--- Append a scalar; true, or nil and the reason, as all of these.
function Writer:scalar(time, step, tag, v)
  return self.out:write(record(event(time, step, bytes(1, tag) .. field(2, 5) .. f32(v))))
end

--- Append a histogram.
-- @tparam table h min, max, num, sum, sum_squares; edges (bins + 1) and counts
function Writer:histogram(time, step, tag, h)
  local limits = {}
  for i = 2, #h.edges do limits[i - 1] = h.edges[i] end
  local histo = real(1, h.min) .. real(2, h.max) .. real(3, h.num) .. real(4, h.sum) .. real(5, h.sum_squares)
    .. packed(6, limits) .. packed(7, h.counts)
  return self.out:write(record(event(time, step, bytes(1, tag) .. bytes(5, histo))))
end

--- Append an image: a PNG.
function Writer:image(time, step, tag, png, width, height, channels)
  local image = integer(1, height) .. integer(2, width) .. integer(3, channels) .. bytes(4, png)
  return self.out:write(record(event(time, step, bytes(1, tag) .. bytes(4, image))))
end

--- Append a text, which may be Markdown.
function Writer:text(time, step, tag, text)
  local STRING = 7
  local tensor = integer(1, STRING) .. bytes(2, bytes(2, integer(1, 1))) .. bytes(8, text)
  local metadata = bytes(1, bytes(1, 'text'))
  return self.out:write(record(event(time, step, bytes(1, tag) .. bytes(9, metadata) .. bytes(8, tensor))))
end

function Writer:close() self.out:close() end

return M

--- Images from files: amp.data.read_image(path).
--
-- PNG, JPEG, WebP, PPM, PGM and PBM are read, by what they hold and not by their names' endings. JPEG, PNG and WebP go through the
-- system's libraries where they are (data/codecs.lua); a picture is turned as its EXIF part says.
local ffi = require 'ffi'
local amp = require 'amp'
local file = require 'amp.io.file'
local file_kind = require 'amp.io.kind'
local limit = require 'amp.io.limit'
local memory = require 'amp.io.memory'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

local codecs = require 'amp.data.codecs'
local decoders = {'amp.data.jpeg', 'amp.data.png', 'amp.data.pnm'}
local webp = {is = codecs.is_webp, decode = codecs.decode_webp}
local decode

local function jpeg() return require 'amp.data.jpeg' end

-- The decoder of a file whose first bytes these are.
local function decoder_of(head)
  for _, name in ipairs(decoders) do
    local d = require(name)
    if d.is(head) then return d end
  end
  if webp.is(head) then return webp end
end

-- Planes of interleaved pixels, as many as asked for. `pixels`, a tensor that holds them, is viewed where it has just those planes.
local function planes(p, w, h, have, want, pixels)
  if pixels and have == want then return pixels:permute(3, 1, 2) end
  local out = amp.empty({want, h, w}, {dtype = 'uint8', device = 'cpu'})
  local to, n = ffi.cast('uint8_t *', out:data_ptr()), w * h
  local gray, alpha = have <= 2, have == 2 or have == 4
  if want == 1 and not gray then
    for i = 0, n - 1 do -- the luma of ITU-R BT.601, in whole numbers
      local at = i * have
      to[i] = bit.rshift(p[at] * 19595 + p[at + 1] * 38470 + p[at + 2] * 7471 + 32768, 16)
    end
    return out
  end
  for c = 0, want - 1 do
    local from = c == 3 and have - 1 or gray and 0 or c
    local plane = to + c * n
    if c == 3 and not alpha then ffi.fill(plane, n, 255)
    else for i = 0, n - 1 do plane[i] = p[i * have + from] end end
  end
  return out
end

-- A JPEG goes through libturbojpeg and a PNG through libpng where they are there; what they do not take, and where they are not, through
-- the own decoder, which also says what is wrong with a damaged file.
function decode(d, bytes, most, size, parts, wants_alpha)
  local library = d == jpeg() and codecs.decode_jpeg or d == require 'amp.data.png' and codecs.decode_png
  if library then
    local p, w, h, have, pixels = library(bytes, limit.new(most, size), parts)
    if p then return p, w, h, have, pixels end
  end
  return d.decode(bytes, limit.new(most, size), wants_alpha)
end

--- Read for somebody else.
-- @tparam string op who the errors name
-- @tparam string path
-- @tparam ?number channels
-- @tparam ?number most bytes
-- @tparam ?function parts of (height, width) of a JPEG, as it is seen: by what its sides may be divided
-- @treturn Tensor the picture, whose planes may stand interleaved
function M.read_any(op, path, channels, most, parts)
  local f, why = file.open(path)
  if not f then raise(op, "cannot read '%s': %s", path, why) end
  local bytes
  local head
  head, why = f:text(math.min(f.size, 16))
  local d = head and decoder_of(head)
  if head and not d then why = 'it is no PNG, JPEG, WebP, PPM, PGM or PBM' .. file_kind.hint(f, 'image') end
  if d then bytes, why = f:text() end
  f:close()
  if not bytes then raise(op, "cannot read '%s': %s", path, why) end
  local turned, divided, wide, high = codecs.orientation(bytes), nil, nil, nil
  if parts and d == jpeg() then
    wide, high = codecs.jpeg_size(bytes)
    divided = wide and (turned < 5 and parts(high, wide) or turned >= 5 and parts(wide, high))
  end
  local ok, p, w, h, have, pixels = pcall(decode, d, bytes, most, f.size, divided, channels == 4)
  if not ok then memory.rethrow(op, path, p) end
  if not p then raise(op, "cannot read '%s': %s", path, w) end
  local out = planes(p, w, h, have, channels or (have == 2 and 4 or have), pixels)
  if divided and h < high then -- a last row or column that stands for less than half of the others' pixels goes
    out = out:narrow(2, 1, math.max(1, math.floor(high / divided + 0.5))):narrow(3, 1, math.max(1, math.floor(wide / divided + 0.5)))
  end
  return turned > 1 and codecs.turn(out, turned) or out
end

local function read(op, path, channels, most) return M.read_any(op, path, channels, most):contiguous() end

--- What `channels` may be.
local function check_channels(op, v)
  if v ~= nil and v ~= 1 and v ~= 3 and v ~= 4 then raise(op, 'channels must be 1 (gray), 3 (RGB) or 4 (RGBA), got %s', util.show(v)) end
  return v
end

--- Read an image.
-- @tparam string path
-- @tparam ?table given channels: 1 (gray), 3 (RGB) or 4 (with alpha, also of a PNG's transparent colour), as the file has them;
-- max_bytes: the most that the pixels may take, 100 times the file's size and at least 256 MiB where it isn't given
-- @treturn Tensor uint8, channels x height x width, on the CPU
-- @raise with the file's name: missing, no image, damaged, cut off
-- @usage local x = amp.data.read_image('cat.jpg'):float() / 255
function M.read(path, given)
  local op = 'data.read_image'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', util.show(path)) end
  local o = options.read(op, given, {'channels', 'max_bytes'}, {})
  limit.check(op, o.max_bytes)
  return read(op, path, check_channels(op, o.channels), o.max_bytes)
end

M.read_for, M.check_channels = read, check_channels

return M

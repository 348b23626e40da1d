--- amp.data.write_image(path, image): PNG, JPEG or PPM by the name's ending.
local ffi = require 'ffi'
local amp = require 'amp'
local file = require 'amp.io.file'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local OP = 'data.write_image'

-- uint8 C x H x W of what was given
local function bytes_of(t)
  if not amp.is_tensor(t) then raise(OP, 'a tensor expected, got %s', util.kind(t)) end
  local shape = tostring(t:size())
  t = t:detach()
  if t:dim() == 2 then t = t:unsqueeze(1) end
  if t:dim() ~= 3 or t:size(1) < 1 or t:size(1) > 4 then raise(OP, 'C x H x W expected, C from 1 to 4, got shape %s', shape) end
  if t:numel() == 0 then raise(OP, 'the image is empty, its shape is %s', shape) end
  if t:is_floating_point() then t = (t:float() * 255):nan_to_num(0):clamp(0, 255):round()
  elseif t.dtype == 'bool' then t = t:float() * 255
  elseif t.dtype ~= 'uint8' then raise(OP, 'uint8, or floats from 0 to 1 expected, got %s', t.dtype) end
  return t:to('cpu'):to('uint8')
end

local function interleaved(t) return t:permute(2, 3, 1):contiguous() end

local function ppm(t)
  local c, h, w = t:size(1), t:size(2), t:size(3)
  if c ~= 1 and c ~= 3 then raise(OP, 'PPM and PGM hold 1 or 3 channels, got %d; PNG holds 2 and 4 too', c) end
  local pixels = interleaved(t)
  return ('P%d\n%d %d\n255\n'):format(c == 1 and 5 or 6, w, h) .. ffi.string(pixels:data_ptr(), c * h * w)
end

local function png(t)
  local pixels = interleaved(t)
  return require('amp.plot.png').encode(pixels:data_ptr(), t:size(3), t:size(2), t:size(1))
end

local function jpeg(t, o)
  if t:size(1) ~= 1 and t:size(1) ~= 3 then raise(OP, 'JPEG holds 1 or 3 channels, got %d; PNG holds 2 and 4 too', t:size(1)) end
  local bytes, why = require('amp.data.codecs').encode_jpeg(interleaved(t), t:size(3), t:size(2), t:size(1), o.quality)
  if not bytes then raise(OP, 'cannot make a JPEG: %s', why) end
  return bytes
end

local writers = { png = png, ppm = ppm, pgm = ppm, pnm = ppm, jpg = jpeg, jpeg = jpeg }

--- Write an image, whole or not at all.
-- @tparam string path ending in .png, .jpg, .jpeg, .ppm or .pgm
-- @tparam Tensor t H x W or C x H x W: uint8, or floats from 0 to 1 (values outside are clipped)
-- @tparam ?table given quality (of a JPEG, from 1 to 100; 90)
-- @usage amp.data.write_image('out.png', x)
return function(path, t, given)
  if type(path) ~= 'string' then raise(OP, 'a path expected, got %s', util.show(path)) end
  local o = options.read(OP, given, { 'quality' }, { quality = 90 })
  options.integer(OP, 'quality', o.quality, 1)
  if o.quality > 100 then raise(OP, 'quality is from 1 to 100, got %d', o.quality) end
  local ending = (path:match '%.(%w+)$' or ''):lower()
  if not writers[ending] then raise(OP, "'%s': the ending must be .png, .jpg, .jpeg, .ppm or .pgm", path) end
  local bytes = writers[ending](bytes_of(t), o)
  local ok, why = file.replace(path, function(put) put(bytes, #bytes) end)
  if not ok then raise(OP, "cannot write '%s': %s", path, why) end
end

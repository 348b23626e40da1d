--- Images: tensors as pixels, several as a grid; to PNG and to the terminal.
--
--   amp.plot.image(x[1])                          -- H x W, or C x H x W with 1, 3 or 4 channels
--   amp.plot.image(x, {columns = 8}):save 'batch.png'  -- N x C x H x W
--
-- uint8 (and bool) are shown as they are, 0 to 255 (false, true); other dtypes by `range`: what they hold where
-- that is outside 0 to 1, else 0 to 1. Values outside the range are clipped, NaN is shown black. The tensor is read when
-- the image is saved or shown, and of a terminal's small picture only the pixels that are seen are copied.
local ffi = require 'ffi'
local amp = require 'amp'
local err = require 'amp.error'
local file = require 'amp.io.file'
local options = require 'amp.options'
local lasting = require('amp.core.scope').lasting
local util = require 'amp.util'
local raise = err.throw

local M = {}
local Image = {}
Image.__index = Image

local OP = 'plot.image'

--- Write bytes that make() gives to a file, whole or not at all.
function M.save(op, path, make)
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', util.show(path)) end
  local bytes = make()
  local ok, why = file.replace(path, function(put) put(bytes) end)
  if not ok then raise(op, "cannot write '%s': %s", path, why) end
end

-- -- Layout ------------------------------------------------------------------------------------

-- N x C x H x W of an image or several.
local function four(t, given_as)
  local nd = t:dim()
  local function bad()
    raise(OP, 'H x W, C x H x W or N x C x H x W expected, C being 1, 3 or 4, got shape %s', given_as)
  end
  if nd == 2 then t = t:unsqueeze(1):unsqueeze(1)
  elseif nd == 3 then t = t:unsqueeze(1)
  elseif nd ~= 4 then bad() end
  local c = t:size(2)
  if c ~= 1 and c ~= 3 and c ~= 4 then bad() end
  if t:numel() == 0 then raise(OP, 'the image is empty, its shape is %s', given_as) end
  return t
end

-- Tiles in rows: pixels of a grid N x C x H x W as C x H' x W', with a gap of `pad` pixels.
local function grid(t, columns, pad)
  local n, c, h, w = t:size(1), t:size(2), t:size(3), t:size(4)
  if n == 1 then return t[1] end
  local rows = math.ceil(n / columns)
  local out = amp.full({c, rows * (h + pad) - pad, columns * (w + pad) - pad}, 0, {dtype = t.dtype, device = t.device})
  for i = 0, n - 1 do
    local y, x = math.floor(i / columns) * (h + pad), i % columns * (w + pad)
    out:narrow(2, y + 1, h):narrow(3, x + 1, w):copy_(t[i + 1])
  end
  return out
end

--- Make an image of a tensor, which it shares: what is shown is what the tensor holds then.
-- @tparam Tensor t
-- @tparam ?table given columns (of a grid; about square), pad (2 pixels between tiles), scale (1: pixels a pixel, a whole
-- number), range ({black, white}), normalize (false; true: from the smallest value to the largest)
local function new(t, given)
  if not amp.is_tensor(t) then raise(OP, 'a tensor expected, got %s', util.show(t)) end
  local o = options.read(OP, given, {'columns', 'pad', 'scale', 'range', 'normalize'}, {pad = 2, scale = 1, normalize = false})
  local image = four(t:detach(), tostring(t:size()))
  o.columns = o.columns or math.min(image:size(1), math.ceil(math.sqrt(image:size(1))))
  options.integer(OP, 'columns', o.columns, 1)
  options.integer(OP, 'pad', o.pad, 0)
  options.integer(OP, 'scale', o.scale, 1)
  options.boolean(OP, 'normalize', o.normalize)
  o.columns = math.min(o.columns, image:size(1))
  local r = o.range
  if r ~= nil and not (type(r) == 'table' and type(r[1]) == 'number' and type(r[2]) == 'number' and r[1] < r[2]) then
    raise(OP, 'range must be {black, white}, two numbers in order, got %s', util.show(r))
  end
  return setmetatable({tensor = lasting(function() return image:view(image:size()) end), options = o, shape = tostring(t:size())}, Image)
end

-- -- Values -------------------------------------------------------------------------------------

-- Values for black and white; nil: bytes as they are.
local function levels(self)
  local t, o = self.tensor, self.options
  if o.range then return o.range[1], o.range[2] end
  if t.dtype == 'uint8' and not o.normalize then return nil end
  if t.dtype == 'bool' then return 0, 1 end
  local good = t:double()
  good = good:masked_select(good:isfinite())
  if good:numel() == 0 then return 0, 1 end
  local low, high = good:min():item(), good:max():item()
  if not o.normalize and low >= 0 and high <= 1 then return 0, 1 end
  if low == high then return low - 0.5, high + 0.5 end
  return low, high
end

-- uint8 of C x H x W on the CPU.
local function bytes_of(t, low, high)
  if low then
    t = ((t:double() - low) * (255 / (high - low)) + 0.5):nan_to_num(0):clamp(0, 255):floor()
  end
  return t:to('cpu'):to('uint8'):contiguous()
end

-- Interleaved pixels of planes, each `scale` times as large.
local function interleave(t, scale)
  local c, h, w = t:size(1), t:size(2), t:size(3)
  local from, out = t:data_ptr(), ffi.new('uint8_t[?]', c * h * w * scale * scale)
  local width = w * scale
  for y = 0, h * scale - 1 do
    local row = math.floor(y / scale) * w
    for x = 0, width - 1 do
      local at, to = row + math.floor(x / scale), (y * width + x) * c
      for k = 0, c - 1 do out[to + k] = from[k * h * w + at] end
    end
  end
  return out, width, h * scale, c
end

-- -- Output ----------------------------------------------------------------------------------------

--- Interleaved pixels, and width, height and channels.
function Image:pixels()
  local low, high = levels(self)
  local t = bytes_of(grid(self.tensor, self.options.columns, self.options.pad), low, high)
  return interleave(t, self.options.scale)
end

--- The image as the bytes of a PNG; also width, height and channels.
function Image:png()
  local pixels, width, height, channels = self:pixels()
  return require('amp.plot.png').encode(pixels, width, height, channels), width, height, channels
end

--- Write a PNG file, whole or not at all.
-- @tparam string path
-- @return self
function Image:save(path)
  M.save('plot.save', path, function() return self:png() end)
  return self
end

-- Whole positions, from 1, of n samples of a size.
local function samples(size, n, device)
  local list = {}
  for i = 1, n do list[i] = math.min(size, math.floor((i - 0.5) * size / n) + 1) end
  return amp.tensor(list, {dtype = 'int64', device = device})
end

--- A small copy for a terminal: at most width x height pixels, copied from the device as they are chosen.
-- @treturn cdata pixels
-- @treturn number width
-- @treturn number height
-- @treturn number channels
function Image:small(width, height)
  local o = self.options
  local t = self.tensor
  if t:size(1) > 1 then t = grid(t, o.columns, o.pad) else t = t[1] end
  local h, w = t:size(2), t:size(3)
  local factor = math.min(width / w, height / h, 1)
  local sw, sh = math.max(1, math.floor(w * factor + 0.5)), math.max(1, math.floor(h * factor + 0.5))
  local low, high = levels(self)
  if sh < h then t = t:index_select(2, samples(h, sh, t.device)) end
  if sw < w then t = t:index_select(3, samples(w, sw, t.device)) end
  return interleave(bytes_of(t, low, high), 1)
end

--- The image as lines of text: half blocks in colour, or shades of ASCII.
-- @tparam ?table given width and height in characters, unicode, color
function Image:text(given) return require 'amp.plot.terminal'.image(self, given) end

function Image:__tostring() return self:text() end

--- Print the image in the terminal.
-- @return self
function Image:show(given)
  io.stdout:write(self:text(given), '\n')
  return self
end

M.new = new

return M

--- Transforms that move pixels: Resize, crops, flips, Pad.
local base = require 'amp.vision.transforms.base'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

local function moving(name)
  local C = base.class(name)
  C.moves = true
  return C
end

local function even(x) -- to the nearest whole number, halves to even
  local f = math.floor(x)
  if x - f == 0.5 then return f % 2 == 0 and f or f + 1 end
  return math.floor(x + 0.5)
end

-- -- Resize -----------------------------------------------------------------------------------------

local Resize = moving 'Resize'

--- Resize(n | {h, w}): n is the shorter side; bilinear, antialiased.
function M.Resize(size)
  local op = Resize.op
  if type(size) == 'table' and #size == 1 then size = size[1] end
  if type(size) == 'number' then return setmetatable({ short = options.integer(op, 'size', size, 1) }, Resize) end
  return setmetatable({ size = base.size(op, size) }, Resize)
end

function Resize:draw(h, w)
  local oh, ow
  if self.size then oh, ow = self.size[1], self.size[2]
  elseif h <= w then oh, ow = self.short, math.max(1, math.floor(self.short * w / h))
  else oh, ow = math.max(1, math.floor(self.short * h / w)), self.short end
  return { h = h, w = w, oh = oh, ow = ow }
end

function Resize:image(t, p, is_mask) return base.resize(t, p.oh, p.ow, is_mask) end -- luacheck: no self
function Resize:boxes(b, p) return base.stretch(b, p.ow / p.w, p.oh / p.h) end -- luacheck: no self

-- -- Crops --------------------------------------------------------------------------------------------

local function crop_image(_, t, p, is_mask)
  local q = p.pad
  if q then t = base.pad(t, q[1], q[2], q[3], q[4], is_mask and 1 or p.fill) end
  t = base.crop(t, p.top, p.left, p.h, p.w)
  return p.to and base.resize(t, p.to[1], p.to[2], is_mask) or t
end

local function crop_boxes(_, b, p)
  local q = p.pad or { 0, 0 }
  b = base.shift(b, q[1] - p.left, q[2] - p.top)
  return p.to and base.stretch(b, p.to[2] / p.w, p.to[1] / p.h) or b
end

local CenterCrop = moving 'CenterCrop'
CenterCrop.image, CenterCrop.boxes = crop_image, crop_boxes

--- CenterCrop(n | {h, w}); a smaller picture gets zeros around it.
function M.CenterCrop(size) return setmetatable({ size = base.size(CenterCrop.op, size) }, CenterCrop) end

function CenterCrop:draw(h, w)
  local th, tw, pad = self.size[1], self.size[2], nil
  if th > h or tw > w then
    local dh, dw = math.max(th - h, 0), math.max(tw - w, 0)
    pad = { math.floor(dw / 2), math.floor(dh / 2), math.floor((dw + 1) / 2), math.floor((dh + 1) / 2) }
    h, w = h + dh, w + dw
  end
  return { h = th, w = tw, top = even((h - th) / 2), left = even((w - tw) / 2), pad = pad, fill = 0 }
end

-- {left, top, right, bottom} of a number, {x, y} or four of them
local function sides(op, v)
  if type(v) == 'number' then v = { v, v, v, v } end
  if type(v) == 'table' and #v == 2 then v = { v[1], v[2], v[1], v[2] } end
  if type(v) ~= 'table' or #v ~= 4 then raise(op, 'padding is a number, {x, y} or {left, top, right, bottom}, got %s', util.show(v)) end
  for i = 1, 4 do options.integer(op, 'padding', v[i], 0) end
  return v
end

local RandomCrop = moving 'RandomCrop'
RandomCrop.image, RandomCrop.boxes = crop_image, crop_boxes

--- RandomCrop(n | {h, w}, {padding, pad_if_needed = false, fill = 0}).
function M.RandomCrop(size, given)
  local op = RandomCrop.op
  local o = options.read(op, given, { 'padding', 'pad_if_needed', 'fill' }, { pad_if_needed = false, fill = 0 })
  o.size = base.size(op, size)
  if o.padding then o.padding = sides(op, o.padding) end
  return setmetatable(o, RandomCrop)
end

function RandomCrop:draw(h, w)
  local th, tw = self.size[1], self.size[2]
  local q = self.padding and { unpack(self.padding) } or { 0, 0, 0, 0 }
  if self.pad_if_needed then
    local dw, dh = math.max(0, tw - w - q[1] - q[3]), math.max(0, th - h - q[2] - q[4])
    q = { q[1] + dw, q[2] + dh, q[3] + dw, q[4] + dh }
  end
  local H, W = h + q[2] + q[4], w + q[1] + q[3]
  if th > H or tw > W then
    raise(self.op, 'a crop of %d x %d is larger than the picture, %d x %d; {pad_if_needed = true} pads it', th, tw, H, W)
  end
  local padded = q[1] + q[2] + q[3] + q[4] > 0
  return { h = th, w = tw, top = base.randint(H - th + 1), left = base.randint(W - tw + 1), pad = padded and q or nil, fill = self.fill }
end

local RandomResizedCrop = moving 'RandomResizedCrop'
RandomResizedCrop.image, RandomResizedCrop.boxes = crop_image, crop_boxes

local function range(op, name, v, positive)
  if type(v) ~= 'table' or type(v[1]) ~= 'number' or type(v[2]) ~= 'number' or v[1] > v[2] then
    raise(op, '%s must be {least, most}, got %s', name, util.show(v))
  end
  if positive and v[1] <= 0 then raise(op, '%s must be above 0, got %g', name, v[1]) end
  return v
end
M.range = range

--- RandomResizedCrop(n | {h, w}, {scale = {0.08, 1}, ratio = {3/4, 4/3}}).
function M.RandomResizedCrop(size, given)
  local op = RandomResizedCrop.op
  local o = options.read(op, given, { 'scale', 'ratio' }, { scale = { 0.08, 1 }, ratio = { 3 / 4, 4 / 3 } })
  range(op, 'scale', o.scale, true)
  range(op, 'ratio', o.ratio, true)
  o.size = base.size(op, size)
  return setmetatable(o, RandomResizedCrop)
end

function RandomResizedCrop:draw(h, w)
  local low, high = math.log(self.ratio[1]), math.log(self.ratio[2])
  for _ = 1, 10 do
    local a, b, c, d = base.rand(4)
    local area = h * w * (self.scale[1] + (self.scale[2] - self.scale[1]) * a)
    local ratio = math.exp(low + (high - low) * b)
    local cw, ch = even(math.sqrt(area * ratio)), even(math.sqrt(area / ratio))
    if cw > 0 and cw <= w and ch > 0 and ch <= h then
      return { h = ch, w = cw, top = math.floor(c * (h - ch + 1)), left = math.floor(d * (w - cw + 1)), to = self.size }
    end
  end
  local ch, cw = h, w
  if w / h < self.ratio[1] then ch = math.max(1, math.min(h, even(w / self.ratio[1])))
  elseif w / h > self.ratio[2] then cw = math.max(1, math.min(w, even(h * self.ratio[2]))) end
  return { h = ch, w = cw, top = math.floor((h - ch) / 2), left = math.floor((w - cw) / 2), to = self.size }
end

-- What a data set may ask before it decodes a picture (base.ahead)
for _, C in ipairs { Resize, CenterCrop, RandomResizedCrop } do C.chooses = true end -- none of them refuses a picture

-- -- Flips and Pad ------------------------------------------------------------------------------------

local amp = require 'amp'

local function flip(name, vertical)
  local C = moving(name)
  function C:draw(h, w) return base.rand(1) < self.p and { h = h, w = w } or nil end
  function C:image(t, p) return p and t:flip(vertical and t:dim() - 1 or t:dim()) or t end -- luacheck: no self
  function C:boxes(b, p) -- luacheck: no self
    local x1, y1, x2, y2 = b:select(2, 1), b:select(2, 2), b:select(2, 3), b:select(2, 4)
    if vertical then y1, y2 = p.h - y2, p.h - y1 else x1, x2 = p.w - x2, p.w - x1 end
    return amp.stack({ x1, y1, x2, y2 }, 2)
  end
  return C
end
local Horizontal, Vertical = flip('RandomHorizontalFlip', false), flip('RandomVerticalFlip', true)

--- RandomHorizontalFlip{p = 0.5}: left and right change places, with probability p.
function M.RandomHorizontalFlip(given) return setmetatable({ p = base.probability(Horizontal.op, given) }, Horizontal) end

--- RandomVerticalFlip{p = 0.5}: top and bottom change places, with probability p.
function M.RandomVerticalFlip(given) return setmetatable({ p = base.probability(Vertical.op, given) }, Vertical) end

local Pad = moving 'Pad'

--- Pad(n | {x, y} | {left, top, right, bottom}, {fill = 0}).
function M.Pad(padding, given)
  local op = Pad.op
  local o = options.read(op, given, { 'fill' }, { fill = 0 })
  options.number(op, 'fill', o.fill)
  o.padding = sides(op, padding)
  return setmetatable(o, Pad)
end

function Pad:image(t, _, is_mask)
  local q = self.padding
  return base.pad(t, q[1], q[2], q[3], q[4], is_mask and 1 or self.fill)
end
function Pad:boxes(b) return base.shift(b, self.padding[1], self.padding[2]) end

return M

--- Transforms that leave pixels where they are: ColorJitter, Normalize, RandomErasing, ToFloat.
local amp = require 'amp'
local base = require 'amp.vision.transforms.base'
local options = require 'amp.options'
local range = require('amp.vision.transforms.geometry').range
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

-- -- ColorJitter ------------------------------------------------------------------------------------

local ColorJitter = base.class 'ColorJitter'

local function white(t) return t:is_floating_point() and 1 or 255 end

-- factor * a + (1 - factor) * b, in the picture's range and dtype
local function blend(a, b, factor)
  local x = a:is_floating_point() and a or a:float()
  b = b:is_floating_point() and b or b:float()
  local out = (x * factor + b * (1 - factor)):clamp(0, white(a))
  return a:is_floating_point() and out or out:to(a.dtype)
end

local function gray(t)
  local c = t:dim() - 2
  if t:size(c) == 1 then return t end
  local x = t:is_floating_point() and t or t:float()
  local y = x:narrow(c, 1, 1) * 0.2989 + x:narrow(c, 2, 1) * 0.587 + x:narrow(c, 3, 1) * 0.114
  return t:is_floating_point() and y or y:to(t.dtype)
end

local function mean_gray(t)
  local y = gray(t)
  y = y:is_floating_point() and y or y:float()
  if y:dim() == 3 then return y:mean():reshape(1, 1, 1) end
  local n = y:size(1)
  return y:reshape(n, y:size(3) * y:size(4)):mean(2):reshape(n, 1, 1, 1)
end

-- The hue turned by `turn` of a circle: RGB to HSV and back.
local function turn_hue(t, turn)
  local c = t:dim() - 2
  if t:size(c) == 1 then return t end
  local x = t:is_floating_point() and t or t:float() / 255
  local r, g, b = x:select(c, 1), x:select(c, 2), x:select(c, 3)
  local most, least = amp.maximum(amp.maximum(r, g), b), amp.minimum(amp.minimum(r, g), b)
  local same = most:eq(least)
  local span = most - least
  local one = amp.ones_like(most)
  local s = span / amp.where(same, one, most)
  local d = amp.where(same, one, span)
  local rc, gc, bc = (most - r) / d, (most - g) / d, (most - b) / d
  local is_r, is_g = most:eq(r), most:eq(g)
  local zero = amp.zeros_like(most)
  local h = amp.where(is_r, bc - gc, amp.where(is_g, rc + 2 - bc, gc + 4 - rc))
  h = h / 6 + 1 + turn
  h = (h - h:floor()) * 6
  h = amp.where(same, zero + (turn - math.floor(turn)) * 6, h)
  local i = h:floor()
  local f = h - i
  i = amp.where(i:ge(6), zero, i)
  local v = most
  local p, q, u = (v * (1 - s)):clamp(0, 1), (v * (1 - s * f)):clamp(0, 1), (v * (1 - s * (1 - f))):clamp(0, 1)
  local function pick(list)
    local out = list[6]
    for k = 5, 1, -1 do out = amp.where(i:eq(k - 1), list[k], out) end
    return out
  end
  local out = amp.stack({ pick { v, q, p, p, u, v }, pick { u, v, v, q, p, p }, pick { p, p, u, v, v, q } }, c)
  return t:is_floating_point() and out or (out * 255.999):clamp(0, 255):to(t.dtype)
end

local changes = {
  brightness = function(t, f) return blend(t, amp.zeros_like(t), f) end,
  contrast = function(t, f) return blend(t, mean_gray(t), f) end,
  saturation = function(t, f) return blend(t, gray(t), f) end,
  hue = turn_hue,
}
M.changes = changes
local order = { 'brightness', 'contrast', 'saturation', 'hue' }

local function factors(op, name, v)
  if v == nil then return nil end
  if type(v) == 'number' then
    options.number(op, name, v, 0)
    v = name == 'hue' and { -v, v } or { math.max(0, 1 - v), 1 + v }
  end
  range(op, name, v)
  if name == 'hue' and (v[1] < -0.5 or v[2] > 0.5) then raise(op, 'hue is from -0.5 to 0.5, got %g to %g', v[1], v[2]) end
  if name ~= 'hue' and v[1] < 0 then raise(op, '%s must not be below 0, got %g', name, v[1]) end
  return v
end

--- ColorJitter{brightness, contrast, saturation, hue}: each {least, most} of a factor (of hue: turns), or a number n for {1 - n, 1 + n}
-- (of hue: {-n, n}); done in random order.
function M.ColorJitter(given)
  local o = options.read(ColorJitter.op, given, order, {})
  for _, name in ipairs(order) do o[name] = factors(ColorJitter.op, name, o[name]) end
  return setmetatable(o, ColorJitter)
end

function ColorJitter:draw()
  local list = amp.randperm(4, { device = 'cpu' }):tolist()
  local p = {}
  for _, k in ipairs(list) do
    local name = order[k]
    if self[name] then p[#p + 1] = { name, base.between(self[name]) } end
  end
  return p
end

function ColorJitter:image(t, p)
  local c = t:size(t:dim() - 2)
  if c ~= 1 and c ~= 3 then raise(self.op, 'pictures of 1 or 3 channels expected, got shape %s', tostring(t:size())) end
  for _, change in ipairs(p) do t = changes[change[1]](t, change[2]) end
  return t
end

-- -- Normalize, ToFloat --------------------------------------------------------------------------------

local Normalize = base.class 'Normalize'

local function numbers(op, name, v)
  if amp.is_tensor(v) then v = v:tolist() end
  if type(v) == 'number' then v = { v } end
  if type(v) ~= 'table' or #v == 0 then raise(op, '%s must be a list of one number a channel, got %s', name, util.show(v)) end
  for i = 1, #v do options.number(op, name, v[i]) end
  return v
end

--- Normalize(mean, std): (x - mean) / std, a number a channel.
function M.Normalize(mean, std)
  local op = Normalize.op
  local self = { mean = numbers(op, 'mean', mean), std = numbers(op, 'std', std) }
  if #self.mean ~= #self.std then raise(op, 'mean has %d numbers, std %d', #self.mean, #self.std) end
  for i, v in ipairs(self.std) do
    if v == 0 then raise(op, 'std must not be 0, and number %d of it is', i) end
  end
  return setmetatable(self, Normalize)
end

function Normalize:image(t)
  if not t:is_floating_point() then raise(self.op, 'pictures of floats expected, got %s; put ToFloat() before it', t.dtype) end
  local c = t:size(t:dim() - 2)
  if #self.mean ~= 1 and #self.mean ~= c then raise(self.op, 'mean and std have %d numbers, the picture %d channels', #self.mean, c) end
  local o = { dtype = t.dtype, device = t.device }
  return (t - amp.tensor(self.mean, o):reshape(-1, 1, 1)):div_(amp.tensor(self.std, o):reshape(-1, 1, 1))
end

local ToFloat = base.class 'ToFloat'

--- ToFloat(): float32 from 0 to 1 of bytes; floats stay.
function M.ToFloat() return setmetatable({}, ToFloat) end

function ToFloat:image(t) -- luacheck: no self
  if t:is_floating_point() then return t end
  return t.dtype == 'bool' and t:float() or t:float() / 255
end

-- -- RandomErasing ---------------------------------------------------------------------------------------

local RandomErasing = base.class 'RandomErasing'

--- RandomErasing{p = 0.5, scale = {0.02, 0.33}, ratio = {0.3, 3.3}, value = 0 | {a number a channel} | 'random'}.
function M.RandomErasing(given)
  local op = RandomErasing.op
  local o = options.read(op, given, { 'p', 'scale', 'ratio', 'value' }, { p = 0.5, scale = { 0.02, 0.33 }, ratio = { 0.3, 3.3 }, value = 0 })
  options.number(op, 'p', o.p, 0, 1)
  range(op, 'scale', o.scale)
  range(op, 'ratio', o.ratio, true)
  if o.scale[1] < 0 or o.scale[2] > 1 then raise(op, 'scale is from 0 to 1, got %g to %g', o.scale[1], o.scale[2]) end
  if o.value ~= 'random' then o.value = numbers(op, 'value', o.value) end
  return setmetatable(o, RandomErasing)
end

function RandomErasing:draw(h, w)
  if base.rand(1) >= self.p then return nil end
  local low, high = math.log(self.ratio[1]), math.log(self.ratio[2])
  for _ = 1, 10 do
    local a, b, c, d = base.rand(4)
    local area = h * w * (self.scale[1] + (self.scale[2] - self.scale[1]) * a)
    local ratio = math.exp(low + (high - low) * b)
    local eh, ew = math.floor(math.sqrt(area * ratio) + 0.5), math.floor(math.sqrt(area / ratio) + 0.5)
    if eh < h and ew < w and eh > 0 and ew > 0 then
      return { h = eh, w = ew, top = math.floor(c * (h - eh + 1)), left = math.floor(d * (w - ew + 1)) }
    end
  end
end

function RandomErasing:image(t, p)
  if not p then return t end
  local out = t:clone()
  local part = base.crop(out, p.top, p.left, p.h, p.w)
  if self.value == 'random' then
    if t:is_floating_point() then part:copy_(amp.randn(part:size(), { dtype = 'float32', device = t.device }))
    else part:copy_(amp.randint(0, 256, part:size(), { device = t.device })) end
    return out
  end
  local c = t:size(t:dim() - 2)
  if #self.value ~= 1 and #self.value ~= c then raise(self.op, 'value has %d numbers, the picture %d channels', #self.value, c) end
  part:copy_(amp.tensor(self.value, { dtype = 'float32', device = t.device }):reshape(-1, 1, 1):expand(part:size()))
  return out
end

return M

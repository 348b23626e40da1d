--- shapes: drawn pictures of circles, squares, triangles and so on, for detection and segmentation without a download.
--
--   local set = amp.vision.datasets.shapes{n = 500, size = 128, classes = 3, seed = 1}
--   local item = set:get(1)       -- image 3 x 128 x 128 from 0 to 1, boxes n x 4, labels n, mask 128 x 128
--
-- Picture i of a seed is a function of both: it is the same whenever, wherever and in whatever order it is asked for.
local ffi = require 'ffi'
local amp = require 'amp'
local options = require 'amp.options'
local proxy = require 'amp.data.proxy'
local raise = require('amp.error').throw
local common = require 'amp.vision.datasets.common'

local OP = 'vision.datasets.shapes'
local Shapes = {}
Shapes.__index = Shapes

-- Whether the point x, y (from -1 to 1 in the shape's square) is inside, by class.
local names = { 'circle', 'square', 'triangle', 'diamond', 'cross', 'ring', 'frame', 'bar' }
local inside = {
  circle = function(x, y) return x * x + y * y <= 1 end,
  square = function() return true end,
  triangle = function(x, y) return math.abs(x) <= (y + 1) / 2 end,
  diamond = function(x, y) return math.abs(x) + math.abs(y) <= 1 end,
  cross = function(x, y) return math.abs(x) <= 0.3 or math.abs(y) <= 0.3 end,
  ring = function(x, y)
    local r = x * x + y * y
    return r <= 1 and r >= 0.3
  end,
  frame = function(x, y) return math.max(math.abs(x), math.abs(y)) >= 0.55 end,
  bar = function(_, y) return math.abs(y) <= 0.35 end,
}

--- Make a dataset of drawn pictures.
-- @tparam ?table given n (1000 pictures), size (64; or {height, width}, at least 16), classes (3, at most 8), seed (1),
-- objects ({1, 4}: how many a picture has), transform (function of an item)
-- @treturn table a dataset with `classes` (names); an item is {image, boxes, labels, mask}: float32 3 x H x W from 0 to 1;
-- float32 n x 4 corners in pixels; int64 n from 1; int64 H x W, 1 where there is nothing, else the label + 1
-- @usage local item = amp.vision.datasets.shapes{n = 10, size = 64}:get(1)
local function new(given)
  local o = options.read(OP, given, { 'n', 'size', 'classes', 'seed', 'objects', 'transform' },
    { n = 1000, size = 64, classes = 3, seed = 1, objects = { 1, 4 } })
  options.integer(OP, 'n', o.n, 0)
  options.integer(OP, 'classes', o.classes, 1)
  options.integer(OP, 'seed', o.seed, 0)
  if o.classes > #names then raise(OP, 'classes must be at most %d, got %d', #names, o.classes) end
  local size = options.list(OP, 'size', o.size, 2, 16)
  local objects = options.list(OP, 'objects', o.objects, 2, 0)
  common.check_transform(OP, o.transform)
  local self = { n = o.n, height = size[1], width = size[2], seed = o.seed, objects = objects, classes = {}, transform = o.transform }
  for i = 1, o.classes do self.classes[i] = names[i] end
  return proxy.wrap(setmetatable(self, Shapes))
end

-- Numbers from 0 to 1 (Park and Miller's generator), a sequence for each seed and picture.
local function generator(seed, i)
  local state = ((seed % 2147483647) * 48271 + i * 69621 + 12345) % 2147483646 + 1
  local function draw()
    state = state * 16807 % 2147483647
    return state / 2147483647
  end
  for _ = 1, 4 do draw() end
  return draw
end

-- The background: a slanted change of two colours with noise.
local function paint_ground(p, h, w, draw)
  for c = 0, 2 do
    local a, dx, dy = 0.15 + 0.3 * draw(), (draw() - 0.5) * 0.3, (draw() - 0.5) * 0.3
    for y = 0, h - 1 do
      for x = 0, w - 1 do
        p[(c * h + y) * w + x] = math.min(math.max(a + dx * x / w + dy * y / h + 0.06 * draw(), 0), 1)
      end
    end
  end
end

-- Paint a shape; gives its box: the pixels it has.
local function paint(p, mask, h, w, s, fits)
  local x1, y1, x2, y2 = w, h, -1, -1
  for y = math.max(0, math.floor(s.cy - s.r)), math.min(h - 1, math.ceil(s.cy + s.r)) do
    for x = math.max(0, math.floor(s.cx - s.r)), math.min(w - 1, math.ceil(s.cx + s.r)) do
      local u, v = (x + 0.5 - s.cx) / s.r, (y + 0.5 - s.cy) / s.r
      if u >= -1 and u <= 1 and v >= -1 and v <= 1 and fits(u, v) then
        for c = 0, 2 do p[(c * h + y) * w + x] = s.color[c + 1] end
        mask[y * w + x] = s.label + 1
        x1, y1, x2, y2 = math.min(x1, x), math.min(y1, y), math.max(x2, x + 1), math.max(y2, y + 1)
      end
    end
  end
  return { x1, y1, x2, y2 }
end

-- A shape apart from those there are, or nil after some tries.
local function place(shapes, h, w, draw)
  local short = math.min(h, w)
  for _ = 1, 20 do
    local r = short * (0.1 + 0.12 * draw())
    local s = { r = r, cx = r + draw() * (w - 2 * r), cy = r + draw() * (h - 2 * r) }
    local free = true
    for _, t in ipairs(shapes) do
      if math.abs(t.cx - s.cx) < t.r + r + 1 and math.abs(t.cy - s.cy) < t.r + r + 1 then free = false end
    end
    if free then return s end
  end
end

--- Number of pictures.
function Shapes:size() return self.n end

--- Item i.
function Shapes:get(i)
  common.check_index(OP, i, self.n)
  local h, w, draw = self.height, self.width, generator(self.seed, i)
  local image = amp.empty({ 3, h, w }, { dtype = 'float32', device = 'cpu' })
  local mask = amp.ones({ h, w }, { dtype = 'int64', device = 'cpu' })
  local p, m = ffi.cast('float *', image:data_ptr()), ffi.cast('int64_t *', mask:data_ptr())
  paint_ground(p, h, w, draw)
  local shapes, boxes, labels = {}, {}, {}
  local low, high = self.objects[1], self.objects[2]
  for _ = 1, low + math.floor(draw() * (high - low + 1)) do
    local s = place(shapes, h, w, draw)
    if s then
      s.label = 1 + math.floor(draw() * #self.classes)
      s.color = { 0.55 + 0.45 * draw(), 0.55 + 0.45 * draw(), 0.55 + 0.45 * draw() }
      shapes[#shapes + 1] = s
      boxes[#boxes + 1] = paint(p, m, h, w, s, inside[names[s.label]])
      labels[#labels + 1] = s.label
    end
  end
  local item = { image = image, boxes = common.boxes(boxes), labels = common.labels(labels), mask = mask }
  return self.transform and self.transform(item) or item
end

proxy.dataset(Shapes, OP)

function Shapes:__tostring() return ('%s (%d pictures of %d x %d, %d classes)'):format(OP, self.n, self.height, self.width, #self.classes) end

require('amp.core.class').guard(Shapes, OP, 'set')

return new

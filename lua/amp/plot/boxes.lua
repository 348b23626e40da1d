--- amp.plot.boxes(image, boxes, labels, scores): a picture with boxes around what was found, to PNG and to the terminal.
local amp = require 'amp'
local options = require 'amp.options'
local image_of = require 'amp.plot.image'
local raster = require 'amp.plot.raster'
local util = require 'amp.util'
local raise = require('amp.error').throw

local OP = 'plot.boxes'
local COLORS = { { 230, 60, 50 }, { 40, 160, 70 }, { 50, 110, 230 }, { 240, 170, 20 }, { 160, 70, 200 }, { 20, 175, 190 }, { 235, 110, 180 },
  { 130, 140, 20 } }

local Boxes = {}
Boxes.__index = Boxes

-- A list of numbers or names, as long as there are boxes; nil where none is given.
local function list_of(name, v, n)
  if v == nil then return nil end
  if amp.is_tensor(v) then v = v:numel() > 0 and v:detach():double():reshape(-1):tolist() or {} end
  if type(v) ~= 'table' then raise(OP, '%s: a tensor or a list expected, got %s', name, util.kind(v)) end
  if #v ~= n then raise(OP, '%d boxes, but %d %s', n, #v, name) end
  return v
end

local function corners(v)
  if amp.is_tensor(v) then
    if v:numel() == 0 then return {} end
    if v:dim() ~= 2 or v:size(2) ~= 4 then raise(OP, 'boxes are n x 4 corners in pixels, got shape %s', tostring(v:size())) end
    v = v:detach():double():tolist()
  end
  if type(v) ~= 'table' then raise(OP, 'boxes are n x 4 corners in pixels, got %s', util.kind(v)) end
  for i, b in ipairs(v) do
    for k = 1, 4 do
      local x = type(b) == 'table' and b[k]
      if type(x) ~= 'number' or x - x ~= 0 then raise(OP, 'number %d of box %d is %s', k, i, util.show(x or nil)) end
    end
  end
  return v
end

-- What is drawn: {corners, color, text}, the best last, so that it lies on top.
local function read(boxes, labels, scores, o)
  local b = corners(boxes)
  local l, s = list_of('labels', labels, #b), list_of('scores', scores, #b)
  local out = {}
  for i = 1, #b do
    local label, score = l and l[i], s and s[i]
    if label ~= -1 and (not score or score >= o.min_score) then -- a label of -1 is padding
      local name = type(label) == 'number' and o.classes and o.classes[label] or label
      local text = name ~= nil and (type(name) == 'number' and ('%g'):format(name) or tostring(name)) or ''
      if score then text = (text .. ' %.2f'):format(score):gsub('^ ', '') end
      local kind = type(label) == 'number' and label or 1
      out[#out + 1] = { b[i], COLORS[math.floor(math.abs(kind) - 1) % #COLORS + 1], text, score = score or 0, place = i }
    end
  end
  table.sort(out, function(a, c)
    if a.score ~= c.score then return a.score < c.score end
    return a.place > c.place
  end)
  return out
end

-- -- Drawing ----------------------------------------------------------------------------------------

-- A canvas with the picture's pixels: gray ones as RGB, without transparency.
local function canvas(p, width, height, channels)
  local c = raster(width, height)
  for i = 0, width * height - 1 do
    for k = 0, 2 do c.pixels[3 * i + k] = p[i * channels + (channels >= 3 and k or 0)] end
  end
  return c
end

-- Boxes on a canvas, whose sides are sx and sy times the picture's.
local function draw(self, c, sx, sy, thickness, size)
  for _, item in ipairs(self.list) do
    local b, half = item[1], thickness / 2
    local x1, x2 = math.min(b[1], b[3]) * sx + half, math.max(b[1], b[3]) * sx - half
    local y1, y2 = math.min(b[2], b[4]) * sy + half, math.max(b[2], b[4]) * sy - half
    x2, y2 = math.max(x1, x2), math.max(y1, y2)
    c:path({ { x1, y1, x2, y1, x2, y2, x1, y2, x1, y1 } }, thickness, item[2])
    if size and item[3] ~= '' then
      local w, h = c.text_width(item[3], size) + 2 * size / 3, size * 2
      local left = math.max(0, math.min(x1 - half, c.width - w))
      local top = y1 - half - h
      if top < 0 then top = math.min(y1 - half, c.height - h) end
      c:box(left, math.max(top, 0), left + w, top + h, item[2])
      c:text(left + size / 3, top + h / 2, item[3], size, { 255, 255, 255 })
    end
  end
  return c
end

--- The picture as the bytes of a PNG; also width and height.
function Boxes:png()
  local p, width, height, channels = self.base:pixels()
  local short = math.min(width, height)
  local c = draw(self, canvas(p, width, height, channels), self.scale, self.scale, math.max(1.5, short / 200), math.max(6, short / 50))
  return require('amp.plot.png').encode(c.pixels, width, height, 3), width, height
end

--- A small copy for a terminal: at most width x height pixels, boxes without their texts.
function Boxes:small(width, height)
  local p, w, h, channels = self.base:small(width, height)
  return draw(self, canvas(p, w, h, channels), w / self.width, h / self.height, 1).pixels, w, h, 3
end

--- Write a PNG file, whole or not at all.
function Boxes:save(path)
  image_of.save('plot.save', path, function() return (self:png()) end)
  return self
end

--- The picture as lines of text, and a line for each box, the best first.
-- @tparam ?table given width and height in characters, unicode, color
function Boxes:text(given)
  local lines = { require('amp.plot.terminal').image(self, given) }
  for i = #self.list, math.max(1, #self.list - 19), -1 do
    local b = self.list[i][1]
    lines[#lines + 1] = ('%-20s %.0f %.0f %.0f %.0f'):format(self.list[i][3], b[1], b[2], b[3], b[4])
  end
  if #self.list > 20 then lines[#lines + 1] = ('and %d more'):format(#self.list - 20) end
  return table.concat(lines, '\n')
end

function Boxes:__tostring() return self:text() end

--- Print the picture in the terminal.
function Boxes:show(given)
  io.stdout:write(self:text(given), '\n')
  return self
end

--- Make a picture with boxes.
-- @tparam Tensor image H x W or C x H x W, as amp.plot.image takes it
-- @tparam Tensor|table boxes n x 4 corners in pixels of the image
-- @tparam ?Tensor|table labels numbers from 1, or names; -1 is padding and is not drawn
-- @tparam ?Tensor|table scores
-- @tparam ?table given classes (names of labels), min_score (0), scale (1: pixels a pixel), range (of the image, as of amp.plot.image)
-- @return a picture with save(path), show(), text(options), png() and tostring
-- @raise boxes that are not n x 4 numbers, labels or scores of another length
-- @usage amp.plot.boxes(item.image, item.boxes, item.labels, nil, {classes = set.classes, scale = 4}):save 'boxes.png'
return function(image, boxes, labels, scores, given)
  local o = options.read(OP, given, { 'classes', 'min_score', 'scale', 'range' }, { min_score = 0, scale = 1 })
  options.number(OP, 'min_score', o.min_score)
  options.integer(OP, 'scale', o.scale, 1)
  if o.classes ~= nil and type(o.classes) ~= 'table' then raise(OP, 'classes, a list of names, expected, got %s', util.show(o.classes)) end
  if not amp.is_tensor(image) then raise(OP, 'a picture expected, got %s', util.kind(image)) end
  if image:dim() ~= 2 and image:dim() ~= 3 then raise(OP, 'one picture, C x H x W or H x W, expected, got shape %s', tostring(image:size())) end
  local base = image_of.new(image, { scale = o.scale, range = o.range })
  local h, w = image:size(image:dim() - 1), image:size(image:dim())
  local self = { base = base, list = read(boxes, labels, scores, o), height = h, width = w, scale = o.scale }
  return setmetatable(self, Boxes)
end

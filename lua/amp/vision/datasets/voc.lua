--- VOCDetection{root, year = '2012', split = 'train'}: root holds VOCdevkit.
local boxed = require 'amp.vision.datasets.boxed'
local common = require 'amp.vision.datasets.common'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local OP = 'vision.datasets.VOCDetection'
local MOST = 2 ^ 31 -- pixels of a picture's side
local classes = { 'aeroplane', 'bicycle', 'bird', 'boat', 'bottle', 'bus', 'car', 'cat', 'chair', 'cow', 'diningtable', 'dog', 'horse',
  'motorbike', 'person', 'pottedplant', 'sheep', 'sofa', 'train', 'tvmonitor' }

-- What stands between <tag> and </tag> from byte `at` on, and the byte behind it. Found without patterns, whose time would grow with the
-- square of a damaged file, or its cube.
local function between(xml, tag, at)
  local _, first = xml:find('<' .. tag .. '>', at, true)
  local last, stop
  if first then last, stop = xml:find('</' .. tag .. '>', first + 1, true) end
  if last then return xml:sub(first + 1, last - 1), stop + 1 end
end

local function value(xml, tag)
  local text = between(xml, tag, 1)
  text = text and text:match '^%s*(.*)$'
  local last = text and #text or 0
  while last > 0 and text:find('^%s', last) do last = last - 1 end
  return text and text:sub(1, last)
end

-- xml without its parts, which have boxes of their own.
local function without_parts(xml)
  local pieces, at = {}, 1
  while true do
    local first = xml:find('<part>', at, true)
    local _, stop = between(xml, 'part', at)
    if not stop then break end
    pieces[#pieces + 1] = xml:sub(at, first - 1)
    at = stop
  end
  return table.concat(pieces) .. xml:sub(at)
end

-- Boxes of an annotation; corners count from 1 there, from 0 here.
local function read(path, index)
  local xml = common.text(OP, path)
  if not xml:find('</annotation>', 1, true) then raise(OP, "'%s' is no annotation, or cut off", path) end
  local item, n = { boxes = {}, labels = {}, difficult = {} }, 0
  local width, height = tonumber(value(xml, 'width') or nil), tonumber(value(xml, 'height') or nil)
  local object, at = between(xml, 'object', 1)
  while object do
    n = n + 1
    local top = without_parts(object)
    local name = value(top, 'name')
    if not index[name] then raise(OP, "'%s': object %d has the unknown class %s", path, n, util.show(name)) end
    local b = {}
    for k, tag in ipairs { 'xmin', 'ymin', 'xmax', 'ymax' } do
      b[k] = tonumber(value(top, tag) or nil)
      if not b[k] or b[k] ~= b[k] or math.abs(b[k]) >= MOST then raise(OP, "'%s': object %d has no %s", path, n, tag) end
    end
    b[1], b[2] = b[1] - 1, b[2] - 1
    if b[3] <= b[1] or b[4] <= b[2] then raise(OP, "'%s': the box of object %d is empty or swapped", path, n) end
    if b[1] < 0 or b[2] < 0 or width and width > 0 and b[3] > width or height and height > 0 and b[4] > height then
      raise(OP, "'%s': the box of object %d is outside of the picture", path, n)
    end
    item.boxes[n], item.labels[n], item.difficult[n] = b, index[name], tonumber(value(top, 'difficult') or 0) or 0
    object, at = between(xml, 'object', at)
  end
  return item
end

--- @tparam table given root, year ('2012'), split ('train'), classes (names; VOC's 20), transform, skip_bad (false: a picture that cannot
-- be read is an error; true: the next one takes its place, with one warning)
return function(given)
  local o = options.read(OP, given, { 'root', 'year', 'split', 'classes', 'transform', 'skip_bad' },
    { year = '2012', split = 'train', classes = classes, skip_bad = false })
  if type(o.root) ~= 'string' then raise(OP, 'root, the folder that holds VOCdevkit, expected, got %s', util.show(o.root)) end
  common.check_transform(OP, o.transform)
  options.boolean(OP, 'skip_bad', o.skip_bad)
  local dir, index = ('%s/VOCdevkit/VOC%s'):format(o.root, tostring(o.year)), {}
  if type(o.classes) ~= 'table' or #o.classes == 0 then raise(OP, 'classes, a list of names, expected, got %s', util.show(o.classes)) end
  for i, name in ipairs(o.classes) do
    if type(name) ~= 'string' or index[name] then raise(OP, 'class %d is %s, a name that is there once expected', i, util.show(name)) end
    index[name] = i
  end
  local self = { op = OP, items = {}, classes = o.classes, transform = o.transform, skip_bad = o.skip_bad }
  local list, seen = ('%s/ImageSets/Main/%s.txt'):format(dir, tostring(o.split)), {}
  for line in common.text(OP, list):gmatch '[^\r\n]+' do
    local id = line:match '%S+'
    if id then
      if seen[id] then raise(OP, "'%s' names %s twice", list, id) end
      seen[id] = true
      local item = read(('%s/Annotations/%s.xml'):format(dir, id), index)
      item.path = ('%s/JPEGImages/%s.jpg'):format(dir, id)
      self.items[#self.items + 1] = item
    end
  end
  return boxed(self)
end

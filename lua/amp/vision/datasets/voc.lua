--- VOCDetection{root, year = '2012', split = 'train'}: root holds VOCdevkit.
local boxed = require 'amp.vision.datasets.boxed'
local common = require 'amp.vision.datasets.common'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local OP = 'vision.datasets.VOCDetection'
local classes = { 'aeroplane', 'bicycle', 'bird', 'boat', 'bottle', 'bus', 'car', 'cat', 'chair', 'cow', 'diningtable', 'dog', 'horse',
  'motorbike', 'person', 'pottedplant', 'sheep', 'sofa', 'train', 'tvmonitor' }

local function value(xml, tag) return xml:match('<' .. tag .. '>%s*(.-)%s*</' .. tag .. '>') end

-- Boxes of an annotation; corners count from 1 there, from 0 here.
local function read(path, index)
  local xml = common.text(OP, path)
  if not xml:find('</annotation>', 1, true) then raise(OP, "'%s' is no annotation, or cut off", path) end
  local item, n = { boxes = {}, labels = {}, difficult = {} }, 0
  local width, height = tonumber(value(xml, 'width') or nil), tonumber(value(xml, 'height') or nil)
  for object in xml:gmatch '<object>(.-)</object>' do
    n = n + 1
    local top = object:gsub('<part>.-</part>', '')
    local name = value(top, 'name')
    if not index[name] then raise(OP, "'%s': object %d has the unknown class %s", path, n, util.show(name)) end
    local b = {}
    for k, tag in ipairs { 'xmin', 'ymin', 'xmax', 'ymax' } do
      b[k] = tonumber(value(top, tag) or nil)
      if not b[k] or b[k] ~= b[k] then raise(OP, "'%s': object %d has no %s", path, n, tag) end
    end
    b[1], b[2] = b[1] - 1, b[2] - 1
    if b[3] <= b[1] or b[4] <= b[2] then raise(OP, "'%s': the box of object %d is empty or swapped", path, n) end
    if b[1] < 0 or b[2] < 0 or width and width > 0 and b[3] > width or height and height > 0 and b[4] > height then
      raise(OP, "'%s': the box of object %d is outside of the picture", path, n)
    end
    item.boxes[n], item.labels[n], item.difficult[n] = b, index[name], tonumber(value(top, 'difficult') or 0) or 0
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

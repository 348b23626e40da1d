--- COCODetection{images, annotations}: a folder of pictures and an instances_*.json. Crowds and empty boxes are left out.
local boxed = require 'amp.vision.datasets.boxed'
local common = require 'amp.vision.datasets.common'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local OP = 'vision.datasets.COCODetection'

local MOST = 2 ^ 31 -- pixels of a picture's side

local one = { categories = 'category', images = 'image', annotations = 'annotation' }

local function list_of(path, data, key)
  local v = type(data) == 'table' and data[key]
  if type(v) ~= 'table' then raise(OP, "'%s' has no list '%s'", path, key) end
  for i = 1, #v do
    if type(v[i]) ~= 'table' then raise(OP, "'%s': %s %d is %s, an object expected", path, one[key], i, util.kind(v[i])) end
  end
  return v
end

-- Classes by their ids' order: names, and id -> label from 1.
local function read_classes(path, data)
  local list, labels, names = {}, {}, {}
  for i, c in ipairs(list_of(path, data, 'categories')) do
    if type(c.id) ~= 'number' or type(c.name) ~= 'string' then raise(OP, "'%s': category %d has no id or name", path, i) end
    list[i] = c
  end
  table.sort(list, function(a, b) return a.id < b.id end)
  for i, c in ipairs(list) do
    if labels[c.id] then raise(OP, "'%s': two categories have the id %d", path, c.id) end
    labels[c.id], names[i] = i, c.name
  end
  return names, labels
end

local function read_box(path, i, a, item)
  local b = a.bbox
  if type(b) ~= 'table' or #b ~= 4 then raise(OP, "'%s': annotation %d has no bbox of 4 numbers", path, i) end
  for k = 1, 4 do
    if type(b[k]) ~= 'number' or b[k] ~= b[k] or math.abs(b[k]) >= MOST then raise(OP, "'%s': annotation %d: bbox[%d] is %s", path, i, k, util.show(b[k])) end
  end
  if b[3] < 0 or b[4] < 0 then
    raise(OP, "'%s': annotation %d: bbox is {x, y, width, height}, and it is %g wide and %g high", path, i, b[3], b[4])
  end
  local x1, y1 = math.max(b[1], 0), math.max(b[2], 0)
  local x2, y2 = math.min(b[1] + b[3], item.width or math.huge), math.min(b[2] + b[4], item.height or math.huge)
  if x2 <= x1 or y2 <= y1 then return nil end
  return { x1, y1, x2, y2 }
end

--- @tparam table given images (the pictures' folder), annotations (the JSON file), transform, skip_bad (false: as of VOCDetection)
return function(given)
  local o = options.read(OP, given, { 'images', 'annotations', 'transform', 'skip_bad' }, { skip_bad = false })
  for _, key in ipairs { 'images', 'annotations' } do
    if type(o[key]) ~= 'string' then raise(OP, '%s, a path, expected, got %s', key, util.show(o[key])) end
  end
  common.check_transform(OP, o.transform)
  options.boolean(OP, 'skip_bad', o.skip_bad)
  local path = o.annotations
  local text = common.text(OP, path)
  local ok, data, why = pcall(require('amp.io.json').decode, text)
  if not ok or type(data) ~= 'table' then raise(OP, "cannot read '%s': %s", path, tostring(ok and why or data)) end
  local names, labels = read_classes(path, data)
  local self, of = { op = OP, items = {}, classes = names, transform = o.transform, skip_bad = o.skip_bad }, {}
  for i, image in ipairs(list_of(path, data, 'images')) do
    if image.id == nil or type(image.file_name) ~= 'string' then raise(OP, "'%s': image %d has no id or file_name", path, i) end
    if of[image.id] then raise(OP, "'%s': two images have the id %s", path, tostring(image.id)) end
    local item = { path = o.images .. '/' .. image.file_name, boxes = {}, labels = {}, width = tonumber(image.width), height = tonumber(image.height) }
    of[image.id], self.items[i] = item, item
  end
  local ids = {}
  for i, a in ipairs(list_of(path, data, 'annotations')) do
    if a.id ~= nil then
      if ids[a.id] then raise(OP, "'%s': annotations %d and %d have the id %s", path, ids[a.id], i, tostring(a.id)) end
      ids[a.id] = i
    end
    local item = of[a.image_id]
    if not item then raise(OP, "'%s': annotation %d is of image %s, which is not there", path, i, tostring(a.image_id)) end
    if not labels[a.category_id] then raise(OP, "'%s': annotation %d is of category %s, which is not there", path, i, tostring(a.category_id)) end
    local b = a.iscrowd ~= 1 and a.iscrowd ~= true and read_box(path, i, a, item)
    if b then item.boxes[#item.boxes + 1], item.labels[#item.labels + 1] = b, labels[a.category_id] end
  end
  return boxed(self)
end

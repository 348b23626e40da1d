--- Pictures with boxes that annotation files name: what VOCDetection and COCODetection share.
local common = require 'amp.vision.datasets.common'
local proxy = require 'amp.data.proxy'
local skip_bad = require 'amp.data.skip_bad'

local Boxed = {}
Boxed.__index = Boxed

function Boxed:size() return #self.items end

local function load(self, i) return common.picture(self.op, self.items[i].path) end

--- Item i: {image = float32 3 x H x W from 0 to 1, boxes = n x 4 corners in pixels, labels = n from 1, …}.
function Boxed:get(i)
  common.check_index(self.op, i, #self.items)
  local x, k = skip_bad(self, i, #self.items, load)
  local item = self.items[k]
  local out = { image = x, boxes = common.boxes(item.boxes), labels = common.labels(item.labels) }
  if item.difficult then out.difficult = common.labels(item.difficult) end
  return self.transform and self.transform(out) or out
end

proxy.dataset(Boxed, 'vision.datasets')
function Boxed:__tostring() return ('%s (%d pictures, %d classes)'):format(self.op, #self.items, #self.classes) end
require('amp.core.class').guard(Boxed, 'vision.datasets', 'set')

return function(self) return proxy.wrap(setmetatable(self, Boxed)) end

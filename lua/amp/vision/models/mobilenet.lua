--- MobileNet v2 (Sandler et al., 2018): mobilenet_v2{classes = 1000, dropout = 0.2}; input N x 3 x H x W.
-- Parameters are named as torchvision's: features.1.1, features.2.conv.1.1, ..., classifier.2.
local amp = require 'amp'
local common = require 'amp.vision.models.common'
local options = require 'amp.options'
local nn = amp.nn

local function unit(from, to, kernel, stride, groups)
  return nn.Sequential(
    nn.Conv2d(from, to, kernel, { stride = stride, padding = (kernel - 1) / 2, groups = groups, bias = false }),
    nn.BatchNorm2d(to), nn.ReLU6())
end

local Inverted = nn.Module:extend 'InvertedResidual'

function Inverted:init(from, to, stride, expand)
  local hidden, list = from * expand, {}
  if expand ~= 1 then list[1] = unit(from, hidden, 1, 1, 1) end
  list[#list + 1] = unit(hidden, hidden, 3, stride, hidden)
  list[#list + 1] = nn.Conv2d(hidden, to, 1, { bias = false })
  list[#list + 1] = nn.BatchNorm2d(to)
  self.conv = nn.Sequential(list)
  self.adds = stride == 1 and from == to
end

function Inverted:forward(x)
  local y = self.conv(x)
  return self.adds and x + y or y
end

-- expansion, channels, blocks, stride of the first
local stages = { { 1, 16, 1, 1 }, { 6, 24, 2, 2 }, { 6, 32, 3, 2 }, { 6, 64, 4, 2 }, { 6, 96, 3, 1 }, { 6, 160, 3, 2 }, { 6, 320, 1, 1 } }

local MobileNetV2 = nn.Module:extend 'MobileNetV2'

function MobileNetV2:init(given)
  local op = 'vision.models.mobilenet_v2'
  local o = common.options(op, given, { 'classes', 'dropout' }, { classes = 1000, dropout = 0.2 })
  options.number(op, 'dropout', o.dropout, 0, 1)
  local list, from = { unit(3, 32, 3, 2, 1) }, 32
  for _, s in ipairs(stages) do
    for k = 1, s[3] do
      list[#list + 1] = Inverted(from, s[2], k == 1 and s[4] or 1, s[1])
      from = s[2]
    end
  end
  list[#list + 1] = unit(from, 1280, 1, 1, 1)
  self.features = nn.Sequential(list)
  self.classifier = nn.Sequential(nn.Dropout(o.dropout), nn.Linear(1280, o.classes))
  common.fill(self, 0.01)
end

function MobileNetV2:forward(x)
  common.check('mobilenet_v2', x, 3)
  return self.classifier(self.features(x):mean { 3, 4 })
end

local M = {}

--- MobileNet v2.
-- @tparam ?table given classes (1000, or a list of names), dropout (0.2)
-- @treturn nn.Module N x 3 x H x W to N x classes; names of parameters are torchvision's
-- @usage local net = amp.vision.models.mobilenet_v2{classes = 10}
function M.mobilenet_v2(given) return MobileNetV2(given) end

return M

--- VGG-16 (Simonyan and Zisserman, 2015): vgg16{classes = 1000, dropout = 0.5}; input N x 3 x H x W.
-- Parameters are named as torchvision's: features.1, features.3, ..., classifier.1, classifier.4, classifier.7.
local amp = require 'amp'
local common = require 'amp.vision.models.common'
local options = require 'amp.options'
local nn = amp.nn

--- Channels of the 3x3 convolutions; 'M' is a pool, 'C' one that rounds its size up.
local plan = { 64, 64, 'M', 128, 128, 'M', 256, 256, 256, 'M', 512, 512, 512, 'M', 512, 512, 512, 'M' }

-- Layers of a plan, and how many channels they give
local function layers(list, from)
  local out = {}
  for _, what in ipairs(list) do
    if type(what) == 'string' then
      out[#out + 1] = nn.MaxPool2d(2, { stride = 2, ceil_mode = what == 'C' })
    else
      out[#out + 1] = nn.Conv2d(from, what, 3, { padding = 1 })
      out[#out + 1] = nn.ReLU()
      from = what
    end
  end
  return out, from
end

local VGG = nn.Module:extend 'VGG'

function VGG:init(given)
  local op = 'vision.models.vgg16'
  local o = common.options(op, given, { 'classes', 'dropout' }, { classes = 1000, dropout = 0.5 })
  options.number(op, 'dropout', o.dropout, 0, 1)
  self.features = nn.Sequential((layers(plan, 3)))
  self.avgpool = nn.AdaptiveAvgPool2d(7)
  self.classifier = nn.Sequential(nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Dropout(o.dropout), nn.Linear(4096, 4096), nn.ReLU(),
    nn.Dropout(o.dropout), nn.Linear(4096, o.classes))
  common.fill(self, 0.01)
end

function VGG:forward(x)
  common.check('vgg16', x, 3)
  return self.classifier(self.avgpool(self.features(x)):flatten(2))
end

local M = { layers = layers }

--- VGG-16.
-- @tparam ?table given classes (1000, or a list of names), dropout (0.5)
-- @treturn nn.Module N x 3 x H x W (at least 32 x 32) to N x classes; names of parameters are torchvision's
-- @usage local net = amp.vision.models.vgg16{classes = 10}
function M.vgg16(given) return VGG(given) end

return M

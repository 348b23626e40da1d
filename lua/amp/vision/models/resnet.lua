--- ResNet (He et al., 2016): resnet18, 34, 50, 101, 152{classes = 1000, version, width = 64}.
-- Input N x 3 x H x W, output N x classes. The stride of a stage is in its 3x3 convolution, as torchvision has it;
-- with version = 'v1' in the first 1x1, as in the paper and in GluonCV's v1 (18 and 34 have no 1x1: both are the same).
-- Parameters are named as torchvision's: conv1, bn1, layer1.1.conv1, ..., layer2.1.downsample.1, fc.
local amp = require 'amp'
local common = require 'amp.vision.models.common'
local options = require 'amp.options'
local raise = require('amp.error').throw
local util = require 'amp.util'
local nn = amp.nn

local function shortcut(from, to, stride)
  if stride == 1 and from == to then return nil end
  return nn.Sequential(nn.Conv2d(from, to, 1, { stride = stride, bias = false }), nn.BatchNorm2d(to))
end

-- -- Blocks: with two 3x3 convolutions, and with a 3x3 between two 1x1 ------------------------------

local BasicBlock = nn.Module:extend 'BasicBlock'
rawset(BasicBlock, 'expansion', 1)

function BasicBlock:init(from, width, stride)
  self.conv1 = nn.Conv2d(from, width, 3, { stride = stride, padding = 1, bias = false })
  self.bn1 = nn.BatchNorm2d(width)
  self.conv2 = nn.Conv2d(width, width, 3, { padding = 1, bias = false })
  self.bn2 = nn.BatchNorm2d(width)
  self.downsample = shortcut(from, width, stride)
end

local function basic(self, x)
  local y = self.bn1:forward_relu(self.conv1(x))
  return self.bn2:forward_relu(self.conv2(y), self.downsample and self.downsample(x) or x)
end

-- What backward does not need, as a downsampled input, is given back at once, not when garbage is collected.
function BasicBlock:forward(x) return amp.scope(basic, self, x) end

local Bottleneck = nn.Module:extend 'Bottleneck'
rawset(Bottleneck, 'expansion', 4)

function Bottleneck:init(from, width, stride, early)
  local to = width * 4
  self.conv1 = nn.Conv2d(from, width, 1, { stride = early and stride or 1, bias = false })
  self.bn1 = nn.BatchNorm2d(width)
  self.conv2 = nn.Conv2d(width, width, 3, { stride = early and 1 or stride, padding = 1, bias = false })
  self.bn2 = nn.BatchNorm2d(width)
  self.conv3 = nn.Conv2d(width, to, 1, { bias = false })
  self.bn3 = nn.BatchNorm2d(to)
  self.downsample = shortcut(from, to, stride)
end

local function bottleneck(self, x)
  local y = self.bn1:forward_relu(self.conv1(x))
  y = self.bn2:forward_relu(self.conv2(y))
  return self.bn3:forward_relu(self.conv3(y), self.downsample and self.downsample(x) or x)
end

function Bottleneck:forward(x) return amp.scope(bottleneck, self, x) end

-- -- The network -----------------------------------------------------------------------------------

local ResNet = nn.Module:extend 'ResNet'

-- op: the model's name, for errors; Block and counts: of the four stages
function ResNet:init(op, Block, counts, given)
  local o = common.options(op, given, { 'classes', 'version', 'width' }, { classes = 1000, width = 64 })
  if o.version ~= nil and o.version ~= 'v1' then raise(op, "version is 'v1' or left out, got %s", util.show(o.version)) end
  local base = options.integer(op, 'width', o.width, 1)
  self.conv1 = nn.Conv2d(3, base, 7, { stride = 2, padding = 3, bias = false })
  self.bn1 = nn.BatchNorm2d(base)
  self.maxpool = nn.MaxPool2d(3, { stride = 2, padding = 1 })
  local from = base
  for i = 1, 4 do
    local width, list = base * 2 ^ (i - 1), {}
    for k = 1, counts[i] do
      list[k] = Block(from, width, k == 1 and i > 1 and 2 or 1, o.version == 'v1')
      from = width * Block.expansion
    end
    self['layer' .. i] = nn.Sequential(list)
  end
  self.fc = nn.Linear(from, o.classes)
  common.fill(self)
end

local function stem(self, x) return self.maxpool(self.bn1:forward_relu(self.conv1(x))) end

--- The maps after each of the four stages.
-- @tparam Tensor x N x 3 x H x W
-- @treturn table of four tensors, H/4 to H/32
function ResNet:stages(x)
  local maps = {}
  x = amp.scope(stem, self, x)
  for i = 1, 4 do
    x = self['layer' .. i](x)
    maps[i] = x
  end
  return maps
end

function ResNet:forward(x)
  common.check('resnet', x, 3)
  x = amp.scope(stem, self, x)
  for i = 1, 4 do x = self['layer' .. i](x) end
  return self.fc(x:mean { 3, 4 })
end

local M = {}

--- ResNet-18.
-- @tparam ?table given classes (1000, or a list of names), version ('v1': no difference here), width (64: channels of the
-- first convolution)
-- @treturn nn.Module N x 3 x H x W to N x classes; names of parameters are torchvision's
-- @usage local net = amp.vision.models.resnet18{classes = 10}
function M.resnet18(given) return ResNet('vision.models.resnet18', BasicBlock, { 2, 2, 2, 2 }, given) end

--- ResNet-34; options are those of resnet18.
-- @usage local net = amp.vision.models.resnet34{classes = 10}
function M.resnet34(given) return ResNet('vision.models.resnet34', BasicBlock, { 3, 4, 6, 3 }, given) end

--- ResNet-50; options are those of resnet18. With version = 'v1' the stride is in the first 1x1 of a stage.
-- @usage local net = amp.vision.models.resnet50{classes = 10, version = 'v1'}
function M.resnet50(given) return ResNet('vision.models.resnet50', Bottleneck, { 3, 4, 6, 3 }, given) end

--- ResNet-101; options are those of resnet50.
-- @usage local net = amp.vision.models.resnet101{classes = 10}
function M.resnet101(given) return ResNet('vision.models.resnet101', Bottleneck, { 3, 4, 23, 3 }, given) end

--- ResNet-152; options are those of resnet50.
-- @usage local net = amp.vision.models.resnet152{classes = 10}
function M.resnet152(given) return ResNet('vision.models.resnet152', Bottleneck, { 3, 8, 36, 3 }, given) end

return M

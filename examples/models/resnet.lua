--- ResNet-50 (He et al., 2016; the stride in the 3x3 convolution), parameters named as torchvision's.
-- `local resnet50 = require 'examples.models.resnet'`; `net = resnet50{classes = 1000}`; input N x 3 x H x W.
-- A subclass may have another `Block`.
local amp = require 'amp'
local nn = amp.nn

local Bottleneck = nn.Module:extend 'Bottleneck'

function Bottleneck:init(from, width, stride)
  local to = width * 4
  self.conv1 = nn.Conv2d(from, width, 1, { bias = false })
  self.bn1 = nn.BatchNorm2d(width)
  self.conv2 = nn.Conv2d(width, width, 3, { stride = stride, padding = 1, bias = false })
  self.bn2 = nn.BatchNorm2d(width)
  self.conv3 = nn.Conv2d(width, to, 1, { bias = false })
  self.bn3 = nn.BatchNorm2d(to)
  if stride ~= 1 or from ~= to then
    self.downsample = nn.Sequential(nn.Conv2d(from, to, 1, { stride = stride, bias = false }), nn.BatchNorm2d(to))
  end
end

local function bottleneck(self, x)
  local y = self.bn1:forward_relu(self.conv1(x))
  y = self.bn2:forward_relu(self.conv2(y))
  return self.bn3:forward_relu(self.conv3(y), self.downsample and self.downsample(x) or x)
end

-- What backward does not need, as a downsampled input, is given back at once, not when garbage is collected.
function Bottleneck:forward(x) return amp.scope(bottleneck, self, x) end

local ResNet = nn.Module:extend 'ResNet'
ResNet.Block = Bottleneck

function ResNet:init(options)
  local o = options or {}
  local blocks, base = o.blocks or { 3, 4, 6, 3 }, o.width or 64
  self.conv1 = nn.Conv2d(3, base, 7, { stride = 2, padding = 3, bias = false })
  self.bn1 = nn.BatchNorm2d(base)
  self.pool = nn.MaxPool2d(3, { stride = 2, padding = 1 })
  local from = base
  for i, n in ipairs(blocks) do
    local width, list = base * 2 ^ (i - 1), {}
    for k = 1, n do
      list[k] = self.Block(from, width, k == 1 and i > 1 and 2 or 1)
      from = width * 4
    end
    self['layer' .. i] = nn.Sequential(list)
  end
  self.fc = nn.Linear(from, o.classes or 1000)
end

local function stem(self, x) return self.pool(self.bn1:forward_relu(self.conv1(x))) end

function ResNet:forward(x)
  x = amp.scope(stem, self, x)
  for i = 1, 4 do x = self['layer' .. i](x) end
  return self.fc(x:mean { 3, 4 })
end

return ResNet

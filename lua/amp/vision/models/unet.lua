--- U-Net (Ronneberger et al., 2015) with batch norm: unet{classes, in_channels = 3, width = 64, depth = 4}.
-- Input N x in_channels x H x W of any size, output N x classes x H x W. Each of `depth` stages down halves the size and
-- doubles the channels, beginning with `width`; each stage up joins the map of its size. Maps of odd sizes are
-- padded where they meet.
local amp = require 'amp'
local common = require 'amp.vision.models.common'
local options = require 'amp.options'
local nn = amp.nn
local F = nn.functional

local Double = nn.Module:extend 'DoubleConv'

function Double:init(from, to)
  self.conv1 = nn.Conv2d(from, to, 3, { padding = 1, bias = false })
  self.bn1 = nn.BatchNorm2d(to)
  self.conv2 = nn.Conv2d(to, to, 3, { padding = 1, bias = false })
  self.bn2 = nn.BatchNorm2d(to)
end

local function double(self, x) return self.bn2:forward_relu(self.conv2(self.bn1:forward_relu(self.conv1(x)))) end
function Double:forward(x) return amp.scope(double, self, x) end

local UNet = nn.Module:extend 'UNet'

function UNet:init(given)
  local op = 'vision.models.unet'
  local o = common.options(op, given, { 'classes', 'in_channels', 'width', 'depth' },
    { classes = 2, in_channels = 3, width = 64, depth = 4 })
  local width, depth = options.integer(op, 'width', o.width, 1), options.integer(op, 'depth', o.depth, 1)
  self.in_channels = options.integer(op, 'in_channels', o.in_channels, 1)
  local down, up, join = {}, {}, {}
  self.first = Double(o.in_channels, width)
  for i = 1, depth do
    local n = width * 2 ^ i
    down[i] = Double(n / 2, n)
    up[depth + 1 - i] = nn.ConvTranspose2d(n, n / 2, 2, { stride = 2 })
    join[depth + 1 - i] = Double(n, n / 2)
  end
  self.down, self.up, self.join = nn.ModuleList(down), nn.ModuleList(up), nn.ModuleList(join)
  self.pool = nn.MaxPool2d(2)
  self.last = nn.Conv2d(width, o.classes, 1)
  common.fill(self)
end

function UNet:forward(x)
  common.check('unet', x, self.in_channels)
  local kept = {}
  x = self.first(x)
  for i = 1, #self.down do
    kept[i] = x
    x = self.down[i](self.pool(x))
  end
  for i = 1, #self.up do
    local skip = kept[#kept + 1 - i]
    x = self.up[i](x)
    local h, w = skip:size(3) - x:size(3), skip:size(4) - x:size(4)
    if h ~= 0 or w ~= 0 then x = F.pad(x, { 0, w, 0, h }) end
    x = self.join[i](amp.cat({ skip, x }, 2))
  end
  return self.last(x)
end

local M = {}

--- U-Net, for a class of each pixel.
-- @tparam ?table given classes (2, or a list of names), in_channels (3), width (64: channels of the first stage), depth (4:
-- stages down)
-- @treturn nn.Module N x in_channels x H x W to N x classes x H x W, before softmax
-- @usage local net = amp.vision.models.unet{classes = 4, width = 16}
function M.unet(given) return UNet(given) end

return M

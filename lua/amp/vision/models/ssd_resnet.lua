--- ssd_512_resnet50_v1{classes, preset}: SSD on ResNet-50 v1, as GluonCV has it; amp.vision.models.ssd says what calls give.
-- Maps are those after stages 3 and 4 and four extra stages, each a 1x1 transition and a 3x3 of stride 2, all with batch
-- norm; 6,132 anchors at 512. classes is a number or a list of names. Parameters: base.* (ResNet's, as torchvision
-- names them, without fc), extra.*, class_predictors.*, box_predictors.*.
-- `width` (64) thins the whole network out, `side` (512) makes anchors for pictures of another size: both are for trials.
-- Pictures are N x 3 x H x W, normalised; 512 x 512 as published, other sizes of at least 64 work.
local amp = require 'amp'
local SSD = require 'amp.vision.models.ssd'
local common = require 'amp.vision.models.common'
local options = require 'amp.options'
local resnet = require 'amp.vision.models.resnet'
local nn = amp.nn

local OP = 'vision.models.ssd_512_resnet50_v1'
local FEW, MANY = { 1, 2, 0.5 }, { 1, 2, 0.5, 3, 1 / 3 }
local FILTERS = { 512, 512, 256, 256 }

-- Sizes of anchors in pixels: of a map and of the one after it
local presets = {
  coco = { 51.2, 133.12, 215.04, 296.96, 378.88, 460.8, 542.72 },
  voc = { 51.2, 102.4, 189.4, 276.4, 363.52, 450.6, 492 },
}

local Net = SSD:extend 'SSD512ResNet50'

-- A stage after ResNet's: a 1x1 transition and a 3x3 of stride 2
local Extra = nn.Module:extend 'SSDExtra'

function Extra:init(from, between, to)
  self.conv1 = nn.Conv2d(from, between, 1, { bias = false })
  self.bn1 = nn.BatchNorm2d(between)
  self.conv2 = nn.Conv2d(between, to, 3, { stride = 2, padding = 1, bias = false })
  self.bn2 = nn.BatchNorm2d(to)
end

-- The last map has one pixel: of a batch of one picture there is nothing to normalise by but the running statistics.
local function norm_relu(bn, x)
  if bn.training and x:numel() == x:size(2) then
    return amp.batch_norm(x, bn.running_mean, bn.running_var, bn.weight, bn.bias, { training = false, eps = bn.eps }):relu()
  end
  return bn:forward_relu(x)
end

local function extra(self, x)
  return norm_relu(self.bn2, self.conv2(norm_relu(self.bn1, self.conv1(x))))
end

function Extra:forward(x) return amp.scope(extra, self, x) end

function Net:init(given)
  local o = common.options(OP, given, { 'classes', 'preset', 'width', 'side' },
    { classes = 80, preset = 'coco', width = 64, side = 512 })
  local width = options.integer(OP, 'width', o.width, 1)
  local side, sizes = options.integer(OP, 'side', o.side, 64), {}
  for i, size in ipairs(SSD.preset(OP, presets, o.preset)) do sizes[i] = size * side / 512 end
  self:set_anchors(side, { sizes = sizes, ratios = { FEW, MANY, MANY, MANY, FEW, FEW },
    steps = { 16, 32, 64, 128, 256, 512 } }, o)
  self.base = resnet.resnet50 { version = 'v1', classes = 1, width = width }
  self.base.fc = nil
  local channels, stages, from = { width * 16, width * 32 }, {}, width * 32
  for i, filters in ipairs(FILTERS) do
    local to = filters * width / 64
    local between = math.max(width * 2, to)
    stages[i] = Extra(from, between, to)
    channels[#channels + 1], from = to, to
  end
  self.extra = nn.ModuleList(stages)
  common.fill(self.extra)
  self.class_predictors, self.box_predictors = self:predictors(channels)
end

function Net:forward(x)
  self:check_pictures(x, 64)
  local stages = self.base:stages(x)
  local maps = { stages[3], stages[4] }
  for i = 1, #self.extra do maps[#maps + 1] = self.extra[i](maps[#maps]) end
  return self:finish(maps, x, self.class_predictors, self.box_predictors)
end

local M = {}

--- SSD-512 on ResNet-50 v1.
-- @tparam ?table given classes (80, or a list of names), preset ('coco' or 'voc': sizes of anchors), width (64), side (512)
-- @treturn nn.Module a detector of N x 3 x H x W pictures. In training mode it gives cls (N x A x (C + 1)), box
-- (N x A x 4) and anchors (1 x A x 4); in evaluation mode ids, scores and boxes in pixels, 100 a picture
-- @usage local net = amp.vision.models.ssd_512_resnet50_v1{classes = {'circle', 'square'}, preset = 'voc'}
function M.ssd_512_resnet50_v1(given) return Net(given) end

return M

--- ssd_300_vgg16{classes, preset}: SSD on VGG-16 (Liu et al., 2016); amp.vision.models.ssd says what calls give.
-- 8,732 anchors at 300. Parameters are named as those of torchvision's ssd300_vgg16: backbone.scale_weight,
-- backbone.features.*, backbone.extra.*, head.classification_head.module_list.*, head.regression_head.module_list.*;
-- its classes count the background, so that its 91 are 90 here. Pictures are N x 3 x H x W, normalised.
local amp = require 'amp'
local SSD = require 'amp.vision.models.ssd'
local common = require 'amp.vision.models.common'
local vgg = require 'amp.vision.models.vgg'
local nn = amp.nn

local OP = 'vision.models.ssd_300_vgg16'
local FEW, MANY = { 1, 2, 0.5 }, { 1, 2, 0.5, 3, 1 / 3 }

local presets = {
  coco = { 21, 45, 99, 153, 207, 261, 315 },
  voc = { 30, 60, 111, 162, 213, 264, 315 },
}

-- Up to the fourth pool, whose third rounds up; then the rest
local before = { 64, 64, 'M', 128, 128, 'M', 256, 256, 256, 'C', 512, 512, 512 }
local after = { 'M', 512, 512, 512 }

local Backbone = nn.Module:extend 'VGG16Maps'

local function two(from, between, to, stride, padding)
  return nn.Sequential(nn.Conv2d(from, between, 1), nn.ReLU(), nn.Conv2d(between, to, 3, { stride = stride, padding = padding }), nn.ReLU())
end

function Backbone:init()
  self:register_parameter('scale_weight', amp.full({ 512 }, 20))
  self.features = nn.Sequential((vgg.layers(before, 3)))
  local rest = vgg.layers(after, 512)
  rest[#rest + 1] = nn.Sequential(nn.MaxPool2d(3, { stride = 1, padding = 1 }), nn.Conv2d(512, 1024, 3, { padding = 6, dilation = 6 }),
    nn.ReLU(), nn.Conv2d(1024, 1024, 1), nn.ReLU())
  common.fill(self.features)
  self.extra = nn.ModuleList { nn.Sequential(rest), two(1024, 256, 512, 2, 1), two(512, 128, 256, 2, 1), two(256, 128, 256, 1, 0),
    two(256, 128, 256, 1, 0) }
  for _, m in ipairs(self.extra:modules()) do
    if m.__name == 'nn.Conv2d' then
      nn.init.xavier_uniform_(m.weight)
      nn.init.zeros_(m.bias)
    end
  end
end

function Backbone:forward(x)
  x = self.features(x)
  local scale = self.scale_weight:view(1, -1, 1, 1)
  local maps = { scale * nn.functional.normalize(x) }
  for i = 1, #self.extra do
    x = self.extra[i](x)
    maps[#maps + 1] = x
  end
  return maps
end

local Head = nn.Module:extend 'SSDHead'

function Head:init(list) self.module_list = list end

local Net = SSD:extend 'SSD300VGG16'

function Net:init(given)
  local o = common.options(OP, given, { 'classes', 'preset' }, { classes = 90, preset = 'coco' })
  self:set_anchors(300, { sizes = SSD.preset(OP, presets, o.preset), ratios = { FEW, MANY, MANY, MANY, FEW, FEW },
    steps = { 8, 16, 32, 64, 100, 300 } }, o)
  self.backbone = Backbone()
  local cls, box = self:predictors { 512, 1024, 512, 256, 256, 256 }
  self.head = nn.Module:extend 'SSDHeads' ()
  self.head.classification_head, self.head.regression_head = Head(cls), Head(box)
end

function Net:forward(x)
  self:check_pictures(x, 280)
  local head = self.head
  return self:finish(self.backbone(x), x, head.classification_head.module_list, head.regression_head.module_list)
end

local M = {}

--- SSD-300 on VGG-16.
-- @tparam ?table given classes (90, or a list of names), preset ('coco' or 'voc': sizes of anchors)
-- @treturn nn.Module a detector, as ssd_512_resnet50_v1 gives one, of pictures of at least 280 x 280
-- @usage local net = amp.vision.models.ssd_300_vgg16{classes = 20, preset = 'voc'}
function M.ssd_300_vgg16(given) return Net(given) end

return M

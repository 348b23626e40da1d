--- What the detectors of one shot share (Liu et al., 2016): predictors on several maps, anchors, decoding.
--
-- A detector gives maps; SSD:finish does the rest. In training mode a call gives
--   cls (N x A x (C + 1), background first), box (N x A x 4), anchors (1 x A x 4, corners, parts of the picture: what
--   amp.vision.ops.multibox_target takes),
-- in evaluation mode
--   ids (N x 100 x 1, from 1), scores (N x 100 x 1), boxes (N x 100 x 4, corners in pixels), the best first, padded with -1.
-- Both stay on the device.
local amp = require 'amp'
local common = require 'amp.vision.models.common'
local multibox = require 'amp.vision.ops.multibox'
local options = require 'amp.options'
local ops = require 'amp.ops'
local raise = require('amp.error').throw
local util = require 'amp.util'
local nn = amp.nn

local SSD = nn.Module:extend 'SSD'

local VARIANCES = { 0.1, 0.1, 0.2, 0.2 }

--- Anchors a cell of a map with these ratios: two sizes of the first, one of each other.
function SSD.depth(ratios) return #ratios + 1 end

--- What subclasses keep: plan = {sizes = (a number a map and one more), ratios = (a list a map), steps = (pixels a map)}.
-- Sizes are in pixels of a picture of `side`.
function SSD:set_anchors(side, plan, o)
  self.side, self.num_classes, self.class_names = side, o.classes, o.names
  self.plan = setmetatable(plan, { __name = 'SSD anchors' })
  self:set_nms {}
end

--- How detections are chosen.
-- @tparam table given nms_thresh (0.45), nms_topk (400), post_nms (100), valid_thresh (0.01)
function SSD:set_nms(given)
  local op = 'SSD:set_nms'
  local o = options.read(op, given, { 'nms_thresh', 'nms_topk', 'post_nms', 'valid_thresh' },
    { nms_thresh = 0.45, nms_topk = 400, post_nms = 100, valid_thresh = 0.01 })
  self.nms_thresh = options.number(op, 'nms_thresh', o.nms_thresh)
  self.nms_topk = options.integer(op, 'nms_topk', o.nms_topk, 1)
  self.post_nms = options.integer(op, 'post_nms', o.post_nms, 1)
  self.valid_thresh = options.number(op, 'valid_thresh', o.valid_thresh)
  return self
end

--- Predictors of the maps: lists of 3x3 convolutions for classes and for boxes.
-- @tparam table channels of the maps
function SSD:predictors(channels)
  local cls, box = {}, {}
  for i, n in ipairs(channels) do
    local depth = SSD.depth(self.plan.ratios[i])
    cls[i] = nn.Conv2d(n, depth * (self.num_classes + 1), 3, { padding = 1 })
    box[i] = nn.Conv2d(n, depth * 4, 3, { padding = 1 })
    for _, m in ipairs { cls[i], box[i] } do
      nn.init.xavier_uniform_(m.weight)
      nn.init.zeros_(m.bias)
    end
  end
  return nn.ModuleList(cls), nn.ModuleList(box)
end

-- The anchors of a picture of h x w pixels, by MXNet's prior: its sizes and steps are parts of the picture's height.
function SSD:anchors_of(maps, h, w)
  local list, plan = {}, self.plan
  for i, map in ipairs(maps) do
    local s, step = plan.sizes, plan.steps[i]
    -- The prior scales widths by rows over columns of the map; here they are pixels, whatever the map's form is.
    local rows, columns = map:size(3), map:size(4)
    local a = multibox.shared_prior(map, { sizes = { s[i] / h, math.sqrt(s[i] * s[i + 1]) / h }, ratios = plan.ratios[i],
      steps = { step / h, step / w } })
    if h * columns ~= w * rows then a = self.widened(a, h * columns / (w * rows)) end
    list[i] = a
  end
  return amp.cat(list, 2)
end

-- Anchors with their widths times f
function SSD.widened(a, f)
  local centre, half = (a:select(3, 1) + a:select(3, 3)) * 0.5, (a:select(3, 3) - a:select(3, 1)) * (0.5 * f)
  return amp.stack({ centre - half, a:select(3, 2), centre + half, a:select(3, 4) }, 3)
end

local function flat(y, n, last) return y:permute(1, 3, 4, 2):reshape(n, -1, last) end

--- Results of a call from the maps.
-- @tparam table maps N x channels x H x W each
-- @tparam Tensor x the pictures
-- @tparam nn.ModuleList cls predictors of classes
-- @tparam nn.ModuleList box predictors of boxes
function SSD:finish(maps, x, cls, box)
  local n, h, w = x:size(1), x:size(3), x:size(4)
  local c, b = {}, {}
  for i, map in ipairs(maps) do
    c[i], b[i] = flat(cls[i](map), n, self.num_classes + 1), flat(box[i](map), n, 4)
  end
  local scores, offsets = amp.cat(c, 2), amp.cat(b, 2)
  local anchors = amp.no_grad(self.anchors_of, self, maps, h, w)
  if self.training then return scores, offsets, anchors end
  return amp.no_grad(self.detect, self, scores, offsets, anchors, h, w)
end

--- Detections from what a call gives in training mode.
-- @tparam Tensor scores N x A x (C + 1), before softmax
-- @tparam Tensor offsets N x A x 4
-- @tparam Tensor anchors 1 x A x 4
-- @tparam number h pixels
-- @tparam number w pixels
-- @treturn Tensor ids, N x 100 x 1
-- @treturn Tensor scores
-- @treturn Tensor boxes, N x 100 x 4
function SSD:detect(scores, offsets, anchors, h, w)
  local n, count, classes = scores:size(1), scores:size(2), self.num_classes
  local prob = scores:float():softmax(3):narrow(3, 2, classes):reshape(n, count * classes)
  local best, at = prob:topk(math.min(self.nms_topk, count * classes), 2)
  local v = VARIANCES
  local rows = ops.get 'ssd_detections'(best, at, offsets:detach(), anchors:squeeze(1), classes, h, w, self.valid_thresh, self.nms_thresh,
    self.post_nms, v[1], v[2], v[3], v[4])
  return rows:narrow(3, 1, 1), rows:narrow(3, 2, 1), rows:narrow(3, 3, 4)
end

--- Pictures that a detector can look at: N x 3 x H x W.
function SSD:check_pictures(x, least)
  common.check(self.__name, x, 3)
  if x:size(3) < least or x:size(4) < least then
    raise(self.__name, 'pictures of at least %d x %d expected, got %s', least, least, util.shape(x:size()))
  end
end

--- A preset by its name, or an error that lists them.
function SSD.preset(op, presets, name)
  local preset = presets[name]
  if not preset then
    local known = util.keys(presets)
    table.sort(known)
    raise(op, "preset must be one of '%s', got %s", table.concat(known, "', '"), util.show(name))
  end
  return preset
end

return SSD

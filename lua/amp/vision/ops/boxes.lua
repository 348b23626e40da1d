--- Boxes: overlaps, forms, clipping, suppression.
local amp = require 'amp'
local check = require 'amp.vision.ops.check'
local options = require 'amp.options'
local ops = require 'amp.ops'
local raise = require('amp.error').throw
local util = require 'amp.util'

local M = {}

local function areas(b) return (b:select(-1, 3) - b:select(-1, 1)) * (b:select(-1, 4) - b:select(-1, 2)) end

--- Overlap over union of every pair.
-- @tparam Tensor boxes1 N x 4
-- @tparam Tensor boxes2 M x 4
-- @treturn Tensor N x M; NaN where neither has an area
-- @usage amp.vision.ops.box_iou(amp.tensor{{0, 0, 2, 2}}, amp.tensor{{1, 1, 3, 3}}) --> 1/7
function M.box_iou(boxes1, boxes2)
  local op = 'vision.ops.box_iou'
  local a, b = check.boxes(op, 'boxes1', boxes1, 2), check.boxes(op, 'boxes2', boxes2, 2)
  check.together(op, { 'boxes1', 'boxes2' }, a, b)
  if not (amp.is_grad_enabled() and (a.requires_grad or b.requires_grad)) then
    if a.dtype ~= b.dtype then a, b = a:double(), b:double() end
    return ops.get 'box_overlaps'(a, b)
  end
  local one, two = a:unsqueeze(2), b:unsqueeze(1)
  local low = amp.maximum(one[{ {}, {}, { 1, 2 } }], two[{ {}, {}, { 1, 2 } }])
  local high = amp.minimum(one[{ {}, {}, { 3, 4 } }], two[{ {}, {}, { 3, 4 } }])
  local side = (high - low):clamp { min = 0 }
  local both = side:select(3, 1) * side:select(3, 2)
  return both / (areas(a):unsqueeze(2) + areas(b):unsqueeze(1) - both)
end

local forms = { xyxy = true, xywh = true, cxcywh = true }

--- Boxes in another form: 'xyxy' corners, 'xywh' a corner and sizes, 'cxcywh' a centre and sizes.
-- @tparam Tensor boxes ... x 4
-- @tparam string from
-- @tparam string to
function M.box_convert(boxes, from, to)
  local op = 'vision.ops.box_convert'
  check.tensor(op, 'boxes', boxes)
  if boxes:dim() < 1 or boxes:size(-1) ~= 4 then
    raise(op, 'boxes: a last dimension of 4 expected, got %s', util.shape(boxes:size()))
  end
  for name, form in pairs { from = from or false, to = to or false } do
    if not forms[form] then raise(op, "%s must be 'xyxy', 'xywh' or 'cxcywh', got %s", name, util.show(form)) end
  end
  if from == to then return boxes:clone() end
  local n = boxes:dim()
  local function half(i) return boxes:narrow(n, i, 2) end
  local a, b = half(1), half(3)
  if from == 'xywh' then b = a + b
  elseif from == 'cxcywh' then a, b = a - b * 0.5, a + b * 0.5 end
  if to == 'xywh' then b = b - a
  elseif to == 'cxcywh' then a, b = (a + b) * 0.5, b - a end
  return amp.cat({ a, b }, n)
end

--- Boxes cut at the edges of a picture.
-- @tparam Tensor boxes ... x 4, corners in pixels
-- @tparam table size {height, width}
function M.clip_boxes(boxes, size)
  local op = 'vision.ops.clip_boxes'
  check.tensor(op, 'boxes', boxes)
  if boxes:dim() < 1 or boxes:size(-1) ~= 4 then
    raise(op, 'boxes: a last dimension of 4 expected, got %s', util.shape(boxes:size()))
  end
  if type(size) ~= 'table' and not (type(size) == 'cdata' and not amp.is_tensor(size)) then
    raise(op, 'size must be {height, width}, got %s', util.show(size))
  end
  local h, w = options.number(op, 'the height', size[1], 0), options.number(op, 'the width', size[2], 0)
  local n = boxes:dim()
  local function side(i, most) return boxes:narrow(n, i, 1):clamp { min = 0, max = most } end
  return amp.cat({ side(1, w), side(2, h), side(3, w), side(4, h) }, n)
end

-- -- Suppression ----------------------------------------------------------------------

local SORTED = 16384 -- boxes that a block of a GPU sorts; more are sorted by all of it

local function suppress(op, boxes, scores, groups, threshold)
  local b = check.boxes(op, 'boxes', boxes, 2)
  check.tensor(op, 'scores', scores)
  if scores:dim() ~= 1 or scores:size(1) ~= b:size(1) then
    raise(op, 'scores: %d expected, one a box, got %s', b:size(1), util.shape(scores:size()))
  end
  options.number(op, 'iou_threshold', threshold)
  check.together(op, { 'boxes', 'scores' }, b, scores)
  return amp.no_grad(function()
    if b:size(1) == 0 then return amp.zeros({ 0 }, { dtype = 'int64', device = b.device }) end
    if scores.dtype ~= 'float64' and scores:is_floating_point() and b:size(1) <= SORTED then
      local places, count = ops.get 'nms_places'(b:detach(), scores:detach(), groups, threshold)
      return places:narrow(1, 1, count:item())
    end
    local order = scores:detach():argsort { descending = true, stable = true }
    local sorted = b:detach():index_select(1, order):unsqueeze(1)
    local kind = groups and groups - groups:min() or amp.zeros({ b:size(1) }, { dtype = 'int64', device = b.device })
    local stays = ops.get 'box_suppress'(sorted, kind:index_select(1, order):unsqueeze(1), threshold)
    return order[stays:select(1, 1)]
  end)
end

--- The boxes that no better one, which itself stays, overlaps by more than iou_threshold. Waits for the device: how
-- many there are is not known before.
-- @tparam Tensor boxes K x 4
-- @tparam Tensor scores K
-- @tparam number iou_threshold
-- @treturn Tensor int64, their places (from 1), the best first
function M.nms(boxes, scores, iou_threshold) return suppress('vision.ops.nms', boxes, scores, nil, iou_threshold) end

--- nms within each group: boxes of different groups never suppress each other.
-- @tparam Tensor boxes K x 4
-- @tparam Tensor scores K
-- @tparam Tensor idxs K whole numbers: the box's group, such as its class
-- @tparam number iou_threshold
-- @treturn Tensor int64, places of those that stay, the best first
function M.batched_nms(boxes, scores, idxs, iou_threshold)
  local op = 'vision.ops.batched_nms'
  check.boxes(op, 'boxes', boxes, 2)
  check.tensor(op, 'idxs', idxs)
  if idxs:dim() ~= 1 or idxs:size(1) ~= boxes:size(1) then
    raise(op, 'idxs: %d expected, one a box, got %s', boxes:size(1), util.shape(idxs:size()))
  end
  check.together(op, { 'boxes', 'idxs' }, boxes, idxs)
  return suppress(op, boxes, scores, idxs:detach():to 'int64', iou_threshold)
end

return M

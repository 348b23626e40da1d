--- SSD's boxes, as MXNet's MultiBoxPrior, MultiBoxTarget and MultiBoxDetection make them. Corners are parts of the
-- picture, 0 to 1. All of it stays on the device: nothing waits for it.
local amp = require 'amp'
local check = require 'amp.vision.ops.check'
local lasting = require('amp.core.scope').lasting
local options = require 'amp.options'
local ops = require 'amp.ops'
local raise = require('amp.error').throw
local util = require 'amp.util'

local M = {}

-- -- Anchors ----------------------------------------------------------------------------

-- n or more numbers, all of at least `low` (above: larger than it)
local function numbers(op, name, v, n, low)
  if type(v) == 'number' and not n then v = { v } end
  if type(v) ~= 'table' or #v == 0 or (n and #v ~= n) then
    raise(op, '%s must be a list of %s numbers, got %s', name, n or 'at least one', type(v) == 'table' and 'one of ' .. #v or util.show(v))
  end
  for i = 1, #v do
    options.number(op, name .. '[' .. i .. ']', v[i])
    if low and v[i] <= low then raise(op, '%s[%d] must be larger than %g, got %g', name, i, low, v[i]) end
  end
  return v
end

-- Half widths and heights of the anchors of a cell: each size with the first ratio, then the first size with the others
local function halves(sizes, ratios, h, w)
  local list = {}
  local function add(size, ratio)
    local r = math.sqrt(ratio)
    list[#list + 1] = { size * h / w * r / 2, size / r / 2 }
  end
  for _, size in ipairs(sizes) do add(size, ratios[1]) end
  for j = 2, #ratios do add(sizes[1], ratios[j]) end
  return list
end

-- Anchors are the same at each step: they are made once, and stay, since a captured step cannot make them again. The MOST last ones.
local kept, keys, MOST = {}, {}, 256

local function keep(key, anchors)
  kept[key], keys[#keys + 1] = anchors, key
  if #keys > MOST then kept[table.remove(keys, 1)] = nil end
end

-- Corners (x1, y1, x2, y2) of an h x w grid's cells, each with the halves of `list`: 1 x A x 4, in float32, by float64
local function grid(h, w, step, offset, list)
  local function line(n, k) return (amp.arange(0, n, 1, { dtype = 'float64' }) + offset[k]) * step[k] end
  local y, x = line(h, 1):view(h, 1, 1):expand(h, w, #list), line(w, 2):view(1, w, 1):expand(h, w, #list)
  local half = amp.tensor(list, { dtype = 'float64' })
  local dx, dy = half:select(2, 1), half:select(2, 2)
  return amp.stack({ x - dx, y - dy, x + dx, y + dy }, 4):reshape(1, -1, 4):float()
end

-- Those that are kept, which nobody may change
function M.shared_prior(data, given)
  local op = 'vision.ops.multibox_prior'
  check.tensor(op, 'data', data)
  if data:dim() ~= 4 then raise(op, 'data: N x C x H x W expected, got %s', util.shape(data:size())) end
  local o = options.read(op, given, { 'sizes', 'ratios', 'clip', 'steps', 'offsets' },
    { sizes = { 1 }, ratios = { 1 }, clip = false, steps = { -1, -1 }, offsets = { 0.5, 0.5 } })
  options.boolean(op, 'clip', o.clip)
  local sizes, ratios = numbers(op, 'sizes', o.sizes, nil, 0), numbers(op, 'ratios', o.ratios, nil, 0)
  local steps, offsets = numbers(op, 'steps', o.steps, 2), numbers(op, 'offsets', o.offsets, 2)
  local h, w = data:size(3), data:size(4)
  if h == 0 or w == 0 then raise(op, 'data %s has no cells', util.shape(data:size())) end
  local step = { steps[1] > 0 and steps[1] or 1 / h, steps[2] > 0 and steps[2] or 1 / w }
  local key = table.concat({ data.device, h, w, tostring(o.clip), table.concat(sizes, ','), table.concat(ratios, ','),
    table.concat(step, ','), table.concat(offsets, ',') }, ' ')
  local anchors = kept[key]
  if not anchors then
    anchors = lasting(amp.no_grad, function()
      local a = grid(h, w, step, offsets, halves(sizes, ratios, h, w))
      if o.clip then a = a:clamp { min = 0, max = 1 } end
      return a:to(data.device)
    end)
    keep(key, anchors)
  end
  return anchors
end

--- The anchors of a feature map: for each cell each size with the first ratio, then the first size with each other ratio.
-- @tparam Tensor data N x C x H x W; its size and device count
-- @tparam ?table given sizes ({1}), ratios ({1}), clip (false), steps ({-1, -1}: 1/H and 1/W; y before x),
-- offsets ({0.5, 0.5}: of a cell's centre, y before x)
-- @treturn Tensor float32, 1 x (H * W * (#sizes + #ratios - 1)) x 4, corners 0 to 1
function M.multibox_prior(data, given)
  return amp.no_grad(function() return M.shared_prior(data, given):clone() end)
end

-- -- Targets -----------------------------------------------------------------------------

local function flat_anchors(op, anchors)
  check.tensor(op, 'anchors', anchors)
  if anchors:dim() == 3 and anchors:size(1) == 1 then anchors = anchors:squeeze(1) end
  if anchors:dim() ~= 2 or anchors:size(2) ~= 4 then
    raise(op, 'anchors: 1 x A x 4 expected, got %s', util.shape(anchors:size()))
  end
  return check.wide(anchors:detach())
end

--- What each anchor is trained towards.
-- @tparam Tensor anchors 1 x A x 4, corners 0 to 1
-- @tparam Tensor labels N x L x 5: class from 1, corners 0 to 1; padded with -1
-- @tparam Tensor cls_preds N x (classes + 1) x A, before softmax, background first
-- @tparam ?table given overlap_threshold (0.5), ignore_label (-1), negative_mining_ratio (-1: all that is not matched is
-- background), negative_mining_thresh (0.5), minimum_negative_samples (0), variances ({0.1, 0.1, 0.2, 0.2})
-- @treturn Tensor box, N x 4A: offsets to the matched box over the variances, else 0
-- @treturn Tensor mask, N x 4A: 1 where an anchor is matched
-- @treturn Tensor cls, N x A: 0 background, the class where matched, ignore_label elsewhere and in pictures without boxes
function M.multibox_target(anchors, labels, cls_preds, given)
  local op = 'vision.ops.multibox_target'
  local a = flat_anchors(op, anchors)
  check.tensor(op, 'labels', labels)
  check.tensor(op, 'cls_preds', cls_preds)
  local o = options.read(op, given, { 'overlap_threshold', 'ignore_label', 'negative_mining_ratio', 'negative_mining_thresh',
    'minimum_negative_samples', 'variances' }, { overlap_threshold = 0.5, ignore_label = -1, negative_mining_ratio = -1,
    negative_mining_thresh = 0.5, minimum_negative_samples = 0, variances = { 0.1, 0.1, 0.2, 0.2 } })
  for _, name in ipairs { 'overlap_threshold', 'ignore_label', 'negative_mining_ratio', 'negative_mining_thresh' } do
    options.number(op, name, o[name])
  end
  options.integer(op, 'minimum_negative_samples', o.minimum_negative_samples, 0)
  local v = numbers(op, 'variances', o.variances, 4, 0)
  check.together(op, { 'anchors', 'labels', 'cls_preds' }, a, labels, cls_preds)
  local l = labels:detach()
  cls_preds = cls_preds:detach()
  if o.negative_mining_ratio > 0 or not cls_preds:is_floating_point() then cls_preds = check.wide(cls_preds) end -- else it is not read
  return amp.no_grad(ops.get 'multibox_targets', a, check.wide(l), cls_preds, o.overlap_threshold, o.ignore_label,
    o.negative_mining_ratio, o.negative_mining_thresh, o.minimum_negative_samples, v[1], v[2], v[3], v[4])
end

-- -- Detections --------------------------------------------------------------------------

--- Detections from probabilities and offsets, the best first.
-- @tparam Tensor cls_prob N x (classes + 1) x A, after softmax, background first
-- @tparam Tensor loc_pred N x 4A, or N x A x 4
-- @tparam Tensor anchors 1 x A x 4, corners 0 to 1
-- @tparam ?table given clip (true), threshold (0.01), background_id (0), nms_threshold (0.5; not in 0 to 1: no suppression),
-- force_suppress (false: within a class only), variances ({0.1, 0.1, 0.2, 0.2}), nms_topk (-1: all)
-- @treturn Tensor N x A x 6: class from 1 (-1: none, or suppressed), score, corners; -1 in what is left
function M.multibox_detection(cls_prob, loc_pred, anchors, given)
  local op = 'vision.ops.multibox_detection'
  local a = flat_anchors(op, anchors)
  check.tensor(op, 'cls_prob', cls_prob)
  check.tensor(op, 'loc_pred', loc_pred)
  local o = options.read(op, given, { 'clip', 'threshold', 'background_id', 'nms_threshold', 'force_suppress', 'variances', 'nms_topk' },
    { clip = true, threshold = 0.01, background_id = 0, nms_threshold = 0.5, force_suppress = false,
      variances = { 0.1, 0.1, 0.2, 0.2 }, nms_topk = -1 })
  options.boolean(op, 'clip', o.clip)
  options.boolean(op, 'force_suppress', o.force_suppress)
  options.number(op, 'threshold', o.threshold)
  options.number(op, 'nms_threshold', o.nms_threshold)
  options.integer(op, 'nms_topk', o.nms_topk)
  if o.background_id ~= 0 then raise(op, 'background_id must be 0: background is the first of cls_prob, got %s', util.show(o.background_id)) end
  local v, count = numbers(op, 'variances', o.variances, 4, 0), a:size(1)
  if cls_prob:dim() ~= 3 or cls_prob:size(3) ~= count or cls_prob:size(2) < 2 then
    raise(op, 'cls_prob: N x (classes + 1) x %d expected, got %s', count, util.shape(cls_prob:size()))
  end
  local n = cls_prob:size(1)
  if loc_pred:dim() < 2 or loc_pred:size(1) ~= n or loc_pred:numel() ~= n * count * 4 then
    raise(op, 'loc_pred: %d x %d expected, got %s', n, count * 4, util.shape(loc_pred:size()))
  end
  check.together(op, { 'cls_prob', 'loc_pred', 'anchors' }, cls_prob, loc_pred, a)
  if n * count == 0 then return amp.full({ n, count, 6 }, -1, { device = a.device }) end
  return amp.no_grad(ops.get 'multibox_detections', check.wide(cls_prob:detach()), check.wide(loc_pred:detach()):reshape(n, count, 4), a,
    o.clip, o.threshold, o.nms_threshold, o.force_suppress, o.nms_topk, v[1], v[2], v[3], v[4])
end

return M

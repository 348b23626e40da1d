--- amp.vision.SSDMultiBoxLoss: the loss of SSD (Liu et al., 2016), with hard negatives, as GluonCV's.
-- The class loss is cross entropy over the labelled anchors and the hardest negatives, negative_mining_ratio of them
-- for each labelled one of the same image; the box loss is smooth L1 over the labelled ones. Both are divided by the
-- number of labelled anchors of all batches, which stays on the device: nothing waits for it.
local amp = require 'amp'
local options = require 'amp.options'
local raise = require('amp.error').throw
local util = require 'amp.util'

local op = 'vision.SSDMultiBoxLoss'

local Loss = {}
Loss.__index = Loss
Loss.__name = op

local function check(name, t, n, dims)
  if not amp.is_tensor(t) then raise(op, '%s %d: a tensor expected, got %s', name, n, util.show(t)) end
  if dims and t:dim() ~= dims then raise(op, '%s %d has shape %s, %d dimensions expected', name, n, util.shape(t:size()), dims) end
end

-- A tensor or a list of tensors (one a device) as a list
local function listed(name, v)
  if amp.is_tensor(v) then return { v } end
  if type(v) ~= 'table' or #v == 0 then raise(op, '%s: a tensor or a list of tensors expected, got %s', name, util.show(v)) end
  return v
end

local function wide(t)
  if t.dtype == 'float32' or t.dtype == 'float64' then return t end
  return t:float()
end

local function check_all(cls, box, cls_t, box_t)
  if #box ~= #cls or #cls_t ~= #cls or #box_t ~= #cls then
    raise(op, 'lists of one length expected, got %d, %d, %d and %d', #cls, #box, #cls_t, #box_t)
  end
  for i = 1, #cls do
    check('cls_preds', cls[i], i, 3)
    check('box_preds', box[i], i)
    check('cls_targets', cls_t[i], i, 2)
    check('box_targets', box_t[i], i)
    local n, a = cls[i]:size(1), cls[i]:size(2)
    if cls_t[i]:size(1) ~= n or cls_t[i]:size(2) ~= a then
      raise(op, 'cls_targets %d have shape %s, %dx%d expected (cls_preds are %s)', i, util.shape(cls_t[i]:size()), n, a, util.shape(cls[i]:size()))
    end
    for name, t in pairs { box_preds = box[i], box_targets = box_t[i] } do
      if t:numel() ~= n * a * 4 or t:size(1) ~= n then
        raise(op, '%s %d have shape %s, %dx%dx4 expected', name, i, util.shape(t:size()), n, a)
      end
    end
  end
end

-- Cross entropy of each anchor; ignored ones count as background, as MXNet's pick has them
local function entropies(cls, cls_t)
  local label = (cls_t + 1):clamp { min = 1 }:to 'int64'
  local n, count, classes = cls:size(1), cls:size(2), cls:size(3)
  return amp.cross_entropy(wide(cls):reshape(n * count, classes), label:reshape(-1), { reduction = 'none' }):view(n, count)
end

-- Which target is no class of cls, if that is why e was raised
local function blame(cls, cls_t, n, e)
  local classes = cls:size(3) - 1
  local wrong = cls_t.device == 'cpu' and cls_t:le(classes):logical_not():nonzero()
  if not wrong or wrong:size(1) == 0 then error(e, 0) end
  local image, anchor = wrong[1][1]:item(), wrong[1][2]:item()
  raise(op, 'cls_targets %d: label %g (image %d, anchor %d) is no class: cls_preds have classes 1 to %d', n, cls_t[image][anchor]:item(), image, anchor,
    classes)
end

-- Of one device: class and box losses of each image, before they are divided
local function parts(self, cls, box, cls_t, box_t, device)
  local pos = cls_t:gt(0)
  local ok, each = pcall(entropies, cls, cls_t)
  if not ok then blame(cls, cls_t, device, each) end
  local order = amp.where(pos, -math.huge, each:detach()):argsort { dim = 2, descending = true, stable = true }
  local n, count = cls:size(1), cls:size(2)
  local places = amp.arange(1, count + 1, 1, { dtype = 'int64', device = cls.device }):unsqueeze(1):expand(n, count)
  local rank = order:scatter(2, order, places)
  local wanted = pos:sum(2, { keepdim = true }) * self.negative_mining_ratio
  if self.min_hard_negatives > 0 then wanted = wanted:clamp { min = self.min_hard_negatives } end
  local cls_loss = amp.where(pos:logical_or(rank:le(wanted)), each, 0):sum(2)
  local d = amp.smooth_l1_loss(wide(box):reshape(n, count, 4), wide(box_t):reshape(n, count, 4), { reduction = 'none', beta = self.rho })
  return cls_loss, amp.where(pos:unsqueeze(3), d, 0):sum { 2, 3 }
end

--- Losses of a batch, or of several on as many devices.
-- @param cls_preds N x A x (C + 1), background first, or a list of such
-- @param box_preds N x A x 4
-- @param cls_targets N x A: 0 background, a class from 1, negative: ignored (trained as background only where it is hard)
-- @param box_targets N x A x 4 or N x 4A
-- @treturn table sum of both, a list of tensors of N values, one a device
-- @treturn table class losses, likewise
-- @treturn table box losses, likewise
function Loss:forward(cls_preds, box_preds, cls_targets, box_targets)
  local cls, box = listed('cls_preds', cls_preds), listed('box_preds', box_preds)
  local cls_t, box_t = listed('cls_targets', cls_targets), listed('box_targets', box_targets)
  check_all(cls, box, cls_t, box_t)
  local count
  for i = 1, #cls do
    local n = cls_t[i]:gt(0):sum():float()
    count = count and count + n:to(count.device) or n
  end
  count = count:clamp { min = 1 }
  local sums, cls_losses, box_losses = {}, {}, {}
  for i = 1, #cls do
    local c, b = parts(self, cls[i], box[i], cls_t[i], box_t[i], i)
    local n = #cls > 1 and count:to(c.device) or count
    c, b = c / n, b / n
    sums[i], cls_losses[i], box_losses[i] = self.lambd == 1 and c + b or c + b * self.lambd, c, b
  end
  return sums, cls_losses, box_losses
end

Loss.__call = Loss.forward

function Loss:__tostring()
  return ('%s (negative_mining_ratio %g, rho %g, lambd %g)'):format(op, self.negative_mining_ratio, self.rho, self.lambd)
end

require('amp.core.class').guard(Loss, op, 'loss')

--- Make the loss.
-- @tparam ?table given negative_mining_ratio (3), rho (1: where smooth L1 becomes linear), lambd (1: weight of the box
-- loss), min_hard_negatives (0)
-- @usage local loss = amp.vision.SSDMultiBoxLoss(); local sum, cls, box = loss(cls_preds, box_preds, cls_targets, box_targets)
return function(given)
  local o = options.read(op, given, { 'negative_mining_ratio', 'rho', 'lambd', 'min_hard_negatives' },
    { negative_mining_ratio = 3, rho = 1, lambd = 1, min_hard_negatives = 0 })
  options.number(op, 'negative_mining_ratio', o.negative_mining_ratio, 0)
  options.number(op, 'rho', o.rho, 0)
  if o.rho == 0 then raise(op, 'rho must be larger than 0') end
  options.number(op, 'lambd', o.lambd)
  options.integer(op, 'min_hard_negatives', o.min_hard_negatives, 0)
  return setmetatable(o, Loss)
end

--- Focal loss.
local amp = require 'amp'
local check = require 'amp.vision.ops.check'
local options = require 'amp.options'
local raise = require('amp.error').throw
local util = require 'amp.util'

local M = {}

--- Binary cross entropy of logits, with what is right already counting less (Lin et al., 2017).
-- @tparam Tensor inputs logits of any shape
-- @tparam Tensor targets of the same shape, 0 to 1
-- @param ... alpha (0.25: weight of targets that are 1; negative: none), gamma (2), reduction ('none', 'mean', 'sum');
-- in places or in a table
-- @usage amp.vision.ops.sigmoid_focal_loss(logits, targets, {alpha = 0.5, reduction = 'mean'})
function M.sigmoid_focal_loss(inputs, targets, ...)
  local op = 'vision.ops.sigmoid_focal_loss'
  local o = options.arguments(op, { 'inputs', 'targets', 'alpha', 'gamma', 'reduction', tensors = true }, 2,
    { alpha = 0.25, gamma = 2, reduction = 'none' }, inputs, targets, ...)
  local x, t = check.wide(check.tensor(op, 'inputs', o.inputs)), check.tensor(op, 'targets', o.targets)
  if util.shape(x:size()) ~= util.shape(t:size()) then
    raise(op, 'inputs have shape %s, targets %s', util.shape(x:size()), util.shape(t:size()))
  end
  options.number(op, 'alpha', o.alpha)
  options.number(op, 'gamma', o.gamma, 0)
  if o.reduction ~= 'none' and o.reduction ~= 'mean' and o.reduction ~= 'sum' then
    raise(op, "reduction must be 'none', 'mean' or 'sum', got %s", util.show(o.reduction))
  end
  if t.dtype ~= x.dtype then t = t:to(x.dtype) end
  local p = x:sigmoid()
  local right = p * t + (1 - p) * (1 - t)
  local loss = amp.bce_with_logits(x, t, { reduction = 'none' })
  if o.gamma ~= 0 then loss = loss * (1 - right) ^ o.gamma end
  if o.alpha >= 0 then loss = loss * (t * o.alpha + (1 - t) * (1 - o.alpha)) end
  if o.reduction == 'none' then return loss end
  return o.reduction == 'mean' and loss:mean() or loss:sum()
end

return M

--- Losses whose arguments are not those of their row: ctc_loss, whose labels and lengths may be
-- Lua tables, and triplet_margin_with_distance_loss, whose distance is a Lua function.
-- @module amp.ops.loss
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local ops = require 'amp.ops'
local options = require 'amp.options'
local util = require 'amp.util'
local istype, ref_t = ffi.istype, core.ref_t

local M = {}

-- labels or lengths as an integer tensor beside x
local function integers(op, x, v, name)
  if istype(ref_t, v) then return v end
  if type(v) == 'number' then v = { v } end
  if type(v) ~= 'table' then err.throw(op, '%s must be an integer tensor or a table of integers, got %s', name, util.show(v)) end
  local function check(list)
    for i = 1, #list do
      local k = list[i]
      if type(k) == 'table' then check(k)
      elseif type(k) ~= 'number' or k % 1 ~= 0 then err.throw(op, '%s holds %s, expected integers', name, util.show(k)) end
    end
  end
  check(v)
  return require('amp').tensor(v, { dtype = 'int64', device = x.device })
end

--- Connectionist temporal classification: negative log-likelihood of label sequences under all
-- alignments. The derivative is that in log_probs as they are given; it has no second one.
-- @tparam Tensor log_probs T x N x C, or T x C of one sequence: logarithms of probabilities
-- @param targets N x S labels (what lies beyond a sequence's length is not read), or all labels
-- behind one another; an integer tensor or a table. Labels count from 1 and are never the blank
-- @param input_lengths steps of each sequence, an integer tensor or a table
-- @param target_lengths labels of each sequence, likewise
-- @tparam ?number|table blank class of the blank, default 1; or options {blank, reduction, zero_infinity}
-- @tparam ?string reduction 'mean' (each loss over its number of labels first), 'sum', 'none'
-- @tparam ?boolean zero_infinity losses of impossible sequences are 0, and so is their gradient
-- @treturn Tensor scalar, or N losses
-- @raise a label or a length out of range, with its value and row
-- @usage amp.ctc_loss(amp.log_softmax(net(x), 3), labels, {50, 44}, {12, 9})
function M.ctc_loss(log_probs, targets, input_lengths, target_lengths, ...)
  local op, row = 'ctc_loss', ops.get 'ctc_loss'
  if not istype(ref_t, log_probs) then err.throw(op, "argument 1 'log_probs' must be a tensor, got %s", util.show(log_probs)) end
  return row(log_probs, integers(op, log_probs, targets, 'targets'), integers(op, log_probs, input_lengths, 'input_lengths'),
    integers(op, log_probs, target_lengths, 'target_lengths'), ...)
end

--- max(0, margin + d(anchor, positive) - d(anchor, negative)) with a distance of one's own.
-- @tparam Tensor anchor
-- @tparam Tensor positive
-- @tparam Tensor negative
-- @tparam ?table given {distance_function(a, b) -> tensor of distances (Euclidean over the last dimension),
-- margin = 1, swap = false (the smaller of the negative's two distances), reduction = 'mean'}
-- @treturn Tensor
-- @usage amp.triplet_margin_with_distance_loss(a, p, n, {distance_function = function(x, y) return (x - y):abs():sum(-1) end})
function M.triplet_margin_with_distance_loss(anchor, positive, negative, given)
  local op = 'triplet_margin_with_distance_loss'
  local amp = require 'amp'
  local o = options.read(op, given, { 'distance_function', 'margin', 'swap', 'reduction' }, { margin = 1, swap = false, reduction = 'mean' })
  for i, t in ipairs { anchor or false, positive or false, negative or false } do
    if not istype(ref_t, t) then err.throw(op, 'argument %d must be a tensor, got %s', i, util.show(t)) end
  end
  if type(o.margin) ~= 'number' or o.margin <= 0 or o.margin ~= o.margin then err.throw(op, 'margin must be a number above 0, got %s', util.show(o.margin)) end
  local d = o.distance_function or amp.pairwise_distance
  local near, far = d(anchor, positive), d(anchor, negative)
  for i, t in ipairs { near or false, far or false } do
    if not istype(ref_t, t) then err.throw(op, 'distance_function must give a tensor, got %s at call %d', util.show(t), i) end
  end
  if o.swap then far = amp.minimum(far, d(positive, negative)) end
  local loss = (near - far + o.margin):clamp(0)
  if o.reduction == 'mean' then return loss:mean() end
  if o.reduction == 'sum' then return loss:sum() end
  if o.reduction ~= 'none' then err.throw(op, "reduction must be 'mean', 'sum' or 'none', got %s", util.show(o.reduction)) end
  return loss
end

return M

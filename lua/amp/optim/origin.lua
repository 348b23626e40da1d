--- Where gradients come from: of losses that were scaled, of others, of a scaler that unscaled them.
-- The library keeps it beside each gradient (enum amp_origin) until somebody else writes the gradient,
-- which then counts as right. Steps ask here, so that a gradient that carries a scale is never taken
-- for one that doesn't, nor the other way round.
-- @module amp.optim.origin
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local types = require 'amp.types'
local util = require 'amp.util'
local band = require('bit').band
local C = core.C

local M = { PLAIN = 1, SCALED = 2, UNSCALED = 4, MIXED = 8, HAND = 16 }
local PLAIN, SCALED, UNSCALED, MIXED, HAND = M.PLAIN, M.SCALED, M.UNSCALED, M.MIXED, M.HAND

local at = ffi.new 'int[1]'
local one = ffi.new 'amp_tensor *[1]'

--- The origins of n gradients, or-ed, and the first place (from 0) with a bit of the mask.
-- @param buffer amp_tensor *[n]
function M.look(buffer, n, mask)
  local bits = C.amp_grads_origin(buffer, n, mask, at)
  return bits, at[0]
end

--- The origin of one tensor's gradient.
function M.of(t)
  one[0] = t.ptr_
  return C.amp_grads_origin(one, 1, 0, nil)
end

--- Change a tensor's gradient g by f(g, ...), which leaves its origin as it is.
function M.keep(t, g, f, ...)
  one[0] = t.ptr_
  local before = C.amp_grads_origin(one, 1, 0, nil)
  f(g, ...)
  C.amp_grad_origin_put(t, before)
end

--- "parameter 2 (float32 4x8)" of the i-th (from 0).
function M.name(buffer, i)
  local p, sizes = buffer[i], {}
  for d = 1, p.ndim do sizes[d] = tonumber(p.size[d - 1]) end
  return ('parameter %d (%s %s)'):format(i + 1, types.dtype_name[p.dtype], util.shape(sizes))
end

local function fail(op, message, ...) err.throw_code('state', op, message, ...) end

--- An error if one of n gradients carries a scale still: for steps that take gradients as they are.
-- @tparam function describe gives the optimizer's name
-- @tparam ?string cure what to do; default: the scaler's ways
function M.refuse_scaled(op, describe, buffer, n, cure)
  local bits, i = M.look(buffer, n, SCALED)
  if i < 0 then return end
  local mixed = band(bits, MIXED) ~= 0 and band(C.amp_grads_origin(buffer + i, 1, 0, nil), MIXED) ~= 0
  fail(op, 'the gradient of %s of optimizer %s %s: %s', M.name(buffer, i), describe(),
    mixed and 'is the sum of a scaled loss\'s and of one that is not scaled' or 'is that of a scaled loss and was not unscaled',
    cure or 'step with scaler:step(opt), or unscale once, after the last backward, with scaler:unscale_(opt) or scaler:unscale(gm:attached_tensors()); '
      .. 'amp.scale_loss unscales for the optimizers that it is given')
end

--- The same for the parameters of an optimizer: one of amp.optim, or any with param_groups.
function M.refuse_scaled_of(op, opt, cure)
  local list = {}
  for _, g in ipairs(opt.param_groups) do
    for _, p in ipairs(g.params) do list[#list + 1] = p end
  end
  local buffer = ffi.new('amp_tensor *[?]', #list)
  for i = 1, #list do buffer[i - 1] = list[i].ptr_ end
  M.refuse_scaled(op, function()
    return type(opt.describe) == 'function' and opt:describe() or type(opt.name) == 'string' and ("'%s'"):format(opt.name) or tostring(opt)
  end, buffer, #list, cure)
end

--- An error unless n gradients are what a scaler is to divide by its scale.
-- @tparam function whose gives the text behind a parameter, as " of optimizer 'a'"
-- @tparam ?string cure how to scale a loss; default: the scaler's ways
function M.need_scaled(op, whose, buffer, n, cure)
  local _, i = M.look(buffer, n, PLAIN + MIXED)
  if i < 0 then return end
  local bits = C.amp_grads_origin(buffer + i, 1, 0, nil)
  local name = M.name(buffer, i) .. whose()
  if band(bits, SCALED) == 0 then
    fail(op, 'the gradient of %s is that of a loss that was not scaled: %s (gradients written by hand count as scaled)', name,
      cure or 'call scaler:scale(loss):backward(), or scaler:backward(gm, loss), or give gm:backward {dy = scaler:scale_tensor()}')
  elseif band(bits, UNSCALED) ~= 0 then
    fail(op, 'the gradient of %s was unscaled before, and that of a scaled loss was added to it: clear gradients after each step '
      .. '(opt:clear_grad()), and unscale once, after the last backward of a step', name)
  end
  fail(op, 'the gradient of %s is the sum of a scaled loss\'s and of one that was not scaled: scale each loss of the step (%s)', name,
    cure or 'scaler:scale(loss):backward()')
end

--- An error if one of n gradients was unscaled already: for optimizers that unscale all of theirs by themselves.
function M.refuse_unscaled(op, describe, buffer, n)
  local _, i = M.look(buffer, n, UNSCALED)
  if i < 0 then return end
  fail(op, 'the gradient of %s of optimizer %s was unscaled in an earlier step, and this optimizer would unscale it again: '
    .. 'clear gradients after each step (p.grad = nil)', M.name(buffer, i), describe())
end

--- An error if one of n gradients, which were unscaled, has got that of a scaled loss since.
function M.need_unscaled(op, whose, buffer, n)
  local _, i = M.look(buffer, n, SCALED + HAND)
  if i < 0 then return end
  fail(op, 'the gradient of %s%s has got that of a scaled loss after it was unscaled: call unscale_() once, after the last backward of a step; '
    .. 'to begin anew, update() and clear the gradients', M.name(buffer, i), whose())
end

return M

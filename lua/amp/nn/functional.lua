--- amp.nn.functional: the same functions as amp.*, under the name PyTorch users know.
--
-- A look-up goes to amp each time, so a function registered or replaced there is
-- seen here; one set here (amp.register_half_function(F, 'name')) stays here.
local amp = require 'amp'
local find = require('amp.core.lookup').find
local habits = require 'amp.core.habits'
local util = require 'amp.util'

local M = {}

local names = { -- PyTorch's spelling -> amp's
  binary_cross_entropy_with_logits = 'bce_with_logits', logsigmoid = 'log_sigmoid', unfold = 'im2col', fold = 'col2im',
}

local err = require 'amp.error'
local options = require 'amp.options'

local function tensor(op, x)
  if not amp.is_tensor(x) then err.throw(op, "argument 1 'input' must be a tensor, got %s", util.show(x)) end
end

--- leaky_relu with slopes drawn from [lower, upper] in training, one an element, and their mean otherwise.
-- @tparam Tensor x
-- @tparam ?number lower 1/8
-- @tparam ?number upper 1/3
-- @tparam ?boolean training false
-- @usage F.rrelu(x, 0.1, 0.3, true)
function M.rrelu(x, lower, upper, training)
  if type(lower) == 'table' then lower, upper, training = lower.lower, lower.upper, lower.training end
  tensor('nn.functional.rrelu', x)
  lower, upper = lower or 1 / 8, upper or 1 / 3
  options.number('nn.functional.rrelu', 'upper', upper, options.number('nn.functional.rrelu', 'lower', lower))
  if not training then return amp.leaky_relu(x, (lower + upper) / 2) end
  local slopes = amp.empty(x.shape, {dtype = x.dtype, device = x.device}):uniform_(lower, upper)
  return amp.where(x:ge(0), x, x * slopes)
end

--- Draws from the categories whose logits stand along a dimension, so that gradients pass (Gumbel's trick).
-- @tparam Tensor logits
-- @tparam ?number tau temperature, 1
-- @tparam ?boolean hard one-hot results, with the gradient of the soft ones
-- @tparam ?number dim -1
-- @usage F.gumbel_softmax(logits, 0.5, true)
function M.gumbel_softmax(logits, tau, hard, dim)
  local op = 'nn.functional.gumbel_softmax'
  if type(tau) == 'table' then tau, hard, dim = tau.tau, tau.hard, tau.dim end
  tensor(op, logits)
  tau, dim = tau or 1, dim or -1
  if not (type(tau) == 'number' and tau > 0) then err.throw(op, 'tau must be a number above 0, got %s', util.show(tau)) end
  local noise = -amp.empty(logits.shape, {dtype = 'float32', device = logits.device}):exponential_():log()
  local soft = amp.softmax((logits + noise:to(logits.dtype)) / tau, dim)
  if not hard then return soft end
  local one = amp.zeros_like(soft):scatter_(dim, amp.argmax(soft, dim, true), 1)
  return one - soft:detach() + soft
end

err.space(M, 'F')

return setmetatable(M, {__index = function(_, key)
  local name = names[key] or key
  local f = rawget(amp, name)
  if f == nil then f = find(name) end
  if f == nil and not (type(key) == 'string' and key:sub(1, 1) == '_') then
    local known = amp.names()
    for k in pairs(names) do known[#known + 1] = k end
    err.throw_code('name', 'nn.functional', "no function '%s'%s", tostring(key), habits.hint(habits.amp, key, known))
  end
  return f
end})

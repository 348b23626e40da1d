--- amp.torch7.optim: optimizers as functions, optim.sgd(opfunc, x, config, state); amp's classes under their own names.
--
-- opfunc(x) gives the loss and the gradient. x is the vector of net:getParameters(), or a list of parameters: then
-- opfunc may leave the gradient out, and each parameter's own is taken. State is kept in `state`, or in `config`
-- where that is not given. Each gives x and {loss}, the loss as opfunc gave it. An option that the optimizer does not
-- know is an error. cg, lbfgs and their kind are in torch7/optim_search.lua, Logger and ConfusionMatrix in torch7/optim_tools.lua.
local amp = require 'amp'
local util = require 'amp.util'
local adapt = require 'amp.torch7.adapt'
local raise = require('amp.error').throw

local M = {}

-- Options by optimizer, for errors.
local options_of = {}
local sets = setmetatable({}, {__mode = 'k'}) -- the same as sets, by the list
-- What optimizers keep in a table that is options and state at once.
local kept = {}
for _, k in ipairs {
  'evalCounter', 'buffers', 'dfdx', 't', 'm', 'v', 'u', 'denom', 'tmp', 'paramVariance', 'paramStd', 'delta', 'accDelta', 'eta_t', 'mu_t', 'ax',
  'stepsizes', 'sign', 'decayParameters', 'deltaParameters', 'df0', 'df1', 'df2', 'df3', 's', 'x0', 'funcEval', 'nIter', 'old_dirs', 'old_stps', 'Hdiag',
  'g_old', 'f_old', 'd', 'step', 'max', 'stepsize', 'psign', 'nsign', 'zsign', 'dminmax', 'dir_bufs', 'stp_bufs', 'tmp1', 'ro', 'al'} do kept[k] = true end

--- Refuse options that an optimizer does not know.
function M.check_options(name, config, known)
  options_of[name] = options_of[name] or known
  local set = sets[known]
  if not set then
    set = {}
    for _, k in ipairs(known) do set[k] = true end
    sets[known] = set
  end
  if type(config) ~= 'table' then raise('torch7.optim.' .. name, 'the options are a table, got %s', util.show(config)) end
  for k in pairs(config) do
    if not kept[k] and not set[k] then
      local others = {}
      for other, list in pairs(options_of) do
        for i = 1, #list do
          if list[i] == k then others[#others + 1] = other end
        end
      end
      table.sort(others)
      raise('torch7.optim.' .. name, "there is no option '%s'%s%s (known: %s)", tostring(k), util.hint(k, known),
        #others > 0 and '; it is one of ' .. table.concat(others, ', ') or '', table.concat(known, ', '))
    end
  end
end

--- Parameters and gradients as two lists of amp tensors, after a call of opfunc.
function M.evaluate(op, opfunc, x)
  if type(opfunc) ~= 'function' then raise(op, 'a function that gives the loss and the gradient expected, got %s', util.show(opfunc)) end
  local one = adapt.amp(x)
  local single = amp.is_tensor(one)
  local list = single and {one} or x
  if type(list) ~= 'table' or not adapt.is_tensor(list[1]) then raise(op, 'a vector or a list of parameters expected, got %s', util.show(x)) end
  local loss, gradient = opfunc(x)
  gradient = adapt.amp(gradient)
  local grads, params = {}, {}
  for i, p in ipairs(list) do
    p = adapt.amp(p)
    local g
    if single then g = gradient else g = adapt.amp(type(gradient) == 'table' and gradient[i] or p.grad) end
    if not amp.is_tensor(g) then
      raise(op, single and 'opfunc must give the loss and the gradient, a tensor; the gradient is %s' or 'parameter ' .. i .. ' has no gradient (%s)',
        util.show(g))
    end
    if g:numel() ~= p:numel() then raise(op, 'a gradient of %s for parameters of %s', tostring(g:size()), tostring(p:size())) end
    g = g:detach()
    if g:size() ~= p:size() then g = g:reshape(p:size()) end
    params[i], grads[i] = p, g
  end
  return loss, params, grads, single
end

-- Number i's part of an option that is a tensor or a list of them, in p's shape and dtype.
local function part(op, name, v, i, p, single)
  local t = adapt.amp(v)
  if not amp.is_tensor(t) and not single and type(v) == 'table' then t = adapt.amp(v[i]) end
  if not amp.is_tensor(t) then raise(op, '%s must be a tensor, got %s', name, util.show(v)) end
  if t:numel() ~= p:numel() then raise(op, '%s of %s for parameters of %s', name, tostring(t:size()), tostring(p:size())) end
  return t:to(p.dtype):to(p.device):reshape(p:size())
end

-- An optimizer: its rate where none is given, and update(p, g, s, config, rate, i, op), s being the state of that parameter.
local function define(name, known, default_rate, update, before)
  local op = 'torch7.optim.' .. name
  options_of[name] = known
  local function keep_tensors(s) -- a state that was saved and read may hold the other kind of tensor
    for k, v in pairs(s) do
      if type(v) == 'userdata' then s[k] = adapt.amp(v) end
    end
  end
  M[name] = function(opfunc, x, config, state)
    config = config or {}
    M.check_options(name, config, known)
    state = state or config
    state.evalCounter = state.evalCounter or 0
    if before then before(adapt.amp(x), state, config, op) end
    local loss, list, grads, single = M.evaluate(op, opfunc, x)
    local rate = (config.learningRate or default_rate) / (1 + state.evalCounter * (config.learningRateDecay or 0))
    if not single then state.buffers = state.buffers or {} end
    local average
    amp.no_grad(function()
      for i, p in ipairs(list) do
        local s = state
        if not single then
          s = state.buffers[i] or {}
          state.buffers[i] = s
        end
        keep_tensors(s)
        local g = grads[i]
        local decay = config.weightDecay or 0
        if decay ~= 0 then g = g + p:detach() * decay
        elseif config.weightDecays then g = g + p:detach() * part(op, 'weightDecays', config.weightDecays, i, p, single) end
        average = update(p, g, s, config, rate, config.learningRates and part(op, 'learningRates', config.learningRates, i, p, single), op)
      end
    end)
    state.evalCounter = state.evalCounter + 1
    if average then return x, {loss}, adapt.like(x, average) end
    return x, {loss}
  end
end

define('sgd', {'learningRate', 'learningRateDecay', 'weightDecay', 'weightDecays', 'momentum', 'dampening', 'nesterov', 'learningRates'}, 1e-3,
  function(p, g, s, c, rate, rates, op)
    local m = c.momentum or 0
    local damping = c.dampening or m
    if c.nesterov and (m <= 0 or damping ~= 0) then raise(op, 'nesterov needs a momentum above 0 and {dampening = 0}') end
    if m ~= 0 then
      if s.dfdx then s.dfdx:mul_(m):add_(g, {alpha = 1 - damping}) else s.dfdx = g:clone() end
      g = c.nesterov and g + s.dfdx * m or s.dfdx
    end
    p:add_(rates and g * rates or g, {alpha = -rate})
  end)

define('nag', {'learningRate', 'learningRateDecay', 'weightDecay', 'momentum', 'dampening', 'learningRates'}, 1e-3,
  function(p, g, s, c, rate, rates)
    if s.dfdx then s.dfdx:mul_(c.momentum or 0.9) else s.dfdx = amp.zeros_like(g) end
    local step = rates and g * rates or g
    p:add_(step, {alpha = -rate})
    s.dfdx:add_(step, {alpha = -rate})
  end, function(x, state, config, op) -- the gradient is taken where the momentum leads
    local m = config.momentum or 0.9
    if m <= 0 then raise(op, 'the momentum must be above 0, got %g', m) end
    if not amp.is_tensor(x) then raise(op, 'a vector of parameters expected, not a list') end
    if state.dfdx then amp.no_grad(function() x:add_(adapt.amp(state.dfdx), {alpha = m}) end) end
  end)

define('adam', {'learningRate', 'learningRateDecay', 'beta1', 'beta2', 'epsilon', 'weightDecay'}, 1e-3, function(p, g, s, c, rate)
  local b1, b2 = c.beta1 or 0.9, c.beta2 or 0.999
  s.t = (s.t or 0) + 1
  s.m = s.m or amp.zeros_like(g)
  s.v = s.v or amp.zeros_like(g)
  s.m:mul_(b1):add_(g, {alpha = 1 - b1})
  s.v:mul_(b2):addcmul_(g, g, {value = 1 - b2})
  local step = rate * math.sqrt(1 - b2 ^ s.t) / (1 - b1 ^ s.t)
  local denom = s.v:sqrt():add_(c.epsilon or 1e-8)
  p:addcdiv_(s.m, denom, {value = -step})
  denom:free()
end)

define('adamax', {'learningRate', 'beta1', 'beta2', 'epsilon', 'weightDecay'}, 2e-3, function(p, g, s, c, rate)
  local b1, b2 = c.beta1 or 0.9, c.beta2 or 0.999
  s.t = (s.t or 0) + 1
  s.m = s.m or amp.zeros_like(g)
  s.u = s.u or amp.zeros_like(g)
  s.m:mul_(b1):add_(g, {alpha = 1 - b1})
  s.u = amp.maximum(s.u * b2, g:abs() + (c.epsilon or 1e-38))
  p:add_(s.m / s.u, {alpha = -rate / (1 - b1 ^ s.t)})
end)

define('adagrad', {'learningRate', 'learningRateDecay', 'weightDecay'}, 1e-3, function(p, g, s, _, rate)
  s.paramVariance = s.paramVariance or amp.zeros_like(g)
  s.paramVariance:addcmul_(g, g)
  local denom = s.paramVariance:sqrt():add_(1e-10)
  p:addcdiv_(g, denom, {value = -rate})
  denom:free()
end)

define('rmsprop', {'learningRate', 'alpha', 'epsilon', 'initialMean', 'weightDecay'}, 1e-2, function(p, g, s, c, rate)
  local alpha = c.alpha or 0.99
  s.m = s.m or amp.full_like(g, c.initialMean or 0)
  s.m:mul_(alpha):addcmul_(g, g, {value = 1 - alpha})
  local denom = s.m:sqrt():add_(c.epsilon or 1e-8)
  p:addcdiv_(g, denom, {value = -rate})
  denom:free()
end)

define('adadelta', {'rho', 'eps', 'weightDecay'}, 1, function(p, g, s, c)
  local rho, eps = c.rho or 0.9, c.eps or 1e-6
  s.paramVariance = s.paramVariance or amp.zeros_like(g)
  s.accDelta = s.accDelta or amp.zeros_like(g)
  s.paramVariance:mul_(rho):add_(g * g, {alpha = 1 - rho})
  local step = g * (s.accDelta + eps):sqrt() / (s.paramVariance + eps):sqrt()
  s.accDelta:mul_(rho):add_(step * step, {alpha = 1 - rho})
  p:sub_(step)
end)

define('asgd', {'eta0', 'lambda', 'alpha', 't0'}, 1, function(p, g, s, c)
  local eta0, lambda = c.eta0 or 1e-4, c.lambda or 1e-4
  local eta, mu = s.eta_t or eta0, s.mu_t or 1
  p:mul_(1 - lambda * eta):add_(g, {alpha = -eta})
  if s.ax and mu ~= 1 then s.ax:add_(p:detach() - s.ax, {alpha = mu}) else s.ax = p:detach():clone() end
  s.t = (s.t or 0) + 1
  s.eta_t = eta0 / (1 + lambda * eta0 * s.t) ^ (c.alpha or 0.75)
  s.mu_t = 1 / math.max(1, s.t - (c.t0 or 1e6))
  return s.ax
end)

local rprop_known = {'stepsize', 'etaplus', 'etaminus', 'stepsizemax', 'stepsizemin', 'niter'}
define('rprop_once', rprop_known, 1, function(p, g, s, c)
  s.delta = s.delta or amp.zeros_like(g)
  s.stepsizes = s.stepsizes or amp.full_like(g, c.stepsize or 0.1)
  local sign = (g * s.delta):sign()
  local up, down = sign:gt(0), sign:lt(0)
  local factor = amp.ones_like(g):masked_fill(up, c.etaplus or 1.2):masked_fill(down, c.etaminus or 0.5)
  s.stepsizes = (s.stepsizes * factor):clamp(c.stepsizemin or 1e-6, c.stepsizemax or 50)
  g = g:masked_fill(down, 0)
  p:sub_(g:sign() * s.stepsizes)
  s.delta = g:clone()
end)
local once = M.rprop_once
M.rprop_once, options_of.rprop_once, options_of.rprop = nil, nil, rprop_known
function M.rprop(opfunc, x, config, state)
  config = config or {}
  M.check_options('rprop', config, rprop_known)
  local losses = {}
  for i = 1, config.niter or 1 do
    local _, f = once(opfunc, x, config, state)
    losses[i] = f[1]
  end
  return x, losses
end

require 'amp.torch7.optim_search'(M)
require 'amp.torch7.optim_tools'(M)

return setmetatable(M, {__index = function(_, name) return amp.optim[name] end})

--- LARC: layer-wise adaptive rate control around another optimizer (You et al., 2017).
-- Each parameter's gradient, weight decay included, is multiplied by
-- trust_coefficient * |p| / (|g| + weight_decay * |p| + eps); with clip by that over lr, at most 1,
-- so that the rate is the smaller of the group's and the layer's. A parameter or a gradient that is
-- all zeros is left to the optimizer as it is, without decay. Gradients are changed in place, as
-- clipping does, without a wait; groups and state are the wrapped optimizer's, and so are schedulers.
-- @usage local opt = amp.optim.LARC(amp.optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9}), {trust_coefficient = 0.02})
-- @module amp.optim.larc
local capturing = require 'amp.capture.current'
local err = require 'amp.error'
local options = require 'amp.options'
local origin = require 'amp.optim.origin'
local lasting = require('amp.core.scope').lasting
local util = require 'amp.util'

local OP = 'optim.LARC'

local LARC = {}
for _, name in ipairs { 'clear_grad', 'zero_grad', 'has_grads', 'load_state_dict', 'add_param_group' } do
  --- As the wrapped optimizer's.
  LARC[name] = function(self, ...)
    local inner = self.optim
    local result = inner[name](inner, ...)
    if result == inner then return self end
    return result
  end
end

--- The wrapped optimizer's state.
function LARC:state_dict() return self.optim:state_dict() end

--- Name for messages: the wrapped optimizer's.
function LARC:describe()
  local inner = self.optim
  return 'LARC around ' .. (type(inner.describe) == 'function' and inner:describe() or tostring(inner))
end

-- A group's lr and decay as tensors of p's GPU, which a captured step reads at each replay; on a CPU the numbers.
local function numbers(self, amp, i, group, decay, device)
  if device == 'cpu' then return group.lr, decay end
  local kept = self.kept
  local key = i .. device
  local k = kept[key]
  if not k then
    if capturing.current then return group.lr, decay end
    local function cell(v) return lasting(amp.tensor, v, { dtype = 'float64', device = device }) end
    k = { lr = cell(group.lr), decay = cell(decay), now = group.lr, before = decay }
    kept[key] = k
  end
  local function look(weight_decay)
    if k.now ~= group.lr then k.lr:fill_(group.lr) end
    if k.before ~= weight_decay then k.decay:fill_(weight_decay) end
    k.now, k.before = group.lr, weight_decay
  end
  local captured = capturing.current
  if not captured then look(decay)
  elseif k.entered ~= captured then
    k.entered = captured
    captured[#captured + 1] = { refresh = function() look(group.weight_decay or 0) end }
  end
  return k.lr, k.decay
end

-- p's gradient as the wrapped optimizer shall see it
local function adapt(amp, p, o, lr, decay, decays)
  local g = p.grad
  local function norm(t) return (t.dtype:match '16' and t:float() or t):norm() end
  local pn, gn = norm(p:detach()), norm(g)
  local rate = pn * o.trust_coefficient / (gn + pn * decay + o.eps)
  if o.clip then rate = (rate / lr):clamp(nil, 1) end
  local both = pn:ne(0):logical_and(gn:ne(0))
  local factor = amp.where(both, rate, 1)
  g:mul_(factor:to(g.dtype))
  if decays then g:add_((amp.where(both, rate, 0) * decay):to(g.dtype) * p:detach():to(g.dtype)) end
end

--- Adapt the gradients, then step the wrapped optimizer.
-- @return self
function LARC:step(closure)
  local inner, o = self.optim, self.options
  if closure ~= nil then
    if type(closure) ~= 'function' then err.throw(OP .. '.step', 'takes a function that computes the loss, or nothing; got %s', util.show(closure)) end
    local results = util.pack(closure())
    self:step()
    return unpack(results, 1, results.n)
  end
  origin.refuse_scaled_of(OP .. '.step', inner)
  local amp, decays = require 'amp', {}
  for i, g in ipairs(inner.param_groups) do
    decays[i] = g.weight_decay or 0
    if type(g.lr) ~= 'number' or type(decays[i]) ~= 'number' then
      err.throw(OP .. '.step', 'lr and weight_decay of group %d must be numbers, got %s and %s', i, util.show(g.lr), util.show(g.weight_decay))
    end
  end
  amp.autocast({ enabled = false }, amp.no_grad, function()
    for i, g in ipairs(inner.param_groups) do
      for _, p in ipairs(g.params) do
        if p.grad ~= nil then
          local lr, decay = numbers(self, amp, i, g, decays[i], p.device)
          adapt(amp, p, o, lr, decay, decays[i] ~= 0)
        end
      end
    end
  end)
  for i, g in ipairs(inner.param_groups) do if decays[i] ~= 0 then g.weight_decay = 0 end end -- it stands in the gradient now
  inner._undecayed = true -- so it does in replays of a captured step
  local ok, message = pcall(inner.step, inner)
  inner._undecayed = false
  for i, g in ipairs(inner.param_groups) do if decays[i] ~= 0 then g.weight_decay = decays[i] end end
  if not ok then error(message, 0) end
  return self
end

local mt = {
  __index = function(self, k)
    local v = LARC[k]
    if v == nil and k ~= '_handle' then v = rawget(self, 'optim')[k] end
    return v
  end,
  __tostring = function(self)
    local o = self.options
    return ('LARC (trust_coefficient = %g, clip = %s, eps = %g) of %s'):format(o.trust_coefficient, tostring(o.clip), o.eps, tostring(self.optim))
  end,
}

--- Put it around an optimizer.
-- @tparam table optimizer one of amp.optim but LBFGS, or a table with step and param_groups
-- @tparam ?table options {trust_coefficient = 0.02, clip = true, eps = 1e-8}; without clip the rate is the layer's
-- alone, times the group's
-- @raise what is no optimizer, LBFGS, an unknown option
local function new(_, optimizer, given)
  if type(optimizer) ~= 'table' or type(optimizer.step) ~= 'function' or type(optimizer.param_groups) ~= 'table' then
    err.throw(OP, 'wraps an optimizer (a table with step and param_groups), got %s', util.show(optimizer))
  end
  if optimizer.needs_closure then err.throw(OP, 'LBFGS takes its steps inside a closure; LARC has no place in it') end
  local o = options.read(OP, given, { 'trust_coefficient', 'clip', 'eps' }, { trust_coefficient = 0.02, clip = true, eps = 1e-8 })
  options.number(OP, 'trust_coefficient', o.trust_coefficient, 0)
  options.number(OP, 'eps', o.eps, 0)
  options.boolean(OP, 'clip', o.clip)
  return setmetatable({ optim = optimizer, options = o, kept = {} }, mt)
end

require('amp.core.class').guard(LARC, 'optim.LARC', 'opt', mt)

return setmetatable({ name = 'LARC' }, { __call = new })

--- What optimizers share whose direction is made of tensor ops (Muon, Adafactor). The direction stands in the gradient while
-- the library's plain step runs: p -= lr * (direction + weight_decay * p). So skipping on overflow, 16-bit copies, masters and
-- captured steps are those of every optimizer. Nothing here waits for the device: state stays as it is where a gradient that
-- a scaler unscaled is not finite.
-- @module amp.optim.composed
local origin = require 'amp.optim.origin'
local band = require('bit').band

local M = {}

-- A 0-dim tensor on each device: whether all gradients that go into this step are finite. nil: no scaler looked at them.
local function all_finite(self, amp, works)
  local bits = origin.look(self._all, self._count, 0)
  if band(bits, origin.UNSCALED) == 0 then return nil end
  local list, home = {}, works[1].param.device
  for i, w in ipairs(works) do list[i] = (w.grad * 0):sum():float():to(home) end
  local sum = amp.stack(list, 1):sum()
  local out = {}
  for _, w in ipairs(works) do
    local device = w.param.device
    out[device] = out[device] or sum:eq(0):to(device)
  end
  return out
end

local function works_of(self)
  local works = {}
  for gi, g in ipairs(self.param_groups) do
    for pi, p in ipairs(g.params) do
      local grad = p.grad
      if grad ~= nil then works[#works + 1] = { param = p, grad = grad, group = g, at = gi, index = pi } end
    end
  end
  return works
end

-- State of a parameter, where it lies now.
local function own_state(self, w)
  local states = self._own
  if not states then
    states = {}
    rawset(self, '_own', states)
  end
  states[w.at] = states[w.at] or {}
  local s = states[w.at][w.index] or {}
  states[w.at][w.index] = s
  for name, t in pairs(s) do
    if t.device ~= w.param.device then s[name] = t:to(w.param.device) end
  end
  return s
end

--- Keep a value of the state: the new one, but where `finite` (a 0-dim bool tensor, or nil) says no.
function M.keep(state, name, new, finite)
  local old = state[name]
  if finite then new = require('amp').where(finite, new, old) end
  old:copy_(new)
end

--- Put each parameter's direction into its gradient.
-- @tparam function direction(amp, group, param, gradient, state, finite) gives a tensor of the parameter's shape; the gradient
-- is float32 or float64
-- @treturn function puts the gradients back
function M.begin(self, direction)
  local amp = require 'amp'
  local works = works_of(self)
  local saved, rescale = {}, self._rescale
  if #works == 0 then return function() end end
  amp.autocast({ enabled = false }, amp.no_grad, function()
    local finite = all_finite(self, amp, works)
    for i, w in ipairs(works) do
      local p, g = w.param:detach(), w.grad
      if p.dtype:match '16' then p = p:float() end
      if g.dtype ~= p.dtype then g = g:to(p.dtype) end
      if rescale ~= 0 then g = g * rescale end
      local ok = finite and finite[p.device]
      local d = direction(amp, w.group, p, g, own_state(self, w), ok)
      if ok then d = amp.where(ok, d, 0 / 0) end
      saved[i] = w.grad:clone()
      w.grad:copy_(d)
    end
  end)
  return function()
    amp.autocast({ enabled = false }, amp.no_grad, function()
      for i, w in ipairs(works) do origin.keep(w.param, w.grad, w.grad.copy_, saved[i]) end
    end)
  end
end

return M

--- An optimizer wrapped by handle:wrap_optimizer: a block for each of its losses, then a step.
-- All else is the optimizer's: fields are read and written through.
-- @module amp.levels.wrapper
local block = require 'amp.levels.block'
local err = require 'amp.error'
local side = require 'amp.levels.master_step'

local Wrapper = {}

local own = { optimizer = true, _handle_ = true, _scalers = true, _entered = true }

--- Run fn(scaled_loss) for the next of the losses.
-- @tparam Tensor loss
-- @tparam function fn
-- @return fn's results
-- @usage opt:scale_loss(loss1, back); opt:scale_loss(loss2, back); opt:step()
function Wrapper:scale_loss(loss, fn)
  local op = 'wrapper.scale_loss'
  block.check_function(op, 2, fn)
  if not self._handle_:is_active() then return fn(loss) end
  local n = #self._scalers
  if self._entered >= n then
    err.throw_code('state', op, 'it was entered num_loss = %d times since the last step of %s; call step(), or wrap the optimizer with {num_loss = %d}',
      n, side.describe(self.optimizer), n + 1)
  end
  local opts = block.optimizers(op, self.optimizer)
  block.check_loss(op, loss)
  local function results(...)
    self._entered = self._entered + 1
    return ...
  end
  return results(block.run(op, self._scalers[self._entered + 1], loss, opts, false, fn))
end

--- Step, unless a loss overflowed.
-- @return self
function Wrapper:step(closure)
  if not self._handle_:is_active() then
    local result = self.optimizer:step(closure)
    if result == self.optimizer then return self end
    return result
  end
  if closure ~= nil then err.throw_code('state', 'wrapper.step', 'closures are not supported by a wrapped optimizer') end
  local n = #self._scalers
  if self._entered ~= n then
    err.throw_code('state', 'wrapper.step', 'scale_loss was entered %d time%s since the last step of %s, expected num_loss = %d', self._entered,
      self._entered == 1 and '' or 's', side.describe(self.optimizer), n)
  end
  self.optimizer:step()
  self._entered = 0
  return self
end

-- Chainable methods give the wrapper back.
local function forward(name)
  return function(self, ...)
    local result = self.optimizer[name](self.optimizer, ...)
    if result == self.optimizer then return self end
    return result
  end
end
for _, name in ipairs { 'zero_grad', 'clear_grad', 'add_param_group', 'state_dict', 'load_state_dict', 'has_grads', 'describe' } do
  Wrapper[name] = forward(name)
end

local mt = {
  __index = function(self, k)
    local v = Wrapper[k]
    if v ~= nil then return v end
    if own[k] then return nil end
    return self.optimizer[k]
  end,
  __newindex = function(self, k, v)
    if own[k] then rawset(self, k, v) else self.optimizer[k] = v end
  end,
  __tostring = function(self) return ('amp wrapper of %d losses around %s'):format(#self._scalers, tostring(self.optimizer)) end,
}

require('amp.core.class').guard(Wrapper, 'wrap_optimizer', 'opt', mt)

return function(handle, optimizer, scalers)
  return setmetatable({ optimizer = optimizer, _handle_ = handle, _scalers = scalers, _entered = 0 }, mt)
end

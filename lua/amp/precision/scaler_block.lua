--- GradScaler as blocks use it (amp.scale_loss): what a block's backward left is unscaled and
-- the scale updated when the block ends, not when an optimizer steps. One overflow holds back
-- the next step of every optimizer that was named, whichever parameters it is in.
-- Called once by amp.scaler with the class and its inner functions.
-- @module amp.precision.scaler_block
local err = require 'amp.error'
local util = require 'amp.util'

return function(Scaler, I)
  --- End a block: unscale the gradients of optimizers, hold back their next steps if an overflow
  -- is found, update the scale. Nothing waits.
  -- @tparam table opts optimizers
  -- @tparam function hold (optimizer, check) makes its next step look at the check
  -- @return self
  function Scaler:end_block(opts, hold)
    if type(opts) ~= 'table' then err.throw('GradScaler.end_block', 'takes a list of optimizers, got %s', util.show(opts)) end
    if not self._o.enabled then return self end
    local ok, message = pcall(function() -- an error or an interrupt, wherever it comes: the next block starts afresh
      for i = 1, #opts do self:unscale_(opts[i]) end
      local checks = self:_checks()
      for i = 1, #opts do
        for k = 1, #checks do hold(opts[i], checks[k]) end
      end
      self:update()
    end)
    if ok then return self end
    I.reset(self)
    error(message, 0)
  end

  --- Whether an optimizer's gradients were unscaled since the last update.
  function Scaler:is_unscaled(opt)
    local s = self._states[opt]
    return s ~= nil and s.stage == 'unscaled'
  end

  --- Go on from a scale and a count of clean updates.
  -- @return self
  function Scaler:resume(scale, tracker)
    local state = self:state_dict()
    state.scale, state.growth_tracker, state.hysteresis_left = scale, tracker, nil
    return self:load_state_dict(state)
  end
end

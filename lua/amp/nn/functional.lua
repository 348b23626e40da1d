--- amp.nn.functional: the same functions as amp.*, under the name PyTorch users know.
--
-- A look-up goes to amp each time, so a function registered or replaced there is
-- seen here; one set here (amp.register_half_function(F, 'name')) stays here.
local amp = require 'amp'
local util = require 'amp.util'

local M = {}

local names = { -- PyTorch's spelling -> amp's
  binary_cross_entropy_with_logits = 'bce_with_logits', logsigmoid = 'log_sigmoid', unfold = 'im2col', fold = 'col2im',
}

return setmetatable(M, {__index = function(_, key)
  local f = amp[names[key] or key]
  if f == nil then
    require('amp.error').throw('nn.functional', "no function '%s'%s", tostring(key), util.hint(key, util.keys(amp)))
  end
  return f
end})

--- nn.PReLU: leaky_relu with learnt slopes.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'

local PReLU = Module:extend 'nn.PReLU'

--- nn.PReLU(num_parameters = 1, {init = 0.25}): one slope, or one a channel (dimension 2).
-- Parameter: weight (num_parameters).
-- @usage local act = amp.nn.PReLU(16) local y = act(amp.randn(2, 16, 8, 8))
function PReLU:init(...)
  local s = options.arguments(self.__name, {'num_parameters', 'init'}, 0, {num_parameters = 1, init = 0.25}, ...)
  self.num_parameters = options.integer(self.__name, 'num_parameters', s.num_parameters, 1)
  options.number(self.__name, 'init', s.init)
  self:register_parameter('weight', amp.full({s.num_parameters}, s.init))
end

function PReLU:forward(x) return amp.prelu(x, self.weight) end

function PReLU:extra_repr() return 'num_parameters ' .. self.num_parameters end

return PReLU

--- nn.Dropout: in training, zeros elements with probability p and scales the rest.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'

local dropout = amp.dropout
local Dropout = Module:extend('nn.Dropout')

--- Make a layer.
-- @tparam ?number p probability of a zero, default 0.5
function Dropout:init(...)
  self.p = options.number('nn.Dropout', 'p', options.arguments('nn.Dropout', {'p'}, 0, {p = 0.5}, ...).p, 0, 1)
end

function Dropout:forward(x)
  if not self.training or self.p == 0 then return x end
  return (dropout(x, self.p, true))
end
Dropout.transient = Dropout.forward

function Dropout:extra_repr() return tostring(self.p) end

return Dropout

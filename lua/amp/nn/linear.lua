--- nn.Linear: y = x W^T + b.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local initializers = require 'amp.nn.initializers'

local linear = amp.linear
local Linear = Module:extend('nn.Linear')

local names = {'in_features', 'out_features', 'bias'}

--- Make a layer.
-- @tparam number in_features
-- @tparam number out_features
-- @tparam ?boolean|table bias default true; or options {bias}
-- @usage nn.Linear(784, 10)
function Linear:init(...)
  local o = options.arguments('nn.Linear', names, 2, {bias = true}, ...)
  self.in_features = options.integer('nn.Linear', 'in_features', o.in_features, 1)
  self.out_features = options.integer('nn.Linear', 'out_features', o.out_features, 1)
  options.boolean('nn.Linear', 'bias', o.bias)
  self:register_parameter('weight', amp.empty(o.out_features, o.in_features))
  if o.bias then self:register_parameter('bias', amp.empty(o.out_features)) end
  self:reset_parameters()
end

--- Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(in_features).
function Linear:reset_parameters() initializers.fan_in_(self.weight, self.bias) end

--- @tparam Tensor x ... x in_features
-- @treturn Tensor ... x out_features
function Linear:forward(x) return linear(x, self.weight, self.bias) end
Linear.transient = Linear.forward -- keeps no handle, see sequential.lua

function Linear:extra_repr()
  return string.format('%d -> %d%s', self.in_features, self.out_features, self.bias and '' or ', no bias')
end

return Linear

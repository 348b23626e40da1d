--- nn.Bilinear: y[k] = x1^T W[k] x2 + b[k].
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local initializers = require 'amp.nn.initializers'

local bilinear = amp.bilinear
local Bilinear = Module:extend('nn.Bilinear')

local names = {'in1_features', 'in2_features', 'out_features', 'bias'}

--- Make a layer.
-- @tparam number in1_features
-- @tparam number in2_features
-- @tparam number out_features
-- @tparam ?boolean|table bias default true; or options {bias}
-- @usage nn.Bilinear(20, 30, 40)
function Bilinear:init(...)
  local op = 'nn.Bilinear'
  local o = options.arguments(op, names, 3, {bias = true}, ...)
  for i = 1, 3 do self[names[i]] = options.integer(op, names[i], o[names[i]], 1) end
  options.boolean(op, 'bias', o.bias)
  self:register_parameter('weight', amp.empty(o.out_features, o.in1_features, o.in2_features))
  if o.bias then self:register_parameter('bias', amp.empty(o.out_features)) end
  self:reset_parameters()
end

--- Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(in1_features).
function Bilinear:reset_parameters()
  local bound = 1 / math.sqrt(self.in1_features)
  initializers.uniform_(self.weight, -bound, bound)
  if self.bias then initializers.uniform_(self.bias, -bound, bound) end
end

--- @tparam Tensor x1 ... x in1_features
-- @tparam Tensor x2 ... x in2_features
-- @treturn Tensor ... x out_features
function Bilinear:forward(x1, x2) return bilinear(x1, x2, self.weight, self.bias) end

function Bilinear:extra_repr()
  return string.format('%d, %d -> %d%s', self.in1_features, self.in2_features, self.out_features, self.bias and '' or ', no bias')
end

return Bilinear

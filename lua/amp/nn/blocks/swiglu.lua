--- nn.SwiGLU: the gated feed-forward network of Llama (Shazeer, 2020): down(silu(gate(x)) * up(x)).
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local Linear = require 'amp.nn.linear'
local amp = require 'amp'

local SwiGLU = Module:extend('nn.SwiGLU')

--- Make it; its layers are gate_proj, up_proj and down_proj.
-- @tparam number in_features
-- @tparam ?number hidden_features 8 / 3 of in_features, rounded up to a multiple of 8
-- @tparam ?table given out_features (in_features), bias (false)
-- @usage nn.SwiGLU(512, 1376)
function SwiGLU:init(...)
  local op = self.__name
  local o = options.arguments(op, {'in_features', 'hidden_features', 'out_features', 'bias'}, 1, {bias = false}, ...)
  local n = options.integer(op, 'in_features', o.in_features, 1)
  local hidden = options.integer(op, 'hidden_features', o.hidden_features or math.ceil(n * 8 / 3 / 8) * 8, 1)
  options.boolean(op, 'bias', o.bias)
  self.gate_proj = Linear(n, hidden, o.bias)
  self.up_proj = Linear(n, hidden, o.bias)
  self.down_proj = Linear(hidden, options.integer(op, 'out_features', o.out_features or n, 1), o.bias)
end

--- @tparam Tensor x ... x in_features
-- @treturn Tensor ... x out_features
function SwiGLU:forward(x) return self.down_proj(amp.silu(self.gate_proj(x)) * self.up_proj(x)) end

return SwiGLU

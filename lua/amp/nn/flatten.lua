--- nn.Flatten(start_dim = 2, end_dim = -1): joins dimensions, by default all but the first.
local flatten = require('amp').flatten
local options = require 'amp.options'
local Module = require 'amp.nn.module'

local Flatten = Module:extend('nn.Flatten')

function Flatten:init(...)
  local o = options.arguments('nn.Flatten', {'start_dim', 'end_dim'}, 0, {start_dim = 2, end_dim = -1}, ...)
  for _, name in ipairs {'start_dim', 'end_dim'} do
    self[name] = options.integer('nn.Flatten', name, o[name])
  end
end

--- @tparam Tensor x N x ...
-- @treturn Tensor N x the product of the rest
function Flatten:forward(x) return (flatten(x, self.start_dim, self.end_dim)) end
Flatten.transient = Flatten.forward

return Flatten

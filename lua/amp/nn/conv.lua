--- nn.Conv2d: cross-correlation of N x C x H x W data.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local initializers = require 'amp.nn.initializers'
local raise = require('amp.error').throw

local conv2d = amp.conv2d
local Conv2d = Module:extend('nn.Conv2d')

local names = {'in_channels', 'out_channels', 'kernel_size', 'stride', 'padding', 'dilation', 'groups', 'bias'}
local defaults = {stride = 1, padding = 0, dilation = 1, groups = 1, bias = true}

--- Make a layer. Arguments by position or, from the fourth on, as options.
-- @tparam number in_channels
-- @tparam number out_channels
-- @tparam number|table kernel_size one number or {height, width}
-- @tparam ?table options stride (1), padding (0), dilation (1): a number or {h, w};
-- groups (1); bias (true)
-- @usage nn.Conv2d(1, 16, 3, {padding = 1})
function Conv2d:init(...)
  local op = 'nn.Conv2d'
  local o = options.arguments(op, names, 3, defaults, ...)
  for _, name in ipairs {'in_channels', 'out_channels', 'groups'} do self[name] = options.integer(op, name, o[name], 1) end
  options.boolean(op, 'bias', o.bias)
  self.kernel_size = options.pair(op, 'kernel_size', o.kernel_size, 1)
  self.stride = options.pair(op, 'stride', o.stride, 1)
  self.padding = options.pair(op, 'padding', o.padding, 0)
  self.dilation = options.pair(op, 'dilation', o.dilation, 1)
  for _, name in ipairs {'in_channels', 'out_channels'} do
    if o[name] % o.groups ~= 0 then raise(op, '%s = %d is no multiple of groups = %d', name, o[name], o.groups) end
  end
  local k = self.kernel_size
  self:register_parameter('weight', amp.empty(o.out_channels, o.in_channels / o.groups, k[1], k[2]))
  if o.bias then self:register_parameter('bias', amp.empty(o.out_channels)) end
  self:reset_parameters()
end

--- Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(inputs of an output).
function Conv2d:reset_parameters() initializers.fan_in_(self.weight, self.bias) end

--- @tparam Tensor x N x in_channels x H x W
-- @treturn Tensor N x out_channels x H' x W'
function Conv2d:forward(x)
  return conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
end
Conv2d.transient = Conv2d.forward

function Conv2d:extra_repr()
  local parts = {string.format('%d -> %d, %s', self.in_channels, self.out_channels, options.show_pair(self.kernel_size))}
  for _, name in ipairs {'stride', 'padding', 'dilation'} do
    local p, usual = self[name], defaults[name]
    if p[1] ~= usual or p[2] ~= usual then parts[#parts + 1] = name .. ' ' .. options.show_pair(p) end
  end
  if self.groups > 1 then parts[#parts + 1] = 'groups ' .. self.groups end
  if not self.bias then parts[#parts + 1] = 'no bias' end
  return table.concat(parts, ', ')
end

return Conv2d

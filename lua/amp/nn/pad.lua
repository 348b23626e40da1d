--- Padding layers: ZeroPad, ConstantPad, ReflectionPad, ReplicationPad, CircularPad in 1, 2 and 3 dimensions.
-- Data are N x C and 1, 2 or 3 dimensions more, or C and these.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'

local pad = amp.pad
local M = {}

local kinds = {ZeroPad = 'constant', ConstantPad = 'constant', ReflectionPad = 'reflect', ReplicationPad = 'replicate', CircularPad = 'circular'}

--- nn.ReflectionPad2d(padding), and so on; nn.ConstantPad2d(padding, value).
-- padding is an integer for all sides or a list of pairs (before, after), the last dimension first:
-- {left, right, top, bottom, front, back}. Negative ones take away.
-- @usage nn.ZeroPad2d(1); nn.ReflectionPad2d{1, 1, 2, 0}; nn.ConstantPad1d(2, 3.5)
for kind, mode in pairs(kinds) do
  for n = 1, 3 do
    local Class = Module:extend('nn.' .. kind .. n .. 'd')
    local valued = kind == 'ConstantPad'
    function Class:init(...)
      local o = options.arguments(self.__name, {'padding', valued and 'value' or nil}, valued and 2 or 1, {}, ...)
      self.padding = options.list(self.__name, 'padding', o.padding, 2 * n)
      if valued then self.value = options.number(self.__name, 'value', o.value) end
    end
    function Class:forward(x) return pad(x, self.padding, mode, self.value) end
    Class.transient = Class.forward
    function Class:extra_repr()
      return 'padding ' .. table.concat(self.padding, ' ') .. (valued and (', value %g'):format(self.value) or '')
    end
    M[kind .. n .. 'd'] = Class
  end
end

return M

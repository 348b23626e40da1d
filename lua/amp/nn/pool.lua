--- Pooling of N x C x H x W data: MaxPool2d and AvgPool2d.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'

local function define(name, op, extra, defaults)
  local Pool = Module:extend('nn.' .. name)
  local names = {'kernel_size', 'stride', 'padding', unpack(extra)}

  function Pool:init(...)
    local o = options.arguments(self.__name, names, 1, defaults, ...)
    self.kernel_size = options.pair(self.__name, 'kernel_size', o.kernel_size, 1)
    self.stride = options.pair(self.__name, 'stride', o.stride or self.kernel_size, 1)
    self.padding = options.pair(self.__name, 'padding', o.padding, 0)
    for _, key in ipairs(extra) do
      self[key] = key == 'dilation' and options.pair(self.__name, key, o[key], 1) or options.boolean(self.__name, key, o[key])
    end
  end

  --- @tparam Tensor x N x C x H x W
  function Pool:forward(x)
    return (op(x, self.kernel_size, self.stride, self.padding, self[extra[1]], self[extra[2]]))
  end
  Pool.transient = Pool.forward

  function Pool:extra_repr()
    local text = options.show_pair(self.kernel_size)
    local k, s = self.kernel_size, self.stride
    if s[1] ~= k[1] or s[2] ~= k[2] then text = text .. ', stride ' .. options.show_pair(s) end
    if self.padding[1] + self.padding[2] > 0 then text = text .. ', padding ' .. options.show_pair(self.padding) end
    return text
  end

  return Pool
end

return {
  --- nn.MaxPool2d(kernel_size, {stride = kernel_size, padding = 0, dilation = 1, ceil_mode = false})
  MaxPool2d = define('MaxPool2d', amp.max_pool2d, {'dilation', 'ceil_mode'}, {padding = 0, dilation = 1, ceil_mode = false}),
  --- nn.AvgPool2d(kernel_size, {stride = kernel_size, padding = 0, ceil_mode = false, count_include_pad = true})
  AvgPool2d = define('AvgPool2d', amp.avg_pool2d,
    {'ceil_mode', 'count_include_pad'}, {padding = 0, ceil_mode = false, count_include_pad = true}),
}

--- Pooling in one, two and three dimensions: Max, Avg, LP, AdaptiveMax, AdaptiveAvg, MaxUnpool.
-- Data are N x C x L, N x C x H x W or N x C x D x H x W, or one sample without N.
-- Sizes are an integer or a list of one for each dimension; arguments are PyTorch's, by
-- position or in a last table.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'

local M = {}

local function same(a, v)
  for i = 1, #a do
    if a[i] ~= (type(v) == 'table' and v[i] or v) then return false end
  end
  return true
end

local function show(list) return table.concat(list, 'x') end

-- Each argument's reading: of sizes with their least value, and of flags.
local least = {kernel_size = 1, stride = 1, padding = 0, dilation = 1, output_size = 1}
local flag = {ceil_mode = true, count_include_pad = true, return_indices = true}
local plain = {padding = 0, dilation = 1} -- values not worth printing

-- A class of n dimensions: its arguments' names, how many are required, defaults, and its forward.
local function define(name, n, names, required, defaults, forward)
  local Pool = Module:extend('nn.' .. name .. n .. 'd')

  function Pool:init(...)
    local op = self.__name
    local o = options.arguments(op, names, required, defaults, ...)
    for _, key in ipairs(names) do
      local v = o[key]
      if key == 'stride' and v == nil then v = o.kernel_size end
      if least[key] then self[key] = options.list(op, key, v, n, least[key])
      elseif flag[key] then self[key] = options.boolean(op, key, v)
      elseif key == 'divisor_override' then self[key] = v and options.integer(op, key, v)
      else self[key] = options.number(op, key, v) end
    end
    if name == 'MaxUnpool' or self.return_indices then self.transient = false end -- two values go through
  end

  Pool.forward = forward
  Pool.transient = Pool.forward

  function Pool:extra_repr()
    local parts = {}
    if self.norm_type then parts[1] = ('norm_type %g'):format(self.norm_type) end
    parts[#parts + 1] = show(self.kernel_size or self.output_size)
    for _, key in ipairs {'stride', 'padding', 'dilation'} do
      local v = self[key]
      if v and not same(v, plain[key] or self.kernel_size) then parts[#parts + 1] = key .. ' ' .. show(v) end
    end
    for _, key in ipairs {'ceil_mode', 'return_indices'} do
      if self[key] then parts[#parts + 1] = key .. ' true' end
    end
    if self.count_include_pad == false then parts[#parts + 1] = 'count_include_pad false' end
    if self.divisor_override then parts[#parts + 1] = 'divisor_override ' .. self.divisor_override end
    return table.concat(parts, ', ')
  end

  M[name .. n .. 'd'] = Pool
end

for n = 1, 3 do
  local function op(name) return amp[name .. n .. 'd'] end
  local max, avg, lp, unpool = op 'max_pool', op 'avg_pool', op 'lp_pool', op 'max_unpool'
  local adaptive_max, adaptive_avg = op 'adaptive_max_pool', op 'adaptive_avg_pool'

  --- nn.MaxPool2d(kernel_size, {stride = kernel_size, padding = 0, dilation = 1, return_indices = false, ceil_mode = false})
  -- @usage nn.MaxPool2d(2); nn.MaxPool2d(3, {stride = 2, padding = 1})
  define('MaxPool', n, {'kernel_size', 'stride', 'padding', 'dilation', 'return_indices', 'ceil_mode'}, 1,
    {padding = 0, dilation = 1, return_indices = false, ceil_mode = false},
    function(self, x) return max(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices) end)

  --- nn.AvgPool2d(kernel_size, {stride = kernel_size, padding = 0, ceil_mode = false, count_include_pad = true, divisor_override})
  -- (AvgPool1d has no divisor_override).
  local names = {'kernel_size', 'stride', 'padding', 'ceil_mode', 'count_include_pad', n > 1 and 'divisor_override' or nil}
  define('AvgPool', n, names, 1, {padding = 0, ceil_mode = false, count_include_pad = true},
    function(self, x) return avg(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override) end)

  --- nn.LPPool2d(norm_type, kernel_size, {stride = kernel_size, ceil_mode = false})
  define('LPPool', n, {'norm_type', 'kernel_size', 'stride', 'ceil_mode'}, 2, {ceil_mode = false},
    function(self, x) return lp(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode) end)

  --- nn.AdaptiveMaxPool2d(output_size, {return_indices = false})
  define('AdaptiveMaxPool', n, {'output_size', 'return_indices'}, 1, {return_indices = false},
    function(self, x) return adaptive_max(x, self.output_size, self.return_indices) end)

  --- nn.AdaptiveAvgPool2d(output_size)
  define('AdaptiveAvgPool', n, {'output_size'}, 1, {}, function(self, x) return adaptive_avg(x, self.output_size) end)

  --- nn.MaxUnpool2d(kernel_size, {stride = kernel_size, padding = 0}), called with values, indices (from 1) and maybe the
  -- size of the result.
  -- @usage local y, at = nn.MaxPool2d(2, {return_indices = true})(x)
  -- local z = nn.MaxUnpool2d(2)(y, at, {5, 7})
  define('MaxUnpool', n, {'kernel_size', 'stride', 'padding'}, 1, {padding = 0},
    function(self, x, indices, output_size) return unpool(x, indices, self.kernel_size, self.stride, self.padding, output_size) end)
end

return M

--- Convolution layers: Conv1d, Conv2d, Conv3d and ConvTranspose1d, ConvTranspose2d, ConvTranspose3d.
-- Data are N x C and 1, 2 or 3 dimensions more; or a single sample, without N.
local amp = require 'amp'
local options = require 'amp.options'
local schema = require 'amp.ops.schema'
local util = require 'amp.util'
local Module = require 'amp.nn.module'
local initializers = require 'amp.nn.initializers'
local raise = require('amp.error').throw

local pad = amp.pad
local M = {}

-- padding_mode -> mode of amp.pad: its own words, but for the constant, which is 0 here
local modes, mode_list = {}, {}
for i, mode in ipairs((schema.words('pad', 'mode'))) do
  mode_list[i] = mode == 'constant' and 'zeros' or mode
  modes[mode_list[i]] = mode
end

local function show(list) return table.concat(list, 'x') end

-- What both kinds share: names that are counts, lists of n; the parameters. The weight is first x second / groups x kernel_size.
local function setup(self, n, o, lists, first, second)
  local op = self.__name
  for _, name in ipairs {'in_channels', 'out_channels', 'groups'} do self[name] = options.integer(op, name, o[name], 1) end
  options.boolean(op, 'bias', o.bias)
  for name, low in pairs(lists) do self[name] = options.list(op, name, o[name], n, low) end
  if modes[o.padding_mode] == nil then
    raise(op, string.format("padding_mode must be one of '%s', got %s%s", table.concat(mode_list, "', '"), util.show(o.padding_mode),
      util.hint(o.padding_mode, mode_list)))
  end
  self.padding_mode = o.padding_mode
  for _, name in ipairs {'in_channels', 'out_channels'} do
    if o[name] % o.groups ~= 0 then raise(op, string.format('%s = %d is no multiple of groups = %d', name, o[name], o.groups)) end
  end
  self:register_parameter('weight', amp.empty(o[first], o[second] / o.groups, unpack(self.kernel_size)))
  if o.bias then self:register_parameter('bias', amp.empty(o.out_channels)) end
  self:reset_parameters()
end

-- "1 -> 16, 3x3, padding 1x1": options that are not the usual ones
local function repr(self, lists)
  local parts = {string.format('%d -> %d, %s', self.in_channels, self.out_channels, show(self.kernel_size))}
  for _, one in ipairs(lists) do
    local name, usual = one[1], one[2]
    local v, differs = self[name], false
    if type(v) == 'string' then parts[#parts + 1] = name .. ' ' .. v
    else
      for i = 1, #v do differs = differs or v[i] ~= usual end
      if differs then parts[#parts + 1] = name .. ' ' .. show(v) end
    end
  end
  if self.groups > 1 then parts[#parts + 1] = 'groups ' .. self.groups end
  if not self.bias then parts[#parts + 1] = 'no bias' end
  if self.padding_mode ~= 'zeros' then parts[#parts + 1] = 'padding_mode ' .. self.padding_mode end
  return table.concat(parts, ', ')
end

-- Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(inputs of an output).
local function reset_parameters(self) initializers.fan_in_(self.weight, self.bias) end

-- -- Convolutions -----------------------------------------------------------------

local names = {'in_channels', 'out_channels', 'kernel_size', 'stride', 'padding', 'dilation', 'groups', 'bias', 'padding_mode'}
local defaults = {stride = 1, padding = 0, dilation = 1, groups = 1, bias = true, padding_mode = 'zeros'}
local shown = {{'stride', 1}, {'padding', 0}, {'dilation', 1}}

local function define(n)
  local Conv = Module:extend(('nn.Conv%dd'):format(n))
  local conv = amp[('conv%dd'):format(n)]

  --- nn.Conv2d(in_channels, out_channels, kernel_size, {stride = 1, padding = 0, dilation = 1, groups = 1,
  -- bias = true, padding_mode = 'zeros'}), by position or, from the fourth on, as options.
  -- kernel_size, stride, padding, dilation: a number or a list of one for each spatial dimension; padding also
  -- 'same' (the output keeps the input's size) or 'valid' (none). padding_mode: zeros reflect replicate circular.
  -- @usage nn.Conv2d(1, 16, 3, {padding = 1})
  function Conv:init(...)
    local op = self.__name
    local o = options.arguments(op, names, 3, defaults, ...)
    local lists = {kernel_size = 1, stride = 1, dilation = 1, padding = 0}
    if type(o.padding) == 'string' then
      if o.padding ~= 'same' and o.padding ~= 'valid' then
        raise(op, string.format("padding must be numbers, 'same' or 'valid', got '%s'%s", o.padding, util.hint(o.padding, {'same', 'valid'})))
      end
      lists.padding = nil
      self.padding = o.padding
    end
    setup(self, n, o, lists, 'out_channels', 'in_channels')
    for i = 1, n do
      if o.padding == 'same' and self.stride[i] ~= 1 then raise(op, "padding 'same' is for a stride of 1, got " .. show(self.stride)) end
    end
    if self.padding_mode == 'zeros' then return end
    -- pairs (before, after), the last dimension first
    self.around = {}
    for i = 1, n do
      local total = self.dilation[i] * (self.kernel_size[i] - 1)
      local before = type(self.padding) == 'table' and self.padding[i] or self.padding == 'same' and math.floor(total / 2) or 0
      local at = 2 * (n - i)
      self.around[at + 1], self.around[at + 2] = before, self.padding == 'same' and total - before or before
    end
  end

  Conv.reset_parameters = reset_parameters

  --- @tparam Tensor x N x in_channels x ..., or a sample without N
  -- @treturn Tensor N x out_channels x ...
  function Conv:forward(x)
    if self.padding_mode ~= 'zeros' then
      return conv(pad(x, self.around, modes[self.padding_mode]), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
    end
    return conv(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
  end
  Conv.transient = Conv.forward

  function Conv:extra_repr() return repr(self, shown) end

  return Conv
end

-- -- Transposed ones ----------------------------------------------------------------

local turned_names = {'in_channels', 'out_channels', 'kernel_size', 'stride', 'padding', 'output_padding', 'groups', 'bias',
  'dilation', 'padding_mode'}
local turned_defaults = {stride = 1, padding = 0, output_padding = 0, dilation = 1, groups = 1, bias = true, padding_mode = 'zeros'}
local turned_shown = {{'stride', 1}, {'padding', 0}, {'output_padding', 0}, {'dilation', 1}}

local function define_turned(n)
  local Conv = Module:extend(('nn.ConvTranspose%dd'):format(n))
  local conv = amp[('conv_transpose%dd'):format(n)]

  --- nn.ConvTranspose2d(in_channels, out_channels, kernel_size, {stride = 1, padding = 0, output_padding = 0,
  -- groups = 1, bias = true, dilation = 1}): the gradient of a convolution in its input, as a layer.
  -- @usage nn.ConvTranspose2d(16, 8, 4, {stride = 2, padding = 1}) -- twice the size
  function Conv:init(...)
    local op = self.__name
    local o = options.arguments(op, turned_names, 3, turned_defaults, ...)
    if o.padding_mode ~= 'zeros' then raise(op, "padding_mode must be 'zeros', got " .. util.show(o.padding_mode)) end
    setup(self, n, o, {kernel_size = 1, stride = 1, dilation = 1, padding = 0, output_padding = 0}, 'in_channels', 'out_channels')
    for i = 1, n do
      local most = math.max(self.stride[i], self.dilation[i])
      if self.output_padding[i] >= most then
        raise(op, string.format('output_padding %d must be less than stride %d or dilation %d', self.output_padding[i], self.stride[i], self.dilation[i]))
      end
    end
  end

  Conv.reset_parameters = reset_parameters

  -- What output_padding must be for the spatial sizes that are asked for
  local function padding_for(self, x, output_size)
    local op, rank = self.__name, x:dim()
    if type(output_size) == 'number' then output_size = options.list(op, 'output_size', output_size, n, 1) end
    if type(output_size) ~= 'table' or (#output_size ~= n and #output_size ~= rank) then
      raise(op, string.format('output_size must have %d values, or the %d of a whole shape, got %s', n, rank,
        type(output_size) == 'table' and 'a list of ' .. #output_size or util.show(output_size)))
    end
    local list, skip = {}, #output_size - n
    for i = 1, n do
      local want = options.integer(op, 'output_size', output_size[skip + i], 1)
      local least = (x:size(rank - n + i) - 1) * self.stride[i] - 2 * self.padding[i] + self.dilation[i] * (self.kernel_size[i] - 1) + 1
      local most = least + math.max(self.stride[i], self.dilation[i]) - 1
      list[i] = want - least
      if want < least or want > most then
        raise(op, string.format('output_size %d is not possible for an input of %s: from %d to %d are', want, tostring(x:size()), least, most))
      end
    end
    return list
  end

  --- @tparam Tensor x N x in_channels x ..., or a sample without N
  -- @tparam ?table output_size spatial sizes of the result (or its whole shape), where stride leaves a choice;
  -- instead of output_padding
  -- @treturn Tensor N x out_channels x ...
  function Conv:forward(x, output_size)
    local rest = self.output_padding
    if output_size ~= nil then
      if x:dim() ~= n + 1 and x:dim() ~= n + 2 then rest = 0 else rest = padding_for(self, x, output_size) end
    end
    return conv(x, self.weight, self.bias, self.stride, self.padding, rest, self.groups, self.dilation)
  end
  Conv.transient = Conv.forward

  function Conv:extra_repr() return repr(self, turned_shown) end

  return Conv
end

for n = 1, 3 do
  M[('Conv%dd'):format(n)] = define(n)
  M[('ConvTranspose%dd'):format(n)] = define_turned(n)
end

return M

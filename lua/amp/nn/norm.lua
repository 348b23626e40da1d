--- Normalisation: BatchNorm1d, BatchNorm2d, LayerNorm.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw

local batch_norm, layer_norm = amp.batch_norm, amp.layer_norm

-- -- Batch norm -------------------------------------------------------------

local BatchNorm = Module:extend('nn.BatchNorm')
local names = {'num_features', 'eps', 'momentum', 'affine', 'track_running_stats'}
local defaults = {eps = 1e-5, momentum = 0.1, affine = true, track_running_stats = true}

--- nn.BatchNorm2d(num_features, {eps = 1e-5, momentum = 0.1, affine = true, track_running_stats = true})
-- In training each channel is normalised by the batch's mean and variance, which
-- also move the running ones by `momentum`; in evaluation by the running ones.
function BatchNorm:init(...)
  local o = options.arguments(self.__name, names, 1, defaults, ...)
  self.num_features = options.integer(self.__name, 'num_features', o.num_features, 1)
  self.eps = options.number(self.__name, 'eps', o.eps, 0)
  self.momentum = options.number(self.__name, 'momentum', o.momentum)
  for _, name in ipairs {'affine', 'track_running_stats'} do options.boolean(self.__name, name, o[name]) end
  if o.affine then
    self:register_parameter('weight', amp.ones(o.num_features))
    self:register_parameter('bias', amp.zeros(o.num_features))
  end
  if o.track_running_stats then
    self:register_buffer('running_mean', amp.zeros(o.num_features))
    self:register_buffer('running_var', amp.ones(o.num_features))
    self:register_buffer('num_batches_tracked', amp.zeros({}, {dtype = 'int64'}))
  end
end

local function check_dims(self, x)
  local d = x:dim()
  if not self.dims[d] then raise(self.__name, '%s expected, got shape %s', self.expected, tostring(x:size())) end
  if x:size(2) ~= self.num_features then
    raise(self.__name, '%d channels (dimension 2) expected, got %d in shape %s', self.num_features, x:size(2), tostring(x:size()))
  end
end

--- @tparam Tensor x N x C x ...
-- @treturn Tensor of x's shape and dtype
function BatchNorm:forward(x)
  check_dims(self, x)
  local mean, var = self.running_mean, self.running_var
  local by_batch = self.training or not mean
  local y = batch_norm(x, mean, var, self.weight, self.bias, by_batch, self.momentum, self.eps)
  if self.training and mean then self.num_batches_tracked:add_(1) end -- after: what fails counts no batch
  return y
end
BatchNorm.transient = BatchNorm.forward

function BatchNorm:extra_repr() return tostring(self.num_features) end

local BatchNorm2d = BatchNorm:extend('nn.BatchNorm2d')
BatchNorm2d.dims, BatchNorm2d.expected = {[4] = true}, 'N x C x H x W'

local BatchNorm1d = BatchNorm:extend('nn.BatchNorm1d')
BatchNorm1d.dims, BatchNorm1d.expected = {[2] = true, [3] = true}, 'N x C or N x C x L'

-- -- Layer norm -------------------------------------------------------------

local LayerNorm = Module:extend('nn.LayerNorm')

--- nn.LayerNorm(shape, {eps = 1e-5, elementwise_affine = true, bias = true})
-- @tparam number|table shape sizes of the last dimensions to normalise over
function LayerNorm:init(shape, ...)
  local op = 'nn.LayerNorm'
  if type(shape) == 'number' then shape = {shape} end
  if type(shape) ~= 'table' or #shape == 0 then raise(op, 'a size or a list of sizes expected, got %s', type(shape)) end
  for i, n in ipairs(shape) do options.integer(op, 'size ' .. i, n, 1) end
  local o = options.arguments(op, {'eps', 'elementwise_affine', 'bias'}, 0,
    {eps = 1e-5, elementwise_affine = true, bias = true}, ...)
  for _, name in ipairs {'elementwise_affine', 'bias'} do options.boolean(op, name, o[name]) end
  self.shape, self.eps = {unpack(shape)}, options.number(op, 'eps', o.eps, 0)
  if o.elementwise_affine then
    self:register_parameter('weight', amp.ones(shape))
    if o.bias then self:register_parameter('bias', amp.zeros(shape)) end
  end
end

--- @tparam Tensor x ... x shape
function LayerNorm:forward(x) return (layer_norm(x, self.shape, self.weight, self.bias, self.eps)) end
LayerNorm.transient = LayerNorm.forward

function LayerNorm:extra_repr() return table.concat(self.shape, 'x') end

return {BatchNorm1d = BatchNorm1d, BatchNorm2d = BatchNorm2d, LayerNorm = LayerNorm}

--- Normalisation of channels: BatchNorm1d/2d/3d, SyncBatchNorm, InstanceNorm (any rank), InstanceNorm1d/2d/3d.
-- Those over the last dimensions or groups of channels are in nn/layernorm.lua.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw
local call = require 'amp.core.call'
local core = require 'amp.ffi'
local ops = require 'amp.ops'
local C, S, ref_t = core.C, core.S, core.ref_t
local release = C.amp_release
local as_built = require('amp.precision.policy').as_built
local lasting = require('amp.core.scope').lasting
local util = require 'amp.util'
local istype = require('ffi').istype

local batch_norm, sync_batch_norm, instance_norm = amp.batch_norm, amp.sync_batch_norm, amp.instance_norm

local names = {'num_features', 'eps', 'momentum', 'affine', 'track_running_stats', 'bias'}
local usual = {eps = 1e-5, momentum = 0.1}

-- What all of them are made of
local Norm = Module:extend('nn.Norm')

local function make(self, defaults, ...)
  local op = self.__name
  local o = options.arguments(op, names, 1, defaults, ...)
  self.num_features = options.integer(op, 'num_features', o.num_features, 1)
  self.eps = options.number(op, 'eps', o.eps, 0)
  -- false: the running statistics are plain averages of all batches so far
  self.momentum = o.momentum ~= false and options.number(op, 'momentum', o.momentum)
  for _, name in ipairs {'affine', 'track_running_stats', 'bias'} do options.boolean(op, name, o[name]) end
  if o.affine then
    self:register_parameter('weight', amp.ones(o.num_features))
    if o.bias then self:register_parameter('bias', amp.zeros(o.num_features)) end
  end
  if o.track_running_stats then
    self:register_buffer('running_mean', amp.zeros(o.num_features))
    self:register_buffer('running_var', amp.ones(o.num_features))
    self:register_buffer('num_batches_tracked', amp.zeros({}, {dtype = 'int64'}))
  end
end

--- Running statistics as they were at first.
function Norm:reset_running_stats()
  if self.running_mean then
    self.running_mean:zero_()
    self.running_var:fill_(1)
    self.num_batches_tracked:zero_()
  end
end

--- Parameters and running statistics as they were at first.
function Norm:reset_parameters()
  self:reset_running_stats()
  if self.weight then
    amp.no_grad(function()
      self.weight:fill_(1)
      if self.bias then self.bias:zero_() end
    end)
  end
end

local function check_tensor(self, x)
  if not istype(ref_t, x) then raise(self.__name, 'a tensor expected, got %s', util.show(x)) end
end

-- dim: which dimension the channels are
local function check_dims(self, x, dim)
  check_tensor(self, x)
  if not self.dims[x:dim()] then raise(self.__name, '%s expected, got shape %s', self.expected, tostring(x:size())) end
  if x:size(dim) ~= self.num_features then
    raise(self.__name, '%d channels (dimension %d) expected, got %d in shape %s', self.num_features, dim, x:size(dim), tostring(x:size()))
  end
end

-- momentum of the batch that comes
local function momentum(self)
  return self.momentum or 1 / (self.num_batches_tracked:item() + 1)
end

function Norm:extra_repr()
  local parts = {tostring(self.num_features)}
  for _, name in ipairs {'eps', 'momentum'} do
    if self[name] ~= usual[name] then parts[#parts + 1] = name .. ' ' .. tostring(self[name]) end
  end
  if self.usually_affine ~= (self.weight ~= nil) then parts[#parts + 1] = self.weight and 'affine' or 'not affine' end
  if self.usually_tracks ~= (self.running_mean ~= nil) then
    parts[#parts + 1] = self.running_mean and 'running statistics' or 'no running statistics'
  end
  return table.concat(parts, ', ')
end

-- -- Batch norm -------------------------------------------------------------

local BatchNorm = Norm:extend('nn.BatchNorm')
BatchNorm.usually_affine, BatchNorm.usually_tracks = true, true

--- nn.BatchNorm2d(num_features, {eps = 1e-5, momentum = 0.1, affine = true, track_running_stats = true, bias = true})
-- In training each channel is normalised by the batch's mean and variance, which
-- also move the running ones by `momentum`; in evaluation by the running ones.
-- With momentum = false the running ones are averages of all batches so far.
function BatchNorm:init(...)
  make(self, {eps = 1e-5, momentum = 0.1, affine = true, track_running_stats = true, bias = true}, ...)
end

-- For all counters: to count a batch takes no memory, so it can't fail when the statistics have moved. What a checkpoint
-- remembers of a counter does, and comes before.
local one

local function by_batch(self, x, op)
  check_dims(self, x, 2)
  local mean, var = self.running_mean, self.running_var
  local move = self.training and mean and momentum(self) or 0
  one = one or lasting(amp.tensor, 1, {dtype = 'int64', device = 'cpu'}) -- no op, as it would be a node of a graph's first recording
  local counts = self.training and mean
  if counts and C.amp_journal_note(S, self.num_batches_tracked) < 0 then
    call.try('batch_norm', C.amp_journal_note, S, self.num_batches_tracked)
  end
  local y = op(x, mean, var, self.weight, self.bias, self.training or not mean, move, self.eps)
  if counts then self.num_batches_tracked:add_(one) end -- after: what fails counts no batch
  return y
end

local batch_norm_act

-- On a GPU: row batch_norm_act, which also counts the batch
local function by_row(self, x, residual, relu)
  check_dims(self, x, 2)
  batch_norm_act = batch_norm_act or ops.get 'batch_norm_act'
  local mean = self.running_mean
  local counts = self.training and mean
  return (batch_norm_act(x, residual, mean, self.running_var, self.weight, self.bias, counts and self.num_batches_tracked or nil, relu,
    self.training or not mean, counts and momentum(self) or 0, self.eps))
end

local function on_device(x) return istype(ref_t, x) and x.ptr_ ~= nil and x.ptr_.device ~= 0 end

--- @tparam Tensor x N x C x ...
-- @treturn Tensor of x's shape and dtype
function BatchNorm:forward(x)
  if on_device(x) and as_built 'batch_norm' then return by_row(self, x, nil, false) end
  return by_batch(self, x, batch_norm)
end
BatchNorm.transient = BatchNorm.forward

-- May x (and the residual) go through the one op?
local function joins(self, x, residual)
  if not on_device(x) or self.transient ~= self.forward or Module.raw_key(self, '.hooks') then return false end
  if not as_built('batch_norm', 'relu', 'add') then return false end
  if residual == nil then return true end
  if not istype(ref_t, residual) or residual.ptr_ == nil then return false end
  local a, b = x.ptr_, residual.ptr_
  if a.device ~= b.device or a.device_index ~= b.device_index or a.dtype ~= b.dtype or a.ndim ~= b.ndim then return false end
  for d = 0, a.ndim - 1 do
    if a.size[d] ~= b.size[d] then return false end
  end
  return true
end

--- relu(self(x)), or relu(self(x) + residual): with their values and gradients. On a GPU it is one op, which spares the
-- trips to memory between them.
-- @tparam Tensor x N x C x ...
-- @tparam ?Tensor residual what is added before ReLU, broadcast as in `+`
-- @treturn Tensor
-- @usage function Block:forward(x) return self.bn2:forward_relu(self.conv2(self.bn1:forward_relu(self.conv1(x))), x) end
function BatchNorm:forward_relu(x, residual)
  if joins(self, x, residual) then return by_row(self, x, residual, true) end
  local y = self(x)
  if residual == nil then return (amp.relu(y)) end
  local sum = y + residual
  local result = amp.relu(sum)
  release(sum)
  return result
end

local BatchNorm1d = BatchNorm:extend('nn.BatchNorm1d')
BatchNorm1d.dims, BatchNorm1d.expected = {[2] = true, [3] = true}, 'N x C or N x C x L'

local BatchNorm2d = BatchNorm:extend('nn.BatchNorm2d')
BatchNorm2d.dims, BatchNorm2d.expected = {[4] = true}, 'N x C x H x W'

local BatchNorm3d = BatchNorm:extend('nn.BatchNorm3d')
BatchNorm3d.dims, BatchNorm3d.expected = {[5] = true}, 'N x C x D x H x W'

-- -- Batch norm of several processes ------------------------------------------

--- nn.SyncBatchNorm(num_features, ...): as BatchNorm2d, for data of any rank, the
-- statistics being those of the batches of all processes.
local SyncBatchNorm = BatchNorm:extend('nn.SyncBatchNorm')
SyncBatchNorm.dims = setmetatable({}, {__index = function(_, d) return d >= 2 end})
SyncBatchNorm.expected = 'N x C x ...'

-- The batch is part of a larger one, whose other parts are other ranks'.
local function parted(self)
  local dist = self.training and package.loaded['amp.distributed']
  return dist and dist._several()
end

function SyncBatchNorm:forward(x)
  if parted(self) then
    check_dims(self, x, 2)
    return require('amp.parallel.sync_batch_norm')(self, x, self.running_mean and momentum(self) or 0)
  end
  if on_device(x) and as_built 'sync_batch_norm' then return by_row(self, x, nil, false) end
  return by_batch(self, x, sync_batch_norm)
end
SyncBatchNorm.transient = SyncBatchNorm.forward

local function synced(m)
  local new = SyncBatchNorm(m.num_features, {eps = m.eps, momentum = m.momentum, affine = false, track_running_stats = false, bias = true})
  if m.weight then
    new:register_parameter('weight', m.weight)
    new:register_parameter('bias', m.bias)
  end
  for _, name in ipairs {'running_mean', 'running_var', 'num_batches_tracked'} do
    if m[name] then new:register_buffer(name, m[name]) end
  end
  new.training = m.training
  return new
end

--- A network with a SyncBatchNorm in place of each BatchNorm, with its parameters and
-- statistics (the same tensors). The network itself is changed and given back.
-- @tparam nn.Module net
-- @treturn nn.Module
-- @usage net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
function SyncBatchNorm.convert_sync_batchnorm(net)
  if not Module.is_module(net) then raise('nn.SyncBatchNorm.convert_sync_batchnorm', 'a module expected, got %s', util.kind(net)) end
  local seen = {}
  local function convert(m)
    if seen[m] then return seen[m] end
    seen[m] = m
    if m:is(BatchNorm) then
      if not m:is(SyncBatchNorm) then seen[m] = synced(m) end
      return seen[m]
    end
    local changed = {}
    for name, child in Module.parts(m, 'module') do changed[#changed + 1] = {name, convert(child)} end
    for _, c in ipairs(changed) do m[c[1]] = c[2] end
    return m
  end
  return convert(net)
end
SyncBatchNorm.convert = SyncBatchNorm.convert_sync_batchnorm

-- -- Instance norm --------------------------------------------------------------

local InstanceNorm = Norm:extend('nn.InstanceNorm')
InstanceNorm.usually_affine, InstanceNorm.usually_tracks = false, false
InstanceNorm.rank, InstanceNorm.dims = 0, setmetatable({}, {__index = function(_, d) return d >= 3 end})
InstanceNorm.expected = 'N x C x ... with data to normalise'

--- nn.InstanceNorm2d(num_features, {eps = 1e-5, momentum = 0.1, affine = false, track_running_stats = false})
-- Each channel of each sample is normalised by its own mean and variance; with
-- track_running_stats, in evaluation, by the running ones. A single sample may come without N, except
-- to nn.InstanceNorm, which takes data of any rank.
function InstanceNorm:init(...)
  make(self, {eps = 1e-5, momentum = 0.1, affine = false, track_running_stats = false, bias = true}, ...)
  if self.momentum == false then raise(self.__name, 'momentum must be a number, got false') end
end

--- @tparam Tensor x N x C x ..., or C x ...
-- @treturn Tensor of x's shape and dtype
function InstanceNorm:forward(x)
  check_tensor(self, x)
  local single = x:dim() == self.rank - 1
  check_dims(self, x, single and 1 or 2)
  if single then x = x:unsqueeze(1) end
  local mean, var = self.running_mean, self.running_var
  local y = instance_norm(x, mean, var, self.weight, self.bias, self.training or not mean, self.momentum, self.eps)
  if single then return (y:squeeze(1)) end
  return y
end

local function instance(class, rank, expected)
  local kind = InstanceNorm:extend(class)
  kind.rank, kind.dims, kind.expected = rank, {[rank] = true, [rank - 1] = true}, expected
  return kind
end

return {
  BatchNorm1d = BatchNorm1d, BatchNorm2d = BatchNorm2d, BatchNorm3d = BatchNorm3d, SyncBatchNorm = SyncBatchNorm,
  InstanceNorm = InstanceNorm,
  InstanceNorm1d = instance('nn.InstanceNorm1d', 3, 'N x C x L or C x L'),
  InstanceNorm2d = instance('nn.InstanceNorm2d', 4, 'N x C x H x W or C x H x W'),
  InstanceNorm3d = instance('nn.InstanceNorm3d', 5, 'N x C x D x H x W or C x D x H x W'),
}

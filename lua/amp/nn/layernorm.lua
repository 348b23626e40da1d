--- Normalisation within a sample: LayerNorm, RMSNorm, GroupNorm, LocalResponseNorm.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw
local ref_t = require('amp.ffi').ref_t
local istype = require('ffi').istype

local as_built = require('amp.precision.policy').as_built
local layer_norm, add_layer_norm, rms_norm = amp.layer_norm, amp.add_layer_norm, amp.rms_norm
local group_norm, local_response_norm = amp.group_norm, amp.local_response_norm

-- sizes of the last dimensions, as a list
local function sizes(op, shape)
  if type(shape) == 'number' then shape = {shape} end
  if type(shape) == 'table' then require('amp.error').list(op, shape, 'the sizes') end
  if type(shape) ~= 'table' or #shape == 0 then raise(op, 'a size or a list of sizes expected, got %s', require('amp.util').kind(shape)) end
  for i, n in ipairs(shape) do options.integer(op, 'size ' .. i, n, 1) end
  return {unpack(shape)}
end

-- -- Layer norm -------------------------------------------------------------

local LayerNorm = Module:extend('nn.LayerNorm')

--- nn.LayerNorm(shape, {eps = 1e-5, elementwise_affine = true, bias = true})
-- @tparam number|table shape sizes of the last dimensions to normalise over
function LayerNorm:init(shape, ...)
  local op = 'nn.LayerNorm'
  self.shape = sizes(op, shape)
  local o = options.arguments(op, {'eps', 'elementwise_affine', 'bias'}, 0,
    {eps = 1e-5, elementwise_affine = true, bias = true}, ...)
  for _, name in ipairs {'elementwise_affine', 'bias'} do options.boolean(op, name, o[name]) end
  self.eps = options.number(op, 'eps', o.eps, 0)
  if o.elementwise_affine then
    self:register_parameter('weight', amp.ones(self.shape))
    if o.bias then self:register_parameter('bias', amp.zeros(self.shape)) end
  end
end

--- @tparam Tensor x ... x shape
function LayerNorm:forward(x) return (layer_norm(x, self.shape, self.weight, self.bias, self.eps)) end
LayerNorm.transient = LayerNorm.forward

-- May x and the residual go through the one op? Without broadcasting, and where nothing of the module's call is changed.
local function joins(self, x, residual)
  if not as_built('layer_norm', 'add') then return false end
  if self.transient ~= self.forward or Module.raw_key(self, '.hooks') or not istype(ref_t, x) or not istype(ref_t, residual) then return false end
  local a, b = x.ptr_, residual.ptr_
  if a == nil or b == nil or a.device ~= b.device or a.device_index ~= b.device_index or a.ndim ~= b.ndim then return false end
  for d = 0, a.ndim - 1 do
    if a.size[d] ~= b.size[d] then return false end
  end
  return true
end

--- self(x + residual) and x + residual: what stands between two blocks of a network whose norms come first (pre-norm).
-- Values and gradients are those of the two ops, within a rounding for 16-bit inputs. It is one op: on a GPU the sum isn't read again for the norm, and in
-- backward one pass makes the gradients of x and of the residual, each in its dtype.
-- @tparam Tensor x ... x shape
-- @tparam Tensor residual what is added to x, broadcast as in `+`
-- @tparam ?string dtype of the first result, whose gradient then has it too: where a region's product alone uses that one,
-- the region's dtype saves the float32 values ('float8', of a region of 8 bits: its base). Rounded once, as a cast's result is.
-- @treturn Tensor the sum, normalised
-- @treturn Tensor x + residual
-- @usage local y, x = self.norm:forward_add(x, self.attention(y))
function LayerNorm:forward_add(x, residual, dtype)
  if dtype == 'float8' then dtype = require('amp.types').dtype_name[require('amp.precision.autocast').base_dtype(x.device)] end
  if joins(self, x, residual) then return add_layer_norm(x, residual, self.shape, self.weight, self.bias, self.eps, dtype) end
  local sum = x + residual
  local y = self(sum)
  if not dtype then return y, sum end
  y = y:to(dtype)
  if not y:is_floating_point() then raise('LayerNorm', 'dtype is %s, a float dtype is expected', dtype) end
  return y, sum
end

function LayerNorm:extra_repr() return table.concat(self.shape, 'x') end

-- -- Root mean square -----------------------------------------------------------

local RMSNorm = Module:extend('nn.RMSNorm')

--- nn.RMSNorm(shape, {eps = the dtype's last place, elementwise_affine = true})
-- @tparam number|table shape sizes of the last dimensions to normalise over
function RMSNorm:init(shape, ...)
  local op = 'nn.RMSNorm'
  self.shape = sizes(op, shape)
  local o = options.arguments(op, {'eps', 'elementwise_affine'}, 0, {elementwise_affine = true}, ...)
  options.boolean(op, 'elementwise_affine', o.elementwise_affine)
  self.eps = o.eps and options.number(op, 'eps', o.eps, 0)
  if o.elementwise_affine then self:register_parameter('weight', amp.ones(self.shape)) end
end

--- @tparam Tensor x ... x shape
function RMSNorm:forward(x) return (rms_norm(x, self.shape, self.weight, self.eps)) end
RMSNorm.transient = RMSNorm.forward

RMSNorm.extra_repr = LayerNorm.extra_repr

-- -- Groups of channels -----------------------------------------------------------

local GroupNorm = Module:extend('nn.GroupNorm')

--- nn.GroupNorm(num_groups, num_channels, {eps = 1e-5, affine = true, bias = true})
function GroupNorm:init(...)
  local op = 'nn.GroupNorm'
  local o = options.arguments(op, {'num_groups', 'num_channels', 'eps', 'affine', 'bias'}, 2, {eps = 1e-5, affine = true, bias = true}, ...)
  self.num_groups = options.integer(op, 'num_groups', o.num_groups, 1)
  self.num_channels = options.integer(op, 'num_channels', o.num_channels, 1)
  if o.num_channels % o.num_groups ~= 0 then
    raise(op, 'num_channels = %d is no multiple of num_groups = %d', o.num_channels, o.num_groups)
  end
  self.eps = options.number(op, 'eps', o.eps, 0)
  options.boolean(op, 'affine', o.affine)
  options.boolean(op, 'bias', o.bias)
  if o.affine then
    self:register_parameter('weight', amp.ones(o.num_channels))
    if o.bias then self:register_parameter('bias', amp.zeros(o.num_channels)) end
  end
end

--- @tparam Tensor x N x num_channels x ...
function GroupNorm:forward(x)
  if x:dim() < 2 or x:size(2) ~= self.num_channels then
    raise('nn.GroupNorm', 'N x %d x ... expected, got shape %s', self.num_channels, tostring(x:size()))
  end
  return (group_norm(x, self.num_groups, self.weight, self.bias, self.eps))
end
GroupNorm.transient = GroupNorm.forward

function GroupNorm:extra_repr() return self.num_groups .. ', ' .. self.num_channels end

-- -- Neighbouring channels ---------------------------------------------------------

local LocalResponseNorm = Module:extend('nn.LocalResponseNorm')

--- nn.LocalResponseNorm(size, {alpha = 1e-4, beta = 0.75, k = 1})
function LocalResponseNorm:init(...)
  local op = 'nn.LocalResponseNorm'
  local o = options.arguments(op, {'size', 'alpha', 'beta', 'k'}, 1, {alpha = 1e-4, beta = 0.75, k = 1}, ...)
  self.size = options.integer(op, 'size', o.size, 1)
  for _, name in ipairs {'alpha', 'beta', 'k'} do self[name] = options.number(op, name, o[name]) end
end

--- @tparam Tensor x N x C x ...
function LocalResponseNorm:forward(x) return local_response_norm(x, self.size, self.alpha, self.beta, self.k) end
LocalResponseNorm.transient = LocalResponseNorm.forward

function LocalResponseNorm:extra_repr()
  return string.format('%d, alpha %g, beta %g, k %g', self.size, self.alpha, self.beta, self.k)
end

return {LayerNorm = LayerNorm, RMSNorm = RMSNorm, GroupNorm = GroupNorm, LocalResponseNorm = LocalResponseNorm}

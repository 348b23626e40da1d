--- nn.MultiheadAttention: several heads attend side by side, between projections.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local Linear = require 'amp.nn.linear'
local initializers = require 'amp.nn.initializers'
local raise = require('amp.error').throw

local MultiheadAttention = Module:extend('nn.MultiheadAttention')

local names = {'embed_dim', 'num_heads', 'dropout', 'bias', 'add_bias_kv', 'add_zero_attn', 'kdim', 'vdim', 'batch_first'}
local defaults = {dropout = 0, bias = true, add_bias_kv = false, add_zero_attn = false, batch_first = false}

--- Make a layer.
-- @tparam number embed_dim size of queries and results
-- @tparam number num_heads divides embed_dim
-- @tparam ?table options dropout (0, on the weights), bias (true), add_bias_kv (false), add_zero_attn (false),
-- kdim and vdim (embed_dim: sizes of keys and values), batch_first (false)
-- @usage nn.MultiheadAttention(512, 8, {batch_first = true})
function MultiheadAttention:init(...)
  local op = self.__name
  local o = options.arguments(op, names, 2, defaults, ...)
  local size = options.integer(op, 'embed_dim', o.embed_dim, 1)
  self.embed_dim, self.num_heads = size, options.integer(op, 'num_heads', o.num_heads, 1)
  if size % o.num_heads ~= 0 then raise(op, 'embed_dim %d is not divisible by num_heads %d', size, o.num_heads) end
  self.kdim, self.vdim = options.integer(op, 'kdim', o.kdim or size, 1), options.integer(op, 'vdim', o.vdim or size, 1)
  self.dropout = options.number(op, 'dropout', o.dropout, 0, 1)
  for _, name in ipairs {'bias', 'add_bias_kv', 'add_zero_attn', 'batch_first'} do options.boolean(op, name, o[name]) end
  self.add_zero_attn, self.batch_first = o.add_zero_attn, o.batch_first
  if self.kdim == size and self.vdim == size then
    self:register_parameter('in_proj_weight', amp.empty(3 * size, size))
  else
    self:register_parameter('q_proj_weight', amp.empty(size, size))
    self:register_parameter('k_proj_weight', amp.empty(size, self.kdim))
    self:register_parameter('v_proj_weight', amp.empty(size, self.vdim))
  end
  if o.bias then self:register_parameter('in_proj_bias', amp.empty(3 * size)) end
  self.out_proj = Linear(size, size, o.bias)
  if o.add_bias_kv then
    self:register_parameter('bias_k', amp.empty(1, 1, size))
    self:register_parameter('bias_v', amp.empty(1, 1, size))
  end
  self:reset_parameters()
end

--- Draw the parameters anew, as PyTorch does: Glorot's uniform filling for projections, biases zero.
function MultiheadAttention:reset_parameters()
  for _, name in ipairs {'in_proj_weight', 'q_proj_weight', 'k_proj_weight', 'v_proj_weight'} do
    if self[name] then initializers.xavier_uniform_(self[name]) end
  end
  if self.in_proj_bias then
    initializers.zeros_(self.in_proj_bias)
    initializers.zeros_(self.out_proj.bias)
  end
  for _, name in ipairs {'bias_k', 'bias_v'} do
    if self[name] then initializers.xavier_normal_(self[name]) end
  end
end

local inputs = {'query', 'key', 'value', 'key_padding_mask', 'need_weights', 'attn_mask', 'average_attn_weights', 'is_causal'}
inputs.tensors = true
local usual = {need_weights = true, average_attn_weights = true, is_causal = false}

--- Attend. Masks: a bool is true where a key takes no part, a float is added to the scores.
-- @tparam Tensor query length x batch x embed_dim, or batch x length x embed_dim with `batch_first`; or without a batch
-- @tparam Tensor key keys' length x batch x kdim
-- @tparam Tensor value keys' length x batch x vdim
-- @tparam ?table options key_padding_mask (batch x keys), attn_mask (length x keys, or batch * heads x length x keys),
-- need_weights (true; false is faster and takes less memory), average_attn_weights (true), is_causal (false); or in
-- places as PyTorch has them
-- @treturn Tensor query's shape
-- @treturn ?Tensor weights, batch x length x keys, with `need_weights`
-- @usage local y = attention(x, x, x, {need_weights = false, is_causal = true})
function MultiheadAttention:forward(...)
  local o = options.arguments(self.__name, inputs, 3, usual, ...)
  return amp.multi_head_attention(o.query, o.key, o.value, self.num_heads, {
    in_proj_weight = self.in_proj_weight, q_proj_weight = self.q_proj_weight, k_proj_weight = self.k_proj_weight,
    v_proj_weight = self.v_proj_weight, in_proj_bias = self.in_proj_bias, bias_k = self.bias_k, bias_v = self.bias_v,
    out_proj_weight = self.out_proj.weight, out_proj_bias = self.out_proj.bias,
    attn_mask = o.attn_mask, key_padding_mask = o.key_padding_mask, add_zero_attn = self.add_zero_attn,
    dropout_p = self.dropout, training = self.training, need_weights = o.need_weights,
    average_attn_weights = o.average_attn_weights, is_causal = o.is_causal, batch_first = self.batch_first,
  })
end

function MultiheadAttention:extra_repr()
  local parts = {string.format('%d, %d heads', self.embed_dim, self.num_heads)}
  if self.kdim ~= self.embed_dim or self.vdim ~= self.embed_dim then parts[2] = string.format('keys %d, values %d', self.kdim, self.vdim) end
  if self.dropout > 0 then parts[#parts + 1] = 'dropout ' .. self.dropout end
  if self.batch_first then parts[#parts + 1] = 'batch first' end
  if not self.in_proj_bias then parts[#parts + 1] = 'no bias' end
  return table.concat(parts, ', ')
end

return MultiheadAttention

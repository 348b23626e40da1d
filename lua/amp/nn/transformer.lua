--- Transformer layers and stacks of them, as in "Attention Is All You Need" and PyTorch.
--
-- Data is length x batch x size, or batch x length x size with `batch_first`. Masks are those of
-- nn.MultiheadAttention: a bool is true where a key takes no part, a float is added to the scores.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local ModuleList = require 'amp.nn.container.modulelist'
local Linear = require 'amp.nn.linear'
local Dropout = require('amp.nn.dropout').Dropout
local MultiheadAttention = require 'amp.nn.attention'
local LayerNorm = require('amp.nn.layernorm').LayerNorm
local initializers = require 'amp.nn.initializers'
local copy = require 'amp.nn.core.copy'
local raise = require('amp.error').throw

-- -- What both layers share -------------------------------------------------------

local names = {'d_model', 'nhead', 'dim_feedforward', 'dropout', 'activation', 'layer_norm_eps', 'batch_first', 'norm_first', 'bias'}
local defaults = {dim_feedforward = 2048, dropout = 0.1, activation = 'relu', layer_norm_eps = 1e-5, batch_first = false, norm_first = false, bias = true}

local Layer = Module:extend('nn.TransformerLayer')

local function activation(op, f)
  if f == 'relu' or f == 'gelu' then return amp[f] end
  if type(f) == 'function' or Module.is_module(f) then return f end
  raise(op, "activation must be 'relu', 'gelu' or a function, got '%s'", tostring(f))
end

-- The parts, in PyTorch's order: attentions, the two linear layers, then norms.
function Layer:build(attentions, ...)
  local op = self.__name
  local o = options.arguments(op, names, 2, defaults, ...)
  for _, name in ipairs {'d_model', 'nhead', 'dim_feedforward'} do options.integer(op, name, o[name], 1) end
  options.number(op, 'layer_norm_eps', o.layer_norm_eps, 0)
  for _, name in ipairs {'batch_first', 'norm_first', 'bias'} do options.boolean(op, name, o[name]) end
  local p = options.number(op, 'dropout', o.dropout, 0, 1)
  local size = o.d_model
  if size % o.nhead ~= 0 then raise(op, 'd_model %d is not divisible by nhead %d', size, o.nhead) end
  for _, name in ipairs(attentions) do
    self[name] = MultiheadAttention(size, o.nhead, {dropout = p, bias = o.bias, batch_first = o.batch_first})
  end
  self.linear1 = Linear(size, o.dim_feedforward, o.bias)
  self.dropout = Dropout(p)
  self.linear2 = Linear(o.dim_feedforward, size, o.bias)
  for i = 1, #attentions + 1 do self['norm' .. i] = LayerNorm(size, {eps = o.layer_norm_eps, bias = o.bias}) end
  for i = 1, #attentions + 1 do self['dropout' .. i] = Dropout(p) end
  self.norm_first, self.activation = o.norm_first, activation(op, o.activation)
  self.d_model, self.nhead = size, o.nhead
end

-- One sublayer with its residual; norm before the sublayer or after the sum.
function Layer:residual(x, norm, dropout, f)
  if self.norm_first then return x + dropout(f(norm(x))) end
  return norm(x + dropout(f(x)))
end

local function attend(attention, x, memory, mask, padding, causal)
  return (attention(x, memory, memory, {attn_mask = mask, key_padding_mask = padding, is_causal = causal, need_weights = false}))
end

function Layer:feed(x) return self.linear2(self.dropout(self.activation(self.linear1(x)))) end

function Layer:extra_repr() return string.format('%d, %d heads%s', self.d_model, self.nhead, self.norm_first and ', norm first' or '') end

-- -- Encoder -----------------------------------------------------------------------

local TransformerEncoderLayer = Layer:extend('nn.TransformerEncoderLayer')

--- Self-attention and a feed-forward network.
-- @tparam number d_model size of the data
-- @tparam number nhead heads, divides d_model
-- @tparam ?table options dim_feedforward (2048), dropout (0.1), activation ('relu', 'gelu' or a function),
-- layer_norm_eps (1e-5), batch_first (false), norm_first (false), bias (true)
-- @usage nn.TransformerEncoderLayer(512, 8, {batch_first = true})
function TransformerEncoderLayer:init(...) self:build({'self_attn'}, ...) end

local encoder_inputs = {'src', 'src_mask', 'src_key_padding_mask', 'is_causal'}
encoder_inputs.tensors = true

--- @tparam Tensor src length x batch x d_model
-- @tparam ?table options src_mask, src_key_padding_mask, is_causal (false); or in places
-- @treturn Tensor src's shape
function TransformerEncoderLayer:forward(...)
  local o = options.arguments(self.__name, encoder_inputs, 1, {is_causal = false}, ...)
  local x = self:residual(o.src, self.norm1, self.dropout1, function(v)
    return attend(self.self_attn, v, v, o.src_mask, o.src_key_padding_mask, o.is_causal)
  end)
  return self:residual(x, self.norm2, self.dropout2, function(v) return self:feed(v) end)
end

-- A stack of copies of one layer, and a norm that may follow.
local Stack = Module:extend('nn.TransformerStack')

function Stack:build(kind, what, ...)
  local op = self.__name
  local o = options.arguments(op, {what, 'num_layers', 'norm'}, 2, {}, ...)
  local layer = o[what]
  if not Module.is_module(layer) then raise(op, '%s must be an nn.%s, got %s', what, kind, require('amp.util').kind(layer)) end
  if o.norm ~= nil and not Module.is_module(o.norm) then raise(op, 'norm must be a module, got %s', require('amp.util').kind(o.norm)) end
  self.num_layers = options.integer(op, 'num_layers', o.num_layers, 1)
  local list = {}
  for i = 1, o.num_layers do list[i] = copy(layer) end
  self.layers = ModuleList(list)
  self.norm = o.norm
end

function Stack:run(x, ...)
  for _, layer in self.layers:ipairs() do x = layer(x, ...) end
  return self.norm and self.norm(x) or x
end

function Stack:extra_repr() return self.num_layers .. ' layers' end

local TransformerEncoder = Stack:extend('nn.TransformerEncoder')

--- nn.TransformerEncoder(encoder_layer, num_layers, {norm}): num_layers copies of a layer, one after the other.
function TransformerEncoder:init(...) self:build('TransformerEncoderLayer', 'encoder_layer', ...) end

--- @tparam Tensor src length x batch x d_model
-- @tparam ?table options mask, src_key_padding_mask, is_causal (false); or in places
function TransformerEncoder:forward(...)
  local o = options.arguments(self.__name, {'src', 'mask', 'src_key_padding_mask', 'is_causal', tensors = true}, 1, {is_causal = false}, ...)
  return self:run(o.src, {src_mask = o.mask, src_key_padding_mask = o.src_key_padding_mask, is_causal = o.is_causal})
end

-- -- Decoder ------------------------------------------------------------------------

local TransformerDecoderLayer = Layer:extend('nn.TransformerDecoderLayer')

--- Self-attention, attention over the encoder's result, and a feed-forward network; arguments as
-- nn.TransformerEncoderLayer.
function TransformerDecoderLayer:init(...) self:build({'self_attn', 'multihead_attn'}, ...) end

local decoder_inputs = {'tgt', 'memory', 'tgt_mask', 'memory_mask', 'tgt_key_padding_mask', 'memory_key_padding_mask', 'tgt_is_causal', 'memory_is_causal'}
decoder_inputs.tensors = true
local decoder_usual = {tgt_is_causal = false, memory_is_causal = false}

--- @tparam Tensor tgt length x batch x d_model
-- @tparam Tensor memory the encoder's result
-- @tparam ?table options tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal (false),
-- memory_is_causal (false); or in places
-- @treturn Tensor tgt's shape
function TransformerDecoderLayer:forward(...)
  local o = options.arguments(self.__name, decoder_inputs, 2, decoder_usual, ...)
  local x = self:residual(o.tgt, self.norm1, self.dropout1, function(v)
    return attend(self.self_attn, v, v, o.tgt_mask, o.tgt_key_padding_mask, o.tgt_is_causal)
  end)
  x = self:residual(x, self.norm2, self.dropout2, function(v)
    return attend(self.multihead_attn, v, o.memory, o.memory_mask, o.memory_key_padding_mask, o.memory_is_causal)
  end)
  return self:residual(x, self.norm3, self.dropout3, function(v) return self:feed(v) end)
end

local TransformerDecoder = Stack:extend('nn.TransformerDecoder')

--- nn.TransformerDecoder(decoder_layer, num_layers, {norm})
function TransformerDecoder:init(...) self:build('TransformerDecoderLayer', 'decoder_layer', ...) end

--- As a layer's forward.
function TransformerDecoder:forward(...)
  local o = options.arguments(self.__name, decoder_inputs, 2, decoder_usual, ...)
  local tgt, memory = o.tgt, o.memory
  o.tgt, o.memory = nil, nil
  return self:run(tgt, memory, o)
end

-- -- Both -----------------------------------------------------------------------------

local Transformer = Module:extend('nn.Transformer')

local whole = {'d_model', 'nhead', 'num_encoder_layers', 'num_decoder_layers', 'dim_feedforward', 'dropout', 'activation',
  'custom_encoder', 'custom_decoder', 'layer_norm_eps', 'batch_first', 'norm_first', 'bias'}

--- An encoder and a decoder.
-- @tparam ?number d_model 512
-- @tparam ?number nhead 8
-- @tparam ?number num_encoder_layers 6
-- @tparam ?number num_decoder_layers 6
-- @tparam ?table options as the layers', and custom_encoder, custom_decoder: modules to use instead
function Transformer:init(...)
  local given = {d_model = 512, nhead = 8, num_encoder_layers = 6, num_decoder_layers = 6}
  for k, v in pairs(defaults) do given[k] = v end
  local o = options.arguments(self.__name, whole, 0, given, ...)
  local layer = {}
  for _, name in ipairs(names) do layer[name] = o[name] end
  local function norm() return LayerNorm(o.d_model, {eps = o.layer_norm_eps, bias = o.bias}) end
  self.encoder = o.custom_encoder or TransformerEncoder(TransformerEncoderLayer(layer), o.num_encoder_layers, norm())
  self.decoder = o.custom_decoder or TransformerDecoder(TransformerDecoderLayer(layer), o.num_decoder_layers, norm())
  self.d_model, self.nhead, self.batch_first = o.d_model, o.nhead, o.batch_first
  self:reset_parameters()
end

--- Draw every parameter of two dimensions or more anew, by Glorot's uniform filling.
function Transformer:reset_parameters()
  for _, p in ipairs(self:parameters()) do
    if p:dim() > 1 then initializers.xavier_uniform_(p) end
  end
end

local both = {'src', 'tgt', 'src_mask', 'tgt_mask', 'memory_mask', 'src_key_padding_mask', 'tgt_key_padding_mask', 'memory_key_padding_mask',
  'src_is_causal', 'tgt_is_causal', 'memory_is_causal'}
both.tensors = true

--- @tparam Tensor src length x batch x d_model
-- @tparam Tensor tgt length x batch x d_model
-- @tparam ?table options masks and causal flags, named as the layers name them; or in places
-- @treturn Tensor tgt's shape
function Transformer:forward(...)
  local o = options.arguments(self.__name, both, 2, {src_is_causal = false, tgt_is_causal = false, memory_is_causal = false}, ...)
  local memory = self.encoder(o.src, {mask = o.src_mask, src_key_padding_mask = o.src_key_padding_mask, is_causal = o.src_is_causal})
  return self.decoder(o.tgt, memory, {tgt_mask = o.tgt_mask, memory_mask = o.memory_mask, tgt_key_padding_mask = o.tgt_key_padding_mask,
    memory_key_padding_mask = o.memory_key_padding_mask, tgt_is_causal = o.tgt_is_causal, memory_is_causal = o.memory_is_causal})
end

--- A mask to add that lets each place see itself and what comes before: -inf above the diagonal.
-- @tparam number length
-- @tparam ?table given dtype, device
-- @treturn Tensor length x length
-- @usage nn.Transformer.generate_square_subsequent_mask(10)
function Transformer.generate_square_subsequent_mask(length, given)
  options.integer('nn.Transformer.generate_square_subsequent_mask', 'length', length, 0)
  return amp.full({length, length}, -math.huge, given):triu(1)
end

function Transformer:extra_repr() return string.format('%d, %d heads', self.d_model, self.nhead) end

return {
  TransformerEncoderLayer = TransformerEncoderLayer, TransformerEncoder = TransformerEncoder,
  TransformerDecoderLayer = TransformerDecoderLayer, TransformerDecoder = TransformerDecoder, Transformer = Transformer,
}

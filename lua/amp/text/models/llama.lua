--- Llama (Touvron et al., 2023): RMSNorm, rotary positions, heads of keys shared by several of queries, SwiGLU. Parameters have the
-- published names, lists counted from 1: model.layers.1.self_attn.q_proj.weight.
-- @module amp.text.models.llama
local amp = require 'amp'
local config = require 'amp.text.models.config'
local Decoder = require 'amp.text.models.decoder'
local err = require 'amp.error'
local ids_of = require 'amp.text.models.ids'
local nn = amp.nn

local spec = {
  defaults = {
    vocab_size = 32000, hidden_size = 4096, intermediate_size = 11008, num_hidden_layers = 32, num_attention_heads = 32, hidden_act = 'silu',
    max_position_embeddings = 2048, rms_norm_eps = 1e-6, rope_theta = 10000, attention_bias = false, mlp_bias = false, attention_dropout = 0,
    tie_word_embeddings = false, initializer_range = 0.02,
  },
  optional = config.set 'num_key_value_heads head_dim rope_scaling rope_parameters',
  aliases = { n_embd = 'hidden_size', n_layer = 'num_hidden_layers', n_head = 'num_attention_heads', n_positions = 'max_position_embeddings' },
  sizes = config.set 'vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads max_position_embeddings',
}

-- -- Layers ------------------------------------------------------------------------------------------

local Attention = nn.Module:extend 'text.LlamaAttention'

function Attention:init(c, rope)
  local size, heads, shared = c.head_dim, c.num_attention_heads, c.num_key_value_heads
  self.size, self.heads, self.shared, self.dropout = size, heads, shared, c.attention_dropout
  self.q_proj = nn.Linear(c.hidden_size, heads * size, c.attention_bias)
  self.k_proj = nn.Linear(c.hidden_size, shared * size, c.attention_bias)
  self.v_proj = nn.Linear(c.hidden_size, shared * size, c.attention_bias)
  self.o_proj = nn.Linear(heads * size, c.hidden_size, c.attention_bias)
  self.rotate = rope.rotate
end

function Attention:forward(x, context, layer)
  local batch, length = x:size(1), x:size(2)
  local function heads(t, n) return t:reshape(batch, length, n, self.size):transpose(2, 3) end
  local q = self.rotate(heads(self.q_proj(x), self.heads), context.cos, context.sin)
  local k = self.rotate(heads(self.k_proj(x), self.shared), context.cos, context.sin)
  local v = heads(self.v_proj(x), self.shared)
  if context.cache then k, v = context.cache:put(layer, k, v) end
  local y = amp.scaled_dot_product_attention(q, k, v, {
    attn_mask = context.mask, is_causal = context.causal, dropout_p = self.training and self.dropout or 0, enable_gqa = self.heads ~= self.shared,
  })
  return self.o_proj(y:transpose(2, 3):reshape(batch, length, self.heads * self.size))
end

local Block = nn.Module:extend 'text.LlamaBlock'

function Block:init(c, rope)
  self.self_attn = Attention(c, rope)
  self.mlp = nn.SwiGLU(c.hidden_size, c.intermediate_size, { bias = c.mlp_bias })
  self.input_layernorm = nn.RMSNorm(c.hidden_size, { eps = c.rms_norm_eps })
  self.post_attention_layernorm = nn.RMSNorm(c.hidden_size, { eps = c.rms_norm_eps })
end

function Block:forward(x, context, layer)
  x = x + self.self_attn(self.input_layernorm(x), context, layer)
  return x + self.mlp(self.post_attention_layernorm(x))
end

-- -- Model -----------------------------------------------------------------------------------------------

local Llama = Decoder:extend 'text.models.Llama'

Llama.position_option = 'max_position_embeddings'

-- The rotation's settings: of rope_scaling and rope_theta, or both in rope_parameters.
local function rotation(op, c)
  local p = type(c.rope_parameters) == 'table' and c.rope_parameters or {}
  local scaling = c.rope_scaling
  if scaling == nil and (p.rope_type or p.type or 'default') ~= 'default' then scaling = p end
  if scaling ~= nil and type(scaling) ~= 'table' then err.throw(op, 'rope_scaling must be a table, got %s', require('amp.util').show(scaling)) end
  return p.rope_theta or c.rope_theta, scaling
end

--- Make one, with fresh weights.
-- @tparam ?table given a config with the published names: vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
-- num_key_value_heads (num_attention_heads), head_dim (hidden_size / num_attention_heads), max_position_embeddings, rms_norm_eps,
-- rope_theta, rope_scaling ({rope_type = 'linear' | 'dynamic' | 'llama3', factor, ...}), attention_bias, mlp_bias (false),
-- tie_word_embeddings (false), initializer_range (0.02)
-- @usage local model = amp.text.models.Llama{vocab_size = 512, hidden_size = 64, intermediate_size = 172, num_hidden_layers = 2, num_attention_heads = 4}
function Llama:init(given, how)
  local op = how and how.op or 'text.models.Llama'
  local c = config.read(op, given, spec, how and how.published)
  c.num_key_value_heads = c.num_key_value_heads or c.num_attention_heads
  if not c.head_dim then
    if c.hidden_size % c.num_attention_heads ~= 0 then
      err.throw(op, 'hidden_size %d is not divisible by num_attention_heads %d', c.hidden_size, c.num_attention_heads)
    end
    c.head_dim = c.hidden_size / c.num_attention_heads
  end
  if c.num_attention_heads % c.num_key_value_heads ~= 0 then
    err.throw(op, 'num_attention_heads %d is not divisible by num_key_value_heads %d', c.num_attention_heads, c.num_key_value_heads)
  end
  if c.hidden_act ~= 'silu' and c.hidden_act ~= 'swish' then err.throw(op, "hidden_act is %s; 'silu' is known", require('amp.util').show(c.hidden_act)) end
  self.config, self.config_positions = c, c.max_position_embeddings
  local theta, scaling = rotation(op, c)
  self.rope = nn.RotaryEmbedding(c.head_dim, { base = theta, max_positions = c.max_position_embeddings, scaling = scaling })
  self.unlimited = self.rope.scaling ~= nil and (self.rope.scaling.kind == 'dynamic' or self.rope.scaling.kind == 'ntk')
  local m = nn.Module:extend 'text.LlamaModel' ()
  m.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
  local layers = {}
  for i = 1, c.num_hidden_layers do layers[i] = Block(c, self.rope) end
  m.layers = nn.ModuleList(layers)
  m.norm = nn.RMSNorm(c.hidden_size, { eps = c.rms_norm_eps })
  self.model = m
  self:make_head(c.hidden_size)
  self:reset_parameters()
end

function Llama:table() return self.model.embed_tokens end
function Llama:blocks() return self.model.layers end

--- The sizes of the cache: layers, heads of keys, elements of a head.
function Llama:cache_sizes()
  local c = self.config
  return c.num_hidden_layers, c.num_key_value_heads, c.head_dim
end

function Llama:embed(ids, context)
  local x = self.model.embed_tokens(ids)
  local p = context.positions
  if p then
    local most = context.reach or (p.device == 'cpu' and ids_of.readable() and p:max():item()) or self.config_positions
    context.cos, context.sin = self.rope:cos_sin(most, { positions = p, dtype = x.dtype, device = x.device })
    context.cos, context.sin = context.cos:unsqueeze(2), context.sin:unsqueeze(2)
  else
    context.cos, context.sin = self.rope:cos_sin(ids:size(2), { offset = context.offset, dtype = x.dtype, device = x.device })
  end
  return x
end

function Llama:finish(x) return self.model.norm(x) end

--- How published weights become this model's.
function Llama.published(model)
  local tied = model.config.tie_word_embeddings
  return {
    name = function(key)
      if key == 'lm_head.weight' then return tied and 'model.embed_tokens.weight' or key end
      if key:match 'rotary_emb%.inv_freq$' or key:match '^score%.' then return nil end
      key = key:gsub('^model%.', '')
      return 'model.' .. key:gsub('^layers%.(%d+)%.', function(i) return ('layers.%d.'):format(i + 1) end)
    end,
    key = function(name) return (name:gsub('%.layers%.(%d+)%.', function(i) return ('.layers.%d.'):format(i - 1) end)) end,
  }
end

Llama.finish_class(Llama, 'Llama')

return Llama

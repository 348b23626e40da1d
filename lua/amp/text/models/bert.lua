--- BERT (Devlin et al., 2019), the encoder with its pooler. Parameters have the published names, lists counted from 1:
-- encoder.layer.1.attention.self.query.weight.
-- @module amp.text.models.bert
local amp = require 'amp'
local config = require 'amp.text.models.config'
local err = require 'amp.error'
local ids_of = require 'amp.text.models.ids'
local nn = amp.nn
local initializers = require 'amp.nn.initializers'
local options = require 'amp.options'
local util = require 'amp.util'

local spec = {
  defaults = {
    vocab_size = 30522, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12, intermediate_size = 3072, hidden_act = 'gelu',
    hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1, max_position_embeddings = 512, type_vocab_size = 2, layer_norm_eps = 1e-12,
    initializer_range = 0.02, add_pooling_layer = true,
  },
  optional = {},
  aliases = { n_embd = 'hidden_size', n_layer = 'num_hidden_layers', n_head = 'num_attention_heads', n_positions = 'max_position_embeddings' },
  sizes = config.set 'vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings type_vocab_size',
}

-- A module that only holds others under their published names.
local function holder(name, fill)
  local m = nn.Module:extend('text.' .. name)()
  fill(m)
  return m
end

-- -- Layers -------------------------------------------------------------------------------------------

local Layer = nn.Module:extend 'text.BERTLayer'

local function output(c, from)
  return holder('BERTOutput', function(m)
    m.dense = nn.Linear(from, c.hidden_size)
    m.LayerNorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  end)
end

function Layer:init(c)
  self.heads, self.size, self.dropout = c.num_attention_heads, c.hidden_size / c.num_attention_heads, c.attention_probs_dropout_prob
  self.attention = holder('BERTAttention', function(m)
    m.self = holder('BERTSelfAttention', function(s)
      for _, name in ipairs { 'query', 'key', 'value' } do s[name] = nn.Linear(c.hidden_size, c.hidden_size) end
    end)
    m.output = output(c, c.hidden_size)
  end)
  self.intermediate = holder('BERTIntermediate', function(m) m.dense = nn.Linear(c.hidden_size, c.intermediate_size) end)
  self.output = output(c, c.intermediate_size)
  self.drop = nn.Dropout(c.hidden_dropout_prob)
  self.act = config.activation('text.models.BERT', c.hidden_act)
end

function Layer:forward(x, mask)
  local batch, length, width = x:size(1), x:size(2), x:size(3)
  local inner, out = self.attention.self, self.attention.output
  local function heads(t) return t:reshape(batch, length, self.heads, self.size):transpose(2, 3) end
  local y = amp.scaled_dot_product_attention(heads(inner.query(x)), heads(inner.key(x)), heads(inner.value(x)), {
    attn_mask = mask, dropout_p = self.training and self.dropout or 0,
  })
  y = self.drop(out.dense(y:transpose(2, 3):reshape(batch, length, width)))
  x = out.LayerNorm:forward_add(y, x)
  y = self.drop(self.output.dense(self.act(self.intermediate.dense(x))))
  return (self.output.LayerNorm:forward_add(y, x))
end

-- -- Model -----------------------------------------------------------------------------------------------

local BERT = nn.Module:extend 'text.models.BERT'

BERT.position_option = 'max_position_embeddings'

--- Make one, with fresh weights.
-- @tparam ?table given a config with the published names: vocab_size (30522), hidden_size (768), num_hidden_layers (12),
-- num_attention_heads (12), intermediate_size (3072), hidden_act ('gelu'), hidden_dropout_prob, attention_probs_dropout_prob (0.1),
-- max_position_embeddings (512), type_vocab_size (2), layer_norm_eps (1e-12), initializer_range (0.02), add_pooling_layer (true)
-- @usage local model = amp.text.models.BERT{vocab_size = 1000, hidden_size = 64, num_hidden_layers = 2, num_attention_heads = 4, intermediate_size = 128}
function BERT:init(given, how)
  local op = how and how.op or 'text.models.BERT'
  local c = config.read(op, given, spec, how and how.published)
  if c.hidden_size % c.num_attention_heads ~= 0 then
    err.throw(op, 'hidden_size %d is not divisible by num_attention_heads %d', c.hidden_size, c.num_attention_heads)
  end
  if c.position_embedding_type ~= nil and c.position_embedding_type ~= 'absolute' then
    err.throw(op, "position_embedding_type is %s; 'absolute' is known", util.show(c.position_embedding_type))
  end
  self.config, self.config_positions = c, c.max_position_embeddings
  self.embeddings = holder('BERTEmbeddings', function(m)
    m.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
    m.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)
    m.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size)
    m.LayerNorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  end)
  local layers = {}
  for i = 1, c.num_hidden_layers do layers[i] = Layer(c) end
  self.encoder = holder('BERTEncoder', function(m) m.layer = nn.ModuleList(layers) end)
  if c.add_pooling_layer then self.pooler = holder('BERTPooler', function(m) m.dense = nn.Linear(c.hidden_size, c.hidden_size) end) end
  self.drop = nn.Dropout(c.hidden_dropout_prob)
  self:reset_parameters()
end

--- Draw the weights anew: normal of deviation initializer_range, biases 0.
function BERT:reset_parameters()
  for name, p in self:named_parameters() do
    if p:dim() > 1 then initializers.normal_(p, 0, self.config.initializer_range)
    elseif name:match 'bias$' then initializers.zeros_(p) end
  end
end

function BERT:device_of() return self.embeddings.word_embeddings.weight.device end

local known = { 'attention_mask', 'token_type_ids', 'position_ids' }

local function like_ids(op, name, t, ids)
  if not amp.is_tensor(t) then err.throw(op, '%s must be a tensor, got %s', name, util.show(t)) end
  if t:dim() == 1 then t = t:unsqueeze(1) end
  if util.shape(t.shape) ~= util.shape(ids.shape) then
    err.throw(op, '%s is of shape %s, the ids are of %s', name, util.shape(t.shape), util.shape(ids.shape))
  end
  return t.device == ids.device and t or t:to(ids.device)
end

local function embed(self, op, ids, o)
  local e, length = self.embeddings, ids:size(2)
  local x = e.word_embeddings(ids)
  if o.token_type_ids ~= nil then
    local t = like_ids(op, 'token_type_ids', o.token_type_ids, ids)
    if t.device == 'cpu' then ids_of.in_range(op, 'token type', t, self.config.type_vocab_size) end
    x = x + e.token_type_embeddings(t)
  else
    x = x + e.token_type_embeddings.weight[1]
  end
  local p = e.position_embeddings.weight:narrow(1, 1, length)
  if o.position_ids ~= nil then
    local t = like_ids(op, 'position_ids', o.position_ids, ids)
    if t.device == 'cpu' then ids_of.in_range(op, 'position', t, self.config_positions) end
    p = e.position_embeddings(t)
  end
  return self.drop(e.LayerNorm(x + p))
end

--- The last hidden states.
-- @tparam Tensor ids batch x length, integers from 1; or length
-- @tparam ?table|Tensor given attention_mask (batch x length, 0 where a token is padding), token_type_ids (from 1), position_ids (from 1);
-- or the attention mask
-- @treturn Tensor batch x length x hidden_size (length x hidden_size)
-- @treturn ?Tensor batch x hidden_size: the first token through the pooler, where there is one
-- @raise ids that the vocabulary has not, more of them than the positions
-- @usage local hidden = model(tok:encode_batch(texts))
function BERT:forward(ids, given)
  local op, flat = self.__name
  if amp.is_tensor(given) then given = { attention_mask = given } end
  local o = options.read(op, given, known)
  ids, flat = ids_of.matrix(op, ids, self)
  if ids:size(2) > self.config_positions then
    err.throw(op, '%d ids are more than the context of %d (max_position_embeddings of the config): cut the text, as by truncation = true',
      ids:size(2), self.config_positions)
  end
  local mask
  if o.attention_mask ~= nil then
    local m = like_ids(op, 'attention_mask', o.attention_mask, ids)
    mask = (m.dtype == 'bool' and m or m:ne(0)):unsqueeze(2):unsqueeze(2)
  end
  local x = embed(self, op, ids, o)
  local saving = self.checkpointing and self.training and amp.is_grad_enabled()
  for _, layer in ipairs(self.encoder.layer) do
    if saving then x = amp.checkpoint(function(v) return layer(v, mask) end, x) else x = layer(x, mask) end
  end
  local pooled = self.pooler and amp.tanh(self.pooler.dense(x:select(2, 1)))
  if flat then x = x:squeeze(1) end
  return x, pooled
end

--- Keep no values between layers for backward, but compute them again: less memory, a third more time.
function BERT:gradient_checkpointing_enable(on)
  self.checkpointing = on ~= false
  return self
end

function BERT:gradient_checkpointing_disable() return self:gradient_checkpointing_enable(false) end

--- A file may lack the pooler.
function BERT:without(names)
  if names[1] then self.pooler = nil end
end

--- How published weights become this model's.
function BERT.published()
  return {
    name = function(key)
      key = key:gsub('^bert%.', '')
      local head = key:match '^[^.]+'
      if head ~= 'embeddings' and head ~= 'encoder' and head ~= 'pooler' or key == 'embeddings.position_ids' then return nil end
      key = key:gsub('LayerNorm%.gamma$', 'LayerNorm.weight'):gsub('LayerNorm%.beta$', 'LayerNorm.bias')
      return (key:gsub('^encoder%.layer%.(%d+)%.', function(i) return ('encoder.layer.%d.'):format(i + 1) end))
    end,
    key = function(name) return (name:gsub('%.layer%.(%d+)%.', function(i) return ('.layer.%d.'):format(i - 1) end)) end,
    optional = function(name) return name:match '^pooler%.' end,
  }
end

function BERT.from_pretrained(dir, given)
  return require('amp.text.models.pretrained').load('text.models.BERT.from_pretrained', 'BERT', dir, given)
end

--- Write a folder that from_pretrained and transformers read. See Decoder.save_pretrained.
function BERT:save_pretrained(dir) return require('amp.text.models.pretrained').save(self, 'BERT', dir) end

function BERT.from_config(c, op) return BERT(c, { published = true, op = op }) end

return BERT

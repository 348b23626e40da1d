--- GPT-2 (Radford et al., 2019): learned positions, norms before the blocks, one head tied to the table of tokens. Parameters have
-- the published names, lists counted from 1: transformer.h.1.attn.c_attn.weight; weights are out x in.
-- @module amp.text.models.gpt2
local amp = require 'amp'
local config = require 'amp.text.models.config'
local Decoder = require 'amp.text.models.decoder'
local err = require 'amp.error'
local nn = amp.nn
local ops = require 'amp.ops'

local spec = {
  defaults = {
    vocab_size = 50257, n_positions = 1024, n_embd = 768, n_layer = 12, n_head = 12, activation_function = 'gelu_new', resid_pdrop = 0.1,
    embd_pdrop = 0.1, attn_pdrop = 0.1, layer_norm_epsilon = 1e-5, initializer_range = 0.02, scale_attn_weights = true,
    scale_attn_by_inverse_layer_idx = false, tie_word_embeddings = true, reorder_and_upcast_attn = false,
  },
  optional = config.set 'n_inner',
  aliases = {
    hidden_size = 'n_embd', max_position_embeddings = 'n_positions', num_attention_heads = 'n_head', num_hidden_layers = 'n_layer',
  },
  sizes = config.set 'vocab_size n_positions n_embd n_layer n_head',
}

-- -- Layers -------------------------------------------------------------------------------------------

local Attention = nn.Module:extend 'text.GPT2Attention'

function Attention:init(c, layer)
  self.heads, self.size = c.n_head, c.n_embd / c.n_head
  self.c_attn = nn.Linear(c.n_embd, 3 * c.n_embd)
  self.c_proj = nn.Linear(c.n_embd, c.n_embd)
  self.dropout = c.attn_pdrop
  self.scale = (c.scale_attn_weights and 1 / math.sqrt(self.size) or 1) / (c.scale_attn_by_inverse_layer_idx and layer or 1)
end

function Attention:forward(x, context, layer)
  local batch, length, width = x:size(1), x:size(2), x:size(3)
  local all = self.c_attn(x):reshape(batch, length, 3, self.heads, self.size):permute(3, 1, 4, 2, 5)
  local k, v
  if context.cache then k, v = context.cache:put_both(layer, all:narrow(1, 2, 2)) else k, v = all:select(1, 2), all:select(1, 3) end
  local y = amp.scaled_dot_product_attention(all:select(1, 1), k, v, {
    attn_mask = context.mask, is_causal = context.causal, dropout_p = self.training and self.dropout or 0, scale = self.scale,
  })
  return self.c_proj(y:transpose(2, 3):reshape(batch, length, width))
end

local MLP = nn.Module:extend 'text.GPT2MLP'

function MLP:init(c)
  local inner = c.n_inner or 4 * c.n_embd
  self.c_fc = nn.Linear(c.n_embd, inner)
  self.c_proj = nn.Linear(inner, c.n_embd)
  self.act = config.activation('text.models.GPT2', c.activation_function)
  self.tanh = self.act == config.activation('text.models.GPT2', 'gelu_new')
end

local linear_act

function MLP:forward(x, context)
  local fc = self.c_fc
  if self.tanh and context.cache and context.cache.fixed and fc.forward == nn.Linear.forward and not nn.Module.raw_key(fc, '.hooks') then
    linear_act = linear_act or ops.get 'linear_act' -- a step on a GPU: one launch
    return self.c_proj((linear_act(x, fc.weight, fc.bias, 'gelu_tanh')))
  end
  return self.c_proj(self.act(fc(x)))
end

local Block = nn.Module:extend 'text.GPT2Block'

function Block:init(c, layer)
  local given = { eps = c.layer_norm_epsilon }
  self.ln_1 = nn.LayerNorm(c.n_embd, given)
  self.attn = Attention(c, layer)
  self.ln_2 = nn.LayerNorm(c.n_embd, given)
  self.mlp = MLP(c)
  self.drop = nn.Dropout(c.resid_pdrop)
end

-- x and what is still to be added to it, which the next norm does in its own pass: given so, and given back.
function Block:forward(x, context, layer, rest)
  local y
  if rest then y, x = self.ln_1:forward_add(x, rest) else y = self.ln_1(x) end
  y, x = self.ln_2:forward_add(x, self.drop(self.attn(y, context, layer)))
  return x, self.drop(self.mlp(y, context))
end

-- -- Model -----------------------------------------------------------------------------------------------

local GPT2 = Decoder:extend 'text.models.GPT2'

GPT2.position_option = 'n_positions'

--- Make one, with fresh weights.
-- @tparam ?table given a config with the published names: vocab_size (50257), n_positions (1024), n_embd (768), n_layer (12), n_head (12),
-- n_inner (4 n_embd), activation_function ('gelu_new'), resid_pdrop, embd_pdrop, attn_pdrop (0.1), layer_norm_epsilon (1e-5),
-- initializer_range (0.02), tie_word_embeddings (true)
-- @usage local model = amp.text.models.GPT2{vocab_size = 65, n_embd = 128, n_layer = 4, n_head = 4, n_positions = 256}
function GPT2:init(given, how)
  local op = how and how.op or 'text.models.GPT2'
  local c = config.read(op, given, spec, how and how.published)
  if c.n_embd % c.n_head ~= 0 then err.throw(op, 'n_embd %d is not divisible by n_head %d', c.n_embd, c.n_head) end
  self.config, self.config_positions = c, c.n_positions
  local t = nn.Module:extend 'text.GPT2Transformer' ()
  t.wte = nn.Embedding(c.vocab_size, c.n_embd)
  t.wpe = nn.Embedding(c.n_positions, c.n_embd)
  t.drop = nn.Dropout(c.embd_pdrop)
  local h = {}
  for i = 1, c.n_layer do h[i] = Block(c, i) end
  t.h = nn.ModuleList(h)
  t.ln_f = nn.LayerNorm(c.n_embd, { eps = c.layer_norm_epsilon })
  self.transformer = t
  self:make_head(c.n_embd)
  self:reset_parameters()
end

-- Projections back into the stream over sqrt(2 n_layer).
function GPT2:deviation(name)
  local c = self.config
  return name:match 'c_proj%.weight$' and c.initializer_range / math.sqrt(2 * c.n_layer) or c.initializer_range
end

function GPT2:table() return self.transformer.wte end
function GPT2:blocks() return self.transformer.h end

--- The sizes of the cache: layers, heads of keys, elements of a head.
function GPT2:cache_sizes()
  local c = self.config
  return c.n_layer, c.n_head, c.n_embd / c.n_head
end

function GPT2:embed(ids, context)
  local t = self.transformer
  local x = t.wte(ids)
  if context.positions then return t.drop(x + t.wpe(context.positions)) end
  return t.drop(x + t.wpe.weight:narrow(1, context.offset + 1, ids:size(2)))
end

function GPT2:finish(x, rest) return (self.transformer.ln_f:forward_add(x, rest)) end

--- How published weights become this model's.
function GPT2.published(model)
  local tied = model.config.tie_word_embeddings
  return {
    name = function(key)
      if key == 'lm_head.weight' then return tied and 'transformer.wte.weight' or key end
      key = key:gsub('^transformer%.', '')
      if key:match '^h%.%d+%.attn%.masked_bias$' or key:match '^h%.%d+%.attn%.bias$' then return nil end
      if key:match '^score%.' or key:match '^classifier%.' then return nil end
      return 'transformer.' .. key:gsub('^h%.(%d+)%.', function(i) return ('h.%d.'):format(i + 1) end)
    end,
    key = function(name) return (name:gsub('%.h%.(%d+)%.', function(i) return ('.h.%d.'):format(i - 1) end)) end,
    turned = function(name) return name:match 'c_attn%.weight$' or name:match 'c_proj%.weight$' or name:match 'c_fc%.weight$' end,
  }
end

GPT2.finish_class(GPT2, 'GPT2')

return GPT2

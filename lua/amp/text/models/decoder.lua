--- What models that go on with a text share: arguments, masks, the loss, generation. GPT2 and Llama derive from it and have
-- `table()` (the embedding of tokens), `embed(ids, context)`, `blocks()` (a list), `finish(x, rest)`.
-- @module amp.text.models.decoder
local amp = require 'amp'
local err = require 'amp.error'
local ids_of = require 'amp.text.models.ids'
local options = require 'amp.options'
local util = require 'amp.util'
local initializers = require 'amp.nn.initializers'
local nn = amp.nn
local Module = nn.Module

local Decoder = Module:extend 'text.Decoder'

-- -- Arguments ------------------------------------------------------------------------------------

-- What the layers are told of a call: where tokens stand (`offset`, or `positions`, batch x length from 1), what may be seen
-- (`mask`, true where; or `causal`), and the `cache` of keys and values.
-- A bool mask of length x keys whose last row sees all keys.
local function causal_mask(length, keys, device)
  return amp.ones({ length, keys }, { dtype = 'bool', device = device }):tril(keys - length)
end

local function check_shape(op, name, t, batch, length, device)
  if not amp.is_tensor(t) then err.throw(op, '%s must be a tensor, got %s', name, util.show(t)) end
  if t:dim() == 1 then t = t:unsqueeze(1) end
  if t:dim() ~= 2 or t:size(1) ~= batch or t:size(2) ~= length then
    err.throw(op, '%s is of shape %s, the ids are of %dx%d', name, util.shape(t.shape), batch, length)
  end
  return t.device == device and t or t:to(device)
end

--- The context of a call.
-- @tparam table o {attention_mask, position_ids, segment_ids}
function Decoder:context(op, batch, length, device, o)
  local c = { causal = true, offset = 0, length = length }
  if o.attention_mask ~= nil then
    local m = check_shape(op, 'attention_mask', o.attention_mask, batch, length, device)
    m = m.dtype == 'bool' and m or m:ne(0)
    c.mask = m:unsqueeze(2):unsqueeze(2)
  end
  if o.segment_ids ~= nil then
    local s = check_shape(op, 'segment_ids', o.segment_ids, batch, length, device)
    local same = s:unsqueeze(3):eq(s:unsqueeze(2)):unsqueeze(2)
    c.mask = c.mask and c.mask:logical_and(same) or same
  end
  if c.mask then c.mask, c.causal = c.mask:logical_and(causal_mask(length, length, device)), false end
  if o.position_ids ~= nil then
    c.positions = check_shape(op, 'position_ids', o.position_ids, batch, length, device)
    if device == 'cpu' then ids_of.in_range(op, 'position', c.positions, self.config_positions) end
  end
  return c
end

-- -- Forward --------------------------------------------------------------------------------------

--- The last hidden states.
-- @tparam Tensor ids batch x length
-- @tparam table context see above
function Decoder:hidden(ids, context)
  local x = self:embed(ids, context)
  local saving = self.checkpointing and self.training and amp.is_grad_enabled() and not context.cache
  local rest -- of a block: what the next one adds to x first
  for i, block in ipairs(self:blocks()) do
    if saving then x, rest = amp.checkpoint(function(v, r) return block(v, context, i, r) end, x, rest) else x, rest = block(x, context, i, rest) end
  end
  return self:finish(x, rest)
end

local known = { 'attention_mask', 'position_ids', 'segment_ids', 'labels' }

--- Logits of the token that follows each.
-- @tparam Tensor ids batch x length, integers from 1; or length
-- @tparam ?table given attention_mask (batch x length, 0 where a token is padding), position_ids and segment_ids (batch x length, ints
-- from 1: a token sees those of its own segment only), labels (as ids; -100: no loss there)
-- @treturn Tensor batch x length x vocab_size (length x vocab_size)
-- @treturn ?Tensor with labels: the mean cross entropy of labels 2.. from the logits before them
-- @raise ids that the vocabulary has not, more of them than the context holds
-- @usage local logits, loss = model(ids, {labels = ids})
function Decoder:forward(ids, given)
  local op = self.__name
  local o = options.read(op, given, known)
  local flat
  ids, flat = ids_of.matrix(op, ids, self)
  local batch, length = ids:size(1), ids:size(2)
  self:check_length(op, length)
  local context = self:context(op, batch, length, ids.device, o)
  local logits = self:head(self:hidden(ids, context))
  local loss
  if o.labels ~= nil then loss = self.loss(op, logits, check_shape(op, 'labels', o.labels, batch, length, ids.device)) end
  if flat then logits = logits:squeeze(1) end
  return logits, loss
end

--- Mean cross entropy of logits 1 .. n - 1 and labels 2 .. n; labels of -100 do not count.
function Decoder.loss(op, logits, labels)
  local n = labels:size(2)
  if n < 2 then err.throw(op, 'a loss needs 2 tokens or more in a row, got %d', n) end
  local vocabulary = logits:size(3)
  local at = logits:narrow(2, 1, n - 1):reshape(-1, vocabulary)
  return amp.cross_entropy(at, labels:narrow(2, 2, n - 1):reshape(-1):long())
end

--- An error where a text is longer than the context.
function Decoder:check_length(op, length)
  local most = self.config_positions
  if length > most and not self.unlimited then
    err.throw(op, '%d ids are more than the context of %d (%s of the config): give the last %d, or cut the text into parts', length, most,
      self.position_option, most)
  end
end

-- -- Weights -------------------------------------------------------------------------------------------

function Decoder:device_of() return self:table().weight.device end
function Decoder:dtype_of() return self:table().weight.dtype end

--- Draw the weights anew: matrices normal of the deviation that `deviation(name)` says, biases 0.
function Decoder:reset_parameters()
  for name, p in self:named_parameters() do
    if p:dim() > 1 then initializers.normal_(p, 0, self:deviation(name)) elseif name:match 'bias$' then initializers.zeros_(p) end
  end
end

function Decoder:deviation() return self.config.initializer_range end

--- The head: tied to the table of tokens, or of its own.
function Decoder:make_head(width)
  self.lm_head = nn.Linear(width, self.config.vocab_size, false)
  if self.config.tie_word_embeddings then self.lm_head.weight = self:table().weight end
end

function Decoder:head(x) return self.lm_head(x) end

-- -- What else a model does -------------------------------------------------------------------------

--- Go on with one prompt or several. See amp.text.models.generate.
function Decoder:generate(...) return require('amp.text.models.generate').generate(self, ...) end

--- Keep no values between blocks for backward, but compute them again: less memory, a third more time.
-- @tparam ?boolean on default true
function Decoder:gradient_checkpointing_enable(on)
  self.checkpointing = on ~= false
  return self
end

function Decoder:gradient_checkpointing_disable() return self:gradient_checkpointing_enable(false) end

--- The tokenizer of the folder that the model came from; or one that was assigned, net.tokenizer = tok. nil: none.
function Decoder:get_tokenizer()
  local tok = self.tokenizer
  local path = rawget(self, '.tokenizer_file')
  if tok == nil and path then
    tok = require('amp').text.Tokenizer.from_file(path)
    self.tokenizer = tok
  end
  return tok
end

--- Write config.json and model.safetensors with the published names: a folder that from_pretrained and transformers read.
-- @tparam string dir made where it is not there
-- @return self
function Decoder:save_pretrained(dir) return require('amp.text.models.pretrained').save(self, self.__name:match '[^.]+$', dir) end

--- A class's from_pretrained and from_config.
function Decoder.finish_class(class, kind)
  function class.from_pretrained(dir, given)
    return require('amp.text.models.pretrained').load(('text.models.%s.from_pretrained'):format(kind), kind, dir, given)
  end
  function class.from_config(c, op) return class(c, { published = true, op = op }) end
end

return Decoder

--- from_pretrained: a folder with config.json and weights becomes a model.
-- @module amp.text.models.pretrained
local amp = require 'amp'
local config = require 'amp.text.models.config'
local err = require 'amp.error'
local filling = require 'amp.nn.core.filling'
local options = require 'amp.options'
local util = require 'amp.util'
local weights = require 'amp.text.models.weights'

local M = {}

-- model_type of config.json -> class; the same of architectures
local classes = { gpt2 = 'GPT2', bert = 'BERT', llama = 'Llama' }
local architectures = {
  GPT2LMHeadModel = 'GPT2', GPT2Model = 'GPT2', LlamaForCausalLM = 'Llama', LlamaModel = 'Llama', BertModel = 'BERT', BertForMaskedLM = 'BERT',
  BertForPreTraining = 'BERT', BertForSequenceClassification = 'BERT', BertForTokenClassification = 'BERT', BertForQuestionAnswering = 'BERT',
  BertForNextSentencePrediction = 'BERT', BertForMultipleChoice = 'BERT',
}

local function class_name(op, path, c)
  local list = type(c.architectures) == 'table' and c.architectures or {}
  local kind = architectures[list[1]]
  if not kind and list[1] == nil then kind = classes[c.model_type] end
  if kind then return kind end
  err.throw(op, "'%s' is of the architecture %s; known are %s", path,
    list[1] and util.show(list[1]) or c.model_type and 'model_type ' .. util.show(c.model_type) or 'nothing: it has neither architectures nor model_type',
    table.concat(util.keys(architectures), ', '))
end

-- Call fn with a default device and dtype.
local function with_defaults(device, dtype, fn)
  local old_device, old_dtype = amp.get_default_device(), amp.get_default_dtype()
  amp.set_default_device(device)
  local ok, e = pcall(amp.set_default_dtype, dtype)
  local result
  if ok then ok, result = pcall(filling.without, fn) else result = e end
  amp.set_default_device(old_device)
  amp.set_default_dtype(old_dtype)
  if not ok then error(result, 0) end
  return result
end

--- A model of a folder.
-- @tparam string op for messages
-- @tparam ?string want the class's name; nil: what config.json says
-- @tparam string dir
-- @tparam ?table given {device, dtype} (the defaults), gradient_checkpointing (false)
function M.load(op, want, dir, given)
  if type(dir) ~= 'string' then err.throw(op, 'the path of a folder expected, got %s', util.show(dir)) end
  local o = options.read(op, given, { 'device', 'dtype', 'gradient_checkpointing' }, { device = amp.get_default_device(), dtype = amp.get_default_dtype() })
  dir = #dir > 1 and dir:gsub('/+$', '') or dir
  local path = dir .. '/config.json'
  local c = config.json(op, path)
  local kind = class_name(op, path, c)
  if want and kind ~= want then err.throw(op, "'%s' is that of a %s model (amp.text.models.%s), not of %s", path, kind, kind, want) end
  local class = require('amp.text.models')[kind]
  local source = weights.open(op, dir)
  local model = with_defaults(o.device, o.dtype, function() return class.from_config(c, op .. ": '" .. path .. "'") end)
  local rules = class.published(model)
  rules.dir = dir
  local absent = weights.fill(op, model, source, rules)
  if #absent > 0 and model.without then model:without(absent) end
  if o.gradient_checkpointing then model:gradient_checkpointing_enable() end
  model:eval()
  if config.exists(dir .. '/tokenizer.json') then rawset(model, '.tokenizer_file', dir .. '/tokenizer.json') end
  return model
end

-- What config.json says beside the model's own options.
local said = {
  GPT2 = { model_type = 'gpt2', architectures = { 'GPT2LMHeadModel' } },
  Llama = { model_type = 'llama', architectures = { 'LlamaForCausalLM' } },
  BERT = { model_type = 'bert', architectures = { 'BertModel' } },
}

--- Write a model's folder: config.json, model.safetensors; adapters (nn.utils.lora) have to be merged before.
function M.save(model, kind, dir)
  local op = ('text.models.%s:save_pretrained'):format(kind)
  if type(dir) ~= 'string' then err.throw(op, 'the path of a folder expected, got %s', util.show(dir)) end
  local rules, state, c = require('amp.text.models')[kind].published(model), {}, {}
  for name, p in model:named_parameters() do -- a tied weight once
    if name:match '%.lora_[AB]$' then err.throw(op, 'the network has adapters: nn.utils.merge_lora(net) first, or save nn.utils.lora_state_dict(net)') end
    local t = p:detach()
    if rules.turned and rules.turned(name) and t:dim() == 2 then t = t:t():contiguous() end
    state[rules.key(name)] = t
  end
  for k, v in pairs(model.config) do
    if type(v) ~= 'function' then c[k] = v end
  end
  for k, v in pairs(said[kind]) do c[k] = v end
  local json = require 'amp.io.json'
  setmetatable(c.architectures, json.array)
  os.execute("mkdir -p '" .. dir:gsub("'", "'\\''") .. "'")
  amp.io.safetensors.save(dir .. '/model.safetensors', state, { format = 'pt' })
  local ok, why = require('amp.io.file').replace(dir .. '/config.json', function(put) put(json.encode(c) .. '\n') end)
  if not ok then err.throw(op, "cannot write '%s/config.json': %s", dir, tostring(why)) end
  return model
end

return M

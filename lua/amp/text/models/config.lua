--- Configurations of text models: tables with the names that config.json has.
-- @module amp.text.models.config
local err = require 'amp.error'
local next_key = require('amp.core.keys').next
local file = require 'amp.io.file'
local json = require 'amp.io.json'
local util = require 'amp.util'

local M = {}

-- Names of a published config that say nothing about the network that is built here.
local aside = {}
for name in ([[n_ctx architectures model_type torch_dtype dtype transformers_version bos_token_id eos_token_id pad_token_id sep_token_id
  cls_token_id unk_token_id decoder_start_token_id use_cache task_specific_params summary_type summary_use_proj
  summary_activation summary_first_dropout summary_proj_to_logits gradient_checkpointing position_embedding_type classifier_dropout
  id2label label2id problem_type output_attentions output_hidden_states output_past return_dict return_dict_in_generate
  pretraining_tp finetuning_task is_decoder is_encoder_decoder add_cross_attention chunk_size_feed_forward
  tokenizer_class prefix name_or_path _name_or_path _attn_implementation attn_implementation auto_map
  predict_special_tokens pruned_heads cross_attention_hidden_size torchscript use_bfloat16 tf_legacy_loss]]):gmatch '%S+' do
  aside[name] = true
end

local function is_null(v) return v == json.null end

--- The values of a model's options: given ones over defaults, other names resolved.
-- @tparam string op
-- @tparam table given as a user writes it, or config.json
-- @tparam table spec {defaults, aliases = {other = name}, optional = {name = true}}
-- @tparam boolean published of a file: names that are not known are left alone
-- @treturn table
function M.read(op, given, spec, published)
  if given ~= nil and type(given) ~= 'table' then err.throw(op, 'a config is a table, as {%s = ...}, got %s', next_key(spec.defaults), util.show(given)) end
  local out = {}
  for k, v in pairs(spec.defaults) do out[k] = v end
  for k, v in pairs(given or {}) do
    local name = spec.aliases[k] or k
    if is_null(v) then v = nil end
    if spec.defaults[name] ~= nil or spec.optional[name] then
      if v ~= nil then out[name] = v end
    elseif aside[k] or published then
      if v ~= nil then out[k] = v end
    else
      local known = util.keys(spec.defaults)
      for other in pairs(spec.optional) do known[#known + 1] = other end
      for other in pairs(spec.aliases) do known[#known + 1] = other end
      err.throw(op, 'unknown option %s%s', util.show(k), util.hint(tostring(k), known))
    end
  end
  for k, default in pairs(spec.defaults) do
    local v = out[k]
    if type(v) ~= type(default) then err.throw(op, '%s must be a %s, got %s', k, type(default), util.show(v)) end
    if spec.sizes[k] and (v % 1 ~= 0 or v < 1) then err.throw(op, '%s must be an integer of at least 1, got %s', k, util.show(v)) end
  end
  return out
end

--- A set of names.
function M.set(names)
  local out = {}
  for name in names:gmatch '%S+' do out[name] = true end
  return out
end

--- A JSON file's table.
-- @raise names the file, and what is wrong with it
function M.json(op, path)
  local text, why = file.text(path)
  if not text then err.throw(op, "cannot read '%s': %s", path, tostring(why)) end
  local value, bad = json.decode(text)
  if type(value) ~= 'table' then err.throw(op, "'%s' is not a JSON object: %s", path, tostring(bad)) end
  return value
end

--- Whether a file is there.
function M.exists(path)
  local f = io.open(path, 'rb')
  if f then f:close() end
  return f ~= nil
end

local activations

--- The function of an activation's published name.
function M.activation(op, name)
  local amp = require 'amp'
  activations = activations or {
    gelu = amp.gelu, relu = amp.relu, silu = amp.silu, swish = amp.silu, tanh = amp.tanh,
    gelu_new = function(x) return amp.gelu(x, 'tanh') end,
  }
  activations.gelu_pytorch_tanh, activations.gelu_fast = activations.gelu_new, activations.gelu_new
  if type(name) == 'function' then return name end
  local f = activations[name]
  if not f then
    err.throw(op, 'there is no activation %s%s (there are %s)', util.show(name), util.hint(tostring(name), util.keys(activations)),
      table.concat(util.keys(activations), ', '))
  end
  return f
end

return M

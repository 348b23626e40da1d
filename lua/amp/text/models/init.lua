--- Text models with the published names of configs and weights: GPT2, BERT, Llama, SentenceEncoder, from_pretrained(dir).
-- @module amp.text.models
-- @usage local model = amp.text.models.from_pretrained('gpt2', {dtype = 'bfloat16'})
local err = require 'amp.error'
local util = require 'amp.util'

local files = { GPT2 = 'gpt2', BERT = 'bert', Llama = 'llama', SentenceEncoder = 'sentence', pack = 'pack' }

local M = {}
err.space(M, 'text.models')

--- The model of a folder, of the class that its config.json names, in eval mode.
-- @tparam string dir with config.json and model.safetensors (or shards with an index, or pytorch_model.bin)
-- @tparam ?table given device, dtype (amp's defaults), gradient_checkpointing (false)
-- @raise an architecture that is not known; weights or shards that are missing, or of other shapes than the config says
function M.from_pretrained(dir, given)
  return require('amp.text.models.pretrained').load('text.models.from_pretrained', nil, dir, given)
end

return setmetatable(M, { __index = function(_, name)
  local v = files[name] and require('amp.text.models.' .. files[name])
  if v == nil and type(name) == 'string' and name:sub(1, 1) ~= '_' then
    local known = util.keys(files)
    known[#known + 1] = 'from_pretrained'
    err.throw_code('name', 'text.models', "there is no '%s'%s (there are %s)", name, util.hint(name, known), table.concat(known, ', '))
  end
  if v ~= nil then rawset(M, name, v) end
  return v
end })

--- Text: tokenizers, and models with published weights.
-- @module amp.text
local err = require 'amp.error'
local util = require 'amp.util'

local modules = { models = 'amp.text.models', Tokenizer = 'amp.text.tokenizer', train_bpe = 'amp.text.train' }
local members = { TokenFile = 'amp.text.token_file', write_tokens = 'amp.text.token_file' } -- of a module

local M = {}
err.space(M, 'text')

return setmetatable(M, { __index = function(_, name)
  local v = modules[name] and require(modules[name]) or members[name] and require(members[name])[name] or nil
  if v == nil and type(name) == 'string' and name:sub(1, 1) ~= '_' then
    err.throw_code('name', 'text', "there is no '%s'%s (there are %s)", name, util.hint(name, util.keys(modules)), table.concat(util.keys(modules), ', '))
  end
  if v ~= nil then rawset(M, name, v) end
  return v
end })

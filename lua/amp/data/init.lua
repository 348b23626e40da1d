--- amp.data: datasets and how they become batches.
local files = {
  TensorDataset = 'amp.data.dataset', DataLoader = 'amp.data.dataloader', mnist = 'amp.data.mnist',
}

-- name -> file and the field of it that is meant
local fields = {
  idx = {'amp.data.idx', 'read'}, read_image = {'amp.data.image', 'read'}, ImageFolder = {'amp.data.image', 'ImageFolder'},
  Vocabulary = {'amp.data.text', 'Vocabulary'}, TextDataset = {'amp.data.text', 'TextDataset'},
}

local M = {}

return setmetatable(M, {__index = function(_, name)
  local value
  if fields[name] then value = require(fields[name][1])[fields[name][2]]
  elseif files[name] then value = require(files[name])
  elseif type(name) == 'string' and name:match('^%u') then
    local util = require 'amp.util'
    local known = util.keys(files)
    for k in pairs(fields) do known[#known + 1] = k end
    require('amp.error').throw('data', "no class '%s'%s", name, util.hint(name, known))
  end
  M[name] = value
  return value
end})

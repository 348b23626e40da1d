--- amp.data: datasets and how they become batches.
local files = {
  TensorDataset = 'amp.data.dataset', DataLoader = 'amp.data.dataloader', mnist = 'amp.data.mnist',
}

local M = {}

return setmetatable(M, {__index = function(_, name)
  local value
  if name == 'idx' then value = require('amp.data.idx').read
  elseif files[name] then value = require(files[name])
  elseif type(name) == 'string' and name:match('^%u') then
    local util = require 'amp.util'
    require('amp.error').throw('data', "no class '%s'%s", name, util.hint(name, util.keys(files)))
  end
  M[name] = value
  return value
end})

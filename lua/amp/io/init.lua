--- amp.io: files of tensors. amp.save and amp.load are its checkpoints.
local files = {safetensors = 'amp.io.safetensors', json = 'amp.io.json'}

local M = {}

function M.save(...) return require('amp.io.checkpoint').save(...) end
function M.load(...) return require('amp.io.checkpoint').load(...) end

return setmetatable(M, {__index = function(_, name)
  if not files[name] then return nil end
  local value = require(files[name])
  M[name] = value
  return value
end})

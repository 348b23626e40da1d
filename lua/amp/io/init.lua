--- amp.io: files of tensors. amp.save and amp.load are its checkpoints.
local files = {safetensors = 'amp.io.safetensors', json = 'amp.io.json'}
local functions = {load_npy = 'amp.io.npy', save_npy = 'amp.io.npy', load_npz = 'amp.io.npz', save_npz = 'amp.io.npz'}

local M = {}

function M.save(...) return require('amp.io.checkpoint').save(...) end
function M.load(...) return require('amp.io.checkpoint').load(...) end

return setmetatable(M, {__index = function(_, name)
  local value = functions[name] and require(functions[name])[name] or files[name] and require(files[name])
  M[name] = value
  return value
end})

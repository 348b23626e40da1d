--- amp.io: files of tensors. amp.save and amp.load are its checkpoints.
local files = {safetensors = 'amp.io.safetensors', json = 'amp.io.json', onnx = 'amp.io.onnx'}
local functions = {load_npy = 'amp.io.npy', save_npy = 'amp.io.npy', load_npz = 'amp.io.npz', save_npz = 'amp.io.npz',
  load_pt = 'amp.io.pt', save_pt = 'amp.io.pt_write'}

local M = {}

--- save(path, value): tables, numbers, strings and tensors, written atomically with a checksum. See amp/io/checkpoint.lua.
function M.save(...) return require('amp.io.checkpoint').save(...) end
--- load(path, {map_location}): what amp.save wrote; no code is run. See amp/io/checkpoint.lua.
function M.load(...) return require('amp.io.checkpoint').load(...) end

--- rename(state, rules): the tensors of a state dict under other names. See amp/io/rename.lua.
function M.rename(...) return require 'amp.io.rename'(...) end

return setmetatable(M, {__index = function(_, name)
  local value = functions[name] and require(functions[name])[name] or files[name] and require(files[name])
  if value == nil and type(name) == 'string' and name:sub(1, 1) ~= '_' then
    local util = require 'amp.util'
    local known = util.keys(functions)
    for _, t in ipairs {files, M} do
      for k in pairs(t) do known[#known + 1] = k end
    end
    require('amp.error').throw_code('name', 'io', "it has no '%s'%s", name, util.hint(name, known))
  end
  M[name] = value
  return value
end})

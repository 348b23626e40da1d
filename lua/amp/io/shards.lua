--- safetensors in several files that model.safetensors.index.json names, read as one.
local err = require 'amp.error'
local next_key = require('amp.core.keys').next
local file = require 'amp.io.file'
local json = require 'amp.io.json'
local memory = require 'amp.io.memory'

local M = {}
local Shards = {}
Shards.__index = Shards

--- Open an index: an object like that of one file; each shard is opened when a tensor of it is asked for.
-- @param open what opens one file: open(op, path, options)
function M.open(op, path, given, open)
  local text, why = file.text(path)
  if not text then err.throw(op, "cannot read '%s': %s", path, why) end
  local index
  index, why = json.decode(text)
  local map = type(index) == 'table' and index.weight_map
  if type(map) ~= 'table' then err.throw(op, "'%s': %s", path, why or 'it has no weight_map of tensors to files') end
  local folder, names, checked = path:match '^(.*/)' or '', {}, {}
  for name, shard in pairs(map) do
    if type(name) ~= 'string' or type(shard) ~= 'string' or shard:find('/', 1, true) or shard == '..' then
      err.throw(op, "'%s': the file of '%s' must stand beside the index", path, memory.show(name))
    end
    names[#names + 1] = name
    if not checked[shard] then
      local f
      f, why = file.open(folder .. shard)
      if not f then err.throw(op, "'%s' names the shard '%s', which cannot be read: %s", path, memory.show(shard), why) end
      f:close()
      checked[shard] = true
    end
  end
  table.sort(names, function(a, b)
    if map[a] ~= map[b] then return map[a] < map[b] end
    return a < b
  end)
  local metadata = type(index.metadata) == 'table' and index.metadata or {}
  return setmetatable({ path = path, folder = folder, map = map, list = names, given = given, opener = open, metadata = metadata }, Shards)
end

--- Names of all tensors, shard after shard.
function Shards:names() return { unpack(self.list) } end

--- One tensor, on the CPU.
function Shards:get(name)
  local shard = self.map[name]
  if not shard then err.throw('io.safetensors', "there is no tensor '%s' in '%s'", tostring(name), self.path) end
  if self.current ~= shard then
    self:close()
    self.current, self.file = shard, self.opener('io.safetensors', self.folder .. shard, self.given)
  end
  return self.file:get(name)
end

--- Close; twice is harmless.
function Shards:close()
  if self.file then self.file:close() end
  self.file, self.current = nil, nil
end

--- All tensors of all shards, and the index's metadata.
function M.load(op, path, given, open)
  local f = M.open(op, path, given, open)
  local out, foreign = {}, {}
  for _, name in ipairs(f.list) do
    local ok, t = pcall(f.get, f, name)
    if ok then out[name] = t
    elseif tostring(t):find('a dtype that amp has not', 1, true) then foreign[name] = t.message
    else
      f:close()
      error(t, 0)
    end
  end
  f:close()
  if next_key(foreign) then
    setmetatable(out, { __index = function(_, name)
      if foreign[name] then err.throw(op, '%s', foreign[name]) end
    end })
  end
  return out, f.metadata
end

return M

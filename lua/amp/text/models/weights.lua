--- Published weights into a model: safetensors, one file or shards with an index, or pytorch_model.bin. Each tensor is read for
-- itself and becomes the parameter's memory, or is copied into it on another device or dtype, so nothing lies in memory twice.
-- @module amp.text.models.weights
local amp = require 'amp'
local config = require 'amp.text.models.config'
local err = require 'amp.error'
local util = require 'amp.util'

local M = {}

-- -- Files ------------------------------------------------------------------------------------

-- Name -> file of an index; every shard must be there.
local function indexed(op, dir, name)
  local path = dir .. '/' .. name
  local map = config.json(op, path).weight_map
  if type(map) ~= 'table' then err.throw(op, "'%s' has no weight_map", path) end
  local missing, seen = {}, {}
  for key, shard in pairs(map) do
    if type(shard) ~= 'string' or shard:find('/', 1, true) then
      err.throw(op, "'%s' says that '%s' lies in %s; a file beside the index is expected", path, key, util.show(shard))
    end
    if not seen[shard] then
      seen[shard] = true
      if not config.exists(dir .. '/' .. shard) then missing[#missing + 1] = shard end
    end
  end
  if #missing > 0 then
    table.sort(missing)
    err.throw(op, "'%s' names %s, which %s not in '%s': fetch the folder's missing shards", path, table.concat(missing, ', '),
      #missing == 1 and 'is' or 'are', dir)
  end
  return map
end

-- A source: names(), get(name) (a tensor on the CPU) and where(name), the file.
local function from_safetensors(dir, map, single)
  local safetensors = require 'amp.io.safetensors'
  local current, file
  local function open(shard)
    if current ~= shard then
      if file then file:close() end
      current, file = shard, safetensors.open(dir .. '/' .. shard)
    end
    return file
  end
  local source = {}
  function source.names()
    local out = {}
    if map then
      for name in pairs(map) do out[#out + 1] = name end
      table.sort(out, function(a, b) -- shard after shard: each is opened once
        if map[a] ~= map[b] then return map[a] < map[b] end
        return a < b
      end)
      return out
    end
    return open(single):names()
  end
  function source.where(name) return dir .. '/' .. (map and map[name] or single) end
  function source.get(name) return open(map and map[name] or single):get(name) end
  function source.close() if file then file:close() end end
  return source
end

-- Of PyTorch's files, one or several; a shard's tensors are dropped when the next one is read.
local function from_pt(dir, map, single)
  local load_pt = require('amp.io').load_pt
  local current, state
  local function open(shard)
    if current ~= shard then current, state = shard, load_pt(dir .. '/' .. shard) end
    return state
  end
  local source = {}
  function source.names()
    local out = {}
    for name, v in pairs(map or open(single)) do
      if map or amp.is_tensor(v) then out[#out + 1] = name end
    end
    table.sort(out, function(a, b)
      if map and map[a] ~= map[b] then return map[a] < map[b] end
      return a < b
    end)
    return out
  end
  function source.where(name) return dir .. '/' .. (map and map[name] or single) end
  function source.get(name)
    local t = open(map and map[name] or single)[name]
    state[name] = nil
    return t
  end
  function source.close() state = nil end
  return source
end

--- The weights of a folder.
-- @raise where there are none, or a shard is missing: names the folder and what was looked for
function M.open(op, dir)
  local function there(name) return config.exists(dir .. '/' .. name) end
  if there 'model.safetensors' then return from_safetensors(dir, nil, 'model.safetensors') end
  if there 'model.safetensors.index.json' then return from_safetensors(dir, indexed(op, dir, 'model.safetensors.index.json')) end
  if there 'pytorch_model.bin' then return from_pt(dir, nil, 'pytorch_model.bin') end
  if there 'pytorch_model.bin.index.json' then return from_pt(dir, indexed(op, dir, 'pytorch_model.bin.index.json')) end
  err.throw(op, "there are no weights in '%s': model.safetensors, model.safetensors.index.json with its shards, pytorch_model.bin or "
    .. 'pytorch_model.bin.index.json is expected', dir)
end

-- -- Into a model -------------------------------------------------------------------------------

local function shown(list)
  table.sort(list)
  local out = {}
  for i = 1, math.min(#list, 6) do out[i] = "'" .. list[i] .. "'" end
  if #list > 6 then out[7] = ('and %d more'):format(#list - 6) end
  return table.concat(out, ', ')
end

-- One value into its parameter.
local function put(op, source, name, p, value, turned)
  if turned and value:dim() == 2 then value = value:t() end
  if util.shape(value.shape) ~= util.shape(p.shape) then
    err.throw(op, "'%s' of '%s' is of shape %s, and config.json makes it %s", name, source.where(name), util.shape(value.shape), util.shape(p.shape))
  end
  if p.device == 'cpu' and value.dtype == p.dtype and value:is_contiguous() then
    p:set_data(value)
    return
  end
  p:detach():copy_(value)
  value:free()
end

--- Fill a model's parameters.
-- @tparam string op
-- @tparam nn.Module model
-- @tparam table source see open
-- @tparam table rules {name = function(key) gives the parameter's name, nil for what the model has no place for; turned = function(name)
-- says whether the file has the transposed weight; optional = function(name)}
function M.fill(op, model, source, rules)
  local missing, strange = {}, {}
  local own, filled = {}, {}
  for name, p in model:named_parameters() do own[name] = p end
  amp.no_grad(function()
    for _, key in ipairs(source.names()) do
      local name = rules.name(key)
      local p = name and own[name]
      if p and not filled[p:id()] then
        filled[p:id()] = true
        put(op, source, key, p, source.get(key), rules.turned and rules.turned(name))
      elseif name and not p then
        strange[#strange + 1] = key
      end
    end
  end)
  local absent = {}
  for name, p in pairs(own) do
    if not filled[p:id()] then
      if rules.optional and rules.optional(name) then absent[#absent + 1] = name else missing[#missing + 1] = name end
    end
  end
  source.close()
  if #missing > 0 then
    err.throw(op, "the weights of '%s' lack %s%s", rules.dir, shown(missing),
      #strange > 0 and '; they have ' .. shown(strange) .. ', which the model has not' or '')
  end
  if #strange > 0 then
    require('amp.core.warn').once(("%s: '%s' has %s, which the model has no place for"):format(op, rules.dir, shown(strange)), 'strange weights ' .. rules.dir)
  end
  return absent
end

return M

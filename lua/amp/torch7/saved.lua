--- Modules of amp in files of torch.save: a tree of tables, {['amp.module'] = class, values, kinds, names}, made a module again by torch.load.
local amp = require 'amp'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw

local M = {}
local KEY = 'amp.module'

--- Does a value hold a module, itself or in nested tables?
function M.holds_module(v, seen)
  seen = seen or {}
  if type(v) ~= 'table' or seen[v] then return false end
  if Module.is_module(v) then return true end
  seen[v] = true
  for _, x in pairs(v) do
    if M.holds_module(x, seen) then return true end
  end
  return false
end

--- The value with its modules as plain tables.
function M.plain(v, seen)
  seen = seen or {}
  if amp.is_tensor(v) or type(v) ~= 'table' then return type(v) ~= 'function' and v or nil end
  if seen[v] then return seen[v] end
  local out = {}
  seen[v] = out
  if not Module.is_module(v) then
    for k, x in pairs(v) do out[k] = M.plain(x, seen) end
    return out
  end
  out[KEY] = v.__name
  out.values, out.kinds, out.names = {}, {}, {unpack(rawget(v, '.names'))}
  for k, kind in pairs(rawget(v, '.kinds')) do out.kinds[k] = kind end
  for k, x in pairs(rawget(v, '.values')) do
    if k ~= 'modules' then out.values[k] = M.plain(x, seen) end
  end
  out.count = rawget(v, '.count')
  return out
end

local function class_of(name)
  local nn = require 'amp.torch7.nn'
  local short = name:match '^nn%.(%w+)$'
  local class = short and rawget(nn, short)
  if type(class) ~= 'table' or not class.__instance then class = short and amp.nn[short] end
  if not class then raise('torch7.load', "there is no class '%s'", name) end
  return class
end

--- Modules again from plain tables.
function M.modules(v, seen)
  seen = seen or {}
  if amp.is_tensor(v) or type(v) ~= 'table' then return v end
  if seen[v] ~= nil then return seen[v] end
  local name = rawget(v, KEY)
  if type(name) ~= 'string' then
    seen[v] = v
    for k, x in pairs(v) do v[k] = M.modules(x, seen) end
    return v
  end
  local values = {}
  local self = setmetatable({['.values'] = values, ['.kinds'] = v.kinds, ['.names'] = v.names, ['.count'] = v.count}, class_of(name).__instance)
  seen[v] = self
  for k, x in pairs(v.values) do
    local y = M.modules(x, seen)
    if v.kinds[k] == 'parameter' and amp.is_tensor(y) then
      y = y:detach()
      y.requires_grad = true
    end
    values[k] = y
  end
  if self.relist then self:relist() end
  return self
end

return M

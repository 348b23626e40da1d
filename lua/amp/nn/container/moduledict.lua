--- nn.ModuleDict: registered modules by name, without a forward of its own.
-- The modules lie in the object itself, so `dict.name`, `dict.name = module`, `dict.name = nil` and `pairs(dict)` of Lua
-- see them and nothing else; `dict:pairs()` goes through them in the order in which they were added.
local List = require 'amp.nn.container.list'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw
local util = require 'amp.util'

local ModuleDict = Module:extend('nn.ModuleDict')
rawset(ModuleDict, 'container', true)

rawset(ModuleDict, 'get_from', function(values, class)
  return function(_, key)
    local v = values[key]
    if v ~= nil then return v end
    return class[key]
  end
end)

local function order(self)
  local at = getmetatable(self)
  at['.order'] = at['.order'] or {}
  return at['.order']
end

-- Assignment to a name that is not there yet.
rawset(ModuleDict, 'put', function(self, name, module)
  if not Module.is_module(module) then return Module.assign(self, name, module) end
  local class = getmetatable(self).class
  Module.check_name(class.__name, name)
  if class[name] ~= nil or name == 'training' then raise(class.__name, "'%s' is the name of a method or field of nn.Module", name) end
  local list = order(self)
  for i = #list, 1, -1 do
    if list[i] == name then table.remove(list, i) end -- taken away before
  end
  list[#list + 1] = name
  rawset(self, name, module)
end)

--- Make a dictionary.
-- @tparam ?table modules name -> nn.Module; added in the order of their names
-- @usage local heads = nn.ModuleDict{digits = nn.Linear(64, 10), sign = nn.Linear(64, 2)}
function ModuleDict:init(modules)
  if type(modules) ~= 'nil' and type(modules) ~= 'table' then raise('nn.ModuleDict', 'a table name -> module expected, got %s', util.show(modules)) end
  local names = {}
  for name in pairs(modules or {}) do
    if type(name) ~= 'string' then raise('nn.ModuleDict', 'names are strings, got a %s', type(name)) end
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do self:add(name, modules[name]) end
end

--- Add a module under a name. Chainable.
function ModuleDict:add(name, module)
  Module.check_name('nn.ModuleDict', name)
  if not Module.is_module(module) then raise('nn.ModuleDict', "'%s': an nn.Module expected, got %s", name, List.word(module)) end
  self[name] = module
  return self
end

--- The module of a name.
function ModuleDict:get(name)
  local m = self[name]
  if not Module.is_module(m) then raise('nn.ModuleDict', "there is no module '%s'%s", tostring(name), util.hint(name, order(self))) end
  return m
end

-- Names and modules, in the order they were added.
function ModuleDict:items()
  local i, list = 0, order(self)
  return function()
    local m
    repeat
      i = i + 1
      if list[i] == nil then return nil end
      m = rawget(self, list[i])
      if m ~= nil and not Module.is_module(m) then raise('nn.ModuleDict', "'%s' holds no module any more, but %s", list[i], util.show(m)) end
    until m
    return list[i], m
  end
end

--- Iterate over names and modules, in the order they were added. (pairs(dict) has the same ones, in no order.)
function ModuleDict:pairs() return Module.named_children(self) end

return ModuleDict

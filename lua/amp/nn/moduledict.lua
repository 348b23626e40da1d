--- nn.ModuleDict: registered modules by name, without a forward of its own.
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw
local util = require 'amp.util'

local ModuleDict = Module:extend('nn.ModuleDict')

--- Make a dictionary.
-- @tparam ?table modules name -> nn.Module; added in the order of their names
-- @usage local heads = nn.ModuleDict{digits = nn.Linear(64, 10), sign = nn.Linear(64, 2)}
function ModuleDict:init(modules)
  if modules ~= nil and type(modules) ~= 'table' then raise('nn.ModuleDict', 'a table name -> module expected, got %s', util.show(modules)) end
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
  if not Module.is_module(module) then raise('nn.ModuleDict', "'%s': an nn.Module expected, got %s", name, type(module)) end
  if ModuleDict[name] ~= nil or name == 'training' then
    raise('nn.ModuleDict', "'%s' is the name of a method or field of nn.Module", name)
  end
  self[name] = module
  return self
end

--- The module of a name.
function ModuleDict:get(name)
  local m = self[name]
  if not Module.is_module(m) then raise('nn.ModuleDict', "there is no module '%s'", tostring(name)) end
  return m
end

--- Iterate over names and modules, in the order they were added.
function ModuleDict:pairs() return Module.named_children(self) end

return ModuleDict

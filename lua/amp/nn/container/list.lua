--- What nn.Sequential and nn.ModuleList are made of: a container of modules by place.
-- The modules lie in the object itself, at 1..n, where `ipairs`, `pairs`, `#`, `table.insert` and
-- `table.remove` of Lua find them; all else, and the raw keys of a module, is kept by its metatable. So nothing
-- that is done to the list can make it and the registration differ: the list is the registration.
-- @module amp.nn.container.list
local Module = require 'amp.nn.module'
local util = require 'amp.util'
local raise = require('amp.error').throw

local List = Module:extend('nn.List')
rawset(List, 'container', true)

local is_module = Module.is_module

local function word(v) return (type(v) == 'number' or type(v) == 'string') and ('the %s %s'):format(type(v), util.show(v)) or util.show(v) end
rawset(List, 'word', word)

-- What is no module, in words that say what to do
local function refuse(op, place, v)
  if type(v) == 'table' and rawget(v, '__instance') then
    raise(op, 'module %s: an nn.Module expected, got the class %s (call it to make an instance)', place, v.__name)
  end
  raise(op, 'module %s: an nn.Module expected, got %s', place, word(v))
end

local function whole(key) return type(key) == 'number' and key % 1 == 0 end

-- Parts with names of their own (`add(module, name)`): module -> name
local function labels(self, make)
  local at = getmetatable(self)
  if make and not at['.labels'] then at['.labels'] = setmetatable({}, {__mode = 'k'}) end
  return at['.labels']
end

rawset(List, 'get_from', function(values, class)
  return function(self, key)
    local v = values[key]
    if v ~= nil then return v end
    if type(key) == 'number' then
      local n = #self
      if whole(key) and key < 0 and key >= -n then return rawget(self, n + 1 + key) end
      if key == 0 then raise(class.__name, 'index 0: modules are counted from 1 to %d', n) end
      return nil
    end
    local names = labels(self)
    if names then
      for i = 1, #self do
        local m = rawget(self, i)
        if names[m] == key then return m end
      end
    end
    return class[key]
  end
end)

-- Assignment to a key that is not there yet.
rawset(List, 'put', function(self, key, value)
  if type(key) ~= 'number' then return Module.assign(self, key, value) end
  local op, n = getmetatable(self).class.__name, #self
  local at = key < 0 and key >= -n and n + 1 + key or key
  if not whole(key) or at < 1 or at > n + 1 then
    if value == nil and whole(key) then return end
    raise(op, 'place %s: modules are counted from 1 to %d, and [%d] = module appends one', tostring(key), n, n + 1)
  end
  if value ~= nil and not is_module(value) then refuse(op, tostring(key), value) end
  rawset(self, at, value)
end)

--- Make a list.
-- @tparam nn.Module ... modules, or one list of them, or of pairs {'name', module}; children are counted from 1
function List:init(...)
  local list, n = {...}, select('#', ...)
  if n == 1 and type(list[1]) == 'table' and not is_module(list[1]) and not rawget(list[1], '__instance') then
    list = list[1]
    n = #list
    for k in pairs(list) do
      if type(k) == 'string' then
        raise(self.__name, "parts by name, as in {%s = ...}, have no order in a Lua table; write a list of pairs: {{'%s', module}, ...}, or add(module, '%s')",
          k, k, k)
      end
    end
  end
  for i = 1, n do
    local m = list[i]
    if type(m) == 'table' and not is_module(m) and type(m[1]) == 'string' and is_module(m[2]) then self:add(m[2], m[1])
    else self:add(m) end
  end
end

--- Append a module. Chainable.
-- @tparam nn.Module module
-- @tparam ?string name its name in state dicts, and as a field, instead of its place
function List:add(module, name)
  if type(module) == 'string' and is_module(name) then module, name = name, module end
  if not is_module(module) then refuse(self.__name, #self + 1, module) end
  if name ~= nil then
    Module.check_name(self.__name, name)
    if self[name] ~= nil then raise(self.__name, "'%s' is the name of a method, a field or another part", name) end
    labels(self, true)[module] = name
  end
  rawset(self, #self + 1, module)
  return self
end

List.append = List.add

--- PyTorch's name for add(module, name).
function List:add_module(name, module) return self:add(module, name) end

--- Put a module before place i. Chainable.
function List:insert(i, module)
  local n = #self
  if not whole(i) or i < 1 or i > n + 1 then raise(self.__name, 'insert: place %s, but there are places 1 to %d', tostring(i), n + 1) end
  if not is_module(module) then refuse(self.__name, i, module) end
  table.insert(self, i, module)
  return self
end

--- Take module i (the last by default) out of the list, and give it.
function List:pop(i)
  local n = #self
  i = i or n
  if whole(i) and i < 0 then i = n + 1 + i end
  if not whole(i) or i < 1 or i > n then raise(self.__name, 'pop: index %s, but it has %d modules', tostring(i), n) end
  return table.remove(self, i)
end

--- Append all modules of a list; of a class: a class derived from it.
function List.extend(parent, what)
  if not is_module(parent) then return Module.extend(parent, what) end
  if type(what) ~= 'table' then raise(parent.__name, 'extend: a list of modules expected, got %s', util.show(what)) end
  for i = 1, #what do parent:add(what[i]) end
  return parent
end

--- Module i, negative from the end.
function List:get(i)
  local n = #self
  local at = type(i) == 'number' and i < 0 and n + 1 + i or i
  if not whole(at) or at < 1 or at > n then raise(self.__name, 'index %s, but it has %d modules', tostring(i), n) end
  return rawget(self, at)
end

--- Number of modules, as #list.
function List:size() return #self end

--- Iterate over places and modules, as ipairs(list).
function List:ipairs() return ipairs(self) end

-- Taking a module out of the middle by [i] = nil leaves a hole, where Lua's # may stop, or not.
local function check_holes(self)
  local n = #self
  for k in next, self do
    if type(k) == 'number' and k > n then
      raise(self.__name, 'place %d holds no module any more; table.remove(list, i) and list:pop(i) close the gap', n + 1)
    end
  end
end
rawset(List, 'check_holes', check_holes)

-- Names and modules, for whoever walks the tree.
function List:items()
  check_holes(self)
  local i, names = 0, labels(self)
  return function()
    local m
    repeat
      i = i + 1
      m = rawget(self, i)
      if m == nil then return nil end
      if not is_module(m) then raise(self.__name, 'place %d holds no module any more, but %s', i, util.show(m)) end
    until m
    return names and names[m] or i, m
  end
end

return List

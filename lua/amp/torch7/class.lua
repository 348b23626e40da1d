--- torch.class and its kin: classes by name with a parent, as Torch7's scripts declare them.
--
--   local A, parent = torch.class('my.A', 'my.Base')      -- my.A is made a callable in the table `my`
--   function A:__init(x) parent.__init(self) end
--   local a = my.A(5)
-- A class is the metatable of its instances, with __typename, __index and __factory.
local raise = require('amp.error').throw

local M = {classes = {}}

-- Metamethods that a class may write with two more underscores.
local special = {'add', 'sub', 'mul', 'div', 'mod', 'pow', 'unm', 'concat', 'len', 'eq', 'lt', 'le', 'call', 'tostring'}

local function looked_up(mt)
  -- the parent's metamethods are found through their __name__
  for _, name in ipairs(special) do
    local key = '__' .. name .. '__'
    mt['__' .. name] = function(a, b, ...)
      local f = type(a) == 'table' and a[key] or type(b) == 'table' and b[key]
      if f then return f(a, b, ...) end
      if name == 'tostring' then return mt.__typename end
      if name == 'eq' then return rawequal(a, b) end
      if name == 'len' then return #a end
      error(("attempt to use '%s' on an object of class %s"):format(name, mt.__typename), 2)
    end
  end
end

-- __index and __newindex of instances may be given as __index__ and __newindex__, at any time: until then a class has none of the
-- functions that ask for them. `children` of a class are told when it gets one.
local children = setmetatable({}, {__mode = 'k'})
local hooks = {
  __index__ = function(mt)
    mt.__index = function(self, key)
      local v = mt[key]
      if v ~= nil then return v end
      local get = mt.__index__ -- may be gone again
      if not get then return nil end
      local value, done = get(self, key)
      if done or value ~= nil then return value end
    end
  end,
  __newindex__ = function(mt)
    mt.__newindex = function(self, key, value)
      local set = mt.__newindex__
      if set and set(self, key, value) then return end
      rawset(self, key, value)
    end
  end,
}
local function hook(mt, key)
  hooks[key](mt)
  for _, child in ipairs(children[mt]) do hook(child, key) end
end
local function index(mt, parent_mt)
  mt.__index = mt
  children[mt] = {}
  if not parent_mt or not children[parent_mt] then return end
  table.insert(children[parent_mt], mt)
  for key in pairs(hooks) do
    if parent_mt[key] then hook(mt, key) end
  end
end
local function member(mt, key, value)
  rawset(mt, key, value)
  if hooks[key] and value ~= nil then hook(mt, key) end
end

--- A new class's metatable.
function M.newmetatable(name, parent, constructor, _, factory)
  if type(name) ~= 'string' or name == '' then raise('torch.class', "a class's name expected, got %s", type(name)) end
  if M.classes[name] then raise('torch.class', "the class '%s' is there already", name) end
  local parent_mt
  if parent ~= nil then
    parent_mt = M.classes[parent]
    if not parent_mt then raise('torch.class', "the parent class '%s' is not there", tostring(parent)) end
  end
  local mt = {__typename = name, __version = 1}
  looked_up(mt)
  index(mt, parent_mt)
  setmetatable(mt, {__index = parent_mt, __newindex = member, __call = function(_, ...) return mt.__new(...) end})
  mt.__factory = factory or function() return setmetatable({}, mt) end
  mt.__new = constructor or function(...)
    local self = mt.__factory()
    local init = mt.__init
    if init then init(self, ...) end
    return self
  end
  M.classes[name] = mt
  return mt, parent_mt
end

-- The table in which a class's constructor stands, and its name there.
local function place(name, module)
  if module then return module, name:match '([^.]+)$' end
  local at = _G
  local path, last = name:match '^(.*)%.([^.]+)$'
  if not path then return at, name end
  for part in path:gmatch '[^.]+' do
    local v = rawget(at, part)
    if v == nil then v = at[part] end
    if v == nil then
      if at == _G and M.roots and M.roots[part] then v = M.roots[part] else
        v = {}
        rawset(at, part, v)
      end
    end
    at = v
  end
  return at, last
end

--- torch.class(name, [parent], [module]): the class's table and the parent's.
function M.class(name, parent, module)
  if type(parent) == 'table' and module == nil and not parent.__typename then module, parent = parent, nil end
  if type(parent) == 'table' then parent = parent.__typename end
  local mt, parent_mt = M.newmetatable(name, parent)
  local at, last = place(name, module)
  if type(at) ~= 'table' then raise('torch.class', "'%s' is not in a table", name) end
  rawset(at, last, mt)
  return mt, parent_mt
end

--- How many jobs of workers (own/threads.lua) run now. A script's class that a worker declares once more is the one that is there.
M.workers = 0
local scripts = setmetatable({}, {__mode = 'k'})
local function again(name, parent)
  local mt = M.classes[name]
  if M.workers > 0 and mt and scripts[mt] and (parent == nil or M.classes[parent] == getmetatable(mt).__index) then return mt, getmetatable(mt).__index end
end
local function of_script(mt, ...)
  scripts[mt] = true
  return mt, ...
end
--- torch.class and torch.newmetatable for scripts.
function M.declare(name, parent, module)
  if type(parent) == 'table' and module == nil and not parent.__typename then module, parent = parent, nil end
  if type(parent) == 'table' then parent = parent.__typename end
  local mt, parent_mt = again(name, parent)
  if not mt then return of_script(M.class(name, parent, module)) end
  local at, last = place(name, module)
  rawset(at, last, mt)
  return mt, parent_mt
end
function M.declare_metatable(name, parent, ...)
  local mt, parent_mt = again(name, parent)
  if mt then return mt, parent_mt end
  return of_script(M.newmetatable(name, parent, ...))
end

--- The class's metatable by name, nil if there is none.
function M.getmetatable(name) return M.classes[name] end

--- A new instance without __init.
function M.factory(name)
  local mt = M.classes[name]
  return mt and mt.__factory
end

--- Is the object of this class, or of one derived from it? Names may be given from their last part.
function M.isTypeOf(object, name)
  local mt = type(name) == 'table' and name or M.classes[name]
  local at = getmetatable(object)
  while type(at) == 'table' do
    if at == mt then return true end
    if type(name) == 'string' and at.__typename then
      if at.__typename == name or at.__typename:sub(-#name - 1) == '.' .. name then return true end
    end
    local up = getmetatable(at)
    at = up and up.__index
  end
  return false
end

return M

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

-- __index and __newindex of instances may be given as __index__ and __newindex__.
local function index(mt)
  mt.__index = function(self, key)
    local v = mt[key]
    if v ~= nil then return v end
    local get = mt.__index__
    if get then
      local value, done = get(self, key)
      if done or value ~= nil then return value end
    end
  end
  mt.__newindex = function(self, key, value)
    local set = mt.__newindex__
    if set and set(self, key, value) then return end
    rawset(self, key, value)
  end
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
  index(mt)
  setmetatable(mt, {__index = parent_mt, __call = function(_, ...) return mt.__new(...) end})
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

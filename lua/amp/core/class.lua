--- Methods that know when they are called with a dot.
-- `net.parameters()` and `net:parameters()` find the same function; what differs is its first argument. A guarded
-- method looks at that argument's metatable and goes on by a tail call, so the method's own frame, and its cost, are
-- what they were; the test is a few instructions, and compiled code keeps none of it. An argument that is no instance
-- but has a method of that name (a wrapper that passes calls on, a stand-in of a test) is let through.
-- @module amp.core.class
local err = require 'amp.error'

local M = {}

-- guarded method -> the method as it was written, for help and for what must not pay for the test
local raw = setmetatable({}, { __mode = 'k' })

--- The method behind a guarded one; any other value is given back.
function M.raw(f) return raw[f] or f end

M.unwrapped = raw

local classes = setmetatable({}, { __mode = 'k' }) -- class -> its name

--- Note a table as a class, whose instances have the methods.
function M.name(class, name) classes[class] = name end

local function what(v)
  if type(v) == 'cdata' then return require('amp.tensor').is(v) and 'a tensor' or 'a cdata' end
  return require('amp.util').show(v)
end

local function complain(family, name, self)
  local label = classes[self]
  if label then
    err.throw(family.label .. ':' .. name, "'%s' is a method of what %s(...) makes; %s itself is the class: local %s = %s(...) %s:%s(...)",
      name, label, label, family.var, label, family.var, name)
  end
  local holder = err.receiver(name, '.')
  err.throw(family.label .. ':' .. name, "'%s' is a method and is called with a colon, not a dot: %s:%s(...) (its first argument was %s)", name,
    holder or family.var, name, what(self))
end

-- metatables of instances of any class
local known = setmetatable({}, { __mode = 'k' })

--- Note one.
function M.instance(mt) known[mt] = true end

local templates = {}

-- A guard of a function with so many parameters.
local function template(count, vararg)
  local key = count * 2 + (vararg and 1 or 0)
  if not templates[key] then
    local list = {}
    for i = 2, count do list[#list + 1] = 'p' .. i end
    if vararg then list[#list + 1] = '...' end
    local more = #list > 0 and ', ' .. table.concat(list, ', ') or ''
    templates[key] = loadstring(([[
local f, ours, stranger, getmetatable = ...
return function(self<more>)
  if ours[getmetatable(self)] then return f(self<more>) end
  stranger(self)
  return f(self<more>)
end]]):gsub('<more>', more), '=amp.method')
  end
  return templates[key]
end

--- Guard a function, if it is a method: its first parameter is called `self`.
-- @tparam function f
-- @tparam string name
-- @tparam table family {ours = metatables of instances (a set), label, var}
-- @treturn function
function M.guarded(f, name, family)
  if type(f) ~= 'function' or raw[f] or debug.getlocal(f, 1) ~= 'self' then return f end
  local info = debug.getinfo(f, 'u')
  local g
  local function stranger(self)
    local mt = type(self) == 'table' and rawequal(classes[self], nil) and getmetatable(self)
    if mt then
      local found = self[name] -- a wrapper that passes calls on finds this method; what is no object of amp's has its own
      if rawequal(found, g) or type(found) == 'function' and not known[mt] then return end
    end
    complain(family, name, self)
  end
  for mt in pairs(family.ours) do known[mt] = true end
  g = template(info.nparams, info.isvararg)(f, family.ours, stranger, getmetatable)
  raw[g] = f
  return g
end

--- Guard the methods that stand in a table.
-- @tparam table methods
-- @tparam string label how the class is called, without "amp."
-- @tparam string var how an instance may be called in an example
-- @param ... metatables of instances; none: `methods` is it
-- @treturn table methods
-- @treturn table the family: more metatables of instances go into its `ours`
function M.guard(methods, label, var, ...)
  local family = { ours = {}, label = label, var = var }
  local n = select('#', ...)
  for i = 1, n do family.ours[(select(i, ...))] = true end
  if n == 0 then family.ours[methods] = true end
  for name, f in pairs(methods) do
    if type(name) == 'string' and name:sub(1, 1) ~= '_' then methods[name] = M.guarded(f, name, family) end
  end
  classes[methods] = classes[methods] or label
  return methods, family
end

return M

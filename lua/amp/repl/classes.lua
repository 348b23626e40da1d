--- Where the instances of a class find their methods. A class is a module of amp.nn, or a
-- table that can be called, whose constructor sets a metatable.
-- @module amp.repl.classes
local calls = require 'amp.repl.calls'

local M = {}

-- What a metatable looks methods up in: a table, or one that its function looks into
local function index_of(mt)
  local index = rawget(mt, '__index')
  if type(index) == 'table' then return index end
  for i = 1, type(index) == 'function' and 60 or 0 do
    local name, t = debug.getupvalue(index, i)
    if not name then return nil end
    if name:find '^%u%w' and type(t) == 'table' then return t end
  end
end

-- The same, of what a constructor has in its upvalues
local function made_by(f, v, deep)
  for i = 1, 60 do
    local name, t = debug.getupvalue(f, i)
    if not name then return nil end
    if type(t) == 'table' and t ~= v and (name == 'mt' or name:find '^%u%w') then
      local index = index_of(t)
      if index then return index end
      if name ~= 'mt' then
        for _, g in next, t do
          if type(g) == 'function' then return t end
        end
      end
    elseif name == 'new' and type(t) == 'function' and deep then
      local index = made_by(t, v)
      if index then return index end
    end
  end
end

--- The table in which the instances of a class find their methods.
-- @tparam table v
-- @treturn table the class itself, where it has them or nothing is known
function M.methods(v)
  if type(rawget(v, 'class')) == 'table' then return v.class end
  if rawget(v, '__name') and type(v.init) == 'function' or rawget(v, '__index') == v then return v end
  local f = calls.constructor(v)
  return f and made_by(f, v, true) or v
end

return M

--- amp.strict(): names that nobody has defined are errors.
-- A misspelt variable is a global in Lua, whose value is nil; here reading one is an error that says what may have been
-- meant, and a function that assigns to one which the program's outermost level never set is an error as well.
-- `rawget(_G, name)` and `rawset(_G, name, value)` ask and set without being asked.
-- @module amp.strict
local err = require 'amp.error'

local M = {}

local on = false
local declared = {}
local before -- the metatable that _G had

local function known_names()
  local list, seen = {}, {}
  for k in next, _G do
    if type(k) == 'string' then list[#list + 1], seen[k] = k, true end
  end
  for level = 3, 30 do -- variables of the functions that are running: a misspelt local is a global
    local info = debug.getinfo(level, 'S')
    if not info then break end
    if info.what ~= 'C' and not err.own(info.source) then
      for i = 1, 200 do
        local name = debug.getlocal(level, i)
        if not name then break end
        if not seen[name] and name:find '^[%a_]' then list[#list + 1], seen[name] = name, true end
      end
    end
  end
  return list
end

-- What runs the assignment or look-up: a main chunk, C, or a function.
local function what()
  for level = 3, 30 do
    local info = debug.getinfo(level, 'S')
    if not info then return 'C' end
    if info.what == 'C' or not err.own(info.source) then return info.what end
  end
end

local function read(t, k)
  if before then
    local index = before.__index
    local v
    if type(index) == 'function' then v = index(t, k) elseif type(index) == 'table' then v = index[k] end
    if v ~= nil then return v end
  end
  if declared[k] or type(k) ~= 'string' then return nil end
  local habits = require 'amp.core.habits'
  err.throw_code('state', 'strict', "the variable '%s' is not defined%s", k, habits.hint(habits.globals, k, known_names()))
end

local function write(t, k, v)
  if type(k) == 'string' and not declared[k] and what() == 'Lua' then
    err.throw_code('state', 'strict', "a function assigns to '%s', which is no variable of the program%s; write local %s = ..., or set %s at the "
      .. 'outermost level', k, require('amp.util').hint(k, known_names()), k, k)
  end
  declared[k] = true
  local set = before and before.__newindex
  if type(set) == 'function' then set(t, k, v) elseif type(set) == 'table' then set[k] = v else rawset(t, k, v) end
end

--- Make undefined globals errors, or stop it. Reading one is an error everywhere; assigning one for the first time is an
-- error inside a function (at the outermost level of a file it defines the variable). Comparing a tensor with a number by
-- ==, which is never true, is an error as well then.
-- @tparam ?boolean switch default true
-- @usage amp.strict()
function M.strict(switch)
  if switch == nil then switch = true end
  if type(switch) ~= 'boolean' then err.throw('strict', 'true or false is expected, got %s', require('amp.util').show(switch)) end
  if switch == on then return end
  on = switch
  require('amp.tensor').strict = switch
  if switch then
    before = getmetatable(_G)
    local mt = {}
    for k, v in pairs(before or {}) do mt[k] = v end
    mt.__index, mt.__newindex = read, write
    setmetatable(_G, mt)
  else
    setmetatable(_G, before)
    before = nil
  end
end

return M

--- Names for parameters: 'net.3.weight' for what a local variable `net` holds.
-- Modules are looked for where a user keeps them: in what the caller gives, in a function's
-- upvalues, in locals of the functions running, in globals.
-- @module amp.tools.names
local ffi = require 'ffi'
local core = require 'amp.ffi'
local istype, ref_t = ffi.istype, core.ref_t

local M = {}

local DEEP = 4 -- tables and functions within each other

local function is_module(v)
  local module = package.loaded['amp.nn.module']
  return module and module.is_module(v)
end

local function join(a, b) return a == '' and b or b == '' and a or a .. '.' .. b end

local visit

local function upvalues(fn, map, seen, depth)
  for i = 1, 250 do
    local name, v = debug.getupvalue(fn, i)
    if name == nil then break end
    visit(v, name, map, seen, depth + 1)
  end
end

visit = function(v, name, map, seen, depth)
  if rawequal(v, ref_t) then return end -- the type itself
  if istype(ref_t, v) then
    if v.ptr_ ~= nil and v.requires_grad and v.is_leaf then
      local id = tonumber(v.ptr_.id)
      map[id] = map[id] or { name = name, tensor = v }
    end
    return
  end
  if (type(v) ~= 'table' and type(v) ~= 'function') or seen[v] or depth > DEEP then return end
  seen[v] = true
  if is_module(v) then
    for n, p in v:named_parameters() do
      local id = tonumber(p.ptr_.id)
      map[id] = map[id] or { name = join(name, n), tensor = p, module = v }
    end
  elseif type(v) == 'function' then
    local compile = package.loaded['amp.graph.compile']
    local cache = compile and compile.cache_of(v)
    if cache then return visit(cache.fn, name, map, seen, depth) end
    local info = debug.getinfo(v, 'S')
    if info.what ~= 'C' and not require('amp.error').own(info.source) then upvalues(v, map, seen, depth) end
  elseif getmetatable(v) == nil then
    for k, x in next, v do
      if type(k) == 'string' or type(k) == 'number' then visit(x, join(name, tostring(k)), map, seen, depth + 1) end
    end
  end
end

--- Parameters by id: {name, tensor}.
-- @tparam ?function fn whose upvalues are looked at
-- @tparam ?table given name -> value to look at first ('net' -> module, or a list of modules)
-- @tparam ?boolean stack look at the locals of running functions too
-- @treturn table id -> {name, tensor, module}
function M.collect(fn, given, stack)
  local observer = require 'amp.tools.observer'
  local map, seen = {}, {}
  for name, v in pairs(given or {}) do visit(v, name, map, seen, 0) end
  if type(fn) == 'function' then
    seen[fn] = true
    upvalues(fn, map, seen, 0)
  end
  for level = 2, stack and 200 or 1 do
    local info = debug.getinfo(level, 'Sf')
    if info == nil then break end
    if observer.is_listening(level, info.func) then break end -- what is further out is not observed
    if info.what ~= 'C' and not require('amp.error').own(info.source) then
      for i = 1, 200 do
        local name, v = debug.getlocal(level, i)
        if name == nil then break end
        if name:sub(1, 1) ~= '(' then visit(v, name, map, seen, 1) end
      end
      upvalues(info.func, map, seen, 1)
    end
  end
  for name, v in next, _G do
    if is_module(v) then visit(v, tostring(name), map, seen, 0) end
  end
  return map
end

return M

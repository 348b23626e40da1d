--- Graphs that a function uses: compiled functions, hybridized modules and graphs in its upvalues.
-- @module amp.graph.found
local report = require 'amp.graph.report'

local DEEP = 4 -- functions and tables within each other

local visit

local function of_cache(cache, name, list)
  for i, entry in ipairs(cache.entries) do
    local label = #cache.entries > 1 and ('%s (%d)'):format(name, i) or name
    if entry.graph and not entry.eager then list[#list + 1] = {name = label, report = report(entry.graph)}
    elseif entry.eager then list[#list + 1] = {name = label, why = entry.why or 'there was no room for another set of shapes'} end
  end
end

local function upvalues(fn, list, seen, depth)
  for i = 1, 250 do
    local name, v = debug.getupvalue(fn, i)
    if name == nil then break end
    visit(v, name, list, seen, depth + 1)
  end
end

local function of_module(m, name, list, seen)
  local Module = require 'amp.nn.module'
  for path, part in m:named_modules() do
    local cache = Module.raw_key(part, '.graphs')
    if cache and not seen[cache] then
      seen[cache] = true
      of_cache(cache, path == '' and name or name .. '.' .. path, list)
    end
  end
end

local function of_function(f, name, list, seen, depth)
  local compile = package.loaded['amp.graph.compile']
  local cache = compile and compile.cache_of(f)
  if cache then return of_cache(cache, name, list) end
  local info = debug.getinfo(f, 'S')
  if info.what ~= 'C' and not require('amp.error').own(info.source) then upvalues(f, list, seen, depth) end
end

visit = function(v, name, list, seen, depth)
  local kind = type(v)
  if kind ~= 'table' and kind ~= 'function' or seen[v] or depth > DEEP then return end
  seen[v] = true
  local Module = package.loaded['amp.nn.module']
  if kind == 'function' then of_function(v, name, list, seen, depth)
  elseif require('amp.graph').is(v) then list[#list + 1] = {name = name, report = report(v)}
  elseif Module and Module.is_module(v) then of_module(v, name, list, seen)
  elseif getmetatable(v) == nil then
    for k, x in next, v do
      if type(k) == 'string' or type(k) == 'number' then visit(x, name .. '.' .. tostring(k), list, seen, depth + 1) end
    end
  end
end

--- The list of them.
-- @tparam function fn
-- @treturn table list of {name, report (amp.graph.report)} or {name, why}: why what was to be a graph runs eagerly
return function(fn)
  local list = {}
  visit(fn, 'the function', list, {}, 0)
  return list
end

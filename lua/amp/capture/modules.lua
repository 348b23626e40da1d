--- Calls of modules inside a captured step run as optimized graphs (amp.graph.compile).
--
-- A step's own code runs at each call on a CPU, so nothing of what it does may go missing. So only modules made of amp's own
-- layers alone are taken, which compute and do nothing else: no hooks, no functions from outside, no classes of the user's.
-- Of others the parts are looked at when they are called. What can't be traced runs as it is.
-- @module amp.capture.modules
local region = require 'amp.core.region'
local next_key = require('amp.core.keys').next
local Module = require 'amp.nn.module'
local unwrapped = require('amp.core.class').unwrapped
local C, S = require('amp.ffi').C, require('amp.ffi').S

local inside, raw = Module.inside, Module.raw_key
local root = debug.getinfo(1, 'S').source:match '^(@.*)capture/modules%.lua$'

local M = {}

-- Is the function from amp's own files?
local function ours(fn)
  fn = unwrapped[fn] or fn
  return root ~= nil and debug.getinfo(fn, 'S').source:sub(1, #root) == root
end

local function plain(m)
  if raw(m, '.hooks') or raw(m, '.hybrid') or type(m.forward) ~= 'function' or not ours(m.forward) then return false end
  local nn = require 'amp.nn'
  local class = Module.inside(m) == m and getmetatable(m).class or raw(m, 'class')
  local name = class.__name:match '^nn%.(%w+)$'
  if not name or rawget(nn, name) ~= class then return false end
  for _, v in next, raw(m, '.values') do
    if type(v) == 'function' and not ours(v) then return false end
  end
  return true
end

local function all_plain(module)
  for _, m in module:named_modules() do
    if not Module.is_module(m) or not plain(m) then return false end
  end
  return next_key(module:children()) ~= nil
end

-- The places of all containers in a module, which nothing counts: a list of module, places.
local function containers(module)
  local list = {}
  for _, m in module:named_modules() do
    if inside(m) ~= m then
      local places = {}
      for key, v in next, m do places[key] = v end
      list[#list + 1] = {module = m, places = places}
    end
  end
  return list
end

local function stands(list)
  for i = 1, #list do
    local m, places = list[i].module, list[i].places
    for key, v in next, places do
      if not rawequal(rawget(m, key), v) then return false end
    end
    for key in next, m do
      if places[key] == nil then return false end
    end
  end
  return true
end

-- The module's graphs; false: it has none.
local function graphs_of(module)
  local at = inside(module)
  local known = rawget(at, '.captured')
  if known and known.changes == Module.changes() and stands(known.containers) then return known.cache end
  local good = all_plain(module)
  local cache = good and (known and known.cache or require('amp.graph.compile').Cache.quiet('capture', module))
  rawset(at, '.captured', {changes = Module.changes(), containers = containers(module), cache = cache})
  return cache
end

local function call(self, hooks, forward, ...)
  if hooks or C.amp_graph_recording(S) ~= 0 then return Module.accompanied(self, hooks, forward, ...) end
  local cache = graphs_of(self)
  if cache then return cache:run(...) end
  return forward(self, ...)
end

local standing = region.kind(function() end, function(rec)
  if rec.within then return end
  rec.outer, rec.within = Module.stand_in(call), true
end, nil, function(rec)
  if not rec.within then return end
  rec.within = false
  Module.stand_in(rec.outer)
end)

--- fn(...), in which calls of modules run as graphs.
function M.run(fn, ...)
  if Module.watched() then return fn(...) end
  region.here()
  return region.run(standing, {}, fn, ...)
end

return M

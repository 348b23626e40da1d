--- Tensors in nested tables: in a fixed order, replaced one by one, or left out.
-- Tables with a metatable are somebody's objects and are not entered; a table that comes
-- twice is entered once.
-- @module amp.core.nested
local ffi = require 'ffi'
local core = require 'amp.ffi'
local ref_t = core.ref_t
local istype = ffi.istype

local M = {}

-- Keys in an order that is the same each time.
local function before(a, b)
  local ta, tb = type(a), type(b)
  if ta == tb and (ta == 'number' or ta == 'string') then return a < b end
  return ta < tb
end

local function ordered(t)
  local keys = {}
  for k in pairs(t) do keys[#keys + 1] = k end
  table.sort(keys, before)
  return keys
end

-- Append the tensors in v to flat, in a fixed order.
local function collect(v, flat, seen)
  if istype(ref_t, v) then
    flat[#flat + 1] = v
  elseif type(v) == 'table' and getmetatable(v) == nil and not seen[v] then
    seen[v] = true
    local keys = ordered(v)
    for i = 1, #keys do collect(v[keys[i]], flat, seen) end
  end
end

local function flatten(args)
  local flat, seen = {}, {}
  for i = 1, args.n do collect(args[i], flat, seen) end
  return flat
end

-- The same nesting with each tensor replaced by the next of a list (nil: dropped).
local function rebuild(v, list, at, seen)
  if istype(ref_t, v) then
    at[1] = at[1] + 1
    return list[at[1]]
  end
  if type(v) ~= 'table' or getmetatable(v) ~= nil then return nil end
  if seen[v] then return seen[v] end
  local copy, keys = {}, ordered(v)
  seen[v] = copy
  for i = 1, #keys do copy[keys[i]] = rebuild(v[keys[i]], list, at, seen) end
  return copy
end

-- Arguments as backward has to know them: nesting only, with placeholders for tensors that
-- are not held. The marker is one empty handle.
local marker = ref_t()
local function outline(v, seen)
  if istype(ref_t, v) then return marker end
  if type(v) ~= 'table' or getmetatable(v) ~= nil then return false end
  if seen[v] then return false end
  seen[v] = true
  local copy = {}
  for k, x in pairs(v) do copy[k] = outline(x, seen) end
  return copy
end

local function outlines(list)
  local out, seen = { n = list.n }, {}
  for i = 1, list.n do out[i] = outline(list[i], seen) end
  return out
end

local function map(f, v, seen)
  if istype(ref_t, v) then return f(v) end
  if type(v) ~= 'table' or getmetatable(v) ~= nil then return v end
  if seen[v] then return seen[v] end
  local copy = {}
  seen[v] = copy
  for k, x in pairs(v) do copy[k] = map(f, x, seen) end
  return copy
end

--- A copy of a list with field n in which f has replaced every tensor.
function M.map(f, list)
  local out, seen = { n = list.n }, {}
  for i = 1, list.n do out[i] = map(f, list[i], seen) end
  return out
end

M.ordered, M.collect, M.flatten, M.rebuild, M.outlines = ordered, collect, flatten, rebuild, outlines

return M

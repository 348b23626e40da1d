--- Small helpers that know of tensors only what they are called.
-- @module amp.util
local next_key = require('amp.core.keys').next
local M = {}

--- Number of edits (insert, delete, replace, swap of neighbours) from a to b.
-- @tparam string a
-- @tparam string b
-- @treturn number edits
local function edits(a, b)
  local before, prev = {}, {}
  for j = 0, #b do prev[j] = j end
  for i = 1, #a do
    local row = { [0] = i }
    local ca = a:byte(i)
    for j = 1, #b do
      local cb = b:byte(j)
      local d = math.min(prev[j] + 1, row[j - 1] + 1, prev[j - 1] + (ca == cb and 0 or 1.2))
      if i > 1 and j > 1 and ca == b:byte(j - 1) and a:byte(i - 1) == cb then
        d = math.min(d, before[j - 2] + 1)
      end
      row[j] = d
    end
    before, prev = prev, row
  end
  return prev[#b]
end
M.edits = edits

--- The candidate nearest to a mistyped name, or nil when none is near.
-- @tparam string name
-- @tparam table candidates list of strings
-- @treturn ?string closest
-- @usage util.closest('sie', { 'dim', 'size' })  --> 'size'
function M.closest(name, candidates)
  local best, best_d
  local function nearer(c) -- of two equally near ones
    local a, b = edits(name, c), edits(name, best)
    return a < b or a == b and c < best
  end
  local limit = math.max(#name < 4 and 1 or 1.2, math.floor(#name / 2.5)) -- 1.2: one letter for another
  local lower = name:lower()
  for i = 1, #candidates do
    local c = candidates[i]
    if math.abs(#c - #name) <= limit then
      local d = edits(lower, c:lower())
      if d <= limit and (best == nil or d < best_d or d == best_d and nearer(c)) then best, best_d = c, d end
    end
  end
  return best
end

--- ", did you mean 'x'?" or an empty string.
-- @tparam string name
-- @tparam table candidates list of strings
-- @treturn string hint
function M.hint(name, candidates)
  if type(name) ~= 'string' then return '' end
  local spelling = require 'amp.precision.spelling'
  local c = spelling.near(name, candidates)
  if c then return (", here it is '%s'"):format(c) end
  c = M.closest(name, candidates)
  if c then return (", did you mean '%s'?"):format(c) end
  local why = spelling.none(name)
  return why and (', leave it out: %s'):format(why) or ''
end

--- Sorted list of a table's string keys.
-- @tparam table t
-- @treturn table names
function M.keys(t)
  local names = {}
  for k in pairs(t) do
    if type(k) == 'string' then names[#names + 1] = k end
  end
  table.sort(names)
  return names
end

--- Arguments with their count, nils included.
-- @treturn table list with field n
function M.pack(...)
  return { n = select('#', ...), ... }
end

--- A value as it should appear in an error message.
-- @param v any value
-- @treturn string text
function M.show(v)
  local t = type(v)
  if t == 'string' then return "'" .. (#v > 40 and v:sub(1, 37) .. '...' or v) .. "'" end
  if t == 'number' or t == 'boolean' or t == 'nil' then return tostring(v) end
  if t == 'table' then return 'a table' end
  if t == 'function' then return 'a function' end
  if t ~= 'cdata' then return 'a ' .. t end
  local proxy = package.loaded['amp.data.proxy']
  if proxy and proxy.is(v) then return tostring(v) end -- a loader or a dataset
  local core = package.loaded['amp.ffi']
  return core and core.ref_t and core.is_ref(v) and 'a tensor' or 'a cdata'
end

--- The type of a value as an error message names it: a tensor is no "cdata".
function M.kind(v)
  local core = package.loaded['amp.ffi']
  if type(v) == 'cdata' and core and core.ref_t and core.is_ref(v) then return 'a tensor' end
  return type(v)
end

--- What makes a table no plain list: a hole, or keys beside 1..n; nil for a list. (`#` of a table with a hole may be
-- anything, so whoever counts by it would go on with a part of the list.) One with a metatable is taken as it is.
-- @tparam table t
-- @treturn ?string sentence
function M.flaw(t)
  if getmetatable(t) ~= nil then return nil end
  local n = #t
  local beyond
  if n > 0 then beyond = next_key(t, n) else beyond = next_key(t) end
  local hole
  for i = 1, n do
    if type(t[i]) == 'nil' then hole = hole or i end
  end
  if beyond == nil and not hole and type(t[0]) == 'nil' then return nil end
  local last, key = n, nil
  for k in pairs(t) do
    if type(k) == 'number' and k >= 1 and k % 1 == 0 then last = math.max(last, k)
    elseif key == nil or type(k) == type(key) and tostring(k) < tostring(key) or type(k) == 'string' and type(key) ~= 'string' then key = k end
  end
  hole = 1
  while type(t[hole]) ~= 'nil' do hole = hole + 1 end
  if hole < last then return ('the list has nothing at %d, but something at %s'):format(hole, tostring(last)) end
  if key == nil then return nil end
  if last == 0 then return ('a list is expected, but the table has the key %s'):format(M.show(key)) end
  return ('the list has the key %s beside its elements%s'):format(M.show(key),
    type(key) == 'string' and '; options go into a table of their own' or '')
end

--- "2x3" of a list of sizes; "scalar" of an empty one.
-- @tparam table sizes
-- @treturn string text
function M.shape(sizes)
  return #sizes == 0 and 'scalar' or table.concat(sizes, 'x')
end

return M

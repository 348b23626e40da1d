--- What a traced graph took for granted: fields of the modules that ran, what the function sees (amp.graph.seen).
--
-- Modules count assignments to their fields, and tensors how often their data was set, so as long as the count stands still
-- nothing is looked at but the places of containers. Numbers, texts and booleans are compared by value, tensors and modules by identity.
-- @module amp.graph.guard
local seen = require 'amp.graph.seen'
local tensor = require 'amp.tensor'
local same_mark, mark = seen.same, seen.mark

local M = {}

local function changes(Module) return Module.changes() + tensor.data_sets() end

-- Fields, hooks and the forward of a module.
local function fields_of(Module, m)
  local fields = {}
  for name, v in next, rawget(Module.inside(m), '.values') do fields[name] = v end
  fields['.hooks'], fields['.forward'] = rawget(Module.inside(m), '.hooks'), m.forward
  return fields
end

local function marks_of(fields)
  local marks = {}
  for name, v in next, fields do marks[name] = mark(v) end
  return marks
end

local function places_of(Module, m)
  if Module.inside(m) == m then return nil end
  local places = {}
  for key, v in next, m do places[key] = v end
  return places
end

--- Note what the function sees, before it runs.
-- @param fn function or module
-- @param ?module of which it is the forward
-- @treturn table guard; its `over` names what holds too much to be watched, `fresh` what gives another value at each call
function M.begin(fn, module)
  local looked = seen.look(fn, module)
  return {modules = {}, containers = {}, looked = looked, over = looked.over, fresh = looked.fresh}
end

--- What the function changed when it ran: its name, its kind and where, nil: nothing. It is as before after that.
function M.undo(guard)
  local name, kind, where = seen.changed(guard.looked)
  if name then seen.restore(guard.looked) end
  seen.settle(guard.looked)
  return name, kind, where
end

-- Modules that can be seen, whether they run or not, and those that ran.
local function all_of(...)
  local list, met = {}, {}
  for i = 1, 2 do
    for _, m in ipairs((select(i, ...))) do
      if not met[m] then list[#list + 1], met[m] = m, true end
    end
  end
  return list
end

--- Note what holds after it.
-- @tparam table guard
-- @tparam table modules those that ran
-- @tparam ?table reads tensors whose flags it asked for: {tensor, name, value}
function M.note(guard, modules, reads)
  local Module = package.loaded['amp.nn.module']
  guard.reads = reads or guard.reads or {}
  if Module then
    guard.changes, guard.placed = changes(Module), nil
    for _, m in ipairs(all_of(guard.looked.modules_met, modules)) do
      guard.modules[#guard.modules + 1] = {module = m, fields = marks_of(fields_of(Module, m))}
      local places = places_of(Module, m)
      if places then guard.containers[#guard.containers + 1] = {module = m, places = places} end
    end
  end
  return guard
end

local function same(a, b)
  for k, v in next, a do
    if not rawequal(b[k], v) then return false end
  end
  for k in next, b do
    if a[k] == nil then return false end
  end
  return true
end

local function same_fields(marks, fields)
  for k, m in next, marks do
    if not same_mark(m, fields[k]) then return false end
  end
  for k in next, fields do
    if marks[k] == nil then return false end
  end
  return true
end

--- The first thing that the function sees and that is not as noted: its name.
function M.changed(guard) return (seen.changed(guard.looked)) end

-- A function that looks at the places of containers without a loop, as LuaJIT compiles no call of one of few turns in another
-- trace: it is asked in each run of a graph. Assignments of new keys are counted; what `table.insert` puts is looked for.
local MOST_PLACES = 250
local function without_loops(containers)
  local modules, values, lines = {}, {}, {'local modules, values, rawequal, rawget = ... return function() local m'}
  for i = 1, #containers do
    local c, last = containers[i], 0
    modules[i] = c.module
    lines[#lines + 1] = ('m = modules[%d]'):format(i)
    for key, value in next, c.places do
      if type(key) ~= 'string' and (type(key) ~= 'number' or math.abs(key) == math.huge) then return nil end
      values[#values + 1] = value
      if type(key) == 'number' then last = math.max(last, key) end
      lines[#lines + 1] = ('if not rawequal(rawget(m, %s), values[%d]) then return false end'):format(
        type(key) == 'number' and ('%.17g'):format(key) or ('%q'):format(key), #values)
    end
    lines[#lines + 1] = ('if rawget(m, %.17g) ~= nil then return false end'):format(last + 1)
  end
  if #values > MOST_PLACES then return nil end
  lines[#lines + 1] = 'return true end'
  return assert(loadstring(table.concat(lines, '\n'), '=(places of modules)'))(modules, values, rawequal, rawget)
end

local function by_loops(containers)
  for i = 1, #containers do
    if not same(containers[i].places, containers[i].module) then return false end
  end
  return true
end

local function same_places(guard)
  local containers = guard.containers
  if #containers == 0 then return true end
  if guard.placed == nil then guard.placed = without_loops(containers) or false end
  if guard.placed then return guard.placed() end
  return by_loops(containers)
end

--- Does all that was noted hold still?
function M.holds(guard)
  if seen.any_changed(guard.looked) or not same_places(guard) then return false end
  for i = 1, #guard.reads do
    local r = guard.reads[i]
    if r.tensor.ptr_ == nil or r.tensor[r.name] ~= r.value then return false end
  end
  local Module = package.loaded['amp.nn.module']
  if not Module or changes(Module) == guard.changes then return true end
  for i = 1, #guard.modules do
    local noted = guard.modules[i]
    if not same_fields(noted.fields, fields_of(Module, noted.module)) then return false end
  end
  guard.changes = changes(Module)
  return true
end

return M

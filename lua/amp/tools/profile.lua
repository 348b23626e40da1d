--- amp.profile: time, calls and memory per op or per Lua line, forward and backward apart.
-- @module amp.tools.profile
local core = require 'amp.ffi'
local err = require 'amp.error'
local observer = require 'amp.tools.observer'
local options = require 'amp.options'
local util = require 'amp.util'
local band = require('bit').band
local C = core.C

local OP = 'profile'
local BACKWARD, NODE = observer.BACKWARD, observer.NODE

-- -- Text -----------------------------------------------------------------------------------

local function duration(t)
  if t >= 1 then return ('%.2f s'):format(t) end
  if t >= 1e-3 then return ('%.2f ms'):format(t * 1e3) end
  return ('%.1f us'):format(t * 1e6)
end

local function amount(b)
  local units, u = { 'B', 'KiB', 'MiB', 'GiB', 'TiB' }, 1
  while b >= 1024 and u < #units do b, u = b / 1024, u + 1 end
  return (u == 1 and '%d %s' or '%.1f %s'):format(b, units[u])
end

local Report = {}
Report.__index = Report

--- The report as text: its `limit` longest rows.
function Report:__tostring()
  local head = { self.by, 'pass', 'calls', 'time', 'share', 'a call' }
  if self.memory then head[#head + 1] = 'allocated' end
  local lines = { head }
  for i = 1, math.min(#self, self.limit) do
    local r = self[i]
    local line = { r.name, r.pass, ('%d'):format(r.calls), duration(r.time), ('%.1f %%'):format(100 * r.time / math.max(self.wall, 1e-12)),
      duration(r.time / r.calls) }
    if self.memory then line[#line + 1] = amount(r.bytes) end
    lines[#lines + 1] = line
  end
  local width = {}
  for _, line in ipairs(lines) do
    for c, text in ipairs(line) do width[c] = math.max(width[c] or 0, #text) end
  end
  for i, line in ipairs(lines) do
    for c, text in ipairs(line) do
      line[c] = c <= 2 and text .. (' '):rep(width[c] - #text) or (' '):rep(width[c] - #text) .. text
    end
    lines[i] = table.concat(line, '  ')
  end
  if #self > self.limit then lines[#lines + 1] = ('... and %d more'):format(#self - self.limit) end
  lines[#lines + 1] = ('%s in all, of which %s in Lua and outside of amp%s'):format(duration(self.wall), duration(self.lua),
    self.memory and (', %s allocated'):format(amount(self.bytes)) or '')
  if self.lost > 0 then lines[#lines + 1] = ('%d spans were lost: profile fewer steps'):format(self.lost) end
  return table.concat(lines, '\n')
end

-- -- Counting ---------------------------------------------------------------------------------

local function read_options(o)
  o = options.read(OP, o, { 'by', 'memory', 'limit' }, { by = 'op', memory = true, limit = 30 })
  if o.by ~= 'op' and o.by ~= 'line' then err.throw(OP, "option 'by' must be 'op' or 'line', got %s", util.show(o.by)) end
  if type(o.memory) ~= 'boolean' then err.throw(OP, "option 'memory' must be true or false, got %s", util.show(o.memory)) end
  options.integer(OP, 'limit', o.limit, 1)
  return o
end

-- What a span adds, and to which row. In forward each op counts by itself, without the ops inside it, so that the rows
-- add up; in backward a derivative counts as a whole, under the op it belongs to.
local function counter(by)
  local rows, index = {}, {}
  local function row(name, pass)
    local key = name .. '\0' .. pass
    local r = index[key]
    if r == nil then
      r = { name = name, pass = pass, calls = 0, time = 0, bytes = 0 }
      index[key], rows[#rows + 1] = r, r
    end
    return r
  end
  return rows, function(s, name, line)
    local backward = band(s.flags, BACKWARD) ~= 0
    local time, bytes, calls
    if not backward or s.op == -2 then
      time, bytes, calls = s.self, s.own, (by == 'op' or s.depth == 0) and 1 or 0
      if s.op == -2 then name = 'backward (the engine)' end
    elseif band(s.flags, NODE) ~= 0 then
      time, bytes, calls = s.total, s.bytes, 1
    elseif s.node == 0 then -- the engine's own: sums of gradients
      time, bytes, calls = s.self, s.own, 1
    else
      return
    end
    local pass = backward and 'backward' or s.op < 0 and 'update' or 'forward'
    local r = row(by == 'op' and name or line, pass)
    r.time, r.bytes, r.calls = r.time + time, r.bytes + tonumber(bytes), r.calls + calls
  end
end

local function has_gpu() return C.amp_device_available(1) > 0 end

--- Run fn once and say where its time and memory went.
-- @tparam function fn
-- @tparam ?table options by ('op' or 'line'), memory (true: bytes of results made, too), limit (30 rows in its text)
-- @treturn table rows {name, pass = 'forward', 'backward' or 'update' (optimizer, scaler), calls, time (seconds), bytes}, longest first; fields
--   wall (seconds), lua (of these, outside the library), bytes, lost; its tostring is a table to read
-- @return fn's results
-- @usage print((amp.profile(function() train_step(x, y) end, {by = 'line'})))
return function(fn, given)
  if type(fn) == 'table' and type(given) == 'function' then fn, given = given, fn end
  require('amp.autograd').need_function(OP, fn)
  local o = read_options(given)
  local rows, count = counter(o.by)
  local inside = 0
  local listener = { flags = has_gpu() and observer.SYNC or 0, fn = fn }
  function listener.span(s, name, line)
    if s.depth == 0 then inside = inside + s.total end
    count(s, name, line)
  end
  local lost = 0
  local began, cost = C.amp_clock(), observer.cost
  local results = util.pack(observer.run(listener, function()
    cost = observer.cost
    began = C.amp_clock()
    local results = util.pack(fn())
    lost = observer.lost()
    return unpack(results, 1, results.n)
  end))
  local wall = C.amp_clock() - began - (observer.cost - cost)
  local report = setmetatable(rows, Report)
  local bytes = 0
  for i = #rows, 1, -1 do
    bytes = bytes + rows[i].bytes
    if rows[i].calls == 0 then rows[i].calls = 1 end
  end
  table.sort(rows, function(a, b) return a.time > b.time end)
  rows.by, rows.memory, rows.limit = o.by, o.memory, o.limit
  rows.wall, rows.lua, rows.bytes, rows.lost = wall, math.max(wall - inside, 0), bytes, lost
  return report, unpack(results, 1, results.n)
end

--- The one mechanism below amp.detect_anomaly, amp.doctor and amp.profile.
-- While somebody listens, the library leaves a span for each op, derivative, optimizer step and
-- check, and `attend`, which every call into the library ends with, reads them here: only then
-- the stack still says which line of the user's made the call. Nodes are numbered in the order
-- they are recorded, so that a derivative finds the line of its forward call by its node's number.
-- Off, nothing of this runs and no op makes a test for it.
--
-- A listener is a table {flags, fn (what is run), span(s, name, line), wait(line, what, n), anomaly(a, call)},
-- functions as wanted; s is an amp_span, good during the call only. Work on tensors they do inside `quietly`.
-- @module amp.tools.observer
local ffi = require 'ffi'
local bit = require 'bit'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local region = require 'amp.core.region'
local C, S = core.C, core.S
local band, bor, bnot = bit.band, bit.bor, bit.bnot
local OBSERVING = tonumber(C.AMP_I_OBSERVE)

local M = {}

M.SPANS, M.FINITE, M.SYNC = 1, 2, 4 -- enum amp_observe_flag
M.BACKWARD, M.NODE, M.INPLACE, M.VIEW, M.COMPOSITE, M.CAST, M.FAILED = 1, 2, 4, 8, 16, 32, 64 -- amp_span_flag

local own, getinfo = err.own, debug.getinfo
local MOST = 200000 -- calls remembered for derivatives that may come

local o                -- the library's amp_observer
local listeners = {}
local flags = 0
local with_modules = false
local calls            -- {line, op, module} of recorded calls; upto[i]: number of the newest node of call i
local upto
local node, waits      -- as of the last look
local busy = false

M.cost = 0 -- seconds spent in here since the first listener came

-- -- Names ----------------------------------------------------------------------------------

local names = setmetatable({
  [-2] = 'backward', [-3] = 'optimizer step', [-4] = 'check of gradients', [-5] = 'clipping', [0x7fff] = 'Function',
}, { __index = function(t, op)
  local info = C.amp_op_get(op)
  local name = info ~= nil and ffi.string(info.name) or '?'
  t[op] = name
  return name
end })

--- Name of an op's number, or of a kind of span.
function M.name(op, span_flags)
  local name = names[op]
  return band(span_flags or 0, C.AMP_SP_INPLACE) ~= 0 and name .. '_' or name
end

-- -- Lines ----------------------------------------------------------------------------------

local function user_function(fn)
  local info = type(fn) == 'function' and getinfo(fn, 'S')
  return info and info.what ~= 'C' and not own(info.source) and info
end

local function line_of(f)
  return f.short_src .. ':' .. f.linedefined .. (f.lastlinedefined > f.linedefined and '-' .. f.lastlinedefined or '')
end

-- Name of a method, by what it is.
local function method_of(func)
  for name, f in pairs(require('amp.tensor').methods) do
    if f == func then return name end
  end
end

-- Functions of Lua's own through which values are read.
local readers = { [print] = 'print', [tostring] = 'tostring', [string.format] = 'format' }
--- Whether the frame of a level, as the caller counts, is the region of a listener.
function M.is_listening(level, func)
  if not region.bodies[func] then return false end
  local _, rec = debug.getlocal(level + 1, 1)
  return rec.listener ~= nil
end

-- Name of the outermost method among the frames inside that of a level, as seen by `place`.
local function method_below(level)
  for l = level, 4, -1 do
    local name = method_of(getinfo(l, 'f').func)
    if name then return name end
  end
end

--- The user's line that called amp, and the name it called.
function M.place()
  local level, called, _ = 3, nil, nil
  while true do
    local info = getinfo(level, 'Slnf')
    if info == nil then
      local f = user_function(listeners[#listeners] and listeners[#listeners].fn)
      return f and line_of(f) or '?', method_below(level) or called
    end
    if region.bodies[info.func] then -- its function called amp by a tail call, and nothing of it is left but what the region runs
      local _, rec = debug.getlocal(level, 1)
      local _, fn = debug.getlocal(level, 2)
      local f = user_function(fn) or rec.listener and user_function(rec.listener.fn)
      if f then return line_of(f), method_below(level) or called end
    end
    if info.what ~= 'C' and not own(info.source) then
      return info.currentline > 0 and info.short_src .. ':' .. info.currentline or info.short_src, called
    end
    local reader = info.what == 'C' and readers[getinfo(level, 'f').func]
    if reader then called = reader
    elseif info.what ~= 'C' and info.name == '__index' then -- of a field's name, or of what an element is asked by
      local _, field = debug.getlocal(level, 2)
      called = type(field) == 'string' and field or 'indexing'
    elseif info.what ~= 'C' then
      local func = getinfo(level, 'f').func
      local prints = package.loaded['amp.tensor.print']
      if prints and func == prints.tostring then called = 'tostring' -- whatever the caller's name of it is
      else called = info.name or method_of(func) or called end
    end
    level = level + 1
  end
end

local function remember(line, op, newest)
  local n = #upto
  if n >= MOST then -- the older half goes
    local half, c, u = math.floor(n / 2), {}, {}
    for i = half + 1, n do c[i - half], u[i - half] = calls[i], upto[i] end
    calls, upto, n = c, u, n - half
  end
  calls[n + 1] = { line = line, op = op, module = with_modules and err.context and err.context()[1] or nil }
  upto[n + 1] = newest
end

--- For a listener's function: run fn(...) without it leaving spans.
function M.quietly(fn, ...)
  local on = band(S.interrupt, OBSERVING)
  S.interrupt = band(S.interrupt, bnot(OBSERVING))
  local ok, message = pcall(fn, ...)
  S.interrupt = bor(S.interrupt, on)
  if not ok then error(message, 0) end
end

local unknown = { line = '?' }

--- The call that recorded a node: {line, op, module}.
function M.call_of(number)
  local a, b = 1, #upto
  while a < b do
    local m = math.floor((a + b) / 2)
    if upto[m] >= number then b = m else a = m + 1 end
  end
  return upto[a] and upto[a] >= number and calls[a] or unknown
end

-- -- Reading -----------------------------------------------------------------------------------

local function tell(line, called)
  local n, outermost = o.n, nil
  local waited = tonumber(S.host_waits)
  local newest = tonumber(C.amp_observe_node(S))
  for i = 0, n - 1 do
    local s = o.span[i]
    if s.depth == 0 and s.op >= 0 then outermost = M.name(s.op, s.flags) end
  end
  if newest > node then
    remember(line, outermost or called, newest)
    node = newest
  end
  for i = 0, n - 1 do
    local s = o.span[i]
    local at = line
    if s.node ~= 0 then at = M.call_of(tonumber(s.node)).line end
    local name = M.name(s.op, s.flags)
    for k = 1, #listeners do
      if listeners[k].span then listeners[k].span(s, name, at) end
    end
  end
  if waited > waits then
    for k = 1, #listeners do
      if listeners[k].wait then listeners[k].wait(line, called or outermost or '?', waited - waits) end
    end
  end
end

-- A place past what the listeners did themselves.
local function forget()
  o.n = 0
  node, waits = tonumber(C.amp_observe_node(S)), tonumber(S.host_waits)
end

local function observe()
  if busy or o == nil then return end
  local bad = o.anomaly.kinds ~= 0
  if not bad and o.n == 0 and tonumber(S.host_waits) == waits then return end
  local began = C.amp_clock()
  busy = true
  local line, called = M.place()
  local ok, message = pcall(tell, line, called)
  forget()
  busy = false
  M.cost = M.cost + C.amp_clock() - began
  if not ok then error(message, 0) end
  if bad then
    local a = ffi.new('amp_anomaly', o.anomaly)
    o.anomaly.kinds = 0
    for k = 1, #listeners do
      if listeners[k].anomaly then listeners[k].anomaly(a, a.node ~= 0 and M.call_of(tonumber(a.node)) or nil) end
    end
  end
end

-- -- Listening ----------------------------------------------------------------------------------------

local function scale_used(scaler)
  local before = S.host_waits
  busy = true
  local ok, v = pcall(function() return scaler:get_scale() end)
  busy = false
  S.host_waits = before
  if ok and o ~= nil then o.scale = v end
end

local function arm()
  flags, with_modules = 0, false
  for k = 1, #listeners do
    flags = bor(flags, listeners[k].flags, M.SPANS)
    with_modules = with_modules or band(listeners[k].flags, M.FINITE) ~= 0
  end
  local scaler = package.loaded['amp.precision.scaler']
  if flags == 0 then
    C.amp_observe(S, -1)
    o, call.observe = nil, nil
    if scaler then scaler.on_scale = nil end
    return
  end
  local fresh = calls == nil
  local observer = C.amp_observe(S, flags)
  if observer == nil then err.raise 'tools' end
  o, call.observe = observer, observe
  require('amp.precision.scaler').on_scale = scale_used
  if fresh then calls, upto, M.cost = {}, {}, 0 end
  forget()
end

local function add(listener)
  for k = #listeners, 1, -1 do
    if listeners[k] == listener then table.remove(listeners, k) end
  end
  listeners[#listeners + 1] = listener
  arm()
end

local function remove(listener)
  for k = #listeners, 1, -1 do
    if listeners[k] == listener then table.remove(listeners, k) end
  end
  arm()
end

-- A yield out of the region only pauses: what is known of recorded calls stays.
local kind = region.kind(function() end, function(rec) add(rec.listener) end, nil, function(rec) remove(rec.listener) end, function()
  if #listeners > 0 then return end
  C.amp_observe(S, 0)
  calls, upto = nil, nil
end)

--- Run fn(...) with a listener, which hears what runs inside, and only that.
-- @tparam table listener
-- @tparam function fn
-- @return fn's results
function M.run(listener, fn, ...) return region.run(kind, { listener = listener }, fn, ...) end

--- Loss scale in use, or nil.
function M.scale() return o ~= nil and o.scale > 0 and o.scale or nil end

--- Spans for which there was no room.
function M.lost() return o ~= nil and tonumber(o.lost) or 0 end

--- Steps taken so far by the optimizer that stepped first.
function M.steps() return o ~= nil and tonumber(o.steps) or 0 end

return M

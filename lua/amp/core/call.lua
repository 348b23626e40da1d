--- The common tail of every call into the library: raise, collect and retry, attend.
-- A wrapper makes one FFI call and tests its status and `S.attention`; all that is not
-- the straight path stands here. Handles that others make go through `own`, so that
-- an amp.scope sees them.
-- @module amp.core.call
local ffi = require 'ffi'
local bit = require 'bit'
local core = require 'amp.ffi'
local err = require 'amp.error'
local warn = require 'amp.core.warn'
local C, S = core.C, core.S
local band = bit.band
local attention = ffi.cast('int32_t *', ffi.cast('char *', S) + ffi.offsetof('amp_state', 'attention')) -- quicker than by name

local M = {}

M.new = core.ref_t -- an empty handle; `own` it once it holds a tensor

local MEMORY, MOVED = -6, -13
local PACE, LOG, DEAD = tonumber(C.AMP_A_PACE), tonumber(C.AMP_A_LOG), tonumber(C.AMP_A_DEAD)
local SCOPE, OBSERVE = tonumber(C.AMP_A_SCOPE), tonumber(C.AMP_A_OBSERVE)
local REENTERED = tonumber(C.AMP_A_REENTERED)
local STAY = SCOPE + OBSERVE -- bits that are on as long as somebody wants them
local MB = 2 ^ 20

-- -- Pacing: LuaJIT's collector can't see tensor memory ------------------------

-- Garbage tensors show as growth of the live bytes: from one collection on, bytes may swing as far as a forward and
-- backward takes them, and grow by a budget; then a whole collection runs. Measured against it: counting allocations
-- has the collector run for what the tape frees by itself; crediting what a collection freed lets each wait longer
-- than the last; steps of the collector are mixed up with those that Lua's own allocations cause, whose cycles may
-- have marked before the garbage was there, so that twice the budget piles up for the same work.

local devices = {} -- their amp_memory_stats

local function list_devices()
  for dev = 0, 1 do
    for i = 0, (dev == 0 and 1 or C.amp_device_available(dev)) - 1 do
      local m = C.amp_memory(dev, i)
      if m ~= nil then devices[#devices + 1] = m end
    end
  end
end

M.cycles = 0 -- collections that pacing caused
local since = C.amp_clock() -- when the last one was over
local small, large = 4 * MB, 16 * MB -- budgets
local strained = 1

-- How much garbage is allowed. A collection walks all of Lua's own data, some 1 ms a MB.
-- In small blocks: little, so that it stays within the caches (ops on 16 numbers take two thirds of the time that they
-- take with 20 MB), more beside a large Lua heap, and more than 20 MB only where collecting takes most of the time.
-- In blocks of 1 MiB and more: as much as makes collecting a small part of the time.
local function adapt(share, by_small, by_large)
  if by_large then
    if share > 0.3 then large = math.min(large * 2, 256 * MB)
    elseif share < 0.1 then large = math.max(large / 2, 16 * MB) end
  end
  if by_small then
    if share > 0.7 then strained = math.min(strained * 1.25, 12)
    elseif share < 0.35 then strained = math.max(strained / 1.25, 1) end
  end
  small = math.min(math.max(collectgarbage 'count' * 768, 4 * MB), 20 * MB) * strained
end

--- Collect if memory outside the collector's sight has grown by a budget, or by a quarter of what is live.
local function pace()
  if #devices == 0 then list_devices() end
  local by_small, by_large = false, false
  for i = 1, #devices do
    local m = devices[i]
    by_small = by_small or m.live - m.large >= m.pace
    by_large = by_large or m.large >= m.pace_large
  end
  if not (by_small or by_large) then return end
  local began = C.amp_clock()
  collectgarbage()
  M.cycles = M.cycles + 1
  local now = C.amp_clock()
  adapt((now - began) / math.max(now - since, 1e-9), by_small, by_large)
  since = now
  for i = 1, #devices do
    local m = devices[i]
    local live, big, swing = tonumber(m.live), tonumber(m.large), tonumber(m.swing)
    m.pace = live - big + math.min(swing, 64 * MB) + math.max(small, (live - big) / 4)
    m.pace_large = big + swing + math.max(large, live / 4)
    m.swing = 0
    if i == 1 or m.rest == -1 then m.rest = big end -- the first one is the CPU
  end
end

-- -- Functions and hooks that live in Lua, by id --------------------------------

M.closures = {}

local function drain()
  local closures = M.closures
  while true do
    local id = tonumber(C.amp_dead_next(S))
    if id == 0 then break end
    closures[id] = nil
  end
end

local function log_lines()
  while true do
    local line = C.amp_log_next(S)
    if line == nil then break end
    warn.log(ffi.string(line))
  end
end

-- -- Scopes --------------------------------------------------------------------

-- Handles made while a scope is open; core/scope.lua swaps it.
M.made = nil

local function note(o)
  local made = M.made
  local n = made.n + 1
  made.n = n
  made[n] = o
end

M.observe = nil -- what reads the observer's spans (amp.tools.observer)
-- Set the state for the running coroutine: to read or write it, for the next op; and after that op (amp.region).
M.here, M.follow, M.forget = function() end, nil, nil

-- -- What wrappers call ---------------------------------------------------------

--- Lua's turn: do what S.attention asks for. o1.. are the handles just made.
local function attend(o1, o2, o3)
  local a = attention[0]
  if band(a, SCOPE) ~= 0 then
    M.here() -- another coroutine's, perhaps
    a = attention[0]
    if band(a, SCOPE) ~= 0 and M.made then
      if o1 ~= nil then note(o1) end
      if o2 ~= nil then note(o2) end
      if o3 ~= nil then note(o3) end
      if a == SCOPE then return end
    end
  end
  if a ~= band(a, STAY) then
    attention[0] = band(a, STAY)
    if band(a, LOG) ~= 0 then log_lines() end
    if band(a, DEAD + PACE) ~= 0 then drain() end -- those that other threads let go come without a bit
    if band(a, PACE) ~= 0 then pace() end
  end
  if band(a, OBSERVE) ~= 0 then M.observe() end
  if band(a, REENTERED) ~= 0 then M.forget() end
end
M.attend = attend

--- Raise the library's error if rc is negative, else attend. Gives rc.
-- @tparam number rc status
-- @tparam ?string op name for the message
-- @param ... handles just made
function M.check(rc, op, o1, o2, o3)
  if rc < 0 then err.raise(op) end
  if S.attention ~= 0 then attend(o1, o2, o3) end
  return rc
end

-- A library function gave an error: after a lack of memory collect garbage and try once more.
local function once_more(op, rc, f, ...)
  if rc == MEMORY then
    collectgarbage()
    rc = f(...)
  end
  if rc < 0 then err.raise(op) end
  return rc
end

--- Call f(...), a library function that gives a status; after a lack of memory collect
-- garbage and try once more; then `check`.
function M.try(op, f, ...)
  M.here()
  local rc = f(...)
  if rc < 0 then rc = once_more(op, rc, f, ...) end
  if attention[0] ~= 0 then attend() end
  return rc
end

--- As `try`, for what sets the state itself, or neither reads nor writes it.
function M.attempt(op, f, ...)
  local rc = f(...)
  if rc < 0 then rc = once_more(op, rc, f, ...) end
  if attention[0] ~= 0 then attend() end
  return rc
end

--- Make a handle with f(S, handle, ...), a library function that gives a status.
-- @treturn Tensor handle
function M.make(op, f, ...)
  M.here()
  local o = core.ref_t()
  local rc = f(S, o, ...)
  if rc < 0 then once_more(op, rc, f, S, o, ...) end
  if attention[0] ~= 0 then attend(o) end
  return o
end

--- As `make`, where the state is the running coroutine's for sure.
function M.make_here(op, f, ...)
  local o = core.ref_t()
  local rc = f(S, o, ...)
  if rc < 0 then once_more(op, rc, f, S, o, ...) end
  if attention[0] ~= 0 then attend(o) end
  return o
end

--- An object of f(S, ...), a library function that gives a pointer.
function M.object(op, f, ...)
  M.here()
  local p = f(S, ...)
  if p == nil and S.err.code == MEMORY then
    collectgarbage()
    p = f(S, ...)
  end
  if p == nil then err.raise(op) end
  return p
end

--- What may make a failed call work: after a failed allocation collect, in another coroutine set the state for it. True
-- if that was done.
function M.again(rc)
  if rc == MOVED then
    M.follow()
    return true
  end
  if rc ~= MEMORY then return false end
  collectgarbage()
  return true
end

return M

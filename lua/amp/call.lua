--- The common tail of every call into the library: raise, collect and retry, attend.
-- A wrapper makes one FFI call and tests its status and `S.attention`; all that is not
-- the straight path stands here. Handles that others make go through `own`, so that
-- an amp.scope sees them.
-- @module amp.call
local ffi = require 'ffi'
local bit = require 'bit'
local core = require 'amp.ffi'
local err = require 'amp.error'
local warn = require 'amp.warn'
local C, S = core.C, core.S
local band = bit.band

local M = {}

M.new = core.ref_t -- an empty handle; `own` it once it holds a tensor

local MEMORY = -6
local PACE, LOG, DEAD, SCOPE = 1, 2, 4, 8
local FLOOR, CEILING = 16 * 2 ^ 20, 256 * 2 ^ 20

-- -- Pacing: LuaJIT's collector can't see tensor memory ------------------------

local devices = {} -- amp_memory_stats by place
local budgets = {}

local function stats()
  if devices[1] == nil then
    for dev = 0, 1 do
      for i = 0, (dev == 0 and 1 or C.amp_device_available(dev)) - 1 do
        local m = C.amp_memory(dev, i)
        if m ~= nil then
          devices[#devices + 1] = m
          budgets[#devices] = FLOOR
        end
      end
    end
  end
  return devices
end

M.cycles = 0 -- collections that pacing finished
local spent, since = 0, os.clock() -- seconds in the collector, and when the cycle began
local floor = FLOOR

-- A cycle has to walk all of Lua's own data. While that is cheap, little garbage is allowed; where it takes more than
-- a seventh of the time (a large Lua heap, small tensors), more.
local function adapt()
  local now = os.clock()
  local share = spent / math.max(now - since, 1e-9)
  if share > 0.15 then floor = math.min(floor * 2, CEILING)
  elseif share < 0.03 then floor = math.max(floor / 2, FLOOR) end
  spent, since = 0, now
end

--- Advance the collector in step with what was allocated outside its sight: one cycle per
-- floor (16 to 256 MB) or a quarter of the live bytes, whichever is more.
local function pace()
  local list = stats()
  for i = 1, #list do
    local m = list[i]
    local debt = tonumber(m.debt)
    if debt > 0 and debt >= tonumber(m.step) then
      m.debt = 0
      local kb = math.ceil(collectgarbage 'count' / 2 * debt / budgets[i] * 1.25)
      local began = os.clock()
      local finished = collectgarbage('step', kb)
      spent = spent + os.clock() - began
      if finished then
        M.cycles = M.cycles + 1
        adapt()
      end
      budgets[i] = math.max(floor, tonumber(m.live) / 4)
      m.step = budgets[i] / 32
    end
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

-- Handles made while a scope is open; scope.lua swaps it.
M.made = nil

local function note(o)
  local made = M.made
  if made then
    local n = made.n + 1
    made.n = n
    made[n] = o
  end
end

-- -- What wrappers call ---------------------------------------------------------

--- Lua's turn: do what S.attention asks for. o1.. are the handles just made.
local function attend(o1, o2, o3)
  local a = S.attention
  if band(a, SCOPE) ~= 0 then
    if o1 ~= nil then note(o1) end
    if o2 ~= nil then note(o2) end
    if o3 ~= nil then note(o3) end
  end
  if a ~= band(a, SCOPE) then
    S.attention = band(S.attention, SCOPE)
    if band(a, LOG) ~= 0 then log_lines() end
    if band(a, DEAD + PACE) ~= 0 then drain() end -- those that other threads let go come without a bit
    if band(a, PACE) ~= 0 then pace() end
  end
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

--- Call f(...), a library function that gives a status; after a lack of memory collect
-- garbage and try once more; then `check`.
function M.try(op, f, ...)
  local rc = f(...)
  if rc == MEMORY then
    collectgarbage()
    rc = f(...)
  end
  if rc < 0 then err.raise(op) end
  if S.attention ~= 0 then attend() end
  return rc
end

--- Make a handle with f(S, handle, ...), a library function that gives a status.
-- @treturn Tensor handle
function M.make(op, f, ...)
  local o = core.ref_t()
  local rc = f(S, o, ...)
  if rc == MEMORY then
    collectgarbage()
    rc = f(S, o, ...)
  end
  if rc < 0 then err.raise(op) end
  if S.attention ~= 0 then attend(o) end
  return o
end

--- Collect after a failed allocation; true if rc says that it failed.
function M.again(rc)
  if rc ~= MEMORY then return false end
  collectgarbage()
  return true
end

return M

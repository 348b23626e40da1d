--- Scopes: what is made inside is given back at the end, except what is returned.
-- While a scope is open the state's SCOPE bit makes every wrapper hand its new handles to
-- amp.call, which notes them in the open scope's list.
-- @module amp.core.scope
local ffi = require 'ffi'
local bit = require 'bit'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local region = require 'amp.core.region'
local need_function = require('amp.autograd').need_function
local types = require 'amp.types'
local util = require 'amp.util'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype, band, bor = ffi.istype, bit.band, bit.bor

local M = {}
local SCOPE = C.AMP_A_SCOPE

local attention = ffi.cast('int32_t *', ffi.cast('char *', S) + ffi.offsetof('amp_state', 'attention')) -- quicker than by name

local function open(made)
  call.made = made
  local a = attention[0]
  local b = made and bor(a, SCOPE) or band(a, bit.bnot(SCOPE))
  if b ~= a then attention[0] = b end
end

-- Mark what is reachable from a returned value, through plain tables.
local function keep(v, kept, seen)
  if istype(ref_t, v) then
    kept[#kept + 1] = v
  elseif type(v) == 'table' and not seen[v] then
    seen[v] = true
    for _, x in next, v do keep(x, kept, seen) end
  end
end

local function place_of(o) return tonumber(ffi.cast('intptr_t', ffi.cast('void *', o))) end

-- The places of the handles among some results, nil: there is none. By the address of the handle itself: another handle of
-- the same tensor may go.
local function places(...)
  local kept, seen = nil, nil
  for i = 1, select('#', ...) do
    local v = (select(i, ...))
    if istype(ref_t, v) or type(v) == 'table' then
      kept, seen = kept or {}, seen or {}
      keep(v, kept, seen)
    end
  end
  if not kept or #kept == 0 then return nil end
  local held = {}
  for i = 1, #kept do held[place_of(kept[i])] = true end
  return held
end

-- Release the handles noted in rec but those among the results; these go to the outer scope.
local function close(rec, ...)
  local made = rec.inner
  local n = made.n
  if n == 0 then return end
  local outer, only, held = call.made, nil, nil
  local results = select('#', ...)
  if results == 1 and istype(ref_t, (...)) then only = place_of((...))
  elseif results > 0 then held = places(...) end
  for i = 1, n do
    local o = made[i]
    made[i] = nil
    if o and (only and only == place_of(o) or held and held[place_of(o)]) then
      if outer then
        outer.n = outer.n + 1
        outer[outer.n] = o
      end
    elseif o then -- nil: an interrupt came here before
      C.amp_release(o)
    end
  end
  made.n = 0
end

local kind = region.kind(
  function(rec) rec.outer = call.made end, function(rec) open(rec.inner) end, nil, function(rec) open(rec.outer) end,
  function(rec, failed)
    if failed then close(rec) end
  end, close, true, function(rec, group, n)
    rec.outer = call.made
    group.n = n
    open(rec.inner)
  end)

--- Run fn(...) and give back the memory of every tensor handle made inside, except those
-- in its results (also in returned tables). A handle given back raises when it is used.
-- @tparam function fn
-- @return fn's results
-- @usage local l = amp.scope(function() local y = net(x); return y:sum():item() end)
function M.scope(fn, ...)
  need_function('scope', fn)
  return region.run(kind, { inner = { n = 0 }, outer = false }, fn, ...)
end

local outside = region.kind(kind.look, kind.enter, nil, kind.leave)

--- Run fn(...) without the open scope noting what it makes: for state that has to last.
function M.lasting(fn, ...)
  region.here()
  if not call.made then return fn(...) end
  return region.run(outside, { inner = false, outer = false }, fn, ...)
end

--- Take a handle out of the open scope: it is not given back at its end.
-- @tparam Tensor t
-- @treturn Tensor t
function M.keep(t)
  region.here()
  local made = call.made
  if made and istype(ref_t, t) then
    local address = ffi.cast('void *', t)
    for i = made.n, 1, -1 do
      if ffi.cast('void *', made[i]) == address then
        made[i] = made[made.n]
        made[made.n] = nil
        made.n = made.n - 1
        break
      end
    end
  end
  return t
end

local function stats(op, device)
  local code = device == nil and types.default_device() or types.device(device, op)
  local m = C.amp_memory(math.floor(code / 256), code % 256)
  if m == nil then err.throw_code('device', op, 'no such device: %s', util.show(device)) end
  return m
end

--- Memory of a device, in bytes.
-- @tparam ?string device default: the default device
-- @treturn table {live, cached, peak, allocations, failures, cycles}
function M.memory(device, excess)
  require('amp.options').none('memory', excess)
  local m = stats('memory', device)
  return { live = tonumber(m.live), cached = tonumber(m.cached), peak = tonumber(m.peak), allocations = tonumber(m.allocations),
    failures = tonumber(m.failures), cycles = call.cycles }
end

--- Count the peak of a device's memory anew, from what is live now.
-- @tparam ?string device default: the default device
function M.reset_peak_memory(device, excess)
  require('amp.options').none('reset_peak_memory', excess)
  local m = stats('reset_peak_memory', device)
  m.peak = m.live
end

return M

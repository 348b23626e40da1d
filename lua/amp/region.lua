--- Run a function with some of the state's fields changed, exactly while it runs.
-- A region calls its function by pcall in the coroutine that entered it: no stack of C's, no coroutine of its own, so it
-- works wherever Lua runs, recursion ends in Lua's own "stack overflow", and coroutine.running() is who it was.
--
-- The state is one for all coroutines, so it has to follow the one that runs. Each coroutine that is in regions has a group,
-- the list of its records, outermost first; `active` are the groups whose records are in force now, in the order of their
-- coroutines' chain. Whoever reads the state first compares the running coroutine's address (amp.running) with `owner`,
-- whom the state was last set for: ops do so in C (amp_state.running) and give AMP_E_MOVED, Lua calls `here`. Where they
-- differ `follow` takes the records of suspended coroutines out, the innermost first, and puts those of resumed ones in.
-- Measured (interpreted, compiled): entering and leaving 0.9 and 0.1 microseconds (a coroutine for each region: 1.6 and 1.5,
-- and 400 bytes of C's stack a level); an op's comparison two instructions; a switch that an op sees about a microsecond.
--
-- nginx reuses the threads of requests that it ended while they waited, so there an address proves nothing. A host that
-- replaces coroutine.* and keeps the originals (_create, _resume, _yield), as it does, and a LuaJIT whose running coroutine
-- is not found get the other way: the outermost region of a coroutine runs in a coroutine of the original functions, through
-- which each yield passes: out with the group's records taken out, in with them put back. Where the caller can't yield: pcall.
--
-- An error may come between any two instructions (a hook's, Ctrl-C). So every step here can be repeated: a record's `on` is
-- nil (out), 1 (going in or out), 2 (in), written after what it says; a region closes its record inside a second pcall, and
-- once more outside; and closing takes everything above the record out.
-- @module amp.region
local core = require 'amp.ffi'
local call = require 'amp.call'
local err = require 'amp.error'
local ffi = require 'ffi'
local bit = require 'bit'
local S = core.S

local M = {}

local pcall, xpcall, error, next, select, note = pcall, xpcall, error, next, select, err.note
local function original(name) return rawget(coroutine, '_' .. name) end
local replaced = original 'resume' and original 'create' and original 'yield'
local create, resume = original 'create' or coroutine.create, original 'resume' or coroutine.resume
local yield, status = original 'yield' or coroutine.yield, original 'status' or coroutine.status
local running = original 'running' or coroutine.running
local yieldable = coroutine.isyieldable or function() return running() ~= nil end

local place = not replaced and require 'amp.running'() or nil
local apart = place == nil -- regions run in coroutines of their own

local MAIN = {}                                  -- stands for the main thread, which is no coroutine
local groups = setmetatable({}, { __mode = 'k' }) -- coroutine -> its group, if that has records
local active, holders, count = {}, {}, 0         -- groups in force, their coroutines
local top                                        -- the group of `owner`, where there is one
local owner = MAIN
local armed = false

local halves = ffi.cast('uint32_t *', place or ffi.new 'uint64_t[1]') -- of the running coroutine's address
if apart then M.anchor = halves end
local low, high = -1, -1                         -- of owner's; -1: unknown
if apart then low, high = 0, 0 end

-- -- Records in and out ---------------------------------------------------------------------------

local function put_in(r)
  if r.on == 2 then return end
  local kind = r.kind
  if r.on == nil then
    kind.look(r)
    r.on = 1
  end
  kind.enter(r)
  r.on = 2
end

local function pause(g)
  for i = g.n, 1, -1 do
    local r = g[i]
    if r.on == 2 then
      if r.kind.keep then r.kind.keep(r) end
      r.on = 1
    end
    if r.on then
      r.kind.leave(r)
      r.on = nil
    end
  end
end

local function put_all_in()
  for i = 1, count do
    local g = active[i]
    for k = 1, g.n do put_in(g[k]) end
  end
end

local function arm(on)
  S.running = on and place or nil
  armed = on
end

-- -- Following the running coroutine ----------------------------------------------------------------

local function alive(co)
  if co == MAIN then return true end
  local s = status(co)
  return s == 'normal' or s == 'running'
end

-- The groups that are to be in force while co runs. The main thread can't be resumed: where it runs and its group is not
-- the last, a callback of a host's runs on it, inside all that the coroutine that waits for the callback is in.
local function wanted_of(co)
  local wanted, of, n, seen = {}, {}, 0, {}
  for i = 1, count do
    local g, c = active[i], holders[i]
    if g.n > 0 and (c == MAIN or (c ~= co and alive(c))) then
      n = n + 1
      wanted[n], of[n], seen[g] = g, c, true
    end
  end
  for c, g in next, groups do
    if c ~= co and not seen[g] and alive(c) then
      n = n + 1
      wanted[n], of[n] = g, c
    end
  end
  if groups[co] then
    n = n + 1
    wanted[n], of[n] = groups[co], co
  end
  return wanted, of, n
end

local REENTERED = 32 -- amp_state.attention: after the next op the owner is unknown
local band, bor, bnot = bit.band, bit.bor, bit.bnot

local function follow()
  low = -1
  S.owner = 0
  local co = running() or MAIN
  local wanted, of, n = wanted_of(co)
  local same = 0
  while same < n and same < count and active[same + 1] == wanted[same + 1] do same = same + 1 end
  for i = count, same + 1, -1 do
    pause(active[i])
    count = i - 1
    active[i], holders[i] = nil, nil
  end
  for i = same + 1, n do
    active[i], holders[i] = wanted[i], of[i]
    count = i
  end
  put_all_in()
  owner, top = co, nil
  if count > 0 and holders[count] == co then top = active[count] end
  if co == MAIN and count > 0 and not top then S.attention = bor(S.attention, REENTERED) end
  if armed and count == 0 and next(groups) == nil then arm(false) end
  S.owner = ffi.cast('uint64_t *', halves)[0]
  low, high = halves[0], halves[1]
end

--- Set the state for the running coroutine. To be called before the state is read or written outside of ops.
local function here()
  if halves[0] ~= low or halves[1] ~= high then follow() end
end
M.here = here
call.here = here

function call.moved()
  S.attention = band(S.attention, bnot(REENTERED))
  low = -1
  S.owner = 0
end

-- The group of the coroutine that runs, as owner of the state.
local function found(g)
  if apart then
    local co = running() or MAIN
    g = active[count]
    if g == nil or holders[count] ~= co then
      g = { n = 0 }
      active[count + 1], holders[count + 1] = g, co
      count = count + 1
    end
    return g
  end
  if not g then
    g = { n = 0 }
    active[count + 1], holders[count + 1] = g, owner
    count = count + 1
    top = g
    if owner == MAIN then S.attention = band(S.attention, bnot(REENTERED)) end
  end
  if owner ~= MAIN then groups[owner] = g end
  if not armed then arm(true) end
  return g
end

local function open(rec)
  if halves[0] ~= low or halves[1] ~= high then follow() end
  local g = top
  if g == nil or g.n == 0 then g = found(g) end
  local n = g.n + 1
  rec.group, rec.place = g, n
  g[n] = rec
  g.n = n
  local kind = rec.kind
  kind.look(rec)
  rec.on = 1
  kind.enter(rec)
  rec.on = 2
end

-- A group without records.
local function retire(g)
  if apart then
    if active[count] == g then
      active[count], holders[count] = nil, nil
      count = count - 1
    end
  elseif owner ~= MAIN then
    groups[owner] = nil
  elseif count > 1 then -- a callback's end: what runs next on the main thread may be whoever called it
    low = -1
    S.owner = 0
  end
end

local function over(rec, failed)
  if rec.over then return end
  rec.over = true
  local f = rec.kind.over
  if f then f(rec, failed) end
end

-- Take a record out, and what an interrupt left above it.
local function close(rec)
  local g = rec.group
  if g == nil then return end
  if halves[0] ~= low or halves[1] ~= high then follow() end
  for i = g.n, rec.place, -1 do
    local r = g[i]
    if r.on then
      r.kind.leave(r)
      r.on = nil
    end
    g.n = i - 1
    g[i] = nil
    if r ~= rec then over(r, true) end
  end
  if g.n == 0 then retire(g) end
  rec.group = nil
end

-- -- Running -----------------------------------------------------------------------------------------

local function returned(rec, ...)
  close(rec)
  local finish = rec.kind.finish
  if finish then return finish(rec, ...) end
  if not rec.over then over(rec, false) end
  return ...
end

local function body(rec, fn, ...)
  open(rec)
  return returned(rec, fn(...))
end

-- Without arguments frames are smaller (those of vararg functions lie twice on the stack), and regions nest 2,000 deep.
local function plain_body(rec, fn)
  open(rec)
  return returned(rec, fn())
end

M.frames = { [body] = true, [plain_body] = true } -- the frame of a region: its second local is what the region runs

local passing -- an error on its way out, noted already

local function handler(e)
  if passing ~= nil and rawequal(passing, e) then
    passing = nil
    return e
  end
  note(e)
  return e
end

local function settle(rec, ok, ...)
  if not ok then
    close(rec)
    over(rec, true)
  end
  return ok, ...
end

local function guard(rec, fn, ...) return settle(rec, xpcall(body, handler, rec, fn, ...)) end

local function final(rec, settled, ok, ...)
  if settled and ok then return ... end
  local e = ...
  if not settled then
    e = ok
    close(rec)
    over(rec, true)
  end
  passing = e
  error(e, 0)
end

local function plain_guard(rec, fn) return settle(rec, xpcall(plain_body, handler, rec, fn)) end

local function plain(rec, fn) return final(rec, pcall(plain_guard, rec, fn)) end

local function protected(rec, fn, ...)
  if select('#', ...) == 0 then return plain(rec, fn) end
  return final(rec, pcall(guard, rec, fn, ...))
end

-- -- In a coroutine of its own ---------------------------------------------------------------------------

local after

local function inside(g, co, ...)
  active[count + 1], holders[count + 1] = g, co
  count = count + 1
  put_all_in()
  return after(co, resume(co, ...))
end

-- Take the group of a coroutine out. It is the last, but for what an interrupt left.
local function take_out(co)
  local at = count
  while at > 0 and holders[at] ~= co do at = at - 1 end
  if at == 0 then return nil end
  local g = active[at]
  for i = count, at, -1 do
    pause(active[i])
    count = i - 1
    active[i], holders[i] = nil, nil
  end
  return g
end

after = function(co, ok, ...)
  if status(co) ~= 'suspended' then
    if ok then return ... end
    error((...), 0)
  end
  return inside(take_out(co), co, yield(...))
end

local function start(co, ...) return after(co, resume(co, ...)) end

local function left(rec, co, ok, ...)
  if ok then return ... end
  take_out(co) -- a yield to where nobody can be yielded to, or an interrupt
  over(rec, true)
  local e = ...
  passing = e
  error(e, 0)
end

local function separate(rec, fn, ...)
  local co = create(protected)
  return left(rec, co, pcall(start, co, rec, fn, ...))
end

-- -- Interface ----------------------------------------------------------------------------------------------

--- Make a kind of region of functions that get the region's record. enter and leave may be called again after an error
-- in their middle, and do then what is left. They, look and keep call no op and not `here`.
-- @tparam function look note in the record the values outside
-- @tparam function enter write the ones inside, which the record has
-- @tparam ?function keep note the ones inside, before a pause
-- @tparam function leave write those outside back
-- @tparam ?function over (rec, failed) called once at the end, outside
-- @tparam ?function finish (rec, ...) after fn returned, outside: gives the results, and calls what over does
function M.kind(look, enter, keep, leave, over_, finish)
  return { look = look, enter = enter, keep = keep, leave = leave, over = over_, finish = finish }
end

--- Run fn(...) in a region.
-- @tparam table kind
-- @tparam table rec the region's record, of its own
-- @tparam function fn
-- @return all of fn's results
function M.run(kind, rec, fn, ...)
  rec.kind = kind
  if apart and (count == 0 or holders[count] ~= running()) and yieldable() then return separate(rec, fn, ...) end
  if select('#', ...) == 0 then return plain(rec, fn) end
  return final(rec, pcall(guard, rec, fn, ...))
end

--- How many regions of the running coroutine are open, for `close_from`.
function M.depth()
  here()
  local g = apart and active[count] or top
  return g and g.n or 0
end

--- Close the regions of the running coroutine above a depth, which an interrupt left open.
function M.close_from(depth)
  here()
  local g = apart and active[count] or top
  if g and g.n > depth then close(g[depth + 1]) end
end

return M

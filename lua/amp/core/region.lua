--- Run a function with some of the state's fields changed, exactly while it runs.
-- A region calls its function by pcall in the coroutine that entered it: no stack of C's, no coroutine of its own, so it
-- works wherever Lua runs, recursion ends in Lua's own "stack overflow", and coroutine.running() is who it was.
--
-- The state is one for all coroutines, so it has to follow the one that runs. Each coroutine that is in regions has a group,
-- the list of its records, outermost first; `active` are the groups whose records are in force now, in the order of their
-- coroutines' chain. Whoever reads the state first compares the running coroutine's address (amp.running) with `owner`,
-- whom the state was last set for: ops do so in C (amp_state.running) and give AMP_E_MOVED, Lua calls `here`. Where they
-- differ `follow` takes the records of suspended coroutines out, the innermost first, and puts those of resumed ones in.
-- A coroutine that yields and is resumed by another one is at the same address in other regions: where coroutines wait in
-- regions, the words that say who resumed whom are compared too (amp.core.frames, amp_moved); where these are not found, or more
-- than fit, the state is set anew each time that it is read.
-- Measured (interpreted, compiled): entering and leaving 0.7 and 0.02 microseconds (a coroutine for each region: 0.8 and 0.4,
-- and 400 bytes of C's stack a level); an op's comparison two instructions; a switch that an op sees some microseconds, and
-- more with each coroutine that waits in a region. Reading through a pointer is what costs most without the compiler.
--
-- nginx reuses the threads of requests that it ended while they waited, so there an address proves nothing. A host that
-- replaces coroutine.* and keeps the originals (_create, _resume, _yield), as it does, and a LuaJIT whose running coroutine
-- is not found get the other way: the outermost region of a coroutine runs in a coroutine of the original functions, through
-- which each yield passes: out with the group's records taken out, in with them put back. Where the caller can't yield: pcall.
--
-- An error may come between any two instructions (a hook's, Ctrl-C). So every step here can be repeated: a record's `on` is
-- 0 (out), 1 (going in or out), 2 (in), written after what it says; a region closes its record inside the pcall, and if it
-- or its function raised, outside; closing takes everything above the record out; and where an interrupt comes between an
-- error and that, what the handler left in `unwinding` has the next region do it.
-- @module amp.core.region
local core = require 'amp.ffi'
local call, next_key = require 'amp.core.call', require('amp.core.keys').next
local err = require 'amp.error'
local ffi = require 'ffi'
local bit = require 'bit'
local S = core.S

local M = {}

local pcall, xpcall, error, select, unpack, rawequal, note = pcall, xpcall, error, select, unpack, rawequal, err.note
local function original(name) return rawget(coroutine, '_' .. name) end
local replaced = original 'resume' and original 'create' and original 'yield'
local create, resume = original 'create' or coroutine.create, original 'resume' or coroutine.resume
local yield, status = original 'yield' or coroutine.yield, original 'status' or coroutine.status
local running = original 'running' or coroutine.running
local yieldable = coroutine.isyieldable or function() return running() ~= nil end

local place, frame, address_of = nil, nil, nil -- of the running coroutine's address; in a coroutine, of the pointer to its frame
if not replaced then place, frame, address_of = require 'amp.core.running'() end
local apart = place == nil -- regions run in coroutines of their own

local MAIN = {}                                  -- stands for the main thread, which is no coroutine
local groups = setmetatable({}, { __mode = 'k' }) -- coroutine -> its group, if that has records
local active, holders, count = {}, {}, 0         -- groups in force, their coroutines
local top                                        -- the group of `owner`, where there is one
local current                                    -- owner's address
local owner = MAIN
local armed = false

local anchor = place or ffi.new 'uint64_t[1]'
local address = ffi.cast('uint32_t *', anchor) -- the lower half of the running coroutine's: no two lie a multiple of 4 GiB apart
local known = -1                               -- owner's; -1: the state has to be set anew
if apart then known = 0 end

-- Who resumed the owner, which matters where other coroutines are in regions: resumed by one of them it is inside.
local frames = ffi.new 'amp_frames'
local find = require 'amp.core.frames'
local readable = nil -- looked for when it first matters, which takes a millisecond
if not frame then readable = false end
local linked = false -- whether it matters to the owner
local moved, links = core.C.amp_moved, core.C.amp_links

-- Who runs, without the compiler: coroutine.running() takes a quarter of what it takes to read through a pointer then.
local interpreted = not (apart or jit.status())
local mine = false                             -- what coroutine.running() gives while the state is owner's; false: it has to be set anew

-- -- Records in and out ---------------------------------------------------------------------------
-- A slot of a group: {rec, kind, on, group, place}; it stays when its region is over, for the next one at its place, and is
-- one of the group's from when its `look` is done.

local function put_in(slot)
  if slot.on == 2 then return end
  local kind, rec = slot.kind, slot.rec
  if slot.on == 0 then
    kind.look(rec)
    slot.on = 1
  end
  kind.enter(rec)
  slot.on = 2
end

local function pause(g)
  for i = g.n, 1, -1 do
    local slot = g[i]
    local kind, rec = slot.kind, slot.rec
    if slot.on == 2 then
      if kind.keep then kind.keep(rec) end
      slot.on = 1
    end
    if slot.on == 1 then
      kind.leave(rec)
      slot.on = 0
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

-- Every group is looked at, as nothing tells which suspended coroutine was resumed: of those that were given up in a region
-- no more may be there than others, or each switch would take longer than the last.
local crowd, crowded = 256, false

local function collect()
  crowded = false
  collectgarbage()
  local n = 0
  for _ in next, groups do n = n + 1 end
  crowd = n * 2 > 256 and n * 2 or 256
end

local in_order = require 'amp.core.resumed'(frame, MAIN)

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
  local own, all = groups[co], 0
  local c = next_key(groups)
  while c do
    local g = groups[c]
    all = all + 1
    if status(c) ~= 'suspended' and c ~= co and not seen[g] and alive(c) then
      wanted[n + 1], of[n + 1], n = g, c, n + 1
    end
    c = next_key(groups, c)
  end
  crowded = all > crowd
  linked = co ~= MAIN and all > (own and 1 or 0)
  in_order(wanted, of, n)
  if own then
    n = n + 1
    wanted[n], of[n] = own, co
  end
  return wanted, of, n
end
jit.off(wanted_of) -- compiled code of some LuaJIT loses an element of a loop over `next`, or crashes in `next`

local REENTERED = tonumber(core.C.AMP_A_REENTERED) -- after the next op it is asked anew which coroutine owns the state
local band, bor, bnot = bit.band, bit.bor, bit.bnot

local function forget()
  known, mine = -1, false
  S.owner = 0
  linked = false
end

-- True where the state is only right for what comes next: the main thread runs a callback, and when that is over, the same
-- thread goes on in another state; or nothing would tell that the coroutine is resumed by another one.
local function follow()
  forget()
  local who = running()
  local co = who or MAIN
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
  if armed and count == 0 and next_key(groups) == nil then arm(false) end
  current = anchor[0]
  S.owner = current
  known, mine = address[0], who
  local unknown = false
  if co == MAIN then
    frames.main = current
    unknown = count > 0 and not top
  elseif linked then
    if readable == nil then
      readable = false -- should an interrupt come
      readable = find(frame, address_of, frames)
    end
    unknown = not readable or links(S, frames) == 0
    if unknown then S.owner = 0 end
  end
  if crowded then collect() end
  return unknown
end

--- Set the state for the running coroutine. To be called before the state is read or written outside of ops.
local function here()
  if (address[0] ~= known or linked and moved(S) ~= 0) and follow() then forget() end
end
if interpreted then
  here = function()
    if (running() ~= mine or linked and moved(S) ~= 0) and follow() then forget() end
  end
end
M.here = here
call.here = here

--- As `here`, for the next op.
function call.follow()
  if follow() then
    S.attention = bor(S.attention, REENTERED)
    S.owner = current
  end
end

--- The op is done.
function call.forget()
  S.attention = band(S.attention, bnot(REENTERED))
  forget()
end

-- -- Entering and leaving -------------------------------------------------------------------------------

local main_group = { n = 0 }

-- The group of the coroutine that runs, on top of the active ones.
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
    g = owner ~= MAIN and { n = 0, address = current } or main_group.n == 0 and main_group or { n = 0 }
    active[count + 1], holders[count + 1] = g, owner
    count = count + 1
    top = g
    if owner == MAIN then S.attention = band(S.attention, bnot(REENTERED)) end
  end
  if owner ~= MAIN then groups[owner] = g end
  if not armed then arm(true) end
  return g
end

-- Compiled recursion that comes to the end of LuaJIT's stack may end the process: a trace that is left there runs the collector,
-- the finalizers that it calls find no stack, and their error is raised where there is no frame to catch it. So regions end
-- recursion themselves, by the same error, while there is stack for finalizers and handlers. Slots that lie deep are not kept
-- for the next region at their place, so only the way to a new slot asks, and regions that are not deep pay nothing for it.
local DEEP, EACH, ROOM = 64, 4, 4000 -- regions; of these so many pass unasked; slots of the stack, of 65,500
local none = {}

-- unpack refuses to put more on the stack than it holds.
local function check_stack()
  if (pcall(unpack, none, 1, ROOM)) then return end
  local where = err.where()
  error((where and where .. ': ' or '') .. 'stack overflow', 0)
end
jit.off(check_stack)

local function new_slot(g, n)
  if n > DEEP and n % EACH == 0 then check_stack() end
  local slot = { kind = false, rec = false, on = 2, group = g, place = n }
  g[n] = slot
  return slot
end

local function begin_in(slot, kind, rec, g, n)
  slot.kind, slot.rec, slot.on = kind, rec, 2
  local begin = kind.begin
  if begin then
    begin(rec, g, n)
  else
    kind.look(rec)
    g.n = n
    kind.enter(rec)
  end
end

-- The place that `ended` is to find it at is 0 for a slot that is not kept: it goes by `close`.
local function open_new(kind, rec, g, n)
  local slot = new_slot(g, n)
  begin_in(slot, kind, rec, g, n)
  return slot, g, n > DEEP and 0 or n
end

local function open(kind, rec)
  if interpreted then
    if running() ~= mine or linked and moved(S) ~= 0 then follow() end
  elseif address[0] ~= known or linked and moved(S) ~= 0 then follow() end
  local g = top
  local n = g and g.n or 0
  if n == 0 and (not g or owner ~= MAIN) then
    g = found(g)
    n = g.n
  end
  n = n + 1
  local slot = g[n]
  if not slot then return open_new(kind, rec, g, n) end
  slot.kind, slot.rec, slot.on = kind, rec, 2
  local begin = kind.begin
  if begin then
    begin(rec, g, n)
  else
    kind.look(rec)
    g.n = n
    kind.enter(rec)
  end
  return slot, g, n
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
    forget()
  end
end

local function over(kind, rec, failed)
  local f = kind.over
  if f and not rec.done then
    if not kind.harmless then rec.done = true end
    f(rec, failed)
  end
end

-- Take out the group's last record.
local function drop(g)
  local n = g.n
  local slot = g[n]
  if slot.on ~= 0 then slot.kind.leave(slot.rec) end
  g.n = n - 1
  if n > DEEP then g[n] = nil end
  return slot
end

-- Take a record out, and before it what an interrupt left above it.
local function close(slot, rec)
  if slot.rec ~= rec then return end
  here()
  local g, at = slot.group, slot.place
  while g.n > at do
    local above = drop(g)
    local kind, inner = above.kind, above.rec
    above.rec = false
    if inner then over(kind, inner, true) end
  end
  if g.n == at then drop(g) end
  if g.n == 0 and (owner ~= MAIN or count > 1 or apart) then retire(g) end
  slot.rec = false
end

-- -- Running -----------------------------------------------------------------------------------------
-- Results and up to three arguments go by name: the compiler does not do vararg functions that return to a pcall, and
-- their frames lie twice on the stack.

local noted, passing = false, nil -- an error is on its way out that was noted, and which
local unwinding -- the slot whose function raised, until it is closed

-- An error came, and one of an interrupt before its region was closed: close it now.
local function unwind()
  local slot = unwinding
  if slot.rec and slot.group == top then close(slot, slot.rec) end
  unwinding = nil
end

local function handler(e)
  here()
  local g = apart and active[count] or top
  unwinding = g and g[g.n]
  local before = noted and rawequal(passing, e)
  noted, passing = false, nil
  if before then return e end
  return note(e)
end

local function counted(...)
  local n = select('#', ...)
  if n <= 3 then return n, ... end
  return n, { ... }
end

-- Take a record out whose function returned, and count the results. Most have nothing above them, and the state is set for
-- their coroutine.
local function ended(slot, rec, kind, g, at, ...)
  if top ~= g or known == -1 or g.n ~= at or at == 1 and (owner ~= MAIN or count > 1) then
    close(slot, rec)
    return counted(...)
  end
  kind.leave(rec)
  g.n = at - 1
  slot.rec = false
  local n = select('#', ...)
  if n <= 3 then return n, ... end
  return n, { ... }
end

local function finished(kind, rec, n, a, b, c)
  if kind.finish then
    if n == 0 then kind.finish(rec)
    elseif n == 1 then kind.finish(rec, a)
    elseif n <= 3 then kind.finish(rec, a, b, c)
    else kind.finish(rec, unpack(a, 1, n)) end
    if kind.harmless then return end
  end
  over(kind, rec, false)
end

local function body(rec, fn, kind, n, a, b, c)
  if unwinding then unwind() end
  local slot, g, at = open(kind, rec)
  if n == 1 then n, a, b, c = ended(slot, rec, kind, g, at, fn(a))
  elseif n == 2 then n, a, b, c = ended(slot, rec, kind, g, at, fn(a, b))
  elseif n == 3 then n, a, b, c = ended(slot, rec, kind, g, at, fn(a, b, c))
  else n, a, b, c = ended(slot, rec, kind, g, at, fn(unpack(a, 1, n))) end
  if kind.over then finished(kind, rec, n, a, b, c)
  elseif kind.reuse then kind.spare = rec end
  return n, a, b, c, fn -- which the observer reads from the frame, so it has to stay there
end

local function plain_body(rec, fn, kind)
  if unwinding then unwind() end
  local slot, g, at = open(kind, rec)
  local n, a, b, c = ended(slot, rec, kind, g, at, fn())
  if kind.over then finished(kind, rec, n, a, b, c)
  elseif kind.reuse then kind.spare = rec end
  return n, a, b, c, fn
end

M.bodies = { [body] = true, [plain_body] = true } -- frames of regions: their first locals are the record and what runs

local function failed(kind, rec, e)
  here()
  local g = apart and active[count] or top
  for i = g and #g or 0, 1, -1 do
    if g[i].rec == rec then
      close(g[i], rec)
      break
    end
  end
  unwinding = nil
  over(kind, rec, true)
  noted, passing = true, e
  error(e, 0)
end

local function result(n, a, b, c)
  if n == 2 then return a, b
  elseif n == 3 then return a, b, c end
  return unpack(a, 1, n)
end

-- Small frames, so that regions nest 2,000 deep.
local function plain(kind, rec, fn)
  local ok, n, a, b, c = xpcall(plain_body, handler, rec, fn, kind)
  if not ok then return failed(kind, rec, n) end
  if n == 1 then return a
  elseif n == 0 then return end
  return result(n, a, b, c)
end

local function protected(kind, rec, fn, n, a, b, c)
  if n == 0 then return plain(kind, rec, fn) end
  local ok
  ok, n, a, b, c = xpcall(body, handler, rec, fn, kind, n, a, b, c)
  if not ok then return failed(kind, rec, n) end
  if n == 1 then return a
  elseif n == 0 then return end
  return result(n, a, b, c)
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

local function left(kind, rec, co, ok, ...)
  if ok then return ... end
  take_out(co) -- a yield to where nobody can be yielded to, or an interrupt
  over(kind, rec, true)
  local e = ...
  noted, passing = true, e
  error(e, 0)
end

local function separate(kind, rec, ...)
  local co = create(protected)
  return left(kind, rec, co, pcall(start, co, kind, rec, ...))
end

-- -- Interface ----------------------------------------------------------------------------------------------

--- Make a kind of region of functions that get the region's record. enter and leave may be called again after an error
-- in their middle, and do then what is left. They, look and keep call no op and not `here`.
-- @tparam function look note in the record the values outside
-- @tparam function enter write the ones inside, which the record has
-- @tparam ?function keep note the ones inside, before a pause
-- @tparam function leave write those outside back
-- @tparam ?function over (rec, failed) called once at the end, outside
-- @tparam ?function finish (rec, ...) called after fn returned with its results, outside, before over
-- @tparam ?boolean harmless over may be called twice, and where there is `finish` needn't be called if that did all
-- In the kind's `spare` lies a record that no region uses any more, for the next one, if its `reuse` is set.
-- @tparam ?function begin (rec, group, n) quicker than look and enter: as look, then group.n = n, then as enter
function M.kind(look, enter, keep, leave, over_, finish, harmless, begin)
  return { look = look, enter = enter, keep = keep, leave = leave, over = over_, finish = finish, harmless = harmless, begin = begin }
end

--- Run fn(...) in a region.
-- @tparam table kind
-- @tparam table rec the region's record, of its own
-- @tparam function fn
-- @return all of fn's results
function M.run(kind, rec, fn, ...)
  local n = select('#', ...)
  local go = protected
  if apart and (count == 0 or holders[count] ~= running()) and yieldable() then go = separate
  elseif n == 0 then return plain(kind, rec, fn) end
  if n <= 3 then return go(kind, rec, fn, n, ...) end
  return go(kind, rec, fn, n, { ... })
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
  if g and g.n > depth then close(g[depth + 1], g[depth + 1].rec) end
end

return M

--- Run a function with some of the state's fields changed, exactly while it runs.
-- The function runs in a coroutine of its own, so the fields are swapped at every way in and
-- out: return, error (the same object goes on), a yield to the caller's resumer, its resume.
-- A region is a kind with `push(rec)` (save the outer values, set the inner ones) and
-- `pop(rec)` (save the inner values, set the outer ones back); `rec` is the region's record.
-- Idle coroutines are kept: a region costs about a microsecond.
-- @module amp.region
local err = require 'amp.error'

local M = {}

local resume, create, yield = coroutine.resume, coroutine.create, coroutine.yield
local running, note = coroutine.running, err.note

local DONE = {} -- first result of a coroutine whose function returned
local idle, count = {}, 0
local MAX_IDLE = 16

-- What every such coroutine executes: functions for ever, one after the other, all by tail
-- calls. Idle, it waits in a frame of its own, which holds nothing of the last function.
local work
local function wait() return work(yield()) end
local function again(...)
  yield(DONE, ...)
  return wait()
end
work = function(fn, ...) return again(fn(...)) end
M.work = work -- the lowest frame of a region; its first local is what the region runs

local after

-- Back from the caller of the region after a yield to it: inside again.
local function inside(kind, rec, co, ...)
  kind.push(rec)
  return after(kind, rec, co, resume(co, ...))
end

local function finish(kind, rec, ...)
  if kind.leave then kind.leave(rec) end
  return ...
end

after = function(kind, rec, co, ok, tag, ...)
  kind.pop(rec)
  if ok then
    if tag == DONE then
      if count < MAX_IDLE then
        resume(co)
        count = count + 1
        idle[count] = co
      end
      if kind.leave then return kind.finish(kind, rec, ...) end
      return ...
    end
    if running() == nil then
      if kind.leave then kind.leave(rec, true) end
      error('attempt to yield across a region of amp from outside a coroutine', 0)
    end
    return inside(kind, rec, co, yield(tag, ...))
  end
  tag = note(co, tag)
  if kind.leave then kind.leave(rec, true) end
  error(tag, 0)
end

--- Make a kind of region.
-- @tparam function push
-- @tparam function pop
-- @tparam ?function leave (rec, failed) called once at the end, outside
-- @tparam ?function finish (kind, rec, ...) gives the results; default calls leave
function M.kind(push, pop, leave, finish_)
  return { push = push, pop = pop, leave = leave, finish = finish_ or finish }
end

--- Run fn(...) in a region.
-- @tparam table kind
-- @tparam table rec the region's record, of its own
-- @tparam function fn
-- @return all of fn's results
function M.run(kind, rec, fn, ...)
  local co
  if count > 0 then
    co = idle[count]
    idle[count] = nil
    count = count - 1
  else
    co = create(work)
  end
  kind.push(rec)
  return after(kind, rec, co, resume(co, fn, ...))
end

return M

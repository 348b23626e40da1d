--- Calls what was typed, so that Ctrl-C stops it and nothing it does ends the session.
-- Inputs run interpreted (compiled code looks at no hook), with a hook that asks every
-- thousand instructions whether Ctrl-C was pressed; an op looks by itself (S->interrupt).
-- The first Ctrl-C never cuts through amp's own Lua code, whose ops see it; a second one
-- stops anything that is interpreted, and goes on doing so; a third ends the process (src/terminal/tty.c).
-- @module amp.repl.run
local bit = require 'bit'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local region = require 'amp.core.region'
local report = require 'amp.cli.report'
local C, S = core.C, core.S
local word = require('amp.precision.autocast_state').of -- the autocast state, by device type

local M = {}

local SCOPE, OBSERVE = C.AMP_A_SCOPE, C.AMP_I_OBSERVE -- bits of amp_state.attention and .interrupt
local NOTE, STOP = C.AMP_TTY_NOTE, C.AMP_TTY_STOP
local tty = C.amp_tty_watch(S, NOTE)
M.tty = tty

local raised = 0

local mine = {} -- functions that nothing may cut through

local function hook()
  local n = tty.interrupts
  if n == 0 or (n == raised and n < 2) then return end
  local running = debug.getinfo(2, 'fS')
  if mine[running.func] or (n < 2 and err.own(running.source)) then return end
  raised = n
  -- from the second on at every instruction, so that it gets out of loops that catch errors
  if n >= 2 then debug.sethook(debug.gethook(), '', 1) end
  error(err.new(nil, 'interrupted', 'interrupted'), 0)
end
jit.off(hook)

local function enter()
  tty.interrupts, raised = 0, 0
  C.amp_tty_watch(S, STOP)
  debug.sethook(hook, '', 1000)
end

local function leave()
  debug.sethook()
  C.amp_tty_watch(S, NOTE)
end

local function itself(f) return f end -- called through it a function has no name in traces: it is the main chunk
local function pack(...) return { n = select('#', ...), ... } end

-- What an interrupted region may leave behind.
local function snapshot()
  return { region.depth(), S.grad_mode, S.autocast_on, S.autocast_depth, S.allow_banned, call.made, word[0], word[1] }
end
local function restore(s)
  region.close_from(s[1])
  S.grad_mode, S.autocast_on, S.autocast_depth, S.allow_banned, call.made = s[2], s[3], s[4], s[5], s[6]
  word[0], word[1] = s[7], s[8]
  if not call.made then S.attention = bit.band(S.attention, bit.bnot(SCOPE)) end
end

mine[enter], mine[leave] = true, true

--- Call a function as an input.
-- @tparam function chunk
-- @tparam ?string name the input's name, for the trace
-- @tparam ?boolean compiled leave it to the JIT compiler: faster, and only its ops can be stopped
-- @param ... arguments
-- @treturn ?table results with field n; nil after an error
-- @treturn ?string the error's text
-- @treturn number seconds it took
function M.call(chunk, name, compiled, ...)
  if not compiled then jit.off(chunk, true) end
  local before = snapshot()
  local args, results = pack(...), nil
  local began, seconds = C.amp_clock(), nil
  local function body()
    enter()
    results = pack(itself(chunk)(unpack(args, 1, args.n)))
    leave()
  end
  local function handler(e)
    leave()
    seconds = C.amp_clock() - began
    if err.is(e) and e.code == 'interrupted' then return 'interrupted' .. (e.where and ' at ' .. e.where or '') end
    return report.text(e, name)
  end
  mine[body], mine[handler] = true, true
  local ok, text = xpcall(body, handler)
  leave() -- where the handler itself failed
  mine[body], mine[handler] = nil, nil
  if ok and tty.interrupts > 0 then ok, text = false, 'interrupted' end -- what it waited for came to nothing, as io.read does
  if not ok then
    if tty.interrupts > 0 then restore(before) end
    results = nil
  end
  S.interrupt = bit.band(S.interrupt, OBSERVE)
  return results, not ok and tostring(text) or nil, seconds or C.amp_clock() - began
end
mine[M.call] = true

return M

--- The prompt: reads, runs, shows, until there is nothing more to read.
-- On a terminal lines are edited (amp.repl.edit); from a pipe, or on a terminal that can
-- move no cursor, they are read as they come. Lines that begin with `?` ask for help, with
-- `:` or `$` for something that is no Lua (amp.repl.commands).
-- @module amp.repl
local ffi = require 'ffi'
local core = require 'amp.ffi'
local eval = require 'amp.repl.eval'
local run = require 'amp.repl.run'
local C, S = core.C, core.S

local M = {}

local FIRST, NEXT = 'amp> ', '...> '

M.timing = false -- say of each input how long it took
M.compiled = false -- leave inputs to the JIT compiler: loops of Lua alone can't be stopped then
M.count = 0 -- inputs
local failed = false

local function out(text)
  io.stdout:write(text)
  io.stdout:flush()
end

-- -- Running an input ----------------------------------------------------------------------------

-- The last three results that were something
local function remember(v)
  if v == nil then return end
  eval.set('___', eval.env.__)
  eval.set('__', eval.env._)
  eval.set('_', v)
end

local function duration(seconds)
  if seconds < 1e-3 then return ('%.0f us'):format(seconds * 1e6) end
  if seconds < 1 then return ('%.3g ms'):format(seconds * 1e3) end
  return ('%.3g s'):format(seconds)
end

-- print and io.write give nothing that is worth a line
local function mere_output(p, results)
  return p.expression and results.n == 1 and results[1] == true and p.expression:find '^%s*[%w_%.]*[%.:]write%f[^%w_]' ~= nil
end

local function same(...) return ... end

--- Shows what an expression gave; a notebook shows it another way.
function M.show(results)
  local shown, text = run.call(require('amp.repl.show').results, nil, true, results) -- __tostring is the user's code
  if shown and shown[1] then out(shown[1] .. '\n') elseif text then out(text .. '\n') end
end

--- Says why an input did not run to its end.
function M.complain(text)
  io.stdout:flush()
  io.stderr:write(text, '\n')
end

--- Run an input and show what it gives.
-- @tparam string text
-- @tparam ?boolean timed say how long it took
-- @treturn boolean whether it ran to its end
function M.input(text, timed)
  M.count = M.count + 1
  local name = 'input ' .. M.count
  require('amp.cli.cure').remember(name, text)
  local list, why = eval.compile(text, '=' .. name)
  if not list then
    M.complain(why)
    return false
  end
  local silent = eval.silent(text)
  local total = 0
  for i = 1, #list do
    local p = list[i]
    eval.declare(p.names)
    local results, message, seconds = run.call(p.chunk, name, M.compiled, same)
    total = total + seconds
    io.stdout:flush()
    if not results then
      M.complain(message)
      return false
    end
    local gives = p.expression or results.n > 0 -- what statements return is shown, too
    if gives then remember(results[1]) end
    if gives and not (silent and i == #list) and not mere_output(p, results) then M.show(results) end
  end
  if timed or M.timing then out(('(%s)\n'):format(duration(total))) end
  return true
end

-- What people type who come from elsewhere: help, help(x), exit, quit()
local function habit(text)
  local word, rest = text:match '^%s*(%a+)%s*(.-)[%s;]*$'
  if not word or (word ~= 'help' and word ~= 'exit' and word ~= 'quit') or eval.env[word] ~= nil then return nil end
  local inside = rest:match '^%(%s*["\']?([%w_.:]*)["\']?%s*%)$' or rest:match '^["\']([%w_.:]+)["\']$'
  if rest == '' or inside == '' then return word == 'help' and '?' or ':quit' end
  return word == 'help' and inside and '?' .. inside or nil
end

--- Do what was typed: an input, a question, a command.
-- @treturn ?boolean false if it failed
function M.one(text)
  if not text:find '%S' then return end
  local ok
  text = habit(text) or text
  if text:find '^%s*[?$]' or text:find '^%s*:[^:]' then
    ok = require('amp.repl.commands')(M, text:match '^%s*(.-)%s*$')
  else
    ok = M.input(text)
  end
  if ok == false then failed = true end
  return ok
end
local function one(text) return M.one(text) end

--- Whether an input is complete: it runs as it is, or never will.
local function whole(text)
  if text:find '^%s*[?$]' or text:find '^%s*:[^:]' then return true end
  local _, _, more = eval.compile(text, '=input')
  return not more
end

M.whole = whole

-- -- Reading ----------------------------------------------------------------------------------------

local function capable()
  local term = os.getenv 'TERM'
  return C.amp_tty_is(0) == 1 and C.amp_tty_is(1) == 1 and term and term ~= '' and term ~= 'dumb'
end

ffi.cdef 'int amp_posix_raise(int sig) __asm__("raise");'
local TSTP = jit.arch:find 'mips' and 24 or 20

local function terminal()
  local edit, history = require 'amp.repl.edit', require 'amp.repl.history'
  local o = {
    first = FIRST, next = NEXT, history = history.load(), whole = whole, tty = run.tty,
    completer = function(before) return require('amp.repl.complete')(before) end,
    stop = function() ffi.C.amp_posix_raise(TSTP) end,
  }
  while not M.leaving do
    local text = edit.read(o)
    if text == nil then return out '\n' end
    if text then
      history.add(text)
      one(text)
    end
  end
end

-- Lines as they come, from a pipe or a terminal that can move no cursor.
local function lines(prompt)
  local held
  while not M.leaving do
    if prompt then
      io.stderr:write(held and NEXT or FIRST)
      io.stderr:flush()
    end
    run.tty.interrupts = 0
    local line = io.stdin:read '*l'
    if run.tty.interrupts > 0 then -- ctrl-c while waiting; a line is what was typed after it
      if not prompt then return end
      if not line then io.stderr:write '\n' end
      held = nil
    elseif not line then
      break
    end
    if line then
      if not held then line = line:gsub('^\239\187\191', '') end
      held = held and held .. '\n' .. line or line
      if whole(held) then
        local text = held
        held = nil
        one(text)
      end
    end
  end
  if held then one(held) end -- its end is missing: says so
  if prompt then io.stderr:write '\n' end
end

--- Start the prompt.
-- @tparam ?table o quiet (no greeting), failed (what ran before did)
-- @treturn number exit status: 0; 1 where something failed and nobody was there to see it
function M.start(o)
  local amp = require 'amp'
  eval.set('amp', amp)
  failed = o and o.failed or false
  C.amp_tty_watch(S, C.AMP_TTY_NOTE)
  if capable() then
    if not (o and o.quiet) then
      out(('amp %s on %s. ?name explains, ? says more, Ctrl-D ends.\n'):format((amp.version()), jit.version))
    end
    terminal()
    failed = false
  else
    local asked = C.amp_tty_is(0) == 1
    lines(asked)
    if asked then failed = false end
  end
  io.stdout:flush()
  C.amp_tty_watch(nil, C.AMP_TTY_OFF)
  return M.status or (failed and 1 or 0)
end

return M

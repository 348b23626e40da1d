--- Runs scripts, files or text, and shows their errors.
-- @module amp.cli.script
local report = require 'amp.cli.report'

local M = {}

-- -- Interrupts --------------------------------------------------------------------------------

-- Ctrl-C reaches the ops of a script, and its Lua code as the interpreter has it. Where the
-- library is not there the script's own `require` says so.
local function watch()
  local ok, core = pcall(require, 'amp.ffi')
  if not ok then return nil end
  local found, tty = pcall(function() return core.C.amp_tty_watch(core.S, core.C.AMP_TTY_HOST) end)
  if not found then return nil end -- a library of another age
  return tty, function() core.C.amp_tty_watch(nil, core.C.AMP_TTY_OFF) end
end

-- Whether an error says that Ctrl-C was pressed
local function interrupted(e, tty)
  if not tty or tty.interrupts == 0 then return false end
  if type(e) == 'table' then return rawget(e, 'code') == 'interrupted' end
  return type(e) == 'string' and e:find 'interrupted!$' ~= nil
end

--- Ends the process as SIGINT does, so that a shell's loop ends with it.
function M.die_of_interrupt()
  local ffi = require 'ffi'
  ffi.cdef [[
    int amp_posix_raise(int sig) __asm__("raise");
    void *amp_posix_signal(int sig, void *handler) __asm__("signal");
  ]]
  io.stdout:flush()
  ffi.C.amp_posix_signal(2, nil)
  ffi.C.amp_posix_raise(2)
end

-- -- Running ------------------------------------------------------------------------------------

--- Call a chunk; an error is shown.
-- @tparam ?function chunk nil: why it did not compile follows
-- @tparam ?string why
-- @param ... arguments
-- @treturn number exit status; 130: it was interrupted
function M.run(chunk, why, ...)
  if not chunk then
    io.stderr:write('amp: ', why, '\n')
    return 1
  end
  local args, n = { ... }, select('#', ...)
  local tty, unwatch = watch()
  local stopped = false
  local ok, text = xpcall(function() return chunk(unpack(args, 1, n)) end, function(e)
    stopped = interrupted(e, tty)
    return report.text(e)
  end)
  if unwatch then unwatch() end
  if ok then return 0 end
  io.stdout:flush()
  text = tostring(text)
  io.stderr:write(text:find '^amp: ' and '' or 'amp: ', text, '\n')
  return stopped and 130 or 1
end

--- Compile code whose `amp` is there without being a global.
-- @tparam string code
-- @tparam string name of the chunk
-- @treturn ?function chunk
-- @treturn ?string why
function M.code(code, name)
  local chunk, why = loadstring(code, name)
  if not chunk then return nil, why end
  require('amp.cli.cure').remember(name:sub(2), code)
  return setfenv(chunk, setmetatable({}, { __newindex = _G, __index = function(_, k)
    if k == 'amp' then return require 'amp' end
    return _G[k]
  end }))
end

-- Run text whose outermost variables stay for the prompt.
local function keep(chunk, text, name, ...)
  local eval = require 'amp.repl.eval'
  eval.set('amp', require 'amp')
  if text then
    local code, names = require('amp.repl.lexer').hoist(text)
    local hoisted = loadstring(code, name)
    if hoisted then
      chunk = hoisted
      eval.declare(names)
    end
  end
  local results, message = require('amp.repl.run').call(setfenv(chunk, eval.env), nil, true, ...)
  io.stdout:flush()
  if not results then io.stderr:write('amp: ', message, '\n') end
  return results ~= nil
end

--- Run a file; its outermost variables, locals among them, stay for the prompt.
-- @tparam string path
-- @param ... arguments
-- @treturn boolean whether it ran to its end
function M.keep(path, ...)
  local chunk, why = loadfile(path)
  if not chunk then
    io.stderr:write('amp: ', why, '\n')
    return false
  end
  local file = io.open(path, 'rb')
  local text = file:read '*a'
  file:close()
  text = text:byte() ~= 27 and text:gsub('^\239\187\191', ''):gsub('^#[^\n]*', '') or nil -- bytecode has no names
  return keep(chunk, text, '@' .. path, ...)
end

--- The same for code from the command line.
function M.keep_code(code, ...)
  local chunk, why = loadstring(code, '=(command line)')
  if not chunk then
    io.stderr:write('amp: ', why, '\n')
    return false
  end
  require('amp.cli.cure').remember('(command line)', code)
  return keep(chunk, code, '=(command line)', ...)
end

return M

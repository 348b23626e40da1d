--- What the prompt understands besides Lua: `?name`, `$ command`, `:time x`, `:who` ...
-- @module amp.repl.commands
local eval = require 'amp.repl.eval'
local util = require 'amp.util'

local function say(...)
  io.stdout:write(...)
  io.stdout:write '\n'
  io.stdout:flush()
end

local function fail(...)
  io.stdout:flush()
  io.stderr:write(...)
  io.stderr:write '\n'
  return false
end

local overview = [[
  1 + 1                an expression is shown; with ; at its end it is not
  _  __  ___           the last three results
  local x = 1          at the outermost level: a variable of the session
  ?name                help: ?matmul  ?nn.Linear  ?optim.Adam  ?DataLoader  ?Tensor
  ??words              everything whose help has these words
  :time x              how long x takes; :time on and :time off, for every input
  :who                 your variables
  :load file           run a script, its variables stay
  :locals on|off       whether outermost locals stay (on)
  :jit on|off          whether inputs are compiled (off): Ctrl-C reaches only ops then
  :quit  or Ctrl-D     end
  $ command            run a command of the shell
Tab completes names, methods, files in quotes, and options in a call's {}. Ctrl-C stops what runs, Ctrl-R looks for
an earlier input, Alt-Enter begins a new line.]]

local commands = {}

function commands.help() say(overview) end

function commands.quit(repl) repl.leaving = true end
commands.exit, commands.q = commands.quit, commands.quit

function commands.time(repl, rest)
  if rest == 'on' or rest == 'off' then
    repl.timing = rest == 'on'
    return
  end
  if rest == '' then return fail(':time on, :time off, or :time and what to measure') end
  return repl.input(rest, true)
end

commands['locals'] = function(_, rest)
  if rest == 'on' or rest == 'off' then eval.keep_locals = rest == 'on'
  elseif rest == '' then say(eval.keep_locals and 'on' or 'off')
  else return fail(':locals on or :locals off') end
end

function commands.jit(repl, rest)
  if rest == 'on' or rest == 'off' then repl.compiled = rest == 'on'
  elseif rest == '' then say(repl.compiled and 'on' or 'off')
  else return fail(':jit on or :jit off') end
end

function commands.who()
  local show = require 'amp.repl.show'
  local names, values = {}, {}
  for _, t in ipairs { eval.env, _G } do
    for k, v in next, t do
      if type(k) == 'string' and values[k] == nil and not (t == _G and eval.before[k]) and not k:find '^_+$' and k ~= 'amp' then
        names[#names + 1], values[k] = k, v
      end
    end
  end
  if #names == 0 then return say 'nothing yet' end
  table.sort(names)
  local width = 0
  for i = 1, #names do width = math.max(width, #names[i]) end
  for i = 1, #names do
    local text = show.value({ values[names[i]] }):match '^{%s*(.-)%s*}$'
    say(names[i], (' '):rep(width - #names[i] + 2), (text:gsub('\n.*', ' ...')))
  end
end

function commands.load(_, rest)
  local path = rest:match "^'(.*)'$" or rest:match '^"(.*)"$' or rest
  if path == '' then return fail(':load and the name of a file') end
  return require('amp.cli.script').keep(path)
end

--- Do what a line asks for.
-- @tparam table repl amp.repl
-- @tparam string text begins with ?, : or $
-- @treturn ?boolean false if it failed
return function(repl, text)
  local mark = text:sub(1, 1)
  if mark == '$' then
    local command = text:sub(2):match '^%s*(.-)$'
    if command == '' then return fail('$ and a command of the shell') end
    io.stdout:flush()
    return os.execute(command) == 0
  end
  if mark == '?' then
    local words = text:match '^%?%?%s*(.*)$'
    if words then
      if words == '' then return fail('?? and words to look for') end
      return require('amp.repl.help').search(words, say)
    end
    local name = text:match '^%?%s*(.-)[%s%?;]*$'
    if name == '' or name == 'help' and require('amp.repl.eval').env.help == nil then return commands.help() end
    return require('amp.repl.help').show(name, say)
  end
  local name, rest = text:match '^:%s*(%S*)%s*(.-)$'
  local f = commands[name]
  if f then return f(repl, rest) end
  return fail(("there is no command ':%s'%s (:help lists them)"):format(name, util.hint(name, util.keys(commands))))
end

--- The command `amp`: a prompt, scripts, code on the command line, and a few commands.
-- It reads the arguments and hands over; status 2 means that they make no sense.
local util = require 'amp.util'

local usage = [[
usage: amp                          a prompt (from a pipe: reads and shows, line by line)
       amp script.lua [arguments]   run a script
       amp -                        run what comes from standard input
       amp -e 'code' [arguments]    run code; `amp` is set in it
       amp run -n N script.lua      run a script in N processes, through MPI (amp run --help)
       amp doctor                   what this machine offers, what is missing, how to get it
       amp bench [claim...]         measure the claims on this machine (--list names them)
       amp chat DIR                 a published text model goes on with what you type
       amp embed DIR FILE           a vector for each line of a file, by a published sentence encoder
       amp convert IN OUT           tensors from one kind of file to another: .pt, .safetensors, .npz
       amp kernel install           tell Jupyter of amp: notebooks, consoles (amp kernel --help)
       amp vision predict MODEL PICTURE...  boxes or classes of pictures (amp vision --help)
       amp new DIR                  a project that trains; --serve: and answers over HTTP; --love: and learns in a game
       amp new op NAME              an op laid out in amp's source tree (examples/guide/extending.md)
options before the script:
       -i               the prompt afterwards; the script's variables stay
       -l module        require a module first
       -v, --version    version, and where amp was found
       -h, --help       this text
]]

local function refuse(...)
  io.stdout:flush()
  io.stderr:write('amp: ', table.concat { ... }, "\n(usage: amp --help)\n")
  return 2
end

local function version()
  local ok, amp = pcall(require, 'amp')
  if not ok then
    io.stderr:write(tostring(amp), '\n')
    return 1
  end
  local number, here, library = amp.version()
  print(('amp %s (%s)\nLua files  %s\nlibrary    %s'):format(number, jit.version, here, library))
  return 0
end

-- -- Commands ------------------------------------------------------------------------------------

local commands = {
  run = function(...) return require 'amp.cli.run'(...) end,
  doctor = function(...) return require 'amp.cli.doctor'(...) end,
  bench = function(...) return require 'amp.cli.bench'(...) end,
  chat = function(...) return require('amp.cli.text').chat { ... } end,
  embed = function(...) return require('amp.cli.text').embed { ... } end,
  convert = function(...) return require('amp.cli.convert').run { ... } end,
  kernel = function(...) return require 'amp.cli.kernel'(...) end,
  vision = function(...) return require('amp.cli.vision').run { ... } end,
  new = function(...) return require 'amp.cli.new'(...) end,
  help = function()
    io.stdout:write(usage)
    return 0
  end,
  version = version,
}

-- -- The prompt ------------------------------------------------------------------------------------

-- The prompt's module; nil, where the library is not there or does not fit, after saying so
local function load_prompt()
  local ok, repl = pcall(require, 'amp.repl')
  if not ok then
    local text = tostring(repl)
    local symbol = text:match "missing declaration for symbol '([%w_]+)'"
    local fits, core = pcall(require, 'amp.ffi')
    if symbol and fits then
      text = ('amp: the library %s has no %s: it is older than the Lua files in %s; build again, or reinstall amp'):format(core.path, symbol, core.here)
    end
    io.stderr:write(text:find '^amp: ' and '' or 'amp: ', text, '\n')
    return nil
  end
  return repl
end

-- -- Arguments ---------------------------------------------------------------------------------------

local function exists(path)
  local f = io.open(path, 'rb')
  if f then f:close() end
  return f ~= nil
end

-- A script that is not there: what may have been meant
local function missing(path)
  local folder, name = path:match '^(.*/)([^/]*)$'
  name = name or path
  local known = {}
  local ok, files = pcall(require, 'amp.repl.files')
  if ok then
    for _, f in ipairs(files.list(folder or '.')) do
      if f:find '%.lua$' then known[#known + 1] = f end
    end
  end
  if not folder and not name:find('.', 1, true) then
    for i = 1, #known do known[i] = known[i]:gsub('%.lua$', '') end
    for k in pairs(commands) do known[#known + 1] = k end
    local near = util.closest(name, known)
    if near and not commands[near] then near = near .. '.lua' end
    return refuse(("there is no command '%s' and no script of that name%s"):format(path, near and (", did you mean '%s'?"):format(near) or ''))
  end
  local near = util.closest(name, known)
  io.stderr:write(('amp: the script %s is not there%s\n'):format(path, near and (", did you mean '%s'?"):format((folder or '') .. near) or ''))
  return 1
end

local known_options = { '-i', '-l', '-e', '-v', '-h', '--version', '--help' }

-- Options in front of the script: {interactive, modules, code, at}, or a status
local function read(arg)
  local o = { modules = {}, at = 1 }
  while true do
    local a = arg[o.at]
    if a == nil or a == '-' or a:sub(1, 1) ~= '-' then return o end
    o.at = o.at + 1
    if a == '--' then return o
    elseif a == '-i' then o.interactive = true
    elseif a == '-h' or a == '--help' then return nil, commands.help()
    elseif a == '-v' or a == '--version' then return nil, version()
    elseif a == '-e' then
      o.code = arg[o.at]
      if not o.code then return nil, refuse '-e needs code' end
      o.at = o.at + 1
      return o
    elseif a:sub(1, 2) == '-l' then
      local name = #a > 2 and a:sub(3) or arg[o.at]
      if #a == 2 then o.at = o.at + 1 end
      if not name then return nil, refuse '-l needs the name of a module' end
      o.modules[#o.modules + 1] = name
    else
      return nil, refuse("unknown option '", a, "'", util.hint(a, known_options))
    end
  end
end

-- Give the script its arg: itself at 0, its arguments from 1, the rest below
local function set_arg(arg, at)
  local script = {}
  for i = 0, #arg do script[i - at] = arg[i] end
  rawset(_G, 'arg', script)
  return script
end

local function require_all(modules)
  local script = require 'amp.cli.script'
  for i = 1, #modules do
    local status = script.run(function() require(modules[i]) end)
    if status ~= 0 then return status end
  end
  return 0
end

--- Run the command.
-- @tparam table arg the command line, as Lua gives it
-- @treturn number exit status
return function(arg)
  local o, status = read(arg)
  if not o then return status end
  local script = require 'amp.cli.script'
  local first = arg[o.at]
  if os.getenv 'AMP_RUN' then io.stdout:setvbuf 'line' end -- lines of ranks are shown as they come
  if not o.code and first and commands[first] and not o.interactive and #o.modules == 0 then
    if first ~= 'run' and first ~= 'vision' and first ~= 'convert' and (arg[o.at + 1] == '--help' or arg[o.at + 1] == '-h') then return commands.help() end
    return commands[first](unpack(arg, o.at + 1))
  end
  if not first and not o.code then o.interactive = true end
  local repl = o.interactive and load_prompt() or nil
  if o.interactive and not repl then return 1 end
  status = require_all(o.modules)
  if status == 0 and o.code then
    local args = set_arg(arg, o.at - 1)
    if o.interactive then
      status = script.keep_code(o.code, unpack(args)) and 0 or 1
    else
      local chunk, why = script.code(o.code, '=(command line)')
      status = script.run(chunk, why, unpack(args))
    end
  elseif status == 0 and first then
    if first ~= '-' and not exists(first) then
      status = missing(first)
      if status == 2 then return status end
    else
      local args = set_arg(arg, o.at)
      if o.interactive and first ~= '-' then
        status = script.keep(first, unpack(args)) and 0 or 1
      else
        local chunk, why = loadfile(first ~= '-' and first or nil)
        status = script.run(chunk, why, unpack(args))
      end
    end
  end
  if repl then return repl.start { quiet = first ~= nil or o.code ~= nil, failed = status ~= 0 } end
  if status == 130 then require('amp.cli.script').die_of_interrupt() end
  return status
end

--- The command `amp`: runs scripts, and shows errors as amp's users want them:
-- the message with the line of their script, the modules it passed, then the trace.
local usage = [[
usage: amp script.lua [arguments]   run a script
       amp -                        run what comes from standard input
       amp -e 'code' [arguments]    run code; `amp` is set in it
       amp --version                version, and where amp was found
]]

local function report(e)
  local text = tostring(e)
  local trace = type(e) == 'table' and rawget(e, 'traceback')
  if type(trace) ~= 'string' then trace = debug.traceback('', 3) end
  trace = trace:match('stack traceback:.*') or trace
  -- frames of the command itself say nothing
  trace = trace:gsub('\n[^\n]*amp/cli%.lua:[^\n]*', ''):gsub('\n[^\n]*%[C%]: in function \'xpcall\'[^\n]*', '')
    :gsub('\n[^\n]*bin/amp:[^\n]*', ''):gsub('\n[^\n]*%[C%]: at 0x[^\n]*', '')
  return text .. '\n' .. trace
end

local function run(chunk, why, ...)
  if not chunk then
    io.stderr:write('amp: ', why, '\n')
    return 1
  end
  local args, n = {...}, select('#', ...)
  local ok, text = xpcall(function() return chunk(unpack(args, 1, n)) end, report)
  if ok then return 0 end
  io.stderr:write(text:find('^amp: ') and '' or 'amp: ', text, '\n')
  return 1
end

--- @tparam table arg the command line, as Lua gives it
-- @treturn number exit status
return function(arg)
  local first = arg[1]
  if first == nil or first == '-h' or first == '--help' then
    io.stdout:write(usage)
    return 0
  end
  if first == '--version' or first == '-v' then
    local ok, amp = pcall(require, 'amp')
    if not ok then
      io.stderr:write(tostring(amp), '\n')
      return 1
    end
    local version, here, library = amp.version()
    print(string.format('amp %s (%s)\nLua files  %s\nlibrary    %s', version, jit.version, here, library))
    return 0
  end
  if first == '-e' then
    if not arg[2] then
      io.stderr:write('amp: -e needs code\n', usage)
      return 1
    end
    local chunk, why = loadstring(arg[2], '=(command line)')
    if chunk then -- its globals are the program's, and amp besides
      setfenv(chunk, setmetatable({}, {__newindex = _G, __index = function(_, k)
        if k == 'amp' then return require 'amp' end
        return _G[k]
      end}))
    end
    return run(chunk, why, unpack(arg, 3))
  end
  if first:sub(1, 1) == '-' and first ~= '-' then
    io.stderr:write("amp: unknown option '", first, "'\n", usage)
    return 1
  end
  -- the script sees arg as under luajit: itself at 0, its arguments from 1
  local script = {}
  for i = 0, #arg do script[i - 1] = arg[i] end
  rawset(_G, 'arg', script)
  local chunk, why = loadfile(first ~= '-' and first or nil)
  return run(chunk, why, unpack(script))
end

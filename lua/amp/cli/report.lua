--- Errors as the command and the prompt show them: the message, then the trace without
-- the frames of those who ran the code.
-- @module amp.cli.report
local M = {}

local own = { 'amp/cli[%w_/]*%.lua:', 'amp/repl/[%w_]+%.lua:', 'bin/amp:', '^%s*%[C%]: in function \'xpcall\'', '^%s*%[C%]: at 0x', '^%s*%[C%]: in %?$' }

local function is_own(line)
  for i = 1, #own do
    if line:find(own[i]) then return true end
  end
  return false
end

--- Trace without what stands below the user's own code.
-- @tparam string trace as debug.traceback gives it
-- @treturn table lines, the heading not among them
function M.frames(trace)
  local lines = {}
  trace = trace:match 'stack traceback:\n(.*)' or ''
  for line in (trace .. '\n'):gmatch '(.-)\n' do
    if line:find '%S' then lines[#lines + 1] = line end
  end
  while #lines > 0 and is_own(lines[#lines]) do lines[#lines] = nil end
  return lines
end

-- A frame above the one that raised: the handler, and what raises for it. (A handler that calls by a tail call has no
-- frame of its own, so frames are known by what they are and not counted.)
local function is_raiser(line)
  return line:find 'amp/cli/report%.lua:' or line:find 'amp/cli/script%.lua:' or line:find 'amp/repl/run%.lua:' or line:find 'amp/error%.lua:'
    or line:find "^%s*%[C%]: in function 'error'"
end

-- tostring that can't fail
local function text_of(e)
  local ok, text = pcall(tostring, e)
  if ok and type(text) == 'string' then return text end
  return ('(an error value of type %s that can not be shown)'):format(type(e))
end

-- Where amp's own Lua files are, as a trace shows it
local function core_folder()
  local core = package.loaded['amp.ffi']
  return core and core.here or '/lua/amp/'
end

--- Message of an error. To be called in the handler of xpcall.
-- @param e error value
-- @tparam ?string input name of the chunk typed at a prompt: a trace of nothing but it is left out
-- @treturn string
function M.text(e, input)
  local text = text_of(e)
  local trace = type(e) == 'table' and rawget(e, 'traceback')
  if type(trace) ~= 'string' then
    trace = debug.traceback('', 1)
    if type(e) == 'string' then
      local ok, cure = pcall(require('amp.cli.cure').of, e)
      if ok then text = text .. cure end
    end
  end
  local lines = M.frames(trace)
  while lines[1] and is_raiser(lines[1]) do table.remove(lines, 1) end
  if input then
    local said = false -- a frame that says more than the message does
    for i = 1, #lines do
      local own_code = lines[i]:find '^%s*%[C%]:' or lines[i]:find '^%s*amp%.[%w_]+:%d' or lines[i]:find(core_folder(), 1, true)
      said = said or not (own_code or (lines[i]:find(input .. ':', 1, true) and lines[i]:find('in main chunk', 1, true))
        or lines[i]:find("in function 'chunk'", 1, true))
    end
    if not said then return text end
  end
  return text .. '\nstack traceback:\n' .. table.concat(lines, '\n')
end

return M

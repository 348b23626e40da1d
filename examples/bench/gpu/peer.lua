-- A Python process that measures PyTorch's cases one by one as they are asked for (`SCRIPT --serve`), so that its import
-- is paid once and both sides can take turns. Without PyTorch there is no peer, and `why` says so.
local ffi = require 'ffi'
local M = {}
M.__index = M

ffi.cdef 'void (*signal(int number, void (*handler)(int)))(int);'

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end
M.quote = quote

--- Start one.
-- @tparam string python the interpreter
-- @tparam string script which answers lines of its input, after one that begins with `ready`
-- @return the peer; or nil and why there is none
function M.start(python, script)
  if python == 'none' then return nil, 'not asked for' end
  ffi.C.signal(13, ffi.cast('void (*)(int)', 1)) -- SIGPIPE: a peer that died is seen when it does not answer
  local base = os.tmpname()
  local pipe, log = base .. '.pipe', base .. '.log'
  if os.execute('mkfifo ' .. quote(pipe)) ~= 0 then return nil, 'no pipe can be made in ' .. base end
  local to = io.popen(('%s %s --serve >%s 2>%s'):format(python, quote(script), quote(pipe), quote(log)), 'w')
  local from = io.open(pipe, 'r')
  os.remove(pipe)
  os.remove(base)
  local self = setmetatable({ to = to, from = from, log = log }, M)
  local hello = from:read '*l'
  if not hello then
    local last = ''
    for line in io.lines(log) do last = line end
    self:close()
    return nil, last
  end
  self.about = hello:gsub('^ready\t', ''):gsub('\t', ', ')
  return self
end

--- Ask for one case.
-- @tparam string words as on the script's command line
-- @treturn {number,...} ms, MiB, fastest, slowest; or nil and why
function M:ask(words)
  if self.dead then return nil, self.dead end
  self.to:write(words, '\n')
  self.to:flush()
  local line = self.from:read '*l'
  if not line then
    self.dead = 'the Python process ended; its messages: ' .. self.log
    return nil, self.dead
  end
  return M.parse(line)
end

--- An answer's numbers; or nil and why there are none.
function M.parse(line)
  local rest = line:match '^ok\t(.*)'
  if not rest then return nil, (line:gsub('^failed\t', '')) end
  local out = {}
  for n in rest:gmatch '[^\t]+' do out[#out + 1] = tonumber(n) end
  return out
end

function M:close()
  pcall(self.to.close, self.to)
  self.from:close()
  if not self.dead then os.remove(self.log) end
end

return M

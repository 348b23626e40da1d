--- What inputs write: standard output and error are files in memory, read whenever Lua has written to one of them (a program or a
-- library that was called too: what it left is there then).
local ffi = require 'ffi'
local amp_clock = require('amp.ffi').C.amp_clock
local posix = require 'amp.cli.posix'
local C = ffi.C

ffi.cdef [[
  int amp_out_memfd(const char *name, unsigned flags) __asm__("memfd_create");
  int amp_out_fcntl(int fd, int command, ...) __asm__("fcntl");
  long amp_out_pread(int fd, void *p, size_t n, long at) __asm__("pread");
  int amp_out_truncate(int fd, long n) __asm__("ftruncate");
  int amp_out_isatty(int fd) __asm__("isatty");
]]

local M = {}

local SETFL, APPEND, BURST, WINDOW = 4, 1024, 50, 0.5
local NULL = '/dev/null'

local streams, send = {}, nil
local buffer = ffi.new 'char[65536]'
local began, sent = 0, 0

--- Sends what was written and not sent yet.
function M.drain()
  io.stdout:flush()
  io.stderr:flush()
  for _, s in ipairs(streams) do
    local parts = {}
    repeat
      local n = C.amp_out_pread(s.fd, buffer, 65536, s.at)
      if n > 0 then
        parts[#parts + 1] = ffi.string(buffer, n)
        s.at = s.at + tonumber(n)
      end
    until n <= 0
    if s.at > 2 ^ 20 then
      C.amp_out_truncate(s.fd, 0)
      s.at = 0
    end
    if #parts > 0 then send(s.name, table.concat(parts)) end
  end
end

-- After each write, but no more often than a reader follows; the rest is sent with a later one, or at the input's end.
local function wrote(...)
  local now = amp_clock()
  if now - began > WINDOW then began, sent = now, 0 end
  if sent < BURST then
    sent = sent + 1
    M.drain()
  end
  return ...
end

--- Takes the two streams over.
-- @tparam function fn called with 'stdout' or 'stderr' and a text
function M.take(fn)
  send = fn
  local null = posix.C.amp_run_open(NULL, posix.RDONLY)
  posix.C.amp_run_dup2(null, 0)
  for fd, name in ipairs { 'stdout', 'stderr' } do
    local memory = C.amp_out_memfd('amp-' .. name, 0)
    if memory < 0 then error('no file in memory for ' .. name, 0) end
    C.amp_out_fcntl(memory, SETFL, ffi.cast('int', APPEND))
    posix.C.amp_run_dup2(memory, fd)
    streams[fd] = { name = name, fd = memory, at = 0 }
  end
  local methods = getmetatable(io.stdout).__index
  local write, say, of_io = methods.write, print, io.write
  methods.write = function(self, ...) -- luacheck: ignore 122
    if self == io.stdout or self == io.stderr then return wrote(write(self, ...)) end
    return write(self, ...)
  end
  rawset(_G, 'print', function(...) return wrote(say(...)) end)
  io.write = function(...) return wrote(of_io(...)) end -- luacheck: ignore 122
end

return M

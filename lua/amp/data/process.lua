--- A child process that ends with its parent, and a socket to it.
--
-- On Linux the kernel kills it (PR_SET_PDEATHSIG) when the thread that made it ends, which is right for a program's first thread. Elsewhere, and
-- for other threads, a pipe does: the parent alone holds its writing end, and when that closes the child gets SIGIO, which ends it.
-- Either way a parent that is gone already is noticed at once. Ends of sockets and pipes are not handed to programs (close-on-exec) nor to
-- later children. Ctrl-C reaches a terminal's whole group: a child ignores it and leaves it to its parent.
local bit = require 'bit'
local ffi = require 'ffi'
local clock = require('amp.core.library').clock
require 'amp.io.file'

ffi.cdef [[
int amp_posix_fork(void) __asm__("fork");
int amp_posix_socketpair(int domain, int type, int protocol, int *fds) __asm__("socketpair");
int amp_posix_pipe(int *fds) __asm__("pipe");
ssize_t amp_posix_send(int fd, const void *from, size_t n, int flags) __asm__("send");
ssize_t amp_posix_recv(int fd, void *to, size_t n, int flags) __asm__("recv");
int amp_posix_waitpid(int pid, int *status, int options) __asm__("waitpid");
int amp_posix_kill(int pid, int signal) __asm__("kill");
void amp_posix_exit(int status) __asm__("_exit");
int amp_posix_fflush(void *file) __asm__("fflush");
int amp_posix_getppid(void) __asm__("getppid");
int amp_posix_gettid(void) __asm__("gettid");
int amp_posix_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) __asm__("prctl");
int amp_posix_fcntl(int fd, int command, ...) __asm__("fcntl");
void *amp_posix_set_signal(int signal, intptr_t handler) __asm__("signal");
int amp_posix_sigprocmask(int how, const void *set, void *old) __asm__("sigprocmask");
struct amp_pollfd { int fd; short events, revents; };
int amp_posix_poll(struct amp_pollfd *fds, unsigned long n, int milliseconds) __asm__("poll");
]]
local C = ffi.C
local APPLE = ffi.os ~= 'Linux'
local AF_UNIX, SOCK_STREAM, EINTR, WNOHANG, POLLIN = 1, 1, 4, 1, 1
local SIGINT, SIGKILL, SIGTERM, SIGIO = 2, 9, 15, APPLE and 23 or 29
local NOSIGNAL, DONTWAIT, EAGAIN = APPLE and 0x80000 or 0x4000, APPLE and 0x80 or 0x40, APPLE and 35 or 11
local F_SETFD, F_SETFL, F_SETOWN, CLOEXEC, ASYNC = 2, 4, APPLE and 6 or 8, 1, APPLE and 0x40 or 0x2000
local SETMASK, PDEATHSIG = APPLE and 3 or 2, 1

local M = {
  portable = false, -- true: the pipe though the kernel would do (for specs)
}

local ours = {} -- descriptors that no later child is to hold

local function close(fd)
  C.amp_posix_close(fd)
  ours[fd] = nil
end

local function number(v) return ffi.cast('int', v) end

local function keep(fd)
  C.amp_posix_fcntl(fd, F_SETFD, number(CLOEXEC))
  ours[fd] = true
end

local function why() return ffi.string(C.amp_posix_strerror(ffi.errno())) end

M.id = C.amp_posix_getpid

--- End this process at once: no finalizer, no exit handler of a library that waits for its parent's threads.
function M.exit(status)
  pcall(io.flush)
  C.amp_posix_exit(status)
end

-- -- Bytes ------------------------------------------------------------------------------------------

--- Send all n bytes; false when nobody is there to get them.
function M.send(fd, p, n)
  p = ffi.cast('const char *', p)
  while n > 0 do
    local done = tonumber(C.amp_posix_send(fd, p, n, NOSIGNAL))
    if done < 0 then
      if ffi.errno() ~= EINTR then return false end
    else
      p, n = p + done, n - done
    end
  end
  return true
end

--- Receive n bytes, waiting for them; false at the end.
function M.receive_all(fd, p, n)
  p = ffi.cast('char *', p)
  while n > 0 do
    local done = tonumber(C.amp_posix_recv(fd, p, n, 0))
    if done == 0 or done < 0 and ffi.errno() ~= EINTR then return false end
    if done > 0 then p, n = p + done, n - done end
  end
  return true
end

--- Send n bytes, few enough to go whole, if that needs no waiting.
function M.send_now(fd, p, n) return C.amp_posix_send(fd, p, n, NOSIGNAL + DONTWAIT) == n end

--- Receive at most n bytes that are there: how many, 0 at the end, nil where there are none yet.
function M.receive_now(fd, p, n)
  local got = tonumber(C.amp_posix_recv(fd, p, n, DONTWAIT))
  if got >= 0 then return got end
  local e = ffi.errno()
  return e ~= EAGAIN and e ~= EINTR and 0 or nil
end

local waited = ffi.new 'struct amp_pollfd[1]'
local status = ffi.new 'int[1]'

-- Whether a child has ended; notes how.
local function ended(w, options)
  if w.status then return true end
  local pid
  repeat
    pid = C.amp_posix_waitpid(w.pid, status, options)
  until pid >= 0 or ffi.errno() ~= EINTR
  if pid == 0 then return false end
  w.status = pid == w.pid and status[0] or -1 -- -1: the program itself, or the system, took notice of its end before
  return true
end

--- Wait until there are bytes of child w.
-- @tparam ?number ends when to give up, as amp.clock says
-- @treturn ?string nil, 'gone' or 'late'
function M.wait(w, ends)
  local left = ends and ends - clock() or 1
  if left <= 0 then return 'late' end
  waited[0].fd, waited[0].events = w.fd, POLLIN
  if C.amp_posix_poll(waited, 1, math.ceil(math.min(left, 1) * 1000)) == 0 and ended(w, WNOHANG) then
    return C.amp_posix_poll(waited, 1, 0) == 0 and 'gone' or nil
  end
end

jit.off(M.wait) -- so that an interrupt is seen

-- -- Children ---------------------------------------------------------------------------------------

local function first_thread()
  local ok, thread = pcall(function() return C.amp_posix_gettid() end)
  return ok and thread == C.amp_posix_getpid()
end

-- In the child: signals as a new program has them, and an end with the parent.
local function settle(parent, by_kernel, lifeline)
  local none = ffi.new 'char[256]'
  for _, s in ipairs { SIGTERM, SIGIO } do C.amp_posix_set_signal(s, 0) end
  C.amp_posix_set_signal(SIGINT, 1)
  if by_kernel then C.amp_posix_prctl(PDEATHSIG, SIGKILL, 0, 0, 0) end
  if lifeline then
    C.amp_posix_fcntl(lifeline, F_SETOWN, number(C.amp_posix_getpid()))
    C.amp_posix_fcntl(lifeline, F_SETFL, number(ASYNC))
  end
  C.amp_posix_sigprocmask(SETMASK, none, nil)
  if C.amp_posix_getppid() ~= parent then C.amp_posix_exit(1) end
end

--- Start a child that runs fn(socket).
-- @treturn table with fd (this end of the socket) and pid; or nil and the reason
function M.start(fn)
  local parent, by_kernel = C.amp_posix_getpid(), not APPLE and not M.portable and first_thread()
  local sockets, line = ffi.new 'int[2]', ffi.new('int[2]', -1, -1)
  if C.amp_posix_socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) ~= 0 then return nil, why() end
  if not by_kernel and C.amp_posix_pipe(line) ~= 0 then
    local reason = why()
    close(sockets[0])
    close(sockets[1])
    return nil, reason
  end
  keep(sockets[0])
  keep(sockets[1])
  if not by_kernel then
    keep(line[0])
    keep(line[1])
  end
  C.amp_posix_fflush(nil) -- else what waits in buffers would be written twice
  local pid = C.amp_posix_fork()
  if pid == 0 then
    for fd in pairs(ours) do
      if fd ~= sockets[1] and fd ~= line[0] then C.amp_posix_close(fd) end
    end
    ours = { [sockets[1]] = true }
    if not by_kernel then ours[line[0]] = true end
    settle(parent, by_kernel, not by_kernel and line[0] or nil)
    local ok, e = pcall(fn, sockets[1])
    if not ok then pcall(function() io.stderr:write('a worker of a DataLoader: ', tostring(e), '\n') end) end
    M.exit(1)
  end
  local reason = pid < 0 and why()
  close(sockets[1])
  if not by_kernel then close(line[0]) end
  if pid < 0 then
    close(sockets[0])
    if not by_kernel then close(line[1]) end
    return nil, reason
  end
  return { fd = sockets[0], line = not by_kernel and line[1] or nil, pid = pid }
end

jit.off(M.start) -- a fork in compiled code would leave the child values that its collector doesn't see

local function release(w)
  if w.fd then close(w.fd) end
  if w.line then close(w.line) end
  w.fd, w.line = nil, nil
end

--- What became of a child that gives nothing more, in words.
function M.ending(w)
  local ends = clock() + 1
  while not ended(w, WNOHANG) do -- its socket is closed, but it lives: a moment, then not
    if clock() > ends then C.amp_posix_kill(w.pid, SIGKILL) ended(w, 0)
    else C.amp_posix_poll(nil, 0, 5) end
  end
  release(w)
  if w.status == -1 then return 'ended' end
  local signal = bit.band(w.status, 127)
  if signal ~= 0 then return ('was ended by signal %d%s'):format(signal, signal == SIGKILL and ' (out of memory?)' or '') end
  return ('ended with status %d'):format(bit.band(bit.rshift(w.status, 8), 255))
end

--- Tell a child to end. `reap` waits for it.
function M.stop(w)
  release(w)
  if not w.status then C.amp_posix_kill(w.pid, SIGKILL) end
end

function M.reap(w) ended(w, 0) end

return M

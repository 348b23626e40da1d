--- Processes, pipes and signals, for `amp run`. Signals come through a descriptor, as no callback may run Lua.
-- @module amp.cli.posix
local ffi = require 'ffi'
local C = ffi.C

ffi.cdef [[
  struct amp_run_poll { int fd; short events, revents; };
  int amp_run_fork(void) __asm__("fork");
  int amp_run_execvp(const char *file, char *const *argv) __asm__("execvp");
  void amp_run_exit(int status) __asm__("_exit");
  int amp_run_pipe(int *fd) __asm__("pipe");
  int amp_run_dup2(int from, int to) __asm__("dup2");
  int amp_run_close(int fd) __asm__("close");
  int amp_run_open(const char *path, int flags, ...) __asm__("open");
  long amp_run_read(int fd, void *p, size_t n) __asm__("read");
  long amp_run_write(int fd, const void *p, size_t n) __asm__("write");
  int amp_run_poll(struct amp_run_poll *p, unsigned long n, int ms) __asm__("poll");
  int amp_run_kill(int pid, int sig) __asm__("kill");
  int amp_run_waitpid(int pid, int *status, int options) __asm__("waitpid");
  int amp_run_getpid(void) __asm__("getpid");
  int amp_run_getppid(void) __asm__("getppid");
  unsigned amp_run_geteuid(void) __asm__("geteuid");
  int amp_run_setpgid(int pid, int group) __asm__("setpgid");
  int amp_run_prctl(int what, unsigned long a, unsigned long b, unsigned long c, unsigned long d) __asm__("prctl");
  int amp_run_sigemptyset(void *set) __asm__("sigemptyset");
  int amp_run_sigaddset(void *set, int sig) __asm__("sigaddset");
  int amp_run_sigprocmask(int how, const void *set, void *old) __asm__("sigprocmask");
  int amp_run_signalfd(int fd, const void *set, int flags) __asm__("signalfd");
  void *amp_run_signal(int sig, void *handler) __asm__("signal");
  char *amp_run_mkdtemp(char *pattern) __asm__("mkdtemp");
  int amp_run_mkfifo(const char *path, unsigned mode) __asm__("mkfifo");
  int amp_run_unlink(const char *path) __asm__("unlink");
  int amp_run_rmdir(const char *path) __asm__("rmdir");
  int amp_run_setenv(const char *name, const char *value, int replace) __asm__("setenv");
  char *amp_run_realpath(const char *path, char *resolved) __asm__("realpath");
  char *amp_run_getcwd(char *p, size_t n) __asm__("getcwd");
  char *amp_run_strsignal(int sig) __asm__("strsignal");
  char *amp_run_strerror(int e) __asm__("strerror");
  int amp_run_access(const char *path, int mode) __asm__("access");
]]

local M = { C = C, HUP = 1, INT = 2, KILL = 9, USR1 = 10, USR2 = 12, TERM = 15, CHLD = 17, RDONLY = 0, WRONLY = 1, RDWR = 2, NONBLOCK = 2048, CLOEXEC = 524288 }

M.names = { [1] = 'SIGHUP', [2] = 'SIGINT', [3] = 'SIGQUIT', [4] = 'SIGILL', [6] = 'SIGABRT', [7] = 'SIGBUS', [8] = 'SIGFPE', [9] = 'SIGKILL',
  [11] = 'SIGSEGV', [13] = 'SIGPIPE', [14] = 'SIGALRM', [15] = 'SIGTERM' }

local set_t = ffi.typeof 'char[256]'

--- Block these signals; they come through the descriptor that is given.
function M.signals(list)
  local set = set_t()
  C.amp_run_sigemptyset(set)
  for _, s in ipairs(list) do C.amp_run_sigaddset(set, s) end
  C.amp_run_sigprocmask(0, set, nil)
  C.amp_run_signal(13, ffi.cast('void *', 1)) -- a closed pipe is an error of write
  return C.amp_run_signalfd(-1, set, M.CLOEXEC + M.NONBLOCK)
end

local info = ffi.new 'uint32_t[32]' -- struct signalfd_siginfo

--- The next signal of such a descriptor, nil: none waits.
function M.next_signal(fd)
  if C.amp_run_read(fd, info, 128) ~= 128 then return nil end
  return info[0]
end

local buffer = ffi.new 'char[65536]'

--- Bytes that are there: a string, '' at the end, nil where there are none yet.
function M.read(fd)
  local n = tonumber(C.amp_run_read(fd, buffer, 65536))
  if n >= 0 then return ffi.string(buffer, n) end
  local e = ffi.errno()
  if e == 11 or e == 4 then return nil end
  return ''
end

--- Write all of a string; false where nobody reads.
function M.write(fd, text)
  local p, n = ffi.cast('const char *', text), #text
  while n > 0 do
    local done = tonumber(C.amp_run_write(fd, p, n))
    if done < 0 then
      local e = ffi.errno()
      if e == 11 then C.amp_run_poll(ffi.new('struct amp_run_poll[1]', { { fd = fd, events = 4 } }), 1, 1000)
      elseif e ~= 4 then return false end
    else
      p, n = p + done, n - done
    end
  end
  return true
end

--- Which of the descriptors can be read, within ms: a set.
function M.poll(fds, ms)
  local p, ready = ffi.new('struct amp_run_poll[?]', #fds), {}
  for i = 1, #fds do p[i - 1].fd, p[i - 1].events = fds[i], 1 end
  C.amp_run_poll(p, #fds, ms)
  for i = 1, #fds do if p[i - 1].revents ~= 0 then ready[fds[i]] = true end end
  return ready
end

function M.pipe()
  local fd = ffi.new 'int[2]'
  if C.amp_run_pipe(fd) ~= 0 then error('no pipe: ' .. ffi.string(C.amp_run_strerror(ffi.errno())), 0) end
  return fd[0], fd[1]
end

local status = ffi.new 'int[1]'

--- How a child ended: nil, it has not; else status, signal.
function M.ended(pid, wait)
  local got
  repeat got = C.amp_run_waitpid(pid, status, wait and 0 or 1) until got >= 0 or ffi.errno() ~= 4
  if got == 0 then return nil end
  if got < 0 then return 1, 0 end
  local s = status[0]
  return bit.band(bit.rshift(s, 8), 255), bit.band(s, 127)
end

--- Start a program. o: {stdin, stdout, stderr descriptors; dies: the signal that it gets when this process ends; group: its own}
function M.start(argv, o)
  local list = ffi.new('const char *[?]', #argv + 1)
  for i = 1, #argv do list[i - 1] = argv[i] end
  list[#argv] = nil
  local parent, none = C.amp_run_getpid(), set_t()
  C.amp_run_sigemptyset(none)
  io.stdout:flush()
  io.stderr:flush()
  local pid = C.amp_run_fork()
  if pid ~= 0 then return pid end
  if o.group then C.amp_run_setpgid(0, 0) end
  C.amp_run_prctl(1, o.dies, 0, 0, 0)
  if C.amp_run_getppid() ~= parent then C.amp_run_exit(1) end
  for name, to in pairs { stdin = 0, stdout = 1, stderr = 2 } do if o[name] then C.amp_run_dup2(o[name], to) end end
  C.amp_run_signal(13, nil)
  C.amp_run_sigprocmask(2, none, nil)
  C.amp_run_execvp(argv[1], ffi.cast('char *const *', list))
  local text = ('amp: %s could not be started: %s\n'):format(argv[1], ffi.string(C.amp_run_strerror(ffi.errno())))
  C.amp_run_write(2, text, #text)
  C.amp_run_exit(127)
end

jit.off(M.start) -- a fork in compiled code would leave the child values that its collector doesn't see

function M.absolute(path)
  local p = C.amp_run_realpath(path, nil)
  return p ~= nil and ffi.string(p) or path
end

function M.folder()
  local p = C.amp_run_getcwd(ffi.new 'char[4096]', 4096)
  return p ~= nil and ffi.string(p) or '.'
end

function M.exists(path) return C.amp_run_access(path, 0) == 0 end

--- The path of a program, as a shell finds it.
function M.which(name)
  if name:find '/' then return C.amp_run_access(name, 1) == 0 and name or nil end
  for dir in (os.getenv 'PATH' or ''):gmatch '[^:]+' do
    if C.amp_run_access(dir .. '/' .. name, 1) == 0 then return dir .. '/' .. name end
  end
end

return M

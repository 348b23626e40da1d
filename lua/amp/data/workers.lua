--- Worker processes for a DataLoader: each has a copy of the dataset as it was at the epoch's start, gathers the
-- batches it is told to, and hands them over through a socket.
--
--   parent --(indices)--> worker: dataset:batch or get --(values)--> parent
--
-- Workers are forked, so a dataset may be any Lua object; they work on the CPU, with one thread, and end with
-- their parent. Random numbers in a worker depend on the epoch and the batch alone, not on how many workers there are. An error in a
-- dataset is raised where the batch is asked for.
local bit = require 'bit'
local ffi = require 'ffi'
local amp = require 'amp'
local types = require 'amp.types'
local util = require 'amp.util'
local raise = require('amp.error').throw
local file = require 'amp.io.file'

ffi.cdef [[
int amp_posix_fork(void) __asm__("fork");
int amp_posix_socketpair(int domain, int type, int protocol, int *fds) __asm__("socketpair");
ssize_t amp_posix_send(int fd, const void *from, size_t n, int flags) __asm__("send");
ssize_t amp_posix_recv(int fd, void *to, size_t n, int flags) __asm__("recv");
int amp_posix_waitpid(int pid, int *status, int options) __asm__("waitpid");
int amp_posix_kill(int pid, int signal) __asm__("kill");
void amp_posix_exit(int status) __asm__("_exit");
int amp_posix_fflush(void *file) __asm__("fflush");
]]
local C = ffi.C
local AF_UNIX, SOCK_STREAM, EINTR, SIGTERM = 1, 1, 4, 15
local NOSIGNAL = ffi.os == 'OSX' and 0x80000 or 0x4000

local M = {}

-- -- Bytes through a socket ------------------------------------------------------------------------

local function send(fd, p, n)
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

local function receive(fd, p, n)
  p = ffi.cast('char *', p)
  while n > 0 do
    local done = tonumber(C.amp_posix_recv(fd, p, n, 0))
    if done == 0 or done < 0 and ffi.errno() ~= EINTR then return false end
    if done > 0 then p, n = p + done, n - done end
  end
  return true
end

-- -- Values -------------------------------------------------------------------------------------------

local number = ffi.new 'double[1]'
local function put_number(put, v)
  number[0] = v
  put(number, 8)
end

-- A tag of one character, then what it needs: N number, S string, T tensor, A table, + true, - false, 0 nil.
local function write(put, v, depth)
  local kind = type(v)
  if kind == 'nil' then put('0', 1)
  elseif kind == 'number' then
    put('N', 1)
    put_number(put, v)
  elseif kind == 'boolean' then put(v and '+' or '-', 1)
  elseif kind == 'string' then
    put('S', 1)
    put_number(put, #v)
    put(v, #v)
  elseif amp.is_tensor(v) then
    local t = v:detach():to('cpu'):contiguous()
    put('T', 1)
    put_number(put, types.dtype_code[t.dtype])
    put_number(put, t:dim())
    for d = 1, t:dim() do put_number(put, t:size(d)) end
    put(t:data_ptr(), t:numel() * t:element_size())
  elseif kind == 'table' then
    if depth > 50 then error('the tables of a batch are nested too deep', 0) end
    put('A', 1)
    local n = 0
    for _ in pairs(v) do n = n + 1 end
    put_number(put, n)
    for k, x in pairs(v) do
      write(put, k, depth + 1)
      write(put, x, depth + 1)
    end
  else
    error(('a batch from a worker may hold tensors, numbers, strings, booleans and tables of them, got %s'):format(util.show(v)), 0)
  end
end

local tag = ffi.new 'char[1]'
local function read(get)
  local function get_number()
    get(number, 8)
    return file.double(number)
  end
  get(tag, 1)
  local kind = string.char(tag[0])
  if kind == 'N' then return get_number()
  elseif kind == '+' then return true
  elseif kind == '-' then return false
  elseif kind == 'S' then
    local n = get_number()
    local p = ffi.new('char[?]', math.max(n, 1))
    get(p, n)
    return ffi.string(p, n)
  elseif kind == 'T' then
    local dtype, shape = types.dtype_name[get_number()], {}
    for d = 1, get_number() do shape[d] = get_number() end
    local t = amp.empty(shape, {dtype = dtype, device = 'cpu'})
    if t:numel() > 0 then get(t:data_ptr(), t:numel() * t:element_size()) end
    return t
  elseif kind == 'A' then
    local out = {}
    for _ = 1, get_number() do
      local k = read(get)
      out[k] = read(get)
    end
    return out
  end
  return nil
end

-- -- A worker -------------------------------------------------------------------------------------------

-- Runs in the child and never returns.
local function work(fd, gather, base)
  amp.set_num_threads(1)
  amp.set_default_device 'cpu'
  local head = ffi.new 'double[2]' -- number of the batch, how many indices
  while receive(fd, head, 16) do
    local n = head[1]
    local indices = amp.empty({n}, {dtype = 'int64', device = 'cpu'})
    if n > 0 and not receive(fd, indices:data_ptr(), 8 * n) then break end
    amp.manual_seed((base + head[0]) % 2 ^ 52)
    local parts = {}
    local function put(p, size)
      parts[#parts + 1] = ffi.string(p, size) -- whole before anything is sent: an error sends nothing else
    end
    local ok, e = pcall(function()
      local values = gather(indices)
      write(put, #values, 0)
      for i = 1, #values do write(put, values[i], 0) end
    end)
    local message = ok and table.concat(parts)
    if not ok then
      parts = {}
      write(put, tostring(e), 0)
      message = table.concat(parts)
    end
    local size = ffi.new('double[1]', #message)
    if not (send(fd, size, 8) and send(fd, message, #message)) then break end
  end
  C.amp_posix_exit(0)
end

-- -- The pool ---------------------------------------------------------------------------------------------

local Pool = {}
Pool.__index = Pool

--- Start workers.
-- @tparam number n how many
-- @tparam function gather from an int64 vector of indices to a list of values
-- @tparam number base of the epoch's random numbers
function M.new(n, gather, base)
  local self = setmetatable({list = {}, guard = newproxy(true)}, Pool)
  local owner = C.amp_posix_getpid()
  getmetatable(self.guard).__gc = function() -- in a worker, what it inherited is its parent's
    if C.amp_posix_getpid() == owner then self:close() end
  end
  for i = 1, n do
    local fds = ffi.new 'int[2]'
    if C.amp_posix_socketpair(AF_UNIX, SOCK_STREAM, 0, fds) ~= 0 then
      self:close()
      raise('data.DataLoader', 'cannot make a socket for worker %d: %s', i, ffi.string(C.amp_posix_strerror(ffi.errno())))
    end
    C.amp_posix_fflush(nil) -- else what waits in buffers would be written twice
    local pid = C.amp_posix_fork()
    if pid == 0 then
      for _, w in ipairs(self.list) do C.amp_posix_close(w.fd) end
      C.amp_posix_close(fds[0])
      pcall(work, fds[1], gather, base)
      C.amp_posix_exit(1)
    end
    C.amp_posix_close(fds[1])
    if pid < 0 then
      C.amp_posix_close(fds[0])
      self:close()
      raise('data.DataLoader', 'cannot start worker %d: %s', i, ffi.string(C.amp_posix_strerror(ffi.errno())))
    end
    self.list[i] = {fd = fds[0], pid = pid}
  end
  return self
end

jit.off(M.new) -- a fork in compiled code would leave the child values that its collector doesn't see

-- What became of a worker that hands over nothing more.
local function end_of(w)
  local status = ffi.new 'int[1]'
  C.amp_posix_waitpid(w.pid, status, 0)
  C.amp_posix_close(w.fd)
  w.pid = nil
  local signal = bit.band(status[0], 127)
  if signal ~= 0 then return ('was ended by signal %d%s'):format(signal, signal == 9 and ' (out of memory?)' or '') end
  return ('ended with status %d'):format(bit.band(bit.rshift(status[0], 8), 255))
end

local function lost(self, i)
  local why = end_of(self.list[i])
  self:close()
  raise('data.DataLoader', 'worker %d %s', i, why)
end

local function open(self)
  if self.closed then raise('data.DataLoader', 'this epoch ended by an error; begin a new one with iter') end
end

--- Ask for batch b, of these indices (an int64 vector). Batches of one worker come in the order they were asked for.
function Pool:ask(b, indices)
  open(self)
  local i = (b - 1) % #self.list + 1
  local w = self.list[i]
  local n = indices:numel()
  indices = indices:contiguous()
  if not (send(w.fd, ffi.new('double[2]', b, n), 16) and send(w.fd, indices:data_ptr(), 8 * n)) then lost(self, i) end
end

--- Take batch b: a list of values.
function Pool:take(b)
  open(self)
  local i = (b - 1) % #self.list + 1
  local w = self.list[i]
  local function get(p, n)
    if not receive(w.fd, p, n) then error(get, 0) end
  end
  local ok, values = pcall(function()
    local size = ffi.new 'double[1]'
    get(size, 8)
    local count = read(get)
    if type(count) == 'string' then return count end
    local list = {}
    for k = 1, count do list[k] = read(get) end
    return list
  end)
  if not ok then
    if values == get then lost(self, i) end
    error(values, 0)
  end
  if type(values) == 'string' then
    self:close()
    raise('data.DataLoader', 'batch %d, in worker %d: %s', b, i, values)
  end
  return values
end

--- End the workers.
function Pool:close()
  self.closed = true
  for _, w in ipairs(self.list) do
    if w.pid then
      C.amp_posix_close(w.fd)
      C.amp_posix_kill(w.pid, SIGTERM)
    end
  end
  for _, w in ipairs(self.list) do
    if w.pid then C.amp_posix_waitpid(w.pid, nil, 0) end
    w.pid = nil
  end
end

return M

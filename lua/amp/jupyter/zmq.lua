--- The few functions of libzmq that the kernel needs. It is opened when the kernel starts (Debian: libzmq5).
local ffi = require 'ffi'

ffi.cdef [[
  typedef struct amp_zmq_msg { char bytes[64]; } __attribute__((aligned(8))) amp_zmq_msg;
  typedef struct amp_zmq_item { void *socket; int fd; short events, revents; } amp_zmq_item;
  void *zmq_ctx_new(void);
  int zmq_ctx_term(void *context);
  void *zmq_socket(void *context, int type);
  int zmq_close(void *socket);
  int zmq_bind(void *socket, const char *endpoint);
  int zmq_connect(void *socket, const char *endpoint);
  int zmq_setsockopt(void *socket, int option, const void *value, size_t n);
  int zmq_getsockopt(void *socket, int option, void *value, size_t *n);
  int zmq_msg_init(amp_zmq_msg *msg);
  int zmq_msg_close(amp_zmq_msg *msg);
  int zmq_msg_recv(amp_zmq_msg *msg, void *socket, int flags);
  int zmq_msg_more(const amp_zmq_msg *msg);
  size_t zmq_msg_size(const amp_zmq_msg *msg);
  void *zmq_msg_data(amp_zmq_msg *msg);
  int zmq_send(void *socket, const void *data, size_t n, int flags);
  int zmq_poll(amp_zmq_item *items, int n, long ms);
  int zmq_errno(void);
  const char *zmq_strerror(int e);
]]

local M = { PUB = 1, SUB = 2, REQ = 3, DEALER = 5, ROUTER = 6, ROUTING_ID = 5, SUBSCRIBE = 6, LINGER = 17, SNDMORE = 2, EINTR = 4 }

local lib

--- Opens the library.
-- @treturn ?string nil: why it can not be opened
function M.open()
  if lib then return lib end
  local why
  for _, name in ipairs { os.getenv 'AMP_LIBZMQ' or 'libzmq.so.5', 'libzmq.so', 'libzmq.5.dylib' } do
    local ok, found = pcall(ffi.load, name)
    if ok then
      lib = found
      M.lib, M.name = lib, name
      return lib
    end
    why = why or found
  end
  return nil, tostring(why)
end

local function check(status, what)
  if status < 0 then error(('%s: %s'):format(what, ffi.string(lib.zmq_strerror(lib.zmq_errno()))), 0) end
  return status
end

function M.context() return lib.zmq_ctx_new() end

--- A socket, bound or connected.
-- @tparam string how 'bind' or 'connect'
-- @tparam ?string name of a socket that connects: sockets of the same name are one client's
function M.socket(context, kind, how, endpoint, name)
  local s = lib.zmq_socket(context, kind)
  if s == nil then check(-1, 'zmq_socket') end
  lib.zmq_setsockopt(s, M.LINGER, ffi.new('int[1]', 1000), 4)
  if name then check(lib.zmq_setsockopt(s, M.ROUTING_ID, name, #name), 'name') end
  check(lib['zmq_' .. how](s, endpoint), how .. ' ' .. endpoint)
  return s
end

function M.subscribe(s) check(lib.zmq_setsockopt(s, M.SUBSCRIBE, '', 0), 'subscribe') end

--- Sends the parts of one message.
function M.send(s, parts)
  for i = 1, #parts do
    local status
    repeat status = lib.zmq_send(s, parts[i], #parts[i], i < #parts and M.SNDMORE or 0)
    until status >= 0 or lib.zmq_errno() ~= M.EINTR
    check(status, 'zmq_send')
  end
end

local msg = ffi.new 'amp_zmq_msg'

--- The parts of the next message, which is there or is waited for.
function M.receive(s)
  local parts = {}
  repeat
    lib.zmq_msg_init(msg)
    local status
    repeat status = lib.zmq_msg_recv(msg, s, 0) until status >= 0 or lib.zmq_errno() ~= M.EINTR
    check(status, 'zmq_msg_recv')
    parts[#parts + 1] = ffi.string(lib.zmq_msg_data(msg), lib.zmq_msg_size(msg))
    local more = lib.zmq_msg_more(msg) ~= 0
    lib.zmq_msg_close(msg)
  until not more
  return parts
end

--- Waits for messages.
-- @tparam table sockets
-- @tparam number ms -1: for ever
-- @treturn table socket's place in the list -> true; empty after a signal
function M.poll(sockets, ms)
  local items = ffi.new('amp_zmq_item[?]', #sockets)
  for i = 1, #sockets do items[i - 1].socket, items[i - 1].events = sockets[i], 1 end
  local n, ready = lib.zmq_poll(items, #sockets, ms), {}
  if n > 0 then
    for i = 1, #sockets do ready[i] = items[i - 1].revents ~= 0 or nil end
  end
  return ready
end

return M

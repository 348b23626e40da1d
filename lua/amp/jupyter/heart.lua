--- The heartbeat: sends back what comes, also while an input computes. It runs in a thread of its own with a Lua state of its own,
-- whose one callback is the thread's function: no state is ever in two threads.
local ffi = require 'ffi'
local C = ffi.C

ffi.cdef [[
  typedef struct amp_heart_state amp_heart_state;
  amp_heart_state *amp_heart_new(void) __asm__("luaL_newstate");
  void amp_heart_libs(amp_heart_state *L) __asm__("luaL_openlibs");
  int amp_heart_load(amp_heart_state *L, const char *code) __asm__("luaL_loadstring");
  int amp_heart_call(amp_heart_state *L, int args, int results, int handler) __asm__("lua_pcall");
  double amp_heart_number(amp_heart_state *L, int at) __asm__("lua_tonumber");
  const char *amp_heart_text(amp_heart_state *L, int at, size_t *n) __asm__("lua_tolstring");
  int amp_heart_thread(unsigned long *thread, const void *attributes, void *fn, void *argument) __asm__("pthread_create");
]]

local code = [[
local ffi = require 'ffi'
ffi.cdef 'int zmq_proxy(void *front, void *back, void *capture); int zmq_close(void *socket);'
local zmq = ffi.load '%s'
jit.off()
beat = ffi.cast('void *(*)(void *)', function(socket)
  zmq.zmq_proxy(socket, socket, nil) -- until the context ends
  zmq.zmq_close(socket)
  return nil
end)
return tonumber(ffi.cast('uintptr_t', ffi.cast('void *', beat)))
]]

--- Starts the thread.
-- @param socket a bound router, the thread's own from now on
-- @tparam string library libzmq's name
return function(socket, library)
  local L = C.amp_heart_new()
  C.amp_heart_libs(L)
  if C.amp_heart_load(L, code:format(library)) ~= 0 or C.amp_heart_call(L, 0, 1, 0) ~= 0 then
    error('the heartbeat: ' .. ffi.string(C.amp_heart_text(L, -1, nil)), 0)
  end
  local fn = ffi.cast('void *', C.amp_heart_number(L, -1))
  if C.amp_heart_thread(ffi.new 'unsigned long[1]', nil, fn, socket) ~= 0 then error('the heartbeat: no thread can be made', 0) end
end

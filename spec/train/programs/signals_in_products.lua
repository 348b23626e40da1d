-- Products under a signal each millisecond, whose handler runs where the stack pointer points: luajit signals_in_products.lua SECONDS THREADS
local amp = require 'amp'
local ffi = require 'ffi'
local profile = require 'jit.profile'
ffi.cdef [[
void *amp_spec_malloc(size_t) __asm__("malloc");
void amp_spec_free(void *) __asm__("free");
]]
amp.set_num_threads(tonumber(arg[2]))
amp.set_grad_enabled(false)
local seconds, list, at = tonumber(arg[1]), {}, 0
local x, net = amp.ones(64, 4096), amp.nn.Linear(4096, 64):eval()
local want = net(x):sum():item()
profile.start('i1', function() end)
local began = os.clock()
while os.clock() - began < seconds do
  assert(net(x):sum():item() == want)
  for _ = 1, 8 do -- neighbours in the heap, which glibc looks at when they go
    at = at % 64 + 1
    if list[at] then ffi.C.amp_spec_free(list[at]) end
    list[at] = ffi.C.amp_spec_malloc(1000 + at * 7919 % 40000)
  end
end
profile.stop()
for _, p in pairs(list) do ffi.C.amp_spec_free(p) end

--- Trains in a thread while the loop stays free: luajit train.lua [steps]     (Debian: lua-luv)
-- The thread has a Lua state of its own. It tells its progress by an async handle (of several words that come at once the loop
-- sees the last), and hands the trained weights over as
-- tensors: addresses of handles that the loop's state takes by amp.from_ref; nothing is copied.
local tree = (arg[0]:match '^(.*/)' or '') .. '../../../lua/'
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local uv = require 'luv'
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'

ffi.cdef 'void *example_malloc(size_t n) __asm__("malloc"); void example_free(void *p) __asm__("free");'

local steps = tonumber(arg[1] or 3000)

-- Runs in the thread: sees nothing of what stands outside of it.
local function work(tell, path, n)
  package.path = path
  local amp, ffi = require 'amp', require 'ffi' -- luacheck: ignore 431
  ffi.cdef 'void *example_malloc(size_t n) __asm__("malloc");'
  amp.manual_seed(1)
  local net = amp.nn.Linear(4, 1)
  local x = amp.randn(64, 4)
  local y = x:matmul(amp.tensor{{1}, {-2}, {3}, {0.5}}) + 0.25
  local opt = amp.optim.SGD(net:parameters(), {lr = 0.1})
  for step = 1, n do
    local loss = amp.nn.functional.mse_loss(net(x), y)
    loss:backward()
    opt:step():clear_grad()
    if step % 500 == 0 then tell:send('progress', step, loss:item()) end
  end
  -- counts of our own, so that the tensors outlive this state; whoever takes them gives the counts back
  local refs = ffi.cast('amp_ref *', ffi.C.example_malloc(2 * ffi.sizeof 'amp_ref'))
  local C = require('amp.ffi').C
  for i, t in ipairs {net.weight:detach(), net.bias:detach()} do
    refs[i - 1].ptr_ = nil
    C.amp_retain(refs + (i - 1), t)
  end
  tell:send('done', tonumber(ffi.cast('uintptr_t', refs)))
end

local ticks, trained = 0, nil
local ticker = uv.new_timer()
local tell
tell = uv.new_async(function(what, a, b)
  if what == 'progress' then return print(('step %d  loss %.6f'):format(a, b)) end
  local refs = ffi.cast('amp_ref *', a)
  trained = {weight = amp.from_ref(refs), bias = amp.from_ref(refs + 1)}
  for i = 0, 1 do core.C.amp_release(refs + i) end
  ffi.C.example_free(refs)
  ticker:close()
  tell:close()
end)
ticker:start(0, 1, function() ticks = ticks + 1 end)
local thread = uv.new_thread(work, tell, package.path, steps)
uv.run()
thread:join()
print('weight', trained.weight)
print('bias', trained.bias)
print(ticks > 0 and 'the loop ran meanwhile' or 'the loop stood still')

--- Memory and streams of a GPU, on the emulator of spec/device/emulator: each case is a process of its own. With
-- AMP_EMULATED_LAZY a stream does nothing until it has to, so what is ordered by nothing comes out wrong;
-- AMP_EMULATED_MEMORY is the card's memory in MiB.
local assert = require 'luassert'
local amp = require 'amp'

local E = require 'spec.device.emulated'

local LAZY = 'AMP_EMULATED_LAZY=1'
local case = E.cases(it, pending, E.head .. 'local MB = 2 ^ 20\n')

describe('a GPU without memory left', function()
  case('says how much was asked, held, free, and by what', [[
local held = amp.empty(8, 1024, 1024, { device = 'cuda' })
local e = fails(function() return amp.empty(64, 1024, 1024, { device = 'cuda' }) end, 'no memory for 256.0 MiB on cuda:1', 'has 64.0 MiB',
  '32.0 MiB live', 'MiB cached', 'for captured steps', '32.0 MiB free')
same(32 * MB, amp.cuda.memory_stats().live, 'live')
local m = amp.cuda.memory_stats()
same(64 * MB, m.total, 'total')
same(m.total, m.live + m.cached + m.others + m.free, 'the parts together')
assert(m.failures >= 1)
same(2, amp.ones(2, { device = 'cuda' }):sum():item(), 'after it')
assert(held)
]], 'AMP_EMULATED_MEMORY=64')

  case('takes back what is cached, then what the collector holds', [[
for i = 1, 3 do amp.empty(4, 1024, 1024, { device = 'cuda' }):free() end       -- cached in one size
local a = amp.empty(15, 1024, 1024, { device = 'cuda' })                       -- of another: only fits without them
same(60 * MB, amp.cuda.memory_stats().live, 'live')
a = nil
collectgarbage 'stop'
for i = 1, 4 do
  local garbage = amp.empty(12, 1024, 1024, { device = 'cuda' }):fill_(i)
end
same(1, amp.ones(12, 1024, 1024, { device = 'cuda' }):max():item(), 'values')
]], 'AMP_EMULATED_MEMORY=64')

  case('collects in the middle of a backward, too, and goes on', [[
collectgarbage 'stop'
local function run(garbage)
  local x = amp.ones(3, 1024, 1024, { device = 'cuda', requires_grad = true }) -- 12 MiB
  local y = (x * 2):exp()                            -- 12 MiB, saved, and 12 of garbage; backward needs 24 more
  local s = y:sum()
  if garbage then assert(amp.empty(4, 1024, 1024, { device = 'cuda' })) end
  s:backward()
  return x.grad[1][1][1]:item()
end
local want = run(false)
collectgarbage()
amp.cuda.empty_cache()
local failures = amp.cuda.memory_stats().failures
same(want, run(true), 'gradient')
assert(amp.cuda.memory_stats().failures > failures, 'there was enough memory')
-- too much for good is an error, and everything goes on
collectgarbage()
local held = amp.empty(7, 1024, 1024, { device = 'cuda' })
fails(function() run(false) end, 'no memory for 12.0 MiB')
collectgarbage()
assert(held)
held = nil
collectgarbage()
same(want, run(false), 'gradient after it')
]], 'AMP_EMULATED_MEMORY=64')

  case('frees what waits for other streams before it gives up', [[
local side = amp.cuda.Stream()
for i = 1, 6 do
  local x = side:with(function() return amp.full({ 6, 1024, 1024 }, i, { device = 'cuda' }) end)
  amp.cuda.current_stream():wait_stream(side)
  local y = x:narrow(1, 1, 1) * 2
  x:free()
  local z = amp.full({ 7, 1024, 1024 }, -1, { device = 'cuda' })
  same(2 * i, y[1][1][1]:item(), 'value')
  z:free() y:free()
end
]], 'AMP_EMULATED_MEMORY=64 ' .. LAZY)
end)

describe('pinned memory', function()
  it('without a GPU is ordinary memory', function()
    if amp.cuda.is_available() then return end
    local x = amp.randn(3, 2)
    assert.is_false(x:is_pinned())
    assert.is_false(x:pin_memory():is_pinned())
    assert.is_true(x:pin_memory():equal(x))
    for v in amp.data.DataLoader(amp.data.TensorDataset(x), { batch_size = 3, pin_memory = true }):iter() do assert.is_true(v:equal(x)) end
  end)

  case('holds copies of CPU tensors of any layout, and works as any other', [[
for _, x in ipairs { amp.randn(50, 40), amp.randn(30, 4):t(), amp.randn(3):half(), amp.arange(5), amp.empty(0, 3), amp.randn(1):expand(4, 5) } do
  local p = x:pin_memory()
  assert(p:is_pinned() and not x:is_pinned() and p:is_contiguous())
  equal(x, p, 'copy')
  assert(p:pin_memory() == p, 'pinned twice')
  same(x.dtype, p.dtype, 'dtype')
end
local p = amp.ones(100, 100):pin_memory()
p:add_(1)
same(20000, p:sum():item(), 'sum')
assert(not (p + 1):is_pinned())
assert(p:narrow(1, 1, 2):is_pinned())
fails(function() randn(2):pin_memory() end, "host's", 'cuda:1')
local before = amp.memory 'cpu'.live
for i = 1, 50 do amp.randn(300, 300):pin_memory():free() end
assert(amp.memory 'cpu'.live - before < 50 * MB)
]])

  case('is copied from without a wait, and not given out again before that', [[
local waits = amp.counters().host_waits
local there, want = {}, {}
for i = 1, 20 do
  local x = amp.full({ 300, 40 }, i):pin_memory()
  there[i] = x:to { device = 'cuda', non_blocking = true }
  x:free() -- its memory may be the next one's
end
for i = 1, 20 do there[20 + i] = amp.full({ 300, 40 }, 20 + i):pin_memory():cuda { non_blocking = true } end
same(waits, amp.counters().host_waits, 'waits')
for i = 1, 40 do same(i, there[i]:max():item(), 'largest') same(i, there[i]:min():item(), 'least') end
local host = amp.zeros(300, 40):pin_memory()
host:copy_(there[7], { non_blocking = true })
amp.cuda.synchronize()
same(7 * 12000, host:sum():item(), 'copied back')
there[1]:copy_(host, { non_blocking = true })
same(7 * 12000, there[1]:sum():item(), 'copied into')
]], LAZY)

  case('is read before the call returns where the copy is an ordinary one', [[
for _, x in ipairs { amp.ones(300, 40), amp.ones(300, 40):pin_memory() } do
  local y = x:cuda()
  local z = amp.zeros(300, 40, { device = 'cuda' })
  z:copy_(x)
  x:fill_(5)
  same(12000, y:sum():item(), 'to')
  same(12000, z:sum():item(), 'copy_')
  local w = x:t():cuda { non_blocking = true } -- not contiguous
  same(60000, w:sum():item(), 'transposed')
end
]], LAZY)

  case('of more than 32 MiB is waited for, whatever memory it comes from', [[
for _, x in ipairs { amp.ones(9, 1024, 1024), amp.ones(9, 1024, 1024):pin_memory() } do
  local y = amp.zeros(9, 1024, 1024, { device = 'cuda' })
  local z = y + 1
  y:copy_(x)
  assert(amp.cuda.current_stream():query(), 'the copy is under way')
  x:fill_(2)
  same(1, y:max():item(), 'copy')
  y:free() z:free()
end
]], LAZY)

  case('goes to the card that was asked, whichever one its memory was for before', [[
local a = randn(4096):cpu()
for _, cards in ipairs { { 'cuda:2', 'cuda:1' }, { 'cuda:1', 'cuda:2' } } do
  local x, y = amp.empty(4096, { device = cards[1] }), amp.empty(4096, { device = cards[2] })
  x:copy_(a)
  y:copy_(a)                     -- asks whether the first copy's memory is free
  same(0, (y * 1 - a:to(cards[2])):abs():max():item(), cards[2])
  same(0, (x * 1 - a:to(cards[1])):abs():max():item(), cards[1])
end
]], LAZY .. ' AMP_EMULATED_GPUS=2')

  case('is ready again in any order of streams, and blocks are kept', [[
local side = amp.cuda.Stream()
local list, want = {}, {}
for i = 1, 60 do
  local x = amp.full({ 300 + i % 7 * 900 }, i):pin_memory()
  local function copy() return x:cuda { non_blocking = true } end
  list[i] = i % 3 == 0 and side:with(copy) or copy()
  x:free()
  if i % 11 == 0 then side:synchronize() end
  if i % 17 == 0 then amp.cuda.current_stream():synchronize() end
end
amp.cuda.synchronize()
for i = 1, 60 do same(i, list[i]:max():item(), 'largest') same(i, list[i]:min():item(), 'least') end
amp.cuda.empty_cache()
same(3, (amp.ones(3):pin_memory():cuda { non_blocking = true }):sum():item(), 'after it')
]], LAZY)

  case('that a forked worker collects is left alone: it need not have the pages', [[
local ffi = require 'ffi'
ffi.cdef 'int madvise(void *, size_t, int);'
amp.cuda.synchronize()
local big = amp.randn(1000, 1000):pin_memory()
local page = math.floor(tonumber(ffi.cast('uintptr_t', big:data_ptr())) / 4096) * 4096
assert(ffi.C.madvise(ffi.cast('void *', page), 900 * 4096, 10) == 0) -- MADV_DONTFORK, as drivers do
local set = { size = function() return 8 end, get = function() big = nil collectgarbage() collectgarbage() return amp.ones(4) end }
local n = 0
for x in data.DataLoader(set, { batch_size = 2, workers = 1 }):iter() do n = n + x:sum():item() end
same(32, n, 'batches')
same(1000, big:size(1), 'here')
]], LAZY)

  case('is where non_blocking copies to the CPU go; gradients pass', [[
local x = randn(100, 50)
x.requires_grad = true
local h = x:to { device = 'cpu', non_blocking = true }
assert(h:is_pinned() and h.device == 'cpu')
amp.cuda.synchronize()
equal(x, h, 'values')
h:sum():backward()
same(5000, x.grad:sum():item(), 'gradient')
local y = amp.randn(100, 50):pin_memory()
y.requires_grad = true
(y:cuda { non_blocking = true } * 2):sum():backward()
same(10000, y.grad:sum():item(), 'gradient on the CPU')
fails(function() y:cuda { blocking = true } end, 'non_blocking')
fails(function() y:to { device = 'cuda', non_blocking = 1 } end, 'true or false')
]], LAZY)
end)

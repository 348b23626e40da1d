--- Memory and streams of a GPU, on the emulator of spec/emulator: each case is a process of its own. With
-- AMP_EMULATED_LAZY a stream does nothing until it has to, so what is ordered by nothing comes out wrong;
-- AMP_EMULATED_MEMORY is the card's memory in MiB.
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.helper'

local E = require 'spec.emulated'

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

describe('streams', function()
  it('without a GPU are an error that says why', function()
    if amp.cuda.is_available() then return end
    for _, f in ipairs { amp.cuda.Stream, amp.cuda.current_stream, amp.cuda.default_stream, amp.cuda.Event } do
      H.fails_here(function() f() end, 'cuda', 'not there')
    end
    H.fails_here(function() amp.cuda.Stream 'cpu' end, 'a GPU is expected')
  end)

  case('are chosen for a function, and are the outer ones again afterwards', [[
local default, side, other = amp.cuda.current_stream(), amp.cuda.Stream(), amp.cuda.Stream 'cuda:1'
assert(default == amp.cuda.default_stream() and side ~= default and side ~= other)
local function now() return amp.cuda.current_stream() end
local a, b = amp.cuda.stream(side, function(x, y)
  assert(now() == side)
  other:with(function() assert(now() == other) end)
  assert(now() == side)
  return x, y
end, 1, nil)
assert(a == 1 and b == nil and now() == default)
local mine = {}
local ok, e = pcall(side.with, side, function() assert(now() == side) error(mine) end)
assert(not ok and e == mine and now() == default)
local co = coroutine.wrap(function() side:with(function() coroutine.yield() assert(now() == side) end) assert(now() == default) end)
co()
assert(now() == default)
co()
fails(function() amp.cuda.stream(1, function() end) end, 'a stream is expected')
fails(function() side:with(3) end, 'a function is expected')
fails(function() amp.cuda.Stream 'cuda:5' end, 'cuda:5')
for i = 1, 40 do assert(amp.cuda.Stream().number >= 1) end
assert(tostring(side):find('number 1', 1, true))
]])

  case('go on side by side; events order them', [[
local side = amp.cuda.Stream()
local x = randn(200, 200)
side:wait_stream(amp.cuda.current_stream())
local y = side:with(function() return x * 2 end)
assert(not side:query(), 'a lazy stream has done its work')
local e = side:record_event()
assert(not e:query())
e:wait()
equal(x * 2, y, 'product')
assert(e:query())
side:synchronize()
assert(side:query())
local f = amp.cuda.Event()
assert(f:query() and f:synchronize() == f and f:wait() == f, 'never recorded')
fails(function() f:elapsed_time(e) end, 'not recorded')
local from, to = amp.cuda.Event { enable_timing = true }, amp.cuda.Event { enable_timing = true }
from:record() local z = x + 1 to:record()
fails(function() return from:elapsed_time(to) end, 'synchronize')
to:synchronize()
assert(from:elapsed_time(to) >= 0 and z)
e = amp.cuda.Event():record()
to:synchronize() e:synchronize()
fails(function() return e:elapsed_time(to) end, 'enable_timing')
fails(function() amp.cuda.Event { timing = true } end, 'enable_timing')
]], LAZY)

  case('have numbers from 0 on, of which only those that were made can be used', [[
local S, C = require 'amp.ffi'.S, require 'amp.ffi'.C
local event = amp.cuda.Event():record()
for n, text in pairs { [-1] = 'no stream -1', [-7] = 'no stream -7', [5] = 'no stream 5', [16] = 'no stream 16' } do
  assert(C.amp_stream_query(S, 1, 0, n) < 0)
  local e = require 'ffi'.string(S.err.message)
  assert(e:find(text, 1, true), e)
end
assert(C.amp_stream_synchronize(S, 1, 0, -1) < 0)
same(0, C.amp_stream_use(S, 1, 0, -1), 'asked')
assert(event:synchronize())
]])

  case('keep memory that another one still works on', [[
local side = amp.cuda.Stream()
local default = amp.cuda.current_stream()
for round = 1, 30 do
  -- made here, read there, freed here: not to be written before that
  local x = amp.full({ 100, 100 }, round, { device = 'cuda' })
  side:wait_stream(default)
  local y = side:with(function() return x + 1 end)
  x:free()
  local z = amp.full({ 100, 100 }, -1, { device = 'cuda' })
  -- made there, read here, freed here
  default:wait_stream(side)
  local w = y * 2
  y:free()
  local v = side:with(function() return amp.full({ 100, 100 }, -2, { device = 'cuda' }) end)
  same((round + 1) * 2, w:max():item(), 'largest')
  same((round + 1) * 2, w:min():item(), 'least')
  side:synchronize()
  same(-1, z:max():item(), 'own') same(-2, v:max():item(), 'own there')
  z:free() v:free() w:free()
end
collectgarbage() collectgarbage()
amp.cuda.synchronize()
local held = amp.cuda.memory_stats()
assert(held.live < 1 * MB and held.cached < 8 * MB, held.cached)
amp.cuda.empty_cache()
same(0, amp.cuda.memory_stats().cached, 'cached')
]], LAZY)

  case('without an event show it on the lazy emulator', [[
local side = amp.cuda.Stream()
local x = amp.full({ 100, 100 }, 3, { device = 'cuda' })
local y = side:with(function() return x + 1 end)
assert(not (y:max():item() == 4), 'nothing depends on the order')
]], LAZY)

  case('train as one does: a net, mixed precision, an optimizer in a side stream', [[
local function train(stream)
  amp.manual_seed(3)
  local net = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 5)):to 'cuda'
  local opt, scaler = optim.AdamW(net:parameters(), { lr = 0.01 }), amp.GradScaler { init_scale = 1024 }
  local function step(x, y)
    local loss = amp.autocast({ dtype = 'float16' }, function() return F.cross_entropy(net(x), y) end)
    scaler:scale(loss):backward()
    scaler:unscale_(opt)
    nn.utils.clip_grad_norm_(net:parameters(), 1)
    scaler:step(opt)
    scaler:update()
    opt:clear_grad()
    return loss
  end
  local out = {}
  for i = 1, 8 do
    local x, y = randn(16, 40), amp.randint(1, 6, { 16 }, { dtype = 'int64', device = 'cuda' })
    if stream then
      stream:wait_stream(amp.cuda.current_stream())
      out[i] = stream:with(step, x, y)
      amp.cuda.current_stream():wait_stream(stream)
      if i % 3 == 0 then step(x, y) stream:wait_stream(amp.cuda.current_stream()) end
    else
      out[i] = step(x, y)
      if i % 3 == 0 then step(x, y) end
    end
  end
  for i = 1, 8 do out[i] = out[i]:item() end
  for _, p in ipairs(net:parameters()) do out[#out + 1] = p:sum():item() end
  return out
end
local a, b = train(), train(amp.cuda.Stream())
for i = 1, #a do same(a[i], b[i], 'value ' .. i) end
]], LAZY)

  case('share what nobody sees: weights in low precision, an optimizer\'s arena', [[
local net = nn.Linear(50, 50):to 'cuda'
local x, side = randn(20, 50), amp.cuda.Stream()
amp.cuda.synchronize()
local function run() return amp.autocast({ dtype = 'float16' }, function() return net(x) end) end
amp.autocast({ dtype = 'float16' }, function()
  local a = side:with(run)           -- the cast weight is made there
  local b = run():cpu()              -- and used here
  amp.cuda.synchronize()
  equal(b, a, 'result')
end)
amp.cuda.synchronize()
local before = net.weight:clone()
amp.cuda.synchronize()
local opt = optim.SGD(net:parameters(), { lr = 0 })
side:with(function() net(x):sum():backward() opt:step() end) -- moves the parameters
equal(before, net.weight, 'weight')
]], LAZY)

  case('leave gradients of another stream to the optimizer and the checks until they are done', [[
local side = amp.cuda.Stream()
local function run(stream, enabled)
  amp.manual_seed(2)
  local net = nn.Linear(60, 60):to 'cuda'
  local opt, scaler = optim.SGD(net:parameters(), { lr = 0.1 }), amp.GradScaler { init_scale = 4, enabled = enabled }
  local x = randn(20, 60)
  amp.cuda.synchronize()
  for _ = 1, 3 do
    stream:wait_stream(amp.cuda.current_stream())
    stream:with(function() scaler:scale(net(x):square():mean()):backward() end)
    amp.cuda.current_stream():wait_stream(stream)
    scaler:unscale_(opt)
    if enabled then nn.utils.clip_grad_norm_(net:parameters(), 0.5) end
    scaler:step(opt)
    scaler:update()
    opt:clear_grad() -- the gradients' memory is the stream's again, whose next tensors would lie there
    stream:with(function()
      local list = {}
      for i = 1, 8 do list[i] = amp.full({ 60, 60 }, 0 / 0, { device = 'cuda' }) list[10 + i] = amp.full({ 60 }, 0 / 0, { device = 'cuda' }) end
    end)
    stream:synchronize()
  end
  amp.cuda.synchronize()
  return { net.weight:sum():item(), net.bias:sum():item() }
end
for _, enabled in ipairs { true, false } do
  local a, b = run(amp.cuda.default_stream(), enabled), run(side, enabled)
  same(a[1], b[1], 'weight') same(a[2], b[2], 'bias')
end
]], LAZY)

  case('give the CPU\'s values in random programs: copies, ops, changes in place, freed at random', "require 'spec.stream_programs'(60)", LAZY)

  case('that a thread captures are left alone by others until then', [[
local ffi = require 'ffi'
ffi.cdef [=[
typedef struct lua_State lua_State;
lua_State *luaL_newstate(void);
void luaL_openlibs(lua_State *);
int luaL_loadstring(lua_State *, const char *);
int lua_pcall(lua_State *, int, int, int);
const char *lua_tolstring(lua_State *, int, size_t *);
double lua_tonumber(lua_State *, int);
void lua_getfield(lua_State *, int, const char *);
int pthread_create(unsigned long *, const void *, void *(*)(void *), void *);
int pthread_join(unsigned long, void **);
]=]
-- a Lua state of its own, whose function is called in another thread
local L = ffi.C.luaL_newstate()
ffi.C.luaL_openlibs(L)
local ok = ffi.C.luaL_loadstring(L, ('package.path, package.cpath = %q, %q\n'):format(package.path, package.cpath) .. [=[
local amp, ffi = require 'amp', require 'ffi'
local default, side = amp.cuda.default_stream(), amp.cuda.Stream()
local event = amp.cuda.Event():record()
amp.cuda.synchronize()
said = ''
local function work()
  for name, f in pairs {
    query = function() return default:query() end, wait = function() default:synchronize() end,
    record = function() event:record() end, after = function() default:wait_event(event) end,
  } do
    local done, e = pcall(f)
    said = said .. name .. ': ' .. (done and 'done' or tostring(e)) .. '\n'
  end
  side:with(function() said = said .. tostring(side:query()) .. '\n' end)
end
jit.off(work, true)
callback = ffi.cast('void *(*)(void *)', function() local fine, e = pcall(work) if not fine then said = tostring(e) end end)
address = tonumber(ffi.cast('uintptr_t', ffi.cast('void *', callback)))
]=])
if ok ~= 0 or ffi.C.lua_pcall(L, 0, 0, 0) ~= 0 then error(ffi.string(ffi.C.lua_tolstring(L, -1, nil))) end
ffi.C.lua_getfield(L, -10002, 'address')
local f = ffi.cast('void *(*)(void *)', ffi.cast('uintptr_t', ffi.C.lua_tonumber(L, -1)))
local thread, calls = ffi.new 'unsigned long[1]', 0
local step = amp.capture(function(x)
  calls = calls + 1
  local y = x * 2
  if calls == 3 then
    assert(ffi.C.pthread_create(thread, nil, f, nil) == 0)
    ffi.C.pthread_join(thread[0], nil)
  end
  return y + 1
end)
for i = 1, 5 do same(2 * i + 1, step(amp.full({ 30 }, i, { device = 'cuda' })):max():item(), 'result') end
same(3, calls, 'calls')
ffi.C.lua_getfield(L, -10002, 'said')
local said = ffi.string(ffi.C.lua_tolstring(L, -1, nil))
for _, name in ipairs { 'query', 'wait', 'record', 'after' } do assert(said:find(name .. ': [^\n]*another thread is capturing'), said) end
assert(said:find 'true\n$', said)
]], LAZY)

  case('and captured steps: one captured in a side stream is right there; streams inside are an error', [[
local side = amp.cuda.Stream()
local f = amp.capture(function(x) return x * 2 + 1 end)
for i = 1, 6 do
  local y = side:with(function() return f(amp.full({ 30, 30 }, i, { device = 'cuda' })) end)
  amp.cuda.current_stream():wait_stream(side)
  same(2 * i + 1, y:max():item(), 'result')
  same(2 * i + 1, y:min():item(), 'result')
end
local x = amp.ones(3, { device = 'cuda' })
for name, g in pairs {
  with = function(v) return side:with(function() return v + 1 end) end,
  event = function(v) amp.cuda.Event():record() return v + 1 end,
  wait = function(v) side:wait_stream(amp.cuda.current_stream()) return v + 1 end,
  synchronize = function(v) side:synchronize() return v + 1 end,
} do
  local h = amp.capture(g)
  h(x) h(x)
  fails(function() return h(x) end, 'captured step', 'amp.capture')
  same(2, (x + 1):max():item(), name .. ': after it')
end
]], LAZY)
end)

describe('a DataLoader with a device', function()
  local loader = [[
local set = data.TensorDataset(amp.arange(1, 24):reshape(23, 1):expand(23, 400):contiguous(), amp.arange(1, 24))
local function values(options, dataset, use)
  amp.manual_seed(11)
  local out = {}
  local l = data.DataLoader(dataset or set, options)
  for _ = 1, 2 do
    for x, y in l:iter() do
      local s = x * 1 -- work of the consumer's
      if use then use(x, y) end
      out[#out + 1] = { s, y, amp.rand(1):item() }
    end
  end
  for i, v in ipairs(out) do
    assert(v[1].device == v[2].device)
    out[i] = table.concat({ v[1]:cpu():sum():item(), v[1]:max():item(), v[2]:sum():item(), v[2]:numel(), v[3] }, ' ')
  end
  return out
end
local function alike(a, b, what)
  same(#a, #b, what .. ': batches')
  for i = 1, #a do same(a[i], b[i], what .. ': batch ' .. i) end
end
]]

  case('hands out the same batches, in the same order, with the same random numbers', loader .. [[
for _, o in ipairs { {}, { shuffle = true }, { drop_last = true, shuffle = true }, { prefetch = 1 }, { prefetch = 3, shuffle = true } } do
  o.batch_size = 4
  local a = values(o)
  o.device = 'cuda'
  alike(a, values(o, nil, function(x, y) same('cuda:1', x.device, 'x') same('cuda:1', y.device, 'y') end), 'cuda')
  o.device = 'cpu'
  alike(a, values(o, nil, function(x) same('cpu', x.device, 'x') end), 'cpu')
  o.device, o.pin_memory = nil, true
  alike(a, values(o, nil, function(x, y) assert(x:is_pinned() and y:is_pinned()) end), 'pinned')
end
]], LAZY)

  case('also where the dataset draws random numbers, fails, or is gathered by workers', loader .. [[
local noisy = { size = function() return 9 end, batch = function(_, i) return i:float():reshape(-1, 1) * amp.rand(1, 300), i end }
alike(values({ batch_size = 2 }, noisy), values({ batch_size = 2, device = 'cuda' }, noisy), 'noisy')
alike(values({ batch_size = 2, prefetch = 2 }, noisy), values({ batch_size = 2, prefetch = 2, device = 'cuda' }, noisy), 'noisy, ahead')
local slow = { size = function() return 10 end, get = function(_, i) return amp.full({ 300 }, i), i end }
alike(values({ batch_size = 3 }, slow), values({ batch_size = 3, device = 'cuda', workers = 2 }, slow), 'workers')
local bad, mine = true, {}
local breaks = { size = function() return 6 end, batch = function(_, i)
  if bad and i[1]:item() == 3 then error(mine) end
  return i:float():reshape(-1, 1):expand(-1, 300):contiguous()
end }
local l = data.DataLoader(breaks, { batch_size = 2, device = 'cuda' })
local next_batch = l:iter()
same(3 * 300, next_batch():sum():item(), 'before it')
local ok, e = pcall(next_batch)
assert(not ok and e == mine)
bad = false
same(7 * 300, next_batch():sum():item(), 'after it')
same(11 * 300, next_batch():sum():item(), 'the last one')
assert(next_batch() == nil)
]], LAZY)

  case('resumes where it was, gives a transform what is there, copies without a wait', loader .. [[
local o = { batch_size = 4, shuffle = true, device = 'cuda', transform = function(x, y) same('cuda:1', x.device, 'transform') return x + 1, y end }
amp.manual_seed(2)
local l = data.DataLoader(set, o)
local it, left = l:iter(), {}
it() it()
local state = l:state_dict()
local waits = amp.counters().host_waits
for x in it do left[#left + 1] = x end
same(waits, amp.counters().host_waits, 'waits')
local again, i = data.DataLoader(set, o), 0
again:load_state_dict(state)
for x in again:iter() do
  i = i + 1
  equal(left[i], x, 'batch ' .. i)
end
same(#left, i, 'batches left')
fails(function() data.DataLoader(set, { device = 'cuda:9' }) end, 'cuda:9')
]], LAZY)

  case('feeds a captured step', loader .. [[
local function run(options)
  amp.manual_seed(4)
  local net = nn.Linear(400, 3):to 'cuda'
  local opt = optim.SGD(net:parameters(), { lr = 1e-5 })
  local step = amp.capture(function(x)
    local loss = net(x):square():mean()
    loss:backward()
    opt:step():clear_grad()
    return loss
  end)
  local out = {}
  for _ = 1, 3 do
    for x in data.DataLoader(set, options):iter() do out[#out + 1] = step(x:to('cuda'):float()) end
  end
  for i, v in ipairs(out) do out[i] = v:item() end
  return out
end
alike(run { batch_size = 5, drop_last = true }, run { batch_size = 5, drop_last = true, device = 'cuda' }, 'loss')
]], LAZY)

  it('that is not there is an error', function()
    if amp.cuda.is_available() then return end
    local set = amp.data.TensorDataset(amp.arange(4))
    H.fails_here(function() amp.data.DataLoader(set, { device = 'cuda' }) end, 'cuda')
    local n = 0
    for _ in amp.data.DataLoader(set, { device = 'cpu' }):iter() do n = n + 1 end
    assert.equal(4, n)
  end)
end)

describe('batches sent ahead', function()
  case('keep their values where the dataset fills one pinned tensor again and again', [[
local buffer = amp.empty(1024):pin_memory()
local set = { size = function() return 6 end }
function set.batch(_, index) return buffer:fill_(index:select(1, 1):item()) end
for _, device in ipairs { 'cpu', 'cuda' } do
  local seen = {}
  for x in data.DataLoader(set, { batch_size = 1, device = device }):iter() do
    seen[#seen + 1] = (type(x) == 'table' and x[1] or x):sum():item() / 1024
  end
  same('1 2 3 4 5 6', table.concat(seen, ' '), device)
end
]], LAZY)
end)

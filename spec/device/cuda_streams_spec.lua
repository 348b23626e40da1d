--- Streams of a GPU and batches sent ahead, on the emulator of spec/device/emulator: each case is a process of its own. With
-- AMP_EMULATED_LAZY a stream does nothing until it has to, so what is ordered by nothing comes out wrong.
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.lib.helper'

local E = require 'spec.device.emulated'

local LAZY = 'AMP_EMULATED_LAZY=1'
local case = E.cases(it, pending, E.head .. 'local MB = 2 ^ 20\n')

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

  case('give the CPU\'s values in random programs: copies, ops, changes in place, freed at random', "require 'spec.device.stream_programs'(60)", LAZY)

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

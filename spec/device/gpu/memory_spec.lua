--- On a real GPU: streams, pinned memory, a DataLoader's batches, runs that repeat, memory that runs out
-- (spec/device/cuda_memory_spec.lua and spec/device/cuda_repeat_spec.lua run these promises on the emulator).
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn, F = amp.nn, amp.nn.functional

local there = amp.cuda.is_available()
local case = there and it or pending
local MB = 2 ^ 20

local function bits(t) return amp.is_tensor(t) and H.values(t:detach():cpu():double()) end
local function same(a, b)
  a, b = bits(a), bits(b)
  for i = 1, a.n do if a[i] ~= b[i] then return false end end
  return a.n == b.n
end

describe('streams of a GPU', function()
  case('give the CPU\'s values in random programs', function() require 'spec.device.stream_programs'(200) end)

  case('are timed by events', function()
    local x = amp.randn(2048, 2048, { device = 'cuda' })
    x:matmul(x)
    local from, to = amp.cuda.Event { enable_timing = true }, amp.cuda.Event { enable_timing = true }
    from:record()
    for _ = 1, 20 do x:matmul(x) end
    to:record()
    H.fails_here(function() local _ = from:elapsed_time(to) end, 'synchronize')
    to:synchronize()
    local ms = from:elapsed_time(to)
    assert.is_true(ms > 0.1 and ms < 10000, ms)
  end)

  case('copy while another one computes, without a wait', function()
    local side, x = amp.cuda.Stream(), amp.randn(4096, 4096, { device = 'cuda' })
    local p = amp.ones(8, 1024, 1024):pin_memory()
    x:matmul(x)
    amp.cuda.synchronize()
    for _ = 1, 30 do x:matmul(x) end
    local there_ = side:with(function() return p:cuda { non_blocking = true } end)
    local e = side:record_event()
    assert.is_false(amp.cuda.current_stream():query())
    e:synchronize()
    assert.is_false(amp.cuda.current_stream():query(), 'the copy has waited for the products')
    e:wait()
    assert.equal(8 * MB, there_:sum():item())
  end)

  case('work with captured steps', function()
    local net, side = nn.Linear(64, 64):to 'cuda', amp.cuda.Stream()
    local step = amp.capture(function(x) return net(x):square():sum() end)
    for i = 1, 6 do
      local x = amp.full({ 8, 64 }, i / 8, { device = 'cuda' })
      side:wait_stream(amp.cuda.current_stream())
      local y = side:with(step, x)
      amp.cuda.current_stream():wait_stream(side)
      local want = net(x):square():sum():item()
      assert.is_true(math.abs(y:item() - want) <= 1e-4 * (1 + math.abs(want)))
    end
  end)
end)

describe('a DataLoader on a GPU', function()
  case('hands out the same batches, and memory stays flat', function()
    local set = amp.data.TensorDataset(amp.randn(4000, 256), amp.arange(1, 4001))
    local function sums(options)
      amp.manual_seed(3)
      local list = {}
      for x, y in amp.data.DataLoader(set, options):iter() do list[#list + 1] = x:cpu():sum():item() + y:cpu():sum():item() end
      return list
    end
    assert.same(sums { batch_size = 64, shuffle = true }, sums { batch_size = 64, shuffle = true, device = 'cuda' })
    local function held()
      collectgarbage()
      collectgarbage()
      local m = amp.cuda.memory_stats()
      return m.live + m.cached
    end
    local function epoch()
      local total = amp.zeros(256, { device = 'cuda' })
      for x in amp.data.DataLoader(set, { batch_size = 64, shuffle = true, device = 'cuda' }):iter() do total:add_(x:sum(1)) end
      amp.cuda.synchronize()
    end
    for _ = 1, 3 do epoch() end
    local before = held()
    for _ = 1, 20 do epoch() end
    assert.is_true(held() <= before + 16 * MB, held() - before) -- an epoch's batches are 4 MB, 20 epochs' 80; how many wait for the collector varies
  end)
end)

describe('runs that repeat on a GPU', function()
  case('give the same bits: sums at indices, a network with every hot layer', function()
    amp.use_deterministic(true)
    local x = amp.randn(200000, 8, { device = 'cuda' })
    local i = amp.randint(1, 100, { 200000 }, { dtype = 'int64', device = 'cuda' })
    local function sums() return amp.zeros(100, 8, { device = 'cuda' }):index_add(1, i, x) end
    local first = sums()
    for _ = 1, 5 do assert.is_true(same(first, sums())) end
    local function train()
      amp.manual_seed(1)
      local net = nn.Sequential(nn.Conv2d(3, 16, 3, { padding = 1 }), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * 64, 10)):to 'cuda'
      local opt = amp.optim.AdamW(net:parameters(), { lr = 1e-3 })
      for _ = 1, 5 do
        local v, y = amp.randn(32, 3, 16, 16, { device = 'cuda' }), amp.randint(1, 11, { 32 }, { dtype = 'int64', device = 'cuda' })
        amp.autocast({ dtype = 'float16' }, function() return F.cross_entropy(net(v), y) end):backward()
        opt:step():clear_grad()
      end
      local list = {}
      for k, p in ipairs(net:parameters()) do list[k] = p:detach():flatten() end
      return amp.cat(list, 1)
    end
    local a = train()
    for _ = 1, 3 do assert.is_true(same(a, train())) end
    amp.use_deterministic(false)
  end)
end)

describe('memory of a GPU that runs out', function()
  case('is an error that says how much was asked, held and free', function()
    local m = amp.cuda.memory_stats()
    local n = math.floor(m.total / MB / 4) + 1024
    H.fails_here(function() local _ = amp.empty(n, 1024, 1024, { device = 'cuda' }) end, 'no memory for', 'MiB live', 'MiB cached', 'MiB free')
    assert.equal(2, amp.ones(2, { device = 'cuda' }):sum():item())
  end)
end)

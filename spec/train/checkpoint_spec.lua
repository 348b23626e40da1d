--- amp.checkpoint changes once what its function changes: running statistics, counters, buffers, the generator. Results
-- and gradients are to the bit those without a checkpoint. AMP_SPEC_DEVICE names the device.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn = amp.nn
if H.device then amp.set_default_device(H.device) end

local function values(t) return t:detach():cpu():double():tolist() end

-- f(checkpoint) -> tensors to compare; run with amp.checkpoint and with a plain call
local function alike(f)
  local function run(through)
    amp.manual_seed(7)
    local list = f(through)
    list[#list + 1] = amp.rand(2)
    for i, t in ipairs(list) do list[i] = values(t) end
    return list
  end
  local want = run(function(fn, ...) return fn(...) end)
  assert.same(want, run(amp.checkpoint))
end

local function input(...)
  local x = amp.randn(...)
  x.requires_grad = true
  return x
end

local function state(net, x)
  local list = { x.grad }
  for _, p in ipairs(net:parameters()) do list[#list + 1] = p.grad end
  for _, b in ipairs(net:buffers()) do list[#list + 1] = b end
  return list
end

local nets = {
  ['a batch norm'] = function() return nn.BatchNorm1d(3) end,
  ['one with averages of all batches'] = function() return nn.BatchNorm1d(3, { momentum = false }) end,
  ['a chain'] = function() return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout(0.5), nn.BatchNorm1d(3)) end,
  ['a frozen one'] = function() return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3):eval()) end,
}

describe('a checkpoint counts once', function()
  for name, make in pairs(nets) do
    it('what ' .. name .. ' changes', function()
      alike(function(through)
        local net, x = make(), input(4, 3)
        for _ = 1, 3 do
          through(function(t) return net(t) end, x):square():sum():backward()
          if net.running_mean then amp.no_grad(function() net.running_mean:mul(1) end) end
        end
        return state(net, x)
      end)
    end)
    it('what ' .. name .. ' changes in two forwards before one backward, twice inside, nested, in a region', function()
      alike(function(through)
        local net, x = make(), input(4, 3)
        local function block(t) return net(net(t)) end
        local a = through(block, x)
        local b = through(function(t) return through(block, t) * 2 end, x)
        local c = amp.autocast({ dtype = 'bfloat16' }, function() return through(block, x) end)
        local list = {}
        for _, y in ipairs { a, b, c } do -- one after the other: sums over several losses would be made in another order
          x.grad = nil
          net:zero_grad()
          y:float():square():sum():backward()
          for _, t in ipairs(state(net, x)) do list[#list + 1] = t:clone() end
        end
        return list
      end)
    end)
  end
  it('what instance norm changes', function()
    alike(function(through)
      local net, x = nn.InstanceNorm1d(3, { track_running_stats = true, affine = true }), input(2, 3, 5)
      for _ = 1, 2 do through(function(t) return net(t) end, x):square():sum():backward() end
      return state(net, x)
    end)
  end)
  it('buffers of the user that its result depends on', function()
    alike(function(through)
      local x, count, trace = input(4), amp.zeros(1), amp.ones(4)
      local function block(t)
        count:add_(1)
        trace[{ { 1, 2 } }]:mul_(3)
        amp.no_grad(function() trace:copy_(trace * 0.5 + t * 0.25) end)
        trace[4] = count[1] * 2
        return t * trace:clone() * count:clone() + amp.dropout(t, 0.5, { training = true })
      end
      local y, z = through(block, x), through(block, x)
      count:mul_(5) -- changed by others before backward
      y:sum():backward()
      local first = x.grad:clone()
      x.grad = nil
      z:sum():backward()
      return { first, x.grad, count, trace }
    end)
  end)
  it('where nothing is recorded, or backward comes twice', function()
    alike(function(through)
      local net, x = nn.BatchNorm1d(3), input(4, 3)
      amp.no_grad(function() return through(function(t) return net(t) end, x) end)
      local loss = through(function(t) return net(t) end, x):square():sum()
      loss:backward(nil, { retain_graph = true })
      loss:backward()
      return state(net, x)
    end)
  end)
  it('second derivatives', function()
    alike(function(through)
      local net, x = nn.BatchNorm1d(3), input(4, 3)
      local g = amp.grad({ through(function(t) return net(t) end, x):pow(3):sum() }, { x }, { create_graph = true })[1]
      g:square():sum():backward()
      return state(net, x)
    end)
  end)
  it('and leaves buffers alone where the function fails the second time', function()
    local x, b, fails = input(3), amp.zeros(3), false
    local y = amp.checkpoint(function(t)
      b:add_(1)
      if fails then error('on purpose', 0) end
      return t * b
    end, x)
    fails = true
    local version = H.version(b)
    H.fails(function() y:sum():backward() end, 'on purpose')
    assert.same({ 1, 1, 1 }, b:tolist())
    assert.equal(version, H.version(b))
  end)

  -- allocation n of f fails, and that of each second try: does f fail for it, was there one?
  local function without_memory(n, f)
    local C, collect = require 'amp.ffi'.C, collectgarbage
    local m = C.amp_memory(0, 0)
    local count = m.failures
    collect()
    _G.collectgarbage = function(...)
      if select('#', ...) > 0 then return collect(...) end
      C.amp_fail_allocation(1)
    end
    C.amp_fail_allocation(n)
    local ok = pcall(f)
    C.amp_fail_allocation(-1)
    _G.collectgarbage = collect
    return not ok, m.failures > count
  end

  for name, make in pairs {
    BatchNorm1d = function() return nn.BatchNorm1d(3), amp.randn(8, 3) end,
    InstanceNorm1d = function() return nn.InstanceNorm1d(3, {track_running_stats = true}), amp.randn(8, 3, 5) end,
  } do
    it('or nothing, where memory lacks: ' .. name, function()
      local n, failed = 0, 0
      repeat
        n = n + 1
        local net, x = make()
        local function all()
          local list = {}
          for key, t in net:named_buffers() do list[key] = values(t) end
          return list
        end
        amp.checkpoint(net, x) -- what is made once
        net:reset_running_stats()
        local before = all()
        local fails, hit = without_memory(n, function() amp.checkpoint(net, x) end)
        if fails then
          failed = failed + 1
          assert.same(before, all(), 'allocation ' .. n)
        end
      until not hit or n > 400
      assert.is_true(n <= 400)
      assert.is_true(failed > 10)
    end)
  end
end)

describe('what backward computes again with', function()
  -- f(x, other): other is changed after the forward pass
  local function refused(what, text, f)
    local x, other = input(3), amp.ones(3)
    other.requires_grad = what == 'weight'
    local y = f(x, other)
    amp.no_grad(function() other:add_(5) end)
    H.fails(function() y:sum():backward() end, text)
    assert.is_nil(x.grad)
  end
  it('may not be changed in place before it: an argument without gradient, in a table too, a weight', function()
    refused('argument', 'argument tensor 2 was changed in place', function(x, m) return amp.checkpoint(function(a, b) return a * b end, x, m) end)
    refused('argument', 'argument tensor 2 was changed in place', function(x, m) return amp.checkpoint(function(t) return t.a * t[1] end, { x, a = m }) end)
    refused('argument', 'argument tensor 1 was changed in place', function(x, m) return amp.checkpoint(function(b, a) return a * b end, m, x) end)
    refused('weight', 'a weight (float32 of shape 3)', function(x, w) return amp.checkpoint(function(a) return a * w end, x) end)
  end)
  it('may be changed by the function itself, and a weight by the step after backward', function()
    alike(function(through)
      local x, seen, w = input(3), amp.zeros(3), input(3)
      for _ = 1, 2 do
        local a = through(function(t, s) amp.no_grad(function() s:add_(1) end) return t * w * (s * 1) end, x, seen)
        local b = through(function(t) return t + w end, x)
        local sum = (a + b):sum()
        sum:backward(nil, { retain_graph = true })
        sum:backward()
        amp.no_grad(function() w:add_(w.grad) end)
        w.grad = nil
      end
      return { x.grad, seen, w }
    end)
  end)
  it('and has to give what it gave', function()
    local second = false
    local x = input(3)
    local function fails(text, f)
      second = false
      local y = amp.checkpoint(f, x)
      second = true
      H.fails(function() y:sum():backward() end, text)
    end
    fails('float32 of shape 3 as tensor 1 in the forward pass, but float32 of shape 2 when', function(t) return second and t[{ { 1, 2 } }] or t * 2 end)
    fails('float32 of shape 3 as tensor 1 in the forward pass, but float64', function(t) return second and t:double() or t * 2 end)
  end)
end)

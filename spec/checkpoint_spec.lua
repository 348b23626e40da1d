--- amp.checkpoint changes once what its function changes: running statistics, counters, buffers, the generator. Results
-- and gradients are to the bit those without a checkpoint. AMP_SPEC_DEVICE names the device.
local amp = require 'amp'
local H = require 'spec.helper'
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
end)

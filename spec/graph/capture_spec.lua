-- Modules inside a captured step run as graphs on a CPU, and nothing that the step does goes missing.
local amp = require 'amp'
local Module = require 'amp.nn.module'
local nn, F, optim = amp.nn, amp.nn.functional, amp.optim

-- The op rows of the graph that a module ran as last; nil: it has none.
local function graph_of(module)
  local known = Module.raw_key(module, '.captured')
  local entry = known and known.cache and known.cache.entries[1]
  if not entry or not entry.graph then return nil end
  local list = {}
  for i, n in ipairs(entry.graph:nodes()) do list[i] = n.op end
  return table.concat(list, ' ')
end

local function layers()
  amp.manual_seed(3)
  return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.3), nn.BatchNorm1d(32), nn.Linear(32, 4))
end

-- Six steps of training; change(net, i) before each.
local function trained(through, change)
  local net = layers()
  local opt = optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
  local scaler = amp.GradScaler {init_scale = 8, growth_interval = 2}
  local step = through(function(x, y)
    local loss = amp.autocast({dtype = 'bfloat16'}, function() return F.cross_entropy(net(x), y) end)
    scaler:scale(loss):backward()
    scaler:step(opt):update()
    opt:clear_grad()
    return loss
  end)
  local x, y, losses = amp.randn(8, 16), amp.randint(1, 5, {8}, {dtype = 'int64'}), {}
  for i = 1, 6 do
    if change then change(net, i) end
    losses[i] = step(x, y):item()
  end
  return {losses, net[1].weight:tolist(), net[4].running_mean:tolist(), scaler:get_scale(), amp.rand(1):item()}, net
end

local function eager(f) return f end

describe('amp.capture on a CPU', function()
  it('trains as eager steps do, its networks being graphs', function()
    local want = trained(eager)
    local got, net = trained(amp.capture)
    assert.same(want, got)
    assert.is_truthy(graph_of(net))
  end)

  it('follows modes, replaced layers and hooks', function()
    local seen = 0
    local function change(net, i)
      if i == 2 then net:eval() end
      if i == 3 then net:train() end
      if i == 4 then net[2] = nn.Tanh() end
      if i == 5 then net[2]:register_forward_hook(function() seen = seen + 1 end) end
    end
    local want = trained(eager, change)
    assert.equal(2, seen)
    assert.same(want, (trained(amp.capture, change)))
    assert.equal(4, seen)
  end)

  it('leaves hybridized modules to their own graphs', function()
    local function change(net, i)
      if i == 1 then net:hybridize() end
      if i == 4 then net:hybridize(false) end
    end
    local want = trained(eager, change)
    assert.same(want, (trained(amp.capture, change)))
  end)

  it('calls a class of the user\'s each time, and its layers as graphs', function()
    local calls = 0
    local Net = nn.Module:extend 'Net'
    function Net:init() self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU()) end
    function Net:forward(x)
      calls = calls + 1
      self.last = calls
      return self.body(x) * calls
    end
    local net, x = Net(), amp.ones(2, 4)
    local step = amp.capture(function() return net(x) end)
    for i = 1, 3 do assert.is_true(amp.equal(step(), net.body(x) * i)) end
    assert.equal(3, calls)
    assert.equal('linear relu', graph_of(net.body))
    assert.is_nil(graph_of(net))
  end)

  it('calls functions that are given to layers or put in their places', function()
    local calls = 0
    local net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    local other = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    net[2].forward = function(_, x)
      calls = calls + 1
      return x
    end
    local mine = nn.Linear:extend 'Mine'
    function mine.forward(self, x)
      calls = calls + 1
      return mine.super.forward(self, x)
    end
    other[1] = mine(4, 4)
    local step = amp.capture(function(x) return net(x) + other(x) end)
    for _ = 1, 3 do step(amp.ones(2, 4)) end
    assert.equal(6, calls)
  end)

  it('is off again after a step, after an error in it, and outside of a coroutine that waits in it', function()
    local net, x, mine = layers(), amp.ones(8, 16), {}
    local function stands()
      local way = Module.stand_in(nil)
      Module.stand_in(way)
      return way ~= nil
    end
    local step = amp.capture(function(bad)
      assert.is_true(stands())
      if bad == 'yield' then coroutine.yield() end
      if bad then error(mine) end
      return net(x)
    end)
    step()
    assert.is_false(stands())
    local ok, e = pcall(step, true)
    assert.is_true(not ok and rawequal(e, mine))
    assert.is_false(stands())
    local co = coroutine.create(step)
    assert.is_true(coroutine.resume(co, 'yield'))
    local y = amp.ones(1) + 1
    assert.equal(2, y:item())
    assert.is_false(stands())
    coroutine.resume(co)
    assert.is_false(stands())
  end)

  it('gives the layer\'s own errors, and double backward', function()
    local net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    local step = amp.capture(function(x)
      local g = amp.grad(net(x):sum(), {x}, {create_graph = true})[1]
      return amp.grad((g * g):sum(), {net[1].weight})[1]
    end)
    local x = amp.randn(3, 4)
    x.requires_grad = true
    local g = amp.grad(net(x):sum(), {x}, {create_graph = true})[1]
    local want = amp.grad((g * g):sum(), {net[1].weight})[1]
    for _ = 1, 2 do assert.is_true((want - step(x)):abs():max():item() < 1e-6) end
    local _, plain = pcall(net, amp.ones(2, 3))
    local _, captured = pcall(amp.capture(function(t) return net(t) end), amp.ones(2, 3))
    local function text(e) return tostring(e):match '[^\n]*$' end
    assert.equal(text(plain), text(captured))
  end)
end)

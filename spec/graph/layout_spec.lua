-- Compiled graphs without gradients on a CPU: convolutions with channels last, weights in a kernel's own form, additions by
-- the kernel of a convolution. Each against the eager calls, with everything that may change between two runs.
local amp = require 'amp'
local nn, F = amp.nn, amp.nn.functional

local function close(a, b, what)
  assert.same(a:size(), b:size())
  assert.equal(a.dtype, b.dtype)
  local x, y = a:to 'float64', b:to 'float64'
  assert.is_true(amp.equal(amp.isnan(x), amp.isnan(y)), (what or '') .. ': NaN elsewhere')
  x, y = amp.where(amp.isnan(x), 0, x), amp.where(amp.isnan(y), 0, y)
  local d = (x - y):abs():max():item() / (1 + x:abs():max():item())
  assert.is_true(d <= 1e-4, ('%s differs by %g'):format(what or '', d))
end

local Block = nn.Module:extend 'Block'
function Block:init(n)
  self.conv1, self.norm1 = nn.Conv2d(n, n, 3, {padding = 1, bias = false}), nn.BatchNorm2d(n)
  self.conv2, self.norm2 = nn.Conv2d(n, n, 1), nn.BatchNorm2d(n)
end
function Block:forward(x)
  return (self.norm2(self.conv2(self.norm1(self.conv1(x)):relu())) + x):relu()
end

local function network(...)
  amp.manual_seed(5)
  local net = nn.Sequential(nn.Conv2d(3, 32, 3), Block(32), nn.MaxPool2d(2), Block(32), ...)
  amp.no_grad(function()
    for _, b in net:named_buffers() do
      if b.dtype == 'float32' then b:uniform_(0.5, 1.5) end
    end
  end)
  return net:eval()
end

local function graph_of(net, x, passes)
  local g = amp.graph.trace(net, {x})
  return require('amp.graph.optimize').optimize_here(g, passes)
end

local function count(g, op)
  local n = 0
  for _, node in ipairs(g:nodes()) do n = n + (node.op == op and 1 or 0) end
  return n
end

describe('convolutions of a compiled graph', function()
  local x = amp.randn(2, 3, 62, 62)

  it('run with channels last and give contiguous results', function()
    amp.no_grad(function()
      local net = network()
      local g = graph_of(net, x)
      assert.equal(2, count(g, 'contiguous'))
      local y = g(x)
      assert.is_true(y:is_contiguous())
      close(net(x), y)
      close(net(x), g(x:contiguous 'channels_last'))
      assert.equal(0, count(graph_of(net, x, {layout = false}), 'contiguous'))
    end)
  end)

  it('stay as they are where gradients are wanted, or there is little to gain', function()
    assert.equal(0, count(graph_of(network(), x), 'contiguous'))
    amp.no_grad(function()
      local small = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3))
      assert.equal(0, count(graph_of(small, x), 'contiguous'))
    end)
  end)

  it('give nodes that ask how data lies what they get eagerly', function()
    local tails = {
      view = function(y) return y:view(2, -1) end,
      flatten = function(y) return y:flatten(2):softmax(2) end,
      mean = function(y) return y:mean {3, 4} end,
      kept = function(y) return y:mean({3, 4}, true), y end,
      cat = function(y) return amp.cat({y, y:transpose(3, 4)}, 2) end,
      slice = function(y) return y[{{}, {2, 5}}] + 1 end,
      strided = function(y) return amp.as_strided and y:as_strided({2, 3}, {3, 1}) or y:view(-1) end,
      written = function(y)
        local z = y * 1
        z[{{}, 1}] = 0
        return z, y
      end,
      grouped = function(y) return F.conv2d(y, amp.ones(32, 1, 3, 3), nil, {groups = 32}) end,
      as_weight = function(y) return F.conv2d(amp.ones(1, 32, 31, 31), y[{1, {}}]:unsqueeze(1):view(32, 1, 30, 30), nil, {groups = 32}) end,
    }
    for name, tail in pairs(tails) do
      amp.no_grad(function()
        local net = network()
        local function fn(t) return tail(net(t)) end
        local f = amp.compile(fn)
        local want = {fn(x)}
        f(x)
        local got = {f(x)}
        for i = 1, #want do
          close(want[i], got[i], name)
          assert.same(want[i]:stride(), got[i]:stride(), name)
        end
      end)
    end
  end)

  it('see changed weights: by a step, a load, an assignment in place', function()
    local net = network()
    local f = amp.compile(net)
    local function both(what)
      amp.no_grad(function()
        close(net(x), f(x), what)
        close(net(x), f(x), what)
      end)
    end
    both 'first'
    local opt = amp.optim.SGD(net:parameters(), {lr = 0.1})
    f(x):mean():backward()
    opt:step():clear_grad()
    both 'step'
    amp.no_grad(function() net[1].weight:mul_(2) end)
    both 'in place'
    net:load_state_dict(network():state_dict())
    both 'load'
    net:to {memory_format = 'channels_last'}
    both 'layout of the weights'
    amp.autocast({dtype = 'bfloat16'}, function()
      amp.no_grad(function()
        local a, b = net(x):to 'float32', f(x):to 'float32'
        assert.is_true((a - b):abs():max():item() <= 0.05 * (1 + a:abs():max():item()))
      end)
    end)
    both 'after a region'
  end)

  it('keep NaN and infinity, also where a ReLU or an addition follows', function()
    amp.no_grad(function()
      local net = network()
      local f = amp.compile(net)
      for _, v in ipairs {0 / 0, 1 / 0} do
        local bad = x:clone()
        bad[{1, 2, 7, 7}] = v
        close(net(bad), f(bad), tostring(v))
        close(net(bad), f(bad), tostring(v))
      end
    end)
  end)

  it('in bfloat16 and of single samples', function()
    amp.no_grad(function()
      local net = network():to 'bfloat16'
      local f, half = amp.compile(net), x:to 'bfloat16'
      local a, b = net(half):to 'float32', f(half):to 'float32'
      assert.is_true((a - b):abs():max():item() <= 0.06 * (1 + a:abs():max():item()))
      net = nn.Sequential(nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.Conv2d(32, 32, 3), nn.Conv2d(32, 32, 3))
      local g, one = amp.compile(net), amp.randn(32, 20, 20)
      close(net(one), g(one))
      close(net(one), g(one))
    end)
  end)

  it('agree where one graph runs for two networks in turn', function()
    amp.no_grad(function()
      local a, b = network(), network()
      b[1].weight:mul_(3)
      local f, g = amp.compile(a), amp.compile(b)
      for _ = 1, 3 do
        close(a(x), f(x))
        close(b(x), g(x))
      end
    end)
  end)
end)

describe('linear layers of a compiled graph', function()
  it('see changed weights', function()
    amp.no_grad(function()
      local net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256))
      local f, x = amp.compile(net), amp.randn(64, 256)
      for i = 1, 4 do
        close(net(x), f(x), 'run ' .. i)
        net[3].weight:mul_(-1.5)
        close(net(x), f(x), 'changed ' .. i)
      end
    end)
  end)
end)

--- Free sizes: what a function does with sizes is followed at each run, or refused when it is traced.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn = amp.nn

local function randn(...) return amp.randn(...) end

-- The graph of fn for inputs gives what fn gives, for each of the other inputs.
local function follows(fn, inputs, dynamic, others)
  local g = amp.graph.trace(fn, inputs, {dynamic = dynamic})
  for i, args in ipairs(others) do
    local want, got = {fn(unpack(args))}, {g(unpack(args))}
    assert.equal(#want, #got)
    for k = 1, #want do
      local wrong = H.difference(got[k], H.values(want[k]), H.shape(want[k]), H.exact)
      if wrong then error(('inputs %d, result %d: %s'):format(i, k, wrong), 0) end
    end
  end
  return g
end

local function refused(fn, inputs, dynamic, ...)
  H.fails_here(function()
    local g = amp.graph.trace(fn, inputs, {dynamic = dynamic})
    return g
  end, 'amp.graph.trace', ...)
end

describe('a free size', function()
  it('is followed in shapes, lengths, factors and numbers', function()
    local x, others = randn(3, 4), {{randn(5, 4)}, {randn(1, 4)}, {randn(40, 4)}}
    follows(function(a) return a:view(a:size(1) * 4) end, {x}, {1}, others)
    follows(function(a) return a:sum(1) / a:size(1) end, {x}, {1}, others)
    follows(function(a) return a:narrow(1, 1, #a) end, {x}, {1}, others)
    follows(function(a) return a + amp.arange(a.shape[1] * 4):view(a:size()) end, {x}, {1}, others)
    follows(function(a) return a[-1], a[{{1, -1}, 2}] end, {x}, {1}, others)
    follows(function(a) return amp.zeros((a:size(1) - 1) * 2 + 3) + a:size(1) ^ 2 end, {x}, {1}, others)
    follows(function(a) return amp.rand(a.shape):mul(0) + a * (1 / a:numel()) end, {x}, {1}, others)
  end)

  it('may have a most, as a context has', function()
    local function ids(n, length) return amp.randint(1, 12, {n, length}, {dtype = 'int64'}) end
    local config = {vocab_size = 11, hidden_size = 8, num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 12, max_position_embeddings = 7}
    for _, kind in ipairs {'BERT', 'Llama'} do
      local net = amp.text.models[kind](config):eval()
      follows(function(x) return (net(x)) end, {ids(2, 5)}, {1, 2}, {{ids(3, 7)}, {ids(1, 1)}, {ids(2, 4)}})
    end
    local table_of = randn(5, 3)
    follows(function(x) return x + table_of:narrow(1, 1, x:size(1)) * x:size(1) end, {randn(4, 3)}, {1}, {{randn(1, 3)}, {randn(5, 3)}, {randn(0, 3)}})
  end)

  it('may be none', function()
    follows(function(a) return a:reshape(a:size(1) * 4) * 2, amp.ones_like(a) end, {randn(3, 4)}, {1}, {{randn(0, 4)}, {randn(2, 4)}})
    follows(function(a) return a * 2 end, {amp.zeros(0, 3)}, {1}, {{randn(2, 3)}})
  end)

  it('is one of several, each with its own', function()
    local g = follows(function(a) return a:view(a:size(1) * a:size(2), -1), amp.ones((a:size(1) - 1) * (a:size(2) - 1)) end,
      {randn(2, 3, 4)}, {a = {1, -2}}, {{randn(5, 6, 4)}, {randn(4, 2, 4)}})
    H.fails_here(function() local y = g(randn(2, 3, 5)) return y end, "input 'a': dimension 3 has size 4, got 5")
  end)

  it('is tied to equal ones where the function needs that', function()
    local g = follows(function(a, b) return a + b end, {randn(3, 4), randn(3, 4)}, {1}, {{randn(7, 4), randn(7, 4)}})
    H.fails_here(function() local y = g(randn(5, 4), randn(4, 4)) return y end, "input 'b': dimension 1 has size 4, and must have 5", "dimension 1 of 'a'")
    follows(function(a, b) return a:matmul(b) end, {randn(3, 4), randn(4, 3)}, {a = {1, 2}, b = {1}}, {{randn(6, 5), randn(5, 3)}})
    follows(function(a, b) return amp.cat({a, b}, 1) end, {randn(3, 4), randn(3, 4)}, {1}, {{randn(6, 4), randn(2, 4)}})
  end)

  it('is in tables of tensors by name', function()
    local lstm = nn.LSTM(3, 4)
    local g = amp.graph.trace(lstm, {randn(5, 2, 3), {randn(1, 2, 4), randn(1, 2, 4)}}, {names = {'x', 'state'}, dynamic = {x = {1, 2}, state = {2}}})
    local x, h, c = randn(3, 6, 3), randn(1, 6, 4), randn(1, 6, 4)
    H.same(g(x, {h, c}), (lstm(x, {h, c})))
  end)

  it('holds for gradients', function()
    local net = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.ReLU())
    local g = amp.graph.trace(net, {randn(2, 4)}, {dynamic = {1}})
    local x = randn(6, 4):requires_grad_()
    local want = amp.grad(net(x):sum(), {x, net[1].weight})
    local got = amp.grad(g(x):sum(), {x, net[1].weight})
    for i = 1, 2 do H.same(got[i], want[i]) end
  end)
end)

describe('a free size is refused', function()
  local x = randn(4, 3)

  it('where a number is no sum of products of sizes', function()
    refused(function(a) return a:narrow(1, 1, math.floor(a:size(1) / 2)) end, {x}, {1},
      "node 'narrow'", "dimension 1 of input 'a'", "'length'", "leave that dimension out")
    refused(function(a) return a * math.sqrt(a:size(1)) end, {x}, {1}, "node 'mul'", "dimension 1 of input 'a'")
    refused(function(a) return a * math.max(a:size(1), 3) end, {x}, {1}, "node 'mul'")
  end)

  it('where it is followed in few sizes alone', function()
    local rows = randn(9, 3)
    refused(function(a) return a + rows:narrow(1, 1, a:size(1)) * math.floor(a:size(1) / 3) end, {randn(4, 3)}, {1}, "can't")
    refused(function(a) return a + rows:narrow(1, 1, a:size(1)) * math.min(a:size(1), 5) end, {randn(4, 3)}, {1}, "can't")
  end)

  it('where a branch, a loop or a table of numbers depends on it', function()
    refused(function(a) if a:size(1) > 20 then return a * 2 end return a end, {x}, {1}, "dimension 1 of input 'a'", "'mul'")
    refused(function(a) if a:size(1) == 1 then return a * 2 end return a end, {x}, {1}, "dimension 1 of input 'a'")
    refused(function(a) local s = 0 for i = 1, #a do s = a[i] + s end return s end, {x}, {1}, "dimension 1 of input 'a'")
    refused(function(a) local t = {} for i = 1, #a do t[i] = i end return a + amp.tensor(t):view(-1, 1) end, {x}, {1}, "node 'view'", 'constant')
    refused(function(a) return a, a:size(1) end, {x}, {1}, "dimension 1 of input 'a'", 'other values')
    refused(function(a) return a:split(2) end, {x}, {1}, "dimension 1 of input 'a'")
  end)

  it('where the function fails for others, with what it says', function()
    refused(function(a) assert(a:size(1) == 4, 'only four') return a end, {x}, {1}, 'only four', "dimension 1 of input 'a'")
    local other = randn(4, 3)
    refused(function(a) return a + other end, {x}, {1}, "dimension 1 of input 'a'", '4x3')
  end)

  it('that is not there', function()
    refused(function(a) return a end, {x}, {3}, 'no input has dimension 3')
    refused(function(a) return a end, {x}, {a = {3}}, "input 'a' has no dimension 3", '4x3')
    refused(function(a) return a end, {x}, {b = {1}}, "no tensor input 'b'", 'inputs: a')
    refused(function(a) return a end, {x}, {1.5}, '1.5')
    refused(function(a) return a end, {x}, {0}, 'got 0')
    refused(function(a) return a end, {x}, true, 'true')
  end)

  it('leaves nothing behind', function()
    local S = require('amp.ffi').S
    pcall(amp.graph.trace, function(a) return a:narrow(1, 1, math.floor(a:size(1) / 2)) end, {x}, {dynamic = {1}})
    assert.equal(0, require('amp.ffi').C.amp_graph_recording(S))
    assert.equal(1, S.grad_mode)
  end)
end)

describe('a size that depends on values', function()
  local x = randn(3, 4)

  local function read(what, fn, ...)
    local line = debug.getinfo(fn, 'S').linedefined
    local e = H.fails(function() amp.trace(fn, x) end, 'depends on values', ...)
    assert.is_truthy(tostring(e):find(('dynamic_spec.lua:%d:'):format(line), 1, true), what .. ': ' .. tostring(e))
  end

  it('is not read while a graph is recorded', function()
    read('size', function(a) local n = a:nonzero():size(1) return a * n end, 'size 1')
    read('shape', function(a) local n = a[a:gt(0)].shape return a * n[1] end)
    read('#', function(a) local n = #a:masked_select(a:gt(0)) return a * n end)
    read('numel', function(a) local n = (a[a:gt(0)] * 2):exp() local k = n:numel() return n / k end)
    read('[-1]', function(a) local v = a[a:gt(0)][-1] return v end)
    read('split', function(a) local v = a[a:gt(0)]:split(1) return v end)
    read('ipairs', function(a) local s = 0 for _, v in ipairs(a[a:gt(0)]) do s = v + s end return s end)
    read('unique', function(a) local v = amp.unique(a) local n = v:size(1) return v / n end)
    read('one_hot', function(a) local v = amp.one_hot(a:argmax(2)) local n = v:size(2) return v * n end, 'size 2')
    read('bincount', function(a) local v = amp.bincount(a:argmax(2)) local n = #v return v * n end)
    read('repeat_interleave', function(a) local v = a:repeat_interleave(a:argmax(2), 1) local n = #v return v * n end)
  end)

  it('may be worked with', function()
    local g = amp.trace(function(a)
      local v = a[a:gt(0)]
      return v:mean(), v:view(-1) * 2, a:nonzero():size(2), v[1]
    end, x)
    for _ = 1, 3 do
      local y = randn(3, 4):abs() + randn(3, 4) * 0.5
      local v = y[y:gt(0)]
      local mean, twice, dims, first = g(y)
      H.same(mean, v:mean())
      H.same(twice, v * 2)
      assert.equal(2, dims)
      H.same(first, v[1])
    end
  end)

  it('is read as ever outside', function()
    pcall(amp.trace, function(a) return a * #a:nonzero() end, x)
    local n = x:nonzero()
    assert.equal(n:size(1), #n)
    assert.equal(n.shape[1] * 2, n:numel())
  end)
end)

describe('a branch on a free size', function()
  local x, limits = amp.randn(3, 4), {most = 500}
  local branches = {
    ['beyond a number of the code'] = function(t) return t:size(1) > 1000 and t * 2 or t end,
    ['at a number of the code'] = function(t) return t:size(1) == 77 and t * 2 or t end,
    ['by all elements'] = function(t) return t:numel() >= 2000 and t * 2 or t end,
    ['by a table\'s number'] = function(t) return t:size(1) > limits.most and t * 2 or t end,
    ['by the greater one'] = function(t) return t * math.max(t:size(1), 50) end,
    ['by the remainder'] = function(t) return t * (t:size(1) % 128) end,
    ['by the whole part'] = function(t) return t * math.floor(t:size(1) / 200) end,
    ['in a loop'] = function(t) for i = 1, t:size(1) do if i == 300 then t = t * 2 end end return t end,
    ['by #'] = function(t) return #t > 600 and t * 2 or t end,
  }
  for name, f in pairs(branches) do
    it('is refused ' .. name, function()
      assert.error_matches(function() amp.graph.trace(f, {x}, {dynamic = {1}}) end, 'dimension 1')
    end)
  end
end)

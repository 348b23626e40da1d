--- What a trace holds and what it refuses: state, writes, modes, names, values that go in and out, errors.
local amp = require 'amp'
local core = require 'amp.ffi'
local H = require 'spec.lib.helper'
local nn = amp.nn
local C, S = core.C, core.S

local function randn(...) return amp.randn(...) end
local x = randn(3, 4)

local function recording()
  require('amp.core.region').here() -- the state is the running coroutine's from now on
  return C.amp_graph_recording(S)
end

local function names(iterate)
  local list = {}
  for name in iterate do list[#list + 1] = name end
  return table.concat(list, ' ')
end

local function node_ops(g)
  local list = {}
  for i, n in ipairs(g:nodes()) do list[i] = n.op end
  return table.concat(list, ' ')
end

-- The graph gives what fn gives, and writes what fn writes into its arguments.
local function same(fn, ...)
  local given = {...}
  local g = amp.trace(fn, ...)
  for _ = 1, 2 do
    local mine, eager = {}, {}
    for i, t in ipairs(given) do
      eager[i] = t:is_floating_point() and amp.randn(t.shape) or t:clone()
      mine[i] = eager[i]:clone()
    end
    amp.manual_seed(5)
    local want = {fn(unpack(eager))}
    amp.manual_seed(5)
    local got = {g(unpack(mine))}
    for i = 1, #want do
      if amp.is_tensor(want[i]) then H.same(got[i], want[i]) else assert.equal(want[i], got[i]) end
    end
    for i = 1, #given do H.same(mine[i], eager[i]) end
  end
  return g
end

describe('a trace refuses, at its line,', function()
  local function refuses(what, fn, ...)
    local line = debug.getinfo(fn, 'S').linedefined
    local e = H.fails(function() amp.trace(fn, x) end, what, ...)
    assert.is_truthy(tostring(e):find(('trace_spec.lua:%d:'):format(line), 1, true), tostring(e))
    assert.equal(0, recording())
  end

  it('a value that the host reads', function()
    refuses('its value is read', function(a) local v = a:sum():item() return a * v end)
    refuses('values are read', function(a) local v = a:tolist() return a * v[1][1] end)
    refuses('read', function(a) local v = tostring(a) return a, v end)
    refuses('', function(a) local v = a:equal(a) return a, v end)
    refuses('', function(a) local v = a:data_ptr() return a, v end)
  end)

  it('an amp.Function, whether its argument wants a gradient or not', function()
    local twice = amp.Function{forward = function(_, a) return a * 2 end, backward = function(_, g) return g * 2 end}
    refuses('amp.Function', function(a) local v = twice(a) return v end)
    H.fails(function() amp.trace(function(a) return twice(a) end, randn(3):requires_grad_()) end, 'amp.Function')
  end)

  it('a backward, gradients, hooks, a step, a seed', function()
    local w = randn(4):requires_grad_()
    local opt = amp.optim.SGD({w}, {lr = 0.1})
    w.grad = amp.ones(4)
    refuses('backward', function(a) (a * w):sum():backward() return a end)
    refuses('backward', function(a) local g = amp.grad((a * w):sum(), {w}) return g[1] end)
    refuses('gradient is read', function(a) local g = w.grad return a * g end)
    refuses('gradient', function(a) w.grad = nil return a end)
    refuses('hook', function(a) local y = a * w y:register_hook(function() end) return y end)
    refuses('steps', function(a) opt:step() return a end)
    refuses('seed', function(a) amp.manual_seed(1) return a end)
    refuses('seed', function(a) amp.set_rng_state(amp.get_rng_state()) return a end)
  end)

  it('a trace inside', function()
    refuses('none can be traced', function(a) local g = amp.trace(function(b) return b end, a) return g(a) end)
  end)

  it('a tensor with a history from outside', function()
    local w = randn(4):requires_grad_() * 2
    refuses('carries a history', function(a) local y = a + w return y end)
  end)

  it('modes that stay changed', function()
    H.fails_here(function() local g = amp.trace(function(a) amp.enabled = true return a * 2 end, x) return g end, 'amp.enabled')
    assert.is_false(amp.enabled)
    assert.equal(1, S.grad_mode)
  end)
end)

describe('an error inside', function()
  it('is the same object and leaves nothing', function()
    local e, counter, buffer = {}, 0, amp.zeros(3)
    local bn = nn.BatchNorm1d(4)
    local function fails(a)
      counter = counter + 1
      bn(a)
      buffer:add_(1)
      amp.rand(3)
      error(e)
    end
    pcall(amp.trace, fails, x) -- what a first call keeps
    amp.manual_seed(9)
    local before = amp.get_rng_state()
    jit.flush()
    local live = H.live()
    local ok, got = pcall(amp.trace, fails, x)
    assert.is_false(ok)
    assert.is_true(rawequal(e, got))
    assert.equal(2, counter)
    assert.equal(0, buffer:sum():item())
    assert.equal(0, bn.num_batches_tracked:item())
    assert.equal(0, bn.running_mean:abs():sum():item())
    assert.same(before, amp.get_rng_state())
    assert.equal(0, recording())
    jit.flush() -- compiled code holds what it was compiled for
    assert.equal(live, H.live())
    assert.is_nil(nn.Module.watched())
  end)
end)

describe('a trace', function()
  it('changes nothing itself', function()
    local bn, given = nn.BatchNorm1d(4), amp.ones(3, 4)
    amp.manual_seed(9)
    local before = amp.get_rng_state()
    local version = given:version()
    amp.trace(function(a) a:add_(1) return bn(a):dropout(0.5) end, given)
    assert.equal(12, given:sum():item())
    assert.equal(version, given:version())
    assert.equal(0, bn.num_batches_tracked:item())
    assert.same(before, amp.get_rng_state())
  end)

  it('writes inputs, their views and outer tensors as the function does', function()
    same(function(a) a:add_(1) return a * 2 end, x)
    same(function(a) a[1] = 5 a[{{}, 2}]:mul_(3) return a end, x)
    same(function(a) a[a:gt(0)] = 0 return a:sum(1) end, x)
    same(function(a, b) a[{{1, 2}}] = b[{{2, 3}}] a[{amp.tensor({1, 3}, {dtype = 'int64'}), 2}] = -1 return a - b end, x, x)
    same(function(a) local b = a:clone() b:t():mul_(2) b[{{}, {1, 2}}]:fill_(3) return b, a end, x)
    local buffer = amp.zeros(3, 4)
    local g = amp.trace(function(a) amp.add(a, 1, {out = buffer}) return buffer * 2 end, x)
    assert.equal(0, buffer:sum():item())
    local y = g(amp.ones(3, 4))
    assert.equal(24, buffer:sum():item())
    assert.equal(48, y:sum():item())
  end)

  it('draws from the generator as the function does', function()
    same(function(a) return a:dropout(0.5), amp.rand(3), a + amp.randn(4), amp.bernoulli(a:sigmoid()) end, x)
  end)

  it('gives what the function gives: several, nil, the same twice, inputs, parameters, tables', function()
    local net = nn.Linear(4, 3)
    local g = amp.trace(function(a) return a, nil, a, net.weight, {v = a * 2, list = {a, 'text', 3, true}}, nil end, x)
    local n = select('#', g(x))
    local a, none, again, w, t = g(x)
    assert.equal(6, n)
    assert.is_true(a == x and again == x and none == nil and w == net.weight)
    H.same(t.v, x * 2)
    assert.is_true(t.list[1] == x)
    assert.same({'text', 3, true}, {t.list[2], t.list[3], t.list[4]})
    assert.equal(0, select('#', amp.trace(function() end, x)(x)))
    H.same(amp.graph.trace(function() return amp.ones(2) end, {})(), amp.ones(2))
  end)

  it('takes an input twice, and one that is a parameter', function()
    same(function(a, b) return a * 2 + b end, x, x)
    local net = nn.Linear(4, 3)
    local f = function(w, a) return net(a) * w:sum() end
    local g = amp.trace(f, net.weight, x)
    local w = randn(3, 4)
    H.same(g(w, x), f(w, x))
    local y = randn(3, 4)
    local both = amp.trace(function(a, b) a:add_(b) return a * b end, x, x)
    local other = y:clone()
    other:add_(other)
    H.same(both(y, y), other * other)
  end)

  it('names by modules: one has its own, several their variables', function()
    local enc, dec = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    assert.equal('weight bias', names(amp.trace(function(a) return enc(a) end, x):named_parameters()))
    assert.equal('enc.weight enc.bias dec.1.weight dec.1.bias', names(amp.trace(function(a) return dec(enc(a)) end, x):named_parameters()))
    local tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[2].weight = tied[1].weight
    assert.equal('1.weight 1.bias 2.bias', names(amp.trace(tied, x):named_parameters()))
  end)

  it('sees parameters as they are at each run', function()
    local net = nn.Linear(4, 3)
    local g = amp.trace(net, x)
    net.weight.data:mul_(2)
    H.same(g(x), net(x))
    net:load_state_dict(nn.Linear(4, 3):state_dict())
    H.same(g(x), net(x))
    local opt = amp.optim.SGD(net:parameters(), {lr = 0.1})
    g(x):sum():backward()
    opt:step()
    H.same(g(x), net(x))
  end)

  it('keeps detach, no_grad, enable_grad and regions of its own', function()
    local w = randn(4, 4):requires_grad_()
    local g = amp.trace(function(a)
      return amp.no_grad(function() return a:matmul(w), amp.enable_grad(function() return a:matmul(w) end) end), (a * w[1]):detach(), a:matmul(w)
    end, x)
    local first, detached, last = g(x)
    assert.is_false(first.requires_grad)
    assert.is_false(detached.requires_grad)
    assert.is_true(last.requires_grad)
    assert.is_false((select(3, amp.no_grad(g, x))).requires_grad)
    local regions = amp.trace(function(a)
      local b = amp.autocast({dtype = 'bfloat16'}, function()
        return amp.autocast({enabled = false}, function() return a:matmul(w) end), a:matmul(w)
      end)
      return b, amp.autocast({dtype = 'float16'}, function() amp.enabled = false return a:matmul(w) end), a:matmul(w)
    end, x)
    local function dtypes(...)
      local list = {}
      for i, t in ipairs {...} do list[i] = t.dtype end
      return table.concat(list, ' ')
    end
    assert.equal('float32 float32 float32', dtypes(regions(x)))
    assert.equal('float32 float32 bfloat16', dtypes(amp.autocast({dtype = 'bfloat16'}, regions, x)))
    local inside = amp.trace(function(a) return amp.autocast({dtype = 'bfloat16'}, function() return a:matmul(w) end) end, x)
    assert.equal('bfloat16', inside(x).dtype)
    assert.equal('bfloat16', amp.autocast({enabled = false}, inside, x).dtype)
  end)

  it('has gradients outside of the no_grad in which it was traced', function()
    local w = randn(4):requires_grad_()
    local g = amp.no_grad(function() return amp.trace(function(a) return (a * w):sum() end, x) end)
    g(x):backward()
    H.same(w.grad, x:sum(1))
  end)

  it('runs a checkpoint, a scope, packed sequences and normed weights as they are', function()
    local w = randn(4):requires_grad_()
    local g = same(function(a) return amp.checkpoint(function(b) return (b * w):sin() end, a) end, x:clone():requires_grad_())
    assert.equal('mul sin', node_ops(g))
    same(function(a) return amp.scope(function() local b = a * 2 return b + amp.tensor{1, 2, 3, 4} end) end, x)
    local gru = nn.GRU(4, 3, {batch_first = true})
    same(function(a)
      local packed = nn.utils.rnn.pack_padded_sequence(a, {3, 2, 1}, {batch_first = true})
      local y, h = gru(packed)
      return nn.utils.rnn.pad_packed_sequence(y, {batch_first = true}), h
    end, randn(3, 3, 4))
    local linear = nn.utils.weight_norm(nn.Linear(4, 3))
    local normed = amp.trace(linear, x)
    linear.weight_g.data:mul_(2)
    H.same(normed(x), linear(x))
  end)

  it('notes casts of functions with a class and of levels', function()
    local w = nn.Linear(4, 4)
    local half = amp.half_function(function(a, b) return a:matmul(b) end)
    local f = function(a) return amp.autocast({dtype = 'bfloat16'}, function() local y = half(a, w.weight) return y end) end
    local g = same(f, x)
    assert.equal('cast cast matmul', node_ops(g))
    w.weight.data:mul_(2)
    H.same(g(x), f(x))
    local y = x:clone():requires_grad_()
    H.same(amp.grad(g(y):float():sum(), {w.weight})[1], amp.grad(f(y):float():sum(), {w.weight})[1])
  end)

  it('stops where its coroutine yields', function()
    local g, modes
    local co = coroutine.create(function()
      g = amp.trace(function(a)
        local b = amp.autocast({dtype = 'bfloat16'}, function()
          local c = a:matmul(a:t())
          coroutine.yield()
          return c * 2
        end)
        return b + 1
      end, x)
    end)
    assert(coroutine.resume(co))
    modes = {recording(), S.grad_mode, amp.enabled}
    local n = x:nonzero():size(1)
    local other = amp.trace(function(a) return a * n end, x)
    assert(coroutine.resume(co))
    assert.same({0, 1, false}, modes)
    assert.equal('mul', node_ops(other))
    assert.equal('t matmul mul add', node_ops(g))
    assert.equal(0, recording())
  end)

  it('inlines a graph that runs inside, with its names', function()
    local net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    local inner = amp.trace(net, x)
    local g = same(function(a) return inner(a * 2) + 1 end, x)
    assert.equal('mul linear relu add', node_ops(g))
    assert.equal('1.weight 1.bias', names(g:named_parameters()))
  end)

  it('keeps what plain values were', function()
    local g = amp.trace(function(t, k, flag) return flag and t.a + t.b[1] * k or t.a end, {a = x, b = {x}}, 3, true)
    H.same(g({a = x, b = {x}}, 3, true), x * 4)
    H.fails_here(function() local y = g({a = x, b = {x}}, 4, true) return y end, "'k' was 3", 'got 4')
    H.fails_here(function() local y = g({a = x}, 3, true) return y end, 'holds 2 values, got 1')
  end)

  it('writes and draws once where memory was missing', function()
    local bn, buffer = nn.BatchNorm1d(4), amp.zeros(4)
    local fn = function(a)
      a:add_(1)
      buffer:add_(a:sum(1))
      local y = bn(a):dropout(0.5)
      return y * 2, amp.rand(3), y:matmul(y:t())
    end
    local g = amp.trace(fn, x)
    local start = bn:clone():state_dict()
    local function run(f, fail)
      bn:load_state_dict(start)
      buffer:zero_()
      local a = amp.ones(3, 4) * amp.arange(3):view(3, 1)
      amp.manual_seed(6)
      C.amp_fail_allocation(fail)
      local results = {f(a)}
      C.amp_fail_allocation(-1)
      local more = {a, buffer:clone(), bn.running_mean:clone(), bn.num_batches_tracked:clone(), amp.rand(2)}
      for _, t in ipairs(more) do results[#results + 1] = t end
      return results
    end
    local want = run(fn, -1)
    local n = 0
    local failures
    repeat
      n = n + 1
      failures = C.amp_memory(C.AMP_CPU, 0).failures
      local got = run(g, n)
      for i = 1, #want do H.same(got[i], want[i]) end
    until C.amp_memory(C.AMP_CPU, 0).failures == failures
    assert.is_true(n > 10)
    local live = H.live()
    run(g, 7)
    assert.equal(live, H.live())
  end)

  it('takes no more memory than the function in a scope', function()
    local function peak(f)
      collectgarbage()
      collectgarbage()
      local memory = C.amp_memory(C.AMP_CPU, 0)
      local before = tonumber(memory.live)
      memory.peak = memory.live
      f()
      return tonumber(memory.peak) - before
    end
    local net, big = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), randn(512, 64)
    local g = amp.trace(net, big)
    amp.no_grad(function()
      local eager = peak(function() amp.scope(net, big) end)
      collectgarbage()
      amp.scope(g, big) -- weights in a form that a kernel keeps stay with the graph
      local graph = peak(function() amp.scope(g, big) end)
      assert.is_true(graph <= eager, ('%d bytes, eager %d'):format(graph, eager))
    end)
  end)
end)

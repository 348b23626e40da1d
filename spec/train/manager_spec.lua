--- GradManager: attach, record, backward, callbacks, groups, nesting.
local amp = require 'amp'
local H = require 'spec.lib.helper'

local function eq(t, values) H.close(t, values, H.exact) end

describe('GradManager', function()
  it('records, goes backward and accumulates', function()
    local w = amp.tensor { 1, 2 }
    local gm = amp.GradManager():attach { w }
    local y = gm:record(function()
      local loss = (w * 3):sum()
      gm:backward(loss)
      return loss
    end)
    assert.equal(9, y:item())
    eq(w.grad, { 3, 3 })
    gm:record(function() gm:backward((w * 3):sum()) end)
    eq(w.grad, { 6, 6 })
  end)
  it('takes dy, lists of outputs; several values without dy start with ones', function()
    local w = amp.tensor { 1, 2 }
    local gm = amp.GradManager():attach(w)
    gm:record(function() gm:backward(w * 2, { dy = amp.tensor { 1, 10 } }) end)
    eq(w.grad, { 2, 20 })
    w.grad = nil
    gm:record(function() gm:backward({ (w * 2):sum(), w }, { dy = { amp.tensor(1), amp.tensor { 1, 1 } } }) end)
    eq(w.grad, { 3, 3 })
    w.grad = nil
    gm:record(function() gm:backward(w * 2) end)
    eq(w.grad, { 2, 2 })
    H.fails(function() gm:record(function() gm:backward(w * 2, { dy = amp.zeros(3) }) end) end, '3', '2')
  end)
  it('record() … release() is the same in two calls', function()
    local w = amp.tensor { 1, 2 }
    local gm = amp.GradManager():attach { w }
    gm:record()
    local y = (w * w):sum()
    gm:backward(y)
    gm:release()
    eq(w.grad, { 2, 4 })
    assert.is_false((w * 2).requires_grad)
  end)
  it('record passes arguments and returns all values', function()
    local gm = amp.GradManager()
    local a, b, c = gm:record(function(x, y) return y, nil, x end, 1, 2)
    assert.equal(2, a)
    assert.is_nil(b)
    assert.equal(1, c)
  end)
  it('tracks a tensor that does not require grad while recording only', function()
    local w = amp.ones(2)
    local gm = amp.GradManager():attach { w }
    assert.is_false(w.requires_grad)
    gm:record(function() assert.is_true((w * 2).requires_grad) end)
    assert.is_false(w.requires_grad)
    assert.is_false((w * 2).requires_grad)
  end)
  it('attaching during recording is effective from there', function()
    local w, v = amp.ones(1), amp.ones(1)
    local gm = amp.GradManager():attach { w }
    gm:record(function()
      local before = v * 5
      gm:attach { v }
      gm:backward((w * 2 + before + v * 3):sum())
    end)
    eq(v.grad, { 3 })
    eq(w.grad, { 2 })
  end)
  it('backward without a recording, or after release, says so', function()
    local w = amp.ones(1)
    local gm = amp.GradManager():attach { w }
    local y = gm:record(function() return w * 2 end)
    gm:backward(y)
    eq(w.grad, { 2 })
    H.fails_here(function() gm:backward(y) end, 'record')
    gm:record()
    gm:release()
    H.fails_here(function() gm:backward(w * 2) end, 'record')
    H.fails_here(function() amp.GradManager():backward(w) end, 'record')
  end)
  it('unreached tensors keep grad == nil', function()
    local w, v = amp.ones(1), amp.ones(1)
    local gm = amp.GradManager():attach { w, v }
    gm:record(function() gm:backward(w * 2) end)
    assert.is_nil(v.grad)
    eq(w.grad, { 2 })
  end)
  it('accumulates into attached tensors only, whatever else requires grad', function()
    local w, other = amp.ones(1), amp.ones(1, { requires_grad = true })
    local gm = amp.GradManager():attach { w }
    gm:record(function() gm:backward(w * other * 3) end)
    eq(w.grad, { 3 })
    assert.is_nil(other.grad)
  end)
  it('keeps attach order, holds weak references, attaches once', function()
    local a, b = amp.ones(1), amp.ones(1)
    local gm = amp.GradManager():attach { b, a }:attach { b }
    local list = gm:attached_tensors()
    assert.equal(2, #list)
    assert.is_true(list[1] == b and list[2] == a)
    list = nil -- luacheck: ignore
    local before = H.live()
    do
      local big = amp.zeros(100000)
      gm:attach { big }
    end
    assert.is_true(H.live() <= before + 4096)
    assert.equal(2, #gm:attached_tensors())
  end)
  it('refuses integers and what is no tensor', function()
    local gm = amp.GradManager()
    H.fails_here(function() gm:attach { amp.zeros(1, { dtype = 'int64' }) } end, 'int64')
    H.fails_here(function() gm:attach { 5 } end)
    for _, d in ipairs(H.floats) do gm:attach { amp.zeros(1, { dtype = d }) } end
  end)
  it('callbacks see the gradient before it is stored and may replace it', function()
    local w = amp.ones(2)
    local seen
    local gm = amp.GradManager():attach({ w }, {
      callbacks = function(t, g)
        seen = t:id()
        assert(t.grad == nil)
        return g * 10
      end,
    })
    gm:record(function() gm:backward((w * 2):sum()) end)
    eq(w.grad, { 20, 20 })
    assert.equal(w:id(), seen)
  end)
  it('an error in a callback or in fn leaves it usable', function()
    local w = amp.ones(1)
    local fail = true
    local e = {}
    local gm = amp.GradManager():attach({ w }, { callbacks = { function(_, g) if fail then error(e) end return g end } })
    local ok, err = pcall(function() gm:record(function() gm:backward(w * 2) end) end)
    assert.is_false(ok)
    assert.is_true(err == e)
    fail = false
    gm:record(function() gm:backward(w * 2) end)
    eq(w.grad, { 2 })
    ok, err = pcall(function() gm:record(function() error(e) end) end)
    assert.is_false(ok)
    assert.is_true(err == e)
    assert.is_false((w * 2).requires_grad)
    w.grad = nil
    gm:record(function() gm:backward(w * 2) end)
    eq(w.grad, { 2 })
  end)
  it('nested managers give second derivatives', function()
    local x = amp.tensor { 3 }
    local outer, inner = amp.GradManager():attach { x }, amp.GradManager():attach { x }
    outer:record(function()
      inner:record(function() inner:backward((x ^ 3):sum()) end)
      local g = x.grad
      H.close(g, { 27 })
      x.grad = nil
      outer:backward((g * g):sum())
    end)
    H.close(x.grad, { 2 * 27 * 18 }, { rtol = 1e-5, atol = 0 })
  end)
  it('a group yields the same gradients', function()
    local a, b = amp.ones(1), amp.ones(1)
    local g1, g2 = amp.GradManager():attach { a }, amp.GradManager():attach { b }
    local both = amp.GradManager.group(g1, g2)
    both:record(function()
      local x, y = a * b * 2, a * b * 3
      g1:backward(x)
      g2:backward(y)
    end)
    eq(a.grad, { 2 })
    eq(b.grad, { 3 })
    assert.equal(2, #both:attached_tensors())
  end)
  it('of a group do not see each other\'s backward; the outer of two nested ones does', function()
    local x = amp.tensor { 3 }
    local g1, g2 = amp.GradManager():attach { x }, amp.GradManager():attach { x }
    amp.GradManager.group(g1, g2):record(function()
      g2:backward((x ^ 3):sum())
      local g = x.grad
      H.close(g, { 27 })
      assert.is_false(g.requires_grad)
      g1:backward(g)
    end)
    H.close(x.grad, { 27 })
    x.grad = nil
    g1:record(function()
      g2:record(function() g2:backward((x ^ 3):sum()) end)
      assert.is_true(x.grad.requires_grad)
      g1:backward(x.grad)
    end)
    H.close(x.grad, { 27 + 18 })
    x.grad = nil
    g1:record(function()
      g2:record(function()
        g1:backward((x ^ 3):sum()) -- the outer one's backward is not recorded for the inner one
        assert.is_false(x.grad.requires_grad)
        g2:backward(x.grad)
      end)
    end)
    H.close(x.grad, { 27 })
  end)
  it('go backward from one value each: another one that records needs its graph still', function()
    local a, b = amp.tensor { 2 }, amp.tensor { 3 }
    local g1, g2 = amp.GradManager():attach { a }, amp.GradManager():attach { b }
    local both = amp.GradManager.group(g1, g2)
    local function values(y)
      g1:backward(y)
      g2:backward(y)
      H.close(a.grad, { 12 })
      H.close(b.grad, { 4 })
      a.grad, b.grad = nil, nil
    end
    both:record(function() values((a * a * b):sum()) end)
    values(both:record(function() return (a * a * b):sum() end))
    g1:record(function() g2:record(function() values((a * a * b):sum()) end) end)
    g2:record(function() g1:record(function() values((a * a * b):sum()) end) end)
    H.fails_here(function() both:backward((a * b):sum()) end, 'backward', 'each of its managers')
  end)
  it('one alone frees the graph as it goes', function()
    local a = amp.tensor { 2 }
    local gm, y = amp.GradManager():attach { a }, nil
    gm:record(function()
      y = (a * a):sum()
      gm:backward(y)
    end)
    H.fails_here(function() y:backward() end, 'retain_graph')
  end)
  it('groups nest, keep each manager once, and want managers', function()
    local a, b = amp.ones(1), amp.ones(1)
    local g1, g2 = amp.GradManager():attach { a }, amp.GradManager():attach { b, a }
    local both = amp.GradManager.group(amp.GradManager.group(g1), g2, g1)
    assert.equal(2, #both)
    assert.equal(2, #both:attached_tensors())
    both:record()
    local y = a * b * 2
    g1:backward(y)
    both:release()
    eq(a.grad, { 2 })
    assert.is_nil(b.grad)
    H.fails_here(function() g2:backward(y) end, 'released')
    H.fails_here(function() amp.GradManager.group(g1, 5) end, '2', '5')
    H.fails_here(function() amp.GradManager.group() end, 'managers')
  end)
  it('third derivatives by three managers', function()
    local x = amp.tensor({ 2 }, { dtype = 'float64' })
    local a, b, c = amp.GradManager():attach { x }, amp.GradManager():attach { x }, amp.GradManager():attach { x }
    a:record(function()
      b:record(function()
        c:record(function() c:backward(x ^ 4) end)
        local g = x.grad
        x.grad = nil
        b:backward(g)
      end)
      local g = x.grad
      x.grad = nil
      a:backward(g)
    end)
    H.close(x.grad, { 48 })
  end)
  it('what an inner manager leaves has no history once the outermost backward is through: nothing keeps itself alive', function()
    local w = amp.tensor { 2, 3 }
    local function penalty(held)
      local x = amp.randn(2)
      local inner, outer = amp.GradManager():attach { x }, amp.GradManager():attach { w }
      outer:record(function()
        inner:record(function() inner:backward(((x * w) ^ 2):sum()) end)
        assert.is_truthy(x.grad.requires_grad)
        outer:backward((x.grad * x.grad):sum())
      end)
      w.grad = nil
      if held then return x end
    end
    local x = penalty(true)
    assert.is_false(x.grad.requires_grad)
    H.close(x.grad, (2 * x * w * w):tolist())
    local function live()
      for _ = 1, 20 do penalty() end
      jit.flush() -- traces hold what they were compiled for
      collectgarbage()
      collectgarbage()
      return amp.memory('cpu').live
    end
    local before = live()
    assert.equal(before, live())
  end)
  it('recording twice at once, other options and wrong arguments are named', function()
    local w = amp.ones(1)
    local gm = amp.GradManager():attach { w }
    gm:record()
    H.fails_here(function() gm:record() end, 'recording already')
    gm:release():release()
    H.fails_here(function() gm:record(5) end, '5')
    H.fails_here(function() gm:attach({ w }, { callback = print }) end, 'callback', 'callbacks')
    H.fails_here(function() gm:attach({ w }, { callbacks = 5 }) end, '5')
    H.fails_here(function() gm:attach(amp.nn.Linear(1, 1)) end, 'parameters()')
    H.fails_here(function() gm:attach(nil) end)
    gm:record(function()
      local y = w * 2
      H.fails_here(function() gm:backward(y, { dz = 1 }) end, 'dz', 'dy')
      H.fails_here(function() gm:backward({ y, y }, { dy = { 1 } }) end, '1', '2')
      H.fails_here(function() gm:backward(y, { dy = 'x' }) end, 'x')
      H.fails_here(function() gm:backward(5) end, '5')
      gm:backward(y) -- a refused call did not end the recording
    end)
    eq(w.grad, { 2 })
  end)
  it('a manager of nothing, a loss that depends on nothing attached', function()
    local gm = amp.GradManager()
    gm:record(function() gm:backward(amp.ones(1) * 2) end)
    local w = amp.ones(1)
    gm:attach { w }
    gm:record(function() gm:backward(amp.ones(1) * 2) end)
    assert.is_nil(w.grad)
    assert.same({}, amp.GradManager():attached_tensors())
  end)
  it('several callbacks run in turn, once a backward, and one that returns nothing changes nothing', function()
    local w = amp.ones(1)
    local order = {}
    local gm = amp.GradManager():attach({ w }, { callbacks = {
      function(_, g) order[#order + 1] = 'a' return g * 10 end,
      function(_, g) order[#order + 1] = 'b:' .. g:item() end,
      function(_, g) order[#order + 1] = 'c' return g + 1 end,
    } })
    gm:attach({ w }, { callbacks = function(_, g) return g * 2 end })
    for k = 1, 2 do
      gm:record(function() gm:backward((w * 2 + w):sum()) end)
      eq(w.grad, { 62 * k })
    end
    assert.same({ 'a', 'b:30', 'c', 'a', 'b:30', 'c' }, order)
    local other = amp.GradManager():attach { w }
    w.grad = nil
    other:record(function() other:backward(w * 2) end) -- callbacks are the manager's, not the tensor's
    eq(w.grad, { 2 })
  end)
  it('gradients come in the tensor\'s dtype, in and out of regions', function()
    for _, d in ipairs(H.floats) do
      local w = amp.ones(2, { dtype = d })
      local gm = amp.GradManager():attach { w }
      gm:record(function() gm:backward((w * 2):sum()) end)
      assert.equal(d, w.grad.dtype)
      eq(w.grad, { 2, 2 })
    end
    local w = amp.ones(1, 2)
    local gm = amp.GradManager():attach { w }
    gm:record(function()
      local y = amp.autocast({ dtype = 'bfloat16' }, function() return amp.linear(amp.ones(1, 2), w) end)
      assert.equal('bfloat16', y.dtype)
      gm:backward(y)
    end)
    assert.equal('float32', w.grad.dtype)
    eq(w.grad, { 1, 1 })
  end)
  it('a record in a coroutine that yields leaves its resumer unrecorded', function()
    local w = amp.ones(1)
    local gm = amp.GradManager():attach { w }
    local co = coroutine.wrap(function()
      gm:record(function()
        local y = w * 3
        coroutine.yield(y.requires_grad)
        assert((w * 2).requires_grad)
        gm:backward(y)
      end)
    end)
    assert.is_true(co())
    assert.is_false(w.requires_grad)
    assert.is_false((w * 2).requires_grad)
    co()
    eq(w.grad, { 3 })
  end)
  it('two managers of one plain tensor: it is tracked until the last recording ends', function()
    local w = amp.ones(1)
    local g1, g2 = amp.GradManager():attach { w }, amp.GradManager():attach { w }
    g1:record()
    g2:record()
    g2:release()
    assert.is_true((w * 2).requires_grad)
    g1:release()
    assert.is_false((w * 2).requires_grad)
  end)
  it('no_grad inside a recording and a recording inside no_grad', function()
    local w = amp.ones(1)
    local gm = amp.GradManager():attach { w }
    gm:record(function()
      assert.is_false(amp.no_grad(function() return (w * 2).requires_grad end))
      assert.is_true((w * 2).requires_grad)
    end)
    amp.no_grad(function()
      gm:record(function() gm:backward(w * 2) end)
      assert.is_false((w * 2).requires_grad)
    end)
    eq(w.grad, { 2 })
  end)
  it('a training loop with the optimizer\'s step inside the recording', function()
    local w = amp.ones(2)
    local gm = amp.GradManager():attach { w }
    local opt = amp.optim.SGD({ w }, { lr = 0.25 })
    for _ = 1, 3 do
      gm:record(function()
        gm:backward((w * w):sum())
        opt:step():clear_grad()
      end)
    end
    eq(w, { 0.125, 0.125 })
  end)
  it('leaves nothing behind', function()
    local w = H.sample { 100 }
    local gm = amp.GradManager():attach({ w }, { callbacks = function(_, g) return g end })
    local function step()
      gm:record(function() gm:backward((w * 2):sum()) end)
      pcall(gm.record, gm, function() error 'x' end)
      w.grad = nil
    end
    for _ = 1, 3 do step() end
    local before = H.live()
    for _ = 1, 100 do step() end
    assert.is_true(H.live() <= before)
    local weak = setmetatable({ gm }, { __mode = 'v' })
    gm = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    assert.is_nil(weak[1])
  end)
  it('gradient penalty with nested managers trains the critic', function()
    amp.manual_seed(2)
    local net = amp.nn.Sequential(amp.nn.Linear(2, 8), amp.nn.Tanh(), amp.nn.Linear(8, 1))
    local gm = amp.GradManager():attach(net:parameters())
    local x = H.sample { 4, 2 }
    local opt = amp.optim.Adam(net:parameters(), { lr = 0.05 })
    local first, last
    for _ = 1, 30 do
      gm:record(function()
        local inner = amp.GradManager():attach { x }
        inner:record(function() inner:backward(net(x):sum()) end)
        local g = x.grad
        x.grad = nil
        local penalty = ((g ^ 2):sum(2):sqrt() - 1):square():mean()
        gm:backward(penalty)
        last = penalty:item()
        first = first or last
      end)
      opt:step():clear_grad()
    end
    assert.is_true(last < first * 0.3, first .. ' to ' .. last)
  end)
  it('forward derivatives by double reverse', function()
    local x = amp.tensor({ 1, 2 }, { requires_grad = true })
    local v = amp.tensor({ 0, 0 }, { requires_grad = true })
    local y = x * x
    local g = amp.grad({ y }, { x }, { grad_outputs = { v }, create_graph = true })[1]
    local jvp = amp.grad({ g }, { v }, { grad_outputs = { amp.tensor { 1, 10 } } })[1]
    eq(jvp, { 2, 40 })
  end)
  it('works without one: parameters that require grad and loss:backward()', function()
    local net = amp.nn.Linear(2, 1)
    net(amp.ones(1, 2)):sum():backward()
    assert.is_not_nil(net.weight.grad)
  end)
end)

--- Autograd: gradients, graphs, higher orders, hooks, functions written in Lua, checks.
local amp = require 'amp'
local H = require 'spec.lib.helper'

local function eq(t, values) H.close(t, values, H.exact) end
local function leaf(values, dtype)
  local t = H.make(values, { #values }, dtype)
  t.requires_grad = true
  return t
end

describe('backward', function()
  it('fills leaves, accumulating, in the leaf\'s dtype', function()
    local x, w = leaf { 1, 2 }, leaf({ 3, 4 }, 'float64');
    (x * w):sum():backward()
    eq(x.grad, { 3, 4 })
    assert.equal('float32', x.grad.dtype)
    assert.equal('float64', w.grad.dtype);
    (x * 2):sum():backward()
    eq(x.grad, { 5, 6 })
  end)
  it('takes a gradient, and wants one for more than one element', function()
    local x = leaf { 1, 2 };
    (x * x):backward(amp.tensor { 1, 10 })
    eq(x.grad, { 2, 40 })
    H.fails_here(function() (x * 2):backward() end, '2')
    H.fails_here(function() (x * 2):backward(amp.zeros(3)) end, '2', '3')
    H.fails_here(function() amp.zeros(1):backward() end, 'grad')
  end)
  it('runs from several roots', function()
    local x = leaf { 1, 2 }
    local a, b = (x * 2):sum(), x * x
    amp.backward({ a, b }, { grad_tensors = { amp.tensor(1), amp.tensor { 1, 1 } } })
    eq(x.grad, { 4, 6 })
  end)
  it('frees the graph; a second time names retain_graph', function()
    local x = leaf { 1, 2 }
    local y = (x * x):sum()
    y:backward(nil, { retain_graph = true })
    y:backward()
    eq(x.grad, { 4, 8 })
    H.fails_here(function() y:backward() end, 'retain_graph')
    eq(x.grad, { 4, 8 })
  end)
  it('refuses to follow a tensor changed in place, naming the op', function()
    local x = leaf { 1, 2 }
    local y = x * 1
    local z = y:exp()
    z:add_(1)
    H.fails_here(function() z:sum():backward() end, 'exp', 'in place')
    local p = leaf { 1, 2 }
    local q = (p * p):sum()
    amp.no_grad(function() p:add_(1) end)
    H.fails_here(function() q:backward() end, 'mul')
    assert.is_nil(p.grad)
  end)
  it('refuses to change a leaf in place while recording', function()
    local x = leaf { 1, 2 }
    H.fails_here(function() x:add_(1) end, 'leaf')
    amp.no_grad(function() x:add_(1) end)
    eq(x, { 2, 3 })
  end)
  it('follows in-place ops and views of them', function()
    local x = leaf { 1, 2, 3, 4 }
    local y = x * 1
    y:mul_(3)
    local v = y:view(2, 2)[1]
    v:mul_(v)
    y:sum():backward()
    eq(x.grad, { 18, 36, 3, 3 })
    local a = leaf { 2, 3 }
    local b = a * 2
    local c = b[1]
    b:mul_(5)
    c:backward()
    eq(a.grad, { 10, 0 })
  end)
  it('reaches a leaf through many uses and diamonds', function()
    local x = leaf { 2 }
    local y = x
    for _ = 1, 5 do y = y + y end
    y:backward()
    eq(x.grad, { 32 })
  end)
  it('goes 20,000 ops deep, and such a graph dies without a crash', function()
    local x = leaf { 1 }
    local y = x
    for _ = 1, 20000 do y = y + 1 end
    y:backward()
    eq(x.grad, { 1 })
    y = x
    for _ = 1, 20000 do y = y * 1 end
    y = nil -- luacheck: ignore
    collectgarbage()
  end)
  it('no gradient to integers', function()
    H.fails_here(function() amp.tensor({ 1 }, { dtype = 'int64' }).requires_grad = true end, 'int64')
    H.fails_here(function() amp.zeros(1, { dtype = 'int64', requires_grad = true }) end, 'int64')
  end)
end)

describe('the gradient', function()
  it('may be read, written, replaced and set to nil', function()
    local x = leaf { 1, 2 };
    (x * 3):sum():backward()
    x.grad:mul_(2)
    eq(x.grad, { 6, 6 })
    x.grad = amp.tensor { 1, 1 }
    eq(x.grad, { 1, 1 });
    (x * 1):sum():backward()
    eq(x.grad, { 2, 2 })
    x.grad = nil
    assert.is_nil(x.grad)
    H.fails_here(function() x.grad = amp.zeros(3) end, '3', '2')
    H.fails_here(function() x.grad = 5 end)
  end)
  it('is one stable tensor, and a held one keeps its values after clear_grad', function()
    local x = leaf { 1, 2 }
    local opt = amp.optim.SGD({ x }, { lr = 0.1 });
    (x * 3):sum():backward()
    local g = x.grad
    assert.is_true(x.grad == g)
    opt:clear_grad()
    assert.is_nil(x.grad)
    eq(g, { 3, 3 });
    (x * 5):sum():backward()
    eq(g, { 3, 3 })
    eq(x.grad, { 5, 5 })
    opt:zero_grad { set_to_none = false }
    eq(x.grad, { 0, 0 })
  end)
  it('of several 16-bit backwards is summed in float32', function()
    for _, low in ipairs { 'float16', 'bfloat16' } do
      local w = amp.ones(1, 1, { requires_grad = true })
      for _, v in ipairs { 1, 2 ^ -12, 2 ^ -12 } do
        local x = amp.full({ 1, 1 }, v)
        amp.autocast({ dtype = low }, function() return x:matmul(w) end):sum():backward()
      end
      eq(w.grad, { 1 + 2 ^ -11 })
    end
  end)
  it('is in the leaf\'s dtype whatever the region computed in', function()
    for _, low in ipairs { 'float16', 'bfloat16' } do
      local w = leaf { 1, 2 }
      amp.autocast({ dtype = low }, function() return w:view(1, 2):matmul(amp.ones(2, 1)) end):sum():backward()
      assert.equal('float32', w.grad.dtype)
      eq(w.grad, { 1, 1 })
    end
  end)
end)

describe('amp.grad', function()
  it('gives a list and leaves .grad alone', function()
    local x, y = leaf { 2 }, leaf { 5 }
    local g = amp.grad({ x * x * y }, { x, y })
    eq(g[1], { 20 })
    eq(g[2], { 4 })
    assert.is_nil(x.grad)
    eq(amp.grad({ x * y }, { x }, { grad_outputs = { amp.tensor { 3 } } })[1], { 15 })
  end)
  it('names an unused input, or gives nil with allow_unused', function()
    local x, y = leaf { 2 }, leaf { 5 }
    H.fails_here(function() amp.grad({ x * 2 }, { x, y }) end, 'allow_unused')
    local g = amp.grad({ x * 2 }, { x, y }, { allow_unused = true })
    assert.is_nil(g[2])
  end)
  it('reaches inner tensors of the graph', function()
    local x = leaf { 2 }
    local h = x * 3
    eq(amp.grad({ h * h }, { h })[1], { 12 })
  end)
  it('retain_graph keeps the graph', function()
    local x = leaf { 2 }
    local y = x * x
    eq(amp.grad({ y }, { x }, { retain_graph = true })[1], { 4 })
    eq(amp.grad({ y }, { x })[1], { 4 })
    H.fails_here(function() amp.grad({ y }, { x }) end, 'retain_graph')
  end)
end)

describe('higher orders', function()
  it('derivatives of derivatives, to the third', function()
    local x = leaf({ 2 }, 'float64')
    local y = x ^ 4
    local d1 = amp.grad({ y }, { x }, { create_graph = true })[1]
    local d2 = amp.grad({ d1 }, { x }, { create_graph = true })[1]
    local d3 = amp.grad({ d2 }, { x })[1]
    H.close(d1, { 32 })
    H.close(d2, { 48 })
    H.close(d3, { 48 })
  end)
  it('gradient penalty through a network, against finite differences', function()
    local w1, w2 = H.sample({ 4, 3 }, 'float64'), H.sample({ 1, 4 }, 'float64', 0.7)
    local x = H.sample({ 2, 3 }, 'float64', 0.9)
    local function penalty(ws)
      local input = x:detach()
      input.requires_grad = true
      local out = amp.linear(amp.tanh(amp.linear(input, ws[1])), ws[2])
      local g = amp.grad({ out:sum() }, { input }, { create_graph = true })[1]
      return { ((g ^ 2):sum(2):sqrt() - 1):square():mean() }
    end
    w1.requires_grad, w2.requires_grad = true, true
    local g = amp.grad(penalty { w1, w2 }, { w1, w2 })
    local plain = { w1:detach(), w2:detach() }
    for k = 1, 2 do
      local numeric = H.numeric_grad(penalty, plain, k, { { 1 } })
      local wrong = H.difference(g[k], numeric, H.shape(plain[k]), { rtol = 1e-5, atol = 1e-7 })
      assert.is_nil(wrong, wrong)
    end
  end)
  it('backward with create_graph leaves a differentiable gradient', function()
    local x = leaf { 3 };
    (x ^ 3):backward(nil, { create_graph = true })
    local g = x.grad
    x.grad = nil
    g:backward()
    H.close(x.grad, { 18 })
  end)
  it('under autocast gives float32 gradients that agree with plain ones', function()
    local x = leaf { 0.5, 0.25 }
    local function second(region)
      local w = amp.tensor({ { 1, 2 }, { 3, 4 } }, { requires_grad = true })
      local y = region(function() return amp.tanh(x:view(1, 2):matmul(w)):sum() end)
      local g = amp.grad({ y }, { w }, { create_graph = true })[1]
      assert.equal('float32', g.dtype)
      return amp.grad({ g:square():sum() }, { w })[1]
    end
    local want = second(function(f) return f() end)
    local got = second(function(f) return amp.autocast({ dtype = 'bfloat16' }, f) end)
    H.close(got, want, { rtol = 0.06, atol = 0.02 })
  end)
end)

describe('grad mode', function()
  it('no_grad and enable_grad run fn, give its values and restore', function()
    local x = leaf { 1 }
    local a, b = amp.no_grad(function(p, q) return (x * p).requires_grad, q end, 2, 'q')
    assert.is_false(a)
    assert.equal('q', b)
    amp.no_grad(function()
      assert.is_true(amp.enable_grad(function() return (x * 2).requires_grad end))
      assert.is_false((x * 2).requires_grad)
    end)
    assert.is_true((x * 2).requires_grad)
    local e = {}
    local ok, err = pcall(amp.no_grad, function() error(e) end)
    assert.is_false(ok)
    assert.is_true(err == e)
    assert.is_true((x * 2).requires_grad)
  end)
  it('a coroutine that yields out of no_grad leaves its resumer recording', function()
    local x = leaf { 1 }
    local co = coroutine.wrap(function()
      amp.no_grad(function()
        coroutine.yield((x * 2).requires_grad)
        coroutine.yield((x * 2).requires_grad)
      end)
      coroutine.yield((x * 2).requires_grad)
    end)
    assert.is_false(co())
    assert.is_true((x * 2).requires_grad)
    assert.is_false(co())
    assert.is_true((x * 2).requires_grad)
    assert.is_true(co())
  end)
end)

describe('hooks', function()
  it('see and may replace the gradient; can be removed', function()
    local x = leaf { 1, 2 }
    local seen = 0
    local h = x:register_hook(function(g)
      seen = seen + 1
      return g * 10
    end);
    (x * 3):sum():backward()
    eq(x.grad, { 30, 30 })
    h:remove()
    x.grad = nil;
    (x * 3):sum():backward()
    eq(x.grad, { 3, 3 })
    assert.equal(1, seen)
  end)
  it('work on inner tensors, in order', function()
    local x = leaf { 1 }
    local h = x * 2
    local order = {}
    h:register_hook(function(g) order[#order + 1] = 1 return g + 1 end)
    h:register_hook(function(g) order[#order + 1] = 2 return g * 2 end)
    h:backward()
    assert.same({ 1, 2 }, order)
    eq(x.grad, { 8 })
  end)
  it('may throw: the same error comes out and everything stays consistent', function()
    local x = leaf { 1 }
    local e = setmetatable({}, { __tostring = function() return 'mine' end })
    local on = true
    x:register_hook(function() if on then error(e) end end)
    local y = x * 2
    local ok, err = pcall(function() y:backward(nil, { retain_graph = true }) end)
    assert.is_false(ok)
    assert.is_true(err == e)
    assert.is_nil(x.grad)
    on = false
    y:backward()
    eq(x.grad, { 2 })
  end)
  it('may run a backward of their own', function()
    local x = leaf { 1 }
    local other = leaf { 3 }
    x:register_hook(function() amp.enable_grad(function() (other * other):backward() end) end);
    (x * 2):backward()
    eq(other.grad, { 6 })
    eq(x.grad, { 2 })
  end)
  it('may remove themselves without another being missed', function()
    local x = leaf { 1 }
    local order = {}
    local first
    first = x:register_hook(function()
      order[#order + 1] = 'first'
      first:remove()
    end)
    x:register_hook(function() order[#order + 1] = 'second' end)
    for _ = 1, 2 do (x * 2):backward() end
    assert.same({ 'first', 'second', 'second' }, order)
  end)
  it('run with autocast off wherever backward is called', function()
    local x = leaf { 1 }
    local seen = {}
    local f = amp.Function { forward = function(_, a) return a * 1 end, backward = function(_, g)
      seen[1] = amp.is_autocast_enabled()
      return g
    end }
    x:register_hook(function() seen[2] = amp.is_autocast_enabled() end)
    local y = f(x)
    amp.autocast(function()
      y:backward()
      seen[3] = amp.is_autocast_enabled()
    end)
    assert.same({ false, false, true }, seen)
  end)
  it('see one gradient dtype', function()
    local w = leaf { 1, 2 }
    local seen
    w:register_hook(function(g) seen = g.dtype end)
    amp.autocast({ dtype = 'bfloat16' }, function() return w:view(1, 2):matmul(amp.ones(2, 1)) end):sum():backward()
    assert.equal('float32', seen)
  end)
end)

describe('amp.Function', function()
  local cube = amp.Function {
    forward = function(ctx, x)
      ctx:save_for_backward(x)
      return x * x * x
    end,
    backward = function(ctx, g)
      local x = unpack(ctx.saved_tensors)
      return g * 3 * x * x
    end,
  }
  it('is differentiable, twice where its backward is', function()
    local x = leaf({ 2, -1 }, 'float64')
    local y = cube(x)
    local g = amp.grad({ y:sum() }, { x }, { create_graph = true })[1]
    H.close(g, { 12, 3 })
    H.close(amp.grad({ g:sum() }, { x })[1], { 12, -6 })
    assert.is_true(amp.gradcheck(function(a) return cube(a) end, { x }))
    assert.is_true(amp.gradgradcheck(function(a) return cube(a) end, { x }))
  end)
  it('takes tables and plain values; backward gives one gradient per argument, nil for none', function()
    local f = amp.Function {
      forward = function(ctx, x, k, list, s)
        ctx.k = k
        assert(list[1] == 7 and s == 's')
        return x * k, x + k
      end,
      backward = function(ctx, a, b) return a * ctx.k + b, nil, nil, nil end,
    }
    local x = leaf { 1, 2 }
    local a, b = f(x, 3, { 7 }, 's');
    (a + b):sum():backward()
    eq(x.grad, { 4, 4 })
  end)
  it('an error in forward or backward comes out by identity, state intact', function()
    local e = {}
    local bad = 'forward'
    local f = amp.Function {
      forward = function(_, x)
        if bad == 'forward' then error(e) end
        return x * 1
      end,
      backward = function(_, g)
        if bad == 'backward' then error(e) end
        return g
      end,
    }
    local x = leaf { 1 }
    local ok, err = pcall(f, x)
    assert.is_false(ok)
    assert.is_true(err == e)
    assert.is_true((x * 2).requires_grad)
    bad = 'backward'
    local y = f(x) * 2
    ok, err = pcall(function() y:backward() end)
    assert.is_false(ok)
    assert.is_true(err == e)
    bad = nil
    f(x):backward()
    eq(x.grad, { 1 })
  end)
  it('says what is wrong with a gradient', function()
    local wrong
    local f = amp.Function { forward = function(_, x) return x * 1 end, backward = function() return wrong end }
    local x = leaf { 1, 2 }
    wrong = amp.zeros(3)
    H.fails(function() f(x):sum():backward() end, '3', '2')
    wrong = 'x'
    H.fails(function() f(x):sum():backward() end)
    wrong = nil
    f(x):sum():backward()
    assert.is_nil(x.grad)
  end)
  it('releases what it holds', function()
    local kept = setmetatable({}, { __mode = 'k' })
    do
      local f = amp.Function {
        forward = function(ctx, x)
          ctx.big = {}
          kept[ctx.big] = true
          return x * 1
        end,
        backward = function(_, g) return g end,
      }
      local x = leaf { 1 }
      f(x):backward()
    end
    local x = leaf { 1 };
    (x * 1):backward()
    for _ = 1, 3 do
      collectgarbage();
      (x * 1):backward()
    end
    assert.is_nil(next(kept))
  end)
end)

describe('checkpoint', function()
  local function block(w, x) return amp.tanh(amp.linear(amp.tanh(amp.linear(x, w)), w)) end
  it('gives the same values and gradients as the plain block, in a region too', function()
    for _, region in ipairs { false, 'bfloat16', 'float16' } do
      local w, x = H.sample { 3, 3 }, H.sample { 2, 3 }
      w.requires_grad = true
      local function run(checked)
        local function go()
          local y
          if checked then y = amp.checkpoint(block, w, x) else y = block(w, x) end
          return y:sum()
        end
        local y
        if region then y = amp.autocast({ dtype = region }, go) else y = go() end
        return y, amp.grad({ y }, { w })[1]
      end
      local y1, g1 = run(false)
      local y2, g2 = run(true)
      H.same(y2, y1)
      H.same(g2, g1)
    end
  end)
  it('recomputes in the forward\'s dtype and draws the same numbers', function()
    local w = H.sample { 3, 3 }
    w.requires_grad = true
    local seen = {}
    local y = amp.autocast({ dtype = 'bfloat16' }, function()
      return amp.checkpoint(function(x)
        local h = amp.linear(x, w)
        seen[#seen + 1] = h.dtype
        return amp.dropout(h, 0.5)
      end, H.sample { 4, 3 })
    end)
    amp.manual_seed(99)
    y:sum():backward()
    assert.same({ 'bfloat16', 'bfloat16' }, seen)
    assert.is_not_nil(w.grad)
  end)
end)

describe('checkpoint and what changes between forward and backward', function()
  it('random numbers are those of the forward pass, and the stream goes on as if nothing was', function()
    local w, x = H.sample { 3, 3 }, H.sample { 40, 3 }
    w.requires_grad = true
    local function block(a) return amp.dropout(amp.linear(a, w), 0.5) end
    amp.manual_seed(3)
    local want = amp.grad({ block(x):sum() }, { w })[1]
    local after = amp.rand(3)
    amp.manual_seed(3)
    local y = amp.checkpoint(block, x):sum()
    local draw = amp.rand(3)
    H.same(draw, after)
    local before = amp.get_rng_state()
    H.same(amp.grad({ y }, { w })[1], want)
    amp.set_rng_state(before)
    local one = amp.rand(3)
    amp.manual_seed(3)
    block(x)
    amp.rand(3)
    H.same(amp.rand(3), one)
  end)
  it('an argument changed in place is an error that says so', function()
    local w, x = H.sample { 3, 3 }, H.sample { 2, 3 }
    w.requires_grad = true
    local a = x * 1
    a.requires_grad = true
    local y = amp.checkpoint(function(t) return amp.linear(t, w):tanh() end, a):sum()
    amp.no_grad(function() a:add_(1) end)
    H.fails(function() y:backward() end, 'checkpoint', 'in place')
    assert.is_nil(w.grad)
  end)
end)

describe('gradcheck', function()
  it('passes right derivatives and fails wrong ones', function()
    local x = leaf({ 0.5, -0.25 }, 'float64')
    assert.is_true(amp.gradcheck(function(a) return amp.tanh(a) * a end, { x }))
    assert.is_true(amp.gradgradcheck(function(a) return amp.tanh(a) * a end, { x }))
    local lies = amp.Function { forward = function(_, a) return a * a end, backward = function(_, g) return g end }
    H.fails(function() assert(amp.gradcheck(function(a) return lies(a) end, { x })) end)
  end)
end)

describe('scope', function()
  it('leaves a Function what it keeps in fields of ctx', function()
    local square = amp.Function {
      forward = function(ctx, x)
        ctx.x = x
        return x * x
      end,
      backward = function(ctx, g) return 2 * ctx.x * g end,
    }
    local w = H.make({ 3 }, { 1 })
    w.requires_grad = true
    local y = amp.scope(function() return square(w * 2) end)
    y:backward()
    H.close(w.grad, { 24 })
  end)
  it('frees what was made inside except what is returned', function()
    local before = H.live()
    local inner, outer
    outer = amp.scope(function()
      inner = amp.zeros(1000)
      return { nested = inner + 1 }
    end)
    H.fails(function() return inner + 1 end, 'freed')
    assert.equal(1, outer.nested[1]:item())
    outer.nested:free()
    assert.is_true(H.live() <= before + 4096)
  end)
  it('restores on error, with the same error', function()
    local e, t = {}, nil
    local ok, err = pcall(amp.scope, function()
      t = amp.zeros(10)
      error(e)
    end)
    assert.is_false(ok)
    assert.is_true(err == e)
    H.fails(function() return t + 1 end, 'freed')
  end)
  it('gradients made inside stay with their leaf', function()
    local x = leaf { 1, 2 }
    amp.scope(function() (x * 3):sum():backward() end)
    eq(x.grad, { 3, 3 })
  end)
end)

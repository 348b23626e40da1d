--- GradScaler where things are shared: gradients that several parameters hold, several optimizers,
-- losses and scalers, gradients the user edits between unscale_ and step, and the scale's bounds.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local scaling = require 'spec.precision.scaling'
local eq, param, sgd, give = scaling.eq, scaling.param, scaling.sgd, scaling.give
local INF, NAN = math.huge, 0 / 0

describe('aliased gradients', function()
  it('of two parameters of one optimizer are unscaled once', function()
    local s, a, b = amp.GradScaler { init_scale = 8 }, param { 1 }, param { 2 }
    local o, g = sgd(a, b), amp.tensor { 16 }
    a.grad, b.grad = g, g
    s:unscale_(o)
    eq(g, { 2 })
    assert.is_true(a.grad == g and b.grad == g)
    s:step(o):update()
    eq(a, { -1 })
    eq(b, { 0 })
  end)
  it('are unscaled once by step alone, and checked', function()
    for _, value in ipairs { 16, INF } do
      local s, a, b = amp.GradScaler { init_scale = 8 }, param { 1 }, param { 2 }
      local o, g = sgd(a, b), amp.tensor { value }
      a.grad, b.grad = g, g
      s:step(o)
      assert.equal(value == INF, s:found_inf(o))
      s:update()
      eq(a, { value == INF and 1 or -1 })
      eq(b, { value == INF and 2 or 0 })
    end
  end)
  it('of two optimizers are unscaled once, in whichever order they step', function()
    for _, early in ipairs { true, false } do
      local s, a, b = amp.GradScaler { init_scale = 8 }, param { 1 }, param { 2 }
      local oa, ob, g = sgd(a), sgd(b), amp.tensor { 16 }
      a.grad, b.grad = g, g
      if early then s:unscale_(oa) end
      s:step(ob)
      s:step(oa)
      s:update()
      eq(a, { -1 })
      eq(b, { 0 })
    end
  end)
  it('as views of the same place, and as neighbours in one flat buffer', function()
    local s, a, b, c = amp.GradScaler { init_scale = 8 }, param { 1, 1 }, param { 2, 2 }, param { 3, 3 }
    local o, flat = sgd(a, b, c), amp.tensor { 16, 32, 64, 128 }
    a.grad, b.grad, c.grad = flat[{ { 1, 2 } }], flat[{ { 1, 2 } }], flat[{ { 3, 4 } }]
    s:unscale_(o)
    eq(flat, { 2, 4, 8, 16 })
    s:step(o):update()
    eq(a, { -1, -3 })
    eq(b, { 0, -2 })
    eq(c, { -5, -13 })
  end)
  it('that overlap in part are each scaled once', function()
    local s, a, b = amp.GradScaler { init_scale = 8 }, param { 1, 1 }, param { 2, 2 }
    local o, flat = sgd(a, b), amp.tensor { 16, 32, 64 }
    a.grad, b.grad = flat[{ { 1, 2 } }], flat[{ { 2, 3 } }]
    s:unscale_(o)
    eq(a.grad, { 2, 4 })
    eq(b.grad, { 4, 8 })
  end)
  it('as columns of one matrix', function()
    local s, a, b = amp.GradScaler { init_scale = 2 }, amp.ones(2, 1, { requires_grad = true }), amp.ones(2, 1, { requires_grad = true })
    local o, flat = amp.optim.SGD({ a, b }, { lr = 1 }), amp.tensor { { 2, 4 }, { 6, 8 } }
    a.grad, b.grad = flat[{ {}, { 1, 1 } }], flat[{ {}, { 2, 2 } }]
    s:step(o):update()
    eq(a, { 0, -2 })
    eq(b, { -1, -3 })
  end)
  it('in the next iteration they are new gradients', function()
    local s, a, b = amp.GradScaler { init_scale = 8 }, param { 1 }, param { 1 }
    local o, g = sgd(a, b), amp.tensor { 16 }
    a.grad, b.grad = g, g
    for i = 1, 3 do
      g:fill_(16)
      s:step(o)
      if i == 2 then s:update(8) else s:update() end
    end
    eq(a, { 1 - 3 * 2 })
    eq(b, { 1 - 3 * 2 })
  end)
  it('a tied weight is one parameter with one gradient', function()
    local s, w = amp.GradScaler { init_scale = 8 }, param { 3 }
    local o = sgd(w)
    s:scale((w * w):sum() + (w * 2):sum()):backward()
    s:unscale_(o)
    eq(w.grad, { 8 })
  end)
end)

describe('a gradient that the user edits between unscale_ and step', function()
  -- one iteration of two parameters, of which the first overflows
  local function overflowed()
    local s, a, b = amp.GradScaler { init_scale = 4 }, param { 1 }, param { 1 }
    local o = sgd(a, b)
    s:scale((a * INF + b * 3):sum()):backward()
    s:unscale_(o)
    assert.is_true(s:found_inf(o))
    return s, o, a, b
  end
  it('steps with what was put in place of an overflow; the scale backs off all the same', function()
    local s, o, a, b = overflowed()
    a.grad = amp.tensor { 0.5 }
    s:step(o)
    assert.is_false(s:found_inf(o))
    s:update()
    eq(a, { 0.5 })
    eq(b, { -2 })
    assert.equal(2, s:get_scale())
  end)
  it('in place, too', function()
    local s, o, a, b = overflowed()
    amp.no_grad(function() a.grad:zero_() end)
    s:step(o):update()
    eq(a, { 1 })
    eq(b, { -2 })
    assert.equal(2, s:get_scale())
  end)
  it('set to nil leaves the others to step', function()
    local s, o, a, b = overflowed()
    a.grad = nil
    s:step(o):update()
    eq(a, { 1 })
    eq(b, { -2 })
    assert.equal(2, s:get_scale())
  end)
  it('but clipping does not make an overflow a step', function()
    for _, clip in ipairs { function(p) amp.nn.utils.clip_grad_value_(p, 1) end, function(p) amp.nn.utils.clip_grad_norm_(p, 1) end } do
      local s, o, a, b = overflowed()
      clip { a, b }
      s:step(o)
      assert.is_true(s:found_inf(o))
      s:update()
      eq(a, { 1 })
      eq(b, { 1 })
      assert.equal(2, s:get_scale())
    end
  end)
  it('clipping by value is the control\'s', function()
    local s, a = amp.GradScaler { init_scale = 4 }, param { 1, 1 }
    local o = sgd(a)
    s:scale((a * amp.tensor { 0.25, 3 }):sum()):backward()
    s:unscale_(o)
    amp.nn.utils.clip_grad_value_(a, 0.5)
    s:step(o):update()
    eq(a, { 0.75, 0.5 })
  end)
  it('a NaN put in is found, though all was clean', function()
    local s, a, b = amp.GradScaler { init_scale = 4 }, param { 1 }, param { 1 }
    local o = sgd(a, b)
    s:scale((a + b):sum()):backward()
    s:unscale_(o)
    b.grad = amp.tensor { NAN }
    s:step(o)
    assert.is_true(s:found_inf(o))
    s:update()
    eq(a, { 1 })
    assert.equal(2, s:get_scale())
  end)
end)

describe('several of each', function()
  it('two optimizers and three losses: the overflow of one skips its optimizers only', function()
    local s, a, b = amp.GradScaler { init_scale = 4, growth_interval = 1 }, param { 1 }, param { 1 }
    local oa, ob = sgd(a), sgd(b)
    for i = 1, 3 do
      local bad = i == 2 and INF or 1
      local l0, l1, l2 = (a * 2 + b):sum(), a:sum(), (b * bad):sum()
      s:scale(l0):backward()
      s:scale(l1):backward()
      s:scale(l2):backward()
      s:step(oa)
      s:step(ob)
      assert.is_false(s:found_inf(oa))
      assert.equal(i == 2, s:found_inf(ob))
      assert.equal(i == 2, s:found_inf())
      s:update()
      a.grad, b.grad = nil, nil
    end
    eq(a, { 1 - 3 * 3 })
    eq(b, { 1 - 2 * 2 })
    assert.equal(4 * 2 / 2 * 2, s:get_scale())
  end)
  it('a scaler a loss, each with a scale of its own, into shared parameters', function()
    local p, q = param { 1, 2 }, param { 1, 2 }
    local scalers = { amp.GradScaler { init_scale = 4, growth_interval = 2 }, amp.GradScaler { init_scale = 1024, growth_interval = 3 } }
    local op, oq = sgd(p), sgd(q)
    local gm = amp.GradManager():attach(p)
    for i = 1, 6 do
      for k, s in ipairs(scalers) do
        gm:record(function() s:backward(gm, ((p * k) ^ 2):sum() * 0.01) end)
      end
      op:step():clear_grad();
      (((q * 1) ^ 2):sum() * 0.01 + ((q * 2) ^ 2):sum() * 0.01):backward()
      oq:step():clear_grad()
      H.close(p:detach(), q:detach())
      assert.equal(4 * 2 ^ math.floor(i / 2), scalers[1]:get_scale())
      assert.equal(1024 * 2 ^ math.floor(i / 3), scalers[2]:get_scale())
    end
  end)
  it('the automatic gear accumulates: what is unscaled stays so while more arrives, in one tensor', function()
    for _, low in ipairs { false, 'float16' } do
      local w = amp.ones(2, 2, { requires_grad = true })
      local x = H.make({ 1, 2, 3, 4 }, { 2, 2 })
      local gm, s = amp.GradManager():attach(w), amp.GradScaler { init_scale = 8, growth_interval = 1 }
      local held
      for i = 1, 3 do -- under the scales 8, 16 and 32
        gm:record(function() s:backward(gm, amp.autocast({ enabled = low and true or false, dtype = low or nil }, function() return x:matmul(w):sum() end)) end)
        if i == 1 then held = w.grad end
        eq(w.grad, { 4 * i, 4 * i, 6 * i, 6 * i })
      end
      assert.is_true(w.grad == held)
      amp.optim.SGD({ w }, { lr = 1 }):step()
      eq(w, { -11, -11, -17, -17 })
    end
  end)
  it('an overflow of a later loss holds the step back; an error in its backward loses nothing', function()
    local p = param { 1 }
    local gm, s, o = amp.GradManager():attach(p), amp.GradScaler { init_scale = 8 }, sgd(p)
    gm:record(function() s:backward(gm, (p * 2):sum()) end)
    local e = {}
    local ok, got = pcall(gm.record, gm, function()
      local y = p * 3
      y:register_hook(function() error(e) end)
      s:backward(gm, y:sum())
    end)
    assert.is_true(not ok and got == e)
    eq(p.grad, { 2 })
    gm:record(function() s:backward(gm, (p * INF):sum()) end)
    assert.is_nil(p.grad)
    o:step():clear_grad()
    eq(p, { 1 })
  end)
  it('two scalers in turn for one optimizer keep their own iterations', function()
    local p, s1, s2 = param { 1 }, amp.GradScaler { init_scale = 2 }, amp.GradScaler { init_scale = 4 }
    local o = sgd(p)
    give(s1, p, 1)
    s1:unscale_(o)
    H.fails_here(function() s1:unscale_(o) end, 'unscale_')
    s1:step(o):update()
    o:zero_grad()
    give(s2, p, 1)
    s2:unscale_(o)
    s2:step(o):update()
    eq(p, { -1 })
    assert.equal(1, s1:get_growth_tracker())
    assert.equal(1, s2:get_growth_tracker())
  end)
  it('a parameter group added later is unscaled and stepped', function()
    local s, a, b = amp.GradScaler { init_scale = 4 }, param { 1 }, param { 1 }
    local o = sgd(a)
    give(s, a, 1)
    s:step(o):update()
    o:add_param_group { params = { b } }
    o:zero_grad()
    s:scale((a + b * 2):sum()):backward()
    s:step(o):update()
    eq(a, { -1 })
    eq(b, { -1 })
  end)
end)

describe('the bounds', function()
  it('an explicit init_scale lies within them; the default bends to them', function()
    H.fails_here(function() amp.GradScaler { init_scale = 8, max_scale = 4 } end, 'init_scale 8', 'max_scale 4')
    H.fails_here(function() amp.GradScaler { init_scale = 8, min_scale = 16 } end, 'init_scale 8', 'min_scale 16')
    H.fails_here(function() amp.GradScaler { min_scale = 8, max_scale = 4 } end, 'min_scale 8', 'max_scale 4')
    assert.equal(1024, amp.GradScaler { max_scale = 1024 }.scale_factor)
    assert.equal(2 ^ 20, amp.GradScaler { min_scale = 2 ^ 20 }.scale_factor)
    assert.equal(8, amp.GradScaler { init_scale = 8, min_scale = 8, max_scale = 8 }.scale_factor)
  end)
  it('so does a scale that is set; what is refused changes nothing', function()
    local s = amp.GradScaler { init_scale = 8, min_scale = 4, max_scale = 16 }
    H.fails_here(function() s:update(32) end, 'new_scale 32', 'max_scale 16')
    H.fails_here(function() s.scale_factor = 2 end, 'the scale 2', 'min_scale 4')
    assert.equal(8, s:get_scale())
    s:update(16)
    assert.equal(16, s:get_scale())
  end)
  it('a bound that was set under the scale: an overflow never raises it', function()
    local s, p = amp.GradScaler { init_scale = 4, growth_interval = 1 }, param { 1 }
    local o = sgd(p)
    s.min_scale = 64
    give(s, p, INF)
    s:step(o):update()
    assert.equal(4, s:get_scale())
    o:zero_grad()
    s.min_scale = nil
    s.max_scale = 2
    give(s, p, 0)
    s:step(o):update()
    assert.equal(2, s:get_scale(), 'a growth past max_scale is max_scale')
  end)
  it('a candidate above the largest float32 is not taken; one above max_scale is max_scale', function()
    local s, p = amp.GradScaler { init_scale = 3 * 2 ^ 125, growth_interval = 1 }, param { 1 }
    local o = sgd(p)
    local path = {}
    for i = 1, 3 do
      p.grad = amp.tensor { 0 }
      s:step(o):update()
      path[i] = s:get_scale() / 2 ^ 125
      if i == 2 then s.max_scale = 7 * 2 ^ 125 end
    end
    assert.same({ 6, 6, 7 }, path)
  end)
end)

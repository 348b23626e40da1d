--- GradScaler: the automatic and the manual gear.
local amp = require 'amp'
local INF = math.huge

local scaling = require 'spec.precision.scaling'
local eq, param, sgd, give, gear = scaling.eq, scaling.param, scaling.sgd, scaling.give, scaling.gear

describe('the automatic gear', function()
  it('backward, step, clear_grad', function()
    local s, gm, p, o = gear({ init_scale = 16, growth_interval = 2 })
    local scales = {}
    for _, g in ipairs { 0.5, INF, 0.5, 0.5 } do
      gm:record(function() s:backward(gm, (p * g):sum()) end)
      if g ~= INF then eq(p.grad, { 0.5 }) end
      o:step():clear_grad()
      scales[#scales + 1] = s:get_scale()
    end
    assert.same({ 16, 8, 8, 16 }, scales)
    eq(p, { -0.5 })
  end)
  it('takes dy, and leaves unscaling to the user on request', function()
    local s, gm, p = gear({ init_scale = 16 }, { 1, 1 })
    gm:record(function() s:backward(gm, p * 3, { dy = amp.tensor { 1, 2 } }) end)
    eq(p.grad, { 3, 6 })
    p.grad = nil
    gm:record(function() s:backward(gm, (p * 3):sum(), { unscale_grad = false }) end)
    eq(p.grad, { 48, 48 })
    s:unscale(gm:attached_tensors())
    eq(p.grad, { 3, 3 })
    s:update()
  end)
  it('manual: scale_tensor as dy, unscale, update, step', function()
    local s, gm, p, o = gear({ init_scale = 16 })
    for _, g in ipairs { 0.5, INF, 0.25 } do
      gm:record(function() gm:backward((p * g):sum(), { dy = s:scale_tensor() }) end)
      s:unscale(gm:attached_tensors())
      assert.equal(g == INF, s:found_inf())
      s:update()
      o:step():clear_grad()
    end
    eq(p, { 0.25 })
    assert.equal(8, s:get_scale())
  end)
  it('accumulates: the last batch of a step unscales and updates', function()
    local s, gm, p, o = gear({ init_scale = 2, growth_interval = 1 })
    local path = {}
    for k = 1, 6 do
      gm:record(function() s:backward(gm, (p * 0.125):sum(), { unscale_grad = k % 3 == 0 }) end)
      path[k] = s:get_scale()
      if k % 3 == 0 then
        eq(p.grad, { 0.375 })
        o:step():clear_grad()
      end
    end
    assert.same({ 2, 2, 4, 4, 4, 8 }, path)
    eq(p, { 0.25 })
  end)
  it('unscale_grad without update_scale leaves the update to the user', function()
    local s, gm, p = gear({ init_scale = 2, growth_interval = 1 })
    gm:record(function() s:backward(gm, (p * 0.125):sum(), { update_scale = false }) end)
    eq(p.grad, { 0.125 })
    assert.equal(2, s:get_scale())
    s:update()
    assert.equal(4, s:get_scale())
  end)
  it('scaler.scale_factor as dy does the same and waits; several losses with several dy', function()
    local s, gm, p = gear({ init_scale = 16 }, { 1, 1 })
    gm:record(function() gm:backward((p * 3):sum(), { dy = amp.tensor(s.scale_factor) }) end)
    eq(p.grad, { 48, 48 })
    s:unscale(gm:attached_tensors())
    eq(p.grad, { 3, 3 })
    s:update()
    p.grad = nil
    gm:record(function() s:backward(gm, { (p * 3):sum(), p * 2 }, { dy = { amp.tensor(2), amp.tensor { 1, 10 } } }) end)
    eq(p.grad, { 8, 26 })
    p.grad = nil
    gm:record(function() s:backward(gm, { (p * 3):sum(), (p * 2):sum() }) end)
    eq(p.grad, { 5, 5 })
    p.grad = nil
    gm:record(function() s:backward(gm, p * 2, { dy = 3 }) end)
    eq(p.grad, { 6, 6 })
  end)
  it('after an overflow a new backward starts afresh, cleared or not', function()
    local s, gm, p, o = gear({ init_scale = 4 })
    gm:record(function() s:backward(gm, (p * INF):sum()) end)
    assert.is_nil(p.grad)
    assert.is_true(s:found_inf())
    assert.is_true(s:found_inf(o))
    gm:record(function() s:backward(gm, (p * 0.5):sum()) end)
    eq(p.grad, { 0.5 })
    o:step()
    eq(p, { 0.5 })
  end)
  it('after an overflow a gradient the user sets is stepped with', function()
    local s, gm, p, o = gear({ init_scale = 4 })
    gm:record(function() s:backward(gm, (p * INF):sum()) end)
    p.grad = amp.tensor { 0.25 }
    o:step()
    eq(p, { 0.75 })
  end)
  it('a user-written optimizer in the automatic gear, over an overflow', function()
    local s = amp.GradScaler { init_scale = 4 }
    local p, q = param { 1 }, param { 1 }
    local gm = amp.GradManager():attach { p, q }
    local seen = {}
    local own = { param_groups = { { params = { p, q } } }, step = function(self)
      for i, t in ipairs(self.param_groups[1].params) do
        seen[#seen + 1] = t.grad ~= nil
        if t.grad then amp.no_grad(function() t:sub_(t.grad) end) end
        self.param_groups[1].params[i].grad = nil
      end
    end }
    for _, g in ipairs { 0.5, INF, 0.25 } do
      gm:record(function() s:backward(gm, (p * g + q * 0.5):sum()) end)
      own:step()
    end
    assert.same({ true, true, false, false, true, true }, seen)
    eq(p, { 0.25 })
    eq(q, { 0 })
  end)
  it('an overflow in the list holds back every optimizer of its tensors, and no other', function()
    local s = amp.GradScaler { init_scale = 4 }
    local p, q, r = param { 1 }, param { 1 }, param { 1 }
    local a, b, c = sgd(p), sgd(q), sgd(r)
    p.grad, q.grad, r.grad = amp.tensor { INF }, amp.tensor { 4 }, amp.tensor { 0.5 }
    s:unscale { p, q }
    for _, o in ipairs { a, b, c } do o:step() end
    s:update()
    eq(p, { 1 })
    eq(q, { 1 })
    eq(r, { 0.5 })
    assert.equal(2, s:get_scale())
    for _, o in ipairs { a, b, c } do o:clear_grad() end
    q.grad = amp.tensor { 0.25 }
    b:step()
    eq(q, { 0.75 })
  end)
  it('unscale(list) then scaler:step(opt) is one unscaling', function()
    local s, gm, p, o = gear({ init_scale = 16 })
    for _, g in ipairs { 0.5, INF, 0.25 } do
      gm:record(function() gm:backward((p * g):sum(), { dy = s:scale_tensor() }) end)
      s:unscale(gm:attached_tensors())
      s:step(o)
      assert.equal(g == INF, s:found_inf(o))
      s:update()
      o:clear_grad()
    end
    eq(p, { 0.25 })
  end)
  it('scaler:step after the automatic gear and after unscale(list), update: a step, or nothing after an overflow', function()
    for _, manual in ipairs { false, true } do
      local s, gm, p, o = gear({ init_scale = 16, growth_interval = 100 })
      local scales = {}
      for _, g in ipairs { 0.5, INF, 0.25, INF, 0.25 } do
        gm:record(function()
          if manual then gm:backward((p * g):sum(), { dy = s:scale_tensor() }) else s:backward(gm, (p * g):sum()) end
        end)
        if manual then
          s:unscale(gm:attached_tensors())
          s:update()
        end
        s:step(o)
        assert.equal(g == INF, s:found_inf(o))
        s:update()
        assert.equal(g == INF, s:found_inf(o))
        o:clear_grad()
        scales[#scales + 1] = s:get_scale()
      end
      assert.same({ 16, 8, 8, 4, 4 }, scales) -- one overflow, one backoff
      eq(p, { 0 })
    end
  end)
  it('after an overflow the next plain step of those tensors leaves them alone', function()
    local s = amp.GradScaler { init_scale = 16 }
    local p, q = param { 1 }, param { 1 }
    local o = sgd(p, q)
    s:scale((p * INF):sum() + q:sum()):backward()
    s:unscale { p, q }
    o:step()
    eq(p, { 1 })
    eq(q, { 1 })
    s:update()
    o:zero_grad();
    (p + q):sum():backward()
    o:step()
    eq(p, { 0 })
  end)
  it('a user-written optimizer sees nil gradients on overflow, and is called only after a clean check', function()
    local p = param { 1 }
    local calls = 0
    local own = {
      param_groups = { { params = { p } } },
      step = function(self)
        for _, t in ipairs(self.param_groups[1].params) do
          if t.grad then
            calls = calls + 1
            amp.no_grad(function() t:sub_(t.grad) end)
          end
        end
      end,
    }
    local s = amp.GradScaler { init_scale = 16 }
    for _, g in ipairs { 0.5, INF, 0.25 } do
      give(s, p, g)
      s:step(own)
      s:update()
      p.grad = nil
    end
    eq(p, { 0.25 })
    assert.equal(2, calls)
    local gm = amp.GradManager():attach { p }
    gm:record(function() s:backward(gm, (p * INF):sum()) end)
    assert.is_nil(p.grad)
    local on -- it runs with autocast off wherever it is stepped
    own.step = function() on = amp.is_autocast_enabled() end
    s = amp.GradScaler()
    give(s, p, 1)
    amp.autocast(function() s:step(own) end)
    assert.is_false(on)
  end)
end)

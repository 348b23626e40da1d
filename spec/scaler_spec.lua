--- GradScaler: the scale's path, the three gears, protocol errors, overflow, state.
local amp = require 'amp'
local F = amp.nn.functional
local H = require 'spec.helper'
local INF = math.huge

local function eq(t, values) H.close(t, values, H.exact) end
local function param(values)
  local t = H.make(values, { #values })
  t.requires_grad = true
  return t
end
local function sgd(...) return amp.optim.SGD({ ... }, { lr = 1 }) end
-- a backward whose gradient in p is g (scaled)
local function give(scaler, p, g) scaler:scale((p * g):sum()):backward() end

describe('the scale', function()
  it('follows the hand-counted path: 4 grows to 8 after two clean updates, an overflow backs off', function()
    local s = amp.GradScaler { init_scale = 4, growth_factor = 2, backoff_factor = 0.25, growth_interval = 2 }
    local p = param { 1 }
    local o = amp.optim.SGD({ p }, { lr = 0 })
    local function iteration(g)
      give(s, p, g)
      s:step(o)
      s:update()
      o:zero_grad()
      return s:get_scale()
    end
    assert.equal(4, iteration(1))
    assert.equal(1, s:state_dict().growth_tracker or s:state_dict()._growth_tracker)
    assert.equal(8, iteration(1))
    assert.equal(2, iteration(INF))
    assert.equal(2, iteration(1))
    assert.equal(4, iteration(1))
    assert.equal(1, iteration(0 / 0))
    assert.equal(1, s.scale_factor)
  end)
  it('starts at 65536 with the documented constants', function()
    local s = amp.GradScaler()
    assert.equal(65536, s:get_scale())
    assert.equal(2, s:get_growth_factor())
    assert.equal(0.5, s:get_backoff_factor())
    assert.equal(2000, s:get_growth_interval())
    assert.is_true(s:is_enabled())
  end)
  it('start 128, growth 2, interval 1, one overflow in four: 128 * 2^3 * 0.5, and the control\'s parameters', function()
    local s = amp.GradScaler { init_scale = 128, growth_interval = 1 }
    local p, q = param { 1, 2 }, param { 1, 2 }
    local o, c = amp.optim.Adam({ p }, { lr = 0.1 }), amp.optim.Adam({ q }, { lr = 0.1 })
    for k = 1, 4 do
      local g = k == 2 and INF or k / 8
      give(s, p, g)
      s:step(o)
      s:update()
      o:zero_grad()
      if k ~= 2 then
        (q * g):sum():backward()
        c:step()
        c:zero_grad()
      end
    end
    assert.equal(128 * 8 * 0.5, s:get_scale())
    H.close(p, q, { rtol = 1e-6, atol = 1e-7 })
  end)
  it('growth_interval 0 makes it static, but it still checks and skips', function()
    local s = amp.GradScaler { init_scale = 16, growth_interval = 0 }
    local p = param { 1 }
    local o = sgd(p)
    for _, g in ipairs { 1, INF, 1 } do
      give(s, p, g)
      s:step(o)
      assert.equal(g == INF, s:found_inf(o))
      s:update()
      o:zero_grad()
      assert.equal(16, s:get_scale())
    end
    eq(p, { -1 })
  end)
  it('min_scale and max_scale are honoured exactly', function()
    local s = amp.GradScaler { init_scale = 8, growth_interval = 1, min_scale = 3, max_scale = 20 }
    local p = param { 1 }
    local o = amp.optim.SGD({ p }, { lr = 0 })
    local path = {}
    for _, g in ipairs { INF, INF, INF, 1, 1, 1, 1 } do
      give(s, p, g)
      s:step(o)
      s:update()
      o:zero_grad()
      path[#path + 1] = s:get_scale()
    end
    assert.same({ 4, 3, 3, 6, 12, 20, 20 }, path)
  end)
  it('never grows past a finite float32', function()
    local s = amp.GradScaler { init_scale = 2 ^ 127, growth_interval = 1 }
    local p = param { 0 }
    local o = amp.optim.SGD({ p }, { lr = 0 })
    give(s, p, 1e-30)
    s:step(o)
    s:update()
    assert.equal(2 ^ 127, s:get_scale())
  end)
  it('hysteresis backs off only at the n-th overflow since the last growth', function()
    local s = amp.GradScaler { init_scale = 64, growth_interval = 2, hysteresis = 2 }
    local p = param { 1 }
    local o = amp.optim.SGD({ p }, { lr = 0 })
    local path = {}
    for _, g in ipairs { INF, INF, INF, 1, 1, INF, INF } do
      give(s, p, g)
      s:step(o)
      s:update()
      o:zero_grad()
      path[#path + 1] = s:get_scale()
    end
    assert.same({ 64, 32, 16, 16, 32, 32, 16 }, path)
  end)
  it('update(new_scale) sets it', function()
    local s = amp.GradScaler { init_scale = 64 }
    s:update(8)
    assert.equal(8, s:get_scale())
    s:update(amp.tensor(32))
    assert.equal(32, s:get_scale())
    H.fails_here(function() s:update(-1) end, '-1')
    H.fails_here(function() s:update(0 / 0) end)
    assert.equal(32, s:get_scale())
  end)
  it('setters validate', function()
    local s = amp.GradScaler()
    s:set_growth_factor(3)
    s:set_backoff_factor(0.25)
    s:set_growth_interval(7)
    assert.equal(3, s:get_growth_factor())
    assert.equal(0.25, s:get_backoff_factor())
    assert.equal(7, s:get_growth_interval())
    H.fails_here(function() s:set_growth_factor(1) end, 'growth_factor', '1')
    H.fails_here(function() s:set_backoff_factor(1) end, 'backoff_factor', '1')
    H.fails_here(function() s:set_growth_interval(-1) end, 'growth_interval', '-1')
    H.fails_here(function() amp.GradScaler { init_scale = 0 } end, 'init_scale', '0')
    H.fails_here(function() amp.GradScaler { init_scal = 4 } end, 'init_scal', 'init_scale')
    H.fails_here(function() amp.GradScaler { growth_interval = 1.5 } end, 'growth_interval', '1.5')
  end)
end)

describe('scale()', function()
  it('multiplies in float32, keeps the structure of nested tables', function()
    local s = amp.GradScaler { init_scale = 4 }
    local x = amp.tensor({ 1, 2 }, { dtype = 'float16' })
    local out = s:scale { x, { a = amp.tensor { 3 }, { amp.tensor(1) } } }
    eq(out[1], { 4, 8 })
    assert.equal('float32', out[1].dtype)
    eq(out[2].a, { 12 })
    eq(out[2][1][1], { 4 })
    H.fails_here(function() s:scale('x') end)
    H.fails_here(function() s:scale({ 1 }) end)
  end)
  it('the scale tensor is a copy', function()
    local s = amp.GradScaler { init_scale = 4 }
    local t = s:scale_tensor()
    assert.equal(4, t:item())
    s:update(8)
    assert.equal(4, t:item())
  end)
end)

describe('unscale_', function()
  it('multiplies contiguous, transposed, strided and several gradients exactly', function()
    local s = amp.GradScaler { init_scale = 4 }
    local a, b = H.sample { 3, 4 }, H.sample { 4, 3 }
    a.requires_grad, b.requires_grad = true, true
    local o = sgd(a, b)
    local base = H.sample { 6, 8 }
    a.grad = base[{ { 1, 6, 2 }, { 1, 8, 2 } }]
    b.grad = H.sample({ 3, 4 }):t()
    local wa, wb = (a.grad * 0.25):clone(), (b.grad * 0.25):clone()
    s:scale(amp.zeros(1))
    s:unscale_(o)
    H.same(a.grad, wa)
    H.same(b.grad, wb)
    assert.is_false(s:found_inf(o))
    assert.is_false(s:found_inf())
  end)
  it('finds a NaN or infinity anywhere, at every size', function()
    for _, n in ipairs { 1, 2, 15, 16, 17, 1000, 70001 } do
      for _, at in ipairs { 1, math.ceil(n / 2), n } do
        for _, bad in ipairs { INF, -INF, 0 / 0 } do
          local s = amp.GradScaler { init_scale = 4 }
          local p = amp.zeros(n, { requires_grad = true })
          local o = sgd(p)
          local g = amp.ones(n)
          g[at] = bad
          p.grad = g
          s:scale(amp.zeros(1))
          s:unscale_(o)
          assert.is_true(s:found_inf(o), n .. ' elements, ' .. at)
          s:step(o)
          s:update()
          assert.equal(0, p:sum():item())
          assert.equal(2, s:get_scale())
        end
      end
    end
  end)
  it('clipping after it equals the float32 control; clipping at max_norm * scale without it too', function()
    for _, way in ipairs { 'unscale', 'scaled' } do
      local s = amp.GradScaler { init_scale = 1024 }
      local p, q = param { 1, 2, 3 }, param { 1, 2, 3 }
      local o, c = amp.optim.SGD({ p }, { lr = 0.1, momentum = 0.9 }), amp.optim.SGD({ q }, { lr = 0.1, momentum = 0.9 })
      for k = 1, 4 do
        local g = amp.tensor { k, -2, 3 / k }
        give(s, p, g)
        if way == 'unscale' then
          s:unscale_(o)
          amp.nn.utils.clip_grad_norm_({ p }, 0.5)
        else
          amp.nn.utils.clip_grad_norm_({ p }, 0.5 * s:get_scale())
        end
        s:step(o)
        s:update()
        o:zero_grad();
        (q * g):sum():backward()
        local norm = amp.nn.utils.clip_grad_norm_({ q }, 0.5)
        H.close(norm, { math.sqrt(k * k + 4 + 9 / (k * k)) })
        c:step()
        c:zero_grad()
        H.close(p, q, { rtol = 1e-5, atol = 1e-6 })
      end
    end
  end)
  it('clipping on scaled gradients gives another result: order matters', function()
    local s = amp.GradScaler { init_scale = 1024 }
    local p = param { 1 }
    local o = sgd(p)
    give(s, p, 0.25)
    amp.nn.utils.clip_grad_norm_({ p }, 0.5)
    s:step(o)
    assert.is_true(math.abs(p:item() - 0.75) > 0.2)
  end)
  it('p.grad reads scaled before it and unscaled after, as one tensor', function()
    local s = amp.GradScaler { init_scale = 16 }
    local p = param { 1, 2 }
    local o = sgd(p)
    give(s, p, 3)
    eq(p.grad, { 48, 48 })
    local g = p.grad
    s:unscale_(o)
    eq(p.grad, { 3, 3 })
    eq(g, { 3, 3 })
  end)
  it('a gradient changed after its check is checked again by step', function()
    local s = amp.GradScaler { init_scale = 16 }
    local p = param { 1, 2 }
    local o = sgd(p)
    give(s, p, 3)
    s:unscale_(o)
    p.grad[1] = INF
    s:step(o)
    assert.is_true(s:found_inf(o))
    eq(p, { 1, 2 })
    s:update()
    assert.equal(8, s:get_scale())
    o:zero_grad()
    give(s, p, 3)
    s:unscale_(o)
    p.grad = amp.tensor { 0.5, 0.25 }
    s:step(o)
    eq(p, { 0.5, 1.75 })
  end)
  it('a gradient that arrives under another factor is added to the unscaled one', function()
    local s = amp.GradScaler { init_scale = 16 }
    local p = amp.ones(1, 1, { requires_grad = true })
    local o = sgd(p)
    local function backward(v)
      s:scale(amp.autocast({ dtype = 'bfloat16' }, function() return amp.full({ 1, 1 }, v):matmul(p) end):sum()):backward()
    end
    backward(0.5)
    s:unscale_(o)
    backward(0.25)
    eq(p.grad, { 0.5 + 16 * 0.25 })
    s:update()
    o:zero_grad()
    backward(0.5)
    backward(0.25)
    s:step(o)
    s:update()
    eq(p, { 0.25 })
  end)
  it('own gradients stay as the user left them (pending ones from 16-bit too)', function()
    local s = amp.GradScaler { init_scale = 16 }
    local p = amp.ones(2, 2, { requires_grad = true })
    local o = sgd(p)
    local loss = amp.autocast({ dtype = 'float16' }, function() return amp.ones(2, 2):matmul(p):sum() end)
    s:scale(loss):backward()
    s:unscale_(o)
    p.grad:mul_(2)
    s:step(o)
    s:update()
    eq(p, { -3, -3, -3, -3 })
  end)
end)

describe('overflow', function()
  local function setups()
    return {
      sgd = function(p) return amp.optim.SGD({ p }, { lr = 0.1, momentum = 0.9 }) end,
      adam = function(p) return amp.optim.Adam({ p }, { lr = 0.1 }) end,
      adamw = function(p) return amp.optim.AdamW({ p }, { lr = 0.1, weight_decay = 0.1 }) end,
    }
  end
  it('changes no parameter, state or step counter; update backs off once', function()
    for name, make in pairs(setups()) do
      local s = amp.GradScaler { init_scale = 16 }
      local p = param { 1, 2 }
      local o = make(p)
      give(s, p, 1)
      s:step(o)
      s:update()
      o:zero_grad()
      local function freeze(v)
        if type(v) == 'cdata' then return v:tolist() end
        if type(v) ~= 'table' then return v end
        local t = {}
        for k, x in pairs(v) do t[k] = freeze(x) end
        return t
      end
      local before, value = freeze(o:state_dict()), p:tolist()
      give(s, p, amp.tensor { 1, INF })
      s:step(o)
      assert.is_true(s:found_inf(o), name)
      s:update()
      assert.same(before, freeze(o:state_dict()), name)
      assert.same(value, p:tolist(), name)
      assert.equal(8, s:get_scale())
      o:zero_grad()
      give(s, p, 1)
      s:step(o)
      assert.is_false(s:found_inf(o))
      s:update()
      assert.are_not.same(value, p:tolist())
    end
  end)
  it('of one optimizer leaves the others stepping', function()
    local s = amp.GradScaler { init_scale = 16 }
    local p, q = param { 1 }, param { 1 }
    local o1, o2 = sgd(p), sgd(q)
    s:scale((p * INF):sum() + (q * 0.5):sum()):backward()
    s:step(o1):step(o2)
    s:update()
    assert.is_true(s:found_inf(o1))
    assert.is_false(s:found_inf(o2))
    eq(p, { 1 })
    eq(q, { 0.5 })
    assert.equal(8, s:get_scale())
  end)
  it('is reported per step: scripted pattern', function()
    local s = amp.GradScaler { init_scale = 16 }
    local p = param { 0 }
    local o = sgd(p)
    local pattern, got = { 1, INF, 1, 1, INF }, {}
    local lr_steps = 0
    for i, g in ipairs(pattern) do
      give(s, p, g)
      assert.is_true(s:step(o) == s)
      s:update()
      got[i] = s:found_inf(o)
      if not got[i] then lr_steps = lr_steps + 1 end
      o:zero_grad()
    end
    assert.same({ false, true, false, false, true }, got)
    assert.equal(3, lr_steps)
  end)
  it('max_skipped is an error after n skips in a row', function()
    local s = amp.GradScaler { init_scale = 2 ^ 40, max_skipped = 3 }
    local p = param { 0 }
    local o = sgd(p)
    local ok, err
    for _ = 1, 3 do
      ok, err = pcall(function()
        give(s, p, INF)
        s:step(o)
        s:update()
        o:zero_grad()
      end)
      if not ok then break end
    end
    assert.is_false(ok)
    assert.is_true(tostring(err):find('3', 1, true) ~= nil, tostring(err))
  end)
  it('for ever gives one warning after 20 in a row', function()
    local s = amp.GradScaler()
    local p = param { 0 }
    local o = amp.optim.SGD({ p }, { lr = 1, name = 'first' })
    local list = H.warnings(function()
      for _ = 1, 45 do
        give(s, p, 0 / 0)
        s:step(o)
        s:update()
        s:get_scale()
        o:zero_grad()
      end
    end)
    assert.equal(1, #list, table.concat(list, ' | '))
    assert.is_true(list[1]:find('20', 1, true) ~= nil, list[1])
  end)
end)

describe('disabled', function()
  it('is the plain loop bit for bit, and reads 1.0', function()
    local p, q = param { 1, 2, 3 }, param { 1, 2, 3 }
    local a, b = amp.optim.Adam({ p }, { lr = 0.1 }), amp.optim.Adam({ q }, { lr = 0.1 })
    local s = amp.GradScaler { enabled = false }
    for k = 1, 3 do
      s:scale(amp.autocast({ enabled = false }, function() return (p * p * k):sum() end)):backward()
      s:unscale_(a)
      s:step(a)
      s:update()
      a:zero_grad();
      (q * q * k):sum():backward()
      b:step()
      b:zero_grad()
    end
    H.same(p, q)
    assert.equal(1, s:get_scale())
    assert.is_false(s:is_enabled())
    assert.is_false(s:found_inf(a))
    local x = amp.ones(1)
    assert.is_true(s:scale(x) == x)
  end)
end)

describe('the protocol', function()
  local s, p, o
  before_each(function()
    s = amp.GradScaler { init_scale = 16 }
    p = param { 1 }
    o = sgd(p)
  end)
  it('unscale_ twice, or after step', function()
    give(s, p, 1)
    s:unscale_(o)
    H.fails_here(function() s:unscale_(o) end, 'unscale_', 'update')
    s:step(o)
    H.fails_here(function() s:unscale_(o) end, 'update')
    s:update()
    o:zero_grad()
    give(s, p, 1)
    s:unscale_(o)
    s:step(o)
    s:update()
  end)
  it('step twice', function()
    give(s, p, 1)
    s:step(o)
    H.fails_here(function() s:step(o) end, 'step', 'update')
  end)
  it('update with nothing checked', function()
    s:scale(amp.zeros(1))
    H.fails_here(function() s:update() end, 'update')
    H.fails_here(function() amp.GradScaler():update() end, 'update')
  end)
  it('step when every gradient is nil names the optimizer; allow_empty makes it a no-op', function()
    local named = amp.optim.SGD({ param { 1 } }, { lr = 1, name = 'frozen stage' })
    s:scale(amp.zeros(1))
    H.fails_here(function() s:step(named) end, 'frozen stage')
    H.fails_here(function() s:step(o) end, 'SGD', 'scaler_spec')
    s:step(o, { allow_empty = true })
    eq(p, { 1 })
  end)
  it('float16 gradients of float16 parameters: keep parameters in float32', function()
    local h = amp.ones(2, { dtype = 'float16', requires_grad = true })
    local oh = sgd(h)
    s:scale((h * 2):sum()):backward()
    H.fails_here(function() s:unscale_(oh) end, 'float16', 'float32')
    local net = amp.nn.Linear(2, 1):half()
    local on = amp.optim.SGD(net:parameters(), { lr = 1 })
    s:scale(net(amp.ones(1, 2, { dtype = 'float16' })):sum()):backward()
    H.fails_here(function() s:step(on) end, 'float16', 'float32')
  end)
  it('a closure', function()
    give(s, p, 1)
    H.fails_here(function() s:step(o, function() end) end, 'closure')
  end)
  it('unscale_, then update discards a batch', function()
    give(s, p, INF)
    s:unscale_(o)
    s:update()
    assert.equal(8, s:get_scale())
    o:zero_grad()
    give(s, p, 1)
    s:unscale_(o)
    s:step(o)
    s:update()
    eq(p, { 0 })
  end)
  it('accumulating: unscale_ at the end of the effective batch; the faulty loop errs and recovers', function()
    for _ = 1, 3 do give(s, p, 0.125) end
    s:unscale_(o)
    eq(p.grad, { 0.375 })
    s:step(o)
    s:update()
    o:zero_grad()
    give(s, p, 1)
    s:unscale_(o)
    give(s, p, 1)
    H.fails_here(function() s:unscale_(o) end, 'unscale_')
    s:update()
    o:zero_grad()
    give(s, p, 0.5)
    s:step(o)
    s:update()
    eq(p, { 0.125 })
  end)
  it('two micro-batches a step: the scale moves at step ends only', function()
    local t = amp.GradScaler { init_scale = 2, growth_interval = 1 }
    local path = {}
    for k = 1, 4 do
      give(t, p, 0.25)
      path[#path + 1] = t:get_scale()
      if k % 2 == 0 then
        eq(p.grad, { 0.5 * t:get_scale() })
        t:step(o)
        t:update()
        o:zero_grad()
      end
    end
    assert.same({ 2, 2, 4, 4 }, path)
    assert.equal(8, t:get_scale())
    eq(p, { 0 })
  end)
  it('names what is no optimizer', function()
    H.fails_here(function() s:step(5) end, 'optimizer')
    H.fails_here(function() s:unscale_(nil) end, 'optimizer')
  end)
end)

describe('state', function()
  it('is plain numbers, complete: resumed at every k the scale path is the same', function()
    local grads = { 1, 1, INF, 1, 1, 1, 1, INF, 1, 1 }
    local function run(from, state)
      local s = amp.GradScaler { init_scale = 16, growth_interval = 3, hysteresis = 2 }
      if state then s:load_state_dict(state) end
      local p = param { 0 }
      local o = amp.optim.SGD({ p }, { lr = 0 })
      local path, states = {}, {}
      for k = from, #grads do
        give(s, p, grads[k])
        s:step(o)
        s:update()
        o:zero_grad()
        path[k] = s:get_scale()
        states[k] = s:state_dict()
      end
      return path, states
    end
    local path, states = run(1)
    for k = 1, #grads - 1 do
      for key, v in pairs(states[k]) do
        assert.is_true(type(v) == 'number' or type(v) == 'boolean', key)
      end
      local again = run(k + 1, states[k])
      for i = k + 1, #grads do assert.equal(path[i], again[i], ('resumed after %d, step %d'):format(k, i)) end
    end
  end)
  it('saves and loads before and after first use, with every constant', function()
    for _, used in ipairs { false, true } do
      local s = amp.GradScaler { init_scale = 3, growth_factor = 4, backoff_factor = 0.1, growth_interval = 2 }
      if used then s:scale(amp.zeros(1)) end
      local t = amp.GradScaler()
      if used then t:scale(amp.zeros(1)) end
      t:load_state_dict(s:state_dict())
      assert.equal(3, t:get_scale())
      assert.equal(4, t:get_growth_factor())
      assert.equal(0.1, t:get_backoff_factor())
      assert.equal(2, t:get_growth_interval())
      assert.same(s:state_dict(), t:state_dict())
    end
  end)
  it('everything works straight after loading', function()
    local s = amp.GradScaler { init_scale = 8 }
    local t = amp.GradScaler()
    t:load_state_dict(s:state_dict())
    local p = param { 1 }
    local o = sgd(p)
    give(t, p, 0.5)
    t:unscale_(o)
    t:step(o)
    t:update()
    eq(p, { 0.5 })
  end)
  it('names what is missing or wrong in a state', function()
    local s = amp.GradScaler()
    H.fails_here(function() s:load_state_dict {} end)
    H.fails_here(function() s:load_state_dict(5) end)
    local d = s:state_dict()
    d.scale = -1
    H.fails_here(function() s:load_state_dict(d) end, '-1')
    assert.equal(65536, s:get_scale())
  end)
end)

describe('the automatic gear', function()
  it('backward, step, clear_grad', function()
    local s = amp.GradScaler { init_scale = 16, growth_interval = 2 }
    local gm = amp.GradManager()
    local p = param { 1 }
    gm:attach { p }
    local o = sgd(p)
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
    local s = amp.GradScaler { init_scale = 16 }
    local gm = amp.GradManager()
    local p = param { 1, 1 }
    gm:attach { p }
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
    local s = amp.GradScaler { init_scale = 16 }
    local gm = amp.GradManager()
    local p = param { 1 }
    gm:attach(p)
    local o = sgd(p)
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

describe('with autocast', function()
  it('in float16 trains as float32 does, step by step', function()
    for _, kind in ipairs { 'SGD', 'Adam' } do
      local function train(mixed)
        amp.manual_seed(4)
        local net = amp.nn.Sequential(amp.nn.Linear(6, 16), amp.nn.ReLU(), amp.nn.Linear(16, 2))
        local o = amp.optim[kind](net:parameters(), { lr = 0.05 })
        local s = amp.GradScaler { enabled = mixed, init_scale = 1024 }
        local x, y = H.sample { 10, 6 }, H.sample { 10, 2 }
        local losses = {}
        for k = 1, 15 do
          local loss = amp.autocast({ dtype = 'float16', enabled = mixed }, function() return F.mse_loss(net(x), y) end)
          s:scale(loss):backward()
          s:step(o)
          s:update()
          o:zero_grad()
          losses[k] = loss:item()
        end
        return losses, net
      end
      local a, net = train(false)
      local b, mixed = train(true)
      for k = 1, #a do assert.is_true(math.abs(a[k] - b[k]) < 0.02 * a[1] + 1e-3, ('%s step %d: %g against %g'):format(kind, k, a[k], b[k])) end
      assert.is_true(b[#b] < b[1] * 0.8)
      for i, p in ipairs(mixed:parameters()) do
        assert.equal('float32', p.dtype)
        -- Adam's step hardly depends on a gradient's size, so rounding decides where it is near zero
        if kind == 'SGD' then H.close(p, net:parameters()[i], { rtol = 0.05, atol = 0.02 }) end
      end
    end
  end)
  it('a batch norm step that overflowed leaves finite running statistics or says so', function()
    local bn = amp.nn.BatchNorm1d(2)
    bn:train()
    bn(amp.tensor { { 6e4, 1 }, { -6e4, 2 }, { INF, 3 } })
    bn(H.sample { 4, 2 })
    local v = H.values(bn.running_mean)
    assert.is_true(v[1] == v[1] and math.abs(v[1]) < INF)
    assert.is_true(v[2] == v[2])
  end)
  it('no step reads anything back from the device', function()
    local p = param { 1, 2 }
    local o = amp.optim.AdamW({ p }, { lr = 0.1 })
    local s = amp.GradScaler()
    local before = amp.counters().host_waits
    for _ = 1, 3 do
      give(s, p, 1)
      s:unscale_(o)
      amp.nn.utils.clip_grad_norm_({ p }, 1)
      s:step(o)
      s:update()
      o:zero_grad()
    end
    assert.equal(before, amp.counters().host_waits)
    s:get_scale()
    assert.is_true(amp.counters().host_waits > before)
  end)
end)

--- GradScaler: the scale's path, scale(), unscale_, disabled, state.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local INF = math.huge

local scaling = require 'spec.precision.scaling'
local eq, param, sgd, give = scaling.eq, scaling.param, scaling.sgd, scaling.give

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
  it('follows a model written here, for constants of every kind and a long pattern', function()
    local function model(o, pattern)
      local scale, tracker, left, path = o.init_scale, 0, o.hysteresis or 1, {}
      for i, bad in ipairs(pattern) do
        if o.growth_interval ~= 0 then
          if bad then
            tracker = 0
            left = math.max(left - 1, 0)
            if left == 0 then scale = math.max(scale * (o.backoff_factor or 0.5), o.min_scale or 0) end
          else
            tracker = tracker + 1
            if tracker >= (o.growth_interval or 2000) then
              tracker, left = 0, o.hysteresis or 1
              scale = math.min(scale * (o.growth_factor or 2), o.max_scale or math.huge)
            end
          end
        end
        path[i] = scale
      end
      return path
    end
    local pattern = {}
    for i = 1, 60 do pattern[i] = (i * i * 7 + i) % 11 < 3 or (i > 20 and i < 27) end
    for _, o in ipairs {
      { init_scale = 4, growth_interval = 1 }, { init_scale = 1024, growth_interval = 3, backoff_factor = 0.25, growth_factor = 4 },
      { init_scale = 64, growth_interval = 2, hysteresis = 2 }, { init_scale = 64, growth_interval = 1, hysteresis = 3, min_scale = 24, max_scale = 96 },
      { init_scale = 2 ^ 20, growth_interval = 5, hysteresis = 4, min_scale = 2 ^ 17 }, { init_scale = 8, growth_interval = 0, hysteresis = 2 },
      { init_scale = 1, growth_interval = 2, growth_factor = 1.5, backoff_factor = 0.75, max_scale = 3 },
    } do
      local s = amp.GradScaler(o)
      local p = param { 1 }
      local opt = amp.optim.SGD({ p }, { lr = 0 })
      local want = model(o, pattern)
      for i, bad in ipairs(pattern) do
        p.grad = amp.tensor { bad and INF or 1 }
        s:step(opt)
        s:update()
        assert.near(want[i], s:get_scale(), want[i] * 1e-6, ('interval %d, step %d'):format(o.growth_interval, i))
      end
    end
  end)
  it('backs off only as far as 1/scale is finite', function()
    local s = amp.GradScaler { init_scale = 2 ^ -120 }
    local p = param { 0 }
    local o = sgd(p)
    local list = H.warnings(function()
      for _ = 1, 40 do
        p.grad = amp.tensor { INF }
        s:step(o)
        s:update()
      end
    end)
    assert.equal(1, #list)
    assert.is_true(s:get_scale() > 0)
    p.grad = amp.tensor { s:get_scale() }
    s:step(o)
    s:update()
    eq(p, { -1 })
    H.fails_here(function() amp.GradScaler { init_scale = 1e-42 } end, 'scale', '1e-42')
  end)
  it('update(new_scale) sets it', function()
    local s = amp.GradScaler { init_scale = 64 }
    s:update(8)
    assert.equal(8, s:get_scale())
    s:update(amp.tensor(32))
    assert.equal(32, s:get_scale())
    H.fails_here(function() s:update(-1) end, 'update', 'new_scale', '-1')
    H.fails_here(function() s:update(0 / 0) end, 'update', 'new_scale')
    H.fails_here(function() s:update(INF) end, 'update', 'new_scale', 'inf')
    H.fails_here(function() s:update(2 ^ 130) end, 'update', 'new_scale')
    H.fails_here(function() s:update('x') end, 'update', 'new_scale', 'x')
    H.fails_here(function() s:update(amp.ones(2)) end, 'update', 'new_scale', '2')
    assert.equal(32, s:get_scale())
    local p = param { 1 }
    local o = sgd(p)
    p.grad = amp.tensor { INF }
    s:step(o)
    s:update(16) -- instead of backing off
    assert.equal(16, s:get_scale())
    assert.is_true(s:found_inf(o))
    p.grad = amp.tensor { 16 }
    s:step(o):update()
    eq(p, { 0 })
  end)
  it('fields read and write like the methods', function()
    local s = amp.GradScaler { init_scale = 8, min_scale = 2, max_scale = 64, hysteresis = 2, max_skipped = 9, growth_interval = 5 }
    for name, v in pairs { min_scale = 2, max_scale = 64, hysteresis = 2, max_skipped = 9, growth_interval = 5, growth_factor = 2, backoff_factor = 0.5 } do
      assert.equal(v, s[name], name)
      assert.equal(v, s['get_' .. name](s), name)
    end
    s.scale_factor, s.growth_interval, s.max_skipped = 4, 7, nil
    assert.equal(4, s:get_scale())
    assert.equal(7, s:get_growth_interval())
    assert.is_nil(s:get_max_skipped())
    assert.is_true(s:set_hysteresis(3) == s)
    H.fails_here(function() s.hysteresis = 0 end, 'hysteresis', '0')
    H.fails_here(function() s.min_scale = 128 end, 'min_scale', '128', '64')
    H.fails_here(function() return s.scale_facter end, 'scale_facter', 'scale_factor')
    H.fails_here(function() s:set_max_scale(0 / 0) end, 'max_scale')
    assert.equal(2, s.min_scale)
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
  it('keeps metatables and keys, scales a tensor used twice twice, leaves what it was given', function()
    local s = amp.GradScaler { init_scale = 4 }
    local x = amp.tensor { 1 }
    local mt = { __index = { name = 'out' } }
    local given = setmetatable({ logits = x, aux = { x } }, mt)
    local out = s:scale(given)
    assert.equal('out', out.name)
    eq(out.logits, { 4 })
    eq(out.aux[1], { 4 })
    assert.is_true(given.logits == x)
    eq(x, { 1 })
    assert.same({}, s:scale {})
    H.fails_here(function() s:scale { a = { b = 'x' } } end, 'a.b', 'x')
  end)
  it('a 16-bit loss does not overflow, float64 stays', function()
    local s = amp.GradScaler()
    local x = amp.tensor({ 8 }, { dtype = 'float16', requires_grad = true })
    local y = s:scale(x)
    eq(y, { 8 * 65536 })
    assert.equal('float64', s:scale(amp.tensor({ 1 }, { dtype = 'float64' })).dtype)
  end)
  it('in a region is the same', function()
    local s = amp.GradScaler { init_scale = 3 }
    local y = amp.autocast({ dtype = 'bfloat16' }, function() return s:scale(amp.tensor(1.0009765625)) end)
    assert.equal('float32', y.dtype)
    eq(y, { 3 * 1.0009765625 })
  end)
  it('scale_tensor on a device that is not there says what was looked for', function()
    local s = amp.GradScaler { init_scale = 4 }
    assert.equal('cpu', s:scale_tensor('cpu').device)
    H.fails_here(function() s:scale_tensor 'cudda' end, 'cudda')
    if not amp.cuda.is_available() then H.fails_here(function() s:scale_tensor 'cuda' end, 'cuda') end
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
  it('of float64 and bfloat16 parameters, in every layout: exact, and finds what is not finite', function()
    for _, d in ipairs { 'float64', 'float32', 'bfloat16' } do
      for _, layout in ipairs { 'flat', 'transposed', 'strided' } do
        for _, bad in ipairs { false, INF, -INF, 0 / 0 } do
          local s = amp.GradScaler { init_scale = 8 }
          local shape = layout == 'flat' and { 333 } or { 9, 37 }
          local p = amp.zeros(shape, { dtype = d, requires_grad = true })
          local o = sgd(p)
          local g = layout == 'transposed' and H.sample({ 37, 9 }, d):t() or layout == 'strided' and H.sample({ 18, 74 }, d)[{ { 1, 18, 2 }, { 1, 74, 2 } }]
            or H.sample(shape, d)
          if bad then
            if layout == 'flat' then g[333] = bad else g[{ 9, 37 }] = bad end
          end
          local want = (g * 0.125):clone()
          p.grad = g
          s:unscale_(o)
          assert.equal(bad ~= false, s:found_inf(o), d .. ' ' .. layout)
          if not bad then H.same(p.grad, want, d .. ' ' .. layout) end
          s:step(o)
          if not bad then H.same(p:detach(), -want, d .. ' ' .. layout) else assert.equal(0, p:abs():sum():item()) end
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
  it('every gear and method works and does nothing', function()
    local s = amp.GradScaler { enabled = false }
    local p = param { 1 }
    local o = sgd(p)
    local gm = amp.GradManager():attach { p }
    gm:record(function() s:backward(gm, (p * 0.5):sum()) end)
    o:step():clear_grad()
    eq(p, { 0.5 })
    gm:record(function() gm:backward((p * 0.25):sum(), { dy = s:scale_tensor() }) end)
    s:unscale(gm:attached_tensors()):update()
    o:step():clear_grad()
    eq(p, { 0.25 })
    s:update():update(5)
    s:unscale_(o)
    s:unscale_(o)
    s:step(o):step(o, { allow_empty = true })
    assert.same({}, s:state_dict())
    s:load_state_dict {}
    s:load_state_dict(amp.GradScaler():state_dict())
    assert.equal(1, s:get_scale())
    local list = { amp.ones(1), 'x' }
    assert.is_true(s:scale(list) == list)
    local own = { param_groups = { { params = { p } } }, step = function(self) self.called = true end }
    s:step(own)
    assert.is_true(own.called)
    H.fails_here(function() s:step(5) end, 'optimizer')
    H.fails_here(function() amp.GradScaler():load_state_dict(s:state_dict()) end, 'disabled')
  end)
end)

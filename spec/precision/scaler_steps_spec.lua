--- GradScaler: protocol and its errors, overflow, whole steps with autocast.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local INF = math.huge

local scaling = require 'spec.precision.scaling'
local eq, param, sgd, give = scaling.eq, scaling.param, scaling.sgd, scaling.give

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
  it('unscaled, clipped and stepped: nothing changes, the next step is the control\'s', function()
    for _, clip in ipairs { 'norm', 'value' } do
      local s = amp.GradScaler { init_scale = 1024 }
      local p, q = param { 1, 2, 3 }, param { 1, 2, 3 }
      local o, c = amp.optim.SGD({ p }, { lr = 0.1, momentum = 0.9 }), amp.optim.SGD({ q }, { lr = 0.1, momentum = 0.9 })
      local function clipped(t)
        if clip == 'norm' then amp.nn.utils.clip_grad_norm_({ t }, 0.5) else amp.nn.utils.clip_grad_value_({ t }, 0.5) end
      end
      for k = 1, 5 do
        local bad = k % 2 == 0
        local g = amp.tensor { k, bad and (k == 2 and INF or 0 / 0) or -2, 3 / k }
        give(s, p, g)
        s:unscale_(o)
        clipped(p)
        s:step(o)
        assert.equal(bad, s:found_inf(o))
        s:update()
        o:zero_grad()
        if not bad then
          (q * g):sum():backward()
          clipped(q)
          c:step()
          c:zero_grad()
        end
        H.close(p, q, { rtol = 1e-5, atol = 1e-6 }, clip .. ' step ' .. k)
      end
      assert.equal(256, s:get_scale())
    end
  end)
  it('in one of several accumulated batches skips the whole step', function()
    local s = amp.GradScaler { init_scale = 16 }
    local p = param { 1 }
    local o = sgd(p)
    for k = 1, 3 do give(s, p, k == 1 and INF or 1) end
    s:step(o)
    s:update()
    eq(p, { 1 })
    assert.equal(8, s:get_scale())
  end)
  it('of a parameter of any group skips all groups', function()
    local s = amp.GradScaler { init_scale = 16 }
    local p, q = param { 1 }, param { 1 }
    local o = amp.optim.SGD({ { params = { p } }, { params = { q }, lr = 0.5 } }, { lr = 1 })
    p.grad, q.grad = amp.tensor { 16 }, amp.tensor { -INF }
    s:step(o)
    s:update()
    eq(p, { 1 })
    eq(q, { 1 })
  end)
  it('of float16 gradients, and of float32 and float16 ones in one step', function()
    for _, bad in ipairs { 1, 2, 0 } do
      local s = amp.GradScaler { init_scale = 16 }
      local a, b = amp.ones(2, 2, { requires_grad = true }), param { 1 }
      local o = sgd(a, b)
      local x = amp.ones(1, 2) * (bad == 1 and 6e4 or 1)
      local loss = amp.autocast({ dtype = 'float16' }, function() return amp.linear(x, a):float():mean() end)
      s:scale(loss + (b * (bad == 2 and INF or 0.5)):sum()):backward()
      s:step(o)
      s:update()
      assert.equal(bad ~= 0, s:found_inf(o))
      if bad == 0 then
        eq(a, { 0.5, 0.5, 0.5, 0.5 })
        eq(b, { 0.5 })
      else
        eq(a, { 1, 1, 1, 1 })
        eq(b, { 1 })
      end
    end
  end)
  it('max_skipped counts skips in a row, names the count, and the scaler works on', function()
    local s = amp.GradScaler { init_scale = 16, max_skipped = 3, min_scale = 4 }
    local p = param { 1 }
    local o = amp.optim.SGD({ p }, { lr = 1, name = 'critic' })
    local function step(g)
      p.grad = amp.tensor { g }
      s:step(o)
      s:update()
    end
    step(INF) step(INF) step(0) step(INF) step(INF)
    local e = H.fails(function() step(0 / 0) end, '3 steps', 'max_skipped', 'scaler_steps_spec')
    assert.is_true(tostring(e):find('detect_anomaly', 1, true) ~= nil)
    assert.equal(4, s:get_scale())
    step(4)
    eq(p, { 0 })
    assert.same({ 0, 5 }, { s:get_skipped() })
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
    assert.is_true(list[1]:find('first', 1, true) ~= nil or list[1]:find('detect_anomaly', 1, true) ~= nil, list[1])
  end)
  it('is warned of by each scaler that meets it', function()
    for _ = 1, 2 do
      local s = amp.GradScaler { min_scale = 1 }
      local p = param { 0 }
      local o = sgd(p)
      local list = H.warnings(function()
        for k = 1, 25 do
          p.grad = amp.tensor { INF }
          s:step(o)
          s:update()
          if k == 19 then assert.is_true(s:found_inf(o)) end
        end
      end)
      assert.equal(1, #list)
    end
  end)
  it('every growth past the limit is an ordinary single skip', function()
    local s = amp.GradScaler { init_scale = 2 ^ 14, growth_interval = 5 }
    local p = amp.ones(1, 1, { requires_grad = true })
    local o = amp.optim.SGD({ p }, { lr = 0 })
    local skips = {}
    local list = H.warnings(function()
      for k = 1, 24 do
        local loss = amp.autocast({ dtype = 'float16' }, function() return amp.linear(amp.ones(1, 1), p):sum() end)
        s:scale(loss):backward()
        s:step(o)
        s:update()
        if s:found_inf(o) then skips[#skips + 1] = k end
        o:zero_grad()
      end
    end)
    assert.same({}, list)
    assert.is_true(#skips >= 2, #skips)
    for i = 2, #skips do assert.equal(6, skips[i] - skips[i - 1]) end -- 5 clean steps, then one too far
  end)
  it('verbose tells each change and each skip in one line', function()
    local lines = {}
    local before = rawget(amp, 'write_log')
    amp.write_log = function(line) lines[#lines + 1] = line end
    local ok, e = pcall(function()
      local s = amp.GradScaler { init_scale = 16, growth_interval = 2, verbose = true }
      local p = param { 0 }
      local o = amp.optim.SGD({ p }, { lr = 0 })
      for _, g in ipairs { 1, 1, 1, INF } do
        p.grad = amp.tensor { g }
        s:step(o)
        s:update()
      end
    end)
    amp.write_log = before
    if not ok then error(e, 0) end
    assert.equal(2, #lines)
    assert.is_true(lines[1]:find('16 -> 32', 1, true) ~= nil, lines[1])
    assert.is_true(lines[2]:find('32 -> 16', 1, true) ~= nil and lines[2]:find('skip', 1, true) ~= nil, lines[2])
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
  it('an empty step found nothing, whatever was found before', function()
    local gm = amp.GradManager():attach(p)
    gm:record(function() s:backward(gm, (p * INF):sum()) end)
    o:step():clear_grad()
    assert.is_true(s:found_inf(o)) -- asked of the tensors' check
    s:step(o, { allow_empty = true })
    assert.is_false(s:found_inf(o))
    give(s, p, 1)
    s:update()
    assert.is_false(s:found_inf(o))
  end)
  it('step when every gradient is nil names the optimizer; allow_empty makes it a no-op', function()
    local named = amp.optim.SGD({ param { 1 } }, { lr = 1, name = 'frozen stage' })
    s:scale(amp.zeros(1))
    H.fails_here(function() s:step(named) end, 'frozen stage')
    H.fails_here(function() s:step(o) end, 'SGD', 'scaler_steps_spec')
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
  it('two optimizers of one parameter: unscaled once, stepped by both', function()
    local o2 = sgd(p)
    give(s, p, 0.5)
    s:unscale_(o)
    s:unscale_(o2)
    eq(p.grad, { 0.5 })
    s:step(o):step(o2)
    eq(p, { 0 })
    s:update()
    o:zero_grad()
    give(s, p, 0.5)
    s:step(o):step(o2)
    eq(p, { -1 })
    s:update()
    o:zero_grad()
    give(s, p, INF)
    s:step(o):step(o2)
    eq(p, { -1 })
    assert.is_true(s:found_inf(o) and s:found_inf(o2))
    s:update()
    assert.equal(8, s:get_scale())
  end)
  it('a second optimizer whose gradients come later, under one update', function()
    local q = param { 1 }
    local o2 = sgd(q)
    give(s, p, 0.5)
    s:step(o)
    o:zero_grad()
    s:scale((q * 0.25):sum()):backward()
    s:unscale_(o2)
    s:step(o2)
    s:update()
    eq(p, { 0.5 })
    eq(q, { 0.75 })
    assert.equal(1, s:state_dict().growth_tracker)
  end)
  it('an optimizer left out of one iteration steps in the next', function()
    local q = param { 1 }
    local o2 = sgd(q)
    for k = 1, 4 do
      give(s, p, 0.125)
      s:step(o)
      if k % 2 == 0 then
        s:scale((q * 0.25):sum()):backward()
        s:step(o2)
        o2:zero_grad()
      end
      s:update()
      o:zero_grad()
    end
    eq(p, { 0.5 })
    eq(q, { 0.5 })
  end)
  it('an error in a user-written step is the same error, and the iteration can go on', function()
    local e, fail = {}, true
    local own = { param_groups = { { params = { p } } }, step = function() if fail then error(e) end amp.no_grad(function() p:sub_(p.grad) end) end }
    give(s, p, 0.5)
    local ok, err = pcall(s.step, s, own)
    assert.is_false(ok)
    assert.is_true(err == e)
    fail = false
    s:step(own)
    s:update()
    eq(p, { 0.5 })
  end)
  it('a user-written step runs with autocast off, whatever region the call stands in', function()
    local seen
    local own = { param_groups = { { params = { p } } }, step = function()
      seen = { amp.is_autocast_enabled(), amp.linear(amp.ones(1, 1), amp.ones(1, 1)).dtype }
    end }
    amp.autocast({ dtype = 'bfloat16' }, function()
      give(s, p, 1)
      s:step(own)
      s:update()
      assert.is_true(amp.is_autocast_enabled())
    end)
    assert.same({ false, 'float32' }, seen)
  end)
  it('a whole step may stand in a region', function()
    local w, c = H.sample { 3, 3 }, H.sample { 3, 3 }
    w.requires_grad, c.requires_grad = true, true
    local x = H.sample { 2, 3 }
    local function loop(t, opt, inside)
      local scaler = amp.GradScaler { init_scale = 1024 }
      local function forward() return amp.linear(x, t):float():square():mean() end
      local function rest(loss)
        scaler:scale(loss):backward()
        scaler:unscale_(opt)
        amp.nn.utils.clip_grad_norm_({ t }, 0.1)
        scaler:step(opt):update()
        opt:zero_grad()
      end
      for _ = 1, 4 do
        if inside then amp.autocast({ dtype = 'bfloat16' }, function() rest(forward()) end)
        else rest(amp.autocast({ dtype = 'bfloat16' }, forward)) end
      end
    end
    loop(w, amp.optim.AdamW({ w }, { lr = 0.1 }), true)
    loop(c, amp.optim.AdamW({ c }, { lr = 0.1 }), false)
    H.same(w, c)
  end)
  it('an optimizer that declares support gets grad_scale and found_inf and is always called', function()
    local calls = {}
    local own = { step_supports_amp_scaling = true, param_groups = { { params = { p } } }, step = function(self)
      calls[#calls + 1] = { self.found_inf:item(), self.grad_scale and self.grad_scale:item() or false, p.grad:item() }
    end }
    for _, g in ipairs { 0.5, INF } do
      give(s, p, g)
      s:step(own)
      s:update()
      p.grad = nil
    end
    give(s, p, 0.5)
    s:unscale_(own)
    s:step(own)
    s:update()
    assert.same({ { 0, 16, 8 }, { 1, 16, INF }, { 0, false, 0.5 } }, calls)
    assert.is_nil(own.found_inf)
    assert.is_nil(own.grad_scale)
    assert.equal(8, s:get_scale())
  end)
  it('found_inf answers between unscale_ and step, for each optimizer and for all', function()
    local q = param { 1 }
    local o2 = sgd(q)
    assert.is_false(s:found_inf())
    assert.is_false(s:found_inf(o))
    s:scale((p * INF):sum() + q:sum()):backward()
    s:unscale_(o2)
    assert.is_false(s:found_inf(o2))
    assert.is_false(s:found_inf())
    s:unscale_(o)
    assert.is_true(s:found_inf(o))
    assert.is_false(s:found_inf(o2))
    assert.is_true(s:found_inf())
    s:step(o):step(o2):update()
    assert.is_true(s:found_inf(o))
    assert.is_false(s:found_inf(o2))
    o:zero_grad()
    give(s, p, 1)
    s:step(o)
    assert.is_false(s:found_inf(o))
    H.fails_here(function() s:found_inf(5) end, 'optimizer')
  end)
  it('options of step, unscale and backward are checked', function()
    give(s, p, 1)
    H.fails_here(function() s:step(o, { allow_emty = true }) end, 'allow_emty', 'allow_empty')
    H.fails_here(function() s:unscale(5) end, '5')
    H.fails_here(function() s:unscale { 5 } end, '5')
    H.fails_here(function() s:backward(5, p) end, 'GradManager', '5')
    local gm = amp.GradManager():attach { p }
    gm:record(function()
      local y = (p * 2):sum()
      H.fails_here(function() s:backward(gm, y, { unscale = true }) end, 'unscale', 'unscale_grad')
      H.fails_here(function() s:backward(gm, y, { unscale_grad = 1 }) end, 'unscale_grad', '1')
      H.fails_here(function() s:backward(gm, 'x') end, 'x')
    end)
  end)
  it('names what is no optimizer', function()
    H.fails_here(function() s:step(5) end, 'optimizer')
    H.fails_here(function() s:unscale_(nil) end, 'optimizer')
  end)
end)

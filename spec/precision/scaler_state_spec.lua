--- GradScaler: its state, saved and loaded.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local INF = math.huge

local scaling = require 'spec.precision.scaling'
local eq, param, sgd, give = scaling.eq, scaling.param, scaling.sgd, scaling.give

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
  it('survives a file, unscaled gradients pending or not, and loads in mid-iteration', function()
    local s = amp.GradScaler { init_scale = 8, growth_interval = 2, min_scale = 1, max_scale = 64, hysteresis = 3, max_skipped = 30 }
    local p = param { 1 }
    local o = sgd(p)
    p.grad = amp.tensor { INF }
    s:step(o)
    s:update()
    local path = H.tmp 'scaler'
    amp.save(path, s:state_dict())
    local t = amp.GradScaler()
    p.grad = amp.tensor { 1 }
    t:unscale_(o)
    t:load_state_dict(amp.load(path))
    assert.same(s:state_dict(), t:state_dict())
    assert.same({ 8, 2, 1, 64, 3, 30 }, { t:get_scale(), t.growth_interval, t.min_scale, t.max_scale, t.hysteresis, t.max_skipped })
    p.grad = amp.tensor { 4 }
    t:unscale_(o)
    t:step(o)
    t:update()
    eq(p, { 0.5 })
  end)
  it('with the optimizer and the schedule: a run resumed at every step is the uninterrupted one', function()
    local grads = { 1, 1, INF, 0.5, 1, -1, INF, INF, 2, 1 }
    local function setup(from)
      local p = param(from and H.values(from.p) or { 1, 2 })
      local o = amp.optim.Adam({ p }, { lr = 0.1 })
      local s = amp.GradScaler { init_scale = 16, growth_interval = 3 }
      local l = amp.optim.lr_scheduler.ExponentialLR(o, { gamma = 0.9 })
      if from then
        o:load_state_dict(from.o:state_dict())
        s:load_state_dict(from.s:state_dict())
        l:load_state_dict(from.l:state_dict())
      end
      return { p = p, o = o, s = s, l = l }
    end
    local function run(r, from, to)
      for k = from, to do
        give(r.s, r.p, amp.tensor { grads[k], k })
        r.s:step(r.o)
        r.s:update()
        if not r.s:found_inf(r.o) then r.l:step() end
        r.o:clear_grad()
      end
      return r
    end
    local whole = run(setup(), 1, #grads)
    for k = 1, #grads - 1 do
      local again = run(setup(run(setup(), 1, k)), k + 1, #grads)
      H.same(again.p, whole.p, 'resumed after ' .. k)
      assert.equal(whole.s:get_scale(), again.s:get_scale())
      assert.equal(whole.o.param_groups[1].lr, again.o.param_groups[1].lr)
    end
  end)
  it('names what is missing or wrong in a state', function()
    local s = amp.GradScaler()
    H.fails_here(function() s:load_state_dict {} end)
    H.fails_here(function() s:load_state_dict(5) end)
    for name, v in pairs { scale = -1, growth_factor = 1, backoff_factor = 2, growth_interval = -3, growth_tracker = 1.5, hysteresis = 0, min_scale = -7 } do
      local d = s:state_dict()
      d[name] = v
      H.fails_here(function() s:load_state_dict(d) end, tostring(v))
    end
    H.fails_here(function() s:load_state_dict { scale = 1 } end, 'growth_factor')
    assert.equal(65536, s:get_scale())
    assert.equal(2, s:get_growth_factor())
  end)
end)

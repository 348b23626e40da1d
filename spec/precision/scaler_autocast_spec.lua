--- GradScaler: whole steps with autocast.
local amp = require 'amp'
local F = amp.nn.functional
local H = require 'spec.lib.helper'
local INF = math.huge

local scaling = require 'spec.precision.scaling'
local param, give = scaling.param, scaling.give

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
    local gm = amp.GradManager():attach { p }
    for _ = 1, 3 do
      gm:record(function() s:backward(gm, (p * 2):sum()) end)
      o:step():clear_grad()
      gm:record(function() gm:backward((p * 2):sum(), { dy = s:scale_tensor() }) end)
      s:unscale(gm:attached_tensors())
      s:update()
      o:step():clear_grad()
    end
    assert.equal(before, amp.counters().host_waits)
    for _, look in ipairs {
      function() return s:get_scale() end, function() return s.scale_factor end, function() return s:found_inf() end, function() return s:found_inf(o) end,
      function() s:step { param_groups = { { params = { p } } }, step = function() end } end,
    } do
      p.grad = amp.ones(2)
      before = amp.counters().host_waits
      look()
      assert.is_true(amp.counters().host_waits > before)
    end
  end)
end)

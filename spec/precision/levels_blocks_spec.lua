--- amp.scale_loss: blocks, losses and optimizers, their order, errors in them, and training at every level.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local scaling = require 'spec.precision.scaling'
local shared = require 'spec.precision.levels'
local nn = amp.nn
local eq, param = scaling.eq, scaling.param
local INF = math.huge
local logged, back, mlp, sgd, One, init, Bag, scale
  = shared.logged, shared.back, shared.mlp, shared.sgd, shared.One, shared.init, shared.Bag, shared.scale

describe('amp.scale_loss', function()
  it('hands a float32 loss times the scale to fn, and gives what fn returns', function()
    local net = One()
    local opt = sgd(net:parameters())
    init(net, opt, { opt_level = 'O1', max_loss_scale = 64 })
    local loss = (net.w * 3):sum()
    local a, b = amp.scale_loss(loss:half(), opt, { loss_id = 1, model = net }, function(s)
      assert.equal('float32', s.dtype)
      assert.equal(6 * 64, s:item())
      s:backward()
      eq(net.w.grad, { 192, 192 })
      return 'a', nil
    end)
    assert.equal('a', a)
    assert.is_nil(b)
    eq(net.w.grad, { 3, 3 })
    amp.deactivate()
  end)
  it('without a scale (O0, O3) the loss is the loss', function()
    for _, level in ipairs { 'O0', 'O3' } do
      local net = One()
      local opt = sgd(net:parameters())
      init(net, opt, { opt_level = level })
      amp.scale_loss((net.w * 3):sum(), opt, function(s)
        assert.equal('float32', s.dtype)
        assert.equal(6, s:item())
        s:backward()
      end)
      H.close(net.w.grad, { 3, 3 }, 1)
      amp.deactivate()
    end
  end)
  it('O3 with a scale: half parameters are the exception', function()
    local net = One()
    local opt = sgd(net:parameters())
    init(net, opt, { opt_level = 'O3', loss_scale = 'dynamic', max_loss_scale = 16 })
    for _, g in ipairs { 0.5, INF, 0.25 } do
      amp.scale_loss((net.w * g):sum(), opt, back)
      opt:step()
      opt:zero_grad()
    end
    eq(net.w:detach(), { 0.25, 0.25 })
    assert.equal(8, scale())
    amp.deactivate()
  end)
  it('an overflow: the step does nothing, once; the scale halves; state and step counts stay', function()
    for _, level in ipairs { 'O1', 'O2' } do
      for _, bad in ipairs { INF, 0 / 0 } do
        local net, control = One(), One()
        local opt, plain = amp.optim.Adam(net:parameters(), { lr = 0.5 }), amp.optim.Adam(control:parameters(), { lr = 0.5 })
        init(net, opt, { opt_level = level, max_loss_scale = 16 })
        for i, g in ipairs { 0.5, bad, 0.25, 0.5 } do
          amp.scale_loss((net.w * g):sum(), opt, back)
          opt:step()
          opt:zero_grad()
          if g == g and g < INF then
            (control.w * g):sum():backward()
            plain:step():zero_grad()
          end
          assert.equal(i < 2 and 16 or 8, scale())
        end
        H.close(amp.master_params(opt)[1], control.w, { rtol = 1e-5, atol = 1e-6 })
        assert.equal(3, opt:state_dict().state[1].step)
        amp.deactivate()
      end
    end
  end)
  it('an Inf put into a half or float32 gradient inside the block is found', function()
    for _, name in ipairs { 'a', 'b' } do
      local net = Bag()
      net.a = amp.ones(2, { requires_grad = true })
      net.b = amp.ones(2, { dtype = 'float16', requires_grad = true })
      local opt = sgd(net:parameters())
      init(net, opt, { opt_level = 'O2', cast_model_type = false, max_loss_scale = 4 })
      for i = 1, 3 do
        amp.scale_loss(net.a:sum() * 0.25 + net.b:float():sum() * 0.25, opt, function(s)
          s:backward()
          if i == 2 then net[name].grad[1] = INF end
        end)
        opt:step()
        opt:zero_grad()
      end
      eq(net.a:detach(), { 0.5, 0.5 })
      eq(net.b:detach(), { 0.5, 0.5 })
      assert.equal(2, scale())
      amp.deactivate()
    end
  end)
  it('tells of it at verbosity 1', function()
    local net = One()
    local opt = sgd(net:parameters())
    local lines = logged(function()
      init(net, opt, { opt_level = 'O1', num_losses = 2, verbosity = 1 })
      amp.scale_loss((net.w * INF):sum(), opt, { loss_id = 2 }, back)
      opt:step()
    end)
    assert.equal(2, #lines)
    assert.is_true(lines[2]:find 'loss 2' ~= nil and lines[2]:find '65536' ~= nil and lines[2]:find '32768' ~= nil, lines[2])
    amp.deactivate()
  end)
  it('starts at min(65536, max_loss_scale), grows after 2000 clean exits, within the bounds', function()
    local net = One(1)
    local opt = sgd(net:parameters(), 0)
    init(net, opt, { opt_level = 'O1', max_loss_scale = 2 ^ 17, min_loss_scale = 2 ^ 16, num_losses = 2 })
    local function block(g, id)
      amp.scale_loss((net.w * g):sum(), opt, { loss_id = id }, back)
      opt:step():zero_grad()
    end
    block(INF)
    assert.equal(65536, scale()) -- the floor
    for _ = 1, 1999 do block(1) end
    assert.equal(65536, scale())
    assert.equal(1999, amp.state_dict().loss_scaler1.unskipped)
    block(1, 2)
    assert.equal(65536, scale())
    block(1)
    assert.equal(131072, scale())
    assert.equal(0, amp.state_dict().loss_scaler1.unskipped)
    assert.same({ loss_scale = 65536, unskipped = 1 }, amp.state_dict().loss_scaler2)
    amp.load_state_dict { loss_scaler1 = { loss_scale = 131072, unskipped = 1999 }, loss_scaler2 = { loss_scale = 2 ^ 16, unskipped = 0 } }
    block(1)
    assert.equal(131072, scale()) -- the ceiling
    amp.deactivate()
  end)
  it('a number is a static scale; checks and skips nevertheless', function()
    local net = One()
    local opt = sgd(net:parameters())
    init(net, opt, { opt_level = 'O1', loss_scale = 128 })
    for _, g in ipairs { 0.5, INF, 0.25 } do
      amp.scale_loss((net.w * g):sum(), opt, back)
      opt:step():zero_grad()
      assert.equal(128, scale())
    end
    eq(net.w:detach(), { 0.25, 0.25 })
    amp.deactivate()
  end)
  it('a scale of 1 checks and skips as well, unless all is plain float32', function()
    for level, want in pairs { O1 = 0.25, O2 = 0.25, O3 = 0.25, O0 = -INF } do
      local net = One()
      local opt = sgd(net:parameters())
      init(net, opt, { opt_level = level, loss_scale = 1 })
      for _, g in ipairs { 0.5, INF, 0.25 } do
        amp.scale_loss((net.w * g):sum(), opt, back)
        opt:step():zero_grad()
      end
      eq(amp.master_params(opt)[1]:detach(), { want, want })
      amp.deactivate()
    end
  end)
  it('never waits for the device', function()
    for _, level in ipairs { 'O0', 'O1', 'O2', 'O3' } do
      local net = mlp()
      local opt = amp.optim.Adam(net:parameters(), { lr = 0.01 })
      init(net, opt, { opt_level = level })
      local x, waits = amp.randn(5, 4), amp.counters().host_waits
      for _ = 1, 3 do
        amp.scale_loss(net(x):float():square():mean(), opt, back)
        nn.utils.clip_grad_norm_(amp.master_params(opt), 1)
        opt:step():zero_grad()
      end
      assert.equal(waits, amp.counters().host_waits)
      amp.deactivate()
    end
  end)
  it('keeps casts that are exact still for what comes after it', function()
    local net = One()
    local opt = sgd(net:parameters())
    init(net, opt, { opt_level = 'O1' })
    local w = amp.randn(2, 2, { requires_grad = true })
    local y = amp.matmul(w, w)
    amp.scale_loss((net.w * 1):sum() + y:sum(), opt, back)
    local casts = amp.counters().casts
    amp.matmul(w, w)
    assert.equal(casts, amp.counters().casts)
    amp.no_grad(function() w:add_(1) end)
    amp.matmul(w, w)
    assert.equal(casts + 1, amp.counters().casts)
    amp.deactivate()
  end)
end)

describe('several blocks, losses and optimizers', function()
  for _, level in ipairs { 'O0', 'O1', 'O2', 'O3' } do
    it(level .. ': blocks of several losses add up in one optimizer, each with its own scale', function()
      local net = One()
      local opt = sgd(net:parameters())
      init(net, opt, { opt_level = level, num_losses = 2 })
      if level == 'O1' or level == 'O2' then
        amp.load_state_dict { loss_scaler1 = { loss_scale = 4, unskipped = 0 }, loss_scaler2 = { loss_scale = 16, unskipped = 0 } }
      end
      for i = 1, 3 do
        amp.scale_loss((net.w * 0.125):sum(), opt, { loss_id = 1 }, back)
        amp.scale_loss((net.w * 0.0625):sum(), opt, { loss_id = 2 }, back)
        amp.scale_loss((net.w * 0.0625):sum(), opt, { loss_id = i % 2 + 1 }, back)
        eq(amp.master_params(opt)[1].grad:float(), { 0.25, 0.25 })
        opt:step()
        opt:zero_grad()
      end
      eq(net.w:detach():float(), { 0.25, 0.25 })
      amp.deactivate()
    end)
  end
  it('an Inf in either block, in any iteration, skips just that step and lowers just that scale', function()
    for _, level in ipairs { 'O1', 'O2' } do
      for which = 1, 2 do
        for at = 1, 3 do
          local net = One()
          local opt = sgd(net:parameters())
          init(net, opt, { opt_level = level, num_losses = 2, max_loss_scale = 8 })
          for i = 1, 3 do
            for id = 1, 2 do
              amp.scale_loss((net.w * (i == at and id == which and INF or 0.125)):sum(), opt, { loss_id = id }, back)
            end
            opt:step()
            opt:zero_grad()
          end
          eq(net.w:detach(), { 0.5, 0.5 })
          assert.equal(4, scale(which))
          assert.equal(8, scale(3 - which))
          amp.deactivate()
        end
      end
    end
  end)
  it('an overflow holds back the optimizers passed with that loss only, all of them', function()
    for _, level in ipairs { 'O1', 'O2' } do
      local a, b, c = One(), One(), One()
      local oa, ob, oc = sgd(a:parameters()), sgd(b:parameters()), sgd(c:parameters())
      init({ a, b, c }, { oa, ob, oc }, { opt_level = level, num_losses = 2, max_loss_scale = 8 })
      for i = 1, 2 do
        amp.scale_loss((a.w * (i == 1 and INF or 0.5)):sum() + (b.w * 0.5):sum(), { oa, ob }, { loss_id = 1 }, back)
        amp.scale_loss(b.w:float():sum() * 0.25 + (c.w * 0.25):sum(), { ob, oc }, { loss_id = 2 }, back)
        for _, o in ipairs { oa, ob, oc } do
          o:step()
          o:zero_grad()
        end
      end
      eq(a.w:detach(), { 0.5, 0.5 })
      eq(b.w:detach(), { 0.25, 0.25 }) -- its own gradients were finite in both losses
      eq(c.w:detach(), { 0.5, 0.5 })
      amp.deactivate()
    end
  end)
  it('also an optimizer none of whose parameters the loss reached', function()
    local a, b = One(), One()
    local oa, ob = sgd(a:parameters()), sgd(b:parameters())
    init({ a, b }, { oa, ob }, { opt_level = 'O1', num_losses = 2 })
    amp.scale_loss((b.w * 0.5):sum(), ob, { loss_id = 2 }, back)
    amp.scale_loss((a.w * INF):sum(), { oa, ob }, { loss_id = 1 }, back)
    oa:step()
    ob:step()
    eq(b.w:detach(), { 1, 1 })
    ob:step() -- held back once
    eq(b.w:detach(), { 0.5, 0.5 })
    amp.deactivate()
  end)
  it('delay_unscale and repeated blocks accumulate as one big batch', function()
    for _, level in ipairs { 'O0', 'O1', 'O2', 'O3' } do
      for _, delay in ipairs { true, false } do
        local net = One()
        local opt = sgd(net:parameters())
        init(net, opt, { opt_level = level, max_loss_scale = 64 })
        for _ = 1, 2 do
          for k = 1, 4 do
            amp.scale_loss((net.w * 0.0625):sum(), opt, { delay_unscale = delay and k < 4 }, back)
          end
          opt:step()
          opt:zero_grad()
        end
        eq(net.w:detach():float(), { 0.5, 0.5 })
        if level == 'O1' then assert.equal(delay and 2 or 8, amp.state_dict().loss_scaler1.unskipped) end
        amp.deactivate()
      end
    end
  end)
  it('delayed after unscaled ones: scaled once more; an Inf in a delayed block is found at the end', function()
    for _, level in ipairs { 'O1', 'O2' } do
      local net = One()
      local opt = sgd(net:parameters())
      init(net, opt, { opt_level = level, max_loss_scale = 8 })
      for i = 1, 2 do
        amp.scale_loss((net.w * 0.125):sum(), opt, back)
        amp.scale_loss((net.w * (i == 1 and INF or 0.125)):sum(), opt, { delay_unscale = true }, back)
        amp.scale_loss((net.w * 0.25):sum(), opt, back)
        opt:step()
        opt:zero_grad()
      end
      eq(net.w:detach(), { 0.5, 0.5 })
      assert.equal(4, scale())
      amp.deactivate()
    end
  end)
  it('a user\'s own optimizer does what the fused one does', function()
    local function train(level, own)
      amp.manual_seed(2)
      local net = Bag()
      net.a, net.b = amp.randn(3, { requires_grad = true }), amp.randn(3, { requires_grad = true })
      local opt = sgd(net:parameters(), 0.5)
      if own then
        opt = { param_groups = { { params = net:parameters() } }, step = function(self)
          for _, p in ipairs(self.param_groups[1].params) do
            if p.grad then amp.no_grad(function() p:sub_(p.grad * 0.5) end) end
          end
        end, zero_grad = function(self)
          for _, p in ipairs(self.param_groups[1].params) do p.grad = nil end
        end }
      end
      init(net, opt, { opt_level = level, num_losses = 2, max_loss_scale = 16 })
      for i = 1, 8 do
        local bad = { [3] = 1, [6] = 2 }
        amp.scale_loss((net.a:float() * net.b:float()):sum() * (bad[i] == 1 and INF or 1), opt, { delay_unscale = i == 2 }, back)
        if i == 2 then amp.scale_loss(net.a:float():sum(), opt, back) end
        amp.scale_loss(net.b:float():square():sum() * (bad[i] == 2 and INF or 1), opt, { loss_id = 2 }, back)
        opt:step()
        opt:zero_grad()
      end
      local state = amp.state_dict()
      local out = amp.cat(amp.master_params(opt), 1):detach():clone()
      amp.deactivate()
      return out, state
    end
    for _, level in ipairs { 'O1', 'O2' } do
      local a, s = train(level)
      local b, t = train(level, true)
      H.close(a, b, { rtol = 1e-6, atol = 1e-7 }, level)
      assert.same(s, t)
      assert.equal(8, s.loss_scaler1.loss_scale)
    end
  end)
  it('clipping by value between, gradients changed by hand step', function()
    local net = One()
    local opt = sgd(net:parameters())
    init(net, opt, { opt_level = 'O2', max_loss_scale = 64 })
    amp.scale_loss((net.w * 2):sum(), opt, back)
    nn.utils.clip_grad_value_(amp.master_params(opt), 0.5)
    opt:step()
    eq(net.w:detach(), { 0.5, 0.5 })
    opt:zero_grad()
    amp.scale_loss((net.w * 2):sum(), opt, back)
    amp.master_params(opt)[1].grad = amp.tensor { 0.25, 0 }
    opt:step()
    eq(net.w:detach(), { 0.25, 0.5 })
    amp.deactivate()
  end)
end)

describe('blocks as regions', function()
  for _, level in ipairs { 'O1', 'O2' } do
    it(level .. ': an error leaves gradients and scales as they were; the corrected block works', function()
      local net = One()
      local opt = sgd(net:parameters())
      init(net, opt, { opt_level = level, max_loss_scale = 8 })
      amp.scale_loss((net.w * 0.25):sum(), opt, back)
      local what = {}
      local ok, e = pcall(amp.scale_loss, (net.w * 3):sum(), opt, function(s)
        s:backward()
        error(what)
      end)
      assert.is_false(ok)
      assert.is_true(e == what)
      eq(amp.master_params(opt)[1].grad, { 0.25, 0.25 })
      assert.equal(1, amp.state_dict().loss_scaler1.unskipped)
      amp.scale_loss((net.w * 0.25):sum(), opt, back)
      opt:step()
      eq(net.w:detach(), { 0.5, 0.5 })
      amp.deactivate()
    end)
    it(level .. ': whoever a coroutine yields to sees the gradients of before', function()
      local net = One()
      local opt = sgd(net:parameters())
      init(net, opt, { opt_level = level, max_loss_scale = 8 })
      amp.scale_loss((net.w * 0.25):sum(), opt, back)
      local p = amp.master_params(opt)[1]
      local co = coroutine.wrap(function()
        return amp.scale_loss((net.w * 0.5):sum(), opt, function(s)
          s:backward()
          local got = coroutine.yield 'out'
          return got
        end)
      end)
      assert.equal('out', co())
      eq(p.grad, { 0.25, 0.25 })
      assert.equal('in', co 'in')
      eq(p.grad, { 0.75, 0.75 })
      opt:step()
      eq(net.w:detach(), { 0.25, 0.25 })
      amp.deactivate()
    end)
  end
  it('a gradient tensor the user holds goes on being the gradient', function()
    local net = One()
    local opt = sgd(net:parameters())
    init(net, opt, { opt_level = 'O1' })
    amp.scale_loss((net.w * 0.25):sum(), opt, back)
    local g = net.w.grad
    amp.scale_loss((net.w * 0.25):sum(), opt, back)
    assert.is_true(g == net.w.grad)
    eq(g, { 0.5, 0.5 })
    amp.deactivate()
  end)
end)

describe('calls out of order', function()
  it('before amp.initialize: an error that says what to call', function()
    local opt = sgd { param { 1 } }
    H.fails_here(function() amp.scale_loss(param({ 1 }):sum(), opt, back) end, 'amp.initialize', 'first')
    H.fails_here(function() amp.state_dict() end, 'amp.initialize')
    H.fails_here(function() amp.load_state_dict {} end, 'amp.initialize')
    init(mlp())
    amp.deactivate()
    H.fails_here(function() amp.scale_loss(param({ 1 }):sum(), opt, back) end, 'amp.initialize', 'first')
  end)
  it('wrong arguments are named', function()
    local net = One()
    local opt = sgd(net:parameters())
    init(net, opt, { num_losses = 2 })
    local loss = net.w:sum()
    H.fails_here(function() amp.scale_loss(3, opt, back) end, 'loss', '3')
    H.fails_here(function() amp.scale_loss(loss, opt) end, 'function')
    H.fails_here(function() amp.scale_loss(loss, opt, {}) end, 'argument 4', 'function')
    H.fails_here(function() amp.scale_loss(loss, nil, back) end, 'optimizer')
    H.fails_here(function() amp.scale_loss(loss, {}, back) end, 'optimizer')
    H.fails_here(function() amp.scale_loss(loss, { opt, opt }, back) end, 'twice')
    H.fails_here(function() amp.scale_loss(loss:detach(), opt, back) end, 'require grad')
    H.fails_here(function() amp.scale_loss(amp.ones(1):long(), opt, back) end, 'float', 'int64')
    H.fails_here(function() amp.scale_loss(loss, opt, { loss_id = 3 }, back) end, 'loss_id', '3', 'num_losses = 2')
    H.fails_here(function() amp.scale_loss(loss, opt, { loss_id = 0 }, back) end, 'loss_id', '0')
    H.fails_here(function() amp.scale_loss(loss, opt, { los_id = 1 }, back) end, 'los_id', 'loss_id')
    H.fails_here(function() amp.scale_loss(loss, opt, { delay_unscale = 1 }, back) end, 'delay_unscale')
    H.fails_here(function() amp.scale_loss(loss, sgd { param { 1 } }, back) end, 'not given to amp.initialize', 'SGD')
    H.fails_here(function() amp.scale_loss(loss, amp.optim.LBFGS(net:parameters()), back) end, 'closure')
    amp.scale_loss(loss, opt, back) -- and all is well
    eq(net.w.grad, { 1, 1 })
    amp.deactivate()
  end)
  it('a step or a block inside a block of the same optimizer', function()
    for _, level in ipairs { 'O1', 'O2' } do
      local net = One()
      local opt = sgd(net:parameters())
      init(net, opt, { opt_level = level, max_loss_scale = 64 })
      amp.scale_loss((net.w * 0.5):sum(), opt, function(s)
        s:backward()
        H.fails_here(function() opt:step() end, 'inside a block', 'after')
        H.fails_here(function() amp.scale_loss(net.w:sum(), opt, back) end, 'inside another block')
      end)
      opt:step()
      eq(net.w:detach(), { 0.5, 0.5 })
      amp.deactivate()
    end
  end)
  it('a backward outside of blocks beside one inside', function()
    local net = One()
    local opt = sgd(net:parameters())
    init(net, opt, { opt_level = 'O2', max_loss_scale = 64 })
    amp.scale_loss((net.w * 0.5):sum(), opt, back);
    (net.w * 0.25):sum():backward()
    H.fails(function() opt:step() end, 'outside of amp.scale_loss', 'parameter 1')
    net.w.grad = nil -- net:zero_grad() would clear the masters' as well
    opt:step()
    eq(net.w:detach(), { 0.5, 0.5 })
    opt:zero_grad()
    amp.scale_loss((net.w * 0.5):sum(), opt, back)
    nn.utils.clip_grad_norm_(net:parameters(), 1e-3) -- of the wrong tensors: the masters' stay
    net.w.grad:mul_(0)
    eq(amp.master_params(opt)[1].grad, { 0.5, 0.5 })
    opt:step()
    eq(net.w:detach(), { 0.0, 0.0 })
    amp.deactivate()
  end)
  it('a step while gradients are still scaled; blocks of different losses meanwhile', function()
    for _, level in ipairs { 'O1', 'O2' } do
      local net = One()
      local opt = sgd(net:parameters())
      init(net, opt, { opt_level = level, num_losses = 2, max_loss_scale = 64 })
      amp.scale_loss((net.w * 0.25):sum(), opt, { delay_unscale = true }, back)
      H.fails_here(function() opt:step() end, 'scaled', 'delay_unscale')
      H.fails_here(function() amp.scale_loss(net.w:sum(), opt, { loss_id = 2 }, back) end, 'delay_unscale')
      amp.scale_loss((net.w * 0.25):sum(), opt, back)
      opt:step()
      eq(net.w:detach(), { 0.5, 0.5 })
      amp.scale_loss(net.w:sum(), opt, { delay_unscale = true }, back)
      opt:zero_grad() -- a batch thrown away
      opt:step()
      eq(net.w:detach(), { 0.5, 0.5 })
      amp.deactivate()
    end
  end)
  it('state dicts that are none', function()
    init(mlp())
    H.fails_here(function() amp.load_state_dict(3) end, 'state_dict')
    H.fails_here(function() amp.load_state_dict { scaler = {} } end, 'scaler', 'loss_scaler1')
    H.fails_here(function() amp.load_state_dict { loss_scaler1 = { loss_scale = -1, unskipped = 0 } } end, 'loss_scale')
    H.fails_here(function() amp.load_state_dict { loss_scaler1 = { loss_scale = 2, unskipped = 0.5 } } end, 'unskipped')
    assert.equal(65536, scale())
    amp.deactivate()
  end)
end)

describe('amp.disable_casts', function()
  it('runs a function without autocast at O1, and gives its results', function()
    init(mlp())
    local x = amp.randn(2, 2)
    assert.equal('bfloat16', amp.matmul(x, x):to('cpu').dtype)
    local y, n = amp.disable_casts(function(k) return amp.matmul(x, x), k end, 7)
    assert.equal('float32', y.dtype)
    assert.equal(7, n)
    assert.is_true(amp.is_autocast_enabled())
    amp.deactivate()
    H.fails_here(function() amp.disable_casts(3) end, 'function')
  end)
end)

describe('an interrupt in amp.scale_loss', function()
  it('leaves the next block as it would be, wherever it comes', function()
    local source = [[
      amp.warn = function() end
      local net, x = amp.nn.Linear(2, 1), amp.ones(3, 2)
      local opt = amp.optim.SGD(net:parameters(), { lr = 0.01 })
      amp.initialize(net, opt, { opt_level = 'O1', verbosity = 0 })
      local function block() amp.scale_loss(net(x):sum(), opt, function(s) s:backward() end) opt:zero_grad() end
      local function stop() debug.sethook() error('interrupt', 0) end
      local function interrupted(k)
        debug.sethook(stop, '', k)
        block()
        debug.sethook()
      end
      block()
      local k, over = 10, false
      while not over do
        over = pcall(interrupted, k)
        debug.sethook()
        opt:zero_grad()
        assert(amp.is_grad_enabled() and amp.is_autocast_enabled())
        local ok, why = pcall(block)
        if not ok then error(k .. ': ' .. tostring(why)) end
        k = k + (k % 3 == 0 and 1 or 2)
      end
      assert(k > 300, k)
      print 'held']]
    local out = H.child(source, '-joff')
    assert.truthy(out:find 'held', out)
  end)
end)

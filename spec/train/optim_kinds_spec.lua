--- NAdam, RAdam, Adadelta, Adamax, Lion, Adafactor, Muon: against PyTorch step by step (Lion against its formula), state,
-- overflow, captured steps, wrong use; CosineWithWarmup; averages of weights.
local amp = require 'amp'
local optim = amp.optim
local H = require 'spec.lib.helper'
local steps = require 'spec.lib.optim_steps'
local param = steps.param

local function fails(fn, text)
  local ok, e = pcall(fn)
  assert.is_false(ok)
  assert.is_truthy(tostring(e):find(text, 1, true), tostring(e))
end

-- Muon's products are in bfloat16.
local function tolerance(c, dtype)
  if c.kind == 'Muon' then return { rtol = 0, atol = 0.02 * c.opts.lr * 7 } end
  return dtype == 'float64' and { rtol = 1e-9, atol = 1e-10 } or { rtol = 1e-5, atol = 4e-6 }
end

describe('every option set follows PyTorch', function()
  for _, c in ipairs(H.fixture 'optim_more.txt') do
    it(steps.label(c), function() steps.follows(c, tolerance) end)
  end
end)

describe('a new kind of optimizer', function()
  local kinds = { 'NAdam', 'RAdam', 'Adadelta', 'Adamax', 'Lion', 'Adafactor', 'Muon' }
  local function matrix(dtype)
    local t = H.make({ 1, 2, -3, 0.5, 4, 6 }, { 2, 3 }, dtype)
    t.requires_grad = true
    return t
  end
  for _, kind in ipairs(kinds) do
    it(kind .. ' leaves everything alone where a scaler finds an overflow, and goes on', function()
      local p, q, plain = matrix(), matrix(), { matrix(), matrix() }
      local opt, twin = optim[kind]({ p, q }, { lr = 0.1 }), optim[kind](plain, { lr = 0.1 })
      local scaler = amp.GradScaler { init_scale = 4 }
      local g = H.make({ 0.5, -1, 2, 0.25, 1, -0.5 }, { 2, 3 })
      for step = 1, 4 do
        local overflow = step == 1 or step == 3
        local loss = (p * g):sum() + (q * (overflow and math.huge or 1)):sum()
        scaler:scale(loss):backward()
        scaler:step(opt)
        assert.equal(overflow, scaler:found_inf(opt))
        scaler:update()
        opt:clear_grad()
        if not overflow then
          plain[1].grad, plain[2].grad = g:clone(), amp.ones_like(q)
          twin:step():clear_grad()
        end
        H.close(p, H.values(plain[1]), { rtol = 1e-6, atol = 1e-6 }, kind .. ' step ' .. step)
        H.close(q, H.values(plain[2]), { rtol = 1e-6, atol = 1e-6 })
      end
      local state = opt:state_dict().state
      assert.equal(2, state[1].step)
      for name, t in pairs(twin:state_dict().state[1]) do
        if name ~= 'step' then H.close(state[1][name], H.values(t), { rtol = 1e-6, atol = 1e-6 }, name) end
      end
    end)
    it(kind .. ' keeps a gradient as it was, prints, and steps 16-bit parameters', function()
      for _, dtype in ipairs { 'bfloat16', 'float16', 'float64' } do
        local p = matrix(dtype)
        local before = p:detach():clone()
        local opt = optim[kind]({ p }, { lr = 0.5 })
        p.grad = amp.ones_like(p)
        assert.is_truthy(tostring(opt):match(kind))
        opt:step()
        H.close(p.grad, { 1, 1, 1, 1, 1, 1 })
        assert.equal(dtype, p.dtype)
        assert.is_false(amp.equal(p:detach(), before))
        assert.is_true(p:isfinite():all():item())
      end
    end)
    it(kind .. ' works through a Trainer and a schedule', function()
      local p, q = matrix(), matrix()
      local trainer = optim.Trainer({ p }, kind:lower(), { lr = 0.1 })
      local opt = optim[kind]({ q }, { lr = 0.1 })
      p.grad, q.grad = amp.full_like(p, 4), amp.ones_like(q)
      trainer:step(4)
      opt:step()
      H.close(p, H.values(q), { rtol = 1e-6, atol = 1e-6 })
      optim.lr_scheduler.StepLR(opt, { step_size = 1, gamma = 0.5 }):step()
      assert.equal(0.05, opt.param_groups[1].lr)
    end)
  end
  it('prints lists whole', function()
    assert.is_truthy(tostring(optim.Muon { matrix() }):find('ns_coefficients = {3.4445, -4.775, 2.0315}', 1, true))
    assert.is_truthy(tostring(optim.Adafactor { matrix() }):find('eps = {false, 0.001}', 1, true))
  end)
  it('refuses what it can not do', function()
    fails(function() optim.Muon({ param { 1, 2 } }, { lr = 1 }) end, 'parameter 1 is of shape 2; Muon steps matrices only')
    fails(function() optim.Muon({ matrix() }, { adjust_lr_fn = 'x' }) end, 'adjust_lr_fn must be')
    fails(function() optim.Muon({ matrix() }, { ns_steps = 1.5 }) end, 'ns_steps must be an integer')
    fails(function() optim.Adafactor({ matrix() }, { d = 0.5 }) end, 'd must be at least 1')
    fails(function() optim.Adafactor({ matrix() }, { eps = 1 }) end, 'eps must be a pair')
    fails(function() optim.Adadelta({ matrix() }, { rho = 1.5 }) end, 'rho must be in [0, 1], got 1.5')
    fails(function() optim.Lion({ matrix() }, { eps = 1 }) end, "unknown option 'eps'")
    fails(function() optim.NAdam({ matrix() }, { momentum_decay = -1 }) end, 'momentum_decay must be 0 or more')
    local opt = optim.Adafactor { matrix() }
    fails(function()
      opt:load_state_dict { state = { { step = 1, row_var = amp.ones(2, 3) } }, param_groups = { { params = { 1 } } } }
    end, 'row_var of parameter 1 is of shape 2x3')
  end)
end)

describe('CosineWithWarmup', function()
  it('goes from 0 to the full rate and back to 0', function()
    local p = param { 1 }
    local opt = optim.SGD({ { params = { p } }, { params = { param { 2 } }, lr = 0.25 } }, { lr = 1 })
    local sched = optim.lr_scheduler.CosineWithWarmup(opt, { warmup_steps = 4, total_steps = 12 })
    for step = 0, 14 do
      local want = step < 4 and step / 4 or 0.5 * (1 + math.cos(math.pi * math.min(1, (step - 4) / 8)))
      local lrs = sched:get_last_lr()
      assert.is_true(math.abs(lrs[1] - want) < 1e-12 and math.abs(lrs[2] - want / 4) < 1e-12, step .. ': ' .. lrs[1])
      opt:step()
      sched:step()
    end
    assert.equal(0, sched:get_last_lr()[1])
  end)
  it('begins at the full rate without warm-up, and resumes', function()
    local opt = optim.SGD({ param { 1 } }, { lr = 0.5 })
    local sched = optim.lr_scheduler.CosineWithWarmup(opt, { total_steps = 10 })
    assert.equal(0.5, sched:get_last_lr()[1])
    opt:step()
    for _ = 1, 3 do sched:step() end
    local other = optim.SGD({ param { 1 } }, { lr = 0.5 })
    local again = optim.lr_scheduler.CosineWithWarmup(other, 0, 10)
    again:load_state_dict(sched:state_dict())
    assert.equal(opt.param_groups[1].lr, other.param_groups[1].lr)
    assert.equal(sched:step():get_last_lr()[1], again:step():get_last_lr()[1])
  end)
  it('refuses a warm-up longer than all, and a total that is missing', function()
    local opt = optim.SGD({ param { 1 } }, { lr = 0.5 })
    fails(function() optim.lr_scheduler.CosineWithWarmup(opt, { warmup_steps = 4, total_steps = 3 }) end, 'warmup_steps is 4')
    fails(function() optim.lr_scheduler.CosineWithWarmup(opt, { warmup_steps = 4 }) end, 'total_steps must be an integer')
  end)
end)

describe('averages of weights', function()
  local nn = amp.nn
  local function net(w)
    local n = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    amp.no_grad(function() n[1].weight:fill_(w) end)
    return n
  end
  local function set(n, w) amp.no_grad(function() n[1].weight:fill_(w) end) end
  it('AveragedModel is the mean of all updates, the first of which copies', function()
    local n = net(8)
    local avg = optim.swa.AveragedModel(n)
    for i = 1, 4 do
      set(n, i)
      n[2].running_mean:fill_(i)
      avg:update_parameters(n)
      H.close(avg.module[1].weight, { (i + 1) / 2 })
      H.close(avg.module[2].running_mean, { i })
    end
    assert.equal(4, avg.n_averaged:item())
    local again = optim.swa.AveragedModel(net(0))
    again:load_state_dict(avg:state_dict())
    set(n, 7.5)
    H.close(again:update_parameters(n).module[1].weight, { 3.5 })
    H.close(avg:eval()(amp.ones(2, 1)), H.values(avg.module(amp.ones(2, 1))))
  end)
  it('takes a function, and averages buffers where asked to', function()
    local n = net(1)
    local avg = optim.swa.AveragedModel(n, { avg_fn = function(a, p, k) return a * k + p end, use_buffers = true })
    avg:update_parameters(n)
    set(n, 3)
    n[2].running_mean:fill_(5)
    avg:update_parameters(n)
    H.close(avg.module[1].weight, { 4 })
    H.close(avg.module[2].running_mean, { 5 })
  end)
  it('EMA decays, made of a network or not', function()
    local n = net(0)
    local ema, late = optim.swa.EMA(n, { decay = 0.75 }), optim.swa.EMA { decay = 0.75 }
    fails(function() late(amp.ones(1, 1)) end, 'there is no average yet')
    local inside = optim.swa.AveragedModel(n, { avg_fn = optim.swa.EMA { decay = 0.75 } })
    local want
    for i = 1, 5 do
      set(n, i * i)
      want = want and 0.75 * want + 0.25 * i * i or 1
      ema:update()
      late:update(n)
      inside:update_parameters(n)
      for _, e in ipairs { ema, late, inside } do H.close(e.module[1].weight, { want }) end
    end
    late:copy_to(n)
    H.close(n[1].weight, { want })
    fails(function() optim.swa.EMA { decay = 1.5 } end, 'decay must be in [0, 1]')
    fails(function() optim.swa.EMA { decya = 1 } end, 'decay')
    fails(function() optim.swa.EMA({ decay = 0.5 }):update() end, 'of which network')
    fails(function() ema:update(nn.Sequential(nn.Linear(1, 1))) end, 'the average has 4 parameters, the network 2')
  end)
  it('leaves gradients and grad mode alone', function()
    local n = net(1)
    local ema = optim.swa.EMA(n, { decay = 0.5 })
    n(amp.ones(2, 1)):sum():backward()
    local g = n[1].weight.grad
    ema:update(n)
    assert.is_true(n[1].weight.grad == g)
    assert.is_nil(ema.module[1].weight.grad)
    assert.is_true(n(amp.ones(2, 1)).requires_grad)
  end)
  it('update_bn makes running statistics anew', function()
    local n = net(1)
    amp.no_grad(function() n[1].bias:zero_() end)
    n:eval()
    n[2].running_mean:fill_(9)
    optim.swa.update_bn({ amp.tensor { { 1 }, { 3 } }, amp.tensor { { 5 }, { 7 } } }, n)
    H.close(n[2].running_mean, { 4 })
    H.close(n[2].running_var, { 2 })
    assert.equal(0.1, n[2].momentum)
    assert.is_false(n.training)
    local set_of = amp.data.TensorDataset and amp.data.TensorDataset(amp.tensor { { 2 }, { 4 } }, amp.tensor { 1, 2 })
    if set_of then
      optim.swa.update_bn(amp.data.DataLoader(set_of, { batch_size = 2 }), n)
      H.close(n[2].running_mean, { 3 })
    end
  end)
end)

if H.device then
  describe('a captured step', function()
    for _, kind in ipairs { 'NAdam', 'RAdam', 'Adadelta', 'Adamax', 'Lion', 'Adafactor', 'Muon' } do
      it('of ' .. kind .. ' is the eager one, new rates included', function()
        local function make()
          local p = H.make({ 1, 2, -3, 0.5, 4, 6 }, { 2, 3 })
          p.requires_grad = true
          return p, optim[kind]({ p }, { lr = 0.1 })
        end
        local p, opt = make()
        local q, twin = make()
        local function body(t, o)
          (t * t):sum():backward()
          o:step():clear_grad()
        end
        local step = amp.capture(function() body(p, opt) end)
        for i = 1, 7 do
          if i == 5 then opt.param_groups[1].lr, twin.param_groups[1].lr = 0.03, 0.03 end
          step()
          body(q, twin)
        end
        H.close(p, H.values(q), { rtol = 1e-6, atol = 1e-6 })
        assert.equal(7, opt:state_dict().state[1].step)
      end)
    end
  end)
end

--- Learning rate schedules: against PyTorch step by step, resumed anywhere, chained, edited, held back, wrong use.
local amp = require 'amp'
local optim = amp.optim
local S = optim.lr_scheduler
local H = require 'spec.lib.helper'

local METRICS = { 5, 4, 4, 4.1, 4, 3, 3, 3, 3, 3, 3, 2 }

local function param()
  local t = amp.zeros(1)
  t.requires_grad = true
  return t
end
-- two groups of rates 0.5 and 0.2, stepped once so that schedules may go on
local function optimizer()
  local opt = optim.SGD({ { params = { param() } }, { params = { param() }, lr = 0.2 } }, { lr = 0.5, momentum = 0.9 })
  return opt:step()
end
local function single(lr) return optim.SGD({ param() }, { lr = lr or 0.5 }):step() end

local function without(opts, ...)
  local out = {}
  for k, v in pairs(opts) do out[k] = v end
  for _, k in ipairs { ... } do out[k] = nil end
  return out
end
-- the schedules of a fixture's line that are stepped one after the other
local function make(c, opt)
  local parts = {}
  for i, p in ipairs(c.opts.parts or {}) do parts[i] = S[p[1]](opt, p[2]) end
  if c.kind == 'chain' then return parts end
  if c.kind == 'SequentialLR' then return { S.SequentialLR(opt, { schedulers = parts, milestones = c.opts.milestones }) } end
  return { S[c.kind](opt, without(c.opts, 'parts', 'edit')) }
end
local function advance(c, opt, list, k)
  if c.opts.edit and c.opts.edit[1] == k then
    for _, g in ipairs(opt.param_groups) do g.lr = c.opts.edit[2] end
  end
  for _, s in ipairs(list) do
    assert.is_true(s:step(c.kind == 'ReduceLROnPlateau' and METRICS[k] or nil) == s)
  end
end
local function check(c, opt, k, what)
  local want = c.lrs[k + 1]
  local got = { opt.param_groups[1].lr, opt.param_groups[2].lr, opt.param_groups[1].momentum }
  for i = 1, 3 do
    if math.abs(got[i] - want[i]) > 1e-12 then
      error(('%sstep %d, %s: %.17g, not %.17g'):format(what or '', k, ({ 'group 1', 'group 2', 'momentum' })[i], got[i], want[i]), 2)
    end
  end
end
local function show(v)
  if type(v) ~= 'table' then return tostring(v) end
  local parts = {}
  for k, x in pairs(v) do parts[#parts + 1] = (type(k) == 'number' and '' or k .. '=') .. show(x) end
  table.sort(parts)
  return '{' .. table.concat(parts, ' ') .. '}'
end

describe('schedules follow PyTorch and resume at every step:', function()
  for _, c in ipairs(H.fixture 'schedule.txt') do
    it(c.kind .. ' ' .. show(c.opts), function()
      local opt = optimizer()
      local list = make(c, opt)
      local saved = {}
      for k = 0, 12 do
        if k > 0 then advance(c, opt, list, k) end
        check(c, opt, k)
        assert.same({ opt.param_groups[1].lr, opt.param_groups[2].lr }, list[1]:get_last_lr())
        local states = {}
        for i, s in ipairs(list) do states[i] = s:state_dict() end
        local path = H.tmp 'schedule'
        amp.save(path, { opt = opt:state_dict(), states = states })
        saved[k] = amp.load(path)
      end
      for k = 0, 11 do
        for _, order in ipairs { 'optimizer first', 'schedules first' } do
          local again = optimizer()
          local fresh = make(c, again)
          if order == 'optimizer first' then again:load_state_dict(saved[k].opt) end
          for i, s in ipairs(fresh) do assert.is_true(s:load_state_dict(saved[k].states[i]) == s) end
          if order ~= 'optimizer first' then again:load_state_dict(saved[k].opt) end
          check(c, again, k, 'resumed: ')
          for n = k + 1, 12 do
            advance(c, again, fresh, n)
            check(c, again, n, ('resumed at %d (%s), '):format(k, order))
          end
        end
      end
    end)
  end
end)

describe('a schedule', function()
  it('LambdaLR: rates are the base times a function of the step, one for all groups or one each', function()
    local opt = optimizer()
    local s = S.LambdaLR(opt, { lr_lambda = function(n) return 1 / (1 + n) end })
    for k = 0, 5 do
      assert.near(0.5 / (1 + k), opt.param_groups[1].lr, 1e-15)
      assert.near(0.2 / (1 + k), opt.param_groups[2].lr, 1e-15)
      s:step()
    end
    opt = optimizer()
    s = S.LambdaLR(opt, { lr_lambda = { function(n) return n + 1 end, function() return 3 end } })
    s:step()
    assert.same({ 1, 0.2 * 3 }, s:get_last_lr())
  end)
  it('goes to a given step', function()
    local opt = single()
    local s = S.ExponentialLR(opt, { gamma = 0.5 })
    s:step(3)
    assert.equal(0.5 * 0.125, opt.param_groups[1].lr)
    s:step(1)
    assert.equal(0.25, opt.param_groups[1].lr)
  end)
  it('holds for a group added later', function()
    local opt = single()
    local s = S.ExponentialLR(opt, { gamma = 0.5 })
    s:step()
    opt:add_param_group { params = { param() }, lr = 8 }
    s:step()
    assert.same({ 0.125, 4 }, s:get_last_lr())
  end)
  it('sets what the optimizer uses: warm-up moves a parameter by the warm rates', function()
    local p = param()
    local opt = optim.SGD({ p }, { lr = 1 })
    local s = S.LinearLR(opt, { start_factor = 0.25, end_factor = 1, total_iters = 3 })
    local want = 0
    for k = 0, 4 do
      p.grad = amp.ones(1)
      opt:step()
      s:step()
      want = want - math.min(1, 0.25 + k * 0.25)
      assert.near(want, p:item(), 1e-6)
    end
  end)
  it('works on every optimizer, betas cycle on Adam, and on a user-written one', function()
    local opt = optim.Adam({ param() }, { lr = 0.1 })
    S.OneCycleLR(opt, { max_lr = 1, total_steps = 10 })
    assert.equal(0.95, opt.param_groups[1].betas[1])
    assert.equal(0.999, opt.param_groups[1].betas[2])
    local own = { param_groups = { { params = { param() }, lr = 2 } }, step = function() end }
    local s = S.StepLR(own, { step_size = 1, gamma = 0.5 })
    s:step()
    assert.equal(1, own.param_groups[1].lr)
  end)
  it('ReduceLROnPlateau takes a tensor', function()
    local opt = single()
    local s = S.ReduceLROnPlateau(opt, { patience = 0, factor = 0.5 })
    for _, v in ipairs { 1, 2 } do s:step(amp.tensor(v)) end
    assert.equal(0.25, opt.param_groups[1].lr)
    H.fails_here(function() s:step() end, 'metric')
    H.fails_here(function() s:step 'x' end, 'metric', 'x')
  end)
  it('ReduceLROnPlateau: a NaN is no progress', function()
    local opt = single()
    local s = S.ReduceLROnPlateau(opt, { patience = 1, factor = 0.5 })
    for _ = 1, 2 do s:step(0 / 0) end
    assert.equal(0.25, opt.param_groups[1].lr)
  end)
  it('states are plain data', function()
    local function plain(v)
      if type(v) == 'table' then for k, x in pairs(v) do plain(k) plain(x) end
      else assert.is_true(type(v) == 'number' or type(v) == 'string' or type(v) == 'boolean', type(v)) end
    end
    for _, c in ipairs(H.fixture 'schedule.txt') do
      for _, s in ipairs(make(c, optimizer())) do plain(s:state_dict()) end
    end
  end)
end)

describe('with a scaler', function()
  it('a schedule held back by a skipped step leaves the rate alone', function()
    local p = param()
    local opt = optim.SGD({ p }, { lr = 1 })
    local s = S.ExponentialLR(opt, { gamma = 0.5 })
    local scaler = amp.GradScaler { init_scale = 4 }
    local rates = {}
    local list = H.warnings(function()
      for i, g in ipairs { math.huge, 1, math.huge, 1 } do
        scaler:scale((p * g):sum()):backward()
        scaler:step(opt)
        local skipped = scaler:found_inf(opt)
        scaler:update()
        if not skipped then s:step() end
        opt:zero_grad()
        rates[i] = opt.param_groups[1].lr
      end
    end)
    assert.same({ 1, 0.5, 0.5, 0.25 }, rates)
    assert.same({}, list)
  end)
end)

describe('arguments in their places', function()
  it('are taken as PyTorch\'s are, options last', function()
    local function opts(sched) return sched.options end
    local opt = single()
    assert.equal(0.5, opts(S.StepLR(opt, 30, 0.5)).gamma)
    assert.same({ gamma = 0.5, step_size = 30 }, opts(S.StepLR(opt, 30, { gamma = 0.5 })))
    assert.same({ gamma = 0.1, milestones = { 30, 40 } }, opts(S.MultiStepLR(opt, { 30, 40 })))
    assert.same({ gamma = 0.5, milestones = { 30, 40 } }, opts(S.MultiStepLR(opt, { 30, 40 }, { gamma = 0.5 })))
    assert.equal(0.1, opts(S.CosineAnnealingLR(opt, 10, 0.1)).eta_min)
    assert.equal('max', opts(S.ReduceLROnPlateau(opt, 'max', 0.5)).mode)
    assert.equal(0.5, opts(S.ReduceLROnPlateau(opt, 'max', 0.5)).factor)
    local a, b = S.LinearLR(opt, 0.5, 1, 3), S.ExponentialLR(opt, 0.9)
    assert.same({ 3 }, opts(S.SequentialLR(opt, { a, b }, { 3 })).milestones)
    assert.same({ 3 }, opts(S.SequentialLR(opt, { a, b }, { milestones = { 3 } })).milestones)
    assert.same({ a, b }, opts(S.SequentialLR(opt, { a, b }, { 3 })).schedulers)
    local cycle = opts(S.OneCycleLR(single(), 1, 12, nil, nil, 0.4, 'linear', false))
    assert.same({ 'linear', 0.4, false }, { cycle.anneal_strategy, cycle.pct_start, cycle.cycle_momentum })
  end)
  it('too many, or one given twice, is an error', function()
    local opt = single()
    H.fails_here(function() S.StepLR(opt, 30, 0.5, 7) end, 'step_size', 'gamma', '3')
    H.fails_here(function() S.StepLR(opt, 30, { step_size = 20 }) end, 'step_size', 'twice')
    H.fails_here(function() S.ReduceLROnPlateau(opt, 'max', { mode = 'min' }) end, 'mode', 'twice')
  end)
end)

describe('wrong use', function()
  it('a schedule stepped before the optimizer is warned of once', function()
    local out, status = H.child([[
local p = amp.zeros(1, { requires_grad = true })
local opt = amp.optim.SGD({ p }, { lr = 1 })
local s = amp.optim.lr_scheduler.StepLR(opt, { step_size = 1 })
local n = 0
amp.warn = function(m) n = n + 1 assert(m:find('opt:step()', 1, true), m) end
s:step()
s:step()
assert(n == 1, n)]], nil, 'AMP_LIBRARY=' .. H.absolute(H.build) .. '/amp/libamp.so')
    assert.equal('', out)
    assert.equal(0, status)
  end)
  it('names the option, what it may be and what it was', function()
    local opt = single()
    H.fails_here(function() S.StepLR(opt, { step_sise = 1 }) end, 'step_sise', 'step_size')
    H.fails_here(function() S.StepLR(opt, { step_size = 0 }) end, 'step_size', '0')
    H.fails_here(function() S.StepLR(opt, {}) end, 'step_size')
    H.fails_here(function() S.StepLR(5, { step_size = 1 }) end, 'optimizer')
    H.fails_here(function() S.ConstantLR(opt, { factor = 2 }) end, 'factor', '2')
    H.fails_here(function() S.PolynomialLR(opt, { power = -1 }) end, 'power', '-1')
    H.fails_here(function() S.CosineAnnealingWarmRestarts(opt, { T_0 = 0 }) end, 'T_0', '0')
    H.fails_here(function() S.CyclicLR(opt, { base_lr = 0.1 }) end, 'max_lr')
    H.fails_here(function() S.CyclicLR(opt, { base_lr = 0.1, max_lr = { 1, 2 } }) end, 'max_lr', 'group')
    H.fails_here(function() S.CyclicLR(opt, { base_lr = 0.1, max_lr = 1, mode = 'square' }) end, 'mode', 'square')
    H.fails_here(function() S.MultiStepLR(opt, { milestones = { 5, 2 } }) end, 'milestones', 'ascending')
    H.fails_here(function() S.MultiStepLR(opt, { milestones = 5 }) end, 'milestones', '5')
    H.fails_here(function() S.ExponentialLR(opt, {}) end, 'gamma')
    H.fails_here(function() S.CosineAnnealingLR(opt, {}) end, 'T_max')
    H.fails_here(function() S.LinearLR(opt, { start_factor = 0 }) end, 'start_factor', '0')
    H.fails_here(function() S.LinearLR(opt, { end_factor = 2 }) end, 'end_factor', '2')
    H.fails_here(function() S.LambdaLR(opt, { lr_lambda = 5 }) end, 'lr_lambda', '5')
    H.fails_here(function() S.OneCycleLR(opt, { max_lr = 1 }) end, 'total_steps')
    H.fails_here(function() S.OneCycleLR(opt, { max_lr = 1, total_steps = 5, anneal_strategy = 'x' }) end, 'anneal_strategy', 'x')
    H.fails_here(function() S.OneCycleLR(opt, { max_lr = { 1, 2 }, total_steps = 5 }) end, 'max_lr')
    H.fails_here(function() S.OneCycleLR(opt, { max_lr = 1, total_steps = 5, pct_start = 2 }) end, 'pct_start', '2')
    H.fails_here(function() S.ReduceLROnPlateau(opt, { factor = 1 }) end, 'factor', '1')
    H.fails_here(function() S.ReduceLROnPlateau(opt, { mode = 'low' }) end, 'mode', 'low')
    H.fails_here(function() S.ReduceLROnPlateau(opt, { min_lr = { 1, 2 } }) end, 'min_lr', '2', '1')
  end)
  it('a damaged state is refused by name, and changes nothing', function()
    local function all(opt)
      return { S.StepLR(opt, 2), S.ReduceLROnPlateau(opt), S.SequentialLR(opt, { S.LinearLR(opt), S.ExponentialLR(opt, 0.9) }, { 3 }),
        S.ChainedScheduler { S.LinearLR(opt), S.ExponentialLR(opt, 0.9) } }
    end
    local damage = {
      lrs = { true, { 'x' }, { 1, 2 }, {} }, base_lrs = { 5, { 'x' }, { 0 / 0 } }, last_epoch = { 'x', -1, 1.5, false },
      best = { 'x', false }, bad = { 'x', -1 }, cooling = { 1.5, false }, schedulers = { 5, {}, { true, true }, { { last_epoch = 1 } } },
    }
    for i = 1, 4 do
      local opt = single()
      local sched = all(opt)[i]
      local good, lr = sched:state_dict(), opt.param_groups[1].lr
      local function refused(state, name, value)
        local old = state[name]
        if old == nil then return end
        state[name] = value
        H.fails_here(function() sched:load_state_dict(good) end, 'load_state_dict', name == 'schedulers' and '' or name)
        assert.equal(lr, opt.param_groups[1].lr)
        state[name] = old
        assert.same(good, sched:state_dict())
      end
      for name, values in pairs(damage) do
        for _, v in ipairs(values) do
          refused(good, name, v)
          if good.schedulers then refused(good.schedulers[2], name, v) end
        end
      end
      assert.is_true(sched:load_state_dict(good) == sched)
    end
  end)
  it('a schedule that there is not: those there are, and the closest', function()
    H.fails_here(function() return S.CosineAnnealing end, 'CosineAnnealing', "'CosineAnnealingLR'", 'StepLR')
  end)
  it('SequentialLR wants closed forms of its optimizer and one milestone less', function()
    local opt = single()
    local a, b = S.LinearLR(opt, {}), S.ExponentialLR(opt, { gamma = 0.9 })
    H.fails_here(function() S.SequentialLR(opt, { schedulers = { a, b }, milestones = {} }) end, 'milestones', '1', '0')
    H.fails_here(function() S.SequentialLR(opt, { schedulers = {}, milestones = {} }) end, 'schedulers')
    H.fails_here(function() S.SequentialLR(opt, { schedulers = { a, S.ReduceLROnPlateau(opt, {}) }, milestones = { 1 } }) end, 'ReduceLROnPlateau')
    H.fails_here(function() S.SequentialLR(single(), { schedulers = { a, b }, milestones = { 1 } }) end, 'another optimizer')
  end)
  it('a step past OneCycleLR\'s end, a bad step, a state of something else', function()
    local opt = single()
    local s = S.OneCycleLR(opt, { max_lr = 1, total_steps = 2, cycle_momentum = false })
    s:step()
    s:step()
    H.fails_here(function() s:step() end, '3', 'total_steps')
    local e = S.ExponentialLR(opt, { gamma = 0.9 })
    H.fails_here(function() e:step(-1) end, '-1')
    H.fails_here(function() e:step(1.5) end, '1.5')
    H.fails_here(function() e:load_state_dict {} end, 'last_epoch')
    H.fails_here(function() e:load_state_dict(5) end, '5')
    H.fails_here(function() S.ReduceLROnPlateau(opt, {}):load_state_dict { last_epoch = 1, base_lrs = { 1 } } end, 'ReduceLROnPlateau')
    local two = S.ExponentialLR(optimizer(), { gamma = 0.9 })
    H.fails_here(function() e:load_state_dict(two:state_dict()) end, '2', '1')
  end)
end)

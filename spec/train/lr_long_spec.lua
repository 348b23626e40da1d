--- Learning rate schedules over hundreds of steps, groups that are added later, steps between whole ones: PyTorch's rates, and the same to
-- the last bit after a resume.
local amp = require 'amp'
local optim = amp.optim
local S = optim.lr_scheduler
local H = require 'spec.lib.helper'

local function param() return amp.zeros(1):requires_grad_(true) end
local function optimizer() return optim.SGD({ { params = { param() } }, { params = { param() }, lr = 0.2 } }, { lr = 0.5, momentum = 0.9 }):step() end
local function single() return optim.SGD({ param() }, { lr = 1, momentum = 0.9 }):step() end
local function grow(opt, lr) opt:add_param_group { params = { param() }, lr = lr } end

local function make(c, opt)
  if not c.opts.parts then return S[c.kind](opt, c.opts) end
  local list = {}
  for i, p in ipairs(c.opts.parts) do list[i] = S[p[1]](opt, p[2]) end
  if c.kind == 'ChainedScheduler' then return S.ChainedScheduler(list) end
  return S.SequentialLR(opt, list, c.opts.milestones)
end

local function rates(opt)
  local out = {}
  for i, g in ipairs(opt.param_groups) do out[i] = g.lr end
  return out
end

-- Every step's rates; at step `at` everything is saved and made anew.
local function run(c, at)
  local opt = optimizer()
  local sched, all = make(c, opt), {}
  local last = c.lrs[#c.lrs][1]
  for k = 0, last do
    if k > 0 then sched:step() end
    if k == c.added then grow(opt, 0.8) end
    all[k] = rates(opt)
    all[k].momentum = opt.param_groups[1].momentum
    if k == at then
      local path = H.tmp 'long.amp'
      amp.save(path, { opt = opt:state_dict(), sched = sched:state_dict() })
      local saved = amp.load(path)
      opt = optimizer()
      if c.added and k >= c.added + 1 then grow(opt, 0.8) end
      sched = make(c, opt)
      opt:load_state_dict(saved.opt)
      sched:load_state_dict(saved.sched)
    end
  end
  return all
end

local function show(v)
  if type(v) ~= 'table' then return tostring(v) end
  local parts = {}
  for k, x in pairs(v) do parts[#parts + 1] = (type(k) == 'number' and '' or k .. '=') .. show(x) end
  table.sort(parts)
  return '{' .. table.concat(parts, ' ') .. '}'
end

describe('over hundreds of steps', function()
  for _, c in ipairs(H.fixture 'schedule_long.txt') do
    it(('%s %s%s%s'):format(c.kind, show(c.opts), c.added and ', a group added after step ' .. c.added or '', c.given and ', fractions' or ''), function()
      local function check(want, got, momentum)
        for i = 2, #want - 1 do assert.near(want[i], got[i - 1], 1e-12) end
        assert.equal(#want - 2, #got)
        assert.near(want[#want], momentum, 1e-12)
      end
      if c.given then
        local opt = optimizer()
        local sched = make(c, opt)
        for n, w in ipairs(c.lrs) do
          sched:step(w[1] >= 0 and w[1] or nil)
          check(w, rates(opt), opt.param_groups[1].momentum)
          if n == 33 then
            local state = sched:state_dict()
            sched = make(c, opt):load_state_dict(state)
            assert.same(state, sched:state_dict())
            assert.is_true(tostring(sched):find('step 6.4', 1, true) ~= nil, tostring(sched))
          end
        end
        return
      end
      local whole = run(c)
      for _, w in ipairs(c.lrs) do check(w, whole[w[1]], whole[w[1]].momentum) end
      for _, at in ipairs { 1, 7, 20, 41, 120 } do
        if at < c.lrs[#c.lrs][1] and not (c.added and at <= c.added) then assert.same(whole, run(c, at)) end
      end
    end)
  end
end)

describe('a group that is added while a schedule runs', function()
  local function after(make_, ...)
    local opt = single()
    local s = make_(opt)
    s:step(...)
    grow(opt, 1)
    s:step(...)
    return opt.param_groups[1].lr, opt.param_groups[2].lr
  end
  it('has the rate that the options give every group', function()
    local a, b = after(function(o) return S.OneCycleLR(o, { max_lr = 1, total_steps = 10 }) end)
    assert.equal(a, b)
    a, b = after(function(o) return S.CyclicLR(o, { base_lr = 0.1, max_lr = 1, step_size_up = 3 }) end)
    assert.equal(a, b)
    a, b = after(function(o) return S.LambdaLR(o, function(n) return 0.5 ^ n end) end)
    assert.equal(a, b)
    a, b = after(function(o) return S.MultiplicativeLR(o, function() return 0.5 end) end)
    assert.same({ 0.25, 0.5 }, { a, b })
    a, b = after(function(o) return S.CosineAnnealingWarmRestarts(o, { T_0 = 10 }) end)
    assert.equal(a, b)
    a, b = after(function(o) return S.ReduceLROnPlateau(o, { patience = 0, factor = 0.5, min_lr = 0.1 }) end, 1)
    assert.same({ 0.5, 0.5 }, { a, b })
  end)
  it('is an error with the cure where they are lists, and changes nothing', function()
    local cases = {
      max_lr = function(o) return S.OneCycleLR(o, { max_lr = { 1 }, total_steps = 10 }) end,
      base_lr = function(o) return S.CyclicLR(o, { base_lr = { 0.1 }, max_lr = 1, step_size_up = 3 }) end,
      lr_lambda = function(o) return S.LambdaLR(o, { lr_lambda = { function(n) return 0.5 ^ n end } }) end,
      lr_lambda_ = function(o) return S.MultiplicativeLR(o, { lr_lambda = { function() return 0.5 end } }) end,
      ['lr_lambda '] = function(o) return S.SequentialLR(o, { S.LambdaLR(o, { lr_lambda = { function() return 1 end } }), S.LinearLR(o) }, { 4 }) end,
      min_lr = function(o) return S.ReduceLROnPlateau(o, { patience = 0, min_lr = { 0.1 } }) end,
    }
    for name, make_ in pairs(cases) do
      local opt = single()
      local s = make_(opt)
      local metric = name == 'min_lr' and 1 or nil
      s:step(metric)
      grow(opt, 1)
      local lrs, state = rates(opt), s:state_dict().last_epoch
      H.fails_here(function() s:step(metric) end, name:match '^%a+_%a+', 'group 2', 'added')
      assert.same(lrs, rates(opt))
      assert.equal(state, s:state_dict().last_epoch)
    end
  end)
end)

describe('steps and options', function()
  it('fractions are for warm restarts alone', function()
    local opt = single()
    for _, s in ipairs { S.StepLR(opt, 2), S.LinearLR(opt), S.SequentialLR(opt, { S.LinearLR(opt), S.ExponentialLR(opt, 0.9) }, { 3 }) } do
      H.fails_here(function() s:step(1.5) end, 'integer', '1.5')
      H.fails_here(function() s:step(0 / 0) end, 'integer', 'nan')
      H.fails_here(function() s:step(1 / 0) end, 'integer', 'inf')
    end
    local s = S.CosineAnnealingWarmRestarts(opt, 4)
    H.fails_here(function() s:step(-0.5) end, 'number', '-0.5')
    H.fails_here(function() s:step(0 / 0) end, 'number', 'nan')
    H.fails_here(function() s:step 'x' end, 'number', 'x')
    local chain = S.ChainedScheduler { S.LinearLR(opt) }
    H.fails_here(function() chain:step(3) end, 'no step', '3')
  end)
  it('of every class: an unknown one names the closest', function()
    local opt = single()
    local good = {
      StepLR = { step_size = 1 }, MultiStepLR = { milestones = { 1 } }, ExponentialLR = { gamma = 1 }, CosineAnnealingLR = { T_max = 1 }, LinearLR = {},
      ConstantLR = {}, PolynomialLR = {}, CosineAnnealingWarmRestarts = { T_0 = 1 }, CyclicLR = { base_lr = 1, max_lr = 2 },
      OneCycleLR = { max_lr = 1, total_steps = 5 }, LambdaLR = { lr_lambda = math.abs }, MultiplicativeLR = { lr_lambda = math.abs }, ReduceLROnPlateau = {},
      SequentialLR = { schedulers = { S.LinearLR(opt) }, milestones = {} },
    }
    for name, o in pairs(good) do
      S[name](opt, o)
      local known = next(o) or 'factor'
      if name == 'LinearLR' then known = 'start_factor' elseif name == 'PolynomialLR' then known = 'power' end
      local bad = {}
      for k, v in pairs(o) do bad[k] = v end
      bad[known .. 'x'] = 1
      H.fails_here(function() S[name](opt, bad) end, known .. 'x', "'" .. known .. "'")
      bad[known .. 'x'] = nil
      bad.verbose = true
      H.fails_here(function() S[name](opt, bad) end, 'verbose', 'print')
    end
    H.fails_here(function() S.ChainedScheduler { schedulers = { S.LinearLR(opt) }, optimiser = opt } end, 'optimiser', "'optimizer'")
    H.fails_here(function() S.ChainedScheduler { S.ReduceLROnPlateau(opt) } end, 'ReduceLROnPlateau', 'metric')
  end)
  it('of a wrong type are refused by name', function()
    local opt = single()
    for name, v in pairs { div_factor = 0, final_div_factor = 'x', base_momentum = 'x', max_momentum = {}, three_phase = 1, cycle_momentum = 'no',
      pct_start = 'x' } do
      H.fails_here(function() S.OneCycleLR(opt, { max_lr = 1, total_steps = 5, [name] = v }) end, name)
    end
    for name, v in pairs { base_momentum = 'x', cycle_momentum = 1, scale_mode = 'x', step_size_down = 0 } do
      H.fails_here(function() S.CyclicLR(opt, { base_lr = 1, max_lr = 2, [name] = v }) end, name)
    end
    H.fails_here(function() S.OneCycleLR(opt, { max_lr = 1, epochs = 'x', steps_per_epoch = 3 }) end, 'epochs', 'x')
    H.fails_here(function() S.ReduceLROnPlateau(opt, { min_lr = { 'x' } }) end, 'min_lr', 'x')
    H.fails_here(function() S.StepLR(opt, { step_size = 1, last_epoch = 3 }) end, 'last_epoch', 'load_state_dict')
  end)
end)

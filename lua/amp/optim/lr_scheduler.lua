--- Learning rate schedules. Each is made on an optimizer (or any table with param_groups),
-- sets its first rate at once, and `sched:step()` goes to the next:
--   StepLR(opt, {step_size, gamma = 0.1})          MultiStepLR(opt, {milestones, gamma = 0.1})
--   ExponentialLR(opt, {gamma})                    CosineAnnealingLR(opt, {T_max, eta_min = 0})
--   LinearLR(opt, {start_factor = 1/3, end_factor = 1, total_iters = 5})    (warm-up)
--   OneCycleLR(opt, {max_lr, total_steps, pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25,
--     final_div_factor = 1e4, three_phase = false, cycle_momentum = true, base_momentum = 0.85, max_momentum = 0.95})
--   LambdaLR(opt, {lr_lambda})                     SequentialLR(opt, {schedulers, milestones})
--   MultiplicativeLR(opt, {lr_lambda})             ChainedScheduler({schedulers})    (all stepped at once)
--   ConstantLR(opt, {factor = 1/3, total_iters = 5})         PolynomialLR(opt, {total_iters = 5, power = 1})
--   CosineAnnealingWarmRestarts(opt, {T_0, T_mult = 1, eta_min = 0})
--   CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5})
--   CyclicLR(opt, {base_lr, max_lr, step_size_up = 2000, step_size_down, mode = 'triangular', gamma = 1, scale_fn,
--     scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9})
--   ReduceLROnPlateau(opt, {mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4,
--     threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8})   and `sched:step(metric)`
-- Options may stand in their places too, in PyTorch's order: StepLR(opt, 30, 0.5), SequentialLR(opt, {a, b}, {30}).
-- Rates are closed forms of the step count, so a resumed run repeats them exactly. Schedules stepped
-- one after the other on one optimizer multiply, and a rate edited by hand is gone on from, except
-- under OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts, LambdaLR and SequentialLR, which set what they say.
-- Under a scaler hold the schedule back where the step was skipped:
--   scaler:step(opt); local skipped = scaler:found_inf(opt); scaler:update()
--   if not skipped then sched:step() end
-- @module amp.optim.lr_scheduler
local err = require 'amp.error'
local options = require 'amp.options'
local util = require 'amp.util'
local warn = require 'amp.core.warn'

local M = {}

local Scheduler = {}
Scheduler.__index = Scheduler

local function check_optimizer(op, opt)
  if type(opt) ~= 'table' or type(opt.param_groups) ~= 'table' then
    err.throw(op, 'the first argument must be an optimizer, got %s', util.show(opt))
  end
  for i, g in ipairs(opt.param_groups) do
    if type(g.lr) ~= 'number' then err.throw(op, 'group %d of the optimizer has no lr', i) end
  end
end

local function number(op, o, name, low, integer)
  local v = o[name]
  if type(v) ~= 'number' or v ~= v or (low and v < low) or (integer and v % 1 ~= 0) then
    err.throw(op, '%s must be %s%s, got %s', name, integer and 'an integer' or 'a number', low and (' of at least ' .. low) or '', util.show(v))
  end
  return v
end

--- Rates now, one a group.
function Scheduler:get_last_lr()
  local out = {}
  for i, g in ipairs(self.optimizer.param_groups) do out[i] = g.lr end
  return out
end

-- The base rates of groups that were added since the last step: what they were given, unless the class says otherwise (`added`, which may raise).
local function admit(self, before)
  local groups = self.optimizer.param_groups
  for i = #self.base_lrs + 1, #groups do
    local g = groups[i]
    local base = self.added and self:added(g, i, before) or g.initial_lr or g.lr
    g.initial_lr, self.base_lrs[i] = base, base
  end
end

-- Go to step n. Where a rate is not what the closed form said at step `before` (-1: the base) somebody else moved it, the user or
-- another schedule, or its group is new: it changes by as much as the closed form.
local function apply(self, n, before)
  local groups, bases, absolute = self.optimizer.param_groups, self.base_lrs, self.absolute
  local count = #groups
  local targets = count > 1 and {} or nil
  for i = 1, count do
    local g, base = groups[i], bases[i]
    local target, lr = self:rate(base, n, g, i), g.lr
    local was = before and not absolute and (before < 0 and base or self:rate(base, before, g, i)) or lr
    if lr ~= was then
      local low = self.options.eta_min or 0
      target = was == low and lr + target - was or low + (lr - low) * (target - low) / (was - low)
    end
    if targets then targets[i] = target else g.lr = target end
  end
  if targets then -- none, where one raised
    for i = 1, count do groups[i].lr = targets[i] end
  end
  self.last_epoch = n
end

--- Go to the next rate (or to that of a given step).
-- @tparam ?number epoch an integer; a fraction of a step for CosineAnnealingWarmRestarts
-- @return self
function Scheduler:step(epoch)
  if epoch ~= nil and (type(epoch) ~= 'number' or not (epoch >= 0 and epoch < math.huge) or epoch % 1 ~= 0 and not self.fractions) then
    err.throw(self.op .. '.step', self.fractions and 'a step is a number from 0, got %s' or 'a step is an integer from 0, got %s', util.show(epoch))
  end
  if self.optimizer._calls == 0 and epoch == nil and self.last_epoch == 0 then
    warn.once(('%s: sched:step() came before the first opt:step(), so the first rate is skipped; call it after')
      :format(self.op), 'scheduler before optimizer')
  end
  local before = self.last_epoch
  if #self.base_lrs < #self.optimizer.param_groups then admit(self, before) end
  apply(self, epoch or before + 1, epoch == nil and before or nil)
  return self
end

--- Where the schedule stands, as plain numbers.
function Scheduler:state_dict()
  local s = { last_epoch = self.last_epoch, base_lrs = { unpack(self.base_lrs) }, lrs = self:get_last_lr() }
  return s
end

-- A field of a state that counts something.
local function count(op, s, name, fractions)
  local v = s[name]
  if type(v) ~= 'number' or not (v >= 0 and v < math.huge) or v % 1 ~= 0 and not fractions then
    err.throw(op, '%s of the state must be %s from 0, got %s', name, fractions and 'a number' or 'an integer', util.show(v))
  end
end

-- A field of a state with a rate for each group.
local function rates(op, s, name, groups)
  local list = s[name]
  if type(list) ~= 'table' then err.throw(op, '%s of the state must be a list of rates, got %s', name, util.show(list)) end
  if #list ~= groups then err.throw(op, '%s of the state is of %d groups, the optimizer has %d', name, #list, groups) end
  for i = 1, groups do
    local v = list[i]
    if type(v) ~= 'number' or v ~= v then err.throw(op, '%s of the state has %s for group %d', name, util.show(v), i) end
  end
end

-- Raises unless s can be loaded.
function Scheduler:check_state(op, s)
  if type(s) ~= 'table' or s.last_epoch == nil or s.base_lrs == nil then
    err.throw(op, "a scheduler's state has last_epoch and base_lrs, got %s", util.show(s))
  end
  local groups = #self.optimizer.param_groups
  count(op, s, 'last_epoch', self.fractions)
  rates(op, s, 'base_lrs', groups)
  if s.lrs ~= nil then rates(op, s, 'lrs', groups) end
end

--- Go on from a state dict; sets the rates.
-- @return self
function Scheduler:load_state_dict(s)
  self:check_state(self.op .. '.load_state_dict', s)
  self.last_epoch = s.last_epoch
  self.base_lrs = { unpack(s.base_lrs) }
  for i, g in ipairs(self.optimizer.param_groups) do
    g.initial_lr = s.base_lrs[i]
    if s.lrs then g.lr = s.lrs[i] end
  end
  return self
end

-- "lr_scheduler.StepLR (step 3, lr 0.1: gamma = 0.5, step_size = 10)"; long lists are cut.
function Scheduler.text(self)
  local function short(v)
    if type(v) == 'function' then return 'a function' end
    if type(v) == 'number' then return ('%.6g'):format(v) end
    if type(v) ~= 'table' then return tostring(v) end
    if v.op then return v.op end
    local list = {}
    for i = 1, math.min(#v, 6) do list[i] = short(v[i]) end
    if #v > 6 then list[7] = '...' end
    return '{' .. table.concat(list, ', ') .. '}'
  end
  local parts, lrs = {}, self:get_last_lr()
  for _, k in ipairs(util.keys(self.options)) do parts[#parts + 1] = k .. ' = ' .. short(self.options[k]) end
  return ('%s (step %s, lr %s%s)'):format(self.op, short(self.last_epoch), short(#lrs == 1 and lrs[1] or lrs),
    #parts > 0 and ': ' .. table.concat(parts, ', ') or '')
end

local refused = {
  last_epoch = 'load_state_dict goes on from a saved place, sched:step(n) goes to step n',
  verbose = 'print(sched) says where it stands',
}

-- A class: names of the options in the order of their places, defaults, a check, and rate(self, base, step, group, index).
-- absolute: a rate is set whatever it was before. Fields it may get: added(self, group, index, before), the base rate of a group that
-- was added at step `before`; fractions, whether there are steps between whole ones.
local function define(name, known, defaults, setup, rate, absolute)
  local op = 'lr_scheduler.' .. name
  known.refused = refused
  local class = setmetatable({ op = op, rate = rate, absolute = absolute, __tostring = Scheduler.text }, Scheduler)
  class.__index = class
  M[name] = setmetatable(class, {
    __index = Scheduler,
    __call = function(_, opt, ...)
      check_optimizer(op, opt)
      local o = options.arguments(op, known, 0, defaults, ...)
      local self = setmetatable({ optimizer = opt, last_epoch = 0, base_lrs = {}, options = o }, class)
      if setup then setup(self, op, o) end
      for i, g in ipairs(opt.param_groups) do
        if g.initial_lr == nil then g.initial_lr = g.lr end
        self.base_lrs[i] = g.initial_lr
      end
      apply(self, 0, -1)
      return self
    end,
  })
  return class
end

-- -- Closed forms ----------------------------------------------------------------------

define('StepLR', { 'step_size', 'gamma' }, { gamma = 0.1 }, function(_, op, o)
  number(op, o, 'step_size', 1, true)
  number(op, o, 'gamma', 0)
end, function(self, base, n)
  return base * self.options.gamma ^ math.floor(n / self.options.step_size)
end)

local function check_milestones(op, list)
  if type(list) ~= 'table' then err.throw(op, 'milestones must be a list of integers, got %s', util.show(list)) end
  err.list(op, list, 'milestones')
  for i = 1, #list do
    local v = list[i]
    if type(v) ~= 'number' or v % 1 ~= 0 or v < 0 or i > 1 and v < list[i - 1] then
      err.throw(op, 'milestones must be integers in ascending order; number %d is %s', i, util.show(v))
    end
  end
end

define('MultiStepLR', { 'milestones', 'gamma' }, { gamma = 0.1 }, function(_, op, o)
  check_milestones(op, o.milestones)
  number(op, o, 'gamma', 0)
end, function(self, base, n)
  local passed = 0
  for _, m in ipairs(self.options.milestones) do
    if n >= m then passed = passed + 1 end
  end
  return base * self.options.gamma ^ passed
end)

define('ExponentialLR', { 'gamma' }, {}, function(_, op, o)
  number(op, o, 'gamma', 0)
end, function(self, base, n)
  return base * self.options.gamma ^ n
end)

define('CosineAnnealingLR', { 'T_max', 'eta_min' }, { eta_min = 0 }, function(_, op, o)
  number(op, o, 'T_max', 1)
  number(op, o, 'eta_min')
end, function(self, base, n)
  local o = self.options
  return o.eta_min + (base - o.eta_min) * (1 + math.cos(math.pi * n / o.T_max)) / 2
end)

define('LinearLR', { 'start_factor', 'end_factor', 'total_iters' }, { start_factor = 1 / 3, end_factor = 1, total_iters = 5 },
  function(_, op, o)
    number(op, o, 'start_factor', 0)
    number(op, o, 'end_factor', 0)
    number(op, o, 'total_iters', 1, true)
    if o.start_factor == 0 or o.start_factor > 1 then err.throw(op, 'start_factor must be in (0, 1], got %g', o.start_factor) end
    if o.end_factor > 1 then err.throw(op, 'end_factor must be in [0, 1], got %g', o.end_factor) end
  end, function(self, base, n)
    local o = self.options
    return base * (o.start_factor + (o.end_factor - o.start_factor) * math.min(n, o.total_iters) / o.total_iters)
  end)

-- A new group has no function of its own where there is a list of them.
local function needs_function(self, _, i)
  local f = self.options.lr_lambda
  if type(f) == 'table' and f[i] == nil then
    err.throw(self.op, 'parameter group %d was added after the schedule was made, and lr_lambda has %d functions; add one: sched.options.lr_lambda[%d] = f, '
      .. 'or give one function for all groups', i, #f, i)
  end
end

define('LambdaLR', { 'lr_lambda' }, {}, function(self, op, o)
  local f = o.lr_lambda
  if type(f) == 'table' then
    if #f ~= #self.optimizer.param_groups then
      err.throw(op, '%d functions for %d parameter groups', #f, #self.optimizer.param_groups)
    end
    for i = 1, #f do
      if type(f[i]) ~= 'function' then err.throw(op, 'lr_lambda %d must be a function of the step, got %s', i, util.show(f[i])) end
    end
  elseif type(f) ~= 'function' then
    err.throw(op, 'lr_lambda must be a function of the step, or a list of them, got %s', util.show(f))
  end
end, function(self, base, n, _, i)
  local f = self.options.lr_lambda
  return base * (type(f) == 'table' and f[i] or f)(n)
end, true).added = needs_function

-- -- Schedules after one another -----------------------------------------------------------

local Sequential = define('SequentialLR', { 'schedulers', 'milestones' }, {}, function(self, op, o)
  if type(o.schedulers) == 'table' then err.list(op, o.schedulers, 'schedulers') end
  if type(o.schedulers) ~= 'table' or #o.schedulers == 0 then
    err.throw(op, 'schedulers must be a list of schedulers, got %s', util.show(o.schedulers))
  end
  check_milestones(op, o.milestones)
  if #o.milestones ~= #o.schedulers - 1 then
    err.throw(op, '%d schedulers need %d milestones, got %d', #o.schedulers, #o.schedulers - 1, #o.milestones)
  end
  for i, s in ipairs(o.schedulers) do
    if type(s) ~= 'table' or type(s.rate) ~= 'function' then
      err.throw(op, 'scheduler %d has no closed form to join (%s)', i, type(s) == 'table' and s.op or util.show(s))
    end
    if s.optimizer ~= self.optimizer then err.throw(op, 'scheduler %d is of another optimizer', i) end
  end
end, function(self, _, n, g, i)
  local which, start = self:at(n)
  local s = self.options.schedulers[which]
  s.last_epoch = n - start
  return s:rate(s.base_lrs[i], n - start, g, i)
end, true)

-- Which schedule has step n, and the step it begins at.
function Sequential:at(n)
  local which, start = 1, 0
  for k, m in ipairs(self.options.milestones) do
    if n >= m then which, start = k + 1, m end
  end
  return which, start
end

function Sequential:rate_of(base, n, g, i)
  local which, start = self:at(n)
  return self.options.schedulers[which]:rate(base, n - start, g, i)
end

-- A new group goes on from the rate it was given, in proportion: its base is the one that has this rate at the step before. (A rate
-- is a number more than a multiple of its base.)
function Sequential:added(g, i, before)
  local lr, inner = g.lr, self.options.schedulers
  for _, s in ipairs(inner) do
    if s.added then s:added(g, i, before) end
  end
  local none, one = self:rate_of(0, before, g, i), self:rate_of(1, before, g, i)
  local base = one ~= none and (lr - none) / (one - none) or lr
  for _, s in ipairs(inner) do s.base_lrs[i] = base end
  return base
end

function Sequential:state_dict()
  local s = Scheduler.state_dict(self)
  s.schedulers = {}
  for i, inner in ipairs(self.options.schedulers) do s.schedulers[i] = inner:state_dict() end
  return s
end

-- The states of the schedules inside another one; they may be left out.
local function check_inner(op, list, states)
  if type(states) ~= 'table' or #states ~= #list then
    err.throw(op, 'the state of %d schedulers is expected, got %s', #list, type(states) == 'table' and 'that of ' .. #states or util.show(states))
  end
  for i, inner in ipairs(list) do
    if inner.check_state then inner:check_state(op, states[i]) end
  end
end

function Sequential:check_state(op, s)
  Scheduler.check_state(self, op, s)
  if s.schedulers ~= nil then check_inner(op, self.options.schedulers, s.schedulers) end
end

function Sequential:load_state_dict(s)
  Scheduler.load_state_dict(self, s)
  for i, inner in ipairs(self.options.schedulers) do
    if s.schedulers then
      inner.last_epoch = s.schedulers[i].last_epoch
      inner.base_lrs = { unpack(s.schedulers[i].base_lrs) }
    end
  end
  return self
end

M.define, M.Scheduler, M.check_optimizer, M.number = define, Scheduler, check_optimizer, number
M.count, M.rates, M.check_inner, M.needs_function = count, rates, check_inner, needs_function
require 'amp.optim.lr_cycles'(M)
require 'amp.optim.lr_onecycle'(M)
require 'amp.optim.lr_chained'(M)
require 'amp.optim.lr_plateau'(M)
M.define, M.Scheduler, M.check_optimizer, M.number = nil, nil, nil, nil
M.count, M.rates, M.check_inner, M.needs_function, M.each, M.value_of = nil, nil, nil, nil, nil, nil

local _, family = require('amp.core.class').guard(Scheduler, 'optim.lr_scheduler', 'scheduler')
for name, class in pairs(M) do
  family.ours[class] = true
  require('amp.core.class').instance(class)
  local rate = rawget(class, 'rate') -- what `step` asks twice for each group
  require('amp.core.class').guard(class, 'optim.lr_scheduler.' .. name, 'scheduler')
  rawset(class, 'rate', rate)
end

return setmetatable(M, {
  __index = function(_, k)
    local names = util.keys(M)
    err.throw(nil, "amp.optim.lr_scheduler has no '%s'%s (there are %s)", tostring(k), util.hint(k, names), table.concat(names, ', '))
  end,
})

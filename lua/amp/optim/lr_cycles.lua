--- Schedules that repeat, and three short ones: ConstantLR, PolynomialLR, CosineWithWarmup,
-- CosineAnnealingWarmRestarts, CyclicLR. Called by amp.optim.lr_scheduler with its module table.
-- @module amp.optim.lr_cycles
local err = require 'amp.error'
local options = require 'amp.options'
local util = require 'amp.util'

return function(M)
  local define, number = M.define, M.number

  define('ConstantLR', { 'factor', 'total_iters' }, { factor = 1 / 3, total_iters = 5 }, function(_, op, o)
    number(op, o, 'factor', 0)
    number(op, o, 'total_iters', 0, true)
    if o.factor > 1 then err.throw(op, 'factor must be in [0, 1], got %g', o.factor) end
  end, function(self, base, n)
    local o = self.options
    return n < o.total_iters and base * o.factor or base
  end)

  define('PolynomialLR', { 'total_iters', 'power' }, { total_iters = 5, power = 1 }, function(_, op, o)
    number(op, o, 'total_iters', 1, true)
    number(op, o, 'power', 0)
  end, function(self, base, n)
    local o = self.options
    return base * (1 - math.min(n, o.total_iters) / o.total_iters) ^ o.power
  end)

  --- CosineWithWarmup(opt, {warmup_steps = 0, total_steps, num_cycles = 0.5}): a line from 0 to the full rate over the
  -- first warmup_steps, then (1 + cos(2 pi num_cycles x)) / 2 of it, x going from 0 to 1 at total_steps; from there on
  -- what it is at 1.
  define('CosineWithWarmup', { 'warmup_steps', 'total_steps', 'num_cycles' }, { warmup_steps = 0, num_cycles = 0.5 }, function(_, op, o)
    number(op, o, 'warmup_steps', 0, true)
    number(op, o, 'total_steps', 1, true)
    number(op, o, 'num_cycles', 0)
    if o.warmup_steps > o.total_steps then
      err.throw(op, 'warmup_steps is %d, must not be more than total_steps, which is %d', o.warmup_steps, o.total_steps)
    end
  end, function(self, base, n)
    local o = self.options
    local warm = o.warmup_steps
    if n < warm then return base * n / warm end
    local x = o.total_steps > warm and math.min((n - warm) / (o.total_steps - warm), 1) or n < o.total_steps and 0 or 1
    return base * math.max(0, (1 + math.cos(2 * math.pi * o.num_cycles * x)) / 2)
  end)

  define('CosineAnnealingWarmRestarts', { 'T_0', 'T_mult', 'eta_min' }, { T_mult = 1, eta_min = 0 }, function(_, op, o)
    number(op, o, 'T_0', 1, true)
    number(op, o, 'T_mult', 1, true)
    number(op, o, 'eta_min')
  end, function(self, base, n)
    local o = self.options
    local length = o.T_0
    if o.T_mult == 1 then n = n % length end
    while n >= length do n, length = n - length, length * o.T_mult end
    return o.eta_min + (base - o.eta_min) * (1 + math.cos(math.pi * n / length)) / 2
  end, true).fractions = true

  -- one value a group
  local function each(op, o, name, groups)
    local v = o[name]
    if type(v) == 'number' then
      v = {}
      for i = 1, #groups do v[i] = o[name] end
    end
    if type(v) ~= 'table' or #v ~= #groups then err.throw(op, '%s must be a number or one a group, got %s', name, util.show(o[name])) end
    for i = 1, #v do
      if type(v[i]) ~= 'number' then err.throw(op, '%s must be a number or one a group, got %s for group %d', name, util.show(v[i]), i) end
    end
    return v
  end

  -- The value of a group: a number is every group's, of a list a new group has none.
  local function value_of(self, name, list, i)
    if list[i] == nil then
      local v = self.options[name]
      if type(v) ~= 'number' then
        err.throw(self.op, 'parameter group %d was added after the schedule was made, and %s has %d values; make the schedule anew, with one a group, '
          .. 'and go to its step: sched:step(%d)', i, name, #v, self.last_epoch + 1)
      end
      list[i] = v
    end
    return list[i]
  end
  M.each, M.value_of = each, value_of

  local modes = { triangular = true, triangular2 = true, exp_range = true }

  define('CyclicLR', { 'base_lr', 'max_lr', 'step_size_up', 'step_size_down', 'mode', 'gamma', 'scale_fn', 'scale_mode', 'cycle_momentum',
    'base_momentum', 'max_momentum' },
    { step_size_up = 2000, mode = 'triangular', gamma = 1, scale_mode = 'cycle', cycle_momentum = true, base_momentum = 0.8, max_momentum = 0.9 },
    function(self, op, o)
      local groups = self.optimizer.param_groups
      local bottoms = each(op, o, 'base_lr', groups)
      self.bottoms = bottoms
      self.tops = each(op, o, 'max_lr', groups)
      number(op, o, 'step_size_up', 1)
      if o.step_size_down == nil then o.step_size_down = o.step_size_up end
      number(op, o, 'step_size_down', 1)
      number(op, o, 'gamma', 0)
      number(op, o, 'base_momentum', 0)
      number(op, o, 'max_momentum', 0)
      options.boolean(op, 'cycle_momentum', o.cycle_momentum)
      if not modes[o.mode] then err.throw(op, "mode must be 'triangular', 'triangular2' or 'exp_range', got %s", util.show(o.mode)) end
      if o.scale_fn ~= nil and type(o.scale_fn) ~= 'function' then err.throw(op, 'scale_fn must be a function of a number, got %s', util.show(o.scale_fn)) end
      if o.scale_mode ~= 'cycle' and o.scale_mode ~= 'iterations' then
        err.throw(op, "scale_mode must be 'cycle' or 'iterations', got %s", util.show(o.scale_mode))
      end
      for i, g in ipairs(groups) do
        g.initial_lr = bottoms[i]
        if o.cycle_momentum and rawget(g, 'momentum') == nil and rawget(g, 'betas') == nil then
          err.throw(op, 'cycle_momentum needs an optimizer with momentum or betas; give cycle_momentum = false')
        end
      end
    end, function(self, base, n, g, i)
      local o = self.options
      local whole = o.step_size_up + o.step_size_down
      local up = o.step_size_up / whole
      local cycle = math.floor(1 + n / whole)
      local x = 1 + n / whole - cycle
      local height = x <= up and x / up or (x - 1) / (up - 1)
      if o.scale_fn then height = height * o.scale_fn(o.scale_mode == 'cycle' and cycle or n)
      elseif o.mode == 'triangular2' then height = height / 2 ^ (cycle - 1)
      elseif o.mode == 'exp_range' then height = height * o.gamma ^ n end
      if o.cycle_momentum then
        local m = o.max_momentum - (o.max_momentum - o.base_momentum) * height
        if rawget(g, 'betas') then g.betas = { m, g.betas[2] } else g.momentum = m end
      end
      return base + (self.tops[i] - base) * height
    end, true).added = function(self, _, i)
      value_of(self, 'max_lr', self.tops, i)
      return value_of(self, 'base_lr', self.bottoms, i)
    end
end

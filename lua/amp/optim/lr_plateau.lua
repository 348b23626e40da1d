--- ReduceLROnPlateau: smaller rates when a metric stops to improve.
-- Called by amp.optim.lr_scheduler with its module table.
-- @module amp.optim.lr_plateau
local err = require 'amp.error'
local is_tensor = require('amp.core.library').is_tensor
local options = require 'amp.options'
local util = require 'amp.util'

return function(M)
  local Scheduler, check_optimizer, number, count, rates = M.Scheduler, M.check_optimizer, M.number, M.count, M.rates

  local Plateau = {}
  Plateau.__index = Plateau
  Plateau.__tostring = Scheduler.text
  Plateau.op = 'lr_scheduler.ReduceLROnPlateau'
  Plateau.get_last_lr = Scheduler.get_last_lr
  local kept = { 'last_epoch', 'best', 'bad', 'cooling' }
  local names = { 'mode', 'factor', 'patience', 'threshold', 'threshold_mode', 'cooldown', 'min_lr', 'eps' }
  names.refused = { verbose = 'print(sched) says where it stands' }
  local defaults = { mode = 'min', factor = 0.1, patience = 10, threshold = 1e-4, threshold_mode = 'rel', cooldown = 0, min_lr = 0, eps = 1e-8 }

  M.ReduceLROnPlateau = setmetatable(Plateau, {
    __call = function(_, opt, ...)
      local op = Plateau.op
      check_optimizer(op, opt)
      local o = options.arguments(op, names, 0, defaults, ...)
      if o.mode ~= 'min' and o.mode ~= 'max' then err.throw(op, "mode must be 'min' or 'max', got %s", util.show(o.mode)) end
      if o.threshold_mode ~= 'rel' and o.threshold_mode ~= 'abs' then
        err.throw(op, "threshold_mode must be 'rel' or 'abs', got %s", util.show(o.threshold_mode))
      end
      number(op, o, 'factor', 0)
      if o.factor >= 1 then err.throw(op, 'factor must be below 1, got %g', o.factor) end
      number(op, o, 'patience', 0, true)
      number(op, o, 'cooldown', 0, true)
      number(op, o, 'threshold', 0)
      number(op, o, 'eps', 0)
      if type(o.min_lr) ~= 'table' then number(op, o, 'min_lr', 0)
      elseif #o.min_lr ~= #opt.param_groups then err.throw(op, 'min_lr has %d values, the optimizer %d groups', #o.min_lr, #opt.param_groups) end
      for i = 1, type(o.min_lr) == 'table' and #o.min_lr or 0 do
        if type(o.min_lr[i]) ~= 'number' then err.throw(op, 'min_lr of group %d must be a number, got %s', i, util.show(o.min_lr[i])) end
      end
      return setmetatable({ optimizer = opt, options = o, last_epoch = 0, bad = 0, cooling = 0,
        best = o.mode == 'min' and math.huge or -math.huge }, Plateau)
    end,
  })

  local function better(self, v)
    local o, best = self.options, self.best
    local margin = o.threshold_mode == 'abs' and o.threshold or o.threshold * math.abs(best)
    if math.abs(best) == math.huge then margin = 0 end
    if o.mode == 'min' then return v < best - margin end
    return v > best + margin
  end

  --- Look at a metric: after `patience` looks without progress the rates are multiplied by `factor`.
  -- @param metric a number, or a tensor of one element (then this waits for it)
  -- @return self
  function Plateau:step(metric)
    if is_tensor(metric) then metric = metric:item() end
    if type(metric) ~= 'number' then err.throw(self.op .. '.step', 'takes the metric, a number, got %s', util.show(metric)) end
    local o, groups = self.options, #self.optimizer.param_groups
    if type(o.min_lr) == 'table' and #o.min_lr < groups then
      err.throw(self.op .. '.step', 'parameter group %d was added after the schedule was made, and min_lr has %d values; '
        .. 'add one: sched.options.min_lr[%d] = 0, or give one number for all groups', groups, #o.min_lr, groups)
    end
    self.last_epoch = self.last_epoch + 1
    if better(self, metric) then
      self.best, self.bad = metric, 0
    else
      self.bad = self.bad + 1
    end
    if self.cooling > 0 then self.cooling, self.bad = self.cooling - 1, 0 end
    if self.bad > o.patience then
      for i, g in ipairs(self.optimizer.param_groups) do
        local low = type(o.min_lr) == 'table' and o.min_lr[i] or o.min_lr
        local lr = math.max(g.lr * o.factor, low)
        if g.lr - lr > o.eps then g.lr = lr end
      end
      self.cooling, self.bad = o.cooldown, 0
    end
    return self
  end

  function Plateau:state_dict()
    local s = { lrs = self:get_last_lr() }
    for _, k in ipairs(kept) do s[k] = self[k] end
    return s
  end

  function Plateau:check_state(op, s)
    if type(s) ~= 'table' or type(s.best) ~= 'number' then
      err.throw(op, 'the state of %s has its best metric, got %s', self.op, type(s) == 'table' and 'best = ' .. util.show(s.best) or util.show(s))
    end
    for _, k in ipairs { 'last_epoch', 'bad', 'cooling' } do count(op, s, k) end
    if s.lrs ~= nil then rates(op, s, 'lrs', #self.optimizer.param_groups) end
  end

  function Plateau:load_state_dict(s)
    self:check_state(self.op .. '.load_state_dict', s)
    for _, k in ipairs(kept) do self[k] = s[k] end
    for i, g in ipairs(self.optimizer.param_groups) do
      if s.lrs then g.lr = s.lrs[i] end
    end
    return self
  end
end

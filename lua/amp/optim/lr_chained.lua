--- Schedules that multiply: MultiplicativeLR, and ChainedScheduler, which steps several at once.
-- Called by amp.optim.lr_scheduler with its module table.
-- @module amp.optim.lr_chained
local err = require 'amp.error'
local options = require 'amp.options'
local util = require 'amp.util'

return function(M)
  local check_inner, needs_function = M.check_inner, M.needs_function

  --- MultiplicativeLR(opt, {lr_lambda}): at step n the rate of the step before times lr_lambda(n); one function,
  -- or one a parameter group. Each is asked once for each step.
  M.define('MultiplicativeLR', { 'lr_lambda' }, {}, function(self, op, o)
    local f = o.lr_lambda
    if type(f) == 'table' and #f ~= #self.optimizer.param_groups then
      err.throw(op, '%d functions for %d parameter groups', #f, #self.optimizer.param_groups)
    elseif type(f) ~= 'function' and type(f) ~= 'table' then
      err.throw(op, 'lr_lambda must be a function of the step, or a list of them, got %s', util.show(f))
    end
    for i = 1, type(f) == 'table' and #f or 0 do
      if type(f[i]) ~= 'function' then err.throw(op, 'lr_lambda %d must be a function of the step, got %s', i, util.show(f[i])) end
    end
    self.products = {}
  end, function(self, base, n, _, i)
    local f = self.options.lr_lambda
    if type(f) == 'table' then f = f[i] end
    local p = self.products[i] or { [0] = 1 }
    self.products[i] = p
    for k = #p + 1, n do p[k] = p[k - 1] * f(k) end
    return base * p[n]
  end).added = needs_function

  -- -- Several at once -----------------------------------------------------------------

  local Chained = { op = 'lr_scheduler.ChainedScheduler' }
  Chained.__index = Chained

  --- Step each schedule, the first one first; their factors multiply.
  -- @return self
  function Chained:step(epoch)
    if epoch ~= nil then err.throw(Chained.op .. '.step', 'takes no step or metric, got %s; step the schedules one by one', util.show(epoch)) end
    for _, s in ipairs(self.schedulers) do s:step() end
    return self
  end

  function Chained:get_last_lr() return self.schedulers[1]:get_last_lr() end

  function Chained:state_dict()
    local list = {}
    for i, s in ipairs(self.schedulers) do list[i] = s:state_dict() end
    return { schedulers = list }
  end

  function Chained:check_state(op, state)
    local list = state
    if type(state) == 'table' then list = state.schedulers end
    check_inner(op, self.schedulers, list)
  end

  function Chained:load_state_dict(state)
    self:check_state(Chained.op .. '.load_state_dict', state)
    for i, s in ipairs(self.schedulers) do s:load_state_dict(state.schedulers[i]) end
    return self
  end

  function Chained.__tostring(self)
    local names = {}
    for i, s in ipairs(self.schedulers) do names[i] = s.op end
    return ('%s (%s)'):format(Chained.op, table.concat(names, ', '))
  end

  --- ChainedScheduler({schedulers}): one step() for schedules of one optimizer.
  -- @usage local sched = lr_scheduler.ChainedScheduler { lr_scheduler.LinearLR(opt), lr_scheduler.ExponentialLR(opt, 0.9) }
  M.ChainedScheduler = setmetatable(Chained, { __call = function(_, list, optimizer)
    local op = Chained.op
    if type(list) == 'table' and list.param_groups ~= nil then
      err.throw(op, 'a list of schedulers comes first; they know the optimizer: ChainedScheduler{a, b}')
    end
    if type(list) == 'table' then
      local o = {}
      for k, v in pairs(list) do
        if type(k) ~= 'number' then o[k] = v end
      end
      o = options.read(op, o, { 'schedulers', 'optimizer' }, {})
      list, optimizer = o.schedulers or list, optimizer or o.optimizer
    end
    if type(list) ~= 'table' or #list == 0 then err.throw(op, 'a list of schedulers is expected, got %s', util.show(list)) end
    for i, s in ipairs(list) do
      if type(s) ~= 'table' or type(s.step) ~= 'function' or type(s.optimizer) ~= 'table' then
        err.throw(op, 'element %d must be a scheduler, got %s', i, util.show(s))
      end
      if type(s.rate) ~= 'function' then err.throw(op, '%s is stepped by its metric, not in a chain; step it by itself', s.op or 'a scheduler') end
      if s.optimizer ~= (optimizer or list[1].optimizer) then err.throw(op, 'scheduler %d is of another optimizer', i) end
    end
    return setmetatable({ schedulers = { unpack(list) }, optimizer = list[1].optimizer }, Chained)
  end })
end

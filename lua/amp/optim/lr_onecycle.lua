--- OneCycleLR: up to a top rate, down again, and far below; momentum goes the other way.
-- Called by amp.optim.lr_scheduler with its module table.
-- @module amp.optim.lr_onecycle
local err = require 'amp.error'
local options = require 'amp.options'
local util = require 'amp.util'

return function(M)
  local define, number, each, value_of = M.define, M.number, M.each, M.value_of

  local function anneal(self, from, to, pct)
    if self.options.anneal_strategy == 'linear' then return from + (to - from) * pct end
    return to + (from - to) / 2 * (1 + math.cos(math.pi * pct))
  end

  -- where step n lies: from, to (1 initial, 2 top, 3 final) and the part gone
  local function phase(self, n)
    local o = self.options
    local first = o.pct_start * o.total_steps - 1
    local ends, marks
    if o.three_phase then
      ends, marks = { first, 2 * o.pct_start * o.total_steps - 2, o.total_steps - 1 }, { { 1, 2 }, { 2, 1 }, { 1, 3 } }
    else
      ends, marks = { first, o.total_steps - 1 }, { { 1, 2 }, { 2, 3 } }
    end
    local start = 0
    for i = 1, #ends do
      if n <= ends[i] or i == #ends then
        local length = ends[i] - start
        return marks[i], length > 0 and (n - start) / length or 1
      end
      start = ends[i]
    end
  end

  define('OneCycleLR', { 'max_lr', 'total_steps', 'epochs', 'steps_per_epoch', 'pct_start', 'anneal_strategy', 'cycle_momentum',
    'base_momentum', 'max_momentum', 'div_factor', 'final_div_factor', 'three_phase' },
    { pct_start = 0.3, anneal_strategy = 'cos', div_factor = 25, final_div_factor = 1e4, three_phase = false, cycle_momentum = true,
      base_momentum = 0.85, max_momentum = 0.95 },
    function(self, op, o)
      if o.total_steps == nil and o.epochs ~= nil and o.steps_per_epoch ~= nil then
        number(op, o, 'epochs', 1, true)
        number(op, o, 'steps_per_epoch', 1, true)
        o.total_steps = o.epochs * o.steps_per_epoch
      end
      number(op, o, 'total_steps', 1, true)
      number(op, o, 'pct_start', 0)
      if o.pct_start > 1 then err.throw(op, 'pct_start must be in [0, 1], got %g', o.pct_start) end
      if o.anneal_strategy ~= 'cos' and o.anneal_strategy ~= 'linear' then
        err.throw(op, "anneal_strategy must be 'cos' or 'linear', got %s", util.show(o.anneal_strategy))
      end
      for _, name in ipairs { 'div_factor', 'final_div_factor' } do
        if number(op, o, name, 0) == 0 then err.throw(op, '%s must be above 0, got 0', name) end
      end
      number(op, o, 'base_momentum', 0)
      number(op, o, 'max_momentum', 0)
      options.boolean(op, 'three_phase', o.three_phase)
      options.boolean(op, 'cycle_momentum', o.cycle_momentum)
      local groups = self.optimizer.param_groups
      local tops = each(op, o, 'max_lr', groups)
      self.tops = tops
      for i, g in ipairs(groups) do
        g.initial_lr = tops[i] / o.div_factor
        if o.cycle_momentum and rawget(g, 'momentum') == nil and rawget(g, 'betas') == nil then
          err.throw(op, 'cycle_momentum needs an optimizer with momentum or betas; give cycle_momentum = false')
        end
      end
    end, function(self, base, n, g, i)
      local o = self.options
      if n > o.total_steps then
        err.throw(self.op, 'step %d of a schedule of total_steps %d', n, o.total_steps)
      end
      local mark, pct = phase(self, n)
      local rates = { base, self.tops[i], base / o.final_div_factor }
      if o.cycle_momentum then
        local m = { o.max_momentum, o.base_momentum, o.max_momentum }
        local v = anneal(self, m[mark[1]], m[mark[2]], pct)
        if rawget(g, 'betas') then g.betas = { v, g.betas[2] } else g.momentum = v end
      end
      return anneal(self, rates[mark[1]], rates[mark[2]], pct)
    end, true).added = function(self, _, i) return value_of(self, 'max_lr', self.tops, i) / self.options.div_factor end
end

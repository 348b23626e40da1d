--- OneCycleLR: up to a top rate, down again, and far below; momentum goes the other way.
-- Called by amp.optim.lr_scheduler with its module table.
-- @module amp.optim.lr_onecycle
local err = require 'amp.error'
local util = require 'amp.util'

return function(M)
  local define, number = M.define, M.number

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
      if o.total_steps == nil and o.epochs and o.steps_per_epoch then o.total_steps = o.epochs * o.steps_per_epoch end
      number(op, o, 'total_steps', 1, true)
      number(op, o, 'pct_start', 0)
      if o.pct_start > 1 then err.throw(op, 'pct_start must be in [0, 1], got %g', o.pct_start) end
      if o.anneal_strategy ~= 'cos' and o.anneal_strategy ~= 'linear' then
        err.throw(op, "anneal_strategy must be 'cos' or 'linear', got %s", util.show(o.anneal_strategy))
      end
      local groups = self.optimizer.param_groups
      local tops = o.max_lr
      if type(tops) == 'number' then
        tops = {}
        for i = 1, #groups do tops[i] = o.max_lr end
      end
      if type(tops) ~= 'table' or #tops ~= #groups then err.throw(op, 'max_lr must be a number or one a group, got %s', util.show(o.max_lr)) end
      for i = 1, #tops do
        if type(tops[i]) ~= 'number' then err.throw(op, 'max_lr must be a number or one a group, got %s for group %d', util.show(tops[i]), i) end
      end
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
    end, true)
end

--- Criteria made of others, on Torch7's own tensors.
local classes = require 'amp.torch7.class'
local raise = require('amp.error').throw

return function(nn, torch)
  local function scaled(g, w)
    if type(g) == 'table' then
      local out = {}
      for k, v in pairs(g) do out[k] = scaled(v, w) end
      return out
    end
    return g:clone():mul(w)
  end
  local function several(name, init, pick, join)
    local C, parent = classes.class('nn.' .. name, 'nn.Criterion', nn)
    function C:__init(...)
      parent.__init(self)
      self.criterions, self.weights = {}, {}
      init(self, ...)
    end
    function C:add(criterion, weight)
      if not criterion then raise('nn.' .. name, 'a criterion expected, got nothing') end
      self.criterions[#self.criterions + 1] = criterion
      self.weights[#self.criterions] = weight or 1
      return self
    end
    function C:updateOutput(input, target)
      self.output = 0
      for i, c in ipairs(self.criterions) do
        local x, y = pick(self, i, input, target)
        self.output = self.output + self.weights[i] * c:updateOutput(x, y)
      end
      return self.output
    end
    function C:updateGradInput(input, target)
      local grads = {}
      for i, c in ipairs(self.criterions) do
        local x, y = pick(self, i, input, target)
        grads[i] = scaled(c:updateGradInput(x, y), self.weights[i])
      end
      self.gradInput = join(grads)
      return self.gradInput
    end
  end
  several('MultiCriterion', function() end, function(_, _, x, y) return x, y end, function(grads)
    local sum
    for _, g in ipairs(grads) do sum = nn.add_into(sum, g) end
    return sum
  end)
  several('ParallelCriterion', function(self, repeatTarget) self.repeatTarget = repeatTarget end,
    function(self, i, x, y) return x[i], self.repeatTarget and y or y[i] end, function(grads) return grads end)

  --- A criterion behind modules for its input and its target.
  local ModuleCriterion = classes.class('nn.ModuleCriterion', 'nn.Criterion', nn)
  function ModuleCriterion:__init(criterion, inputModule, targetModule, castTarget)
    self.criterion, self.inputModule, self.targetModule, self.castTarget = criterion, inputModule, targetModule, castTarget ~= false
  end
  function ModuleCriterion:updateOutput(input, target)
    self.input = self.inputModule and self.inputModule:forward(input) or input
    self.target = self.targetModule and self.targetModule:forward(target) or target
    self.output = self.criterion:forward(self.input, self.target)
    return self.output
  end
  function ModuleCriterion:updateGradInput(input)
    self.gradInput = self.criterion:backward(self.input, self.target)
    if self.inputModule then self.gradInput = self.inputModule:backward(input, self.gradInput) end
    return self.gradInput
  end

  --- A criterion as a module: its input is {input, target}.
  local CriterionTable, parent = classes.class('nn.CriterionTable', 'nn.Module', nn)
  function CriterionTable:__init(criterion)
    parent.__init(self)
    self.criterion, self.gradInput = criterion, {criterion.gradInput}
  end
  function CriterionTable:updateOutput(input)
    self.output = self.criterion:updateOutput(input[1], input[2])
    return self.output
  end
  function CriterionTable:updateGradInput(input)
    self.gradInput = {self.criterion:updateGradInput(input[1], input[2])}
    return self.gradInput
  end

  --- Scores of classes: `lsm`, then `nll`, which a script may set. sizeAverage reaches nll when it changes.
  local CrossEntropy, Criterion = classes.class('nn.CrossEntropyCriterion', 'nn.Criterion', nn)
  function CrossEntropy:__init(weights, sizeAverage, ignoreIndex)
    Criterion.__init(self)
    self.lsm, self.nll = nn.LogSoftMax(), nn.ClassNLLCriterion(weights, sizeAverage, ignoreIndex)
    self.sizeAverage = self.nll.sizeAverage
    self.oldSizeAverage = self.sizeAverage
  end
  local function squeezed(v)
    if not torch.isTensor(v) then return v end
    local u = v:squeeze()
    return torch.isTensor(u) and u or v:view(1)
  end
  -- one label a row is what nll takes as it is, of a batch of one too
  local function plain(x, y)
    if x:dim() == 2 and torch.isTensor(y) and y:dim() == 1 and y:size(1) == x:size(1) then return x, y end
    return squeezed(x), squeezed(y)
  end
  function CrossEntropy:updateOutput(input, target)
    if self.sizeAverage ~= self.oldSizeAverage then self.nll.sizeAverage = self.sizeAverage end
    self.oldSizeAverage = self.sizeAverage
    local x, y = plain(input, target)
    self.output = self.nll:updateOutput(self.lsm:updateOutput(x), y)
    return self.output
  end
  function CrossEntropy:updateGradInput(input, target)
    local x, y = plain(input, target)
    self.gradInput = self.lsm:updateGradInput(x, self.nll:updateGradInput(self.lsm.output, y)):viewAs(input)
    return self.gradInput
  end

  -- L1Cost takes no target; its gradient neither
  nn.ClassSimplexCriterion.getPredictions = function(self, input)
    return torch.mm(input:dim() == 1 and input:view(1, -1) or input, self.simplex:typeAs(input):t())
  end
  nn.ClassSimplexCriterion.getTopPrediction = function(self, input)
    local _, at = self:getPredictions(input):max(2)
    return at:view(-1)
  end
end

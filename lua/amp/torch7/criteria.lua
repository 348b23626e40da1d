--- Criteria under Torch7's names. A criterion gives the loss as a tensor of one element, which is differentiated by
-- loss:backward(); criterion:backward(input, target) gives the gradient in the input, for net:backward.
--
--   local criterion = nn.ClassNLLCriterion()
--   local loss = criterion:forward(net:forward(x), y)
-- Called by amp.torch7.nn with its module table.
local amp = require 'amp'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw

return function(M)
  local Criterion = Module:extend 'nn.Criterion'
  M.Criterion = Criterion

  local function reduction(self) return self.sizeAverage and 'mean' or 'sum' end

  -- A copy of an input to differentiate in, tables too; `leaves` lists its tensors.
  local function fresh(v, leaves)
    if amp.is_tensor(v) then
      local t = v:detach()
      t.requires_grad = true
      leaves[#leaves + 1] = t
      return t
    end
    local out = {}
    for i, x in ipairs(v) do out[i] = fresh(x, leaves) end
    return out
  end
  local function refill(v, grads, at)
    if amp.is_tensor(v) then
      at[1] = at[1] + 1
      return grads[at[1]]
    end
    local out = {}
    for i, x in ipairs(v) do out[i] = refill(x, grads, at) end
    return out
  end

  --- The gradient of the loss in its input.
  function Criterion:backward(input, target)
    local leaves = {}
    local copy = fresh(input, leaves)
    local loss = amp.enable_grad(function() return self:forward(copy, target) end)
    return refill(input, amp.grad({loss}, leaves), {0})
  end
  Criterion.updateGradInput = Criterion.backward

  local function define(name, init, forward)
    local C = Criterion:extend('nn.' .. name)
    C.init = function(self, ...)
      self.sizeAverage = true
      if init then init(self, ...) end
    end
    C.forward = forward
    C.updateOutput = forward
    M[name] = C
  end
  local function average(self, flag)
    if flag ~= nil then self.sizeAverage = flag end
  end
  local function weighted(self, weights, flag)
    if weights ~= nil then self:register_buffer('weights', weights) end
    average(self, flag)
  end

  -- Scores of one example or several, and their labels, which may be a number or floats.
  local function labels(self, input, target)
    if type(target) == 'number' then target = amp.tensor({target}, {dtype = 'int64', device = input.device}) end
    if not amp.is_tensor(input) or not amp.is_tensor(target) then
      raise(self.__name, 'scores and labels expected, got %s and %s', type(input), type(target))
    end
    if input:dim() == 1 then input = input:unsqueeze(1) end
    if target:dim() == 0 then target = target:unsqueeze(1) end
    if target:is_floating_point() then target = target:long() end
    if input:dim() == 2 and target:dim() == 2 and target:size(2) == 1 then target = target:select(2, 1) end
    return input, target
  end

  define('ClassNLLCriterion', weighted, function(self, input, target)
    local x, y = labels(self, input, target)
    return amp.nll_loss(x, y, {weight = self.weights, reduction = reduction(self)})
  end)
  define('CrossEntropyCriterion', weighted, function(self, input, target)
    local x, y = labels(self, input, target)
    return amp.cross_entropy(x, y, {weight = self.weights, reduction = reduction(self)})
  end)
  M.SpatialClassNLLCriterion = M.ClassNLLCriterion

  for name, op in pairs {MSECriterion = 'mse_loss', AbsCriterion = 'l1_loss', SmoothL1Criterion = 'smooth_l1_loss', SoftMarginCriterion = 'soft_margin_loss',
    DistKLDivCriterion = 'kl_div'} do
    define(name, average, function(self, x, y) return amp[op](x, y, {reduction = reduction(self)}) end)
  end
  define('BCECriterion', weighted, function(self, x, y)
    return amp.binary_cross_entropy(x, y:to(x.dtype), {weight = self.weights, reduction = reduction(self)})
  end)
  define('MultiLabelSoftMarginCriterion', weighted, function(self, x, y)
    return amp.multilabel_soft_margin_loss(x, y:to(x.dtype), {weight = self.weights, reduction = reduction(self)})
  end)
  define('MultiLabelMarginCriterion', average, function(self, x, y)
    return amp.multilabel_margin_loss(x, y:long(), {reduction = reduction(self)})
  end)
  define('MultiMarginCriterion', function(self, p, weights, margin)
    self.p, self.margin = p or 1, margin or 1
    weighted(self, weights)
  end, function(self, input, target)
    local x, y = labels(self, input, target)
    return amp.multi_margin_loss(x, y, {p = self.p, margin = self.margin, weight = self.weights, reduction = reduction(self)})
  end)

  local function margin(default)
    return function(self, m) self.margin = m or default end
  end
  define('MarginCriterion', margin(1), function(self, x, y)
    local loss = amp.relu(self.margin - x * y)
    return self.sizeAverage and loss:mean() or loss:sum()
  end)
  define('HingeEmbeddingCriterion', margin(1), function(self, x, y)
    if type(y) == 'number' then y = amp.full_like(x, y) end
    return amp.hinge_embedding_loss(x, y, {margin = self.margin, reduction = reduction(self)})
  end)
  define('CosineEmbeddingCriterion', margin(0), function(self, t, y)
    return amp.cosine_embedding_loss(t[1], t[2], y, {margin = self.margin, reduction = reduction(self)})
  end)
  define('MarginRankingCriterion', margin(0), function(self, t, y)
    if type(y) == 'number' then y = amp.full_like(t[1], y) end
    return amp.margin_ranking_loss(t[1], t[2], y, {margin = self.margin, reduction = reduction(self)})
  end)

  -- -- Sums of criteria ------------------------------------------------------------------------------

  local function several(name, pick)
    local C = Criterion:extend('nn.' .. name)
    function C:init(repeat_target)
      self.sizeAverage, self.repeat_target, self.factors, self.n = true, repeat_target == true, {}, 0
    end
    --- Add a criterion with a weight (1).
    function C:add(criterion, factor)
      self.n = self.n + 1
      self[self.n], self.factors[self.n] = criterion, factor or 1
      return self
    end
    function C:forward(input, target)
      local sum
      for i = 1, self.n do
        local x, y = pick(self, i, input, target)
        local loss = self[i]:forward(x, y) * self.factors[i]
        sum = sum and sum + loss or loss
      end
      if sum == nil then raise(self.__name, 'it has no criteria: add one first') end
      return sum
    end
    C.updateOutput = C.forward
    M[name] = C
  end
  several('MultiCriterion', function(_, _, x, y) return x, y end)
  several('ParallelCriterion', function(self, i, x, y) return x[i], self.repeat_target and y or y[i] end)
end

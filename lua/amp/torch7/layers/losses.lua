--- Criteria as losses: compute(self, x, y, p) gives the loss, a tensor of one element, from amp tensors; and its value, where it was read.
-- `tensors`: fields that hold tensors, which p has by their names.
local amp = require 'amp'
local H = require 'amp.torch7.layers.help'
local raise = require('amp.error').throw

return function(define)
  local function average(self, flag) self.sizeAverage = H.flag(self, 'sizeAverage', flag, true) end
  local function weighted(self, weights, flag)
    self.weights = weights
    average(self, flag)
  end
  -- sizeAverage after a margin whose default is given
  local function with_margin(default)
    return function(self, margin, sizeAverage)
      self.margin = H.number(self, 'margin', margin, default)
      average(self, sizeAverage)
    end
  end
  local function reduced(self, each, n) return self.sizeAverage and each:sum() / (n or each:numel()) or each:sum() end
  local function reduction(self) return self.sizeAverage and 'mean' or 'sum' end

  -- A target of as many elements as the input, in its shape and dtype.
  local function like(self, x, y)
    if type(y) == 'number' then y = amp.full({1}, y, {dtype = x.dtype, device = x.device}) end
    if not amp.is_tensor(x) or not amp.is_tensor(y) then raise(self.__name, 'an input and a target, tensors, expected, got %s and %s', type(x), type(y)) end
    if x:numel() ~= y:numel() then raise(self.__name, 'a target of %s for an input of %s', tostring(y:size()), tostring(x:size())) end
    if y:dim() ~= x:dim() or y:size() ~= x:size() then y = y:reshape(x:size()) end
    return y.dtype == x.dtype and y or y:to(x.dtype)
  end
  local function two(self, t)
    if #H.list(self, t) ~= 2 then raise(self.__name, 'two tensors expected, got %d', #t) end
    return t[1], t[2]
  end

  -- Scores N x C (or of one example) and their labels.
  local function labels(self, x, y)
    if type(y) == 'number' then y = amp.tensor({y}, {dtype = 'int64', device = x.device}) end
    if not amp.is_tensor(x) or not amp.is_tensor(y) then raise(self.__name, 'scores and labels expected, got %s and %s', type(x), type(y)) end
    if y.dtype ~= 'int64' then y = y:long() end
    if x:dim() == 1 then
      x = x:unsqueeze(1)
      if y:numel() ~= 1 then raise(self.__name, 'one label expected for the scores of one example, got %s', tostring(y:size())) end
      y = y:reshape(1)
    end
    if x:dim() == 2 and y:dim() == 2 and y:size(2) == 1 then y = y:reshape(-1) end
    return x, y
  end
  -- Labels that are ignored are not looked up, and count in no average; a batch of nothing else is 0.
  local function nll(self, x, y, p)
    local ignored, classes = self.ignoreIndex or -100, x:size(2)
    local weight = p.weights
    if weight and weight:numel() ~= classes then raise(self.__name, '%d weights for %d classes', weight:numel(), classes) end
    local loss = amp.nll_loss(x, y, {weight = weight, reduction = reduction(self), ignore_index = ignored})
    local value = loss:item()
    if value ~= value and not y:ne(ignored):any():item() then return (x * 0):sum(), 0 end
    return loss, value
  end
  local function with_ignored(self, weights, sizeAverage, ignoreIndex)
    weighted(self, weights, sizeAverage)
    self.ignoreIndex = ignoreIndex or -100
  end
  define('ClassNLLCriterion', {
    init = with_ignored,
    tensors = {'weights'},
    compute = function(self, x, y, p)
      x, y = labels(self, x, y)
      if x:dim() > 2 then raise(self.__name, 'scores of 1 or 2 dimensions expected, got %s', tostring(x:size())) end
      return nll(self, x, y, p)
    end,
  })
  define('SpatialClassNLLCriterion', {
    init = weighted, tensors = {'weights'},
    compute = function(self, x, y, p)
      x, y = labels(self, x, y)
      if x:dim() == 3 then x = x:unsqueeze(1) end
      if x:dim() == 4 and y:dim() == 2 then y = y:unsqueeze(1) end
      return nll(self, x, y, p)
    end,
  })
  define('CrossEntropyCriterion', {
    init = with_ignored,
    tensors = {'weights'},
    compute = function(self, x, y, p)
      if not (x:dim() == 2 and amp.is_tensor(y) and y:dim() == 1 and y:numel() == x:size(1)) then
        x = x:squeeze()
        if x:dim() == 0 then x = x:reshape(1) end
        if amp.is_tensor(y) then y = y:squeeze() end
        if amp.is_tensor(y) and y:dim() == 0 then y = y:reshape(1) end
      end
      x, y = labels(self, x, y)
      return nll(self, amp.log_softmax(x, 2), y, p)
    end,
  })
  define('AbsCriterion', {init = average, compute = function(self, x, y)
    local d = x - like(self, x, y)
    return reduced(self, amp.where(d:ge(0), d, -d))
  end})
  for name, loss in pairs {MSE = amp.mse_loss, SmoothL1 = amp.smooth_l1_loss, SoftMargin = amp.soft_margin_loss, DistKLDiv = amp.kl_div} do
    define(name .. 'Criterion', {init = average, compute = function(self, x, y) return loss(x, like(self, x, y), {reduction = reduction(self)}) end})
  end
  define('WeightedMSECriterion', {
    init = function(self, weight)
      self.weight = weight
      self.sizeAverage = true
    end,
    tensors = {'weight'},
    compute = function(self, x, y, p) return amp.mse_loss(x, like(self, x, y) * p.weight, {reduction = reduction(self)}) end,
  })
  define('SpatialAutoCropMSECriterion', {init = average, compute = function(self, x, y)
    local n = x:dim()
    if n ~= y:dim() or n ~= 3 and n ~= 4 or x:size(n) > y:size(n) or x:size(n - 1) > y:size(n - 1) then
      raise(self.__name, 'images no larger than those of the target expected, got %s and %s', tostring(x:size()), tostring(y:size()))
    end
    for d = n - 1, n do y = y:narrow(d, 1 + math.floor((y:size(d) - x:size(d)) / 2), x:size(d)) end
    return amp.mse_loss(x, like(self, x, y), {reduction = reduction(self)})
  end})

  -- A weight a class, for one example or a batch.
  local function class_weights(p, each)
    return p.weights and each * p.weights:reshape(p.weights:dim() == each:dim() and p.weights:size() or {-1}) or each
  end
  define('BCECriterion', {init = weighted, tensors = {'weights'}, compute = function(self, x, y, p)
    y = like(self, x, y)
    local eps = 1e-12
    return reduced(self, class_weights(p, -((x + eps):log() * y + (1 - x + eps):log() * (1 - y))))
  end})
  define('MultiLabelSoftMarginCriterion', {init = weighted, tensors = {'weights'}, compute = function(self, x, y, p)
    y = like(self, x, y)
    return reduced(self, class_weights(p, -(amp.log_sigmoid(x) * y + amp.log_sigmoid(-x) * (1 - y))))
  end})
  define('MultiLabelMarginCriterion', {init = average, compute = function(self, x, y)
    if x:numel() ~= y:numel() then raise(self.__name, 'a target of %s for an input of %s', tostring(y:size()), tostring(x:size())) end
    return amp.multilabel_margin_loss(x, y:long():reshape(x:size()), {reduction = reduction(self)})
  end})
  define('MultiMarginCriterion', {
    init = function(self, p, weights, margin)
      self.p, self.margin = p or 1, H.number(self, 'margin', margin, 1)
      if self.p ~= 1 and self.p ~= 2 then raise(self.__name, 'p is 1 or 2, got %s', tostring(p)) end
      self.weights, self.sizeAverage = weights, true
    end,
    tensors = {'weights'},
    compute = function(self, x, y, p)
      x, y = labels(self, x, y)
      return amp.multi_margin_loss(x, y, {p = self.p, margin = self.margin, weight = p.weights, reduction = reduction(self)})
    end,
  })
  define('MarginCriterion', {
    init = with_margin(1),
    compute = function(self, x, y) return reduced(self, amp.relu(self.margin - x * (type(y) == 'number' and y or like(self, x, y)))) end,
  })
  define('HingeEmbeddingCriterion', {
    init = with_margin(1),
    compute = function(self, x, y)
      if type(y) == 'number' then y = amp.full_like(x, y) end
      y = like(self, x, y)
      local far = self.margin - x
      return reduced(self, amp.where(y:eq(-1), amp.zeros_like(x), x) + amp.where(y:eq(1), amp.zeros_like(x), far:relu()))
    end,
  })
  define('L1HingeEmbeddingCriterion', {
    init = function(self, margin) self.margin = H.number(self, 'margin', margin, 1) end,
    compute = function(self, t, y)
      local a, b = two(self, t)
      local d = (a - b):abs():sum()
      if (type(y) == 'number' and y or y:item()) == -1 then return amp.relu(self.margin - d) end
      return d
    end,
  })
  define('CosineEmbeddingCriterion', {
    init = with_margin(0),
    compute = function(self, t, y)
      local a, b = two(self, t)
      if a:dim() == 1 then a, b = a:unsqueeze(1), b:unsqueeze(1) end
      local eps = 1e-12
      local cos = (a * b):sum(2) / (((a * a):sum(2) + eps) * ((b * b):sum(2) + eps)):sqrt()
      y = like(self, cos, y)
      local each = amp.where(y:eq(-1), amp.relu(cos - self.margin), amp.where(y:eq(1), 1 - cos, cos))
      return reduced(self, each, y:numel())
    end,
  })
  define('MarginRankingCriterion', {
    init = with_margin(1),
    compute = function(self, t, y)
      local a, b = two(self, t)
      local d = a - b
      local z = self.margin - (type(y) == 'number' and d * y or d * like(self, d, y))
      return reduced(self, amp.where(z:ge(0), z, amp.zeros_like(z)), type(y) ~= 'number' and y:size(1) or nil)
    end,
  })
  define('DistanceRatioCriterion', {init = average, compute = function(self, t)
    local a, b = two(self, t)
    return reduced(self, a + amp.logaddexp(-a, -b), a:size(1))
  end})
  define('L1Cost', {init = function() end, compute = function(_, x) return x:abs():sum() end})

  -- Corners of a simplex around 0, n rows of n - 1 numbers, each of length 1.
  local function simplex(n)
    local rows = {}
    for i = 1, n do
      rows[i] = {}
      for j = 1, n do rows[i][j] = 0 end
    end
    for k = 1, n - 1 do
      local s = 0
      for j = 1, k - 1 do s = s + rows[k][j] ^ 2 end
      rows[k][k] = math.sqrt(1 - s)
      for i = k + 1, n do rows[i][k] = (rows[k][k] ^ 2 - 1 - 1 / (n - 1)) / rows[k][k] end
    end
    return rows
  end
  define('ClassSimplexCriterion', {
    init = function(self, nClasses)
      self.nClasses = H.number(self, 'nClasses', nClasses, nil, 2)
      if nClasses % 1 ~= 0 then raise(self.__name, 'nClasses must be a whole number, got %g', nClasses) end
      self.simplex, self.sizeAverage = self:new_tensor(simplex(nClasses)), true
    end,
    tensors = {'simplex'},
    compute = function(self, x, y, p)
      if type(y) == 'number' then y = amp.tensor({y}, {dtype = 'int64'}) end
      return amp.mse_loss(x, like(self, x, p.simplex:to(x.dtype):index_select(1, y:long():reshape(-1))), {reduction = reduction(self)})
    end,
  })
end

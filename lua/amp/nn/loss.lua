--- Losses as modules: each calls the function of its name with its settings. Options go in
-- one table, under PyTorch's names; all take reduction = 'mean' (default), 'sum' or 'none'.
-- Class labels count from 1.
-- @usage local loss = nn.HuberLoss{delta = 0.5}(net(x), y)
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local util = require 'amp.util'
local raise = require('amp.error').throw

-- -- Options: {name, default, check} -----------------------------------------------------------

local function one_of(words)
  return function(op, name, v)
    for _, w in ipairs(words) do if v == w then return end end
    raise(op, "%s must be '%s', got '%s'", name, table.concat(words, "', '", 1, #words - 1) .. "' or '" .. words[#words], tostring(v))
  end
end
local R = {'reduction', 'mean', one_of {'mean', 'sum', 'none'}}
local function number(name, default, low, high)
  return {name, default, function(op, _, v) options.number(op, name, v, low, high) end}
end
local function positive(name, default)
  return {name, default, function(op, _, v)
    if type(v) ~= 'number' or v <= 0 or v ~= v then raise(op, '%s must be a number above 0, got %s', name, util.show(v)) end
  end}
end
local function integer(name, default, low) return {name, default, function(op, _, v) options.integer(op, name, v, low) end} end
local function flag(name) return {name, false, options.boolean} end
local function tensor(name) return {name, nil, 'tensor'} end

-- The function takes `inputs` tensors, then the options in the order in which they stand.
local function define(class, op, inputs, list)
  local Loss = Module:extend('nn.' .. class)
  local known, defaults, values = {}, {}, {}
  for i, o in ipairs(list) do
    known[i], defaults[o[1]] = o[1], o[2]
    values[i] = (o[3] == 'tensor' and 'self.' or 's.') .. o[1]
  end

  function Loss:init(given)
    local s = options.read(self.__name, given, known, defaults)
    for _, o in ipairs(list) do
      local name, check = o[1], o[3]
      if check == 'tensor' then
        if s[name] ~= nil then self:register_buffer(name, s[name], {persistent = false}) end
        s[name] = nil
      elseif s[name] ~= nil or o[2] ~= nil then
        check(self.__name, name, s[name])
      end
    end
    self.settings = s
  end

  -- one straight call for each class, without packing arguments
  local names = table.concat({'a', 'b', 'c', 'd'}, ', ', 1, inputs)
  Loss.forward = assert(loadstring(('local op = ... return function(self, %s) local s = self.settings return op(%s, %s) end')
    :format(names, names, table.concat(values, ', ')), '=amp.nn.' .. class))(op)

  function Loss:extra_repr()
    local s, parts = self.settings, {}
    if s.reduction ~= 'mean' then parts[1] = s.reduction end
    for _, o in ipairs(list) do
      local v = s[o[1]]
      if o[1] ~= 'reduction' and o[3] ~= 'tensor' and v ~= o[2] and type(v) ~= 'function' then parts[#parts + 1] = o[1] .. ' ' .. tostring(v) end
    end
    return table.concat(parts, ', ')
  end

  return Loss
end

local function with_distance(a, b, c, f, margin, swap, reduction)
  return amp.triplet_margin_with_distance_loss(a, b, c, {distance_function = f, margin = margin, swap = swap, reduction = reduction})
end
local distance = {'distance_function', nil, function(op, name, v)
  if type(v) ~= 'function' then raise(op, '%s must be a function of two tensors, got %s', name, util.show(v)) end
end}

local M = {
  -- labels
  --- Logits N x C (x ...) and labels 1..C, or probabilities of the logits' shape.
  CrossEntropyLoss = define('CrossEntropyLoss', amp.cross_entropy, 2,
    {tensor 'weight', integer('ignore_index', -100), R, number('label_smoothing', 0, 0, 1)}),
  --- Log-probabilities N x C (x ...) and labels 1..C.
  NLLLoss = define('NLLLoss', amp.nll_loss, 2, {tensor 'weight', integer('ignore_index', -100), R}),
  --- Scores N x C and a label a row.
  MultiMarginLoss = define('MultiMarginLoss', amp.multi_margin_loss, 2, {integer('p', 1, 1), number('margin', 1), tensor 'weight', R}),
  --- Scores N x C and each row's labels, which end at the first 0.
  MultiLabelMarginLoss = define('MultiLabelMarginLoss', amp.multilabel_margin_loss, 2, {R}),
  --- Log-probabilities T x N x C, labels, lengths of inputs and of targets; the blank is class 1.
  CTCLoss = define('CTCLoss', amp.ctc_loss, 4, {integer('blank', 1, 1), R, flag 'zero_infinity'}),
  -- pairs of elements
  MSELoss = define('MSELoss', amp.mse_loss, 2, {R}),
  L1Loss = define('L1Loss', amp.l1_loss, 2, {R}),
  SmoothL1Loss = define('SmoothL1Loss', amp.smooth_l1_loss, 2, {R, number('beta', 1, 0)}),
  HuberLoss = define('HuberLoss', amp.huber_loss, 2, {R, positive('delta', 1)}),
  --- Probabilities; in a float16 region use BCEWithLogitsLoss.
  BCELoss = define('BCELoss', amp.binary_cross_entropy, 2, {tensor 'weight', R}),
  BCEWithLogitsLoss = define('BCEWithLogitsLoss', amp.bce_with_logits, 2, {tensor 'weight', R, tensor 'pos_weight'}),
  --- Log-probabilities and probabilities (or, with log_target, their logarithms); 'batchmean' divides by the rows.
  KLDivLoss = define('KLDivLoss', amp.kl_div, 2, {{'reduction', 'mean', one_of {'mean', 'sum', 'none', 'batchmean'}}, flag 'log_target'}),
  PoissonNLLLoss = define('PoissonNLLLoss', amp.poisson_nll_loss, 2, {{'log_input', true, options.boolean}, flag 'full', number('eps', 1e-8, 0), R}),
  --- Means, targets and variances.
  GaussianNLLLoss = define('GaussianNLLLoss', amp.gaussian_nll_loss, 3, {flag 'full', positive('eps', 1e-6), R}),
  SoftMarginLoss = define('SoftMarginLoss', amp.soft_margin_loss, 2, {R}),
  MultiLabelSoftMarginLoss = define('MultiLabelSoftMarginLoss', amp.multilabel_soft_margin_loss, 2, {tensor 'weight', R}),
  HingeEmbeddingLoss = define('HingeEmbeddingLoss', amp.hinge_embedding_loss, 2, {number('margin', 1), R}),
  -- rows of two or three tensors
  CosineEmbeddingLoss = define('CosineEmbeddingLoss', amp.cosine_embedding_loss, 3, {number('margin', 0), R}),
  MarginRankingLoss = define('MarginRankingLoss', amp.margin_ranking_loss, 3, {number('margin', 0), R}),
  TripletMarginLoss = define('TripletMarginLoss', amp.triplet_margin_loss, 3, {positive('margin', 1), positive('p', 2), number('eps', 1e-6), flag 'swap', R}),
  TripletMarginWithDistanceLoss = define('TripletMarginWithDistanceLoss', with_distance, 3, {distance, positive('margin', 1), flag 'swap', R}),
}
M.CrossEntropyCriterion, M.ClassNLLCriterion = M.CrossEntropyLoss, M.NLLLoss -- Torch7's names

return M

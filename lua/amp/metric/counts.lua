--- TopK, ConfusionMatrix, F1, AUC, Perplexity, Mean.
local amp = require 'amp'
local base = require 'amp.metric.base'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

-- -- Mean -------------------------------------------------------------------------------------------

local Mean
Mean, M.Mean = base.class('Mean', {}, {})

function Mean:start() return { total = 0, count = 0 } end -- luacheck: no self

--- Add a number, or the values of a tensor; n: how many examples a number or a scalar is the mean of (1).
function Mean:update(v, n)
  if n ~= nil then options.number(self.op, 'n', n, 0) end
  if amp.is_tensor(v) then
    v = v:detach():double()
    local k = v:numel() == 1 and (n or 1) or v:numel()
    if n and v:numel() > 1 and n ~= v:numel() then raise(self.op, '%d values, said to be of %g examples', v:numel(), n) end
    base.add(self, 'total', v:numel() == 1 and v:sum() * k or v:sum())
    base.add(self, 'count', k)
  elseif type(v) == 'number' then
    base.add(self, 'total', v * (n or 1))
    base.add(self, 'count', n or 1)
  else raise(self.op, 'a number or a tensor expected, got %s', util.kind(v)) end
  return self
end

--- The mean so far; NaN before the first update.
local function mean_value(self)
  local n = base.number(self.held.count)
  return n == 0 and 0 / 0 or base.number(self.held.total) / n
end
Mean.value = mean_value

-- -- TopK -------------------------------------------------------------------------------------------

local TopK
TopK, M.TopK = base.class('TopK', { 'k' }, { k = 5 }, function(op, o) options.integer(op, 'k', o.k, 1) end)
TopK.start, TopK.value = Mean.start, mean_value

--- Add a batch: scores N x C and N labels from 1; right is a label among the k largest scores.
function TopK:update(scores, labels)
  scores, labels = base.batch(self.op, scores, labels)
  if scores:dim() ~= 2 or labels:dim() ~= 1 or scores:size(1) ~= labels:size(1) then base.misfit(self.op, scores, labels) end
  base.check_labels(self.op, labels, scores:size(2))
  if labels:numel() == 0 then return self end
  local _, places = scores:topk(math.min(self.k, scores:size(2)), 2)
  base.add(self, 'total', places:eq(labels:to(places.dtype):unsqueeze(2)):sum())
  base.add(self, 'count', labels:numel())
  return self
end

-- -- ConfusionMatrix, F1 ------------------------------------------------------------------------------

local function check_classes(op, o)
  options.integer(op, 'classes', o.classes, 1)
end

local Matrix
Matrix, M.ConfusionMatrix = base.class('ConfusionMatrix', { 'classes', 'ignore_index' }, {}, check_classes)

function Matrix:start() return { matrix = amp.zeros({ self.classes, self.classes }, { dtype = 'int64', device = 'cpu' }) } end

--- Add a batch: scores N x C (or N x C x H x W), or guessed labels; and labels from 1.
function Matrix:update(scores, labels)
  local op, n = self.op, self.classes
  scores, labels = base.batch(op, scores, labels)
  if scores:dim() == labels:dim() + 1 then
    if scores:size(2) ~= n then raise(op, 'scores of %d classes, the metric has %d', scores:size(2), n) end
    scores = scores:argmax(2)
  end
  if tostring(scores:size()) ~= tostring(labels:size()) then base.misfit(op, scores, labels) end
  local guess, truth = scores:reshape(-1), labels:reshape(-1)
  if self.ignore_index ~= nil then
    local kept = truth:ne(self.ignore_index):nonzero():reshape(-1)
    guess, truth = guess:index_select(1, kept), truth:index_select(1, kept)
  end
  base.check_labels(op, truth, n)
  base.check_labels(op, guess, n)
  if truth:numel() == 0 then return self end
  guess, truth = guess:long(), truth:long()
  local cells = (truth - 1) * n + guess
  local counts = amp.zeros({ n * n }, { dtype = 'float64', device = cells.device })
  counts = counts:index_add(1, cells, amp.ones({ cells:size(1) }, { dtype = 'float64', device = cells.device }))
  base.add(self, 'matrix', counts:long():reshape(n, n))
  return self
end

--- C x C int64: rows are true classes, columns guessed ones.
function Matrix:value() return self.held.matrix:clone() end

local F1
local averages = { macro = true, micro = true, weighted = true, none = true, binary = true }
F1, M.F1 = base.class('F1', { 'classes', 'average', 'ignore_index' }, { average = 'macro' }, function(op, o)
  check_classes(op, o)
  if not averages[o.average] then raise(op, "average must be 'macro', 'micro', 'weighted', 'binary' or 'none', got %s", util.show(o.average)) end
  if o.average == 'binary' and o.classes ~= 2 then raise(op, "average = 'binary' is of 2 classes, got %d", o.classes) end
end)
F1.start, F1.update = Matrix.start, Matrix.update

--- The F1 score, 0 for a class without guesses and labels; a tensor of one a class with average = 'none'.
-- Macro averages are over classes that have a label or a guess; 'binary' is the score of class 2, the yes.
function F1:value()
  local m, n = self.held.matrix:tolist(), self.classes
  local scores, all, right, seen, sum, weighted = {}, 0, 0, 0, 0, 0
  for i = 1, n do
    local truths, guesses = 0, 0
    for j = 1, n do truths, guesses = truths + m[i][j], guesses + m[j][i] end
    scores[i] = truths + guesses > 0 and 2 * m[i][i] / (truths + guesses) or 0
    all, right = all + truths, right + m[i][i]
    if truths + guesses > 0 then seen, sum = seen + 1, sum + scores[i] end
    weighted = weighted + truths * scores[i]
  end
  if self.average == 'none' then return amp.tensor(scores, { dtype = 'float64', device = 'cpu' }) end
  if all == 0 then return 0 / 0 end
  if self.average == 'binary' then return scores[2] end
  if self.average == 'micro' then return right / all end
  return self.average == 'weighted' and weighted / all or sum / seen
end

-- -- AUC --------------------------------------------------------------------------------------------

local AUC
AUC, M.AUC = base.class('AUC', {}, {})

function AUC:start() return { scores = {}, labels = {} } end -- luacheck: no self

-- Labels are 0 and 1, or 1 and 2: a list with 0 has no 2. Ones alone are of one kind either way.
local function check_kinds(op, ...)
  local seen = {}
  for _, list in ipairs { ... } do
    for i = 1, #list do seen[list[i]] = true end
  end
  if seen[0] and seen[2] then raise(op, 'labels 0 and 2: labels are boolean, or 0 and 1, or classes 1 and 2') end
end

--- Add a batch: N scores of yes (or N x 2, of no and yes) and N labels: boolean, 0 and 1, or classes 1 and 2.
function AUC:update(scores, labels)
  local op = self.op
  scores, labels = base.batch(op, scores, labels)
  if scores:dim() == 2 and scores:size(2) == 2 then scores = scores:select(2, 2) end
  if scores:numel() ~= labels:numel() then base.misfit(op, scores, labels) end
  local s, l = scores:reshape(-1):double():tolist(), labels:reshape(-1):double():tolist()
  for i = 1, #s do
    if l[i] ~= 0 and l[i] ~= 1 and l[i] ~= 2 then
      raise(op, 'label %g of example %d: labels are boolean, or 0 and 1, or classes 1 and 2', l[i], i)
    end
    if s[i] ~= s[i] then raise(op, 'the score of example %d is nan', i) end
  end
  check_kinds(op, self.held.labels, l)
  self:add_state { scores = s, labels = l }
  return self
end

function AUC:add_state(state)
  check_kinds(self.op, self.held.labels, state.labels)
  for _, key in ipairs { 'scores', 'labels' } do
    for _, v in ipairs(state[key]) do self.held[key][#self.held[key] + 1] = v end
  end
end

--- The area under the ROC curve; NaN where one of both kinds is missing. Equal scores count half.
function AUC:value()
  local s, l, order = self.held.scores, self.held.labels, {}
  for i = 1, #s do order[i] = i end
  table.sort(order, function(a, b) return s[a] < s[b] end)
  local yes, ranks, i, one = 0, 0, 1, 1
  for k = 1, #l do
    if l[k] == 2 then one = 2 end
  end
  while i <= #order do
    local j = i
    while j < #order and s[order[j + 1]] == s[order[i]] do j = j + 1 end
    for k = i, j do
      if l[order[k]] == one then yes, ranks = yes + 1, ranks + (i + j) / 2 end
    end
    i = j + 1
  end
  local no = #order - yes
  if yes == 0 or no == 0 then return 0 / 0 end
  return (ranks - yes * (yes + 1) / 2) / (yes * no)
end

-- -- Perplexity ----------------------------------------------------------------------------------------

local Perplexity
Perplexity, M.Perplexity = base.class('Perplexity', { 'ignore_index' }, {})
Perplexity.start = Mean.start

--- Add a batch: logits ... x C and labels ... from 1.
function Perplexity:update(logits, labels)
  logits, labels = base.batch(self.op, logits, labels)
  local c = logits:size(logits:dim())
  if logits:numel() ~= labels:numel() * c then base.misfit(self.op, logits, labels) end
  local x, l = logits:reshape(-1, c):float(), labels:reshape(-1)
  local n = l:numel()
  if self.ignore_index ~= nil then
    local used = l:ne(self.ignore_index)
    n = used:sum()
    l = amp.where(used, l, amp.ones_like(l))
    base.check_labels(self.op, l, c)
    l = l:long()
    local losses = -x:log_softmax(2):gather(2, l:unsqueeze(2)):reshape(-1)
    base.add(self, 'total', amp.where(used, losses, amp.zeros_like(losses)):double():sum())
  else
    base.check_labels(self.op, l, c)
    base.add(self, 'total', -x:log_softmax(2):gather(2, l:long():unsqueeze(2)):double():sum())
  end
  base.add(self, 'count', n)
  return self
end

--- exp of the mean cross-entropy; NaN before the first update.
function Perplexity:value() return math.exp(mean_value(self)) end

for name, C in pairs { Mean = Mean, TopK = TopK, ConfusionMatrix = Matrix, F1 = F1, AUC = AUC, Perplexity = Perplexity } do
  require('amp.core.class').guard(C, 'metric.' .. name, 'metric')
end

return M

--- Metrics: running means over batches, kept on the device until they are asked for.
--
-- update() adds to a sum without waiting; get() and value() read it, and wait.
local ffi = require 'ffi'
local amp = require 'amp'
local lasting = require('amp.core.scope').lasting
local options = require 'amp.options'
local types = require 'amp.types'
local util = require 'amp.util'
local raise = require('amp.error').throw

local Metric = {}
Metric.__index = Metric

--- Forget everything.
function Metric:reset()
  self.total, self.count = nil, 0
  return self
end

local function plus(total, sum) return total and total + sum or amp.is_tensor(sum) and sum:clone() or sum end

function Metric:add(sum, n)
  self.total = lasting(plus, self.total, sum) -- an open amp.scope does not take it away
  self.count = lasting(plus, self.count, n)
  return self
end

--- The mean so far; NaN before the first update.
function Metric:value()
  local total, count = self.total, self.count
  if amp.is_tensor(count) then count = count:item() end
  if count == 0 then return 0 / 0 end
  return (amp.is_tensor(total) and total:item() or total) / count
end

--- What was seen, as plain numbers: merge adds it to another metric's.
function Metric:state()
  local function plain(v) return amp.is_tensor(v) and v:item() or v end
  return { total = plain(self.total) or 0, count = plain(self.count) }
end

--- Add the state of another metric of this class, such as another rank's.
function Metric:merge(state)
  if type(state) ~= 'table' or type(state.total) ~= 'number' or type(state.count) ~= 'number' then
    raise('metric.' .. self.name .. ':merge', 'a state expected, as state() gives it, got %s', util.kind(state))
  end
  return self:add(state.total, state.count)
end

--- Name and mean.
function Metric:get() return self.name, self:value() end

function Metric:__tostring() return string.format('%s %.4f', self.name, self:value()) end

-- Options of a metric: a name, or a table of them.
local function read(op, given, known, name)
  if type(given) == 'string' then given = { name = given } end
  if given ~= nil and type(given) ~= 'table' then raise(op, "a name or options expected, as in {name = '%s'}, got %s", name, util.show(given)) end
  local o = options.read(op, given, known, { name = name })
  if type(o.name) ~= 'string' then raise(op, 'name must be a string, got %s', util.show(o.name)) end
  return o
end

local function class(name, op, known, check)
  local C = {}
  for k, v in pairs(Metric) do C[k] = v end
  C.__index = C
  return C,
  --- Make a metric: `update` takes a batch, `value` gives the mean since the last `reset`.
  -- @tparam ?string|table given a name for printing, or options
  function(given, ...)
    if select('#', ...) > 0 then raise(op, 'a name or a table of options expected, got %d arguments more', select('#', ...)) end
    local o = read(op, given, known, name)
    if check then check(o) end
    return setmetatable(o, C):reset()
  end
end

-- -- Loss -------------------------------------------------------------------

local Loss, new_loss = class('loss', 'metric.Loss', { 'name' })

--- Add a loss.
-- @tparam Tensor|number loss the mean of a batch (a scalar), or losses unreduced
-- @tparam ?number n examples the mean is of, default 1
function Loss:update(loss, n)
  if n ~= nil and (type(n) ~= 'number' or n ~= n or n < 0) then
    raise('metric.Loss', 'a number of examples expected, got %s', tostring(n))
  end
  if type(loss) == 'number' then return self:add(loss * (n or 1), n or 1) end
  if not amp.is_tensor(loss) then raise('metric.Loss', 'a tensor or a number expected, got %s', util.kind(loss)) end
  loss = loss:detach():float()
  if loss:numel() == 1 then return self:add(loss:sum() * (n or 1), n or 1) end
  if n and n ~= loss:numel() then
    raise('metric.Loss', '%d losses of shape %s, said to be of %g examples', loss:numel(), tostring(loss:size()), n)
  end
  return self:add(loss:sum(), loss:numel())
end

-- -- Accuracy ---------------------------------------------------------------

local Accuracy, new_accuracy = class('accuracy', 'metric.Accuracy', { 'name', 'ignore_index' }, function(o)
  if o.ignore_index ~= nil then options.integer('metric.Accuracy', 'ignore_index', o.ignore_index) end
end)

--- Forget everything.
function Accuracy:reset()
  self.low, self.high, self.classes, self.fraction = nil, nil, nil, nil
  return Metric.reset(self)
end

local function least(old, t) return old and amp.minimum(old, t) or t:clone() end
local function most(old, t) return old and amp.maximum(old, t) or t:clone() end

-- The value of a float64 scalar; that of a GPU is waited for.
local function look(t)
  if t.device ~= 'cpu' then return t:item() end
  return ffi.cast('double *', t:data_ptr())[0]
end

-- Raise for labels that are no classes: they would count as wrong guesses.
local function check_labels(self)
  if not self.low then return end
  local op, classes = 'metric.Accuracy', self.classes
  local low, high = look(self.low), classes and look(self.high) or 1
  if self.fraction and look(self.fraction) ~= 0 then raise(op, 'labels are whole numbers from 1, and a batch has others (the least is %g)', low) end
  if low >= 1 and (not classes or high <= classes) then return end
  local label = low >= 1 and high or low
  local cure = label == 0 and '; labels count from 1: add 1 to those that count from 0'
    or label < 0 and ('; labels to leave out are {ignore_index = %d}'):format(label) or ''
  if label == 0 and not classes then cure = cure .. ', and make those of yes and no boolean' end
  raise(op, 'label %s, but labels are from 1%s%s', label ~= label and 'nan' or ('%.14g'):format(label), classes and (' to %d'):format(classes) or '', cure)
end

-- Note which labels there are; those of the CPU are looked at now, a GPU's when the value is asked for.
local function note(self, labels, classes)
  if labels.dtype == 'bool' or labels:numel() == 0 then return end
  if self.classes and classes and self.classes ~= classes then
    raise('metric.Accuracy', 'scores of %d classes, before they were of %d; reset the metric, or take another one', classes, self.classes)
  end
  local values = labels:to 'float64'
  local seen = { classes = classes or self.classes, low = lasting(least, self.low, values:min()), high = self.high }
  if classes then seen.high = lasting(most, self.high, values:max()) end
  if types.is_float(types.dtype_code[labels.dtype]) then seen.fraction = lasting(most, self.fraction, (values - values:floor()):max()) end
  if labels.device == 'cpu' then check_labels(seen) end
  self.classes, self.low, self.high, self.fraction = seen.classes, seen.low, seen.high, seen.fraction or self.fraction
end

--- Add a batch.
-- @tparam Tensor scores N x C, the largest is the guess; or N guessed labels
-- @tparam Tensor labels N, from 1
-- @raise when a label is none of 1 .. C (of the GPU: when the value is asked for)
function Accuracy:update(scores, labels)
  if not (amp.is_tensor(scores) and amp.is_tensor(labels)) then
    raise('metric.Accuracy', 'scores and labels expected, two tensors, got %s and %s', util.kind(scores), util.kind(labels))
  end
  local guess, classes = scores:detach(), nil
  labels = labels:detach()
  if guess:dim() == labels:dim() + 1 and guess:dim() > 1 then
    classes = guess:size(2)
    guess = guess:argmax(2)
  end
  if tostring(guess:size()) ~= tostring(labels:size()) then
    raise('metric.Accuracy', 'scores of shape %s do not fit labels of shape %s', tostring(scores:size()), tostring(labels:size()))
  end
  local left = self.ignore_index
  local right, n = guess:eq(labels), labels:numel()
  if left ~= nil then
    local used = labels:ne(left)
    right, n = right:logical_and(used), used:sum()
    labels = amp.where(used, labels, amp.ones_like(labels))
  end
  note(self, labels, classes)
  return self:add(right:sum(), n)
end

--- The mean so far; NaN before the first update.
function Accuracy:value()
  check_labels(self)
  return Metric.value(self)
end

for name, methods in pairs { Loss = Loss, Accuracy = Accuracy } do require('amp.core.class').guard(methods, 'metric.' .. name, 'metric') end

local M = {
  --- amp.metric.Loss([name | {name}]): mean loss
  Loss = new_loss,
  --- amp.metric.Accuracy([name | {name, ignore_index}]): share of right guesses, from 0 to 1; ignore_index: a label that is left out
  Accuracy = new_accuracy,
}

local rooms = {
  TopK = 'amp.metric.counts', ConfusionMatrix = 'amp.metric.counts', F1 = 'amp.metric.counts', AUC = 'amp.metric.counts',
  Perplexity = 'amp.metric.counts', Mean = 'amp.metric.counts', MeanAveragePrecision = 'amp.metric.detection',
}

return setmetatable(M, { __index = function(t, name)
  if rooms[name] then
    local v = require(rooms[name])[name]
    rawset(t, name, v)
    return v
  end
  if type(name) ~= 'string' or name:sub(1, 1) == '_' then return nil end
  local names = util.keys(rooms)
  for k in pairs(M) do names[#names + 1] = k end
  require('amp.error').throw_code('name', 'metric', "there is no '%s'%s", name, util.hint(name, names))
end })

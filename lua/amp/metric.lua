--- Metrics: running means over batches, kept on the device until they are asked for.
--
-- update() adds to a sum without waiting; get() and value() read it, and wait.
local amp = require 'amp'
local lasting = require('amp.scope').lasting
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
  self.count = self.count + n
  return self
end

--- The mean so far; NaN before the first update.
function Metric:value()
  if self.count == 0 then return 0 / 0 end
  local total = self.total
  return (amp.is_tensor(total) and total:item() or total) / self.count
end

--- Name and mean.
function Metric:get() return self.name, self:value() end

function Metric:__tostring() return string.format('%s %.4f', self.name, self:value()) end

local function class(name)
  local C = {}
  for k, v in pairs(Metric) do C[k] = v end
  C.__index = C
  return C,
  --- Make a metric: `update` takes a batch, `value` gives the mean since the last `reset`.
  -- @tparam ?string name for printing
  function(given) return setmetatable({name = given or name}, C):reset() end
end

-- -- Loss -------------------------------------------------------------------

local Loss, new_loss = class 'loss'

--- Add a loss.
-- @tparam Tensor|number loss the mean of a batch (a scalar), or losses unreduced
-- @tparam ?number n examples the mean is of, default 1
function Loss:update(loss, n)
  if n ~= nil and (type(n) ~= 'number' or n ~= n or n < 0) then
    raise('metric.Loss', 'a number of examples expected, got %s', tostring(n))
  end
  if type(loss) == 'number' then return self:add(loss * (n or 1), n or 1) end
  if not amp.is_tensor(loss) then raise('metric.Loss', 'a tensor or a number expected, got %s', type(loss)) end
  loss = loss:detach():float()
  if loss:numel() == 1 then return self:add(loss:sum() * (n or 1), n or 1) end
  if n and n ~= loss:numel() then
    raise('metric.Loss', '%d losses of shape %s, said to be of %g examples', loss:numel(), tostring(loss:size()), n)
  end
  return self:add(loss:sum(), loss:numel())
end

-- -- Accuracy ---------------------------------------------------------------

local Accuracy, new_accuracy = class 'accuracy'

--- Add a batch.
-- @tparam Tensor scores N x C, the largest is the guess; or N guessed labels
-- @tparam Tensor labels N, from 1
function Accuracy:update(scores, labels)
  if not (amp.is_tensor(scores) and amp.is_tensor(labels)) then
    raise('metric.Accuracy', 'scores and labels expected, two tensors, got %s and %s', type(scores), type(labels))
  end
  local guess = scores:detach()
  if guess:dim() == labels:dim() + 1 then guess = guess:argmax(2) end
  if tostring(guess:size()) ~= tostring(labels:size()) then
    raise('metric.Accuracy', 'scores of shape %s do not fit labels of shape %s', tostring(scores:size()), tostring(labels:size()))
  end
  return self:add(guess:eq(labels):sum(), labels:numel())
end

for name, methods in pairs { Loss = Loss, Accuracy = Accuracy } do require('amp.class').guard(methods, 'metric.' .. name, 'metric') end

return {
  --- amp.metric.Loss([name]): mean loss
  Loss = new_loss,
  --- amp.metric.Accuracy([name]): share of right guesses, from 0 to 1
  Accuracy = new_accuracy,
}

--- TensorDataset: examples along dimension 1 of one or several tensors.
--
-- A dataset is any table with `size()`, the number of examples, and `get(i)`,
-- example i (from 1). One that also has `batch(indices)` (an int64 vector) is
-- asked for whole batches, which is what makes this class quick.
local amp = require 'amp'
local proxy = require 'amp.data.proxy'
local raise = require('amp.error').throw

local TensorDataset = {in_process = true} -- a batch costs less than handing it from one process to another
TensorDataset.__index = TensorDataset

--- Make a dataset.
-- @tparam Tensor ... tensors with the same size of dimension 1
-- @usage local set = amp.data.TensorDataset(images, labels)
local function new(_, ...)
  local tensors, n = {...}, select('#', ...)
  if n == 0 then raise('data.TensorDataset', 'at least one tensor expected, got none') end
  for i = 1, n do
    local t = tensors[i]
    if not amp.is_tensor(t) then
      raise('data.TensorDataset', string.format('argument %d: a tensor expected, got %s', i, require('amp.util').kind(t)))
    end
    if t:dim() == 0 then raise('data.TensorDataset', string.format('argument %d has no dimension to count examples by', i)) end
    if t:size(1) ~= tensors[1]:size(1) then
      raise('data.TensorDataset', string.format('tensors of %d and %d examples (arguments 1 and %d, shapes %s and %s)',
        tensors[1]:size(1), t:size(1), i, tostring(tensors[1]:size()), tostring(t:size())))
    end
  end
  return proxy.wrap(setmetatable({tensors = tensors}, TensorDataset))
end

--- Number of examples.
function TensorDataset:size() return self.tensors[1]:size(1) end

--- Example i: one tensor of each.
function TensorDataset:get(i)
  local out = {}
  for k, t in ipairs(self.tensors) do out[k] = t[i] end
  return unpack(out)
end

local function pick(t, indices)
  if t.is_cuda then indices = indices:to(t.device) end
  return t:index_select(1, indices)
end

--- Examples by a vector of indices, gathered on each tensor's device.
-- @tparam Tensor indices int64, from 1
-- @treturn Tensor ... one a tensor of the dataset
function TensorDataset:batch(indices)
  local tensors = self.tensors
  local n = #tensors
  if n == 1 then return pick(tensors[1], indices) end -- without a loop inside, the loop over batches is compiled
  if n == 2 then return pick(tensors[1], indices), pick(tensors[2], indices) end
  local out = {}
  for k, t in ipairs(tensors) do out[k] = pick(t, indices) end
  return unpack(out)
end

proxy.dataset(TensorDataset, 'data.TensorDataset')

function TensorDataset:__tostring()
  local shapes = {}
  for k, t in ipairs(self.tensors) do shapes[k] = tostring(t:size()) end
  return 'data.TensorDataset(' .. table.concat(shapes, ', ') .. ')'
end

require('amp.core.class').guard(TensorDataset, 'data.TensorDataset', 'set')
TensorDataset._draws_nothing = TensorDataset.batch -- as it is called: guarded

return setmetatable({class = TensorDataset}, {__call = new})

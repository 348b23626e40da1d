--- WeightedRandomSampler: indices drawn by weight, for DataLoader{sampler = …}.
local amp = require 'amp'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local OP = 'data.WeightedRandomSampler'
local Sampler = {}
Sampler.__index = Sampler

--- How many indices an epoch has.
function Sampler:size() return self.n end

-- With replacement: the first sum above u * total.
local function with(self)
  local out, u = {}, amp.rand({ self.n }, { dtype = 'float64', device = 'cpu' }):tolist()
  for k = 1, self.n do
    local x, low, high = u[k] * self.total, 1, #self.sums
    while low < high do
      local middle = math.floor((low + high) / 2)
      if self.sums[middle] > x then high = middle else low = middle + 1 end
    end
    while self.weights[low] == 0 do low = low - 1 end -- rounding must not give what has no weight
    out[k] = low
  end
  return out
end

-- Without: the n largest of log(u) / weight (Efraimidis and Spirakis, 2006).
local function without(self)
  local keys, places = {}, {}
  local u = amp.rand({ #self.weights }, { dtype = 'float64', device = 'cpu' }):tolist()
  for i, w in ipairs(self.weights) do
    if w > 0 then
      keys[i] = math.log(math.max(u[i], 1e-300)) / w
      places[#places + 1] = i
    end
  end
  table.sort(places, function(a, b) return keys[a] > keys[b] end)
  local out = {}
  for k = 1, self.n do out[k] = places[k] end
  return out
end

--- The indices of an epoch, int64.
function Sampler:indices()
  if self.n == 0 then return amp.empty({ 0 }, { dtype = 'int64', device = 'cpu' }) end
  return amp.tensor((self.replacement and with or without)(self), { dtype = 'int64', device = 'cpu' })
end

--- One by one: for i in sampler:iter() do.
function Sampler:iter()
  local list, at = self:indices():tolist(), 0
  return function()
    at = at + 1
    return list[at]
  end
end

-- for i in sampler do, as of DistributedSampler.
function Sampler:__call(_, i)
  if i == nil then self.loop = self:iter() end
  return self.loop()
end

function Sampler:__tostring()
  return ('data.WeightedRandomSampler (%d of %d%s)'):format(self.n, #self.weights, self.replacement and '' or ', without replacement')
end

require('amp.core.class').guard(Sampler, OP, 'sampler')

--- n indices, each drawn with a chance in proportion to its weight.
-- @tparam table|Tensor weights of the examples, not below 0
-- @tparam ?number n indices an epoch; default: as many as weights
-- @tparam ?table given replacement (true)
-- @treturn table a sampler with size(), indices() and iter(), anew in each epoch
-- @usage amp.data.DataLoader(set, {sampler = amp.data.WeightedRandomSampler({1, 1, 8}, 100)})
return function(weights, n, given)
  if type(n) == 'table' then n, given = nil, n end
  local o = options.read(OP, given, { 'replacement' }, { replacement = true })
  options.boolean(OP, 'replacement', o.replacement)
  if amp.is_tensor(weights) then weights = weights:tolist() end
  if type(weights) ~= 'table' or #weights == 0 then raise(OP, 'weights expected, a list or a tensor, got %s', util.show(weights)) end
  local sums, total, positive = {}, 0, 0
  for i, w in ipairs(weights) do
    options.number(OP, 'weight ' .. i, w, 0, 1e300)
    total = total + w
    sums[i] = total
    if w > 0 then positive = positive + 1 end
  end
  if total == 0 then raise(OP, 'all weights are 0') end
  n = options.integer(OP, 'n', n or #weights, 0)
  if not o.replacement and n > positive then
    raise(OP, '%d indices without replacement, but only %d weights above 0; fewer, or {replacement = true}', n, positive)
  end
  return setmetatable({ weights = weights, sums = sums, total = total, n = n, replacement = o.replacement }, Sampler)
end

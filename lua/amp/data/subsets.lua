--- Datasets made of others: Subset, ConcatDataset, random_split.
local amp = require 'amp'
local options = require 'amp.options'
local proxy = require 'amp.data.proxy'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

local function count(op, set)
  local opened = proxy.open(set)
  local n = type(opened) == 'table' and opened.size
  if type(n) == 'function' then n = n(opened) end
  if type(n) ~= 'number' or type(opened.get) ~= 'function' and type(opened.batch) ~= 'function' then
    raise(op, "a dataset expected (a table with 'size' and 'get'), got %s", util.kind(set))
  end
  return n, opened
end

local function example(set, i)
  if set.get then return set:get(i) end
  local values = { set:batch(amp.tensor({ i }, { dtype = 'int64', device = 'cpu' })) }
  for k, v in ipairs(values) do values[k] = v[1] end
  return unpack(values)
end

local function check_place(op, i, n)
  if type(i) ~= 'number' or i % 1 ~= 0 or i < 1 or i > n then raise(op, 'there is no example %s; there are %d', tostring(i), n) end
end

-- -- Subset -----------------------------------------------------------------------------------------

local Subset = {}
Subset.__index = function(self, name) -- a set that makes whole batches is asked for them
  if name == 'batch' and rawget(self, 'dataset').batch then return Subset._batch end
  if name == 'in_process' or name == 'classes' then return rawget(self, 'dataset')[name] end
  return Subset[name]
end

--- Examples of a dataset by their indices (a list or tensor, from 1), in that order.
function M.Subset(set, indices)
  local op = 'data.Subset'
  local n, opened = count(op, set)
  if amp.is_tensor(indices) then indices = indices:tolist() end
  if type(indices) ~= 'table' then raise(op, 'indices expected, a list or a tensor, got %s', util.show(indices)) end
  local own = {}
  for k, i in ipairs(indices) do
    if type(i) ~= 'number' or i % 1 ~= 0 or i < 1 or i > n then
      raise(op, 'index %d is %s; the dataset has examples 1 to %d', k, util.show(i), n)
    end
    own[k] = i
  end
  return proxy.wrap(setmetatable({ dataset = opened, indices = own }, Subset))
end

function Subset:size() return #self.indices end

function Subset:get(i)
  check_place('data.Subset', i, #self.indices)
  return example(self.dataset, self.indices[i])
end

function Subset:_batch(places)
  local list = {}
  for k, i in ipairs(places:tolist()) do list[k] = self.indices[i] end
  return self.dataset:batch(amp.tensor(list, { dtype = 'int64', device = 'cpu' }))
end

proxy.dataset(Subset, 'data.Subset')
function Subset:__tostring() return ('data.Subset (%d examples of %s)'):format(#self.indices, tostring(self.dataset)) end

-- -- ConcatDataset -----------------------------------------------------------------------------------

local Concat = {}
Concat.__index = Concat

--- One dataset behind the other: ConcatDataset{a, b}.
function M.ConcatDataset(list)
  local op = 'data.ConcatDataset'
  if type(list) ~= 'table' or list[1] == nil then raise(op, 'a list of datasets expected, got %s', util.show(list)) end
  local self = { sets = {}, ends = {} }
  local total = 0
  for k = 1, #list do
    local n, opened = count(op, list[k])
    total = total + n
    self.sets[k], self.ends[k] = opened, total
  end
  return proxy.wrap(setmetatable(self, Concat))
end

function Concat:size() return self.ends[#self.ends] end

function Concat:get(i)
  check_place('data.ConcatDataset', i, self:size())
  local k = 1
  while i > self.ends[k] do k = k + 1 end
  return example(self.sets[k], i - (self.ends[k - 1] or 0))
end

proxy.dataset(Concat, 'data.ConcatDataset')
function Concat:__tostring() return ('data.ConcatDataset (%d examples of %d datasets)'):format(self:size(), #self.sets) end

-- -- random_split ----------------------------------------------------------------------------------------

-- Lengths of fractions: whole parts, and what is left over one by one to the first ones.
local function of_fractions(op, parts, n)
  local sum = 0
  for _, v in ipairs(parts) do sum = sum + v end
  if math.abs(sum - 1) > 1e-6 then raise(op, 'fractions must add up to 1, got %g', sum) end
  local out, used = {}, 0
  for k, v in ipairs(parts) do
    out[k] = math.floor(n * v + 1e-9)
    used = used + out[k]
  end
  for k = 1, n - used do out[(k - 1) % #out + 1] = out[(k - 1) % #out + 1] + 1 end
  return out
end

--- Split a dataset at random into parts without an example in common.
-- @tparam table set
-- @tparam table parts lengths that add up to the set's size, or fractions that add up to 1
-- @return a Subset for each
-- @usage local train, test = amp.data.random_split(set, {0.8, 0.2})
function M.random_split(set, parts)
  local op = 'data.random_split'
  local n = count(op, set)
  if type(parts) ~= 'table' or #parts == 0 then raise(op, 'lengths or fractions expected, such as {0.8, 0.2}, got %s', util.show(parts)) end
  local whole, sum = true, 0
  for k, v in ipairs(parts) do
    options.number(op, 'part ' .. k, v, 0)
    whole, sum = whole and v % 1 == 0, sum + v
  end
  if not whole or sum == 1 and n ~= 1 then parts = of_fractions(op, parts, n)
  elseif sum ~= n then raise(op, 'lengths must add up to %d, the size of the dataset, got %d', n, sum) end
  local order = amp.randperm(n, { dtype = 'int64', device = 'cpu' }):tolist()
  local out, at = {}, 0
  for k, length in ipairs(parts) do
    local indices = {}
    for i = 1, length do indices[i] = order[at + i] end
    at = at + length
    out[k] = M.Subset(set, indices)
  end
  return unpack(out)
end

return M

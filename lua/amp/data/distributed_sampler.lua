--- DistributedSampler: each rank's share of a dataset, anew in each epoch.
--
-- The order of all examples (shuffled by seed and epoch, the same on every rank) is padded with its own beginning to a
-- multiple of the ranks, or cut with drop_last; rank r takes places r, r + n, r + 2n, ... That is PyTorch's rule.
local amp = require 'amp'
local draws = require 'amp.data.draws'
local options = require 'amp.options'
local proxy = require 'amp.data.proxy'
local util = require 'amp.util'
local raise = require('amp.error').throw

local OP = 'data.DistributedSampler'
local Sampler = {}
Sampler.__index = Sampler

local known = { 'shuffle', 'seed', 'drop_last', 'rank', 'world_size' }
known.refused = { num_replicas = "it is called 'world_size'" }

local function size_of(set)
  set = proxy.open(set)
  local n = set
  if type(set) == 'table' then
    n = set.size
    if n ~= nil and type(n) ~= 'number' then n = n(set) end
  elseif amp.is_tensor(set) then n = set:size(1) end
  if type(n) ~= 'number' or n % 1 ~= 0 or n < 0 then raise(OP, "takes a dataset (a table with 'size'), got %s", util.kind(set)) end
  return n
end

--- @tparam table set a dataset
-- @tparam ?table o {shuffle = true, seed = 0, drop_last = false}; also rank and world_size, in place of amp.distributed's
local function new(_, set, o)
  o = options.read(OP, o, known, { shuffle = true, seed = 0, drop_last = false })
  options.boolean(OP, 'shuffle', o.shuffle)
  options.boolean(OP, 'drop_last', o.drop_last)
  options.integer(OP, 'seed', o.seed, 0)
  local n = options.integer(OP, 'world_size', o.world_size or amp.distributed.world_size(), 1)
  local r = options.integer(OP, 'rank', o.rank or amp.distributed.rank(), 1)
  if r > n then raise(OP, 'rank %d of %d', r, n) end
  size_of(set)
  return setmetatable({ set = set, shuffle = o.shuffle, seed = o.seed, drop_last = o.drop_last, rank = r, world_size = n, epoch = 0 }, Sampler)
end

--- Which epoch comes: it says, with the seed, how examples are shuffled. Call it on all ranks before each epoch.
-- @return self
function Sampler:set_epoch(n)
  self.epoch = options.integer(OP .. ':set_epoch', 'the epoch', n, 0)
  return self
end

--- How many examples each rank gets.
function Sampler:size()
  local n = size_of(self.set)
  if self.drop_last then return math.floor(n / self.world_size) end
  return math.ceil(n / self.world_size)
end

--- This rank's indices of the epoch.
-- @treturn Tensor int64
function Sampler:indices()
  local n, ranks, each = size_of(self.set), self.world_size, self:size()
  if n == 0 or each == 0 then return amp.empty({ 0 }, { dtype = 'int64', device = 'cpu' }) end
  local order
  if self.shuffle then
    order = draws.run(draws.seeds(self.seed, 'batch')(self.epoch), amp.randperm, n, { dtype = 'int64', device = 'cpu' })
  else
    order = amp.arange(1, n + 1, { dtype = 'int64', device = 'cpu' })
  end
  local total = each * ranks
  local places = amp.arange(self.rank - 1, total, ranks, { dtype = 'int64', device = 'cpu' }) % n + 1 -- the order again from its beginning
  return order:index_select(1, places)
end

--- The indices one by one: `for i in sampler:iter() do`.
function Sampler:iter()
  local list, at = self:indices():tolist(), 0
  return function()
    at = at + 1
    return list[at]
  end
end

function Sampler:__call(_, i)
  if i == nil then self.loop = self:iter() end
  return self.loop()
end

function Sampler:__tostring()
  return ('data.DistributedSampler (rank %d of %d, %d examples each%s)'):format(self.rank, self.world_size, self:size(), self.shuffle and ', shuffled' or '')
end

require('amp.core.class').guard(Sampler, OP, 'sampler')

return setmetatable({ class = Sampler }, { __call = new })

--- DataLoader: a dataset as batches, shuffled, resumable.
--
-- An epoch draws its order once, from amp's generator, when it begins (`iter`); batches are gathered as they are needed, `prefetch` of them ahead.
-- The order, the place in it and the key of its random numbers are the loader's state, so a run that stopped
-- in the middle of an epoch goes on with exactly the batches that were left. With `workers`, processes gather
-- batches while the caller trains (data/workers.lua); the order of batches and their contents are the same.
-- What a dataset or transform draws at random is a function of the epoch's key and of the place in the epoch (data/draws.lua).
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local amp = require 'amp'
local draws = require 'amp.data.draws'
local feeder = require 'amp.data.feeder'
local options = require 'amp.options'
local proxy = require 'amp.data.proxy'
local lasting = require('amp.core.scope').lasting
local types = require 'amp.types'
local util = require 'amp.util'
local raise = require('amp.error').throw

local OP = 'data.DataLoader'
local DataLoader = {}
DataLoader.__index = DataLoader

local known = { 'batch_size', 'shuffle', 'drop_last', 'prefetch', 'transform', 'workers', 'pin_memory', 'device', 'timeout', 'sampler' }
known.refused = {
  num_workers = "it is called 'workers'",
  prefetch_factor = "'prefetch' is how many batches are gathered ahead, by all workers together",
  collate_fn = "a dataset's batch(indices) makes batches; 'transform' changes them",
  worker_init_fn = 'random numbers need none: they are a function of the seed and the place in the epoch',
  persistent_workers = 'workers are forked anew for each epoch, which takes about a millisecond',
  generator = 'orders are drawn from the generator that amp.manual_seed sets',
}
local defaults = { batch_size = 1, shuffle = false, drop_last = false, prefetch = 0, workers = 0, pin_memory = false, timeout = 0 }

-- Number of examples: a dataset's size(), or a number by that name.
local function count(dataset)
  local n = dataset.size
  if type(n) ~= 'number' then n = n(dataset) end
  if type(n) ~= 'number' or n % 1 ~= 0 or n < 0 or n >= 2 ^ 53 then
    raise(OP, "the dataset's size must be a number of examples, got %s", util.show(n))
  end
  return n
end

-- A function, or what is called as one.
local function callable(v)
  if type(v) == 'function' then return true end
  local meta = (type(v) == 'table' or type(v) == 'userdata') and getmetatable(v)
  return type(meta) == 'table' and meta.__call ~= nil
end

local function check_dataset(dataset)
  if type(dataset) ~= 'table' or dataset.size == nil or not (dataset.batch or dataset.get) then
    local got = util.kind(dataset)
    if got == 'a tensor' then got = 'a tensor; its rows are the examples of TensorDataset(t)' end
    if got == 'table' and #dataset > 0 and dataset.size == nil then
      got = 'a list; as a dataset it is {size = function() return #list end, get = function(_, i) return list[i] end}'
    end
    if type(dataset) == 'table' and dataset.size == nil and (dataset.get or dataset.batch) then got = got .. " without 'size'" end
    raise(OP, "a dataset expected (a table with 'size' and 'batch' or 'get'), got %s", got)
  end
  if type(dataset.size) ~= 'number' and not callable(dataset.size) then
    raise(OP, "the dataset's size must be a function or a number, got %s", util.show(dataset.size))
  end
  for _, name in ipairs { 'batch', 'get' } do
    if dataset[name] and not callable(dataset[name]) then raise(OP, "the dataset's %s must be a function, got %s", name, util.show(dataset[name])) end
  end
end

-- A sampler: indices(), or iter() that gives them one by one, or a list or tensor of them.
local function check_sampler(o)
  local s = o.sampler
  if s == nil then return end
  if o.shuffle then raise(OP, "'sampler' says the order; it goes without shuffle") end
  if amp.is_tensor(s) then
    if s:dim() ~= 1 then raise(OP, 'a sampler that is a tensor has one dimension, got shape %s', util.shape(s.shape)) end
  elseif type(s) ~= 'table' or not (type(s.indices) == 'function' or type(s.iter) == 'function' or type(s[1]) == 'number' or next_key(s) == nil) then
    raise(OP, "a sampler (a table with 'indices' or 'iter') or a list of indices expected, got %s", util.kind(s))
  end
end

-- The sampler's indices for the epoch that begins
local function sampled(self)
  local s, n = self.sampler, count(self.dataset)
  local list = s
  if not amp.is_tensor(s) and type(s.indices) == 'function' then list = s:indices()
  elseif not amp.is_tensor(s) and type(s.iter) == 'function' then
    list = {}
    for i in s:iter() do list[#list + 1] = i end
  end
  if not amp.is_tensor(list) then
    list = #list > 0 and amp.tensor(list, { dtype = 'int64', device = 'cpu' }) or amp.empty({ 0 }, { dtype = 'int64', device = 'cpu' })
  end
  list = list:to('cpu'):long():contiguous()
  if list:numel() > 0 and (list:min():item() < 1 or list:max():item() > n) then
    raise(OP, 'the sampler gave an index from %d to %d, the dataset has %d examples', list:min():item(), list:max():item(), n)
  end
  return list
end

-- How many examples an epoch has
local function length(self)
  local s = self.sampler
  if s == nil then return count(self.dataset) end
  if amp.is_tensor(s) then return s:size(1) end
  if type(s.size) == 'function' then return s:size() end
  if type(s.size) == 'number' then return s.size end
  if type(s.indices) ~= 'function' and type(s.iter) ~= 'function' then return #s end
  return sampled(self):size(1)
end

-- DataLoader{set, batch_size = 4}, or with `dataset = set`: the data set and the options in one table.
local function apart(dataset, given)
  if given ~= nil or type(dataset) ~= 'table' or getmetatable(dataset) ~= nil or dataset.size ~= nil or #dataset > 1 then return dataset, given end
  local key = dataset.dataset ~= nil and 'dataset' or 1
  local set = dataset[key]
  if type(proxy.open(set)) ~= 'table' then return dataset, given end
  local rest = {}
  for k, v in pairs(dataset) do
    if k ~= key then rest[k] = v end
  end
  return set, rest
end

--- Make a loader.
-- @tparam table dataset with size() and batch(indices) or get(i); or all in one table, {set, batch_size = 64}
-- @tparam ?table options batch_size (1), shuffle (false), drop_last (false: the
-- last batch may be smaller), sampler (whose indices are the order of an epoch: data.DistributedSampler, a table with indices()
-- or iter(), a list), workers (0: processes that gather batches; datasets of tensors and text, whose
-- batches are cheap, are not given to any), prefetch (0: batches gathered ahead; with workers at least two for each),
-- timeout (0: seconds that a worker's batch is waited for, then an error; 0 waits for ever),
-- transform (function of a batch's tensors that gives those to hand out, run in the caller's process), pin_memory (false: batches
-- lie in ordinary memory; pinned, a GPU copies them while the program goes on; without a GPU it has no effect), device (where batches
-- are handed out, such as 'cuda': the next one is copied there while the step computes; a transform gets them there)
-- @usage for x, y in amp.data.DataLoader(set, {batch_size = 64, shuffle = true}):iter() do end
local function new(_, dataset, given)
  dataset, given = apart(dataset, given)
  dataset = proxy.open(dataset)
  check_dataset(dataset)
  local o = options.read(OP, given, known, defaults)
  options.integer(OP, 'batch_size', o.batch_size, 1)
  options.integer(OP, 'prefetch', o.prefetch, 0)
  options.integer(OP, 'workers', o.workers, 0)
  options.number(OP, 'timeout', o.timeout, 0)
  if o.timeout > 0 and o.workers == 0 then raise(OP, 'timeout is for the batches of workers, and there are none; give workers = 1, or no timeout') end
  for _, name in ipairs { 'shuffle', 'drop_last', 'pin_memory' } do options.boolean(OP, name, o[name]) end
  check_sampler(o)
  if o.transform ~= nil and not callable(o.transform) then raise(OP, 'transform must be a function, got ' .. util.kind(o.transform)) end
  if o.device ~= nil then
    local code = types.device(o.device, OP)
    o.device = types.device_string(math.floor(code / 256), code % 256)
  end
  o.dataset, o.position = dataset, 0
  return proxy.wrap(setmetatable(o, DataLoader))
end

local function batches(self, examples)
  local n = examples / self.batch_size
  return self.drop_last and math.floor(n) or math.ceil(n)
end

--- Number of batches of an epoch.
function DataLoader:size() return batches(self, length(self)) end

-- v is nil. (A comparison with == would call a tensor's metamethod.)
local function absent(v) return type(v) == 'nil' end

-- -- A batch ----------------------------------------------------------------------------------------

-- Values of example i, in columns: those up to the last that is there.
local function put_list(columns, row, i, ...)
  local n = select('#', ...)
  while n > 0 and absent((select(n, ...))) do n = n - 1 end
  if n == 0 then raise(OP, "the dataset's get(%d) gave nothing; is a return missing?", i) end
  if row == 1 then
    for k = 1, n do columns[k] = {} end
  elseif n ~= #columns then
    raise(OP, "the dataset's get(%d) gave %d values, others of the batch gave %d", i, n, #columns)
  end
  for k = 1, n do
    local v = select(k, ...)
    if absent(v) then raise(OP, "value %d that the dataset's get(%d) gave is nil", k, i) end
    columns[k][row] = v
  end
end

local function put(columns, row, i, a, b, c, ...)
  local one = absent(b)
  if row == 1 or absent(a) or not absent(c) or select('#', ...) > 0 or #columns ~= (one and 1 or 2) then
    return put_list(columns, row, i, a, b, c, ...)
  end
  columns[1][row] = a
  if not one then columns[2][row] = b end
end

local function collate(plan, b, first, last) -- a dataset without batch: its examples, stacked
  local dataset, order = plan.dataset, plan.order and ffi.cast('int64_t *', plan.order:data_ptr())
  local columns, seed = {}, plan.seed(b)
  for row = 1, last - first + 1 do
    local i = order and tonumber(order[first + row - 2]) or first + row - 1
    draws.example(row, seed)
    put(columns, row, i, dataset:get(i))
  end
  for k = 1, #columns do
    local column = columns[k]
    local kind = type(column[1])
    if amp.is_tensor(column[1]) then columns[k] = amp.stack(column)
    elseif kind == 'number' or kind == 'boolean' then columns[k] = amp.tensor(column)
    elseif kind == 'table' and column[1].boxes ~= nil then columns[k] = require 'amp.data.collate'(column) end -- else a list
  end
  return columns
end

-- Values of batch b.
local function values_of(plan, b)
  local first, last = (b - 1) * plan.batch_size + 1, math.min(b * plan.batch_size, plan.examples)
  local dataset = plan.dataset
  if not dataset.batch then return collate(plan, b, first, last) end
  local indices
  if plan.order then indices = plan.order:narrow(1, first, last - first + 1)
  elseif last - first + 1 == plan.batch_size then -- a sum is quicker than what makes a tensor out of options
    plan.steps = plan.steps or lasting(amp.arange, 0, plan.batch_size, { dtype = 'int64', device = 'cpu' })
    indices = plan.steps + first
  else indices = amp.arange(first, last + 1, { dtype = 'int64', device = 'cpu' }) end
  local values = { dataset:batch(indices) }
  if absent(values[1]) then raise(OP, "batch %d: the dataset's batch(indices) gave nothing; is a return missing?", b) end
  return values
end

-- What an epoch is made of, fixed when it begins: what is done to the loader meanwhile is for the next one.
local function make_plan(self)
  local dataset = self.dataset
  local plan = { dataset = dataset, order = self.order, batch_size = self.batch_size,
    examples = self.sampler and self.order and self.order:size(1) or count(dataset), seed = draws.seeds(self.key, 'batch'),
    transform = self.transform, transform_seed = self.transform and draws.seeds(self.key, 'transform') }
  plan.total = batches(self, plan.examples)
  if dataset._draws_nothing and dataset.batch == dataset._draws_nothing then
    function plan.gather(b) return values_of(plan, b) end
  else
    function plan.gather(b) return draws.run(plan.seed(b), values_of, plan, b) end
  end
  return plan
end

local function transformed(b, first, ...)
  if absent(first) then raise(OP, 'batch %d: transform gave nothing; is a return missing?', b) end
  return first, ...
end

local function transform(plan, b, batch)
  return transformed(b, draws.run(plan.transform_seed(b), plan.transform, unpack(batch)))
end

-- -- An epoch ---------------------------------------------------------------------------------------

-- Workers for an epoch, or nil.
local function start_workers(self, plan)
  local left = plan.total - self.position
  if self.workers == 0 or self.dataset.in_process or left <= 0 then return nil end
  return require('amp.data.workers').new(math.min(self.workers, left), plan.gather, self.timeout)
end

local function pinned(...) return unpack(feeder.pinned { ... }, 1, select('#', ...)) end

local function begin(self)
  local resumed = self.resumed
  self.resumed = nil
  if not resumed then
    self.position, self.order = 0, nil
    if self.sampler ~= nil then self.order = lasting(sampled, self) end
    if self.shuffle then self.order = lasting(amp.randperm, count(self.dataset), { dtype = 'int64', device = 'cpu' }) end
  end
  if not resumed or not self.key then
    self.key = draws.begin()
    local rank = type(self.sampler) == 'table' and tonumber(self.sampler.rank)
    if rank then self.key = draws.seeds(self.key, 'rank')(2 ^ 40 + rank) end -- ranks draw other numbers, from one seed
  end
end

--- Iterate over the batches of an epoch, or over those left of one that was
-- loaded by load_state_dict. A second `iter` before the end starts a new epoch.
-- @treturn function that gives the tensors of the next batch, nil at the end
function DataLoader:iter()
  begin(self)
  local plan, ahead, epoch = make_plan(self), {}, {}
  local total = plan.total
  self.epoch = epoch
  if self.pool then self.pool:close() end
  local pool = start_workers(self, plan)
  self.pool = pool
  local window = pool and math.max(self.prefetch, 2 * self.workers) or self.prefetch
  local gathered = self.position -- batches gathered so far; those not handed out are in `ahead`
  local feed = self.device and self.device ~= 'cpu' and feeder.new(self.device) or nil
  local pin = self.pin_memory and not feed

  local function obtain(b)
    if pool then
      while gathered < math.min(total, self.position + window) do
        gathered = gathered + 1
        pool:ask(gathered)
      end
      return pool:take(b)
    end
    local batch = ahead[b] or plan.gather(b)
    ahead[b] = nil
    gathered = math.max(gathered, b)
    return batch
  end

  local function advance(b) -- gather what is to be there when batch b is handed out
    while not pool and gathered < math.min(total, b + window) do
      gathered = gathered + 1
      ahead[gathered] = lasting(plan.gather, gathered) -- an open amp.scope ends before it is handed out
    end
  end

  -- Batch b on its way to the device before it is asked for; an error is raised when its turn comes.
  local function send_ahead(b)
    local ok, batch = pcall(lasting, obtain, b)
    if ok then lasting(feed.send, feed, b, batch) else feed:fail(b, batch) end
  end

  return function()
    if self.epoch ~= epoch then raise(OP, 'this iterator ended when a new epoch began') end
    if self.position >= total then
      self.position, self.order, self.key = 0, nil, nil -- between epochs
      total = -1
      if pool then pool:close() end
      return nil
    end
    local b = self.position + 1
    local batch
    if feed and feed.sent[b] then gathered = math.max(gathered, b) -- also where it failed, which `take` says
    else batch = obtain(b) end
    advance(b)
    if feed then
      if batch then feed:send(b, batch) end
      batch = feed:take(b)
      if b < total then send_ahead(b + 1) end
    end
    self.position = b
    if plan.transform then
      if pin then return pinned(transform(plan, b, batch)) end
      return transform(plan, b, batch)
    end
    if pin then return pinned(unpack(batch)) end
    return unpack(batch)
  end
end

--- loader() is loader:iter(); called by `for x, y in loader do`, it gives batch after batch.
function DataLoader:__call(...)
  if select('#', ...) == 0 then return self:iter() end
  if select(2, ...) == nil then self.loop = self:iter() end
  return self.loop()
end

local function numbered(b, first, ...)
  if not absent(first) then return b, first, ... end
end

--- For ipairs(loader): the number of a batch, then its values.
function DataLoader._enumerate(self)
  local next_batch = self:iter()
  return function() return numbered(self.position + 1, next_batch()) end
end

function DataLoader._refuse(i)
  if i then raise(OP, 'batches are not asked for by number, as by [%s]; write for x, y in loader:iter() do', tostring(i)) end
  raise(OP, 'pairs goes through no loader; write for x, y in loader:iter() do, or for i, x, y in ipairs(loader) do')
end

-- -- State ------------------------------------------------------------------------------------------

--- Where the loader stands: plain values and one tensor, for a checkpoint.
function DataLoader:state_dict()
  return { position = self.position, order = self.order and self.order:clone(), examples = length(self), batch_size = self.batch_size,
    key = self.key }
end

local function check_state(op, self, state)
  if type(state) ~= 'table' then raise(op, 'a state table expected, got ' .. util.kind(state)) end
  local n, most = length(self), count(self.dataset)
  for key, mine in pairs { examples = n, batch_size = self.batch_size } do
    if state[key] ~= mine then
      raise(op, string.format('the state is of %s = %s, this loader has %d', key, tostring(state[key]), mine))
    end
  end
  options.integer(op, 'position', state.position, 0)
  if state.position > self:size() then
    raise(op, string.format('position %d, but an epoch has %d batches', state.position, self:size()))
  end
  if state.key ~= nil then options.integer(op, 'key', state.key, 0) end
  local order = state.order
  if order ~= nil and not (amp.is_tensor(order) and order.dtype == 'int64' and order:dim() == 1 and order:size(1) == n
    and (n == 0 or (order:min():item() >= 1 and order:max():item() <= most))) then
    raise(op, string.format('order must be a vector of %d int64 indices from 1 to %d', n, most))
  end
end

local function own(order) return order:to('cpu'):clone() end

--- Take a saved place: the next `iter` goes on from there.
-- @raise when the state is of another dataset size or batch size
function DataLoader:load_state_dict(state)
  check_state(OP .. ':load_state_dict', self, state)
  local order = state.order
  self.position, self.order, self.key, self.epoch = state.position, order and lasting(own, order), state.key, nil
  -- at 0 without an order or key no epoch had begun: the next one draws its own
  self.resumed = state.position > 0 or order ~= nil or state.key ~= nil or nil
  return self
end

function DataLoader:__tostring()
  return string.format('data.DataLoader (%d batches of %d, %d examples%s%s)', self:size(), self.batch_size, length(self),
    self.shuffle and ', shuffled' or '', self.drop_last and ', the last one whole' or '')
end

require('amp.core.class').guard(DataLoader, 'data.DataLoader', 'loader')

return setmetatable({ class = DataLoader }, { __call = new })

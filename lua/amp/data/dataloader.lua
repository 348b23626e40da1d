--- DataLoader: a dataset as batches, shuffled, resumable.
--
-- An epoch draws its order once, from amp's generator, when it begins (`iter`); batches are gathered as they are needed, `prefetch` of them ahead.
-- The order and the place in it are the loader's state, so a run that stopped
-- in the middle of an epoch goes on with exactly the batches that were left. With `workers`, processes gather
-- batches while the caller trains (data/workers.lua); the order of batches and their contents are the same.
local amp = require 'amp'
local feeder = require 'amp.data.feeder'
local options = require 'amp.options'
local types = require 'amp.types'
local raise = require('amp.error').throw

local DataLoader = {}
DataLoader.__index = DataLoader

local known = {'batch_size', 'shuffle', 'drop_last', 'prefetch', 'transform', 'workers', 'pin_memory', 'device'}
local defaults = {batch_size = 1, shuffle = false, drop_last = false, prefetch = 0, workers = 0, pin_memory = false}

--- Make a loader.
-- @tparam table dataset with size() and batch(indices) or get(i)
-- @tparam ?table options batch_size (1), shuffle (false), drop_last (false: the
-- last batch may be smaller), workers (0: processes that gather batches; datasets of tensors and text, whose
-- batches are cheap, are not given to any), prefetch (0: batches gathered ahead; with workers at least two for each),
-- transform (function of a batch's tensors that gives those to hand out, run in the caller's process), pin_memory (false: batches
-- lie in ordinary memory; pinned, a GPU copies them while the program goes on; without a GPU it has no effect), device (where batches
-- are handed out, such as 'cuda': the next one is copied there while the step computes; a transform gets them there)
-- @usage for x, y in amp.data.DataLoader(set, {batch_size = 64, shuffle = true}):iter() do end
local function new(_, dataset, given)
  local op = 'data.DataLoader'
  if type(dataset) ~= 'table' or not dataset.size or not (dataset.batch or dataset.get) then
    raise(op, "a dataset expected (a table with 'size' and 'batch' or 'get'), got " .. type(dataset))
  end
  for _, name in ipairs {'size', 'get', 'batch'} do
    local f = dataset[name]
    if f ~= nil and type(f) ~= 'function' then
      raise(op, "the dataset's '%s' must be a method, as in function set:%s(...) ... end, got a %s", name, name, type(f))
    end
  end
  local o = options.read(op, given, known, defaults)
  options.integer(op, 'batch_size', o.batch_size, 1)
  options.integer(op, 'prefetch', o.prefetch, 0)
  options.integer(op, 'workers', o.workers, 0)
  for _, name in ipairs {'shuffle', 'drop_last', 'pin_memory'} do options.boolean(op, name, o[name]) end
  if o.transform ~= nil and type(o.transform) ~= 'function' then
    raise(op, 'transform must be a function, got ' .. type(o.transform))
  end
  if o.device ~= nil then
    local code = types.device(o.device, op)
    o.device = types.device_string(math.floor(code / 256), code % 256)
  end
  o.dataset, o.position = dataset, 0
  return setmetatable(o, DataLoader)
end

--- Number of batches of an epoch.
function DataLoader:size()
  local n = self.dataset:size() / self.batch_size
  return self.drop_last and math.floor(n) or math.ceil(n)
end

local function collate(dataset, indices) -- a dataset without batch: its examples, stacked
  local columns, width = {}, nil
  for row, i in ipairs(indices:tolist()) do
    local example = {dataset:get(i)}
    width = width or #example
    for k = 1, width do
      local v = example[k]
      columns[k] = columns[k] or {}
      columns[k][row] = v
    end
  end
  for k = 1, width or 0 do
    local column = columns[k]
    local kind = type(column[1])
    if amp.is_tensor(column[1]) then columns[k] = amp.stack(column)
    elseif kind == 'number' or kind == 'boolean' then columns[k] = amp.tensor(column) end -- else a list
  end
  return columns
end

-- Indices of batch b.
local function indices_of(self, b)
  local first = (b - 1) * self.batch_size + 1
  local last = math.min(b * self.batch_size, self.dataset:size())
  if self.order then return self.order:narrow(1, first, last - first + 1) end
  return amp.arange(first, last + 1, {dtype = 'int64', device = 'cpu'})
end

local function values_of(dataset, indices)
  if dataset.batch then return {dataset:batch(indices)} end
  return collate(dataset, indices)
end

local function gather(self, b) return values_of(self.dataset, indices_of(self, b)) end

-- Workers for an epoch, or nil.
local function start_workers(self)
  local dataset = self.dataset
  if self.workers == 0 or dataset.in_process or self:size() - self.position <= 0 then return nil end
  local state = amp.get_rng_state() -- looked at, not drawn from: the caller's random numbers are as without workers
  return require('amp.data.workers').new(math.min(self.workers, self:size() - self.position),
    function(indices) return values_of(dataset, indices) end, (state.seed % 2 ^ 31) * 2 ^ 20 + state.offset % 2 ^ 50)
end

local function pinned(...) return unpack(feeder.pinned {...}, 1, select('#', ...)) end

--- Iterate over the batches of an epoch, or over those left of one that was
-- loaded by load_state_dict. A second `iter` before the end starts a new epoch.
-- @treturn function that gives the tensors of the next batch, nil at the end
function DataLoader:iter()
  if self.resumed then
    self.resumed = nil
  else
    self.position = 0
    self.order = nil
    if self.shuffle then self.order = amp.randperm(self.dataset:size(), {dtype = 'int64', device = 'cpu'}) end
  end
  local total, ahead, epoch = self:size(), {}, {}
  self.epoch = epoch
  if self.pool then self.pool:close() end
  local pool = start_workers(self)
  self.pool = pool
  local window = pool and math.max(self.prefetch, 2 * self.workers) or self.prefetch
  local gathered = self.position -- batches gathered so far; those not handed out are in `ahead`
  local feed = self.device and self.device ~= 'cpu' and feeder.new(self.device) or nil

  local function obtain(b)
    if pool then
      while gathered < math.min(total, self.position + window) do
        gathered = gathered + 1
        pool:ask(gathered, indices_of(self, gathered))
      end
      return pool:take(b)
    end
    local batch = ahead[b] or gather(self, b)
    ahead[b] = nil
    gathered = math.max(gathered, b)
    return batch
  end

  local function advance(b) -- gather what is to be there when batch b is handed out
    while not pool and gathered < math.min(total, b + window) do
      gathered = gathered + 1
      ahead[gathered] = gather(self, gathered)
    end
  end

  -- Batch b on its way to the device before it is asked for, if that changes nothing: a dataset that draws random numbers,
  -- or fails, is asked when its turn comes.
  local function send_ahead(b)
    if ahead[b] then return feed:send(b, obtain(b)) end
    if pool then
      local ok, batch = pcall(obtain, b)
      if ok then feed:send(b, batch) else feed:fail(b, batch) end
    elseif not self.draws then
      local before = amp.get_rng_state()
      local ok, batch = pcall(gather, self, b)
      local after = amp.get_rng_state()
      if ok and before.seed == after.seed and before.offset == after.offset then
        gathered = b
        return feed:send(b, batch)
      end
      amp.set_rng_state(before)
      self.draws = true
    end
  end

  return function()
    if self.epoch ~= epoch then raise('data.DataLoader', 'this iterator ended when a new epoch began') end
    if self.position >= total then
      self.position, self.order = 0, nil -- between epochs
      total = -1
      if pool then pool:close() end
      return nil
    end
    local b = self.position + 1
    local batch
    if not (feed and feed.sent[b]) then batch = obtain(b) end
    advance(b)
    if feed then
      if batch then feed:send(b, batch) end
      batch = feed:take(b)
      if b < total then send_ahead(b + 1) end
    end
    self.position = b
    if self.pin_memory and not feed then
      if self.transform then return pinned(self.transform(unpack(batch))) end
      return pinned(unpack(batch))
    end
    if self.transform then return self.transform(unpack(batch)) end
    return unpack(batch)
  end
end

--- loader() is loader:iter(); called by `for x, y in loader do`, it gives batch after batch.
function DataLoader:__call(...)
  if select('#', ...) == 0 then return self:iter() end
  if select(2, ...) == nil then self.loop = self:iter() end
  return self.loop()
end

--- Where the loader stands: plain values and one tensor, for a checkpoint.
function DataLoader:state_dict()
  return {position = self.position, order = self.order and self.order:clone(), examples = self.dataset:size(),
    batch_size = self.batch_size}
end

--- Take a saved place: the next `iter` goes on from there.
-- @raise when the state is of another dataset size or batch size
function DataLoader:load_state_dict(state)
  local op = 'data.DataLoader:load_state_dict'
  if type(state) ~= 'table' then raise(op, 'a state table expected, got ' .. type(state)) end
  for key, mine in pairs {examples = self.dataset:size(), batch_size = self.batch_size} do
    if state[key] ~= mine then
      raise(op, string.format('the state is of %s = %s, this loader has %d', key, tostring(state[key]), mine))
    end
  end
  options.integer(op, 'position', state.position, 0)
  if state.position > self:size() then
    raise(op, string.format('position %d, but an epoch has %d batches', state.position, self:size()))
  end
  local order = state.order
  local n = state.examples
  if order ~= nil and not (amp.is_tensor(order) and order.dtype == 'int64' and order:dim() == 1 and order:size(1) == n
    and (n == 0 or (order:min():item() >= 1 and order:max():item() <= n))) then
    raise(op, string.format('order must be a vector of %d int64 indices from 1 to %d', n, n))
  end
  self.position, self.order, self.epoch = state.position, order, nil
  -- at 0 without an order no epoch had begun: the next one draws its own
  self.resumed = state.position > 0 or order ~= nil or nil
  return self
end

function DataLoader:__tostring()
  return string.format('data.DataLoader (%d batches of %d, %d examples%s%s)', self:size(), self.batch_size, self.dataset:size(),
    self.shuffle and ', shuffled' or '', self.drop_last and ', the last one whole' or '')
end

require('amp.class').guard(DataLoader, 'data.DataLoader', 'loader')

return setmetatable({class = DataLoader}, {__call = new})

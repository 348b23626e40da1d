--- Averages of weights: AveragedModel (stochastic weight averaging, Izmailov et al., 2018), EMA, update_bn.
-- @module amp.optim.swa
-- @usage local ema = amp.optim.swa.EMA(net, {decay = 0.999})
-- opt:step():clear_grad()
-- ema:update(net)                       -- after each step; the first one copies
-- local y = ema(x)                      -- the averaged network
local amp = require 'amp'
local capturing = require 'amp.capture.current'
local err = require 'amp.error'
local options = require 'amp.options'
local util = require 'amp.util'
local masters = require 'amp.nn.core.masters'
local Module = require 'amp.nn.module'

local M = {}

-- -- AveragedModel --------------------------------------------------------------------------

local Averaged = Module:extend 'AveragedModel'

-- A copy of a network, to be averaged into; gradients have no place in it.
local function adopt(self, model)
  self.module = model:clone()
  self.module:zero_grad()
end

local function is_module(v) return Module.is_module(v) end

--- An average of a network's weights, in a copy of it.
-- @tparam nn.Module model copied as it is; the first update copies its weights again
-- @tparam ?table given {avg_fn = function(average, parameter, n) end: gives the new average after n updates,
-- use_buffers = false: buffers are averaged too, else copied}; nil avg_fn: the mean of all updates
function Averaged:init(model, given)
  local op = 'optim.swa.AveragedModel'
  if not is_module(model) then err.throw(op, 'the first argument is a network, got %s', util.show(model)) end
  local o = options.read(op, given, { 'avg_fn', 'use_buffers' }, { use_buffers = false })
  if o.avg_fn ~= nil and type(o.avg_fn) ~= 'function' and not (is_module(o.avg_fn) and o.avg_fn.decay) then
    err.throw(op, 'avg_fn is a function(average, parameter, n), got %s', util.show(o.avg_fn))
  end
  options.boolean(op, 'use_buffers', o.use_buffers)
  adopt(self, model)
  local avg_fn = o.avg_fn
  if is_module(avg_fn) then
    self.decay = avg_fn.decay
  elseif avg_fn then
    self.avg_fn = avg_fn
  end
  self.use_buffers = o.use_buffers
  self:register_buffer('n_averaged', amp.zeros({}, { dtype = 'int64', device = 'cpu' }))
end

-- The name and the tensors of two lists of one network each, pair by pair.
local function pairs_in(op, mine, theirs, what)
  if #mine ~= #theirs then err.throw(op, 'the average has %d %ss, the network %d: it is not a copy of it', #mine, what, #theirs) end
  for i = 1, #mine do
    if util.shape(mine[i].shape) ~= util.shape(theirs[i].shape) then
      err.throw(op, '%s %d of the average is of shape %s, of the network %s', what, i, util.shape(mine[i].shape), util.shape(theirs[i].shape))
    end
  end
end

-- One average, moved on by a value.
local function move(self, average, value, n)
  local a, v = average:detach(), value:detach():to(average.device)
  if n == 0 or not a.dtype:match 'float' then
    a:copy_(v)
  elseif self.avg_fn then
    a:copy_(self.avg_fn(a, v, n))
  else
    a:lerp_(v:to(a.dtype), self.decay and 1 - self.decay or 1 / (n + 1))
  end
end

-- How many updates were made. It stays on the CPU, where it is read without a wait.
local function count(self)
  if self.n_averaged.device ~= 'cpu' then self.n_averaged = self.n_averaged:cpu() end
  return self.n_averaged:item()
end

--- Take the network's weights into the average. The first update copies them.
-- @tparam nn.Module model what the average was made of, or a network of the same shape
-- @return self
function Averaged:update_parameters(model)
  local op = self.__name .. ':update_parameters'
  if not is_module(model) then err.throw(op, 'takes a network, got %s', util.show(model)) end
  if not self.module then adopt(self, model) end
  local n = count(self)
  if capturing.current and (n == 0 or not self.decay) then -- replays would go on with the n of now
    err.throw_code('state', op, 'what it does depends on how many updates were made, which replays of a captured step do not count: '
      .. 'call it outside of the step')
  end
  local mine, theirs = self.module:parameters(), model:parameters()
  local buffers, others = self.module:buffers(), model:buffers()
  pairs_in(op, mine, theirs, 'parameter')
  pairs_in(op, buffers, others, 'buffer')
  amp.autocast({ enabled = false }, amp.no_grad, function()
    local ours, of = masters.of(self.module), masters.of(model)
    for i = 1, #mine do
      local p = theirs[i]
      local now = masters.get(of[p:id()], p)
      if type(now) == 'nil' then now = p end
      masters.put(ours[mine[i]:id()], mine[i], function(average) move(self, average, now, n) end)
    end
    for i = 1, #buffers do
      if self.use_buffers then move(self, buffers[i], others[i], n) else buffers[i]:copy_(others[i]) end
    end
    self.n_averaged:fill_(n + 1)
  end)
  return self
end

--- The same as update_parameters; an EMA made of a network takes that one by default.
function Averaged:update(model) return self:update_parameters(model) end

--- What the averaged network gives.
function Averaged:forward(...)
  if not self.module then err.throw(self.__name, 'there is no average yet: call ema:update(net) first') end
  return self.module(...)
end

--- Copy the averages into a network's weights and buffers.
-- @return self
function Averaged:copy_to(model)
  local op = self.__name .. ':copy_to'
  if not is_module(model) then err.throw(op, 'takes a network, got %s', util.show(model)) end
  if not self.module then err.throw(op, 'there is no average yet: call update first') end
  local mine, theirs = self.module:parameters(), model:parameters()
  local buffers, others = self.module:buffers(), model:buffers()
  pairs_in(op, mine, theirs, 'parameter')
  pairs_in(op, buffers, others, 'buffer')
  amp.no_grad(function()
    local ours, of = masters.of(self.module), masters.of(model)
    for i = 1, #mine do
      local average = masters.get(ours[mine[i]:id()], mine[i])
      if type(average) == 'nil' then average = mine[i]:detach() end
      masters.put(of[theirs[i]:id()], theirs[i], function(weight) weight:detach():copy_(average) end)
    end
    for i = 1, #buffers do others[i]:copy_(buffers[i]) end
  end)
  return self
end

M.AveragedModel = Averaged

-- -- EMA --------------------------------------------------------------------------------------

local EMA = Averaged:extend 'EMA'

--- An exponential moving average of a network's weights: average = decay * average + (1 - decay) * weight. The first update
-- copies. EMA(net, {decay = 0.999}), or EMA{decay = 0.999}, which copies the network at its first update(net) and may be the
-- avg_fn of an AveragedModel.
-- @tparam ?nn.Module model
-- @tparam ?table given {decay = 0.999, use_buffers = false}
function EMA:init(model, given)
  local op = 'optim.swa.EMA'
  if not is_module(model) and given == nil then model, given = nil, model end
  if model ~= nil and not is_module(model) then err.throw(op, 'the first argument is a network, got %s', util.show(model)) end
  if type(given) == 'number' then given = { decay = given } end
  local o = options.read(op, given, { 'decay', 'use_buffers' }, { decay = 0.999, use_buffers = false })
  options.number(op, 'decay', o.decay, 0)
  if o.decay > 1 then err.throw(op, 'decay must be in [0, 1], got %g', o.decay) end
  options.boolean(op, 'use_buffers', o.use_buffers)
  self.decay, self.use_buffers = o.decay, o.use_buffers
  self:register_buffer('n_averaged', amp.zeros({}, { dtype = 'int64', device = 'cpu' }))
  if model then
    adopt(self, model)
    rawset(self, '.source', setmetatable({ model }, { __mode = 'v' }))
  end
end

--- Take a network's weights into the average.
-- @tparam ?nn.Module model nil: the one it was made of
-- @return self
function EMA:update_parameters(model)
  if model == nil then
    local source = rawget(self, '.source')
    model = source and source[1]
    if not model then err.throw('EMA:update', 'of which network? call ema:update(net)') end
  end
  return Averaged.update_parameters(self, model)
end

function EMA:extra_repr() return ('decay = %g'):format(self.decay) end

M.EMA = EMA

-- -- Batch norm -----------------------------------------------------------------------------------

--- Running statistics of a network's batch norms anew, as means over a loader's batches: after averaging weights.
-- @tparam DataLoader loader, or any function that iterates; of a batch that is a list the first tensor goes in
-- @tparam nn.Module model left in the mode it was in
function M.update_bn(loader, model)
  local op = 'optim.swa.update_bn'
  if not is_module(model) then err.throw(op, 'the second argument is a network, got %s', util.show(model)) end
  local norms, momenta = {}, {}
  for _, m in ipairs(model:modules()) do
    if type(m.reset_running_stats) == 'function' and m.running_mean ~= nil then
      norms[#norms + 1], momenta[#norms + 1] = m, m.momentum
    end
  end
  if #norms == 0 then return end
  local training = model.training
  local function run()
    for _, m in ipairs(norms) do
      m:reset_running_stats()
      m.momentum = false -- means of all batches
    end
    model:train()
    local list, at = type(loader) == 'table' and getmetatable(loader) == nil and loader, 0
    local function following()
      at = at + 1
      return list[at]
    end
    for batch in list and following or loader do
      if type(batch) == 'table' then batch = batch[1] end
      model(batch)
    end
  end
  local ok, e = pcall(amp.no_grad, run)
  for i, m in ipairs(norms) do m.momentum = momenta[i] end
  if not training then model:eval() end
  if not ok then error(e, 0) end
end

return M

--- Trainer: an optimizer by name whose step takes the size of the batch.
-- A step multiplies gradients by 1/batch_size (in the update itself, without a pass of its own)
-- and clears them afterwards, so that the next backward writes them anew. With
-- amp.init_trainer it has a loss scale: step unscales, skips on overflow and updates the scale.
-- Fields: optimizer, param_groups, learning_rate, loss_scale (1 without amp.init_trainer).
-- @usage local trainer = amp.optim.Trainer(net:parameters(), 'sgd', {lr = 0.1, momentum = 0.9}); loss:sum():backward(); trainer:step(64)
-- @module amp.optim.trainer
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local err = require 'amp.error'
local optimizer = require 'amp.optim.optimizer'
local options = require 'amp.options'
local origin = require 'amp.optim.origin'
local util = require 'amp.util'
local ref_t = core.ref_t
local istype = ffi.istype

local OP = 'optim.Trainer'

local Trainer = {}

-- -- Steps ---------------------------------------------------------------------------------------

--- Name for messages: option `name`, else what it trains with and the line that made it.
function Trainer:describe()
  if self.name then return ("trainer '%s'"):format(self.name) end
  local class = rawget(self.optimizer, 'class')
  return ('trainer (%s) made at %s'):format(class and class.name or self.optimizer.name or 'an optimizer of its own', self.where or 'an unknown place')
end

local function params(self)
  local list = {}
  for _, g in ipairs(self.optimizer.param_groups) do
    for _, p in ipairs(g.params) do list[#list + 1] = p end
  end
  return list
end

-- An optimizer that knows no factor gets its gradients multiplied.
local function multiply(self, factor, scaled)
  local amp = require 'amp'
  if scaled and not self._scaler:is_unscaled(self.optimizer) then self._scaler:unscale_(self.optimizer) end
  if factor == 1 then return end
  amp.no_grad(amp.autocast, { enabled = false }, function()
    for _, p in ipairs(params(self)) do
      local g = p.grad
      if g ~= nil then origin.keep(p, g, g.mul_, factor) end
    end
  end)
end

-- Whether this step's gradients carry the scale: a block of amp.scale_loss was entered since the last step, or
-- some of them are of a scaled loss anyhow. Without one the step is that of a trainer without a scale.
local function is_scaled(self)
  local scaler = self._scaler
  if not scaler or not scaler:is_enabled() then return false end
  if self._entered or scaler:is_unscaled(self.optimizer) then return true end
  for _, p in ipairs(params(self)) do
    if origin.of(p) % (2 * origin.SCALED) >= origin.SCALED then return true end
  end
  return false
end

local function run(self, fused, scaled)
  local scaler = self._scaler
  if scaled then
    scaler:step(self.optimizer, { allow_empty = true })
    scaler:update()
  else
    self.optimizer:step()
  end
  self._entered = nil
  if fused then self.optimizer:clear_grad() else self:zero_grad() end
end

--- Update the parameters with gradients of a batch.
-- @tparam number batch_size gradients are divided by it
-- @tparam ?table o {ignore_stale_grad}: checked, without effect, as parameters without a gradient are left alone
-- @return self
function Trainer:step(batch_size, o)
  if type(o) == 'boolean' then o = { ignore_stale_grad = o } end
  if o ~= nil then
    options.boolean(OP .. '.step', 'ignore_stale_grad',
      options.read(OP .. '.step', o, { 'ignore_stale_grad' }, { ignore_stale_grad = true }).ignore_stale_grad)
  end
  if type(batch_size) ~= 'number' or batch_size ~= batch_size or batch_size <= 0 or batch_size == math.huge then
    err.throw(OP .. '.step', 'takes the batch size, a positive number; got %s', util.show(batch_size))
  end
  local opt, factor = self.optimizer, self._rescale_grad / batch_size
  if self._together then self:allreduce_grads() end
  local fused = optimizer.is(opt)
  local scaled = is_scaled(self)
  if fused then opt._rescale = factor else multiply(self, factor, scaled) end
  local ok, message = pcall(run, self, fused, scaled)
  if fused then opt._rescale = 0 end
  if not ok then error(message, 0) end
  return self
end

Trainer.update = Trainer.step

--- Gradients become nil; step does it as well.
-- @return self
function Trainer:zero_grad()
  for _, p in ipairs(params(self)) do p.grad = nil end
  return self
end

--- Gradients become the sum of all ranks': step does it where kvstore is 'dist_sync' or another of 'dist...'. batch_size
-- is then that of all ranks together. Without amp.distributed there is one process, and nothing happens.
-- @return self
function Trainer:allreduce_grads()
  local dist = package.loaded['amp.distributed']
  if not dist or not dist._several() then return self end
  local list = {}
  for _, p in ipairs(params(self)) do if p.requires_grad then list[#list + 1] = p end end
  require('amp.parallel.reducer').reduce(list, 'sum')
  return self
end

--- Set the learning rate of every group.
-- @return self
function Trainer:set_learning_rate(lr)
  options.number(OP .. '.set_learning_rate', 'the learning rate', lr, 0)
  for _, g in ipairs(self.optimizer.param_groups) do g.lr = lr end
  return self
end

-- -- Loss scale -------------------------------------------------------------------------------------

function Trainer:_attach(scaler)
  self._scaler = scaler
  scaler._cure = 'call amp.scale_loss(loss, trainer, function(scaled) scaled:backward() end)'
  local waiting = self._waiting
  self._waiting = nil
  if waiting and scaler:is_enabled() then scaler:load_state_dict(waiting) end
end

function Trainer:_scaler_of(op)
  if not self._scaler then
    err.throw_code('state', op, '%s has no loss scale; call amp.init_trainer(trainer) first', self:describe())
  end
  return self._scaler
end

-- amp.scale_loss with this trainer
function Trainer:_scale_loss(loss, o, fn)
  local block = require 'amp.levels.block'
  local scaler = self:_scaler_of 'scale_loss'
  options.read('scale_loss', o, {})
  block.check_function('scale_loss', 3, fn)
  if not scaler:is_enabled() then return fn(loss) end
  if scaler:is_unscaled(self.optimizer) then
    err.throw_code('state', 'scale_loss',
      'the gradients of %s were unscaled by amp.unscale, and scaled ones would be added to them; step first', self:describe())
  end
  block.check_loss('scale_loss', loss, true)
  self._entered = true
  return fn(scaler:scale(loss))
end

-- -- State ---------------------------------------------------------------------------------------

--- Write the optimizer's state and the loss scale to a file.
-- @tparam string path
-- @return self
function Trainer:save_states(path)
  local state = { kind = 'amp.optim.Trainer', optimizer = self.optimizer:state_dict() }
  if self._scaler and self._scaler:is_enabled() then state.scaler = self._scaler:state_dict() end
  require('amp').save(path, state)
  return self
end

--- Go on from such a file. A loss scale in it waits for amp.init_trainer where that comes later.
-- @tparam string path
-- @return self
function Trainer:load_states(path)
  local state = require('amp').load(path)
  if type(state) ~= 'table' or state.kind ~= 'amp.optim.Trainer' then
    err.throw_code('value', OP .. '.load_states', "'%s' holds no states of a trainer", tostring(path))
  end
  self.optimizer:load_state_dict(state.optimizer)
  if state.scaler then
    if not self._scaler then self._waiting = state.scaler
    elseif self._scaler:is_enabled() then self._scaler:load_state_dict(state.scaler) end
  end
  return self
end

-- -- Making one --------------------------------------------------------------------------------------

local classes = { sgd = 'SGD', nag = 'SGD', adam = 'Adam', adamw = 'AdamW', rmsprop = 'RMSprop', adagrad = 'Adagrad', lamb = 'LAMB',
  nadam = 'NAdam', radam = 'RAdam', adadelta = 'Adadelta', adamax = 'Adamax', lion = 'Lion', adafactor = 'Adafactor', muon = 'Muon' }
local other_names = { learning_rate = 'lr', wd = 'weight_decay', epsilon = 'eps' }

-- A list of tensors (or groups) of what was given: a list, a module, a table by names.
local function parameters(given)
  if type(given) == 'table' and type(given.parameters) == 'function' then return given:parameters() end
  if type(given) == 'table' and getmetatable(given) == nil and #given == 0 and next_key(given) ~= nil then
    local list = {}
    for _, name in ipairs(util.keys(given)) do list[#list + 1] = given[name] end
    return list
  end
  return given
end

local function make(params_, what, given)
  if type(what) ~= 'string' then
    if type(what) == 'table' and type(what.step) == 'function' and type(what.param_groups) == 'table' then return what end
    err.throw(OP, "argument 2 must be an optimizer's name, as 'sgd', or an optimizer; got %s", util.show(what))
  end
  local class = classes[what:lower()]
  if not class then
    err.throw(OP, 'there is no optimizer %s%s (there are %s)', util.show(what), util.hint(what:lower(), util.keys(classes)),
      table.concat(util.keys(classes), ', '))
  end
  local o = {}
  if what:lower() == 'nag' then o.nesterov = true end
  for k, v in pairs(given) do
    local name = other_names[k] or k
    if name ~= k and given[name] ~= nil then err.throw(OP, "'%s' and '%s' are one option; give one of them", k, name) end
    o[name] = v
  end
  return require('amp.optim')[class](parameters(params_), o)
end

--- A trainer.
-- @param params a list of tensors or of groups, a module, or tensors by name
-- @tparam string|table what 'sgd', 'nag', 'adam', 'adamw', 'rmsprop', 'adagrad', 'lamb', 'nadam', 'radam', 'adadelta', 'adamax', 'lion',
-- 'adafactor', 'muon'; or an optimizer
-- @tparam ?table given the optimizer's options, of {lr, momentum, dampening, nesterov, weight_decay, betas, eps, amsgrad, alpha,
--   centered, lr_decay, initial_accumulator_value, bias_correction, always_adapt, maximize} those that it has; also
--   {rescale_grad = 1, name, kvstore}: 'dist_sync' sums gradients over the ranks; and {update_on_kvstore, multi_precision}, which have no effect
-- @tparam ?table more kvstore options here do as well
local function new(_, params_, what, given, more)
  if params_ == nil then err.throw(OP, "parameters are missing: amp.optim.Trainer(net:parameters(), 'sgd', {lr = 0.1})") end
  for i, t in ipairs { given or {}, more or {} } do
    if type(t) ~= 'table' or istype(ref_t, t) then err.throw(OP, 'argument %d must be a table of options, got %s', i + 2, util.show(t)) end
  end
  options.read(OP, more, { 'kvstore', 'update_on_kvstore', 'compression_params' })
  local o = {}
  for k, v in pairs(given or {}) do o[k] = v end
  local rescale, name = o.rescale_grad or 1, o.name
  local store = o.kvstore or (more or {}).kvstore
  options.number(OP, 'rescale_grad', rescale)
  for _, k in ipairs { 'rescale_grad', 'kvstore', 'update_on_kvstore', 'multi_precision', 'compression_params' } do o[k] = nil end
  local self = { is_trainer = true, -- what amp.scale_loss looks for
    name = name, where = err.where(), _rescale_grad = rescale, _together = type(store) == 'string' and store:sub(1, 4) == 'dist' }
  self.optimizer = make(params_, what, o)
  return setmetatable(self, {
    __index = function(t, k)
      local v = Trainer[k]
      if v ~= nil then return v end
      if k == 'learning_rate' then return t.optimizer.param_groups[1].lr end
      if k == 'loss_scale' then return t._scaler and t._scaler:get_scale() or 1 end -- waits for the device
      if k == 'param_groups' then return t.optimizer.param_groups end
      return nil
    end,
    __tostring = function(t) return 'Trainer of ' .. tostring(t.optimizer) end,
  })
end

require('amp.core.class').guard(Trainer, 'optim.Trainer', 'trainer')

return setmetatable({ name = 'Trainer' }, { __call = new })

--- amp.initialize and what goes with it: opt_levels O0 to O3, blocks of scaled losses.
--     net, opt = amp.initialize(net, opt, {opt_level = 'O2'})
--     amp.scale_loss(loss, opt, function(scaled) scaled:backward() end)
--     opt:step()
-- A face over what is there: autocast (O1), a network cast with float32 masters in its
-- optimizers (O2), one GradScaler a loss, whose update comes at the end of each block.
-- @module amp.levels
local autocast = require 'amp.precision.autocast'
local next_key = require('amp.core.keys').next
local block = require 'amp.levels.block'
local err = require 'amp.error'
local level_options = require 'amp.levels.options'
local options = require 'amp.options'
local program = require 'amp.levels.program'
local side = require 'amp.levels.master_step'
local util = require 'amp.util'
local warn = require 'amp.core.warn'

local M = {}

-- -- initialize ------------------------------------------------------------------------------------

local function is_module(v) return require('amp.nn.module').is_module(v) end

local function models_of(given)
  local list = is_module(given) and { given } or given
  if type(list) ~= 'table' or #list == 0 then
    err.throw('initialize', 'argument 1 must be a module or a list of modules, got %s', util.show(given))
  end
  local seen = {}
  for i = 1, #list do
    if not is_module(list[i]) then err.throw('initialize', 'model %d must be an nn.Module, got %s', i, util.show(list[i])) end
    if seen[list[i]] then err.throw('initialize', 'model %d is given twice, also as number %d', i, seen[list[i]]) end
    seen[list[i]] = i
  end
  return list
end

local function optimizers_of(given)
  if given == nil or (type(given) == 'table' and given.step == nil and next_key(given) == nil) then return {} end
  local list = block.optimizers('initialize', given)
  for i = 1, #list do
    local s = side.find(list[i])
    if s and s.initialized then
      err.throw_code('state', 'initialize', 'optimizer %s was given to amp.initialize before; make a fresh one, of a fresh model\'s parameters',
        side.describe(list[i]))
    end
  end
  return list
end

-- A plain table of names, which is neither an optimizer nor a list of them.
local function is_options(t)
  return type(t) == 'table' and getmetatable(t) == nil and type(next_key(t)) == 'string' and t[1] == nil
    and t.step == nil and t.param_groups == nil
end

-- What a model must be: parameters in float32. Gives the ids of parameters that an optimizer has.
local function check_models(models, opts, o)
  for i, net in ipairs(models) do
    for name, p in net:named_parameters() do
      if not o.any_dtype and (p.dtype == 'float16' or p.dtype == 'bfloat16') then
        err.throw_code('dtype', 'initialize', "parameter '%s' of model %d is %s; give models in float32, the level casts them "
          .. '(cast_model_type = false leaves parameters as they are)', name, i, p.dtype)
      end
    end
  end
  local stepped = {}
  for _, opt in ipairs(opts) do
    for _, p in ipairs(side.params(opt)) do stepped[p:id()] = true end
  end
  return stepped
end

local function tell(o)
  if o.verbosity < 1 then return end
  local parts = {}
  for _, name in ipairs { 'cast_model_type', 'keep_batchnorm_fp32', 'master_weights', 'loss_scale', 'cast_model_outputs', 'num_losses' } do
    if o[name] ~= nil then parts[#parts + 1] = name .. ' = ' .. tostring(o[name]) end
  end
  warn.log(('amp.initialize: opt_level %s, %s (%s)'):format(o.opt_level, level_options.levels[o.opt_level].text, table.concat(parts, ', ')))
end

--- Make models and optimizers ready for an opt_level.
-- @param models a module or a list
-- @param optimizers an optimizer, a list, or nil (models alone may be followed by the options at once)
-- @tparam ?table|string given an opt_level, or {enabled = true, opt_level = 'O1', cast_model_type, keep_batchnorm_fp32, master_weights, loss_scale,
--   cast_model_outputs, num_losses = 1, verbosity = 1, min_loss_scale, max_loss_scale = 2^24, keep_fp32}
-- @return models and optimizers, in the shape they were given in
-- @usage net, opt = amp.initialize(net, opt, {opt_level = 'O2', keep_fp32 = function(m) return m:is(MyNorm) end})
function M.initialize(models, optimizers, given)
  if given == nil and (is_options(optimizers) or type(optimizers) == 'string') then optimizers, given = nil, optimizers end
  if type(given) == 'string' then given = { opt_level = given } end
  if type(given) == 'table' and optimizers == nil and given.optimizers ~= nil then
    local rest = {}
    for k, v in pairs(given) do rest[k] = v end
    optimizers, rest.optimizers = given.optimizers, nil
    given = rest
  end
  local o = level_options.read(given)
  local list, opts = models_of(models), optimizers_of(optimizers)
  local face, stepped = { levels = true, enabled = o.enabled, options = o, scalers = {} }, nil
  if o.enabled then
    stepped = check_models(list, opts, o)
    face.plain = o.opt_level == 'O0' and o.loss_scale == 1 -- elsewhere a scale of 1 checks and skips
    local low = o.cast_model_type == 'float16' or o.cast_model_type == 'bfloat16'
    for i = 1, o.num_losses do
      face.scalers[i] = level_options.scaler(o.loss_scale, {
        min_loss_scale = o.min_loss_scale, max_loss_scale = o.max_loss_scale, verbose = o.verbosity > 0,
        title = ('amp.scale_loss: loss %d'):format(i), any_dtype = o.any_dtype or low,
      })
    end
  end
  local now = program.start('initialize', { enabled = o.enabled and o.autocast })
  for k, v in pairs(face) do now[k] = v end
  if o.enabled then
    tell(o)
    local cast = require('amp.levels.model').cast
    for _, net in ipairs(list) do cast(net, o, stepped) end
    for _, opt in ipairs(opts) do
      local s = side.of(opt)
      s.initialized = true
      if o.master_weights then s:use_masters(opt) end
    end
  end
  if optimizers == nil then return models end
  return models, optimizers
end

--- End what amp.initialize or amp.init set for the whole program.
function M.deactivate() program.stop 'deactivate' end

-- -- Blocks ----------------------------------------------------------------------------------------

local function face_of(op)
  local now = program.current
  if now and now.levels then return now end
  err.throw_code('state', op, now and 'amp.init is in force, whose handle scales losses: handle:scale_loss(loss, opt, fn); '
    .. 'with amp.optim.Trainer call amp.init_trainer(trainer); or call amp.initialize(models, optimizers, ...) first'
    or 'call amp.initialize(models, optimizers, {opt_level = ...}) first')
end

--- Run fn(scaled_loss), which calls backward; then unscale the optimizers' gradients and update the scale.
-- An overflow makes the next step of each of these optimizers do nothing.
-- @tparam Tensor loss (with a Trainer: or a list)
-- @param optimizers an optimizer or a list, as given to amp.initialize; or a Trainer
-- @tparam ?table o {loss_id = 1, model, delay_unscale = false}, before fn or behind it
-- @tparam function fn
-- @return fn's results
-- @usage amp.scale_loss(loss, opt, function(scaled) scaled:backward() end)
function M.scale_loss(loss, optimizers, o, fn)
  local op = 'scale_loss'
  local place = 4
  if type(o) == 'function' or type(o) == 'table' and getmetatable(o) ~= nil then o, fn, place = fn, o, 3
  elseif fn == nil and type(o) ~= 'table' then o, fn, place = nil, o, 3 end
  if type(optimizers) == 'table' and rawget(optimizers, 'is_trainer') then return optimizers:_scale_loss(loss, o, fn) end
  local now = face_of(op)
  o = options.read(op, o, { 'loss_id', 'model', 'delay_unscale' }, { loss_id = 1, delay_unscale = false })
  block.check_function(op, place, fn)
  if not now.enabled then return fn(loss) end
  options.boolean(op, 'delay_unscale', o.delay_unscale)
  local scaler = type(o.loss_id) == 'number' and now.scalers[o.loss_id]
  if not scaler then
    err.throw_code('index', op, 'loss_id is %s, but amp.initialize was given num_losses = %d: it counts from 1 to %d', util.show(o.loss_id),
      #now.scalers, #now.scalers)
  end
  if optimizers == nil then err.throw(op, 'argument 2 must be the optimizer, or a list of them, whose parameters the loss reaches') end
  local opts = block.optimizers(op, optimizers)
  for i = 1, #opts do
    local s = side.find(opts[i])
    if not (s and s.initialized) then
      err.throw_code('state', op, 'optimizer %s was not given to amp.initialize; give it there, with its model', side.describe(opts[i]))
    end
  end
  block.check_loss(op, loss)
  if now.plain then
    return fn(loss:float())
  end
  return block.run(op, scaler, loss, opts, o.delay_unscale, fn)
end

-- -- Parameters that step ---------------------------------------------------------------------------

local list_mt = {
  __call = function(self, _, last)
    if type(last) == 'nil' then self.at = 0 end
    self.at = self.at + 1
    return self[self.at]
  end,
}

--- What an optimizer steps: float32 masters where its model is in 16 bits.
-- @param optimizer
-- @treturn table list that is also an iterator
-- @usage nn.utils.clip_grad_norm_(amp.master_params(opt), 1); for p in amp.master_params(opt) do print(p:size()) end
function M.master_params(optimizer)
  local opt = type(optimizer) == 'table' and rawget(optimizer, 'optimizer') or optimizer -- of a wrapper or Trainer
  return setmetatable(side.params(side.inner('master_params', opt)), list_mt)
end

--- Run fn(...) with autocast off.
function M.disable_casts(fn, ...)
  require('amp.autograd').need_function('disable_casts', fn)
  return autocast.off(fn, ...)
end

-- -- State -----------------------------------------------------------------------------------------

local function scalers_of(op)
  local now = program.current
  if now and now.scalers then return now.scalers end
  err.throw_code('state', op, 'call amp.initialize(models, optimizers, ...) first')
end

--- The losses' scales: {loss_scaler1 = {loss_scale, unskipped}, ...}. Waits for the device.
function M.state_dict()
  local out = {}
  for i, s in ipairs(scalers_of 'state_dict') do
    out['loss_scaler' .. i] = { loss_scale = s:get_scale(), unskipped = s:get_growth_tracker() }
  end
  return out
end

--- Go on from what state_dict gave.
function M.load_state_dict(dict)
  local op = 'load_state_dict'
  local scalers = scalers_of(op)
  if not program.current.enabled then return end
  if type(dict) ~= 'table' then err.throw(op, 'takes a table that amp.state_dict gave, got %s', util.show(dict)) end
  local given = 0
  for k, v in pairs(dict) do
    local i = type(k) == 'string' and tonumber(k:match '^loss_scaler(%d+)$')
    if not i then err.throw(op, 'unknown key %s (there are loss_scaler1, loss_scaler2, ...)', util.show(k)) end
    if type(v) ~= 'table' or type(v.loss_scale) ~= 'number' or type(v.unskipped) ~= 'number' then
      err.throw(op, '%s must be {loss_scale = number, unskipped = number}, got %s', k, util.show(v))
    end
    options.number(op, k .. '.loss_scale', v.loss_scale, 2 ^ -126, 2 ^ 127)
    options.integer(op, k .. '.unskipped', v.unskipped, 0)
    given = given + 1
  end
  if given ~= #scalers then
    warn.once(('amp.load_state_dict: the state is of %d loss scalers, there are %d; those in both are loaded'):format(given, #scalers))
  end
  for i, s in ipairs(scalers) do
    local v = dict['loss_scaler' .. i]
    if v then s:resume(v.loss_scale, v.unskipped) end
  end
end

return M

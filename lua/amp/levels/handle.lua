--- amp.init and its handle: autocast for the whole program, scaled losses, lists of ops.
--     local handle = amp.init{verbose = true}
--     handle:scale_loss(loss, opt, function(scaled) scaled:backward() end)
--     opt:step()
-- With Trainers see amp.mxnet. One scaler a handle; one a loss after wrap_optimizer.
-- @module amp.levels.handle
local autocast = require 'amp.precision.autocast'
local block = require 'amp.levels.block'
local err = require 'amp.error'
local level_options = require 'amp.levels.options'
local GradScaler = require 'amp.precision.scaler'
local options = require 'amp.options'
local program = require 'amp.levels.program'
local side = require 'amp.levels.master_step'
local util = require 'amp.util'
local wrap = require 'amp.levels.wrapper'

local M = {}

local Handle = {}
Handle.__index = function(_, k)
  local v = Handle[k]
  if v == nil and type(k) == 'string' and k:sub(1, 1) ~= '_' then
    err.throw(nil, "a handle of amp.init has no '%s'%s", k, util.hint(k, util.keys(Handle)))
  end
  return v
end
Handle.__tostring = function(self)
  return ('amp handle (%s)'):format(not self._o.enabled and 'disabled' or self:is_active() and 'active' or 'no longer in force')
end

local function need_handle(op, self)
  if getmetatable(self) ~= Handle then
    err.throw(op, 'is a method, called with a colon: %s(...); before the arguments it got %s', (op:gsub('%.', ':')), util.show(self))
  end
end

local names = { 'enabled', 'enable_caching', 'verbose', 'loss_scale', 'allow_banned', 'target_dtype', 'target_precision_ops',
  'conditional_fp32_ops', 'fp32_ops' }

--- A scaler as the options of amp.init say.
local function new_scaler(o, title)
  return level_options.scaler(o.loss_scale, { max_loss_scale = 2 ^ 24, verbose = o.verbose, title = title })
end

--- Turn autocast on for the whole program; what amp.init or amp.initialize set before is undone.
-- @tparam ?table|string|boolean given a target_dtype, or enabled, or {enabled = true, enable_caching = true, verbose = false,
--   loss_scale = 'dynamic', allow_banned = false, target_dtype (default: each device's), target_precision_ops, fp32_ops (lists of op names,
--   amp's or other systems', each of which takes the place of the default list of its kind),
--   conditional_fp32_ops (list of {op, attribute, {values}}: float32 where the attribute has one of the values, else untouched)}
-- @return a handle
-- @usage amp.init{target_dtype = 'bfloat16', verbose = true} -- one op alone: amp.set_policy('gelu', 'fp32')
function M.init(given)
  if type(given) == 'boolean' then given = { enabled = given } end
  if type(given) == 'string' then given = { target_dtype = given } end
  local o = options.read('init', given, names, { enabled = true, enable_caching = true, verbose = false, loss_scale = 'dynamic',
    allow_banned = false })
  for _, name in ipairs { 'enabled', 'enable_caching', 'verbose', 'allow_banned' } do options.boolean('init', name, o[name]) end
  o.loss_scale = level_options.check_scale('loss_scale', o.loss_scale, 'init')
  local dtype = o.target_dtype
  if dtype == 'half' then dtype = 'float16' end
  if dtype ~= nil and dtype ~= 'float16' and dtype ~= 'bfloat16' then
    err.throw_code('dtype', 'init', "target_dtype must be 'float16' or 'bfloat16', got %s", util.show(dtype))
  end
  local lists = program.read_lists('init', o)
  local self = setmetatable({ _o = o, _scaler = new_scaler(o, 'amp.init') }, Handle)
  if o.enabled then
    self._program = program.start('init', { enabled = true, dtype = dtype, cache_enabled = o.enable_caching, verbose = o.verbose },
      { allow_banned = o.allow_banned, lists = lists })
  else
    self._program = program.start 'init'
  end
  self._program.enabled = o.enabled
  self._program.scalers = { self._scaler }
  self._program.new_scaler = function(title) return o.enabled and new_scaler(o, title) or GradScaler { enabled = false } end
  return self
end

--- Whether this handle is in force and enabled.
function Handle:is_active()
  need_handle('handle.is_active', self)
  return self._o.enabled and program.current == self._program
end

--- Run fn(scaled_loss), which calls backward; then unscale the optimizer's gradients and update
-- the scale. After an overflow the optimizer's next step does nothing.
-- @tparam Tensor loss
-- @param optimizer or a list
-- @tparam function fn
-- @return fn's results
function Handle:scale_loss(loss, optimizer, fn)
  local op = 'handle.scale_loss'
  need_handle(op, self)
  block.check_function(op, 3, fn)
  if not self:is_active() then return fn(loss) end
  if self._wrapped then
    err.throw_code('state', op, 'after handle:wrap_optimizer a loss is scaled by the wrapper that it gave: wrapper:scale_loss(loss, fn); wrapped is %s',
      self._wrapped)
  end
  if optimizer == nil then err.throw(op, 'argument 2 must be the optimizer whose parameters the loss reaches') end
  local opts = block.optimizers(op, optimizer)
  block.check_loss(op, loss)
  return block.run(op, self._scaler, loss, opts, false, fn)
end

--- An optimizer with several losses a step, each with a scale of its own.
-- @param optimizer
-- @tparam ?table|number given {num_loss = 1}, or that number
-- @return a wrapper: scale_loss(loss, fn) is entered num_loss times before each step()
function Handle:wrap_optimizer(optimizer, given)
  local op = 'handle.wrap_optimizer'
  need_handle(op, self)
  if type(given) == 'number' then given = { num_loss = given } end
  local o = options.read(op, given, { 'num_loss' }, { num_loss = 1 })
  options.integer(op, 'num_loss', o.num_loss, 1)
  side.inner(op, optimizer)
  local scalers = {}
  for i = 1, o.num_loss do scalers[i] = new_scaler(self._o, ('amp wrapper: loss %d'):format(i)) end
  if self:is_active() then
    if not self._wrapped then self._program.scalers = {} end
    for i = 1, #scalers do table.insert(self._program.scalers, scalers[i]) end
    self._wrapped = side.describe(optimizer)
  end
  return wrap(self, optimizer, scalers)
end

--- Forget the casts kept of weights.
-- @return self
function Handle:clear_cache()
  autocast.clear_autocast_cache()
  return self
end

--- Apex's name of it.
Handle._clear_cache = Handle.clear_cache

--- Undo amp.init. A handle that is not in force any more does nothing.
function Handle:deactivate()
  need_handle('handle.deactivate', self)
  program.stop('handle.deactivate', self._program)
end

require('amp.core.class').guard(Handle, 'init', 'handle')

return M

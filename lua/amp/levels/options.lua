--- Options of amp.initialize: the four levels, what may be overridden in each, what they mean.
-- @module amp.levels.options
local err = require 'amp.error'
local options = require 'amp.options'
local GradScaler = require 'amp.precision.scaler'
local types = require 'amp.types'
local util = require 'amp.util'

local M = {}

local OP = 'initialize'

-- what a level sets; nil: the option has no meaning there
M.levels = {
  O0 = { text = 'plain float32', cast_model_type = 'float32', autocast = false, master_weights = false, loss_scale = 1 },
  O1 = { text = 'autocast on all ops, parameters in float32', autocast = true, loss_scale = 'dynamic' },
  O2 = { text = 'a 16-bit model with float32 batch norm and float32 masters', cast_model_type = 'float16', autocast = false,
    keep_batchnorm_fp32 = true, master_weights = true, loss_scale = 'dynamic' },
  O3 = { text = 'everything in 16 bits', cast_model_type = 'float16', autocast = false, keep_batchnorm_fp32 = false, master_weights = false,
    loss_scale = 1 },
}

local names = { 'enabled', 'opt_level', 'cast_model_type', 'keep_batchnorm_fp32', 'master_weights', 'loss_scale', 'cast_model_outputs',
  'num_losses', 'verbosity', 'min_loss_scale', 'max_loss_scale', 'keep_fp32' }
M.names = names

-- why an override is no option of a level, and who takes it
local refusals = {
  O0 = { keep_batchnorm_fp32 = 'there everything is float32 already; O2 and O3 take it' },
  O1 = {
    cast_model_type = 'there parameters stay in float32 and autocast casts their uses; O2 and O3 cast the model',
    keep_batchnorm_fp32 = 'there batch norm keeps its parameters and statistics in float32 anyway; O2 and O3 take it',
    master_weights = 'there parameters are float32 themselves; O2 and O3 take it',
  },
}

local function float_type(name, v)
  if v == nil or v == false then return v end
  if type(v) ~= 'string' or types.dtype_code[v] == nil or types.dtype_code[v] < 1 or types.dtype_code[v] > 3 then
    err.throw(OP, "%s must be 'float16', 'bfloat16' or 'float32' (or false), got %s", name, util.show(v))
  end
  return types.dtype_name[types.dtype_code[v]]
end

local function level_of(v)
  if type(v) == 'string' and M.levels[v] then return v end
  local hint = type(v) == 'string' and v:match '^0[0-3]$' and ' (the letter O, not the digit 0)' or ''
  err.throw(OP, "opt_level must be 'O0', 'O1', 'O2' or 'O3', got %s%s", util.show(v), hint)
end

local function scale(name, v, op)
  if v == nil then return nil end
  local n = type(v) == 'string' and tonumber(v) or v
  if name == 'loss_scale' and v == 'dynamic' then return v end
  if type(n) ~= 'number' or n ~= n or n <= 0 or n == math.huge then
    err.throw(op or OP, "%s must be a positive number%s, got %s", name, name == 'loss_scale' and " or 'dynamic'" or '', util.show(v))
  end
  return n
end

M.check_scale = scale

local function check_keep(v)
  if v == nil or type(v) == 'function' then return v end
  if type(v) ~= 'table' then
    err.throw(OP, 'keep_fp32 must be a function (module, name) or a list of modules, classes and names, got %s', util.show(v))
  end
  return getmetatable(v) and { v } or v -- a single module or class
end

--- Options with the level's defaults in.
-- @tparam ?table given
-- @treturn table
function M.read(given)
  local o = options.read(OP, given, names, { enabled = true, opt_level = 'O1', num_losses = 1, verbosity = 1 })
  options.boolean(OP, 'enabled', o.enabled)
  local level = level_of(o.opt_level)
  local set = M.levels[level]
  for _, name in ipairs { 'keep_batchnorm_fp32', 'master_weights' } do
    if o[name] ~= nil then options.boolean(OP, name, o[name]) end
  end
  o.cast_model_type = float_type('cast_model_type', o.cast_model_type)
  o.cast_model_outputs = float_type('cast_model_outputs', o.cast_model_outputs)
  for name, why in pairs(refusals[level] or {}) do
    local v = o[name]
    if name == 'cast_model_type' and (v == false or v == 'float32') then
      o[name] = nil -- parameters stay as they are
      o.any_dtype = v == false
    elseif v ~= nil then
      err.throw(OP, '%s = %s is not possible with opt_level %s: %s', name, tostring(v), level, why)
    end
  end
  for _, name in ipairs { 'cast_model_type', 'keep_batchnorm_fp32', 'master_weights', 'loss_scale' } do
    if o[name] == nil then o[name] = set[name] end
  end
  o.any_dtype = o.any_dtype or o.cast_model_type == false
  o.autocast = set.autocast
  options.integer(OP, 'num_losses', o.num_losses, 1)
  options.integer(OP, 'verbosity', o.verbosity, 0)
  for _, name in ipairs { 'loss_scale', 'min_loss_scale', 'max_loss_scale' } do o[name] = scale(name, o[name]) end
  o.max_loss_scale = o.max_loss_scale or 2 ^ 24
  if o.min_loss_scale and o.min_loss_scale > o.max_loss_scale then
    err.throw_code('value', OP, 'min_loss_scale %g is above max_loss_scale %g', o.min_loss_scale, o.max_loss_scale)
  end
  o.keep_fp32 = check_keep(o.keep_fp32)
  return o
end

--- A scaler for losses.
-- @param loss_scale a number or 'dynamic'
-- @tparam table o {min_loss_scale, max_loss_scale, verbose, title, any_dtype}
function M.scaler(loss_scale, o)
  local s
  if loss_scale == 'dynamic' then
    s = GradScaler { min_scale = o.min_loss_scale, max_scale = o.max_loss_scale, verbose = o.verbose }
  else
    s = GradScaler { init_scale = loss_scale, growth_interval = 0, verbose = o.verbose }
  end
  s._title, s._allow_half = o.title, o.any_dtype
  s._cure = 'the function that scale_loss calls gets the scaled loss: function(scaled) scaled:backward() end'
  return s
end

return M

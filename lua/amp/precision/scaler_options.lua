--- The options of amp.GradScaler: names, defaults, what they may be.
-- @module amp.precision.scaler_options
local ffi = require 'ffi'
local err = require 'amp.error'
local util = require 'amp.util'

local options_t = ffi.typeof 'amp_scaler_options'

local M = {}

local MOST = (2 - 2 ^ -23) * 2 ^ 127 -- the largest float32

local function positive(v) return type(v) == 'number' and v > 0 and v < math.huge end
local function scale(v) return positive(v) and v <= MOST and v >= 1 / MOST end -- 1/scale is a number, too

-- name -> whether a value is right, and what is expected
local rules = {
  init_scale = { scale, 'a positive number within float32, as must be 1 over it' },
  growth_factor = { function(v) return positive(v) and v > 1 end, 'a number above 1' },
  backoff_factor = { function(v) return positive(v) and v < 1 end, 'a number between 0 and 1' },
  growth_interval = { function(v) return type(v) == 'number' and v % 1 == 0 and v >= 0 and v < 2 ^ 53 end, 'an integer of at least 0 (0: static)' },
  min_scale = { function(v) return v == nil or positive(v) end, 'a positive number or nil' },
  max_scale = { function(v) return v == nil or positive(v) end, 'a positive number or nil' },
  hysteresis = { function(v) return type(v) == 'number' and v % 1 == 0 and v >= 1 and v < 2 ^ 31 end, 'an integer of at least 1' },
  max_skipped = { function(v) return v == nil or type(v) == 'number' and v % 1 == 0 and v >= 1 end, 'an integer of at least 1, or nil' },
  enabled = { function(v) return type(v) == 'boolean' end, 'true or false' },
  verbose = { function(v) return type(v) == 'boolean' end, 'true or false' },
}
M.defaults = { init_scale = 65536, growth_factor = 2, backoff_factor = 0.5, growth_interval = 2000, hysteresis = 1, enabled = true, verbose = false }
M.settable = { 'growth_factor', 'backoff_factor', 'growth_interval', 'min_scale', 'max_scale', 'hysteresis', 'max_skipped', 'verbose' }

--- An error unless v is right for the option; `called` is what the caller knows it as.
function M.check(op, name, v, called)
  local c = rules[name]
  if not c[1](v) then err.throw_code('value', op, '%s must be %s, got %s', called or name, c[2], util.show(v)) end
end

--- An error if the bounds cross.
function M.check_bounds(op, o)
  if o.min_scale and o.max_scale and o.min_scale > o.max_scale then
    err.throw_code('value', op, 'min_scale %g is above max_scale %g', o.min_scale, o.max_scale)
  end
end

--- An error unless a scale that is asked for lies within the bounds.
function M.check_within(op, o, v, called)
  if o.min_scale and v < o.min_scale then
    err.throw_code('value', op, '%s %g is below min_scale %g', called, v, o.min_scale)
  elseif o.max_scale and v > o.max_scale then
    err.throw_code('value', op, '%s %g is above max_scale %g', called, v, o.max_scale)
  end
end

--- Options as the library takes them.
function M.pack(o)
  local nan = 0 / 0
  return options_t(o.init_scale, o.growth_factor, o.backoff_factor, o.min_scale or nan, o.max_scale or nan, o.growth_interval, o.hysteresis)
end

M.names = util.keys(rules)

--- An error unless v is a device's name; it need not be there.
function M.check_device(op, v)
  if require('amp.types').device_code[v] == nil then
    err.throw_code('device', op, "%s is no device: 'cpu', 'cuda' or 'cuda:1' (counted from 1)", util.show(v))
  end
end

--- Options of a new scaler. The default scale bends to the bounds; one that is given has to lie within.
function M.read(given, more)
  local op = 'GradScaler'
  if type(given) == 'string' then -- PyTorch's first argument: a scaler serves every device
    M.check_device(op, given)
    given = more
  end
  local names = { 'device' }
  for i, name in ipairs(M.names) do names[i + 1] = name end
  local o = require('amp.options').read(op, given, names, M.defaults)
  if o.device ~= nil then M.check_device(op, o.device) end
  o.device = nil
  for i = 1, #M.names do M.check('GradScaler', M.names[i], o[M.names[i]]) end
  M.check_bounds('GradScaler', o)
  if o.init_scale == M.defaults.init_scale and (given == nil or given.init_scale == nil) then
    o.init_scale = math.max(o.min_scale or 0, math.min(o.init_scale, o.max_scale or math.huge))
  else
    M.check_within('GradScaler', o, o.init_scale, 'init_scale')
  end
  return o
end

return M

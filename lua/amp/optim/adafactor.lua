--- Adafactor: second moments kept as a row and a column for each matrix, steps relative to the parameter's size (Shazeer and
-- Stern, 2018). Of parameters with more dimensions the last two count.
-- amp.optim.Adafactor(params, {lr = 1e-2, beta2_decay = -0.8, eps = {false, 1e-3}, d = 1, weight_decay = 0, maximize = false, name}).
-- eps: what keeps the divisor from 0 (false: the dtype's smallest step at 1) and the least size of a parameter; d: how
-- large an update may be.
-- @usage local opt = amp.optim.Adafactor(net:parameters(), {lr = 1e-2})
local C = require('amp.ffi').C
local composed = require 'amp.optim.composed'
local err = require 'amp.error'
local util = require 'amp.util'

local smallest = { float64 = 2 ^ -52, float32 = 2 ^ -23 }

-- The state's shapes: a column of row means, a row of column means.
local function row_shape(p)
  local s = { unpack(p.shape) }
  if #s > 1 then s[#s] = 1 end
  return s
end
local function column_shape(p)
  local s = { unpack(p.shape) }
  if #s > 1 then s[#s - 1] = 1 end
  return s
end

-- Move a state's mean to v by `weight`, a 0-dim tensor. Gives the new mean.
local function average(amp, state, name, v, weight, finite)
  if not state[name] then state[name] = amp.zeros_like(v) end
  local new = state[name]:lerp(v, weight)
  composed.keep(state, name, new, finite)
  return new
end

local function direction(amp, group, p, g, state, finite)
  if not state.step then state.step = amp.zeros({}, { device = p.device, dtype = p.dtype }) end
  local t = state.step + 1
  composed.keep(state, 'step', t, finite)
  local weight = t ^ group.beta2_decay
  local eps1, eps2 = group.eps[1] or smallest[p.dtype], group.eps[2]
  local n = math.sqrt(p:numel())
  local variance
  if p:dim() > 1 then
    local square = g * g
    local row = average(amp, state, 'row_var', square:mean(-1, { keepdim = true }), weight, finite)
    local column = average(amp, state, 'col_var', square:mean(-2, { keepdim = true }), weight, finite)
    variance = row:matmul(column) / row:mean(-2, { keepdim = true }):clamp(eps1)
  else
    variance = average(amp, state, 'variance', g * g, weight, finite)
  end
  local update = variance:clamp(eps1 * eps1):rsqrt() * g
  -- min(lr, 1 / sqrt(t)) over lr, as the step multiplies by lr
  local rate = group.lr > 0 and (t:rsqrt() / group.lr):clamp(nil, 1) or 1
  local size = (p:norm() / n):clamp(eps2)
  return update * (size * rate / (update:norm() / (n * group.d)):clamp(1))
end

local op = 'optim.Adafactor'

return require('amp.optim.optimizer').class {
  name = 'Adafactor',
  kind = tonumber(C.AMP_SGD),
  defaults = { lr = 1e-2, beta2_decay = -0.8, eps = { false, 1e-3 }, d = 1, weight_decay = 0, maximize = false },
  aliases = { learningRate = 'lr', learning_rate = 'lr', weightDecay = 'weight_decay' },
  negative = { beta2_decay = true },
  counts = true, -- a step count of its own, on the device
  states = { row_var = row_shape, col_var = column_shape, variance = function(p) return p.shape end },
  before = function(self) return composed.begin(self, direction) end,
  check = function(g, place)
    if g.beta2_decay > 0 then err.throw(op, 'beta2_decay must be 0 or less, got %g%s', g.beta2_decay, place) end
    if g.d < 1 then err.throw(op, 'd must be at least 1, got %g%s', g.d, place) end
    local e = g.eps
    if type(e) ~= 'table' or (e[1] and (type(e[1]) ~= 'number' or e[1] < 0)) or type(e[2]) ~= 'number' or e[2] < 0 then
      err.throw(op, 'eps must be a pair {false or a number, a number} of at least 0, got %s%s', util.show(e), place)
    end
  end,
}

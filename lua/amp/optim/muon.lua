--- Muon: momentum whose matrix is made orthogonal by five Newton-Schulz steps in bfloat16 (Jordan et al., 2024). For
-- matrices only; give biases, gains and embeddings to AdamW.
-- amp.optim.Muon(params, {lr = 1e-3, weight_decay = 0.1, momentum = 0.95, nesterov = true,
-- ns_coefficients = {3.4445, -4.775, 2.0315}, eps = 1e-7, ns_steps = 5, adjust_lr_fn = 'original' | 'match_rms_adamw', name}).
-- adjust_lr_fn says what the rate of a rows x columns matrix is multiplied by: sqrt(max(1, rows / columns)), or
-- 0.2 sqrt(max(rows, columns)), or ('spectral_unclamped') sqrt(rows / columns).
-- @usage local opt = amp.optim.Muon(matrices, {lr = 0.02})
local C = require('amp.ffi').C
local composed = require 'amp.optim.composed'
local err = require 'amp.error'
local util = require 'amp.util'

local factors = {
  original = function(rows, columns) return math.sqrt(math.max(1, rows / columns)) end,
  match_rms_adamw = function(rows, columns) return 0.2 * math.sqrt(math.max(rows, columns)) end,
  spectral_unclamped = function(rows, columns) return math.sqrt(rows / columns) end,
}

-- A matrix near U V^T of g = U S V^T, in bfloat16.
local function orthogonal(g, coefficients, steps, eps)
  local a, b, c = coefficients[1], coefficients[2], coefficients[3]
  local tall = g:size(1) > g:size(2)
  local x = g:bfloat16()
  if tall then x = x:t() end
  x = x / x:norm():clamp(eps)
  for _ = 1, steps do
    local gram = x:matmul(x:t())
    x = x:addmm(gram:addmm(gram, gram, b, c), x, a)
  end
  return tall and x:t() or x
end

local function direction(amp, group, p, g, state, finite)
  if not state.momentum_buffer then state.momentum_buffer = amp.zeros_like(g) end
  local buffer = state.momentum_buffer
  local moved = buffer:lerp(g, 1 - group.momentum)
  composed.keep(state, 'momentum_buffer', moved, finite)
  local u = orthogonal(group.nesterov and g:lerp(moved, group.momentum) or moved, group.ns_coefficients, group.ns_steps, group.eps)
  return u:to(p.dtype) * factors[group.adjust_lr_fn](p:size(1), p:size(2))
end

local op = 'optim.Muon'

return require('amp.optim.optimizer').class {
  name = 'Muon',
  kind = tonumber(C.AMP_SGD),
  defaults = {
    lr = 1e-3, weight_decay = 0.1, momentum = 0.95, nesterov = true, ns_coefficients = { 3.4445, -4.775, 2.0315 }, eps = 1e-7, ns_steps = 5,
    adjust_lr_fn = 'original',
  },
  aliases = { learningRate = 'lr', learning_rate = 'lr', weightDecay = 'weight_decay', epsilon = 'eps' },
  states = { momentum_buffer = function(p) return p.shape end },
  before = function(self) return composed.begin(self, direction) end,
  check = function(g, place)
    local c = g.ns_coefficients
    if type(c) ~= 'table' or #c ~= 3 or type(c[1]) ~= 'number' or type(c[2]) ~= 'number' or type(c[3]) ~= 'number' then
      err.throw(op, 'ns_coefficients must be three numbers, got %s%s', util.show(c), place)
    end
    if g.ns_steps % 1 ~= 0 or g.ns_steps >= 100 then err.throw(op, 'ns_steps must be an integer below 100, got %g%s', g.ns_steps, place) end
    if not factors[g.adjust_lr_fn] then
      err.throw(op, "adjust_lr_fn must be 'original', 'match_rms_adamw' or 'spectral_unclamped', got %s%s", util.show(g.adjust_lr_fn), place)
    end
  end,
  check_param = function(p, i)
    if p:dim() ~= 2 then
      err.throw(op, 'parameter %d is of shape %s; Muon steps matrices only: give the others to another optimizer, such as AdamW', i, util.shape(p.shape))
    end
  end,
}

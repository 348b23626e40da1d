--- Parameter groups of an optimizer: which options a class knows, what they may be, and how
-- a group's table becomes the library's amp_hyper. Torch7's names (learningRate, weightDecay,
-- beta1, ...) are read and written through to the real fields.
-- @module amp.optim.param_groups
local err = require 'amp.error'
local util = require 'amp.util'

local M = {}

-- -- Options -----------------------------------------------------------------------

--- Metatable of a class's groups: other names and halves of a pair lead to the real field.
function M.metatable(class)
  local aliases = class.aliases
  local pair = { beta1 = 1, beta2 = 2 }
  return {
    __index = function(g, k)
      if aliases[k] then return rawget(g, aliases[k]) end
      local betas = pair[k] and rawget(g, 'betas')
      return betas and betas[pair[k]] or nil
    end,
    __newindex = function(g, k, v)
      if aliases[k] then
        rawset(g, aliases[k], v)
      elseif pair[k] and rawget(g, 'betas') then
        local b = rawget(g, 'betas')
        rawset(g, 'betas', { k == 'beta1' and v or b[1], k == 'beta2' and v or b[2] })
      else
        rawset(g, k, v)
      end
    end,
  }
end

local function known_names(class, more)
  local names = {}
  for k in pairs(class.defaults) do names[#names + 1] = k end
  if class.defaults.betas then names[#names + 1] = 'beta1' names[#names + 1] = 'beta2' end
  for _, k in ipairs(more) do names[#names + 1] = k end
  table.sort(names)
  return names
end
M.names = known_names

--- Given options over defaults, with real names.
function M.read(class, given, defaults, extra)
  local out = {}
  for k, v in pairs(defaults) do out[k] = type(v) == 'table' and { unpack(v) } or v end
  for k, v in pairs(given) do
    local real = class.aliases[k] or k
    if k == 'beta1' or k == 'beta2' then
      if not class.defaults.betas then real = nil end
    elseif class.defaults[real] == nil and not extra[real] then
      real = nil
    end
    if real == nil then
      if class.refused and class.refused[k] then err.throw(class.op, "there is no option '%s': %s", k, class.refused[k]) end
      local names = known_names(class, util.keys(extra))
      local all = {}
      for _, n in ipairs(names) do all[#all + 1] = n end
      for n in pairs(class.aliases) do all[#all + 1] = n end
      err.throw(class.op, 'unknown option %s%s (there are %s)', util.show(k), util.hint(k, all), table.concat(names, ', '))
    end
    if real ~= k and given[real] ~= nil then err.throw(class.op, "'%s' and '%s' are one option; give one of them", k, real) end
    if k == 'beta1' then out.betas = { v, out.betas[2] }
    elseif k == 'beta2' then out.betas = { out.betas[1], v }
    elseif not extra[real] then out[real] = v end
  end
  return out
end

local function number(class, name, v)
  if type(v) ~= 'number' or v ~= v then err.throw(class.op, '%s must be a number, got %s', name, util.show(v)) end
  return v
end

--- Errors of values; `place` says where they stand.
function M.check(class, g, place)
  for k, default in pairs(class.defaults) do
    local v = g[k]
    if type(default) == 'number' then
      number(class, k, v)
      if v < 0 and not (class.negative and class.negative[k]) then err.throw(class.op, '%s must be 0 or more, got %g%s', k, v, place) end
      local most = class.at_most and class.at_most[k]
      if most and v > most then err.throw(class.op, '%s must be in [0, %g], got %g%s', k, most, v, place) end
    elseif type(default) == 'boolean' then
      if type(v) ~= 'boolean' then err.throw(class.op, '%s must be true or false, got %s%s', k, util.show(v), place) end
    elseif k == 'betas' then
      if type(v) ~= 'table' or #v ~= 2 then err.throw(class.op, 'betas must be a pair of numbers, got %s%s', util.show(v), place) end
      for i = 1, 2 do
        number(class, 'beta' .. i, v[i])
        if v[i] < 0 or v[i] >= 1 then err.throw(class.op, 'beta%d must be in [0, 1), got %g%s', i, v[i], place) end
      end
    end
  end
  if g.nesterov and g.dampening and (g.momentum == 0 or g.dampening ~= 0) then
    err.throw(class.op, 'nesterov needs a momentum and no dampening, got momentum %g, dampening %g', g.momentum, g.dampening)
  end
  if class.check then class.check(g, place) end
end

--- Write a group into an amp_hyper.
function M.fill(h, g)
  h.lr, h.weight_decay = g.lr, g.weight_decay
  h.momentum, h.dampening = g.momentum or 0, g.dampening or 0
  local b = g.betas
  if b then h.beta1, h.beta2 = b[1], b[2] end
  h.eps = type(g.eps) == 'number' and g.eps or 0
  h.alpha, h.lr_decay, h.initial = g.alpha or g.rho or 0, g.lr_decay or g.momentum_decay or 0, g.initial_accumulator_value or 0
  h.centered = g.centered and 1 or 0
  h.bias_correction = g.bias_correction and 1 or 0
  h.always_adapt = g.always_adapt and 1 or 0
  h.nesterov = g.nesterov and 1 or 0
  h.maximize = g.maximize and 1 or 0
  h.amsgrad = g.amsgrad and 1 or 0
  h.decoupled = g.decoupled_weight_decay and 1 or 0
end

return M

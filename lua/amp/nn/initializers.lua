--- nn.init: fillings for parameters. All change their tensor in place, record
-- nothing, draw from amp's generator and give the tensor back.
local amp = require 'amp'
local raise = require('amp.error').throw

local M = {}

local function quietly(t, fn)
  if not amp.is_tensor(t) then raise('nn.init', 'a tensor expected, got %s', type(t)) end
  amp.no_grad(fn)
  return t
end

--- Uniform in [from, to), default [0, 1).
function M.uniform_(t, from, to) return quietly(t, function() t:uniform_(from or 0, to or 1) end) end

--- Normal, mean 0 and standard deviation 1 by default.
function M.normal_(t, mean, std) return quietly(t, function() t:normal_(mean or 0, std or 1) end) end

function M.constant_(t, value) return quietly(t, function() t:fill_(value) end) end
function M.zeros_(t) return M.constant_(t, 0) end
function M.ones_(t) return M.constant_(t, 1) end

-- inputs and outputs that meet in one element of a product with t
local function fans(op, t)
  if not amp.is_tensor(t) then raise(op, 'a tensor expected, got %s', type(t)) end
  if t:dim() < 2 then raise(op, 'a tensor of 2 dimensions or more expected, got shape %s', tostring(t:size())) end
  local field = 1
  for d = 3, t:dim() do field = field * t:size(d) end
  return t:size(2) * field, t:size(1) * field
end

local gains = {linear = 1, conv2d = 1, sigmoid = 1, tanh = 5 / 3, relu = math.sqrt(2), selu = 3 / 4}

--- Factor by which a non-linearity wants its input's deviation enlarged.
-- @tparam string name linear conv2d sigmoid tanh relu leaky_relu selu
-- @tparam ?number slope of leaky_relu, default 0.01
function M.calculate_gain(name, slope)
  if name == 'leaky_relu' then return math.sqrt(2 / (1 + (slope or 0.01) ^ 2)) end
  return gains[name] or raise('nn.init.calculate_gain', "no gain for '%s'", tostring(name))
end

local function kaiming(op, t, options)
  local o = require('amp.options').read(op, options, {'a', 'mode', 'nonlinearity'},
    {a = 0, mode = 'fan_in', nonlinearity = 'leaky_relu'})
  local fan_in, fan_out = fans(op, t)
  local fan = o.mode == 'fan_in' and fan_in or o.mode == 'fan_out' and fan_out
    or raise(op, "mode must be 'fan_in' or 'fan_out', got '%s'", tostring(o.mode))
  return M.calculate_gain(o.nonlinearity, o.a) / math.sqrt(math.max(fan, 1))
end

--- He's uniform filling; options a (slope, 0), mode ('fan_in'), nonlinearity ('leaky_relu').
function M.kaiming_uniform_(t, options)
  local bound = math.sqrt(3) * kaiming('nn.init.kaiming_uniform_', t, options)
  return M.uniform_(t, -bound, bound)
end

--- He's normal filling; options as kaiming_uniform_.
function M.kaiming_normal_(t, options) return M.normal_(t, 0, kaiming('nn.init.kaiming_normal_', t, options)) end

local function xavier(op, t, gain)
  local fan_in, fan_out = fans(op, t)
  return (gain or 1) * math.sqrt(2 / (fan_in + fan_out))
end

--- Glorot's uniform filling.
function M.xavier_uniform_(t, gain)
  local bound = math.sqrt(3) * xavier('nn.init.xavier_uniform_', t, gain)
  return M.uniform_(t, -bound, bound)
end

--- Glorot's normal filling.
function M.xavier_normal_(t, gain) return M.normal_(t, 0, xavier('nn.init.xavier_normal_', t, gain)) end

--- What Linear and Conv2d start with: weight by kaiming_uniform_ with a = sqrt(5),
-- that is uniform within 1 / sqrt(fan_in), and the bias uniform within the same.
function M.fan_in_(weight, bias)
  M.kaiming_uniform_(weight, {a = math.sqrt(5)})
  if bias then
    local bound = 1 / math.sqrt(math.max((fans('nn.init', weight)), 1))
    M.uniform_(bias, -bound, bound)
  end
end

return M

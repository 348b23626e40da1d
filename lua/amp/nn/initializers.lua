--- nn.init: fillings for parameters. All change their tensor in place, record nothing, draw
-- from amp's generator and give the tensor back. Arguments stand as in PyTorch, or by name in
-- a last table. A weight is out x in (x kernel).
-- @usage nn.init.kaiming_normal_(layer.weight, {mode = 'fan_out', nonlinearity = 'relu'})
local amp = require 'amp'
local filling = require 'amp.nn.core.filling'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

local function check_tensor(op, t)
  if not amp.is_tensor(t) then raise(op, 'a tensor expected, got %s', util.show(t)) end
  return t
end

local function quietly(t, fn, op)
  check_tensor(op or 'nn.init', t)
  if not filling.off then amp.no_grad(fn) end
  return t
end

-- positional arguments or a table of them, checked: names and defaults in order
local function read(op, names, defaults, ...)
  local o = options.arguments(op, names, 0, defaults, ...)
  for name, default in pairs(defaults) do
    if type(default) == 'number' then options.number(op, name, o[name]) end
  end
  return o
end

-- -- Constants and plain draws --------------------------------------------------------------

--- Uniform in [a, b), default [0, 1).
function M.uniform_(t, ...)
  local o = read('nn.init.uniform_', {'a', 'b'}, {a = 0, b = 1}, ...)
  return quietly(t, function() t:uniform_(o.a, o.b) end)
end

--- Normal, mean 0 and standard deviation 1 by default.
function M.normal_(t, ...)
  local o = read('nn.init.normal_', {'mean', 'std'}, {mean = 0, std = 1}, ...)
  return quietly(t, function() t:normal_(o.mean, o.std) end)
end

--- The same value everywhere.
function M.constant_(t, value)
  return quietly(t, function() t:fill_(options.number('nn.init.constant_', 'value', value)) end)
end
--- Zeros.
function M.zeros_(t) return M.constant_(t, 0) end
--- Ones.
function M.ones_(t) return M.constant_(t, 1) end

--- A matrix's diagonal 1, everything else 0.
function M.eye_(t)
  local op = 'nn.init.eye_'
  if check_tensor(op, t):dim() ~= 2 then raise(op, 'a matrix expected, got shape %s', tostring(t:size())) end
  return quietly(t, function() t:copy_(amp.eye(t:size(1), t:size(2), {dtype = t.dtype, device = t.device})) end)
end

--- A convolution's weight (out x in x kernel of 1 to 3 dimensions) that passes channels on, as
-- many as there are; with groups within each group.
function M.dirac_(t, ...)
  local op = 'nn.init.dirac_'
  local groups = read(op, {'groups'}, {groups = 1}, ...).groups
  local nd = check_tensor(op, t):dim()
  if nd < 3 or nd > 5 then raise(op, 'a weight of 3, 4 or 5 dimensions expected, got shape %s', tostring(t:size())) end
  options.integer(op, 'groups', groups, 1)
  if t:size(1) % groups ~= 0 then raise(op, 'groups %d must divide dimension 1 of shape %s', groups, tostring(t:size())) end
  local each = t:size(1) / groups
  return quietly(t, function()
    t:zero_()
    if t:numel() == 0 then return end
    local middle = t
    for d = nd, 3, -1 do middle = middle:select(d, math.floor(t:size(d) / 2) + 1) end
    for g = 1, groups do middle:narrow(1, (g - 1) * each + 1, each):diagonal():fill_(1) end
  end)
end

local function normal_cdf(x)
  if math.abs(x) == math.huge then return x > 0 and 1 or 0 end
  return (1 + amp.tensor(x / math.sqrt(2), {dtype = 'float64'}):erf():item()) / 2
end

--- Normal, drawn again (in effect) where it falls outside [a, b].
function M.trunc_normal_(t, ...)
  local op = 'nn.init.trunc_normal_'
  local o = read(op, {'mean', 'std', 'a', 'b'}, {mean = 0, std = 1, a = -2, b = 2}, ...)
  check_tensor(op, t)
  if o.std < 0 then raise(op, 'std must be 0 or more, got %g', o.std) end
  if o.a > o.b then raise(op, 'a must not be above b, got a = %g, b = %g', o.a, o.b) end
  return quietly(t, function()
    if o.std == 0 then return t:fill_(math.min(math.max(o.mean, o.a), o.b)) end
    local low, high = normal_cdf((o.a - o.mean) / o.std), normal_cdf((o.b - o.mean) / o.std)
    local x = amp.empty(t.shape, {dtype = 'float64', device = t.device})
    if low < high then
      x:uniform_(2 * low - 1, 2 * high - 1)
      x = x:erfinv() * (o.std * math.sqrt(2)) + o.mean
    else x:fill_(o.mean) end -- so far out that the distribution has no numbers there
    t:copy_(x:clamp(o.a, o.b))
  end)
end

-- -- By the number of inputs and outputs -------------------------------------------------------

-- inputs and outputs that meet in one element of a product with t
local function fans(op, t)
  check_tensor(op, t)
  if t:dim() < 2 then raise(op, 'a tensor of 2 dimensions or more expected, got shape %s', tostring(t:size())) end
  local field = 1
  for d = 3, t:dim() do field = field * t:size(d) end
  return t:size(2) * field, t:size(1) * field
end

local gains = {linear = 1, conv1d = 1, conv2d = 1, conv3d = 1, conv_transpose1d = 1, conv_transpose2d = 1, conv_transpose3d = 1,
  sigmoid = 1, tanh = 5 / 3, relu = math.sqrt(2), selu = 3 / 4}

--- Factor by which a non-linearity wants its input's deviation enlarged.
-- @tparam string name linear, conv1d ... conv_transpose3d, sigmoid, tanh, relu, leaky_relu, selu
-- @tparam ?number slope of leaky_relu, default 0.01
function M.calculate_gain(name, slope)
  local op = 'nn.init.calculate_gain'
  if name == 'leaky_relu' then return math.sqrt(2 / (1 + options.number(op, 'slope', slope or 0.01) ^ 2)) end
  if gains[name] then return gains[name] end
  local known = util.keys(gains)
  known[#known + 1] = 'leaky_relu'
  raise(op, "no gain for '%s'%s", tostring(name), util.hint(name, known))
end

local function kaiming(op, t, ...)
  local o = read(op, {'a', 'mode', 'nonlinearity'}, {a = 0, mode = 'fan_in', nonlinearity = 'leaky_relu'}, ...)
  local fan_in, fan_out = fans(op, t)
  local fan = o.mode == 'fan_in' and fan_in or o.mode == 'fan_out' and fan_out
    or raise(op, "mode must be 'fan_in' or 'fan_out', got '%s'", tostring(o.mode))
  return M.calculate_gain(o.nonlinearity, o.a) / math.sqrt(math.max(fan, 1))
end

--- He's uniform filling; a (slope of leaky_relu, 0), mode ('fan_in'), nonlinearity ('leaky_relu').
function M.kaiming_uniform_(t, ...)
  local bound = math.sqrt(3) * kaiming('nn.init.kaiming_uniform_', t, ...)
  return M.uniform_(t, -bound, bound)
end

--- He's normal filling; arguments as kaiming_uniform_.
function M.kaiming_normal_(t, ...) return M.normal_(t, 0, kaiming('nn.init.kaiming_normal_', t, ...)) end

local function xavier(op, t, ...)
  local gain = read(op, {'gain'}, {gain = 1}, ...).gain
  local fan_in, fan_out = fans(op, t)
  return gain * math.sqrt(2 / math.max(fan_in + fan_out, 1))
end

--- Glorot's uniform filling; gain (1).
function M.xavier_uniform_(t, ...)
  local bound = math.sqrt(3) * xavier('nn.init.xavier_uniform_', t, ...)
  return M.uniform_(t, -bound, bound)
end

--- Glorot's normal filling; gain (1).
function M.xavier_normal_(t, ...) return M.normal_(t, 0, xavier('nn.init.xavier_normal_', t, ...)) end

--- What Linear and the convolutions start with: weight by kaiming_uniform_ with a = sqrt(5),
-- that is uniform within 1 / sqrt(fan_in), and the bias uniform within the same.
function M.fan_in_(weight, bias)
  M.kaiming_uniform_(weight, {a = math.sqrt(5)})
  if bias then
    local bound = 1 / math.sqrt(math.max((fans('nn.init', weight)), 1))
    M.uniform_(bias, -bound, bound)
  end
end

-- -- Orthogonal and sparse matrices ---------------------------------------------------------------

-- Rows made orthonormal: Gram-Schmidt, each projection taken twice, a block of rows at once
-- against those before it. A normal matrix's rows give a matrix that no direction is preferred by.
local function orthonormal(v)
  local n, block = v:size(1), 32
  local function project(rows, onto)
    for _ = 1, 2 do rows:sub_(amp.matmul(amp.matmul(rows, onto:t()), onto)) end
  end
  for first = 1, n, block do
    local last = math.min(first + block - 1, n)
    if first > 1 then project(v:narrow(1, first, last - first + 1), v:narrow(1, 1, first - 1)) end
    for i = first, last do
      local row = v:narrow(1, i, 1)
      if i > first then project(row, v:narrow(1, first, i - first)) end
      row:div_(row:square():sum():sqrt())
    end
  end
  return v
end

--- A matrix with orthonormal rows or columns (whichever are fewer), times gain; dimensions after
-- the first count as one.
function M.orthogonal_(t, ...)
  local op = 'nn.init.orthogonal_'
  local gain = read(op, {'gain'}, {gain = 1}, ...).gain
  if check_tensor(op, t):dim() < 2 then raise(op, 'a tensor of 2 dimensions or more expected, got shape %s', tostring(t:size())) end
  return quietly(t, function()
    if t:numel() == 0 then return end
    local rows, columns = t:size(1), t:numel() / t:size(1)
    local wide = rows < columns
    local v = orthonormal(amp.randn(wide and rows or columns, wide and columns or rows, {dtype = 'float64', device = t.device}))
    t:copy_(((wide and v or v:t()) * gain):reshape(t.shape))
  end)
end

--- A matrix of normal values of deviation std, of each column's elements the part `sparsity` 0.
function M.sparse_(t, ...)
  local op = 'nn.init.sparse_'
  local o = options.arguments(op, {'sparsity', 'std'}, 1, {std = 0.01}, ...)
  if check_tensor(op, t):dim() ~= 2 then raise(op, 'a matrix expected, got shape %s', tostring(t:size())) end
  options.number(op, 'sparsity', o.sparsity, 0, 1)
  options.number(op, 'std', o.std, 0)
  return quietly(t, function()
    t:normal_(0, o.std)
    local zeros = math.ceil(o.sparsity * t:size(1))
    if zeros == 0 or t:numel() == 0 then return end
    local order = amp.rand(t:size(1), t:size(2), {device = t.device}):argsort(1)
    t:scatter_(1, order:narrow(1, 1, zeros), 0)
  end)
end

return M

-- What the ladder of kernels measures: `cases[i] = {name, bytes, make}`; make(n, dtype, device) gives a function that runs the
-- op once on a main tensor of n elements, bytes(n, w) what it has to move with elements of w bytes (each value read
-- and written once, however a kernel does it). ladder.py has the same names with PyTorch.
local amp = require 'amp'
local nn, F, optim = amp.nn, amp.nn.functional, amp.optim
local M = {}

local function case(name, bytes, make) M[#M + 1] = { name = name, bytes = bytes, make = make } end

local function flat(n, dtype, device) return amp.randn(n, { device = device }):to(dtype) end

--- Columns of the row ops: 1024, for cross entropy 16384 where there are many.
local function rows(n, columns) return math.max(1, math.floor(n / columns)), columns end
local function classes(n) return n >= 2 ^ 20 and 16384 or 256 end

-- a forward op: once; with its backward: y, then the gradients of inputs
local function forward(fn)
  return function() amp.scope(fn) end
end
local function both(fn, inputs, gy)
  for _, t in ipairs(inputs) do t:requires_grad_() end
  return function()
    amp.scope(function() amp.grad(fn(), inputs, { grad_outputs = gy }) end)
  end
end

-- -- Copies and element-wise -----------------------------------------------------------

case('copy', function(n, w) return 2 * n * w end, function(n, dtype, device)
  local a, b = flat(n, dtype, device), amp.empty(n, { device = device, dtype = dtype })
  return function() b:copy_(a) end
end)
case('cast from float32', function(n, w) return n * (4 + w) end, function(n, dtype, device)
  local a, b = flat(n, 'float32', device), amp.empty(n, { device = device, dtype = dtype })
  return function() b:copy_(a) end
end)
case('transpose copy', function(n, w) return 2 * n * w end, function(n, dtype, device)
  local r, c = rows(n, 1024)
  local a, b = flat(r * c, dtype, device):view(r, c):t(), amp.empty(c, r, { device = device, dtype = dtype })
  return function() b:copy_(a) end
end)
case('add', function(n, w) return 3 * n * w end, function(n, dtype, device)
  local a, b = flat(n, dtype, device), flat(n, dtype, device)
  return forward(function() return a + b end)
end)
case('add_', function(n, w) return 3 * n * w end, function(n, dtype, device)
  local a, b = flat(n, dtype, device), flat(n, dtype, device) * 0
  return function() a:add_(b) end
end)
for _, name in ipairs { 'relu', 'gelu' } do
  case(name, function(n, w) return 2 * n * w end, function(n, dtype, device)
    local x = flat(n, dtype, device)
    return forward(function() return F[name](x) end)
  end)
  case(name .. ' and backward', function(n, w) return 5 * n * w end, function(n, dtype, device)
    local x, g = flat(n, dtype, device), flat(n, dtype, device)
    return both(function() return F[name](x) end, { x }, g)
  end)
end
case('dropout and backward', function(n, w) return n * (4 * w + 2) end, function(n, dtype, device)
  local x, g = flat(n, dtype, device), flat(n, dtype, device)
  return both(function() return F.dropout(x, { p = 0.1 }) end, { x }, g)
end)

-- -- Sums ------------------------------------------------------------------------------

local function matrix(n, dtype, device, columns)
  local r, c = rows(n, columns or 1024)
  return flat(r * c, dtype, device):view(r, c), r, c
end

case('sum', function(n, w) return n * w end, function(n, dtype, device)
  local x = flat(n, dtype, device)
  return forward(function() return x:sum() end)
end)
case('mean of rows', function(n, w) return n * w end, function(n, dtype, device)
  local x = matrix(n, dtype, device)
  return forward(function() return x:mean(2) end)
end)
case('sum of columns', function(n, w) return n * w end, function(n, dtype, device)
  local x = matrix(n, dtype, device)
  return forward(function() return x:sum(1) end)
end)
case('norm', function(n, w) return n * w end, function(n, dtype, device)
  local x = flat(n, dtype, device)
  return forward(function() return x:norm() end)
end)

-- -- Rows and channels --------------------------------------------------------------------

case('softmax', function(n, w) return 2 * n * w end, function(n, dtype, device)
  local x = matrix(n, dtype, device)
  return forward(function() return F.softmax(x, 2) end)
end)
case('softmax and backward', function(n, w) return 5 * n * w end, function(n, dtype, device)
  local x, g = matrix(n, dtype, device), matrix(n, dtype, device)
  return both(function() return F.softmax(x, 2) end, { x }, g)
end)
case('cross_entropy', function(n, w) return n * w end, function(n, dtype, device)
  local x, r, c = matrix(n, dtype, device, classes(n))
  local y = amp.randint(1, c + 1, { r }, { device = device, dtype = 'int64' })
  return forward(function() return F.cross_entropy(x, y) end)
end)
case('cross_entropy and backward', function(n, w) return 3 * n * w end, function(n, dtype, device)
  local x, r, c = matrix(n, dtype, device, classes(n))
  local y = amp.randint(1, c + 1, { r }, { device = device, dtype = 'int64' })
  return both(function() return F.cross_entropy(x, y) end, { x })
end)
case('layer_norm', function(n, w) return 2 * n * w end, function(n, dtype, device)
  local x, _, c = matrix(n, dtype, device)
  local weight, bias = flat(c, dtype, device), flat(c, dtype, device)
  return forward(function() return F.layer_norm(x, { c }, weight, bias) end)
end)
case('layer_norm and backward', function(n, w) return 5 * n * w end, function(n, dtype, device)
  local x, _, c = matrix(n, dtype, device)
  local weight, bias, g = flat(c, dtype, device), flat(c, dtype, device), matrix(n, dtype, device)
  return both(function() return F.layer_norm(x, { c }, weight, bias) end, { x, weight, bias }, g)
end)
local function images(n, dtype, device)
  local side = n >= 2 ^ 19 and 16 or 4
  local x = flat(math.max(1, n / (64 * side * side)) * 64 * side * side, dtype, device)
  return x:view(-1, side, side, 64):permute(1, 4, 2, 3) -- channels last
end
local function batch_norm(n, dtype, device)
  local x = images(n, dtype, device)
  local weight, bias = flat(64, 'float32', device), flat(64, 'float32', device)
  local mean, var = amp.zeros(64, { device = device }), amp.ones(64, { device = device })
  return function() return F.batch_norm(x, mean, var, weight, bias, { training = true }) end, { x, weight, bias }
end
case('batch_norm', function(n, w) return 3 * n * w end, function(n, dtype, device) return forward((batch_norm(n, dtype, device))) end)
case('batch_norm and backward', function(n, w) return 8 * n * w end, function(n, dtype, device)
  local fn, inputs = batch_norm(n, dtype, device)
  return both(fn, inputs, images(n, dtype, device))
end)
local WORDS, WIDE = 32768, 512
local function embedding(n, dtype, device)
  local count = math.max(1, n / WIDE)
  local weight = flat(WORDS * WIDE, dtype, device):view(WORDS, WIDE)
  local x = amp.randint(1, WORDS + 1, { count }, { device = device, dtype = 'int64' })
  return function() return F.embedding(x, weight) end, weight, count
end
case('embedding', function(n, w) return 2 * n * w end, function(n, dtype, device) return forward((embedding(n, dtype, device))) end)
case('embedding and backward', function(n, w) return 3 * n * w + WORDS * WIDE * w end, function(n, dtype, device)
  local fn, weight, count = embedding(n, dtype, device)
  return both(fn, { weight }, flat(count * WIDE, dtype, device):view(count, WIDE))
end)

-- -- Optimizers: float32 parameters, n of them ---------------------------------------------

local function parameters(n, device)
  local p = amp.randn(n, { device = device }):requires_grad_()
  p.grad = amp.randn(n, { device = device })
  return p
end
local function stepper(make)
  return function(n, _, device)
    local opt = make { parameters(n, device) }
    return function() opt:step() end
  end
end
case('sgd', function(n) return 12 * n end, stepper(function(p) return optim.SGD(p, { lr = 1e-6 }) end))
case('sgd momentum', function(n) return 20 * n end, stepper(function(p) return optim.SGD(p, { lr = 1e-6, momentum = 0.9 }) end))
case('adam', function(n) return 28 * n end, stepper(function(p) return optim.Adam(p, { lr = 1e-6 }) end))
case('adamw', function(n) return 28 * n end, stepper(function(p) return optim.AdamW(p, { lr = 1e-6 }) end))
case('unscale and check', function(n) return 8 * n end, function(n, _, device)
  local opt = optim.SGD({ parameters(n, device) }, { lr = 1e-6 })
  local scaler = amp.GradScaler { init_scale = 1, growth_interval = 1e9 }
  amp.scope(function() scaler:scale(amp.ones(1, { device = device })) end)
  return function()
    scaler:unscale_(opt)
    scaler:update()
  end
end)
case('clip_grad_norm', function(n) return 12 * n end, function(n, _, device)
  local p = parameters(n, device)
  return function() amp.scope(function() nn.utils.clip_grad_norm_({ p }, 1) end) end
end)

return M

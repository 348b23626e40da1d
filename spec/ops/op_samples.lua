--- What spec/ops/ops_spec.lua knows beside the PyTorch fixtures: closed forms for
-- ops that create or draw, and wrong calls with what their errors must name.
-- An op needs an entry here (or in its family's spec/ops/samples/FAMILY.lua, which
-- gives `closed` and `wrong` likewise) or cases: in fixtures/ops_FAMILY.txt, which
-- a script writes, or by hand, in `by_hand` of samples/FAMILY.lua:
--
--   by_hand = {
--     NAME = {
--       policy = 'fp32', -- the autocast class, if it isn't passthrough
--       wrong = { { { { 2 } }, { b = -1 }, { 'b is -1' } } }, -- arguments, attributes, what the error must name
--       { inp = { { 3, -3 } }, attrs = { b = 16 }, out = { { 4, 1 } } }, -- keys: see fixtures/fixture.py
--     },
--   }
--
-- where a tensor may be a plain list, which is a float64 vector, and a number in `out` a float64 scalar.
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local Call = require 'spec.ops.op_call'

local M = {}

--- Families with cases of their own: fixtures/ops_NAME.txt, and samples/NAME.lua.
M.families = {
  'attention',
  'conv',
  'fused',
  'index',
  'linalg',
  'loss',
  'math',
  'norm',
  'pool',
  'rnn',
  'vision',
}

local function constant(n, v)
  local t = {}
  for i = 1, n do t[i] = v end
  return t
end

local function moments(t)
  local v, s, q = H.values(t), 0, 0
  for i = 1, v.n do s = s + v[i] end
  s = s / v.n
  for i = 1, v.n do q = q + (v[i] - s) ^ 2 end
  return s, q / v.n, v
end

-- -- Closed forms: name -> function that asserts -------------------------------

local closed = {}
M.closed = closed

function closed.empty()
  for _, dt in ipairs(H.floats) do
    local t = amp.empty(2, 3, { dtype = dt })
    assert.equal('2x3', tostring(t:size()))
    assert.equal(dt, t.dtype)
  end
  assert.equal(0, amp.empty(0, 3):numel())
end

function closed.full()
  for _, dt in ipairs { 'float64', 'float32', 'float16', 'bfloat16', 'int64', 'int8', 'uint8' } do
    local t = amp.full({ 2, 3 }, 7, { dtype = dt })
    H.close(t, constant(6, 7), H.exact)
    assert.equal(dt, t.dtype)
  end
  assert.equal(0, amp.full({ 0 }, 1):numel())
  assert.equal(2.5, amp.full({}, 2.5):item())
end

function closed.arange()
  H.close(amp.arange(0, 5), { 0, 1, 2, 3, 4 }, H.exact)
  H.close(amp.arange(1, 2, 0.25), { 1, 1.25, 1.5, 1.75 }, H.exact)
  H.close(amp.arange(3, 0, -1), { 3, 2, 1 }, H.exact)
  assert.equal(0, amp.arange(3, 3):numel())
  assert.equal('int64', amp.arange(0, 5, { dtype = 'int64' }).dtype)
  H.fails(function() amp.arange(0, 5, 0) end, 'arange', 'step')
end

function closed.linspace()
  H.close(amp.linspace(0, 1, 5), { 0, 0.25, 0.5, 0.75, 1 })
  H.close(amp.linspace(2, 2, 1), { 2 })
  assert.equal(0, amp.linspace(0, 1, 0):numel())
  H.fails(function() amp.linspace(0, 1, -1) end, 'linspace', '-1')
end

function closed.eye()
  H.close(amp.eye(2), { 1, 0, 0, 1 }, H.exact)
  H.close(amp.eye(2, 3), { 1, 0, 0, 0, 1, 0 }, H.exact)
  H.close(amp.eye(2, { dtype = 'int64' }), { 1, 0, 0, 1 }, H.exact)
end

function closed.rand()
  for _, dt in ipairs(H.floats) do
    amp.manual_seed(7)
    local mean, var, v = moments(amp.rand(4001, { dtype = dt }))
    assert.is_true(math.abs(mean - 0.5) < 0.02, 'mean ' .. mean)
    assert.is_true(math.abs(var - 1 / 12) < 0.005, 'variance ' .. var)
    for i = 1, v.n do assert.is_true(v[i] >= 0 and v[i] < 1, ('%s: %g'):format(dt, v[i])) end
  end
end

function closed.randn()
  for _, dt in ipairs(H.floats) do
    amp.manual_seed(7)
    local mean, var, v = moments(amp.randn(4001, { dtype = dt }))
    assert.is_true(math.abs(mean) < 0.06, 'mean ' .. mean)
    assert.is_true(math.abs(var - 1) < 0.1, 'variance ' .. var)
    local within = 0
    for i = 1, v.n do if math.abs(v[i]) < 1 then within = within + 1 end end
    assert.is_true(math.abs(within / v.n - 0.6827) < 0.03, 'within one sigma ' .. within / v.n)
  end
end

function closed.randint()
  amp.manual_seed(1)
  local t = amp.randint(-2, 3, { 2000 })
  assert.equal('int64', t.dtype)
  local count = {}
  local v = H.values(t)
  for i = 1, v.n do count[v[i]] = (count[v[i]] or 0) + 1 end
  for k = -2, 2 do assert.is_true(count[k] and count[k] > 300, 'value ' .. k) end
  assert.is_nil(count[3])
  H.fails(function() amp.randint(3, 3, { 2 }) end, 'randint', '3')
end

function closed.randperm()
  amp.manual_seed(1)
  local v = H.values(amp.randperm(100))
  local seen, moved = {}, 0
  for i = 1, 100 do
    assert.is_nil(seen[v[i]])
    assert.is_true(v[i] >= 1 and v[i] <= 100)
    seen[v[i]] = true
    if v[i] ~= i then moved = moved + 1 end
  end
  assert.is_true(moved > 50)
  assert.equal(0, amp.randperm(0):numel())
end

function closed.uniform()
  amp.manual_seed(3)
  local mean, _, v = moments(amp.empty(4001):uniform_(-1, 3))
  assert.is_true(math.abs(mean - 1) < 0.08)
  for i = 1, v.n do assert.is_true(v[i] >= -1 and v[i] < 3) end
end

function closed.normal()
  amp.manual_seed(3)
  local mean, var = moments(amp.empty(4001):normal_(2, 0.5))
  assert.is_true(math.abs(mean - 2) < 0.04)
  assert.is_true(math.abs(var - 0.25) < 0.03)
end

function closed.bernoulli()
  amp.manual_seed(3)
  local mean, _, v = moments(amp.empty(4000):bernoulli_(0.25))
  assert.is_true(math.abs(mean - 0.25) < 0.03)
  for i = 1, v.n do assert.is_true(v[i] == 0 or v[i] == 1) end
  H.close(amp.empty(3):bernoulli_(1), { 1, 1, 1 }, H.exact)
end

function closed.fill()
  for _, dt in ipairs { 'float64', 'float32', 'float16', 'bfloat16', 'int64', 'int8', 'bool' } do
    local t = amp.zeros(2, 3, { dtype = dt })
    assert.is_true(t:fill_(1) == t)
    H.close(t, constant(6, 1), H.exact)
  end
  local t = amp.zeros(3, 2)
  t:t()[1]:fill_(5)
  H.close(t, { 5, 0, 5, 0, 5, 0 }, H.exact)
end

function closed.copy()
  for _, from in ipairs { 'float64', 'float32', 'float16', 'bfloat16', 'int64', 'uint8', 'bool' } do
    for _, to in ipairs { 'float64', 'float32', 'float16', 'bfloat16', 'int64', 'int8', 'bool' } do
      local t = amp.zeros(2, 3, { dtype = to })
      t:copy_(H.make({ 1, 0, 1 }, { 3 }, from))
      H.close(t, { 1, 0, 1, 1, 0, 1 }, H.exact, from .. ' to ' .. to)
    end
  end
  H.fails(function() amp.zeros(2, 3):copy_(amp.zeros(4)) end, 'copy', '2x3', '4')
end

-- A conversion's casts: floats of 16 and 32 bits in another float dtype, all else as it is; gradients come back in the input's.
for _, name in ipairs { 'amp_cast', 'amp_multicast' } do
  closed[name] = function()
    local function cast(t, dtype) return Call.raw(name, { t }, { dtype = dtype })[1] end
    for _, from in ipairs { 'float32', 'float16', 'bfloat16' } do
      for _, to in ipairs { 'float64', 'float32', 'float16', 'bfloat16' } do
        local t = amp.tensor(H.ramp(6)):to(from):requires_grad_()
        local u = cast(t, to)
        assert.equal(to, u.dtype)
        H.same(u:detach(), t:detach():to(to))
        u:sum():backward()
        assert.equal(from, t.grad.dtype)
        H.same(t.grad:float(), amp.ones(6))
      end
    end
    for _, dtype in ipairs { 'float64', 'int64', 'bool' } do
      local t = amp.ones(2):to(dtype)
      assert.equal(dtype, cast(t, 'float16').dtype)
    end
    local weight = require('amp.nn').Linear(3, 3).weight
    local first, before = cast(weight, 'bfloat16'), amp.counters()
    local again, after = cast(weight, 'bfloat16'), amp.counters()
    H.same(first:detach(), again:detach())
    assert.equal(1, after.cached_casts - before.cached_casts)
    H.fails(function() cast(weight, 'int64') end, name, 'float dtype', 'int64')
    H.fails(function() cast(weight, nil) end, name, 'dtype')
  end
end

function closed.sinc_backward()
  local x = { 0, 0.0078125, -0.1875, 0.3125, 0.34375, -1, 7.25 }
  local want = {}
  for i, v in ipairs(x) do
    local z = math.pi * v
    want[i] = 2 * (v == 0 and 0 or (math.cos(z) - math.sin(z) / z) / v)
  end
  for _, dt in ipairs { 'float64', 'float32' } do
    local g, at = H.tensor({ d = 'float64', s = { 7 }, v = constant(7, 2) }, dt), H.tensor({ d = 'float64', s = { 7 }, v = x }, dt)
    H.close(Call.raw('sinc_backward', { g, at }, {})[1], want, H.tolerance[dt], dt)
  end
end

-- in both layouts of each operand: dense, and one value for many
function closed.elu_backward()
  local x = { -2000, -101.5, -40.25, -3, -0.5, -0.0078125, 0, 0.5, 3, 100, 1000, math.huge, -math.huge }
  for _, s in ipairs { { 1, 0.75, 1 }, { 1, 1, 1.75 }, { 1.0507009873554805, 1.7580993408473766, 1 }, { 1, 3e4, 1 }, { 1, 1e-20, 1 } } do
    for _, dt in ipairs(H.floats) do
      local at, want = H.tensor({ d = 'float64', s = { #x }, v = x }, dt), {}
      for i, v in ipairs(H.values(at)) do want[i] = 1.5 * (v > 0 and s[1] or s[2] * math.exp(v / s[3])) end
      local set = { above = s[1], below = s[2], by = s[3] }
      for _, g in ipairs { H.tensor({ d = 'float64', s = { #x }, v = constant(#x, 1.5) }, dt), H.tensor({ d = 'float64', s = { 1 }, v = { 1.5 } }, dt) } do
        local got = Call.raw('elu_backward', { g, at }, set)[1]
        assert.equal(dt, got.dtype)
        H.close(got, want, H.tolerance[dt], dt)
        assert.equal(0, H.values(got)[1])
        assert.equal(0, H.values(got)[#x])
        if dt == 'float64' then
          for i, v in ipairs(H.values(got)) do -- to the last digits, however small
            assert(want[i] == v or math.abs(v - want[i]) <= 2e-15 * want[i] or want[i] < 1e-307, ('%g: %.17g, not %.17g'):format(x[i], v, want[i]))
          end
        end
      end
    end
  end
  assert.equal(1, H.values(Call.raw('elu_backward', { amp.tensor { 1 }, amp.tensor { 0 / 0 } }, { above = 1, below = 1, by = 1 })[1]:isnan():to('float32'))[1])
end

function closed.norm_backward()
  local g, x, n = { 2, -1 }, { 0.5, -2, 4, 3, 0, -1 }, { 4, 0 }
  local want = { 0.25, -1, 2, 0, 0, 0 }
  local function all(v, m) -- of one a row: one an element
    local t = {}
    for i = 1, 6 do t[i] = v[math.ceil(i / 3)] end
    return m == 3 and t or v
  end
  for _, dt in ipairs(H.floats) do
    for _, m in ipairs { { 1, 1 }, { 3, 1 }, { 1, 3 }, { 3, 3 } } do
      local function of(v, k) return H.tensor({ d = 'float64', s = { 2, k }, v = all(v, k) }, dt) end
      local got = Call.raw('norm_backward', { of(g, m[1]), H.tensor({ d = 'float64', s = { 2, 3 }, v = x }, dt), of(n, m[2]) }, {})[1]
      assert.equal(dt, got.dtype)
      H.close(got, want, H.tolerance[dt], dt)
    end
    local one = H.tensor({ d = 'float64', s = { 1, 1 }, v = { 2 } }, dt)
    H.close(Call.raw('norm_backward', { one, H.tensor({ d = 'float64', s = { 2, 3 }, v = x }, dt), H.tensor({ d = 'float64', s = { 2, 3 }, v = all(n, 3) }, dt) }, {})[1],
      { 0.25, -1, 2, 0, 0, 0 }, H.tolerance[dt], dt)
  end
  -- grad / norm is no number of float32: input / norm is
  for _, v in ipairs { { 1e-30, 1e20 }, { 1e30, 1e-20 } } do
    local at = H.tensor({ d = 'float64', s = { 1, 4 }, v = { v[2], v[2] / 2, 0, -v[2] } }, 'float32')
    local got = Call.raw('norm_backward', { amp.tensor { { v[1] } }, at, amp.tensor { { v[2] } } }, {})[1]
    H.close(got / v[1], { 1, 0.5, 0, -1 }, H.tolerance.float32)
  end
end

function closed.var_backward()
  for _, dt in ipairs(H.floats) do
    local x = H.tensor({ s = { 2, 3 }, v = { 1, 2, 6, -1, 0, 4 } }, dt)
    local g = H.tensor({ s = { 2, 1 }, v = { 1, 2 } }, dt)
    H.close(Call.raw('var_backward', { g, x }, { dim = { 2 } })[1], { -2, -1, 3, -4, -2, 6 }, H.tolerance[dt])
    H.close(Call.raw('var_backward', { H.tensor({ s = { 1, 3 }, v = { 1, 1, 2 } }, dt), x }, { dim = { 1 } })[1], { 1, 1, 2, -1, -1, -2 }, H.tolerance[dt])
  end
end

function closed.dropout()
  local x = amp.ones(4000)
  amp.manual_seed(5)
  local mean, _, v = moments(amp.dropout(x, 0.25))
  assert.is_true(math.abs(mean - 1) < 0.05)
  for i = 1, v.n do assert.is_true(v[i] == 0 or math.abs(v[i] - 4 / 3) < 1e-6) end
  H.same(amp.dropout(x, 0.25, false), x)
  H.same(amp.dropout(x, 0), x)
  H.close(amp.dropout(amp.ones(3), 1), { 0, 0, 0 }, H.exact)
  -- the same elements are dropped backward
  local y = amp.ones(100, { requires_grad = true })
  local z = amp.dropout(y, 0.5)
  z:sum():backward()
  H.same(y.grad, z:detach())
  -- twice differentiable: the mask is a constant
  local w = amp.randn(20, { requires_grad = true })
  local g = amp.grad({ (amp.dropout(w, 0.5) ^ 2):sum() }, { w }, { create_graph = true })[1]
  local gg = H.values(amp.grad({ g:sum() }, { w })[1])
  for i = 1, 20 do assert.is_true(gg[i] == 0 or math.abs(gg[i] - 8) < 1e-5, 'second derivative ' .. gg[i]) end
  for _, dt in ipairs(H.floats) do assert.equal(dt, amp.dropout(amp.ones(8, { dtype = dt })).dtype) end
  H.fails(function() amp.dropout(x, 1.5) end, 'dropout', '1.5')
end

--- Float arguments that no derivative is taken in: op -> set of names
M.constant = {
  batch_norm = { running_mean = true, running_var = true },
  nll_loss = { weight = true }, cross_entropy = { weight = true }, cross_entropy_index = { weight = true },
}

-- -- Wrong calls: name -> list of {shapes or {dtype, sizes...}, attrs, pieces of the error} --------

M.wrong = {
  matmul = { { { { 2, 3 }, { 4, 5 } }, {}, { '2x3', '4x5' } }, { { { 2, 2, 3 }, { 3, 3, 2 } }, {}, { '2x2x3', '3x3x2' } }, { { {}, { 2 } }, {}, { 'scalar' } },
    { { { 2, 3 }, { dtype = 'float64', 3, 2 } }, {}, { 'float32', 'float64' } } },
  mm = { { { { 2, 3 }, { 4, 5 } }, {}, { '2x3', '4x5' } }, { { { 2, 3, 1 }, { 3, 5 } }, {}, { '2x3x1' } } },
  bmm = { { { { 2, 3, 4 }, { 3, 4, 5 } }, {}, { '2x3x4', '3x4x5' } }, { { { 3, 4 }, { 4, 5 } }, {}, { '3x4' } } },
  mv = { { { { 2, 3 }, { 4 } }, {}, { '2x3', '4' } } },
  dot = { { { { 3 }, { 4 } }, {}, { '3', '4' } }, { { { 2, 2 }, { 4 } }, {}, { '2x2' } } },
  addmm = { { { { 2, 5 }, { 2, 3 }, { 4, 5 } }, {}, { '2x3', '4x5' } } },
  baddbmm = { { { { 2, 3, 5 }, { 2, 3, 4 }, { 3, 4, 5 } }, {}, { '2x3x4', '3x4x5' } } },
  linear = { { { { 2, 3 }, { 5, 4 }, { 5 } }, {}, { '2x3', '5x4' } }, { { { 2, 4 }, { 5, 4 }, { 3 } }, {}, { '5', '3' } },
    { { { dtype = 'bfloat16', 2, 4 }, { 5, 4 }, { 5 } }, {}, { 'bfloat16', 'float32' } } },
  conv2d = { { { { 1, 3, 5, 5 }, { 2, 4, 3, 3 }, false }, {}, { '1x3x5x5', '2x4x3x3' } }, { { { 3, 5 }, { 2, 3, 3, 3 }, false }, {}, { '3x5' } },
    { { { 1, 3, 2, 2 }, { 2, 3, 3, 3 }, false }, {}, { '2', '3' } }, { { { 1, 3, 5, 5 }, { 2, 3, 3, 3 }, false }, { stride = 0 }, { 'stride', '0' } },
    { { { 1, 3, 5, 5 }, { 4, 3, 3, 3 }, { 3 } }, {}, { '4', '3' } }, { { { 1, 3, 5, 5 }, { 4, 3, 3, 3 }, false }, { groups = 2 }, { 'groups', '2' } },
    { { { 1, 3, 5, 5 }, { dtype = 'float16', 4, 3, 3, 3 }, false }, {}, { 'float16', 'float32' } } },
  batch_norm = { { { { 2, 3 }, { 4 }, { 4 }, false, false }, {}, { '4', '3' } }, { { { 3 }, false, false, false, false }, { training = true }, { '3' } },
    { { { 2, 3 }, false, false, false, false }, {}, { 'running' } }, { { { 2, 3 }, { 3 }, { 3 }, { 2 }, false }, {}, { '2', '3' } } },
  add_layer_norm = { { { { 2, 3 }, { 2, 3 }, { 4 }, false }, { shape = { 4 } }, { '2x3', '4' } },
    { { { 2, 3 }, { 3 }, false, false }, { shape = { 3 } }, { 'residual', '2x3', '3' } },
    { { { 2, 3 }, { 2, 3 }, false, { 2 } }, { shape = { 3 } }, { 'bias', '2', '3' } } },
  layer_norm = { { { { 2, 3 }, { 4 }, false }, { shape = { 4 } }, { '2x3', '4' } }, { { { 2, 3 }, { 2 }, false }, { shape = { 3 } }, { '2', '3' } } },
  nll_loss = { { { { 2, 3 }, { dtype = 'int64', fill = 1, 4 }, false }, {}, { '2x3', '4' } }, { { { 2, 3 }, { dtype = 'int64', fill = 4, 2 }, false }, {}, { '4', '3' } },
    { { { 2, 3 }, { 2 }, false }, {}, { 'float32' } } },
  cross_entropy = { { { { 2, 3 }, { dtype = 'int64', fill = 1, 4 }, false }, {}, { '2x3', '4' } }, { { { 2, 3 }, { dtype = 'int64', fill = 4, 2 }, false }, {}, { 'label', '4', '3' } },
    { { { 2, 3 }, { dtype = 'int64', fill = 0, 2 }, false }, {}, { 'label', '0' } }, { { { 2, 3 }, { dtype = 'int64', fill = 1, 2 }, { 2 } }, {}, { '2', '3' } },
    { { { 2, 3 }, { dtype = 'int64', fill = 1, 2 }, false }, { label_smoothing = 2 }, { 'label_smoothing', '2' } } },
  mse_loss = { { { { 2, 3 }, { 4, 5 } }, {}, { '2x3', '4x5' } }, { { { 2, 3 }, { dtype = 'float64', 2, 3 } }, {}, { 'float32', 'float64' } } },
  l1_loss = { { { { 2, 3 }, { 4, 5 } }, {}, { '2x3', '4x5' } } },
  bce_with_logits = { { { { 2, 3 }, { 4, 5 }, false, false }, {}, { '2x3', '4x5' } } },
  binary_cross_entropy = { { { { fill = 0.5, 2, 3 }, { fill = 0.5, 4, 5 }, false }, {}, { '2x3', '4x5' } } },
  cat = { { { { list = { { 2, 3 }, { 2, 4 } } } }, {}, { '2x3', '2x4' } }, { { { list = {} } }, {}, {} } },
  stack = { { { { list = { { 2, 3 }, { 2, 4 } } } }, {}, { '2x3', '2x4' } } },
  view = { { { { 2, 3 } }, { shape = { 4, -1 } }, { '2x3', '4' } }, { { { 2, 3 } }, { shape = { 7 } }, { '2x3', '7' } }, { { { 2, 3 } }, { shape = { -1, -1 } }, { '-1' } } },
  reshape = { { { { 2, 3 } }, { shape = { 4, 2 } }, { '2x3', '4x2' } } },
  expand = { { { { 2, 3 } }, { shape = { 2, 4 } }, { '2x3', '4' } }, { { { 2, 3 } }, { shape = { 3 } }, { '2x3', '3' } } },
  permute = { { { { 2, 3 } }, { dims = { 1, 1 } }, { '1' } }, { { { 2, 3 } }, { dims = { 1 } }, { '2x3' } } },
  narrow = { { { { 4 } }, { dim = 1, start = 3, length = 3 }, { '3', '4' } }, { { { 4 } }, { dim = 1, start = 0, length = 1 }, { '0' } } },
  select = { { { { 4, 2 } }, { dim = 1, index = 5 }, { '5', '4' } }, { { { 4, 2 } }, { dim = 1, index = 0 }, { '0', '4' } }, { { { 4, 2 } }, { dim = 2, index = -3 }, { '-3', '2' } } },
  unbind = { { { { 2, 5 } }, { dim = 3 }, { '3', '2' } } },
  unfold = { { { { 4 } }, { dim = 1, size = 5, step = 1 }, { '5', '4' } }, { { { 4 } }, { dim = 1, size = 2, step = 0 }, { 'step', '0' } } },
  as_strided = { { { { 4 } }, { size = { 5 }, stride = { 1 } }, { '5' } }, { { { 4 } }, { size = { 2 }, stride = { 1, 1 } }, {} }, { { { 4 } }, { size = { 2 }, stride = { -1 } }, { '-1' } } },
  t = { { { { 2, 3, 4 } }, {}, { '2x3x4' } } },
  diagonal = { { { { 2, 3 } }, { dim1 = 1, dim2 = 1 }, { '1' } } },
  gather = { { { { 3, 3 }, { dtype = 'int64', fill = 4, 2, 2 } }, { dim = 1 }, { '4', '3' } }, { { { 3, 3 }, { dtype = 'int64', fill = 1, 2 } }, { dim = 1 }, { '3x3', '2' } },
    { { { 3, 3 }, { 2, 2 } }, { dim = 1 }, { 'float32' } } },
  scatter = { { { { 3, 3 }, { dtype = 'int64', fill = 9, 2, 2 }, { 2, 2 } }, { dim = 1 }, { '9', '3' } } },
  scatter_add = { { { { 3, 3 }, { dtype = 'int64', fill = 0, 2, 2 }, { 2, 2 } }, { dim = 1 }, { '0', '3' } } },
  index_select = { { { { 4, 2 }, { dtype = 'int64', fill = 5, 2 } }, { dim = 1 }, { '5', '4' } }, { { { 4, 2 }, { dtype = 'int64', fill = 0, 2 } }, { dim = 1 }, { '0', '4' } },
    { { { 4, 2 }, { 2 } }, { dim = 1 }, { 'float32' } } },
  index_add = { { { { 4, 2 }, { dtype = 'int64', fill = 1, 2 }, { 3, 2 } }, { dim = 1 }, { '2', '3' } } },
  embedding = { { { { dtype = 'int64', fill = 5, 2 }, { 4, 3 } }, {}, { '5', '4' } }, { { { dtype = 'int64', fill = 0, 2 }, { 4, 3 } }, {}, { '0', '4' } }, { { { 2 }, { 4, 3 } }, {}, { 'float32' } } },
  masked_fill = { { { { 2, 3 }, { dtype = 'bool', 4 } }, { value = 1 }, { '2x3', '4' } }, { { { dtype = 'float16', 2 }, { dtype = 'bool', fill = 1, 2 } }, { value = -1e9 }, { 'float16', '1000000000' } },
    { { { 2 }, { 2 } }, { value = 1 }, { 'bool', 'float32' } } },
  masked_select = { { { { 2, 3 }, { dtype = 'bool', 4 } }, {}, { '2x3', '4' } } },
  where = { { { { dtype = 'bool', 2 }, { 3 }, { 4 } }, {}, { '3', '4' } } },
  clamp = { { { { 2 } }, {}, { 'min', 'max' } } },
  softmax = { { { { 2, 3 } }, { dim = 3 }, { '3' } } },
  max = { { { { 0, 3 } }, {}, { '0x3' } } },
  min = { { { { 0, 3 } }, { dim = 1 }, { '0x3' } } },
  argmax = { { { { 0, 3 } }, {}, { '0x3' } } },
  amax = { { { { 0, 3 } }, {}, { '0x3' } } },
  amin = { { { { 0, 3 } }, { dim = 1 }, { '0x3' } } },
  lerp = { { { { 2 }, { 3 }, 0.5 }, {}, { '2', '3' } } },
  addcmul = { { { { 2 }, { 3 }, { 3 } }, {}, { '2', '3' } } },
  addcdiv = { { { { 2 }, { 3 }, { 3 } }, {}, { '2', '3' } } },
  index_put = { { { { 4 }, { 3 }, { list = { { dtype = 'int64', fill = 1, 2 } } } }, { dims = { 1 } }, { '3', '2' } }, { { { 4 }, { 2 }, { list = { { dtype = 'int64', fill = 5, 2 } } } }, { dims = { 1 } }, { '5', '4' } } },
}
M.wrong['repeat'] = { { { { 2, 3 } }, { repeats = { 2 } }, { '2x3', '1' } } }

--- Ops whose gradient has jumps where 16 bits round to: the largest of differences that are equal then
M.kinked = { pairwise_distance = true }

--- Ops of the class special that a region treats as those of the class lower
M.lowering = {}

--- Ops of the class special whose first result is float32 in a region, as layer_norm's
M.widening = { add_layer_norm = true }

--- Cases by hand, as lines of fixtures are
local by_hand = {}

local function tensor(x)
  if type(x) ~= 'table' or x.d or x.list or x.aux then return x end
  return { d = 'float64', s = x.s or { #x }, v = x.v or x }
end

local function take(op, entry)
  M.wrong[op] = entry.wrong or M.wrong[op]
  for _, c in ipairs(entry) do
    local case = { op = op, tag = 'by hand', attrs = {}, inp = {}, out = {} }
    for key, value in pairs(c) do if key ~= 'inp' and key ~= 'out' then case[key] = value end end
    for i, x in ipairs(c.inp) do case.inp[i] = tensor(x) end
    for i, x in ipairs(c.out) do case.out[i] = type(x) == 'number' and { d = 'float64', s = {}, v = { x } } or tensor(x) end
    by_hand[#by_hand + 1] = case
  end
end

--- Every case there is, through f: those that scripts wrote, then those by hand
function M.each_case(f)
  local files = { 'ops.txt' }
  for _, family in ipairs(M.families) do files[#files + 1] = 'ops_' .. family .. '.txt' end
  for _, file in ipairs(files) do
    for _, c in ipairs(H.fixture(file)) do f(c) end
  end
  for _, c in ipairs(by_hand) do f(c) end
end

for _, family in ipairs { 'float8', unpack(M.families) } do
  local more = require('spec.ops.samples.' .. family)
  for op, entry in pairs(more.by_hand or {}) do take(op, entry) end
  for op, f in pairs(more.closed or {}) do closed[op] = f end
  for op, list in pairs(more.wrong or {}) do M.wrong[op] = list end
  -- what the walk can't derive by finite differences: op -> names of arguments that are constants to it
  for op in pairs(more.lowering or {}) do M.lowering[op] = true end
  for op, names in pairs(more.constant or {}) do M.constant[op] = names end
end

return M

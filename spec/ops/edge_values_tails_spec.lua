--- Values far out: tails of activations, arguments beside poles, losses and norms of numbers near the ends of the range.
-- Right is what the formula gives in float64, rounded. With AMP_SPEC_DEVICE=cuda the same tables are walked there.
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local F = amp.nn.functional

local inf, nan, exp = math.huge, 0 / 0, math.exp
local device = H.device or 'cpu'

local edges = require 'spec.lib.edges'
local flat = edges.flat
local function same(what, got, want, tolerance) return edges.same(what, got, want, tolerance or 4e-6, 1.5e-45) end -- the smallest float32

local function tensor(v, dtype)
  local t = amp.tensor(v, { dtype = dtype or 'float32', device = device })
  t.requires_grad = true
  return t
end

local function map(f, list)
  local out = {}
  for i, v in ipairs(list) do out[i] = f(v) end
  return out
end

--- {name, function, input, values or false, gradient of the sum or false, second gradient}
local function walk(rows, tolerance)
  for _, r in ipairs(rows) do
    local what, fn = r[1], r[2]
    for _, dtype in ipairs(r.dtypes or { 'float32', 'float64' }) do
      local x = tensor(r[3], dtype)
      if r[4] then same(what .. ' in ' .. dtype, fn(x), r[4], tolerance) end
      if r[5] then
        same(what .. ', gradient in ' .. dtype, amp.grad(fn(x):sum(), { x })[1], r[5], tolerance)
        local g = amp.grad(fn(x):sum(), { x }, { create_graph = true })[1]
        same(what .. ', recorded gradient in ' .. dtype, g, r[5], tolerance)
        if r[6] then same(what .. ', second gradient in ' .. dtype, amp.grad(g:sum(), { x })[1], r[6], tolerance) end
      end
    end
  end
end

local FAR = { -17.5, -18.75, -24.25, -50, -80 }

describe('an exponential tail', function()
  it('has a slope that is not 0', function()
    local scale, alpha = 1.0507009873554804934, 1.6732632423543772848
    local e = map(exp, FAR)
    local function times(k) return map(function(v) return k * v end, e) end
    walk {
      { 'expm1', amp.expm1, FAR, false, e, e },
      { 'elu', F.elu, FAR, false, e, e },
      { 'elu 1.75', function(x) return F.elu(x, 1.75) end, FAR, false, times(1.75), times(1.75) },
      { 'celu', F.celu, FAR, false, e, e },
      { 'celu 2', function(x) return F.celu(x, 2) end, FAR, false, map(function(v) return exp(v / 2) end, FAR),
        map(function(v) return exp(v / 2) / 2 end, FAR) },
      { 'selu', F.selu, FAR, false, times(scale * alpha), times(scale * alpha) },
    }
  end)

  it('has it in place and in 16 bits too', function()
    for _, op in ipairs { 'expm1', 'elu', 'celu', 'selu' } do
      local x = tensor(FAR)
      local y = x * 1
      y[op .. '_'](y)
      local z = tensor(FAR)
      same(op .. '_', amp.grad(y:sum(), { x })[1], amp.grad(amp[op](z):sum(), { z })[1])
      assert.is_true(flat(amp.grad(amp[op](z):sum(), { z })[1])[1] > 0)
      local low = tensor({ -20, -30, 2 }, 'bfloat16')
      local g = flat(amp.grad(amp[op](low):sum(), { low })[1])
      assert.is_true(g[1] > 1.9e-9 and g[2] > 8e-14, op .. ' in bfloat16')
    end
  end)

  it('leaves the other side as it is, far out and at NaN', function()
    for _, op in ipairs { 'elu', 'celu', 'selu' } do
      local k = op == 'selu' and 1.0507009873554804934 or 1
      walk { { op, amp[op], { 0.5, 90, 1e30, nan }, { k * 0.5, k * 90, k * 1e30, nan }, { k, k, k, nan }, { 0, 0, 0, nan } } }
    end
  end)

  it('ends where the smallest numbers do', function()
    walk {
      { 'erfc', amp.erfc, { 9.33386707, 9.36082649, 9.8 }, { 8.76402958e-40, 5.27936401e-40, 1.13521e-43 }, dtypes = { 'float32' } },
    }
    walk({ { 'mish', F.mish, { -100.25, -101.5 }, { -100.25 * exp(-100.25), -101.5 * exp(-101.5) }, dtypes = { 'float32' } } }, 0.05)
    local y = flat(F.mish(tensor { -102.5, -inf }))
    assert.is_true(y[1] < 0 and y[2] == 0)
  end)
end)

describe('a limited activation', function()
  it('has all its digits beside its limit, and keeps NaN', function()
    walk({
      { 'hardsigmoid', F.hardsigmoid, { -3 + 2 ^ -22, -2.98046875, 2.5 }, { 2 ^ -22 / 6, 0.01953125 / 6, 5.5 / 6 } },
      { 'hardswish', F.hardswish, { nan, -4, 4, -1.5 }, { nan, 0, 4, -0.375 }, { nan, 0, 1, 0 } },
    }, 1e-6)
  end)
end)

describe('the second derivative of gelu', function()
  it('is 0 far out', function()
    for _, how in ipairs { 'none', 'tanh' } do
      local far = { -1e30, -1e9, -45, 45, 1e9, 1e30 }
      walk { { how, function(x) return F.gelu(x, how) end, far, false, { 0, 0, 0, 1, 1, 1 }, { 0, 0, 0, 0, 0, 0 } } }
      local x = tensor { nan }
      local g = amp.grad(F.gelu(x, how):sum(), { x }, { create_graph = true })[1]
      same('NaN', amp.grad(g:sum(), { x })[1], { nan })
    end
  end)
end)

describe('polygamma', function()
  it('is right beside its poles below zero', function()
    local d = 2 ^ -20
    for n = 1, 3 do
      local sign, factorial = n % 2 == 1 and 1 or -1, n == 3 and 6 or n
      for _, at in ipairs { 0, -1, -5 } do
        for _, side in ipairs { -1, 1 } do
          -- the pole's own term; the others are below 1e-5 of it
          local y = amp.polygamma(tensor({ at + side * d }, 'float64'), n)
          same(('order %d at %g %+g'):format(n, at, side * d), y, { sign * factorial / (side * d) ^ (n + 1) }, 1e-5)
        end
      end
    end
    same('beside 0', amp.polygamma(tensor { -1e-18 }, 1), { 1e36 }, 1e-5)
    same('between poles', amp.polygamma(tensor({ -0.25, -2.75 }, 'float64'), 1), { 18.541879647671606, 19.4059 }, 1e-2)
    local x = tensor { -1e-18 }
    same('slope of digamma', amp.grad(amp.digamma(x), { x })[1], { 1e36 }, 1e-5)
  end)
end)

describe('logcumsumexp', function()
  it('keeps what is far below the largest', function()
    walk {
      { 'growing', function(x) return amp.logcumsumexp(x, 1) end, { -50, 0 }, { -50, exp(-50) } },
      { 'falling', function(x) return amp.logcumsumexp(x, 1) end, { 0, -50, -50 }, { 0, exp(-50), 2 * exp(-50) } },
      { 'ends', function(x) return amp.logcumsumexp(x, 1) end, { -inf, -inf, 0, -60, inf, 3 }, { -inf, -inf, 0, exp(-60), inf, inf } },
      { 'NaN', function(x) return amp.logcumsumexp(x, 1) end, { -inf, 1, nan, 2 }, { -inf, 1, nan, nan } },
    }
    local v = {}
    for i = 1, 700 do v[i] = i == 1 and 0 or -70 end
    same('many', amp.logcumsumexp(tensor(v), 1)[700], { 699 * exp(-70) })
  end)
end)

describe('a loss of two elements', function()
  it('is right where an infinite score meets its label', function()
    local function bce(t, reduction)
      return function(x) return F.bce_with_logits(x, tensor(t, x.dtype):detach(), nil, reduction or 'none') end
    end
    walk {
      { 'bce_with_logits', bce { 0, 1, 1, 0, 0.5, 0.5 }, { -inf, inf, -inf, inf, inf, -inf }, { 0, 0, inf, inf, inf, inf }, { 0, 0, -1, 1, 0.5, -0.5 } },
      { 'bce_with_logits of NaN', bce { 0, 1 }, { nan, nan }, { nan, nan } },
      { 'bce_with_logits, sum', bce({ 0, 1 }, 'sum'), { -inf, inf }, { 0 } },
      { 'bce_with_logits, far', bce { 0, 1, 0, 1 }, { -30, 30, -3e38, 3e38 }, { exp(-30), exp(-30), 0, 0 } },
      { 'multilabel_soft_margin_loss', function(x) return F.multilabel_soft_margin_loss(x, tensor({ { 0, 1 }, { 1, 0 } }, x.dtype):detach(), nil, 'none') end,
        { { -inf, inf }, { inf, inf } }, { 0, inf } },
    }
    local nobody = tensor({ nan }):detach()
    same('a label that is NaN', F.bce_with_logits(tensor { 1 }, nobody), { nan })
  end)

  it('has the square that its limit allows', function()
    local function huber(delta) return function(x) return F.huber_loss(x, x:detach() * 0, 'none', delta) end end
    local function smooth(beta) return function(x) return F.smooth_l1_loss(x, x:detach() * 0, 'none', beta) end end
    walk {
      { 'huber_loss', huber(1e20), { 2e19, -2e19 }, { 2e38, 2e38 }, { 2e19, -2e19 } },
      { 'smooth_l1_loss, wide', smooth(1e20), { 2e19, -2e19 }, { 2e18, 2e18 }, { 0.2, -0.2 } },
      { 'smooth_l1_loss, narrow', smooth(1e-30), { 1e-31, 3e-30 }, { 5e-33, 2.5e-30 }, { 0.1, 1 } },
    }
  end)
end)

describe('a sum of exponentials with an infinity', function()
  it('has no slope beside it', function()
    walk {
      { 'logsumexp', function(x) return amp.logsumexp(x, 1) end, { 0, inf, 5 }, { inf }, { 0, nan, 0 } },
      { 'logsumexp of nothing', function(x) return amp.logsumexp(x, 1) end, { -inf, -inf }, { -inf }, { 0, 0 } },
    }
    local x = tensor({ -1e300, -1e300 }, 'float64')
    same('below what float32 holds', amp.grad(amp.logsumexp(x, 1), { x })[1], { 0.5, 0.5 })
  end)
end)

describe('the gradient of a quotient in float16', function()
  it('is in range where the gradient over the divisor is not', function()
    local function back(f, x, y)
      local out = f(x, y)
      return amp.grad(out, { y }, { grad_outputs = { tensor({ 40000, 60000, 2 }, 'float16'):detach() } })[1]
    end
    local x, y = tensor({ 0.125, 0, 1e-3 }, 'float16'):detach(), tensor({ 0.5, 0.25, 1e-3 }, 'float16')
    local want = { -20000, 0, -2 / flat(x)[3] }
    same('div', back(amp.div, x, y), want, 1e-3)
    same('addcdiv', back(function(a, d) return amp.addcdiv(a * 0, a, d) end, x, y), want, 1e-3)
  end)
  it('is right for log10 of small numbers', function()
    local x = tensor({ 7e-6 }, 'float16')
    same('log10', amp.grad(amp.log10(x), { x })[1], { 1 / (math.log(10) * flat(x)[1]) }, 0.03)
  end)
end)

describe('the gradient of a norm', function()
  it('is in range where the norm is large or small', function()
    local small = { 3e-25, -4e-25 }
    local rows = {}
    for _, k in ipairs { 1, 1e25, 1e37, 1e-25, 1e-37 } do
      local v = { 3 * k, -4 * k }
      for _, g in ipairs { 1, 1e-20 } do
        rows[#rows + 1] = { ('2 of %g, g %g'):format(k, g), function(x) return x:norm() * g end, v, false, { 0.6 * g, -0.8 * g } }
      end
      rows[#rows + 1] = { ('3 of %g'):format(k), function(x) return x:norm(3) end, v, { 91 ^ (1 / 3) * k }, { 9 / 91 ^ (2 / 3), -16 / 91 ^ (2 / 3) } }
      rows[#rows + 1] = { ('1 of %g'):format(k), function(x) return x:norm(1) end, v, { 7 * k }, { 1, -1 } }
      rows[#rows + 1] = { ('largest of %g'):format(k), function(x) return x:norm(inf) end, v, { 4 * k }, { 0, -1 } }
    end
    walk(rows, 2e-5)
    walk({
      { '1.5 of unlike', function(x) return x:norm(1.5) end, { 1e-30, 1e30 }, { 1e30 }, { 1e-30, 1 } },
      { '0.5 of unlike', function(x) return x:norm(0.5) end, { 4e-38, 1 }, { 1 + 4e-19 }, { 5e18, 1 } },
      { 'normalize, small', function(x) return F.normalize(x, { dim = 1, eps = 1e-37 }):narrow(1, 1, 1) end, small, { 0.6 }, { 0.64 / 5e-25, 0.48 / 5e-25 } },
    }, 2e-5)
    local x = tensor { 1e25, 1e19 } -- a difference of two that are 1e-25
    local g = flat(amp.grad(F.normalize(x, { dim = 1 })[1], { x })[1])
    assert.is_true(math.abs(g[1]) < 2e-32, g[1])
    same('normalize, the smaller', { g[2] }, { -1e-31 })
  end)
end)

describe('normalisation without eps', function()
  it('has the gradient of small numbers', function()
    local n, base = 8, { 1, -2, 3, 5, -1, 0.5, 2, -4 }
    local mean, m2 = 0, 0
    for _, v in ipairs(base) do mean = mean + v / n end
    for _, v in ipairs(base) do m2 = m2 + (v - mean) ^ 2 / n end
    local k, r = 1e-20, 1 / math.sqrt(m2)
    local x, weight = map(function(v) return v * k end, base), { 1, 0, -1, 2, 0, 3, 1, -2 }
    local s0, s1, want = 0, 0, {}
    for i = 1, n do s0, s1 = s0 + weight[i] / n, s1 + weight[i] * (base[i] - mean) * r / n end
    for i = 1, n do want[i] = r / k * (weight[i] - s0 - (base[i] - mean) * r * s1) end
    local function of(f) return function(t) return (f(t):reshape(n) * tensor(weight, t.dtype):detach()) end end
    walk({
      { 'layer_norm', of(function(t) return F.layer_norm(t, { n }, nil, nil, 0) end), x, false, want },
      { 'group_norm', of(function(t) return F.group_norm(t:reshape(1, 1, n), 1, nil, nil, 0) end), x, false, want },
      { 'group_norm of columns', of(function(t) return F.group_norm(t:reshape(1, n), 1, nil, nil, 0) end), x, false, want },
      { 'instance_norm', of(function(t) return F.instance_norm(t:reshape(1, 1, n), nil, nil, nil, nil, true, 0.1, 0) end), x, false, want },
    }, 1e-4)
    if device ~= 'cpu' then return end -- there batch_norm keeps its factor of the input in float32
    walk({
      { 'batch_norm', of(function(t) return F.batch_norm(t:reshape(n, 1), nil, nil, nil, nil, true, 0.1, 0) end), x, false, want },
      { 'batch_norm of images', of(function(t) return F.batch_norm(t:reshape(2, 1, n / 2), nil, nil, nil, nil, true, 0.1, 0) end), x, false, want },
    }, 1e-4)
  end)
  it('is right for squares that float32 does not hold', function()
    if device ~= 'cpu' then return end
    local base, square = { 1, 2, 4, -1 }, 22 / 4
    local r = 1 / math.sqrt(square)
    for _, k in ipairs { 1e-25, 1e25 } do
      local want = map(function(v) return (1 - 6 * v / 22) * r / k end, base)
      walk({ { 'rms_norm of ' .. k, function(t) return F.rms_norm(t:reshape(1, 4), { 4 }, nil, 0) end, map(function(v) return v * k end, base),
        map(function(v) return v * r end, base), want } }, 1e-4)
    end
  end)
end)

describe('the slopes of a power', function()
  it('agree in every exponent, single or spread', function()
    local x = { 0.25, 1, 2.5, 9, 16 }
    for _, dtype in ipairs { 'float32', 'float64' } do
      for _, e in ipairs { -1, 0, 0.5, 1, 1.5, 2, 3, 4, -0.5, 2.7 } do
        local want = map(function(v) return e * v ^ (e - 1) end, x)
        local t, p = tensor(x, dtype), tensor({ e, e, e, e, e }, dtype)
        same('number ' .. e, amp.grad(t:pow(e):sum(), { t })[1], want, 1e-5)
        local g = amp.grad(t:pow(p):sum(), { t, p })
        same('tensor ' .. e, g[1], want, 1e-5)
        same('exponent ' .. e, g[2], map(function(v) return v ^ e * math.log(v) end, x), 1e-5)
      end
      local t, p = tensor({ 0, 0, 0, 2 }, dtype), tensor({ 0, 2, -1, 3 }, dtype)
      same('exponent of 0', amp.grad(t:pow(p):sum(), { p })[1], { 0, 0, -inf, 8 * math.log(2) }, 1e-5)
    end
  end)
end)

--- Values at the edges: large common offsets, squares past float32's range, equal elements, zeros, infinities, ties,
-- scalars that are reduced. Right is what the formula gives in float64, and the subgradient of PyTorch where a slope
-- is not defined. With AMP_SPEC_DEVICE=cuda the same tables are walked there.
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local F = amp.nn.functional

local inf, nan = math.huge, 0 / 0
local device = H.device or 'cpu'

local edges = require 'spec.lib.edges'
local flat = edges.flat
local function same(what, got, want, tolerance) return edges.same(what, got, want, tolerance or 2e-5) end

local function tensor(v, dtype, grad)
  local t = amp.tensor(v, { dtype = dtype or 'float32', device = device })
  t.requires_grad = grad or false
  return t
end

--- {name, function, input, value, gradient of its sum or false, second gradient or false}
local function walk(rows, tolerance)
  for _, r in ipairs(rows) do
    local what, fn, input, value, first, second = r[1], r[2], r[3], r[4], r[5], r[6]
    local x = tensor(input, r.dtype, true)
    local y = fn(x)
    same(what, y, value, tolerance)
    if first then
      same(what .. ', gradient', amp.grad(fn(x):sum(), { x })[1], first, tolerance)
      local g = amp.grad(fn(x):sum(), { x }, { create_graph = true })[1]
      same(what .. ', recorded gradient', g, first, tolerance)
      if second then same(what .. ', second gradient', amp.grad(g:sum(), { x })[1], second, tolerance) end
    end
  end
end

-- -- Offsets -----------------------------------------------------------------

--- Elements that float32 holds exactly at every offset, and the float64 results of the same
local function pattern(n)
  local t = {}
  for i = 1, n do t[i] = (i * 7 % 5) + (i * 3 % 4) end
  return t
end

local function shifted(t, by)
  local out = {}
  for i, v in ipairs(t) do out[i] = v + by end
  return out
end

local function moments(t)
  local mean, m2 = 0, 0
  for _, v in ipairs(t) do mean = mean + v / #t end
  for _, v in ipairs(t) do m2 = m2 + (v - mean) ^ 2 end
  return mean, m2
end

local OFFSETS = { 0, -3e4, 8e6 }

describe('data with a large common offset', function()
  it('has the variance, the deviation and their gradients that it has without', function()
    for _, n in ipairs { 2, 31, 64, 700 } do
      local base = pattern(n)
      local mean, m2 = moments(base)
      local dvar, dstd = {}, {}
      for i, v in ipairs(base) do
        dvar[i] = 2 * (v - mean) / (n - 1)
        dstd[i] = m2 > 0 and (v - mean) / ((n - 1) * math.sqrt(m2 / (n - 1))) or 0
      end
      for _, by in ipairs(OFFSETS) do
        for _, shape in ipairs { { n }, { n, 1 }, { 1, n } } do
          local what = ('n %d, offset %g, %s'):format(n, by, table.concat(shape, 'x'))
          local x = tensor(shifted(base, by)):reshape(shape)
          x.requires_grad = true
          local dim = #shape == 2 and (shape[2] == 1 and 1 or 2) or nil
          same('var of ' .. what, x:var(dim), { m2 / (n - 1) })
          same('std of ' .. what, x:std(dim), { math.sqrt(m2 / (n - 1)) })
          local close = function(name, got, want) -- the element at the mean may have a gradient of about 0
            for i, v in ipairs(flat(got)) do
              assert.is_true(math.abs(v - want[i]) <= 2e-5 * 4 / n, ('%s of %s, gradient %d: %.9g, right is %.9g'):format(name, what, i, v, want[i]))
            end
          end
          close('var', amp.grad(x:var(dim):sum(), { x })[1], dvar)
          close('std', amp.grad(x:std(dim):sum(), { x })[1], dstd)
        end
      end
    end
  end)

  it('is normalised as it is without, in every layout, and so are its gradients', function()
    local n = 24
    local base = pattern(n)
    local mean, m2 = moments(base)
    local function right(eps)
      local r, y = 1 / math.sqrt(m2 / n + eps), {}
      for i, v in ipairs(base) do y[i] = (v - mean) * r end
      return y, r
    end
    local want, r = right(1e-5)
    local weight = {}
    for i = 1, n do weight[i] = (i * 5 % 7) / 7 - 0.4 end
    local s0, s1 = 0, 0
    for i = 1, n do s0 = s0 + weight[i] / n s1 = s1 + weight[i] * want[i] / n end
    local dx = {}
    for i = 1, n do dx[i] = r * (weight[i] - s0 - want[i] * s1) end
    local ops = {
      layer_norm = function(x) return F.layer_norm(x:reshape(1, n), { n }) end,
      group_norm = function(x) return F.group_norm(x:reshape(1, 4, 3, 2), 1) end,
      ['group_norm, channels last'] = function(x) return F.group_norm(x:reshape(1, 4, 3, 2):contiguous('channels_last'), 1):contiguous() end,
      ['group_norm of columns'] = function(x) return F.group_norm(x:reshape(1, n), 1) end,
      instance_norm = function(x) return F.instance_norm(x:reshape(1, 1, n)) end,
      batch_norm = function(x) return F.batch_norm(x:reshape(n, 1), nil, nil, nil, nil, { training = true }) end,
      ['batch_norm of images'] = function(x) return F.batch_norm(x:reshape(2, 1, 4, 3), nil, nil, nil, nil, { training = true }) end,
      ['batch_norm, channels last'] = function(x)
        local two = amp.stack({ x:reshape(2, 4, 3), x:reshape(2, 4, 3) }, 2):contiguous('channels_last')
        return F.batch_norm(two, nil, nil, nil, nil, { training = true }):contiguous():narrow(2, 2, 1)
      end,
    }
    for name, fn in pairs(ops) do
      for _, by in ipairs(OFFSETS) do
        -- a GPU keeps the mean in float32 between the passes over batches
        local bound = device == 'cpu' and 1e-4 or 1e-4 + math.abs(by) * 2e-7
        local what = ('%s at offset %g'):format(name, by)
        local x = tensor(shifted(base, by), nil, true)
        local y = fn(x)
        for i, v in ipairs(flat(y)) do assert.is_true(math.abs(v - want[i]) < bound, ('%s, %d: %.9g, right is %.9g'):format(what, i, v, want[i])) end
        local g = amp.grad((y:reshape(n) * tensor(weight)):sum(), { x })[1]
        for i, v in ipairs(flat(g)) do assert.is_true(math.abs(v - dx[i]) < bound, ('%s, gradient %d: %.9g, right is %.9g'):format(what, i, v, dx[i])) end
      end
    end
  end)

  it('of equal elements is exactly the bias, whatever the value', function()
    for _, v in ipairs { 0.1, 1e4, 1.7e38, -3.3e7 } do
      local function nothing(what, y) for _, e in ipairs(flat(y)) do assert.equal(0, e, ('%s of %g'):format(what, v)) end end
      for _, n in ipairs { 2, 7, 300 } do
        local x = tensor { v }:expand(2, n)
        nothing('layer_norm', F.layer_norm(x, { n }))
        nothing('group_norm', F.group_norm(x:reshape(1, 2, n), 1))
        nothing('group_norm, groups of one channel', F.group_norm(x:reshape(1, 2, n), 2))
        nothing('instance_norm', F.instance_norm(x:reshape(1, 2, n)))
        nothing('batch_norm', F.batch_norm(x:reshape(2, n):t():contiguous(), nil, nil, nil, nil, { training = true }))
        nothing('batch_norm of images', F.batch_norm(x:reshape(2, 1, n, 1), nil, nil, nil, nil, { training = true }))
        nothing('batch_norm, channels last', F.batch_norm(tensor { v }:expand(1, 4, 3, n):contiguous('channels_last'), nil, nil, nil, nil, { training = true }))
        nothing('group_norm, channels last', F.group_norm(tensor { v }:expand(1, 4, 3, n):contiguous('channels_last'), 2))
        nothing('var', x:var(2))
        nothing('std', x:std(1))
      end
    end
  end)

  it('of outliers first loses nothing', function()
    local t = { 1e6 }
    for i = 2, 3000 do t[i] = i % 2 end
    local _, m2 = moments(t)
    same('var', tensor(t):var(), { m2 / 2999 })
    same('var of a column', tensor(t):reshape(3000, 1):var(1), { m2 / 2999 })
  end)
end)

-- -- Range -------------------------------------------------------------------

describe('a result in range', function()
  it('is right where squares are not', function()
    local r2, r5, r6 = math.sqrt(2), math.sqrt(5), math.sqrt(6)
    walk({
      { 'std, large', function(x) return x:std() end, { 1e30, -1e30 }, { r2 * 1e30 }, { r2 / 2, -r2 / 2 } },
      { 'std, small', function(x) return x:std() end, { 1e-30, -1e-30 }, { r2 * 1e-30 }, { r2 / 2, -r2 / 2 } },
      { 'std of columns', function(x) return x:std(1) end, { { 1e30, 1 }, { -1e30, -1 } }, { r2 * 1e30, r2 }, { r2 / 2, r2 / 2, -r2 / 2, -r2 / 2 } },
      { 'norm, large', function(x) return x:norm() end, { 1e30, -2e30 }, { r5 * 1e30 }, { 1 / r5, -2 / r5 } },
      { 'norm, small', function(x) return x:norm() end, { 1e-30, -2e-30 }, { r5 * 1e-30 }, { 1 / r5, -2 / r5 } },
      { 'norm 3', function(x) return x:norm(3) end, { 1e20, 0 }, { 1e20 }, { 1, 0 } },
      { 'norm 3, small', function(x) return x:norm(3) end, { 1e-20, 0 }, { 1e-20 }, { 1, 0 } },
      { 'dist', function(x) return amp.dist(x, x:detach():flip { 1 }) end, { 1e30, -1e30 }, { 2 * r2 * 1e30 }, { r2 / 2, -r2 / 2 } },
      { 'normalize', function(x) return F.normalize(x, { dim = 1 }) end, { 1e30, -1e30, 2e30 }, { 1 / r6, -1 / r6, 2 / r6 } },
      { 'layer_norm', function(x) return F.layer_norm(x, { 2 }) end, { 1e30, -1e30 }, { 1, -1 } },
      { 'group_norm', function(x) return F.group_norm(x:reshape(1, 2, 1), 1) end, { 1e30, -1e30 }, { 1, -1 } },
    }, 1e-4)
  end)
end)

describe('a quotient rounded down', function()
  it('is right for infinities, zeros, NaN and where the quotient is rounded up to an integer', function()
    local by = { 1, inf, -inf, inf, 0, 0, 3, nan, 2 ^ -10, 0.1 }
    local fn = function(x) return amp.floor_divide(x, tensor(by)) end
    walk { { 'floor_divide', fn, { 1e30, 1, 1, inf, 5, 0, inf, 1, 2 ^ 30, 1 }, { 1e30, 0, -1, nan, inf, nan, nan, nan, 2 ^ 40, 9 } } }
  end)
end)

-- -- Slopes at zeros and infinities -----------------------------------------------

describe('a gradient', function()
  it('is the subgradient at zeros, not NaN', function()
    local a = math.pi ^ 2
    walk {
      { 'lp_pool 2', function(x) return F.lp_pool1d(x, 2, 2) end, { { { 0, 0, 3, 4 } } }, { 0, 5 }, { 0, 0, 0.6, 0.8 }, { 0, 0, 0.032, -0.024 } },
      { 'lp_pool 3', function(x) return F.lp_pool1d(x, 3, 2) end, { { { 0, 0, 0, 2 } } }, { 0, 2 }, { 0, 0, 0, 1 } },
      { 'std of one value', function(x) return x:std() end, { 5, 5, 5 }, { 0 }, { 0, 0, 0 }, { 0, 0, 0 } },
      { 'var of one value', function(x) return x:var() end, { 5, 5 }, { 0 }, { 0, 0 } },
      { 'norm', function(x) return x:norm() end, { 0, 0 }, { 0 }, { 0, 0 }, { 0, 0 } },
      { 'norm of what hardly is', function(x) return x:norm() end, { 2 ^ -140, 0 }, { 2 ^ -140 }, { 0, 0 } },
      { 'sinc', function(x) return amp.sinc(x) end, { 0, 0.5 }, { 1, 2 / math.pi }, { 0, -4 / math.pi }, { -a / 3, 16 / math.pi - 2 * math.pi } },
      { 'logit', function(x) return amp.logit(x) end, { 0, 0.5, 1 }, { -inf, 0, inf }, { inf, 4, inf } },
      { 'power 0 of NaN', function(x) return amp.pow(x, tensor { 0, 2 }) end, { nan, 3 }, { 1, 9 }, { 0, 6 } },
      { 'cosine of nothing', function(x) return amp.cosine_similarity(x, tensor { { 1, 0 } }) end, { { 0, 0 } }, { 0 }, { 1e8, 0 } },
      { 'normalize nothing', function(x) return F.normalize(x, { dim = 1 }) end, { 0, 0 }, { 0, 0 }, { 1e12, 1e12 } },
      { 'huber at its edge', function(x) return F.huber_loss(x, x:detach() * 0, 'sum') end, { 1, 0.5, 2 }, { 2.125 }, { 1, 0.5, 1 }, { 0, 1, 0 } },
    }
  end)

  it('of logsumexp is what softmax gives, whatever the size of the result', function()
    for _, at in ipairs { 0, 15, 17, -17, 1024 } do
      local l = math.log(3)
      walk { { 'logsumexp at ' .. at, function(x) return amp.logsumexp(x + at, 1) end, { 0, l }, { at + math.log(4) }, { 0.25, 0.75 } } }
    end
    walk { { 'logsumexp of nothing', function(x) return amp.logsumexp(x, 1) end, { -inf, -inf }, { -inf }, { 0, 0 } } }
  end)

  it('is not spoiled by an infinity beside it', function()
    walk {
      { 'logcumsumexp', function(x) return amp.logcumsumexp(x, 1) end, { 1, inf, 2 }, { 1, inf, inf }, { 1, nan, 0 } },
      { 'remainder by infinity', function(x) return amp.mod(tensor { 1, 7 }, x) end, { -inf, 3 }, { -inf, 1 }, { 1, -2 } },
      { 'gaussian_nll_loss', function(x) return F.gaussian_nll_loss(tensor { 1 }, tensor { 0 }, x) end, { inf }, { inf }, { 0 } },
    }
  end)
end)

-- -- Scalars ------------------------------------------------------------------------

describe('a scalar', function()
  it('has dimension 1, also named -1, for whatever works along one', function()
    local s, i = tensor(5), amp.tensor(1, { dtype = 'int64', device = device })
    local want = {
      sum = 5, mean = 5, prod = 5, amax = 5, amin = 5, max = 5, min = 5, median = 5, mode = 5, nansum = 5, nanmean = 5, argmax = 1, argmin = 1,
      logsumexp = 5, cumsum = 5, cumprod = 5, cummax = 5, logcumsumexp = 5,
      softmax = 1, log_softmax = 0, softmin = 1, sort = 5, argsort = 1, norm = 5, var = nan,
      std = nan, normalize = 1, squeeze = 5, any = 1, all = 1,
    }
    for name, v in pairs(want) do
      for _, dim in ipairs { 1, -1 } do
        local args = { s, dim }
        if name == 'norm' or name == 'normalize' then args = { s, 2, dim } end
        local y = amp[name](unpack(args))
        assert.equal(0, y:dim(), name)
        same(name, y, v)
      end
      local out = name == 'norm' or name == 'normalize'
      assert.is_false((pcall(amp[name], s, out and 2 or 2, out and 2 or nil)), name .. ' along dimension 2')
    end
    same('transpose', s:transpose(1, -1), 5)
    same('gather', s:gather(1, i), 5)
    same('index_select', s:index_select(1, i), 5)
    same('index_fill', s:index_fill(1, i, 3), 3)
    same('flip', s:flip { -1 }, 5)
    H.fails(function() return s:sum(2) end, 'dimension 2', 'scalar')
    H.fails(function() return s:select(1, 1) end, 'scalar')
    H.fails(function() return s:softmax(0) end, 'dim 0')
  end)

  it('passes its gradient on', function()
    for _, name in ipairs { 'sum', 'mean', 'prod', 'amax', 'max', 'cumsum', 'cumprod', 'logsumexp', 'logcumsumexp', 'nansum', 'squeeze', 'median', 'sort' } do
      local x = tensor(3, nil, true)
      same(name, amp.grad((amp[name](x, 1)), { x })[1], 1)
    end
    for name, g in pairs { softmax = 0, log_softmax = 0 } do
      local x = tensor(3, nil, true)
      same(name, amp.grad((amp[name](x, -1)), { x })[1], g)
    end
  end)
end)

-- -- Attention -----------------------------------------------------------------------

describe('a row of attention that sees nothing', function()
  it('is 0, the same with and without weights, and leaves gradients finite', function()
    local result = {}
    for k, weights in ipairs { false, true } do
      amp.manual_seed(1)
      local m = amp.nn.MultiheadAttention(4, 2, { batch_first = true }):to(device)
      local x = amp.randn(2, 3, 4, { device = device })
      local pad = amp.tensor({ { false, false, true }, { true, true, true } }, { dtype = 'bool', device = device })
      local y, w = m(x, x, x, { key_padding_mask = pad, need_weights = weights })
      y:sum():backward()
      result[k] = flat(y)
      for _, p in ipairs(m:parameters()) do
        for _, v in ipairs(flat(p.grad)) do assert.is_true(v - v == 0, 'a gradient is not finite') end
      end
      if weights then for _, v in ipairs(flat(w[2])) do assert.equal(0, v) end end
    end
    for i = 1, #result[1] do assert.is_true(math.abs(result[1][i] - result[2][i]) < 1e-5) end
  end)
end)

-- -- Large scores -------------------------------------------------------------------

describe('scores with a large common offset', function()
  local function softmax(v)
    local sum, p = 0, {}
    for i, x in ipairs(v) do p[i] = math.exp(x) sum = sum + p[i] end
    for i in ipairs(v) do p[i] = p[i] / sum end
    return p
  end
  it('have the cross entropy, and its gradient, that they have without', function()
    for _, offset in ipairs { 0, 1e4, 1e6, -1e6, 8388608 } do
      for _, smooth in ipairs { 0, 0.25 } do
        for _, dtype in ipairs { 'float32', 'float64' } do
          for _, n in ipairs { 4, 96 } do
            local base, moved = {}, {}
            for i = 1, n do base[i] = i * 5 % 4 moved[i] = base[i] + offset end
            local p = softmax(base)
            local loss, want = 0, {}
            for i = 1, n do
              local t = smooth / n + (i == 2 and 1 - smooth or 0)
              loss, want[i] = loss - t * math.log(p[i]), p[i] - t
            end
            local what = ('%d scores about %g, smoothed by %g'):format(n, offset, smooth)
            local x, label = tensor({ moved, moved }, dtype, true), amp.tensor({ 2, 2 }, { dtype = 'int64', device = device })
            local l = F.cross_entropy(x, label, { label_smoothing = smooth })
            same(what, l, loss)
            l:backward()
            same(what .. ', gradient', x.grad[1] * 2, want, 1e-4)
            local planes = tensor({ moved, moved, moved, moved, moved, moved, moved, moved }, dtype):t():reshape(1, n, 8):requires_grad_()
            l = F.cross_entropy(planes, amp.full({ 1, 8 }, 2, { dtype = 'int64', device = device }), { label_smoothing = smooth })
            same(what .. ', by columns', l, loss)
            l:backward()
            same(what .. ', gradient by columns', planes.grad[1]:t()[3] * 8, want, 1e-4)
          end
        end
      end
    end
    local x = tensor({ { 3e38, 3e38, 3e38, 3e38 } }, 'float32', true)
    local l = F.cross_entropy(x, amp.tensor({ 2 }, { dtype = 'int64', device = device }))
    l:backward()
    same('the largest scores', l, math.log(4))
    same('their gradient', x.grad, { 0.25, -0.75, 0.25, 0.25 })
  end)
  it('have the logsumexp gradient that they have without', function()
    for _, offset in ipairs { 0, 1e4, 1e6, 8388608 } do
      local v = { 1, 0, 3, 2 }
      local x = tensor({ { v[1] + offset, v[2] + offset }, { v[3] + offset, v[4] + offset } }, 'float32', true)
      same('all', amp.grad(amp.logsumexp(x), { x })[1], softmax(v))
      same('by both dimensions', amp.grad(amp.logsumexp(x, { 1, 2 }), { x })[1], softmax(v))
      local a, b = softmax { 1, 0 }, softmax { 3, 2 }
      same('by rows', amp.grad(amp.logsumexp(x, 2):sum(), { x })[1], { a, b })
    end
    walk { { 'equal and huge', function(x) return amp.logsumexp(x, 1) end, { 3e38, 3e38, 3e38, 0 }, 3e38, { 1 / 3, 1 / 3, 1 / 3, 0 } } }
  end)
end)

-- -- Ranges and singular points ---------------------------------------------------------

describe('a cosine', function()
  it('of vectors whose products leave the range is right', function()
    local x = tensor({ { 1e30, -1e30 }, { 2e30, 0 }, { 1, 2 } }, 'float32', true)
    local y = tensor({ { 2e30, 1 }, { 1e30, -1e30 }, { 1e-30, 3 } }, 'float32', true)
    local z = amp.cosine_similarity(x, y)
    same('values', z, { math.sqrt(0.5), math.sqrt(0.5), 2 / math.sqrt(5) })
    z:sum():backward()
    if device == 'cpu' then same('gradient', x.grad[1], { 0.5e-30 / math.sqrt(2), 0.5e-30 / math.sqrt(2) }, 1e-4) end
  end)
end)

describe('an extreme value that is NaN', function()
  it('is seen in the gradient', function()
    for _, op in ipairs { 'max', 'min' } do
      local x = tensor({ 1, nan, 3, nan }, 'float32', true)
      same(op, amp.grad(amp[op](x), { x })[1], { 0, 0.5, 0, 0.5 })
      x = tensor({ 1, 3, 3, 1 }, 'float32', true)
      same(op, amp.grad(amp[op](x), { x })[1], op == 'max' and { 0, 0.5, 0.5, 0 } or { 0.5, 0, 0, 0.5 })
    end
    for _, op in ipairs { 'amax', 'amin' } do
      local x = tensor({ { 1, nan }, { 3, 2 } }, 'float32', true)
      same(op, amp.grad(amp[op](x, 2):sum(), { x })[1], { { nan, nan }, op == 'amax' and { 1, 0 } or { 0, 1 } })
    end
  end)
end)

describe('a determinant', function()
  it('of huge equal elements is 0', function()
    same('float32', amp.det(tensor { { 3e38, 3e38 }, { 3e38, 3e38 } }), 0)
    same('float64', amp.det(tensor({ { 1e308, 1e308 }, { 1e308, 1e308 } }, 'float64')), 0)
  end)
  it('has its second derivative at singular matrices', function()
    local w = { { 1, 2, 3 }, { 4, -5, 6 }, { 7, 8, 2 } }
    local function second(v, weight)
      local x = tensor(v, 'float64', true)
      local g = amp.grad(amp.det(x), { x }, { create_graph = true })[1]
      return amp.grad((g * tensor(weight, 'float64')):sum(), { x })[1]
    end
    -- exactly: sums of the weights times elements
    local function right(a)
      local r = { { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 } }
      for i = 0, 2 do for j = 0, 2 do
        local i1, i2, j1, j2 = (i + 1) % 3, (i + 2) % 3, (j + 1) % 3, (j + 2) % 3
        local v = w[i + 1][j + 1]
        r[i1 + 1][j1 + 1] = r[i1 + 1][j1 + 1] + v * a[i2 + 1][j2 + 1]
        r[i2 + 1][j2 + 1] = r[i2 + 1][j2 + 1] + v * a[i1 + 1][j1 + 1]
        r[i1 + 1][j2 + 1] = r[i1 + 1][j2 + 1] - v * a[i2 + 1][j1 + 1]
        r[i2 + 1][j1 + 1] = r[i2 + 1][j1 + 1] - v * a[i1 + 1][j2 + 1]
      end end
      return r
    end
    for _, a in ipairs { { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 10 } }, { { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 9 } }, { { 1, 2, 3 }, { 2, 4, 6 }, { 3, 6, 9 } } } do
      same('3x3', second(a, w), right(a), 1e-9)
    end
    same('zeros', second({ { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 } }, w), { 0, 0, 0, 0, 0, 0, 0, 0, 0 })
    same('2x2', second({ { 1, 1 }, { 1, 1 } }, { { 1, 2 }, { 3, 5 } }), { { 5, -3 }, { -2, 1 } }, 1e-12)
  end)
end)

describe('a slope of float64', function()
  it('is not rounded to float32 on its way through lerp', function()
    local x, y = tensor({ 1, 2 }, 'float64', true), tensor({ 4, 5 }, 'float64', true)
    amp.lerp(x, y, 0.3):sum():backward()
    same('start', x.grad, { 0.7, 0.7 }, 1e-15)
    same('end', y.grad, { 0.3, 0.3 }, 1e-15)
  end)
end)

-- -- Policies -----------------------------------------------------------------------

describe('a composite of float32 ops', function()
  it('is of float32 in a region, as its parts are', function()
    for _, name in ipairs { 'gaussian_nll_loss', 'pairwise_distance', 'lp_pool1d', 'lp_pool2d', 'lp_pool3d' } do
      assert.equal('fp32', amp.policy(name), name)
    end
    amp.autocast({ dtype = 'float16', device = device }, function()
      local zero, one, tiny = tensor({ 0 }, 'float16'), tensor({ 1 }, 'float16'), tensor({ 1e-6 }, 'float32')
      local l = F.gaussian_nll_loss(zero, one, tiny)
      assert.equal('float32', l.dtype)
      same('gaussian_nll_loss', l, 0.5 * (math.log(1e-6) + 1e6), 1e-4)
      local p = F.lp_pool1d(tensor({ { { 6e4, 6e4, 6e4, 6e4 } } }, 'float16'), 2, 4)
      assert.equal('float32', p.dtype)
      same('lp_pool1d', p, 2 * flat(tensor({ 6e4 }, 'float16'))[1], 1e-3)
    end)
  end)

  it('that is banned names what to call instead', function()
    amp.autocast({ dtype = 'float16', device = device }, function()
      H.fails(function() return F.binary_cross_entropy(tensor { 0.5 }, tensor { 1 }) end, 'binary_cross_entropy_with_logits', 'enabled = false', 'float32')
    end)
  end)
end)

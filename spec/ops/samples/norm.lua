--- Normalisation, norms and distances: dropouts, layouts, and wrong calls.
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'amp.ops'

local closed, wrong = {}, {}

-- -- Dropout ---------------------------------------------------------------------

local function whole_channels(op, shape, channels)
  return function()
    local f = amp[op]
    amp.manual_seed(3)
    local x = amp.ones(shape, { requires_grad = true })
    local y = f(x, 0.25)
    local v, rest, dropped = H.values(y), x:numel() / channels, 0
    for c = 0, channels - 1 do
      local first = v[c * rest + 1]
      assert.is_true(first == 0 or math.abs(first - 4 / 3) < 1e-6, 'value ' .. first)
      if first == 0 then dropped = dropped + 1 end
      for i = 2, rest do assert.equal(first, v[c * rest + i]) end
    end
    assert.is_true(math.abs(dropped / channels - 0.25) < 0.1, dropped .. ' of ' .. channels)
    y:sum():backward()
    H.same(x.grad, y:detach())
    H.same(f(x, 0.25, false), x:detach())
    H.same(f(x, 0), x:detach())
    H.close(f(x, 1):sum(), { 0 }, H.exact)
    for _, dt in ipairs(H.floats) do assert.equal(dt, f(amp.ones(shape, { dtype = dt })).dtype) end
    H.fails(function() f(x, 1.5) end, op, '1.5')
    H.fails(function() f(amp.ones(2)) end, op, 'C')
  end
end
closed.dropout1d = whole_channels('dropout1d', { 20, 15, 3 }, 300)
closed.dropout2d = whole_channels('dropout2d', { 20, 15, 2, 3 }, 300)
closed.dropout3d = whole_channels('dropout3d', { 300, 2, 1, 3 }, 300)

local function keeps_moments(op, shape)
  return function()
    local f = amp[op]
    amp.manual_seed(4)
    local x = amp.randn(shape, { requires_grad = true })
    local y = f(x, 0.3, true)
    assert.is_true(math.abs(y:mean():item()) < 0.05, 'mean ' .. y:mean():item())
    assert.is_true(math.abs(y:var():item() - 1) < 0.1, 'variance ' .. y:var():item())
    H.same(f(x), x:detach()) -- training is off unless asked for
    H.close(f(x, 1, true):abs():sum(), { 0 }, H.exact)
    y:sum():backward()
    local alpha, p = 1.7580993408473766, 0.3
    local a = ((alpha ^ 2 * p + 1) * (1 - p)) ^ -0.5
    local g, v = H.values(x.grad), H.values(y)
    for i = 1, 50 do
      if g[i] == 0 then assert.is_true(math.abs(v[i] - alpha * a * (p - 1)) < 1e-5)
      else assert.is_true(math.abs(g[i] - a) < 1e-5) end
    end
    H.fails(function() f(x, -1, true) end, op, '-1')
  end
end
closed.alpha_dropout = keeps_moments('alpha_dropout', { 100, 60 })
closed.feature_alpha_dropout = keeps_moments('feature_alpha_dropout', { 100, 60, 1 })

-- -- Layouts and dtypes ------------------------------------------------------------

function closed.group_norm()
  -- channels inside, both directions, for every dtype
  for _, dt in ipairs(H.floats) do
    for _, channels in ipairs { 6, 132 } do
      local x = amp.randn({ 2, channels, 3, 5 }, { dtype = dt })
      local w, b = amp.rand({ channels }, { dtype = dt }), amp.rand({ channels }, { dtype = dt })
      local r = amp.randn({ 2, channels, 3, 5 }, { dtype = dt })
      local function run(t, g)
        t.requires_grad, w.requires_grad, b.requires_grad = true, true, true
        local y = amp.group_norm(t, 3, w, b)
        return y, amp.grad({ y }, { t, w, b }, { grad_outputs = { g } })
      end
      local y1, g1 = run(x:clone(), r)
      local last = { memory_format = 'channels_last' }
      local y2, g2 = run(x:contiguous(last), r:contiguous(last))
      H.close(y2, H.values(y1), 4)
      for i = 1, 3 do H.close(g2[i], H.values(g1[i]), 64) end
    end
  end
  -- a float32 weight with 16-bit data, as under autocast
  local y = amp.instance_norm(amp.ones(2, 3, 4, { dtype = 'bfloat16' }), nil, nil, amp.ones(3), amp.ones(3))
  assert.equal('bfloat16', y.dtype)
end

function closed.cdist()
  -- equal rows far from 0 are 0 apart, and give no gradient
  local x = amp.randn(40, 5) + 1000
  x.requires_grad = true
  local d = amp.cdist(x, x)
  H.close(d:diagonal(), H.values(amp.zeros(40)), H.exact)
  H.close(d, H.values(amp.cdist(x, x, { compute_mode = 'donot_use_mm_for_euclid_dist' })), 16)
  d:sum():backward()
  assert.is_true(amp.isfinite(x.grad):all():item())
end

function closed.norm()
  local x = H.sample { 2, 3 }
  H.same(amp.norm(x, 'fro'), amp.norm(x))
  H.same(amp.norm(x, 'inf'), amp.norm(x, math.huge))
  H.same(x:norm('fro', { 1, 2 }, true), x:norm(2, { 1, 2 }, true))
  H.same(amp.norm(x, { p = 'fro', dim = 1 }), amp.norm(x, 2, 1))
  H.same(amp.matrix_norm(x, 'fro'), amp.norm(x))
  H.same(amp.matrix_norm(x, '-inf'), amp.matrix_norm(x, -math.huge))
  H.fails(function() amp.norm(x, 'frob') end, 'norm', "'frob'", "'fro'")
  H.fails(function() amp.matrix_norm(x, 'spectral') end, 'matrix_norm', 'spectral', "'nuc'")
  H.fails(function() amp.norm(amp.ones(2, 2, 2), 'nuc') end, 'norm', '2x2x2')
  -- a gradient that reaches zeros is 0
  local z = amp.zeros(2, 3, { requires_grad = true })
  for _, p in ipairs { 2, 1, 3, 0.5, math.huge } do
    z.grad = nil
    z:norm(p):backward()
    H.close(z.grad, { 0, 0, 0, 0, 0, 0 }, H.exact)
  end
end

-- -- Wrong calls -------------------------------------------------------------------

local function float(dtype, ...) return { dtype = dtype, ... } end

wrong.norm = { { { { 0, 3 } }, { p = math.huge }, { '0', 'inf' } }, { { { 2 } }, { p = 0 / 0 }, { 'p' } },
  { { { 2 } }, { dtype = 'int64' }, { 'int64' } }, { { { 2, 2 } }, { dim = { 1, 1 } }, { '1', 'twice' } } }
wrong.vector_norm = { { { { 3, 0 } }, { ord = -1, dim = 2 }, { '0', '-1' } } }
wrong.matrix_norm = { { { { 3 } }, {}, { '3' } }, { { { 2, 3 } }, { ord = 3 }, { '3' } }, { { { 2, 3 } }, { dim = { 1, 1 } }, { '1', 'twice' } },
  { { { 2, 3 } }, { dim = { 1 } }, { '1', '2' } },
  { { { 0, 3 } }, { ord = math.huge }, { '0' } } }
wrong.renorm = { { { { 3 } }, { p = 2, dim = 1, maxnorm = 1 }, { '3' } }, { { { 2, 3 } }, { p = 0, dim = 1, maxnorm = 1 }, { 'p', '0' } },
  { { { 2, 3 } }, { p = 2, dim = 1, maxnorm = -1 }, { 'maxnorm', '-1' } } }
wrong.dist = { { { { 2, 3 }, { 2, 4 } }, {}, { '2x3', '2x4' } } }
wrong.pairwise_distance = { { { { 2, 3 }, { 2, 4 } }, {}, { '2x3', '2x4' } }, { { {}, {} }, {}, { 'scalars' } } }
wrong.cosine_similarity = { { { { 2, 3 }, { 2, 4 } }, {}, { '2x3', '2x4' } } }
wrong.cdist = { { { { 2, 3 }, { 2, 4 } }, {}, { '2x3', '2x4', '3', '4' } }, { { { 3 }, { 2, 3 } }, {}, { 'x1', '3' } },
  { { { 2, 2, 3 }, { 3, 2, 3 } }, {}, { '2x2x3', '3x2x3' } },
  { { { 2, 3 }, float('float64', 2, 3) }, {}, { 'float32', 'float64' } }, { { { 2, 3 }, { 2, 3 } }, { p = -1 }, { 'p', '-1' } },
  { { { 2, 3 }, { 2, 3 } }, { compute_mode = 'mm' }, { 'compute_mode', 'mm' } } }
wrong.pdist = { { { { 3 } }, {}, { '3' } }, { { { 3, 2 } }, { p = -2 }, { '-2' } } }
wrong.group_norm = { { { { 2, 6, 3 }, false, false }, { num_groups = 4 }, { '6', '4' } },
  { { { 2, 6, 3 }, false, false }, { num_groups = 0 }, { 'num_groups', '0' } }, { { { 3 }, false, false }, { num_groups = 1 }, { '3' } },
  { { { 2, 6, 3 }, { 4 }, false }, { num_groups = 2 }, { 'weight', '4', '6' } },
  { { { 2, 6, 3 }, false, { 1 } }, { num_groups = 2 }, { 'bias', '1', '6' } },
  { { { 2, 6, 3 }, false, false }, { num_groups = 2, eps = -1 }, { 'eps', '-1' } } }
wrong.rms_norm = { { { { 2, 3 }, false }, { shape = { 4 } }, { '2x3', '4' } }, { { { 2, 3 }, { 2 } }, { shape = { 3 } }, { 'weight', '2', '3' } },
  { { { 2, 3 }, false }, { shape = { 3 }, eps = -1 }, { 'eps', '-1' } } }
wrong.local_response_norm = { { { { 2, 3 } }, { size = 2 }, { '2x3' } }, { { { 2, 3, 4 } }, { size = 0 }, { 'size', '0' } } }
wrong.instance_norm = { { { { 3 }, false, false, false, false }, {}, { '3' } },
  { { { 2, 3, 4 }, { 3 }, false, false, false }, {}, { 'running_mean', 'running_var' } },
  { { { 2, 3, 4 }, false, false, false, false }, { use_input_stats = false }, { 'running' } },
  { { { 2, 3, 4 }, false, false, { 4 }, false }, {}, { 'weight', '4', '3' } }, { { { 2, 3, 1 }, false, false, false, false }, {}, { '2x3x1' } },
  { { { 2, 3 }, false, false, false, false }, {}, { '2x3' } } }
-- -- Batch norm and what follows it -------------------------------------------------

-- relu(batch_norm(x) + residual) by the separate ops, in double
local function followed(x, r, w, b, relu, training, running)
  local y = amp.batch_norm(x, running and running[1], running and running[2], w, b, training, 0.1, 1e-5)
  if r then y = y + r end
  return relu and amp.relu(y) or y
end

function closed.batch_norm_act()
  local act = ops.get 'batch_norm_act'
  for _, shape in ipairs { { 4, 3, 5 }, { 6, 8 }, { 2, 8, 4, 4 } } do
    for _, dt in ipairs { 'float64', 'float32', 'float16' } do
      for case = 0, 7 do
        local relu, joined, training = case % 2 == 0, case % 4 < 2, case < 4
        amp.manual_seed(case)
        local function leaf(...) return amp.randn(...):to(dt):requires_grad_(true) end
        local x, r, w, b = leaf(shape), joined and leaf(shape) or nil, leaf(shape[2]), leaf(shape[2])
        local g = amp.randn(shape):to(dt)
        local stats = { amp.randn(shape[2]), amp.rand(shape[2]):add(0.5) }
        local mine, count = { stats[1]:clone(), stats[2]:clone() }, amp.zeros({}, { dtype = 'int64' })
        local leaves = { x, w, b, r }
        local want = followed(x, r, w, b, relu, training, stats)
        local dwant = amp.grad({ want }, leaves, { grad_outputs = { g } })
        local got = act(x, r, mine[1], mine[2], w, b, count, relu, training, 0.1, 1e-5)
        local dgot = amp.grad({ got }, leaves, { grad_outputs = { g } })
        H.same(got, want)
        for i = 1, #leaves do H.same(dgot[i], dwant[i]) end
        for i = 1, 2 do H.same(mine[i], stats[i]) end
        assert.equal(training and 1 or 0, count:item())
        if dt == 'float64' then
          local function second(f)
            local d = amp.grad({ f() }, leaves, { grad_outputs = { g }, create_graph = true })
            local sum = (d[1] ^ 2):sum() + (d[2] ^ 2):sum()
            return amp.grad({ sum }, { x, w })
          end
          local a = second(function() return act(x, r, stats[1], stats[2], w, b, nil, relu, training, 0, 1e-5) end)
          local c = second(function() return followed(x, r, w, b, relu, training, { stats[1]:clone(), stats[2]:clone() }) end)
          for i = 1, 2 do H.close(a[i], H.values(c[i]), { rtol = 1e-9, atol = 1e-9 }) end
        end
      end
    end
  end
  local x = amp.randn(4, 3)
  H.fails(function() act(x, amp.randn(4, 2), nil, nil, nil, nil, nil, true, true) end, 'residual', '4x2')
  H.fails(function() act(x, amp.randn(4, 3):to('float64'), nil, nil, nil, nil, nil, true, true) end, 'residual', 'float64')
  H.fails(function() act(x, nil, nil, nil, amp.ones(4)) end, 'weight')
end

-- Its first derivative: what batch_norm_act gives is checked above
function closed.batch_norm_act_backward()
  local function back(inp, residual)
    return unpack(require('spec.ops.op_call').raw('batch_norm_act_backward', inp, { training = true, residual = residual }))
  end
  local x, g = amp.randn(5, 3), amp.randn(5, 3)
  local y, mean = amp.relu(x), x:mean { 1 }
  local rstd = 1 / (x:var({ 1 }, { correction = 0 }) + 1e-5):sqrt()
  local dx, dw, db = back({ g, x, y, false, false, mean, rstd }, true)
  local dr = g * (y:gt(0)):to('float32')
  H.close(db, H.values(dr:sum { 1 }), { rtol = 1e-5, atol = 1e-5 })
  H.close(dw, H.values((dr * (x - mean) * rstd):sum { 1 }), { rtol = 1e-5, atol = 1e-5 })
  H.close(dx:sum { 1 }, { 0, 0, 0 }, { rtol = 0, atol = 1e-4 })
  H.fails(function() back({ g, x, false, false, false, mean, rstd }, true) end, 'result')
end

wrong.sync_batch_norm = { { { { 2, 3 }, { 4 }, { 4 }, false, false }, {}, { '4', '3' } },
  { { { 2, 3 }, false, false, false, false }, {}, { 'running' } } }

local running = { running_mean = true, running_var = true }
return { closed = closed, wrong = wrong, constant = { instance_norm = running, sync_batch_norm = running } }

--- nn: losses as modules against PyTorch: values, gradients, printing, labels of any integer dtype, wrong arguments.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn = amp.nn

describe('losses as modules', function()
  for _, c in ipairs(H.fixture 'layers_loss.txt') do
    it('agree with PyTorch: ' .. c.new, function()
      local m = loadstring('local amp, nn = ... return ' .. c.new)(amp, nn)
      assert.equal(c.text, tostring(m))
      for _, dtype in ipairs { 'float64', 'float32' } do
        m:to(dtype)
        local args = {}
        for k, f in ipairs(c.inp) do
          args[k] = H.tensor(f, dtype)
          if f.d == 'float64' and c.grad[k] then args[k].requires_grad = true end
        end
        local x = c.softmax and amp.log_softmax(args[1], -1) or args[1]
        local out = m(x, unpack(args, 2))
        local tol = dtype == 'float64' and { rtol = 1e-10, atol = 1e-12 } or { rtol = 1e-5, atol = 1e-5 }
        H.close(out, c.out, tol)
        local w = {}
        for k = 0, out:numel() - 1 do w[k + 1] = 0.3 + ((k * 7) % 11) / 10 end
        out:backward(H.make(w, H.shape(out), dtype))
        for k, f in ipairs(c.grad) do
          if f then H.close(args[k].grad, f, tol, ('%s: gradient of input %d'):format(dtype, k)) end
        end
      end
    end)
  end

  it('take labels of any integer dtype, and name those out of range', function()
    local x = H.sample { 2, 3 }
    for _, dtype in ipairs { 'int64', 'int32', 'int16', 'int8', 'uint8' } do
      local y = amp.tensor({ 3, 1 }, { dtype = dtype })
      H.same(nn.MultiMarginLoss()(x, y), nn.MultiMarginLoss()(x, y:long()))
      H.same(nn.NLLLoss()(x, y), nn.NLLLoss()(x, y:long()))
      local many = amp.tensor({ { 3, 1, 0 }, { 2, 0, 0 } }, { dtype = dtype })
      H.same(nn.MultiLabelMarginLoss()(x, many), nn.MultiLabelMarginLoss()(x, many:long()))
      local z = amp.log_softmax(H.sample { 4, 2, 3 }, 3)
      local t, n = amp.tensor({ { 3, 2 }, { 2, 3 } }, { dtype = dtype }), amp.tensor({ 4, 3 }, { dtype = dtype })
      local k = amp.tensor({ 2, 1 }, { dtype = dtype })
      H.same(nn.CTCLoss()(z, t, n, k), amp.ctc_loss(z, { { 3, 2 }, { 2, 3 } }, { 4, 3 }, { 2, 1 }))
      H.same(nn.CTCLoss()(z, t, n, k), amp.ctc_loss(z, { 3, 2, 2 }, { 4, 3 }, { 2, 1 }))
    end
    H.fails_here(function() nn.NLLLoss()(x, amp.tensor({ 1, 4 }, { dtype = 'int8' })) end, 'label 4', 'row 2', '1..3')
    H.fails_here(function() nn.MultiMarginLoss()(x, amp.tensor({ 1, -100 }, { dtype = 'int64' })) end, 'label -100', 'row 2')
    local wrong = amp.tensor({ { 1, 0, 0 }, { 2, 5, 0 } }, { dtype = 'int64' })
    H.fails_here(function() nn.MultiLabelMarginLoss()(x, wrong) end, 'label 5', 'row 2', '1..3')
    H.fails_here(function() nn.CTCLoss()(H.sample { 4, 2, 3 }, { { 2, 2 }, { 2, 4 } }, { 4, 4 }, { 2, 2 }) end, 'label 4', 'row 2', 'place 2')
    H.fails_here(function() amp.ctc_loss(H.sample { 4, 2, 3 }, { { 2, 2.5 } }, { 4, 4 }, { 2, 2 }) end, 'targets', '2.5')
    H.fails_here(function() amp.ctc_loss(H.sample { 4, 2, 3 }, { 2, 2 }, 'x', { 2, 2 }) end, 'input_lengths', 'x')
  end)

  it('of sequences run in 16-bit regions in float32, and in the dtype of their input outside', function()
    local x = amp.randn(5, 2, 3, { requires_grad = true })
    local function loss(y) return amp.ctc_loss(y, { { 2, 3 }, { 3, 3 } }, { 5, 5 }, { 2, 2 }) end
    local l = amp.autocast({ dtype = 'bfloat16' }, function() return loss(amp.log_softmax(x, 3)) end)
    assert.equal('float32', l.dtype)
    l:backward()
    assert.equal(1, amp.isfinite(x.grad):all():item() and 1)
    assert.equal('float16', loss(amp.log_softmax(x:half(), 3)).dtype)
  end)

  it('that have a first derivative only say so', function()
    local x = amp.randn(5, 1, 3, { requires_grad = true })
    local l = amp.ctc_loss(amp.log_softmax(x, 3), { { 2, 3 } }, { 5 }, { 2 })
    H.fails(function() amp.grad({ l }, { x }, { create_graph = true })[1]:sum():backward() end, 'ctc', 'differentiated again')
  end)

  it('refuse wrong options', function()
    for _, w in ipairs {
      { 'nn.SmoothL1Loss{beta = -1}', 'beta', '-1' }, { 'nn.HuberLoss{delta = 0}', 'delta', '0' }, { "nn.KLDivLoss{reduction = 'avg'}", 'batchmean', 'avg' },
      { "nn.L1Loss{reduction = 'batchmean'}", 'batchmean', 'mean' }, { 'nn.KLDivLoss{log_target = 1}', 'log_target', '1' },
      { 'nn.CTCLoss{blank = 0}', 'blank', '0' },
      { 'nn.CTCLoss{zero_infinite = true}', 'zero_infinite', "'zero_infinity'" }, { 'nn.MultiMarginLoss{p = 1.5}', 'p', '1.5' },
      { 'nn.GaussianNLLLoss{eps = 0}', 'eps', '0' }, { 'nn.TripletMarginLoss{margin = 0}', 'margin', '0' }, { "nn.TripletMarginLoss{swap = 'x'}", 'swap', 'x' },
      { 'nn.TripletMarginWithDistanceLoss{distance_function = 3}', 'distance_function', '3' }, { "nn.PoissonNLLLoss{full = 0}", 'full', '0' },
      { "nn.HingeEmbeddingLoss{margin = 'x'}", 'margin', 'x' },
    } do
      H.fails(loadstring('local nn = ... return function() return ' .. w[1] .. ' end')(nn), unpack(w, 2))
    end
    local x = amp.ones(2, 2)
    H.fails_here(function() amp.triplet_margin_with_distance_loss(x, x, x, { distance_function = function() end }) end, 'tensor')
    H.fails_here(function() amp.triplet_margin_with_distance_loss(x, 1, x) end, '2', '1')
  end)
end)

describe('initialisation', function()
  local init = nn.init
  local function moments(t)
    return t:double():mean():item(), t:double():std():item()
  end
  it('gives orthonormal rows or columns, times a gain', function()
    for _, shape in ipairs { { 3, 5 }, { 40, 33 }, { 5, 3, 2 }, { 1, 4 } } do
      for _, dtype in ipairs { 'float32', 'float64' } do
        local t = amp.empty(shape, { dtype = dtype })
        assert.is_true(init.orthogonal_(t, 2) == t)
        local m = t:reshape { shape[1], t:numel() / shape[1] }
        if m:size(1) > m:size(2) then m = m:t() end
        local off = (amp.matmul(m, m:t()) - amp.eye(m:size(1), { dtype = dtype }) * 4):abs():max():item()
        assert.is_true(off < (dtype == 'float64' and 1e-13 or 1e-5), 'off by ' .. off)
      end
    end
    H.fails_here(function() init.orthogonal_(amp.empty(3)) end, '2 dimensions', '3')
  end)
  it('fills identities', function()
    H.close(init.eye_(amp.empty(2, 3)), { 1, 0, 0, 0, 1, 0 }, H.exact)
    H.close(init.dirac_(amp.empty(2, 2, 3)), { 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0 }, H.exact)
    local x = H.sample { 1, 4, 5, 5 }
    H.same(amp.conv2d(x, init.dirac_(amp.empty(4, 2, 3, 3), 2), { padding = 1, groups = 2 }), x)
    H.fails_here(function() init.eye_(amp.empty(3)) end, 'matrix', '3')
    H.fails_here(function() init.dirac_(amp.empty(3, 2)) end, '3x2')
    H.fails_here(function() init.dirac_(amp.empty(3, 2, 1), 2) end, 'groups 2', '3x2x1')
  end)
  it('draws truncated normals', function()
    amp.manual_seed(3)
    for _, dtype in ipairs { 'float32', 'float64', 'bfloat16' } do
      local t = init.trunc_normal_(amp.empty(20000, { dtype = dtype }), { mean = 1, std = 2, a = 0, b = 2.5 })
      local mean, std = moments(t)
      assert.is_true(t:min():item() >= 0 and t:max():item() <= 2.5)
      assert.is_true(math.abs(mean - 1.2163) < 0.02 and math.abs(std - 0.7043) < 0.02, ('%s: %g, %g'):format(dtype, mean, std))
    end
    local mean, std = moments(init.trunc_normal_(amp.empty(20000)))
    assert.is_true(math.abs(mean) < 0.02 and math.abs(std - 0.8796) < 0.02)
    local tail = init.trunc_normal_(amp.empty(2000), 0, 1, 5, 6)
    assert.is_true(tail:min():item() >= 5 and tail:max():item() <= 6 and math.abs(tail:mean():item() - 5.1842) < 0.03)
    H.close(init.trunc_normal_(amp.empty(2), 0, 1, 60, 61), { 60, 60 }, H.exact)
    H.fails_here(function() init.trunc_normal_(amp.empty(2), 0, 1, 3, 2) end, 'a = 3', 'b = 2')
    H.fails_here(function() init.trunc_normal_(amp.empty(2), { std = -1 }) end, 'std', '-1')
  end)
  it('fills sparse matrices', function()
    local t = init.sparse_(amp.empty(10, 7), 0.25, 1)
    for c = 1, 7 do assert.equal(3, t[{ {}, c }]:eq(0):sum():item()) end
    H.fails_here(function() init.sparse_(amp.empty(3, 3)) end, 'sparsity')
    H.fails_here(function() init.sparse_(amp.empty(3, 3), 1.5) end, 'sparsity', '1.5')
  end)
  it('takes arguments in their places or by name', function()
    amp.manual_seed(1)
    local a = init.kaiming_uniform_(amp.empty(4, 5), 0.5, 'fan_out', 'leaky_relu')
    amp.manual_seed(1)
    H.same(init.kaiming_uniform_(amp.empty(4, 5), { a = 0.5, mode = 'fan_out' }), a)
    assert.equal(1, init.calculate_gain 'conv_transpose2d')
    H.fails_here(function() init.calculate_gain 'rleu' end, 'rleu', "'relu'")
    H.fails_here(function() init.xavier_normal_(amp.empty(2, 2), 'x') end, 'gain', 'x')
    H.fails_here(function() init.kaiming_normal_(amp.empty(2, 2), { mode = 'fan' }) end, 'fan_in', 'fan')
  end)
end)

describe('nn.utils', function()
  it('takes norms of gradients, or of given tensors, and clips by a known norm', function()
    local a, b = amp.zeros(2, { requires_grad = true }), amp.zeros(1, { requires_grad = true })
    a.grad, b.grad = amp.tensor { 3, 0 }, amp.tensor { 4 }
    H.close(nn.utils.get_total_norm { a, b }, { 5 })
    H.close(nn.utils.get_total_norm({ a, b }, math.huge), { 4 })
    H.close(nn.utils.get_total_norm { amp.tensor { 3, 0 }, amp.tensor { 4 } }, { 5 })
    H.close(nn.utils.get_total_norm({ amp.tensor { 3, -1 }, amp.tensor { 4 } }, 1), { 8 })
    nn.utils.clip_grads_with_norm_({ a, b }, 10, amp.tensor(5))
    H.close(a.grad, { 3, 0 })
    nn.utils.clip_grads_with_norm_({ a, b }, 1, nn.utils.get_total_norm { a, b })
    H.close(a.grad, { 0.6, 0 })
    H.close(b.grad, { 0.8 })
    H.fails_here(function() nn.utils.get_total_norm({ a }, -1) end, 'norm_type', '-1')
    a.grad, b.grad = amp.full_like(a, 4), nil
    local c = a:detach():clone()
    c.requires_grad = true
    c.grad = a.grad -- one gradient of two parameters
    nn.utils.clip_grads_with_norm_({ a, c }, 1, 2)
    H.close(a.grad, amp.full_like(a, 2))
    H.fails_here(function() nn.utils.clip_grads_with_norm_({ a }, 1, 'x') end, 'total_norm', 'x')
  end)
end)

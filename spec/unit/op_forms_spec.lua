--- Forms of calls beside the plain one: in-place composites, empty option tables, layouts of whole
-- networks, options that are not offered, schedules that multiply.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn, optim = amp.nn, amp.optim

describe('in-place forms of composites', function()
  it('write the receiver and give it back', function()
    for name, args in pairs { clamp_min = { 0 }, clamp_max = { 0 }, relu6 = {}, tanhshrink = {}, sinc = {}, logit = { 0.1 } } do
      local x = H.sample({ 2, 3 })
      local want, before = amp[name](x, unpack(args)), H.version(x)
      local back = x[name .. '_'](x, unpack(args))
      assert.is_true(back == x)
      assert.is_true(H.version(x) > before)
      H.close(x, want, H.exact, name)
    end
  end)
  it('are recorded, and refused on leaves', function()
    local w = H.make({ -1, 2 }, { 2 })
    w.requires_grad = true
    local y = w * 3
    y:clamp_min_(0)
    y:sum():backward()
    H.close(w.grad, { 0, 3 }, H.exact)
    H.fails(function() w:clamp_min_(0) end, 'leaf')
  end)
  it('refuse what does not fit the receiver', function()
    H.fails(function() return H.make({ 1, 2 }, { 2 }, 'int64'):clamp_min_(0.5) end, 'clamp_min_', 'float32', 'int64')
  end)
  it('addcmul_, addcdiv_ and lerp_ read the receiver where it is an operand too', function()
    local a, b = H.make({ 1, 2 }, { 2 }), H.make({ 3, 4 }, { 2 })
    H.close(a:clone():addcmul_(b, b, { value = 2 }), { 19, 34 }, H.exact)
    local x = a:clone()
    H.close(x:addcmul_(x, x), { 2, 6 }, H.exact)
    H.close(a:clone():addcdiv_(b, a), { 4, 4 }, H.exact)
    H.close(a:clone():lerp_(b, 0.5), { 2, 3 }, H.exact)
    H.fails(function() return a:addcmul_(H.sample { 2, 2 }, b) end, 'addcmul_', '2x2')
    H.fails(function() return amp.addcmul(H.make({ 1 }, { 1 }, 'int64'), H.make({ 1 }, { 1 }, 'int64'), H.make({ 1 }, { 1 }, 'int64'), { value = 0.5 }) end,
      'addcmul', '0.5')
  end)
end)

describe('an empty table last', function()
  it('is options where no list of any length may stand', function()
    local x, w = H.sample { 1, 1, 3, 3 }, H.sample { 1, 1, 2, 2 }
    H.same(amp.conv2d(x, w, nil, {}), amp.conv2d(x, w))
    H.same(amp.max_pool2d(x, 2, {}), amp.max_pool2d(x, 2))
    H.fails(function() return amp.max_pool2d(x, {}) end, 'kernel_size', 'missing')
  end)
end)

describe('values that cannot be, found before a kernel runs:', function()
  it('draws', function()
    H.fails(function() amp.empty(2):uniform_(1, 0) end, 'uniform_', 'from 1', 'to 0')
    H.fails(function() amp.empty(2):normal_(0, -1) end, 'normal_', '-1')
    H.fails(function() amp.empty(2):bernoulli_(1.5) end, 'bernoulli_', '1.5')
    H.fails(function() amp.empty(2):exponential_(-2) end, 'exponential_', '-2')
  end)
  it('factors of integers', function()
    local i = H.make({ 1, 2 }, { 2 }, 'int64')
    for _, alpha in ipairs { 0.5, 1e30, 0 / 0 } do
      H.fails(function() return amp.add(i, i, { alpha = alpha }) end, 'add', 'alpha', 'integral')
      H.fails(function() return amp.index_add(i, 1, i, i, { alpha = alpha }) end, 'index_add', 'alpha', 'integral')
    end
    H.fails(function() return H.make({ 1 }, { 1 }, 'int8'):clamp(300, 400) end, 'clamp', '300', 'int8')
  end)
end)

describe('net:to{memory_format = ...}', function()
  it('lays out weights of four dimensions, trains alike, and names what it does not know', function()
    local losses = {}
    for _, format in ipairs { 'contiguous', 'channels_last' } do
      amp.manual_seed(1)
      local net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 3 * 3, 2))
      local x, y = amp.randn(2, 3, 5, 5), amp.randint(1, 3, { 2 })
      local opt = optim.SGD(net:parameters(), { lr = 0.1 })
      net:to { memory_format = format }
      assert.equal(format == 'channels_last', net[1].weight:is_contiguous { memory_format = 'channels_last' })
      assert.is_true(net[3].weight:is_contiguous())
      for i = 1, 3 do
        local loss = nn.functional.cross_entropy(net(x:contiguous(format)), y)
        loss:backward()
        opt:step():clear_grad()
        losses[i] = losses[i] or loss:item()
        assert.is_true(math.abs(losses[i] - loss:item()) < 1e-5)
      end
    end
    local net = nn.Linear(2, 2)
    H.fails_here(function() net:to { memory_format = 'rows' } end, 'memory_format', 'rows')
    H.fails_here(function() net:to { layout = 'x' } end, 'layout', 'memory_format')
    assert.equal('float64', net:to { dtype = 'float64', device = 'cpu' }.weight.dtype)
  end)
end)

describe('a tensor given twice to one call', function()
  it('is cast once in a region', function()
    local o = H.sample { 4, 4 }
    local mha = nn.MultiheadAttention(4, 2)
    local function casts(f)
      local before = amp.counters().casts
      amp.autocast({ dtype = 'bfloat16' }, f)
      return amp.counters().casts - before
    end
    local x = H.sample { 3, 2, 4 }
    mha(x, x, x) -- plans
    amp.clear_autocast_cache()
    local one = casts(function() return mha(x, x, x) end)
    amp.clear_autocast_cache()
    local three = casts(function() return mha(x, x:clone(), x:clone()) end)
    assert.equal(2, three - one)
    assert.equal(1, casts(function() return amp.matmul(o, o) end))
    local y = H.sample { 4, 4 }
    y.requires_grad = true
    local z = y * 1
    amp.autocast({ dtype = 'bfloat16' }, function() return amp.matmul(z, z) end):sum():backward()
    local twice = y.grad
    y.grad = nil
    amp.autocast({ dtype = 'bfloat16' }, function() return amp.matmul(y * 1, y * 1) end):sum():backward()
    H.close(twice, y.grad, { rtol = 2e-2, atol = 2e-2 })
  end)
end)

describe('draws among functions', function()
  local F = nn.functional
  it('rrelu: slopes between the bounds in training, their mean otherwise', function()
    local x = H.make({ -8, 8, -4, 0 }, { 4 })
    H.close(F.rrelu(x), amp.leaky_relu(x, (1 / 8 + 1 / 3) / 2), H.exact)
    local layer = nn.RReLU(0.25, 0.5)
    local seen = {}
    for _ = 1, 20 do
      local v = H.values(layer(x))
      assert.is_true(v[1] <= -2 and v[1] >= -4 and v[2] == 8 and v[4] == 0)
      seen[v[1]] = true
    end
    assert.is_true(next(seen, next(seen)) ~= nil, 'drawn anew each time')
    H.close(layer:eval()(x), { -3, 8, -1.5, 0 }, H.exact)
    H.fails_here(function() F.rrelu(x, 0.5, 0.25) end, '0.5', '0.25')
  end)
  it('gumbel_softmax: rows add up to 1, hard ones are one-hot, categories come by weight', function()
    amp.manual_seed(1)
    local logits = amp.tensor({ 0, math.log(3) }):expand({ 2000, 2 }):clone()
    logits.requires_grad = true
    local soft = F.gumbel_softmax(logits, 0.5)
    H.close(soft:detach():sum(2), amp.ones(2000), { rtol = 0, atol = 1e-5 })
    local hard = F.gumbel_softmax(logits, { hard = true })
    assert.is_true(math.abs(hard:detach():mean(1)[2]:item() - 0.75) < 0.04)
    assert.is_true(amp.logical_or(hard:detach():sub(1):abs():lt(1e-6), hard:detach():abs():lt(1e-6)):all():item())
    hard:select(2, 1):sum():backward()
    assert.is_true(logits.grad:abs():sum():item() > 0)
    H.fails_here(function() F.gumbel_softmax(logits, 0) end, 'tau', '0')
  end)
end)

describe('what is not offered', function()
  it('says so and what to do instead', function()
    H.fails_here(function() nn.Embedding(3, 4, { sparse = true }) end, 'sparse', 'dense')
    H.fails_here(function() nn.EmbeddingBag(3, 4, { scale_grad_by_freq = true }) end, 'scale_grad_by_freq', 'divide')
    H.fails_here(function() optim.LAMB({ amp.ones(2, { requires_grad = true }) }, { max_grad_norm = 1 }) end, 'max_grad_norm', 'clip_grad_norm_')
  end)
end)

describe('schedules that multiply', function()
  local s = optim.lr_scheduler
  local function sgd(lr) return optim.SGD({ amp.ones(2, { requires_grad = true }) }, { lr = lr }) end

  it('MultiplicativeLR asks for each step once, and a state goes on from where it was', function()
    local asked, opt = {}, sgd(1)
    local function factor(n)
      asked[#asked + 1] = n
      return n / 2
    end
    local sched = s.MultiplicativeLR(opt, factor)
    opt:step()
    for _ = 1, 3 do sched:step() end
    assert.same({ 1, 2, 3 }, asked)
    assert.equal(0.5 * 1 * 1.5, opt.param_groups[1].lr)
    local other = sgd(1)
    local again = s.MultiplicativeLR(other, { factor }):load_state_dict(sched:state_dict())
    other:step()
    again:step()
    assert.equal(0.75 * 2, other.param_groups[1].lr)
    H.fails_here(function() s.MultiplicativeLR(opt, { factor, factor }) end, '2 functions', '1 parameter group')
    H.fails_here(function() s.MultiplicativeLR(opt, 3) end, 'lr_lambda', '3')
  end)

  it('ChainedScheduler steps all of its schedules', function()
    local opt = sgd(1)
    local sched = s.ChainedScheduler { s.MultiplicativeLR(opt, function() return 0.5 end), s.ExponentialLR(opt, 0.9) }
    opt:step()
    for _ = 1, 3 do sched:step() end
    assert.is_true(math.abs(sched:get_last_lr()[1] - 0.45 ^ 3) < 1e-15)
    local state = sched:state_dict()
    sched:step():load_state_dict(state)
    assert.is_true(math.abs(opt.param_groups[1].lr - 0.45 ^ 3) < 1e-15)
    H.fails_here(function() s.ChainedScheduler {} end, 'list of schedulers')
    H.fails_here(function() s.ChainedScheduler { s.ExponentialLR(opt, 0.9), s.ExponentialLR(sgd(1), 0.9) } end, 'scheduler 2', 'another optimizer')
    H.fails_here(function() sched:load_state_dict { schedulers = {} } end, '2 schedulers', '0')
  end)
end)

describe('16-bit results are rounded once', function()
  local eps = { float16 = 2 ^ -10, bfloat16 = 2 ^ -7 }
  -- fn on 16-bit values against the same in float64, and its gradients
  local function same(name, fn, ...)
    for dtype, ulp in pairs(eps) do
      local low, wide = {}, {}
      for i, v in ipairs { ... } do
        low[i] = amp.tensor(v, { dtype = dtype })
        wide[i] = low[i]:double()
        low[i].requires_grad, wide[i].requires_grad = true, true
      end
      local y, want = fn(unpack(low)), fn(unpack(wide))
      assert.equal(dtype, y.dtype)
      local function close(a, b, what)
        local text = ('%s, %s, %s: %s, expected %s'):format(name, dtype, what, tostring(a), tostring(b))
        assert.is_true(a:detach():double():allclose(b:detach():to(dtype):double(), { rtol = 2 * ulp, atol = 1e-7 }), text)
      end
      close(y, want, 'result')
      y:sum():backward()
      want:sum():backward()
      for i = 1, #low do close(low[i].grad, wide[i].grad, 'gradient ' .. i) end
    end
  end
  it('where squares overflow or vanish on the way', function()
    same('std', amp.std, { 300, -400, 500 })
    same('std of rows', function(x) return x:std { dim = 2, keepdim = true } end, { { 300, -400, 500 }, { 1, 2, 3 } })
    for _, name in ipairs { 'atan', 'asinh', 'softsign' } do same(name, amp[name], { 300, -500, 2, 0.5, -1e-3 }) end
    same('acosh', amp.acosh, { 300, 2, 1.5 })
    same('atan2', amp.atan2, { 300, 1e-4, 2, -1e3 }, { 300, 1e-4, -3, 20 })
  end)
  it('where close values are subtracted', function()
    same('logaddexp', amp.logaddexp, { 300, 1, -2 }, { 299, 2, -2 })
    same('glu', amp.glu, { 2, 300, -9, -12 })
    same('logsumexp', function(x) return x:logsumexp(1) end, { 300, 301, 299 })
    same('logsumexp of all', function(x) return x:logsumexp() end, { { 300, 301 }, { -20, 299 } })
    for dtype, ulp in pairs(eps) do
      local x = amp.tensor({ 0.05, -0.2, 3 }, { dtype = dtype })
      assert.is_true(amp.tanhshrink(x):double():allclose(amp.tanhshrink(x:double()), { rtol = ulp, atol = 0 }))
    end
  end)
  it('the farthest coordinate gets the gradient though the distance was rounded', function()
    local far = { { 0.66243, -0.28849 }, { -0.34514, -0.95772 } }
    same('cdist', function(a, b) return amp.cdist(a, b, { p = math.huge }) end, far, { { -0.82813, -0.71875 }, { 2.20313, 0.32812 } })
    same('pdist', function(a) return amp.pdist(a, { p = math.huge }) end, { { 0.66243, -0.28849 }, { -0.34514, 1.5514 }, { 2.3437, 0.0123 } })
  end)
end)

describe('derivatives at corners', function()
  it('are 0 where atan2 has no direction and where a hinge bends', function()
    local function leaf(v) return amp.tensor(v, { requires_grad = true }) end
    local a, b = leaf { 0, 0, 3 }, leaf { 0, -1, 4 }
    amp.atan2(a, b):sum():backward()
    H.close(a.grad, { 0, -1, 4 / 25 })
    H.close(b.grad, { 0, 0, -3 / 25 })
    local x = leaf { 1, 0.5, 2 }
    amp.hinge_embedding_loss(x, -amp.ones(3), { reduction = 'sum' }):backward()
    H.close(x.grad, { 0, -1, 0 })
  end)
end)

describe('arguments of the wrong type', function()
  local junk = { true, 'x', print, { 'x' }, coroutine.create(print), io.stdout }
  it('to layers: an error that names the layer and what it got, at the caller\'s line', function()
    for _, v in ipairs(junk) do
      local text = type(v) == 'string' and 'x' or ''
      for _, n in ipairs { 1, 2, 3 } do
        for _, name in ipairs { 'Conv%dd', 'ConvTranspose%dd' } do
          local class = nn[name:format(n)]
          H.fails_here(function() class(v, 2, 1) end, 'in_channels', text)
          H.fails_here(function() class(2, v, 1) end, 'out_channels', text)
        end
      end
      if type(v) ~= 'table' then H.fails_here(function() nn.ModuleDict(v) end, 'ModuleDict', text) end
      for _, m in ipairs { nn.BatchNorm1d(2), nn.BatchNorm2d(2), nn.SyncBatchNorm(2), nn.InstanceNorm(2), nn.InstanceNorm2d(2), nn.Flatten(),
        nn.EmbeddingBag(3, 2), nn.EmbeddingBag(3, 2, { max_norm = 1 }), nn.Embedding(3, 2, { max_norm = 1 }) } do
        H.fails_here(function() m(v) end, 'tensor', text)
      end
    end
    H.fails_here(function() nn.BatchNorm2d(2)() end, 'BatchNorm2d', 'tensor', 'nil')
  end)
  it('to schedules and wrappers', function()
    local opt = optim.SGD({ amp.ones(1, { requires_grad = true }) }, { lr = 1, momentum = 0.9 })
    local s = optim.lr_scheduler
    H.fails_here(function() s.CyclicLR(opt, { 'x' }, 1) end, 'base_lr', "'x'")
    H.fails_here(function() s.CyclicLR(opt, 0.1, { true }) end, 'max_lr', 'true')
    H.fails_here(function() s.OneCycleLR(opt, { 'x' }, 10) end, 'max_lr', "'x'")
    H.fails_here(function() s.LambdaLR(opt, { 'x' }) end, 'lr_lambda', "'x'")
    H.fails_here(function() s.MultiplicativeLR(opt, { 5 }) end, 'lr_lambda', '5')
    H.fails_here(function() amp.custom_fwd(print, 5) end, 'custom_fwd', '5')
    H.fails_here(function() amp.custom_fwd(print, 'float16') end, 'custom_fwd', 'cast_inputs')
    H.fails_here(function() amp.GradScaler():end_block(5) end, 'end_block', '5')
    H.fails_here(function() amp.arange() end, 'arange', 'start')
    H.fails_here(function() nn.utils.remove_weight_norm(5) end, 'remove_weight_norm', 'number')
    H.fails_here(function() nn.utils.remove_spectral_norm() end, 'remove_spectral_norm', 'nil')
    H.fails_here(function() amp.ones(2):allclose(amp.ones(2), print) end, 'allclose', 'rtol')
    H.fails_here(function() amp.ones(2):allclose(amp.ones(2), { atol = 'x' }) end, 'allclose', 'atol', "'x'")
  end)
end)

describe('numbers beside integers', function()
  it('have the bits of an integer, in any place', function()
    for _, dtype in ipairs { 'int64', 'int32', 'int16', 'int8', 'uint8' } do
      local t = amp.tensor({ 5, 6, 3 }, { dtype = dtype })
      for name, want in pairs { bitwise_and = { { 1, 0, 1 }, { 0, 2, 2 } }, bitwise_or = { { 5, 7, 3 }, { 7, 6, 3 } },
        bitwise_xor = { { 4, 7, 2 }, { 7, 4, 1 } }, bitwise_right_shift = { { 2, 3, 1 }, { 0, 0, 0 } }, bitwise_left_shift = { { 10, 12, 6 } } } do
        assert.same(want[1], t[name](t, 1):tolist())
        assert.equal(dtype, amp[name](t, 1).dtype)
        assert.same(want[1], t:clone()[name .. '_'](t:clone(), 1):tolist())
        if want[2] then assert.same(want[2], amp[name](2, t):tolist()) end
      end
    end
    assert.same({ 1, 0 }, amp.tensor({ true, false }):bitwise_and(1):tolist())
  end)
  it('which a fraction, an infinity and what does not fit are not', function()
    local t = amp.tensor({ 5 }, { dtype = 'int32' })
    for _, v in ipairs { 1.5, 1 / 0, -1 / 0, 0 / 0 } do
      H.fails_here(function() t:bitwise_and(v) end, 'bitwise_and', 'has no bits')
    end
    H.fails_here(function() t:bitwise_and(2 ^ 40) end, 'does not fit dtype int32')
    H.fails_here(function() t:float():bitwise_and(1) end, 'argument 1 has dtype float32, expected an integer dtype or bool')
  end)
  it('and too large ones are said to be too large', function()
    local x = amp.ones(4)
    H.fails_here(function() x:tril(2 ^ 62) end, 'tril', 'too large to be exact')
    H.fails_here(function() amp.linspace(0, 1, 1e18) end, 'linspace', 'too large to be exact')
    H.fails_here(function() x:tensor_split(1e18) end, 'tensor_split', 'too many')
    H.fails_here(function() amp.zeros(1e9, 1e9, 1e9) end, 'a tensor of shape 1000000000x1000000000x1000000000 has more bytes')
  end)
end)

describe('out of an op that is made of others', function()
  local a, b = H.sample({ 3, 3 }, 'float32'), H.sample({ 3, 3 }, 'float32')
  it('is written and given back, in a region too, which leaves it alone', function()
    local want, out = amp.mm(a, b), amp.zeros(3, 3)
    assert.is_true(amp.mm(a, b, { out = out }) == out)
    H.same(want, out)
    amp.autocast({ dtype = 'bfloat16' }, function()
      for name, call in pairs {
        mm = function(o) return amp.mm(a, b, o) end, method = function(o) return a:mm(b, o) end,
        bmm = function(o) return amp.bmm(a:unsqueeze(1), b:unsqueeze(1), { out = o.out:unsqueeze(1) }) end,
        addmm = function(o) return amp.addmm(amp.zeros(3, 3), a, b, o) end, matmul = function(o) return amp.matmul(a, b, o) end,
      } do
        out:fill_(0)
        assert.equal('float32', call({ out = out }).dtype, name)
        H.close(out, want, H.exact)
      end
      pcall(amp.mm, a, amp.ones(2, 2), { out = out })
      assert.equal('bfloat16', amp.mm(a, b).dtype)
    end)
    assert.equal('float16', amp.mm(a, b, { out = out:half() }).dtype)
    H.same(want, a:mm(b, { out = b:clone() }))
  end)
  it('says what is wrong', function()
    H.fails_here(function() amp.mm(a, b, { out = amp.zeros(2) }) end, 'mm', '3x3', 'shape 2')
    H.fails_here(function() amp.mm(a, b, { out = amp.zeros(3, 3):int() }) end, 'mm', 'float32', 'int32')
    H.fails_here(function() amp.mm(a, b, { out = amp.zeros(3, 3, { requires_grad = true }) }) end, 'no_grad')
    H.fails_here(function() amp.mm(a, a:detach():requires_grad_(), { out = amp.zeros(3, 3) }) end, 'no_grad')
    H.fails_here(function() amp.mm(a, amp.ones(2, 2), { out = amp.zeros(3, 3) }) end, 'mm', '3x3', '2x2')
    H.fails_here(function() amp.mm(a, b, { out = 1 }) end, 'out', 'tensor')
    local gone = amp.zeros(3, 3)
    gone:free()
    H.fails_here(function() amp.mm(a, b, { out = gone }) end, 'mm', 'out', 'freed')
    H.fails_here(function() a:reshape({ 9 }, { out = a }) end, "takes no option 'out'")
  end)
end)

describe('a value that is a tensor without dimensions', function()
  local mask, index = amp.tensor { true, false, true }, amp.tensor({ 3, 1 }, { dtype = 'int64' })
  it('fills, in the dtype of what is filled', function()
    local x = amp.zeros(3)
    assert.is_true(x:fill_(amp.tensor(2)) == x)
    H.close(x, { 2, 2, 2 }, H.exact)
    assert.same({ 2, 2 }, amp.zeros(2, { dtype = 'int64' }):fill_(amp.tensor(2.5)):tolist())
    H.close(amp.ones(3):masked_fill(mask, amp.tensor(5)), { 5, 1, 5 }, H.exact)
    H.close(amp.ones(3):masked_fill_(mask, amp.tensor(5)), { 5, 1, 5 }, H.exact)
    H.close(amp.ones(2, 3):index_fill(-1, index, amp.tensor(4)), { 4, 1, 4, 4, 1, 4 }, H.exact)
    local half = amp.ones(3):half()
    assert.equal('float16', half:masked_fill(mask, amp.tensor(3)).dtype)
    assert.equal('float16', amp.autocast({ dtype = 'float16' }, function() return half:masked_fill(mask, amp.tensor(3)) end).dtype)
  end)
  it('gets a gradient', function()
    local x, v = amp.ones(3, { requires_grad = true }), amp.tensor(5, { requires_grad = true })
    local y = x * 1
    amp.backward { x:masked_fill(mask, v):sum(), x:index_fill(1, index, v):sum(), y:fill_(v):sum() }
    H.close(x.grad, { 0, 2, 0 }, H.exact)
    assert.equal(7, v.grad:item())
  end)
  it('has no dimensions', function()
    H.fails_here(function() amp.ones(3):fill_(amp.ones(1)) end, 'fill_', 'without dimensions', 'shape 1')
    H.fails_here(function() amp.ones(3):masked_fill(mask, amp.ones(3)) end, 'masked_fill', 'shape 3')
  end)
end)

describe('a bool beside a number or another dtype', function()
  local mask, x, whole = amp.tensor { true, false }, amp.tensor { 3, 4 }, amp.tensor({ 3, 4 }, { dtype = 'int64' })
  local function is(t, values, dtype)
    assert.same(values, t:tolist())
    assert.equal(dtype, t.dtype)
  end
  it('is 0 or 1 in arithmetic', function()
    is(x ^ mask, { 3, 1 }, 'float32')
    is(mask ^ x, { 1, 0 }, 'float32')
    is(whole ^ mask, { 3, 1 }, 'int64')
    is(mask ^ 2, { 1, 0 }, 'int64')
    is(2 ^ mask, { 2, 1 }, 'int64')
    is(mask ^ 0.5, { 1, 0 }, 'float32')
    is(2 / mask, { 2, 1 / 0 }, 'float32')
    is(mask % whole, { 1, 0 }, 'int64')
    is(mask % 2, { 1, 0 }, 'int64')
    is(amp.fmod(mask, x:half()), { 1, 0 }, 'float16')
    is(amp.floor_divide(whole, amp.tensor { true, true }), { 3, 4 }, 'int64')
    is(amp.copysign(x, mask), { 3, 4 }, 'float32')
    is(amp.addcmul(x, mask, x), { 6, 4 }, 'float32')
    assert.equal('float32', amp.atan2(x, mask).dtype)
    assert.equal('float32', amp.xlogy(mask, x).dtype)
    assert.equal('float32', amp.hypot(x, mask).dtype)
  end)
  it('lets gradients through to the other', function()
    for name, want in pairs { pow = { 1, 0 }, fmod = { 1, 1 }, atan2 = { 0.1, 0 }, hypot = { 3 / math.sqrt(10), 1 } } do
      local w = amp.tensor({ 3, 4 }, { requires_grad = true })
      amp[name](w, mask):sum():backward()
      H.close(w.grad, want)
    end
  end)
  it('lets second derivatives through as well', function()
    local value = amp.tensor({ 3, 4 }, { dtype = 'float64', requires_grad = true })
    for _, name in ipairs { 'pow', 'atan2', 'copysign', 'hypot' } do
      assert.is_true(amp.gradgradcheck(function(t) return amp[name](t, mask) * t end, { value }), name)
      assert.is_true(amp.gradgradcheck(function(t) return amp[name](mask, t) * t end, { value }), name)
    end
  end)
  it('has none alone, nor a difference', function()
    H.fails_here(function() return mask ^ mask, 1 end, 'bool')
    H.fails_here(function() return mask % mask, 1 end, 'bool')
    H.fails_here(function() return x - mask, 1 end, 'sub', 'bool')
    H.fails_here(function() return -mask, 1 end, 'neg', 'bool')
  end)
end)

describe('a key that is not known', function()
  local x, leaf = amp.zeros(2, 4), amp.ones(1, { requires_grad = true })
  it('is an error where pieces are made', function()
    for _, name in ipairs { 'split', 'chunk', 'tensor_split' } do
      assert.equal(2, #x[name](x, 2, { dim = 2 }), name)
      H.fails_here(function() x[name](x, 2, { dims = 2 }) end, name, "'dims'", "'dim'")
      H.fails_here(function() amp[name](x, 2, { dmi = 2 }) end, name, "'dmi'", "'dim'")
    end
    assert.equal(4, #x:unbind { dim = 2 })
    H.fails_here(function() x:unbind { dims = 2 } end, 'unbind', "'dims'")
    assert.equal('4x8', tostring(x:tile { dims = { 2, 2 } }:size()))
    assert.equal('4x4', tostring(x:tile({ 2, 1 }):size()))
    H.fails_here(function() x:tile { dim = 2 } end, 'tile', "'dim'")
  end)
  it('is an error beside a dtype, a device or a function', function()
    local image = amp.zeros(1, 2, 3, 4)
    for _, name in ipairs { 'half', 'float', 'double', 'cpu' } do
      assert.is_true(image[name](image, { memory_format = 'channels_last' }):is_contiguous 'channels_last', name)
      H.fails_here(function() image[name](image, { memory_fmt = 'channels_last' }) end, "'memory_fmt'", "'memory_format'")
    end
    for _, name in ipairs { 'half_function', 'float_function', 'promote_function' } do
      H.fails_here(function() amp[name](print, { cast_inputs = 'float16' }) end, name, "'cast_inputs'")
    end
    H.fails_here(function() amp.register_half_function({ f = print }, 'f', { x = 1 }) end, 'register_half_function', "'x'")
    H.fails_here(function() leaf:register_hook(print, { x = 1 }) end, 'register_hook', "'x'")
    H.fails_here(function() amp.Function({ forward = print, backward = print }, { name = 'f' }) end, 'Function', "'name'")
  end)
end)

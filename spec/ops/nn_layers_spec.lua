--- nn: layers and losses against PyTorch, initialisation, constructors' arguments. Modules themselves: nn_spec.lua.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn = amp.nn

local function eq(t, values) H.close(t, values, H.exact) end
local function names(iterator)
  local list = {}
  for name in iterator do list[#list + 1] = tostring(name) end
  return table.concat(list, ' ')
end

-- -- Layers against PyTorch --------------------------------------------------

describe('layers', function()
  local function make(c) return loadstring('local amp, nn = ... return ' .. c.new)(amp, nn) end
  local function input(f, i)
    local t = H.make(f.v, f.s, f.d == 'float64' and 'float32' or f.d)
    if i == 1 and f.d == 'float64' then t.requires_grad = true end
    return t
  end
  for i, c in ipairs(H.fixture 'layers.txt') do
    it(('agree with PyTorch: %s%s, case %d'):format(c.new, c.eval and ' in evaluation' or '', i), function()
      local m = make(c)
      local state = {}
      for name, f in pairs(c.state or {}) do state[name] = H.make(f.v, f.s, f.d) end
      if c.state then m:load_state_dict(state) end
      if c.eval then m:eval() end
      local args = {}
      for k, f in ipairs(c.inp) do args[k] = input(f, k) end
      local y = m(unpack(args))
      H.close(y, c.out, 4, 'output')
      local w = {}
      for k = 0, y:numel() - 1 do w[k + 1] = 0.3 + ((k * 7) % 11) / 10 end
      if y.requires_grad then (y * H.make(w, H.shape(y))):sum():backward() end
      for name, f in pairs(c.grad) do
        local of = args[1]
        if name ~= 'x' then
          for n, p in m:named_parameters() do if n == name then of = p end end
        end
        assert.is_not_nil(of.grad, 'no gradient of ' .. name)
        H.close(of.grad, f, 8, 'gradient of ' .. name)
      end
      local after = m:state_dict()
      for name, f in pairs(c.after or {}) do H.close(after[name], f, 2, name) end
    end)
  end
end)

describe('ReLU', function()
  it('in place changes its input, and the gradient is the same', function()
    local x = H.sample { 2, 3 }
    x.requires_grad = true
    nn.Sequential(nn.Linear(3, 4), nn.ReLU(true), nn.Identity())(x):sum()
    local y = x * 1
    local z = nn.ReLU { inplace = true }(y)
    assert.is_true(z == y)
    z:sum():backward()
    local g = x.grad
    x.grad = nil
    nn.ReLU()(x * 1):sum():backward()
    H.same(x.grad, g)
    assert.equal('nn.ReLU(inplace true)', tostring(nn.ReLU(true)))
  end)
end)

describe('Dropout', function()
  it('zeros with probability p, scales the rest, and so does the gradient', function()
    amp.manual_seed(5)
    local x = amp.ones(20000, { requires_grad = true })
    for _, p in ipairs { 0.2, 0.5, 0.75 } do
      local y = nn.Dropout(p)(x)
      local kept, v = 0, H.values(y)
      for i = 1, v.n do
        if v[i] ~= 0 then
          kept = kept + 1
          assert.is_true(math.abs(v[i] - 1 / (1 - p)) < 1e-5)
        end
      end
      assert.is_true(math.abs(kept / 20000 - (1 - p)) < 0.015, kept)
      x.grad = nil
      y:sum():backward()
      H.same(x.grad, y:detach())
    end
  end)
  it('p = 0, p = 1, evaluation', function()
    local x = H.sample { 3, 4 }
    H.same(nn.Dropout(0)(x), x)
    H.same(nn.Dropout(1)(x), amp.zeros(3, 4))
    H.same(nn.Dropout(0.9):eval()(x), x)
    assert.equal(0.5, nn.Dropout().p)
  end)
  it('same seed, same mask', function()
    local x, d = amp.ones(100), nn.Dropout()
    amp.manual_seed(1)
    local a = d(x)
    local b = d(x)
    amp.manual_seed(1)
    H.same(d(x), a)
    H.same(d(x), b)
    assert.is_false(amp.equal(a, b))
  end)
end)

describe('batch norm', function()
  it('refuses other shapes and a batch of one value a channel', function()
    local m = nn.BatchNorm2d(3)
    H.fails_here(function() m(amp.ones(2, 3, 4)) end, 'N x C x H x W', '2x3x4')
    H.fails_here(function() m(amp.ones(2, 4, 2, 2)) end, '3', '4', '2x4x2x2')
    H.fails_here(function() nn.BatchNorm1d(3)(amp.ones(2, 3, 4, 5)) end, '2x3x4x5')
    H.fails_here(function() m(amp.ones(1, 3, 1, 1)) end, '1x3x1x1')
    eq(m.num_batches_tracked, { 0 })
    eq(m.running_mean, { 0, 0, 0 })
    assert.same({ 1, 3, 1, 1 }, H.shape(m:eval()(amp.ones(1, 3, 1, 1))))
  end)
  it('counts batches in training only', function()
    local m = nn.BatchNorm1d(2)
    m(amp.rand(4, 2))
    m(amp.rand(4, 2))
    m:eval()
    m(amp.rand(4, 2))
    eq(m.num_batches_tracked, { 2 })
  end)
end)

-- -- Initialisation ----------------------------------------------------------

describe('initialisation', function()
  local function statistics(t)
    local v = H.values(t)
    local mean, low, high = 0, math.huge, -math.huge
    for i = 1, v.n do
      mean = mean + v[i] / v.n
      low, high = math.min(low, v[i]), math.max(high, v[i])
    end
    local var, fourth = 0, 0
    for i = 1, v.n do
      var = var + (v[i] - mean) ^ 2 / v.n
      fourth = fourth + (v[i] - mean) ^ 4 / v.n
    end
    return mean, math.sqrt(var), low, high, fourth / var ^ 2
  end
  local function uniform(t, bound)
    local mean, std, low, high, kurtosis = statistics(t)
    assert.is_true(math.abs(mean) < 0.03 * bound, 'mean ' .. mean)
    assert.is_true(math.abs(std - bound / math.sqrt(3)) < 0.03 * bound, 'deviation ' .. std)
    assert.is_true(low >= -bound and high <= bound and high > 0.98 * bound and low < -0.98 * bound, low .. ' to ' .. high)
    assert.is_true(math.abs(kurtosis - 1.8) < 0.1, 'kurtosis ' .. kurtosis)
  end
  local function normal(t, std_wanted)
    local mean, std, _, _, kurtosis = statistics(t)
    assert.is_true(math.abs(mean) < 0.04 * std_wanted, 'mean ' .. mean)
    assert.is_true(math.abs(std / std_wanted - 1) < 0.03, 'deviation ' .. std)
    assert.is_true(math.abs(kurtosis - 3) < 0.3, 'kurtosis ' .. kurtosis)
  end
  before_each(function() amp.manual_seed(11) end)

  it('Linear: uniform within 1 / sqrt(inputs)', function()
    local m = nn.Linear(64, 256)
    uniform(m.weight, 1 / 8)
    uniform(nn.Linear(100, 4000).bias, 1 / 10)
    assert.same({ 256, 64 }, H.shape(m.weight))
    assert.same({ 256 }, H.shape(m.bias))
  end)
  it('Conv2d: uniform within 1 / sqrt(inputs of an output), groups counted', function()
    local m = nn.Conv2d(16, 64, { 3, 2 }, { groups = 4 })
    assert.same({ 64, 4, 3, 2 }, H.shape(m.weight))
    uniform(nn.Conv2d(16, 256, { 3, 2 }, { groups = 4 }).weight, 1 / math.sqrt(24))
    uniform(nn.Conv2d(4, 4000, 1).bias, 1 / 2)
  end)
  it('Embedding: standard normal; norms: ones and zeros', function()
    normal(nn.Embedding(200, 60).weight, 1)
    local b = nn.BatchNorm2d(3)
    eq(b.weight, { 1, 1, 1 })
    eq(b.bias, { 0, 0, 0 })
    eq(b.running_mean, { 0, 0, 0 })
    eq(b.running_var, { 1, 1, 1 })
    eq(nn.LayerNorm(2).weight, { 1, 1 })
    eq(nn.LayerNorm(2).bias, { 0, 0 })
  end)
  it('same seed, same network; reset_parameters draws anew', function()
    local a = nn.Linear(3, 4)
    amp.manual_seed(11)
    local b = nn.Linear(3, 4)
    H.same(a.weight:detach(), b.weight:detach())
    H.same(a.bias:detach(), b.bias:detach())
    local p = b.weight
    b:reset_parameters()
    assert.is_true(p == b.weight and p.requires_grad)
    assert.is_false(amp.equal(a.weight, b.weight))
  end)
  it('nn.init fills as its names say, in place, recording nothing', function()
    local t = amp.empty(100, 150, { requires_grad = true })
    assert.is_true(nn.init.constant_(t, 3) == t)
    assert.is_true(t.is_leaf)
    H.same(t:detach(), amp.full({ 100, 150 }, 3))
    nn.init.uniform_(t, -2, 2)
    uniform(t, 2)
    nn.init.normal_(t, 0, 0.2)
    normal(t, 0.2)
    nn.init.xavier_uniform_(t)
    uniform(t, math.sqrt(6 / 250))
    nn.init.xavier_normal_(t, 2)
    normal(t, 2 * math.sqrt(2 / 250))
    nn.init.kaiming_uniform_(t, { nonlinearity = 'relu' })
    uniform(t, math.sqrt(6 / 150))
    nn.init.kaiming_uniform_(t, { a = 1 })
    uniform(t, math.sqrt(3 / 150))
    nn.init.kaiming_normal_(t, { mode = 'fan_out', nonlinearity = 'relu' })
    normal(t, math.sqrt(2 / 100))
    local c = amp.empty(20, 10, 5, 5)
    nn.init.kaiming_uniform_(c, { nonlinearity = 'linear' })
    uniform(c, math.sqrt(3 / 250))
    eq(nn.init.ones_(amp.empty(2)), { 1, 1 })
    eq(nn.init.zeros_(amp.empty(2)), { 0, 0 })
    assert.equal(5 / 3, nn.init.calculate_gain 'tanh')
    assert.equal(math.sqrt(2), nn.init.calculate_gain 'relu')
    assert.is_true(math.abs(nn.init.calculate_gain('leaky_relu', 0.2) - math.sqrt(2 / 1.04)) < 1e-12)
    H.fails_here(function() nn.init.xavier_uniform_(amp.empty(3)) end, '2 dimensions', '3')
    H.fails_here(function() nn.init.kaiming_normal_(amp.empty(3, 3), { mode = 'fan' }) end, 'fan_in', 'fan')
    H.fails_here(function() nn.init.kaiming_normal_(amp.empty(3, 3), { nonlinearity = 'relo' }) end, 'relo')
    H.fails_here(function() nn.init.calculate_gain 'relo' end, 'relo')
    H.fails_here(function() nn.init.ones_(5) end, 'tensor')
  end)
end)

-- -- Constructors ------------------------------------------------------------

describe('constructors', function()
  -- each: text of the call, pieces of the error
  for _, c in ipairs {
    { 'nn.Linear()', 'in_features' }, { 'nn.Linear(3)', 'out_features' }, { 'nn.Linear(0, 3)', 'in_features', '0' },
    { 'nn.Linear(2.5, 3)', 'in_features', '2.5' }, { "nn.Linear('x', 3)", 'in_features', 'x' }, { 'nn.Linear(2, -1)', 'out_features', '-1' },
    { 'nn.Linear(2, 3, {bais = false})', 'bais', "'bias'" }, { 'nn.Linear(2, 3, true, 5)', '3 arguments', '4' },
    { 'nn.Linear(2, 3, {in_features = 5})', 'in_features', 'twice' }, { 'nn.Linear(0/0, 3)', 'in_features' }, { 'nn.Linear(1/0, 3)', 'in_features' },
    { 'nn.Linear(2^30, 2^40)' },
    { 'nn.Conv2d(1, 2)', 'kernel_size' }, { 'nn.Conv2d(1, 2, 0)', 'kernel_size', '0' }, { 'nn.Conv2d(1, 2, {3})', 'kernel_size' },
    { 'nn.Conv2d(1, 2, {3, 3, 3})', 'kernel_size' }, { 'nn.Conv2d(3, 4, 3, {groups = 2})', 'in_channels', '3', '2' },
    { 'nn.Conv2d(4, 3, 3, {groups = 2})', 'out_channels', '3', '2' }, { 'nn.Conv2d(1, 1, 3, {groups = 0})', 'groups', '0' },
    { 'nn.Conv2d(1, 1, 3, {stride = 0})', 'stride', '0' }, { 'nn.Conv2d(1, 1, 3, {padding = -1})', 'padding', '-1' },
    { 'nn.Conv2d(1, 1, 3, {dilation = 0})', 'dilation', '0' }, { 'nn.Conv2d(1, 1, 3, {strides = 2})', 'strides', "'stride'" },
    { "nn.Conv2d(1, 1, 3, {stride = 'x'})", 'stride', 'x' },
    { 'nn.MaxPool2d()', 'kernel_size' }, { 'nn.MaxPool2d(0)', 'kernel_size' }, { 'nn.MaxPool2d(2, {pading = 1})', 'pading', "'padding'" },
    { 'nn.MaxPool2d(2, 2, 0, 0)', 'dilation' }, { 'nn.AvgPool2d(2, {dilation = 2})', 'dilation' },
    { "nn.MaxPool2d(2, {ceil_mode = 'yes'})", 'ceil_mode' },
    { 'nn.BatchNorm2d()', 'num_features' }, { 'nn.BatchNorm2d(0)', 'num_features' }, { 'nn.BatchNorm2d(2, {epsilon = 1})', 'epsilon' },
    { "nn.BatchNorm2d(2, {eps = 'x'})", 'eps', 'x' }, { 'nn.BatchNorm2d(2, {eps = -1})', 'eps', '-1' },
    { "nn.BatchNorm2d(2, {momentum = 'x'})", 'momentum', 'x' },
    { 'nn.BatchNorm2d(2, {affine = 1})', 'affine', '1' }, { "nn.Linear(2, 3, 'no')", 'bias', 'no' },
    { 'nn.LayerNorm()', 'size' }, { 'nn.LayerNorm{}', 'size' }, { 'nn.LayerNorm(0)', '0' }, { "nn.LayerNorm{2, 'x'}", 'x' },
    { 'nn.LayerNorm(2, {affine = true})', 'affine' }, { "nn.LayerNorm(2, {eps = 'x'})", 'eps', 'x' },
    { 'nn.Embedding(5)', 'embedding_dim' }, { 'nn.Embedding(0, 5)', 'num_embeddings' },
    { 'nn.Dropout(1.5)', '1.5' }, { 'nn.Dropout(-0.1)', '-0.1' }, { "nn.Dropout('x')", 'x' }, { 'nn.Dropout(0/0)', 'nan' }, { 'nn.Dropout{q = 1}', 'q' },
    { "nn.MSELoss{reduction = 'avg'}", 'avg', 'mean' }, { 'nn.MSELoss{weight = 1}', 'weight' }, { 'nn.CrossEntropyLoss(5)', 'number' },
    { "nn.CrossEntropyLoss{weight = 'x'}", 'weight' }, { 'nn.CrossEntropyLoss{label_smothing = 0.1}', 'label_smothing', "'label_smoothing'" },
    { 'nn.CrossEntropyLoss{label_smoothing = 2}', 'label_smoothing', '2' }, { "nn.CrossEntropyLoss{ignore_index = 'x'}", 'ignore_index', 'x' },
    { "nn.GELU('exact')", 'approximate', 'exact' }, { "nn.Softmax('x')", 'dim', 'x' }, { "nn.Softplus('x')", 'beta', 'x' },
    { 'nn.ReLU(1)', 'inplace', '1' },
    { 'nn.Softplus{betta = 1}', 'betta', "'beta'" }, { "nn.Flatten('x')", 'start_dim', 'x' }, { 'nn.ReLU(5, 6)', 'argument' },
  } do
    it('refuse ' .. c[1], function()
      local chunk = loadstring('local nn = ... local m = ' .. c[1] .. ' return m', '@bad_spec.lua')
      local e = H.fails(function() chunk(nn) end, unpack(c, 2))
      assert.is_not_nil(tostring(e):find('^bad_spec.lua:1: '), tostring(e))
    end)
  end
end)

describe('layers refuse', function()
  it('inputs that do not fit, naming both shapes', function()
    H.fails_here(function() nn.Linear(3, 2)(amp.ones(4, 5)) end, '4x5', '2x3')
    H.fails_here(function() nn.Conv2d(3, 2, 3)(amp.ones(1, 2, 8, 8)) end, '1x2x8x8')
    H.fails_here(function() nn.Conv2d(1, 2, 5)(amp.ones(1, 1, 3, 3)) end, '3')
    H.fails_here(function() nn.Conv2d(1, 2, 5)(amp.ones(3, 3)) end, '3x3')
    H.fails_here(function() nn.MaxPool2d(2)(amp.ones(3)) end, '3')
    H.fails_here(function() nn.MaxPool2d(2, { padding = 2 })(amp.ones(1, 1, 4, 4)) end, 'padding 2', 'kernel_size 2')
    H.fails_here(function() nn.LayerNorm(4)(amp.ones(2, 5)) end, '4', '2x5')
    H.fails_here(function() nn.Linear(3, 2)(amp.ones(4, 3, { dtype = 'float64' })) end, 'float64', 'float32')
    H.fails_here(function() nn.Linear(3, 2)({ 1, 2, 3 }) end, 'tensor', 'table')
    H.fails_here(function() nn.ReLU()() end, 'tensor')
  end)
  it('indices and labels out of range, naming the value and the range', function()
    local e = nn.Embedding(5, 2)
    for _, i in ipairs { 0, 6, -6 } do
      H.fails_here(function() e(amp.tensor({ 1, i }, { dtype = 'int64' })) end, tostring(i), '5')
    end
    H.fails_here(function() e(amp.tensor { 1, 2 }) end, 'float32')
    local loss = nn.CrossEntropyLoss()
    for _, i in ipairs { 0, 4 } do
      H.fails_here(function() loss(amp.ones(2, 3), amp.tensor({ 1, i }, { dtype = 'int64' })) end, tostring(i), '3')
    end
    H.fails_here(function() loss(amp.ones(2, 3), amp.tensor({ 1, 2, 3 }, { dtype = 'int64' })) end, '2', '3')
    H.fails_here(function() nn.MSELoss()(amp.ones(2), amp.ones(2, { dtype = 'float64' })) end, 'float64', 'float32')
  end)
end)

describe('losses', function()
  it('take labels of any integer dtype', function()
    local x = H.sample { 3, 4 }
    local want = nn.CrossEntropyLoss()(x, amp.tensor({ 1, 4, 2 }, { dtype = 'int64' }))
    for _, dtype in ipairs { 'int32', 'int16', 'int8', 'uint8' } do
      H.same(nn.CrossEntropyLoss()(x, amp.tensor({ 1, 4, 2 }, { dtype = dtype })), want)
    end
  end)
  it('have Torch7\'s names too; weights go along with to()', function()
    assert.is_true(nn.CrossEntropyCriterion == nn.CrossEntropyLoss)
    assert.is_true(nn.ClassNLLCriterion == nn.NLLLoss)
    local loss = nn.CrossEntropyLoss { weight = amp.ones(3) }
    assert.equal('weight', names(loss:named_buffers()))
    loss:double()
    assert.equal('float64', loss.weight.dtype)
    assert.is_nil(next(loss:state_dict()))
  end)
end)

describe('nn.functional', function()
  it('is amp\'s own functions', function()
    local F = nn.functional
    assert.is_true(F.relu == amp.relu and F.mse_loss == amp.mse_loss)
    assert.is_true(F.binary_cross_entropy_with_logits == amp.bce_with_logits)
    H.fails_here(function() return F.rleu end, 'rleu', "'relu'")
  end)
end)

describe('a plain tensor in a parameter\'s place', function()
  it('is trained as the one before', function()
    local net, fresh = nn.Linear(2, 2), amp.ones(2, 2)
    net.weight = fresh
    assert.is_true(rawequal(net.weight, fresh))
    assert.equal(2, #net:parameters())
    net(amp.ones(1, 2)):sum():backward()
    assert.is_true(fresh.grad:equal(amp.ones(2, 2)))
    net:requires_grad_(false)
    net.weight = amp.zeros(2, 2)
    assert.is_false(net.weight.requires_grad)
    assert.equal(2, #net:parameters())
  end)
end)

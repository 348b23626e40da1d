--- amp.summary: sizes, parameters and multiply-adds layer by layer, and a network that is left as it was.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn, F = amp.nn, amp.nn.functional

local function lenet()
  return nn.Sequential(nn.Conv2d(1, 8, 3, { padding = 1 }), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))
end

local function row(report, name)
  for _, r in ipairs(report) do if r.name == name then return r end end
end

describe('amp.summary', function()
  it('gives shape, dtype, bytes, parameters and multiply-adds of every layer, and totals', function()
    local s = amp.summary(lenet(), amp.zeros(4, 1, 28, 28))
    assert.equal(7, #s)
    assert.same({ '4x8x28x28' }, row(s, '1').shapes)
    assert.equal('nn.Conv2d', row(s, '1').class)
    assert.equal(4 * 8 * 28 * 28 * 4, row(s, '1').bytes)
    assert.equal('float32', row(s, '1').dtype)
    assert.equal(80, row(s, '1').parameters)
    assert.equal(4 * 8 * 28 * 28 * 9, row(s, '1').mult_adds)
    assert.equal(4 * 1568 * 10, row(s, '6').mult_adds)
    assert.equal(0, row(s, '3').mult_adds)
    assert.equal(80 + 16 + 15690, s.parameters)
    assert.equal(17, s.buffers)
    assert.equal(4 * 8 * 28 * 28 * 9 + 4 * 1568 * 10, s.mult_adds)
    assert.same({ '4x1x28x28' }, s.input)
  end)
  it('counts products of other kinds', function()
    local function total(net, ...) return amp.summary(net, ...).mult_adds end
    assert.equal(7 * 3 * 5, total(nn.Linear(3, 5), { 7, 3 }))
    assert.equal(2 * 6 * 27 * 2 * 27, total(nn.Conv3d(4, 6, 3, { groups = 2 }), { 2, 4, 5, 5, 5 }))
    assert.equal(2 * 3 * 49 * 5 * 9, total(nn.ConvTranspose2d(3, 5, 3, { stride = 2 }), { 2, 3, 7, 7 }))
    assert.equal(14 * (4 * 5 * (3 + 5) + 4 * 5 * (5 + 5)), total(nn.LSTM(3, 5, { num_layers = 2 }), { 7, 2, 3 }))
    assert.equal(14 * 2 * 3 * 5 * (3 + 5), total(nn.GRU(3, 5, { bidirectional = true }), { 7, 2, 3 }))
    assert.equal(14 * 5 * (3 + 5), total(nn.RNN(3, 5), { 7, 2, 3 }))
    -- projections of 15 rows, and scores and sums of 6 heads of 5 x 5 x 4
    assert.equal(15 * 8 * 24 + 15 * 8 * 8 + 2 * 6 * 5 * 5 * 4, total(nn.MultiheadAttention(8, 2), amp.zeros(5, 3, 8), amp.zeros(5, 3, 8), amp.zeros(5, 3, 8)))
    local Net = nn.Module:extend 'Net'
    function Net.forward(_, a, b) return F.relu(amp.bmm(a, b)) + a:matmul(b) end
    assert.equal(2 * 3 * 4 * 5 * 6, total(Net(), amp.zeros(3, 4, 5), amp.zeros(3, 5, 6)))
  end)
  it('counts shared parameters once, and says how often a layer ran', function()
    local Net = nn.Module:extend 'Net'
    function Net:init()
      self.a = nn.Linear(3, 3)
      self.b = nn.Linear(3, 3)
      self.b.weight = self.a.weight
    end
    function Net:forward(x) return self.b(self.a(self.a(x))) end
    local s = amp.summary(Net(), { 2, 3 })
    assert.equal(15, s.parameters)
    assert.equal(2, row(s, 'a').calls)
    assert.equal(36, row(s, 'a').mult_adds)
    assert.equal(3, row(s, 'b').parameters)
    assert.is_true(tostring(s):find('a: nn.Linear x 2', 1, true) ~= nil, tostring(s))
  end)
  it('prints as an aligned table, to a depth', function()
    local net = nn.Sequential(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), nn.Linear(3, 2))
    assert.equal([[
layer               output  dtype    bytes  parameters  multiply-adds
---------------------------------------------------------------------
nn.Sequential       5x2     float32   40 B           -              -
  1: nn.Sequential  5x3     float32   60 B           -              -
    1: nn.Linear    5x3     float32   60 B          15             60
    2: nn.Tanh      5x3     float32   60 B           -              -
  2: nn.Linear      5x2     float32   40 B           8             30
---------------------------------------------------------------------
parameters    23 (92 B), 23 trained
outputs       160 B of layers without layers in them, for an input of 5x4
multiply-adds 90]], tostring(amp.summary(net, { 5, 4 })))
    local short = tostring(amp.summary(net, { 5, 4 }, { depth = 1 }))
    assert.is_nil(short:find('Tanh', 1, true))
    assert.is_true(short:find('multiply-adds 90', 1, true) ~= nil)
    local alone = amp.summary(net)
    assert.equal(23, alone.parameters)
    assert.is_nil(alone.mult_adds)
    assert.is_true(tostring(alone):find('parameters    23', 1, true) ~= nil)
  end)
  it('sees the dtypes of the region it is called in', function()
    local s = amp.autocast({ dtype = 'bfloat16' }, function() return amp.summary(nn.Linear(3, 2), { 5, 3 }) end)
    assert.equal('bfloat16', s[1].dtype)
    assert.equal(20, s[1].bytes)
  end)
  it('leaves modes, hooks, buffers, gradients and the random sequence as they were', function()
    local net = lenet()
    net:train()
    net[2]:eval()
    local called = 0
    net[3]:register_forward_hook(function() called = called + 1 end)
    net(amp.ones(2, 1, 28, 28)):sum():backward()
    local grad, mean = net[1].weight.grad:clone(), net[2].running_mean:clone()
    local Noisy = nn.Module:extend 'Noisy'
    function Noisy:init() self:register_buffer('seen', amp.zeros(2)) end
    function Noisy:forward(x)
      self.seen:add_(1)
      return x + amp.rand(1)
    end
    net:add(Noisy())
    amp.manual_seed(5)
    local want = amp.rand(3)
    amp.manual_seed(5)
    amp.summary(net, { 2, 1, 28, 28 })
    H.same(amp.rand(3), want)
    assert.is_true(net.training and net[1].training)
    assert.is_false(net[2].training)
    H.same(net[1].weight.grad, grad)
    H.same(net[2].running_mean, mean)
    H.close(net[7].seen, { 0, 0 })
    called = 0
    net(amp.ones(2, 1, 28, 28))
    assert.equal(1, called)
    assert.is_nil(rawget(net[1], '.hooks'))
    assert.is_true(net(amp.ones(2, 1, 28, 28)).requires_grad)
  end)
  it('does so when the network raises, and passes the error on', function()
    local mine = {}
    local Bad = nn.Module:extend 'Bad'
    function Bad.forward() error(mine) end
    local net = nn.Sequential(nn.Linear(2, 2), Bad())
    local ok, e = pcall(amp.summary, net, { 1, 2 })
    assert.is_false(ok)
    assert.is_true(e == mine)
    assert.is_true(net.training and net[1].training)
    assert.is_nil(rawget(net[1], '.hooks'))
    assert.is_true(amp.is_grad_enabled())
    local other = nn.Sequential(nn.Linear(2, 2))
    H.fails_here(function() amp.summary(other, { 1, 3 }) end, '1x3', 'nn.Linear')
    assert.is_nil(rawget(other[1], '.hooks'))
  end)
  it('refuses what is no network or input', function()
    H.fails_here(function() amp.summary(5) end, 'nn.Module', '5')
    H.fails_here(function() amp.summary(nn.Linear) end, 'class')
    H.fails_here(function() amp.summary(nn.Linear(1, 1), { 1, 1 }, { deep = 1 }) end, 'deep', 'depth')
    H.fails_here(function() amp.summary(nn.Linear(1, 1), { 1, -1 }) end, '-1')
    H.fails_here(function() amp.summary(nn.Linear(1, 1), nil) end, 'nil')
    H.fails_here(function() amp.summary(nn.Linear(1, 1), { 1, 1 }, { depth = -1 }) end, '-1')
  end)
end)

describe('tostring', function()
  local p = amp.ones(2, 3, { requires_grad = true })
  it('of optimizers counts parameters, and summarises many groups', function()
    assert.equal([[
SGD 'body' (1 parameter of 6 elements in 1 group)
  group 1: dampening = 0, lr = 0.5, maximize = false, momentum = 0, nesterov = false, weight_decay = 0]],
      tostring(amp.optim.SGD({ p }, { lr = 0.5, name = 'body' })))
    local groups = {}
    for i = 1, 200 do groups[i] = { params = { amp.ones(1, { requires_grad = true }) }, lr = i } end
    local text = tostring(amp.optim.Adam(groups))
    local _, n = text:gsub('\n', '')
    assert.is_true(n < 15, text)
    assert.is_true(text:find('... 189 more groups', 1, true) ~= nil and text:find('lr = 200', 1, true) ~= nil, text)
  end)
  it('of schedulers gives the step, the rates and the options', function()
    local S, opt = amp.optim.lr_scheduler, amp.optim.SGD({ p }, { lr = 0.5 })
    assert.equal('lr_scheduler.StepLR (step 0, lr 0.5: gamma = 0.1, step_size = 3)', tostring(S.StepLR(opt, { step_size = 3 })))
    assert.equal('lr_scheduler.LambdaLR (step 0, lr 0.5: lr_lambda = a function)', tostring(S.LambdaLR(opt, function() return 1 end)))
    assert.is_truthy(tostring(S.ReduceLROnPlateau(opt)):match '^lr_scheduler.ReduceLROnPlateau %(step 0, lr 0.5: .*patience = 10')
  end)
  it('of scalers gives the scale and how far it is from growing', function()
    assert.equal('amp.GradScaler (scale 1024, 0 of 10 clean updates to growth by 2, backoff by 0.5)',
      tostring(amp.GradScaler { init_scale = 1024, growth_interval = 10 }))
    assert.equal('amp.GradScaler (disabled)', tostring(amp.GradScaler { enabled = false }))
    assert.equal('amp.GradScaler (scale 8, static)', tostring(amp.GradScaler { init_scale = 8, growth_interval = 0 }))
  end)
  it('of managers counts tensors and says whether they record', function()
    local gm = amp.GradManager():attach { p }
    assert.equal('amp.GradManager (1 tensor attached)', tostring(gm))
    gm:record(function() assert.equal('amp.GradManager (1 tensor attached, recording)', tostring(gm)) end)
  end)
  it('of loaders gives batches and examples', function()
    local set = amp.data.TensorDataset(amp.ones(5, 2))
    assert.equal('data.DataLoader (3 batches of 2, 5 examples, shuffled)', tostring(amp.data.DataLoader(set, { batch_size = 2, shuffle = true })))
  end)
end)

--- nn on Torch7's own tensors: gradients by differences, tables, containers, shared and flattened parameters, copies, files, graphs.
local H = require 'spec.lib.helper'
local torch = require 'amp.torch7.own.torch'
local nn = require 'amp.torch7.own.nn'
local optim = require 'amp.torch7.optim'

local function is(u, values) assert.same(values, u:totable()) end
local function near(a, b, tol) assert.is_true(math.abs(a - b) < (tol or 1e-9), ('%s, expected %s'):format(tostring(a), tostring(b))) end

describe("a module of nn on Torch7's tensors", function()
  it('has the gradients that differences give', function()
    for name, c in pairs {
      Linear = { nn.Linear(4, 3), { 2, 4 } }, LinearOne = { nn.Linear(4, 3), { 4 } }, Tanh = { nn.Tanh(), { 3, 4 } },
      SoftMax = { nn.SoftMax(), { 3, 4 } },
      SpatialConvolution = { nn.SpatialConvolution(2, 3, 3, 2, 2, 1, 1, 0), { 2, 2, 4, 5 } }, ConvOne = { nn.SpatialConvolution(2, 3, 3, 3), { 2, 4, 5 } },
      SpatialFullConvolution = { nn.SpatialFullConvolution(2, 3, 3, 3, 2, 2), { 1, 2, 3, 3 } }, LRN = { nn.SpatialCrossMapLRN(3, 0.1), { 4, 3, 3 } },
      BatchNormalization = { nn.BatchNormalization(3), { 4, 3 } }, SpatialMaxPooling = { nn.SpatialMaxPooling(2, 2), { 1, 2, 4, 4 } },
      TemporalConvolution = { nn.TemporalConvolution(3, 2, 2), { 5, 3 } }, CMul = { nn.CMul(1, 3), { 2, 3 } }, Euclidean = { nn.Euclidean(3, 2), { 2, 3 } },
      PReLU = { nn.PReLU(2), { 3, 2 } }, Normalize = { nn.Normalize(2), { 3, 4 } }, Bottle = { nn.Bottle(nn.Linear(3, 2)), { 2, 2, 3 } },
      Concat = { nn.Concat(2):add(nn.Linear(3, 2)):add(nn.Linear(3, 1)), { 2, 3 } },
      Parallel = { nn.Parallel(1, 1):add(nn.Tanh()):add(nn.Linear(3, 2)), { 2, 3 } },
      DepthConcat = { nn.DepthConcat(1):add(nn.SpatialConvolution(1, 1, 3, 3)):add(nn.SpatialConvolution(1, 2, 1, 1)), { 1, 4, 4 } },
      WeightNorm = { nn.WeightNorm(nn.Linear(4, 3)), { 2, 4 } }, Maxout = { nn.Maxout(3, 2, 2), { 2, 3 } },
      LayerNormalization = { nn.LayerNormalization(4), { 2, 4 } }, View = { nn.View(-1):setNumInputDims(2), { 2, 2, 3 } },
    } do
      local x = torch.Tensor(unpack(c[2]))
      near(nn.Jacobian.testJacobian(c[1], x), 0, 1e-5)
      local params, grads = c[1]:parameters()
      if name ~= 'BatchNormalization' then
        for i, p in ipairs(params or {}) do near(nn.Jacobian.testJacobianParameters(c[1], x, p, grads[i]), 0, 1e-5) end
      end
      local out, grad = nn.Jacobian.testIO(c[1], x)
      near(out + grad, 0)
    end
  end)
  it('gives gradients of tables, zeros where nothing came', function()
    local a, b = torch.Tensor { 1, 2 }, torch.Tensor { 3, 4 }
    local m = nn.CMulTable()
    is(m:forward { a, b }, { 3, 8 })
    local g = m:backward({ a, b }, torch.Tensor { 1, 10 })
    is(g[1], { 3, 40 })
    is(g[2], { 1, 20 })
    local s = nn.SelectTable(-1)
    assert.is_true(s:forward { a, b } == b)
    g = s:backward({ a, b }, torch.Tensor { 5, 6 })
    is(g[1], { 0, 0 })
    is(g[2], { 5, 6 })
    local net = nn.Sequential():add(nn.ConcatTable():add(nn.Identity()):add(nn.MulConstant(3))):add(nn.CAddTable())
    is(net:forward(a), { 4, 8 })
    is(net:backward(a, torch.Tensor { 1, 1 }), { 4, 4 })
    local map = nn.MapTable(nn.Linear(2, 1))
    map:forward { a, b }
    map:zeroGradParameters()
    map:backward({ a, b }, { torch.ones(1), torch.ones(1) })
    is(map:get(1).gradWeight, { { 4, 6 } })
    is(nn.LookupTable(3, 1):backward(torch.LongTensor { 1, 2 }, torch.ones(2, 1)), { 0, 0 })
  end)
  it('adds gradients up, scaled, as often as it is asked', function()
    local m, x, g = nn.Linear(2, 1), torch.Tensor { { 1, 2 } }, torch.Tensor { { 1 } }
    m:forward(x)
    m:zeroGradParameters()
    m:backward(x, g)
    m:backward(x, g, 0.5)
    m:accGradParameters(x, g)
    is(m.gradWeight, { { 2.5, 5 } })
    local before = m.weight:clone()
    m:updateParameters(0.1)
    near((before - m.weight)[1][2], 0.5)
    -- the weight changed since: gradients are those of the weight as it is
    is(m:updateGradInput(x, g), m.weight:totable())
    m.weight:fill(7)
    is(m:updateGradInput(x, g), { { 7, 7 } })
    m.gradInput = nil
    assert.is_nil(m:backward(x, g))
    m:accUpdateGradParameters(x, g, 1)
    is(m.weight, { { 6, 5 } })
  end)
  it('shares and flattens parameters', function()
    local a = nn.Linear(2, 2)
    local b = a:clone('weight', 'gradWeight')
    b.weight:fill(3)
    is(a.weight, { { 3, 3 }, { 3, 3 } })
    a.bias:fill(1)
    assert.is_true(b.bias[1] ~= 1)
    local net = nn.Sequential():add(a):add(b)
    local p, g = net:getParameters()
    assert.equal(4 + 2 + 2, p:nElement())
    p:fill(2)
    is(a.weight, { { 2, 2 }, { 2, 2 } })
    is(b.bias, { 2, 2 })
    g:fill(4)
    is(b.gradBias, { 4, 4 })
    assert.is_true(torch.pointer(a.weight:storage()) == torch.pointer(p:storage()))
    local p2 = net:getParameters()
    assert.equal(8, p2:nElement())
    local copy = net:clone()
    local q = copy:getParameters()
    q:zero()
    assert.equal(2, a.weight[1][1])
    is(copy:get(1).weight, { { 0, 0 }, { 0, 0 } })
    -- a part of a larger tensor takes only its own elements along
    local whole = torch.ones(10)
    local m = nn.Linear(2, 1)
    m.weight:set(whole:narrow(1, 3, 2):view(1, 2))
    assert.equal(3, (m:getParameters():nElement()))
    local float = net:clone():float()
    assert.equal('torch.FloatTensor', float:get(1).weight:type())
    assert.equal(8, float:getParameters():nElement()) -- what was shared still is
  end)
  it('is walked, replaced, cleared and found', function()
    local net = nn.Sequential():add(nn.Linear(2, 2)):add(nn.Sequential():add(nn.Tanh()):add(nn.Linear(2, 2)))
    local found, holders = net:findModules 'nn.Linear'
    assert.equal(2, #found)
    assert.is_true(holders[1] == net and holders[2] == net:get(2))
    assert.equal(5, #net:listModules())
    local n = 0
    net:apply(function() n = n + 1 end)
    assert.equal(5, n)
    net:replace(function(m) return torch.type(m) == 'nn.Tanh' and nn.ReLU() or m end)
    assert.equal('nn.ReLU', torch.type(net:get(2).modules[1]))
    net:insert(nn.Identity(), 1)
    net:remove()
    assert.equal(2, net:size())
    net:evaluate()
    assert.is_false(net:get(2).train)
    net:forward(torch.ones(1, 2))
    assert.is_true(net:clearState() == net and net.output:dim() == 0)
    local ok, e = pcall(function() net:forward(torch.ones(1, 5)) end)
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find('In 2 module of nn.Sequential', 1, true) and tostring(e):find('size mismatch', 1, true))
    assert.is_truthy(tostring(net):find('(2): nn.Linear(2 -> 2)', 1, true))
  end)
  it('may be written by the user', function()
    local space = {}
    local Double, parent = torch.class('spec_t7.Double', 'nn.Module', space)
    function Double:__init() parent.__init(self) end
    function Double:updateOutput(x)
      self.output:resizeAs(x):copy(x):mul(2)
      return self.output
    end
    function Double:updateGradInput(_, g)
      self.gradInput:resizeAs(g):copy(g):mul(2)
      return self.gradInput
    end
    local net = nn.Sequential():add(nn.Linear(3, 3)):add(space.Double()):add(nn.Tanh())
    near(nn.Jacobian.testJacobian(net, torch.Tensor(2, 3)), 0, 1e-5)
    assert.is_true((net:clone():forward(torch.ones(1, 3)) - net:forward(torch.ones(1, 3))):abs():max() == 0)
  end)
  it('leaves what was taken from a result alone', function()
    local m, x = nn.Linear(3, 2), torch.ones(4, 3)
    local taken = {}
    local out = m:forward(x)
    taken[1], taken[2], taken[3] = out:squeeze(2), out:narrow(1, 1, 4), out:view(8)
    taken[4] = torch.repeatTensor(out, 1, 1)
    local first = out:clone()
    m:backward(x, out)
    local grad = m.gradInput:expand(4, 3)
    for _ = 1, 3 do
      m:forward(x * 2)
      m:backward(x * 2, out)
    end
    for i = 1, 4 do near((taken[i] - first:viewAs(taken[i])):abs():max(), 0) end
    assert.equal(12, grad:nElement())
    near(grad:sum(), grad:sum())
    is(m.output, out:totable()) -- the result itself is the tensor of the last call
  end)
  it('draws once a forward pass', function()
    local m, x = nn.Dropout(0.5), torch.ones(100)
    local y = m:forward(x):clone()
    is(m:backward(x, x), y:totable())
    is(m:updateGradInput(x, x), y:totable())
    m:evaluate()
    is(m:forward(x), x:totable())
    local bn = nn.BatchNormalization(2, 1e-5, 1)
    local v = torch.Tensor { { 1, 2 }, { 3, 6 } }
    bn:forward(v)
    bn:backward(v, v)
    is(bn.running_mean, { 2, 4 })
    is(bn.running_var, { 2, 8 })
  end)
  it('learns, with criteria as numbers', function()
    torch.manualSeed(1)
    local net = nn.Sequential():add(nn.Linear(4, 8)):add(nn.Tanh()):add(nn.Linear(8, 3)):add(nn.LogSoftMax())
    local criterion = nn.ClassNLLCriterion()
    local p, g = net:getParameters()
    local x, y = torch.randn(12, 4), torch.range(0, 11):fmod(3):add(1)
    for name, config in pairs { sgd = { learningRate = 0.5, momentum = 0.9, dampening = 0 }, adam = { learningRate = 0.05 },
      lbfgs = { maxIter = 10 }, rmsprop = { learningRate = 0.01 } } do
      net:reset()
      local first, last
      for _ = 1, 30 do
        local _, f = optim[name](function()
          g:zero()
          local out = net:forward(x)
          local loss = criterion:forward(out, y)
          net:backward(x, criterion:backward(out, y))
          return loss, g
        end, p, config)
        first, last = first or f[1], f[#f]
      end
      assert.equal('number', type(last))
      assert.is_true(last < first * 0.7, ('%s: %g to %g'):format(name, first, last))
    end
    local pair = nn.ParallelCriterion():add(nn.MSECriterion(), 2):add(nn.AbsCriterion())
    near(pair:forward({ torch.ones(2), torch.ones(2) }, { torch.zeros(2), torch.zeros(2) }), 3)
    local d = pair:backward({ torch.ones(2), torch.ones(2) }, { torch.zeros(2), torch.zeros(2) })
    is(d[1], { 2, 2 })
    is(d[2], { 0.5, 0.5 })
  end)
end)

describe('scripts of Torch7', function()
  it('get its packages by name after one call, and not before', function()
    local out = H.child [[
assert(not pcall(require, 'torch') and rawget(_G, 'torch') == nil)
amp.torch7.install()
require 'torch'; require 'nn'; require 'optim'; require 'paths'; require 'xlua'; require 'image'; require 'nngraph'; require 'lfs'
local threads = require 'threads'
assert(torch.type(torch.Tensor(2)) == 'torch.DoubleTensor' and nn.Linear and optim.sgd and nngraph)
-- a net as char-rnn has them
local x, prev = nn.Identity()(), nn.Identity()()
local all = nn.Linear(3, 8)(x):annotate {name = 'i2h'}
local sum = nn.CAddTable()({all, nn.Linear(2, 8)(prev)})
local n1, n2, n3, n4 = nn.SplitTable(2)(nn.Reshape(4, 2)(sum)):split(4)
local c = nn.CAddTable()({nn.CMulTable()({nn.Sigmoid()(n1), nn.Tanh()(n4)}), nn.CMulTable()({nn.Sigmoid()(n2), prev})})
local h = nn.CMulTable()({nn.Sigmoid()(n3), nn.Tanh()(c)})
local net = nn.gModule({x, prev}, {c, h})
for _, node in ipairs(net.forwardnodes) do
  if node.data.annotations.name == 'i2h' then node.data.module.bias[{{3, 4}}]:fill(1) end
end
local input = {torch.randn(5, 3), torch.randn(5, 2)}
local p, g = net:getParameters()
local function loss()
  local o = net:forward(input)
  return o[1]:sum() + 2 * o[2]:sum()
end
loss()
g:zero()
local gi = net:backward(input, {torch.ones(5, 2), torch.ones(5, 2):mul(2)})
for _, t in ipairs {{p, g}, {input[1]:view(-1), gi[1]:clone():view(-1)}, {input[2]:view(-1), gi[2]:clone():view(-1)}} do
  for i = 1, t[1]:nElement(), 5 do
    local was = t[1][i]
    t[1][i] = was + 1e-6
    local up = loss()
    t[1][i] = was - 1e-6
    local slope = (up - loss()) / 2e-6
    t[1][i] = was
    assert(math.abs(slope - t[2][i]) < 1e-4, slope .. ' ' .. t[2][i])
  end
end
local copy = net:clone('weight', 'bias', 'gradWeight', 'gradBias')
assert(torch.pointer(copy:parameters()[1]:storage()) == torch.pointer(p:storage()))
local order = {}
local pool = threads.Threads(0, function(id) order[#order + 1] = 'start' .. id end)
pool:addjob(function() return 5 end, function(v) order[#order + 1] = v end)
pool:synchronize()
assert(table.concat(order, ',') == 'start1,5')
local ok, e = pcall(require, 'cunn')
assert(ok or tostring(e):find 'no GPU')
assert(paths.basename '/a/b.t7' == 'b.t7' and lfs.attributes('/tmp', 'mode') == 'directory')
local i = image.scale(torch.ones(3, 4, 4), 2, 2)
assert(i:size(2) == 2 and image.hflip(torch.range(1, 2):view(1, 1, 2))[1][1][1] == 2)
print 'fine']]
    assert.equal('fine\n', out)
  end)
  it('load data through pools of workers, each with its own globals', function()
    local out = H.child [[
amp.torch7.install()
local threads = require 'threads'
threads.serialization 'threads.sharedserialize'
local function loader(rows)
  local pool, sizes = threads(2, function() torch.class 'spec_worker.Set' end, function(id)
    _G.rows = rows
    mine = id
    return #rows, id
  end)
  assert(#sizes == 2 and sizes[1][1] == #rows and sizes[2][2] == 2)
  return pool
end
local train, test = loader {5, 6, 7, 8, 9}, loader {1}
assert(rawget(_G, 'rows') == nil and mine == nil)
-- the queue that a loader fills ahead and empties one by one
local function run(pool, n)
  local seen, at, last = {}, 1, nil
  local function fill()
    while at <= n and pool:acceptsjob() do
      pool:addjob(function(i) return rows[i] + _G.rows[1] / 100, mine end, function(v, id) last = v .. ':' .. id end, at)
      at = at + 1
    end
  end
  fill()
  while pool:hasjob() do
    pool:dojob()
    seen[#seen + 1] = last
    fill()
  end
  return table.concat(seen, ' ')
end
local text = run(train, 5)
assert(text == '5.05:1 6.05:2 7.05:1 8.05:2 9.05:1', text)
assert(run(test, 1):match '^1.01:%d$')
-- a full queue empties itself; an upvalue counts as it was when the job came
local got, k = {}, 0
for i = 1, 5 do
  k = i
  train:addjob(function() return k end, function(v) got[#got + 1] = v end)
end
k = 100
assert(#got == 3, #got)
train:synchronize()
assert(table.concat(got, ',') == '1,2,3,4,5')
-- errors wait: of the job, and of what takes its results
train:addjob(function() error 'broken job' end)
train:dojob()
assert(train:haserror())
local ok, e = pcall(train.synchronize, train)
assert(not ok and tostring(e):find 'broken job' and not train:haserror())
train:addjob(function() return 1 end, function() error 'broken end' end)
ok, e = pcall(train.synchronize, train)
assert(not ok and tostring(e):find 'endcallback%] .*broken end')
train:specific(true)
local which
train:addjob(2, function() return mine end, function(id) which = id end)
train:synchronize()
assert(which == 2)
assert(not pcall(train.addjob, train, 3, function() end))
train:terminate()
assert(not pcall(train.addjob, train, 1, function() end))
ok, e = pcall(threads, 1, function() torch.class 'nn.Linear' end)
assert(not ok and tostring(e):find 'there already')
print 'fine']]
    assert.equal('fine\n', out)
  end)
  it("work without a GPU where they ask for it, if told to", function()
    local out = H.child [[
amp.torch7.install {cuda = 'pretend'}
require 'cunn'; require 'cudnn'
local net = nn.Sequential():add(cudnn.SpatialConvolution(1, 2, 3, 3)):add(cudnn.ReLU(true)):cuda()
assert(net:forward(torch.randn(1, 1, 4, 4):cuda()):size(2) == 2 and cutorch.getDeviceCount() == 1)
local ok, e = pcall(amp.torch7.install, {gpu = true})
assert(not ok and tostring(e):find("'gpu'"))
print 'fine']]
    assert.equal('fine\n', out)
  end)
end)

describe('second derivatives and sparse layers', function()
  it('are the squares of what is linear, and of the slopes of what is not', function()
    local out = H.child [[
amp.torch7.install()
local function near(a, b) assert(math.abs(a - b) < 1e-9, a .. ' ' .. b) end
assert(not pcall(function() return nn.Linear(2, 2):updateDiagHessianInput() end))
nn.hessian.enable()
nn.hessian.enable()
for _, c in ipairs {{nn.Linear(4, 3), {4}}, {nn.Linear(3, 2), {5, 3}}, {nn.SpatialConvolution(2, 3, 3, 2, 2, 1), {2, 5, 4}},
  {nn.SpatialFullConvolution(2, 3, 3, 3), {2, 3, 3}}, {nn.SpatialConvolutionMap(nn.tables.full(2, 3), 2, 2), {2, 3, 3}}} do
  local x = torch.Tensor(unpack(c[2]))
  near(nn.Jacobian.testDiagHessianInput(c[1], x), 0)
  near(nn.Jacobian.testDiagHessianWeight(c[1], x), 0)
  near(nn.Jacobian.testDiagHessianBias(c[1], x), 0)
end
-- one neuron, by hand: e = (tanh(w x + b) - y)^2
local net = nn.Sequential():add(nn.Linear(1, 1)):add(nn.Tanh()):add(nn.Reshape(1))
net:initDiagHessianParameters()
local p, g, h = net:getParameters()
p:copy(torch.Tensor {0.5, 0.1})
local x, y, loss = torch.Tensor {2}, torch.Tensor {1}, nn.MSECriterion()
local t = math.tanh(1.1)
loss:forward(net:forward(x), y)
near(net:updateDiagHessianInput(x, loss:updateDiagHessianInput(net.output, y))[1], 2 * (1 - t * t) ^ 2 * 0.25)
net:accDiagHessianParameters(x, loss.diagHessianInput)
near(h[1], 2 * (1 - t * t) ^ 2 * 4)
near(h[2], 2 * (1 - t * t) ^ 2)
near(g:norm(), 0)
local c = nn.L1Cost()
assert(c:updateDiagHessianInput(torch.Tensor {0, -2, 3}):sum() == 2)
assert(not pcall(function() nn.SoftMax():updateDiagHessianInput(x, x) end))
print 'fine']]
    assert.equal('fine\n', out)
  end)
  it('agree with every way to change a parameter', function()
    local m, x = nn.Linear(3, 2), torch.randn(4, 3)
    for _, name in ipairs { 'Weight', 'Bias' } do
      local n = 0
      for what, e in pairs(nn.Jacobian.testAllUpdate(m, x, name:lower(), 'grad' .. name)) do
        near(e, 0, 1e-9)
        n = n + 1
        assert.is_true(what:match '^acc' ~= nil)
      end
      assert.equal(4, n)
    end
  end)
  it('of keys and values give what dense ones do', function()
    local dense = nn.Linear(6, 2)
    local sparse = nn.IndexLinear(6, 2, true)
    sparse.weight:copy(dense.weight:t())
    sparse.bias:copy(dense.bias)
    local keys, values = { torch.LongTensor { 2, 5 }, torch.LongTensor { 6, 1, 2 } }, { torch.Tensor { 3, -1 }, torch.Tensor { 0.5, 2, 4 } }
    local x = torch.Tensor { { 0, 3, 0, 0, -1, 0 }, { 2, 4, 0, 0, 0, 0.5 } }
    local g = torch.Tensor { { 1, 2 }, { 3, -4 } }
    local function same(a, b) near((a - b):abs():max(), 0) end
    local forms = { { keys, values }, { torch.LongTensor { 2, 5, 6, 1, 2 }, torch.Tensor { 3, -1, 0.5, 2, 4 }, torch.LongTensor { 2, 3 } } }
    for _, input in ipairs(forms) do
      same(sparse:forward(input), dense:forward(x))
      for k = 1, 2 do
        dense:zeroGradParameters()
        sparse:zeroGradParameters()
        for _ = 1, k do
          local gi = sparse:backward(input, g, 0.5)
          local want = dense:backward(x, g, 0.5)
          same(#input == 3 and gi[2] or gi[2][1], #input == 3 and want or want[1])
          is(#input == 3 and gi[1][2] or gi[1][2], { 1, 2, 3, 4, 5, 6 })
        end
        sparse:updateParameters(0.1)
        dense:updateParameters(0.1)
      end
      same(sparse.weight:t(), dense.weight)
      same(sparse.bias, dense.bias)
      dense:backwardUpdate(x, g, 0.2)
      sparse:backwardUpdate(input, g, 0.2)
      same(sparse.weight:t(), dense.weight)
    end
    same(sparse:forward { keys[1], values[1] }, dense:forward(x[1]))
    same(sparse:backward({ keys[1], values[1] }, g[1])[2], dense:backward(x[1], g[1]))
    -- a key twice counts twice; keys from 0
    local zero = nn.IndexLinear(3, 1, false, 1, torch.Tensor { { 1 }, { 10 }, { 100 } }, torch.zeros(1))
    is(zero:forward { torch.LongTensor { 1, 1, 0 }, torch.Tensor { 1, 2, 3 } }, { 33 })
    zero:zeroGradParameters()
    zero:backward({ torch.LongTensor { 1, 1, 0 }, torch.Tensor { 1, 2, 3 } }, torch.ones(1))
    zero:updateParameters(1)
    is(zero.weight, { { -2 }, { 7 }, { 100 } })
    H.fails_here(function() zero:forward { torch.LongTensor { 1 }, torch.Tensor { 1, 2 } } end, 'one length')
    H.fails_here(function() sparse:forward { torch.LongTensor { 1 }, torch.Tensor { 1 }, torch.LongTensor { 2 } } end, 'sizes of 1')
    H.fails_here(function() nn.IndexLinear(2, 2, false, nil, nil, nil, true) end, 'normalize')
  end)
end)

describe('modules whose fields scripts use', function()
  local function same(a, b) near((a - b):abs():max(), 0) end
  it('convert layouts by their letters', function()
    local x = torch.randn(2, 3, 4, 5)
    for layout, order in pairs { chwb = { 2, 3, 4, 1 }, bhwc = { 1, 3, 4, 2 }, whcb = { 4, 3, 2, 1 } } do
      local c = nn.Convert('bchw', layout)
      local want = x:permute(unpack(order))
      local y = c:forward(x)
      is(y, want:totable())
      is(c:backward(x, y), x:totable())
    end
    local c = nn.Convert('chwb', 'bf')
    local y = c:forward(x:permute(2, 3, 4, 1))
    is(y, x:view(2, 60):totable())
    is(c:backward(x:permute(2, 3, 4, 1), y), x:permute(2, 3, 4, 1):totable())
    is(nn.Convert('chw', 'hwc'):forward(x[1]), x[1]:permute(2, 3, 1):totable())
    H.fails_here(function() nn.Convert('bchw', 'bcht'):forward(x) end, 'cannot be made')
  end)
  it('flatten tables of the tensors themselves, anew only where they changed', function()
    local a, b, c = torch.ones(1), torch.ones(2), torch.ones(3)
    local m, input = nn.FlattenTable(), { a, { b, { c } } }
    local y, map = m:forward(input), m.input_map
    assert.is_true(y[1] == a and y[2] == b and y[3] == c and #y == 3)
    local g = m:backward(input, { a, b, c })
    assert.is_true(g[1] == a and g[2][1] == b and g[2][2][1] == c)
    assert.is_true(m:forward(input) == y and m.input_map == map)
    table.insert(input, torch.ones(4))
    assert.is_true(m:forward(input) ~= y and m.input_map ~= map and #m.output == 4)
    local s = nn.Contiguous()
    local first = s:forward(a)
    assert.is_true(first ~= a and first:storage() == a:storage())
    local t = torch.randn(2, 3):t()
    is(s:forward(t), t:totable())
    assert.is_true(s.output == first and s.output:isContiguous())
    is(s:backward(t, t), t:totable())
  end)
  it('cross the entropy by nll, which may be set', function()
    local x, y = torch.randn(4, 3), torch.LongTensor { 1, 3, 2, 3 }
    local c, both = nn.CrossEntropyCriterion(torch.Tensor { 1, 2, 3 }), nn.Sequential():add(nn.LogSoftMax())
    local nll = nn.ClassNLLCriterion(torch.Tensor { 1, 2, 3 })
    for _, average in ipairs { true, false } do
      c.nll.sizeAverage, nll.sizeAverage = average, average
      near(c:forward(x, y), nll:forward(both:forward(x), y))
      same(c:backward(x, y), both:backward(x, nll:backward(both.output, y)))
    end
    c.sizeAverage = false
    c:forward(x, y)
    assert.is_false(c.nll.sizeAverage)
    local one = nn.CrossEntropyCriterion()
    local loss = one:forward(x[1], 2)
    near(one:forward(x[1]:view(1, 3), torch.LongTensor { 2 }), loss)
    near(one:forward(x[1]:view(1, 3, 1, 1), torch.LongTensor { 2 }:view(1, 1, 1)), loss)
    assert.same({ 1, 3, 1, 1 }, one:backward(x[1]:view(1, 3, 1, 1), torch.LongTensor { 2 }:view(1, 1, 1)):size():totable())
    near(nn.CrossEntropyCriterion(nil, true, 2):forward(x, torch.LongTensor { 1, 2, 2, 2 }), one:forward(x[1], 1))
  end)
  it('find the centres of samples', function()
    torch.manualSeed(3)
    local x = torch.Tensor { { 0, 0 }, { 0, 1 }, { 9, 9 }, { 9, 8 }, { -9, 5 } }
    for _, init in ipairs { 'initRandom', 'initKmeansPlus' } do
      local best = math.huge
      for _ = 1, 10 do
        local m = nn.Kmeans(3, 2)
        m[init](m, x)
        for _ = 1, 10 do
          m:zeroGradParameters()
          m:forward(x)
          m:backward(x)
          m:updateParameters(1)
        end
        best = math.min(best, m.loss)
      end
      near(best, 1, 1e-9)
    end
    local m = nn.Kmeans(2, 2)
    m.weight:copy(torch.Tensor { { 1, 0 }, { 8, 8 } })
    is(m:forward(x), { 1, 1, 2, 2, 1 })
    near(m.loss, 1 + 2 + 2 + 1 + 125)
    m:zeroGradParameters()
    is(m:backward(x), { { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 } })
    near(m.gradWeight[1][1], 4)
    near(m.gradWeight[2][2], -0.5)
    H.fails_here(function() m:forward(torch.ones(2, 3)) end, 'rows of 2')
  end)
  it('keep the type outside, and give sparse gradients of all places', function()
    local inner = nn.Linear(2, 1):float()
    local m = nn.DontCast(inner, true)
    assert.equal('torch.DoubleTensor', m:forward(torch.ones(3, 2)):type())
    assert.equal('torch.DoubleTensor', m:backward(torch.ones(3, 2), torch.ones(3, 1)):type())
    assert.equal('torch.FloatTensor', m:float():forward(torch.ones(3, 2):float()):type())
    local part, all, rows = nn.PartialLinear(3, 5), nn.Linear(3, 5), torch.randn(4, 3)
    all.weight:copy(part.network:get(1):get(2).weight)
    part.bias:uniform()
    all.bias:copy(part.bias)
    same(part:forward(rows), all:forward(rows))
    local chosen = torch.LongTensor { 4, 2 }
    part:setPartition(chosen)
    same(part:forward(rows), all:forward(rows):index(2, chosen))
    near(nn.SparseJacobian.testJacobian(part, rows), 0, 1e-6)
    local params, grads = part:parameters()
    for i = 1, 2 do near(nn.Jacobian.testJacobianParameters(part, rows, params[i], grads[i]), 0, 1e-6) end
    for i = 1, 2 do near(nn.Jacobian.testJacobianUpdateParameters(part, rows, params[i]), 0, 1e-6) end
    assert.equal('torch.FloatTensor', part:float():forward(rows:float()):type())
    local up, big = nn.SpatialFullConvolution(1, 1, 2, 2, 2, 2), torch.ones(1, 5, 4)
    local y = up:forward { torch.ones(1, 2, 2), big }
    assert.same({ 1, 5, 4 }, y:size():totable())
    local none = up:backward({ torch.ones(1, 2, 2), big }, y)[2]
    assert.is_true(none:isSameSizeAs(big) and none:sum() == 0 and none:storage():size() == 1) -- no memory for what is nothing
    local s = nn.SparseLinear(3, 2, true)
    local x, g = torch.Tensor { { 1, 2 }, { 3, 4 } }, torch.Tensor { 1, 2 }
    s:zeroGradParameters()
    s:forward(x)
    local gi = s:backward(x, g)
    is(gi[1]:select(2, 1), { 1, 2, 3 })
    same(gi[1]:select(2, 2), s.weight:t() * g)
    is(s.gradWeight, { { 2, 0, 4 }, { 4, 0, 8 } })
    near(nn.SparseJacobian.testJacobian(s, x), 0, 1e-6)
    assert.equal(1, nn.Add(5, 1, 2).bias:size(1))
  end)
end)

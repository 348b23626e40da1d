--- nn on Torch7's own tensors: gradients by differences, tables, containers, shared and flattened parameters, copies, files, graphs.
local H = require 'spec.helper'
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

--- amp.torch7.nn's layers and criteria: what Torch7 gave for one image, for dimensions from the end, in evaluation, at edges; arguments that
-- are not known are errors.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local t7 = amp.torch7
local torch, nn = t7.torch, t7.nn

local function near(got, want) assert.is_true(math.abs(got - want) < 1e-5, ('%s, expected %s'):format(tostring(got), tostring(want))) end

local function one_is_batch_of_one(make, shape)
  local x = torch.randn(unpack(shape))
  local m = make()
  m:eval()
  local batch = { 1, unpack(shape) }
  H.close(m:forward(x), m:forward(x:view(unpack(batch)))[1], 100)
end

describe('a layer of torch7.nn', function()
  it('takes one image as a batch of one', function()
    for name, c in pairs {
      SpatialCrossMapLRN = { function() return nn.SpatialCrossMapLRN(3, 1, 0.75, 1) end, { 6, 4, 4 } },
      SpatialUpSamplingNearest = { function() return nn.SpatialUpSamplingNearest(2) end, { 3, 4, 5 } },
      SpatialUpSamplingBilinear = { function() return nn.SpatialUpSamplingBilinear(2) end, { 3, 4, 5 } },
      SpatialBatchNormalization = { function() return nn.SpatialBatchNormalization(3) end, { 3, 4, 5 } },
      SpatialConvolution = { function() return nn.SpatialConvolution(3, 2, 3, 3) end, { 3, 5, 5 } },
      SpatialFullConvolution = { function() return nn.SpatialFullConvolution(3, 2, 3, 3, 2, 2) end, { 3, 4, 4 } },
      SpatialMaxPooling = { function() return nn.SpatialMaxPooling(2, 2) end, { 3, 4, 4 } },
      SpatialLPPooling = { function() return nn.SpatialLPPooling(3, 2, 2, 2) end, { 3, 4, 4 } },
      SpatialSubSampling = { function() return nn.SpatialSubSampling(3, 2, 2) end, { 3, 4, 4 } },
      SpatialConvolutionLocal = { function() return nn.SpatialConvolutionLocal(2, 3, 4, 4, 3, 3) end, { 2, 4, 4 } },
      VolumetricConvolution = { function() return nn.VolumetricConvolution(2, 3, 2, 2, 2) end, { 2, 3, 4, 4 } },
      VolumetricAveragePooling = { function() return nn.VolumetricAveragePooling(2, 2, 2) end, { 2, 4, 4, 4 } },
      TemporalConvolution = { function() return nn.TemporalConvolution(3, 2, 2) end, { 5, 3 } },
      TemporalMaxPooling = { function() return nn.TemporalMaxPooling(2) end, { 4, 3 } },
      PixelShuffle = { function() return nn.PixelShuffle(2) end, { 4, 3, 3 } },
      SpatialContrastiveNormalization = { function() return nn.SpatialContrastiveNormalization(2, torch.ones(3, 3)) end, { 2, 5, 5 } },
    } do
      local ok, e = pcall(one_is_batch_of_one, c[1], c[2])
      assert.is_true(ok, name .. ': ' .. tostring(e))
    end
    assert.same({ 3, 8, 10 }, H.shape(nn.SpatialUpSamplingNearest(2):forward(torch.ones(3, 4, 5))))
    H.fails_here(function() nn.SpatialBatchNormalization(3):training():forward(torch.ones(5)) end)
  end)
  it('drops as it was trained', function()
    local x = torch.ones(2, 8, 3, 3)
    for name, c in pairs { Dropout = { true, 0.5 }, SpatialDropout = { nil, 0.5 }, VolumetricDropout = { nil, 0.5 } } do
      local m = nn[name](0.5, c[1])
      m:eval()
      local given = name == 'VolumetricDropout' and x:view(1, 16, 1, 3, 3) or x
      assert.equal(c[2], m:forward(given):max():item(), name)
      assert.equal(c[2], m:forward(given):min():item(), name)
      m:train()
      assert.equal(1, m:forward(given):max():item(), name .. ' in training is not scaled')
    end
    local m = nn.Dropout(0.5)
    m:eval()
    assert.equal(1, m:forward(x):max():item())
    m:train()
    assert.equal(2, m:forward(x):max():item())
    local planes = nn.SpatialDropout(0.5):forward(torch.ones(32, 3, 3)):reshape(32, 9)
    H.close(planes:max(2), planes:min(2), H.exact) -- whole planes, of one image too
    local always = nn.Dropout(0.5, false, false, true)
    always:eval()
    assert.is_true(always:forward(torch.ones(1000)):eq(0):any():item()) -- stochastic inference
    for _, o in ipairs { { __typename = 'nn.Dropout', p = 0.5, train = false }, { __typename = 'nn.Dropout', p = 0.5, v2 = true, train = false },
      { __typename = 'nn.VolumetricDropout', p = 0.25, train = false } } do
      local want = o.__typename == 'nn.Dropout' and (o.v2 and 1 or 0.5) or 0.75
      H.close(t7.convert(o):forward(torch.ones(1, 1, 2, 2, 2)):max(), want)
    end
  end)
  it('counts dimensions within an example, and from the end', function()
    assert.same({ 4, 1, 3 }, H.shape(nn.Unsqueeze(1, 1):forward(torch.ones(4, 3))))
    assert.same({ 4, 3 }, H.shape(nn.Squeeze(1, 2):forward(torch.ones(4, 1, 3))))
    assert.same({ 1, 3 }, H.shape(nn.Squeeze(nil, 2):forward(torch.ones(1, 1, 3))))
    assert.same({ 2, 6 }, H.shape(nn.JoinTable(-1, 1):forward { torch.ones(2, 3), torch.ones(2, 3) }))
    assert.equal(3, #nn.SplitTable(-1, 1):forward(torch.ones(2, 3)))
    assert.same({ 2, 2 }, H.shape(nn.Narrow(-1, 2, 2):forward(torch.ones(2, 3))))
    H.close(nn.Select(-1, -1):forward(torch.Tensor { { 1, 2 }, { 3, 4 } }), { 2, 4 })
    H.close(nn.Max(-1):forward(torch.Tensor { { 1, 2 }, { 5, 4 } }), { 2, 5 })
    H.close(nn.Mean(1, 1):forward(torch.Tensor { { 1, 3 }, { 5, 7 } }), { 2, 6 })
    H.close(nn.Sum(2, nil, true):forward(torch.Tensor { { 1, 3 }, { 5, 7 } }), { 2, 6 })
    assert.same({ 2, 1 }, H.shape(nn.Sum(2, nil, false, false):forward(torch.ones(2, 3))))
    assert.same({ 2, 4, 3 }, H.shape(nn.Replicate(4, 1, 1):forward(torch.ones(2, 3))))
    assert.same({ 4, 10 }, H.shape(nn.View(10):forward(torch.ones(2, 2, 10))))
    H.close(nn.Padding(1, -2, 1, 7):forward(torch.Tensor { 1, 2 }), { 7, 7, 1, 2 })
    H.fails_here(function() nn.View(3):forward(torch.ones(2, 2)) end, 'cannot be seen as 3')
  end)
  it('has Torch7\'s gradient where there is none', function()
    local function gradient(m, values)
      local x = amp.tensor(values, { dtype = 'float64' })
      x.requires_grad = true
      m:forward(x):sum():backward()
      return x.grad
    end
    H.close(gradient(nn.Sqrt(), { 0, 4 }), { 0, 0.25 })
    H.close(gradient(nn.Abs(), { 0, -2 }), { 1, -1 })
    H.close(gradient(nn.HardTanh(), { -1, 1, 0.5 }), { 0, 0, 1 })
    H.close(nn.AbsCriterion():backward(torch.Tensor { 1, 2 }, torch.Tensor { 1, 3 }), { 0.5, -0.5 })
    local a = amp.tensor({ 1, 1 }, { dtype = 'float64' })
    local t = { amp.tensor({ 1, 3 }, { dtype = 'float64' }), a }
    t[1].requires_grad = true
    nn.CMaxTable():forward(t):sum():backward()
    H.close(t[1].grad, { 1, 1 }) -- of equal elements the first
    local p = { amp.tensor({ { 1, 2 } }, { dtype = 'float64' }), amp.tensor({ { 1, 2 } }, { dtype = 'float64' }) }
    p[1].requires_grad = true
    nn.PairwiseDistance(2):forward(p):sum():backward()
    H.close(p[1].grad, { s = { 1, 2 }, v = { 0, 0 } })
  end)
  it('refuses arguments that it does not know', function()
    for name, args in pairs { ReLU6 = { true, 1 }, Tanh = { 1 }, SpatialConvolution = { 1, 1, 1, 1, 1, 1, 0, 0, 1 },
      Sqrt = { 5 }, Dropout = { 1 }, CSubTable = { true },
      SpatialMaxPooling = { 2, 2, 2, 2, 0, 0, 1 }, ClassNLLCriterion = { nil, true, 1, 2 }, MSECriterion = { 'x' }, LeakyReLU = { 'x' }, HardTanh = { 1, -1 },
      SpatialBatchNormalization = { 2, nil, nil, 1 }, Concat = { 1, 2 }, SpatialUpSamplingNearest = { 1.5 }, View = { -1, -1 }, Bilinear = { 1, 2 } } do
      local ok, e = pcall(function() return nn[name](unpack(args, 1, table.maxn(args))) end)
      assert.is_false(ok, name .. ' took them')
      assert.is_truthy(tostring(e):find(name, 1, true) or tostring(e):find('nn.', 1, true), tostring(e))
    end
    H.fails_here(function() nn.SpatialUpSamplingBilinear { owidth = 3, oheigth = 4 } end, 'oheigth')
  end)
  it('keeps Torch7\'s names for what a file holds', function()
    local m = t7.convert { __typename = 'nn.LookupTable', weight = amp.tensor { { 3, 4 }, { 0, 1 } }, maxNorm = 1, paddingValue = 0, train = true }
    H.close(m:forward(torch.LongTensor { 1 }), { s = { 1, 2 }, v = { 0.6, 0.8 } }, 1e4)
    local v = t7.convert { __typename = 'nn.View', size = amp.tensor({ 4 }, { dtype = 'int64' }), numElements = 4, numInputDims = 2 }
    assert.same({ 3, 4 }, H.shape(v:forward(torch.ones(3, 2, 2))))
    local map = t7.convert { __typename = 'nn.SpatialConvolutionMap', connTable = amp.tensor { { 1, 1 }, { 2, 1 } }, kW = 1, kH = 1, dW = 1, dH = 1,
      weight = amp.ones(2, 1, 1), bias = amp.zeros(1), nInputPlane = 2, nOutputPlane = 1 }
    H.close(map:forward(torch.ones(2, 1, 1)), { s = { 1, 1, 1 }, v = { 2 } })
  end)
end)

describe('a criterion of torch7.nn', function()
  local logs = torch.Tensor { { -1, -2, -3 }, { -1, -2, -3 } }
  it('gives a number and holds nothing', function()
    local x = amp.ones(2)
    x.requires_grad = true
    local loss = nn.MSECriterion():forward(x * 2, torch.zeros(2))
    assert.equal('number', type(loss))
    assert.equal('4.0', ('%.1f'):format(loss))
    assert.equal(4, loss:item())
    H.fails_here(function() return loss:backward() end, 'criterion:backward')
    H.fails_here(function() return (5).foo end, 'index a number value')
    local tensor = nn.MSECriterion()(x * 2, torch.zeros(2))
    tensor:backward()
    H.close(x.grad, { 4, 4 })
  end)
  it('leaves labels out that are to be ignored, and weighs classes', function()
    near(nn.ClassNLLCriterion(nil, true, 2):forward(logs, torch.LongTensor { 1, 2 }), 1)
    near(nn.ClassNLLCriterion(nil, false, 2):forward(logs, torch.LongTensor { 1, 2 }), 1)
    near(nn.ClassNLLCriterion(nil, true, 0):forward(logs, torch.LongTensor { 0, 3 }), 3)
    assert.equal(0, nn.ClassNLLCriterion(nil, true, 2):forward(logs, torch.LongTensor { 2, 2 }))
    near(nn.ClassNLLCriterion(torch.Tensor { 1, 3, 1 }):forward(logs, torch.LongTensor { 1, 2 }), (1 + 3 * 2) / 4)
    near(nn.ClassNLLCriterion(torch.Tensor { 1, 3, 1 }, false):forward(logs, torch.LongTensor { 1, 2 }), 7)
    H.close(nn.ClassNLLCriterion():backward(logs, torch.LongTensor { 1, 2 }), { s = { 2, 3 }, v = { -0.5, 0, 0, 0, -0.5, 0 } })
    near(nn.SpatialClassNLLCriterion():forward(torch.Tensor { { { -1, -2 } }, { { -3, -4 } } }, torch.LongTensor { { 1, 2 } }), 2.5)
    H.fails_here(function() nn.ClassNLLCriterion():forward(logs, torch.LongTensor { 1, 4 }) end, '4')
    H.fails_here(function() nn.MSECriterion():forward(torch.ones(3), torch.ones(2)) end, 'target of 2', '3')
  end)
  it('has the defaults and sums that it had', function()
    near(nn.MarginRankingCriterion():forward({ torch.Tensor { 2 }, torch.Tensor { 1.5 } }, 1), 0.5) -- a margin of 1
    near(nn.MultiLabelSoftMarginCriterion(nil, false):forward(torch.zeros(2, 3), torch.ones(2, 3)), 6 * math.log(2))
    near(nn.BCECriterion(torch.Tensor { 1, 0 }):forward(torch.Tensor { { 0.5, 0.5 } }, torch.ones(1, 2)), math.log(2) / 2)
    near(nn.CosineEmbeddingCriterion(0.5):forward({ torch.Tensor { 1, 0 }, torch.Tensor { 1, 0 } }, -1), 0.5)
    near(nn.L1HingeEmbeddingCriterion(3):forward({ torch.Tensor { 1, 0 }, torch.Tensor { 0, 1 } }, -1), 1)
    near(nn.WeightedMSECriterion(torch.Tensor { 2, 0 }):forward(torch.Tensor { 2, 1 }, torch.Tensor { 1, 5 }), 0.5)
    near(nn.HingeEmbeddingCriterion(2):forward(torch.Tensor { 1, 1.5 }, torch.Tensor { 1, -1 }), 0.75)
  end)
end)

describe('tensors of torch7', function()
  it('are picked from by masks of bytes', function()
    local x = torch.Tensor { 7, 8, 9 }
    H.close(x[torch.ByteTensor { 1, 1, 1 }], { 7, 8, 9 })
    H.close(x[torch.ByteTensor { 0, 1, 1 }], { 8, 9 })
    x[torch.ByteTensor { 1, 0, 1 }] = 0
    H.close(x, { 0, 8, 0 })
    H.close(x:maskedFill(torch.ByteTensor { 0, 1, 0 }, 3), { 0, 3, 0 })
    H.close(x:maskedCopy(torch.ByteTensor { 1, 0, 1 }, torch.Tensor { 5, 6 }), { 5, 3, 6 })
    H.close(x:maskedSelect(torch.ByteTensor { 1, 0, 0 }), { 5 })
  end)
  it('of bytes are masks through views, copies and arithmetic; bytes of amp beside them are positions', function()
    local x = amp.tensor { 7, 8, 9 }
    H.close(x[amp.tensor({ 1, 1, 1 }, { dtype = 'uint8' })], { 7, 7, 7 })
    H.close(x[amp.tensor { 3, 1 }:byte()], { 9, 7 })
    local m = torch.ByteTensor { 1, 1, 1 }
    assert.equal('uint8', m.dtype)
    for name, mask in pairs { clone = m:clone(), view = m:view(3), narrow = torch.ByteTensor { 1, 1, 1, 0 }:narrow(1, 1, 3), product = m * m,
      rest = 1 - torch.ByteTensor(3), new = m.new { 1, 1, 1 }, type = torch.ones(3):type 'torch.ByteTensor', like = amp.ones(3):typeAs(m),
      method = m:new { 1, 1, 1 }, shared = torch.ByteTensor(amp.ones(3):byte()), sum = m + 0, twice = m:byte(),
      detached = m:detach(), listed = m[{ { 1, 3 } }] } do
      assert.same({ 7, 8, 9 }, x[mask]:tolist(), name)
    end
    H.close(amp.ones(2, 3)[{ 2, m }], { 1, 1, 1 })
    -- another dtype is none, and neither is what was made of one
    H.close(x[m:long()], { 7, 7, 7 })
    H.close(x[m:long():byte()], { 7, 7, 7 })
    local path = H.tmp 'mask.t7'
    torch.save(path, { m }, 'binary')
    H.close(x[torch.load(path)[1]], { 7, 8, 9 })
  end)
  it('refuse arguments that would be passed over', function()
    local a = torch.ones(2, 2)
    for _, name in ipairs { 'mm', 'cmul', 'cdiv', 'add' } do
      H.fails_here(function() torch[name](torch.zeros(2, 2), a, a) end, 'result = ' .. name)
    end
    H.fails_here(function() torch.Tensor(a, 2) end, 'nothing follows')
    H.fails_here(function() torch.Tensor({ 1, 2 }, 2) end, 'nothing follows')
    local net = nn.Sequential():add(nn.Linear(2, 1))
    net:getParameters()
    net:forward(a)
    H.fails_here(function() net:backward(a, torch.ones(2, 1), 0.5) end, 'scale')
    local path = H.tmp 'ascii.t7'
    torch.save(path, { 1, torch.ones(2) }, 'ascii')
    assert.equal('3\n1\n', H.read(path):sub(1, 4))
    H.close(torch.load(path)[2], { 1, 1 })
  end)
  it('fill parameters in place', function()
    local m = nn.Linear(2, 3)
    m.bias:zero()
    m.weight:fill(2):copy(m.weight:clone()):uniform(1, 2)
    assert.is_true(m.weight:min():item() >= 1)
    m.weight:normal(0, 0.02)
    assert.is_true(m.weight:abs():max():item() < 1 and m.weight.requires_grad)
  end)
end)

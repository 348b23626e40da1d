-- amp.convert_hybrid_block: a module of the same names, whose calls run converted graphs, in both modes and for all shapes.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn, F = amp.nn, amp.nn.functional

local low = 'bfloat16'

local Net = nn.Module:extend 'Net'

function Net:init()
  self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3))
  self.fc = nn.Linear(4 * 36, 5)
  self.fc.bias.requires_grad = false
  self:register_buffer('seen', amp.zeros(1), {persistent = false})
end

function Net:forward(x) return self.fc(self.features(x):flatten(2)) end

local x = amp.randn(2, 3, 8, 8)

-- Calls run optimized graphs, which agree within rounding.
local function near(a, b)
  assert.equal(H.dtype(b), H.dtype(a))
  local largest = b:detach():double():abs():max():item()
  assert.is_true((a:detach():double() - b:detach():double()):abs():max():item() <= 0.03 * (1 + largest))
end

local function made(given)
  amp.manual_seed(2)
  local net = Net()
  net:hybridize()
  net(x)
  given = given or {}
  given.target_dtype = given.target_dtype or low
  return amp.convert_hybrid_block(net, given), net
end

local function in_region(net, ...)
  net:hybridize(false)
  local y = amp.autocast({dtype = low}, net, ...)
  return y:float()
end

local function pairs_of(iterate)
  local list = {}
  for name, t in iterate do list[#list + 1] = {name, t.requires_grad, H.shape(t)} end
  return list
end

describe('amp.convert_hybrid_block', function()
  it('wants a module that ran hybridized', function()
    local net = Net()
    H.fails(function() amp.convert_hybrid_block(net) end, 'convert_hybrid_block', 'not hybridized', 'net:hybridize()')
    net:hybridize()
    H.fails(function() amp.convert_hybrid_block(net) end, 'convert_hybrid_block', 'never run', 'net(x)')
    net(x)
    assert.is_true(amp.convert_hybrid_block(net):is(nn.Module))
    H.fails(function() amp.convert_hybrid_block(net, {target_dtype = 'int8'}) end, 'target_dtype')
    H.fails(function() amp.convert_hybrid_block(net, {fp32_ops = {'nothing'}}) end, 'nothing')
    H.fails(function() amp.convert_hybrid_block(net, {excluded_names = {'fd'}}) end, "no node 'fd'", 'fc')
    H.fails(function() amp.convert_hybrid_block(net, {}, {}) end, 'options')
    for _, v in ipairs {3, 'net', {}, x, amp.graph.trace(net, {x})} do
      H.fails(function() amp.convert_hybrid_block(v) end, 'convert_hybrid_block', 'module')
    end
    H.fails(function() amp.convert_hybrid_block() end, 'nil')
  end)

  it('has the names, the flags and the mode of the module, and tensors of its own', function()
    local c, net = made()
    assert.same(pairs_of(net:named_parameters()), pairs_of(c:named_parameters()))
    assert.same(pairs_of(net:named_buffers()), pairs_of(c:named_buffers()))
    local state, other = net:state_dict(), c:state_dict()
    for name in pairs(state) do assert.is_not_nil(other[name], name) end
    for name in pairs(other) do assert.is_not_nil(state[name], name) end
    assert.is_true(c.training)
    amp.no_grad(function() c.fc.weight:zero_() end)
    assert.is_true(net.fc.weight:abs():sum():item() > 0)
    assert.equal('float32', c.fc.weight.dtype)
    assert.is_truthy(tostring(c):find('Linear', 1, true))
  end)

  it('gives what a region gives, in both modes, for all shapes, with gradients and statistics', function()
    local c, net = made()
    net:load_state_dict(c:state_dict())
    for step = 1, 6 do
      local train = step % 2 == 1
      c:train(train) net:train(train)
      local input = amp.randn(step, 3, 8, 8)
      amp.manual_seed(step)
      local y = c(input)
      amp.manual_seed(step)
      local z = in_region(net, input)
      near(y, z)
      assert.equal('float32', y.dtype)
      c:zero_grad() net:zero_grad()
      y:sum():backward()
      z:sum():backward()
      for name, p in net:named_parameters() do
        local g
        for n, q in c:named_parameters() do if n == name then g = q.grad end end
        assert.equal(p.grad == nil, g == nil)
        if g ~= nil then near(g, p.grad) end
      end
    end
    near(c.features['2'].running_mean, net.features[2].running_mean)
  end)

  it('leaves the module alone', function()
    local net = Net()
    net:hybridize()
    net(x)
    local before = net:state_dict()
    for k, v in pairs(before) do before[k] = v:clone() end
    amp.convert_hybrid_block(net, {cast_optional_params = true})
    for k, v in pairs(net:state_dict()) do H.same(v, before[k]) end
    assert.is_true(net.features[2].training)
  end)

  it('stores parameters low with cast_optional_params: the convolution\'s, not the last layer\'s that stays in float32', function()
    local c, net = made {target_dtype = 'float16', target_dtype_ops = {'Convolution'}, fp32_ops = {'SoftmaxOutput', 'FullyConnected'},
      cast_optional_params = true}
    assert.equal('float16', c.features['1'].weight.dtype)
    assert.equal('float32', c.fc.bias.dtype)
    assert.equal('float32', c.features['2'].weight.dtype)
    assert.equal('float32', c(x).dtype)
    c:eval() net:eval()
    local y = c(amp.randn(3, 3, 8, 8))
    assert.same({3, 5}, H.shape(y))
    net:load_state_dict(c:state_dict())
    assert.equal('float32', net.features[1].weight.dtype)
    net:hybridize(false)
    assert.is_true(amp.allclose(c(x), net(x), 1e-2, 1e-2))
    c:load_state_dict(net:state_dict())
    assert.equal('float16', c.features['1'].weight.dtype)
    c:train()
    c(x):sum():backward()
    assert.equal('float16', c.features['1'].weight.grad.dtype)
  end)

  it('clones, converts again, hybridizes, and can be traced', function()
    local c = made()
    c:eval()
    local y = c(x)
    local copy = c:clone()
    near(copy(x), y)
    amp.no_grad(function() copy.fc.weight:zero_() end)
    near(c(x), y)
    near(copy(amp.randn(1, 3, 8, 8)), copy.fc.bias:view(1, 5):detach():to(low):float())
    assert.equal(c, c:hybridize {static_alloc = true})
    H.fails(function() c:hybridize {static_shape = true} end, 'static_alloc')
    H.fails(function() c:hybridize {static = true} end, 'static')
    near(c(x), y)
    near(c:hybridize(false)(x), y)
    near(amp.convert_hybrid_block(c)(x), y)
    local g = amp.graph.trace(c, {x})
    near(g(x), y)
    assert.equal('amp_cast', g:nodes()[1].op)
    assert.equal(#g:nodes(), #amp.convert_model(g, {target_dtype = low}):nodes())
    near(amp.compile(c)(x), y)
    H.fails(function() amp.graph.trace(c, {amp.randn(5, 3, 8, 8)}) end, 'call it once')
    H.fails(function() c.fc(x) end, 'converted module')
    H.fails(function() c(amp.randn(2, 4, 8, 8)) end, 'conv2d', '4')
    H.fails(function() c 'x' end, 'conv2d')
    H.fails(function() c() end, 'conv2d')
  end)

  it('changes modes and shapes as often as one likes', function()
    for _, optional in ipairs {false, true} do
      local c = made {cast_optional_params = optional}
      local said = H.warnings(function()
        for epoch = 1, 14 do
          c:train(epoch % 2 == 0)
          c(x)
          amp.no_grad(function() c(x) end)
          assert.equal('float32', c(amp.randn(epoch, 3, 8, 8)).dtype)
        end
        for n = 1, 12 do c(amp.randn(n, 3, 8, 8)) end
      end)
      assert.same({}, said)
    end
  end)

  it('copies what its functions hold, too', function()
    local beside, w = nn.Linear(4, 4), amp.ones(4)
    local Outer = nn.Module:extend 'Outer'
    function Outer:init() self.l = nn.Linear(4, 4) end
    function Outer:forward(v) return beside(self.l(v)) + w end
    local net, v = Outer(), amp.randn(2, 4)
    net:hybridize()
    net(v)
    local c = amp.convert_hybrid_block(net, {target_dtype = low, cast_optional_params = true})
    local y = c(v)
    amp.no_grad(function() beside.weight:zero_() w:zero_() end)
    near(c(v), y)
    near(c(amp.cat({v, v}, 1)):narrow(1, 1, 2), y)
    assert.equal(2, #c:parameters())
  end)

  it('takes and gives tables', function()
    local net = nn.LSTM(4, 5)
    net:hybridize()
    local input = amp.randn(3, 2, 4)
    local _, state = net(input)
    net(input, state)
    local c = amp.convert_hybrid_block(net, {target_dtype = low})
    local y, s = c(input, state)
    local z, t = amp.autocast({dtype = low}, net, input, state)
    near(y, z:float())
    near(s[1], t[1]:float())
    near(s[2], t[2]:float())
    assert.is_true(amp.allclose(y, net(input, state), 1e-2, 1e-2))
    local again = c(input)
    near(again, amp.autocast({dtype = low}, net, input):float())
  end)

  it('trains with a trainer and a scaler', function()
    local c = made()
    local trainer = amp.optim.Trainer(c:parameters(), 'sgd', {lr = 0.05})
    amp.init_trainer(trainer)
    local y, first, last = amp.tensor({1, 2}, {dtype = 'int64'}), nil, nil
    for _ = 1, 10 do
      local loss = F.cross_entropy(c(x), y)
      first, last = first or loss:item(), loss:item()
      amp.scale_loss(loss, trainer, function(scaled) scaled:backward() end)
      trainer:step(1)
    end
    assert.is_true(last < first)
  end)

  it('is written with and without its casts', function()
    if not pcall(require, 'amp.graph.file') then return end
    local c = made {target_dtype = 'float16', cast_optional_params = true}
    c:eval()
    local y = c(x)
    local path = H.tmp 'converted.safetensors'
    c:export(path)
    near(amp.load_graph(path)(x), y)
    assert.equal('amp_cast', amp.load_graph(path):nodes()[1].op)
    local prefix = path:gsub('%.safetensors$', '')
    c:save_checkpoint(prefix, 3)
    local plain = amp.load_graph(prefix .. '-0003.safetensors')
    for _, node in ipairs(plain:nodes()) do assert.is_falsy(node.op:find '^amp_') end
    for _, p in plain:named_parameters() do assert.equal('float32', p.dtype) end
    assert.is_true(amp.allclose(plain(x), y, 1e-2, 1e-2))
    c:save_checkpoint(prefix, 4, {remove_amp_cast = false})
    near(amp.load_graph(prefix .. '-0004.safetensors')(x), y)
  end)
end)

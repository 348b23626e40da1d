-- Converted graphs give what regions give: layers, networks of the examples, programs drawn at random; values, gradients,
-- statistics, and the way back to float32.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn, F = amp.nn, amp.nn.functional

package.path = H.root .. '/?.lua;' .. package.path

local strip = require('amp.graph.convert').strip

local function flat(v, out)
  if amp.is_tensor(v) then out[#out + 1] = v
  elseif type(v) == 'table' then
    for _, x in ipairs(v) do flat(x, out) end
  end
  return out
end

local function wide(t) return (t.dtype == 'float16' or t.dtype == 'bfloat16') and t:float() or t end

local function agree(a, b, what)
  assert.equal(b.dtype, a.dtype, what)
  if amp.equal(a, b) then return end
  assert.is_true(amp.allclose(a, b, 2e-2, 2e-2), what)
end

local function backward(results)
  local sum = 0
  for _, y in ipairs(results) do
    if y.requires_grad then sum = wide(y):float():sum() + sum end
  end
  if amp.is_tensor(sum) then sum:backward() end
end

-- Run a module in a region and converted, from the same seed, and compare all that comes of it.
local function compare(make, inputs, dtype, given)
  amp.manual_seed(3)
  local net = make()
  local o = {example_inputs = inputs, target_dtype = dtype}
  for k, v in pairs(given or {}) do o[k] = v end
  local before = tostring(amp.graph.trace(net, inputs))
  local g = amp.convert_model(net, o)
  amp.manual_seed(5)
  local y = flat({g(unpack(inputs))}, {})
  amp.manual_seed(5)
  local z = flat({amp.autocast({dtype = dtype}, net, unpack(inputs))}, {})
  assert.equal(#z, #y)
  for i = 1, #z do agree(y[i], wide(z[i]), 'output ' .. i) end
  backward(y)
  backward(z)
  local of, buffers = {}, {}
  for name, p in net:named_parameters() do of[name] = p end
  for name, b in net:named_buffers() do buffers[name] = b end
  for name, p in g:named_parameters() do
    assert.equal(of[name].grad == nil, p.grad == nil, name)
    if p.grad ~= nil then agree(p.grad:to(of[name].dtype), of[name].grad, name) end -- low where it is stored low
  end
  for name, b in g:named_buffers() do
    if b.dtype:find '^float' then agree(b, buffers[name], name) end
  end
  local again = {}
  for k, v in pairs(o) do again[k] = v end
  again.example_inputs = nil
  assert.equal(#g:nodes(), #amp.convert_model(g, again):nodes())
  if not before:find 'full' then assert.equal(before, tostring(strip(g))) end
  return g
end

local function both(name, make, inputs, given)
  for _, dtype in ipairs {'bfloat16', 'float16'} do
    it(name .. ' in ' .. dtype, function() compare(make, inputs, dtype, given) end)
  end
end

local function module_of(init, forward)
  return function()
    local Net = nn.Module:extend 'Net'
    Net.init, Net.forward = init, forward
    return Net()
  end
end

local x = amp.randn(4, 6, 16)
local image = amp.randn(2, 3, 16, 16)
local ids = amp.tensor({{1, 2, 3}, {4, 5, 6}}, {dtype = 'int64'})

describe('converted layers give what regions give:', function()
  both('Linear, GELU, LayerNorm, Dropout', function()
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.3), nn.Linear(32, 4))
  end, {x})
  both('LSTM', function() return nn.LSTM(16, 10, {num_layers = 2, bidirectional = true}) end, {x})
  both('GRU', function() return nn.GRU(16, 10) end, {x})
  both('RNN', function() return nn.RNN(16, 10) end, {x})
  both('MultiheadAttention', function() return nn.MultiheadAttention(16, 4) end, {x, x, x})
  both('TransformerEncoderLayer', function() return nn.TransformerEncoderLayer(16, 4, {dim_feedforward = 32}) end, {x})
  both('Embedding, tied to the product at the end', module_of(function(self) self.e = nn.Embedding(11, 16) end, function(self, i)
    return self.e(i):matmul(self.e.weight:t())
  end), {ids})
  both('Conv1d, BatchNorm1d, MaxPool1d', function() return nn.Sequential(nn.Conv1d(6, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2)) end, {x})
  both('Conv2d, GroupNorm, Softmax', function() return nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Softmax(2)) end, {image})
  both('Conv3d, AvgPool3d', function() return nn.Sequential(nn.Conv3d(2, 3, 2), nn.AvgPool3d(2)) end, {amp.randn(1, 2, 5, 5, 5)})
  both('ConvTranspose1d, InstanceNorm1d, PReLU', function()
    return nn.Sequential(nn.ConvTranspose1d(6, 8, 3), nn.InstanceNorm1d(8), nn.PReLU(), nn.AvgPool1d(2))
  end, {x})
  both('Upsample, PixelShuffle', function() return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Upsample{scale_factor = 2}, nn.PixelShuffle(2)) end, {image})
  both('Bilinear', module_of(function(self) self.b, self.l = nn.Bilinear(16, 16, 4), nn.Linear(16, 16) end, function(self, v)
    return self.b(self.l(v), v)
  end), {x})
  both('LSTMCell in a loop', module_of(function(self) self.c = nn.LSTMCell(16, 10) end, function(self, v)
    local h, c = amp.zeros(4, 10), amp.zeros(4, 10)
    for t = 1, v:size(2) do
      local a, b = self.c(v:select(2, t), {h, c})
      if type(a) == 'table' then a, b = a[1], a[2] end
      h, c = a, b or c
    end
    return h
  end), {x})
  both('losses', module_of(function(self) self.l = nn.Linear(16, 4) end, function(self, v, y)
    local h = self.l(v)
    return F.cross_entropy(h:view(-1, 4), y), F.mse_loss(h, v:narrow(3, 1, 4)), F.bce_with_logits(h, v:narrow(3, 1, 4):sigmoid())
  end), {x, amp.randint(1, 5, 24, {dtype = 'int64'})})
end)

describe('converted networks give what regions give:', function()
  both('ResNet', function() return require 'examples.models.resnet' {classes = 10, width = 8, blocks = {1, 1, 1, 1}} end, {amp.randn(2, 3, 64, 64)})
  both('GPT-2', function() return require 'examples.models.gpt2' {vocabulary = 50, context = 16, layers = 2, heads = 2, size = 16} end, {ids})
  local function linear(self) self.l, self.m = nn.Linear(16, 16), nn.Linear(16, 16) end
  both('detach, no_grad', module_of(linear, function(self, v)
    local h = self.l(v)
    local y = amp.no_grad(function() return self.m(h) end)
    return self.l(h:detach()) + h * y, y
  end), {x})
  both('a buffer that changes', module_of(function(self)
    self.l = nn.Linear(16, 16)
    self:register_buffer('e', amp.ones(16, 16))
  end, function(self, v)
    local before = v:matmul(self.e)
    local h = self.l(v)
    amp.no_grad(function() self.e:mul_(0.5):add_(h:detach():float():mean()) end)
    return before, v:matmul(self.e), self.e * 1
  end), {x})
  both('writes in place and through views', module_of(linear, function(self, v)
    local h = self.l(v):clone()
    h[{{}, 1}] = 0
    h[{2}] = v[2]
    h:view(-1):mul_(2)
    local a, i = h:topk(3)
    return h * 1, a, i, h:max(2)
  end), {x})
  both('float64 and integers beside', module_of(linear, function(self, v, d, i)
    local h = self.l(v)
    return h + d, amp.cat({h, d}, 3), d:exp(), i * 2, i:float():sqrt() + h
  end), {x, amp.randn(4, 6, 16):double(), amp.ones(16, {dtype = 'int32'})})
  both('numbers on both sides', module_of(linear, function(self, v)
    local h = self.l(v) * 0.1
    return 2 ^ h, 1 / (h + 10), h ^ 2, amp.maximum(h, v), 3 - h, h % 2
  end), {x})
  both('explicit dtypes', module_of(linear, function(self, v)
    local h = self.l(v)
    return h:sum(1, {dtype = 'float64'}), h:softmax(1, {dtype = 'float64'}), h:sum(1), h:half():float(), h:double()
  end), {x})
  both('random draws', module_of(linear, function(self, v) return self.l(v + amp.randn_like(v)), amp.rand(3):exp() end), {x})
  both('a decomposition', module_of(linear, function(self, v)
    local h = self.l(v:select(1, 1))
    return (h:matmul(h:t()) + amp.eye(6) * 3):cholesky()
  end), {x})
  both('half inputs', module_of(linear, function(self, v) return self.l(v:float()) + 1, v end), {x:half()})
end)

-- -- Programs drawn at random ------------------------------------------------------------------------

local function pick(list) return list[math.random(#list)] end

-- Steps: each makes a value of the 4 x 8 ones that are there.
local steps = {
  function(s) return s.linear[math.random(2)](s.any()) end,
  function(s) return s.any():matmul(s.square) end,
  function(s) return s.any() + s.any() end,
  function(s) return s.any() * s.any():sigmoid() end,
  function(s) return s.any():exp():clamp(0, 4) end,
  function(s) return s.any():softmax(2) end,
  function(s) return s.any():relu() end,
  function(s) return F.gelu(s.any(), {approximate = pick {'none', 'tanh'}}) end,
  function(s) return amp.cat({s.any(), s.any()}, 1):narrow(1, math.random(4), 4) end,
  function(s) return amp.where(s.any():gt(0), s.any(), s.any()) end,
  function(s) return s.any():t():contiguous():view(4, 8) end,
  function(s) return s.norm(s.any()) end,
  function(s) return s.any() - s.any():mean(1) end,
  function(s) return s.any():float() end,
  function(s) return F.layer_norm(s.any(), {8}) end,
  function(s) return (amp.stack({s.any(), s.any()}):sum(1)) end,
  function(s)
    local v = s.any():clone()
    v:narrow(2, 1, 3):mul_(0.5)
    v:add_(1)
    return v
  end,
  function(s)
    local a, b = unpack(s.any():chunk(2, 2))
    return amp.cat({b, a}, 2)
  end,
  function(s) return s.conv(s.any():unsqueeze(2)):squeeze(2) end,
  function(s) return amp.no_grad(function() return s.linear[1](s.any()) end) end,
}

local function program(seed)
  return module_of(function(self)
    self.first, self.second, self.norm, self.conv = nn.Linear(8, 8), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Conv1d(1, 1, 3, {padding = 1})
    self.square = nn.Parameter(amp.randn(8, 8))
  end, function(self, v, w)
    math.randomseed(seed)
    local values = {v, w}
    local s = {linear = {self.first, self.second}, norm = self.norm, conv = self.conv, square = self.square}
    function s.any() return values[math.random(#values)] end
    for _ = 1, 14 do
      local y = pick(steps)(s)
      values[#values + 1] = y * 0.5
    end
    return values[#values], values[#values - 1], values[#values - 2]
  end)
end

describe('programs drawn at random, converted,', function()
  local a, b = amp.randn(4, 8), amp.randn(4, 8)
  local from, n = tonumber(os.getenv 'AMP_SPEC_SEED') or 1, tonumber(os.getenv 'AMP_SPEC_PROGRAMS') or 60
  it('give what regions give', function()
    for seed = from, from + n - 1 do
      local ok, e = pcall(compare, program(seed), {a, b}, seed % 2 == 0 and 'float16' or 'bfloat16',
        {cast_optional_params = seed % 3 == 0})
      if not ok then error(('seed %d: %s'):format(seed, tostring(e)), 0) end
    end
  end)
end)

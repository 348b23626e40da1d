--- Every layer and loss of amp.nn as a graph: what it gives, its gradients and running statistics, in training and
-- evaluation; and with a free batch, for other batches than the one it was traced with, none and one among them.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn = amp.nn

local function randn(...) return amp.randn(...) end
local function labels(n, classes) return amp.randint(1, classes + 1, {n}, {dtype = 'int64'}) end
local function signs(...) return amp.randn(...):sign() end

local tiny = {vocab_size = 11, hidden_size = 8, num_hidden_layers = 2, num_attention_heads = 2, intermediate_size = 12, max_position_embeddings = 9}
local function ids(n) return amp.randint(1, 12, {n, 5}, {dtype = 'int64'}) end
local Placed = nn.Module:extend 'Placed' -- rotary positions that are a tensor
function Placed:init() self.rope = nn.RotaryEmbedding(4) end
function Placed:forward(x, p) return self.rope(x, {positions = p}) end

local function has(name) return pcall(function() return nn[name] end) end

-- name = {make, inputs of a batch of n, batch's dimension (1), least batch in training}
local cases = {
  Linear = {function() return nn.Linear(4, 3) end, function(n) return randn(n, 4) end},
  Bilinear = {function() return nn.Bilinear(4, 3, 2) end, function(n) return randn(n, 4), randn(n, 3) end},
  Embedding = {function() return nn.Embedding(7, 3) end, function(n) return labels(n, 7) end},
  EmbeddingBag = has 'EmbeddingBag' and {function() return nn.EmbeddingBag(7, 3) end, function(n) return amp.randint(1, 8, {n, 4}, {dtype = 'int64'}) end},
  Conv1d = {function() return nn.Conv1d(2, 3, 3) end, function(n) return randn(n, 2, 6) end},
  Conv2d = {function() return nn.Conv2d(2, 3, 3, {padding = 1}) end, function(n) return randn(n, 2, 6, 5) end},
  Conv3d = {function() return nn.Conv3d(2, 3, 2) end, function(n) return randn(n, 2, 3, 4, 3) end},
  ConvTranspose1d = {function() return nn.ConvTranspose1d(2, 3, 3) end, function(n) return randn(n, 2, 6) end},
  ConvTranspose2d = {function() return nn.ConvTranspose2d(2, 3, 3, {stride = 2}) end, function(n) return randn(n, 2, 4, 4) end},
  ConvTranspose3d = {function() return nn.ConvTranspose3d(2, 3, 2) end, function(n) return randn(n, 2, 3, 3, 3) end},
  MaxPool1d = {function() return nn.MaxPool1d(2) end, function(n) return randn(n, 2, 6) end},
  MaxPool2d = {function() return nn.MaxPool2d(2) end, function(n) return randn(n, 2, 6, 4) end},
  MaxPool3d = {function() return nn.MaxPool3d(2) end, function(n) return randn(n, 2, 4, 4, 4) end},
  AvgPool1d = {function() return nn.AvgPool1d(2) end, function(n) return randn(n, 2, 6) end},
  AvgPool2d = {function() return nn.AvgPool2d(2) end, function(n) return randn(n, 2, 6, 4) end},
  AvgPool3d = {function() return nn.AvgPool3d(2) end, function(n) return randn(n, 2, 4, 4, 4) end},
  AdaptiveAvgPool1d = {function() return nn.AdaptiveAvgPool1d(2) end, function(n) return randn(n, 2, 5) end},
  AdaptiveAvgPool2d = {function() return nn.AdaptiveAvgPool2d(2) end, function(n) return randn(n, 2, 5, 4) end},
  AdaptiveAvgPool3d = {function() return nn.AdaptiveAvgPool3d(2) end, function(n) return randn(n, 2, 5, 4, 3) end},
  AdaptiveMaxPool1d = {function() return nn.AdaptiveMaxPool1d(2) end, function(n) return randn(n, 2, 5) end},
  AdaptiveMaxPool2d = {function() return nn.AdaptiveMaxPool2d(2) end, function(n) return randn(n, 2, 5, 4) end},
  AdaptiveMaxPool3d = {function() return nn.AdaptiveMaxPool3d(2) end, function(n) return randn(n, 2, 5, 4, 3) end},
  BatchNorm1d = {function() return nn.BatchNorm1d(3) end, function(n) return randn(n, 3) end, 1, 2},
  BatchNorm2d = {function() return nn.BatchNorm2d(3) end, function(n) return randn(n, 3, 2, 2) end, 1, 1},
  BatchNorm3d = {function() return nn.BatchNorm3d(3) end, function(n) return randn(n, 3, 2, 2, 2) end, 1, 1},
  SyncBatchNorm = {function() return nn.SyncBatchNorm(3) end, function(n) return randn(n, 3, 2, 2) end, 1, 1},
  LayerNorm = {function() return nn.LayerNorm(4) end, function(n) return randn(n, 4) end},
  GroupNorm = {function() return nn.GroupNorm(2, 4) end, function(n) return randn(n, 4, 3) end},
  InstanceNorm2d = {function() return nn.InstanceNorm2d(3) end, function(n) return randn(n, 3, 2, 2) end},
  RMSNorm = {function() return nn.RMSNorm(4) end, function(n) return randn(n, 4) end},
  LocalResponseNorm = {function() return nn.LocalResponseNorm(2) end, function(n) return randn(n, 4, 3, 3) end},
  Dropout = {function() return nn.Dropout(0.4) end, function(n) return randn(n, 4) end},
  Dropout2d = {function() return nn.Dropout2d(0.4) end, function(n) return randn(n, 4, 2, 2) end},
  RNN = {function() return nn.RNN(3, 4) end, function(n) return randn(5, n, 3) end, 2},
  LSTM = {function() return nn.LSTM(3, 4, {num_layers = 2, bidirectional = true, batch_first = true}) end, function(n) return randn(n, 5, 3) end},
  GRU = {function() return nn.GRU(3, 4, {dropout = 0.3, num_layers = 2}) end, function(n) return randn(5, n, 3) end, 2},
  ['LSTM with a state'] = {function() return nn.LSTM(3, 4) end, function(n) return randn(5, n, 3), {randn(1, n, 4), randn(1, n, 4)} end, 2},
  RNNCell = {function() return nn.RNNCell(3, 4) end, function(n) return randn(n, 3) end},
  LSTMCell = {function() return nn.LSTMCell(3, 4) end, function(n) return randn(n, 3) end},
  GRUCell = {function() return nn.GRUCell(3, 4) end, function(n) return randn(n, 3), randn(n, 4) end},
  MultiheadAttention = {function() return nn.MultiheadAttention(4, 2, {batch_first = true}) end, function(n)
    local x = randn(n, 3, 4)
    return x, x, x
  end},
  ['MultiheadAttention of others'] = {function() return nn.MultiheadAttention(4, 2) end,
    function(n) return randn(3, n, 4), randn(5, n, 4), randn(5, n, 4) end, 2},
  TransformerEncoderLayer = {function() return nn.TransformerEncoderLayer(4, 2, {dim_feedforward = 8}) end, function(n) return randn(3, n, 4) end, 2},
  TransformerEncoder = {function() return nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, {dim_feedforward = 8, batch_first = true}), 2) end,
    function(n) return randn(n, 3, 4) end},
  TransformerDecoderLayer = {function() return nn.TransformerDecoderLayer(4, 2, {dim_feedforward = 8, batch_first = true}) end,
    function(n) return randn(n, 3, 4), randn(n, 5, 4) end},
  Upsample = {function() return nn.Upsample{scale_factor = 2} end, function(n) return randn(n, 2, 3, 3) end},
  PixelShuffle = {function() return nn.PixelShuffle(2) end, function(n) return randn(n, 4, 3, 3) end},
  Flatten = {function() return nn.Flatten() end, function(n) return randn(n, 4, 3) end},
  Unflatten = has 'Unflatten' and {function() return nn.Unflatten(2, {2, 2}) end, function(n) return randn(n, 4) end},
  Identity = {function() return nn.Identity() end, function(n) return randn(n, 4, 3) end},
  Softmax = {function() return nn.Softmax(2) end, function(n) return randn(n, 4) end},
  LogSoftmax = {function() return nn.LogSoftmax(2) end, function(n) return randn(n, 4) end},
  PReLU = {function() return nn.PReLU(4) end, function(n) return randn(n, 4) end},
  RReLU = has 'RReLU' and {function() return nn.RReLU() end, function(n) return randn(n, 4) end},
  CrossEntropyLoss = {function() return nn.CrossEntropyLoss() end, function(n) return randn(n, 4), labels(n, 4) end},
  NLLLoss = {function() return nn.NLLLoss() end, function(n) return randn(n, 4), labels(n, 4) end},
  MSELoss = {function() return nn.MSELoss() end, function(n) return randn(n, 4), randn(n, 4) end},
  L1Loss = {function() return nn.L1Loss() end, function(n) return randn(n, 4), randn(n, 4) end},
  SmoothL1Loss = {function() return nn.SmoothL1Loss() end, function(n) return randn(n, 4), randn(n, 4) end},
  HuberLoss = {function() return nn.HuberLoss() end, function(n) return randn(n, 4), randn(n, 4) end},
  KLDivLoss = {function() return nn.KLDivLoss{reduction = 'batchmean'} end, function(n) return randn(n, 4), amp.rand(n, 4) end},
  BCEWithLogitsLoss = {function() return nn.BCEWithLogitsLoss() end, function(n) return randn(n, 4), amp.rand(n, 4) end},
  BCELoss = {function() return nn.BCELoss() end, function(n) return amp.rand(n, 4), amp.rand(n, 4) end},
  PoissonNLLLoss = {function() return nn.PoissonNLLLoss() end, function(n) return randn(n, 4), amp.rand(n, 4) end},
  GaussianNLLLoss = {function() return nn.GaussianNLLLoss() end, function(n) return randn(n, 4), randn(n, 4), amp.rand(n, 4) + 0.1 end},
  CosineEmbeddingLoss = {function() return nn.CosineEmbeddingLoss() end, function(n) return randn(n, 4), randn(n, 4), signs(n) end},
  MarginRankingLoss = {function() return nn.MarginRankingLoss() end, function(n) return randn(n), randn(n), signs(n) end},
  HingeEmbeddingLoss = {function() return nn.HingeEmbeddingLoss() end, function(n) return randn(n, 4), signs(n, 4) end},
  SoftMarginLoss = {function() return nn.SoftMarginLoss() end, function(n) return randn(n, 4), signs(n, 4) end},
  MultiMarginLoss = {function() return nn.MultiMarginLoss() end, function(n) return randn(n, 4), labels(n, 4) end},
  MultiLabelMarginLoss = {function() return nn.MultiLabelMarginLoss() end, function(n) return randn(n, 4), amp.randint(1, 5, {n, 4}, {dtype = 'int64'}) end},
  MultiLabelSoftMarginLoss = {function() return nn.MultiLabelSoftMarginLoss() end, function(n) return randn(n, 4), amp.rand(n, 4) end},
  TripletMarginLoss = {function() return nn.TripletMarginLoss() end, function(n) return randn(n, 4), randn(n, 4), randn(n, 4) end},
  CosineSimilarity = has 'CosineSimilarity' and {function() return nn.CosineSimilarity() end, function(n) return randn(n, 4), randn(n, 4) end},
  PairwiseDistance = has 'PairwiseDistance' and {function() return nn.PairwiseDistance() end, function(n) return randn(n, 4), randn(n, 4) end},
  Fold = has 'Fold' and {function() return nn.Fold({4, 4}, 2) end, function(n) return randn(n, 8, 9) end},
  Unfold = has 'Unfold' and {function() return nn.Unfold(2) end, function(n) return randn(n, 2, 4, 4) end},
  ZeroPad2d = has 'ZeroPad2d' and {function() return nn.ZeroPad2d(1) end, function(n) return randn(n, 2, 4, 4) end},
  RotaryEmbedding = {function() return nn.RotaryEmbedding(4) end, function(n) return randn(n, 2, 5, 4) end},
  ['RotaryEmbedding at positions'] = {function() return Placed() end,
    function(n) return randn(n, 2, 5, 4), amp.randint(1, 30, {n, 5}, {dtype = 'int64'}) end},
  SwiGLU = {function() return nn.SwiGLU(4, 6) end, function(n) return randn(n, 4) end},
  ['BERT of amp.text'] = {function() return amp.text.models.BERT(tiny) end, ids},
  ['Llama of amp.text'] = {function() return amp.text.models.Llama(tiny) end, ids},
  ['GPT2 of amp.text'] = {function() return amp.text.models.GPT2 {vocab_size = 11, n_embd = 8, n_layer = 2, n_head = 2, n_positions = 9} end, ids},
  ['a small network'] = {function()
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(36, 5))
  end, function(n) return randn(n, 1, 8, 8) end},
}
for name in ('ReLU LeakyReLU ELU SELU GELU SiLU Mish Sigmoid Tanh Softplus Hardswish Hardsigmoid'):gmatch '%S+' do
  cases[name] = {function() return nn[name]() end, function(n) return randn(n, 4) end}
end

-- Tensors in results, in order.
local function tensors(list, found)
  found = found or {}
  for i = 1, #list do
    if amp.is_tensor(list[i]) then found[#found + 1] = list[i]
    elseif type(list[i]) == 'table' then tensors(list[i], found) end
  end
  return found
end

local function same(label, got, want)
  local a, b = tensors(got), tensors(want)
  assert.equal(#b, #a, label)
  for i = 1, #a do
    local wrong = H.difference(a[i], H.values(b[i]), H.shape(b[i]), H.exact)
    if wrong then error(('%s: tensor %d: %s'):format(label, i, wrong), 0) end
  end
end

local function run(f, args)
  amp.manual_seed(3)
  return {f(unpack(args))}
end

-- Results, gradients of inputs and parameters, buffers.
local function all_of(net, f, given)
  local leaves, args = {}, {}
  local function leaf(v)
    if type(v) == 'table' then return {leaf(v[1]), leaf(v[2])} end
    local t = v:detach()
    if t:is_floating_point() then
      t.requires_grad = true
      leaves[#leaves + 1] = t
    end
    return t
  end
  for i, v in ipairs(given) do args[i] = leaf(v) end
  local results = run(f, args)
  for _, p in ipairs(net:parameters()) do leaves[#leaves + 1] = p end
  local loss = 0
  for i, t in ipairs(tensors(results)) do
    if t:is_floating_point() then loss = loss + (t * (amp.arange(t:numel()):view(t.shape) * 0.1 + i)):sum() end
  end
  local gradients = #leaves > 0 and loss.requires_grad and amp.grad(loss, leaves, {allow_unused = true}) or {}
  local found = {}
  for i = 1, #leaves do found[i] = gradients[i] or amp.zeros_like(leaves[i]) end
  return {results, found, {unpack(net:buffers())}}
end

local function try_all(net, f, given)
  local ok, e = pcall(all_of, net, f, given)
  return ok, e
end

for name, case in pairs(cases) do
  case = case or cases.Identity -- a layer that amp has not
  local make, inputs, dim, least = case[1], case[2], case[3] or 1, case[4] or 0
  describe('nn.' .. name, function()
    for _, training in ipairs {true, false} do
      local mode = training and 'training' or 'evaluation'
      it('is the same as a graph in ' .. mode, function()
        amp.manual_seed(1)
        local net = make()
        net:train(training)
        local other = net:clone()
        local given = {inputs(4)}
        local g = amp.graph.trace(net, given)
        assert.equal(training, g.training)
        same('fixed', all_of(net, g, given), all_of(other, other, given))
      end)

      it('takes other batches in ' .. mode, function()
        amp.manual_seed(2)
        local net = make()
        net:train(training)
        local g = amp.graph.trace(net, {inputs(4)}, {dynamic = {dim}})
        for _, n in ipairs {4, 7, 1, 0, 40} do
          if not training or n >= least then
            local other = net:clone()
            local given = {inputs(n)}
            local fine, want = try_all(other, other, given)
            local fine2, got = try_all(net, g, given)
            if fine ~= fine2 then error(('batch %d: eager %s, graph %s'):format(n, tostring(want), tostring(got)), 0) end
            if fine then same('batch ' .. n, got, want) end
          end
        end
      end)
    end
  end)
end

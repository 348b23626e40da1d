--- nn: attention, transformers and bilinear layers against PyTorch, their names, printing, and wrong arguments.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn = amp.nn

local function tensor(f) return H.make(f.v, f.s, f.d == 'float64' and 'float32' or f.d) end

describe('layers', function()
  for i, c in ipairs(H.fixture 'layers_attention.txt') do
    it(('agree with PyTorch: %s%s, case %d'):format(c.new, c.eval and ' in evaluation' or '', i), function()
      local m = loadstring('local amp, nn = ... return ' .. c.new)(amp, nn)
      local state, args, kw = {}, {}, {}
      for name, f in pairs(c.state) do state[name] = tensor(f) end
      m:load_state_dict(state)
      m:train(not c.eval)
      for k, f in ipairs(c.inp) do
        args[k] = tensor(f)
        args[k].requires_grad = true
      end
      for name, f in pairs(c.kw) do kw[name] = type(f) == 'table' and tensor(f) or f end
      local n = #args
      if next(kw) then
        n = n + 1
        args[n] = kw
      end
      local out = { m(unpack(args, 1, n)) }
      assert.equal(#c.out, #out)
      for k, want in ipairs(c.out) do H.close(out[k], want, 8, 'result ' .. k) end
      local w = {}
      for k = 0, out[1]:numel() - 1 do w[k + 1] = 0.3 + ((k * 7) % 11) / 10 end
      out[1]:backward(H.make(w, H.shape(out[1])))
      local leaves = {}
      for name, p in m:named_parameters() do leaves[name] = p end
      for k = 1, #c.inp do leaves['x' .. k] = args[k] end
      for name, f in pairs(c.grad) do
        assert.is_not_nil(leaves[name].grad, 'no gradient of ' .. name)
        H.close(leaves[name].grad, f, 64, 'gradient of ' .. name)
      end
    end)
  end
end)

describe('MultiheadAttention', function()
  it('has the parameters PyTorch names', function()
    local function names(m)
      local list = {}
      for name, p in m:named_parameters() do list[#list + 1] = name .. ' ' .. tostring(p:size()) end
      return table.concat(list, ', ')
    end
    assert.equal('in_proj_weight 24x8, in_proj_bias 24, out_proj.weight 8x8, out_proj.bias 8', names(nn.MultiheadAttention(8, 2)))
    assert.equal('q_proj_weight 8x8, k_proj_weight 8x3, v_proj_weight 8x4, bias_k 1x1x8, bias_v 1x1x8, out_proj.weight 8x8',
      names(nn.MultiheadAttention(8, 2, { kdim = 3, vdim = 4, bias = false, add_bias_kv = true })))
  end)
  it('prints', function()
    assert.equal('nn.MultiheadAttention(8, 2 heads, dropout 0.1, batch first\n'
      .. '  (in_proj_weight): 24x8  192 parameters\n  (in_proj_bias): 24  24 parameters\n  (out_proj): nn.Linear(8 -> 8)  72 parameters\n)  288 parameters',
      tostring(nn.MultiheadAttention(8, 2, { dropout = 0.1, batch_first = true })))
  end)
  it('drops weights in training only', function()
    amp.manual_seed(1)
    local m, x = nn.MultiheadAttention(8, 2, 0.5), amp.randn(6, 2, 8)
    local a, b = m(x, x, x), m(x, x, x)
    assert.is_false(amp.equal(a, b))
    m:eval()
    H.same(m(x, x, x), m(x, x, x))
    local plain = m(x, x, x, { need_weights = false })
    assert.is_true(plain:allclose((m(x, x, x)), { rtol = 1e-4, atol = 1e-5 }))
  end)
  it('runs in a region in its dtype', function()
    local m, x = nn.MultiheadAttention(8, 2), amp.randn(6, 2, 8)
    for _, need in ipairs { true, false } do
      local y = amp.autocast({ dtype = 'bfloat16' }, m, x, x, x, { need_weights = need, attn_mask = amp.zeros(6, 6), is_causal = true })
      assert.equal('bfloat16', y.dtype)
      y:float():sum():backward()
      assert.equal('float32', m.in_proj_weight.grad.dtype)
    end
  end)
  it('refuses wrong arguments', function()
    H.fails_here(function() nn.MultiheadAttention(5, 2) end, 'embed_dim 5', 'num_heads 2')
    H.fails_here(function() nn.MultiheadAttention(8, 0) end, 'num_heads', '0')
    H.fails_here(function() nn.MultiheadAttention(8, 2, 1.5) end, 'dropout', '1.5')
    H.fails_here(function() nn.MultiheadAttention(8, 2, { batchfirst = true }) end, 'batchfirst', 'batch_first')
    local m, x = nn.MultiheadAttention(8, 2), amp.ones(3, 2, 8)
    H.fails_here(function() m(x, x) end, 'value')
    H.fails_here(function() m(x, x, x, { attn_mask = amp.ones(2, 3):bool() }) end, 'attn_mask', '2x3', '3x3')
    H.fails_here(function() m(x, x, x, { key_padding_mask = amp.ones(3, 2):bool() }) end, 'key_padding_mask', '3x2', '2x3')
    H.fails_here(function() m(amp.ones(3, 2, 7), x, x) end, '7', '8')
  end)
end)

describe('transformers', function()
  it('copy their layers: equal values, parameters of their own', function()
    local layer = nn.TransformerEncoderLayer(8, 2, { dim_feedforward = 4 })
    local m = nn.TransformerEncoder(layer, 2)
    local a, b = m.layers[1].linear1.weight, m.layers[2].linear1.weight
    H.same(a, b)
    assert.is_false(a:shares_storage(b))
    assert.is_false(a:shares_storage(layer.linear1.weight))
    assert.is_true(b.requires_grad)
    assert.equal(24, #m:parameters())
  end)
  it('see nothing of what comes later under a causal mask', function()
    local m = nn.TransformerEncoderLayer(8, 2, { dim_feedforward = 4, dropout = 0 }):eval()
    local x = amp.randn(5, 1, 8)
    local y = x:clone()
    y[{ { 4, 5 } }]:fill_(3)
    local mask = nn.Transformer.generate_square_subsequent_mask(5)
    local by_mask = m(x, { src_mask = mask })
    assert.is_true(by_mask:allclose(m(x, { is_causal = true }), { rtol = 1e-4, atol = 1e-5 }))
    H.same(by_mask[{ { 1, 3 } }], m(y, { src_mask = mask })[{ { 1, 3 } }])
    assert.is_false(m(x)[{ { 1, 3 } }]:allclose(m(y)[{ { 1, 3 } }]))
  end)
  it('are trained by a step', function()
    amp.manual_seed(2)
    local m = nn.Transformer(8, 2, 1, 1, { dim_feedforward = 8, dropout = 0 })
    local opt = amp.optim.SGD(m:parameters(), { lr = 0.1 })
    local src, tgt, want = amp.randn(4, 2, 8), amp.randn(3, 2, 8), amp.randn(3, 2, 8)
    local first, last
    for _ = 1, 5 do
      local loss = amp.autocast({ dtype = 'bfloat16' }, function() return amp.mse_loss(m(src, tgt), want) end)
      loss:backward()
      opt:step():clear_grad()
      last = loss:item()
      first = first or last
    end
    assert.is_true(last < first)
  end)
  it('print', function()
    assert.equal('nn.Bilinear(2, 3 -> 4)', tostring(nn.Bilinear(2, 3, 4)))
    assert.equal('nn.Bilinear(2, 3 -> 4, no bias)', tostring(nn.Bilinear(2, 3, 4, false)))
    assert.is_truthy(tostring(nn.TransformerDecoderLayer(8, 2, { norm_first = true })):match('^nn.TransformerDecoderLayer%(8, 2 heads, norm first'))
  end)
  it('refuse wrong arguments', function()
    H.fails_here(function() nn.TransformerEncoderLayer(8, 3) end, 'd_model 8', 'nhead 3')
    H.fails_here(function() nn.TransformerEncoderLayer(8, 2, { activation = 'tanh' }) end, 'activation', 'tanh')
    H.fails_here(function() nn.TransformerEncoder(3, 2) end, 'encoder_layer')
    H.fails_here(function() nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 0) end, 'num_layers', '0')
    H.fails_here(function() nn.TransformerDecoderLayer(8, 2)(amp.ones(3, 2, 8)) end, 'memory')
    H.fails_here(function() nn.Bilinear(2, 3) end, 'out_features')
    H.fails_here(function() nn.Bilinear(2, 3, 4)(amp.ones(5, 2), amp.ones(5, 2)) end, '5x2', '3')
  end)
end)

describe('embeddings', function()
  local function index(...) return amp.tensor({ ... }, { dtype = 'int64' }) end
  it('keep the padding row at zero', function()
    local m = nn.Embedding(4, 2, { padding_idx = -4 })
    H.close(m.weight[1], { 0, 0 }, H.exact)
    m(index(1, 2, 1)):sum():backward()
    H.close(m.weight.grad, { 0, 0, 1, 1, 0, 0, 0, 0 }, H.exact)
    assert.equal('nn.Embedding(4 x 2, padding 1)', tostring(m))
  end)
  it('scale down rows in use that are too large', function()
    local m = nn.Embedding(3, 2, { max_norm = 1 })
    amp.no_grad(function() m.weight:copy_(amp.tensor { { 3, 4 }, { 3, 4 }, { 0.3, 0.4 } }) end)
    H.close(m(index(1, 3, 1)), { 0.6, 0.8, 0.3, 0.4, 0.6, 0.8 }, 4)
    H.close(m.weight, { 0.6, 0.8, 3, 4, 0.3, 0.4 }, 4)
  end)
  it('take a table', function()
    local w = amp.randn(3, 2)
    local m = nn.Embedding.from_pretrained(w)
    assert.is_false(m.weight.requires_grad)
    H.same(m(index(2)), w[{ { 2, 2 } }])
    assert.is_true(nn.Embedding.from_pretrained(w, { freeze = false }).weight.requires_grad)
    H.fails_here(function() nn.Embedding.from_pretrained(amp.ones(3)) end, '3')
  end)
  it('sum bags', function()
    local m = nn.EmbeddingBag(4, 2, { mode = 'sum' })
    local w = m.weight:detach()
    H.close(m(index(1, 2, 4), index(1, 3)), H.values(amp.stack { w[1] + w[2], w[4] }))
    H.close(m(amp.tensor({ { 1, 2 } }, { dtype = 'int64' })), H.values(w[1] + w[2]))
    assert.equal('nn.EmbeddingBag(4 x 2, sum)', tostring(m))
    H.fails_here(function() nn.EmbeddingBag(4, 2, { mode = 'min' }) end, 'mode', 'min')
  end)
  it('refuse wrong arguments', function()
    H.fails_here(function() nn.Embedding(4, 2, { padding_idx = 5 }) end, 'padding_idx', '5', '4')
    H.fails_here(function() nn.Embedding(4, 2, { max_norm = -1 }) end, 'max_norm', '-1')
    H.fails_here(function() nn.Embedding(4) end, 'embedding_dim')
  end)
end)

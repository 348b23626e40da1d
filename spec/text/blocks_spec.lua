--- RotaryEmbedding, SwiGLU, LoRA.
local amp = require 'amp'
local nn = amp.nn
local H = require 'spec.lib.helper'

local fails = H.fails

describe('nn.RotaryEmbedding', function()
  it('turns pairs half a head apart by position over base ^ (2 i / dim)', function()
    local rope = nn.RotaryEmbedding(4, { base = 100 })
    local x = H.make({ 1, 2, 3, 4, 5, 6, 7, 8 }, { 2, 4 })
    local want = { 1, 2, 3, 4 }
    local angle = { 1, 0.1 }
    for i = 1, 2 do
      local a, b = H.values(x)[4 + i], H.values(x)[6 + i]
      want[4 + i] = a * math.cos(angle[i]) - b * math.sin(angle[i])
      want[6 + i] = b * math.cos(angle[i]) + a * math.sin(angle[i])
    end
    H.close(rope(x), want, { rtol = 1e-6, atol = 1e-6 })
  end)
  it('takes offsets, positions, keys beside queries; products depend on distance alone', function()
    local rope = nn.RotaryEmbedding(8)
    local q, k = H.sample { 2, 3, 5, 8 }, H.sample { 2, 1, 5, 8 }
    local a, b = rope(q, k)
    local c = rope(q, { offset = 7 })
    local positions = amp.arange(1, 6, { dtype = 'int64', device = q.device })
    H.close(rope(q, { positions = positions }), H.values(a))
    H.close(rope(q, { positions = positions:unsqueeze(1):expand(2, 5) + 7 }), H.values(c))
    local d = rope(k, { offset = 7 })
    H.close(a:matmul(b:transpose(3, 4)), H.values(c:matmul(d:transpose(3, 4))), { rtol = 1e-4, atol = 1e-4 })
    assert.equal('bfloat16', rope(q:bfloat16()).dtype)
    assert.equal(0, #rope:parameters())
  end)
  it('has gradients of both orders', function()
    local rope = nn.RotaryEmbedding(4)
    local x = H.sample({ 1, 2, 3, 4 }, 'float64')
    x.requires_grad = true
    assert.is_true(amp.gradcheck(function(t) return rope(t) end, { x }))
    assert.is_true(amp.gradgradcheck(function(t) return rope(t) end, { x }))
  end)
  it('keeps its tables beyond a scope, and where they are moved', function()
    local rope = nn.RotaryEmbedding(4)
    local x = H.sample { 3, 4 }
    local first
    amp.scope(function() first = H.values(rope(x)) end)
    H.close(rope(x), first)
    rope:to 'bfloat16'
    H.close(rope(x), first)
    H.close(rope:clone()(x), first)
  end)
  it('refuses odd sizes, unknown scalings, missing factors', function()
    fails(function() nn.RotaryEmbedding(5) end, 'dim must be even, got 5')
    fails(function() nn.RotaryEmbedding(4, { scaling = { type = 'lineer', factor = 2 } }) end, "'lineer'", 'linear')
    fails(function() nn.RotaryEmbedding(4, { scaling = { type = 'linear' } }) end, 'scaling.factor')
    fails(function() nn.RotaryEmbedding(4)(amp.ones(2, 6)) end, '... x length x 4 expected, got shape 2x6')
    fails(function() nn.RotaryEmbedding(4, { bse = 3 }) end, 'base')
  end)
end)

describe('nn.SwiGLU', function()
  it('is down(silu(gate) * up)', function()
    local m = nn.SwiGLU(4, 6, { out_features = 3, bias = true })
    local x = H.sample({ 2, 4 }):cpu()
    local want = m.down_proj(amp.silu(m.gate_proj(x)) * m.up_proj(x))
    H.close(m(x), H.values(want))
    assert.equal(24, nn.SwiGLU(8).gate_proj.out_features)
    assert.equal(3, #nn.SwiGLU(8):parameters())
  end)
end)

describe('attention with options', function()
  it('shares heads of keys, drops weights, takes a scale', function()
    local q, k, v = H.sample({ 1, 4, 3, 2 }), H.sample({ 1, 2, 3, 2 }), H.sample({ 1, 2, 3, 2 })
    local F = nn.functional
    local shared = F.scaled_dot_product_attention(q, k, v, { is_causal = true, enable_gqa = true, scale = 0.3 })
    local twice = F.scaled_dot_product_attention(q, k:repeat_interleave(2, 2), v:repeat_interleave(2, 2), { is_causal = true, scale = 0.3 })
    H.close(shared, H.values(twice), { rtol = 1e-5, atol = 1e-6 })
    assert.is_false(amp.equal(F.scaled_dot_product_attention(q, q, q, { dropout_p = 0.5 }), F.scaled_dot_product_attention(q, q, q)))
    fails(function() F.scaled_dot_product_attention(q, k, v, { enable_gqa = false }) end, 'broadcast')
  end)
end)

describe('nn.utils.lora', function()
  local function net()
    amp.manual_seed(2)
    local n = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 2, false)))
    return n
  end
  local x = amp.tensor { { 1, -2, 3, 0.5 }, { 0.25, 1, -1, 2 } }
  it('begins as the network was, trains adapters alone, and merges', function()
    local n = net()
    local before, weight = n(x), n[1].weight:detach():clone()
    assert.is_true(nn.utils.lora(n, { rank = 2, alpha = 4, targets = { '1', '3.2' } }) == n)
    H.close(n(x), H.values(before))
    local trained = {}
    for name, p in n:named_parameters() do
      if p.requires_grad then trained[#trained + 1] = name end
    end
    table.sort(trained)
    assert.same({ '1.lora_A', '1.lora_B', '3.1.lora_A', '3.1.lora_B', '3.2.lora_A', '3.2.lora_B' }, trained)
    assert.same({ 2, 4 }, n[1].lora_A.shape)
    assert.same({ 6, 2 }, n[1].lora_B.shape)
    local opt = amp.optim.SGD(nn.utils.lora_parameters(n), { lr = 0.1 })
    for _ = 1, 5 do
      n(x):square():mean():backward()
      opt:step():clear_grad()
    end
    H.same(weight, n[1].weight:detach())
    local after = n(x)
    assert.is_true((after - before):abs():max():item() > 1e-3)
    local state, twin = nn.utils.lora_state_dict(n), nn.utils.lora(net(), { rank = 2, alpha = 4, targets = { '1', '3.2' } })
    twin:load_state_dict(state, { strict = false })
    H.close(twin(x), H.values(after))
    H.close(n:clone()(x), H.values(after))
    nn.utils.merge_lora(n)
    H.close(n(x), H.values(after), { rtol = 1e-5, atol = 1e-6 })
    H.close(n[1].weight, H.values(weight + (twin[1].lora_B:matmul(twin[1].lora_A) * 2):detach()), { rtol = 1e-5, atol = 1e-6 })
    assert.equal(5, #n:parameters())
    for _, p in ipairs(n:parameters()) do assert.is_true(p.requires_grad) end
    assert.is_truthy(nn.utils.lora(n))
  end)
  it('works in a region, on 16-bit weights, with dropout, and leaves what was frozen frozen', function()
    local n = net()
    n[1].weight.requires_grad = false
    nn.utils.lora(n, { targets = '1', dropout = 0.5, trainable = { '3.2' } })
    assert.is_true(n[3][2].weight.requires_grad)
    amp.autocast({ dtype = 'bfloat16' }, function() return n(x):float():sum() end):backward()
    assert.is_truthy(n[1].lora_B.grad)
    nn.utils.merge_lora(n)
    assert.is_false(n[1].weight.requires_grad)
    local half = nn.utils.lora(net():bfloat16(), { rank = 2 })
    assert.equal('float32', half[1].lora_A.dtype)
    half(x:bfloat16()):float():sum():backward()
    assert.is_truthy(half[1].lora_B.grad)
    assert.equal('bfloat16', nn.utils.merge_lora(half)[1].weight.dtype)
  end)
  it('refuses targets that nothing matches, layers of other classes, a second time', function()
    fails(function() nn.utils.lora(net(), { targets = { '1', 'c_attn' } }) end, "no module's name matches target 'c_attn'")
    fails(function() nn.utils.lora(net(), { targets = { '3' } }) end, "target '3'", 'nn.Sequential', 'nn.Linear')
    fails(function() nn.utils.lora(net(), { targets = {} }) end, 'targets are a list of names')
    fails(function() nn.utils.lora(net(), { rank = 0 }) end, 'rank')
    fails(function() nn.utils.lora(net(), { targets = '1', trainable = { 'x' } }) end, "no module's name matches 'x' of trainable")
    fails(function() nn.utils.lora(nn.Sequential(nn.ReLU())) end, 'no nn.Linear layer')
    fails(function() nn.utils.merge_lora(net()) end, 'has no adapters')
    fails(function() nn.utils.lora(nn.utils.lora(net())) end, 'has adapters already')
    fails(function() nn.utils.lora(nn.MultiheadAttention(4, 2), { targets = 'out_proj' }) end, 'nn.MultiheadAttention')
    local n = net()
    pcall(nn.utils.lora, n, { targets = { '1', 'x' } })
    for _, p in ipairs(n:parameters()) do assert.is_true(p.requires_grad) end
  end)
end)

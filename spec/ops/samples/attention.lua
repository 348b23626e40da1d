--- Attention and products: what fixtures can't say (dropout), and wrong calls.
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'

local closed, wrong = {}, {}

function closed.scaled_dot_product_attention()
  -- dropout: weights are zeroed with probability p and the others scaled by 1 / (1 - p)
  local q, k = amp.zeros(2, 40, 3), amp.zeros(2, 50, 3)
  local v = amp.ones(2, 50, 1, { requires_grad = true })
  amp.manual_seed(3)
  local y = amp.scaled_dot_product_attention(q, k, v, { dropout_p = 0.25 })
  local mean = y:mean():item()
  assert.is_true(math.abs(mean - 1) < 0.05, 'mean ' .. mean)
  assert.is_true(y:var():item() > 1e-4)
  y:sum():backward()
  assert.is_true(math.abs(v.grad:sum():item() - y:sum():item()) < 1e-3)
  H.close(amp.scaled_dot_product_attention(q, k, v, { dropout_p = 1 }):sum(), { 0 }, H.exact)
  -- the mask's gradient in 16-bit, and the same through a graph of the derivative
  for _, dt in ipairs(H.floats) do
    local m = amp.zeros(2, 2, { dtype = dt, requires_grad = true })
    local x = amp.ones(2, 3, { dtype = dt })
    local out = amp.scaled_dot_product_attention(x, x, amp.tensor({ { 1, 0 }, { 0, 1 } }, { dtype = dt }), m)
    assert.equal(dt, out.dtype)
    out:backward(amp.ones(2, 2, { dtype = dt }))
    H.close(m.grad, { 0, 0, 0, 0 })
  end
end

function closed.attention_kept()
  -- every weight for itself, the same from the same beginning; more in spec/ops/nn_attention_dropout_spec.lua
  local q, k = amp.zeros(2, 30, 3), amp.zeros(2, 40, 3)
  local function kept(seed, place, p)
    return ops.call('attention_kept', { q, k, amp.tensor({ seed, place }, { dtype = 'int64' }) }, { dropout_p = p })[1]
  end
  assert.equal('bool 2x30x40', kept(1, 0, 0.25).dtype .. ' ' .. tostring(kept(1, 0, 0.25):size()))
  assert.is_true(math.abs(kept(1, 0, 0.25):float():mean():item() - 0.75) < 0.05)
  H.same(kept(1, 0, 0.25), kept(1, 0, 0.25))
  assert.is_false(amp.equal(kept(1, 0, 0.25), kept(2, 0, 0.25)))
  assert.is_false(amp.equal(kept(1, 0, 0.25), kept(1, 100000, 0.25)))
  assert.equal(0, kept(1, 0, 1):float():sum():item())
  H.fails(function() ops.call('attention_kept', { q, k, amp.zeros(2) }, { dropout_p = 0.5 }) end, 'draw', 'int64')
  H.fails(function() kept(1, 0, 1.5) end, 'dropout_p', '1.5')
end

function closed.multi_head_attention()
  local x = amp.randn(3, 2, 4)
  local w, o = amp.randn(12, 4), amp.randn(4, 4)
  -- one tensor for all three takes one product; the same as three
  local a = amp.multi_head_attention(x, x, x, 2, w, nil, o, { need_weights = false })
  local b = amp.multi_head_attention(x, x:clone(), x:clone(), 2, w, nil, o, { need_weights = false })
  assert.is_true(a:allclose(b, { rtol = 1e-4, atol = 1e-5 }))
  local y, weights = amp.multi_head_attention(x, x, x, 2, { in_proj_weight = w, out_proj_weight = o })
  assert.is_true(a:allclose(y, { rtol = 1e-4, atol = 1e-5 }))
  assert.equal('2x3x3', tostring(weights:size()))
  H.fails(function() amp.multi_head_attention(x, x, x, 2, w, nil, o, { need_weigths = true }) end, 'need_weigths', 'need_weights')
  H.fails(function() amp.multi_head_attention(x, x, x, 2, w, nil, o, { in_proj_weight = w }) end, 'in_proj_weight', 'twice')
  H.fails(function() amp.multi_head_attention(x, x, x, 2, w, 3, o) end, 'in_proj_bias', '3')
  H.fails(function() amp.multi_head_attention(x, x, x, 3, w, nil, o) end, 'embed_dim 4', 'num_heads 3')
  H.fails(function() amp.multi_head_attention(x, x, x, 2, w) end, 'out_proj_weight')
end

function closed.einsum()
  local a, b = H.sample { 2, 3 }, H.sample { 3, 4 }
  H.same(amp.einsum('ij,jk->ik', a, b), amp.matmul(a, b))
  H.same(amp.einsum('ij,jk', { a, b }), amp.matmul(a, b))
  H.same(amp.einsum(' i j , j k -> k i ', a, b), amp.matmul(a, b):t())
  H.same(amp.einsum('...j,jk', a, b), amp.matmul(a, b))
  H.same(amp.einsum('ij->ji', a), a:t())
  local c = H.sample { 3, 3 }
  H.close(amp.einsum('ii', c), { c:trace():item() })
  H.same(amp.einsum('ii->i', c), c:diagonal())
  H.fails(function() amp.einsum('ij,jk->ik', a, a) end, 'einsum', "'j'", '3', '2')
  H.fails(function() amp.einsum('ij,jk->iz', a, b) end, "'z'")
  H.fails(function() amp.einsum('ij,jk->ii', a, b) end, "'i'", 'twice')
  H.fails(function() amp.einsum('ijk,jk->ik', a, b) end, "'ijk'", '3', '2x3')
  H.fails(function() amp.einsum('i,jk->ik', a, b) end, "'i'", '2x3')
  H.fails(function() amp.einsum('ij,jk->ik', a) end, '2', '1')
  H.fails(function() amp.einsum('i1,jk->ik', a, b) end, "'1'")
  H.fails(function() amp.einsum('i.j,jk->ik', a, b) end, 'ellipsis')
  H.fails(function() amp.einsum('ii', a) end, "'i'", '2', '3')
  H.fails(function() amp.einsum(a, b) end, 'equation')
  H.fails(function() amp.einsum('ij', 3) end, '3')
end

function closed.tensordot()
  local a, b = H.sample { 2, 3, 4 }, H.sample { 4, 3, 2 }
  local want = amp.einsum('ijk,kjl->il', a, b)
  for _, y in ipairs { amp.tensordot(a, b, { { 2, 3 }, { 2, 1 } }), a:tensordot(b, { dims = { { 2, 3 }, { 2, 1 } } }),
    amp.tensordot(a, b, { dims_input = { 2, 3 }, dims_other = { 2, 1 } }) } do H.close(y, H.values(want), 4) end
  assert.equal('2x3x4x4x3x2', tostring(amp.tensordot(a, b, 0):size()))
  H.fails(function() amp.tensordot(a, b, { { 1 }, { 1 } }) end, '2', '4')
  H.fails(function() amp.tensordot(a, b, { { 1 }, { 1 }, { 1 } }) end, '3')
end

function closed.chain_matmul()
  local a, b, c = H.sample { 2, 3 }, H.sample { 3, 4 }, H.sample { 4, 2 }
  H.close(amp.chain_matmul(a, b, c), H.values(amp.matmul(amp.matmul(a, b), c)), 4)
  H.close(amp.multi_dot { a, b, c }, H.values(amp.matmul(amp.matmul(a, b), c)), 4)
  H.fails(function() amp.chain_matmul(a, 3) end, 'argument 2', '3')
end

function closed.embedding()
  local w = amp.ones(4, 2, { requires_grad = true })
  amp.embedding(amp.tensor({ 1, 2, 2, 4 }, { dtype = 'int64' }), w, 2):sum():backward()
  H.close(w.grad, { 1, 1, 0, 0, 0, 0, 1, 1 }, H.exact) -- the padding's row gets none
  w.grad = nil
  amp.embedding(amp.tensor({ 1, 4 }, { dtype = 'int64' }), w, { padding_idx = -1 }):sum():backward()
  H.close(w.grad, { 1, 1, 0, 0, 0, 0, 0, 0 }, H.exact)
  H.fails(function() amp.embedding(amp.tensor({ 1 }, { dtype = 'int64' }), w, 5) end, 'padding_idx', '5', '4')
end

function closed.cross()
  local a = amp.randn(50, 3)
  H.close(amp.cross(a, a), H.values(amp.zeros(50, 3)), H.exact) -- the two products are rounded alike
end

wrong.scaled_dot_product_attention = {
  { { { 2, 3, 4 }, { 2, 5, 3 }, { 2, 5, 4 }, false }, {}, { '2x3x4', '2x5x3' } }, { { { 2, 3, 4 }, { 2, 5, 4 }, { 2, 6, 4 }, false }, {},
    { '2x5x4', '2x6x4' } },
  { { { 4 }, { 5, 4 }, { 5, 4 }, false }, {}, { '4', 'query' } }, { { { 2, 3, 4 }, { 3, 5, 4 }, { 3, 5, 4 }, false }, {}, { '2x3x4', '3x5x4' } },
  { { { 2, 3, 4 }, { 2, 5, 4 }, { 2, 5, 4 }, { dtype = 'bool', 4, 5 } }, {}, { '4x5', '2x3x5' } },
  { { { 2, 3, 4 }, { 2, 5, 4 }, { 2, 5, 4 }, { dtype = 'bool', fill = 1, 3, 5 } }, { is_causal = true }, { 'attn_mask', 'is_causal' } },
  { { { 2, 3, 4 }, { 2, 5, 4 }, { 2, 5, 4 }, { dtype = 'float64', 3, 5 } }, {}, { 'attn_mask', 'float64', 'float32' } },
  { { { 2, 3, 4 }, { dtype = 'float16', 2, 5, 4 }, { 2, 5, 4 }, false }, {}, { 'float32', 'float16' } },
  { { { 2, 3, 4 }, { 2, 5, 4 }, { 2, 5, 4 }, false }, { dropout_p = 1.5 }, { 'dropout_p', '1.5' } },
  { { { dtype = 'bool', fill = 1, 2, 4 }, { 5, 4 }, { 5, 4 }, false }, {}, { 'query', 'bool' } },
  { { { 1, 4, 3, 2 }, { 1, 3, 3, 2 }, { 1, 3, 3, 2 }, false }, { enable_gqa = true }, { '4', '3' } },
  { { { 3, 2 }, { 3, 2 }, { 3, 2 }, false }, { enable_gqa = true }, { '3x2' } },
  { { { 1, 4, 3, 2 }, { 1, 2, 3, 2 }, { 1, 2, 3, 2 }, false }, {}, { '1x4x3x2', '1x2x3x2' } },
}

local x, w, o = { 3, 2, 4 }, { 12, 4 }, { 4, 4 }
local parts = 1 + 128 -- in_proj_weight, out_proj_weight
wrong.multi_head_attention = {
  { { x, x, x, { list = { w, o } } }, { parts = parts, num_heads = 3 }, { 'embed_dim 4', 'num_heads 3' } },
  { { x, x, x, { list = { w, o } } }, { parts = parts, num_heads = 0 }, { 'num_heads 0' } },
  { { x, x, x, { list = { w } } }, { parts = 1, num_heads = 2 }, { 'out_proj_weight' } },
  { { x, x, x, { list = { o } } }, { parts = 128, num_heads = 2 }, { 'in_proj_weight' } },
  { { x, x, x, { list = { w, o } } }, { parts = 1, num_heads = 2 }, { 'parts', '1', '2' } },
  { { x, x, x, { list = { { 12, 5 }, o } } }, { parts = parts, num_heads = 2 }, { 'in_proj_weight', '12x5', '12x4' } },
  { { x, { 3, 2, 5 }, x, { list = { w, o } } }, { parts = parts, num_heads = 2 }, { 'key', '5', '4' } },
  { { x, x, { 2, 2, 4 }, { list = { w, o } } }, { parts = parts, num_heads = 2 }, { '3x2x4', '2x2x4' } },
  { { { 4 }, { 4 }, { 4 }, { list = { w, o } } }, { parts = parts, num_heads = 2 }, { 'query', '4' } },
  { { x, x, x, { list = { w, o, { dtype = 'bool', 2, 3 } } } }, { parts = parts + 512, num_heads = 2 }, { 'attn_mask', '2x3', '3x3' } },
  { { x, x, x, { list = { w, o, { dtype = 'bool', 3, 2 } } } }, { parts = parts + 1024, num_heads = 2 }, { 'key_padding_mask', '3x2', '2x3' } },
  { { x, x, x, { list = { w, { dtype = 'float16', 4, 4 } } } }, { parts = parts, num_heads = 2 }, { 'float32', 'float16' } },
  { { x, x, x, { list = { w, o } } }, { parts = parts, num_heads = 2, dropout_p = 2 }, { 'dropout_p', '2' } },
}
wrong.addmv = { { { { 2 }, { 2, 3 }, { 4 } }, {}, { '2x3', '4' } }, { { { 3 }, { 2, 3 }, { 3 } }, {}, { '3', '2' } }, { { { 2 }, { 3 }, { 3 } }, {}, { '3' } } }
wrong.addr = { { { { 2, 2 }, { 2 }, { 3 } }, {}, { '2x2', '2x3' } }, { { { 2, 3 }, { 2, 1 }, { 3 } }, {}, { '2x1' } } }
wrong.addbmm = { { { { 3, 2 }, { 2, 3, 4 }, { 3, 4, 2 } }, {}, { '2x3x4', '3x4x2' } }, { { { 2, 2 }, { 2, 3, 4 }, { 2, 4, 2 } }, {}, { '2x2', '3x2' } } }
wrong.chain_matmul = { { { { list = { { 2, 3 }, { 4, 2 } } } }, {}, { '2x3', '4x2' } }, { { { list = {} } }, {}, {} },
  { { { list = { { 2, 3 }, { 3 }, { 3, 2 } } } }, {}, { 'matrix 2', '3' } } }
wrong.vecdot = { { { { 2, 3 }, { 2, 4 } }, {}, { '2x3', '2x4' } }, { { { 3 }, { dtype = 'float64', 3 } }, {}, { 'float32', 'float64' } } }
wrong.vdot = { { { { 3 }, { 4 } }, {}, { '3', '4' } }, { { { 3, 1 }, { 3 } }, {}, { '3x1' } } }
wrong.cross = { { { { 2, 4 }, { 2, 4 } }, {}, { '2x4' } }, { { { 2, 3 }, { 2, 3 } }, { dim = 1 }, { '1', '2' } },
  { { { 2, 3 }, { 3, 3 } }, {}, { '2x3', '3x3' } }, { { { 2, 1 }, { 2, 3 } }, {}, { '2x1' } } }
wrong.tensordot = { { { { 2, 3 }, { 4, 2 } }, { dims = 1 }, { '3', '4' } }, { { { 2, 3 }, { 3 } }, { dims = 2 }, { '2', '2x3' } },
  { { { 2, 3 }, { 3 } }, { dims = -1 }, { '-1' } },
  { { { 2, 3 }, { 3, 2 } }, { dims_input = { 1, 2 }, dims_other = { 1 } }, { '2', '1' } }, { { { 2, 3 }, { 3, 2 } }, { dims_input = { 1 } }, { 'dims_other' } },
  { { { 2, 3 }, { dtype = 'float64', 3, 2 } }, { dims = 1 }, { 'float32', 'float64' } } }
wrong.outer = { { { { 2, 3 }, { 3 } }, {}, { '2x3' } } }
wrong.inner = { { { { 2, 3 }, { 4 } }, {}, { '2x3', '4' } } }
wrong.kron = { { { { 1, 1, 1, 1, 2 }, { 2 } }, {}, { '1x1x1x1x2' } } }
wrong.trace = { { { { 3 } }, {}, { '3' } }, { { { 2, 2, 2 } }, {}, { '2x2x2' } } }
wrong.bilinear = { { { { 2, 3 }, { 2, 4 }, { 5, 4, 3 }, false }, {}, { '2x3', '5x4x3' } }, { { { 2, 3 }, { 1, 4 }, { 5, 3, 4 }, false }, {}, { '2x3', '1x4' } },
  { { { 2, 3 }, { 2, 4 }, { 5, 3, 4 }, { 4 } }, {}, { 'bias', '4', '5' } }, { { { 2, 3 }, { 2, 4 }, { 3, 4 }, false }, {}, { '3x4' } } }
-- labels as C sees them: i = 9, j = 10, k = 11, 6 bits each
wrong.einsum = {
  { { { list = { { 2, 3 }, { 4, 2 } } } }, { subscripts = { 9 + 64 * 10, 10 + 64 * 11 }, output = 9 + 64 * 11 }, { "'j'", '4', '3' } },
  { { { list = { { 2, 3 } } } }, { subscripts = { 9 + 64 * 10 }, output = 11 }, { "'k'" } },
  { { { list = { { 2, 3 } } } }, { subscripts = { 9 }, output = 9 }, { '2x3', '1' } },
  { { { list = { { 2, 3 } } } }, { subscripts = { 9, 9 }, output = 9 }, { '2', '1' } },
  { { { list = { { 2 } } } }, { subscripts = { 63 }, output = 0 }, { '63' } },
  { { { list = { { 2, 3 }, { dtype = 'float64', 3, 2 } } } }, { subscripts = { 9 + 64 * 10, 10 + 64 * 11 }, output = 0 }, { 'float32', 'float64' } },
}

local int = function(...) return { dtype = 'int64', fill = 1, ... } end
wrong.embedding_bag = {
  { { int(4), { 4, 3 }, false, false }, {}, { '4', 'offsets' } }, { { int(2, 2), { 4, 3 }, int(2), false }, {}, { '2x2', 'offsets' } },
  { { int(4), { 4, 3 }, { dtype = 'int64', fill = 2, 1 }, false }, {}, { 'offset', '2' } }, { { int(2, 2), { 4, 3 }, false, { 2, 2 } }, {},
    { 'per_sample_weights', 'mean' } },
  { { int(2, 2), { 4, 3 }, false, { 2, 3 } }, { mode = 'sum' }, { '2x3', '2x2' } }, { { { dtype = 'int64', fill = 5, 2, 2 }, { 4, 3 }, false, false }, {},
    { '5', '4' } },
  { { int(2, 2), { 4, 3 }, false, false }, { padding_idx = 5 }, { 'padding_idx', '5', '4' } }, { { { 2, 2 }, { 4, 3 }, false, false }, {}, { 'float32' } },
  { { int(2, 2, 2), { 4, 3 }, false, false }, {}, { '2x2x2' } },
}

return { closed = closed, wrong = wrong }

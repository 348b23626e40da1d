--- Attention with dropout against the same formulas in float64 with the mask that was drawn: values, first and second
-- derivatives, masks, layouts, sizes around tiles; how masks are drawn, repeated, and drawn anew. On the GPU too if one
-- is there (or emulated).
local amp = require 'amp'
local core = require 'amp.ffi'
local ops = require 'spec.ops.op_call'
local H = require 'spec.lib.helper'
local F, S = amp.nn.functional, core.S
local devices = amp.cuda.is_available() and { 'cpu', 'cuda' } or { 'cpu' }

--- What is kept by dropout of p of n x h x l x s weights drawn from a seed: those of values that are the identity
local function kept_of(device, size, p, seed)
  local n, h, l, s = unpack(size)
  amp.manual_seed(seed)
  local zero = function(length) return amp.zeros({ n, h, length, 1 }, { device = device }) end
  local eye = amp.eye(s, { device = device }):expand { n, h, s, s }
  return F.scaled_dot_product_attention(zero(l), zero(s), eye, { dropout_p = p }):gt(0):cpu()
end

--- out, dq, dk, dv in float64 with what was kept
local function reference(o, q, k, v, g, mask, kept)
  local x = {}
  for i, t in ipairs { q, k, v } do x[i] = t:detach():cpu():double():requires_grad_() end
  local keys, values = x[2], x[3]
  if o.groups then keys, values = keys:repeat_interleave(o.groups, 2), values:repeat_interleave(o.groups, 2) end
  local s = amp.matmul(x[1], keys:transpose(3, 4)) * (o.scale or 1 / math.sqrt(q:size(4)))
  local see = o.causal and amp.ones(o.l, o.s):tril():to 'bool' or nil
  if mask and mask.dtype == 'bool' then see = mask elseif mask then s = s + mask:double() end
  if see then s = amp.where(see, s, amp.full({}, -1e30, { dtype = 'float64' })) end
  local w = F.softmax(s, 4)
  if see then w = w * see:double() end
  local y = amp.matmul(w * kept:double() * (o.p < 1 and 1 / (1 - o.p) or 0), values)
  y:backward(g:cpu():double())
  return { y:detach(), x[1].grad, x[2].grad, x[3].grad }
end

local masks = {
  keys = function(o) return amp.rand(o.n, 1, 1, o.s):gt(0.4) end,
  bool = function(o) return amp.rand(o.n, o.h, o.l, o.s):gt(0.5) end,
  float = function(o) return amp.randn(o.l, o.s) end,
  rows = function(o) -- the first row alone has keys
    local t = amp.zeros(o.l, o.s):gt(1)
    t:narrow(1, 1, 1):fill_(true)
    return t
  end,
}

local function inputs(o)
  local function randn(...) return amp.randn({ ... }, { dtype = o.dtype == 'float64' and 'float64' or 'float32' }):to(o.dtype) end
  local q, k, v
  if o.kind == 'packed' then
    local t = randn(o.n, o.l, 3, o.h, o.d):unbind(3)
    q, k, v = t[1]:transpose(2, 3), t[2]:transpose(2, 3), t[3]:transpose(2, 3)
  else
    local heads = o.h / (o.groups or 1)
    q, k, v = randn(o.n, o.h, o.l, o.d), randn(o.n, heads, o.s, o.d), randn(o.n, heads, o.s, o.d)
    if o.kind == 'columns' then
      local function turned(t) return t:transpose(3, 4):contiguous():transpose(3, 4) end
      q, k, v = turned(q), turned(k), turned(v)
    end
  end
  return q, k, v, randn(o.n, o.l, o.h, o.d):transpose(2, 3), o.mask and masks[o.mask](o)
end

local function check(device, o)
  o.n, o.h, o.d, o.p = o.n or 1, o.h or 2, o.d or 16, o.p or 0.3
  amp.manual_seed(5)
  local q, k, v, g, mask = inputs(o)
  local kept = kept_of(device, { o.n, o.h, o.l, o.s }, o.p, 77)
  local x = {}
  for i, t in ipairs { q, k, v } do x[i] = (device == 'cpu' and t or t:to(device)):detach():requires_grad_() end
  amp.manual_seed(77)
  local y = F.scaled_dot_product_attention(x[1], x[2], x[3], { attn_mask = mask and mask:to(device), is_causal = o.causal or false, dropout_p = o.p,
    enable_gqa = o.groups ~= nil, scale = o.scale })
  y:backward(g:to(device))
  local want = reference(o, q, k, v, g, mask, kept)
  for i, t in ipairs { y:detach(), x[1].grad, x[2].grad, x[3].grad } do
    local wrong = H.difference(t:cpu(), H.values(want[i]), H.shape(want[i]), H.tolerance[o.dtype], i > 1 and 8 or 4)
    if wrong then error(('%s %s %dx%d d %d mask %s %s: %s'):format(device, o.dtype, o.l, o.s, o.d, o.mask, ({ 'out', 'dq', 'dk', 'dv' })[i], wrong), 0) end
  end
end

local sizes = { { 1, 1 }, { 5, 7 }, { 16, 16 }, { 17, 33 }, { 40, 20 }, { 33, 70 } }

for _, device in ipairs(devices) do
  describe('attention with dropout on ' .. device, function()
    for _, dtype in ipairs { 'float64', 'float32', 'float16', 'bfloat16' } do
      it('is that of the mask in ' .. dtype .. ': sizes, masks, layouts, grouped heads', function()
        for _, ls in ipairs(sizes) do check(device, { dtype = dtype, l = ls[1], s = ls[2] }) end
        check(device, { dtype = dtype, l = 21, s = 21, causal = true, kind = 'packed', n = 2 })
        check(device, { dtype = dtype, l = 35, s = 20, causal = true, d = 12 })
        check(device, { dtype = dtype, l = 20, s = 35, d = 72, p = 0.9 })
        for name in pairs(masks) do check(device, { dtype = dtype, l = 19, s = 36, mask = name, n = 2 }) end
        check(device, { dtype = dtype, l = 18, s = 18, kind = 'columns', mask = 'keys' })
        check(device, { dtype = dtype, l = 18, s = 21, h = 4, groups = 2 })
        check(device, { dtype = dtype, l = 18, s = 21, scale = -0.4 })
        check(device, { dtype = dtype, l = 6, s = 300, h = 1, d = 8 })
      end)
    end
    it('has the second derivative of the mask', function()
      local o = { dtype = 'float64', n = 1, h = 2, l = 5, s = 6, d = 3, p = 0.4 }
      amp.manual_seed(5)
      local q, k, v, g = inputs(o)
      local kept = kept_of(device, { o.n, o.h, o.l, o.s }, o.p, 12)
      local function grads(f, at)
        local x = {}
        for i, t in ipairs { q, k, v } do x[i] = t:to(at):detach():requires_grad_() end
        local first = amp.grad((f(unpack(x)) * g:to(at)):sum(), x, { create_graph = true })
        local sum = first[1]:square():sum() + (first[2] * first[2]):sum() + first[3]:pow(3):sum()
        return first, amp.grad(sum, x)
      end
      amp.manual_seed(12)
      local first, second = grads(function(a, b, c) return F.scaled_dot_product_attention(a, b, c, { dropout_p = o.p }) end, device)
      local want, wanted = grads(function(a, b, c)
        return amp.matmul(F.softmax(amp.matmul(a, b:transpose(3, 4)) / math.sqrt(o.d), 4) * kept:double() / (1 - o.p), c)
      end, 'cpu')
      for i = 1, 3 do
        H.close(first[i]:detach():cpu(), want[i]:detach(), 16)
        H.close(second[i]:cpu(), wanted[i], 64)
      end
    end)
    it('draws by the seed: repeats from it, goes on without it', function()
      local x = amp.randn({ 1, 2, 20, 16 }, { device = device })
      local function draw() return F.scaled_dot_product_attention(x, x, x, { dropout_p = 0.5 }) end
      amp.manual_seed(4)
      local a, b = draw(), draw()
      local after = amp.rand({ 3 }, { device = device })
      amp.manual_seed(4)
      H.same(draw(), a)
      H.same(draw(), b)
      H.same(amp.rand({ 3 }, { device = device }), after)
      assert.is_false(amp.equal(a, b))
    end)
    it('keeps a share 1 - p, each weight for itself', function()
      for _, p in ipairs { 0.1, 0.5, 0.99 } do
        local kept = kept_of(device, { 2, 4, 64, 64 }, p, 3):double()
        local n = kept:numel()
        assert.is_true(math.abs(kept:mean():item() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / n) + 1e-5)
        for d = 1, 4 do -- no more alike along a dimension than by chance
          local size = kept:size(d)
          local here, there = kept:narrow(d, 1, size - 1), kept:narrow(d, 2, size - 1)
          local together = (here - (1 - p)):mul(there - (1 - p)):mean():item() / (p * (1 - p))
          assert.is_true(math.abs(together) < 5 / math.sqrt(here:numel()), ('p %g, dimension %d: %g'):format(p, d, together))
        end
        for _, apart in ipairs { { 3, 8 }, { 4, 8 }, { 3, 16 }, { 4, 16 }, { 4, 2 } } do
          local d, step = unpack(apart)
          local size = kept:size(d)
          local here, there = kept:narrow(d, 1, size - step), kept:narrow(d, 1 + step, size - step)
          local together = (here - (1 - p)):mul(there - (1 - p)):mean():item() / (p * (1 - p))
          assert.is_true(math.abs(together) < 5 / math.sqrt(here:numel()), ('p %g, dimension %d, %d apart: %g'):format(p, d, step, together))
        end
      end
    end)
    it('of probability 1 and 0, of nothing', function()
      local x = amp.randn({ 1, 2, 5, 8 }, { device = device }):requires_grad_()
      local y = F.scaled_dot_product_attention(x, x, x, { dropout_p = 1 })
      y:sum():backward()
      assert.equal(0, y:abs():sum():item())
      assert.equal(0, x.grad:abs():sum():item())
      H.same(F.scaled_dot_product_attention(x, x, x, { dropout_p = 0 }), F.scaled_dot_product_attention(x, x, x))
      for _, ls in ipairs { { 0, 4 }, { 4, 0 }, { 0, 0 } } do
        local q, k = amp.zeros({ 2, ls[1], 8 }, { device = device }):requires_grad_(), amp.zeros({ 2, ls[2], 8 }, { device = device }):requires_grad_()
        local out = F.scaled_dot_product_attention(q, k, k, { dropout_p = 0.5 })
        out:sum():backward()
        assert.equal(0, out:sum():item() + q.grad:sum():item() + k.grad:sum():item())
      end
    end)
    it('draws the same again where it is computed again', function()
      local x = amp.randn({ 1, 2, 20, 16 }, { device = device })
      local function grad(through)
        local t = x:clone():detach():requires_grad_()
        amp.manual_seed(8)
        through(function(a) return F.scaled_dot_product_attention(a, a, a, { dropout_p = 0.5 }) end, t):square():sum():backward()
        return t.grad
      end
      H.same(grad(amp.checkpoint), grad(function(f, t) return f(t) end))
    end)
    if device == 'cuda' then
      it('draws anew at every replay of a captured step, what eager steps draw', function()
        local x, most = {}, 6
        for i = 1, most do x[i] = amp.randn({ 1, 2, 20, 16 }, { device = device, dtype = 'float32' }):half() end
        local function attend(t)
          local q = t:detach():requires_grad_()
          return amp.grad(F.scaled_dot_product_attention(q, q, q, { dropout_p = 0.5 }):float():square():sum(), { q })[1]
        end
        local step = amp.capture(attend)
        local function run(f)
          amp.manual_seed(9)
          local t = {}
          for i = 1, most do t[i] = f(x[1]):clone() end
          return t
        end
        local want = run(attend)
        for _, got in ipairs { run(step), run(step) } do
          for i = 1, most do
            H.same(got[i]:cpu(), want[i]:cpu())
            for j = 1, i - 1 do assert.is_false(amp.equal(got[i], got[j])) end
          end
        end
      end)
    end
    it('is what its own row says it kept', function()
      local q, k = amp.zeros({ 1, 2, 19, 1 }, { device = device }), amp.zeros({ 1, 2, 34, 1 }, { device = device })
      for _, p in ipairs { 0.3, 1 } do
        amp.manual_seed(6)
        local draw = amp.tensor({ tonumber(S.seed), tonumber(S.rng_offset) }, { dtype = 'int64', device = device })
        local kept = ops.call('attention_kept', { q, k, draw }, { dropout_p = p })[1]
        assert.equal('bool', kept.dtype)
        H.same(kept:cpu(), kept_of(device, { 1, 2, 19, 34 }, p, 6))
      end
    end)
  end)
end

describe('layers', function()
  it('drop attention weights in training alone', function()
    for _, device in ipairs(devices) do
      amp.manual_seed(1)
      local m, x = amp.nn.MultiheadAttention(8, 2, 0.5):to(device), amp.randn({ 6, 2, 8 }, { device = device })
      local o = { need_weights = false }
      assert.is_false(amp.equal(m(x, x, x, o), m(x, x, x, o)))
      m:eval()
      H.same(m(x, x, x, o), m(x, x, x, o))
    end
  end)
  it('make no matrix of scores', function()
    local x = amp.randn(1, 1, 700, 8):requires_grad_()
    local before = H.live()
    local y = F.scaled_dot_product_attention(x, x, x, { dropout_p = 0.1 })
    local most = H.live() - before
    y:sum():backward()
    assert.is_true(most < 700 * 700, tostring(most))
  end)
end)

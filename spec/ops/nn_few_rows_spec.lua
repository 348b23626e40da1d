--- What a text model does for one token after the other: products of a few rows with a matrix, attention of a few queries over many
-- keys. In 16 bits, against float64 of the same numbers; on a card these have kernels of their own.
local amp = require 'amp'
local H = require 'spec.lib.helper'

local device = H.device or 'cpu'

local function near(got, want, dtype)
  assert.equal(dtype, got.dtype)
  local g, w = got:cpu():double(), want:double()
  local bound = (dtype == 'bfloat16' and 2 ^ -7 or 2 ^ -9) * math.max(1, w:abs():max():item())
  assert.is_true((g - w):abs():max():item() <= bound, ('%g > %g'):format((g - w):abs():max():item(), bound))
end

-- The same numbers in 16 bits on the device, and in float64.
local function both(dtype, ...)
  local x = amp.randn(...):to(dtype)
  return x:to(device), x:double()
end

describe('a few rows times a matrix', function()
  for _, dtype in ipairs { 'bfloat16', 'float16' } do
    it('in ' .. dtype .. ', with and without bias, of any sizes', function()
      amp.manual_seed(1)
      for _, size in ipairs { { 1, 8, 1 }, { 1, 24, 7 }, { 2, 64, 17 }, { 3, 256, 33 }, { 4, 768, 40 }, { 1, 2056, 5 }, { 3, 3072, 19 }, { 1, 20, 6 } } do
        local x, wide_x = both(dtype, size[1], size[2])
        local w, wide_w = both(dtype, size[3], size[2])
        local b, wide_b = both(dtype, size[3])
        near(amp.linear(x, w, b), wide_x:matmul(wide_w:t()) + wide_b, dtype)
        near(amp.linear(x, w), wide_x:matmul(wide_w:t()), dtype)
        near(amp.linear(x[1], w, b), wide_x[1]:matmul(wide_w:t()) + wide_b, dtype)
        near(x:matmul(w:t()), wide_x:matmul(wide_w:t()), dtype)
        local rows, wide_rows = both(dtype, size[1], 2 * size[2]) -- with gaps between them
        near(amp.linear(rows:narrow(2, 1, size[2]), w, b), wide_rows:narrow(2, 1, size[2]):matmul(wide_w:t()) + wide_b, dtype)
      end
    end)
    it('in ' .. dtype .. ', with an activation after it', function()
      amp.manual_seed(2)
      local x, wide_x = both(dtype, 3, 64)
      local w, wide_w = both(dtype, 24, 64)
      local b, wide_b = both(dtype, 24)
      local z = (wide_x:matmul(wide_w:t()) + wide_b)
      local net = amp.nn.Sequential(amp.nn.Linear(64, 24), amp.nn.ReLU()):to(dtype):to(device)
      amp.no_grad(function()
        net[1].weight:copy_(w)
        net[1].bias:copy_(b)
        near(net(x), z:relu(), dtype)
        net[2] = amp.nn.GELU { approximate = 'tanh' }
        near(net(x), amp.gelu(z, 'tanh'), dtype)
      end)
    end)
  end
end)

describe('attention of a few queries', function()
  local function reference(q, k, v, mask, causal)
    local s = q:matmul(k:transpose(-1, -2)) / math.sqrt(q:size(-1))
    if causal then mask = amp.ones({ q:size(-2), k:size(-2) }, { dtype = 'bool' }):tril() end
    if mask and mask.dtype == 'bool' then s = amp.where(mask, s, -math.huge) elseif mask then s = s + mask:double() end
    local p = s:softmax(-1)
    return amp.where(p:eq(p), p, 0):matmul(v) -- a row that sees nothing is 0
  end
  for _, dtype in ipairs { 'bfloat16', 'float16' } do
    for _, size in ipairs { 8, 40, 64, 72, 128 } do
      it(('in %s, heads of %d'):format(dtype, size), function()
        amp.manual_seed(3)
        for _, at in ipairs { { 1, 1 }, { 1, 33 }, { 1, 300 }, { 2, 70 }, { 3, 129 }, { 4, 5 } } do
          local length, keys = unpack(at)
          local q, wide_q = both(dtype, 2, 3, length, size)
          local k, wide_k = both(dtype, 2, 3, keys, size)
          local v, wide_v = both(dtype, 2, 3, keys, size)
          local sdpa = amp.scaled_dot_product_attention
          near(sdpa(q, k, v), reference(wide_q, wide_k, wide_v), dtype)
          near(sdpa(q, k, v, { is_causal = true }), reference(wide_q, wide_k, wide_v, nil, true), dtype)
          local seen = amp.rand(2, 1, 1, keys):gt(0.4)
          seen[1]:fill_(false) -- one text sees nothing
          if keys > 2 then seen[2][1][1]:narrow(1, keys - 1, 2):fill_(true) end
          near(sdpa(q, k, v, { attn_mask = seen:to(device) }), reference(wide_q, wide_k, wide_v, seen), dtype)
          local added = amp.randn(length, keys)
          near(sdpa(q, k, v, { attn_mask = added:to(device) }), reference(wide_q, wide_k, wide_v, added), dtype)
        end
      end)
    end
  end
  it('tells a NaN', function()
    local function ones(keys) return amp.ones(1, 1, keys, 16):to 'bfloat16' end
    local q, k, v = ones(1):to(device), ones(40), ones(40):to(device)
    k[1][1][7]:fill_(0 / 0)
    local y = amp.scaled_dot_product_attention(q, k:to(device), v)
    assert.is_true(y:ne(y):all():item())
  end)
end)

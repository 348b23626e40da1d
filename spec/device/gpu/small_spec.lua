--- Small 16-bit products on a GPU: two in a launch have the bits of each alone, the kernels of what layers mostly are
-- those of the one that takes anything, and all are right. Needs a GPU (or the emulator).
local amp = require 'amp'
local raw = require('spec.ops.op_call').raw

local F = amp.nn.functional
local here = amp.cuda.is_available()
local most = { float16 = 2e-3, bfloat16 = 1.6e-2 }

local function gpu(m, n)
  if n then return amp.randn(m, n, { device = 'cuda' }) end
  return amp.randn(m, { device = 'cuda' })
end

-- the same matrix where no row begins on a boundary of 16 bytes
local function shifted(t)
  local m, n = t:size(1), t:size(2)
  return amp.zeros(m * n + 1, { device = 'cuda' }):to(t.dtype):narrow(1, 2, m * n):view(m, n):copy_(t)
end

local function equal(a, b, what) if not a:cpu():equal(b:cpu()) then error(what .. ': other bits', 0) end end

local function near(a, b, what)
  local far = (a:double() - b):abs():max():item() / (b:abs():max():item() + 1)
  if far ~= far or far > most[a.dtype] then error(('%s: %g off'):format(what, far), 0) end
end

-- rows, outputs, inputs
local sizes = { { 32, 64, 64 }, { 16, 16, 16 }, { 48, 112, 40 }, { 128, 128, 64 }, { 64, 32, 128 }, { 32, 128, 96 }, { 80, 48, 8 }, { 16, 64, 1000 },
  { 33, 40, 24 }, { 5, 7, 9 }, { 1, 64, 64 }, { 192, 64, 64 }, { 250, 16, 16 } }

if here then
  describe('small products', function()
    for dtype in pairs(most) do
      it('of gradients in ' .. dtype, function()
        amp.manual_seed(1)
        for _, s in ipairs(sizes) do
          local m, n, k = s[1], s[2], s[3]
          local g, x, w, y = gpu(m, n):to(dtype), gpu(m, k):to(dtype), gpu(n, k):to(dtype), gpu(m, n):to(dtype)
          for i, v in ipairs { 0, -0.0, math.huge, -math.huge, 0 / 0, -(0 / 0) } do if i <= n then y[1][i] = v end end
          for _, mask in ipairs { false, y } do
            local what = ('%s %dx%dx%d%s'):format(dtype, m, n, k, mask and ' behind ReLU' or '')
            mask = mask or nil
            local a = raw('linear_both', { g, x, w, mask }, {})
            local alone = raw('linear_weight', { g, x, mask }, {})
            equal(a[1], mask and raw('linear_input', { g, w, mask }, {})[1] or amp.matmul(g, w), what .. ': input, alone')
            local b = raw('linear_both', { shifted(g), shifted(x), shifted(w), mask and shifted(mask) }, {})
            local let = mask and g:double() * (1 - y:double():le(0):double()) or g:double()
            local want = { amp.matmul(let, w:double()), amp.matmul(let:t(), x:double()), let:sum(1) }
            for i = 1, 3 do
              if i > 1 then equal(a[i], alone[i - 1], what .. ': result ' .. i .. ' alone') end
              if m <= 192 then equal(a[i], b[i], what .. ': result ' .. i .. ', shifted') end
              near(a[i], want[i], what .. ': result ' .. i)
            end
          end
        end
      end)

      it('forward in ' .. dtype, function()
        for _, s in ipairs(sizes) do
          local m, n, k = s[1], s[2], s[3]
          if k <= 256 then
            local what = ('%s %dx%dx%d'):format(dtype, m, n, k)
            local x, w, b = gpu(m, k):to(dtype), gpu(n, k):to(dtype), gpu(n):to(dtype)
            local want = amp.matmul(x:double(), w:double():t())
            for _, bias in ipairs { false, b } do
              bias = bias or nil
              local exact = bias and want + b:double() or want
              local y = F.linear(x, w, bias)
              near(y, exact, what)
              equal(y, F.linear(shifted(x), shifted(w), bias), what .. ': shifted')
              local z = raw('linear_act', { x, w, bias }, { act = 'relu' })[1]
              near(z, exact:relu(), what .. ' and ReLU')
              equal(z, y:relu(), what .. ' and ReLU')
            end
          end
        end
      end)
    end
  end)
end

--- Layer norm, root mean square norm, softmax and cross entropy on a GPU against the CPU, at row lengths that
-- take each of the kernels' ways: in a warp's registers, in a block's, read again; whole vectors and others,
-- rows on boundaries of 16 bytes and beside them. Needs a GPU (or the emulator).
local amp = require 'amp'
local ops = require 'amp.ops'

local F = amp.nn.functional
local here = amp.cuda.is_available()
local card = here and not amp.cuda.get_device_properties().name:find 'emulated' -- the emulator is slow
local most = { float32 = 4e-6, float16 = 2e-3, bfloat16 = 1.6e-2 }

--- The largest |a - b| / (1 + |b|); NaN must stand in the same places.
local function far(a, b)
  a, b = a:detach():cpu():double(), b:detach():cpu():double()
  if not a:ne(a):equal(b:ne(b)) then return math.huge end
  return ((a - b):abs() / (b:abs() + 1)):masked_fill(a:ne(a), 0):max():item()
end

--- f(move) gives a list of tensors on the CPU and on the GPU; both agree.
local function both(what, dtype, f)
  local want, got = f(function(t) return t end), f(function(t) return t and t:cuda() end)
  for i = 1, #want do
    local d = far(got[i], want[i])
    if d > most[dtype] then error(('%s, result %d: %g'):format(what, i, d), 0) end
  end
end

local function each(lengths, f)
  for _, n in ipairs(lengths) do
    for _, dtype in ipairs { 'float32', 'float16', 'bfloat16' } do f(n, dtype, ('%d %s'):format(n, dtype)) end
  end
end

if here then
  describe('rows of every length', function()
    it('are normalised, and their gradients added to a sum', function()
      each(card and { 8, 264, 520, 768, 771, 1024, 1280, 4096, 8200, 12288, 16384 } or { 8, 264, 771, 1280 }, function(n, dtype, what)
        local rows = n <= 1024 and 9 or 3
        local x, g, s = amp.randn(rows, n):to(dtype), amp.randn(rows, n):to(n % 3 == 0 and 'bfloat16' or dtype), amp.randn(rows, n):to(dtype)
        local w, b = amp.randn(n):to(n % 16 == 0 and 'float32' or dtype), amp.randn(n):to(n % 16 == 0 and 'float32' or dtype)
        local mean, rstd = x:float():mean(2), (x:float():var(2) + 1e-5):pow(-0.5)
        both(what, dtype, function(on)
          local y = F.layer_norm(on(x), { n }, on(w), on(b))
          local z = F.rms_norm(on(x), { n }, on(w))
          local a, aw, ab = ops.get 'layer_norm_backward'(on(g), on(x), on(mean), on(rstd), on(w), on(s), { n })
          local c, cw = ops.get 'rms_norm_backward'(on(g), on(x), on(rstd), on(w), nil, { n })
          return { y, z, a, aw, ab, c, cw }
        end)
      end)
    end)

    it('are added and normalised at once, with the values of the two ops to the bit', function()
      each(card and { 8, 264, 520, 768, 771, 1024, 1280, 4096, 8200, 16384 } or { 24, 768, 7 }, function(n, dtype, what)
        local rows = n <= 1024 and card and 9 or 2
        for _, other in ipairs { 'float32', 'bfloat16' } do
          local x, r, w = amp.randn(rows, n):to(dtype):cuda(), amp.randn(rows, n):to(other):cuda(), amp.rand(n):cuda()
          local s = x + r
          for _, low in ipairs(s.dtype == 'float32' and { 'bfloat16', 'float16' } or {}) do -- the same values rounded
            local v, u = amp.add_layer_norm(x, r, { n }, w, w, 1e-5, low)
            assert.equal(low, v.dtype)
            assert.is_true(v:equal(F.layer_norm(s, { n }, w, w):to(low)))
            assert.is_true(u:equal(s))
          end
          local y, gy, gs = F.layer_norm(s, { n }, w, w), amp.randn(rows, n):to(s.dtype):cuda(), amp.randn(rows, n):to(s.dtype):cuda()
          local function gradients(joined)
            local a, b = x:detach():requires_grad_(), r:detach():requires_grad_()
            local v, u
            if joined then v, u = amp.add_layer_norm(a, b, { n }, w, w) else u = a + b v = F.layer_norm(u, { n }, w, w) end
            assert.is_true(v:detach():equal(y))
            assert.is_true(u:detach():equal(s))
            return amp.grad({ v, u }, { a, b }, { grad_outputs = { gy, gs } })
          end
          local got, want = gradients(true), gradients(false)
          for i = 1, 2 do
            assert.equal(want[i].dtype, got[i].dtype)
            local d = far(got[i], want[i]:cpu())
            if d > most[want[i].dtype] then error(('%s and %s, gradient %d: %g'):format(what, other, i, d), 0) end
          end
        end
      end)
    end)

    it('go through softmax', function()
      each(card and { 8, 260, 1000, 1024, 1283, 4096, 9216, 32000 } or { 8, 260, 1283 }, function(n, dtype, what)
        local x, g = amp.randn(3, n):mul(4):to(dtype), amp.randn(3, n):to(dtype)
        x[{ 2, 5 }] = -math.huge
        both(what, dtype, function(on)
          local y, z = amp.softmax(on(x), 2), amp.log_softmax(on(x), 2)
          return { y, z, ops.get 'softmax_backward'(on(g), y, 2), ops.get 'log_softmax_backward'(on(g), z, 2) }
        end)
      end)
    end)

    it('give cross entropy, wherever they begin', function()
      each(card and { 64, 1000, 1027, 5001, 50257 } or { 64, 1027, 5001 }, function(n, dtype, what)
        for _, pad in ipairs { 0, 3, (8 - n % 8) % 8 } do
          local base = amp.randn(3, n + pad):mul(3):to(dtype)
          local y = amp.tensor({ 1, n, -100 }, { dtype = 'int64' })
          for _, smooth in ipairs { 0, 0.1 } do
            both(('%s %d %g'):format(what, pad, smooth), dtype, function(on)
              local x = on(base):clone():narrow(2, 1 + (pad == 3 and 2 or 0), n):detach():requires_grad_()
              local loss = F.cross_entropy(x, on(y), { label_smoothing = smooth, reduction = 'none' })
              loss:sum():backward()
              return { loss, x.grad }
            end)
          end
        end
      end)
    end)
  end)
end

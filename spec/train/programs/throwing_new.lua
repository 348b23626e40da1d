-- Operator new throws at call n, for every n, under products and convolutions: right values, or a Lua error. Run by onednn_throw_spec.lua.
local ffi = require 'ffi'
ffi.cdef 'void throw_at(long n); long throw_left(void);'
local T = ffi.C
local amp = require 'amp'
local F = amp.nn.functional
local size = 105
amp.matmul(amp.randn(130,130),amp.randn(130,130)) amp.matmul(amp.randn(130,130):bfloat16(),amp.randn(130,130):bfloat16())
local function jobs()
  size = size + 1 -- a new shape: primitives are made anew
  local n = size
  amp.manual_seed(1)
  return {
    matmul = function(a, b) return amp.matmul(a, b) end,
    conv = function(a, b) return F.conv2d(a:view(1, 1, n, n):expand(2, 8, n, n):contiguous(), b:view(-1)[{ { 1, 8 * 8 * 9 } }]:view(8, 8, 3, 3)) end,
  }, amp.randn(n, n), amp.randn(n, n)
end
local bad, thrown = 0, 0
for _, name in ipairs { 'matmul', 'conv' } do
  for _, dtype in ipairs { 'float32', 'bfloat16' } do
    local n = 0
    while true do
      n = n + 1
      local all, a, b = jobs()
      a, b = a:to(dtype), b:to(dtype)
      a.requires_grad = true
      b.requires_grad = true
      T.throw_at(n)
      local ok, y = pcall(function() local y = all[name](a, b); y:float():sum():backward(); return y end)
      local left = tonumber(T.throw_left())
      T.throw_at(-1)
      if left > 0 then break end
      thrown = thrown + 1
      local a2, b2 = a:detach():clone(), b:detach():clone()
      a2.requires_grad = true
      b2.requires_grad = true
      local want = all[name](a2, b2)
      want:float():sum():backward()
      local near = ok and amp.allclose(y:float(), want:float(), { rtol = 2e-2, atol = 2e-2 })
        and amp.allclose(a.grad:float(), a2.grad:float(), { rtol = 2e-2, atol = 5e-2 })
      if ok and not near then
        bad = bad + 1
        print(name, dtype, n, 'wrong')
      end
      if not ok then
        print(name, dtype, n, y)
        bad = bad + 1
      end
      if n > 40 then break end
    end
    print(name, dtype, n)
  end
end
print('thrown', thrown, 'bad', bad)
os.exit(bad == 0 and 0 or 1)

-- Attention on a GPU, forward and backward: milliseconds and TFLOP/s a shape, against attention.py's. Queries, keys and
-- values are views of one N x T x 3 x H x D tensor, as a layer's projection gives them.
--   luajit examples/bench/kernels/attention.lua [small] [dtype=bfloat16] [device=cuda] [seconds=0.15]
-- `small`: sizes for the emulated GPU. Work is counted as FlashAttention counts it: 4 N H T^2 D forward, 10 backward,
-- half of it where causal. Backward's time is that of both less forward's.
local amp = require 'amp'
local here = arg[0]:match '^(.*)/' or '.'
local timing = dofile(here .. '/../gpu/timing.lua')

local o, words = timing.options(arg)
local small = words[1] == 'small'
local device, dtype = o.device or 'cuda', o.dtype or 'bfloat16'
local clock = small and { seconds = 0.01, warm = 0.01, reps = 1, calls = 1 } or { seconds = o.seconds }
clock.device = device

-- N, T, H, D, causal; the first is GPT-2's
local shapes = small and { { 1, 100, 2, 64, true }, { 1, 64, 1, 128, false } } or {
  { 16, 1024, 12, 64, true }, { 16, 1024, 12, 64, false }, { 8, 2048, 16, 64, true }, { 4, 4096, 16, 64, true }, { 4, 4096, 16, 64, false },
  { 8, 2048, 8, 128, true }, { 4, 4096, 8, 128, true }, { 4, 4096, 8, 128, false }, { 1, 16384, 16, 64, true }, { 32, 512, 12, 64, false },
  { 64, 197, 12, 64, false }, { 16, 1024, 12, 40, true },
}

print(('%-34s %10s %9s %10s %9s'):format('N x T x H x D, ' .. dtype, 'forward', 'TFLOP/s', 'backward', 'TFLOP/s'))
for _, s in ipairs(shapes) do
  local n, t, h, d, causal = unpack(s)
  local qkv = amp.randn(n, t, 3, h, d, { device = device }):to(dtype)
  local g = amp.randn(n, t, h, d, { device = device }):to(dtype):transpose(2, 3)
  local function attend(x)
    local p = x:unbind(3)
    return amp.scaled_dot_product_attention(p[1]:transpose(2, 3), p[2]:transpose(2, 3), p[3]:transpose(2, 3), { is_causal = causal })
  end
  local forward = timing.time(function() amp.scope(function() amp.no_grad(function() attend(qkv) end) end) end, clock)
  -- three leaves: the sum of gradients of one is no part of attention
  local leaf = {}
  for i, x in ipairs(qkv:unbind(3)) do leaf[i] = x:transpose(2, 3):detach():requires_grad_() end
  local both = timing.time(function()
    amp.scope(function()
      amp.scaled_dot_product_attention(leaf[1], leaf[2], leaf[3], { is_causal = causal }):backward(g)
      for i = 1, 3 do leaf[i].grad = nil end
    end)
  end, clock)
  local work = n * h * t * t * d * (causal and 0.5 or 1) / 1e9
  print(('%-34s %7.3f ms %9.1f %7.3f ms %9.1f'):format(('%d x %d x %d x %d%s'):format(n, t, h, d, causal and ' causal' or ''), forward, 4 * work / forward,
    both - forward, 10 * work / (both - forward)))
end

-- Claim: the whole step (forward, backward, SGD) of a 3-layer network of width 2048, batch 256, is at least 1.7
-- times as fast under bfloat16 autocast as in our own float32 on a CPU with AVX512_BF16, and at least as fast as
-- PyTorch's CPU autocast. Twin: bf16_mlp.py.
local amp = require 'amp'
local timing = require 'timing'
local nn, F = amp.nn, amp.nn.functional

amp.manual_seed(1)
local W, B = 2048, 256
local net = nn.Sequential(nn.Linear(W, W), nn.ReLU(), nn.Linear(W, W), nn.ReLU(), nn.Linear(W, W))
local x, y = amp.randn(B, W), amp.randn(B, W)
local opt = amp.optim.SGD(net:parameters(), {lr = 1e-3})

local function step(bf16)
  local loss = amp.autocast({dtype = 'bfloat16', enabled = bf16}, function() return F.mse_loss(net(x), y) end)
  loss:backward()
  opt:step():clear_grad()
end

local f32, b16 = math.huge, math.huge
for _ = 1, 3 do -- interleaved: both see the same neighbours
  f32 = math.min(f32, timing.best(function() step(false) end, 1, 2))
  b16 = math.min(b16, timing.best(function() step(true) end, 1, 2))
end
timing.report('float32', f32 * 1e3, 'ms')
timing.report('bfloat16', b16 * 1e3, 'ms')
-- without such instructions there is no claim about time, as `amp doctor` says
timing.report('float32_over_bfloat16', f32 / b16, 'x', require('amp.tools.machine').multiplies_bfloat16() and '>= 1.7' or '')

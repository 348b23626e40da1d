-- Claim: training the quickstart's network on the shipped digits is at least as fast as PyTorch's on the same cores.
-- One pass over the 8,500 digits, batch 100, SGD with momentum, float32 and bfloat16. Twin: digits.py.
local amp = require 'amp'
local timing = require 'timing'
local nn, F = amp.nn, amp.nn.functional

local digits = amp.data.mnist(os.getenv('AMP_BENCH_DATA')).train
local passes = tonumber(os.getenv('BENCH_PASSES') or 1)

local function run(dtype)
  amp.manual_seed(1)
  local net = nn.Sequential(
    nn.Conv2d(1, 16, 3, {padding = 1}), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, {padding = 1}), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 7 * 7, 10))
  local opt = amp.optim.SGD(net:parameters(), {lr = 0.05, momentum = 0.9, weight_decay = 5e-4, nesterov = true})
  local loader = amp.data.DataLoader(digits, {batch_size = 100, shuffle = true, drop_last = true})
  local region = {dtype = 'bfloat16', enabled = dtype == 'bfloat16'}
  local function step(x, y)
    local loss = amp.autocast(region, function() return F.cross_entropy(net(x), y) end)
    loss:backward()
    opt:step():clear_grad()
  end
  local began
  for pass = 0, passes do
    if pass == 1 then began = amp.clock() end -- the first one warms up
    local n = 0
    for x, y in loader:iter() do
      amp.scope(step, x, y)
      n = n + 1
      if pass == 0 and n == 10 then break end
    end
  end
  return (amp.clock() - began) / passes
end

timing.report('float32_epoch', run('float32'), 's')
timing.report('bfloat16_epoch', run('bfloat16'), 's')

-- Linear layers of one width with ReLU between them, mean squared error: a whole training step, eager and captured.
-- `luajit mlp.lua [width batch layers ...]`; the PyTorch twin is mlp.py.
local amp = require 'amp'
local bench = dofile((arg[0]:match '^(.*)/' or '.') .. '/timing.lua')
local nn, F, optim = amp.nn, amp.nn.functional, amp.optim

local function net_of(width, layers)
  local list = {}
  for i = 1, layers do
    list[#list + 1] = nn.Linear(width, width)
    if i < layers then list[#list + 1] = nn.ReLU() end
  end
  return nn.Sequential(unpack(list)):to 'cuda'
end

local function case(precision, width, batch, layers, captured, opt)
  return function()
    amp.manual_seed(1)
    local net = net_of(width, layers)
    local o = opt == 'adamw' and optim.AdamW(net:parameters(), { lr = 1e-3 }) or optim.SGD(net:parameters(), { lr = 1e-3 })
    local scaler = amp.GradScaler { enabled = precision == 'fp16' }
    local x, y = {}, {}
    for i = 1, 8 do x[i], y[i] = amp.randn(batch, width, { device = 'cuda' }), amp.randn(batch, width, { device = 'cuda' }) end
    local region = amp.autocast.wrap(function(a, b) return F.mse_loss(net(a), b) end,
      { enabled = precision ~= 'fp32', dtype = precision == 'bf16' and 'bfloat16' or 'float16' })
    local function step(a, b)
      local loss = region(a, b)
      scaler:scale(loss):backward()
      scaler:step(o)
      scaler:update()
      o:clear_grad()
    end
    if captured then step = amp.capture(step) end
    local i = 0
    return function()
      i = i % 8 + 1
      step(x[i], y[i])
    end
  end
end

local sizes = { { 4096, 512, 3 }, { 4096, 128, 3 }, { 1024, 128, 3 }, { 64, 32, 3 } }
if #arg >= 3 then
  sizes = {}
  for i = 1, #arg, 3 do sizes[#sizes + 1] = { tonumber(arg[i]), tonumber(arg[i + 1]), tonumber(arg[i + 2]) } end
end
print(amp.cuda.reason(), amp.cuda.version_of 'cublas')
for _, s in ipairs(sizes) do
  local name = ('mlp %dx%d b%d '):format(s[3], s[1], s[2])
  for _, p in ipairs { 'fp32', 'fp16', 'bf16' } do
    bench.row(name .. 'sgd ' .. p, case(p, s[1], s[2], s[3]))
    bench.row(name .. 'sgd ' .. p .. ' captured', case(p, s[1], s[2], s[3], true))
  end
  bench.row(name .. 'adamw fp16', case('fp16', s[1], s[2], s[3], false, 'adamw'))
  bench.row(name .. 'adamw fp16 captured', case('fp16', s[1], s[2], s[3], true, 'adamw'))
end

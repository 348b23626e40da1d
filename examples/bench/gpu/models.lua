-- Whole training steps of larger models: `luajit models.lua [resnet gpt2 lstm cell]`; the PyTorch twin is models.py.
local amp = require 'amp'
local here = arg[0]:match '^(.*)/' or '.'
package.path = here .. '/../../../?.lua;' .. package.path
local bench = dofile(here .. '/timing.lua')
local nn, F, optim = amp.nn, amp.nn.functional, amp.optim
local dev = 'cuda'

-- loss_of(): the loss of one batch, in the region
local function train(loss_of, opt, precision, captured)
  local scaler = amp.GradScaler { enabled = precision == 'fp16' }
  local region = amp.autocast.wrap(loss_of, { enabled = precision ~= 'fp32', dtype = precision == 'bf16' and 'bfloat16' or 'float16' })
  local function step()
    scaler:scale(region()):backward()
    scaler:step(opt)
    scaler:update()
    opt:clear_grad()
  end
  if captured then
    local one = amp.zeros(1, { device = dev })
    local run = amp.capture(function(_) step() end)
    return function() run(one) end
  end
  return step
end

local cases = {}

function cases.resnet()
  local ResNet = require 'examples.models.resnet'
  local function case(precision, captured)
    return function()
      amp.manual_seed(1)
      local net = ResNet():to(dev):to { memory_format = 'channels_last' }
      local x = amp.randn(128, 3, 224, 224, { device = dev }):contiguous { memory_format = 'channels_last' }
      local y = amp.randint(1, 1001, { 128 }, { device = dev, dtype = 'int64' })
      local o = optim.SGD(net:parameters(), { lr = 0.01, momentum = 0.9, weight_decay = 5e-4 })
      return train(function() return F.cross_entropy(net(x), y) end, o, precision, captured)
    end
  end
  bench.row('resnet50 b128 fp32', case 'fp32', { warm = 3, n = 5 })
  bench.row('resnet50 b128 fp16', case 'fp16', { warm = 5, n = 10 })
  bench.row('resnet50 b128 fp16 captured', case('fp16', true), { warm = 5, n = 10 })
end

function cases.gpt2()
  local GPT2 = require 'examples.models.gpt2'
  local function case(precision, captured)
    return function()
      amp.manual_seed(1)
      local net = GPT2():to(dev)
      local x = amp.randint(1, 50258, { 16, 1024 }, { device = dev, dtype = 'int64' })
      local y = amp.randint(1, 50258, { 16, 1024 }, { device = dev, dtype = 'int64' })
      local o = optim.AdamW(net:parameters(), { lr = 1e-4 })
      return train(function() return net(x, y) end, o, precision, captured)
    end
  end
  bench.row('gpt2-124M 16x1024 bf16', case 'bf16', { warm = 3, n = 5 })
  bench.row('gpt2-124M 16x1024 bf16 captured', case('bf16', true), { warm = 4, n = 5 })
  bench.row('gpt2-124M 16x1024 fp16', case 'fp16', { warm = 3, n = 5 })
end

local T, B, H = 64, 64, 512

function cases.lstm()
  local function case(precision, captured)
    return function()
      amp.manual_seed(1)
      local net = nn.LSTM(H, H, { num_layers = 2 }):to(dev)
      local x, y = amp.randn(T, B, H, { device = dev }), amp.randn(T, B, H, { device = dev })
      local o = optim.SGD(net:parameters(), { lr = 0.01 })
      return train(function() return F.mse_loss((net(x)), y) end, o, precision, captured)
    end
  end
  bench.row('LSTM 2x512 T64 B64 fp16', case 'fp16')
  bench.row('LSTM 2x512 T64 B64 fp16 captured', case('fp16', true))
end

function cases.cell()
  local function case(precision, captured)
    return function()
      amp.manual_seed(1)
      local net = nn.LSTMCell(H, H):to(dev)
      local x, y = amp.randn(T, B, H, { device = dev }), amp.randn(T, B, H, { device = dev })
      local o = optim.SGD(net:parameters(), { lr = 0.01 })
      return train(function()
        local h, c, outs = amp.zeros(B, H, { device = dev }), amp.zeros(B, H, { device = dev }), {}
        for t = 1, T do
          h, c = net(x[t], { h, c })
          outs[t] = h
        end
        return F.mse_loss(amp.stack(outs), y)
      end, o, precision, captured)
    end
  end
  bench.row('LSTMCell loop 512 T64 B64 fp16', case 'fp16', { n = 10 })
  bench.row('LSTMCell loop 512 T64 B64 fp16 captured', case('fp16', true), { n = 10 })
end

print(amp.cuda.reason(), amp.cuda.version_of 'cublas', amp.cuda.version_of 'cudnn')
for _, name in ipairs(#arg > 0 and arg or { 'resnet', 'gpt2', 'lstm', 'cell' }) do cases[name]() end

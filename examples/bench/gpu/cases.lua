-- The workloads of the GPU benchmarks: `cases.NAME(o)` gives a function that does one whole training step (forward,
-- backward, optimizer, gradients cleared). o.precision: fp32, fp16 (with a dynamic loss scale) or bf16; o.captured: the
-- step is captured; o.device; the rest are sizes. cases.py has their PyTorch twins.
local amp = require 'amp'
local nn, F, optim = amp.nn, amp.nn.functional, amp.optim
local M = {}

-- What o has not, from the defaults of a case; a size of another name is a slip.
local function with(o, defaults)
  local known = { precision = true, captured = true, device = true, wrap = true }
  for k in pairs(o) do
    if not known[k] and defaults[k] == nil then error("there is no size '" .. k .. "' here", 0) end
  end
  return setmetatable({}, { __index = function(_, k)
    if o[k] ~= nil then return o[k] end
    return defaults[k]
  end })
end

--- A step that trains: loss_of(...) runs in a region of the precision asked for.
-- @tparam table o precision, captured
-- @tparam Optimizer opt
-- @tparam function loss_of
-- @treturn function
function M.trainer(o, opt, loss_of)
  local scaler = amp.GradScaler { enabled = o.precision == 'fp16' }
  local region = amp.autocast.wrap(loss_of,
    { enabled = o.precision ~= 'fp32', dtype = o.precision == 'bf16' and 'bfloat16' or 'float16' })
  local function step(...)
    scaler:scale(region(...)):backward()
    scaler:step(opt)
    scaler:update()
    opt:clear_grad()
  end
  if o.captured then return amp.capture(step) end
  return function(...) amp.scope(step, ...) end
end

local function wrapped(o, net) return o.wrap and o.wrap(net) or net end

function M.optimizer(name, parameters)
  if name == 'adamw' then return optim.AdamW(parameters, { lr = 1e-4 }) end
  if name == 'momentum' then return optim.SGD(parameters, { lr = 0.01, momentum = 0.9, weight_decay = 5e-4 }) end
  return optim.SGD(parameters, { lr = 1e-3 })
end

--- Linear layers of one width with ReLU between them.
function M.network(width, layers)
  local list = {}
  for i = 1, layers do
    list[#list + 1] = nn.Linear(width, width)
    if i < layers then list[#list + 1] = nn.ReLU() end
  end
  return nn.Sequential(unpack(list))
end

-- Eight batches in turn.
local function in_turn(step, make)
  local data, i = {}, 0
  for k = 1, 8 do data[k] = make() end
  return function()
    i = i % 8 + 1
    step(data[i][1], data[i][2])
  end
end

function M.mlp(options)
  local o = with(options, { width = 4096, batch = 512, layers = 3, opt = 'sgd' })
  local net = wrapped(o, M.network(o.width, o.layers):to(o.device))
  local step = M.trainer(o, M.optimizer(o.opt, net:parameters()), function(x, y) return F.mse_loss(net(x), y) end)
  local function draw() return amp.randn(o.batch, o.width, { device = o.device }) end
  return in_turn(step, function() return { draw(), draw() } end)
end

function M.resnet(options)
  local o = with(options, { batch = 128, size = 224, width = 64, blocks = '3,4,6,3', classes = 1000 })
  local blocks = {}
  for n in o.blocks:gmatch '%d+' do blocks[#blocks + 1] = tonumber(n) end
  local ResNet = require 'examples.models.resnet'
  local net = ResNet { blocks = blocks, width = o.width, classes = o.classes }:to(o.device):to { memory_format = 'channels_last' }
  net = wrapped(o, net)
  local x = amp.randn(o.batch, 3, o.size, o.size, { device = o.device }):contiguous { memory_format = 'channels_last' }
  local y = amp.randint(1, o.classes + 1, { o.batch }, { device = o.device, dtype = 'int64' })
  local step = M.trainer(o, M.optimizer('momentum', net:parameters()), function(a, b) return F.cross_entropy(net(a), b) end)
  return function() step(x, y) end
end

function M.gpt2(options)
  local o = with(options, { batch = 16, tokens = 1024, width = 768, layers = 12, heads = 12, vocabulary = 50257 })
  local GPT2 = require 'examples.models.gpt2'
  local net = GPT2 { size = o.width, layers = o.layers, heads = o.heads, vocabulary = o.vocabulary, context = o.tokens }:to(o.device)
  net = wrapped(o, net)
  local function draw() return amp.randint(1, o.vocabulary + 1, { o.batch, o.tokens }, { device = o.device, dtype = 'int64' }) end
  local x, y = draw(), draw()
  local step = M.trainer(o, M.optimizer('adamw', net:parameters()), function(a, b) return net(a, b) end)
  return function() step(x, y) end
end

function M.lstm(options) -- kind: LSTM, GRU or RNN
  local o = with(options, { width = 512, batch = 64, time = 64, layers = 2, kind = 'LSTM' })
  local net = nn[o.kind](o.width, o.width, { num_layers = o.layers }):to(o.device)
  local function draw() return amp.randn(o.time, o.batch, o.width, { device = o.device }) end
  local x, y = draw(), draw()
  local step = M.trainer(o, M.optimizer('sgd', net:parameters()), function(a, b) return F.mse_loss((net(a)), b) end)
  return function() step(x, y) end
end

function M.cell(options)
  local o = with(options, { width = 512, batch = 64, time = 64 })
  local net = nn.LSTMCell(o.width, o.width):to(o.device)
  local function draw() return amp.randn(o.time, o.batch, o.width, { device = o.device }) end
  local x, y = draw(), draw()
  local step = M.trainer(o, M.optimizer('sgd', net:parameters()), function(a, b)
    local h, c = amp.zeros(o.batch, o.width, { device = o.device }), amp.zeros(o.batch, o.width, { device = o.device })
    local outs = {}
    for t = 1, o.time do
      h, c = net(a[t], { h, c })
      outs[t] = h
    end
    return F.mse_loss(amp.stack(outs), b)
  end)
  return function() step(x, y) end
end

return M

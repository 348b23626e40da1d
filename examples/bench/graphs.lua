-- Claim: a compiled step takes at most 2 % more than the eager one, recording it at most two eager steps, and its
-- memory's peak is at most the eager one's in a scope; ResNet-50 and GPT-2 written plainly and compiled are within 2 %
-- of the hand-joined ones compiled. Eager and compiled steps take turns; medians of their ratios.
--   luajit examples/bench/graphs.lua [--turns 15] [--cpu] [--only 'part of a name']
-- --cpu: time of the processor, for a machine that others use too (with OMP_NUM_THREADS=1).
local amp = require 'amp'
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
package.path = ('%s/?.lua;%s/../../?.lua;%s'):format(here, here, package.path)
local plain = require 'plain_models'
local nn = amp.nn

local line = table.concat(arg, ' ')
local TURNS = tonumber(line:match '%-%-turns[ =](%d+)') or 15
local clock = line:find '%-%-cpu' and os.clock or amp.clock
local ONLY = line:match '%-%-only[ =](.+)$'

-- -- Workloads: a network and inputs; a loss makes a training step of it ---------------------------------------

local function mlp(act)
  return nn.Sequential(nn.Linear(64, 64), act(), nn.Linear(64, 64), act(), nn.Linear(64, 64))
end

local function digits()
  return nn.Sequential(nn.Conv2d(1, 8, 3, {padding = 1}), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, {padding = 1}),
    nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(784, 10))
end

local Recurrent = nn.Module:extend 'Recurrent'
function Recurrent:init()
  self.lstm = nn.LSTM(64, 128, {num_layers = 2})
  self.out = nn.Linear(128, 10)
end
function Recurrent:forward(x)
  local y = self.lstm(x)
  return self.out(y[-1])
end

local gpt = {size = 128, layers = 4, heads = 4, vocabulary = 512, context = 64}
local function tokens() return amp.randint(1, 513, {2, 64}, {dtype = 'int64'}) end
local function mean_square(y) return (y * y):mean() end

local list = {
  {'MLP 3 x 64, batch 1', function() return mlp(nn.ReLU), amp.randn(1, 64) end},
  {'MLP 3 x 64, batch 64', function() return mlp(nn.ReLU), amp.randn(64, 64) end},
  {'MLP 3 x 64 GELU, batch 64', function() return mlp(nn.GELU), amp.randn(64, 64) end},
  {'MLP 3 x 512, batch 64', function()
    return nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)), amp.randn(64, 512)
  end},
  {'CNN of the digits, batch 64', function() return digits(), amp.randn(64, 1, 28, 28) end},
  {'LSTM 2 x 128, 20 steps', function() return Recurrent(), amp.randn(20, 8, 64) end},
  {'transformer layer', function()
    return nn.TransformerEncoderLayer(128, 4, {dim_feedforward = 512, dropout = 0, batch_first = true}), amp.randn(4, 32, 128)
  end},
  {'GPT-2 4 x 128', function() return plain.GPT2(gpt), tokens() end},
  {'GPT-2 4 x 128, hand-joined', function() return require 'examples.models.gpt2'(gpt), tokens() end},
  {'ResNet-50', function() return plain.ResNet(), amp.randn(1, 3, 224, 224) end, 6},
  {'ResNet-50, hand-joined', function() return require 'examples.models.resnet'(), amp.randn(1, 3, 224, 224) end, 6},
}

-- -- Measuring -------------------------------------------------------------------------------------------------

local function median(values)
  table.sort(values)
  return values[math.ceil(#values / 2)]
end

local function seconds(f, n)
  local from = clock()
  for _ = 1, n do amp.scope(f) end
  return (clock() - from) / n
end

local function peak(f)
  collectgarbage()
  collectgarbage()
  amp.reset_peak_memory()
  local live = amp.memory().live
  amp.scope(f)
  return math.max(1, amp.memory().peak - live)
end

-- Recording and passes, without the run that follows.
local function recording(net, x)
  local from = clock()
  local g = amp.graph.trace(net, {x})
  require('amp.graph.optimize').optimize_here(g)
  return clock() - from
end

local function steps_of(net, x, training)
  net:train(training)
  local compiled = amp.compile(net)
  if not training then
    return function() return net(x) end, function() return compiled(x) end
  end
  local opt = amp.optim.SGD(net:parameters(), {lr = 1e-6})
  local function step(f)
    mean_square(f(x)):backward()
    opt:step():clear_grad()
  end
  return function() step(net) end, function() step(compiled) end
end

local function run(name, make, turns, training)
  amp.manual_seed(1)
  local net, x = make()
  local eager, compiled = steps_of(net, x, training)
  seconds(eager, 3)
  local n = math.max(1, math.floor(0.02 / seconds(eager, 3)))
  local once = median {seconds(eager, n), seconds(eager, n), seconds(eager, n)}
  local first = seconds(compiled, 1)
  local record = median {recording(net, x), recording(net, x), recording(net, x)}
  seconds(compiled, 3)
  local ratios, e, c = {}, {}, {}
  for i = 1, turns do
    e[i], c[i] = seconds(eager, n), seconds(compiled, n)
    ratios[i] = e[i] / c[i]
  end
  local before, after = peak(eager), peak(compiled)
  local r = {name = name .. (training and ', training' or ''), eager = median(e), compiled = median(c), ratio = median(ratios),
    record = record / once, first = first, memory = after / before}
  print(('| %s | %.3f | %.3f | %.3f | %.1f | %.0f | %.2f |'):format(r.name, r.eager * 1e3, r.compiled * 1e3, r.ratio, r.record, first * 1e3, r.memory))
  return r
end

io.stdout:setvbuf 'line'
print('| workload | eager, ms | compiled, ms | eager / compiled | recording, eager steps | first call, ms | peak memory to eager\'s |')
print('| --- | --- | --- | --- | --- | --- | --- |')
local rows = {}
for _, training in ipairs {false, true} do
  for _, w in ipairs(list) do
    local turns = math.min(w[3] or TURNS, TURNS)
    local function one() rows[#rows + 1] = run(w[1], w[2], turns, training) end
    if not ONLY or w[1]:find(ONLY, 1, true) then
      if training then one() else amp.no_grad(one) end
    end
    collectgarbage()
  end
end
return rows

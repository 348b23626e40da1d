--- Captured steps on the emulated GPU: the random generator, and gradients that are added up over replays while the
-- loss scale changes, are those of eager steps.
local emulated = require 'spec.device.emulated'
local case = emulated.cases(it, pending)

describe('the generator, after a captured step', function()
  case('that failed, is where it was', [[
local S = require('amp.ffi').S
local bad
local step = amp.capture(function(x)
  local y = F.dropout(x, 0.5, true)
  local c = amp.rand(5, {device = 'cpu'})
  if bad == 'item' then y:sum():item() end
  if bad == 'seed' then amp.manual_seed(4) end
  if bad == 'error' then error 'given up' end
  return y + randn(4), c
end)
local x = amp.ones(4, {device = 'cuda'})
step(x)
step(x)
for _, how in ipairs {'error', 'item', 'seed'} do
  bad = how
  local seed, offset = S.seed, S.rng_offset
  local e = fails(function() step(x) end)
  assert(how ~= 'seed' or e:find('manual_seed', 1, true), e)
  assert(seed == S.seed and offset == S.rng_offset, how)
end
]])
  case('goes on as after eager steps, which checkpoints compute again with the same numbers', [[
local function run(through)
  amp.manual_seed(3)
  local w, out = randn(8, 8), {}
  w.requires_grad = true
  local step = through(function(x)
    w.grad = nil
    local y = amp.checkpoint(function(t) return F.dropout(t:matmul(w), 0.5, true) end, x)
    F.dropout(y, 0.5, true):sum():backward()
    return w.grad:clone()
  end)
  local x = amp.ones(4, 8, {device = 'cuda'})
  for i = 1, 6 do out[i] = step(x):sum():item() end
  out[7] = amp.rand(1):item()
  return out
end
local want, got = run(function(f) return f end), run(amp.capture)
for i = 1, 7 do same(want[i], got[i], 'step ' .. i) end
]])
end)

describe('gradients added up over replays', function()
  case('are brought to the scale that a replay multiplies by', [[
local function run(through)
  local w = amp.ones(4, {device = 'cuda'})
  w.requires_grad = true
  local s = amp.GradScaler {init_scale = 8, growth_interval = 1}
  local opt = optim.SGD({w}, {lr = 0})
  local step = through(function(x)
    local loss = (w * x):sum()
    s:scale(loss):backward()
    return loss
  end)
  local x, out = amp.ones(4, {device = 'cuda'}), {}
  for i = 1, 8 do
    step(x)
    if i == 4 then s:set_scale(1024) end
    if i == 5 then s:set_scale(2) end
    if i == 6 then s:set_scale(256) end
    if i == 7 then
      s:unscale_(opt)
      out[1] = w.grad:sum():item() / 4
      w.grad = nil
      s:update()
    end
  end
  s:set_scale(64) -- after the last gradient: it keeps its own
  s:unscale_(opt)
  out[2] = w.grad:sum():item() / 4
  return out
end
local want, got = run(function(f) return f end), run(amp.capture)
same(7, want[1], 'eager')
same(1, want[2], 'eager')
same(7, got[1], 'captured')
same(1, got[2], 'captured')
]])
  case('are an error where what the step would add to carries another scale when it is captured', [[
local w = amp.ones(4, {device = 'cuda'})
w.requires_grad = true
local s = amp.GradScaler {init_scale = 8}
local step = amp.capture(function(x) s:scale((w * x):sum()):backward() end)
local x = amp.ones(4, {device = 'cuda'})
step(x)
step(x)
s:set_scale(16)
fails(function() step(x) end, 'another loss scale', 'clear gradients')
w.grad = nil
step(x)
same(64, w.grad:sum():item(), 'cleared')
]])
end)

describe('a compiled function on a GPU', function()
  case('is captured where nothing asks for gradients, and follows parameters, draws and moves', [[
local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)):to 'cuda'
for _ = 1, 20 do net:add(nn.Sigmoid()) end -- long enough to be captured
local f = amp.compile(net)
local function check()
  local x = randn(2, 4)
  amp.manual_seed(9)
  local want = net(x)
  amp.manual_seed(9)
  local got = amp.no_grad(function() return f(x) end)
  local gap = (got:cpu() - want:detach():cpu()):abs():max():item()
  assert(gap < 1e-5, gap)
  return got
end
local first = check()
local kept = first:cpu()
for _ = 1, 4 do check() end
equal(first, kept, 'a result of before')
amp.no_grad(function() net[1].weight:mul_(2) end)
for _ = 1, 4 do check() end
net:eval()
for _ = 1, 4 do check() end
net[1].weight:set_data(net[1].weight:detach() * 3)
for _ = 1, 4 do check() end
local y = f(randn(2, 4))
y:sum():backward()
assert(net[1].weight.grad)
]])
end)

describe('networks in a captured step', function()
  case('are optimized graphs by then, and train as eager ones do', [[
local Module = require 'amp.nn.module'
local function run(through)
  amp.manual_seed(3)
  local net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 3)):to 'cuda'
  local opt, scaler = optim.AdamW(net:parameters(), {lr = 0.01}), amp.GradScaler {init_scale = 1024, growth_interval = 3}
  local step = through(function(x, y)
    local loss = amp.autocast({device = 'cuda', dtype = 'float16'}, function() return F.cross_entropy(net(x), y) end)
    scaler:scale(loss):backward()
    scaler:step(opt):update()
    opt:clear_grad()
    return loss
  end)
  local out = {}
  for i = 1, 8 do
    local x, y = randn(6, 8), amp.randint(1, 4, {6}, {dtype = 'int64', device = 'cuda'})
    out[i] = step(x, y):item()
  end
  for _, p in ipairs(net:parameters()) do out[#out + 1] = p:detach():float():sum():item() end
  out[#out + 1] = net[3].running_var:sum():item()
  out[#out + 1] = scaler:get_scale()
  out[#out + 1] = amp.rand(1):item()
  return out, net
end
local want, got, net = run(function(f) return f end)
got, net = run(amp.capture)
for i = 1, #want do
  if math.abs(want[i] - got[i]) > 2e-3 * (1 + math.abs(want[i])) then same(want[i], got[i], 'number ' .. i) end
end
local cache = Module.raw_key(net, '.captured').cache
local text = cache and tostring(cache.entries[1] and cache.entries[1].graph)
assert(text and text:find 'joined: batch_norm_act, relu', text or 'no graph') -- batch norm and ReLU are one
]])
  case('written plainly are joined as forward_relu joins them', [[
local Block = nn.Module:extend 'Block'
function Block:init()
  self.conv1, self.bn1 = nn.Conv2d(4, 4, 3, {padding = 1}), nn.BatchNorm2d(4)
  self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, {padding = 1}), nn.BatchNorm2d(4)
end
function Block:forward(x) return (self.bn2(self.conv2(self.bn1(self.conv1(x)):relu())) + x):relu() end
local function run(through, dtype)
  amp.manual_seed(3)
  local net = nn.Sequential(nn.Conv2d(3, 4, 3), Block(), Block()):to 'cuda'
  local f, out = through(net), {}
  for i = 1, 3 do
    local y = amp.autocast({device = 'cuda', dtype = 'float16', enabled = dtype ~= nil}, function() return f(randn(2, 3, 8, 8)) end)
    y:float():square():mean():backward()
  end
  for _, p in ipairs(net:parameters()) do out[#out + 1] = p.grad:float():cpu() end
  for _, b in net:named_buffers() do out[#out + 1] = b:float():cpu() end
  return out, net
end
for _, dtype in ipairs {false, 'float16'} do
  local want, got = run(function(net) return net end, dtype or nil), run(amp.compile, dtype or nil)
  for i = 1, #want do
    local d = (want[i] - got[i]):abs():max():item()
    assert(d <= (dtype and 2e-2 or 1e-4) * (1 + want[i]:abs():max():item()), ('%d: %g'):format(i, d))
  end
  local _, net = run(function(n) return n end)
  local g = amp.graph.trace(net, {randn(2, 3, 8, 8)}):optimize()
  local text = tostring(g)
  local _, joined = text:gsub('joined: batch_norm_act, [adrelu, ]*relu', '')
  if joined ~= 4 then error(text) end
end
]])
  case('without gradients', [[
amp.manual_seed(3)
local net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)):to('cuda'):eval()
local step = amp.capture(function(x) return net(x) end)
amp.no_grad(function()
  for i = 1, 6 do
    local x = randn(2, 3, 8, 8)
    local a, b = net(x), step(x)
    assert((a - b):abs():max():item() < 1e-4, 'step ' .. i)
    if i == 4 then net[1].weight:mul_(2) end
  end
end)
]])
end)

describe('what goes around an optimizer', function()
  case('has in replays what it has in eager steps: a batch size, rates of layers, decay that stands in the gradient', [[
local wraps = {
  trainer = function(opt) local t = optim.Trainer(opt.param_groups[1].params, opt, {}) return function() t:step(4) end end,
  scaled = function(opt)
    local t = optim.Trainer(opt.param_groups[1].params, opt, {})
    amp.init_trainer(t)
    return function() t:step(4) end, t
  end,
  LARC = function(opt) local o = optim.LARC(opt) return function() o:step():clear_grad() end end,
  ['LARC without clip'] = function(opt) local o = optim.LARC(opt, {clip = false}) return function() o:step():clear_grad() end end,
  both = function(opt) local t = optim.Trainer(opt.param_groups[1].params, optim.LARC(opt), {}) return function() t:step(4) end end,
}
local function run(through, kind, wrap)
  amp.manual_seed(3)
  local net = nn.Sequential(nn.Linear(4, 3, {bias = false}), nn.Linear(3, 2, {bias = false})):to 'cuda'
  local opt = optim[kind](net:parameters(), {lr = 0.1, weight_decay = 0.1})
  local finish, trainer = wrap(opt)
  local step = through(function(x)
    local loss = net(x):pow(2):mean()
    if trainer then amp.scale_loss(loss, trainer, function(scaled) scaled:backward() end) else loss:backward() end
    finish()
  end)
  local out = {}
  for i = 1, 8 do
    local group = opt.param_groups[1]
    group.lr = 0.1 * (1 - i / 20) -- a schedule
    if i == 6 then group.weight_decay = 0.3 end
    step(amp.full({2, 4}, i == 5 and trainer and math.huge or i, {device = 'cuda'}))
    assert(group.weight_decay == (i < 6 and 0.1 or 0.3))
    for _, p in ipairs(net:parameters()) do out[#out + 1] = p:double():sum():item() end
  end
  return out
end
for name, wrap in pairs(wraps) do
  for _, kind in ipairs {'SGD', 'Adam', 'Muon'} do
    local want, got = run(function(f) return f end, kind, wrap), run(amp.capture, kind, wrap)
    for i = 1, #want do same(want[i], got[i], kind .. ' in ' .. name .. ', number ' .. i) end
  end
end
]])
  case('an EMA moves on in replays; a mean over all updates, whose weight changes, is refused', [[
local swa = optim.swa
local function run(through)
  amp.manual_seed(3)
  local net = nn.Linear(4, 2):to 'cuda'
  local opt = optim.SGD(net:parameters(), {lr = 0.1})
  local ema = swa.EMA(net, {decay = 0.9})
  local step = through(function(x)
    net(x):pow(2):mean():backward()
    opt:step():clear_grad()
    ema:update(net)
  end)
  local out = {}
  for i = 1, 6 do
    step(amp.full({2, 4}, i, {device = 'cuda'}))
    out[i] = ema.module.weight:double():sum():item()
  end
  return out
end
local want, got = run(function(f) return f end), run(amp.capture)
for i = 1, 6 do same(want[i], got[i], 'number ' .. i) end
local net = nn.Linear(4, 2):to 'cuda'
for _, mean in ipairs {swa.AveragedModel(net), swa.AveragedModel(net, {avg_fn = function(a) return a end})} do
  local step = amp.capture(function(x) net(x) mean:update(net) end)
  for _ = 1, 2 do step(amp.ones(2, 4, {device = 'cuda'})) end
  fails(function() step(amp.ones(2, 4, {device = 'cuda'})) end, 'update_parameters', 'outside')
end
]])
end)

describe('steps that a GPU skips', function()
  case('are told of after a wait: a warning, the error of max_skipped, lines of a verbose scaler', [[
local function run(o, wait, n)
  local p = amp.ones(2, {device = 'cuda'}):requires_grad_()
  local opt, s, told, lines = optim.SGD({p}, {lr = 1}), amp.GradScaler(o), {}, {}
  local warn, log = amp.warn, rawget(amp, 'write_log')
  amp.warn = function(m) told[#told + 1] = m end
  amp.write_log = function(m) lines[#lines + 1] = m end
  local message, at
  for i = 1, n do
    local loss = (p * math.huge):sum()
    s:scale(loss):backward()
    local before = amp.counters().host_waits
    s:step(opt)
    local ok, e = pcall(s.update, s)
    assert(amp.counters().host_waits == before, 'a step waits')
    opt:clear_grad()
    if not ok then message, at = tostring(e), i break end
    wait(loss)
  end
  amp.warn, amp.write_log = warn, log
  return told, message, at, lines, s
end
local function nothing() end
local waits = {
  function(loss) loss:item() end, function(loss) loss:reshape(1):tolist() end, function() amp.cuda.synchronize() end,
}
for _, wait in ipairs(waits) do
  local told = run({}, wait, 45)
  same(1, #told)
  assert(told[1]:find '2%d steps in a row' or told[1]:find '20 steps in a row', told[1])
  local _, message, at, _, s = run({max_skipped = 3}, wait, 10)
  assert(at == 4 and message:find('max_skipped = 3', 1, true), message)
  s:update(8) -- all is well afterwards
  local _, _, _, lines = run({verbose = true}, wait, 3)
  same(3, #lines)
end
local told, message = run({max_skipped = 3}, nothing, 10)
same(0, #told)
assert(message == nil)
]])
end)

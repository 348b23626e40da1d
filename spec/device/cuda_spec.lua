--- The CUDA plug-in, run by the emulator of spec/device/emulator where there is no GPU: each case is a process of its own
-- that finds build/emulated/libamp_cuda.so first. The table's rows are walked by `AMP_SPEC_DEVICE=cuda` (spec/run.sh).
local emulated = require 'spec.device.emulated'
local case = emulated.cases(it, pending)

describe('a captured step', function()
  case('is the eager step bit by bit: dropout, learning rates, an overflow, the scale path', [[
local function run(captured, enabled)
  amp.manual_seed(1)
  local net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4)):to 'cuda'
  local opt = optim.AdamW(net:parameters(), { lr = 0.01 })
  local scaler = amp.GradScaler { init_scale = 1024, growth_interval = 3 }
  local function step(x, y)
    local loss = amp.autocast({ enabled = enabled, dtype = 'float16' }, function() return F.mse_loss(net(x), y) end)
    scaler:scale(loss):backward()
    scaler:step(opt)
    scaler:update()
    opt:clear_grad()
    return loss
  end
  if captured then step = amp.capture(step) end
  amp.manual_seed(5)
  local out = {}
  for i = 1, 10 do
    local x, y = randn(4, 8), randn(4, 4)
    if i == 7 then x[1][1] = math.huge end
    opt.param_groups[1].lr = 0.01 / i
    out[i] = step(x, y):item()
  end
  out[11] = scaler.scale_factor
  for _, p in ipairs(net:parameters()) do out[#out + 1] = p:sum():item() end
  return out
end
for _, enabled in ipairs { false, true } do
  local a, b = run(false, enabled), run(true, enabled)
  for i = 1, #a do same(a[i], b[i], 'value ' .. i) end
end
]])

  case('sees parameters that were changed by hand, and gradients that are left', [[
local net = nn.Linear(4, 4):to 'cuda'
local opt = optim.SGD(net:parameters(), { lr = 0.1 })
local f = amp.capture(function(x)
  opt:clear_grad()
  amp.autocast({ dtype = 'float16' }, function() return net(x):float():sum() end):backward()
end)
local x = amp.ones(2, 4, { device = 'cuda' })
for i = 1, 4 do f(x) end
same(2, net.weight.grad[1][1]:item(), 'gradient')
f(x * 3)
same(6, net.weight.grad[1][1]:item(), 'gradient of a replay')
local g = amp.capture(function(v) return amp.autocast({ dtype = 'float16' }, function() return net(v):float():sum() end) end)
for i = 1, 3 do g(x) end
amp.no_grad(function() net.weight:fill_(1) net.bias:fill_(0) end)
same(32, g(x):item(), 'sum')
amp.no_grad(function() net.weight:fill_(2) end)
same(64, g(x):item(), 'sum after a change')
]])

  case('refuses waits with the line, and leaves everything usable', [[
local w = amp.ones(3, { device = 'cuda', requires_grad = true })
local n = 0
local f = amp.capture(function(x)
  n = n + 1
  local loss = (w * x):sum()
  loss:backward()
  if n > 2 then return loss:item() end
  w.grad = nil
end)
local x = amp.ones(3, { device = 'cuda' })
f(x) f(x)
fails(function() f(x) end, 'waits for the GPU', 'amp.capture', 'child.lua:')
assert(w.grad == nil, 'a gradient that nobody computed')
same(3, (w * x):sum():item(), 'after the error')
local again = amp.capture(function(v) return v * 2 end)
for i = 1, 4 do same(2 * i, again(amp.full({ 2 }, i, { device = 'cuda' }))[1]:item(), 'another capture') end
]])

  case('says when a tensor of it has moved', [[
local net = nn.Linear(4, 4):to 'cuda'
local f = amp.capture(function(x) return net(x) end)
local x = amp.ones(2, 4, { device = 'cuda' })
for i = 1, 3 do f(x) end
net:half()
fails(function() f(x) end, 'moved', 'capture the step anew')
]])

  case('called inside a scope, it lasts beyond the scope; its results may leave it', [[
local net = nn.Linear(4, 4):to 'cuda'
local opt = optim.SGD(net:parameters(), { lr = 0.1 })
local f = amp.capture(function(x)
  local loss = net(x):square():mean()
  loss:backward()
  opt:step():clear_grad()
  return loss
end)
local x, before = randn(2, 4), math.huge
for i = 1, 6 do
  local loss = amp.scope(f, x):item()
  assert(loss < before, ('step %d: %g after %g'):format(i, loss, before))
  before = loss
end
]])

  case('without an optimizer casts the parameters of a region at each replay', [[
local net = nn.Linear(8, 3):to 'cuda'
local function f(x) return amp.autocast({ dtype = 'float16' }, function() return net(x):float():sum() end) end
local captured, x = amp.capture(f), randn(2, 8)
for i = 1, 6 do
  same(f(x):item(), captured(x):item(), i)
  amp.no_grad(function() net.weight:add_(0.25) end)
end
]])
  case('has a graph for each set of shapes, and flat memory', [[
local net = nn.Linear(4, 4):to 'cuda'
local opt = optim.SGD(net:parameters(), { lr = 0.01 })
local f = amp.capture(function(x) net(x):square():mean():backward() opt:step():clear_grad() end)
local function live() collectgarbage() collectgarbage() return amp.cuda.memory_stats().live end
for i = 1, 8 do f(amp.ones(2, 4, { device = 'cuda' })) f(amp.ones(3, 4, { device = 'cuda' })) end
local before = live()
for i = 1, 200 do f(amp.ones(2, 4, { device = 'cuda' })) f(amp.ones(3, 4, { device = 'cuda' })) end
assert(live() <= before, ('%d bytes, then %d'):format(before, live()))
]])
end)

describe('fused ops on a GPU', function()
  case('a Linear with its activation gives what the two give, gradients too', [[
for _, act in ipairs { nn.ReLU(), nn.GELU(), nn.GELU { approximate = 'tanh' } } do
  for _, dtype in ipairs { 'float64', 'float32', 'float16', 'bfloat16' } do
    for _, size in ipairs { { 5, 16, 24 }, { 3, 7, 5 } } do
      local lin = nn.Linear(size[2], size[3]):to('cuda'):to(dtype)
      local net = nn.Sequential(lin, act)
      local x = randn(2, size[1], size[2]):to(dtype)
      local function run(f)
        for _, p in ipairs(lin:parameters()) do p.grad = nil end
        local v = x:clone():detach()
        v.requires_grad = true
        local y = f(v)
        y:float():square():sum():backward()
        return { y, v.grad, lin.weight.grad, lin.bias.grad }
      end
      local a, b = run(function(v) return act(lin(v)) end), run(function(v) return net(v) end)
      for i = 1, 4 do
        local d, m = (a[i]:double() - b[i]:double()):abs():max():item(), a[i]:double():abs():max():item()
        local tolerance = ({ float64 = 1e-12, float32 = 1e-5, float16 = 4e-3, bfloat16 = 3e-2 })[dtype]
        assert(d <= tolerance * (1 + m), ('%s %s result %d: off by %g of %g'):format(tostring(act), dtype, i, d, m))
      end
    end
  end
end
local x = randn(3, 4, { dtype = 'float64' })
x.requires_grad = true
local net = nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 2)):to('cuda'):double()
assert(amp.gradgradcheck(function(v) return net(v) end, { x }))
]])

  case('losses of 16-bit inputs are those of their casts', [[
local y = randn(6, 5)
local labels = amp.tensor({ 1, 5, 2, 2, 4, 3 }, { dtype = 'int64', device = 'cuda' })
local w = amp.rand(5, { device = 'cuda' })
for name, f in pairs { mse = function(x) return F.mse_loss(x, y) end, none = function(x) return F.mse_loss(x, y, { reduction = 'none' }):mean() end,
  ce = function(x) return F.cross_entropy(x, labels) end, smooth = function(x) return F.cross_entropy(x, labels, w, { label_smoothing = 0.1 }) end,
  soft = function(x) return F.cross_entropy(x, y:softmax(2)) end } do
  local x = randn(6, 5):half()
  local a, b = x:clone(), x:clone()
  a.requires_grad, b.requires_grad = true, true
  local before = amp.counters().casts
  local la = amp.autocast({ dtype = 'float16' }, function() return f(a) end)
  local casts = amp.counters().casts - before
  local lb = f(b:float())
  same('float32', la.dtype, name)
  assert(name == 'soft' or casts == 0, name .. ' was cast')
  assert(math.abs(la:item() - lb:item()) <= 1e-6 * (1 + math.abs(lb:item())), name)
  la:backward() lb:backward()
  same('float16', a.grad.dtype, name)
  assert((a.grad:float() - b.grad:float()):abs():max():item() <= 1e-3, name .. ': gradient')
end
]])

  case('attention takes the least finite value of a mask for what it is', [[
for _, dtype in ipairs { 'float16', 'bfloat16' } do
  for _, of in ipairs { dtype, 'float32' } do
    amp.manual_seed(3)
    local q, mask = amp.randn(1, 2, 16, 64):to(dtype), amp.zeros(16, 16)
    mask[1] = amp.full({ 16 }, of == 'float16' and -65504 or -3.3895e38)
    mask = mask:to(of)
    local function attend(device)
      local t = q:to(device)
      return F.scaled_dot_product_attention(t, t, t, { attn_mask = mask:to(device) }):float():cpu()
    end
    local want, got = attend 'cpu', attend 'cuda'
    assert(want:select(3, 1):abs():sum():item() > 1, 'a row that is masked evenly is the mean of all')
    assert((want - got):abs():max():item() <= 2e-2, dtype .. ' with a mask of ' .. of)
  end
end
]])

  case('attention of 16-bit floats reads views, agrees with the CPU, and gives the same bits captured', [[
for _, dtype in ipairs { 'float16', 'bfloat16' } do
  amp.manual_seed(3)
  local proj = nn.Linear(32, 3 * 2 * 40):to(dtype)
  local function attend(p, x)
    local h = p(x):view { 2, 70, 3, 2, 40 }:unbind(3)
    for i = 1, 3 do h[i] = h[i]:transpose(2, 3) end
    return F.scaled_dot_product_attention(h[1], h[2], h[3], { is_causal = true })
  end
  local x = amp.randn(2, 70, 32):to(dtype)
  local function run(device, captured)
    local p = nn.Linear(32, 3 * 2 * 40):to(dtype):to(device)
    p:load_state_dict(proj:state_dict())
    local opt = optim.SGD(p:parameters(), { lr = 1e-3 })
    local step = function(v)
      local y = attend(p, v)
      y:float():square():sum():backward()
      opt:step():clear_grad()
      return y
    end
    if captured then step = amp.capture(step) end
    local y
    for _ = 1, 3 do y = step(x:to(device)) end
    return { y:detach():cpu():float(), p.weight:detach():cpu():float() }
  end
  local want, a, b = run('cpu'), run('cuda'), run('cuda', true)
  for i = 1, 2 do
    assert(amp.equal(a[i], b[i]), dtype .. ': captured')
    local off, most = (a[i] - want[i]):abs():max():item(), want[i]:abs():max():item()
    assert(off <= (dtype == 'float16' and 5e-3 or 4e-2) * most, ('%s result %d: off by %g of %g'):format(dtype, i, off, most))
  end
end
]])

  case('one launch checks many gradients', [[
for _, bad in ipairs { 0, 1, 2, 3 } do
  local p = {}
  for i = 1, 3 do p[i] = amp.ones(i == 2 and 5000 or 7, { device = 'cuda', requires_grad = true }) end
  local opt = optim.SGD(p, { lr = 1 })
  local scaler = amp.GradScaler { init_scale = 4 }
  for i = 1, 3 do
    p[i].grad = amp.full({ p[i]:numel() }, 4, { device = 'cuda' })
    if i == bad then p[i].grad[p[i]:numel()] = i == 2 and 0 / 0 or math.huge end
  end
  scaler:step(opt)
  same(bad ~= 0, scaler:found_inf(opt), 'found')
  same(bad == 0 and 0 or 1, p[1][1]:item(), 'parameter')
end
]])
end)

describe('errors of a GPU', function()
  case('an index out of range is told at the next wait, by the op\'s name, and the process goes on', [[
local t = randn(4, 3)
local i = amp.tensor({ 1, 9 }, { dtype = 'int64', device = 'cuda' })
local e = fails(function() return t:index_select(1, i):sum():item() end, 'index_select', '9', '4')
local emb = nn.Embedding(4, 2):to 'cuda'
fails(function() return emb(i):sum():item() end, 'embedding', '9')
fails(function() return t:gather(1, amp.tensor({ { 5 } }, { dtype = 'int64', device = 'cuda' })):item() end, 'gather', '5')
same(12, amp.ones(4, 3, { device = 'cuda' }):sum():item(), 'after it')
]])

  case('operands on two devices, devices that are not there, memory that is not there', [[
fails(function() return randn(2) + amp.ones(2) end, 'different devices', 'cuda:1', 'cpu', ':to(device)')
-- results go to tensors of their own device
for _, x in ipairs { randn(2, 2), amp.ones(2, 2) } do
  local out = x.is_cuda and amp.ones(2, 2) or amp.ones(2, 2, { device = 'cuda' })
  for _, name in ipairs { 'matmul', 'add', 'cat', 'exp', 'softmax', 'sum' } do
    fails(function()
      if name == 'cat' then return amp.cat({ x }, 1, { out = out }) end
      if name == 'softmax' then return amp.softmax(x, 1, { out = out }) end
      if name == 'exp' or name == 'sum' then return amp[name](x, { out = out }) end
      return amp[name](x, x, { out = out })
    end, name, x.is_cuda and 'on cuda:1' or 'on the cpu', ':to(device)')
    same(4, out:sum():item(), name)
  end
end
fails(function() return amp.ones(2, { device = 'cuda:7' }) end, 'cuda:7')
local e = fails(function() return amp.empty(1024, 1024, 1024, { device = 'cuda' }) end, '4096.0 MiB', 'live', 'cached')
same(2, amp.ones(2, { device = 'cuda' }):sum():item(), 'after it')
]])

  case('the device says what it is', [[
local p = amp.cuda.get_device_properties()
same('emulated GPU', p.name, 'name')
assert(p.total_memory > 0 and p.major == 9 and p.multi_processor_count > 0)
same(false, amp.cuda.tf32(), 'tf32')
amp.cuda.tf32(true)
same(true, amp.cuda.tf32(false), 'tf32')
fails(function() amp.cuda.tf32(3) end, 'true or false')
same(1, amp.cuda.device_count(), 'count')
]])
end)

describe('a graph of branches', function()
  -- the emulator runs the nodes of a graph in any order that their dependencies allow, another one at each replay
  case('gives what eager steps give, bit by bit: batch norm, attention, layer norm, cells, slices', [[
local BN, LN, GRU = nn.Module:extend 'BN', nn.Module:extend 'LN', nn.Module:extend 'GRU'
function BN:init()
  self.a, self.b, self.c, self.d = nn.Conv2d(2, 4, 3, { padding = 1 }), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.Linear(4, 3)
end
function BN:forward(x) return self.d((self.b:forward_relu(self.a(x)) + self.c(self.a(x))):mean { 3, 4 }) end
function LN:init() self.n, self.q, self.o = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 3) end
function LN:forward(x)
  local q = self.q(self.n(x)):view(2, 6, 3, 2, 4):unbind(3)
  for i = 1, 3 do q[i] = q[i]:transpose(2, 3) end
  local y = F.scaled_dot_product_attention(q[1], q[2], q[3], { is_causal = true })
  return self.o(x + F.dropout(y:transpose(2, 3):reshape(2, 6, 8), 0.2, true)):view(-1, 3)
end
function GRU:init() self.c, self.o = nn.LSTMCell(8, 8), nn.Linear(8, 3) end
function GRU:forward(x)
  local h, c, out = amp.zeros(2, 8, { device = 'cuda' }), amp.zeros(2, 8, { device = 'cuda' }), {}
  for t = 1, 6 do
    h, c = self.c(x:select(2, t), { h, c })
    out[t] = h
  end
  return self.o(amp.stack(out)):view(-1, 3)
end
local shapes = { { 2, 2, 5, 5 }, { 2, 6, 8 }, { 2, 6, 8 } }
for i, Net in ipairs { BN, LN, GRU } do
  local function run(captured)
    amp.manual_seed(1)
    local net = Net():to 'cuda'
    local opt = optim.SGD(net:parameters(), { lr = 0.05, momentum = 0.9 })
    local scaler = amp.GradScaler { init_scale = 256, growth_interval = 2 }
    local region = amp.autocast.wrap(function(x)
      local y = net(x)
      return F.cross_entropy(y, amp.ones(y:size(1), { dtype = 'int64', device = 'cuda' }))
    end, { dtype = 'float16' })
    local function step(x)
      local loss = region(x)
      scaler:scale(loss):backward()
      scaler:step(opt)
      scaler:update()
      opt:clear_grad()
      return loss
    end
    if captured then step = amp.capture(step) end
    local out = {}
    amp.manual_seed(9)
    for k = 1, 7 do out[k] = step(randn(unpack(shapes[i]))):item() end
    for _, p in ipairs(net:parameters()) do out[#out + 1] = p:sum():item() end
    for _, b in ipairs(net:buffers()) do out[#out + 1] = b:float():sum():item() end
    return out
  end
  local a, b = run(false), run(true)
  assert(#a == #b and a[1] ~= a[7])
  for k = 1, #a do same(a[k], b[k], i .. '.' .. k) end
end
]])
end)

describe('16-bit results of linear with odd rows', function()
  case('begin each row at 16 bytes, and are otherwise as any', [[
amp.manual_seed(4)
local w0, x0, y = amp.randn(4099, 16):mul(0.1):half(), amp.randn(3, 5, 16):half(), amp.randint(1, 4100, { 15 }, { dtype = 'int64' })
local function run(device, bias)
  local w, x = w0:clone():to(device):requires_grad_(), x0:clone():to(device):requires_grad_()
  local b = bias and amp.ones(4099):half():to(device):requires_grad_() or nil
  local l = F.linear(x, w, b)
  F.cross_entropy(l:view(-1, 4099), y:to(device)):backward()
  return { l, w.grad, x.grad, b and b.grad, l * 2 + 1, l:transpose(1, 2), l:reshape(-1), l:clone() }, l
end
for _, bias in ipairs { false, true } do
  local a, b, l = run('cpu', bias), run('cuda', bias)
  l = b[1]
  assert(l:stride(2) == 4104 and l:stride(1) == 5 * 4104 and not l:is_contiguous())
  for i = 1, 8 do
    if a[i] then assert((a[i]:float() - b[i]:cpu():float()):abs():max():item() <= 1e-3 * a[i]:float():abs():max():item(), 'result ' .. i) end
  end
end
assert(F.linear(x0:cuda(), w0:narrow(1, 1, 4096):cuda()):is_contiguous())
assert(F.linear(x0:float():cuda(), w0:float():cuda()):is_contiguous())
]])
end)

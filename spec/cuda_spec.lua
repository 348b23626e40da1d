--- The CUDA plug-in, run by the emulator of spec/emulator where there is no GPU: each case is a process of its own
-- that finds build/emulated/libamp_cuda.so first. The table's rows are walked by `AMP_SPEC_DEVICE=cuda` (spec/run.sh).
local emulated = require 'spec.emulated'
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

describe('small products of 16-bit matrices', function()
  case('are in one launch what the plain kernel gives, whatever the strides, with bias, activation and sums', [[
local core = require 'amp.ffi'
local function small(on) assert(core.C.amp_device_set(core.S, 1, 'small', on) >= 0) end
amp.manual_seed(5)
local function both(what, f)
  small(0)
  local want = { f() }
  small(1)
  local got = { f() }
  for i = 1, #want do
    local most = want[i]:float():abs():max():item()
    assert((got[i]:float() - want[i]:float()):abs():max():item() <= 0.01 * most + 1e-3, what .. ', result ' .. i)
  end
end
for _, dtype in ipairs { 'float16', 'bfloat16' } do
  for _, s in ipairs { { 32, 64, 64 }, { 1, 1, 1 }, { 3, 5, 7 }, { 33, 40, 16 }, { 64, 10, 256 }, { 17, 24, 100 } } do
    local m, n, k = unpack(s)
    local what = dtype .. ' ' .. table.concat(s, ' ')
    for turned = 0, 3 do
      local a = turned % 2 == 1 and randn(k, m):to(dtype):t() or randn(m, k):to(dtype)
      local b = turned > 1 and randn(n, k):to(dtype):t() or randn(k, n):to(dtype)
      both(what .. ' turned ' .. turned, function() return amp.matmul(a, b), F.linear(a, b:t(), b[1]) end)
    end
    local net = nn.Sequential(nn.Linear(k, n), nn.GELU { approximate = 'tanh' }, nn.Linear(n, 5)):to 'cuda'
    local cut = nn.Sequential(nn.Linear(k, n), nn.ReLU()):to 'cuda'
    local x = randn(m, k)
    both(what .. ' ReLU', function() return amp.autocast({ dtype = dtype }, function() return cut(x) end) end)
    both(what .. ' network', function()
      net:zero_grad()
      local y = amp.autocast({ dtype = dtype }, function() return net(x) end)
      y:float():pow(2):sum():backward()
      local out = { y }
      for _, p in ipairs(net:parameters()) do out[#out + 1] = p.grad:clone() end
      return unpack(out)
    end)
  end
end
]])
end)

describe('backward of a small linear with ReLU', function()
  case('has ReLU\'s derivative within its products, with the bits of one that is made before them', emulated.matrices .. [[
local function input(...) return raw('linear_input', { ... }, {})[1] end
local function weight(...) return raw('linear_weight', { ... }, {}) end
amp.manual_seed(7)
local sizes = { { 32, 64, 64 }, { 1, 1, 1 }, { 3, 5, 7 }, { 33, 40, 16 }, { 192, 24, 8 }, { 16, 250, 9 }, { 250, 10, 8 } }
for _, dtype in ipairs { 'float16', 'bfloat16', 'float32' } do
  for _, s in ipairs(sizes) do
    for _, how in ipairs { 'dense dense', 'apart dense', 'dense apart', 'shifted turned', 'expanded shifted' } do
      local m, n, k = unpack(s)
      local what = dtype .. ' ' .. table.concat(s, ' ') .. ' ' .. how
      local g, y = laid(how:match '^%S+', m, n, dtype), laid(how:match '%S+$', m, n, dtype)
      -- what decides: zeros of both signs, infinities and NaN of both signs; behind what ReLU made 0 nothing counts
      for i, v in ipairs { 0, -0.0, math.huge, -math.huge, 0 / 0, -(0 / 0) } do
        if i <= m * n then y[(i - 1) % m + 1][math.floor((i - 1) / m) + 1] = v end
      end
      if g:stride(1) > 0 then g[1][1] = 0 / 0 end
      y[1][1] = 0
      local w, x = randn(n, k):to(dtype), randn(m, k):to(dtype)
      local function run(on)
        small(on)
        local z = raw('relu_backward', { g, y }, {})[1]
        local p, q = weight(g, x, y), weight(z, x)
        return { input(g, w, y), p[1], p[2] }, { amp.matmul(z, w), q[1], q[2] }
      end
      local a, b = run(1)
      local c = run(0)
      for i = 1, 3 do
        local f, most = a[i]:float(), a[i]:float():abs():nan_to_num(0, 0, 0):max():item()
        local function off(t) return (f - t:float()):abs():max():item() end
        assert(most == most and f:isnan():sum():item() == 0, what .. ': NaN where ReLU gave 0')
        if dtype ~= 'float32' and n <= 192 and m <= 192 then equal(a[i], b[i], what .. ', result ' .. i) end
        assert(off(b[i]) <= 0.01 * most + 1e-3 and off(c[i]) <= 0.01 * most + 1e-3, what .. ', result ' .. i)
      end
    end
  end
end
-- nothing to add, nothing to give
for on = 0, 1 do
  small(on)
  local function empty(...) return amp.zeros(...):half():cuda() end
  same(0, input(empty(0, 8), empty(8, 16), empty(0, 8)):numel(), 'no rows')
  local p = weight(empty(0, 8), empty(0, 16), empty(0, 8))
  same(0, (p[1]:abs():sum() + p[2]:abs():sum()):item(), 'of no rows')
  same(0, input(empty(4, 0), empty(0, 16), empty(4, 0)):abs():sum():item(), 'of no columns')
end
]])

  case('takes one launch a layer', function()
    local function launches(layers)
      local out = emulated.child(([[
local nn, l = amp.nn, {}
for i = 1, %d do l[2 * i - 1], l[2 * i] = nn.Linear(16, 16), nn.ReLU() end
local net, x = nn.Sequential(unpack(l)):half():to 'cuda', amp.randn(8, 16):half():cuda()
local y = net(x)
io.stderr:write 'begin\n'
y:backward(x)
io.stderr:write 'end\n'
]]):format(layers), 'AMP_EMULATOR_TRACE=1')
      local n = 0
      for _ in out:match('begin\n(.*)end\n'):gmatch 'launch ' do n = n + 1 end
      return n
    end
    assert.equal(3, launches(5) - launches(2))
  end)
end)

describe('large 16-bit products with odd extents', function()
  case('are made in parts, with the results of one product, bias and activation, whatever the strides', [[
local core = require 'amp.ffi'
local function split(how) assert(core.C.amp_device_set(core.S, 1, 'split', how) >= 0) end
amp.manual_seed(7)
-- m x n of 16-bit numbers whose rows, or columns, lie a multiple of 8 apart
local function padded(m, n, dtype, turned)
  if turned then return padded(n, m, dtype):t() end
  return amp.zeros(m, math.ceil(n / 8) * 8 + 8, { device = 'cuda' }):to(dtype):narrow(2, 1, n):copy_(randn(m, n))
end
for _, dtype in ipairs { 'float16', 'bfloat16' } do
  for _, s in ipairs { { 19, 21, 27 }, { 24, 17, 16 }, { 16, 24, 33 }, { 9, 16, 24 }, { 8, 9, 9 }, { 33, 40, 48 } } do
    local m, n, k = unpack(s)
    for turned = 0, 3 do
      local a, b = padded(m, k, dtype, turned % 2 == 1), padded(k, n, dtype, turned > 1)
      local bias = randn(n):to(dtype)
      local exact = amp.matmul(a:double(), b:double())
      local function check(what, got, want)
        local most = (dtype == 'float16' and 1e-3 or 8e-3) * want:abs():max():item()
        assert((got:double() - want):abs():max():item() <= most, what .. ' ' .. dtype .. ' ' .. table.concat(s, ' ') .. ' ' .. turned)
      end
      for how = 0, 2, 2 do
        split(how)
        local out = padded(m, n, dtype)
        amp.matmul(a, b, { out = out })
        check('into gaps', out, exact)
        assert(out:as_strided({ m, 8 }, { out:stride(1), 1 }, n):float():abs():max():item() == 0, 'gaps were written')
        check('product', amp.matmul(a, b), exact)
        check('linear', F.linear(a, b:t(), bias), exact + bias:double())
        local x, w, c = a:detach():requires_grad_(), b:t():detach():requires_grad_(), bias:detach():requires_grad_()
        local y = F.linear(x, w, c)
        local g = padded(m, n, dtype)
        y:backward(g)
        check('gradient of the input', x.grad, amp.matmul(g:double(), b:double():t()))
        check('gradient of the weight', w.grad, amp.matmul(g:double():t(), a:double()))
        check('gradient of the bias', c.grad, g:double():sum(1))
      end
    end
  end
end
]])
end)

describe('a large 16-bit product with an odd sum', function()
  case('ends with its last terms', function()
    local out = emulated.child(emulated.head .. [[
local core = require 'amp.ffi'
for how = 0, 2, 2 do
  core.C.amp_device_set(core.S, 1, 'split', how)
  io.stderr:write('split ', how, '\n')
  amp.matmul(randn(16, 24):half():narrow(2, 1, 17), randn(17, 24):half())
end
]], 'AMP_EMULATOR_TRACE=1')
    assert.is_nil(out:match('split 0\n(.*)split 2'):find('add_few', 1, true), out)
    assert.is_truthy(out:match('split 2\n(.*)'):find('add_few', 1, true), out)
  end)
end)

describe('the 16-bit copy that layer norm leaves', function()
  case('is what a cast gives, once, and not after a change in place', [[
for _, dtype in ipairs { 'float16', 'bfloat16' } do
  amp.manual_seed(1)
  local norm, one, two = nn.LayerNorm(16):to 'cuda', nn.Linear(16, 8):to 'cuda', nn.Linear(16, 8):to 'cuda'
  local x = randn(4, 16)
  local function run(change)
    for _, m in ipairs { norm, one, two } do m:zero_grad() end
    local y, out
    amp.autocast({ dtype = dtype }, function()
      y = change(norm(x))
      out = one(y) + two(y) * 2
    end)
    same('float32', y.dtype, 'dtype')
    out:float():pow(2):sum():backward()
    return { out, norm.weight.grad:clone(), norm.bias.grad:clone(), one.weight.grad:clone(), two.weight.grad:clone() }
  end
  local function compare(what, a, b)
    for i = 1, #a do equal(a[i], b[i], what .. ' ' .. dtype .. ' ' .. i) end
  end
  compare('as it is', run(function(y) return y end), run(function(y) return y:clone() end))
  compare('changed', run(function(y) return y:mul_(2) end), run(function(y) return y * 2 end))
  local y = amp.autocast({ dtype = dtype }, function() return norm(x) end)
  local low = y:to(dtype)
  low:detach():zero_()
  assert(y:to(dtype):abs():max():item() > 0.5, 'a second cast sees the first')
end
]])
end)

describe('what came for the input of a convolution so far', function()
  case('is added by the pass that makes its own share', [[
amp.manual_seed(9)
local x0 = amp.randn(2, 4, 5, 6, { dtype = 'float64' })
local w0 = amp.randn(4, 4, 3, 3, { dtype = 'float64' })
local function gradient(device, create, last)
  local x = x0:to(device):detach():requires_grad_()
  local w = w0:to(device):detach():requires_grad_()
  local y = last and (x * 2):contiguous 'channels_last' or x * 2
  local z = y + F.conv2d(y, w, nil, { padding = 1 }) -- the sum sends on what came first
  local u = F.conv2d(z, w, nil, { padding = 1, stride = 2 }):pow(2):sum() + (z * z):sum()
  return amp.grad(u, { x, w }, { create_graph = create })
end
for _, last in ipairs { false, true } do
  local want, got = gradient('cpu', true, last), gradient('cuda', false, last)
  for i = 1, 2 do
    local most = want[i]:abs():max():item()
    assert((got[i]:cpu() - want[i]):abs():max():item() < 1e-10 * most, i)
  end
end
-- and what others hold is left alone
local x = x0:cuda():requires_grad_()
local y, seen, copy = x * 2, nil, nil
local z = y + 1
z:register_hook(function(g) seen, copy = g, g:clone() end)
local loss = F.conv2d(y, w0:cuda()):sum() + z:sum()
loss:backward()
equal(copy, seen, 'the gradient a hook holds')
]])
end)

describe('what came for the input of a layer norm so far', function()
  case('is added by the pass that makes its own share', [[
amp.manual_seed(9)
for _, n in ipairs { 24, 7 } do
  for _, rms in ipairs { false, true } do
    local x0, w0, s0 = amp.randn(5, n), amp.randn(n), amp.randn(5, n)
    local function gradient(device, dtype, create)
      local x, w, s = x0:to(device):to(dtype):requires_grad_(), w0:to(device):to(dtype):requires_grad_(), s0:to(device):to(dtype)
      local y = x * 2
      local z = rms and F.rms_norm(y, { n }, w) or F.layer_norm(y, { n }, w)
      local u = y * s + z * 3 -- the sum sends on what came first
      return amp.grad((u * s):sum(), { x, w }, { create_graph = create })
    end
    local want = gradient('cpu', 'float64', true)
    for dtype, most in pairs { float64 = 1e-12, float32 = 3e-6, float16 = 4e-3, bfloat16 = 3e-2 } do
      for _, device in ipairs { 'cpu', 'cuda' } do
        local got = gradient(device, dtype, false)
        for i = 1, 2 do
          local far = (got[i]:cpu():to 'float64' - want[i]):abs():max():item() / want[i]:abs():max():item()
          assert(far < most, ('%s %s %d %d: %g'):format(dtype, device, n, i, far))
        end
      end
    end
  end
end
-- and what others hold is left alone
local y, seen, copy = amp.randn(2, 8):cuda():requires_grad_() * 2, nil, nil
local z = y + 1
z:register_hook(function(g) seen, copy = g, g:clone() end)
local loss = F.layer_norm(y, { 8 }):pow(3):sum() + z:sum()
loss:backward()
equal(copy, seen, 'the gradient a hook holds')
]])
end)

describe('what is shared to save a launch', function()
  case('stays apart from what hooks, users and other streams do', [[
local function leaf(v) return amp.tensor(v, { device = 'cuda', requires_grad = true }) end
-- hooks change gradients in place: that of a scaled loss, and of what lies before it
for _, where in ipairs { 'scaled', 'before' } do
  local s, w = amp.GradScaler { init_scale = 8 }, leaf(3)
  local x = w * w
  local loss = x:clone()
  local y = s:scale(loss);
  (where == 'scaled' and y or x):register_hook(function(g) g:mul_(2) end)
  y:backward()
  same(96, w.grad:item(), where)
  same(8, s.scale_factor, 'the scale')
end
local s = amp.GradScaler { init_scale = 8 }
s:scale_tensor 'cuda':mul_(2)
same(8, s:scale_tensor 'cuda':item(), 'a changed scale_tensor')
]])
  case('keeps what was taken before a capture', [[
local function leaf(v) return amp.tensor(v, { device = 'cuda', requires_grad = true }) end
local s = amp.GradScaler { init_scale = 8, growth_interval = 1 }
local w, w2, w3 = leaf { 1, 2, 3 }, leaf { 1, 2, 3 }, leaf { 1, 2, 3 }
local o1, o2 = optim.SGD({ w }, { lr = 0.1 }), optim.SGD({ w2 }, { lr = 0.1 })
local step = amp.capture(function(x)
  o1:clear_grad()
  s:scale((w * x):sum()):backward()
  s:step(o1)
  s:update()
end)
local x = amp.ones(3):to 'cuda'
step(x)
step(x)
s:scale((w2 * 1):sum()):backward()
s:unscale_(o2)
local scaled, t = s:scale((w3 * 5):sum()), s:scale_tensor 'cuda'
step(x)
step(x)
same(3, w2.grad:sum():item(), 'an unscaled gradient')
scaled:backward()
same(15 * 32, w3.grad:sum():item(), 'a scaled gradient')
same(32, t:item(), 'a scale_tensor')
same(128, s.scale_factor, 'the scale goes on')
]])
  case('is made anew in another stream', [[
local function leaf(v) return amp.tensor(v, { device = 'cuda', requires_grad = true }) end
local A, B = amp.cuda.Stream(), amp.cuda.Stream()
local w, u = leaf { 1, 1 }, leaf { 1, 1 }
amp.cuda.synchronize()
A:with(function() (w * 2):sum():backward() end)
B:with(function()
  (u * 3):sum():backward()
  same(6, u.grad:sum():item(), 'a gradient')
end)
amp.cuda.synchronize()
local s1, s2, v = amp.GradScaler { init_scale = 8 }, amp.GradScaler { init_scale = 8 }, leaf { 1, 2, 3 }
local o1, o2 = optim.SGD({ w }, { lr = 0.1 }), optim.SGD({ v }, { lr = 0.1 })
s1:scale_tensor 'cuda'
s2:scale_tensor 'cuda'
o1:clear_grad()
amp.cuda.synchronize()
s1:scale((w * 1):sum()):backward()
s1:unscale_(o1)
B:wait_stream(amp.cuda.current_stream())
B:with(function()
  s2:scale((v * 1):sum()):backward()
  s2:step(o2)
  s2:update()
  same(8, s2.scale_factor, 'the scale')
  assert(math.abs(v:sum():item() - 5.7) < 1e-5)
end)
-- replays that two streams ask for: each draws its own mask, and its results are its own
local x = amp.ones(64, { device = 'cuda' })
local f = amp.capture(function(t) return F.dropout(t, 0.5, true) end)
local function go(stream) return stream:with(function() return f(x):clone() end) end
for _ = 1, 3 do
  go(A)
  amp.cuda.synchronize()
end
local function pair(wait)
  amp.manual_seed(5)
  local a = go(A)
  if wait then amp.cuda.synchronize() end
  local b = go(B)
  amp.cuda.synchronize()
  return a, b
end
local a, b = pair(false)
local c, d = pair(true)
equal(a, c, 'first')
equal(b, d, 'second')
assert(not a:equal(b))
]], 'AMP_EMULATED_LAZY=1')
end)

describe('gradients in 16 bits', function()
  case('of a layer norm with several readers are added in float32', [[
local function run(device)
  amp.manual_seed(3)
  local x, list = amp.randn(4, 16):to(device):requires_grad_(), {}
  for i = 1, 3 do list[i] = amp.randn(16, 16):to(device):requires_grad_() end
  local loss = 0
  amp.autocast({ device = device, dtype = 'float16' }, function()
    local h = F.layer_norm(x, { 16 })
    for i = 1, 3 do loss = loss + F.linear(h, list[i]):float():sum() end
  end)
  ;(loss * 6000):backward()
  return x.grad:abs():max():item()
end
local want, got = run 'cpu', run 'cuda'
assert(want > 60000 and math.abs(got - want) < 0.02 * want, want .. ' ' .. got)
]])
  case('of hinge_embedding_loss are 0 at its bend, as on the CPU', [[
for _, device in ipairs { 'cpu', 'cuda' } do
  local x = amp.tensor({ 1, 0.5, 2 }, { device = device, requires_grad = true })
  F.hinge_embedding_loss(x, amp.tensor({ -1, -1, -1 }, { device = device }), { reduction = 'sum' }):backward()
  equal(amp.tensor { 0, -1, 0 }, x.grad, device)
end
]])
  case('of attention read operands that begin anywhere', [[
amp.manual_seed(2)
local flat = amp.randn(1 + 2 * 16 * 64):half()
local function run(device, at)
  local q = flat:to(device):narrow(1, at, 2 * 16 * 64):view(1, 2, 16, 64)
  return F.scaled_dot_product_attention(q, q, q):float():cpu()
end
for at = 1, 2 do assert((run('cpu', at) - run('cuda', at)):abs():max():item() < 5e-3, at) end
]])
end)

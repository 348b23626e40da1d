--- The CUDA plug-in, run by the emulator of spec/emulator where there is no GPU: each case is a process of its own
-- that finds build/emulated/libamp_cuda.so first. The table's rows are walked by `AMP_SPEC_DEVICE=cuda` (spec/run.sh).
local assert = require 'luassert'
local H = require 'spec.helper'

local folder = H.absolute(H.build) .. '/emulated'
local there = io.open(folder .. '/libamp_cuda.so')
if there then there:close() end

local head = [[
local nn, F, optim = amp.nn, amp.nn.functional, amp.optim
local function randn(...)
  local n, a = select('#', ...), { ... }
  if type(a[n]) ~= 'table' then a[n + 1] = {} end
  a[#a].device = 'cuda'
  return amp.randn(unpack(a))
end
local function same(a, b, what) if not (a == b or (a ~= a and b ~= b)) then error(('%s: %s, not %s'):format(what, tostring(b), tostring(a)), 2) end end
local function fails(f, ...)
  local ok, e = pcall(f)
  assert(not ok, 'no error')
  e = tostring(e)
  for _, part in ipairs {...} do assert(e:find(part, 1, true), e .. ' lacks ' .. part) end
  return e
end
]]

local function case(name, code)
  (there and it or pending)(name, function()
    local out, status = H.child(head .. code, '', "AMP_PLUGIN_DIR='" .. folder .. "'")
    assert.equal(0, status, out)
  end)
end

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

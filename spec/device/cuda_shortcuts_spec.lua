--- What the CUDA plug-in does to save a launch, a copy or a pass, run by the emulator of spec/device/emulator: each case is a
-- process of its own.
local emulated = require 'spec.device.emulated'
local case = emulated.cases(it, pending)

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

case('class weights of any dtype are cast in a region', [[
for _, of in ipairs { 'float32', 'bfloat16', 'float16' } do
  for _, weight in ipairs { 'float32', 'bfloat16', 'float16' } do
    local x, w = amp.arange(1, 13):float():view(3, 4), amp.tensor { 1, 2, 0.5, 1 }
    local t = amp.tensor({ 1, 3, 2 }, { dtype = 'int64' })
    local want = F.cross_entropy(x, t, { weight = w, label_smoothing = 0.125 }):item()
    local y = amp.autocast({ device = 'cuda', dtype = 'bfloat16' }, function()
      return F.cross_entropy(x:to(of):to 'cuda', t:to 'cuda', { weight = w:to(weight):to 'cuda', label_smoothing = 0.125 })
    end)
    assert(y.dtype == 'float32' and math.abs(y:item() - want) < 1e-5, of .. ' ' .. weight)
  end
end
]])

case("gelu's gradient in 16 bits is within their rounding, of dense data and of any", [[
for _, dtype in ipairs { 'bfloat16', 'float16' } do
  local x = amp.cat { amp.linspace(-9, 9, 120), amp.tensor { -60, 60, -1 / 0, 1 / 0, 0, -0.75, 1e-4, -1e-4 } }:to(dtype):to 'cuda'
  local g = (randn(128):abs() + 0.5):to(dtype)
  for _, how in ipairs { 'dense', 'apart' } do
    local a = (how == 'dense' and x or amp.stack({ x, x }, 2):select(2, 1)):detach():requires_grad_()
    F.gelu(a, { approximate = 'tanh' }):backward(g)
    local b = x:double():cpu():requires_grad_()
    F.gelu(b, { approximate = 'tanh' }):backward(g:double():cpu())
    local got, want = a.grad:double():cpu():tolist(), b.grad:tolist()
    for i = 1, 128 do
      local far = math.abs(got[i] - want[i])
      assert(far <= 2 ^ (dtype == 'bfloat16' and -8 or -11) * math.abs(want[i]) + 2e-6, ('%s %s [%d]: %g, not %g'):format(dtype, how, i, got[i], want[i]))
    end
  end
end
]])

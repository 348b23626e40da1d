--- The most memory that a training step holds on a GPU, counted on the emulator of spec/device/emulator: what a step needs and
-- no more. Each case is a process of its own.
local E = require 'spec.device.emulated'

local head = E.head .. [[
local MB = 2 ^ 20
collectgarbage 'stop' -- what is garbage stays: the counts are the same in every run
local function live() return amp.memory 'cuda'.live end
-- the most bytes live while f runs, above what was live before
local function most(f, ...)
  local before = live()
  amp.reset_peak_memory 'cuda'
  f(...)
  return amp.memory 'cuda'.peak - before
end
local function below(limit, got, what) assert(got <= limit, ('%s: %.3f MiB, %.3f are enough'):format(what, got / MB, limit / MB)) end
]]
local case = E.cases(it, pending, head)

describe('a block of a GPU\'s memory', function()
  case('is hardly larger than what was asked for', [[
for _, rows in ipairs { 300, 511, 513, 700, 1025, 1200, 2049, 4097, 9001 } do
  local bytes, before = rows * 4096 * 4, live()
  local t = amp.empty(rows, 4096, { device = 'cuda' })
  below(bytes * 65 / 64, live() - before, rows .. ' rows')
  assert(live() - before >= bytes)
  t:free()
  amp.cuda.empty_cache()
end
]])

  case('that is used again is the smallest there is, and at most an eighth too large', [[
local function room(mib) return amp.empty(mib * MB / 4, { device = 'cuda' }) end
local function taken(mib)
  local before = live()
  local t = room(mib)
  return (live() - before) / MB, t
end
local blocks = {}
for i, mib in ipairs { 9, 8.5, 8.25, 8.75, 14 } do blocks[i] = room(mib) end
for i = 1, #blocks do blocks[i]:free() end
local n, a = taken(8.375)
same(8.5, n, 'of four')
local m, b = taken(8.375)
same(8.75, m, 'of three')
local k, c = taken(12)
same(12, k, 'beside one of 14')
local j, d = taken(13)
same(14, j, 'within an eighth')
assert(a and b and c and d)
]])
end)

describe('an LSTM in 16 bits on a GPU', function()
  local net = [[
local T, N, H = 24, 16, 64
local values = T * N * H -- of a layer's results
amp.manual_seed(1)
local net = nn.LSTM(H, H, { num_layers = 2 }):to 'cuda'
local x = randn(T, N, H)
local forward = amp.autocast.wrap(function() return amp.scope(function() return F.mse_loss((net(x)), x) end) end, { dtype = 'float16' })
for _ = 1, 2 do -- gradients are there then, as is all that is made once
  forward():backward()
  for _, p in ipairs(net:parameters()) do p.grad = nil end
end
local weights = 0
for _, p in ipairs(net:parameters()) do weights = weights + p:numel() end
]]

  case('holds 14 bytes for a value: its cell, gates in 16 bits, the result', net .. [[
local loss
local held = most(function() loss = forward() end)
-- of two layers, in halves; the input's copy and the projection of a layer's input; the weights' copies; blocks' rounding
below((2 * 14 + 2 + 8) * values * 9 / 8 + 2 * weights + MB / 8, held, 'forward')
assert(loss)
]])

  case('gives them back before the products of its backward', net .. [[
local loss = forward()
-- the gates' gradient, the states before, the result's gradient: what the products make is less than what went
below((8 + 2 + 2) * values * 9 / 8 + MB / 32, most(function() loss:backward() end), 'backward')
]])

  case('begins its products again after a collection where memory is short', [[
local C = require 'amp.ffi'.C
local function failures() return tonumber(C.amp_memory(C.AMP_CPU, 0).failures) end
for _, kind in ipairs { 'LSTM', 'GRU' } do
  for _, dtype in ipairs { 'float32', 'float16' } do
    amp.manual_seed(1)
    local net = nn[kind](4, 6):to 'cuda':to(dtype)
    local x, list = randn(3, 2, 4):to(dtype):detach():requires_grad_(), net:parameters()
    list[#list + 1] = x
    local function gradients(n)
      local loss = amp.scope(function() return (net(x)):float():pow(2):sum() end)
      for _, p in ipairs(list) do p.grad = nil end
      C.amp_fail_allocation(n)
      local ok, e = pcall(loss.backward, loss)
      C.amp_fail_allocation(-1)
      if not ok then return nil, e end
      local out = {}
      for i, p in ipairs(list) do out[i] = p.grad:clone() end
      return out
    end
    local want, n, given_up, last = gradients(-1), 0, 0, nil
    repeat
      n = n + 1
      local before = failures()
      local got, e = gradients(n)
      if not got then given_up, last = given_up + 1, e end
      for i, g in ipairs(got or {}) do equal(want[i], g, ('%s %s, gradient %d, allocation %d'):format(kind, dtype, i, n)) end
    until failures() == before
    assert(n > 40, n)
    assert(given_up <= 3, ('%s %s, %d times: %s'):format(kind, dtype, given_up, tostring(last))) -- its ops outside of the layer
  end
end
-- a backward that is given up in between left nothing that another could take for its own
local net, x = nn.LSTM(4, 6):to 'cuda', randn(3, 2, 4)
local y = net(x)
local ones, zeros = amp.ones_like(y), amp.zeros_like(y)
local before, collect = failures(), collectgarbage
local gone
for n = 1, 200 do
  y = net(x)
  C.amp_fail_allocation(n)
  collectgarbage = function() collectgarbage = collect error 'given up' end
  local ok, e = pcall(y.backward, y, ones)
  C.amp_fail_allocation(-1)
  collectgarbage = collect
  if ok then break end
  ok, e = pcall(y.backward, y, zeros)
  if ok then same(0, net:parameters()[1].grad:abs():sum():item(), 'allocation ' .. n)
  else
    gone = tostring(e):find('was freed', 1, true)
    assert(gone, e)
  end
  for _, p in ipairs(net:parameters()) do p.grad = nil end
end
assert(gone and before < failures())
]])

  case('keeps gates that are almost shut, or open, as exactly as others', [[
for _, dtype in ipairs { 'float16', 'bfloat16' } do
  local list = {}
  for i, device in ipairs { 'cpu', 'cuda' } do
    amp.manual_seed(4)
    local w = { amp.randn(64, 16) * 0.2, amp.randn(64, 16) * 0.2, amp.zeros(64), amp.zeros(64) }
    for k = 1, 16 do w[3][k], w[3][16 + k], w[3][48 + k] = -6, 6.5, 5.5 end
    local x, h, c = amp.randn(9, 4, 16), amp.randn(1, 4, 16), amp.randn(1, 4, 16)
    for k = 1, 4 do
      w[k] = w[k]:to(device):to(dtype)
      w[k].requires_grad = true
    end
    local function there(t) return t:to(device):to(dtype) end
    local y = amp.lstm(there(x), there(h), there(c), w, 1, true, false, false, 0, true, false, 0)
    y:float():sum():backward()
    list[i] = w[3].grad:cpu():float()
  end
  for from = 1, 49, 16 do -- each gate's
    local a, b = list[1]:narrow(1, from, 16), list[2]:narrow(1, from, 16)
    local off = ((a - b):norm() / a:norm()):item()
    assert(off < (dtype == 'float16' and 0.002 or 0.006), ('%s, gate %d: %g'):format(dtype, (from + 15) / 16, off))
  end
end
]])
end)

describe('the gradient of cross entropy on a GPU', function()
  local losses = [[
local function gradient(o)
  amp.manual_seed(3)
  local n, c = o.rows or 5, o.classes
  local w, x = randn(c, 6), randn(n, 6)
  local y = amp.randint(1, c + 1, { n }, { device = 'cuda', dtype = 'int64' })
  y[2] = c
  y[3] = o.ignore or y[3]:item()
  local weight = o.weight and amp.rand(c, { device = 'cuda' }):to(o.dtype) or nil
  w.requires_grad = true
  local held
  local loss = amp.scope(function()
    local a, b = w:to(o.dtype), x:to(o.dtype)
    local scores = F.linear(b, a)
    if o.turned then scores = scores:reshape(1, n, c):transpose(2, 3) y = y:reshape(1, n) end
    local l = F.cross_entropy(scores, y, { reduction = o.reduction, weight = weight, ignore_index = o.ignore, label_smoothing = o.smoothing })
    if o.hold then held = scores end
    return l, held
  end)
  if o.reduction == 'none' then loss = (loss * amp.arange(1, n + 1, { device = 'cuda' }):reshape_as(loss)):sum() end
  local before = held and held:clone()
  loss:backward { retain_graph = o.retain }
  if held then equal(before, held, 'scores that are held') end
  local g = w.grad:clone()
  if o.retain then
    w.grad = nil
    loss:backward()
    equal(g, w.grad, 'again')
  end
  return g
end
]]
  case('takes the scores\' place: they are not held twice', losses .. [[
local n, c = 64, 4096
local w, x = randn(c, 4), randn(n, 4)
local y = amp.randint(1, c + 1, { n }, { device = 'cuda', dtype = 'int64' })
w.requires_grad = true
local function loss_of() return F.cross_entropy(F.linear(x, w), y) end
amp.scope(loss_of):backward()
w.grad = nil
local loss = amp.scope(loss_of)
below(w:numel() * 4 + MB / 8, most(function() loss:backward() end), 'of scores that nobody sees')
w.grad = nil
local scores = F.linear(x, w)
loss = F.cross_entropy(scores, y)
assert(most(function() loss:backward() end) >= n * c * 4, 'of scores that are held')
]])

  case('is the same there, and scores that are seen again stay as they are', losses .. [[
local n = 0
for _, dtype in ipairs { 'float32', 'float16', 'bfloat16', 'float64' } do
  for _, o in ipairs { { classes = 7 }, { classes = 131 }, { classes = 200, ignore = 4, reduction = 'none' }, { classes = 1032, smoothing = 0.1 },
      { classes = 4099, reduction = 'sum' }, { classes = 4104, ignore = 3 }, { classes = 80, weight = true }, { classes = 200, weight = true, smoothing = 0.2 },
      { classes = 9, turned = true }, { classes = 4200, rows = 3, smoothing = 0.3 } } do
    o.dtype = dtype
    local a = gradient(o)
    o.hold = true
    local b = gradient(o)
    o.hold, o.retain = nil, true
    local c = gradient(o)
    local what = ('%s, %d classes'):format(dtype, o.classes)
    equal(b, a, what)
    equal(b, c, what .. ', retained')
    assert(a:abs():sum():item() > 0, what)
    n = n + 1
  end
end
same(40, n, 'cases')
]])

  case('does not take their place while another stream may read them', [[
local w, x = randn(50, 6):detach():requires_grad_(), randn(8, 6)
local y = amp.tensor({ 1, 2, 3, 4, 5, 6, 7, 8 }, { dtype = 'int64' }):cuda()
local scores = F.linear(x, w)
local want = (scores:detach() * 2):cpu()
local side = amp.cuda.Stream()
side:wait_stream(amp.cuda.current_stream())
local read = side:with(function() return scores:detach() * 2 end)
local loss = F.cross_entropy(scores, y)
scores:free()
loss:backward()
w.grad:cpu() -- what the step's stream has to do is done, what the other has to do is not
side:synchronize()
equal(want, read, 'what was read')
]], 'AMP_EMULATED_LAZY=1')
end)

--- Training on the mock GPU: what waits for it and what does not, and that it learns what the CPU learns.
-- Run by device_spec.lua in a process of its own; prints a line a case.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local mock = require 'spec.device.mock.device'
local nn, F = amp.nn, amp.nn.functional
local case, cost = mock.case, mock.cost

local function free(what, f)
  local reads, waits, result = cost(f)
  if reads ~= 0 or waits ~= 0 then error(('%s: %d reads, %d waits'):format(what, reads, waits), 2) end
  return result
end
local function one(what, f)
  local reads, waits, result = cost(f)
  if waits ~= 1 or reads < 1 then error(('%s: %d reads, %d waits'):format(what, reads, waits), 2) end
  return result
end
local function eq(want, got, what)
  if want ~= got then error(('%s: %s, not %s'):format(what or 'value', tostring(got), tostring(want)), 2) end
end

-- -- What runs -------------------------------------------------------------------

local function batch(device)
  amp.manual_seed(5)
  local x, y = amp.randn(16, 8), amp.randint(1, 5, 16, { dtype = 'int64' })
  return x:to(device), y:to(device)
end

local function net(device)
  amp.manual_seed(1)
  local n = nn.Sequential(nn.Linear(8, 24), nn.LayerNorm(24), nn.ReLU(), nn.Linear(24, 24, { bias = false }), nn.BatchNorm1d(24), nn.Tanh(), nn.Linear(24, 4))
  return n:to(device)
end

local optimizers = {
  SGD = function(p) return amp.optim.SGD(p, { lr = 0.1, momentum = 0.9, weight_decay = 1e-3 }) end,
  nesterov = function(p) return amp.optim.SGD(p, { lr = 0.1, momentum = 0.9, nesterov = true }) end,
  Adam = function(p) return amp.optim.Adam(p, { lr = 0.01, amsgrad = true }) end,
  AdamW = function(p) return amp.optim.AdamW(p, { lr = 0.01 }) end,
  RMSprop = function(p) return amp.optim.RMSprop(p, { lr = 0.01 }) end,
  Adagrad = function(p) return amp.optim.Adagrad(p, { lr = 0.01 }) end,
}

local function loss_of(n, x, y, low)
  return amp.autocast({ dtype = low }, function() return F.cross_entropy(n(x), y) end)
end

-- gear -> one step; `clip` between unscaling and the step where the gear has a place for it
local gears = {}
function gears.optimizer(s, r)
  s:scale(loss_of(r.net, r.x, r.y, r.low)):backward()
  s:unscale_(r.opt)
  nn.utils.clip_grad_norm_(r.params, r.clip)
  s:step(r.opt)
  s:update()
  r.opt:clear_grad()
end
function gears.automatic(s, r)
  r.gm:record(function() s:backward(r.gm, loss_of(r.net, r.x, r.y, r.low)) end)
  nn.utils.clip_grad_norm_(r.params, r.clip)
  r.opt:step():clear_grad()
end
function gears.manual(s, r)
  r.gm:record(function() r.gm:backward(loss_of(r.net, r.x, r.y, r.low), { dy = s:scale_tensor(r.device) }) end)
  s:unscale(r.gm:attached_tensors())
  nn.utils.clip_grad_norm_(r.params, r.clip)
  s:update()
  r.opt:step():clear_grad()
end
-- the whole step in one region, gradients accumulated over two batches
function gears.region(s, r)
  amp.autocast({ dtype = r.low }, function()
    for _ = 1, 2 do s:scale(F.cross_entropy(r.net(r.x), r.y) / 2):backward() end
    s:unscale_(r.opt)
    nn.utils.clip_grad_value_(r.params, r.clip)
    s:step(r.opt)
    s:update()
    r.opt:zero_grad()
  end)
end

local function setup(device, kind, low)
  local r = { net = net(device), low = low, clip = 0.5, device = device }
  r.x, r.y = batch(device)
  r.params = r.net:parameters()
  r.opt = optimizers[kind](r.params)
  r.gm = amp.GradManager():attach(r.params)
  r.scaler = amp.GradScaler { init_scale = 256, growth_interval = 3 }
  return r
end

local function parameters(r)
  local list = {}
  for i, p in ipairs(r.params) do list[i] = p:detach():cpu() end
  for _, b in r.net:named_buffers() do list[#list + 1] = b:cpu() end
  return list
end

case('the GPU is a device like another', function()
  eq(true, amp.cuda.is_available())
  eq(1, amp.cuda.device_count())
  local x = amp.tensor({ { 1, 2 }, { 3, 4 } }, { device = 'cuda' })
  eq('cuda:1', x.device)
  eq('float16', amp.get_autocast_dtype 'cuda')
  amp.autocast(function() eq('float16', x:matmul(x).dtype) end)
  amp.autocast({ device = 'cpu' }, function() eq('float32', x:matmul(x).dtype) end)
  amp.autocast({ device = 'cuda' }, function()
    eq('float16', x:matmul(x).dtype)
    eq('float32', x:cpu():matmul(x:cpu()).dtype)
    eq('float32', amp.cat({ amp.ones(2), amp.ones(2) }, 1).dtype)
    eq(false, amp.is_autocast_enabled 'cpu')
    eq(true, amp.is_autocast_enabled 'cuda')
  end)
  H.fails(function() return x + x:cpu() end, 'cuda:1', 'cpu', ':to(device)')
  H.fails(function() amp.ones(2, { device = 'cuda:2' }) end, 'cuda:2', 'has 1')
end)

for _, low in ipairs { 'float16', 'bfloat16' } do
  for gear, step in pairs(gears) do
    for kind in pairs(optimizers) do
      case(('a step waits for nothing and is the CPU\'s: %s gear, %s, %s'):format(gear, kind, low), function()
        local here, there = setup('cpu', kind, low), setup('cuda', kind, low)
        for i = 1, 6 do
          if i == 4 then -- an overflow on the way
            here.x, there.x = here.x * 1e30, there.x * 1e30
          elseif i == 5 then
            here.x, here.y = batch 'cpu'
            there.x, there.y = batch 'cuda'
          end
          step(here.scaler, here)
          free(('step %d'):format(i), function() step(there.scaler, there) end)
        end
        eq(true, mock.pending() > 0, 'launches that wait')
        eq(here.scaler.scale_factor, there.scaler.scale_factor, 'scale')
        eq(here.scaler:get_growth_tracker(), there.scaler:get_growth_tracker(), 'tracker')
        local a, b = parameters(here), parameters(there)
        -- the norm is summed up in another order there, and some optimizers divide by what is near 0
        for i = 1, #a do H.close(b[i], a[i], { rtol = 1e-4, atol = 1e-4 }, 'tensor ' .. i) end
      end)
    end
  end
end

-- -- What may wait, and how often --------------------------------------------------

local function leaf() -- 2 numbers that require grad
  local w = amp.tensor({ 1, 2 }, { device = 'cuda' })
  w.requires_grad = true
  return w
end

case('each permitted wait counts once', function()
  local x = amp.tensor({ { 1, 2 }, { 3, 4 } }, { device = 'cuda' })
  one('item', function() return x[1][2]:item() end)
  one('tolist', function() return x:tolist() end)
  one('printing', function() return tostring(x) end)
  one('printing a large one', function() return tostring(amp.ones(2000, 30, { device = 'cuda' })) end)
  one(':cpu()', function() return x:cpu() end)
  one(":to 'cpu'", function() return x:to 'cpu' end)
  one(':to with a dtype', function() return x:to { device = 'cpu', dtype = 'float16' } end)
  one('copy_', function() return amp.zeros(2, 2):copy_(x) end)
  one('a transposed one', function() return x:t():cpu() end)
  one('saving', function() amp.save(H.tmp 'x.amp', { x = x }) end)
  one('a mask', function() return x[x:gt(2)] end)
  one('nonzero', function() return x:nonzero() end)
  one('equal', function() return x:equal(x) end)
  one('allclose', function() return x:allclose(x) end)
  local _, waits = cost(function() amp.cuda.synchronize() end)
  eq(1, waits, 'synchronize')
  eq(0, mock.pending())
  eq(0, select(2, cost(function() return x:cpu():cpu() end)) - 1, 'a copy of what is there')
end)

case('nothing else does', function()
  local x = amp.tensor({ { 1, 2 }, { 3, 4 } }, { device = 'cuda' })
  free('to the GPU', function() return amp.ones(2, 2):to 'cuda' end)
  free('copy_ to the GPU', function() return x:copy_(amp.ones(2, 2)) end)
  free('numbers', function() return (2 * x + 1) / 3 - x ^ 2 end)
  free('assignment through a mask', function() x[x:gt(2)] = 1 end)
  free('assignment of a row', function() x[1] = amp.ones(2, { device = 'cuda' }) end)
  free('an index tensor', function() return x[amp.tensor({ 2, 1 }, { dtype = 'int64', device = 'cuda' })] end)
  free('where', function() return amp.where(x:gt(1), x, 0) end)
  free('properties', function() return { x.shape, x.dtype, x.device, x:stride(), x:is_contiguous(), x:numel(), x:data_ptr() } end)
  free('random numbers', function()
    amp.manual_seed(2)
    return { amp.rand(3, { device = 'cuda' }), amp.randn(3, { device = 'cuda' }), amp.randperm(5, { device = 'cuda' }), F.dropout(x, 0.5) }
  end)
  free('metrics', function()
    local m = amp.metric.Accuracy()
    m:update(amp.randn(4, 3, { device = 'cuda' }), amp.ones(4, { dtype = 'int64', device = 'cuda' }))
  end)
  free('gradients', function()
    local w = leaf()
    amp.autocast(function() return (w * w):sum() end):backward()
    return w.grad + 1
  end)
end)

case('the scaler waits when it is asked, once a question', function()
  local w = leaf()
  local s, opt = amp.GradScaler { init_scale = 8 }, amp.optim.SGD({ w }, { lr = 0.1 })
  free('scale_tensor', function() return s:scale_tensor 'cuda' end)
  free('step', function()
    s:scale((w * w):sum()):backward()
    s:unscale_(opt)
  end)
  one('found_inf between', function() eq(false, s:found_inf(opt)) end)
  one('found_inf of all', function() eq(false, s:found_inf()) end)
  free('step', function()
    s:step(opt)
    s:update()
  end)
  one('found_inf after update', function() eq(false, s:found_inf(opt)) end)
  one('scale_factor', function() eq(8, s.scale_factor) end)
  one('get_scale', function() eq(8, s:get_scale()) end)
  one('tracker', function() eq(1, s:get_growth_tracker()) end)
  one('state_dict', function() eq(1, s:state_dict().growth_tracker) end)
  one('as dy', function() return amp.tensor(s.scale_factor, { device = 'cuda' }) end)
  free('setters', function()
    s:set_growth_interval(7)
    s.max_scale = 64
    s:update(16)
  end)
  one('scale_factor', function() eq(16, s.scale_factor) end)
end)

case('an optimizer\'s state is read with one wait, and loaded with one', function()
  for name, make in pairs(optimizers) do
    local n = net 'cuda'
    local opt, x, y = make(n:parameters()), batch 'cuda'
    for _ = 1, 3 do
      loss_of(n, x, y):backward()
      opt:step():clear_grad()
    end
    local dict = one(name .. ': state_dict', function() return opt:state_dict() end)
    eq(#n:parameters(), #dict.state, 'parameters with a state')
    for i, s in ipairs(dict.state) do
      eq(3, s.step, name .. ': step')
      for key, t in pairs(s) do
        if key ~= 'step' then eq('cuda:1', t.device, ('%s of parameter %d'):format(key, i)) end
      end
    end
    one(name .. ': load_state_dict', function() opt:load_state_dict(dict) end)
    local fresh = make(n:parameters())
    free(name .. ': load_state_dict where nothing is yet', function() fresh:load_state_dict(dict) end)
    eq(3, fresh:state_dict().state[2].step)
    loss_of(n, x, y):backward()
    free('a step goes on from there', function() opt:step() end)
    eq(4, opt:state_dict().state[1].step)
  end
end)

case('a user-written optimizer is called after one wait, and not on overflow', function()
  local w = leaf()
  local calls = 0
  local opt = { param_groups = { { params = { w } } }, step = function(self)
    calls = calls + 1
    amp.no_grad(function() self.param_groups[1].params[1]:sub_(self.param_groups[1].params[1].grad, { alpha = 0.1 }) end)
  end }
  local s = amp.GradScaler { init_scale = 8 }
  for i = 1, 3 do
    free('backward', function() s:scale((w * (i == 2 and 1 / 0 or 1)):sum()):backward() end)
    one('step', function() s:step(opt) end)
    free('update', function() s:update() end)
    w.grad = nil
  end
  eq(2, calls)
  eq(4, s.scale_factor)
end)

case('in the automatic gear it sees nil gradients on overflow, after one wait for all of them', function()
  local a, b = leaf(), leaf()
  local gm = amp.GradManager():attach { a, b }
  local s = amp.GradScaler { init_scale = 8 }
  for i = 1, 2 do
    free('backward', function() gm:record(function() s:backward(gm, (a * b * (i == 1 and 1 / 0 or 1)):sum()) end) end)
    one('its gradients', function()
      eq(i == 1, a.grad == nil)
      eq(i == 1, b.grad == nil)
    end)
    a.grad, b.grad = nil, nil
  end
end)

case('an overflow that nobody has looked at is not added to', function()
  local here, there = {}, {}
  for device, r in pairs { cpu = here, cuda = there } do
    r.w = amp.tensor({ 1, 2 }, { device = device })
    r.w.requires_grad = true
    r.gm, r.s, r.opt = amp.GradManager():attach(r.w), amp.GradScaler { init_scale = 8 }, amp.optim.SGD({ r.w }, { lr = 0.1, momentum = 0.9 })
    for i = 1, 4 do -- without clear_grad after the overflow
      r.gm:record(function() r.s:backward(r.gm, (r.w * r.w * (i == 2 and 1 / 0 or 1)):sum()) end)
      r.opt:step()
      if i ~= 2 then r.opt:clear_grad() end
    end
  end
  eq(here.s.scale_factor, there.s.scale_factor)
  H.same(there.w:detach():cpu(), here.w:detach())
end)

case('losses under scales of their own accumulate in the automatic gear, an overflow among them', function()
  local result = {}
  for device, r in pairs { cpu = {}, cuda = {} } do
    local w = amp.tensor({ 1, 2 }, { device = device })
    w.requires_grad = true
    local gm, o = amp.GradManager():attach(w), amp.optim.SGD({ w }, { lr = 0.1 })
    local scalers = { amp.GradScaler { init_scale = 4, growth_interval = 2 }, amp.GradScaler { init_scale = 64, growth_interval = 3 } }
    for i = 1, 5 do
      local function step()
        for k, s in ipairs(scalers) do
          local bad = i == 2 and k == 2 or i == 3 and k == 1
          gm:record(function() s:backward(gm, (w * w * (bad and 1 / 0 or k)):sum()) end)
        end
        o:step():clear_grad()
      end
      if device == 'cuda' then free('step', step) else step() end
    end
    r.w, r.a, r.b = w:detach():cpu(), scalers[1].scale_factor, scalers[2].scale_factor
    result[#result + 1] = r
  end
  H.same(result[1].w, result[2].w)
  eq(result[1].a, result[2].a)
  eq(result[1].b, result[2].b)
end)

case('aliased gradients are unscaled once there, too', function()
  local a, b, g = leaf(), leaf(), amp.tensor({ 16, 32 }, { device = 'cuda' })
  local s, o = amp.GradScaler { init_scale = 8 }, amp.optim.SGD({ a, b }, { lr = 1 })
  a.grad, b.grad = g, g
  free('step', function()
    s:unscale_(o)
    s:step(o)
    s:update()
  end)
  H.close(a:detach():cpu(), { -1, -2 }, H.exact)
  H.close(b:detach():cpu(), { -1, -2 }, H.exact)
end)

case('what the device found is told at the next permitted wait', function()
  local w = leaf()
  local s, opt = amp.GradScaler { init_scale = 2 ^ 40, verbose = true }, amp.optim.SGD({ w }, { lr = 0.1 })
  local lines = {}
  local log = amp.write_log
  amp.write_log = function(text) lines[#lines + 1] = text end
  local warnings = H.warnings(function()
    for _ = 1, 21 do
      free('step', function()
        s:scale((w * (1 / 0)):sum()):backward()
        s:step(opt)
        s:update()
        opt:clear_grad()
      end)
    end
    eq(0, #lines)
    one('scale_factor', function() eq(2 ^ 19, s.scale_factor) end)
  end)
  amp.write_log = log
  eq(21, #lines)
  eq(true, lines[1]:find('2^40', 1, true) ~= nil or lines[1]:find('1.09951e+12', 1, true) ~= nil, lines[1])
  eq(1, #warnings)
  eq(true, warnings[1]:find '20 steps in a row' ~= nil, warnings[1])
  eq(21, s:state_dict().skipped)
end)

case('max_skipped is told there, too', function()
  local w = leaf()
  local s, opt = amp.GradScaler { max_skipped = 3 }, amp.optim.SGD({ w }, { lr = 0.1 })
  for _ = 1, 3 do
    free('step', function()
      s:scale((w * (1 / 0)):sum()):backward()
      s:step(opt)
      s:update()
      opt:clear_grad()
    end)
  end
  H.fails(function() return s.scale_factor end, '3 steps in a row', 'max_skipped')
end)

case('gradients on two devices under one scaler', function()
  local a, b = leaf(), amp.tensor { 1, 2 }
  b.requires_grad = true
  local s, opt = amp.GradScaler { init_scale = 4, growth_interval = 1 }, amp.optim.SGD({ a, b }, { lr = 0.5 })
  for i, factor in ipairs { 1, 1 / 0, 1 } do
    local la, lb = s:scale((a * (i == 2 and factor or 1)):sum()), s:scale(b:sum())
    la:backward()
    lb:backward()
    s:step(opt)
    s:update()
    opt:clear_grad()
  end
  eq(8, s.scale_factor)
  H.close(a:detach():cpu(), { 0, 1 }, H.exact)
  H.close(b:detach(), { 0, 1 }, H.exact)
  local out = s:scale { a, { b } }
  eq('cuda:1', out[1].device)
  eq('cpu', out[2][1].device)
  H.close(out[1]:cpu(), { 0, 8 }, H.exact)
end)

case('a model that moves takes its optimizer\'s state along, and back', function()
  local here, moving = setup('cpu', 'Adam', 'bfloat16'), setup('cpu', 'Adam', 'bfloat16')
  for i = 1, 6 do
    if i == 3 then
      moving.net:to 'cuda'
      moving.x, moving.y = moving.x:to 'cuda', moving.y:to 'cuda'
    elseif i == 5 then
      moving.net:to 'cpu'
      moving.x, moving.y = moving.x:cpu(), moving.y:cpu()
    end
    gears.optimizer(here.scaler, here)
    gears.optimizer(moving.scaler, moving)
  end
  local a, b = parameters(here), parameters(moving)
  for i = 1, #a do H.close(b[i], a[i], { rtol = 1e-5, atol = 1e-6 }, 'tensor ' .. i) end
end)

case('recurrent nets and packed sequences', function()
  for _, device in ipairs { 'cpu', 'cuda' } do
    amp.manual_seed(4)
    local rnn = nn.LSTM(3, 5, { num_layers = 2, bidirectional = true }):to(device)
    local x = amp.randn(6, 4, 3):to(device)
    local y = rnn(x)
    y:sum():backward()
    local pack = nn.utils.rnn.pack_padded_sequence(x, { 2, 6, 1, 4 }, { enforce_sorted = false })
    local z = rnn(pack)
    z.data:sum():backward()
    local back = nn.utils.rnn.pad_packed_sequence(z)
    eq(device == 'cuda' and 'cuda:1' or 'cpu', back.device)
    free('nothing', function() end)
  end
end)

case('the lack of device memory is an error with the bytes in it, and nothing is lost', function()
  local x = amp.ones(256, 256, { device = 'cuda' })
  mock.fail(4 * 65536)
  local e = H.fails(function() return amp.ones(512, 512, { device = 'cuda' }) end, 'memory', 'cuda:1')
  eq('memory', e.code)
  mock.fail(0)
  eq(65536, (x + amp.zeros(256, 256, { device = 'cuda' })):sum():item())
end)

case('cast copies: one a weight, none after the optimizer has written them', function()
  local r = setup('cuda', 'AdamW', 'float16')
  local function casts(f)
    local before = amp.counters().casts
    f()
    return amp.counters().casts - before
  end
  local first = casts(function() gears.optimizer(r.scaler, r) end)
  local later = casts(function() gears.optimizer(r.scaler, r) end)
  eq(true, first > later, ('%d casts, then %d'):format(first, later))
  local weights = 0
  for _, m in ipairs(r.net:modules()) do if m.weight and m.in_features then weights = weights + (m.bias and 2 or 1) end end
  eq(first - later, weights, 'casts of weights and biases')
end)

print 'end'

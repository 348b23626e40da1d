--- Levels, handles and trainers on the mock GPU: no step waits, an overflow skips, and the scales and
-- parameters are the CPU's. Run by device_spec.lua in a process of its own; prints a line a case.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local mock = require 'spec.device.mock.device'
local nn, F = amp.nn, amp.nn.functional
local case = mock.case

local function net(device)
  amp.manual_seed(1)
  return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)):to(device)
end

local function back(s) s:backward() end

-- name -> function (net, optimizer) that gives step(loss), the parameters that step, and their scale
local faces = {}
for _, level in ipairs { 'O0', 'O1', 'O2', 'O3' } do
  faces[level] = function(n)
    local opt = amp.optim.Adam(n:parameters(), { lr = 0.01 })
    amp.initialize(n, opt, { opt_level = level, verbosity = 0 })
    return function(loss)
      amp.scale_loss(loss, opt, back)
      nn.utils.clip_grad_norm_(amp.master_params(opt), 1)
      opt:step():zero_grad()
    end, amp.master_params(opt), function() return amp.state_dict().loss_scaler1.loss_scale end
  end
end
faces['O2, delayed'] = function(n)
  local opt = amp.optim.SGD(n:parameters(), { lr = 0.1, momentum = 0.9 })
  amp.initialize(n, opt, { opt_level = 'O2', verbosity = 0, num_losses = 2 })
  return function(loss)
    amp.scale_loss(loss, opt, { delay_unscale = true }, function(s) s:backward(nil, { retain_graph = true }) end)
    amp.scale_loss(loss, opt, function(s) s:backward(nil, { retain_graph = true }) end)
    amp.scale_loss(loss, opt, { loss_id = 2 }, back)
    opt:step():zero_grad()
  end, amp.master_params(opt), function() return amp.state_dict().loss_scaler1.loss_scale end
end
faces.handle = function(n)
  local handle, opt = amp.init(), amp.optim.AdamW(n:parameters(), { lr = 0.01 })
  return function(loss)
    handle:scale_loss(loss, opt, back)
    opt:step():zero_grad()
  end, n:parameters(), function() return amp.state_dict().loss_scaler1.loss_scale end
end
faces.wrapper = function(n)
  local opt = amp.init():wrap_optimizer(amp.optim.SGD(n:parameters(), { lr = 0.1 }), { num_loss = 2 })
  return function(loss)
    opt:scale_loss(loss, function(s) s:backward(nil, { retain_graph = true }) end)
    opt:scale_loss(loss, back)
    opt:step()
    opt:zero_grad()
  end, n:parameters(), function() return amp.state_dict().loss_scaler2.loss_scale end
end
faces.trainer = function(n)
  amp.init()
  local t = amp.init_trainer(amp.optim.Trainer(n:parameters(), 'sgd', { lr = 0.1, momentum = 0.9 }))
  return function(loss)
    amp.scale_loss(loss, t, back)
    amp.unscale(t)
    nn.utils.clip_grad_norm_(n:parameters(), 1)
    t:step(2)
  end, n:parameters(), function() return t.loss_scale end
end

local plain = { O0 = true } -- float32 without a scale

local names = {}
for name in pairs(faces) do names[#names + 1] = name end
table.sort(names)

-- Five steps with an overflow in the third: parameters, scale, and what a step cost the host.
local function run(name, device)
  local n = net(device)
  amp.manual_seed(5)
  local x, y = amp.randn(16, 8):to(device), amp.randint(1, 5, 16, { dtype = 'int64' }):to(device)
  local step, params, scale = faces[name](n)
  local reads, waits = mock.reads(), amp.counters().host_waits
  local before, at_overflow
  for i = 1, 5 do
    -- the same low dtype on both
    local loss = amp.autocast({ enabled = amp.is_autocast_enabled(device), dtype = 'float16' }, function() return F.cross_entropy(n(x), y) end)
    if i == 3 and not plain[name] then
      loss = loss * math.huge
      before = params[1]:detach():clone()
    end
    step(loss)
    if i == 3 and before then at_overflow = params[1]:detach():clone() end
  end
  local cost = { reads = mock.reads() - reads, waits = amp.counters().host_waits - waits }
  local out = { params = {}, scale = scale(), cost = cost, kept = before == nil or amp.equal(before, at_overflow) }
  for i, p in ipairs(params) do out.params[i] = p:detach():float():cpu() end
  amp.deactivate()
  return out
end

for _, name in ipairs(names) do
  local got, want
  case(name .. ': runs', function() got, want = run(name, 'cuda'), run(name, 'cpu') end)
  if got and want then
    case(name .. ': no step waits', function()
      if got.cost.reads ~= 0 or got.cost.waits ~= 0 then error(('%d reads, %d waits'):format(got.cost.reads, got.cost.waits)) end
    end)
    case(name .. ': an overflow leaves parameters alone', function() assert(got.kept and want.kept) end)
    case(name .. ': the scale is the CPU\'s', function()
      assert(got.scale == want.scale and (plain[name] or got.scale < 65536), got.scale .. ' ' .. want.scale)
    end)
    case(name .. ': so are the parameters', function()
      for i, p in ipairs(got.params) do H.close(p, want.params[i], { rtol = 0.02, atol = 5e-3 }) end
    end)
  end
end
print 'end'

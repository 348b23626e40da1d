--- opt_level O2: a float16 network, float32 batch norm, float32 masters in the optimizer.
-- The learning rate falls so low that most updates are smaller than half a float16 step: masters
-- keep them, a network without masters (O3) loses them. Try: luajit examples/o2_masters.lua --steps 120
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local digits = dofile((arg[0]:match('^(.*/)') or '') .. 'digits.lua')
local nn, F = amp.nn, amp.nn.functional

local steps = digits.steps(120)

local function train(level)
  amp.manual_seed(1)
  local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 10))
  local opt = amp.optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
  net, opt = amp.initialize(net, opt, {opt_level = level, loss_scale = 'dynamic', verbosity = 0})
  local moved
  digits.each(steps, function(x, y, i)
    if i == steps then -- the last step is a tiny one: which weights does it move?
      opt.param_groups[1].lr, opt.param_groups[1].momentum = 1e-5, 0
      moved = amp.master_params(opt)[1]:detach():clone()
    end
    local loss = F.cross_entropy(net(x), y)
    amp.scale_loss(loss, opt, function(scaled) scaled:backward() end)
    nn.utils.clip_grad_norm_(amp.master_params(opt), 5)
    opt:step():zero_grad()
    if i == steps then moved = moved:ne(amp.master_params(opt)[1]:detach()):float():mean():item() end
  end)
  local accuracy, scale = digits.accuracy(net), amp.state_dict().loss_scaler1.loss_scale
  amp.deactivate()
  return {accuracy = accuracy, moved = moved, scale = scale, model = net[2].weight.dtype, norm = net[3].weight.dtype,
    master = amp.master_params(opt)[1].dtype, saved = net:state_dict()['2.weight'].dtype}
end

local result = {O2 = train 'O2', O3 = train 'O3'}
for _, level in ipairs {'O2', 'O3'} do
  local r = result[level]
  print(('%s: model %s, batch norm %s, stepped %s, saved %s; a tiny step moves %.0f %% of the weights; test accuracy %.1f %%, scale %g')
    :format(level, r.model, r.norm, r.master, r.saved, 100 * r.moved, 100 * r.accuracy, r.scale))
end
return result

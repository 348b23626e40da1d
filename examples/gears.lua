--- One network, one data set, float16: the training step in each of the three gears.
-- All gears reach the same losses; they differ in who calls what. Try: luajit examples/gears.lua
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local nn, F, optim = amp.nn, amp.nn.functional, amp.optim

-- Points in the plane, labelled (from 1) by the quarter they lie in.
amp.manual_seed(7)
local points = amp.randn(512, 2)
local right, upper = points[{{}, 1}]:gt(0):long(), points[{{}, 2}]:gt(0):long()
local labels = right + upper * 2 + 1

local function make()
  amp.manual_seed(1)
  local net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 4))
  return net, optim.SGD(net:parameters(), {lr = 0.5, momentum = 0.9}), amp.GradScaler{init_scale = 1024}
end

local function loss_of(net)
  return amp.autocast({dtype = 'float16'}, function() return F.cross_entropy(net(points), labels) end)
end

local gears = {}

-- A manager records, the scaler does all there is to do with the scale.
function gears.automatic()
  local net, opt, scaler = make()
  local gm = amp.GradManager():attach(net:parameters())
  return function()
    local loss = gm:record(function()
      local l = loss_of(net)
      scaler:backward(gm, l)
      return l
    end)
    opt:step():clear_grad()
    return loss
  end
end

-- PyTorch's calls. unscale_ is there for the clipping; without it step does the same.
function gears.per_optimizer()
  local net, opt, scaler = make()
  return function()
    local loss = loss_of(net)
    scaler:scale(loss):backward()
    scaler:unscale_(opt)
    nn.utils.clip_grad_norm_(net:parameters(), 100)
    scaler:step(opt):update()
    opt:clear_grad()
    return loss
  end
end

-- Every part by hand: the scale goes in as the gradient of the loss, and comes out by unscale.
function gears.manual()
  local net, opt, scaler = make()
  local gm = amp.GradManager():attach(net:parameters())
  return function()
    local loss = gm:record(function()
      local l = loss_of(net)
      gm:backward(l, {dy = scaler:scale_tensor()})
      return l
    end)
    scaler:unscale(gm:attached_tensors())
    scaler:update()
    opt:step():clear_grad()
    return loss
  end
end

for _, name in ipairs {'automatic', 'per_optimizer', 'manual'} do
  local step, losses = gears[name](), {}
  for i = 1, 100 do losses[i] = step():item() end
  print(string.format('%-14s loss %.4f -> %.4f', name, losses[1], losses[100]))
end

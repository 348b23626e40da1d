--- The plain loop: autocast around the forward pass and the loss, a GradScaler around backward and step.
-- Try: luajit examples/plain.lua --steps 300
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local digits = dofile((arg[0]:match('^(.*/)') or '') .. 'digits.lua')
local nn, F = amp.nn, amp.nn.functional

amp.manual_seed(1)
local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
local opt = amp.optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
local scaler = amp.GradScaler()

local steps, average = digits.steps(300), amp.metric.Loss()
digits.each(steps, function(x, y, i)
  local loss = amp.autocast({dtype = 'float16'}, function() return F.cross_entropy(net(x), y) end)
  scaler:scale(loss):backward()
  scaler:step(opt):update() -- an overflow leaves everything as it is and halves the scale
  opt:clear_grad()
  average:update(loss:detach())
  if i % 50 == 0 or i == steps then -- reading waits, so not at every step
    print(('step %4d  loss %.4f  scale %g'):format(i, average:value(), scaler:get_scale()))
    average:reset()
  end
end)

local accuracy = digits.accuracy(net)
print(('test accuracy %.1f %%'):format(100 * accuracy))
return {accuracy = accuracy, scale = scaler:get_scale()}

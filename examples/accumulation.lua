--- Accumulation: four backward passes of 25 images make the gradient of 100; one unscale, step and update for all.
-- The scale must stay the same while gradients add up, so update comes after the step, not after each backward.
-- Try: luajit examples/accumulation.lua --steps 200
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local digits = dofile((arg[0]:match('^(.*/)') or '') .. 'digits.lua')
local nn, F = amp.nn, amp.nn.functional

local steps, parts = digits.steps(200), 4

local function train(pieces)
  amp.manual_seed(1)
  local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
  local opt = amp.optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
  local scaler = amp.GradScaler()
  local last
  digits.each(steps, function(x, y, i)
    local total = 0
    local n = x:size(1) / pieces
    for k = 1, pieces do
      local range = {{(k - 1) * n + 1, k * n}}
      local loss = amp.autocast({dtype = 'float16'}, function()
        return F.cross_entropy(net(x[range]), y[range]) / pieces -- so that the sum is the mean over all images
      end)
      scaler:scale(loss):backward()
      total = total + loss:detach()
    end
    scaler:step(opt):update()
    opt:clear_grad()
    if i % 50 == 0 or i == steps then
      last = total:item()
      print(('%d x %3d images  step %4d  loss %.4f'):format(pieces, n, i, last))
    end
  end)
  return {accuracy = digits.accuracy(net), loss = last}
end

local result = {parts = train(parts), whole = train(1)}
print(('test accuracy: %.1f %% in parts, %.1f %% at once'):format(100 * result.parts.accuracy, 100 * result.whole.accuracy))
return result

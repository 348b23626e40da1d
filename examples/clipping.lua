--- Clipping under a scaler: unscale_ first, so that the norm is that of the gradients and not of the scale.
-- The learning rate is far too large; clipped, training goes well, and without clipping it does not.
-- Try: luajit examples/clipping.lua --steps 150
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local digits = dofile((arg[0]:match('^(.*/)') or '') .. 'digits.lua')
local nn, F = amp.nn, amp.nn.functional

local steps = digits.steps(150)

local function train(max_norm)
  amp.manual_seed(1)
  local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
  local opt = amp.optim.SGD(net:parameters(), {lr = 2, momentum = 0.9})
  local scaler = amp.GradScaler()
  local largest, clipped = 0, 0
  digits.each(steps, function(x, y)
    local loss = amp.autocast({dtype = 'float16'}, function() return F.cross_entropy(net(x), y) end)
    scaler:scale(loss):backward()
    scaler:unscale_(opt)
    local norm = nn.utils.clip_grad_norm_(net:parameters(), max_norm):item() -- the norm before clipping
    if norm < math.huge and norm > largest then largest = norm end
    if norm > max_norm then clipped = clipped + 1 end
    scaler:step(opt):update()
    opt:clear_grad()
  end)
  return {accuracy = digits.accuracy(net), largest = largest, clipped = clipped / steps}
end

local result = {with = train(0.1), without = train(math.huge)}
for _, name in ipairs {'with', 'without'} do
  local r = result[name]
  print(('%-8s clipping: largest norm %8.3g, %3.0f %% of the steps clipped, test accuracy %.1f %%')
    :format(name, r.largest, 100 * r.clipped, 100 * r.accuracy))
end
return result

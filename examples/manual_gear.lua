--- The manual gear: a GradManager records, the scale goes in as the loss's gradient, and between
-- unscale and step the gradients are yours. Here noise that fades is added to them.
-- Try: luajit examples/manual_gear.lua --steps 200
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local digits = dofile((arg[0]:match('^(.*/)') or '') .. 'digits.lua')
local nn, F = amp.nn, amp.nn.functional

amp.manual_seed(1)
local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
local opt = amp.optim.Adam(net:parameters(), {lr = 1e-3})
local gm = amp.GradManager():attach(net:parameters())
local scaler = amp.GradScaler{init_scale = 2 ^ 24} -- too large at first, to see it come down

local steps, skipped = digits.steps(200), 0
digits.each(steps, function(x, y, i)
  local loss = gm:record(function()
    local l = amp.autocast({dtype = 'float16'}, function() return F.cross_entropy(net(x), y) end)
    gm:backward(l, {dy = scaler:scale_tensor()})
    return l
  end)
  scaler:unscale(gm:attached_tensors())
  local overflow = scaler:found_inf() -- asked for the report's sake; this waits, and step skips by itself
  for _, p in ipairs(gm:attached_tensors()) do
    if p.grad then p.grad:add_(amp.randn_like(p) * (1e-3 / i)) end -- nil after an overflow
  end
  scaler:update()
  opt:step():clear_grad()
  if overflow then skipped = skipped + 1 end
  if i % 50 == 0 or i == steps then print(('step %4d  loss %.4f  scale %g  skipped %d'):format(i, loss:item(), scaler:get_scale(), skipped)) end
end)

local accuracy = digits.accuracy(net)
print(('test accuracy %.1f %%'):format(100 * accuracy))
return {accuracy = accuracy, scale = scaler:get_scale(), skipped = skipped}

--- Several losses and optimizers under one scaler: a trunk with two heads, which tell the digit and whether it is odd.
-- Each loss is scaled and has its backward; unscale_ and step go by optimizer; update comes once, at the end.
-- Try: luajit examples/several_losses.lua --steps 200
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local digits = dofile((arg[0]:match('^(.*/)') or '') .. 'digits.lua')
local nn, F = amp.nn, amp.nn.functional

amp.manual_seed(1)
local trunk = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU())
local digit, parity = nn.Linear(128, 10), nn.Linear(128, 2)
local all = trunk:parameters()
for _, p in ipairs(digit:parameters()) do all[#all + 1] = p end
local opt_digit = amp.optim.SGD(all, {lr = 0.1, momentum = 0.9})           -- the trunk and the first head
local opt_parity = amp.optim.Adam(parity:parameters(), {lr = 1e-3})       -- the second head
local scaler = amp.GradScaler()

local steps, result = digits.steps(200), {}
digits.each(steps, function(x, y, i)
  local odd = (y - 1) % 2 + 1 -- label 1: even, 2: odd
  local digit_loss, parity_loss = amp.autocast({dtype = 'float16'}, function()
    local h = trunk(x)
    return F.cross_entropy(digit(h), y), F.cross_entropy(parity(h), odd)
  end)
  scaler:scale(digit_loss):backward(nil, {retain_graph = true}) -- both go back through the trunk
  scaler:scale(parity_loss * 0.5):backward()
  scaler:unscale_(opt_digit) -- one of the two wants to clip
  nn.utils.clip_grad_norm_(all, 5)
  scaler:step(opt_digit)
  scaler:step(opt_parity)
  scaler:update()
  opt_digit:clear_grad()
  opt_parity:clear_grad()
  if i % 50 == 0 or i == steps then
    result.digit_loss, result.parity_loss = digit_loss:item(), parity_loss:item()
    print(('step %4d  digit %.4f  parity %.4f  scale %g'):format(i, result.digit_loss, result.parity_loss, scaler:get_scale()))
  end
end)

result.accuracy = digits.accuracy(nn.Sequential(trunk, digit))
print(('test accuracy %.1f %%'):format(100 * result.accuracy))
return result

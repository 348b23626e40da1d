--- A Trainer: amp.init for the whole program, init_trainer for its loss scale, step(batch_size).
-- Losses are sums over the batch; the step divides by its size. amp.unscale before clipping.
-- Try: luajit examples/trainer.lua --steps 150
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local digits = dofile((arg[0]:match('^(.*/)') or '') .. 'digits.lua')
local nn, F = amp.nn, amp.nn.functional

local steps, batch = digits.steps(150), 100

amp.manual_seed(1)
amp.init{target_dtype = 'float16'}
local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
local trainer = amp.optim.Trainer(net:parameters(), 'sgd', {learning_rate = 0.1, momentum = 0.9, wd = 1e-4})
amp.init_trainer(trainer)

local first, last, dtype
digits.each(steps, function(x, y, i)
  local out = net(x)
  local loss = F.cross_entropy(out, y, {reduction = 'sum'})
  if i == 10 then loss = loss * math.huge end -- the step is skipped, and the scale halves, as at other overflows
  amp.scale_loss(loss, trainer, function(scaled) scaled:backward() end)
  amp.unscale(trainer)
  nn.utils.clip_grad_norm_(net:parameters(), 5 * batch)
  trainer:step(batch)
  dtype = out.dtype
  last = loss:item() / batch
  first = first or last
end, batch)

local path = os.tmpname()
trainer:save_states(path) -- momenta and the loss scale
trainer:load_states(path)
os.remove(path)

local result = {first = first, last = last, accuracy = digits.accuracy(net), dtype = dtype, scale = trainer.loss_scale}
amp.deactivate()
print(('network output %s, loss %.3f -> %.3f, test accuracy %.1f %%, scale %g'):format(dtype, first, last, 100 * result.accuracy, result.scale))
return result

--- A GAN: two optimizers and three losses (real and fake for the discriminator, one for the generator).
-- Each optimizer has a scaler of its own, so an overflow of one does not hold back the other.
-- Try: luajit examples/gan.lua --steps 100
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local digits = dofile((arg[0]:match('^(.*/)') or '') .. 'digits.lua')
local nn, F = amp.nn, amp.nn.functional

amp.manual_seed(1)
local noise, side = 16, 14
local generator = nn.Sequential(nn.Linear(noise, 128), nn.ReLU(), nn.Linear(128, side * side), nn.Sigmoid())
local discriminator = nn.Sequential(nn.Linear(side * side, 128), nn.GELU(), nn.Linear(128, 1))
local opt_g = amp.optim.Adam(generator:parameters(), {lr = 2e-3, betas = {0.5, 0.999}})
local opt_d = amp.optim.Adam(discriminator:parameters(), {lr = 1e-3, betas = {0.5, 0.999}})
local scaler_g, scaler_d = amp.GradScaler(), amp.GradScaler()
local region = {dtype = 'float16'}

-- How far the discriminator is from calling images true (1) or made up (0).
local function loss_of(images, truth)
  return amp.autocast(region, function()
    local logits = discriminator(images)
    return F.bce_with_logits(logits, amp.full_like(logits, truth))
  end)
end

local steps, result = digits.steps(100), {}
digits.each(steps, function(x, _, i)
  local real = F.avg_pool2d(x, 2):flatten(2)
  local fake = amp.autocast(region, function() return generator(amp.randn(real:size(1), noise)) end)

  local real_loss, fake_loss = loss_of(real, 1), loss_of(fake:detach(), 0)
  scaler_d:scale(real_loss):backward() -- gradients of both add up
  scaler_d:scale(fake_loss):backward()
  scaler_d:step(opt_d):update()

  local fooled = loss_of(fake, 1)
  scaler_g:scale(fooled):backward()
  scaler_g:step(opt_g):update()
  opt_g:clear_grad()
  opt_d:clear_grad() -- also of what the generator's loss left on the discriminator
  if i % 20 == 0 or i == steps then
    result = {real = real_loss:item(), fake = fake_loss:item(), fooled = fooled:item(), brightness = fake:mean():item(),
      truth = real:mean():item()}
    print(('step %3d  real %.3f  fake %.3f  generator %.3f  mean brightness %.3f (of the digits %.3f)')
      :format(i, result.real, result.fake, result.fooled, result.brightness, result.truth))
  end
end)
return result

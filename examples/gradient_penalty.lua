--- WGAN-GP: a critic whose gradient is held near 1, which takes a derivative of a derivative in float16.
-- The penalty's gradients come from scaled outputs (or they would underflow) and are unscaled by hand
-- before they are used; the loss made of them is scaled again for its own backward.
-- Try: luajit examples/gradient_penalty.lua --steps 60
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local digits = dofile((arg[0]:match('^(.*/)') or '') .. 'digits.lua')
local nn, F = amp.nn, amp.nn.functional

amp.manual_seed(1)
local noise, side = 16, 14
local generator = nn.Sequential(nn.Linear(noise, 128), nn.ReLU(), nn.Linear(128, side * side), nn.Sigmoid())
local critic = nn.Sequential(nn.Linear(side * side, 128), nn.GELU(), nn.Linear(128, 1))
local opt_g = amp.optim.Adam(generator:parameters(), {lr = 1e-3, betas = {0.5, 0.9}})
local opt_c = amp.optim.Adam(critic:parameters(), {lr = 1e-3, betas = {0.5, 0.9}})
local scaler_g, scaler_c = amp.GradScaler{init_scale = 1024}, amp.GradScaler{init_scale = 1024}
local region = {dtype = 'float16'}

local function penalty(real, fake)
  local mix = amp.rand(real:size(1), 1)
  local between = (real * mix + fake * (1 - mix)):detach()
  between.requires_grad = true
  local scores = amp.autocast(region, function() return critic(between) end)
  local scaled = amp.grad(scaler_c:scale(scores:float():sum()), between, {create_graph = true})[1]
  local gradient = scaled / scaler_c:scale_tensor()
  local norm = (gradient:square():sum(2) + 1e-12):sqrt()
  return (norm - 1):square():mean(), norm:detach():mean()
end

local steps, result = digits.steps(60), {}
digits.each(steps, function(x, _, i)
  local real = F.avg_pool2d(x, 2):flatten(2)
  local fake = amp.autocast(region, function() return generator(amp.randn(real:size(1), noise)) end):float()
  local distance = amp.autocast(region, function() return critic(fake:detach()):mean() - critic(real):mean() end)
  local cost, norm = penalty(real, fake)
  scaler_c:scale(distance:float() + 10 * cost):backward()
  scaler_c:step(opt_c):update()
  opt_c:clear_grad()
  if i % 5 == 0 then -- the generator learns once in five steps
    scaler_g:scale(amp.autocast(region, function() return -critic(fake):mean() end)):backward()
    scaler_g:step(opt_g):update()
    opt_g:clear_grad()
    opt_c:clear_grad() -- the critic got gradients on the way
  end
  result.norm, result.penalty, result.distance = norm:item(), cost:item(), -distance:item()
  result.first = result.first or result.penalty
  if i % 20 == 0 or i == steps then
    print(('step %3d  distance %7.4f  gradient norm %.3f  penalty %.4f'):format(i, result.distance, result.norm, result.penalty))
  end
end)
return result

--- A fixed loss scale against a dynamic one. A fixed one that is too large skips every step, and nothing is learnt;
-- a dynamic one comes down from there within a few steps, and goes up again when all goes well.
-- Try: luajit examples/static_vs_dynamic.lua --steps 150
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local digits = dofile((arg[0]:match('^(.*/)') or '') .. 'digits.lua')
local nn, F = amp.nn, amp.nn.functional

local steps = digits.steps(150)
local kinds = {
  {name = 'static 2^10', init_scale = 2 ^ 10, growth_interval = 0},
  {name = 'static 2^30', init_scale = 2 ^ 30, growth_interval = 0},
  {name = 'dynamic from 2^30', init_scale = 2 ^ 30, growth_interval = 50},
}

local function train(kind)
  amp.manual_seed(1)
  local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
  local opt = amp.optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
  local scaler = amp.GradScaler{init_scale = kind.init_scale, growth_interval = kind.growth_interval}
  local skipped, loss = 0, nil
  digits.each(steps, function(x, y, i)
    local l = amp.autocast({dtype = 'float16'}, function() return F.cross_entropy(net(x), y) end)
    scaler:scale(l):backward()
    scaler:step(opt)
    if scaler:found_inf(opt) then skipped = skipped + 1 end -- for the table; this waits
    scaler:update()
    opt:clear_grad()
    if i == steps then loss = l:item() end
  end)
  return {skipped = skipped, loss = loss, scale = scaler:get_scale(), accuracy = digits.accuracy(net)}
end

local warn = amp.warn
amp.warn = function() end -- of the many skipped steps, which are meant here
local result = {}
print(('%-18s %8s %8s %12s %9s'):format('scale', 'skipped', 'loss', 'at the end', 'accuracy'))
for _, kind in ipairs(kinds) do
  local r = train(kind)
  result[kind.name] = r
  print(('%-18s %8d %8.4f %12g %7.1f %%'):format(kind.name, r.skipped, r.loss, r.scale, 100 * r.accuracy))
end
amp.warn = warn
return result

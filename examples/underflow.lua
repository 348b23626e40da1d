--- Why losses are scaled: gradients near 1e-8 are 0 in float16 (its smallest number is 6e-8), and survive times the scale.
-- A loss that is small by its nature, here the mean error of weights that are almost right, learns nothing without a scaler.
-- Try: luajit examples/underflow.lua --steps 100
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'

local steps = tonumber((table.concat(arg, ' '):match('%-%-steps[ =](%d+)'))) or 100

local function run(dtype, scaler)
  amp.manual_seed(1)
  local w = amp.zeros(1, 64, {requires_grad = true})
  local truth = amp.randn(1, 64)
  local opt = amp.optim.SGD({w}, {lr = 2e6}) -- large, as the gradients are tiny
  scaler = scaler or amp.GradScaler{enabled = false}
  local first, last, zeros
  for _ = 1, steps do
    local x = amp.randn(256, 64)
    local loss = amp.autocast({dtype = dtype, enabled = dtype ~= 'float32'}, function()
      return (amp.linear(x, w) - amp.linear(x, truth)):float():square():mean() * 1e-8
    end)
    scaler:scale(loss):backward()
    scaler:unscale_(opt)
    zeros = zeros or w.grad:eq(0):float():mean():item() -- of the first gradient
    scaler:step(opt):update()
    opt:clear_grad()
    last = loss:item()
    first = first or last
  end
  return {first = first, last = last, zeros = zeros}
end

local result = {
  float32 = run('float32'), float16 = run('float16'), scaled = run('float16', amp.GradScaler()), bfloat16 = run('bfloat16'),
}
for _, name in ipairs {'float32', 'float16', 'scaled', 'bfloat16'} do
  local r = result[name]
  print(('%-24s gradient values that are 0: %5.1f %%   loss %.2e -> %.2e')
    :format(name == 'scaled' and 'float16 with GradScaler' or name, 100 * r.zeros, r.first, r.last))
end
return result

--- A function with a derivative of its own, exact in a float16 region: log(sum(exp)) of each row, which overflows
-- nowhere. custom_fwd casts its inputs to float32 in a region and turns autocast off in both directions.
-- Try: luajit examples/custom_function.lua --steps 200
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local digits = dofile((arg[0]:match('^(.*/)') or '') .. 'digits.lua')
local nn = amp.nn

local LogSumExp = amp.Function{
  name = 'LogSumExp',
  forward = amp.custom_fwd(function(ctx, x)
    local top = x:max(2, {keepdim = true})
    local e = (x - top):exp()
    local sum = e:sum(2, {keepdim = true})
    ctx:save_for_backward(e / sum)
    return (sum:log() + top):squeeze(2)
  end, {cast_inputs = 'float32'}),
  backward = amp.custom_bwd(function(ctx, grad)
    return ctx.saved_tensors[1] * grad:unsqueeze(2)
  end),
}

assert(amp.gradcheck(LogSumExp, {amp.randn(3, 5, {dtype = 'float64', requires_grad = true})}))

amp.manual_seed(1)
local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
local opt = amp.optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
local scaler = amp.GradScaler()

local steps, result = digits.steps(200), {}
digits.each(steps, function(x, y, i)
  local loss = amp.autocast({dtype = 'float16'}, function()
    local logits = net(x)
    local all = LogSumExp(logits)
    result.logits, result.all = logits.dtype, all.dtype
    return (all - logits:gather(2, y:unsqueeze(2)):squeeze(2)):mean() -- cross-entropy, spelled out
  end)
  scaler:scale(loss):backward()
  scaler:step(opt):update()
  opt:clear_grad()
  if i % 50 == 0 or i == steps then print(('step %4d  loss %.4f'):format(i, loss:item())) end
end)

result.accuracy = digits.accuracy(net)
print(('logits %s, log-sum-exp %s; test accuracy %.1f %%'):format(result.logits, result.all, 100 * result.accuracy))
return result

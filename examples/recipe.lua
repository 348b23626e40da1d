--- The mixed-precision recipe: the same network trained in float32 and in mixed precision, timed, with the most memory
-- that its tensors took. On a GPU: layers of 4096, 50 batches of 512, three epochs, float16 with a gradient scaler, and
-- once more with the step captured. On a CPU: small layers and bfloat16, which needs no scaling. Three steps go before the
-- clock starts.
-- Try: luajit examples/recipe.lua [--steps BATCHES] [--device cpu]
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local nn, optim = amp.nn, amp.optim

local words = table.concat(arg, ' ')
local device = words:match '%-%-device[ =](%S+)' or (amp.cuda.is_available() and 'cuda' or 'cpu')
local on_gpu = device:find '^cuda' ~= nil
local size, batch = on_gpu and 4096 or 256, on_gpu and 512 or 64
-- --size and --batch are for trying it where a GPU is slow
size, batch = tonumber(words:match '%-%-size[ =](%d+)') or size, tonumber(words:match '%-%-batch[ =](%d+)') or batch
local layers, batches, epochs = 3, tonumber(words:match '%-%-steps[ =](%d+)') or (on_gpu and 50 or 20), 3
local low = on_gpu and 'float16' or 'bfloat16'

print(('%d layers of %d, batches of %d, on %s: float32, then %s%s'):format(layers, size, batch, device, low,
  on_gpu and ', then captured' or ' (a captured step needs a GPU)'))

-- -- Time and memory -------------------------------------------------------------------

local began

local function wait()
  if on_gpu then amp.cuda.synchronize(device) end
end

local function start_timer(keep_peak)
  if not keep_peak then amp.reset_peak_memory(device) end
  wait()
  began = amp.clock()
end

local function end_timer(message)
  wait()
  local seconds, bytes = amp.clock() - began, amp.memory(device).peak
  print('\n' .. message)
  print(('Total execution time = %.3f sec'):format(seconds))
  print(('Max memory used by tensors = %.0f bytes'):format(bytes))
  return { seconds = seconds, bytes = bytes }
end

-- -- Model and data ----------------------------------------------------------------------

local function make_model()
  amp.manual_seed(1)
  local list = {}
  for i = 1, layers do
    list[#list + 1] = nn.Linear(size, size)
    if i < layers then list[#list + 1] = nn.ReLU() end
  end
  return nn.Sequential(unpack(list)):to(device)
end

amp.manual_seed(2)
local data, targets = {}, {}
for i = 1, batches do
  data[i] = amp.randn(batch, size, { device = device })
  targets[i] = amp.randn(batch, size, { device = device })
end
local loss_fn = nn.MSELoss()

-- Train from the same start; mixed: autocast and scaler do their work, else both are switched off and the lines the same.
local function train(mixed, captured)
  collectgarbage() -- what the run before had
  collectgarbage()
  if on_gpu then amp.cuda.empty_cache() end
  local net = make_model()
  local opt = optim.SGD(net:parameters(), { lr = 0.001 })
  local scaler = amp.GradScaler { enabled = mixed and low == 'float16' }
  local region = { enabled = mixed, dtype = low }

  local function step(input, target)
    local loss = amp.autocast(region, function() return loss_fn(net(input), target) end)
    scaler:scale(loss):backward()
    scaler:step(opt)
    scaler:update()
    opt:clear_grad()
    return loss
  end
  if captured then step = amp.capture(step) end

  amp.reset_peak_memory(device)
  for _ = 1, 3 do amp.scope(step, data[1], targets[1]) end -- libraries are opened, plans made, the step captured
  start_timer(captured) -- a graph takes its memory when it is captured
  local loss
  for _ = 1, epochs do
    for i = 1, batches do loss = amp.scope(step, data[i], targets[i]) end
  end
  return loss, net
end

local result = { size = size }
for _, run in ipairs { { 'default', 'Default precision:' }, { 'mixed', 'Mixed precision:' }, { 'captured', 'Mixed precision, captured:' } } do
  local name, message = unpack(run)
  if name ~= 'captured' or on_gpu then
    local loss = train(name ~= 'default', name == 'captured')
    result[name] = end_timer(message)
    result[name].loss = loss:item()
  end
end
return result

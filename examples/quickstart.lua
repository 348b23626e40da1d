--- Trains a small network on handwritten digits in float32, bfloat16 and float16,
-- and prints what each precision reached. `sh examples/quickstart.sh` builds amp first.
--
--   --precision LIST   of float32,bfloat16,float16 (all three)
--   --seeds LIST       one run a seed, averaged (1)
--   --epochs N         passes over the 8,500 digits (5)
--   --device NAME      cpu, cuda, cuda:2 (cuda where there is one)
--   --data DIR         folder of MNIST's four files (examples/data)
--   --checkpoint FILE  save the run after each epoch, and where --stop-after stops it
--   --stop-after N     stop after N steps
--   --resume FILE      go on with a saved run, to the same numbers as one that never stopped
--   --graph FILE       save the trained network as a graph, for programs in C (examples/embed/run_graph.c); the last run's
--   --loss-log FILE    write each step's loss, exactly
--   --quiet            no progress bar
-- Those on checkpoints and the loss log are for one precision and one seed.
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local nn, F, optim = amp.nn, amp.nn.functional, amp.optim

local here = arg[0]:match('^(.*)/[^/]*$') or '.'

-- -- Command line --------------------------------------------------------------

local function list(text)
  local out = {}
  for word in text:gmatch('[^,]+') do out[#out + 1] = word end
  return out
end

local function number(text) return tonumber(text) or error('a number expected, got ' .. text, 0) end

local function options()
  local o = {precision = {'float32', 'bfloat16', 'float16'}, seeds = {1}, epochs = 5, data = here .. '/data',
    device = amp.cuda.is_available() and 'cuda' or 'cpu'}
  local read = {
    precision = list, epochs = number, device = tostring, data = tostring, checkpoint = tostring, resume = tostring,
    ['stop-after'] = number, ['loss-log'] = tostring, graph = tostring,
    seeds = function(text)
      local out = list(text)
      for i, s in ipairs(out) do out[i] = number(s) end
      return out
    end,
  }
  local i = 1
  while arg[i] do
    local name = arg[i]:match('^%-%-(.+)$')
    if name == 'quiet' then
      o.quiet = true
      i = i + 1
    elseif read[name] then
      if not arg[i + 1] then error('option --' .. name .. ' needs a value', 0) end
      o[name] = read[name](arg[i + 1])
      i = i + 2
    else
      error("unknown option '" .. arg[i] .. "' (the options stand at the top of quickstart.lua)", 0)
    end
  end
  for _, p in ipairs(o.precision) do
    if p ~= 'float32' and p ~= 'bfloat16' and p ~= 'float16' then error("unknown precision '" .. p .. "'", 0) end
  end
  local single = o.checkpoint or o.resume or o['loss-log'] or o['stop-after']
  if single and (#o.precision > 1 or #o.seeds > 1) then
    error('--checkpoint, --resume, --stop-after and --loss-log are for one run: add --precision float16, say', 0)
  end
  return o
end

-- -- The network and one run -------------------------------------------------------

local function network()
  return nn.Sequential(
    nn.Conv2d(1, 16, 3, {padding = 1}), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, {padding = 1}), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 7 * 7, 10))
end

-- Share of right answers, in percent.
local function evaluate(net, loader, region, device)
  net:eval()
  local accuracy = amp.metric.Accuracy()
  amp.no_grad(function()
    for x, y in loader:iter() do
      accuracy:update(amp.autocast(region, net, x:to(device)), y:to(device))
    end
  end)
  net:train()
  return accuracy:value() * 100
end

-- The network as a graph of its ops in evaluation mode, for any number of pictures: it runs without Lua, and on any device.
local function save_graph(net, path, device)
  local x = amp.zeros(2, 1, 28, 28):to(device)
  net:eval()
  local g = amp.graph.trace(net, {x}, {dynamic = {1}})
  g:save(path)
  local again = amp.load_graph(path, {map_location = device})
  if not amp.equal(again(x), net(x)) then error(('%s does not give what the network gives'):format(path), 0) end
  net:train()
end

local function train(o, digits, precision, seed)
  amp.manual_seed(seed)
  amp.reset_peak_memory(o.device)
  local net = network():to(o.device)
  local loader = amp.data.DataLoader(digits.train, {batch_size = 100, shuffle = true, drop_last = true})
  local test = amp.data.DataLoader(digits.test, {batch_size = 500})
  local opt = optim.SGD(net:parameters(), {lr = 0.2, momentum = 0.9, weight_decay = 5e-4, nesterov = true})
  local schedule = optim.lr_scheduler.OneCycleLR(opt, {max_lr = 0.2, total_steps = o.epochs * loader:size()})
  -- float32 runs the same lines, with both parts of mixed precision switched off;
  -- bfloat16 has float32's range and needs no scaling
  local region = {dtype = precision, enabled = precision ~= 'float32'}
  local scaler = amp.GradScaler{enabled = precision == 'float16'}
  local gm = amp.GradManager():attach(net:parameters())

  local at = {epoch = 1, step = 0, skipped = 0, seconds = 0, casts = 0}
  local parts = {model = net, optimizer = opt, schedule = schedule, scaler = scaler, loader = loader}
  local function save()
    local state = {precision = precision, seed = seed, epochs = o.epochs, at = at, rng = amp.get_rng_state()}
    for name, part in pairs(parts) do state[name] = part:state_dict() end
    amp.save(o.checkpoint, state)
  end
  if o.resume then
    local state = amp.load(o.resume)
    for _, key in ipairs {'precision', 'seed', 'epochs'} do
      local asked = ({precision = precision, seed = seed, epochs = o.epochs})[key]
      if state[key] ~= asked then
        error(string.format("'%s' is a run with %s %s, asked for is %s", o.resume, key, state[key], asked), 0)
      end
    end
    for name, part in pairs(parts) do part:load_state_dict(state[name]) end
    at = state.at
    amp.set_rng_state(state.rng)
  end
  local log = o['loss-log'] and assert(io.open(o['loss-log'], o.resume and 'a' or 'w'))

  local function step(x, y)
    local loss
    gm:record(function()
      loss = amp.autocast(region, function() return F.cross_entropy(net(x), y) end)
      scaler:backward(gm, loss)
    end)
    opt:step():clear_grad()
    schedule:step()
    return loss:item()
  end

  local began, casts = amp.clock(), amp.counters().casts
  local function pause() -- what the run has taken so far
    at.seconds, began = at.seconds + amp.clock() - began, amp.clock()
    at.casts, casts = at.casts + amp.counters().casts - casts, amp.counters().casts
  end
  local stopped = false
  while at.epoch <= o.epochs and not stopped do
    local bar = amp.progress(loader:size(), {label = string.format('%-8s epoch %d/%d', precision, at.epoch, o.epochs), quiet = o.quiet})
    bar:update(loader.position)
    for x, y in loader:iter() do
      local loss = amp.scope(step, x:to(o.device), y:to(o.device))
      at.step = at.step + 1
      if scaler:is_enabled() and scaler:found_inf() then at.skipped = at.skipped + 1 end
      if log then log:write(string.format('%d %.17g\n', at.step, loss)) end
      bar:update{loss = loss}
      if at.step == o['stop-after'] then
        stopped = true
        break
      end
    end
    bar:close()
    if not stopped then at.epoch = at.epoch + 1 end
    pause()
    if o.checkpoint then save() end
  end
  if log then log:close() end
  if o.graph then save_graph(net, o.graph, o.device) end
  return {
    accuracy = evaluate(net, test, region, o.device), seconds = at.seconds, peak = amp.memory(o.device).peak,
    casts = at.casts / math.max(at.step, 1), scale = scaler:get_scale(), skipped = at.skipped,
  }
end

-- -- All runs ------------------------------------------------------------------------

local function row(...) return string.format('| %-9s | %9s | %8s | %12s | %11s | %8s | %7s |', ...) end

local function where_of(device)
  if device:find '^cuda' then return string.format('%s (%s)', device, amp.cuda.get_device_properties(device).name) end
  return string.format('%s with %d thread%s', device, amp.get_num_threads(), amp.get_num_threads() == 1 and '' or 's')
end

local function main()
  io.stdout:setvbuf 'line' -- in order with the progress bars where output goes to a file
  local o = options()
  local digits = amp.data.mnist(o.data)
  local where = where_of(o.device)
  print(string.format('%d digits to train, %d to test, on %s', digits.train:size(), digits.test:size(), where))
  local lines = {'On ' .. where .. ':', row('precision', 'test acc.', 'seconds', 'peak memory', 'casts/step', 'scale', 'skipped'),
    '|-----------|-----------|----------|--------------|-------------|----------|---------|'}
  for _, precision in ipairs(o.precision) do
    local sum = {accuracy = 0, seconds = 0, peak = 0, casts = 0, scale = 0, skipped = 0}
    for _, seed in ipairs(o.seeds) do
      local r = train(o, digits, precision, seed)
      collectgarbage() -- a run's memory does not count to the next one's peak
      if #o.seeds > 1 then print(string.format('%s, seed %d: %.2f %% in %.1f s', precision, seed, r.accuracy, r.seconds)) end
      for key, v in pairs(r) do sum[key] = sum[key] + v / #o.seeds end
    end
    lines[#lines + 1] = row(precision, string.format('%.2f %%', sum.accuracy), string.format('%.1f', sum.seconds),
      string.format('%.1f MiB', sum.peak / 2 ^ 20), string.format('%.1f', sum.casts), string.format('%g', sum.scale),
      string.format('%g', sum.skipped))
  end
  print(table.concat(lines, '\n'))
end

main()

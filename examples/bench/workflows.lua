--- Claim: every workflow trains the shipped digits in float16 and in bfloat16 as well as in float32.
-- Each workflow is one function of its lines, and runs once a dtype and seed; 'float32' is its control: the same lines with
-- mixed precision switched off. On the way one batch's loss is made infinite: the step must leave every parameter alone,
-- and a dynamic scale must fall; the control leaves this batch out. Prints a table: test accuracy, means over the seeds.
--   luajit examples/bench/workflows.lua [--steps 255] [--seeds 3] [--only 'name of a workflow']
-- Returns the rows and the largest distance to a control, in points.
local amp = require 'amp'
local nn, F, optim = amp.nn, amp.nn.functional, amp.optim

local here = arg[0]:match('^(.*)/[^/]*$') or '.'
local line = table.concat(arg, ' ')
local STEPS = tonumber(line:match '%-%-steps[ =](%d+)') or 255
local SEEDS = tonumber(line:match '%-%-seeds[ =](%d+)') or 3
local ONLY = line:match '%-%-only[ =](.+)$'
local BATCH, LR = 100, 0.05
local FORCED = math.ceil(STEPS * 0.4) -- the step whose loss is infinite

local data = amp.data.mnist(here .. '/../data')

-- -- What workflows share ------------------------------------------------------------------------

local function network()
  return nn.Sequential(nn.Conv2d(1, 8, 5, {stride = 2, padding = 2}), nn.BatchNorm2d(8), nn.ReLU(),
    nn.Conv2d(8, 16, 3, {stride = 2, padding = 1}), nn.ReLU(), nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
end

local function sgd(params, lr) return optim.SGD(params, {lr = lr or LR, momentum = 0.9}) end
local function back(scaled) scaled:backward() end

-- Two losses of one network: of the even and of the odd digits, so that their sum is the loss of the batch.
local function halves(out, y)
  local odd = (y % 2):float()
  local each = F.cross_entropy(out, y, {reduction = 'none'})
  return (each * odd):mean(), (each * (1 - odd)):mean()
end

-- A workflow gets the dtype and gives net, step(x, y, bend), and scale() or nothing for a constant one;
-- bend(loss) is the loss, infinite at the forced step.
local workflows, order = {}, {}
local function workflow(name, make)
  order[#order + 1], workflows[name] = name, make
end

local function first_scale() return amp.state_dict().loss_scaler1.loss_scale end
local function off(dtype) return dtype == 'float32' end
local function region_of(dtype) return {dtype = dtype, enabled = not off(dtype)} end
local function scaler_of(dtype) return amp.GradScaler{enabled = not off(dtype)} end

-- -- GradScaler's three gears ----------------------------------------------------------------------

workflow('automatic gear', function(dtype)
  local net, region, scaler = network(), region_of(dtype), scaler_of(dtype)
  local opt, gm = sgd(net:parameters()), amp.GradManager():attach(net:parameters())
  local forward = amp.autocast.wrap(function(x, y) return F.cross_entropy(net(x), y) end, region)
  return net, function(x, y, bend)
    gm:record(function() scaler:backward(gm, bend(forward(x, y))) end)
    opt:step():clear_grad()
  end, function() return scaler.scale_factor end
end)

workflow('manual gear', function(dtype)
  local net, region, scaler = network(), region_of(dtype), scaler_of(dtype)
  local opt, gm = sgd(net:parameters()), amp.GradManager():attach(net:parameters())
  return net, function(x, y, bend)
    gm:record(function()
      local loss = amp.autocast(region, function() return F.cross_entropy(net(x), y) end)
      gm:backward(bend(loss), {dy = scaler:scale_tensor()})
    end)
    scaler:unscale(gm:attached_tensors())
    scaler:update()
    opt:step():clear_grad()
  end, function() return scaler.scale_factor end
end)

-- PyTorch's loop; parts > 1 accumulates, clip > 0 clips.
local function per_optimizer(parts, clip)
  return function(dtype)
    local net, region, scaler = network(), region_of(dtype), scaler_of(dtype)
    local opt = sgd(net:parameters())
    return net, function(x, y, bend)
      local n = BATCH / parts
      for k = 1, parts do
        local range = {{(k - 1) * n + 1, k * n}}
        local loss = amp.autocast(region, function() return F.cross_entropy(net(x[range]), y[range]) / parts end)
        scaler:scale(bend(loss)):backward()
      end
      if clip then
        scaler:unscale_(opt)
        nn.utils.clip_grad_norm_(net:parameters(), clip)
      end
      scaler:step(opt):update()
      opt:zero_grad()
    end, function() return scaler:get_scale() end
  end
end

workflow('per-optimizer gear', per_optimizer(1))
workflow('clipping', per_optimizer(1, 1))
workflow('accumulation, 4 parts', per_optimizer(4))

workflow('two losses, two optimizers', function(dtype)
  local net, region, scaler = network(), region_of(dtype), scaler_of(dtype)
  local body, head = {}, {}
  for name, p in net:named_parameters() do table.insert(name:match '^9' and head or body, p) end
  local opts = {sgd(body), optim.Adam(head, {lr = 1e-3})}
  return net, function(x, y, bend)
    local odd, even = amp.autocast(region, function() return halves(net(x), y) end)
    scaler:scale(bend(odd)):backward(nil, {retain_graph = true})
    scaler:scale(even):backward()
    for _, opt in ipairs(opts) do scaler:step(opt) end
    scaler:update()
    for _, opt in ipairs(opts) do opt:clear_grad() end
  end, function() return scaler:get_scale() end
end)

-- -- The Apex way --------------------------------------------------------------------------------

local function level(opt_level, more)
  return function(dtype)
    local net = network()
    local opt = sgd(net:parameters())
    local o = {opt_level = off(dtype) and 'O0' or opt_level, verbosity = 0, num_losses = more and more.num_losses}
    if not off(dtype) then
      o.loss_scale = more and more.loss_scale
      if opt_level ~= 'O1' then o.cast_model_type = dtype end
    end
    local region = {dtype = dtype, enabled = opt_level == 'O1' and not off(dtype)} -- O1's own dtype is the device's
    net, opt = amp.initialize(net, opt, o)
    local losses = more and more.num_losses or 1
    return net, function(x, y, bend)
      amp.autocast(region, function()
        local out = net(x)
        if losses == 1 then
          amp.scale_loss(bend(F.cross_entropy(out, y)), opt, back)
        else
          local odd, even = halves(out, y)
          amp.scale_loss(bend(odd), opt, {loss_id = 1}, function(s) s:backward(nil, {retain_graph = true}) end)
          amp.scale_loss(even, opt, {loss_id = 2}, back)
        end
      end)
      opt:step():zero_grad()
    end, (opt_level ~= 'O3' or more and more.loss_scale) and first_scale
  end
end

workflow('O1', level 'O1')
workflow('O1, two losses', level('O1', {num_losses = 2}))
workflow('O2', level 'O2')
workflow('O2, two losses', level('O2', {num_losses = 2}))
workflow('O3', level 'O3')
workflow('O3, dynamic scale', level('O3', {loss_scale = 'dynamic'}))

workflow('handle', function(dtype)
  local handle = amp.init{enabled = not off(dtype), target_dtype = not off(dtype) and dtype or nil}
  local net = network()
  local opt = sgd(net:parameters())
  return net, function(x, y, bend)
    handle:scale_loss(bend(F.cross_entropy(net(x), y)), opt, back)
    opt:step():zero_grad()
  end, first_scale
end)

workflow('handle, wrap_optimizer', function(dtype)
  local handle = amp.init{enabled = not off(dtype), target_dtype = not off(dtype) and dtype or nil}
  local net = network()
  local opt = handle:wrap_optimizer(sgd(net:parameters()), {num_loss = 2})
  return net, function(x, y, bend)
    local odd, even = halves(net(x), y)
    opt:scale_loss(bend(odd), function(s) s:backward(nil, {retain_graph = true}) end)
    opt:scale_loss(even, back)
    opt:step():zero_grad()
  end, first_scale
end)

-- -- The MXNet way, and MegEngine's -----------------------------------------------------------------

workflow('Trainer, init_trainer', function(dtype)
  if not off(dtype) then amp.init{target_dtype = dtype} end
  local net = network()
  local trainer = optim.Trainer(net:parameters(), 'sgd', {learning_rate = LR, momentum = 0.9})
  if not off(dtype) then amp.init_trainer(trainer) end
  return net, function(x, y, bend)
    local loss = bend(F.cross_entropy(net(x), y, {reduction = 'sum'}))
    if off(dtype) then loss:backward() else amp.scale_loss(loss, trainer, back) end
    trainer:step(BATCH)
  end, function() return trainer.loss_scale end
end)

workflow('GradManager, amp.enabled', function(dtype)
  local net, scaler = network(), scaler_of(dtype)
  local opt, gm = sgd(net:parameters()), amp.GradManager():attach(net:parameters())
  local region = region_of(dtype)
  return net, function(x, y, bend)
    gm:record()
    amp.autocast(region, function()
      amp.enabled = not off(dtype)
      local loss = F.cross_entropy(net(x), y)
      amp.enabled = false
      scaler:backward(gm, bend(loss))
    end)
    gm:release()
    opt:step():clear_grad()
  end, function() return scaler.scale_factor end
end)

-- -- Runs ------------------------------------------------------------------------------------------

local function accuracy(net)
  local x, y = unpack(data.test.tensors)
  net:eval()
  return amp.no_grad(function() return net(x):argmax(2):eq(y):float():mean():item() end) * 100
end

local function values(net)
  local out = {}
  for _, p in ipairs(net:parameters()) do out[#out + 1] = p:detach():clone() end
  return out
end

local function run(name, dtype, seed)
  amp.manual_seed(seed)
  local net, step, scale = workflows[name](dtype)
  local loader = amp.data.DataLoader(data.train, {batch_size = BATCH, shuffle = true, drop_last = true})
  local i, skipped = 0, 0
  local function one(x, y, forced)
    if not forced then return step(x, y, function(loss) return loss end) end
    if off(dtype) then return end
    local before, high = values(net), scale and scale()
    step(x, y, function(loss) return loss * math.huge end)
    for k, p in ipairs(net:parameters()) do
      assert(amp.equal(before[k], p:detach()), ('%s, %s: the overflow changed parameter %d'):format(name, dtype, k))
    end
    if scale then assert(scale() == high / 2, ('%s, %s: the scale went from %g to %g'):format(name, dtype, high, scale())) end
    skipped = skipped + 1
  end
  while i < STEPS do
    for x, y in loader:iter() do
      i = i + 1
      amp.scope(one, x, y, i == FORCED)
      if i == STEPS then break end
    end
  end
  assert(off(dtype) or skipped == 1)
  local result = accuracy(net)
  amp.deactivate()
  collectgarbage()
  return result
end

local function mean(name, dtype)
  local sum = 0
  for seed = 1, SEEDS do sum = sum + run(name, dtype, seed) end
  return sum / SEEDS
end

io.stdout:setvbuf 'line'
print('| workflow | float32 | float16 | distance | bfloat16 | distance |')
print('| --- | --- | --- | --- | --- | --- |')
local rows, worst = {}, 0
for _, name in ipairs(order) do
  if ONLY == nil or ONLY == name then
    local r = {name = name}
    for _, dtype in ipairs {'float32', 'float16', 'bfloat16'} do r[dtype] = mean(name, dtype) end
    local a, b = r.float16 - r.float32, r.bfloat16 - r.float32
    r.distance = math.max(math.abs(a), math.abs(b))
    worst = math.max(worst, r.distance)
    rows[#rows + 1] = r
    print(('| %s | %.2f | %.2f | %+.2f | %.2f | %+.2f |'):format(name, r.float32, r.float16, a, r.bfloat16, b))
  end
end
if #rows == 0 then error(('there is no workflow %q (there are %s)'):format(ONLY, table.concat(order, ', ')), 0) end
print(('%d steps of %d images, %d seeds; largest distance %.2f points'):format(STEPS, BATCH, SEEDS, worst))
return {rows = rows, worst = worst, names = order}

--- Classes of pictures by the usual recipe: random resized crops, flips, label smoothing, mixup, an average of the weights (EMA), a cosine
-- with warm-up, channels last, mixed precision; top-1 and top-k after each epoch, a checkpoint that a later run goes on from.
-- Any folder with train/CLASS/*.jpg and val/CLASS/*.jpg serves; without one, classes of drawn shapes.
-- Try: luajit examples/imagenet.lua --epochs 4
--      luajit examples/imagenet.lua --data imagenet --model resnet50 --epochs 90 --checkpoint run.amp --workers 8
--      amp run -n 8 --restarts 2 examples/imagenet.lua --data imagenet --checkpoint run.amp    (a card, or a CPU's part, for each)
-- Options: --data --model --width --epochs --batch --size --lr --decay --smoothing --mixup --workers --mode --checkpoint --drawn (pictures)
-- --stop (epoch after which this run ends; a later one goes on)
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local nn, vision, T, dist = amp.nn, amp.vision, amp.vision.transforms, amp.distributed
dist.init()
local rank, ranks, main = dist.rank(), dist.world_size(), dist.is_main()

local gpu = amp.cuda.is_available()
local o = { data = '', model = 'resnet18', width = gpu and 64 or 16, epochs = 10, batch = gpu and 256 or 32, size = gpu and 224 or 40, lr = 0.1,
  decay = 5e-5, smoothing = 0.1, mixup = 0.2, workers = gpu and 8 or 0, mode = gpu and 'float16' or 'bfloat16', checkpoint = '', drawn = 1600, stop = 0 }
for i = 1, #arg, 2 do
  local name = arg[i]:match '^%-%-(%a+)$'
  if o[name] == nil or arg[i + 1] == nil then error("unknown option '" .. arg[i] .. "', or no value; see the head of this file", 0) end
  o[name] = type(o[name]) == 'string' and arg[i + 1] or tonumber(arg[i + 1]) or error(arg[i] .. ' wants a number', 0)
end
local device = gpu and 'cuda' or 'cpu'

-- -- Data -------------------------------------------------------------------------------------------

local MEAN, STD = { 0.485, 0.456, 0.406 }, { 0.229, 0.224, 0.225 }
local train_transform = T.Compose { T.RandomResizedCrop(o.size, { scale = { o.data ~= '' and 0.08 or 0.6, 1 } }), T.RandomHorizontalFlip(),
  T.ColorJitter { brightness = 0.2, contrast = 0.2, saturation = 0.2 }, T.Normalize(MEAN, STD) }
local val_transform = T.Compose { T.Resize(math.floor(o.size * 8 / 7)), T.CenterCrop(o.size), T.Normalize(MEAN, STD) }

-- A drawn shape, and its class
local function drawn(n, seed, transform)
  local shapes = vision.datasets.shapes { n = n, size = math.floor(o.size * 8 / 7), classes = 5, seed = seed, objects = { 1, 1 } }
  return { size = n, classes = shapes.classes, get = function(_, i)
    local item = shapes:get(i)
    return transform(item.image), item.labels[1]
  end }
end

local train_set, val_set
if o.data ~= '' then
  train_set = vision.datasets.ImageFolder(o.data .. '/train', { transform = train_transform, skip_bad = true })
  val_set = vision.datasets.ImageFolder(o.data .. '/val', { transform = val_transform })
else
  train_set, val_set = drawn(o.drawn, 1, train_transform), drawn(200, 2, val_transform)
end
local classes = #train_set.classes
if #val_set.classes ~= classes then error(('train has %d classes, val %d'):format(classes, #val_set.classes), 0) end
-- Each rank has its part of the pictures; --batch is a rank's.
local sampler = ranks > 1 and amp.data.DistributedSampler(train_set, { drop_last = true }) or nil
local val_places = ranks > 1 and amp.arange(rank, (val_set.size or #val_set) + 1, ranks, { dtype = 'int64', device = 'cpu' }) or nil
local loader = amp.data.DataLoader(train_set,
  { batch_size = o.batch, shuffle = not sampler, sampler = sampler, drop_last = true, workers = o.workers, device = device })
local val_loader = amp.data.DataLoader(val_set, { batch_size = o.batch, sampler = val_places, workers = o.workers, device = device })
if #loader == 0 then error('there are fewer pictures than a batch takes: make --batch smaller', 0) end

-- -- Network, optimizer, schedule ---------------------------------------------------------------------

amp.manual_seed(1)
local net = vision.models[o.model] { classes = classes, width = o.width ~= 64 and o.width or nil }
net:to(device):to { memory_format = 'channels_last' }
local total = o.epochs * #loader
-- biases and norms are not decayed
local decayed, plain = {}, {}
for _, p in ipairs(net:parameters()) do
  local list = p:dim() > 1 and decayed or plain
  list[#list + 1] = p
end
local opt = amp.optim.SGD({ { params = decayed, weight_decay = o.decay }, { params = plain, weight_decay = 0 } },
  { lr = o.lr * o.batch * ranks / 64, momentum = 0.9, nesterov = true })
local schedule = amp.optim.lr_scheduler.CosineWithWarmup(opt, { warmup_steps = math.floor(total / 20), total_steps = total })
local scaler = amp.GradScaler { enabled = o.mode == 'float16' }
local ema = amp.optim.swa.EMA(net, { decay = math.min(0.9999, 1 - math.min(0.5, 10 / total)), use_buffers = true })
local loss_fn = nn.CrossEntropyLoss { label_smoothing = o.smoothing }
local region = { enabled = o.mode ~= 'float32', dtype = o.mode ~= 'float32' and o.mode or nil }

local trained = nn.parallel.DistributedDataParallel(net) -- of one rank the network itself

-- Of two pictures' classes the loss is the mean that their pictures are (Zhang et al., 2018). The parts are drawn per batch, by the ratio
-- of two exponential powers, which is Beta(alpha, alpha) for alpha <= 1 (Jöhnk, 1964).
local function part()
  if o.mixup <= 0 then return 1 end
  while true do
    local u = amp.rand({ 2 }, { dtype = 'float64', device = 'cpu' }):pow(1 / o.mixup)
    local a, b = u[1]:item(), u[2]:item()
    if a + b <= 1 and a + b > 0 then return a / (a + b) end
  end
end

local function loss_of(x, y)
  local lambda = part()
  if lambda == 1 then return loss_fn(trained(x), y) end
  local order = amp.randperm(x:size(1), { device = 'cpu' }):to(x.device)
  local scores = trained(x * lambda + x:index_select(1, order) * (1 - lambda))
  return loss_fn(scores, y) * lambda + loss_fn(scores, y:index_select(1, order)) * (1 - lambda)
end

local function step(x, y)
  local loss = amp.autocast(region, loss_of, x:contiguous 'channels_last', y)
  scaler:scale(loss):backward()
  scaler:step(opt)
  scaler:update()
  opt:clear_grad()
  return loss
end

-- -- Going on where a run stopped ---------------------------------------------------------------------------

local done = { epoch = 0, best = 0 }
local parts = { net = net, opt = opt, schedule = schedule, scaler = scaler, ema = ema }

local function save() -- rank 1 writes; any number of ranks goes on from it
  if not main then return dist.barrier() end
  local run = { epoch = done.epoch, best = done.best, rng = amp.get_rng_state() }
  for name, p in pairs(parts) do run[name] = p:state_dict() end
  amp.save(o.checkpoint, run)
  dist.barrier()
end

local file = o.checkpoint ~= '' and io.open(o.checkpoint, 'rb')
if file then
  file:close()
  local run = amp.load(o.checkpoint)
  for name, p in pairs(parts) do p:load_state_dict(run[name]) end
  amp.set_rng_state(run.rng)
  done.epoch, done.best = run.epoch, run.best
  if main then print(('going on after epoch %d of %s'):format(done.epoch, o.checkpoint)) end
end

-- -- Training ------------------------------------------------------------------------------------------------

local function measure(model)
  for _, b in ipairs(model:buffers()) do dist.broadcast(b) end -- statistics are those of rank 1's pictures
  model:eval()
  local top1, topk = amp.metric.TopK { k = 1 }, amp.metric.TopK { k = math.min(5, math.max(1, classes - 1)) }
  for x, y in val_loader:iter() do
    local scores = amp.no_grad(amp.autocast, region, function() return model(x:contiguous 'channels_last') end)
    top1:update(scores, y)
    topk:update(scores, y)
  end
  model:train()
  dist.merge_metric(top1)
  dist.merge_metric(topk)
  return top1:value(), topk:value(), topk.k
end

local result = { first = done.epoch + 1 }
for epoch = done.epoch + 1, o.stop > 0 and o.stop or o.epochs do
  local mean, began = amp.metric.Mean 'loss', amp.clock()
  if sampler then
    sampler:set_epoch(epoch)
    amp.manual_seed(1000 * epoch + rank) -- other parts and orders on each rank
  end
  for x, y in loader:iter() do
    mean:update(amp.scope(step, x, y))
    ema:update(net)
    schedule:step()
  end
  dist.merge_metric(mean)
  local speed = #loader * o.batch * ranks / (amp.clock() - began)
  local top1, topk, k = measure(ema.module)
  done.epoch, done.best = epoch, math.max(done.best, top1)
  if main then print(('epoch %d of %d, %s, top-1 %.3f, top-%d %.3f, %.0f pictures/s'):format(epoch, o.epochs, tostring(mean), top1, k, topk, speed)) end
  if o.checkpoint ~= '' then save() end
  result.top1, result.topk, result.loss = top1, topk, mean:value()
end
result.epochs, result.best = done.epoch, done.best
return result

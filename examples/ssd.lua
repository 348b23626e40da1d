--- SSD in the order of MXNet's tutorial of mixed precision: data, batches, training without and with AMP, then conversion
-- and saving for inference. It trains on drawn shapes; on a GPU ResNet-50 as it is, on a CPU a thin one.
-- Try: luajit examples/ssd.lua --mode bfloat16 --steps 300   (modes: float32, float16, bfloat16)
-- Options: --mode --steps --batch --size --side (anchors are made for) --width --classes --lr --test (pictures to measure by)
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local vision = amp.vision

local gpu = amp.cuda.is_available()
local o = { mode = 'float32', steps = gpu and 300 or 400, batch = gpu and 32 or 8, size = gpu and 512 or 128,
  side = 0, width = gpu and 64 or 16, classes = 3, lr = gpu and 0.01 or 0.02, test = gpu and 500 or 100 }
for i = 1, #arg, 2 do
  local name = arg[i]:match '^%-%-(%a+)$'
  if o[name] == nil then error("unknown option '" .. arg[i] .. "'; see the head of this file", 0) end
  o[name] = name == 'mode' and arg[i + 1] or tonumber(arg[i + 1]) or error(arg[i] .. ' wants a number', 0)
end
local device = gpu and 'cuda' or 'cpu'
-- Anchors of the finest map are a tenth of `side` and up; in small pictures its cells are wide, and twice that suits them.
if o.side == 0 then o.side = o.size < 256 and 2 * o.size or o.size end

-- -- Data ---------------------------------------------------------------------------------

local MEAN, STD = 0.45, 0.25
local function set(n, seed) return vision.datasets.shapes { n = n, size = o.size, classes = o.classes, seed = seed } end

-- Batchify: pictures stacked, labels {class, corners 0 to 1} padded with -1
local function batchify(items)
  local images, most = {}, 1
  for i, item in ipairs(items) do
    images[i], most = item.image, math.max(most, item.labels:numel())
  end
  local labels = amp.full({ #items, most, 5 }, -1)
  for i, item in ipairs(items) do
    local n = item.labels:numel()
    if n > 0 then
      labels[{ i, { 1, n }, 1 }] = item.labels:float()
      labels[{ i, { 1, n }, { 2, 5 } }] = item.boxes / o.size
    end
  end
  return (amp.stack(images) - MEAN) / STD, labels
end

local function loader(data, n)
  local at, step = 0, 0
  return function()
    if step == n then return nil end
    step = step + 1
    local items = {}
    for i = 1, o.batch do
      items[i] = data:get(at % #data + 1)
      at = at + 1
    end
    local x, labels = batchify(items)
    return step, x:to(device), labels:to(device)
  end
end

-- -- Training ------------------------------------------------------------------------------

amp.manual_seed(1)
if o.mode ~= 'float32' then amp.init { target_dtype = o.mode } end

local net = vision.models.ssd_512_resnet50_v1 { classes = o.classes, width = o.width, side = o.side }
net:to(device)
local trainer = amp.optim.Trainer(net:parameters(), 'sgd', { learning_rate = o.lr, wd = 0.0005, momentum = 0.9 },
  { update_on_kvstore = false })
if o.mode ~= 'float32' then amp.init_trainer(trainer) end

local mbox_loss = vision.SSDMultiBoxLoss()
local ce_metric, smooth_metric = amp.metric.Loss 'CrossEntropy', amp.metric.Loss 'SmoothL1'

local clock, seen = nil, 0
for i, data, labels in loader(set(o.steps * o.batch, 1), o.steps) do
  trainer:set_learning_rate(o.lr * math.min(1, i / 30) * (i > 0.8 * o.steps and 0.1 or 1))
  local cls_preds, box_preds, anchors = net(data)
  local box_targets, _, cls_targets = vision.ops.multibox_target(anchors, labels, cls_preds:transpose(2, 3))
  local sum_loss, cls_loss, box_loss = mbox_loss({ cls_preds }, { box_preds }, { cls_targets }, { box_targets })
  for k, loss in ipairs(sum_loss) do sum_loss[k] = loss:sum() end
  if o.mode == 'float32' then amp.backward(sum_loss)
  else amp.scale_loss(sum_loss, trainer, function(scaled_loss) amp.backward(scaled_loss) end) end
  trainer:step(1) -- the losses are divided by the number of labelled anchors already
  for k = 1, #cls_loss do
    ce_metric:update(cls_loss[k] * o.batch)
    smooth_metric:update(box_loss[k] * o.batch)
  end
  seen = seen + o.batch
  if i % 25 == 0 or i == o.steps then
    local name1, loss1 = ce_metric:get()
    local name2, loss2 = smooth_metric:get()
    local now = amp.clock()
    local speed = clock and ('%.1f'):format(seen / (now - clock)) or '-'
    clock, seen = now, 0
    print(('[Batch %d], Speed: %s samples/sec, %s=%.3f, %s=%.3f'):format(i, speed, name1, loss1, name2, loss2))
    ce_metric:reset()
    smooth_metric:reset()
  end
end

-- -- How good it is ------------------------------------------------------------------------

if o.mode ~= 'float32' then amp.deactivate() end
net:eval()

local function rows(t, n, m) return m and t[{ { 1, n }, {} }] or t[{ { 1, n }, 1 }] end

local function measure(model)
  local metric = amp.metric.MeanAveragePrecision { style = 'voc' }
  local unseen = set(o.test, 2)
  for first = 1, o.test, o.batch do
    local items = {}
    for i = first, math.min(first + o.batch - 1, o.test) do items[#items + 1] = unseen:get(i) end
    local ids, scores, boxes = amp.no_grad(model, (batchify(items)):to(device))
    ids, scores, boxes = ids:cpu(), scores:cpu(), boxes:cpu()
    local found, true_ones = {}, {}
    for i, item in ipairs(items) do
      local n = ids[i]:ge(1):sum():item()
      found[i] = n > 0 and { boxes = rows(boxes[i], n, 4), scores = rows(scores[i], n), labels = rows(ids[i], n):to 'int64' }
        or { boxes = amp.zeros(0, 4), scores = amp.zeros(0), labels = amp.zeros({ 0 }, { dtype = 'int64' }) }
      true_ones[i] = { boxes = item.boxes, labels = item.labels }
    end
    metric:update(found, true_ones)
  end
  return metric:value()
end

local result = { mAP = o.test > 0 and measure(net) or nil }
if result.mAP then
  if type(result.mAP) == 'table' then result.mAP = result.mAP.mAP or result.mAP[1] end
  print(('mean average precision %.3f on %d pictures that it has not seen'):format(result.mAP, o.test))
end

-- -- Conversion for inference ------------------------------------------------------------------

local sample = (amp.rand(1, 3, o.size, o.size) - MEAN) / STD
sample = sample:to(device)
net:hybridize()
amp.no_grad(net, sample) -- the block must have run once
local low = amp.convert_hybrid_block(net, { target_dtype = o.mode == 'float32' and (gpu and 'float16' or 'bfloat16') or o.mode })
net:hybridize(false)
local path = os.tmpname()
low:export(path)
local graph = amp.load_graph(path, { map_location = device })
os.remove(path)
local ids, scores, boxes = amp.no_grad(graph.run, graph, sample)
result.shapes = ('%s %s %s'):format(ids:size(), scores:size(), boxes:size())
print('converted, saved and read again: ids, scores, boxes are ' .. result.shapes)
return result

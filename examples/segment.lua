--- Segmentation: a U-Net learns which pixel of a drawn picture belongs to which kind of shape, in mixed precision. Afterwards the mean
-- overlap (intersection over union of each class) on pictures that it has not seen; the first of them with what it says as a PNG.
-- Try: luajit examples/segment.lua --steps 300 --save segment.png
-- Options: --mode (float32, float16, bfloat16) --steps --batch --size --width --classes --lr --test (pictures to measure by) --save PATH
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local nn, vision = amp.nn, amp.vision

local gpu = amp.cuda.is_available()
local o = { mode = gpu and 'float16' or 'bfloat16', steps = gpu and 1000 or 400, batch = gpu and 32 or 8, size = gpu and 128 or 48,
  width = gpu and 32 or 8, classes = 3, lr = 0.004, test = gpu and 500 or 100, save = '' }
for i = 1, #arg, 2 do
  local name = arg[i]:match '^%-%-(%a+)$'
  if o[name] == nil or arg[i + 1] == nil then error("unknown option '" .. arg[i] .. "', or no value; see the head of this file", 0) end
  o[name] = type(o[name]) == 'string' and arg[i + 1] or tonumber(arg[i + 1]) or error(arg[i] .. ' wants a number', 0)
end
local device = gpu and 'cuda' or 'cpu'

-- -- Data: pictures and masks, turned over at random together ---------------------------------------

local T = vision.transforms
local function loader(n, seed, augment)
  local flip = T.RandomHorizontalFlip()
  local drawn = vision.datasets.shapes { n = n, size = o.size, classes = o.classes, seed = seed }
  local pairs_of = { size = n, get = function(_, i)
    local item = drawn:get(i)
    if augment then item = flip(item) end
    return (item.image - 0.45) / 0.25, item.mask
  end }
  return amp.data.DataLoader(pairs_of, { batch_size = o.batch, shuffle = augment, device = device })
end

-- -- Training -----------------------------------------------------------------------------------------

amp.manual_seed(1)
local net = vision.models.unet { classes = o.classes + 1, width = o.width, depth = 3 }
net:to(device)
local opt = amp.optim.AdamW(net:parameters(), { lr = o.lr, weight_decay = 1e-4 })
local schedule = amp.optim.lr_scheduler.OneCycleLR(opt, { max_lr = o.lr, total_steps = o.steps + 1 })
local scaler = amp.GradScaler { enabled = o.mode == 'float16' }
local region = { enabled = o.mode ~= 'float32', dtype = o.mode ~= 'float32' and o.mode or nil }
local loss_fn = nn.CrossEntropyLoss()
local function forward(x, mask)
  local scores = net(x)
  return mask and loss_fn(scores, mask) or scores
end

local function step(x, mask)
  local loss = amp.autocast(region, forward, x, mask)
  scaler:scale(loss):backward()
  scaler:step(opt)
  scaler:update()
  opt:clear_grad()
  return loss
end

local mean, n = amp.metric.Mean 'loss', 0
while n < o.steps do
  for x, mask in loader(math.max(o.batch, math.min(o.steps * o.batch, 2000)), 1, true):iter() do
    mean:update(amp.scope(step, x, mask))
    schedule:step()
    n = n + 1
    if n % 50 == 0 or n == o.steps then
      print(('step %d of %d, %s'):format(n, o.steps, tostring(mean)))
      mean:reset()
    end
    if n == o.steps then break end
  end
end

-- -- How good it is: intersection over union of each class ------------------------------------------------

net:eval()
local matrix = amp.metric.ConfusionMatrix { classes = o.classes + 1 }
for x, mask in loader(o.test, 2):iter() do
  matrix:update(amp.no_grad(amp.autocast, region, forward, x), mask)
end
local m = matrix:value():double()
local both = m:diag()
local iou = both / (m:sum(1) + m:sum(2) - both)
local names = { 'background', unpack(vision.datasets.shapes({ classes = o.classes }).classes) }
for i, name in ipairs(names) do print(('%-12s %.3f'):format(name, iou[i]:item())) end
local result = { iou = iou:mean():item() }
print(('mean IoU %.3f on %d pictures that it has not seen'):format(result.iou, o.test))

if o.save ~= '' then
  local item = vision.datasets.shapes({ n = 1, size = o.size, classes = o.classes, seed = 2 }):get(1)
  local guess = amp.no_grad(forward, ((item.image - 0.45) / 0.25):unsqueeze(1):to(device)):argmax(2):cpu()
  local function shades(mask) return ((mask:float() - 1) / o.classes):reshape(1, o.size, o.size):expand(3, o.size, o.size) end
  amp.plot.image(amp.stack { item.image, shades(item.mask), shades(guess) }, { columns = 3, scale = 2 }):save(o.save)
end
return result

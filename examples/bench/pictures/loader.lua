-- Pictures a second that a loader gives: JPEGs of 500 x 375 through RandomResizedCrop(224), a flip, Normalize, in batches of 32.
-- loader.py is the twin of PyTorch and torchvision. --draw makes the pictures first.
--   luajit examples/bench/pictures/loader.lua /tmp/pictures --draw
--   luajit examples/bench/pictures/loader.lua /tmp/pictures workers=2      (reduced: true decodes at a part of the size where that is enough)
local tree = (arg[0]:match '^(.*/)' or '') .. '../../../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local T = amp.vision.transforms

local folder = assert(arg[1], 'a folder of pictures expected')
if arg[2] == '--draw' then
  amp.manual_seed(1)
  for class = 1, 2 do
    local dir = ('%s/%d'):format(folder, class)
    os.execute(("mkdir -p '%s'"):format(dir))
    for i = 1, 100 do -- smooth colours with some grain, as photographs have
      local smooth = amp.interpolate(amp.rand(1, 3, 12, 16), { size = { 375, 500 }, mode = 'bicubic' })[1]
      local image = (smooth + amp.randn(3, 375, 500) * 0.03):clamp(0, 1)
      amp.data.write_image(('%s/%03d.jpg'):format(dir, i), image)
    end
  end
  os.exit(0)
end

local o = { workers = 0, epochs = 3, batch = 32, size = 224 }
for i = 2, #arg do
  local name, value = arg[i]:match '^(%a+)=(.*)$'
  o[name] = tonumber(value) or value == 'true'
end
if o.workers == 0 then amp.set_num_threads(1) end
local transform = T.Compose { T.RandomResizedCrop(o.size), T.RandomHorizontalFlip(),
  T.Normalize({ 0.485, 0.456, 0.406 }, { 0.229, 0.224, 0.225 }) }
local set = amp.data.ImageFolder(folder, { transform = transform, reduced = o.reduced })
local loader = amp.data.DataLoader(set, { batch_size = o.batch, shuffle = true, workers = o.workers })
local best = 0
for _ = 1, o.epochs do
  local from, n = amp.clock(), 0
  for x in loader:iter() do n = n + x:size(1) end
  best = math.max(best, n / (amp.clock() - from))
end
print(('amp          workers %d: %7.1f pictures/s'):format(o.workers, best))

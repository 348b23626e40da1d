-- Training on one GPU and on several: milliseconds of a step, each rank with a batch of its own (weak scaling), and of
-- all-reduces; several.py is PyTorch's.
--   amp run -n 2 examples/bench/gpu/several.lua [mlp resnet gpt2 reduce] [captured] [bucket_mb=25] [gradient_dtype=float16] [steps=20]
-- Ranks may as well be started by anything else that amp.distributed.init knows; with one it is the time without others.
local amp = require 'amp'
local dist, nn = amp.distributed, amp.nn
local here = arg[0]:match '^(.*)/' or '.'
package.path = here .. '/../../../?.lua;' .. package.path
local timing = dofile(here .. '/timing.lua')
local cases = dofile(here .. '/cases.lua')

local o, words = timing.options(arg)
dist.init { timeout = o.timeout or 100 }
if not amp.cuda.is_available() then error('no GPU: ' .. amp.cuda.reason(), 0) end
local n, main = dist.world_size(), dist.is_main()
local device = ('cuda:%d'):format((dist.local_rank() - 1) % amp.cuda.device_count() + 1)
amp.set_default_device(device)

local function measure(name, rounds, fn)
  for _ = 1, 8 do fn() end
  local best = math.huge
  for _ = 1, 5 do
    amp.cuda.synchronize(device)
    dist.barrier()
    local began = amp.clock()
    for _ = 1, rounds do fn() end
    amp.cuda.synchronize(device)
    best = math.min(best, (amp.clock() - began) / rounds)
  end
  if main then print(('amp\t%s\t%d ranks\t%.3f ms'):format(name, n, best * 1e3)) io.flush() end
  return best
end

local precision = { mlp = 'fp16', resnet = 'fp16', gpt2 = 'bf16' }
local options = { bucket_mb = o.bucket_mb, gradient_dtype = o.gradient_dtype }
local function wrap(net) return nn.parallel.DistributedDataParallel(net, options) end

local captured, list = false, {}
for _, word in ipairs(words) do
  if word == 'captured' then captured = true else list[#list + 1] = word end
end
if #list == 0 then list = { 'reduce', 'mlp', 'resnet', 'gpt2' } end

for _, name in ipairs(list) do
  if name == 'reduce' then
    for _, size in ipairs { 2 ^ 20, 2 ^ 26, 2 ^ 30 } do
      local t = amp.zeros(size / 4)
      local s = measure(('all-reduce of %d MiB'):format(size / 2 ^ 20), size > 2 ^ 28 and 10 or 50, function() dist.all_reduce(t) end)
      if main and n > 1 then print(('amp\tall-reduce of %d MiB\t%d ranks\t%.1f GB/s'):format(size / 2 ^ 20, n, size / s / 1e9)) end
    end
  else
    amp.manual_seed(dist.rank())
    local step = cases[name] { precision = precision[name], captured = captured, device = device, wrap = wrap }
    local what = { name, precision[name], captured and 'captured' or nil }
    for _, k in ipairs { 'gradient_dtype', 'bucket_mb' } do if o[k] then what[#what + 1] = k .. '=' .. o[k] end end
    measure(table.concat(what, ' '), o.steps or (name == 'mlp' and 50 or 10), step)
    step = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    amp.cuda.empty_cache()
  end
end
dist.finalize()

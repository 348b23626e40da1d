-- Training on one GPU and on several: milliseconds of a step, weak scaling, and of all-reduces; several.py is PyTorch's.
--   amp run -n 2 examples/bench/gpu/several.lua     (also -n 1, for the time on one)
local amp = require 'amp'
local nn, F, optim, dist = amp.nn, amp.nn.functional, amp.optim, amp.distributed

dist.init()
if not amp.cuda.is_available() then error('no GPU: ' .. amp.cuda.reason(), 0) end
local n, main = dist.world_size(), dist.is_main()
local device = ('cuda:%d'):format((dist.local_rank() - 1) % amp.cuda.device_count() + 1)
amp.set_default_device(device)

local function time(name, rounds, fn)
  for _ = 1, 5 do fn() end
  local best = math.huge
  for _ = 1, 5 do
    amp.cuda.synchronize(device)
    dist.barrier()
    local began = amp.clock()
    for _ = 1, rounds do fn() end
    amp.cuda.synchronize(device)
    best = math.min(best, (amp.clock() - began) / rounds)
  end
  if main then print(('%-40s %d ranks %9.3f ms'):format(name, n, best * 1e3)) end
  return best
end

for _, size in ipairs { 2 ^ 20, 2 ^ 30 } do
  local t = amp.ones(size / 4)
  local s = time(('all-reduce of %d MiB'):format(size / 2 ^ 20), 20, function() dist.all_reduce(t) end)
  if main and n > 1 then print(('%-40s %.0f GB/s'):format('', size / s / 1e9)) end
end

amp.manual_seed(1)
local net = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096))
net = nn.parallel.DistributedDataParallel(net, { gradient_dtype = 'float16' })
local opt, scaler = optim.SGD(net:parameters(), { lr = 1e-3 }), amp.GradScaler()
local x, y = amp.randn(512, 4096), amp.randint(1, 4097, { 512 }, { dtype = 'int64' })
time('3 x Linear(4096), batch 512, float16', 20, function()
  local loss = amp.autocast({ dtype = 'float16' }, function() return F.cross_entropy(net(x), y) end)
  scaler:scale(loss):backward()
  scaler:step(opt):update()
  opt:clear_grad()
end)
dist.finalize()

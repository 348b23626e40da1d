-- What talking costs on CPUs: a step of an MLP, 3 x 1024, batch 128 a rank, one thread a rank, with gradients summed over the
-- ranks in float32 and in 16 bits, beside the same step that keeps them (no_sync), all in one run, turn by turn. Then an
-- all-reduce of 64 MiB.
--   OMP_NUM_THREADS=1 amp run -n 2 examples/bench/distributed/cpu.lua [rounds]
local amp = require 'amp'
local nn, F, optim, dist = amp.nn, amp.nn.functional, amp.optim, amp.distributed

dist.init()
amp.set_num_threads(1)
amp.manual_seed(1)

local function make(dtype)
  local net = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024))
  net = nn.parallel.DistributedDataParallel(net, { gradient_dtype = dtype, bucket_mb = 4 })
  return net, optim.SGD(net:parameters(), { lr = 1e-3 })
end

local x, y = amp.randn(128, 1024), amp.randint(1, 1025, { 128 }, { dtype = 'int64' })
local function step(net, opt)
  F.cross_entropy(net(x), y):backward()
  opt:step():clear_grad()
end

local kinds, order = {}, { 'alone', 'float32', 'bfloat16' }
for _, name in ipairs(order) do
  local net, opt = make(name == 'bfloat16' and 'bfloat16' or 'same')
  local best = math.huge
  kinds[name] = {
    run = function() if name == 'alone' then net:no_sync(step, net, opt) else step(net, opt) end end,
    note = function(t) best = math.min(best, t) end,
    best = function() return best end,
  }
end

for round = 1, tonumber(arg[1]) or 12 do
  for _, name in ipairs(order) do
    dist.barrier()
    local began = amp.clock()
    for _ = 1, 4 do kinds[name].run() end
    dist.barrier()
    if round > 2 then kinds[name].note(amp.clock() - began) end
  end
end

local t, best = amp.ones(2 ^ 24), math.huge
for _ = 1, 8 do
  dist.barrier()
  local began = amp.clock()
  dist.all_reduce(t, { op = 'mean' })
  best = math.min(best, amp.clock() - began)
end

if dist.is_main() then
  local alone = kinds.alone.best()
  for _, name in ipairs { 'float32', 'bfloat16' } do
    print(('step with gradients in %-8s  %.0f %% of the speed of one that keeps them'):format(name, 100 * alone / kinds[name].best()))
  end
  print(('all-reduce of 64 MiB           %.2f GB/s'):format(2 ^ 26 / best / 1e9))
end

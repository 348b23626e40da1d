-- Where training on many GPUs stops to scale, counted: a step of ResNet-50 (batch 128 a rank) and GPT-2 124M (16 x 1024 tokens a
-- rank) on 8, 64 and 512 ranks, plain (DistributedDataParallel) and with the optimizer's state spread (ZeroRedundancyOptimizer).
--   amp examples/bench/distributed/simulate.lua [link=GB/s] [latency=us] [network=GB/s] [hop=us] [bucket=MiB] [bytes=2]
-- link, latency: between GPUs of one machine of 8; network, hop: of each machine's link to the others.
-- The model: backward goes through the layers, each taking its share of the multiplications; a bucket goes when its last gradient
-- is there and the one before has gone; a ring of n moves 2 (n - 1) / n of the bytes in 2 (n - 1) steps, first inside machines,
-- then between them (each of the 8 rings has its part). Times of a step on one GPU are measured ones, parameters that may be given:
--   resnet=28.8 gpt2=122 (milliseconds), optimizer=2 % of it
local o = { link = 300, latency = 5, network = 50, hop = 10, bucket = 25, bytes = 2, resnet = 28.8, gpt2 = 122, optimizer = 2 }
for _, a in ipairs(arg) do
  local k, v = a:match '^(%w+)=([%d.]+)$'
  if not k or not o[k] then error("unknown setting '" .. a .. "'", 0) end
  o[k] = tonumber(v)
end

-- Layers {parameters, multiplications an example}, from the input on
local function resnet50()
  local list = {}
  local function conv(from, to, k, side) list[#list + 1] = { from * to * k * k + 2 * to, from * to * k * k * side * side } end
  conv(3, 64, 7, 112)
  local from = 64
  for s, blocks in ipairs { 3, 4, 6, 3 } do
    local width, side = 32 * 2 ^ s, 112 / 2 ^ s
    for b = 1, blocks do
      conv(from, width, 1, side)
      conv(width, width, 3, side)
      conv(width, 4 * width, 1, side)
      if b == 1 then conv(from, 4 * width, 1, side) end
      from = 4 * width
    end
  end
  list[#list + 1] = { 2048 * 1000 + 1000, 2048 * 1000 }
  return list
end

local function gpt2()
  local d, list = 768, { { 50257 * 768 + 1024 * 768, 0 } } -- the table of tokens is the head's weight as well: complete at the end
  for _ = 1, 12 do
    list[#list + 1] = { 4 * d * d + 4 * d, 4 * d * d + 2 * 1024 * d }
    list[#list + 1] = { 8 * d * d + 5 * d, 8 * d * d }
  end
  list[#list + 1] = { 0, 50257 * d }
  return list
end

-- Seconds of an all-reduce (or half of one) of so many bytes over n ranks
local function ring(bytes, n)
  local inside, machines = math.min(n, 8), math.max(n / 8, 1)
  local t = 2 * (inside - 1) / inside * bytes / (o.link * 1e9) + 2 * (inside - 1) * o.latency * 1e-6
  if machines > 1 then
    t = t + 2 * (machines - 1) / machines * bytes / (o.network * 1e9) + 2 * (machines - 1) * o.hop * 1e-6
  end
  return t
end

-- Milliseconds of a step
local function step(layers, ms, n, sharded)
  local total = 0
  for _, l in ipairs(layers) do total = total + l[2] end
  local optimizer = ms * o.optimizer / 100
  local forward, backward = (ms - optimizer) / 3 * 1e-3, (ms - optimizer) * 2 / 3 * 1e-3
  local now, sent, waiting, all = forward, 0, 0, 0
  local function send()
    if waiting == 0 then return end
    sent = math.max(sent, now) + (sharded and 0.5 or 1) * ring(waiting, n)
    waiting = 0
  end
  for i = #layers, 1, -1 do
    now = now + backward * layers[i][2] / total
    waiting, all = waiting + layers[i][1] * o.bytes, all + layers[i][1]
    if waiting >= o.bucket * 2 ^ 20 then send() end
  end
  send()
  local ends = math.max(now, sent) + (sharded and optimizer / n or optimizer) * 1e-3
  if sharded then ends = ends + ring(all * o.bytes, n) / 2 end -- new parameters to all
  return ends * 1e3
end

print(('links %g GB/s, %g us in a machine of 8; %g GB/s, %g us between; buckets of %g MiB, gradients of %d bytes'):format(o.link, o.latency,
  o.network, o.hop, o.bucket, o.bytes))
print(('%-22s %10s %10s %10s %10s'):format('ms a step (efficiency)', '1', '8', '64', '512'))
for _, model in ipairs { { 'ResNet-50', resnet50(), o.resnet }, { 'GPT-2 124M', gpt2(), o.gpt2 } } do
  for _, sharded in ipairs { false, true } do
    local line = ('%-22s %10.1f'):format(model[1] .. (sharded and ', spread' or ''), model[3])
    for _, n in ipairs { 8, 64, 512 } do
      local t = step(model[2], model[3], n, sharded)
      line = line .. (' %5.1f %3.0f%%'):format(t, 100 * model[3] / t)
    end
    print(line)
  end
  local n = 8
  while n < 2 ^ 20 and step(model[2], model[3], n, false) < model[3] / 0.8 do n = n * 2 end
  print(('%-22s stops at %s ranks: less than 80 %% beyond'):format('  ' .. model[1], n >= 2 ^ 20 and 'more than 2^20' or ('%d'):format(n)))
end

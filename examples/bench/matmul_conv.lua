-- Claim: float32 products and convolutions are within 10% of oneDNN called directly (onednn_direct.c, compiled here).
-- Each shape is timed alternately on both sides; above 1 we are faster.
local amp = require 'amp'
local timing = require 'timing'
local F = amp.nn.functional

local here = arg[0]:match('^(.*)/[^/]*$') or '.'
local exe = os.tmpname()
if os.execute(('cc -O2 -o %s %s/onednn_direct.c -ldnnl -fopenmp -lm 2>/dev/null'):format(exe, here)) ~= 0 then
  print('note onednn_direct.c does not compile here (libdnnl-dev?): nothing was compared')
  return
end

local function direct(args)
  local p = assert(io.popen(exe .. ' ' .. args))
  local text = p:read('*a')
  p:close()
  local best = 0
  for line in text:gmatch('[^\n]+') do -- the primitive or dnnl_sgemm; of a convolution the forward pass
    local v = tonumber(line:match('([%d.]+) GFLOP/s'))
    if v and not line:find 'dgrad' and not line:find 'wgrad' then best = math.max(best, v) end
  end
  return best > 0 and best or error(args .. ': ' .. text)
end

local function compare(name, args, gflop, f)
  local ours, theirs = 0, 0
  for _ = 1, 3 do
    ours = math.max(ours, gflop / timing.best(f, 1, 0.3))
    theirs = math.max(theirs, direct(args))
  end
  timing.report(name .. '_ours', ours, 'GFLOP/s')
  timing.report(name .. '_over_direct', ours / theirs, 'x', '>= 0.9')
end

for _, n in ipairs{64, 128, 256, 512, 1024, 2048} do
  local a, b = amp.randn(n, n), amp.randn(n, n)
  compare('matmul_' .. n, ('matmul f32 %d %d %d'):format(n, n, n), 2 * n ^ 3 / 1e9, function() amp.matmul(a, b) end)
end
for _, s in ipairs{{100, 16, 32, 14, 14, 3}, {8, 64, 64, 56, 56, 3}, {8, 256, 256, 14, 14, 3}} do
  local n, c, o, h, w, k = unpack(s)
  local x, f = amp.randn(n, c, h, w):contiguous{memory_format = 'channels_last'}, amp.randn(o, c, k, k)
  local pad = (k - 1) / 2
  compare(('conv_%dx%dx%dx%d_to_%d'):format(n, c, h, w, o), ('conv f32 nhwc %d %d %d %d %d %d 1 %d'):format(n, c, o, h, w, k, pad),
    2 * n * o * c * k * k * h * w / 1e9, function() F.conv2d(x, f, nil, 1, pad) end)
end
os.remove(exe)

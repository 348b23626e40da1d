-- Claim: 10,000 training steps on a GPU, eager and captured, leave memory flat and the loss finite:
--   luajit examples/bench/gpu/steady.lua [steps=10000] [device=cuda] [mlp sizes: width=1024 batch=128 layers=3 opt=adamw]
-- float16 with a dynamic loss scale, no collectgarbage() by the user, no scope. After the first 1,000 steps (a quarter, if they are few) neither the
-- GPU's live and cached bytes nor the process's resident memory may grow by more than what is printed as the limit.
local amp = require 'amp'
local here = arg[0]:match '^(.*)/' or '.'
local timing = dofile(here .. '/timing.lua')
local cases = dofile(here .. '/cases.lua')
local F = amp.nn.functional

local o = timing.options(arg)
local device, steps = o.device or 'cuda', o.steps or 10000
local width, batch = o.width or 1024, o.batch or 128
local settle, every = math.min(1000, math.floor(steps / 4)), math.max(1, math.floor(steps / 50))
local LIMIT = 8 -- MB

local function resident()
  for line in io.lines '/proc/self/status' do
    local kb = line:match '^VmRSS:%s+(%d+)'
    if kb then return tonumber(kb) / 1024 end
  end
end

if device:find '^cuda' and not amp.cuda.is_available() then
  io.stderr:write('no GPU: ', amp.cuda.reason(), '\n')
  os.exit(1)
end
local good = true
for _, mode in ipairs { 'eager', 'captured' } do
  amp.manual_seed(1)
  local net = cases.network(width, o.layers or 3):to(device)
  local opt = cases.optimizer(o.opt or 'adamw', net:parameters())
  local scaler = amp.GradScaler { growth_interval = 500 } -- it overflows now and then
  local function step(x, y)
    local loss = amp.autocast({ dtype = 'float16' }, function() return F.mse_loss(net(x), y) end)
    scaler:scale(loss):backward()
    scaler:step(opt)
    scaler:update()
    opt:clear_grad()
    return loss
  end
  if mode == 'captured' then step = amp.capture(step) end
  local x, y = amp.randn(batch, width, { device = device }), amp.randn(batch, width, { device = device })
  local from, first, last, host, gpu, peak_host, peak_gpu = amp.clock(), nil, nil, nil, nil, 0, 0
  for i = 1, steps do
    local loss = step(x, y)
    if i == 1 then first = loss:item() end
    if i % every == 0 or i == steps then
      last = loss:item()
      good = good and last == last and math.abs(last) < math.huge
      local m = amp.memory(device)
      local h, g = resident(), (m.live + m.cached) / 1e6
      if i <= settle or not host then host, gpu = math.max(h, host or 0), math.max(g, gpu or 0) end
      peak_host, peak_gpu = math.max(peak_host, h), math.max(peak_gpu, g)
    end
  end
  local grown_host, grown_gpu = peak_host - host, peak_gpu - gpu
  good = good and grown_host <= LIMIT and grown_gpu <= LIMIT
  print(('steady_%s_loss %.6g (from %.6g, scale %g, %.0f s)'):format(mode, last, first, scaler:get_scale(), amp.clock() - from))
  print(('steady_%s_gpu %.1f MB <= %d (live and cached, grown after step %d; %.0f MB in all)'):format(mode, grown_gpu, LIMIT, settle, peak_gpu))
  print(('steady_%s_resident %.1f MB <= %d (of %.0f MB)'):format(mode, grown_host, LIMIT, peak_host))
end
os.exit(good and 0 or 1)

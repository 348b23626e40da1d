--- Scripts of Torch7 that ask for a GPU: cutorch, cunn and cudnn. With AMP_SPEC_DEVICE=cuda they have one, else they work on the CPU.
local H = require 'spec.lib.helper'

local gpu = H.device == 'cuda'
local head = ([[
local torch = amp.torch7.install {cuda = %s}
local real = %s
require 'cutorch'; require 'cunn'; require 'cudnn'; require 'optim'
local function near(a, b, tol) assert(math.abs(a - b) <= (tol or 1e-5), a .. ' ' .. b) end
local function kind(name) return real and 'torch.Cuda' .. (name == 'Float' and '' or name) .. 'Tensor' or 'torch.' .. name .. 'Tensor' end
]]):format(gpu and 'true' or "'pretend'", tostring(gpu))
local function script(code)
  local out = H.child(head .. code .. '\nprint "fine"')
  assert.equal('fine\n', out)
end

describe("Torch7's names on a GPU", function()
  it('are types of tensors, with the methods of all', function()
    script [[
local x = torch.randn(3, 4):cuda()
if real then assert(x:type() == 'torch.CudaTensor' and x:getDevice() == 1) end
local y = (x * 2):add(1):cmul(x)
near(y:sum(), ((x:double() * 2 + 1):cmul(x:double())):sum(), 1e-3)
assert(y:float():type() == 'torch.FloatTensor')
local z = torch.CudaTensor(5):fill(3)
assert(z:sum() == 15 and torch.type(z) == kind 'Float' and torch.isTensor(z))
local m = z:gt(2)
assert(m:type() == kind 'Byte')
z[m] = 1
z[2] = 7
assert(z[2] == 7 and z:sum() == 11)
z[torch.ByteTensor {1, 0, 0, 0, 0}] = 5
assert(z[1] == 5)
for _, name in ipairs {'Byte', 'Char', 'Short', 'Int', 'Long', 'Double', 'Half'} do
  local t = torch['Cuda' .. name .. 'Tensor'](2)
  assert(t:type() == kind(name) and t:nElement() == 2)
end
local s, i = z:sort(1, true)
assert(s[1] == 7 and i[1] == 2 and i:type() == kind 'Long')
local top, at = z:max(1)
assert(top[1] == 7 and at[1] == 2)
z:copy(torch.range(1, 5))
assert(torch.FloatTensor(5):copy(z)[5] == 5 and z:double():sum() == 15)
local st = torch.CudaStorage(3)
local on = torch.CudaTensor(st, 1, 3):fill(2)
assert(st[3] == 2 and torch.type(on:storage()) == torch.type(st) and torch.CudaDoubleStorage(2):size() == 2)
-- indices and masks of the CPU beside it
local l, c = torch.LongTensor {1, 3}, torch.CudaLongTensor {1, 3}
for _, k in ipairs {l, c} do
  assert(z:index(1, k):sum() == 4 and z:gather(1, k):sum() == 4)
  assert(z:clone():indexFill(1, k, 0):sum() == 11)
  assert(z:clone():indexAdd(1, k, torch.CudaTensor {10, 10}):sum() == 35)
  assert(z:clone():scatter(1, k, 9):sum() == 29)
end
local b = torch.ByteTensor {1, 0, 0, 0, 1}
assert(z[b]:sum() == 6 and z:maskedSelect(b):sum() == 6 and z:clone():maskedFill(b, 0):sum() == 9)
for _, f in ipairs {'uniform', 'normal', 'bernoulli'} do z[f](z) end
z:resize(2, 8):zero()
assert(z:size(2) == 8 and z:sum() == 0 and tostring(z):find(real and 'torch.CudaTensor' or 'torch%.%a+Tensor'))]]
  end)
  it('train nets that give what they give on the CPU', function()
    script [[
local nets = {
  mlp = function()
    return nn.Sequential():add(nn.Linear(6, 8)):add(nn.ReLU(true)):add(nn.BatchNormalization(8)):add(nn.Linear(8, 3)):add(nn.LogSoftMax()), torch.randn(4, 6)
  end,
  conv = function()
    return nn.Sequential():add(cudnn.SpatialConvolution(1, 4, 3, 3, 1, 1, 1, 1)):add(cudnn.SpatialBatchNormalization(4)):add(cudnn.ReLU(true))
      :add(cudnn.SpatialMaxPooling(2, 2)):add(nn.View(-1):setNumInputDims(3)):add(nn.Linear(36, 3)):add(cudnn.LogSoftMax()), torch.randn(4, 1, 6, 6)
  end,
}
for name, make in pairs(nets) do
  torch.manualSeed(1)
  local net, x = make()
  net:float()
  local both, inputs = {cpu = net:clone(), gpu = net:cuda()}, {cpu = x:float(), gpu = x:cuda()}
  local labels, last, losses = {cpu = torch.FloatTensor {1, 3, 2, 1}, gpu = torch.CudaTensor {1, 3, 2, 1}}, {}, {}
  for where, n in pairs(both) do
    local loss = nn.ClassNLLCriterion()
    if where == 'gpu' then loss:cuda() else loss:float() end
    local p, g = n:getParameters()
    local state = {learningRate = 0.1, momentum = 0.9, weightDecay = 1e-4}
    local function feval()
      g:zero()
      local f = loss:forward(n:forward(inputs[where]), labels[where])
      n:backward(inputs[where], loss:backward(n.output, labels[where]))
      return f, g
    end
    local first
    for k = 1, 8 do
      local _, f = optim.sgd(feval, p, state)
      first, last[where] = first or f[1], f[1]
    end
    assert(last[where] < first, name)
    if where == 'gpu' then assert(p:type() == kind 'Float' and n.output:type() == kind 'Float') end
    losses[where] = p:double()
  end
  cutorch.synchronize()
  near(last.gpu, last.cpu, 1e-3)
  near((losses.gpu - losses.cpu):abs():max(), 0, 1e-3)
  local n = both.gpu
  n:evaluate()
  near((n:clone():float():forward(inputs.cpu) - n:forward(inputs.gpu):float()):abs():max(), 0)
  local m = optim.ConfusionMatrix(3)
  m:batchAdd(n:forward(inputs.gpu), labels.gpu)
  assert(m.mat:sum():item() == 4)
end]]
  end)
  it('save, and load where a GPU is asked for and where it is not', function()
    local path = H.tmp 'cuda.t7'
    script(([[
local net = nn.Sequential():add(nn.Linear(2, 2)):cuda()
local p = net:getParameters()
torch.save(%q, {net = net, x = torch.CudaTensor {1, 2}, p = p})
local r = torch.load(%q)
assert(r.x:type() == kind 'Float' and r.net:type() == kind 'Float' and r.net:get(1).weight:type() == kind 'Float')
near((r.net:forward(r.x) - net:forward(torch.CudaTensor {1, 2})):abs():max(), 0)
r.p:fill(3) -- what shared its memory still does
assert(r.net:get(1).weight[2][2] == 3 and r.net:get(1).bias[1] == 3)]]):format(path, path))
    local out = H.child(([[
local torch = amp.torch7.install()
require 'nn'
local r = torch.load(%q)
local of = %s and 'torch.FloatTensor' or 'torch.DoubleTensor'
assert(r.x:type():match '^torch%%.%%a+Tensor$' and not r.x:type():find 'Cuda', r.x:type())
assert(r.net:type() == r.x:type(), r.net:type())
assert(r.net:forward(r.x):size(1) == 2)
r.p:fill(3)
assert(r.net:get(1).weight[2][2] == 3)
print 'fine']]):format(path, tostring(gpu)))
    assert.equal('fine\n', out)
  end)
  it('tell of the devices, and refuse those that are not there', function()
    script [[
assert(cutorch.getDeviceCount() >= 1 and cutorch.getDevice() == 1)
for _, i in ipairs {0, 99, 1.5} do
  local ok, e = pcall(cutorch.setDevice, i)
  assert(not ok and tostring(e):find 'no GPU')
end
cutorch.setDevice(1)
local seen = {cutorch.withDevice(1, function(a) return a, cutorch.getDevice() end, 'x')}
assert(seen[1] == 'x' and seen[2] == 1)
assert(not pcall(cutorch.withDevice, 1, error, 'inside') and cutorch.getDevice() == 1)
local last = cutorch.getDeviceCount()
cutorch.withDevice(last, function()
  local t = torch.CudaTensor(3):fill(2)
  assert(t:sum() == 6)
  if real then assert(t:getDevice() == last and torch.ones(2):cuda():getDevice() == last) end
end)
assert(cutorch.getDevice() == 1)
local free, total = cutorch.getMemoryUsage(1)
assert(free >= 0 and free <= total and (not real or total > 0))
assert(type(cutorch.getDeviceProperties(1).name) == 'string')
assert(cutorch.createCudaHostTensor(2, 2):type() == 'torch.FloatTensor' and cutorch.createCudaHostDoubleTensor(2):type() == 'torch.DoubleTensor')
cutorch.manualSeed(1)
local a = torch.CudaTensor(4):uniform()
cutorch.manualSeedAll(1)
assert((a - torch.CudaTensor(4):uniform()):abs():max() == 0)
local table_of = nn.DataParallelTable(1):add(nn.Linear(2, 2):cuda(), 1)
assert(table_of:forward(torch.CudaTensor(3, 2):fill(1)):size(1) == 3)
local lookup = nn.LookupTable(5, 2):cuda()
lookup:zeroGradParameters()
lookup:forward(torch.CudaTensor {1, 2})
lookup:backward(torch.CudaTensor {1, 2}, torch.CudaTensor(2, 2):fill(1))
assert(lookup.gradWeight:sum() == 4)
local copy = nn.Sequential():add(nn.Copy('torch.FloatTensor', 'torch.CudaTensor')):add(nn.Linear(2, 2):cuda())
assert(copy:forward(torch.FloatTensor(1, 2):fill(1)):type() == kind 'Float')]]
  end)
  it('are there or not as install was told', function()
    local out = H.child [[
local ok, e = pcall(amp.torch7.install, {cuda = 1})
assert(not ok and tostring(e):find "'pretend'")
amp.torch7.install {cuda = false}
ok, e = pcall(require, 'cutorch')
assert(not ok and tostring(e):find 'left it out', e)
if not amp.cuda.is_available() then
  ok, e = pcall(amp.torch7.install, {cuda = true})
  assert(not ok and tostring(e):find 'no GPU')
end
print 'fine']]
    assert.equal('fine\n', out)
  end)
end)

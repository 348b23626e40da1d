--- Trains two networks and saves them as graphs: luajit make.lua [folder] [epochs]
-- model.safetensors tells handwritten digits apart, bump.safetensors where a row of eight numbers has its bump.
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
package.path = ('%s/../../../lua/?.lua;%s/../../../lua/?/init.lua;'):format(here, here) .. package.path
local amp = require 'amp'
local nn, F = amp.nn, amp.nn.functional

local folder, epochs = arg[1] or here, tonumber(arg[2] or 2)
amp.manual_seed(1)

-- Traced with a softmax at its end, for any number of samples. A worker that reads meanwhile sees the old file or the new one, whole.
local function save(net, sample, name)
  local path = folder .. '/' .. name
  amp.graph.trace(nn.Sequential(net, nn.Softmax(2)):eval(), {sample}, {dynamic = {1}}):optimize():save(path .. '.new')
  assert(os.rename(path .. '.new', path))
end

local function step(net, opt, x, y)
  F.cross_entropy(net(x), y):backward()
  opt:step():clear_grad()
end

local function right(net, x, y) return amp.no_grad(function() return net(x):argmax(2):eq(y):float():mean():item() * 100 end) end

-- Eight numbers, noise but for a bump in the first three, the middle two or the last three
local function bumps(n)
  local y = amp.randint(1, 4, {n}, {dtype = 'int64'})
  local at = amp.tensor {1.5, 4.5, 7.5}[y]:add(amp.rand(n) - 0.5):reshape(n, 1)
  local distance = amp.arange(1, 9):reshape(1, 8) - at
  return amp.exp(-(distance * distance)) + amp.randn(n, 8) * 0.1, y
end
local small = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
local small_opt = amp.optim.AdamW(small:parameters(), {lr = 1e-2})
for _ = 1, 200 do step(small, small_opt, bumps(50)) end
save(small, amp.zeros(2, 8), 'bump.safetensors')
print(('bump.safetensors: %.1f %% right'):format(right(small, bumps(1000))))

local data = amp.data.mnist(here .. '/../../data')
local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
local opt = amp.optim.AdamW(net:parameters(), {lr = 2e-3})
for _ = 1, epochs do
  for x, y in amp.data.DataLoader(data.train, {batch_size = 50, shuffle = true}):iter() do step(net, opt, x, y) end
end
local x, y
for a, b in amp.data.DataLoader(data.test, {batch_size = 1500}):iter() do x, y = a, b end
net:eval()
save(net, x:narrow(1, 1, 2), 'model.safetensors')
print(('model.safetensors: %.1f %% of the test digits are right'):format(right(net, x, y)))

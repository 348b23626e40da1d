--- Trains a network on handwritten digits and saves it as a graph: luajit make.lua [model.safetensors] [epochs]
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
package.path = ('%s/../../../lua/?.lua;%s/../../../lua/?/init.lua;'):format(here, here) .. package.path
local amp = require 'amp'
local nn, F = amp.nn, amp.nn.functional

local path, epochs = arg[1] or here .. '/model.safetensors', tonumber(arg[2] or 2)
amp.manual_seed(1)
local digits = amp.data.mnist(here .. '/../../data')
local train, test = digits.train, digits.test
local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
local opt = amp.optim.AdamW(net:parameters(), {lr = 2e-3})
for _ = 1, epochs do
  for x, y in amp.data.DataLoader(train, {batch_size = 50, shuffle = true}):iter() do
    F.cross_entropy(net(x), y):backward()
    opt:step():clear_grad()
  end
end

net:eval()
local x, y
for a, b in amp.data.DataLoader(test, {batch_size = 1500}):iter() do x, y = a, b end
local right = amp.no_grad(function() return net(x):argmax(2):eq(y):float():mean():item() end)
local graph = amp.graph.trace(net, {x:narrow(1, 1, 2)}, {dynamic = {1}}) -- any number of pictures
graph:save(path .. '.new')
assert(os.rename(path .. '.new', path)) -- a worker that reads meanwhile sees the old file or the new one, whole
print(('%s: %.1f %% of the test digits are right'):format(path, right * 100))

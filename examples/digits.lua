--- What the recipes share: the shipped digits batch by batch, accuracy, and --steps N of the command line.
local amp = require 'amp'

local here = arg[0]:match('^(.*)/[^/]*$') or '.'
local data = amp.data.mnist(here .. '/data')
local M = {}

--- How many steps to do.
function M.steps(default) return tonumber((table.concat(arg, ' '):match('%-%-steps[ =](%d+)'))) or default end

--- Call fn(images, labels, i) for i = 1..steps with shuffled batches, epoch after epoch; each in a scope of its own.
function M.each(steps, fn, batch_size)
  local loader = amp.data.DataLoader(data.train, {batch_size = batch_size or 100, shuffle = true, drop_last = true})
  local i = 0
  while i < steps do
    for x, y in loader:iter() do
      i = i + 1
      amp.scope(fn, x, y, i)
      if i == steps then break end
    end
  end
end

--- Share of the test images that net names rightly.
function M.accuracy(net)
  local x, y = unpack(data.test.tensors)
  net:eval()
  local right = amp.no_grad(function() return net(x):argmax(2):eq(y):float():mean():item() end)
  net:train()
  return right
end

return M

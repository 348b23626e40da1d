--- The same comparison in one process, without a server: luajit process.lua folder-of-the-graphs
-- 64 coroutines ask on the scheduler of amp.serve.loop; times are of the processor, the two in turn, the median of the rounds.
package.path = 'lua/?.lua;lua/?/init.lua;' .. package.path
local amp = require 'amp'
local ffi = require 'ffi'
amp.set_num_threads(1)
amp.set_grad_enabled(false)

local ROUNDS, CLIENTS = 9, 64

local function median(list)
  table.sort(list)
  return list[(#list + 1) / 2]
end

-- Processor microseconds a request
local function measure(make, each)
  local loop = amp.serve.loop()
  local answer = make(loop)
  for _ = 1, CLIENTS do
    loop.spawn(function()
      for _ = 1, each do assert(#answer() == 10) end
    end)
  end
  local began = os.clock()
  loop.run()
  return (os.clock() - began) / (CLIENTS * each) * 1e6
end

for _, case in ipairs { { 'mlp', 64, 100 }, { 'cnn', 8, 20 } } do
  local name, most, each = unpack(case)
  local graph = amp.load_graph(('%s/%s.safetensors'):format(arg[1], name))
  local x = amp.rand(CLIENTS, 1, 28, 28)
  local body = ffi.string(x:data_ptr(), 4 * 784)
  local function one()
    local numbers = amp.serve.numbers(graph, { 1, 1, 28, 28 }, { dtype = 'float32', bytes = true })
    return function() return numbers(body) end
  end
  local function batch(loop)
    local b = amp.serve.batcher(graph, { adapter = loop, max_batch = most, shape = { 1, 28, 28 }, dtype = 'float32', bytes = true })
    return function() return b:numbers(body) end
  end
  local ratios, ones, batches = {}, {}, {}
  for i = 1, ROUNDS do
    ones[i], batches[i] = measure(one, each), measure(batch, each)
    ratios[i] = ones[i] / batches[i]
  end
  local middle = median(ratios)
  print(('figure: %s in one process, 64 clients: %.1f us a request one by one, %.1f in batches of %d; %.2f times (%.2f to %.2f)'):format(name,
    median(ones), median(batches), most, middle, ratios[1], ratios[ROUNDS]))
  local rows, text = {}, {}
  for _ = 1, ROUNDS do
    for _, n in ipairs { 1, 8, 64 } do
      local few, began = x:narrow(1, 1, n), os.clock()
      for _ = 1, 128 / n do graph(few) end
      rows[n] = rows[n] or {}
      table.insert(rows[n], (os.clock() - began) / 128 * 1e6)
    end
  end
  for _, n in ipairs { 1, 8, 64 } do text[#text + 1] = ('%.1f in a batch of %d'):format(median(rows[n]), n) end
  print(('figure: %s, the forward alone, us a sample: %s'):format(name, table.concat(text, ', ')))
end

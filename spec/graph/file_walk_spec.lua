--- Every row of the op table and each of its samples, as a graph that was saved and loaded: its attributes come back as they
-- were, so its results are those of the graph before, bit by bit; in place and in a region, too. And amp's layers.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'
local walk = require 'spec.ops.op_walk'
local nn = amp.nn
local tensors_of, case_function, copies, seeded = walk.tensors_of, walk.case_function, walk.copies, walk.seeded

-- thousands of files, each synced to the disk: better where there is none
local path = io.open('/dev/shm/.', 'rb') and ('/dev/shm/amp-graph-%s'):format(H.tmp('x'):gsub('%W', '-')) or H.tmp 'graph.safetensors'
teardown(function() os.remove(path) end)

local function compare(label, got, want)
  if #got ~= #want then error(('%s: %d results, before %d'):format(label, #got, #want), 0) end
  for k = 1, #want do
    if type(want[k]) == 'table' then compare(label, got[k], want[k])
    elseif type(want[k]) ~= 'cdata' then
      if want[k] ~= got[k] then error(('%s: result %d is %s, before %s'):format(label, k, tostring(got[k]), tostring(want[k])), 0) end
    else
      local wrong = H.dtype(got[k]) ~= H.dtype(want[k]) and H.dtype(got[k]) or H.difference(got[k], H.values(want[k]), H.shape(want[k]), H.exact)
      if wrong then error(('%s: result %d: %s'):format(label, k, wrong), 0) end
    end
  end
end

local function stored(g)
  g:save(path)
  return amp.load_graph(path)
end

-- fn traced, saved and loaded gives what it gives as it is, and changes its arguments as it does.
local function check(label, fn, given)
  local before, after = copies(given), copies(given)
  local fine, want = pcall(seeded, fn, before)
  if not fine then return false end
  local h = stored(amp.graph.trace(fn, copies(given)))
  compare(label, seeded(h, after), want)
  compare(label .. ', arguments afterwards', after, before)
  return true
end

for _, row in ipairs(ops.rows) do
  local list = walk.cases[row.name] or {}
  if #list > 0 then
    it('amp.' .. row.name .. ' comes back from a file', function()
      local done = 0
      for _, c in ipairs(list) do
        local label = walk.label(c)
        local inp = walk.arguments(c, 'float32')
        local fn = case_function(row, c, inp)
        if check(label, fn, tensors_of(inp)) then done = done + 1 end
        check(label .. ' in a region', function(...) return amp.autocast({dtype = 'bfloat16'}, fn, ...) end, tensors_of(inp))
      end
      assert.is_true(done > 0)
    end)
  end
end

describe('a layer from a file', function()
  local x = amp.randn(2, 3, 8)
  local image = amp.randn(2, 4, 6, 6)
  local words = amp.tensor({{1, 2, 3}, {4, 5, 1}}, {dtype = 'int64'})
  local layers = {
    {'LSTM', function() return nn.LSTM(8, 5, {num_layers = 2, bidirectional = true, batch_first = true, dropout = 0.2}) end, x},
    {'GRU', function() return nn.GRU(8, 5) end, x},
    {'RNN', function() return nn.RNN(8, 5) end, x},
    {'MultiheadAttention', function() return nn.MultiheadAttention(8, 2) end, x, x, x},
    {'TransformerEncoderLayer', function() return nn.TransformerEncoderLayer(8, 2) end, x},
    {'Embedding', function() return nn.Sequential(nn.Embedding(6, 8), nn.LayerNorm(8), nn.Dropout(0.3)) end, words},
    {'BatchNorm2d', function() return nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()) end, image},
    {'GroupNorm', function() return nn.Sequential(nn.GroupNorm(2, 4), nn.Upsample({scale_factor = 2}), nn.PixelShuffle(2)) end, image},
    {'ConvTranspose2d', function() return nn.Sequential(nn.ConvTranspose2d(4, 2, 3, {stride = 2}), nn.Softmax(2)) end, image},
  }
  for _, case in ipairs(layers) do
    it(case[1] .. ' gives what it gave, training and not', function()
      local made, net = pcall(case[2])
      assert.is_true(made, tostring(net))
      for _, mode in ipairs {true, false} do
        net:train(mode)
        local args = {unpack(case, 3)}
        local g = amp.graph.trace(net, args)
        g:save(path)
        local h = amp.load_graph(path)
        compare(case[1], seeded(h, args), seeded(g, args))
      end
    end)
  end
end)

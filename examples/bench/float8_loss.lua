--- Does training in 8 bits learn what bfloat16 learns? Held-out losses of a small GPT on a text's characters, by recipe and seed.
-- luajit examples/bench/float8_loss.lua TEXT [steps 200] [layers 2] [width 64] [batch 8] [length 64] [seeds 3] [device cpu]
-- The spread of bfloat16's seeds is what a recipe's mean may differ by.
local here = arg[0]:match '^(.*/)' or ''
package.path = package.path .. ';' .. here .. '../../lua/?.lua;' .. here .. '../../lua/?/init.lua;' .. here .. '../../?.lua'
local amp = require 'amp'
local GPT2 = require 'examples.models.gpt2'

local path = assert(arg[1], 'a text file is wanted')
local function number(i, default) return tonumber(arg[i] or default) end
local steps, layers, width, batch, length, seeds = number(2, 200), number(3, 2), number(4, 64), number(5, 8), number(6, 64), number(7, 3)
local device = arg[8] or 'cpu'

local file = assert(io.open(path, 'rb'))
local text = file:read '*a'
file:close()
local codes, seen, kinds = {}, {}, 0
for i = 1, #text do
  local byte = text:byte(i)
  if not seen[byte] then
    kinds = kinds + 1
    seen[byte] = kinds
  end
  codes[i] = seen[byte]
end
local all = amp.tensor(codes, { dtype = 'int64' })
local cut = math.floor(all:numel() * 0.9)
local vocabulary = math.ceil(kinds / 16) * 16 -- the last product's size, too, is a multiple of 16

local function batch_of(first, last, state)
  local rows = {}
  for r = 1, batch do
    state = state * 16807 % 2147483647
    rows[r] = all:narrow(1, first + state % (last - first - length), length + 1)
  end
  local ids = amp.stack(rows, 1):to(device)
  return ids:narrow(2, 1, length):contiguous(), ids:narrow(2, 2, length):contiguous(), state
end

local function held_out(region, seed)
  amp.manual_seed(seed)
  local net = GPT2 { vocabulary = vocabulary, context = length, layers = layers, size = width, heads = 4 }:to(device)
  local opt = amp.optim.AdamW(net:parameters(), { lr = 1e-3, weight_decay = 0.1 })
  local state = seed
  for _ = 1, steps do
    amp.scope(function()
      local x, y
      x, y, state = batch_of(1, cut, state)
      amp.autocast(region, function() return net(x, y) end):backward()
      opt:step():clear_grad()
    end)
  end
  local sum, at = 0, 12345
  for _ = 1, 20 do
    amp.scope(function()
      local x, y
      x, y, at = batch_of(cut + 1, all:numel(), at)
      sum = sum + amp.no_grad(function() return amp.autocast(region, function() return net(x, y) end) end):item()
    end)
  end
  return sum / 20
end

print(('%d steps, %d layers of %d, %d x %d characters, %d seeds, %s'):format(steps, layers, width, batch, length, seeds, device))
for _, region in ipairs { { dtype = 'bfloat16' }, { dtype = 'float8' }, { dtype = 'float8', recipe = 'delayed' }, { dtype = 'float8', recipe = 'block' } } do
  local losses, sum, low, high = {}, 0, math.huge, 0
  for seed = 1, seeds do
    local loss = held_out(region, seed)
    losses[seed], sum = ('%.4f'):format(loss), sum + loss
    low, high = math.min(low, loss), math.max(high, loss)
  end
  local recipe = region.dtype == 'float8' and (region.recipe or 'current') or ''
  print(('%-9s %-8s mean %.4f  spread %.4f  (%s)'):format(region.dtype, recipe, sum / seeds, high - low, table.concat(losses, ', ')))
end

-- The rows of targets.lua: what is measured, with which sizes, and how many times PyTorch's time over ours has to be (`aside`:
-- nothing is asked of it, and it is measured only if its name is given).
-- `tiny` are sizes for trying the command itself where a step takes long. Each row is measured eager and captured.
local rows = {}

local function row(r)
  r.eager, r.captured = r.eager or {}, r.captured or {}
  r.name = r.what .. ' ' .. r.precision
  rows[#rows + 1] = r
end

local function mlp(what, precision, width, batch, eager, captured, extra)
  local r = { what = what, case = 'mlp', precision = precision, sizes = { width = width, batch = batch, layers = 3, opt = 'sgd' },
    tiny = { width = 32, batch = math.min(8, batch) + batch % 2, layers = 3, opt = 'sgd' }, eager = { target = eager }, captured = { target = captured } }
  for k, v in pairs(extra or {}) do r[k] = v end
  row(r)
  return r
end

-- the recipe first: what a short run has to have
for _, batch in ipairs { 512, 128, 256, 513 } do
  local what = 'recipe b' .. batch
  mlp(what, 'fp16', 4096, batch, 2.5, 1.9)
  mlp(what, 'bf16', 4096, batch, nil, 1.6)
  mlp(what, 'fp32', 4096, batch)
end
local adamw = mlp('recipe adamw b512', 'fp16', 4096, 512)
adamw.sizes.opt, adamw.tiny.opt = 'adamw', 'adamw'
mlp('3 x 64 b32', 'fp16', 64, 32, 8, 2.5)
mlp('3 x 1024 b128', 'fp16', 1024, 128, 8, 2)
row { what = 'LSTMCell loop', case = 'cell', precision = 'fp16', sizes = { width = 512, batch = 64, time = 64 },
  tiny = { width = 8, batch = 2, time = 3 }, eager = { target = 5 }, captured = { target = 2 } }
row { what = 'LSTM 2 x 512', case = 'lstm', precision = 'fp16', sizes = { width = 512, batch = 64, time = 64, layers = 2 },
  tiny = { width = 8, batch = 2, time = 3, layers = 2 }, eager = { target = 1 }, captured = { target = 1.1 } }
row { what = 'ResNet-50 b128 NHWC', case = 'resnet', precision = 'fp16',
  sizes = { batch = 128, size = 224, width = 64, blocks = '3,4,6,3', classes = 1000 },
  tiny = { batch = 2, size = 32, width = 4, blocks = '1,1,1,1', classes = 10 }, eager = { target = 1.15 } }
row { what = 'GPT-2 124M 16x1024', case = 'gpt2', precision = 'bf16',
  sizes = { batch = 16, tokens = 1024, width = 768, layers = 12, heads = 12, vocabulary = 50257 },
  tiny = { batch = 1, tokens = 8, width = 16, layers = 1, heads = 2, vocabulary = 20 },
  eager = { target = 2.3 }, captured = { target = 1.05, theirs = { 'compiled', 'captured' } } }

-- recurrent nets of other sizes and kinds: layers x width, batch, steps
local function recurrent(kind, precision, layers, width, batch, time)
  row { what = ('rnn %s %dx%d b%d'):format(kind, layers, width, batch), case = 'lstm', precision = precision, aside = true,
    sizes = { kind = kind, layers = layers, width = width, batch = batch, time = time },
    tiny = { kind = kind, layers = layers, width = 8, batch = 2, time = 3 } }
end
for _, s in ipairs { { 1, 256, 16, 128 }, { 1, 512, 64, 64 }, { 2, 512, 64, 64 }, { 2, 512, 128, 64 }, { 1, 1024, 16, 64 },
  { 2, 1024, 64, 64 }, { 2, 2048, 64, 64 } } do recurrent('LSTM', 'fp16', unpack(s)) end
recurrent('LSTM', 'bf16', 2, 512, 64, 64)
for _, kind in ipairs { 'GRU', 'RNN' } do
  recurrent(kind, 'fp16', 2, 512, 64, 64)
  recurrent(kind, 'fp16', 2, 1024, 64, 64)
end
recurrent('LSTM', 'fp32', 1, 256, 16, 128)
recurrent('LSTM', 'fp32', 2, 512, 64, 64)
recurrent('LSTM', 'fp32', 2, 512, 128, 64)
recurrent('LSTM', 'fp32', 2, 1024, 64, 64)
for _, kind in ipairs { 'GRU', 'RNN' } do recurrent(kind, 'fp32', 2, 512, 64, 64) end

for _, r in ipairs(rows) do
  r.eager.theirs = r.eager.theirs or { 'default', 'fused' }
  r.captured.theirs = r.captured.theirs or { 'captured' }
end

-- What else is to hold, from the lines that were measured: get(row, mode) gives ms of ours, and of theirs at their best
rows.more = {
  { 'recipe b512 fp16 captured: 0.55 ms or less (said of an H100)', function(get) return get('recipe b512 fp16', 'captured'), '<=', 0.55 end },
  { "recipe b512: our fp32 over our fp16, eager", function(get)
    local a, b = get('recipe b512 fp32', 'eager'), get('recipe b512 fp16', 'eager')
    return a and b and a / b, '>=', 3
  end },
  { "recipe b512: our fp32 over our fp16, captured", function(get)
    local a, b = get('recipe b512 fp32', 'captured'), get('recipe b512 fp16', 'captured')
    return a and b and a / b, '>=', 3
  end },
}
for _, name in ipairs { '3 x 64 b32 fp16', '3 x 1024 b128 fp16' } do
  table.insert(rows.more, { name .. ': their eager over our captured', function(get)
    local a, _, b = get(name, 'captured'), get(name, 'eager')
    return a and b and b / a, '>=', 20
  end })
end

return rows

-- Loss curves of ours and PyTorch's from the same initial weights and data, as one table:
--   luajit examples/bench/gpu/curves.lua [rows=recipe,resnet,gpt2] [steps=50] [device=cuda] [out=curves.tsv] [dir=/tmp]
--     [python=python3|none] [--tiny]
-- Each workload trains four times: ours and PyTorch's, in mixed precision (float16 with a dynamic loss scale; GPT-2 in
-- bfloat16) and in float32. This side makes weights and data and leaves them in a safetensors file for curves.py.
-- What two runs of one precision differ by has a measure: what PyTorch's mixed precision differs from its own float32.
-- They agree if ours and theirs in mixed precision differ by at most twice that in the mean over the steps (and 0.001
-- more, for curves that hardly differ).
local amp = require 'amp'
local here = arg[0]:match '^(.*)/' or '.'
package.path = here .. '/../../../?.lua;' .. package.path
local timing = dofile(here .. '/timing.lua')
local cases = dofile(here .. '/cases.lua')
local quote = dofile(here .. '/peer.lua').quote
local nn, F, optim = amp.nn, amp.nn.functional, amp.optim

local o = timing.options(arg)
local device, steps = o.device or 'cuda', o.steps or 50
local dir = o.dir or os.getenv 'TMPDIR' or '/tmp'
local BATCHES = 4 -- drawn once, used in turn

-- -- Workloads ------------------------------------------------------------------------

local work = {}

-- SGD's rate is large because the mean squared error of so many outputs has small gradients.
work[1] = { name = 'recipe', low = 'fp16', sizes = { width = 4096, batch = 512, layers = 3, lr = 0.004 },
  tiny = { width = 512, batch = 64, layers = 3, lr = 0.004 } }
work[1].net = function(s) return cases.network(s.width, s.layers) end
-- the targets are what another network of the kind makes of x, larger
work[1].data = function(s)
  local x = amp.randn(BATCHES, s.batch, s.width)
  local teacher = nn.Linear(s.width, s.width)
  return x, amp.no_grad(function() return teacher(x):relu() * 3 end)
end
work[1].loss = function(net, x, y) return F.mse_loss(net(x), y) end
work[1].optimizer = function(s, p) return optim.SGD(p, { lr = s.lr * s.width }) end

work[2] = { name = 'resnet', low = 'fp16', sizes = { batch = 32, size = 64, width = 64, blocks = '3,4,6,3', classes = 1000, lr = 0.005 },
  tiny = { batch = 16, size = 64, width = 8, blocks = '1,1,1,1', classes = 100, lr = 0.005 } }
work[2].net = function(s)
  local blocks = {}
  for n in s.blocks:gmatch '%d+' do blocks[#blocks + 1] = tonumber(n) end
  return require 'examples.models.resnet' { blocks = blocks, width = s.width, classes = s.classes }
end
work[2].format = 'channels_last'
work[2].data = function(s)
  return amp.randn(BATCHES, s.batch, 3, s.size, s.size), amp.randint(1, s.classes + 1, { BATCHES, s.batch }, { dtype = 'int64' })
end
work[2].loss = function(net, x, y) return F.cross_entropy(net(x), y) end
work[2].optimizer = function(s, p) return optim.SGD(p, { lr = s.lr, momentum = 0.9, weight_decay = 5e-4 }) end

work[3] = { name = 'gpt2', low = 'bf16', sizes = { batch = 4, tokens = 256, width = 768, layers = 12, heads = 12, vocabulary = 50257, lr = 1e-4 },
  tiny = { batch = 2, tokens = 8, width = 16, layers = 2, heads = 2, vocabulary = 20, lr = 1e-3 } }
work[3].net = function(s)
  return require 'examples.models.gpt2' { size = s.width, layers = s.layers, heads = s.heads, vocabulary = s.vocabulary, context = s.tokens }
end
-- text of a kind: each token follows from the one before, the first is drawn
work[3].data = function(s)
  local x, y = {}, {}
  local first = amp.randint(0, s.vocabulary, { BATCHES * s.batch }, { dtype = 'int64' }):tolist()
  for i, t in ipairs(first) do
    x[i], y[i] = {}, {}
    for k = 1, s.tokens do
      x[i][k] = t + 1
      t = (t * 5 + 7) % s.vocabulary
      y[i][k] = t + 1
    end
  end
  local function tensor(rows) return amp.tensor(rows, { dtype = 'int64' }):view(BATCHES, s.batch, s.tokens) end
  return tensor(x), tensor(y)
end
work[3].loss = function(net, x, y) return net(x, y) end
work[3].optimizer = function(s, p) return optim.AdamW(p, { lr = s.lr, weight_decay = 0.01 }) end

-- -- Ours ----------------------------------------------------------------------------

-- PyTorch counts the parts of a list from 0.
local function peer_name(name)
  return (name:gsub('[^.]+', function(part) return part:find '^%d+$' and tostring(tonumber(part) - 1) or part end))
end

local function losses_of(w, s, precision, x, y)
  amp.manual_seed(1)
  local net = w.net(s):to(device)
  if w.format then net:to { memory_format = w.format } end
  local opt = w.optimizer(s, net:parameters())
  local scaler = amp.GradScaler { enabled = precision == 'fp16' }
  local region = { enabled = precision ~= 'fp32', dtype = precision == 'bf16' and 'bfloat16' or 'float16' }
  local out = {}
  for i = 1, steps do
    out[i] = amp.scope(function()
      local k = (i - 1) % BATCHES + 1
      local a = x[k]:to(device)
      if w.format then a = a:contiguous { memory_format = w.format } end
      local loss = amp.autocast(region, w.loss, net, a, y[k]:to(device))
      scaler:scale(loss):backward()
      scaler:step(opt)
      scaler:update()
      opt:clear_grad()
      return loss:item()
    end)
  end
  return out
end

local function read(path)
  local f = io.open(path)
  if not f then return nil end
  local out = {}
  for line in f:lines() do out[#out + 1] = tonumber(line) end
  f:close()
  os.remove(path)
  return #out > 0 and out or nil
end

-- Theirs in both precisions, or nil and why
local function theirs(w, file, words)
  if o.python == 'none' then return nil, nil, 'not asked for' end
  local base = os.tmpname()
  local p = io.popen(('%s %s %s %s,fp32 %s %s steps=%d device=%s %s 2>&1'):format(o.python or 'python3', quote(here .. '/curves.py'), w.name, w.low,
    quote(file), quote(base), steps, o.peer_device or device, words))
  local last
  for line in p:lines() do last = line end
  p:close()
  os.remove(base)
  return read(base .. '.' .. w.low), read(base .. '.fp32'), last
end

-- -- The table ------------------------------------------------------------------------

-- Relative differences of two curves: the mean, the largest and its step
local function differ(a, b)
  local sum, most, at, n = 0, 0, 1, math.min(#a, #b)
  for i = 1, n do
    local d = math.abs(a[i] - b[i]) / math.abs(b[i])
    sum = sum + d
    if d ~= d or d > most then most, at = d, i end
  end
  return sum / n, most, at
end

local at = {}
for _, i in ipairs { 1, 10, 25, 50 } do
  if i <= steps then at[#at + 1] = i end
end
if at[#at] ~= steps then at[#at + 1] = steps end

local function numbers(list)
  local out = {}
  for _, i in ipairs(at) do out[#out + 1] = ('%9.5f'):format(list[i]) end
  return table.concat(out, ' ')
end

if device:find '^cuda' and not amp.cuda.is_available() then
  io.stderr:write('no GPU: ', amp.cuda.reason(), '\n')
  os.exit(1)
end
local tsv = assert(io.open(o.out or 'curves.tsv', 'w'))
tsv:write 'workload\tstep\tours_mixed\tours_fp32\ttheirs_mixed\ttheirs_fp32\n'
local gpu = device:find '^cuda' and amp.cuda.get_device_properties(device).name or device
print(('loss at steps %s; %s; weights and data the same%s'):format(table.concat(at, ', '), gpu, o.tiny and '; tiny sizes' or ''))
local failed = 0
for _, w in ipairs(work) do
  if not o.rows or tostring(o.rows):find(w.name, 1, true) then
    local s, words, file = o.tiny and w.tiny or w.sizes, {}, ('%s/amp-curves-%s.safetensors'):format(dir, w.name)
    for k, v in pairs(s) do words[#words + 1] = ('%s=%s'):format(k, v) end
    amp.manual_seed(2)
    local x, y = w.data(s)
    amp.manual_seed(1)
    local state = { ['data.x'] = x, ['data.y'] = y }
    for _, name in ipairs { 'data.x', 'data.y' } do
      if state[name].dtype == 'int64' then state[name] = state[name] - 1 end
    end
    for name, p in w.net(s):named_parameters() do state[peer_name(name)] = p:detach() end
    amp.io.safetensors.save(file, state)
    local mine, mine32 = losses_of(w, s, w.low, x, y), losses_of(w, s, 'fp32', x, y)
    collectgarbage()
    local peer, peer32, why = theirs(w, file, table.concat(words, ' '))
    os.remove(file)
    print(('%-8s ours   %-5s %s'):format(w.name, w.low, numbers(mine)))
    print(('%-8s ours   fp32  %s'):format('', numbers(mine32)))
    if peer and peer32 then
      local mean, most, step = differ(mine, peer)
      local yard, yard_most = differ(peer, peer32)
      local mean32, most32 = differ(mine32, peer32)
      local agree = mean <= 2 * yard + 1e-3 -- not so if it is NaN
      if not agree then failed = failed + 1 end
      print(('%-8s theirs %-5s %s'):format('', w.low, numbers(peer)))
      print(('%-8s theirs fp32  %s'):format('', numbers(peer32)))
      print(('%-8s differ by, mean (most): ours and theirs in %s %.2g (%.2g, step %d), in fp32 %.2g (%.2g); theirs in %s and fp32 %.2g (%.2g): %s'):format(
        '', w.low, mean, most, step, mean32, most32, w.low, yard, yard_most, agree and 'agree' or 'DISAGREE'))
    else
      print(('%-8s theirs: none (%s)'):format('', tostring(why)))
    end
    for i = 1, steps do
      tsv:write(('%s\t%d\t%.9g\t%.9g\t%s\t%s\n'):format(w.name, i, mine[i], mine32[i], peer and ('%.9g'):format(peer[i]) or '-',
        peer32 and ('%.9g'):format(peer32[i]) or '-'))
    end
    io.stdout:flush()
  end
end
tsv:close()
os.exit(failed > 0 and 1 or 0)

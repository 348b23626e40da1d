--- A GPT-2 on the characters of a text (or on a tokenizer's tokens), in any precision.
-- Try: luajit examples/gpt.lua --steps 100
--      luajit examples/gpt.lua --data tinyshakespeare.txt --steps 2000 --precision bfloat16 --device cuda
-- --data PATH, --tokenizer tokenizer.json, --steps 100, --batch 8, --length 64, --layers 2, --heads 4, --width 64, --dropout 0, --lr 1e-3,
-- --warmup 20, --precision float32 | bfloat16 | float16, --float8 [current | delayed | block] (linear layers in 8 bits, the rest
-- in --precision, else in bfloat16), --device, --seed 1, --save DIR (config.json and model.safetensors), --init DIR (weights to
-- begin from). examples/bench/gpt.py is the same in PyTorch.
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local nn, optim, models = amp.nn, amp.optim, amp.text.models

local o = {data = false, tokenizer = false, save = false, init = false, float8 = false, precision = 'float32', device = 'cpu', steps = 100, batch = 8,
  length = 64, layers = 2, heads = 4, width = 64, dropout = 0, lr = 1e-3, warmup = 20, seed = 1}
local at = 1
while arg[at] do
  local name, value = arg[at]:match '^%-%-(.+)', arg[at + 1]
  if name == 'float8' and (not value or value:find '^%-%-') then
    value = 'current'
    at = at - 1
  end
  if o[name] == nil or value == nil then error('unknown or unfinished option ' .. arg[at] .. '; the head of this file lists them', 0) end
  o[name] = type(o[name]) == 'number' and assert(tonumber(value), arg[at] .. ' needs a number') or value
  at = at + 2
end

-- -- The text as ids ------------------------------------------------------------------------------

local text = ([[
the river carries the rain to the sea, and the sea sends the rain to the hill,
and the hill lets it run to the river again, and the water is never still.
the wheel of the mill by the river goes round, and it grinds what the farmer has sown,
and the baker makes bread of the flour he found, and none of them works alone.
]]):rep(4)
if o.data then
  local f = assert(io.open(o.data, 'rb'))
  text = f:read '*a'
  f:close()
end

-- The bytes that occur, in their order, are numbered from 1.
local function characters()
  local seen, letters, number, codes = {}, {}, {}, {}
  for i = 1, #text do seen[text:byte(i)] = true end
  for b = 0, 255 do
    if seen[b] then
      letters[#letters + 1] = string.char(b)
      number[b] = #letters
    end
  end
  for i = 1, #text do codes[i] = number[text:byte(i)] end
  local function decode(ids)
    local out = {}
    for i, id in ipairs(ids) do out[i] = letters[id] end
    return table.concat(out)
  end
  return codes, #letters, decode
end

local codes, vocabulary, decode
if o.tokenizer then
  local tok = amp.text.Tokenizer.from_file(o.tokenizer)
  codes, vocabulary = tok:encode(text), tok:size()
  decode = function(ids) return tok:decode(ids) end
else codes, vocabulary, decode = characters() end
local all = amp.is_tensor(codes) and codes or amp.tensor(codes, {dtype = 'int64', device = 'cpu'})
local cut = math.floor(all:numel() * 0.9)
local train, held = all:narrow(1, 1, cut), all:narrow(1, cut + 1, all:numel() - cut)
assert(held:numel() > o.length, 'the text is too short for --length ' .. o.length)

-- Rows at places that a generator of its own picks, the same in the twin: x <- 16807 x mod 2^31 - 1.
local function batches(ids, state)
  return function()
    local rows = {}
    for r = 1, o.batch do
      state = state * 16807 % 2147483647
      rows[r] = ids:narrow(1, state % (ids:numel() - o.length) + 1, o.length)
    end
    return amp.stack(rows, 1):to(o.device)
  end
end

-- -- The model ----------------------------------------------------------------------------------------

amp.manual_seed(o.seed)
local net
if o.init then net = models.GPT2.from_pretrained(o.init, {device = o.device}):train()
else
  net = models.GPT2{vocab_size = vocabulary, n_positions = o.length, n_embd = o.width, n_layer = o.layers, n_head = o.heads,
    resid_pdrop = o.dropout, embd_pdrop = o.dropout, attn_pdrop = o.dropout}:to(o.device)
end
if o.save and o.steps == 0 then net:save_pretrained(o.save) end

-- Matrices decay, biases and gains do not.
local decayed, others = {}, {}
for _, p in ipairs(net:parameters()) do table.insert(p:dim() > 1 and decayed or others, p) end
local opt = optim.AdamW({{params = decayed, weight_decay = 0.1}, {params = others, weight_decay = 0}}, {lr = o.lr, betas = {0.9, 0.99}})
local schedule = optim.lr_scheduler.CosineWithWarmup(opt, {warmup_steps = math.min(o.warmup, o.steps), total_steps = math.max(o.steps, 1)})
local scaler = amp.GradScaler{enabled = o.precision == 'float16'}
local region = {dtype = o.precision ~= 'float32' and o.precision or nil, enabled = o.precision ~= 'float32'}
if o.float8 then region = {dtype = 'float8', recipe = o.float8, base = region.dtype} end

local function loss_of(ids)
  return amp.autocast(region, function() return select(2, net(ids, {labels = ids})) end)
end

-- -- Training --------------------------------------------------------------------------------------------

local parameters, next_batch, result = net:parameters(), batches(train, o.seed), {}
for i = 1, o.steps do
  amp.scope(function()
    local loss = loss_of(next_batch())
    scaler:scale(loss):backward()
    scaler:unscale_(opt)
    nn.utils.clip_grad_norm_(parameters, 1)
    scaler:step(opt):update()
    opt:clear_grad()
    schedule:step()
    if i == 1 or i % 20 == 0 or i == o.steps then
      result.last = loss:item()
      result.first = result.first or result.last
      print(('step %5d  loss %.4f'):format(i, result.last))
    end
  end)
end

net:eval()
local check, sum = batches(held, 1), 0
for _ = 1, 10 do
  amp.scope(function() sum = sum + amp.no_grad(loss_of, check()):item() end)
end
result.held = sum / 10
print(('held-out  loss %.4f'):format(result.held))
local room = math.min(200, net.config.n_positions - 1)
result.said = decode(net:generate({all[1]:item()}, {max_new_tokens = room, top_k = 10, seed = o.seed}):tolist())
print(result.said)
if o.save then net:save_pretrained(o.save) end
return result

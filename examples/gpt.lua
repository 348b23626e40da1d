--- A GPT-2 on the characters of a text (or on a tokenizer's tokens), in any precision.
-- Try: luajit examples/gpt.lua --steps 100
--      luajit examples/gpt.lua --data tinyshakespeare.txt --steps 2000 --precision bfloat16 --device cuda
--      luajit examples/gpt.lua --data big.txt --tokenizer tokenizer.json --tokens big.bin --resume run.amp
-- --data PATH, --tokenizer tokenizer.json, --tokens PATH (a file of ids, made of --data where it is not there; batches stream from it, so
-- it may be larger than memory), --resume PATH (where a run is kept every 20 steps, to go on from there; with --tokens),
-- --steps 100, --batch 8, --length 64, --layers 2, --heads 4, --width 64, --dropout 0, --lr 1e-3,
-- --warmup 20, --precision float32 | bfloat16 | float16, --float8 [current | delayed | block] (linear layers in 8 bits, the rest
-- in --precision, else in bfloat16), --device, --seed 1, --save DIR (config.json and model.safetensors), --init DIR (weights to
-- begin from). examples/bench/gpt.py is the same in PyTorch.
-- On several devices: amp run -n 4 examples/gpt.lua --batch 2, which is one with --batch 8 (--device cuda: a card for each).
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local nn, optim, models, dist = amp.nn, amp.optim, amp.text.models, amp.distributed
dist.init()
local rank, ranks, main = dist.rank(), dist.world_size(), dist.is_main()

local o = dofile((arg[0]:match '^(.*/)' or '') .. 'options.lua')({
  data = false, tokenizer = false, tokens = false, resume = false, save = false, init = false, float8 = false, precision = 'float32', device = 'cpu',
  steps = 100, batch = 8, length = 64, layers = 2, heads = 4, width = 64, dropout = 0, lr = 1e-3, warmup = 20, seed = 1,
}, arg, {float8 = 'current'})

-- -- The text as ids ------------------------------------------------------------------------------

local text = ([[
the river carries the rain to the sea, and the sea sends the rain to the hill,
and the hill lets it run to the river again, and the water is never still.
the wheel of the mill by the river goes round, and it grinds what the farmer has sown,
and the baker makes bread of the flour he found, and none of them works alone.
]]):rep(4)
if o.data then
  local f = assert(io.open(o.data, 'rb'))
  if o.tokens then f:seek('set', math.max(0, f:seek 'end' - 20000)) end -- the end is for a look, batches stream
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

local codes, vocabulary, decode, tok
if o.tokenizer then
  tok = amp.text.Tokenizer.from_file(o.tokenizer)
  vocabulary, decode = tok:size(), function(ids) return tok:decode(ids) end
  codes = tok:encode(text)
else codes, vocabulary, decode = characters() end
local all = amp.is_tensor(codes) and codes or amp.tensor(codes, {dtype = 'int64', device = 'cpu'})
local cut = math.floor(all:numel() * 0.9)
local train, held = all:narrow(1, 1, cut), all:narrow(1, cut + 1, all:numel() - cut)
assert(held:numel() > o.length, 'the text is too short for --length ' .. o.length)

-- Rows at places that a generator of its own picks, the same in the twin: x <- 16807 x mod 2^31 - 1. Of a batch of all ranks
-- each has its rows.
local function batches(ids, state)
  return function()
    local rows = {}
    for r = 1, o.batch * ranks do
      state = state * 16807 % 2147483647
      local mine = r - (rank - 1) * o.batch
      if mine >= 1 and mine <= o.batch then rows[mine] = ids:narrow(1, state % (ids:numel() - o.length) + 1, o.length) end
    end
    return amp.stack(rows, 1):to(o.device)
  end
end

local stream
if o.tokens then
  assert(tok, '--tokens needs --tokenizer')
  local there = io.open(o.tokens, 'rb')
  if there then there:close()
  elseif main then
    local lines = o.data and io.lines(o.data) or text:gmatch '[^\n]+'
    print(('%d ids into %s'):format(amp.text.write_tokens(o.tokens, function()
      local line = lines()
      return line and line .. '\n'
    end, {tokenizer = tok}), o.tokens))
  end
  dist.barrier()
  stream = amp.text.TokenFile(o.tokens, {length = o.length, batch_size = o.batch * ranks, seed = o.seed, vocab_size = vocabulary,
    dtype = vocabulary > 65536 and 'uint32' or 'uint16'})
end

-- -- The model ----------------------------------------------------------------------------------------

amp.manual_seed(o.seed)
local net
if o.init then net = models.GPT2.from_pretrained(o.init, {device = o.device}):train()
else
  net = models.GPT2{vocab_size = vocabulary, n_positions = o.length, n_embd = o.width, n_layer = o.layers, n_head = o.heads,
    resid_pdrop = o.dropout, embd_pdrop = o.dropout, attn_pdrop = o.dropout}:to(o.device)
end
if o.save and o.steps == 0 and main then net:save_pretrained(o.save) end
local trained = nn.parallel.DistributedDataParallel(net) -- of one rank the network itself

-- Matrices decay, biases and gains do not.
local decayed, others = {}, {}
for _, p in ipairs(net:parameters()) do table.insert(p:dim() > 1 and decayed or others, p) end
local opt = optim.AdamW({{params = decayed, weight_decay = 0.1}, {params = others, weight_decay = 0}}, {lr = o.lr, betas = {0.9, 0.99}})
local schedule = optim.lr_scheduler.CosineWithWarmup(opt, {warmup_steps = math.min(o.warmup, o.steps), total_steps = math.max(o.steps, 1)})
local scaler = amp.GradScaler{enabled = o.precision == 'float16'}
local region = {dtype = o.precision ~= 'float32' and o.precision or nil, enabled = o.precision ~= 'float32'}
if o.float8 then region = {dtype = 'float8', recipe = o.float8, base = region.dtype} end

local function loss_of(ids)
  return amp.autocast(region, function() return select(2, trained(ids, {labels = ids})) end)
end

-- -- Training --------------------------------------------------------------------------------------------

local parameters, result, first = net:parameters(), {}, 1
local next_batch = stream and function() -- of a batch of all ranks each has its rows
  return stream:next().ids:narrow(1, (rank - 1) * o.batch + 1, o.batch):to(o.device)
end or batches(train, o.seed)

local function keep(i)
  amp.save(o.resume, {step = i, net = net:state_dict(), opt = opt:state_dict(), schedule = schedule:state_dict(), scaler = scaler:state_dict(),
    place = stream:state_dict(), rng = amp.get_rng_state()})
end
if o.resume then
  assert(stream, '--resume needs --tokens')
  local there = io.open(o.resume, 'rb')
  if there then
    there:close()
    local was = amp.load(o.resume, {map_location = o.device})
    net:load_state_dict(was.net)
    opt:load_state_dict(was.opt)
    schedule:load_state_dict(was.schedule)
    scaler:load_state_dict(was.scaler)
    stream:load_state_dict(was.place)
    amp.set_rng_state(was.rng)
    first = was.step + 1
  end
end

for i = first, o.steps do
  amp.scope(function()
    local loss = loss_of(next_batch())
    scaler:scale(loss):backward()
    scaler:unscale_(opt)
    nn.utils.clip_grad_norm_(parameters, 1)
    scaler:step(opt):update()
    opt:clear_grad()
    schedule:step()
    if main and o.resume and (i % 20 == 0 or i == o.steps) then keep(i) end
    if i == first or i % 20 == 0 or i == o.steps then
      result.last = dist.all_reduce(loss:detach():clone(), {op = 'mean'}):item()
      result.first = result.first or result.last
      if main then print(('step %5d  loss %.4f'):format(i, result.last)) end
    end
  end)
end

net:eval()
local check, sum = batches(held, 1), 0
for _ = 1, 10 do
  amp.scope(function() sum = sum + dist.all_reduce(amp.no_grad(loss_of, check()), {op = 'mean'}):item() end)
end
result.held = sum / 10
if not main then return result end
print(('held-out  loss %.4f'):format(result.held))
local room = math.min(200, net.config.n_positions - 1)
result.said = decode(net:generate({all[1]:item()}, {max_new_tokens = room, top_k = 10, seed = o.seed}):tolist())
print(result.said)
if o.save then net:save_pretrained(o.save) end
return result

--- A classifier of texts: a BERT with a new head, trained whole or by adapters (LoRA).
-- Try: luajit examples/finetune.lua
--      luajit examples/finetune.lua --model all-MiniLM-L6-v2 --data texts --lora 8 --precision bfloat16
-- --data DIR: a file for each class, CLASS.txt, a text a line (default: two small classes of this file); --model DIR: a folder with
-- config.json, weights and tokenizer.json (default: a small network from nothing, whose tokens are words); --lora RANK (0: all weights
-- are trained), --steps 60, --batch 16, --length 32, --lr 1e-3, --precision float32 | bfloat16 | float16, --device, --seed 1.
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local nn, F, optim, models = amp.nn, amp.nn.functional, amp.optim, amp.text.models

local o = dofile((arg[0]:match '^(.*/)' or '') .. 'options.lua')({
  data = false, model = false, precision = 'float32', device = 'cpu', lora = 0, steps = 60, batch = 16, length = 32, lr = 1e-3, seed = 1,
}, arg)

-- -- Texts: {class, text} ------------------------------------------------------------------------------

local classes, texts = {}, {}

local function add(class, text)
  if text:match '%S' then texts[#texts + 1] = {class, text} end
end

if o.data then
  local list = io.popen(("ls '%s' | grep '\\.txt$' | sort"):format((o.data:gsub("'", "'\\''"))))
  for name in list:lines() do
    classes[#classes + 1] = name:gsub('%.txt$', '')
    for line in io.lines(o.data .. '/' .. name) do add(#classes, line) end
  end
  list:close()
  assert(#classes > 1, 'there are no two files CLASS.txt in ' .. o.data)
else -- sentences of a few words each
  classes = {'weather', 'kitchen'}
  local parts = {
    {{'the rain', 'a cold wind', 'the morning fog', 'bright sun', 'the storm'}, {'came over', 'lay on', 'crossed', 'left'},
      {'the hills', 'the coast', 'our valley', 'the fields', 'the harbour'}},
    {{'the onions', 'fresh bread', 'the butter', 'a pinch of salt', 'the soup'}, {'went into', 'stood on', 'was kept in', 'filled'},
      {'the pan', 'the oven', 'a bowl', 'the table', 'the kettle'}},
  }
  for class, p in ipairs(parts) do
    for _, a in ipairs(p[1]) do
      for _, b in ipairs(p[2]) do
        for _, c in ipairs(p[3]) do add(class, a .. ' ' .. b .. ' ' .. c) end
      end
    end
  end
end

amp.manual_seed(o.seed)
local order, train, held = amp.randperm(#texts, {dtype = 'int64'}):tolist(), {}, {}
for i, at in ipairs(order) do table.insert(i % 5 == 0 and held or train, texts[at]) end

-- -- Tokens and the model --------------------------------------------------------------------------------

local body, encode
if o.model then
  body = models.BERT.from_pretrained(o.model, {device = o.device}):train()
  local tok = amp.text.Tokenizer.from_file(o.model .. '/tokenizer.json')
  function encode(batch) return tok:encode_batch(batch, {padding = true, truncation = true, max_length = o.length}) end
else -- words of the training texts from 2 on; 1 is every other word, and padding
  local number, count = {}, 1
  for _, t in ipairs(train) do
    for word in t[2]:lower():gmatch '%w+' do
      if not number[word] then
        count = count + 1
        number[word] = count
      end
    end
  end
  function encode(batch)
    local ids, mask = {}, {}
    for r, text in ipairs(batch) do
      ids[r], mask[r] = {}, {}
      for word in text:lower():gmatch '%w+' do
        if #ids[r] < o.length then ids[r][#ids[r] + 1], mask[r][#ids[r] + 1] = number[word] or 1, 1 end
      end
      for i = #ids[r] + 1, o.length do ids[r][i], mask[r][i] = 1, 0 end
    end
    return amp.tensor(ids, {dtype = 'int64'}), amp.tensor(mask, {dtype = 'int64'})
  end
  body = models.BERT{vocab_size = count, hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 4, intermediate_size = 64,
    max_position_embeddings = o.length, hidden_dropout_prob = 0, attention_probs_dropout_prob = 0}:to(o.device)
end

local Classifier = nn.Module:extend 'Classifier'

function Classifier:init()
  self.body = body
  self.head = nn.Linear(body.config.hidden_size, #classes)
end

--- Logits of the mean of a text's hidden states.
function Classifier:forward(ids, mask)
  local hidden = self.body(ids, {attention_mask = mask})
  local m = mask:to(hidden.dtype):unsqueeze(3)
  return self.head((hidden * m):sum(2) / m:sum(2))
end

local net = Classifier():to(o.device)
if o.lora > 0 then nn.utils.lora(net, {rank = o.lora, alpha = 2 * o.lora, targets = {'query', 'value'}, trainable = {'head'}}) end
local trained = nn.utils.lora_parameters(net)

-- -- Training ------------------------------------------------------------------------------------------------

local opt = optim.AdamW(trained, {lr = o.lr})
local schedule = optim.lr_scheduler.CosineWithWarmup(opt, {warmup_steps = math.min(5, o.steps), total_steps = math.max(o.steps, 1)})
local scaler = amp.GradScaler{enabled = o.precision == 'float16'}
local region = {dtype = o.precision ~= 'float32' and o.precision or nil, enabled = o.precision ~= 'float32'}

local function batch_of(list, first)
  local batch, labels = {}, {}
  for i = first, first + math.min(o.batch, #list) - 1 do
    local t = list[(i - 1) % #list + 1]
    labels[#labels + 1], batch[#batch + 1] = t[1], t[2]
  end
  local ids, mask = encode(batch)
  return ids:to(o.device), mask:to(o.device), amp.tensor(labels, {dtype = 'int64', device = o.device})
end

local result = {trained = 0, all = 0}
for _, p in ipairs(net:parameters()) do
  result.all = result.all + p:numel()
  if p.requires_grad then result.trained = result.trained + p:numel() end
end
print(('%d of %d parameters are trained, on %d texts of %d classes'):format(result.trained, result.all, #train, #classes))
for i = 1, o.steps do
  amp.scope(function()
    local ids, mask, labels = batch_of(train, (i - 1) * o.batch + 1)
    local loss = amp.autocast(region, function() return F.cross_entropy(net(ids, mask), labels) end)
    scaler:scale(loss):backward()
    scaler:step(opt):update()
    opt:clear_grad()
    schedule:step()
    if i == 1 or i % 20 == 0 or i == o.steps then
      result.last = loss:item()
      result.first = result.first or result.last
      print(('step %4d  loss %.4f'):format(i, result.last))
    end
  end)
end

net:eval()
if o.lora > 0 then nn.utils.merge_lora(net) end
local right = 0
for first = 1, #held, o.batch do
  local part = {unpack(held, first, math.min(first + o.batch - 1, #held))}
  local ids, mask, labels = batch_of(part, 1)
  right = right + amp.no_grad(function() return net(ids, mask):argmax(2):eq(labels):sum():item() end)
end
result.accuracy = right / #held
print(('accuracy on %d held-out texts %.3f'):format(#held, result.accuracy))
return result

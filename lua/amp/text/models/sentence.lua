--- SentenceEncoder: texts as vectors of length 1, so that a product says how alike two are. A folder in the form of
-- sentence-transformers: a BERT with its tokenizer, 1_Pooling/config.json (what becomes of the tokens' vectors; the mean without it)
-- and sentence_bert_config.json (how many tokens count).
-- @module amp.text.models.sentence
local amp = require 'amp'
local config = require 'amp.text.models.config'
local err = require 'amp.error'
local options = require 'amp.options'
local util = require 'amp.util'
local nn = amp.nn

local SentenceEncoder = nn.Module:extend 'text.models.SentenceEncoder'

local OP = 'text.models.SentenceEncoder.from_pretrained'

--- Texts as vectors of length 1: SentenceEncoder.from_pretrained(dir) makes one of a folder, `encode` is what it is for.
function SentenceEncoder:init()
  self.pooling, self.max_length, self.lower = { 'mean' }, 512, false
end

-- -- Pooling: hidden batch x length x size, mask batch x length x 1 in its dtype -> batch x size --------------------------

local pools = {}

function pools.cls(hidden) return hidden:select(2, 1) end

function pools.mean(hidden, mask) return (hidden * mask):sum(2) / mask:sum(2):clamp(1e-9) end

function pools.max(hidden, mask) return hidden:masked_fill(mask:eq(0), -math.huge):amax(2) end

function pools.mean_sqrt(hidden, mask) return (hidden * mask):sum(2) / mask:sum(2):clamp(1e-9):sqrt() end

function pools.weighted(hidden, mask)
  local weight = amp.arange(1, hidden:size(2) + 1, { dtype = hidden.dtype, device = hidden.device }):unsqueeze(2) * mask
  return (hidden * weight):sum(2) / weight:sum(2):clamp(1e-9)
end

function pools.last(hidden, mask)
  local at = mask:sum(2):long():clamp(1, nil):unsqueeze(3):expand(hidden:size(1), 1, hidden:size(3))
  return hidden:gather(2, at):squeeze(2)
end

-- In the order in which several are joined.
local modes = {
  { 'cls', 'pooling_mode_cls_token' }, { 'max', 'pooling_mode_max_tokens' }, { 'mean', 'pooling_mode_mean_tokens' },
  { 'mean_sqrt', 'pooling_mode_mean_sqrt_len_tokens' }, { 'weighted', 'pooling_mode_weightedmean_tokens' }, { 'last', 'pooling_mode_lasttoken' },
}

local function pooling(dir)
  local path = dir .. '/1_Pooling/config.json'
  if not config.exists(path) then return { 'mean' } end
  local c, list, known = config.json(OP, path), {}, {}
  for _, m in ipairs(modes) do
    known[m[2]] = true
    if c[m[2]] == true then list[#list + 1] = m[1] end
  end
  if type(c.pooling_mode) == 'string' then
    local names = { cls = 'cls', mean = 'mean', max = 'max', mean_sqrt_len_tokens = 'mean_sqrt', weightedmean = 'weighted', lasttoken = 'last' }
    if not names[c.pooling_mode] then
      err.throw(OP, "'%s' has pooling_mode %s (known are %s)", path, util.show(c.pooling_mode), table.concat(util.keys(names), ', '))
    end
    list = { names[c.pooling_mode] }
  end
  for k, v in pairs(c) do
    if k:match '^pooling_mode_' and v == true and not known[k] then err.throw(OP, "'%s' asks for %s, which is not known", path, k) end
  end
  return #list > 0 and list or { 'mean' }
end

-- -- Life ---------------------------------------------------------------------------------------------------------

--- Make one of a folder.
-- @tparam string dir
-- @tparam ?table given device, dtype
-- @usage local encoder = amp.text.models.SentenceEncoder.from_pretrained('all-MiniLM-L6-v2')
-- local vectors = encoder:encode{'A first sentence.', 'A second one.'}
function SentenceEncoder.from_pretrained(dir, given)
  if type(dir) ~= 'string' then err.throw(OP, 'the path of a folder expected, got %s', util.show(dir)) end
  dir = #dir > 1 and dir:gsub('/+$', '') or dir
  local root = dir
  if not config.exists(dir .. '/config.json') and config.exists(dir .. '/0_Transformer/config.json') then root = dir .. '/0_Transformer' end
  if not config.exists(root .. '/tokenizer.json') then err.throw(OP, "there is no tokenizer.json in '%s'", root) end
  local bert = require('amp.text.models.pretrained').load(OP, 'BERT', root, given)
  local self = SentenceEncoder()
  self.bert, self.pooling = bert, pooling(dir)
  local path = root .. '/sentence_bert_config.json'
  if not config.exists(path) then path = dir .. '/sentence_bert_config.json' end
  local c = config.exists(path) and config.json(OP, path) or {}
  local most = bert.config_positions
  self.max_length = type(c.max_seq_length) == 'number' and math.min(c.max_seq_length, most) or most
  self.lower = c.do_lower_case == true
  self.tokenizer = require('amp').text.Tokenizer.from_file(root .. '/tokenizer.json')
  self:eval()
  return self
end

--- Vectors of tokens.
-- @tparam Tensor ids batch x length
-- @tparam ?Tensor mask batch x length, 0 where padding
-- @treturn Tensor batch x size, of length 1
function SentenceEncoder:forward(ids, mask)
  local hidden = self.bert(ids, { attention_mask = mask })
  local m
  if mask then m = mask:to(hidden.device):ne(0):to(hidden.dtype):unsqueeze(3)
  else m = amp.ones({ hidden:size(1), hidden:size(2), 1 }, { dtype = hidden.dtype, device = hidden.device }) end
  local parts = {}
  for i, name in ipairs(self.pooling) do parts[i] = pools[name](hidden, m) end
  return amp.normalize(#parts == 1 and parts[1] or amp.cat(parts, 2), { dim = 2 })
end

-- Texts by falling length: those of a batch need little padding.
local function order_of(texts)
  local order = {}
  for i = 1, #texts do order[i] = i end
  table.sort(order, function(a, b)
    if #texts[a] ~= #texts[b] then return #texts[a] > #texts[b] end
    return a < b
  end)
  return order
end

--- Texts as vectors.
-- @tparam table|string texts a list of strings, or one
-- @tparam ?table given batch_size (32)
-- @treturn Tensor texts x size, of length 1, in float32 (one text: size)
-- @raise what is no string
function SentenceEncoder:encode(texts, given)
  local op = 'text.models.SentenceEncoder:encode'
  local o = options.read(op, given, { 'batch_size' }, { batch_size = 32 })
  options.integer(op, 'batch_size', o.batch_size, 1)
  local single = type(texts) == 'string'
  if single then texts = { texts } end
  if type(texts) ~= 'table' then err.throw(op, 'a list of strings expected, got %s', util.show(texts)) end
  for i = 1, #texts do
    if type(texts[i]) ~= 'string' then err.throw(op, 'text %d is %s, a string is expected', i, util.show(texts[i])) end
  end
  local size = self.bert.config.hidden_size * #self.pooling
  local device = self.bert:device_of()
  local out = amp.zeros({ #texts, size }, { dtype = 'float32', device = device })
  local order, modes_before = order_of(texts), {}
  for i, m in ipairs(self:modules()) do modes_before[i] = { m, m.training } end
  self:eval()
  local ok, e = pcall(amp.no_grad, function()
    for first = 1, #texts, o.batch_size do
      amp.scope(function()
        local batch, at = {}, {}
        for i = first, math.min(first + o.batch_size - 1, #texts) do
          local text = texts[order[i]]
          batch[#batch + 1], at[#at + 1] = self.lower and text:lower() or text, order[i]
        end
        local ids, mask = self.tokenizer:encode_batch(batch, { padding = true, truncation = true, max_length = self.max_length })
        local vectors = self(ids, mask):float()
        out:index_copy_(1, amp.tensor(at, { dtype = 'int64', device = device }), vectors)
      end)
    end
  end)
  for _, m in ipairs(modes_before) do m[1].training = m[2] end
  if not ok then error(e, 0) end
  return single and out[1] or out
end

function SentenceEncoder:extra_repr()
  return ('%s of at most %d tokens'):format(table.concat(self.pooling or {}, ', '), self.max_length or 0)
end

return SentenceEncoder

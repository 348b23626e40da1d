--- Training of byte-level BPE.
local file = require 'amp.io.file'
local json = require 'amp.io.json'
local options = require 'amp.options'
local parts = require 'amp.text.parts'
local raise = require('amp.error').throw
local u = require 'amp.text.unicode'
local kind = require('amp.util').kind

local SHIFT = 2 ^ 24
local OP = 'text.train_bpe'

-- How often each word (its bytes as characters of the vocabulary) stands in the files; line by line.
local function count_words(files, split)
  local counts, order = {}, {}
  for _, path in ipairs(files) do
    if type(path) ~= 'string' then raise(OP, 'paths expected, got %s', kind(path)) end
    local text, why = file.text(path)
    if not text then raise(OP, "cannot read '%s': %s", path, why) end
    for line in text:gmatch '[^\n]*\n?' do
      if line ~= '' then
        for _, p in ipairs(split(u.codes(line))) do
          local w = u.text(p)
          if not counts[w] then counts[w], order[#order + 1] = 0, w end
          counts[w] = counts[w] + 1
        end
      end
    end
  end
  return counts, order
end

-- The most frequent pair first, of equals the one with the least ids.
local function before(a, b)
  if a.count ~= b.count then return a.count > b.count end
  return a.pair < b.pair
end
local function push(h, v)
  local i = #h + 1
  while i > 1 do
    local up = (i - i % 2) / 2
    if not before(v, h[up]) then break end
    h[i], i = h[up], up
  end
  h[i] = v
end
local function pop(h)
  local top, n = h[1], #h
  local v = h[n]
  h[n] = nil
  n = n - 1
  if n == 0 then return top end
  local i = 1
  while 2 * i <= n do
    local c = 2 * i
    if c < n and before(h[c + 1], h[c]) then c = c + 1 end
    if not before(h[c], v) then break end
    h[i], i = h[c], c
  end
  h[i] = v
  return top
end

-- Joins a pair in one word; changes of counts go to note(pair, difference).
local function merge(w, a, b, made, note)
  local out, i, n = {}, 1, #w
  while i <= n do
    if w[i] == a and w[i + 1] == b then
      local left, right = out[#out], w[i + 2]
      if left then note(left * SHIFT + a, -1) note(left * SHIFT + made, 1) end
      if right then note(b * SHIFT + right, -1) note(made * SHIFT + right, 1) end
      out[#out + 1], i = made, i + 2
    else out[#out + 1], i = w[i], i + 1 end
  end
  return out
end

-- Merges until the vocabulary has `size` tokens; gives them as pairs of tokens.
local function learn(words, times, tokens, ids, size)
  local counts, where, heap, merges = {}, {}, {}, {}
  local changed
  local function note(pair, k, i)
    counts[pair] = (counts[pair] or 0) + k
    if k > 0 then
      where[pair] = where[pair] or {}
      where[pair][i] = true
    end
    if changed then changed[pair] = true end
  end
  for i, w in ipairs(words) do
    for k = 1, #w - 1 do note(w[k] * SHIFT + w[k + 1], times[i], i) end
  end
  for pair, c in pairs(counts) do push(heap, { count = c, pair = pair }) end
  while #tokens + 1 < size do
    local top = pop(heap)
    if not top then return nil, #tokens + 1 end
    local pair = top.pair
    if counts[pair] ~= top.count then
      if (counts[pair] or 0) > 0 then push(heap, { count = counts[pair], pair = pair }) end
    elseif top.count > 0 then
      local b = pair % SHIFT
      local a = (pair - b) / SHIFT
      local text = tokens[a] .. tokens[b]
      merges[#merges + 1] = { tokens[a], tokens[b] }
      if not ids[text] then
        tokens[#tokens + 1] = text
        ids[text] = #tokens
      end
      changed = {}
      for i in pairs(where[pair]) do
        words[i] = merge(words[i], a, b, ids[text], function(p, k) note(p, k * times[i], i) end)
      end
      counts[pair], where[pair], changed[pair] = nil, nil, nil
      for p in pairs(changed) do
        if counts[p] > 0 then push(heap, { count = counts[p], pair = p }) else where[p] = nil end
      end
    end
  end
  return merges
end

local function alphabet()
  local list = {}
  for b = 0, 255 do list[b + 1] = parts.bytes[b] end
  table.sort(list)
  local tokens, ids = {}, {}
  for i, c in ipairs(list) do tokens[i - 1], ids[c] = c, i - 1 end
  return tokens, ids
end

local function write(tokens, merges)
  local vocab = {}
  for id = 0, #tokens do vocab[tokens[id]] = id end
  local list = setmetatable(merges, json.array)
  for i, m in ipairs(list) do list[i] = setmetatable(m, json.array) end
  local bl = { type = 'ByteLevel', add_prefix_space = false, trim_offsets = true, use_regex = true }
  return json.encode { version = '1.0', truncation = json.null, padding = json.null, added_tokens = setmetatable({}, json.array),
    normalizer = json.null, pre_tokenizer = bl, post_processor = bl, decoder = bl,
    model = { type = 'BPE', dropout = json.null, unk_token = json.null, continuing_subword_prefix = json.null, end_of_word_suffix = json.null,
      fuse_unk = false, byte_fallback = false, ignore_merges = false, vocab = vocab, merges = list } }
end

--- Trains a byte-level BPE tokenizer of exactly vocab_size tokens (256 at least) on text files.
-- @usage local tok = amp.text.train_bpe({ 'a.txt' }, { vocab_size = 8000 })
-- @raise a file that cannot be read; a text that has too few pairs for so many tokens
return function(files, o)
  if type(files) == 'string' then files = { files } end
  if type(files) ~= 'table' or #files == 0 then raise(OP, 'a list of files expected, got %s', kind(files)) end
  if type(o) ~= 'table' then raise(OP, 'options {vocab_size = n} expected, got %s', kind(o)) end
  local size = options.read(OP, o, { 'vocab_size' }).vocab_size
  if type(size) ~= 'number' or size % 1 ~= 0 or size < 256 or size >= SHIFT then
    raise(OP, "the option 'vocab_size' must be a whole number from 256, got %s", tostring(size))
  end
  local split = parts.pre_tokenizer { type = 'ByteLevel', add_prefix_space = false }
  local counts, order = count_words(files, split)
  local tokens, ids = alphabet()
  local words, times = {}, {}
  for i, w in ipairs(order) do
    local list = {}
    for _, c in ipairs(u.codes(w)) do list[#list + 1] = ids[u.char(c)] end
    words[i], times[i] = list, counts[w]
  end
  local merges, have = learn(words, times, tokens, ids, size)
  if not merges then raise(OP, 'the files have pairs for %d tokens only, vocab_size is %d', have, size) end
  local text = write(tokens, merges)
  local tok = require('amp.text.tokenizer').build(json.decode(text))
  tok.text = text
  return tok
end

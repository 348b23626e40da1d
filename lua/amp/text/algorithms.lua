--- Models of a tokenizer.json: BPE, WordPiece, Unigram. Each maker gives a function (word, out, n), which puts the word's ids + 1
-- behind the first n of a list, and gives how many there are then.
local ffi = require 'ffi'
local new_trie = require('amp.text.trie').new
local spend = require('amp.text.regex').spend

local M = {}
local bytes_t = ffi.typeof 'const uint8_t *'

local CHAR = '[%z\1-\127\194-\244][\128-\191]*'
local SHIFT, PLACE = 2 ^ 24, 2 ^ 26

-- Ids of a text's bytes; nil where one is not in the vocabulary.
local function bytes_of(vocab, s, out, n)
  for i = 1, #s do
    local id = vocab[('<0x%02X>'):format(s:byte(i))]
    if not id then return nil end
    out[n + i] = id + 1
  end
  return n + #s
end

-- A heap of numbers, the least first.
local function push(h, v)
  local i = h.n + 1
  h.n = i
  while i > 1 do
    local up = (i - i % 2) / 2
    if h[up] <= v then break end
    h[i], i = h[up], up
  end
  h[i] = v
end
local function pop(h)
  local top, v, n = h[1], h[h.n], h.n - 1
  h.n = n
  local i = 1
  while true do
    local c = 2 * i
    if c > n then break end
    if c < n and h[c + 1] < h[c] then c = c + 1 end
    if h[c] >= v then break end
    h[i], i = h[c], c
  end
  h[i] = v
  return top
end

-- Few symbols: the best pair is looked for each time. Gives how many are left.
local SHORT = 20
local function join_few(ids, n, ranks, made)
  while n > 1 do
    local best, at = math.huge, 0
    for i = 1, n - 1 do
      local r = ranks[ids[i] * SHIFT + ids[i + 1]]
      if r and r < best then best, at = r, i end
    end
    if at == 0 then break end
    ids[at] = made[best]
    for i = at + 1, n - 1 do ids[i] = ids[i + 1] end
    n = n - 1
  end
  return n
end

local after, before, heap = {}, {}, { n = 0 } -- of the call of join that runs

local function offer(ids, ranks, a, b)
  local r = ranks[ids[a] * SHIFT + ids[b]]
  if r then push(heap, r * PLACE + a) end
end

-- Joins the symbols ids[1..n] by rank, then by place; O(n log n). Gives how many are left.
local function join(ids, n, ranks, made)
  if n <= SHORT then return join_few(ids, n, ranks, made) end
  heap.n = 0
  for i = 1, n do after[i], before[i] = i < n and i + 1 or 0, i - 1 end
  for i = 1, n - 1 do offer(ids, ranks, i, i + 1) end
  while heap.n > 0 do
    local key = pop(heap)
    local a = key % PLACE
    local rank = (key - a) / PLACE
    local b = ids[a] >= 0 and after[a] or 0
    if b > 0 and ranks[ids[a] * SHIFT + ids[b]] == rank then
      ids[a], ids[b], after[a] = made[rank], -1, after[b]
      if after[b] > 0 then
        before[after[b]] = a
        offer(ids, ranks, a, after[b])
      end
      if before[a] > 0 then offer(ids, ranks, before[a], a) end
    end
  end
  local left = 0
  for i = 1, n do
    if ids[i] >= 0 then
      left = left + 1
      ids[left] = ids[i]
    end
  end
  return left
end

local function merges_of(s, prefix)
  local vocab, ranks, made = s.vocab, {}, {}
  for i, m in ipairs(s.merges) do
    local a, b
    if type(m) == 'table' then a, b = m[1], m[2] else a, b = m:match '^([^ ]+) ([^ ]+)$' end
    if not vocab[a] or not vocab[b] then error(('model.merges[%d] names a token that is not in the vocabulary'):format(i), 0) end
    local whole = vocab[a .. b:sub(#prefix + 1)]
    if not whole then error(('model.merges[%d]: the joined token is not in the vocabulary'):format(i), 0) end
    ranks[vocab[a] * SHIFT + vocab[b]], made[i] = i, whole
  end
  return ranks, made
end

local function bpe(s)
  local vocab, suffix, prefix = s.vocab, s.end_of_word_suffix or '', s.continuing_subword_prefix or ''
  if s.dropout and s.dropout ~= 0 then error('model.dropout is not known: merges left out at random', 0) end
  local ranks, made = merges_of(s, prefix)
  local unk = s.unk_token and vocab[s.unk_token]
  if s.unk_token and not unk then error(("model.unk_token '%s' is not in the vocabulary"):format(s.unk_token), 0) end
  local ids = {}
  -- The symbols of a word, a character each.
  local function characters(word)
    local n, lost, size = 0, false, #word
    for at, c, stop in word:gmatch('()(' .. CHAR .. ')()') do
      local t = (at > 1 and prefix or '') .. c .. (stop > size and suffix or '')
      local id = vocab[t]
      local many = not id and s.byte_fallback and bytes_of(vocab, t, ids, n) or nil
      if id then
        n = n + 1
        ids[n], lost = id, false
      elseif many then
        for i = n + 1, many do ids[i] = ids[i] - 1 end
        n = many
      elseif unk then
        if not (s.fuse_unk and lost) then
          n = n + 1
          ids[n] = unk
        end
        lost = true
      end
    end
    return n
  end
  local function joined(k, out, n)
    spend(k)
    k = join(ids, k, ranks, made)
    for i = 1, k do out[n + i] = ids[i] + 1 end
    return n + k
  end
  local function encode(word, out, n)
    local whole = s.ignore_merges and vocab[word]
    if whole then
      out[n + 1] = whole + 1
      return n + 1
    end
    return joined(characters(word), out, n)
  end
  -- The same of a text whose bytes are the characters (pre-tokenizer ByteLevel); nil where not all bytes are in the vocabulary.
  local function of_bytes(letters)
    local first, whole = {}, s.ignore_merges and {} or nil
    if prefix ~= '' or suffix ~= '' then return nil end
    local byte_of = {}
    for b = 0, 255 do
      first[b] = vocab[letters[b]]
      if not first[b] then return nil end
      byte_of[letters[b]] = string.char(b)
    end
    for t, id in pairs(whole and vocab or {}) do
      local good = true
      local raw = t:gsub(CHAR, function(c)
        if not byte_of[c] then good = false end
        return byte_of[c]
      end)
      if good then whole[raw] = id end
    end
    return function(word, out, n)
      local id = whole and whole[word]
      if id then
        out[n + 1] = id + 1
        return n + 1
      end
      local size = #word
      for i = 1, size do ids[i] = first[word:byte(i)] end
      return joined(size, out, n)
    end
  end
  return encode, of_bytes
end

local function wordpiece(s)
  local vocab, prefix, most = s.vocab, s.continuing_subword_prefix or '##', s.max_input_chars_per_word or 100
  local unk = vocab[s.unk_token or '[UNK]']
  if not unk then error(("model.unk_token '%s' is not in the vocabulary"):format(s.unk_token or '[UNK]'), 0) end
  local trie = new_trie()
  local first, later = trie:node(), trie:node()
  for t, id in pairs(vocab) do
    if t ~= '' then trie:add(first, t, id) end
    if #t > #prefix and t:sub(1, #prefix) == prefix then trie:add(later, t, id, #prefix + 1) end
  end
  -- The longest token at a place: its id + 1 (0: none) and the place behind it.
  local function longest(p, at, size, node)
    local id, stop = 0, at
    while at < size do
      node = trie:step(node, p[at])
      if node == 0 then break end
      at = at + 1
      -- a token ends where a character does
      if trie.ids[node] > 0 and (at == size or p[at] < 0x80 or p[at] >= 0xC0) then id, stop = trie.ids[node], at end
    end
    return id, stop
  end
  local function unknown(out, n)
    out[n + 1] = unk + 1
    return n + 1
  end
  return function(word, out, n)
    local size, count, p = #word, 0, ffi.cast(bytes_t, word)
    for i = 0, size - 1 do if p[i] < 0x80 or p[i] >= 0xC0 then count = count + 1 end end
    if count > most then return unknown(out, n) end
    local k, at = n, 0
    while at < size do
      local id, stop = longest(p, at, size, at == 0 and first or later)
      spend(stop - at + 1)
      if id == 0 then
        for i = n + 2, k do out[i] = nil end
        return unknown(out, n)
      end
      k = k + 1
      out[k], at = id, stop
    end
    return k
  end
end

local room, best, from, which = 0, nil, nil, nil -- of the call of best_path that runs
local NONE, UNKNOWN = -2, -1

-- The node behind a character's bytes.
local function character_node(trie, root, p, at, len)
  local node = root
  for i = at, at + len - 1 do
    node = trie:step(node, p[i])
    if node == 0 then return 0 end
  end
  return node
end

-- A way to end `e`, better than those that are known?
local function offer_end(e, at, v, id)
  if which[e] == NONE or v > best[e] then best[e], from[e], which[e] = v, at, id end
end

-- The best way through a word: per end, where its piece begins (from) and its id (which). `first`: nodes of characters, from their bytes.
local function best_path(word, trie, root, first, score, unknown)
  local size, p, at = #word, ffi.cast(bytes_t, word), 0
  if size >= room then
    room = size * 2
    best, from, which = ffi.new('double[?]', room), ffi.new('int32_t[?]', room), ffi.new('int32_t[?]', room)
  end
  local ids = trie.ids
  for e = 1, size do which[e] = NONE end
  best[0] = 0
  while at < size do
    local key = p[at]
    local len = key < 0x80 and 1 or key < 0xE0 and 2 or key < 0xF0 and 3 or 4
    for i = at + 1, at + len - 1 do key = key * 256 + p[i] end
    local here, node, e = best[at], first[key], at + len
    if not node then
      node = character_node(trie, root, p, at, len)
      first[key] = node
    end
    local id = node > 0 and ids[node] or 0
    if id > 0 then offer_end(e, at, here + score[id - 1], id - 1) else offer_end(e, at, here + unknown, UNKNOWN) end
    while node > 0 and e < size do
      node = trie:step(node, p[e])
      e = e + 1
      id = ids[node]
      if id > 0 and (e == size or p[e] < 0x80 or p[e] >= 0xC0) then offer_end(e, at, here + score[id - 1], id - 1) end
    end
    spend(e - at + 1)
    at = at + len
  end
end

-- A number as the reference package reads it: its digits as a whole number, over a power of ten. That is not always the nearest
-- double, and between equal sums the last bit decides.
local function as_read(v)
  local text
  for digits = 15, 17 do
    text = ('%.' .. digits .. 'g'):format(v)
    if tonumber(text) == v then break end
  end
  local sign, whole, part, exponent = text:match '^(-?)(%d+)%.?(%d*)e?([-+]?%d*)$'
  if not whole then return v end
  local power = (tonumber(exponent) or 0) - #part
  local number = 0ULL
  for c in (whole .. part):gmatch '%d' do number = number * 10 + (c:byte() - 48) end
  if math.abs(power) > 22 then return v end
  local f = tonumber(number)
  f = power < 0 and f / 10 ^ -power or f * 10 ^ power
  return sign == '-' and -f or f
end

local function unigram(s)
  local vocab, score, least = {}, {}, math.huge
  local trie = new_trie()
  local root = trie:node()
  for i, v in ipairs(s.vocab) do
    vocab[v[1]], score[i - 1] = i - 1, as_read(v[2])
    least = math.min(least, v[2])
  end
  for t, id in pairs(vocab) do
    if t ~= '' then trie:add(root, t, id) end
  end
  local unk = s.unk_id
  if unk and not score[unk] then error(('model.unk_id %s is not in the vocabulary'):format(unk), 0) end
  local ends, first = {}, {}
  return function(word, out, n)
    best_path(word, trie, root, first, score, least - 10)
    local i, e = 0, #word
    while e > 0 do
      i = i + 1
      ends[i], e = e, from[e]
    end
    while i >= 1 do
      local start, id = from[ends[i]] + 1, which[ends[i]]
      while id == UNKNOWN and i > 1 and which[ends[i - 1]] == UNKNOWN do i = i - 1 end -- several in a row are one
      local many = id == UNKNOWN and s.byte_fallback and bytes_of(vocab, word:sub(start, ends[i]), out, n)
      if many then n = many
      else
        if id == UNKNOWN then id = unk or error('the text has a character that is not in the vocabulary, and the model has no unk_id', 0) end
        n = n + 1
        out[n] = id + 1
      end
      i = i - 1
    end
    return n
  end, nil, vocab
end

local function wordlevel(s)
  local unk = s.vocab[s.unk_token or '<unk>']
  return function(word, out, n)
    local id = s.vocab[word] or unk
    if not id then error('the text has a word that is not in the vocabulary, and the model has no unk_token', 0) end
    out[n + 1] = id + 1
    return n + 1
  end
end

--- The model of a file.
-- @treturn function (word, out, n), see above
-- @treturn ?function of_bytes(letters): the same for words before ByteLevel made letters of their bytes, or nil
-- @treturn table its vocabulary: token -> id from 0
function M.model(s)
  local k = s.type or s.merges and 'BPE' or s.vocab[1] and 'Unigram' or 'WordPiece'
  if k == 'Unigram' then return unigram(s) end
  local make = k == 'BPE' and bpe or k == 'WordPiece' and wordpiece or k == 'WordLevel' and wordlevel
  if not make then error(("the model '%s' is not known"):format(tostring(k)), 0) end
  local model, of_bytes = make(s)
  return model, of_bytes, s.vocab
end

return M

--- Models of a tokenizer.json: BPE, WordPiece, Unigram. Each maker gives a function (word, put(id)).
local M = {}

local CHAR = '[%z\1-\127\194-\244][\128-\191]*'
local SHIFT, PLACE = 2 ^ 24, 2 ^ 26

local function bytes_of(vocab, s, put)
  local ids = {}
  for i = 1, #s do
    ids[i] = vocab[('<0x%02X>'):format(s:byte(i))]
    if not ids[i] then return false end
  end
  for i = 1, #ids do put(ids[i]) end
  return true
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

-- Joins the symbols ids[1..n] by rank, then by place; O(n log n).
local function join(ids, n, ranks, made)
  local after, before, heap = {}, {}, { n = 0 }
  local function offer(a, b)
    local r = ranks[ids[a] * SHIFT + ids[b]]
    if r then push(heap, r * PLACE + a) end
  end
  for i = 1, n do after[i], before[i] = i < n and i + 1 or 0, i - 1 end
  for i = 1, n - 1 do offer(i, i + 1) end
  while heap.n > 0 do
    local key = pop(heap)
    local a = key % PLACE
    local b = ids[a] and after[a] or 0
    if b > 0 and ranks[ids[a] * SHIFT + ids[b]] == (key - a) / PLACE then
      ids[a], ids[b], after[a] = made[(key - a) / PLACE], false, after[b]
      if after[b] > 0 then before[after[b]] = a offer(a, after[b]) end
      if before[a] > 0 then offer(before[a], a) end
    end
  end
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
  return function(word, put)
    if s.ignore_merges and vocab[word] then return put(vocab[word]) end
    local ids, n, lost, size = {}, 0, false, #word
    local function add(id) n = n + 1 ids[n] = id end
    for at, c, stop in word:gmatch('()(' .. CHAR .. ')()') do
      local t = (at > 1 and prefix or '') .. c .. (stop > size and suffix or '')
      local id = vocab[t]
      if id then
        add(id)
        lost = false
      elseif not (s.byte_fallback and bytes_of(vocab, t, add)) and unk then
        if not (s.fuse_unk and lost) then add(unk) end
        lost = true
      end
    end
    join(ids, n, ranks, made)
    for i = 1, n do if ids[i] then put(ids[i]) end end
  end
end

local function wordpiece(s)
  local vocab, prefix, most = s.vocab, s.continuing_subword_prefix or '##', s.max_input_chars_per_word or 100
  local unk = vocab[s.unk_token or '[UNK]']
  if not unk then error(("model.unk_token '%s' is not in the vocabulary"):format(s.unk_token or '[UNK]'), 0) end
  return function(word, put)
    local ends = {}
    for e in word:gmatch(CHAR .. '()') do ends[#ends + 1] = e - 1 end
    if #ends > most then return put(unk) end
    local out, at, n = {}, 1, 0
    while at <= #word do
      local id
      for i = #ends, n + 1, -1 do
        id = vocab[(at > 1 and prefix or '') .. word:sub(at, ends[i])]
        if id then at, n = ends[i] + 1, i break end
      end
      if not id then return put(unk) end
      out[#out + 1] = id
    end
    for i = 1, #out do put(out[i]) end
  end
end

-- The best way through a word: per end, where its piece begins and its id.
local function best_path(word, vocab, score, longest, unknown)
  local best, from, which, n, at = { [0] = 0 }, {}, {}, #word, 0
  while at < n do
    local first, single = word:byte(at + 1), false
    local len = first < 0x80 and 1 or first < 0xE0 and 2 or first < 0xF0 and 3 or 4
    for e = at + len, math.min(n, at + longest) do
      local id = vocab[word:sub(at + 1, e)]
      if id then
        local v = best[at] + score[id]
        if not best[e] or v > best[e] then best[e], from[e], which[e] = v, at, id end
        single = single or e == at + len
      end
    end
    if not single then
      local e, v = at + len, best[at] + unknown
      if not best[e] or v > best[e] then best[e], from[e], which[e] = v, at, false end
    end
    at = at + len
  end
  return from, which
end

local function unigram(s)
  local vocab, score, longest, least = {}, {}, 1, math.huge
  for i, v in ipairs(s.vocab) do
    vocab[v[1]], score[i - 1] = i - 1, v[2]
    longest, least = math.max(longest, #v[1]), math.min(least, v[2])
  end
  local unk = s.unk_id
  if unk and not score[unk] then error(('model.unk_id %s is not in the vocabulary'):format(unk), 0) end
  return function(word, put)
    local from, which = best_path(word, vocab, score, longest, least - 10)
    local list, e = {}, #word
    while e > 0 do
      list[#list + 1] = e
      e = from[e]
    end
    local i = #list
    while i >= 1 do
      e = list[i]
      local start, id = from[e] + 1, which[e]
      while not id and list[i - 1] and not which[list[i - 1]] do i = i - 1 end
      if id then put(id)
      elseif not (s.byte_fallback and bytes_of(vocab, word:sub(start, list[i]), put)) then
        if not unk then error('the text has a character that is not in the vocabulary, and the model has no unk_id', 0) end
        put(unk)
      end
      i = i - 1
    end
  end, vocab
end

local function wordlevel(s)
  local unk = s.vocab[s.unk_token or '<unk>']
  return function(word, put)
    local id = s.vocab[word] or unk
    if not id then error('the text has a word that is not in the vocabulary, and the model has no unk_token', 0) end
    put(id)
  end
end

--- The model of a file, and its vocabulary: token -> id from 0.
function M.model(s)
  local k = s.type or s.merges and 'BPE' or s.vocab[1] and 'Unigram' or 'WordPiece'
  if k == 'Unigram' then return unigram(s) end
  local make = k == 'BPE' and bpe or k == 'WordPiece' and wordpiece or k == 'WordLevel' and wordlevel
  if not make then error(("the model '%s' is not known"):format(tostring(k)), 0) end
  return make(s), s.vocab
end

return M

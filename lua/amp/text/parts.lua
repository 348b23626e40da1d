--- Parts of a tokenizer.json: normalizers and pre-tokenizers. Each maker gives a function; an unknown part is an error.
local bit = require 'bit'
local regex = require 'amp.text.regex'
local u = require 'amp.text.unicode'
local band, class, spend = bit.band, u.class, regex.spend

local M = {}
local function unknown(what, t) error(("the %s '%s' is not known"):format(what, tostring(t)), 0) end
local GPT2 = [['s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+]]

local function literal(p) return p.Regex and regex.compile(p.Regex) or regex.compile((p.String:gsub('[%^%$%(%)%.%[%]%*%+%?{}|\\]', '\\%0'))) end

-- -- Normalizers: codes -> codes ------------------------------------------------------------------

-- Those without the bits.
local function without(t, m)
  local out, n = {}, 0
  for i = 1, #t do
    local c = t[i]
    if band(class[c], m) == 0 then
      n = n + 1
      out[n] = c
    end
  end
  return out
end
local function strip_accents(t) return without(t, u.mask 'M') end
local function slice(t, a, b)
  local out = {}
  for i = a, b do out[i - a + 1] = t[i] end
  return out
end
local function wide(c)
  return c >= 0x4E00 and c <= 0x9FFF or c >= 0x3400 and c <= 0x4DBF or c >= 0x20000 and c <= 0x2A6DF or c >= 0x2A700 and c <= 0x2B73F
    or c >= 0x2B740 and c <= 0x2B81F or c >= 0x2B920 and c <= 0x2CEAF or c >= 0xF900 and c <= 0xFAFF or c >= 0x2F800 and c <= 0x2FA1F
end
local function bert(s)
  local accents, clean, spaced = s.strip_accents, s.clean_text, s.handle_chinese_chars
  if accents == nil then accents = s.lowercase end
  local white, other, marks = u.mask 'white', bit.bor(u.mask 'Cc', u.mask 'Cf', u.mask 'Co'), u.mask 'Mn'
  return function(t)
    local out, n = {}, 0
    for i = 1, #t do
      local c = t[i]
      local kinds = class[c]
      if not (clean and (c == 0 or c == 0xFFFD or band(kinds, other) ~= 0 and c ~= 9 and c ~= 10 and c ~= 13)) then
        if clean and band(kinds, white) ~= 0 then c = 32 end
        local apart = spaced and c >= 0x3400 and wide(c)
        if apart then out[n + 1], n = 32, n + 1 end
        n = n + 1
        out[n] = c
        if apart then out[n + 1], n = 32, n + 1 end
      end
    end
    if accents then out = without(u.nfd(out), marks) end
    return s.lowercase and u.lower(out) or out
  end
end
local function strip(s)
  return function(t)
    local a, b = 1, #t
    if s.strip_left then while a <= b and u.white(t[a]) do a = a + 1 end end
    if s.strip_right then while b >= a and u.white(t[b]) do b = b - 1 end end
    return slice(t, a, b)
  end
end
function M.normalizer(s)
  local k = s.type
  if k == 'NFC' then return u.nfc elseif k == 'NFD' then return u.nfd elseif k == 'NFKC' then return u.nfkc elseif k == 'NFKD' then return u.nfkd
  elseif k == 'Lowercase' then return u.lower elseif k == 'StripAccents' then return strip_accents
  elseif k == 'BertNormalizer' then return bert(s) elseif k == 'Strip' then return strip(s)
  elseif k == 'Precompiled' then return require('amp.text.precompiled').normalizer(s)
  elseif k == 'Prepend' then return function(t) return #t == 0 and t or u.codes(s.prepend .. u.text(t)) end
  elseif k == 'Replace' then
    local find, to = literal(s.pattern), u.codes(s.content)
    return function(t)
      local out, at = {}, 1
      while true do
        local a, b = find(t, at)
        for i = at, (a or #t + 1) - 1 do out[#out + 1] = t[i] end
        if not a then return at == 1 and t or out end
        spend(#to)
        for _, c in ipairs(to) do out[#out + 1] = c end
        at = b
      end
    end
  elseif k == 'Sequence' then
    local list = {}
    for i, n in ipairs(s.normalizers) do list[i] = M.normalizer(n) end
    return function(t) for _, f in ipairs(list) do t = f(t) end return t end
  end
  unknown('normalizer', k)
end

-- -- Pre-tokenizers: (codes, first) -> list of codes ----------------------------------------------------

-- Places of pieces by a search, as first, last, first, last...; behavior as the file says.
local function places(t, find, behavior, invert)
  local out, n, at, stop = {}, 0, 1, #t
  local before = nil -- whether the last piece was a hit
  local from, last, hit = 1, 0, invert or false
  while true do
    if last >= from then
      if behavior == 'Removed' then
        if not hit then out[n + 1], out[n + 2], n = from, last, n + 2 end
      elseif behavior == 'MergedWithPrevious' and hit and before == false or behavior == 'Contiguous' and hit == before
        or behavior == 'MergedWithNext' and before and not hit then out[n] = last
      else out[n + 1], out[n + 2], n = from, last, n + 2 end
      before = hit
    end
    if last >= stop then return out end
    if hit ~= (invert or false) or at == 1 and last == 0 then -- what lies before the next match
      local a, b = find(t, at)
      from, last, hit = at, (a or stop + 1) - 1, invert or false
      at = a and b or stop + 1
      if not a then at = stop + 1 end
    else -- the match itself
      from, last, hit = last + 1, at - 1, not invert
    end
  end
end
local function cut(t, find, behavior, invert)
  local list = places(t, find, behavior, invert)
  local out = {}
  for i = 1, #list, 2 do out[(i + 1) / 2] = slice(t, list[i], list[i + 1]) end
  return out
end
local function by_mask(m, runs)
  return function(t, at)
    local c = t[at]
    while c and band(class[c], m) == 0 do
      at = at + 1
      c = t[at]
    end
    if not c then return nil end
    local stop = at + 1
    while runs and t[stop] and band(class[t[stop]], m) ~= 0 do stop = stop + 1 end
    return at, stop
  end
end
local function by_code(code)
  return function(t, at)
    while t[at] do
      if t[at] == code then return at, at + 1 end
      at = at + 1
    end
  end
end

local bytes = {}
do
  local n = 0
  for b = 0, 255 do
    if b >= 33 and b <= 126 or b >= 161 and b <= 172 or b >= 174 then bytes[b] = u.char(b) else bytes[b], n = u.char(256 + n), n + 1 end
  end
end
M.bytes = bytes
local byte_codes = {}
for b = 0, 255 do byte_codes[b] = u.codes(bytes[b])[1] end

local function metaspace(s)
  local mark = u.codes(s.replacement or '\226\150\129')
  local find = by_code(mark[1])
  local scheme = s.prepend_scheme or (s.add_prefix_space == false and 'never' or 'always')
  return function(t, first)
    local out, n = {}, 0
    if (scheme == 'always' or scheme == 'first' and first) and t[1] ~= mark[1] and t[1] ~= 32 then out[1], n = mark[1], 1 end
    for i = 1, #t do out[n + i] = t[i] == 32 and mark[1] or t[i] end
    if s.split == false then return { out } end
    return cut(out, find, 'MergedWithNext')
  end
end

-- Codes of a piece as the codes of its bytes' characters.
local function byte_level(t)
  local text, out = u.text(t), {}
  for i = 1, #text do out[i] = byte_codes[text:byte(i)] end
  return out
end

-- One after the other.
local function chain(list)
  local makers = {}
  for i, n in ipairs(list) do makers[i] = M.pre_tokenizer(n) end
  return function(t, first)
    local now = { t }
    for _, f in ipairs(makers) do
      local out = {}
      for i, p in ipairs(now) do for _, q in ipairs(f(p, first and i == 1)) do out[#out + 1] = q end end
      now = out
    end
    return now
  end
end

function M.pre_tokenizer(s)
  local k = s.type
  if k == 'ByteLevel' then
    local find = s.use_regex ~= false and regex.compile(GPT2)
    return function(t)
      if s.add_prefix_space and t[1] ~= 32 then table.insert(t, 1, 32) end
      local out = find and cut(t, find, 'Isolated') or { t }
      for i = 1, #out do out[i] = byte_level(out[i]) end
      return out
    end
  elseif k == 'Split' then
    local find = literal(s.pattern)
    return function(t) return cut(t, find, s.behavior, s.invert) end
  elseif k == 'Whitespace' then
    local find = regex.compile [[\w+|[^\w\s]+]]
    return function(t) return cut(t, find, 'Removed', true) end
  elseif k == 'WhitespaceSplit' then
    local find = by_mask(u.mask 'white', true)
    return function(t) return cut(t, find, 'Removed') end
  elseif k == 'BertPreTokenizer' then
    local white, punctuation = by_mask(u.mask 'white', true), by_mask(u.mask 'punctuation')
    return function(t)
      local out = {}
      for _, p in ipairs(cut(t, white, 'Removed')) do
        for _, q in ipairs(cut(p, punctuation, 'Isolated')) do out[#out + 1] = q end
      end
      return out
    end
  elseif k == 'Punctuation' then
    local find = by_mask(u.mask 'punctuation')
    return function(t) return cut(t, find, s.behavior or 'Isolated') end
  elseif k == 'Digits' then
    local find = by_mask(u.mask 'N', not s.individual_digits)
    return function(t) return cut(t, find, 'Isolated') end
  elseif k == 'Metaspace' then return metaspace(s)
  elseif k == 'Sequence' then return chain(s.pretokenizers) end
  unknown('pre-tokenizer', k)
end

-- -- Pieces whose ids depend on nothing around them ------------------------------------------------------------

local function positional(list)
  for _, s in ipairs(list) do
    if s.type == 'Sequence' and positional(s.pretokenizers) or s.type == 'Metaspace' and s.prepend_scheme == 'first' then return true end
  end
  return false
end

--- A pre-tokenizer that begins with a search for pieces.
-- @treturn ?function find(codes, at), as a regular expression's
-- @treturn ?function pieces (codes) -> list of codes: what is done with such a piece
-- @treturn ?boolean the text begins with a space, which is put there where it lacks
-- @treturn ?boolean what is done is that bytes become letters, and nothing else
function M.search(s)
  local list = s.type == 'Sequence' and s.pretokenizers or { s }
  local head, others = list[1], {}
  for i = 2, #list do others[i - 1] = list[i] end
  if not head or positional(others) then return nil end
  if head.type == 'Split' and head.behavior == 'Isolated' and not head.invert then
    local only = #others == 1 and others[1]
    return literal(head.pattern), chain(others), false, only and only.type == 'ByteLevel' and only.use_regex == false and not only.add_prefix_space
  end
  if head.type ~= 'ByteLevel' or head.use_regex == false then return nil end
  local rest = #others > 0 and chain(others)
  return regex.compile(GPT2), function(t)
    t = byte_level(t)
    return rest and rest(t) or { t }
  end, head.add_prefix_space, not rest
end

local by_character = { NFC = true, NFD = true, NFKC = true, NFKD = true, Lowercase = true, StripAccents = true, BertNormalizer = true }

-- Several spaces become one.
local function joins_spaces(s)
  return s.type == 'Replace' and s.content == ' ' and (s.pattern.Regex == ' {2,}' or s.pattern.Regex == ' +' or s.pattern.String == '  ')
end

local function local_normalizer(s)
  if s == nil or by_character[s.type] or joins_spaces(s) then return true end
  if s.type ~= 'Sequence' then return s.type == 'Precompiled' end
  for _, n in ipairs(s.normalizers) do
    if not local_normalizer(n) then return false end
  end
  return true
end

local function plain_metaspace(s)
  return s.type == 'Metaspace' and (s.replacement or '\226\150\129') == '\226\150\129' and s.add_prefix_space ~= false and s.prepend_scheme ~= 'never'
end

--- How a text may be cut before anything is done to it.
-- @treturn ?string 'words' (at white space, which no token holds), 'bert' (at punctuation and wide characters as well), 'spaced' (before
-- spaces), nil: not at all
-- @treturn ?string what stands before a piece that is one word; nil: pieces need not be one
function M.local_pieces(normalizer, s)
  local list = s.type == 'Sequence' and s.pretokenizers or { s }
  local head = list[1]
  if not head or positional(list) or not local_normalizer(normalizer) then return nil end
  if head.type == 'BertPreTokenizer' and normalizer and normalizer.type == 'BertNormalizer' and normalizer.handle_chinese_chars then return 'bert', '' end
  if head.type == 'WhitespaceSplit' and #list == 1 then return 'words', '' end
  if head.type == 'WhitespaceSplit' and #list == 2 and plain_metaspace(list[2]) then return 'words', '\226\150\129' end
  if head.type == 'BertPreTokenizer' or head.type == 'Whitespace' or head.type == 'WhitespaceSplit' then return 'words' end
  if head.type == 'Metaspace' and #list == 1 and head.split ~= false then return 'spaced', plain_metaspace(head) and '\226\150\129' or nil end
  return nil
end

return M

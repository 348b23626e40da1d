--- Parts of a tokenizer.json: normalizers and pre-tokenizers. Each maker gives a function; an unknown part is an error.
local regex = require 'amp.text.regex'
local u = require 'amp.text.unicode'

local M = {}
local function unknown(what, t) error(("the %s '%s' is not known"):format(what, tostring(t)), 0) end
local GPT2 = [['s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+]]

local function literal(p) return p.Regex and regex.compile(p.Regex) or regex.compile((p.String:gsub('[%^%$%(%)%.%[%]%*%+%?{}|\\]', '\\%0'))) end

-- -- Normalizers: codes -> codes ------------------------------------------------------------------

local function filter(t, keep)
  local out = {}
  for _, c in ipairs(t) do if keep(c) then out[#out + 1] = c end end
  return out
end
local function strip_marks(t, name)
  local marks = u.set(name)
  return filter(t, function(c) return not marks[c] end)
end
local function strip_accents(t) return strip_marks(t, 'M') end
local function slice(t, a, b)
  local out = {}
  for i = a, b do out[i - a + 1] = t[i] end
  return out
end
local function bert(s)
  local cjk = { { 0x4E00, 0x9FFF }, { 0x3400, 0x4DBF }, { 0x20000, 0x2A6DF }, { 0x2A700, 0x2B73F }, { 0x2B740, 0x2B81F },
    { 0x2B920, 0x2CEAF }, { 0xF900, 0xFAFF }, { 0x2F800, 0x2FA1F } }
  local accents = s.strip_accents
  if accents == nil then accents = s.lowercase end
  return function(t)
    local cc, cf, co, out = u.set 'Cc', u.set 'Cf', u.set 'Co', {}
    for _, c in ipairs(t) do
      local space = u.white[c]
      local dropped = s.clean_text and (c == 0 or c == 0xFFFD or not (c == 9 or c == 10 or c == 13) and (cc[c] or cf[c] or co[c]))
      if not dropped then
        if s.clean_text and space then c = 32 end
        local wide = false
        if s.handle_chinese_chars then
          for _, r in ipairs(cjk) do wide = wide or c >= r[1] and c <= r[2] end
        end
        if wide then out[#out + 1] = 32 end
        out[#out + 1] = c
        if wide then out[#out + 1] = 32 end
      end
    end
    if accents then out = strip_marks(u.nfd(out), 'Mn') end
    return s.lowercase and u.lower(out) or out
  end
end
local function strip(s)
  return function(t)
    local a, b = 1, #t
    if s.strip_left then while a <= b and u.white[t[a]] do a = a + 1 end end
    if s.strip_right then while b >= a and u.white[t[b]] do b = b - 1 end end
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
        if not a then return out end
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

-- Pieces by a search; behavior as the file says.
local function cut(t, find, behavior, invert)
  local parts, at = {}, 1
  local function add(a, b, hit) if b >= a then parts[#parts + 1] = { a, b, hit ~= (invert or false) } end end
  while at <= #t do
    local a, b = find(t, at)
    add(at, (a or #t + 1) - 1, false)
    if not a then break end
    add(a, b - 1, true)
    at = b
  end
  local out, before = {}, nil
  for _, p in ipairs(parts) do
    local last = out[#out]
    if behavior == 'Removed' then if not p[3] then out[#out + 1] = p end
    elseif behavior == 'MergedWithPrevious' and p[3] and before == false or behavior == 'Contiguous' and p[3] == before
      or behavior == 'MergedWithNext' and before and not p[3] then last[2] = p[2]
    else out[#out + 1] = { p[1], p[2] } end
    before = p[3]
  end
  for i, p in ipairs(out) do out[i] = slice(t, p[1], p[2]) end
  return out
end
local function by_test(test) return function(t, at) for i = at, #t do if test(t[i]) then return i, i + 1 end end end end
local function by_run(test)
  return function(t, at)
    for i = at, #t do
      if test(t[i]) then
        local j = i
        while t[j] and test(t[j]) do j = j + 1 end
        return i, j
      end
    end
  end
end
local function is_white(c) return u.white[c] end

local bytes = {}
do
  local n = 0
  for b = 0, 255 do
    if b >= 33 and b <= 126 or b >= 161 and b <= 172 or b >= 174 then bytes[b] = u.char(b) else bytes[b], n = u.char(256 + n), n + 1 end
  end
end
M.bytes = bytes

local function metaspace(s)
  local mark = u.codes(s.replacement or '\226\150\129')
  local scheme = s.prepend_scheme or (s.add_prefix_space == false and 'never' or 'always')
  return function(t, first)
    local out = {}
    for i, c in ipairs(t) do out[i] = c == 32 and mark[1] or c end
    if (scheme == 'always' or scheme == 'first' and first) and out[1] ~= mark[1] then table.insert(out, 1, mark[1]) end
    if s.split == false then return { out } end
    return cut(out, by_test(function(c) return c == mark[1] end), 'MergedWithNext')
  end
end

function M.pre_tokenizer(s)
  local k = s.type
  if k == 'ByteLevel' then
    local find = s.use_regex ~= false and regex.compile(GPT2)
    return function(t)
      if s.add_prefix_space and t[1] ~= 32 then table.insert(t, 1, 32) end
      local out = find and cut(t, find, 'Isolated') or { t }
      for i, p in ipairs(out) do out[i] = u.codes((u.text(p):gsub('.', function(c) return bytes[c:byte()] end))) end
      return out
    end
  elseif k == 'Split' then
    local find = literal(s.pattern)
    return function(t) return cut(t, find, s.behavior, s.invert) end
  elseif k == 'Whitespace' then
    local find = regex.compile [[\w+|[^\w\s]+]]
    return function(t) return cut(t, find, 'Removed', true) end
  elseif k == 'WhitespaceSplit' then return function(t) return cut(t, by_test(is_white), 'Removed') end
  elseif k == 'BertPreTokenizer' then
    return function(t)
      local out = {}
      for _, p in ipairs(cut(t, by_test(is_white), 'Removed')) do
        for _, q in ipairs(cut(p, by_test(u.punctuation), 'Isolated')) do out[#out + 1] = q end
      end
      return out
    end
  elseif k == 'Punctuation' then return function(t) return cut(t, by_test(u.punctuation), s.behavior or 'Isolated') end
  elseif k == 'Digits' then
    local function digit(c) return u.set('N')[c] end
    return function(t) return cut(t, (s.individual_digits and by_test or by_run)(digit), 'Isolated') end
  elseif k == 'Metaspace' then return metaspace(s)
  elseif k == 'Sequence' then
    local list = {}
    for i, n in ipairs(s.pretokenizers) do list[i] = M.pre_tokenizer(n) end
    return function(t, first)
      local now = { t }
      for _, f in ipairs(list) do
        local out = {}
        for i, p in ipairs(now) do for _, q in ipairs(f(p, first and i == 1)) do out[#out + 1] = q end end
        now = out
      end
      return now
    end
  end
  unknown('pre-tokenizer', k)
end

return M

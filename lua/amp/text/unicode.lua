--- Unicode for tokenizers: code points, categories, lower case, normal forms.
local data = require 'amp.text.unicode_data'

local M = {}
local byte, char, floor = string.byte, string.char, math.floor

--- Code points of a text; a byte that is not UTF-8 becomes U+FFFD.
function M.codes(s)
  local out, n, i, len = {}, 0, 1, #s
  while i <= len do
    local c = byte(s, i)
    local need = c < 0x80 and 0 or c >= 0xF0 and c < 0xF5 and 3 or c >= 0xE0 and c < 0xF0 and 2 or c >= 0xC2 and c < 0xE0 and 1 or -1
    local v = need == 0 and c or need == 1 and c - 0xC0 or need == 2 and c - 0xE0 or c - 0xF0
    for k = 1, need do
      local d = byte(s, i + k)
      if not d or d < 0x80 or d > 0xBF then need = -1 break end
      v = v * 64 + d - 0x80
    end
    if need < 0 then v, need = 0xFFFD, 0 end
    n = n + 1
    out[n], i = v, i + need + 1
  end
  return out, n
end

local cache = {}
function M.char(c)
  local s = cache[c]
  if s then return s end
  if c < 0x80 then s = char(c)
  elseif c < 0x800 then s = char(0xC0 + floor(c / 64), 0x80 + c % 64)
  elseif c < 0x10000 then s = char(0xE0 + floor(c / 4096), 0x80 + floor(c / 64) % 64, 0x80 + c % 64)
  else s = char(0xF0 + floor(c / 262144), 0x80 + floor(c / 4096) % 64, 0x80 + floor(c / 64) % 64, 0x80 + c % 64) end
  cache[c] = s
  return s
end

--- The text of code points from..to.
function M.text(codes, from, to)
  local out, n = {}, 0
  for i = from or 1, to or #codes do
    n = n + 1
    out[n] = M.char(codes[i])
  end
  return table.concat(out)
end

local sets = {}
--- A set of the code points of a category, as a table code -> true.
function M.set(name)
  if sets[name] then return sets[name] end
  local text = data[name]
  if not text or text:find '=' then return nil end
  local out, at = {}, 0
  for gap, n in text:gmatch '(%w+),(%w+)' do
    local first = at + tonumber(gap, 36)
    at = first + tonumber(n, 36)
    for c = first, at - 1 do out[c] = true end
  end
  sets[name] = out
  return out
end

local maps = {}
local function map(name)
  if maps[name] then return maps[name] end
  local out, at = {}, 0
  for gap, list in data[name]:gmatch '(%w+)=([%w,]+)' do
    at = at + tonumber(gap, 36)
    local to = {}
    for c in list:gmatch '%w+' do to[#to + 1] = tonumber(c, 36) end
    out[at] = to
  end
  maps[name] = out
  return out
end

local white = { [32] = true, [0x85] = true, [0xA0] = true, [0x1680] = true, [0x2028] = true, [0x2029] = true, [0x202F] = true,
  [0x205F] = true, [0x3000] = true }
for c = 9, 13 do white[c] = true end
for c = 0x2000, 0x200A do white[c] = true end
M.white = white

function M.lower(codes)
  local lower, out = map 'lower', {}
  for _, c in ipairs(codes) do
    for _, d in ipairs(lower[c] or { c }) do out[#out + 1] = d end
  end
  return out
end

-- Forms younger than the tables that published vocabularies were made with stay as they are.
local function young(c)
  return c == 0x32FF or c == 0x1F16C or c >= 0xA7F2 and c <= 0xA7F4 or c >= 0x10780 and c <= 0x107BA or c >= 0x1FBF0 and c <= 0x1FBF9
end

local function decompose(codes, compatible)
  local canonical, other, class, out = map 'canonical', compatible and map 'compatible', map 'class', {}
  local function put(c)
    if c >= 0xAC00 and c < 0xD7A4 then
      local s = c - 0xAC00
      out[#out + 1], out[#out + 2] = 0x1100 + floor(s / 588), 0x1161 + floor(s % 588 / 28)
      if s % 28 > 0 then out[#out + 1] = 0x11A7 + s % 28 end
      return
    end
    local to = canonical[c] or other and not young(c) and other[c]
    if not to then out[#out + 1] = c return end
    for _, d in ipairs(to) do put(d) end
  end
  for _, c in ipairs(codes) do put(c) end
  local i, n = 1, #out
  while i <= n do -- marks in the order of their classes, stable
    if not class[out[i]] then i = i + 1
    else
      local j = i
      while j <= n and class[out[j]] do j = j + 1 end
      if j - i > 1 then
        local run = {}
        for k = i, j - 1 do run[#run + 1] = { class[out[k]][1], k, out[k] } end
        table.sort(run, function(a, b) if a[1] ~= b[1] then return a[1] < b[1] end return a[2] < b[2] end)
        for k, r in ipairs(run) do out[i + k - 1] = r[3] end
      end
      i = j
    end
  end
  return out
end

local pairs_of
local function compose(codes)
  if not pairs_of then
    pairs_of = {}
    for c, to in pairs(map 'composed') do pairs_of[to[1] * 0x110000 + to[2]] = c end
  end
  local class, out, starter, last = map 'class', {}, nil, 0
  for _, c in ipairs(codes) do
    local k = class[c] and class[c][1] or 0
    local s, made = starter and out[starter], nil
    if s and (last < k or last == 0 and starter == #out) then
      if s >= 0x1100 and s < 0x1113 and c >= 0x1161 and c < 0x1176 then made = 0xAC00 + (s - 0x1100) * 588 + (c - 0x1161) * 28
      elseif s >= 0xAC00 and s < 0xD7A4 and (s - 0xAC00) % 28 == 0 and c > 0x11A7 and c < 0x11C3 then made = s + c - 0x11A7
      else made = pairs_of[s * 0x110000 + c] end
    end
    if made then out[starter] = made
    else
      out[#out + 1] = c
      if k == 0 then starter, last = #out, 0 else last = k end
    end
  end
  return out
end

function M.nfd(codes) return decompose(codes, false) end
function M.nfkd(codes) return decompose(codes, true) end
function M.nfc(codes) return compose(decompose(codes, false)) end
function M.nfkc(codes) return compose(decompose(codes, true)) end

function M.punctuation(c)
  if c < 128 then return c > 32 and c < 48 or c > 57 and c < 65 or c > 90 and c < 97 or c > 122 and c < 127 end
  return M.set('P')[c] == true
end

local words
--- A character of a word, as \w has it: letters, marks, digits, letter numbers, joining punctuation.
function M.word(c)
  if not words then
    words = {}
    for _, name in ipairs { 'L', 'M', 'Nd', 'Nl', 'Pc' } do
      for k in pairs(M.set(name)) do words[k] = true end
    end
    for _, r in ipairs { { 0x24B6, 0x24E9 }, { 0x1F130, 0x1F149 }, { 0x1F150, 0x1F169 }, { 0x1F170, 0x1F189 }, { 0x200C, 0x200D } } do
      for k = r[1], r[2] do words[k] = true end
    end
  end
  return words[c] == true
end

-- Bytes of the character at i, and whether they are UTF-8; else those of the longest beginning of one.
local function extent(s, i)
  local c = byte(s, i)
  if c < 0x80 then return 1, true end
  local need = c >= 0xF0 and c < 0xF5 and 3 or c >= 0xE0 and c < 0xF0 and 2 or c >= 0xC2 and c < 0xE0 and 1 or 0
  local low, high = 0x80, 0xBF
  if c == 0xE0 then low = 0xA0 elseif c == 0xED then high = 0x9F elseif c == 0xF0 then low = 0x90 elseif c == 0xF4 then high = 0x8F end
  for k = 1, need do
    local d = byte(s, i + k)
    if not d or d < low or d > high then return k, false end
    low, high = 0x80, 0xBF
  end
  return need + 1, need > 0
end

--- Whether a text is UTF-8.
function M.valid(s)
  local i = 1
  while i <= #s do
    local n, ok = extent(s, i)
    if not ok then return false end
    i = i + n
  end
  return true
end

--- The text with U+FFFD for each part that is not UTF-8.
function M.lossy(s)
  if not s:find '[\128-\255]' or M.valid(s) then return s end
  local out, i = {}, 1
  while i <= #s do
    local n, ok = extent(s, i)
    out[#out + 1] = ok and s:sub(i, i + n - 1) or '\239\191\189'
    i = i + n
  end
  return table.concat(out)
end

return M

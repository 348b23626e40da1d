--- Unicode for tokenizers: code points, categories, lower case, normal forms.
local data = require 'amp.text.unicode_data'

local M = {}
local bit = require 'bit'
local ffi = require 'ffi'
local has_new, new_table = pcall(require, 'table.new')
if not has_new then new_table = function() return {} end end
local bytes_t = ffi.typeof 'const uint8_t *'
local byte, char, floor = string.byte, string.char, math.floor
local band, bor = bit.band, bit.bor

--- Code points of a text; a byte that is not UTF-8 becomes U+FFFD.
-- @tparam ?table at takes the byte at which each begins, and the one behind the last
-- @tparam ?table out takes the code points, in place of a new table; nil stands behind the last
-- @treturn table code points
-- @treturn number how many
-- @treturn boolean all of it is UTF-8
function M.codes(s, at, out)
  local len, p = #s, ffi.cast(bytes_t, s)
  if out then out[#s + 1] = nil else out = new_table(len, 0) end
  local n, i, good = 0, 0, true
  while i < len do
    local c = p[i]
    n = n + 1
    if at then at[n] = i + 1 end
    if c < 0x80 then
      out[n], i = c, i + 1
    else
      local need = c >= 0xF0 and c < 0xF5 and 3 or c >= 0xE0 and c < 0xF0 and 2 or c >= 0xC2 and c < 0xE0 and 1 or -1
      local v = need == 1 and c - 0xC0 or need == 2 and c - 0xE0 or c - 0xF0
      if i + need >= len then need = -1 end
      for k = 1, need do
        local d = p[i + k]
        if d < 0x80 or d > 0xBF then need = -1 break end
        v = v * 64 + d - 0x80
      end
      if need < 0 or v > 0x10FFFF then v, need, good = 0xFFFD, 0, false end
      out[n], i = v, i + need + 1
    end
  end
  if at then at[n + 1] = len + 1 end
  if n < len then out[n + 1] = nil end
  return out, n, good
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

-- -- Properties: a bit each in one array ----------------------------------------------------------

local bits = ffi.new('uint32_t[?]', 0x110000)
--- The properties of each code point as bits (see mask).
M.class = bits

local function mark(first, n, m)
  for c = first, first + n - 1 do bits[c] = bor(bits[c], m) end
end

local simple = 'Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Cc Cf Co Cn'
local joined = { L = 'Lu Ll Lt Lm Lo', M = 'Mn Mc Me', N = 'Nd Nl No', P = 'Pc Pd Ps Pe Pi Pf Po', S = 'Sm Sc Sk So' }
local places, next_bit, masks = {}, 0, {}
for name in simple:gmatch '%a+' do places[name] = true end

-- Those of no category: white space, characters of words as \w has them, punctuation as BERT has it.
local function special(name, m)
  if name == 'white' then
    for _, r in ipairs { { 9, 13 }, { 32, 32 }, { 0x85, 0x85 }, { 0xA0, 0xA0 }, { 0x1680, 0x1680 }, { 0x2000, 0x200A }, { 0x2028, 0x2029 },
      { 0x202F, 0x202F }, { 0x205F, 0x205F }, { 0x3000, 0x3000 } } do mark(r[1], r[2] - r[1] + 1, m) end
  elseif name == 'punctuation' then
    local p = M.mask 'P'
    for c = 0, 0x10FFFF do
      if c < 128 then
        if c > 32 and c < 48 or c > 57 and c < 65 or c > 90 and c < 97 or c > 122 and c < 127 then mark(c, 1, m) end
      elseif band(bits[c], p) ~= 0 then bits[c] = bor(bits[c], m) end
    end
  else
    local w = bor(M.mask 'L', M.mask 'M', M.mask 'Nd', M.mask 'Nl', M.mask 'Pc')
    for c = 0, 0x10FFFF do
      if band(bits[c], w) ~= 0 then bits[c] = bor(bits[c], m) end
    end
    for _, r in ipairs { { 0x24B6, 0x24E9 }, { 0x1F130, 0x1F149 }, { 0x1F150, 0x1F169 }, { 0x1F170, 0x1F189 }, { 0x200C, 0x200D } } do
      mark(r[1], r[2] - r[1] + 1, m)
    end
  end
end

--- The bits of a category ('L', 'Nd', ...), of 'white', 'word' or 'punctuation'; nil: there is no such one.
-- @usage local letter = band(unicode.class[code], unicode.mask 'L') ~= 0
function M.mask(name)
  local m = masks[name]
  if m then return m end
  if joined[name] then
    m = 0
    for part in joined[name]:gmatch '%a+' do m = bor(m, M.mask(part)) end
  elseif places[name] or name == 'white' or name == 'word' or name == 'punctuation' then
    m, next_bit = bit.lshift(1, next_bit), next_bit + 1
    if places[name] then
      local at = 0
      for gap, n in data[name]:gmatch '(%w+),(%w+)' do
        local first, count = at + tonumber(gap, 36), tonumber(n, 36)
        at = first + count
        mark(first, count, m)
      end
    else special(name, m) end
  else return nil end
  masks[name] = m
  return m
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

--- Whether a code point is white space.
function M.white(c) return band(bits[c], M.mask 'white') ~= 0 end

function M.lower(codes)
  local lower, out, n = map 'lower', new_table(#codes, 0), 0
  for i = 1, #codes do
    local c = codes[i]
    if c < 128 then
      n = n + 1
      out[n] = c >= 65 and c < 91 and c + 32 or c
    else
      local to = lower[c]
      if not to then
        n = n + 1
        out[n] = c
      else
        for k = 1, #to do
          n = n + 1
          out[n] = to[k]
        end
      end
    end
  end
  return out
end

-- Forms younger than the tables that published vocabularies were made with stay as they are.
local function young(c)
  return c == 0x32FF or c == 0x1F16C or c >= 0xA7F2 and c <= 0xA7F4 or c >= 0x10780 and c <= 0x107BA or c >= 0x1FBF0 and c <= 0x1FBF9
end

-- A code point's decomposition behind the first n of a list; gives how many there are then.
local function decomposed(out, n, c, canonical, other)
  if c >= 0xAC00 and c < 0xD7A4 then
    local s = c - 0xAC00
    out[n + 1], out[n + 2], n = 0x1100 + floor(s / 588), 0x1161 + floor(s % 588 / 28), n + 2
    if s % 28 > 0 then out[n + 1], n = 0x11A7 + s % 28, n + 1 end
    return n
  end
  local to = canonical[c] or other and not young(c) and other[c]
  if not to then
    out[n + 1] = c
    return n + 1
  end
  for i = 1, #to do n = decomposed(out, n, to[i], canonical, other) end
  return n
end

local function decompose(codes, compatible)
  local canonical, other, class, out = map 'canonical', compatible and map 'compatible', map 'class', {}
  local count = 0
  for i = 1, #codes do
    local c = codes[i]
    if c < 0xA0 then
      count = count + 1
      out[count] = c
    else
      count = decomposed(out, count, c, canonical, other)
    end
  end
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

-- Whether a compatible form changes what a code point is made of.
local function touched(c, canonical, other)
  for _, d in ipairs(canonical[c] or {}) do
    if other[d] or touched(d, canonical, other) then return true end
  end
  return false
end

-- Code points that a normal form may change, by the form's maps; Hangul's are among them.
local changed = {}
local function changes(compatible, composes)
  local name = (compatible and 'k' or 'c') .. (composes and 'c' or 'd')
  if changed[name] then return changed[name] end
  local out, composed, canonical = {}, map 'composed', map 'canonical'
  for c in pairs(canonical) do
    if not (composes and composed[c]) or compatible and touched(c, canonical, map 'compatible') then out[c] = true end
  end
  for c in pairs(map 'class') do out[c] = true end
  if compatible then for c in pairs(map 'compatible') do out[c] = true end end
  if composes then for _, to in pairs(composed) do out[to[2]] = true end end
  for c = 0x1100, 0x11FF do out[c] = true end
  changed[name] = out
  return out
end

-- A form of a text: the given table where it has that form already.
local function form(codes, compatible, composes)
  local may = changes(compatible, composes)
  for i = 1, #codes do
    local c = codes[i]
    if c >= 0xA0 and (may[c] or not composes and c >= 0xAC00 and c < 0xD7A4) then
      local t = decompose(codes, compatible)
      return composes and compose(t) or t
    end
  end
  return codes
end

function M.nfd(codes) return form(codes, false, false) end
function M.nfkd(codes) return form(codes, true, false) end
function M.nfc(codes) return form(codes, false, true) end
function M.nfkc(codes) return form(codes, true, true) end

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

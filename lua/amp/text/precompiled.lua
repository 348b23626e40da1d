--- The normalizer Precompiled: sentencepiece's character map, a double array of 32-bit units and the texts it points at.
local bit = require 'bit'
local u = require 'amp.text.unicode'

local M = {}
local band, bxor, rshift, lshift = bit.band, bit.bxor, bit.rshift, bit.lshift

local function from_base64(s)
  local at, out, have, bits = {}, {}, 0, 0
  local letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
  for i = 1, 64 do at[letters:byte(i)] = i - 1 end
  for i = 1, #s do
    local v = at[s:byte(i)]
    if not v then
      if s:byte(i) == 61 then break end
      error('normalizer.precompiled_charsmap: no base64', 0)
    end
    have, bits = have * 64 + v, bits + 6
    if bits >= 8 then
      bits = bits - 8
      out[#out + 1] = string.char((have - have % 2 ^ bits) / 2 ^ bits)
      have = have % 2 ^ bits
    end
  end
  return table.concat(out)
end

local function word(s, i)
  local a, b, c, d = s:byte(i, i + 3)
  return a + b * 256 + c * 65536 + d * 16777216
end

local function jamo(c) return c >= 0x1100 and c < 0x1200 end

-- What stays with the character before it: marks, joiners, half-width voicing marks, skin tones, tags.
local function extends(c, marks)
  return band(u.class[c], marks) ~= 0 or c == 0x200D or c == 0x200C or c == 0xFF9E or c == 0xFF9F or c >= 0x1F3FB and c <= 0x1F3FF
    or c >= 0xE0020 and c <= 0xE007F
end

-- What nothing stays with: controls, and characters of format but joiners and signs that stand before numbers.
local function controls(c, other)
  return band(u.class[c], other) ~= 0 and c ~= 0x200C and c ~= 0x200D and not (c >= 0x600 and c <= 0x605 or c == 0x6DD or c == 0x70F or c == 0x8E2)
    or c == 0x2028 or c == 0x2029
end

-- The end of the grapheme that begins at i.
local function grapheme(t, i, marks, other)
  local j, c = i + 1, t[i]
  if c == 13 and t[j] == 10 then return j + 1 end
  if controls(c, other) then return j end
  while t[j] and (extends(t[j], marks) or jamo(c) and jamo(t[j])) do j = j + 1 end
  return j
end

--- codes -> codes.
function M.normalizer(s)
  local raw = from_base64(s.precompiled_charsmap or '')
  local size = #raw >= 4 and word(raw, 1) or 0
  if size < 4 or size % 4 ~= 0 or size + 4 > #raw then error('normalizer.precompiled_charsmap: a map cut short', 0) end
  local units, blob = {}, raw:sub(size + 5)
  for i = 0, size / 4 - 1 do units[i] = bit.tobit(word(raw, 5 + 4 * i)) end
  local function offset(v) return lshift(rshift(v, 10), rshift(band(v, 512), 6)) end
  local function transform(text)
    local unit = units[0]
    local at = offset(unit)
    for i = 1, #text do
      local c = text:byte(i)
      if c == 0 then return nil end
      at = bxor(at, c)
      unit = units[at]
      if not unit or band(unit, bit.tobit(0x800000FF)) ~= c then return nil end
      at = bxor(at, offset(unit))
      if band(unit, 256) ~= 0 then
        local v = band(units[at] or 0, 0x7FFFFFFF)
        return blob:match('^%Z*', v + 1) or ''
      end
    end
  end
  local marks, other = u.mask 'M', bit.bor(u.mask 'Cc', u.mask 'Cf')
  local plain = {} -- ASCII that stays as it is
  for c = 0, 127 do
    local to = transform(string.char(c))
    plain[c] = to == nil or to == string.char(c)
  end
  local single = {} -- code points for themselves: what each becomes, false: it stays
  local function alone(c)
    local is = u.char(c)
    local to = transform(is)
    single[c] = to ~= nil and to ~= is and u.codes(to) or false
    return single[c]
  end
  return function(t)
    local out, i, n, changed = {}, 1, 0, false
    local function put(codes)
      for k = 1, #codes do out[n + k] = codes[k] end
      n, changed = n + #codes, true
    end
    local function one(c)
      local to = single[c]
      if to == nil then to = alone(c) end
      if to then return put(to) end
      n = n + 1
      out[n] = c
    end
    while t[i] do
      local c, following = t[i], t[i + 1]
      if plain[c] and (not following or following < 128) and c ~= 13 then
        n = n + 1
        out[n], i = c, i + 1
      else
        local j = grapheme(t, i, marks, other)
        local text = j > i + 1 and u.text(t, i, j - 1)
        local to = text and #text < 6 and transform(text)
        if to then put(u.codes(to)) else for k = i, j - 1 do one(t[k]) end end
        i = j
      end
    end
    return changed and out or t
  end
end

return M

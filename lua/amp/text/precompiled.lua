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

-- The end of the grapheme that begins at i: marks, joiners and jamo stay with what is before.
local function grapheme(t, i, marks)
  local j = i + 1
  if t[i] == 13 and t[j] == 10 then return j + 1 end
  while t[j] and (band(u.class[t[j]], marks) ~= 0 or t[j] == 0x200D or t[j] == 0x200C or jamo(t[i]) and jamo(t[j])) and t[i] >= 32 do j = j + 1 end
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
  return function(t)
    local out, marks, i = {}, u.mask 'M', 1
    local function put(text) for _, c in ipairs(u.codes(text)) do out[#out + 1] = c end end
    while i <= #t do
      local j = grapheme(t, i, marks)
      local text = u.text(t, i, j - 1)
      local to = #text < 6 and transform(text)
      if to then put(to)
      else for k = i, j - 1 do put(transform(u.char(t[k])) or u.char(t[k])) end end
      i = j
    end
    return out
  end
end

return M

--- A font of strokes for figures: glyphs as lines on a grid of 5 by 9 points.
--
-- A glyph is a list of polylines; a point is two digits, x from 0 to 4 and y from 0 (top of capitals) by
-- 2 (top of small letters) and 6 (baseline) to 8 (descenders). Whatever is not ASCII prints as a box.
local M = {}

M.CAP, M.DESCENT = 6, 2 -- heights above and below the baseline, in units of the grid
M.SPACE = 1.7           -- between letters

local strokes = {
  [' '] = '', ['!'] = '00 04|06 06', ['"'] = '00 01|20 21', ['#'] = '10 16|30 36|02 42|04 44',
  ['$'] = '41 30 10 01 02 13 33 44 45 36 16 05|20 26', ['%'] = '06 40|00 10 11 01 00|35 45 46 36 35',
  ['&'] = '46 02 01 10 20 21 04 05 16 26 44', ["'"] = '00 01', ['('] = '10 01 05 16', [')'] = '00 11 15 06',
  ['*'] = '21 25|02 44|04 42', ['+'] = '03 43|21 25', [','] = '16 07', ['-'] = '03 33', ['.'] = '06 06', ['/'] = '06 40',
  ['0'] = '10 01 05 16 36 45 41 30 10', ['1'] = '11 20 26|16 36', ['2'] = '01 10 30 41 42 06 46',
  ['3'] = '01 10 30 41 42 33 13|33 44 45 36 16 05', ['4'] = '36 30 04 44', ['5'] = '40 00 02 32 43 45 36 16 05',
  ['6'] = '30 10 01 05 16 36 45 44 33 13 04', ['7'] = '00 40 16', ['8'] = '13 02 01 10 30 41 42 33 13 04 05 16 36 45 44 33',
  ['9'] = '16 36 45 41 30 10 01 02 13 33 42', [':'] = '03 03|06 06', [';'] = '13 13|16 07', ['<'] = '31 03 35',
  ['='] = '02 42|04 44', ['>'] = '01 33 05', ['?'] = '01 10 30 41 42 24|26 26',
  ['@'] = '45 36 16 05 01 10 30 41 43 34 23 22 32 34',
  A = '06 20 46|13 33', B = '00 06 36 45 44 33 03|33 42 41 30 00', C = '41 30 10 01 05 16 36 45', D = '00 06 26 44 42 20 00',
  E = '40 00 06 46|03 33', F = '40 00 06|03 33', G = '41 30 10 01 05 16 36 45 43 23', H = '00 06|40 46|03 43', I = '00 20|10 16|06 26',
  J = '40 45 36 16 05', K = '00 06|40 03 46', L = '00 06 36', M = '06 00 23 40 46', N = '06 00 46 40',
  O = '10 01 05 16 36 45 41 30 10', P = '06 00 30 41 42 33 03', Q = '10 01 05 16 36 45 41 30 10|34 46',
  R = '06 00 30 41 42 33 03|23 46', S = '41 30 10 01 02 13 33 44 45 36 16 05', T = '00 40|20 26', U = '00 05 16 36 45 40',
  V = '00 26 40', W = '00 16 22 36 40', X = '00 46|40 06', Y = '00 23 40|23 26', Z = '00 40 06 46',
  ['['] = '20 00 06 26', ['\\'] = '00 46', [']'] = '00 20 26 06', ['^'] = '02 20 42', ['_'] = '07 47', ['`'] = '00 11',
  a = '12 32 43 46|44 14 05 16 36 45', b = '00 06|03 12 32 43 45 36 16 05', c = '43 32 12 03 05 16 36 45',
  d = '40 46|43 32 12 03 05 16 36 45', e = '04 44 43 32 12 03 05 16 36', f = '30 20 11 16|02 32',
  g = '42 47 38 18 07|43 32 12 03 05 16 36 45', h = '00 06|03 12 32 43 46', i = '02 06|00 00', j = '12 17 08|10 10',
  k = '00 06|32 04 36', l = '00 05 16', m = '02 06|03 12 23 26|23 32 43 46', n = '02 06|03 12 32 43 46',
  o = '12 03 05 16 36 45 43 32 12', p = '02 08|03 12 32 43 45 36 16 05', q = '42 48|43 32 12 03 05 16 36 45',
  r = '02 06|03 12 32', s = '43 32 12 03 14 34 45 36 16 05', t = '10 15 26 36|02 32', u = '02 05 16 36 45|42 46',
  v = '02 26 42', w = '02 16 23 36 42', x = '02 46|42 06', y = '02 26|42 18 08', z = '02 42 06 46',
  ['{'] = '20 11 12 03 14 15 26', ['|'] = '00 07', ['}'] = '00 11 12 23 14 15 06', ['~'] = '04 13 34 43',
}
local BOX = '00 40 46 06 00'

local parsed = {}
local function glyph(c)
  local g = parsed[c]
  if g then return g end
  g = {width = c == ' ' and 2 or 0, shift = 0}
  for path in (strokes[c] or BOX):gmatch '[^|]+' do
    local line = {}
    for x, y in path:gmatch '(%d)(%d)' do
      x, y = tonumber(x), tonumber(y)
      line[#line + 1], line[#line + 2] = x, y
      g.width = math.max(g.width, x)
    end
    g[#g + 1] = line
  end
  if g.width < 1 then g.width, g.shift = 1, 0.5 end -- a dot or a stroke needs some room
  parsed[c] = g
  return g
end

-- Characters of a text: a UTF-8 sequence is one.
local function characters(text) return text:gmatch '[%z\1-\127\194-\253][\128-\191]*' end

--- Width of a text in units of the grid.
function M.width(text)
  local w = 0
  for c in characters(text) do w = w + glyph(c).width + M.SPACE end
  return math.max(w - M.SPACE, 0)
end

--- Call fn(line) for each polyline of a text; line: x1, y1, x2, y2, ... in units, from the top left corner.
function M.each(text, fn)
  local at = 0
  for c in characters(text) do
    local g = glyph(c)
    for _, line in ipairs(g) do
      local moved = {}
      for i = 1, #line, 2 do moved[i], moved[i + 1] = line[i] + at + g.shift, line[i + 1] end
      fn(moved)
    end
    at = at + g.width + M.SPACE
  end
end

return M

--- Added tokens: found in a text before it is normalised (normalized = false) or after.
local band = require('bit').band
local spend = require('amp.text.regex').spend
local u = require 'amp.text.unicode'

local M = {}

-- Tokens by their first byte: `of` their text, and the lengths that there are, the longest first.
local function index(list)
  local by = {}
  for _, a in ipairs(list) do
    local c = a.find:byte()
    if c then
      by[c] = by[c] or {}
      table.insert(by[c], a)
    end
  end
  local class = {}
  for c, l in pairs(by) do
    local sizes, of = {}, {}
    for _, a in ipairs(l) do
      if not of[a.find] then
        of[a.find] = a
        if not of[#a.find] then of[#a.find], sizes[#sizes + 1] = true, #a.find end
      end
    end
    table.sort(sizes, function(x, y) return x > y end)
    by[c] = { of = of, sizes = sizes }
    class[#class + 1] = ('%%%s'):format(string.char(c))
    if string.char(c):find '%w' or c >= 128 then class[#class] = string.char(c) elseif c == 0 then class[#class] = '%z' end
  end
  return { by = by, class = #class > 0 and '[' .. table.concat(class) .. ']' }
end

--- Searches for the added tokens of a file: first those found in the raw text, then those of the normalised one.
function M.searches(list, normalize)
  local raw, later = {}, {}
  for _, a in ipairs(list) do
    if a.normalized then
      a.find = normalize and u.text(normalize(u.codes(a.content))) or a.content
      later[#later + 1] = a
    else
      a.find = a.content
      raw[#raw + 1] = a
    end
  end
  return index(raw), index(later)
end

local function char_before(s, at)
  local i = at - 1
  while i > 1 and s:byte(i) >= 0x80 and s:byte(i) < 0xC0 do i = i - 1 end
  return i >= 1 and u.codes(s:sub(i, at - 1))[1] or nil, i
end
local function char_at(s, at)
  local c = s:byte(at)
  if not c then return nil end
  local len = c < 0x80 and 1 or c < 0xE0 and 2 or c < 0xF0 and 3 or 4
  return u.codes(s:sub(at, at + len - 1))[1], at + len
end

local function in_word(c) return c and band(u.class[c], u.mask 'word') ~= 0 end
local function alone(s, a, b) return not in_word((char_before(s, a))) and not in_word((char_at(s, b))) end

local function find(ix, s, at)
  while true do
    at = s:find(ix.class, at)
    if not at then return nil end
    local these = ix.by[s:byte(at)]
    for i = 1, #these.sizes do
      local size = these.sizes[i]
      local a = these.of[s:sub(at, at + size - 1)]
      if a and #a.find == size then return at, at + size, a end
    end
    spend(#these.sizes)
    at = at + 1
  end
end

--- Calls text(from, to) and token(a) in order for the pieces of s.
function M.pieces(ix, s, text, token)
  local at, search = 1, 1
  if ix.class then
    while true do
      local a, b, t = find(ix, s, search)
      if not a then break end
      search = b
      if a >= at and (not t.single_word or alone(s, a, b)) then
        if t.lstrip then
          local c, i = char_before(s, a)
          while c and u.white(c) and i >= at do
            a = i
            c, i = char_before(s, a)
          end
        end
        if t.rstrip then
          local c, i = char_at(s, b)
          while c and u.white(c) do
            b = i
            c, i = char_at(s, b)
          end
        end
        if a > at then text(at, a - 1) end
        token(t)
        at = b
      end
    end
  end
  if at <= #s then text(at, #s) end
end

return M

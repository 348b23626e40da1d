--- A text cut into pieces before anything is done to it, where its tokenizer lets it (parts.local_pieces): what a piece becomes can
-- be kept under its text.
local ffi = require 'ffi'

local M = {}

-- Kinds of bytes.
local SPACE, ALONE = 1, 2

local function kinds_of(punctuation)
  local kind = ffi.new 'uint8_t[256]'
  for _, c in ipairs { 9, 10, 13, 32 } do kind[c] = SPACE end
  for c = 33, 126 do
    if punctuation and string.char(c):find '%p' then kind[c] = ALONE end
  end
  return kind
end

-- Whether the three bytes at i are a character from U+4E00 to U+9FFF.
local function wide(p, i, n)
  local c = p[i]
  if c < 0xE4 or c > 0xE9 or i + 2 >= n or c == 0xE4 and p[i + 1] < 0xB8 then return false end
  return p[i + 1] >= 0x80 and p[i + 1] < 0xC0 and p[i + 2] >= 0x80 and p[i + 2] < 0xC0
end

-- At white space; with `apart` punctuation and wide characters are pieces as well.
local function words(apart)
  local kind = kinds_of(apart)
  return function(p, n, i)
    while i < n and kind[p[i]] == SPACE do i = i + 1 end
    if i >= n then return nil end
    local from = i
    if kind[p[i]] == ALONE then return from, i + 1, true end
    if apart and wide(p, i, n) then return from, i + 3, true end
    local simple = true
    repeat
      if p[i] >= 0x7F or p[i] < 32 then simple = false end
      i = i + 1
    until i >= n or kind[p[i]] ~= 0 or apart and p[i] >= 0xE4 and wide(p, i, n)
    return from, i, simple
  end
end

-- Before spaces; several stay together with what follows them.
local function spaced(p, n, i)
  if i >= n then return nil end
  local from, simple = i, true
  while i < n and p[i] == 32 do i = i + 1 end
  if i > from + 1 or i >= n then simple = false end
  while i < n and p[i] ~= 32 do
    if p[i] >= 0x7F or p[i] < 32 then simple = false end
    i = i + 1
  end
  return from, i, simple
end

--- A function (bytes, size, at) that gives where the next piece begins and the byte behind it, both from 0, and whether it is one
-- word of ASCII (after one space, with 'spaced'), or one wide character; nil: there is none.
-- @tparam ?string how 'words', 'bert', 'spaced'; nil: there is no such function
function M.cutter(how)
  if how == 'spaced' then return spaced end
  return how and words(how == 'bert')
end

--- What a normalizer makes of words of ASCII: 'same', 'lower', or nil: something else.
function M.on_ascii(normalize)
  if not normalize then return 'same' end
  local u = require 'amp.text.unicode'
  local how
  for c = 33, 126 do
    local was = string.char(c)
    local is = u.text(normalize(u.codes(was)))
    if is ~= was then
      if is ~= was:lower() or how == 'same' then return nil end
      how = 'lower'
    elseif was ~= was:lower() then
      if how == 'lower' then return nil end
      how = 'same'
    end
  end
  return how
end

return M

--- Draws what is being edited: prompt and text over as many rows as they need, a window of
-- them where they are more than the terminal has. It redraws from the first row it drew;
-- only a character added at the end is written alone. It knows no keys.
-- @module amp.repl.screen
local ffi = require 'ffi'
local C = require('amp.ffi').C

local M = {}

local int = ffi.typeof 'int[1]'

--- Rows and columns of the terminal, something usual where it does not say.
function M.size()
  local rows, columns = int(), int()
  if C.amp_tty_size(rows, columns) ~= 0 then return 24, 80 end
  local r, c = rows[0], columns[0]
  return r > 0 and r or 24, c > 0 and c or 80
end

-- -- Width of characters ------------------------------------------------------------------------

local CHARACTER = '[%z\1-\127\194-\244][\128-\191]*'

-- Ranges of characters that take two columns, and of those that take none (the common ones)
local wide = { 0x1100, 0x115F, 0x2E80, 0x303E, 0x3041, 0xA4CF, 0xAC00, 0xD7A3, 0xF900, 0xFAFF, 0xFE30, 0xFE6F, 0xFF00, 0xFF60, 0xFFE0, 0xFFE6,
  0x1F300, 0x1F64F, 0x1F680, 0x1F6FF, 0x1F900, 0x1F9FF, 0x20000, 0x3FFFD }
local none = { 0x0300, 0x036F, 0x200B, 0x200F, 0x20D0, 0x20FF, 0xFE00, 0xFE0F, 0xFE20, 0xFE2F }

local function within(ranges, code)
  for i = 1, #ranges, 2 do
    if code >= ranges[i] and code <= ranges[i + 1] then return true end
  end
  return false
end

local function decode(s)
  local a, b, c, d = s:byte(1, 4)
  if #s == 2 then return (a % 32) * 64 + b % 64 end
  if #s == 3 then return (a % 16) * 4096 + (b % 64) * 64 + c % 64 end
  return (a % 8) * 262144 + (b % 64) * 4096 + (c % 64) * 64 + d % 64
end

-- What is written for a character, and its columns
local function cell(c)
  local byte = c:byte()
  if #c == 1 then
    if byte >= 32 and byte < 127 then return c, 1 end
    if c == '\t' then return '  ', 2 end
    if byte < 32 then return '^' .. string.char(byte + 64), 2 end
    return '?', 1
  end
  local code = decode(c)
  if code < 0x300 then return c, 1 end
  return c, within(wide, code) and 2 or within(none, code) and 0 or 1
end

--- Columns that a text takes.
function M.width(text)
  local n = 0
  for c in text:gmatch(CHARACTER) do
    local _, w = cell(c)
    n = n + w
  end
  return n
end

-- -- Layout --------------------------------------------------------------------------------------

-- Rows of text and where the cursor is: {rows}, row, column (both from 0)
local function layout(first, next_, text, cursor, columns)
  local rows, row, col = {}, {}, 0
  local crow, ccol
  local function wrap()
    rows[#rows + 1] = table.concat(row)
    row, col = {}, 0
  end
  local function put(c)
    local s, w = cell(c)
    if col + w > columns then wrap() end
    row[#row + 1] = s
    col = col + w
  end
  for c in first:gmatch(CHARACTER) do put(c) end
  local at = 1
  while true do
    if at == cursor then
      if col >= columns then wrap() end
      crow, ccol = #rows, col
    end
    if at > #text then break end
    local c = text:match('^' .. CHARACTER, at) or text:sub(at, at)
    if c == '\n' then
      wrap()
      for p in next_:gmatch(CHARACTER) do put(p) end
    else
      put(c)
    end
    at = at + #c
  end
  wrap()
  return rows, crow or #rows - 1, ccol or 0
end

-- -- Drawing --------------------------------------------------------------------------------------

local Screen = {}
Screen.__index = Screen

--- A screen for one input.
-- @tparam string first prompt of the first line
-- @tparam string next_ prompt of the lines after it
function M.new(first, next_)
  local self = setmetatable({ first = first, next = next_, row = 0, top = 0, shown = nil }, Screen)
  self.rows, self.columns = M.size()
  return self
end

local function write(s)
  io.stdout:write(s)
  io.stdout:flush()
end
M.write = write

--- Draw.
-- @tparam string text
-- @tparam number cursor byte before which the cursor stands, from 1
-- @tparam ?string first another prompt for the first line
function Screen:draw(text, cursor, first)
  local old = self.shown
  if old and not first and not old.first and cursor == #text + 1 and #text == #old.text + 1 and old.cursor == #text and self.col + 1 < self.columns
    and text:sub(1, -2) == old.text and text:find '[\32-\126]$' then
    self.col = self.col + 1
    self.shown = { text = text, cursor = cursor }
    return write(text:sub(-1))
  end
  local rows, crow, ccol = layout(first or self.first, self.next, text, cursor, self.columns)
  local most = math.max(1, self.rows)
  if #rows <= most then
    self.top = 0
  else
    self.top = math.max(math.min(self.top, #rows - most), 0)
    if crow < self.top then self.top = crow elseif crow >= self.top + most then self.top = crow - most + 1 end
  end
  local last = math.min(#rows, self.top + most)
  local out = { self.row > 0 and ('\27[%dA'):format(self.row) or '', '\r\27[J' }
  out[#out + 1] = table.concat(rows, '\r\n', self.top + 1, last)
  local up = last - 1 - crow
  if up > 0 then out[#out + 1] = ('\27[%dA'):format(up) end
  out[#out + 1] = '\r'
  if ccol > 0 then out[#out + 1] = ('\27[%dC'):format(ccol) end
  self.row, self.col = crow - self.top, ccol
  self.shown = { text = text, cursor = cursor, first = first }
  write(table.concat(out))
end

--- The terminal has another size: draw anew, over what it made of the old rows.
function Screen:resize(text, cursor, first)
  self.rows, self.columns = M.size()
  local _, crow = layout(first or self.first, self.next, text, cursor, self.columns)
  self.row = math.min(crow, self.rows - 1)
  self.shown = nil
  self:draw(text, cursor, first)
end

--- Something else was written: draw at the place where the cursor is now.
function Screen:again(text, cursor)
  self.row, self.top, self.shown = 0, 0, nil
  self.rows, self.columns = M.size()
  self:draw(text, cursor)
end

--- Go below the text.
function Screen:finish(text)
  self:draw(text, #text + 1)
  write '\r\n'
end

--- Write lines of words in columns below the text.
-- @tparam table words
function Screen:list(words)
  local width = 1
  for i = 1, #words do width = math.max(width, M.width(words[i])) end
  width = width + 2
  local per = math.max(1, math.floor(self.columns / width))
  local lines = math.ceil(#words / per)
  local most = math.max(1, self.rows - 2)
  local out = {}
  for i = 1, math.min(lines, most) do
    local row = {}
    for k = i, #words, lines do row[#row + 1] = words[k] .. (' '):rep(width - M.width(words[k])) end
    out[i] = table.concat(row):gsub('%s+$', '')
  end
  if lines > most then out[most] = ('... %d in all'):format(#words) end
  write('\r\n' .. table.concat(out, '\r\n') .. '\r\n')
end

--- To the first column of a row that has nothing in it: what ran may have ended within a line.
function M.fresh_line()
  local _, columns = M.size()
  if columns < 2 then return end
  write('\27[7m%\27[m' .. (' '):rep(columns - 1) .. '\r \r')
end

return M

--- Reading the two encodings of .t7 files, binary and ASCII, byte by byte checked.
--
-- A cursor stands somewhere in a file, of which it holds a window. int(), long(), double() and chars(n) read what is there or raise
-- {where the reader stood, why}; elements(kind, n, to) fills memory. Binary numbers are little-endian; ASCII
-- ones stand between white space, and bytes and characters are raw in both.
local ffi = require 'ffi'
local file = require 'amp.io.file'

local M = {}

local WIDTH = {Byte = 1, Char = 1, Short = 2, Int = 4, Long = 8, Float = 4, Double = 8, Half = 2}
M.width = WIDTH
local ctype = {Byte = 'uint8_t *', Char = 'int8_t *', Short = 'int16_t *', Int = 'int32_t *', Long = 'int64_t *', Float = 'float *',
  Double = 'double *'}

local function fail(self, why, ...) error({at = self.at, why = why:format(...)}, 0) end

-- -- The window ------------------------------------------------------------------------------

local WINDOW = 2 ^ 16

-- A pointer to what stands from `at` on, n bytes at least (which the file has); good until the next call.
local function window(self, at, n)
  local from = at - self.from
  if from < 0 or from + n > self.held then
    local want = math.min(math.max(n, WINDOW), self.size - at)
    if want > self.room then
      self.room = math.max(want, WINDOW)
      self.buffer = ffi.new('uint8_t[?]', self.room)
    end
    local ok, why = self.file:read(self.buffer, want, at)
    if not ok then
      self.held = 0
      fail(self, '%s', why)
    end
    self.from, self.held, from = at, want, 0
  end
  return self.buffer + from
end

local function need(self, n, what)
  if n > self.size - self.at then
    fail(self, '%s of %.0f bytes is promised, the file ends after %.0f', what, n, self.size - self.at)
  end
end

-- n bytes at the cursor, which moves on.
local function take(self, n, what)
  local from = self.at - self.from
  if from >= 0 and from + n <= self.held then
    self.at = self.at + n
    return self.buffer + from
  end
  need(self, n, what)
  local p = window(self, self.at, n)
  self.at = self.at + n
  return p
end

local function chars(self, n)
  if n < 0 then fail(self, 'a string of %d characters', n) end
  need(self, n, 'a string')
  if n <= WINDOW then return ffi.string(take(self, n, 'a string'), n) end
  local s, why = self.file:text(n, self.at) -- a window as large would stay
  if not s then fail(self, '%s', why) end
  self.at = self.at + n
  return s
end

-- n bytes straight to memory.
local function copy(self, to, n)
  local ok, why = self.file:read(to, n, self.at)
  if not ok then fail(self, '%s', why) end
  self.at = self.at + n
end

-- -- Binary ------------------------------------------------------------------------------------

local Binary = {}
Binary.__index = Binary

local word, long = ffi.new 'int32_t[1]', ffi.new 'int64_t[1]'

function Binary:int()
  ffi.copy(word, take(self, 4, 'a number'), 4)
  return word[0]
end

function Binary:long()
  if self.long_size == 4 then return self:int() end
  local at = self.at
  ffi.copy(long, take(self, 8, 'a number'), 8)
  local v = tonumber(long[0])
  if v >= 2 ^ 53 or v <= -2 ^ 53 then
    self.at = at
    fail(self, 'an impossible size, %s', tostring(long[0]))
  end
  return v
end

function Binary:double() return file.double(take(self, 8, 'a number')) end

Binary.chars = chars

--- A count of a class of tds: a long, which files of some writers have as an int.
function Binary:count()
  local n, at = self:int(), self.at
  if self.long_size == 4 then return n end
  if self.size - at >= 4 and self:int() == 0 then return n end -- no object there begins with 0, which is nil
  self.at = at
  return n
end

--- Whether so many elements may be there.
function Binary:room_for(kind, n)
  local width = kind == 'Long' and self.long_size or WIDTH[kind]
  need(self, n * width, ('a storage of %.0f elements'):format(n))
end

function Binary:elements(kind, n, to)
  self:room_for(kind, n)
  if kind == 'Long' and self.long_size == 4 then
    to = ffi.cast('int64_t *', to)
    for i = 0, n - 1 do to[i] = self:int() end
    return
  end
  copy(self, to, n * WIDTH[kind])
end

-- -- ASCII ----------------------------------------------------------------------------------------

local Ascii = {}
Ascii.__index = Ascii

local function space(b) return b == 32 or b >= 9 and b <= 13 end

-- A line's end that follows what was read.
local function newline(self)
  if self.at < self.size and window(self, self.at, 1)[0] == 10 then self.at = self.at + 1 end
end

local function token(self)
  local at, size = self.at, self.size
  while at < size and space(window(self, at, 1)[0]) do at = at + 1 end
  local most = math.min(64, size - at)
  if most == 0 then
    self.at = at
    fail(self, 'a number is promised, the file ends')
  end
  local p, n = window(self, at, most), 0
  while n < most and not space(p[n]) do n = n + 1 end
  self.at = at
  return ffi.string(p, n), at + n
end

local special = {nan = 0 / 0, ['-nan'] = 0 / 0, inf = math.huge, ['-inf'] = -math.huge}
local function number(self, integral)
  local text, stop = token(self)
  local v = special[text:lower()] or (text:match '^[+-]?[%d.]' and tonumber(text))
  if not v or integral and (v % 1 ~= 0 or v >= 2 ^ 53 or v <= -2 ^ 53) then
    fail(self, '%s expected, got %q', integral and 'a whole number' or 'a number', text)
  end
  self.at = stop
  return v
end

function Ascii:int()
  local v = number(self, true)
  newline(self)
  return v
end
Ascii.long = Ascii.int

function Ascii:double()
  local v = number(self)
  newline(self)
  return v
end

Ascii.count = Ascii.int

function Ascii:chars(n)
  local s = chars(self, n)
  if n > 0 then newline(self) end
  return s
end

function Ascii:room_for(kind, n) -- an element takes at least its digit and, but the last, a space
  need(self, WIDTH[kind] == 1 and n or math.max(2 * n - 1, 0), ('a storage of %.0f elements'):format(n))
end

-- A whole number of 64 bits.
local function int64(self)
  local text, stop = token(self)
  local sign, digits = text:match '^([+-]?)(%d+)$'
  if not digits or #digits > 19 then fail(self, 'a whole number expected, got %q', text) end
  local v = 0LL
  for d in digits:gmatch '%d' do v = v * 10 + tonumber(d) end
  self.at = stop
  return sign == '-' and -v or v
end

function Ascii:elements(kind, n, to)
  self:room_for(kind, n)
  if WIDTH[kind] == 1 then
    copy(self, to, n)
  else
    to = ffi.cast(ctype[kind], to)
    for i = 0, n - 1 do
      if kind == 'Long' then to[i] = int64(self) else to[i] = number(self, kind == 'Int' or kind == 'Short') end
    end
  end
  if n > 0 then newline(self) end
end

--- A cursor at the start of a file.
-- @param f of amp.io.file
-- @tparam boolean ascii
-- @tparam number long_size of binary files: 8, or 4 where a machine of 32 bits wrote it
function M.new(f, ascii, long_size)
  return setmetatable({file = f, size = f.size, at = 0, from = 0, held = 0, room = 0, long_size = long_size, ascii = ascii}, ascii and Ascii or Binary)
end

M.fail = fail

return M

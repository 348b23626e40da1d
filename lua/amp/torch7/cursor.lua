--- Reading the two encodings of .t7 files, binary and ASCII, byte by byte checked.
--
-- A cursor stands somewhere in a file's bytes. int(), long(), double() and chars(n) read what is there or raise
-- {where the reader stood, why}; elements(kind, n, to) fills memory. Binary numbers are little-endian; ASCII
-- ones stand between white space, and bytes and characters are raw in both.
local ffi = require 'ffi'

local M = {}

local WIDTH = {Byte = 1, Char = 1, Short = 2, Int = 4, Long = 8, Float = 4, Double = 8, Half = 2}
M.width = WIDTH
local ctype = {Byte = 'uint8_t *', Char = 'int8_t *', Short = 'int16_t *', Int = 'int32_t *', Long = 'int64_t *', Float = 'float *',
  Double = 'double *'}

local function fail(self, why, ...) error({at = self.at, why = why:format(...)}, 0) end

-- -- Binary ------------------------------------------------------------------------------------

local Binary = {}
Binary.__index = Binary

local function need(self, n, what)
  if n > self.size - self.at then
    fail(self, '%s of %.0f bytes is promised, the file ends after %.0f', what, n, self.size - self.at)
  end
end

local word, double = ffi.new 'int32_t[1]', ffi.new 'double[1]'
local long = ffi.new 'int64_t[1]'

function Binary:int()
  need(self, 4, 'a number')
  ffi.copy(word, self.p + self.at, 4)
  self.at = self.at + 4
  return word[0]
end

function Binary:long()
  if self.long_size == 4 then return self:int() end
  need(self, 8, 'a number')
  ffi.copy(long, self.p + self.at, 8)
  local v = tonumber(long[0])
  if v >= 2 ^ 53 or v <= -2 ^ 53 then fail(self, 'an impossible size, %s', tostring(long[0])) end
  self.at = self.at + 8
  return v
end

function Binary:double()
  need(self, 8, 'a number')
  ffi.copy(double, self.p + self.at, 8)
  self.at = self.at + 8
  local v = double[0]
  return v == v and v or 0 / 0 -- one NaN of all
end

function Binary:chars(n)
  if n < 0 then fail(self, 'a string of %d characters', n) end
  need(self, n, 'a string')
  local s = ffi.string(self.p + self.at, n)
  self.at = self.at + n
  return s
end

--- Whether so many elements may be there.
function Binary:room(kind, n)
  local width = kind == 'Long' and self.long_size or WIDTH[kind]
  need(self, n * width, ('a storage of %.0f elements'):format(n))
end

function Binary:elements(kind, n, to)
  self:room(kind, n)
  if kind == 'Long' and self.long_size == 4 then
    to = ffi.cast('int64_t *', to)
    for i = 0, n - 1 do to[i] = self:int() end
    return
  end
  ffi.copy(to, self.p + self.at, n * WIDTH[kind])
  self.at = self.at + n * WIDTH[kind]
end

-- -- ASCII ----------------------------------------------------------------------------------------

local Ascii = {}
Ascii.__index = Ascii

local function space(b) return b == 32 or b >= 9 and b <= 13 end

-- A line's end that follows what was read.
local function newline(self)
  if self.at < self.size and self.p[self.at] == 10 then self.at = self.at + 1 end
end

local function token(self)
  local p, at, size = self.p, self.at, self.size
  while at < size and space(p[at]) do at = at + 1 end
  local from = at
  while at < size and not space(p[at]) and at - from < 64 do at = at + 1 end
  self.at = from
  if at == from then fail(self, 'a number is promised, the file ends') end
  return ffi.string(p + from, at - from), at
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

function Ascii:chars(n)
  if n < 0 then fail(self, 'a string of %d characters', n) end
  need(self, n, 'a string')
  local s = ffi.string(self.p + self.at, n)
  self.at = self.at + n
  if n > 0 then newline(self) end
  return s
end

function Ascii:room(kind, n) -- an element takes at least its digit and, but the last, a space
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
  self:room(kind, n)
  if WIDTH[kind] == 1 then
    ffi.copy(to, self.p + self.at, n)
    self.at = self.at + n
  else
    to = ffi.cast(ctype[kind], to)
    for i = 0, n - 1 do
      if kind == 'Long' then to[i] = int64(self) else to[i] = number(self, kind == 'Int' or kind == 'Short') end
    end
  end
  if n > 0 then newline(self) end
end

--- A cursor at the start of a file's bytes.
-- @param p byte pointer
-- @tparam number size
-- @tparam boolean ascii
-- @tparam number long_size of binary files: 8, or 4 where a machine of 32 bits wrote it
function M.new(p, size, ascii, long_size)
  return setmetatable({p = p, size = size, at = 0, long_size = long_size, ascii = ascii}, ascii and Ascii or Binary)
end

M.fail = fail

return M

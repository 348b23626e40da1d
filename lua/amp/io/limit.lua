--- How much memory a file may ask for when it is read.
--
-- A small file can promise much: compressed zeros, a picture of a billion equal pixels. So every reader counts what it makes against
-- a limit, `{max_bytes = n}`: where none is given, 100 times the file's size, and 256 MiB at least. What stands uncompressed in a file
-- is never larger than the file itself, so the default stops only what unpacks to far more; max_bytes holds for all.
local raise = require('amp.error').throw
local util = require 'amp.util'

local M = {}
local Limit = {}
Limit.__index = Limit

M.LEAST, M.TIMES = 2 ^ 28, 100

--- The option's value, checked; nil where it is not given.
function M.check(op, v)
  if v ~= nil and (type(v) ~= 'number' or v ~= v or v <= 0) then raise(op, 'max_bytes must be a number of bytes above 0, got %s', util.show(v)) end
  return v
end

--- A limit for a file of so many bytes.
function M.new(given, size)
  return setmetatable({ most = given or math.max(M.LEAST, M.TIMES * size), given = given ~= nil, size = size, used = 0 }, Limit)
end

local function text(n)
  if n < 1e4 then return ('%.0f bytes'):format(n) end
  if n < 1e6 then return ('%.1f kB'):format(n / 1e3) end
  if n < 1e9 then return ('%.1f MB'):format(n / 1e6) end
  return ('%.1f GB'):format(n / 1e9)
end

--- Take n bytes of it.
-- @return true, or nil and the reason
function Limit:take(n)
  local used = self.used + n
  if used <= self.most then
    self.used = used
    return true
  end
  return nil, ('it takes %s of memory, more than %s (%s); {max_bytes = %.0f} would allow it'):format(text(used), text(self.most),
    self.given and 'max_bytes' or ('the limit for a file of %s'):format(text(self.size)), used)
end

return M

--- Bytes of files, made and read without the library's own functions.
local bit = require 'bit'
local M = {}

--- An integer in n bytes, little-endian.
function M.le(v, n)
  local out = {}
  for i = 1, n do
    out[i] = string.char(v % 256)
    v = math.floor(v / 256)
  end
  return table.concat(out)
end

--- The integer that such bytes stand for.
function M.unle(s)
  local v = 0
  for i = #s, 1, -1 do v = v * 256 + s:byte(i) end
  return v
end

--- The bytes with bits of one of them flipped.
function M.with_byte(s, at, change) return s:sub(1, at - 1) .. string.char(bit.bxor(s:byte(at), change)) .. s:sub(at + 1) end

--- Whether e is an error of amp's that names a file.
function M.is_error_of(name, e) return require('amp.error').is(e) and tostring(e):find(name, 1, true) ~= nil end

return M

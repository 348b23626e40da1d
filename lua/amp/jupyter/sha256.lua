--- SHA-256 (FIPS 180-4) and HMAC (RFC 2104), for the signatures of messages.
local bit = require 'bit'
local band, bxor, bnot, ror, rshift, tobit = bit.band, bit.bxor, bit.bnot, bit.ror, bit.rshift, bit.tobit

local M = {}

-- The first 32 bits of the fractions of the roots of the first primes: cube roots, square roots
local K, FIRST = {}, {}
do
  local function fraction(x) return tobit(math.floor((x % 1) * 2 ^ 32)) end
  local n, at = 2, 0
  while at < 64 do
    local prime = true
    for d = 2, math.floor(math.sqrt(n)) do prime = prime and n % d ~= 0 end
    if prime then
      at = at + 1
      local root = n ^ (1 / 3)
      root = root - (root * root * root - n) / (3 * root * root) -- a step of Newton's: pow may be off by a bit
      K[at] = fraction(root)
      if at <= 8 then FIRST[at] = fraction(math.sqrt(n)) end
    end
    n = n + 1
  end
end

local w = {}
local function block(h, s, at)
  for i = 1, 16 do
    local a, b, c, d = s:byte(at + 4 * i - 4, at + 4 * i - 1)
    w[i] = tobit(a * 0x1000000 + b * 0x10000 + c * 0x100 + d)
  end
  for i = 17, 64 do
    local x, y = w[i - 15], w[i - 2]
    w[i] = tobit(w[i - 16] + bxor(ror(x, 7), ror(x, 18), rshift(x, 3)) + w[i - 7] + bxor(ror(y, 17), ror(y, 19), rshift(y, 10)))
  end
  local a, b, c, d, e, f, g, k = unpack(h, 1, 8)
  for i = 1, 64 do
    local t = tobit(k + bxor(ror(e, 6), ror(e, 11), ror(e, 25)) + bxor(band(e, f), band(bnot(e), g)) + K[i] + w[i])
    local u = tobit(bxor(ror(a, 2), ror(a, 13), ror(a, 22)) + bxor(band(a, b), band(a, c), band(b, c)))
    k, g, f, e, d, c, b, a = g, f, e, tobit(d + t), c, b, a, tobit(t + u)
  end
  h[1], h[2], h[3], h[4] = tobit(h[1] + a), tobit(h[2] + b), tobit(h[3] + c), tobit(h[4] + d)
  h[5], h[6], h[7], h[8] = tobit(h[5] + e), tobit(h[6] + f), tobit(h[7] + g), tobit(h[8] + k)
end

local function word(x) return string.char(band(rshift(x, 24), 255), band(rshift(x, 16), 255), band(rshift(x, 8), 255), band(x, 255)) end

--- The 32 bytes of a string's hash.
function M.sha256(s)
  local h = { unpack(FIRST) }
  local bits = #s * 8
  s = s .. '\128' .. ('\0'):rep((55 - #s) % 64) .. word(math.floor(bits / 2 ^ 32)) .. word(tobit(bits % 2 ^ 32))
  for at = 1, #s, 64 do block(h, s, at) end
  for i = 1, 8 do h[i] = word(h[i]) end
  return table.concat(h)
end

local function mask(key, x) return (key:gsub('.', function(c) return string.char(bxor(c:byte(), x)) end)) end

--- The HMAC of strings, one after the other, in hexadecimal digits.
function M.hmac(key, ...)
  if #key > 64 then key = M.sha256(key) end
  key = key .. ('\0'):rep(64 - #key)
  local sum = M.sha256(mask(key, 0x5c) .. M.sha256(mask(key, 0x36) .. table.concat { ... }))
  return (sum:gsub('.', function(c) return ('%02x'):format(c:byte()) end))
end

return M

--- Decoding PGM and PPM (P2, P3, P5, P6), and PBM (P1, P4): plain and raw, to 8 bits a channel.
local ffi = require 'ffi'

local M = {}

local LARGEST = 2 ^ 31 - 1 -- a side; how many pixels there may be, the reader's limit says
local kinds = {P1 = {1, true, true}, P4 = {1, true, false}, P2 = {1, false, true}, P5 = {1, false, false}, P3 = {3, false, true}, P6 = {3, false, false}}

--- Whether bytes begin as one of these does.
function M.is(bytes) return kinds[bytes:sub(1, 2)] ~= nil and bytes:match '^P%d[%s#]' ~= nil end

-- The next number, after white space and comments.
local function number(bytes, at)
  while true do
    at = bytes:match('^%s*()', at)
    if bytes:sub(at, at) ~= '#' then break end
    at = (bytes:find('\n', at, true) or #bytes) + 1
  end
  local digits, after = bytes:match('^(%d+)()', at)
  if not digits or #digits > 10 then error(('a number is missing at byte %d'):format(at - 1), 0) end
  return tonumber(digits), after
end

--- Decode: as png.decode.
function M.decode(bytes, budget)
  local ok, out, width, height, channels = pcall(function()
    local kind = kinds[bytes:sub(1, 2)]
    local c, bitmap, plain = kind[1], kind[2], kind[3]
    local w, h, most, at
    w, at = number(bytes, 3)
    h, at = number(bytes, at)
    if bitmap then most = 1 else most, at = number(bytes, at) end
    if w < 1 or h < 1 or w > LARGEST or h > LARGEST or most < 1 or most > 65535 then
      error(('its size, %.0f x %.0f of values to %.0f, is impossible'):format(w, h, most), 0)
    end
    local n = w * h * c
    local fits, why = budget:take(n)
    if not fits then error(('its size is %.0f x %.0f: %s'):format(w, h, why), 0) end
    if plain then
      if #bytes - at < n - 1 then error('it is cut off', 0) end
    else
      at = at + 1 -- one white space
      local need = bitmap and math.ceil(w / 8) * h or n * (most > 255 and 2 or 1)
      if #bytes - at + 1 < need then error(('it is cut off: %d bytes of pixels, not %d'):format(math.max(#bytes - at + 1, 0), need), 0) end
    end
    local pixels, p = ffi.new('uint8_t[?]', n), ffi.cast('const uint8_t *', bytes)
    local scale = 255 / most
    for i = 0, n - 1 do
      local v
      if plain and bitmap then
        at = bytes:match('^%s*()', at)
        v = bytes:sub(at, at)
        at = at + 1
        if v ~= '0' and v ~= '1' then error(('a pixel is %q at byte %d'):format(v, at - 2), 0) end
        v = 1 - tonumber(v)
      elseif plain then v, at = number(bytes, at)
      elseif bitmap then
        local y, x = math.floor(i / w), i % w
        local byte = p[at - 1 + y * math.ceil(w / 8) + math.floor(x / 8)]
        v = 1 - math.floor(byte / 2 ^ (7 - x % 8)) % 2
      elseif most > 255 then v = p[at - 1 + 2 * i] * 256 + p[at + 2 * i]
      else v = p[at - 1 + i] end
      if v > most then error(('a value is %d, above the largest, %d'):format(v, most), 0) end
      pixels[i] = v * scale + 0.5
    end
    return pixels, w, h, c
  end)
  if not ok then return nil, tostring(out) end
  return out, width, height, channels
end

return M

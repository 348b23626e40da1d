--- Decoding PNG: every colour type, depth and interlacing of the standard, to 8 bits a channel.
--
-- Each chunk's checksum and the size of the data are checked; what is damaged or cut off is an error, never gray. 16-bit
-- values keep their upper byte; a palette becomes RGB (RGBA where it has transparent entries); a transparent colour of a gray or RGB
-- picture becomes alpha where alpha is asked for. Decompression is zlib's.
local bit = require 'bit'
local ffi = require 'ffi'
local core = require 'amp.ffi'
local gzip = require 'amp.data.gzip'
local C = core.C
local band, rshift = bit.band, bit.rshift
local abs, floor, ceil = math.abs, math.floor, math.ceil

ffi.cdef 'int amp_z_uncompress(uint8_t *to, unsigned long *to_size, const uint8_t *from, unsigned long size) __asm__("uncompress");'

local M = {}

local SIGNATURE = '\137PNG\r\n\26\n'
local CHANNELS = {[0] = 1, [2] = 3, [3] = 1, [4] = 2, [6] = 4}
local DEPTHS = {[0] = {1, 2, 4, 8, 16}, [2] = {8, 16}, [3] = {1, 2, 4, 8}, [4] = {8, 16}, [6] = {8, 16}}
local LARGEST = 2 ^ 31 - 1 -- a side; how many pixels there may be, the reader's limit says

-- Adam7: first column and row, steps, of each pass
local PASSES = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}}

--- Whether bytes begin as a PNG does.
function M.is(bytes) return bytes:sub(1, 8) == SIGNATURE end

local function be32(p, at) return ((p[at] * 256 + p[at + 1]) * 256 + p[at + 2]) * 256 + p[at + 3] end

-- -- Chunks --------------------------------------------------------------------------------------

local function read_head(p, at, n)
  if n ~= 13 then error('its header has ' .. n .. ' bytes, not 13', 0) end
  local h = {width = be32(p, at), height = be32(p, at + 4), depth = p[at + 8], color = p[at + 9], interlaced = p[at + 12]}
  local fits = false
  for _, d in ipairs(DEPTHS[h.color] or {}) do fits = fits or d == h.depth end
  if not fits then error(('there is no colour type %d of %d bits'):format(h.color, h.depth), 0) end
  if p[at + 10] ~= 0 or p[at + 11] ~= 0 or h.interlaced > 1 then error('its compression, filter or interlacing is unknown', 0) end
  if h.width < 1 or h.height < 1 or h.width > LARGEST or h.height > LARGEST then
    error(('its size, %.0f x %.0f, is impossible'):format(h.width, h.height), 0)
  end
  h.channels = CHANNELS[h.color]
  return h
end

local function read_chunks(bytes)
  local p, size, at = ffi.cast('const uint8_t *', bytes), #bytes, 8
  local head, palette, alpha, data = nil, nil, nil, {}
  while true do
    if at + 12 > size then error('it is cut off', 0) end
    local n, kind = be32(p, at), bytes:sub(at + 5, at + 8)
    if n > size - at - 12 then error(('its part %q is cut off'):format(kind), 0) end
    if C.amp_crc32(0, p + at + 4, n + 4) ~= be32(p, at + 8 + n) then error(('the checksum of its part %q is wrong'):format(kind), 0) end
    local from = at + 8
    if kind == 'IHDR' then head = read_head(p, from, n)
    elseif not head then error('it has no header', 0)
    elseif kind == 'PLTE' then
      if n % 3 ~= 0 or n == 0 or n > 768 then error('its palette is damaged', 0) end
      palette = bytes:sub(from + 1, from + n)
    elseif kind == 'tRNS' then alpha = bytes:sub(from + 1, from + n)
    elseif kind == 'IDAT' then data[#data + 1] = bytes:sub(from + 1, from + n)
    elseif kind == 'IEND' then break
    elseif kind:match '^%u' then error(('its part %q is unknown'):format(kind), 0) end
    at = from + n + 4
  end
  if #data == 0 then error('it has no pixels', 0) end
  if head.color == 3 and not palette then error('it has no palette', 0) end
  return head, table.concat(data), palette, alpha
end

-- -- Rows -----------------------------------------------------------------------------------------

-- Undo the filters of rows of n bytes, each after its filter's number.
local function unfilter(raw, rows, n, step)
  for y = 0, rows - 1 do
    local row = raw + y * (n + 1)
    local kind, above = row[0], row - n
    row = row + 1
    if kind == 1 then
      for i = step, n - 1 do row[i] = band(row[i] + row[i - step], 255) end
    elseif kind == 2 then
      if y > 0 then for i = 0, n - 1 do row[i] = band(row[i] + above[i], 255) end end
    elseif kind == 3 then
      for i = 0, n - 1 do
        local a, b = i >= step and row[i - step] or 0, y > 0 and above[i] or 0
        row[i] = band(row[i] + rshift(a + b, 1), 255)
      end
    elseif kind == 4 then
      for i = 0, n - 1 do
        local a, b, c = 0, 0, 0
        if i >= step then a = row[i - step] end
        if y > 0 then
          b = above[i]
          if i >= step then c = above[i - step] end
        end
        local pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - 2 * c)
        local guess = (pa <= pb and pa <= pc) and a or pb <= pc and b or c
        row[i] = band(row[i] + guess, 255)
      end
    elseif kind ~= 0 then
      error(('row %d has the unknown filter %d'):format(y + 1, kind), 0)
    end
  end
end

-- A sample of a row as the file has it
local function sample(row, i, depth)
  if depth == 8 then return row[i] end
  if depth == 16 then return row[2 * i] * 256 + row[2 * i + 1] end
  local at = i * depth
  return band(rshift(row[floor(at / 8)], 8 - depth - at % 8), 2 ^ depth - 1)
end

-- The transparent colour of a gray or RGB picture, its samples as the file has them; nil: it has none
local function key_of(h, alpha)
  if not alpha or h.color ~= 0 and h.color ~= 2 or #alpha ~= 2 * h.channels then return nil end
  local key = {}
  for k = 1, h.channels do key[k] = band(alpha:byte(2 * k - 1) * 256 + alpha:byte(2 * k), 2 ^ h.depth - 1) end
  return key
end

local function matches(row, x, h)
  for k = 1, h.channels do
    if sample(row, x * h.channels + k - 1, h.depth) ~= h.key[k] then return false end
  end
  return true
end

-- Samples of a pass into pixels: `out` has `h.wide` bytes a pixel.
local function spread(h, raw, n, width, rows, out, pass)
  local channels, depth, wide, key = h.channels, h.depth, h.wide, h.key
  local scale = (h.color ~= 3 and depth < 8) and 255 / (2 ^ depth - 1) or 1
  for y = 0, rows - 1 do
    local row = raw + y * (n + 1) + 1
    local line = (pass[2] + y * pass[4]) * h.width
    for x = 0, width - 1 do
      local to = (line + pass[1] + x * pass[3]) * wide
      if depth == 8 then
        for k = 0, channels - 1 do out[to + k] = row[x * channels + k] end
      elseif depth == 16 then
        for k = 0, channels - 1 do out[to + k] = row[2 * (x * channels + k)] end
      else
        out[to] = sample(row, x, depth) * scale
      end
      if key then out[to + channels] = matches(row, x, h) and 0 or 255 end
    end
  end
end

local function colour(h, from, palette, alpha)
  local n, channels = h.width * h.height, alpha and 4 or 3
  local out, entries = ffi.new('uint8_t[?]', n * channels), #palette / 3
  for i = 0, n - 1 do
    local k = from[i]
    if k >= entries then error(('colour %d is not in its palette of %d'):format(k + 1, entries), 0) end
    for c = 0, 2 do out[i * channels + c] = palette:byte(3 * k + c + 1) end
    if alpha then out[i * 4 + 3] = alpha:byte(k + 1) or 255 end
  end
  return out, channels
end

--- Decode.
-- @tparam string bytes
-- @param budget of amp.io.limit
-- @tparam ?boolean wants_alpha whether a transparent colour becomes alpha
-- @return pixels, interleaved, or nil and the reason
-- @treturn number width
-- @treturn number height
-- @treturn number channels 1 (gray), 2 (and alpha), 3 (RGB), 4 (and alpha)
function M.decode(bytes, budget, wants_alpha)
  local library, missing = gzip.zlib()
  if not library then return nil, missing end
  local ok, out, width, height, channels = pcall(function()
    local h, data, palette, alpha = read_chunks(bytes)
    h.key = wants_alpha and key_of(h, alpha) or nil
    h.wide = h.channels + (h.key and 1 or 0)
    local fits, why = budget:take(h.width * h.height * (h.color == 3 and (alpha and 4 or 3) or h.wide))
    if not fits then error(('its size is %.0f x %.0f: %s'):format(h.width, h.height, why), 0) end
    local bits = h.channels * h.depth
    local passes = h.interlaced == 1 and PASSES or {{0, 0, 1, 1}}
    local list, total = {}, 0
    for _, p in ipairs(passes) do
      local w, rows = ceil((h.width - p[1]) / p[3]), ceil((h.height - p[2]) / p[4])
      if w > 0 and rows > 0 then
        local n = ceil(w * bits / 8)
        list[#list + 1] = {p, w, rows, n, total}
        total = total + (n + 1) * rows
      end
    end
    if total > #data * 1032 + 1032 then error('it holds less than its size promises', 0) end -- deflate packs no better
    local raw, size = ffi.new('uint8_t[?]', total), ffi.new('unsigned long[1]', total)
    local code = library.amp_z_uncompress(raw, size, data, #data)
    if code ~= 0 or tonumber(size[0]) ~= total then
      error(code == -5 and 'it holds more than its size promises' or 'its compressed data are damaged or cut off', 0)
    end
    local pixels = ffi.new('uint8_t[?]', h.width * h.height * h.wide)
    for _, part in ipairs(list) do
      local from = raw + part[5]
      unfilter(from, part[3], part[4], math.max(1, bits / 8))
      spread(h, from, part[4], part[2], part[3], pixels, part[1])
    end
    if h.color == 3 then
      local c
      pixels, c = colour(h, pixels, palette, alpha)
      return pixels, h.width, h.height, c
    end
    return pixels, h.width, h.height, h.wide
  end)
  if not ok then return nil, tostring(out) end
  return out, width, height, channels
end

return M

--- Decoding JPEG: baseline, extended and progressive, Huffman coded, 8 bits; gray, YCbCr, RGB and CMYK.
--
-- The entropy-coded coefficients of all scans are gathered first (jpeg_scan.lua), then every block is transformed
-- back, chroma is brought to full size by linear interpolation, as usual decoders do, and colours are converted. Damaged
-- or cut files are errors. Facts: ITU-T T.81; JFIF 1.02; Adobe's APP14 marker.
local bit = require 'bit'
local ffi = require 'ffi'
local scan = require 'amp.data.jpeg_scan'
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local M = {}

-- Encoders write some ten; a scan that holds nothing takes few bytes, but the time of all blocks.
local MOST_SCANS = 128

--- Whether bytes begin as a JPEG does.
function M.is(bytes) return bytes:sub(1, 3) == '\255\216\255' end

-- Place of the k-th coefficient of the zigzag order.
local ZIGZAG = ffi.new('uint8_t[64]', {
  0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
  35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63})

local function fail(why, ...) error(why:format(...), 0) end

-- -- Markers ----------------------------------------------------------------------------------------

local parts = {}

-- DQT: tables of steps, in zigzag order
parts[0xDB] = function(j, p, n)
  local at = 0
  while at < n do
    local wide, id = bit.rshift(p[at], 4), bit.band(p[at], 15)
    local need = wide == 0 and 65 or 129
    if wide > 1 or id > 3 or at + need > n then fail 'a table of quantisation is damaged' end
    local t = ffi.new 'float[64]'
    for k = 0, 63 do t[ZIGZAG[k]] = wide == 0 and p[at + 1 + k] or p[at + 1 + 2 * k] * 256 + p[at + 2 + 2 * k] end
    j.steps[id] = t
    at = at + need
  end
end

-- DHT: Huffman tables
parts[0xC4] = function(j, p, n)
  local at = 0
  while at < n do
    if at + 17 > n then fail 'a Huffman table is damaged' end
    local class, id, count = bit.rshift(p[at], 4), bit.band(p[at], 15), 0
    for i = 1, 16 do count = count + p[at + i] end
    if class > 1 or id > 3 or count > 256 or at + 17 + count > n then fail 'a Huffman table is damaged' end
    j.huffman[class][id] = scan.table(p + at + 1, p + at + 17, count)
    at = at + 17 + count
  end
end

-- DRI: how many units lie between restarts
parts[0xDD] = function(j, p, n)
  if n ~= 2 then fail 'its restart interval is damaged' end
  j.restart = p[0] * 256 + p[1]
end

-- APP14: Adobe's, with the colours' transform
parts[0xEE] = function(j, p, n)
  if n >= 12 and ffi.string(p, 5) == 'Adobe' then j.adobe = p[11] end
end

local function frame(j, p, n, progressive)
  if j.components then fail 'it holds several frames' end
  if n < 6 or n ~= 6 + 3 * p[5] then fail 'its header is damaged' end
  if p[0] ~= 8 then fail('it has %d bits a value; 8 can be read', p[0]) end
  j.height, j.width, j.progressive = p[1] * 256 + p[2], p[3] * 256 + p[4], progressive
  if j.width < 1 or j.height < 1 then fail('its size, %d x %d, is impossible', j.width, j.height) end
  local count = p[5]
  if count ~= 1 and count ~= 3 and count ~= 4 then fail('it has %d channels; 1, 3 and 4 can be read', count) end
  j.components, j.hmax, j.vmax = {}, 1, 1
  for i = 1, count do
    local q = p + 3 * (i + 1)
    local c = {id = q[0], h = bit.rshift(q[1], 4), v = bit.band(q[1], 15), steps = q[2]}
    if c.h < 1 or c.h > 4 or c.v < 1 or c.v > 4 or c.steps > 3 then fail 'its header is damaged' end
    j.hmax, j.vmax = max(j.hmax, c.h), max(j.vmax, c.v)
    j.components[i] = c
  end
  j.units_x, j.units_y = ceil(j.width / (8 * j.hmax)), ceil(j.height / (8 * j.vmax))
  if j.units_x * j.units_y > j.size * 8 then fail('its size, %d x %d, is more than a file of %d bytes holds', j.width, j.height, j.size) end
  local fits, why = j.budget:take(j.width * j.height * (count == 1 and 1 or 3))
  if not fits then fail('its size is %d x %d: %s', j.width, j.height, why) end
  for _, c in ipairs(j.components) do
    c.width, c.height = ceil(j.width * c.h / j.hmax), ceil(j.height * c.v / j.vmax)
    c.blocks_x, c.blocks_y = ceil(c.width / 8), ceil(c.height / 8)     -- of the image
    c.stride, c.rows = j.units_x * c.h, j.units_y * c.v                -- with those that fill units up
    c.coefficients = ffi.new('int16_t[?]', c.stride * c.rows * 64)
  end
end

local function read(j, bytes)
  local p, size, at = ffi.cast('const uint8_t *', bytes), #bytes, 2
  while true do
    while at < size and p[at] ~= 255 do at = at + 1 end
    while at < size and p[at] == 255 do at = at + 1 end
    if at >= size then
      if j.scans > 0 and not j.progressive then return end -- the end's marker is missing, the pixels are there
      fail 'it is cut off'
    end
    local marker = p[at]
    at = at + 1
    if marker == 0xD9 then break end
    if marker ~= 0 and marker ~= 1 and (marker < 0xD0 or marker > 0xD7) then
      if at + 2 > size then fail 'it is cut off' end
      local n = p[at] * 256 + p[at + 1] - 2
      if n < 0 or at + 2 + n > size then fail 'it is cut off' end
      local body = p + at + 2
      if marker == 0xC0 or marker == 0xC1 or marker == 0xC2 then frame(j, body, n, marker == 0xC2)
      elseif marker == 0xC9 or marker == 0xCA then fail 'it is arithmetically coded, which can\'t be read'
      elseif marker >= 0xC3 and marker <= 0xCF and marker ~= 0xC4 and marker ~= 0xC8 and marker ~= 0xCC then
        fail 'it is lossless or hierarchical, which can\'t be read'
      elseif parts[marker] then parts[marker](j, body, n) end
      at = at + 2 + n
      if marker == 0xDA then
        if not j.components then fail 'it has no header' end
        at = scan.read(j, body, n, p, at, size, ZIGZAG)
        j.scans = j.scans + 1
        if j.scans > MOST_SCANS then fail('it has more than %d scans', MOST_SCANS) end
      end
    end
  end
  if j.scans == 0 then fail 'it has no pixels' end
end

-- -- Back from frequencies ------------------------------------------------------------------------

-- The transform of Arai, Agui and Nakajima: rows, then columns, each with five products; the factors that it leaves out are in
-- the tables of steps.
local SCALE = {[0] = 1}
for k = 1, 7 do SCALE[k] = math.cos(k * math.pi / 16) * math.sqrt(2) end
local R2, C2, D1, D2 = math.sqrt(2), 2 * math.cos(math.pi / 8), 2 * (math.cos(math.pi / 8) - math.cos(3 * math.pi / 8)),
  2 * (math.cos(math.pi / 8) + math.cos(3 * math.pi / 8))

-- Eight values of b, `step` apart, at each of eight places `next_` apart.
local function transform(b, step, next_)
  local s2, s3, s4, s5, s6, s7 = 2 * step, 3 * step, 4 * step, 5 * step, 6 * step, 7 * step
  for i = 0, 7 * next_, next_ do
    local x0, x1, x2, x3, x4, x5, x6, x7 = b[i], b[i + step], b[i + s2], b[i + s3], b[i + s4], b[i + s5], b[i + s6], b[i + s7]
    local a0, a1, a3 = x0 + x4, x0 - x4, x2 + x6
    local a2 = (x2 - x6) * R2 - a3
    local e0, e3, e1, e2 = a0 + a3, a0 - a3, a1 + a2, a1 - a2
    local z13, z10, z11, z12 = x5 + x3, x5 - x3, x1 + x7, x1 - x7
    local o7 = z11 + z13
    local z5 = (z10 + z12) * C2
    local o6 = z5 - z10 * D2 - o7
    local o5 = (z11 - z13) * R2 - o6
    local o4 = z5 - z12 * D1 - o5
    b[i], b[i + s7], b[i + step], b[i + s6] = e0 + o7, e0 - o7, e1 + o6, e1 - o6
    b[i + s2], b[i + s5], b[i + s3], b[i + s4] = e2 + o5, e2 - o5, e3 + o4, e3 - o4
  end
end

local block, factors = ffi.new 'double[64]', ffi.new 'double[64]'

-- Samples of a component, stride * 8 wide.
local function plane(c, steps)
  local width = c.stride * 8
  local out = ffi.new('uint8_t[?]', width * c.rows * 8)
  for k = 0, 63 do factors[k] = steps[k] * SCALE[floor(k / 8)] * SCALE[k % 8] / 8 end
  for by = 0, c.rows - 1 do
    for bx = 0, c.stride - 1 do
      local from, base = c.coefficients + (by * c.stride + bx) * 64, by * 8 * width + bx * 8
      local flat = true
      for k = 1, 63 do
        if from[k] ~= 0 then
          flat = false
          break
        end
      end
      if flat then
        local v = min(max(floor(from[0] * factors[0] + 128.5), 0), 255)
        for y = 0, 7 do ffi.fill(out + base + y * width, 8, v) end
      else
        for k = 0, 63 do block[k] = from[k] * factors[k] end
        transform(block, 1, 8)
        transform(block, 8, 1)
        for y = 0, 7 do
          for x = 0, 7 do out[base + y * width + x] = min(max(block[8 * y + x] + 128.5, 0), 255) end
        end
      end
    end
  end
  return out
end

-- -- Full size --------------------------------------------------------------------------------------

-- For each of n places of an axis: the two samples it lies between, and the second one's weight.
local function between(n, ratio, samples)
  local a, b, w = ffi.new('int32_t[?]', n), ffi.new('int32_t[?]', n), ffi.new('float[?]', n)
  for i = 0, n - 1 do
    local at = (i + 0.5) / ratio - 0.5
    local k = floor(at)
    a[i], b[i], w[i] = min(max(k, 0), samples - 1), min(max(k + 1, 0), samples - 1), at - k
  end
  return a, b, w
end

local function full(j, c)
  local samples, stride = plane(c, j.steps[c.steps] or fail 'a table of quantisation is missing'), c.stride * 8
  local w, h = j.width, j.height
  if c.h == j.hmax and c.v == j.vmax then return samples, stride end
  local out = ffi.new('uint8_t[?]', w * h)
  local xa, xb, xw = between(w, j.hmax / c.h, c.width)
  local ya, yb, yw = between(h, j.vmax / c.v, c.height)
  for y = 0, h - 1 do
    local r1, r2, v = samples + ya[y] * stride, samples + yb[y] * stride, yw[y]
    for x = 0, w - 1 do
      local l, r, u = xa[x], xb[x], xw[x]
      local top, bottom = r1[l] + (r1[r] - r1[l]) * u, r2[l] + (r2[r] - r2[l]) * u
      out[y * w + x] = top + (bottom - top) * v + 0.5
    end
  end
  return out, w
end

-- What the two chroma add to the luma, and bytes of sums that may lie outside of 0 to 255 (from -256).
local RED, BLUE, GREEN1, GREEN2 = ffi.new 'int32_t[256]', ffi.new 'int32_t[256]', ffi.new 'int32_t[256]', ffi.new 'int32_t[256]'
local BYTE = ffi.new 'uint8_t[1024]'
for i = 0, 255 do
  local v = i - 128
  RED[i], BLUE[i] = floor(1.402 * v + 0.5), floor(1.772 * v + 0.5)
  GREEN1[i], GREEN2[i] = floor(-0.714136286 * 65536 * v + 0.5), floor(-0.344136286 * 65536 * v + 0.5) + 32768
end
for i = 0, 1023 do BYTE[i] = min(max(i - 256, 0), 255) end

-- Interleaved pixels of the planes: gray or RGB.
local function colours(j, planes, strides)
  local w, h, n = j.width, j.height, #planes
  if n == 1 then
    local out = ffi.new('uint8_t[?]', w * h)
    for y = 0, h - 1 do ffi.copy(out + y * w, planes[1] + y * strides[1], w) end
    return out, 1
  end
  local out = ffi.new('uint8_t[?]', w * h * 3)
  local a, b, c, k = planes[1], planes[2], planes[3], planes[4]
  local ids = j.components
  local plain = j.adobe == 0 or (j.adobe == nil and (n == 4 or ids[1].id == 82 and ids[2].id == 71 and ids[3].id == 66))
  for y = 0, h - 1 do
    local ra, rb, rc = a + y * strides[1], b + y * strides[2], c + y * strides[3]
    local rk = k and k + y * strides[4]
    for x = 0, w - 1 do
      local r, g, bl = ra[x], rb[x], rc[x]
      if not plain then
        local l, cb, cr = r + 256, g, bl
        r, g, bl = BYTE[l + RED[cr]], BYTE[l + bit.arshift(GREEN1[cr] + GREEN2[cb], 16)], BYTE[l + BLUE[cb]]
      end
      if rk then -- inks, which Adobe writes inverted
        local black = rk[x]
        if j.adobe == nil then r, g, bl, black = 255 - r, 255 - g, 255 - bl, 255 - black end
        r, g, bl = floor(r * black / 255 + 0.5), floor(g * black / 255 + 0.5), floor(bl * black / 255 + 0.5)
      end
      local to = 3 * (y * w + x)
      out[to], out[to + 1], out[to + 2] = r, g, bl
    end
  end
  return out, 3
end

--- Decode.
-- @tparam string bytes
-- @param budget of amp.io.limit
-- @return pixels, interleaved, or nil and the reason
-- @treturn number width
-- @treturn number height
-- @treturn number channels 1 (gray) or 3 (RGB)
function M.decode(bytes, budget)
  local ok, out, width, height, channels = pcall(function()
    local j = {steps = {}, huffman = {[0] = {}, {}}, restart = 0, scans = 0, size = #bytes, budget = budget}
    read(j, bytes)
    local planes, strides = {}, {}
    for i, c in ipairs(j.components) do planes[i], strides[i] = full(j, c) end
    local pixels, n = colours(j, planes, strides)
    return pixels, j.width, j.height, n
  end)
  if not ok then return nil, tostring(out) end
  return out, width, height, channels
end

return M

--- The entropy-coded part of a JPEG: Huffman tables, and the coefficients of a scan, sequential or progressive.
local bit = require 'bit'
local ffi = require 'ffi'
local band, bor, lshift, rshift = bit.band, bit.bor, bit.lshift, bit.rshift

local M = {}

local LOOK = 9 -- bits looked up at once

local function fail(why, ...) error(why:format(...), 0) end

-- -- Huffman tables -----------------------------------------------------------------------------------

--- A table from the counts of codes of 1 to 16 bits and their values.
function M.table(counts, values, n)
  local t = {n = n, values = ffi.new 'uint8_t[256]', look = ffi.new 'int16_t[512]', most = ffi.new 'int32_t[18]', offset = ffi.new 'int32_t[18]'}
  ffi.copy(t.values, values, n)
  ffi.fill(t.look, 1024, 0xff)
  local code, at = 0, 0
  for length = 1, 16 do
    local count = counts[length - 1]
    t.offset[length] = at - code
    for _ = 1, count do
      if length <= LOOK then
        local first = lshift(code, LOOK - length)
        for k = first, first + lshift(1, LOOK - length) - 1 do
          if k > 511 then fail 'a Huffman table is damaged' end
          t.look[k] = bor(lshift(length, 8), t.values[at])
        end
      end
      code, at = code + 1, at + 1
    end
    if code > lshift(1, length) then fail 'a Huffman table is damaged' end
    t.most[length] = count > 0 and code - 1 or -1
    code = code * 2
  end
  return t
end

-- -- Scans ------------------------------------------------------------------------------------------------

--- Read a scan.
-- @tparam table j the decoder's state: components, tables
-- @param head pointer to the scan's header
-- @tparam number n its bytes
-- @param p the file's bytes
-- @tparam number pos where the scan's data begin
-- @tparam number size of the file
-- @param zigzag
-- @treturn number where they end
function M.read(j, head, n, p, pos, size, zigzag)
  local count = head[0]
  if n < 4 or n ~= 4 + 2 * count or count < 1 or count > #j.components then fail 'the header of a scan is damaged' end
  local list = {}
  for i = 1, count do
    local id, tables = head[2 * i - 1], head[2 * i]
    for _, c in ipairs(j.components) do
      if c.id == id then list[i] = {c = c, dc = j.huffman[0][rshift(tables, 4)], ac = j.huffman[1][band(tables, 15)], last = 0} end
    end
    if not list[i] then fail('a scan names channel %d, which is not there', id) end
  end
  local first, last, high, low = head[2 * count + 1], head[2 * count + 2], rshift(head[2 * count + 3], 4), band(head[2 * count + 3], 15)
  local progressive = j.progressive
  if not progressive then first, last, high, low = 0, 63, 0, 0 end
  if first > last or last > 63 or low > 13 or progressive and (first == 0 and last > 0 or first > 0 and count > 1) then
    fail 'the header of a scan is damaged'
  end

  -- Bits, most significant first. Behind the data stand zeros, of which `fed` were taken.
  local acc, nbits, fed = 0, 0, 0
  local function fill()
    while nbits <= 24 do
      local b = 0
      if pos < size and not (p[pos] == 255 and (pos + 1 >= size or p[pos + 1] ~= 0)) then
        b = p[pos]
        pos = pos + (b == 255 and 2 or 1)
      else
        fed = fed + 8
      end
      acc = bor(lshift(acc, 8), b)
      nbits = nbits + 8
    end
  end
  local function spent()
    if fed > nbits then fail 'it is cut off' end
  end
  local function bits(k)
    if k == 0 then return 0 end
    if nbits < k then
      fill()
      spent()
    end
    nbits = nbits - k
    return band(rshift(acc, nbits), lshift(1, k) - 1)
  end
  -- A value of k bits, of which the lower half stand for negative ones.
  local function extend(k)
    if k == 0 then return 0 end
    local v = bits(k)
    return v < lshift(1, k - 1) and v - lshift(1, k) + 1 or v
  end
  local function symbol(t)
    if nbits < 16 then
      fill()
      spent()
    end
    local entry = t.look[band(rshift(acc, nbits - LOOK), 511)]
    if entry >= 0 then
      nbits = nbits - rshift(entry, 8)
      return band(entry, 255)
    end
    for length = LOOK + 1, 16 do
      local code = band(rshift(acc, nbits - length), lshift(1, length) - 1)
      if t.most[length] >= 0 and code <= t.most[length] and code + t.offset[length] >= 0 then
        nbits = nbits - length
        return t.values[code + t.offset[length]]
      end
    end
    fail 'its compressed data are damaged'
  end

  local run = 0 -- blocks to come that hold nothing of this scan

  local function sequential(s, b)
    s.last = s.last + extend(band(symbol(s.dc), 15))
    b[0] = s.last
    local ac, k = s.ac, 1
    while k < 64 do
      local rs = symbol(ac)
      local r, z = rshift(rs, 4), band(rs, 15)
      if z == 0 then
        if r < 15 then break end
        k = k + 16
      else
        k = k + r
        if k > 63 then fail 'its compressed data are damaged' end
        b[zigzag[k]] = extend(z)
        k = k + 1
      end
    end
  end

  local function dc_first(s, b)
    s.last = s.last + extend(band(symbol(s.dc), 15))
    b[0] = lshift(s.last, low)
  end
  local function dc_more(_, b)
    if bits(1) == 1 then b[0] = bor(b[0], lshift(1, low)) end
  end

  local function ac_first(s, b)
    if run > 0 then
      run = run - 1
      return
    end
    local k = first
    while k <= last do
      local rs = symbol(s.ac)
      local r, z = rshift(rs, 4), band(rs, 15)
      if z == 0 then
        if r < 15 then
          run = lshift(1, r) - 1 + bits(r)
          return
        end
        k = k + 16
      else
        k = k + r
        if k > 63 then fail 'its compressed data are damaged' end
        b[zigzag[k]] = lshift(extend(z), low)
        k = k + 1
      end
    end
  end

  -- One more bit of a coefficient that is known to be none of 0.
  local function refine(b, at)
    if bits(1) == 1 and band(math.abs(b[at]), lshift(1, low)) == 0 then
      b[at] = b[at] + (b[at] > 0 and lshift(1, low) or -lshift(1, low))
    end
  end
  local function ac_more(s, b)
    local k = first
    if run == 0 then
      while k <= last do
        local rs = symbol(s.ac)
        local r, z = rshift(rs, 4), band(rs, 15)
        local fresh = 0
        if z == 0 then
          if r < 15 then
            run = lshift(1, r) + bits(r)
            break
          end
        else
          fresh = bits(1) == 1 and lshift(1, low) or -lshift(1, low)
        end
        while k <= last do
          local at = zigzag[k]
          if b[at] ~= 0 then refine(b, at)
          else
            if r == 0 then
              if fresh ~= 0 then b[at] = fresh end
              k = k + 1
              break
            end
            r = r - 1
          end
          k = k + 1
        end
      end
    end
    if run > 0 then
      while k <= last do
        if b[zigzag[k]] ~= 0 then refine(b, zigzag[k]) end
        k = k + 1
      end
      run = run - 1
    end
  end

  local decode
  if not progressive then decode = sequential
  elseif first == 0 then decode = high == 0 and dc_first or dc_more
  else decode = high == 0 and ac_first or ac_more end
  for _, s in ipairs(list) do
    if (not progressive or first == 0 and high == 0) and not s.dc or (not progressive or first > 0) and not s.ac then
      fail 'a Huffman table is missing'
    end
  end

  -- A restart: the bits begin anew behind a marker, predictions at 0.
  local left = j.restart
  local function restart()
    acc, nbits, fed, run = 0, 0, 0, 0
    while pos + 1 < size and not (p[pos] == 255 and p[pos + 1] ~= 0 and p[pos + 1] ~= 255) do pos = pos + 1 end
    if pos + 1 >= size then fail 'it is cut off' end
    if p[pos + 1] < 0xD0 or p[pos + 1] > 0xD7 then fail 'a part of its data is missing' end
    pos = pos + 2
    for _, s in ipairs(list) do s.last = 0 end
  end
  local function tick(more)
    if j.restart > 0 then
      left = left - 1
      if left == 0 and more then
        restart()
        left = j.restart
      end
    end
  end

  if count == 1 then -- block by block of the image
    local s = list[1]
    local c = s.c
    for y = 0, c.blocks_y - 1 do
      for x = 0, c.blocks_x - 1 do
        decode(s, c.coefficients + (y * c.stride + x) * 64)
        tick(not (y == c.blocks_y - 1 and x == c.blocks_x - 1))
      end
    end
  else -- unit by unit, each with all its channels' blocks
    for uy = 0, j.units_y - 1 do
      for ux = 0, j.units_x - 1 do
        for _, s in ipairs(list) do
          local c = s.c
          for v = 0, c.v - 1 do
            for h = 0, c.h - 1 do decode(s, c.coefficients + ((uy * c.v + v) * c.stride + ux * c.h + h) * 64) end
          end
        end
        tick(not (uy == j.units_y - 1 and ux == j.units_x - 1))
      end
    end
  end
  spent()
  -- back to the first byte that was not needed: the next marker
  while pos + 1 < size and not (p[pos] == 255 and p[pos + 1] ~= 0 and (p[pos + 1] < 0xD0 or p[pos + 1] > 0xD7)) do pos = pos + 1 end
  return pos
end

return M

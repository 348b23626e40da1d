--- amp.plot: figures and images as PNG that decode to what was drawn, as text for terminals, and what bad input gets.
local bit = require 'bit'
local ffi = require 'ffi'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local plot = amp.plot

-- -- A reader of PNG of the spec's own ---------------------------------------------------------

ffi.cdef 'int spec_uncompress(uint8_t *to, unsigned long *n, const uint8_t *from, unsigned long size) __asm__("uncompress");'

local function be(s, at) return ((s:byte(at) * 256 + s:byte(at + 1)) * 256 + s:byte(at + 2)) * 256 + s:byte(at + 3) end
local function crc(s)
  local c = -1
  for i = 1, #s do
    c = bit.bxor(c, s:byte(i))
    for _ = 1, 8 do c = bit.bxor(bit.rshift(c, 1), bit.band(c, 1) ~= 0 and 0xedb88320 or 0) end
  end
  return bit.bnot(c) % 2 ^ 32
end

-- {width, height, channels, at = function(x, y) -> a list}
local function decode(s)
  assert.equal('\137PNG\r\n\26\n', s:sub(1, 8))
  local at, head, data, last = 9, nil, {}, nil
  while at <= #s do
    local n, kind = be(s, at), s:sub(at + 4, at + 7)
    assert.equal(crc(s:sub(at + 4, at + 7 + n)), be(s, at + 8 + n))
    if kind == 'IHDR' then head = s:sub(at + 8, at + 7 + n) elseif kind == 'IDAT' then data[#data + 1] = s:sub(at + 8, at + 7 + n) end
    last, at = kind, at + 12 + n
  end
  assert.equal('IEND', last)
  local w, h, channels = be(head, 1), be(head, 5), ({ [0] = 1, [4] = 2, [2] = 3, [6] = 4 })[head:byte(10)]
  assert.equal(8, head:byte(9))
  assert.equal(0, head:byte(13))
  local row = w * channels
  local size, raw = ffi.new('unsigned long[1]', h * (row + 1)), ffi.new('uint8_t[?]', h * (row + 1))
  local packed = table.concat(data)
  assert.equal(0, amp.data and require('amp.data.gzip').zlib().spec_uncompress(raw, size, packed, #packed))
  assert.equal(h * (row + 1), tonumber(size[0]))
  local out = {}
  for y = 0, h - 1 do
    local filter = raw[y * (row + 1)]
    for i = 0, row - 1 do
      local a = i >= channels and out[y * row + i - channels] or 0
      local b = y > 0 and out[(y - 1) * row + i] or 0
      local c = (y > 0 and i >= channels) and out[(y - 1) * row + i - channels] or 0
      local guess = 0
      if filter == 1 then guess = a elseif filter == 2 then guess = b elseif filter == 3 then guess = math.floor((a + b) / 2)
      elseif filter == 4 then
        local pa, pb, pc = math.abs(b - c), math.abs(a - c), math.abs(a + b - 2 * c)
        guess = (pa <= pb and pa <= pc) and a or pb <= pc and b or c
      end
      out[y * row + i] = (raw[y * (row + 1) + 1 + i] + guess) % 256
    end
  end
  return { width = w, height = h, channels = channels, at = function(x, y)
    if x < 0 or y < 0 or x >= w or y >= h then error(('no pixel %s, %s'):format(x, y), 2) end
    local list = {}
    for k = 0, channels - 1 do list[k + 1] = out[(y * w + x) * channels + k] end
    return list
  end }
end

local function near(a, b, by)
  for k = 1, 3 do
    if math.abs(a[k] - b[k]) > (by or 3) then return false end
  end
  return true
end

-- Pixels of a colour in a part of a picture.
local function count(p, color, x1, y1, x2, y2)
  local n = 0
  for y = y1, y2 do
    for x = x1, x2 do if near(p.at(x, y), color) then n = n + 1 end end
  end
  return n
end

local RED = { 255, 0, 0 }
local function lines(s)
  local list = {}
  for line in (s .. '\n'):gmatch '(.-)\n' do list[#list + 1] = line end
  return list
end

-- -- Images --------------------------------------------------------------------------------------

describe('images', function()
  it('of bytes come back as they were', function()
    for _, c in ipairs { 1, 3, 4 } do
      local t = amp.randint(0, 256, { c, 13, 17 }, { dtype = 'uint8' })
      local p = decode(plot.image(t):png())
      assert.same({ 17, 13, c }, { p.width, p.height, p.channels })
      local v = t:tolist()
      for y = 0, 12 do
        for x = 0, 16 do
          for k = 1, c do assert.equal(v[k][y + 1][x + 1], p.at(x, y)[k]) end
        end
      end
    end
  end)
  it('of other dtypes go from 0 to 1, or over what they hold', function()
    local p = decode(plot.image(amp.tensor { { 0, 0.5, 1 } }):png())
    assert.same({ { 0 }, { 128 }, { 255 } }, { p.at(0, 0), p.at(1, 0), p.at(2, 0) })
    p = decode(plot.image(amp.tensor { { -1, 0, 3 } }):png())
    assert.same({ { 0 }, { 64 }, { 255 } }, { p.at(0, 0), p.at(1, 0), p.at(2, 0) })
    p = decode(plot.image(amp.tensor { { 0.2, 0.3, 0 / 0 } }, { normalize = true }):png())
    assert.same({ { 0 }, { 255 }, { 0 } }, { p.at(0, 0), p.at(1, 0), p.at(2, 0) })
    p = decode(plot.image(amp.tensor { { -9, 5, 99 } }, { range = { 0, 10 } }):png())
    assert.same({ { 0 }, { 128 }, { 255 } }, { p.at(0, 0), p.at(1, 0), p.at(2, 0) })
    p = decode(plot.image(amp.tensor { { true, false } }):png())
    assert.same({ { 255 }, { 0 } }, { p.at(0, 0), p.at(1, 0) })
    p = decode(plot.image(amp.tensor({ { 0, 1, 0.5 } }, { dtype = 'bfloat16' })):png())
    assert.same({ 128 }, p.at(2, 0))
  end)
  it('in a grid stand in rows with a gap, and may be enlarged', function()
    local t = amp.ones(5, 1, 2, 3)
    local p = decode(plot.image(t, { columns = 3, pad = 1, scale = 2 }):png())
    assert.same({ (3 * 3 + 2) * 2, (2 * 2 + 1) * 2 }, { p.width, p.height })
    assert.same({ 255 }, p.at(0, 0))
    assert.same({ 0 }, p.at(6, 0)) -- the gap
    assert.same({ 255 }, p.at(8, 0))
    assert.same({ 0 }, p.at(16, 6)) -- no sixth
  end)
  it('are files, written whole', function()
    local path = H.tmp 'image.png'
    plot.image(amp.rand(4, 4)):save(path)
    assert.equal(4, decode(H.read(path)).width)
    H.fails_here(function() plot.image(amp.rand(4, 4)):save '/nowhere/at/all.png' end, '/nowhere/at/all.png')
    H.fails_here(function() plot.image(amp.rand(4, 4)):save(5) end, 'path', '5')
  end)
  it('in a terminal are half blocks of colour, or shades of ASCII', function()
    local t = amp.tensor { { 0, 1 }, { 1, 0 } }
    local colored = plot.image(t):text { unicode = true, color = true }
    assert.equal('\27[38;2;0;0;0m\27[48;2;255;255;255m\226\150\128\27[38;2;255;255;255m\27[48;2;0;0;0m\226\150\128\27[0m', colored)
    assert.equal('--', (plot.image(t):text { unicode = false, color = false }:gsub('[=+]', '-')))
    local big = lines(plot.image(amp.rand(3, 500, 700)):text { unicode = false, color = false, width = 60, height = 20 })
    assert.is_true(#big <= 20 and #big[1] <= 60)
  end)
  it('refuse what is no image', function()
    H.fails_here(function() plot.image(5) end, 'tensor', '5')
    H.fails_here(function() plot.image(amp.ones(2, 3, 3)) end, '2x3x3')
    H.fails_here(function() plot.image(amp.ones(3)) end, 'got shape 3')
    H.fails_here(function() plot.image(amp.ones(0, 3)) end, '0x3', 'empty')
    H.fails_here(function() plot.image(amp.ones(2, 3), { colums = 2 }) end, 'colums', 'columns')
    H.fails_here(function() plot.image(amp.ones(2, 3), { range = { 1, 0 } }) end, 'range')
  end)
  it('need no zlib', function()
    local png = require 'amp.plot.png'
    local bytes = ffi.new('uint8_t[?]', 300 * 300)
    for i = 0, 300 * 300 - 1 do bytes[i] = i * 7 % 251 end
    local p = decode(png.encode(bytes, 300, 300, 1, 0)) -- stored in two blocks
    assert.same({ (299 * 300 + 17) * 7 % 251 }, p.at(17, 299))
  end)
end)

-- -- Figures ---------------------------------------------------------------------------------------

describe('figures', function()
  it('draw a line where its values are', function()
    local fig = plot.line({ 0, 10 }, { 0, 10 }, { color = RED, xlim = { 0, 10 }, ylim = { 0, 10 }, grid = false, width = 300, height = 300, line_width = 3 })
    local p = decode(fig:png())
    assert.same({ 300, 300, 3 }, { p.width, p.height, p.channels })
    -- the frame: from its corners the line goes from bottom left to top right
    local left, bottom, right, top
    for x = 0, 299 do if near(p.at(x, 150), { 130, 130, 130 }, 60) and not left then left = x end end
    for x = 299, 0, -1 do if near(p.at(x, 150), { 130, 130, 130 }, 60) and not right then right = x end end
    for y = 0, 299 do if near(p.at(right - 40, y), { 130, 130, 130 }, 60) and not top then top = y end end
    for y = 299, 0, -1 do if near(p.at(left + 40, y), { 130, 130, 130 }, 60) and not bottom then bottom = y end end
    for _, share in ipairs { 0.2, 0.5, 0.8 } do
      local x, y = math.floor(left + share * (right - left)), math.floor(bottom - share * (bottom - top))
      assert.is_true(count(p, RED, x - 2, y - 2, x + 2, y + 2) > 5, ('%d,%d'):format(x, y))
      assert.equal(0, count(p, RED, x - 2, y + 20, x + 2, math.min(y + 30, 299)))
    end
  end)
  it('leave gaps where values are not finite, and take axes with no values', function()
    local whole = decode(plot.line({ 1, 2, 3, 4, 5 }, { color = RED, width = 240, height = 160 }):png())
    local gap = decode(plot.line({ 1, 2, 0 / 0, 4, 5 }, { color = RED, width = 240, height = 160 }):png())
    local a, b = count(whole, RED, 0, 0, 239, 159), count(gap, RED, 0, 0, 239, 159)
    assert.is_true(b > 0.3 * a and b < 0.7 * a, a .. ' ' .. b)
    for _, y in ipairs { { 0 / 0 }, { 5 }, { 1 / 0, -1 / 0 }, { 3, 3, 3 }, {}, { 1e300, -1e300 }, { 1e-300 }, { 0 } } do
      decode(plot.figure({ width = 100, height = 80 }):line(y):png())
      assert.is_string(tostring(plot.line(y)))
    end
    decode(plot.line({ -1, 0, 10 }, { yscale = 'log', width = 100, height = 80 }):png())
    decode(plot.line({ 1, 10 }, { xscale = 'log', yscale = 'log', width = 100, height = 80 }):png())
  end)
  it('of a long tensor keep its extremes, and copy little', function()
    local t = amp.zeros(1000000)
    t[654321] = 7
    t[123456] = -3
    local fig = plot.line(t)
    local ys = fig.series[1].ys
    assert.is_true(#ys <= 9000, #ys)
    local function extremes(list)
      local low, high = list[1], list[1]
      for _, v in ipairs(list) do low, high = math.min(low, v), math.max(high, v) end
      return { low, high }
    end
    assert.same({ -3, 7 }, extremes(ys))
    local list = {}
    for i = 1, 100000 do list[i] = i == 77777 and 9 or 0 end
    ys = plot.line(list).series[1].ys
    assert.is_true(#ys <= 16000, #ys)
    assert.same({ 0, 9 }, extremes(ys))
  end)
  it('have a legend for labels, and one curve a name', function()
    local fig = plot.curves({ b = { 1, 2 }, a = { amp.tensor { 1, 5 }, amp.tensor { 3, 4 } } }, { smooth = 0.5, title = 'both' })
    assert.same({ 'a', 'b' }, { fig.series[2].label, fig.series[4].label })
    assert.same({ 1, 5 }, fig.series[2].xs)
    assert.is_true(fig.series[1].faint and fig.series[3].faint)
    local text = fig:text { unicode = false, color = false, width = 60, height = 15 }
    assert.is_truthy(text:find('* a   + b', 1, true), text)
    assert.is_truthy(lines(text)[1]:find 'both')
  end)
  it('smooth towards the first value', function()
    local ys = plot.line({ 1, 1, 1, 0 / 0, 5 }, { smooth = 0.9 }).series[2].ys
    assert.is_true(math.abs(ys[3] - 1) < 1e-12)
    assert.is_true(ys[4] ~= ys[4])
    assert.is_true(ys[5] > 1 and ys[5] < 3)
  end)
  it('of a histogram count every value, and say what they leave out', function()
    local fig = plot.histogram(amp.tensor { 0, 0.5, 1, 1, 2, 0 / 0, 1 / 0 }, { bins = 2, label = 'w' })
    assert.same({ 0, 1, 2 }, fig.series[1].edges)
    assert.same({ 2, 3 }, fig.series[1].counts)
    assert.equal('w, 2 not finite', fig.series[1].label)
    assert.same({ 1, 1 }, plot.histogram({ 1, 3 }, { bins = 2, range = { 0, 4 } }).series[1].counts)
    assert.same({ 0, 3, 0 }, plot.histogram(amp.full({ 3 }, 4, { dtype = 'int64' }), { bins = 3 }).series[1].counts)
    assert.equal('\137PNG', fig:png():sub(1, 4))
  end)
  it('of points take many, and say how many are shown', function()
    local fig = plot.scatter(amp.rand(250000), amp.rand(250000), { label = 'p' })
    assert.is_true(#fig.series[1].xs <= 100000)
    assert.equal('p, 1 of 3 points', fig.series[1].label)
    local p = decode(plot.scatter({ 1, 2, 3 }, { 1, 2, 3 }, { color = RED, size = 5, width = 200, height = 150 }):png())
    assert.is_true(count(p, { 255, 50, 50 }, 0, 0, 199, 149) > 100)
  end)
  it('have round ticks', function()
    local ticks = require 'amp.plot.ticks'
    local function texts(...)
      local list = {}
      for i, t in ipairs(ticks.linear(...)) do list[i] = t[2] end
      return table.concat(list, ' ')
    end
    assert.equal('0 2 4 6 8 10', texts(0, 10, 5))
    assert.equal('-0.10 -0.05 0 0.05 0.10', texts(-0.1, 0.1, 4))
    assert.equal('0 5e5 1.0e6 1.5e6 2.0e6', texts(0, 2e6, 4))
    assert.equal('1000.0 1000.5 1001.0', texts(1000, 1001, 2))
    local logs = {}
    for i, t in ipairs(ticks.log(0.001, 1e6, 10)) do logs[i] = t[2] end
    assert.equal('0.001 0.01 0.1 1 10 100 1000 10000 1e5 1e6', table.concat(logs, ' '))
  end)
  it('as text stay within their width, in Braille or ASCII', function()
    local fig = plot.line(amp.arange(0, 50), { title = 'a title', xlabel = 'step' })
    for _, unicode in ipairs { true, false } do
      local text = fig:text { unicode = unicode, color = false, width = 50, height = 12 }
      local l = lines(text)
      assert.equal(12, #l)
      for _, line in ipairs(l) do
        local _, n = line:gsub('[^\128-\191]', '')
        assert.is_true(n <= 50, line)
      end
      assert.equal(unicode, text:find '[\128-\255]' ~= nil)
      assert.is_nil(text:find('\27', 1, true))
    end
    assert.is_truthy(fig:text { unicode = true, color = true }:find '\27%[38;2;')
    -- the line rises from the bottom left to the top right
    local l = lines(fig:text { unicode = false, color = false, width = 50, height = 12 })
    assert.is_truthy(l[2]:find '%*$')
    assert.is_true(l[8]:find '%*' < 15, l[8])
  end)
  it('copy from another device only what is shown', function()
    local out, status = H.child([[
      local mock = require 'spec.device.mock.device'
      local t = amp.arange(0, 1e6):to 'cuda'
      local picture = amp.zeros(3, 400, 400):to 'cuda'
      local live = amp.memory('cpu').live
      amp.reset_peak_memory 'cpu'
      amp.plot.line(t)
      amp.plot.image(picture, {range = {0, 1}}):text{width = 40, height = 10, unicode = false, color = false}
      collectgarbage()
      print(amp.memory('cpu').peak - live < 1e5, amp.memory('cpu').peak - live)
      local reads = mock.reads()
      amp.plot.histogram(t)
      print(mock.reads() - reads <= 4)
    ]], nil, 'AMP_MOCK=' .. H.quote(H.absolute(H.build) .. '/mock'))
    assert.equal(0, status, out)
    assert.is_truthy(out:match '^true.*true\n$', out)
  end)
  it('refuse what they cannot draw', function()
    H.fails_here(function() plot.line(5) end, 'y', '5')
    H.fails_here(function() plot.line { 1, 'x' } end, 'element 2', "'x'")
    H.fails_here(function() plot.line({ 1, 2 }, { 1, 2, 3 }) end, '2', '3')
    H.fails_here(function() plot.line({ 1 }, { titel = 'x' }) end, 'titel')
    H.fails_here(function() plot.line({ 1 }, { color = 'blu' }) end, 'blu', 'blue')
    H.fails_here(function() plot.line({ 1 }, { yscale = 'cubic' }) end, 'cubic')
    H.fails_here(function() plot.line({ 1 }, { ylim = { 2, 1 } }) end, 'ylim', '{2, 1}')
    H.fails_here(function() plot.line({ 1 }, { ylim = { 0, 1 }, yscale = 'log' }) end, 'ylim', 'above 0')
    H.fails_here(function() plot.line({ 1 }, { smooth = 1 }) end, 'smooth')
    H.fails_here(function() plot.scatter { 1 } end, 'x and y')
    H.fails_here(function() plot.histogram {} end, 'no values')
    H.fails_here(function() plot.histogram { 0 / 0 } end, 'finite')
    H.fails_here(function() plot.figure { width = 5 } end, 'width', '5')
    H.fails_here(function() plot.figure { width = 1e6 } end, 'width', '16384')
    H.fails_here(function() plot.curves { { 1, 2 } } end, 'by name')
    H.fails_here(function() plot.lines {} end, 'lines', "'line'")
    H.fails_here(function() plot.line { 1 }:text { width = 3 } end, 'width', '3')
  end)
end)

describe('what shows', function()
  it('is loaded when it is first asked for', function()
    local out, status = H.child [[
      for _, name in ipairs { 'plot', 'log', 'torch7', 'tools.summary', 'progress', 'data', 'print' } do
        if package.loaded['amp.' .. name] then print(name) end
      end
      local _ = amp.plot, amp.Logger, amp.summary
      print(package.loaded['amp.plot.draw'], package.loaded['amp.torch7'])
    ]]
    assert.equal('nil\tnil\n', out)
    assert.equal(0, status)
  end)
end)

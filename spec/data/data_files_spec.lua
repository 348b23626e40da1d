--- data: images of every kind of file against other decoders' pixels, damaged ones, folders of them; vocabularies and texts.
-- The pictures and what they decode to are made by fixtures/make_images.py.
local ffi = require 'ffi'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local data = amp.data
local C = require('amp.ffi').C

local function fixture(name) return H.root .. '/spec/fixtures/images/' .. name end

-- name -> channels of the file, and the largest difference that is rounding
local kinds = {
  ['base420.jpg'] = { 3, 3 }, ['base422.jpg'] = { 3, 3 }, ['base444.jpg'] = { 3, 3 }, ['progressive.jpg'] = { 3, 3 }, ['progressive444.jpg'] = { 3, 3 },
  ['restarts.jpg'] = { 3, 3 }, ['restarts_progressive.jpg'] = { 3, 3 }, ['gray.jpg'] = { 1, 1 }, ['cmyk.jpg'] = { 3, 3 },
  ['rgb.png'] = { 3, 0 }, ['gray.png'] = { 1, 0 }, ['bits.png'] = { 1, 0 }, ['rgba.png'] = { 4, 0 }, ['palette.png'] = { 3, 0 },
  ['palette4.png'] = { 3, 0 }, ['gray16.png'] = { 1, 0 }, ['interlaced.png'] = { 3, 0 }, ['raw.ppm'] = { 3, 0 }, ['raw.pgm'] = { 1, 0 },
  ['lossless.webp'] = { 3, 0 }, ['lossy.webp'] = { 3, 0 }, ['alpha.webp'] = { 4, 0 }, ['animated.webp'] = { 4, 0 },
  ['raw.pbm'] = { 1, 0 }, ['plain.ppm'] = { 3, 0 },
}

if not require('amp.data.codecs').library 'webp' then
  for name in pairs(kinds) do kinds[name] = not name:find '%.webp$' and kinds[name] or nil end
end

local made = 0
local function file(bytes)
  made = made + 1
  local path = H.tmp('image' .. made)
  H.write(path, bytes)
  return path
end

describe('images', function()
  for name, kind in pairs(kinds) do
    it('in ' .. name .. ' are what other decoders read', function()
      local t = data.read_image(fixture(name))
      assert.equal('uint8', t.dtype)
      assert.same({ kind[1], 13, 19 }, H.shape(t))
      local raw, v, c = H.read(fixture(name .. '.raw')), H.values(t), kind[1]
      local most, sum = 0, 0
      for i = 0, #raw - 1 do
        local pixel, channel = math.floor(i / c), i % c
        local e = math.abs(raw:byte(i + 1) - v[channel * 13 * 19 + pixel + 1])
        most, sum = math.max(most, e), sum + e
      end
      assert.equal(c * 13 * 19, #raw)
      assert.is_true(most <= kind[2], most)
      assert.is_true(sum / #raw <= 0.25 * kind[2], sum / #raw)
    end)
  end
  it('come with as many channels as asked for', function()
    local rgb, gray = data.read_image(fixture 'rgb.png'), data.read_image(fixture 'gray.png')
    local difference = (data.read_image(fixture 'rgb.png', { channels = 1 }):int() - gray:int()):abs():max():item()
    assert.is_true(difference <= 1, difference)
    H.same(data.read_image(fixture 'gray.png', { channels = 3 })[2], gray[1])
    local rgba = data.read_image(fixture 'rgb.png', { channels = 4 })
    H.same(rgba[3], rgb[3])
    assert.equal(255, rgba[4]:min():item())
    H.same(data.read_image(fixture 'rgba.png', { channels = 3 }), rgb)
    assert.same({ 4, 13, 19 }, H.shape(data.read_image(fixture 'gray_alpha.png')))
  end)
  it('a transparent colour of a PNG is alpha where that is asked for, compared in all its bits', function()
    local function be(v, n) return (n == 4 and string.char(math.floor(v / 2 ^ 24) % 256, math.floor(v / 65536) % 256) or '')
      .. string.char(math.floor(v / 256) % 256, v % 256) end
    local function chunk(kind, text)
      return be(#text, 4) .. kind .. text .. be(tonumber(C.amp_crc32(0, kind .. text, #text + 4)) % 2 ^ 32, 4)
    end
    -- rows, each after a 0, as one stored block of deflate
    local function png(w, h, depth, colour, rows, key)
      local a, b = 1, 0
      for k = 1, #rows do
        a = (a + rows:byte(k)) % 65521
        b = (b + a) % 65521
      end
      local stored = '\120\1\1' .. string.char(#rows, 0, 255 - #rows, 255) .. rows .. be(b * 65536 + a, 4)
      return '\137PNG\r\n\26\n' .. chunk('IHDR', be(w, 4) .. be(h, 4) .. string.char(depth, colour, 0, 0, 0)) .. chunk('tRNS', key)
        .. chunk('IDAT', stored) .. chunk('IEND', '')
    end
    local function read(text, channels)
      local path = H.tmp 'key.png'
      local f = assert(io.open(path, 'wb'))
      f:write(text)
      f:close()
      return data.read_image(path, { channels = channels })
    end
    local gray, gray2 = png(3, 1, 8, 0, '\0\5\6\7', '\0\6'), png(3, 1, 2, 0, '\0' .. string.char(1 * 64 + 2 * 16 + 3 * 4), '\0\2')
    local gray16 = png(2, 1, 16, 0, '\0\1\2\1\3', '\1\3')
    local rgb = png(2, 2, 8, 2, '\0\1\2\3\1\2\4\0\9\2\3\1\2\3', '\0\1\0\2\0\3')
    assert.same({ 255, 0, 255 }, read(gray, 4)[4][1]:tolist())
    assert.same({ 5, 6, 7 }, read(gray, 4)[2][1]:tolist())
    assert.same({ 255, 0, 255 }, read(gray2, 4)[4][1]:tolist())
    assert.same({ 85, 170, 255 }, read(gray2, 4)[1][1]:tolist())
    assert.same({ 255, 0 }, read(gray16, 4)[4][1]:tolist())
    assert.same({ 1, 1 }, read(gray16, 4)[3][1]:tolist())
    assert.same({ { 0, 255 }, { 255, 0 } }, read(rgb, 4)[4]:tolist())
    assert.same({ 3, 2, 2 }, H.shape(read(rgb))) -- the colours are what the file has
    assert.same({ { 1, 1 }, { 9, 1 } }, read(rgb, 3)[1]:tolist())
    assert.same({ 255, 255, 255 }, read(png(3, 1, 8, 0, '\0\5\6\7', '\6'), 4)[4][1]:tolist()) -- a key of a wrong length is none
  end)
  it('in PNG are read by the own decoder as by the library, good and damaged ones', function()
    local codecs, png, limit = require 'amp.data.codecs', require 'amp.data.png', require 'amp.io.limit'
    local draw = require 'spec.lib.draw'
    draw.start(3)
    for name in pairs(kinds) do
      local good = name:find '%.png$' and H.read(fixture(name)) or ''
      for k = 0, good ~= '' and 400 or -1 do
        local at = draw.draw(#good)
        local bytes = k == 0 and good or k % 5 == 0 and good:sub(1, at) or good:sub(1, at - 1) .. string.char(draw.draw(256) - 1) .. good:sub(at + 1)
        local a, w, h, c = codecs.decode_png(bytes, limit.new(2 ^ 22, #bytes))
        if a then -- else the own decoder decides anyhow
          local b, width, height, channels = png.decode(bytes, limit.new(2 ^ 22, #bytes))
          assert.is_truthy(b, width)
          assert.same({ w, h, c }, { width, height, channels })
          assert.is_true(ffi.string(a, w * h * c) == ffi.string(b, w * h * c), name)
        end
      end
    end
  end)
  it('of amp.plot come back', function()
    local t = amp.randint(0, 256, { 3, 6, 5 }, { dtype = 'uint8' })
    amp.plot.image(t):save(H.tmp 'own.png')
    H.same(data.read_image(H.tmp 'own.png'), t)
  end)
  it('cut off at any length are errors, or whole', function()
    for _, name in ipairs { 'rgb.png', 'interlaced.png', 'base420.jpg', 'progressive.jpg', 'restarts.jpg', 'raw.ppm', 'plain.ppm', 'raw.pbm' } do
      local bytes = H.read(fixture(name))
      local whole = data.read_image(fixture(name))
      for n = 0, #bytes - 1, math.max(1, math.floor(#bytes / 120)) do
        local path = file(bytes:sub(1, n))
        local ok, t = pcall(data.read_image, path)
        if ok then -- what a JPEG lacks at its end may be the end's marker alone
          assert.is_true(n > #bytes - 16, name .. ' of ' .. n .. ' bytes')
          H.same(t, whole)
        else
          assert.is_truthy(tostring(t):find(path, 1, true), tostring(t))
        end
        os.remove(path)
      end
    end
  end)
  it('with any byte changed give an error or an image', function()
    local failed = 0
    for _, name in ipairs { 'rgb.png', 'palette4.png', 'base422.jpg', 'progressive.jpg', 'restarts_progressive.jpg', 'cmyk.jpg' } do
      local bytes = H.read(fixture(name))
      for at = 1, #bytes, 3 do
        local path = file(bytes:sub(1, at - 1) .. string.char(bit.bxor(bytes:byte(at), ({ 1, 16, 128, 255 })[at % 4 + 1])) .. bytes:sub(at + 1))
        local ok, e = pcall(data.read_image, path)
        if not ok then
          failed = failed + 1
          assert.is_truthy(tostring(e):find(path, 1, true), tostring(e))
        end
        os.remove(path)
      end
    end
    assert.is_true(failed > 300, failed)
  end)
  it('that promise too much are refused', function()
    local jpeg = H.read(fixture 'base444.jpg')
    local at = jpeg:find('\255\192', 1, true)
    H.fails_here(function() data.read_image(file(jpeg:sub(1, at + 4) .. '\40\0\40\0' .. jpeg:sub(at + 9))) end, '10240 x 10240', 'bytes')
    H.fails_here(function() data.read_image(file 'P6 99999 99999 255\nx') end, '99999 x 99999', 'max_bytes')
    H.fails_here(function() data.read_image(file 'P6 9999 9999 255\nx') end, '9999 x 9999', 'max_bytes')
    H.fails_here(function() data.read_image(file 'P6 9999 9999 255\nx', { max_bytes = 1e9 }) end, 'cut off')
  end)
  it('that are none, and options that do not exist', function()
    H.fails_here(function() data.read_image(file 'GIF89a') end, 'PNG, JPEG')
    H.fails_here(function() data.read_image(file '') end, 'PNG, JPEG')
    H.fails_here(function() data.read_image '/nowhere.png' end, '/nowhere.png', 'No such file')
    H.fails_here(function() data.read_image(5) end, 'path')
    H.fails_here(function() data.read_image(fixture 'rgb.png', { channels = 2 }) end, 'channels', '2')
    H.fails_here(function() data.read_image(fixture 'rgb.png', { channel = 3 }) end, 'channel', "'channels'")
  end)
end)

describe('image folders', function()
  local root = H.tmp 'pets'
  os.execute(("mkdir -p '%s/dog' '%s/cat/more' '%s/.git'"):format(root, root, root))
  for name, to in pairs { ['rgb.png'] = 'cat/b.png', ['gray.jpg'] = 'cat/more/a.JPG', ['rgba.png'] = 'dog/c.png', ['raw.ppm'] = 'dog/d.ppm' } do
    H.write(root .. '/' .. to, H.read(fixture(name)))
  end
  H.write(root .. '/dog/notes.txt', 'x')
  it('are read once where links lead around in a circle', function()
    local root2 = H.tmp 'circle'
    os.execute(("mkdir -p '%s/a/b'; cp '%s' '%s/a/b/x.png'; ln -sfn . '%s/a/l1'; ln -sfn .. '%s/a/b/l2'; ln -sfn ../b '%s/a/b/l3'; ln -sfn . '%s/a/l4'")
      :format(root2, fixture 'gray.png', root2, root2, root2, root2, root2))
    local began = os.clock()
    assert.equal(1, data.ImageFolder(root2):size())
    assert.is_true(os.clock() - began < 5)
  end)
  it('are datasets: a class a folder, in order', function()
    local set = data.ImageFolder(root)
    assert.same({ 'cat', 'dog' }, set.classes)
    assert.equal(2, set.class_to_index.dog)
    assert.equal(4, set:size())
    assert.same({ 1, 1, 2, 2 }, set.labels)
    local x, y = set:get(1)
    assert.equal(1, y:item())
    assert.equal('int64', y.dtype)
    H.close(x, data.read_image(fixture 'rgb.png'):float() / 255, H.exact)
    assert.same({ 3, 13, 19 }, H.shape((set:get(2)))) -- gray as RGB
    assert.equal(('data.ImageFolder (%s: 4 images of 2 classes)'):format(root), tostring(set))
    H.fails_here(function() set:get(5) end, '5', '4')
  end)
  it('give batches of one size and of one dtype', function()
    local set = data.ImageFolder(root, { size = { 8, 10 }, channels = 1, transform = function(x) return x * 2 end })
    local sizes, labels = {}, {}
    for x, y in data.DataLoader(set, { batch_size = 3 }):iter() do
      sizes[#sizes + 1] = tostring(x:size())
      for _, v in ipairs(y:tolist()) do labels[#labels + 1] = v end
      assert.equal('int64', y.dtype)
    end
    assert.same({ '3x1x8x10', '1x1x8x10' }, sizes)
    assert.same({ 1, 1, 2, 2 }, labels)
    local plain = data.ImageFolder(root, { size = 8, channels = 1 }):get(1)
    assert.same({ 1, 8, 8 }, H.shape(plain))
    local original = data.ImageFolder(root, { channels = 1 }):get(1)
    assert.is_true(math.abs(plain:mean():item() - original:mean():item()) < 0.05)
  end)
  it('that are none are errors', function()
    H.fails_here(function() data.ImageFolder '/no/such/folder' end, '/no/such/folder', 'No such file')
    H.fails_here(function() data.ImageFolder(root .. '/dog') end, 'no folders')
    os.execute(("mkdir -p '%s/empty'"):format(root))
    H.fails_here(function() data.ImageFolder(root) end, 'no images', 'empty')
    os.execute(("rmdir '%s/empty'"):format(root))
    H.fails_here(function() data.ImageFolder(root, { size = 0 }) end, 'size', '0')
    H.fails_here(function() data.ImageFolder(root, { transform = 5 }) end, 'transform')
    H.write(root .. '/dog/e.png', 'no image')
    local set = data.ImageFolder(root)
    H.fails_here(function() set:get(5) end, 'e.png')
    os.remove(root .. '/dog/e.png')
  end)
end)

describe('tensors on a device', function()
  it('give batches there', function()
    local out, status = H.child([[
      require 'spec.device.mock.device'
      local set = amp.data.TensorDataset(amp.arange(0, 4):view(4, 1):to 'cuda', amp.arange(0, 4))
      for x, y in amp.data.DataLoader(set, {batch_size = 4, shuffle = true, workers = 2}):iter() do
        print(x.device, y.device, x:view(-1):cpu():equal(y))
      end
    ]], nil, 'AMP_MOCK=' .. H.quote(H.absolute(H.build) .. '/mock'))
    assert.equal('cuda:1\tcpu\ttrue\n', out)
    assert.equal(0, status)
  end)
end)

describe('vocabularies', function()
  it('count from 1, the frequent ones first', function()
    local v = data.Vocabulary 'abracadabra'
    assert.same({ 'a', 'b', 'r', 'c', 'd' }, v.tokens)
    local t = v:encode 'bad'
    assert.equal('int64', t.dtype)
    assert.same({ 2, 1, 5 }, t:tolist())
    assert.equal('bad', v:decode(t))
    assert.equal(5, v:size())
  end)
  it('take characters of UTF-8, bytes and words', function()
    assert.same({ '\195\169', 'a' }, data.Vocabulary('\195\169\195\169a').tokens)
    assert.equal(3, data.Vocabulary('\195\169\195\169a', { level = 'byte' }):size())
    local v = data.Vocabulary("The cat, the dog's  cat.\n", { level = 'word' })
    assert.same({ 'cat', ',', '.', 'The', "dog's", 'the' }, v.tokens)
    assert.equal("the cat .", v:decode(v:encode ' the\tcat.'))
    assert.same({ 'x', 'yy' }, data.Vocabulary({ 'x', 'yy' }, { level = 'word' }).tokens)
    -- bytes that are no UTF-8 are tokens too
    local odd = data.Vocabulary 'a\255\128b'
    assert.equal('a\255\128b', odd:decode(odd:encode 'a\255\128b'))
  end)
  it('have specials, and limits', function()
    local v = data.Vocabulary('aaabbc', { specials = { '<pad>', '<unk>' }, min_count = 2 })
    assert.same({ '<pad>', '<unk>', 'a', 'b' }, v.tokens)
    assert.same({ 3, 2, 2 }, v:encode('acz'):tolist())
    assert.equal(2, data.Vocabulary('aaabbc', { max_size = 2 }):size())
    H.fails_here(function() data.Vocabulary('ab'):encode 'abz' end, 'token 3', "'z'", '<unk>')
    H.fails_here(function() data.Vocabulary('ab'):decode { 1, 3 } end, '3', 'from 1 to 2')
    H.fails_here(function() data.Vocabulary('ab', { level = 'line' }) end, 'line')
    H.fails_here(function() data.Vocabulary(5) end, '5')
    H.fails_here(function() data.Vocabulary 'ab':encode(5) end, '5')
  end)
end)

describe('texts', function()
  it('are windows, and the same a token later', function()
    local set = data.TextDataset({ text = 'abcdefghij' }, { length = 3 })
    local v = set.vocabulary
    assert.equal(3, set:size())
    local x, y = set:get(2)
    assert.equal('def', v:decode(x))
    assert.equal('efg', v:decode(y))
    assert.equal(7, data.TextDataset({ text = 'abcdefghij' }, { length = 3, stride = 1 }):size())
    local bx, by = set:batch(amp.tensor({ 3, 1 }, { dtype = 'int64' }))
    assert.equal('ghiabc', v:decode(bx))
    assert.equal('hijbcd', v:decode(by))
    assert.same({ 2, 3 }, H.shape(bx))
  end)
  it('come from files, by a loader', function()
    local path = H.tmp 'book.txt'
    H.write(path, ('to be or not to be '):rep(20))
    local set = data.TextDataset(path, { level = 'word', length = 5 })
    local n = 0
    for x, y in data.DataLoader(set, { batch_size = 4, shuffle = true, workers = 2, drop_last = true }):iter() do
      assert.same({ 4, 5 }, H.shape(x))
      assert.equal('int64', y.dtype)
      n = n + 1
    end
    assert.equal(5, n)
    local same = data.TextDataset({ text = 'be to' }, { level = 'word', length = 1, vocabulary = set.vocabulary })
    assert.equal('be', same.vocabulary:decode((same:get(1))))
  end)
  it('that are too short, or not there', function()
    H.fails_here(function() data.TextDataset({ text = 'abc' }, { length = 3 }) end, '3')
    H.fails_here(function() data.TextDataset '/nowhere.txt' end, '/nowhere.txt')
    H.fails_here(function() data.TextDataset(5) end, '5')
    H.fails_here(function() data.TextDataset({ text = 'abc' }, { lenght = 2 }) end, 'lenght', "'length'")
  end)
end)

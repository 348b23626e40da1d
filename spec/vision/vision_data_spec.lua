--- amp.vision.transforms and datasets, and what amp.data and amp.metric have for them.
local amp = require 'amp'
local T = amp.vision.transforms

describe('drawn shapes', function()
  it('are the same for a seed, with boxes that hold their mask', function()
    local a, b = amp.vision.datasets.shapes { n = 3, size = 32, seed = 5 }, amp.vision.datasets.shapes { n = 3, size = 32, seed = 5 }
    for i = 1, 3 do assert.is_true(amp.equal(a:get(i).image, b:get(i).image)) end
    local item = a:get(2)
    local box = item.boxes[1]:tolist()
    local inside = item.mask:narrow(1, box[2] + 1, box[4] - box[2]):narrow(2, box[1] + 1, box[3] - box[1])
    assert.is_true(inside:eq(item.labels[1]:item() + 1):any():item())
    assert.has_error(function() a:get(4) end)
  end)
end)

describe('transforms', function()
  it('resize bilinearly with antialiasing, the shorter side by a number', function()
    local x = amp.arange(0, 16):reshape(1, 4, 4)
    assert.are.same({ 1, 2, 2 }, { T.Resize(2)(x):size(1), T.Resize(2)(x):size(2), T.Resize(2)(x):size(3) })
    assert.are.equal(7, T.Resize(5)(amp.zeros(1, 10, 15)):size(3))
    local y = T.Resize(2)(x):reshape(-1):tolist() -- PyTorch's: 3.5714 5.1429 9.8571 11.4286
    for i, v in ipairs { 3.5714, 5.1429, 9.8571, 11.4286 } do assert.is_true(math.abs(y[i] - v) < 1e-3) end
  end)

  it('take boxes along, drop those that are cropped away, and leave the given as it was', function()
    local item = { image = amp.rand(3, 10, 10), boxes = amp.tensor { { 0, 0, 2, 2 }, { 4, 4, 6, 9 } }, labels = amp.tensor({ 1, 2 }, { dtype = 'int64' }) }
    local out = T.CenterCrop(4)(item)
    assert.are.same({ { 1, 1, 3, 4 } }, out.boxes:tolist())
    assert.are.same({ 2 }, out.labels:tolist())
    assert.are.equal(2, item.boxes:size(1))
    assert.are.same({ { 8, 0, 10, 2 }, { 4, 4, 6, 9 } }, T.RandomHorizontalFlip { p = 1 }(item).boxes:tolist())
  end)

  it('repeat with the generator', function()
    local x, t = amp.rand(3, 16, 16), T.Compose { T.RandomResizedCrop(8), T.ColorJitter { brightness = { 0.5, 1.5 }, hue = 0.2 } }
    amp.manual_seed(3)
    local a, b = t(x), t(x)
    amp.manual_seed(3)
    assert.is_true(amp.equal(a, t(x)))
    assert.is_false(amp.equal(a, b))
  end)
end)

describe('pictures that say how they are to be seen', function()
  local H = require 'spec.lib.helper'
  local function stored(name) return H.read(H.root .. '/spec/fixtures/images/' .. name) end
  local function tiff(o, little)
    local head = little and 'II\42\0\8\0\0\0\1\0\18\1\3\0\1\0\0\0%s\0\0\0' or 'MM\0\42\0\0\0\8\0\1\1\18\0\3\0\0\0\1\0%s\0\0'
    return head:gsub('%%s', string.char(o)) .. '\0\0\0\0'
  end
  local function big(n) return string.char(bit.rshift(n, 24), bit.band(bit.rshift(n, 16), 255), bit.band(bit.rshift(n, 8), 255), bit.band(n, 255)) end
  local function jpeg(exif)
    local bytes, part = stored 'base444.jpg', 'Exif\0\0' .. exif
    return bytes:sub(1, 2) .. '\255\225' .. big(#part + 2):sub(3) .. part .. bytes:sub(3)
  end
  local function crc(s)
    local c = -1
    for i = 1, #s do
      c = bit.bxor(c, s:byte(i))
      for _ = 1, 8 do c = bit.bxor(bit.rshift(c, 1), bit.band(-bit.band(c, 1), 0xEDB88320)) end
    end
    return big(bit.bnot(c))
  end
  local function png(exif)
    local bytes = stored 'rgb.png'
    return bytes:sub(1, 33) .. big(#exif) .. 'eXIf' .. exif .. crc('eXIf' .. exif) .. bytes:sub(34)
  end
  -- where the pixel is stored that is seen at y, x (from 0), of a stored picture of h x w
  local places = {
    function(y, x) return y, x end,
    function(y, x, _, w) return y, w - 1 - x end,
    function(y, x, h, w) return h - 1 - y, w - 1 - x end,
    function(y, x, h) return h - 1 - y, x end,
    function(y, x) return x, y end,
    function(y, x, h) return h - 1 - x, y end,
    function(y, x, h, w) return h - 1 - x, w - 1 - y end,
    function(y, x, _, w) return x, w - 1 - y end,
  }
  for kind, make in pairs { JPEG = jpeg, PNG = png } do
    it(kind .. ', all eight ways', function()
      local path = H.tmp 'turned'
      H.write(path, stored(kind == 'PNG' and 'rgb.png' or 'base444.jpg'))
      local plain = amp.data.read_image(path)
      local h, w, from = plain:size(2), plain:size(3), plain[1]:tolist()
      assert.is_true(h ~= w)
      for o = 1, 8 do
        for _, little in ipairs { true, false } do
          H.write(path, make(tiff(o, little)))
          local seen = amp.data.read_image(path)
          assert.are.same(o < 5 and { 3, h, w } or { 3, w, h }, H.shape(seen))
          local to = seen[1]:tolist()
          for y = 1, #to do
            for x = 1, #to[1] do
              local a, b = places[o](y - 1, x - 1, h, w)
              assert.are.equal(from[a + 1][b + 1], to[y][x])
            end
          end
        end
      end
      for _, odd in ipairs { tiff(0), tiff(9, true), 'II\42\0', '', ('MM\0\42'):rep(9), 'II\42\0\255\255\255\255' } do
        H.write(path, make(odd))
        assert.is_true(plain:equal(amp.data.read_image(path)))
      end
    end)
  end
end)

describe('an animated WebP', function()
  local H = require 'spec.lib.helper'
  it('is its first frame, where that lies', function()
    if not require('amp.data.codecs').library 'webp' then return pending 'libwebp is not here' end
    local path, bytes = H.tmp 'animated.webp', H.read(H.root .. '/spec/fixtures/images/animated.webp')
    H.write(path, bytes)
    local frame = amp.data.read_image(path)
    local h, w = frame:size(2), frame:size(3)
    local head, first = bytes:find('VP8X', 1, true), bytes:find('ANMF', 1, true)
    local function with(W, H2, x, y)
      return bytes:sub(1, head + 11) .. string.char(W - 1, 0, 0, H2 - 1, 0, 0) .. bytes:sub(head + 18, first + 7)
        .. string.char(x, 0, 0, y, 0, 0) .. bytes:sub(first + 14)
    end
    H.write(path, with(w + 9, h + 5, 2, 1))
    local whole = amp.data.read_image(path)
    assert.are.same({ 4, h + 5, w + 9 }, H.shape(whole))
    assert.is_true(whole:narrow(2, 3, h):narrow(3, 5, w):equal(frame))
    assert.are.equal(frame:sum():item(), whole:sum():item())
    H.write(path, with(w, h, 3, 0)) -- over the edge
    assert.is_true(amp.data.read_image(path):narrow(3, 7, w - 6):equal(frame:narrow(3, 1, w - 6)))
    for _, bad in ipairs { with(w, h, 200, 0), bytes:sub(1, first + 3), bytes:sub(1, first + 20) } do
      H.write(path, bad)
      local ok, e = pcall(amp.data.read_image, path)
      assert.is_true(not ok and tostring(e):find('animated.webp', 1, true) ~= nil, tostring(e))
    end
  end)
end)

describe('data tools', function()
  it('collate pads what else an example has of each box: flags, masks, corners', function()
    local function item(n)
      return { image = amp.zeros(3, 4, 4), boxes = amp.ones(n, 4), labels = amp.ones({ n }, { dtype = 'int64' }),
        crowd = amp.ones({ n }, { dtype = 'uint8' }), hard = amp.ones({ n }, { dtype = 'bool' }), masks = amp.ones(n, 2, 3) }
    end
    local batch = amp.data.collate { item(2), item(1) }
    assert.same({ { 1, 1 }, { 1, 0 } }, batch.crowd:tolist())
    assert.same({ { true, true }, { true, false } }, batch.hard:tolist())
    assert.equal('2x2x2x3', tostring(batch.masks:size()))
    assert.same({ 12, 0 }, { batch.masks[1]:sum():item(), batch.masks[2]:sum():item() }) -- 6 ones, 6 times -1
    local odd = item(1)
    odd.masks = amp.ones(1, 2, 2)
    local ok, e = pcall(amp.data.collate, { item(2), odd })
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find('example 2: masks has shape 1x2x2', 1, true))
  end)
  it('collate boxes, padded with -1', function()
    local set = amp.vision.datasets.shapes { n = 6, size = 32 }
    local batch = amp.data.collate { set:get(1), set:get(2), set:get(3) }
    local n = set:get(1).boxes:size(1)
    assert.is_true(amp.equal(batch.boxes[1]:narrow(1, 1, n), set:get(1).boxes))
    for i = 1, 3 do
      local k = set:get(i).boxes:size(1)
      for j = k + 1, batch.labels:size(2) do assert.are.same({ -1, -1, -1, -1, -1 }, batch.targets[i][j]:tolist()) end
    end
  end)

  it('split without an example in common', function()
    local set = amp.data.TensorDataset(amp.arange(1, 11))
    local a, b = amp.data.random_split(set, { 0.7, 0.3 })
    local both, seen = amp.data.ConcatDataset { a, b }, {}
    for i = 1, 10 do seen[both:get(i):item()] = true end
    for i = 1, 10 do assert.is_true(seen[i]) end
    assert.has_error(function() amp.data.random_split(set, { 7, 4 }) end)
  end)

  it('write what is read', function()
    local path = os.tmpname()
    local x = amp.randint(0, 256, { 3, 5, 7 }):to 'uint8'
    for _, ending in ipairs { '.png', '.ppm' } do
      amp.data.write_image(path .. ending, x)
      assert.is_true(amp.equal(x, amp.data.read_image(path .. ending)))
      os.remove(path .. ending)
    end
    os.remove(path)
  end)
end)

describe('metrics', function()
  it('give what scikit-learn gives', function()
    local auc = amp.metric.AUC():update(amp.tensor { 0.1, 0.4, 0.35, 0.8 }, amp.tensor { 0, 0, 1, 1 })
    assert.are.equal(0.75, auc:value())
    local f1 = amp.metric.F1 { classes = 3 }:update(amp.tensor { 1, 2, 3, 3 }, amp.tensor { 1, 2, 2, 3 })
    assert.is_true(math.abs(f1:value() - 7 / 9) < 1e-12)
  end)

  it('have states that add up', function()
    local m = amp.metric.ConfusionMatrix { classes = 2 }:update(amp.tensor { 1, 2, 2 }, amp.tensor { 1, 1, 2 })
    local all = amp.metric.ConfusionMatrix { classes = 2 }:merge(m:state()):merge(m:state())
    assert.are.same({ { 2, 2 }, { 0, 2 } }, all:value():tolist())
  end)

  it('find a perfect detector perfect', function()
    local boxes, labels = amp.tensor { { 0, 0, 5, 5 }, { 5, 5, 9, 9 } }, amp.tensor { 1, 2 }
    for _, style in ipairs { 'voc07', 'voc', 'coco' } do
      local m = amp.metric.MeanAveragePrecision { style = style }
      m:update({ { boxes = boxes, scores = amp.tensor { 0.9, 0.8 }, labels = labels } }, { { boxes = boxes, labels = labels } })
      assert.is_true(math.abs(m:value() - 1) < 1e-9)
    end
  end)
end)

--- Data sets of files: CIFAR, VOC, COCO, ImageFolder; what is right, and what is said of what is wrong.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local sets = amp.vision.datasets

local function picture(path, h, w) amp.data.write_image(path, amp.full({ 3, h or 8, w or 10 }, 0.5)) end

local function fails(word, f, ...)
  local ok, e = pcall(f, ...)
  assert.is_false(ok)
  assert.is_true(require('amp.error').is(e), tostring(e))
  assert.is_true(tostring(e):find(word, 1, true) ~= nil, ('no %q in: %s'):format(word, tostring(e)))
end

local made = 0
local function folder(...)
  made = made + 1
  local root = H.tmp('set' .. made)
  for _, name in ipairs { ... } do os.execute(('mkdir -p %s/%s'):format(root, name)) end
  return root
end

local function warnings(f)
  local list, old = {}, amp.warn
  amp.warn = function(m) list[#list + 1] = m end
  local ok, e = pcall(f)
  amp.warn = old
  assert(ok, e)
  return list
end

describe('CIFAR', function()
  it('is read from its binary files, labels from 1', function()
    local root = folder 'cifar-10-batches-bin'
    local function record(label, v) return string.char(label) .. string.char(v):rep(1024) .. string.char(v + 1):rep(1024) .. string.char(v + 2):rep(1024) end
    for k = 1, 5 do H.write(('%s/cifar-10-batches-bin/data_batch_%d.bin'):format(root, k), record(k, 10 * k) .. record(9, 3)) end
    H.write(root .. '/cifar-10-batches-bin/test_batch.bin', record(0, 51))
    local train, test = sets.CIFAR10 { root = root }, sets.CIFAR10 { root = root .. '/cifar-10-batches-bin', train = false }
    assert.are.equal(10, train:size())
    assert.are.equal(1, test:size())
    local x, y = train:get(5)
    assert.are.same({ 3, 32, 32 }, H.shape(x))
    assert.are.equal(4, y:item())
    assert.is_true(math.abs(x[2][1][1]:item() - 31 / 255) < 1e-6)
    assert.are.equal(1, select(2, test:get(1)):item())
    fails('there is no picture 11', train.get, train, 11)
    H.write(root .. '/cifar-10-batches-bin/data_batch_3.bin', record(10, 3))
    fails('data_batch_3.bin', sets.CIFAR10, { root = root })
    H.write(root .. '/cifar-10-batches-bin/data_batch_3.bin', record(1, 3):sub(2))
    fails('data_batch_3.bin', sets.CIFAR10, { root = root })
    os.remove(root .. '/cifar-10-batches-bin/data_batch_3.bin')
    fails('data_batch_3.bin', sets.CIFAR10, { root = root })
    fails('train.bin', sets.CIFAR100, { root = root })
    fails('root', sets.CIFAR100, {})
  end)
end)

describe('VOC', function()
  local function write(objects, ids)
    local root = folder('VOCdevkit/VOC2012/ImageSets/Main', 'VOCdevkit/VOC2012/Annotations', 'VOCdevkit/VOC2012/JPEGImages')
    local dir = root .. '/VOCdevkit/VOC2012'
    H.write(dir .. '/ImageSets/Main/train.txt', ids or 'a\nb\n')
    for _, id in ipairs { 'a', 'b' } do
      H.write(('%s/Annotations/%s.xml'):format(dir, id), '<annotation><size><width>10</width><height>8</height></size>'
        .. (id == 'a' and objects or '') .. '</annotation>')
      picture(dir .. '/JPEGImages/' .. id .. '.png')
      os.rename(dir .. '/JPEGImages/' .. id .. '.png', dir .. '/JPEGImages/' .. id .. '.jpg')
    end
    return root, dir
  end
  local function object(name, ...)
    return ('<object><name>%s</name><difficult>1</difficult><part><name>head</name><bndbox><xmin>9</xmin></bndbox></part><bndbox><xmin>%s</xmin>'
      .. '<ymin>%s</ymin><xmax>%s</xmax><ymax>%s</ymax></bndbox></object>'):format(name, ...)
  end
  it('is read with its boxes, corners from 0', function()
    local set = sets.VOCDetection { root = (write(object('dog', 2, 3, 6, 8) .. object('cat', 1, 1, 10, 8))) }
    local item = set:get(1)
    assert.are.same({ { 1, 2, 6, 8 }, { 0, 0, 10, 8 } }, item.boxes:tolist())
    assert.are.same({ 12, 8 }, item.labels:tolist())
    assert.are.same({ 1, 1 }, item.difficult:tolist())
    assert.are.same({ 0, 4 }, H.shape(set:get(2).boxes))
  end)
  it('names the file and the object of what is wrong', function()
    for _, o in ipairs { object('dog', 6, 3, 2, 8), object('dog', 2, 3, 1, 8), object('dog', 2, 3, 11, 8), object('dog', 0, 3, 5, 8),
      object('dog', 'x', 3, 5, 8),
      object('dog', 'nan', 3, 5, 8), object('dog', 2, 3, 5, '1e30'), object('dog', 2, '-inf', 5, 8), object('unicorn', 2, 3, 5, 8), '<object></object>' } do
      local root = write(object('cat', 1, 1, 2, 2) .. o)
      fails('object 2', sets.VOCDetection, { root = root })
      fails('a.xml', sets.VOCDetection, { root = root })
    end
    fails('twice', sets.VOCDetection, { root = (write('', 'a\nb\na\n')) })
    fails('c.xml', sets.VOCDetection, { root = (write('', 'a\nc\n')) })
    fails('trainval.txt', sets.VOCDetection, { root = (write '' ), split = 'trainval' })
  end)
  it('takes values with blanks around them, and passes over what is no box', function()
    local set = sets.VOCDetection { root = (write(object(' \n dog\t ', ' 2 ', '\n3', '6\n', 8) .. '<object><object>')) }
    assert.are.same({ { 1, 2, 6, 8 } }, set:get(1).boxes:tolist())
    assert.are.same({ 12 }, set:get(1).labels:tolist())
  end)
  it('looks through a damaged annotation once', function()
    -- by patterns these took minutes: the time grew with the cube of the blanks, the square of the tags
    local parts = '<object>' .. ('<part>'):rep(40000) .. '</object>'
    for _, text in ipairs { '<width>' .. (' '):rep(20000), ('<object>'):rep(40000), parts, ('<width>'):rep(40000) } do
      pcall(sets.VOCDetection, { root = (write(text)) })
    end
  end)
  it('leaves bad pictures out when asked to, with one warning', function()
    local root, dir = write(object('dog', 1, 1, 2, 2))
    os.remove(dir .. '/JPEGImages/b.jpg')
    local set = sets.VOCDetection { root = root }
    fails('b.jpg', set.get, set, 2)
    set = sets.VOCDetection { root = root, skip_bad = true }
    local list = warnings(function()
      for _ = 1, 2 do assert.are.equal(1, set:get(2).boxes:size(1)) end
    end)
    assert.are.equal(1, #list)
    assert.is_true(list[1]:find('b.jpg', 1, true) ~= nil)
    os.remove(dir .. '/JPEGImages/a.jpg')
    fails('b.jpg', set.get, set, 2)
  end)
end)

describe('COCO', function()
  local function write(change)
    local root = folder 'images'
    picture(root .. '/images/1.png')
    picture(root .. '/images/2.png')
    local images = { '{"id":10,"file_name":"1.png","width":10,"height":8}', '{"id":20,"file_name":"2.png","width":10,"height":8}' }
    local categories = { '{"id":7,"name":"cat"}', '{"id":3,"name":"dog"}' }
    local annotations = { '{"id":1,"image_id":10,"category_id":7,"bbox":[1,2,3,4],"iscrowd":0}', '{"id":2,"image_id":10,"category_id":3,"bbox":[8,6,9,9]}',
      '{"id":3,"image_id":10,"category_id":3,"bbox":[1,1,0,4]}', '{"id":4,"image_id":10,"category_id":3,"bbox":[1,1,2,4],"iscrowd":1}' }
    if change then change(images, categories, annotations) end
    local path = root .. '/instances.json'
    H.write(path, ('{"images":[%s],"categories":[%s],"annotations":[%s]}'):format(table.concat(images, ','), table.concat(categories, ','),
      table.concat(annotations, ',')))
    return { images = root .. '/images', annotations = path }, root
  end
  it('is read without crowds and empty boxes, classes in the order of their ids', function()
    local set = sets.COCODetection(write())
    assert.are.same({ 'dog', 'cat' }, set.classes)
    local item = set:get(1)
    assert.are.same({ { 1, 2, 4, 6 }, { 8, 6, 10, 8 } }, item.boxes:tolist())
    assert.are.same({ 2, 1 }, item.labels:tolist())
    assert.are.same({ 0, 4 }, H.shape(set:get(2).boxes))
    assert.are.same({ 0 }, H.shape(set:get(2).labels))
  end)
  it('names the file and the entry of what is wrong', function()
    local function bad(word, list, text)
      local where = write(function(images, categories, annotations)
        local all = { images = images, categories = categories, annotations = annotations }
        all[list][#all[list] + 1] = text
      end)
      fails(word, sets.COCODetection, where)
      fails('instances.json', sets.COCODetection, where)
    end
    bad('annotation 5', 'annotations', '{"id":5,"image_id":11,"category_id":7,"bbox":[1,2,3,4]}')
    bad('annotation 5', 'annotations', '{"id":5,"image_id":10,"category_id":8,"bbox":[1,2,3,4]}')
    bad('annotation 5', 'annotations', '{"id":5,"category_id":7,"bbox":[1,2,3,4]}')
    bad('annotation 5', 'annotations', '{"id":5,"image_id":10,"category_id":7,"bbox":[1,2,3]}')
    bad('annotation 5', 'annotations', '{"id":5,"image_id":10,"category_id":7,"bbox":[1,2,-3,4]}')
    bad('annotation 5', 'annotations', '{"id":5,"image_id":10,"category_id":7,"bbox":[1,2,null,4]}')
    bad('annotation 5', 'annotations', '{"id":5,"image_id":10,"category_id":7,"bbox":[1e308,2,1e308,4]}')
    bad('annotation 5', 'annotations', '{"id":5,"image_id":10,"category_id":7,"bbox":[1,2,1e300,4]}')
    bad('annotation 5', 'annotations', '{"id":5,"image_id":10,"category_id":7}')
    bad('annotation 5', 'annotations', '5')
    bad('annotations 2 and 5', 'annotations', '{"id":2,"image_id":10,"category_id":7,"bbox":[1,2,3,4]}')
    bad('id 10', 'images', '{"id":10,"file_name":"2.png"}')
    bad('image 3', 'images', '{"id":11}')
    bad('image 3', 'images', '"1.png"')
    bad('id 3', 'categories', '{"id":3,"name":"bird"}')
    bad('category 3', 'categories', '{"id":4}')
    bad('category 3', 'categories', '4')
    local where = write()
    H.write(where.annotations, '{"images":[')
    fails('instances.json', sets.COCODetection, where)
    H.write(where.annotations, '[1]')
    fails('instances.json', sets.COCODetection, where)
    fails('nowhere.json', sets.COCODetection, { images = where.images, annotations = 'nowhere.json' })
  end)
  it('names a picture that is missing or damaged', function()
    local where, root = write()
    os.remove(root .. '/images/2.png')
    local set = sets.COCODetection(where)
    fails('2.png', set.get, set, 2)
    H.write(root .. '/images/2.png', 'no picture')
    fails('2.png', set.get, set, 2)
  end)
end)

describe('a folder of pictures', function()
  it('takes transforms, and leaves bad pictures out when asked to', function()
    local root = folder('cat', 'dog')
    for _, name in ipairs { 'cat/1.png', 'dog/1.png', 'dog/2.png' } do picture(root .. '/' .. name) end
    H.write(root .. '/cat/2.png', '\137PNG\r\n\26\n')
    local T = amp.vision.transforms
    local set = amp.data.ImageFolder(root, { transform = T.Compose { T.Resize { 4, 4 } } })
    assert.are.same({ 3, 4, 4 }, H.shape((set:get(1))))
    fails('cat/2.png', set.get, set, 2)
    assert.are.same(set:size(), sets.ImageFolder { root = root, transform = T.Resize { 4, 4 } }:size())
    fails("did you mean 'transform'", sets.ImageFolder, { root = root, transfrom = T.Resize(4) })
    fails('a folder expected, got 3', sets.ImageFolder, { root = 3 })
    set = sets.ImageFolder(root, { skip_bad = true })
    local list = warnings(function()
      for _ = 1, 2 do assert.are.equal(2, select(2, set:get(2)):item()) end
    end)
    assert.are.equal(1, #list)
    assert.is_true(list[1]:find('cat/2.png', 1, true) ~= nil)
    fails('skip_bad', amp.data.ImageFolder, root, { skip_bad = 1 })
    fails('transform', amp.data.ImageFolder, root, { transform = {} })
  end)
  it('choose a part before the rest is made floats: the same pictures, from the same random numbers', function()
    local root = folder('one')
    amp.manual_seed(5)
    amp.data.write_image(root .. '/one/1.png', amp.rand(3, 40, 60))
    local T = amp.vision.transforms
    local whole = amp.data.read_image(root .. '/one/1.png'):float() / 255
    for _, t in ipairs { T.RandomResizedCrop(16), T.Resize(9), T.CenterCrop { 20, 70 }, T.RandomCrop(7),
      T.Compose { T.CenterCrop(30), T.RandomHorizontalFlip() },
      T.Compose { T.RandomResizedCrop { 8, 12 }, T.RandomVerticalFlip(), T.Normalize({ 0.5 }, { 2 }) } } do
      for _, reduced in ipairs { false, true } do
        local set = amp.data.ImageFolder(root, { transform = t, reduced = reduced })
        for seed = 1, 4 do
          amp.manual_seed(seed)
          local want = t(whole)
          amp.manual_seed(seed)
          assert.is_true(want:equal((set:get(1))), tostring(t))
        end
      end
    end
    local set = amp.data.ImageFolder(root, { transform = T.RandomCrop(50), skip_bad = true }) -- no fault of the picture's
    fails('50 x 50', set.get, set, 1)
    fails('reduced', amp.data.ImageFolder, root, { reduced = 2 })
  end)
  it('decode large JPEGs at a part of their size where that is enough, turned as they are', function()
    local codecs = require 'amp.data.codecs'
    if not codecs.library 'turbojpeg' then return pending 'libturbojpeg is not here' end
    local root = folder('one')
    local path = root .. '/one/1.jpg'
    local smooth = amp.interpolate(amp.rand(1, 3, 5, 7), { size = { 161, 243 }, mode = 'bicubic' })[1]:clamp(0, 1)
    amp.data.write_image(path, smooth)
    local bytes = H.read(path)
    local turned = '\255\225\0\34Exif\0\0MM\0\42\0\0\0\8\0\1\1\18\0\3\0\0\0\1\0\6\0\0\0\0\0\0' -- its orientation: 6
    local limit, asked = require 'amp.io.limit', {}
    for _, parts in ipairs { 1, 2, 4, 8 } do
      local _, w, h = codecs.decode_jpeg(bytes, limit.new(nil, #bytes), parts)
      asked[#asked + 1] = { h, w }
    end
    assert.are.same({ { 161, 243 }, { 81, 122 }, { 41, 61 }, { 21, 31 } }, asked)
    local T = amp.vision.transforms
    for _, exif in ipairs { '', turned } do
      H.write(path, bytes:sub(1, 2) .. exif .. bytes:sub(3))
      for _, o in ipairs { { transform = T.Resize { 16, 20 } }, { transform = T.RandomResizedCrop(10) }, { transform = T.Resize(50) }, { size = 30 },
        { transform = T.CenterCrop(30) } } do
        amp.manual_seed(1)
        local want = amp.data.ImageFolder(root, o):get(1)
        amp.manual_seed(1)
        o.reduced = true
        local got = amp.data.ImageFolder(root, o):get(1)
        assert.are.same(H.shape(want), H.shape(got))
        assert.is_true((want - got):abs():max():item() < 0.2 and (want - got):abs():mean():item() < 0.04, tostring(o.transform))
      end
    end
  end)
end)

describe('a sampler by weight', function()
  it('is a loop by itself, says what it is, and knows a call with a dot', function()
    local sampler, seen = amp.data.WeightedRandomSampler({ 0, 1, 0 }, 5), {}
    for i in sampler do seen[#seen + 1] = i end
    assert.are.same({ 2, 2, 2, 2, 2 }, seen)
    assert.are.equal('data.WeightedRandomSampler (5 of 3)', tostring(sampler))
    fails('with a colon, not a dot', function() return sampler.size() end)
    local loss = amp.vision.SSDMultiBoxLoss { rho = 2 }
    assert.are.equal('vision.SSDMultiBoxLoss (negative_mining_ratio 3, rho 2, lambd 1)', tostring(loss))
    fails('with a colon, not a dot', function() return loss.forward(1) end)
  end)
end)

--- amp.plot.boxes, and `amp vision predict`.
local amp = require 'amp'
local H = require 'spec.lib.helper'

describe('a picture with boxes', function()
  local item = amp.vision.datasets.shapes({ n = 1, size = 64, seed = 4 }):get(1)
  local image, boxes = amp.zeros(3, 40, 60), amp.tensor { { 10, 15, 30, 35 }, { 40, 20, 55, 30 } }

  it('has them in its PNG', function()
    local path = H.tmp 'boxes.png'
    amp.plot.boxes(image, boxes, amp.tensor { 1, 2 }, amp.tensor { 0.9, 0.8 }, { classes = { 'cat', 'dog' } }):save(path)
    local p = amp.data.read_image(path)
    assert.are.same({ 3, 40, 60 }, H.shape(p))
    assert.is_true(p[1][26][11]:item() > 150)     -- the left edge of the first, red
    assert.are.equal(0, p[1][26][21]:item())      -- its inside
    assert.is_true(p[2][25][41]:item() > 100)     -- the left edge of the second, green
    amp.plot.boxes(image, boxes, nil, nil, { scale = 3 }):save(path)
    assert.are.same({ 3, 120, 180 }, H.shape(amp.data.read_image(path)))
  end)

  it('is text in a terminal', function()
    local text = amp.plot.boxes(image, boxes, { 'cat', 'dog' }, { 0.25, 0.5 }):text { width = 40, color = false, unicode = false }
    assert.is_true(text:find 'dog 0.50 +40 20 55 30\ncat 0.25 +10 15 30 35$' ~= nil)
    assert.is_true(#tostring(amp.plot.boxes(item.image, item.boxes, item.labels)) > 100)
  end)

  it('leaves out padding and what is below min_score; no box at all is fine', function()
    local function count(...)
      local text = amp.plot.boxes(image, boxes, ...):text { width = 20, color = false, unicode = false }
      return select(2, text:gsub('%d+ %d+ %d+ %d+', ''))
    end
    assert.are.equal(1, count(amp.tensor { 1, -1 }))
    assert.are.equal(1, count(nil, amp.tensor { 0.3, 0.6 }, { min_score = 0.5 }))
    amp.plot.boxes(image, amp.zeros(0, 4), amp.zeros(0), amp.zeros(0)):png()
    amp.plot.boxes(amp.zeros(5, 5):to 'uint8', { { -3, -3, 100, 100 }, { 2, 2, 2, 2 }, { 90, 90, 95, 95 } }, { 7, 7, 100 }):png()
    amp.plot.boxes(amp.zeros(4, 1, 1), { { 0, 0, 1, 1 } }, { 'x' }):png()
  end)

  it('is refused where it does not fit', function()
    assert.has_error(function() amp.plot.boxes(image, amp.zeros(2, 5)) end)
    assert.has_error(function() amp.plot.boxes(image, boxes, { 1 }) end)
    assert.has_error(function() amp.plot.boxes(image, boxes, { 1, 2 }, { 1 }) end)
    assert.has_error(function() amp.plot.boxes(image, { { 0, 0, 0 / 0, 1 } }) end)
    assert.has_error(function() amp.plot.boxes(image, { 1, 2, 3, 4 }) end)
    assert.has_error(function() amp.plot.boxes(image, boxes, nil, nil, { scales = 1 }) end)
    assert.has_error(function() amp.plot.boxes(amp.zeros(2, 3, 4, 4), boxes) end)
    assert.has_error(function() amp.plot.boxes('image', boxes) end)
  end)
end)

local function command(args)
  local out, why = H.tmp 'out', H.tmp 'err'
  local status = tonumber(H.sh(("AMP_LIBRARY='%s/amp/libamp.so' luajit '%s/lua/bin/amp' %s >'%s' 2>'%s'; echo $?"):format(
    H.absolute(H.build), H.root, args, out, why)):match '%d+')
  return H.read(out), H.read(why), status
end

describe('amp vision predict', function()
  local models = amp.vision.models
  local a, b = H.tmp 'a.png', H.tmp 'b.png'
  amp.data.write_image(a, amp.rand(3, 50, 70))
  amp.data.write_image(b, amp.rand(3, 30, 20))

  it('writes pictures with the boxes of a saved graph', function()
    amp.manual_seed(1)
    local net = models.ssd_512_resnet50_v1 { classes = 3, width = 4, side = 96 }
    net:eval()
    local path = H.tmp 'ssd.safetensors'
    amp.graph.trace(net, { amp.rand(1, 3, 96, 96) }):save(path)
    local out, err, status = command(("vision predict '%s' '%s' '%s' --classes circle,square,triangle --score 0.01 --out '%s'"):format(path, a, b, H.tmp ''))
    assert.are.equal('', err)
    assert.are.equal(0, status)
    assert.is_true(out:find('a-boxes.png', 1, true) and out:find('b-boxes.png', 1, true) and out:find 'circle' ~= nil, out)
    assert.are.same({ 3, 50, 70 }, H.shape(amp.data.read_image(H.tmp 'a-boxes.png')))
  end)

  it('says the classes of a classifier, whose weights are a file', function()
    amp.manual_seed(2)
    local path = H.tmp 'resnet.safetensors'
    amp.io.safetensors.save(path, models.resnet18({ classes = 4 }):state_dict())
    local out, err, status = command(("vision predict '%s' '%s' --model resnet18 --classes a,b,c,d --size 64 --top 2"):format(path, a))
    assert.are.equal('', err)
    assert.are.equal(0, status)
    assert.are.equal(3, select(2, out:gsub('\n', '')))
    out, err, status = command(("vision predict '%s' '%s'"):format(path, a))
    assert.are.same({ '', 1 }, { out, status })
    assert.is_true(err:find('--model', 1, true) ~= nil)
    err, status = select(2, command(("vision predict '%s' '/nowhere.png' '%s' --model resnet18 --classes 4 --size 64"):format(path, a)))
    assert.are.equal(1, status)
    assert.is_true(err:find('/nowhere.png', 1, true) ~= nil)
  end)

  it('shows how it is called', function()
    local out, err, status = command 'vision --help'
    assert.is_true(status == 0 and err == '' and out:find 'usage: amp vision predict' ~= nil)
    out, err, status = command 'vision predict x.safetensors'
    assert.is_true(status == 2 and out == '' and err:find 'usage: amp vision predict' ~= nil)
    err, status = select(2, command 'vision predict x y --scroe 3')
    assert.is_true(status == 2 and err:find('--score', 1, true) ~= nil)
    err, status = select(2, command "vision predict /nowhere.safetensors y")
    assert.is_true(status == 1 and err:find('/nowhere.safetensors', 1, true) ~= nil)
  end)
end)

--- amp.vision.transforms against torchvision (spec/fixtures/make_transforms.py).
local amp = require 'amp'
local fixture = dofile 'spec/fixtures/transforms.lua'
local T = amp.vision.transforms

local function picture(shape, dtype)
  local n, values = 1, {}
  for _, s in ipairs(shape) do n = n * s end
  for i = 0, n - 1 do
    local v = math.floor((i * i * 31 + i * 17 + 5) % 1009 * 255 / 1008)
    values[i + 1] = dtype == 'uint8' and v or v / 255
  end
  return amp.tensor(values, { dtype = dtype }):reshape(shape)
end

local function list(size)
  local out = {}
  for i = 1, #size do out[i] = size[i] end
  return out
end

describe('transforms', function()
  for k, case in ipairs(fixture) do
    it(('give what torchvision gives: %s of %s %s'):format(case.make, case.dtype, table.concat(case.shape, 'x')), function()
      local make = loadstring('local T = ... return ' .. case.make)(T)
      local x = picture(case.shape, case.dtype)
      local before = x:clone()
      local y = make(x)
      assert.is_true(amp.equal(before, x))
      assert.are.equal(case.dtype, y.dtype)
      assert.are.same(case.size, list(y:size()), 'case ' .. k)
      local got = y:reshape(-1):tolist()
      for i, v in ipairs(case.values) do
        -- torchvision's kernel for bytes rounds its weights, so that a byte may differ by one
        local eps = case.dtype == 'float64' and 5e-6 or case.make:find 'Resize' and 1 or 0
        if math.abs(v - got[i]) > eps then
          error(('value %d: got %.9g, torchvision %.9g'):format(i, got[i], v))
        end
      end
    end)
  end
end)

-- A picture with boxes of one colour each, and a mask that has them too.
local function item()
  local mask = amp.ones({ 20, 17 }, { dtype = 'int64' }) -- 1 where there is nothing, as in amp.vision.datasets.shapes
  local boxes = { { 2, 3, 7, 9 }, { 9, 10, 16, 19 }, { 10, 1, 13, 4 } }
  for i, b in ipairs(boxes) do mask[{ { b[2] + 1, b[4] }, { b[1] + 1, b[3] } }] = i + 1 end
  return { image = mask:float():unsqueeze(1) / 4, mask = mask, boxes = amp.tensor(boxes):float(), labels = amp.tensor({ 1, 2, 3 }, { dtype = 'int64' }),
    difficult = amp.tensor({ 0, 1, 0 }, { dtype = 'int64' }), id = 7, size = { 20, 17 } }
end

-- The box around the pixels of a value, or nil.
local function around(mask, value)
  local at = mask:eq(value):nonzero()
  if at:size(1) == 0 then return nil end
  local low, high = amp.amin(at, 1):tolist(), amp.amax(at, 1):tolist()
  return { low[2] - 1, low[1] - 1, high[2], high[1] }
end

local moves = {
  'T.CenterCrop(10)', 'T.CenterCrop{31,5}', 'T.CenterCrop{6,40}', 'T.RandomCrop{9,8}', 'T.RandomCrop({12,12},{padding=4})',
  'T.RandomCrop({25,9},{pad_if_needed=true})',
  'T.RandomHorizontalFlip(1)', 'T.RandomVerticalFlip{p=1}', 'T.Pad{1,2,3,4}', 'T.Resize{40,34}', 'T.RandomHorizontalFlip{p=0.5}',
  'T.Compose{T.RandomCrop(11),T.RandomVerticalFlip(),T.Pad(2),T.CenterCrop(9)}',
}

describe('boxes and masks', function()
  for _, make in ipairs(moves) do
    it('go where the pixels go: ' .. make, function()
      amp.manual_seed(11)
      local f = loadstring('local T = ... return ' .. make)(T)
      for _ = 1, 12 do
        local given = item()
        local out = f(given)
        assert.are.same(item().boxes:tolist(), given.boxes:tolist())
        assert.are.equal(7, out.id)
        assert.are.same({ 20, 17 }, out.size)
        assert.are.same({ out.image:size(2), out.image:size(3) }, { out.mask:size(1), out.mask:size(2) })
        assert.are.equal('int64', out.mask.dtype)
        local kept = out.labels:tolist()
        assert.are.equal(#kept, out.boxes:size(1))
        assert.are.equal(#kept, out.difficult:size(1))
        local place = {}
        for i, label in ipairs(kept) do place[label] = i end
        for label = 1, 3 do
          local box = around(out.mask, label + 1)
          assert.are.same(box, place[label] and out.boxes[place[label] ]:tolist())
          if place[label] then assert.are.equal(label == 2 and 1 or 0, out.difficult[place[label] ]:item()) end
        end
      end
    end)
  end

  it('take a plain list of labels along', function()
    local given = item()
    given.labels = { 1, 2, 3 }
    local out = T.CenterCrop { 4, 4 }(given)
    local tensors = T.CenterCrop { 4, 4 }(item())
    assert.is_true(tensors.labels:size(1) < 3)
    assert.are.same(tensors.labels:tolist(), out.labels)
    assert.are.same({ 1, 2, 3 }, given.labels)
    given.labels = { 1, 2 }
    assert.has_error(function() T.CenterCrop { 4, 4 }(given) end)
  end)

  it('of pictures without boxes stay empty', function()
    local given = item()
    given.boxes, given.labels = amp.zeros(0, 4), amp.zeros({ 0 }, { dtype = 'int64' })
    for _, make in ipairs(moves) do
      local out = loadstring('local T = ... return ' .. make)(T)(given)
      assert.are.same({ 0, 4 }, list(out.boxes:size()))
      assert.are.same({ 0 }, list(out.labels:size()))
    end
  end)

  it('that do not fit are refused', function()
    local f = T.CenterCrop(10)
    local function bad(key, value)
      local given = item()
      given[key] = value
      assert.has_error(function() f(given) end)
    end
    bad('boxes', amp.zeros(3, 5))
    bad('boxes', { 1, 2, 3, 4 })
    bad('labels', amp.tensor { 1, 2 })
    bad('mask', amp.zeros(5, 5))
    bad('mask', 'mask')
    bad('boxes', amp.tensor { { 0, 0, 0 / 0, 4 }, { 1, 1, 2, 2 }, { 1, 1, 2, 2 } })
    bad('boxes', amp.tensor { { 6, 0, 5, 4 }, { 1, 1, 2, 2 }, { 1, 1, 2, 2 } })
  end)
end)

describe('random crops', function()
  it('have the areas and shapes that were asked for', function()
    amp.manual_seed(2)
    local f = T.RandomResizedCrop({ 8, 8 }, { scale = { 0.2, 0.6 }, ratio = { 0.5, 2 } })
    local n, area, ratio, left, top = 4000, 0, 0, 0, 0
    for _ = 1, n do
      local p = f:draw(200, 200)
      local a, r = p.h * p.w / 40000, p.w / p.h
      assert.is_true(a > 0.19 and a < 0.61 and r > 0.49 and r < 2.05)
      assert.is_true(p.top >= 0 and p.left >= 0 and p.top + p.h <= 200 and p.left + p.w <= 200)
      area, ratio = area + a / n, ratio + math.log(r) / n
      left, top = left + p.left / (200 - p.w + 1) / n, top + p.top / (200 - p.h + 1) / n
    end
    assert.is_true(math.abs(area - 0.4) < 0.01)    -- uniform
    assert.is_true(math.abs(ratio) < 0.03)         -- uniform in its logarithm
    assert.is_true(math.abs(left - 0.5) < 0.02 and math.abs(top - 0.5) < 0.02)
  end)

  it('of pictures too long or high take the middle', function()
    local f = T.RandomResizedCrop(8)
    assert.are.same({ h = 10, w = 13, top = 0, left = 493, to = { 8, 8 } }, f:draw(10, 1000))
    assert.are.same({ h = 13, w = 10, top = 493, left = 0, to = { 8, 8 } }, f:draw(1000, 10))
  end)
end)

describe('erasing', function()
  it('puts the value into one part', function()
    amp.manual_seed(3)
    local x = amp.ones(3, 30, 30)
    for _ = 1, 50 do
      local y = T.RandomErasing { p = 1, scale = { 0.1, 0.2 }, ratio = { 0.5, 2 }, value = { 5, 6, 7 } }(x)
      local box = around(y[1], 5)
      local part = y[{ {}, { box[2] + 1, box[4] }, { box[1] + 1, box[3] } }]
      assert.is_true(part[1]:eq(5):all():item() and part[2]:eq(6):all():item() and part[3]:eq(7):all():item())
      local n = (box[3] - box[1]) * (box[4] - box[2])
      assert.are.equal(n, y:ne(1):sum():item() / 3)
      assert.is_true(n / 900 > 0.07 and n / 900 < 0.24)
    end
    assert.is_true(x:eq(1):all():item())
    assert.is_true(amp.equal(x, T.RandomErasing { p = 0 }(x)))
  end)
end)

describe('random transforms in a loader', function()
  local set = amp.vision.datasets.shapes { n = 12, size = 24, seed = 3, transform = T.Compose {
    T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ColorJitter { brightness = 0.3, hue = 0.1 }, T.RandomErasing() } }
  local function epochs(workers)
    amp.manual_seed(9)
    local loader, out = amp.data.DataLoader(set, { batch_size = 4, shuffle = true, workers = workers }), {}
    for e = 1, 2 do
      out[e] = {}
      for batch in loader:iter() do out[e][#out[e] + 1] = batch.image end
      out[e] = amp.cat(out[e])
    end
    return out
  end
  it('give the same for a seed, however many workers, and others in the next epoch', function()
    local a = epochs(0)
    assert.is_false(amp.equal(a[1], a[2]))
    for _, workers in ipairs { 1, 3 } do
      local b = epochs(workers)
      assert.is_true(amp.equal(a[1], b[1]) and amp.equal(a[2], b[2]))
    end
  end)
end)

describe('transforms', function()
  it('refuse what they cannot do, at once', function()
    for _, make in ipairs { 'T.Resize(0)', 'T.Resize{4,1,3}', 'T.CenterCrop(0)', 'T.RandomCrop(4,{pad=2})', 'T.RandomResizedCrop(4,{scale={1,0.5}})',
      'T.RandomResizedCrop(4,{ratio={0,1}})', 'T.RandomResizedCrop(4,{scale={-1,1}})', 'T.RandomHorizontalFlip{p=2}', 'T.ColorJitter{hue=1}',
      'T.ColorJitter{brightness=-1}', 'T.Normalize({0},{0})', 'T.Normalize({0,1},{1})', 'T.RandomErasing{ratio={-1,1}}',
      'T.RandomErasing{scale={0,2}}', 'T.Pad(-1)', 'T.Pad{1,2,3}', 'T.Compose{3}' } do
      assert.is_false((pcall(loadstring('local T = ... return ' .. make), T)), make)
    end
    for _, x in ipairs { amp.zeros(3, 0, 4), amp.zeros(8, 8), 'x', {} } do assert.is_false((pcall(T.Resize(4), x))) end
    assert.is_false((pcall(T.RandomCrop(9), amp.zeros(3, 8, 8))))
    assert.is_false((pcall(T.Normalize({ 0 }, { 1 }), amp.zeros(1, 2, 2):byte())))
  end)
  it('take batches of none and integers of any size', function()
    for _, make in ipairs { 'T.Resize(4)', 'T.ColorJitter{contrast={0.5,0.6},saturation={2,2},hue={0.1,0.1}}', 'T.CenterCrop(9)', 'T.RandomErasing{p=1}' } do
      assert.are.equal(0, loadstring('local T = ... return ' .. make)(T)(amp.zeros(0, 3, 6, 6)):size(1), make)
    end
    assert.are.equal(1000, T.Resize(4)(amp.full({ 1, 8, 8 }, 1000):to 'int64'):max():item())
    assert.are.equal(-5, T.Resize(4)(amp.full({ 1, 8, 8 }, -5):to 'int16'):max():item())
  end)
end)

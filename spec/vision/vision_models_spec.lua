--- Models: torchvision's names, values and gradients from the same weights; what state dicts of others become.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local want = require 'spec.fixtures.vision'
local models = amp.vision.models

-- Large networks take minutes where the library is sanitized, and no path that the small ones do not.
local function large(name, f) if not os.getenv 'AMP_SPEC_SANITIZED' then it(name, f) end end

-- Weights that spec/fixtures/make_vision.py makes too: of an element's number and of the parameter's name. They repeat after 1009.
local function unit(n, h)
  local once = (((amp.arange(0, math.min(n, 1009), 1, { dtype = 'float64' }) * 7919 + h) % 1009) / 1009) - 0.5
  if n <= 1009 then return once end
  return once:unsqueeze(1):expand(math.ceil(n / 1009), 1009):reshape(-1):narrow(1, 1, n)
end

local function hashed(name)
  local sum = 0
  for i = 1, #name do sum = sum + name:byte(i) * i end
  return sum % 1009
end

-- Names that count lists from 0, of a network whose lists count from 1
local function counted_from_zero(name) return (name:gsub('%f[^%.]%d+%f[%.]', function(n) return tostring(n - 1) end)) end

local function value(name, t)
  local u = unit(t:numel(), hashed(name)):view(t:size())
  if t:dim() > 1 then return u * (2 * (3 / (t:numel() / t:size(1))) ^ 0.5) end
  if name:find 'running_var$' or name:find 'weight$' then return u * 0.3 + 1 end
  return u * 0.2
end

local function filled(net)
  local state = {}
  for name, t in pairs(net:state_dict()) do
    local theirs = counted_from_zero(name)
    state[theirs] = name:find 'num_batches_tracked$' and t:clone() or value(theirs, t):to(t.dtype)
  end
  net:load_state_dict(state, { names = 'pytorch' })
  return net, state
end

local function picture(n, side, dtype) return (unit(n * 3 * side * side, 17) * 2):view(n, 3, side, side):to(dtype) end

local function near(t, list, tol, what) H.close(t:double():reshape(-1), list, { rtol = tol, atol = tol }, what) end

-- flat makes rows of what the network gives, where it gives maps
local function check(name, net, side, first, dtype, tol, flat)
  local w = want[name]
  local state
  net, state = filled(net:to(dtype))
  local count, last = 0, false
  for key in pairs(state) do
    count = count + 1
    last = last or key == w.last
  end
  assert.equal(w.names, count)
  assert.is_true(last, w.last)
  local x = picture(2, side, dtype)
  net:eval()
  flat = flat or function(y) return y end
  near(flat(net(x))[1][{ { 1, 5 } }], w.eval, tol, 'eval')
  net:train()
  local y = flat(net(x))
  near(y[1][{ { 1, 5 } }], w.train, tol, 'train');
  ((y * y):sum() / 10):backward()
  for key, p in net:named_parameters() do
    if counted_from_zero(key) == first then
      local g = p.grad:reshape(-1):double()
      local scale = math.max(1, math.abs(w.gradsum))
      near(g[{ { 1, 5 } }] / scale, { w.grad[1] / scale, w.grad[2] / scale, w.grad[3] / scale, w.grad[4] / scale, w.grad[5] / scale }, tol, 'grad')
      near((g * unit(g:numel(), 3)):sum() / scale, { w.gradsum / scale }, tol, 'sum of grad')
      return
    end
  end
  error('no parameter ' .. first)
end

describe('vision.models against torchvision', function()
  it('resnet18', function() check('resnet18', models.resnet18 { classes = 7 }, 64, 'conv1.weight', 'float64', 1e-6) end)
  large('resnet50', function() check('resnet50', models.resnet50 { classes = 7 }, 64, 'conv1.weight', 'float64', 1e-6) end)
  for _, name in ipairs { 'resnet34', 'resnet101', 'resnet152' } do
    large(name, function() check(name, models[name] { classes = 7 }, 64, 'conv1.weight', 'float64', 1e-6) end)
  end
  large('resnet50 with the strides of v1', function()
    check('resnet50_v1', models.resnet50 { classes = 7, version = 'v1' }, 64, 'conv1.weight', 'float64', 1e-6)
  end)
  large('vgg16', function() check('vgg16', models.vgg16 { classes = 7, dropout = 0 }, 32, 'features.0.weight', 'float32', 2e-3) end)
  it('unet (PyTorch\'s layers: torchvision has none)', function()
    check('unet', models.unet { classes = 4, width = 4, depth = 2 }, 21, 'first.conv1.weight', 'float64', 1e-6, function(y) return y:flatten(2) end)
  end)
  it('mobilenet_v2', function()
    check('mobilenet_v2', models.mobilenet_v2 { classes = 7, dropout = 0 }, 64, 'features.0.0.weight', 'float64', 1e-6)
  end)
  large('vit_b_16', function()
    check('vit_b_16', models.vit_b_16 { classes = 7, image_size = 32 }, 32, 'conv_proj.weight', 'float32', 2e-3)
  end)
  large('ssd_300_vgg16', function()
    local net = filled(models.ssd_300_vgg16 { classes = 3 })
    local cls, box, anchors = net(picture(1, 300, 'float32'))
    assert.same({ 8732, 4, 8732 }, { cls:size(2), cls:size(3), anchors:size(2) })
    local function some(t)
      local rows = {}
      for i = 1, 8732, 1747 do rows[#rows + 1] = t[1][i]:detach() end
      return amp.stack(rows)
    end
    near(some(cls), want.ssd_300_vgg16.cls, 2e-3, 'classes')
    near(some(box), want.ssd_300_vgg16.box, 2e-3, 'boxes')
    local count = 0
    for _ in pairs(net:state_dict()) do count = count + 1 end
    assert.equal(want.ssd_300_vgg16.names, count)
  end)
end)

describe('vision.models', function()
  it('have the stride of v1 in the first convolution, and the same parameters', function()
    local a, b = models.resnet50 { version = 'v1', width = 8, classes = 3 }, models.resnet50 { width = 8, classes = 3 }
    assert.equal(2, a.layer2[1].conv1.stride[1])
    assert.equal(1, a.layer2[1].conv2.stride[1])
    assert.equal(1, b.layer2[1].conv1.stride[1])
    assert.equal(2, b.layer2[1].conv2.stride[1])
    a:load_state_dict(b:state_dict())
    assert.equal('1x3', tostring(a(amp.rand(2, 3, 64, 64))[{ { 1, 1 } }]:size()))
  end)
  it('count blocks as published', function()
    local sizes = { resnet34 = { 3, 4, 6, 3 }, resnet101 = { 3, 4, 23, 3 }, resnet152 = { 3, 8, 36, 3 } }
    for name, counts in pairs(sizes) do
      local net = models[name] { width = 4, classes = 2 }
      for i, n in ipairs(counts) do assert.equal(n, #net['layer' .. i]) end
    end
  end)
  it('unet gives a map of the size of any picture', function()
    local net = models.unet { classes = 4, width = 4, depth = 3 }
    assert.equal('2x4x21x37', tostring(net(amp.rand(2, 3, 21, 37)):size()))
    assert.equal('1x2x32x32', tostring(models.unet { width = 4, in_channels = 1 }(amp.rand(1, 1, 32, 32)):size()))
  end)
  it('say what they are called with wrongly', function()
    local function refused(words, f, ...)
      local ok, e = pcall(f, ...)
      assert.is_false(ok)
      for _, word in ipairs(words) do assert.truthy(tostring(e):find(word, 1, true), tostring(e)) end
    end
    refused({ 'resnet60', 'resnet50' }, function() return models.resnet60 end)
    refused({ 'version', "'v2'" }, models.resnet50, { version = 'v2' })
    refused({ 'clases', 'classes' }, models.resnet18, { clases = 3 })
    refused({ 'classes', '0' }, models.resnet18, { classes = 0 })
    refused({ 'preset', 'coco', 'voc' }, models.ssd_512_resnet50_v1, { preset = 'imagenet', width = 4 })
    refused({ 'image_size', '30' }, models.vit_b_16, { image_size = 30 })
    local net = models.resnet18 { width = 4, classes = 2 }
    refused({ 'N x 3', '1x1x8x8' }, net, amp.rand(1, 1, 8, 8))
  end)
end)

describe('ssd_512_resnet50_v1', function()
  local function first(a) return (a[{ 1, { 1, 4 } }] * 512) end
  it('has 6,132 anchors with both presets, of which the first are as published', function()
    for preset, big in pairs { coco = (51.2 * 133.12) ^ 0.5, voc = (51.2 * 102.4) ^ 0.5 } do
      local net = models.ssd_512_resnet50_v1 { classes = { 'a', 'b', 'c' }, preset = preset, width = 4 }
      local cls, box, anchors = net(amp.rand(1, 3, 512, 512))
      assert.equal('1x6132x4', tostring(cls:size()))
      assert.equal('1x6132x4', tostring(box:size()))
      assert.equal('1x6132x4', tostring(anchors:size()))
      local function corners(w, h) return { 8 - w / 2, 8 - h / 2, 8 + w / 2, 8 + h / 2 } end
      local r = 2 ^ 0.5
      for i, wh in ipairs { { 51.2, 51.2 }, { big, big }, { 51.2 * r, 51.2 / r }, { 51.2 / r, 51.2 * r } } do
        near(first(anchors)[i], corners(wh[1], wh[2]), 1e-4)
      end
    end
  end)
  it('gives detections in pixels in evaluation mode, the best first, padded with -1', function()
    local net = models.ssd_512_resnet50_v1 { classes = 2, width = 4 }
    net:eval()
    local ids, scores, boxes = net(amp.rand(2, 3, 128, 128))
    assert.equal('2x100x1 2x100x1 2x100x4', ('%s %s %s'):format(ids:size(), scores:size(), boxes:size()))
    local last = 2
    for i = 1, 100 do
      local s, id = scores[1][i][1]:item(), ids[1][i][1]:item()
      assert.is_true(s <= last and (s == -1 and id == -1 or s >= 0.01 and (id == 1 or id == 2)), s .. ' ' .. id)
      last = s
    end
  end)
  it('decodes and suppresses within a class', function()
    local net = models.ssd_512_resnet50_v1 { classes = 2, width = 4 }
    local anchors = amp.tensor { { { 0, 0, 0.5, 0.5 }, { 0, 0, 0.5, 0.45 }, { 0.5, 0.5, 1, 1 }, { 0, 0, 0.5, 0.5 } } }
    local scores = amp.tensor { { { 0, 5, 0 }, { 0, 4, -9 }, { 0, -9, 3 }, { 9, 0, 0 } } }
    local ids, s, b = net:detect(scores, amp.zeros(1, 4, 4), anchors, 100, 200)
    near(b[1][1], { 0, 0, 100, 50 }, 1e-4)
    assert.same({ 1, 2, -1 }, { ids[1][1][1]:item(), ids[1][2][1]:item(), ids[1][100][1]:item() })
    near(b[1][2], { 100, 50, 200, 100 }, 1e-4)
    local e = math.exp(1)
    near(s[1][1], { e ^ 5 / (e ^ 5 + 2) }, 1e-5)
    near(b[1][100], { -1, -1, -1, -1 }, 0)
  end)
  it('trains in a step under autocast as in float32', function()
    local net = models.ssd_512_resnet50_v1 { classes = 2, width = 4 }
    local loss = amp.vision.SSDMultiBoxLoss()
    local x = amp.rand(2, 3, 96, 96)
    local labels = amp.tensor { { { 1, 0.1, 0.1, 0.7, 0.8 } }, { { -1, -1, -1, -1, -1 } } }
    local function step()
      local cls, box, anchors = net(x)
      local box_t, _, cls_t = amp.vision.ops.multibox_target(anchors, labels, cls:transpose(2, 3), { negative_mining_ratio = 3 })
      local sum, c, b = loss(cls, box, cls_t, box_t)
      assert.equal('2', tostring(sum[1]:size()))
      assert.is_true(c[1]:sum():item() > 0 and b[1]:sum():item() > 0)
      sum[1]:sum():backward()
      for name, p in net:named_parameters() do assert.truthy(p.grad, name) end
      net:zero_grad()
      return sum[1]:sum():item()
    end
    local plain = step()
    local low = amp.autocast({ dtype = 'bfloat16' }, step)
    assert.is_true(math.abs(low / plain - 1) < 0.2, low .. ' ' .. plain)
  end)
end)

describe('names of others', function()
  local nn = amp.nn
  it('load_state_dict takes lists that count from 0, and changes nothing when it refuses', function()
    local net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    local before = net[1].weight:clone()
    local state = { ['0.weight'] = amp.ones(3, 2), ['0.bias'] = amp.ones(3), ['2.weight'] = amp.ones(1, 3), ['2.bias'] = amp.ones(1) }
    for _, bad in ipairs { { names = 'keras' }, { names = true }, {} } do
      assert.is_false(pcall(net.load_state_dict, net, state, bad))
      assert.is_true(net[1].weight:equal(before))
    end
    local short = { ['0.weight'] = state['0.weight'], ['0.bias'] = state['0.bias'], ['2.weight'] = amp.ones(2, 3), ['2.bias'] = state['2.bias'] }
    assert.is_false(pcall(net.load_state_dict, net, short, { names = 'pytorch' }))
    assert.is_true(net[1].weight:equal(before))
    net:load_state_dict(state, { names = 'pytorch' })
    assert.is_true(net[1].weight:equal(state['0.weight']))
    assert.is_false(pcall(net.load_state_dict, net, net:state_dict(), { names = 'pytorch' })) -- 1 and 3 are 2 and 4
  end)
  it('io.rename gives a state other names', function()
    local a, b = amp.ones(1), amp.zeros(1)
    local state = { ['module.bn.gamma'] = a, ['module.fc.1.weight'] = b }
    local new = amp.io.rename(state, { { '^module%.', '' }, { '%.gamma$', '.weight' }, { '%.(%d+)%.', function(n) return '.' .. (n + 1) .. '.' end } })
    assert.is_true(new['bn.weight'] == a and new['fc.2.weight'] == b and state['module.bn.gamma'] == a)
    for _, bad in ipairs { { { '^.*$', 'x' } }, { { '%', '' } }, { { 'a' } }, { a = 'b' }, { { 'a', '%9' } } } do
      assert.is_false(pcall(amp.io.rename, state, bad))
    end
  end)
end)

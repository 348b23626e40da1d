--- Boxes, regions and SSD's targets and detections: torchvision's and MXNet's numbers, worked examples, bad input.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local want = require 'spec.fixtures.vision'
local ops = amp.vision.ops
local device = H.device or 'cpu'

local function unit(n, h) return (((amp.arange(0, n, 1, { dtype = 'float64' }) * 7919 + h) % 1009) / 1009) - 0.5 end
local function on(t) return t:to(device) end
local function tensor(v, dtype) return on(amp.tensor(v, { dtype = dtype })) end
local function close(t, list, tol) H.close(t:double():cpu():reshape(-1), list, { rtol = tol or 1e-6, atol = tol or 1e-6 }) end

local function boxes(n, h)
  local b = (unit(n * 4, h):view(n, 4) + 0.5) * 20
  return on(amp.cat({ b:narrow(2, 1, 2), b:narrow(2, 1, 2) + b:narrow(2, 3, 2) * 0.7 + 0.5 }, 2))
end

local function refused(words, f, ...)
  local args = { n = select('#', ...), ... }
  local ok, e = pcall(function()
    local y = f(unpack(args, 1, args.n))
    if device ~= 'cpu' then amp.cuda.synchronize() end
    return y
  end)
  assert.is_false(ok)
  for _, word in ipairs(words) do assert.truthy(tostring(e):find(word, 1, true), tostring(e)) end
end

describe('vision.ops of boxes', function()
  it('box_iou and box_convert are torchvision\'s', function()
    local a, b = boxes(5, 1), boxes(3, 400)
    close(ops.box_iou(a, b), want.box_iou)
    close(ops.box_convert(a, 'xyxy', 'xywh'), want.xywh)
    close(ops.box_convert(a, 'xyxy', 'cxcywh'), want.cxcywh)
    for _, form in ipairs { 'xywh', 'cxcywh' } do
      close(ops.box_convert(ops.box_convert(a, 'xyxy', form), form, 'xyxy'), a:cpu():reshape(-1):tolist())
    end
    assert.equal('float32', ops.box_iou(a:half(), b:half()).dtype)
    assert.is_true(amp.gradcheck(function(x) return ops.box_iou(x, b) end, { boxes(5, 1):clone():requires_grad_() }))
  end)
  it('clip_boxes cuts at height and width', function()
    close(ops.clip_boxes(tensor { { -1, 2, 50, 90 }, { 3, -4, 5, 6 } }, { 10, 20 }), { 0, 2, 20, 10, 3, 0, 5, 6 })
  end)
  it('nms and batched_nms are torchvision\'s, in indices from 1', function()
    local b, s = boxes(60, 5), on(unit(60, 77))
    close(ops.nms(b, s, 0.3), want.nms, 0)
    local group = on((amp.arange(0, 60) % 3):to 'int64')
    close(ops.batched_nms(b, s, group, 0.2), want.batched_nms, 0)
    close(ops.batched_nms(b, s, group - 2, 0.2), want.batched_nms, 0)
    assert.equal('int64', ops.nms(b:half(), s:half(), 0.3).dtype)
    assert.equal(0, ops.nms(b[{ { 1, 0 } }], s[{ { 1, 0 } }], 0.3):numel())
  end)
  it('suppress more than a block of boxes as a walk over pairs does', function()
    local n = 333
    local b, s = boxes(n, 41), on(unit(n, 5))
    local order = s:argsort { descending = true, stable = true }
    local iou, at = ops.box_iou(b:float(), b:float()):cpu():tolist(), order:cpu():tolist()
    local gone, stays = {}, {}
    for i = 1, n do
      if not gone[i] then
        stays[#stays + 1] = at[i]
        for k = i + 1, n do gone[k] = gone[k] or iou[at[i]][at[k]] > 0.25 end
      end
    end
    close(ops.nms(b, s, 0.25), stays, 0)
  end)
  it('take boxes that are swapped, empty or NaN', function()
    local nan = 0 / 0
    local b = tensor { { 0, 0, 2, 2 }, { 2, 2, 0, 0 }, { 1, 1, 1, 1 }, { nan, 0, 1, 1 }, { 0, 0, 2, 2 } }
    close(ops.nms(b, tensor { 5, 4, 3, 2, 1 }, 0.5), { 1, 2, 3, 4 }, 0)
  end)
  it('say what is wrong', function()
    local b = boxes(3, 1)
    refused({ 'scores', '3', '2' }, ops.nms, b, on(amp.rand(2)), 0.5)
    refused({ 'K x 4', '3x3' }, ops.nms, on(amp.rand(3, 3)), on(amp.rand(3)), 0.5)
    refused({ 'iou_threshold' }, ops.nms, b, on(amp.rand(3)))
    refused({ 'xyxy', 'xyz' }, ops.box_convert, b, 'xyxy', 'xyz')
    refused({ 'boxes1', 'tensor' }, ops.box_iou, 3, b)
    refused({ 'size', 'height' }, ops.clip_boxes, b, 5)
    refused({ 'batched_mms', 'batched_nms' }, function() return ops.batched_mms end)
  end)
end)

describe('vision.ops of regions', function()
  local function data() return on(unit(2 * 3 * 9 * 11, 9):view(2, 3, 9, 11)):requires_grad_() end
  local regions = { { 1, 1.3, 2.1, 8.7, 7.9 }, { 2, -3, -2, 30, 5.5 }, { 1, 4, 4, 4, 4 }, { 2, 9, 7, 3, 2 }, { 1, 40, 40, 50, 50 } }
  local function weight() return on(unit(5 * 3 * 2 * 3, 21):view(5, 3, 2, 3)) end
  local function check(f, w)
    local x, r = data(), tensor(regions, 'float64')
    local y = f(x, r)
    close(y, w.y)
    ;(y * weight()):sum():backward()
    close(x.grad[{ {}, 2, { 3, 5 } }], w.g)
  end
  it('roi_align is torchvision\'s, with its gradients', function()
    local size = { 2, 3 }
    check(function(x, r) return ops.roi_align(x, r, size) end, want.roi_align_plain)
    check(function(x, r) return ops.roi_align(x, r, size, 0.5, 2) end, want.roi_align_scaled)
    check(function(x, r) return ops.roi_align(x, r, size, { spatial_scale = 0.8, aligned = true }) end, want.roi_align_aligned)
    check(function(x, r) return ops.roi_align(x, r, size, 1, 3, true) end, want.roi_align_aligned2)
  end)
  it('roi_pool is torchvision\'s, with its gradients', function()
    check(function(x, r) return ops.roi_pool(x, r, { 2, 3 }) end, want.roi_pool_plain)
    check(function(x, r) return ops.roi_pool(x, r, { 2, 3 }, 0.6) end, want.roi_pool_scaled)
  end)
  it('have second derivatives', function()
    local r = tensor(regions, 'float64')
    assert.is_true(amp.gradgradcheck(function(x) return ops.roi_align(x, r, 2):square() end, { data() }))
  end)
  it('take lists of boxes, half types and nothing', function()
    local x = data():float():detach()
    local list = { tensor { { 1, 1, 5, 5 } }, on(amp.zeros(0, 4)) }
    assert.equal('1x3x2x2', tostring(ops.roi_align(x, list, 2):size()))
    local low = ops.roi_align(x:half(), { list[1]:half(), list[2]:half() }, 2)
    assert.equal('float16', low.dtype)
    H.close(low:float():cpu(), ops.roi_align(x, list, 2):cpu(), { rtol = 2e-3, atol = 2e-3 })
    amp.autocast({ device = device, dtype = 'bfloat16' }, function()
      assert.equal('bfloat16', ops.roi_align(x:bfloat16(), list, 2).dtype) -- the input's
      assert.equal('bfloat16', ops.roi_pool(x:bfloat16(), list, 2).dtype)
      assert.equal('float32', ops.roi_align(x, { list[1]:bfloat16(), list[2]:bfloat16() }, 2).dtype)
    end)
    assert.equal('0x3x2x2', tostring(ops.roi_pool(x, on(amp.zeros(0, 5)), 2):size()))
  end)
  it('say what is wrong', function()
    local bad = tensor({ { 1, 0, 0, 1, 1 }, { 3, 0, 0, 1, 1 } }, 'float64')
    local said = device == 'cpu' and { 'region 2', 'image 3', '1 to 2' } or { 'index 3', 'size 2', 'element 2' }
    refused(said, ops.roi_align, data(), bad, 2)
    refused(said, ops.roi_pool, data(), bad, 2)
    refused({ 'K x 5', '2x4' }, ops.roi_align, data(), on(amp.rand(2, 4)), 2)
    local none, box = on(amp.zeros(0, 3, 4, 4)), on(amp.tensor { { 1, 0, 0, 2, 2 } })
    for _, f in ipairs { ops.roi_align, ops.roi_pool } do -- of a batch without images
      refused(device == 'cpu' and { 'region 1', 'images 1 to 0' } or { 'index 1', 'size 0' }, function() f(none, box, 2):sum():item() end)
      assert.equal('0x3x2x2', tostring(f(none, on(amp.zeros(0, 5)), 2):size()))
    end
    refused({ 'one an image', '1' }, ops.roi_pool, data(), { on(amp.rand(2, 4)) }, 2)
    refused({ 'output_size' }, ops.roi_align, data(), on(amp.rand(2, 5)), 0)
  end)
  it('sigmoid_focal_loss is torchvision\'s', function()
    local f = want.focal
    local z, t = tensor(f.z, 'float64'), tensor(f.t, 'float64')
    close(ops.sigmoid_focal_loss(z, t), f.y)
    close(ops.sigmoid_focal_loss(z, t, -1, 1.5, 'mean'), f.mean)
    close(ops.sigmoid_focal_loss(z, t, { alpha = -1, gamma = 1.5, reduction = 'mean' }), f.mean)
    assert.is_true(amp.gradcheck(function(x) return ops.sigmoid_focal_loss(x, t) end, { z:clone():requires_grad_() }))
  end)
end)

describe('multibox', function()
  it('prior: sizes with the first ratio, then the first size with the others', function()
    local a = ops.multibox_prior(on(amp.zeros(1, 1, 2, 4)), { sizes = { 0.5, 0.25 }, ratios = { 1, 4 } })
    assert.equal('1x24x4', tostring(a:size()))
    assert.equal(device == 'cpu' and 'cpu' or 'cuda:1', a.device == 'cpu' and 'cpu' or 'cuda:1')
    -- widths are by rows over columns: 0.5 * 2 / 4
    close(a[{ 1, { 1, 3 } }], { 0, 0, 0.25, 0.5, 0.0625, 0.125, 0.1875, 0.375, -0.125, 0.125, 0.375, 0.375 })
    local one = on(amp.zeros(1, 1, 1, 1))
    local mine = ops.multibox_prior(one, { sizes = { 0.5 } })
    mine:mul_(300) -- to pixels: what others get stays
    close(ops.multibox_prior(one, { sizes = { 0.5 } }), { 0.25, 0.25, 0.75, 0.75 })
    close(ops.multibox_prior(on(amp.zeros(1, 1, 1, 1)), { sizes = { 1.5 }, clip = true }), { 0, 0, 1, 1 })
    close(ops.multibox_prior(on(amp.zeros(1, 1, 1, 1)), { steps = { 0.25, 0.5 }, offsets = { 1, 0 }, sizes = { 0.2 } }),
      { -0.1, 0.15, 0.1, 0.35 })
  end)

  -- Anchors: two overlap box 1 much, one a little, one lies far away
  local anchors = { { { 0, 0, 0.4, 0.4 }, { 0, 0, 0.5, 0.4 }, { 0.3, 0.3, 0.7, 0.7 }, { 0.6, 0.6, 1, 1 }, { 0.8, 0, 1, 0.1 } } }
  it('target: the best anchor of each box, those that overlap enough, the hardest negatives', function()
    local labels = tensor { { { 2, 0, 0, 0.4, 0.4 }, { 1, 0.65, 0.65, 1, 1 }, { -1, -1, -1, -1, -1 } } }
    local preds = on(amp.zeros(1, 3, 5))
    local box, mask, cls = ops.multibox_target(tensor(anchors), labels, preds)
    close(cls, { 2, 2, 0, 1, 0 })
    local one, none = { 1, 1, 1, 1 }, { 0, 0, 0, 0 }
    close(mask:view(5, 4), H.flat and H.flat { one, one, none, one, none } or { 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0 })
    local l = math.log
    close(box:view(5, 4), { 0, 0, 0, 0, -0.05 / 0.5 / 0.1, 0, l(0.8) / 0.2, 0, 0, 0, 0, 0,
      0.025 / 0.4 / 0.1, 0.025 / 0.4 / 0.1, l(0.875) / 0.2, l(0.875) / 0.2, 0, 0, 0, 0 }, 1e-5)
    preds[{ 1, 1, 3 }] = -1 -- the third is the least sure of background
    local _, _, mined = ops.multibox_target(tensor(anchors), labels, preds, { negative_mining_ratio = 0.34 })
    close(mined, { 2, 2, 0, 1, -1 })
    preds[{ 1, 1, 3 }] = 1
    _, _, mined = ops.multibox_target(tensor(anchors), labels, preds, { negative_mining_ratio = 0.34, ignore_label = -7 })
    close(mined, { 2, 2, -7, 1, 0 })
    _, _, mined = ops.multibox_target(tensor(anchors), labels, preds, { negative_mining_ratio = 0.01, minimum_negative_samples = 2 })
    close(mined, { 2, 2, 0, 1, 0 })
    _, _, cls = ops.multibox_target(tensor(anchors), labels, preds, { overlap_threshold = 0.9 })
    close(cls, { 2, 0, 0, 1, 0 })
  end)
  it('target: a picture without boxes is ignored; boxes of no use match nothing', function()
    local nan = 0 / 0
    local labels = tensor { { { -1, -1, -1, -1, -1 }, { -1, -1, -1, -1, -1 } }, { { 1, nan, 0, 1, 1 }, { 1, 0.5, 0.5, 0.2, 0.2 } },
      { { 1, 0.1, 0.1, 0.1, 0.1 }, { 2, 5, 5, 6, 6 } } }
    local box, mask, cls = ops.multibox_target(tensor(anchors), labels, on(amp.zeros(3, 3, 5)), { negative_mining_ratio = 3 })
    assert.equal(0, box:abs():sum():item() + mask:sum():item())
    close(cls, { -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1 })
  end)
  -- MXNet's walk in plain Lua, over lists; numbers are chosen such that its comparisons are exact.
  local single = require('ffi').new 'float[1]'
  local function float(v)
    single[0] = v
    return single[0]
  end
  local function iou(a, g)
    local w, h = math.min(a[3], g[3]) - math.max(a[1], g[1]), math.min(a[4], g[4]) - math.max(a[2], g[2])
    if w <= 0 or h <= 0 then return 0 end
    return float(w * h / ((a[3] - a[1]) * (a[4] - a[2]) + (g[3] - g[1]) * (g[4] - g[2]) - w * h))
  end
  local function each_takes_its_best(anchors_of, boxes_of, match)
    local taken = {}
    for _ = 1, #boxes_of do
      local most, anchor, box = 1e-6, nil, nil
      for j, a in ipairs(anchors_of) do
        for k, g in ipairs(boxes_of) do
          local v = not match[j] and not taken[k] and iou(a, g) or 0
          if v > most then most, anchor, box = v, j, k end
        end
      end
      if not anchor then return end
      match[anchor], taken[box] = box, true
    end
  end
  local function walk(anchors_of, boxes_of, classes, background, o)
    local match, free, cls = {}, {}, {}
    each_takes_its_best(anchors_of, boxes_of, match)
    local positive = 0
    for j, a in ipairs(anchors_of) do
      local most, at = -1, nil
      for k, g in ipairs(boxes_of) do
        local v = iou(a, g)
        if v > most then most, at = v, k end
      end
      if not match[j] and most > float(o.overlap_threshold) then match[j] = at end
      if match[j] then positive = positive + 1
      elseif most < float(o.negative_mining_thresh) then free[#free + 1] = j end
      cls[j] = match[j] and classes[match[j]] or -1
    end
    table.sort(free, function(p, q) -- the least sure of background first, then the earlier
      if background[p] ~= background[q] then return background[p] < background[q] end
      return p < q
    end)
    for i = 1, math.min(math.floor(positive * o.negative_mining_ratio), #free) do cls[free[i]] = 0 end
    return match, cls
  end

  local function check_walk(o)
    local n, a, grid = 3, 300, 64
    local draw = 7
    local function random(m)
      draw = draw * 16807 % 2147483647
      return draw % m
    end
    local list, labels, levels, preds = {}, {}, {}, amp.zeros(n, 4, a)
    for j = 1, a do
      local x, y = random(40), random(40)
      list[j] = { x / grid, y / grid, (x + 8 + random(16)) / grid, (y + 8 + random(16)) / grid }
      if j % 9 == 0 then list[j] = list[j - 1] end -- overlaps tie
    end
    for i = 1, n do
      labels[i], levels[i] = {}, {}
      for k = 1, 6 do
        local at = list[1 + random(a)]
        labels[i][k] = k <= i * 2 and { k % 3 + 1, at[1] + 1 / grid, at[2], at[3], at[4] + 1 / grid } or { -1, -1, -1, -1, -1 }
      end
      for j = 1, a do levels[i][j] = random(5) / 4 end
      preds[{ i, 1 }] = amp.tensor(levels[i])
    end
    local box, mask, cls = ops.multibox_target(tensor { list }, tensor(labels), on(preds), o)
    local v = o.variances or { 0.1, 0.1, 0.2, 0.2 }
    for i = 1, n do
      local boxes_of, classes = {}, {}
      for k = 1, i * 2 do classes[k], boxes_of[k] = labels[i][k][1], { unpack(labels[i][k], 2) } end
      local match, want_cls = walk(list, boxes_of, classes, levels[i], o)
      local want_box, want_mask = {}, {}
      for j = 1, a do
        local g, b = match[j] and boxes_of[match[j]], list[j]
        for _ = 1, 4 do want_mask[#want_mask + 1] = g and 1 or 0 end
        for d = 1, 2 do
          want_box[4 * j - 4 + d] = g and (g[d] + g[d + 2] - b[d] - b[d + 2]) / 2 / (b[d + 2] - b[d]) / v[d] or 0
          want_box[4 * j - 2 + d] = g and math.log((g[d + 2] - g[d]) / (b[d + 2] - b[d])) / v[d + 2] or 0
        end
      end
      close(cls[i], want_cls, 0)
      close(mask[i], want_mask, 0)
      close(box[i], want_box, 1e-4)
    end
  end
  it('target: matches, ties and hard negatives are those of a slow walk', function()
    check_walk { overlap_threshold = 0.5, negative_mining_ratio = 1, negative_mining_thresh = 0.5 }
    check_walk { overlap_threshold = 0.4, negative_mining_ratio = 3, negative_mining_thresh = 0.1, variances = { 0.2, 0.5, 0.1, 1 } }
    check_walk { overlap_threshold = 0.7, negative_mining_ratio = 2.6, negative_mining_thresh = 0.6 }
  end)
  it('target: without a threshold only the best anchors match; negatives overlap less than negative_mining_thresh', function()
    local labels = tensor { { { 2, 0, 0, 0.4, 0.4 } } } -- overlaps are 1, 0.8, 1/31, 0, 0
    local preds = on(amp.zeros(1, 3, 5))
    local function cls(o) return (select(3, ops.multibox_target(tensor(anchors), labels, preds, o))) end
    close(cls { overlap_threshold = 0 }, { 2, 0, 0, 0, 0 })
    close(cls { overlap_threshold = 0, negative_mining_ratio = 9, negative_mining_thresh = 0.5 }, { 2, -1, 0, 0, 0 })
    close(cls { overlap_threshold = 0, negative_mining_ratio = 9, negative_mining_thresh = 0.01 }, { 2, -1, -1, 0, 0 })
    close(cls { overlap_threshold = 0, negative_mining_ratio = 2, negative_mining_thresh = 0.9 }, { 2, 0, 0, -1, -1 })
    close(cls { overlap_threshold = 0.9, negative_mining_ratio = 9, negative_mining_thresh = 0.81, ignore_label = 7 }, { 2, 0, 0, 0, 0 })
    local box = ops.multibox_target(tensor(anchors), labels, preds, { variances = { 0.5, 1, 2, 4 } })
    close(box[{ 1, { 5, 8 } }], { -0.05 / 0.5 / 0.5, 0, math.log(0.8) / 2, 0 }, 1e-5)
  end)
  it('target: says what is wrong', function()
    local a, p = tensor(anchors), on(amp.zeros(1, 3, 5))
    local function label(c) return tensor { { { c, 0, 0, 0.4, 0.4 } } } end
    refused(device == 'cpu' and { 'label 3', 'image 1', 'box 1', '1 to 2' } or { 'label 3' }, ops.multibox_target, a, label(3), p)
    refused({ 'label' }, ops.multibox_target, a, label(0), p)
    refused({ 'label' }, ops.multibox_target, a, label(1.5), p)
    refused({ 'A', '1x3x4' }, ops.multibox_target, a, label(1), on(amp.zeros(1, 3, 4)))
    refused({ 'N x L x 5', '1x5' }, ops.multibox_target, a, label(1)[1], p)
    refused({ 'overlap_treshold', 'overlap_threshold' }, ops.multibox_target, a, label(1), p, { overlap_treshold = 1 })
    refused({ 'variances', '4' }, ops.multibox_target, a, label(1), p, { variances = { 1, 2 } })
  end)

  it('detection: the best class of each anchor, decoded, suppressed within its class', function()
    local prob = tensor { { { 0.1, 0.2, 0.9, 0.1, 0.995 }, { 0.8, 0.7, 0.05, 0.3, 0.003 }, { 0.1, 0.1, 0.05, 0.6, 0.002 } } }
    local loc = on(amp.zeros(1, 20))
    loc[{ 1, { 13, 16 } }] = tensor { 1, 0, 0, 1 }
    local out = ops.multibox_detection(prob, loc, tensor(anchors))
    assert.equal('1x5x6', tostring(out:size()))
    local h = math.exp(0.2) * 0.2
    close(out[1][1], { 1, 0.8, 0, 0, 0.4, 0.4 })
    close(out[1][2], { -1, 0.7, 0, 0, 0.5, 0.4 }) -- overlaps the first by 0.8
    close(out[1][3], { 2, 0.6, 0.64, 0.8 - h, 1, 1 }, 1e-5)
    close(out[1][4], { 1, 0.05, 0.3, 0.3, 0.7, 0.7 })
    close(out[1][5], { -1, -1, -1, -1, -1, -1 })
    local raw = ops.multibox_detection(prob, loc, tensor(anchors), { nms_threshold = -1, clip = false, threshold = 0.5 })
    close(raw[{ 1, {}, 1 }], { 1, 1, 2, -1, -1 })
    close(raw[1][3], { 2, 0.6, 0.64, 0.8 - h, 1.04, 0.8 + h }, 1e-5)
    local top = ops.multibox_detection(prob, loc, tensor(anchors), { nms_topk = 1, force_suppress = true })
    close(top[{ 1, {}, 1 }], { 1, -1, -1, -1, -1 })
  end)
  it('detection: options', function()
    local two = tensor { { { 0, 0, 0.4, 0.4 }, { 0, 0, 0.5, 0.4 }, { 0.6, 0.6, 1, 1 } } }
    local prob = tensor { { { 0.2, 0.3, 0.4 }, { 0.8, 0.1, 0.6 }, { 0, 0.6, 0 } } }
    local loc = on(amp.zeros(1, 12))
    local function ids(o) return ops.multibox_detection(prob, loc, two, o)[{ 1, {}, 1 }] end
    close(ids {}, { 1, 2, 1 }) -- of two classes: both stay
    close(ids { force_suppress = true }, { 1, -1, 1 })
    close(ids { force_suppress = true, nms_threshold = 0.81 }, { 1, 2, 1 })
    close(ids { nms_topk = 2 }, { 1, 2, -1 })
    close(ids { nms_topk = 9, threshold = 0.61 }, { 1, -1, -1 })
    close(ids { nms_threshold = 2, force_suppress = true }, { 1, 2, 1 })
    loc[{ 1, { 1, 4 } }] = tensor { 1, 2, 0, 0.5 }
    local out = ops.multibox_detection(prob, loc, two, { variances = { 0.5, 0.25, 1, 2 }, clip = false })
    local h = 0.2 * math.exp(1)
    close(out[1][1], { 1, 0.8, 0.2, 0.4 - h, 0.6, 0.4 + h }, 1e-5)
    close(ops.multibox_detection(prob, loc, two, { variances = { 0.5, 0.25, 1, 2 } })[1][1], { 1, 0.8, 0.2, 0, 0.6, 0.4 + h }, 1e-5)
  end)
end)

describe('SSDMultiBoxLoss', function()
  it('adds cross entropy of labelled and hardest anchors and smooth L1, over the labelled of all', function()
    local cls = tensor { { { 0, 1, 2 }, { 3, 0, 0 }, { 0, 2, 0 }, { 1, 0, 0 }, { 0, 0, 4 } } }
    local box, target = on(amp.zeros(1, 5, 4)), on(amp.zeros(1, 5, 4))
    target[{ 1, 1 }] = tensor { 0.5, -3, 0, 0 }
    target[{ 1, 2 }] = tensor { 9, 9, 9, 9 } -- not labelled: of no account
    local classes = tensor { { 2, 0, 0, 0, -1 } }
    local sum, c, b = amp.vision.SSDMultiBoxLoss { negative_mining_ratio = 2 }(cls, box, classes, target)
    local function lse(...)
      local s = 0
      for _, v in ipairs { ... } do s = s + math.exp(v) end
      return math.log(s)
    end
    -- hardest of the negatives: the fifth (ignored: as background) and the third
    local wc = (lse(0, 1, 2) - 2) + (lse(0, 0, 4) - 0) + (lse(0, 2, 0) - 0)
    local wb = 0.5 * 0.25 + 2.5
    close(c[1], { wc }, 1e-5)
    close(b[1], { wb }, 1e-5)
    close(sum[1], { wc + wb }, 1e-5)
    local s2 = amp.vision.SSDMultiBoxLoss { negative_mining_ratio = 2, lambd = 0.5, rho = 2 }(cls, box, classes, target)
    close(s2[1], { wc + 0.5 * (0.25 / 4 + 2) }, 1e-5)
  end)
  it('is zero, and has zero gradients, without positives', function()
    local cls, box = on(amp.rand(2, 6, 3)):requires_grad_(), on(amp.rand(2, 6, 4)):requires_grad_()
    local sum = amp.vision.SSDMultiBoxLoss()(cls, box, on(amp.zeros(2, 6)), on(amp.rand(2, 24)))
    close(sum[1], { 0, 0 })
    sum[1]:sum():backward()
    assert.equal(0, cls.grad:abs():sum():item() + box.grad:abs():sum():item())
  end)
  it('takes lists, a tensor a device, and divides by the positives of all', function()
    local loss = amp.vision.SSDMultiBoxLoss()
    local cls, box, t = on(amp.rand(2, 6, 3)), on(amp.rand(2, 6, 4)), on(amp.rand(2, 24))
    local classes = tensor { { 1, 0, 2, 0, 0, 0 }, { 0, 0, 0, 1, 0, 0 } }
    local one = loss(cls, box, classes, t)
    local two = loss({ cls[{ { 1, 1 } }], cls[{ { 2, 2 } }] }, { box[{ { 1, 1 } }], box[{ { 2, 2 } }] },
      { classes[{ { 1, 1 } }], classes[{ { 2, 2 } }] }, { t[{ { 1, 1 } }], t[{ { 2, 2 } }] })
    assert.equal(2, #two)
    close(amp.cat(two, 1), one[1]:cpu():tolist(), 1e-6)
  end)
  it('says what is wrong', function()
    local loss = amp.vision.SSDMultiBoxLoss()
    refused({ 'cls_targets', '2x5', '2x6' }, loss, on(amp.rand(2, 6, 3)), on(amp.rand(2, 6, 4)), on(amp.rand(2, 5)), on(amp.rand(2, 24)))
    refused({ 'negative_mining', 'negative_mining_ratio' }, amp.vision.SSDMultiBoxLoss, { negative_mining = 3 })
  end)
end)

describe('a target of the loss that is no class', function()
  it('is named, with its image and anchor', function()
    local loss, cls, box = amp.vision.SSDMultiBoxLoss(), amp.zeros(2, 4, 4), amp.zeros(2, 4, 4)
    for _, v in ipairs { 4, 0 / 0 } do
      local targets = amp.zeros(2, 4)
      targets[2][3]:fill_(v)
      local ok, e = pcall(loss, cls, box, targets, amp.zeros(2, 16))
      assert.is_true(not ok and tostring(e):find('(image 2, anchor 3)', 1, true) ~= nil and tostring(e):find('classes 1 to 3', 1, true) ~= nil, tostring(e))
    end
  end)
end)

describe('errors of vision', function()
  it('begin with the name that was called, once', function()
    local V = amp.vision
    for name, f in pairs {
      ['vision.ops.nms'] = function() V.ops.nms(1) end, ['vision.ops.box_iou'] = function() V.ops.box_iou(1) end,
      ['vision.ops.multibox_prior'] = function() V.ops.multibox_prior(1) end, ['vision.ops.roi_pool'] = function() V.ops.roi_pool(1) end,
      ['vision.ops.sigmoid_focal_loss'] = function() V.ops.sigmoid_focal_loss(1) end, ['vision.ops'] = function() return V.ops.nmz end,
      ['vision.SSDMultiBoxLoss'] = function() V.SSDMultiBoxLoss { rho = 0 } end, ['vision.models.resnet18'] = function() V.models.resnet18 { classes = 0 } end,
      ['vision.models.ssd_300_vgg16'] = function() V.models.ssd_300_vgg16 { classes = 0 } end, ['vision.models'] = function() return V.models.resnet19 end,
      ['vision'] = function() return V.modls end, ['vision.transforms.Resize'] = function() V.transforms.Resize(0) end,
    } do
      local ok, e = pcall(f)
      assert.is_true(not ok and tostring(e):find(': amp.' .. name .. ': ', 1, true) ~= nil and not tostring(e):find('amp.amp', 1, true), tostring(e))
    end
  end)
end)

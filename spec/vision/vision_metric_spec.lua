--- amp.metric against scikit-learn and pycocotools (spec/fixtures/make_metrics.py).
local amp = require 'amp'
local fixture = dofile 'spec/fixtures/metrics.lua'
local metric = amp.metric

local function near(a, b, eps, what)
  assert.is_true(math.abs(a - b) <= (eps or 1e-12), ('%s: got %.15g, the reference %.15g'):format(what or 'value', a, b))
end

local function int(list) return amp.tensor(list, { dtype = 'int64' }) end

-- The halves of a batch, and the whole of it as two metrics merged.
local function three_ways(make, update, n)
  local half = math.floor(n / 2)
  local one, two, a, b = make(), make(), make(), make()
  update(one, 1, n)
  update(two, 1, half)
  update(two, half + 1, n)
  update(a, 1, half)
  update(b, half + 1, n)
  local again = make()
  update(again, 1, n)
  again:reset()
  update(again, 1, n)
  return { one, two, a:merge(b:state()), make():merge(a:state()), again }
end

local function cut(t, first, last) return t:narrow(1, first, last - first + 1) end

describe('metrics of classes', function()
  for k, case in ipairs(fixture.classes) do
    local scores, labels = amp.tensor(case.scores, { dtype = 'float64' }), int(case.labels)
    local n, c = scores:size(1), scores:size(2)
    local function update(m, first, last) m:update(cut(scores, first, last), cut(labels, first, last)) end
    it('are those of scikit-learn, case ' .. k, function()
      for name, value in pairs(case.f1) do
        for _, m in ipairs(three_ways(function() return metric.F1 { classes = c, average = name } end, update, n)) do
          local v = m:value()
          if name == 'none' then
            for i, x in ipairs(v:tolist()) do near(x, value[i], 1e-12, 'f1 none') end
          else near(v, value, 1e-12, 'f1 ' .. name) end
        end
      end
      for name, value in pairs(case.top) do
        for _, m in ipairs(three_ways(function() return metric.TopK { k = tonumber(name:sub(2)) } end, update, n)) do near(m:value(), value) end
      end
      for _, m in ipairs(three_ways(function() return metric.ConfusionMatrix { classes = c } end, update, n)) do
        assert.are.same(case.matrix, m:value():tolist())
      end
      for _, m in ipairs(three_ways(metric.Perplexity, update, n)) do near(m:value(), case.perplexity, 1e-6) end
    end)
  end

  it('take labels left out, and say what does not fit', function()
    local m = metric.ConfusionMatrix { classes = 2, ignore_index = -1 }
    m:update(int { 1, 2, 2 }, int { 1, -1, 1 })
    assert.are.same({ { 1, 1 }, { 0, 0 } }, m:value():tolist())
    assert.has_error(function() metric.ConfusionMatrix {} end)
    assert.has_error(function() metric.F1 { classes = 3, average = 'binary' } end)
    assert.has_error(function() metric.F1 { classes = 3, average = 'mean' } end)
    assert.has_error(function() m:update(int { 1, 3 }, int { 1, 1 }) end)
    assert.has_error(function() m:update(int { 1 }, int { 0 }) end)
    assert.has_error(function() m:update(amp.zeros(2, 3), int { 1, 2 }) end)
    assert.has_error(function() m:update(int { 1 }, amp.tensor { 1.5 }) end)
    assert.has_error(function() m:update(3, 4) end)
    assert.has_error(function() m:merge { total = 1, count = 1 } end)
    assert.has_error(function() m:merge(metric.ConfusionMatrix({ classes = 3 }):state()) end)
    assert.has_error(function() metric.TopK { k = 0 } end)
    assert.has_error(function() metric.TopK():update(amp.zeros(2, 3), int { 1, 4 }) end)
    assert.has_error(function() metric.TopK():update(amp.zeros(2, 3), amp.tensor { 1, 1.5 }) end)
    assert.has_error(function() metric.Perplexity():update(amp.zeros(2, 3), int { 0, 1 }) end)
    assert.has_error(function() metric.Perplexity():update(amp.zeros(2, 3), amp.tensor { 1, 1.5 }) end)
    assert.are.same({ { 1, 1 }, { 0, 0 } }, m:value():tolist()) -- nothing that was refused counts
  end)

  it('are nan before the first update', function()
    for _, m in ipairs { metric.TopK(), metric.Perplexity(), metric.Mean(), metric.F1 { classes = 2 }, metric.AUC(), metric.MeanAveragePrecision() } do
      assert.is_true(m:value() ~= m:value())
    end
  end)
end)

describe('the area under the ROC curve', function()
  for k, case in ipairs(fixture.auc) do
    it('is that of scikit-learn, ties included, case ' .. k, function()
      local scores, labels = amp.tensor(case.scores, { dtype = 'float64' }), int(case.labels)
      local function update(m, first, last) m:update(cut(scores, first, last), cut(labels, first, last)) end
      for _, m in ipairs(three_ways(metric.AUC, update, #case.labels)) do near(m:value(), case.value) end
      near(metric.AUC():update(scores, labels:bool()):value(), case.value)
      near(metric.AUC():update(scores, labels + 1):value(), case.value) -- classes 1 and 2
      near(metric.AUC():update(amp.stack({ 1 - scores, scores }, 2), labels + 1):value(), case.value)
      near(metric.AUC():update(amp.stack({ 1 - scores, scores }, 2), labels):value(), case.value)
    end)
  end

  it('refuses labels that are neither 0 and 1 nor 1 and 2', function()
    assert.has_error(function() metric.AUC():update(amp.rand(3), int { 0, 1, 2 }) end)
    assert.has_error(function() metric.AUC():update(amp.rand(1), int { 0 }):update(amp.rand(1), int { 2 }) end)
    assert.has_error(function() metric.AUC():update(amp.rand(2), int { 0, 3 }) end)
    assert.has_error(function() metric.AUC():update(amp.rand(2), int { 1 }) end)
    assert.has_error(function() metric.AUC():update(amp.tensor { 0 / 0, 1 }, int { 0, 1 }) end)
    local m = metric.AUC():update(amp.tensor { 0.1, 0.9 }, int { 0, 1 })
    pcall(m.update, m, amp.tensor { 0.5, 0.6 }, int { 1, 7 })
    assert.are.equal(1, m:value())
    assert.are.equal(2, #m:state().scores)
  end)
end)

describe('the mean', function()
  it('weighs by examples', function()
    local m = metric.Mean():update(2, 3):update(amp.tensor { 1, 2, 3 }):update(amp.tensor(5), 2)
    near(m:value(), (6 + 6 + 10) / 8)
    near(metric.Mean():merge(m:state()):merge(m:state()):value(), 22 / 8)
    assert.has_error(function() m:update(amp.tensor { 1, 2 }, 3) end)
    assert.has_error(function() m:update('1') end)
    assert.has_error(function() m:update(1, -1) end)
  end)
end)

describe('mean average precision', function()
  local function tables(pictures)
    local found, truth = {}, {}
    for i, p in ipairs(pictures) do
      local b, s, l = {}, {}, {}
      for k, d in ipairs(p.found) do b[k], l[k], s[k] = { d[1], d[2], d[3], d[4] }, d[5], d[6] end
      found[i] = { boxes = #b > 0 and amp.tensor(b) or amp.zeros(0, 4), scores = #s > 0 and amp.tensor(s, { dtype = 'float64' }) or amp.zeros(0),
        labels = #l > 0 and int(l) or amp.zeros({ 0 }, { dtype = 'int64' }) }
      b, l = {}, {}
      for k, d in ipairs(p.truth) do b[k], l[k] = { d[1], d[2], d[3], d[4] }, d[5] end
      truth[i] = { boxes = #b > 0 and amp.tensor(b) or amp.zeros(0, 4), labels = #l > 0 and int(l) or amp.zeros({ 0 }, { dtype = 'int64' }) }
    end
    return found, truth
  end

  for k, case in ipairs(fixture.detection) do
    it('is that of pycocotools and of the VOC rules, case ' .. k, function()
      local found, truth = tables(case.pictures)
      local function update(m, first, last)
        local a, b = {}, {}
        for i = first, last do a[#a + 1], b[#b + 1] = found[i], truth[i] end
        m:update(a, b)
      end
      for _, style in ipairs { 'coco', 'coco50', 'voc', 'voc07' } do
        local function make() return metric.MeanAveragePrecision { style = style:gsub('50', ''), iou = style == 'coco50' and 0.5 or nil } end
        for way, m in ipairs(three_ways(make, update, #found)) do
          if way ~= 4 then near(m:value(), case[style], 1e-12, style .. ', way ' .. way) end
        end
      end
    end)
  end

  it('says what is wrong with what it is given, and keeps nothing of it', function()
    local m = metric.MeanAveragePrecision { style = 'coco' }
    local good = { boxes = amp.tensor { { 0, 0, 2, 2 } }, labels = int { 1 }, scores = amp.tensor { 0.5 } }
    local function bad(a, b) assert.has_error(function() m:update(a, b) end) end
    bad(good, good)
    bad({ good }, {})
    bad({ good }, 3)
    bad({ { boxes = good.boxes, labels = good.labels } }, { good })
    bad({ { boxes = good.boxes, labels = int { 1, 2 }, scores = good.scores } }, { good })
    bad({ { boxes = amp.zeros(1, 5), labels = good.labels, scores = good.scores } }, { good })
    bad({ { boxes = amp.tensor { { 0, 0, 0 / 0, 1 } }, labels = good.labels, scores = good.scores } }, { good })
    bad({ { boxes = good.boxes, labels = good.labels, scores = amp.tensor { 0 / 0 } } }, { good })
    bad({ good }, { { boxes = amp.tensor { { 2, 0, 0, 1 } }, labels = good.labels } }) -- swapped
    bad({ { boxes = good.boxes, labels = int { 0 }, scores = good.scores } }, { good })
    bad({ good, good }, { good, { boxes = good.boxes } })
    assert.has_error(function() metric.MeanAveragePrecision { style = 'VOC' } end)
    assert.is_true(m:value() ~= m:value())
    assert.are.equal(1, m:update({ good }, { good }):value())
    assert.are.equal(0, metric.MeanAveragePrecision():update({ { boxes = {}, scores = {}, labels = {} } }, { good }):value())
  end)
end)

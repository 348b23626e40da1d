--- MeanAveragePrecision of detections, as VOC 2007 (11 points), VOC (area under the curve) and COCO (101 points, IoU 0.5 to 0.95) have it.
local amp = require 'amp'
local base = require 'amp.metric.base'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local C, new = base.class('MeanAveragePrecision', { 'style', 'iou', 'max_detections' }, { style = 'voc' }, function(op, o)
  if o.style ~= 'voc07' and o.style ~= 'voc' and o.style ~= 'coco' then
    raise(op, "style must be 'voc07', 'voc' or 'coco', got %s", util.show(o.style))
  end
  if o.iou ~= nil then options.number(op, 'iou', o.iou, 0, 1) end
  o.max_detections = options.integer(op, 'max_detections', o.max_detections or (o.style == 'coco' and 100 or 2 ^ 40), 1)
end)

function C:start() return { images = {} } end -- luacheck: no self

function C:add_state(state)
  for _, image in ipairs(state.images) do self.held.images[#self.held.images + 1] = image end
end

local function column(op, where, key, v, n)
  if v == nil then raise(op, "%s has no '%s'", where, key) end
  if amp.is_tensor(v) then v = v:detach():reshape(-1):double():tolist() end
  if type(v) ~= 'table' then raise(op, '%s.%s: a tensor or a list expected, got %s', where, key, util.kind(v)) end
  if n and #v ~= n then raise(op, '%s has %d boxes, but %d %s', where, n, #v, key) end
  return v
end

local function read_boxes(op, where, v)
  if amp.is_tensor(v) then
    if v:numel() == 0 then return {} end
    if v:dim() ~= 2 or v:size(2) ~= 4 then raise(op, '%s.boxes: n x 4 corners expected, got shape %s', where, tostring(v:size())) end
    v = v:detach():double():tolist()
  end
  if type(v) ~= 'table' then raise(op, '%s.boxes: n x 4 corners expected, got %s', where, util.kind(v)) end
  for i, b in ipairs(v) do
    for k = 1, 4 do
      if type(b[k]) ~= 'number' or b[k] ~= b[k] then raise(op, '%s.boxes: number %d of box %d is %s', where, k, i, util.show(b[k])) end
    end
  end
  return v
end

-- A truth must be a box; what a detector gives may be none, and finds nothing then.
local function check_entry(op, where, i, b, label, scored)
  if type(label) ~= 'number' or label < 1 or label % 1 ~= 0 then
    raise(op, '%s.labels: number %d is %s, but labels are whole numbers from 1%s', where, i, tostring(label),
      label == 0 and '; add 1 to those that count from 0' or '')
  end
  if not scored and (b[3] < b[1] or b[4] < b[2]) then
    raise(op, '%s.boxes: box %d has its corners swapped: %g, %g, %g, %g; {x1, y1, x2, y2} expected', where, i, b[1], b[2], b[3], b[4])
  end
end

-- Entries whose label is not padding (-1).
local function read(op, where, item, scored)
  if type(item) ~= 'table' then raise(op, '%s: a table {boxes, %slabels} expected, got %s', where, scored and 'scores, ' or '', util.kind(item)) end
  local boxes = read_boxes(op, where, item.boxes)
  local labels = column(op, where, 'labels', item.labels, #boxes)
  local scores = scored and column(op, where, 'scores', item.scores, #boxes)
  local difficult = not scored and item.difficult ~= nil and column(op, where, 'difficult', item.difficult, #boxes)
  local out = {}
  for i, b in ipairs(boxes) do
    if labels[i] >= 0 then -- -1 is padding
      check_entry(op, where, i, b, labels[i], scored)
      if scores and scores[i] ~= scores[i] then raise(op, '%s.scores: number %d is nan', where, i) end
      local hard = difficult and difficult[i] ~= 0 and difficult[i] ~= false or false
      out[#out + 1] = { b[1], b[2], b[3], b[4], label = labels[i], score = scores and scores[i], difficult = hard }
    end
  end
  return out
end

--- Add pictures.
-- @tparam table predictions a list of {boxes = n x 4 corners, scores = n, labels = n}, one a picture; entries labelled -1 are padding
-- @tparam table truths a list of {boxes, labels}, as long; `difficult`, if any, marks boxes that count neither way
function C:update(predictions, truths)
  local op = self.op
  if type(predictions) ~= 'table' or type(truths) ~= 'table' or predictions.boxes ~= nil or truths.boxes ~= nil then
    raise(op, 'two lists of tables expected, one table a picture: update({{boxes, scores, labels}, …}, {{boxes, labels}, …})')
  end
  if #predictions ~= #truths then raise(op, 'predictions of %d pictures, truths of %d', #predictions, #truths) end
  local new_images = {}
  for i = 1, #truths do
    new_images[i] = {
      found = read(op, ('predictions[%d]'):format(i), predictions[i], true), truth = read(op, ('truths[%d]'):format(i), truths[i], false),
    }
  end
  for _, image in ipairs(new_images) do self.held.images[#self.held.images + 1] = image end
  return self
end

local function overlap(a, b)
  local w, h = math.min(a[3], b[3]) - math.max(a[1], b[1]), math.min(a[4], b[4]) - math.max(a[2], b[2])
  if w <= 0 or h <= 0 then return 0 end
  local both = w * h
  return both / ((a[3] - a[1]) * (a[4] - a[2]) + (b[3] - b[1]) * (b[4] - b[2]) - both)
end

-- Of a list, by falling score; equal ones keep their order.
local function sorted(list)
  for i, d in ipairs(list) do d.place = i end
  table.sort(list, function(a, b)
    if a.score ~= b.score then return a.score > b.score end
    return a.place < b.place
  end)
  return list
end

-- Marks of one picture's detections of a class: true, false, or nil for those that count neither way.
local function match_voc(found, truth, threshold)
  local taken = {}
  for _, d in ipairs(found) do
    local best, at = -1, nil
    for j, g in ipairs(truth) do
      local v = overlap(d, g)
      if v > best then best, at = v, j end
    end
    d.hit = false
    if at and best >= threshold then
      if truth[at].difficult then d.hit = nil
      elseif not taken[at] then d.hit, taken[at] = true, true end
    end
  end
end

local function match_coco(found, truth, threshold)
  local taken = {}
  for _, d in ipairs(found) do
    local best, at = math.min(threshold, 1 - 1e-10), nil
    for pass = 1, 2 do -- boxes that count first
      for j, g in ipairs(truth) do
        if (g.difficult and 2 or 1) == pass and not taken[j] then
          local v = overlap(d, g)
          if v >= best then best, at = v, j end
        end
      end
      if at then break end
    end
    d.hit = false
    if at then
      taken[at] = true
      d.hit = not truth[at].difficult or nil
    end
  end
end

-- Recall and precision at each detection, best first; the precision made falling from the right.
local function curve(list, positives)
  local recall, precision, hits, n = {}, {}, 0, 0
  for _, d in ipairs(sorted(list)) do
    if d.hit ~= nil then
      n = n + 1
      if d.hit then hits = hits + 1 end
      recall[n], precision[n] = hits / positives, hits / n
    end
  end
  for i = n - 1, 1, -1 do precision[i] = math.max(precision[i], precision[i + 1]) end
  return recall, precision
end

-- The points are multiples of a rounded step, as in pycocotools and the VOC kit: 3 of 10 is less than 3 * 0.1 in both.
local function at_points(recall, precision, points)
  local sum, i, step = 0, 1, 1 / (points - 1)
  for k = 0, points - 1 do
    while recall[i] and recall[i] < k * step do i = i + 1 end
    sum = sum + (precision[i] or 0)
  end
  return sum / points
end

local function area(recall, precision)
  local sum = 0
  for i = 1, #recall do sum = sum + (recall[i] - (recall[i - 1] or 0)) * precision[i] end
  return sum
end

-- Detections and truths of a class by picture, and how many truths count.
local function of_class(self, class)
  local pictures, positives = {}, 0
  for i, image in ipairs(self.held.images) do
    local found, truth = {}, {}
    for _, d in ipairs(image.found) do
      if d.label == class then found[#found + 1] = { d[1], d[2], d[3], d[4], score = d.score } end
    end
    for _, g in ipairs(image.truth) do
      if g.label == class then
        truth[#truth + 1] = g
        if not g.difficult then positives = positives + 1 end
      end
    end
    sorted(found)
    for k = #found, self.max_detections + 1, -1 do found[k] = nil end
    pictures[i] = { found = found, truth = truth }
  end
  return pictures, positives
end

local COCO_STEP = (0.95 - 0.5) / 9 -- as rounded in pycocotools' list from 0.5 to 0.95

local function average(self, pictures, positives, threshold)
  local all = {}
  for _, p in ipairs(pictures) do
    (self.style == 'coco' and match_coco or match_voc)(p.found, p.truth, threshold)
    for _, d in ipairs(p.found) do all[#all + 1] = d end
  end
  local recall, precision = curve(all, positives)
  if self.style == 'voc' then return area(recall, precision) end
  return at_points(recall, precision, self.style == 'coco' and 101 or 11)
end

--- Average precision of each class that has boxes: class -> number.
function C:per_class()
  local seen, out = {}, {}
  for _, image in ipairs(self.held.images) do
    for _, g in ipairs(image.truth) do seen[g.label] = true end
  end
  for class in pairs(seen) do
    local pictures, positives = of_class(self, class)
    if positives > 0 then
      local sum, n = 0, 0
      for k = 0, (self.style == 'coco' and not self.iou) and 9 or 0 do
        local threshold = self.iou or 0.5 + k * COCO_STEP
        sum, n = sum + average(self, pictures, positives, threshold), n + 1
      end
      out[class] = sum / n
    end
  end
  return out
end

--- The mean over classes; NaN where no class has boxes.
function C:value()
  local sum, n = 0, 0
  for _, v in pairs(self:per_class()) do sum, n = sum + v, n + 1 end
  return n == 0 and 0 / 0 or sum / n
end

require('amp.core.class').guard(C, 'metric.MeanAveragePrecision', 'metric')

return { MeanAveragePrecision = new }

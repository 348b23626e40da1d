--- Places for the boxes of a directed graph without circles, in layers from top to bottom.
--
-- A box stands one layer below the lowest of those it comes from. An edge over several layers passes through a point in each.
-- Within a layer boxes are ordered by the mean place of their neighbours, in a few sweeps down and up; then they are moved as
-- near to their neighbours as the order and the gaps let them (least squares: pool adjacent violators).
local M = {}

local SWEEPS, PULLS = 12, 24

-- Layers of boxes, which come before what they lead to. A box that nothing leads to stands right above the first it leads to.
local function assign(count, edges)
  local layer, into, from = {}, {}, {}
  for i = 1, count do layer[i], into[i], from[i] = 1, {}, {} end
  for _, e in ipairs(edges) do
    into[e[2]][#into[e[2]] + 1] = e[1]
    from[e[1]][#from[e[1]] + 1] = e[2]
  end
  for i = 1, count do
    for _, p in ipairs(into[i]) do layer[i] = math.max(layer[i], layer[p] + 1) end
  end
  for i = count, 1, -1 do
    if #into[i] == 0 and #from[i] > 0 then
      local least = math.huge
      for _, q in ipairs(from[i]) do least = math.min(least, layer[q]) end
      layer[i] = least - 1
    end
  end
  return layer
end

-- Boxes and the points of long edges as one list of items in rows.
local function items_of(boxes, edges, layer)
  local items, rows = {}, {}
  local function add(item)
    items[#items + 1] = item
    rows[item.layer] = rows[item.layer] or {}
    table.insert(rows[item.layer], item)
    return item
  end
  for i, box in ipairs(boxes) do add {layer = layer[i], width = box.width, height = box.height, up = {}, down = {}, weight = 1} end
  for _, e in ipairs(edges) do
    local at = items[e[1]]
    e.through = {at}
    for l = layer[e[1]] + 1, layer[e[2]] do
      local next_item = l == layer[e[2]] and items[e[2]] or add {layer = l, width = 6, height = 0, up = {}, down = {}, weight = 4, point = true}
      at.down[#at.down + 1] = next_item
      next_item.up[#next_item.up + 1] = at
      e.through[#e.through + 1] = next_item
      at = next_item
    end
  end
  return items, rows
end

local function mean(list, field)
  local sum, weight = 0, 0
  for _, item in ipairs(list) do sum, weight = sum + item[field] * item.weight, weight + item.weight end
  return weight > 0 and sum / weight or nil
end

local function number(row)
  for k, item in ipairs(row) do item.order = k end
end

local function sort(rows)
  for _, row in ipairs(rows) do number(row) end
  for sweep = 1, SWEEPS do
    local down = sweep % 2 == 1
    for k = 1, #rows do
      local row = rows[down and k or #rows + 1 - k]
      for _, item in ipairs(row) do item.key = mean(down and item.up or item.down, 'order') or item.order end
      table.sort(row, function(a, b)
        if a.key ~= b.key then return a.key < b.key end
        return a.order < b.order
      end)
      number(row)
    end
  end
end

-- Places nearest to the wanted ones that keep order and gaps.
local function settle(row, gap)
  local blocks, offset = {}, 0
  for k, item in ipairs(row) do
    if k > 1 then offset = offset + (row[k - 1].width + item.width) / 2 + gap end
    item.offset = offset
    local block = {sum = (item.wanted - offset) * item.weight, weight = item.weight, count = 1}
    while #blocks > 0 and blocks[#blocks].sum / blocks[#blocks].weight > block.sum / block.weight do
      local before = table.remove(blocks)
      block = {sum = block.sum + before.sum, weight = block.weight + before.weight, count = block.count + before.count}
    end
    blocks[#blocks + 1] = block
  end
  local k = 0
  for _, block in ipairs(blocks) do
    for _ = 1, block.count do
      k = k + 1
      row[k].x = block.sum / block.weight + row[k].offset
    end
  end
end

local function pull(rows, gap)
  for _, row in ipairs(rows) do
    local at = 0
    for _, item in ipairs(row) do
      item.x = at + item.width / 2
      at = at + item.width + gap
    end
    for _, item in ipairs(row) do item.x = item.x - at / 2 end
  end
  for turn = 1, PULLS do
    local down = turn % 2 == 1
    for k = 1, #rows do
      local row = rows[down and k or #rows + 1 - k]
      for _, item in ipairs(row) do item.wanted = mean(down and item.up or item.down, 'x') or item.x end
      settle(row, gap)
    end
  end
end

--- Lay out.
-- @tparam table boxes list of {width, height}; x and y of their middles are set
-- @tparam table edges list of {from, to}, numbers of boxes, from < to; points, a list x1, y1, x2, y2, ..., is set
-- @tparam number gap between boxes of a layer
-- @tparam number between layers
-- @treturn number width
-- @treturn number height
function M.place(boxes, edges, gap, between)
  local layer = assign(#boxes, edges)
  local items, rows = items_of(boxes, edges, layer)
  for l = 1, #rows do rows[l] = rows[l] or {} end
  sort(rows)
  pull(rows, gap)
  local left, right, y = math.huge, -math.huge, 0
  for _, row in ipairs(rows) do
    local tallest = 0
    for _, item in ipairs(row) do
      left, right = math.min(left, item.x - item.width / 2), math.max(right, item.x + item.width / 2)
      tallest = math.max(tallest, item.height)
    end
    for _, item in ipairs(row) do item.y, item.half = y + tallest / 2, tallest / 2 end
    y = y + tallest + between
  end
  if #boxes == 0 then return 0, 0 end
  for _, item in ipairs(items) do item.x = item.x - left end
  for i, box in ipairs(boxes) do box.x, box.y = items[i].x, items[i].y end
  for _, e in ipairs(edges) do
    e.points = {}
    for k, item in ipairs(e.through) do
      local half = item.point and item.half or item.height / 2 -- a long edge passes a layer upright, beside its boxes
      local function add(at) e.points[#e.points + 1], e.points[#e.points + 2] = item.x, at end
      if k > 1 then add(item.y - half) end
      if k < #e.through then add(item.y + half) end
    end
    e.through = nil
  end
  return right - left, y - between
end

return M

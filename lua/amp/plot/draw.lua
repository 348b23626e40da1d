--- A figure as pixels: frame, grid, ticks, series, legend.
local new_raster = require 'amp.plot.raster'

local INK, SOFT, GRID = {40, 40, 40}, {130, 130, 130}, {228, 228, 228}
local SMALL, LARGE = 8, 10 -- heights of capitals

-- Runs of points that are joined: lists x1, y1, x2, y2, ... in pixels.
local function runs(s, px, py)
  local list, run = {}, nil
  for i = 1, #s.ys do
    local x, y = px(s.xs[i]), py(s.ys[i])
    if x and y then
      if not run then
        run = {}
        list[#list + 1] = run
      end
      run[#run + 1], run[#run + 2] = x, y
    else
      run = nil
    end
  end
  return list
end

local kinds = {}

function kinds.line(canvas, s, px, py, clip)
  local list = runs(s, px, py)
  canvas:path(list, s.width, s.color, clip, s.faint and 0.25 or 1)
  for _, run in ipairs(list) do
    if s.marker or #run == 2 then -- a value between gaps would not be seen
      for i = 1, #run, 2 do canvas:disc(run[i], run[i + 1], s.width / 2 + 1.5, s.color, clip) end
    end
  end
end

function kinds.points(canvas, s, px, py, clip)
  local alpha = math.max(0.25, math.min(0.8, 200 / math.max(#s.xs, 1)))
  for i = 1, #s.xs do
    local x, y = px(s.xs[i]), py(s.ys[i])
    if x and y then canvas:disc(x, y, s.size, s.color, clip, alpha) end
  end
end

function kinds.bars(canvas, s, px, py, clip)
  local bottom = py(0) or clip[4]
  for i, c in ipairs(s.counts) do
    local x1, x2, y = px(s.edges[i]), px(s.edges[i + 1]), c > 0 and py(c)
    if x1 and x2 and y then
      local gap = x2 - x1 > 4 and 0.5 or 0
      local function inside(v, low, high) return math.max(low, math.min(v, high)) end
      canvas:box(inside(x1 + gap, clip[1], clip[3]), inside(y, clip[2], clip[4]), inside(x2 - gap, clip[1], clip[3]),
        inside(bottom, clip[2], clip[4]), s.color, 0.65)
    end
  end
end

local function legend(canvas, list, right, top)
  local width = 0
  for _, s in ipairs(list) do width = math.max(width, canvas.text_width(s.label, SMALL)) end
  local x, line = right - width - 44, 18
  canvas:box(x, top + 8, right - 8, top + 14 + line * #list, {255, 255, 255}, 0.85)
  for i, s in ipairs(list) do
    local y = top + 20 + (i - 1) * line
    if s.kind == 'line' then canvas:line(x + 6, y, x + 24, y, math.max(s.width, 2), s.color)
    elseif s.kind == 'points' then canvas:disc(x + 15, y, math.min(s.size + 0.5, 5), s.color)
    else canvas:box(x + 8, y - 5, x + 22, y + 5, s.color, 0.65) end
    canvas:text(x + 30, y, s.label, SMALL, INK)
  end
end

--- Draw a figure.
-- @tparam Figure figure
-- @treturn Raster
return function(figure)
  local o = figure.options
  local canvas = new_raster(o.width, o.height)
  local top = o.title and 40.5 or 16.5 -- centres of pixels, so that the frame is sharp
  local bottom = o.height - (o.xlabel and 52.5 or 32.5)
  local yaxis = figure:axis('y', math.max((bottom - top) / 55, 2))
  local widest = 0
  for _, t in ipairs(yaxis.ticks) do widest = math.max(widest, canvas.text_width(t[2], SMALL)) end
  local left, right = math.floor((o.ylabel and 28 or 8) + widest + 10) + 0.5, o.width - 20.5
  local xaxis = figure:axis('x', math.max((right - left) / 90, 2))
  local clip = {left, top, right, bottom}
  local function px(v)
    local p = xaxis.place(v)
    return p and left + p * (right - left)
  end
  local function py(v)
    local p = yaxis.place(v)
    return p and bottom - p * (bottom - top)
  end

  for _, t in ipairs(xaxis.ticks) do
    local x = math.floor(px(t[1])) + 0.5
    if o.grid then canvas:line(x, top, x, bottom, 1, GRID) end
    canvas:line(x, bottom, x, bottom + 4, 1, SOFT)
    canvas:text(x, bottom + 16, t[2], SMALL, INK, 'center')
  end
  for _, t in ipairs(yaxis.ticks) do
    local y = math.floor(py(t[1])) + 0.5
    if o.grid then canvas:line(left, y, right, y, 1, GRID) end
    canvas:line(left - 4, y, left, y, 1, SOFT)
    canvas:text(left - 8, y, t[2], SMALL, INK, 'right')
  end
  local named = {}
  for _, s in ipairs(figure.series) do
    kinds[s.kind](canvas, s, px, py, clip)
    if s.label then named[#named + 1] = s end
  end
  canvas:path({{left, top, right, top, right, bottom, left, bottom, left, top}}, 1, SOFT)
  if o.title then canvas:text((left + right) / 2, 22, o.title, LARGE, INK, 'center') end
  if o.xlabel then canvas:text((left + right) / 2, o.height - 16, o.xlabel, SMALL, INK, 'center') end
  if o.ylabel then canvas:text(14, (top + bottom) / 2, o.ylabel, SMALL, INK, 'center', true) end
  if o.legend and #named > 0 then legend(canvas, named, right, top) end
  return canvas
end

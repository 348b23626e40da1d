--- A picture of a graph: amp.plot.graph(g):save 'net.png'.
--
-- Boxes in layers from top to bottom (plot/layers.lua): inputs and outputs, and a box a node with its op and name, attributes,
-- dtype and shape, and the parameters it takes. Casts are orange. Frames stand around the nodes of a module, where no other node
-- comes between them.
local dot = require 'amp.graph.dot'
local font = require 'amp.plot.font'
local layers = require 'amp.plot.layers'
local look = require 'amp.graph.look'
local new_raster = require 'amp.plot.raster'
local options = require 'amp.options'
local show = require 'amp.graph.show'
local util = require 'amp.util'
local raise = require('amp.error').throw

local OP = 'plot.graph'
local SIZE, LINE, PAD, MARGIN, GAP, BETWEEN = 7, 15, 8, 20, 24, 30
local MOST = 16384 -- pixels
local INK, SOFT, EDGE, FRAME = {30, 30, 30}, {110, 110, 110}, {120, 120, 120}, {170, 170, 190}
local NAME, ROOM = 12, 5 -- of a frame: its name's line, what is left around
local LONGEST = 46 -- characters of a line

local FILL = {input = {207, 226, 243}, output = {217, 234, 211}, node = {255, 255, 255}, cast = {246, 178, 107}, joined = {217, 210, 233},
  chain = {255, 242, 204}, kept = {228, 228, 228}}
local MEANING = {{'input', 'input'}, {'output', 'output'}, {'cast', 'cast'}, {'joined', 'joined op'}, {'chain', 'chain'},
  {'kept', 'kept between runs'}}

local Picture = {}
Picture.__index = Picture

local function text_width(text, size) return font.width(text) * size / font.CAP end

local function cut(text) return #text > LONGEST and text:sub(1, LONGEST - 3) .. '...' or text end

-- -- Boxes ------------------------------------------------------------------------------------

local function box(kind, lines)
  local b = {kind = kind, lines = {}, width = 0}
  for i, line in ipairs(lines) do
    b.lines[i] = cut(line)
    b.width = math.max(b.width, text_width(b.lines[i], SIZE))
  end
  b.width, b.height = b.width + 2 * PAD, #lines * LINE + PAD
  return b
end

local function of_value(kind, v) return box(kind, {kind == 'input' and v.name or 'output', v.dtype .. ' ' .. v.shape}) end

local function of_node(node, parameters)
  local lines = dot.label(node)
  local taken = {}
  for _, v in ipairs(node.inputs) do
    if v and (v.kind == 'parameter' or v.kind == 'buffer' or v.kind == 'constant') and not v.text then taken[#taken + 1] = v.name end
  end
  local b = box(dot.style_of(node), lines)
  if parameters and #taken > 0 then
    local more = box('node', {table.concat(taken, ', ')})
    b.lines[#b.lines + 1], b.soft = more.lines[1], true
    b.width, b.height = math.max(b.width, more.width), b.height + LINE
  end
  return b
end

local function boxes_of(seen, parameters)
  local boxes, edges, from, drawn = {}, {}, {}, {}
  for _, v in ipairs(seen.inputs) do
    boxes[#boxes + 1] = of_value('input', v)
    from[v] = #boxes
  end
  local function edge(a, b)
    local key = a .. ' ' .. b
    if not drawn[key] then edges[#edges + 1] = {a, b} end
    drawn[key] = true
  end
  for _, node in ipairs(seen.nodes) do
    boxes[#boxes + 1] = of_node(node, parameters)
    local at = #boxes
    boxes[at].path = dot.path_of(node)
    for _, v in ipairs(node.inputs) do
      if v and from[v] then edge(from[v], at) end
    end
    for _, v in ipairs(node.outputs) do from[v] = at end
  end
  for _, v in ipairs(seen.outputs) do
    boxes[#boxes + 1] = of_value('output', v)
    if from[v] then edge(from[v], #boxes) end
  end
  return boxes, edges
end

-- -- Frames -------------------------------------------------------------------------------------

-- Modules as a tree, each with its boxes.
local function modules_of(boxes)
  local root = {order = {}, boxes = {}, children = {}}
  for _, b in ipairs(boxes) do
    local at = root
    for _, name in ipairs(b.path or {}) do
      if not at.children[name] then
        at.children[name] = {order = {}, boxes = {}, children = {}, name = at.name and at.name .. '.' .. name or name}
        table.insert(at.order, at.children[name])
      end
      at = at.children[name]
      at.boxes[b] = true
    end
  end
  return root
end

-- The frames of a module and what is in it, inner ones first: {left, top, right, bottom, name}. Gives the module's own, if it has one.
local function frame(module, boxes, out)
  local left, top, right, bottom, count = math.huge, math.huge, -math.huge, -math.huge, 0
  local function around(l, t, r, b) left, top, right, bottom = math.min(left, l), math.min(top, t), math.max(right, r), math.max(bottom, b) end
  for b in pairs(module.boxes) do
    around(b.x - b.width / 2, b.y - b.height / 2, b.x + b.width / 2, b.y + b.height / 2)
    count = count + 1
  end
  for _, child in ipairs(module.order) do
    local inner = frame(child, boxes, out)
    if inner then around(inner[1], inner[2], inner[3], inner[4]) end
  end
  if not module.name or count < 2 then return nil end
  left, top, right, bottom = left - ROOM, top - NAME, math.max(right + ROOM, left + text_width(module.name, SIZE - 1) + 2 * ROOM), bottom + ROOM
  for _, b in ipairs(boxes) do
    if not module.boxes[b] and b.x + b.width / 2 > left and b.x - b.width / 2 < right and b.y + b.height / 2 > top and b.y - b.height / 2 < bottom then
      return nil
    end
  end
  local made = {left, top, right, bottom, module.name}
  out[#out + 1] = made
  return made
end

local function draw_frame(canvas, f, dx, dy)
  local left, top = math.floor(f[1] + dx) + 0.5, math.floor(f[2] + dy) + 0.5
  local right, bottom = math.floor(f[3] + dx) + 0.5, math.floor(f[4] + dy) + 0.5
  canvas:path({{left, top, right, top, right, bottom, left, bottom, left, top}}, 1, FRAME)
  canvas:text(left + ROOM, top + NAME / 2, f[5], SIZE - 1, SOFT)
end

-- -- Drawing ------------------------------------------------------------------------------------

local function draw_box(canvas, b, x, y)
  local left, top = math.floor(x - b.width / 2) + 0.5, math.floor(y - b.height / 2) + 0.5
  local right, bottom = left + math.floor(b.width), top + math.floor(b.height)
  canvas:box(left, top, right, bottom, FILL[b.kind])
  canvas:path({{left, top, right, top, right, bottom, left, bottom, left, top}}, b.kind == 'cast' and 1.6 or 1, b.kind == 'cast' and {180, 95, 6} or SOFT)
  for i, line in ipairs(b.lines) do
    local soft = i > 1 and (i < #b.lines or not b.soft)
    canvas:text(x, top + PAD / 2 + (i - 0.5) * LINE, line, SIZE, i == 1 and INK or soft and SOFT or {56, 98, 160}, 'center')
  end
end

local function draw_edge(canvas, points, dx, dy)
  local line = {}
  for i = 1, #points, 2 do line[i], line[i + 1] = points[i] + dx, points[i + 1] + dy end
  canvas:path({line}, 1.2, EDGE)
  local n = #line
  local x, y, fx, fy = line[n - 1], line[n], line[n - 3], line[n - 2]
  local length = math.sqrt((x - fx) ^ 2 + (y - fy) ^ 2)
  if length < 1 then return end
  local ux, uy = (x - fx) / length, (y - fy) / length
  canvas:path({{x - 7 * ux - 3.5 * uy, y - 7 * uy + 3.5 * ux, x, y, x - 7 * ux + 3.5 * uy, y - 7 * uy - 3.5 * ux}}, 1.4, EDGE)
end

local function legend(canvas, used, x, y)
  for _, m in ipairs(MEANING) do
    if used[m[1]] then
      canvas:box(x, y - 5, x + 12, y + 5, FILL[m[1]])
      canvas:path({{x, y - 5, x + 12, y - 5, x + 12, y + 5, x, y + 5, x, y - 5}}, 1, SOFT)
      canvas:text(x + 17, y, m[2], SIZE, SOFT)
      x = x + 30 + canvas.text_width(m[2], SIZE)
    end
  end
end

local function legend_width(used)
  local width = 0
  for _, m in ipairs(MEANING) do
    if used[m[1]] then width = width + 30 + text_width(m[2], SIZE) end
  end
  return width
end

--- The picture as the bytes of a PNG.
function Picture:png()
  local boxes, edges = boxes_of(self.seen, self.options.parameters)
  local used = {}
  for _, b in ipairs(boxes) do used[b.kind] = true end
  local inner, height = layers.place(boxes, edges, GAP, BETWEEN)
  local title = self.options.title
  local top = title and MARGIN + 24 or MARGIN
  local wide = math.max(inner, legend_width(used), title and text_width(title, SIZE + 3) or 0)
  local w, h = math.ceil(wide + 2 * MARGIN), math.ceil(height + top + MARGIN + 24)
  if w > MOST or h > MOST then
    raise(OP, "%d nodes would make a picture of %d x %d pixels, the most is %d: g:save_dot writes any graph for Graphviz", #self.seen.nodes, w, h, MOST)
  end
  local canvas = new_raster(w, h)
  local dx = (w - inner) / 2
  if title then canvas:text(w / 2, MARGIN, title, SIZE + 3, INK, 'center') end
  local frames = {}
  frame(modules_of(boxes), boxes, frames)
  for _, f in ipairs(frames) do draw_frame(canvas, f, dx, top) end
  for _, e in ipairs(edges) do draw_edge(canvas, e.points, dx, top) end
  for _, b in ipairs(boxes) do draw_box(canvas, b, b.x + dx, b.y + top) end
  legend(canvas, used, MARGIN, h - MARGIN)
  return require('amp.plot.png').encode(canvas.pixels, w, h, 3)
end

--- Write a PNG file, whole or not at all.
-- @tparam string path
-- @return self
function Picture:save(path)
  require('amp.plot.image').save('plot.save', path, function() return self:png() end)
  return self
end

--- The graph as lines of text, as print(g) shows it.
function Picture:text() return self.lines end

function Picture:__tostring() return self.lines end

--- Print the graph in the terminal, as text.
-- @return self
function Picture:show()
  io.stdout:write(self.lines, '\n')
  return self
end

require('amp.core.class').guard(Picture, 'plot.graph', 'picture')

--- Look at a graph as it is now.
return function(g, given)
  if not require('amp.graph').is(g) then raise(OP, 'a graph is expected, got %s: amp.plot.graph(amp.trace(net, x))', util.show(g)) end
  if type(given) == 'string' then raise(OP, "options are a table, got '%s': amp.plot.graph(g):save '%s'", given, given) end
  local o = options.read(OP, given, {'title', 'parameters'}, {parameters = true})
  options.boolean(OP, 'parameters', o.parameters)
  if o.title ~= nil and type(o.title) ~= 'string' then raise(OP, 'title must be a string, got %s', util.show(o.title)) end
  return setmetatable({seen = look.at(g), lines = show.text(g), options = o}, Picture)
end

--- A figure: lines, points and bars over one pair of axes.
--
--   local fig = amp.plot.figure{title = 'loss', xlabel = 'step', yscale = 'log'}
--   fig:line(train, {label = 'train', smooth = 0.9}):line(test, {label = 'test'})
--   fig:save 'loss.png'
--   print(fig)            -- in the terminal
--
-- It keeps numbers only, no tensors. Drawing is in plot/draw.lua (pixels) and plot/terminal.lua (characters).
local options = require 'amp.options'
local next_key = require('amp.core.keys').next
local series = require 'amp.plot.series'
local ticks = require 'amp.plot.ticks'
local util = require 'amp.util'
local raise = require('amp.error').throw

local Figure = {}
Figure.__index = Figure

local OP = 'plot.figure'
local known = {'title', 'xlabel', 'ylabel', 'width', 'height', 'xscale', 'yscale', 'xlim', 'ylim', 'legend', 'grid'}

-- Colours of series, one after the other.
local palette = {{38, 98, 200}, {214, 78, 32}, {34, 146, 84}, {146, 70, 170}, {186, 136, 10}, {18, 148, 168}, {202, 58, 118}, {110, 110, 110}}
local named = {blue = palette[1], red = {200, 40, 40}, orange = palette[2], green = palette[3], purple = palette[4], yellow = palette[5],
  teal = palette[6], pink = palette[7], gray = palette[8], black = {0, 0, 0}}

-- -- Options --------------------------------------------------------------------------------

local function text(op, name, v)
  if v ~= nil and type(v) ~= 'string' then raise(op, '%s must be a string, got %s', name, util.show(v)) end
end

local function limits(op, name, v, logarithmic)
  if v == nil then return end
  local ordered = type(v) == 'table' and type(v[1]) == 'number' and type(v[2]) == 'number' and v[1] < v[2]
  if not ordered or not series.finite(v[2] - v[1]) then
    raise(op, '%s must be {low, high}, low being less, got %s', name,
      type(v) == 'table' and ('{%s, %s}'):format(tostring(v[1]), tostring(v[2])) or util.show(v))
  end
  if logarithmic and v[1] <= 0 then raise(op, '%s of a logarithmic axis must be above 0, got %g', name, v[1]) end
end

local function color_of(op, v, n)
  if v == nil then return palette[(n - 1) % #palette + 1] end
  if type(v) == 'string' then
    local r, g, b = v:match '^#(%x%x)(%x%x)(%x%x)$'
    if r then return {tonumber(r, 16), tonumber(g, 16), tonumber(b, 16)} end
    return named[v] or raise(op, "no colour '%s'%s (names: %s; others as '#ff8000')", v, util.hint(v, util.keys(named)), table.concat(util.keys(named), ', '))
  end
  if type(v) == 'table' and #v == 3 then
    for i = 1, 3 do options.number(op, 'a part of color', v[i], 0, 255) end
    return {v[1], v[2], v[3]}
  end
  raise(op, "color must be a name, '#rrggbb' or {red, green, blue}, got %s", util.show(v))
end

--- Make a figure.
-- @tparam ?table given title, xlabel, ylabel, width (800 pixels), height (450), xscale and yscale ('linear' or 'log'),
-- xlim and ylim ({low, high}; found from the values), legend (true), grid (true)
local function new(given, op)
  op = op or OP
  local o = options.read(op, given, known, {width = 800, height = 450, xscale = 'linear', yscale = 'linear', legend = true, grid = true})
  for _, k in ipairs {'title', 'xlabel', 'ylabel'} do text(op, k, o[k]) end
  for _, k in ipairs {'width', 'height'} do
    options.integer(op, k, o[k], 64)
    if o[k] > 16384 then raise(op, '%s must be 16384 at most, got %d', k, o[k]) end
  end
  for _, k in ipairs {'xscale', 'yscale'} do
    if o[k] ~= 'linear' and o[k] ~= 'log' then raise(op, "%s must be 'linear' or 'log', got %s", k, util.show(o[k])) end
  end
  limits(op, 'xlim', o.xlim, o.xscale == 'log')
  limits(op, 'ylim', o.ylim, o.yscale == 'log')
  for _, k in ipairs {'legend', 'grid'} do options.boolean(op, k, o[k]) end
  return setmetatable({options = o, series = {}}, Figure)
end

-- -- Series -----------------------------------------------------------------------------------

-- Sort out f([x,] y, [options]).
local function arguments(self, op, names, defaults, need_x, ...)
  local n, given = select('#', ...), nil
  local args = {...}
  local last = args[n]
  if n > 1 and type(last) == 'table' and last[1] == nil and (next_key(last) ~= nil or n > 2) and getmetatable(last) == nil then
    given, n = last, n - 1
  end
  local o = options.read(op, given, names, defaults)
  text(op, 'label', o.label)
  local number = 1
  for _, s in ipairs(self.series) do number = number + (s.faint and 0 or 1) end
  o.color = color_of(op, o.color, number)
  if need_x and n < 2 then raise(op, 'x and y expected, got %d argument%s', n, n == 1 and '' or 's') end
  if n < 1 then raise(op, 'values expected, got none') end
  if n > 2 then raise(op, 'x, y and options expected, got %d arguments', n) end
  if n == 1 then return o, nil, args[1] end
  return o, args[1], args[2]
end

--- Add a line.
-- @param x tensor or list; left out: 1, 2, 3, ...
-- @param y tensor or list of numbers (or of tensors of one element); NaN and infinities are gaps
-- @tparam ?table options label, color (a name, '#rrggbb' or {r, g, b}), width (2 pixels), smooth (0: weight of an exponential
-- moving average, drawn over the pale line of the values), marker (false: dots at the values)
-- @return self
function Figure:line(...)
  local op = 'plot.line'
  local o, x, y = arguments(self, op, {'label', 'color', 'width', 'smooth', 'marker'}, {width = 2, smooth = 0, marker = false}, false, ...)
  options.number(op, 'width', o.width, 0.1, 100)
  options.number(op, 'smooth', o.smooth, 0)
  if o.smooth >= 1 then raise(op, 'smooth must be below 1, got %g', o.smooth) end
  options.boolean(op, 'marker', o.marker)
  local xs, ys = series.line(op, x, y)
  local list = self.series
  local s = {kind = 'line', xs = xs, ys = ys, label = o.label, color = o.color, width = o.width, marker = o.marker}
  if o.smooth > 0 then
    list[#list + 1] = {kind = 'line', xs = xs, ys = ys, color = o.color, width = o.width, faint = true}
    s.ys = series.smooth(ys, o.smooth)
  end
  list[#list + 1] = s
  return self
end

--- Add points.
-- @param x tensor or list
-- @param y tensor or list
-- @tparam ?table options label, color, size (3 pixels)
-- @return self
function Figure:scatter(...)
  local op = 'plot.scatter'
  local o, x, y = arguments(self, op, {'label', 'color', 'size'}, {size = 3}, true, ...)
  options.number(op, 'size', o.size, 0.1, 100)
  local xs, ys, k = series.points(op, x, y)
  if k > 1 then o.label = (o.label and o.label .. ', ' or '') .. ('1 of %d points'):format(k) end
  self.series[#self.series + 1] = {kind = 'points', xs = xs, ys = ys, label = o.label, color = o.color, size = o.size}
  return self
end

--- Add a histogram. It is counted where the values are: only the counts are copied from a device.
-- @param values tensor or list
-- @tparam ?table options label, color, bins (30), range ({low, high}; that of the values)
-- @return self
function Figure:histogram(...)
  local op = 'plot.histogram'
  local o, x, v = arguments(self, op, {'label', 'color', 'bins', 'range'}, {bins = 30}, false, ...)
  if x ~= nil then raise(op, 'values and options expected, got two sets of values') end
  options.integer(op, 'bins', o.bins, 1)
  limits(op, 'range', o.range)
  local range = o.range or {}
  local edges, counts, bad = series.histogram(op, v, o.bins, range[1], range[2])
  if bad > 0 then o.label = (o.label and o.label .. ', ' or '') .. ('%d not finite'):format(bad) end
  self.series[#self.series + 1] = {kind = 'bars', edges = edges, counts = counts, label = o.label, color = o.color}
  return self
end

-- -- Axes ----------------------------------------------------------------------------------------

-- Smallest and largest of what can be shown in one direction.
local function extent(self, axis, logarithmic)
  local low, high = math.huge, -math.huge
  local function see(v)
    if series.finite(v) and not (logarithmic and v <= 0) then low, high = math.min(low, v), math.max(high, v) end
  end
  for _, s in ipairs(self.series) do
    if s.kind == 'bars' then
      if axis == 'x' then
        see(s.edges[1])
        see(s.edges[#s.edges])
      else
        if not logarithmic then see(0) end
        for _, c in ipairs(s.counts) do see(c) end
      end
    else
      for _, v in ipairs(axis == 'x' and s.xs or s.ys) do see(v) end
    end
  end
  if low > high then return logarithmic and 1 or 0, logarithmic and 10 or 1, true end
  return low, high
end

--- An axis: limits, ticks, and a function from a value to its place between 0 and 1 (nil where it has none).
-- @tparam string name 'x' or 'y'
-- @tparam number count about how many ticks
function Figure:axis(name, count)
  local o = self.options
  local logarithmic, given = o[name .. 'scale'] == 'log', o[name .. 'lim']
  local low, high
  if given then low, high = given[1], given[2]
  else
    low, high = extent(self, name, logarithmic)
    local base = low
    local bars = name == 'y' and self.series[1] and self.series[1].kind == 'bars'
    low, high = ticks.widen(low, high, logarithmic)
    if bars and base == 0 then low = 0 end -- bars stand on the axis
  end
  local a, b = low, high
  if logarithmic then a, b = math.log(low), math.log(high) end
  return {low = low, high = high, ticks = (logarithmic and ticks.log or ticks.linear)(low, high, count), place = function(v)
    if not series.finite(v) or logarithmic and v <= 0 then return nil end
    return ((logarithmic and math.log(v) or v) - a) / (b - a)
  end}
end

-- -- Output ------------------------------------------------------------------------------------------

--- The figure as the bytes of a PNG.
function Figure:png()
  local canvas = require 'amp.plot.draw'(self)
  return require('amp.plot.png').encode(canvas.pixels, canvas.width, canvas.height, 3)
end

--- Write a PNG file, whole or not at all.
-- @tparam string path
-- @return self
function Figure:save(path)
  require('amp.plot.image').save('plot.save', path, function() return self:png() end)
  return self
end

--- The figure as lines of text.
-- @tparam ?table given width and height in characters (the terminal's width, 20), unicode (from the locale), color (where
-- standard output is a terminal)
function Figure:text(given) return require 'amp.plot.terminal'.figure(self, given) end

function Figure:__tostring() return self:text() end

--- Print the figure in the terminal.
-- @return self
function Figure:show(given)
  io.stdout:write(self:text(given), '\n')
  return self
end

require('amp.core.class').guard(Figure, 'plot.Figure', 'figure')

return new

--- amp.plot: loss curves, histograms, points and images, to PNG files and to the terminal.
--
--   amp.plot.line(losses, {title = 'loss', smooth = 0.9}):save 'loss.png'
--   amp.plot.curves({train = a, test = b}, {yscale = 'log'}):show()
--   amp.plot.histogram(net[1].weight, {bins = 50})       -- at a prompt: prints itself
--   amp.plot.image(images, {columns = 8}):save 'batch.png'
--   amp.plot.graph(amp.trace(net, x)):save 'net.png'
--
-- Each gives a figure (plot/figure.lua) or an image (plot/image.lua), with save(path), show(), text(options), png() and a
-- tostring. Nothing outside of amp is needed; zlib is used where there is one.
local util = require 'amp.util'
local next_key = require('amp.core.keys').next
local raise = require('amp.error').throw
local new_figure = require 'amp.plot.figure'

local M = {}

local of_figure = {title = true, xlabel = true, ylabel = true, width = true, height = true, xscale = true, yscale = true, xlim = true, ylim = true,
  legend = true, grid = true}

-- One table of options: those of the figure, and those of the series. A line's width is `line_width` here.
local function split(given)
  local figure, series = {}, {}
  for k, v in pairs(given) do
    if of_figure[k] then figure[k] = v
    elseif k == 'line_width' then series.width = v
    else series[k] = v end
  end
  return figure, series
end

local function one(kind, need)
  return function(...)
    local n = select('#', ...)
    local last = n > 0 and (select(n, ...)) or nil
    local figure, series = {}, {}
    if n > need and type(last) == 'table' and last[1] == nil and next_key(last) ~= nil and getmetatable(last) == nil then
      figure, series = split(last)
      n = n - 1
    end
    local args = {...}
    args[n + 1] = next_key(series) ~= nil and series or nil
    local fig = new_figure(figure, 'plot.' .. kind)
    return fig[kind](fig, unpack(args, 1, next_key(series) ~= nil and n + 1 or n))
  end
end

--- An empty figure, to add series to.
-- @tparam ?table options title, xlabel, ylabel, width, height, xscale, yscale, xlim, ylim, legend, grid
-- @usage amp.plot.figure{title = 'loss'}:line(a, {label = 'a'}):line(b, {label = 'b'}):save 'loss.png'
function M.figure(given) return new_figure(given) end

--- A figure of one line: line(y), line(x, y), and options of the figure and of the line in one table last.
M.line = one('line', 1)

--- A figure of points: scatter(x, y, options).
M.scatter = one('scatter', 2)

--- A figure of a histogram: histogram(values, options).
M.histogram = one('histogram', 1)

--- A figure of several lines with a legend.
-- @tparam table lines name -> y, or {x, y}; drawn in the order of the names
-- @tparam ?table options of the figure, and smooth, marker, line_width of all lines
-- @usage amp.plot.curves({train = train_losses, test = {test_steps, test_losses}}, {xlabel = 'step'})
function M.curves(lines, given)
  local op = 'plot.curves'
  if type(lines) ~= 'table' or getmetatable(lines) ~= nil or lines[1] ~= nil or next_key(lines) == nil then
    raise(op, 'lines by name expected, as in {train = losses}, got %s', util.show(lines))
  end
  if given ~= nil and type(given) ~= 'table' then raise(op, 'options are a table, got %s', util.show(given)) end
  local figure, series = split(given or {})
  local fig = new_figure(figure, op)
  for _, name in ipairs(util.keys(lines)) do
    local v, o = lines[name], {label = name}
    for k, x in pairs(series) do o[k] = x end
    if type(v) == 'table' and #v == 2 and type(v[1]) ~= 'number' and not (type(v[1]) == 'cdata' and v[1]:numel() == 1) then
      fig:line(v[1], v[2], o)
    else
      fig:line(v, o)
    end
  end
  return fig
end

--- An image, or several in a grid.
-- @tparam Tensor t H x W, C x H x W or N x C x H x W, C being 1, 3 or 4
-- @tparam ?table options columns, pad, scale, range, normalize
function M.image(t, given) return require('amp.plot.image').new(t, given) end

--- A picture with boxes around what was found.
-- @tparam Tensor image H x W or C x H x W
-- @tparam Tensor|table boxes n x 4 corners in pixels
-- @tparam ?Tensor|table labels from 1, or names; -1 is not drawn
-- @tparam ?Tensor|table scores
-- @tparam ?table options classes (names of labels), min_score, scale, range
-- @usage amp.plot.boxes(item.image, item.boxes, item.labels, nil, {classes = set.classes}):save 'boxes.png'
function M.boxes(image, boxes, labels, scores, given) return require 'amp.plot.boxes'(image, boxes, labels, scores, given) end

--- A picture of a graph: boxes in layers, casts orange, what passes joined or keep in colours of their own.
-- @tparam Graph g
-- @tparam ?table options title, parameters (true: names of the parameters that a node takes stand in its box)
-- @return a picture with save(path), png(), and show() and tostring, which are the text of print(g)
-- @raise more nodes than a picture holds (16384 pixels); g:save_dot writes any graph
-- @usage amp.plot.graph(amp.trace(net, x)):save 'net.png'
function M.graph(g, given) return require 'amp.plot.graph'(g, given) end

return setmetatable(M, {__index = function(_, name)
  if type(name) == 'string' then raise(nil, "amp.plot has no '%s'%s", name, util.hint(name, util.keys(M))) end
end})

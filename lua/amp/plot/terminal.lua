--- Figures and images as text.
--
-- Lines are drawn in Braille dots, 2 x 4 a character, images in half blocks of 24-bit colour; where the locale
-- is not UTF-8, in plain ASCII; where output is no terminal (or NO_COLOR is set), without colours. Without
-- colours several series are told apart by the characters they are drawn with.
local bit = require 'bit'
local ffi = require 'ffi'
local options = require 'amp.options'
local floor, min, max = math.floor, math.min, math.max

local M = {}

-- -- The terminal --------------------------------------------------------------------------------

ffi.cdef [[
int amp_posix_isatty(int fd) __asm__("isatty");
int amp_posix_fileno(void *file) __asm__("fileno");
int amp_posix_ioctl(int fd, unsigned long request, ...) __asm__("ioctl");
]]
local TIOCGWINSZ = ffi.os == 'OSX' and 0x40087468 or 0x5413

local function is_terminal(f)
  return io.type(f) == 'file' and ffi.C.amp_posix_isatty(ffi.C.amp_posix_fileno(f)) == 1 and os.getenv 'TERM' ~= 'dumb'
end

local function columns(f)
  local size = ffi.new 'unsigned short[4]'
  if io.type(f) == 'file' and ffi.C.amp_posix_ioctl(ffi.C.amp_posix_fileno(f), TIOCGWINSZ, ffi.cast('void *', size)) == 0 and size[1] > 0 then
    return size[1]
  end
  return tonumber(os.getenv 'COLUMNS') or 80
end

--- Whether the locale's characters are UTF-8, as setlocale finds it out.
function M.is_utf8()
  local function set(name)
    local v = os.getenv(name)
    return v and v ~= '' and v
  end
  local locale = set 'LC_ALL' or set 'LC_CTYPE' or set 'LANG' or ''
  return locale:lower():find 'utf%-?8' ~= nil
end

local function read(op, given, height)
  local o = options.read(op, given, {'width', 'height', 'unicode', 'color'}, {})
  local terminal = is_terminal(io.stdout)
  if o.unicode == nil then o.unicode = M.is_utf8() end
  if o.color == nil then o.color = terminal and (os.getenv 'NO_COLOR' or '') == '' end
  o.width = o.width or min(max(columns(io.stdout) - 1, 20), 120)
  o.height = o.height or height
  options.integer(op, 'width', o.width, 20)
  options.integer(op, 'height', o.height, 4)
  options.boolean(op, 'unicode', o.unicode)
  options.boolean(op, 'color', o.color)
  return o
end

local function utf8(code) -- of three bytes
  return string.char(0xe0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
end

local function painted(text, color) return ('\27[38;2;%d;%d;%dm%s\27[39m'):format(color[1], color[2], color[3], text) end

-- Length in characters.
local function length(text)
  local _, n = text:gsub('[^\128-\191]', '')
  return n
end

-- A text of at most n characters.
local function fit(text, n)
  if length(text) <= n then return text end
  local out, count = {}, 0
  for c in text:gmatch '[%z\1-\127\194-\253][\128-\191]*' do
    count = count + 1
    if count > n then break end
    out[count] = c
  end
  return table.concat(out)
end

-- -- Dots ---------------------------------------------------------------------------------------------

-- Bits of Braille's dots, by column and row.
local DOT = {[0] = {[0] = 0x01, 0x02, 0x04, 0x40}, {[0] = 0x08, 0x10, 0x20, 0x80}}
local MARKS = {'*', '+', 'o', 'x', '#', '@', '%', '&'}
local FAINT = '.'

-- A grid of characters; in Braille each holds 2 x 4 dots.
local function new_grid(width, height, braille)
  local g = {width = width, height = height, braille = braille, dots = {}, colors = {}, marks = {}}
  g.w, g.h = width * (braille and 2 or 1), height * (braille and 4 or 1)
  function g.set(x, y, color, mark)
    x, y = floor(x), floor(y)
    if x < 0 or y < 0 or x >= g.w or y >= g.h then return end
    local at
    if braille then
      at = floor(y / 4) * width + floor(x / 2)
      g.dots[at] = bit.bor(g.dots[at] or 0, DOT[x % 2][y % 4])
    else
      at = y * width + x
      g.marks[at] = mark
    end
    g.colors[at] = color
  end
  function g.cell(column, row)
    local at = row * width + column
    if braille then return g.dots[at] and utf8(0x2800 + g.dots[at]) or ' ', g.colors[at] end
    return g.marks[at] or ' ', g.colors[at]
  end
  return g
end

-- A straight line of dots, its ends cut to what can be seen.
local function line(g, x1, y1, x2, y2, color, mark)
  local steps = max(math.abs(x2 - x1), math.abs(y2 - y1), 1)
  local from, to = 0, 1 -- the part within the grid
  for _, d in ipairs {{x1, x2 - x1, g.w}, {y1, y2 - y1, g.h}} do
    if d[2] == 0 then
      if d[1] < 0 or d[1] >= d[3] then return end
    else
      local a, b = -d[1] / d[2], (d[3] - d[1]) / d[2]
      from, to = max(from, min(a, b)), min(to, max(a, b))
    end
  end
  if from > to then return end
  steps = max(math.ceil(steps * (to - from)), 1)
  for i = 0, steps do
    local t = from + (to - from) * i / steps
    g.set(x1 + (x2 - x1) * t, y1 + (y2 - y1) * t, color, mark)
  end
end

local kinds = {}

function kinds.line(g, s, px, py, mark)
  local lx, ly
  for i = 1, #s.ys do
    local x, y = px(s.xs[i]), py(s.ys[i])
    if x and y then
      line(g, lx or x, ly or y, x, y, s.color, mark)
      lx, ly = x, y
    else
      lx, ly = nil, nil
    end
  end
end

function kinds.points(g, s, px, py, mark)
  for i = 1, #s.xs do
    local x, y = px(s.xs[i]), py(s.ys[i])
    if x and y then g.set(x, y, s.color, mark) end
  end
end

function kinds.bars(g, s, px, py, mark)
  local bottom = py(0) or g.h
  for i, c in ipairs(s.counts) do
    local x1, x2, y = px(s.edges[i]), px(s.edges[i + 1]), c > 0 and py(c)
    if x1 and x2 and y then
      for x = floor(max(x1, 0)), floor(min(max(x2 - 0.01, x1), g.w - 1)) do
        line(g, x, min(bottom, g.h - 1), x, min(y, g.h - 1), s.color, mark)
      end
    end
  end
end

-- -- Figures ----------------------------------------------------------------------------------------------

-- One line with texts at their places, those that would overlap left out.
local function labels(list, width)
  local out, at = {}, 0
  for _, t in ipairs(list) do
    local start = min(max(floor(t[1] - #t[2] / 2 + 0.5), 0), width - #t[2])
    if start >= at and start >= 0 then
      out[#out + 1] = (' '):rep(start - at) .. t[2]
      at = start + #t[2]
      if at < width then
        out[#out + 1] = ' '
        at = at + 1
      end
    end
  end
  return table.concat(out)
end

--- A figure as text.
function M.figure(figure, given)
  local o, f = read('plot.text', given, 20), figure.options
  local rows = max(o.height - 2 - (f.title and 1 or 0) - (f.xlabel and 1 or 0), 2)
  local yaxis = figure:axis('y', max(floor(rows / 4), 2))
  local margin = 0
  for _, t in ipairs(yaxis.ticks) do margin = max(margin, #t[2]) end
  local width = max(o.width - margin - 2, 8)
  local xaxis = figure:axis('x', max(floor(width / 14), 2))
  local several = 0
  for _, s in ipairs(figure.series) do
    if not s.faint then several = several + 1 end
  end
  local g = new_grid(width, rows, o.unicode and (o.color or several <= 1))
  local function px(v)
    local p = xaxis.place(v)
    return p and p * (g.w - 1)
  end
  local function py(v)
    local p = yaxis.place(v)
    return p and (1 - p) * (g.h - 1)
  end
  local named, n = {}, 0
  for _, s in ipairs(figure.series) do
    if not (s.faint and g.braille) then
      if not s.faint then n = n + 1 end
      local mark = s.faint and FAINT or MARKS[(n - 1) % #MARKS + 1]
      kinds[s.kind](g, s, px, py, mark)
      if s.label then named[#named + 1] = {s.label, s.color, g.braille and utf8(0x28ff) or mark} end
    end
  end

  local lines, indent = {}, (' '):rep(margin + 2)
  if f.title then
    local title = fit(f.title, width)
    lines[1] = indent .. (' '):rep(floor((width - length(title)) / 2)) .. title
  end
  local bar, tick, corner, dash = '|', '+', '+', '-'
  if o.unicode then bar, tick, corner, dash = utf8(0x2502), utf8(0x2524), utf8(0x2514), utf8(0x2500) end
  local texts = {}
  for _, t in ipairs(yaxis.ticks) do texts[floor((1 - yaxis.place(t[1])) * (rows - 1) + 0.5)] = t[2] end
  for r = 0, rows - 1 do
    local text, parts, run, last = texts[r] or '', {}, {}, nil
    local function flush() -- neighbours of one colour
      local s = table.concat(run)
      parts[#parts + 1] = last and painted(s, last) or s
      run = {}
    end
    for c = 0, width - 1 do
      local cell, color = g.cell(c, r)
      color = o.color and cell ~= ' ' and color or nil
      if color ~= last then
        flush()
        last = color
      end
      run[#run + 1] = cell
    end
    flush()
    lines[#lines + 1] = (' '):rep(margin - #text) .. text .. ' ' .. (texts[r] and tick or bar) .. table.concat(parts):gsub(' +$', '')
  end
  lines[#lines + 1] = (' '):rep(margin + 1) .. corner .. dash:rep(width)
  local places = {}
  for i, t in ipairs(xaxis.ticks) do places[i] = {xaxis.place(t[1]) * (width - 1), t[2]} end
  lines[#lines + 1] = indent .. labels(places, width):gsub(' +$', '')
  if f.xlabel then
    local label = fit(f.xlabel, width)
    lines[#lines + 1] = indent .. (' '):rep(floor((width - length(label)) / 2)) .. label
  end
  if f.legend and #named > 0 then
    local parts = {}
    for i, s in ipairs(named) do parts[i] = (o.color and painted(s[3], s[2]) or s[3]) .. ' ' .. s[1] end
    lines[#lines + 1] = indent .. table.concat(parts, '   ')
  end
  return table.concat(lines, '\n')
end

-- -- Images -----------------------------------------------------------------------------------------------

local SHADES = ' .:-=+*#%@'

--- An image as text.
function M.image(image, given)
  local o = read('plot.text', given, 30)
  local blocks = o.unicode and o.color
  -- a character is about twice as high as wide, and a half block half of one
  local p, w, h, c = image:small(o.width, 2 * o.height)
  local function pixel(x, y)
    local at = (y * w + x) * c
    if c >= 3 then return p[at], p[at + 1], p[at + 2] end
    return p[at], p[at], p[at]
  end
  local lines = {}
  for y = 0, h - 1, 2 do
    local parts, before = {}, nil
    for x = 0, w - 1 do
      local r, g, b = pixel(x, y)
      if blocks then
        local paint = ('\27[38;2;%d;%d;%dm'):format(r, g, b) .. (y + 1 < h and ('\27[48;2;%d;%d;%dm'):format(pixel(x, y + 1)) or '')
        parts[#parts + 1] = (paint ~= before and paint or '') .. utf8(0x2580)
        before = paint
      else
        local light = 0.299 * r + 0.587 * g + 0.114 * b
        if y + 1 < h then
          r, g, b = pixel(x, y + 1)
          light = (light + 0.299 * r + 0.587 * g + 0.114 * b) / 2
        end
        local k = min(floor(light / 256 * #SHADES) + 1, #SHADES)
        parts[#parts + 1] = SHADES:sub(k, k)
      end
    end
    lines[#lines + 1] = table.concat(parts) .. (blocks and '\27[0m' or '')
  end
  return table.concat(lines, '\n')
end

return M

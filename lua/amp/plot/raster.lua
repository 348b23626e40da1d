--- A canvas of RGB pixels with smooth lines, discs, boxes and text.
--
-- Coordinates are in pixels from the top left corner, a pixel's centre being at .5. A path is drawn into a
-- mask of coverage first and blended once, so that its joints are no darker than the rest.
local ffi = require 'ffi'
local font = require 'amp.plot.font'
local floor, ceil, min, max, sqrt = math.floor, math.ceil, math.min, math.max, math.sqrt

local Raster = {}
Raster.__index = Raster

--- Fill a rectangle; its edges may lie within pixels.
-- @tparam table color {red, green, blue}, 0 to 255
-- @tparam ?number alpha opacity, 1 by default
function Raster:box(x1, y1, x2, y2, color, alpha)
  x1, x2 = max(min(x1, x2), 0), min(max(x1, x2), self.width)
  y1, y2 = max(min(y1, y2), 0), min(max(y1, y2), self.height)
  local p, w, r, g, b = self.pixels, self.width, color[1], color[2], color[3]
  alpha = alpha or 1
  for y = floor(y1), ceil(y2) - 1 do
    local vertical = (min(y + 1, y2) - max(y, y1)) * alpha
    for x = floor(x1), ceil(x2) - 1 do
      local a = vertical * (min(x + 1, x2) - max(x, x1))
      local at = 3 * (y * w + x)
      p[at] = p[at] + (r - p[at]) * a + 0.5
      p[at + 1] = p[at + 1] + (g - p[at + 1]) * a + 0.5
      p[at + 2] = p[at + 2] + (b - p[at + 2]) * a + 0.5
    end
  end
end

-- -- Paths ---------------------------------------------------------------------------------

-- Coverage of a segment with round ends, where it is more than what is there.
local function segment(mask, stride, x1, y1, x2, y2, radius, left, top, right, bottom)
  local dx, dy = x2 - x1, y2 - y1
  local length = dx * dx + dy * dy
  local scale = length > 0 and 1 / length or 0
  for y = top, bottom - 1 do
    local py = y + 0.5 - y1
    for x = left, right - 1 do
      local px = x + 0.5 - x1
      local t = min(max((px * dx + py * dy) * scale, 0), 1)
      local ex, ey = px - t * dx, py - t * dy
      local d = min(radius + 0.5 - sqrt(ex * ex + ey * ey), 1)
      local at = y * stride + x
      if d > mask[at] then mask[at] = d end
    end
  end
end

-- Blend a part of the mask in a colour, and empty it.
local function blend(self, left, top, right, bottom, color, alpha)
  local p, mask, w, r, g, b = self.pixels, self.mask, self.width, color[1], color[2], color[3]
  for y = top, bottom - 1 do
    for i = y * w + left, y * w + right - 1 do
      local a = mask[i] * alpha
      if a > 0 then
        mask[i] = 0
        p[3 * i] = p[3 * i] + (r - p[3 * i]) * a + 0.5
        p[3 * i + 1] = p[3 * i + 1] + (g - p[3 * i + 1]) * a + 0.5
        p[3 * i + 2] = p[3 * i + 2] + (b - p[3 * i + 2]) * a + 0.5
      end
    end
  end
end

--- Draw polylines as one shape.
-- @tparam table lines list of flat lists x1, y1, x2, y2, ...; one of a single point is a dot
-- @tparam number thickness in pixels
-- @tparam table color
-- @tparam ?table clip {left, top, right, bottom}: nothing is drawn outside
-- @tparam ?number alpha opacity, 1 by default
function Raster:path(lines, thickness, color, clip, alpha)
  local c1, c2, c3, c4 = 0, 0, self.width, self.height
  if clip then c1, c2, c3, c4 = max(floor(clip[1]), 0), max(floor(clip[2]), 0), min(ceil(clip[3]), c3), min(ceil(clip[4]), c4) end
  local radius = thickness / 2
  local l, t, r, b = c3, c4, c1, c2 -- what was touched
  for _, line in ipairs(lines) do
    for i = 1, max(#line - 3, 1), 2 do
      local x1, y1 = line[i], line[i + 1]
      local x2, y2 = line[i + 2] or x1, line[i + 3] or y1
      local left, right = max(floor(min(x1, x2) - radius - 1), c1), min(ceil(max(x1, x2) + radius + 1), c3)
      local top, bottom = max(floor(min(y1, y2) - radius - 1), c2), min(ceil(max(y1, y2) + radius + 1), c4)
      if left < right and top < bottom then
        segment(self.mask, self.width, x1, y1, x2, y2, radius, left, top, right, bottom)
        l, t, r, b = min(l, left), min(t, top), max(r, right), max(b, bottom)
      end
    end
  end
  if l < r and t < b then blend(self, l, t, r, b, color, alpha or 1) end
end

function Raster:line(x1, y1, x2, y2, thickness, color, clip) self:path({{x1, y1, x2, y2}}, thickness, color, clip) end

function Raster:disc(x, y, radius, color, clip, alpha) self:path({{x, y}}, 2 * radius, color, clip, alpha) end

-- -- Text ----------------------------------------------------------------------------------

--- Width in pixels of a text whose capitals are `size` pixels high.
function Raster.text_width(text, size) return font.width(text) * size / font.CAP end

--- Write a text.
-- @tparam number x
-- @tparam number y
-- @tparam string text
-- @tparam number size height of capitals in pixels
-- @tparam table color
-- @tparam ?string align where x is: 'left' (default), 'center', 'right'; y is the middle of the capitals
-- @tparam ?boolean up written from bottom to top: x is the middle then, and y is aligned
function Raster:text(x, y, text, size, color, align, up)
  local unit = size / font.CAP
  local shift = Raster.text_width(text, size) * (align == 'center' and 0.5 or align == 'right' and 1 or 0)
  local lines = {}
  font.each(text, function(line)
    for i = 1, #line, 2 do
      local along, down = line[i] * unit - shift, line[i + 1] * unit - size / 2
      if up then line[i], line[i + 1] = x + down, y - along else line[i], line[i + 1] = x + along, y + down end
    end
    lines[#lines + 1] = line
  end)
  self:path(lines, max(size / 7, 1.1), color)
end

--- A canvas of one colour.
-- @tparam number width
-- @tparam number height
-- @tparam ?table color white by default
return function(width, height, color)
  local self = setmetatable({width = width, height = height, pixels = ffi.new('uint8_t[?]', width * height * 3),
    mask = ffi.new('float[?]', width * height)}, Raster)
  self:box(0, 0, width, height, color or {255, 255, 255})
  return self
end

--- What transforms of pictures share: how they are called, their random numbers, boxes and masks that come along.
--
-- A transform is called with C x H x W or N x C x H x W (one draw for the whole batch), or with an item: a table {image, boxes, labels}
-- by name (more keys may be there: `mask` goes along, tensors as long as boxes lose what boxes lose) or by place. Arguments behind the first
-- are handed on, so transform = Compose{...} suits a loader's x, y. What is given is never changed.
--
-- A class has draw(self, h, w), image(self, t, p), and where pixels move boxes(self, b, p) and moves = true; p is what draw gave.
local amp = require 'amp'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

--- n numbers from 0 to 1 of amp's generator.
function M.rand(n) return unpack(amp.rand({ n }, { dtype = 'float64', device = 'cpu' }):tolist()) end

--- A whole number from 0 to n - 1.
function M.randint(n) return math.min(n - 1, math.floor(M.rand(1) * n)) end

function M.between(range) return range[1] + (range[2] - range[1]) * M.rand(1) end

function M.check(op, t)
  if not amp.is_tensor(t) then raise(op, 'a picture (C x H x W or N x C x H x W) or a table {image, boxes, labels} expected, got %s', util.kind(t)) end
  if t:dim() ~= 3 and t:dim() ~= 4 then raise(op, 'C x H x W or N x C x H x W expected, got shape %s', tostring(t:size())) end
  for d = t:dim() - 2, t:dim() do
    if t:size(d) == 0 then raise(op, 'the picture is empty, its shape is %s', tostring(t:size())) end
  end
  return t
end

-- How many labels a tensor or a plain list holds; nil of anything else.
local function length(v)
  if amp.is_tensor(v) then return v:dim() > 0 and v:size(1) or nil end
  return type(v) == 'table' and getmetatable(v) == nil and #v or nil
end

local function picked(list, indices)
  local out = {}
  for i = 1, #indices do out[i] = list[indices[i]] end
  return out
end

-- Boxes cropped to the picture; what has nothing left goes, with its label.
local function clip(item, places, h, w)
  local b = item[places.boxes]
  local x, y = b:select(2, 1), b:select(2, 2)
  local x2, y2 = b:select(2, 3), b:select(2, 4)
  b = amp.stack({ x:clamp(0, w), y:clamp(0, h), x2:clamp(0, w), y2:clamp(0, h) }, 2)
  local n = b:size(1)
  local kept = b:select(2, 3):gt(b:select(2, 1)):logical_and(b:select(2, 4):gt(b:select(2, 2)))
  item[places.boxes] = b
  local indices = kept:nonzero():reshape(-1)
  if indices:size(1) == n then return end
  for k, v in pairs(item) do
    if k ~= places.image and k ~= places.mask and amp.is_tensor(v) and v:dim() > 0 then
      if v:size(1) == n then item[k] = v:index_select(1, indices) end
    end
  end
  local labels = item[places.labels]
  if not amp.is_tensor(labels) and length(labels) then item[places.labels] = picked(labels, indices:tolist()) end
end

-- Boxes, labels and mask must fit the picture before anything is moved.
local function check_item(op, item, places, h, w)
  local b, labels, mask = item[places.boxes], item[places.labels], item[places.mask]
  if b ~= nil then
    if not amp.is_tensor(b) or b:dim() ~= 2 or b:size(2) ~= 4 then
      raise(op, 'boxes are n x 4 corners in pixels, got %s', amp.is_tensor(b) and 'shape ' .. tostring(b:size()) or util.kind(b))
    end
    local n = length(labels)
    if n and n ~= b:size(1) then raise(op, '%d boxes, but %d labels', b:size(1), n) end
    if b.device == 'cpu' and b:size(1) > 0 then
      local right = b:select(2, 3):ge(b:select(2, 1)):logical_and(b:select(2, 4):ge(b:select(2, 2)))
      if not right:all():item() then
        local i = right:logical_not():nonzero()[1][1]:item()
        raise(op, 'box %d has its corners swapped, or nan: %s; x1, y1, x2, y2 expected', i, table.concat(b[i]:tolist(), ', '))
      end
    end
  end
  if mask ~= nil and places.mask == 'mask' then
    local d = amp.is_tensor(mask) and mask:dim() or 0
    if d < 2 or mask:size(d - 1) ~= h or mask:size(d) ~= w then
      raise(op, 'the mask of a picture of %d x %d is %s', h, w, d > 0 and 'of shape ' .. tostring(mask:size()) or util.kind(mask))
    end
  end
end

local NAMED, LISTED = { image = 'image', boxes = 'boxes', labels = 'labels', mask = 'mask' }, { image = 1, boxes = 2, labels = 3, mask = 4 }

local function call_item(self, given)
  local places = given.image ~= nil and NAMED or LISTED
  local op = self.op
  local item = {}
  for k, v in pairs(given) do item[k] = v end
  local t = M.check(op, item[places.image])
  local h, w = t:size(t:dim() - 1), t:size(t:dim())
  if self.moves then check_item(op, item, places, h, w) end
  local p = self:draw(h, w)
  item[places.image] = self:image(t, p)
  local b, mask = item[places.boxes], item[places.mask]
  if not self.moves then return item end
  if b ~= nil and b:size(1) > 0 and p then
    local out = item[places.image]
    item[places.boxes] = self:boxes(b:is_floating_point() and b or b:float(), p)
    clip(item, places, out:size(out:dim() - 1), out:size(out:dim()))
  end
  if mask ~= nil and places == NAMED and p then item.mask = self:mask(mask, p) end
  return item
end

local function call(self, x, ...)
  if type(x) == 'table' and getmetatable(x) == nil and (x.image ~= nil or x[1] ~= nil) then return call_item(self, x), ... end
  M.check(self.op, x)
  return self:image(x, self:draw(x:size(x:dim() - 1), x:size(x:dim()))), ...
end

-- A picture whose sides were divided when it was read, cut as p says of the whole: as near as its pixels are.
local function cut_part(t, p, divided)
  local d = t:dim()
  local function part(n) return math.floor(n / divided + 0.5) end
  local ch, cw, top, left = math.max(1, part(p.h)), math.max(1, part(p.w)), part(p.top), part(p.left)
  ch, cw = math.min(ch, t:size(d - 1)), math.min(cw, t:size(d))
  return M.crop(t, math.min(top, t:size(d - 1) - ch), math.min(left, t:size(d) - cw), ch, cw)
end

--- By what the sides of h x w pixels may be divided when a JPEG is read that is to have size `to`.
function M.divisor(h, w, to)
  local least = math.min(h / to[1], w / to[2])
  return least >= 8 and 8 or least >= 4 and 4 or least >= 2 and 2 or 1
end

--- For data sets: a transform that first chooses a part of a picture, or a size, may be asked before the picture is decoded.
-- @tparam function transform
-- @tparam boolean reduced whether a picture may be read at a part of its size where more pixels than are wanted remain
-- @return nothing where this transform does not; else parts(h, w), which draws and says by what sides may be divided, and
-- finish(bytes), which makes of what was read what the transform makes of the whole picture as floats from 0 to 1
function M.ahead(transform, reduced)
  local list = type(transform) == 'table' and transform.is_compose and transform or { transform }
  local first = list[1]
  local meta = type(first) == 'table' and getmetatable(first)
  if not meta or not meta.chooses then return nil end
  local p, h, w, divided
  local function parts(height, width)
    h, w, divided = height, width, 1
    p = first:draw(h, w)
    local to = p.to or p.oh and { p.oh, p.ow }
    if reduced and to then divided = M.divisor(p.oh and h or p.h, p.oh and w or p.w, to) end
    return divided
  end
  local function finish(bytes)
    local d = bytes:dim()
    local whole = bytes:size(d - 1) == h and bytes:size(d) == w
    if not p then -- no JPEG: nothing was asked
      h, w, whole = bytes:size(d - 1), bytes:size(d), true
      p = first:draw(h, w)
    end
    local x
    if p.pad or p.oh then x = bytes:contiguous():float():div_(255)
    else x = (whole and M.crop(bytes, p.top, p.left, p.h, p.w) or cut_part(bytes, p, divided)):contiguous():float():div_(255) end
    if p.oh then x = M.resize(x, p.oh, p.ow)
    elseif p.pad then x = first:image(x, p)
    elseif p.to then x = M.resize(x, p.to[1], p.to[2]) end
    for i = 2, #list do x = list[i](x) end
    return x
  end
  return parts, finish
end

--- A class of transforms.
function M.class(name)
  local C = { op = 'vision.transforms.' .. name, name = name }
  C.__index = C
  C.__call = call
  function C.draw() return true end
  -- A mask goes the way of the picture, as one channel of floats.
  function C:mask(m, p)
    local lead = m:dim() == 2 and m:unsqueeze(1) or m
    local out = self:image(lead, p, true)
    return m:dim() == 2 and out[1] or out
  end
  function C.__tostring(self) return self.op end
  return C
end

--- Options of {p}, a number, or none.
function M.probability(op, given)
  if type(given) == 'number' then given = { p = given } end
  local options = require 'amp.options'
  local o = options.read(op, given, { 'p' }, { p = 0.5 })
  return options.number(op, 'p', o.p, 0, 1)
end

--- {height, width} of a number or a list.
function M.size(op, v)
  if v == nil then raise(op, 'a size expected: a number or {height, width}') end
  if type(v) == 'table' and #v == 1 then v = v[1] end
  return require('amp.options').list(op, 'size', v, 2, 1)
end

function M.crop(t, top, left, h, w)
  local d = t:dim()
  return t:narrow(d - 1, top + 1, h):narrow(d, left + 1, w)
end

--- t with `left, top, right, bottom` pixels of a value around it.
function M.pad(t, left, top, right, bottom, value)
  local d, shape = t:dim(), {}
  for i = 1, d do shape[i] = t:size(i) end
  local h, w = shape[d - 1], shape[d]
  shape[d - 1], shape[d] = h + top + bottom, w + left + right
  local out = amp.full(shape, value or 0, { dtype = t.dtype, device = t.device })
  M.crop(out, top, left, h, w):copy_(t)
  return out
end

--- Boxes moved by dx, dy.
function M.shift(b, dx, dy)
  return b + amp.tensor({ dx, dy, dx, dy }, { dtype = b.dtype, device = b.device })
end

function M.stretch(b, sx, sy)
  return b * amp.tensor({ sx, sy, sx, sy }, { dtype = b.dtype, device = b.device })
end

--- Bilinear and antialiased (of a mask: the nearest pixel), in the picture's dtype.
function M.resize(t, h, w, nearest)
  local d = t:dim()
  if t:size(d - 1) == h and t:size(d) == w then return t end
  local x = d == 3 and t:unsqueeze(1) or t
  if nearest then
    local function places(n, m)
      local step = amp.arange(0, m, { dtype = 'float64', device = t.device })
      return ((step + 0.5) * (n / m)):floor():clamp(0, n - 1):long() + 1
    end
    local out = x:index_select(3, places(t:size(d - 1), h)):index_select(4, places(t:size(d), w))
    return d == 3 and out[1] or out
  end
  local float = t:is_floating_point()
  local out = amp.interpolate(float and x or x:float(), { size = { h, w }, mode = 'bilinear', antialias = true })
  if not float then out = out:round():to(t.dtype) end -- a mean of values is within their range
  return d == 3 and out[1] or out
end

return M

--- amp.vision.transforms: pictures made ready for a net, and augmentations.
--
--   local T = amp.vision.transforms
--   local augment = T.Compose{T.RandomResizedCrop(224), T.RandomHorizontalFlip{p = 0.5}, T.ToFloat(), T.Normalize(mean, std)}
--   local x = augment(image)                                  -- C x H x W, or a batch
--   local item = augment{image = image, boxes = b, labels = l} -- boxes (corners in pixels) come along; those cropped to nothing go
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

local Compose = { is_compose = true }
Compose.__index = Compose

local function callable(v)
  if type(v) == 'function' then return true end
  local meta = type(v) == 'table' and getmetatable(v)
  return type(meta) == 'table' and meta.__call ~= nil
end

--- Compose{…}: one transform after the other; functions may stand among them.
function M.Compose(list, ...)
  local op = 'vision.transforms.Compose'
  if callable(list) then list = { list, ... } end
  if type(list) ~= 'table' then raise(op, 'a list of transforms expected, got %s', util.show(list)) end
  for i = 1, #list do
    if not callable(list[i]) then raise(op, 'number %d is no transform but %s', i, util.show(list[i])) end
  end
  return setmetatable({ unpack(list) }, Compose)
end

function Compose:__call(x, ...)
  for i = 1, #self do x = self[i](x) end
  return x, ...
end

function Compose:__tostring()
  local parts = {}
  for i = 1, #self do parts[i] = tostring(self[i]) end
  return 'vision.transforms.Compose{' .. table.concat(parts, ', ') .. '}'
end

for _, file in ipairs { 'geometry', 'color' } do
  for name, make in pairs(require('amp.vision.transforms.' .. file)) do
    if name:match '^%u' then M[name] = make end
  end
end

require('amp.error').space(M, 'amp.vision.transforms')

return setmetatable(M, { __index = function(_, name)
  if type(name) ~= 'string' or name:sub(1, 1) == '_' then return nil end
  require('amp.error').throw_code('name', 'vision.transforms', "there is no '%s'%s", name, util.hint(name, util.keys(M)))
end })

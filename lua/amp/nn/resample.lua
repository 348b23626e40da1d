--- Layers that change the resolution: Upsample, UpsamplingNearest2d, UpsamplingBilinear2d, PixelShuffle,
-- PixelUnshuffle, ChannelShuffle.
local amp = require 'amp'
local options = require 'amp.options'
local schema = require 'amp.ops.schema'
local util = require 'amp.util'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw

local interpolate = amp.interpolate
local M = {}

local modes, known = schema.words('interpolate', 'mode')

local function numbers(op, name, v)
  if v == nil or type(v) == 'number' then return v end
  if type(v) ~= 'table' or #v == 0 then raise(op, string.format('%s must be a number or a list of numbers, got %s', name, util.show(v))) end
  for i = 1, #v do options.number(op, name, v[i]) end
  return v
end

local function show(v) return type(v) == 'table' and table.concat(v, 'x') or tostring(v) end

-- -- Upsample -------------------------------------------------------------------

local Upsample = Module:extend('nn.Upsample')
M.Upsample = Upsample

local names = {'size', 'scale_factor', 'mode', 'align_corners', 'recompute_scale_factor'}

--- nn.Upsample{size | scale_factor, mode = 'nearest', align_corners, recompute_scale_factor}: as amp.interpolate.
-- size and scale_factor are a number or a list of one for each spatial dimension.
-- @usage nn.Upsample{scale_factor = 2, mode = 'bilinear', align_corners = false}
function Upsample:init(...)
  local op = self.__name
  local o = options.arguments(op, names, 0, {mode = 'nearest'}, ...)
  if (o.size == nil) == (o.scale_factor == nil) then
    raise(op, string.format('one of size and scale_factor must be given, got %s', o.size == nil and 'neither' or 'both'))
  end
  if not known[o.mode] then
    raise(op, string.format('there is no mode %s%s (known: %s)', util.show(o.mode), util.hint(o.mode, modes), table.concat(modes, ', ')))
  end
  self.size, self.scale_factor, self.mode = numbers(op, 'size', o.size), numbers(op, 'scale_factor', o.scale_factor), o.mode
  for _, key in ipairs {'align_corners', 'recompute_scale_factor'} do
    if o[key] ~= nil then self[key] = options.boolean(op, key, o[key]) end
  end
end

--- @tparam Tensor x N x C x L, N x C x H x W or N x C x D x H x W
function Upsample:forward(x)
  return interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)
end
Upsample.transient = Upsample.forward

function Upsample:extra_repr()
  local text = self.size and 'size ' .. show(self.size) or 'scale_factor ' .. show(self.scale_factor)
  text = text .. ', mode ' .. self.mode
  if self.align_corners ~= nil then text = text .. ', align_corners ' .. tostring(self.align_corners) end
  return text
end

--- nn.UpsamplingNearest2d{size | scale_factor}, nn.UpsamplingBilinear2d{size | scale_factor} (with align_corners)
for name, mode in pairs {UpsamplingNearest2d = 'nearest', UpsamplingBilinear2d = 'bilinear'} do
  local Class = Upsample:extend('nn.' .. name)
  function Class:init(...)
    local o = options.arguments(self.__name, {'size', 'scale_factor'}, 0, {}, ...)
    Upsample.init(self, {size = o.size, scale_factor = o.scale_factor, mode = mode, align_corners = mode == 'bilinear' or nil})
  end
  M[name] = Class
end

-- -- Shuffles ---------------------------------------------------------------------

--- nn.PixelShuffle(upscale_factor), nn.PixelUnshuffle(downscale_factor), nn.ChannelShuffle(groups)
for name, about in pairs {PixelShuffle = {'upscale_factor', amp.pixel_shuffle}, PixelUnshuffle = {'downscale_factor', amp.pixel_unshuffle},
  ChannelShuffle = {'groups', amp.channel_shuffle}} do
  local Class = Module:extend('nn.' .. name)
  local key, fn = about[1], about[2]
  function Class:init(...)
    local o = options.arguments(self.__name, {key}, 1, {}, ...)
    self[key] = options.integer(self.__name, key, o[key], 1)
  end
  function Class:forward(x) return fn(x, self[key]) end
  Class.transient = Class.forward
  function Class:extra_repr() return key .. ' ' .. self[key] end
  M[name] = Class
end

return M

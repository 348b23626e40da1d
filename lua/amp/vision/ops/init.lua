--- amp.vision.ops: what detection computes with boxes. Boxes are corners (x1, y1, x2, y2) in the last dimension;
-- indices, images and classes count from 1. Arguments are in torchvision's order, those of multibox_* are MXNet's.
-- All of it runs on the CPU and on GPUs; boxes are computed with in float32 (float64 if given so).
-- @module amp.vision.ops
local err = require 'amp.error'

local files = {
  boxes = { 'box_iou', 'box_convert', 'clip_boxes', 'nms', 'batched_nms' },
  roi = { 'roi_align', 'roi_pool' },
  focal = { 'sigmoid_focal_loss' },
  multibox = { 'multibox_prior', 'multibox_target', 'multibox_detection' },
}
local file_of = {}
for file, names in pairs(files) do
  for _, name in ipairs(names) do file_of[name] = file end
end

local M = {}

err.space(M, 'amp.vision.ops')

return setmetatable(M, { __index = function(t, name)
  if file_of[name] then
    local f = require('amp.vision.ops.' .. file_of[name])[name]
    rawset(t, name, f)
    return f
  end
  if type(name) ~= 'string' or name:sub(1, 1) == '_' then return nil end
  local util = require 'amp.util'
  err.throw_code('name', 'vision.ops', "there is no '%s'%s", name, util.hint(name, util.keys(file_of)))
end })

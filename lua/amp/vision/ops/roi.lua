--- Regions of feature maps.
local amp = require 'amp'
local check = require 'amp.vision.ops.check'
local options = require 'amp.options'
local ops = require 'amp.ops'
local raise = require('amp.error').throw
local util = require 'amp.util'

local M = {}

-- K x 5 (image, corners), or a list of K_i x 4, one an image
local function regions(op, input, boxes)
  if amp.is_tensor(boxes) then
    if boxes:dim() ~= 2 or boxes:size(2) ~= 5 then
      raise(op, 'boxes: K x 5 (image, x1, y1, x2, y2) or a list of K x 4, one an image, expected, got %s', util.shape(boxes:size()))
    end
    return boxes
  end
  if type(boxes) ~= 'table' then raise(op, 'boxes: a tensor or a list of tensors expected, got %s', util.show(boxes)) end
  if #boxes ~= input:size(1) then raise(op, 'boxes: a list of %d expected, one an image, got %d', input:size(1), #boxes) end
  local parts = {}
  for i = 1, #boxes do
    local b = boxes[i]
    check.boxes(op, 'boxes ' .. i, b, 2)
    parts[i] = amp.cat({ amp.full({ b:size(1), 1 }, i, { dtype = b.dtype, device = b.device }), b }, 2)
  end
  if #parts == 0 then return amp.zeros({ 0, 5 }, { dtype = input.dtype, device = input.device }) end
  return amp.cat(parts, 1)
end

-- Both in one dtype: the wider, and float32 at least for boxes, whose pixels 16 bits can't tell apart
local function prepare(op, o)
  local input = check.tensor(op, 'input', o.input)
  if input:dim() ~= 4 then raise(op, 'input: N x C x H x W expected, got %s', util.shape(input:size())) end
  local size = options.pair(op, 'output_size', o.output_size, 1)
  options.number(op, 'spatial_scale', o.spatial_scale, 0)
  local rois = regions(op, input, o.boxes)
  check.together(op, { 'input', 'boxes' }, input, rois)
  local dtype = (input.dtype == 'float64' or rois.dtype == 'float64') and 'float64' or 'float32'
  return input.dtype == dtype and input or input:to(dtype), rois.dtype == dtype and rois or rois:to(dtype), size, input.dtype
end

-- Results have the input's dtype, whatever that of the boxes.
local function finish(y, dtype) return y.dtype == dtype and y or y:to(dtype) end

--- Regions as means of bilinear samples (He et al., 2017).
-- @tparam Tensor input N x C x H x W
-- @param boxes K x 5 (image from 1, x1, y1, x2, y2), or a list of K_i x 4, one an image
-- @param output_size a number or {height, width}
-- @param ... spatial_scale (1), sampling_ratio (-1: as many samples as a cell has pixels), aligned (false: as first
-- published, half a pixel off), in places or in a table
-- @treturn Tensor K x C x height x width, of the input's dtype; gradients go to the input
function M.roi_align(...)
  local op = 'vision.ops.roi_align'
  local names = { 'input', 'boxes', 'output_size', 'spatial_scale', 'sampling_ratio', 'aligned', tensors = true }
  local o = options.arguments(op, names, 3, { spatial_scale = 1, sampling_ratio = -1, aligned = false }, ...)
  options.integer(op, 'sampling_ratio', o.sampling_ratio)
  options.boolean(op, 'aligned', o.aligned)
  local input, rois, size, dtype = prepare(op, o)
  return finish(ops.get 'roi_align'(input, rois:detach(), size[1], size[2], o.spatial_scale, o.sampling_ratio, o.aligned), dtype)
end

--- Regions as largest values of cells whose edges are whole pixels (Girshick, 2015).
-- @tparam Tensor input N x C x H x W
-- @param boxes as for roi_align
-- @param output_size a number or {height, width}
-- @tparam ?number spatial_scale (1)
-- @treturn Tensor K x C x height x width, of the input's dtype; 0 where a cell has no pixels
function M.roi_pool(...)
  local op = 'vision.ops.roi_pool'
  local names = { 'input', 'boxes', 'output_size', 'spatial_scale', tensors = true }
  local o = options.arguments(op, names, 3, { spatial_scale = 1 }, ...)
  local input, rois, size, dtype = prepare(op, o)
  local at = ops.get 'roi_pool_places'(input:detach(), rois:detach(), size[1], size[2], o.spatial_scale)
  if at:numel() == 0 then return finish(amp.zeros(at:size(), { dtype = input.dtype, device = input.device }), dtype) end
  local y = input:reshape(-1):index_select(1, at:reshape(-1):clamp { min = 1 }):reshape(at:size())
  return finish(amp.where(at:gt(0), y, amp.zeros_like(y)), dtype)
end

return M

--- amp.data.collate(list): examples as one batch.
--
-- Tensors of one shape are stacked, numbers and booleans become a tensor, tables are collated by their keys, all else is a list. In an
-- item of detection (a table with `boxes`) what differs in length is padded with -1 (uint8 with 0, bool with false): boxes N x M x 4, labels
-- N x M; and `targets`, N x M x 5, holds {class, x1, y1, x2, y2} with corners from 0 to 1, as amp.vision.ops.multibox_target takes them.
local amp = require 'amp'
local next_key = require('amp.core.keys').next
local util = require 'amp.util'
local raise = require('amp.error').throw

local OP = 'data.collate'
local collate

local function absent(v) return type(v) == 'nil' end

local function shape(t) return tostring(t:size()) end

local function stack(list, key)
  for i = 2, #list do
    if not amp.is_tensor(list[i]) then raise(OP, 'example %d: %s is %s, in example 1 a tensor', i, key, util.kind(list[i])) end
    if shape(list[i]) ~= shape(list[1]) then
      raise(OP, 'example %d: %s has shape %s, that of example 1 %s; a transform such as Resize makes them equal', i, key, shape(list[i]), shape(list[1]))
    end
  end
  return amp.stack(list)
end

local unsigned = { uint8 = true, bool = true }

-- Tensors that differ in dimension 1 alone, padded to the longest with -1 (0 where the dtype has no -1).
local function pad(list, key)
  local most, first = 0, list[1]
  for i, t in ipairs(list) do
    if not amp.is_tensor(t) then raise(OP, 'example %d: %s is %s, a tensor expected', i, key, util.kind(t)) end
    local alike = t:dim() == first:dim() and t:dim() > 0
    for d = 2, alike and t:dim() or 0 do alike = alike and t:size(d) == first:size(d) end
    if not alike then raise(OP, 'example %d: %s has shape %s, that of example 1 %s', i, key, shape(t), shape(first)) end
    most = math.max(most, t:size(1))
  end
  local sizes = { #list, most }
  for d = 2, first:dim() do sizes[d + 1] = first:size(d) end
  local out = amp.full(sizes, unsigned[first.dtype] and 0 or -1, { dtype = first.dtype, device = first.device })
  for i, t in ipairs(list) do
    if t:size(1) > 0 then out[i]:narrow(1, 1, t:size(1)):copy_(t) end
  end
  return out
end

local function targets(items, out)
  local image, boxes, labels = out.image, out.boxes, out.labels
  local d = image:dim()
  local h, w = image:size(d - 1), image:size(d)
  local scaled = boxes:float() / amp.tensor({ w, h, w, h }, { device = boxes.device })
  scaled = amp.where(labels:unsqueeze(3):lt(0), amp.full_like(scaled, -1), scaled)
  for i, item in ipairs(items) do
    if item.boxes:size(1) ~= item.labels:size(1) then
      raise(OP, 'example %d has %d boxes, but %d labels', i, item.boxes:size(1), item.labels:size(1))
    end
  end
  return amp.cat({ labels:float():unsqueeze(3), scaled }, 3)
end

local function by_key(list)
  local out, first = {}, list[1]
  local n = not absent(first.boxes) and amp.is_tensor(first.boxes) and first.boxes:dim() == 2
  for key in pairs(first) do
    local column, ragged = {}, n
    for i, item in ipairs(list) do
      local v = item[key]
      if absent(v) then raise(OP, "example %d has no '%s', as example 1 has", i, tostring(key)) end
      column[i] = v
      ragged = ragged and amp.is_tensor(v) and v:dim() > 0 and amp.is_tensor(item.boxes) and v:size(1) == item.boxes:size(1)
    end
    local padded = n and (key == 'boxes' or key == 'labels' or ragged and key ~= 'image' and key ~= 'mask')
    out[key] = padded and pad(column, key) or collate(column, tostring(key))
  end
  if n and amp.is_tensor(out.image) and amp.is_tensor(out.labels) then out.targets = targets(list, out) end
  return out
end

function collate(list, key)
  local v = list[1]
  if amp.is_tensor(v) then return stack(list, key) end
  local kind = type(v)
  if kind == 'number' or kind == 'boolean' then return amp.tensor(list, { device = 'cpu' }) end
  if kind == 'table' and getmetatable(v) == nil and next_key(v) ~= nil then return by_key(list) end
  return list
end

--- A batch of examples.
-- @tparam table list of examples: tensors, numbers, or tables of them
-- @return the same with one dimension more
-- @usage local batch = amp.data.collate{set:get(1), set:get(2)}   -- batch.image, batch.boxes, batch.labels, batch.targets
return function(list)
  if type(list) ~= 'table' or absent(list[1]) then raise(OP, 'a list of examples expected, got %s', util.show(list)) end
  return collate(list, 'it')
end

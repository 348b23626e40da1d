--- What data sets of pictures share: checks, boxes and labels as tensors, pictures of files.
local amp = require 'amp'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

function M.check_transform(op, f)
  if f == nil or type(f) == 'function' then return end
  local meta = type(f) == 'table' and getmetatable(f)
  if not (meta and meta.__call) then raise(op, 'transform must be a function, got %s', util.show(f)) end
end

function M.check_index(op, i, n)
  if type(i) ~= 'number' or i % 1 ~= 0 or i < 1 or i > n then raise(op, 'there is no picture %s; there are %d', tostring(i), n) end
end

--- A list of corners as float32 n x 4 (also of none).
function M.boxes(list)
  if #list == 0 then return amp.empty({ 0, 4 }, { dtype = 'float32', device = 'cpu' }) end
  return amp.tensor(list, { dtype = 'float32', device = 'cpu' })
end

--- A list of labels as int64 n (also of none).
function M.labels(list)
  if #list == 0 then return amp.empty({ 0 }, { dtype = 'int64', device = 'cpu' }) end
  return amp.tensor(list, { dtype = 'int64', device = 'cpu' })
end

--- A picture of a file as float32 3 x H x W from 0 to 1.
function M.picture(op, path)
  return require('amp.data.image').read_for(op, path, 3):float() / 255
end

--- Text of a file, or an error that names it.
function M.text(op, path)
  local bytes, why = require('amp.io.file').text(path)
  if not bytes then raise(op, "cannot read '%s': %s", path, why) end
  return bytes
end

return M

--- Checks that the functions of amp.vision.ops share.
local amp = require 'amp'
local raise = require('amp.error').throw
local util = require 'amp.util'

local M = {}

--- A tensor, or an error.
function M.tensor(op, name, v)
  if not amp.is_tensor(v) then raise(op, '%s: a tensor expected, got %s', name, util.show(v)) end
  return v
end

--- t in the dtype that boxes are computed with.
function M.wide(t)
  if t.dtype == 'float32' or t.dtype == 'float64' then return t end
  return t:float()
end

--- Boxes, ... x 4 (of `dims` dimensions, if given), in the dtype that they are computed with.
function M.boxes(op, name, v, dims)
  M.tensor(op, name, v)
  if v:dim() < 1 or v:size(-1) ~= 4 or (dims and v:dim() ~= dims) then
    raise(op, '%s: %s expected, got %s', name, dims == 2 and 'K x 4' or 'corners in a last dimension of 4', util.shape(v:size()))
  end
  return M.wide(v)
end

--- All on one device, or an error that names them.
function M.together(op, names, ...)
  local first = (...).device
  for i = 2, select('#', ...) do
    local t = select(i, ...)
    if t.device ~= first then raise(op, '%s are on %s, %s on %s', names[1], first, names[i], t.device) end
  end
end

return M

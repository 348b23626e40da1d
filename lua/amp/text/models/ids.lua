--- Token ids as models take them: checks, lists and tensors.
-- @module amp.text.models.ids
local amp = require 'amp'
local core = require 'amp.ffi'
local err = require 'amp.error'
local util = require 'amp.util'

local M = {}

local integer = { int64 = true, int32 = true, int16 = true, uint8 = true, int8 = true }

--- Whether values may be read: not while a graph is recorded, whose ops check them at each run.
function M.readable() return core.C.amp_graph_recording(core.S) == 0 end

--- An error where a value of a tensor on the CPU is not in 1..most.
function M.in_range(op, what, t, most)
  if not M.readable() or t:numel() == 0 then return end
  local low, high = t:min():item(), t:max():item()
  if low < 1 or high > most then
    local bad = low < 1 and low or high
    err.throw(op, '%s %d is out of range: they count from 1 to %d%s', what, bad, most,
      low == 0 and "; published ids count from 0: add 1, as amp's tokenizers do" or '')
  end
end

--- Ids as a batch x length int64 tensor where the model is.
-- @treturn Tensor
-- @treturn boolean they were a vector
function M.matrix(op, ids, model)
  if type(ids) == 'table' then ids = M.tensor(op, ids) end
  if not amp.is_tensor(ids) then err.throw(op, 'ids are an int tensor (batch x length), got %s', util.show(ids)) end
  if not integer[ids.dtype] then err.throw(op, 'ids are integers, got %s; use ids:long()', ids.dtype) end
  local flat = ids:dim() == 1
  if flat then ids = ids:unsqueeze(1) end
  if ids:dim() ~= 2 then err.throw(op, 'ids of shape batch x length expected, got %s', util.shape(ids.shape)) end
  if ids:size(2) == 0 then err.throw(op, 'there are no ids (shape %s)', util.shape(ids.shape)) end
  if ids.device == 'cpu' then M.in_range(op, 'id', ids, model.config.vocab_size) end
  local device = model:device_of()
  if ids.device ~= device then ids = ids:to(device) end
  return ids, flat
end

--- A list of ids, or of such lists of one length, as an int64 tensor.
function M.tensor(op, list)
  if #list == 0 then err.throw(op, 'there are no ids: an empty list') end
  local rows = type(list[1]) == 'table' and list or { list }
  for r, row in ipairs(rows) do
    if type(row) ~= 'table' then err.throw(op, 'element %d is %s, a list of ids is expected', r, util.show(row)) end
    for i = 1, #row do
      if type(row[i]) ~= 'number' or row[i] % 1 ~= 0 then err.throw(op, 'id %d is %s, an integer is expected', i, util.show(row[i])) end
    end
    if #row ~= #rows[1] then err.throw(op, 'rows 1 and %d are of %d and %d ids', r, #rows[1], #row) end
  end
  return amp.tensor(list, { dtype = 'int64', device = 'cpu' })
end

return M

--- What a batcher does for requests that are texts or bytes and want a list of numbers: their numbers go straight to the rows of one
-- tensor, and what the model gives is read once for all. No tensor is made for a request.
local call = require 'amp.core.call'
local core = require 'amp.ffi'
local err = require 'amp.error'
local ffi = require 'ffi'
local types = require 'amp.types'
local util = require 'amp.util'
local C, S = core.C, core.S

local M = {}

local OP = 'serve.batcher'
local sizes, given = ffi.new 'int64_t[8]', ffi.new 'amp_ref[1]'

-- Of one sample: how many elements, how many bytes
local function measure(self)
  local shape = self.shape
  if not shape or not self.dtype then err.throw(OP, 'shape and dtype of a sample are to be said for batcher:numbers') end
  local count = 1
  for i = 1, #shape do
    if shape[i] < 0 then err.throw(OP, 'batcher:numbers needs a shape without -1, got {%s}', table.concat(shape, ', ')) end
    count = count * shape[i]
  end
  local code = types.dtype_code[self.dtype]
  self.row = { count = count, bytes = count * tonumber(C.amp_dtype_size(code)), code = code }
  return self.row
end

--- A body that was looked at, for `put`: its bytes, or what was read from its text; it is to be put before another one is read.
function M.read(self, body)
  local row = self.row or measure(self)
  if type(body) ~= 'string' then err.throw(OP, 'the body of a request expected, a string, got %s', util.show(body)) end
  if self.bytes then
    if #body == row.bytes then return body end
    err.throw_code('shape', OP, 'a sample is {%s} of %s, %d bytes, got %d', table.concat(self.shape, ', '), self.dtype, row.bytes, #body)
  end
  sizes[0] = row.count
  call.here()
  C.amp_release(given)
  local rc = C.amp_from_text(S, given, body, #body, 1, sizes, row.code)
  if rc < 0 then err.raise 'from_text' end
  return C.amp_data_ptr(S, given)
end

--- Room for the rows of a batch.
function M.open(self, batch)
  batch.all, self.spare = self.spare, nil
  if not batch.all then
    local shape = { self.max_batch }
    for i, n in ipairs(self.shape) do shape[i + 1] = n end
    batch.all = require('amp').empty(shape, { dtype = self.dtype, device = 'cpu' })
  end
  batch.at = ffi.cast('char *', C.amp_data_ptr(S, batch.all))
end

function M.put(self, batch, place, from) ffi.copy(batch.at + (place - 1) * self.row.bytes, from, self.row.bytes) end

--- Runs the model; each ticket knows afterwards where its numbers are.
function M.forward(self, list, batch)
  local amp = require 'amp'
  local n, all = #batch, batch.all
  local x = n < self.max_batch and all:narrow(1, 1, n) or all
  local y = amp.no_grad(self.model, x)
  if type(y) ~= 'cdata' or not core.is_ref(y) or y:dim() == 0 or y:size(1) ~= n then
    err.throw(OP, 'the model got a batch of %d and is to give one tensor of as many rows, got %s', n, util.show(y))
  end
  local count = y:numel()
  local data = ffi.new('double[?]', math.max(count, 1))
  call.attempt(OP, C.amp_read, S, y, data, count)
  self.spare, batch.all = all, nil -- it was read to the end
  for i = 1, #list do list[i].data, list[i].count = data, count / n end
end

--- The numbers of a ticket.
function M.list(ticket)
  local list, count = {}, ticket.count
  local at = ticket.data + (ticket.place - 1) * count
  for i = 1, count do list[i] = at[i - 1] end
  return list
end

return M

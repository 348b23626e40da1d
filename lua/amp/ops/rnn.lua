--- Recurrent functions as PyTorch calls them: the two states of an LSTM in one table. Each
-- also takes the row's own form (every tensor in a place of its own), which is what C programs
-- call.
-- @module amp.ops.rnn
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local ops = require 'amp.ops'
local util = require 'amp.util'
local istype, ref_t = ffi.istype, core.ref_t

local M = {}

-- The row's function and {h, c} spread out, where the states come in a table.
local function spread(op, input, state, ...)
  local row = ops.get(op)
  if type(state) ~= 'table' then return row(input, state, ...) end
  local h, c = state[1], state[2]
  if #state ~= 2 or not istype(ref_t, h) or not istype(ref_t, c) then
    err.throw(op, "argument 2 'hx' must be a tensor or the states {h, c}, got %s", #state == 2
      and '{' .. util.show(h) .. ', ' .. util.show(c) .. '}' or 'a table of ' .. #state)
  end
  return row(input, h, c, ...)
end

--- One step of an LSTM.
-- @tparam Tensor input batch x size, or size
-- @tparam table|Tensor state {h, c}, batch x hidden each; or h, and c as the next argument
-- @tparam Tensor w_ih 4 hidden x size, gates in the order i f g o
-- @tparam Tensor w_hh 4 hidden x hidden
-- @tparam ?Tensor b_ih 4 hidden
-- @tparam ?Tensor b_hh 4 hidden
-- @treturn Tensor h
-- @treturn Tensor c
-- @usage h, c = amp.lstm_cell(x, {h, c}, w_ih, w_hh)
function M.lstm_cell(input, state, ...) return spread('lstm_cell', input, state, ...) end

--- LSTM layers over a sequence; see nn.LSTM for a module.
-- @tparam Tensor input length x batch x size (batch x length x size with `batch_first`; length x size)
-- @tparam table|Tensor state {h, c}, layers * directions x batch x hidden each; or h, and c as the next argument
-- @tparam table weights for each layer and direction w_ih, w_hh, b_ih, b_hh (without the last two if not `bias`;
-- with `proj_size` w_hr after them); with `packed` the int64 batch sizes of the steps last of all
-- @tparam ?table options num_layers (1), bias (true), batch_first (false), bidirectional (false), dropout (0),
-- training (false), packed (false: input is length x ...), proj_size (0)
-- @treturn Tensor results of the last layer, length x batch x directions * hidden
-- @treturn Tensor last h
-- @treturn Tensor last c
-- @usage y, h, c = amp.lstm(x, {h, c}, weights, {num_layers = 2})
function M.lstm(input, state, ...) return spread('lstm', input, state, ...) end

return M

--- One step of recurrent nets: nn.RNNCell, nn.LSTMCell, nn.GRUCell, with parameters weight_ih,
-- weight_hh, bias_ih, bias_hh as PyTorch's.
local amp = require 'amp'
local options = require 'amp.options'
local util = require 'amp.util'
local Module = require 'amp.nn.module'
local initializers = require 'amp.nn.initializers'
local raise = require('amp.error').throw

local is_tensor = amp.is_tensor
local M = {}

local Cell = Module:extend('nn.Cell')

local function setup(self, gates, names, ...)
  local op = self.__name
  local o = options.arguments(op, names, 2, {bias = true, nonlinearity = #names == 4 and 'tanh' or nil}, ...)
  self.input_size = options.integer(op, 'input_size', o.input_size, 1)
  self.hidden_size = options.integer(op, 'hidden_size', o.hidden_size, 1)
  self.bias = options.boolean(op, 'bias', o.bias)
  if o.nonlinearity ~= nil and o.nonlinearity ~= 'tanh' and o.nonlinearity ~= 'relu' then
    raise(op, "nonlinearity must be 'tanh' or 'relu', got %s", util.show(o.nonlinearity))
  end
  self.nonlinearity = o.nonlinearity
  local rows = gates * self.hidden_size
  self:register_parameter('weight_ih', amp.empty(rows, self.input_size))
  self:register_parameter('weight_hh', amp.empty(rows, self.hidden_size))
  if o.bias then
    self:register_parameter('bias_ih', amp.empty(rows))
    self:register_parameter('bias_hh', amp.empty(rows))
  end
  self:reset_parameters()
end

--- Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(hidden_size).
function Cell:reset_parameters()
  local bound = 1 / math.sqrt(self.hidden_size)
  for _, p in ipairs(self:parameters()) do initializers.uniform_(p, -bound, bound) end
end

function Cell:extra_repr()
  return ('%d -> %d%s%s'):format(self.input_size, self.hidden_size, self.nonlinearity == 'relu' and ', relu' or '', self.bias and ''
    or ', no bias')
end

-- A state like x's batch: the given one, or zeros.
local function initial(self, x, state, what)
  if not is_tensor(x) then raise(self.__name, 'input must be a tensor, got %s', util.show(x)) end
  if state ~= nil then
    if not is_tensor(state) then raise(self.__name, '%s must be a tensor, got %s', what, util.show(state)) end
    return state
  end
  local o = {dtype = x.dtype, device = x.device}
  if x:dim() == 1 then return amp.zeros(self.hidden_size, o) end
  if x:dim() ~= 2 then raise(self.__name, 'input must have 2 dimensions (batch x size), or 1, got shape %s', util.shape(x:size())) end
  return amp.zeros(x:size(1), self.hidden_size, o)
end

local RNNCell = Cell:extend('nn.RNNCell')

--- h' = tanh(W_ih x + b_ih + W_hh h + b_hh).
-- @tparam number input_size
-- @tparam number hidden_size
-- @tparam ?table options bias (true), nonlinearity ('tanh' or 'relu')
-- @usage h = nn.RNNCell(8, 16)(x, h)
function RNNCell:init(...) setup(self, 1, {'input_size', 'hidden_size', 'bias', 'nonlinearity'}, ...) end

--- @tparam Tensor x batch x input_size, or input_size
-- @tparam ?Tensor h batch x hidden_size, default zeros
-- @treturn Tensor the new state
function RNNCell:forward(x, h)
  local step = self.nonlinearity == 'relu' and amp.rnn_relu_cell or amp.rnn_tanh_cell
  return step(x, initial(self, x, h, 'the state'), self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
end

local GRUCell = Cell:extend('nn.GRUCell')

--- A gated recurrent unit; options bias (true). Gates stand in the order r z n.
function GRUCell:init(...) setup(self, 3, {'input_size', 'hidden_size', 'bias'}, ...) end

--- As nn.RNNCell's.
function GRUCell:forward(x, h)
  return amp.gru_cell(x, initial(self, x, h, 'the state'), self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
end

local LSTMCell = Cell:extend('nn.LSTMCell')

--- A unit of long short-term memory; options bias (true). Gates stand in the order i f g o.
-- @usage h, c = nn.LSTMCell(8, 16)(x, {h, c})
function LSTMCell:init(...) setup(self, 4, {'input_size', 'hidden_size', 'bias'}, ...) end

--- @tparam Tensor x batch x input_size, or input_size
-- @tparam ?table state {h, c}, batch x hidden_size each, default zeros
-- @treturn Tensor h
-- @treturn Tensor c
function LSTMCell:forward(x, state)
  if state ~= nil and (type(state) ~= 'table' or #state ~= 2) then
    local got = is_tensor(state) and 'a tensor' or type(state) == 'table' and 'a table of ' .. #state or util.show(state)
    raise(self.__name, 'the state must be a table {h, c}, got %s', got)
  end
  local h, c = initial(self, x, state and state[1], 'h'), initial(self, x, state and state[2], 'c')
  return amp.lstm_cell(x, h, c, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
end

M.RNNCell, M.GRUCell, M.LSTMCell = RNNCell, GRUCell, LSTMCell
return M

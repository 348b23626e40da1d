--- Recurrent nets: nn.RNN, nn.LSTM, nn.GRU. Parameters have PyTorch's names, shapes and order
-- of gates: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, layers counted from 0, a second
-- direction ending in _reverse.
local amp = require 'amp'
local options = require 'amp.options'
local util = require 'amp.util'
local warn = require 'amp.core.warn'
local Module = require 'amp.nn.module'
local initializers = require 'amp.nn.initializers'
local packed = require 'amp.nn.packed'
local raise = require('amp.error').throw

local is_tensor = amp.is_tensor
local M = {}

-- -- What they share ------------------------------------------------------------

local Recurrent = Module:extend('nn.Recurrent')
local defaults = {
  num_layers = 1, bias = true, batch_first = false, dropout = 0, bidirectional = false, proj_size = 0, nonlinearity = 'tanh',
}

-- Read the constructor's arguments and make parameters; gates: rows of weights over hidden_size.
local function setup(self, gates, names, ...)
  local op = self.__name
  local known = {}
  for _, name in ipairs(names) do known[name] = defaults[name] end
  local o = options.arguments(op, names, 2, known, ...)
  for _, name in ipairs {'input_size', 'hidden_size', 'num_layers'} do self[name] = options.integer(op, name, o[name], 1) end
  for _, name in ipairs {'bias', 'batch_first', 'bidirectional'} do self[name] = options.boolean(op, name, o[name]) end
  self.dropout = options.number(op, 'dropout', o.dropout, 0, 1)
  self.proj_size = options.integer(op, 'proj_size', o.proj_size or 0, 0)
  if self.proj_size >= self.hidden_size then
    raise(op, 'proj_size must be less than hidden_size = %d, got %d', self.hidden_size, self.proj_size)
  end
  if o.nonlinearity ~= nil then
    if o.nonlinearity ~= 'tanh' and o.nonlinearity ~= 'relu' then
      raise(op, "nonlinearity must be 'tanh' or 'relu', got %s", util.show(o.nonlinearity))
    end
    self.nonlinearity = o.nonlinearity
  end
  if self.dropout > 0 and self.num_layers == 1 then
    local text = '%s: dropout stands after each layer but the last, so dropout = %g does nothing with num_layers = 1'
    warn.once(text:format(op, self.dropout))
  end
  local rows, out = gates * self.hidden_size, self.proj_size > 0 and self.proj_size or self.hidden_size
  local list = {}
  for l = 0, self.num_layers - 1 do
    for d = 1, o.bidirectional and 2 or 1 do
      local suffix = ('_l%d%s'):format(l, d == 2 and '_reverse' or '')
      local function add(name, ...)
        self:register_parameter(name .. suffix, amp.empty(...))
        list[#list + 1] = name .. suffix
      end
      add('weight_ih', rows, l == 0 and self.input_size or out * (o.bidirectional and 2 or 1))
      add('weight_hh', rows, out)
      if o.bias then
        add('bias_ih', rows)
        add('bias_hh', rows)
      end
      if self.proj_size > 0 then add('weight_hr', self.proj_size, self.hidden_size) end
    end
  end
  self.weight_names = list
  self:reset_parameters()
end

--- Draw the parameters anew, as PyTorch does: uniform within 1 / sqrt(hidden_size).
function Recurrent:reset_parameters()
  local bound = 1 / math.sqrt(self.hidden_size)
  for _, p in ipairs(self:parameters()) do initializers.uniform_(p, -bound, bound) end
end

--- Does nothing: weights are packed anew for each call. It is here for scripts that call it.
function Recurrent.flatten_parameters() end

function Recurrent:extra_repr()
  local parts = {('%d -> %d'):format(self.input_size, self.hidden_size)}
  if self.num_layers > 1 then parts[#parts + 1] = 'num_layers ' .. self.num_layers end
  if self.proj_size > 0 then parts[#parts + 1] = 'proj_size ' .. self.proj_size end
  if self.nonlinearity == 'relu' then parts[#parts + 1] = 'relu' end
  if not self.bias then parts[#parts + 1] = 'no bias' end
  if self.batch_first then parts[#parts + 1] = 'batch_first' end
  if self.dropout > 0 then parts[#parts + 1] = ('dropout %g'):format(self.dropout) end
  if self.bidirectional then parts[#parts + 1] = 'bidirectional' end
  return table.concat(parts, ', ')
end

-- -- Calls ------------------------------------------------------------------------

-- Input, whether it is packed, and the weights as the ops take them.
local function arguments(self, x)
  local is_packed = packed.is_packed(x)
  local data = is_packed and x.data or x
  if not is_tensor(data) then raise(self.__name, 'input must be a tensor or a PackedSequence, got %s', util.show(x)) end
  local weights = {}
  for i, name in ipairs(self.weight_names) do weights[i] = self[name] end
  if is_packed then weights[#weights + 1] = x.batch_sizes end
  return data, is_packed, weights
end

-- An initial state of `size` values in the order of a packed batch; zeros where none is given.
local function initial(self, x, data, state, size, what)
  if state ~= nil and not is_tensor(state) then raise(self.__name, '%s must be a tensor, got %s', what, util.show(state)) end
  local is_packed = data ~= x
  if state == nil then
    local n = self.num_layers * (self.bidirectional and 2 or 1)
    local o = {dtype = data.dtype, device = data.device}
    if is_packed then return amp.zeros(n, x.batch_sizes:tolist()[1], size, o) end
    if data:dim() == 2 then return amp.zeros(n, size, o) end
    if data:dim() ~= 3 then
      local order = self.batch_first and 'batch x length x size' or 'length x batch x size'
      raise(self.__name, 'input must have 3 dimensions (%s), or 2 without a batch, got shape %s', order, util.shape(data:size()))
    end
    return amp.zeros(n, data:size(self.batch_first and 1 or 2), size, o)
  end
  local sorted = is_packed and x.sorted_indices
  return sorted and state:dim() == 3 and state:size(2) == sorted:size(1) and state:index_select(2, sorted) or state
end

-- Results as they came in: packed again, states in the order of the sequences.
local function results(x, y) return packed.is_packed(x) and x:with(y) or y end
local function final(x, state)
  return packed.is_packed(x) and x.unsorted_indices and state:index_select(2, x.unsorted_indices) or state
end

-- -- Classes ------------------------------------------------------------------------

local RNN = Recurrent:extend('nn.RNN')

--- A simple recurrent net: h = tanh(W_ih x + b_ih + W_hh h + b_hh).
-- @tparam number input_size
-- @tparam number hidden_size
-- @tparam ?table options num_layers (1), nonlinearity ('tanh' or 'relu'), bias (true), batch_first (false), dropout
-- between layers (0), bidirectional (false)
-- @usage y, h = nn.RNN(8, 16, {num_layers = 2})(x)
function RNN:init(...)
  setup(self, 1, {'input_size', 'hidden_size', 'num_layers', 'nonlinearity', 'bias', 'batch_first', 'dropout', 'bidirectional'}, ...)
end

--- @tparam Tensor|PackedSequence x length x batch x input_size (batch x length x input_size with batch_first, or length x input_size)
-- @tparam ?Tensor state layers * directions x batch x hidden_size, default zeros
-- @treturn Tensor|PackedSequence length x batch x directions * hidden_size
-- @treturn Tensor the last state
function RNN:forward(x, state)
  local data, is_packed, weights = arguments(self, x)
  local h = initial(self, x, data, state, self.hidden_size, 'the state')
  local y, hn = amp.rnn(data, h, weights, self.num_layers, self.bias, self.batch_first, self.bidirectional, self.dropout,
    self.training, is_packed, self.nonlinearity)
  return results(x, y), final(x, hn)
end

local GRU = Recurrent:extend('nn.GRU')

--- A net of gated recurrent units; options as nn.RNN's without nonlinearity. Gates stand in the order r z n.
-- @usage y, h = nn.GRU(8, 16, {bidirectional = true})(x)
function GRU:init(...)
  setup(self, 3, {'input_size', 'hidden_size', 'num_layers', 'bias', 'batch_first', 'dropout', 'bidirectional'}, ...)
end

--- As nn.RNN's.
function GRU:forward(x, state)
  local data, is_packed, weights = arguments(self, x)
  local h = initial(self, x, data, state, self.hidden_size, 'the state')
  local y, hn = amp.gru(data, h, weights, self.num_layers, self.bias, self.batch_first, self.bidirectional, self.dropout,
    self.training, is_packed)
  return results(x, y), final(x, hn)
end

local LSTM = Recurrent:extend('nn.LSTM')

--- A net of LSTMs; options as nn.GRU's, and proj_size (0: none), to which each h is projected. Gates stand in
-- the order i f g o.
-- @usage y, state = nn.LSTM(8, 16)(x); y, state = net(x, state); h, c = state[1], state[2]
function LSTM:init(...)
  setup(self, 4, {'input_size', 'hidden_size', 'num_layers', 'bias', 'batch_first', 'dropout', 'bidirectional', 'proj_size'}, ...)
end

--- @tparam Tensor|PackedSequence x as nn.RNN's
-- @tparam ?table state {h, c}, default zeros
-- @treturn Tensor|PackedSequence results
-- @treturn table the last states, {h, c}
function LSTM:forward(x, state)
  local data, is_packed, weights = arguments(self, x)
  if state ~= nil and (type(state) ~= 'table' or #state ~= 2) then
    local got = is_tensor(state) and 'a tensor' or type(state) == 'table' and 'a table of ' .. #state or util.show(state)
    raise(self.__name, 'the state must be a table {h, c}, got %s', got)
  end
  local h = initial(self, x, data, state and state[1], self.proj_size > 0 and self.proj_size or self.hidden_size, 'h')
  local c = initial(self, x, data, state and state[2], self.hidden_size, 'c')
  local y, hn, cn = amp.lstm(data, h, c, weights, self.num_layers, self.bias, self.batch_first, self.bidirectional, self.dropout,
    self.training, is_packed, self.proj_size)
  return results(x, y), {final(x, hn), final(x, cn)}
end

M.RNN, M.GRU, M.LSTM = RNN, GRU, LSTM
return M

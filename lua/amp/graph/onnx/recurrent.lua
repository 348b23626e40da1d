--- Recurrent nets in ONNX: functions of the writer and a node that give the names of their results.
-- Gates stand in other orders: i f g o here and i o f c there, r z n here and z r h there.
-- @module amp.graph.onnx.recurrent
local X = {}

local orders = {LSTM = {1, 4, 2, 3}, GRU = {2, 1, 3}, RNN = {1}}

-- A weight's gates in ONNX's order, with a dimension for the direction.
local function gates(e, name, order)
  if #order > 1 then
    local parts, turned = {e:emit('Split', {name}, {axis = 0}, #order)}, {}
    for i, k in ipairs(order) do turned[i] = parts[k] end
    name = e:emit('Concat', turned, {axis = 0})
  end
  return name
end

local function directions(e, names)
  for d, name in ipairs(names) do names[d] = e:emit('Unsqueeze', {name, e:ints {0}}) end
  return #names == 1 and names[1] or e:emit('Concat', names, {axis = 0})
end

local function zeros(e, count, dtype)
  local list = {}
  for i = 1, count do list[i] = 0 end
  return e:const(list, dtype)
end

-- Weights W, R, B of a layer, whose own begin at operand `at`; and the operand after them.
local function weights_of(e, n, at, op, count, bias, dtype)
  local w, r, b = {}, {}, {}
  for d = 1, count do
    w[d], r[d] = gates(e, n:input(at, dtype), orders[op]), gates(e, n:input(at + 1, dtype), orders[op])
    at = at + 2
    if bias then
      local both = {}
      for i = 0, 1 do -- a cell may have one of them
        both[i + 1] = n:has(at + i) and gates(e, n:input(at + i, dtype), orders[op]) or zeros(e, n:shape(at - 2)[1], dtype)
      end
      b[d] = e:emit('Concat', both, {axis = 0})
      at = at + 2
    end
  end
  return directions(e, w), directions(e, r), bias and directions(e, b) or '', at
end

local function check(n)
  if n:attr 'packed' then n:fail 'has no counterpart for packed sequences' end
  if n:attr 'training' and n:attr 'dropout' > 0 then n:fail 'is in training mode; call net:eval() before the graph is traced' end
end

-- Rows of a state that belong to a layer.
local function state(e, name, layer, count)
  return e:emit('Slice', {name, e:ints {layer * count}, e:ints {(layer + 1) * count}, e:ints {0}})
end

local function join(e, names) return #names == 1 and names[1] or e:emit('Concat', names, {axis = 0}) end

-- Layers over a sequence; states: how many there are (2 of an LSTM).
local function layers(op, states)
  return function(e, n)
    check(n)
    if op == 'LSTM' and n:attr 'proj_size' > 0 then n:fail 'has no counterpart with proj_size' end
    local dtype, count, depth, bias = n:result().dtype, n:attr 'bidirectional' and 2 or 1, n:attr 'num_layers', n:attr 'bias'
    local x, first, single = n:input(1, dtype), n:attr 'batch_first', n:rank(1) == 2
    if single then x = e:emit('Unsqueeze', {x, e:ints {1}})
    elseif first then x = e:emit('Transpose', {x}, {perm = {1, 0, 2}}) end
    local start, ends = {}, {}
    for s = 1, states do
      start[s], ends[s] = n:input(s + 1, dtype), {}
      if single then start[s] = e:emit('Unsqueeze', {start[s], e:ints {1}}) end
    end
    local at = states + 2
    local hidden = n:shape(at + 1)[2]
    local attrs = {hidden_size = hidden, direction = count == 2 and 'bidirectional' or 'forward'}
    if op == 'GRU' then attrs.linear_before_reset = 1 end
    if op == 'RNN' then attrs.activations = count == 2 and {n:attr 'mode', n:attr 'mode'} or {n:attr 'mode'} end
    if op == 'RNN' then
      for i, word in ipairs(attrs.activations) do attrs.activations[i] = word == 'relu' and 'Relu' or 'Tanh' end
    end
    for layer = 0, depth - 1 do
      local w, r, b
      w, r, b, at = weights_of(e, n, at, op, count, bias, dtype)
      local operands = {x, w, r, b, ''}
      for s = 1, states do operands[5 + s] = depth == 1 and start[s] or state(e, start[s], layer, count) end
      local results = {e:emit(op, operands, attrs, 1 + states)}
      for s = 1, states do ends[s][layer + 1] = results[1 + s] end
      x = e:emit('Reshape', {e:emit('Transpose', {results[1]}, {perm = {0, 2, 1, 3}}), e:ints {0, 0, count * hidden}})
    end
    if single then x = e:emit('Squeeze', {x, e:ints {1}})
    elseif first then x = e:emit('Transpose', {x}, {perm = {1, 0, 2}}) end
    local out = {x}
    for s = 1, states do
      out[1 + s] = join(e, ends[s])
      if single then out[1 + s] = e:emit('Squeeze', {out[1 + s], e:ints {1}}) end
    end
    return unpack(out)
  end
end

X.lstm, X.gru, X.rnn = layers('LSTM', 2), layers('GRU', 1), layers('RNN', 1)

-- One step: a sequence of length 1.
local function cell(op, states, activation)
  return function(e, n)
    local dtype, single = n:result().dtype, n:rank(1) == 1
    local axes = e:ints(single and {0, 1} or {0})
    local operands = {e:emit('Unsqueeze', {n:input(1, dtype), axes})}
    local at = states + 2
    operands[2], operands[3], operands[4] = weights_of(e, n, at, op, 1, n:has(at + 2) or n:has(at + 3), dtype)
    operands[5] = ''
    for s = 1, states do operands[5 + s] = e:emit('Unsqueeze', {n:input(s + 1, dtype), axes}) end
    local attrs = {hidden_size = n:shape(at + 1)[2]}
    if op == 'GRU' then attrs.linear_before_reset = 1 end
    if activation then attrs.activations = {activation} end
    local results = {e:emit(op, operands, attrs, 1 + states)}
    local out = {}
    for s = 1, states do out[s] = e:emit('Squeeze', {results[1 + s], axes}) end
    return unpack(out)
  end
end

X.lstm_cell, X.gru_cell = cell('LSTM', 2), cell('GRU', 1)
X.rnn_tanh_cell, X.rnn_relu_cell = cell('RNN', 1, 'Tanh'), cell('RNN', 1, 'Relu')

return X

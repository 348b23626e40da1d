--- LSTM, GRU and RNN of ONNX by amp's rows. Gates stand in other orders: i o f c there and i f g o here, z r h there and r z n here.
-- @module amp.io.onnx.recurrent
local ops = require 'amp.ops'
local get = ops.get

local M = {}

-- Parts of a direction's weights (rows of dimension 1) in amp's order.
local function gates(t, order, hidden)
  if #order == 1 then return t end
  local parts = {}
  for i, k in ipairs(order) do parts[i] = get 'narrow'(t, 1, (k - 1) * hidden + 1, hidden) end
  return get 'cat'(parts, 1)
end

local orders = {LSTM = {1, 3, 4, 2}, GRU = {2, 1, 3}, RNN = {1}}
local standard = {LSTM = {'sigmoid', 'tanh', 'tanh'}, GRU = {'sigmoid', 'tanh'}, RNN = {'tanh'}}

local function activation(n, directions)
  local given, own = n:attr 'activations', standard[n.op]
  n:attr 'activation_alpha'
  n:attr 'activation_beta'
  local mode = 'tanh'
  for i = 1, directions * #own do
    local name = given and given[i] and given[i]:lower() or own[(i - 1) % #own + 1]
    if n.op == 'RNN' and (name == 'relu' or name == 'tanh') then
      if i > 1 and name ~= mode then n:fail "attribute 'activations' has two kinds for two directions" end
      mode = name
    elseif name ~= own[(i - 1) % #own + 1] then n:fail("attribute 'activations' has %s, which is not supported", name) end
  end
  return mode
end

local function options_of(n)
  local direction = n:attr('direction', 'forward')
  local directions = direction == 'bidirectional' and 2 or 1
  if directions == 1 and direction ~= 'forward' and direction ~= 'reverse' then n:fail("attribute 'direction' is '%s'", direction) end
  if n:attr 'clip' then n:fail "attribute 'clip' is not supported" end
  if n:attr('input_forget', 0) ~= 0 then n:fail "attribute 'input_forget' is not supported" end
  n:attr('output_sequence', 0)
  return {directions = directions, reverse = direction == 'reverse', batch_first = n:attr('layout', 0) == 1, mode = activation(n, directions)}
end

-- Lengths are of use only where they are all the whole length.
local function check_lengths(n, i, length)
  if not n:has(i) then return end
  for _, k in ipairs(n:list(i, 'sequence_lens')) do
    if k ~= length then n:fail('operand %d (sequence_lens) has lengths below %d, which is not supported', i, length) end
  end
end

local function weights_of(n, o, hidden)
  local w, r, b = n:tensor(2), n:tensor(3), n:tensor(4, true)
  local order, list, count = orders[n.op], {}, #orders[n.op]
  for d = 1, o.directions do
    list[#list + 1] = gates(get 'select'(w, 1, d), order, hidden)
    list[#list + 1] = gates(get 'select'(r, 1, d), order, hidden)
    if b then
      local one = get 'select'(b, 1, d)
      list[#list + 1] = gates(get 'narrow'(one, 1, 1, count * hidden), order, hidden)
      list[#list + 1] = gates(get 'narrow'(one, 1, count * hidden + 1, count * hidden), order, hidden)
    end
  end
  return list, b ~= nil
end

-- A state, D x N x H.
local function state(n, o, i, batch, hidden, dtype)
  if not n:has(i) then return n:full({o.directions, batch, hidden}, 0, dtype) end
  local t = n:tensor(i)
  return o.batch_first and get 'transpose'(t, 1, 2) or t
end

-- Results of T x N x (D H) as ONNX has them: T x D x N x H, or N x T x D x H.
local function given(o, out, hidden)
  local s = out:size()
  local y = get 'reshape'(out, {s[1], s[2], o.directions, hidden})
  if o.reverse then y = get 'flip'(y, {1}) end
  return get 'permute'(y, o.batch_first and {2, 1, 3, 4} or {1, 3, 2, 4})
end

local function last(o, h) return o.batch_first and get 'transpose'(h, 1, 2) or h end

-- A GRU whose reset gate is applied before the product: step by step.
local function gru_before(n, o, x, weights, bias, h0, hidden)
  local steps, per = x:size(1), bias and 4 or 2
  if steps > 2000 then n:fail('with linear_before_reset 0 runs step by step, which is supported for up to 2000 steps, not %d', steps) end
  local all, ends = {}, {}
  for d = 1, o.directions do
    local w, r = weights[(d - 1) * per + 1], weights[(d - 1) * per + 2]
    local bw, br = weights[(d - 1) * per + 3], weights[(d - 1) * per + 4]
    if not bias then bw, br = nil, nil end
    local function part(t, from, count) return t and get 'narrow'(t, 1, from * hidden + 1, count * hidden) end
    local projected = get 'linear'(x, w, bw)
    local h, list = get 'select'(h0, 1, d), {}
    for s = 1, steps do
      local t = (d == 2 and not o.reverse) and steps + 1 - s or s
      local row = get 'select'(projected, 1, t)
      local gate = get 'sigmoid'(get 'add'(get 'narrow'(row, 2, 1, 2 * hidden), get 'linear'(h, part(r, 0, 2), part(br, 0, 2))))
      local reset, keep = get 'narrow'(gate, 2, 1, hidden), get 'narrow'(gate, 2, hidden + 1, hidden)
      local inner = get 'linear'(get 'mul'(reset, h), part(r, 2, 1), part(br, 2, 1))
      local new = get 'tanh'(get 'add'(get 'narrow'(row, 2, 2 * hidden + 1, hidden), inner))
      h = get 'add'(new, get 'mul'(keep, get 'sub'(h, new)))
      list[t] = h
    end
    all[d], ends[d] = get 'stack'(list, 1), h
  end
  return #all == 1 and all[1] or get 'cat'(all, 3), get 'stack'(ends, 1)
end

local function run(n, f)
  local o = options_of(n)
  local x = n:tensor(1)
  if x:dim() ~= 3 or n:tensor(2):dim() ~= 3 or n:tensor(3):dim() ~= 3 then n:fail 'takes data and weights of 3 dimensions' end
  if o.batch_first then x = get 'transpose'(x, 1, 2) end
  local hidden = n:tensor(3):size(3)
  if n:attr('hidden_size', hidden) ~= hidden then n:fail("attribute 'hidden_size' is %d, the weights have %d", n:attr 'hidden_size', hidden) end
  if n:tensor(2):size(1) ~= o.directions then n:fail('has weights of %d directions', n:tensor(2):size(1)) end
  check_lengths(n, 5, x:size(1))
  if o.reverse then x = get 'flip'(x, {1}) end
  local weights, bias = weights_of(n, o, hidden)
  local h0 = state(n, o, 6, x:size(2), hidden, x.dtype)
  local out, h, c = f(o, x, weights, bias, h0, hidden)
  return given(o, out, hidden), last(o, h), c and last(o, c)
end

function M.LSTM(n)
  if n:has(8) then n:fail 'has peepholes (operand 8), which are not supported' end
  return run(n, function(o, x, weights, bias, h0, hidden)
    local c0 = state(n, o, 7, x:size(2), hidden, x.dtype)
    return get 'lstm'(x, h0, c0, weights, 1, bias, false, o.directions == 2)
  end)
end

function M.GRU(n)
  local after = n:attr('linear_before_reset', 0) ~= 0
  return run(n, function(o, x, weights, bias, h0, hidden)
    if not after then return gru_before(n, o, x, weights, bias, h0, hidden) end
    return get 'gru'(x, h0, weights, 1, bias, false, o.directions == 2)
  end)
end

function M.RNN(n)
  return run(n, function(o, x, weights, bias, h0)
    return get 'rnn'(x, h0, weights, 1, bias, false, o.directions == 2, 0, false, false, o.mode)
  end)
end

return M

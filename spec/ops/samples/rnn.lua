--- Recurrent nets: what fixtures can't say (dropout, the rows under the layers), and wrong calls.
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'

local closed, wrong = {}, {}

-- weights of `layers` layers of a net with so many gates, requiring grad
local function weights(gates, size, hidden, layers, dtype)
  local list = {}
  for l = 1, layers or 1 do
    for i, shape in ipairs { { gates * hidden, l == 1 and size or hidden }, { gates * hidden, hidden }, { gates * hidden }, { gates * hidden } } do
      list[(l - 1) * 4 + i] = amp.empty(shape):uniform_(-0.5, 0.5):to(dtype or 'float32'):detach():requires_grad_()
    end
  end
  return list
end

function closed.lstm()
  amp.manual_seed(2)
  local w = weights(4, 3, 6, 2)
  local x, h, c = amp.randn(4, 2, 3), amp.zeros(2, 2, 6), amp.zeros(2, 2, 6)
  local function run(p, training) return amp.lstm(x, h, c, w, { num_layers = 2, dropout = p, training = training }) end
  -- dropout stands between layers, in training only
  H.same(run(0.5, false), run(0, true))
  local y, hn = run(1, true)
  local zeros = amp.lstm(amp.zeros(4, 2, 6), h[{ { 2, 2 } }], c[{ { 2, 2 } }], { w[5], w[6], w[7], w[8] })
  H.same(y, zeros)
  H.same(hn[2], y[4])
  amp.manual_seed(3)
  local a = run(0.5, true)
  assert.is_true((a - run(0, true)):abs():max():item() > 1e-4)
  -- two states in a table, as PyTorch takes them
  H.same(amp.lstm(x, { h, c }, w, { num_layers = 2 }), run(0, false))
  H.same(amp.lstm_cell(x[1], { h[1], c[1] }, w[1], w[2], w[3], w[4]), amp.lstm_cell(x[1], h[1], c[1], w[1], w[2], w[3], w[4]))
  -- a last state is no view of the results
  local _, last = amp.lstm(x, h, c, w, { num_layers = 2 })
  assert.is_false(last:shares_storage(y))
end

-- in a region all goes to its dtype, weights once, and gradients come back in the leaves'
function closed.gru()
  amp.manual_seed(4)
  local w = weights(3, 5, 4)
  local x, h = amp.randn(3, 2, 5, { requires_grad = true }), amp.zeros(1, 2, 4)
  for _, low in ipairs { 'bfloat16', 'float16' } do
    local before = amp.counters()
    amp.autocast({ dtype = low }, function()
      local y, hn = amp.gru(x, h, w)
      assert.equal(low, y.dtype)
      assert.equal(low, hn.dtype)
      amp.gru(x, h, w)
      local after = amp.counters()
      assert.equal(5, after.cached_casts - before.cached_casts)
      y:float():sum():backward()
    end)
    for _, p in ipairs { x, w[1], w[4] } do assert.equal('float32', p.grad.dtype) end
  end
  H.fails(function() amp.gru(x, h, { w[1], w[2], w[3], w[4]:half() }) end, 'gru', 'b_hh', 'float16', 'autocast')
end

-- Values and both derivatives of the row are those of the ops over it; here: gradients that are not asked for, 16-bit.
function closed.rnn_layer()
  amp.manual_seed(5)
  for mode, gates in pairs { tanh = 1, relu = 1, lstm = 4, gru = 3 } do
    for _, dt in ipairs(H.floats) do
      for _, reverse in ipairs { false, true } do
        local function leaf(...) return amp.empty(...):uniform_(-1, 1):to(dt):detach():requires_grad_() end
        local inp = { leaf(3, 5, 4), leaf(5, 7), mode == 'lstm' and leaf(5, 7), leaf(gates * 7, 4), leaf(gates * 7, 7), leaf(gates * 7), false,
          false }
        local function gradients(create, pick)
          local out = ops.raw('rnn_layer', inp, { mode = mode, reverse = reverse })
          local leaves = { inp[1], inp[2], inp[4], inp[5], inp[6] }
          return amp.grad({ pick(out) }, leaves, { create_graph = create })
        end
        -- the fused steps and the recorded ones agree
        for _, pick in ipairs { function(o) return o[1]:sum() end, function(o) return (o[2] * 2):sum() end,
          function(o) return o[1][1]:sum() + o[2]:sum() end } do
          local a, b = gradients(false, pick), gradients(true, pick)
          for i = 1, #a do
            assert.equal(dt, a[i].dtype)
            local scale = math.max(1, b[i]:double():abs():max():item())
            local off = (a[i]:double() - b[i]:double()):abs():max():item() / scale
            assert.is_true(off < ({ float64 = 1e-12, float32 = 1e-5, float16 = 4e-3, bfloat16 = 3e-2 })[dt],
              ('%s %s %s: gradient %d is off by %g'):format(mode, dt, tostring(reverse), i, off))
          end
        end
      end
    end
  end
end

function closed.rnn_layer_backward()
  -- dg of one step of tanh: g (1 - y^2); the state before is hx
  local y, g = H.make({ 0.5, -0.25 }, { 1, 1, 2 }, 'float64'), H.make({ 1, 2 }, { 1, 1, 2 }, 'float64')
  local w, hx = H.make({ 1, 2, 3, 4 }, { 2, 2 }, 'float64'), H.make({ 7, 8 }, { 1, 2 }, 'float64')
  local out = ops.raw('rnn_layer_backward', { g, false, false, H.make({ 0.5, -0.25 }, { 2 }, 'float64'), w, y, hx, false }, { mode = 'tanh' })
  H.close(out[1], { 0.75, 1.875 })
  H.close(out[2], { 0.75 + 3 * 1.875, 1.5 + 4 * 1.875 })
end

local W, U, B = { 8, 3 }, { 8, 2 }, { 8 }
wrong.lstm_cell = {
  { { { 5, 3 }, { 5, 2 }, { 4, 2 }, W, U, B, B }, {}, { 'cx', '4x2', '5x2' } },
  { { { 5, 4 }, { 5, 2 }, { 5, 2 }, W, U, B, B }, {}, { '5x4', '8x3' } },
  { { { 5, 3 }, { 5, 2 }, { 5, 2 }, W, { 6, 2 }, B, B }, {}, { 'w_hh', '6x2' } },
  { { { 5, 3 }, { 5, 2 }, { 5, 2 }, W, U, { 7 }, B }, {}, { 'b_ih', '7', '8' } },
  { { { 2, 5, 3 }, { 5, 2 }, { 5, 2 }, W, U, B, B }, {}, { '2x5x3' } },
  { { { 5, 3 }, { 5, 2 }, { dtype = 'float64', 5, 2 }, W, U, B, B }, {}, { 'float32', 'cx', 'float64' } },
}
for name, gates in pairs { rnn_tanh_cell = 1, rnn_relu_cell = 1, gru_cell = 3 } do
  local w, u, b = { 2 * gates, 3 }, { 2 * gates, 2 }, { 2 * gates }
  wrong[name] = {
    { { { 5, 3 }, { 4, 2 }, w, u, b, b }, {}, { 'hx', '4x2', '5x2' } },
    { { { 5, 3 }, { 5, 3 }, w, u, b, b }, {}, { 'hx', '5x3', '5x2' } },
    { { { 5, 4 }, { 5, 2 }, w, u, b, b }, {}, { '5x4', 2 * gates .. 'x3' } },
    { { { 5, 3 }, { 5, 2 }, w, u, b, { 5 } }, {}, { 'b_hh', '5', tostring(2 * gates) } },
    { { { 5, 3 }, { 5, 2 }, w, { dtype = 'float64', 2 * gates, 2 }, b, b }, {}, { 'float32', 'w_hh', 'float64' } },
    { { { 3 }, { 1, 2 }, w, u, b, b }, {}, { 'hx', '1x2', '2' } },
  }
end
for name, gates in pairs { rnn = 1, gru = 3 } do
  local w, u, b = { 2 * gates, 3 }, { 2 * gates, 2 }, { 2 * gates }
  local all, counts = { list = { w, u, b, b } }, { dtype = 'int64', fill = 2, 3 }
  local packed = { list = { w, u, b, b, counts } }
  wrong[name] = {
    { { { 4, 5, 3 }, { 1, 4, 2 }, all }, {}, { 'hx', '1x4x2', '1x5x2' } },
    { { { 4, 5, 3 }, { 1, 5, 2 }, { list = { w, u, b } } }, {}, { '3', '4' } },
    { { { 4, 5, 3 }, { 2, 5, 2 }, all }, { num_layers = 2 }, { '4', '8', '2 layers' } },
    { { { 4, 5, 4 }, { 1, 5, 2 }, all }, {}, { '4x5x4', 2 * gates .. 'x3' } },
    { { { 0, 5, 3 }, { 1, 5, 2 }, all }, {}, { '0x5x3', 'step' } },
    { { { 4, 5, 3 }, { 1, 5, 2 }, all }, { dropout = 2 }, { 'dropout', '2' } },
    { { { 4, 5, 3 }, { 0, 5, 2 }, all }, { num_layers = 0 }, { 'num_layers', '0' } },
    { { { 4, 5, 3 }, { 1, 5, 2 }, { list = { w, u, b, { 9 } } } }, {}, { 'b_hh of layer 1', '9' } },
    { { { 3 }, { 1, 5, 2 }, all }, {}, { 'input', '3' } },
    { { { 5, 3 }, { 1, 2, 2 }, packed }, { packed = true }, { '6', '5' } },
    { { { 6, 3 }, { 1, 3, 2 }, packed }, { packed = true }, { 'hx', '1x3x2', '1x2x2' } },
    { { { 6, 3 }, { 1, 2, 2 }, { list = { w, u, b, b, b } } }, { packed = true }, { 'batch_sizes', 'int64' } },
    { { { 4, 5, 3 }, { 1, 5, 2 }, { list = { w, { dtype = 'float16', 2 * gates, 2 }, b, b } } }, {}, { 'float32', 'w_hh of layer 1', 'float16' } },
  }
end
local all = { list = { W, U, B, B } }
wrong.lstm = {
  { { { 4, 5, 3 }, { 1, 5, 2 }, { 1, 4, 2 }, all }, {}, { 'cx', '1x4x2', '1x5x2' } },
  { { { 4, 5, 3 }, { 1, 5, 2 }, { 1, 5, 2 }, all }, { proj_size = 1 }, { '4', '5' } },
  { { { 4, 5, 3 }, { 1, 5, 2 }, { 1, 5, 2 }, { list = { W, U, B, B, { 3, 2 } } } }, { proj_size = 3 }, { 'proj_size', '3', '2' } },
  { { { 4, 5, 3 }, { 1, 5, 2 }, { 1, 5, 2 }, all }, { bidirectional = true }, { '4', '8', 'both directions' } },
}

return { closed = closed, wrong = wrong, lowering = { rnn = true, lstm = true, gru = true } }

--- nn: recurrent nets, their cells, and packed sequences.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn = amp.nn
local rnn = nn.utils.rnn

local function tensor(f) return H.make(f.v, f.s, 'float32') end

local function warnings(fn)
  local list, before = {}, amp.warn
  amp.warn = function(m) list[#list + 1] = m end
  local ok, e = pcall(fn)
  amp.warn = before
  if not ok then error(e, 0) end
  return list
end

describe('recurrent modules', function()
  for i, c in ipairs(H.fixture 'layers_rnn.txt') do
    it(('agree with PyTorch: %s%s, case %d'):format(c.new, c.lengths and ', packed' or '', i), function()
      local m = loadstring('local nn = ... return ' .. c.new)(nn)
      local state, count = {}, 0
      for name, f in pairs(c.state) do state[name] = tensor(f) end
      m:load_state_dict(state) -- strict: names and shapes are PyTorch's
      local x = tensor(c.x)
      x.requires_grad = true
      local init
      if c.init then init = #c.init == 2 and { tensor(c.init[1]), tensor(c.init[2]) } or tensor(c.init[1]) end
      local arg = x
      if c.lengths then arg = rnn.pack_padded_sequence(x, c.lengths, { batch_first = m.batch_first, enforce_sorted = false }) end
      local y, last = m(arg, init)
      if c.lengths then
        local lengths
        y, lengths = rnn.pad_packed_sequence(y, { batch_first = m.batch_first })
        H.close(lengths, c.lengths, H.exact)
      end
      H.close(y, c.out, 4, 'results')
      local sum = 0
      last = type(last) == 'table' and last or { last }
      assert.equal(#c.last, #last)
      for k, f in ipairs(c.last) do
        H.close(last[k], f, 4, 'last state')
        sum = last[k]:sum() + sum
      end
      local w = {}
      for k = 0, y:numel() - 1 do w[k + 1] = 0.3 + ((k * 7) % 11) / 10 end
      ((y * H.make(w, H.shape(y))):sum() + sum):backward()
      H.close(x.grad, c.grad.x, 16, 'gradient of the input')
      for name, p in m:named_parameters() do
        H.close(p.grad, c.grad[name], 16, 'gradient of ' .. name)
        count = count + 1
      end
      for _ in pairs(c.state) do count = count - 1 end
      assert.equal(0, count)
    end)
  end

  it('register parameters in the order of PyTorch', function()
    local function names(m)
      local list = {}
      for name in m:named_parameters() do list[#list + 1] = name end
      return table.concat(list, ' ')
    end
    assert.equal('weight_ih_l0 weight_hh_l0 bias_ih_l0 bias_hh_l0 weight_ih_l1 weight_hh_l1 bias_ih_l1 bias_hh_l1', names(nn.LSTM(2, 3, 2)))
    assert.equal('weight_ih_l0 weight_hh_l0 weight_ih_l0_reverse weight_hh_l0_reverse', names(nn.GRU(2, 3, { bias = false, bidirectional = true })))
    assert.equal('weight_ih weight_hh bias_ih bias_hh', names(nn.LSTMCell(2, 3)))
    assert.equal('12x6', tostring(nn.LSTM(2, 3, { num_layers = 2, bidirectional = true }).weight_ih_l1:size()))
  end)

  it('start uniform within 1 / sqrt(hidden_size)', function()
    amp.manual_seed(1)
    for _, m in ipairs { nn.LSTM(9, 16, 2), nn.GRUCell(5, 16) } do
      local most = 0
      for _, p in ipairs(m:parameters()) do most = math.max(most, p:abs():max():item()) end
      assert.is_true(most <= 0.25 and most > 0.24, most)
    end
  end)

  it('print what they were made of', function()
    assert.equal('nn.LSTM(3 -> 4)', tostring(nn.LSTM(3, 4)))
    assert.equal('nn.LSTM(3 -> 4, num_layers 2, proj_size 2, no bias, batch_first, dropout 0.5, bidirectional)',
      tostring(nn.LSTM(3, 4, { num_layers = 2, proj_size = 2, bias = false, batch_first = true, dropout = 0.5, bidirectional = true })))
    assert.equal('nn.RNN(3 -> 4, relu)', tostring(nn.RNN(3, 4, { nonlinearity = 'relu' })))
    assert.equal('nn.RNNCell(3 -> 4, relu, no bias)', tostring(nn.RNNCell(3, 4, { nonlinearity = 'relu', bias = false })))
    assert.equal('nn.utils.rnn.PackedSequence(2 sequences, 3 steps, data 4x5)', tostring(rnn.pack_padded_sequence(amp.zeros(3, 2, 5), { 3, 1 })))
  end)

  it('drop between layers in training only, and warn where there is nothing to drop', function()
    amp.manual_seed(1)
    local m = nn.LSTM(3, 8, { num_layers = 2, dropout = 0.5 })
    local x = amp.randn(4, 2, 3)
    local a, b = m(x), m(x)
    assert.is_false(a:allclose(b))
    m:eval()
    H.same(m(x), (m(x)))
    local list = warnings(function() nn.GRU(3, 4, { dropout = 0.25 }) end)
    assert.equal(1, #list)
    assert.is_truthy(list[1]:find('num_layers = 1', 1, true))
  end)

  it('carry a state on: two halves give what the whole gives', function()
    for _, class in ipairs { 'RNN', 'GRU', 'LSTM' } do
      local m = nn[class](3, 4, 2)
      local x = amp.randn(6, 2, 3)
      local y = m(x)
      local y1, s = m(x:narrow(1, 1, 2))
      local y2 = m(x:narrow(1, 3, 4), s)
      assert.is_true(amp.cat({ y1, y2 }, 1):allclose(y, { rtol = 1e-5, atol = 1e-6 }))
      m:flatten_parameters()
    end
  end)

  it('are a cell at each step', function()
    local m, cell = nn.LSTM(3, 4), nn.LSTMCell(3, 4)
    for _, name in ipairs { 'weight_ih', 'weight_hh', 'bias_ih', 'bias_hh' } do cell[name] = m[name .. '_l0'] end
    local x = amp.randn(5, 2, 3)
    local y = m(x)
    local h, c
    for t = 1, 5 do
      h, c = cell(x[t], h and { h, c })
      assert.is_true(h:allclose(y[t], { rtol = 1e-5, atol = 1e-6 }))
    end
  end)

  it('run in the low dtype in a region, whatever goes in, and train', function()
    for _, class in ipairs { 'RNN', 'GRU', 'LSTM' } do
      for _, low in ipairs { 'bfloat16', 'float16' } do
        local m = nn[class](16, 24, { num_layers = 2, bidirectional = true })
        local x = amp.randn(5, 3, 16)
        amp.autocast({ dtype = low }, function()
          local y, s = m(x)
          assert.equal(low, y.dtype)
          s = class == 'LSTM' and s or { s }
          for _, t in ipairs(s) do assert.equal(low, t.dtype) end
          local z = m(x:to(low == 'float16' and 'bfloat16' or 'float16'), class == 'LSTM' and { s[1]:float(), s[2] } or s[1]:float())
          assert.equal(low, z.dtype)
          y:float():sum():backward()
        end)
        local full = m(x)
        local half = amp.autocast({ dtype = low }, function() return (m(x)) end)
        assert.is_true(half:float():allclose(full, { rtol = 0, atol = low == 'float16' and 4e-3 or 3e-2 }))
        for name, p in m:named_parameters() do
          assert.equal('float32', p.grad.dtype, name)
          assert.is_true(p.grad:isfinite():all():item() and true, name)
        end
      end
    end
  end)

  it('have second derivatives', function()
    for _, class in ipairs { 'RNN', 'GRU', 'LSTM' } do
      local m = nn[class](2, 3, { bidirectional = true }):double()
      local x = amp.randn(3, 2, 2, { dtype = 'float64', requires_grad = true })
      assert.is_true(amp.gradcheck(function(v) return (m(v)) end, { x }))
      assert.is_true(amp.gradgradcheck(function(v) return (m(v)) end, { x }))
    end
  end)

  it('say what is wrong with a call', function()
    local m = nn.LSTM(3, 4)
    H.fails(function() m(amp.zeros(5, 2, 6)) end, 'nn.LSTM', '5x2x6', '6', '3')
    H.fails(function() m(amp.zeros(5, 2, 3), { amp.zeros(1, 3, 4), amp.zeros(1, 2, 4) }) end, '1x3x4', '1x2x4')
    H.fails(function() m(amp.zeros(5, 2, 3), amp.zeros(1, 2, 4)) end, '{h, c}', 'a tensor')
    H.fails(function() m(amp.zeros(0, 2, 3)) end, '0x2x3')
    H.fails(function() m(amp.zeros(3)) end, 'length', '3')
    H.fails(function() m 'x' end, 'PackedSequence', 'x')
    H.fails(function() m(amp.zeros(5, 2, 3, { dtype = 'float64' })) end, 'float64', 'float32')
    H.fails(function() nn.GRU(3, 4)(amp.zeros(5, 2, 3), { amp.zeros(1, 2, 4) }) end, 'nn.GRU', 'tensor', 'table')
    H.fails(function() nn.LSTMCell(3, 4)(amp.zeros(2, 3), amp.zeros(2, 4)) end, '{h, c}')
    H.fails(function() nn.RNNCell(3, 4)(amp.zeros(2, 5)) end, '2x5', '4x3')
    H.fails(function() nn.GRUCell(3, 4)(amp.zeros(2, 3), amp.zeros(3, 4)) end, '3x4', '2x4')
    H.fails(function() amp.lstm(amp.zeros(2, 2, 3), { amp.zeros(1, 2, 4) }, {}) end, 'lstm', '{h, c}')
  end)

  it('say what is wrong with a constructor', function()
    H.fails(function() nn.LSTM(3) end, 'nn.LSTM', 'hidden_size')
    H.fails(function() nn.LSTM(3, 0) end, 'hidden_size', '0')
    H.fails(function() nn.LSTM(3, 4, { num_layer = 2 }) end, 'num_layer', 'num_layers')
    H.fails(function() nn.GRU(3, 4, { dropout = 1.5, num_layers = 2 }) end, 'dropout', '1.5')
    H.fails(function() nn.GRU(3, 4, { proj_size = 2 }) end, 'proj_size')
    H.fails(function() nn.LSTM(3, 4, { proj_size = 4 }) end, 'proj_size', '4')
    H.fails(function() nn.RNN(3, 4, { nonlinearity = 'gelu' }) end, 'nonlinearity', 'gelu')
    H.fails(function() nn.RNN(3, 4, { bidirectional = 1 }) end, 'bidirectional', '1')
    H.fails(function() nn.RNNCell(3, 4, { nonlinearity = 'gelu' }) end, 'nonlinearity', 'gelu')
  end)
end)

-- A cell's derivative leaves the products of its weights' gradients for the end of the backward, unless somebody looks.
describe('a cell that runs for many steps', function()
  local kinds = { 'LSTMCell', 'GRUCell', 'RNNCell' }

  local function loop(cell, x)
    local h, c = amp.zeros(x:size(2), cell.hidden_size, { dtype = x.dtype }), amp.zeros(x:size(2), cell.hidden_size, { dtype = x.dtype })
    local outs = {}
    for t = 1, x:size(1) do
      if cell:is(nn.LSTMCell) then h, c = cell(x[t], { h, c }) else h = cell(x[t], h) end
      outs[t] = h
    end
    return amp.stack(outs), h
  end

  local function grads(m)
    local list = {}
    for name, p in m:named_parameters() do list[name] = p.grad and p.grad:clone() end
    return list
  end

  local function same(want, got, scale)
    local n = 0
    for name, g in pairs(want) do
      assert.is_true((g - got[name]):abs():max():item() <= 1e-10 * scale, name)
      n = n + 1
    end
    assert.is_true(n > 0)
  end

  for _, kind in ipairs(kinds) do
    for _, bias in ipairs { true, false } do
      it(('%s%s has the gradients of a layer'):format(kind, bias and '' or ' without biases'), function()
        local cell, net = nn[kind](3, 4, { bias = bias }):double(), nn[kind:gsub('Cell', '')](3, 4, { bias = bias }):double()
        local x = amp.randn(600, 2, 3, { dtype = 'float64' }) -- more than are held at once
        local weights = {}
        for name, p in cell:named_parameters() do weights[name .. '_l0'] = p:detach() end
        net:load_state_dict(weights)
        local y = loop(cell, x)
        local g = amp.randn(600, 2, 4, { dtype = 'float64' })
        y:backward(g);
        (net(x)):backward(g)
        local want = {}
        for name, t in pairs(grads(net)) do want[name:gsub('_l0', '')] = t end
        same(want, grads(cell), 100)
      end)
    end
  end

  local function made()
    amp.manual_seed(5)
    return nn.LSTMCell(3, 4):double(), amp.randn(5, 2, 3, { dtype = 'float64' })
  end

  local function reference()
    local cell, x = made()
    for _, p in ipairs(cell:parameters()) do p:register_hook(function() end) end -- at once
    loop(cell, x):sum():backward()
    return grads(cell)
  end

  it('gives hooks and amp.grad the same', function()
    local cell, x = made()
    local seen = 0
    cell.weight_hh:register_hook(function(g)
      seen = seen + 1
      return g * 2
    end)
    loop(cell, x):sum():backward()
    local want = reference()
    want.weight_hh = want.weight_hh * 2
    same(want, grads(cell), 1)
    assert.equal(1, seen)
    cell = made()
    local list = amp.grad(loop(cell, x):sum(), cell:parameters())
    local got, at = {}, 0
    for name in cell:named_parameters() do
      at = at + 1
      got[name] = list[at]
    end
    same(reference(), got, 1)
    assert.is_nil(cell.weight_hh.grad)
  end)

  it('has them in a GradManager, and at what the weights were made of', function()
    local cell, x = made()
    local gm = amp.GradManager():attach { cell.weight_ih, cell.bias_hh }
    gm:record(function() gm:backward(loop(cell, x):sum()) end)
    local want, got = reference(), grads(cell)
    same({ weight_ih = want.weight_ih, bias_hh = want.bias_hh }, got, 1)
    assert.is_nil(got.weight_hh)
    local low = {}
    for _, name in ipairs { 'weight_ih', 'weight_hh', 'bias_ih', 'bias_hh' } do low[#low + 1] = cell[name]:float() end
    local h, c = amp.zeros(2, 4), amp.zeros(2, 4)
    for t = 1, 5 do h, c = amp.lstm_cell(x[t]:float(), { h, c }, unpack(low)) end
    local sum = h:sum()
    local casts = amp.grad(sum, { low[2], cell.weight_ih, low[4] }, { retain_graph = true })
    local leaves = amp.grad(sum, { cell.weight_hh, cell.weight_ih, cell.bias_hh })
    for k = 1, 3 do
      assert.is_true(leaves[k]:abs():sum():item() > 0)
      H.close(casts[k]:float(), leaves[k]:float(), 64)
    end
  end)

  it('adds up over backwards, over cells with the same weights, and with a weight that is used elsewhere', function()
    local cell, x = made()
    local y = loop(cell, x)
    y:sum():backward { retain_graph = true }
    y:sum():backward()
    local want = reference()
    for name, g in pairs(want) do want[name] = g * 2 end
    same(want, grads(cell), 1)
    cell = made();
    (loop(cell, x):sum() + loop(cell, x):sum() + cell.weight_ih:sum() * 3):backward()
    want.weight_ih = want.weight_ih + 3
    same(want, grads(cell), 1)
  end)

  it('leaves frozen weights alone', function()
    local cell, x = made()
    cell.weight_ih:requires_grad_(false)
    cell.bias_hh:requires_grad_(false)
    loop(cell, x):sum():backward()
    local want, got = reference(), grads(cell)
    assert.is_nil(got.weight_ih)
    assert.is_nil(got.bias_hh)
    want.weight_ih, want.bias_hh = nil, nil
    same(want, got, 1)
    cell = made()
    for _, p in ipairs(cell:parameters()) do p:requires_grad_(false) end
    x:requires_grad_(true)
    loop(cell, x):sum():backward()
    assert.is_true(x.grad:abs():sum():item() > 0)
  end)

  it('has gradients of gradients', function()
    local cell, x = made()
    loop(cell, x):sum():backward { create_graph = true }
    same(reference(), grads(cell), 1)
    local g = cell.weight_hh.grad
    cell.weight_hh.grad = nil
    g:pow(2):sum():backward()
    assert.is_true(cell.weight_hh.grad:abs():sum():item() > 0)
  end)

  for _, dtype in ipairs { 'float16', 'bfloat16' } do
    it(('sums in float32 under autocast to %s, and the scaler sees an overflow'):format(dtype), function()
      amp.manual_seed(2)
      local cell = nn.GRUCell(3, 4)
      local x = amp.randn(40, 2, 3)
      local scaler = amp.GradScaler { init_scale = 1024 }
      local function loss_of(scale)
        cell:zero_grad()
        return amp.autocast({ dtype = dtype }, function() return (loop(cell, x):float()):mul(0.01):sum() * scale end)
      end
      loss_of(1):backward()
      local got = grads(cell)
      cell:zero_grad()
      loop(cell, x):mul(0.01):sum():backward()
      for name, g in pairs(grads(cell)) do
        local err = (g - got[name]):abs():max():item()
        assert.is_true(err <= 0.03 * g:abs():max():item() + 1e-3, name .. ' ' .. err)
        assert.equal('float32', got[name].dtype)
      end
      local opt = amp.optim.SGD(cell:parameters(), { lr = 0.1 })
      local before = cell.weight_hh:detach():clone()
      scaler:scale(loss_of(dtype == 'float16' and 1e6 or 1 / 0)):backward()
      scaler:step(opt)
      scaler:update()
      assert.equal(512, scaler:get_scale())
      H.close(cell.weight_hh, before, H.exact)
    end)
  end

  it('says so if an operand changes while the backward runs', function()
    local cell, x = made()
    local h, c = cell(x[1])
    local late = x[2]:clone()
    c:register_hook(function() amp.no_grad(function() late:add_(1) end) end) -- the second step's part is over, the first one's to come
    h = cell(late, { h, c })
    H.fails(function() h:sum():backward() end, 'changed in place')
  end)
end)

describe("a cell's state that is used more than once", function()
  local uses = {
    ['by an output and the next step'] = function(h, outs) outs[#outs + 1] = h return h end,
    ['three times'] = function(h, outs) outs[#outs + 1] = h outs[#outs + 1] = h * 2 return h end,
    ['with a hook'] = function(h, outs)
      h:register_hook(function(g) return g * 0.5 end)
      outs[#outs + 1] = h
      return h
    end,
    ['turned'] = function(h, outs) outs[#outs + 1] = h:t():contiguous():t() return h:t():t() end,
  }
  for _, kind in ipairs { 'LSTMCell', 'GRUCell', 'RNNCell' } do
    for name, use in pairs(uses) do
      it(('%s %s: gradients are those of the recorded derivative'):format(kind, name), function()
        local function gradients(create, with_input)
          amp.manual_seed(4)
          local cell = nn[kind](3, 5):double()
          local x = amp.randn(4, 2, 3, { dtype = 'float64' })
          local h0 = amp.randn(2, 5, { dtype = 'float64' }):requires_grad_()
          local c, outs, h = amp.zeros(2, 5, { dtype = 'float64' }), {}, h0
          for t = 1, 4 do
            if kind == 'LSTMCell' then h, c = cell(x[t], { h, c }) else h = cell(x[t], h) end
            h = use(h, outs)
          end
          local loss = amp.stack(outs):pow(2):sum() + h:sum()
          local leaves = { h0, outs[2] }
          for _, p in ipairs(cell:parameters()) do leaves[#leaves + 1] = p end
          if not with_input then table.remove(leaves, 2) end
          return amp.grad(loss, leaves, { create_graph = create })
        end
        for _, inner in ipairs { true, false } do
          local want, got = gradients(true, inner), gradients(false, inner)
          for i = 1, #want do assert.is_true((want[i] - got[i]):abs():max():item() < 1e-12, i) end
        end
      end)
    end
  end
end)

describe('nn.utils.rnn', function()
  it('packs and unpacks: what comes back is the batch, padded', function()
    local x = amp.arange(1, 25):reshape(4, 3, 2)
    local p = rnn.pack_padded_sequence(x, { 4, 2, 1 })
    H.close(p.batch_sizes, { 3, 2, 1, 1 }, H.exact)
    assert.equal('7x2', tostring(p.data:size()))
    H.close(p.data, { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 19, 20 }, H.exact)
    assert.is_nil(p.sorted_indices)
    local y, lengths = rnn.pad_packed_sequence(p, { padding_value = -1, total_length = 5 })
    assert.equal('5x3x2', tostring(y:size()))
    H.close(lengths, { 4, 2, 1 }, H.exact)
    H.same(y:select(2, 1):narrow(1, 1, 4), x:select(2, 1))
    assert.equal(-1, y[{ 3, 2, 1 }]:item())
    assert.equal(-1, y[{ 5, 1, 2 }]:item())
  end)

  it('sorts sequences and gives them back in their order; indices count from 1', function()
    local x = amp.randn(4, 3, 2, { requires_grad = true })
    local p = rnn.pack_padded_sequence(x, amp.tensor({ 1, 3, 2, 3 }, { dtype = 'int64' }), { batch_first = true, enforce_sorted = false })
    H.close(p.sorted_indices, { 2, 4, 3, 1 }, H.exact)
    H.close(p.unsorted_indices, { 4, 1, 3, 2 }, H.exact)
    H.close(p.batch_sizes, { 4, 3, 2 }, H.exact)
    H.same(p.data[1], x[{ 2, 1 }])
    local y, lengths = rnn.pad_packed_sequence(p, { batch_first = true })
    H.close(lengths, { 1, 3, 2, 3 }, H.exact)
    H.same(y[2], x[2])
    H.same(y[{ 3, { 1, 2 } }], x[{ 3, { 1, 2 } }])
    y:sum():backward()
    H.close(x.grad:sum(3):sum(2), { 2, 6, 4, 6 }, H.exact)
  end)

  it('pads and packs lists of sequences', function()
    local a, b, c = amp.tensor { 1, 2, 3 }, amp.tensor { 4, 5 }, amp.tensor { 6 }
    H.close(rnn.pad_sequence { a, b, c }, { 1, 4, 6, 2, 5, 0, 3, 0, 0 }, H.exact)
    H.close(rnn.pad_sequence({ a, b, c }, { batch_first = true, padding_value = -1 }), { 1, 2, 3, 4, 5, -1, 6, -1, -1 }, H.exact)
    H.close(rnn.pad_sequence({ a, b }, { batch_first = true, padding_side = 'left' }), { 1, 2, 3, 0, 4, 5 }, H.exact)
    H.close(rnn.pack_sequence({ a, b, c }).data, { 1, 4, 6, 2, 5, 3 }, H.exact)
    local back = rnn.unpack_sequence(rnn.pack_sequence({ c, a, b }, { enforce_sorted = false }))
    H.same(back[1], c)
    H.same(back[2], a)
    H.same(back[3], b)
  end)

  it('changes the dtype of what is packed', function()
    local p = rnn.pack_sequence({ amp.ones(2, 3), amp.ones(3, 3) }, { enforce_sorted = false }):double()
    assert.equal('float64', p.data.dtype)
    assert.equal('int64', p.batch_sizes.dtype)
    H.close(p.sorted_indices, { 2, 1 }, H.exact)
    assert.equal('bfloat16', p:bfloat16().data.dtype)
  end)

  it('says what is wrong', function()
    local x = amp.zeros(4, 3, 2)
    H.fails(function() rnn.pack_padded_sequence(x, { 5, 2, 1 }) end, 'length 1', '5', '4')
    H.fails(function() rnn.pack_padded_sequence(x, { 3, 2, 0 }) end, 'length 3', '0')
    H.fails(function() rnn.pack_padded_sequence(x, { 3, 4, 1 }) end, 'enforce_sorted', '4', '3')
    H.fails(function() rnn.pack_padded_sequence(x, { 3, 2 }) end, '2 lengths', '3')
    H.fails(function() rnn.pack_padded_sequence(x, { 3, 2.5, 1 }) end, 'length 2', '2.5')
    H.fails(function() rnn.pack_padded_sequence(x, 3) end, 'lengths', '3')
    H.fails(function() rnn.pack_padded_sequence(amp.zeros(4), { 1 }) end, '2 dimensions', '4')
    H.fails(function() rnn.pad_packed_sequence(x) end, 'PackedSequence', 'tensor')
    H.fails(function() rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, { 3, 2, 1 }), { total_length = 2 }) end, 'total_length 2', '3')
    H.fails(function() rnn.pad_sequence { amp.zeros(2, 3), amp.zeros(2, 4) } end, 'sequence 2', '2x4', '2x3')
    H.fails(function() rnn.pack_sequence { amp.zeros(2), amp.zeros(3) } end, 'enforce_sorted')
    H.fails(function() rnn.pad_sequence {} end, 'sequences')
    local p = rnn.PackedSequence(amp.zeros(5, 3), amp.tensor({ 2, 3 }, { dtype = 'int64' }))
    H.fails(function() nn.LSTM(3, 4)(p) end, 'batch_sizes', '3')
    p = rnn.PackedSequence(amp.zeros(5, 3), amp.tensor({ 2, 2 }, { dtype = 'int64' }))
    H.fails(function() nn.LSTM(3, 4)(p) end, 'batch_sizes', '4', '5')
    H.fails(function() rnn.PackedSequence(amp.zeros(5, 3), amp.tensor { 2, 2 }) end, 'int64', 'float32')
  end)
end)

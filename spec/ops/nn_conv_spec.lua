--- nn: convolution layers, Unfold and Fold: against PyTorch, their text, parameters, and wrong arguments.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn, F = amp.nn, amp.nn.functional

describe('convolution layers', function()
  for _, c in ipairs(H.fixture 'layers_conv.txt') do
    it('agree with PyTorch: ' .. c.new .. (c.size and ' to a size' or ''), function()
      local m = loadstring('local nn = ... return ' .. c.new)(nn):to 'float64'
      assert.equal(c.text, tostring(m))
      local state = {}
      for name, f in pairs(c.state) do state[name] = H.make(f.v, f.s, 'float64') end
      m:load_state_dict(state)
      local x = H.make(c.inp.v, c.inp.s, 'float64')
      x.requires_grad = true
      local y = m(x, c.size)
      H.close(y, c.out, 4, 'output')
      local w = {}
      for k = 0, y:numel() - 1 do w[k + 1] = 0.3 + ((k * 7) % 11) / 10 end
      ;(y * H.make(w, H.shape(y), 'float64')):sum():backward()
      for name, f in pairs(c.grad) do
        H.close(name == 'x' and x.grad or m[name].grad, f, 8, 'gradient of ' .. name)
      end
    end)
  end

  it('name their parameters as PyTorch does', function()
    for _, class in ipairs { 'Conv1d', 'Conv2d', 'Conv3d', 'ConvTranspose1d', 'ConvTranspose2d', 'ConvTranspose3d' } do
      local names = {}
      for name in nn[class](2, 4, 3):named_parameters() do names[#names + 1] = tostring(name) end
      assert.equal('weight bias', table.concat(names, ' '))
      assert.is_nil(nn[class](2, 4, 3, { bias = false }):state_dict().bias)
    end
    assert.equal('2x4x3x3', tostring(nn.ConvTranspose2d(2, 8, 3, { groups = 2 }).weight:size()))
    assert.equal('8x1x3', tostring(nn.Conv1d(2, 8, 3, { groups = 2 }).weight:size()))
  end)

  it('start within 1 / sqrt(inputs of an output)', function()
    local m = nn.Conv3d(4, 50, 2)
    local bound = 1 / math.sqrt(4 * 8)
    for _, t in ipairs { m.weight, m.bias } do
      local most = t:abs():max():item()
      assert.is_true(most <= bound and most > 0.8 * bound)
    end
  end)

  it('train in low precision under autocast', function()
    local net = nn.Sequential(nn.Conv1d(2, 4, 3, { padding = 1 }), nn.ReLU(), nn.ConvTranspose1d(4, 2, 4, { stride = 2, padding = 1 }))
    local x = H.sample { 3, 2, 8 }
    local y = amp.autocast({ dtype = 'bfloat16' }, function() return net(x) end)
    assert.equal('bfloat16', y.dtype)
    assert.equal('3x2x16', tostring(y:size()))
    y:float():sum():backward()
    for _, p in ipairs(net:parameters()) do assert.equal('float32', p.grad.dtype) end
  end)

  it('take channels_last data and give it back', function()
    local m = nn.Conv2d(4, 6, 3, { padding = 1 })
    local x = H.sample { 2, 4, 5, 6 }
    local y, z = m(x), m(x:contiguous { memory_format = 'channels_last' })
    assert.same({ 180, 1, 36, 6 }, { unpack(z:stride()) })
    H.close(z, { s = { 2, 6, 5, 6 }, v = H.values(y) }, 4)
  end)

  for _, bad in ipairs {
    { 'nn.Conv1d(1, 2)', 'kernel_size' }, { 'nn.Conv1d(1, 2, {3, 3})', 'kernel_size', '2' },
    { 'nn.Conv3d(1, 2, {3, 3})', 'kernel_size', '3', '2' },
    { 'nn.Conv3d(3, 4, 3, {groups = 2})', 'in_channels', '3', '2' }, { 'nn.Conv1d(1, 1, 3, {stride = 0})', 'stride', '0' },
    { "nn.Conv2d(1, 1, 3, {padding = 'some'})", 'padding', 'some', 'same', 'valid' },
    { "nn.Conv2d(1, 1, 3, {padding = 'sane'})", 'same' },
    { "nn.Conv2d(1, 1, 3, {padding = 'same', stride = 2})", 'same', 'stride', '2x2' },
    { "nn.Conv2d(1, 1, 3, {padding_mode = 'mirror'})", 'padding_mode', 'mirror', 'reflect' },
    { 'nn.ConvTranspose2d(1, 1, 3, {output_padding = 1})', 'output_padding', '1', 'stride 1' },
    { 'nn.ConvTranspose1d(1, 1, 3, {paddings = 1})', 'paddings', 'padding' },
    { "nn.ConvTranspose1d(1, 1, 3, {padding_mode = 'reflect'})", 'padding_mode', 'reflect' },
    { 'nn.ConvTranspose3d(2, 3, 3, {groups = 2})', 'out_channels', '3', '2' },
    { 'nn.Unfold()', 'kernel_size' }, { 'nn.Unfold(0)', 'kernel_size', '0' }, { 'nn.Unfold(2, {padding = -1})', 'padding', '-1' },
    { 'nn.Fold(4)', 'kernel_size' },
    { 'nn.Fold({4, 4, 4}, 2)', 'output_size', '3' },
  } do
    it('refuse ' .. bad[1], function()
      H.fails_here(loadstring('local nn = ... return function() local _ = ' .. bad[1] .. ' end', '@bad_spec.lua')(nn), select(2, unpack(bad)))
    end)
  end

  it('say which sizes of a transposed result are possible', function()
    local m = nn.ConvTranspose2d(1, 1, 3, { stride = 2 })
    local x = H.sample { 1, 1, 4, 4 }
    assert.equal('1x1x10x9', tostring(m(x, { 10, 9 }):size()))
    assert.equal('1x1x10x9', tostring(m(x, { 1, 1, 10, 9 }):size()))
    H.fails_here(function() m(x, { 8, 9 }) end, 'output_size 8', '9', '10')
    H.fails_here(function() m(x, { 9, 11 }) end, 'output_size 11', '9', '10')
    H.fails_here(function() m(x, { 9 }) end, 'output_size', '2', '4', '1')
    H.fails_here(function() m(x, 'big') end, 'output_size', 'big')
  end)

  it('tell what is wrong with their data', function()
    H.fails_here(function() nn.Conv1d(3, 2, 3)(amp.ones(1, 2, 8)) end, '1x2x8', '3')
    H.fails_here(function() nn.Conv3d(1, 2, 5)(amp.ones(1, 1, 3, 3, 3)) end, '5', '3')
    H.fails_here(function() nn.ConvTranspose1d(3, 2, 3)(amp.ones(1, 2, 8)) end, '1x2x8', '3')
    H.fails_here(function() nn.Fold(4, 2)(amp.ones(1, 8, 8)) end, '8', '3x3')
  end)
end)

describe('nn.functional', function()
  it('has unfold and fold under PyTorch names', function()
    local x = H.sample { 1, 2, 4, 4 }
    local columns = F.unfold(x, 2, { stride = 2 })
    assert.equal('1x8x4', tostring(columns:size()))
    H.same(F.fold(columns, 4, 2, { stride = 2 }), x)
  end)

  it("pads for 'same' as PyTorch does", function()
    local x, w = H.sample { 1, 2, 7 }, H.sample { 3, 2, 4 }
    H.same(F.conv1d(x, w, nil, 1, 'same'), F.conv1d(amp.pad(x, { 1, 2 }), w))
    H.same(F.conv1d(x, w, nil, { padding = 'valid' }), F.conv1d(x, w))
  end)
end)

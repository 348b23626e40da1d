--- Pooling, resampling and padding as layers, and what the table-driven spec of their ops does not see: layouts,
-- aliases, one sample like a batch of one, the edge of what can be differentiated.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn = amp.nn

local function call(m, ...) return loadstring('local amp, nn = ... return ' .. m)(amp, nn)(...) end
local dims = { { 7 }, { 5, 7 }, { 4, 5, 6 } }
local function data(n, batch, channels)
  local shape = batch and { batch, channels or 3 } or { channels or 3 }
  for _, v in ipairs(dims[n]) do shape[#shape + 1] = v end
  return H.sample(shape)
end

describe('pooling layers', function()
  local two, options = { 2, 2, 2 }, { stride = 1, padding = 1, ceil_mode = true }
  for n = 1, 3 do
    local function layer(name, ...) return nn[name .. n .. 'd'](...) end
    local function op(name) return amp[name .. n .. 'd'] end
    it(('give what their ops give in %d dimensions'):format(n), function()
      local x = data(n, 2)
      local k = { unpack(two, 1, n) }
      H.same(layer('MaxPool', 2)(x), (op 'max_pool'(x, 2)))
      H.same(layer('MaxPool', k, 1, 1, 2)(x), (op 'max_pool'(x, 2, 1, 1, 2)))
      H.same(layer('MaxPool', 3, options)(x), op 'max_pool'(x, 3, options))
      local y, at = layer('MaxPool', 2, { return_indices = true })(x)
      local y2, at2 = op 'max_pool'(x, { kernel_size = 2, return_indices = true })
      H.same(y, y2)
      H.same(at, at2)
      H.same(layer('MaxUnpool', 2)(y, at, dims[n]), op 'max_unpool'(y, at, { kernel_size = 2, output_size = dims[n] }))
      local back, again = layer('MaxPool', 2, { return_indices = true })(layer('MaxUnpool', 2)(y, at, dims[n]))
      assert.equal(tostring(y:size()), tostring(back:size()))
      assert.equal('int64', again.dtype)
      H.same(layer('AvgPool', 3, { stride = 2, padding = 1, count_include_pad = false })(x),
        op 'avg_pool'(x, { kernel_size = 3, stride = 2, padding = 1, count_include_pad = false }))
      if n > 1 then H.same(layer('AvgPool', 2, { divisor_override = 3 })(x), op 'avg_pool'(x, { kernel_size = 2, divisor_override = 3 })) end
      H.same(layer('LPPool', 2, 2, { stride = 1 })(x:abs()), op 'lp_pool'(x:abs(), 2, 2, 1))
      H.same(layer('AdaptiveAvgPool', 3)(x), op 'adaptive_avg_pool'(x, 3))
      H.same(layer('AdaptiveMaxPool', 2)(x), (op 'adaptive_max_pool'(x, 2)))
      y, at = layer('AdaptiveMaxPool', 2, { return_indices = true })(x)
      assert.equal('int64', at.dtype)
      assert.equal(tostring(y:size()), tostring(at:size()))
    end)

    it(('take one sample like a batch of one in %d dimensions'):format(n), function()
      local x = data(n)
      for _, m in ipairs { layer('MaxPool', 2), layer('AvgPool', 2), layer('AdaptiveAvgPool', 2), layer('AdaptiveMaxPool', 3), layer('LPPool', 3, 2) } do
        H.close(m(x), m(x:unsqueeze(1)):squeeze(1))
      end
    end)
  end

  it('pass several values through a Sequential', function()
    local x = data(2, 2)
    local y, at = nn.Sequential(nn.Identity(), nn.MaxPool2d(2, { return_indices = true }))(x)
    local y2, at2 = nn.MaxPool2d(2, { return_indices = true })(x)
    H.same(y, y2)
    H.same(at, at2)
    local net = nn.Sequential(nn.MaxPool2d(2, { return_indices = true }), nn.MaxUnpool2d(2))
    H.same(net(amp.ones(1, 1, 4, 4)), nn.MaxUnpool2d(2)(nn.MaxPool2d(2, { return_indices = true })(amp.ones(1, 1, 4, 4))))
  end)
end)

describe('layers that resample', function()
  it('give what their ops give', function()
    local x = data(2, 2)
    H.same(nn.Upsample { size = { 8, 9 } }(x), amp.interpolate(x, { size = { 8, 9 } }))
    H.same(nn.Upsample(nil, 2, 'bilinear', true)(x), amp.interpolate(x, { scale_factor = 2, mode = 'bilinear', align_corners = true }))
    H.same(nn.Upsample { scale_factor = { 1.5, 2.5 }, mode = 'bicubic', recompute_scale_factor = true }(x),
      amp.interpolate(x, { scale_factor = { 1.5, 2.5 }, mode = 'bicubic', recompute_scale_factor = true }))
    H.same(nn.UpsamplingNearest2d(4)(x), amp.interpolate(x, 4))
    H.same(nn.UpsamplingBilinear2d { scale_factor = 2 }(x), amp.interpolate(x, { scale_factor = 2, mode = 'bilinear', align_corners = true }))
    H.same(amp.upsample(x, 4), amp.interpolate(x, 4))
    H.same(nn.functional.upsample(x, nil, 2), amp.interpolate(x, { scale_factor = 2 }))
    local y = H.sample { 2, 8, 3, 4 }
    H.same(nn.PixelShuffle(2)(y), amp.pixel_shuffle(y, 2))
    H.same(nn.PixelUnshuffle(2)(nn.PixelShuffle(2)(y)), y)
    H.same(nn.ChannelShuffle(4)(nn.ChannelShuffle(2)(y)), y)
  end)

  it('is float32 in a region whatever comes in, and keeps 16-bit outside', function()
    local x = H.sample({ 1, 2, 3, 3 }, 'bfloat16')
    assert.equal('bfloat16', amp.interpolate(x, 5).dtype)
    assert.equal('float32', amp.autocast(function() return amp.upsample(x, 5) end).dtype)
  end)
end)

describe('padding layers', function()
  it('give what amp.pad gives', function()
    for n = 1, 3 do
      local x, all, some = data(n, 2), {}, {}
      for i = 1, 2 * n do all[i], some[i] = 1, i % 3 end
      for name, mode in pairs { ReflectionPad = 'reflect', ReplicationPad = 'replicate', CircularPad = 'circular', ZeroPad = 'constant' } do
        H.same(nn[name .. n .. 'd'](1)(x), amp.pad(x, all, mode))
        H.same(nn[name .. n .. 'd'](some)(x), amp.pad(x, some, mode))
        H.close(nn[name .. n .. 'd'](some)(x:select(1, 1)), amp.pad(x, some, mode):select(1, 1))
      end
      H.same(nn['ConstantPad' .. n .. 'd'](some, 2.5)(x), amp.pad(x, some, 'constant', 2.5))
    end
  end)
end)

describe('their ops', function()
  it('keep channels innermost, with the same values', function()
    local x = H.sample { 2, 9, 6, 5 }
    local cl = x:contiguous { memory_format = 'channels_last' }
    local ops = {
      max_pool2d = { 3, 2, 1 }, avg_pool2d = { 3, 2, 1 }, adaptive_avg_pool2d = { 3 }, adaptive_max_pool2d = { 4 }, pad = { { 1, 2, 0, 1 } },
      interpolate = { { 7, 9 } },
    }
    for name, args in pairs(ops) do
      for _, dt in ipairs(H.floats) do
        local a, b = x:to(dt), cl:to(dt)
        a.requires_grad, b.requires_grad = true, true
        local y, z = amp[name](a, unpack(args)), amp[name](b, unpack(args))
        H.close(z, y, 1, name)
        assert.is_true(z:stride()[2] == 1, name .. ' ' .. dt .. ' keeps the layout')
        H.close(amp.grad({ z }, { b }, { grad_outputs = { amp.ones_like(z) } })[1], amp.grad({ y }, { a }, { grad_outputs = { amp.ones_like(y) } })[1], 2, name)
      end
    end
    for _, mode in ipairs { 'bilinear', 'bicubic', 'nearest-exact' } do
      H.close(amp.interpolate(cl, { size = { 8, 4 }, mode = mode }), amp.interpolate(x, { size = { 8, 4 }, mode = mode }), 1, mode)
    end
  end)

  it('leave a place alone that another window chose', function()
    local x = amp.tensor({ { 1, 5, 2, 5, 3 } }, { requires_grad = true })
    local y, at = amp.max_pool1d(x, { kernel_size = 3, stride = 1, return_indices = true })
    H.close(at, { 2, 2, 4 })
    y:backward(amp.tensor { { 1, 10, 100 } })
    H.close(x.grad, { 0, 11, 0, 100, 0 })
    at:fill_(1)
    H.fails(function() amp.max_pool1d(x, { kernel_size = 3, return_indices = true }):backward(amp.ones(2, 1)) end, '2x1')
  end)

  it('notice places that were changed before backward', function()
    local x = H.sample { 1, 1, 4, 4 }
    x.requires_grad = true
    local y, at = amp.max_pool2d(x, { kernel_size = 2, return_indices = true })
    at:fill_(1)
    H.fails(function() y:sum():backward() end, 'in place')
  end)

  it('say where derivatives end: grid_sample has two', function()
    local x, g = H.sample { 1, 1, 3, 3 }, H.sample { 1, 2, 2, 2 }
    x.requires_grad, g.requires_grad = true, true
    local first = amp.grad({ amp.grid_sample(x, g):sum() }, { g }, { create_graph = true })[1]
    assert.equal('1x1x3x3', tostring(amp.grad({ first:sum() }, { x }, { retain_graph = true })[1]:size()))
    H.fails(function() amp.grad({ first:sum() }, { x }, { create_graph = true }) end, 'grid_sample', 'create_graph')
  end)
end)

describe('their constructors', function()
  it('print as they were made', function()
    for made, text in pairs {
      ['nn.MaxPool1d(2)'] = 'nn.MaxPool1d(2)', ['nn.MaxPool3d({1, 2, 2}, {return_indices = true})'] = 'nn.MaxPool3d(1x2x2, return_indices true)',
      ['nn.AvgPool2d(3, 1, 1, true, false, 4)'] = 'nn.AvgPool2d(3x3, stride 1x1, padding 1x1, ceil_mode true, count_include_pad false, divisor_override 4)',
      ['nn.LPPool2d(2, 3)'] = 'nn.LPPool2d(norm_type 2, 3x3)', ['nn.AdaptiveAvgPool2d{3, 4}'] = 'nn.AdaptiveAvgPool2d(3x4)',
      ['nn.MaxUnpool2d(2, {padding = 1})'] = 'nn.MaxUnpool2d(2x2, padding 1x1)', ['nn.Upsample{size = {3, 4}}'] = 'nn.Upsample(size 3x4, mode nearest)',
      ["nn.Upsample{scale_factor = 2, mode = 'bilinear', align_corners = false}"] = 'nn.Upsample(scale_factor 2, mode bilinear, align_corners false)',
      ['nn.PixelShuffle(3)'] = 'nn.PixelShuffle(upscale_factor 3)', ['nn.ConstantPad1d({1, 2}, 0.5)'] = 'nn.ConstantPad1d(padding 1 2, value 0.5)',
      ['nn.ReflectionPad2d(1)'] = 'nn.ReflectionPad2d(padding 1 1 1 1)',
    } do
      assert.equal(text, tostring(loadstring('local nn = ... return ' .. made)(nn)))
      assert.is_nil(next(loadstring('local nn = ... return ' .. made)(nn):state_dict()))
    end
  end)

  it('refuse what makes no sense, naming it', function()
    for _, w in ipairs {
      { 'nn.MaxPool1d()', 'kernel_size' }, { 'nn.MaxPool1d(0)', 'kernel_size', '0' }, { 'nn.MaxPool2d{1, 2, 3}', 'kernel_size', '3' },
      { 'nn.MaxPool3d(2, {stride = 0})', 'stride', '0' },
      { 'nn.MaxPool2d(2, {padding = -1})', 'padding', '-1' }, { 'nn.MaxPool2d(2, {return_indices = 1})', 'return_indices' },
      { 'nn.AvgPool1d(2, {divisor_override = 2})', 'divisor_override' },
      { 'nn.AvgPool2d(2, {divisor_override = 1.5})', 'divisor_override', '1.5' }, { 'nn.LPPool2d(2)', 'kernel_size' },
      { "nn.LPPool1d('2', 3)", 'norm_type' }, { 'nn.AdaptiveAvgPool2d()', 'output_size' },
      { 'nn.AdaptiveMaxPool1d(0)', 'output_size', '0' }, { 'nn.MaxUnpool2d(2, {dilation = 1})', 'dilation' }, { 'nn.Upsample()', 'size', 'neither' },
      { 'nn.Upsample(2, 2)', 'both' },
      { "nn.Upsample{size = 2, mode = 'cubic'}", 'cubic', 'bicubic' }, { "nn.Upsample{size = 'big'}", 'size', 'big' },
      { 'nn.PixelShuffle(0)', 'upscale_factor', '0' }, { 'nn.PixelUnshuffle()', 'downscale_factor' },
      { 'nn.ChannelShuffle(1.5)', 'groups', '1.5' }, { 'nn.ZeroPad2d{1, 2, 3}', 'padding', '4', '3' }, { 'nn.ConstantPad2d(1)', 'value' },
      { "nn.ReflectionPad1d('1')", 'padding' },
    } do
      H.fails(function() loadstring('local nn = ... return ' .. w[1])(nn) end, w[1]:match '^(nn%.%w+)', unpack(w, 2))
    end
    H.fails(function() call('nn.ReflectionPad1d(3)', amp.ones(1, 3)) end, 'reflect', '3')
    H.fails(function() call('nn.MaxPool2d(2)', amp.ones(3)) end, '3')
  end)
end)

--- Optimizers: clipping of gradients.
local amp = require 'amp'
local H = require 'spec.lib.helper'

local function param(values, dtype)
  local t = H.make(values, { #values }, dtype)
  t.requires_grad = true
  return t
end

describe('clipping', function()
  it('by norm gives the norm before and scales to max_norm, several norms', function()
    for _, norm in ipairs { { 2, math.sqrt(9 + 16) }, { 1, 7 }, { math.huge, 4 } } do
      local a, b = param { 0 }, param { 0 }
      a.grad, b.grad = amp.tensor { 3 }, amp.tensor { -4 }
      H.close(amp.nn.utils.clip_grad_norm_({ a, b }, 1, norm[1]), { norm[2] })
      H.close(a.grad, { 3 / norm[2] }, { rtol = 1e-5, atol = 0 })
      H.close(b.grad, { -4 / norm[2] }, { rtol = 1e-5, atol = 0 })
    end
    local a = param { 0 }
    a.grad = amp.tensor { 0.5 }
    amp.nn.utils.clip_grad_norm_({ a }, 1)
    H.close(a.grad, { 0.5 })
  end)
  it('a norm that is not finite: gradients become NaN or stay, and the norm says so', function()
    local a = param { 0, 0 }
    a.grad = amp.tensor { math.huge, 1 }
    assert.equal(math.huge, amp.nn.utils.clip_grad_norm_({ a }, 1):item())
    a.grad = amp.tensor { 0 / 0, 1 }
    local n = amp.nn.utils.clip_grad_norm_({ a }, 1):item()
    assert.is_true(n ~= n)
  end)
  it('by norm over dtypes, layouts and parameters without a gradient; a single tensor', function()
    local a, b, c = param({ 0 }, 'float64'), H.sample { 2, 2 }, param { 5 }
    b.requires_grad = true
    a.grad, b.grad = amp.tensor({ 2 }, { dtype = 'float64' }), amp.tensor({ { 4, 0 }, { 5, 6 } }):t()
    H.close(amp.nn.utils.clip_grad_norm_({ a, b, c }, 4.5), { 9 })
    H.close(a.grad, { 1 }, { rtol = 1e-6, atol = 0 }) -- the denominator is the norm + 1e-6
    H.close(b.grad, { 2, 2.5, 0, 3 })
    assert.is_nil(c.grad)
    c.grad = amp.tensor { 8 }
    H.close(amp.nn.utils.clip_grad_norm_(c, 2), { 8 })
    H.close(c.grad, { 2 })
  end)
  it('a gradient that parameters share counts for each, and is multiplied once', function()
    for _, check in ipairs { false, true } do
      local a, b, c = param { 1, 1 }, param { 1, 1 }, param { 1 }
      local g = H.make({ 3, 3 }, { 2 })
      a.grad, b.grad, c.grad = g, g, H.make({ 3 }, { 1 })
      local scaler, opt = amp.GradScaler { init_scale = 1 }, amp.optim.SGD({ a, b, c }, { lr = 1 })
      if check then scaler:unscale_(opt) end
      H.close(amp.nn.utils.clip_grad_norm_({ a, b, c }, 1), { 45 ^ 0.5 })
      H.close(a.grad, { 3 / 45 ^ 0.5, 3 / 45 ^ 0.5 })
      H.close(c.grad, { 3 / 45 ^ 0.5 })
      assert.is_true(a.grad == b.grad and a.grad == g)
      if check then
        scaler:step(opt):update()
        H.close(b:detach(), { 1 - 3 / 45 ^ 0.5, 1 - 3 / 45 ^ 0.5 })
      end
    end
  end)
  it('gradients that partly lie in one another are parted first', function()
    local all = H.make({ 3, 3, 3 }, { 3 })
    local a, b = param { 1, 1 }, param { 1, 1 }
    a.grad, b.grad = all[{ { 1, 2 } }], all[{ { 2, 3 } }]
    H.close(amp.nn.utils.clip_grad_norm_({ a, b }, 3), { 6 })
    H.close(a.grad, { 1.5, 1.5 })
    H.close(b.grad, { 1.5, 1.5 })
  end)
  it('in a region is as outside', function()
    local a = param { 0, 0 }
    a.grad = amp.tensor { 3, 4.0009765625 }
    local want = H.values(a.grad)
    local n = amp.autocast({ dtype = 'bfloat16' }, function() return amp.nn.utils.clip_grad_norm_({ a }, 100) end)
    assert.equal('float32', n.dtype)
    H.close(n, { math.sqrt(want[1] ^ 2 + want[2] ^ 2) }, { rtol = 1e-6, atol = 0 })
    H.close(a.grad, want, H.exact)
  end)
  it('wrong use', function()
    local a = param { 0 }
    a.grad = amp.ones(1)
    H.fails_here(function() amp.nn.utils.clip_grad_norm_({ a }, 'x') end, 'max_norm', 'x')
    H.fails_here(function() amp.nn.utils.clip_grad_norm_({ a }, 0 / 0) end, 'max_norm')
    H.fails_here(function() amp.nn.utils.clip_grad_norm_({ a }, 1, 0) end, '0')
    H.fails_here(function() amp.nn.utils.clip_grad_norm_({ 5 }, 1) end, '5')
    H.fails_here(function() amp.nn.utils.clip_grad_value_({ a }) end, 'clip_value')
    H.close(a.grad, { 1 }, H.exact)
  end)
  it('by value, and of nothing', function()
    local a = param { 0, 0 }
    a.grad = amp.tensor { 3, -4 }
    amp.nn.utils.clip_grad_value_({ a }, 2)
    H.close(a.grad, { 2, -2 })
    H.close(amp.nn.utils.clip_grad_norm_({ param { 1 } }, 1), { 0 })
  end)
end)

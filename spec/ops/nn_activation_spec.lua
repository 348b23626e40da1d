--- Activations as modules: each is the function of its name with the constructor's settings.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn = amp.nn

local x = amp.tensor({ { -4, -1, -0.25, 0.25 }, { 0.5, 1, 3.5, 7 } })

describe('an activation module', function()
  local cases = {
    { nn.Mish(), amp.mish }, { nn.SELU(), amp.selu }, { nn.Hardswish(), amp.hardswish }, { nn.Hardsigmoid(), amp.hardsigmoid },
    { nn.ReLU6(), amp.relu6 }, { nn.Softsign(), amp.softsign }, { nn.Tanhshrink(), amp.tanhshrink }, { nn.LogSigmoid(), amp.log_sigmoid },
    { nn.LeakyReLU(0.2), function(t) return amp.leaky_relu(t, 0.2) end },
    { nn.LeakyReLU { negative_slope = 0.3 }, function(t) return amp.leaky_relu(t, 0.3) end },
    { nn.ELU(2), function(t) return amp.elu(t, 2) end }, { nn.CELU(0.5), function(t) return amp.celu(t, 0.5) end },
    { nn.Hardtanh(-2, 3), function(t) return t:clamp(-2, 3) end }, { nn.Hardshrink(1.5), function(t) return amp.hardshrink(t, 1.5) end },
    { nn.Softshrink(0.75), function(t) return amp.softshrink(t, 0.75) end },
    { nn.Threshold(0.3, -9), function(t) return amp.where(t:gt(0.3), t, amp.full_like(t, -9)) end },
    { nn.Softmin(), function(t) return amp.softmax(-t, 2) end }, { nn.Softmin(1), function(t) return amp.softmax(-t, 1) end },
    { nn.GLU(), function(t) return t:narrow(2, 1, 2) * t:narrow(2, 3, 2):sigmoid() end },
    { nn.GLU(1), function(t) return t:narrow(1, 1, 1) * t:narrow(1, 2, 1):sigmoid() end },
  }
  it('gives what its function gives', function()
    for _, c in ipairs(cases) do H.close(c[1](x), c[2](x), nil, tostring(c[1])) end
  end)
  it('prints its settings', function()
    assert.equal('nn.LeakyReLU(negative_slope 0.2)', tostring(nn.LeakyReLU(0.2)))
    assert.equal('nn.Hardtanh(min_val -2, max_val 3)', tostring(nn.Hardtanh(-2, 3)))
  end)
  it('says what is wrong with its settings, at the caller\'s line', function()
    H.fails_here(function() nn.LeakyReLU 'x' end, 'negative_slope', "'x'")
    H.fails_here(function() nn.Threshold(1) end, 'value')
    H.fails_here(function() nn.ELU { alfa = 1 } end, 'alfa', 'alpha')
  end)
end)

describe('nn.PReLU', function()
  it('learns one slope, or one a channel', function()
    local one, many = nn.PReLU(), nn.PReLU(4, { init = 0.5 })
    H.close(one(x), amp.leaky_relu(x, 0.25))
    H.close(many(x), amp.leaky_relu(x, 0.5))
    many(x):sum():backward()
    H.close(many.weight.grad, { -4, -1, -0.25, 0 })
    assert.equal('4', tostring(many:state_dict().weight:size()))
    assert.equal('nn.PReLU(num_parameters 4)', tostring(many))
    H.fails_here(function() nn.PReLU(0) end, 'num_parameters', '0')
    H.fails_here(function() nn.PReLU(3)(x) end, '3', '4')
  end)
end)

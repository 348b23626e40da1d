--- One copy of each part of amp a Lua state, even where a test runner clears package.loaded between files.
local H = require 'spec.lib.helper'

-- A child that uses much of amp, forgets package.loaded (all of it, or all but `amp`), and goes on.
local function child(forget)
  return H.child(([[
    local function use(amp)
      local nn = amp.nn
      local net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
      local opt = amp.optim.Adam(net:parameters())
      net, opt = amp.initialize(net, opt, { opt_level = 'O2', verbosity = 0 })
      amp.scale_loss(net(amp.randn(5, 4)):sum(), opt, function(s) s:backward() end)
      opt:step():zero_grad()
      assert(amp.master_params(opt)[1].dtype == 'float32' and net[2].weight.dtype == 'float32' and net[1].weight.dtype == 'float16')
      assert(amp.equal(net:state_dict()['1.weight'], amp.master_params(opt)[1]:detach()))
      amp.deactivate()
      amp.register_half_function(math, 'floor')
      amp.gradcheck(function(x) return x * x end, { amp.randn({ 2 }, { dtype = 'float64', requires_grad = true }) })
      amp.checkpoint(function(x) return x:exp() end, amp.randn({ 2 }, { requires_grad = true })):sum():backward()
      amp.profile(function() return amp.randn(2, 2):sum() end)
      amp.Function { forward = function(_, x) return x end, backward = function(_, g) return g end }
      return amp.GradScaler(), amp.metric.Accuracy(), amp.optim.Trainer(net:parameters(), 'sgd', {})
    end
    use(amp)
    local before = {}
    for name, module in pairs(package.loaded) do
      if name:match '^amp' then before[name] = module end
    end
    for name in pairs(before) do if %s then package.loaded[name] = nil end end
    local again = require 'amp'
    use(again)
    local n = 0
    for name, module in pairs(before) do
      local now = require(name)
      if now ~= module then print('a second copy of ' .. name) end
      n = n + 1
    end
    print(n > 40, again == amp, rawget(_G, 'amp'))
  ]]):format(forget))
end

describe('parts of amp', function()
  it('are loaded once where package.loaded is cleared', function()
    local out, status = child 'true'
    assert.equal('true\ttrue\tnil\n', out)
    assert.equal(0, status)
  end)
  it('are loaded once where package.loaded is cleared of all but amp', function()
    assert.equal('true\ttrue\tnil\n', (child "name ~= 'amp'"))
  end)
end)

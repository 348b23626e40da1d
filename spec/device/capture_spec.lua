--- amp.capture and amp.cuda on a machine without a GPU: the same script runs, and says what it looked for.
local H = require 'spec.lib.helper'
local amp = require 'amp'
local nn, F, optim = amp.nn, amp.nn.functional, amp.optim

describe('amp.capture', function()
  local function trained(wrap)
    amp.manual_seed(3)
    local net = nn.Linear(4, 2)
    local opt = optim.Adam(net:parameters(), { lr = 1e-2 })
    local scaler = amp.GradScaler { init_scale = 8, growth_interval = 2 }
    local x, y = amp.randn(5, 4), amp.randn(5, 2)
    local step = wrap(function(input, target)
      local loss = amp.autocast({ dtype = 'float16' }, F.mse_loss, net(input), target)
      scaler:scale(loss):backward()
      scaler:step(opt):update()
      opt:clear_grad()
      return loss, 'second'
    end)
    local losses = {}
    for i = 1, 6 do
      local loss, word = step(x, y)
      losses[i] = loss:item()
      assert.equal('second', word)
    end
    return losses, net.weight:tolist(), scaler:get_scale()
  end

  it('makes n calls n steps, with arguments and results', function()
    local plain = { trained(function(f) return f end) }
    local captured = { trained(amp.capture) }
    assert.same(plain, captured)
    assert.equal(64, captured[3])
  end)

  it('lets errors through, by identity, and runs again after', function()
    local mine, calls = {}, 0
    local step = amp.capture(function()
      calls = calls + 1
      if calls == 2 then error(mine) end
      return calls
    end)
    assert.equal(1, step())
    local ok, e = pcall(step)
    assert.is_false(ok)
    assert.equal(mine, e)
    assert.equal(3, step())
  end)

  it('takes a module, and refuses what cannot be called', function()
    local net = nn.Linear(2, 1)
    local x = amp.ones(3, 2)
    assert.is_true(amp.equal(net(x), amp.capture(net)(x)))
    H.fails_here(function() amp.capture(3) end, 'a function is expected, got 3')
    H.fails_here(function() amp.capture() end, 'a function is expected, got nil')
    H.fails_here(function() amp.capture {} end, 'a function is expected, got a table')
  end)
end)

describe('amp.clock', function()
  it('is wall time in seconds and never runs backward', function()
    local a, b = amp.clock(), amp.clock()
    assert.equal('number', type(a))
    assert.is_true(b >= a and b - a < 1)
    local started, t = os.time(), amp.clock()
    while os.time() - started < 2 do end
    local took = amp.clock() - t
    assert.is_true(took > 0.9 and took < 10, took)
  end)
end)

describe('amp.cuda without a GPU', function()
  if amp.cuda.is_available() then return it('is not tried', function() pending 'there is a GPU' end) end

  it('says that there is none, and has nothing to wait for or give back', function()
    assert.is_false(amp.cuda.is_available())
    assert.equal(0, amp.cuda.device_count())
    assert.is_truthy(amp.cuda.reason():match 'libamp_cuda')
    amp.cuda.synchronize()
    amp.cuda.empty_cache()
  end)

  for _, name in ipairs { 'get_device_properties', 'memory_stats', 'max_memory_allocated', 'reset_max_memory_allocated',
    'current_stream', 'Stream', 'Event' } do
    it('refuses ' .. name .. ' with what was looked for and not found', function()
      H.fails_here(function() amp.cuda[name]() end, 'cuda.' .. name)
      H.fails_here(function() amp.cuda[name]() end, "device 'cuda' is not there:", 'libamp_cuda')
      H.fails_here(function() amp.cuda[name] 'cuda:2' end, "device 'cuda:2' is not there")
      H.fails_here(function() amp.cuda[name] 'gpu' end, "'gpu' is no device")
    end)
  end

  it('refuses to wait for one asked for by name', function()
    H.fails_here(function() amp.cuda.synchronize 'cuda' end, "device 'cuda' is not there")
    H.fails_here(function() amp.cuda.synchronize 'cpu' end, "a GPU is expected, got 'cpu'")
  end)

  it('refuses tensors, modules and defaults there, likewise', function()
    local t, net = amp.ones(2), nn.Linear(2, 2)
    for _, f in ipairs {
      function() amp.ones({ 2 }, { device = 'cuda' }) end, function() t:cuda() end, function() t:to 'cuda' end,
      function() net:to 'cuda' end, function() amp.set_default_device 'cuda' end,
    } do
      H.fails_here(f, "device 'cuda' is not there:", 'libamp_cuda')
    end
    assert.equal('cpu', net.weight.device)
    assert.equal('cpu', amp.ones(1).device)
  end)
end)

--- The recipe `delayed`: what a step looks back at, who writes it, and that it is saved and set. AMP_SPEC_DEVICE names the
-- device.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local R = require 'spec.lib.float8_reference'
local nn, F = amp.nn, amp.nn.functional
if H.device then amp.set_default_device(H.device) end

local function delayed(history, f, ...) return amp.autocast({ dtype = 'float8', recipe = 'delayed', history = history }, f, ...) end

local function layer()
  amp.manual_seed(7)
  return nn.Linear(16, 16, { bias = false })
end

local function lists(t) return t:detach():cpu():double():tolist() end

local function near(t, want, what)
  local got = lists(t)
  for i = 1, #want do
    for j = 1, #want[i] do
      assert(math.abs(got[i][j] - want[i][j]) <= 2 ^ -8 * math.abs(want[i][j]) * 1.01 + 1e-4,
        ('%s: [%d][%d] is %g, not %g'):format(what, i, j, got[i][j], want[i][j]))
    end
  end
end

local function largest_before(list, n, history)
  local most = 0
  for i = math.max(1, n - history), n - 1 do most = math.max(most, list[i]) end
  return most
end

describe('delayed scaling', function()
  for _, history in ipairs { 1, 2, 16 } do
    it(('looks back %d steps, for inputs and gradients apart; what is larger saturates'):format(history), function()
      local net = layer()
      local opt = amp.optim.SGD(net:parameters(), { lr = 0.01 })
      local sizes, gradients = { 1, 8, 0.25, 0, 2, 64, 1, 1 }, { 1, 0.125, 4, 4, 0, 1, 1, 16 }
      local xs, gs = {}, {}
      for n = 1, #sizes do
        local x = (amp.randn(16, 16) * sizes[n]):requires_grad_()
        local g = (amp.randn(16, 16) * gradients[n]):to 'bfloat16'
        local w = lists(net.weight)
        local y = delayed(history, function() return net(x) end)
        y:backward(g)
        xs[n], gs[n] = R.largest(lists(x)), R.largest(lists(g))
        local ry, rdx, rdw = R.linear(lists(x), w, lists(g), { recipe = 'delayed', input = largest_before(xs, n, history),
          gradient = largest_before(gs, n, history) })
        near(y, ry, 'y of step ' .. n)
        near(x.grad, rdx, 'dx of step ' .. n)
        near(net.weight.grad, rdw, 'dw of step ' .. n)
        opt:step():clear_grad()
      end
      local state = amp.float8_state(net).weight
      for i = 1, math.min(history, 8) do
        assert.near(xs[9 - i], state.input[i], 1e-6 * xs[9 - i])
        assert.near(gs[9 - i], state.gradient[i], 1e-6 * gs[9 - i])
      end
    end)
  end

  it('reads the history without gradients, and writes nothing', function()
    local net = layer()
    local x = amp.full({ 16, 16 }, 3)
    delayed(4, function() return net(x) end)
    local before = amp.float8_state(net)
    assert.same({ 3 }, before.weight.input)
    local y = amp.no_grad(function() return delayed(4, function() return net(amp.full({ 16, 16 }, 100)) end) end)
    local z = delayed(4, function() return amp.no_grad(function() return net(x) end) end)
    near(y, lists(z), 'saturated')
    assert.same(before, amp.float8_state(net))
    delayed(4, function()
      net(x)
      amp.no_grad(function() net(x * 10) end)
    end)
    assert.same({ 3, 3 }, amp.float8_state(net).weight.input)
  end)

  it('joins several uses of a step by their largest', function()
    local net = layer()
    local function step(a, b)
      local x, y = amp.full({ 16, 16 }, a), amp.full({ 16, 16 }, b)
      local s = delayed(4, function() return net(x):float():sum() + net(y):float():sum() * 2 end)
      s:backward()
    end
    step(1, 5)
    step(7, 2)
    assert.same({ { 7, 5 }, { 2, 2 } }, { amp.float8_state(net).weight.input, amp.float8_state(net).weight.gradient })
  end)

  it('takes an inner region as part of the step, and a backward of an earlier step as that step\'s', function()
    local net = layer()
    local a, b
    delayed(4, function()
      a = net(amp.full({ 16, 16 }, 1))
      delayed(4, function() net(amp.full({ 16, 16 }, 2)) end)
    end)
    b = delayed(4, function() return net(amp.full({ 16, 16 }, 4)) end)
    b:backward(amp.full({ 16, 16 }, 8, { dtype = 'bfloat16' }))
    a:backward(amp.full({ 16, 16 }, 32, { dtype = 'bfloat16' }))
    assert.same({ 4, 2 }, amp.float8_state(net).weight.input)
    local g = amp.float8_state(net).weight.gradient
    assert(g[1] == 8 or g[1] == 32)
  end)

  it('leaves what is not finite out', function()
    local net = layer()
    local x = amp.ones(16, 16)
    x[{ 2, 3 }], x[{ 5, 5 }] = math.huge, 0 / 0
    local y = delayed(4, function() return net(x) end)
    assert.same({ 1 }, amp.float8_state(net).weight.input)
    local rows = y:float():cpu():tolist()
    for i = 1, 16 do assert.equal(i == 2 or i == 5, rows[i][1] ~= rows[i][1] or math.abs(rows[i][1]) == math.huge) end
  end)

  it('is the same when forward is computed again in backward', function()
    local net, same = layer(), layer()
    local function step(f, m, size)
      local x = (amp.ones(16, 16) * size):requires_grad_()
      local y = delayed(2, function() return f(m, x) end)
      y:float():sum():backward()
      return x.grad
    end
    for _, size in ipairs { 1, 4, 2 } do
      local a = step(function(m, x) return m(x) end, net, size)
      local b = step(function(m, x) return amp.checkpoint(function(t) return m(t) end, x) end, same, size)
      assert(amp.equal(a, b))
    end
    assert.same(amp.float8_state(net), amp.float8_state(same))
  end)

  it('is plain data that a resumed run repeats with', function()
    local function train(net, opt, from, to)
      local last
      for n = from, to do
        amp.manual_seed(n)
        local x = amp.randn(16, 16) * n
        local y = delayed(3, function() return F.mse_loss(net(x), x) end)
        y:backward()
        opt:step():clear_grad()
        last = y:item()
      end
      return last
    end
    local net = layer()
    local opt = amp.optim.SGD(net:parameters(), { lr = 1e-4 })
    train(net, opt, 1, 4)
    local dict, plain = net:state_dict(), amp.float8_state(net)
    local copies = {}
    for name, t in pairs(dict) do copies[name] = t:clone() end
    assert(dict['weight.float8_history'])
    local want = train(net, opt, 5, 6)
    for _, how in ipairs { 'dict', 'plain', 'file' } do
      local other = nn.Linear(16, 16, { bias = false })
      if how == 'plain' then
        other:load_state_dict { weight = copies.weight }
        assert.same({}, amp.float8_state(other))
        amp.load_float8_state(other, plain)
      elseif how == 'file' then
        amp.save(H.tmp 'float8_state', { net = copies, float8 = plain })
        local back = amp.load(H.tmp 'float8_state')
        other:load_state_dict(back.net)
        assert.same(plain, back.float8)
      else other:load_state_dict(copies) end
      assert.same(plain, amp.float8_state(other))
      assert.equal(want, train(other, amp.optim.SGD(other:parameters(), { lr = 1e-4 }), 5, 6))
    end
    assert.same({ 'weight' }, (function() local k = {} for name in pairs(layer():state_dict()) do k[#k + 1] = name end return k end)())
  end)

  it('goes with a copy of the network, which then has its own', function()
    local one = layer()
    local net = nn.Sequential(one, nn.ReLU(), one)
    delayed(4, function() return net(amp.full({ 16, 16 }, 3)):sum() end):backward()
    local before = amp.float8_state(net)
    assert.is_true(before['1.weight'].input[1] >= 3)
    local copy = net:clone()
    assert.same(before, amp.float8_state(copy))
    delayed(4, function() return copy(amp.full({ 16, 16 }, 5)) end)
    assert.same(before, amp.float8_state(net))
    assert.equal(2, #amp.float8_state(copy)['1.weight'].input)
    assert.same({}, amp.float8_state(layer():clone()))
    -- the next step of both is the same
    local again = net:clone()
    local x = amp.full({ 16, 16 }, 20)
    assert.is_true(amp.equal(delayed(4, function() return net(x) end), delayed(4, function() return again(x) end)))
  end)

  it('is set with care', function()
    local net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    amp.load_float8_state(net, { ['1.weight'] = { input = { 1, 2 } } })
    assert.same({ ['1.weight'] = { input = { 1, 2 }, gradient = {} } }, amp.float8_state(net))
    for _, bad in ipairs { { ['3.weight'] = { input = {} } }, { ['1.weight'] = 3 }, { ['1.weight'] = { input = { 0 / 0 } } },
      { ['1.weight'] = { input = { math.huge } } }, { ['1.weight'] = { input = { -1 } } }, { ['1.weight'] = { weights = {} } },
      { ['1.weight'] = { input = { 1, nil, 2 } } }, { ['1.weight'] = { input = { 'a' } } } } do
      H.fails(function() amp.load_float8_state(net, bad) end, (next(bad)))
    end
    H.fails(function() amp.load_float8_state(net, 1) end, 'load_float8_state')
    H.fails(function() amp.float8_state(1) end, 'float8_state')
    assert.same({ ['1.weight'] = { input = { 1, 2 }, gradient = {} } }, amp.float8_state(net))
    amp.load_float8_state(net, {})
    assert.same({}, amp.float8_state(net))
  end)
end)

--- amp.torch7.optim: every optimizer's options, two steps of each by hand, searches on a valley, errors for what is not known.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local function near(a, b) assert.is_true(math.abs(a - b) < 1e-9, ('%s, expected %s'):format(tostring(a), tostring(b))) end
local t7 = amp.torch7
local torch, optim = t7.torch, t7.optim

local function after(name, config, steps, gradient, start)
  local x = amp.tensor(start or { 1 }, { dtype = 'float64' })
  for _ = 1, steps do
    optim[name](function(v) return 0, gradient and gradient(v:detach()) or amp.ones_like(v) end, x, config)
  end
  return x
end

describe('torch7.optim', function()
  it('has a rate and a decay for each parameter', function()
    local x = torch.zeros(2)
    optim.sgd(function() return 0, torch.ones(2) end, x, { learningRate = 1, learningRates = torch.Tensor { 1, 0 } })
    H.close(x, { -1, 0 })
    x = torch.ones(2)
    optim.sgd(function() return 0, torch.zeros(2) end, x, { learningRate = 1, weightDecays = torch.Tensor { 0.5, 0 } })
    H.close(x, { 0.5, 1 })
    x = torch.zeros(2)
    optim.nag(function() return 0, torch.ones(2) end, x, { learningRate = 1, learningRates = torch.Tensor { 1, 0 } })
    H.close(x, { -1, 0 })
    H.fails_here(function() optim.sgd(function() return 0, torch.ones(2) end, x, { learningRates = torch.ones(3) }) end, 'learningRates', '3')
  end)
  it('steps as its formulas say', function()
    H.close(after('sgd', { learningRate = 0.5, learningRateDecay = 1 }, 2), { 1 - 0.5 - 0.25 })
    H.close(after('sgd', { learningRate = 1, momentum = 0.5 }, 2), { 1 - 1 - 1 }) -- dampening is the momentum
    H.close(after('sgd', { learningRate = 1, momentum = 0.5, dampening = 0 }, 2), { 1 - 1 - 1.5 })
    H.close(after('nag', { learningRate = 1, momentum = 0.5 }, 2), { 1 - 1 - 0.5 - 1 })
    H.close(after('adagrad', { learningRate = 1 }, 2), { 1 - 1 - 1 / math.sqrt(2) }, 1e6)
    H.close(after('rmsprop', { learningRate = 1, alpha = 0.5, initialMean = 1 }, 1), { 0 }, 1e9)
    H.close(after('rmsprop', { learningRate = 1, alpha = 0.5 }, 1), { 1 - math.sqrt(2) }, 1e9)
    H.close(after('adadelta', { rho = 0.5, eps = 1 }, 1), { 1 - 1 / math.sqrt(1.5) })
    H.close(after('adam', { learningRate = 0.1 }, 2), { 0.8 }, 1e9)
    H.close(after('adam', { learningRate = 0.1, learningRateDecay = 1 }, 2), { 1 - 0.1 - 0.05 }, 1e9)
    H.close(after('adamax', { learningRate = 0.1 }, 2), { 0.8 })
    H.close(after('asgd', { eta0 = 0.5, lambda = 0 }, 2), { 0 })
    H.close(after('rprop', { stepsize = 0.1 }, 2), { 1 - 0.1 - 0.12 })
    H.close(after('rprop', { stepsize = 0.1, niter = 2 }, 1), { 1 - 0.1 - 0.12 })
    H.close(after('rmsprop', { learningRate = 1, alpha = 0, weightDecay = 1 }, 1), { 0 }, 1e9)
  end)
  it('gives the average of asgd', function()
    local x = torch.ones(1)
    local _, _, average = optim.asgd(function() return 0, torch.ones(1) end, x, { eta0 = 0.5, lambda = 0, t0 = 0 })
    H.close(average, { 0.5 })
  end)
  it('knows its options', function()
    local f = function() return 0, torch.ones(1) end
    for name, key in pairs { sgd = 'learningrate', adam = 'momentum', adagrad = 'epsilon', rmsprop = 'learningRateDecay', adadelta = 'learningRate',
      adamax = 'rho',
      asgd = 'learningRate', rprop = 'learningRate', nag = 'nesterov', cg = 'learningRate', lbfgs = 'momentum' } do
      H.fails_here(function() optim[name](f, torch.ones(1), { [key] = 1 }) end, name, key)
    end
    H.fails_here(function() optim.sgd(f, torch.ones(1), { learningrate = 1 }) end, "'learningRate'")
    H.fails_here(function() optim.adam(f, torch.ones(1), { momentum = 1 }) end, 'sgd')
    H.fails_here(function() optim.sgd(f, torch.ones(1), { nesterov = true, momentum = 0.9 }) end, 'dampening')
    H.fails_here(function() optim.sgd(function() return 0, torch.ones(3) end, torch.ones(1), {}) end, 'gradient of 3')
  end)
  -- Rosenbrock's valley, whose lowest point is (1, 1)
  local function valley(v)
    local a, b = v[1]:item(), v[2]:item()
    local g = amp.tensor({ -400 * a * (b - a * a) - 2 * (1 - a), 200 * (b - a * a) }, { dtype = 'float64' })
    return 100 * (b - a * a) ^ 2 + (1 - a) ^ 2, g
  end
  it('searches along lines', function()
    local x = amp.tensor({ -1, 1 }, { dtype = 'float64' })
    local _, losses, calls = optim.cg(valley, x, { maxEval = 200, maxIter = 20 })
    assert.is_true(losses[#losses] < 1e-6 and calls <= 200, losses[#losses])
    x = amp.tensor({ -1, 1 }, { dtype = 'float64' })
    _, losses = optim.lbfgs(valley, x, { maxIter = 100, maxEval = 200, lineSearch = optim.lswolfe, tolX = 1e-15 })
    assert.is_true(losses[#losses] < 1e-6, losses[#losses])
    H.close(x, { 1, 1 }, 1e12)
    x = amp.tensor({ 5, -3 }, { dtype = 'float64' })
    _, losses = optim.lbfgs(function(v) return (v:detach() * v:detach()):sum():item(), v:detach() * 2 end, x, { maxIter = 20, learningRate = 1 })
    assert.is_true(losses[#losses] < 1e-8 and losses[1] == 34)
    assert.is_true((optim.checkgrad(valley, amp.tensor({ 0.5, 0.5 }, { dtype = 'float64' }))) < 1e-6)
    x = amp.tensor({ 2, 2 }, { dtype = 'float64' })
    local _, best = optim.de(function(v) return (v * v):sum():item() end, x, { maxFEval = 200, popsize = 10 })
    assert.is_true(best[#best] <= best[1])
  end)
  it('find a step that lowers enough and is flat enough, within the calls that are allowed', function()
    local function f64(...) return amp.tensor({ ... }, { dtype = 'float64' }) end
    local function search(first, options)
      local x, f, g = f64(-1, 1), valley(f64(-1, 1))
      local d = -g
      local slope = (g * d):sum():item()
      local f2, g2, moved, t, calls = optim.lswolfe(valley, x, first, d, f, g, slope, options)
      H.close(x, (f64(-1, 1) + d * t):tolist())
      assert.is_true(moved == x and f2 == (valley(x)))
      return f2 - f, (g2 * d):sum():item(), t, calls, slope
    end
    for _, first in ipairs { 1e-6, 1e-3, 1, 100 } do
      local change, now, t, _, slope = search(first, { c1 = 0.1, c2 = 0.2, maxIter = 60 })
      assert.is_true(change <= 0.1 * t * slope and math.abs(now) <= -0.2 * slope, ('%g: %g %g %g'):format(first, change, now, slope))
    end
    local _, _, _, calls = search(1, { maxIter = 3 })
    assert.is_true(calls <= 4)
    near(optim.polyinterp(f64({ 0, 1, -2 }, { 2, 1, 2 })), 1)
    near(optim.polyinterp(f64({ 0, 1, -2 }, { 2, 1, 2 }), 1.5), 1.5)
    near(optim.polyinterp(f64({ 0, 1, 0 }, { 2, 1, 0 })), 1) -- flat: in the middle
    H.fails(function() search(1, { tol = 1 }) end, "'tol'")
  end)
  it('counts classes below 1 not at all, and scores', function()
    local m = optim.ConfusionMatrix { 'a', 'b' }
    m:batchAdd(torch.Tensor { { 0.9, 0.1 }, { 0.2, 0.8 } }, torch.Tensor { 1, 0 })
    m:add(torch.Tensor { 0.9, 0.1 }, torch.Tensor { 0, 1 })
    m:batchAdd(torch.Tensor { 1, 2 }, torch.Tensor { 1, 2 })
    H.close(m.mat, { s = { 2, 2 }, v = { 2, 0, 1, 1 } }, H.exact)
    m:updateValids()
    assert.equal(0.75, m.totalValid)
    assert.is_true(math.abs(m.averageUnionValid - (2 / 3 + 1 / 2) / 2) < 1e-12)
    H.fails_here(function() optim.Logger():setNames { 'a' }:add { b = 1 } end, "'b'")
  end)
end)

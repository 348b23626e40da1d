--- Optimizers of torch7.optim that search along lines, and those without gradients: cg, lbfgs, lswolfe, FistaLS, de, cmaes, checkgrad.
-- They change x, a vector, in place. Called by amp.torch7.optim with its module table.
local amp = require 'amp'
local adapt = require 'amp.torch7.adapt'
local line_search = require 'amp.optim.line_search'
local raise = require('amp.error').throw

local function dot(a, b) return (a * b):sum():item() end
local function bad(v) return v ~= v or v == math.huge or v == -math.huge end
local function number(v)
  v = adapt.amp(v)
  return amp.is_tensor(v) and v:item() or v
end

return function(M)
  -- f(): the loss and the gradient at x as it is
  local function evaluator(op, opfunc, x)
    return function()
      local loss, _, grads, single = M.evaluate(op, opfunc, x)
      if not single then raise(op, 'a vector of parameters expected, not a list') end
      return number(loss), grads[1]:clone(), loss
    end
  end

  -- -- Conjugate gradients ---------------------------------------------------------------------------

  -- The way to a lower value between two points of a line, by a cubic or a parabola.
  local function inside(p1, p2, p3)
    local z
    if p2.f > p1.f then
      z = p3.z - (0.5 * p3.d * p3.z * p3.z) / (p3.d * p3.z + p2.f - p3.f)
    else
      local a = 6 * (p2.f - p3.f) / p3.z + 3 * (p2.d + p3.d)
      local b = 3 * (p3.f - p2.f) - p3.z * (p3.d + 2 * p2.d)
      z = (math.sqrt(b * b - a * p2.d * p3.z * p3.z) - b) / a
    end
    return bad(z) and p3.z / 2 or z
  end
  -- The way on beyond the last point.
  local function outside(p2, p3, z1, limit, c)
    local a = 6 * (p2.f - p3.f) / p3.z + 3 * (p2.d + p3.d)
    local b = 3 * (p3.f - p2.f) - p3.z * (p3.d + 2 * p2.d)
    local z = -p2.d * p3.z * p3.z / (b + math.sqrt(b * b - a * p2.d * p3.z * p3.z))
    local bounded = limit > -0.5
    if bad(z) or z < 0 then return bounded and (limit - z1) / 2 or z1 * (c.ext - 1) end
    if bounded and z + z1 > limit then return (limit - z1) / 2 end
    if not bounded and z + z1 > z1 * c.ext then return z1 * (c.ext - 1) end
    if z < -p3.z * c.int then return -p3.z * c.int end
    if bounded and z < (limit - z1) * (1 - c.int) then return (limit - z1) * (1 - c.int) end
    return z
  end

  -- One line search along s: the last point, the step, whether it succeeded.
  local function along(x, s, start, z1, c, state, evaluate)
    local p2 = {}
    local function go(step)
      amp.no_grad(function() x:add_(s, {alpha = step}) end)
      p2.f, p2.g = evaluate()
      p2.d = dot(p2.g, s)
      state.evals = state.evals + 1
    end
    go(z1)
    local p3 = {f = start.f, d = start.d, z = -z1}
    local left, limit = math.min(c.maxIter, c.maxEval - state.evals), -1
    local function steep() return p2.f > start.f + z1 * c.rho * start.d or p2.d > -c.sig * start.d end
    while true do
      while steep() and left > 0 do
        limit = z1
        local z2 = math.max(math.min(inside(start, p2, p3), c.int * p3.z), (1 - c.int) * p3.z)
        z1 = z1 + z2
        go(z2)
        left = left - 1
        p3.z = p3.z - z2
      end
      if steep() then return p2, z1, false end
      if p2.d > c.sig * start.d then return p2, z1, true end
      if left == 0 then return p2, z1, false end
      local z2 = outside(p2, p3, z1, limit, c)
      p3 = {f = p2.f, d = p2.d, z = -z2}
      z1 = z1 + z2
      go(z2)
      left = left - 1
    end
  end

  --- Conjugate gradients (Polack and Ribiere) with a search along each line.
  -- Options: maxEval (maxIter * 1.25), maxIter (20 a line), rho, sig, int, ext, ratio. Gives x, the losses, the number of calls.
  function M.cg(opfunc, vector, config, state)
    config = config or {}
    M.check_options('cg', config, {'maxEval', 'maxIter', 'rho', 'sig', 'int', 'ext', 'ratio', 'verbose'})
    local c = {rho = config.rho or 0.01, sig = config.sig or 0.5, int = config.int or 0.1, ext = config.ext or 3, ratio = config.ratio or 100,
      maxIter = config.maxIter or 20}
    c.maxEval = math.abs(config.maxEval or c.maxIter * 1.25)
    local evaluate = evaluator('torch7.optim.cg', opfunc, vector)
    local x = adapt.amp(vector)
    local count = {evals = 1}
    local f1, g1 = evaluate()
    local losses, s = {f1}, -g1
    local d1 = -dot(s, s)
    local z1, failed = 1 / (1 - d1), false
    while count.evals < c.maxEval do
      local x0 = x:detach():clone()
      local p, z, success = along(x, s, {f = f1, d = d1}, z1, c, count, evaluate)
      z1 = z
      if success then
        losses[#losses + 1] = p.f
        local turn = (dot(p.g, p.g) - dot(p.g, g1)) / dot(g1, g1)
        s = s * turn - p.g
        f1, g1 = p.f, p.g
        local d2 = dot(g1, s)
        if d2 > 0 then
          s = -g1
          d2 = -dot(s, s)
        end
        z1 = z1 * math.min(c.ratio, d1 / (d2 - 1e-320))
        d1, failed = d2, false
      else
        amp.no_grad(function() x:copy_(x0) end)
        if failed or count.evals > c.maxEval or dot(g1, g1) == 0 then break end
        s = -g1
        d1 = -dot(s, s)
        z1, failed = 1 / (1 - d1), true
      end
    end
    if state then state.evalCounter = (state.evalCounter or 0) + count.evals end
    return vector, losses, count.evals
  end

  -- -- L-BFGS -------------------------------------------------------------------------------------------

  -- The direction -H g, H from the last steps and changes of the gradient.
  local function direction(g, dirs, changes, scale)
    local q, al, ro = -g, {}, {}
    for i = #dirs, 1, -1 do
      ro[i] = 1 / dot(changes[i], dirs[i])
      al[i] = dot(dirs[i], q) * ro[i]
      q:add_(changes[i], {alpha = -al[i]})
    end
    q:mul_(scale)
    for i = 1, #dirs do q:add_(dirs[i], {alpha = al[i] - dot(changes[i], q) * ro[i]}) end
    return q
  end

  --- Limited-memory BFGS. Options: maxIter (20), maxEval (maxIter * 1.25), tolFun (1e-5), tolX (1e-9), nCorrection (100), lineSearch
  -- (a function such as optim.lswolfe), lineSearchOptions, learningRate (1). Gives x, the losses, the number of calls.
  function M.lbfgs(opfunc, vector, config, state)
    config = config or {}
    M.check_options('lbfgs', config, {'maxIter', 'maxEval', 'tolFun', 'tolX', 'nCorrection', 'lineSearch', 'lineSearchOptions', 'learningRate', 'verbose'})
    state = state or config
    local maxIter, tolFun, tolX = tonumber(config.maxIter) or 20, config.tolFun or 1e-5, config.tolX or 1e-9
    local maxEval, rate, memory = tonumber(config.maxEval) or maxIter * 1.25, config.learningRate or 1, config.nCorrection or 100
    local function say(text)
      if config.verbose then print('<optim.lbfgs> ', text) end
    end
    state.funcEval, state.nIter = state.funcEval or 0, state.nIter or 0
    local x = adapt.amp(vector)
    local evaluate = evaluator('torch7.optim.lbfgs', opfunc, vector)
    local f, g, raw = evaluate()
    local losses, evals = {raw}, 1
    state.funcEval = state.funcEval + 1
    if g:abs():sum():item() <= tolFun then return vector, losses, evals end
    local t, n = state.step, 0
    while n < maxIter do
      n = n + 1
      state.nIter = state.nIter + 1
      if state.nIter == 1 or not state.d then
        state.d, state.old_dirs, state.old_stps, state.Hdiag = -g, {}, {}, 1
      else
        local change, step = g - adapt.amp(state.g_old), adapt.amp(state.d) * t
        local ys = dot(change, step)
        if ys > 1e-10 then
          if #state.old_dirs == memory then
            table.remove(state.old_dirs, 1)
            table.remove(state.old_stps, 1)
          end
          table.insert(state.old_dirs, step)
          table.insert(state.old_stps, change)
          state.Hdiag = ys / dot(change, change)
        end
        local dirs, changes = {}, {}
        for i = 1, #state.old_dirs do dirs[i], changes[i] = adapt.amp(state.old_dirs[i]), adapt.amp(state.old_stps[i]) end
        state.d = direction(g, dirs, changes, state.Hdiag)
      end
      state.g_old, state.f_old = g:clone(), f
      local slope = dot(g, state.d)
      if slope > -tolX then break end
      t = state.nIter == 1 and math.min(1, 1 / g:abs():sum():item()) * rate or rate
      local used = 0
      if type(config.lineSearch) == 'function' then
        local f2, g2, _, t2, calls = config.lineSearch(opfunc, vector, t, adapt.like(vector, state.d), f, adapt.like(vector, g), slope,
          config.lineSearchOptions)
        f, g = number(f2), adapt.amp(g2):clone()
        t, used = number(t2), calls
        losses[#losses + 1] = f2
      else
        amp.no_grad(function() x:add_(state.d, {alpha = t}) end)
        if n ~= maxIter then
          f, g, raw = evaluate()
          used = 1
          losses[#losses + 1] = raw
        end
      end
      evals = evals + used
      state.funcEval = state.funcEval + used
      if n == maxIter then
        say 'reached max number of iterations'
        break
      end
      if evals >= maxEval then
        say 'max nb of function evals'
        break
      end
      if g:abs():sum():item() <= tolFun or (state.d * t):abs():sum():item() <= tolX or math.abs(f - state.f_old) < tolX then break end
    end
    state.step = t
    return vector, losses, evals
  end

  --- A line search to the strong Wolfe conditions: f, g, x, t, calls. Options: c1 (1e-4), c2 (0.9), tolX (1e-9), maxIter (20).
  function M.lswolfe(opfunc, vector, t, d, f, g, gtd, options)
    options = options or {}
    M.check_options('lswolfe', options, {'c1', 'c2', 'tolX', 'maxIter', 'verbose'})
    local x, way = adapt.amp(vector), adapt.amp(d)
    local evaluate = evaluator('torch7.optim.lswolfe', opfunc, vector)
    local from = x:detach():clone()
    local function at(step)
      amp.no_grad(function() x:copy_(from):add_(way, {alpha = step}) end)
      local value, grad = evaluate()
      return {t = step, f = value, g = grad, slope = dot(grad, way)}
    end
    local start = {t = 0, f = number(f), g = adapt.amp(g), slope = number(gtd)}
    local low, calls = line_search.strong_wolfe(at, number(t), start, nil, {c1 = options.c1, c2 = options.c2, tolerance = options.tolX,
      most = options.maxIter or 20})
    amp.no_grad(function() x:copy_(from):add_(way, {alpha = low.t}) end)
    return low.f, adapt.like(vector, low.g), vector, low.t, calls
  end

  --- The lowest point of the polynomial through points {x, f, slope}, a tensor of two rows; the bounds may be given.
  function M.polyinterp(points, low, high)
    local rows = adapt.amp(points):tolist()
    if #rows ~= 2 then raise('torch7.optim.polyinterp', '2 points expected, got %d', #rows) end
    local p = {}
    for i, r in ipairs(rows) do p[i] = {t = r[1], f = r[2], slope = r[3]} end
    return line_search.cubic(p[1], p[2], low, high)
  end

  -- -- Others ----------------------------------------------------------------------------------------------

  --- FISTA with a line search: f(x, 'dx') smooth, g(x) not, pl(x, L) minimises around x in place. Gives x and the history.
  function M.FistaLS(f, g, pl, vector, params)
    params = params or {}
    M.check_options('FistaLS', params, {'L', 'Lstep', 'maxiter', 'maxline', 'errthres', 'doFistaUpdate', 'verbose', 'xkm', 'y', 'ply'})
    local L, growth, x = params.L or 0.1, params.Lstep or 1.5, adapt.amp(vector)
    local function like(t) return adapt.like(vector, t) end
    local y, last = amp.zeros_like(x), amp.zeros_like(x)
    local history, tk = {}, 1
    for n = 1, params.maxiter or 50 do
      local fy, gfy = f(like(y), 'dx')
      fy, gfy = number(fy), adapt.amp(gfy):clone()
      local line = 0
      local point, q
      while true do
        point = y - gfy / L
        pl(like(point), L)
        local fp = number(f(like(point)))
        local step = point - y
        q = fy + dot(gfy, step) + L / 2 * dot(step, step)
        if fp <= q then break end
        if line >= (params.maxline or 20) then
          point = last:clone()
          break
        end
        L, line = L * growth, line + 1
      end
      if params.doFistaUpdate ~= false then
        local tn = (1 + math.sqrt(1 + 4 * tk * tk)) / 2
        y = point + (last - point) * ((1 - tk) / tn)
        tk = tn
      else
        y = point:clone()
      end
      last = point
      history[n] = {nline = line + 1, L = L, F = number(f(like(y))) + number(g(like(y))), Q = q}
      params.L = L
      if n > 1 and math.abs(history[n].F - history[n - 1].F) <= (params.errthres or 1e-4) then break end
    end
    amp.no_grad(function() x:copy_(y) end)
    return vector, history
  end

  --- The relative difference between opfunc's gradient and one by differences, and both.
  function M.checkgrad(opfunc, vector, eps)
    eps = eps or 1e-7
    local x = adapt.amp(vector)
    local evaluate = evaluator('torch7.optim.checkgrad', opfunc, vector)
    local _, g = evaluate()
    local flat, estimate = x:view(-1), {}
    for i = 1, x:numel() do
      local was = flat[i]:item()
      flat[i] = was + eps
      local up = number(opfunc(vector))
      flat[i] = was - eps
      estimate[i] = (up - number(opfunc(vector))) / (2 * eps)
      flat[i] = was
    end
    local e = amp.tensor(estimate, {dtype = 'float64'}):to(g.dtype):reshape(g:size())
    return (g - e):norm():item() / (g + e):norm():item(), adapt.like(vector, g), adapt.like(vector, e)
  end

  --- Differential evolution, without gradients. Options: popsize (default n), scaleFactor (0.8), crossoverRate (0.7), maxFEval (20),
  -- state. Gives the best point and the best losses.
  function M.de(opfunc, vector, config)
    config = config or {}
    M.check_options('de', config, {'popsize', 'scaleFactor', 'crossoverRate', 'maxFEval', 'repulsion'})
    local x = adapt.amp(vector)
    local n = x:numel()
    local size, scale, cross, most = config.popsize or math.max(n, 4), config.scaleFactor or 0.8, config.crossoverRate or 0.7, config.maxFEval or 20
    if size < 4 then raise('torch7.optim.de', 'popsize must be at least 4, got %g', size) end
    local population, losses, evals = {}, {}, 0
    local function value(p)
      evals = evals + 1
      amp.no_grad(function() x:copy_(p) end)
      return number((opfunc(vector)))
    end
    local start = x:detach():clone()
    for i = 1, size do
      population[i] = i == 1 and start:clone() or start + amp.rand_like(start) * 2 - 1
      losses[i] = value(population[i])
    end
    local function best()
      local b = 1
      for i = 2, size do
        if losses[i] < losses[b] then b = i end
      end
      return b
    end
    local seen = {losses[best()]}
    while evals < most do
      for i = 1, size do
        local pick = {}
        while #pick < 3 do
          local k, fresh = math.random(size), true
          for _, other in ipairs(pick) do fresh = fresh and other ~= k end
          if fresh and k ~= i then pick[#pick + 1] = k end
        end
        local mutant = population[pick[1]] + (population[pick[2]] - population[pick[3]]) * scale
        local mask = amp.rand_like(start):lt(cross)
        local trial = amp.where(mask, mutant, population[i])
        local loss = value(trial)
        if loss <= losses[i] then population[i], losses[i] = trial, loss end
        if evals >= most then break end
      end
      seen[#seen + 1] = losses[best()]
    end
    amp.no_grad(function() x:copy_(population[best()]) end)
    return vector, seen, evals
  end
end

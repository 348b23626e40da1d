--- The reference machine of random programs: one number a tensor, float64, in plain Lua.
-- What is on (autocast, recording) is an environment handed down, a chain in which a body's is the child of its
-- surroundings'; so that there is nothing that could be left behind. A value knows its dtype, the sum of magnitudes that
-- it was added up from (`m`, the measure of rounding), and whether 16 bits took part (`lo`). Derivatives are made of the
-- same ops, so derivatives of derivatives need nothing else.
local M = {}

local INF = math.huge
M.low = 'bfloat16' -- the device's autocast dtype
local LR, MOMENTUM = 2 ^ -5, 0.5

-- -- Environments ------------------------------------------------------------------------------

local function find(env, key)
  while env[key] == nil and env.parent do env = env.parent end
  return env
end

local function autocast(env) return find(env, 'on') end
local function grad_mode(env) return find(env, 'grad').grad end

function M.coroutine_env() return { base = true } end
function M.resume_in(env, parent) env.parent = parent end
function M.state(env)
  local a = autocast(env)
  return ('%s %s %s'):format(tostring(a.on), a.dtype, tostring(grad_mode(env)))
end
M.grad_mode = grad_mode
function M.set_enabled(env, value) autocast(env).on = value end
function M.is_enabled(env) return autocast(env).on end

function M.region(env, o, f) return f { parent = env, on = o.enabled, dtype = o.dtype } end
M.wrap = M.region
function M.no_grad(env, f) return f { parent = env, grad = false } end
function M.enable_grad(env, f) return f { parent = env, grad = true } end
function M.off(env, f) return f { parent = env, on = false, dtype = M.low } end
function M.scope(env, f) return f(env) end
function M.record(env, f) return f { parent = env, grad = true } end
function M.clear_cache() end

-- -- Values ------------------------------------------------------------------------------------

local made = 0
local half = { float16 = true, bfloat16 = true }
local plain = { on = false, dtype = 'bfloat16', grad = true }
local silent = { on = false, dtype = 'bfloat16', grad = false }

local function node(env, v, m, dtype, parents, back)
  made = made + 1
  local n = { id = made, v = v, m = m, dtype = dtype, lo = half[dtype] or false, hooks = {} }
  for _, p in ipairs(parents) do
    n.lo = n.lo or p.lo
    if p.req and grad_mode(env) then n.req = true end
  end
  if n.req then n.parents, n.back = parents, back end
  return n
end

local function leaf(v, req)
  made = made + 1
  return { id = made, v = v, m = math.abs(v), dtype = 'float32', lo = false, hooks = {}, req = req }
end
M.constant = leaf

local function promoted(a, b)
  if a.dtype == b.dtype then return a.dtype end
  return 'float32'
end

local op = {}

local function mul_as(env, a, b, dtype)
  return node(env, a.v * b.v, a.m * b.m, dtype, { a, b }, function(e, g) return op.mul(e, g, b), op.mul(e, g, a) end)
end

function op.mul(env, a, b) return mul_as(env, a, b, promoted(a, b)) end
function op.add(env, a, b)
  return node(env, a.v + b.v, a.m + b.m, promoted(a, b), { a, b }, function(_, g) return g, g end)
end
function op.times(env, a, k)
  return node(env, a.v * k, a.m * math.abs(k), a.dtype, { a }, function(e, g) return op.times(e, g, k) end)
end
function op.sub(env, a, b)
  return node(env, a.v - b.v, a.m + b.m, promoted(a, b), { a, b }, function(e, g) return g, op.times(e, g, -1) end)
end
function op.to(env, a, _, dtype)
  if a.dtype == dtype then return a end
  return node(env, a.v, a.m, dtype, { a }, function(_, g) return g end)
end
local function up(env, a) return autocast(env).on and half[a.dtype] and op.to(env, a, nil, 'float32') or a end
local function low(env, a)
  local s = autocast(env)
  return s.on and op.to(env, a, nil, s.dtype) or a
end
function op.matmul(env, a, b) return op.mul(env, low(env, a), low(env, b)) end
function op.square(env, a)
  a = up(env, a)
  return mul_as(env, a, a, a.dtype)
end
function op.sum(env, a)
  a = up(env, a)
  return node(env, a.v, a.m, a.dtype, { a }, function(_, g) return g end)
end
function op.tanh(env, a)
  local y
  -- an error e of the argument is one of at most e
  y = node(env, math.tanh and math.tanh(a.v) or (1 - 2 / (math.exp(2 * a.v) + 1)), a.m, a.dtype, { a }, function(e, g)
    local s = op.mul(e, y, y)
    return op.sub(e, g, op.mul(e, g, s))
  end)
  return y
end
function op.half_mul(env, a, b) return op.mul(env, low(env, a), low(env, b)) end
function op.float_mul(env, a, b) return op.mul(env, up(env, a), up(env, b)) end
op.promote_mul = op.mul
function op.square_function(env, a) return mul_as(env, a, a, a.dtype) end -- autocast leaves mul alone
function op.own_function(env, a) return op.matmul(env, a, a) end
function op.float32_function(env, a)
  if autocast(env).on then a = op.to(env, a, nil, 'float32') end
  return mul_as(env, a, a, a.dtype)
end
function op.checkpoint(env, a, b)
  local y = op.tanh(env, op.matmul(env, a, b))
  return node(env, y.v, y.m, y.dtype, { y }, function(_, g) return g end) -- backward computes y anew, without y's hooks
end

function M.op(env, name, a, b, dtype) return op[name](env, a, b, dtype) end
function M.value(t) return t.v, t.m, t.lo end
function M.dtype(t) return t.dtype end
function M.requires_grad(t) return t.req or false end

-- -- Backward ------------------------------------------------------------------------------------

-- Nodes under the roots, the latest first; only those that `target` is under, where one is given.
local function order(roots, target)
  local seen, list = {}, {}
  local function visit(n)
    if seen[n] ~= nil then return seen[n] end
    local on = target == nil or n == target
    for _, p in ipairs(n.parents or {}) do
      if p.req and visit(p) then on = true end
    end
    seen[n] = on
    if on then list[#list + 1] = n end
    return on
  end
  for _, r in ipairs(roots) do visit(r) end
  table.sort(list, function(a, b) return a.id > b.id end)
  return list, seen
end

-- Gradients of leaves: a table.
local function derive(roots, seeds, env, target)
  local list, on = order(roots, target)
  local grads, leaves = {}, {}
  local function give(n, g)
    grads[n] = grads[n] and op.add(env, grads[n], g) or g
  end
  for i, r in ipairs(roots) do if on[r] then give(r, seeds[i]) end end
  for _, n in ipairs(list) do
    local g = grads[n]
    if g then
      for _, h in ipairs(n.hooks) do g = h(g, env) or g end
      if n == target or not n.parents then
        if half[n.dtype] then g = op.to(env, g, nil, n.dtype) end
        leaves[n] = g
      else
        local lo = half[n.dtype]
        local gs = { n.back(env, g) }
        for i, p in ipairs(n.parents) do
          if p.req and on[p] then
            gs[i].lo = gs[i].lo or lo
            give(p, gs[i])
          end
        end
      end
    end
  end
  return leaves
end

function M.hook(t, f)
  local list = t.hooks
  list[#list + 1] = f
  return function()
    for i, h in ipairs(list) do if h == f then return table.remove(list, i) end end
  end
end

function M.double(g, env) return op.times(env, g, 2) end

function M.derivative(loss, w)
  local g = derive({ loss }, { leaf(1) }, plain, w)[w]
  return g and op.to(plain, g, nil, w.dtype)
end

-- -- Gradients, optimizers, scales ------------------------------------------------------------------

local P -- the program's state

function M.start(program)
  P = { weights = {}, opts = {}, scale = { 8, 8 }, clean = { 0, 0 }, face = program.face }
  for i, v in ipairs(program.weights) do P.weights[i] = leaf(v, true) end
  for i = 1, program.optimizers do P.opts[i] = { params = {} } end
  for i, w in ipairs(P.weights) do
    table.insert(P.opts[i % program.optimizers + 1].params, w)
    if P.face == 'masters' then w.dtype, w.lo = 'float16', true end -- one number is the weight and its master
  end
  P.env = { on = program.face ~= 'scaler' and program.face ~= 'masters', dtype = M.low, grad = true }
  return P.weights, P.env, P.weights
end

function M.stop() P = nil end
function M.left() return 'autocast 0, depth 0, grad mode 1, scope false' end

local function each(opt, f)
  for _, w in ipairs(opt.params) do if w.grad then f(w) end end
end

function M.grad(w)
  if w.grad then return w.grad.v, w.grad.m, w.grad.lo end
end
function M.set_grad(w, v) w.grad = v and { v = v, m = math.abs(v), lo = false } end
function M.double_grad(w) w.grad = { v = w.grad.v * 2, m = w.grad.m * 2, lo = w.grad.lo } end
function M.clear_grads() for _, w in ipairs(P.weights) do w.grad, w.hidden = nil, nil end end
function M.fill_grads()
  for _, w in ipairs(P.weights) do
    if w.grad or w.hidden then M.set_grad(w, 0) end
    w.hidden = nil
  end
end
-- After an overflow gradients read as nil; they are there to be filled.
local function hide() for _, w in ipairs(P.weights) do w.grad, w.hidden = nil, w.grad ~= nil end end
function M.bump(w)
  if P.face == 'masters' then return end -- what is written to a weight goes with the next step
  w.v, w.m = w.v + 0.25, w.m + 0.25
end

local function add_to(w, old)
  local g = w.grad
  if old then w.grad = g and { v = old.v + g.v, m = old.m + g.m, lo = old.lo or g.lo } or old end
end

local function accumulate(roots, factor)
  local seeds = {}
  for i = 1, #roots do seeds[i] = leaf(factor) end
  for w, g in pairs(derive(roots, seeds, silent)) do
    add_to(w, { v = g.v, m = g.m, lo = g.lo })
  end
end

local function divide(list, by)
  local found = false
  for _, w in ipairs(list) do
    local g = w.grad
    if g then
      found = found or not (g.v > -INF and g.v < INF)
      w.grad = { v = g.v / by, m = g.m / by, lo = g.lo }
    end
  end
  return found
end

local function found_in(list) return divide(list, 1) end

local function step(opt, rescale)
  each(opt, function(w)
    local g = w.grad
    local v, m = g.v * (rescale or 1), g.m * (rescale or 1)
    local b = w.buffer
    w.buffer = b and { v = MOMENTUM * b.v + v, m = MOMENTUM * b.m + m } or { v = v, m = m }
    w.v, w.m, w.lo = w.v - LR * w.buffer.v, w.m + LR * w.buffer.m, w.lo or g.lo
  end)
end

-- 8, growth by 2 at two clean updates in a row, back by 1/2; in levels no growth, in a handle and in trainers constant.
local function update(i, found)
  if P.face == 'handle' or P.face == 'trainer' then return end
  if found then
    P.scale[i], P.clean[i] = P.scale[i] / 2, 0
  else
    P.clean[i] = P.clean[i] + 1
    if P.face == 'scaler' and P.clean[i] == 2 then P.scale[i], P.clean[i] = P.scale[i] * 2, 0 end
  end
end

function M.loss(loss, infinite)
  if not infinite then return loss end
  return op.times(plain, op.to(plain, loss, nil, 'float32'), INF)
end

-- -- Training steps by gear; say(name, value) notes what is seen ----------------------------------------

function M.plain(losses) for _, l in ipairs(losses) do accumulate({ l }, 1) end end
function M.plain_step() for _, o in ipairs(P.opts) do step(o) end end

function M.scaled(losses) for _, l in ipairs(losses) do accumulate({ l }, P.scale[1]) end end
function M.unscale_(i)
  local o = P.opts[i]
  each(o, function() o.looked = true end)
  o.unscaled, o.before = true, divide(o.params, P.scale[1])
end
function M.scaled_step(say)
  local any, looked = false, false
  for i, o in ipairs(P.opts) do
    local found
    each(o, function() looked = true end)
    looked, o.looked = looked or o.looked, nil
    if o.unscaled then found = found_in(o.params) else found = divide(o.params, P.scale[1]) end
    if not found then step(o) end
    say('found ' .. i, found)
    any = any or found or o.before or false
    o.unscaled, o.before = nil, nil
  end
  if looked then update(1, any) end
  say('scale', P.scale[1])
end

function M.managed(env, f) return f { parent = env, grad = true } end
function M.release() end
function M.manual(losses) accumulate(losses, P.scale[1]) end
function M.manual_end()
  local looked = false
  for _, w in ipairs(P.weights) do looked = looked or w.grad ~= nil end
  if not looked then return false end -- an update that nothing was looked at for counts nothing
  local found = divide(P.weights, P.scale[1])
  if found then hide() end
  update(1, found)
  return found
end
function M.automatic(losses)
  local before = {}
  for i, w in ipairs(P.weights) do before[i], w.grad = w.grad, nil end
  accumulate(losses, P.scale[1])
  local found = divide(P.weights, P.scale[1])
  for i, w in ipairs(P.weights) do add_to(w, before[i]) end
  found = found or found_in(P.weights)
  if found then hide() end
  update(1, found)
end
function M.scale(i) return P.scale[i or 1] end

-- A block of levels or of a handle: gradients of before stand aside while it runs.
function M.block(env, id, loss, inside)
  local aside = {}
  local function swap()
    for i, w in ipairs(P.weights) do w.grad, aside[i] = aside[i], w.grad end
  end
  swap()
  local ok, e = pcall(function()
    inside { parent = env, swap = swap }
    accumulate({ loss }, P.scale[id])
  end)
  if not ok then
    swap()
    error(e, 0)
  end
  local found = divide(P.weights, P.scale[id])
  if found then for _, o in ipairs(P.opts) do o.held = true end end
  update(id, found)
  for i, w in ipairs(P.weights) do add_to(w, aside[i]) end
end

--- A coroutine yields at env, or is resumed there: blocks in it are left, or entered again.
function M.cross(env)
  while env.parent and not env.base do
    if env.swap then env.swap() end
    env = env.parent
  end
end

function M.level_step()
  for _, o in ipairs(P.opts) do
    if not o.held then step(o) end
    o.held = nil
  end
  if P.face == 'masters' then M.clear_grads() end -- a step takes its masters' gradients away
end

function M.trainer_block(env, loss, inside)
  inside(env)
  accumulate({ loss }, P.scale[1])
end
function M.trainer_step(size)
  for _, o in ipairs(P.opts) do
    if not divide(o.params, P.scale[1]) then step(o, 1 / size) end
  end
  M.clear_grads()
end

return M

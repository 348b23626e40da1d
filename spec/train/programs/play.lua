--- Plays a random program on a machine (amp's, or the reference) and notes what is seen; compares two such notes.
-- Statements:
--   op            a new register from two others       state, yield   note the state; in a coroutine, yield
--   throw         the program's own error object       enabled        amp.enabled = value, for the innermost state
--   hook          on a register or a weight             bump           a weight changes in place; registers start anew
--   derivative    amp.grad with create_graph            region, wrap, no_grad, enable_grad, off, scope, record, try: bodies
--   coroutine     a body with yields, resumed in regions or not, other statements between; maybe never ended
--   train         body, one or two losses, backward by the gear, edits of gradients, steps, update; registers start anew
-- A machine's notes: {name, value, magnitude, lo} in order. What a program does depends on nothing but its statements and
-- on notes, so two machines that agree go the same way.
local M = {}

local MOST = 6 -- degree of a register as a polynomial in the weights
local REGISTERS = 24

local run -- below: statements in an environment

local function say(ctx, name, v, m, lo) ctx.notes[#ctx.notes + 1] = { name, v, m, lo } end

local function reset(ctx)
  ctx.regs, ctx.generation = {}, ctx.generation + 1
  for i, w in ipairs(ctx.weights) do ctx.regs[i] = { t = w, degree = 1, weight = true } end
  for i, c in ipairs(ctx.constants) do ctx.regs[#ctx.weights + i] = { t = c, degree = 1 } end
end

local function add(ctx, how, t, degree)
  local mc = ctx.machine
  if #ctx.regs < REGISTERS then ctx.regs[#ctx.regs + 1] = { t = t, degree = degree } end
  say(ctx, ('%s: %s%s'):format(how, mc.dtype(t), mc.requires_grad(t) and ' that requires grad' or ''), mc.value(t))
end

local function state(ctx, env) say(ctx, 'state ' .. ctx.machine.state(env)) end

local function pick(ctx, n) return ctx.regs[(n - 1) % #ctx.regs + 1] end
local function one_of(list, n) return list[(n - 1) % #list + 1] end

local function grads(ctx, where)
  for i, w in ipairs(ctx.owners) do say(ctx, ('%s: gradient %d'):format(where, i), ctx.machine.grad(w)) end
end

local function look(ctx, where)
  for i, w in ipairs(ctx.owners) do say(ctx, ('%s: weight %d'):format(where, i), ctx.machine.value(w)) end
end

local products = { matmul = true, mul = true, half_mul = true, float_mul = true, promote_mul = true, checkpoint = true }
local squares = { square = true, square_function = true, own_function = true, float32_function = true }
local alike = { matmul = true, checkpoint = true } -- operands of one dtype where no region is

local does = {}

function does.op(ctx, env, s)
  local mc, a, b, name = ctx.machine, pick(ctx, s.a), pick(ctx, s.b), s.op
  local degree = math.max(a.degree, b.degree)
  if products[name] then degree = a.degree + b.degree elseif squares[name] then degree = 2 * a.degree end
  if degree > MOST then name, degree = 'sub', math.max(a.degree, b.degree) end
  local x, y = a.t, b.t
  if alike[name] and not mc.is_enabled(env) and mc.dtype(x) ~= mc.dtype(y) then
    x, y = mc.op(env, 'to', x, nil, 'float32'), mc.op(env, 'to', y, nil, 'float32')
  end
  add(ctx, ('%s of %d, %d of %d'):format(name, (s.a - 1) % #ctx.regs + 1, (s.b - 1) % #ctx.regs + 1, #ctx.regs), mc.op(env, name, x, y, s.dtype), degree)
end

function does.state(ctx, env) state(ctx, env) end
function does.yield(ctx, env)
  state(ctx, env)
  ctx.machine.cross(env)
  coroutine.yield(ctx)
  ctx.machine.cross(env)
  state(ctx, env)
end
function does.throw(ctx) error(ctx.own, 0) end
function does.enabled(ctx, env, s)
  ctx.machine.set_enabled(env, s.value)
  state(ctx, env)
end
function does.clear_cache(ctx) ctx.machine.clear_cache() end

function does.hook(ctx, _, s)
  local mc, r = ctx.machine, pick(ctx, s.a)
  if not mc.requires_grad(r.t) or r.weight and s.how == 'throw' then return end
  local own = ctx.own
  local remove = mc.hook(r.t, function(g, where)
    if s.how == 'throw' then error(own, 0) end
    if s.how == 'double' then return mc.double(g, where) end
  end)
  r.hooked = true
  if r.weight then ctx.hooks[#ctx.hooks + 1] = remove end
end

function does.bump(ctx, _, s)
  ctx.machine.bump(one_of(ctx.weights, s.a))
  reset(ctx)
end

function does.derivative(ctx, env, s)
  local mc, loss = ctx.machine, pick(ctx, s.a)
  if loss.weight or not mc.requires_grad(loss.t) or not mc.grad_mode(env) or #ctx.hooks > 0 then return end
  local g = mc.derivative(loss.t, one_of(ctx.weights, s.b))
  if g then add(ctx, 'derivative', g, loss.degree) else say(ctx, 'no derivative') end
end

-- -- Constructs -------------------------------------------------------------------------------------

local function within(ctx, body) return function(env) run(ctx, env, body) end end

for _, k in ipairs { 'no_grad', 'enable_grad', 'off', 'record' } do
  does[k] = function(ctx, env, s)
    ctx.machine[k](env, within(ctx, s.body))
    state(ctx, env)
  end
end
for _, k in ipairs { 'region', 'wrap' } do
  does[k] = function(ctx, env, s)
    ctx.machine[k](env, s.o, within(ctx, s.body))
    state(ctx, env)
  end
end

function does.scope(ctx, env, s)
  local mc, generation, n = ctx.machine, ctx.generation, #ctx.regs
  local degree
  local kept = mc.scope(env, function(e)
    run(ctx, e, s.body)
    if ctx.generation == generation and #ctx.regs > n then
      degree = ctx.regs[#ctx.regs].degree
      return ctx.regs[#ctx.regs].t
    end
  end)
  if ctx.generation ~= generation then return reset(ctx) end
  for i = #ctx.regs, n + 1, -1 do ctx.regs[i] = nil end
  if #ctx.regs < n then reset(ctx) elseif kept then add(ctx, 'kept', kept, degree) end
end

-- An error that was caught: registers and gradients start anew.
local function again(ctx)
  ctx.machine.clear_grads()
  while #ctx.hooks > 0 do table.remove(ctx.hooks)() end
  reset(ctx)
end

function does.try(ctx, env, s)
  local ok, e = pcall(run, ctx, env, s.body)
  if not ok then
    if e ~= ctx.own then error(e, 0) end
    say(ctx, 'caught')
    again(ctx)
  end
  state(ctx, env)
end

function does.coroutine(ctx, env, s)
  local mc, inner = ctx.machine, ctx.machine.coroutine_env()
  local co = coroutine.create(function() run(ctx, inner, s.body) end)
  local function resume(e)
    mc.resume_in(inner, e)
    local ok, what = coroutine.resume(co)
    state(ctx, e)
    if not ok then error(what, 0) end
  end
  local i = 0
  while coroutine.status(co) ~= 'dead' do
    i = i + 1
    if s.abandoned and i > #s.resumes then
      if s.trains then mc.release() end
      again(ctx)
      break
    end
    local o = s.resumes[(i - 1) % #s.resumes + 1]
    if o then mc.region(env, o, resume) else resume(env) end
    state(ctx, env)
    grads(ctx, 'after a resume')
    run(ctx, env, s.between[(i - 1) % #s.between + 1])
  end
end

-- -- Training steps --------------------------------------------------------------------------------

local function edit(ctx, e)
  if not e.how then return end
  local mc, w = ctx.machine, one_of(ctx.owners, e.a)
  if mc.grad(w) == nil then return end
  if e.how == 'drop' then mc.set_grad(w, nil)
  elseif e.how == 'double' then mc.double_grad(w)
  else mc.set_grad(w, e.how == 'set' and 0.25 or math.huge) end
  grads(ctx, 'edited')
end

-- The losses of a step: registers with a history, the last ones; nothing where there is none.
local function losses_of(ctx, env, s)
  local list, mc = {}, ctx.machine
  if not mc.grad_mode(env) then return list end -- a loss could not be scaled with its history
  for i = #ctx.regs, #ctx.weights + 1, -1 do
    if mc.requires_grad(ctx.regs[i].t) and #list < s.losses then list[#list + 1] = ctx.regs[i].t end
  end
  if list[1] then list[1] = mc.loss(list[1], s.infinite) end
  return list
end

local gears = {}

gears[1] = function(ctx, env, s)
  run(ctx, env, s.body)
  run(ctx, env, s.inside)
  local losses = losses_of(ctx, env, s)
  if #losses == 0 then return end
  if s.infinite then losses[1] = nil return end
  ctx.machine.plain(losses)
  grads(ctx, 'backward')
  edit(ctx, s.early.how ~= 'infinite' and s.early or {})
  ctx.machine.plain_step()
end

gears[2] = function(ctx, env, s)
  local mc = ctx.machine
  run(ctx, env, s.body)
  run(ctx, env, s.inside)
  local losses = losses_of(ctx, env, s)
  if #losses == 0 then return end
  mc.scaled(losses)
  grads(ctx, 'scaled')
  edit(ctx, s.early)
  if s.unscale then
    mc.unscale_(1)
    grads(ctx, 'unscaled')
    edit(ctx, s.late)
  end
  mc.scaled_step(function(name, v) say(ctx, name .. ' ' .. tostring(v)) end)
  grads(ctx, 'stepped')
end

gears[3] = function(ctx, env, s)
  local mc = ctx.machine
  local any = mc.managed(env, function(e)
    run(ctx, e, s.body)
    run(ctx, e, s.inside)
    local losses = losses_of(ctx, e, s)
    if #losses == 0 then return false end
    mc.manual(losses)
    grads(ctx, 'scaled')
    return true
  end)
  if not any then return end
  edit(ctx, s.early)
  local found = mc.manual_end()
  say(ctx, 'found ' .. tostring(found))
  grads(ctx, 'unscaled')
  if not found then edit(ctx, s.late.how ~= 'infinite' and s.late or {}) end
  mc.plain_step()
end

gears[4] = function(ctx, env, s)
  local mc = ctx.machine
  local any = mc.managed(env, function(e)
    run(ctx, e, s.body)
    run(ctx, e, s.inside)
    local losses = losses_of(ctx, e, s)
    if #losses == 0 then return false end
    mc.automatic(losses)
    return true
  end)
  if not any then return end
  grads(ctx, 'unscaled')
  mc.plain_step()
end

local function level_gear(ctx, env, s)
  local mc = ctx.machine
  run(ctx, env, s.body)
  local losses = losses_of(ctx, env, s)
  if #losses == 0 then return end
  for i, loss in ipairs(losses) do
    local ok, e = pcall(mc.block, env, s.gear % 2 + 1, loss, function(inner) run(ctx, inner, s.inside) end, i < #losses)
    grads(ctx, 'block ' .. i)
    if not ok then error(e, 0) end
    say(ctx, ('scales %g %g'):format(mc.scale(1), mc.scale(2)))
  end
  edit(ctx, s.late.how ~= 'infinite' and s.late or {})
  mc.level_step()
end

local function trainer_gear(ctx, env, s)
  local mc = ctx.machine
  run(ctx, env, s.body)
  local losses = losses_of(ctx, env, s)
  for i, loss in ipairs(losses) do
    mc.trainer_block(env, loss, function(inner) run(ctx, inner or env, s.inside) end, i < #losses)
    grads(ctx, 'block ' .. i)
  end
  if #losses > 0 then mc.trainer_step(2) end
end

function does.train(ctx, env, s)
  local gear = ctx.face == 'scaler' and gears[s.gear] or ctx.face == 'trainer' and trainer_gear or level_gear
  gear(ctx, env, s)
  look(ctx, 'trained')
  if s.fill then ctx.machine.fill_grads() else ctx.machine.clear_grads() end
  while #ctx.hooks > 0 do table.remove(ctx.hooks)() end
  reset(ctx)
  state(ctx, env)
end

run = function(ctx, env, list)
  for _, s in ipairs(list) do does[s.k](ctx, env, s) end
end

--- Notes of a program on a machine.
function M.play(program, machine)
  local ctx = { machine = machine, face = program.face, notes = {}, generation = 0, hooks = {}, own = {} }
  local env
  ctx.weights, env, ctx.owners = machine.start(program) -- owners: what the optimizers step, masters where there are any
  ctx.constants = { machine.constant(0.5), machine.constant(-1.5) }
  reset(ctx)
  for _, s in ipairs(program.body) do does.try(ctx, env, { body = { s } }) end
  look(ctx, 'end')
  machine.stop()
  say(ctx, machine.left())
  return ctx.notes
end

-- -- Comparison ----------------------------------------------------------------------------------------

local function finite(v) return v > -math.huge and v < math.huge end

local function agree(v, r)
  local want, m, lo = r[2], r[3], r[4]
  if v == nil or want == nil then return v == want end
  if not finite(v) or not finite(want) then return finite(v) == finite(want) end
  return math.abs(v - want) <= (lo and 0.06 or 2e-6) * (m or math.abs(want)) + 1e-7
end

--- nil, or where two notes differ: the first is amp's.
function M.difference(a, b)
  for i = 1, math.max(#a, #b) do
    local x, y = a[i], b[i]
    if x == nil or y == nil or x[1] ~= y[1] or not agree(x[2], y) then
      local out = {}
      for k = math.max(1, i - 6), i do
        local p, q = a[k] or {}, b[k] or {}
        out[#out + 1] = ('  %-40s %-22s reference: %-40s %s'):format(tostring(p[1]), tostring(p[2]), p[1] == q[1] and '' or tostring(q[1]), tostring(q[2]))
      end
      return ('note %d of %d:\n%s'):format(i, #a, table.concat(out, '\n'))
    end
  end
end

return M

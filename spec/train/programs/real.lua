--- amp as the machine of random programs: what reference.lua does with numbers, by the library's calls.
-- Environments are amp's own state here; those that play.lua hands down are ignored.
local amp = require 'amp'
local call = require 'amp.core.call'
local S = require('amp.ffi').S
local nn = amp.nn
local M = {}

local LR, MOMENTUM = 2 ^ -5, 0.5

-- -- Environments ------------------------------------------------------------------------------

function M.coroutine_env() end
function M.resume_in() end
function M.cross() end
function M.grad_mode() return amp.is_grad_enabled() end
function M.state()
  return ('%s %s %s'):format(tostring(amp.is_autocast_enabled()), amp.get_autocast_dtype(), tostring(amp.is_grad_enabled()))
end
function M.set_enabled(_, value) amp.enabled = value end
function M.is_enabled() return amp.enabled end
function M.clear_cache() amp.clear_autocast_cache() end

function M.region(_, o, f) return amp.autocast({ dtype = o.dtype, enabled = o.enabled, cache_enabled = o.cache_enabled }, f) end
function M.wrap(_, o, f) return amp.autocast.wrap(f, o)() end
function M.no_grad(_, f) return amp.no_grad(f) end
function M.enable_grad(_, f) return amp.enable_grad(f) end
function M.off(_, f) return amp.disable_casts(f) end
function M.scope(_, f) return amp.scope(f) end

-- -- Values ------------------------------------------------------------------------------------

local function mul(a, b) return a * b end
local own = amp.Function {
  forward = amp.custom_fwd(function(ctx, x)
    ctx:save_for_backward(x)
    return amp.matmul(x, x)
  end),
  backward = amp.custom_bwd(function(ctx, g) return amp.matmul(ctx.saved_tensors[1], g) * 2 end),
}
local square_function = amp.Function {
  forward = function(ctx, x)
    ctx.x = x
    return x * x
  end,
  backward = function(ctx, g) return 2 * ctx.x * g end,
}
local float32_function = amp.Function {
  forward = amp.custom_fwd(function(ctx, x)
    ctx:save_for_backward(x)
    return amp.matmul(x, x)
  end, { cast_inputs = 'float32' }),
  backward = amp.custom_bwd(function(ctx, g) return ctx.saved_tensors[1]:mul(g) * 2 end),
}

local op = {
  matmul = function(a, b) return amp.matmul(a, b) end, mul = mul, add = function(a, b) return a:add(b) end, sub = function(a, b) return a - b end,
  square = function(a) return a:square() end, sum = function(a) return amp.sum(a, 2, true) end, tanh = function(a) return a:tanh() end,
  to = function(a, _, dtype) return a:to(dtype) end,
  half_mul = amp.half_function(mul), float_mul = amp.float_function(mul), promote_mul = amp.promote_function(mul),
  own_function = function(a) return own(a) end, square_function = function(a) return square_function(a) end,
  float32_function = function(a) return float32_function(a) end,
  checkpoint = function(a, b) return amp.checkpoint(function(x, y) return amp.matmul(x, y):tanh() end, a, b) end,
}

function M.op(_, name, a, b, dtype) return op[name](a, b, dtype) end
function M.constant(v) return amp.tensor { { v } } end
function M.value(t) return t:item() end
function M.dtype(t) return t.dtype end
function M.requires_grad(t) return t.requires_grad end

function M.hook(t, f)
  local handle = t:register_hook(f)
  return function() handle:remove() end
end
function M.double(g) return g * 2 end
function M.derivative(loss, w) return amp.grad({ loss }, { w }, { create_graph = true, allow_unused = true })[1] end

-- -- Gradients, optimizers, scales ------------------------------------------------------------------

local P

local Net = nn.Module:extend 'Net'

function M.start(program)
  P = { weights = {}, opts = {}, face = program.face }
  local groups = {}
  local net = Net()
  for i, v in ipairs(program.weights) do
    P.weights[i] = amp.tensor({ { v } }, { requires_grad = true })
    net['w' .. i] = P.weights[i]
    local g = i % program.optimizers + 1
    groups[g] = groups[g] or {}
    table.insert(groups[g], P.weights[i])
  end
  for g, list in ipairs(groups) do
    if P.face == 'trainer' then P.opts[g] = amp.optim.Trainer(list, 'sgd', { lr = LR, momentum = MOMENTUM })
    else P.opts[g] = amp.optim.SGD(list, { lr = LR, momentum = MOMENTUM }) end
  end
  P.gm = amp.GradManager():attach(P.weights)
  if P.face == 'scaler' then
    P.scaler = amp.GradScaler { init_scale = 8, growth_interval = 2 }
  elseif P.face == 'levels' or P.face == 'masters' then
    P.net = amp.initialize(net, P.opts, { opt_level = P.face == 'levels' and 'O1' or 'O2', num_losses = 2, max_loss_scale = 8, verbosity = 0 })
  else
    P.handle = amp.init { loss_scale = 8 }
    if P.face == 'trainer' then for _, t in ipairs(P.opts) do amp.init_trainer(t) end end
  end
  if P.face ~= 'masters' then return P.weights, nil, P.weights end
  local masters, at = {}, {}
  for i = 1, #P.weights do -- the optimizers have them in turn
    local g = i % program.optimizers + 1
    at[g] = (at[g] or 0) + 1
    masters[i] = amp.master_params(P.opts[g])[at[g]]
  end
  return P.weights, nil, masters
end

function M.stop()
  amp.enabled = false
  amp.deactivate()
  P = nil
end

--- What a program has left behind in this Lua state: nothing.
function M.left()
  return ('autocast %d, depth %d, grad mode %d, scope %s'):format(S.autocast_on, S.autocast_depth, S.grad_mode, tostring(call.made ~= nil))
end

function M.record(_, f) return amp.GradManager():attach(P.weights):record(f) end

function M.grad(w) return w.grad and w.grad:item() end
function M.set_grad(w, v) w.grad = v and amp.tensor { { v } } or nil end
function M.double_grad(w) w.grad:mul_(2) end
function M.clear_grads() for _, o in ipairs(P.opts) do (o.optimizer or o):clear_grad() end end
function M.fill_grads() for _, o in ipairs(P.opts) do (o.optimizer or o):zero_grad { set_to_none = false } end end
function M.bump(w)
  if P.face ~= 'masters' then amp.no_grad(function() w:add_(0.25) end) end
end

function M.loss(loss, infinite)
  if not infinite then return loss end
  return amp.autocast.off(function() return loss:float() * math.huge end)
end

local function retain(losses, i) return { retain_graph = i < #losses } end

function M.plain(losses) for i, l in ipairs(losses) do l:backward(nil, retain(losses, i)) end end
function M.plain_step() for _, o in ipairs(P.opts) do o:step() end end

function M.scaled(losses) for i, l in ipairs(losses) do P.scaler:scale(l):backward(nil, retain(losses, i)) end end
function M.unscale_(i) P.scaler:unscale_(P.opts[i]) end
function M.scaled_step(say)
  for _, o in ipairs(P.opts) do P.scaler:step(o, { allow_empty = true }) end
  for i, o in ipairs(P.opts) do say('found ' .. i, P.scaler:found_inf(o)) end
  P.scaler:update()
  say('scale', P.scaler.scale_factor)
end

function M.managed(_, f) return P.gm:record(f) end
function M.release() P.gm:release() end
function M.manual(losses)
  local dy = {}
  for i = 1, #losses do dy[i] = P.scaler:scale_tensor() end
  P.gm:backward(losses, { dy = dy })
end
function M.manual_end()
  P.scaler:unscale(P.gm:attached_tensors())
  local found = P.scaler:found_inf()
  P.scaler:update()
  return found
end
function M.automatic(losses) P.scaler:backward(P.gm, losses) end
function M.scale(i)
  if P.scaler then return P.scaler:get_scale() end
  if P.face == 'levels' or P.face == 'masters' then return amp.state_dict()['loss_scaler' .. (i or 1)].loss_scale end
  return 8
end

function M.block(_, id, loss, inside, retained)
  local function fn(scaled)
    inside()
    scaled:backward(nil, { retain_graph = retained })
  end
  if P.face ~= 'handle' then amp.scale_loss(loss, P.opts, { loss_id = id }, fn)
  else P.handle:scale_loss(loss, P.opts, fn) end
end
function M.level_step() for _, o in ipairs(P.opts) do o:step() end end

function M.trainer_block(_, loss, inside, retained)
  amp.scale_loss(loss, P.opts[1], function(scaled)
    inside()
    scaled:backward(nil, { retain_graph = retained })
  end)
end
function M.trainer_step(size) for _, o in ipairs(P.opts) do o:step(size) end end

return M

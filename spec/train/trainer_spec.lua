--- amp.optim.Trainer, plain and with a loss scale of its own.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local scaling = require 'spec.precision.scaling'
local eq, param = scaling.eq, scaling.param
local nn = amp.nn
local INF = math.huge

local function back(s) s:backward() end
local function scale(t) return t.loss_scale end
local Trainer = amp.optim.Trainer

describe('Trainer', function()
  it('is an optimizer by name whose step divides by the batch size', function()
    local p = param { 1, 2 }
    local t = Trainer({ p }, 'sgd', { lr = 0.5 });
    (p * 4):sum():backward()
    assert.is_true(t:step(8) == t)
    eq(p:detach(), { 0.75, 1.75 })
  end)
  it('the next backward writes gradients anew; several before one step add up', function()
    local p = param { 1 }
    local t = Trainer({ p }, 'SGD', { lr = 1 })
    for _ = 1, 2 do
      (p * 1):sum():backward();
      (p * 1):sum():backward()
      t:step(8)
    end
    eq(p:detach(), { 0.5 })
  end)
  it('does as the optimizer itself, with every name', function()
    for name, class in pairs { sgd = 'SGD', adam = 'Adam', adamw = 'AdamW', rmsprop = 'RMSprop', adagrad = 'Adagrad', lamb = 'LAMB' } do
      local p, q = param { 1, -2 }, param { 1, -2 }
      local t, o = Trainer({ p }, name, { learning_rate = 0.1, wd = 0.01 }), amp.optim[class]({ q }, { lr = 0.1, weight_decay = 0.01 })
      for i = 1, 3 do
        (p * p * 4 * i):sum():backward()
        t:step(4);
        (q * q * i):sum():backward()
        o:step():zero_grad()
      end
      H.close(p, q, { rtol = 1e-6, atol = 1e-7 }, name)
    end
    local p = param { 1 }
    assert.is_true(Trainer({ p }, 'nag', { lr = 1, momentum = 0.5 }).param_groups[1].nesterov)
  end)
  it('takes lists, groups, a module, tensors by name, an optimizer of the user\'s', function()
    local net = nn.Linear(2, 2)
    assert.equal(2, #amp.master_params(Trainer(net, 'sgd', { lr = 1 })))
    assert.equal(2, #Trainer({ { params = { net.weight } }, { params = { net.bias }, lr = 0.5 } }, 'sgd', { lr = 1 }).param_groups)
    assert.equal(2, #amp.master_params(Trainer({ a = net.weight, b = net.bias }, 'sgd', { lr = 1 })))
    local p = param { 1 }
    local own = { param_groups = { { params = { p } } }, step = function()
      amp.no_grad(function() p:sub_(p.grad) end)
    end }
    local t = Trainer({ p }, own);
    (p * 2):sum():backward()
    t:step(4)
    eq(p:detach(), { 0.5 })
  end)
  it('accepts kvstore options and ignores them', function()
    local p = param { 1 }
    Trainer({ p }, 'sgd', { lr = 1, update_on_kvstore = false, kvstore = 'device' })
    Trainer({ p }, 'sgd', { lr = 1 }, { update_on_kvstore = true })
  end)
  it('rescale_grad, learning_rate', function()
    local p = param { 1 }
    local t = Trainer({ p }, 'sgd', { lr = 1, rescale_grad = 0.5 })
    assert.equal(1, t.learning_rate)
    t:set_learning_rate(0.5)
    assert.equal(0.5, t.learning_rate);
    (p * 2):sum():backward()
    t:allreduce_grads():update(2)
    eq(p:detach(), { 0.75 })
  end)
  it('wrong calls are named', function()
    local p = param { 1 }
    local t = Trainer({ p }, 'sgd', { lr = 1 })
    H.fails_here(function() t:step() end, 'batch size')
    H.fails_here(function() t:step(0) end, 'batch size', '0')
    H.fails_here(function() Trainer({ p }, 'sdg', { lr = 1 }) end, 'sdg', 'sgd')
    H.fails_here(function() Trainer({ p }, 'sgd', { lrr = 1 }) end, 'lrr')
    H.fails_here(function() Trainer({ p }, 'sgd', { lr = 1, learning_rate = 1 }) end, 'learning_rate')
    H.fails_here(function() Trainer({ p }, 3) end, 'optimizer')
    H.fails_here(function() Trainer() end, 'parameters')
    H.fails_here(function() Trainer({ p }, 'sgd', { lr = 1 }, { kvstor = 1 }) end, 'kvstor')
    H.fails_here(function() t:set_learning_rate 'x' end, 'learning rate')
  end)
  it('saves and loads its states', function()
    local function run(stop)
      local p = param { 1, 2 }
      local t = Trainer({ p }, 'adam', { lr = 0.1 })
      for i = 1, 5 do
        if i == stop then
          local path = H.tmp 'trainer'
          t:save_states(path)
          t = Trainer({ p }, 'adam', { lr = 0.5 })
          t:load_states(path)
        end
        (p * i):sum():backward()
        t:step(2)
      end
      return p:detach():clone()
    end
    local whole = run()
    for stop = 2, 5 do H.same(run(stop), whole) end
    local path = H.tmp 'no_trainer'
    amp.save(path, { 1 })
    H.fails_here(function() Trainer({ param { 1 } }, 'sgd', { lr = 1 }):load_states(path) end, 'trainer')
  end)
end)

describe('a trainer with a loss scale', function()
  local function made(values, o)
    local p = param(values or { 1 })
    o = o or { lr = 1 }
    local t = Trainer({ p }, 'sgd', o)
    amp.init_trainer(t)
    return t, p
  end
  it('amp.scale_loss scales, step unscales, skips and updates', function()
    amp.init()
    local t, p = made()
    for i, g in ipairs { 2, INF, 1 } do
      assert.equal(i, amp.scale_loss((p * g):sum(), t, function(s)
        if i == 1 then assert.equal(2 * 65536, s:item()) end
        s:backward()
        return i
      end))
      t:step(4)
    end
    eq(p:detach(), { 0.25 })
    assert.equal(32768, scale(t))
    amp.deactivate()
  end)
  it('a list of losses comes as a list', function()
    local t, p = made { 1, 1 }
    amp.scale_loss({ (p * 2):sum(), (p * 2):sum() }, t, function(list)
      assert.equal(2, #list)
      amp.backward(list)
    end)
    t:step(8)
    eq(p:detach(), { 0.5, 0.5 })
  end)
  it('amp.unscale, clip, step is the float32 clip', function()
    local t, p = made { 3, 4 }
    local q = param { 3, 4 }
    local o = amp.optim.SGD({ q }, { lr = 1 })
    for i = 1, 3 do
      amp.scale_loss((p * p).sum(p * p) * 0.5 * i, t, back)
      amp.unscale(t)
      nn.utils.clip_grad_norm_({ p }, 1)
      t:step(2);
      ((q * q):sum() * 0.5 * i):backward()
      nn.utils.clip_grad_norm_({ q }, 1)
      q.grad:mul_(0.5)
      o:step():zero_grad()
    end
    H.close(p, q, { rtol = 1e-6, atol = 1e-6 })
  end)
  it('after amp.unscale gradients read unscaled; more scaled ones are refused', function()
    local t, p = made()
    amp.scale_loss((p * 2):sum(), t, back)
    amp.unscale(t)
    eq(p.grad, { 2 })
    H.fails_here(function() amp.scale_loss((p * 2):sum(), t, back) end, 'amp.unscale', 'step')
    H.fails(function() amp.unscale(t) end, 'already')
    t:step(4)
    eq(p:detach(), { 0.5 })
  end)
  it('several trainers, each with a scale of its own', function()
    local a, p = made()
    local b, q = made()
    for i = 1, 3 do
      amp.scale_loss((p * (i == 2 and INF or 0.25)):sum(), a, back)
      amp.scale_loss((q * 0.25):sum(), b, back)
      a:step(1)
      b:step(1)
    end
    eq(p:detach(), { 0.5 })
    eq(q:detach(), { 0.25 })
    assert.equal(32768, scale(a))
    assert.equal(65536, scale(b))
  end)
  it('amp.init\'s loss_scale holds for trainers; a disabled one scales nothing', function()
    amp.init { loss_scale = 16 }
    local t, p = made()
    amp.scale_loss(p:sum(), t, function(s) assert.equal(16, s:item()) end)
    amp.init { enabled = false }
    t, p = made()
    local loss = p:sum()
    amp.scale_loss(loss, t, function(s) assert.is_true(s == loss) s:backward() end)
    t:step(2)
    eq(p:detach(), { 0.5 })
    amp.deactivate()
  end)
  it('a user\'s optimizer and LARC in a trainer', function()
    local p = param { 1 }
    local calls = 0
    local own = { param_groups = { { params = { p } } }, step = function()
      calls = calls + 1
      amp.no_grad(function() p:sub_(p.grad) end)
    end }
    local t = amp.init_trainer(Trainer({ p }, own))
    for _, g in ipairs { 2, INF, 1 } do
      amp.scale_loss((p * g):sum(), t, back)
      t:step(4)
    end
    eq(p:detach(), { 0.25 })
    assert.equal(2, calls)
    assert.equal(32768, scale(t))
    local q = param { 1 }
    t = amp.init_trainer(Trainer({ q }, amp.optim.LARC(amp.optim.SGD({ q }, { lr = 1 }))))
    for _, g in ipairs { 2, INF } do
      amp.scale_loss((q * g):sum(), t, back)
      t:step(4)
      assert.is_true(q:item() < 1 and q:item() > 0)
    end
  end)
  it('saved states carry the scale; it waits for init_trainer', function()
    local function run(stop, late)
      local t, p = made({ 1 }, { lr = 0.5, momentum = 0.9 })
      for i = 1, 5 do
        if i == stop then
          local path = H.tmp 'scaled'
          t:save_states(path)
          t = Trainer({ p }, 'sgd', { lr = 0.5, momentum = 0.9 })
          if not late then amp.init_trainer(t) end
          t:load_states(path)
          if late then amp.init_trainer(t) end
        end
        amp.scale_loss((p * (i == 2 and INF or i)):sum(), t, back)
        t:step(2)
      end
      return p:detach():clone(), t._scaler:state_dict()
    end
    local whole, state = run()
    for stop = 2, 5 do
      for _, late in ipairs { false, true } do
        local got, s = run(stop, late)
        H.same(got, whole)
        assert.same(state, s)
      end
    end
  end)
  it('steps without a wait', function()
    local t, p = made { 1, 2 }
    local waits = amp.counters().host_waits
    for _ = 1, 3 do
      amp.scale_loss((p * 2):sum(), t, back)
      amp.unscale(t)
      nn.utils.clip_grad_norm_({ p }, 1)
      t:step(2)
    end
    assert.equal(waits, amp.counters().host_waits)
  end)
  it('a step without gradients is a no-op', function()
    local t, p = made()
    t:step(1)
    eq(p:detach(), { 1 })
    assert.equal(65536, scale(t))
  end)
  it('without amp.init_trainer: an error that names the trainer', function()
    local p = param { 1 }
    local t = Trainer({ p }, 'sgd', { lr = 1, name = 'critic' })
    H.fails_here(function() amp.scale_loss(p:sum(), t, back) end, 'critic', 'amp.init_trainer')
    H.fails_here(function() amp.unscale(t) end, 'critic', 'amp.init_trainer')
    t = Trainer({ p }, 'sgd', { lr = 1 })
    H.fails_here(function() amp.scale_loss(p:sum(), t, back) end, 'SGD', 'trainer_spec.lua', 'amp.init_trainer')
    amp.init_trainer(t)
    amp.scale_loss((p * 0.5):sum(), t, back) -- and all is well
    t:step(1)
    eq(p:detach(), { 0.5 })
  end)
  it('wrong calls are named', function()
    local t, p = made()
    H.fails_here(function() amp.init_trainer(t) end, 'already')
    H.fails_here(function() amp.init_trainer(amp.optim.SGD({ p }, { lr = 1 })) end, 'Trainer', 'SGD')
    H.fails_here(function() amp.unscale(3) end, 'Trainer', '3')
    H.fails_here(function() amp.scale_loss(3, t, back) end, 'loss', '3')
    H.fails_here(function() amp.scale_loss(p:sum(), t) end, 'function')
    H.fails_here(function() amp.scale_loss(p:sum(), t, { loss_id = 1 }, back) end, 'loss_id')
    H.fails_here(function() amp.scale_loss({ p:sum(), 3 }, t, back) end, 'loss 2')
  end)
end)

--- Where gradients come from, in blocks of amp.scale_loss, in a trainer and by the functions that tell it.
local amp = require 'amp'
local nn = amp.nn
local INF = math.huge

local origin = require 'spec.precision.origin'
local leaf, sgd, refused = origin.leaf, origin.sgd, origin.refused

describe('blocks of amp.scale_loss', function()
  it('name the optimizer whose parameters one reached without being given it', function()
    local a, b = nn.Linear(2, 1), nn.Linear(2, 1)
    local oa, ob = sgd(unpack(a:parameters())), amp.optim.SGD(b:parameters(), { lr = 0.5 })
    amp.initialize({ a, b }, { oa, ob }, { verbosity = 0 })
    local before = a.weight:tolist()
    amp.scale_loss(a(amp.ones(1, 2)):sum(), ob, function(s) s:backward() end)
    refused("optimizer 'mine' is that of a scaled loss and was not unscaled: give this optimizer to amp.scale_loss as well", oa.step, oa)
    assert.same(before, a.weight:tolist())
    oa:clear_grad()
    amp.scale_loss(a(amp.ones(1, 2)):sum(), { oa, ob }, function(s) s:backward() end)
    oa:step()
    ob:step()
    assert.are_not.same(before, a.weight:tolist())
    amp.deactivate()
  end)
  it('let the gradients of others lie that are cleared before their own backward, as GANs do', function()
    local a, b = nn.Linear(2, 1), nn.Linear(1, 1)
    local oa, ob = sgd(unpack(a:parameters())), amp.optim.SGD(b:parameters(), { lr = 0.5 })
    amp.initialize({ a, b }, { oa, ob }, { verbosity = 0 })
    for _ = 1, 2 do
      amp.scale_loss(b(a(amp.ones(1, 2))):sum(), oa, function(s) s:backward() end)
      oa:step():clear_grad()
      ob:clear_grad()
      amp.scale_loss(b(a(amp.ones(1, 2)):detach()):sum(), ob, function(s) s:backward() end)
      ob:step():clear_grad()
    end
    amp.deactivate()
  end)
  it('whose function differentiates the loss that is not scaled are an error that says which one to take', function()
    local net = nn.Linear(2, 1)
    local opt = sgd(unpack(net:parameters()))
    for _, level in ipairs { 'O1', 'O2' } do
      local model = nn.Linear(2, 1)
      local o = sgd(unpack(model:parameters()))
      amp.initialize(model, o, { verbosity = 0, opt_level = level })
      local loss = model(amp.ones(1, 2)):sum()
      refused('not scaled: the function that scale_loss calls gets the scaled loss', amp.scale_loss, loss, o, function() loss:backward() end)
      o:clear_grad()
      loss = model(amp.ones(1, 2)):sum()
      amp.scale_loss(loss, o, function(s) s:backward() end)
      o:step()
      amp.deactivate()
    end
    local handle = amp.init()
    local loss = net(amp.ones(1, 2)):sum()
    refused('not scaled: the function that scale_loss calls', handle.scale_loss, handle, loss, opt, function() loss:backward() end)
    handle:deactivate()
  end)
  it('with delay_unscale accumulate, whatever was unscaled before', function()
    local net = nn.Linear(2, 1, { bias = false })
    local p = net.weight
    local opt = sgd(p)
    amp.initialize(net, opt, { verbosity = 0 })
    local before = p:tolist()[1]
    local function block(delay) amp.scale_loss(p:float():sum(), opt, { delay_unscale = delay }, function(s) s:backward() end) end
    block(false)
    block(true)
    block(false)
    opt:step()
    for i = 1, 2 do assert.near(before[i] - 1.5, p:tolist()[1][i], 1e-6) end
    amp.deactivate()
  end)
end)

describe('a trainer with a loss scale', function()
  local function setup()
    local p = leaf(1, 2)
    local trainer = amp.optim.Trainer({ p }, 'sgd', { lr = 0.5, name = 'mine' })
    amp.init_trainer(trainer)
    return p, trainer
  end
  it('steps at full length where no loss was scaled, and the scale stays', function()
    local p, trainer = setup()
    for _ = 1, 3 do
      p:sum():backward()
      trainer:step(1)
    end
    assert.same({ -0.5, 0.5 }, p:tolist())
    assert.equal(0, trainer._scaler:get_growth_tracker())
    amp.scale_loss(p:sum(), trainer, function(s) s:backward() end)
    trainer:step(1)
    assert.same({ -1, 0 }, p:tolist())
    assert.equal(1, trainer._scaler:get_growth_tracker())
  end)
  it('refuses a mix, and a block whose function took the plain loss, naming amp.scale_loss', function()
    local p, trainer = setup()
    amp.scale_loss(p:sum(), trainer, function(s) s:backward() end)
    p:sum():backward()
    refused('amp.scale_loss', trainer.step, trainer, 1)
    trainer:zero_grad()
    local loss = p:sum()
    amp.scale_loss(loss, trainer, function() loss:backward() end)
    refused('not scaled: call amp.scale_loss', trainer.step, trainer, 1)
    assert.same({ 1, 2 }, p:tolist())
  end)
  it('refuses a scaled backward after amp.unscale, by its own block or by hand', function()
    local p, trainer = setup()
    amp.scale_loss(p:sum(), trainer, function(s) s:backward() end)
    amp.unscale(trainer)
    refused('step first', amp.scale_loss, p:sum(), trainer, function(s) s:backward() end)
    p:sum():backward(trainer._scaler:scale_tensor())
    refused('after it was unscaled', trainer.step, trainer, 1)
  end)
end)

it('an overflow is skipped as before, whoever made the gradients', function()
  local p, scaler = leaf(1, 2), amp.GradScaler { init_scale = 8 }
  scaler:scale((p * INF):sum()):backward()
  scaler:step(sgd(p)):update()
  assert.same({ 1, 2 }, p:tolist())
  assert.equal(4, scaler.scale_factor)
end)

describe('origins', function()
  it('follow gradients that are put off, added in place or made by layers of many steps', function()
    local x = amp.tensor({ 1, 2 }, { dtype = 'int64' })
    local nets = {
      lstm = { nn.LSTM(3, 4), function(net) return (net(amp.ones(5, 2, 3))):sum() end },
      cell = { nn.GRUCell(2, 2), function(net)
        local h
        for _ = 1, 20 do h = net(amp.ones(1, 2), h) end
        return h:sum()
      end },
      tied = { nn.Embedding(5, 3), function(net) return net(x):matmul(net.weight:t()):sum() end },
      checkpoint = { nn.Linear(2, 2), function(net) return amp.checkpoint(function(v) return net(v):sum() end, amp.ones(1, 2)) end },
      conv = { nn.Conv2d(1, 2, 3), function(net) return amp.autocast(function() return net(amp.ones(1, 1, 4, 4)):sum() end) end },
    }
    for name, it_ in pairs(nets) do
      local net, loss = it_[1], it_[2]
      local opt, scaler = amp.optim.SGD(net:parameters(), { lr = 0.1 }), amp.GradScaler()
      scaler:scale(loss(net)):backward()
      local ok, e = pcall(opt.step, opt)
      assert.is_false(ok, name)
      assert.matches('scaled loss and was not unscaled', tostring(e), name)
      scaler:step(opt):update()
      opt:clear_grad()
      loss(net):backward()
      ok, e = pcall(scaler.step, scaler, opt)
      assert.is_false(ok, name)
      assert.matches('not scaled', tostring(e), name)
      opt:step()
    end
  end)
  it('let the loops of other systems be: GANs, several optimizers, shared parameters, penalties', function()
    local G, D = nn.Linear(2, 2), nn.Linear(2, 1)
    local og, od, scaler = amp.optim.Adam(G:parameters(), { lr = 0.01 }), amp.optim.Adam(D:parameters(), { lr = 0.01 }), amp.GradScaler()
    for _ = 1, 3 do
      D:zero_grad()
      scaler:scale(D(amp.ones(1, 2)):sum()):backward()
      local fake = G(amp.ones(1, 2))
      scaler:scale(D(fake:detach()):sum()):backward()
      scaler:step(od)
      G:zero_grad()
      scaler:scale(D(fake):sum()):backward()
      scaler:step(og)
      scaler:update()
    end
    for _, level in ipairs { 'O1', 'O2', 'O3' } do
      G, D = nn.Linear(2, 2), nn.Linear(2, 1)
      og, od = amp.optim.Adam(G:parameters(), { lr = 0.01 }), amp.optim.Adam(D:parameters(), { lr = 0.01 })
      amp.initialize({ D, G }, { od, og }, { opt_level = level, num_losses = 3, verbosity = 0, loss_scale = 'dynamic' })
      for _ = 1, 2 do
        D:zero_grad()
        amp.scale_loss(D(amp.ones(1, 2)):sum(), od, { loss_id = 1 }, function(s) s:backward() end)
        local fake = G(amp.ones(1, 2))
        amp.scale_loss(D(fake:detach()):sum(), od, { loss_id = 2 }, function(s) s:backward() end)
        od:step()
        G:zero_grad()
        amp.scale_loss(D(fake):sum(), og, { loss_id = 3 }, function(s) s:backward() end)
        og:step()
      end
      amp.deactivate()
    end
    local p = leaf(2)
    local a, b = amp.optim.SGD({ p }, { lr = 0.5 }), amp.optim.SGD({ p }, { lr = 0.5 })
    scaler:scale(p:sum()):backward()
    scaler:step(a):step(b):update()
    assert.same({ 1 }, p:tolist())
    a:clear_grad()
    local grads = amp.grad(scaler:scale((p * p):sum()), p, { create_graph = true })
    local penalty = (grads[1] / scaler:scale_tensor()):square():sum()
    scaler:scale((p * p):sum() + penalty):backward()
    scaler:step(a):update()
    assert.same({ 1 - 0.5 * (2 + 8) }, p:tolist())
  end)
end)

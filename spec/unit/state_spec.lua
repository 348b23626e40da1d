-- States that are loaded: of tied weights, of the module's own memory, of another optimizer.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn, optim = amp.nn, amp.optim

describe('a state of a module', function()
  it('whose names are one tensor gives it the value of the last of them', function()
    for _ = 1, 8 do -- whatever the order in which Lua goes through a table
      local tied = nn.Linear(2, 2)
      local net = nn.Sequential(tied, nn.ReLU(), tied, nn.Tanh(), tied)
      local state = {}
      for name, t in pairs(net:state_dict()) do state[name] = amp.full(t.shape, tonumber(name:sub(1, 1))) end
      net:load_state_dict(state)
      assert.same({ 5, 5 }, tied.bias:tolist())
      state['5.bias'] = nil
      net:load_state_dict(state, { strict = false })
      assert.same({ 3, 3 }, tied.bias:tolist())
    end
  end)
  it('may lie in the memory of the module, changed about', function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    for i = 1, 3 do nn.init.constant_(net[i].weight, i) end
    local s = net:state_dict()
    s['1.weight'], s['2.weight'], s['3.weight'] = s['2.weight'], s['3.weight'], s['1.weight']
    net:load_state_dict(s)
    for i = 1, 3 do assert.same(i % 3 + 1, net[i].weight[1][1]:item()) end
    s = net:state_dict()
    s['1.weight'] = s['1.weight']:t()
    nn.init.constant_(net[1].bias, 7)
    net:load_state_dict(s)
    assert.same({ 7, 7 }, net[1].bias:tolist())
  end)
end)

describe('a state of an optimizer', function()
  local function run(make, w)
    local opt = make({ w })
    w.grad = amp.ones(2)
    opt:step()
    return opt
  end
  it('of another kind is refused, and changes nothing', function()
    local w = amp.ones(2):requires_grad_()
    local adam = run(function(p) return optim.Adam(p, { lr = 0.5 }) end, w)
    local sgd = run(function(p) return optim.SGD(p, { lr = 0.1, momentum = 0.9 }) end, w)
    H.fails_here(function() sgd:load_state_dict(adam:state_dict()) end, 'SGD.load_state_dict', 'which SGD does not keep')
    H.fails_here(function() adam:load_state_dict(sgd:state_dict()) end, 'Adam.load_state_dict', "'momentum_buffer', which Adam does not keep")
    assert.equal(0.1, sgd.param_groups[1].lr)
    assert.equal(0.5, adam.param_groups[1].lr)
  end)
  it('of one that keeps the same, or more, is taken', function()
    local w = amp.ones(2):requires_grad_()
    local adam = run(function(p) return optim.Adam(p, { lr = 0.5 }) end, w)
    local other = optim.AdamW({ w })
    other:load_state_dict(adam:state_dict())
    assert.equal(1, other:state_dict().state[1].step)
    local more = adam:state_dict()
    more.state[1].max_exp_avg_sq_of_mine = amp.ones(2)
    optim.Adam({ w }):load_state_dict(more)
    optim.SGD({ w }, { lr = 1 }):load_state_dict(optim.SGD({ w }, { lr = 2 }):state_dict())
  end)
end)

describe('a chain of schedules', function()
  it('says what it takes where an optimizer comes first', function()
    local opt = optim.SGD({ amp.ones(1):requires_grad_() }, { lr = 1 })
    local list = { optim.lr_scheduler.StepLR(opt, { step_size = 2 }) }
    H.fails_here(function() optim.lr_scheduler.ChainedScheduler(opt, list) end, 'ChainedScheduler', 'a list of schedulers comes first')
    assert.equal(1, optim.lr_scheduler.ChainedScheduler(list):get_last_lr()[1])
  end)
end)

describe('a field of a module', function()
  local Net = nn.Module:extend('Net')
  function Net:init() self.fc = nn.Linear(2, 2) end
  function Net:forward(x)
    self.hidden = self.fc(x)
    return self.hidden:relu()
  end
  it('that holds a result is no parameter', function()
    local net = Net()
    net(amp.ones(1, 2)):sum():backward()
    assert.equal(2, #net:parameters())
    assert.is_nil(net:state_dict().hidden)
    assert.is_true(net.hidden.requires_grad)
    net.scale = amp.ones(1):requires_grad_()
    assert.equal(3, #net:parameters())
  end)
  it('that is a parameter takes no result of an op', function()
    local net = nn.Linear(2, 2)
    local weight = net.weight
    H.fails_here(function() net.weight = net.weight * 0.5 end, "'weight' is a parameter", 'nn.Parameter(t:detach())')
    assert.is_true(net.weight == weight)
    net.weight = nn.Parameter((net.weight * 0.5):detach())
    assert.equal(2, #net:parameters())
  end)
  it('that is a part is not given to another kind', function()
    local net = Net()
    H.fails_here(function() net.fc:register_buffer('weight', amp.ones(2, 2)) end, 'register_buffer', "'weight' is a parameter")
    H.fails_here(function() net:register_parameter('fc', amp.ones(2)) end, 'register_parameter', "'fc' is a module")
    net:register_buffer('seen', amp.ones(1)):register_buffer('seen', amp.ones(2))
    assert.same({ 2 }, net.seen.shape)
    assert.equal(2, #net:parameters())
  end)
  it('the mode and what is applied are checked', function()
    local net = Net()
    H.fails_here(function() net:train('x') end, 'train', 'true or false')
    H.fails_here(function() net:apply(3) end, 'apply', 'function')
    assert.is_true(net:train().training and not net:train(false).training and net:train(nil).training)
  end)
end)

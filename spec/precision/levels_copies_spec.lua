--- Levels with 16-bit parameters: copies, averages and loads of a network see its float32 masters, and clearing the
-- network's gradients clears theirs.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local levels = require 'spec.precision.levels'
local back, init, mlp, sgd = levels.back, levels.init, levels.mlp, levels.sgd

local function loss(net) return net(amp.ones(2, 4)):float():pow(2):mean() end
local function train(net, opt)
  amp.scale_loss(loss(net), opt, back)
  opt:step():clear_grad()
end
local function no_half(state)
  for name, t in pairs(state) do assert.is_true(t.dtype ~= 'float16' and t.dtype ~= 'bfloat16', name) end
end
local function equal_states(a, b)
  for name, t in pairs(a) do assert.is_true(t:equal(b[name]), name) end
end
local function dropped(state) -- as 16 bits keep it
  local out = {}
  for name, t in pairs(state) do out[name] = t.dtype == 'float32' and t:half():float() or t end
  return out
end

describe('a network at a level of 16 bits', function()
  after_each(amp.deactivate)
  it('has clones with its state: float32, what its masters hold', function()
    levels.levels(function(level)
      local net = mlp()
      local opt = sgd(net:parameters(), 0.1)
      init(net, opt, { opt_level = level })
      train(net, opt)
      local copy = net:clone()
      no_half(copy:state_dict())
      equal_states(copy:state_dict(), net:state_dict())
      local before = copy:state_dict()['1.weight']:clone()
      train(net, opt)
      H.same(copy:state_dict()['1.weight'], before) -- its masters are its own
      local fresh = level == 'O3' and dropped(mlp():state_dict()) or mlp():state_dict()
      copy:load_state_dict(fresh)
      equal_states(copy:state_dict(), fresh)
      equal_states(copy:clone():state_dict(), fresh)
    end)
  end)
  it('a clone whose weights are changed by hand tells what they are', function()
    local net = mlp()
    init(net, sgd(net:parameters(), 0.1), { opt_level = 'O2' })
    local copy = net:clone()
    amp.no_grad(function() copy[1].weight:fill_(0.5) end)
    H.same(copy:state_dict()['1.weight'], amp.full({ 8, 4 }, 0.5))
    assert.is_true(copy:state_dict()['4.weight']:equal(net:state_dict()['4.weight']))
  end)
  it('an average is of the float32 values, and goes back into them', function()
    local net = mlp()
    local opt = sgd(net:parameters(), 0)
    init(net, opt, { opt_level = 'O2' })
    local ema = amp.optim.swa.EMA(net, { decay = 0.999 })
    ema:update(net)
    local start = net:state_dict()['1.weight']:clone()
    net:load_state_dict(dropped(net:state_dict()))
    local state = net:state_dict()
    state['1.weight'] = start + 0.01
    net:load_state_dict(state)
    for _ = 1, 50 do ema:update(net) end
    local mean = ema.module:state_dict()['1.weight']
    H.close(mean, start + 0.01 * (1 - 0.999 ^ 50), { atol = 1e-6, rtol = 0 })
    ema:copy_to(net)
    opt:step()
    H.same(net:state_dict()['1.weight'], mean)
    train(net, opt) -- steps of rate 0: the masters hold the average
    H.same(net:state_dict()['1.weight'], mean)
    no_half(ema.module:state_dict())
  end)
  it('net:zero_grad() clears what the masters were given: a batch is discarded', function()
    for _, o in ipairs { {}, { set_to_none = false } } do
      levels.levels(function(level)
        local net, control = mlp(), mlp()
        local opt, other = sgd(net:parameters(), 0.1), sgd(control:parameters(), 0.1)
        init({ net, control }, { opt, other }, { opt_level = level })
        amp.scale_loss(loss(net), opt, back) -- discarded
        net:load_state_dict(control:state_dict()) -- running statistics
        net:zero_grad(o)
        train(net, opt)
        train(control, other)
        equal_states(net:state_dict(), control:state_dict())
      end)
    end
  end)
end)

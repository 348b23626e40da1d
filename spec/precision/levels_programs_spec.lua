--- amp.scale_loss: random programs of blocks, steps and errors, and training at every level.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local shared = require 'spec.precision.levels'
local nn, F = amp.nn, amp.nn.functional
local INF = math.huge
local back, sgd, One, init = shared.back, shared.sgd, shared.One, shared.init

describe('random programs of blocks, steps and errors', function()
  -- What one parameter, its gradient and the scales should be, in plain numbers.
  local function reference()
    local r = { w = 0, scale = { 8, 8 }, clean = { 0, 0 } }
    function r.block(id, g, delay)
      if r.late and r.late_id ~= id then return false end
      if delay then
        r.late, r.late_id = (r.late or 0) + g, id
        return true
      end
      local new = (r.late or 0) + g
      r.late = nil
      if new < INF then r.clean[id] = r.clean[id] + 1
      else r.held, r.scale[id], r.clean[id] = true, r.scale[id] / 2, 0 end
      r.grad = (r.grad or 0) + new
      return true
    end
    function r.step()
      if r.late then return false end
      if r.grad and not r.held then r.w = r.w - r.grad end
      r.held = nil
      return true
    end
    function r.clear() r.grad, r.late = nil, nil end
    return r
  end

  for _, level in ipairs { 'O1', 'O2' } do
    it(level .. ': parameters, gradients and scales are those of the reference', function()
      math.randomseed(11)
      for program = 1, 60 do
        local net = One(1)
        net.w = amp.zeros(1, { requires_grad = true })
        local opt = sgd(net:parameters())
        init(net, opt, { opt_level = level, num_losses = 2, max_loss_scale = 8 })
        local p, r, text = amp.master_params(opt)[1], reference(), { ('program %d:'):format(program) }
        for _ = 1, 25 do
          local what, id = math.random(10), math.random(2)
          local g = math.random(8) == 1 and INF or math.random(4) / 8
          if what <= 6 then
            -- where gradients are parameters' own, delaying after an overflow would count it twice
            local delay = what > 4 and not (r.grad and r.grad == INF)
            text[#text + 1] = ('block %d %g %s;'):format(id, g, tostring(delay))
            local loss = net.w:float():sum() * g
            local ok = pcall(amp.scale_loss, loss, opt, { loss_id = id, delay_unscale = delay }, back)
            assert.equal(r.block(id, g, delay), ok, table.concat(text, ' '))
          elseif what == 7 then
            text[#text + 1] = 'error;'
            H.fails(function()
              amp.scale_loss(net.w:float():sum(), opt, { loss_id = r.late and r.late_id or id }, function(s)
                s:backward()
                error 'mine'
              end)
            end, 'mine')
          elseif what <= 9 then
            text[#text + 1] = 'step;'
            local ok = pcall(opt.step, opt)
            assert.equal(r.step(), ok, table.concat(text, ' '))
            if ok then
              opt:zero_grad()
              r.clear()
            end
          else
            text[#text + 1] = 'clear;'
            opt:zero_grad()
            r.clear()
          end
          local where = table.concat(text, ' ')
          assert.equal(r.w, p:item(), where)
          if not r.late then
            local grad = p.grad and p.grad:item()
            if r.grad == INF then assert.is_true(grad == INF or grad ~= grad, where) else assert.equal(r.grad, grad, where) end
          end
          local state = amp.state_dict()
          for i = 1, 2 do assert.same({ loss_scale = r.scale[i], unskipped = r.clean[i] }, state['loss_scaler' .. i], where) end
        end
        H.same(net.w:detach(), p:detach():to(net.w.dtype))
        amp.deactivate()
      end
    end)
  end
end)

describe('training at every level', function()
  it('ends near the float32 control, over a forced overflow', function()
    local function train(level, dtype)
      amp.manual_seed(5)
      local net = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
      local opt = amp.optim.SGD(net:parameters(), { lr = 0.2, momentum = 0.9 })
      local x = amp.randn(64, 2)
      local y = (x[{ {}, 1 }] * x[{ {}, 2 }]):gt(0):long() + 1
      if level then init(net, opt, { opt_level = level, cast_model_type = dtype }) end
      local last
      for i = 1, 40 do
        local loss = F.cross_entropy(net(x), y)
        last = loss:item()
        if level then amp.scale_loss(i == 5 and (level == 'O1' or level == 'O2') and loss * INF or loss, opt, back) else loss:backward() end
        opt:step():zero_grad()
      end
      amp.deactivate()
      return last
    end
    local control = train()
    for _, case in ipairs { { 'O0' }, { 'O1' }, { 'O2' }, { 'O2', 'bfloat16' }, { 'O3' }, { 'O3', 'bfloat16' } } do
      local loss = train(unpack(case))
      assert.is_true(loss < 2.5 * control + 0.05, ('%s %s: %g against %g'):format(case[1], tostring(case[2]), loss, control))
    end
  end)
end)

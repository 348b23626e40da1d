--- Optimizers and schedules: against PyTorch step by step, groups, state, the parameter arena, wrong use.
local amp = require 'amp'
local optim, F = amp.optim, amp.nn.functional
local H = require 'spec.helper'

local function leaf(f, dtype)
  local t = H.tensor(f, dtype)
  t.requires_grad = true
  return t
end
local function param(values, dtype)
  local t = H.make(values, { #values }, dtype)
  t.requires_grad = true
  return t
end
local function label(c)
  local parts = {}
  for k, v in pairs(c.opts) do parts[#parts + 1] = k .. '=' .. (type(v) == 'table' and table.concat(v, '/') or tostring(v)) end
  table.sort(parts)
  return c.kind .. ' ' .. table.concat(parts, ' ')
end

describe('every option set follows PyTorch', function()
  for _, c in ipairs(H.fixture 'optim.txt') do
    it(label(c), function()
      for _, way in ipairs { 'float32', 'float64', '16-bit gradients', 'scaler', 'reloaded' } do
        local dtype = way == 'float64' and 'float64' or 'float32'
        local ps = { leaf(c.start[1], dtype), leaf(c.start[2], dtype) }
        local opt = optim[c.kind](ps, c.opts)
        local scaler = way == 'scaler' and amp.GradScaler { init_scale = 4, growth_interval = 2 }
        for k, step in ipairs(c.steps) do
          for i, p in ipairs(ps) do
            local g = step.grads[i]
            if not g then
              p.grad = nil
            elseif way == '16-bit gradients' then -- exact in 16 bits, so the result is the same
              local seed = H.tensor(g, 'bfloat16')
              amp.autocast({ dtype = 'bfloat16' }, function() return p:bfloat16() end):backward(seed)
            elseif scaler then
              scaler:scale((p * H.tensor(g, dtype)):sum()):backward()
            else
              p.grad = H.tensor(g, dtype)
            end
          end
          if scaler then
            scaler:step(opt)
            scaler:update()
          else
            opt:step()
          end
          opt:clear_grad()
          for i, p in ipairs(ps) do
            local tol = dtype == 'float64' and { rtol = 1e-9, atol = 1e-10 } or { rtol = 1e-5, atol = 2e-6 }
            local wrong = H.difference(p, step.params[i].v, step.params[i].s, tol)
            if wrong then error(('%s, step %d, parameter %d: %s'):format(way, k, i, wrong), 0) end
          end
          if way == 'reloaded' and k == 4 then
            local state = amp.load((function()
              local path = H.tmp 'optimizer'
              amp.save(path, opt:state_dict())
              return path
            end)())
            local fresh = {}
            for i, p in ipairs(ps) do fresh[i] = H.make(H.values(p), H.shape(p)) fresh[i].requires_grad = true end
            ps = fresh
            opt = optim[c.kind](ps, { lr = 0.777 })
            opt:load_state_dict(state)
          end
        end
      end
    end)
  end
  for _, c in ipairs(H.fixture 'train.txt') do
    it('training a network: ' .. label(c), function()
      for _, dtype in ipairs { 'float64', 'float32' } do
        local w = {}
        for i, f in ipairs(c.weights) do w[i] = leaf(f, dtype) end
        local x, y, target = H.tensor(c.x, dtype), H.tensor(c.y, dtype), H.tensor(c.target)
        local opt = optim[c.kind](w, c.opts)
        for k, want in ipairs(c.losses) do
          local h = F.linear(F.linear(x, w[1], w[2]):relu(), w[3], w[4])
          local loss = c.loss == 'mse' and F.mse_loss(h, y) or F.cross_entropy(h, target)
          H.close(loss, { want }, dtype == 'float64' and { rtol = 1e-9, atol = 0 } or { rtol = 1e-4, atol = 0 }, dtype .. ' step ' .. k)
          opt:zero_grad()
          loss:backward()
          opt:step()
        end
      end
    end)
  end
end)

describe('an optimizer', function()
  it('chains, and leaves parameters without a gradient untouched: no decay, no momentum, no count', function()
    local a, b = param { 1 }, param { 1 }
    local opt = optim.AdamW({ a, b }, { lr = 0.1, weight_decay = 0.5 })
    a.grad = amp.ones(1)
    assert.is_true(opt:step():clear_grad() == opt)
    assert.are_not.equal(1, a:item())
    assert.equal(1, b:item())
    local state = opt:state_dict().state
    assert.equal(1, state[1].step)
    assert.is_nil(state[2])
  end)
  it('has groups with options of their own, edited at any time', function()
    local a, b, c = param { 1 }, param { 1 }, param { 1 }
    local opt = optim.SGD({ { params = { a } }, { params = { b }, lr = 0.5 } }, { lr = 0.1 })
    opt:add_param_group { params = { c }, lr = 0.25 }
    for _, p in ipairs { a, b, c } do p.grad = amp.ones(1) end
    opt:step()
    H.close(a, { 0.9 })
    H.close(b, { 0.5 })
    H.close(c, { 0.75 })
    opt.param_groups[1].lr = 1
    opt:step()
    H.close(a, { -0.1 })
  end)
  it('keeps handles, views and identity of the parameters it packs together', function()
    local a, b = H.sample { 3, 2 }, H.sample { 4 }
    a.requires_grad, b.requires_grad = true, true
    local va, id = a:detach():t(), a:id()
    local before = H.values(a)
    local opt = optim.SGD({ a, b }, { lr = 1 })
    assert.equal(id, a:id())
    H.close(a, before)
    a.grad = amp.ones(3, 2)
    opt:step()
    H.same(va, a:detach():t())
    amp.no_grad(function() va:fill_(7) end)
    H.close(a, { 7, 7, 7, 7, 7, 7 })
    a.grad = amp.ones(3, 2)
    opt:step()
    H.close(a, { 6, 6, 6, 6, 6, 6 })
  end)
  it('steps parameters of any layout: transposed, channels-last, a slice, tied', function()
    for _, make in ipairs {
      function() return H.sample({ 3, 2 }):t() end,
      function() return H.sample({ 2, 3, 2, 2 }):contiguous { memory_format = 'channels_last' } end,
      function() return H.sample({ 4, 4 })[{ { 2, 3 }, { 1, 4, 2 } }] end,
    } do
      local p = make()
      p.requires_grad = true
      local want = H.values(p)
      local opt = optim.SGD({ p }, { lr = 1, momentum = 0.5 })
      local g = H.sample(H.shape(p))
      local gv = H.values(g)
      p.grad = g
      opt:step()
      p.grad = g
      opt:step()
      for i = 1, #want do want[i] = want[i] - 2.5 * gv[i] end
      H.close(p, want)
    end
  end)
  it('of a model moved to another dtype goes on', function()
    local net = amp.nn.Linear(2, 2)
    local opt = optim.SGD(net:parameters(), { lr = 0.5, momentum = 0.9 })
    local x = amp.ones(1, 2)
    net(x):sum():backward()
    opt:step():clear_grad()
    net:to 'float64'
    net(x:double()):sum():backward()
    opt:step():clear_grad()
    assert.equal('float64', net.weight.dtype)
  end)
  it('runs a closure and gives its value', function()
    local p = param { 2 }
    local opt = optim.SGD({ p }, { lr = 0.25 })
    local loss = opt:step(function()
      opt:zero_grad()
      local l = (p * p):sum()
      l:backward()
      return l
    end)
    assert.equal(4, loss:item())
    H.close(p, { 1 })
  end)
  it('accepts the names Torch7 used', function()
    local p = param { 1 }
    local opt = optim.SGD({ p }, { learningRate = 0.5, weightDecay = 0.25 })
    assert.equal(0.5, opt.param_groups[1].lr)
    assert.equal(0.25, opt.param_groups[1].weight_decay)
  end)
  it('gives memory back', function()
    local before = H.live()
    local function use()
      local p = H.sample { 1000 }
      p.requires_grad = true
      local opt = optim.Adam({ p }, { lr = 0.1 })
      p.grad = H.sample { 1000 }
      opt:step()
    end
    use()
    assert.is_true(H.live() <= before + 4096)
  end)
  it('names what is wrong', function()
    local p = param { 1 }
    H.fails_here(function() optim.SGD({ p }, { lrr = 1 }) end, 'lrr', 'lr')
    H.fails_here(function() optim.SGD({ p }, { lr = -1 }) end, 'lr', '-1')
    H.fails_here(function() optim.SGD({ p }, { nesterov = true }) end, 'nesterov', 'momentum')
    H.fails_here(function() optim.SGD({}, { lr = 1 }) end, 'empty')
    H.fails_here(function() optim.SGD({ p, p }, { lr = 1 }) end, 'twice')
    H.fails_here(function() optim.SGD({ p * 1 }, { lr = 1 }) end, 'leaves')
    H.fails_here(function() optim.SGD({ amp.zeros(1, { dtype = 'int64' }) }, { lr = 1 }) end, 'int64')
    H.fails_here(function() optim.SGD(amp.nn.Linear(1, 1), { lr = 1 }) end, 'parameters()')
    H.fails_here(function() optim.Adam({ p }, { betas = { 1, 0.9 } }) end, 'beta', '1')
    H.fails_here(function() optim.Adam({ p }, { eps = -1 }) end, 'eps', '-1')
    local opt = optim.SGD({ p }, { lr = 1 })
    H.fails_here(function() opt:add_param_group { params = { p } } end, 'already')
    H.fails_here(function() opt:load_state_dict { state = {}, param_groups = {} } end, '0', '1')
    H.fails_here(function() opt:load_state_dict(5) end)
    opt.param_groups[1].lr = 'x'
    p.grad = amp.ones(1)
    H.fails_here(function() opt:step() end, 'lr', 'x')
    H.close(p, { 1 })
  end)
end)

describe('clipping', function()
  it('by norm gives the norm before and scales to max_norm, several norms', function()
    for _, norm in ipairs { { 2, math.sqrt(9 + 16) }, { 1, 7 }, { math.huge, 4 } } do
      local a, b = param { 0 }, param { 0 }
      a.grad, b.grad = amp.tensor { 3 }, amp.tensor { -4 }
      H.close(amp.nn.utils.clip_grad_norm_({ a, b }, 1, norm[1]), { norm[2] })
      H.close(a.grad, { 3 / norm[2] }, { rtol = 1e-5, atol = 0 })
      H.close(b.grad, { -4 / norm[2] }, { rtol = 1e-5, atol = 0 })
    end
    local a = param { 0 }
    a.grad = amp.tensor { 0.5 }
    amp.nn.utils.clip_grad_norm_({ a }, 1)
    H.close(a.grad, { 0.5 })
  end)
  it('by value, and of nothing', function()
    local a = param { 0, 0 }
    a.grad = amp.tensor { 3, -4 }
    amp.nn.utils.clip_grad_value_({ a }, 2)
    H.close(a.grad, { 2, -2 })
    H.close(amp.nn.utils.clip_grad_norm_({ param { 1 } }, 1), { 0 })
  end)
end)

describe('schedules follow PyTorch', function()
  local metrics = { 5, 4, 4, 4.1, 4, 3, 3, 3, 3, 3, 3, 2 }
  for _, c in ipairs(H.fixture 'schedule.txt') do
    local function make(opt)
      local S = optim.lr_scheduler
      if c.kind ~= 'SequentialLR' then return S[c.kind](opt, c.opts) end
      return S.SequentialLR(opt, { milestones = { 4 }, schedulers = {
        S.LinearLR(opt, { start_factor = 0.1, end_factor = 1, total_iters = 4 }), S.ExponentialLR(opt, { gamma = 0.9 }) } })
    end
    it(label(c) .. ', and resume at every step', function()
      local opt = optim.SGD({ param { 0 } }, { lr = 0.5, momentum = 0.9 })
      local s = make(opt)
      local states = {}
      for k = 0, 12 do
        if k > 0 then s:step(c.kind == 'ReduceLROnPlateau' and metrics[k] or nil) end
        assert.is_true(math.abs(opt.param_groups[1].lr - c.lrs[k + 1]) < 1e-9, ('step %d: %.12g, not %.12g'):format(k, opt.param_groups[1].lr, c.lrs[k + 1]))
        states[k] = { s:state_dict(), opt.param_groups[1].lr }
      end
      for k = 1, 11 do
        local again = optim.SGD({ param { 0 } }, { lr = 0.5, momentum = 0.9 })
        local t = make(again)
        again.param_groups[1].lr = states[k][2]
        t:load_state_dict(states[k][1])
        for n = k + 1, 12 do
          t:step(c.kind == 'ReduceLROnPlateau' and metrics[n] or nil)
          assert.is_true(math.abs(again.param_groups[1].lr - c.lrs[n + 1]) < 1e-9, ('resumed at %d, step %d'):format(k, n))
        end
      end
    end)
  end
  it('a schedule held back by a skipped step leaves the rate alone', function()
    local p = param { 1 }
    local opt = optim.SGD({ p }, { lr = 1 })
    local s = optim.lr_scheduler.ExponentialLR(opt, { gamma = 0.5 })
    local scaler = amp.GradScaler { init_scale = 4 }
    for _, g in ipairs { math.huge, 1 } do
      scaler:scale((p * g):sum()):backward()
      scaler:step(opt)
      local skipped = scaler:found_inf(opt)
      scaler:update()
      if not skipped then s:step() end
      opt:zero_grad()
      assert.equal(g == 1 and 0.5 or 1, opt.param_groups[1].lr)
    end
  end)
  it('names wrong options', function()
    local opt = optim.SGD({ param { 0 } }, { lr = 0.5 })
    H.fails_here(function() optim.lr_scheduler.StepLR(opt, { step_sise = 1 }) end, 'step_sise', 'step_size')
    H.fails_here(function() optim.lr_scheduler.StepLR(opt, { step_size = 0 }) end, 'step_size', '0')
    H.fails_here(function() optim.lr_scheduler.StepLR(5, { step_size = 1 }) end, 'optimizer')
  end)
end)

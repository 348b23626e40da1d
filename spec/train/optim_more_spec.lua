--- LARC and LBFGS against PyTorch's paths, state, printing, wrong use.
local amp = require 'amp'
local optim = amp.optim
local H = require 'spec.lib.helper'

local function leaf(f, dtype)
  local t = H.tensor(f, dtype or 'float64')
  t.requires_grad = true
  return t
end
local function leaves(list, dtype)
  local out = {}
  for i, f in ipairs(list) do out[i] = leaf(f, dtype) end
  return out
end
local function param(values)
  local t = H.make(values, { #values })
  t.requires_grad = true
  return t
end
local close = { rtol = 1e-9, atol = 1e-10 }

describe('LARC', function()
  for i, c in ipairs(H.fixture 'larc.txt') do
    it(('follows its formula around %s, case %d'):format(c.inner, i), function()
      for _, way in ipairs { 'float64', 'float32', 'scaler' } do
        local dtype = way == 'float64' and 'float64' or 'float32'
        local ps = leaves(c.start, dtype)
        local opt = optim.LARC(optim[c.inner](ps, c.inner_opts), c.opts)
        local scaler = way == 'scaler' and amp.GradScaler { init_scale = 8 }
        for k, step in ipairs(c.steps) do
          for j, p in ipairs(ps) do
            local g = step.grads[j]
            p.grad = nil
            if g and scaler then scaler:scale((p * H.tensor(g, dtype)):sum()):backward()
            elseif g then p.grad = H.tensor(g, dtype) end
          end
          if scaler then
            scaler:step(opt)
            scaler:update()
          else
            opt:step()
          end
          for j, p in ipairs(ps) do
            local wrong = H.difference(p, step.params[j].v, step.params[j].s, dtype == 'float64' and close or { rtol = 1e-5, atol = 2e-6 })
            if wrong then error(('%s, step %d, parameter %d: %s'):format(way, k, j, wrong), 0) end
          end
          assert.equal(c.inner_opts.weight_decay or 0, opt.param_groups[1].weight_decay)
        end
      end
    end)
  end

  it('skips what a scaler finds to overflow', function()
    local p = param { 1, 2 }
    local opt = optim.LARC(optim.SGD({ p }, { lr = 0.1 }))
    local scaler = amp.GradScaler { init_scale = 4 }
    scaler:scale((p * math.huge):sum()):backward()
    scaler:step(opt)
    scaler:update()
    H.close(p, { 1, 2 }, H.exact)
    assert.equal(2, scaler:get_scale())
  end)

  it('shows the wrapped optimizer to schedulers, state and groups', function()
    local p, q = param { 1, 2 }, param { 3 }
    local inner = optim.SGD({ p }, { lr = 0.5, momentum = 0.9 })
    local opt = optim.LARC(inner, { clip = false })
    assert.is_true(opt.param_groups == inner.param_groups)
    assert.is_true(opt:add_param_group { params = { q }, lr = 0.25 } == opt)
    local sched = optim.lr_scheduler.StepLR(opt, { step_size = 1, gamma = 0.5 })
    p.grad = amp.ones(2)
    opt:step():zero_grad()
    assert.is_nil(p.grad)
    sched:step()
    assert.equal(0.25, inner.param_groups[1].lr)
    local state = opt:state_dict()
    assert.equal(1, state.state[1].step)
    opt:load_state_dict(state)
    assert.is_truthy(tostring(opt):match 'LARC.*SGD')
    assert.equal(7, opt:step(function() return 7 end))
  end)

  it('names what is wrong', function()
    local inner = optim.SGD({ param { 1 } }, { lr = 1 })
    H.fails_here(function() optim.LARC({ param { 1 } }) end, 'optimizer')
    H.fails_here(function() optim.LARC(inner, { trust = 1 }) end, 'trust', 'trust_coefficient')
    H.fails_here(function() optim.LARC(inner, { trust_coefficient = -1 }) end, 'trust_coefficient', '-1')
    H.fails_here(function() optim.LARC(inner, { clip = 1 }) end, 'clip', '1')
    H.fails_here(function() optim.LARC(optim.LBFGS({ param { 1 } })) end, 'closure')
  end)
end)

describe('LBFGS', function()
  local function closure_of(c, opt, ps)
    local k = amp.tensor({ 1, 3, 10 }, { dtype = 'float64' })
    return function()
      opt:zero_grad()
      local l
      if c.make == 1 then l = ((ps[2][1] - ps[1] ^ 2) ^ 2 * 100 + (1 - ps[1]) ^ 2):sum()
      else l = (k * ps[1] ^ 2):sum() + (ps[2] * ps[1]):sum() + (ps[2] ^ 2):sum() end
      l:backward()
      return l
    end
  end
  for i, c in ipairs(H.fixture 'lbfgs.txt') do
    it(('follows PyTorch, case %d'):format(i), function()
      for _, way in ipairs { 'plain', 'reloaded' } do
        local ps = leaves(c.start)
        local opt = optim.LBFGS(ps, c.opts)
        for k, step in ipairs(c.steps) do
          local loss = opt:step(closure_of(c, opt, ps))
          local off = math.abs(loss:item() - step.loss)
          assert.is_true(off <= 1e-4 * math.abs(step.loss) + 1e-12, ('%s, step %d: loss %.15g, not %.15g'):format(way, k, loss:item(), step.loss))
          for j, p in ipairs(ps) do
            local wrong = H.difference(p, step.params[j].v, step.params[j].s, { rtol = 1e-4, atol = 1e-6 }) -- without a line search a path magnifies roundings
            if wrong then error(('%s, step %d, parameter %d: %s'):format(way, k, j, wrong), 0) end
          end
          assert.equal(step.evals, opt.state.func_evals)
          assert.equal(step.iters, opt.state.n_iter)
          if way == 'reloaded' then
            local path = H.tmp 'lbfgs'
            amp.save(path, opt:state_dict())
            local fresh = {}
            for j, p in ipairs(ps) do fresh[j] = H.make(H.values(p), H.shape(p), 'float64') fresh[j].requires_grad = true end
            ps = fresh
            opt = optim.LBFGS(ps, { lr = 0.123 }):load_state_dict(amp.load(path))
          end
        end
      end
    end)
  end

  it('fits in float32, with a bfloat16 region in its closure', function()
    local w = param { 3, -2 }
    local opt = optim.LBFGS({ w }, { line_search_fn = 'strong_wolfe' })
    opt:step(function()
      opt:zero_grad()
      local l = amp.autocast({ dtype = 'bfloat16' }, function() return amp.mse_loss(w, amp.tensor { 1, 5 }) end)
      l:backward()
      return l
    end)
    H.close(w, { 1, 5 }, { rtol = 1e-3, atol = 1e-3 })
  end)

  it('is refused by a scaler, which names it', function()
    local p = param { 1 }
    local opt = optim.LBFGS({ p }, { name = 'second order' })
    p.grad = amp.ones(1)
    H.fails_here(function() amp.GradScaler():step(opt) end, 'second order', 'closure')
    H.fails_here(function() amp.GradScaler():step(opt, function() end) end, 'closure')
  end)

  it('names what is wrong', function()
    local p, q = param { 1 }, param { 2 }
    local opt = optim.LBFGS({ p })
    H.fails_here(function() opt:step() end, 'function', 'nil')
    H.fails_here(function() opt:step(function() return 'x' end) end, 'loss', 'x')
    H.fails_here(function() opt:add_param_group { params = { q } } end, 'one group')
    H.fails_here(function() optim.LBFGS({ { params = { p } }, { params = { q } } }) end, 'one group', '2')
    H.fails_here(function() optim.LBFGS({ p, q:detach():double() }) end, 'float64', 'float32')
    H.fails_here(function() optim.LBFGS({ p * 1 }) end, 'leaves')
    H.fails_here(function() optim.LBFGS({ p }, { line_search_fn = 'armijo' }) end, 'armijo', 'strong_wolfe')
    H.fails_here(function() optim.LBFGS({ p }, { max_iter = 0 }) end, 'max_iter', '0')
    H.fails_here(function() optim.LBFGS({ p }, { histroy_size = 5 }) end, 'histroy_size', 'history_size')
    H.fails_here(function() opt:load_state_dict {} end, 'state')
    assert.is_truthy(tostring(opt):match '^LBFGS %(1 parameter:')
  end)
  it('a damaged state is refused by name, and changes nothing', function()
    local p = amp.tensor({ 1, 2 }, { requires_grad = true })
    local opt = optim.LBFGS({ p }, { lr = 0.1, max_iter = 3 })
    local function step()
      opt:step(function()
        opt:zero_grad()
        local loss = (p ^ 4):sum()
        loss:backward()
        return loss
      end)
    end
    step()
    local state = opt:state_dict()
    local s = state.state[1]
    for name, values in pairs {
      t = { 'x', false }, H_diag = { {}, 'x' }, prev_loss = { 'x' }, n_iter = { 'x', -1, 1.5 }, func_evals = { {}, -1 },
      d = { 5, amp.ones(3), {} }, prev_flat_grad = { 'x', true }, old_dirs = { 5, { 5 }, {}, { amp.ones(3) } }, old_stps = { true, {} },
      ro = { 'x', { 'x', 'x' }, {} }, -- of as many as old_dirs
    } do
      local old = s[name]
      assert.is_truthy(old ~= nil, name)
      for _, v in ipairs(values) do
        s[name] = v
        H.fails_here(function() opt:load_state_dict(state) end, name)
      end
      s[name] = nil
      if name ~= 'func_evals' and name ~= 'n_iter' then H.fails_here(function() opt:load_state_dict(state) end, name) end
      s[name] = old
    end
    state.state[1] = 5
    H.fails_here(function() opt:load_state_dict(state) end, '5')
    state.state[1] = s
    local q = p:tolist()
    step()
    local want = p:tolist()
    amp.no_grad(function() p:copy_(amp.tensor(q)) end)
    opt:load_state_dict(state)
    step()
    assert.same(want, p:tolist())
  end)
end)

--- Optimizers: against PyTorch step by step, groups, state, overflow, the parameter arena, clipping, wrong use.
local amp = require 'amp'
local optim, F = amp.optim, amp.nn.functional
local H = require 'spec.lib.helper'
local steps = require 'spec.lib.optim_steps'
local leaf, param, label = steps.leaf, steps.param, steps.label

describe('every option set follows PyTorch', function()
  local function tolerance(_, dtype)
    return dtype == 'float64' and { rtol = 1e-9, atol = 1e-10 } or { rtol = 1e-5, atol = 2e-6 }
  end
  for _, c in ipairs(H.fixture 'optim.txt') do
    it(label(c), function() steps.follows(c, tolerance) end)
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

local function freeze(v) -- a copy by value, tensors as lists
  if type(v) == 'cdata' then return v:tolist() end
  if type(v) ~= 'table' then return v end
  local t = {}
  for k, x in pairs(v) do t[k] = freeze(x) end
  return t
end

describe('state', function()
  local makes = {
    SGD = function(ps) return optim.SGD(ps, { lr = 0.1, momentum = 0.9, weight_decay = 0.01 }) end,
    Adam = function(ps) return optim.Adam(ps, { lr = 0.1, amsgrad = true }) end,
    AdamW = function(ps) return optim.AdamW(ps, { lr = 0.1 }) end,
    RMSprop = function(ps) return optim.RMSprop(ps, { lr = 0.1, momentum = 0.5, centered = true }) end,
    Adagrad = function(ps) return optim.Adagrad(ps, { lr = 0.1, initial_accumulator_value = 0.5 }) end,
    LAMB = function(ps) return optim.LAMB(ps, { lr = 0.1 }) end,
  }
  local function run(opt, ps, from, to)
    for k = from, to do
      for i, p in ipairs(ps) do p.grad = H.sample(H.shape(p)) * (k - 3 + i) end
      opt:step():clear_grad()
    end
  end
  it('resumed at every step, the run is the uninterrupted one bit for bit', function()
    for name, make in pairs(makes) do
      local function fresh() return { param { 1, 2, 3 }, param { -1, 0.5 } } end
      local ps = fresh()
      run(make(ps), ps, 1, 6)
      for k = 0, 5 do
        local a = fresh()
        local oa = make(a)
        run(oa, a, 1, k)
        local b = {}
        for i, p in ipairs(a) do b[i] = param(H.values(p)) end
        local ob = make(b):load_state_dict(oa:state_dict())
        run(ob, b, k + 1, 6)
        for i = 1, 2 do H.same(b[i], ps[i], ('%s resumed after %d'):format(name, k)) end
      end
    end
  end)
  it('of a dict is copied: two optimizers loaded from it, or itself, stay apart', function()
    for name, make in pairs(makes) do
      local ps = { param { 1, 2, 3 }, param { -1, 0.5 } }
      local opt = make(ps)
      run(opt, ps, 1, 2)
      local dict = opt:state_dict()
      local qs = { param(H.values(ps[1])), param(H.values(ps[2])) }
      local other = make(qs):load_state_dict(dict)
      local before = freeze(other:state_dict().state)
      run(opt, ps, 3, 3)
      assert.same(before, freeze(other:state_dict().state), name)
      run(other, qs, 3, 3)
      for i = 1, 2 do H.same(qs[i], ps[i], name) end
      opt:load_state_dict(opt:state_dict()) -- its own, shared memory
      run(opt, ps, 4, 5)
      run(other, qs, 4, 5)
      for i = 1, 2 do H.same(qs[i], ps[i], name .. ' reloaded from itself') end
    end
  end)
  it('tensors of a dict follow the optimizer; views of one tensor load as their values', function()
    local ps = { param { 1, 2, 3 } }
    local opt = makes.SGD(ps)
    run(opt, ps, 1, 1)
    local dict = opt:state_dict()
    local seen = H.values(dict.state[1].momentum_buffer)
    run(opt, ps, 2, 2)
    assert.are_not.same(seen, H.values(dict.state[1].momentum_buffer))
    local both = H.sample { 3, 2 }
    local qs = { param { 1, 2, 3 }, param { 4, 5, 6 } }
    local other = makes.AdamW(qs)
    local state = other:state_dict()
    for i = 1, 2 do state.state[i] = { step = 2, exp_avg = both[{ {}, i }], exp_avg_sq = both[{ {}, i }]:square() } end
    other:load_state_dict(state)
    local loaded = other:state_dict().state
    for i = 1, 2 do
      H.same(loaded[i].exp_avg, both[{ {}, i }]:contiguous())
      assert.equal(2, loaded[i].step)
    end
    run(other, qs, 1, 1)
    H.same(both, H.sample { 3, 2 })
  end)
  it('loads hyper-parameters, keeps options the dict lacks, takes float64 and 16-bit tensors', function()
    local p = param { 1, 2 }
    local opt = optim.Adam({ p }, { lr = 0.1, betas = { 0.5, 0.6 } })
    opt:load_state_dict {
      state = { { step = amp.tensor(3), exp_avg = amp.tensor({ 1, 2 }, { dtype = 'float64' }), exp_avg_sq = amp.tensor({ 1, 4 }, { dtype = 'float16' }) } },
      param_groups = { { params = { 1 }, lr = 0.25 } },
    }
    assert.equal(0.25, opt.param_groups[1].lr)
    assert.same({ 0.5, 0.6 }, opt.param_groups[1].betas)
    local s = opt:state_dict().state[1]
    assert.equal(3, s.step)
    H.close(s.exp_avg, { 1, 2 }, H.exact)
    H.close(s.exp_avg_sq, { 1, 4 }, H.exact)
    assert.equal('float32', s.exp_avg_sq.dtype)
  end)
  it('a wrong dict changes nothing and is named', function()
    local p = param { 1, 2 }
    local opt = optim.SGD({ p }, { lr = 0.1, momentum = 0.9 })
    p.grad = amp.ones(2)
    opt:step()
    local before = freeze(opt:state_dict())
    local function dict(s, g) return { state = { s }, param_groups = { g or { params = { 1 } } } } end
    H.fails_here(function() opt:load_state_dict(dict { step = 1, momentum_buffer = amp.zeros(3) }) end, 'momentum_buffer', '3', '2')
    H.fails_here(function() opt:load_state_dict(dict { step = 1, momentum_buffer = 5 }) end, 'momentum_buffer', '5')
    H.fails_here(function() opt:load_state_dict(dict { step = -1 }) end, 'step', '1')
    H.fails_here(function() opt:load_state_dict(dict(nil, { params = { 1, 2 } })) end, '2', '1')
    H.fails_here(function() opt:load_state_dict(dict(nil, { params = { 1 }, lr = -1 })) end, 'lr', '-1')
    assert.same(before, freeze(opt:state_dict()))
  end)
end)

describe('16-bit and float64 parameters', function()
  it('step in float32 (16-bit) or float64 arithmetic, state in that dtype', function()
    for _, d in ipairs { 'float16', 'bfloat16', 'float64' } do
      for _, kind in ipairs { 'SGD', 'Adam', 'AdamW' } do
        local p, q = param({ 1, -2, 0.5 }, d), param({ 1, -2, 0.5 }, 'float64')
        local opts = kind == 'SGD' and { lr = 0.25, momentum = 0.5 } or { lr = 0.25 }
        local o, c = optim[kind]({ p }, opts), optim[kind]({ q }, opts)
        for k = 1, 4 do
          p.grad = amp.tensor({ k, 1, -k }, { dtype = d })
          q.grad = amp.tensor({ k, 1, -k }, { dtype = 'float64' })
          o:step()
          c:step()
          -- a step's rounding carries on into the next
          H.close(p, q, { rtol = H.tolerance[d].rtol * 3, atol = H.tolerance[d].atol * 3 }, kind .. ' ' .. d)
        end
        for name, v in pairs(o:state_dict().state[1]) do
          if name ~= 'step' then assert.equal(d == 'float64' and d or 'float32', v.dtype) end
        end
      end
    end
  end)
end)

describe('overflow under a scaler', function()
  it('leaves parameters, moments, step counts, versions and casts untouched, whichever parameter overflows', function()
    for _, kind in ipairs { 'SGD', 'Adam', 'AdamW' } do
      for bad = 1, 3 do
        local ps = { param { 1, 2 }, param { 3 }, H.sample({ 2, 3 }):t() }
        ps[3].requires_grad = true
        local opt = optim[kind](ps, kind == 'SGD' and { lr = 0.1, momentum = 0.9 } or { lr = 0.1, amsgrad = true })
        local s = amp.GradScaler { init_scale = 8 }
        local function step(overflows)
          for i, p in ipairs(ps) do
            p.grad = amp.ones_like(p:detach()) * (overflows and i == bad and math.huge or 8)
          end
          s:step(opt)
          s:update()
        end
        step(true) -- at once: no state is made
        assert.is_nil(next(opt:state_dict().state))
        step()
        step()
        local function all()
          local t = { state = freeze(opt:state_dict()), params = {}, versions = {} }
          for i, p in ipairs(ps) do t.params[i], t.versions[i] = p:tolist(), H.version(p) end
          return t
        end
        local before = all()
        for _ = 1, 2 do step(true) end
        assert.same(before, all(), kind)
        for i = 1, 3 do assert.equal(2, opt:state_dict().state[i].step) end
        step()
        for i = 1, 3 do assert.equal(3, opt:state_dict().state[i].step) end
        assert.are_not.same(before.params, all().params)
      end
    end
  end)
  it('fused steps see gradients unscaled, with and without unscale_, in every gradient dtype', function()
    for _, kind in ipairs { 'SGD', 'Adam', 'AdamW' } do
      for _, low in ipairs { 'float32', 'float16', 'bfloat16' } do -- float32: no region
        local function train(mode)
          local w = H.sample { 4, 3 }
          w.requires_grad = true
          local opt = optim[kind]({ w }, { lr = 0.1 })
          local s = amp.GradScaler { init_scale = 1024, enabled = mode ~= 'plain' }
          for k = 1, 3 do
            local loss = amp.autocast({ dtype = low, enabled = low ~= 'float32' }, function() return amp.linear(H.sample { 2, 3 } * k, w):sum() end)
            s:scale(loss):backward()
            if mode == 'unscale_' then s:unscale_(opt) end
            s:step(opt)
            s:update()
            opt:zero_grad()
          end
          return w
        end
        local plain = train 'plain'
        H.close(train 'step', plain, { rtol = 1e-6, atol = 1e-6 }, kind .. ' ' .. low)
        H.same(train 'unscale_', train 'step', kind .. ' ' .. low)
      end
    end
  end)
end)

describe('the low copy of a weight', function()
  it('written by the step is the cast of the new value, in and out of regions', function()
    for _, kind in ipairs { 'SGD', 'Adam', 'AdamW' } do
      local w = H.sample { 3, 3 }
      w.requires_grad = true
      local opt = optim[kind]({ w }, { lr = 0.1 })
      local x = H.sample { 2, 3 }
      for _ = 1, 3 do
        local y = amp.autocast({ dtype = 'bfloat16' }, function() return amp.linear(x, w) end)
        H.same(y, amp.linear(x:bfloat16(), w:detach():bfloat16()), kind)
        y:sum():backward()
        opt:step():clear_grad()
      end
      amp.no_grad(function() w:fill_(3) end)
      H.same(amp.autocast({ dtype = 'bfloat16' }, function() return amp.linear(x, w) end), amp.linear(x:bfloat16(), w:detach():bfloat16()))
    end
  end)
  it('a step in a region does what one outside does', function()
    local a, b = param { 1, 2 }, param { 1, 2 }
    local oa, ob = optim.AdamW({ a }, { lr = 0.1 }), optim.AdamW({ b }, { lr = 0.1 })
    for k = 1, 3 do
      a.grad, b.grad = amp.tensor { k, -1 }, amp.tensor { k, -1 }
      oa:step()
      amp.autocast({ dtype = 'bfloat16' }, function() ob:step() end)
    end
    H.same(a, b)
  end)
end)

describe('two optimizers of one parameter', function()
  it('each step it, with state of their own; one may go while the other goes on', function()
    local p = param { 1 }
    local a = optim.SGD({ p }, { lr = 1 })
    do
      local b = optim.SGD({ p }, { lr = 0.5, momentum = 0.5 })
      p.grad = amp.tensor { 0.25 }
      a:step()
      b:step()
      H.close(p, { 0.625 }, H.exact)
    end
    collectgarbage()
    collectgarbage()
    a:step()
    H.close(p, { 0.375 }, H.exact)
  end)
  it('parameters that are views of one tensor step one after the other', function()
    local base = amp.zeros(6)
    local u, v = base[{ { 1, 4 } }], base[{ { 3, 6 } }]
    u.requires_grad, v.requires_grad = true, true
    local opt = optim.SGD({ u, v }, { lr = 1, momentum = 0.5 })
    u.grad, v.grad = amp.ones(4), amp.ones(4)
    opt:step()
    H.close(base, { -1, -1, -2, -2, -1, -1 }, H.exact)
  end)
end)

describe('an optimizer and its gradients', function()
  it('a gradient of another shape or dtype is refused where it is set', function()
    local p = param { 1, 2 }
    H.fails_here(function() p.grad = amp.ones(3) end, '3', '2')
  end)
  it('steps with strided, expanded and transposed gradients', function()
    local p = H.sample { 2, 3 }
    p.requires_grad = true
    local want = H.values(p)
    local opt = optim.SGD({ p }, { lr = 1 })
    p.grad = amp.ones(1):expand(2, 3)
    opt:step()
    p.grad = H.sample({ 3, 2 }):t()
    opt:step()
    local g = H.values(H.sample({ 3, 2 }):t():contiguous())
    for i = 1, 6 do want[i] = want[i] - 1 - g[i] end
    H.close(p, want)
  end)
  it('an empty parameter, and many of them', function()
    local ps = { amp.zeros(0) }
    ps[1].requires_grad = true
    for i = 2, 300 do
      ps[i] = amp.ones(i % 5 + 1)
      ps[i].requires_grad = true
    end
    local opt = optim.Adam(ps, { lr = 0.5 })
    for _, p in ipairs(ps) do p.grad = amp.ones_like(p:detach()) end
    opt:step()
    for i = 2, 300 do H.close(ps[i]:mean(), { 0.5 }) end
  end)
  it('no step leaves anything behind', function()
    local p = H.sample { 100 }
    p.requires_grad = true
    local opt = optim.Adam({ p }, { lr = 0.1 })
    local s = amp.GradScaler { init_scale = 4 }
    local function step(g)
      s:scale((p * g):sum()):backward()
      s:unscale_(opt)
      amp.nn.utils.clip_grad_norm_({ p }, 1)
      s:step(opt)
      s:update()
      s:found_inf(opt)
      opt:clear_grad()
    end
    for _ = 1, 5 do step(1) end
    local before = H.live()
    for k = 1, 200 do step(k % 7 == 0 and math.huge or 1) end
    assert.is_true(H.live() <= before, H.live() - before)
  end)
end)

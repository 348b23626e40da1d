--- Where gradients come from: a scaler's step takes those of scaled losses, an optimizer's own step
-- those of others, and a mix of the two is an error that says what to call. Gradients written by hand
-- count as what the step takes.
local ffi = require 'ffi'
local amp = require 'amp'
local nn = amp.nn
local INF = math.huge

local origin = require 'spec.precision.origin'
local leaf, sgd, refused = origin.leaf, origin.sgd, origin.refused

describe('a scaler\'s step of a loss that was not scaled', function()
  local NAMES = "parameter 1 %(float32 2%) of optimizer 'mine' is that of a loss that was not scaled: call scaler:scale%(loss%):backward%(%)"
  it('is an error that names parameter, optimizer and cure, and changes nothing', function()
    local p = leaf(1, 2)
    local opt, scaler = sgd(p), amp.GradScaler()
    p:sum():backward()
    refused(NAMES, scaler.step, scaler, opt)
    assert.same({ 1, 2 }, p:tolist())
    assert.same({ 1, 1 }, p.grad:tolist())
    refused(NAMES, scaler.unscale_, scaler, opt)
    refused('parameter 1 %(float32 2%) is that of a loss that was not scaled', scaler.unscale, scaler, { p })
    opt:clear_grad()
    scaler:scale(p:sum()):backward()
    scaler:step(opt):update()
    assert.same({ 0.5, 1.5 }, p:tolist())
  end)
  it('is one also of LARC, of optimizers of the user\'s own and of those that wrap others', function()
    local p = leaf(1, 2)
    local stepped = 0
    local own = { name = 'mine', param_groups = { { params = { p } } }, step = function() stepped = stepped + 1 end }
    local inner = sgd(p)
    local wraps = { name = 'mine', param_groups = inner.param_groups, step = function() inner:step() end }
    local all = { LARC = amp.optim.LARC(inner), own = own, wraps = wraps,
      fused = { name = 'mine', step_supports_amp_scaling = true, param_groups = own.param_groups, step = own.step } }
    for name, opt in pairs(all) do
      p.grad = nil
      p:sum():backward()
      refused('not scaled: call scaler:scale', function() amp.GradScaler():step(opt) end)
      assert.equal(0, stepped, name)
      assert.same({ 1, 2 }, p:tolist(), name)
    end
  end)
  it('is one after clipping, through hooks, functions, checkpoints, managers and create_graph', function()
    local Double = amp.Function { forward = function(_, x) return x * 2 end, backward = function(_, g) return g * 2 end }
    local ways = {
      clip_norm = function(p) p:sum():backward(); nn.utils.clip_grad_norm_({ p }, 0.1) end,
      clip_read = function(p) p:sum():backward(); assert(p.grad); nn.utils.clip_grad_norm_({ p }, 0.1) end,
      clip_value = function(p) p:sum():backward(); nn.utils.clip_grad_value_({ p }, 0.1) end,
      hook = function(p) local h = p:register_hook(function(g) return g * 2 end); p:sum():backward(); h:remove() end,
      custom = function(p) Double(p):sum():backward() end,
      checkpoint = function(p) amp.checkpoint(function(x) return (x * p):sum() end, leaf(1, 1)):backward() end,
      manager = function(p) local gm = amp.GradManager():attach(p); gm:record(function() gm:backward(p * p) end) end,
      create_graph = function(p) (p * p):sum():backward(nil, { create_graph = true }) end,
      autocast = function(p) amp.autocast(function() return p:reshape(1, 2):matmul(amp.ones(2, 1)):sum() end):backward() end,
      twice = function(p) p:sum():backward(); (p * p):sum():backward() end,
      zeros_first = function(p) p.grad = amp.zeros(2); p:sum():backward() end,
      list = function(p) amp.backward { p:sum(), (p * p):sum() } end,
      rnn = function(p)
        local cell, h = nn.GRUCell(2, 2), nil
        for _ = 1, 3 do h = cell(p:reshape(1, 2), h) end
        h:sum():backward()
      end,
    }
    for name, way in pairs(ways) do
      local p = leaf(1, 2)
      way(p)
      local ok, e = pcall(function() amp.GradScaler():step(sgd(p)) end)
      assert.is_false(ok, name)
      assert.matches('not scaled', tostring(e), name)
    end
  end)
  it('is fine where the gradients were written by hand: they count as scaled', function()
    local ways = {
      set = function(p) p.grad = amp.full({ 2 }, 8) end,
      set_over = function(p) p:sum():backward(); p.grad = amp.full({ 2 }, 8) end,
      copy = function(p) p:sum():backward(); p.grad:copy_(amp.full({ 2 }, 8)) end,
      mul = function(p) p:sum():backward(); p.grad:mul_(8) end,
      fill = function(p) p:sum():backward(); p.grad:fill_(8) end,
      index = function(p) p:sum():backward(); p.grad[{ {} }] = 8 end,
      pointer = function(p)
        p:sum():backward()
        local data = ffi.cast('float *', p.grad:data_ptr())
        data[0], data[1] = 8, 8
      end,
    }
    for name, way in pairs(ways) do
      local p, scaler = leaf(1, 2), amp.GradScaler { init_scale = 8 }
      way(p)
      scaler:step(sgd(p)):update()
      assert.same({ 0.5, 1.5 }, p:tolist(), name)
    end
  end)
  it('is fine where the loss was multiplied by the scale itself, as tensor or number, or dy is it', function()
    local ways = {
      scale = function(s, l) s:scale(l):backward() end,
      nested = function(s, l) s:scale({ { l } })[1][1]:backward() end,
      after = function(s, l) (s:scale(l) / 2 + s:scale(l) / 2):backward() end,
      tensor = function(s, l) (l * s:scale_tensor()):backward() end,
      before = function(s, l) (s:scale_tensor() * l):backward() end,
      number = function(s, l) (l * s.scale_factor):backward() end,
      made = function(s, l) (l * amp.tensor(s:get_scale())):backward() end,
      initial = function(_, l) (l * 8):backward() end,
      swapped = function(_, l) (8 * l):backward() end,
      dy = function(s, l) l:backward(s:scale_tensor()) end,
      dy_number = function(s, l) l:backward(amp.tensor(s.scale_factor)) end,
      list = function(s, l) amp.backward({ l }, { grad_tensors = { s:scale_tensor() } }) end,
    }
    for name, way in pairs(ways) do
      local p, scaler = leaf(1, 2), amp.GradScaler { init_scale = 8 }
      way(scaler, p:sum())
      scaler:step(sgd(p)):update()
      assert.same({ 0.5, 1.5 }, p:tolist(), name)
    end
  end)
  it('means nothing to a scaler that is disabled', function()
    local p = leaf(1, 2)
    local opt, scaler = sgd(p), amp.GradScaler { enabled = false }
    p:sum():backward()
    scaler:unscale_(opt):unscale { p }
    scaler:step(opt):update()
    assert.same({ 0.5, 1.5 }, p:tolist())
  end)
end)

describe('a loss times a number', function()
  local function step(f)
    local p, scaler = leaf(1, 2), amp.GradScaler()
    f(p:sum(), scaler):backward()
    scaler:step(sgd(p)):update()
    return p
  end
  it('that is no scale of any scaler counts as not scaled, however large it is', function()
    for _, n in ipairs { 100, 65535, 65537, 3 * 65536, 1e9, -65536, 0.5, 1 } do
      refused('is that of a loss that was not scaled', step, function(l) return l * n end)
    end
    refused('is that of a loss that was not scaled', step, function(l) return (l * 100) * 50 end)
    amp.GradScaler { init_scale = 1 }
    refused('is that of a loss that was not scaled', step, function(l) return l * 1 end)
  end)
  it('that is the scale is unscaled by that number, be the scale another one by now', function()
    assert.same({ 0.5, 1.5 }, step(function(l) return l * 65536 end):tolist())
    assert.same({ 0.5, 1.5 }, step(function(l, s)
      local k = s.scale_factor
      s.scale_factor = 1024
      return l * k
    end):tolist())
    local p, scaler = leaf(1, 2), amp.GradScaler { init_scale = 32 }
    for _ = 1, 2 do
      (p:sum() * 0.5 * 32):backward()
      scaler:update(scaler.scale_factor / 2)
    end
    scaler:step(sgd(p)):update()
    assert.same({ 0.5, 1.5 }, p:tolist())
  end)
  it('is taken by a step without a scaler: it is the user\'s own', function()
    local p = leaf(1, 2)
    amp.GradScaler { init_scale = 2 };
    (p:sum() * 2):backward()
    sgd(p):step()
    assert.same({ 0, 1 }, p:tolist())
  end)
  it('after the gradients were unscaled is an error', function()
    local p, scaler = leaf(1, 2), amp.GradScaler()
    local opt = sgd(p)
    scaler:scale(p:sum()):backward()
    scaler:unscale_(opt);
    (p:sum() * 65536):backward()
    refused('after it was unscaled', scaler.step, scaler, opt)
  end)
  it('of infinity is skipped as an overflow', function()
    local p, scaler = leaf(1, 2), amp.GradScaler();
    (p:sum() * INF):backward()
    scaler:step(sgd(p)):update()
    assert.same({ 1, 2 }, p:tolist())
    assert.equal(32768, scaler.scale_factor)
  end)
end)

describe('gradients of two scales', function()
  local ways = {
    set = function(s) s:update(16) return s end,
    assigned = function(s) s.scale_factor = 16 return s end,
    loaded = function(s) s:load_state_dict(amp.GradScaler { init_scale = 16 }:state_dict()) return s end,
    other = function() return amp.GradScaler { init_scale = 16 } end,
    grown = function(s)
      local q = leaf(1)
      s:scale(q:sum()):backward()
      s:step(sgd(q)):update()
      return s
    end,
    overflow = function(s)
      local q = leaf(1)
      s:scale((q * INF):sum()):backward()
      s:step(sgd(q)):update()
      return s
    end,
  }
  local uses = {
    plain = function(s, p, k) s:scale((p * k):sum()):backward() end,
    read = function(s, p, k) s:scale((p * k):sum()):backward() assert(p.grad) end,
    halves = function(s, p, k)
      amp.autocast({ dtype = 'float16' }, function() s:scale((p:reshape(1, 2):matmul(amp.full({ 2, 1 }, k))):sum()):backward() end)
    end,
    dy = function(s, p, k) (p * k):sum():backward(s:scale_tensor()) end,
    number = function(s, p, k) ((p * k):sum() * s.scale_factor):backward() end,
    graph = function(s, p, k) s:scale((p * k):sum()):backward(nil, { create_graph = true }) end,
    manager = function(s, p, k)
      local gm = amp.GradManager():attach(p)
      gm:record(function() s:backward(gm, { (p * k):sum() }, { dy = { 1 }, unscale_grad = false }) end)
    end,
  }
  it('sum to the right value, whoever steps', function()
    for way, change in pairs(ways) do
      for use, backward in pairs(uses) do
        for _, last in ipairs { true, false } do
          local p, first = leaf(1, 2), amp.GradScaler { init_scale = 1024, growth_interval = 1 }
          backward(first, p, 1)
          local second = change(first)
          backward(second, p, 3)
          local scaler = last and second or first
          scaler:step(sgd(p)):update()
          assert.same({ 1 - 0.5 * 4, 2 - 0.5 * 4 }, p:tolist(), way .. ' ' .. use)
        end
      end
    end
  end)
  it('are unscaled each by its own where the scale changed, or another scaler steps', function()
    for way, change in pairs(ways) do
      for use, backward in pairs(uses) do
        local p, q, first = leaf(1, 2), leaf(1, 2), amp.GradScaler { init_scale = 1024, growth_interval = 1 }
        backward(first, p, 1)
        local second = change(first)
        backward(second, q, 1)
        second:step(sgd(p, q)):update()
        assert.same({ 0.5, 1.5 }, p:tolist(), way .. ' ' .. use)
        assert.same({ 0.5, 1.5 }, q:tolist(), way .. ' ' .. use)
      end
    end
  end)
  it('sum to the right value under amp.unscale of a list, clipping, user\'s optimizers and those that unscale by themselves', function()
    local p, q, scaler = leaf(1, 2), leaf(1, 2), amp.GradScaler { init_scale = 8 }
    local function backward()
      scaler:scale(p:sum()):backward()
      scaler:update(32)
      scaler:scale(p:sum() + q:sum()):backward()
    end
    backward()
    scaler:unscale { p, q }
    assert.same({ { 2, 2 }, { 1, 1 } }, { p.grad:tolist(), q.grad:tolist() })
    p.grad, q.grad = nil, nil
    scaler:update()
    backward()
    local seen
    local own = { param_groups = { { params = { p, q } } }, step = function() seen = { p.grad:tolist(), q.grad:tolist() } end }
    scaler:step(own):update()
    assert.same({ { 2, 2 }, { 1, 1 } }, seen)
    p.grad, q.grad = nil, nil
    backward()
    own.step_supports_amp_scaling = true
    own.step = function(self)
      local k = self.grad_scale:item()
      seen = { (p.grad / k):tolist(), q.grad and (q.grad / k):tolist() }
    end
    scaler:step(own):update()
    assert.same({ { 2, 2 }, { 1, 1 } }, seen)
    p.grad, q.grad = nil, nil
    scaler:scale(p:sum()):backward()
    scaler:update(2)
    scaler:step(own)
    assert.same({ 1, 1 }, seen[1])
  end)
  it('keep an overflow', function()
    local p, scaler = leaf(1, 2), amp.GradScaler { init_scale = 8 }
    scaler:scale((p * INF):sum()):backward()
    scaler:update(16)
    scaler:scale(p:sum()):backward()
    scaler:step(sgd(p)):update()
    assert.same({ 1, 2 }, p:tolist())
    assert.equal(8, scaler.scale_factor)
  end)
  it('in one backward are told apart, and are an error where they met before the parameter', function()
    local p, a, b = leaf(1, 2), amp.GradScaler { init_scale = 8 }, amp.GradScaler { init_scale = 16 }
    local loss = (p * 1):sum()
    refused('losses with different scales meet in one backward: call backward for each', function() (a:scale(loss) + b:scale(loss)):backward() end)
    p.grad = nil;
    (a:scale(p:sum()) + b:scale(p:sum())):backward()
    b:step(sgd(p)):update()
    assert.same({ 0, 1 }, p:tolist())
    p = leaf(1, 2)
    local q = leaf(1, 2)
    amp.backward { a:scale(p:sum()), b:scale(q:sum()) }
    a:step(sgd(p, q))
    assert.same({ { 0.5, 1.5 }, { 0.5, 1.5 } }, { p:tolist(), q:tolist() })
  end)
  it('of masters at O2 are those of the last block', function()
    local net = nn.Linear(2, 1, { bias = false })
    local opt = sgd(net.weight)
    amp.initialize(net, opt, { opt_level = 'O2', verbosity = 0, num_losses = 2, max_loss_scale = 1024 })
    local before = amp.master_params(opt)[1]:tolist()[1]
    amp.scale_loss(net(amp.ones(1, 2)):sum(), opt, { loss_id = 1 }, function(s) s:backward() end)
    amp.scale_loss(net(amp.ones(1, 2)):sum(), opt, { loss_id = 2 }, function(s) s:backward() end)
    opt:step()
    for i = 1, 2 do assert.near(before[i] - 1, amp.master_params(opt)[1]:tolist()[1][i], 1e-5) end
    amp.deactivate()
  end)
end)

describe('gradients that were unscaled in an iteration before', function()
  it('step as they are where nothing came since: they are not divided again', function()
    for name, first in pairs {
      step = function() end,
      unscale_ = function(s, o) s:unscale_(o) end,
      clip = function(s, o, p) s:unscale_(o) nn.utils.clip_grad_norm_({ p }, 100) end,
      list = function(s, _, p) s:unscale { p } end,
      penalty = function(s, o, p) s:unscale_(o) p:sum():backward() end,
      read = function(s, o, p) s:unscale_(o) assert(p.grad) end,
    } do
      local p, scaler = leaf(1, 2), amp.GradScaler()
      local opt = sgd(p)
      scaler:scale(p:sum()):backward()
      first(scaler, opt, p)
      local g = name == 'penalty' and 2 or 1
      for i = 1, 3 do
        scaler:step(opt):update()
        assert.same({ 1 - 0.5 * g * i, 2 - 0.5 * g * i }, p:tolist(), name)
        if i == 2 then scaler:unscale_(opt) end
      end
    end
  end)
  it('and got a plain gradient since step as that sum', function()
    local p, scaler = leaf(1, 2), amp.GradScaler()
    local opt = sgd(p)
    scaler:scale(p:sum()):backward()
    scaler:step(opt):update()
    p:sum():backward()
    scaler:step(opt):update()
    assert.same({ -0.5, 0.5 }, p:tolist())
  end)
  it('are refused by an optimizer that unscales by itself', function()
    local p, scaler = leaf(1, 2), amp.GradScaler()
    local own = { name = 'mine', step_supports_amp_scaling = true, param_groups = { { params = { p } } }, step = function() end }
    scaler:scale(p:sum()):backward()
    scaler:unscale { p }
    scaler:update()
    refused("parameter 1 %(float32 2%) of optimizer 'mine' was unscaled in an earlier step.*clear gradients", scaler.step, scaler, own)
  end)
end)

describe('a sum of a scaled loss\'s gradient and of one that is not scaled', function()
  it('is an error at the scaler\'s step, in either order, in one backward or two', function()
    local ways = {
      first = function(s, p) p:sum():backward(); s:scale(p:sum()):backward() end,
      second = function(s, p) s:scale(p:sum()):backward(); p:sum():backward() end,
      one_loss = function(s, p) (s:scale(p:sum()) + (p * p):sum()):backward() end,
      roots = function(s, p) amp.backward { s:scale(p:sum()), p:sum() } end,
      other = function(s, p) amp.GradScaler { enabled = false }:scale(p:sum()):backward(); s:scale(p:sum()):backward() end,
    }
    for name, way in pairs(ways) do
      local p, scaler = leaf(1, 2), amp.GradScaler()
      way(scaler, p)
      local ok, e = pcall(scaler.step, scaler, sgd(p))
      assert.is_false(ok, name)
      assert.matches('is the sum of a scaled loss\'s and of one that was not scaled: scale each loss', tostring(e), name)
      assert.same({ 1, 2 }, p:tolist(), name)
    end
  end)
  it('is one at the optimizer\'s own step as well', function()
    local p, scaler = leaf(1, 2), amp.GradScaler()
    scaler:scale(p:sum()):backward()
    p:sum():backward()
    local opt = sgd(p)
    refused('is the sum of a scaled loss', opt.step, opt)
  end)
  it('may be made of what was unscaled: a penalty added between unscale_ and step', function()
    local p, scaler = leaf(1, 2), amp.GradScaler()
    local opt = sgd(p)
    scaler:scale(p:sum()):backward()
    scaler:unscale_(opt)
    p:sum():backward()
    scaler:step(opt):update()
    assert.same({ 0, 1 }, p:tolist())
  end)
end)

describe('a scaled backward after unscaling', function()
  it('makes scaler:step an error that says when to unscale; update begins anew', function()
    local p, scaler = leaf(1, 2), amp.GradScaler()
    local opt = sgd(p)
    for _, between in ipairs { function() end, function() nn.utils.clip_grad_norm_({ p }, 1) end, function() p.grad:mul_(0.5) end } do
      scaler:scale(p:sum()):backward()
      scaler:unscale_(opt)
      between()
      scaler:scale(p:sum()):backward()
      refused('after it was unscaled: call unscale_%(%) once, after the last backward of a step; to begin anew, update%(%)', scaler.step, scaler, opt)
      assert.same({ 1, 2 }, p:tolist())
      scaler:update()
      opt:clear_grad()
    end
    scaler:scale(p:sum()):backward()
    scaler:unscale_(opt)
    scaler:step(opt):update()
    assert.same({ 0.5, 1.5 }, p:tolist())
  end)
  it('is found after unscale of a list, and where gradients of the last step were not cleared', function()
    local p, scaler = leaf(1, 2), amp.GradScaler()
    local opt = sgd(p)
    scaler:scale(p:sum()):backward()
    scaler:unscale { p }
    scaler:scale(p:sum()):backward()
    refused('is the sum of a scaled loss', opt.step, opt)
    refused('was unscaled before, and that of a scaled loss was added to it: clear gradients after each step', scaler.step, scaler, opt)
    scaler:update()
    opt:clear_grad()
    scaler:scale(p:sum()):backward()
    scaler:step(opt):update()
    scaler:scale(p:sum()):backward()
    refused('was unscaled before', scaler.step, scaler, opt)
  end)
  it('is fine where gradients became zeros in between', function()
    for _, clear in ipairs { function(p) p.grad:zero_() end, function(_, o) o:zero_grad { set_to_none = false } end } do
      local p, scaler = leaf(1, 2), amp.GradScaler()
      local opt = sgd(p)
      for _ = 1, 2 do
        scaler:scale(p:sum()):backward()
        scaler:step(opt):update()
        clear(p, opt)
      end
      assert.same({ 0, 1 }, p:tolist())
    end
  end)
end)

describe('an optimizer\'s own step', function()
  it('of gradients that carry a scale is an error that names scaler:step', function()
    local p, scaler = leaf(1, 2), amp.GradScaler()
    for name, opt in pairs { SGD = sgd(p), LARC = amp.optim.LARC(sgd(p)), AdamW = amp.optim.AdamW({ p }, { name = 'mine' }) } do
      p.grad = nil
      scaler:scale(p:sum()):backward()
      local ok, e = pcall(opt.step, opt)
      assert.is_false(ok, name)
      assert.matches("parameter 1 %(float32 2%) of optimizer 'mine' is that of a scaled loss and was not unscaled: step with scaler:step%(opt%)",
        tostring(e), name)
      assert.same({ 1, 2 }, p:tolist(), name)
    end
    refused('LBFGS stands under no scaler', function()
      amp.optim.LBFGS({ p }, {}):step(function()
        p.grad = nil
        local loss = (p * p):sum()
        scaler:scale(loss):backward()
        return loss
      end)
    end)
  end)
  it('is fine once they were unscaled, by a scaler or by hand', function()
    local p = leaf(1, 2)
    for _, unscale in ipairs { function(s) s:unscale { p } end, function(s) p.grad:div_(s.scale_factor) end,
      function(s) p.grad = p.grad / s.scale_factor end } do
      local q, scaler = p:tolist(), amp.GradScaler()
      scaler:scale(p:sum()):backward()
      unscale(scaler)
      sgd(p):step():clear_grad()
      assert.same({ q[1] - 0.5, q[2] - 0.5 }, p:tolist())
    end
  end)
  it('of the automatic gear with unscale_grad = false is one, and of the usual gear is not', function()
    local p, scaler, gm = leaf(1, 2), amp.GradScaler(), amp.GradManager()
    gm:attach(p)
    local opt = sgd(p)
    gm:record(function() scaler:backward(gm, p:sum(), { unscale_grad = false }) end)
    refused('not unscaled', opt.step, opt)
    opt:clear_grad()
    gm:record(function() scaler:backward(gm, p:sum()) end)
    opt:step():clear_grad()
    assert.same({ 0.5, 1.5 }, p:tolist())
    gm:record(function() gm:backward(p:sum()) end)
    refused('not scaled', scaler.unscale, scaler, gm:attached_tensors())
  end)
end)

--- amp.init: its handle, wrapped optimizers, lists of ops.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local scaling = require 'spec.precision.scaling'
local F = amp.nn.functional
local eq, param, sgd = scaling.eq, scaling.param, scaling.sgd
local INF = math.huge

local function back(s) s:backward() end

-- Run fn(handle) under amp.init{...}; whatever happens, it is undone.
local function under(o, fn)
  local handle = amp.init(o)
  local ok, e = pcall(fn, handle)
  amp.deactivate()
  if not ok then error(e, 0) end
end

local function has(list, name)
  for _, v in ipairs(list) do
    if v == name then return true end
  end
  return false
end

describe('amp.init', function()
  it('turns autocast on for the whole program, coroutines included', function()
    local x, w = amp.randn(2, 2), amp.randn(2, 2)
    under(nil, function(handle)
      assert.is_true(handle:is_active())
      assert.is_true(amp.is_autocast_enabled() and amp.enabled)
      assert.equal(amp.get_autocast_dtype(), amp.matmul(x, w).dtype)
      assert.equal('bfloat16', coroutine.wrap(function() return amp.matmul(x, w).dtype end)())
      assert.equal('float32', amp.autocast({ enabled = false }, amp.matmul, x, w).dtype)
      assert.equal('float16', amp.autocast({ dtype = 'float16' }, amp.matmul, x, w).dtype)
      assert.equal('bfloat16', amp.matmul(x, w).dtype)
    end)
    assert.equal('float32', amp.matmul(x, w).dtype)
  end)
  it('after a model is made it takes effect as well', function()
    local net = amp.nn.Linear(2, 2)
    assert.equal('float32', net(amp.randn(1, 2)).dtype)
    under({}, function() assert.equal('bfloat16', net(amp.randn(1, 2)).dtype) end)
  end)
  it('target_dtype', function()
    under({ target_dtype = 'float16' }, function() assert.equal('float16', amp.matmul(amp.randn(2, 2), amp.randn(2, 2)).dtype) end)
  end)
  it('deactivate undoes it: autocast, allow_banned, the classes of listed ops', function()
    local handle = amp.init { allow_banned = true, target_dtype = 'float16', fp32_ops = { 'gelu' } }
    local p, y = amp.tensor { 0.5 }, amp.tensor { 1 }
    assert.equal('float32', F.binary_cross_entropy(p:half(), y).dtype)
    assert.equal('fp32', amp.policy 'gelu')
    handle:deactivate()
    assert.is_false(handle:is_active() or amp.is_autocast_enabled())
    assert.equal('passthrough', amp.policy 'gelu')
    H.fails(function() amp.autocast({ dtype = 'float16' }, F.binary_cross_entropy, p, y) end, 'bce_with_logits')
    handle:deactivate() -- harmless
    amp.enabled = true -- what was on before is on again
    amp.init():deactivate()
    assert.is_true(amp.enabled)
    amp.enabled = false
  end)
  it('a banned op raises unless allow_banned', function()
    local p, y = amp.tensor { 0.5 }, amp.tensor { 1 }
    under({ target_dtype = 'float16' }, function() H.fails(function() F.binary_cross_entropy(p, y) end, 'bce_with_logits') end)
    under({ target_dtype = 'float16', allow_banned = true }, function() assert.equal('float32', F.binary_cross_entropy(p, y).dtype) end)
  end)
  it('a second init replaces the first, and so does amp.initialize', function()
    local a = amp.init { fp32_ops = { 'gelu' } }
    local b = amp.init { target_dtype = 'float16' }
    assert.is_true(b:is_active() and not a:is_active())
    assert.equal('passthrough', amp.policy 'gelu')
    assert.equal('float16', amp.get_autocast_dtype())
    a:deactivate() -- not its business any more
    assert.is_true(b:is_active())
    amp.initialize(amp.nn.Linear(2, 2), nil, { opt_level = 'O2', verbosity = 0 })
    assert.is_false(b:is_active() or amp.is_autocast_enabled())
    amp.deactivate()
    assert.equal('bfloat16', amp.get_autocast_dtype())
  end)
  it('enable_caching: one cast a weight and version, or one a use', function()
    local w, x = amp.randn(3, 3, { requires_grad = true }), amp.randn(2, 3)
    for _, caching in ipairs { true, false } do
      under({ enable_caching = caching }, function(handle)
        local before = amp.counters().casts
        for _ = 1, 5 do amp.matmul(x:bfloat16(), w) end
        assert.equal(caching and 1 or 5, amp.counters().casts - before)
        if caching then
          handle:clear_cache()
          amp.matmul(x:bfloat16(), w)
          assert.equal(2, amp.counters().casts - before)
        end
      end)
    end
  end)
  it('verbose prints each cast', function()
    local lines, old = {}, rawget(amp, 'write_log')
    amp.write_log = function(line) lines[#lines + 1] = line end
    under({ verbose = true }, function() amp.mm(amp.randn(2, 3), amp.randn(3, 4)) end)
    amp.write_log = old
    assert.equal(2, #lines)
    assert.is_true(lines[1]:find('mm', 1, true) ~= nil and lines[1]:find('2x3', 1, true) ~= nil, lines[1])
  end)
  it('registered functions take effect at once, whenever registered', function()
    local module = { f = function(x) return x end }
    under(nil, function()
      assert.equal('float32', module.f(amp.ones(1)).dtype)
      amp.register_half_function(module, 'f')
      assert.equal('bfloat16', module.f(amp.ones(1)).dtype)
    end)
    assert.equal('float32', module.f(amp.ones(1)).dtype)
  end)
  it('wrong options are named', function()
    H.fails_here(function() amp.init { enable = true } end, 'enable', 'enabled')
    H.fails_here(function() amp.init { loss_scale = 'big' } end, 'loss_scale', 'dynamic')
    H.fails_here(function() amp.init { target_dtype = 'float32' } end, 'target_dtype', 'bfloat16')
    H.fails_here(function() amp.init { verbose = 1 } end, 'verbose')
    H.fails_here(function() amp.init(3) end, 'table')
    assert.is_false(amp.is_autocast_enabled())
  end)
end)

describe('a disabled handle', function()
  it('has the same methods and does nothing', function()
    local handle = amp.init { enabled = false }
    assert.is_false(handle:is_active() or amp.is_autocast_enabled())
    local p = param { 1, 2 }
    local o = sgd(p)
    local loss = (p * 0.5):sum()
    assert.equal(7, handle:scale_loss(loss, o, function(s)
      assert.is_true(s == loss)
      s:backward()
      return 7
    end))
    local w = handle:wrap_optimizer(o, { num_loss = 2 })
    w:scale_loss((p * 0.5):sum(), back)
    w:step()
    eq(p:detach(), { 0, 1 })
    handle:clear_cache()
    handle:deactivate()
  end)
end)

describe('handle:scale_loss', function()
  it('scales, unscales, and skips the step after an overflow', function()
    under({ loss_scale = 'dynamic' }, function(handle)
      local p = param { 1 }
      local o = sgd(p)
      for i, g in ipairs { 0.5, INF, 0.25 } do
        local r = handle:scale_loss((p * g):sum(), o, function(s)
          if i == 1 then assert.equal(0.5 * 65536, s:item()) end
          s:backward()
          return i
        end)
        assert.equal(i, r)
        o:step()
        o:zero_grad()
      end
      eq(p:detach(), { 0.25 })
      assert.same({ loss_scaler1 = { loss_scale = 32768, unskipped = 1 } }, amp.state_dict())
    end)
  end)
  it('a number is a static scale', function()
    under({ loss_scale = 128 }, function(handle)
      local p = param { 1 }
      handle:scale_loss(p:sum(), sgd(p), function(s) assert.equal(128, s:item()) end)
    end)
  end)
  it('blocks accumulate; several optimizers', function()
    under({}, function(handle)
      local p, q = param { 1 }, param { 1 }
      local a, b = sgd(p), sgd(q)
      handle:scale_loss((p * 0.25):sum(), a, back)
      handle:scale_loss((p * 0.25 + q * 0.5):sum(), { a, b }, back)
      a:step()
      b:step()
      eq(p:detach(), { 0.5 })
      eq(q:detach(), { 0.5 })
    end)
  end)
  it('errors and coroutines leave it as it was', function()
    under({}, function(handle)
      local p = param { 1 }
      local o = sgd(p)
      H.fails(function()
        handle:scale_loss((p * 0.25):sum(), o, function(s)
          s:backward()
          error 'mine'
        end)
      end, 'mine')
      assert.is_nil(p.grad)
      assert.is_true(amp.is_autocast_enabled())
      H.fails_here(function() handle:scale_loss(3, o, back) end, 'loss')
      H.fails_here(function() handle:scale_loss(p:sum(), o) end, 'function')
      H.fails_here(function() handle:scale_loss(p:sum(), {}, back) end, 'optimizer')
    end)
  end)
  it('amp.scale_loss without amp.initialize says what there is', function()
    under({}, function()
      local p = param { 1 }
      H.fails_here(function() amp.scale_loss(p:sum(), sgd(p), back) end, 'handle:scale_loss', 'amp.initialize', 'init_trainer')
    end)
  end)
end)

describe('handle:wrap_optimizer', function()
  it('one scaler a loss; a step is skipped if any overflowed', function()
    under({}, function(handle)
      local p = param { 1 }
      local w = handle:wrap_optimizer(sgd(p), { num_loss = 2 })
      for _, g in ipairs { { 0.25, 0.25 }, { 0.5, INF }, { INF, 0.5 }, { 0.125, 0.125 } } do
        for i = 1, 2 do
          assert.equal(i, w:scale_loss((p * g[i]):sum(), function(s)
            s:backward()
            return i
          end))
        end
        w:step():zero_grad()
      end
      eq(p:detach(), { 0.25 })
      assert.same({ loss_scaler1 = { loss_scale = 32768, unskipped = 1 }, loss_scaler2 = { loss_scale = 32768, unskipped = 2 } }, amp.state_dict())
    end)
  end)
  it('must be entered num_loss times per step', function()
    under({}, function(handle)
      local p = param { 1 }
      local w = handle:wrap_optimizer(sgd(p), { num_loss = 2 })
      H.fails_here(function() w:step() end, '0 times', 'num_loss = 2')
      w:scale_loss((p * 0.25):sum(), back)
      H.fails_here(function() w:step() end, '1 time', 'num_loss = 2')
      w:scale_loss((p * 0.25):sum(), back)
      H.fails_here(function() w:scale_loss(p:sum(), back) end, 'num_loss = 2')
      w:step()
      eq(p:detach(), { 0.5 })
    end)
  end)
  it('a block that fails was not entered', function()
    under({}, function(handle)
      local p = param { 1 }
      local w = handle:wrap_optimizer(sgd(p))
      H.fails(function() w:scale_loss(p:sum(), function() error 'mine' end) end, 'mine')
      w:scale_loss((p * 0.5):sum(), back)
      w:step()
      eq(p:detach(), { 0.5 })
      H.fails_here(function() w:step(function() end) end, 'closure')
    end)
  end)
  it('then handle:scale_loss is an error that names the wrapper', function()
    under({}, function(handle)
      local p = param { 1 }
      local o = amp.optim.SGD({ p }, { lr = 1, name = 'generator' })
      handle:wrap_optimizer(o)
      H.fails_here(function() handle:scale_loss(p:sum(), o, back) end, 'wrapper:scale_loss', 'generator')
    end)
  end)
  it('is the optimizer in all else', function()
    under({}, function(handle)
      local p = param { 1 }
      local o = sgd(p)
      local w = handle:wrap_optimizer(o)
      assert.is_true(w.param_groups == o.param_groups)
      w.param_groups[1].lr = 0.5
      assert.is_true(w:zero_grad() == w)
      w:scale_loss(p:sum() * 0.5, back)
      w:step()
      eq(p:detach(), { 0.75 })
      assert.is_true(amp.master_params(w)[1] == p)
      assert.equal('table', type(w:state_dict().param_groups))
      H.fails_here(function() handle:wrap_optimizer(o, { num_losses = 2 }) end, 'num_losses', 'num_loss')
      H.fails_here(function() handle:wrap_optimizer(o, { num_loss = 0 }) end, 'num_loss')
      H.fails_here(function() handle:wrap_optimizer(3) end, 'optimizer')
    end)
  end)
end)

describe('lists of ops', function()
  it('amp.init takes lists; the lists change and go back', function()
    under({ target_precision_ops = { 'exp' }, fp32_ops = { 'linear', 'gelu' } }, function()
      assert.equal('bfloat16', amp.exp(amp.ones(2)).dtype)
      assert.equal('float32', F.linear(amp.ones(1, 2):half(), amp.ones(2, 2)).dtype)
      assert.is_true(has(amp.list_lp16_ops(), 'exp') and has(amp.list_fp32_ops(), 'linear') and has(amp.list_fp32_ops(), 'gelu'))
    end)
    assert.equal('float32', amp.autocast(amp.exp, amp.ones(2)).dtype)
    assert.is_true(has(amp.list_fp32_ops(), 'exp') and has(amp.list_lp16_ops(), 'linear') and has(amp.list_lp16_fp32_ops(), 'gelu'))
  end)
  it('conditional ops are float32 where the value matches, else untouched', function()
    under({ conditional_fp32_ops = { { 'gelu', 'approximate', { 'tanh' } }, { 'leaky_relu', 'negative_slope', { 0.5, 0.25 } } } }, function()
      local x = amp.ones(2):bfloat16()
      assert.equal('float32', F.gelu(x, { approximate = 'tanh' }).dtype)
      assert.equal('bfloat16', F.gelu(x).dtype)
      assert.equal('float32', F.leaky_relu(x, 0.25).dtype)
      assert.equal('bfloat16', F.leaky_relu(x, 0.1).dtype)
      assert.equal('float32', F.gelu(amp.ones(2)).dtype)
      assert.same({ { 'gelu', 'approximate', { 'tanh' } }, { 'leaky_relu', 'negative_slope', { 0.5, 0.25 } } }, amp.list_conditional_fp32_ops())
    end)
    assert.equal('bfloat16', amp.autocast(F.gelu, amp.ones(2):bfloat16(), { approximate = 'tanh' }).dtype)
    assert.same({}, amp.list_conditional_fp32_ops())
  end)
  it('each op is in exactly one list', function()
    local function check()
      local seen = {}
      for _, list in ipairs { amp.list_lp16_ops(), amp.list_fp32_ops(), amp.list_lp16_fp32_ops(), amp.list_conditional_fp32_ops(),
        amp.list_widest_type_cast() } do
        for _, entry in ipairs(list) do
          local name = type(entry) == 'table' and entry[1] or entry
          assert.is_nil(seen[name], name)
          seen[name] = true
        end
      end
      for name in pairs(H.policy_list()) do
        if require('amp.ops.schema').by_name[name] then assert.is_true(seen[name], name) end
      end
    end
    check()
    under({ conditional_fp32_ops = { { 'softmax', 'dim', { 1 } } }, fp32_ops = { 'gelu' } }, check)
    assert.is_true(has(amp.list_lp16_ops(), 'conv2d') and has(amp.list_lp16_ops(), 'lstm') and has(amp.list_lp16_fp32_ops(), 'relu')
      and has(amp.list_lp16_fp32_ops(), 'batch_norm') and has(amp.list_fp32_ops(), 'softmax') and has(amp.list_widest_type_cast(), 'cat'))
  end)
  it('unknown and overlapping ones are errors; nothing changes', function()
    H.fails_here(function() amp.init { fp32_ops = { 'geluu' } } end, 'fp32_ops', 'geluu', 'gelu')
    H.fails_here(function() amp.init { fp32_ops = { 'gelu', 'gelu' } } end, 'gelu', 'twice')
    H.fails_here(function() amp.init { fp32_ops = { 'gelu' }, target_precision_ops = { 'gelu' } } end, 'gelu', 'fp32_ops', 'target_precision_ops')
    H.fails_here(function() amp.init { fp32_ops = { 'gelu' }, conditional_fp32_ops = { { 'gelu', 'approximate', { 'tanh' } } } } end, 'gelu', 'one list')
    H.fails_here(function() amp.init { fp32_ops = 'gelu' } end, 'fp32_ops', 'list')
    H.fails_here(function() amp.init { conditional_fp32_ops = { 'gelu' } } end, 'conditional_fp32_ops[1]', 'attribute')
    H.fails_here(function() amp.init { conditional_fp32_ops = { { 'gelu', 'approx', { 'tanh' } } } } end, 'approx', 'approximate')
    H.fails_here(function() amp.init { conditional_fp32_ops = { { 'gelu', 'approximate', { 'tan' } } } } end, 'tan', 'tanh')
    H.fails_here(function() amp.init { conditional_fp32_ops = { { 'gelo', 'approximate', { 'tanh' } } } } end, 'gelo')
    assert.equal('passthrough', amp.policy 'gelu')
    assert.is_false(amp.is_autocast_enabled())
  end)
end)

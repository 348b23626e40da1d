--- Options in other systems' places and spellings, and ops by other systems' names: honoured where they
-- mean something here, else an error that says what to write.
local amp = require 'amp'
local nn, F = amp.nn, amp.nn.functional
local H = require 'spec.lib.helper'

local function product() return amp.ones(2, 2):mm(amp.ones(2, 2)).dtype end
local function leaf(...) return amp.tensor({ ... }, { requires_grad = true }) end

describe('options behind a function', function()
  it('are the region\'s: amp.autocast and wrap take both orders, with arguments', function()
    assert.equal('float16', amp.autocast(product, { dtype = 'float16' }))
    assert.equal('float32', amp.autocast(product, { enabled = false }))
    assert.equal('float16', amp.autocast.wrap(product, { dtype = 'float16' })())
    assert.same({ 'float16', 1, 2 }, { amp.autocast(function(a, b) return product(), a, b end, { dtype = 'float16' }, 1, 2) })
    assert.same({ 'float16', 1, 2 }, { amp.autocast({ dtype = 'float16' }, function(a, b) return product(), a, b end, 1, 2) })
  end)
  it('may stand behind a device, as in PyTorch', function()
    assert.equal('float16', amp.autocast('cpu', { dtype = 'float16' }, product))
    assert.equal('float16', amp.autocast('cpu', product, { dtype = 'float16' }))
    assert.same({ 'bfloat16', 1 }, { amp.autocast('cpu', function(a) return product(), a end, 1) })
    assert.equal('float16', amp.autocast.wrap('cpu', product, { dtype = 'float16' })())
    assert.equal('float16', amp.autocast.wrap('cpu', { dtype = 'float16' }, product)())
    assert.equal('bfloat16', amp.autocast.wrap('cpu', product)())
    H.fails_here(function() local v = amp.autocast('cpu', { device = 'cpu' }, product) return v end, 'given twice')
    H.fails_here(function() local v = amp.autocast('gpu', product) return v end, "'gpu'")
  end)
  it('are the function\'s argument where a key is no option, empty, or somebody\'s object', function()
    for _, t in ipairs { {}, { dtype = 'float16', size = 3 }, { 1, 2 }, setmetatable({ dtype = 'float16' }, {}) } do
      local got, dtype = amp.autocast(function(x) return x, product() end, t)
      assert.equal(t, got)
      assert.equal('bfloat16', dtype)
    end
  end)
  it('with a wrong key are an error where the function takes no argument', function()
    H.fails_here(function() amp.autocast(function() return 1 end, { dtpye = 'float16' }) end, "'dtpye'", "'dtype'")
    H.fails_here(function() amp.autocast({ dtpye = 'float16' }, function() return 1 end) end, "'dtpye'", "'dtype'")
  end)
  it('are those of detect_anomaly, doctor, profile, scale_loss and checkpoint as well', function()
    local net = nn.Linear(2, 2)
    assert.equal(3, amp.detect_anomaly(function(x) return x + 1 end, { net = net }, 2))
    assert.equal(3, amp.detect_anomaly({ net = net }, function(x) return x + 1 end, 2))
    assert.equal(1, amp.doctor(function() end, { steps = 1, print = false }).steps)
    assert.equal(1, amp.doctor({ steps = 1, print = false }, function() end).steps)
    assert.equal('line', amp.profile(function() end, { by = 'line' }).by)
    assert.equal('line', amp.profile({ by = 'line' }, function() end).by)
    local p = leaf(1, 2)
    local function f(x, extra) return (x * p):sum() + (extra or 0) end
    amp.checkpoint(f, amp.ones(2), { use_reentrant = false }):backward()
    amp.checkpoint(f, { use_reentrant = false, preserve_rng_state = true }, amp.ones(2), 1):backward()
    assert.same({ 2, 2 }, p.grad:tolist())
    H.fails_here(function() amp.checkpoint(f, amp.ones(2), { use_reentrant = 1 }) end, 'use_reentrant', 'true or false')
    local opt = amp.optim.SGD(net:parameters(), { lr = 0.1 })
    amp.initialize(net, opt, { verbosity = 0 })
    amp.scale_loss(net(amp.ones(1, 2)):sum(), opt, function(s) s:backward() end, { delay_unscale = true })
    H.fails_here(function() opt:step() end, 'delay_unscale')
    amp.scale_loss(net(amp.ones(1, 2)):sum(), opt, { delay_unscale = false }, function(s) s:backward() end)
    opt:step()
    H.fails_here(function() amp.scale_loss(net(amp.ones(1, 2)):sum(), opt, function() end, { loss = 1 }) end, "'loss'", 'loss_id')
    amp.deactivate()
  end)
end)

describe('other systems\' spellings of options', function()
  it('are taken where they mean the same', function()
    assert.equal('float16', amp.autocast({ device_type = 'cpu', low_prec_type = 'float16' }, product))
    assert.equal(8, amp.GradScaler { init_loss_scale = 8 }.scale_factor)
    assert.equal(3, amp.GradScaler { scale_window = 3 }.growth_interval)
    local handle = amp.init { target_dtype = 'float16', target_dtype_ops = { 'conv2d' } }
    assert.equal('float32', product())
    handle:deactivate()
    local p = leaf(1, 2)
    amp.backward({ p * 2 }, { head_grads = { amp.ones(2) }, retain_variables = true })
    assert.same({ 2, 2 }, p.grad:tolist())
  end)
  it('are an error that names ours where they are near, or the reason where there is none', function()
    local p = leaf(1)
    local cases = {
      { function() amp.GradScaler { loss_scale = 8 } end, "here it is 'init_scale'" },
      { function() amp.GradScaler { dynamic = true } end, "here it is 'growth_interval'" },
      { function() amp.init { dtype = 'float16' } end, "here it is 'target_dtype'" },
      { function() amp.init { cache_enabled = false } end, "here it is 'enable_caching'" },
      { function() amp.initialize(nn.Linear(1, 1), nil, { patch_torch_functions = true }) end, "here it is 'opt_level'" },
      { function() amp.initialize(nn.Linear(1, 1), nil, { num_loss = 2 }) end, "here it is 'num_losses'" },
      { function() amp.autocast({ cache = false }, product) end, "here it is 'cache_enabled'" },
      { function() amp.autocast({ high_prec_type = 'float32' }, product) end, 'leave it out: the other ops of a region run in float32' },
      { function() amp.backward({ p * 2 }, { grad_outputs = { amp.ones(1) } }) end, "here it is 'grad_tensors'" },
      { function() amp.grad(p * 2, p, { grad_tensors = { amp.ones(1) } }) end, "here it is 'grad_outputs'" },
      { function() amp.backward({ p * 2 }, { train_mode = true }) end, 'leave it out' },
      { function() amp.doctor(function() end, { module = nn.Linear(1, 1) }) end, "here it is 'net'" },
      { function() amp.profile(function() end, { group_by = 'op' }) end, "here it is 'by'" },
      { function() nn.utils.clip_grad_norm_({ p }, 1, { foreach = true }) end, 'leave it out' },
    }
    for i, case in ipairs(cases) do
      local ok, e = pcall(case[1])
      assert.is_false(ok, 'case ' .. i)
      assert.is_truthy(tostring(e):find(case[2], 1, true), tostring(e))
    end
    H.fails_here(function() amp.autocast({ device = 'cpu', device_type = 'cpu' }, product) end, 'device')
    H.fails_here(function() amp.GradScaler { init_scale = 8, init_loss_scale = 8 } end, 'init_loss_scale', 'init_scale', 'one option')
  end)
  it('stand in the places that their calls have', function()
    assert.is_true(amp.GradScaler 'cuda':is_enabled())
    assert.is_true(amp.GradScaler { device = 'cuda' }:is_enabled())
    assert.is_false(amp.GradScaler('cpu', { enabled = false }):is_enabled())
    H.fails_here(function() amp.GradScaler 'cudda' end, "'cudda'")
    for _, given in ipairs { true, 'float16' } do
      local handle = amp.init(given)
      assert.is_true(handle:is_active())
      if given == 'float16' then assert.equal('float16', product()) end
      handle:deactivate()
    end
    assert.is_false(amp.init(false):is_active())
    local net = nn.Linear(2, 2)
    local opt = amp.optim.SGD(net:parameters(), { lr = 0.1 })
    amp.initialize(net, opt, 'O0')
    assert.equal('float32', product())
    amp.deactivate()
    amp.initialize(nn.Linear(2, 2), 'O1')
    assert.equal('bfloat16', product())
    amp.deactivate()
    local model = nn.Linear(2, 2)
    local m, o = amp.initialize(model, { optimizers = amp.optim.SGD(model:parameters(), { lr = 0.1 }), opt_level = 'O1', verbosity = 0 })
    assert.equal(model, m)
    assert.is_function(o.step)
    amp.deactivate()
    local handle = amp.init()
    local wrapped = handle:wrap_optimizer(amp.optim.SGD(net:parameters(), { lr = 0.1 }), 2)
    assert.equal(2, #wrapped._scalers)
    H.fails_here(function() handle.scale_loss(leaf(1), opt, function() end) end, 'handle:scale_loss', 'colon')
    H.fails_here(function() handle:clear_cach() end, "'clear_cach'", 'clear_cache')
    assert.equal(handle, handle:_clear_cache())
    handle:deactivate()
    net(amp.ones(1, 2)):sum():backward()
    assert.near(math.sqrt(6), nn.utils.clip_grad_norm_(net:parameters(), { max_norm = 0.1 }):item(), 1e-5)
    nn.utils.clip_grad_value_(net:parameters(), { clip_value = 0.01 })
    assert.near(0.01, net.bias.grad:abs():max():item(), 1e-6)
    local p = leaf(1, 2)
    amp.backward({ p * 2 }, { amp.ones(2) })
    amp.backward(p * 2, amp.ones(2))
    assert.same({ 4, 4 }, p.grad:tolist())
    assert.same({ 2, 2 }, amp.grad(p * 2, p, amp.ones(2))[1]:tolist())
    assert.same({ 2, 2 }, amp.grad(p * 2, p, { amp.ones(2) }, { retain_graph = false })[1]:tolist())
    local gm, scaler = amp.GradManager(), amp.GradScaler { init_scale = 4 }
    p.grad = nil
    gm:attach(p, { function(_, g) return g * 2 end, function(_, g) return g * 2 end })
    gm:record(function() scaler:backward(gm, p:sum(), amp.tensor(1), nil) end)
    assert.same({ 4, 4 }, p.grad:tolist())
    gm:record(function() scaler:backward(gm, p:sum(), { update_scale = 'if_unscale_grad' }) end)
    assert.same({ 8, 8 }, p.grad:tolist())
  end)
  it('of custom_fwd and custom_bwd take a device', function()
    local f = amp.Function {
      forward = amp.custom_fwd(function(_, x) return x * 1 end, { device_type = 'cuda', cast_inputs = 'float16' }),
      backward = amp.custom_bwd({ device_type = 'cuda' }, function(_, g) return g end),
    }
    assert.equal('float16', amp.autocast({ dtype = 'float16' }, function() return f(leaf(1)) end).dtype)
    H.fails_here(function() amp.custom_fwd(function() end, { device_type = 'gpu' }) end, "'gpu'")
  end)
end)

describe('what takes no options', function()
  it('says so, and Trainer:step knows MXNet\'s one', function()
    local p = leaf(1, 2)
    H.fails_here(function() amp.GradManager { p } end, 'takes no arguments', 'attach')
    local trainer = amp.optim.Trainer({ p }, 'sgd', { lr = 0.5 })
    p:sum():backward()
    trainer:step(1, { ignore_stale_grad = true })
    assert.same({ 0.5, 1.5 }, p:tolist())
    H.fails_here(function() trainer:step(1, { ignore_stale = true }) end, 'ignore_stale_grad')
  end)
end)

describe('amp.split_and_load', function()
  it('cuts a batch into a piece for each device', function()
    local x = amp.arange(6):view(3, 2)
    local list = amp.split_and_load(x, { 'cpu', 'cpu' }, { batch_axis = 2 })
    assert.same({ { { 0 }, { 2 }, { 4 } }, { { 1 }, { 3 }, { 5 } } }, { list[1]:tolist(), list[2]:tolist() })
    H.fails_here(function() amp.split_and_load(x, { 'cpu', 'cpu' }) end, 'size 3', '2 equal pieces', 'even_split = false')
    list = amp.split_and_load(x, { 'cpu', 'cpu' }, { even_split = false })
    assert.same({ { { 0, 1 } }, { { 2, 3 }, { 4, 5 } } }, { list[1]:tolist(), list[2]:tolist() })
    H.fails_here(function() amp.split_and_load(x, { 'cpu', 'gpu' }) end, "'gpu'")
    H.fails_here(function() amp.split_and_load(x, { 'cpu', 'cpu', 'cpu', 'cpu' }, { even_split = false }) end, 'no piece for each of 4')
    H.fails_here(function() amp.split_and_load({}, 'cpu') end, 'must be a tensor')
  end)
end)

describe('backward of several values', function()
  it('names the cures', function()
    local p = leaf(1, 2)
    for _, f in ipairs { function() (p * 2):backward() end, function() amp.backward { p * 2, p * 3 } end } do
      H.fails_here(f, 'shape 2', ':sum()', ':mean()', 'a gradient of its shape')
    end
  end)
end)

describe('ops by other systems\' names', function()
  local handle
  local function off() if handle then handle:deactivate() end handle = nil end
  it('have the class of the op, or the ops, that they mean', function()
    local want = { multi_dot = 'lower', binary_cross_entropy_with_logits = 'fp32', RNNCell = 'lower', concat = 'promote', upsample = 'fp32',
      Convolution = 'lower', Deconvolution = 'lower', FullyConnected = 'lower', convolution = 'lower', RNN = 'special', Concat = 'promote',
      LayerNorm = 'fp32', BatchNorm = 'special', CTCLoss = 'fp32', arccos = 'fp32', broadcast_add = 'passthrough', __matmul__ = 'lower',
      __rpow__ = 'fp32', ['torch.nn.functional.linear'] = 'lower', ger = 'passthrough', logsigmoid = 'fp32', Pooling = 'passthrough',
      linalg_vector_norm = 'fp32_unless_dtype', GRUCell = 'lower', Softmax = 'fp32_unless_dtype', relu_ = 'passthrough',
      AdaptiveAvgPool2d = 'passthrough', LPPool1d = 'fp32',
      ReflectionPad2d = 'passthrough', ['nn.Conv2d'] = 'lower', LSTM = 'special', split = 'passthrough',
      SliceChannel = 'passthrough', roi_align = 'fp32', ROIPooling = 'fp32', MultiBoxTarget = 'fp32', box_nms = 'passthrough',
      cmul = 'passthrough' }
    for name, class in pairs(want) do assert.equal(class, amp.policy(name), name) end
    H.fails_here(function() amp.policy 'Activation' end, 'several classes', 'softplus (fp32)', 'relu (passthrough)')
    H.fails_here(function() amp.policy 'Convolutoin' end, "'Convolution'")
    H.fails_here(function() amp.policy 'batch_norm_act' end, 'a part of other ops')
  end)
  it('every name of theirs leads to ops that there are', function()
    local names, n = require 'amp.ops.names', 0
    for alias, list in pairs(names.aliases) do
      n = n + 1
      assert.is_true(#list > 0, alias)
      for _, name in ipairs(list) do assert.is_not_nil(require('amp.ops.schema').by_name[name], alias) end
      assert.is_not_nil(names.find(alias), alias)
    end
    assert.is_true(n > 300, n .. ' names are known')
  end)
  it('of the policy list itself are found, each under its own name', function()
    for op, class in pairs((H.policy_list())) do
      if require('amp.ops.schema').by_name[op] then assert.equal(class, amp.policy(op), op) end
    end
  end)
  it('change what they mean: all of it', function()
    amp.set_policy('Convolution', 'fp32')
    local x, w = amp.ones(1, 1, 3, 3), amp.ones(1, 1, 3, 3)
    assert.equal('float32', amp.autocast(function() return F.conv2d(x, w) end).dtype)
    assert.equal('float32', amp.autocast(function() return nn.Conv1d(1, 1, 3)(amp.ones(1, 1, 3)) end).dtype)
    amp.reset_policy 'Convolution'
    assert.equal('bfloat16', amp.autocast(function() return F.conv2d(x, w) end).dtype)
  end)
  it('in the lists of init act', function()
    handle = amp.init { target_dtype = 'float16', fp32_ops = { 'Convolution', 'multi_dot', 'FullyConnected' } }
    assert.equal('float32', F.conv2d(amp.ones(1, 1, 3, 3), amp.ones(1, 1, 3, 3)).dtype)
    assert.equal('float32', nn.Linear(2, 2)(amp.ones(1, 2)).dtype)
    assert.equal('float32', nn.Sequential(nn.Linear(2, 2), nn.ReLU())(amp.ones(1, 2)).dtype)
    assert.equal('float32', amp.multi_dot({ amp.ones(2, 2), amp.ones(2, 2) }).dtype)
    off()
    H.fails_here(function() amp.init { fp32_ops = { 'Convolutoin' } } end, 'fp32_ops', "'Convolution'")
    H.fails_here(function() amp.init { fp32_ops = { 'Convolution' }, target_precision_ops = { 'conv2d' } } end, 'fp32_ops', 'target_precision_ops', 'conv2d')
    H.fails_here(function() amp.init { fp32_ops = { conv2d = true } } end, 'fp32_ops', "'conv2d'")
    assert.is_nil(require('amp.levels.program').current)
  end)
  it('with an attribute whose values are ops of their own here name these', function()
    handle = amp.init { target_dtype = 'float16', fp32_ops = {},
      conditional_fp32_ops = { { 'Activation', 'act_type', { 'softrelu' } }, { 'LeakyReLU', 'act_type', { 'elu' } } } }
    local h = amp.ones(2):half()
    assert.equal('float32', F.softplus(h).dtype)
    assert.equal('float32', F.elu(h).dtype)
    assert.equal('float16', F.selu(h).dtype)
    assert.same({ { 'Activation', 'act_type', { 'softrelu' } }, { 'LeakyReLU', 'act_type', { 'elu' } } }, amp.list_conditional_fp32_ops())
    off()
    H.fails_here(function() amp.init { conditional_fp32_ops = { { 'Activation', 'act_type', { 'softrelux' } } } } end, 'softrelux', 'softrelu')
  end)
end)

describe('a changed class of one of two ops that a GPU does in one kernel', function()
  it('acts: the two run apart then', function()
    local path = H.absolute(H.build) .. '/mock'
    local out, status = H.child([[
      local nn = amp.nn
      local x = amp.ones(4, 8, { device = 'cuda' })
      local net = nn.Sequential(nn.Linear(8, 8), nn.ReLU()):to 'cuda'
      local norm, layer = nn.Sequential(nn.BatchNorm1d(8), nn.ReLU()):to 'cuda', nn.LayerNorm(8):to 'cuda'
      local function dtype(module, input) return amp.autocast({ dtype = 'float16' }, function() return module(input) end).dtype end
      local function both()
        return amp.autocast({ dtype = 'float16' }, function()
          local a, b = layer:forward_add(x:half(), x:half())
          return a.dtype .. ' ' .. b.dtype
        end)
      end
      assert(dtype(net, x) == 'float16' and dtype(norm, x:half()) == 'float16' and both() == 'float32 float16')
      amp.set_policy('relu', 'fp32')
      assert(dtype(net, x) == 'float32' and dtype(norm, x:half()) == 'float32')
      amp.reset_policy 'relu'
      amp.set_policy('linear', 'fp32')
      assert(dtype(net, x) == 'float32')
      amp.set_policy('batch_norm', 'fp32')
      assert(dtype(norm[1], x:half()) == 'float32')
      amp.set_policy('layer_norm', 'passthrough')
      assert(both() == 'float16 float16')
      amp.reset_policy()
      amp.init { target_dtype = 'float16', conditional_fp32_ops = { { 'gelu', 'approximate', { 'none' } } } }
      assert(nn.Sequential(nn.Linear(8, 8), nn.GELU()):to 'cuda'(x).dtype == 'float32')
      amp.deactivate()
      print 'all right']], '', ("AMP_PLUGIN_DIR='%s'"):format(path))
    assert.equal('all right\n', out)
    assert.equal(0, status)
  end)
end)

describe('lists of init', function()
  local handle
  local function off() handle:deactivate() end
  local h = amp.ones(2):half()
  it('replace the default of their kind, and that alone', function()
    handle = amp.init { target_dtype = 'float16', target_precision_ops = { 'conv2d' } }
    assert.same({ 'conv2d' }, amp.list_lp16_ops())
    assert.equal('float32', F.linear(amp.ones(2, 8), amp.ones(4, 8)).dtype)
    assert.equal('float32', nn.LSTM(2, 2)(amp.ones(1, 1, 2)).dtype)
    assert.equal('float16', F.conv2d(amp.ones(1, 1, 3, 3), amp.ones(1, 1, 3, 3)).dtype)
    assert.equal('float32', amp.exp(h).dtype)
    off()
    handle = amp.init { target_dtype = 'float16', fp32_ops = { 'softmax' } }
    assert.equal('float16', amp.exp(h).dtype)
    assert.equal('float16', h:sum().dtype)
    assert.equal('float32', F.softmax(h, 1).dtype)
    assert.equal('float16', F.linear(amp.ones(2, 8), amp.ones(4, 8)).dtype)
    assert.equal('banned', amp.policy 'binary_cross_entropy')
    off()
    handle = amp.init { target_dtype = 'float16', target_precision_ops = {}, fp32_ops = {} }
    assert.same({}, amp.list_lp16_ops())
    assert.equal('float32', product())
    off()
    assert.equal('float32', amp.autocast({ dtype = 'float16' }, function() return amp.exp(h) end).dtype)
    assert.equal('lower', amp.policy 'linear')
    assert.equal('special', amp.policy 'lstm')
  end)
  it('leave alone what the user gave a class by itself, before or after', function()
    amp.set_policy('tanh', 'fp32')
    handle = amp.init { target_dtype = 'float16', fp32_ops = { 'softmax' } }
    assert.equal('float32', h:tanh().dtype)
    amp.set_policy('exp', 'fp32')
    assert.equal('float32', h:exp().dtype)
    amp.set_policy('matmul', 'fp32')
    off()
    assert.equal('fp32', amp.policy 'matmul')
    assert.equal('fp32', amp.policy 'tanh')
    amp.reset_policy()
    assert.equal('passthrough', amp.policy 'tanh')
  end)
end)

describe('registered functions', function()
  it('of amp and F are the op: methods, layers and other names follow, at once, whenever registered', function()
    local x = amp.ones(2, 2):half()
    local layer, net = nn.SiLU(), nn.Sequential(nn.SiLU(), nn.SiLU())
    for _, module in ipairs { F, amp, amp.Tensor } do
      for _, before in ipairs { true, false } do
        local handle = not before and amp.init 'float16'
        amp.register_float_function(module, 'silu')
        handle = handle or amp.init 'float16'
        for _, y in ipairs { F.silu(x), amp.silu(x), x:silu(), layer(x), net(x) } do assert.equal('float32', y.dtype) end
        handle:deactivate()
        amp.autocast.unregister_functions()
        handle = amp.init 'float16'
        assert.equal('float16', layer(x).dtype)
        handle:deactivate()
      end
    end
    amp.register_half_function(F, 'tanh')
    amp.register_promote_function(amp, 'mul')
    assert.equal('bfloat16', amp.autocast(function() return amp.ones(2):tanh() end).dtype)
    assert.equal('promote', amp.policy 'mul')
    amp.autocast.unregister_functions()
    assert.equal('passthrough', amp.policy 'mul')
    H.fails_here(function() amp.register_float_function(F, 'sillu') end, "'sillu'", "'silu'")
    H.fails_here(function() amp.register_float_function(nil, 'silu') end, 'a table of functions', 'amp stands for methods and layers')
  end)
  it('survive the lists and the end of amp.init', function()
    local x = amp.ones(2, 2):half()
    local handle = amp.init { target_dtype = 'float16', fp32_ops = { 'softmax' } }
    amp.register_float_function(amp, 'silu')
    amp.register_float_function(amp, 'exp')
    assert.equal('float32', x:exp().dtype)
    handle:deactivate()
    assert.equal('fp32', amp.policy 'silu')
    assert.equal('fp32', amp.policy 'exp')
    amp.autocast.unregister_functions()
    assert.equal('passthrough', amp.policy 'silu')
    amp.reset_policy()
  end)
  it('of other tables are replaced in their place', function()
    local mine = { f = function(x) return x.dtype end }
    amp.register_half_function(mine, 'f')
    assert.equal('bfloat16', amp.autocast(function() return mine.f(amp.ones(1)) end))
    assert.equal('float32', mine.f(amp.ones(1)))
    amp.autocast.unregister_functions()
    assert.equal('float32', amp.autocast(function() return mine.f(amp.ones(1)) end))
  end)
end)

describe('casts of the user\'s functions', function()
  local function lines(f)
    local old, list = amp.write_log, {}
    amp.write_log = function(text) list[#list + 1] = text end
    local ok, e = pcall(f)
    amp.write_log = old
    if not ok then error(e, 0) end
    return table.concat(list, '\n')
  end
  it('are kept, counted and printed as those of ops', function()
    local w, x = amp.randn(8, 2, { requires_grad = true }), amp.randn(4, 8)
    local seen = {}
    local half = amp.half_function(function(a, b) seen[tostring(b:data_ptr())] = true return a:matmul(b) end)
    local before = amp.counters()
    local text = lines(function()
      amp.autocast({ dtype = 'float16', verbose = true }, function() for _ = 1, 5 do half(x, w):sum():backward() end end)
    end)
    local after = amp.counters()
    local copies = 0
    for _ in pairs(seen) do copies = copies + 1 end
    assert.equal(1, copies)
    assert.equal(4, after.cached_casts - before.cached_casts)
    assert.is_truthy(text:find('amp: half_function: argument 1 from float32 to float16, 4x8', 1, true), text)
    assert.is_truthy(text:find('amp: half_function: argument 2 from float32 to float16, 8x2\n', 1, true), text)
    assert.equal(4, select(2, text:gsub('amp: half_function: argument 2 from float32 to float16, 8x2, cached', '')))
    assert.equal('float32', w.grad.dtype)
  end)
  it('by float_function, promote_function, registrations and custom_fwd as well', function()
    local x = amp.ones(2, 2)
    local F_ = amp.Function { forward = amp.custom_fwd(function(_, a) return a * 1 end, { cast_inputs = 'float16' }), backward = function(_, g) return g end }
    local mine = { f = function(a) return a end }
    amp.register_half_function(mine, 'f')
    local before = amp.counters().casts
    local text = lines(function()
      amp.autocast({ dtype = 'float16', verbose = true }, function()
        amp.float_function(function(a) return a end)(x:half())
        amp.promote_function(function(_, b) return b end)(x, { x:half() })
        F_(x)
        mine.f(x)
      end)
    end)
    amp.autocast.unregister_functions()
    for _, line in ipairs { 'float_function: argument 1 from float16 to float32, 2x2', 'promote_function: argument 2 from float16 to float32, 2x2',
      'custom_fwd: argument 1 from float32 to float16, 2x2', 'f: argument 1 from float32 to float16, 2x2' } do
      assert.is_truthy(text:find('amp: ' .. line, 1, true), text)
    end
    assert.equal(4, amp.counters().casts - before)
    assert.equal('', lines(function() amp.autocast({ dtype = 'float16' }, function() mine.f(x) end) end))
  end)
  it('by the levels, around a model\'s forward', function()
    local net = nn.Linear(2, 2)
    local opt = amp.optim.SGD(net:parameters(), { lr = 0.1 })
    amp.initialize(net, opt, { opt_level = 'O2', verbosity = 0 })
    local text = lines(function() amp.autocast({ verbose = true, enabled = false }, function() net(amp.ones(1, 2)) end) end)
    amp.deactivate()
    assert.is_truthy(text:find('amp: nn.Linear: argument 1 from float32 to float16, 1x2', 1, true), text)
    assert.is_truthy(text:find('amp: nn.Linear: result 1 from float16 to float32, 1x2', 1, true), text)
  end)
end)

describe('amp.doctor', function()
  it('names who read a value, also where Lua\'s own functions did', function()
    local x, m, s = amp.ones(3, 3), amp.ones(3, 3):gt(0), amp.GradScaler()
    local ways = {
      tostring = function() return tostring(x) end, item = function() local v = x:sum():item() return v end,
      tolist = function() local v = x:tolist() return v end, indexing = function() local v = x[m] return v end,
      scale_factor = function() s:scale(x) local v = s.scale_factor return v end,
      nonzero = function() local v = x:nonzero() return v end, equal = function() local v = x:equal(x) return v end,
    }
    for what, f in pairs(ways) do
      local r = amp.doctor(function() f() end, { print = false, steps = 1 })
      assert.equal(what, r.waits[1] and r.waits[1].what, what)
    end
  end)
  it('cites no share of zero', function()
    amp.manual_seed(1)
    local net, x = nn.Linear(32, 64), amp.randn(64, 32)
    local opt = amp.optim.SGD(net:parameters(), { lr = 0.1 })
    local r = amp.doctor(function()
      amp.autocast({ dtype = 'float16' }, function() return net(x):float():square():sum() end):backward()
      opt:step():clear_grad()
    end, { print = false })
    local found = 0
    for _, f in ipairs(r.findings) do
      assert.is_nil(f.text:find ' 0%.0 %%', f.text)
      if f.kind == 'scaler' then
        found = found + 1
        assert.is_truthy(f.text:find('no gradient value became 0 in these steps', 1, true), f.text)
      end
    end
    assert.equal(1, found)
  end)
  it('and the bench agree about processors without products of bfloat16', function()
    local machine = require 'amp.tools.machine'
    assert.is_true(machine.multiplies_bfloat16 'flags\t\t: fpu avx512f avx512_bf16\n')
    assert.is_true(machine.multiplies_bfloat16 'Features\t: fp asimd bf16\n')
    assert.is_false(machine.multiplies_bfloat16 'flags\t\t: fpu avx2\n')
    local says = false
    for _, r in ipairs(machine.report()) do says = says or r.text:find('saves memory here, not time', 1, true) ~= nil end
    assert.equal(not machine.multiplies_bfloat16(), says)
  end)
end)

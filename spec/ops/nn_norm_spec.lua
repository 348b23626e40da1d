--- Modules of normalisation, distances and dropout: values and state against PyTorch,
-- printing, wrong arguments, and reparametrised weights.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn = amp.nn

local function eq(t, want, factor, what)
  local wrong = H.difference(t, want.v, want.s, H.tolerance[H.dtype(t)], factor or 8)
  if wrong then error((what or '') .. ': ' .. wrong, 2) end
end

local function make(c)
  local args = { unpack(c.args) }
  if next(c.options) then args[#args + 1] = c.options end
  local m = nn[c.class](unpack(args)):double()
  amp.no_grad(function()
    for name, want in pairs(c.start) do m[name]:copy_(H.tensor(want, 'float64')) end
  end)
  return m
end

describe('a layer of normalisation', function()
  it('gives what PyTorch gives, in training and in evaluation, under the same names', function()
    for i, c in ipairs(H.fixture 'layers_norm.txt') do
      local what = ('%s, line %d'):format(c.class, i)
      local m = make(c)
      local x = {}
      for k, t in ipairs(c.x.list) do x[k] = H.tensor(t, 'float64') end
      local y
      for _ = 1, 2 do y = m(unpack(x)) end
      m:eval()
      if not c.train then y = m(unpack(x)) end
      eq(y, c.y, 64, what)
      local state, keys = m:state_dict(), {}
      for k in pairs(state) do keys[#keys + 1] = k end
      table.sort(keys)
      table.sort(c.keys)
      assert.equal(table.concat(c.keys, ' '), table.concat(keys, ' '), what)
      for k, want in pairs(c.state) do eq(state[k]:double(), want, 64, what .. ' ' .. k) end
    end
  end)

  it('prints its sizes and what is unusual', function()
    assert.equal('nn.BatchNorm3d(4)', tostring(nn.BatchNorm3d(4)))
    assert.equal('nn.BatchNorm1d(4, eps 0.5, not affine)', tostring(nn.BatchNorm1d(4, { eps = 0.5, affine = false })))
    assert.equal('nn.InstanceNorm2d(4)', tostring(nn.InstanceNorm2d(4)))
    assert.equal('nn.InstanceNorm2d(4, affine, running statistics)', tostring(nn.InstanceNorm2d(4, { affine = true, track_running_stats = true })))
    assert.equal('nn.GroupNorm(2, 4)', tostring(nn.GroupNorm(2, 4)))
    assert.equal('nn.RMSNorm(3x4)', tostring(nn.RMSNorm { 3, 4 }))
    assert.equal('nn.Dropout2d(0.5)', tostring(nn.Dropout2d()))
    assert.equal('nn.Dropout(0.2, inplace)', tostring(nn.Dropout(0.2, true)))
  end)

  it('says what is wrong with its arguments and its input', function()
    for _, w in ipairs {
      { function() nn.GroupNorm(4, 6) end, '6', '4' }, { function() nn.GroupNorm(2) end, 'num_channels' },
      { function() nn.GroupNorm(2, 4)(amp.ones(2, 6, 3)) end, '2x6x3', '4' }, { function() nn.RMSNorm() end, 'size' },
      { function() nn.RMSNorm(3, { eps = -1 }) end, 'eps', '-1' }, { function() nn.BatchNorm3d(3)(amp.ones(2, 3, 4, 5)) end, '2x3x4x5' },
      { function() nn.BatchNorm1d(3)(amp.ones(2, 4)) end, '3', '4' }, { function() nn.InstanceNorm1d(3)(amp.ones(2, 3, 4, 5)) end, '2x3x4x5' },
      { function() nn.InstanceNorm2d(3)(amp.ones(4, 3, 4)) end, '3', '4' }, { function() nn.InstanceNorm1d(3, { momentum = false }) end, 'momentum' },
      { function() nn.SyncBatchNorm(3)(amp.ones(3)) end, 'N x C' }, { function() nn.LocalResponseNorm() end, 'size' },
      { function() nn.LocalResponseNorm(0) end, '0' }, { function() nn.CosineSimilarity(2, { epsilon = 1 }) end, 'epsilon' },
      { function() nn.PairwiseDistance(2, 1e-6, 1) end, 'keepdim' }, { function() nn.Dropout3d(2) end, '2' },
      { function() nn.AlphaDropout(0.5, 'x') end, 'inplace' },
    } do H.fails_here(w[1], unpack(w, 2)) end
  end)
end)

describe('InstanceNorm', function()
  it('does for every rank what the class of that rank does', function()
    for rank, shape in ipairs { { 2, 4, 5 }, { 2, 4, 3, 5 }, { 2, 4, 3, 2, 5 } } do
      local any = nn.InstanceNorm(4, { affine = true, track_running_stats = true })
      local own = nn['InstanceNorm' .. rank .. 'd'](4, { affine = true, track_running_stats = true })
      local x = amp.randn(shape)
      assert.is_true(own(x):equal(any(x)))
      assert.is_true(own.running_var:equal(any.running_var))
      assert.is_true(own:eval()(x):equal(any:eval()(x)))
      any:load_state_dict(own:state_dict())
    end
    assert.equal('nn.InstanceNorm(4)', tostring(nn.InstanceNorm(4)))
    assert.is_nil(nn.InstanceNorm(4).weight)
    H.fails_here(function() nn.InstanceNorm(4)(amp.ones(2, 4)) end, 'N x C', '2x4')
    H.fails_here(function() nn.InstanceNorm(4)(amp.ones(2, 3, 4)) end, '4 channels', '3')
  end)
end)

describe('SyncBatchNorm', function()
  it('takes the place of batch norms, with their tensors', function()
    local net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Sequential(nn.BatchNorm1d(4)))
    local weight, mean = net[2].weight, net[2].running_mean
    local x = amp.randn(5, 3)
    local want = net(x)
    local back = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert.is_true(back == net)
    assert.is_true(net[2]:is(nn.SyncBatchNorm) and net[3][1]:is(nn.SyncBatchNorm))
    assert.is_true(net[2].weight == weight and net[2].running_mean == mean)
    H.same(net(x), want)
    assert.is_true(nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm2d(3)):is(nn.SyncBatchNorm))
    H.fails_here(function() nn.SyncBatchNorm.convert_sync_batchnorm(3) end, 'module')
  end)
end)

describe('Dropout', function()
  it('changes its input if asked to, and the gradient knows', function()
    for _, class in ipairs { 'Dropout', 'Dropout1d', 'AlphaDropout' } do
      local d = nn[class](0.5, { inplace = true })
      local x = amp.randn({ 20, 10, 3 }, { requires_grad = true })
      local h = x * 1
      local y = d(h)
      assert.is_true(y == h)
      y:sum():backward()
      assert.is_true(x.grad:eq(0):any():item() and x.grad:ne(0):any():item())
      d:eval()
      assert.is_true(d(x) == x)
    end
  end)
end)

describe('weight_norm', function()
  it('and spectral_norm keep no module alive, and a copy is not undone through the original', function()
    local seen = setmetatable({}, { __mode = 'v' })
    for i, norm in ipairs { nn.utils.weight_norm, nn.utils.spectral_norm } do seen[i] = norm(nn.Linear(2, 2)) end
    collectgarbage()
    collectgarbage()
    assert.is_nil(seen[1])
    assert.is_nil(seen[2])
    local layer = nn.utils.weight_norm(nn.Linear(2, 2))
    local copy = require 'amp.nn.core.copy'(layer)
    H.fails_here(function() nn.utils.remove_weight_norm(copy) end, 'not under weight_norm')
    nn.utils.remove_weight_norm(layer)
    assert.is_true(layer.weight.is_leaf)
  end)
  it('is the same layer at first, in two parameters, and comes apart again', function()
    for _, dim in ipairs { 1, 2, -1, false } do
      local layer = nn.Linear(3, 4)
      local x = amp.randn(2, 3)
      local want, w = layer(x):detach(), layer.weight:detach():clone()
      assert.is_true(nn.utils.weight_norm(layer, { dim = dim }) == layer)
      H.close(layer(x), H.values(want), 4)
      local keys = {}
      for k in pairs(layer:state_dict()) do keys[#keys + 1] = k end
      table.sort(keys)
      assert.equal('bias weight_g weight_v', table.concat(keys, ' '))
      assert.equal(dim == 1 and '4x1' or dim and '1x3' or '', dim and tostring(layer.weight_g:size()) or '')
      layer(x):sum():backward()
      assert.is_truthy(layer.weight_g.grad)
      assert.is_truthy(layer.weight_v.grad)
      amp.no_grad(function() layer.weight_g:mul_(2) end)
      H.close(layer(x) - layer.bias, H.values((want - layer.bias) * 2), 8)
      nn.utils.remove_weight_norm(layer)
      H.close(layer.weight, H.values(w * 2), 4)
      assert.equal(2, #layer:parameters())
      assert.is_nil(layer.weight_g)
    end
  end)

  it('says what is wrong', function()
    local layer = nn.utils.weight_norm(nn.Linear(2, 2))
    H.fails_here(function() nn.utils.weight_norm(layer) end, 'weight', 'already')
    H.fails_here(function() nn.utils.weight_norm(nn.ReLU()) end, 'nn.ReLU', "'weight'")
    H.fails_here(function() nn.utils.weight_norm(nn.Linear(2, 2), 'weight', 3) end, '3', '2x2')
    H.fails_here(function() nn.utils.remove_weight_norm(nn.Linear(2, 2)) end, 'nn.Linear', 'weight_norm')
    H.fails_here(function() nn.utils.spectral_norm(amp.ones(2)) end, 'module')
  end)
end)

describe('spectral_norm', function()
  it('divides by the largest singular value', function()
    amp.manual_seed(1)
    local layer = nn.Linear(3, 3)
    amp.no_grad(function() layer.weight:copy_(amp.tensor { { 3, 0, 0 }, { 0, -7, 0 }, { 0, 0, 1 } }) end)
    nn.utils.spectral_norm(layer, { n_power_iterations = 40 })
    local x = amp.ones(1, 3)
    local y = layer(x) - layer.bias
    H.close(y, { 3 / 7, -1, 1 / 7 }, 16)
    y:sum():backward()
    assert.is_truthy(layer.weight_orig.grad)
    layer:eval()
    H.close(layer(x) - layer.bias, { 3 / 7, -1, 1 / 7 }, 16)
    local keys = {}
    for k in pairs(layer:state_dict()) do keys[#keys + 1] = k end
    table.sort(keys)
    assert.equal('bias weight_orig weight_u weight_v', table.concat(keys, ' '))
    nn.utils.remove_spectral_norm(layer)
    H.close(layer.weight, { 3 / 7, 0, 0, 0, -1, 0, 0, 0, 1 / 7 }, 16)
    assert.equal(2, #layer:parameters())
  end)
end)

describe('weights in channels_last', function()
  it('keep their 16-bit copies from step to step', function()
    local conv = nn.Conv2d(2, 3, 2):to { memory_format = 'channels_last' }
    local opt, x = amp.optim.SGD(conv:parameters(), { lr = 0.1 }), amp.randn(1, 2, 4, 4)
    local casts
    for step = 1, 4 do
      local before = amp.autocast.counters().casts
      local loss = amp.autocast({ dtype = 'bfloat16' }, function() return conv(x):float():pow(2):mean() end)
      casts = amp.autocast.counters().casts - before
      loss:backward()
      opt:step():clear_grad()
      if step > 2 then assert.equal(1, casts) end -- x alone
    end
  end)
end)

describe('forward_relu of a BatchNorm', function()
  local devices = amp.cuda.is_available() and { 'cpu', 'cuda' } or { 'cpu' }

  local function leaves(shape, dt, device, format)
    local x = amp.randn(shape):to(dt)
    if format then x = x:contiguous { memory_format = 'channels_last' } end
    return x:to(device):requires_grad_(true)
  end

  for _, device in ipairs(devices) do
    it('is ReLU after the module and the residual, in values, gradients and statistics: ' .. device, function()
      for _, case in ipairs { { 2, 8, 3, 4 }, { 2, 8, 3, 4, last = true }, { 2, 3, 5, 1, last = true }, { 3, 4, 4, 4 } } do
        for _, dt in ipairs { 'float32', 'float16' } do
          for _, joined in ipairs { true, false } do
            for _, training in ipairs { true, false } do
              amp.manual_seed(7)
              local shape = { unpack(case) }
              local a, b = nn.BatchNorm2d(shape[2]):to(device), nn.BatchNorm2d(shape[2]):to(device)
              a.training, b.training = training, training
              local x, r = leaves(shape, dt, device, case.last), leaves(shape, dt, device, case.last)
              local x2, r2 = x:detach():requires_grad_(true), r:detach():requires_grad_(true)
              local y = a:forward_relu(x, joined and r or nil)
              local want = b(x2)
              if joined then want = want + r2 end
              want = amp.relu(want)
              H.same(y, want)
              local g = amp.randn(shape):to(dt):to(device)
              y:backward(g)
              want:backward(g)
              local tol = { rtol = 1e-6, atol = dt == 'float16' and 1e-3 or 2e-6 }
              H.close(x.grad, H.values(x2.grad), tol)
              if joined then H.same(r.grad, r2.grad) end
              H.close(a.weight.grad, H.values(b.weight.grad), { rtol = 1e-5, atol = 1e-5 })
              H.close(a.bias.grad, H.values(b.bias.grad), { rtol = 1e-5, atol = 1e-5 })
              H.same(a.running_mean, b.running_mean)
              H.same(a.running_var, b.running_var)
              assert.equal(training and 1 or 0, a.num_batches_tracked:item())
            end
          end
        end
      end
    end)
  end

  it('adds what is broadcast or of another dtype, and calls hooks', function()
    local bn, x = nn.BatchNorm1d(3), amp.randn(4, 3)
    H.same(bn:forward_relu(x, amp.ones(3)), amp.relu(bn(x) + amp.ones(3)))
    assert.equal('float64', bn:forward_relu(x, amp.ones(4, 3, { dtype = 'float64' })).dtype)
    local calls = 0
    bn:register_forward_hook(function() calls = calls + 1 end)
    bn:forward_relu(x)
    assert.equal(1, calls)
    H.fails(function() bn:forward_relu(amp.randn(4, 2)) end, 'BatchNorm1d', '3 channels')
  end)
end)

describe('forward_add of a LayerNorm', function()
  local devices = amp.cuda.is_available() and { 'cpu', 'cuda' } or { 'cpu' }
  local pairs_of = { { 'float32', 'float32' }, { 'float32', 'bfloat16' }, { 'float16', 'float32' }, { 'bfloat16', 'bfloat16' },
    { 'float16', 'bfloat16' }, { 'float64', 'float16' } }
  local wanted = { { y = true, sum = true }, { y = true }, { sum = true } } -- what a gradient comes for

  local function leaf(t) return t:detach():clone():requires_grad_(true) end

  for _, device in ipairs(devices) do
    it('gives the module of the sum, and the sum, with the values and gradients of the two: ' .. device, function()
      local y, s
      for _, n in ipairs { 8, 7 } do
        for _, d in ipairs(pairs_of) do
          for _, low in ipairs { false, 'float16' } do
            for _, want in ipairs(wanted) do
              amp.manual_seed(3)
              local norm = nn.LayerNorm(n):to(device)
              amp.no_grad(function() norm.weight:uniform_(0.5, 1.5) norm.bias:normal_() end)
              if d[1] == 'float64' then norm:to 'float64' end
              local x0, r0 = amp.randn(3, n):to(d[1]):to(device), amp.randn(3, n):to(d[2]):to(device)
              local gy, gs = amp.randn(3, n):to(device), amp.randn(3, n):to(device)
              local function run(joined)
                local x, r = leaf(x0), leaf(r0)
                local function f()
                  if joined then y, s = norm:forward_add(x, r)
                  else s = x + r y = norm(s) end
                end
                if low then amp.autocast({ dtype = low, device = device }, f) else f() end
                local outs, grads = {}, {}
                if want.y then outs[1], grads[1] = y, gy:to(y.dtype) end
                if want.sum then outs[#outs + 1], grads[#grads + 1] = s, gs:to(s.dtype) end
                local leaves = { x, r }
                if want.y then leaves[3], leaves[4] = norm.weight, norm.bias end
                return { y, s }, amp.grad(outs, leaves, { grad_outputs = grads })
              end
              local got, grads = run(true)
              local two, expected = run(false)
              for i = 1, 2 do H.same(got[i], two[i]) end
              local half = d[1]:find '16' or d[2]:find '16'
              for i = 1, #expected do
                assert.equal(expected[i].dtype, grads[i].dtype)
                H.close(grads[i], H.values(expected[i]), half and { rtol = 2e-2, atol = 5e-2 } or { rtol = 1e-5, atol = 1e-5 })
              end
            end
          end
        end
      end
    end)

    it('gives the normalised in the dtype asked for, float32 values rounded once, whose gradient has it: ' .. device, function()
      for _, n in ipairs { 8, 7 } do
        for _, d in ipairs(pairs_of) do
          for _, low in ipairs { 'float16', 'bfloat16', 'float32', 'float64' } do
            local norm, x, r = nn.LayerNorm(n):to(device), leaf(amp.randn(3, n):to(d[1]):to(device)), leaf(amp.randn(3, n):to(d[2]):to(device))
            amp.no_grad(function() norm.weight:uniform_(0.5, 1.5) norm.bias:normal_() end)
            if d[1] == 'float64' then norm:to 'float64' end
            local y, s = norm:forward_add(x, r, low)
            assert.equal(low, y.dtype)
            H.same(s, x + r)
            local wide = amp.layer_norm(s:detach():to(d[1] == 'float64' and d[1] or 'float32'), { n }, norm.weight, norm.bias)
            if s.dtype == 'float32' and low ~= 'float64' then H.same(y, wide:to(low))
            else H.close(y, H.values(wide), low == 'bfloat16' and { rtol = 8e-3, atol = 1e-4 } or { rtol = 1e-3, atol = 1e-4 }) end
            local g = amp.randn(3, n):to(device):to(low)
            local got = amp.grad({ y }, { x, norm.weight, norm.bias }, { grad_outputs = { g } })
            local z = leaf(s:to(d[1] == 'float64' and d[1] or 'float32'))
            local u = amp.layer_norm(z, { n }, norm.weight, norm.bias)
            local want = amp.grad({ u }, { z, norm.weight, norm.bias }, { grad_outputs = { g:to(u.dtype) } })
            assert.equal(x.dtype, got[1].dtype)
            local half = x.dtype:find '16' or s.dtype:find '16'
            for i = 1, 3 do H.close(got[i], H.values(want[i]), half and { rtol = 1e-2, atol = 1e-2 } or { rtol = 1e-4, atol = 1e-4 }) end
          end
        end
      end
      local x = amp.ones(2, 4, { device = device })
      H.fails(function() amp.add_layer_norm(x, x, { 4 }, nil, nil, 1e-5, 'int64') end, 'int64', 'float dtype')
    end)

    it('gives no gradient to what asks for none, and takes any strides and no elements: ' .. device, function()
      local norm = nn.LayerNorm(4):to(device)
      local x, r = amp.randn(4, 6):to(device):t(), amp.randn(6, 8):to(device):narrow(2, 3, 4)
      for _, first in ipairs { true, false } do
        local a, b = x:detach(), r:detach()
        if first then a:requires_grad_(true) else b:requires_grad_(true) end
        local y, s = norm:forward_add(a, b)
        H.same(s:detach(), x + r)
        H.same(y:detach(), norm(x + r):detach());
        (y * y + s):sum():backward()
        assert.equal(first, a.grad ~= nil)
        assert.equal(first, b.grad == nil)
        local z = (x + r):requires_grad_(true)
        local u = norm(z);
        (u * u + z):sum():backward()
        H.close((a.grad or b.grad), H.values(z.grad), { rtol = 1e-5, atol = 1e-5 })
      end
      norm = nn.LayerNorm(4):to(device)
      local e, o = norm:forward_add(amp.zeros(0, 4, { device = device, requires_grad = true }), amp.zeros(0, 4, { device = device }))
      assert.equal('0x4', tostring(e:size()))
      e:sum():backward()
      assert.equal('0x4', tostring(o:size()))
      for _, p in ipairs { norm.weight, norm.bias } do H.close(p.grad, { 0, 0, 0, 0 }, H.exact) end
    end)

    it('can be differentiated twice: ' .. device, function()
      local n, x0, r0 = 5, amp.randn(3, 5):to 'float64':to(device), amp.randn(3, 5):to 'float64':to(device)
      local w = amp.rand(5):to 'float64':to(device):requires_grad_(true)
      local function second(joined)
        local x, r = leaf(x0), leaf(r0)
        local y, s
        if joined then y, s = amp.add_layer_norm(x, r, { n }, w)
        else s = x + r y = amp.layer_norm(s, { n }, w) end
        local g = amp.grad({ ((y ^ 3) * s):sum() }, { x, r, w }, { create_graph = true })
        return amp.grad({ (g[1] ^ 2):sum() + (g[2] * g[1]):sum() + (g[3] ^ 2):sum() }, { x, r, w })
      end
      local got, expected = second(true), second(false)
      for i = 1, 3 do H.close(got[i], H.values(expected[i]), { rtol = 1e-9, atol = 1e-9 }) end
    end)
  end

  it('broadcasts as + does, and calls hooks and what a class of its own does', function()
    local norm, x = nn.LayerNorm(3), amp.randn(4, 3)
    local y, s = norm:forward_add(x, amp.ones(3))
    H.same(s, x + 1)
    H.same(y, norm(x + 1))
    y, s = norm:forward_add(amp.ones(3), x)
    H.same(s, x + 1)
    assert.equal('4x3', tostring(y:size()))
    local calls = 0
    norm:register_forward_hook(function() calls = calls + 1 end)
    assert.equal('float16', norm:forward_add(x, x, 'float16').dtype)
    assert.equal(1, calls)
    local Twice = nn.LayerNorm:extend 'Twice'
    function Twice:forward(t) return nn.LayerNorm.forward(self, t) * 2 end
    y = Twice(3):forward_add(x, x)
    H.same(y, nn.LayerNorm(3)(x + x) * 2)
    H.fails(function() nn.LayerNorm(4):forward_add(x, x) end, '4x3', '4')
  end)
end)

describe('a batch norm', function()
  it('counts in scopes, the first one too', function()
    local out, status = H.child [[
      local bn = amp.nn.BatchNorm1d(2)
      for _ = 1, 3 do amp.scope(function() return bn(amp.ones(3, 2)) end) end
      print(bn.num_batches_tracked:item())
    ]]
    assert.equal(0, status, out)
    assert.equal('3\n', out)
  end)
end)

describe('spectral_norm in a region', function()
  it('estimates in float32, as outside', function()
    local function built()
      amp.manual_seed(4)
      return amp.nn.utils.spectral_norm(amp.nn.Linear(40, 24, { bias = false }))
    end
    local x, plain, inside = amp.ones(2, 40), built(), built()
    for _ = 1, 3 do
      plain(x)
      amp.autocast({ dtype = 'bfloat16' }, inside, x)
    end
    H.same(inside.weight, plain.weight)
    H.same(inside.weight_u, plain.weight_u)
    H.same(inside.weight_v, plain.weight_v)
    assert.equal('bfloat16', amp.autocast({ dtype = 'bfloat16' }, inside, x).dtype)
  end)
end)

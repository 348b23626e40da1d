--- Autocast as people use it, oddly but legally: callables, nests of every construct, coroutines,
-- weights that change under the cache, custom and registered functions, checkpointed blocks; and
-- a whole run with autocast and scaler disabled, which is the plain run bit for bit.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn, F = amp.nn, amp.nn.functional

local function region(low, f, ...) return amp.autocast({ dtype = low }, f, ...) end
local function weight(n, m)
  local w = H.sample { n or 3, m or 3 }
  w.requires_grad = true
  return w
end
local function casts(f)
  local a = amp.counters()
  f()
  local b = amp.counters()
  return b.casts - a.casts, b.cached_casts - a.cached_casts
end

describe('a region', function()
  it('takes modules and callable tables for functions, with options before, after or not at all', function()
    local net, x = nn.Linear(3, 3), H.sample { 2, 3 }
    local callable = setmetatable({}, { __call = function(_, t) return net(t) end })
    for _, f in ipairs { net, callable } do
      assert.equal('bfloat16', amp.autocast(f, x).dtype)
      assert.equal('float16', amp.autocast({ dtype = 'float16' }, f, x).dtype)
      assert.equal('float16', amp.autocast.wrap(f, { dtype = 'float16' })(x).dtype)
      assert.equal('float16', amp.autocast.wrap({ dtype = 'float16' }, f)(x).dtype)
      assert.equal('bfloat16', amp.autocast.wrap(f)(x).dtype)
    end
  end)
  it('wants a function and says what it got; options are checked when they are given', function()
    H.fails_here(function() amp.autocast { dtype = 'float16' } end, 'argument 2', 'function', 'nil')
    H.fails_here(function() amp.autocast(3, print) end, 'argument 1', '3')
    H.fails_here(function() amp.autocast.wrap() end, 'function', 'nil')
    H.fails_here(function() amp.autocast.wrap { dtype = 'float16' } end, 'function')
    H.fails_here(function() amp.autocast.wrap(print, { dtpe = 1 }) end, 'dtpe', 'dtype')
    H.fails_here(function() amp.autocast({ enabled = 1 }, print) end, 'enabled', 'true or false', '1')
    H.fails_here(function() amp.autocast({ dtype = 'float17' }, print) end, 'float17')
    H.fails_here(function() amp.enabled = 1 end, 'enabled', '1')
    assert.is_false(amp.is_autocast_enabled())
  end)
  it('knows dtypes by every name they have', function()
    for _, name in ipairs { 'float16', 'half', amp.float16, amp.half } do
      assert.equal('float16', region(name, function() return weight():matmul(weight()).dtype end))
    end
  end)
  it('unwinds a nest of every construct across yields, each time', function()
    local seen = {}
    local function state() return ('%s %s %s'):format(amp.is_autocast_enabled(), amp.get_autocast_dtype(), amp.is_grad_enabled()) end
    local outside = state()
    local gm = amp.GradManager():attach(weight())
    local co = coroutine.wrap(function()
      region('float16', function()
        amp.no_grad(function()
          amp.autocast({ enabled = false }, function()
            amp.scope(function()
              coroutine.yield()
              seen[#seen + 1] = state()
            end)
          end)
          seen[#seen + 1] = state()
          coroutine.yield()
          seen[#seen + 1] = state()
          gm:record(function()
            coroutine.yield()
            seen[#seen + 1] = state()
          end)
        end)
        seen[#seen + 1] = state()
        error('the end', 0)
      end)
    end)
    for _ = 1, 3 do
      co()
      assert.equal(outside, state())
      region('bfloat16', function() assert.equal('true bfloat16 true', state()) end)
    end
    local ok, e = pcall(co)
    assert.is_false(ok)
    assert.equal('the end', e)
    assert.equal(outside, state())
    assert.same({ 'false bfloat16 false', 'true float16 false', 'true float16 false', 'true float16 true', 'true float16 true' }, seen)
  end)
  it('two coroutines each in a region of its own do not see each other', function()
    local function worker(low)
      return coroutine.wrap(function()
        region(low, function()
          for _ = 1, 3 do coroutine.yield(weight():matmul(weight()).dtype) end
        end)
      end)
    end
    local a, b = worker 'float16', worker 'bfloat16'
    for _ = 1, 3 do
      assert.equal('float16', a())
      assert.equal('float32', weight():matmul(weight()).dtype)
      assert.equal('bfloat16', b())
    end
  end)
  it('amp.enabled as a program\'s switch: regions disable it and end as they began', function()
    local w = weight()
    amp.enabled = true
    local inner, left
    local ok, e = pcall(function()
      inner = amp.autocast({ enabled = false }, function() return w:matmul(w).dtype end)
      region('float16', function() amp.enabled = false end)
      left = w:matmul(w).dtype
    end)
    amp.enabled = false
    assert.is_true(ok, e)
    assert.equal('float32', inner)
    assert.equal('bfloat16', left)
    assert.equal('float32', w:matmul(w).dtype)
  end)
  it('verbose names op, argument, dtypes, shape, and says what was cached', function()
    local lines, log = {}, amp.write_log
    amp.write_log = function(line) lines[#lines + 1] = line end
    local w, x = weight(4, 3), H.sample { 2, 3 }
    amp.autocast({ dtype = 'float16', verbose = true }, function()
      F.linear(x, w)
      F.linear(x:half(), w)
      return F.softmax(x:half(), 2)
    end)
    F.linear(x, w)
    amp.write_log = log
    assert.same({
      'amp: linear: argument 1 from float32 to float16, 2x3',
      'amp: linear: argument 2 from float32 to float16, 4x3',
      'amp: linear: argument 2 from float32 to float16, 4x3, cached',
      'amp: softmax: argument 1 from float16 to float32, 2x3',
    }, lines)
  end)
end)

describe('ops in a region', function()
  it('acos in half is float32 and its derivative near 1 finite', function()
    local x = H.make({ 0.999, -0.999, 0 }, { 3 }, 'float16')
    x.requires_grad = true
    local y = region('float16', function() return x:acos() end)
    assert.equal('float32', y.dtype)
    y:sum():backward()
    assert.equal('float16', x.grad.dtype)
    for _, v in ipairs(x.grad:tolist()) do assert.is_true(math.abs(v) < math.huge) end
  end)
  it('masked_fill refuses a value that half can\'t hold; infinity works', function()
    region('float16', function()
      local scores, mask = weight():matmul(weight()), H.sample { 3, 3 }:gt(0)
      H.fails_here(function() scores:masked_fill(mask, -1e9) end, 'masked_fill', '-1000000000', 'float16')
      assert.equal('float16', scores:masked_fill(mask, -math.huge).dtype)
    end)
  end)
  it('indexed assignment casts to the receiver, and its gradients come back in the leaves\' dtype', function()
    for _, low in ipairs { 'float16', 'bfloat16' } do
      local w, v = weight(), weight(2, 3)
      region(low, function()
        local y = w:matmul(w)
        y[amp.tensor({ 1, 3 }, { dtype = 'int64' })] = v
        assert.equal(low, y.dtype)
        return y:float():sum()
      end):backward()
      assert.equal('float32', w.grad.dtype)
      H.close(v.grad, { 1, 1, 1, 1, 1, 1 }, H.exact)
    end
  end)
  it('sum is float32 unless a dtype is given; doubles take part as doubles', function()
    local h, d = H.sample({ 4 }, 'bfloat16'), H.sample({ 4 }, 'float64')
    region('bfloat16', function()
      assert.equal('float32', h:sum().dtype)
      assert.equal('bfloat16', h:sum { dtype = 'bfloat16' }.dtype)
      assert.equal('float64', (h + d).dtype)
      assert.equal('float64', d:reshape(2, 2):matmul(d:reshape(2, 2)).dtype)
    end)
    H.fails_here(function() region('bfloat16', function() return h:reshape(2, 2):matmul(d:reshape(2, 2)) end) end, 'matmul', 'float64', 'bfloat16')
  end)
  it('a policy that is set holds for function, method and operator, and is undone by reset', function()
    local w = weight()
    local function dtypes() return region('float16', function() return (w + w).dtype .. w:add(w).dtype .. amp.add(w, w).dtype end) end
    amp.set_policy('add', 'lower')
    local set = dtypes()
    amp.reset_policy 'add'
    assert.equal('float16float16float16', set)
    assert.equal('float32float32float32', dtypes())
    amp.set_policy('rms_norm', 'passthrough')
    local h = region('float16', function() return F.rms_norm(H.sample({ 2, 3 }, 'float16'), { 3 }).dtype end)
    amp.reset_policy()
    assert.equal('float16', h)
    assert.equal('float32', region('float16', function() return F.rms_norm(H.sample({ 2, 3 }, 'float16'), { 3 }).dtype end))
  end)
  it('recurrent nets: half weights beside float32 data are an error outside and fine inside', function()
    local net, x = nn.LSTM(3, 4):to 'bfloat16', H.sample { 5, 2, 3 }
    H.fails(function() net(x) end, 'float32', 'bfloat16')
    local y, state = amp.autocast(net, x, { H.sample { 1, 2, 4 }, H.sample { 1, 2, 4 } })
    assert.equal('bfloat16', y.dtype)
    y:float():sum():backward()
    assert.equal('bfloat16', net:parameters()[1].grad.dtype)
    assert.equal(2, #state)
  end)
end)

describe('the cache', function()
  local x = H.sample({ 3, 3 }, 'float16')
  it('sees every way a weight changes', function()
    local function changes(f)
      local net = nn.Linear(3, 3, { bias = false })
      local a, b
      region('float16', function()
        a = net(x):clone()
        amp.no_grad(function() f(net) end)
        b = net(x)
      end)
      return (a - b):abs():max():item() > 0
    end
    local fresh = H.ramp(9, 3)
    local ways = {
      copy_ = function(n) n.weight:copy_(H.make(fresh, { 3, 3 })) end,
      ['copy_ to a detached alias'] = function(n) n.weight:detach():copy_(H.make(fresh, { 3, 3 })) end,
      load_state_dict = function(n) n:load_state_dict { weight = H.make(fresh, { 3, 3 }) } end,
      ['in place'] = function(n) n.weight:mul_(2) end,
      ['a row'] = function(n) n.weight[1] = 5 end,
      ['a view'] = function(n) n.weight:view(9):add_(1) end,
      swap = function(n)
        n.weight = H.make(fresh, { 3, 3 })
        n.weight.requires_grad = true
      end,
      init = function(n) nn.init.uniform_(n.weight, 5, 6) end,
      vector = function(n) nn.utils.vector_to_parameters(H.make(fresh, { 9 }), n:parameters()) end,
    }
    for name, f in pairs(ways) do assert.is_true(changes(f), name) end
  end)
  it('an unchanged weight is cast once through training, evaluation and training', function()
    local w = weight()
    local made, used = casts(function()
      region('float16', function()
        w:matmul(x):backward(x)
        amp.no_grad(function() return w:matmul(x) end)
        w:matmul(x):backward(x)
      end)
    end)
    assert.equal(1, made)
    assert.equal(2, used)
    assert.is_true(w.grad:abs():sum():item() > 0)
  end)
  it('a tensor that begins to require grad is a weight from there on', function()
    local w = H.sample { 3, 3 }
    region('float16', function()
      w:matmul(x)
      w.requires_grad = true
      w:matmul(x):sum():backward()
    end)
    assert.is_true(w.grad ~= nil)
  end)
  it('a backward after the step that changed the weight is the in-place error', function()
    local w = weight()
    local o = amp.optim.SGD({ w }, { lr = 0.1 })
    local loss = region('float16', function() return w:matmul(x):matmul(w):float():sum() end)
    loss:backward(nil, { retain_graph = true })
    o:step()
    H.fails_here(function() loss:backward() end, 'matmul', 'in place')
  end)
  it('a weight is cast in the first step of training and never after: optimizers write the low copies', function()
    for _, class in ipairs { 'SGD', 'Adam', 'AdamW', 'RMSprop', 'Adagrad', 'LAMB' } do
      local net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
      local opt, scaler, input = amp.optim[class](net:parameters(), { lr = 0.01 }), amp.GradScaler(), amp.randn(4, 8):half()
      for step = 1, 5 do
        local made = casts(function()
          local out = region('float16', function() return net(input) end)
          scaler:scale(out:float():square():mean() * (step == 3 and math.huge or 1)):backward()
          scaler:unscale_(opt)
          nn.utils.clip_grad_norm_(net:parameters(), 1)
          scaler:step(opt):update()
          opt:clear_grad()
        end)
        assert.equal(step == 1 and 4 or 0, made, ('%s, step %d'):format(class, step))
      end
    end
  end)
  it('a hundred uses of one weight: one cast with it, a hundred without', function()
    local w = weight()
    for _, cached in ipairs { true, false } do
      local made = casts(function()
        amp.autocast({ dtype = 'float16', cache_enabled = cached }, function()
          amp.no_grad(function() for _ = 1, 100 do F.linear(x, w) end end)
        end)
      end)
      assert.equal(cached and 1 or 100, made)
    end
  end)
end)

describe('functions of the user\'s', function()
  it('derivatives of derivatives go through what cast_inputs cast, saved or kept in ctx', function()
    for _, keep in ipairs {
      function(ctx, x) ctx:save_for_backward(x) end, function(ctx, x) ctx.x = x end,
    } do
      local cube = amp.Function {
        forward = amp.custom_fwd(function(ctx, x)
          keep(ctx, x)
          return x * x * x
        end, { cast_inputs = 'float32' }),
        backward = amp.custom_bwd(function(ctx, g)
          local x = ctx.x or ctx.saved_tensors[1]
          return 3 * x * x * g
        end),
      }
      local w = H.make({ 3 }, { 1 })
      w.requires_grad = true
      local h = w * 2
      local y = region('float16', function() return cube(h:half()) end) -- 8 w^3
      assert.equal('float32', y.dtype)
      local first = amp.grad({ y }, { w }, { create_graph = true })[1]
      H.close(first, { 216 }, H.exact)
      H.close(amp.grad({ first }, { w }, { retain_graph = true })[1], { 144 }, H.exact)
    end
    local square = amp.Function {
      forward = amp.custom_fwd(function(ctx, x)
        ctx:save_for_backward(x)
        return x * x
      end, { cast_inputs = 'float32' }),
      backward = amp.custom_bwd(function(ctx, g) return 2 * ctx.saved_tensors[1] * g end),
    }
    local w = H.make({ 3 }, { 1 })
    w.requires_grad = true
    local low = (w * 1):half()
    local y = region('float16', function() return square(low) end)
    amp.no_grad(function() low:add_(1) end)
    H.fails(function() amp.grad({ y }, { w }, { create_graph = true }) end, 'changed in place', 'float16')
    H.close(amp.grad({ y }, { w })[1], { 6 }, H.exact)
  end)
  it('custom_fwd casts nested tables, takes its options on either side, and says what is wrong', function()
    local f = amp.Function {
      forward = amp.custom_fwd({ cast_inputs = 'float32' }, function(ctx, t)
        ctx:save_for_backward(t.a, t.b[1])
        ctx.seen = t.a.dtype .. t.b[1].dtype .. t.b[2].dtype .. tostring(amp.is_autocast_enabled())
        return t.a * t.b[1]:sum()
      end),
      backward = amp.custom_bwd(function(ctx, g)
        local a, b = unpack(ctx.saved_tensors)
        assert.equal('float32float32int64false', ctx.seen)
        assert.is_false(amp.is_autocast_enabled())
        return { a = g * b:sum(), b = { (g * a):sum() * amp.ones_like(b) } }
      end),
    }
    local a, b = weight(), weight()
    local y = region('float16', function() return f { a = a:matmul(a), b = { b, amp.ones(1, { dtype = 'int64' }) } } end)
    assert.equal('float32', y.dtype)
    region('bfloat16', function() y:sum():backward() end)
    assert.equal('float32', a.grad.dtype)
    assert.equal('float32', b.grad.dtype)
    H.fails_here(function() amp.custom_fwd(3) end, 'custom_fwd', 'function', '3')
    H.fails_here(function() amp.custom_fwd(print, { cast_input = 'half' }) end, 'cast_input', 'cast_inputs')
    H.fails_here(function() amp.custom_bwd() end, 'custom_bwd', 'function')
    local lone = amp.Function { forward = function(_, t) return t * 2 end, backward = amp.custom_bwd(function(_, g) return g * 2 end) }
    H.fails(function() lone(weight()):sum():backward() end, 'custom_bwd', 'custom_fwd')
    H.fails_here(function() amp.Function { forward = print, backward = print, setup_context = print } end, 'setup_context')
  end)
  it('registering again takes the original; inherited functions stay as they are; all can be undone', function()
    local m = { f = function(t) return t.dtype end }
    local original, h, s = m.f, H.sample({ 2 }, 'float16'), H.sample { 2 }
    amp.register_half_function(m, 'f')
    assert.equal('float16', region('float16', function() return m.f(s) end))
    amp.register_float_function(m, 'f')
    assert.equal('float32', region('float16', function() return m.f(h) end))
    local child = setmetatable({}, { __index = { g = original } })
    amp.register_half_function(child, 'g')
    assert.equal('float16', region('float16', function() return child.g(s) end))
    assert.is_true(getmetatable(child).__index.g == original)
    amp.register_float_function(F, 'relu')
    assert.equal('float32', region('float16', function() return F.relu(h).dtype end))
    amp.autocast.unregister_functions()
    assert.is_true(m.f == original)
    assert.equal('float16', region('float16', function() return F.relu(h).dtype end))
    H.fails_here(function() amp.register_half_function(m, 'ff') end, "'ff'", "'f'")
    H.fails_here(function() amp.register_promote_function(3, 'f') end, '3')
    H.fails_here(function() amp.register_float_function({ f = 5 }, 'f') end, 'no function')
  end)
  it('promote_function takes the widest of its floats, both ways round', function()
    local f = amp.promote_function(function(a, b) return a.dtype .. ' ' .. b.dtype end)
    local h, b, s, d = H.sample({ 2 }, 'float16'), H.sample({ 2 }, 'bfloat16'), H.sample { 2 }, H.sample({ 2 }, 'float64')
    region('float16', function()
      assert.equal('float32 float32', f(h, s))
      assert.equal('float32 float32', f(s, h))
      assert.equal('float16 float16', f(h, h))
      assert.equal('float32 float32', f(h, b))
      assert.equal('float16 float64', f(h, d))
    end)
    assert.equal('float16 float32', f(h, s))
  end)
end)

describe('a checkpointed block', function()
  it('computes again in the forward\'s region, wherever backward is called, with the same random numbers', function()
    local w, x = weight(), weight()
    local function run(checkpointed, backward)
      w.grad, x.grad = nil, nil
      local dtypes = {}
      amp.manual_seed(3)
      local y = region('float16', function()
        local function block(h)
          local z = F.dropout(h:matmul(w), 0.5)
          dtypes[#dtypes + 1] = z.dtype
          return z:tanh()
        end
        return checkpointed and amp.checkpoint(block, x) or block(x)
      end)
      backward(y:float():sum())
      return w.grad, x.grad, table.concat(dtypes, ' ')
    end
    local function plain(l) l:backward() end
    local gw, gx = run(false, plain)
    for _, backward in ipairs { plain, function(l) region('bfloat16', function() l:backward() end) end,
      function(l) amp.autocast({ enabled = false }, function() l:backward() end) end } do
      local hw, hx, dtypes = run(true, backward)
      assert.equal('float16 float16', dtypes)
      H.same(hw, gw)
      H.same(hx, gx)
    end
  end)
end)

describe('autocast and scaler disabled together', function()
  -- one run of a small net with every kind of layer, and what names neither
  local function train(mixed, optimizer, clip)
    amp.manual_seed(11)
    local net = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Tanh(),
      nn.Linear(16, 3))
    local opt = optimizer(net:parameters())
    local scaler = mixed and amp.GradScaler { enabled = false }
    local gm = amp.GradManager():attach(net:parameters())
    local losses = {}
    for i = 1, 8 do
      local x, y = amp.randn(10, 6), amp.randint(1, 4, 10, { dtype = 'int64' })
      local loss
      local function forward() return F.cross_entropy(net(x), y) + net[1].weight:square():mean() end
      if not mixed then
        loss = forward()
        loss:backward()
        if clip then nn.utils.clip_grad_norm_(net:parameters(), clip) end
        opt:step()
      elseif i % 3 == 0 then -- the automatic gear
        gm:record(function()
          loss = amp.autocast({ enabled = false, dtype = 'float16' }, forward)
          scaler:backward(gm, loss)
        end)
        if clip then nn.utils.clip_grad_norm_(net:parameters(), clip) end
        opt:step()
      elseif i % 3 == 1 then -- the manual one
        gm:record(function()
          loss = amp.autocast({ enabled = false }, forward)
          gm:backward(loss, { dy = scaler:scale_tensor() })
        end)
        scaler:unscale(gm:attached_tensors())
        if clip then nn.utils.clip_grad_norm_(net:parameters(), clip) end
        scaler:update()
        opt:step()
      else
        loss = amp.autocast({ enabled = false }, forward)
        scaler:scale(loss):backward()
        scaler:unscale_(opt)
        if clip then nn.utils.clip_grad_norm_(net:parameters(), clip) end
        scaler:step(opt)
        scaler:update()
      end
      opt:zero_grad()
      losses[i] = loss:item()
    end
    return losses, net:state_dict(), scaler
  end
  local optimizers = {
    SGD = function(p) return amp.optim.SGD(p, { lr = 0.05, momentum = 0.9, nesterov = true, weight_decay = 0.01 }) end,
    Adam = function(p) return amp.optim.Adam(p, { lr = 0.01 }) end,
    AdamW = function(p) return amp.optim.AdamW(p, { lr = 0.01, amsgrad = true }) end,
    RMSprop = function(p) return amp.optim.RMSprop(p, { lr = 0.01, momentum = 0.5 }) end,
  }
  for name, optimizer in pairs(optimizers) do
    for _, clip in ipairs { false, 0.5 } do
      it(('are the plain run bit for bit, in every gear: %s%s'):format(name, clip and ', clipped' or ''), function()
        local a, pa = train(false, optimizer, clip)
        local made = casts(function()
          local b, pb, scaler = train(true, optimizer, clip)
          assert.same(a, b)
          for k, v in pairs(pa) do H.same(pb[k], v, k) end
          assert.equal(1, scaler.scale_factor)
        end)
        assert.equal(0, made)
      end)
    end
  end
end)

--- detect_anomaly, doctor and profile: what they say, that they see backward and compiled code, and that they leave nothing behind.
local amp = require 'amp'
local core = require 'amp.ffi'
local H = require 'spec.lib.helper'
local nn, F = amp.nn, amp.nn.functional
local C, S = core.C, core.S

-- "tools_spec.lua:LINE" of the caller's line, plus an offset
local function here(offset)
  local info = debug.getinfo(2, 'Sl')
  return info.short_src .. ':' .. info.currentline + (offset or 0)
end

local function caught(...)
  local ok, e = pcall(amp.detect_anomaly, ...)
  assert.is_false(ok)
  assert.is_table(e)
  assert.is_table(e.anomaly, tostring(e))
  return e, e.anomaly
end

local function quiet()
  assert.equal(0, S.attention % 32 - S.attention % 16) -- no observer
  assert.equal(0, S.interrupt)
end

local function says(e, ...)
  for _, text in ipairs {...} do
    assert.is_truthy(tostring(e):find(text, 1, true), ('"%s" is not in: %s'):format(text, tostring(e)))
  end
end

local function small()
  amp.manual_seed(3)
  return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), amp.randn(5, 8), amp.tensor({1, 2, 3, 4, 1}, {dtype = 'int64'})
end

describe('amp.detect_anomaly', function()
  after_each(quiet)

  it('returns what the function returns, and passes arguments', function()
    local net, x, y = small()
    local opt = amp.optim.SGD(net:parameters(), {lr = 0.1})
    local a, b, c = amp.detect_anomaly(function(one, two)
      F.cross_entropy(net(x), y):backward()
      opt:step():clear_grad()
      return one, nil, two
    end, 1, 2)
    assert.same({1, nil, 2}, {a, b, c})
    assert.equal(7, amp.detect_anomaly({net = net}, function(v) return v end, 7))
  end)
  it('forward: names op, line, dtype, shape, operands', function()
    local x = amp.tensor{1, 0, 2}
    local line
    local e, a = caught(function()
      local y = x * 2
      line = here(1)
      return (y:log())
    end)
    says(e, 'first non-finite value (-Inf) in the output of amp.log', 'float32 of shape 3', 'called at ' .. line, 'step 1', 'every operand was finite')
    assert.same({'forward', 'log', line, 1, '-Inf'}, {a.pass, a.op, a.where, a.step, a.kind})
  end)
  it('forward: says which operand brought it, and the parameter', function()
    local net, x = small()
    amp.no_grad(function() net[3].weight[1][2] = 0 / 0 end)
    local e, a = caught(function() return (net(x)) end)
    assert.equal('net.3.weight', a.parameter)
    says(e, 'operand 2 had Inf or NaN already', 'net.3.weight', 'in module 3 of nn.Sequential')
  end)
  it('forward: in place, with what was there before', function()
    local x = amp.tensor{1, -1}
    local _, a = caught(function() x:clone():sqrt_() end)
    assert.equal('sqrt_', a.op)
    local e = caught(function() amp.tensor({1, 0 / 0}):add_(1) end)
    says(e, 'operand 1 had Inf or NaN already')
  end)
  it('infinities that the program asks for are none: masks, attributes, numbers', function()
    amp.detect_anomaly(function()
      local scores = amp.randn(3, 3)
      local mask = amp.full({3, 3}, -math.huge):triu(1)
      local a = (scores + mask):softmax(2)
      local b = scores:masked_fill(scores:gt(0), -math.huge):softmax(2)
      local c = amp.where(scores:gt(0), scores, math.huge):min()
      return a, b, c
    end)
    caught(function() return amp.full({2}, -math.huge) * 0 end)
  end)
  it('backward: names the forward line, the argument, the parameter and the step', function()
    local w = amp.ones(3, {requires_grad = true})
    local opt = amp.optim.SGD({w}, {lr = 1})
    local line
    local e, a = caught(function()
      for i = 1, 5 do
        local v = i < 3 and w or w * 0
        line = here(1)
        local root = v:sqrt()
        local loss = root:sum()
        loss:backward()
        opt:clear_grad()
        if i < 3 then
          w.grad = amp.zeros(3)
          opt:step():clear_grad()
        end
      end
    end)
    says(e, 'in the gradient of', 'of amp.sqrt', 'called at ' .. line, 'step 3', 'every gradient that came in was finite')
    assert.same({'backward', 'sqrt', line, 3, 'Inf'}, {a.pass, a.op, a.where, a.step, a.kind})
    local _, parameter = caught(function()
      local weight = amp.zeros(2, {requires_grad = true})
      weight:sqrt():sum():backward()
    end)
    assert.equal('weight', parameter.parameter)
  end)
  it("a gradient that overflows under the loss scale is told as the scale's fault", function()
    local net, x, y = small()
    local scaler = amp.GradScaler{init_scale = 2 ^ 24}
    local function step()
      local loss = amp.autocast({dtype = 'float16'}, function() return F.cross_entropy(net(x), y) end)
      scaler:scale(loss):backward()
    end
    local e, a = caught(step)
    says(e, 'the gradient overflowed under scale 16777216', 'amp.cross_entropy', 'init_scale')
    assert.is_true(a.overflow)
    assert.equal(2 ^ 24, a.scale)
    for _, p in ipairs(net:parameters()) do p.grad = nil end
    local warn, heard = amp.warn, 0
    amp.warn = function(text)
      heard = heard + 1
      assert.is_truthy(text:find('16777216', 1, true))
    end
    local ok, message = pcall(amp.detect_anomaly, {overflow = false}, step)
    amp.warn = warn
    assert.is_true(ok, tostring(message))
    assert.equal(1, heard)
    -- an infinite derivative is one under any scale
    local w = amp.zeros(2, {requires_grad = true})
    e, a = caught(function() scaler:scale(w:sqrt():sum()):backward() end)
    assert.is_false(a.overflow)
    assert.is_nil(tostring(e):find('overflowed', 1, true))
  end)
  it('names the parameter behind a cast', function()
    local net, x = small()
    x = x * 100
    local scaler = amp.GradScaler{init_scale = 2 ^ 14}
    local _, a = caught({overflow = true}, function()
      local loss = amp.autocast({dtype = 'float16'}, function() return net[1](x):float():mean() * 10 end)
      scaler:scale(loss):backward()
    end)
    assert.equal('backward', a.pass)
    assert.equal('linear', a.op)
    assert.equal('net.1.weight', a.parameter)
  end)
  it('sees amp.Function, hooks, checkpoints, amp.grad and double backward', function()
    local Bad = amp.Function{forward = function(_, t) return t * 1 end, backward = function(_, g) return g / 0 end}
    local x = amp.ones(2, {requires_grad = true})
    local _, a = caught(function() Bad(x):sum():backward() end)
    assert.is_truthy(a.op == 'Function' or a.op == 'div')
    _, a = caught(function()
      local y = x * 2
      y:register_hook(function(g) return g:log() - math.huge end)
      y:sum():backward()
    end)
    assert.is_string(a.op)
    _, a = caught(function() amp.checkpoint(function(t) return (t - 1):sqrt() end, x):sum():backward() end)
    assert.equal('sqrt', a.op)
    _, a = caught(function()
      local g = amp.grad((x - 1):pow(1.5):sum(), x, {create_graph = true})[1]
      g:sum():backward()
    end)
    assert.equal('backward', a.pass)
  end)
  it('an error of the function passes as it is', function()
    local mine = {}
    local ok, e = pcall(amp.detect_anomaly, function() error(mine, 0) end)
    assert.is_false(ok)
    assert.equal(mine, e)
  end)
  it('is there only inside, also where a coroutine yields out of it', function()
    local co = coroutine.wrap(function()
      return amp.detect_anomaly(function()
        local w = amp.zeros(1, {requires_grad = true})
        local y = w:sqrt():sum()
        coroutine.yield(1)
        y:backward()
      end)
    end)
    assert.equal(1, co())
    amp.tensor{0}:log() -- outside: nobody looks
    quiet()
    local ok, e = pcall(co)
    assert.is_false(ok)
    assert.equal('sqrt', e.anomaly.op)
  end)
  it('in compiled loops too', function()
    local x, n = amp.tensor{2, 3}, 0
    local _, a = caught(function()
      local y = x
      for i = 1, 500 do
        y = y * 1
        n = i
        if i == 400 then y = (y * 0):log() end
      end
    end)
    assert.equal('log', a.op)
    assert.equal(400, n)
  end)
  it('an interrupt is one, watched or not', function()
    local x = amp.ones(2)
    for _, run in ipairs {function(fn) fn() end, amp.detect_anomaly} do
      local ok, e = pcall(run, function()
        C.amp_interrupt(S)
        return (x + 1)
      end)
      assert.is_false(ok)
      assert.equal('interrupted', e.code)
      assert.equal(2, (x + 1)[1]:item())
    end
  end)
  it('refuses what is no function, and unknown options', function()
    for _, bad in ipairs {1, 'x', true} do
      local ok, e = pcall(amp.detect_anomaly, bad)
      assert.is_false(ok)
      says(e, 'must be a function')
    end
    local ok, e = pcall(amp.detect_anomaly, {overflw = true}, function() end)
    assert.is_false(ok)
    says(e, "unknown option 'overflw'", 'overflow')
    ok, e = pcall(amp.detect_anomaly, {}, nil)
    assert.is_false(ok)
    says(e, 'must be a function')
  end)
end)

describe('amp.profile', function()
  after_each(quiet)
  local net, x, y, opt
  before_each(function()
    net, x, y = small()
    opt = amp.optim.SGD(net:parameters(), {lr = 0.1})
  end)
  local line
  local function steps(n)
    for _ = 1, n do
      line = here(1)
      local loss = F.cross_entropy(net(x), y)
      loss:backward()
      opt:step():clear_grad()
    end
    return n
  end
  local function find(report, name, pass)
    for _, r in ipairs(report) do
      if r.name == name and r.pass == pass then return r end
    end
  end

  it('by op: calls, time and bytes, forward and backward apart, longest first', function()
    local r, n = amp.profile(function() return steps(3) end)
    assert.equal(3, n)
    local f, b = find(r, 'linear', 'forward'), find(r, 'linear', 'backward')
    assert.equal(6, f.calls)
    assert.equal(6, b.calls)
    assert.equal(3 * (5 * 16 + 5 * 4) * 4, f.bytes)
    assert.is_true(f.time > 0 and b.time > 0 and b.bytes > 0)
    assert.equal(3, find(r, 'optimizer step', 'update').calls)
    local sum = 0
    for i, row in ipairs(r) do
      sum = sum + row.time
      if i > 1 then assert.is_true(r[i - 1].time >= row.time) end
    end
    assert.is_true(sum <= r.wall * 1.01 and sum > 0)
    local text = tostring(r)
    for _, word in ipairs {'linear', 'backward', 'allocated', 'share', 'in all'} do assert.is_truthy(text:find(word, 1, true), text) end
  end)
  it('by line: backward counts where its forward was called', function()
    local r = amp.profile(function() return steps(2) end, {by = 'line', memory = false})
    local f, b = find(r, line, 'forward'), find(r, line, 'backward')
    assert.is_not_nil(f, tostring(r))
    assert.is_not_nil(b, tostring(r))
    assert.is_nil(tostring(r):find('allocated', 1, true))
    local file, number = line:match('^(.*):(%d+)$')
    assert.is_not_nil(find(r, file .. ':' .. number + 2, 'update'))
  end)
  it('counts every call of a compiled loop', function()
    local a = amp.ones(2)
    local function many() for _ = 1, 3000 do a:add_(1) end end
    many()
    local r = amp.profile(many)
    assert.equal(3000, find(r, 'add_', 'forward').calls)
  end)
  it('nests in the other tools', function()
    local inner
    amp.detect_anomaly(function() inner = amp.profile(function() return steps(1) end) end)
    assert.is_not_nil(find(inner, 'linear', 'forward'))
    local outer = amp.profile(function() amp.detect_anomaly(steps, 1) end)
    assert.equal(2, find(outer, 'linear', 'forward').calls)
  end)
  it('an error leaves nothing on; wrong options are named', function()
    assert.has_error(function() amp.profile(function() error('mine', 0) end) end, 'mine')
    for option, text in pairs {bye = 'unknown option', by = "'op' or 'line'", memory = 'true or false', limit = 'limit'} do
      local ok, e = pcall(amp.profile, function() end, {[option] = 'x'})
      assert.is_false(ok)
      says(e, text)
    end
  end)
end)

describe('amp.doctor', function()
  after_each(quiet)
  local function kinds(r)
    local set = {}
    for _, f in ipairs(r.findings) do
      set[f.kind] = (set[f.kind] or 0) + 1
      assert.is_true(#f.text > 10 and #f.advice > 10)
    end
    return set
  end

  it('finds dimensions, waits with their lines, casts, underflow per parameter', function()
    local net, x, y = small()
    local opt = amp.optim.SGD(net:parameters(), {lr = 1e-3})
    local scaler = amp.GradScaler{init_scale = 1024}
    local wait, product
    local calls = 0
    local r = amp.doctor(function()
      calls = calls + 1
      product = here(1)
      local loss = amp.autocast({dtype = 'float16'}, function() local l = F.cross_entropy(net(x), y) return l * 1e-6 end)
      scaler:scale(loss):backward()
      scaler:step(opt):update()
      opt:clear_grad()
      wait = here(1)
      local value = loss:item()
      return value
    end, {print = false})
    assert.equal(3, calls)
    local set = kinds(r)
    assert.equal(2, set.dimensions, tostring(r))
    assert.equal(product, r.dims[1].where)
    assert.is_truthy(r.dims[2].odd:find('out 4 (next: 8)', 1, true), r.dims[2].odd)
    assert.equal(1, set.wait)
    assert.same({wait, 'item', 1}, {r.waits[1].where, r.waits[1].what, r.waits[1].per_step})
    assert.equal(1, r.host_waits)
    assert.is_true(r.casts >= 1 and r.cast_bytes > 0 and r.cached_casts >= 4)
    assert.is_nil(set.casts) -- the optimizer wrote the weights' copies
    local seen = {}
    for _, u in ipairs(r.underflow) do seen[u.name] = u end
    local u = seen['net.3.bias']
    assert.is_not_nil(u, tostring(r))
    assert.is_true(u.zero + u.subnormal > 0.5, tostring(r))
    assert.is_true(u.zero_scaled < 0.3)
    assert.equal(1024, r.scale)
    assert.is_true(r.kernels + r.calls + r.lua < 1.05 and r.time > 0)
    assert.is_truthy(tostring(r):find('to change:', 1, true))
  end)
  it('a wait in a tail call is that of the function', function()
    local t, first = amp.ones(1), here(1)
    local r = amp.doctor(function() return t:item() end, {print = false})
    assert.same({first, 'item'}, {r.waits[1].where, r.waits[1].what})
  end)
  it('says what is missing: autocast, a scaler, a backward, an optimizer', function()
    local net, x, y = small()
    local set = kinds(amp.doctor(function() F.cross_entropy(net(x), y):backward() end, {print = false}))
    assert.equal(1, set.precision)
    assert.equal(1, set.optimizer)
    set = kinds(amp.doctor(function() amp.autocast({dtype = 'float16'}, function() return (net(x):sum()) end):float():backward() end, {print = false}))
    assert.equal(1, set.scaler)
    local bound
    for _ = 1, 20 do -- other work on the machine may hold up a single run
      set = kinds(amp.doctor(function() return (x + 1) end, {print = false, steps = 1}))
      assert.equal(1, set.step)
      bound = bound or set.bound
    end
    assert.equal(1, bound) -- one tiny op: it is all calls
  end)
  it('does not change the run it looks at', function()
    local function losses(through)
      local net, x, y = small()
      local opt, scaler = amp.optim.Adam(net:parameters(), {lr = 1e-2}), amp.GradScaler{init_scale = 2 ^ 10, growth_interval = 2}
      local out = {}
      local function step()
        local loss = amp.autocast({dtype = 'float16'}, function() return F.cross_entropy(net(x), y) end)
        scaler:scale(loss):backward()
        scaler:step(opt):update()
        opt:clear_grad()
        out[#out + 1] = loss:item()
      end
      through(step)
      out[#out + 1] = scaler:get_scale()
      return out
    end
    local plain = losses(function(step) for _ = 1, 4 do step() end end)
    assert.same(plain, losses(function(step) amp.doctor(step, {steps = 4, print = false}) end))
    assert.same(plain, losses(function(step) amp.profile(function() for _ = 1, 4 do step() end end) end))
    assert.same(plain, losses(function(step) amp.detect_anomaly(function() for _ = 1, 4 do step() end end) end))
  end)
  it('prints through amp.write_log; wrong options are named', function()
    local written, old = {}, amp.write_log
    amp.write_log = function(text) written[#written + 1] = text end
    local r = amp.doctor(function() end, {steps = 2})
    amp.write_log = old
    assert.equal(tostring(r), table.concat(written, '\n'))
    for option, text in pairs {stpes = 'unknown option', steps = 'steps', optimizer = 'optimizer', scaler = 'GradScaler'} do
      local ok, e = pcall(amp.doctor, function() end, {[option] = {}})
      assert.is_false(ok)
      says(e, text)
    end
  end)
end)

describe('an observer that is off', function()
  it('leaves no bit, no buffer and no listener', function()
    amp.profile(function() amp.ones(2):sum() end)
    quiet()
    assert.is_nil(require('amp.core.call').observe)
    assert.is_nil(require('amp.precision.scaler').on_scale)
    local live = H.live()
    for _ = 1, 20 do amp.detect_anomaly(function() amp.scope(function() amp.ones(100):sum() end) end) end
    assert.equal(live, H.live())
  end)
  it('loaded only when asked for', function()
    local out, status = H.child "local amp = require 'amp' print(package.loaded['amp.tools.observer'] == nil, type(amp.doctor))"
    assert.equal(0, status, out)
    assert.is_truthy(out:find 'true%s+function', out)
  end)
end)

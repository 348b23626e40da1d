-- amp.compile and net:hybridize: the values, gradients and draws of the plain calls, one graph per set of shapes, nothing
-- stale after a change of what the graph was made with.
local ffi = require 'ffi'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn, F = amp.nn, amp.nn.functional

local function warned(fn)
  local lines, before = {}, rawget(amp, 'warn')
  amp.warn = function(text) lines[#lines + 1] = text end
  local ok, e = pcall(fn)
  amp.warn = before
  assert(ok, e)
  return lines
end

local function same(a, b) assert.is_true(amp.equal(a, b), tostring(a) .. tostring(b)) end
local function near(a, b) assert.is_true(amp.allclose(a, b, 1e-5, 1e-6), tostring(a) .. tostring(b)) end

local function mlp()
  amp.manual_seed(7)
  return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 3))
end

describe('amp.compile', function()
  it('gives values and gradients of the module, in both modes', function()
    local net, other, x = mlp(), mlp(), amp.randn(5, 6)
    local f = amp.compile(net)
    for step = 1, 3 do
      amp.manual_seed(step)
      local y = f(x)
      F.cross_entropy(y, amp.tensor({1, 2, 3, 1, 2}, {dtype = 'int64'})):backward()
      amp.manual_seed(step)
      local z = other(x)
      F.cross_entropy(z, amp.tensor({1, 2, 3, 1, 2}, {dtype = 'int64'})):backward()
      near(y, z)
    end
    for i, p in ipairs(net:parameters()) do near(p.grad, other:parameters()[i].grad) end
    near(net[2].running_mean, other[2].running_mean)
    assert.equal(3, net[2].num_batches_tracked:item())
    net:eval() other:eval()
    near(f(x), other(x))
  end)

  it('takes tables and plain values, and gives them', function()
    local f = amp.compile(function(x, o, k) return {sum = x + o.bias, list = {x * k}}, k, nil end)
    local x = amp.ones(2)
    local r, k, none = f(x, {bias = x}, 3)
    same(r.sum, x * 2)
    same(r.list[1], x * 3)
    assert.equal(3, k)
    assert.is_nil(none)
    same(f(x, {bias = x}, 4).list[1], x * 4)
  end)

  it('has a second derivative', function()
    local f = amp.compile(function(x) return (x ^ 3):sum() end)
    local x = amp.tensor({1, 2, 3}, {requires_grad = true})
    local g = amp.grad({f(x)}, {x}, {create_graph = true})[1]
    near(amp.grad({g:sum()}, {x})[1], x:detach() * 6)
  end)

  it('sees steps, loads, replaced weights and places, modes, fields and upvalues', function()
    local net, x = mlp():eval(), amp.randn(4, 6)
    local f = amp.compile(net)
    local function check() near(f(x), net(x)) end
    check()
    amp.no_grad(function() net[1].weight:mul_(2) end) check()
    net:load_state_dict(mlp():state_dict()) check()
    net[5] = nn.Linear(16, 2):eval() check()
    net[5].weight = nn.Parameter(amp.randn(2, 16)) check()
    net[1].bias = nil check()
    net[4].p = 0.9 net:train()
    amp.manual_seed(3)
    local y = f(x)
    amp.manual_seed(3)
    near(y, net(x))
    local k, t = 2, amp.ones(3)
    local g = amp.compile(function(v) return v * k + t end)
    near(g(t), t * 3)
    k = 5 near(g(t), t * 6)
    t = amp.zeros(3) near(g(t), t)
  end)

  it('sees metatables, files that are required, and what lies in arrays and structs of C', function()
    local meta, number = {__index = {k = 2}}, ffi.new('double[1]', 2)
    local object = setmetatable({}, meta)
    package.loaded['spec.graph.required'] = {k = 2}
    local x = amp.ones(2)
    local by_object = amp.compile(function(v) return v * object.k end)
    local by_file = amp.compile(function(v) return v * require('spec.graph.required').k end)
    local by_number = amp.compile(function(v) return v * number[0] end)
    for _, f in ipairs {by_object, by_file, by_number} do near(f(x), x * 2) end
    meta.__index = {k = 3} near(by_object(x), x * 3)
    setmetatable(object, {__index = {k = 4}}) near(by_object(x), x * 4)
    package.loaded['spec.graph.required'].k = 3 near(by_file(x), x * 3)
    package.loaded['spec.graph.required'] = {k = 4} near(by_file(x), x * 4)
    number[0] = 3 near(by_number(x), x * 3)
    local outer = {k = 2}
    local by_global = amp.compile(setfenv(function(v) return v * k end, setmetatable({}, {__index = outer}))) -- luacheck: ignore k
    near(by_global(x), x * 2)
    outer.k = 3 near(by_global(x), x * 3)
    package.loaded['spec.graph.required'] = nil
    local large = ffi.new('double[4096]', 2)
    local lines = warned(function()
      local f = amp.compile(function(v) return v * large[4000] end)
      near(f(x), x * 2)
      large[4000] = 3 near(f(x), x * 3)
    end)
    assert.is_truthy(lines[1]:find('large', 1, true), lines[1])
  end)

  it('sees what metamethods do, objects of classes with a name, and methods of modules that are replaced', function()
    local k, meta, x = 2, {}, amp.ones(2)
    function meta.__mul(_, v) return v * k end
    local Named, Net = {__name = 'Named'}, nn.Module:extend('Net')
    Named.__index = Named
    function Net:forward(v) return v * 2 end -- luacheck: ignore self
    local factor, named, net = setmetatable({}, meta), setmetatable({k = 2}, Named), Net()
    local by_mul = amp.compile(function(v) return factor * v end)
    local by_name = amp.compile(function(v) return v * named.k end)
    local by_class = amp.compile(net)
    for _, f in ipairs {by_mul, by_name, by_class} do near(f(x), x * 2) end
    k = 3 near(by_mul(x), x * 3)
    meta.__mul = function(_, v) return v * 4 end
    near(by_mul(x), x * 4)
    named.k = 3 near(by_name(x), x * 3)
    function Net:forward(v) return v * 3 end -- luacheck: ignore self
    near(by_class(x), x * 3)
  end)

  it('sees other sizes and dtypes of tensors that it knows', function()
    local w, net, x = amp.ones(3), nn.Linear(2, 3), amp.ones(2)
    local by_tensor = amp.compile(function(v) return v * w:size(1) end)
    local by_module = amp.compile(function(v) return net(v:to(net.weight.dtype)) * net.weight:size(1) end)
    near(by_tensor(x), x * 3)
    near(by_module(x), net(x) * 3)
    w.data = amp.ones(5)
    near(by_tensor(x), x * 5)
    net:to('float64')
    near(by_module(x), net(x:to('float64')) * 3)
    net.weight:set_data(amp.ones(5, 2))
    net.bias.data = amp.zeros(5)
    near(by_module(x), amp.full({5}, 10))
  end)

  it('puts a metatable back that the function changes', function()
    local object = setmetatable({}, {__index = {k = 2}})
    local f = amp.compile(function(v)
      local y = v * object.k
      setmetatable(object, {__index = {k = object.k + 1}})
      return y
    end)
    local lines = warned(function()
      for k = 2, 4 do near(f(amp.ones(2)), amp.ones(2) * k) end
    end)
    assert.is_truthy(lines[1]:find('object', 1, true), lines[1])
  end)

  it('leaves a metatable that hides another as it is', function()
    local shown, calls = {}, 0
    local object = setmetatable({}, {__metatable = shown, __index = {k = 2}})
    local f = amp.compile(function(v)
      calls = calls + 1 -- a change, so that all is put back
      return v * object.k
    end)
    warned(function()
      for _ = 1, 3 do near(f(amp.ones(2)), amp.ones(2) * 2) end
    end)
    assert.equal(2, object.k)
    assert.equal(3, calls)
  end)

  it('tells a function the layout of an input that has a history', function()
    local f = function(v) return v * (v:is_contiguous() and 2 or 3) + v:stride(1) end
    local base = amp.ones(3, 4):requires_grad_()
    local made = {
      function() return base * 1 end, function() return (base * 1):t() end, function() return (base * 1):narrow(2, 1, 2) end,
      function() return (base * 1):select(2, 1):unsqueeze(2) end, function() return (base * 1):narrow(1, 2, 1):expand(5, 4) end,
      function() return (base * 1):narrow(2, 1, 0) end,
    }
    for _, input in ipairs(made) do
      local g, grads = amp.compile(f), {}
      for _ = 1, 2 do near(g(input()), f(input())) end
      for k, h in ipairs {f, g} do grads[k] = amp.grad(h(input()):sum(), {base})[1] end
      near(grads[2], grads[1])
    end
  end)

  it('leaves what asks for a place in memory to plain calls', function()
    local f, base = amp.compile(function(v) return v * v:storage_offset() end), amp.ones(8)
    local lines = warned(function()
      for at = 1, 3 do near(f(base:narrow(1, at, 2)), amp.ones(2) * (at - 1)) end
    end)
    assert.is_truthy(lines[1]:find('a place in memory is read', 1, true), lines[1])
  end)

  it('runs what has no elements and is expanded', function()
    local f = function(v) return amp.nn.functional.silu(v:abs():unsqueeze(1):expand(3, 0, 4) * 2) end
    local function chain(v) return (v + 1):unsqueeze(1):expand(3, 0, 4):exp():log() end
    for _, h in ipairs {f, chain} do
      local g = amp.compile(h)
      assert.same({3, 0, 4}, {unpack(amp.no_grad(function() return g(amp.ones(0, 4)) end):size())})
    end
  end)

  it('keeps a graph for each mode that comes by turns', function()
    local net, x = mlp(), amp.randn(5, 6)
    local f, plain = amp.compile(net), net:clone()
    local lines = warned(function()
      for epoch = 1, 12 do
        for _, m in ipairs {net, plain} do m:train(epoch % 2 == 1) end
        amp.manual_seed(epoch)
        local y = f(x)
        amp.manual_seed(epoch)
        near(y, plain(x))
      end
    end)
    assert.equal(0, #lines, lines[1])
  end)

  it('follows regions and grad modes', function()
    local net, x = nn.Linear(4, 4), amp.randn(2, 4)
    local f = amp.compile(net)
    assert.equal('float32', f(x).dtype)
    assert.equal('bfloat16', amp.autocast(function() return f(x).dtype end))
    assert.equal('float16', amp.autocast({dtype = 'float16'}, function() return f(x).dtype end))
    assert.is_false(amp.no_grad(function() return f(x).requires_grad end))
    assert.is_true(f(x).requires_grad)
  end)

  it('runs what it can\'t trace as it is, and says so once', function()
    local f = amp.compile(function(x)
      if x:sum():item() > 0 then return x end
      return -x
    end)
    local x = amp.ones(2)
    local lines = warned(function()
      same(f(x), x)
      same(f(-x), x)
    end)
    assert.equal(1, #lines)
    assert.is_truthy(lines[1]:find('compile_spec.lua:%d+'), lines[1])
    assert.is_truthy(lines[1]:find('value is read', 1, true), lines[1])
  end)

  it('refuses to freeze a field that the call sets to a tensor', function()
    local Net = nn.Module:extend('Net')
    function Net:forward(x)
      self.last = x * 2
      return self.last + 1
    end
    local net = Net()
    local f = amp.compile(net)
    local lines = warned(function()
      f(amp.ones(2))
      f(amp.ones(2))
    end)
    assert.is_truthy(lines[1] and lines[1]:find("field 'last' of Net", 1, true), lines[1])
    f(amp.ones(2) * 3)
    assert.equal(6, net.last[1]:item())
  end)

  it('has what a first call makes in a module at the second', function()
    local Net = nn.Module:extend('Net')
    function Net:forward(x)
      if not self.mask then self.mask = amp.ones(2) * 2 end
      return x * self.mask
    end
    local net = Net()
    local f = amp.compile(net)
    local lines = warned(function()
      for i = 1, 3 do same(f(amp.ones(2) * i), amp.ones(2) * (2 * i)) end
    end)
    assert.equal(0, #lines)
  end)

  it('leaves counters in modules and upvalues alone', function()
    local Net = nn.Module:extend('Net')
    function Net:init() self.count = 0 end
    function Net:forward(x)
      self.count = self.count + 1
      return x * self.count
    end
    local net = Net()
    local f = amp.compile(net)
    warned(function()
      for _ = 1, 12 do f(amp.ones(1)) end
    end)
    local before = net.count
    assert.equal(before + 1, f(amp.ones(1)):item())
    local n = 0
    local g = amp.compile(function(x)
      n = n + 1
      return x * n
    end)
    warned(function()
      local last = g(amp.ones(1)):item()
      assert.equal(last + 1, g(amp.ones(1)):item())
    end)
  end)

  it('passes an error of the function on and leaves nothing behind', function()
    local f = amp.compile(function(x) return x + amp.ones(3) end)
    H.fails(function() f(amp.ones(2)) end, '3', '2')
    local object = {}
    local ok, e = pcall(amp.compile(function() error(object) end), amp.ones(1))
    assert.is_false(ok)
    assert.is_true(rawequal(object, e))
    assert.is_true(amp.is_grad_enabled())
    same(f(amp.ones(3)), amp.ones(3) * 2)
  end)

  it('names what is wrong with its arguments', function()
    H.fails(function() amp.compile(3) end, 'compile', 'a function or module is expected')
    H.fails(function() amp.compile(mlp(), {dynamics = true}) end, 'dynamics', 'dynamic')
    H.fails(function() amp.compile(mlp(), {dynamic = 3}) end, 'dynamic')
  end)
end)

describe('hybridize', function()
  it('runs calls as graphs, gradients included, and is undone', function()
    local net, x = mlp(), amp.randn(5, 6)
    local plain = net:clone()
    assert.equal(net, net:hybridize{static_alloc = true, static_shape = true})
    amp.manual_seed(1)
    local y = net(x)
    y:sum():backward()
    amp.manual_seed(1)
    local z = plain(x)
    z:sum():backward()
    near(y, z)
    near(net[1].weight.grad, plain[1].weight.grad)
    assert.is_not_nil(net:_graph('spec'))
    net:hybridize(false)
    H.fails(function() net:_graph('spec') end, 'not hybridized')
    amp.manual_seed(1)
    near(net(x):sum(), plain(x):sum() * 0 + net(x):sum() * 0 + (function() amp.manual_seed(1) return net(x):sum() end)())
  end)

  it('keeps hooks, which run around it', function()
    local net, x = nn.Linear(3, 3), amp.ones(1, 3)
    local seen = 0
    net:register_forward_hook(function(_, _, y)
      seen = seen + 1
      return y * 2
    end)
    local want = net(x)
    net:hybridize()
    same(net(x), want)
    same(net(x), want)
    assert.equal(3, seen)
  end)

  it('says what is wrong', function()
    local net = mlp()
    H.fails(function() net:hybridize{static_shape = true} end, 'static_alloc')
    H.fails(function() net:hybridize{static = true} end, 'static')
    H.fails(function() net:export('x') end, 'not hybridized')
    net:hybridize()
    H.fails(function() net:export('x') end, 'never run')
  end)

  it('holds at most 8 sets of shapes that share no free size', function()
    local net = nn.Linear(3, 3):hybridize()
    local lines = warned(function()
      for i = 1, 12 do same(net(amp.ones(i, 3)), nn.functional.linear(amp.ones(i, 3), net.weight, net.bias)) end
    end)
    assert.is_true(#lines <= 1)
  end)
end)

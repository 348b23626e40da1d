--- What a graph sees outside of its inputs is what is there when it runs: the region around a run, tensors that others write.
local amp = require 'amp'
local nn = amp.nn
local H = require 'spec.lib.helper'

local function net() return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)) end
local x = amp.randn(3, 4)

describe('a region around a run', function()
  local layer = nn.Linear(4, 4)
  local doubled = amp.half_function(function(a) return a * 2 end)
  local wide = amp.float_function(function(a) return a + 1 end)
  local widest = amp.promote_function(function(a, b) return a + b end)
  local functions = {
    function(a) return doubled(a) + 0 end,
    function(a) return wide(layer(a)) end,
    function(a) return widest(layer(a), a) end,
    function(a) if amp.is_autocast_enabled() then return layer(a) * 3 end return layer(a) end,
    function(a) return a:to(amp.is_autocast_enabled() and amp.get_autocast_dtype() or 'float64') end,
    function(a) if amp.enabled then return -a end return a end,
  }
  for i, f in ipairs(functions) do
    it(('does what it does around function %d, which asks for it'):format(i), function()
      local outside = amp.graph.trace(f, {x})
      local inside = amp.autocast(function() return amp.graph.trace(f, {x}) end)
      for _, g in ipairs {outside, inside, outside:optimize(), inside:optimize()} do
        for _, dtype in ipairs {'bfloat16', 'float16'} do
          local made, wanted = amp.autocast({dtype = dtype}, g.run, g, x), amp.autocast({dtype = dtype}, f, x)
          assert.equal(wanted.dtype, made.dtype)
          assert.is_true(made:equal(wanted))
        end
        assert.equal(f(x).dtype, g(x).dtype)
        assert.is_true(g(x):equal(f(x)))
      end
    end)
  end

  it('is followed by a graph of other sizes and in the mode of its tracing', function()
    local drop = nn.Dropout(0.5):eval()
    local f = function(a) return drop(doubled(a)) end
    local g = amp.graph.trace(f, {x}, {dynamic = {1}})
    drop:train()
    local y = amp.randn(7, 4)
    assert.is_true(amp.autocast(g.run, g, y):equal(amp.autocast(doubled, y)))
    assert.is_true(drop.training)
  end)

  it('is not asked for where the function has its own', function()
    local g = amp.graph.trace(function(a) return amp.autocast({dtype = 'float16'}, doubled, a) end, {x})
    assert.is_false(g.again)
    assert.equal('float16', g(x).dtype)
  end)

  it('is refused where the function is not known any more', function()
    local path = os.tmpname()
    amp.graph.trace(functions[1], {x}):save(path)
    local g = amp.load_graph(path)
    os.remove(path)
    assert.is_true(g(x):equal(x * 2))
    assert.error_matches(function() amp.autocast(g.run, g, x) end, 'asked for the region it was in')
  end)
end)

describe('a tensor that a function sees', function()
  it('is read anew where constants were computed of it', function()
    local c, k, p = amp.tensor {1, 2, 3}, amp.tensor {1, 1, 1}, amp.tensor({2, 2, 2}, {requires_grad = true})
    local f = function(a) return a * ((c + 1) * 2):neg() + (k - c) * p end
    local y, path = amp.ones(3), os.tmpname()
    local g = amp.graph.trace(f, {y}):optimize()
    assert.equal(3, #g:nodes()) -- the rest is computed
    local function same(h)
      assert.is_true((h or g)(y):equal(f(y)))
      assert.is_true(amp.no_grad(h or g, y):equal(amp.no_grad(f, y)))
    end
    same()
    for _ = 1, 3 do
      c:add_(1)
      same()
      k[2] = k[2] * 3
      same()
    end
    c:fill_(5)
    g:save(path)
    same(amp.load_graph(path))
    os.remove(path)
    k:fill_(-1)
    same(amp.graph.trace(function(a) return g(a) end, {y}))
  end)
end)

describe('parameters of 16 bits', function()
  it('stay so when the casts of a conversion go, unless it lowered them', function()
    local n, path = net(), os.tmpname()
    n[3]:to 'bfloat16'
    local f = function(a) return n[3](n[1](a):to 'bfloat16') end
    for _, lower in ipairs {false, true} do
      local g = amp.convert_model(amp.graph.trace(f, {x}), {target_dtype = 'bfloat16', cast_optional_params = lower})
      g:save(path)
      local loaded = amp.load_graph(path)
      for _, h in ipairs {g, loaded, amp.graph.trace(function(a) return g(a) end, {x}), amp.graph.trace(function(a) return loaded(a) end, {x})} do
        h:save(path, {remove_amp_cast = true})
        local dtypes = {}
        for _, p in ipairs(amp.load_graph(path):parameters()) do dtypes[#dtypes + 1] = p.dtype end
        assert.same({'float32', 'float32', 'bfloat16', 'bfloat16'}, dtypes)
      end
    end
    os.remove(path)
  end)
end)

describe('a converted module', function()
  it('goes to float64 and back', function()
    for _, given in ipairs {{}, {cast_optional_params = true}, {target_dtype = 'float16'}} do
      local n = net()
      n:hybridize()
      n(x)
      local c = amp.convert_hybrid_block(n, given)
      local before = c(x)
      c:double()
      local y = c(x:double())
      assert.equal('float64', y.dtype)
      assert.is_true(amp.allclose(y, n:clone():double()(x:double()), {rtol = 0.05, atol = 0.05}))
      y:sum():backward()
      assert.equal('float64', c:parameters()[1].grad.dtype)
      assert.error_matches(function() c(x) end, 'float64 and float32')
      c:zero_grad()
      c:float()
      assert.is_true(amp.allclose(c(x), before, {rtol = 0.05, atol = 0.05}))
    end
  end)
end)

describe('a range of a dimension of free size', function()
  local function follows(f, ...)
    local g = amp.graph.trace(f, {amp.randn(6, 3)}, {dynamic = {1}})
    for _, n in ipairs {1, 2, 3, 9, 40} do
      local y = amp.randn(n, 3)
      local good, wanted = pcall(f, y)
      local ran, made = pcall(g, y)
      assert.equal(good, ran)
      if good then assert.is_true(made:equal(wanted)) end
    end
    return ...
  end
  it('follows ends that are made of sizes', function()
    follows(function(a) return a[{{1, a:size(1) - 1}}] end)
    follows(function(a) local n = a:size(1) return a[{{2, n}}] - a[{{1, n - 1}}] end)
    follows(function(a) return a[{{1, a:size(1) - 3}}] end)
    follows(function(a) return a[{{a:size(1) - 1, a:size(1)}, {1, 2}}] end)
    follows(function(a) return a[{{1, -2}}] end)
    follows(function(a) return a[{{-2, -1}}] end)
    follows(function(a) return a[{{1, a:size(1), 2}}] end)
    follows(function(a) a = a * 1 a[{{1, a:size(1) - 1}}] = 0 return a end)
  end)
end)

describe('the places of a container', function()
  -- few are looked at by code made for them, many by loops
  for _, count in ipairs {3, 300} do
    local function of()
      local list = {}
      for i = 1, count do list[i] = i % 2 == 1 and nn.Identity() or nn.ReLU() end
      local made = nn.Sequential(unpack(list)):eval()
      return made, amp.compile(made)
    end
    local function follows(change)
      local made, compiled = of()
      amp.no_grad(function()
        assert.is_true(compiled(x):equal(made(x)))
        change(made)
        for _ = 1, 2 do assert.is_true(compiled(x):equal(made(x))) end
        assert.is_false(made(x):equal(x))
      end)
    end
    it('are watched: one of ' .. count .. ' is another', function() follows(function(made) made[1] = nn.Tanh() end) end)
    it('are watched: one more than ' .. count, function() follows(function(made) table.insert(made, nn.Sigmoid()) end) end)
    it('are watched: one less than ' .. count, function()
      follows(function(made)
        made[count - 1] = nn.Tanh()
        table.remove(made)
      end)
    end)
  end

  it('keep no call out of compiled code', function()
    if not jit.status() then return pending 'LuaJIT does not compile here' end
    local log = H.tmp 'traces'
    local out, status = H.child([[
      local nn = amp.nn
      local net, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Tanh())):eval(), amp.randn(2, 4)
      local run = amp.compile(net)
      for _ = 1, 50 do amp.no_grad(run, x) end -- what is asked once
      require('jit.v').start(']] .. log .. [[')
      for _ = 1, 2000 do amp.no_grad(run, x) end
      require('jit.v').off()
    ]])
    assert.equal(0, status, out)
    local lines = H.read(log)
    for line in lines:gmatch '[^\n]+' do
      assert.is_nil(line:find '%-%-%- .*graph/', line)
      assert.is_nil(line:find('inner loop', 1, true), line)
    end
  end)
end)

describe('what a function sees', function()
  for _, count in ipairs {2, 45} do
    it(('is looked at in each call, %d upvalues'):format(count), function()
      local lines = {'local amp = ... local t, setting = {scale = 1}, 1'}
      for i = 1, count do lines[#lines + 1] = ('local n%d = %d'):format(i, i) end
      lines[#lines + 1] = 'return function(a) return a * setting * t.scale * (FACTOR or 1)'
      for i = 1, count do lines[#lines + 1] = (' + n%d'):format(i) end
      lines[#lines + 1] = ('end, function(v) setting = v end, function(v) n%d = v end, t'):format(count)
      local f, set, last, t = loadstring(table.concat(lines, ' '))(amp)
      local environment = setmetatable({}, {__index = _G})
      setfenv(f, environment)
      for _, change in ipairs {function() set(2) end, function() last(0.5) end, function() t.scale = 3 end, function() t.other = 1 end,
        function() environment.FACTOR = 4 end} do
        local compiled = amp.compile(f)
        local before = f(x)
        for _ = 1, 3 do assert.is_true(compiled(x):equal(before)) end
        change()
        for _ = 1, 3 do assert.is_true(compiled(x):equal(f(x))) end
        if not t.other or environment.FACTOR then assert.is_false(compiled(x):equal(before)) end
      end
    end)
  end
end)

describe('a graph of few tensors in and out', function()
  it('gives what the function gives, as many values', function()
    for n = 1, 5 do
      for m = 1, 5 do
        local function f(...)
          local sum, made = (select(1, ...)) * 1, {}
          for i = 2, n do sum = sum + (select(i, ...)) * i end
          for i = 1, m do made[i] = sum * i end
          return unpack(made, 1, m)
        end
        local given = {}
        for i = 1, n do given[i] = amp.randn(3, 2) end
        local g, compiled = amp.graph.trace(f, given), amp.compile(f)
        for _ = 1, 3 do
          local wanted, made, again = {f(unpack(given))}, {g(unpack(given))}, {compiled(unpack(given))}
          assert.equal(m, #made)
          assert.equal(m, #again)
          for i = 1, m do assert.is_true(made[i]:equal(wanted[i]) and again[i]:equal(wanted[i])) end
        end
        for i = 1, n do
          local wrong = {unpack(given)}
          wrong[i] = 'a text'
          assert.is_false((pcall(g, unpack(wrong))))
          wrong[i] = amp.randn(3, 3)
          assert.error_matches(function() g(unpack(wrong)) end, '3x3')
        end
        assert.is_false((pcall(g, unpack(given, 1, n - 1))))
      end
    end
  end)
end)

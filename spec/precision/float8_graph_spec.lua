--- Regions of 8 bits in graphs, captured and compiled steps, coroutines, custom functions, and several states.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn, F = amp.nn, amp.nn.functional
if H.device then amp.set_default_device(H.device) end

local function net()
  amp.manual_seed(3)
  return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 16))
end

local function apart(a, b) return ((a:float() - b:float()):norm() / (b:float():norm() + 1e-30)):item() end

describe('a graph', function()
  for _, recipe in ipairs { 'current', 'delayed', 'block' } do
    it(recipe .. ': does in a region of 8 bits what the function does, with gradients', function()
      local a, b = net(), net()
      local g = amp.trace(b, amp.randn(16, 16)):optimize()
      local options = { dtype = 'float8', recipe = recipe }
      for n = 1, 3 do
        local x = amp.randn(16, 16) * n
        local y = amp.autocast(options, function() return a(x) end)
        local z = amp.autocast(options, function() return g(x) end)
        assert.equal('bfloat16', z.dtype)
        assert(apart(z:detach(), y:detach()) < 0.02, apart(z:detach(), y:detach()))
        y:float():sum():backward()
        z:float():sum():backward()
      end
      for i, p in ipairs(a:parameters()) do assert(apart(b:parameters()[i].grad, p.grad) < 0.05) end
      assert.same(recipe == 'delayed', next(amp.float8_state(a)) ~= nil)
      assert.same(amp.float8_state(a), amp.float8_state(b))
    end)

    it(recipe .. ': keeps a region inside, in a file too', function()
      local m = net()
      local function f(x) return amp.autocast({ dtype = 'float8', recipe = recipe, history = 300, base = 'float16' }, function() return m(x) end) end
      local g = amp.trace(f, amp.randn(16, 16))
      local path = H.tmp('float8_graph_' .. recipe)
      g:save(path)
      local back = amp.load_graph(path, H.device and { map_location = H.device } or nil)
      local x = amp.randn(16, 16)
      local before = amp.counters().float8_casts
      local y = g(x)
      assert.equal('float16', y.dtype)
      assert(amp.counters().float8_casts > before)
      assert(amp.equal(back(x):detach(), y:detach()) or recipe == 'delayed')
      local text = tostring(g)
      assert(text:find 'float8', text)
    end)

    it(recipe .. ': a compiled or captured step trains as the eager one', function()
      local function run(wrap)
        local m = net()
        local opt = amp.optim.SGD(m:parameters(), { lr = 0.05 })
        local step = wrap(function(x, t)
          local loss = amp.autocast({ dtype = 'float8', recipe = recipe, history = 2 }, function() return F.mse_loss(m(x), t) end)
          loss:backward()
          opt:step():clear_grad()
          return loss
        end)
        local last
        for n = 1, 6 do
          amp.manual_seed(n)
          last = step(amp.randn(16, 16) * n, amp.randn(16, 16))
        end
        return last:item(), amp.float8_state(m)
      end
      local eager, state = run(function(f) return f end)
      local captured, other = run(amp.capture)
      assert.near(eager, captured, 1e-2 * math.abs(eager))
      local function sizes(s) local n = 0 for _, v in pairs(s) do n = n + #v.input + #v.gradient end return n end
      assert.equal(sizes(state), sizes(other))
    end)
  end

  it('that amp.compile makes follows the region it runs in', function()
    local m = net()
    local f = amp.compile(function(x) return m(x) end)
    local x = amp.randn(16, 16)
    for _ = 1, 2 do
      assert.equal('float32', f(x).dtype)
      local y = amp.autocast({ dtype = 'float8' }, function() return f(x) end)
      local z = amp.autocast({ dtype = 'bfloat16' }, function() return f(x) end)
      assert(y.dtype == 'bfloat16' and apart(y:detach(), z:detach()) > 1e-3)
      assert(apart(amp.autocast({ dtype = 'float8' }, function() return m(x) end):detach(), y:detach()) < 0.02)
    end
  end)
end)

describe('a region of 8 bits', function()
  it('ends as it began: errors, coroutines, nested ones', function()
    local m = net()
    local x = amp.randn(16, 16)
    assert(not pcall(amp.autocast, { dtype = 'float8', exclude = { '1' } }, function() error 'stop' end))
    assert.equal(false, amp.is_autocast_enabled())
    local co = coroutine.wrap(function()
      amp.autocast({ dtype = 'float8', exclude = { '1' } }, function()
        coroutine.yield(amp.get_autocast_dtype())
        coroutine.yield(m(x).dtype)
        coroutine.yield(amp.get_autocast_dtype())
      end)
    end)
    assert.equal('float8', co())
    assert.equal(false, amp.is_autocast_enabled())
    local before = amp.counters().float8_casts
    assert.equal('float32', m(x).dtype)
    assert.equal(before, amp.counters().float8_casts)
    assert.equal('bfloat16', co())
    assert.equal(before + 4, amp.counters().float8_casts)
    assert.equal('float8', co())
  end)

  it('is seen by custom functions, whose backward runs in the forward\'s state', function()
    local seen = {}
    local w = amp.randn(16, 16, { requires_grad = true })
    local f = amp.Function { forward = amp.custom_fwd(function(ctx, x)
      seen[1] = amp.get_autocast_dtype()
      ctx:save_for_backward(x)
      return F.linear(x, w:detach())
    end), backward = amp.custom_bwd(function(_, g)
      seen[2] = amp.get_autocast_dtype()
      return g:float()
    end) }
    local x = amp.randn(16, 16, { requires_grad = true })
    local y = amp.autocast({ dtype = 'float8' }, function() return f(x) end)
    y:float():sum():backward()
    assert.same({ 'float8', 'float8' }, seen)
    local cast = amp.half_function(function(t) return t.dtype end)
    assert.equal('bfloat16', amp.autocast({ dtype = 'float8' }, function() return cast(x) end))
  end)

  it('has second derivatives', function()
    local m = nn.Linear(16, 16)
    local x = amp.randn(16, 16, { requires_grad = true })
    local y = amp.autocast({ dtype = 'float8' }, function() return m(x):float():pow(2):sum() end)
    local g = amp.grad({ y }, { x }, { create_graph = true })[1]
    g:pow(2):sum():backward()
    local z = m(x):pow(2):sum()
    local p = amp.grad({ z }, { x }, { create_graph = true })[1]
    local mine = m.weight.grad:clone()
    m.weight.grad = nil
    p:pow(2):sum():backward()
    assert(apart(g:detach(), p:detach()) < 0.15 and apart(mine, m.weight.grad) < 0.3)
  end)

  it('prints its casts', function()
    local lines = H.child [[
      local amp = require 'amp'
      local m = amp.nn.Linear(16, 16)
      local x = amp.randn(16, 16)
      amp.autocast({dtype = 'float8', verbose = true}, function() m(x) m(x) end)
    ]]
    assert(lines:find('linear: argument 1 from float32 to float8_e4m3, 16x16', 1, true), lines)
    assert(lines:find('linear: argument 2 from float32 to float8_e4m3, 16x16, cached', 1, true), lines)
  end)
end)

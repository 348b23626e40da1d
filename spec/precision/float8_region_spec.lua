--- Regions of 8 bits: their three products against a reference in plain Lua, what they take, what stays in the base,
-- histories, copies of weights. AMP_SPEC_DEVICE names the device.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local R = require 'spec.lib.float8_reference'
local nn, F = amp.nn, amp.nn.functional
if H.device then amp.set_default_device(H.device) end

local nan = 0 / 0
local RECIPES = { 'current', 'delayed', 'block' }

local function region(o, f, ...)
  o.dtype = 'float8'
  return amp.autocast(o, f, ...)
end

local function casts(f)
  local before = amp.counters()
  f()
  local after = amp.counters()
  return after.float8_casts - before.float8_casts, after.casts - before.casts, after.cached_casts - before.cached_casts
end

-- Hopper's 8-bit units keep some 14 bits of a sum of a few terms, all else float32's.
local card = H.device and not amp.cuda.get_device_properties().name:find 'emulated'
local SUMS = card and 2 ^ -11 or 2e-5

-- Within half a unit of the last place of the base, and of the rounding of a sum as large as a row's largest.
local function near(t, want, what, digits)
  local got = t:detach():cpu():double():tolist()
  local unit = 2 ^ -(digits or 8)
  for i = 1, #want do
    local row = 0
    for _, v in ipairs(want[i]) do row = v == v and math.max(row, math.abs(v)) or row end
    for j = 1, #want[i] do
      local a, b = got[i][j], want[i][j]
      if b ~= b then assert(a ~= a or math.abs(a) == math.huge, ('%s: [%d][%d] is %g, not NaN'):format(what, i, j, a))
      elseif math.abs(a - b) > unit * math.abs(b) * 1.01 + SUMS * row or a ~= a then
        error(('%s: [%d][%d] is %.9g, not %.9g'):format(what, i, j, a, b), 2)
      end
    end
  end
end

local function run(o, x, w, dy)
  local tx, tw = amp.tensor(x, { requires_grad = true }), amp.tensor(w, { requires_grad = true })
  local y = region(o, function() return F.linear(tx, tw) end)
  if dy then y:backward(amp.tensor(dy):to(y.dtype)) end
  return y, tx.grad, tw.grad
end

local function lists(rows, cols, scale)
  return (amp.randn(rows, cols) * (scale or 1)):to 'bfloat16':float():cpu():tolist()
end

describe('linear in 8 bits', function()
  for _, recipe in ipairs(RECIPES) do
    for _, base in ipairs { 'bfloat16', 'float16' } do
      for _, size in ipairs { { 16, 16, 16 }, { 32, 48, 16 }, { 16, 144, 272 }, { 176, 16, 32 } } do
        it(('%s, base %s, %dx%dx%d: all three products are the reference\'s'):format(recipe, base, size[1], size[2], size[3]), function()
          amp.manual_seed(size[2])
          local x, w, dy = lists(size[1], size[2]), lists(size[3], size[2], 0.1), lists(size[1], size[3], base == 'float16' and 1 or 1e-3)
          if base == 'float16' then dy = amp.tensor(dy):half():float():tolist() end
          local y, dx, dw = R.linear(x, w, dy, { recipe = recipe })
          local a, b, c = run({ recipe = recipe, base = base }, x, w, dy)
          assert.equal(base, a.dtype)
          assert.same({ 'float32', 'float32' }, { b.dtype, c.dtype })
          near(a, y, 'y', base == 'float16' and 11 or 8)
          near(b, dx, 'dx', base == 'float16' and 9 or 8)
          near(c, dw, 'dw', base == 'float16' and 9 or 8)
        end)
      end
    end

    it(recipe .. ': zeros give zeros, and what is not finite comes out so in its row or column', function()
      local x, w, dy = lists(32, 32), lists(16, 32), lists(32, 16)
      x[3][5], w[7][2], dy[9][4], x[4][1] = math.huge, nan, -math.huge, nan
      local y, dx, dw = R.linear(x, w, dy, { recipe = recipe })
      local a, b, c = run({ recipe = recipe }, x, w, dy)
      near(a, y, 'y')
      near(b, dx, 'dx')
      near(c, dw, 'dw')
      local zeros = amp.zeros(16, 16):tolist()
      for _, v in ipairs { { run({ recipe = recipe }, zeros, zeros, zeros) } } do
        for i = 1, 3 do assert(amp.equal(v[i]:float(), amp.zeros(16, 16))) end
      end
    end)

    it(recipe .. ': the largest and the smallest float32 are scaled, too', function()
      if card and recipe == 'block' then return end -- units multiply by one piece's scale after the other, in float32
      local x, w = amp.full({ 16, 16 }, 3.4028234663852886e38):tolist(), amp.full({ 16, 16 }, 1e-40):tolist()
      local y = run({ recipe = recipe }, x, w)
      near(y, R.linear(x, w, nil, { recipe = recipe }), 'y')
    end)

    it(recipe .. ': a trained layer agrees with one in bfloat16 but for rounding', function()
      amp.manual_seed(2)
      local net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16))
      local copy = net:clone()
      local x, g = amp.randn(4, 8, 32), amp.randn(4, 8, 16)
      local y = region({ recipe = recipe }, function() return net(x) end)
      local z = amp.autocast({ dtype = 'bfloat16' }, function() return copy(x) end)
      y:backward(g:to(y.dtype))
      z:backward(g:to(z.dtype))
      local function apart(a, b) return ((a:float() - b:float()):norm() / b:float():norm()):item() end
      assert(apart(y, z) < 0.3 and apart(y, z) > 1e-3)
      for i, p in ipairs(net:parameters()) do assert(apart(p.grad, copy:parameters()[i].grad) < 0.3) end
    end)
  end

  it('says float8, and its options are checked by name', function()
    region({}, function()
      assert.equal('float8', amp.get_autocast_dtype())
      assert.equal(true, amp.is_autocast_enabled())
      amp.autocast({ dtype = 'float16' }, function() assert.equal('float16', amp.get_autocast_dtype()) end)
      amp.autocast({ enabled = false }, function() assert.equal(false, amp.is_autocast_enabled()) end)
      assert.equal('float8', amp.get_autocast_dtype())
      amp.enabled = false
      assert.equal(0, (casts(function() F.linear(amp.ones(16, 16), amp.ones(16, 16)) end)))
      amp.enabled = true
      assert.equal(2, (casts(function() F.linear(amp.ones(16, 16), amp.ones(16, 16)) end)))
    end)
    for option, list in pairs { recipe = { 'Current', 1, 'mx' }, base = { 'float32', 'float8', 1 }, history = { 0, -1, 1.5, '16', 1e9 },
      exclude = { 'head', { 1 }, { head = true }, { '' }, { 'a..b' }, true } } do
      for _, v in ipairs(list) do
        H.fails(function() region({ [option] = v }, function() end) end, option)
        H.fails(function() amp.autocast.wrap(function() end, { dtype = 'float8', [option] = v }) end, option)
      end
    end
    H.fails(function() amp.autocast({ recipe = 'current' }, function() end) end, 'recipe', 'float8')
    H.fails(function() region({ histry = 3 }, function() end) end, 'histry', 'history')
    H.fails_here(function() region({ recipe = 'none' }, function() end) end, 'recipe')
  end)

  it('takes products by a leaf that requires grad, in every form, and no others', function()
    local w = amp.randn(32, 16, { requires_grad = true })
    local x, v = amp.randn(2, 16, 32), amp.randn(32, 16)
    local function eight(f)
      local y
      local n = casts(function() y = region({}, f) end)
      assert.equal('bfloat16', y.dtype)
      return n
    end
    local function like(f, want)
      assert(eight(f) > 0)
      local y = region({}, f):detach():float()
      assert(((y - want:detach()):norm() / want:detach():norm()):item() < 0.08)
      assert.same(want.shape, y.shape)
    end
    local d = w:detach()
    like(function() return amp.matmul(x, w) end, amp.matmul(x, d))
    like(function() return x[1]:mm(w) end, amp.matmul(x[1], d))
    like(function() return amp.addmm(amp.ones(16), x[1], w, { beta = 2, alpha = 0.5 }) end, amp.matmul(x[1], d) * 0.5 + 2)
    like(function() return w:t():matmul(x:transpose(2, 3)) end, amp.matmul(d:t(), x:transpose(2, 3)))
    like(function() return w:matmul(x[1][{ {}, { 1, 16 } }]:contiguous()) end, amp.matmul(d, x[1][{ {}, { 1, 16 } }]))
    assert.equal(0, eight(function() return amp.matmul(x, v) end))
    assert.equal(0, eight(function() return amp.matmul(x, x:transpose(2, 3)) end))
    assert.equal(0, eight(function() return amp.matmul(x, w * 1) end))
    assert(eight(function() return F.linear(x, v:t()) end) == 2)
    local c = nn.Conv2d(16, 16, 1)
    assert.equal(0, eight(function() return c(amp.ones(16, 16, 4, 4)) end))
  end)

  it('leaves sizes that are no multiples of 16 to the base', function()
    local function n(m, k, o)
      local y
      local count = casts(function() y = region({}, function() return F.linear(amp.randn(m, k), amp.randn(o, k, { requires_grad = true })) end) end)
      assert.equal('bfloat16', y.dtype)
      return count
    end
    assert.same({ 2, 0, 0, 0, 0 }, { n(16, 16, 16), n(15, 16, 16), n(16, 24, 16), n(16, 16, 40), n(0, 16, 16) })
    local y = region({}, function() return F.linear(amp.randn(2, 4, 2, 16), amp.randn(16, 16)) end)
    assert.same({ 2, 4, 2, 16 }, { unpack(y:size()) })
    H.fails(function() region({}, function() F.linear(amp.ones(16, 16), amp.ones(16, 32)) end) end, 'linear', '16x16', '16x32')
    H.fails(function() region({}, function() F.linear(amp.ones(16, 16):double(), amp.ones(16, 16)) end) end, 'float64')
  end)

  it('casts a weight once for each version, in both directions', function()
    local net = nn.Linear(16, 16, { bias = false })
    local x = amp.randn(16, 16, { requires_grad = true })
    local function use(o)
      local f, all, cached = casts(function()
        region(o, function() return net(x) end):sum():backward()
      end)
      return f, all, cached
    end
    assert.same({ 4, 4, 1 }, { use {} }) -- x, w; dy, w again; x along its other dimension
    assert.same({ 3, 3, 2 }, { use {} })
    amp.no_grad(function() net.weight:mul_(2) end)
    assert.same({ 4, 4, 1 }, { use {} })
    assert.same({ 6, 6, 0 }, { use { recipe = 'block' } })
    assert.same({ 4, 4, 2 }, { use { recipe = 'block' } })
    amp.clear_autocast_cache()
    assert.same({ 6, 6, 0 }, { use { recipe = 'block' } })
  end)

  it('keeps of an activation its 8-bit copy alone, and of what is there anyway none', function()
    local function live(f)
      jit.flush() -- traces hold what they were compiled for
      collectgarbage()
      collectgarbage()
      local before = amp.memory(H.device or 'cpu').live
      local keep = f()
      jit.flush()
      collectgarbage()
      collectgarbage()
      return amp.memory(H.device or 'cpu').live - before, keep
    end
    local w = amp.randn(16, 256, { requires_grad = true })
    local x = amp.randn(1024, 256, { requires_grad = true })
    local n, out = 1024 * 256, 1024 * 16 * 2
    local function of(recipe, act)
      local o = { recipe = recipe }
      region(o, function() F.linear(amp.zeros(16, 256), w) end) -- the weight's copies are there
      return (live(function() return region(o, function() return F.linear(act(x), w) end) end)) - out
    end
    local function drop(t) return amp.scope(function() return t * 2 end) end
    for _, recipe in ipairs { 'current', 'delayed' } do
      assert(of(recipe, drop) < 1.5 * n)
      assert(of(recipe, function(t) return t:sigmoid() end) < 4.5 * n) -- saves its result
      assert(of(recipe, function(t) return t end) < 0.5 * n)
      assert(of(recipe, F.gelu) < 0.5 * n) -- made again of its argument
      assert(of(recipe, function(t) return F.gelu(drop(t)) end) < 4.5 * n)
      local norm = nn.LayerNorm(256)
      assert(of(recipe, function(t) return norm(t) end) < 0.5 * n)
      assert(of(recipe, function(t) return (norm:forward_add(t, t)) end) < 4.5 * n)
    end
    assert(of('block', drop) > 3.5 * n)
    local v = { amp.randn(16, 256, { requires_grad = true }), amp.randn(16, 256, { requires_grad = true }) }
    local more = live(function()
      return region({}, function()
        local h = drop(x)
        return { F.linear(h, w), F.linear(h, v[1]), F.linear(h, v[2]) }
      end)
    end)
    assert(more - 3 * out < 1.5 * n, 'products of one input share its bytes')
  end)

  it('lets a GPT block keep at most 0.65 of what it does in bfloat16, on a GPU', function()
    if not H.device then return end
    local GPT2 = require 'examples.models.gpt2'
    local body = GPT2 { size = 64, heads = 2, layers = 1, vocabulary = 16, context = 64 }.h:to(H.device)[1]
    local x = amp.randn(2, 64, 64):bfloat16():requires_grad_()
    local function kept(o)
      local function forward() return amp.autocast(o, function() return body(x) end) end
      forward() -- the weights' copies are there
      collectgarbage()
      collectgarbage()
      local before = amp.memory(H.device).live
      local y = forward()
      collectgarbage()
      collectgarbage()
      return amp.memory(H.device).live - before, y
    end
    local all = kept { dtype = 'bfloat16' }
    for _, recipe in ipairs { 'current', 'delayed' } do assert(kept { dtype = 'float8', recipe = recipe } <= 0.65 * all) end
  end)

  it('shares what is kept of an input while it stays as it was', function()
    local x = amp.randn(32, 48, { requires_grad = true })
    local w, v = amp.randn(16, 48, { requires_grad = true }), amp.randn(16, 48, { requires_grad = true })
    local function grads(f)
      local a, b = region({}, f)
      local loss = a:float():sum() + b:float():sum() * 2
      loss:backward()
      local out = { x.grad, w.grad, v.grad }
      x.grad, w.grad, v.grad = nil, nil, nil
      return out
    end
    local function agree(a, b) for i = 1, 3 do assert(amp.equal(a[i], b[i])) end end
    agree(grads(function() local h = x * 2 return F.linear(h, w), F.linear(h, v) end), grads(function() return F.linear(x * 2, w), F.linear(x * 2, v) end))
    agree(grads(function()
      local h = x * 2
      local y = F.linear(h, w)
      return y, F.linear(h:mul_(3), v)
    end), grads(function() return F.linear(x * 2, w), F.linear(x * 6, v) end))
  end)

  local MAKERS = { plain = function(x) return x * 1 end, gelu = function(x) return F.gelu(x) end,
    tanh = function(x) return F.gelu(x, { approximate = 'tanh' }) end,
    relu = function(x) return F.relu(x) end, norm = function(x, norm) return norm(x) end, sum = function(x, norm) return (norm:forward_add(x, x * 0.5)) end,
    half = function(x, norm) return (norm:forward_add(x, x * 0.5, 'float8')) end, rows = function(x) return F.gelu(x):view(4, 12, 144) end,
    low = function(x) return F.gelu(x:bfloat16()) end, turned = function(x) return F.gelu(x:t()):t() end,
    dropped = function(x) return F.dropout(F.gelu(x), 1e-9) end }
  for name, maker in pairs(MAKERS) do
    for _, recipe in ipairs { 'current', 'delayed' } do
      it(('%s: a weight\'s gradient after %s is that of an input that is kept itself'):format(recipe, name), function()
        local norm = nn.LayerNorm(144)
        local x = amp.randn(48, 144, { requires_grad = true })
        local w = amp.randn(32, 144, { requires_grad = true })
        local v = w:detach():clone():requires_grad_()
        for step = 1, recipe == 'delayed' and 2 or 1 do
          local h
          local y = region({ recipe = recipe }, function()
            h = maker(x * step, norm)
            return F.linear(h, w)
          end)
          local z = region({ recipe = recipe }, function() return F.linear(h:detach():requires_grad_(), v) end)
          assert(amp.equal(y:detach(), z:detach()))
          local g = amp.randn_like(y) * 1e-3
          y:backward(g)
          z:backward(g)
          assert(amp.equal(w.grad, v.grad))
          w.grad, v.grad = nil, nil
        end
      end)
    end
  end

  for _, recipe in ipairs { 'current', 'delayed' } do
    it(recipe .. ': second derivatives go through an activation that is kept in 8 bits', function()
      amp.manual_seed(5)
      local w, x = amp.randn(32, 48, { requires_grad = true }), amp.randn(16, 48, { requires_grad = true })
      local function second(o)
        local y = amp.autocast(o, function() return F.linear(x * 2, w) end)
        local g = amp.grad({ y:float():pow(2):sum() }, { w }, { create_graph = true })[1]
        return g:detach(), amp.grad({ g:float():pow(2):sum() }, { x, w })
      end
      local g, list = second { dtype = 'float8', recipe = recipe }
      local h, want = second { dtype = 'bfloat16' }
      local function apart(a, b) return ((a:float() - b:float()):norm() / b:float():norm()):item() end
      assert(apart(g, h) < 0.1, apart(g, h))
      for i = 1, 2 do assert(apart(list[i], want[i]) < 0.15 and apart(list[i], want[i]) > 1e-3, apart(list[i], want[i])) end
    end)
  end

  it('has a weight\'s copies from the optimizer, as it steps', function()
    for _, recipe in ipairs(RECIPES) do
      local net = nn.Linear(32, 16, { bias = false })
      local same = net:clone()
      local opt, other = amp.optim.SGD(net:parameters(), { lr = 0.1 }), amp.optim.SGD(same:parameters(), { lr = 0.1 })
      local x = amp.randn(16, 32, { requires_grad = true })
      local function loss(m) return region({ recipe = recipe }, function() return m(x) end):float():pow(2):sum() end
      for _ = 1, 3 do
        loss(net):backward()
        loss(same):backward()
        opt:step():clear_grad()
        other:step():clear_grad()
        amp.clear_autocast_cache()
        loss(same)
        other:clear_grad()
        assert(amp.equal(loss(net):detach(), loss(same):detach()))
      end
      loss(net):backward()
      opt:step()
      assert.equal(1, (casts(function() loss(net) end)))
    end
  end)

  it('keeps modules that are excluded in the base', function()
    local net = nn.Sequential(nn.Linear(16, 16), nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)), nn.Linear(16, 16))
    local x = amp.randn(16, 16)
    local function eight(o, f)
      local n
      amp.no_grad(function()
        amp.clear_autocast_cache()
        n = casts(function() region(o, f or function() return net(x) end) end)
      end)
      return n / 2
    end
    assert.equal(4, eight {})
    assert.equal(2, eight { exclude = { '2' } })
    assert.equal(3, eight { exclude = { '2.1' } })
    assert.equal(1, eight { exclude = { '1', '2.2', '3' } })
    assert.equal(2, eight({ exclude = { '1' } }, function() net[2](x) return net[1](x) end), 'paths are of the module that is called')
    assert.equal(4, eight {})
    assert.equal(4.5, eight({ exclude = { '2' } }, function()
      local ok = pcall(function() net(amp.ones(3, 3)) end)
      assert(not ok)
      net(x)
      return region({ exclude = {} }, function() return net[2][1](x), net[2][2](x), net[1](x) end)
    end))
    H.fails(function() region({ exclude = { '2.3' } }, function() return net(x) end) end, 'exclude', '2.3')
    local step = amp.autocast.wrap(function(t) return net(t) end, { dtype = 'float8', exclude = { '1' } })
    amp.clear_autocast_cache()
    assert.equal(6, (casts(function() step(x) end)))
    net:hybridize()
    for _, name in ipairs { '2', '2.1' } do eight { exclude = { name } } end -- the first calls trace as well
    eight {}
    assert.equal(2, eight { exclude = { '2' } })
    assert.equal(4, eight {})
    assert.equal(3, eight { exclude = { '2.1' } })
    assert.equal(3, eight { exclude = { '2.1' } })
  end)
end)

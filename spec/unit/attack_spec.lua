--- What hostile use must not break: graphs edited in place through views, hooks and Functions that throw, yield,
-- free and call backward, memory after each, casts that must not be stale, attributes without meaning.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local H = require 'spec.lib.helper'
local C, S = core.C, core.S

local function eq(t, values) H.close(t, values, H.exact) end
local function leaf(values, shape, dtype)
  local t = H.make(values, shape or { #values }, dtype)
  t.requires_grad = true
  return t
end
local function long(list) return amp.tensor(list, { dtype = 'int64' }) end

-- Gradients of fn(a, b) in both against central differences in float64.
local function check(fn, a, b)
  local x, y = leaf(a.v, a.s, 'float64'), leaf(b.v, b.s, 'float64')
  fn(x, y):backward()
  local inputs = { H.make(a.v, a.s, 'float64'), H.make(b.v, b.s, 'float64') }
  for k, t in ipairs { x, y } do
    local want = H.numeric_grad(function(i) return { fn(i[1], i[2]) } end, inputs, k, { { 1 } }, 1e-6)
    local got = t.grad and H.values(t.grad) or {}
    for i = 1, #want do
      local g = got[i] or 0
      assert(math.abs(g - want[i]) <= 1e-5 * (1 + math.abs(want[i])), ('input %d, element %d: %g, expected %g'):format(k, i, g, want[i]))
    end
  end
end

local A = { v = { 0.11, 0.52, -0.33, 0.74, 0.25, -0.96, 0.67, -0.18, 0.39, 0.81, -0.42, 0.63 }, s = { 4, 3 } }
local B = { v = { 0.2, 0.5, -0.4 }, s = { 3 } }

describe('an in-place op on a view', function()
  it('is seen by the view itself, its base and other views, in any order', function()
    check(function(a, b)
      local x = a * 1
      local v, u = x[2], x:t()[1]
      v:mul_(b)
      u:add_(v:sum())
      local w = x:view(2, 2, 3):transpose(1, 3)[1]
      w:mul_(w)
      return (x * x):sum() + (v * u:sum()):sum() + w:sum()
    end, A, B)
  end)
  it('reads an argument that is the receiver under another handle as it was', function()
    for _, op in ipairs { 'mul_', 'div_', 'pow_' } do
      check(function(a, b)
        local x = a:abs() + 0.5
        local v = x:view(4, 3)
        x[op](x, v)
        if op ~= 'pow_' then v[op](v, x) end
        return (x * b):sum()
      end, A, B)
    end
  end)
  it('works on transposed and channels_last bases', function()
    check(function(a, b)
      local x = a:t():clone()
      local v = x[2]
      v:mul_(b:sum())
      x[{ {}, 3 }]:mul_(x[{ {}, 3 }])
      return (x * x):sum() + v:sum()
    end, A, B)
    check(function(a, b)
      local x = a:view(1, 2, 3, 2):contiguous { memory_format = 'channels_last' }
      local v = x[{ 1, {}, 2 }]
      v:mul_(2)
      local u = x:permute(1, 3, 4, 2)[{ {}, 1 }]
      u:add_(v:sum() * b[1])
      u:mul_(u)
      return (x * x):sum() + v:sum()
    end, A, B)
  end)
  it('assigns with gradients on both sides', function()
    check(function(a, b)
      local x = a * 1
      x[2] = b
      x[{ {}, 2 }] = x[{ {}, 1 }] * 2
      x[long { 4, 1 }] = b * b
      x[x:gt(0.6):detach()] = b[1]
      x:t()[{ 3, long { 1, 2 } }] = b[2]
      return (x * x):sum() + x[2]:sum()
    end, A, B)
  end)
  it('copies what overlaps', function()
    local l = leaf { 1, 2, 3, 4 }
    local x = l * 1
    x[{ { 2, 4 } }]:copy_(x[{ { 1, 3 } }])
    eq(x, { 1, 1, 2, 3 });
    (x * amp.tensor { 1, 10, 100, 1000 }):sum():backward()
    eq(l.grad, { 11, 100, 1000, 0 })
    local i = long { 2, 3, 1 }
    local t = amp.tensor { 1, 2, 3 }
    t[i] = t
    eq(t, { 3, 1, 2 })
    t:scatter_(1, i, t)
    eq(t, { 2, 3, 1 })
    t:scatter_add_(1, i, t)
    eq(t, { 3, 5, 4 })
  end)
  it('of a view made before is reached in the right order by one backward', function()
    -- the stale view's node is made while its consumer is recorded
    check(function(a, b)
      local x = a * 1
      local v = x[1]
      x:mul_(2)
      local y = v * v
      return (y + v * x[3] * b):sum() + v:sum()
    end, A, B)
  end)
  it('that fills, by a value or at random, ends the history there and only there', function()
    local l = leaf { 1, 2, 3, 4 }
    local x = l * 1
    x[{ { 1, 2 } }]:uniform_()
    x:sum():backward()
    eq(l.grad, { 0, 0, 1, 1 })
    local y = l * 1
    local v = y[1]
    y:normal_()
    assert.is_false(v.requires_grad)
    assert.is_false(y.requires_grad)
  end)
  it('that gives the base a history gives it to views made before', function()
    local w, x = leaf { 2 }, amp.ones(4)
    local v = x[{ { 1, 2 } }]
    x:mul_(w)
    assert.is_true(v.requires_grad)
    assert.is_false(v.is_leaf)
    assert.is_string(tostring(v))
    v:backward(amp.ones(2))
    eq(w.grad, { 2 })
    local f = amp.Function { forward = function(_, a) return a * 3 end, backward = function(_, g) return g * 3 end }
    local y = amp.ones(4)
    local u = y[{ { 1, 2 } }]
    y:mul_(w)
    f(u):sum():backward()
    eq(w.grad, { 8 })
  end)
  it('is refused where it has no meaning', function()
    local l = leaf { 1, 2, 3, 4 }
    local x, w = l * 1, leaf { 5 }
    local v = amp.no_grad(function() return x[{ { 1, 2 } }] end)
    H.fails_here(function() v:mul_(w) end, 'no_grad', 'clone')
    v:detach():mul_(2)
    H.fails_here(function() amp.ones(5):unfold(1, 2, 1):add_(1) end, 'clone')
    H.fails_here(function() l.grad = l end, 'own gradient')
    local gaps = amp.arange(0, 12):view(3, 4):detach()[{ {}, { 1, 2 } }]:detach()
    H.fails_here(function() gaps[1]:mul_(w) end, 'gaps', 'clone')
    eq(gaps, { 0, 1, 4, 5, 8, 9 })
  end)
  it('keeps random programs of views and changes exact', function()
    local seen = 0
    for seed = 1, 60 do
      local state
      local function draw(n)
        state = (state * 1103515245 + 12345) % 2147483648
        return math.floor(state / 65536) % n + 1
      end
      local function program(a, b)
        state = seed * 7919 + 13
        local base = draw(2) == 1 and a * 1 or a:t():clone()
        local pool, sum = { base, base }, 0
        for _ = 1, 6 do
          local t = pool[draw(#pool)]
          local n, op = t:dim(), draw(10)
          local first = n > 0 and t:size(1) or 0
          if op == 1 and n > 0 then pool[#pool + 1] = t[draw(first)]
          elseif op == 2 and n > 1 then pool[#pool + 1] = t:transpose(1, n)
          elseif op == 3 then t:mul_(t)
          elseif op == 4 then t:add_(pool[draw(#pool)]:sum() * 0.1)
          elseif op == 5 and n > 0 then t[draw(first)] = b:mean()
          elseif op == 6 then t:sin_()
          elseif op == 7 and n > 0 then t[long { draw(first) }] = b:sum() * 0.2
          elseif op == 8 and n > 0 then t:add_(t[draw(first)])
          elseif op == 9 then t:fill_(0.4)
          else pool[#pool + 1] = t:unsqueeze(1) end
        end
        for i = 2, #pool do sum = sum + (pool[i] * (0.1 * i)):sum() end
        return sum
      end
      local ok, e = pcall(check, program, A, B)
      seen = seen + (ok and 1 or 0)
      if not ok and not tostring(e):find('in place', 1, true) then error(('program %d: %s'):format(seed, tostring(e)), 0) end
    end
    assert.is_true(seen > 20, seen .. ' programs')
  end)
end)

describe('backward', function()
  it('gives each leaf a gradient of its own, also with create_graph', function()
    local a, b, g = leaf { 1, 2 }, leaf { 3, 4 }, amp.ones(2);
    (a + b):backward(g, { create_graph = true })
    amp.no_grad(function() a.grad:mul_(5) end)
    eq(a.grad, { 5, 5 })
    eq(b.grad, { 1, 1 })
    eq(g, { 1, 1 })
  end)
  it('is an error after a weight changed whose cast it needs, as without autocast', function()
    for _, dtype in ipairs { 'bfloat16', 'float16' } do
      local x, w = H.sample { 3, 4 }, H.sample { 4, 2 }
      x.requires_grad, w.requires_grad = true, true
      local function forward()
        return amp.autocast({ dtype = dtype }, function() return x:matmul(w):sum() + w:t():matmul(x:t()):sum() end)
      end
      local loss = forward()
      amp.no_grad(function() w:add_(1) end)
      H.fails_here(function() loss:backward() end, 'in place', 'matmul')
      local first, second = forward(), forward() -- at one version each has its own
      first:backward()
      second:backward()
      assert.equal('float32', w.grad.dtype)
    end
  end)
  it('survives chains of 200,000 ops, backward and dropped', function()
    local l = leaf { 1 }
    local x = l
    for _ = 1, 200000 do x = x + 1 end
    x:backward()
    eq(l.grad, { 1 })
    x = l
    for _ = 1, 200000 do x = x * 1 end
    x = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    local f = amp.Function { forward = function(_, a) return a * 1 end, backward = function(_, g) return g end }
    x = l
    for _ = 1, 5000 do x = f(x) end
    x:backward()
    eq(l.grad, { 2 })
  end)
  it('takes lists of more than 32,767 tensors', function()
    local l = leaf { 2 }
    local list = {}
    for i = 1, 40000 do list[i] = l end
    amp.cat(list):sum():backward()
    eq(l.grad, { 40000 })
  end)
  it('goes on after hooks that throw, yield, remove themselves, free and call backward', function()
    local l, boom = leaf { 1, 2 }, true
    local function loss()
      local y = l * 2
      y:register_hook(function() if boom then error { code = 7 } end end)
      return (y * y):sum()
    end
    local ok, e = pcall(function() loss():backward() end)
    assert.is_false(ok)
    assert.equal(7, e.code)
    assert.is_nil(l.grad)
    assert.equal(1, S.grad_mode)
    boom = false
    loss():backward()
    eq(l.grad, { 8, 16 })

    local m = leaf { 1, 2 }
    local y = m * 3
    y:register_hook(function(g) return g * coroutine.yield() end)
    local z = y:sum()
    local co = coroutine.create(function() z:backward() end)
    assert(coroutine.resume(co))
    assert.is_true(amp.is_grad_enabled())
    local k = leaf { 5 };
    (k * k):sum():backward()
    eq(k.grad, { 10 })
    assert(coroutine.resume(co, 10))
    eq(m.grad, { 30, 30 })

    local p = leaf { 1, 2 }
    local a = p * 2
    local b = a:exp()
    local c = b * a
    local h
    c:register_hook(function(g)
      g:free()
      a:free()
      c:free()
    end)
    h = b:register_hook(function() h:remove() end)
    c:sum():backward()
    assert.is_not_nil(p.grad)

    local q, n = leaf { 1, 2 }, 0
    local r = q * q
    local s = (r * r):sum()
    r:register_hook(function()
      n = n + 1
      if n < 5 then s:backward(nil, { retain_graph = true }) end
    end)
    s:backward(nil, { retain_graph = true })
    eq(q.grad, { 20, 160 })
  end)
  it('refuses what hooks and Functions must not give', function()
    for _, r in ipairs { amp.ones(3), 'x', {}, 5, true } do
      local l = leaf { 1, 2 }
      l:register_hook(function() return r end)
      H.fails(function() (l * 2):sum():backward() end)
      assert.is_nil(l.grad)
    end
    local function give(b)
      local l = leaf { 1, 2 }
      amp.Function { forward = function(_, x) return x * 2 end, backward = b }(l):sum():backward()
      return l.grad
    end
    H.fails(function() give(function(_, g) return g, g end) end, '2 gradients')
    H.fails(function() give(function() return amp.ones(3) end) end, '3', '2')
    H.fails(function() give(function(_, g) return { g } end) end, 'table')
    H.fails(function() give(function() return 'x' end) end, 'x')
    H.fails(function() give(function(_, g) g:free() return g end) end, 'freed')
    assert.is_nil(give(function() end))
    assert.equal('float32', give(function() return amp.ones(2):double() end).dtype)
  end)
end)

describe('live memory', function()
  local function live()
    jit.flush() -- traces hold what they were compiled for
    for _ = 1, 4 do
      collectgarbage()
      S.attention = 4 -- ids of what is gone are asked for
      call.attend()
    end
    return tonumber(C.amp_memory(C.AMP_CPU, 0).live)
  end
  local function closures()
    local n = 0
    for _ in pairs(call.closures) do n = n + 1 end
    return n
  end
  local function x() return leaf(H.ramp(1000)) end
  local cases = {
    ['a hook that captures its own tensor, after backward'] = function()
      local y = x() * 2
      local z = y:sum()
      y:register_hook(function(g) return g + y:detach() * 0 + z:detach() * 0 end)
      z:backward()
    end,
    ['a Function whose ctx keeps its result in a field'] = function()
      local f = amp.Function {
        forward = function(ctx, a)
          ctx.y = a:exp()
          return ctx.y
        end,
        backward = function(ctx, g) return g * ctx.y end,
      }
      f(x())
      local l = x()
      local g = amp.grad(f(l):sum(), l, { create_graph = true })[1]
      H.close(amp.grad(g:sum(), l)[1], l:detach():exp())
    end,
    ['x:copy_(f(x)) and views of it'] = function()
      local y = x() * 1
      for _ = 1, 3 do
        y:copy_(y * 2)
        y[{ { 1, 10 } }]:copy_(y[{ { 2, 11 } }])
      end
    end,
    ['a backward left in the middle of a yield'] = function()
      local y = x() * 3
      y:register_hook(function() coroutine.yield() end)
      local z = y:sum()
      coroutine.wrap(function() z:backward() end)()
    end,
    ['errors of backward, of autocast, of shapes'] = function()
      local l = x()
      local y = l:exp()
      local z = y * y
      y:add_(1)
      pcall(function() z:sum():backward() end)
      pcall(amp.autocast, { dtype = 'bfloat16' }, function() return l:view(20, 50):matmul(l:view(20, 50)) end)
      pcall(function() l:add_(1) end)
      pcall(amp.cat, { l, amp.ones(2, 2) }, 1)
    end,
    ['double backward'] = function()
      local l = x()
      local g = amp.grad((l * l * l):sum(), l, { create_graph = true })[1];
      (g * g):sum():backward()
    end,
  }
  for name, f in pairs(cases) do
    it('returns after ' .. name, function() -- but for what a stale stack slot may still hold
      f()
      local before, n = live(), closures()
      for _ = 1, 10 do f() end
      amp.is_grad_enabled() -- the state leaves the coroutine that ran last
      collectgarbage()
      local step = leaf { 1 }
      step:register_hook(function() end);
      (step * 1):backward() -- looks for engines left behind
      step = nil -- luacheck: ignore
      local after = live()
      assert.is_true(after <= before + 20480, ('%d bytes more'):format(after - before))
      assert.is_true(closures() <= n)
    end)
  end
end)

describe('a value', function()
  it('is a number whatever bits a NaN has', function()
    local words = ffi.new('uint32_t[4]', { 0xffffffff, 0xfffffff0, 0xffc00000, 0x7fc00001 })
    local t = amp.from_ptr(ffi.cast('float *', words), { 4 }, 'float32')
    local wide = ffi.new('uint64_t[2]', { 0xffffffffffffffffULL, 0xfffe800000000010ULL })
    local d = amp.from_ptr(ffi.cast('double *', wide), { 2 }, 'float64')
    for _, u in ipairs { t, d, t:to 'float16', t:to 'bfloat16' } do
      for _, v in ipairs(u:tolist()) do
        assert.equal('number', type(v))
        assert.is_true(v ~= v)
      end
      local v = u[1]:item()
      assert.equal('number', type(v))
      assert.is_string(tostring(u))
    end
  end)
  it('assigned to a place may have leading dimensions of size 1', function()
    local t = amp.zeros(3)
    t[2] = amp.tensor { 7 }
    t[{ { 2, 3 } }] = amp.tensor { { 8, 9 } }
    eq(t, { 0, 8, 9 })
    H.fails_here(function() t[1] = amp.tensor { 1, 2 } end, '2')
  end)
end)

ffi.cdef [[
typedef struct amp_spec_rlimit { unsigned long now, most; } amp_spec_rlimit;
int amp_spec_getrlimit(int what, amp_spec_rlimit *r) __asm__("getrlimit");
int amp_spec_setrlimit(int what, const amp_spec_rlimit *r) __asm__("setrlimit");
]]
local function pages()
  local f = assert(io.open '/proc/self/statm')
  local n = f:read '*n'
  f:close()
  return n
end
-- Bytes of address space beyond what the process has now, or a limit to go back to. Gives the limit there was.
local function memory_limit(n)
  local r, AS = ffi.new 'amp_spec_rlimit', 9
  assert(ffi.C.amp_spec_getrlimit(AS, r) == 0)
  local was = r.now
  r.now = type(n) == 'cdata' and n or math.min(tonumber(was), pages() * 4096 + n)
  assert(ffi.C.amp_spec_setrlimit(AS, r) == 0)
  return was
end

describe('attributes without meaning', function()
  local slots = ffi.new 'amp_slot[32]'
  local function try(name, values, ...)
    local op = C.amp_op_find(name)
    ffi.fill(slots, ffi.sizeof(slots))
    for i, v in pairs(values) do slots[i].i = v end
    local o, in_ = core.ref_t(), { ... }
    local rc = C.amp_opx(S, op, o, nil, nil, in_[1], in_[2], in_[3], nil, nil, slots)
    return rc, ffi.string(S.err.message)
  end
  local none = -0x7fffffffffffffffLL - 1
  it('are errors that name the attribute, for counts, dtypes, devices and words', function()
    local t = amp.ones(2, 3)
    local rc, text = try('view', { [0] = 9 }, t)
    assert.is_true(rc < 0 and text:find("'shape'", 1, true) ~= nil, text)
    rc, text = try('repeat', { [0] = 2147483648LL }, t)
    assert.is_true(rc < 0 and text:find('2147483648', 1, true) ~= nil, text)
    rc, text = try('sum', { [0] = none, [9] = 0, [10] = 77 }, t)
    assert.is_true(rc < 0 and text:find("'dtype'", 1, true) ~= nil, text)
    rc, text = try('mse_loss', { [0] = 3 }, t, t)
    assert.is_true(rc < 0 and text:find("'reduction'", 1, true) ~= nil, text)
    rc, text = try('empty', { [0] = 1, [1] = 2, [9] = none, [10] = 5 * 256 })
    assert.is_true(rc < 0 and text:find("'device'", 1, true) ~= nil, text)
  end)
  it('are found out where a tensor has no elements, too', function()
    local t = amp.zeros(0, 3)
    local huge = 0x7ffffffffffffffeLL
    assert.is_true(try('view', { [0] = 3, 0, huge, 2 }, t) < 0)
    assert.is_true(try('reshape', { [0] = 3, 0, huge, 2 }, t) < 0)
    assert.is_true(try('repeat', { [0] = 3, huge, 1, 2 }, t) < 0)
    assert.is_true(try('repeat', { [0] = 2, 1, 0x180000000000000LL }, amp.zeros(2, 0, 3)) < 0)
  end)
  it('never crash or fill memory, whatever the op', function()
    -- 2^31 elements are a size like others where memory is there: here there is none for them. A sanitizer's own memory knows no limit.
    local sanitized = os.getenv 'AMP_SPEC_SANITIZED' ~= nil
    local junk = { 0, 1, -1, 2, 5, sanitized and 0x100000000000LL or 2147483648LL, 0x7fffffffffffffffLL, none, none + 1, 0x4000000000000000LL }
    local state = 11
    local function draw(n)
      state = (state * 1103515245 + 12345) % 2147483648
      return math.floor(state / 65536) % n + 1
    end
    local limit = not sanitized and memory_limit(4 * 2 ^ 30)
    local before = H.live()
    local samples = { amp.ones(2, 3), amp.ones(3), amp.tensor(1), long { 1, 2 }, amp.ones(2, 2, 4, 4), amp.zeros(0, 3), amp.ones(2, 3):gt(0) }
    for op = 0, C.amp_op_count() - 1 do
      local info = C.amp_op_get(op)
      for _ = 1, 6 do
        for i = 0, 31 do slots[i].i = junk[draw(#junk)] end
        slots[0].i = draw(3) - 1
        local a, b, c = samples[draw(#samples)], samples[draw(#samples)], samples[draw(#samples)]
        local o = { core.ref_t(), core.ref_t(), core.ref_t() }
        C.amp_opx(S, op, o[1], o[2], o[3], info.nin > 0 and a or nil, info.nin > 1 and b or nil, info.nin > 2 and c or nil, nil, nil, slots)
      end
    end
    if limit then memory_limit(limit) end
    local many = ffi.new('amp_tensor *[9]')
    for i = 0, 8 do many[i] = samples[1].ptr_ end
    local o = core.ref_t()
    assert.is_true(C.amp_opl(S, C.amp_op_find 'add', o, nil, nil, many, 9, nil) < 0)
    assert.is_true(C.amp_opl(S, C.amp_op_find 'cat', o, nil, nil, many, -1, nil) < 0)
    assert.is_true(C.amp_op2(S, 0xffff, o, samples[1], samples[1]) < 0)
    o = nil -- luacheck: ignore
    assert.is_true(H.live() <= before + 65536)
  end)
end)

describe('addcmul and addcdiv', function()
  it('round once, to the dtype that all three promote to', function()
    local a = amp.tensor({ 1 }, { dtype = 'float32' })
    local b, c = amp.tensor({ 1.0078125 }, { dtype = 'bfloat16' }), amp.tensor({ 3 }, { dtype = 'bfloat16' })
    assert.equal(1 + 1.0078125 * 3, amp.addcmul(a, b, c):item())
    assert.is_true(math.abs(amp.addcdiv(a, b, c):item() - (1 + 1.0078125 / 3)) < 1e-6)
  end)
end)

-- t.data = u lets a tensor lie elsewhere, in another shape: graphs and views know it as it was
describe('a tensor whose data was replaced', function()
  it('takes no gradient of its former shape', function()
    local uses = {
      function(w) return w * 2 end,
      function(w) return amp.ones(3, 4):to(w.dtype):matmul(w) end,
      function(w) return amp.linear(amp.ones(3, 4):to(w.dtype), w) end,
      function(w) return amp.embedding(long { 1, 4, 2 }, w) end,
      function(w) return w:view(16)[2] end,
    }
    for _, dtype in ipairs { 'float32', 'float64' } do
      for _, use in ipairs(uses) do
        for _, before in ipairs { false, true } do
          local w = amp.ones({ 4, 4 }, { dtype = dtype, requires_grad = true })
          local y = use(w)
          w.data = amp.ones({ 2, 2 }, { dtype = dtype })
          if before then w:sum():backward() end
          H.fails(function() y:sum():backward({ retain_graph = true }) end, 'data was replaced')
          H.fails(function() amp.grad({ y:sum() }, { w }) end, 'data was replaced')
          if before then eq(w.grad, { 1, 1, 1, 1 }) else assert.is_nil(w.grad) end
        end
      end
    end
  end)
  it('takes no gradient any more when it holds integers', function()
    for _, hook in ipairs { false, true } do
      local w = leaf { 1, 2 }
      local y = (w * 2):sum()
      if hook then w:register_hook(function() end) end
      w.requires_grad = false
      w.data = long { 1, 2 }
      H.fails(function() y:backward() end, 'data was replaced')
      assert.is_nil(w.grad)
    end
  end)
  it('is no base of its former views', function()
    local w, x = leaf { 2, 3, 4, 5 }, amp.ones(4)
    local v = x:view(-1)
    x.data = amp.full({ 4 }, 7)
    H.fails(function() v:mul_(w) end, 'data was replaced', 'clone')
    H.fails(function() v:view(2, 2)[1]:mul_(w[1]) end, 'data was replaced', 'clone')
    amp.no_grad(function() v:mul_(w) end)
    assert.is_false(x.requires_grad)
    eq(x, { 7, 7, 7, 7 })
    eq(v, { 2, 3, 4, 5 })
  end)
  it('gets the gradients of its former views, whatever became of their values', function()
    local y = leaf { 1, 2, 3, 4 }
    local u = y:view(2, 2)
    y.data = amp.zeros(4)
    amp.no_grad(function() u:mul_(2) end)
    local z = u:t()
    eq(z, { 2, 6, 4, 8 });
    (z * z):sum():backward()
    eq(y.grad, { 4, 8, 12, 16 })
    eq(y, { 0, 0, 0, 0 })
  end)
  it('may become a part of what it was', function()
    local y = leaf({ 1, 2, 3, 4, 5, 6, 7, 8 }, nil, 'float32')
    local u, w = y:view(2, 4), leaf({ 1, 1 }, nil, 'float32')
    y.data = y:detach():narrow(1, 7, 2)
    local sum = amp.autocast({ dtype = 'bfloat16' }, function() return u:matmul(amp.ones(4, 1)) end)
    eq(sum, { 10, 26 })
    local x = amp.ones(8)
    local v = x:view(4, 2)
    x.data = x:narrow(1, 7, 2)
    H.fails(function() v[1]:mul_(w) end, 'data was replaced')
    v[4]:mul_(w)
    x:sum():backward()
    eq(w.grad, { 1, 1 })
  end)
end)

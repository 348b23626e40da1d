-- Sentences of the contract on graphs: what a function reads and changes besides its arguments, tensors that it makes of
-- numbers, and what it asks of its inputs.
local amp = require 'amp'
local nn, F = amp.nn, amp.nn.functional

local function silent(fn)
  local lines, before = {}, rawget(amp, 'warn')
  amp.warn = function(text) lines[#lines + 1] = text end
  local ok, e = pcall(fn)
  amp.warn = before
  assert(ok, e)
  return lines
end

local function same(a, b) assert.is_true(amp.allclose(a, b, {rtol = 1e-5, atol = 1e-6}), tostring(a) .. tostring(b)) end

local function all_ways(fn, ...)
  local args = {n = select('#', ...), ...}
  local function call(f) return f(unpack(args, 1, args.n)) end
  local g, f = amp.trace(fn, ...), amp.compile(fn)
  for _, runner in ipairs {g, amp.trace(fn, ...):optimize(), f, function(...) return amp.no_grad(f, ...) end} do
    for _ = 1, 3 do
      local got = call(runner)
      same(got, call(fn))
      got:add_(1) -- it is the caller's
    end
  end
end

describe('a tensor that the function makes of numbers', function()
  local x = amp.randn(3, 4)
  it('is a new one at each run', function()
    all_ways(function() return amp.tensor {1, 2, 3} end, x)
    all_ways(function(t) local made = amp.tensor {0, 0, 0, 0}; made:add_(t[1]) return made end, x)
    all_ways(function(t) local made = amp.tensor {{0, 0}, {0, 0}}; made[1]:add_(t[1][1]); made:view(4)[4] = 7 return made:t() end, x)
    all_ways(function() local made = amp.tensor {1, 2} return made:detach():view(2, 1) end, x)
    all_ways(function(t) local made = amp.tensor {0, 0, 0, 0}; amp.add(t[1], t[2], {out = made}) return made end, x)
  end)
  it('is a constant where nothing writes it', function()
    local g = amp.trace(function(t) return t * amp.tensor {1, 2, 3, 4} end, x)
    assert.equal(1, #g:nodes())
  end)
  it('may be read by the host until it is written', function()
    local g = amp.trace(function(t) local k = amp.tensor {3}; return t * k * k:item() end, x)
    same(g(x), x * 9)
    assert.error_matches(function() amp.trace(function(t) local k = amp.tensor {3}; k:add_(t[1][1]) return t * k:item() end, x) end, 'item')
  end)
end)

describe('a compiled function sees', function()
  local x = amp.randn(3, 4)
  local function follows(f, ...)
    local compiled = amp.compile(f)
    for _, change in ipairs {function() end, ...} do
      change()
      for _ = 1, 2 do same(compiled(x), f(x)) end
    end
  end
  it('tables among its upvalues, and tables in them', function()
    local c = {scale = 2, more = {1, 2}}
    follows(function(t) return t * c.scale + c.more[2] end, function() c.scale = 3 end, function() c.more[2] = 5 end,
      function() c.more = {7, 8} end)
  end)
  it('functions among its upvalues', function()
    local act, own = F.relu, function(t) return t * 2 end
    local k = 2
    local inner = function(t) return t * k end
    follows(function(t) return act(t) + own(t) + inner(t) end, function() act = F.sigmoid end, function() own = function(t) return t * 3 end end,
      function() k = 4 end)
  end)
  it('globals', function()
    local env = setmetatable({scale = 2}, {__index = _G})
    local f = setfenv(function(t) return t * scale end, env) -- luacheck: ignore
    follows(f, function() env.scale = 3 end)
  end)
  it('methods of objects', function()
    local Class = {}
    Class.__index = Class
    function Class:run(t) return t * self.k end
    local o = setmetatable({k = 2}, Class)
    follows(function(t) return o:run(t) end, function() o.k = 3 end, function() function Class:run(t) return t + self.k end end)
  end)
  it('tables in fields of modules, upvalues of forward, hooks and methods', function()
    local k, Net = 2, nn.Module:extend 'Net'
    function Net:init() self.lin, self.o = nn.Linear(4, 4), {s = 2} end
    function Net.part(_, t) return t * k end
    function Net:forward(t) return self:part(self.lin(t)) * self.o.s end
    local net = Net()
    local twice = function(_, _, y) return y * 2 end
    local hook
    silent(function()
      follows(net, function() net.o.s = 3 end, function() k = 5 end, function() hook = net.lin:register_forward_hook(twice) end,
        function() hook.remove() end)
    end)
    net:hybridize()
    for i = 1, 3 do
      net.o.s = i
      same(net(x), net:forward(x))
    end
  end)
  it('modules that it does not call, and what they hold', function()
    local l, list = nn.Linear(4, 4), nn.ModuleList {nn.Linear(4, 4)}
    local k = nn.Module:extend 'K'()
    k.scale = 2
    follows(function(t)
      for i = 1, #list do t = list[i](t) end
      return F.linear(t, l.weight) * k.scale
    end, function() l.weight = nn.Parameter(amp.randn(4, 4)) end, function() k.scale = 3 end, function() list:append(nn.Linear(4, 4)) end,
      function() list[1] = nn.Linear(4, 4) end)
  end)
  it('tensors that others write, and whether they require grad', function()
    local t = amp.ones(4)
    follows(function(v) return v * (t * 2) end, function() t:add_(1) end, function() t.requires_grad = true end)
    local p = amp.ones(4, {requires_grad = true})
    follows(function(v) return p.requires_grad and v * p or v + p end, function() p.requires_grad = false end)
    local c = amp.compile(function(v) return v * (t * 2) end)
    t.requires_grad = false
    c(x)
    t.requires_grad = true
    c(x):sum():backward()
    assert.is_not_nil(t.grad)
  end)
  it('fields that it names of tables that hold much', function()
    local trainer = {scale = 2, data = {}, more = {k = 1}}
    for i = 1, 5000 do trainer.data[i] = {i} end
    local function part(t) return t + trainer.more.k + (trainer.extra or 0) end
    assert.same({}, silent(function()
      follows(function(t) return part(t) * trainer.scale end, function() trainer.scale = 3 end, function() trainer.more.k = 5 end)
      follows(function(t) return part(t) * trainer.scale end, function() trainer.more = {k = 6} end, function() trainer.extra = 7 end)
    end))
    local f = amp.compile(function(t) return t * trainer.data[7][1] end)
    assert.equal(1, #silent(function() same(f(x), x * 7) end))
  end)
  it('what it asks of its inputs', function()
    local function ways(f, ...)
      local c = amp.compile(f)
      for _ = 1, 2 do
        for _, v in ipairs {...} do same(c(v):detach(), f(v):detach()) end
      end
    end
    local a, b, q = amp.ones(3), amp.ones(3, {requires_grad = true}), amp.randn(4, 4)
    ways(function(t) return t.requires_grad and t * 2 or t * 3 end, a, b)
    ways(function(t) return t.is_leaf and t * 2 or t * 3 end, b, b * 1)
    ways(function(t) return t:is_contiguous() and t * 2 or t * 3 end, q, q:t())
    ways(function(t) return t:stride(1) == 1 and t * 2 or t * 3 end, q, q:t())
  end)
  it('the modes of its caller', function()
    local f = function(t) return amp.is_grad_enabled() and t * 2 or t * 3 end
    local c = amp.compile(f)
    for _ = 1, 2 do
      same(c(x), f(x))
      amp.no_grad(function() same(c(x), f(x)) end)
    end
  end)
end)

describe('outputs of a compiled function', function()
  it('may be written before backward as eager ones may', function()
    local x = amp.randn(3, 4)
    local f = amp.compile(function(t) return t * 2, (t * 2) * (t * 2) end)
    local v = amp.randn(3, 4):requires_grad_()
    local a, b = f(v)
    a:mul_(0)
    b:sum():backward()
    same(v.grad, v:detach() * 8)
    local y, z = amp.compile(function(t) return t * 2, t * 2 end)(x)
    y:add_(1)
    same(z, x * 2)
  end)
end)

describe('a compiled function that changes', function()
  local x = amp.randn(3, 4)
  local function counts(f, count)
    local c = amp.compile(f)
    local lines = silent(function()
      for i = 1, 5 do
        same(c(x), x * 2)
        assert.equal(i, count())
      end
    end)
    assert.equal(1, #lines)
    assert.matches('spec11_spec.lua:%d+: the function changes', lines[1])
  end
  it('an upvalue, a table or a global runs as it is', function()
    local n, log, deep = 0, {}, {o = {k = 0}}
    counts(function(t) n = n + 1 return t * 2 end, function() return n end)
    counts(function(t) log[#log + 1] = 'x' return t * 2 end, function() return #log end)
    counts(function(t) deep.o.k = deep.o.k + 1 return t * 2 end, function() return deep.o.k end)
    local env = setmetatable({total = 0}, {__index = _G})
    counts(setfenv(function(t) total = total + 1 return t * 2 end, env), function() return env.total end) -- luacheck: ignore
    local written = setmetatable({}, {__index = _G})
    counts(setfenv(function(t) last = t return t * 2 end, written), function() -- luacheck: ignore
      local was = written.last and 1 or 0
      written.last, written.times = nil, (written.times or 0) + was
      return written.times
    end)
  end)
  it('a table among its arguments runs as it is', function()
    local f = function(t, s) s.y = t * 2 return t end
    local c = amp.compile(f)
    silent(function()
      for _ = 1, 3 do
        local s = {}
        c(x, s)
        same(s.y, x * 2)
      end
    end)
    assert.error_matches(function() amp.trace(f, x, {}) end, 'changes a table')
  end)
  it('what it needs at its first call only is a graph from the second one', function()
    local mask
    local f = function(t) mask = mask or amp.ones(4) return t * mask end
    local c = amp.compile(f)
    assert.same({}, silent(function() for _ = 1, 3 do same(c(x), f(x)) end end))
  end)
end)

describe('a compiled function', function()
  local x = amp.randn(3, 4)
  it('sees what other compiled functions see', function()
    local k = 2
    local inner = amp.compile(function(t) return t * k end)
    local wrapped = amp.autocast.wrap(function(t) return t + k end, {enabled = false})
    local f = function(t) return inner(t) + wrapped(t) end
    local c = amp.compile(f)
    for i = 1, 3 do
      k = i
      same(c(x), x * i + x + i)
    end
  end)
  it('does not freeze what Lua draws, nor the time', function()
    local random = math.random
    for _, f in ipairs {function(t) return t * math.random() end, function(t) return t * random() end, function(t) return t * os.clock() end} do
      local c = amp.compile(f)
      local lines = silent(function() c(x) c(x) end)
      assert.equal(1, #lines)
      assert.matches('spec11_spec.lua:%d+: the function calls .*value the graph would keep', lines[1])
    end
    local Net = nn.Module:extend 'Net'
    function Net:init() self.w = amp.tensor {math.random()} end
    function Net:forward(t) return t * self.w end
    local net = Net()
    assert.same({}, silent(function() same(amp.compile(net)(x), net(x)) end))
  end)
  it('follows the default dtype', function()
    local f = function(t) return t + amp.zeros(4) end
    local c = amp.compile(f)
    for _, dtype in ipairs {'float32', 'float64', 'float32'} do
      amp.set_default_dtype(dtype)
      local y = c(x)
      amp.set_default_dtype 'float32'
      assert.equal(dtype, y.dtype)
    end
  end)
  it('sets requires_grad as the function does', function()
    local f = function(t) t.requires_grad = true return t * 2 end
    assert.error_matches(function() amp.trace(f, x:clone()) end, 'requires_grad is set')
    assert.error_matches(function() amp.trace(function(t) return t:detach():requires_grad_() * 2 end, x) end, 'requires_grad is set')
    local own = x:clone()
    silent(function() assert.is_true(amp.compile(f)(own).requires_grad) end)
    assert.is_true(own.requires_grad)
  end)
end)

describe('a traced function may not', function()
  local x = amp.randn(3, 4)
  it('leave defaults changed', function()
    assert.error_matches(function() amp.trace(function(t) amp.set_default_dtype 'float64' return t * 2 end, x) end, 'default dtype')
    assert.equal('float32', amp.get_default_dtype())
    local g = amp.trace(function(t)
      amp.set_default_dtype 'float64'
      local y = t + amp.zeros(4)
      amp.set_default_dtype 'float32'
      return y
    end, x)
    assert.equal('float64', g(x).dtype)
  end)
  it('free its arguments', function()
    local own = x:clone()
    assert.error_matches(function() amp.trace(function(t) local y = t * 2 t:free() return y end, own) end, 'frees a tensor')
    same(own, x)
  end)
end)

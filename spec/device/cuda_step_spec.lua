--- The end of a training step on a GPU, which the emulator stands for: the finite check of the gradients, the optimizer's
-- step and the scale's update. A step looks at few gradients by itself, and in a captured step the update does not wait for
-- it: with the bits that three launches in a line leave.
local assert = require 'luassert'
local E = require 'spec.device.emulated'

local head = E.head .. [[
local ffi = require 'ffi'
local INF, NAN = math.huge, 0 / 0
local function bits(t)
  t = t:detach():cpu():contiguous()
  return t:numel() == 0 and '' or ffi.string(t:data_ptr(), t:numel() * t:element_size())
end
local function flat(v, out)
  if type(v) == 'cdata' then out[#out + 1] = bits(v) return out end
  if type(v) ~= 'table' then out[#out + 1] = tostring(v) return out end
  local keys = {}
  for k in pairs(v) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for _, k in ipairs(keys) do
    out[#out + 1] = tostring(k)
    flat(v[k], out)
  end
  return out
end
-- parameters, moments and step counts, and the scale
local function memory(params, opt) return table.concat(flat(params, flat(opt:state_dict(), {})), '|') end
local function scale(s) return s:get_scale() .. ' after ' .. s:get_growth_tracker() end
local makers = {
  sgd = function(p) return optim.SGD(p, { lr = 0.1, weight_decay = 0.01 }) end,
  momentum = function(p) return optim.SGD(p, { lr = 0.1, momentum = 0.9, nesterov = true }) end,
  adam = function(p) return optim.Adam(p, { lr = 0.01 }) end,
  adamw = function(p) return optim.AdamW(p, { lr = 0.01, weight_decay = 0.1 }) end,
  amsgrad = function(p) return optim.Adam(p, { lr = 0.01, amsgrad = true }) end,
  lamb = function(p) return optim.LAMB(p, { lr = 0.01 }) end,
}
local function parameters(sizes, dtype)
  amp.manual_seed(5)
  local list = {}
  for i, n in ipairs(sizes) do list[i] = randn(n):to(dtype or 'float32'):detach():requires_grad_() end
  return list
end
-- a backward of the scaled loss; spoil[i] = { place, value } of the i-th gradient
local function backward(params, scaler, spoil)
  local loss = 0
  for i, p in ipairs(params) do
    local x = randn(p:size(1)):to(p.dtype)
    if spoil and spoil[i] then x:narrow(1, spoil[i][1], 1):fill_(spoil[i][2]) end
    loss = loss + (p * x):float():sum()
  end
  scaler:scale(loss):backward()
end
]]
local case = E.cases(it, pending, head)

-- names of what is launched between the two marks that code writes, and the longest lines of the graphs made
local function traced(code)
  local out, list, line = E.child(head .. code, 'AMP_EMULATOR_TRACE=1'), {}, {}
  for name in (out:match('begin\n(.*)end\n') or ''):gmatch 'launch ([^\n]+)' do list[#list + 1] = name end
  for n in out:gmatch 'nodes, (%d+) in a line' do line[#line + 1] = tonumber(n) end
  return table.concat(list, '\n'), line
end

describe('a step that looks at its gradients itself', function()
  case('leaves what a check before it leaves, around the largest size and wherever an overflow lies', [[
local function run(name, sizes, dtype, spoil, apart)
  local p = parameters(sizes, dtype)
  local opt, s, out = makers[name](p), amp.GradScaler { init_scale = 8, growth_interval = 2 }, {}
  for i = 1, 4 do
    backward(p, s, i == 3 and spoil)
    local before = i == 3 and memory(p, opt)
    if apart then s:unscale_(opt) end
    s:step(opt)
    if before and spoil then
      assert(s:found_inf(opt), 'overflow not found')
      assert(before == memory(p, opt), 'a skipped step changed something')
    else assert(not s:found_inf(opt), 'overflow found') end
    s:update()
    opt:clear_grad()
    out[i] = memory(p, opt) .. scale(s)
  end
  return table.concat(out, '\n')
end
local function compare(name, sizes, dtype, spoil)
  local what = table.concat({ name, dtype, table.concat(sizes, '+') }, ' ')
  assert(run(name, sizes, dtype, spoil) == run(name, sizes, dtype, spoil, true), what)
end
for _, name in ipairs { 'sgd', 'momentum', 'adam', 'adamw', 'amsgrad', 'lamb' } do
  for _, dtype in ipairs { 'float32', 'bfloat16' } do
    local sizes = { 1, 8, 13, 1200 }
    compare(name, sizes, dtype)
    compare(name, sizes, dtype, { { 1, INF } })
    compare(name, sizes, dtype, { [2] = { 8, -INF } })
    compare(name, sizes, dtype, { [3] = { 13, NAN } })
    compare(name, sizes, dtype, { [4] = { 777, NAN } })
  end
end
local most = 128 * 1024 / 4
for _, n in ipairs { most - 1, most, most + 1 } do
  compare('momentum', { n }, 'float32', { { n, NAN } })
  compare('sgd', { n - 9, 9 }, 'float32', { { n - 9, INF } })
end
compare('adam', { 2 * most }, 'bfloat16', { { 2 * most - 1, INF } })
compare('adam', { 2 * most + 1 }, 'bfloat16', { { 2 * most + 1, INF } })
]])

  case('sees one float16 element that overflowed in backward, of any row and column', [[
local function run(apart)
  local out = {}
  for _, at in ipairs { { 1, 1 }, { 3, 5 }, { 17, 24 }, { 16, 23 } } do
    amp.manual_seed(3)
    local net = nn.Linear(24, 17):to 'cuda'
    local opt, s = optim.SGD(net:parameters(), { lr = 0.1 }), amp.GradScaler { init_scale = 1024 }
    for i = 1, 3 do
      local x, pick = randn(2, 24), randn(2, 17)
      if i == 2 then
        x, pick = amp.zeros(2, 24, { device = 'cuda' }), amp.zeros(2, 17, { device = 'cuda' })
        x:select(1, 1):narrow(1, at[2], 1):fill_(1000)
        pick:select(1, 1):narrow(1, at[1], 1):fill_(1)
      end
      local y = amp.autocast({ dtype = 'float16' }, function() return net(x) end)
      s:scale((y:float() * pick):sum()):backward()
      if apart then s:unscale_(opt) end
      s:step(opt)
      same(i == 2, s:found_inf(opt), 'found')
      s:update()
      opt:clear_grad()
    end
    same(512, s:get_scale(), 'scale')
    out[#out + 1] = memory(net:parameters(), opt)
  end
  return table.concat(out)
end
assert(run() == run(true))
]])

  it('takes no launch for the check, where all gradients are few and one launch steps them', function()
    if not E.there then return pending 'no emulator' end
    local function launches(make)
      return (traced('local function make() ' .. make .. [[ end
local p, opt = make()
local s = amp.GradScaler { init_scale = 8 }
for i = 1, 2 do
  backward(p, s)
  io.stderr:write(i == 2 and 'begin\n' or '')
  s:step(opt)
  io.stderr:write(i == 2 and 'end\n' or '')
  s:update()
  opt:clear_grad()
end
]]))
    end
    local function alone(make) local l = launches(make) assert.is_nil(l:find('check', 1, true), l) assert.is_nil(l:find('\n', 1, true), l) end
    local function checked(make) assert.is_truthy(launches(make):find('check', 1, true), make) end
    alone 'local p = parameters { 128 * 256 } return p, makers.sgd(p)'
    alone 'local p = parameters({ 128 * 512 - 8, 8 }, "bfloat16") return p, makers.adamw(p)'
    checked 'local p = parameters { 128 * 256 + 1 } return p, makers.sgd(p)'
    checked 'local p = parameters { 8 } return p, makers.amsgrad(p)'
    checked 'local p = parameters { 8 } return p, makers.lamb(p)'
    checked 'local p = parameters { 8, 8 } return p, optim.SGD({ { params = { p[1] } }, { params = { p[2] } } }, { lr = 1 })'
    local many = 'local sizes = {} for i = 1, %d do sizes[i] = 8 end local p = parameters(sizes) return p, makers.sgd(p)'
    alone(many:format(40))
    checked(many:format(41))
  end)

  case('of one of two optimizers skips that one, and both back the scale off once', [[
local function run(apart, captured)
  local p, q = parameters { 40 }, parameters { 24 }
  local a, b, s = makers.adam(p), makers.momentum(q), amp.GradScaler { init_scale = 64, growth_interval = 2 }
  local function step(x, y)
    s:scale((p[1] * x):sum() + (q[1] * y):sum()):backward()
    if apart then s:unscale_(a); s:unscale_(b) end
    s:step(a):step(b)
    s:update()
    a:clear_grad()
    b:clear_grad()
  end
  if captured then step = amp.capture(step) end
  local out = {}
  for i = 1, 8 do
    amp.manual_seed(i)
    local x, y = randn(40), randn(24)
    if i == 4 or i == 7 then x:narrow(1, 40, 1):fill_(INF) end
    if i == 5 or i == 7 then y:narrow(1, 1, 1):fill_(NAN) end
    local before, other = memory(p, a), memory(q, b)
    step(x, y)
    same(i == 4 or i == 7, before == memory(p, a), 'the first ' .. i)
    same(i == 5 or i == 7, other == memory(q, b), 'the second ' .. i)
    out[i] = memory(p, a) .. memory(q, b) .. scale(s)
  end
  same('16 after 1', scale(s), 'scale')
  return table.concat(out, '\n')
end
local want = run()
assert(want == run(true))
assert(want == run(false, true), 'captured')
assert(want == run(true, true), 'captured, checks apart')
]])

  case('keeps the protocol: twice is an error, no update accumulates, an error before the step leaves the check', [[
local p = parameters { 16 }
local opt, s = makers.momentum(p), amp.GradScaler { init_scale = 8 }
backward(p, s)
s:step(opt)
fails(function() s:step(opt) end, 'step() was called already')
fails(function() s:unscale_(opt) end, 'after step()')
s:update()
opt:clear_grad()
backward(p, s, { { 5, INF } })
local before = memory(p, opt)
opt.param_groups[1].lr = 'fast'
fails(function() s:step(opt) end, 'lr of group 1')
opt.param_groups[1].lr = -1
fails(function() s:step(opt) end, 'lr must be 0 or more, got -1')
opt.param_groups[1].lr = 0.1
p[1].grad:fill_(1) -- the check was of what was there
assert(s:found_inf(opt))
s:update()
same(4, s:get_scale(), 'scale')
assert(before == memory(p, opt))
opt:clear_grad()
backward(p, s)
s:step(opt):update()
assert(before ~= memory(p, opt))
]])

  case('is not left to a method of the user, who may change gradients first', [[
local p = parameters { 16 }
local opt, s = makers.sgd(p), amp.GradScaler { init_scale = 8 }
function opt:step()
  p[1].grad:fill_(0)
  return optim.SGD.step(self)
end
backward(p, s, { { 5, INF } })
s:step(opt)
assert(s:found_inf(opt))
s:update()
same(4, s:get_scale(), 'scale')
]])
end)

local captured = [[
-- o.sizes; o.after(opt, s): what comes between the step and the update
local function run(o, captured)
  local p = parameters(o.sizes)
  local opt, s = makers[o.kind or 'adam'](p), amp.GradScaler { init_scale = 64, growth_interval = 2 }
  local function step(...)
    local loss = 0
    for i = 1, #p do loss = loss + (p[i] * select(i, ...)):sum() end
    s:scale(loss):backward()
    if o.clip then s:unscale_(opt) nn.utils.clip_grad_norm_(p, 0.5) end
    s:step(opt)
    if o.after then o.after(opt, s, p) end
    s:update()
    opt:clear_grad()
    return loss
  end
  if captured then step = amp.capture(step) end
  local out = {}
  for i = 1, 9 do
    amp.manual_seed(i)
    local x = {}
    for k, n in ipairs(o.sizes) do x[k] = randn(n) end
    if i == 3 or i == 6 or i == 7 then x[i % #x + 1]:narrow(1, i == 6 and 1 or x[i % #x + 1]:size(1), 1):fill_(i == 7 and NAN or INF) end
    if i == 8 then opt.param_groups[1].lr = 0.5 end
    local before = memory(p, opt)
    local loss = step(unpack(x)):item()
    same(i == 3 or i == 6 or i == 7, before == memory(p, opt), 'skipped ' .. i)
    out[i] = table.concat({ loss, memory(p, opt), scale(s) }, ' ')
  end
  same('64 after 0', scale(s), 'scale')
  return out
end
local function both(o)
  local a, b = run(o), run(o, true)
  for i = 1, #a do assert(a[i] == b[i], 'step ' .. i) end
end
]]
local function both(name, code)
  for _, environment in ipairs { 'AMP_EMULATED_ORDER=forward', 'AMP_EMULATED_ORDER=backward AMP_EMULATED_LAZY=1' } do
    case(name .. ', ' .. environment, captured .. code, environment)
  end
end

describe("a captured step's end", function()
  both('is the eager one, with a scale that grows and backs off', [[
for _, kind in ipairs { 'sgd', 'momentum', 'adam', 'amsgrad', 'lamb' } do both { kind = kind, sizes = { 24, 7, 130 } } end
both { sizes = { 128 * 256 + 8 } }
both { sizes = { 24, 7 }, clip = true }
]])
  both('is the eager one, whatever becomes of the gradients before the update', [[
both { sizes = { 24, 7 }, after = function(opt) opt:clear_grad() end }
both { sizes = { 24, 7 }, after = function(opt) opt:zero_grad { set_to_none = false } end }
both { sizes = { 24, 7 }, after = function(_, _, p) p[1].grad:fill_(INF) end }
both { sizes = { 24, 7 }, after = function(_, _, p) p[2].grad = p[2]:detach() * 0 / 0 end }
both { sizes = { 24, 7 }, after = function(opt, _, p) opt:clear_grad() for i = 1, 3 do amp.full({ 24 }, NAN, { device = 'cuda' }) end end }
]])

  both('knows what was found before a step that failed', [[
local function twice(captured)
  local p = parameters { 24 }
  local opt, s = makers.sgd(p), amp.GradScaler { init_scale = 64, growth_interval = 1 }
  local function step(x, y)
    s:scale((p[1] * x):sum()):backward()
    opt.param_groups[1].lr = -1
    assert(not pcall(s.step, s, opt))
    opt.param_groups[1].lr = 0.1
    opt:clear_grad()
    s:scale((p[1] * y):sum()):backward()
    s:step(opt):update()
    opt:clear_grad()
  end
  if captured then step = amp.capture(step) end
  local out = {}
  for i = 1, 6 do
    amp.manual_seed(i)
    local x, y = randn(24), randn(24)
    if i % 2 == 0 then x:narrow(1, 24, 1):fill_(INF) end
    local before = memory(p, opt)
    step(x, y)
    same(i % 2 == 0, before == memory(p, opt), 'skipped ' .. i)
    out[i] = memory(p, opt) .. scale(s)
  end
  return table.concat(out)
end
assert(twice() == twice(true))
]])

  it('is short: the update waits for the check at most, and few gradients need none', function()
    if not E.there then return pending 'no emulator' end
    local function line(n, growth, apart)
      local _, list = traced(([[
local p = parameters { %d }
local opt, s = makers.sgd(p), amp.GradScaler { init_scale = 8, growth_interval = %d }
local step = amp.capture(function(x)
  s:scale((p[1] * x):sum()):backward()
  if %s then s:unscale_(opt) end
  s:step(opt):update()
  opt:clear_grad()
end)
for i = 1, 3 do step(randn(p[1]:size(1))) end
]]):format(n, growth, tostring(apart)))
      assert.equal(1, #list)
      return list[1]
    end
    local few, many = 64, 128 * 256 + 8
    assert.equal(line(few, 0), line(few, 2), 'few: the update is beside the step')
    assert.equal(line(many, 0), line(many, 2), 'many: the update is beside the step')
    assert.equal(line(few, 2, true), line(few, 2) + 1, 'few: no check')
    assert.equal(line(many, 2, true), line(many, 2), 'many: a check')
  end)
end)

describe('gradients of two scales on a GPU', function()
  local two = E.cases(it, pending, head .. [[
local function leaf(...) return amp.tensor({ ... }, { device = 'cuda', requires_grad = true }) end
local ways = {
  set = function(s) s:update(16) return s end,
  assigned = function(s) s.scale_factor = 16 return s end,
  other = function() return amp.GradScaler { init_scale = 16 } end,
  grown = function(s)
    local q = leaf(1)
    s:scale(q:sum()):backward()
    s:step(optim.SGD({ q }, { lr = 1 })):update()
    return s
  end,
  overflow = function(s)
    local q = leaf(1)
    s:scale((q * INF):sum()):backward()
    s:step(optim.SGD({ q }, { lr = 1 })):update()
    return s
  end,
  same = function(s) return s end,
}
local uses = {
  plain = function(s, p, k) s:scale((p * k):sum()):backward() end,
  read = function(s, p, k) s:scale((p * k):sum()):backward() assert(p.grad) end,
  halves = function(s, p, k)
    amp.autocast({ dtype = 'float16' }, function() s:scale(p:reshape(1, 2):matmul(amp.full({ 2, 1 }, k, { device = 'cuda' })):sum()):backward() end)
  end,
  dy = function(s, p, k) (p * k):sum():backward(s:scale_tensor 'cuda') end,
  number = function(s, p, k) ((p * k):sum() * s.scale_factor):backward() end,
  manager = function(s, p, k)
    local gm = amp.GradManager():attach(p)
    gm:record(function() s:backward(gm, { (p * k):sum() }, { dy = { 1 }, unscale_grad = false }) end)
  end,
}
]])
  two('sum to the right value, and are unscaled each by its own, whoever steps; without a wait', [[
    for way, change in pairs(ways) do
      for use, backward in pairs(uses) do
        for _, last in ipairs { true, false } do
          local p, q, first = leaf(1, 2), leaf(1, 2), amp.GradScaler { init_scale = 1024, growth_interval = 1 }
          backward(first, p, 1)
          backward(first, q, 1)
          local second = change(first)
          backward(second, p, 3)
          local waits = amp.counters().host_waits
          local scaler = last and second or first
          local opt = optim.SGD({ p, q }, { lr = 0.5 })
          scaler:step(opt):update()
          local what = way .. ' ' .. use
          assert(amp.counters().host_waits == waits, what)
          same('-1 0', table.concat(p:tolist(), ' '), what)
          same('0.5 1.5', table.concat(q:tolist(), ' '), what)
          for i = 1, 2 do -- nothing came since: they are not divided again
            scaler:step(opt):update()
            same(('%g %g'):format(-1 - 2 * i, -2 * i), table.concat(p:tolist(), ' '), what)
          end
        end
      end
    end
  ]])
  it('of one scale launch nothing more than their backward, check and step', function()
    if not E.there then return pending 'no emulator' end
    local function launches(backward)
      return (traced('local p, scaler = parameters { 8 }, amp.GradScaler()\nlocal opt = makers.sgd(p)\nlocal function back(dy) ' .. backward .. [[ end
for i = 1, 2 do
  local dy = scaler:scale_tensor 'cuda'
  io.stderr:write(i == 2 and 'begin\n' or '')
  back(dy)
  scaler:step(opt):update()
  io.stderr:write(i == 2 and 'end\n' or '')
  opt:clear_grad()
end
]]))
    end
    local function count(list) return select(2, list:gsub('[^\n]+', '')) end
    local way = launches 'scaler:scale(p[1]:sum()):backward()'
    assert.equal(count(way), 1 + count(launches 'p[1]:sum():backward(dy)'), way) -- the product is one
    local twice = launches 'scaler:scale(p[1]:sum()):backward() scaler:scale(p[1]:sum()):backward()'
    assert.equal(2 + count(launches 'p[1]:sum():backward(dy) p[1]:sum():backward(dy)'), count(twice), twice)
    assert.is_true(count(twice) <= 2 * count(way) - 1, twice)
  end)
  two('a captured step that accumulates is that of eager ones, also beside an eager step of the same scaler', [[
    local function train(captured)
      local p, q, scaler, other = leaf(1, 2), leaf(1, 2), amp.GradScaler { init_scale = 8, growth_interval = 2 }, amp.GradScaler()
      local opt = optim.SGD({ p }, { lr = 0.5 })
      local function step()
        scaler:scale((p * p):sum()):backward()
        scaler:scale(p:sum()):backward()
        scaler:step(opt):update()
        opt:clear_grad()
      end
      local run, seen = captured and amp.capture(step) or step, {}
      for i = 1, 8 do
        run()
        if i == 6 then
          scaler:scale(q:sum()):backward()
          run()
          other:step(optim.SGD({ q }, { lr = 0.5 })):update()
          seen[#seen + 1] = table.concat(q:tolist(), ' ')
        end
        seen[#seen + 1] = table.concat(p:tolist(), ' ') .. ' at ' .. scaler:get_scale()
      end
      return table.concat(seen, '; ')
    end
    same(train(false), train(true), 'captured')
  ]])
end)

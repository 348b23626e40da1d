--- What a replay of a captured step begins with: its arguments, their casts, random numbers, all in the graph's first node;
-- and what a captured step leaves out. A GPU that the emulator stands for.
local assert = require 'luassert'
local E = require 'spec.device.emulated'

local head = E.head .. [[
local function f16(f, ...)
  local args = { ... }
  return amp.autocast({ dtype = 'float16' }, function() return f(unpack(args)) end)
end
-- a step of a small net; captured or not the results must be the same to the bit
local function steps(captured, f, calls)
  amp.manual_seed(3)
  local net = nn.Linear(6, 4):to 'cuda'
  local opt = optim.SGD(net:parameters(), { lr = 0.1 })
  local function step(...)
    local loss = f(net, ...)
    loss:backward()
    opt:step()
    opt:clear_grad()
    return loss
  end
  if captured then step = amp.capture(step) end
  local out = {}
  amp.manual_seed(4)
  calls(function(...) out[#out + 1] = step(...):item() end)
  for _, p in ipairs(net:parameters()) do out[#out + 1] = p:sum():item() end
  return out
end
local function alike(f, calls)
  local a, b = steps(false, f, calls), steps(true, f, calls)
  assert(#a > 2)
  for i = 1, #a do same(a[i], b[i], 'number ' .. i) end
  return a
end
local function mse(net, x, y) return f16(function() return F.mse_loss(net(x), y) end) end
]]

for _, environment in ipairs { '', 'AMP_EMULATED_LAZY=1' } do
  describe('arguments of a captured step' .. (environment == '' and '' or ', when the card is late'), function()
    local plain = E.cases(it, pending, head)
    local function case(name, code) return plain(name, code, environment) end

    case('are what each call gives: others, the same, the same changed in place', [[
alike(mse, function(step)
  local x, y = randn(8, 6), randn(8, 4)
  for _ = 1, 4 do step(x, y) end
  for _ = 1, 3 do step(randn(8, 6), randn(8, 4)) end
  x:mul_(2)
  step(x, y)
  step(x, y)
  y:fill_(0.5)
  step(x, y)
  step(x:clone(), y)
end)
]])

    case('may be freed, and others come to lie where they lay', [[
alike(mse, function(step)
  local y = randn(8, 4)
  for i = 1, 12 do
    local x = randn(8, 6)
    step(x, y)
    x:free()
  end
end)
]])

    case('are told apart though they lie alike, also by several graphs', [[
local one, two = amp.capture(function(x) return x * 1 end), amp.capture(function(x) return x * 2 end)
local function look(step, value)
  local x = amp.full({ 8 }, value, { device = 'cuda' })
  local y = step(x)
  if step == two then y = y / 2 + one(x) - x end
  same(y:sum():item(), 8 * value, 'of ' .. value)
  x:free()
end
for i = 1, 4 do look(one, i) look(two, 10 + i) end
for i = 1, 4 do
  look(one, 20 + i)
  local x = amp.full({ 8 }, 30 + i, { device = 'cuda' })
  two(x)
  same(one(x):sum():item(), 8 * (30 + i), 'after another graph')
end
]])

    case('may be views, with offsets, other strides, other places and of no elements', [[
alike(function(net, x, y, nothing) return mse(net, x, y) + nothing:sum() end, function(step)
  local whole, y, turned, none = randn(3, 8, 6), randn(8, 4), randn(6, 8), randn(0, 5)
  for _ = 1, 4 do step(whole[1], y, none) end
  step(whole[2], y, none)
  step(whole[3], y, none)
  step(turned:t(), y, none)
  step(whole[1], y, none)
  turned:mul_(2)
  step(turned:t(), y, none)
  local odd = randn(8 * 6 + 1):narrow(1, 2, 48):view(8, 6) -- not at a multiple of 16 bytes
  step(odd, y, none)
end)
]])

    case('may be changed by the step itself', [[
alike(function(net, x, y) x:mul_(0.5) return mse(net, x, y) end, function(step)
  local y = randn(8, 4)
  for _ = 1, 4 do step(randn(8, 6), y) end
end)
-- the same tensor again: an eager step would have halved it, so it is told apart by what the caller has
local x, y = randn(8, 6), randn(8, 4)
local step = amp.capture(function(x) x:mul_(0.5) return x:sum() end)
for _ = 1, 3 do step(x:clone()) end
same(step(x):item(), step(x):item(), 'the graph halves its own')
]])

    case('of other dtypes come as they are; both 16-bit casts of one are right', [[
alike(function(net, x, y, label)
  local a = f16(function() return F.cross_entropy(net(x), label) end)
  local b = amp.autocast({ dtype = 'bfloat16' }, function() return F.mse_loss(net(x), y) end)
  return a + b
end, function(step)
  for i = 1, 5 do
    local label = amp.tensor({ 1, 2, 3, 4, 1, 2, 3, 4 }, { dtype = 'int64' }):roll(i, 1):cuda()
    step(randn(8, 6), randn(8, 4), label)
  end
end)
]])

    case('may be more than the first node has places for', [[
alike(function(net, y, ...)
  local sum = 0
  for _, x in ipairs { ... } do sum = sum + net(x) end
  return F.mse_loss(sum, y)
end, function(step)
  local list = {}
  for i = 1, 20 do list[i] = randn(8, 6) end
  for k = 1, 5 do
    list[20] = randn(8, 6)
    list[k] = randn(8, 6)
    step(randn(8, 4), unpack(list))
  end
end)
]])

    case('may be what another captured step computes, or left behind', [[
local p, state = randn(8):detach():requires_grad_(), {}
local first = amp.capture(function(x)
  p.grad = nil
  local y = p * x
  state.y = y:detach() * 1
  y:sum():backward()
end)
local second = amp.capture(function(g, y) return g * 1, y * 1 end)
for i = 1, 7 do
  local x = amp.full({ 8 }, i, { device = 'cuda' })
  first(x)
  local g, y = second(p.grad, state.y)
  equal(g, x, 'the gradient of call ' .. i)
  equal(y, p:detach() * x, 'what it kept in call ' .. i)
end
]])

    case('may be those of the call before, or each other', [[
local function calls(captured)
  local kept, out = {}, {}
  local function step(x, y)
    kept.x, kept.y = x, y
    return x + 10 * y
  end
  if captured then step = amp.capture(step) end
  local function full(v) return amp.full({ 8 }, v, { device = 'cuda' }) end
  local function add(...) out[#out + 1] = step(...):sum():item() end
  for i = 1, 4 do add(full(i), full(i + 1)) end
  for i = 5, 7 do add(full(i), kept.x) end
  add(kept.y, kept.x)
  add(kept.y, kept.y)
  add(amp.stack { full(20), full(30) }:t():select(2, 1), kept.x)
  add(kept.x, full(40))
  return out
end
local a, b = calls(false), calls(true)
for i = 1, #a do same(a[i], b[i], 'call ' .. i) end
]])

    case('may be cast for nothing, and another cast lies there then', [[
local N = 2 ^ 20 + 512
for k = 1, 2 do
  local step = amp.capture(function(...)
    select(k, ...):half():free()
    return select(3 - k, ...):half():float()
  end)
  for i = 1, 4 do
    local x, y = amp.full({ N }, i, { device = 'cuda' }), amp.full({ N }, 100 + i, { device = 'cuda' })
    equal(step(x, y), k == 1 and y or x, 'call ' .. i)
  end
end
]])

    case('and random numbers go on from call to call', [[
local a = alike(function(net, x, y) return mse(net, F.dropout(x, 0.5, true), y) end, function(step)
  local x, y = randn(8, 6), randn(8, 4)
  for _ = 1, 6 do step(x, y) end
end)
assert(a[4] ~= a[5] and a[5] ~= a[6])
]])

    case('of a step of another stream follow what that stream wrote', [[
local side = amp.cuda.Stream()
local step = amp.capture(function(x) return x * 2 end)
for i = 1, 6 do
  local x = side:with(function() return amp.full({ 1000 }, i, { device = 'cuda' }) end)
  local y = side:with(function() return step(x) end)
  side:synchronize()
  same(y:sum():item(), 2000 * i, 'call ' .. i)
end
]])

    case('may be freed, as the step itself, before the replays have run', [[
local side = amp.cuda.Stream()
for _, with in ipairs { function(f) return f() end, function(f) return side:with(f) end } do
  local out = {}
  local step = amp.capture(function(x, y) return x:half():float() * 2 + y end)
  for i = 1, 6 do
    with(function()
      local x, y = amp.full({ 3000 }, i, { device = 'cuda' }), amp.full({ 3000 }, 1, { device = 'cuda' })
      out[i] = step(x, y)
      x:free()
      y:free()
    end)
  end
  step = nil
  collectgarbage() collectgarbage()
  with(function() for _ = 1, 20 do amp.full({ 3000 }, 999, { device = 'cuda' }) end end)
  for _ = 1, 20 do amp.full({ 3000 }, 999, { device = 'cuda' }) end
  side:synchronize()
  for i = 1, 6 do same(3000 * (2 * i + 1), out[i]:sum():item(), 'call ' .. i) end
  assert(step == nil)
end
]])

    case('with another shape or none are refused or another graph', [[
local step = amp.capture(function(x) return x:sum() end)
for i = 1, 4 do same(step(amp.full({ i }, 1, { device = 'cuda' })):item(), i, 'sum') end
for _ = 1, 4 do same(step(amp.full({ 7 }, 1, { device = 'cuda' })):item(), 7, 'sum') end
]])
  end)
end

local case = E.cases(it, pending, head)

describe('a captured step', function()
  case('has the values of small tensors of the CPU that it is given, as of numbers', [[
local calls = 0
local step = amp.capture(function(x, c, n)
  calls = calls + 1
  return x * 2 + c:to 'cuda' * n
end)
local x, c = amp.ones(4, { device = 'cuda' }), amp.zeros(4)
for i = 1, 12 do
  c:fill_(i % 3)
  same(4 * (2 + i % 3 * 2), step(x, c, 2):sum():item(), 'call ' .. i)
  same(4 * (2 + i % 3), step(x, amp.full({ 8 }, i % 3):narrow(1, 3, 4), 1):sum():item(), 'of a part, call ' .. i)
end
same(2 * 3 * 3, calls, 'calls')
local wide = amp.capture(function(x, c) return x * 2 + c:to 'cuda' end)
for _ = 1, 2 do wide(amp.ones(1000, { device = 'cuda' }), amp.ones(1000)) end
fails(function() wide(amp.ones(1000, { device = 'cuda' }), amp.ones(1000)) end, "can't be captured")
]])

  case('whose gradients are used outside goes on leaving them, whoever clears them', [[
local scaler = amp.GradScaler { init_scale = 1 }
local function run(captured, inside, after, scaled)
  local p = amp.ones(4, { device = 'cuda' }):requires_grad_()
  local opt, out = optim.SGD({ p }, { lr = 0.1 }), {}
  local function step(x)
    if inside then opt:clear_grad() end
    local loss = (p * x):sum()
    if scaled then loss = scaler:scale(loss) end
    loss:backward()
  end
  if captured then step = amp.capture(step) end
  for i = 1, 9 do
    step(amp.full({ 4 }, i, { device = 'cuda' }))
    after(opt, p, i)
    out[i] = p:sum():item()
  end
  return out
end
local function alike(what, inside, after, scaled)
  local a, b = run(false, inside, after, scaled), run(true, inside, after, scaled)
  for i = 1, #a do same(a[i], b[i], what .. ', call ' .. i) end
end
alike('cleared outside', false, function(opt) opt:step():clear_grad() end)
alike('cleared inside', true, function(opt) opt:step() end)
alike('cleared on both sides', true, function(opt) opt:step():clear_grad() end)
alike('never cleared', false, function(opt) opt:step() end)
alike('cleared now and then', true, function(opt, _, i) opt:step() if i % 3 == 0 then opt:clear_grad() end end)
alike('added to, then cleared', false, function(opt, _, i) opt:step() if i ~= 2 and i > 3 then opt:clear_grad() end end)
alike('filled with zeros', false, function(opt) opt:step() opt:zero_grad { set_to_none = false } end)
alike('clipped', true, function(opt, p) nn.utils.clip_grad_norm_({ p }, 0.5) opt:step() end)
alike('unscaled', false, function(opt) scaler:unscale_(opt) scaler:step(opt):update() opt:clear_grad() end, true)
-- what the graph can't do as an eager call is an error
fails(function() run(true, false, function(opt, _, i) opt:step() if i < 3 then opt:clear_grad() end end) end, 'another gradient')
fails(function() run(true, false, function(opt, p) opt:step() p.grad = amp.ones(4, { device = 'cuda' }) end) end, 'gradient')
]])

  case('that leaves a gradient on an argument is refused, one that returns it is not', [[
local p = randn(4):detach():requires_grad_()
local w = randn(4):detach():requires_grad_()
local left = amp.capture(function(x) (x * x * w):sum():backward() end)
local given = amp.capture(function(x) return amp.grad((x * x):sum(), { x })[1] end)
local outside = amp.capture(function(x) p.grad = nil (p * x):sum():backward() end)
local plain = amp.capture(function(x) p.grad, x.grad = nil, nil (p * x):sum():backward() x.grad = nil end)
for i = 1, 6 do
  equal(p:detach() * 2, given(p), 'returned')
  outside(p:detach())
  equal(p, p.grad, 'of what comes from outside')
  plain(p:detach():clone():requires_grad_())
  equal(p, p.grad, 'cleared')
  p.grad, w.grad = nil, nil
  if i <= 2 then
    left(p)
    equal(p:detach() * w:detach() * 2, p.grad, 'of an eager call')
    p.grad = nil
  else
    fails(function() left(p) end, 'argument 1', 'gradient')
    assert(p.grad == nil and w.grad == nil)
  end
end
]])

  case('on two GPUs is refused', [[
local function full(i, v) return amp.full({ 4 }, v, { device = 'cuda:' .. i }) end
local w = full(2, 3)
for k, f in ipairs {
  function(x, y) return x * 2, y * 2 end, function(x) return x * 2, w * 2 end, function(x) return x:to 'cuda:2' end,
  function(x) return x + amp.ones(4, { device = 'cuda:2' }):to 'cuda:1' end,
} do
  local step = amp.capture(f)
  for i = 1, 2 do step(full(1, i), full(2, i)) end
  fails(function() step(full(1, 3), full(2, 3)) end, 'captur', k <= 2 and 'on cuda:1, and on cuda:2' or nil) -- a copy between them may be refused by itself
  same(8, (full(1, 1) * 2):sum():item(), 'after step ' .. k)
end
-- each by itself
local step = amp.capture(function(x) return x * 2 end)
for i = 1, 5 do
  same(8 * i, step(full(1, i)):sum():item(), 'first')
  same(8 * i, step(full(2, i)):sum():item(), 'second')
end
]], 'AMP_EMULATED_GPUS=2')
end)

-- the names of what is launched, and how long the graph's line is
local function graph(code)
  local out = E.child(head .. code, 'AMP_EMULATOR_TRACE=1')
  return out:match '.*\nlaunch begin_step\n(.-)graph of', tonumber(out:match 'nodes, (%d+) in a line')
end

describe('an argument that has not changed', function()
  if not E.there then return pending('is not copied again', function() end) end
  it('is not copied again', function()
    local out = E.child(head .. [[
local x, step = randn(4), amp.capture(function(x) return x:sum() end)
for _ = 1, 3 do step(x) end
local function mark(s) io.stderr:write(s, '\n') step(x) end
mark 'same'
x:add_(1)
mark 'changed'
mark 'same again'
mark 'end']], 'AMP_EMULATOR_TRACE=1')
    assert.truthy(out:match('\nsame\n(.-)\nchanged'):find('node off', 1, true), out)
    local changed = out:match '\nchanged\n(.-)\nsame again'
    assert.truthy(changed:find('node on', 1, true), out)
    assert.truthy(out:match('\nsame again\n(.-)\nend'):find('node off', 1, true), out)
  end)
end)

describe('a captured step leaves out', function()
  local function body(f)
    return ([[
local net, x, y = nn.Linear(16, 16):to 'cuda', randn(8, 16), randn(8, 16)
local scaler, opt = amp.GradScaler {}, optim.SGD(net:parameters(), { lr = 0.1 })
local step = amp.capture(function(x, y)
  %s
  scaler:scale(loss):backward()
  scaler:step(opt) scaler:update() opt:clear_grad()
end)
for _ = 1, 3 do step(x, y) end
]]):format(f)
  end
  if not E.there then return pending('a cast of an argument, and a gradient of one', function() end) end

  it('the cast of an argument, which its first node does', function()
    local names, line = graph(body 'local loss = mse(net, x, y)')
    local _, casts = names:gsub('amp_ew', '')
    assert.equal(2, casts) -- the scaled loss, the loss's derivative
    local changed, longer = graph(body 'x:mul_(2) local loss = mse(net, x, y)')
    _, casts = changed:gsub('amp_ew', '')
    assert.equal(4, casts) -- the change, the cast behind it
    assert.equal(line + 2, longer)
  end)

  it('the gradient of one that backward begins with', function()
    local names = graph(body 'local loss = mse(net, x, y)')
    assert.falsy(names:find('value', 1, true))
  end)
end)

describe('the gradient of a table of embeddings', function()
  case('is added where the table has a gradient: no table of zeros, no sum of tables', [[
local N = 3000
local w = randn(N, 16):requires_grad_()
local ids = amp.tensor({ 1, 5, 5, N }, { dtype = 'int64' }):cuda()
local want = amp.zeros(N, 16)
for _, r in ipairs { 1, 5, 5, N } do want[r] = want[r] + 1 end
for tied = 1, 2 do
  w.grad = nil
  local function logits() return amp.matmul(amp.ones(2, 16, { device = 'cuda' }), w:t()):sum() end
  local function loss() return F.embedding(ids, w):sum() + (tied == 2 and f16(logits) or 0) end
  loss():backward()
  collectgarbage() collectgarbage()
  local l = loss()
  amp.reset_peak_memory 'cuda'
  local before = amp.cuda.memory_stats().live
  l:backward() -- onto the gradient that is there
  if tied == 1 then assert(amp.cuda.memory_stats().peak - before < N * 16 * 4 / 2, 'a table more') end
  equal(w.grad:cpu(), (want + (tied == 2 and 2 or 0)) * 2, 'twice')
end
-- one with a hook, a wanted gradient and history go the usual way
local seen, calls = nil, 0
local h = w:register_hook(function(g) seen, calls = g:clone(), calls + 1 end)
w.grad = nil
F.embedding(ids, w):sum():backward()
F.embedding(ids, w):sum():backward()
h:remove()
equal(seen, want, 'a hook sees what is new')
same(calls, 2, 'each time')
equal(w.grad, want * 2, 'with a hook')
local g = amp.grad(F.embedding(ids, w):sum(), { w })[1]
equal(g, want, 'asked for')
equal(w.grad, want * 2, 'and nothing added')
w.grad = nil
F.embedding(ids, w):pow(3):sum():backward { create_graph = true }
F.embedding(ids, w):pow(3):sum():backward { create_graph = true }
assert(w.grad.requires_grad)
]])
end)

describe('an optimizer that takes large parameters in', function()
  case('needs room for one of them, not for all', [[
local list = {}
for i = 1, 6 do
  list[i] = amp.zeros(20, 1024, 1024, { device = 'cuda' }):requires_grad_()
  list[i].grad = amp.ones(20, 1024, 1024, { device = 'cuda' })
end
list[7] = amp.zeros(10, { device = 'cuda' }):requires_grad_()
list[7].grad = amp.ones(10, { device = 'cuda' })
collectgarbage() collectgarbage()
amp.reset_peak_memory 'cuda'
local live = amp.cuda.memory_stats().live
optim.SGD(list, { lr = 1 }):step()
local peak = amp.cuda.memory_stats().peak
assert(peak - live < 90 * 2 ^ 20, (peak - live) / 2 ^ 20)
for i = 1, 7 do same(list[i]:view(-1)[3]:item(), -1, 'stepped') end
]])
end)

--- Regions whatever happens in them: endless recursion, errors between any two instructions, coroutines that are
-- given up, errors by identity, traces, memory.
local amp = require 'amp'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local word = require('amp.precision.autocast_state').of
local H = require 'spec.lib.helper'
local bit = require 'bit'
local S = core.S
local SCOPE, OBSERVE = 8, 16

local function state()
  return { S.grad_mode, S.autocast_on, S.autocast_depth, word[0], word[1], call.made or false,
    bit.band(S.attention, SCOPE + OBSERVE), S.interrupt, tonumber(S.rng_offset) }
end

local function weight() return amp.ones(2, 2, { requires_grad = true }) end

-- -- Kinds ----------------------------------------------------------------------------------------

-- Each makes what it needs once and gives a function that enters a region and runs f there, and one that looks whether
-- anything of it is left.
local kinds = {}

function kinds.no_grad() return function(f) return amp.no_grad(f) end end
function kinds.enable_grad() return function(f, ...) return amp.enable_grad(f, ...) end end
function kinds.autocast() return function(f) return amp.autocast(f) end end
function kinds.wrap()
  return function(f) return amp.autocast.wrap(f, { dtype = 'float16' })(1, 2, 3, 4) end
end
function kinds.scope() return function(f)
  return amp.scope(function()
    f()
    return 1
  end)
end end
function kinds.record()
  local w = amp.ones(2)
  return function(f)
    local gm = amp.GradManager():attach { w }
    return gm:record(function() return f() end)
  end, function() assert.is_false(w.requires_grad) end
end
function kinds.callback()
  local w = amp.ones(2)
  return function(f)
    local gm = amp.GradManager():attach({ w }, { callbacks = { function(_, g)
      f()
      return g
    end } })
    gm:record(function() gm:backward((w * w):sum()) end)
  end, function() assert.is_false(w.requires_grad) end
end
function kinds.hook()
  return function(f)
    local w = weight()
    amp.enable_grad(function()
      local y = w * 2
      y:register_hook(function() f() end)
      y:sum():backward()
    end)
  end
end
function kinds.Function()
  local double = amp.Function {
    forward = function(ctx, x)
      ctx.f()
      return x * 2
    end,
    backward = function(ctx, g)
      ctx.f()
      return g * 2
    end,
  }
  return function(f)
    local one = amp.Function { forward = function(ctx, x)
      ctx.f = f
      return double.forward(ctx, x)
    end, backward = double.backward }
    one(weight()):sum():backward()
  end
end
function kinds.custom()
  return function(f)
    local one = amp.Function {
      forward = amp.custom_fwd({ cast_inputs = 'float32' }, function(_, x)
        f()
        return x * 2
      end),
      backward = amp.custom_bwd(function(_, g) return g * 2 end),
    }
    amp.autocast(function() one(weight()):sum():backward() end)
  end
end
function kinds.checkpoint()
  return function(f)
    amp.checkpoint(function(x)
      f()
      return x * 2
    end, weight()):sum():backward()
  end
end
function kinds.module()
  local Net = amp.nn.Module:extend 'Net'
  function Net:forward(f) return amp.no_grad(f) end -- luacheck: ignore self
  local net = Net()
  return function(f) return net(f) end
end
function kinds.block()
  local w, opt = weight(), nil
  local block = require 'amp.levels.block'
  return function(f)
    opt = amp.optim.SGD({ w }, { lr = 0 })
    local scaler = amp.GradScaler { init_scale = 4 }
    block.run('scale_loss', scaler, (w * w):sum(), block.optimizers('scale_loss', opt), false, function(loss)
      f()
      loss:backward()
    end)
  end, function()
    if not opt then return end
    assert.is_false(require('amp.levels.master_step').of(opt).inside)
    w.grad = nil
  end
end
kinds['no_grad, autocast, scope'] = function()
  return function(f) return amp.no_grad(function() return amp.autocast(function() return amp.scope(f) end) end) end
end
kinds['an error caught inside'] = function()
  return function(f)
    return amp.autocast(function()
      pcall(amp.no_grad, function() error 'inner' end)
      return f()
    end)
  end
end
kinds['an error that goes out'] = function()
  return function(f)
    pcall(amp.no_grad, function()
      f()
      amp.autocast(error, 'out')
    end)
  end
end
kinds['a coroutine that yields out'] = function()
  return function(f)
    local co = coroutine.wrap(function()
      amp.no_grad(function()
        coroutine.yield()
        amp.autocast(function()
          f()
          coroutine.yield()
          f()
        end)
      end)
    end)
    amp.enable_grad(co)
    amp.autocast(f)
    co()
    f()
    co()
  end
end

-- -- Interrupts ---------------------------------------------------------------------------------------

local MARK = {}
local EVERY = os.getenv 'AMP_SPEC_EVERY' -- each instruction, not only the first 300 and then some

-- Run f with an error at its n-th instruction; true if f came to its end.
local function interrupted(f, n)
  local function hook()
    debug.sethook()
    error(MARK, 0)
  end
  local ok, e = pcall(function()
    debug.sethook(hook, '', n)
    f()
    debug.sethook()
  end)
  debug.sethook()
  return ok, e
end

local function every_instruction(name)
  local enter, left = kinds[name]()
  local w = weight()
  local function inside() return (w * 2).dtype end
  local function all() enter(inside) end
  all()
  if left then left() end
  local before, n = state(), 0
  before[9] = nil
  repeat
    n = n + (EVERY and 1 or n < 300 and 1 or n < 1500 and 7 or 61)
    local ok, e = interrupted(all, n)
    assert(ok or rawequal(e, MARK) or tostring(e):find 'error in error handling', e)
    local now = (w:matmul(w))
    assert(now.dtype == 'float32' and now.requires_grad, ('%s: an op after instruction %d gives %s'):format(name, n, now.dtype))
    local after = state()
    after[9] = nil
    for i = 1, 8 do
      if after[i] ~= before[i] then
        error(('%s: field %d is %s after an interrupt at instruction %d, was %s'):format(name, i, tostring(after[i]), n, tostring(before[i])), 0)
      end
    end
    if left then left() end
    if n % 37 == 0 then
      all()
      if left then left() end
    end
  until ok
  all()
  assert.is_true(n > 1)
end

describe('an error between any two instructions', function()
  local names = {}
  for name in pairs(kinds) do if not os.getenv 'KIND' or os.getenv 'KIND' == name then names[#names + 1] = name end end
  table.sort(names)
  for _, name in ipairs(names) do
    it('leaves nothing of ' .. name .. ', interpreted', function()
      jit.off()
      jit.flush()
      local ok, e = pcall(every_instruction, name)
      jit.on()
      assert(ok, tostring(e))
    end)
    it('leaves nothing of ' .. name .. ', compiled', function() every_instruction(name) end)
  end
  it('or two, is mended by the next region', function()
    local w = weight()
    jit.off()
    jit.flush()
    finally(jit.on)
    local function region() amp.no_grad(function() error 'own' end) end
    for n = 1, 120, 3 do
      for m = 1, 40 do
        pcall(function()
          pcall(function()
            debug.sethook(function() -- the second one m instructions after the first
              debug.sethook(function()
                debug.sethook()
                error(MARK, 0)
              end, '', m)
              error(MARK, 0)
            end, '', n)
            region()
            debug.sethook()
          end)
          for _ = 1, 20 do tostring(1) end
          debug.sethook()
        end)
        debug.sethook()
        amp.autocast(function() end)
        assert.equal(1, S.grad_mode, n .. ', ' .. m)
        assert.equal(0, S.autocast_depth)
      end
    end
    assert.is_true((w * w).requires_grad)
  end)
end)

-- -- Recursion -------------------------------------------------------------------------------------------

-- LuaJIT dies of a finalizer that raises in a collector's step at a trace's exit (SIGSEGV in _Unwind_RaiseException, for lack
-- of a frame to find a handler by), and at the end of the stack each does: "stack overflow". A plain script shows the same
-- with recursion and ffi.metatype's __gc. Regions end recursion before that, so it is looked at in a process of its own, too,
-- in which all is compiled.
local COMPILED, JIT = os.getenv 'AMP_SPEC_COMPILED', jit.status()

describe('endless recursion', function()
  before_each(function()
    if COMPILED then return end
    jit.off()
    jit.flush()
  end)
  after_each(function() if not COMPILED then jit.on() end end)
  if not COMPILED then
    it('in compiled code is one, too', function()
      if not JIT then return pending 'no compiler' end
      local out, status = H.sh(
        ("cd '%s' && AMP_SPEC_COMPILED=1 AMP_BUILD='%s' luajit spec/run.lua --filter='endless recursion' spec/unit/regions_spec.lua")
          :format(H.absolute(H.root), H.absolute(H.build)))
      local passed = tonumber(out:match '(%d+) passed, 0 failed')
      assert.equal(0, status, out)
      assert.is_true(passed and passed > 10, out)
    end)
  end
  local names = {}
  for name in pairs(kinds) do names[#names + 1] = name end
  table.sort(names)
  local function is_lua_error(f)
    local before = state()
    local ok, e = pcall(f)
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find 'overflow' or tostring(e):find 'error in error handling' or tostring(e):find 'inside another block', tostring(e))
    local after = state()
    before[9], after[9] = nil, nil
    assert.same(before, after)
    assert.is_true((weight() * 2).requires_grad)
  end
  for _, name in ipairs(names) do
    if not name:find 'caught' and not name:find 'goes out' and not name:find 'coroutine' then
      it('through ' .. name .. ' is an error of Lua', function()
        local enter, left = kinds[name]()
        local function down()
          enter(down)
          return 1
        end
        is_lua_error(down)
        if left then left() end
      end)
    end
  end
  it('through all kinds by turns is one', function()
    local all = {}
    for _, name in ipairs { 'no_grad', 'autocast', 'wrap', 'scope', 'Function', 'checkpoint', 'module', 'hook' } do all[#all + 1] = (kinds[name]()) end
    local depth = 0
    local function down()
      depth = depth + 1
      all[depth % #all + 1](down)
      return 1
    end
    is_lua_error(down)
  end)
  it('in a coroutine is one, and 2,000 regions are none', function()
    local function down() return 1 + amp.no_grad(down) end
    is_lua_error(coroutine.wrap(down))
    local function deep(n) return n == 0 and 0 or 1 + amp.no_grad(deep, n - 1) end
    assert.equal(1500, deep(1500))
    assert.equal(1500, coroutine.wrap(deep)(1500))
  end)
  it('ends before the end of the stack, where a finalizer of a collector that a trace called would end the process', function()
    local least
    local function room()
      local n = least
      while n > 0 and not (pcall(unpack, {}, 1, n)) do n = n - 100 end
      least = n
    end
    local function narrow() return room(), 1 + amp.no_grad(narrow) end
    local function among(a, b) -- with frames of others between, and many values
      room()
      if b > 0 then return 1 + among(a, b - 1) end
      return 1 + amp.no_grad(among, a, 2), select('#', unpack({}, 1, 150))
    end
    local function deep(n) return n == 0 and 0 or 1 + amp.no_grad(deep, n - 1) end
    local function all()
      for _ = 1, 2 do
        assert.equal(1500, deep(1500))
        for _, f in ipairs { narrow, function() return among(1, 2) end } do
          least = 3000
          is_lua_error(f)
          assert.is_true(least >= 2000, least)
        end
      end
    end
    all()
    coroutine.wrap(all)()
  end)
  it('takes no stack of the processor: 256 KiB are enough', function()
    local code = [[local function f() return 1 + amp.autocast(f) end local ok, e = pcall(f)
      assert(not ok and tostring(e):find 'overflow', e) assert(not amp.is_autocast_enabled()) print 'survived']]
    local out = H.child(code, nil, 'ulimit -s 256; OMP_NUM_THREADS=1')
    assert.is_truthy(out:find 'survived', out)
  end)
end)

-- -- Errors, traces, memory --------------------------------------------------------------------------------

describe('a region', function()
  it('passes every kind of error on as the same object, through nests and coroutines', function()
    for _, e in ipairs { { 1 }, 'text', 5, true, print } do
      local function nest() amp.no_grad(function() amp.autocast(function() amp.scope(error, e, 0) end) end) end
      assert.same({ false, e }, { pcall(nest) })
      assert.same({ false, e }, { coroutine.resume(coroutine.create(nest)) })
    end
    assert.same({ false }, { pcall(amp.no_grad, error) })
  end)
  it('keeps the trace of where the error was raised', function()
    local function culprit() error({}) end
    pcall(amp.no_grad, function() amp.autocast(function() culprit() end) end)
    assert.is_truthy(amp.traceback():find('culprit', 1, true), amp.traceback())
    pcall(coroutine.wrap(function() amp.no_grad(function() amp.autocast(culprit) end) end))
    assert.is_truthy(amp.traceback():find('regions_spec.lua', 1, true))
  end)
  it('leaves a trace of every kind of error value, in nests and coroutines', function()
    for _, e in ipairs { { 1 }, 'text', 5, true, print, amp.ones(1), coroutine.create(print), false } do
      local function culprit_of_all() error(e, 0) end
      local function nest() amp.no_grad(function() amp.autocast(function() amp.scope(function() return 1, culprit_of_all() end) end) end) end
      for _, run in ipairs { function() pcall(nest) end, function() coroutine.resume(coroutine.create(nest)) end,
        function() pcall(amp.enable_grad, coroutine.wrap(nest)) end } do
        pcall(amp.no_grad, error, 'another')
        run()
        assert.is_truthy(amp.traceback():find 'stack traceback:', type(e))
      end
      pcall(amp.no_grad, error, 'another')
      pcall(nest)
      assert.is_truthy(amp.traceback():find('culprit_of_all', 1, true), amp.traceback())
    end
    pcall(amp.no_grad, function() amp.autocast(error) end)
    assert.is_truthy(amp.traceback():find('that is nil', 1, true), amp.traceback())
    assert.is_nil(require('amp.error').note_here(nil))
    assert.is_truthy(amp.traceback():find('stack traceback', 1, true))
  end)
  it('gives all arguments and results, holes too', function()
    local function same(...) return ... end
    for n = 0, 6 do
      local args = {}
      for i = 1, n do if i % 2 == 1 then args[i] = i end end
      assert.equal(n, select('#', amp.no_grad(same, unpack(args, 1, n))))
      assert.equal(n, select('#', amp.scope(same, unpack(args, 1, n))))
      local got = { amp.autocast(same, unpack(args, 1, n)) }
      for i = 1, n do assert.equal(args[i], got[i]) end
    end
  end)
  it('in a coroutine that is given up holds nobody up, and is collected', function()
    local w = weight()
    local seen = setmetatable({}, { __mode = 'v' })
    for i = 1, 50 do
      local big = {}
      seen[i] = big
      coroutine.wrap(function()
        amp.no_grad(function()
          amp.autocast(function()
            coroutine.yield(big)
          end)
        end)
      end)()
      assert.is_true((w * w).requires_grad)
    end
    collectgarbage()
    collectgarbage()
    local n = 0
    for _ in pairs(seen) do n = n + 1 end
    assert.is_true(n <= 2, n .. ' are alive')
  end)
  it('is left and entered with its coroutine, in every order', function()
    local w = weight()
    local function look() return (w:matmul(w)).requires_grad, w:matmul(w).dtype end
    local function make(inner)
      return coroutine.wrap(function()
        amp.no_grad(function()
          coroutine.yield(look())
          amp.autocast(function()
            if inner then inner() end
            coroutine.yield(look())
          end)
          coroutine.yield(look())
        end)
        return look()
      end)
    end
    local want = { { false, 'float32' }, { false, 'bfloat16' }, { false, 'float32' }, { true, 'float32' } }
    local a, b, at = make(), make(), { 0, 0 }
    for _, which in ipairs { 1, 2, 2, 1, 2, 1, 1, 2 } do
      local co = which == 1 and a or b
      at[which] = at[which] + 1
      assert.same(want[at[which]], { co() })
      assert.same({ true, 'float32' }, { look() })
      collectgarbage()
    end
    local c = make(make())
    for i = 1, 4 do assert.same(want[i], { amp.enable_grad(c) }) end
    -- a coroutine without regions is where its resumer is
    local d = coroutine.wrap(function() while true do coroutine.yield(look()) end end)
    assert.same({ true, 'float32' }, { d() })
    assert.same({ false, 'float32' }, { amp.no_grad(d) })
    assert.same({ true, 'bfloat16' }, { amp.autocast(d) })
    assert.same({ true, 'float32' }, { d() })
  end)
  it('that was given up with its coroutine is nothing to a new one at the same address, a hundred thousand times', function()
    local w = weight()
    local function outside()
      local y = w:matmul(w)
      return y.dtype == 'float32' and y.requires_grad and amp.is_grad_enabled() and not amp.is_autocast_enabled()
    end
    local function body() amp.no_grad(amp.autocast, function() coroutine.yield() end) end
    local seen, again = {}, 0
    for i = 1, 1e5 do
      local co = coroutine.create(body)
      assert(coroutine.resume(co))
      local address = tostring(co)
      if seen[address] then again = again + 1 end
      seen[address] = true
      co = nil -- luacheck: ignore
      if i % 7 == 0 then assert.is_true(coroutine.wrap(outside)(), i)
      elseif i % 11 == 0 then assert.is_true(outside(), i) end
    end
    assert.is_true(again > 1000, 'no address was used again')
    assert.is_true(outside())
  end)
  it('a million times leaves memory flat', function()
    local function one() return 1 end
    local function run(n) for _ = 1, n do amp.no_grad(one) end end
    run(1000)
    collectgarbage()
    local before = collectgarbage 'count'
    run(1e6)
    for _ = 1, 2000 do coroutine.wrap(function() amp.autocast(one) end)() end
    collectgarbage()
    collectgarbage()
    assert.is_true(collectgarbage 'count' < before + 50)
  end)
end)

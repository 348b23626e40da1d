--- Regions whatever happens in them: endless recursion, errors between any two instructions, coroutines that are
-- given up, errors by identity, traces, memory.
local amp = require 'amp'
local core = require 'amp.ffi'
local call = require 'amp.call'
local word = require('amp.words').of
local H = require 'spec.helper'
local bit = require 'bit'
local S = core.S
local SCOPE, OBSERVE = 8, 16

local function state()
  return { S.grad_mode, S.autocast_on, S.autocast_depth, word[0], word[1], call.made or false, bit.band(S.attention, SCOPE + OBSERVE), S.interrupt, tonumber(S.rng_offset) }
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
    local y = w * 2
    y:register_hook(function() f() end)
    y:sum():backward()
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
    assert.is_false(require('amp.levels.side').of(opt).inside)
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
      if after[i] ~= before[i] then error(('%s: field %d is %s after an interrupt at instruction %d, was %s'):format(name, i, tostring(after[i]), n, tostring(before[i])), 0) end
    end
    if left then left() end
    if n % 37 == 0 then
      all()
      if left then left() end
    end
  until ok
  all()
  assert.is_true(n > 50)
end

describe('an error between any two instructions', function()
  local names = {}
  for name in pairs(kinds) do if not os.getenv 'KIND' or os.getenv 'KIND' == name then names[#names + 1] = name end end
  table.sort(names)
  for _, name in ipairs(names) do
    it('leaves nothing of ' .. name, function()
      jit.off()
      jit.flush()
      local ok, e = pcall(every_instruction, name)
      jit.on()
      assert(ok, tostring(e))
    end)
  end
end)

return H

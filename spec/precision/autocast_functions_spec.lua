--- Autocast and custom functions: amp.Function inside regions.
local amp = require 'amp'
local H = require 'spec.lib.helper'

local regions = require 'spec.precision.regions'
local region, weight, on = regions.region, regions.weight, regions.on

describe('custom functions', function()
  local function matmul_function(seen, wrap_fwd, wrap_bwd)
    return amp.Function {
      forward = wrap_fwd(function(ctx, a, b)
        ctx:save_for_backward(a, b)
        seen.forward = { on(), a.dtype }
        return a:matmul(b)
      end),
      backward = wrap_bwd(function(ctx, g)
        local a, b = unpack(ctx.saved_tensors)
        seen.backward = { on(), amp.get_autocast_dtype 'cpu', g.dtype }
        return g:matmul(b:t()), a:t():matmul(g)
      end),
    }
  end
  it('custom_fwd with cast_inputs casts and runs both ways with autocast off', function()
    local seen = {}
    local f = matmul_function(seen, function(fn) return amp.custom_fwd(fn, { cast_inputs = 'float32' }) end, amp.custom_bwd)
    local a, b = weight(), weight()
    local y = region('bfloat16', function() return f(a, b) end)
    y:sum():backward()
    assert.same({ false, 'float32' }, seen.forward)
    assert.is_false(seen.backward[1])
    assert.equal('float32', a.grad.dtype)
    local h = H.sample({ 3, 3 }, 'float16')
    f(h, h) -- outside a region it has no effect
    assert.same({ false, 'float16' }, seen.forward)
    local nested
    local g = amp.Function {
      forward = amp.custom_fwd(function(_, t)
        nested = t.list[1].dtype
        return t.list[1] * 1
      end, { cast_inputs = 'float16' }),
      backward = amp.custom_bwd(function() end),
    }
    region('bfloat16', function() g { list = { H.sample { 2 } } } end)
    assert.equal('float16', nested)
  end)
  it('without cast_inputs backward runs in the forward\'s state and dtype', function()
    for _, low in ipairs { 'float16', 'bfloat16' } do
      local seen = {}
      local f = matmul_function(seen, amp.custom_fwd, amp.custom_bwd)
      local a, b = weight(), weight()
      local y = region(low, function() return f(a, b) end)
      assert.equal(low, y.dtype)
      y:float():sum():backward()
      assert.is_true(seen.backward[1])
      assert.equal(low, seen.backward[2])
      assert.equal('float32', a.grad.dtype)
      assert.is_false(on())
    end
  end)
  it('half_function, float_function and promote_function', function()
    local function dtypes(a, b) return a.dtype, b and b.dtype end
    local h, f = H.sample({ 2 }, 'float16'), H.sample { 2 }
    region('float16', function()
      assert.equal('float16', (amp.half_function(dtypes)(f)))
      assert.equal('float32', (amp.float_function(dtypes)(h)))
      local a, b = amp.promote_function(dtypes)(h, f)
      assert.equal('float32', a)
      assert.equal('float32', b)
    end)
    assert.equal('float32', (amp.half_function(dtypes)(f)))
    region('bfloat16', function()
      -- nested tables are cast, what is not float16, bfloat16 or float32 is not
      local function nested(t) return t.a[1].dtype, t.d.dtype, t.i.dtype end
      local a, d, i = amp.half_function(nested) { a = { f }, d = H.sample({ 2 }, 'float64'), i = amp.ones(1, { dtype = 'int64' }) }
      assert.same({ 'bfloat16', 'float64', 'int64' }, { a, d, i })
      local m = H.sample { 2, 2 }
      assert.equal('float32', amp.float_function(function(x) return x:matmul(x).dtype end)(m))
      assert.equal('bfloat16', m:matmul(m).dtype)
    end)
    local w = weight()
    local y = region('float16', function() return amp.half_function(function(x) return x * 2 end)(w) end)
    y:float():sum():backward()
    assert.equal('float32', w.grad.dtype)
  end)
  it('register_half_function and friends replace a function of a module', function()
    local m = { f = function(x) return x.dtype end }
    amp.register_half_function(m, 'f')
    assert.equal('bfloat16', region('bfloat16', function() return m.f(H.sample { 2 }) end))
    local k = { f = function(x) return x.dtype end }
    amp.register_float_function(k, 'f')
    assert.equal('float32', region('bfloat16', function() return k.f(H.sample({ 2 }, 'bfloat16')) end))
    local p = { f = function(x, y) return x.dtype .. y.dtype end }
    amp.register_promote_function(p, 'f')
    assert.equal('float32float32', region('bfloat16', function() return p.f(H.sample({ 2 }, 'bfloat16'), H.sample { 2 }) end))
    H.fails_here(function() amp.register_half_function(m, 'nothing') end, 'nothing')
  end)
end)

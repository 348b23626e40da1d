--- Attention on a GPU against the CPU, results and all gradients: lengths around the kernels' tiles, head sizes with and
-- without padding, causal or masked, every layout of operands, values that are not finite. Large shapes on a real card
-- only. Needs a GPU (or the emulator).
local amp = require 'amp'
local core = require 'amp.ffi'
local H = require 'spec.lib.helper'
local C, S = core.C, core.S

local here = amp.cuda.is_available()
local card = here and not amp.cuda.get_device_properties().name:find 'emulated'

--- n x h x l x d of a dtype: 'plain', 'turned' (heads behind the length), 'odd' (rows that start anywhere), 'columns'
-- (values of a row apart), 'one' (a single value, expanded).
local function make(kind, n, h, l, d, dtype)
  if kind == 'turned' then return amp.randn({ n, l, h, d }, { dtype = 'float32' }):to(dtype):transpose(2, 3) end
  if kind == 'odd' then return amp.randn({ n, h, l, d + 3 }, { dtype = 'float32' }):to(dtype):narrow(4, 2, d) end
  if kind == 'columns' then return amp.randn({ n, h, d, l }, { dtype = 'float32' }):to(dtype):transpose(3, 4) end
  if kind == 'one' then return amp.full({ 1 }, 0.7, { dtype = dtype }):expand { n, h, l, d } end
  return amp.randn({ n, h, l, d }, { dtype = 'float32' }):to(dtype)
end

local masks = {
  bool = function(o) return amp.rand { o.n, o.h, o.l, o.s }:gt(0.4) end,
  keys = function(o) return amp.rand { o.n, 1, 1, o.s }:gt(0.5) end,
  float = function(o) return amp.randn { o.l, o.s } end,
  half = function(o) return amp.randn { o.h, o.l, o.s }:to(o.dtype) end,
  rows = function(o) -- all but the first row have no key
    local t = amp.zeros { o.l, o.s }:gt(1)
    t:narrow(1, 1, 1):fill_(true)
    return t
  end,
}

local function inputs(o)
  local q, k, v
  if o.kind == 'packed' then -- views of what one projection gives
    local p = amp.randn({ o.n, o.l, 3, o.h, o.d }, { dtype = 'float32' }):to(o.dtype):unbind(3)
    q, k, v = p[1]:transpose(2, 3), p[2]:transpose(2, 3), p[3]:transpose(2, 3)
  else
    q, k, v = make(o.kind, o.n, o.h, o.l, o.d, o.dtype), make(o.kind, o.n, o.h, o.s, o.d, o.dtype), make(o.kind, o.n, o.h, o.s, o.d, o.dtype)
  end
  return q, k, v, make(o.grad or o.kind, o.n, o.h, o.l, o.d, o.dtype), o.mask and masks[o.mask](o)
end

--- out, dq, dk, dv on a device
local function run(o, device, q, k, v, g, mask)
  local x, y, z = q:to(device):detach():requires_grad_(), k:to(device):detach():requires_grad_(), v:to(device):detach():requires_grad_()
  local r = amp.scaled_dot_product_attention(x, y, z, { attn_mask = mask and mask:to(device), is_causal = o.causal, scale = o.scale })
  r:backward(g:to(device))
  return { r:detach():cpu(), x.grad:cpu(), y.grad:cpu(), z.grad:cpu() }
end

local function text(o)
  local t = {}
  for k, v in pairs(o) do t[#t + 1] = k .. '=' .. tostring(v) end
  table.sort(t)
  return table.concat(t, ' ')
end

local function check(o)
  o.n, o.h, o.d, o.kind, o.causal = o.n or 1, o.h or 2, o.d or 64, o.kind or 'plain', o.causal or false
  local q, k, v, g, mask = inputs(o)
  local want, got = run(o, 'cpu', q, k, v, g, mask), run(o, 'cuda', q, k, v, g, mask)
  for i, name in ipairs { 'out', 'dq', 'dk', 'dv' } do
    local wrong = H.difference(got[i], H.values(want[i]), H.shape(want[i]), H.tolerance[o.dtype], (i > 1 and 3 or 1) * (o.factor or 1))
    if wrong then error(('%s: %s: %s'):format(text(o), name, wrong), 0) end
  end
end

describe('attention on a GPU agrees with the CPU:', function()
  if not here then
    it('needs one', function() pending(amp.cuda.reason()) end)
    return
  end
  amp.manual_seed(11)
  for _, dtype in ipairs { 'float16', 'bfloat16' } do
    describe(dtype, function()
      it('lengths around tiles, head sizes', function()
        for _, ls in ipairs { { 1, 1 }, { 1, 17 }, { 17, 17 }, { 17, 1 }, { 64, 64 }, { 100, 129 }, { 129, 100 }, { 129, 129 }, { 260, 70 }, { 70, 260 } } do
          local few = ls[1] * ls[2] < 5000
          for _, d in ipairs { 8, 40, 64, 128 } do
            for _, causal in ipairs { false, true } do
              if few or d == 64 or (d == 128 and causal) then
                check { dtype = dtype, l = ls[1], s = ls[2], d = d, causal = causal, h = few and 2 or 1, kind = d == 40 and 'turned' or 'plain' }
              end
            end
          end
        end
      end)
      it('masks', function()
        for name in pairs(masks) do
          check { dtype = dtype, l = 33, s = 70, mask = name, n = 2 }
          check { dtype = dtype, l = 130, s = 20, mask = name, d = 128, h = 1 }
        end
      end)
      it('layouts, more head sizes', function()
        check { dtype = dtype, l = 100, s = 100, kind = 'packed', grad = 'turned', causal = true, n = 2, h = 3 }
        for _, d in ipairs { 32, 24, 96, 72 } do
          check { dtype = dtype, l = 150, s = 70, d = d, kind = 'turned', grad = 'plain' }
          check { dtype = dtype, l = 70, s = 150, d = d, causal = true, h = 1 }
          check { dtype = dtype, l = 150, s = 150, d = d, kind = 'packed', grad = 'turned', causal = true, h = 1 }
          check { dtype = dtype, l = 40, s = 50, d = d, mask = 'bool' }
        end
        for _, kind in ipairs { 'odd', 'columns', 'turned' } do check { dtype = dtype, l = 40, s = 50, kind = kind, n = 2, h = 3 } end
        check { dtype = dtype, l = 40, s = 50, grad = 'one' }
      end)
      it('scales, no keys, sizes that tensor cores do not take', function()
        check { dtype = dtype, l = 40, s = 50, scale = -0.3, causal = true }
        check { dtype = dtype, l = 40, s = 50, scale = 0 }
        check { dtype = dtype, l = 40, s = 50, scale = 3, factor = 16 } -- one key weighs nearly all: what is left of its gradient is rounding
        check { dtype = dtype, l = 30, s = 0 }
        check { dtype = dtype, l = 40, s = 50, d = 12 }
        check { dtype = dtype, l = 40, s = 40, d = 136, causal = true }
      end)
      it('rows that are not finite', function()
        for _, o in ipairs { { at = 5, value = 0 / 0 }, { at = 70, value = math.huge } } do
          local q, k, v = make('plain', 1, 2, 90, 64, dtype), make('plain', 1, 2, 90, 64, dtype), make('plain', 1, 2, 90, 64, dtype)
          q[1][1][o.at]:fill_(o.value)
          k[1][1]:abs_()
          local y = amp.scaled_dot_product_attention(q, k, v)
          local got = amp.scaled_dot_product_attention(q:cuda(), k:cuda(), v:cuda()):cpu()
          local wrong = H.difference(got, H.values(y), H.shape(y), H.tolerance[dtype])
          if wrong then error(wrong, 0) end
          assert.equal(64, got:float():ne(got:float()):sum():item())
        end
      end)
      it('the same bits at every run if asked for', function()
        finally(function() amp.use_deterministic(false) end)
        amp.use_deterministic(true)
        local o = { dtype = dtype, n = 2, h = 3, l = card and 1000 or 130, s = card and 1000 or 130, d = 64, kind = 'packed', grad = 'turned', causal = true }
        local q, k, v, g = inputs(o)
        local first = run(o, 'cuda', q, k, v, g)
        for _ = 1, 3 do
          local again = run(o, 'cuda', q, k, v, g)
          for i = 1, 4 do H.same(again[i], first[i]) end
        end
      end)
      it('by cuDNN wherever it can, where it is there', function()
        local was = C.amp_device_set(S, 1, 'cudnn', 2)
        finally(function() C.amp_device_set(S, 1, 'cudnn', was) end)
        local function both(o) -- plans are made, plans are there
          check(o)
          check(o)
        end
        both { dtype = dtype, l = 128, s = 128, kind = 'packed', grad = 'turned', causal = true, n = 2, h = 3 }
        both { dtype = dtype, l = 100, s = 197, d = 40, kind = 'turned', grad = 'plain' }
        both { dtype = dtype, l = 197, s = 100, d = 128, causal = true }
        check { dtype = dtype, l = 40, s = 50, scale = -0.3 }
        check { dtype = dtype, l = 40, s = 50, mask = 'bool' }
      end)
      if card then
        it('large', function()
          for _, d in ipairs { 32, 64, 80, 96, 128 } do
            for _, causal in ipairs { false, true } do
              check { dtype = dtype, l = 1024, s = 1024, d = d, causal = causal, n = 4, h = 6, kind = 'packed', grad = 'turned' }
              check { dtype = dtype, l = 777, s = 1300, d = d, causal = causal, n = 3, h = 5 }
              check { dtype = dtype, l = 2500, s = 300, d = d, causal = causal, n = 2, h = 2 }
              check { dtype = dtype, l = 130, s = 130, d = d, causal = causal, n = 70, h = 20 }
            end
            check { dtype = dtype, l = 500, s = 700, d = d, mask = 'float', n = 3, h = 4 }
            check { dtype = dtype, l = 500, s = 700, d = d, mask = 'bool', n = 3, h = 4 }
          end
        end)
      end
    end)
  end
end)

--- 8-bit products and casts: closed forms against the reference in plain Lua, and what is refused.
local assert = require 'luassert'
local ffi = require 'ffi'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local R = require 'spec.lib.float8_reference'
local Call = require 'spec.ops.op_call'

local C, S = require('amp.ffi').C, require('amp.ffi').S

local M = { closed = {}, wrong = {} }
local closed = M.closed

local function lists(t) return t:detach():cpu():double():tolist() end

local function matrix(rows, cols, scale)
  amp.manual_seed(rows + cols)
  return amp.randn(rows, cols) * (scale or 1)
end

local function close(t, want, tolerance)
  local got = lists(t)
  for i = 1, #want do
    for j = 1, #want[i] do
      assert(math.abs(got[i][j] - want[i][j]) <= (tolerance or 1e-5) * (math.abs(want[i][j]) + 0.01), ('[%d][%d] is %g, not %g'):format(i, j, got[i][j], want[i][j]))
    end
  end
end

function closed.cast_unsaturated()
  for _, from in ipairs { 'float64', 'float32', 'float16', 'bfloat16', 'int64' } do
    local t = amp.tensor({ 1, 448, 500, -500, 0 }):to(from)
    local u = Call.raw('cast_unsaturated', { t }, { dtype = 'float8_e4m3' })[1]:tolist()
    assert(u[1] == 1 and u[2] == 448 and u[3] ~= u[3] and u[4] ~= u[4] and u[5] == 0)
  end
  local t = amp.tensor({ 1, 1e9 }):requires_grad_()
  local u = Call.raw('cast_unsaturated', { t }, { dtype = 'float8_e5m2' })[1]
  H.same(u:detach():float(), amp.tensor { 1, math.huge })
  u:float():sum():backward()
  H.same(t.grad, amp.ones(2))
  H.same(Call.raw('cast_unsaturated', { amp.tensor { 1.5 } }, { dtype = 'float16' })[1]:float(), amp.tensor { 1.5 })
end

-- The rows and columns of both layouts, whole and in pieces.
function closed.float8_quantize()
  M.ways()
  for _, format in ipairs { 'float8_e4m3', 'float8_e5m2' } do
    for _, dtype in ipairs { 'float64', 'float32', 'float16', 'bfloat16' } do
      for _, block in ipairs { false, true } do
        local x = matrix(5, 300):to(dtype)
        for _, t in ipairs { x, x:t() } do
          local out = Call.raw('float8_quantize', { t }, { format = format, block = block and 1 or 0 })
          assert.equal(format, out[1].dtype)
          local want = R.quantised(lists(t), format, block and 'block' or 'current')
          local bits = lists(out[1])
          local most = format == 'float8_e4m3' and 448 or 57344
          local largest = block and lists(out[2]) or nil
          for i = 1, #bits do
            for j = 1, #bits[i] do
              local l = block and largest[i][math.floor((j - 1) / 128) + 1] or out[2]:item()
              assert(math.abs(bits[i][j] * l / most - want[i][j]) <= 1e-6 * math.abs(want[i][j]))
            end
          end
        end
      end
    end
  end
  local history, counts = amp.tensor { 2, 8, 1, 0 }, amp.zeros(3, { dtype = 'float64' })
  local x = amp.tensor { { 16, 1e-9, 0, 4 } }
  local out = Call.raw('float8_quantize', { x, history, counts }, { format = 'float8_e4m3', window = 2 })
  H.same(out[1]:float(), amp.tensor { { 448, 0, 0, 224 } })
  H.same(out[2], amp.tensor { 8 })
  H.same(out[3], amp.tensor { 16 })
  H.same(history, amp.tensor { 2, 8, 1, 0 })
  H.same(counts, amp.tensor({ 4, 1, 1 }, { dtype = 'float64' }))
  H.fails(function() Call.raw('float8_quantize', { x, history }, { format = 'float8_e4m3', place = 2, window = 2 }) end, 'history')
  H.fails(function() Call.raw('float8_quantize', { x }, { format = 'float8_e4m3', block = 1, both = 1 }) end, 'pieces')
  H.fails(function() Call.raw('float8_quantize', { x, nil, nil, amp.ones(2) }, { format = 'float8_e4m3' }) end, 'known')
  H.fails(function() Call.raw('float8_quantize', { x }, { format = 'float16' }) end, 'float16')
  H.fails(function() Call.raw('float8_quantize', { amp.ones(3) }, { format = 'float8_e4m3' }) end, 'matrix')
end

-- Each way by which a matrix may lie, of sizes that are multiples of 16 and that are not; NaN and infinity among them.
function M.layouts(f)
  for _, size in ipairs { { 16, 16 }, { 5, 140 }, { 144, 32 } } do
    for _, dtype in ipairs { 'float64', 'float32', 'float16', 'bfloat16' } do
      local x = matrix(size[1], size[2]):to(dtype)
      x[{ 2, 3 }], x[{ 3, 3 }], x[{ 4, 5 }] = 0 / 0, math.huge, -math.huge
      f(x)
      f(x:t())
      f(x:narrow(1, 3, 1))
      f(matrix(size[1], 2 * size[2]):to(dtype):narrow(2, size[2], size[2]))
    end
  end
end

local function same_bits(a, b) -- a NaN is one, whatever its bits
  a, b = a:float(), b:float()
  assert(amp.equal(amp.where(a:isnan(), amp.zeros_like(a) + 1000, a), amp.where(b:isnan(), amp.zeros_like(b) + 1000, b)))
end

-- Rows and columns have the same bits; with the largest known nothing is looked for; earlier steps' go before; of a function.
function M.ways()
  for _, format in ipairs { 'float8_e4m3', 'float8_e5m2' } do
    M.layouts(function(x)
      local rows = Call.raw('float8_quantize', { x }, { format = format })
      same_bits(Call.raw('float8_quantize', { x:t() }, { format = format })[1]:t(), rows[1])
      for both = 0, 1 do
        local out = Call.raw('float8_quantize', { x, nil, nil, rows[3] }, { format = format, both = both })
        same_bits(out[1], rows[1])
        H.same(out[2], rows[2])
        H.same(out[3], rows[3])
        local late = Call.raw('float8_quantize', { x, amp.tensor { 0, 2, 0.5 } }, { format = format, both = both, window = 2 })
        H.same(late[2], amp.tensor { 2 })
        H.same(late[3], rows[3])
        same_bits(late[1], (x:double() * ((format == 'float8_e4m3' and 448 or 57344) / 2)):masked_fill(x:isinf(), 0 / 0):to(format))
        local none = Call.raw('float8_quantize', { x, amp.zeros(3) }, { format = format, both = both, window = 2 })
        H.same(none[2], rows[2])
        same_bits(none[1], rows[1])
        for name, approximate in pairs { gelu = 'none', gelu_tanh = 'tanh' } do
          local y = Call.raw('float8_quantize', { amp.gelu(x, { approximate = approximate }) }, { format = format })
          local z = Call.raw('float8_quantize', { x }, { format = format, both = both, of = name })
          same_bits(z[1], y[1])
          H.same(z[2], y[2])
        end
      end
    end)
  end
end

function closed.float8_note()
  local history = amp.tensor { 2, 8, 1, 0 }
  local function note(own, shift, place)
    local slots = ffi.new 'amp_slot[32]'
    slots[0].i, slots[1].i = shift, place
    local status = C.amp_opx(S, Call.by_name.float8_note.id + C.AMP_INPLACE, nil, nil, nil, history, amp.tensor { own }, nil, nil, nil, slots)
    if status < 0 then error(ffi.string(S.err.message), 0) end
  end
  note(16, 1, 0)
  H.same(history, amp.tensor { 16, 2, 8, 1 })
  note(4, 0, 1)
  H.same(history, amp.tensor { 16, 4, 8, 1 })
  H.fails(function() note(1, 0, 4) end, 'place 4')
end

local function quantised(t, format, block)
  return Call.raw('float8_quantize', { t }, { format = format or 'float8_e4m3', block = block and 1 or 0 })
end

function closed.float8_expand()
  local x = matrix(3, 200)
  local q, b = quantised(x), quantised(x, 'float8_e5m2', true)
  close(Call.raw('float8_expand', { q[1], q[2] }, {})[1], lists(q[1]))
  close(Call.raw('float8_expand', { b[1], b[2] }, {})[1], R.quantised(lists(x), 'float8_e5m2', 'block'))
  H.fails(function() Call.raw('float8_expand', { x, q[2] }, {}) end, 'float32')
  H.fails(function() Call.raw('float8_expand', { q[1], amp.ones(3) }, {}) end, 'one value')
end

function closed.float8_finish()
  local sums, bias = matrix(3, 4), amp.ones(4)
  local out = Call.raw('float8_finish', { sums, amp.tensor { 448 }, amp.tensor { 28672 }, bias },
    { input_format = 'float8_e4m3', other_format = 'float8_e5m2', base = 'bfloat16' })[1]
  H.same(out, (sums / 2 + 1):to 'bfloat16')
  H.fails(function() Call.raw('float8_finish', { sums, amp.ones(1), amp.ones(1) }, { input_format = 'float8_e4m3', other_format = 'bool', base = 'float32' }) end, 'bool')
end

function closed.float8_mm()
  local x, w, bias = matrix(4, 150), matrix(6, 150), amp.ones(6)
  for _, block in ipairs { false, true } do
    local a, b = quantised(x, 'float8_e5m2', block), quantised(w, 'float8_e4m3', block)
    local r = block and 'block' or 'current'
    local want = R.product(R.quantised(lists(x), 'float8_e5m2', r), R.quantised(lists(w), 'float8_e4m3', r))
    for i = 1, #want do for j = 1, #want[i] do want[i][j] = want[i][j] + 1 end end
    close(Call.raw('float8_mm', { a[1], b[1], a[2], b[2], bias }, { base = 'float32' })[1], want, 1e-4)
    H.fails(function() Call.raw('float8_mm', { a[1], quantised(x:t())[1], a[2], b[2] }, { base = 'float32' }) end, '4x150', '150x4')
  end
  H.fails(function() Call.raw('float8_mm', { x, w, amp.ones(1), amp.ones(1) }, { base = 'float32' }) end, '8-bit')
end

local function product(x, w, o, bias)
  return Call.raw('float8_product', bias and { x, w, bias } or { x, w }, { recipe = o.recipe, history = 16, base = 'float32', role = 'forward', input_format = 'float8_e4m3',
    other_format = 'float8_e4m3' })[1]
end

function closed.float8_product()
  for _, recipe in ipairs { 'current', 'delayed', 'block' } do
    local x, w, bias = matrix(5, 140):requires_grad_(), matrix(3, 140):requires_grad_(), amp.ones(3, { requires_grad = true })
    local y = product(x, w, { recipe = recipe }, bias)
    local g = matrix(5, 3)
    y:backward(g)
    local ry, rdx, rdw = R.linear(lists(x), lists(w), lists(g), { recipe = recipe })
    for i = 1, #ry do for j = 1, #ry[i] do ry[i][j] = ry[i][j] + 1 end end
    close(y, ry, 1e-4)
    close(x.grad, rdx, 1e-4)
    close(w.grad, rdw, 1e-4)
    close(bias.grad:view(1, 3), lists(g:sum(1):view(1, 3)), 1e-4)
  end
  H.fails(function() product(amp.ones(2, 3), amp.ones(2, 4), { recipe = 'current' }) end, '2x3', '2x4')
  H.fails(function() product(amp.ones(3), amp.ones(2, 3), { recipe = 'current' }) end, 'matrix')
end

return M

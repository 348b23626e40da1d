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
  H.fails(function() Call.raw('float8_quantize', { x }, { format = 'float16' }) end, 'float16')
  H.fails(function() Call.raw('float8_quantize', { amp.ones(3) }, { format = 'float8_e4m3' }) end, 'matrix')
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

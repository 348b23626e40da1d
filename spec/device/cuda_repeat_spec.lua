--- amp.use_deterministic: what is asked for and answered, and that on a GPU no op's result depends on the order in which
-- blocks and threads come. The emulator of spec/device/emulator runs them forward or backward as AMP_EMULATED_ORDER says.
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.lib.helper'

local E = require 'spec.device.emulated'

local head = [[
local amp = require 'amp'
local ffi = require 'ffi'
ffi.cdef 'int amp_spec_setenv(const char *name, const char *value, int replace) __asm__("setenv");'
local function order(name) ffi.C.amp_spec_setenv('AMP_EMULATED_ORDER', name, 1) end
-- whether f's tensors have the same bits in both orders
local function bits(list)
  local out = {}
  for i, t in ipairs(list) do
    t = t:detach():cpu():contiguous()
    out[i] = t:numel() == 0 and '' or ffi.string(t:data_ptr(), t:numel() * t:element_size())
  end
  return table.concat(out, '|')
end
local function repeats(f)
  order 'forward'
  local a = bits(f())
  order 'backward'
  local b = bits(f())
  order 'forward'
  return a == b
end
]]

local case = E.cases(it, pending, head)

describe('amp.use_deterministic', function()
  it('is off, can be switched on and off, and answers', function()
    assert.is_false(amp.is_deterministic())
    amp.use_deterministic(true)
    assert.is_true(amp.is_deterministic())
    amp.use_deterministic(false)
    assert.is_false(amp.is_deterministic())
    amp.use_deterministic()
    assert.is_true(amp.is_deterministic())
    amp.use_deterministic(false)
    H.fails_here(function() amp.use_deterministic(1) end, 'true or false', '1')
  end)

  case('reaches a GPU that is found later, and one that is there', [[
amp.use_deterministic(true)
assert(amp.cuda.deterministic() == true)
amp.use_deterministic(false)
assert(amp.cuda.deterministic() == false)
amp.use_deterministic(true)
assert(amp.cuda.deterministic() == true)
]])

  case('makes sums at indices the same in any order of threads; without it they are not', [[
amp.manual_seed(1)
local n = 4000
local x, i = amp.randn(n, 3, { device = 'cuda' }), amp.randint(1, 6, { n }, { dtype = 'int64', device = 'cuda' })
local function sums()
  local v = x:clone()
  v.requires_grad = true
  local s = v:as_strided({ n - 8, 8 }, { 3, 1 }):mul(x:narrow(1, 1, n - 8):sum(2, true)):sum()
  s:backward()
  local w = amp.zeros(5, 3, { device = 'cuda', requires_grad = true })
  amp.nn.functional.embedding(i, w):mul(x):sum():backward()
  return { amp.zeros(5, 3, { device = 'cuda' }):index_add(1, i, x), v.grad, w.grad }
end
assert(not repeats(sums), 'the emulated orders make no difference')
for _, name in ipairs { 'index_add', 'as_strided', 'embedding' } do
  local k = name == 'index_add' and 1 or name == 'as_strided' and 2 or 3
  assert(not repeats(function() return { sums()[k] } end), name .. ': the orders make no difference')
end
amp.use_deterministic(true)
assert(repeats(sums))
]])

  case('does so for every op and derivative of the table', [[
local ops, walk = require 'spec.ops.op_call', require 'spec.ops.op_walk'
amp.use_deterministic(true)
local bad, n = {}, 0
for _, row in ipairs(ops.rows) do -- views and composites launch what other rows do
  for _, c in ipairs((row.kind == 'K' or row.kind == 'N') and walk.cases[row.name] or {}) do
    n = n + 1
    local function run()
      amp.manual_seed(3)
      local inp = walk.arguments(c, 'float32')
      local list = ops.call(row.name, inp, c.attrs)
      for _, x in ipairs(inp) do if type(x) == 'cdata' then list[#list + 1] = x end end
      local f = not walk.no_derivative(row) and walk.as_function(row, c, walk.arguments(c, 'float32'))
      for _, g in ipairs(f and walk.first(f) or {}) do list[#list + 1] = g end
      return list
    end
    if not repeats(run) then bad[#bad + 1] = walk.label(c) end
  end
end
assert(n > 500, n)
assert(#bad == 0, table.concat(bad, ', '))
]], 'AMP_SPEC_DEVICE=cuda')
end)

--- Cases on a GPU that the emulator of spec/device/emulator stands for: each is a process of its own, which finds
-- build/emulated/libamp_cuda.so first. Pending where that was not built.
local assert = require 'luassert'
local H = require 'spec.lib.helper'

local M = {}

local folder = H.absolute(H.build) .. '/emulated'
local file = io.open(folder .. '/libamp_cuda.so')
if file then file:close() end
M.there = file ~= nil

--- What cases can use: short names, random tensors of the GPU, comparisons, errors by parts of their text.
M.head = [[
local nn, F, optim, data = amp.nn, amp.nn.functional, amp.optim, amp.data
local function randn(...)
  local n, a = select('#', ...), { ... }
  if type(a[n]) ~= 'table' then a[n + 1] = {} end
  a[#a].device = 'cuda'
  return amp.randn(unpack(a))
end
local function same(a, b, what) if not (a == b or (a ~= a and b ~= b)) then error(('%s: %s, not %s'):format(what, tostring(b), tostring(a)), 2) end end
local function equal(a, b, what) if not a:cpu():equal(b:cpu()) then error(what .. ': other values', 2) end end
local function fails(f, ...)
  local ok, e = pcall(f)
  assert(not ok, 'no error')
  e = tostring(e)
  for _, part in ipairs {...} do assert(e:find(part, 1, true), e .. ' lacks ' .. part) end
  return e
end
]]

--- For products of matrices, behind the head: rows called by their names, matrices laid out in several ways, the switch of
-- the kernel for small ones.
M.matrices = [[
local core, raw = require 'amp.ffi', require('spec.ops.op_call').raw
local function small(on) assert(core.C.amp_device_set(core.S, 1, 'small', on) >= 0) end
-- a matrix as it is laid out in several ways
local function laid(how, m, n, dtype)
  if how == 'turned' then return randn(n, m):to(dtype):t() end
  if how == 'apart' then return randn(m, n + 8):to(dtype):narrow(2, 1, n) end
  if how == 'shifted' then return randn(m * n + 1):to(dtype):narrow(1, 2, m * n):view(m, n) end
  if how == 'expanded' then return randn(1, n):to(dtype):expand(m, n) end
  return randn(m, n):to(dtype)
end
]]

--- Runs code on the emulated GPU.
-- @tparam string code
-- @tparam ?string environment more of it, `NAME=value`
-- @treturn string what it printed; it has to end well
function M.child(code, environment)
  local out, status = H.child(code, '', ("AMP_PLUGIN_DIR='%s' %s"):format(folder, environment or ''))
  assert.equal(0, status, out)
  return out
end

--- What makes cases: `case(name, f, environment)`, pending without the emulator; f is a function, or code to run behind
-- the head.
-- @tparam function it busted's, which only a spec sees
-- @tparam function pending the same
-- @tparam ?string head default M.head
function M.cases(it, pending, head)
  return function(name, f, environment)
    if not M.there then return pending(name, function() end) end
    it(name, type(f) == 'function' and f or function() M.child((head or M.head) .. f, environment) end)
  end
end

return M

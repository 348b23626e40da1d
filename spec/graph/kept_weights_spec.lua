--- Weights of products that graphs keep in the form of their kernels: counted as memory, given up by an option and where memory is short.
local amp = require 'amp'
local nn = amp.nn
local core = require 'amp.ffi'
local C = core.C

local SIZE = 256
local BYTES = SIZE * SIZE * 4

local function net() return nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE)):eval() end
local x = amp.randn(16, SIZE) -- few rows: with more, kernels without blocked forms keep nothing

local function live()
  jit.flush() -- traces hold what they were compiled for
  collectgarbage()
  collectgarbage()
  return tonumber(C.amp_memory(C.AMP_CPU, 0).live)
end

-- Bytes that stay after runs.
local function stays(run)
  local before = live()
  for _ = 1, 3 do amp.no_grad(run, x):free() end
  return live() - before
end

-- An allocation fails.
local function short()
  C.amp_fail_allocation(3) -- a tensor, its storage, its block
  pcall(amp.empty, 1000)
  C.amp_fail_allocation(-1)
end

describe('kept weights of products', function()
  local n = net()
  local wanted = amp.no_grad(n, x)
  local kept = amp.trace(n, x):optimize()
  local keeps = stays(kept)

  it('are counted as memory, or there are none', function()
    assert.is_true(keeps == 0 or keeps >= 2 * BYTES)
  end)

  it('do not stay with keep_weights = false, and the results are the same', function()
    local lean = amp.trace(n, x):optimize {keep_weights = false}
    assert.is_true(stays(lean) < BYTES / 2)
    assert.is_true(amp.allclose(amp.no_grad(lean, x), wanted, {rtol = 1e-4, atol = 1e-5}))
    local compiled = amp.compile(n, {keep_weights = false})
    assert.is_true(stays(compiled) < BYTES / 2)
    assert.is_true(amp.allclose(amp.no_grad(compiled, x), wanted, {rtol = 1e-4, atol = 1e-5}))
    assert.error_matches(function() amp.compile(n, {keep_weights = 1}) end, 'keep_weights')
    assert.error_matches(function() kept:optimize {keep_weight = false} end, 'keep_weights')
  end)

  it('go where memory is short, and come again', function()
    local before = live()
    short()
    assert.is_true(before - live() >= keeps * 0.9)
    assert.is_true(amp.allclose(amp.no_grad(kept, x), wanted, {rtol = 1e-4, atol = 1e-5}))
    assert.is_true(stays(kept) <= keeps)
    kept = nil
    assert.is_true(keeps == 0 or live() < before) -- a kernel that keeps none leaves nothing to give up
    short() -- what went is not looked for
  end)
end)

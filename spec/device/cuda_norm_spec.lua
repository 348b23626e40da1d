--- Layer norm and RMS norm on a GPU, which the emulator stands for: rows of any length, and the 16-bit copy that a
-- region's layer norm leaves for the next product.
local assert = require 'luassert'
local E = require 'spec.device.emulated'
local case = E.cases(it, pending)

-- what is launched between the two marks that code writes
local function launches(code)
  local out, list = E.child(code, 'AMP_EMULATOR_TRACE=1'), {}
  for name in out:match('begin\n(.*)end\n'):gmatch 'launch ([^\n]+)' do list[#list + 1] = name end
  return list
end

describe('launches that layer norm saves:', function()
  local head = E.head .. "local x, w, norm = randn(4, 16):requires_grad_(), randn(8, 16):requires_grad_(), nn.LayerNorm(16):to 'cuda'\n"
  case("the cast of its result for a region's product", function()
    local list = launches(head .. [[
local function region() return amp.autocast({ device = 'cuda', dtype = 'float16' }, function() return F.linear(norm(x), w) end) end
region()
io.stderr:write 'begin\n'
region()
io.stderr:write 'end\n'
]])
    assert.equal(2, #list, table.concat(list, ', ')) -- itself and the product; the cast of w is kept
  end)
  case('the sum of its gradient and of what came beside it', function()
    local list = launches(head .. [[
local y = x * 2
local z, g = y + norm(y), randn(4, 16)
io.stderr:write 'begin\n'
z:backward(g)
io.stderr:write 'end\n'
]])
    assert.equal(3, #list, table.concat(list, ', ')) -- its two, that of x * 2
  end)

  -- with a residual in 16 bits added first
  local residual = [[
local low, branch, w2 = { device = 'cuda', dtype = 'bfloat16' }, randn(4, 16):bfloat16():requires_grad_(), randn(8, 16):requires_grad_()
local dz, ds = randn(4, 8):bfloat16(), randn(4, 16)
local function step(joined, forward, backward)
  local z, s
  amp.autocast(low, function()
    local y, b = nil, branch * 2
    io.stderr:write(forward)
    if joined then y, s = norm:forward_add(x, b) else s = x + b y = norm(s) end
    z = F.linear(y, w2)
    io.stderr:write(forward == '' and '' or 'end\n')
  end)
  io.stderr:write(backward)
  amp.backward({ z, s }, { grad_tensors = { dz, ds } })
  io.stderr:write(backward == '' and '' or 'end\n')
end
step(%s, '%s', '%s')
]]
  case("the sum of its input, and in backward the residual's 16-bit gradient", function()
    local function count(joined, ...) return #launches(head .. residual:format(joined, ...)) end
    for _, marks in ipairs { { 'begin\\n', '' }, { '', 'begin\\n' } } do
      assert.equal(1, count('false', unpack(marks)) - count('true', unpack(marks)))
    end
  end)

  case("GPT-2's sums of residuals", function()
    local list = launches(E.head .. [[
local net = require 'examples.models.gpt2' { size = 16, layers = 2, heads = 2, vocabulary = 24, context = 8 }:to 'cuda'
local x = amp.randint(1, 20, { 2, 8 }, { dtype = 'int64' }):to 'cuda'
local function forward() return amp.autocast({ device = 'cuda', dtype = 'bfloat16' }, function() return net(x, x) end) end
forward()
io.stderr:write 'begin\n'
forward()
io.stderr:write 'end\n'
]])
    local norms = 0
    for i, name in ipairs(list) do
      if name:find('forward_fast', 1, true) then
        norms = norms + 1
        if norms > 1 then assert.is_truthy(list[i - 1]:find '^%(?small', 'what comes before norm ' .. norms) end -- a product
      end
    end
    assert.equal(5, norms)
  end)
end)

describe('backward of layer norm', function()
  case('takes rows longer than all multiprocessors have threads for', [[
local n = 12289
local x, w = randn(1, n), randn(n)
local function gradient(device)
  local a = x:detach():to(device):requires_grad_()
  return amp.grad(F.layer_norm(a, { n }, w:to(device)):pow(3):sum(), { a })[1]:cpu()
end
local want = gradient 'cpu'
local far, most = (want - gradient 'cuda'):abs():max():item(), want:abs():max():item()
assert(far < 1e-4 * most, 'off by ' .. far)
]], 'AMP_EMULATED_SMS=1')

  -- more rows than warps, and than a warp has on their way at once; in float32 and 16 bits, with and without what came so far
  case('takes many rows of each length that is read ahead', [[
for _, case in ipairs { { 264 }, { 768 }, { 1000 }, { 520, 'float16' } } do
  local n, half = case[1], case[2]
  local x, r, w, b = (randn(36, n) + 2):to(half or 'float32'), randn(36, n):to(half or 'bfloat16'), randn(n), randn(n)
  for _, low in ipairs(half and { half } or { 'bfloat16', 'float32' }) do
    for _, so_far in ipairs(half and { true, false } or { low == 'bfloat16' }) do
      local gy, gs = randn(36, n):to(low), randn(36, n):to(x.dtype)
      local function gradients(device)
        local leaves = {}
        for i, t in ipairs { x, r, w, b } do leaves[i] = t:detach():to(device):requires_grad_() end
        local y, s = amp.add_layer_norm(leaves[1], leaves[2], { n }, leaves[3], leaves[4], 1e-5, low)
        return amp.grad(so_far and { y, s } or { y }, leaves, { grad_outputs = { gy:to(device), so_far and gs:to(device) or nil } })
      end
      local want, got = gradients 'cpu', gradients 'cuda'
      for i = 1, 4 do
        same(want[i].dtype, got[i].dtype, 'dtype')
        local a, z = got[i]:cpu():float(), want[i]:float()
        local far = ((a - z):abs() / (z:abs() + 1)):max():item()
        local most = want[i].dtype == 'float32' and 2e-5 or 1e-2
        if not (far < most) then error(('%d %s %s, gradient %d: off by %g'):format(n, low, tostring(so_far), i, far)) end
      end
    end
  end
end
]], 'AMP_EMULATED_SMS=1')
end)

describe('the 16-bit copy of a layer norm', function()
  local head = [[
local x, w = randn(4, 16):requires_grad_(), randn(8, 16):requires_grad_()
local function region(f) return amp.autocast({ device = 'cuda', dtype = 'float16' }, f) end
local function right(y, z)
  local far = (F.linear(y:detach(), w:detach()) - z:detach():float()):abs():max():item()
  assert(far < 0.05, 'off by ' .. far)
end
]]
  case('is not used once others can write its values by a pointer', head .. [[
region(function()
  local y = F.layer_norm(x, { 16 })
  local p = y:data_ptr()
  amp.cuda.synchronize()
  for i = 0, 63 do p[i] = 5 end
  right(y, F.linear(y, w))
end)
]])
  case('that was made before a captured step is no part of it', head .. [[
local y
local step = amp.capture(function() return region(function() return F.linear(y, w) end) end)
for i = 1, 5 do
  if i <= 3 then region(function() y = F.layer_norm(x, { 16 }) end) end
  right(y, step(x))
  if i >= 3 then amp.no_grad(function() y:fill_(i) end) end
end
]])
end)

case("a region's layer norm of 16 bits gives float32 and keeps no copy of its input in that", E.head .. [[
local x, norm = randn(64, 64):to 'bfloat16':requires_grad_(), nn.LayerNorm(64):to 'cuda'
amp.no_grad(function() norm.weight:normal_() norm.bias:normal_() end)
local function live() collectgarbage() collectgarbage() return amp.memory('cuda').live end
local before = live()
local y = amp.autocast({ device = 'cuda', dtype = 'bfloat16' }, function() return norm(x) end)
same('float32', y.dtype, 'dtype')
assert(live() - before < 64 * 64 * (4 + 2) + 4096) -- the result, its copy for a product
local wide = x:detach():float():requires_grad_()
local z = norm(wide)
equal(z:detach(), y:detach(), 'values')
local g = randn(64, 64)
y:backward(g)
local gain = norm.weight.grad:clone()
norm.weight.grad = nil
z:backward(g)
same('bfloat16', x.grad.dtype, 'dtype of the gradient')
assert((x.grad:float() - wide.grad):abs():max():item() < 2 ^ -7 * wide.grad:abs():max():item())
assert((gain - norm.weight.grad):abs():max():item() < 1e-4 * gain:abs():max():item())
]])

--- Layer norm and RMS norm on a GPU, which the emulator stands for: rows of any length, and the 16-bit copy that a
-- region's layer norm leaves for the next product.
local case = require('spec.emulated').cases(it, pending)

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

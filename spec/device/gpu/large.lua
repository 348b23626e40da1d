--- Elementwise ops on more than 2^31 elements, on a real card: what is near the start, around element 2^31 and at the
-- end has to be what the same op gives for those pieces alone.
--
--     luajit spec/device/gpu/large.lua [small]
--
-- from the top of the tree (small: 5,003 elements; the whole takes 30 GiB of the card). The last line counts what
-- agreed and what did not; the exit code says whether all did.
package.path = './?.lua;' .. package.path
local amp = require 'amp'
local F = amp.nn.functional

if not amp.cuda.is_available() then
  print('no GPU: ' .. amp.cuda.reason())
  os.exit(1)
end
local small = arg[1] == 'small'
local n = small and 5003 or 2 ^ 31 + 2 ^ 20 + 3
local starts = { 1, math.floor(n / 3), small and 2500 or 2 ^ 31 - 50, n - 99 }
local on = { device = 'cuda', dtype = 'float16' }
amp.manual_seed(3)
local passed, failed = 0, 0

local function pieces(t)
  local list = {}
  for i, at in ipairs(starts) do list[i] = t:narrow(1, at, 100) end
  return list
end

--- f of whole tensors against f of their pieces.
local function check(name, f, ...)
  local y, cut = f(...), {}
  for i, t in ipairs { ... } do cut[i] = pieces(t) end
  local good = y:numel() == n
  for i = 1, #starts do
    local args = {}
    for k = 1, #cut do args[k] = cut[k][i]:clone() end
    local want, got = f(unpack(args)):cpu(), y:narrow(1, starts[i], 100):cpu()
    good = good and amp.equal(want, got)
  end
  if good then passed = passed + 1 else failed = failed + 1 end
  print(('%-24s %s'):format(name, good and 'ok' or 'DIFFERENT'))
  y:free()
  collectgarbage()
  amp.cuda.empty_cache()
end

local a, b = amp.randn(n, on), amp.randn(n, on)
local spread = a:narrow(1, n - 999, 1000):float():std():item()
local drawn = spread > 0.8 and spread < 1.2 and not amp.equal(a:narrow(1, 1, 100), a:narrow(1, n - 99, 100))
if drawn then passed = passed + 1 else failed = failed + 1 end
print(('%-24s %s'):format('randn', drawn and 'ok' or 'DIFFERENT'))

check('add', function(x, y) return x + y end, a, b)
check('mul by a number', function(x) return x * 3 end, a)
check('relu', F.relu, a)
check('gelu', function(x) return F.gelu(x) end, a)
check('exp', amp.exp, a)
check('maximum', amp.maximum, a, b)
check('less than', function(x, y) return x:lt(y) end, a, b)
check('where', function(x, y) return amp.where(x:gt(0), x, y) end, a, b)
check('cast to bfloat16', function(x) return x:bfloat16() end, a)
check('clone', function(x) return x:clone() end, a)
check('fill', function(x) return amp.full_like(x, 2) end, a)
check('in place', function(x) return x:clone():add_(1):mul_(0.5) end, a)
check('every other element', function(x) return x:clone():view(-1, 1):expand(-1, 2):select(2, 2):neg() end, a)
local kept = F.dropout(a:abs() + 1, 0.5, true):gt(0):narrow(1, n - 999, 1000):float():mean():item()
local dropped = kept > 0.35 and kept < 0.65
if dropped then passed = passed + 1 else failed = failed + 1 end
print(('%-24s %s'):format('dropout', dropped and 'ok' or 'DIFFERENT'))
collectgarbage()
local ones = amp.ones(n, on)
local total = ones:sum { dtype = 'float64' }:item()
if total == n then passed = passed + 1 else failed = failed + 1 end
print(('%-24s %s'):format('sum', total == n and 'ok' or 'DIFFERENT: ' .. total))
print(('%d passed, %d failed'):format(passed, failed))
os.exit(failed == 0 and 0 or 1)

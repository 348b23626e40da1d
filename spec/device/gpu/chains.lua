--- Chains of elementwise rows as one generated kernel, on a card: bits against the rows' own kernels for every row and dtype,
-- odd sizes, broadcast and strided operands, captured steps; then times of chains of 3 to 8 rows at 64 MB, eager, as a graph
-- node by node (generated kernels off), and as one kernel.
--   luajit spec/device/gpu/chains.lua [--times]
local amp = require 'amp'
local chains = require 'spec.device.chains'

local failed, run = 0, 0
local function try(name, f, ...)
  run = run + 1
  local ok, e = pcall(f, ...)
  if not ok then
    failed = failed + 1
    if failed <= 12 then print(('FAILED %s: %s'):format(name, tostring(e):sub(1, 240))) end
  end
end

local start = amp.clock()
if arg[1] ~= '--times' then
  for _, dtype in ipairs {'float32', 'float16', 'bfloat16', 'float64', 'int32', 'int64', 'uint8', 'bool'} do
    for _, f in ipairs(chains.functions(dtype)) do
      for k, shape in ipairs {{4096}, {37, 129}, {1}} do
        try(('%s, %s, %s'):format(dtype, f.names, table.concat(shape, 'x')), chains.check, f, chains.operands(dtype, shape, 'cuda'), k < 3 and 1 or nil)
      end
    end
  end
  print(('%d chains of all rows and dtypes checked, %d failed, %.1f s'):format(run, failed, amp.clock() - start))

  local function formula(x, row, column)
    local z = (x * 2 + row - column):relu()
    z = amp.tanh(z * z) * 0.5 + 1
    return amp.where(z:gt(1.2), z, x):half()
  end
  local function same(name, a, b) if not chains.alike(a, b) then error(name .. ': other bits', 0) end end
  for _, s in ipairs {{{300, 200}, {200}, {300, 1}}, {{30, 50, 40}, {50, 40}, {1, 1, 1}}, {{100003}, {1}, {100003}}, {{7, 20001}, {20001}, {7, 1}}} do
    try('broadcast ' .. table.concat(s[1], 'x'), function()
      amp.no_grad(function()
        local a, b, c = amp.randn(s[1], {device = 'cuda'}), amp.randn(s[2], {device = 'cuda'}), amp.randn(s[3], {device = 'cuda'})
        same('broadcast', amp.trace(formula, a, b, c):optimize()(a, b, c), formula(a, b, c))
        local t = a:dim() > 1 and a:transpose(1, 2) or amp.randn({2 * s[1][1]}, {device = 'cuda'}):view(-1, 2):select(2, 1)
        local one = amp.ones({1}, {device = 'cuda'})
        same('strided', amp.trace(formula, t, one, t):optimize()(t, one, t), formula(t, one, t))
      end)
    end)
  end
  try('a captured step', function()
    amp.no_grad(function()
      local f = amp.compile(formula)
      local a, b, c = amp.randn({64, 1000}, {device = 'cuda'}), amp.randn({1000}, {device = 'cuda'}), amp.randn({64, 1}, {device = 'cuda'})
      local step = amp.capture(function(x) return f(x, b, c) end)
      for _ = 1, 6 do
        a = a + 0.25
        same('captured', step(a), formula(a, b, c))
      end
    end)
  end)
  local net = amp.nn.Sequential(amp.nn.Conv2d(3, 8, 3), amp.nn.SiLU()):to 'cuda':eval()
  try('channels last, a network', function()
    amp.no_grad(function()
      local function f(x)
        local y = net(x)
        return (y * 2 + 1):tanh() - y:sigmoid()
      end
      for _, format in ipairs {'contiguous', 'channels_last'} do
        local x = amp.randn({4, 3, 17, 19}, {device = 'cuda'}):contiguous(format)
        local want, got = f(x), amp.trace(f, x):optimize()(x)
        assert(amp.allclose(want, got, {rtol = 1e-4, atol = 1e-5}), 'other values')
        for d = 1, 4 do assert(want:stride(d) == got:stride(d), 'other strides') end
      end
    end)
  end)
  print(('%d checks, %d failed, %.1f s; %s'):format(run, failed, amp.clock() - start, amp.cuda.version_of 'nvrtc'))
end

-- -- Times --------------------------------------------------------------------------------------------------------

local function median(f)
  local list = {}
  for _ = 1, 5 do f() end
  for k = 1, 15 do
    amp.cuda.synchronize()
    local from = amp.clock()
    for _ = 1, 10 do f() end
    amp.cuda.synchronize()
    list[k] = (amp.clock() - from) / 10
  end
  table.sort(list)
  return list[8]
end

local CHAINS = {
  {'3 rows, 1 operand', 1, function(x) return (x * 2 + 1):relu() end},
  {'3 rows, 3 operands', 3, function(x, y, z) return (x * y + z):relu() end},
  {'5 rows, 2 operands', 2, function(x, y) return ((x + y) * 0.5):tanh() * x - y end},
  {'6 rows, 3 operands', 3, function(x, y, z) return amp.where(x:gt(0), y * 2, z):sigmoid() * x + y end},
  {'8 rows, 1 operand', 1, function(x) return ((((x * x + 1):sqrt() * 0.5 - x):relu() + x):tanh() * 3) end},
  {'8 rows, 4 operands', 4, function(x, y, z, w) return (((x * y + z) - w):maximum(x) * w + y):exp():clamp(0, 3) end},
}

local lines = {}
for _, dtype in ipairs {'float32', 'bfloat16'} do
  local bytes = dtype == 'float32' and 4 or 2
  local n = 64 * 1024 * 1024 / bytes
  for _, c in ipairs(CHAINS) do
    amp.no_grad(function()
      local args = {}
      for k = 1, c[2] do args[k] = amp.randn({n}, {device = 'cuda', dtype = dtype}) end
      local f = c[3]
      local g = amp.trace(f, unpack(args)):optimize {joins = false}
      if not chains.alike(g(unpack(args)), f(unpack(args))) then
        failed = failed + 1
        print('FAILED ' .. c[1] .. ' ' .. dtype .. ': other bits')
      end
      local eager = median(function() f(unpack(args)) end)
      local was = chains.generated(0)
      local apart = median(function() g(unpack(args)) end)
      chains.generated(was)
      local one = median(function() g(unpack(args)) end)
      lines[#lines + 1] = ('%-20s %-9s %8.1f %9.1f %8.1f %7.2f %9.2f'):format(c[1], dtype, eager * 1e6, apart * 1e6, one * 1e6, eager / one,
        (c[2] + 1) * n * bytes / one / 1e12)
    end)
  end
end
local small = {}
amp.no_grad(function()
  local f = CHAINS[5][3]
  local x = amp.randn({4096}, {device = 'cuda'})
  local g = amp.trace(f, x):optimize {joins = false}
  local eager = median(function() f(x) end)
  chains.generated(0)
  local apart = median(function() g(x) end)
  chains.generated(1)
  small = ('%-20s %-9s %8.1f %9.1f %8.1f %7.2f'):format('8 rows, 4096 values', 'float32', eager * 1e6, apart * 1e6, median(function() g(x) end) * 1e6,
    eager / median(function() g(x) end))
end)
print(('%-20s %-9s %8s %9s %8s %7s %9s'):format('64 MB an operand', 'dtype', 'eager us', 'apart us', 'one us', 'eager/1', 'TB/s of 1'))
for _, line in ipairs(lines) do print(line) end
print(small)
print(failed == 0 and 'all passed' or failed .. ' FAILED')
os.exit(failed == 0 and 0 or 1, true)

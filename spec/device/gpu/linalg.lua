--- Linear algebra and Fourier transforms on a real card: own kernels and the libraries against the CPU, results and times.
--
--     luajit spec/device/gpu/linalg.lua [small | untimed]
--
-- from the top of the tree (untimed: all sizes, without times; small: small ones, without times). Every line is an op, a dtype and a
-- shape: errors of own kernels and of cuSOLVER or cuFFT relative to the largest value of the CPU's result, and milliseconds of both and
-- of the CPU. Where results are not unique (vectors), what they stand for is compared: the product of the factors, and their
-- orthogonality. The last line counts what is out of tolerance; the exit code says whether there was any.
package.path = './?.lua;' .. package.path
local amp = require 'amp'
local core = require 'amp.ffi'
local ops = require 'spec.ops.op_call'
local C, S = core.C, core.S

local small, untimed = arg[1] == 'small', arg[1] == 'untimed'
local card = require 'spec.lib.card'
amp.manual_seed(11)

local CUDA = 1
--- The libraries: 0 never, 1 where amp thinks they are faster, 2 wherever they can.
local function libraries(mode)
  assert(C.amp_device_set(S, CUDA, 'cusolver', mode) >= 0)
  assert(C.amp_device_set(S, CUDA, 'cufft', mode) >= 0)
end

local function apart(a, b) return card.apart(a, b, 'float64') end

local function turned(t) return t:transpose(-1, -2) end
--- How far the columns of t are from orthonormal.
local function skew(t)
  t = t:cpu():to 'float64'
  local p = amp.matmul(turned(t), t)
  return apart(p, amp.eye(p.shape[#p.shape], { dtype = 'float64' }):expand(p.shape))
end
local function product(a, b) return amp.matmul(a:cpu():to 'float64', b:cpu():to 'float64') end
local function columns(t, s) return t:cpu():to 'float64' * s:cpu():to 'float64':unsqueeze(-2) end

local function milliseconds(f) return (small or untimed) and 0 or card.milliseconds(f, 0.01, 1024) end

local tolerance = { float64 = 1e-9, float32 = 2e-3 }
local bad, lines = 0, 0
print(amp.cuda.reason() .. '; ' .. amp.cuda.version_of 'cusolver' .. '; ' .. amp.cuda.version_of 'cufft')
local format = '%-13s %-8s %-14s %9s %9s | %10s %10s %10s %10s%s'
print(format:format('op', 'dtype', 'shape', 'own', 'library', 'own ms', 'library ms', 'auto ms', 'CPU ms', ''))

--- error(results, the CPU's results): the largest of what is compared
local function compare(name, args, attrs, dtype, label, difference)
  local there = {}
  for i, a in ipairs(args) do there[i] = a:cuda() end
  local function run() return ops.raw(name, there, attrs) end
  local began = amp.clock()
  local want = ops.raw(name, args, attrs)
  local cpu_ms = 1e3 * (amp.clock() - began)
  difference = difference or function(got)
    local most = 0
    for k, t in ipairs(got) do most = math.max(most, apart(t, want[k])) end
    return most
  end
  local errors, ms = {}, {}
  for i, mode in ipairs { 0, 2, 1 } do
    libraries(mode)
    local ok, err = pcall(function() errors[i] = difference(run(), want) end)
    if not ok then
      print(name .. ': ' .. tostring(err))
      errors[i] = 1 / 0
    end
    ms[i] = ok and milliseconds(run) or 0
  end
  local limit = tolerance[dtype]
  local wrong = not (errors[1] <= limit and errors[2] <= limit and errors[3] <= limit)
  if wrong then bad = bad + 1 end
  lines = lines + 1
  local function number(v) return ('%.1e'):format(v) end
  local function time(v) return ('%.3f'):format(v) end
  print(format:format(name, dtype, label, number(errors[1]), number(errors[2]), time(ms[1]), time(ms[2]), time(ms[3]), time(cpu_ms), wrong and '  WRONG' or ''))
  collectgarbage()
end

-- -- Linear algebra ---------------------------------------------------------------

local squares = { { 1, 1 }, { 3, 3 }, { 33, 33 }, { 7, 33, 33 }, { 50, 3, 3 } }
local tall = { { 5, 3 }, { 3, 5 }, { 2, 33, 9 } }
if not small then
  for _, s in ipairs {
    { 64, 64 }, { 200, 200 }, { 3, 200, 200 }, { 1000, 3, 3 }, { 512, 16, 16 }, { 128, 128 }, { 16, 64, 64 }, { 500, 500 }, { 1000, 1000 },
  } do squares[#squares + 1] = s end
  for _, s in ipairs { { 200, 64 }, { 64, 200 }, { 1000, 300 } } do tall[#tall + 1] = s end
end

for _, dtype in ipairs { 'float64', 'float32' } do
  for _, s in ipairs(squares) do
    local n, label = s[#s], table.concat(s, 'x')
    local raw, eye = amp.randn(s, { dtype = 'float64' }), amp.eye(n, { dtype = 'float64' })
    local near = raw / math.sqrt(n)
    local a = (near * 0.5 + eye):to(dtype)
    local spd = (amp.matmul(raw, turned(raw)) / n + eye):to(dtype)
    local several = {}
    for i, v in ipairs(s) do several[i] = v end
    several[#several] = 5
    local b = amp.randn(several, { dtype = 'float64' }):to(dtype)
    compare('cholesky', { spd }, { upper = 0 }, dtype, label)
    compare('inverse', { a }, {}, dtype, label)
    compare('linear_solve', { a, b }, { adjoint = 0 }, dtype, label)
    compare('linear_solve', { a, b }, { adjoint = 1 }, dtype, label)
    compare('trisolve', { spd, b }, { upper = 1, transpose = 0, unitriangular = 0 }, dtype, label)
    compare('det', { a }, {}, dtype, label)
    compare('slogdet', { a }, {}, dtype, label)
    compare('cofactor', { a }, {}, dtype, label)
    if n <= 500 then
      compare('eigvalsh', { spd }, { UPLO = 0 }, dtype, label)
      compare('eigh', { spd }, { UPLO = 1 }, dtype, label, function(got, want)
        return math.max(apart(got[1], want[1]), skew(got[2]), apart(product(columns(got[2], got[1]), turned(got[2])), spd))
      end)
      compare('pinverse', { a }, {}, dtype, label)
    end
  end
  for _, s in ipairs(tall) do
    local label, a = table.concat(s, 'x'), amp.randn(s, { dtype = 'float64' }):to(dtype)
    compare('svdvals', { a }, {}, dtype, label)
    compare('pinverse', { a }, {}, dtype, label)
    for full = 0, 1 do
      compare('qr', { a }, { mode = full }, dtype, label .. (full == 1 and ' full' or ''), function(got)
        return math.max(skew(got[1]), apart(product(got[1], got[2]), a))
      end)
      compare('svd', { a }, { some = 1 - full }, dtype, label .. (full == 1 and ' full' or ''), function(got, want)
        local r = want[2].shape[#s - 1]
        return math.max(apart(got[2], want[2]), skew(got[1]), skew(got[3]),
          apart(product(columns(got[1]:narrow(-1, 1, r), got[2]), turned(got[3]:narrow(-1, 1, r))), a))
      end)
    end
  end
end

-- -- What is wrong with values is told ----------------------------------------------

local function told(what, name, t, attrs, text)
  for mode = 0, 2, 2 do
    libraries(mode)
    local ok, err = pcall(function()
      ops.raw(name, { t:cuda() }, attrs)
      amp.cuda.synchronize()
    end)
    lines = lines + 1
    if ok or not tostring(err):find(text, 1, true) then
      bad = bad + 1
      print(('WRONG: %s, libraries %d: %s'):format(what, mode, tostring(err)))
    end
  end
end
for _, n in ipairs(small and { 3 } or { 3, 200 }) do
  local z = amp.zeros({ n, n })
  local nan = amp.full({ n, n }, 0 / 0)
  told('inverse of zeros', 'inverse', z, {}, 'singular')
  told('cholesky of zeros', 'cholesky', z, { upper = 0 }, 'not positive-definite')
  told('eigh of NaN', 'eigh', nan, { UPLO = 0 }, 'NaN')
  told('svd of NaN', 'svd', nan, { some = 1 }, 'NaN')
end

-- -- Fourier transforms -----------------------------------------------------------------

local series = { { {}, 1, {} }, { {}, 3, {} }, { { 3 }, 33, {} }, { { 5 }, 200, {} }, { { 2 }, 37, { 5 } }, { {}, 1009, {} } }
if not small then
  for _, s in ipairs {
    { { 64 }, 1024, {} }, { { 3 }, 4096, { 4 } }, { {}, 8190, {} }, { { 4096 }, 64, {} }, { { 4 }, 512, { 512 } }, { { 256 }, 4096, {} },
    { { 64 }, 128, { 128 } }, { {}, 1048576, {} }, { { 16 }, 10007, {} },
  } do series[#series + 1] = s end
end
local function joined(...)
  local r = {}
  for _, t in ipairs { ... } do for _, v in ipairs(t) do r[#r + 1] = v end end
  return r
end
for _, dtype in ipairs { 'float64', 'float32' } do
  for _, s in ipairs(series) do
    local before, n, after = s[1], s[2], s[3]
    local dim, label, scale = #before, table.concat(joined(before, { n }, after), 'x'), 1 / math.sqrt(n)
    local function made(...) return amp.randn(joined(...), { dtype = 'float64' }):to(dtype) end
    local c, x, h = made(before, { n }, after, { 2 }), made(before, { n }, after), made(before, { math.floor(n / 2) + 1 }, after, { 2 })
    for way = 0, 1 do
      compare('fft_complex', { c }, { dim = dim, inverse = way, scale = way == 0 and 1 or scale }, dtype, label)
      compare('fft_real', { x }, { dim = dim, scale = way == 0 and 1 or scale, weighted = way }, dtype, label)
      compare('fft_half', { h }, { dim = dim, n = n, scale = scale, weighted = way }, dtype, label)
    end
  end
end
libraries(1)
print(('%d comparisons, %d out of tolerance'):format(lines, bad))
os.exit(bad == 0 and 0 or 1)

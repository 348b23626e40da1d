--- Convolutions on a real card: cuDNN against own kernels and the CPU, results and times.
--
--     luajit spec/device/gpu/conv.lua [small] [only=NAME]
--
-- from the top of the tree (only: shapes whose name has this text). Every line is a shape, a dtype, a layout and one of forward (with a bias), gradient in the
-- input, gradient in the weight: errors relative to the largest value of the reference, milliseconds, TFLOP/s. The
-- reference is the CPU in float32 (on the same rounded operands) where that takes no more than a moment, else own
-- kernels. The last line counts what is out of tolerance; the exit code says whether there was any.
package.path = './?.lua;' .. package.path
local amp = require 'amp'
local core = require 'amp.ffi'
local ops = require 'spec.ops.op_call'
local C, S = core.C, core.S

local small, only = false, ''
for _, word in ipairs(arg) do
  small = small or word == 'small'
  only = word:match '^only=(.*)$' or only
end
local card = require 'spec.lib.card'

local CUDA = 1
local function cudnn(mode) assert(C.amp_device_set(S, CUDA, 'cudnn', mode) >= 0) end

-- n, channels, size (a number or a table), result's channels, kernel, and stride, padding, dilation, groups
local shapes = {
  { 'odd',          2, 5, { 7, 9 }, 6, 3, 1, 1 },
  { 'pointwise',    3, 16, { 6, 5 }, 24, 1 },
  { 'strided',      2, 8, { 11, 13 }, 12, 3, 2, 1 },
  { 'dilated',      2, 8, { 15, 12 }, 8, 3, 1, 2, 2 },
  { 'groups',       2, 12, { 9, 9 }, 18, 3, 2, 1, 1, 3 },
  { 'depthwise',    2, 16, { 10, 10 }, 16, 3, 1, 1, 1, 16 },
  { 'depthwise 72', 2, 72, { 9, 12 }, 72, 3, 2, 1, 1, 72 },
  { 'depthwise 5',  3, 6, { 11, 10 }, 6, 5, 1, 2, 1, 6 },
  { 'depthwise 7',  2, 66, { 12, 13 }, 66, 7, 2, 3, 1, 66 },
  { 'depthwise 3:2', 2, 5, { 9, 9 }, 5, 3, 1, 2, 2, 5 },
  { 'patches',      2, 3, { 32, 32 }, 16, 8, 8 },
  { 'line',         3, 7, { 40 }, 9, 5, 2, 2 },
  { 'volume',       1, 4, { 6, 7, 8 }, 6, 3, 2, 1 },
}
local large = {
  { 'stem 7x7',     32, 3, { 224, 224 }, 64, 7, 2, 3 },
  { 'stage 1 1x1',  32, 64, { 56, 56 }, 256, 1 },
  { 'stage 1 3x3',  32, 64, { 56, 56 }, 64, 3, 1, 1 },
  { 'stage 2 3x3/2', 32, 128, { 56, 56 }, 128, 3, 2, 1 },
  { 'stage 2 1x1/2', 32, 256, { 56, 56 }, 512, 1, 2 },
  { 'stage 3 3x3',  32, 256, { 14, 14 }, 256, 3, 1, 1 },
  { 'stage 4 3x3',  32, 512, { 7, 7 }, 512, 3, 1, 1 },
  { 'depthwise 56', 32, 128, { 56, 56 }, 128, 3, 1, 1, 1, 128 },
  { 'ResNeXt 28',   32, 256, { 28, 28 }, 256, 3, 1, 1, 1, 32 },
  { 'dilated 28',   16, 256, { 28, 28 }, 256, 3, 1, 2, 2 },
  { 'odd 37',       16, 50, { 37, 41 }, 70, 3, 1, 1 },
}
if not small then for _, s in ipairs(large) do shapes[#shapes + 1] = s end end
for i = #shapes, 1, -1 do if not shapes[i][1]:find(only, 1, true) then table.remove(shapes, i) end end

local tolerance = { float32 = 1e-5, float16 = 2e-3, bfloat16 = 1.6e-2 }

local function apart(a, b) return card.apart(a, b, 'float32') end
local function milliseconds(f)
  f()
  return card.milliseconds(f, 0.02, 4096)
end

local bad, lines = 0, 0
print(amp.cuda.reason() .. '; ' .. amp.cuda.version_of 'cudnn')
print(('%-14s %-8s %-6s %-7s %9s %9s %9s | %9s %9s %8s %8s'):format('shape', 'dtype', 'layout', 'pass', 'cudnn-ref', 'own-ref', 'own-cudnn',
  'cudnn ms', 'own ms', 'TFLOP/s', 'own'))

local function compare(s, dtype, last)
  local name, n, c, size, k, kernel = s[1], s[2], s[3], s[4], s[5], s[6]
  local attrs = { stride = s[7] or 1, padding = s[8] or 0, dilation = s[9] or 1, groups = s[10] or 1 }
  local xs, ws, outs, macs = { n, c }, { k, c / attrs.groups }, { n, k }, n * k * c / attrs.groups
  for i, v in ipairs(size) do
    xs[i + 2], ws[i + 2] = v, kernel
    outs[i + 2] = math.floor((v + 2 * attrs.padding - attrs.dilation * (kernel - 1) - 1) / attrs.stride) + 1
    macs = macs * outs[i + 2] * kernel
  end
  local function made(shape)
    local t = amp.randn(shape):to(dtype)
    if last and #shape == 4 then t = t:contiguous('channels_last') end
    return t
  end
  local x, w, b, g = made(xs), made(ws), made { k }, made(outs)
  local back = { shape = xs }
  local weight = { shape = ws }
  for key, v in pairs(attrs) do back[key], weight[key] = v, v end
  local passes = {
    { 'forward', 'convolution', { x, w, b }, attrs },
    { 'input', 'convolution_input', { g, w, false }, back },
    { 'weight', 'convolution_weight', { g, x }, weight },
  }
  for _, p in ipairs(passes) do
    local there, wide = {}, {}
    for i, t in ipairs(p[3]) do
      there[i] = t and t:cuda()
      wide[i] = t and t:to('float32')
    end
    local function run() return ops.raw(p[2], there, p[4])[1] end
    cudnn(0)
    local own = run()
    local own_ms = milliseconds(run)
    cudnn(2)
    local lib = run()
    local lib_ms = milliseconds(run)
    local again = run()
    local ref = macs <= 2e8 and ops.raw(p[2], wide, p[4])[1] or own
    local e1, e2, e3 = apart(lib, ref), apart(own, ref), apart(own, lib)
    local terms = macs / own:numel() -- sums in float32: their error grows as the root of their length
    local limit = tolerance[dtype] * (dtype == 'float32' and math.max(1.5, math.sqrt(terms) / 35) or 1)
    -- of a depthwise weight's gradient cuDNN adds up parts that are float16, whatever is asked for
    if p[1] == 'weight' and dtype == 'float16' and ws[2] == 1 then limit = 2 * limit end
    local wrong = not (e1 <= limit and e2 <= limit and e3 <= 2 * limit and apart(again, lib) <= limit)
    if wrong then bad = bad + 1 end
    lines = lines + 1
    print(('%-14s %-8s %-6s %-7s %9.1e %9.1e %9.1e | %9.3f %9.3f %8.2f %8.2f%s'):format(name, dtype, last and 'last' or 'planes', p[1], e1, e2, e3,
      lib_ms, own_ms, 2e-9 * macs / lib_ms, 2e-9 * macs / own_ms, wrong and '  WRONG' or ''))
  end
  collectgarbage()
end

for _, s in ipairs(shapes) do
  for _, dtype in ipairs { 'float32', 'float16', 'bfloat16' } do
    for _, last in ipairs { false, true } do
      if #s[4] == 2 or not last then compare(s, dtype, last) end
    end
  end
end
cudnn(1)
print(('%d comparisons, %d out of tolerance'):format(lines, bad))
os.exit(bad == 0 and 0 or 1)

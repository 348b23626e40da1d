--- Convolutions, pooling, resampling, grids, padding, windows and small products on a GPU against the CPU: random
-- calls of the rows, in every float dtype and layout, empty ones among them; that results repeat in deterministic
-- mode; and what places out of range are told. Needs a GPU (or the emulator). AMP_SPEC_SEED, AMP_SPEC_CALLS.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'

local here = amp.cuda.is_available()
local calls = tonumber(os.getenv 'AMP_SPEC_CALLS') or 25
local random = math.random
local dtypes = { 'float32', 'float16', 'bfloat16', 'float64' }

local function pick(t) return t[random(#t)] end
local function times(n, f)
  local t = {}
  for i = 1, n do t[i] = f(i) end
  return t
end
local function merged(...)
  local t = {}
  for _, u in ipairs { ... } do for k, v in pairs(u) do t[k] = v end end
  return t
end

--- The same values in a layout of chance.
local function laid(t) return ops.relayout(t, pick(ops.layouts)) or t end
local function made(shape, dtype)
  local t = amp.randn(shape):to(dtype)
  return random(2) == 1 and laid(t) or t
end

--- An op here and there; results alike, or both an error. Returns the CPU's results, nil after an error.
local function compare(name, inp, attrs, dtype, factor)
  local there = {}
  for i, t in ipairs(inp) do there[i] = t and t:cuda() end
  local ok, want = pcall(ops.raw, name, inp, attrs)
  local ok2, got = pcall(ops.raw, name, there, attrs)
  assert(ok == ok2, name .. ': ' .. tostring(not ok and want or got))
  if not ok then return end
  for k = 1, #want do
    local wrong = H.difference(got[k]:cpu(), H.values(want[k]), H.shape(want[k]), H.tolerance[want[k].dtype] or H.exact, factor or 1)
    if wrong then
      local text = {}
      for i, t in ipairs(inp) do text[i] = t and table.concat(t.shape, 'x') or '-' end
      for key, v in pairs(attrs) do text[#text + 1] = key .. '=' .. (type(v) == 'table' and table.concat(v, ',') or tostring(v)) end
      error(('%s %s, result %d: %s (%s)'):format(name, dtype, k, wrong, table.concat(text, ' ')), 0)
    end
  end
  return want
end

--- Values for the last `n` of three dimensions.
local function three(n, t, fill)
  return times(3, function(i) return i > 3 - n and t[i - 3 + n] or fill end)
end

local walk = {}

function walk.convolution(dtype)
  local n, groups, cg, og = random(3), pick { 1, 1, 2, 3 }, pick { 1, 2, 5, 9 }, pick { 1, 2, 8, 11, 17 }
  if random(4) == 1 then groups, cg, og = pick { 4, 8 }, 1, pick { 1, 2 } end
  local xs, ws = { pick { 0, 1, 2, 3 }, cg * groups }, { og * groups, cg }
  local ys = { xs[1], og * groups }
  local stride, padding, dilation = {}, {}, {}
  for i = 1, n do
    local k, s, p, d = random(n == 3 and 2 or 4), pick { 1, 1, 2, 3 }, random(0, 2), pick { 1, 1, 2 }
    local v = math.max(d * (k - 1) + 1 - 2 * p, 1) + random(0, n == 3 and 3 or 9)
    stride[i], padding[i], dilation[i], xs[i + 2], ws[i + 2] = s, p, d, v, k
    ys[i + 2] = math.floor((v + 2 * p - d * (k - 1) - 1) / s) + 1
  end
  local a = { stride = three(n, stride, 1), padding = three(n, padding, 0), dilation = three(n, dilation, 1), groups = groups }
  local x, w, g = made(xs, dtype), made(ws, dtype), made(ys, dtype)
  compare('convolution', { x, w, random(2) == 1 and made({ og * groups }, dtype) }, a, dtype, 4)
  compare('convolution_input', { g, w, random(2) == 1 and made({ cg * groups }, dtype) }, merged(a, { shape = xs }), dtype, 4)
  compare('convolution_weight', { g, x }, merged(a, { shape = ws }), dtype, 8)
end

function walk.pool(dtype)
  local n, c = random(3), pick { 1, 3, 8, 16 }
  local xs, shares = pick { { random(0, 2), c }, { c } }, random(4) == 1
  local lead, size, kernel, stride, padding, dilation = #xs, {}, {}, {}, {}, {}
  for i = 1, n do
    local k, s, d = random(4), random(3), shares and 1 or random(2)
    local p = random(0, math.floor(k / 2))
    local v = math.max(1, d * (k - 1) + 1 - 2 * p) + random(0, 8)
    if shares then k, s, p = 0, 1, 0 end
    kernel[i], stride[i], padding[i], dilation[i], xs[lead + i] = k, s, p, d, v
    size[i] = shares and random(v + 2) or math.floor((v + 2 * p - d * (k - 1) - 1) / s) + 1
  end
  local a = { spatial = n, size = three(n, size, 1), kernel_size = three(n, kernel, shares and 0 or 1), stride = three(n, stride, 1),
    padding = three(n, padding, 0) }
  local ys = {}
  for i = 1, lead do ys[i] = xs[i] end
  for i = 1, n do ys[lead + i] = size[i] end
  local x = made(xs, dtype)
  local r = compare('max_pool', { x }, merged(a, { dilation = three(n, dilation, 1) }), dtype)
  if r then
    compare('pool_gather', { x, laid(r[2]) }, { spatial = n }, dtype)
    compare('pool_scatter', { made(ys, dtype), laid(r[2]) }, { shape = xs, spatial = n }, dtype, 2)
    local near = not shares and math.max(unpack(dilation)) == 1
    if near then
      compare('pool_scatter', { made(ys, dtype), laid(r[2]) },
        { shape = xs, spatial = n, kernel_size = a.kernel_size, stride = a.stride, padding = a.padding }, dtype, 2)
    end
  end
  a.count_include_pad, a.divisor = random(2) == 1, random(4) == 1 and random(5) or nil
  for i = 1, n do if dilation[i] > 1 then return end end
  compare('avg_pool', { x }, a, dtype)
  compare('avg_pool_backward', { made(ys, dtype) }, merged(a, { shape = xs }), dtype, 2)
end

function walk.resample(dtype)
  local n, xs, size = random(3), { random(0, 2), pick { 1, 3, 8 } }, {}
  for i = 1, n do xs[2 + i], size[i] = random(9), random(20) end
  local ys = { xs[1], xs[2], unpack(size) }
  local a = { spatial = n, size = three(n, size, 1), mode = random(0, 3), align_corners = random(2) == 1, antialias = random(3) == 1 }
  for i = 1, 3 do a['scale' .. i] = random(3) == 1 and random() * 3 + 0.2 or nil end
  compare('resample', { made(xs, dtype) }, a, dtype, 4)
  compare('resample_backward', { made(ys, dtype) }, merged(a, { shape = xs }), dtype, 8)
end

function walk.grid(dtype)
  local n = random(2, 3)
  local xs, gs = { random(0, 2), random(0, 4) }, {}
  local ys = { xs[1], xs[2] }
  gs[1] = xs[1]
  for i = 1, n do
    xs[2 + i], gs[1 + i] = random(6), random(0, 5)
    ys[2 + i] = gs[1 + i]
  end
  gs[n + 2] = n
  local a = { mode = random(0, n == 3 and 1 or 2), padding_mode = random(0, 2), align_corners = random(2) == 1 }
  local x, g = made(xs, dtype), laid((amp.rand(gs) * 2.6 - 1.3):to(dtype))
  if g:numel() > 0 and random(5) == 1 then g = g + 0 / 0 end
  compare('grid_sample', { x, g }, a, dtype, 4)
  compare('grid_sample_backward', { made(ys, dtype), x, g }, a, dtype, 20)
  compare('grid_sample_double', { made(ys, dtype), x, g, made(xs, dtype), made(gs, dtype) }, a, dtype, 60)
end

function walk.pad(dtype)
  local n, mode, xs, pad = random(5), random(0, 3), {}, {}
  for i = 1, n do xs[i] = random(6) end
  for i = 1, mode == 0 and random(0, n) or math.min(3, math.max(1, n - 1)) do
    local m = xs[n + 1 - i]
    local most = mode == 1 and m - 1 or mode == 3 and m or 3
    for _ = 1, 2 do pad[#pad + 1] = random(-math.min(1, m - 1), most) end
  end
  local r = compare('pad', { made(xs, dtype) }, { pad = pad, mode = mode, value = random(3) }, dtype)
  if r then compare('pad_backward', { made(H.shape(r[1]), dtype) }, { shape = xs, pad = pad, mode = mode }, dtype, 2) end
end

function walk.windows(dtype)
  local xs = pick { { random(0, 2), random(3), random(3, 9), random(3, 9) }, { random(3), random(3, 9), random(3, 9) } }
  local function two(...) return { random(...), random(...) } end
  local a = { kernel_size = two(3), dilation = two(2), padding = two(0, 2), stride = two(2) }
  local r = compare('im2col', { made(xs, dtype) }, a, dtype)
  if r then compare('col2im', { made(H.shape(r[1]), dtype) }, merged(a, { output_size = { xs[#xs - 1], xs[#xs] } }), dtype, 2) end
end

function walk.products(dtype)
  compare('cross', { made({ random(0, 3), 3, 2 }, dtype), made({ 1, 3, pick { 1, 2 } }, dtype) }, { dim = 2 }, dtype)
  local n, m = random(0, 5), random(0, 70)
  compare('addr', { made({ n, m }, dtype), made({ n }, dtype), made({ m }, dtype) }, { beta = random(0, 2), alpha = random() * 2 }, dtype)
end

describe('on a GPU', function()
  if not here then
    it('needs one', function() pending(amp.cuda.reason()) end)
    return
  end
  local seed = tonumber(os.getenv 'AMP_SPEC_SEED') or 1
  amp.manual_seed(seed)
  math.randomseed(seed)

  for _, name in ipairs { 'convolution', 'pool', 'resample', 'grid', 'pad', 'windows', 'products' } do
    it(name .. ': random calls agree with the CPU', function()
      for i = 1, calls do
        walk[name](dtypes[i % 4 + 1])
        if i % 10 == 0 then collectgarbage() end
      end
      amp.cuda.synchronize()
    end)
  end

  it('sums many channels, taps and pixels', function()
    local a = { stride = 2, padding = 1, groups = 1 }
    for _, last in ipairs { false, true } do
      local x, w, g = amp.randn { 2, 37, 12, 15 }, amp.randn { 70, 37, 3, 3 }, amp.randn { 2, 70, 6, 8 }
      if last then x, g = x:contiguous 'channels_last', g:contiguous 'channels_last' end
      compare('convolution', { x, w, amp.randn { 70 } }, a, 'float32', 10)
      compare('convolution_input', { g, w, false }, merged(a, { shape = { 2, 37, 12, 15 } }), 'float32', 10)
      compare('convolution_weight', { g, x }, merged(a, { shape = { 70, 37, 3, 3 } }), 'float32', 10)
    end
  end)

  it('repeats sums bit by bit in deterministic mode', function()
    local was = amp.cuda.deterministic(true)
    local g, t = amp.randn({ 2, 3, 40 }):cuda(), amp.randint(1, 6, { 2, 3, 40 }, { dtype = 'int64' }):cuda()
    local x, grid, gy = amp.randn({ 1, 2, 4, 4 }):cuda(), (amp.rand { 1, 9, 9, 2 } * 2 - 1):cuda(), amp.randn({ 1, 2, 9, 9 }):cuda()
    local function scatter() return ops.raw('pool_scatter', { g, t }, { shape = { 2, 3, 8 }, spatial = 1 })[1]:cpu() end
    local function back() return ops.raw('grid_sample_backward', { gy, x, grid }, { mode = 0, padding_mode = 0, align_corners = false })[1]:cpu() end
    local first, second = scatter(), back()
    for _ = 1, 3 do
      H.same(scatter(), first)
      H.same(back(), second)
    end
    amp.cuda.deterministic(was)
    H.close(scatter(), first, 4)
    H.close(back(), second, 4)
  end)

  it('tells places out of range at the next wait, and goes on', function()
    local x, t = amp.randn({ 1, 2, 6 }):cuda(), amp.tensor({ { { 1, 7 }, { 2, 3 } } }, { dtype = 'int64' }):cuda()
    for _, call in ipairs {
      { 'pool_gather', { x, t }, { spatial = 1 } },
      { 'pool_scatter', { x:narrow(3, 1, 2), t }, { shape = { 1, 2, 6 }, spatial = 1 } },
      { 'unpool', { x:narrow(3, 1, 2), t }, { shape = { 1, 2, 6 }, spatial = 1 } },
    } do
      local ok, message = pcall(function()
        ops.raw(unpack(call))
        amp.cuda.synchronize()
      end)
      assert.is_false(ok)
      assert.truthy(tostring(message):find(call[1], 1, true) and tostring(message):find('index 7 is out of range', 1, true), tostring(message))
    end
    H.close(ops.raw('pool_gather', { x, amp.tensor({ { { 6 }, { 1 } } }, { dtype = 'int64' }):cuda() }, { spatial = 1 })[1]:cpu(),
      { x:cpu()[{ 1, 1, 6 }]:item(), x:cpu()[{ 1, 2, 1 }]:item() })
  end)
end)

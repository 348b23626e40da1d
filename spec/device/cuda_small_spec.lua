--- Backward of small linears on a GPU (spec/device/emulator): the gradients of input and weight in one launch, which has the bits
-- of two.
local assert = require 'luassert'
local emulated = require 'spec.device.emulated'
local case = emulated.cases(it, pending)

--- Kernels launched between `begin` and `end` on stderr.
local function launches(code)
  local out = emulated.child(emulated.head .. code, 'AMP_EMULATOR_TRACE=1 AMP_EMULATED_SMS=132')
  local list = {}
  for name in out:match('begin\n(.*)end\n'):gmatch 'launch (%C+)' do list[#list + 1] = name end
  return list
end

local function count(list, what)
  local n, last = 0, nil
  for _, name in ipairs(list) do if name:find(what, 1, true) then n, last = n + 1, name end end
  return n, last
end

-- One row against three; `small` chooses the kernel.
local compare = emulated.matrices .. [[
local function separate(g, x, w, y)
  local p = raw('linear_weight', { g, x, y }, {})
  return { y and raw('linear_input', { g, w, y }, {})[1] or amp.matmul(g, w), p[1], p[2] }
end
local function compare(what, g, x, w, y)
  local a, b = raw('linear_both', { g, x, w, y }, {}), separate(g, x, w, y)
  for i = 1, 3 do equal(a[i], b[i], what .. ', result ' .. i) end
  return a
end
]]

describe('gradients of a small linear in input, weight and bias at once', function()
  case('have the bits of separate ones, whatever the sizes', compare .. [[
amp.manual_seed(3)
local sizes = { 1, 8, 31, 64, 65, 128, 250 }
local n = 0
for _, rows in ipairs(sizes) do
  for _, outs in ipairs(sizes) do
    for _, ins in ipairs(sizes) do
      -- all of the small ones, of the large ones some
      if rows + outs + ins < 200 or (rows + 3 * outs + 5 * ins) % 7 == 0 then
        for _, masked in ipairs { false, true } do
          n = n + 1
          local dtype = n % 2 == 0 and 'float16' or 'bfloat16'
          local g, x, w = randn(rows, outs):to(dtype), randn(rows, ins):to(dtype), randn(outs, ins):to(dtype)
          local y = masked and randn(rows, outs):to(dtype):relu() or nil
          compare(('%s %d %d %d %s'):format(dtype, rows, outs, ins, masked), g, x, w, y)
        end
      end
    end
  end
end
]])

  case('have them whatever the strides and dimensions, and are right', compare .. [[
amp.manual_seed(5)
local layouts = { 'dense', 'apart', 'turned', 'shifted', 'expanded' }
for _, dtype in ipairs { 'float16', 'bfloat16' } do
  for _, s in ipairs { { 32, 64, 48 }, { 8, 16, 24 }, { 5, 7, 9 }, { 40, 33, 16 } } do
    local m, n, k = unpack(s)
    for i, how in ipairs(layouts) do
      local what = dtype .. ' ' .. table.concat(s, ' ') .. ' ' .. how
      local g, x = laid(how, m, n, dtype), laid(layouts[i % 4 + 1], m, k, dtype)
      local w, y = laid(layouts[(i + 1) % 4 + 1], n, k, dtype), laid(layouts[(i + 2) % 4 + 1], m, n, dtype)
      local exact = g:double()
      for _, mask in ipairs { false, y } do
        if mask then exact = exact * (y:double():gt(0)):double() end
        local want = { amp.matmul(exact, w:double()), amp.matmul(exact:t(), x:double()), exact:sum(1) }
        for on = 1, 0, -1 do
          small(on)
          local got = compare(what, g, x, w, mask or nil)
          for j = 1, 3 do
            local far = (got[j]:double() - want[j]):abs():max():item()
            assert(far <= (dtype == 'float16' and 2e-3 or 1.6e-2) * (want[j]:abs():max():item() + 1), what .. ', result ' .. j)
          end
        end
        small(1)
        local function deep(t) return t and t:contiguous():view(2, m / 2, t:size(2)) end
        if m % 2 == 0 then compare(what .. ', three dimensions', deep(g), deep(x), w, mask and deep(mask) or nil) end
      end
    end
  end
end
-- infinities and NaN behind what ReLU made 0 count for nothing
for _, n in ipairs { 64, 9 } do
  local g, x, w, y = randn(16, n):half(), randn(16, n):half(), randn(n, n):half(), randn(16, n):half()
  for i, v in ipairs { 0, -0.0, math.huge, -math.huge, 0 / 0, -(0 / 0) } do y[i][i] = v end
  g[1][1] = 0 / 0
  g[4][4] = math.huge
  local a = compare('special values', g, x, w, y)
  for i = 1, 3 do same(0, a[i]:float():isnan():sum():item(), 'NaN of result ' .. i) end
end
]])

  case('are nothing, or zeros, of nothing', compare .. [[
for on = 0, 1 do
  small(on)
  local function empty(...) return amp.zeros(...):half():cuda() end
  for _, masked in ipairs { false, true } do
    local a = raw('linear_both', { empty(0, 8), empty(0, 16), empty(8, 16), masked and empty(0, 8) or nil }, {})
    same(0, a[1]:numel(), 'no rows')
    same(0, (a[2]:abs():sum() + a[3]:abs():sum()):item(), 'of no rows')
    a = raw('linear_both', { empty(4, 0), empty(4, 16), empty(0, 16), masked and empty(4, 0) or nil }, {})
    same(0, a[1]:abs():sum():item(), 'of no outputs')
    a = raw('linear_both', { amp.ones(4, 8):half():cuda(), empty(4, 0), empty(8, 0), masked and amp.ones(4, 8):half():cuda() or nil }, {})
    same(0, a[1]:numel() + a[2]:numel(), 'no inputs')
    same(32, a[3]:sum():item(), 'sums without inputs')
  end
end
]])
end)

describe('backward of a small linear', function()
  -- a layer, with a ReLU behind it or not, its input and a gradient
  local layer = [[
local function layer(o)
  local l = nn.Linear(o.ins or 64, o.outs or 64, o.bias ~= false)
  local net = nn.Sequential(unpack(o.relu and { l, nn.ReLU() } or { l })):to('cuda'):to(o.dtype or 'float16')
  local shape = o.shape or { o.rows or 32, o.ins or 64 }
  local x = randn(unpack(shape)):to(o.dtype or 'float16'):requires_grad_(o.input ~= false)
  l.weight:requires_grad_(o.weight ~= false)
  local y = net(x)
  return net, l, x, y, randn(unpack(y.shape)):to(y.dtype)
end
]]
  local function products(options)
    local list = launches(layer .. 'local _, _, _, y, g = layer { ' .. options .. " }\nio.stderr:write 'begin\\n'\ny:backward(g)\nio.stderr:write 'end\\n'")
    local n, which = count(list, 'small')
    return n == 1 and which or n
  end

  case('is one launch where gradients of input and weight are wanted', function()
    for _, relu in ipairs { '', ', relu = true' } do
      assert.equal('small_quick_pair<BF>', products('rows = 32' .. relu))
      assert.equal('small_quick_pair<BF>', products('shape = { 2, 16, 64 }, dtype = "bfloat16"' .. relu))
      assert.equal('small_quick_pair<BF>', products('bias = false' .. relu))
      assert.equal('small_pair<BF>', products('rows = 3, ins = 5, outs = 7' .. relu))
      assert.truthy(tostring(products('input = false' .. relu)):find('ACROSS, ACROSS', 1, true))
      assert.truthy(tostring(products('weight = false' .. relu)):find('ALONG, ACROSS', 1, true))
      assert.is_nil(tostring(products('rows = 160, ins = 256, outs = 128' .. relu)):find 'pair') -- too much for one block each
    end
  end)

  case('gives what the separate products give, captured or not', layer .. compare .. [[
local n = 0
for _, shape in ipairs { { 1, 8 }, { 32, 64 }, { 2, 16, 64 }, { 5, 31 }, { 128, 65 }, { 250, 8 } } do
  for _, outs in ipairs { 1, 8, 31, 64 } do
    for kind = 0, 15 do
      local o = { shape = shape, ins = shape[#shape], outs = outs, dtype = kind % 2 == 0 and 'float16' or 'bfloat16', relu = n % 3 ~= 0, bias = kind % 4 < 2,
        input = kind < 12, weight = kind < 8 or kind > 11 }
      n = n + 1
      if o.input or o.weight then
        local _, l, x, y, g = layer(o)
        local what = table.concat(shape, 'x') .. ' ' .. outs .. ' ' .. kind .. (o.relu and ' relu' or '')
        y:backward(g)
        local d = y:detach()
        local flat = { g:view(-1, outs), x:detach():view(-1, o.ins), l.weight:detach(), o.relu and d:view(-1, outs) or nil }
        local want = separate(flat[1], flat[2], flat[3], flat[4])
        if o.input then equal(x.grad:view(-1, o.ins), want[1], what .. ', input') else same(nil, x.grad, what) end
        if o.weight then equal(l.weight.grad, want[2], what .. ', weight') else same(nil, l.weight.grad, what) end
        if o.bias then equal(l.bias.grad, want[3], what .. ', bias') end
      end
    end
  end
end
-- three layers, as a step
local function run(captured)
  amp.manual_seed(1)
  local net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)):to 'cuda'
  local opt, scaler = optim.SGD(net:parameters(), { lr = 0.1 }), amp.GradScaler()
  local function step(x, t)
    local loss = amp.autocast({ dtype = 'float16' }, function() return F.mse_loss(net(x), t) end)
    scaler:scale(loss):backward()
    scaler:step(opt)
    scaler:update()
    opt:clear_grad()
    return loss
  end
  if captured then step = amp.capture(step) end
  amp.manual_seed(5)
  local out = {}
  for i = 1, 6 do out[i] = step(randn(32, 64), randn(32, 10)):item() end
  for _, p in ipairs(net:parameters()) do out[#out + 1] = p:double():sum():item() end
  return out
end
local a, b = run(false), run(true)
for i = 1, #a do same(a[i], b[i], 'value ' .. i) end
]])

  case('of which a second derivative is wanted is made of ops that have one', layer .. [[
local _, l, x, y = layer { relu = true, rows = 4, ins = 8, outs = 8 }
local g = amp.grad(y:float():square():sum(), { x, l.weight }, { create_graph = true })
local h = amp.grad(g[1]:float():square():sum() + g[2]:float():square():sum(), { x, l.weight })
local most = h[1]:float():abs():max():item()
assert(most > 0 and most < math.huge)
]])
end)

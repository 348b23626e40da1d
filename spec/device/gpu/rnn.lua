--- Recurrent nets and cells on the GPU against the CPU in float64 (on the same rounded operands): results, last states
-- and the gradients of everything.
--
--     luajit spec/device/gpu/rnn.lua [tiny | small] [times]
--
-- from the top of the tree; `small` keeps to shapes that the emulator takes in a minute, `tiny` to what it takes in
-- seconds, `times` measures captured training steps of one layer as well, as they are launched and `all`: with one launch for all
-- steps, `steps`: with one a step, `products`: with a step's product by cublasLt.
-- A line is printed for each case out of tolerance; errors are relative to the largest value of the reference. The last
-- line counts; the exit code says whether all passed.
package.path = './?.lua;' .. package.path
local amp = require 'amp'
local core = require 'amp.ffi'
local nn = amp.nn

local tiny, small, times
for _, word in ipairs(arg) do
  tiny = tiny or word == 'tiny'
  small = small or tiny or word == 'small'
  times = times or word == 'times'
end
require 'spec.lib.card'

local tolerance = { float64 = 1e-12, float32 = 2e-5, float16 = 6e-3, bfloat16 = 5e-2 }
local passed, failed, worst = 0, 0, {} -- worst: errors by the largest value

-- How a layer's steps are launched: 0: products by cublasLt, 1: as is fastest, 2: a launch a step, 3: one for all
local function launches(way) assert(core.C.amp_device_set(core.S, 1, 'rnn', way) >= 0) end

-- Values within -0.5..0.5 that dtype holds, in float64
local function values(dtype, ...) return (amp.rand(...) - 0.5):to(dtype):to 'float64' end

-- What a net or cell gives on a device: a list of names and of float64 tensors on the CPU. s: the case; data: its operands
local function run(s, make, state, data, dtype, device)
  local function there(t) return t:clone():to(dtype):to(device) end
  local net = make():to(dtype):to(device)
  net:load_state_dict(state)
  local x, h, c = there(data.x):requires_grad_(true), there(data.h):requires_grad_(true), there(data.c):requires_grad_(true)
  local lstm = s.kind:match '^LSTM' ~= nil
  local out = {}
  if s.cell then
    local hn, cn = h, c
    for t = 1, x:size(1) do
      if lstm then hn, cn = net(x[t], { hn, cn }) else hn = net(x[t], hn) end
      out[t] = hn
    end
    out = { amp.stack(out), hn, lstm and cn or nil }
  else
    local input = x
    if s.lengths then input = nn.utils.rnn.pack_padded_sequence(x, s.lengths, { batch_first = s.first }) end
    local y, last = net(input, lstm and { h, c } or h)
    if s.lengths then y = y.data end
    out = lstm and { y, last[1], last[2] } or { y, last }
  end
  if s.shifted then -- the result's gradient begins one value behind the start of its memory
    out[1]:register_hook(function(g) return amp.cat({ amp.zeros(1):to(g.dtype):to(g.device), g:reshape(-1) }, 1):narrow(1, 2, g:numel()):view(g:size()) end)
  end
  local loss
  for i, t in ipairs(out) do
    if data.g[i] == nil then data.g[i] = values('float16', t:size()) end
    if i == 1 or not s.results then
      local part = (t * there(data.g[i])):to('float64'):sum()
      loss = loss and loss + part or part
    end
  end
  loss:backward()
  local names, list = { 'y', 'hn', lstm and 'cn' or nil }, out
  for name, p in net:named_parameters() do
    names[#names + 1] = 'd' .. name
    list[#list + 1] = p.grad
  end
  for i, t in ipairs { x, h, lstm and c or nil } do
    names[#names + 1] = ({ 'dx', 'dh', 'dc' })[i]
    list[#list + 1] = t.grad
  end
  for i, t in ipairs(list) do list[i] = t:detach():to('cpu'):to('float64') end
  return names, list
end

local function describe(s, dtype)
  local parts = { s.kind, dtype, ('T %d, B %s, %d -> %d'):format(s.t, s.b or '-', s.i, s.h) }
  for _, word in ipairs { 'layers', 'bi', 'first', 'proj', 'nobias', 'results', 'relu', 'shifted' } do
    if s[word] then parts[#parts + 1] = s[word] == true and word or word .. ' ' .. s[word] end
  end
  if s.lengths then parts[#parts + 1] = 'packed' end
  return table.concat(parts, ', ')
end

local function case(s)
  for _, dtype in ipairs(tiny and not s.all and { 'float16' } or s.dtypes or { 'float16', 'bfloat16', 'float32' }) do
    amp.manual_seed(7)
    s.cell = s.kind:match 'Cell$' ~= nil
    local o = { bias = not s.nobias, nonlinearity = s.relu and 'relu' or nil }
    if not s.cell then
      o.num_layers, o.bidirectional, o.batch_first, o.proj_size = s.layers or 1, s.bi or false, s.first or false, s.proj
    end
    local function make() return nn[s.kind](s.i, s.h, o) end
    local state = make():to(dtype):to('float64'):state_dict()
    local n, width = (s.layers or 1) * (s.bi and 2 or 1), s.proj or s.h
    local data = { g = {} }
    if s.cell then data.h, data.c = values(dtype, s.b, s.h), values(dtype, s.b, s.h)
    else data.h, data.c = values(dtype, n, s.b, width), values(dtype, n, s.b, s.h) end
    data.x = s.first and values(dtype, s.b, s.t, s.i) or values(dtype, s.t, s.b, s.i)
    local names, want = run(s, make, state, data, 'float64', 'cpu')
    for _, way in ipairs(not s.all and { 1 } or dtype == 'float32' and { 3, 0 } or { 3 }) do
      launches(way)
      local _, got = run(s, make, state, data, dtype, 'cuda')
      launches(1)
      local wrong, kind = {}, way == 1 and dtype or way == 0 and dtype .. ', products' or dtype .. ', all'
      for i, w in ipairs(want) do
        local scale, err = w:abs():max():item(), (w - got[i]):abs():max():item()
        worst[kind] = math.max(worst[kind] or 0, err / math.max(scale, 1e-3))
        if err ~= err or err > tolerance[dtype] * math.max(scale, 1e-3) then
          wrong[#wrong + 1] = ('%s %.2g of %.2g'):format(names[i], err, scale)
        end
      end
      if #wrong == 0 then passed = passed + 1
      else
        failed = failed + 1
        print(describe(s, dtype) .. ': ' .. table.concat(wrong, ', '))
      end
    end
    collectgarbage()
  end
end

local every = { 'float16', 'bfloat16', 'float32', 'float64' }
for _, kind in ipairs { 'LSTM', 'GRU', 'RNN' } do
  -- sizes that a launch takes whole and sizes that it does not, rows beyond a tile, a sum beyond a pass of the warps
  local sizes = { { 1, 1, 8, 8 }, { 3, 35, 16, 24 }, { 3, 4, 13, 11 }, { 4, 5, 24, 40 }, { 2, 3, 8, 264 } }
  for _, z in ipairs(tiny and { unpack(sizes, 1, 3) } or sizes) do
    case { kind = kind, t = z[1], b = z[2], i = z[3], h = z[4], dtypes = every }
    case { kind = kind .. 'Cell', t = z[1], b = z[2], i = z[3], h = z[4], dtypes = every }
  end
  case { kind = kind, t = 4, b = 6, i = 16, h = 16, layers = 2, bi = true }
  case { kind = kind, t = 4, b = 6, i = 16, h = 16, layers = 2, first = true, nobias = true }
  case { kind = kind, t = 4, b = 6, i = 16, h = 16, results = true }
  case { kind = kind, t = 5, b = 4, i = 16, h = 16, lengths = { 5, 4, 2, 2 } }
  case { kind = kind, t = 5, b = 4, i = 8, h = 16, layers = 2, bi = true, first = true, lengths = { 5, 5, 3, 1 } }
  case { kind = kind .. 'Cell', t = 3, b = 4, i = 16, h = 16, nobias = true, results = true }
end
case { kind = 'RNN', t = 4, b = 5, i = 16, h = 24, relu = true }
case { kind = 'RNNCell', t = 4, b = 5, i = 16, h = 24, relu = true }
case { kind = 'LSTM', t = 4, b = 5, i = 16, h = 24, proj = 8 }
case { kind = 'LSTM', t = 4, b = 5, i = 16, h = 24, proj = 8, lengths = { 4, 4, 2, 1, 1 }, bi = true }
-- all steps in a launch: warps without a part of the sum, tiles of rows beyond the batch, parts of the sum backward that begin
-- within a block's columns
for _, kind in ipairs { 'LSTM', 'GRU', 'RNN' } do
  for _, z in ipairs(tiny and { { 3, 3, 8, 64 } } or { { 3, 17, 8, 64 }, { 2, 3, 8, 48 }, { 3, 5, 8, 192 }, { 4, 20, 16, 128 } }) do
    case { kind = kind, t = z[1], b = z[2], i = z[3], h = z[4], bi = not tiny, all = true, dtypes = { 'float16', 'bfloat16', 'float32' } }
  end
end
for way = 1, 2 do
  case { kind = 'LSTM', t = 3, b = 2, i = 8, h = 64, shifted = true, results = way == 2, all = way == 1, dtypes = { 'float16', 'bfloat16', 'float32' } }
end
if not tiny then
  case { kind = 'LSTM', t = 3, b = 2, i = 8, h = 320, all = true, dtypes = { 'float16', 'float32' } }
  case { kind = 'GRU', t = 3, b = 18, i = 8, h = 576, nobias = true, all = true, dtypes = { 'float16' } }
  case { kind = 'RNN', t = 3, b = 2, i = 8, h = 512, relu = true, all = true, dtypes = { 'float16', 'float32' } }
end
-- sums beyond one turn of the loop
if not tiny then
  case { kind = 'LSTM', t = 2, b = 2, i = 8, h = 520, dtypes = { 'float16' } }
  case { kind = 'LSTMCell', t = 2, b = 2, i = 520, h = 24, dtypes = { 'bfloat16' } }
end
if not small then
  for _, kind in ipairs { 'LSTM', 'GRU', 'RNN' } do
    case { kind = kind, t = 16, b = 64, i = 512, h = 512, layers = 2 }
    case { kind = kind, t = 16, b = 33, i = 200, h = 1000, bi = true }
    case { kind = kind, t = 6, b = 300, i = 512, h = 512 }
    case { kind = kind, t = 16, b = 61, i = 64, h = 1024, bi = true, all = true, dtypes = { 'float16', 'bfloat16' } }
    case { kind = kind, t = 100, b = 16, i = 64, h = 256, bi = true, all = true }
    case { kind = kind, t = 9, b = 128, i = 64, h = 512, all = true, dtypes = { 'float16', 'float32' } }
    case { kind = kind, t = 9, b = 48, i = 64, h = 384, bi = true, all = true, dtypes = { 'float16', 'float32' } }
    case { kind = kind, t = 9, b = 70, i = 64, h = 512, results = true, all = true, dtypes = { 'float16', 'float32' } }
    case { kind = kind .. 'Cell', t = 16, b = 64, i = 512, h = 512 }
  end
end

-- -- Beside each other -------------------------------------------------------------------

-- Launches whose blocks wait for each other, where two of them may want the card at once: both directions of a captured step, two
-- streams. All gives the same bits as one after the other
do
  local hidden, batch, length, rounds = small and 64 or 1024, small and 3 or 64, small and 3 or 24, small and 2 or 100
  launches(3)
  amp.manual_seed(3)
  local net = nn.LSTM(hidden, hidden, { bidirectional = true }):to('float16'):to 'cuda'
  local x = (amp.rand(length, batch, hidden) - 0.5):to('float16'):to 'cuda'
  local function step(a)
    local y = (net(a))
    y:sum():backward()
    local out = { y:detach() }
    for i, p in ipairs(net:parameters()) do out[i + 1] = p.grad:clone() end
    net:zero_grad()
    return unpack(out)
  end
  local function judge(what, got, want)
    local same = true
    for i, w in ipairs(want) do same = same and amp.equal(got[i], w) end
    if same then passed = passed + 1
    else
      failed = failed + 1
      print(what .. ': other bits than one after the other')
    end
  end
  local want = { step(x) }
  local captured = amp.capture(step)
  local got
  for _ = 1, rounds do got = { captured(x) } end
  judge('a captured step in both directions', got, want)
  local main, streams, results = amp.cuda.current_stream(), { amp.cuda.Stream(), amp.cuda.Stream() }, {}
  for _, s in ipairs(streams) do s:wait_stream(main) end
  for _ = 1, rounds do
    for i, s in ipairs(streams) do results[i] = amp.cuda.stream(s, function() return amp.no_grad(function() return (net(x)) end) end) end
  end
  for i, s in ipairs(streams) do
    main:wait_stream(s)
    judge('stream ' .. i, { results[i] }, { want[1] })
  end
  launches(1)
end

-- -- Times ---------------------------------------------------------------------------

if times then
  for _, z in ipairs { { 64, 64, 512 }, { 64, 64, 1024 }, { 64, 64, 2048 }, { 64, 128, 512 }, { 128, 16, 256 } } do
    for _, kind in ipairs { 'LSTM', 'GRU', 'RNN' } do
      for _, v in ipairs { { 'float16', 1 }, { 'float16', 3 }, { 'float16', 2 }, { 'float16', 0 }, { 'float32', 1 }, { 'float32', 3 }, { 'float32', 0 } } do
        local low, way = unpack(v)
        launches(way)
        local net = nn[kind](z[3], z[3]):to(low):to 'cuda'
        local x = amp.randn(z[1], z[2], z[3], { device = 'cuda' }):to(low):requires_grad_(true)
        local g = amp.randn(z[1], z[2], z[3], { device = 'cuda' }):to(low)
        local function forward() return (net(x)) end
        local function step() forward():backward(g) end
        local function ms(f)
          for _ = 1, 3 do f() end
          amp.cuda.synchronize()
          local a = amp.clock()
          for _ = 1, 20 do f() end
          amp.cuda.synchronize()
          return (amp.clock() - a) * 50
        end
        local run_forward, run_step = amp.capture(function(_) amp.no_grad(forward) end), amp.capture(function(_) step() end)
        local one = amp.zeros(1, { device = 'cuda' })
        local how = ({ [0] = 'products', 'auto', 'steps', 'all' })[way]
        print(('%-5s %-8s %-8s T %3d B %3d H %4d: forward %6.3f ms, step %6.3f ms'):format(kind, low, how, z[1], z[2], z[3],
          ms(function() return run_forward(one) end), ms(function() return run_step(one) end)))
      end
    end
  end
end

local kinds = {}
for kind in pairs(worst) do kinds[#kinds + 1] = kind end
table.sort(kinds)
for _, kind in ipairs(kinds) do print(('%-17s up to %.1e of the largest value from float64'):format(kind, worst[kind])) end
print(('%d passed, %d failed'):format(passed, failed))
os.exit(failed == 0 and 0 or 1)

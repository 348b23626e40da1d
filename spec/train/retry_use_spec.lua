--- A failed allocation in what a user calls: layers, assignment, out=, steps, loading, backward. Whoever calls gets what an
-- undisturbed call gives, or a Lua error that leaves all as it was; with allocation n failing, for each n until none is left.
-- AMP_SPEC_DEVICE names the device.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local H = require 'spec.lib.helper'
local nn, F = amp.nn, amp.nn.functional
local C, S = core.C, core.S
if H.device then amp.set_default_device(H.device) end

local function failures() return tonumber(C.amp_memory(C.AMP_CPU, 0).failures) end
local function live() return tonumber(C.amp_memory(C.AMP_CPU, 0).live) + (H.device and tonumber(C.amp_memory(C.AMP_CUDA, 0).live) or 0) end

-- a tensor's values, exactly, and its version
local function text(t)
  if t == nil then return 'none' end
  local n = tonumber(t.ptr_.numel)
  local buffer = ffi.new('double[?]', math.max(n, 1))
  assert(C.amp_read(S, t, buffer, n) == 0)
  local list = {}
  for i = 1, n do list[i] = ('%.17g'):format(buffer[i - 1]) end
  return ('%s %s @%d: %s'):format(H.dtype(t), table.concat(H.shape(t), 'x'), H.version(t), table.concat(list, ' '))
end

local lines
function lines(list, n)
  local out = {}
  for i = 1, n or #list do
    local v = list[i]
    out[i] = type(v) == 'table' and lines(v) or ffi.istype(core.ref_t, v) and text(v) or tostring(v)
  end
  return table.concat(out, '\n')
end

-- What a world shows: its tensors, their gradients, the generator. A gradient is read last: reading changes it.
local function view(w, outs)
  local list = {}
  for i, t in ipairs(w.watch) do list[i] = t end
  for _, v in ipairs(w.also and w.also() or {}) do list[#list + 1] = v end
  list[#list + 1] = tonumber(S.rng_offset)
  local s = lines(list) .. '\nresults\n' .. (outs and lines(outs, outs.n) or '')
  local grads = {}
  for i, t in ipairs(w.watch) do grads[i] = t.grad or 'none' end
  return s .. '\ngradients\n' .. lines(grads):gsub(' @%d+', '') -- whether one is a copy may differ
end

local function pack(...) return { n = select('#', ...), ... } end

local function run(w) return pack(w.run()) end

local collect = collectgarbage

-- for_good: the collection that the retry follows does not help
local function disturbed(make, n, for_good)
  local w = make()
  local count = failures()
  if for_good then
    collectgarbage = function(...) -- luacheck: ignore
      if select('#', ...) == 0 then C.amp_fail_allocation(1) end
      return collect(...)
    end
  end
  C.amp_fail_allocation(n)
  local ok, outs = pcall(run, w)
  C.amp_fail_allocation(-1)
  collectgarbage = collect -- luacheck: ignore
  return w, ok, outs, failures() > count
end

local function walk(make, options)
  options = options or {}
  local w = make()
  w.run() -- plans, caches
  local want, before = (function() local x = make(); local outs = run(x); return view(x, outs) end)(), view(make())
  local errors, tried = 0, 0
  for _, for_good in ipairs { false, true } do
    local n = 0
    collect()
    collect()
    local bytes = live()
    collect 'stop'
    local ok, wrong = pcall(function()
      repeat
        n = n + 1
        local what = ('allocation %d%s: '):format(n, for_good and ', for good' or '')
        local x, fine, outs, hit = disturbed(make, n, for_good)
        if not fine then
          errors = errors + 1
          if not tostring(outs):lower():find('memory', 1, true) then error(what .. tostring(outs), 0) end
          if not for_good and not options.raises then error(what .. 'not tried again: ' .. tostring(outs), 0) end
          if not options.partial then
            local now = view(x)
            if now ~= before then error(what .. 'after the error\n' .. now .. '\nwas\n' .. before, 0) end
            x = make() -- reading changes gradients: a world that nobody looked into
            C.amp_fail_allocation(n)
            if for_good then
              C.amp_fail_allocation(-1)
              x = disturbed(make, n, true)
            else pcall(run, x) end
            C.amp_fail_allocation(-1)
            outs = run(x)
            fine = true
          end
        end
        if fine then
          local got = view(x, outs)
          if got ~= want then error(what .. 'gives\n' .. got .. '\nright\n' .. want, 0) end
        end
        tried = tried + (hit and 1 or 0)
      until not hit or n > 3000
    end)
    collect 'restart'
    if not ok then error(wrong, 0) end
    assert.is_true(n <= 3000, 'no end of allocations')
    w = nil -- luacheck: ignore
    collect()
    collect()
    assert.is_true(live() <= bytes + (options.slack or 0), ('%d bytes leak%s'):format(live() - bytes, for_good and ', for good' or ''))
  end
  return tried, errors
end

local function randn(...) return amp.randn(...) end
local function leaf(...)
  local t = amp.randn(...)
  t.requires_grad = true
  return t
end

local function tensors_of(net)
  local list = {}
  for _, p in ipairs(net:parameters()) do list[#list + 1] = p end
  for _, b in ipairs(net:buffers()) do list[#list + 1] = b end
  return list
end

-- a training forward of a layer, and evaluation
local function layer(build, ...)
  local size = { ... }
  return function()
    amp.manual_seed(5)
    local net, x = build(), leaf(unpack(size))
    local watch = tensors_of(net)
    watch[#watch + 1] = x
    amp.manual_seed(9)
    return { watch = watch, run = function() return net(x) end }
  end
end

local layers = {
  ['batch norm'] = layer(function() return nn.BatchNorm1d(3) end, 4, 3),
  ['batch norm, averages'] = layer(function() return nn.BatchNorm1d(3, { momentum = false }) end, 4, 3),
  ['batch norm of images'] = layer(function() return nn.BatchNorm2d(3) end, 2, 3, 2, 2),
  ['batch norm and relu'] = layer(function()
    local bn = nn.BatchNorm2d(3)
    local net = nn.Sequential(bn)
    net.forward = function(_, x) return bn:forward_relu(x, x) end
    return net
  end, 2, 3, 2, 2),
  ['instance norm'] = layer(function() return nn.InstanceNorm1d(3, { track_running_stats = true, affine = true }) end, 2, 3, 4),
  ['layer norm'] = layer(function() return nn.LayerNorm(4) end, 3, 4),
  dropout = layer(function() return nn.Dropout(0.5) end, 4, 4),
  lstm = layer(function() return nn.LSTM(3, 2, { num_layers = 2, dropout = 0.5 }) end, 2, 2, 3),
  gru = layer(function() return nn.GRU(3, 2) end, 2, 2, 3),
  attention = layer(function()
    local a = nn.MultiheadAttention(4, 2, { dropout = 0.25 })
    local net = nn.Sequential(a)
    net.forward = function(_, x) return a(x, x, x) end
    return net
  end, 2, 2, 4),
  conv = layer(function() return nn.Conv2d(2, 2, 3, { padding = 1 }) end, 1, 2, 4, 4),
}

describe('a layer that lacks memory changes nothing:', function()
  for name, make in pairs(layers) do
    it(name, function() assert.is_true(walk(make) > 0) end)
  end
  it('one after the other', function() -- what ran stays: a chain is tried again layer by layer
    walk(layer(function() return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 2)) end, 4, 3), { partial = true })
  end)
end)

local writes = {
  ['add_'] = function(a, b) a:add_(b) end,
  ['add_ of a number'] = function(a) a:add_(2) end,
  ['add_ of a broadcast'] = function(a, b) a:add_(b[{ 1, {} }]) end,
  ['add_ of itself, turned'] = function(a) a:add_(a:t()) end,
  ['copy_'] = function(a, b) a:copy_(b) end,
  ['copy_ of another dtype'] = function(a, b) a:copy_(b:double()) end,
  ['out ='] = function(a, b) amp.add(b, b, { out = a }) end,
  ['out = of a product'] = function(a, b) amp.matmul(b, b, { out = a }) end,
  ['assignment'] = function(a, b) a[{ { 1, 2 }, {} }] = b[{ { 2, 3 }, {} }] end,
  ['assignment of a number'] = function(a) a[{ { 1, 2 }, 1 }] = 3 end,
  ['assignment of a table'] = function(a) a[1] = { 1, 2, 3 } end,
  ['assignment by a mask'] = function(a, b) a[b:gt(0)] = 7 end,
  ['assignment by a list'] = function(a) a[{ { 1, 3 } }] = 4 end,
  ['uniform_'] = function(a) a:uniform_(0, 1) end,
  ['normal_'] = function(a) a:normal_() end,
  ['masked_fill_'] = function(a, b) a:masked_fill_(b:gt(0), 1) end,
  ['index_add_'] = function(a, b) a:index_add_(1, amp.tensor({ 1, 1, 3 }, { dtype = 'int64' }), b) end,
  ['sort'] = function(a, b) a:copy_((b:sort(1))) end,
  ['clamp_'] = function(a) a:clamp_(-0.5, 0.5) end,
}

describe('a write that lacks memory changes nothing:', function()
  for name, write in pairs(writes) do
    it(name, function()
      walk(function()
        amp.manual_seed(3)
        local a, b = randn(3, 3), randn(3, 3)
        return { watch = { a, b }, run = function() write(a, b) end }
      end)
    end)
  end
  it('with a history', function()
    for _, name in ipairs { 'add_', 'assignment', 'masked_fill_', 'copy_' } do
      walk(function()
        amp.manual_seed(3)
        local a, b = leaf(3, 3), leaf(3, 3)
        local c = a * 2
        return { watch = { a, b, c }, run = function() writes[name](c, b) end }
      end)
    end
  end)
  it('to()', function()
    for _, f in ipairs { function(a) return a:to('float64') end, function(a) return a:half() end, function(a) return a:to('cpu', { copy = true }) end } do
      walk(function()
        amp.manual_seed(3)
        local a = leaf(3, 3)
        return { watch = { a }, run = function() return f(a) end }
      end)
    end
  end)
end)

local function net_of()
  return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
end

local function trained(build, opts)
  return function()
    amp.manual_seed(5)
    local net = net_of()
    local o = build(net)
    local x = randn(4, 3)
    local w = { watch = tensors_of(net) }
    for i = 1, opts and opts.steps or 1 do
      net:zero_grad()
      net(x):square():sum():backward()
      if i < (opts and opts.steps or 1) then o:step() end
    end
    w.run = function() o:step() end
    w.also = function()
      local list = {}
      for i, s in ipairs(o:state_dict().state) do
        list[#list + 1] = i .. ' ' .. tostring(s.step)
        for _, k in ipairs { 'momentum_buffer', 'exp_avg', 'exp_avg_sq' } do list[#list + 1] = s[k] or k end
      end
      return list
    end
    return w
  end
end

local optimizers = {
  ['SGD with momentum'] = function(net) return amp.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 }) end,
  AdamW = function(net) return amp.optim.AdamW(net:parameters(), { lr = 0.1 }) end,
  LAMB = function(net) return amp.optim.LAMB(net:parameters(), { lr = 0.1 }) end,
}

describe('a step that lacks memory changes nothing:', function()
  for name, build in pairs(optimizers) do
    it(name .. ', the first and another', function()
      walk(trained(build))
      walk(trained(build, { steps = 2 }))
    end)
  end
  it('a scaled one, and its update', function()
    for _, overflow in ipairs { false, true } do
      local function make()
        amp.manual_seed(5)
        local net = net_of()
        local o = optimizers.AdamW(net)
        local scaler = amp.GradScaler { init_scale = 16, growth_interval = 1 }
        scaler:scale((net(randn(4, 3)):square():sum()) * (overflow and math.huge or 1)):backward()
        return net, o, scaler
      end
      walk(function()
        local net, o, scaler = make()
        return { watch = tensors_of(net), run = function() scaler:step(o) end, also = function() return { scaler:get_scale() } end }
      end)
      walk(function()
        local net, o, scaler = make()
        scaler:step(o)
        local function also() return { scaler:get_scale(), scaler:get_growth_tracker() } end
        return { watch = tensors_of(net), run = function() scaler:update() end, also = also }
      end)
    end
  end)
  it('unscaling, also of gradients that somebody holds', function()
    for _, held in ipairs { false, true } do
      walk(function()
        amp.manual_seed(5)
        local net = net_of()
        local o, scaler = optimizers.AdamW(net), amp.GradScaler { init_scale = 16 }
        scaler:scale(net(randn(4, 3)):square():sum()):backward()
        local grads = {}
        for i, p in ipairs(held and net:parameters() or {}) do grads[i] = p.grad end
        return { watch = tensors_of(net), also = function() return grads end, run = function() scaler:unscale_(o) end }
      end, { partial = held })
    end
  end)
  it('clipping', function()
    walk(function()
      amp.manual_seed(5)
      local net = net_of()
      net(randn(4, 3)):square():sum():backward()
      return { watch = tensors_of(net), run = function() return nn.utils.clip_grad_norm_(net:parameters(), 0.5) end }
    end)
  end)
  it('load_state_dict', function()
    walk(function()
      amp.manual_seed(5)
      local net, other = net_of(), net_of()
      local state = other:state_dict()
      return { watch = tensors_of(net), run = function() net:load_state_dict(state) end }
    end, { partial = true })
  end)
end)

-- -- Backward -------------------------------------------------------------------------

local backwards = {
  ['of a net'] = function()
    local net, x = net_of(), leaf(4, 3)
    return tensors_of(net), x, net(x):square():sum()
  end,
  ['of one that begins at leaves'] = function()
    local x = leaf(1)
    return {}, x, x
  end,
  ['with hooks'] = function()
    local net, x = net_of(), leaf(4, 3)
    local h = net[1](x)
    h:register_hook(function(g) return g * 2 end)
    net[1].weight:register_hook(function(g) return g + 1 end)
    return tensors_of(net), x, (net[3](h:tanh()) * 2):square():sum()
  end,
  ['through views and writes'] = function()
    local x, b = leaf(4, 4), leaf(2)
    local y = x * 2
    y[{ 1, { 2, 3 } }] = b
    y:t()[{ {}, 2 }]:mul_(3)
    return { b }, x, (y[{ { 1, 2 }, {} }] * y[{ { 3, 4 }, {} }]):sum() + y[2]:exp():sum() + x[1][2]
  end,
  ['of a residual net'] = function()
    local net, x = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4)), leaf(3, 4)
    return tensors_of(net), x, (x * 1 + net(x * 2) + net(x)):square():sum()
  end,
  ['of cells'] = function()
    local cell, x = nn.LSTMCell(3, 2), leaf(2, 3)
    local h, c = amp.zeros(2, 2), amp.zeros(2, 2)
    for _ = 1, 3 do h, c = unpack(pack(cell(x, { h, c }))) end
    return tensors_of(cell), x, (h + c):sum()
  end,
  ['of a table shared with a product'] = function()
    local e = nn.Embedding(5, 3)
    local x = leaf(2, 3)
    local i = amp.tensor({ 1, 2, 2 }, { dtype = 'int64' })
    return tensors_of(e), x, F.linear(x, e.weight):square():sum() + e(i):square():sum()
  end,
  ['in a region'] = function()
    local net, x = net_of(), leaf(4, 3)
    return tensors_of(net), x, amp.autocast({ dtype = 'bfloat16' }, function() return net(x):float():square():sum() end)
  end,
  ['of a function in Lua'] = function()
    local f = amp.Function { forward = function(ctx, a) ctx:save_for_backward(a) return a * a end,
      backward = function(ctx, g) local a = ctx.saved_tensors[1] return g * a * 2 end }
    local net, x = net_of(), leaf(4, 3)
    return tensors_of(net), x, net(f(x)):square():sum()
  end,
  ['of a checkpoint'] = function()
    local net, x = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)), leaf(4, 3)
    return tensors_of(net), x, amp.checkpoint(function(t) return net(t) end, x):square():sum()
  end,
}

describe('a backward that lacks memory goes on after a collection:', function()
  for name, build in pairs(backwards) do
    it(name, function()
      for _, again in ipairs { false, true } do -- the second: gradients are there already
        walk(function()
          amp.manual_seed(5)
          local watch, x, loss = build()
          watch[#watch + 1] = x
          if again then
            loss:backward(nil, { retain_graph = true })
          end
          return { watch = watch, run = function() loss:backward() end }
        end, { partial = true })
      end
    end)
  end
  it('of derivatives', function()
    walk(function()
      amp.manual_seed(5)
      local x = leaf(3, 3)
      local y = (x * x):sin():sum()
      return { watch = { x }, run = function()
        local g = amp.grad({ y }, { x, x }, { create_graph = true })
        g[1]:square():sum():backward()
        return g[1], g[2]
      end }
    end, { partial = true })
  end)
end)

--- What ranks on GPUs (emulated ones, too) have to come out with, each case against one process on the whole batch or a
-- sum made by hand:
--     luajit spec/distributed/checks.lua NAME ...
-- in each rank, started by anything that amp.distributed knows. Prints `NAME ok`, or what was wrong and ends with status 1.
-- Cases that end in an error on all ranks stand alone: nothing can follow them.
local root = arg[0]:match '^(.*)/spec/distributed/[^/]*$' or '.'
package.path = root .. '/lua/?.lua;' .. root .. '/lua/?/init.lua;' .. root .. '/?.lua;' .. package.path
local amp = require 'amp'
local nn, F, optim, dist = amp.nn, amp.nn.functional, amp.optim, amp.distributed
local ffi = require 'ffi'
ffi.cdef 'int usleep(unsigned us); int getpid(void); int kill(int pid, int sig); void _exit(int status);'

local timeout = tonumber(os.getenv 'CHECK_TIMEOUT' or '30')
dist.init { timeout = timeout, backend = os.getenv 'CHECK_BACKEND' or 'auto' }
local r, n = dist.rank(), dist.world_size()
local gpu = amp.cuda.is_available()
local device = gpu and 'cuda:' .. (dist.local_rank() - 1) % amp.cuda.device_count() + 1 or 'cpu'

if gpu and n > 1 then assert(amp.zeros(1, { device = 'cuda' }).device == device) end

local function same(a, b, tolerance, what)
  local x, y = a:detach():cpu():double(), b:detach():cpu():double()
  if x:numel() ~= y:numel() then error(('%s: %d elements, not %d'):format(what or '', x:numel(), y:numel()), 2) end
  if x:numel() == 0 then return end
  local d = (x - y):abs():max():item()
  if d > (tolerance or 0) or d ~= d then error(('%s differs by %g'):format(what or 'it', d), 2) end
end

local function fails(pattern, fn, ...)
  local ok, e = pcall(fn, ...)
  if ok then error('no error; expected ' .. pattern, 2) end
  if not tostring(e):find(pattern) then error('the error is: ' .. tostring(e), 2) end
end

local checks = {}

-- -- Collectives ------------------------------------------------------------------------------------

local dtypes = { 'float64', 'float32', 'float16', 'bfloat16', 'int64', 'int32', 'int16', 'int8', 'uint8', 'bool' }
local shapes = { {}, { 0, 3 }, { 1 }, { 7, 5 }, { 100003 } }

-- Rank k's tensor; small integers, whose sums every dtype holds
local function given(k, dtype, shape, salt)
  local count = 1
  for _, s in ipairs(shape) do count = count * s end
  local t = (amp.arange(0, count) * 7 + 3 * k + salt) % (dtype == 'bool' and 2 or 5)
  if dtype ~= 'uint8' and dtype ~= 'bool' then t = t - 2 end
  return t:reshape(unpack(#shape == 0 and { {} } or shape)):to(dtype)
end

local function fold(list, op, dtype)
  local out = list[1]:double()
  for i = 2, #list do
    local x = list[i]:double()
    if op == 'sum' or op == 'mean' then out = out + x
    elseif op == 'max' then out = amp.maximum(out, x)
    elseif op == 'min' then out = amp.minimum(out, x)
    else out = out * x end
  end
  if op == 'mean' then out = out / #list end
  return dtype == 'bool' and out:ne(0) or out:to(dtype)
end

local function all_of(dtype, shape, salt)
  local list = {}
  for k = 1, n do list[k] = given(k, dtype, shape, salt) end
  return list
end

local function floating(dtype) return dtype:find 'float' ~= nil end

function checks.reductions()
  for _, dtype in ipairs(dtypes) do
    for _, shape in ipairs(shapes) do
      for k, op in ipairs { 'sum', 'mean', 'max', 'min', 'product' } do
        if op ~= 'mean' or floating(dtype) then
          local list, what = all_of(dtype, shape, k), ('%s(%s) of %s'):format('all_reduce', op, dtype)
          local t = list[r]:to(device):clone()
          assert(rawequal(dist.all_reduce(t, { op = op }), t))
          assert(t.dtype == dtype and t.device == device)
          same(t, fold(list, op, dtype), 0, what)
          local q = list[r]:to(device):clone()
          dist.reduce(q, { to = n, op = op })
          same(q, r == n and fold(list, op, dtype) or list[r], 0, 'reduce, as ' .. what)
        end
      end
    end
    local parts = all_of(dtype, { 3 * n, 2 }, 1)
    local got = dist.reduce_scatter(parts[r]:to(device))
    same(got, fold(parts, 'sum', dtype)[{ { 3 * r - 2, 3 * r } }], 0, 'reduce_scatter of ' .. dtype)
    assert(got.dtype == dtype and got.device == device)
  end
end

function checks.moves()
  for _, dtype in ipairs(dtypes) do
    for _, shape in ipairs(shapes) do
      local list = all_of(dtype, shape, 2)
      local function mine() return list[r]:to(device):clone() end
      same(dist.broadcast(mine(), { from = n }), list[n], 0, 'broadcast of ' .. dtype)
      local g = dist.all_gather(mine())
      for k = 1, n do
        same(g[k], list[k], 0, 'all_gather of ' .. dtype)
        assert(g[k].dtype == dtype and g[k].device == device)
      end
      g = dist.gather(mine(), { to = n })
      assert((g ~= nil) == (r == n))
      for k = 1, g and n or 0 do same(g[k], list[k], 0, 'gather of ' .. dtype) end
      local parts = {}
      for k = 1, n do parts[k] = given(k, dtype, shape, 4):to(device) end
      same(dist.scatter(mine(), r == 1 and parts or nil), given(r, dtype, shape, 4), 0, 'scatter of ' .. dtype)
      local sent = {}
      for k = 1, n do sent[k] = given(10 * r + k, dtype, shape, 0):to(device) end
      for k, x in ipairs(dist.all_to_all(sent)) do same(x, given(10 * k + r, dtype, shape, 0), 0, 'all_to_all of ' .. dtype) end
      if n > 1 then -- a ring, in which everybody sends first
        local w = dist.send(mine(), { to = r % n + 1, async = true })
        local from = (r - 2) % n + 1
        local into = given(99, dtype, shape, 1):to(device)
        same(dist.recv(into, { from = from }), list[from], 0, 'recv of ' .. dtype)
        w:wait()
      end
    end
  end
end

function checks.forms()
  local m = amp.zeros(3, 4, { device = device })
  dist.all_reduce(m:t():add_(r))
  same(m, amp.full({ 3, 4 }, n * (n + 1) / 2), 0, 'a turned view')
  local w = amp.zeros(4, 4, { device = device })
  dist.broadcast(w[{ {}, { 2, 3 } }]:fill_(r), { from = n })
  same(w, amp.tensor { { 0, n, n, 0 }, { 0, n, n, 0 }, { 0, n, n, 0 }, { 0, n, n, 0 } }, 0, 'a part of a matrix')
  local cpu = amp.full({ 5 }, r)
  dist.all_reduce(cpu)
  assert(cpu.device == 'cpu')
  same(cpu, amp.full({ 5 }, n * (n + 1) / 2), 0, "a CPU's tensor")
  local half = amp.tensor({ r == 1 and 60000 or -60000 }, { dtype = 'float16', device = device })
  dist.all_reduce(half, { op = 'mean' })
  if n == 2 then same(half, amp.zeros(1), 0, 'a mean in 16 bits') end
  -- what is queued before and after a call is before and after it
  local a = amp.zeros(1000, 1000, { device = device })
  for k = 1, 10 do
    a:add_(r)
    local work = dist.all_reduce(a, { async = true })
    work:wait()
    a:div_(n)
    assert(k > 0)
  end
  same(a, amp.full({ 1000, 1000 }, 10 * (n + 1) / 2), 1e-3, 'ten sums in turn')
  local first = dist.all_reduce(amp.full({ 100000 }, r, { device = device }), { async = true })
  local second = dist.all_gather(amp.full({ 3 }, r, { device = device }), { async = true })
  same(second:wait()[n], amp.full({ 3 }, n))
  same(first:wait(), amp.full({ 100000 }, n * (n + 1) / 2))
  for _ = 1, 20 do dist.all_reduce(amp.ones(100, { device = device }), { async = true }) end -- nobody waits for these
  collectgarbage()
  dist.barrier()
  local v = dist.broadcast_object(r == n and { 1, 'two', { x = 0.5 } } or nil, { from = n })
  assert(v[2] == 'two' and v[3].x == 0.5)
  local everybody, reversed = {}, {}
  for k = 1, n do everybody[k], reversed[k] = k, n + 1 - k end
  local g, h = dist.new_group(everybody), dist.new_group(reversed)
  assert(dist.all_gather(amp.full({ 1 }, r, { device = device }), { group = h })[1]:item() == n)
  -- two groups in another order on each rank
  local one, two = amp.full({ 50000 }, r, { device = device }), amp.full({ 50000 }, 2 * r, { device = device })
  local works = {}
  for k = 1, 2 do
    local is_one = (k == 1) == (r % 2 == 1)
    works[k] = dist.all_reduce(is_one and one or two, { group = is_one and g or h, async = true })
  end
  for _, work in ipairs(works) do work:wait() end
  same(one, amp.full({ 50000 }, n * (n + 1) / 2))
  same(two, amp.full({ 50000 }, n * (n + 1)))
  if n > 1 then
    local alone = dist.new_group { 1 }
    if r == 1 then same(dist.all_reduce(amp.ones(2, { device = device }), { group = alone }), amp.ones(2)) end
  end
  if gpu and amp.cuda.device_count() > 1 then
    local other = 'cuda:' .. (device == 'cuda:1' and 2 or 1)
    fails('talks from ' .. device .. ', got a tensor of ' .. other, dist.all_reduce, amp.ones(2, { device = other }))
  end
end

-- NCCL in a world of one, which the library itself does without
function checks.alone()
  local core = require 'amp.ffi'
  local C, S = core.C, core.S
  local at = ffi.new 'int32_t[2]'
  local function try(code) if code < 0 then error(ffi.string(S.err.message)) end end
  try(C.amp_dist_start(S, 'nccl', at, at + 1))
  assert(at[0] == 0 and at[1] == 1)
  local function call(kind, op, ins, outs)
    local function list(tensors)
      local p = ffi.new('amp_tensor *[?]', math.max(#tensors, 1))
      for i, t in ipairs(tensors) do p[i - 1] = t.ptr_ end
      return p
    end
    local w = C.amp_dist_call(S, C['AMP_DIST_' .. kind], C['AMP_DIST_' .. op], 0, 0, timeout, nil, list(ins), #ins, list(outs), #outs)
    if w == nil then error(ffi.string(S.err.message)) end
    local rc
    repeat rc = C.amp_dist_wait(S, w, 1) until rc ~= 0
    C.amp_dist_free(w)
    try(rc)
  end
  for _, dtype in ipairs(dtypes) do
    if dtype ~= 'int16' then
      local t, want = given(1, dtype, { 7, 5 }, 3):to(device), given(1, dtype, { 7, 5 }, 3)
      for _, op in ipairs { 'SUM', 'MAX', 'MIN', 'PRODUCT', floating(dtype) and 'MEAN' or 'SUM' } do call('ALL_REDUCE', op, {}, { t }) end
      same(t, want, 0, 'all_reduce of ' .. dtype)
      for _, kind in ipairs { 'ALL_GATHER', 'REDUCE_SCATTER', 'GATHER', 'SCATTER', 'ALL_TO_ALL' } do
        local out = amp.zeros_like(t)
        call(kind, 'SUM', { t }, { out })
        same(out, want, 0, kind .. ' of ' .. dtype)
      end
      call('BROADCAST', 'SUM', {}, { t })
      call('REDUCE', 'SUM', { t }, { t })
      same(t, want, 0, 'broadcast of ' .. dtype)
    end
  end
  call('BARRIER', 'SUM', {}, {})
  try(C.amp_dist_stop(S, timeout, 0))
end

-- -- Training -----------------------------------------------------------------------------------------

local function share(t)
  local k = t:size(1) / n
  return t[{ { (r - 1) * k + 1, r * k } }]
end

local function batch()
  amp.manual_seed(11)
  return amp.randn(n * 4, 8, { device = device }), amp.randint(1, 5, { n * 4 }, { dtype = 'int64', device = device })
end

local function network(seed)
  amp.manual_seed(seed)
  return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)):to(device)
end

local function gradients(a, b, tolerance, what)
  local q = b:parameters()
  for i, p in ipairs(a:parameters()) do same(p.grad, q[i].grad, tolerance, ('%s: gradient %d'):format(what, i)) end
end

local function alike(net)
  for i, p in ipairs(net:parameters()) do
    local all = dist.all_gather(p:detach())
    for k = 2, n do assert(all[k]:equal(all[1]), ('parameter %d differs between the ranks'):format(i)) end
  end
end

function checks.ddp()
  local X, Y = batch()
  for _, o in ipairs { {}, { bucket_mb = 0.0002 }, { gradient_dtype = 'bfloat16' }, { gradient_dtype = 'float16', bucket_mb = 0.001 } } do
    local net = network(100 * r)
    local ddp = nn.parallel.DistributedDataParallel(net, o)
    local one = net:clone()
    local a, b = optim.AdamW(ddp:parameters(), { lr = 0.01 }), optim.AdamW(one:parameters(), { lr = 0.01 })
    local tolerance = o.gradient_dtype == 'bfloat16' and 4e-3 or o.gradient_dtype and 1e-3 or 1e-5
    for _ = 1, 3 do
      F.cross_entropy(ddp(share(X)), share(Y)):backward()
      F.cross_entropy(one(X), Y):backward()
      gradients(ddp, one, tolerance, tostring(o.gradient_dtype))
      a:step():clear_grad()
      b:step():clear_grad()
      one:load_state_dict(net:state_dict())
    end
    ddp:no_sync(function() F.cross_entropy(ddp(share(X)), share(Y)):backward() end)
    F.cross_entropy(ddp(share(X) * 2), share(Y)):backward()
    F.cross_entropy(one(X), Y):backward()
    F.cross_entropy(one(X * 2), Y):backward()
    gradients(ddp, one, 4 * tolerance, 'accumulated')
    alike(net)
  end
end

function checks.scaler()
  local X, Y = batch()
  for gear = 1, 2 do
    local ddp = nn.parallel.DistributedDataParallel(network(4))
    local opt, scaler = optim.SGD(ddp:parameters(), { lr = 0.1 }), amp.GradScaler { init_scale = 1024, growth_interval = 100 }
    for step = 1, 4 do
      local before = ddp.module[1].weight:clone()
      local x = share(X) * (step == 2 and r == n and 1e30 or 1)
      local loss = amp.autocast({ dtype = 'float16' }, function() return F.cross_entropy(ddp(x), share(Y)) end)
      scaler:scale(loss):backward()
      if gear == 2 then
        scaler:unscale_(opt)
        nn.utils.clip_grad_norm_(ddp:parameters(), 0.5)
      end
      scaler:step(opt):update()
      opt:clear_grad()
      assert(ddp.module[1].weight:equal(before) == (step == 2), ('step %d, gear %d'):format(step, gear))
      assert(scaler:get_scale() == (step == 1 and 1024 or 512))
    end
    alike(ddp)
  end
end

function checks.sync_batch_norm()
  amp.manual_seed(3)
  local X = amp.randn(n * 3, 4, 3, 3, { device = device }) * 3 + 10
  local G = amp.randn(n * 3, 4, 3, 3, { device = device })
  local one = nn.Sequential(nn.BatchNorm2d(4)):to(device)
  local sync = nn.SyncBatchNorm.convert(one:clone())
  for _ = 1, 2 do
    local x, whole = share(X):clone(), X:clone()
    x.requires_grad, whole.requires_grad = true, true
    local y, z = sync(x), one(whole)
    same(y, share(z), 2e-5, 'the output')
    y:backward(share(G))
    z:backward(G)
    same(x.grad, share(whole.grad), 2e-5, 'the gradient')
    same(dist.all_reduce(sync[1].weight.grad:clone()), one[1].weight.grad, 1e-3, "the weight's gradient")
    same(sync[1].running_mean, one[1].running_mean, 1e-5, 'running_mean')
    same(sync[1].running_var, one[1].running_var, 1e-4, 'running_var')
    sync:zero_grad()
    one:zero_grad()
  end
end

function checks.zero()
  local X, Y = batch()
  for _, case in ipairs { { 'SGD', { lr = 0.1, momentum = 0.9 } }, { 'AdamW', { lr = 0.01 } }, { 'LAMB', { lr = 0.01 } } } do
    local a, b = network(6), network(6)
    local A, B = optim.ZeroRedundancyOptimizer(a:parameters(), unpack(case)), optim[case[1]](b:parameters(), case[2])
    local function steps()
      for _ = 1, 3 do
        for _, x in ipairs { { a, A }, { b, B } } do
          F.cross_entropy(x[1](X), Y):backward()
          nn.utils.clip_grad_norm_(x[1]:parameters(), 0.1)
          x[2]:step():clear_grad()
        end
      end
      local p = b:parameters()
      for i, t in ipairs(a:parameters()) do same(t, p[i], 1e-6, case[1]) end
    end
    steps()
    local mine, plain = A:consolidated_state_dict(), B:state_dict()
    for i, s in pairs(plain.state) do
      for k, v in pairs(s) do
        if amp.is_tensor(v) then same(mine.state[i][k], v, 1e-6, k) end
      end
    end
    A = optim.ZeroRedundancyOptimizer(a:parameters(), case[1], { lr = 1 }):load_state_dict(plain)
    B = optim[case[1]](b:parameters(), { lr = 1 }):load_state_dict(mine)
    steps()
  end
end

function checks.captured()
  local X, Y = batch()
  for _, precision in ipairs { 'float32', 'float16', 'bfloat16' } do
    local nets, losses = {}, {}
    for k = 1, 2 do
      local ddp = nn.parallel.DistributedDataParallel(network(5), { bucket_mb = 0.001 })
      local opt, scaler = optim.AdamW(ddp:parameters(), { lr = 0.01 }), amp.GradScaler { enabled = precision == 'float16', init_scale = 256 }
      local low = precision ~= 'float32' and precision or nil
      local region = amp.autocast.wrap(function(x, y) return F.cross_entropy(ddp(x), y) end, { enabled = low ~= nil, dtype = low })
      local total = amp.zeros(1, { device = device })
      local function step(x, y)
        local loss = region(x, y)
        scaler:scale(loss):backward()
        scaler:step(opt)
        scaler:update()
        opt:clear_grad()
        total:copy_(loss:detach():reshape(1))
        dist.all_reduce(total, { op = 'mean' })
      end
      local run = k == 2 and gpu and amp.capture(step) or step
      for turn = 1, 6 do
        run(share(X) * turn, share(Y))
        if turn == 6 then losses[k] = total:item() end
      end
      alike(ddp)
      nets[k] = ddp
    end
    local q = nets[1]:parameters()
    for i, p in ipairs(nets[2]:parameters()) do same(p, q[i], 1e-5, ('%s: parameter %d'):format(precision, i)) end
    assert(math.abs(losses[1] - losses[2]) < 1e-3, 'the losses differ')
  end
  if gpu and n > 1 then
    local step = amp.capture(function() dist.barrier() end)
    fails('captured step', function() for _ = 1, 5 do step() end end)
    dist.barrier()
  end
end

-- With MPI beside NCCL calls are compared before they are launched, so that the next one works.
function checks.agreed()
  for _ = 1, 2 do
    fails('rank 1: all_reduce%(sum%) of float32 2; rank 2: all_reduce%(sum%) of float32 3', dist.all_reduce, amp.ones(1 + r, { device = device }))
    fails('rank 1: barrier', r == 1 and dist.barrier or dist.all_reduce, r > 1 and amp.ones(1, { device = device }) or nil)
    same(dist.all_reduce(amp.ones(2, { device = device })), amp.full({ 2 }, n))
  end
end

-- -- Errors, after which nothing goes on ------------------------------------------------------------

-- Calls until an error comes; at most `timeout` seconds and a few more
local function ends_with(pattern, step)
  local began = os.time()
  while true do
    local ok, e = pcall(step)
    if not ok then
      print(tostring(e))
      assert(tostring(e):find(pattern), 'the error is: ' .. tostring(e))
      assert(os.difftime(os.time(), began) <= timeout + 5)
      return
    end
    assert(os.difftime(os.time(), began) <= timeout + 5, 'no error within the timeout')
    ffi.C.usleep(10000)
  end
end

local function sum()
  local t = dist.all_reduce(amp.ones(3, { device = device }))
  assert(t:sum():item() == 3 * n or true)
end

function checks.differing()
  sum()
  ends_with('differ', function() dist.all_reduce(amp.ones(r == n and 3 or 2, { device = device })):sum():item() end)
end

function checks.killed()
  sum()
  dist.barrier()
  if r == n then ffi.C.kill(ffi.C.getpid(), 9) end
  ends_with('rank ' .. n, sum)
end

function checks.hanging()
  sum()
  dist.barrier()
  if r == n then ffi.C.usleep((timeout + 8) * 1000000) ffi.C._exit(9) end
  ends_with('rank ' .. n .. ' did not come', sum)
end

function checks.captured_killed()
  local t = amp.zeros(3, { device = device })
  local step = amp.capture(function() dist.all_reduce(t:fill_(1)) end)
  step()
  dist.barrier()
  if r == n then ffi.C.kill(ffi.C.getpid(), 9) end
  ends_with('rank ' .. n, function()
    step()
    t:sum():item()
  end)
end

for _, name in ipairs(arg) do
  local began = os.clock()
  local ok, e = xpcall(checks[name] or function() error 'there is no such check' end, debug.traceback)
  if not ok then
    io.stderr:write(('rank %d: %s FAILED: %s\n'):format(r, name, tostring(e)))
    io.stdout:write(('%s FAILED on rank %d\n'):format(name, r))
    io.stdout:flush()
    os.exit(1)
  end
  print(('%s ok on rank %d (%.1f s)'):format(name, r, os.clock() - began))
  io.stdout:flush()
end

-- Training over ranks against training of one process on the whole batch: DistributedDataParallel, SyncBatchNorm, loss
-- scaling, ZeroRedundancyOptimizer, samplers, metrics.
local R = require 'spec.distributed.ranks'
local several = R.it(it)

local common = [[
  local r, n = init()
  local function share(t) local k = t:size(1) / n return t[{ { (r - 1) * k + 1, r * k } }] end
  local function batch() amp.manual_seed(11) return amp.randn(n * 4, 8), amp.randint(1, 5, { n * 4 }, { dtype = 'int64' }) end
  local function gradients(a, b, tolerance)
    local q = b:parameters()
    for i, p in ipairs(a:parameters()) do
      assert((p.grad == nil) == (q[i].grad == nil), 'parameter ' .. i)
      if p.grad ~= nil then same(p.grad, q[i].grad, tolerance) end
    end
  end
]]

describe('DistributedDataParallel', function()
  several('is training on the whole batch, bucket by bucket, in 16 bits, accumulated', function(mpi)
    R.passes(2, common .. [[
      local X, Y = batch()
      for _, o in ipairs { {}, { bucket_mb = 0.0002 }, { bucket_mb = 0 }, { gradient_dtype = 'bfloat16' },
        { gradient_dtype = 'float16', bucket_mb = 0.001 } } do
        amp.manual_seed(100 * r) -- other weights on each rank: rank 1's count
        local net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
        local ddp = nn.parallel.DistributedDataParallel(net, o)
        local one = net:clone()
        local a, b = optim.AdamW(ddp:parameters(), { lr = 0.01 }), optim.AdamW(one:parameters(), { lr = 0.01 })
        local tolerance = o.gradient_dtype == 'bfloat16' and 4e-3 or o.gradient_dtype and 1e-3 or 1e-6
        for step = 1, 3 do
          F.cross_entropy(ddp(share(X)), share(Y)):backward()
          F.cross_entropy(one(X), Y):backward()
          gradients(ddp, one, tolerance)
          a:step():clear_grad()
          b:step():clear_grad()
          if o.gradient_dtype then one:load_state_dict(net:state_dict()) end
        end
        -- two backwards under no_sync, one outside: the mean of what was gathered
        local gave = ddp:no_sync(function() F.cross_entropy(ddp(share(X)), share(Y)):backward() return 'given' end)
        assert(gave == 'given')
        F.cross_entropy(ddp(share(X) * 2), share(Y)):backward()
        F.cross_entropy(one(X), Y):backward()
        F.cross_entropy(one(X * 2), Y):backward()
        gradients(ddp, one, 4 * tolerance)
        for _, p in ipairs(ddp:parameters()) do -- the same bits everywhere
          local all = dist.all_gather(p.grad)
          for i = 2, n do assert(all[i]:equal(all[1])) end
        end
      end
      assert(nn.parallel.DistributedDataParallel(nn.Linear(2, 2)).module.weight:dim() == 2)
      assert(amp.parallel.DistributedDataParallel == nn.parallel.DistributedDataParallel)
      fails('unknown option', nn.parallel.DistributedDataParallel, nn.Linear(2, 2), { bucket = 1 })
      fails(('the networks of the ranks differ: %s'):format(r == 1 and 'another rank has other parameters than rank 1'
        or ('rank %d has other parameters than rank 1'):format(r)), nn.parallel.DistributedDataParallel, nn.Linear(2, 1 + r))
    ]], { mpi = mpi })
  end)
  several('knows unused, tied and frozen parameters, hooks, several networks in any order', function(mpi)
    R.passes(3, common .. [[
      local Net = nn.Module:extend 'Net'
      function Net:init()
        self.a, self.b, self.never, self.frozen = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.a.weight
        self.frozen:requires_grad_(false)
      end
      function Net:forward(x, both)
        x = self.frozen(self.a(x))
        if both then x = self.b(x) end
        return self.tied(x)
      end
      amp.manual_seed(1)
      local net = Net()
      local ddp = nn.parallel.DistributedDataParallel(net, { bucket_mb = 0.0001 })
      local seen = 0
      net.a.weight:register_hook(function(g) seen = seen + 1 return g * 2 end)
      amp.manual_seed(2)
      local xs = amp.randn(n, 8)
      for round = 1, 2 do
        ddp(xs[{ { r, r } }], r == 2):sum():backward()
        local one = Net()
        one:load_state_dict(net:state_dict())
        local losses = 0
        for k = 1, n do losses = losses + one(xs[{ { k, k } }], k == 2):sum() / n end
        losses:backward()
        same(net.a.weight.grad, one.a.weight.grad * 2, 1e-5)
        same(net.b.weight.grad, one.b.weight.grad, 1e-5)
        same(net.tied.bias.grad, one.tied.bias.grad, 1e-5)
        assert(net.never.weight.grad == nil and net.frozen.weight.grad == nil and seen == round)
        net:zero_grad()
      end
      -- two networks; ranks finish their parts in another order
      local p = nn.parallel.DistributedDataParallel(nn.Linear(4, 4), { bucket_mb = 0 })
      local q = nn.parallel.DistributedDataParallel(nn.Linear(4, 4), { bucket_mb = 0 })
      local x = amp.full({ 1, 4 }, r)
      local y = r == 2 and p(q(x)) or q(p(x))
      y:sum():backward()
      for _, m in ipairs { p, q } do
        local all = dist.all_gather(m.module.weight.grad)
        for i = 2, n do assert(all[i]:equal(all[1])) end
      end
    ]], { mpi = mpi })
  end)
  several('sends gradients while backward runs', function(mpi)
    R.passes(2, common .. [[
      local layers = {}
      for i = 1, 6 do layers[i] = nn.Linear(32, 32) end
      local net = nn.Sequential(unpack(layers))
      local ddp = nn.parallel.DistributedDataParallel(net, { bucket_mb = 0.002 })
      local order = {}
      local all_reduce = dist.all_reduce
      dist.all_reduce = function(...) order[#order + 1] = 'sent' return all_reduce(...) end
      local first = amp.Function { forward = function(_, x) return x * 1 end, backward = function(_, g) order[#order + 1] = 'end of backward' return g end }
      for _, region in ipairs { false, 'bfloat16' } do
        order = {}
        local x = amp.randn(4, 32, { requires_grad = true })
        local function loss() return ddp(first(x)):sum() end
        local l = region and amp.autocast({ dtype = region }, loss) or loss()
        l:backward()
        local at
        for i, what in ipairs(order) do if what == 'end of backward' then at = i end end
        assert(at > 5, table.concat(order, ', '))
        net:zero_grad()
      end
    ]], { mpi = mpi })
  end)
  several('agrees on overflows and clips by the whole norm, in each gear', function(mpi)
    R.passes(2, common .. [[
      local function make() amp.manual_seed(4) return nn.parallel.DistributedDataParallel(nn.Linear(8, 4)) end
      local X, Y = batch()
      for gear = 1, 3 do
        local net, other = make(), make()
        local opt, second = optim.SGD(net:parameters(), { lr = 0.1 }), optim.SGD(other:parameters(), { lr = 0.1 })
        local scaler, gm = amp.GradScaler { init_scale = 1024, growth_interval = 100 }, amp.GradManager():attach(net:parameters())
        for step = 1, 3 do
          local before, before2 = net.module.weight:clone(), other.module.weight:clone()
          local x = share(X)
          if step == 2 and r == 2 then x = x * 1e38 end
          if gear == 1 then
            gm:record(function() scaler:backward(gm, F.cross_entropy(net(x) * 100, share(Y))) end)
            opt:step():clear_grad()
          elseif gear == 2 then
            scaler:scale(F.cross_entropy(net(x) * 100, share(Y))):backward()
            scaler:scale(F.cross_entropy(other(share(X)), share(Y))):backward()
            scaler:step(opt):step(second):update()
            opt:clear_grad()
            second:clear_grad()
            assert(not other.module.weight:equal(before2))
          else
            scaler:scale(F.cross_entropy(net(x) * 100, share(Y))):backward()
            scaler:unscale_(opt)
            local norm = nn.utils.clip_grad_norm_(net:parameters(), 0.5):item()
            local all = dist.all_gather(amp.tensor { step == 2 and 0 or norm })
            assert(all[1]:equal(all[2]))
            scaler:step(opt):update()
            opt:clear_grad()
          end
          assert(net.module.weight:equal(before) == (step == 2), ('gear %d step %d'):format(gear, step))
          assert(scaler:get_scale() == (step == 1 and 1024 or 512))
          local all = dist.all_gather(net.module.weight:detach())
          assert(all[1]:equal(all[2]))
        end
      end
    ]], { mpi = mpi })
  end)
end)

describe('SyncBatchNorm', function()
  several('is the norm of the whole batch, of unequal parts', function(mpi)
    R.passes(3, [[
      local r, n = init()
      amp.manual_seed(3)
      local X, G = amp.randn(9, 4, 3, 3, { dtype = 'float64' }) * 3 + 100, amp.randn(9, 4, 3, 3, { dtype = 'float64' })
      local parts = { { 1, 2 }, { 3, 3 }, { 4, 9 } }
      local net = nn.Sequential(nn.BatchNorm2d(4)):to 'float64'
      local one = net:clone()
      local sync = nn.SyncBatchNorm.convert(net)
      assert(sync[1]:is(nn.SyncBatchNorm) and amp.parallel.convert_syncbn_model(one:clone())[1]:is(nn.SyncBatchNorm))
      for step = 1, 2 do
        local x, whole = X[{ parts[r] }]:clone(), X:clone()
        x.requires_grad, whole.requires_grad = true, true
        local y, z = sync(x), one(whole)
        same(y, z[{ parts[r] }], 1e-9)
        y:backward(G[{ parts[r] }])
        z:backward(G)
        same(x.grad, whole.grad[{ parts[r] }], 1e-9)
        same(dist.all_reduce(sync[1].weight.grad:clone()), one[1].weight.grad, 1e-7)
        same(dist.all_reduce(sync[1].bias.grad:clone()), one[1].bias.grad, 1e-7)
        same(sync[1].running_mean, one[1].running_mean, 1e-9)
        same(sync[1].running_var, one[1].running_var, 1e-9)
        assert(sync[1].num_batches_tracked:item() == step)
        net:zero_grad()
        one:zero_grad()
      end
      if r == 1 then sync:eval() sync(X) end -- no exchange
      dist.barrier()
    ]], { mpi = mpi })
  end)
end)

describe('ZeroRedundancyOptimizer', function()
  several('steps as the plain one, keeps a part, and its checkpoint is the plain one', function(mpi)
    R.passes(3, common .. [[
      local X, Y = batch()
      for _, case in ipairs { { 'SGD', { lr = 0.1, momentum = 0.9 } }, { 'AdamW', { lr = 0.01 } },
        { 'Adam', { lr = 0.01, amsgrad = true } }, { 'LAMB', { lr = 0.01 } } } do
        local function make() amp.manual_seed(6) return nn.Sequential(nn.Linear(8, 33), nn.ReLU(), nn.Linear(33, 4)) end
        local a, b = make(), make()
        local A, B = optim.ZeroRedundancyOptimizer(a:parameters(), unpack(case)), optim[ case[1] ](b:parameters(), case[2])
        local function step()
          for _, x in ipairs { { a, A }, { b, B } } do
            F.cross_entropy(x[1](X), Y):backward()
            nn.utils.clip_grad_norm_(x[1]:parameters(), 0.1)
            x[2]:step():clear_grad()
          end
        end
        for _ = 1, 3 do step() end
        A.param_groups[1].lr, B.param_groups[1].lr = 0.02, 0.02
        step()
        local p = b:parameters()
        for i, t in ipairs(a:parameters()) do same(t, p[i]) end
        local mine, plain = A:consolidated_state_dict(), B:state_dict()
        for i, s in pairs(plain.state) do
          for k, v in pairs(s) do
            if amp.is_tensor(v) then same(mine.state[i][k], v) else assert(mine.state[i][k] == v) end
          end
        end
        local C, D = optim.ZeroRedundancyOptimizer(a:parameters(), case[1], { lr = 1 }), optim[ case[1] ](b:parameters(), { lr = 1 })
        C:load_state_dict(plain)
        D:load_state_dict(mine)
        A, B = C, D
        step()
        for i, t in ipairs(a:parameters()) do same(t, p[i]) end
        if case[1] ~= 'LAMB' then assert(C.kept <= math.ceil(C.elements / n) + 16) end
      end
      -- under a scaler: an overflow on one rank is a skip on all
      local net = nn.parallel.DistributedDataParallel(nn.Linear(8, 4))
      local opt, scaler = optim.ZeroRedundancyOptimizer(net:parameters(), 'SGD', { lr = 0.1 }), amp.GradScaler { init_scale = 256 }
      for step = 1, 2 do
        local before = net.module.weight:clone()
        scaler:scale(net(share(X) * (step == 1 and r == 2 and 1e38 or 1)):sum() * 10):backward()
        scaler:step(opt):update()
        opt:clear_grad()
        assert(net.module.weight:equal(before) == (step == 1))
        assert(scaler:get_scale() == 128)
      end
      fails("no optimizer 'LBFGS'", optim.ZeroRedundancyOptimizer, net:parameters(), 'LBFGS', {})
    ]], { mpi = mpi })
  end)
end)

describe('optim.Trainer', function()
  several('with kvstore dist_sync is one trainer of the whole batch, MXNet\'s way', function(mpi)
    R.passes(2, common .. [[
      local X, Y = batch()
      local function make() amp.manual_seed(4) return nn.Linear(8, 4) end
      local a, b = make(), make()
      local A = optim.Trainer(a:parameters(), 'sgd', { learning_rate = 0.1, momentum = 0.9 }, { kvstore = 'dist_sync' })
      local B = optim.Trainer(b:parameters(), 'sgd', { learning_rate = 0.1, momentum = 0.9 })
      amp.init_trainer(A, { init_scale = 1024 })
      for step = 1, 3 do
        local loss = F.cross_entropy(a(share(X)), share(Y), { reduction = 'sum' })
        amp.scale_loss(loss, A, function(scaled) scaled:backward() end)
        A:step(X:size(1))
        F.cross_entropy(b(X), Y, { reduction = 'sum' }):backward()
        B:step(X:size(1))
        same(a.weight, b.weight, 1e-6)
        same(a.bias, b.bias, 1e-6)
      end
    ]], { mpi = mpi })
  end)
end)

describe('data of ranks', function()
  it('is cut and padded as PyTorch does', function()
    local amp = require 'amp'
    local set = { size = 10, get = function(_, i) return i end }
    local function indices(rank, o)
      o.rank, o.world_size = rank, 4
      return amp.data.DistributedSampler(set, o):indices():tolist()
    end
    -- torch.utils.data.DistributedSampler(range(10), 4, rank, shuffle=False), plus 1
    assert.same({ { 1, 5, 9 }, { 2, 6, 10 }, { 3, 7, 1 }, { 4, 8, 2 } },
      { indices(1, { shuffle = false }), indices(2, { shuffle = false }), indices(3, { shuffle = false }), indices(4, { shuffle = false }) })
    assert.same({ { 1, 5 }, { 4, 8 } }, { indices(1, { shuffle = false, drop_last = true }), indices(4, { shuffle = false, drop_last = true }) })
    local seen = {}
    for r = 1, 4 do for _, i in ipairs(indices(r, { seed = 3 })) do seen[i] = (seen[i] or 0) + 1 end end
    assert.equal(10, #seen)
    local s = amp.data.DistributedSampler(set, { rank = 1, world_size = 2 })
    local first = s:indices():tolist()
    assert.same(first, s:indices():tolist())
    assert.not_same(first, s:set_epoch(1):indices():tolist())
    local tensors = amp.data.TensorDataset(amp.zeros(7, 2))
    assert.equal(4, amp.data.DistributedSampler(tensors, { rank = 2, world_size = 2 }):size())
    local small = amp.data.DistributedSampler({ size = 2, get = set.get }, { rank = 5, world_size = 5, shuffle = false })
    assert.same({ 1 }, small:indices():tolist())
    assert.error_matches(function() amp.data.DistributedSampler(set, { rank = 3, world_size = 2 }) end, 'rank 3 of 2')
    assert.error_matches(function() amp.data.DataLoader(set, { sampler = s, shuffle = true }) end, 'goes without shuffle')
  end)
  it('comes through a loader, which resumes', function()
    local amp = require 'amp'
    local set = { size = 10, get = function(_, i) return i end }
    local function loader()
      return amp.data.DataLoader(set, { batch_size = 2, sampler = amp.data.DistributedSampler(set, { rank = 2, world_size = 2, shuffle = false }) })
    end
    local l, got = loader(), {}
    for x in l:iter() do for _, v in ipairs(x:tolist()) do got[#got + 1] = v end end
    assert.same({ 2, 4, 6, 8, 10 }, got)
    assert.equal(3, l:size())
    local half = loader()
    half:iter()()
    local again = loader():load_state_dict(half:state_dict())
    assert.same({ 6, 8 }, again:iter()():tolist())
    local listed = {}
    for x in amp.data.DataLoader(set, { sampler = { 3, 3, 1 } }):iter() do listed[#listed + 1] = x:item() end
    assert.same({ 3, 3, 1 }, listed)
    assert.error_matches(function() amp.data.DataLoader(set, { sampler = { 11 } }):iter() end, 'the dataset has 10 examples')
  end)
  several('adds up in metrics; rank 1 writes logs', function(mpi)
    R.passes(2, [[
      local r = init()
      local m = amp.metric.Accuracy()
      m:update(amp.tensor({ 1, 1, r }, { dtype = 'int64' }), amp.tensor({ 1, 2, 2 }, { dtype = 'int64' }))
      dist.merge_metric(m)
      assert(math.abs(m:value() - 3 / 6) < 1e-12)
      -- states that hold tensors
      local mean, top = amp.metric.Mean 'loss', amp.metric.TopK { k = 2 }
      mean:update(amp.tensor(3 * r - 3))
      mean:update(amp.tensor(1))
      top:update(amp.tensor { { 3, 2, 1 }, { 1, 2, 3 } }, amp.tensor({ 2, r }, { dtype = 'int64' }))
      local counts = amp.metric.ConfusionMatrix { classes = 2 }
      counts:update(amp.tensor({ 1, r }, { dtype = 'int64' }), amp.tensor({ 1, 2 }, { dtype = 'int64' }))
      for _ = 1, 2 do -- what a rank sends is its own, also where it merged the others' before
        local m, t, c = amp.metric.Mean 'loss', amp.metric.TopK { k = 2 }, amp.metric.ConfusionMatrix { classes = 2 }
        m:merge(mean:state())
        t:merge(top:state())
        c:merge(counts:state())
        assert(math.abs(dist.merge_metric(m):value() - 5 / 4) < 1e-6)
        assert(math.abs(dist.merge_metric(t):value() - 3 / 4) < 1e-6)
        same(amp.is_tensor(dist.merge_metric(c):value()) and c:value() or amp.tensor(c:value()), amp.tensor { { 2, 0 }, { 1, 1 } })
      end
      -- of equal scores the same stand first on all ranks, and sums are rounded alike
      local boxes, map = { { 0, 0, 10, r == 1 and 10 or 100 } }, amp.metric.MeanAveragePrecision { style = 'voc' }
      map:update({ { boxes = { { 0, 0, 10, 10 } }, scores = { 0.9 }, labels = { 1 } } }, { { boxes = boxes, labels = { 1 } } })
      assert(math.abs(dist.merge_metric(map):value() - 0.5) < 1e-9)
      local parts = amp.metric.Mean 'parts'
      for _, v in ipairs(r == 1 and { 0.1, 1e16 } or { 0.7, -1e16, 0.3 }) do parts:update(v) end
      local values = dist.all_gather(amp.tensor({ dist.merge_metric(parts):value() }, { dtype = 'float64' }))
      assert(values[1]:equal(values[2]))
      local log = amp.Logger(os.tmpname() .. '.runs')
      log:scalars({ a = 1 }, 1):close()
      assert((tostring(log):find 'rank 1 writes' ~= nil) == (r == 2))
      amp.progress(3):update():close()
    ]], { mpi = mpi })
  end)
end)

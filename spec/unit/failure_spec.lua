--- Allocation failure at every allocation of a training step, and of other work: a Lua error
-- or, where a retry was enough, the right result; state intact; the next step works.
local amp = require 'amp'
local core = require 'amp.ffi'
local H = require 'spec.lib.helper'
local C = core.C

local function failures() return tonumber(C.amp_memory(C.AMP_CPU, 0).failures) end

-- Run work() with the n-th allocation failing, for n from 1 until none is left to fail.
-- check(ok, err, n) is called after each.
local function inject(work, check, limit)
  local n, quiet = 0, 0
  while quiet < 3 do
    n = n + 1
    assert(n < (limit or 3000), 'no end of allocations')
    local before = failures()
    C.amp_fail_allocation(n)
    local ok, err = pcall(work)
    C.amp_fail_allocation(-1)
    if failures() == before then quiet = quiet + 1 else quiet = 0 end
    if not ok then
      local text = tostring(err)
      if not text:lower():find('memory', 1, true) then error(('allocation %d: not a memory error: %s'):format(n, text), 0) end
    end
    check(ok, err, n)
  end
  return n - 3
end

describe('a failing allocation', function()
  it('that comes once is retried after a collection, without an error', function()
    local t = amp.ones(1000)
    for _, f in ipairs { function() return t + 1 end, function() return amp.add(t, 1, { alpha = 1 }) end, function() return amp.full({ 1000 }, 2) end } do
      local before = failures()
      C.amp_fail_allocation(1)
      local ok, r = pcall(f)
      C.amp_fail_allocation(-1)
      assert.is_true(failures() > before)
      assert.is_true(ok, tostring(r))
      assert.equal(2000, r:sum():item())
    end
  end)
  it('in a forward pass raises or is retried, with the right values', function()
    local net = amp.nn.Sequential(amp.nn.Linear(4, 6), amp.nn.ReLU(), amp.nn.Linear(6, 3))
    local x, y = H.sample { 5, 4 }, H.make({ 1, 2, 3, 1, 2 }, { 5 }, 'int64')
    local function forward() return amp.nn.functional.cross_entropy(net(x), y) end
    local want = forward():item()
    local got
    local count = inject(function()
      got = nil
      got = forward()
    end, function(ok)
      if ok then assert.equal(want, got:item()) end
    end)
    assert.is_true(count >= 4, count .. ' allocations')
    assert.equal(want, forward():item())
  end)

  for _, mode in ipairs { 'float32', 'bfloat16', 'float16' } do
    it('anywhere in a ' .. mode .. ' training step leaves parameters whole and the next step right', function()
      local function setup()
        amp.manual_seed(5)
        local net = amp.nn.Sequential(amp.nn.Linear(4, 6), amp.nn.ReLU(), amp.nn.Linear(6, 3))
        local opt = amp.optim.Adam(net:parameters(), { lr = 0.05 })
        local scaler = amp.GradScaler { enabled = mode == 'float16', init_scale = 128 }
        return net, opt, scaler
      end
      local x, y = H.sample { 5, 4 }, H.make({ 1, 2, 3, 1, 2 }, { 5 }, 'int64')
      local function step(net, opt, scaler)
        local loss = amp.autocast({ dtype = mode, enabled = mode ~= 'float32' }, function()
          return amp.nn.functional.cross_entropy(net(x), y)
        end)
        scaler:scale(loss):backward()
        scaler:step(opt)
        scaler:update()
        opt:zero_grad()
      end
      local function values(net)
        local all = {}
        for _, p in ipairs(net:parameters()) do for _, v in ipairs(H.values(p)) do all[#all + 1] = v end end
        return all
      end
      local function same(a, b)
        for i = 1, #a do if a[i] ~= b[i] then return false end end
        return true
      end
      -- the path without failures
      local net, opt, scaler = setup()
      local path = { values(net) }
      for k = 1, 3 do
        step(net, opt, scaler)
        path[k + 1] = values(net)
      end
      local live = H.live()
      local function cold(first) -- a fresh network, its first step or (first false) its second under fire
        local n, quiet = 0, 0
        while quiet < 3 do
          n = n + 1
          assert(n < 3000)
          net, opt, scaler = setup()
          if not first then step(net, opt, scaler) end
          local at = first and 1 or 2
          local before = failures()
          C.amp_fail_allocation(n)
          local ok, err = pcall(step, net, opt, scaler)
          C.amp_fail_allocation(-1)
          if failures() == before then quiet = quiet + 1 else quiet = 0 end
          local now = values(net)
          if ok then
            assert(same(now, path[at + 1]), ('allocation %d: no error, but wrong parameters'):format(n))
          else
            local text = tostring(err)
            assert(text:lower():find('memory', 1, true), ('allocation %d: %s'):format(n, text))
            local stepped = same(now, path[at + 1])
            assert(stepped or same(now, path[at]), ('allocation %d: parameters half changed after: %s'):format(n, text))
            if not stepped then -- discard the batch, then the same step again
              opt:zero_grad()
              if scaler:is_enabled() then
                scaler = amp.GradScaler { init_scale = 128 }
              end
              step(net, opt, scaler)
              assert(same(values(net), path[at + 1]), ('allocation %d: the next step is wrong after: %s'):format(n, text))
            end
          end
        end
        return n - 3
      end
      local counts = { cold(true), cold(false) }
      assert.is_true(counts[1] > 20, counts[1] .. ' allocations')
      assert.is_true(H.live() <= live + 65536, 'leaked ' .. (H.live() - live))
    end)
  end

  it('in double backward, indexing, views, saving: an error, and it works afterwards', function()
    local jobs = {
      function()
        local x = H.sample({ 3 }, 'float64')
        x.requires_grad = true
        local g = amp.grad({ (x:tanh() ^ 2):sum() }, { x }, { create_graph = true })[1]
        return amp.grad({ g:sum() }, { x })[1]
      end,
      function()
        local t = amp.arange(0, 12):view(3, 4)
        t[{ {}, amp.tensor({ 1, 3 }, { dtype = 'int64' }) }] = 5
        return t[t:gt(3)]
      end,
      function()
        local c = amp.nn.functional.conv2d(H.sample { 1, 2, 5, 5 }, H.sample { 2, 2, 3, 3 }, nil, { padding = 1 })
        return amp.nn.functional.max_pool2d(c, 2)
      end,
      function() return amp.stack({ amp.cat({ amp.ones(2), amp.zeros(2) }), amp.zeros(4) }) end,
      function()
        local f = amp.Function { forward = function(_, a) return a * 2 end, backward = function(_, g) return g * 2 end }
        local x = amp.ones(2, { requires_grad = true })
        f(x):sum():backward()
        return x.grad
      end,
    }
    for k, job in ipairs(jobs) do
      local want = job()
      local got
      inject(function()
        got = nil
        got = job()
      end, function(ok) if ok then H.same(got, want, 'job ' .. k) end end)
      H.same(job(), want)
    end
  end)
end)

describe('a request too large', function()
  it('is a clear error, and the program goes on', function()
    local before = H.live()
    H.fails(function() amp.zeros(2 ^ 44) end, 'memory')
    H.fails(function() amp.rand(2 ^ 20, 2 ^ 22) end, 'memory')
    H.fails(function() amp.ones(2 ^ 21, 1):matmul(amp.ones(1, 2 ^ 21)) end, 'memory')
    assert.is_true(H.live() <= before + 64 * 2 ^ 20)
    assert.equal(3, amp.ones(3):sum():item())
  end)
end)

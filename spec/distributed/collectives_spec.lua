-- Collectives of amp.distributed: values against sums made by hand, every dtype and form of tensor, groups, works, calls
-- that differ between ranks.
local R = require 'spec.distributed.ranks'
local several = R.it(it)

describe('collectives', function()
  several('reduce every dtype, with every operation', function(mpi)
    R.passes(3, [[
      local r, n = init()
      local function all(dtype, values, op)
        return dist.all_reduce(amp.tensor(values[r], { dtype = dtype }), { op = op }):double():tolist()
      end
      local v = { { 1, -2, 3 }, { 4, 5, -6 }, { -7, 8, 9 } }
      local expect = { sum = { -2, 11, 6 }, max = { 4, 8, 9 }, min = { -7, -2, -6 }, product = { -28, -80, -162 } }
      for _, dtype in ipairs { 'float64', 'float32', 'float16', 'bfloat16', 'int64', 'int32', 'int16', 'int8' } do
        for _, op in ipairs { 'sum', 'max', 'min', 'product' } do -- not pairs: its order differs between processes
          local want = expect[op]
          if not (dtype == 'int8' and op == 'product') then
            local got = all(dtype, v, op)
            for i = 1, 3 do
              if got[i] ~= (dtype == 'bfloat16' and op == 'product' and amp.tensor(want, { dtype = dtype }):double():tolist()[i] or want[i]) then
                error(dtype .. ' ' .. op .. ': ' .. got[i])
              end
            end
          end
        end
      end
      for _, dtype in ipairs { 'float64', 'float32', 'float16' } do same(amp.tensor(all(dtype, { { 3 }, { 6 }, { -3 } }, 'mean')), amp.tensor { 2 }) end
      local b = { { true, false, true, false }, { true, false, false, false }, { true, true, true, false } }
      local function bools(op)
        local list = dist.all_reduce(amp.tensor(b[r], { dtype = 'bool' }), { op = op }):int():tolist()
        return table.concat(list)
      end
      assert(bools 'sum' == '1110' and bools 'max' == '1110' and bools 'min' == '1000' and bools 'product' == '1000')
      local u = dist.all_reduce(amp.tensor({ 200, 1 }, { dtype = 'uint8' }), { op = 'max' })
      assert(u:tolist()[1] == 200)
      fails('a mean is of floats', dist.all_reduce, amp.ones(2, { dtype = 'int32' }), { op = 'mean' })
      -- 16-bit sums are made in float32 and rounded once: 2048 + 1 + 1 is 2050, step by step it would be 2048
      local h = dist.all_reduce(amp.tensor({ r == 1 and 2048 or 1 }, { dtype = 'float16' }))
      assert(h:item() == 2050)
      local nan = dist.all_reduce(amp.tensor { r == 2 and 0 / 0 or 1 }, { op = 'max' }):item()
      assert(nan ~= nan)
      assert(dist.all_reduce(amp.tensor { r == 2 and math.huge or 1 }):item() == math.huge)
    ]], { mpi = mpi })
  end)
  several('take 0-d, empty, strided tensors and views in place, long ones in segments', function(mpi)
    R.passes(2, [[
      local r, n = init()
      local s = amp.full({}, r)
      assert(rawequal(dist.all_reduce(s), s) and s:item() == 3 and s:dim() == 0)
      for _, f in ipairs { 'all_reduce', 'broadcast', 'reduce' } do assert(dist[f](amp.empty { 0, 3 }):numel() == 0) end
      assert(#dist.all_gather(amp.empty { 0 }) == 2 and dist.all_gather(amp.empty { 0 })[2]:numel() == 0)
      local m = amp.zeros(3, 4)
      dist.all_reduce(m:t():add_(r))
      same(m, amp.full({ 3, 4 }, 3))
      local w = amp.zeros(4, 4)
      dist.broadcast(w[{ {}, { 2, 3 } }]:fill_(r), { from = 2 })
      same(w, amp.tensor { { 0, 2, 2, 0 }, { 0, 2, 2, 0 }, { 0, 2, 2, 0 }, { 0, 2, 2, 0 } })
      local c = amp.full({ 2, 3, 4, 4 }, r):to { memory_format = 'channels_last' }
      same(dist.all_reduce(c), amp.full({ 2, 3, 4, 4 }, 3))
      local long = amp.arange(0, 5000003, { dtype = 'float32' }) % 1000 * r
      same(dist.all_reduce(long), amp.arange(0, 5000003, { dtype = 'float32' }) % 1000 * 3)
      local half = (amp.arange(0, 100001) % 100 * r):half()
      same(dist.all_reduce(half), (amp.arange(0, 100001) % 100 * 3):half())
      local p = amp.ones(3, { requires_grad = true })
      local y = p * p
      dist.all_reduce(p)
      fails('changed in place', function() y:sum():backward() end)
    ]], { mpi = mpi })
  end)
  several('gather, scatter and exchange', function(mpi)
    R.passes(4, [[
      local r, n = init()
      local g = dist.all_gather(amp.tensor { { r, 10 * r } })
      assert(#g == 4)
      for i = 1, 4 do same(g[i], amp.tensor { { i, 10 * i } }) end
      local t = amp.full({ 2 }, r)
      local list = dist.gather(t, { to = 3 })
      assert((list ~= nil) == (r == 3))
      if list then for i = 1, 4 do same(list[i], amp.full({ 2 }, i)) end end
      local parts = {}
      for i = 1, 4 do parts[i] = amp.full({ 2, 2 }, 100 * i) end
      local into = amp.zeros(2, 2)
      assert(rawequal(dist.scatter(into, r == 2 and parts or nil, { from = 2 }), into))
      same(into, amp.full({ 2, 2 }, 100 * r))
      local rs = dist.reduce_scatter(amp.arange(0, 8):reshape(8, 1) * r)
      same(rs, (amp.arange(2 * (r - 1), 2 * r) * 10):reshape(2, 1))
      same(dist.reduce_scatter(amp.full({ 4 }, r), { op = 'max' }), amp.tensor { 4 })
      local sent = {}
      for i = 1, 4 do sent[i] = amp.tensor { 10 * r + i } end
      for i, x in ipairs(dist.all_to_all(sent)) do assert(x:item() == 10 * i + r) end
      local q = amp.full({ 3 }, r)
      dist.reduce(q, { to = 2 })
      same(q, amp.full({ 3 }, r == 2 and 10 or r))
      fails('has no 4 equal parts', dist.reduce_scatter, amp.ones(6))
      fails('a list of 4 tensors', dist.all_to_all, { amp.ones(1) })
      -- a ring: everybody sends first
      local w = dist.send(amp.tensor { r }, { to = r % 4 + 1, async = true })
      local from = amp.zeros(1)
      dist.recv(from, { from = (r - 2) % 4 + 1 })
      w:wait()
      assert(from:item() == (r - 2) % 4 + 1)
    ]], { mpi = mpi })
  end)
  several('go on in the background, in groups, with plain values', function(mpi)
    R.passes(3, [[
      local r, n = init()
      local a, b = amp.full({ 1000 }, r), amp.full({ 7 }, r)
      local w1, w2 = dist.all_reduce(a, { async = true }), dist.all_gather(b, { async = true })
      local got = w2:wait()
      assert(#got == 3 and got[3][1]:item() == 3)
      assert(rawequal(w1:wait(), a) and rawequal(w1:wait(), a) and a[1]:item() == 6)
      for _ = 1, 20 do dist.all_reduce(amp.ones(100), { async = true }) end -- nobody waits for these
      collectgarbage()
      local g = dist.new_group { 3, 1 }
      if r ~= 2 then
        local t = dist.all_reduce(amp.full({ 2 }, r), { group = g })
        same(t, amp.full({ 2 }, 4))
        assert(dist.all_gather(amp.tensor { r }, { group = g })[1]:item() == 3) -- the group's order
        dist.broadcast(t, { group = g, from = 3 })
        fails('rank 2, which is not in the group', dist.broadcast, t, { group = g, from = 2 })
      else
        fails('rank 2 is not in this group', dist.all_reduce, amp.ones(1), { group = g })
      end
      local v = dist.broadcast_object(r == 2 and { 1, 'two', { x = 0.5, [true] = 'y' }, nested = { {}, { 1 } } } or nil, { from = 2 })
      assert(v[1] == 1 and v[2] == 'two' and v[3].x == 0.5 and v[3][true] == 'y' and v.nested[2][1] == 1)
      if r == 1 then
        fails('is a function', dist.broadcast_object, { f = print })
        local loop = {}
        loop.loop = loop
        fails('holds itself', dist.broadcast_object, loop)
      end
      -- what all ranks give and none may send is refused by all of them; the next call is for all
      fails('is a function', dist.broadcast_object, { f = print })
      same(dist.all_reduce(amp.ones(1)), amp.full({ 1 }, dist.world_size()))
      fails('new_group of ranks 1, 2; .*new_group of ranks 1, 3', dist.new_group, { 1, r == 1 and 2 or 3 })
      assert(dist.broadcast_object(nil) == nil)
      dist.barrier()
      dist.init()
      dist.finalize()
      dist.finalize()
      assert(not dist.is_initialized())
      fails('init%(%) first', dist.all_reduce, amp.ones(1))
    ]], { mpi = mpi })
  end)
  several('differ between ranks: an error on each that names them, and the next call works', function(mpi)
    R.passes(3, [[
      local r = init { timeout = 5 }
      local function works() assert(dist.all_reduce(amp.ones(1)):item() == 3) end
      fails('ranks 1 and 3: all_reduce%(sum%) of float32 2; rank 2: all_reduce%(sum%) of float32 3', dist.all_reduce, amp.ones(r == 2 and 3 or 2))
      works()
      fails('ranks 1 and 2: .*float32.*rank 3: .*float16', dist.all_reduce, amp.ones(2, { dtype = r == 3 and 'float16' or 'float32' }))
      works()
      fails('rank 1: all_reduce%(sum%).*ranks 2 and 3: all_reduce%(max%)', dist.all_reduce, amp.ones(2), { op = r == 1 and 'sum' or 'max' })
      works()
      fails('root 1.*root 2', dist.broadcast, amp.ones(2), { from = r == 2 and 2 or 1 })
      works()
      fails('rank 1: barrier', r == 1 and dist.barrier or dist.all_reduce, r ~= 1 and amp.ones(2) or nil)
      works()
      local t = amp.ones(4)
      if r == 1 then fails('rank 1: send of float32 4; rank 2: recv of float32 2x2', dist.send, t, { to = 2 })
      elseif r == 2 then fails('rank 1: send of float32 4; rank 2: recv of float32 2x2', dist.recv, t:reshape(2, 2), { from = 1 }) end
      works()
      local list = r == 3 and { 1, 2 } or { 1, 3 }
      fails('differ', dist.new_group, list)
      works()
      local w = dist.all_reduce(amp.ones(r), { async = true })
      fails('the calls of the ranks differ', w.wait, w)
      works()
    ]], { mpi = mpi })
  end)
  for _ = 1, 2 do
    several('that can never meet are ended on all ranks, with their names, and the next ones work', function(mpi)
      local _, err = R.passes(3, [[
        local r = init { timeout = 30 }
        local t = amp.ones(2)
        local function works()
          assert(dist.all_reduce(amp.ones(1)):item() == 3)
          if r == 1 then dist.send(amp.full({ 3 }, 5), { to = 2 })
          elseif r == 2 then assert(dist.recv(amp.zeros(3), { from = 1 }):sum():item() == 15) end
          if r == 3 then dist.send(amp.ones(1):long(), { to = 1 })
          elseif r == 1 then assert(dist.recv(amp.zeros(1):long(), { from = 3 }):item() == 1) end
        end
        for _ = 1, 2 do
          fails('differ: rank 1: send of float32 2 to rank 2; ranks 2 and 3: all_reduce%(sum%) of float32 2',
            r == 1 and dist.send or dist.all_reduce, t, r == 1 and { to = 2 } or nil)
          works()
        end
        fails('rank 1: barrier; rank 2: all_gather of float32 2; rank 3: recv of float32 2 from rank 2',
          r == 1 and dist.barrier or r == 2 and dist.all_gather or dist.recv, r > 1 and t or nil, r == 3 and { from = 2 } or nil)
        works()
        fails('rank 1: send of float32 2 to rank 2; rank 2: send of float32 2 to rank 3; rank 3: send of float32 2 to rank 1', dist.send, t, { to = r % 3 + 1 })
        works()
        fails('rank 1: recv of float32 2 from rank 2', dist.recv, t, { from = r % 3 + 1 })
        works()
        local g = dist.new_group { 2, 3 }
        if r == 2 then fails('rank 2: all_reduce', dist.all_reduce, t, { group = g }) else fails('rank 2: all_reduce', dist.barrier) end
        works()
        if r > 1 then assert(dist.all_reduce(amp.ones(1), { group = g }):item() == 2) end
        -- what waits for a rank that computes for long does not count
        local w = r == 1 and dist.send(t, { to = 2, async = true })
        if r == 3 then require('ffi').cdef 'int usleep(unsigned us);' require('ffi').C.usleep(1500000) end
        dist.barrier()
        if r == 2 then dist.recv(t, { from = 1 }) end
        if w then w:wait() end
        works()
      ]], { mpi = mpi })
      assert.equal('', err)
    end)
  end
  several('that a rank does not come to end in time, on the others and for it', function(mpi)
    R.passes(3, [[
      local ffi = require 'ffi'
      ffi.cdef 'int usleep(unsigned us);'
      local r = init { timeout = 1 }
      if r == 3 then ffi.C.usleep(1600000) end
      fails(r == 3 and 'rank 3 came too late' or 'rank 3 did not come to all_reduce%(sum%) of float32 2 within 1 seconds', dist.all_reduce, amp.ones(2))
      if r ~= 3 then ffi.C.usleep(100000) end
      assert(dist.all_reduce(amp.ones(1)):item() == 3)
    ]], { mpi = mpi })
  end)
end)

describe('a world of one', function()
  it('needs no engine', function()
    local amp = require 'amp'
    local dist = amp.distributed
    assert.error_matches(function() dist.all_reduce(amp.ones(1)) end, 'call amp.distributed.init%(%) first')
    assert.error_matches(function() dist.init { backend = 'gloo' } end, "'auto', 'nccl' or 'mpi'")
    assert.error_matches(function() dist.init { timeout = 0 } end, 'more than 0')
    assert.error_matches(function() dist.init { time = 1 } end, "unknown option 'time'")
    dist.init()
    assert.equal(1, dist.rank())
    assert.equal(1, dist.world_size())
    assert.equal(1, dist.local_rank())
    assert.is_true(dist.is_main())
    local t = amp.ones(3)
    assert.is_true(rawequal(dist.all_reduce(t), t))
    assert.equal(1, #dist.all_gather(t))
    assert.equal(3, dist.reduce_scatter(t):numel())
    assert.equal(1, dist.all_to_all({ t })[1][1]:item())
    assert.equal(5, dist.scatter(t, { amp.full({ 3 }, 5) })[2]:item())
    assert.is_true(rawequal(dist.all_reduce(t, { async = true }):wait(), t))
    assert.same({ 1 }, dist.broadcast_object { 1 })
    assert.error_matches(function() dist.broadcast(t, { from = 2 }) end, 'from is a rank from 1 to 1, got 2')
    assert.error_matches(function() dist.all_reduce(t, { op = 'avg' }) end, "'sum', 'mean'")
    assert.error_matches(function() dist.all_reduce(3) end, 'must be a tensor')
    dist.finalize()
    dist.finalize()
  end)
end)

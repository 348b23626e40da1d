--- data: a loader with worker processes gives what one without gives, raises what a dataset raises, and leaves no process.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local DataLoader = amp.data.DataLoader

local function set(n, get)
  return { size = function() return n end, get = get or function(_, i)
    return amp.full({ 2, 3 }, i), i * 10, i % 2 == 0, { name = 'n' .. i, t = amp.tensor({ i }, { dtype = 'int64' }) }
  end }
end

-- What an epoch gives: a line a batch.
local function epoch(loader)
  local out = {}
  for x, y, even, more in loader:iter() do
    local names = {}
    for i, m in ipairs(more) do names[i] = m.name .. m.t[1]:item() end
    out[#out + 1] = table.concat({ tostring(x:size()), x:sum():item(), table.concat(y:tolist(), ','), even.dtype, table.concat(names, ',') }, ' ')
  end
  return out
end

local function children()
  local out = H.sh "parent=$PPID; unset LD_PRELOAD; ps -o pid= --ppid $parent | wc -l" -- ps hangs beside a preloaded sanitizer
  return tonumber(out:match '%d+')
end

describe('a loader with workers', function()
  it('gives the same batches in the same order', function()
    local want
    for workers = 0, 3 do
      amp.manual_seed(4)
      local loader = DataLoader(set(23), { batch_size = 4, shuffle = true, workers = workers })
      local got = { epoch(loader), epoch(loader) }
      want = want or got
      assert.same(want, got)
    end
  end)
  it('shares the memory of large tensors, which keep their values as long as they are kept', function()
    local shared = require 'amp.io.shared'
    local slot = shared.new()
    if not slot then return pending 'this system shares no memory' end
    local class = getmetatable(slot)
    slot:close()
    local made, made_of = 0, class.tensor
    class.tensor = function(...)
      made = made + 1
      return made_of(...)
    end
    local function get(_, i) -- of other sizes from batch to batch, two large ones, a small one
      return amp.arange(0, 200000 + 1000 * i):to 'int32' + i, amp.full({ 300, 300 }, i):double(), amp.tensor(i)
    end
    local n, kept = 16, {}
    for a, b, c in DataLoader(set(n, get), { batch_size = 1, workers = 2 }):iter() do kept[#kept + 1] = { a, b, c } end
    class.tensor = made_of
    assert.is_true(made >= 8, made)
    for i, v in ipairs(kept) do
      local a, b, c = get(nil, i)
      assert.is_true(v[1][1]:equal(a) and v[2][1]:equal(b) and v[3][1]:equal(c), i)
    end
    local seen = 0
    for a in DataLoader(set(40, get), { batch_size = 1, workers = 2 }):iter() do -- memory is used again
      seen = seen + 1
      assert.equal(seen, a[1][1]:item())
      a:fill_(-1) -- it is the program's to change
    end
    assert.equal(40, seen)
  end)
  it('draws random numbers by epoch and batch, however many workers there are', function()
    local function draws(workers)
      amp.manual_seed(4)
      local list = {}
      local loader = DataLoader(set(6, function() return amp.rand(1) end), { workers = workers, shuffle = true })
      for _ = 1, 2 do
        for x in loader:iter() do list[#list + 1] = x:item() end
      end
      return list
    end
    local one = draws(1)
    assert.same(one, draws(2))
    assert.same(one, draws(3))
    local seen = {}
    for _, v in ipairs(one) do
      assert.is_nil(seen[v])
      seen[v] = true
    end
  end)
  it('goes on where it stood', function()
    amp.manual_seed(4)
    local loader = DataLoader(set(12), { batch_size = 2, shuffle = true, workers = 2 })
    local next_batch, whole = loader:iter(), {}
    local state
    for b = 1, 6 do
      local _, y = next_batch()
      whole[b] = y:tolist()
      if b == 2 then state = loader:state_dict() end
    end
    local other = DataLoader(set(12), { batch_size = 2, shuffle = true, workers = 3 })
    other:load_state_dict(state)
    local b = 2
    for _, y in other:iter() do
      b = b + 1
      assert.same(whole[b], y:tolist())
    end
    assert.equal(6, b)
  end)
  it("raises a dataset's error at the batch, and may begin anew", function()
    local bad = true
    local loader = DataLoader(set(8, function(_, i)
      if i == 6 and bad then error('no image ' .. i) end
      return amp.full({ 1 }, i)
    end), { batch_size = 2, workers = 2 })
    local next_batch = loader:iter()
    assert.same({ { 1 }, { 2 } }, next_batch():tolist())
    assert.same({ { 3 }, { 4 } }, next_batch():tolist())
    H.fails_here(function() next_batch() end, 'batch 3', 'no image 6', 'worker 1')
    H.fails_here(function() next_batch() end, 'begin a new one')
    bad = false
    local n = 0
    for _ in loader:iter() do n = n + 1 end
    assert.equal(4, n)
  end)
  it('says so when a worker dies, and when a batch holds what cannot be handed over', function()
    local loader = DataLoader(set(4, function(_, i)
      if i == 3 then os.execute 'kill -9 $PPID' end
      return amp.ones(1)
    end), { workers = 2 })
    H.fails_here(function() for _ in loader:iter() do end end, 'worker 1', 'signal 9')
    local odd = DataLoader({ size = function() return 2 end, batch = function() return print end }, { workers = 1 })
    H.fails_here(function() for _ in odd:iter() do end end, 'a function', 'tensors')
  end)
  it('takes any dtype, shape and value', function()
    local sent = { amp.tensor({ 1.5, -2 }, { dtype = 'bfloat16' }), amp.zeros(0, 3), amp.tensor(7), amp.randn(2, 3, 4):transpose(1, 3),
      amp.tensor { true, false },
      'text\0\n', -0.25, false, { a = { 1, 2 }, [3] = 'x' } }
    local loader = DataLoader({ size = function() return 1 end, batch = function() return unpack(sent) end }, { workers = 1 })
    local got = { loader:iter()() }
    assert.equal(#sent, #got)
    for i = 1, 5 do H.same(got[i], sent[i]) end
    for i = 6, 9 do assert.same(sent[i], got[i]) end
  end)
  it('hands over large batches', function()
    local big = DataLoader(set(4, function(_, i) return amp.full({ 300000 }, i) end), { batch_size = 2, workers = 2 })
    local sums = {}
    for x in big:iter() do sums[#sums + 1] = x:double():sum():item() end
    assert.same({ 900000, 2100000 }, sums)
  end)
  it('leaves no process: at the end, after a break, when it is forgotten', function()
    collectgarbage() -- loaders of other cases
    collectgarbage()
    local before = children()
    local function one(stop)
      local loader = DataLoader(set(9), { workers = 3 })
      for _ in loader:iter() do if stop then break end end
      return loader
    end
    one(false)
    assert.equal(before, children())
    local loader = one(true)
    assert.equal(before + 3, children())
    epoch(loader)
    assert.equal(before, children())
    one(true)
    loader = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    assert.equal(before, children())
  end)
  it('ends with its parent', function()
    local out = H.child [[
      local set = {size = function() return 100 end, get = function() return amp.ones(1) end}
      local next_batch = amp.data.DataLoader(set, {workers = 2}):iter()
      next_batch()
      io.stdout:write('printed once ')
      local f = io.popen("env -u LD_PRELOAD ps -o pid= --ppid $PPID") -- the workers, and this ps's shell
      local list = {}
      for pid in f:lines() do list[#list + 1] = pid end
      f:close()
      print(table.concat(list, ' '))
      io.stdout:flush()
      os.execute 'kill -9 $PPID'
    ]]
    local _, times = out:gsub('printed once', '')
    assert.equal(1, times)
    local pids = out:match 'printed once ([%d ]+)'
    os.execute 'sleep 0.3'
    local alive = H.sh(('LD_PRELOAD= ps -o stat= -p %s'):format(pids:gsub('%s+', ','):gsub('^,', ''):gsub(',$', '')))
    assert.equal('', (alive:gsub('Z%S*', ''):gsub('%s', ''))) -- a process 1 that does not wait leaves them as zombies
  end)
end)

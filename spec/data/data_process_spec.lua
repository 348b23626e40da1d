--- data: workers that raise, die, hang or are left alone: the loader says so where the batch is asked for, nothing hangs and nothing is left.
local amp = require 'amp'
local process = require 'amp.data.process'
local H = require 'spec.lib.helper'
local DataLoader = amp.data.DataLoader

local function set(n, get) return { size = n, get = get or function(_, i) return i end } end
local function all(loader)
  local sum = 0
  for x in loader:iter() do sum = sum + x:double():sum():item() end
  return sum
end
-- At example 5 do something; else give the number.
local function at_five(f)
  return set(8, function(_, i)
    if i == 5 then f() end
    return i
  end)
end
-- (not by a pipe, whose own descriptors popen may not have closed yet while they are counted)
local function descriptors()
  local path = H.tmp 'descriptors'
  os.execute(('unset LD_PRELOAD; ls /proc/$PPID/fd | wc -l > %s'):format(path))
  return tonumber((H.read(path):match '%d+'))
end
local function children() return tonumber((H.sh 'parent=$PPID; unset LD_PRELOAD; ps -o pid= --ppid $parent | wc -l'):match '%d+') end

describe('neither side waits for the other', function()
  it('with batches of any size, and messages around every buffer\'s length', function()
    for _, n in ipairs { 1, 4095, 4096, 26624, 32767, 32768, 65536 } do
      local source = { size = 4 * n, batch = function(_, i) return i, amp.zeros(2 * i:numel()) end }
      local total = 4 * n
      assert.equal(total * (total + 1) / 2, all(DataLoader(source, { batch_size = n, workers = 2, shuffle = true, timeout = 60 })))
    end
    for n = 0, 70000, 2999 do
      local text = ('x'):rep(n)
      for x, y in DataLoader(set(1, function() return text, { text, n } end), { workers = 1, timeout = 60 }):iter() do
        assert.is_true(x[1] == text and y[1][1] == text and y[1][2] == n)
      end
    end
  end)
  it('however many batches are asked for ahead', function()
    assert.equal(2000 * 2001 / 2, all(DataLoader(set(2000), { workers = 1, prefetch = 1900, timeout = 60 })))
    local large = set(20, function(_, i) return amp.full({ 100000 }, i) end)
    assert.equal(210 * 100000, all(DataLoader(large, { workers = 2, prefetch = 20, timeout = 60 })))
  end)
end)

describe('a worker that', function()
  local function fails(f, ...)
    local on = true
    local loader = DataLoader(at_five(function() if on then f() end end), { batch_size = 2, workers = 2, timeout = 30 })
    H.fails_here(function() for _ in loader:iter() do end end, 'batch 3', 'worker 1', ...)
    on = false
    assert.equal(36, all(loader)) -- the next epoch works
  end
  it('raises: its error', function()
    fails(function() error 'no such sample' end, 'no such sample')
    fails(function() error { 1 } end, 'table')
    fails(function() error(setmetatable({}, { __tostring = function() error 'x' end })) end, 'an error that is table')
    fails(function() error() end, 'nil')
    fails(function() amp.ones(2):reshape(3) end, 'reshape')
  end)
  it('exits: its status', function()
    fails(function() os.exit(7) end, 'status 7')
    fails(function() os.exit() end, 'status 0')
    fails(function() os.exit(false) end, 'status 1')
  end)
  it('is killed: the signal, also when a program it started holds its socket', function()
    fails(function() os.execute 'kill -9 $PPID' end, 'signal 9', 'out of memory')
    fails(function() os.execute 'kill -11 $PPID' end, 'signal 11')
    fails(function() os.execute 'sleep 2 & kill -15 $PPID' end, 'signal 15')
  end)
  it('takes too long: the batch, the worker and the limit', function()
    local loader = DataLoader(at_five(function() while true do end end), { batch_size = 2, workers = 2, timeout = 2 })
    H.fails_here(function() for _ in loader:iter() do end end, 'batch 3', 'worker 1', 'timeout = 2')
    H.fails_here(function() DataLoader(set(2), { timeout = 1 }) end, 'timeout', 'workers')
    H.fails_here(function() DataLoader(set(2), { workers = 1, timeout = -1 }) end, 'timeout', '-1')
    H.fails_here(function() DataLoader(set(2), { workers = 1, timeout = 'x' }) end, 'timeout', 'x')
  end)
  it('computes after the program used several threads', function()
    local out = H.child([[
      amp.set_num_threads(2)
      local function work() local x = amp.randn(300, 300) return x:matmul(x):sum(), amp.conv2d(amp.randn(2, 8, 32, 32), amp.randn(8, 8, 3, 3)):sum() end
      work()
      local n = 0
      for _ in amp.data.DataLoader({size = 6, get = work}, {workers = 2, timeout = 60}):iter() do n = n + 1 end
      print(n, pcall(function()
        amp.data.DataLoader({size = 1, get = function() amp.set_num_threads(4) return 1 end}, {workers = 1}):iter()()
      end))
    ]], nil, 'OMP_NUM_THREADS=2')
    assert.is_true(out:find '^6\tfalse' ~= nil and out:find('one thread', 1, true) ~= nil, out)
  end)
  it('prints: what it wrote comes out', function()
    local out = H.child [[
      for _ in amp.data.DataLoader({size = 2, get = function(_, i) io.write('example ', i, '\n') return i end}, {workers = 1}):iter() do end
    ]]
    assert.equal('example 1\nexample 2\n', out)
  end)
  it('asks for a GPU: an error that says how batches get there', function()
    local out, status = H.child(([[
      require 'spec.device.mock.device'
      local g = amp.ones(4):cuda()
      local function try(get)
        local ok, e = pcall(function() for _ in amp.data.DataLoader({size = 1, get = get}, {workers = 1, timeout = 30}):iter() do end end)
        assert(not ok and tostring(e):find("{device = 'cuda'}", 1, true), tostring(e))
      end
      try(function() return amp.ones(2, {device = 'cuda'}) end)
      try(function() return amp.ones(2):cuda() end)
      try(function() return g * 2 end)
      try(function() return g[1]:item() end)
      try(function() return g end)
      local function quiet() g = nil collectgarbage() collectgarbage() amp.cuda.empty_cache() return amp.cuda.is_available() end
      local x = amp.data.DataLoader({size = 1, get = quiet}, {workers = 1, timeout = 30}):iter()()
      assert(x:item() == false and g:sum():item() == 4)
      print 'ok'
    ]]), nil, 'AMP_MOCK=' .. H.quote(H.absolute(H.build) .. '/mock'))
    assert.equal('ok\n', out)
    assert.equal(0, status)
  end)
end)

describe('nothing is left', function()
  it('over many epochs, ended or left early, kept or forgotten', function()
    collectgarbage()
    collectgarbage()
    local fds, processes = descriptors(), children()
    local loader = DataLoader(set(4), { workers = 2 })
    for e = 1, 150 do
      for _ in loader:iter() do if e % 2 == 0 then break end end
    end
    all(loader)
    for _ = 1, 40 do
      DataLoader(set(4), { workers = 2 }):iter()()
    end
    collectgarbage()
    collectgarbage()
    assert.equal(fds, descriptors())
    assert.equal(processes, children())
  end)
  it('of loaders inside loaders, beside each other and in coroutines', function()
    local inner = function() return all(DataLoader(set(4), { workers = 2, timeout = 60 })) end
    assert.equal(4 * 10, all(DataLoader(set(4, inner), { workers = 2, timeout = 60 })))
    local a, b, n = DataLoader(set(3), { workers = 2 }), DataLoader(set(3), { workers = 1 }), 0
    for _ in a:iter() do n = n + all(b) end
    assert.equal(18, n)
    local function generator()
      return coroutine.wrap(function() for x in DataLoader(set(2), { workers = 1 }):iter() do coroutine.yield(x:item()) end end)
    end
    local c, d = generator(), generator()
    assert.same({ 1, 1, 2, 2 }, { c(), d(), c(), d() })
  end)
  it('when the program is killed while workers compute', function()
    local script = H.tmp 'orphans.lua'
    H.write(script, ([[
      package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
      package.cpath = '%s/?.so;' .. package.cpath
      local amp = require 'amp'
      require('amp.data.process').portable = os.getenv 'PORTABLE' == '1'
      local path = os.getenv 'MARK'
      local set = {size = 9, get = function()
        local f = io.open(path, 'a')
        f:write 'x'
        f:close()
        while true do end
      end}
      for _ in amp.data.DataLoader(set, {workers = 2}):iter() do end
    ]]):format(H.absolute(H.root), H.absolute(H.root), H.absolute(H.build)))
    for _, portable in ipairs { '0', '1' } do
      for _, signal in ipairs { 'TERM', 'KILL', 'INT' } do
        local mark = H.tmp('mark' .. portable .. signal)
        os.remove(mark)
        local out = H.sh(([[
          PORTABLE=%s MARK=%s setsid luajit %s 2>/dev/null &
          n=0
          while [ "$(cat %s 2>/dev/null)" != xx ] && [ $n -lt 200 ]; do sleep 0.05; n=$((n + 1)); done
          kill -%s $!
          wait $! 2>/dev/null
          n=0
          while [ "$(LD_PRELOAD= ps -o stat= -s $! | grep -vc Z)" != 0 ] && [ $n -lt 200 ]; do sleep 0.05; n=$((n + 1)); done
          LD_PRELOAD= ps -o stat= -s $! | grep -vc Z
        ]]):format(portable, mark, script, mark, signal))
        assert.equal('xx', H.read(mark))
        assert.equal('0', out:match '^%s*(%d+)', portable .. ' ' .. signal .. ': ' .. out)
      end
    end
  end)
  it('and the pipe does what the kernel does', function()
    local fds = descriptors()
    process.portable = true
    local sum = all(DataLoader(set(6), { workers = 2 }))
    process.portable = false
    assert.equal(21, sum)
    assert.equal(fds, descriptors())
  end)
end)

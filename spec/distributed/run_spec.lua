-- amp run: lines, arguments, exit status, and what becomes of all ranks when one throws, exits, is killed or hangs.
local H = require 'spec.lib.helper'
local R = require 'spec.distributed.ranks'
local several = R.it(it)

local function first(err) return err:match '[^\n]*' end
local function left(name) return tonumber(H.sh(("pgrep -fc '[p]rogram.lua %s' || true"):format(name)):match '%d+') end

-- A program that fails in one rank: the first line on standard error, status and time are as they should be, nothing is left.
local function failing(mpi, text, pattern, options)
  local mark = 'mark' .. math.random(2 ^ 30)
  local out, err, status, seconds = R.run(3, text, { mpi = mpi, arguments = mark, options = options })
  if not first(err):find(pattern) then error(('the first line is not %s:\n%s\n%s'):format(pattern, err, out), 2) end
  assert.is_true(status ~= 0, 'status 0')
  assert.is_true(seconds <= 9, 'it took ' .. seconds .. ' seconds')
  H.sh 'sleep 0.2'
  assert.equal(0, left(mark))
  return out, err
end

describe('amp run', function()
  several('keeps lines whole, with their rank, and the folder and arguments', function(mpi)
    local out, err, status = R.run(4, [[
      local r = init()
      for i = 1, 50 do io.write('<', r, ' ', ('x'):rep(i == 25 and 9000 or 50), ' ', i, '>\n') end
      io.stderr:write('complaint ', r, '\n')
      if r == 1 then print(arg[1], arg[2], #arg, os.getenv 'PWD') end
      io.write 'no newline at the end'
    ]], { mpi = mpi, arguments = "one 'two words'" })
    assert.equal(0, status)
    local count = 0
    for line in out:gmatch '[^\n]+' do
      local rank, r, x = line:match '^%[rank (%d)%] <(%d) (x+) %d+>$'
      if rank then
        assert.equal(rank, r)
        assert.is_true(#x == 50 or #x == 9000)
        count = count + 1
      else
        assert.is_truthy(line == '[rank 1] one\ttwo words\t2\t/' or line:match '^%[rank %d%] no newline at the end$', line)
      end
    end
    assert.equal(200, count)
    for r = 1, 4 do assert.is_truthy(err:find(('[rank %d] complaint %d\n'):format(r, r), 1, true)) end
  end)
  several('a rank that throws', function(mpi)
    failing(mpi, "if init() == 2 then error 'boom' end dist.barrier()", '^%[rank 2%] .*boom')
  end)
  several('a rank that throws before it has joined', function(mpi)
    failing(mpi,
      "if (os.getenv 'OMPI_COMM_WORLD_RANK' or os.getenv 'PMI_RANK') == '1' then error 'boom' end init { timeout = 3 } dist.barrier()", '^%[rank 2%] .*boom')
  end)
  several('a rank that exits with a status', function(mpi)
    failing(mpi, 'if init() == 3 then os.exit(7) end dist.barrier()', '^rank 3 ended with status 7')
  end)
  several('a rank that ends early, as if all were well', function(mpi)
    failing(mpi, 'if init { timeout = 5 } == 2 then os.exit(0) end dist.barrier()', 'rank 2 has ended .finalize. and does not come to barrier')
  end)
  for i = 1, 2 do
    several('a rank that is killed', function(mpi)
      local _, err = failing(mpi, [[
        local ffi = require 'ffi'
        ffi.cdef 'int getpid(void); int kill(int pid, int sig);'
        if init() == 2 then ffi.C.kill(ffi.C.getpid(), 9) end
        dist.barrier()
      ]], '^rank 2 was ended by signal 9 %(SIGKILL%)', i == 1 and '' or '--restarts 1')
      assert.equal(i == 2, err:find 'started again' ~= nil)
    end)
    several('a rank that hangs', function(mpi)
      failing(mpi, [[
        local ffi = require 'ffi'
        ffi.cdef 'int sleep(unsigned s);'
        if init { timeout = 1 } == 2 then ffi.C.sleep(60) end
        dist.barrier()
      ]], '^%[rank %d%] .*rank 2 did not come to barrier within 1 seconds')
    end)
  end
  several('starts again from where it was', function(mpi)
    local path = H.tmp 'count'
    os.remove(path)
    local out, err, status = R.run(2, ([[
      local r = init()
      local path = '%s'
      local done = (io.open(path) and amp.load(path).done or 0)
      dist.barrier()
      for step = done + 1, 4 do
        if dist.is_main() then amp.save(path, { done = step }) end
        dist.barrier()
        if step == 2 and r == 2 and os.getenv 'AMP_RESTART' == '0' then error 'lost' end
      end
      print('from', done)
    ]]):format(path), { mpi = mpi, options = '--restarts 2' })
    assert.equal(0, status)
    assert.is_truthy(first(err):find 'lost')
    assert.is_truthy(err:find('started again (1 of 2)', 1, true))
    local a, b = out:match '%[rank 1%] from\t(%d)', out:match '%[rank 2%] from\t(%d)'
    assert.is_truthy(a == b and (a == '2' or a == '3'), out .. err) -- rank 1 may have gone one further
  end)
  several('passes signals on', function(mpi)
    local root, build = H.absolute(H.root), H.absolute(H.build)
    local path, err = H.tmp 'signal.lua', H.tmp 'stderr'
    H.write(path, "local amp = require 'amp' amp.distributed.init() print 'up' io.flush() require('ffi').cdef 'int sleep(unsigned s);' "
      .. "for _ = 1, 60 do require('ffi').C.sleep(1) end")
    local out = H.sh(([[cd /; export AMP_LIBRARY='%s/amp/libamp.so'
      (exec luajit '%s/lua/bin/amp' run -n 2 --mpi %s '%s' 2>'%s') &
      pid=$!; sleep 1.5; kill -TERM $pid; wait $pid; echo status $?
      sleep 0.3; ps -eo comm,args | grep '^luajit' | grep -c 'signal[.]lua' || true]])
      :format(build, root, mpi, path, err))
    assert.is_truthy(out:find 'status 143', out)
    assert.is_truthy(out:find '\n0\n$', out)
  end)
  it('says in a few lines what is wrong with its use', function()
    for arguments, text in pairs {
      [''] = 'how many ranks', ['-n 0 x.lua'] = '-n takes the number of ranks', ['-n two x.lua'] = "got 'two'",
      ['-n 2'] = 'which script',
      ['-n 2 missing.lua'] = 'missing.lua is not there',
      ['-n 2 --host a x.lua'] = "did you mean '--hosts'", ['-n 2 --restarts x y.lua'] = '--restarts takes a number',
    } do
      local out, status = H.sh(("'%s/lua/bin/amp' run %s 2>&1"):format(H.absolute(H.root), arguments))
      assert.equal(2, status)
      assert.is_truthy(out:find(text, 1, true), out)
      assert.is_falsy(out:find 'traceback')
    end
  end)
  it('spreads ranks over machines, and sees that one is not reached any more', function()
    local out = H.sh(("sh '%s/spec/distributed/network.sh' '%s' 2>&1"):format(H.absolute(H.root), H.absolute(H.build)))
    if out:find 'SKIPPED network' then return pending(out) end
    assert.is_truthy(out:find ' 0 failed\n$', out)
  end)
end)

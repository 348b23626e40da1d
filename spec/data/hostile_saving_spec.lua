--- What saving leaves alone, logs on a disk that fills, and classes of tds in .t7 files.
local ffi = require 'ffi'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local file = require 'amp.io.file'
local le = file.le
local st = amp.io.safetensors

local hostile = require 'spec.lib.folder' 'hostile'
local dir, at, write, shell, listed = hostile.dir, hostile.at, hostile.write, hostile.shell, hostile.listed
local function int(v) return le(v % 2 ^ 32, 4) end

describe('saving', function()
  local writers = {
    ['s.amp'] = function(p) amp.save(p, { 1 }) end, ['s.safetensors'] = function(p) st.save(p, { a = amp.ones(1) }) end,
    ['s.npy'] = function(p) amp.io.save_npy(p, amp.ones(1)) end, ['s.npz'] = function(p) amp.io.save_npz(p, { a = amp.ones(1) }) end,
    ['s.png'] = function(p) amp.plot.image(amp.zeros(4, 4)):save(p) end,
  }
  it('leaves pipes, folders, devices and sockets as they are', function()
    for name, save in pairs(writers) do
      os.execute(("rm -rf '%s'; mkfifo '%s'"):format(at(name), at(name)))
      H.fails(function() save(at(name)) end, name, 'pipe')
      assert.equal('fifo', shell(("stat -c %%F '%s'"):format(at(name))))
      os.execute(("rm -rf '%s'; mkdir '%s'"):format(at(name), at(name)))
      H.fails(function() save(at(name)) end, name, 'folder')
      os.execute(("rm -rf '%s'"):format(at(name)))
      os.execute(("ln -s /dev/null '%s'"):format(at(name)))
      H.fails(function() save(at(name)) end, name, 'device')
      assert.equal('character special file', shell(("stat -L -c %%F '%s'"):format(at(name))))
      os.remove(at(name))
      save(at(name))
      os.remove(at(name))
    end
    assert.equal(0, listed 'tmp$')
  end)
  it('goes through links, and makes the file that a link to nothing names', function()
    os.execute(("mkdir -p '%s/real'; rm -f '%s/real/f.amp' '%s/l.amp' '%s/ll.amp'; ln -s real/f.amp '%s/l.amp'; ln -s l.amp '%s/ll.amp'")
      :format(dir, dir, dir, dir, dir, dir))
    amp.save(at 'll.amp', 5)
    assert.equal(5, amp.load(at 'real/f.amp'))
    assert.equal('symbolic link', shell(("stat -c %%F '%s'"):format(at 'll.amp')))
    amp.save(at 'l.amp', 6)
    assert.equal(6, amp.load(at 'll.amp'))
    os.execute(("rm -f '%s/x.amp' '%s/y.amp'; ln -s y.amp '%s/x.amp'; ln -s x.amp '%s/y.amp'; ln -sf nowhere/f '%s/n.amp'"):format(dir, dir, dir, dir, dir))
    H.fails_here(function() amp.save(at 'x.amp', 1) end, 'x.amp', 'link')
    H.fails_here(function() amp.save(at 'n.amp', 1) end, 'n.amp', 'No such file')
    assert.equal('symbolic link', shell(("stat -c %%F '%s'"):format(at 'n.amp')))
  end)
  it('keeps the permissions of a file, and gives a new one those of the process', function()
    amp.save(at 'p.amp', 1)
    assert.equal(shell 'umask | sed s/^0*//', ('%o'):format(438 - tonumber(shell(("stat -c %%a '%s'"):format(at 'p.amp')), 8)))
    os.execute(("chmod 640 '%s'"):format(at 'p.amp'))
    amp.save(at 'p.amp', 2)
    assert.equal('640', shell(("stat -c %%a '%s'"):format(at 'p.amp')))
  end)
  it('sweeps what killed processes left of that name, and nothing else', function()
    pcall(ffi.cdef, 'int fork(void); int kill(int, int); int waitpid(int, int *, int); int usleep(unsigned); int getpid(void);')
    local x = amp.randn(600, 600)
    local me = ffi.C.getpid()
    local dead = 2 ^ 22 + 12345 -- above any process's number
    write('k.amp.' .. dead .. '-7f3a.tmp', 'old')           -- of a process that is gone
    write('k.amp.' .. dead .. '-7f3a.lock.tmp', 'old')
    write('k.amp.' .. me .. '-1.lock.tmp', 'old')           -- this number, but nobody holds it
    write('k.amp.' .. me .. '-2.tmp', 'kept')               -- of this process: may be another state's
    write('k.amp.1-7f3a.tmp', 'kept')                       -- of a process that is there
    write('kk.amp.' .. dead .. '-7f3a.tmp', 'kept')         -- of another name
    write('k.amp.' .. dead .. '-7f3a.tmp.bak', 'kept')
    amp.save(at 'k.amp', { x = x })
    assert.equal(0, listed '^k.amp.*7f3a.lock.tmp$')
    assert.equal(2, listed '^k.amp.*tmp$')
    assert.equal(1, listed '^kk.amp.*tmp$')
    assert.equal(1, listed 'bak$')
    for k = 1, 6 do
      local pid = ffi.C.fork()
      if pid == 0 then while true do pcall(amp.save, at 'k.amp', { x = x }) end end
      ffi.C.usleep(5000 + k * 3000)
      ffi.C.kill(pid, 9)
      ffi.C.waitpid(pid, nil, 0)
    end
    amp.load(at 'k.amp')
    amp.save(at 'k.amp', { x = x })
    assert.equal(2, listed '^k.amp.*tmp$')
  end)
  it('takes names as long as the system does', function()
    local name = ('n'):rep(255)
    amp.save(at(name), 3)
    assert.equal(3, amp.load(at(name)))
    assert.equal(0, listed 'nn.*tmp$')
    os.remove(at(name))
  end)
end)

describe('a log on a disk that fills', function()
  -- a limit of the file's size stands for a full disk: it cuts a write as one does
  it('holds whole records, and goes on when there is room', function()
    local script = [[
      local ffi = require 'ffi'
      ffi.cdef 'int setrlimit(int, const uint64_t *); void *signal(int, void *);'
      ffi.C.signal(25, ffi.cast('void *', 1)) -- SIGXFSZ is ignored: writes fail
      local amp = require 'amp'
      local function limit(n) assert(ffi.C.setrlimit(1, ffi.new('uint64_t[2]', n, -1ULL)) == 0) end
      local dir = ...
      local log = amp.Logger(dir, {interval = 0})
      log:scalars({loss = 0.5}, 1)
      limit(1000)
      local failed = 0
      for i = 2, 200 do if not pcall(log.scalars, log, {loss = i + 0.123456789}, i) then failed = failed + 1 end end
      if not pcall(log.scalars, log, {more = 1}, 201) then failed = failed + 1 end -- a new column
      limit(2 ^ 40)
      for i = 202, 210 do log:scalars({loss = i + 0.5}, i) end
      log:close()
      print(failed > 0)]]
    local run = at 'run'
    write('fill.lua', script)
    local out = H.sh(("LUA_PATH='%s/lua/?.lua;%s/lua/?/init.lua;;' AMP_LIBRARY='%s/amp/libamp.so' luajit '%s' '%s' 2>&1")
      :format(H.absolute(H.root), H.absolute(H.root), H.absolute(H.build), at 'fill.lua', run))
    assert.equal('true\n', out)
    local t = amp.Logger.read(run)
    assert.equal(209, #t.loss[1])
    for i, step in ipairs(t.loss[1]) do
      assert.is_true(math.abs(t.loss[2][i] - step) <= 0.5)
      if i > 1 then assert.is_true(step > t.loss[1][i - 1]) end
    end
    assert.same({ 201 }, t.more[1])
    -- every record of the event file is whole: lengths and check sums lead from one to the next, to the end
    local events = require 'amp.log.events'
    local s = H.read(shell(("ls '%s'/events*"):format(run)))
    local p, k, records = ffi.cast('const uint8_t *', s), 0, 0
    local function masked(text)
      local c = events.crc32c(text)
      return bit.tobit(bit.bor(bit.rshift(c, 15), bit.lshift(c, 17)) + 0xa282ead8) % 2 ^ 32
    end
    while k < #s do
      local n = file.unle(p + k, 8)
      assert.is_true(k + n + 16 <= #s)
      assert.equal(masked(s:sub(k + 1, k + 8)), file.unle(p + k + 8, 4))
      assert.equal(masked(s:sub(k + 13, k + 12 + n)), file.unle(p + k + 12 + n, 4))
      k, records = k + n + 16, records + 1
    end
    assert.equal(211, records) -- the version, and each scalar once
  end)
end)

describe('classes of tds in .t7 files', function()
  local function number(v) return int(1) .. ffi.string(ffi.new('double[1]', v), 8) end
  local function object(class, body) return int(4) .. int(1) .. int(3) .. 'V 1' .. int(#class) .. class .. body end
  it('are tables and lists, their count being a long or an int', function()
    for _, count in ipairs { function(n) return le(n, 8) end, int } do
      local h = amp.torch7.load(write('d.t7', object('tds.Hash', count(2) .. number(2) .. number(3) .. int(2) .. int(1) .. 'k' .. number(4))))
      assert.same({ [2] = 3, k = 4 }, h)
      assert.same({ 123, 'x' }, amp.torch7.load(write('d.t7', object('tds.Vec', count(2) .. number(123) .. int(2) .. int(1) .. 'x'))))
    end
    assert.same({}, amp.torch7.load(write('d.t7', object('tds.Vec', le(0, 8)))))
    assert.same({}, amp.torch7.load(write('d.t7', object('tds.Hash', int(0)))))
    assert.same({ 7 }, amp.torch7.load(write('d.t7', '4\n1\n3\nV 1\n7\ntds.Vec\n1\n1\n7\n')))
  end)
end)

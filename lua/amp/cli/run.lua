--- `amp run`: a script in several processes, through mpirun.
-- mpirun starts `amp run --rank` for each, which starts the script (amp.cli.rank) and writes its lines, whole, into a pipe
-- that is read here. Of standard error the lines of the rank that fails first come first, so lines wait a moment.
-- @module amp.cli.run
local world = require 'amp.distributed.world'
local next_key = require('amp.core.keys').next
local posix = require 'amp.cli.posix'
local util = require 'amp.util'
local C = posix.C

local usage = [[
usage: amp run -n N [options] script.lua [arguments]
  -n N              processes (ranks)
  --hosts a,b,...   machines to spread them over (ssh without a password; the same paths there)
  --restarts K      after a failure start all ranks again, K times at most (AMP_RESTART counts them)
  --mpi NAME        openmpi or mpich, where both are there
]]

local HELD = 1     -- seconds that a line of standard error waits for a failure
local GRACE = 3    -- seconds that ranks have to end by themselves after a failure

local function refuse(...)
  io.stderr:write('amp run: ', string.format(...), '\n', usage)
  return nil, 2
end

-- -- What is asked ----------------------------------------------------------------------------------

local known = { '-n', '--hosts', '--restarts', '--mpi' }

local function whole(text, low)
  local n = tonumber(text or '')
  return n and n % 1 == 0 and n >= low and n or nil
end

local function read(list)
  local o, at = { restarts = 0 }, 1
  while list[at] and list[at]:sub(1, 1) == '-' and list[at] ~= '-' do
    local a, v = list[at], list[at + 1]
    local name, given = a:match '^(%-%-%w+)=(.*)$'
    if name then a, v, at = name, given, at - 1 end
    if a == '-h' or a == '--help' then
      io.stdout:write(usage)
      return nil, 0
    end
    local short = a:match '^%-n(%d+)$'
    if short then a, v, at = '-n', short, at - 1 end
    if a == '-n' or a == '-np' then
      o.n = whole(v, 1)
      if not o.n then return refuse('-n takes the number of ranks, got %s', v and "'" .. v .. "'" or 'nothing') end
    elseif a == '--hosts' then
      o.hosts = {}
      for host in (v or ''):gmatch '[^,%s]+' do o.hosts[#o.hosts + 1] = host end
      if #o.hosts == 0 then return refuse('--hosts takes names of machines, as in --hosts a,b') end
    elseif a == '--restarts' then
      o.restarts = whole(v, 0)
      if not o.restarts then return refuse('--restarts takes a number, got %s', v and "'" .. v .. "'" or 'nothing') end
    elseif a == '--mpi' then
      if v ~= 'openmpi' and v ~= 'mpich' then return refuse('--mpi is openmpi or mpich, got %s', v and "'" .. v .. "'" or 'nothing') end
      o.mpi = v
    else return refuse("unknown option '%s'%s", a, util.hint(a, known)) end
    at = at + 2
  end
  if not o.n then return refuse 'how many ranks? -n 2' end
  o.script = list[at]
  if not o.script then return refuse 'which script?' end
  if not posix.exists(o.script) then return refuse('the script %s is not there', o.script) end
  o.args = { unpack(list, at + 1) }
  return o
end

-- -- MPI ----------------------------------------------------------------------------------------------

local function has_plugin(kind)
  local dirs = { os.getenv 'AMP_PLUGIN_DIR', require('amp.ffi').path:match '^(.*)/[^/]*$' or '.' }
  for _, dir in pairs(dirs) do if posix.exists(('%s/libamp_mpi_%s.so'):format(dir, kind)) then return true end end
  return false
end

local function says(command)
  local pipe = io.popen("'" .. command .. "' --version 2>&1")
  local text = pipe:read '*a'
  pipe:close()
  return text:find 'Open MPI' and 'openmpi' or text:find 'HYDRA' and 'mpich' or nil
end

local function find_mpi(asked)
  local found = {}
  for _, kind in ipairs { 'openmpi', 'mpich' } do
    if not asked or asked == kind then
      local command = posix.which('mpirun.' .. kind)
      if not command and posix.which 'mpirun' and says(posix.which 'mpirun') == kind then command = posix.which 'mpirun' end
      for _, dir in ipairs { '/usr/lib64/', '/usr/lib/' } do
        if not command and posix.exists(dir .. kind .. '/bin/mpirun') then command = dir .. kind .. '/bin/mpirun' end
      end
      if command and has_plugin(kind) then return kind, command end
      found[#found + 1] = ('%s: %s, %s'):format(kind, command and 'mpirun is ' .. command or 'no mpirun',
        has_plugin(kind) and 'its plug-in is there' or 'no plug-in libamp_mpi_' .. kind .. '.so')
    end
  end
  io.stderr:write('amp run: several ranks need MPI, and it is not all there (', table.concat(found, '; '), ')\n',
    'install it and build amp again; on Debian: apt-get install libopenmpi-dev openmpi-bin\n')
end

local function share(o)
  local list, each = {}, math.ceil(o.n / #o.hosts)
  for i, host in ipairs(o.hosts) do list[i] = host .. ':' .. each end
  return table.concat(list, ',')
end

local passed = { 'LUA_PATH', 'LUA_CPATH', 'AMP_LIBRARY', 'AMP_PLUGIN_DIR', 'AMP_RESTART', 'OMP_NUM_THREADS', 'PATH', 'LD_LIBRARY_PATH', 'NCCL_DEBUG' }

local function command_of(o, pipe)
  local mine = { o.luajit, o.amp, 'run', '--rank', pipe, o.script, unpack(o.args) } -- ranks of other machines don't find the pipe
  if o.n == 1 then return mine end
  local kind, mpirun = find_mpi(o.mpi)
  if not kind then return nil end
  local list = { mpirun }
  local function add(...) for i = 1, select('#', ...) do list[#list + 1] = (select(i, ...)) end end
  if kind == 'openmpi' then
    if C.amp_run_geteuid() == 0 then add '--allow-run-as-root' end
    add('--oversubscribe', '--bind-to', 'none', '--wdir', o.folder, '--mca', 'mpi_yield_when_idle', '1')
    if o.hosts then
      add('--host', share(o))
      -- a machine that is not reached any more is given up, and gives up, soon
      for _, v in ipairs { 'time 5', 'intvl 2', 'probes 3' } do add('--mca', 'oob_tcp_keepalive_' .. v:match '%a+', v:match '%d+') end
    end
    for _, name in ipairs(o.hosts and passed or {}) do if os.getenv(name) then add('-x', name) end end
  else
    add('-wdir', o.folder)
    if o.hosts then add('-hosts', share(o), '-genvall') end
  end
  add('-n', tostring(o.n))
  add(unpack(mine))
  return list
end

-- -- Lines ----------------------------------------------------------------------------------------------

local Job = {}
Job.__index = Job

local function put(fd, rank, text) return posix.write(fd, ('[rank %d] %s\n'):format(rank, text)) end

-- A whole line of a rank's stream
function Job:line(kind, rank, text)
  if kind == 'o' then
    put(1, rank, text)
  elseif self.told then put(2, rank, text)
  else self.held[#self.held + 1] = { rank = rank, text = text, at = self.now() } end
end

local function words(rank, value)
  if value < 0 then return ('rank %d was ended by signal %d (%s)'):format(rank, -value, posix.names[-value] or 'a signal') end
  return ('rank %d ended with status %d'):format(rank, value)
end

-- Standard error so far: that of the rank that failed first, then the others'.
function Job:tell()
  if self.told then return end
  self.told = true
  local first, value, some = self.first, self.value, false
  for _, l in ipairs(self.held) do some = some or l.rank == first end
  if first and (value < 0 or not some) then posix.write(2, words(first, value) .. '\n') end
  for turn = 1, 2 do
    for _, l in ipairs(self.held) do
      if (l.rank == first) == (turn == 1) then put(2, l.rank, l.text) end
    end
  end
  self.held = {}
end

-- Lines that have waited long enough, while nothing failed
function Job:flush()
  while not self.first and self.held[1] and self.now() - self.held[1].at > HELD do
    local l = table.remove(self.held, 1)
    put(2, l.rank, l.text)
  end
end

function Job:record(kind, rank, value, text)
  if kind == 'o' or kind == 'e' then
    local key = kind .. rank
    self.parts[key] = (self.parts[key] or '') .. text
    if value == 0 or #self.parts[key] > 2 ^ 20 then
      self:line(kind, rank, self.parts[key])
      self.parts[key] = nil
    end
  elseif kind == 's' then self.pids[rank] = value
  else
    if kind == 'x' then self.ends[rank], self.pids[rank] = value, nil end
    local asked = self.hosts and (value == -posix.TERM or value == -posix.KILL) -- by mpirun, which saw another machine's rank fail
    if value ~= 0 and not self.first and not asked then self.first, self.value, self.failed_at = rank, value, self.now() end
  end
end

function Job:read()
  local text = posix.read(self.fd)
  if not text then return false end
  self.input = self.input .. text
  local at = 1
  while true do
    local _, last, kind, rank, value, n = self.input:find('^(%a) (%d+) (%-?%d+) (%d+)\n', at)
    n = tonumber(n)
    if not last or #self.input < last + n then break end
    self:record(kind, tonumber(rank), tonumber(value), self.input:sub(last + 1, last + n))
    at = last + n + 1
  end
  self.input = self.input:sub(at)
  return true
end

-- -- One run ------------------------------------------------------------------------------------------------

function Job:signal(s)
  for _, pid in pairs(self.pids) do C.amp_run_kill(pid, s) end
  if next_key(self.pids) == nil then C.amp_run_kill(self.pid, s) end
end

-- End what is there, ever more firmly: ranks by themselves, asked to, not asked.
function Job:press(since)
  local late = self.now() - since
  local step = late > GRACE + 4 and 3 or late > GRACE + 2 and 2 or late > GRACE and 1 or 0
  if step <= self.pressed then return end
  self.pressed = step
  if step == 1 then self:signal(posix.TERM)
  elseif step == 2 then
    self:signal(posix.KILL)
    C.amp_run_kill(self.pid, posix.TERM)
  else C.amp_run_kill(-self.pid, posix.KILL) end
end

local function run(o, signals, fd, argv, now)
  local from, to = posix.pipe()
  local null = C.amp_run_open('/dev/null', posix.RDONLY)
  local job = setmetatable({ fd = fd, now = now, hosts = o.hosts, input = '', held = {}, parts = {}, ends = {}, pids = {}, pressed = 0 }, Job)
  job.pid = posix.start(argv, { stdin = null, stdout = to, stderr = to, dies = posix.TERM, group = true })
  C.amp_run_close(to)
  C.amp_run_close(null)
  local said, asked, open = {}, nil, true
  local status, signal
  while not status do
    local ready = posix.poll(open and { fd, signals, from } or { fd, signals }, 100)
    if ready[fd] then job:read() end
    if ready[from] then
      local text = posix.read(from)
      if text == '' then open = false elseif o.hosts and text then posix.write(1, text) elseif text then said[#said + 1] = text end
    end
    for s in posix.next_signal, signals do
      if s ~= posix.CHLD then
        job:signal(s)
        if s ~= posix.USR1 and s ~= posix.USR2 then asked = asked or { signal = s, at = now() } end
      end
    end
    if job.first and (job.ends[job.first] or now() - job.failed_at > 1.5) then job:tell() end
    if job.first or asked then job:press(job.first and job.failed_at or asked.at) end
    job:flush()
    status, signal = posix.ended(job.pid)
  end
  while posix.poll({ fd }, 0)[fd] and job:read() do end
  C.amp_run_close(from)
  C.amp_run_kill(-job.pid, posix.KILL)
  for _, pid in pairs(job.pids) do C.amp_run_kill(pid, posix.KILL) end
  local gone = {}
  if not job.first and not o.hosts and not asked then
    for r = 1, o.n do if not job.ends[r] then gone[#gone + 1] = r end end
    if #gone > 0 and (status ~= 0 or signal ~= 0 or #gone < o.n) then
      posix.write(2, ('rank %s is gone without a word (killed?)\n'):format(table.concat(gone, ', rank ')))
    end
  end
  job:tell()
  if (#gone > 0 or (o.hosts and status ~= 0)) and #said > 0 then posix.write(2, table.concat(said)) end
  if asked then return 128 + asked.signal, true end
  local value = job.first and job.value or 0
  if value ~= 0 then return value < 0 and 128 - value or value end
  if #gone > 0 then return status ~= 0 and status or 1 end
  return signal ~= 0 and 128 + signal or status
end

jit.off(run)

local function clock()
  local ffi = require 'ffi'
  ffi.cdef 'struct amp_run_time { long s, n; }; int amp_run_clock(int which, struct amp_run_time *t) __asm__("clock_gettime");'
  local t = ffi.new 'struct amp_run_time'
  return function()
    C.amp_run_clock(1, t)
    return tonumber(t.s) + tonumber(t.n) * 1e-9
  end
end

local function all_runs(o, dir)
  local ffi = require 'ffi'
  local pipe = dir .. '/lines'
  if C.amp_run_mkfifo(pipe, 384) ~= 0 then return refuse('no pipe in %s: %s', dir, ffi.string(C.amp_run_strerror(ffi.errno()))) end
  local fd = C.amp_run_open(pipe, posix.RDWR + posix.NONBLOCK + posix.CLOEXEC)
  local argv = command_of(o, pipe)
  if not argv then return nil, 1 end
  local signals = posix.signals { posix.HUP, posix.INT, posix.TERM, posix.USR1, posix.USR2, posix.CHLD }
  local now = clock()
  for turn = 0, o.restarts do
    C.amp_run_setenv('AMP_RESTART', tostring(turn), 1)
    local status, stop = run(o, signals, fd, argv, now)
    if status == 0 or stop or turn == o.restarts then return nil, status end
    io.stderr:write(('amp run: all ranks are started again (%d of %d)\n'):format(turn + 1, o.restarts))
  end
end

--- The command. Gives its exit status.
return function(...)
  local list = { ... }
  if list[1] == '--rank' then
    local found = world.find()
    local argv = { list.luajit or rawget(_G, 'arg')[-1], rawget(_G, 'arg')[0], unpack(list, 3) }
    C.amp_run_setenv('AMP_RUN_PIPE', list[2], 1)
    C.amp_run_setenv('AMP_RUN', '1', 1)
    return require 'amp.cli.rank'(list[2], (found.rank or 0) + 1, argv)
  end
  local o, status = read(list)
  if not o then return status end
  o.luajit, o.amp, o.folder = rawget(_G, 'arg')[-1] or 'luajit', posix.absolute(rawget(_G, 'arg')[0]), posix.folder()
  local ffi = require 'ffi'
  local dir = ffi.new('char[?]', 4096, (os.getenv 'TMPDIR' or '/tmp') .. '/amp-run.XXXXXX')
  if C.amp_run_mkdtemp(dir) == nil then
    io.stderr:write('amp run: no folder for its pipe in ', os.getenv 'TMPDIR' or '/tmp', '\n')
    return 1
  end
  dir = ffi.string(dir)
  local ok, _, code = pcall(all_runs, o, dir)
  C.amp_run_unlink(dir .. '/lines')
  C.amp_run_rmdir(dir)
  if not ok then error(_, 0) end
  return code
end

--- One rank of `amp run`: starts the script, passes whole lines of its streams and its end on to who started all, and
-- signals on to it. Records in the pipe, each written at once: "KIND RANK VALUE LENGTH\n", then LENGTH bytes.
--   o, e   a line of standard output, error (VALUE 1: it goes on)     s   started (VALUE: process)
--   x      ended (VALUE: status, or -signal)                           f   (written by the library) is about to fail
-- Where that pipe is not to be had, on another machine, lines go to the own streams with the rank before them.
-- @module amp.cli.rank
local posix = require 'amp.cli.posix'
local C = posix.C

local MOST = 4000 -- bytes of a record: pipes write so many at once

local function cut(text, n) return text:sub(1, n), text:sub(n + 1) end

return function(pipe, rank, argv)
  local signals = posix.signals { posix.HUP, posix.INT, posix.TERM, posix.USR1, posix.USR2, posix.CHLD }
  C.amp_run_prctl(1, posix.TERM, 0, 0, 0)
  local out = pipe ~= '' and C.amp_run_open(pipe, posix.WRONLY + posix.CLOEXEC) or -1
  local alive = true
  local function record(kind, value, text)
    text = text or ''
    if out >= 0 then
      alive = posix.write(out, ('%s %d %d %d\n%s'):format(kind, rank, value, #text, text)) and alive
    elseif kind == 'o' or kind == 'e' then
      posix.write(kind == 'o' and 1 or 2, ('[rank %d] %s%s'):format(rank, text, '\n'))
    elseif kind == 'x' and value < 0 then
      posix.write(2, ('rank %d was ended by signal %d (%s)\n'):format(rank, -value, posix.names[-value] or '?'))
    end
  end
  local from = { { kind = 'o', rest = '' }, { kind = 'e', rest = '' } }
  local ends = {}
  for i, f in ipairs(from) do f.fd, ends[i] = posix.pipe() end
  local child = posix.start(argv, { stdout = ends[1], stderr = ends[2], dies = posix.KILL })
  for _, fd in ipairs(ends) do C.amp_run_close(fd) end
  record('s', C.amp_run_getpid())
  local function lines(f, text, last)
    f.rest = f.rest .. text
    while true do
      local line, more = f.rest:match '^([^\n]*)\n(.*)$'
      if not line then break end
      f.rest = more
      while #line > MOST do
        local head
        head, line = cut(line, MOST)
        record(f.kind, 1, head)
      end
      record(f.kind, 0, line)
    end
    while #f.rest > 16 * MOST do
      local head
      head, f.rest = cut(f.rest, MOST)
      record(f.kind, 1, head)
    end
    if last and #f.rest > 0 then
      local line = f.rest
      f.rest = ''
      lines(f, line .. '\n')
    end
  end
  local status, signal
  while not status do
    local fds = { signals }
    for _, f in ipairs(from) do if f.fd then fds[#fds + 1] = f.fd end end
    local ready = posix.poll(fds, 1000)
    for _, f in ipairs(from) do
      if f.fd and ready[f.fd] then
        local text = posix.read(f.fd)
        if text == '' then
          C.amp_run_close(f.fd)
          f.fd = nil
        elseif text then lines(f, text) end
      end
    end
    for s in posix.next_signal, signals do
      if s ~= posix.CHLD then C.amp_run_kill(child, s) end
    end
    if not alive then C.amp_run_kill(child, posix.KILL) end
    status, signal = posix.ended(child)
  end
  for _, f in ipairs(from) do -- what is there still; a process that the script left behind may hold the pipe
    while f.fd and posix.poll({ f.fd }, 0)[f.fd] do
      local text = posix.read(f.fd)
      if not text or text == '' then break end
      lines(f, text)
    end
    lines(f, '', true)
  end
  record('x', signal ~= 0 and -signal or status)
  return signal ~= 0 and 128 + signal or status
end

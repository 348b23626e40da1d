--- A small scheduler of plain coroutines, which is an adapter too: for programs without an event loop, and to copy from.
--
--   local loop = amp.serve.loop()
--   local classify = amp.serve.batcher(net, {adapter = loop})
--   for i = 1, 8 do loop.spawn(function() print(classify(x[i]):argmax():item()) end) end
--   loop.run()                                   -- until every coroutine has ended
local C = require('amp.ffi').C
local ffi = require 'ffi'
local raise = require('amp.error').throw

ffi.cdef 'int amp_serve_poll(void *fds, unsigned long n, int ms) __asm__("poll");'

local function now() return C.amp_clock() * 1000 end

-- The earliest of the timers, taken out if it is due; else how long until then
local function due(timers)
  local first
  for i = 1, #timers do
    if not first or timers[i].at < timers[first].at then first = i end
  end
  if not first then return nil end
  local left = timers[first].at - now()
  if left <= 0 then return table.remove(timers, first).fn end
  return nil, left
end

--- Makes a scheduler.
-- @treturn table spawn(fn): a coroutine that begins in the next turn; sleep(ms): for one; after(ms, fn): calls fn in ms
-- milliseconds; run(): until nothing is left, then raises the first error of a coroutine; signal, wait, wake, left: as a batcher's adapter
return function()
  local M, ready, timers, failed = {}, {}, {}, nil

  local function step(co)
    local ok, e = coroutine.resume(co)
    if not ok then failed = failed or { e } end
  end

  function M.spawn(fn)
    local co = coroutine.create(fn)
    ready[#ready + 1] = co
    return co
  end

  function M.signal() return {} end
  function M.wait(s)
    if s.done then return end
    s.co = coroutine.running()
    if not s.co then raise('serve.loop', 'only a coroutine waits: loop.spawn(function() ... end)') end
    repeat coroutine.yield() until s.done
  end
  function M.wake(s)
    s.done = true
    if s.co then ready[#ready + 1] = s.co end
  end
  function M.left(s) return s.co ~= nil and coroutine.status(s.co) == 'dead' end
  function M.after(ms, fn) timers[#timers + 1] = { at = now() + ms, fn = fn } end
  function M.sleep(ms)
    local s = M.signal()
    M.after(ms, function() M.wake(s) end)
    M.wait(s)
  end

  function M.run()
    while true do
      local list = ready
      ready = {}
      for i = 1, #list do if coroutine.status(list[i]) ~= 'dead' then step(list[i]) end end
      local fn, left = due(timers)
      if fn then
        local ok, e = pcall(fn)
        if not ok then failed = failed or { e } end
      elseif #ready == 0 then
        if not left then break end
        ffi.C.amp_serve_poll(nil, 0, math.ceil(left))
      end
    end
    if failed then
      local e = failed[1]
      failed = nil
      error(e, 0)
    end
  end

  return M
end

--- The adapter of nginx's Lua module: a request waits at a semaphore, a timer runs the forward. A request that nginx has ended
-- (lua_check_client_abort, ngx.exit of its parent) waits no more, which the semaphore's count tells.
local raise = require('amp.error').throw
local ngx = rawget(_G, 'ngx')
local semaphore = require 'ngx.semaphore'

local LONG = 60 -- seconds that one wait takes at most; it begins again

local M = {}

-- Semaphores whose one post was waited for: as new
local free = {}

function M.signal() return table.remove(free) or assert(semaphore.new(0)) end

-- Waits on after a first wait, or says why that is over.
local function wait_on(s, ok, why)
  while not ok do
    if why ~= 'timeout' then raise('serve.batcher', 'a request can not wait here: %s', tostring(why)) end
    ok, why = s:wait(LONG)
  end
end

function M.wait(s)
  local ok, why = s:wait(LONG)
  if not ok then wait_on(s, ok, why) end
  free[#free + 1] = s
end

function M.wake(s) s:post(1) end

--- Whether a request that began to wait is gone.
function M.left(s) return s:count() >= 0 end

--- Runs fn in ms milliseconds; at once where the worker ends.
function M.after(ms, fn)
  local ok, why = ngx.timer.at(ms / 1000, function() fn() end)
  if not ok then fn(why) end
end

return M

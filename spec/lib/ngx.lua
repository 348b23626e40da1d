--- Of nginx's Lua module what amp.serve uses, on spec/lib/host.lua: ngx.timer.at (a turn of the scheduler is a millisecond) and
-- ngx.semaphore. To be loaded before amp. Requests that are ended while they wait are no waiters any more.
local host = require 'spec.lib.host'

local semaphore = {}
semaphore.__index = semaphore

function semaphore:wait(seconds)
  local request, left = host.current(), seconds * 1000
  self.waiters[request] = true
  while self.posts == 0 and left > 0 do
    host.sleep(1)
    left = left - 1
  end
  self.waiters[request] = nil
  if self.posts == 0 then return nil, 'timeout' end
  self.posts = self.posts - 1
  return true
end

function semaphore:post(n) self.posts = self.posts + n end

function semaphore:count()
  local n = self.posts
  for request in pairs(self.waiters) do if not request.killed then n = n - 1 end end
  return n
end

package.preload['ngx.semaphore'] = function()
  return { new = function(n) return setmetatable({ posts = n, waiters = {} }, semaphore) end }
end

rawset(_G, 'ngx', { timer = { at = function(seconds, fn)
  host.spawn(function()
    host.sleep(math.max(1, seconds * 1000))
    fn(false)
  end)
  return true
end } })

return host

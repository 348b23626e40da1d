--- A step that runs again and again: `amp.capture`.
-- @module amp.capture
local err = require 'amp.error'
local util = require 'amp.util'

local function callable(f)
  if type(f) == 'function' then return true end
  local mt = getmetatable(f)
  return type(f) == 'table' and type(mt) == 'table' and type(mt.__call) == 'function'
end

--- A function that does what fn does: n calls are n steps, whatever the device. On a CPU each call runs fn, so its
-- arguments, results, errors and side effects are fn's own.
-- @tparam function|table fn a step, or a table that can be called, such as a module
-- @treturn function step takes fn's arguments, returns fn's results
-- @raise fn can't be called
-- @usage
-- local step = amp.capture(function(x, y)
--   local loss = F.mse_loss(net(x), y)
--   loss:backward()
--   opt:step():clear_grad()
--   return loss
-- end)
-- for _ = 1, 10 do step(x, y) end
return function(fn)
  if not callable(fn) then err.throw('capture', 'a function is expected, got %s', util.show(fn)) end
  return function(...) return fn(...) end
end

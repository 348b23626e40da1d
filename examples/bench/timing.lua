-- Shared by the benchmarks: best wall time of a call, in seconds.
local amp = require 'amp'
local M = {}

--- Run f until `seconds` have passed (at least 5 times), give the best time of one run divided by n.
function M.best(f, n, seconds)
  f()
  local best, stop, runs = math.huge, amp.clock() + (seconds or 0.5), 0
  repeat
    local s = amp.clock()
    f()
    best = math.min(best, amp.clock() - s)
    runs = runs + 1
  until amp.clock() > stop and runs >= 5
  return best / (n or 1)
end

--- Print a line that ratios.lua reads.
function M.report(name, value, unit, rest)
  print(('%s %.6g %s %s'):format(name, value, unit, rest or ''))
end

return M

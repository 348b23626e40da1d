-- Shared by the benchmarks: best wall time of a call, in seconds.
local amp = require 'amp'
local M = {}

--- Run f until `seconds` have passed (at least 5 times), give the best time of one run divided by n. A fifth of the time goes by
-- before: until the collector gives back as much as is made, the first steps touch fresh memory.
function M.best(f, n, seconds)
  local warm = amp.clock() + (seconds or 0.5) / 5
  repeat f() until amp.clock() > warm
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

-- Shared by the GPU benchmarks. A time is the median of several runs of many calls, the GPU being waited for at the
-- ends of a run only; the calls of a run are as many as fill `seconds`. Before them the same calls warm up: plans are
-- made, steps are captured, the card leaves its idle clock. timing.py measures PyTorch by the same rule.
local amp = require 'amp'
local M = {}

--- Wait for the device, if it is one to be waited for.
function M.wait(device)
  if (device or 'cuda'):find '^cuda' then amp.cuda.synchronize() end
end

local function run(step, n, device)
  local from = amp.clock()
  for _ = 1, n do step() end
  M.wait(device)
  return amp.clock() - from
end

local function median(t)
  table.sort(t)
  local n = #t
  return n % 2 == 1 and t[(n + 1) / 2] or (t[n / 2] + t[n / 2 + 1]) / 2
end
M.median = median

--- Milliseconds a call, and the most MiB of live tensors while it ran.
-- @tparam function step
-- @tparam ?table o {device = 'cuda', seconds = 0.15 a run, warm = 0.3 seconds, calls = 4 at least before, reps = 5 runs,
-- whole: the peak counts from before the warm-up}
-- @treturn number ms
-- @treturn number MiB
-- @treturn table ms of each run, sorted
function M.time(step, o)
  o = o or {}
  local device, seconds = o.device or 'cuda', o.seconds or 0.15
  amp.reset_peak_memory(device)
  for _ = 1, o.calls or 4 do step() end
  M.wait(device)
  if not o.whole then amp.reset_peak_memory(device) end
  local spent, warm = 0, o.warm or 0.3
  local one
  repeat
    one = run(step, 1, device)
    spent = spent + one
  until spent >= warm
  local n = math.max(1, math.ceil(seconds / one))
  -- one call and the wait for it take longer than one of many: what a short run says counts
  if n > 4 then n = math.max(n, math.ceil(seconds / (run(step, n, device) / n))) end
  local t = {}
  for i = 1, o.reps or 5 do t[i] = run(step, n, device) * 1e3 / n end
  return median(t), amp.memory(device).peak / 2 ^ 20, t
end

--- `name=value` words of the command line as a table, numbers as numbers; `--name` as true; the others in order.
-- @tparam table words
-- @treturn table options
-- @treturn table the other words
function M.options(words)
  local o, rest = {}, {}
  for _, w in ipairs(words) do
    local name, value = w:match '^%-?%-?([%w_]+)=(.*)$'
    if name then o[name] = tonumber(value) or value
    elseif w:find '^%-%-' then o[w:sub(3)] = true
    else rest[#rest + 1] = w end
  end
  return o, rest
end

return M

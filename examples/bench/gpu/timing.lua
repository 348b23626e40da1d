-- Shared by the GPU benchmarks: median time of a step in milliseconds over three runs of many steps, the GPU being
-- waited for at their ends only, and the allocator's largest sum of live bytes in MiB. A line: name, ms, MiB.
local amp = require 'amp'
local M = {}

function M.time(step, options)
  options = options or {}
  local warm, n, reps = options.warm or 10, options.n or 40, options.reps or 3
  for _ = 1, warm do step() end
  amp.cuda.synchronize()
  amp.cuda.reset_max_memory_allocated()
  local t = {}
  for r = 1, reps do
    local from = amp.clock()
    for _ = 1, n do step() end
    amp.cuda.synchronize()
    t[r] = (amp.clock() - from) * 1e3 / n
  end
  table.sort(t)
  return t[math.ceil(reps / 2)], amp.cuda.max_memory_allocated() / 2 ^ 20
end

function M.row(name, make, options)
  local ok, ms, mib = pcall(function() return M.time(make(), options) end)
  if ok then print(('%-44s %10.4f ms %9.0f MiB'):format(name, ms, mib))
  else print(('%-44s failed: %s'):format(name, tostring(ms):gsub('\n.*', ''))) end
  io.stdout:flush()
  collectgarbage()
  collectgarbage()
  amp.cuda.empty_cache()
  return ok and ms or nil
end

return M

-- Claim: `require 'amp'` takes 10 ms or less, and the stripped libamp.so 3.5 MiB or less.
local function run(command)
  local p = assert(io.popen(command))
  local text = p:read('*a')
  p:close()
  return text
end

local script = [[local c = require("ffi"); c.cdef"typedef struct { long s, n; } bench_time; int clock_gettime(int, bench_time *);"
local t = c.new("bench_time[2]"); c.C.clock_gettime(1, t); require "amp"; c.C.clock_gettime(1, t + 1)
print(tonumber(t[1].s - t[0].s) * 1e3 + tonumber(t[1].n - t[0].n) / 1e6)]]
local times = {}
for i = 1, 15 do times[i] = tonumber(run("luajit -e '" .. script .. "'")) end
table.sort(times)
print(('require %.3f ms <= 10'):format(times[8]))

local copy = os.tmpname()
os.execute(('cp %s %s && strip %s'):format(os.getenv('AMP_LIBRARY'), copy, copy))
local f = assert(io.open(copy))
print(('libamp.so %.3f MiB <= 3.5'):format(f:seek('end') / 2 ^ 20))
f:close()
os.remove(copy)

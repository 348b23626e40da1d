-- Claim: with autocast off, having it costs at most 6 instructions an op. The core is linked twice, with and without
-- the one line of dispatch that asks for it, and callgrind counts both (n in-place and n plain additions).
local here = arg[0]:match('^(.*)/[^/]*$') or '.'
local src = here .. '/../../src'
local build = os.getenv('AMP_BUILD_DIR') or (here .. '/../../build')

local function run(command)
  local p = assert(io.popen(command .. ' 2>&1'))
  local text = p:read('*a')
  p:close()
  return text
end

if not run('valgrind --version'):match('valgrind%-') then
  print('note valgrind is not installed: nothing was counted')
  return
end
local dir = run('mktemp -d'):match('%S+')

-- instructions of one run of n and n operations
local function count(flag, n)
  local lib = dir .. '/' .. (flag == '' and 'with' or 'without')
  os.execute('mkdir -p ' .. lib)
  local objects = run(("find %s/CMakeFiles/amp_core.dir -name '*.o' ! -path '*/dispatch/dispatch.c.o' | tr '\\n' ' '"):format(build))
  local text = run(('cc -std=gnu11 -O3 -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math %s -I%s -I%s/gen -c %s/dispatch/dispatch.c -o %s/d.o')
    :format(flag, src, build, src, lib)) ..
    run(('cc -shared -o %s/libamp.so %s/d.o %s -lm -ldl -lpthread -fopenmp'):format(lib, lib, objects)) ..
    run(('cc -O2 -I%s %s/autocast_off.c -o %s/run -L%s -lamp -Wl,-rpath,%s'):format(src, here, lib, lib, lib))
  text = text .. run(('OMP_NUM_THREADS=1 valgrind --tool=callgrind --callgrind-out-file=/dev/null %s/run %d'):format(lib, n))
  return tonumber((text:match('Collected : (%d+)'))) or error(text)
end

local n = 20000
local with = count('', n) - count('', 0)
local without = count('-DAMP_NO_AUTOCAST', n) - count('-DAMP_NO_AUTOCAST', 0)
os.execute('rm -rf ' .. dir)
print(('instructions_an_op %.1f insn'):format(with / (2 * n)))
print(('autocast_off_costs %.2f insn <= 6'):format(math.max(0, with - without) / (2 * n)))

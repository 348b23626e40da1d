-- Claim: amp_graph_run of a 3-layer network of width 64, called from C, takes at most 1.5 times the instructions of its bare
-- kernels (products with bias, ReLU), for one row and for 32. Callgrind counts both in runs of one program.
local amp = require 'amp'
local here = arg[0]:match('^(.*)/[^/]*$') or '.'
local src = here .. '/../../src'
local lib = (os.getenv('AMP_BUILD_DIR') or (here .. '/../../build')) .. '/amp'

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
local nn = amp.nn
local net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
local built = run(('cc -O2 -I%s %s/graph_runner.c -o %s/run -L%s -lamp -Wl,-rpath,%s'):format(src, here, dir, lib, lib))

-- instructions inside these functions, of a run
local function inside(functions, rows)
  local function count(n)
    local text = run(('OMP_NUM_THREADS=1 AMP_ONEDNN=0 valgrind --tool=callgrind --callgrind-out-file=/dev/null %s %s/run %s/net.safetensors %d %d')
      :format(functions, dir, dir, n, rows))
    return tonumber((text:match('Collected : (%d+)'))) or error(built .. text)
  end
  return (count(600) - count(100)) / 500
end

for _, rows in ipairs {1, 32} do
  amp.trace(net, amp.zeros(rows, 64)):save(dir .. '/net.safetensors')
  local whole = inside('--toggle-collect=amp_graph_run', rows)
  local kernels = inside('--toggle-collect=amp__cpu_linear --toggle-collect=amp__cpu_relu', rows)
  print(('graph_run_%d_rows %.0f insn'):format(rows, whole))
  print(('graph_run_%d_rows_over_kernels %.2f times <= 1.5'):format(rows, whole / kernels))
end
os.execute('rm -rf ' .. dir)

--- `amp bench`: the claims that examples/bench checks, on this machine, without their peers.
-- Each claim is a script in a process of its own, found in the source tree or in the `bench`
-- folder beside the installed Lua files; what it prints (`name value unit [<= limit]`) is shown as it comes.
-- Exit status 1 if a claim did not hold or did not run.
-- @module amp.cli.bench
local core = require 'amp.ffi'
local cuda = require 'amp.cuda'
local util = require 'amp.util'

-- in the order of their length; `needs`: what a claim can't run without
local claims = {
  { name = 'startup', what = "require 'amp' takes 10 ms, the library 3.5 MiB" },
  { name = 'tiny_ops', what = 'ops on 4 x 4 tensors' },
  { name = 'tiny_ops_joff', file = 'tiny_ops', flags = '-joff', what = 'the same without the JIT compiler' },
  { name = 'mlp64', what = 'a training step of a 3-layer network of width 64' },
  { name = 'matmul_conv', what = 'products and convolutions' },
  { name = 'bf16_mlp', what = 'bfloat16 autocast against float32, width 2048', needs = 'bfloat16' },
  { name = 'digits', what = 'an epoch of the digit classifier', needs = 'data' },
  { name = 'memory', what = 'memory over 20,000 steps is flat' },
  { name = 'ops', what = 'all ops, four sizes each (minutes)', needs = 'ops.tsv', slow = true },
  { name = 'gpu', file = 'gpu/targets', arguments = 'python=none out=/dev/null', what = 'training steps on the GPU (minutes)', needs = 'gpu', slow = true },
  { name = 'autocast_off', what = 'autocast that is off costs 6 instructions (needs valgrind and the build folder)', needs = 'build', slow = true },
}

local function exists(path)
  local f = io.open(path, 'rb')
  if f then f:close() end
  return f ~= nil
end

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

-- Folder of the scripts and folder of the data, or nil
local function folders()
  for _, f in ipairs { { core.here .. '../../examples/bench/', core.here .. '../../examples/data' }, { core.here .. 'bench/', core.here .. 'bench/data' } } do
    if exists(f[1] .. 'timing.lua') then return f[1], f[2] end
  end
end

local function absolute(path)
  if path:sub(1, 1) == '/' then return path end
  local p = io.popen 'pwd'
  local cwd = p:read '*l'
  p:close()
  return cwd .. '/' .. path
end

local function missing(c, here, data, build)
  if c.needs == 'data' and not exists(data .. '/train-images-idx3-ubyte.gz') then return 'its data set is not installed' end
  if c.needs == 'bfloat16' and require('ffi').arch == 'x64' and not require('amp.tools.machine').multiplies_bfloat16() then
    return 'its target is of processors with avx512_bf16 or amx_bf16, which this one has not: bfloat16 saves memory here, not time'
  end
  if c.needs == 'ops.tsv' and not exists(here .. 'ops.tsv') then return 'ops.tsv is not installed' end
  if c.needs == 'gpu' then
    if not cuda.is_available() then return 'there is no GPU: ' .. cuda.reason() end
    if not exists(here .. c.file .. '.lua') then return 'it is in the source tree only' end
  end
  if c.needs == 'build' and not exists(build .. '/CMakeCache.txt') then return 'it counts instructions in the build folder, which is not here' end
end

-- Print a line of a claim; false if it has a limit that does not hold
local function show(line)
  local name, value, unit, rest = line:match '^(%S+)%s+([%d.eE+-]+)%s+(%S+)%s*(.*)$'
  if not name or name == 'note' then
    print('  ' .. line)
    return true
  end
  local sign, limit = rest:match '^([<>]=)%s*([%d.]+)'
  local held = not sign or (sign == '<=' and tonumber(value) <= tonumber(limit)) or (sign == '>=' and tonumber(value) >= tonumber(limit))
  print(('  %-34s %12.4g %-8s%s'):format(name, tonumber(value), unit, sign and (' %s %s: %s'):format(sign, limit, held and 'held' or 'NOT held') or ''))
  return held
end

local function run(c, here, environment)
  local interpreter = _G.arg and _G.arg[-1] or 'luajit'
  local p = io.popen(('%s %s %s %s %s 2>&1; echo "status $?"'):format(environment, quote(interpreter), c.flags or '',
    quote(here .. (c.file or c.name) .. '.lua'), c.arguments or ''))
  local good = true
  for line in p:lines() do
    local status = line:match '^status (%d+)$'
    if status then
      if status ~= '0' then
        print('  it failed')
        good = false
      end
    else
      good = show(line) and good
    end
    io.stdout:flush()
  end
  p:close()
  return good
end

local function list()
  for _, c in ipairs(claims) do print(('%-14s %s'):format(c.name, c.what)) end
  return 0
end

--- @param ... names of claims, or --list; none: all but the slow ones
-- @treturn number exit status
return function(...)
  local by_name, chosen = {}, {}
  for _, c in ipairs(claims) do by_name[c.name] = c end
  for _, name in ipairs { ... } do
    if name == '--list' then return list() end
    if not by_name[name] then
      io.stderr:write(("amp: there is no claim '%s'%s (amp bench --list names them)\n"):format(name, util.hint(name, util.keys(by_name))))
      return 2
    end
    chosen[#chosen + 1] = by_name[name]
  end
  if #chosen == 0 then
    for _, c in ipairs(claims) do
      if not c.slow then chosen[#chosen + 1] = c end
    end
  end
  local here, data = folders()
  if not here then
    io.stderr:write(('amp: the benchmarks are neither in %s../../examples/bench nor in %sbench\n'):format(core.here, core.here))
    return 1
  end
  here, data = absolute(here), absolute(data)
  local library = absolute(core.path)
  local build = library:match '^(.*)/[^/]*/[^/]*$' or '.'
  local lua = absolute(core.here):gsub('amp/$', '')
  local environment = ('LUA_PATH=%s AMP_LIBRARY=%s AMP_BENCH_DATA=%s AMP_BUILD_DIR=%s'):format(
    quote(('%s?.lua;%s?/init.lua;%s?.lua;;'):format(lua, lua, here)), quote(library), quote(data), quote(build))
  local failed = 0
  print(cuda.is_available() and 'card: ' .. cuda.get_device_properties().name or 'no card: ' .. cuda.reason())
  for _, c in ipairs(chosen) do
    print('== ' .. c.name .. ': ' .. c.what)
    io.stdout:flush()
    local why = missing(c, here, data, build)
    if why then print('  not run: ' .. why)
    elseif not run(c, here, environment) then failed = failed + 1 end
  end
  if failed > 0 then print(('%d of %d did not hold; on a machine that does other work measure again'):format(failed, #chosen)) end
  return failed > 0 and 1 or 0
end

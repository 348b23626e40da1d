--- Runs programs in several ranks for specs, by `amp run`, with each MPI whose plug-in was built. Where there is none, the
-- specs say so, loudly, and pass by.
local H = require 'spec.lib.helper'

local M = {}

local root, build = H.absolute(H.root), H.absolute(H.build)

local function exists(path)
  local f = io.open(path, 'rb')
  if f then f:close() end
  return f ~= nil
end

--- Names of the MPIs to run with.
M.mpis = {}
for _, kind in ipairs { 'openmpi', 'mpich' } do
  local found = H.sh(("command -v mpirun.%s || true"):format(kind)):find '%S'
  if found and exists(('%s/amp/libamp_mpi_%s.so'):format(build, kind)) then M.mpis[#M.mpis + 1] = kind end
end
if #M.mpis == 0 then
  io.stderr:write('\n*** spec/distributed: NO MPI WAS FOUND WHEN AMP WAS BUILT; nothing of several ranks is tested ***\n',
    '*** (Debian: apt-get install libopenmpi-dev openmpi-bin libmpich-dev mpich) ***\n\n')
end

local head = [[
local amp = require 'amp'
local nn, F, optim, dist, data = amp.nn, amp.nn.functional, amp.optim, amp.distributed, amp.data
local function same(a, b, tolerance)
  local d = (a:double() - b:double()):abs()
  if d:numel() > 0 and not (d:max():item() <= (tolerance or 0)) then error('differs by ' .. d:max():item(), 2) end
end
local function fails(pattern, fn, ...)
  local ok, e = pcall(fn, ...)
  if ok then error('no error; expected ' .. pattern, 2) end
  if not tostring(e):find(pattern) then error('the error is: ' .. tostring(e), 2) end
end
local function init(o)
  dist.init(o or { timeout = 20 })
  return dist.rank(), dist.world_size()
end
]]

--- Standard output, standard error, status, seconds of a program in n ranks. It starts with `head`.
function M.run(n, text, o)
  o = o or {}
  local path, err = H.tmp 'program.lua', H.tmp 'stderr'
  H.write(path, (o.plain and '' or head:gsub('\n', ' ')) .. text)
  local began = os.time()
  local out, status = H.sh(("cd / && (AMP_LIBRARY='%s/amp/libamp.so' timeout -k 5 60 '%s/lua/bin/amp' run -n %d %s %s '%s' %s 2>'%s' </dev/null)")
    :format(build, root, n, o.mpi and '--mpi ' .. o.mpi or '', o.options or '', path, o.arguments or '', err))
  return out, H.read(err), status, os.difftime(os.time(), began)
end

--- The program ends well in n ranks, each of which says so.
function M.passes(n, text, o)
  local out, err, status = M.run(n, text .. "\nprint 'fine'", o)
  local _, count = out:gsub('fine', '')
  if status ~= 0 or count ~= n then error(('status %s, %d of %d ranks are fine\n%s\n%s'):format(tostring(status), count, n, out, err), 2) end
  return out, err
end

--- `it` for programs of several ranks: fn gets the name of an MPI. Odd ones take the first, others the last.
-- @tparam function it busted's
function M.it(it)
  local turn = 0
  return function(name, fn)
    turn = turn + 1
    local mpi = M.mpis[turn % 2 == 1 and 1 or #M.mpis]
    if not mpi then it(name .. ' (not run: no MPI)', function() end)
    else it(('%s (%s)'):format(name, mpi), function() fn(mpi) end) end
  end
end

return M

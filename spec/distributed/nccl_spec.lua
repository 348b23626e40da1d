-- NCCL's plug-in on emulated GPUs (spec/device/emulator), one card a rank, with the stand-in for NCCL of spec/device/nccl.
-- Ranks are started as PyTorch's launcher does, by their environment, and, once, by amp run.
local assert = require 'luassert'
local H = require 'spec.lib.helper'
local R = require 'spec.distributed.ranks'

local root, build = H.absolute(H.root), H.absolute(H.build)
local folder = os.getenv 'AMP_SPEC_EMULATED' or build .. '/emulated'

local function exists(path)
  local f = io.open(path)
  if f then f:close() end
  return f ~= nil
end
local there = exists(folder .. '/libamp_nccl.so') and exists(folder .. '/libnccl.so.2')

-- Other runs of this file have other ports: a rank that was killed leaves its world's name behind.
local port = 20000 + 3 * ((os.time() * 31 + tonumber((H.read('/proc/self/stat'):match '^%d+'))) % 6000)

-- Checks of checks.lua in n ranks. Output of rank r, its standard error, its status: lists
local function run(n, names, o)
  o = o or {}
  port = port + 3
  local list = { ("export AMP_LIBRARY='%s/amp/libamp.so' AMP_PLUGIN_DIR='%s' AMP_NCCL_LIBRARY='%s/libnccl.so.2' AMP_EMULATED_GPUS=%d;")
    :format(build, folder, folder, o.cards or n) }
  local out, err, status = {}, {}, {}
  for r = 0, n - 1 do
    out[r + 1], err[r + 1], status[r + 1] = H.tmp('out' .. r), H.tmp('err' .. r), H.tmp('status' .. r)
    if r ~= o.missing then
      list[#list + 1] = ("(export RANK=%d LOCAL_RANK=%d WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d CHECK_TIMEOUT=%d;")
        :format(r, r, n, port, o.timeout or 30)
        .. ("%s timeout -k 2 100 luajit '%s' %s >'%s' 2>'%s'; echo $? >'%s') &"):format(o.environment or '',
          o.program or root .. '/spec/distributed/checks.lua', names, out[r + 1], err[r + 1], status[r + 1])
    end
  end
  list[#list + 1] = 'wait'
  H.sh(table.concat(list, '\n'))
  for r = 1, n do
    local given = r - 1 ~= o.missing
    out[r], err[r], status[r] = given and H.read(out[r]) or '', given and H.read(err[r]) or '', given and tonumber((H.read(status[r]))) or nil
  end
  return out, err, status
end

local function passes(n, names, o)
  local out, err, status = run(n, names, o)
  for r = 1, n do
    if status[r] ~= 0 then error(('rank %d: status %s\n%s\n%s'):format(r, tostring(status[r]), out[r], table.concat(err, '\n')), 2) end
  end
  for name in names:gmatch '%S+' do
    for r = 1, n do assert.is_truthy(out[r]:find(name .. ' ok', 1, true)) end
  end
  return err
end

local function it_there(name, fn)
  it(name, there and fn or function() pending 'the emulated NCCL was not built' end)
end

describe('NCCL', function()
  it_there('adds and moves every dtype, in a world of one, two and three', function()
    passes(1, 'alone')
    passes(2, 'reductions moves forms')
    passes(3, 'reductions moves forms')
  end)
  it_there('trains as one process does, in streams as late as they may be', function()
    passes(2, 'ddp scaler sync_batch_norm', { environment = 'AMP_EMULATED_LAZY=1' })
    passes(2, 'zero')
    passes(2, 'forms', { environment = 'AMP_EMULATED_LAZY=1' })
  end)
  it_there('is part of captured steps', function()
    passes(2, 'captured')
  end)
  it_there('sums while backward goes on', function()
    local program = H.tmp 'overlap.lua'
    H.write(program, ([[
      package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
      local amp = require 'amp'
      local nn, dist = amp.nn, amp.distributed
      dist.init { timeout = 20 }
      local layers = {}
      for i = 1, 6 do layers[i] = nn.Linear(16, 16) end
      local net = nn.parallel.DistributedDataParallel(nn.Sequential(unpack(layers)):to 'cuda', { bucket_mb = 0.001 })
      local x = amp.randn(4, 16, { device = 'cuda' })
      local loss = net(x):sum()
      io.stderr:write 'backward begins\n'
      loss:backward()
      io.stderr:write 'backward ends\n'
    ]]):format(root, root))
    local _, err, status = run(2, '', { program = program, environment = 'AMP_NCCL_TRACE=1 AMP_EMULATOR_TRACE=1' })
    for r = 1, 2 do
      assert.equal(0, status[r], err[r])
      local order, launches = {}, 0
      for line in err[r]:match('backward begins\n(.*)backward ends'):gmatch '[^\n]+' do
        if line:find '^nccl all_reduce' then order[#order + 1] = launches
        elseif line:find '^launch' then launches = launches + 1 end
      end
      assert.is_true(#order >= 6)
      assert.is_true(order[1] < launches / 3, 'the first sum is launched late')
      for k = 2, #order do assert.is_true(order[k] >= order[k - 1]) end
      assert.is_true(order[#order] > order[1])
    end
  end)
  it_there('names the rank that is gone, hangs, calls something else or does not come', function()
    local function told(name, pattern, o)
      local out, err, status = run(3, name, o)
      for r = 1, 2 do
        assert.equal(0, status[r], table.concat(out) .. table.concat(err, '\n'))
        assert.is_truthy((out[r] .. err[r]):find(pattern), out[r] .. err[r])
      end
      return status
    end
    assert.equal(137, told('killed', 'rank 3 has ended and does not come to all_reduce', { timeout = 4 })[3])
    assert.equal(9, told('hanging', 'rank 3 did not come to all_reduce%(sum%) of float32 3 within 2 seconds', { timeout = 2 })[3])
    told('captured_killed', 'rank 3 has ended and does not come to', { timeout = 4 })
    passes(3, 'differing', { timeout = 4 }) -- it looks for the names itself
    local _, err, status = run(2, 'forms', { timeout = 2, missing = 1 })
    assert.is_true(status[1] ~= 0)
    assert.is_truthy(err[1]:find('rank 2 did not come to init within 2 seconds', 1, true), err[1])
  end)
  it_there('goes with MPI, which compares calls before NCCL has them', function()
    local mpi = R.mpis[1]
    if not mpi then return end
    local out = H.sh(([[cd /
      export AMP_LIBRARY='%s/amp/libamp.so' AMP_PLUGIN_DIR='%s' AMP_NCCL_LIBRARY='%s/libnccl.so.2' AMP_EMULATED_GPUS=2
      timeout -k 5 100 '%s/lua/bin/amp' run -n 2 --mpi %s '%s/spec/distributed/checks.lua' reductions moves forms ddp agreed 2>&1]])
      :format(build, folder, folder, root, mpi, root))
    for _, name in ipairs { 'reductions', 'moves', 'forms', 'ddp', 'agreed' } do
      local _, count = out:gsub(name .. ' ok', '')
      assert.equal(2, count, out)
    end
  end)
end)

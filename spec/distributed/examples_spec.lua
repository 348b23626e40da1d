-- Examples under amp run: several ranks learn what one does from the whole batch, and go on from each other's checkpoints.
local assert = require 'luassert'
local H = require 'spec.lib.helper'
local R = require 'spec.distributed.ranks'
local several = R.it(it)

local root, build = H.absolute(H.root), H.absolute(H.build)

local function example(n, mpi, words)
  local out, status = H.sh(("cd '%s' && export OMP_NUM_THREADS=1 AMP_LIBRARY='%s/amp/libamp.so' && timeout -k 5 200 %s examples/%s 2>&1"):format(
    root, build, n == 1 and 'luajit' or ('lua/bin/amp run -n %d --mpi %s'):format(n, mpi), words))
  assert.equal(0, status, out)
  return (out:gsub('%[rank 1%] ', ''))
end

describe('examples', function()
  several('gpt.lua: two ranks are one with twice the batch', function(mpi)
    local words = 'gpt.lua --steps 20 --length 32 --width 32 --batch '
    local one, two = example(1, mpi, words .. 4), example(2, mpi, words .. 2)
    for _, what in ipairs { 'step     1  loss ([%d.]+)', 'step    20  loss ([%d.]+)', 'held%-out  loss ([%d.]+)' } do
      local a, b = tonumber(one:match(what)), tonumber(two:match(what))
      assert.is_true(math.abs(a - b) < 2e-3, a .. ' and ' .. b)
    end
    assert.is_falsy(two:find 'rank 2')
  end)
  several('imagenet.lua: rank 1 writes, another number of ranks goes on', function(mpi)
    local path = H.tmp 'imagenet.amp'
    os.remove(path)
    local words = 'imagenet.lua --size 24 --drawn 64 --batch 8 --epochs 2 --checkpoint ' .. path
    local first = example(2, mpi, words .. ' --stop 1')
    assert.is_truthy(first:find 'epoch 1 of 2, loss %d')
    local second = example(3, mpi, words)
    assert.is_truthy(second:find 'going on after epoch 1')
    assert.is_truthy(second:find 'epoch 2 of 2, loss %d')
    assert.is_falsy((first .. second):find 'rank [23]')
  end)
end)

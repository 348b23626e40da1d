--- The quickstart: a short run learns, its table reads well, an interrupted run resumes bit for bit.
local H = require 'spec.lib.helper'

local function run(options)
  local root, build = H.absolute(H.root), H.absolute(H.build)
  return H.sh((
    "cd '%s' && LUA_PATH='lua/?.lua;lua/?/init.lua;;' AMP_LIBRARY='%s/amp/libamp.so' luajit examples/quickstart.lua %s"):format(root, build, options))
end

describe('quickstart', function()
  it('prints a row a precision: accuracy, seconds, memory, casts, scale, skipped', function()
    local out, status = run '--epochs 1 --quiet'
    assert.equal(0, status, out)
    for _, precision in ipairs { 'float32', 'bfloat16', 'float16' } do
      local row = out:match('| ' .. precision .. ' [^\n]+')
      assert.is_string(row, out)
      local accuracy, seconds, peak, casts, scale, skipped =
        row:match '|%s*([%d.]+) %% |%s*([%d.]+) |%s*([%d.]+) MiB |%s*([%d.]+) |%s*(%S+) |%s*([%d.]+) |'
      assert.is_not_nil(accuracy, row)
      assert.is_true(tonumber(accuracy) > 88, row)
      assert.is_true(tonumber(seconds) > 0 and tonumber(peak) > 1, row)
      if precision == 'float32' then assert.equal(0, tonumber(casts)) else assert.is_true(tonumber(casts) > 0, row) end
      if precision == 'float16' then assert.is_true(tonumber(scale) >= 1, row) else assert.equal(1, tonumber(scale)) end
      assert.is_not_nil(skipped)
    end
  end)
  it('interrupted and resumed, the loss path is the same to the last bit', function()
    for _, precision in ipairs { 'float16', 'bfloat16' } do
      local base = ('--quiet --epochs 1 --precision %s --seeds 3'):format(precision)
      local whole, part, saved = H.tmp('whole-' .. precision), H.tmp('part-' .. precision), H.tmp('run-' .. precision)
      local out, status = run(('%s --loss-log %s'):format(base, whole))
      assert.equal(0, status, out)
      out, status = run(('%s --loss-log %s --checkpoint %s --stop-after 31'):format(base, part, saved))
      assert.equal(0, status, out)
      out, status = run(('%s --loss-log %s --resume %s'):format(base, part, saved))
      assert.equal(0, status, out)
      local a, b = H.read(whole), H.read(part)
      assert.equal(85, select(2, a:gsub('\n', '')))
      assert.is_true(a == b, precision .. ': the resumed losses differ')
    end
  end)
  it('names a wrong option, a missing folder', function()
    local out, status = run '--epoch 1'
    assert.are_not.equal(0, status)
    assert.is_true(out:find('--epoch', 1, true) ~= nil, out)
    out, status = run '--data /nowhere --epochs 1'
    assert.are_not.equal(0, status)
    assert.is_true(out:find('/nowhere', 1, true) ~= nil, out)
  end)
end)

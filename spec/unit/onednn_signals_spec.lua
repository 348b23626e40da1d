--- oneDNN's products before 3.12 let the stack pointer point into the heap. A signal whose handler runs then would write there.
local H = require 'spec.lib.helper'
local onednn = io.open(H.build .. '/amp/libamp_onednn.so')
if onednn then onednn:close() end
local PROGRAM = 'spec/train/programs/signals_in_products.lua'

describe('signals while oneDNN multiplies', function()
  local plain = not os.getenv 'AMP_SPEC_SANITIZED' -- a sanitizer's own allocator does not look at what lies between blocks
  local case = onednn and plain and it or function(name) pending(name .. ' (needs oneDNN and the plain build)', function() end) end
  for _, threads in ipairs { 1, 2 } do
    case(('leave the heap as it is, %d thread%s'):format(threads, threads > 1 and 's' or ''), function()
      local env = ("OMP_NUM_THREADS=2 AMP_ONEDNN=1 AMP_PLUGIN_DIR=%s/amp LUA_PATH='./lua/?.lua;./lua/?/init.lua;;' "):format(H.build)
      assert.equal(0, os.execute(('%stimeout -k 1 120 luajit %s 2 %d >/dev/null 2>&1'):format(env, PROGRAM, threads)))
    end)
  end
end)

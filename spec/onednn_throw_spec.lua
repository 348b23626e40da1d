--- oneDNN is C++: where memory is short its operator new throws. Nothing of that may cross a frame of C.
local H = require 'spec.helper'

describe('oneDNN without memory', function()
  it('leaves products and convolutions right, whichever allocation throws', function()
    local lib = os.tmpname() .. '.so'
    if os.execute('g++ -shared -fPIC -O1 -o ' .. H.quote(lib) .. ' spec/programs/throwing_new.cpp 2>/dev/null') ~= 0 then return end
    local rc = os.execute('LD_PRELOAD=' .. H.quote(lib) ..
      " OMP_NUM_THREADS=1 LUA_PATH='./lua/?.lua;./lua/?/init.lua;;' luajit spec/programs/throwing_new.lua >/dev/null 2>&1")
    os.remove(lib)
    assert.equal(0, rc)
  end)
end)

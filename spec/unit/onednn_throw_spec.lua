--- oneDNN is C++: where memory is short its operator new throws. Nothing of that may cross a frame of C.
local H = require 'spec.lib.helper'
local has_compiler = os.execute 'command -v g++ >/dev/null 2>&1' == 0
local onednn = io.open(H.build .. '/amp/libamp_onednn.so')
if onednn then onednn:close() end

local ENV = "OMP_NUM_THREADS=1 AMP_ONEDNN=1 AMP_PLUGIN_DIR=" .. H.build .. "/amp LUA_PATH='./lua/?.lua;./lua/?/init.lua;;' "
local CHECK = [[ -e "local amp = require 'amp' local a = amp.ones(130, 130)
  local ok, v = pcall(function() return amp.matmul(a, a):sum():item() end)
  if ok then assert(v == 2197000) else assert(tostring(v):find 'memory') end" >/dev/null 2>&1]]

local function needs(what, there) return there and it or function(name) pending(name .. ' (needs ' .. what .. ')', function() end) end end

describe('oneDNN without memory', function()
  needs('g++ and oneDNN', has_compiler and onednn)('leaves products and convolutions right, whichever allocation throws', function()
    local lib = os.tmpname() .. '.so'
    assert.equal(0, os.execute('g++ -shared -fPIC -O1 -o ' .. H.quote(lib) .. ' spec/train/programs/throwing_new.cpp'))
    local rc = os.execute('LD_PRELOAD=' .. H.quote(lib) .. ' ' .. ENV .. 'luajit spec/train/programs/throwing_new.lua >/dev/null 2>&1')
    os.remove(lib)
    assert.equal(0, rc)
  end)
  needs('g++ and oneDNN', has_compiler and onednn)('is not loaded where its initialisers throw, and products are right', function()
    local lib = os.tmpname() .. '.so'
    assert.equal(0, os.execute('g++ -shared -fPIC -O1 -o ' .. H.quote(lib) .. ' spec/train/programs/throwing_new.cpp'))
    local function first(n)
      local command = 'timeout -k 1 60 luajit spec/train/programs/throwing_load.lua ' .. n .. ' >/dev/null 2>&1'
      return os.execute('LD_PRELOAD=' .. H.quote(lib) .. ' ' .. ENV .. command)
    end
    for _, n in ipairs {1, 2, 3, 10, 40} do assert.equal(0, first(n), n) end
    assert.equal(0, first(0))
    os.remove(lib)
  end)
  needs('oneDNN', onednn)('is not loaded where there is no room for it', function()
    for limit = 44000, 60000, 1000 do -- KiB: libraries that fit just so, and what they then allocate
      local rc = os.execute('sh -c ' .. H.quote('ulimit -v ' .. limit .. ' && ' .. ENV .. 'luajit' .. CHECK))
      assert.equal(0, rc, limit .. ' KiB')
    end
  end)
end)

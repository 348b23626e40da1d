--- Installing: LuaRocks into a tree of its own without a network, use from elsewhere; pkg-config; ABI.
local H = require 'spec.helper'

describe('luarocks make', function()
  local tree = H.tmp 'tree'
  local root = H.absolute(H.root)
  local have = os.execute 'command -v luarocks >/dev/null 2>&1' == 0
  local installed

  it('builds and installs the rockspec into a tree, with no network', function()
    if not have then return pending 'luarocks is not installed here' end
    if os.getenv 'AMP_SPEC_SANITIZED' then return pending 'once is enough' end
    local copy = H.tmp 'source'
    local out, status = H.sh(("mkdir -p '%s' && cd '%s' && tar cf - --exclude='./build*' --exclude=./.git . | tar xf - -C '%s'"):format(copy, root, copy))
    assert.equal(0, status, out)
    out, status = H.sh(("cd '%s' && http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 CMAKE_BUILD_PARALLEL_LEVEL=2 "
      .. "luarocks --lua-version=5.1 --tree='%s' make rockspec/amp-scm-1.rockspec"):format(copy, tree))
    assert.equal(0, status, out:sub(-3000))
    installed = true
  end)

  local function elsewhere(code)
    local script = H.tmp 'elsewhere.lua'
    H.write(script, code)
    return H.sh(("cd / && env -u AMP_LIBRARY LUA_PATH='%s/share/lua/5.1/?.lua;%s/share/lua/5.1/?/init.lua;;' LUA_CPATH='%s/lib/lua/5.1/?.so;;' luajit '%s'")
      :format(tree, tree, tree, script))
  end
  it('is found from any folder and works', function()
    if not installed then return pending 'not installed' end
    local out, status = elsewhere [[
      local amp = require 'amp'
      local version, lua, library = amp.version()
      print(version, lua, library)
      local net = amp.nn.Sequential(amp.nn.Linear(3, 4), amp.nn.ReLU(), amp.nn.Linear(4, 1))
      local opt = amp.optim.SGD(net:parameters(), { lr = 0.1 })
      local loss = amp.autocast(function() return net(amp.ones(2, 3)):square():mean() end)
      loss:backward()
      opt:step():clear_grad()
      print(loss:item() >= 0 and 'works')]]
    assert.equal(0, status, out)
    assert.is_true(out:find(tree, 1, true) ~= nil, out)
    assert.is_true(out:find('works', 1, true) ~= nil, out)
  end)
  it('brings the command', function()
    if not installed then return pending 'not installed' end
    H.write(H.tmp 'hello.lua', "local amp = require 'amp' print('hello', amp.ones(2):sum():item(), arg[1])")
    local out, status = H.sh((
      "cd / && LUA_PATH='%s/share/lua/5.1/?.lua;%s/share/lua/5.1/?/init.lua;;' LUA_CPATH='%s/lib/lua/5.1/?.so;;' '%s/bin/amp' '%s' there")
      :format(tree, tree, tree, tree, H.tmp 'hello.lua'))
    assert.equal(0, status, out)
    assert.is_true(out:find('hello\t2\tthere', 1, true) ~= nil, out)
  end)
  it('leaves nothing in the source folder but the build folder', function()
    if not installed then return pending 'not installed' end
    local out = H.sh(("cd '%s' && ls -d */ *.so *.rock 2>/dev/null | sort | tr '\\n' ' '"):format(H.tmp 'source'))
    assert.is_nil(out:find('.so', 1, true), out)
    assert.is_nil(out:find('.rock ', 1, true), out)
  end)
end)

describe('cmake --install', function()
  it('puts the library, the Lua tree, the header and a pkg-config file in place', function()
    if os.getenv 'AMP_SPEC_SANITIZED' then return pending 'once is enough' end
    local prefix = H.tmp 'prefix'
    local out, status = H.sh(("cmake --install '%s' --prefix '%s'"):format(H.absolute(H.build), prefix))
    assert.equal(0, status, out)
    local files = H.sh(("cd '%s' && find . -type f"):format(prefix))
    for _, name in ipairs { 'libamp.so', 'amp/init.lua', 'include/amp.h', 'amp.pc' } do
      assert.is_true(files:find(name, 1, true) ~= nil, name .. ' is missing in\n' .. files)
    end
  end)
end)

describe('the library', function()
  local lib = H.absolute(H.build) .. '/amp/libamp.so'
  it('exports what amp.h declares and nothing of another prefix', function()
    local header = H.read(H.root .. '/src/amp.h')
    local declared = {}
    for name in header:gmatch 'AMP_API [^;(]-%**(amp_[%w_]+)%s*%(' do declared[name] = true end
    assert.is_not_nil(declared.amp_op2)
    local symbols = H.sh(("nm -D --defined-only '%s'"):format(lib))
    local found = {}
    for name in symbols:gmatch '%x+ [TDBRVW] (%S+)' do
      found[name] = true
      local ours = name:match '^amp_' or name:match '^_' or name:match '%.resolver$' -- the last are GCC's, of target_clones
      if not os.getenv 'AMP_SPEC_SANITIZED' then assert.is_true(ours ~= nil, 'exports ' .. name) end
    end
    for name in pairs(declared) do assert.is_true(found[name] == true, 'does not export ' .. name) end
  end)
  it('stays loaded: an uncaught error with live tensors ends with status 1, not a crash', function()
    local _, status = H.child "local keep = {} for i = 1, 100 do keep[i] = amp.zeros(10) end error 'over'"
    assert.equal(1, status)
  end)
  it('survives os.exit with and without closing the state', function()
    for _, how in ipairs { 'os.exit(0)', 'os.exit(0, true)' } do
      local out, status = H.child('local t = amp.zeros(10, { requires_grad = true }) local y = (t * 2):sum() ' .. how)
      assert.equal(0, status, out)
    end
  end)
  it('an ABI that does not fit is refused with both paths', function()
    local out, status = H.sh(("cd '%s' && AMP_LIBRARY=/nowhere/libamp.so LUA_PATH='lua/?.lua;lua/?/init.lua;;' luajit -e \"require 'amp'\"")
      :format(H.absolute(H.root)))
    assert.are_not.equal(0, status)
    assert.is_true(out:find('/nowhere/libamp.so', 1, true) ~= nil, out)
  end)
  it('a library older than the Lua files is named, with both paths', function()
    local out, status = H.child [[]] -- the plain case works
    assert.equal(0, status, out)
    out, status = H.sh(([[cd '%s' && AMP_LIBRARY='%s/amp/libamp.so' LUA_PATH='lua/?.lua;lua/?/init.lua;;' luajit -e "
      package.preload['amp.ops'] = function() return require('amp.ffi').C.amp_of_another_age end
      require 'amp'"]]):format(H.absolute(H.root), H.absolute(H.build)))
    assert.are_not.equal(0, status)
    for _, piece in ipairs { 'has no amp_of_another_age', 'amp/libamp.so', 'lua/amp/', 'build again' } do
      assert.is_true(out:find(piece, 1, true) ~= nil, out)
    end
  end)
  it('asks for LuaJIT when another Lua loads it', function()
    if os.execute 'command -v lua5.1 >/dev/null 2>&1' ~= 0 then return pending 'no lua5.1 here' end
    local out = H.sh(("cd '%s' && LUA_PATH='lua/?.lua;lua/?/init.lua;;' lua5.1 -e \"require 'amp'\""):format(H.absolute(H.root)))
    assert.is_true(out:find('LuaJIT', 1, true) ~= nil, out)
  end)
end)

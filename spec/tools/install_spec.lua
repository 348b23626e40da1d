--- Installing: LuaRocks into trees of its own without a network, from the source tree, a packed source rock and a
-- binary rock; use from elsewhere; CMake's install; versions that agree, and refuse each other where they don't.
local H = require 'spec.lib.helper'

local root = H.absolute(H.root)
local have = os.execute 'command -v luarocks >/dev/null 2>&1' == 0
local once = os.getenv 'AMP_SPEC_SANITIZED'

-- A copy of the sources without builds, which LuaRocks may write into
local source = H.tmp 'source'
local function copy()
  local out, status = H.sh(("mkdir -p '%s' && cd '%s' && tar cf - --exclude='./build*' --exclude=./.git . | tar xf - -C '%s'"):format(source, root, source))
  assert.equal(0, status, out)
  -- what is tested is where things go: the compiler need not optimize, nor compile a file again that has not changed
  H.write(H.tmp 'quick-cc', ([[#!/bin/sh
    if command -v ccache >/dev/null 2>&1; then
      CCACHE_DIR='%s' CCACHE_BASEDIR='%s' CCACHE_NOHASHDIR=1 exec ccache cc "$@" -O0
    fi
    exec cc "$@" -O0]]):format(H.tmp 'compiled', H.tmp '.'))
  os.execute(("chmod +x '%s'"):format(H.tmp 'quick-cc'))
end

local function luarocks(tree, command)
  return H.sh(("cd '%s' && CC='%s' http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 CMAKE_BUILD_PARALLEL_LEVEL=2 "
    .. "luarocks --lua-version=5.1 --tree='%s' %s"):format(source, H.tmp 'quick-cc', H.tmp(tree), command))
end

-- Lua's paths into a tree
local function paths(tree)
  tree = H.tmp(tree)
  return ("env -u AMP_LIBRARY LUA_PATH='%s/share/lua/5.1/?.lua;%s/share/lua/5.1/?/init.lua;;' LUA_CPATH='%s/lib/lua/5.1/?.so;;'"):format(tree, tree, tree)
end

-- The installed amp trains a step, from another folder
local function works(tree)
  H.write(H.tmp 'elsewhere.lua', [[
    local amp = require 'amp'
    local version, lua, library = amp.version()
    print(version, lua, library)
    local net = amp.nn.Sequential(amp.nn.Linear(3, 4), amp.nn.ReLU(), amp.nn.Linear(4, 1))
    local opt = amp.optim.SGD(net:parameters(), { lr = 0.1 })
    local loss = amp.autocast(function() return net(amp.ones(2, 3)):square():mean() end)
    loss:backward()
    opt:step():clear_grad()
    print(loss:item() >= 0 and 'works')]])
  local out, status = H.sh(("cd / && %s luajit '%s'"):format(paths(tree), H.tmp 'elsewhere.lua'))
  assert.equal(0, status, out)
  assert.is_true(out:find(H.tmp(tree) .. '/share', 1, true) ~= nil, out)
  assert.is_true(out:find(H.tmp(tree) .. '/lib', 1, true) ~= nil, out)
  assert.is_true(out:find('works', 1, true) ~= nil, out)
end

describe('luarocks make', function()
  local installed
  it('builds and installs the rockspec into a tree, with no network', function()
    if not have then return pending 'luarocks is not installed here' end
    if once then return pending 'once is enough' end
    copy()
    local out, status = luarocks('tree', 'make rockspec/amp-scm-1.rockspec AMP_CUDA=OFF')
    assert.equal(0, status, out:sub(-3000))
    installed = true
  end)
  it('makes amp that is found from any folder and works', function()
    if not installed then return pending 'not installed' end
    works 'tree'
  end)
  it('brings the command', function()
    if not installed then return pending 'not installed' end
    H.write(H.tmp 'hello.lua', "local amp = require 'amp' print('hello', amp.ones(2):sum():item(), arg[1])")
    local out, status = H.sh(("cd / && %s '%s/bin/amp' '%s' there"):format(paths 'tree', H.tmp 'tree', H.tmp 'hello.lua'))
    assert.equal(0, status, out)
    assert.is_true(out:find('hello\t2\tthere', 1, true) ~= nil, out)
  end)
  it('leaves nothing in the source folder but the build folder', function()
    if not installed then return pending 'not installed' end
    local out = H.sh(("cd '%s' && ls -d */ *.so *.rock 2>/dev/null | sort | tr '\\n' ' '"):format(source))
    assert.is_nil(out:find('.so', 1, true), out)
    assert.is_nil(out:find('.rock ', 1, true), out)
  end)
  it('without arguments finds a rockspec, and takes the other version as well', function()
    if not installed then return pending 'not installed' end
    local out, status = luarocks('tree', 'make rockspec/amp-0.2.0-1.rockspec AMP_CUDA=OFF') -- over the one that is there
    assert.equal(0, status, out:sub(-3000))
    assert.is_not_nil(out:find 'amp 0%.2%.0%-1 is now installed', out:sub(-1000))
    works 'tree'
    out, status = luarocks('tree', 'make AMP_CUDA=OFF')
    assert.equal(0, status, out:sub(-3000))
    works 'tree'
  end)
  it('gives up the plug-ins that it is told to', function()
    if not installed then return pending 'not installed' end
    local out, status = luarocks('bare', 'make rockspec/amp-scm-1.rockspec AMP_CUDA=OFF AMP_ONEDNN=OFF AMP_LAPACK=OFF AMP_MPI=OFF')
    assert.equal(0, status, out:sub(-3000))
    local files = H.sh(("cd '%s/lib/lua/5.1/amp' && ls"):format(H.tmp 'bare'))
    assert.equal('libamp.so\n', files)
    works 'bare'
  end)
  it('runs the tests it is given', function()
    if not installed then return pending 'not installed' end
    local out, status = luarocks('tree', 'test rockspec/amp-scm-1.rockspec -- rules')
    assert.is_not_nil(out:find '\n[1-9]%d* passed, %d+ failed\n', out)
    assert.equal(out:find '\n%d+ passed, 0 failed\n' ~= nil, status == 0, out)
    out, status = luarocks('tree', 'test rockspec/amp-scm-1.rockspec -- nothing_like_it')
    assert.are_not.equal(0, status)
    assert.is_not_nil(out:find('no stage or spec file nothing_like_it', 1, true), out)
  end)
end)

describe('a packed rock', function()
  local packed
  it('of the sources installs without a network', function()
    if not have then return pending 'luarocks is not installed here' end
    if once then return pending 'once is enough' end
    local out, status = H.sh(("cd '%s' && mkdir rocks && touch src/left.o && sh rockspec/pack.sh scm-1 rocks && sh rockspec/pack.sh 0.2.0-1 rocks")
      :format(source))
    assert.equal(0, status, out)
    out = H.sh(("unzip -l '%s/rocks/amp-0.2.0-1.src.rock'"):format(source))
    for _, name in ipairs { ' amp-0.2.0-1.rockspec', ' CMakeLists.txt', ' src/amp.h', ' lua/bin/amp', ' LICENSE' } do
      assert.is_true(out:find(name, 1, true) ~= nil, name .. ' is missing in\n' .. out)
    end
    assert.is_nil(out:find 'build%.luarocks', out)
    assert.is_nil(out:find('left.o', 1, true), out)
    out, status = luarocks('from_source', 'install rocks/amp-0.2.0-1.src.rock AMP_CUDA=OFF')
    assert.equal(0, status, out:sub(-3000))
    works 'from_source'
    packed = true
  end)
  it('of the binaries is made of an installed one and installs elsewhere', function()
    if not packed then return pending 'not installed' end
    local out, status = luarocks('from_source', 'pack amp')
    assert.equal(0, status, out)
    out, status = luarocks('from_binary', 'install ./amp-0.2.0-1.linux-*.rock')
    assert.equal(0, status, out)
    works 'from_binary'
  end)
  it('has what C programs need beside the rock', function()
    if not packed then return pending 'not installed' end
    if os.execute 'command -v pkg-config >/dev/null 2>&1' ~= 0 then return pending 'no pkg-config here' end
    local rock = luarocks('from_binary', 'show --rock-dir amp'):match '%S+'
    for _, name in ipairs { 'doc/LICENSE', 'include/amp.h', 'examples/guide/amp.meta.lua', 'examples/embed/linear.c' } do
      assert.is_true(io.open(rock .. '/' .. name) ~= nil, name)
    end
    local out, status = H.sh(([[cd '%s/examples/embed' && export PKG_CONFIG_PATH='%s/pkgconfig' &&
      cc linear.c $(pkg-config --cflags --libs amp) -lm -o '%s' && '%s' && cmake -S . -B '%s' -DCMAKE_PREFIX_PATH='%s' && cmake --build '%s' --target linear]])
      :format(source, rock, H.tmp 'linear', H.tmp 'linear', H.tmp 'cmake', rock, H.tmp 'cmake'))
    assert.equal(0, status, out)
    assert.is_not_nil(out:find('b 0.25', 1, true), out)
  end)
  it('of a version that there is not says which there are', function()
    if once then return pending 'once is enough' end
    local out, status = H.sh(("cd '%s' && sh rockspec/pack.sh 9.9-1 '%s'"):format(root, H.tmp ''))
    assert.equal(1, status)
    assert.is_not_nil(out:find('0.2.0-1', 1, true), out)
    assert.is_not_nil(out:find('scm-1', 1, true), out)
  end)
end)

describe('cmake --install', function()
  it('puts the library, the Lua tree, the header and a pkg-config file in place', function()
    if os.getenv 'AMP_SPEC_SANITIZED' then return pending 'once is enough' end
    local prefix = H.tmp 'prefix'
    local out, status = H.sh(("cmake --install '%s' --prefix '%s'"):format(H.absolute(H.build), prefix))
    assert.equal(0, status, out)
    local files = H.sh(("cd '%s' && find . -type f"):format(prefix))
    for _, name in ipairs { 'libamp.so', 'amp/init.lua', 'include/amp.h', 'include/amp_ops.def', 'amp.pc', 'cmake/amp/amp-config.cmake', 'bin/amp' } do
      assert.is_true(files:find(name, 1, true) ~= nil, name .. ' is missing in\n' .. files)
    end
    out, status = H.sh(("cd / && env -u AMP_LIBRARY -u LUA_PATH -u LUA_CPATH '%s/bin/amp' --version"):format(prefix))
    assert.equal(0, status, out)
    assert.is_true(out:find(prefix .. '/bin/../share', 1, true) ~= nil or out:find(prefix .. '/share', 1, true) ~= nil, out)
  end)
end)

describe('the version', function()
  it('is the same everywhere', function()
    local version = H.read(H.root .. '/src/amp.h'):match '#define AMP_VERSION "([^"]+)"'
    assert.equal(version, (require('amp').version()))
    assert.equal(version, require('amp.ffi').VERSION)
    assert.equal(require('ffi').string(require('amp.ffi').C.amp_version()), version)
    local release = H.read(H.root .. '/rockspec/amp-' .. version .. '-1.rockspec')
    local scm = H.read(H.root .. '/rockspec/amp-scm-1.rockspec')
    assert.equal(version .. '-1', release:match '\nversion = "([^"]+)"')
    assert.equal('scm-1', scm:match '\nversion = "([^"]+)"')
    assert.equal((release:gsub('version = "[^"]*"', '')), (scm:gsub('version = "[^"]*"', '')), 'the rockspecs differ in more than the version')
    assert.equal(tonumber(H.read(H.root .. '/src/amp.h'):match 'AMP_ABI = (%d+)'), require('amp.ffi').ABI)
  end)
  it('and the licence too', function()
    assert.equal('MIT License', (H.read(H.root .. '/LICENSE'):match '^[^\n]+'))
    assert.equal('MIT', (H.read(H.root .. '/rockspec/amp-scm-1.rockspec'):match 'license = "([^"]+)"'))
    assert.is_not_nil(H.read(H.root .. '/README.md'):find 'MIT, see %[LICENSE%]')
  end)
end)

describe('the library', function()
  local lib = H.absolute(H.build) .. '/amp/libamp.so'
  it('exports nothing of another prefix', function()
    if once then return pending 'a sanitizer has symbols of its own' end
    local symbols = H.sh(("nm -D --defined-only '%s'"):format(lib))
    for name in symbols:gmatch '%x+ [TDBRVW] (%S+)' do
      local ours = name:match '^amp_' or name:match '^_' or name:match '%.resolver$' -- the last are GCC's, of target_clones
      assert.is_true(ours ~= nil, 'exports ' .. name)
    end
  end)
  it('is small: at most 3.5 MiB when stripped, as GCC makes it for x86-64', function()
    local cache = H.read(H.absolute(H.build) .. '/CMakeCache.txt')
    if jit.arch ~= 'x64' then return pending 'only x86-64 has a limit' end
    if once or not cache:find '\nAMP_SANITIZE:%w+=OFF\n' then return pending 'a sanitizer makes more code' end
    if not cache:find '\nCMAKE_BUILD_TYPE:%w+=Release\n' then return pending 'no release' end
    if not H.sh(("strings -a '%s'"):format(lib)):find '\nGCC: ' then return pending 'made by another compiler, or strings is not here' end
    local out, status = H.sh(("strip -o '%s' '%s'"):format(H.tmp 'small.so', lib))
    assert.equal(0, status, out)
    local size = assert(io.open(H.tmp 'small.so', 'rb')):seek 'end'
    assert.is_true(size > 2 ^ 20, 'that is no library')
    assert.is_true(size <= 3.5 * 2 ^ 20, ('%d bytes; what became large: nm -S --size-sort %s'):format(size, lib))
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
  -- A copy of the Lua files whose ffi.lua was changed, with the library that was built
  local function other(from, to)
    local tree = H.tmp 'other'
    H.sh(("rm -rf '%s' && mkdir -p '%s' && cp -r '%s/lua/amp' '%s/amp'"):format(tree, tree, H.absolute(H.root), tree))
    local text, n = H.read(tree .. '/amp/ffi.lua'):gsub(from, to)
    assert.equal(1, n)
    H.write(tree .. '/amp/ffi.lua', text)
    return H.sh(("cd / && AMP_LIBRARY='%s' LUA_PATH='%s/?.lua;%s/?/init.lua;;' luajit -e \"require 'amp'\""):format(lib, tree, tree))
  end
  it('and Lua files of another version refuse each other, with both paths', function()
    for _, change in ipairs { { "M%.VERSION = '[^']*'", "M.VERSION = '0.0.7'", '0.0.7' }, { 'M%.ABI = %d+', 'M.ABI = 77', 'ABI 77' } } do
      local out, status = other(change[1], change[2])
      assert.equal(1, status, out)
      for _, piece in ipairs { lib, H.tmp 'other' .. '/amp/', change[3], 'two installations are mixed', 'reinstall amp' } do
        assert.is_true(out:find(piece, 1, true) ~= nil, piece .. ' is not in: ' .. out)
      end
    end
  end)
  it('that is not there, or is none of ours, is named', function()
    H.write(H.tmp 'text.so', 'no library')
    for _, path in ipairs { '/nowhere/libamp.so', H.tmp 'text.so', '/lib/x86_64-linux-gnu/libm.so.6', '/lib64/libm.so.6' } do
      if path:find '^/nowhere' or path == H.tmp 'text.so' or io.open(path) then
        local out, status = H.sh(("cd '%s' && AMP_LIBRARY='%s' LUA_PATH='lua/?.lua;lua/?/init.lua;;' luajit -e \"require 'amp'\"")
          :format(H.absolute(H.root), path))
        assert.equal(1, status)
        assert.is_true(out:find(path, 1, true) ~= nil, out)
        assert.is_nil(out:find('PANIC', 1, true), out)
        if path:find 'libm%.so' then assert.is_not_nil(out:find("is not amp's library", 1, true), out) end
      end
    end
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

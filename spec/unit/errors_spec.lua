--- Errors as objects and as strings; a host in C that takes their text.
local amp = require 'amp'
local err = require 'amp.error'
local H = require 'spec.lib.helper'

local function in_strings(fn)
  return function()
    assert.equal('object', amp.errors 'string')
    local ok, e = pcall(fn)
    amp.errors 'object'
    if not ok then error(e, 0) end
  end
end

describe("amp.errors 'string'", function()
  it('makes errors their text, at the line', in_strings(function()
    local ok, e = pcall(function() local y = amp.matmul(amp.ones(2, 3), amp.ones(2, 3)) return y end)
    assert.is_false(ok)
    assert.equal('string', type(e))
    assert.is_truthy(e:find('errors_spec.lua:17:', 1, true), e)
    assert.is_truthy(e:find('2x3', 1, true), e)
  end))
  it('keeps code, op and trace within reach', in_strings(function()
    local _, e = pcall(amp.matmul, amp.ones(2, 3), amp.ones(2, 3))
    local object = amp.last_error()
    assert.equal('shape', object.code)
    assert.equal('matmul', object.op)
    assert.is_truthy(amp.traceback():find('stack traceback', 1, true))
    assert.is_true(err.of(e) == object)
    assert.is_nil(err.of 'another')
  end))
  it('passes regions and hooks, and places errors of functions without a line', in_strings(function()
    local _, e = pcall(function() local r = amp.autocast(function() local y = amp.ones(2, 3):matmul(amp.ones(2, 3)) return y end) return r end)
    assert.equal('string', type(e))
    assert.is_truthy(e:find('errors_spec.lua:', 1, true), e)
    _, e = pcall(function() local r = amp.no_grad(amp.matmul, amp.ones(2, 3), amp.ones(2, 3)) return r end)
    assert.equal('string', type(e))
    assert.is_truthy(e:find('errors_spec.lua:', 1, true), e)
    _, e = pcall(function() local r = amp.autocast(function() error('mine', 0) end) return r end)
    assert.equal('mine', e)
  end))
  it('passes modules', in_strings(function()
    local net = amp.nn.Sequential(amp.nn.Linear(2, 3), amp.nn.Linear(4, 5))
    local _, e = pcall(function() local y = net(amp.ones(1, 2)) return y end)
    assert.is_truthy(e:find('in module 2 of nn.Sequential', 1, true), e)
  end))
  it('is switched back, and refuses other words', function()
    assert.equal('object', amp.errors())
    local _, e = pcall(amp.matmul, amp.ones(2, 3), amp.ones(2, 3))
    assert.equal('table', type(e))
    H.fails_here(function() amp.errors 'text' end, "'object'", "'string'")
  end)
end)

describe('a host in C that calls lua_tostring', function()
  it('gets the text', function()
    local out = H.sh('pkg-config --exists luajit && command -v cc || echo no')
    if out:find 'no' then return pending 'no cc or no libluajit here' end
    H.write(H.tmp 'host.c', [[
#include <stdio.h>
#include <lua.h>
#include <lauxlib.h>
#include <lualib.h>
int main(void) {
  lua_State *L = luaL_newstate();
  luaL_openlibs(L);
  if (luaL_dostring(L, "local amp = require 'amp' amp.errors 'string'")) return 2;
  if (luaL_dostring(L, "local amp = require 'amp'\nlocal y = amp.ones(2, 3) + amp.ones(4)\nreturn y") == 0) return 3;
  const char *text = lua_tostring(L, -1);
  printf("%s\n", text ? text : "(null)");
  lua_close(L);
  return 0;
}
]])
    local build, status = H.sh(("cc '%s' $(pkg-config --cflags --libs luajit) -o '%s'"):format(H.tmp 'host.c', H.tmp 'host'))
    assert.equal(0, status, build)
    local root = H.absolute(H.root)
    out, status = H.sh(("cd / && LUA_PATH='%s/lua/?.lua;%s/lua/?/init.lua;;' LUA_CPATH='%s/?.so;;' '%s'"):format(root, root, H.absolute(H.build), H.tmp 'host'))
    assert.equal(0, status, out)
    assert.is_truthy(out:find('2: amp.add: shapes 2x3 and 4', 1, true), out)
  end)
end)

describe('traces', function()
  local function trace(code)
    H.write(H.tmp 'trace.lua', code)
    local root = H.absolute(H.root)
    return (H.sh(("cd / && LUA_CPATH='%s/?.so;;' luajit '%s/lua/bin/amp' '%s' 2>&1"):format(H.absolute(H.build), root, H.tmp 'trace.lua')))
  end
  it('begin with the frame that raised', function()
    local out = trace [[
local amp = require 'amp'
local function f() local t = nil; local y = t.x return y end
local function g() local r = f() return r end
g()]]
    local first = out:match 'stack traceback:\n([^\n]*)'
    assert.is_truthy(first and first:find("in function 'f'", 1, true) and first:find(':2:', 1, true), out)
    assert.is_truthy(out:find("in function 'g'", 1, true), out)
    assert.is_truthy(out:find('4: in main chunk', 1, true), out)
  end)
  it('of the main chunk are not empty', function()
    for _, code in ipairs { 'error("x")', 'local t = nil local y = t.x', 'require("amp").ones(2):view(3)', 'error({})' } do
      local out = trace(code)
      assert.is_truthy(out:find('1: in main chunk', 1, true), out)
    end
  end)
end)

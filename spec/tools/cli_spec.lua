--- The command amp: scripts with arguments, code on the command line, errors as users want them, exit codes.
local H = require 'spec.lib.helper'

local root, build = H.absolute(H.root), H.absolute(H.build)
local library = ("AMP_LIBRARY='%s/amp/libamp.so' "):format(build)
local command = ("'%s/lua/bin/amp'"):format(root)

-- standard output, standard error, status
local function amp(arguments, input)
  local err = H.tmp 'stderr'
  local out, status = H.sh(("cd / && (%s%s %s %s 2>'%s')"):format(input and ("printf '%s' | "):format(input) or '',
    library, command, arguments, err))
  return out, H.read(err), status
end
local function script(text, name)
  local path = H.tmp(name or 'script.lua')
  H.write(path, text)
  return "'" .. path .. "'"
end
local function has(text, ...)
  for _, piece in ipairs { ... } do
    if not text:find(piece, 1, true) then error(('"%s" is not in:\n%s'):format(piece, text), 2) end
  end
end

describe('amp script.lua', function()
  it('runs it from any folder, with its arguments as luajit gives them', function()
    local path = script [[
      local amp = require 'amp'
      print(amp.ones(2):sum():item(), select('#', ...), #arg, arg[0]:match '[^/]+$', arg[1], select(2, ...), arg[-1] ~= nil)
    ]]
    local out, err, status = amp(path .. " one 'two words'")
    assert.equal('2\t2\t2\tscript.lua\tone\ttwo words\ttrue\n', out)
    assert.equal('', err)
    assert.equal(0, status)
  end)
  it('sets no global of its own', function()
    local out = amp(script 'print(rawget(_G, "amp"))')
    assert.equal('nil\n', out)
  end)
  it('may begin with #!', function()
    assert.equal('yes\n', (amp(script '#!/usr/bin/env amp\nprint "yes"')))
  end)
  it('gives the script\'s own exit status', function()
    local _, _, status = amp(script 'os.exit(3)')
    assert.equal(3, status)
    _, _, status = amp(script 'local t = require "amp".ones(3, {requires_grad = true}) local y = t:sum() os.exit(4, true)')
    assert.equal(4, status)
  end)
  it('shows an error with its line, its modules and a trace without the command\'s own frames', function()
    local out, err, status = amp(script [[
local amp = require 'amp'
local nn = amp.nn
local function deep(net)
  local y = net(amp.ones(2, 5))
  return y
end
print 'before'
local y = deep(nn.Sequential(nn.Linear(3, 2)))
]])
    assert.equal('before\n', out)
    assert.equal(1, status)
    has(err, 'amp: ', 'script.lua:4: ', 'amp.linear', '2x5', '2x3', 'in module 1 of nn.Sequential (nn.Linear 3 -> 2)', 'stack traceback:',
      "in function 'deep'", 'script.lua:8: in main chunk')
    assert.is_nil(err:find('cli.lua', 1, true), err)
    assert.is_nil(err:find('xpcall', 1, true), err)
    local _, n = err:gsub('stack traceback:', '')
    assert.equal(1, n)
    -- the message stands once
    _, n = err:gsub('script%.lua:4: amp%.', '')
    assert.equal(1, n)
  end)
  it('shows any error value', function()
    for code, piece in pairs {
      ["error 'plain'"] = 'plain', ['error(nil)'] = 'nil', ['error {}'] = 'table', ['error(5)'] = '5',
      ["error(setmetatable({}, {__tostring = function() return 'mine' end}))"] = 'mine',
      ["error(setmetatable({traceback = 5}, {__tostring = function() return 'odd' end}))"] = 'odd',
      ["error(setmetatable({}, {__tostring = function() error 'x' end}))"] = 'amp: ',
      ['local x = nil; x.y = 1'] = 'nil value',
    } do
      local _, err, status = amp(script(code))
      assert.equal(1, status, code)
      has(err, piece)
    end
  end)
  it('an error object keeps its modules\' lines in a region, too', function()
    local _, err = amp(script [[
      local amp = require 'amp'
      amp.autocast(function()
        local y = amp.nn.Linear(3, 2)(amp.ones(2, 5))
      end)
    ]])
    has(err, 'script.lua:3: ', 'nn.Linear 3 -> 2')
  end)
  it('says what is wrong with a script that is not there or does not parse', function()
    local _, err, status = amp '/nowhere/script.lua'
    assert.equal(1, status)
    has(err, 'amp: ', '/nowhere/script.lua')
    _, err, status = amp(script 'local = 5')
    assert.equal(1, status)
    has(err, 'script.lua:1:')
    _, err, status = amp '/'
    assert.equal(1, status)
    has(err, 'amp: ', '/')
  end)
end)

describe('amp -e, amp -', function()
  it('run code; amp is there', function()
    local out, err, status = amp "-e 'print(amp.ones(2, 2):sum():item())'"
    assert.equal('4\n', out)
    assert.equal('', err)
    assert.equal(0, status)
    out = amp "-e 'x = 5 print(x, _G.x, rawget(_G, \"amp\"))'"
    assert.equal('5\t5\tnil\n', out)
    out = amp "-e 'print(...)' a b"
    assert.equal('a\tb\n', out)
    out, err, status = amp('-', 'print(1 + 1)')
    assert.equal('2\n', out)
    assert.equal(0, status, err)
  end)
  it('report errors as scripts do', function()
    local _, err, status = amp "-e 'error \"no\"'"
    assert.equal(1, status)
    has(err, 'amp: ', 'no')
    _, err, status = amp "-e 'x ='"
    assert.equal(1, status)
    has(err, '(command line)')
    _, err = amp "-e 'local alpha = 1 alhpa.x = 1'"
    has(err, "'alhpa'", "did you mean 'alpha'")
    _, err, status = amp '-e'
    assert.equal(2, status)
    has(err, '-e needs code', 'usage')
    _, err, status = amp('-', 'error (5')
    assert.equal(1, status)
    has(err, 'stdin')
  end)
end)

describe('amp', function()
  it('--version names the version, the interpreter and where both halves are', function()
    for _, option in ipairs { '--version', '-v' } do
      local out, _, status = amp(option)
      assert.equal(0, status)
      has(out, 'amp 0.', 'LuaJIT', '/lua', build .. '/amp/libamp.so')
    end
  end)
  it('--help says how to use it, on standard output', function()
    for _, option in ipairs { '--help', '-h' } do
      local out, err, status = amp(option)
      assert.equal(0, status)
      assert.equal('', err)
      has(out, 'usage: amp', 'script.lua', '-e')
    end
  end)
  it('refuses an option that it does not know', function()
    local out, err, status = amp '--verison'
    assert.equal(2, status)
    assert.equal('', out)
    has(err, "'--verison'", "did you mean '--version'", 'usage')
  end)
  it('runs through a link from another folder', function()
    local link = H.tmp 'linked'
    H.sh(("ln -sf %s '%s'"):format(command, link))
    local out, status = H.sh(("cd / && %s '%s' -e 'print(amp.ones(1):item())'"):format(library, link))
    assert.equal('1\n', out)
    assert.equal(0, status)
  end)
  it('asks for LuaJIT when another Lua runs it', function()
    if os.execute 'command -v lua5.1 >/dev/null 2>&1' ~= 0 then return pending 'no lua5.1 here' end
    local out, status = H.sh(("cd / && lua5.1 %s -e 'print(1)'"):format(command))
    assert.equal(1, status)
    has(out, 'LuaJIT')
  end)
  it('says where it looked when the library is not there', function()
    local out, status = H.sh(("cd / && AMP_LIBRARY=/nowhere/libamp.so %s --version"):format(command))
    assert.equal(1, status)
    has(out, '/nowhere/libamp.so')
  end)
end)

describe('luajit -l amp.global', function()
  it('gives an interpreter with amp set', function()
    local out, status = H.sh(("cd / && %s LUA_PATH='%s/lua/?.lua;%s/lua/?/init.lua;;' luajit -l amp.global -e 'print(amp.ones(3):sum():item())'")
      :format(library, root, root))
    assert.equal('3\n', out)
    assert.equal(0, status)
  end)
end)

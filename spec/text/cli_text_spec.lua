--- `amp chat` and `amp embed`: use, mistakes, folders that are not fit.
local H = require 'spec.lib.helper'

local ROOT = H.root .. '/spec/fixtures/text/'

-- Standard output, standard error and status of the command.
local function amp(args, input)
  local out, why = H.tmp 'out', H.tmp 'err'
  local command = ("printf %%s %s | AMP_LIBRARY='%s/amp/libamp.so' luajit '%s/lua/bin/amp' %s >'%s' 2>'%s'; echo $?"):format(
    H.quote(input or ''), H.absolute(H.build), H.root, args, out, why)
  local status = tonumber(H.sh(command):match '%d+')
  return H.read(out), H.read(why), status
end

describe('amp chat and amp embed', function()
  it('show how they are called', function()
    for _, name in ipairs { 'chat', 'embed' } do
      local _, err, status = amp(name)
      assert.equal(2, status)
      assert.is_truthy(err:find('usage: amp ' .. name, 1, true))
    end
  end)
  it('name options that are not known or lack a value', function()
    local _, err, status = amp 'chat somewhere --temprature 1'
    assert.equal(2, status)
    assert.is_truthy(err:find("unknown option '--temprature', did you mean '--temperature'?", 1, true), err)
    _, err, status = amp 'chat somewhere --top-k x'
    assert.equal(2, status)
    assert.is_truthy(err:find("--top-k needs a number, got 'x'", 1, true), err)
    _, err, status = amp 'embed a b --output x.txt'
    assert.equal(2, status)
    assert.is_truthy(err:find('--output PATH.npy', 1, true), err)
  end)
  it('say in a line what a folder lacks', function()
    for args, text in pairs {
      ['chat /nowhere'] = "cannot read '/nowhere/config.json'",
      ['chat ' .. ROOT .. 'gpt2'] = 'there is no tokenizer.json',
      ['chat ' .. ROOT .. 'bert'] = 'amp embed takes it',
      ['embed ' .. ROOT .. 'bert -'] = 'there is no tokenizer.json',
      ['embed ' .. ROOT .. 'bert /nowhere'] = 'cannot read /nowhere',
    } do
      local _, err, status = amp(args)
      assert.equal(1, status, args)
      assert.is_truthy(err:find(text, 1, true), err)
      assert.is_falsy(err:find('stack traceback', 1, true), err)
      assert.equal(1, select(2, err:gsub('\n', '')), err)
    end
  end)
end)

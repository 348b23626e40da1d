--- The programs of examples/hosts that need no server: training in a thread beside luv's loop, the model in Neovim. nginx has a
-- script of its own, spec/hosts.sh.
local H = require 'spec.lib.helper'

if os.getenv 'AMP_SPEC_SANITIZED' then
  describe('examples/hosts', function()
    it('are tried in the release build', function() return pending 'Neovim and luv are not made for the sanitizers' end)
  end)
  return
end

local function there(command) return H.sh(command .. ' >/dev/null 2>&1 && echo yes'):find 'yes' ~= nil end

local root, build = H.absolute(H.root), H.absolute(H.build)
local environment = ("cd '%s' && export LUA_CPATH='%s/?.so;;' && "):format(root, build)

describe('examples/hosts', function()
  it('luv: trains in a thread, and the loop runs on', function()
    if not there "luajit -e \"require 'luv'\"" then return pending 'NOT TRIED: luv is not installed (Debian: lua-luv)' end
    local out = H.sh(environment .. 'timeout 100 luajit examples/hosts/luv/train.lua 2000 2>&1')
    assert.is_truthy(out:find('1.0000  -2.0000   3.0000   0.5000', 1, true), out)
    assert.is_truthy(out:find('the loop ran meanwhile', 1, true), out)
  end)

  it('Neovim: learns a buffer and completes', function()
    if not there 'nvim --version' then return pending 'NOT TRIED: Neovim is not installed (Debian: neovim)' end
    local path = H.tmp 'buffer.txt'
    H.write(path, ('hello world of tensors\n'):rep(4))
    local out = H.sh(environment .. ([[timeout 200 nvim --headless --clean -c 'luafile examples/hosts/neovim/complete.lua' -c AmpLearn \
      -c 'lua vim.wait(150000, function() return vim.g.amp_loss end)' \
      -c 'lua vim.api.nvim_win_set_cursor(0, {2, 6}); print("\n[" .. amp_complete(0)[1] .. "]")' -c 'qa!' '%s' 2>&1]]):format(H.absolute(path)))
    assert.is_truthy(out:find('[world of tensors]', 1, true), out)
  end)

  it('amp new --serve: a project that answers', function()
    local dir = H.tmp 'served'
    local out = H.sh(environment .. ("luajit lua/bin/amp new --serve '%s' 2>&1 && ls '%s'"):format(dir, dir))
    assert.is_truthy(out:find 'serve.lua', out)
    if not there "luajit -e \"require 'luv'\"" then return pending 'NOT TRIED: luv is not installed (Debian: lua-luv)' end
    local amp = ("luajit '%s/lua/bin/amp'"):format(root)
    out = H.sh(environment .. ([[cd '%s' && %s train.lua 1 float32 >/dev/null && { timeout 20 %s serve.lua 0 >port & } && sleep 2 &&
      at=$(cat port) && curl -s -d '[0.3, -0.2]' $at/ && curl -s -d '[1]' $at/ && curl -s $at/health; kill $! 2>/dev/null]])
      :format(H.absolute(dir), amp, amp))
    assert.is_truthy(out:find('{"class": %d}.*a list of two numbers is expected.*"ok"'), out)
  end)

  it('amp new --love: its files compile', function()
    local dir = H.tmp 'played'
    H.sh(environment .. ("luajit lua/bin/amp new '%s' --love"):format(dir))
    assert.is_truthy(loadfile(dir .. '/main.lua'))
    assert.is_truthy(loadfile(dir .. '/conf.lua'))
  end)
end)

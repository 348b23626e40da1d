--- The programs of examples/hosts that need no server: training in a thread beside luv's loop, the model in Neovim, the game in LOVE, under
-- a display that nobody sees (spec/lib/display.sh). Each takes some seconds, and is ended after LIMIT. nginx has a script of its own,
-- spec/hosts.sh.
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
local LIMIT = 60 -- seconds, of what takes some three on a machine that does little else
local limited = ('timeout %d '):format(LIMIT)
local luv = there "luajit -e \"require 'luv'\""
local love = there 'love --version' and there 'command -v Xvfb'
local LOVE = 'NOT TRIED: LOVE is not installed, or no display for it (Debian: love xvfb)'
local LUV = 'NOT TRIED: luv is not installed (Debian: lua-luv)'

describe('examples/hosts', function()
  it('luv: trains in a thread, and the loop runs on', function()
    if not luv then return pending(LUV) end
    local out = H.sh(environment .. limited .. 'luajit examples/hosts/luv/train.lua 2000 2>&1')
    assert.is_truthy(out:find('step 2000', 1, true), out)
    assert.is_truthy(out:find('1.0000  -2.0000   3.0000   0.5000', 1, true), out)
    assert.is_truthy(out:find('the loop ran meanwhile', 1, true), out)
  end)

  it('luv: an error in the thread is told, Ctrl-C gives what there is', function()
    if not luv then return pending(LUV) end
    local out = H.sh(environment .. limited .. 'luajit examples/hosts/luv/train.lua 0 2>&1; echo status $?')
    assert.is_truthy(out:find 'the thread failed: .*status 1', out)
    out = H.sh(environment .. [[exec 2>&1; luajit examples/hosts/luv/train.lua 100000000 >train.log & p=$!; trap 'rm -f train.log' EXIT
      for i in $(seq 100); do grep -q step train.log && break; sleep 0.1; done; kill -INT $p; wait $p; cat train.log; echo status $?]])
    assert.is_truthy(out:find('weight.*bias.*status 0'), out)
  end)

  it('luv: a program that ends does not wait for its thread', function()
    if not luv then return pending(LUV) end
    for _, last in ipairs { 'os.exit(7)', 'os.exit(7, true)' } do
      local path = H.tmp 'quits.lua'
      H.write(path, [[
        local uv, amp = require 'luv', require 'amp'
        local weights = amp.mailbox 'weights'
        uv.new_thread(function(path, cpath)
          package.path, package.cpath = path, cpath
          local amp = require 'amp'
          local net, weights = amp.nn.Linear(8, 8), amp.mailbox 'weights'
          while true do
            net(amp.ones(4, 8)):sum():backward()
            weights:put(net:state_dict(), {copy = true})
          end
        end, package.path, package.cpath)
        assert(weights:take(60).weight:size(1) == 8)
        ]] .. last)
      local out = H.sh(environment .. ("%s luajit lua/bin/amp '%s' 2>&1; echo status $?"):format(limited, H.absolute(path)))
      assert.is_truthy(out:find '^status 7', out)
    end
  end)

  local neovim = there 'nvim --version'
  local NEOVIM = 'NOT TRIED: Neovim is not installed (Debian: neovim)'

  it('Neovim: learns a buffer and completes', function()
    if not neovim then return pending(NEOVIM) end
    local path = H.tmp 'buffer.txt'
    H.write(path, ('hello world of tensors\n'):rep(4))
    local out = H.sh(environment .. (limited .. [[nvim --headless --clean -c 'luafile examples/hosts/neovim/complete.lua' -c 'AmpLearn 200' \
      -c 'lua vim.wait(150000, function() return vim.g.amp_loss end)' \
      -c 'lua vim.api.nvim_win_set_cursor(0, {2, 6}); print("\n[" .. amp_complete(0)[1] .. "]")' -c 'qa!' '%s' 2>&1]]):format(H.absolute(path)))
    assert.is_truthy(out:find('[world of tensors]', 1, true), out)
  end)

  it('Neovim: what is typed while it learns is there before it has learnt', function()
    if not neovim then return pending(NEOVIM) end
    local path, socket = H.absolute(H.tmp 'typed.txt'), ('/tmp/amp-spec-%s'):format(H.tmp('x'):gsub('%W', ''):sub(-20))
    H.write(path, ('hello world of tensors\n'):rep(4))
    local out = H.sh(environment .. ([[exec 2>&1; s=%s; %s nvim --headless --clean --listen $s -c 'luafile examples/hosts/neovim/complete.lua' \
      -c 'AmpLearn 1000000' '%s' >/dev/null & for i in $(seq 100); do [ -S $s ] && break; sleep 0.1; done
      ask() { nvim --server $s --remote-expr "$1"; }
      nvim --server $s --remote-send 'Gotyped meanwhile<Esc>'; ask 'getline("$")'; echo; ask 'get(g:, "amp_loss", "still learning")'; echo
      nvim --server $s --remote-send ':AmpLearn<CR>:qa!<CR>'; wait; rm -f $s]]):format(socket, limited, path))
    assert.is_truthy(out:find 'typed meanwhile%s+still learning', out)
  end)

  it('LOVE: the game runs, and its thread learns', function()
    if not love then return pending(LOVE) end
    local picture = H.absolute(H.tmp 'game.png')
    local out = H.sh(environment .. ("FRAMES=240 PICTURE='%s' %s sh spec/lib/display.sh love examples/hosts/love 2>&1"):format(picture, limited))
    assert.is_truthy(out:find '^240 frames, [%d.]+ ms each', out)
    local image = require('amp').data.read_image(picture)
    assert.same({ 3, 480, 800 }, { image:size(1), image:size(2), image:size(3) })
  end)

  it('LOVE: without a window, as fast as it goes, the birds learn', function()
    if not luv then return pending(LUV) end
    local path = H.tmp 'swarm.lua'
    H.write(path, [[
      package.path = 'examples/hosts/love/?.lua;' .. package.path
      local uv = require 'luv'
      local world = require('world').new()
      local player = require('player').new(world)
      local thread = uv.new_thread(function(path, cpath)
        package.cpath = cpath
        assert(loadfile 'examples/hosts/love/learner.lua')(path)
      end, package.path, package.cpath)
      local first, passes, hits
      for tick = 1, 60 * 45 do
        world:step(1 / 60)
        if tick % 4 == 0 then
          player:decide()
          while player.steps < (tick / 4 - 32) * 4 - 80 do player:renew(0.1) end -- the game waits: the same on any machine
        end
        if tick % 600 == 0 then
          local score = (world.passes - (passes or 0)) / (world.passes + world.hits - (passes or 0) - (hits or 0))
          passes, hits, first = world.passes, world.hits, first or score
          print(('score %.2f'):format(score))
        end
      end
      player.stop:put(true)
      thread:join()]])
    local out = H.sh(environment .. ("timeout 100 luajit lua/bin/amp '%s' 2>&1"):format(H.absolute(path)))
    local scores = {}
    for score in out:gmatch 'score ([%d.]+)' do scores[#scores + 1] = tonumber(score) end
    assert.is_true(#scores == 4 and scores[4] > scores[1] + 0.15 and scores[4] > 0.7, out)
  end)

  it('amp new --serve: a project that answers', function()
    local dir = H.tmp 'served'
    local out = H.sh(environment .. ("luajit lua/bin/amp new --serve '%s' 2>&1 && ls '%s'"):format(dir, dir))
    assert.is_truthy(out:find 'serve.lua', out)
    if not luv then return pending(LUV) end
    local amp = ("luajit '%s/lua/bin/amp'"):format(root)
    out = H.sh(environment .. ([[cd '%s' && %s train.lua 1 float32 >/dev/null && { timeout 20 %s serve.lua 0 >port & } &&
      for i in $(seq 150); do [ -s port ] && break; sleep 0.1; done;
      at=$(cat port) && curl -s -d '[0.3, -0.2]' $at/ && curl -s -d '[1]' $at/ && curl -s $at/health; kill $! 2>/dev/null]])
      :format(H.absolute(dir), amp, amp))
    assert.is_truthy(out:find('{"class": %d}.*a list of two numbers is expected.*"ok"'), out)
  end)

  it('amp new --love: a project that starts', function()
    local dir = H.tmp 'played'
    H.sh(environment .. ("luajit lua/bin/amp new '%s' --love"):format(dir))
    assert.is_truthy(loadfile(dir .. '/main.lua'))
    assert.is_truthy(loadfile(dir .. '/conf.lua'))
    if not love then return pending(LOVE) end
    local out = H.sh(environment .. ("LUA_PATH='%s/lua/?.lua;%s/lua/?/init.lua;;' FRAMES=60 %s sh spec/lib/display.sh love '%s' 2>&1")
      :format(root, root, limited, H.absolute(dir)))
    assert.is_truthy(out:find 'loss %d%.%d%d%d', out)
  end)
end)

--- Regions under hosts that schedule coroutines: one that replaces coroutine.* as nginx's Lua module does (spec/lib/host.lua, in
-- a process of its own), schedulers in plain Lua, callbacks that resume whom coroutine.running() named.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local gc64 = require('ffi').abi 'gc64'

-- What both sides of the specs use: `outside` and `inside` look at the state by queries and by what ops do.
local looks = [[
local w = amp.ones(2, 2, {requires_grad = true})
local function outside(where)
  local y = w:matmul(w)
  assert(y.dtype == 'float32' and y.requires_grad, where .. ': ' .. y.dtype .. ' ' .. tostring(y.requires_grad))
  assert(amp.is_grad_enabled() and not amp.is_autocast_enabled(), where)
end
local function inside(where)
  local y = w:matmul(w)
  assert(y.dtype == 'bfloat16' and not y.requires_grad, where .. ': ' .. y.dtype .. ' ' .. tostring(y.requires_grad))
  assert(not amp.is_grad_enabled() and amp.is_autocast_enabled(), where)
end
local function both(f, ...) return amp.no_grad(amp.autocast, f, ...) end
]]

describe('a host that replaces coroutine.*', function()
  local function under(code)
    local path = H.tmp 'host_child.lua'
    local root, build = H.absolute(H.root), H.absolute(H.build)
    H.write(path, ([[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;' .. package.path
package.cpath = '%s/?.so;' .. package.cpath
local host = require 'spec.lib.host'
local amp = require 'amp'
]]):format(root, root, root, build) .. looks .. code .. "\nprint 'good'")
    local out = H.sh(("cd '%s' && timeout 60 luajit '%s'"):format(root, path))
    assert.is_truthy(out:find 'good', out)
  end
  it('makes models outside of requests, and in chunks that require runs', function()
    under [[
      local net = amp.nn.Linear(3, 2) -- no request runs: the host's create is refused
      package.preload.inner = function()
        both(function() inside 'required' end)
        return amp.nn.Linear(2, 2)
      end
      host.spawn(function()
        require 'inner'
        outside 'after require'
        local ok, e = pcall(string.gsub, 'x', 'x', function() both(host.sleep, 1) end)
        assert(not ok and tostring(e):find 'yield', tostring(e))
        outside 'after gsub'
        amp.no_grad(function() net(amp.ones(1, 3)) end)
      end)
      local errors = host.run()
      assert(#errors == 0, errors[1])
      outside 'end'
    ]]
  end)
  it('lets requests wait in regions, each with its own state', function()
    under [[
      for i = 1, 40 do
        host.spawn(function()
          for k = 1, 5 do
            outside(i)
            assert(both(function(a)
              inside 'a'
              host.sleep(i % 3)
              inside 'b'
              amp.enable_grad(function() host.sleep(k % 2) assert(w:matmul(w).requires_grad) end)
              host.sleep(1)
              inside 'c'
              return a
            end, i) == i)
            outside(i)
            host.sleep(i % 2)
          end
        end)
        host.spawn(function() for k = 1, 20 do outside 'beside' host.sleep(1) end end)
      end
      local errors = host.run()
      assert(#errors == 0, errors[1])
      outside 'end'
    ]]
  end)
  it('has coroutines of requests in regions, iterators and errors', function()
    under [[
      host.spawn(function()
        local it = coroutine.wrap(function() for i = 1, 3 do both(function() inside 'it' coroutine.yield(i) inside 'it2' end) end end)
        for i = 1, 3 do assert(it() == i) outside 'it' host.sleep(1) end
        local e = {}
        local ok, got = pcall(both, function() host.sleep(1) error(e) end)
        assert(not ok and got == e)
        outside 'error'
        both(function()
          local co = coroutine.create(function() coroutine.yield(1) host.sleep(1) return 2 end)
          assert(select(2, coroutine.resume(co)) == 1)
          inside 'after a resume'
          assert(select(2, coroutine.resume(co)) == 2)
          inside 'after another'
        end)
        outside 'end'
      end)
      local errors = host.run()
      assert(#errors == 0, errors[1])
    ]]
  end)
  it('ends requests that wait in regions, and nothing of them is left', function()
    under [[
      local gm = amp.GradManager():attach {amp.ones(2)}
      local killed = {}
      for i = 1, 20 do
        killed[i] = host.spawn(function() both(function() host.sleep(1) amp.scope(function() host.sleep(100) end) end) end)
      end
      host.spawn(function()
        outside 'first'
        host.sleep(3)
        for i = 1, 20 do host.kill(killed[i]) end
        outside 'killed'
        for i = 1, 5 do both(inside, 'again') host.sleep(1) outside 'between' end
      end)
      local errors = host.run()
      assert(#errors == 0, errors[1])
      outside 'end'
      local before = collectgarbage 'count'
      for i = 1, 2000 do amp.no_grad(function() end) end
      collectgarbage()
    ]]
  end)
  it('and endless recursion is an error of Lua there too', function()
    under [[
      host.spawn(function()
        local function down() return 1 + both(down) end
        local ok, e = pcall(down)
        assert(not ok and tostring(e):find 'overflow', tostring(e))
        outside 'end'
      end)
      local errors = host.run()
      assert(#errors == 0, errors[1])
    ]]
  end)
end)

describe('schedulers in Lua', function()
  local outside, inside, both = setfenv(loadstring('local amp = ...\n' .. looks .. '\nreturn outside, inside, both'),
    setmetatable({}, { __index = _G }))(amp)
  it('round robin: the state is the running coroutine\'s', function()
    local list = {}
    for i = 1, 12 do
      list[i] = coroutine.create(function()
        for _ = 1, 4 do
          outside(i)
          coroutine.yield()
          both(function()
            inside(i)
            coroutine.yield()
            amp.scope(function()
              local kept = amp.ones(2)
              coroutine.yield()
              inside(i)
              return kept:sum():item()
            end)
            coroutine.yield()
          end)
          outside(i)
        end
      end)
    end
    local turns = 0
    while #list > 0 do
      for k = #list, 1, -1 do
        assert(coroutine.resume(list[k]))
        turns = turns + 1
        if turns % 3 == 0 then outside 'scheduler' end
        if coroutine.status(list[k]) == 'dead' then table.remove(list, k) end
      end
    end
    outside 'end'
  end)
  it('callbacks that resume the coroutine that coroutine.running() named', function()
    if not gc64 then return end -- there a region's body is a coroutine of its own: README's Runtimes says what that means
    local waiting, done = {}, 0
    local function wait()
      local co = assert(coroutine.running())
      waiting[#waiting + 1] = co
      return coroutine.yield()
    end
    for i = 1, 8 do
      coroutine.wrap(function()
        local me = coroutine.running()
        both(function()
          assert.equal(me, coroutine.running())
          inside(i)
          assert.equal(i, wait())
          inside(i)
          amp.enable_grad(function() assert.equal(i, wait()) end)
          inside(i)
        end)
        outside(i)
        done = done + 1
      end)()
      outside 'main'
    end
    for _ = 1, 2 do
      local list = waiting
      waiting = {}
      for i, co in ipairs(list) do
        assert(coroutine.resume(co, i))
        if i % 2 == 0 then outside 'loop' end
      end
    end
    assert.equal(8, done)
    amp.no_grad(function() assert.is_false(amp.is_grad_enabled()) end)
    outside 'end'
  end)
  it('a scheduler that runs inside a region has what it resumes inside', function()
    local function worker() for _ = 1, 3 do
      inside 'worker'
      coroutine.yield()
    end end
    local a, b = coroutine.create(worker), coroutine.create(worker)
    both(function()
      for _ = 1, 3 do
        assert(coroutine.resume(a))
        assert(coroutine.resume(b))
        inside 'scheduler'
      end
    end)
    outside 'end'
  end)
  it('gradients laid aside, recordings and scopes follow, too', function()
    local w = amp.ones(2)
    local gm = amp.GradManager():attach { w }
    local made
    local co = coroutine.wrap(function()
      gm:record(function()
        local y = (w * 2):sum()
        coroutine.yield()
        gm:backward(y)
      end)
      amp.scope(function()
        made = amp.ones(3)
        coroutine.yield()
        return nil
      end)
    end)
    co()
    assert.is_false((w * 2).requires_grad)
    co()
    assert.same({ 2, 2 }, w.grad:tolist())
    local mine = amp.ones(4) -- made while the other's scope is open
    co()
    assert.equal(4, mine:sum():item())
    H.fails(function() made:sum() end)
  end)
end)

describe('a host whose threads have small stacks', function()
  local root, build = H.absolute(H.root), H.absolute(H.build)
  local host, script = H.tmp 'lua_thread', H.tmp 'deep.lua'
  H.write(script, ([[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
package.cpath = '%s/?.so;' .. package.cpath
local amp = require 'amp'
local w = amp.ones(2, 2, {requires_grad = true})
for k, enter in ipairs {
  function(f) amp.no_grad(f) end, function(f) amp.autocast(f) end, function(f) amp.scope(f) end,
  function(f) amp.GradManager():attach{amp.ones(2)}:record(f) end,
  function(f) amp.checkpoint(function() f() return w * 2 end) end,
  function(f) amp.autocast.wrap(f)(1, 2, 3, 4) end,
} do
  local function down() enter(down) return 1 end
  local ok, e = pcall(down)
  assert(not ok and tostring(e):find 'overflow', k .. tostring(e))
  assert(amp.is_grad_enabled() and not amp.is_autocast_enabled() and (w * w).requires_grad, k)
end
return function() amp.no_grad(amp.autocast, function() amp.scope(coroutine.yield) end) end -- open when the state is closed
]]):format(root, root, build))
  for _, kib in ipairs { 256, 512, 0 } do
    it(kib .. ' KiB: endless recursion is an error of Lua, states close with regions open', function()
      if H.sh('command -v cc && pkg-config --exists luajit || echo no'):find 'no\n' then return pending 'no cc or no luajit to link with' end
      local out, status = H.sh(("cc -std=gnu11 -O1 '%s/spec/c/lua_thread.c' $(pkg-config --cflags --libs luajit) -pthread -o '%s'"):format(root, host))
      assert.equal(0, status, out)
      for _ = 1, 4 do
        out, status = H.sh(("ulimit -s 1024; OMP_NUM_THREADS=1 timeout 60 '%s' %d 2 '%s'"):format(host, kib, script))
        assert.equal(0, status, out)
      end
    end)
  end
end)

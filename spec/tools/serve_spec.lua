--- amp.serve.batcher: concurrent requests in one forward, with the scheduler of plain coroutines, with luv where it is installed,
-- and under a host that schedules as nginx does (spec/lib/ngx.lua).
local amp = require 'amp'
local H = require 'spec.lib.helper'

-- The text of the error of amp's that a call raises
local function refused(fn, ...)
  local ok, e = pcall(fn, ...)
  assert.is_false(ok)
  assert.is_truthy(tostring(e):find 'amp.serve.batcher: ', tostring(e))
  return tostring(e)
end

local function make(options, model)
  local loop = amp.serve.loop()
  local sizes = {}
  local net = amp.nn.Linear(3, 2):eval()
  options.adapter = options.adapter or loop
  local b = amp.serve.batcher(model or function(x)
    sizes[#sizes + 1] = x:size(1)
    return net(x)
  end, options)
  return b, loop, sizes, net
end

describe('serve.batcher with plain coroutines', function()
  it('gives each request its own row', function()
    local b, loop, sizes, net = make { max_batch = 4, max_wait_ms = 3 }
    local over = 0
    for _ = 1, 10 do
      loop.spawn(function()
        local x = amp.randn(3)
        local y = b(x)
        H.close(y, H.values(net(x:reshape(1, 3)):reshape(2)), { 2 })
        assert.is_false(y.requires_grad)
        over = over + 1
      end)
    end
    loop.run()
    assert.equal(10, over)
    assert.same({ 4, 4, 2 }, sizes)
    assert.same({ requests = 10, batches = 3, rows = 10, failed = 0, dropped = 0, waiting = 0 }, b:stats())
  end)

  it('waits max_wait_ms at most', function()
    local b, loop = make { max_batch = 2, max_wait_ms = 40 }
    local took
    loop.spawn(function()
      local began = amp.clock()
      b(amp.ones(3))
      took = amp.clock() - began
    end)
    loop.run()
    assert.is_true(took > 0.03 and took < 2, took)
  end)

  it('asks for no wait where a batch is full, or as large as the last one', function()
    local b, loop, sizes = make { max_batch = 3, max_wait_ms = 40 }
    local asked, real = {}, loop.after
    loop.after = function(ms, fn)
      asked[#asked + 1] = ms
      real(ms == 40 and 1 or ms, fn)
    end
    local function round(n)
      asked = {}
      for _ = 1, n do loop.spawn(function() b(amp.ones(3)) end) end
      loop.run()
      return asked
    end
    assert.same({ 40, 0 }, round(3)) -- the first has the others to wait for, the third fills the batch
    assert.same({ 40 }, round(2))    -- fewer than before
    assert.same({ 40, 0 }, round(2)) -- as many as before
    assert.same({ 40 }, round(1))
    assert.same({ 0 }, round(1))
    assert.same({ 0 }, round(3)) -- goes with all that come in the same turn
    assert.same({ 3, 2, 2, 1, 1, 3 }, sizes)
  end)

  it('gives a wrong sample its own error', function()
    local b, loop = make { max_batch = 8 }
    local errors, good = {}, 0
    for _, x in ipairs { amp.ones(3), amp.ones(4), amp.ones(3), amp.ones(3, { dtype = 'int64' }), amp.ones(3, 3) } do
      loop.spawn(function()
        local ok, e = pcall(b, x)
        if ok then good = good + 1 else errors[#errors + 1] = tostring(e) end
      end)
    end
    loop.run()
    assert.equal(3, good) -- 3 x 3 is a sample of a Linear too
    assert.equal(2, #errors)
    refused(b.submit, b, 3)
    refused(b.submit, b)
    assert.equal(0, b:stats().waiting)
  end)

  it('holds samples to the shape and dtype that were asked for', function()
    local b = make { shape = { 3 }, dtype = 'float' }
    local e = refused(b.submit, b, amp.ones(4))
    assert.is_truthy(tostring(e):find('samples are {3}', 1, true))
    assert.is_truthy(refused(b.submit, b, amp.ones(3, { dtype = 'float16' })):find 'samples are float32, got float16')
    b = make { shape = { -1, 2 } }
    b:submit(amp.ones(7, 2)):cancel()
    refused(b.submit, b, amp.ones(7, 3))
  end)

  it('takes a failing forward to each who waits, and goes on', function()
    local broken = true
    local b, loop = make({ max_batch = 3 }, function(x)
      if broken then error 'out of order' end
      return { twice = x * 2, n = 7 }, x + 1
    end)
    local got = {}
    for i = 1, 3 do
      loop.spawn(function()
        local ok, e = pcall(b, amp.ones(2))
        got[i] = not ok and tostring(e):match 'out of order'
      end)
    end
    loop.run()
    assert.same({ 'out of order', 'out of order', 'out of order' }, got)
    broken = false
    loop.spawn(function()
      local t, y = b(amp.ones(2))
      H.close(t.twice, { 2, 2 }, { 2 })
      assert.equal(7, t.n)
      H.close(y, { 2, 2 }, { 2 })
    end)
    loop.run()
    assert.equal(3, b:stats().failed)
  end)

  it('says that a model lost the batch', function()
    local b, loop = make({}, function(x) return x:sum() end)
    local why
    loop.spawn(function() why = select(2, pcall(b, amp.ones(3))) end)
    loop.run()
    assert.is_truthy(tostring(why):find 'first dimension is to be the batch')
  end)

  it('drops who left, refuses who is too many, and closes', function()
    local b, loop, sizes = make { max_batch = 4, max_wait_ms = 1, max_queue = 3 }
    local ended, gone = 0, nil
    local ticket = b:submit(amp.ones(3))
    loop.spawn(function() gone = select(2, pcall(ticket.wait, ticket)) end)
    loop.spawn(function()
      b(amp.ones(3))
      ended = ended + 1
    end)
    loop.spawn(function()
      b:submit(amp.ones(3))
      refused(b.submit, b, amp.ones(3))
      assert.is_true(ticket:cancel())
      assert.is_false(ticket:cancel())
    end)
    loop.run()
    assert.same({ 2 }, sizes)
    assert.equal(1, ended)
    assert.is_truthy(tostring(gone):find 'cancelled')
    assert.equal(1, b:stats().dropped)
    loop.spawn(function()
      b(amp.ones(3))
      ended = ended + 1
    end)
    loop.spawn(function() b:close() end)
    loop.run()
    assert.equal(2, ended)
    assert.is_truthy(refused(b.submit, b, amp.ones(3)):find 'closed')
  end)

  it('runs the model outside of the regions of who asks', function()
    local on
    local b, loop = make({ max_batch = 1 }, function(x)
      on = amp.is_autocast_enabled()
      return x
    end)
    loop.spawn(function()
      amp.autocast({ dtype = 'bfloat16' }, function()
        b(amp.ones(3))
        assert.is_true(amp.is_autocast_enabled())
      end)
    end)
    loop.run()
    assert.is_false(on)
  end)

  it('refuses options that make no sense', function()
    local net = amp.nn.Linear(3, 2)
    local loop = amp.serve.loop()
    for _, o in ipairs { { max_batch = 0 }, { max_batch = 1.5 }, { max_wait_ms = -1 }, { adapter = 'apache' }, { adapter = {} }, { dtype = 'float7' },
      { max_bach = 3 }, { shape = 3 }, { adapter = 'nginx' } } do
      if o.adapter == nil then o.adapter = loop end
      refused(amp.serve.batcher, net, o)
    end
    refused(amp.serve.batcher, 3, { adapter = loop })
    refused(amp.serve.batcher, net)
    assert.is_truthy(tostring(select(2, pcall(amp.serve.batcher(net, { adapter = loop }), amp.ones(3)))):find 'only a coroutine waits')
  end)

  it('keeps nothing of requests that are over', function()
    local b, loop = make { max_batch = 16, max_wait_ms = 0 }
    local function round()
      for _ = 1, 50 do loop.spawn(function() b(amp.ones(3)) end) end
      loop.run()
      collectgarbage()
      collectgarbage()
      return H.live()
    end
    round()
    local before = round()
    for _ = 1, 20 do round() end
    assert.equal(before, round())
  end)
end)

describe('serve.batcher:numbers', function()
  local function both(bytes)
    local loop = amp.serve.loop()
    local net, sizes = amp.nn.Linear(3, 2):eval(), {}
    local b = amp.serve.batcher(function(x)
      sizes[#sizes + 1] = x:size(1)
      return net(x)
    end, { max_batch = 4, max_wait_ms = 3, shape = { 3 }, dtype = 'float32', bytes = bytes, adapter = loop })
    return b, loop, net, sizes
  end

  it('takes texts and gives each its own row', function()
    local b, loop, net, sizes = both(false)
    for i = 1, 10 do
      loop.spawn(function()
        local want = H.values(net(amp.tensor { { i, 0.5, -1 } }))
        local got = b:numbers(('[%d, 0.5, -1]'):format(i))
        assert.equal(2, #got)
        for k = 1, 2 do assert.is_true(math.abs(got[k] - want[k]) < 1e-5) end
      end)
    end
    loop.run()
    assert.same({ 4, 4, 2 }, sizes)
    assert.equal(10, b:stats().rows)
  end)

  it('takes bytes, NaN among them, which are of one row', function()
    local b, loop, net = both(true)
    local rows, good = { { 1, 2, 3 }, { 0, 0 / 0, 0 }, { -1, 1, 4 } }, 0
    for i, list in ipairs(rows) do
      loop.spawn(function()
        local x = amp.tensor(list)
        local got = b:numbers(require('ffi').string(x:data_ptr(), 12))
        if i == 2 then assert.is_true(got[1] ~= got[1] and got[2] ~= got[2])
        else H.close(net(x:reshape(1, 3)):reshape(2), got, { 2 }) end
        good = good + 1
      end)
    end
    loop.run()
    assert.equal(3, good)
    assert.equal(1, b:stats().batches)
  end)

  it('refuses a wrong body alone', function()
    local b, loop, _, sizes = both(false)
    local codes, good = {}, 0
    for _, body in ipairs { '[1, 2, 3]', '[1, 2]', '[1, nan, 2]', '[1, 1e39, 2]', '1 2 3', '[1, 2, 3, 4]' } do
      loop.spawn(function()
        local ok, e = pcall(b.numbers, b, body)
        if ok then good = good + 1 else codes[#codes + 1] = e.code end
      end)
    end
    loop.run()
    assert.same({ 'shape', 'value', 'shape' }, { codes[1], codes[2], codes[#codes] })
    assert.equal(2 + (4 - #codes), good)
    assert.same({ good }, sizes)
    assert.is_false(pcall(b.numbers, b, 3))
    local of_bytes = both(true)
    local ok, e = pcall(of_bytes.numbers, of_bytes, 'short')
    assert.is_false(ok)
    assert.equal('shape', e.code)
    for _, o in ipairs { {}, { shape = { 3 } }, { dtype = 'float32' }, { shape = { -1 }, dtype = 'float32' } } do
      o.adapter = loop
      local vague = amp.serve.batcher(function(x) return x end, o)
      refused(vague.numbers, vague, '[1]')
    end
  end)

  it('takes an error of the model, or a result of other rows, to each who waits', function()
    local loop = amp.serve.loop()
    local result
    local b = amp.serve.batcher(function() return result() end, { shape = { 1 }, dtype = 'float32', max_wait_ms = 1, adapter = loop })
    for _, case in ipairs { { function() error 'out of order' end, 'out of order' }, { function() return amp.ones(7) end, 'as many rows' },
      { function() return 3 end, 'as many rows' } } do
      result = case[1]
      local found = 0
      for _ = 1, 3 do
        loop.spawn(function()
          local ok, e = pcall(b.numbers, b, '1')
          if not ok and tostring(e):find(case[2], 1, true) then found = found + 1 end
        end)
      end
      loop.run()
      assert.equal(3, found)
    end
    assert.equal(9, b:stats().failed)
  end)

  it('keeps no tensors of requests', function()
    local b, loop = both(false)
    local function round()
      for _ = 1, 50 do loop.spawn(function() b:numbers '[1, 2, 3]' end) end
      loop.run()
      collectgarbage()
      collectgarbage()
      return H.live()
    end
    round()
    local before = round()
    for _ = 1, 20 do round() end
    assert.equal(before, round())
  end)
end)

describe('serve.numbers', function()
  local net = amp.nn.Sequential(amp.nn.Linear(8, 6), amp.nn.ReLU(), amp.nn.Linear(6, 5)):eval()
  local graph = amp.graph.trace(net, { amp.zeros(2, 8) }, { dynamic = { 1 } })

  it('gives what the graph gives, of texts and of bytes', function()
    local x = amp.randn(1, 8)
    local want = amp.no_grad(graph, x):tolist()[1]
    local text = table.concat(H.values(x), ', ')
    local got = amp.serve.numbers(graph, { 1, 8 })('[' .. text .. ']')
    local same = amp.serve.numbers(graph, { 1, 8 }, { dtype = 'float32', bytes = true })(require('ffi').string(x:data_ptr(), 32))
    assert.same(want, same)
    for i = 1, 5 do assert.is_true(math.abs(want[i] - got[i]) < 1e-5) end
    assert.equal(10, #amp.serve.numbers(graph, { 2, 8 })(('1 '):rep(16)))
    for n = 1, 4 do
      local few = amp.graph.trace(amp.nn.Linear(2, n), { amp.zeros(1, 2) })
      assert.equal(n, #amp.serve.numbers(few, { 1, 2 }) '1 2')
    end
  end)

  it('says what is wrong as from_text and the graph do, and leaves no tensor', function()
    local bump = amp.serve.numbers(graph, { 1, 8 })
    local function wrong()
      for body, code in pairs { ['[1, 2]'] = 'shape', ['[nan]'] = 'value', [''] = 'shape' } do
        local ok, e = pcall(bump, body)
        assert.is_false(ok)
        assert.equal(code, e.code)
      end
      assert.is_false(pcall(bump, 3))
      local ok, e = pcall(amp.serve.numbers(graph, { 1, 7 }), '1 2 3 4 5 6 7')
      assert.is_false(ok)
      assert.is_truthy(tostring(e):find("input 'input': dimension 2 has size 8, got 7", 1, true), tostring(e))
      collectgarbage()
      collectgarbage()
      return H.live()
    end
    wrong()
    local before = wrong()
    for _ = 1, 20 do wrong() end
    assert.equal(before, wrong())
    assert.equal(5, #bump '[1, 2, 3, 4, 5, 6, 7, 8]')
  end)

  it('refuses what is no graph of one tensor, and wrong options', function()
    for _, call in ipairs { { 3, { 1 } }, { net, { 1, 8 } }, { graph }, { graph, { 1, 8 }, { bites = true } }, { graph, { 1, 8 }, { bytes = 1 } },
      { graph, { -2 } }, { amp.graph.trace(function(a, b) return a + b end, { amp.ones(1), amp.ones(1) }), { 1 } } } do
      local ok, e = pcall(amp.serve.numbers, unpack(call, 1, 3))
      assert.is_false(ok)
      assert.is_truthy(tostring(e):find 'amp.serve.numbers: ', tostring(e))
    end
  end)
end)

-- A program in a process of its own that ends with the word good
local function child(code)
  local path = H.tmp 'serve_child.lua'
  local root, build = H.absolute(H.root), H.absolute(H.build)
  H.write(path, ([[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;' .. package.path
package.cpath = '%s/?.so;' .. package.cpath
]]):format(root, root, root, build) .. code .. "\nprint 'good'")
  local out = H.sh(("cd '%s' && timeout 120 luajit '%s' 2>&1"):format(root, path))
  assert.is_truthy(out:find 'good', out)
end

local body = [[
local net = amp.nn.Linear(3, 2):eval()
local sizes = {}
local b = amp.serve.batcher(function(x)
  sizes[#sizes + 1] = x:size(1)
  assert(x:size(2) ~= 9, 'nine')
  return net(x)
end, {max_batch = 4, max_wait_ms = 5})
local good, bad = 0, 0
local function request()
  local x = amp.randn(3)
  local y = amp.no_grad(b, x)
  assert(amp.allclose(y, net(x:reshape(1, 3)):reshape(2)))
  good = good + 1
end
local function wrong()
  local ok, e = pcall(b, amp.ones(9))
  assert(not ok and tostring(e):find 'nine', e)
  bad = bad + 1
end
]]

describe('serve.batcher under a host as nginx is', function()
  it('joins requests and drops those that are gone', function()
    child("local host = require 'spec.lib.ngx'\nlocal amp = require 'amp'\n" .. body .. [[
for _ = 1, 6 do host.spawn(request) end
host.spawn(wrong)
local lost = host.spawn(request)
host.spawn(function() host.sleep(2); host.kill(lost) end)
local errors = host.run()
assert(#errors == 0, errors[1])
assert(good == 6 and bad == 1, good .. ' ' .. bad)
local s = b:stats()
assert(s.dropped == 1 and s.rows == 7 and s.failed == 1 and s.waiting == 0, s.dropped .. ' ' .. s.rows)
]])
  end)
end)

describe('serve.batcher with luv', function()
  local there = H.sh "luajit -e \"print(pcall(require, 'luv'))\" 2>&1":find '^true'
  it('joins requests on the loop', function()
    if not there then return pending 'luv is not installed (Debian: lua-luv)' end
    child("local uv = require 'luv'\nlocal amp = require 'amp'\n" .. body .. [[
for _ = 1, 6 do coroutine.wrap(request)() end
coroutine.wrap(wrong)()
uv.run()
assert(good == 6 and bad == 1, good .. ' ' .. bad)
assert(table.concat(sizes, ' ') == '4 2 1' or table.concat(sizes, ' ') == '4 1 2', table.concat(sizes, ' '))
local took
coroutine.wrap(function()
  local began = amp.clock()
  request()
  took = amp.clock() - began
end)()
uv.run()
assert(took < 5, took)
]])
  end)
end)

--- Regions of many coroutines: a thousand that wait in regions and are resumed in random order, by a scheduler or by one
-- another, some given up and collected.
local amp = require 'amp'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local S = core.S

local resume, yield, create, status = coroutine.resume, coroutine.yield, coroutine.create, coroutine.status

-- Kinds of regions, each with what it makes of what is around it: {grad, half, scope}.
local kinds = {
  { function(f) return amp.no_grad(f) end, function(e) return { false, e[2], e[3] } end },
  { function(f) return amp.enable_grad(f) end, function(e) return { true, e[2], e[3] } end },
  { function(f) return amp.autocast({ dtype = 'bfloat16' }, f) end, function(e) return { e[1], true, e[3] } end },
  { function(f) return amp.autocast({ enabled = false }, f) end, function(e) return { e[1], false, e[3] } end },
  { function(f) return amp.scope(f) end, function(e) return { e[1], e[2], true } end },
}
local PLAIN = { true, false, false }

local w = amp.ones(2, 2, { requires_grad = true })

local last -- who looked last

-- What an op does here, or what queries say, is what is expected.
local function look(e, by_op)
  last = coroutine.running()
  if by_op then
    local y = w:matmul(w)
    assert(y.requires_grad == e[1] and (y.dtype == 'bfloat16') == e[2], 'an op sees the state of another')
  else
    assert(amp.is_grad_enabled() == e[1] and amp.is_autocast_enabled() == e[2], 'a query sees the state of another')
  end
  assert((call.made ~= nil) == e[3], 'the scope is that of another')
end

-- A coroutine that enters regions, waits in them and now and then resumes another without having looked at anything. `own`: the
-- regions that it is in itself, as functions of what is around: who resumes it is around it.
local function worker(random, pool, around)
  return create(function()
    local own = {}
    local function expected()
      local e = around[1]
      for i = 1, #own do e = own[i](e) end
      return e
    end
    local function wait()
      if random(3) > 1 then look(expected(), random(2) == 1) end
      yield()
    end
    local function act(depth)
      for _ = 1, random(3) do
        local what = random(10)
        if what <= 5 and depth < 3 then
          local kind = kinds[random(#kinds)]
          local n = #own + 1
          local fine, message = pcall(kind[1], function()
            own[n], last = kind[2], coroutine.running()
            act(depth + 1)
            own[n] = nil
            if random(8) == 1 then error('out', 0) end
          end)
          own[n], last = nil, coroutine.running()
          assert(fine or message == 'out', message)
        elseif what == 6 then
          local other = pool[random(#pool)]
          if status(other.co) == 'suspended' then
            local before = other.around[1]
            other.around[1] = expected()
            if last == other.co then look(expected(), true) end -- or nothing tells that it runs under somebody else now
            local ok, e = resume(other.co)
            other.around[1] = before
            if not ok then error(e, 0) end
          end
        else wait() end
      end
    end
    while true do
      act(0)
      wait()
    end
  end)
end

describe('a thousand coroutines in regions', function()
  local function random_of(seed)
    return function(n)
      seed = (seed * 16807) % 2147483647
      return seed % n + 1
    end
  end

  local function run(many, turns, seed)
    local random, pool = random_of(seed), {}
    local function make(i)
      local around = { PLAIN }
      pool[i] = { around = around }
      pool[i].co = worker(random, pool, around)
    end
    for i = 1, many do make(i) end
    for turn = 1, turns do
      local i = random(many)
      if last == pool[i].co then look(PLAIN, true) end
      local ok, e = resume(pool[i].co)
      assert(ok, e)
      if turn % 7 == 0 then look(PLAIN, turn % 2 == 0) end
      if turn % 11 == 0 then make(random(many)) end -- one is given up where it waits
      if turn % 3000 == 0 then collectgarbage() end
    end
    look(PLAIN, true)
    assert.equal(0, S.autocast_depth)
  end

  it('are resumed in random order, by a scheduler and by one another: nothing leaks', function()
    run(1000, 4000, 1)
    for seed = 2, 20 do run(30, 1000, seed) end
  end)
  it('the same without the compiler', function()
    jit.off()
    local ok, e = pcall(run, 300, 4000, 77)
    jit.on()
    assert(ok, e)
  end)
end)

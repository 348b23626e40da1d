--- Coroutines that enter regions, look, yield, resume one another and leave, in every order up to a length: each order is
-- a tape that whoever runs reads on, beside a model in plain tables of who resumed whom and who is in what.
local amp = require 'amp'
local H = require 'spec.lib.helper'

-- A coroutine that looked last and is resumed by another one in a region, with no call between, has nothing of amp's on
-- its way: the shortest such order has nine steps (enter, yield, resume, look, yield, resume, resume, look).
local model = [[
local amp = ...
local call = require 'amp.core.call'
local resume, yield, create, running = coroutine.resume, coroutine.yield, coroutine.create, coroutine.running

-- The regions of actor 1 (the main thread), 2, 3 and 4, and what each makes of what is around it: {grad, half, scope}.
local kinds = {
  { function(f) return amp.autocast({ dtype = 'bfloat16' }, f) end, function(e) return { e[1], true, e[3] } end },
  { function(f) return amp.no_grad(f) end, function(e) return { false, e[2], e[3] } end },
  { function(f) return amp.autocast({ enabled = false }, f) end, function(e) return { e[1], false, e[3] } end },
  { function(f) return amp.scope(f) end, function(e) return { e[1], e[2], true } end },
}
local PLAIN = { true, false, false }
local w = amp.ones(2, 2, { requires_grad = true })

local function seen(by_op)
  local grad, half
  if by_op then
    local y = w:matmul(w)
    grad, half = y.requires_grad, y.dtype == 'bfloat16'
  else grad, half = amp.is_grad_enabled(), amp.is_autocast_enabled() end
  return grad, half, call.made ~= nil
end

-- by_c: a resume at each by_c-th step comes from a function that C called.
-- Whoever runs reads the tape: 0 look, -1 enter, -2 leave, -3 yield, n: resume actor n.
local function play(tape, length, actors, by_op, by_c)
  local at, chain, open, co, bad = 0, { 1 }, {}, {}, nil
  for i = 1, actors do open[i] = 0 end
  local function look()
    local e = PLAIN
    for i = 1, #chain do
      for _ = 1, open[chain[i] ] do e = kinds[chain[i] ][2](e) end
    end
    local grad, half, scope = seen(by_op)
    if not bad and (grad ~= e[1] or half ~= e[2] or scope ~= e[3]) then
      bad = ('after step %d of %s by %s: grad %s, half %s, scope %s'):format(at, table.concat(tape, ' ', 1, length),
        by_op and 'an op' or 'a query', tostring(grad), tostring(half), tostring(scope))
    end
  end
  local function act(me)
    while at < length do
      at = at + 1
      local what = tape[at]
      if what == 0 then look()
      elseif what == -1 then
        kinds[me][1](function()
          open[me] = open[me] + 1
          act(me)
          open[me] = open[me] - 1
        end)
      elseif what == -2 then return
      elseif what == -3 then
        chain[#chain] = nil
        yield()
      else
        chain[#chain + 1] = what
        if not co[what] then
          co[what] = create(function()
            act(what)
            chain[#chain] = nil
          end)
        end
        local ok, message
        if by_c and at % by_c == 0 then string.gsub('x', 'x', function() ok, message = resume(co[what]) end)
        else ok, message = resume(co[what]) end
        if not ok then error(message, 0) end
      end
    end
    if at == length then look() end
    at = length + 1 -- all leave now, without a look between
  end
  act(1)
  for i = 2, actors do
    while co[i] and coroutine.status(co[i]) == 'suspended' do
      chain[2] = i
      local ok, message = resume(co[i])
      if not ok then error(message, 0) end
      chain[2] = nil
    end
  end
  at = length + 2
  look()
  return bad
end

-- All tapes of a length. `keep` thins them out: true for those that run. Of the coroutines the one with the lower number is
-- resumed first, as their order means nothing; nobody looks twice.
local function every(length, actors, depth, by_op, keep)
  local tape, chain, open, tapes = {}, { 1 }, {}, 0
  for i = 1, actors do open[i] = 0 end
  local function extend(n, first)
    if n > length then
      if keep and not keep() then return end
      tapes = tapes + 1
      local bad = play(tape, length, actors, by_op)
      if bad then error(bad, 0) end
      return
    end
    local me = chain[#chain]
    if tape[n - 1] ~= 0 and n > 1 and n < length then
      tape[n] = 0
      extend(n + 1, first)
    end
    if open[me] < depth then
      tape[n], open[me] = -1, open[me] + 1
      extend(n + 1, first)
      open[me] = open[me] - 1
    end
    if open[me] > 0 and tape[n - 1] ~= -1 then
      tape[n], open[me] = -2, open[me] - 1
      extend(n + 1, first)
      open[me] = open[me] + 1
    end
    if #chain > 1 then
      tape[n], chain[#chain] = -3, nil
      extend(n + 1, first)
      chain[#chain + 1] = me
    end
    for other = 2, actors < first + 1 and actors or first + 1 do
      local held = false
      for i = 1, #chain do held = held or chain[i] == other end
      if not held then
        tape[n], chain[#chain + 1] = other, other
        extend(n + 1, other > first and other or first)
        chain[#chain] = nil
      end
    end
  end
  extend(1, 1)
  return tapes
end
return every, play
]]

local code = 'local _ = amp\n' .. model:gsub('^local amp = %.%.%.', ''):gsub('return every, play', '') .. [[
for _, by_op in ipairs { false, true } do
  every(8, 3, 1, by_op)
  every(7, 4, 1, by_op)
end
print 'good'
]]

-- Three hundred tapes of two hundred steps, drawn from a seed.
local function at_random(play)
  local seed = 7
  local function random(n)
    seed = (seed * 16807) % 2147483647
    return seed % n + 1
  end
  for round = 1, 300 do
    local actors = 4 -- there are kinds for four
    local tape, chain, open = {}, { 1 }, { 0, 0, 0, 0 }
    for n = 1, 200 do
      local me, what = chain[#chain]
      repeat
        what = random(6)
        if what == 1 then tape[n] = 0
        elseif what == 2 and open[me] < 3 then
          tape[n], open[me] = -1, open[me] + 1
        elseif what == 3 and open[me] > 0 then
          tape[n], open[me] = -2, open[me] - 1
        elseif what == 4 and #chain > 1 then
          tape[n], chain[#chain] = -3, nil
        elseif what >= 5 then
          local other, held = 1 + random(actors - 1), false
          for i = 1, #chain do held = held or chain[i] == other end
          if held then what = nil else tape[n], chain[#chain + 1] = other, other end
        else what = nil end
      until what
    end
    local bad = play(tape, 200, actors, round % 2 == 0, round % 3 > 0 and round % 3 + 1)
    if bad then error(bad, 0) end
  end
end

describe('every order of enter, leave, look, yield and resume', function()
  local every, play = assert(loadstring(model, '=model'))(amp)
  local function all(least, ...) assert.is_true(every(...) >= least) end
  it('of the main thread and one coroutine', function()
    all(2000, 8, 2, 2, true)
    all(2000, 8, 2, 2, false)
  end)
  it('of the main thread and two', function()
    all(60000, 10, 3, 1, false)
    all(18000, 9, 3, 1, true)
    all(5000, 8, 3, 2, true)
  end)
  it('of the main thread and three', function()
    all(11000, 8, 4, 1, true)
    all(40000, 9, 4, 1, false)
  end)
  it('of two without the compiler', function()
    local out, status = H.child(code, '-joff')
    assert.equal(0, status, out)
    assert.is_truthy(out:find 'good', out)
  end)
  it('where the frames of LuaJIT are not readable', function()
    local out, status = H.child(code, [[-e "package.preload['amp.core.frames'] = function() return function() return false end end"]])
    assert.equal(0, status, out)
    assert.is_truthy(out:find 'good', out)
  end)
  it('two hundred steps of four, at random, after all these', function() at_random(play) end)
end)

--- How LuaJIT's frames on the processor's stack tell who resumed a coroutine.
-- A coroutine's own block points to its innermost frame there. A frame holds its coroutine's address, the coroutine's frame
-- outside it (where C called Lua in between; else 0) and where it returns to. One that returns into Lua's resume or wrap lies
-- right below its resumer's. So the chain up to the main thread can be read (amp_links), and is what it was as long as those
-- words are. Their places, which no interface gives, are looked for: each is the one word that was right in each of some
-- dozens of frames, made by resume and by wrap from several calls, and by C.
-- @module amp.core.frames
local ffi = require 'ffi'
local bit = require 'bit'

local create, resume, wrap, running, gsub = coroutine.create, coroutine.resume, coroutine.wrap, coroutine.running, string.gsub

local words_t = ffi.typeof 'const uint64_t *'
local FLAGS, WORDS = 3, 32 -- the lowest bits of a pointer to a frame; words looked at from there
local RESUME, WRAP, C = 1, 2, 3

-- A chain of coroutines, of which each notes its frame and then one that C made inside; the next is resumed from one of these,
-- by either way from two calls each.
local function chains(word, address)
  local made, level = {}, nil -- {coroutine's address, pointer to the frame, its words, way, pointer to the frame outside}
  local function note(way, outer)
    local me = address(running())
    local raw = ffi.cast(words_t, me)[word]
    local frame, words = ffi.cast(words_t, bit.band(raw, bit.bnot(0ULL + FLAGS))), {}
    for i = 0, WORDS - 1 do words[i] = frame[i] end
    made[#made + 1] = { me = me, raw = raw, words = words, way = way, outer = outer or 0ULL }
    return raw
  end
  local function go_on(n)
    local way = n % 4
    if way == 0 then return resume(create(level), n - 1, RESUME) end
    if way == 1 then
      wrap(level)(n - 1, WRAP)
      return n
    end
    local f, below = level, n - 1
    if way == 2 then
      local ok = resume(create(f), below, RESUME)
      return 1, ok
    end
    f = wrap(f)
    return f(below, WRAP), n
  end
  level = function(n, way)
    local outer, deep = note(way), n % 3 == 0
    gsub('x', 'x', function()
      note(C, outer)
      if deep and n > 0 then go_on(n) end
    end)
    if not deep and n > 0 then go_on(n) end
  end
  for n = 4, 12 do wrap(level)(n, WRAP) end
  return made
end

local function search(word, address, out)
  local made = chains(word, address)
  local step -- how far above a frame its coroutine's resumer has its own
  for i = 2, #made do
    local above, below = made[i - 1], made[i]
    local d = tonumber(bit.band(above.raw, bit.bnot(0ULL + FLAGS))) - tonumber(bit.band(below.raw, bit.bnot(0ULL + FLAGS)))
    if below.way ~= C and d > 0 and (not step or d < step) then step = d end
  end
  if not step or step % 8 ~= 0 or step > WORDS * 8 then return false end
  local function only(right)
    local found
    for i = 0, step / 8 - 1 do
      if right(i) then
        if found then return nil end
        found = i
      end
    end
    return found
  end
  local function field(name)
    return only(function(i)
      for k = 1, #made do
        if made[k].words[i] ~= made[k][name] then return false end
      end
      return true
    end)
  end
  local owner, outer = field 'me', field 'outer'
  local target
  local back = only(function(i)
    local to = {}
    for k = 1, #made do
      local way, word_ = made[k].way, made[k].words[i]
      if to[way] == nil then to[way] = word_ end
      if way ~= C and to[way] ~= word_ then return false end
      if way == C and (word_ == to[RESUME] or word_ == to[WRAP]) then return false end
    end
    if to[RESUME] == to[WRAP] then return false end
    target = to
    return true
  end)
  if not (owner and outer and back) then return false end
  out.word, out.step, out.owner, out.outer, out.back = word, step, owner * 8, outer * 8, back * 8
  out.by_resume, out.by_wrap = target[RESUME], target[WRAP]
  return true
end
jit.off(chains, true)
jit.off(search, true)

--- Fill in where the words lie.
-- @tparam number word which of a coroutine's words (from 0) points to its frame (amp.running)
-- @tparam function address of a coroutine
-- @tparam cdata out amp_frames
-- @treturn boolean whether they were found
return function(word, address, out)
  local ok, found = resume(create(search), word, address, out)
  if not ok then error(found, 0) end
  return found
end

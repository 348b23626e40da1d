--- Where LuaJIT notes which coroutine runs.
-- Its global state holds the address of the running coroutine; compiled code leaves traces by it, so it is right at every
-- instruction, whoever resumed the coroutine: Lua, a host's scheduler, a callback. Reading it costs a load, and compiles,
-- where coroutine.running() does neither. No interface gives its place, which differs between versions, so it is looked
-- for: the one word behind the global state that was the running coroutine's address in each of some dozens of switches.
-- Where a coroutine's frame lies on the processor's stack, its own block says, in a word that is found in the same way.
-- @module amp.core.running
local ffi = require 'ffi'

local WORDS, ROUNDS = 128, 1000 -- the global state and what lies behind it in the same block; switches at most

local create, resume, yield, running = coroutine.create, coroutine.resume, coroutine.yield, coroutine.running

local function address(co) return ffi.cast('uint64_t', ffi.cast('uintptr_t', tonumber(tostring(co):match '0x(%x+)$', 16))) end

local function search()
  local first = ffi.cast('uint64_t *', address(running()))[2] -- lua_State: header, status, then the global state's address
  local state = ffi.cast('uint64_t *', first)
  local fits, left = {}, WORDS
  for i = 0, WORDS - 1 do fits[i] = true end
  local function look()
    local me = address(running())
    for i = 0, WORDS - 1 do
      if fits[i] and state[i] ~= me then fits[i], left = false, left - 1 end
    end
  end
  local function other()
    look()
    yield()
    look()
  end
  for round = 1, ROUNDS do
    local co = create(other)
    look()
    resume(co)
    look()
    resume(co)
    if left == 0 then return nil end
    if left == 1 and round >= 32 then break end
  end
  if left ~= 1 then return nil end
  for i = 0, WORDS - 1 do
    if fits[i] then return state + i end
  end
end

-- The word of a coroutine that points to its frame on the processor's stack, and so is less by the same for each that was
-- resumed by another.
local function search_frame()
  local fits, left, step = {}, 0, nil
  for i = 3, 10 do fits[i], left = true, left + 1 end
  local chain = {}
  local function look()
    for i = 3, 10 do
      for k = 2, #chain do
        local above, below = tonumber(chain[k - 1][i]), tonumber(chain[k][i])
        local d = above - below
        if fits[i] and (below % 8 ~= 1 or d <= 0 or d > 4096 or k > 2 and d ~= step) then fits[i], left = false, left - 1 end
        step = d
      end
    end
  end
  local function level(n)
    chain[#chain + 1] = ffi.cast('const uint64_t *', address(running()))
    if n == 0 then look()
    elseif n % 2 == 0 then coroutine.wrap(level)(n - 1)
    else resume(create(level), n - 1) end
  end
  for n = 3, 8 do
    chain = {}
    local ok = resume(create(level), n)
    if not ok then return nil end
  end
  if left ~= 1 then return nil end
  for i = 3, 10 do
    if fits[i] then return i end
  end
end
jit.off(address)
jit.off(search, true)
jit.off(search_frame, true)

--- A pointer to the running coroutine's address, nil where it was not found; and which of a coroutine's words (from 0) points to
-- its frame, which is a lower one for whom it resumed; nil where that was not found.
-- @treturn ?cdata const uint64_t *
-- @treturn ?number
-- @treturn function the address of a coroutine
local function place()
  if not (ffi.abi 'gc64' and ffi.abi '64bit') then return nil end
  local ok, found = resume(create(search))
  if not ok or not found then return nil end
  local good, word = resume(create(search_frame))
  return found, good and word or nil, address
end

return place

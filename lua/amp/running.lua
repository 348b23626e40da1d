--- Where LuaJIT notes which coroutine runs.
-- Its global state holds the address of the running coroutine; compiled code leaves traces by it, so it is right at every
-- instruction, whoever resumed the coroutine: Lua, a host's scheduler, a callback. Reading it costs a load, and compiles,
-- where coroutine.running() does neither. No interface gives its place, which differs between versions, so it is looked
-- for: the one word behind the global state that was the running coroutine's address in each of some dozens of switches.
-- @module amp.running
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
jit.off(address)
jit.off(search, true)

--- A pointer to the running coroutine's address, nil where it was not found.
-- @treturn ?cdata const uint64_t *
local function place()
  if not (ffi.abi 'gc64' and ffi.abi '64bit') then return nil end
  local co = create(search)
  local ok, found = resume(co)
  return ok and found or nil
end

return place

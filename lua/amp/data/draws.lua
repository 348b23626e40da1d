--- Random numbers of a dataset: which ones an example gets is a function of the seed, the epoch and the example's place in it.
--
--   seed, epochs begun since --> key of the epoch --> seed of batch b, of its transform
--   seed of a batch: an example draws from its own place in that sequence, and from math.random seeded anew
--
-- So workers, prefetch, the order in which batches are made and a resume change nothing, and the caller's own sequences (amp's and
-- math.random's) go on as if the dataset had drawn nothing. Keys are hashed, never added: epoch 2 of seed 1 has nothing of epoch 1
-- of seed 2. Seeds are whole numbers below 2^53, which Lua's numbers and checkpoints hold.
local bit = require 'bit'
local ffi = require 'ffi'
local core = require 'amp.ffi'
local epochs = require('amp.tensor.create').epochs
local err = require 'amp.error'
local region = require 'amp.core.region'
local S = core.S
local bxor, bor, rshift = bit.bxor, bit.bor, bit.rshift
local random, randomseed = math.random, math.randomseed
local copy, running = ffi.copy, coroutine.running

local M = {}

local STEP = 0x9e3779b97f4a7c15ULL

-- The finaliser of SplitMix64.
local function mix(x)
  x = bxor(x, rshift(x, 30)) * 0xbf58476d1ce4e5b9ULL
  x = bxor(x, rshift(x, 27)) * 0x94d049bb133111ebULL
  return bxor(x, rshift(x, 31))
end

local function word(n) return ffi.cast('uint64_t', n) end

--- The key of an epoch that begins now: a whole number below 2^53.
function M.begin()
  region.here()
  local key = mix(mix(S.seed + STEP) + STEP * word(epochs.n + 1))
  epochs.n = epochs.n + 1
  return tonumber(rshift(key, 11))
end

--- Seeds of an epoch: a function from the number of a batch to the seed of what its dataset draws, or its transform.
-- @tparam number key of the epoch
-- @tparam string kind 'batch' or 'transform'
function M.seeds(key, kind)
  local base = mix(word(key) * 2 + (kind == 'batch' and 1 or 0))
  return function(b) return tonumber(rshift(mix(base + STEP * word(b)), 11)) end
end

-- -- The place of both generators ------------------------------------------------------------------

local AMP, LUA = 16, 32 -- bytes: seed and rng_offset of the state, which are neighbours; math.random's four words
local TOP = 0x8000000000000000ULL -- no word of math.random may be small
local place = ffi.cast('char *', S) + ffi.offsetof('amp_state', 'seed')

-- math.random's words: they lie in the userdata that LuaJIT's function has as its upvalue. nil where that isn't so: the host took
-- `debug` away or put a function of its own in math.random's place. Then a number drawn before is the seed to go on from.
local function find_words()
  if not (debug and debug.getupvalue) or debug.getinfo(random, 'S').what ~= 'C' then return nil end
  local _, held = debug.getupvalue(random, 1)
  if type(held) ~= 'userdata' then return nil end
  local p = ffi.cast('char *', ffi.cast('void *', held))
  local length = ffi.cast('uint32_t *', p - (ffi.abi 'gc64' and 24 or 12))[0] -- GCudata.len
  return length == LUA and p or nil -- older ones have a flag behind the words, and may not be seeded yet
end
local words = find_words()

-- Compiled code must not move reads and writes of the words over calls of math.random, which it does not take for users of this memory:
-- they all go by ffi.copy, which is a barrier.
local four = ffi.new 'uint64_t[4]'

-- math.random goes on from place n of the sequences that x names.
local function seed_lua(x, n)
  if not words then return randomseed(tonumber(rshift(mix(x + STEP * word(n)), 11))) end
  local y = x + STEP * word(4 * n)
  four[0] = bor(mix(y), TOP)
  four[1] = bor(mix(y + STEP), TOP)
  four[2] = bor(mix(y + 2 * STEP), TOP)
  four[3] = bor(mix(y + 3 * STEP), TOP)
  copy(words, four, LUA)
end

local function save(to)
  copy(to, place, AMP)
  if words then copy(to + AMP, words, LUA) end
end

local function restore(from)
  copy(place, from, AMP)
  if words then copy(words, from + AMP, LUA) end
end

local function enter(seed)
  S.seed, S.rng_offset, epochs.n = seed, 0, 0
  seed_lua(word(seed), 0)
end

--- Go to example `row` of a batch, inside `run`.
-- @tparam number seed that of the batch
function M.example(row, seed)
  S.seed, S.rng_offset = seed, row * 2 ^ 32
  epochs.n = row * 2 ^ 16 -- a loader inside a dataset has epochs of its own, too
  seed_lua(word(seed), row)
end

-- -- Running ----------------------------------------------------------------------------------------

local function buffer() return ffi.new('char[?]', AMP + LUA) end

-- In a coroutine: what runs may yield, and its resumer has the outer place meanwhile.
local kind = region.kind(function(rec)
  save(rec.outer)
  rec.outer_epochs = epochs.n
  if not words then rec.go_on = random() * 2 ^ 52 end
end, function(rec)
  if not rec.kept then return enter(rec.seed) end
  restore(rec.inner)
  epochs.n = rec.inner_epochs
end, function(rec)
  save(rec.inner)
  rec.inner_epochs, rec.kept = epochs.n, true
end, function(rec)
  restore(rec.outer)
  epochs.n = rec.outer_epochs
  if not words then randomseed(rec.go_on) end
end)

-- Where nothing can yield: places by depth of calls inside one another.
local depth, outer = 0, {}

local function leave(n, go_on, ok, ...)
  depth = depth - 1
  restore(outer[depth])
  epochs.n = n
  if go_on then randomseed(go_on) end
  if not ok then error((...), 0) end
  return ...
end

--- Run fn(...) with the random numbers of a seed.
-- @return fn's results
function M.run(seed, fn, ...)
  if running() then return region.run(kind, { seed = seed, outer = buffer(), inner = buffer() }, fn, ...) end
  region.here()
  local at = outer[depth]
  if not at then
    at = buffer()
    outer[depth] = at
  end
  save(at)
  depth = depth + 1
  local n, go_on = epochs.n, not words and random() * 2 ^ 52 or nil
  enter(seed)
  return leave(n, go_on, xpcall(fn, err.note_here, ...))
end

return M

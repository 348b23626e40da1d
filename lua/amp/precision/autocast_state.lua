--- The autocast state of a device type: four bytes (enabled, dtype, cache, verbose), always read and written as one number.
-- LuaJIT takes accesses of different types to be of different memory, so in compiled code a byte that was just written
-- does not show in a word read after it, nor the other way round: nothing in Lua touches the bytes by themselves.
-- @module amp.precision.autocast_state
local bit = require 'bit'
local ffi = require 'ffi'
local S = require('amp.ffi').S
local band, bor, bnot, lshift, rshift = bit.band, bit.bor, bit.bnot, bit.lshift, bit.rshift

local M = {}

--- The state's words, by device type from 0.
M.of = ffi.cast('int32_t *', S.autocast)

local little = ffi.abi 'le'
local ENABLED, DTYPE, CACHE, VERBOSE = little and 0 or 24, little and 8 or 16, little and 16 or 8, little and 24 or 0

--- A word of its parts: booleans, and the dtype's number; of a region of 8 bits the recipe (from 1) and the history's length.
function M.pack(enabled, dtype, cache, verbose, recipe, history)
  local w = bor(enabled and lshift(1, ENABLED) or 0, lshift(dtype, DTYPE), cache and lshift(1, CACHE) or 0, verbose and lshift(1, VERBOSE) or 0)
  if not recipe then return w end
  return bor(w, lshift(recipe, CACHE + 2), lshift(band(history, 127), VERBOSE + 1), lshift(rshift(history, 7), CACHE + 4))
end

--- The most steps that a word has room for.
M.MOST_HISTORY = 2047

local eight = bor(lshift(254, VERBOSE), lshift(252, CACHE))

--- Whether w is a region's of 8 bits.
function M.is_float8(w) return band(rshift(w, ENABLED), 255) ~= 0 and band(rshift(w, CACHE), 12) ~= 0 end

--- The region of its base.
function M.base(w) return band(w, bnot(eight)) end

--- What stays in the base in the region of 8 bits that is innermost: a text that says which modules, or nil.
M.exclude = nil

function M.enabled(w) return band(rshift(w, ENABLED), 255) ~= 0 end
function M.verbose(w) return band(rshift(w, VERBOSE), 1) ~= 0 end
function M.dtype(w) return band(rshift(w, DTYPE), 255) end

--- w with its enabled part on or off.
function M.switched(w, on) return bor(band(w, bnot(lshift(255, ENABLED))), on and lshift(1, ENABLED) or 0) end

--- w as a graph that is recorded notes it: set by the function itself.
function M.own(w) return band(w, bnot(lshift(2, CACHE))) end

--- Whether w is its caller's, in a function that is recorded as a graph: what is read of it would be another's in a run.
function M.callers(w) return band(w, lshift(2, CACHE)) ~= 0 end

--- Told of device types whose state Lua's code reads while a graph is recorded; false: none is.
M.asked = false

--- Lua's code reads the state of a device type (nil: of all), to do one thing or another.
function M.tell(device)
  local asked = M.asked
  if not asked then return end
  for d = device or 0, device or 1 do
    if M.callers(M.of[d]) then asked(d) end
  end
end

local verbose = lshift(1, VERBOSE)

--- w as verbose as another.
function M.as_verbose(w, other) return bor(band(w, bnot(verbose)), band(other, verbose)) end

return M

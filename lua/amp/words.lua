--- The autocast state of a device type: four bytes (enabled, dtype, cache, verbose), always read and written as one number.
-- LuaJIT takes accesses of different types to be of different memory, so in compiled code a byte that was just written
-- does not show in a word read after it, nor the other way round: nothing in Lua touches the bytes by themselves.
-- @module amp.words
local bit = require 'bit'
local ffi = require 'ffi'
local S = require('amp.ffi').S
local band, bor, bnot, lshift, rshift = bit.band, bit.bor, bit.bnot, bit.lshift, bit.rshift

local M = {}

--- The state's words, by device type from 0.
M.of = ffi.cast('int32_t *', S.autocast)

local little = ffi.abi 'le'
local ENABLED, DTYPE, CACHE, VERBOSE = little and 0 or 24, little and 8 or 16, little and 16 or 8, little and 24 or 0

--- A word of its parts: booleans, and the dtype's number.
function M.pack(enabled, dtype, cache, verbose)
  return bor(enabled and lshift(1, ENABLED) or 0, lshift(dtype, DTYPE), cache and lshift(1, CACHE) or 0, verbose and lshift(1, VERBOSE) or 0)
end

function M.enabled(w) return band(rshift(w, ENABLED), 255) ~= 0 end
function M.verbose(w) return band(rshift(w, VERBOSE), 255) ~= 0 end
function M.dtype(w) return band(rshift(w, DTYPE), 255) end

--- w with its enabled part on or off.
function M.switched(w, on) return bor(band(w, bnot(lshift(255, ENABLED))), on and lshift(1, ENABLED) or 0) end

local verbose = lshift(255, VERBOSE)

--- w as verbose as another.
function M.as_verbose(w, other) return bor(band(w, bnot(verbose)), band(other, verbose)) end

return M

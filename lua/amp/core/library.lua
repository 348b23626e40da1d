--- Small questions to the library: version, threads, clock.
-- @module amp.core.library
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local util = require 'amp.util'
local C = core.C

local M = {}

--- The version, and where the Lua files and the library were found.
-- @treturn string version
-- @treturn string directory of the Lua files
-- @treturn string path of the library
function M.version() return ffi.string(C.amp_version()), core.here, core.path end

--- Threads that kernels may use.
-- @tparam number n
function M.set_num_threads(n, excess)
  require('amp.options').none('set_num_threads', excess)
  if type(n) ~= 'number' or n % 1 ~= 0 or n < 1 then
    err.throw('set_num_threads', 'the number of threads must be a positive integer, got %s', util.show(n))
  end
  return C.amp_set_threads(n)
end

--- Threads that kernels may use.
function M.get_num_threads() return C.amp_set_threads(0) end

--- Whether a value is a tensor.
function M.is_tensor(v) return ffi.istype(core.ref_t, v) end

--- Wall time in seconds, from an arbitrary start; never runs backward.
function M.clock() return C.amp_clock() end

--- Make runs repeat bit by bit: same program, same seed, same machine, same results. On a GPU, sums then don't depend on the
-- order in which threads come, and ways of doing a product are not chosen by timing; that costs speed. On the CPU runs repeat
-- anyhow, for the same number of threads. For the whole process, and devices found later.
-- @tparam ?boolean on default true
function M.use_deterministic(on, excess)
  require('amp.options').none('use_deterministic', excess)
  if on == nil then on = true end
  if type(on) ~= 'boolean' then err.throw('use_deterministic', 'true or false is expected, got %s', util.show(on)) end
  C.amp_use_deterministic(on and 1 or 0)
end

--- Whether runs repeat bit by bit (amp.use_deterministic).
-- @treturn boolean
function M.is_deterministic() return C.amp_use_deterministic(-1) == 1 end

return M

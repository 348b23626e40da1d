--- Questions about GPUs, answered with or without one.
-- @module amp.cuda
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.call'
local err = require 'amp.error'
local types = require 'amp.types'
local C, S = core.C, core.S

local M = {}

local CUDA = 1

--- Whether a GPU can be used.
function M.is_available() return C.amp_device_available(CUDA) > 0 end

--- Number of GPUs.
function M.device_count() return C.amp_device_available(CUDA) end

--- Why there is no GPU, or what the plug-in says of itself.
-- @treturn string
function M.reason()
  local why = C.amp_device_reason(CUDA)
  return why ~= nil and ffi.string(why) or ''
end

local function stats(op, device)
  local code = types.device(device or 'cuda', op)
  if code < 256 then err.throw_code('device', op, "a GPU is expected, got '%s'", device) end
  return C.amp_memory(CUDA, code % 256)
end

--- Bytes on a GPU.
-- @tparam ?string device default 'cuda'
-- @treturn table {live, cached, peak, allocations, failures}
function M.memory_stats(device)
  local m = stats('cuda.memory_stats', device)
  return { live = tonumber(m.live), cached = tonumber(m.cached), peak = tonumber(m.peak),
    allocations = tonumber(m.allocations), failures = tonumber(m.failures) }
end

function M.max_memory_allocated(device) return tonumber(stats('cuda.max_memory_allocated', device).peak) end

function M.reset_max_memory_allocated(device)
  local m = stats('cuda.reset_max_memory_allocated', device)
  m.peak = m.live
end

--- Wait until a GPU has done all it was given. Without a GPU nothing is to be waited for;
-- one asked for by name has to be there.
-- @tparam ?string device default: the first
function M.synchronize(device)
  if device == nil and not M.is_available() then return end
  local code = types.device(device or 'cuda', 'cuda.synchronize')
  if code < 256 then err.throw_code('device', 'cuda.synchronize', "a GPU is expected, got '%s'", device) end
  call.check(C.amp_synchronize(S, CUDA, code % 256), 'cuda.synchronize')
end

--- Give cached blocks back to the driver. Nothing to do without a GPU.
function M.empty_cache()
  if M.is_available() then C.amp_empty_cache(CUDA) end
end

return M

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

-- Code of a GPU that is there: 256 + its index from 0.
local function gpu(op, device)
  if type(device) == 'number' then device = 'cuda:' .. device end
  local code = types.device(device or 'cuda', op)
  if code < 256 then err.throw_code('device', op, "a GPU is expected, got '%s'", device) end
  return code
end

local function stats(op, device) return C.amp_memory(CUDA, gpu(op, device) % 256) end

--- Bytes on a GPU.
-- @tparam ?string device default 'cuda'
-- @treturn table {live, cached, peak, allocations, failures}
function M.memory_stats(device)
  local m = stats('cuda.memory_stats', device)
  return { live = tonumber(m.live), cached = tonumber(m.cached), peak = tonumber(m.peak),
    allocations = tonumber(m.allocations), failures = tonumber(m.failures) }
end

--- Most bytes of tensors that a GPU held at once.
-- @tparam ?string device default 'cuda'
function M.max_memory_allocated(device) return tonumber(stats('cuda.max_memory_allocated', device).peak) end

--- Count the most bytes anew from now on.
function M.reset_max_memory_allocated(device)
  local m = stats('cuda.reset_max_memory_allocated', device)
  m.peak = m.live
end

--- Wait until a GPU has done all it was given. Without a GPU nothing is to be waited for;
-- one asked for by name has to be there.
-- @tparam ?string device default: the first
function M.synchronize(device)
  if device == nil and not M.is_available() then return end
  call.check(C.amp_synchronize(S, CUDA, gpu('cuda.synchronize', device) % 256), 'cuda.synchronize')
end

-- What a plug-in has to offer: an error that says why there is no GPU, or that its plug-in has none of it.
local function offered(op, device)
  gpu(op, device)
  err.throw_code('unsupported', op, 'the plug-in in use has no %s: %s', op:match '[%w_]+$', M.reason())
end

local properties_t = ffi.typeof 'amp_device_properties'

--- What a GPU is.
-- @tparam ?string device default 'cuda'
-- @treturn table {name, total_memory (bytes), major, minor (compute capability), multi_processor_count}
function M.get_device_properties(device)
  local code, p = gpu('cuda.get_device_properties', device), properties_t()
  call.check(C.amp_device_get_properties(S, CUDA, code % 256, p), 'cuda.get_device_properties')
  return { name = ffi.string(p.name), total_memory = tonumber(p.total_memory), major = p.major, minor = p.minor,
    multi_processor_count = p.multi_processor_count }
end

local function switch(name, value)
  if value ~= nil and type(value) ~= 'boolean' then err.throw('cuda.' .. name, 'true or false is expected, got %s', tostring(value)) end
  gpu('cuda.' .. name)
  local was = C.amp_device_set(S, CUDA, name, value == nil and -1 or value and 1 or 0)
  if was < 0 then err.raise('cuda.' .. name) end
  return was == 1
end

--- Whether products and convolutions of float32 may use TF32 (10 bits of precision, faster); false until it is set.
-- @tparam ?boolean value nil only asks
-- @treturn boolean what it was
function M.tf32(value) return switch('tf32', value) end

--- Whether runs must repeat bit by bit: no candidates are timed, no sums depend on the order of threads.
-- @tparam ?boolean value nil only asks
-- @treturn boolean what it was
function M.deterministic(value) return switch('deterministic', value) end

--- Version of a library the GPU's part uses, or why it is not there.
-- @tparam string name 'cublas', 'cudnn', 'cusolver', 'cufft' or 'nccl'
-- @treturn string
function M.version_of(name) return ffi.string(C.amp_device_library(CUDA, name)) end

--- The stream that a GPU's work goes to.
-- @tparam ?string device default 'cuda'
function M.current_stream(device) return offered('cuda.current_stream', device) end

--- A new stream of a GPU.
-- @tparam ?string device default 'cuda'
function M.Stream(device) return offered('cuda.Stream', device) end

--- A mark in a stream, to be waited for or timed.
-- @tparam ?string device default 'cuda'
function M.Event(device) return offered('cuda.Event', device) end

--- Give cached blocks back to the driver. Nothing to do without a GPU.
function M.empty_cache()
  if M.is_available() then C.amp_empty_cache(CUDA) end
end

return M

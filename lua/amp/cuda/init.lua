--- Questions about GPUs, answered with or without one.
-- @module amp.cuda
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local types = require 'amp.types'
local waits = require 'amp.core.waits'
local C, S = core.C, core.S

local M = {}

local CUDA = C.AMP_CUDA

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

local function gpu(op, device) return types.gpu(device, op) end -- index from 0

local function stats(op, device) return C.amp_memory(CUDA, gpu(op, device)) end

local bytes = ffi.typeof 'int64_t[2]'

--- Bytes on a GPU.
-- @tparam ?string device default 'cuda'
-- @treturn table {live (in tensors), cached, kept (of the cached ones, those of captured steps), peak, free, total (of the card), others (the
-- driver's, libraries', other programs'), allocations, failures}
function M.memory_stats(device)
  local m = stats('cuda.memory_stats', device)
  local b, live, cached = bytes(), tonumber(m.live), tonumber(m.cached)
  call.check(C.amp_device_memory(S, CUDA, gpu('cuda.memory_stats', device), b, b + 1), 'cuda.memory_stats')
  local free, total = tonumber(b[0]), tonumber(b[1])
  return { live = live, cached = cached, kept = tonumber(m.kept), peak = tonumber(m.peak), free = free, total = total,
    others = math.max(total - free - live - cached, 0), allocations = tonumber(m.allocations), failures = tonumber(m.failures) }
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
  call.check(C.amp_synchronize(S, CUDA, gpu('cuda.synchronize', device)), 'cuda.synchronize')
  if waits.pending then waits.look() end
end

local properties_t = ffi.typeof 'amp_device_properties'

--- What a GPU is.
-- @tparam ?string device default 'cuda'
-- @treturn table {name, total_memory (bytes), major, minor (compute capability), multi_processor_count}
function M.get_device_properties(device)
  local index, p = gpu('cuda.get_device_properties', device), properties_t()
  call.check(C.amp_device_get_properties(S, CUDA, index, p), 'cuda.get_device_properties')
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

--- The GPUs' part of amp.use_deterministic: no candidates are timed, no sums depend on the order of threads.
-- @tparam ?boolean value nil only asks
-- @treturn boolean what it was
function M.deterministic(value) return switch('deterministic', value) end

--- Version of a library the GPU's part uses, or why it is not there.
-- @tparam string name 'cublas', 'cudnn', 'cusolver', 'cufft', 'nvrtc' (with what it has compiled) or 'nccl'
-- @treturn string
function M.version_of(name)
  if type(name) ~= 'string' then err.throw('cuda.version_of', "the name of a library is expected, such as 'cudnn', got %s", tostring(name)) end
  return ffi.string(C.amp_device_library(CUDA, name))
end

M.Stream = require 'amp.cuda.stream'
M.Event = require 'amp.cuda.event'
local Stream = M.Stream.class

--- The stream that a GPU's work goes to.
-- @tparam ?string device default 'cuda'
-- @treturn Stream
function M.current_stream(device) return Stream._current(types.gpu(device, 'cuda.current_stream'), 'cuda.current_stream') end

--- The stream that a GPU starts with.
-- @tparam ?string device default 'cuda'
-- @treturn Stream
function M.default_stream(device) return Stream._default(types.gpu(device, 'cuda.default_stream')) end

--- Run fn(...) with what it gives the GPU going to a stream: stream:with(fn, ...).
-- @tparam Stream stream
-- @tparam function fn
-- @return fn's results
function M.stream(stream, fn, ...) return Stream._check(stream, 'cuda.stream'):with(fn, ...) end

--- Give cached blocks back to the driver. Nothing to do without a GPU.
function M.empty_cache()
  if M.is_available() then C.amp_empty_cache(CUDA) end
end

return M

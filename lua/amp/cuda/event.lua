--- Marks in a GPU's streams.
-- @classmod amp.cuda.Event
local core = require 'amp.ffi'
local ffi = require 'ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local options = require 'amp.options'
local types = require 'amp.types'
local util = require 'amp.util'
local C, S = core.C, core.S

local Event = {}
Event.__index = Event

local CUDA = C.AMP_CUDA

local function self_check(e, op)
  if getmetatable(e) ~= Event then err.throw('cuda.Event', '%s is a method: event:%s(...)', op, op) end
  return e
end

-- Makes it on the device that it is first used with.
local function made(e, index, op)
  if e.handle == nil then
    local handle = C.amp_event_new(S, CUDA, index, e.timing and 1 or 0)
    if handle == nil then err.raise(op) end
    e.handle, e.index = ffi.gc(handle, C.amp_event_free), index
  end
  return e.handle
end

--- A new event: it belongs to the GPU it is first recorded on.
-- @tparam ?table|string options {enable_timing (false), device}; or a device
-- @usage
-- local from, to = amp.cuda.Event { enable_timing = true }, amp.cuda.Event { enable_timing = true }
-- from:record() work() to:record():synchronize() print(from:elapsed_time(to))
local function new(_, given)
  local op = 'cuda.Event'
  if type(given) == 'string' then given = { device = given } end
  local o = options.read(op, given, { 'enable_timing', 'device' }, { enable_timing = false })
  options.boolean(op, 'enable_timing', o.enable_timing)
  local index = types.gpu(o.device, op)
  local e = setmetatable({ timing = o.enable_timing }, Event)
  if o.device ~= nil then made(e, index, op) end
  return e
end

local function stream_of(e, stream, op)
  local Stream = require('amp.cuda.stream').class
  if stream == nil then return Stream._current(e.index or 0, op) end
  return Stream._check(stream, op)
end

--- Set the mark behind what a stream has been given so far; again: it is moved.
-- @tparam ?Stream stream default: the one in use
-- @treturn Event itself
-- @raise a stream of another GPU than the one the event was first recorded on
function Event:record(stream)
  local op = 'cuda.Event:record'
  stream = stream_of(self_check(self, 'record'), stream, op)
  local handle = made(self, stream.index, op)
  if self.index ~= stream.index then
    err.throw_code('device', op, 'the event belongs to %s, the stream to %s', types.device_string(CUDA, self.index), stream.device)
  end
  call.check(C.amp_event_record(S, handle, stream.number), op)
  return self
end

--- What a stream is given from now on comes after the mark; the program does not wait.
-- @tparam ?Stream stream default: the one in use
function Event:wait(stream)
  local op = 'cuda.Event:wait'
  stream = stream_of(self_check(self, 'wait'), stream, op)
  if self.handle then call.check(C.amp_event_wait(S, self.handle, stream.index, stream.number), op) end
  return self
end

--- Whether all that was before the mark is done; true for one that was never recorded.
function Event:query()
  self_check(self, 'query')
  return self.handle == nil or call.check(C.amp_event_query(S, self.handle), 'cuda.Event:query') == 1
end

--- Wait until all that was before the mark is done.
function Event:synchronize()
  self_check(self, 'synchronize')
  if self.handle then call.check(C.amp_event_synchronize(S, self.handle), 'cuda.Event:synchronize') end
  return self
end

local ms = ffi.new 'double[1]'

--- Milliseconds of the GPU from this event to another one; both with timing, and reached.
-- @tparam Event other
-- @treturn number
function Event:elapsed_time(other)
  local op = 'cuda.Event:elapsed_time'
  self_check(self, 'elapsed_time')
  if getmetatable(other) ~= Event then err.throw(op, 'an event is expected, got %s', util.show(other)) end
  if not (self.handle and other.handle) then err.throw(op, 'an event was not recorded: nothing is to be timed') end
  call.check(C.amp_event_elapsed(S, self.handle, other.handle, ms), op)
  return ms[0]
end

function Event:__tostring()
  return ('cuda.Event (%s%s)'):format(self.index and types.device_string(CUDA, self.index) or 'not recorded', self.timing and ', timing' or '')
end

require('amp.core.class').guard(Event, 'cuda.Event', 'event')

return setmetatable({ class = Event }, { __call = new })

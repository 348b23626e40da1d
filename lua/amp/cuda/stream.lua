--- Streams of a GPU: queues whose work is done in order, beside each other.
--
-- A GPU has up to 16; the one that is in use without any of this is number 0. Memory needs no care: a tensor may be
-- freed while another stream still works on it. Values do: who reads in one stream what another writes makes it wait
-- (wait_stream, wait_event).
-- @classmod amp.cuda.Stream
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local region = require 'amp.core.region'
local types = require 'amp.types'
local util = require 'amp.util'
local C, S = core.C, core.S

local Stream = {}
Stream.__index = Stream

local CUDA = C.AMP_CUDA

local function object(index, number)
  return setmetatable({ index = index, number = number, device = types.device_string(CUDA, index) }, Stream)
end

-- The stream given, or an error.
local function check(s, op)
  if getmetatable(s) ~= Stream then err.throw(op, 'a stream is expected (amp.cuda.Stream()), got %s', util.show(s)) end
  return s
end
Stream._check = check

--- A new stream of a GPU. There are 15 beside the default one; the sixteenth that is made is the first again.
-- @tparam ?string device default 'cuda'
-- @usage
-- local side = amp.cuda.Stream()
-- side:wait_stream(amp.cuda.current_stream())   -- what is queued so far comes first
-- local y = side:with(function() return x:matmul(w) end)
-- amp.cuda.current_stream():wait_stream(side)   -- before y is used here
local function new(_, device)
  local index = types.gpu(device, 'cuda.Stream')
  return object(index, call.check(C.amp_stream_new(S, CUDA, index), 'cuda.Stream'))
end

-- The one in use on a GPU, and the one it starts with.
function Stream._current(index, op)
  region.here()
  return object(index, call.check(C.amp_stream_use(S, CUDA, index, -1), op))
end
function Stream._default(index) return object(index, 0) end

local function use(index, number)
  local before = C.amp_stream_use(S, CUDA, index, number)
  if before < 0 then err.raise 'cuda.stream' end
  return before
end

local kind = region.kind(
  function(rec) rec.outer = use(rec.index, -1) end, function(rec) use(rec.index, rec.number) end, nil,
  function(rec) C.amp_stream_use(S, CUDA, rec.index, rec.outer) end)

--- Run fn(...) with what it gives the GPU going to this stream; all as before afterwards, after an error too. Backward
-- goes to the stream in use where it is called.
-- @tparam function fn
-- @return fn's results
function Stream:with(fn, ...)
  local op = 'cuda.Stream:with'
  check(self, op)
  local m = getmetatable(fn)
  if type(fn) ~= 'function' and not (type(m) == 'table' and m.__call) then err.throw(op, 'a function is expected, got %s', util.show(fn)) end
  return region.run(kind, { index = self.index, number = self.number }, fn, ...)
end

--- Wait until it has done all it was given.
function Stream:synchronize()
  check(self, 'cuda.Stream:synchronize')
  call.check(C.amp_stream_synchronize(S, CUDA, self.index, self.number), 'cuda.Stream:synchronize')
  return self
end

--- Whether it has done all it was given.
function Stream:query()
  check(self, 'cuda.Stream:query')
  return call.check(C.amp_stream_query(S, CUDA, self.index, self.number), 'cuda.Stream:query') == 1
end

local function event_check(e, op)
  if getmetatable(e) ~= require('amp.cuda.event').class then err.throw(op, 'an event is expected (amp.cuda.Event()), got %s', util.show(e)) end
  return e
end

--- A mark behind what it has been given so far.
-- @tparam ?Event event to set; default: a new one
-- @treturn Event
function Stream:record_event(event)
  local op = 'cuda.Stream:record_event'
  check(self, op)
  event = event == nil and require 'amp.cuda.event'() or event_check(event, op)
  return event:record(self)
end

--- What it is given from now on comes after the event; the program does not wait.
function Stream:wait_event(event)
  check(self, 'cuda.Stream:wait_event')
  event_check(event, 'cuda.Stream:wait_event'):wait(self)
  return self
end

--- What it is given from now on comes after all that another stream has been given.
function Stream:wait_stream(other)
  check(self, 'cuda.Stream:wait_stream')
  check(other, 'cuda.Stream:wait_stream')
  return self:wait_event(other:record_event())
end

function Stream.__eq(a, b) return a.index == b.index and a.number == b.number end
function Stream:__tostring() return ('cuda.Stream (%s, number %d)'):format(self.device, self.number) end

require('amp.core.class').guard(Stream, 'cuda.Stream', 'stream')

return setmetatable({ class = Stream }, { __call = new })

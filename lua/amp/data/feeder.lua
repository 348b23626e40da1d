--- Batches on their way to a GPU: copied in a stream of their own while the present step computes.
--
--   send: CPU tensors -> pinned memory -> copies in the side stream, a mark behind them
--   take: the stream in use waits for the mark, the program does not
local amp = require 'amp'

local Feeder = {}
Feeder.__index = Feeder

local streams = {} -- of each device, shared by all loaders
local SMALL = 1024 -- bytes that need no copy: they travel with a launch

-- v with f(tensor) in place of every tensor, through plain tables.
local function map(v, f)
  if amp.is_tensor(v) then return f(v) end
  if type(v) ~= 'table' or getmetatable(v) ~= nil then return v end
  local out = {}
  for k, x in pairs(v) do out[k] = map(x, f) end
  return out
end

local function pin(t)
  if t.device ~= 'cpu' then return t end
  return t:pin_memory()
end

local M = {}

--- The same values with tensors of the CPU in pinned memory.
function M.pinned(values) return map(values, pin) end

--- @tparam string device such as 'cuda:1'
function M.new(device)
  streams[device] = streams[device] or amp.cuda.Stream(device)
  return setmetatable({ device = device, stream = streams[device], sent = {} }, Feeder)
end

local function copy(self, values)
  return map(values, function(t)
    if t.device ~= 'cpu' or t:numel() * t:element_size() <= SMALL then return t:to(self.device) end
    if t:is_pinned() then return t:to(self.device) end -- the dataset's own, which it may fill anew
    local p = t:pin_memory()
    local there = p:to { device = self.device, non_blocking = true }
    p:free() -- it is not used again before the copy is over
    return there
  end)
end

--- Queue the copy of batch b.
function Feeder:send(b, values)
  local there = self.stream:with(copy, self, values)
  self.sent[b] = { values = there, event = self.stream:record_event() }
end

--- Batch b could not be had: `take` raises e.
function Feeder:fail(b, e) self.sent[b] = { failed = e } end

--- Batch b on the device; it was sent before.
function Feeder:take(b)
  local s = self.sent[b]
  self.sent[b] = nil
  if s.failed ~= nil then error(s.failed, 0) end
  amp.cuda.current_stream(self.device):wait_event(s.event)
  return s.values
end

return M

--- Worker processes for a DataLoader: each has a copy of the dataset as it was at the epoch's start, gathers the
-- batches it is told to, and hands them over through a socket.
--
--   parent --(number of a batch)--> worker: dataset:batch or get --(values)--> parent
--
-- Tensors of many bytes are not sent: the worker writes them into memory that both share (io/shared.lua), of which each worker has a few
-- pieces; where all are in use, they go through the socket.
-- Workers are forked, so a dataset may be any Lua object; they work on the CPU, with one thread, and end with
-- their parent (data/process.lua). What goes to a worker is 16 bytes a batch and is never waited for, so neither side can stand before a
-- full socket while the other does. A worker that is gone is noticed though its socket were still held by somebody else. An error in a
-- dataset is raised where the batch is asked for.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local process = require 'amp.data.process'
local shared = require 'amp.io.shared'
local types = require 'amp.types'
local util = require 'amp.util'
local raise = require('amp.error').throw
local file = require 'amp.io.file'

local OP = 'data.DataLoader'
local GPU = core.C.AMP_CUDA
local M = {}

-- -- A message --------------------------------------------------------------------------------------

-- Bytes to send: small values one behind the other in a buffer, large ones where they lie.
local LARGE = 32768
local SHARED, SLOTS = 2 ^ 18, 4 -- bytes from which a tensor is shared, pieces of memory a worker
local Out = {}
Out.__index = Out

local function new_out() return setmetatable({ size = LARGE, p = ffi.new('char[?]', LARGE), n = 0, large = {} }, Out) end

function Out:clear(slot) self.n, self.large, self.slot, self.used = 0, {}, slot, 0 end

-- Where in the shared memory n bytes were copied to; nil: they must be sent
function Out:share(p, n)
  local at = math.ceil(self.used / 64) * 64
  if n < SHARED or not self.slot or not self.slot:grow(at + n) then return nil end
  ffi.copy(self.slot.p + at, p, n)
  self.used = at + n
  return at
end

-- held: whose memory p is
function Out:put(p, size, held)
  if size >= LARGE then
    self.large[#self.large + 1] = { at = self.n, p = p, size = size, held = held }
    return
  end
  if self.n + size > self.size then
    local p_ = ffi.new('char[?]', self.size * 2)
    ffi.copy(p_, self.p, self.n)
    self.p, self.size = p_, self.size * 2
  end
  ffi.copy(self.p + self.n, p, size)
  self.n = self.n + size
end

function Out:send(fd)
  local at = 0
  for _, l in ipairs(self.large) do
    if not (process.send(fd, self.p + at, l.at - at) and process.send(fd, l.p, l.size)) then return false end
    at = l.at
  end
  return process.send(fd, self.p + at, self.n - at)
end

local number = ffi.new 'double[1]'
local function put_number(out, v)
  number[0] = v
  out:put(number, 8)
end

-- A tag of one character, then what it needs: N number, S string, T tensor, M tensor in shared memory, A table, + true, - false, 0 nil.
local function write(out, v, depth)
  local kind = type(v)
  if kind == 'nil' then out:put('0', 1)
  elseif kind == 'number' then
    out:put('N', 1)
    put_number(out, v)
  elseif kind == 'boolean' then out:put(v and '+' or '-', 1)
  elseif kind == 'string' then
    out:put('S', 1)
    put_number(out, #v)
    out:put(v, #v, v)
  elseif amp.is_tensor(v) then
    local t = v:detach():to('cpu'):contiguous()
    local bytes = t:numel() * t:element_size()
    local at = bytes > 0 and out:share(t:data_ptr(), bytes) or nil
    out:put(at and 'M' or 'T', 1)
    put_number(out, types.dtype_code[t.dtype])
    put_number(out, t:dim())
    for d = 1, t:dim() do put_number(out, t:size(d)) end
    if at then put_number(out, at)
    elseif bytes > 0 then out:put(t:data_ptr(), bytes, t) end
  elseif kind == 'table' then
    if depth > 50 then error('the tables of a batch are nested too deep', 0) end
    out:put('A', 1)
    local n = 0
    for _ in pairs(v) do n = n + 1 end
    put_number(out, n)
    for k, x in pairs(v) do
      write(out, k, depth + 1)
      write(out, x, depth + 1)
    end
  else
    error(('a batch from a worker may hold tensors, numbers, strings, booleans and tables of them, got %s'):format(util.show(v)), 0)
  end
end

local tag = ffi.new 'char[1]'

local function read(get, slot)
  local function get_number()
    get(number, 8)
    return file.double(number)
  end
  get(tag, 1)
  local kind = string.char(tag[0])
  if kind == 'N' then return get_number()
  elseif kind == '+' then return true
  elseif kind == '-' then return false
  elseif kind == 'S' then
    local n = get_number()
    local p = ffi.new('char[?]', math.max(n, 1))
    get(p, n)
    return ffi.string(p, n)
  elseif kind == 'T' or kind == 'M' then
    local dtype, shape = types.dtype_name[get_number()], {}
    for d = 1, get_number() do shape[d] = get_number() end
    if kind == 'M' then
      if not slot:look() then error('the memory that a worker shares cannot be mapped', 0) end
      return slot:tensor(get_number(), shape, dtype)
    end
    local t = amp.empty(shape, { dtype = dtype, device = 'cpu' })
    if t:numel() > 0 then get(t:data_ptr(), t:numel() * t:element_size()) end
    return t
  elseif kind == 'A' then
    local out = {}
    for _ = 1, get_number() do
      local k = read(get, slot)
      out[k] = read(get, slot)
    end
    return out
  end
  return nil
end

-- -- A worker -------------------------------------------------------------------------------------------

local function text(e) -- of any error value
  local ok, s = pcall(tostring, e)
  return ok and type(s) == 'string' and s or 'an error that is ' .. type(e)
end

-- Threads that the parent's libraries had are not here, and a library would wait for them for ever.
local function one_thread()
  amp.set_num_threads(1)
  amp.set_num_threads = function(n)
    if n ~= 1 then raise('set_num_threads', 'a worker of a DataLoader computes with one thread, got %s', util.show(n)) end
  end
end

-- Runs in the child and never returns.
local function work(fd, gather, slots)
  one_thread()
  core.C.amp_device_leave(GPU)
  amp.set_default_device 'cpu'
  local exit = process.exit
  rawset(os, 'exit', function(code) exit(code == nil and 0 or type(code) == 'number' and code or code and 0 or 1) end)
  local out = new_out()
  local b = ffi.new 'double[2]' -- a batch's number, and the slot it may have, 0: none
  while process.receive_all(fd, b, 16) do
    out:clear(slots[b[1]])
    local ok, e = pcall(function()
      local values = gather(b[0])
      out:put('=', 1)
      put_number(out, #values)
      for i = 1, #values do write(out, values[i], 0) end -- whole before anything is sent: an error sends nothing else
    end)
    if not ok then
      out:clear()
      out:put('!', 1)
      write(out, text(e), 0)
    end
    pcall(io.flush)
    if not out:send(fd) then break end
  end
  exit(0)
end

-- -- The pool ---------------------------------------------------------------------------------------------

local Pool = {}
Pool.__index = Pool

local living, limit = 0, 8 -- pools that are open, and how many there may be before a search for forgotten ones

local function collect()
  collectgarbage()
  collectgarbage()
end

--- Start workers.
-- @tparam number n how many
-- @tparam function gather from the number of a batch to a list of values
-- @tparam number timeout seconds that a batch is waited for, 0: without end
function M.new(n, gather, timeout)
  if living >= limit then
    collect()
    limit = math.max(8, 2 * living)
  end
  local self = setmetatable({ list = {}, guard = newproxy(true), timeout = timeout }, Pool)
  local owner = process.id()
  living = living + 1
  getmetatable(self.guard).__gc = function() -- in a worker, what it inherited is its parent's
    if process.id() == owner then self:close() end
  end
  for i = 1, n do
    local slots = {}
    for k = 1, SLOTS do slots[k] = shared.new() end
    local function child(fd) work(fd, gather, slots) end
    local w, why = process.start(child)
    if not w then
      collect()
      w, why = process.start(child)
    end
    if not w then
      for _, s in ipairs(slots) do s:close() end
      self:close()
      raise(OP, 'cannot start worker %d: %s', i, why)
    end
    w.slots, w.slot_of = slots, {}
    w.asked, w.sent, w.buffer, w.from, w.to = {}, 0, ffi.new('char[?]', LARGE), 0, 0
    self.list[i] = w
  end
  return self
end

jit.off(M.new) -- a fork in compiled code would leave the child values that its collector doesn't see

local function open(self)
  if self.closed then raise(OP, 'this epoch ended by an error; begin a new one with iter') end
end

-- Worker i gives nothing more; what was waited for is batch b.
local function lost(self, b, i)
  local why = process.ending(self.list[i])
  self:close()
  raise(OP, 'batch %d: worker %d %s', b, i, why)
end

local request = ffi.new 'double[2]'

-- A slot of worker w that neither a batch on its way nor a tensor uses
local function free_slot(w)
  for k, slot in ipairs(w.slots) do
    if not slot.busy and slot:free() then
      slot.busy = true
      return k
    end
  end
end

-- Send what a worker is asked for, as far as it goes now.
local function pass_on(w)
  while w.sent < #w.asked do
    local b = w.asked[w.sent + 1]
    request[0], request[1] = b, w.slot_of[b] or 0
    if not process.send_now(w.fd, request, 16) then return end -- full, or gone: `take` finds out
    w.sent = w.sent + 1
  end
  if w.sent > 64 then w.asked, w.sent = {}, 0 end
end

--- Ask for batch b. Batches of one worker come in the order they were asked for.
function Pool:ask(b)
  open(self)
  local w = self.list[(b - 1) % #self.list + 1]
  w.asked[#w.asked + 1] = b
  w.slot_of[b] = free_slot(w)
  pass_on(w)
end

local GONE, LATE = {}, {} -- errors of `receive`

-- n bytes of worker w to p, through its buffer.
local function receive(w, p, n, ends)
  p = ffi.cast('char *', p)
  while n > 0 do
    local here = w.to - w.from
    if here > 0 then
      local m = math.min(here, n)
      ffi.copy(p, w.buffer + w.from, m)
      w.from, p, n = w.from + m, p + m, n - m
    else
      local large = n >= LARGE
      local got = process.receive_now(w.fd, large and p or w.buffer, large and n or LARGE)
      if got == 0 then error(GONE, 0) end
      if got == nil then
        local state = process.wait(w, ends)
        if state == 'gone' then error(GONE, 0) elseif state == 'late' then error(LATE, 0) end
      elseif large then p, n = p + got, n - got
      else w.from, w.to = 0, got end
    end
  end
end

-- The message about batch b: its tag, and a list of values or the text of an error.
local function message(w, ends, slot)
  local function get(p, n) return receive(w, p, n, ends) end
  get(tag, 1)
  if tag[0] == 33 then return '!', read(get, slot) end
  get(number, 8)
  local list = {}
  for k = 1, number[0] do list[k] = read(get, slot) end
  return '=', list
end

jit.off(receive) -- so that an interrupt is seen while it waits
jit.off(message)

--- Take batch b: a list of values.
function Pool:take(b)
  open(self)
  local i = (b - 1) % #self.list + 1
  local w = self.list[i]
  pass_on(w)
  local slot = w.slots[w.slot_of[b]]
  w.slot_of[b] = nil
  local ok, kind, values = pcall(message, w, self.timeout > 0 and amp.clock() + self.timeout or nil, slot)
  if slot then slot.busy = false end
  if not ok then
    local e = kind
    if e == GONE then lost(self, b, i) end
    self:close()
    if e == LATE then
      raise(OP, 'batch %d did not come from worker %d within %g s (timeout = %g); make the dataset faster, or give more time', b, i,
        self.timeout, self.timeout)
    end
    error(e, 0)
  end
  if kind == '!' then
    self:close()
    raise(OP, 'batch %d, in worker %d: %s', b, i, values)
  end
  return values
end

--- End the workers.
function Pool:close()
  if not self.closed then living = living - 1 end
  self.closed = true
  for _, w in ipairs(self.list) do process.stop(w) end
  for _, w in ipairs(self.list) do
    process.reap(w)
    for _, slot in ipairs(w.slots) do slot:close() end
    w.slots = {}
  end
end

return M

--- Joins requests that come at about the same time into one forward.
--
--   local classify = amp.serve.batcher(net:eval(), {max_batch = 32, max_wait_ms = 2})
--   local scores = classify(x)                -- x is one sample, without the batch's dimension; so is what comes back
--   local p = classify:numbers(body)          -- a request's text (or bytes) in, a list of numbers out: the quick way
--
-- The first request of a batch waits max_wait_ms at most. A batch of max_batch goes at once, and so does one that is as large
-- as the last, with what else comes in this turn of the host's loop: where as many clients as before wait for answers, nobody
-- else is to be waited for. Samples of other shapes, dtypes or devices make a batch of their own, so a wrong one fails alone.
-- The forward runs without gradients, on the host's loop.
local bit = require 'bit'
local core = require 'amp.ffi'
local ffi = require 'ffi'
local options = require 'amp.options'
local util = require 'amp.util'
local rows_of = require 'amp.serve.rows'
local types = require 'amp.types'
local err = require 'amp.error'
local raise = err.throw
local C, S, band = core.C, core.S, bit.band
local CONTIGUOUS = tonumber(C.AMP_T_CONTIGUOUS)

local Batcher = { class = 'amp.serve.Batcher' }
Batcher.__index = Batcher

local Ticket = {}
Ticket.__index = Ticket

local OP, ROWS = 'serve.batcher', 'rows'

-- -- What a request brings ----------------------------------------------------------------------

local function shape_of(x)
  local list = {}
  for i = 1, x:dim() do list[i] = x:size(i) end
  return list
end

-- Samples with the same text go together.
local function signature(inputs)
  local parts = {}
  for i = 1, inputs.n do
    local x = inputs[i]
    if type(x) ~= 'cdata' or not core.is_ref(x) then
      raise(OP, 'a request is a tensor of one sample, or several; argument %d is %s', i, util.show(x))
    end
    parts[i] = ('%s|%s|%s'):format(table.concat(shape_of(x), 'x'), x.dtype, tostring(x.device))
  end
  if inputs.n == 0 then raise(OP, 'a request is a tensor of one sample, got nothing') end
  return table.concat(parts, ',')
end

-- What samples of one kind have in common, as numbers, so that the next sample costs no text.
local function kind_of(x, key)
  local p = x.ptr_
  local kind = { key = key, ndim = p.ndim, dtype = p.dtype, device = p.device, index = p.device_index }
  for d = 1, p.ndim do kind[d] = tonumber(p.size[d - 1]) end
  return kind
end

local function is_of(kind, x)
  local p = x.ptr_
  if p == nil or p.ndim ~= kind.ndim or p.dtype ~= kind.dtype or p.device ~= kind.device or p.device_index ~= kind.index then return false end
  for d = 1, kind.ndim do
    if p.size[d - 1] ~= kind[d] then return false end
  end
  return true
end

-- The first input against the shape and the dtype that were asked for
local function check(self, x)
  if self.dtype and x.dtype ~= self.dtype then raise(OP, 'samples are %s, got %s', self.dtype, x.dtype) end
  if not self.shape then return end
  local shape, same = shape_of(x), true
  if #shape ~= #self.shape then same = false end
  for i, n in ipairs(self.shape) do same = same and (n == -1 or shape[i] == n) end
  if not same then
    err.throw_code('shape', OP, 'samples are {%s}, without the dimension of the batch, got {%s}', table.concat(self.shape, ', '), table.concat(shape, ', '))
  end
end

-- -- What a forward gives --------------------------------------------------------------------------

-- What each of n samples gets of v, a list: rows of tensors, tables of them; other values are everybody's.
local function rows(v, n)
  local list = {}
  if type(v) == 'cdata' and core.is_ref(v) then
    if v:dim() == 0 or v:size(1) ~= n then
      raise(OP, 'the model got a batch of %d and gave {%s}: its first dimension is to be the batch', n, table.concat(shape_of(v), ', '))
    end
    return v:unbind(1)
  elseif type(v) == 'table' and getmetatable(v) == nil then
    for i = 1, n do list[i] = {} end
    for k, x in pairs(v) do
      local of = rows(x, n)
      for i = 1, n do list[i][k] = of[i] end
    end
    return list
  end
  for i = 1, n do list[i] = v end
  return list
end

-- Samples as one tensor. Those that lie in C order on the CPU are copied one behind the other: a fifth of what the op takes.
local function stacked(amp, list, k)
  local first = list[1].inputs[k].ptr_
  local n, bytes, plain = #list, tonumber(first.numel) * C.amp_dtype_size(first.dtype), first.device == 0
  for i = 1, n do
    local p = list[i].inputs[k].ptr_
    if p == nil then raise(OP, 'a sample was freed while it waited') end
    plain = plain and band(p.flags, CONTIGUOUS) ~= 0
  end
  if not plain or bytes == 0 then
    local column = {}
    for i = 1, n do column[i] = list[i].inputs[k] end
    return amp.stack(column, 1)
  end
  local shape = { n }
  for d = 1, first.ndim do shape[d + 1] = tonumber(first.size[d - 1]) end
  local all = amp.empty(shape, { dtype = types.dtype_name[first.dtype], device = 'cpu' })
  local to = ffi.cast('char *', C.amp_data_ptr(S, all))
  for i = 1, n do ffi.copy(to + (i - 1) * bytes, C.amp_data_ptr(S, list[i].inputs[k]), bytes) end
  return all
end

local function forward(self, list)
  local amp = require 'amp'
  local inputs = {}
  for k = 1, list[1].inputs.n do inputs[k] = stacked(amp, list, k) end
  local out = util.pack(amp.no_grad(function() return self.model(unpack(inputs, 1, #inputs)) end))
  local all = {}
  for k = 1, out.n do all[k] = rows(out[k], #list) end
  for i = 1, #list do
    local mine = { n = out.n }
    for k = 1, out.n do mine[k] = all[k][i] end
    list[i].mine = mine
  end
end

-- -- Batches -----------------------------------------------------------------------------------------

local function gone(self, ticket)
  return ticket.cancelled or (ticket.waits and self.adapter.left and self.adapter.left(ticket.signal))
end

-- Run a batch and wake who waits for it. An error of one who is woken reaches the host after the others are awake.
local function flush(self, batch)
  if batch.taken then return end
  batch.taken = true
  if self.open[batch.key] == batch then self.open[batch.key] = nil end
  local list = {}
  for _, ticket in ipairs(batch) do
    if gone(self, ticket) then
      ticket.done, self.counts.dropped = true, self.counts.dropped + 1
    else
      list[#list + 1] = ticket
    end
  end
  self.waiting = self.waiting - #batch
  self.last = #batch
  if #list == 0 then return end
  self.counts.batches, self.counts.rows = self.counts.batches + 1, self.counts.rows + #list
  local ok, e = pcall(batch.key == ROWS and rows_of.forward or forward, self, list, batch)
  local failed
  for _, ticket in ipairs(list) do
    ticket.done, ticket.failed, ticket.error = true, not ok, e
    if ok then ticket.results = ticket.mine or ticket.data else self.counts.failed = self.counts.failed + 1 end
    local woken, why = pcall(self.adapter.wake, ticket.signal)
    if not woken then failed = failed or { why } end
  end
  if failed then error(failed[1], 0) end
end

-- Apart from who calls it: LuaJIT compiles no function of whose variables another one is made.
local function go_in(self, batch, ms)
  self.adapter.after(ms, function() flush(self, batch) end)
end

-- Puts a ticket into the batch of its key, which goes when it is full, as large as the last one, or has waited.
local function enqueue(self, key, ticket, body)
  if self.waiting >= self.max_queue then err.throw_code('state', OP, '%d requests wait already (max_queue)', self.waiting) end
  local batch = self.open[key]
  local new = not batch
  if new then
    batch = { key = key, going = false, taken = false }
    if body then rows_of.open(self, batch) end
    self.open[key] = batch
  end
  local place = #batch + 1
  if body then rows_of.put(self, batch, place, body) end
  ticket.signal, ticket.place = self.adapter.signal(), place
  batch[place] = ticket
  self.waiting, self.counts.requests = self.waiting + 1, self.counts.requests + 1
  local full = place >= self.max_batch
  if full then self.open[key] = nil end
  if full or place >= self.last then
    if not batch.going then
      batch.going = true
      go_in(self, batch, 0)
    end
  elseif new then
    go_in(self, batch, self.max_wait_ms)
  end
  return ticket
end

--- Puts a sample into a batch, without waiting.
-- @tparam Tensor ... one sample: the model's arguments without their first dimension
-- @treturn table ticket: wait() gives what the model gives for it, or raises its error; cancel() takes it out
-- @raise no tensor; another shape or dtype than the options say; too many wait; the batcher is closed
function Batcher:submit(...)
  if self.closed then raise(OP, 'the batcher is closed') end
  local inputs, kind, key = util.pack(...), self.kind
  if kind and inputs.n == 1 and core.is_ref(inputs[1]) and is_of(kind, inputs[1]) then
    key = kind.key
  else
    key = signature(inputs)
    check(self, inputs[1])
    if inputs.n == 1 then self.kind = kind_of(inputs[1], key) end
  end
  return enqueue(self, key, setmetatable({ inputs = inputs, of = self }, Ticket))
end

--- Waits for the sample's result.
-- @return what the model gives for it
-- @raise the forward's error; the sample was cancelled
function Ticket:wait()
  if self.cancelled then raise(OP, 'the request was cancelled') end
  if not self.done then
    self.waits = true
    self.of.adapter.wait(self.signal)
  end
  if self.cancelled then raise(OP, 'the request was cancelled') end
  if self.failed then error(self.error, 0) end
  if self.data then return end
  return unpack(self.results, 1, self.results.n)
end

--- Takes the sample out of its batch: its client is gone. Who waits for it gets an error.
-- @treturn boolean false: it is over already
function Ticket:cancel()
  if self.done or self.cancelled then return false end
  self.cancelled = true
  if self.waits then self.of.adapter.wake(self.signal) end
  return true
end

--- The same for a request's body, without a tensor of its own: waits, and gives the numbers of the sample's row.
-- @tparam string body a text as amp.from_text reads it, or with the batcher's option bytes = true the elements themselves, as
-- amp.from_string takes them; of the shape and the dtype that the batcher's options say
-- @treturn table list of all numbers that the model gives for it, in C order; the model gives one tensor
-- @raise what is no number, and other counts of them, for this request alone; otherwise as submit and wait
function Batcher:numbers(body)
  if self.closed then raise(OP, 'the batcher is closed') end
  local ticket = enqueue(self, ROWS, setmetatable({ of = self }, Ticket), rows_of.read(self, body))
  ticket:wait()
  local list = rows_of.list(ticket)
  return list
end

function Batcher:__call(...) return self:submit(...):wait() end

--- What happened so far.
-- @treturn table requests, batches, rows (samples that went through the model), failed, dropped (their clients were gone), waiting
function Batcher:stats()
  local t = { waiting = self.waiting }
  for k, v in pairs(self.counts) do t[k] = v end
  return t
end

--- Takes no more requests; those that wait are run at once.
function Batcher:close()
  self.closed = true
  for _, batch in pairs(self.open) do go_in(self, batch, 0) end
  return self
end

function Batcher:__tostring()
  return ('amp.serve.batcher(max_batch = %d, max_wait_ms = %g)'):format(self.max_batch, self.max_wait_ms)
end

require('amp.core.class').guard(Batcher, 'serve.batcher', 'batcher')
require('amp.core.class').guard(Ticket, 'serve.batcher:submit', 'ticket')

-- -- Making one -----------------------------------------------------------------------------------------

local needed = { 'signal', 'wait', 'wake', 'after' }

local function adapter_of(given)
  if given == nil then
    local host = rawget(_G, 'ngx')
    given = type(host) == 'table' and host.timer and 'nginx' or (package.loaded.luv or rawget(_G, 'vim')) and 'luv' or nil
    if not given then raise(OP, "no nginx and no luv is here; say how requests wait: adapter = amp.serve.loop(), 'luv', 'nginx', or a table") end
  end
  if given == 'nginx' and not rawget(_G, 'ngx') then raise(OP, "the adapter 'nginx' works inside nginx's Lua module") end
  if given == 'nginx' or given == 'luv' then return require('amp.serve.' .. given) end
  if type(given) ~= 'table' then raise(OP, "adapter is 'nginx', 'luv' or a table of functions, got %s", util.show(given)) end
  for _, name in ipairs(needed) do
    if type(given[name]) ~= 'function' then raise(OP, 'the adapter has no function %s (%s are needed)', name, table.concat(needed, ', ')) end
  end
  return given
end

local function callable(v)
  if type(v) == 'function' then return true end
  local mt = (type(v) == 'table' or type(v) == 'userdata') and getmetatable(v)
  return type(mt) == 'table' and mt.__call ~= nil
end

local names = { 'max_batch', 'max_wait_ms', 'max_queue', 'adapter', 'shape', 'dtype', 'bytes' }

--- Makes a batcher: a function of one sample that waits.
-- @param model a module, a graph or a function of a batch; what it gives has the batch as first dimension: tensors, tables of them
-- @tparam ?table options max_batch = 32; max_wait_ms = 2; max_queue = 1024: more waiting requests are refused; adapter: 'nginx',
-- 'luv' or a table (left out: what is here); shape (-1: any) and dtype of the first argument's sample; bytes = false: what
-- batcher:numbers takes are texts
-- @treturn Batcher batcher(x) waits and gives; batcher:numbers(body) gives a list; batcher:submit(x), batcher:stats(), batcher:close()
-- @usage local classify = amp.serve.batcher(net, {max_batch = 8, adapter = amp.serve.loop()})
return function(model, given)
  if not callable(model) then raise(OP, 'a module, a graph or a function expected, got %s', util.show(model)) end
  local o = options.read(OP, given, names, { max_batch = 32, max_wait_ms = 2, max_queue = 1024, bytes = false })
  options.integer(OP, 'max_batch', o.max_batch, 1)
  options.number(OP, 'max_wait_ms', o.max_wait_ms, 0)
  options.integer(OP, 'max_queue', o.max_queue, 1)
  if type(o.bytes) ~= 'boolean' then raise(OP, 'bytes is true or false, got %s', util.show(o.bytes)) end
  local dtype = o.dtype
  if dtype ~= nil then
    local code = types.dtype_code[dtype]
    if not code then raise(OP, 'dtype is the name of a dtype, got %s', util.show(dtype)) end
    dtype = types.dtype_name[code]
  end
  if o.shape ~= nil and type(o.shape) ~= 'table' then raise(OP, 'shape is a list of sizes, got %s', util.show(o.shape)) end
  return setmetatable({
    model = model, adapter = adapter_of(o.adapter), max_batch = o.max_batch, max_wait_ms = o.max_wait_ms, max_queue = o.max_queue,
    shape = o.shape, dtype = dtype, bytes = o.bytes, open = {}, waiting = 0, last = o.max_batch,
    counts = { requests = 0, batches = 0, rows = 0, failed = 0, dropped = 0 },
  }, Batcher)
end

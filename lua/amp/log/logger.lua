--- Logger: what a training run reports, in a folder: log.csv, and event files for TensorBoard.
--
--   local log = amp.Logger('runs/first')
--   for step = 1, n do
--     ...
--     log:scalars({['loss/train'] = loss, lr = opt.param_groups[1].lr}, step)
--   end
--   log:close()
--
-- Scalars that are tensors are copied where they are and read together every few seconds, so no step waits for
-- the log. A folder that holds a log already is gone on with. A process that dies leaves whole records, and of
-- scalars lacks the last seconds; os.exit without close is such a death. One logger a folder at a time.
local ffi = require 'ffi'
local amp = require 'amp'
local csv = require 'amp.log.csv'
local err = require 'amp.error'
local events = require 'amp.log.events'
local files = require 'amp.log.files'
local options = require 'amp.options'
local lasting = require('amp.core.scope').lasting
local util = require 'amp.util'
local raise = err.throw

ffi.cdef 'int amp_posix_gettimeofday(int64_t *time, void *zone) __asm__("gettimeofday");'

local OP = 'Logger'
local Logger = {}
Logger.__index = Logger

local function now()
  local t = ffi.new 'int64_t[2]'
  ffi.C.amp_posix_gettimeofday(t, nil)
  return tonumber(t[0]) + tonumber(ffi.cast('int32_t', t[1])) / 1e6
end

local function check(self, what, ok, why)
  if not ok then raise(OP, "cannot write %s of '%s': %s", what, self.folder, why) end
end

-- What a rank that is not the first has: it takes everything and writes nothing.
local Silent = {__tostring = function(self) return ("amp.Logger of '%s' (rank 1 writes)"):format(self.folder) end}
function Silent.__index(_, name)
  if type(Logger[name]) == 'function' then return function(self) return self end end
end

--- Make a logger.
-- @tparam string folder made if it is not there
-- @tparam ?table given csv (true), tensorboard (true), interval (2 seconds that scalars wait at most for the next call)
local function new(folder, given)
  if type(folder) ~= 'string' or folder == '' then raise(OP, 'a folder expected, got %s', util.show(folder)) end
  local o = options.read(OP, given, {'csv', 'tensorboard', 'interval'}, {csv = true, tensorboard = true, interval = 2})
  options.boolean(OP, 'csv', o.csv)
  options.boolean(OP, 'tensorboard', o.tensorboard)
  options.number(OP, 'interval', o.interval, 0)
  local dist = package.loaded['amp.distributed']
  if dist and dist.is_initialized() and not dist.is_main() then return setmetatable({folder = folder}, Silent) end
  local ok, why = files.make_folder(folder)
  if not ok then raise(OP, "cannot make the folder '%s': %s", folder, why) end
  local self = setmetatable({folder = folder, interval = o.interval, queue = {}, flushed = amp.clock()}, Logger)
  if o.csv then
    self.table, why = csv.open(folder .. '/log.csv')
    if not self.table then raise(OP, "cannot open '%s/log.csv': %s", folder, why) end
  end
  if o.tensorboard then
    self.events, why = events.open(folder, now())
    if not self.events then raise(OP, "cannot make an event file in '%s': %s", folder, why) end
  end
  local process = files.process()
  self.guard = newproxy(true)
  getmetatable(self.guard).__gc = function() -- a forked process leaves its parent's alone
    if files.process() == process then pcall(self.close, self) end
  end
  return self
end

-- -- Arguments ------------------------------------------------------------------------------------

local function check_step(self, op, step)
  if self.closed then raise(op, 'this logger was closed') end
  if step == nil then return self.last_step or 0 end
  options.integer(op, 'step', step, 0)
  self.last_step = step
  return step
end

local function check_tag(op, tag)
  if type(tag) ~= 'string' or tag == '' then raise(op, 'a name expected, got %s', util.show(tag)) end
  if tag == 'step' or tag == 'time' then raise(op, "the name '%s' is taken by the table's own column", tag) end
end

-- -- Scalars ----------------------------------------------------------------------------------------

-- Queued tensors become numbers: of each device by one copy.
local function read_tensors(queue)
  local groups = {}
  for _, q in ipairs(queue) do
    if type(q.value) ~= 'number' then
      local device = q.value.device
      groups[device] = groups[device] or {}
      table.insert(groups[device], q)
    end
  end
  for _, list in pairs(groups) do
    local parts = {}
    for i, q in ipairs(list) do parts[i] = q.value end
    local values = amp.stack(parts):to('cpu'):tolist()
    for i, q in ipairs(list) do q.value = values[i] end
  end
end

local MOST = 100000 -- scalars that wait for a disk with room

-- The scalars of a row: those from `i` on that are of one step, each name once; and where the next row begins.
local function row_of(queue, i)
  local step, row, k = queue[i].step, {}, i
  while queue[k] and queue[k].step == step and row[queue[k].tag] == nil do
    row[queue[k].tag] = csv.number(queue[k].value, queue[k].single)
    k = k + 1
  end
  return row, k
end

-- Write the row of queue[i] to next - 1; nil, where, and why.
local function write_row(self, queue, i, next_, row)
  for k = i, next_ - 1 do
    local q = queue[k]
    if self.events and not q.written then
      local ok, why = self.events:scalar(q.time, q.step, q.tag, q.value)
      if not ok then return nil, 'the event file', why end
      q.written = true
    end
  end
  if not self.table then return true end
  local ok, why = self.table:write(queue[i].step, queue[i].time, row)
  if not ok then return nil, 'log.csv', why end
  return true
end

-- Write the queue: every scalar to the events, those of one step as a row. What can't be written waits for the next time.
local function write(self)
  local queue = self.queue
  self.flushed = amp.clock()
  amp.no_grad(read_tensors, queue)
  local i, ok, what, why = 1, true, nil, nil
  while ok and queue[i] do
    local row, next_ = row_of(queue, i)
    ok, what, why = write_row(self, queue, i, next_, row)
    if ok then i = next_ end
  end
  local rest = {}
  for k = math.max(i, #queue - MOST + 1), #queue do rest[#rest + 1] = queue[k] end
  self.queue = rest
  if not ok then check(self, what, nil, why) end
end

local function keep(v)
  return amp.no_grad(function() return v:detach():to('float64'):reshape(1)[1]:clone() end)
end

local function add(self, op, tag, v, step, time)
  check_tag(op, tag)
  local single
  if amp.is_tensor(v) then
    single = v.dtype ~= 'float64' and v.dtype ~= 'int64'
    if v:numel() ~= 1 then raise(op, "'%s' must have one element, it has shape %s", tag, tostring(v:size())) end
    v = lasting(keep, v)
  elseif type(v) == 'boolean' then
    v = v and 1 or 0
  elseif type(v) ~= 'number' then
    raise(op, "'%s' must be a number or a tensor of one element, got %s", tag, util.show(v))
  end
  self.queue[#self.queue + 1] = {tag = tag, value = v, single = single, step = step, time = time}
end

-- A row is whole when another step begins. Gives pcall's results: an error waits until the caller's own values are in the queue.
local function due(self, step)
  local queue = self.queue
  local first = queue[1]
  if first and first.step ~= step and (amp.clock() - self.flushed >= self.interval or #queue >= 10000) then return pcall(write, self) end
  return true
end

--- Log a number under a name.
-- @tparam string tag such as 'loss/train': TensorBoard groups by what stands before the slash
-- @tparam number|Tensor v a tensor has one element, and is read later
-- @tparam ?number step the last one by default
-- @return self
function Logger:scalar(tag, v, step)
  local op = 'Logger:scalar'
  step = check_step(self, op, step)
  local ok, e = due(self, step)
  add(self, op, tag, v, step, now())
  if not ok then error(e, 0) end
  return self
end

--- Log several numbers of one step.
-- @tparam table values name -> number or tensor
-- @tparam ?number step
-- @return self
function Logger:scalars(values, step)
  local op = 'Logger:scalars'
  if type(values) ~= 'table' then raise(op, 'values by name expected, got %s', util.show(values)) end
  step = check_step(self, op, step)
  for tag in pairs(values) do check_tag(op, tag) end
  local ok, e = due(self, step)
  local time = now()
  for _, tag in ipairs(util.keys(values)) do add(self, op, tag, values[tag], step, time) end
  if not ok then error(e, 0) end
  if amp.clock() - self.flushed >= self.interval then write(self) end
  return self
end

-- -- What only TensorBoard shows --------------------------------------------------------------------

--- Log the distribution of a tensor's values; waits for its device, and copies the counts.
-- @tparam string tag
-- @tparam Tensor|table values what is not finite is left out
-- @tparam ?number step
-- @tparam ?table given bins (30)
-- @return self
function Logger:histogram(tag, values, step, given)
  local op = 'Logger:histogram'
  step = check_step(self, op, step)
  check_tag(op, tag)
  local o = options.read(op, given, {'bins'}, {bins = 30})
  options.integer(op, 'bins', o.bins, 1)
  if not self.events then return self end
  local series = require 'amp.plot.series'
  if not amp.is_tensor(values) then values = amp.tensor(series.values(op, 'values', values), {dtype = 'float64'}) end
  local t = values:detach():reshape(-1):double()
  if t:numel() > 0 then t = t:masked_select(t:isfinite()) end
  local h = {num = t:numel(), min = 0, max = 0, sum = 0, sum_squares = 0, edges = {0, 0}, counts = {0}}
  if h.num > 0 then
    local all = amp.stack({t:min(), t:max(), t:sum(), (t * t):sum()}):to('cpu'):tolist()
    h.min, h.max, h.sum, h.sum_squares = all[1], all[2], all[3], all[4]
    h.edges, h.counts = series.histogram(op, t, o.bins)
  end
  check(self, 'the event file', self.events:histogram(now(), step, tag, h))
  return self
end

--- Log an image, or several in a grid; waits for its device.
-- @tparam string tag
-- @tparam Tensor t H x W, C x H x W or N x C x H x W
-- @tparam ?number step
-- @tparam ?table given options of amp.plot.image
-- @return self
function Logger:image(tag, t, step, given)
  local op = 'Logger:image'
  step = check_step(self, op, step)
  check_tag(op, tag)
  local image = require('amp.plot.image').new(t, given)
  if not self.events then return self end
  local png, width, height, channels = image:png()
  check(self, 'the event file', self.events:image(now(), step, tag, png, width, height, channels))
  return self
end

--- Log a figure of amp.plot as an image.
function Logger:figure(tag, figure, step)
  local op = 'Logger:figure'
  step = check_step(self, op, step)
  check_tag(op, tag)
  if type(figure) ~= 'table' or type(figure.png) ~= 'function' or not figure.options.width then
    raise(op, 'a figure of amp.plot expected, got %s', util.show(figure))
  end
  if not self.events then return self end
  local png = figure:png()
  check(self, 'the event file', self.events:image(now(), step, tag, png, figure.options.width, figure.options.height, 3))
  return self
end

--- Log a text; Markdown is shown as such.
function Logger:text(tag, text, step)
  local op = 'Logger:text'
  step = check_step(self, op, step)
  check_tag(op, tag)
  if type(text) ~= 'string' then raise(op, 'a string expected, got %s', util.show(text)) end
  if self.events then check(self, 'the event file', self.events:text(now(), step, tag, text)) end
  return self
end

-- -- The end -----------------------------------------------------------------------------------------

--- Write what waits, and have the disk keep it. Waits for the devices of scalars that are tensors.
-- @return self
function Logger:flush()
  if not self.closed then
    write(self)
    if self.table and self.table.out then self.table.out:sync() end
    if self.events then self.events.out:sync() end
  end
  return self
end

--- Write what waits and close the files. Twice is harmless; a logger that is forgotten does so when it is collected.
function Logger:close()
  if self.closed then return self end
  local ok, e = pcall(write, self)
  self.closed = true
  if self.table then self.table:close() end
  if self.events then self.events:close() end
  if not ok then error(e, 0) end
  return self
end

function Logger:__tostring()
  return ('amp.Logger (%s%s%s%s)'):format(self.folder, self.table and ', CSV' or '', self.events and ', TensorBoard' or '', self.closed and ', closed' or '')
end

require('amp.core.class').guard(Logger, 'Logger', 'log')

return new

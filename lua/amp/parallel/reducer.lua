--- Gradients of all ranks made one while backward goes on.
--
-- Parameters are put into buckets, the last ones first, as their gradients come. Once all gradients of a bucket are
-- complete (the library's backward says so), it is summed over the ranks in the background. Buckets go in one order on
-- all ranks; what is not complete by the end of backward goes then, so ranks may use different parameters.
-- @module amp.parallel.reducer
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local types = require 'amp.types'
local C, S = core.C, core.S

local Reducer = {}
Reducer.__index = Reducer

local buffer_t = ffi.typeof 'amp_tensor *[?]'

-- Lists of parameters of at most `bytes`, of one dtype and device each, the last parameters first
local function partition(params, bytes, size_of)
  local buckets, open = {}, {}
  for i = #params, 1, -1 do
    local t = params[i]
    local key = t.dtype .. ' ' .. t.device
    local b = open[key]
    local n = t:numel() * size_of(t)
    if not b or (b.bytes + n > bytes and #b > 0) then
      b = { bytes = 0 }
      buckets[#buckets + 1], open[key] = b, b
    end
    b[#b + 1], b.bytes = t, b.bytes + n
  end
  return buckets
end

--- @tparam table params that require grad
-- @tparam table o {bytes, dtype (nil: the parameters'), group, op for messages}
local function new(params, o)
  local self = setmetatable({ o = o, buckets = {}, next = 1, left = {}, active = false, enabled = true, ids = {} }, Reducer)
  local code = o.dtype and types.dtype_code[o.dtype] or -1
  local lists = partition(params, o.bytes, function(t) return o.dtype and 2 or t:element_size() end)
  local weak = setmetatable({ self = self }, { __mode = 'v' })
  for k, list in ipairs(lists) do
    local leaves = buffer_t(#list)
    for i = 1, #list do leaves[i - 1] = list[i].ptr_ end
    local handle = ffi.gc(call.object('DistributedDataParallel', C.amp_bucket_new, leaves, #list, code), C.amp_bucket_free)
    self.buckets[k] = { handle = handle, count = #list }
    for i = 1, #list do
      local id = tonumber(C.amp_ready(S, list[i]))
      if id < 0 then require('amp.error').raise 'DistributedDataParallel' end
      local others = call.closures[id]
      call.closures[id] = { ready = function()
        if others then others.ready() end
        local r = weak.self
        if r then r:ready(k) end
      end }
    end
  end
  self:reset()
  return self
end

function Reducer:reset()
  self.next, self.active = 1, false
  for k, b in ipairs(self.buckets) do self.left[k], b.work, b.flat = b.count, nil, nil end
end

-- Buckets that are complete, in order; all: every one that is left.
function Reducer:launch(all)
  local dist = require 'amp.distributed'
  while self.next <= #self.buckets and (all or self.left[self.next] == 0) do
    local b = self.buckets[self.next]
    b.flat = call.make('DistributedDataParallel', C.amp_bucket_pack, b.handle)
    b.work = dist.all_reduce(b.flat, { op = 'mean', async = true, group = self.o.group })
    self.next = self.next + 1
  end
end

-- A parameter of bucket k has its gradient.
function Reducer:ready(k)
  if not self.enabled then return end
  if not self.active then
    self.active = true
    local after = require('amp.autograd.engine').after
    after[#after + 1] = self
  end
  self.left[k] = self.left[k] - 1
  if self.left[k] == 0 then self:launch(false) end
end

-- Backward is over: what is left goes, in order.
function Reducer:begin() self:launch(true) end

--- All gradients are those of all ranks.
function Reducer:finish()
  local ok, e = pcall(function()
    for _, b in ipairs(self.buckets) do
      b.work:wait()
      call.try('DistributedDataParallel', C.amp_bucket_unpack, S, b.handle)
      b.work, b.flat = nil, nil
    end
  end)
  self:reset()
  if not ok then error(e, 0) end
end

-- Backward failed: the others wait for this rank's calls until their timeout, or hear that it has ended.
function Reducer:abandon() self:reset() end

--- The gradients of parameters become the ranks' sum (or mean), now: for who does it by hand.
-- @tparam table params
-- @tparam string op 'sum' or 'mean'
local function reduce(params, op)
  local dist, jobs = require 'amp.distributed', {}
  for k, list in ipairs(partition(params, 25 * 2 ^ 20, function(t) return t:element_size() end)) do
    local leaves = buffer_t(#list)
    for i = 1, #list do leaves[i - 1] = list[i].ptr_ end
    local handle = ffi.gc(call.object('allreduce_grads', C.amp_bucket_new, leaves, #list, -1), C.amp_bucket_free)
    local flat = call.make('allreduce_grads', C.amp_bucket_pack, handle)
    jobs[k] = { handle = handle, flat = flat, work = dist.all_reduce(flat, { op = op, async = true }) }
  end
  for _, job in ipairs(jobs) do
    job.work:wait()
    call.try('allreduce_grads', C.amp_bucket_unpack, S, job.handle)
  end
end

return { new = new, reduce = reduce }

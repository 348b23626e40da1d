--- DistributedDataParallel: a network whose gradients are the mean over all ranks.
--     local net = nn.parallel.DistributedDataParallel(net)
-- Parameters and buffers of rank 1 are everybody's at the start. Each backward leaves in every parameter the mean of all
-- ranks' gradients, summed in buckets while backward goes on. In a world of one it is the network and nothing else.
-- @module amp.parallel.data_parallel
local amp = require 'amp'
local Module = require 'amp.nn.module'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local OP = 'nn.parallel.DistributedDataParallel'
local DDP = Module:extend(OP)

local known = { 'bucket_mb', 'gradient_dtype', 'find_unused_parameters', 'group' }
known.refused = {
  device_ids = 'a rank has one device: that of the parameters',
  output_device = 'a rank has one device: that of the parameters',
  broadcast_buffers = 'buffers are those of rank 1 at the start; nn.SyncBatchNorm keeps statistics equal',
  gradient_as_bucket_view = 'gradients lie in the buckets always',
}

local function trainable(net)
  local list = {}
  for _, p in ipairs(net:parameters()) do
    if p.requires_grad then list[#list + 1] = p end
  end
  return list
end

-- Everything of rank 1, in one order
local function share(net, group)
  local dist = amp.distributed
  local from = group and group.ranks[1] or 1
  local names = {}
  for name, t in net:named_parameters() do names[#names + 1] = ('%s %s %s'):format(name, t.dtype, util.shape(t.shape)) end
  local mine = table.concat(names, '\n')
  local theirs = dist.broadcast_object(mine, { from = from, group = group })
  local same = amp.tensor({ mine == theirs and 1 or 0 }, { dtype = 'int32' })
  dist.all_reduce(same, { op = 'min', group = group })
  if same:item() == 0 then
    if mine ~= theirs then raise(OP, 'the networks of the ranks differ: rank %d has other parameters than rank %d', dist.rank(), from) end
    raise(OP, 'the networks of the ranks differ: another rank has other parameters than rank %d', from)
  end
  amp.no_grad(function()
    for _, t in ipairs(net:parameters()) do dist.broadcast(t, { from = from, group = group }) end
    for _, t in ipairs(net:buffers()) do dist.broadcast(t, { from = from, group = group }) end
  end)
end

local function everybody(n)
  local list = {}
  for r = 1, n do list[r] = r end
  return list
end

--- @tparam Module net
-- @tparam ?table o {bucket_mb = 25, gradient_dtype = 'same' | 'float16' | 'bfloat16', find_unused_parameters = false, group}:
--   what gradients are sent in; parameters that a rank does not use are found anyhow
function DDP:init(net, o)
  if type(net) ~= 'table' or type(net.parameters) ~= 'function' then raise(OP, 'takes a module, got %s', util.show(net)) end
  o = options.read(OP, o, known, { bucket_mb = 25, gradient_dtype = 'same', find_unused_parameters = false })
  options.number(OP, 'bucket_mb', o.bucket_mb, 0)
  options.boolean(OP, 'find_unused_parameters', o.find_unused_parameters)
  local dtype = o.gradient_dtype
  if dtype == 'half' then dtype = 'float16' end
  if dtype ~= 'same' and dtype ~= 'float16' and dtype ~= 'bfloat16' and dtype ~= 'float32' then
    raise(OP, "gradient_dtype must be 'same', 'float16', 'bfloat16' or 'float32', got %s", util.show(dtype))
  end
  local dist = amp.distributed
  if not dist.is_initialized() then raise(OP, 'call amp.distributed.init() first') end
  self.module = net
  local params = trainable(net)
  if #params == 0 then raise(OP, 'no parameter of the network requires grad') end
  if dist.world_size() == 1 then return end
  share(net, o.group)
  -- calls of a group of its own: another network's, or the script's, may come between them in any order
  local group = o.group or dist.new_group(everybody(dist.world_size()))
  self.reducer_ = require('amp.parallel.reducer').new(params, { bytes = o.bucket_mb * 2 ^ 20, dtype = dtype ~= 'same' and dtype or nil, group = group })
end

function DDP:forward(...) return self.module(...) end

--- Gradients of backwards inside fn stay this rank's own; the next backward outside sums what has been gathered.
-- @return what fn gives
function DDP:no_sync(fn, ...)
  if type(fn) ~= 'function' then raise(OP .. ':no_sync', 'takes a function, got %s', util.show(fn)) end
  local reducer = self.reducer_
  if not reducer then return fn(...) end
  local before = reducer.enabled
  reducer.enabled = false
  local function done(ok, ...)
    reducer.enabled = before
    if not ok then error(..., 0) end
    return ...
  end
  return done(pcall(fn, ...))
end

return DDP

--- Several processes: collectives of tensors between ranks, which count from 1.
--     local dist = amp.distributed
--     dist.init()
--     dist.all_reduce(t, {op = 'mean'})
-- Started by `amp run -n 4 script.lua`, mpirun or srun; on GPUs also by PyTorch's launcher. A process that nothing of this
-- started is a world of one, in which everything works without an engine.
-- What ranks call is compared before data moves, so that calls which differ are an error on each of them.
-- @module amp.distributed
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local options = require 'amp.options'
local util = require 'amp.util'
local world = require 'amp.distributed.world'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

local M = {}

local state = nil -- {rank, size, place, timeout, backend}, ranks from 1
local kinds = {}
for _, name in ipairs { 'all_reduce', 'broadcast', 'reduce', 'all_gather', 'gather', 'scatter', 'reduce_scatter', 'all_to_all', 'send', 'recv', 'barrier' } do
  kinds[name] = tonumber(C['AMP_DIST_' .. name:upper()])
end
local ops = { sum = C.AMP_DIST_SUM, mean = C.AMP_DIST_MEAN, max = C.AMP_DIST_MAX, min = C.AMP_DIST_MIN, product = C.AMP_DIST_PRODUCT }
local pointers = ffi.typeof 'amp_tensor *[?]'

-- -- World -----------------------------------------------------------------------------------------

local function joined(op)
  if not state then err.throw_code('state', 'distributed.' .. op, 'call amp.distributed.init() first') end
  return state
end

-- This process's place where nothing was initialised: a world of one needs no init.
local function place(op)
  if state then return state end
  local found = world.find()
  if found.size > 1 then joined(op) end
  return { rank = 1, size = 1, place = 1 }
end

--- This process's rank, from 1.
function M.rank() return place('rank').rank end
--- How many ranks there are.
function M.world_size() return place('world_size').size end
--- This process's rank among those of its machine, from 1.
function M.local_rank() return place('local_rank').place end
--- Whether this is rank 1, which prints and writes.
function M.is_main() return place('is_main').rank == 1 end
--- Whether init was called, and finalize was not.
function M.is_initialized() return state ~= nil end

local function missing(op, backend, found, why)
  local lacks = found.lacks or why
  err.throw_code('unsupported', op, '%d processes were started by %s, but %s is not to be had: %s', found.size, found.by, backend, lacks)
end

local function start(op, name, backend, found)
  local at = ffi.new 'int32_t[2]'
  local rc = C.amp_dist_start(S, name, at, at + 1)
  if rc < 0 then missing(op, backend, found, ffi.string(S.err.message)) end
  return at[0] + 1, at[1]
end

-- The backend to use: NCCL where there is a GPU for each rank of this machine and its plug-in was built.
local function choose(o, found)
  if o.backend ~= 'auto' then return o.backend end
  local cards = require('amp.cuda').device_count()
  if cards == 0 or found.plugin and found.places and found.places > cards then return 'mpi' end
  return ffi.string(C.amp_plugin_info 'nccl'):find('libamp_nccl%.so is not in') == nil and 'nccl' or 'mpi'
end

local function join(op, o)
  local found = world.find()
  if found.size == 1 then return { rank = 1, size = 1, place = 1, backend = 'none' } end
  local backend = choose(o, found)
  local s = { backend = backend, place = (found.place or 0) + 1 }
  if backend == 'nccl' then
    local cards = require('amp.cuda').device_count()
    if cards > 0 then
      local index = (found.place or 0) % cards
      ffi.C.amp_posix_setenv('AMP_NCCL_DEVICE', tostring(index), 1)
      s.device = 'cuda:' .. index + 1
    end
    if found.plugin then s.mpi = start(op, found.plugin, 'mpi', found) end
    s.rank, s.size = start(op, 'nccl', 'nccl', found)
  else
    if not found.plugin then
      missing(op, 'mpi', found, found.torch and "on CPUs start with amp run or mpirun (PyTorch's launcher is for GPUs, through NCCL)" or 'no MPI of ours')
    end
    s.rank, s.size = start(op, found.plugin, 'mpi', found)
    s.plugin = found.plugin
  end
  return s
end

--- Join the other processes. Calling it again changes nothing. With NCCL 'cuda' means this rank's card from now on.
-- @tparam ?table o {backend = 'auto' | 'nccl' | 'mpi', timeout = 300}: seconds that a call waits for the other ranks
function M.init(o)
  local op = 'distributed.init'
  o = options.read(op, o, { 'backend', 'timeout' }, { backend = 'auto', timeout = 300 })
  if o.backend ~= 'auto' and o.backend ~= 'nccl' and o.backend ~= 'mpi' then
    err.throw(op, "backend must be 'auto', 'nccl' or 'mpi', got %s", util.show(o.backend))
  end
  options.number(op, 'timeout', o.timeout, 0)
  if o.timeout == 0 then err.throw(op, 'timeout must be more than 0 seconds') end
  if state then return end
  if not pcall(function() return ffi.C.amp_posix_setenv end) then
    ffi.cdef 'int amp_posix_setenv(const char *name, const char *value, int replace) __asm__("setenv");'
  end
  ffi.C.amp_posix_setenv('AMP_DISTRIBUTED_TIMEOUT', ('%g'):format(o.timeout), 1)
  local s = join(op, o)
  s.timeout = o.timeout
  if s.device then require('amp.types').gpu_of_rank(s.device) end
  state = s
end

--- Leave the other processes, which come here as well; a second time nothing happens. The end of a program does it by
-- itself.
-- @raise a rank did not come, or has failed
function M.finalize()
  local s = state
  if not s then return end
  state = nil
  if s.size > 1 then call.check(C.amp_dist_stop(S, s.timeout, 0), 'distributed.finalize') end
end

-- -- Groups ------------------------------------------------------------------------------------------

local Group = {}
Group.__index = Group
Group.__tostring = function(g) return ('amp.distributed.group (ranks %s)'):format(table.concat(g.ranks, ', ')) end

--- Some of the ranks. All ranks call it, with the same list; those in it use what it gives, as option `group`.
-- @tparam table ranks a list of ranks, from 1
-- @treturn table group; fields ranks, and rank: this process's place in it, nil where it is none of it
function M.new_group(ranks)
  local op = 'distributed.new_group'
  local s = joined 'new_group'
  if type(ranks) ~= 'table' or #ranks == 0 then err.throw(op, 'takes a list of ranks, got %s', util.show(ranks)) end
  local list, seen, g = ffi.new('int32_t[?]', #ranks), {}, { ranks = {}, places = {} }
  for i = 1, #ranks do
    local r = ranks[i]
    if type(r) ~= 'number' or r % 1 ~= 0 or r < 1 or r > s.size then
      err.throw_code('index', op, 'rank %s is none of 1 to %d', util.show(r), s.size)
    end
    if seen[r] then err.throw(op, 'rank %d stands twice in the list', r) end
    seen[r], list[i - 1], g.ranks[i], g.places[r] = true, r - 1, r, i
  end
  g.rank, g.size, g.id = g.places[s.rank], #ranks, 0
  if s.size > 1 then g.id = call.try(op, C.amp_dist_group, S, list, #ranks, s.timeout) end
  return setmetatable(g, Group)
end

-- The group of a call: {id, size, rank, places}
local function group_of(op, o)
  local g = o.group
  if g == nil then
    if not state.all then
      state.all = { id = 0, size = state.size, rank = state.rank, places = {} }
      for r = 1, state.size do state.all.places[r] = r end
    end
    return state.all
  end
  if getmetatable(g) ~= Group then err.throw(op, 'group must be one that new_group gave, got %s', util.show(g)) end
  if not g.rank then err.throw(op, 'rank %d is not in this group (ranks %s)', state.rank, table.concat(g.ranks, ', ')) end
  return g
end

-- Option `name`, a rank of the world, as a place in the group from 0
local function root_of(op, name, r, g)
  if type(r) ~= 'number' or r % 1 ~= 0 or r < 1 or r > state.size then
    err.throw_code('index', op, '%s is a rank from 1 to %d, got %s', name, state.size, util.show(r))
  end
  if not g.places[r] then err.throw(op, '%s is rank %d, which is not in the group', name, r) end
  return g.places[r] - 1
end

-- -- Tensors -----------------------------------------------------------------------------------------

local function check_tensor(op, t, what)
  if not istype(ref_t, t) then err.throw(op, '%s must be a tensor, got %s', what or 'argument 1', util.show(t)) end
  if t.ptr_ == nil then err.throw(op, 'the tensor was freed') end
  return t
end

local function plain(f, ...) return require('amp.autograd').no_grad(require('amp.precision.autocast').off, f, ...) end

-- What NCCL does not add is added as these.
local wider = { int16 = 'int32', float8_e4m3 = 'float32', float8_e5m2 = 'float32' }

-- A tensor as the engine takes it: where it lies, without gaps; to add: of a dtype that it adds.
local function dense(t, add)
  local gpu = state.backend == 'nccl'
  local dtype = gpu and add and wider[t.dtype]
  if (t.ptr_.device == 0) == gpu then t = t:detach():to(gpu and state.device or 'cpu') end
  if dtype then t = t:detach():to(dtype) end
  return t:is_contiguous() and t or plain(function() return t:detach():contiguous() end)
end

-- A new one like t, not filled
local function fresh(t, shape)
  return require('amp.tensor.create').empty(shape, { dtype = t.dtype, device = state.device or 'cpu' })
end

local function copy_back(to, from)
  plain(function() to:detach():copy_(from) end)
end

-- What ranks compare: the caller's tensor, or that of a dtype which is added
local function like_of(t, c) return c.dtype == t.dtype and t or c end

local function as_device(t, device) return t.device == device and t or t:to(device) end

-- -- Works -------------------------------------------------------------------------------------------

local Work = {}
Work.__index = Work
Work.__tostring = function(w) return ('amp.distributed.work (%s%s)'):format(w.op, w.over and ', done' or '') end

local function raise_again(w) err.throw_code('state', 'distributed.' .. w.op, '%s', w.failed) end

--- Wait for a call that was begun with async = true.
-- @return what the call gives without it
function Work:wait()
  if self.failed then raise_again(self) end
  if not self.over then
    local rc
    repeat rc = C.amp_dist_wait(S, self.handle, 3600) until rc ~= 0
    self.keep = nil
    if rc < 0 then
      self.failed = ffi.string(S.err.message)
      err.raise('distributed.' .. self.op)
    end
    if S.attention ~= 0 then call.attend() end
    self.result = self.finish and self.finish() or self.result
    self.over, self.finish = true, nil
  end
  return self.result
end

jit.off(Work.wait) -- so that an interrupt is seen

--- Whether it is over; does not wait.
function Work:is_completed()
  return self.over or self.failed ~= nil or C.amp_dist_wait(S, self.handle, 0) ~= 0
end

local function list_of(tensors)
  local p = pointers(math.max(#tensors, 1))
  for i = 1, #tensors do p[i - 1] = tensors[i].ptr_ end
  return p
end

-- Begin a call. c: {op, kind, number (of the operation), group, root, like, ins, outs, finish, result, async}
local function begin(c)
  local w = setmetatable({ op = c.kind, finish = c.finish, result = c.result }, Work)
  if state.size == 1 or c.group.size == 1 then
    w.result = c.alone()
    w.over = true
  else
    local ins, outs = c.ins or {}, c.outs or {}
    local handle = call.object('distributed.' .. c.kind, C.amp_dist_call, kinds[c.kind], c.number or 0, c.group.id, c.root or 0,
      c.timeout or state.timeout, c.like and c.like.ptr_ or nil, list_of(ins), #ins, list_of(outs), #outs)
    w.handle, w.keep = ffi.gc(handle, C.amp_dist_free), { ins, outs }
  end
  if c.async then return w end
  return w:wait()
end

local function read(op, o, known, defaults)
  local s = joined(op:match '[^.]+$')
  known[#known + 1], known[#known + 2] = 'group', 'async'
  o = options.read(op, o, known, defaults)
  if o.async ~= nil then options.boolean(op, 'async', o.async) end
  return o, group_of(op, o), s
end

local function number_of(op, o, t)
  local n = ops[o.op]
  if not n then err.throw(op, "op must be 'sum', 'mean', 'max', 'min' or 'product', got %s", util.show(o.op)) end
  if o.op == 'mean' and t.ptr_.dtype > 3 then err.throw_code('dtype', op, 'a mean is of floats, got a tensor of %s', t.dtype) end
  return tonumber(n)
end

-- -- Collectives ---------------------------------------------------------------------------------------

--- Every rank's t becomes the sum (or another op) of all ranks'. bool: or (sum, max), and (product, min).
-- @tparam Tensor t changed in place
-- @tparam ?table o {op = 'sum' | 'mean' | 'max' | 'min' | 'product', group, async = false}
-- @return t, or a work
function M.all_reduce(t, o)
  local op = 'distributed.all_reduce'
  local g
  o, g = read(op, o, { 'op' }, { op = 'sum' })
  check_tensor(op, t)
  local number, c = number_of(op, o, t), dense(t, true)
  return begin { kind = 'all_reduce', number = number, group = g, like = like_of(t, c), outs = { c }, result = t, async = o.async,
    finish = c ~= t and function() copy_back(t, c) return t end or nil, alone = function() return t end }
end

--- Every rank's t becomes that of one rank.
-- @tparam Tensor t changed in place
-- @tparam ?table o {from = 1, group, async}
-- @return t, or a work
function M.broadcast(t, o)
  local op = 'distributed.broadcast'
  local g
  o, g = read(op, o, { 'from' }, { from = 1 })
  check_tensor(op, t)
  local root, c = root_of(op, 'from', o.from, g), dense(t)
  return begin { kind = 'broadcast', group = g, root = root, like = t, outs = { c }, result = t, async = o.async,
    finish = c ~= t and function() copy_back(t, c) return t end or nil, alone = function() return t end }
end

--- Rank `to` gets the sum (or another op) of all ranks' t in its own; the others' stay.
-- @tparam Tensor t changed in place at rank `to`
-- @tparam ?table o {to = 1, op = 'sum', group, async}
-- @return t, or a work
function M.reduce(t, o)
  local op = 'distributed.reduce'
  local g
  o, g = read(op, o, { 'to', 'op' }, { to = 1, op = 'sum' })
  check_tensor(op, t)
  local root, number, c = root_of(op, 'to', o.to, g), number_of(op, o, t), dense(t, true)
  local mine = root == g.rank - 1
  return begin { kind = 'reduce', number = number, group = g, root = root, like = like_of(t, c), ins = { c }, outs = mine and { c } or nil,
    result = t, async = o.async,
    finish = mine and c ~= t and function() copy_back(t, c) return t end or nil, alone = function() return t end }
end

local function shape_of(t, first)
  local shape = {}
  for i = 1, t:dim() do shape[i] = t:size(i) end
  if first then table.insert(shape, 1, first) end
  return shape
end

-- n tensors of flat's rows
local function rows(flat, n, device)
  local list = {}
  for i = 1, n do list[i] = as_device(flat[i], device) end
  return list
end

local function copy_of(t) return plain(function() return t:detach():clone() end) end

--- All ranks' tensors, on every rank.
-- @tparam Tensor t
-- @tparam ?table o {group, async}
-- @treturn table a list of tensors in the order of ranks, or a work
function M.all_gather(t, o)
  local op = 'distributed.all_gather'
  local g
  o, g = read(op, o, {})
  check_tensor(op, t)
  local c = dense(t)
  local flat = fresh(c, shape_of(t, g.size))
  return begin { kind = 'all_gather', group = g, like = t, ins = { c }, outs = { flat }, async = o.async,
    finish = function() return rows(flat, g.size, t.device) end, alone = function() return { copy_of(t) } end }
end

--- All ranks' tensors, on rank `to`.
-- @tparam Tensor t
-- @tparam ?table o {to = 1, group, async}
-- @treturn ?table a list of tensors at rank `to`, nil elsewhere; or a work
function M.gather(t, o)
  local op = 'distributed.gather'
  local g
  o, g = read(op, o, { 'to' }, { to = 1 })
  check_tensor(op, t)
  local root, c, outs = root_of(op, 'to', o.to, g), dense(t), nil
  if root == g.rank - 1 then
    outs = {}
    for i = 1, g.size do outs[i] = fresh(c, shape_of(t)) end
  end
  return begin { kind = 'gather', group = g, root = root, like = t, ins = { c }, outs = outs, async = o.async,
    finish = outs and function()
      for i = 1, #outs do outs[i] = as_device(outs[i], t.device) end
      return outs
    end, alone = function() return { copy_of(t) } end }
end

-- A list of one tensor for each rank of the group, all like the first (or `like`)
local function check_list(op, list, g, like)
  if type(list) ~= 'table' or #list ~= g.size then
    err.throw(op, 'takes a list of %d tensors, one for each rank, got %s', g.size, type(list) == 'table' and 'a list of ' .. #list or util.show(list))
  end
  for i = 1, #list do
    local t = check_tensor(op, list[i], ('tensor %d of the list'):format(i))
    like = like or t
    if t.dtype ~= like.dtype or util.shape(t.shape) ~= util.shape(like.shape) then
      err.throw_code('shape', op, 'tensor %d of the list is %s %s, expected %s %s', i, t.dtype, util.shape(t.shape), like.dtype, util.shape(like.shape))
    end
  end
  return like
end

--- Each rank's t becomes its tensor of the list that rank `from` gives.
-- @tparam Tensor t changed in place
-- @tparam ?table list one tensor for each rank; at rank `from`
-- @tparam ?table o {from = 1, group, async}
-- @return t, or a work
function M.scatter(t, list, o)
  local op = 'distributed.scatter'
  local g
  if o == nil and type(list) == 'table' and #list == 0 and next_key(list) ~= nil then list, o = nil, list end
  o, g = read(op, o, { 'from' }, { from = 1 })
  check_tensor(op, t)
  local root, ins = root_of(op, 'from', o.from, g), {}
  if root == g.rank - 1 then
    check_list(op, list, g, t)
    for i = 1, g.size do ins[i] = dense(list[i]) end
  end
  local c = dense(t)
  return begin { kind = 'scatter', group = g, root = root, like = t, ins = ins, outs = { c }, result = t, async = o.async,
    finish = c ~= t and function() copy_back(t, c) return t end or nil,
    alone = function() copy_back(t, list[1]) return t end }
end

--- The sum (or another op) of all ranks' t, of which each rank gets its part along dimension 1.
-- @tparam Tensor t of n * k rows, n ranks
-- @tparam ?table o {op = 'sum', group, async}
-- @treturn Tensor k rows, or a work
function M.reduce_scatter(t, o)
  local op = 'distributed.reduce_scatter'
  local g
  o, g = read(op, o, { 'op' }, { op = 'sum' })
  check_tensor(op, t)
  if t:dim() == 0 then err.throw_code('shape', op, 'a tensor without dimensions has no parts') end
  local number, first = number_of(op, o, t), t:size(1)
  if first % g.size ~= 0 then err.throw_code('shape', op, 'dimension 1 of %s has no %d equal parts', util.shape(t.shape), g.size) end
  local c, shape = dense(t, true), shape_of(t)
  shape[1] = first / g.size
  local out = fresh(c, shape)
  return begin { kind = 'reduce_scatter', number = number, group = g, like = like_of(t, c), ins = { c }, outs = { out }, async = o.async,
    finish = function() return as_device(out:to(t.dtype), t.device) end, alone = function() return copy_of(t) end }
end

--- Tensor i of each rank's list goes to rank i; gives what came from the ranks.
-- @tparam table list one tensor for each rank, all of one shape and dtype
-- @tparam ?table o {group, async}
-- @treturn table a list of tensors in the order of ranks, or a work
function M.all_to_all(list, o)
  local op = 'distributed.all_to_all'
  local g
  o, g = read(op, o, {})
  local like, ins, outs = check_list(op, list, g), {}, {}
  for i = 1, g.size do
    ins[i] = dense(list[i])
    outs[i] = fresh(ins[i], shape_of(like))
  end
  return begin { kind = 'all_to_all', group = g, like = like, ins = ins, outs = outs, async = o.async,
    finish = function()
      for i = 1, #outs do outs[i] = as_device(outs[i], like.device) end
      return outs
    end, alone = function() return { copy_of(list[1]) } end }
end

local function peer(op, name, o, g)
  if o[name] == nil then err.throw(op, "option '%s' is missing: the rank", name) end
  root_of(op, name, o[name], g)
  if o[name] == state.rank then err.throw(op, '%s is this rank, %d', name, state.rank) end
  return o[name] - 1
end

--- Send a tensor to a rank, which calls recv.
-- @tparam Tensor t
-- @tparam table o {to, group, async}
-- @return t, or a work
function M.send(t, o)
  local op = 'distributed.send'
  local g
  o, g = read(op, o, { 'to' })
  check_tensor(op, t)
  return begin { kind = 'send', group = { id = 0, size = state.size }, root = peer(op, 'to', o, g), like = t, ins = { dense(t) }, result = t, async = o.async }
end

--- Get a tensor of t's shape and dtype from a rank, which calls send.
-- @tparam Tensor t changed in place
-- @tparam table o {from, group, async}
-- @return t, or a work
function M.recv(t, o)
  local op = 'distributed.recv'
  local g
  o, g = read(op, o, { 'from' })
  check_tensor(op, t)
  local c = dense(t)
  return begin { kind = 'recv', group = { id = 0, size = state.size }, root = peer(op, 'from', o, g), like = t, outs = { c }, result = t, async = o.async,
    finish = c ~= t and function() copy_back(t, c) return t end or nil }
end

--- All ranks come here before any goes on.
-- @tparam ?table o {group, async}
function M.barrier(o)
  local op = 'distributed.barrier'
  local g
  o, g = read(op, o, {})
  return begin { kind = 'barrier', group = g, async = o.async, alone = function() end }
end

--- A value of plain data (nil, booleans, numbers, strings, tables of these) of one rank, on every rank.
-- @param value at rank `from`; what the others give is plain data as well, or nil
-- @tparam ?table o {from = 1, group}
-- @return the value; a copy, on the others
-- @raise anything else than plain data, before anything is sent
function M.broadcast_object(value, o)
  local op = 'distributed.broadcast_object'
  local s = joined 'broadcast_object'
  o = options.read(op, o, { 'from', 'group' }, { from = 1 })
  local g = group_of(op, o)
  root_of(op, 'from', o.from, g)
  local object = require 'amp.distributed.object'
  object.check(op, value) -- on every rank: what all of them give is then refused by all, and none waits for the one that sends
  if g.size == 1 then return value end
  return object.broadcast(M, value, o, s.rank == o.from)
end

--- A metric of amp.metric counts what all ranks have counted. All ranks call it, once they have made their last update.
-- @param metric with state() and merge(state), or a sum and a count
-- @return metric
function M.merge_metric(metric)
  joined 'merge_metric'
  return require 'amp.distributed.metric'(M, metric)
end

--- Internal: this process's state, nil before init; for parts of amp that have nothing to do in a world of one.
function M._several() return state ~= nil and state.size > 1 end

return M

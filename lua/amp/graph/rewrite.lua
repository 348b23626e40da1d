--- A graph rebuilt node by node, with casts where a plan wants them.
--
-- Each node is called once, on inputs of the recorded forms, right before its copy is added: so the dtypes of its results,
-- what are views of what and what is written in place are those of a run, for every row of the op table alike. Casts are
-- nodes of the rows amp_cast and amp_multicast: one for a value and a dtype, until the value is written to. A node that
-- can't run on these inputs (a decomposition of random numbers, say) gets results of the dtypes that its operands suggest.
-- @module amp.graph.rewrite
local bit = require 'bit'
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local create = require 'amp.tensor.create'
local schema = require 'amp.ops.schema'
local types = require 'amp.types'
local C, S, ref_t = core.C, core.S, core.ref_t
local band, bor = bit.band, bit.bor

-- A rewrite runs once and is quick enough interpreted: a trace here would hold a loop over nodes with the calls of ops inside, for
-- which a trace has not registers enough.
jit.off(true, true)

local M = {}

local pointers, refs = ffi.typeof 'amp_tensor *[?]', ffi.typeof 'amp_ref *'
local F64, F32, F16, BF16 = 0, 1, 2, 3
local WRITES = bor(C.AMP_INPLACE, C.AMP_OUT)
local E_DTYPE = tonumber(C.AMP_E_DTYPE)

M.F32 = F32

local function is_half(dtype) return dtype == F16 or dtype == BF16 end
local function is_float(dtype) return dtype <= BF16 end
local function widest(a, b)
  if a == nil or a == b then return b end
  if a == F64 or b == F64 then return F64 end
  return F32
end
M.is_half, M.is_float = is_half, is_float

local cast_rows = {[schema.by_name.amp_cast] = true, [schema.by_name.amp_multicast] = true}

--- Is a node one of a conversion's casts?
function M.is_cast(node) return cast_rows[tonumber(node.op)] == true end

local one = pointers(1)

local function held(tensor)
  local o = ref_t()
  one[0] = tensor
  C.amp_retain(o, ffi.cast(refs, one))
  return o
end
M.held = held

local function version(t) return C.amp_tensor_version(t) end
local function storage(t) return t.ptr_.storage end

-- -- Tensors of its own -----------------------------------------------------------------------

local function marked(new, old)
  new.requires_grad = old.requires_grad
  new.ptr_.flags = bor(new.ptr_.flags, band(old.ptr_.flags, C.AMP_T_WEIGHT))
  return new
end

-- Elements that tensors of one storage and dtype lie in, from the first to the last of them.
local function extent(list)
  local low, high = math.huge, -1
  for _, t in ipairs(list) do
    local p, last = t.ptr_, tonumber(t.ptr_.offset)
    for d = 0, p.ndim - 1 do last = last + (tonumber(p.size[d]) - 1) * tonumber(p.stride[d]) end
    low, high = math.min(low, tonumber(p.offset)), math.max(high, last)
  end
  return low, high - low + 1
end

--- What gives a copy for each tensor: one for one, and those that share memory share it in the copies.
-- @tparam table tensors all of them
-- @tparam ?table low id -> dtype's name: copies in that dtype
-- @treturn function(t)
function M.copier(tensors, low)
  local groups, copies = {}, {}
  for _, t in ipairs(tensors) do
    local key = tostring(storage(t)) .. t.dtype
    groups[key] = groups[key] or {seen = {}}
    local group, id = groups[key], t:id()
    if not group.seen[id] then
      group.seen[id] = true
      group[#group + 1] = t
    end
  end
  return function(t)
    local id = t:id()
    if copies[id] then return copies[id] end
    local group, plain = groups[tostring(storage(t)) .. t.dtype], t:detach()
    local copy
    if low and low[id] then copy = plain:to(low[id])
    elseif not group or #group == 1 or t:numel() == 0 then copy = plain:clone()
    else
      if not group.base then
        local from, n = extent(group)
        group.from, group.base = from, plain:as_strided({n}, {1}, from):clone()
      end
      copy = group.base:as_strided(t.shape, t:stride(), tonumber(t.ptr_.offset) - group.from):detach()
    end
    copies[id] = marked(copy, t)
    return copies[id]
  end
end

-- -- Values ------------------------------------------------------------------------------------

-- A value of the new graph: its number, dtype, the tensor it is in this run; of a cast what it is made of.
local Rewrite = {}
Rewrite.__index = Rewrite

local function sizes_of(v)
  local s = {}
  for d = 0, v.ndim - 1 do s[d + 1] = tonumber(v.size[d]) end
  return s
end

-- A tensor of a value's form. Fractions between 0 and 1 are what most functions are defined for, 1 is an index of anything.
local function stand_in(v, dtype)
  local o = {dtype = types.dtype_name[dtype], device = types.device_string(v.device, v.device_index)}
  if is_float(dtype) then
    local t = create.rand(sizes_of(v), {device = o.device})
    return dtype == F32 and t or t:to(o.dtype)
  end
  return create.ones(sizes_of(v), o)
end

M.stand_in = function(v) return stand_in(v, tonumber(v.dtype)) end

local function info_of(from, dtype)
  local v = ffi.new 'amp_graph_value'
  ffi.copy(v, from, ffi.sizeof(v))
  v.tensor, v.dtype, v.node, v.free_dims = nil, dtype, -1, 0
  return v
end

function Rewrite:source(i)
  local v = C.amp_graph_value_at(self.old, i)
  local info, value = info_of(v, v.dtype), {dtype = tonumber(v.dtype), refs = 1}
  if v.kind == C.AMP_G_INPUT then
    local place = self.ninput
    self.ninput = place + 1
    local given = self.inputs and self.inputs[place + 1]
    value.run, value.given = given or stand_in(v, v.dtype), given ~= nil
    value.at = call.check(C.amp_graph_add_value(S, self.new, info), self.op)
    if v.free_dims ~= 0 then call.check(C.amp_graph_free_dims(S, self.new, place, v.free_dims), self.op) end
    return value
  end
  local t = held(v.tensor)
  value.keeps, value.kind = true, v.kind
  if v.kind == C.AMP_G_NUMBER then value.number, value.run = true, t
  else
    t = self.tensor_of(t, ffi.string(v.name), v.kind)
    value.run = self.run_of and self.run_of(t) or t
    value.dtype = tonumber(t.ptr_.dtype)
    value.parameter = v.kind == C.AMP_G_PARAMETER
    if not self.run_of then self.kept[#self.kept + 1] = {t, held(v.tensor), version(t)} end
  end
  info.dtype, info.tensor = value.dtype, t.ptr_
  value.at = call.check(C.amp_graph_add_value(S, self.new, info), self.op)
  return value
end

-- A value that is read no more: its tensors go.
local function let_go(value)
  value.refs = value.refs - 1
  if value.refs > 0 or value.keeps or value.given or value.made then return end
  for dtype = F64, BF16 do
    local c = value.casts and value.casts[dtype]
    if c and c.value.refs == 0 then C.amp_release(c.value.run) end
  end
  C.amp_release(value.run)
end

-- -- Nodes -------------------------------------------------------------------------------------

-- What a node points to is kept by the rewrite until the next one is made: C takes copies.
local function new_node(self, name, op, operands)
  local node = ffi.new 'amp_graph_node'
  local places = ffi.new('int32_t[?]', math.max(#operands, 1))
  for i = 1, #operands do places[i - 1] = operands[i] and operands[i].at or -1 end
  self.name, self.places = name, places
  node.name, node.op, node.nin, node['in'] = name, op, #operands, places
  node.grad = -1
  for i = 0, 3 do node.out[i] = -1 end
  return node
end

-- Is a cast of a value still what it was made as?
local function holds(c, value, epoch)
  local from, to = value.run, c.value.run
  return c.epoch == epoch and from.ptr_ ~= nil and to.ptr_ ~= nil and version(from) == c.version and version(to) == c.own
end

--- A value in another dtype: by the cast that is there, or by a new one.
-- @tparam table value
-- @tparam number dtype
-- @tparam string row amp_cast or amp_multicast
function Rewrite:cast(value, dtype, row)
  if value.dtype == dtype then return value end
  local narrow = value.narrow
  if narrow and narrow.dtype == dtype and holds(value.made, narrow, self.epoch) then return narrow end
  value.casts = value.casts or {}
  local known = value.casts[dtype]
  if known and holds(known, value, self.epoch) then return known.value end
  local attrs, results = ffi.new 'amp_slot[1]', ffi.new 'amp_graph_value[4]'
  attrs[0].i = dtype
  local from = C.amp_graph_value_at(self.new, value.at)
  local name = ('%s_%s_%s'):format(ffi.string(from.name), row, types.dtype_name[dtype])
  local node = new_node(self, name, schema.by_name[row], {value})
  self.attrs, node.attrs, node.nout = attrs, attrs, 1
  results[0] = info_of(from, dtype)
  results[0].kind, results[0].name = C.AMP_G_RESULT, nil
  local k = call.check(C.amp_graph_add_node(S, self.new, node, results), self.op)
  local made = {at = C.amp_graph_node_at(self.new, k).out[0], dtype = dtype, refs = 0, run = value.run:to(types.dtype_name[dtype])}
  local entry = {value = made, version = version(value.run), own = version(made.run), epoch = self.epoch}
  value.casts[dtype], made.made = entry, entry
  if is_half(value.dtype) then made.narrow = value end
  return made
end

-- Call a node of the old graph. Its results, or nil and the error's code.
function Rewrite:run(k, node, operands)
  local to, n = band(node.flags, C.AMP_OUT) ~= 0, #operands
  local given, made = pointers(n + 1), pointers(4)
  self.given, self.made = given, made
  for i = 1, n do given[i - 1] = operands[i] and operands[i].run.ptr_ or nil end
  if to then given[n] = self.map[node.out[0]].run.ptr_ end
  local rc = C.amp_graph_call(S, self.old, k, ffi.cast(refs, given), to and n + 1 or n, ffi.cast(refs, made))
  if rc < 0 then return nil, tonumber(S.err.code) end
  local list = {}
  for i = 0, 3 do
    if made[i] ~= nil then
      local o = ref_t()
      o.ptr_ = made[i]
      list[i] = o
    end
  end
  return list
end

--- Does a composite of one tensor give a view of it, as a reshape may?
function Rewrite:views(k, node, row, operands)
  if row.kind ~= 'C' or node.nin ~= 1 or not operands[1] then return false end
  local list = self:run(k, node, operands)
  return list ~= nil and list[0] ~= nil and storage(list[0]) == storage(operands[1].run)
end

-- -- Operands that differ where a node wants equal dtypes --------------------------------------

local function each(operands, f)
  local list = {}
  for i = 1, #operands do
    local v = operands[i]
    list[i] = v and not v.number and v.dtype >= F32 and v.dtype <= BF16 and f(v, i) or v
  end
  return list
end
M.each = each

local function widest_of(operands, but_parameters)
  local dtype
  for i = 1, #operands do
    local v = operands[i]
    if v and not v.number and is_float(v.dtype) and not (but_parameters and v.keeps) then dtype = widest(dtype, v.dtype) end
  end
  return dtype
end
M.widest_of = widest_of

-- Ways to make them fit, from the nearest to what the node was recorded with.
function Rewrite:ways(node, operands)
  local recorded = node['in']
  local function to(dtype)
    if not dtype then return nil end
    return function() return each(operands, function(v) return self:cast(v, dtype, 'amp_cast') end) end
  end
  if band(node.flags, C.AMP_INPLACE) ~= 0 then
    local receiver = operands[1]
    return {function()
      return each(operands, function(v, i) return i == 1 and v or is_float(receiver.dtype) and self:cast(v, receiver.dtype, 'amp_cast') or v end)
    end}
  end
  return {
    to(widest_of(operands, true)), -- parameters follow the data
    to(widest_of(operands)),
    function()
      return each(operands, function(v, i)
        return self:cast(v, tonumber(C.amp_graph_value_at(self.old, recorded[i - 1]).dtype), 'amp_cast')
      end)
    end,
  }
end

local function differ(self, node, operands)
  for i = 1, #operands do
    local v = operands[i]
    if v and not v.number and C.amp_graph_value_at(self.old, node['in'][i - 1]).dtype ~= v.dtype then return true end
  end
  return false
end

-- Results of a node that can't run here.
function Rewrite:guess(node, row, operands)
  local list, dtype = {}, row.kind == 'V' and operands[1] and operands[1].dtype or widest_of(operands)
  self.epoch = self.epoch + 1 -- what it writes is not known
  for i = band(node.flags, WRITES) ~= 0 and 1 or 0, node.nout - 1 do
    if node.out[i] >= 0 then
      local v = C.amp_graph_value_at(self.old, node.out[i])
      local follows = dtype and v.dtype >= F32 and v.dtype <= BF16
      list[i] = stand_in(v, follows and dtype or tonumber(v.dtype))
    end
  end
  return list
end

function Rewrite:results(k, node, row, operands)
  local list, code = self:run(k, node, operands)
  if list then return list, operands end
  if code == E_DTYPE and band(node.flags, C.AMP_OUT) == 0 and differ(self, node, operands) then
    local ways = self:ways(node, operands)
    for i = 1, 3 do
      local fitting = ways[i] and ways[i]()
      list = fitting and self:run(k, node, fitting)
      if list then return list, fitting end
    end
  end
  return self:guess(node, row, operands), operands
end

-- What a value is used for: as it is, by views, or in which dtypes.
local function note_use(given, operands, first)
  for i = 1, #operands do
    local before, after = given[i], operands[i]
    if before and before ~= after then
      before.used_as = before.used_as or {}
      before.used_as[after.dtype] = true
    elseif before and first and storage(first.run) == storage(before.run) then
      before.views = before.views or {}
      table.insert(before.views, first)
    elseif before then before.direct = true end
  end
end

local function add_results(self, node, made, list)
  for i = 0, node.nout - 1 do
    local old = node.out[i]
    if old >= 0 and list[i] ~= nil then
      self.map[old] = {at = made.out[i], dtype = tonumber(list[i].ptr_.dtype), run = list[i], refs = 1}
    end
  end
  return list[0] ~= nil and list[1] == nil and node.out[0] >= 0 and self.map[node.out[0]] or nil
end

local function descriptions(self, node, list)
  local results = ffi.new 'amp_graph_value[4]'
  for i = 0, node.nout - 1 do
    if node.out[i] >= 0 then
      local v = C.amp_graph_value_at(self.old, node.out[i])
      results[i] = info_of(v, list[i] ~= nil and list[i].ptr_.dtype or self.map[node.out[i]].dtype)
      results[i].kind, results[i].name = C.AMP_G_RESULT, nil
    end
  end
  return results
end

local DETACH = {name = 'detach', args = {}, kind = 'V'}

--- The row of a node.
function M.row_of(node) return node.op >= 0 and schema.get(ffi.string(C.amp_op_get(node.op).name)) or DETACH end

function Rewrite:node(k)
  local node = C.amp_graph_node_at(self.old, k)
  local given = {}
  for i = 1, node.nin do given[i] = node['in'][i - 1] >= 0 and self.map[node['in'][i - 1]] or false end
  if M.is_cast(node) then
    local value = given[1]
    if not self.drop(node) and value.dtype >= F32 and value.dtype <= BF16 then
      value = self:cast(value, tonumber(node.attrs[0].i), ffi.string(C.amp_op_get(node.op).name))
      if value ~= given[1] then note_use(given, {value}) end
    end
    value.refs = value.refs + 1
    self.map[node.out[0]] = value
    return
  end
  local row = M.row_of(node)
  local planned = band(node.flags, WRITES) == 0 and self.plan(self, k, node, row, given) or given
  local list, operands = self:results(k, node, row, planned)
  local copy = new_node(self, ffi.string(node.name), node.op, operands)
  copy.flags, copy.nout, copy.attrs, copy.grad, copy.regions = node.flags, node.nout, node.attrs, node.grad, node.regions
  ffi.copy(copy.autocast, node.autocast, ffi.sizeof(node.autocast))
  if band(node.flags, WRITES) ~= 0 and node.out[0] >= 0 then copy.out[0] = self.map[node.out[0]].at end
  local at = call.check(C.amp_graph_add_node(S, self.new, copy, descriptions(self, node, list)), self.op)
  self.nodes[k] = at
  note_use(given, operands, add_results(self, node, C.amp_graph_node_at(self.new, at), list))
end

-- -- The whole ----------------------------------------------------------------------------------

local function last_uses(old)
  local last = {}
  for k = 0, C.amp_graph_node_count(old) - 1 do
    local node = C.amp_graph_node_at(old, k)
    for i = 0, node.nin - 1 do last[node['in'][i]] = k end
    for i = 0, node.nout - 1 do last[node.out[i]] = k end
  end
  for i = 0, C.amp_graph_outputs(old) - 1 do last[C.amp_graph_output(old, i)] = nil end
  local ending = {}
  for v = 0, C.amp_graph_value_count(old) - 1 do
    local k = last[v]
    if k then
      ending[k] = ending[k] or {}
      table.insert(ending[k], v)
    end
  end
  return ending
end

local function copy_sizes(self)
  for i = 0, C.amp_graph_size_count(self.old) - 1 do
    local s = ffi.new 'amp_graph_size'
    ffi.copy(s, C.amp_graph_size_at(self.old, i), ffi.sizeof(s))
    if s.node >= 0 then s.node = self.nodes[s.node]
    elseif s.node == -1 then s.slot = self.numbers[tonumber(s.slot)] end
    call.check(C.amp_graph_add_size(S, self.new, s), self.op)
  end
end

local function build(self)
  local old = self.old
  local ending = last_uses(old)
  for i = 0, C.amp_graph_value_count(old) - 1 do
    if C.amp_graph_value_at(old, i).kind ~= C.AMP_G_RESULT then
      self.map[i] = self:source(i)
      self.numbers[i] = self.map[i].at
    end
  end
  for k = 0, C.amp_graph_node_count(old) - 1 do
    self:node(k)
    for _, v in ipairs(ending[k] or {}) do
      if self.map[v] then let_go(self.map[v]) end
    end
  end
  local m = C.amp_graph_outputs(old)
  local outputs = ffi.new('int32_t[?]', math.max(m, 1))
  for i = 0, m - 1 do
    local value = self.map[C.amp_graph_output(old, i)]
    local given = self.output(self, value)
    note_use({value}, {given})
    outputs[i] = given.at
  end
  copy_sizes(self)
  call.check(C.amp_graph_finish(S, self.new, outputs, m), self.op)
end

-- Modes, regions and random numbers of the caller's are as they were.
local function undisturbed(fn, ...)
  local seed, offset, grad, on = S.seed, S.rng_offset, S.grad_mode, S.autocast_on
  S.grad_mode, S.autocast_on = 0, 0
  local ok, e = pcall(fn, ...)
  S.grad_mode, S.autocast_on = grad, on
  if S.seed == seed then S.rng_offset = offset end
  if not ok then error(e, 0) end
end

-- An object of a new handle, for all else as g.
local function wrapped(g, handle)
  local made = {}
  for key, v in pairs(g) do made[key] = v end
  made.handle, made.inputs, made.outputs = handle, g.plan, g.results
  made.again = g.again and require('amp.graph.again').lost(g.again.state)
  return require('amp.graph.graph').new(made)
end

--- Rebuild a graph.
-- @tparam table g Graph
-- @tparam table o op (who asks), tensor_of(t, name) (the tensor that the new graph has for one), run_of(t)? (that in its place
-- meanwhile), plan(rewrite, k, node, row, operands) (the operands that a node gets), output(rewrite, value) (what an output is),
-- drop(node) (whether one of a conversion's casts goes), inputs? (tensors)
-- @treturn Graph
-- @treturn table the values of the old graph's: map
function M.rebuild(g, o)
  call.check(C.amp_graph_refresh(S, g.handle), o.op)
  local handle = C.amp_graph_new(S)
  if handle == nil then require('amp.error').raise(o.op) end
  local self = setmetatable({old = g.handle, new = ffi.gc(handle, C.amp_graph_free), map = {}, nodes = {}, numbers = {}, kept = {}, ninput = 0, epoch = 0,
    op = o.op, tensor_of = o.tensor_of, run_of = o.run_of, plan = o.plan, output = o.output, drop = o.drop, inputs = o.inputs}, Rewrite)
  undisturbed(build, self)
  for _, kept in ipairs(self.kept) do -- running statistics and what else the run wrote
    local t, before = kept[1], kept[2]
    if version(t) ~= kept[3] and t ~= before then require('amp.autograd').no_grad(function() t:copy_(before) end) end
  end
  return wrapped(g, self.new), self
end

--- A copy of a graph as it is, of the same tensors: for passes that edit one.
-- @tparam Graph g
-- @treturn Graph
function M.copy(g)
  local op, old = 'graph.copy', g.handle
  call.check(C.amp_graph_refresh(S, old), op)
  local handle = C.amp_graph_new(S)
  if handle == nil then require('amp.error').raise(op) end
  local self = {old = old, new = ffi.gc(handle, C.amp_graph_free), nodes = {}, numbers = {}, op = op}
  local at = {[-1] = -1}
  for i = 0, C.amp_graph_value_count(old) - 1 do
    local v = C.amp_graph_value_at(old, i)
    if v.kind ~= C.AMP_G_RESULT then
      local info = info_of(v, v.dtype)
      info.tensor = v.tensor
      at[i] = call.check(C.amp_graph_add_value(S, self.new, info), op)
      self.numbers[i] = at[i]
      if v.kind == C.AMP_G_INPUT and v.free_dims ~= 0 then
        call.check(C.amp_graph_free_dims(S, self.new, C.amp_graph_inputs(self.new) - 1, v.free_dims), op)
      end
    end
  end
  for k = 0, C.amp_graph_node_count(old) - 1 do
    local node, copy, results = C.amp_graph_node_at(old, k), ffi.new 'amp_graph_node', ffi.new 'amp_graph_value[4]'
    ffi.copy(copy, node, ffi.sizeof(copy))
    local operands = ffi.new('int32_t[?]', math.max(node.nin, 1))
    for i = 0, node.nin - 1 do operands[i] = at[node['in'][i]] end
    self.places, copy['in'] = operands, operands
    for i = 0, node.nout - 1 do
      if node.out[i] >= 0 then
        local v = C.amp_graph_value_at(old, node.out[i])
        results[i] = info_of(v, v.dtype)
        results[i].kind, results[i].name = C.AMP_G_RESULT, nil
        copy.out[i] = at[node.out[i]] or -1
      end
    end
    self.nodes[k] = call.check(C.amp_graph_add_node(S, self.new, copy, results), op)
    local made = C.amp_graph_node_at(self.new, self.nodes[k])
    for i = 0, node.nout - 1 do
      if node.out[i] >= 0 then at[node.out[i]] = made.out[i] end
    end
  end
  local m = C.amp_graph_outputs(old)
  local outputs = ffi.new('int32_t[?]', math.max(m, 1))
  for i = 0, m - 1 do outputs[i] = at[C.amp_graph_output(old, i)] end
  copy_sizes(self)
  call.check(C.amp_graph_finish(S, self.new, outputs, m), op)
  return wrapped(g, self.new)
end

return M

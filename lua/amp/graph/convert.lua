--- Conversion to mixed precision, with MXNet's semantics: amp.convert_model, amp.convert_hybrid_block, amp.graph.convert.
--
-- A converted graph is a copy with casts as nodes (amp_cast, amp_multicast), put there by the lists that regions go by: run
-- plainly it gives what the original gives in a region, with float32 outputs. What the function has set itself stays: a node
-- in a region of its own has that region's casts (float32 inputs where it is switched off), nodes in place are left alone.
-- In a region the casts are nodes as ever; the region casts what still comes to it in another dtype.
-- @module amp.graph.convert
local bit = require 'bit'
local next_key = require('amp.core.keys').next
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local options = require 'amp.options'
local policies = require 'amp.precision.policy'
local program = require 'amp.levels.program'
local region = require 'amp.core.region'
local rewrite = require 'amp.graph.rewrite'
local schema = require 'amp.ops.schema'
local types = require 'amp.types'
local util = require 'amp.util'
local C, ref_t = core.C, core.ref_t
local band = bit.band
local F32 = rewrite.F32

local M = {}

-- -- Options --------------------------------------------------------------------------------------

local known = {'example_inputs', 'target_dtype', 'target_dtype_ops', 'fp32_ops', 'conditional_fp32_ops', 'excluded_names', 'cast_optional_params'}
M.options = known

local function text_list(op, name, list)
  if list == nil then return {} end
  if type(list) == 'string' then list = {list} end
  if type(list) ~= 'table' then err.throw(op, '%s must be a list of names, got %s', name, util.show(list)) end
  err.list(op, list, name)
  for i, v in ipairs(list) do
    if type(v) ~= 'string' then err.throw(op, '%s[%d] must be a name, got %s', name, i, util.show(v)) end
  end
  return list
end

local function low_dtype(op, given)
  if given == nil then return nil end
  if given == 'float8' then err.throw(op, "target_dtype must be 'float16' or 'bfloat16', got 'float8', which is of regions: amp.autocast") end
  local code = types.dtype(given, op)
  if not rewrite.is_half(code) then err.throw(op, "target_dtype must be 'float16' or 'bfloat16', got '%s'", types.dtype_name[code]) end
  return code
end

--- Options of a conversion, checked. Nothing is converted yet.
-- @tparam string op who asks
-- @tparam ?table given
function M.read_options(op, given)
  local o = options.read(op, given, known, {cast_optional_params = false})
  options.boolean(op, 'cast_optional_params', o.cast_optional_params)
  o.lists = program.read_lists(op, o, 'target_dtype_ops')
  o.low = low_dtype(op, o.target_dtype)
  o.excluded = text_list(op, 'excluded_names', o.excluded_names)
  return o
end

-- -- What is asked for an op ------------------------------------------------------------------------

local recurrent = {rnn = true, lstm = true, gru = true}

-- The ops that a row of more than one op goes along with.
local kin = {linear_act = 'linear', batch_norm_act = 'batch_norm', add_layer_norm = 'layer_norm'}

local function met(condition, node)
  local at = node.attrs + condition.slot
  for _, v in ipairs(condition.values) do
    if condition.real and tonumber(at.f) == v or not condition.real and tonumber(at.i) == v then return true end
  end
  return false
end

local as_class = {
  lower = 'lower', fp32 = 'fp32', promote = 'promote', banned = 'fp32',
  fp32_unless_dtype = function(row, node)
    for _, a in ipairs(row.args) do
      if a.name == 'dtype' and a.slot then return node.attrs[a.slot].i == core.NONE and 'fp32' or nil end
    end
    return 'fp32'
  end,
  special = function(row) return recurrent[row.name] and 'lower' or nil end,
}

local function of_class(class, row, node)
  local kind = as_class[class]
  if type(kind) == 'function' then return kind(row, node) end
  return kind
end

-- The list that has a class by default.
local function default_list(class, name)
  if class == 'lower' or class == 'special' and recurrent[name] then return 'target_dtype_ops' end
  if class == 'fp32' or class == 'fp32_unless_dtype' then return 'fp32_ops' end
end

-- 'lower', 'fp32', 'promote' or nil: as its inputs come.
local function wish(o, row, node)
  local id = schema.by_name[kin[row.name]] or row.id
  local item = o.lists.items[id]
  if item then
    if item.condition then return met(item.condition, node) and 'fp32' or nil end
    return of_class(policies.classes[item.class], row, node)
  end
  local class = policies.name(id)
  local now = program.current and program.current.lists.items[id]
  if now and now.condition then -- amp.init's, where none are given here
    if not o.lists.replaced.conditional_fp32_ops then return met(now.condition, node) and 'fp32' or nil end
    class = policies.classes[C.amp_op_get(id).policy]
  end
  local list = default_list(class, row.name)
  if list and o.lists.replaced[list] and not policies.is_chosen(id) then return nil end
  return of_class(class, row, node)
end

-- Which operands may be cast: of what keeps statistics its data alone.
local function data_only(row)
  for _, a in ipairs(row.args) do
    if a.name == 'running_mean' then return true end
  end
  return false
end

local function castable(row)
  if not data_only(row) then return function() return true end end
  local may, i = {}, 0
  for _, a in ipairs(row.args) do
    if a.kind == 'T' then
      i = i + 1
      may[i] = a.name == 'input' or a.name == 'residual'
    end
  end
  return function(place) return may[place] end
end

-- -- Excluded nodes ----------------------------------------------------------------------------------

-- Does a name mean a node: its own, or that of a module whose forward it is in?
local function covers(name, node) return node == name or node:sub(1, #name + 1) == name .. '.' end

-- named: they were found in another graph of the same module.
local function excluded_nodes(op, g, excluded, named)
  local out = {}
  if #excluded == 0 then return out end
  local list, count = {}, C.amp_graph_node_count(g.handle)
  for k = 0, count - 1 do list[k] = ffi.string(C.amp_graph_node_at(g.handle, k).name) end
  for _, name in ipairs(excluded) do
    local found = false
    for k = 0, count - 1 do
      if covers(name, list[k]) then out[k], found = true, true end
    end
    if not found and not named then
      local hints = {}
      for k = 0, count - 1 do hints[k + 1] = list[k] end
      local hint = util.hint(name, hints)
      if hint == '' then hint = (' (its nodes are %s%s)'):format(table.concat(hints, ', ', 1, math.min(count, 8)), count > 8 and ', ...' or '') end
      err.throw(op, "excluded_names: there is no node '%s' in the graph%s", name, count > 0 and hint or ', which has none')
    end
  end
  return out
end

-- -- The plan ------------------------------------------------------------------------------------------

local function has_double(operands)
  for _, v in ipairs(operands) do
    if v and not v.number and v.dtype == 0 then return true end
  end
  return false
end

local function to(self, row, operands, dtype, cast, only)
  local may = castable(row)
  return rewrite.each(operands, function(v, i)
    if not may(i) or only and not rewrite.is_half(v.dtype) then return v end
    return self:cast(v, dtype, cast)
  end)
end

-- The region that a node sets itself on the device of its operands: nil there is none, else whether it is on.
local function own_region(g, node)
  if node.regions == 0 then return nil end
  for i = 0, node.nin - 1 do
    local v = node['in'][i] >= 0 and C.amp_graph_value_at(g.handle, node['in'][i])
    if v and v.kind ~= C.AMP_G_NUMBER then
      if band(node.regions, bit.lshift(1, v.device)) == 0 then return nil end
      return node.autocast[v.device].enabled ~= 0
    end
  end
end

local function writes_in_place(g)
  for k = 0, C.amp_graph_node_count(g.handle) - 1 do
    if band(C.amp_graph_node_at(g.handle, k).flags, C.AMP_INPLACE + C.AMP_OUT) ~= 0 then return true end
  end
  return false
end

local function planner(g, o, excluded)
  local in_place = writes_in_place(g)
  return function(self, k, node, row, operands)
    local own = own_region(g, node)
    if own then return operands end -- its region casts
    local kind = node.op >= 0 and wish(o, row, node)
    if excluded[k] or own == false then kind = 'fp32' end
    -- what is written through a view is its base, so no cast comes between
    if not kind or in_place and (row.kind == 'V' or self:views(k, node, row, operands)) then return operands end
    if kind == 'lower' then
      if has_double(operands) then return operands end
      return to(self, row, operands, o.low, 'amp_cast')
    elseif kind == 'fp32' then return to(self, row, operands, F32, 'amp_cast', true) end
    local widest = rewrite.widest_of(operands)
    return widest and to(self, row, operands, widest, 'amp_multicast') or operands
  end
end

-- -- Conversion ------------------------------------------------------------------------------------------

local function tensors_of(g)
  local list = {}
  for i = 0, C.amp_graph_value_count(g.handle) - 1 do
    local v = C.amp_graph_value_at(g.handle, i)
    if v.tensor ~= nil and v.kind ~= C.AMP_G_NUMBER then list[#list + 1] = rewrite.held(v.tensor) end
  end
  return list
end

-- Parameters every use of which is low: id -> dtype's name.
local function lowable(g, map, low)
  local function is_low(value, depth)
    if value.direct or depth > 64 then return false end
    local used = false
    for dtype = 0, 3 do
      local here = value.used_as and value.used_as[dtype]
      if here and dtype ~= low then return false end
      used = used or here
    end
    for _, view in ipairs(value.views or {}) do
      if view.direct or view.used_as or view.views then
        if not is_low(view, depth + 1) then return false end
        used = true
      end
    end
    return used
  end
  local shared, list = {}, {}
  for _, t in ipairs(tensors_of(g)) do
    local key = tostring(t.ptr_.storage)
    shared[key] = (shared[key] or 0) + 1
  end
  for i = 0, C.amp_graph_value_count(g.handle) - 1 do
    local v, value = C.amp_graph_value_at(g.handle, i), map[i]
    if v.kind == C.AMP_G_PARAMETER and value.dtype == F32 and shared[tostring(v.tensor.storage)] == 1 and is_low(value, 0) then
      list[tonumber(v.tensor.id)] = types.dtype_name[low]
    end
  end
  return list
end

local function device_of(g)
  for i = 0, C.amp_graph_value_count(g.handle) - 1 do
    local v = C.amp_graph_value_at(g.handle, i)
    if v.kind ~= C.AMP_G_NUMBER then return types.device_string(v.device, v.device_index) end
  end
  return 'cpu'
end

local function default_low(g)
  local device = device_of(g)
  local code = require('amp.precision.autocast').base_dtype(device)
  if code and rewrite.is_half(code) then return code end
  return types.dtype_code[device == 'cpu' and 'bfloat16' or 'float16']
end

-- What gives a copy of each tensor, to be written to.
local function clones()
  local made = {}
  return function(t)
    local id = t:id()
    made[id] = made[id] or t:detach():clone()
    return made[id]
  end
end

local function same(_, value) return value end
local function to_float(self, value) return rewrite.is_half(value.dtype) and self:cast(value, F32, 'amp_cast') or value end

--- Convert a graph.
-- @tparam string op who asks
-- @tparam Graph g
-- @tparam table o of read_options
-- @tparam ?table inputs tensors to run it with
-- @tparam ?function(list of low) tensors what gives the tensor that the copy has for one
-- @treturn Graph
function M.apply(op, g, o, inputs, tensors)
  local excluded = excluded_nodes(op, g, o.excluded, o.named)
  o.low = o.low or default_low(g)
  local function drop(node) return tonumber(node.attrs[0].i) ~= o.low and rewrite.is_half(tonumber(node.attrs[0].i)) end
  local plan = planner(g, o, excluded)
  local all = tensors_of(g)
  local function run(low)
    local copy = tensors and tensors(low) or rewrite.copier(all, low)
    return rewrite.rebuild(g, {op = op, tensor_of = copy, run_of = tensors and clones(), plan = plan, output = to_float, drop = drop, inputs = inputs})
  end
  local converted, made = run {}
  local lowered = {}
  for key in pairs(g.lowered or {}) do lowered[key] = true end
  if o.cast_optional_params then
    local low = lowable(g, made.map, o.low)
    if next_key(low) then
      converted = run(low)
      for i = 0, C.amp_graph_value_count(g.handle) - 1 do
        local v = C.amp_graph_value_at(g.handle, i)
        if v.kind == C.AMP_G_PARAMETER and low[tonumber(v.tensor.id)] then lowered[ffi.string(v.name)] = true end
      end
    end
  end
  require('amp.graph.graph').lower(converted, lowered)
  return converted
end

local function has_casts(g)
  for k = 0, C.amp_graph_node_count(g.handle) - 1 do
    if rewrite.is_cast(C.amp_graph_node_at(g.handle, k)) then return true end
  end
  return false
end

--- The plain float32 graph of a converted one: without its casts, parameters that it stores low in float32 again. Other
-- tensors are the same ones. A graph without casts is given as it is.
-- @tparam Graph g
-- @treturn Graph
function M.strip(g)
  if not has_casts(g) and not (g.lowered and next_key(g.lowered)) then return g end
  region.here()
  local low_ids = require('amp.graph.graph').low_ids
  local function tensor_of(t, name, kind)
    local half = rewrite.is_half(tonumber(t.ptr_.dtype))
    if half and kind == C.AMP_G_PARAMETER and (g.lowered and g.lowered[name] or low_ids[t:id()]) then
      local wide = t:detach():float()
      wide.requires_grad = t.requires_grad
      return wide
    end
    return t
  end
  local function keep(_, _, _, _, operands) return operands end
  local plain = rewrite.rebuild(g, {op = 'graph.save', tensor_of = tensor_of, run_of = clones(), plan = keep, output = same, drop = function() return true end})
  plain.lowered = nil
  return plain
end

-- -- Public ------------------------------------------------------------------------------------------------

local function is_graph(v) return getmetatable(v) == require 'amp.graph.graph' end

local function callable(f)
  if type(f) == 'function' then return true end
  local mt = getmetatable(f)
  return type(f) == 'table' and type(mt) == 'table' and type(mt.__call) == 'function'
end

-- What is recorded would have the calls that a conversion makes.
local function check_state(op)
  region.here()
  if C.amp_graph_recording(core.S) ~= 0 then err.throw_code('state', op, 'a graph is recorded; convert before or after') end
end

-- Inputs that are given for a graph, which needs none: they are of its number and nesting.
local function check_inputs(op, g, inputs)
  local args = {n = 0}
  for k, v in pairs(inputs) do
    if type(k) ~= 'number' then err.throw(op, 'example_inputs must be a list of inputs, got the key %s', util.show(k)) end
    args[k], args.n = v, math.max(args.n, k)
  end
  require('amp.graph.structure').collect(op, g.plan, args, g.names)
end

local function converted(op, model, given, excess)
  check_state(op)
  options.none(op, excess)
  local graph = is_graph(model)
  if not graph and not callable(model) then
    err.throw(op, 'a graph, a module or a function is expected, got %s', util.show(model))
  end
  local o = M.read_options(op, given)
  local inputs = o.example_inputs
  if inputs ~= nil and ffi.istype(ref_t, inputs) then inputs = {inputs} end
  if inputs ~= nil and type(inputs) ~= 'table' then err.throw(op, 'example_inputs must be a list of inputs, got %s', util.show(inputs)) end
  if graph then
    if inputs then check_inputs(op, model, inputs) end
    return M.apply(op, model, o)
  end
  if inputs == nil then err.throw(op, 'a module is traced before it is converted: give what it is called with, example_inputs = {x}') end
  local g = require('amp.graph.trace').trace(model, inputs)
  return M.apply(op, g, o)
end

--- A copy of a graph, or of a module's, in mixed precision (MXNet's convert_model).
-- @tparam Graph|nn.Module model
-- @tparam ?table given example_inputs (for a module: a list), target_dtype (the device's), target_dtype_ops, fp32_ops,
-- conditional_fp32_ops, excluded_names, cast_optional_params (false)
-- @treturn Graph
-- @usage local g = amp.convert_model(net, {example_inputs = {x}}); print(g(x))
function M.convert_model(model, given, excess) return converted('convert_model', model, given, excess) end

--- The same, of a graph.
function M.convert(g, given, excess)
  if not is_graph(g) then err.throw('graph.convert', 'a graph is expected, got %s', util.show(g)) end
  return converted('graph.convert', g, given, excess)
end

return M

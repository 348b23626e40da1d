--- What a graph is apart from the numbers in it, as texts and lists that can be compared with another recording's.
-- @module amp.graph.signature
local ffi = require 'ffi'
local core = require 'amp.ffi'
local schema = require 'amp.ops.schema'
local C, S, ref_t = core.C, core.S, core.ref_t

local M = {}

local NONE = core.NONE

-- Slots of a row: {slot, name, kind}; of lists the count comes first.
local plans = {}
local function plan_of(op)
  local plan = plans[op]
  if plan then return plan end
  plan = {}
  for _, a in ipairs(schema.get(ffi.string(C.amp_op_get(op).name)).args) do
    if a.slot then plan[#plan + 1] = a end
  end
  plans[op] = plan
  return plan
end

-- A whole number, or NONE's text.
local function whole(slot)
  local v = tonumber(slot.i)
  return v ~= NONE and v or nil
end

-- Numbers of a node that may follow sizes: {slot, value, real, name}; and a text of all else in its attributes.
local function numbers_of(op, attrs)
  local list, fixed = {}, {}
  local function add(slot, v, real, name) list[#list + 1] = {slot = slot, value = v, real = real, name = name} end
  for _, a in ipairs(plan_of(op)) do
    local at, kind = a.slot, a.kind
    if a.optional and whole(attrs[at]) == nil then fixed[#fixed + 1] = a.name .. '-'
    elseif kind == 'i' then add(at, whole(attrs[at]), false, a.name)
    elseif kind == 'f' then add(at, tonumber(attrs[at].f), true, a.name)
    elseif kind == 'N' then
      for i = 0, a.count - 1 do
        local v = whole(attrs[at + i])
        if v then add(at + i, v, false, a.name) else fixed[#fixed + 1] = a.name .. '-' end
      end
    elseif kind == 'I' or kind == 'F' then
      local n = whole(attrs[at])
      fixed[#fixed + 1] = ('%s%s'):format(a.name, tostring(n))
      for i = 1, n or 0 do
        if kind == 'F' then add(at + i, tonumber(attrs[at + i].f), true, a.name)
        else add(at + i, whole(attrs[at + i]), false, a.name) end
      end
    elseif kind == 'D' then
      local n = whole(attrs[at])
      for i = 0, n or 0 do fixed[#fixed + 1] = ('%s'):format(tostring(whole(attrs[at + i]))) end
    else
      fixed[#fixed + 1] = tostring(whole(attrs[at]))
    end
  end
  return list, table.concat(fixed, ',')
end

local function region_text(n)
  local parts = {}
  for d = 0, 1 do
    if n.regions % (2 * (d + 1)) >= d + 1 then
      parts[#parts + 1] = ffi.string(n.autocast + d, ffi.sizeof(n.autocast[d]))
    end
  end
  return table.concat(parts, ';')
end

local function node_of(handle, k)
  local n = C.amp_graph_node_at(handle, k)
  local node = {name = ffi.string(n.name), numbers = {}}
  local places = {}
  for i = 0, n.nin - 1 do places[i + 1] = n['in'][i] end
  places[#places + 1] = 'to'
  for i = 0, n.nout - 1 do places[#places + 1] = n.out[i] end
  local fixed = ''
  if n.op >= 0 then node.numbers, fixed = numbers_of(n.op, n.attrs) end
  node.text = ('%d %d %s %d %s %s'):format(n.op, n.flags, table.concat(places, ' '), n.grad, region_text(n), fixed)
  return node
end

local function handle_of(v)
  local from, o = ffi.new('amp_tensor *[1]', v.tensor), ref_t()
  C.amp_retain(o, ffi.cast('amp_ref *', from))
  return o
end

-- Bytes of a constant.
local function bytes_of(v)
  local o = handle_of(v)
  local n = tonumber(o.ptr_.numel)
  local room = ffi.new('double[?]', math.max(n, 1))
  if C.amp_read(S, o, room, n) < 0 then return tostring(v.tensor) end
  return ffi.string(room, n * 8)
end

local function sizes_text(v)
  local list = {}
  for d = 0, v.ndim - 1 do list[d + 1] = tonumber(v.size[d]) end
  return table.concat(list, 'x')
end

local function value_of(handle, i)
  local v = C.amp_graph_value_at(handle, i)
  local value = {name = ffi.string(v.name), text = ('%d %d %d %d'):format(v.kind, v.dtype, v.ndim, v.device)}
  if v.kind == C.AMP_G_NUMBER then
    local room = ffi.new 'double[1]'
    C.amp_item(S, handle_of(v), room)
    value.number = room[0]
  elseif v.tensor ~= nil then
    value.tensor = tostring(v.tensor)
    value.constant = v.kind == C.AMP_G_CONSTANT
    value.sizes = sizes_text(v)
  end
  return value
end

--- The signature of a recorded graph.
-- @treturn table nodes = {{name, text, numbers = {{slot, value, real, name}}}}, values = {{name, text, number, tensor}}, outputs
function M.of(handle)
  local s = {nodes = {}, values = {}, outputs = {}, handle = handle}
  for k = 1, C.amp_graph_node_count(handle) do s.nodes[k] = node_of(handle, k - 1) end
  for i = 1, C.amp_graph_value_count(handle) do s.values[i] = value_of(handle, i - 1) end
  for i = 1, C.amp_graph_outputs(handle) do s.outputs[i] = C.amp_graph_output(handle, i - 1) end
  return s
end

local function same_constant(a, b, i)
  if a.sizes ~= b.sizes then return false end
  return bytes_of(C.amp_graph_value_at(a.handle, i - 1)) == bytes_of(C.amp_graph_value_at(b.handle, i - 1))
end

--- The first place where two graphs differ in more than numbers: node (its name, may be nil) and what is wrong, as text.
function M.difference(a, b)
  for k = 1, math.max(#a.nodes, #b.nodes) do
    local x, y = a.nodes[k], b.nodes[k]
    if not x then return a.nodes[#a.nodes] and a.nodes[#a.nodes].name, ("more ops follow: '%s'"):format(y.name) end
    if not y then return x.name, 'it is not run' end
    if x.text ~= y.text or #x.numbers ~= #y.numbers then
      return x.name, x.name == y.name and 'it has other operands or options' or ("'%s' runs in its place"):format(y.name)
    end
  end
  for i = 1, math.max(#a.values, #b.values) do
    local x, y = a.values[i], b.values[i]
    if not x or not y or x.text ~= y.text then return nil, ("value '%s' is another one"):format((x or y).name) end
    if x.tensor ~= y.tensor and not (x.constant and y.constant
      and same_constant({sizes = x.sizes, handle = a.handle}, {sizes = y.sizes, handle = b.handle}, i)) then
      return M.reader(a, i), ("the constant '%s' has other values or another size"):format(x.name)
    end
  end
  for i = 1, math.max(#a.outputs, #b.outputs) do
    if a.outputs[i] ~= b.outputs[i] then return nil, ('output %d is another one'):format(i) end
  end
end

--- Name of the first node that reads value i, nil: none.
function M.reader(s, i)
  for k = 1, #s.nodes do
    local n = C.amp_graph_node_at(s.handle, k - 1)
    for j = 0, n.nin - 1 do
      if n['in'][j] == i - 1 then return s.nodes[k].name end
    end
  end
end

--- Numbers of a graph in an order that equal graphs share: a list of {node (from 0, -1: a value's), slot, value, real, name,
-- at (the node's name)}.
function M.numbers(s)
  local list = {}
  for i, v in ipairs(s.values) do
    if v.number then
      list[#list + 1] = {node = -1, slot = i - 1, value = v.number, real = true, name = 'number', read = i}
    end
  end
  for k, node in ipairs(s.nodes) do
    for _, n in ipairs(node.numbers) do
      list[#list + 1] = {node = k - 1, slot = n.slot, value = n.value, real = n.real, name = n.name, at = node.name}
    end
  end
  return list
end

return M

--- Graphs in files: g:save and amp.load_graph.
--
-- A file is a safetensors file: parameters, buffers and constants as tensors, so that any reader of that format finds the weights; the
-- graph as JSON in its metadata, under `amp.graph` (src/graph/load.c says what stands there). It is read by C, for Lua as for C
-- programs; what only Lua needs, how tensors nest in arguments and results, is taken from the text here.
-- @module amp.graph.file
local bit = require 'bit'
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local json = require 'amp.io.json'
local options = require 'amp.options'
local schema = require 'amp.ops.schema'
local types = require 'amp.types'
local util = require 'amp.util'
local C, ref_t = core.C, core.ref_t

local M = {}

local VERSION = 1
local CASTS = {amp_cast = true, amp_multicast = true} -- what a conversion puts in
local NONE = core.NONE -- in an int64 slot: an optional attribute that is absent
local EXACT = 2 ^ 53

-- -- Numbers -----------------------------------------------------------------------------------

-- A double as JSON holds it, or as a text where JSON has no such number.
local function real(v)
  if v ~= v then return 'nan' end
  if v == math.huge then return 'inf' end
  if v == -math.huge then return '-inf' end
  if v == 0 and 1 / v < 0 then return '-0' end
  return v
end

-- An int64 cdata; beyond what a double holds, its digits as a text.
local function integer(v)
  local number = tonumber(v)
  if math.abs(number) < EXACT then return number end
  return (tostring(v):gsub('[uUlL]+$', ''))
end

local function list(values) return setmetatable(values, json.array) end

-- -- Attributes --------------------------------------------------------------------------------

local function one(a, slot)
  local kind = a.kind
  if kind == 'f' or kind == 'F' then return real(tonumber(slot.f)) end
  if kind == 'b' then return slot.i ~= 0 end
  if kind == 't' then return types.dtype_name[tonumber(slot.i)] end
  if kind == 'e' then return a.word_list[tonumber(slot.i) + 1] end
  if kind == 'v' then return types.device_string(math.floor(tonumber(slot.i) / 256), tonumber(slot.i) % 256) end
  return integer(slot.i)
end

local function absent(slot) return slot.i == NONE end

-- What an attribute of a node is in the file, nil where it is absent.
local function attribute(a, slots)
  local at = slots + a.slot
  if a.kind == 'N' then
    local values, given = {}, false
    for i = 1, a.count do
      local none = a.optional and absent(at[i - 1])
      given = given or not none
      values[i] = none and json.null or integer(at[i - 1].i)
    end
    return given and list(values) or nil
  end
  if a.kind == 'I' or a.kind == 'D' or a.kind == 'F' then
    if absent(at[0]) then return nil end
    local values = {}
    for i = 1, tonumber(at[0].i) do values[i] = one(a, at[i]) end
    return list(values)
  end
  if a.optional and absent(at[0]) then return nil end
  return one(a, at[0])
end

local function attributes(row, node)
  local out
  for _, a in ipairs(row.args) do
    local v = a.slot and attribute(a, node.attrs)
    if v ~= nil and a.slot then
      out = out or {}
      out[a.name] = v
    end
  end
  return out
end

-- -- Values ------------------------------------------------------------------------------------

local function sizes_of(v)
  local sizes = {}
  for d = 0, v.ndim - 1 do sizes[d + 1] = integer(v.size[d]) end
  return list(sizes)
end

local function described(v)
  return {name = ffi.string(v.name), dtype = types.dtype_name[v.dtype], shape = sizes_of(v), device = types.device_string(v.device, v.device_index)}
end

local function handle_of(tensor)
  local from, o = ffi.new('amp_tensor *[1]', tensor), ref_t()
  C.amp_retain(o, ffi.cast('amp_ref *', from))
  return o
end

-- Dimensions from the outermost to the innermost, nil where they lie as a file has them.
local function order_of(t)
  local flags = t.ptr_.flags
  if bit.band(flags, C.AMP_T_CONTIGUOUS) ~= 0 or bit.band(flags, C.AMP_T_DENSE) == 0 then return nil end
  local stride, size, order = t:stride(), t:size(), {}
  for d = 1, t:dim() do order[d] = d end
  table.sort(order, function(a, b)
    if stride[a] ~= stride[b] then return stride[a] > stride[b] end
    if (size[a] == 1) ~= (size[b] == 1) then return size[b] == 1 end
    return a < b
  end)
  return list(order)
end

local KINDS = {[tonumber(C.AMP_G_INPUT)] = 'input', [tonumber(C.AMP_G_PARAMETER)] = 'parameter', [tonumber(C.AMP_G_BUFFER)] = 'buffer',
  [tonumber(C.AMP_G_CONSTANT)] = 'constant', [tonumber(C.AMP_G_NUMBER)] = 'number'}

local Writer = {}
Writer.__index = Writer

-- The name in the file of a value's tensor: that of the first value that has it.
function Writer:keep(name, t, changes)
  local id = t:id()
  if not self.names[id] then
    self.names[id] = name
    self.tensors[name] = t:detach()
    self.held[#self.held + 1] = {name = name, t = t, changes = changes}
  end
  return self.names[id]
end

function Writer:value(v, changes)
  local kind = KINDS[v.kind]
  if kind == 'number' then
    return {name = ffi.string(v.name), kind = kind, value = real(handle_of(v.tensor):item())}
  end
  local out = described(v)
  out.kind = kind
  if kind == 'input' then
    if v.free_dims ~= 0 then
      out.free = {}
      for d = 1, v.ndim do
        if bit.band(bit.rshift(v.free_dims, d - 1), 1) == 1 then out.free[#out.free + 1] = d end
      end
    end
    return out
  end
  local t = handle_of(v.tensor)
  local flags = tonumber(C.amp_tensor_flags(t))
  -- as it is now, not as it was when the graph was made
  out.dtype, out.shape, out.device = t.dtype, list {unpack(t:size())}, types.device_string(t.ptr_.device, t.ptr_.device_index)
  out.tensor = self:keep(out.name, t, changes or kind ~= 'constant')
  if bit.band(flags, C.AMP_T_REQUIRES_GRAD) ~= 0 then out.requires_grad = true end
  if bit.band(flags, C.AMP_T_WEIGHT) ~= 0 then out.weight = true end
  if bit.band(flags, C.AMP_T_MASK) ~= 0 then out.mask = true end
  out.order = order_of(t)
  if self.lowered[out.name] then out.lowered = true end
  return out
end

-- -- Nodes -------------------------------------------------------------------------------------

function Writer:name_of(i) return ffi.string(C.amp_graph_value_at(self.handle, i).name) end

local function region(a)
  local made = {enabled = a.enabled ~= 0, dtype = types.dtype_name[a.dtype], cache = bit.band(a.cache, 1) ~= 0, verbose = bit.band(a.verbose, 1) ~= 0}
  local recipe = bit.band(bit.rshift(a.cache, 2), 3)
  if recipe > 0 then -- of 8 bits, whose base the dtype is
    made.recipe, made.history = recipe, bit.rshift(a.verbose, 1) + 128 * bit.rshift(a.cache, 4)
  end
  return made
end

function Writer:node(n)
  local row = n.op >= 0 and schema.get(ffi.string(C.amp_op_get(n.op).name)) or {name = 'detach', args = {}}
  local inplace, out = bit.band(n.flags, C.AMP_INPLACE) ~= 0, bit.band(n.flags, C.AMP_OUT) ~= 0
  local inputs, outputs = {}, {}
  for i = 0, n.nin - 1 do inputs[i + 1] = n['in'][i] >= 0 and self:name_of(n['in'][i]) or json.null end
  for i = 0, n.nout - 1 do
    local v = n.out[i]
    outputs[i + 1] = v < 0 and json.null or i == 0 and (inplace or out) and self:name_of(v) or described(C.amp_graph_value_at(self.handle, v))
  end
  local made = {name = ffi.string(n.name), op = row.name, inputs = list(inputs), outputs = list(outputs), attrs = attributes(row, n)}
  made.inplace, made.out = inplace or nil, out or nil
  if n.grad >= 0 then made.grad = n.grad == 1 end
  if n.regions ~= 0 then
    made.regions = {}
    for d, device in pairs {[0] = 'cpu', 'cuda'} do
      if bit.band(bit.rshift(n.regions, d), 1) == 1 then made.regions[device] = region(n.autocast[d]) end
    end
  end
  return made
end

-- The attribute that a slot belongs to, and which of its values it is.
local function place(row, slot)
  for _, a in ipairs(row.args) do
    if a.slot then
      if a.kind == 'N' and slot >= a.slot and slot < a.slot + a.count then return a.name, slot - a.slot + 1 end
      if a.most and slot > a.slot and slot <= a.slot + a.most then return a.name, slot - a.slot end
      if slot == a.slot then return a.name end
    end
  end
end

function Writer:size(s, free)
  local powers = {}
  for i = 1, free do powers[i] = s.power[i - 1] end
  local out = {numerator = real(s.numerator), denominator = real(s.denominator), more = real(s.more), powers = list(powers)}
  if s.node == -2 then out.free = s.slot + 1
  elseif s.node == -1 then out.number = self:name_of(s.slot)
  else
    local node = C.amp_graph_node_at(self.handle, s.node)
    out.node = ffi.string(node.name)
    out.attr, out.at = place(schema.get(ffi.string(C.amp_op_get(node.op).name)), s.slot)
  end
  return out
end

-- -- Nesting -----------------------------------------------------------------------------------

local function plain(v) return type(v) == 'number' and {number = real(v)} or v end

local function write_plan(plan)
  if plan.tensor then return {tensor = plan.tensor} end
  if plan.none then return {none = true} end
  if plan.list then
    local inner = {}
    for i = 1, plan.n do inner[i] = write_plan(plan.list[i]) end
    return {list = list(inner)}
  end
  if plan.map then
    local pairs_ = {}
    for i, k in ipairs(plan.keys) do pairs_[i] = list {plain(k), write_plan(plan.map[k])} end
    return {map = list(pairs_)}
  end
  return {value = plain(plan.value)}
end

local function broken(what) error({damaged = what}, 0) end

local function read_plain(v)
  if type(v) == 'string' or type(v) == 'boolean' then return v end
  local number = type(v) == 'table' and v ~= json.null and v.number
  if type(number) == 'number' then return number end
  local known = ({nan = 0 / 0, inf = math.huge, ['-inf'] = -math.huge, ['-0'] = -0.0})[number]
  if known == nil then broken 'a plain value is of no kind that a graph has' end
  return known
end

local function is_list(v) return type(v) == 'table' and getmetatable(v) == json.array end

local function read_plan(v, seen)
  if type(v) ~= 'table' or v == json.null or is_list(v) then broken 'the nesting of its arguments or results is damaged' end
  if v.tensor ~= nil then
    local i = v.tensor
    if type(i) ~= 'number' or i % 1 ~= 0 or i < 1 or i > seen.most or seen[i] then
      broken 'its arguments or results name a tensor twice, or one that is not there'
    end
    seen[i] = true
    seen.count = seen.count + 1
    return {tensor = i}
  elseif v.none == true then return {none = true}
  elseif is_list(v.list) then
    local plan = {list = {}, n = #v.list}
    for i, inner in ipairs(v.list) do plan.list[i] = read_plan(inner, seen) end
    return plan
  elseif is_list(v.map) then
    local plan = {map = {}, keys = {}}
    for i, pair in ipairs(v.map) do
      if not is_list(pair) or #pair ~= 2 then broken 'the nesting of its arguments or results is damaged' end
      local key = read_plain(pair[1])
      if key ~= key or type(key) == 'boolean' or plan.map[key] then broken 'a table of its arguments or results has an impossible key' end
      plan.keys[i], plan.map[key] = key, read_plan(pair[2], seen)
    end
    return plan
  elseif v.value ~= nil then return {value = read_plain(v.value)} end
  broken 'the nesting of its arguments or results is damaged'
end

-- The plan of n tensors; without one in the file, as many arguments.
local function plan_of(v, n)
  if v == nil then
    local plan = {list = {}, n = n}
    for i = 1, n do plan.list[i] = {tensor = i} end
    return plan
  end
  local seen = {most = n, count = 0}
  local plan = read_plan(v, seen)
  if not plan.list or seen.count ~= n then broken 'its arguments or results are not as many as its inputs or outputs' end
  return plan
end

local function texts(v, most)
  local out = {}
  if v == nil then return out end
  if not is_list(v) or #v > most then broken 'its names are no list of texts' end
  for i, name in ipairs(v) do
    if name ~= json.null and type(name) ~= 'string' then broken 'its names are no list of texts' end
    out[i] = name ~= json.null and name or nil
  end
  return out
end

local function write_texts(names, n)
  local out = {}
  for i = 1, n do out[i] = names and names[i] or json.null end
  return list(out)
end

-- -- Memory that tensors share ------------------------------------------------------------------

-- Bytes of its storage that a tensor's elements lie in: first, and the one behind the last.
local function range_of(t)
  local p = t.ptr_
  local last = tonumber(p.offset)
  for d = 0, p.ndim - 1 do last = last + math.max(tonumber(p.size[d]) - 1, 0) * tonumber(p.stride[d]) end
  local width = C.amp_dtype_size(p.dtype)
  return tonumber(p.offset) * width, (last + 1) * width
end

-- A file holds tensors apart. Where one is changed and another one lies in the same memory, the loaded graph would not be this one.
local function check_apart(op, w)
  local of = {}
  for _, held in ipairs(w.held) do
    local key = tostring(ffi.cast('void *', held.t.ptr_.storage))
    held.first, held.last = range_of(held.t)
    of[key] = of[key] or {}
    for _, other in ipairs(of[key]) do
      if held.t:numel() > 0 and other.t:numel() > 0 and held.first < other.last and other.first < held.last and (held.changes or other.changes) then
        err.throw(op, "'%s' and '%s' lie in the same memory, and what changes one would not change the other in the file; "
          .. 'make one from the other inside the function, or clone() it before the graph is traced', other.name, held.name)
      end
    end
    table.insert(of[key], held)
  end
end

-- Constants that nodes write.
local function written_values(handle)
  local set = {}
  for k = 0, C.amp_graph_node_count(handle) - 1 do
    local n = C.amp_graph_node_at(handle, k)
    if n.flags ~= 0 and n.nout > 0 and n.out[0] >= 0 then set[n.out[0]] = true end
  end
  return set
end

-- -- Saving ------------------------------------------------------------------------------------

-- The graph as a table for JSON, and its tensors by name.
local function written(op, g)
  local handle = g.handle
  call.check(C.amp_graph_refresh(core.S, handle), op)
  local w = setmetatable({handle = handle, names = {}, tensors = {}, held = {}, lowered = g.lowered or {}}, Writer)
  local changed = written_values(handle)
  local values, nodes, sizes, outputs, free = {}, {}, {}, {}, 0
  for i = 0, C.amp_graph_value_count(handle) - 1 do
    local v = C.amp_graph_value_at(handle, i)
    if KINDS[v.kind] then
      values[#values + 1] = w:value(v, changed[i])
      free = free + #(values[#values].free or {})
    end
  end
  check_apart(op, w)
  for k = 0, C.amp_graph_node_count(handle) - 1 do nodes[k + 1] = w:node(C.amp_graph_node_at(handle, k)) end
  for k = 0, C.amp_graph_size_count(handle) - 1 do sizes[k + 1] = w:size(C.amp_graph_size_at(handle, k), free) end
  for i = 0, C.amp_graph_outputs(handle) - 1 do outputs[i + 1] = w:name_of(C.amp_graph_output(handle, i)) end
  local made = {version = VERSION, amp = ffi.string(C.amp_version()), values = list(values), nodes = list(nodes), sizes = list(sizes),
    outputs = list(outputs), arguments = write_plan(g.plan), results = write_plan(g.results), training = g.training and true or false,
    names = write_texts(g.names, g.plan.n), places = write_texts(g.places, C.amp_graph_inputs(handle)), region = g.again and g.again.state or nil}
  return made, w.tensors
end

--- The plain graph of a converted one: without its casts, with parameters as wide as they were. Itself where it has none.
function M.strip_casts(g)
  local converted = g.lowered ~= nil
  for k = 0, C.amp_graph_node_count(g.handle) - 1 do
    local op = C.amp_graph_node_at(g.handle, k).op
    converted = converted or op >= 0 and CASTS[ffi.string(C.amp_op_get(op).name)]
  end
  return converted and require('amp.graph.convert').strip(g) or g
end

--- Write a graph to exactly this path; the file appears whole or not at all.
-- @tparam Graph g
-- @tparam string path
-- @tparam ?table given remove_amp_cast (false): without the casts that a conversion put in
-- @usage g:save 'net.safetensors'
function M.save(g, path, given)
  local op = 'graph.save'
  if type(path) ~= 'string' then err.throw(op, 'a path expected, got %s', util.show(path)) end
  local strip = options.read(op, given, {'remove_amp_cast'}, {remove_amp_cast = false}).remove_amp_cast
  options.boolean(op, "option 'remove_amp_cast'", strip)
  if strip then g = M.strip_casts(g) end
  local made, tensors = written(op, g)
  local fine, text = pcall(json.encode, made)
  if not fine then err.throw(op, "cannot write '%s': %s", path, tostring(text)) end
  local sum = ('%08x'):format(C.amp_crc32(0, text, #text))
  local ok, e = pcall(require('amp.io.safetensors').save, path, tensors, {format = 'amp', ['amp.graph'] = text, ['amp.graph.crc32'] = sum})
  if not ok then
    if err.is(e) then err.throw_code(e.code, op, '%s', e.message) end
    error(e, 0)
  end
end

-- -- Loading -----------------------------------------------------------------------------------

local function read_rest(g, handle)
  local text = ffi.string(C.amp_graph_text(handle))
  local rest, why = json.decode(text)
  if not rest then broken(why) end
  local n, m = C.amp_graph_inputs(handle), C.amp_graph_outputs(handle)
  g.inputs, g.outputs = plan_of(rest.arguments, n), plan_of(rest.results, m)
  g.names, g.places = texts(rest.names, g.inputs.n), texts(rest.places, n)
  for i = 1, n do g.places[i] = g.places[i] or ffi.string(C.amp_graph_value_at(handle, C.amp_graph_input(handle, i - 1)).name) end
  g.training = rest.training == true
  if rest.region ~= nil then g.again = require('amp.graph.again').lost(rest.region) end -- C has checked both
  for _, node in ipairs(rest.nodes) do -- C has checked them
    if CASTS[node.op] then g.lowered = {} end
  end
  for _, v in ipairs(rest.values) do
    if v.lowered then
      g.lowered = g.lowered or {}
      g.lowered[v.name] = true
    end
  end
  return g
end

-- The graph of C's reader. Of a file of another format the error says which one it is, and what reads it.
local function read_handle(op, path, device)
  local ok, handle = pcall(call.object, op, C.amp_graph_load, path, device)
  if ok then return handle end
  local f = err.is(handle) and require('amp.io.file').open(path)
  local hint = ''
  if f then
    hint = require('amp.io.kind').hint(f, 'safetensors')
    f:close()
  end
  if hint == '' then error(handle, 0) end
  err.throw_code(handle.code, op, '%s%s', handle.message, hint)
end

--- A graph from a file that g:save wrote. It needs nothing of the Lua that made it.
-- @tparam string path
-- @tparam ?table given map_location: the device that it goes to ('cpu')
-- @treturn Graph
-- @usage local g = amp.load_graph('net.safetensors', {map_location = 'cuda'}); print(g(x))
function M.load(path, given)
  local op = 'load_graph'
  if type(path) ~= 'string' then err.throw(op, 'a path expected, got %s', util.show(path)) end
  if path:find('\0', 1, true) then err.throw(op, "cannot read '%s': a path has no byte 0", (path:gsub('%z.*', ''))) end
  local where = options.read(op, given, {'map_location'}, {map_location = 'cpu'}).map_location
  local device = types.device(where, op)
  local handle = ffi.gc(read_handle(op, path, device), C.amp_graph_free)
  local ok, made = pcall(read_rest, {handle = handle}, handle)
  if not ok then
    if type(made) == 'table' and made.damaged then err.throw(op, "'%s': %s", path, made.damaged) end
    error(made, 0)
  end
  local Graph = require 'amp.graph.graph'
  local g = Graph.new(made)
  Graph.lower(g, made.lowered)
  return g
end

return M

--- Graphs as ONNX models: g:export_onnx. (Models are read by amp.io.onnx.load.)
--
-- Each node of the graph becomes nodes of the standard domain, by a function of its op (onnx/elementwise.lua, shape.lua, index.lua,
-- layers.lua, attention.lua, recurrent.lua, compose.lua). Ops in place write a new value under a new name; where another name of the same memory
-- would see the change, the export is refused. The model takes and gives the graph's numbers: indices from 1.
-- @module amp.graph.onnx
local bit = require 'bit'
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local file = require 'amp.io.file'
local Node = require 'amp.graph.onnx.node'
local options = require 'amp.options'
local proto = require 'amp.io.onnx.proto'
local schema = require 'amp.ops.schema'
local util = require 'amp.util'
local wire = require 'amp.io.onnx.wire'
local Writer = require 'amp.graph.onnx.writer'
local C, S, ref_t = core.C, core.S, core.ref_t

local M = {}

local OP = Writer.OP
local FIRST, LAST, USUAL = 14, 17, 17

local handlers = {}
for _, name in ipairs {'elementwise', 'shape', 'index', 'layers', 'attention', 'recurrent', 'compose'} do
  for op, f in pairs(require('amp.graph.onnx.' .. name)) do
    if schema.by_name[op] or op == 'detach' then handlers[op] = f end
  end
end
M.handlers = handlers

-- -- Values -------------------------------------------------------------------------------------------------

local function handle_of(tensor)
  local from, o = ffi.new('amp_tensor *[1]', tensor), ref_t()
  C.amp_retain(o, ffi.cast('amp_ref *', from))
  return o
end

local KINDS = {[tonumber(C.AMP_G_INPUT)] = 'input', [tonumber(C.AMP_G_PARAMETER)] = 'parameter', [tonumber(C.AMP_G_BUFFER)] = 'buffer',
  [tonumber(C.AMP_G_CONSTANT)] = 'constant', [tonumber(C.AMP_G_NUMBER)] = 'number', [tonumber(C.AMP_G_RESULT)] = 'result'}

local function read_values(g)
  local list = {}
  for i = 0, C.amp_graph_value_count(g.handle) - 1 do
    local v = Writer.info(g.handle, i)
    v.kind = KINDS[tonumber(v.kind)]
    if v.kind == 'number' then v.number = handle_of(v.tensor):item() end
    list[i] = v
  end
  return list
end

-- A small constant of whole numbers: {list, shape}.
local function constant(v)
  if v.kind ~= 'constant' then return nil end
  local t = handle_of(v.tensor)
  if t:numel() > 4096 or t:numel() == 0 or t:is_floating_point() or t.dtype == 'bool' then return nil end
  local list = t:reshape(-1):to('int64'):tolist()
  return {list = list, shape = {unpack(t:size())}}
end

-- -- Free sizes ---------------------------------------------------------------------------------------------

-- Free sizes in the library's order, and the terms of what follows them: by node and slot, by value.
local function read_sizes(g, values)
  local free, by_node, ties = {}, {}, {}
  for i = 0, C.amp_graph_inputs(g.handle) - 1 do
    local v = C.amp_graph_value_at(g.handle, C.amp_graph_input(g.handle, i))
    for d = 1, v.ndim do
      if bit.band(bit.rshift(v.free_dims, d - 1), 1) == 1 then
        free[#free + 1] = {name = ffi.string(v.name), dim = d, input = i, base = tonumber(v.size[d - 1])}
      end
    end
  end
  for k = 0, C.amp_graph_size_count(g.handle) - 1 do
    local s = C.amp_graph_size_at(g.handle, k)
    local term = {numerator = s.numerator, denominator = s.denominator, more = s.more, power = {}}
    for i = 0, #free - 1 do
      if s.power[i] ~= 0 then term.power[i] = s.power[i] end
    end
    local list
    if s.node == -2 then
      ties[s.slot + 1] = ties[s.slot + 1] or {}
      list = ties[s.slot + 1]
    elseif s.node == -1 then
      values[s.slot].terms = values[s.slot].terms or {}
      list = values[s.slot].terms
    else
      by_node[s.node] = by_node[s.node] or {}
      by_node[s.node][s.slot] = by_node[s.node][s.slot] or {}
      list = by_node[s.node][s.slot]
    end
    list[#list + 1] = term
  end
  for k, f in ipairs(free) do -- the free size that it must equal, or itself
    f.root = k
    local t = ties[k]
    if t then
      local root, count = nil, 0
      for i, p in pairs(t[1].power) do
        root, count = i + 1, count + (p == 1 and 1 or 2)
      end
      if #t > 1 or count ~= 1 or t[1].numerator ~= t[1].denominator or t[1].more ~= 0 then
        err.throw_code('unsupported', OP, "dimension %d of '%s' must be an expression of another size, which ONNX can't say", f.dim, f.name)
      end
      f.root = root
    end
    f.param = ('%s_dim%d'):format(free[f.root].name, free[f.root].dim)
  end
  return free, by_node
end

local function copy_node(h, n, map)
  local node, results = ffi.new 'amp_graph_node', ffi.new 'amp_graph_value[4]'
  ffi.copy(node, n, ffi.sizeof 'amp_graph_node')
  local operands = ffi.new('int32_t[?]', math.max(n.nin, 1))
  for i = 0, n.nin - 1 do operands[i] = n['in'][i] >= 0 and map[n['in'][i]] or -1 end
  node['in'] = operands
  return node, results, operands, h
end

-- A copy of the graph whose outputs are all its results: (handle, list of their values).
local function everything(g, values)
  local h = ffi.gc(C.amp_graph_new(S), C.amp_graph_free)
  local map, outputs = {}, {}
  local function check(rc)
    if rc < 0 then err.raise(OP) end
    return rc
  end
  for i = 0, C.amp_graph_value_count(g.handle) - 1 do
    if values[i].kind ~= 'result' then map[i] = check(C.amp_graph_add_value(S, h, C.amp_graph_value_at(g.handle, i))) end
  end
  for k = 0, C.amp_graph_node_count(g.handle) - 1 do
    local n = C.amp_graph_node_at(g.handle, k)
    local node, results, anchor = copy_node(h, n, map)
    for i = 0, n.nout - 1 do
      if n.out[i] >= 0 then
        results[i] = C.amp_graph_value_at(g.handle, n.out[i])[0]
        node.out[i] = map[n.out[i]] or -1
      end
    end
    local made = C.amp_graph_node_at(h, check(C.amp_graph_add_node(S, h, node, results)))
    for i = 0, n.nout - 1 do
      if n.out[i] >= 0 and not map[n.out[i]] then
        map[n.out[i]] = made.out[i]
        outputs[#outputs + 1] = n.out[i]
      end
    end
    assert(anchor)
  end
  for i = 0, C.amp_graph_inputs(g.handle) - 1 do
    check(C.amp_graph_free_dims(S, h, i, C.amp_graph_value_at(g.handle, C.amp_graph_input(g.handle, i)).free_dims))
  end
  for k = 0, C.amp_graph_size_count(g.handle) - 1 do
    local s = ffi.new('amp_graph_size', C.amp_graph_size_at(g.handle, k)[0])
    if s.node == -1 then s.slot = map[s.slot] end
    check(C.amp_graph_add_size(S, h, s))
  end
  local list = ffi.new('int32_t[?]', math.max(#outputs, 1))
  for i, v in ipairs(outputs) do list[i - 1] = map[v] end
  check(C.amp_graph_finish(S, h, list, #outputs))
  return h, outputs
end

local slots_type = ffi.typeof 'amp_tensor *[?]'

-- Shapes of all results for inputs of these sizes (by free size): value -> shape; nil: the graph fails there.
local function shapes_at(g, h, outputs, free, sizes)
  local ops = require 'amp.ops'
  local n, keep = C.amp_graph_inputs(g.handle), {}
  local given = slots_type(math.max(n, 1))
  for i = 0, n - 1 do
    local v = C.amp_graph_value_at(g.handle, C.amp_graph_input(g.handle, i))
    local shape = {}
    for d = 1, v.ndim do shape[d] = tonumber(v.size[d - 1]) end
    for k, f in ipairs(free) do
      if f.input == i then shape[f.dim] = sizes[k] end
    end
    local t = ops.get 'full'(shape, 1, require('amp.types').dtype_name[v.dtype], require('amp.types').device_string(v.device, v.device_index))
    keep[i + 1], given[i] = t, t.ptr_
  end
  local refs, made = ffi.typeof 'amp_ref *', slots_type(math.max(#outputs, 1))
  local rc
  require('amp').no_grad(function() rc = C.amp_graph_run(h, ffi.cast(refs, given), n, ffi.cast(refs, made), #outputs) end)
  if rc < 0 then return nil, #keep == n and ffi.string(S.err.message) end -- (inputs live until here)
  local shapes = {}
  for i, v in ipairs(outputs) do
    local o = ref_t()
    o.ptr_ = made[i - 1]
    shapes[v] = {unpack(o:size())}
  end
  return shapes
end

local function changed_sizes(free, root, size)
  local sizes = {}
  for k, f in ipairs(free) do sizes[k] = f.root == root and size or free[f.root].base end
  return sizes
end

-- Dimensions of results that are not the same in every run: value.free[d] is true, or the terms of a free size.
local function find_free(g, values, free)
  if #free == 0 then return end
  local h, outputs = everything(g, values)
  local samples = {}
  for root, f in ipairs(free) do
    if f.root == root then
      local done, why = 0, nil
      for _, size in ipairs {f.base + 1, f.base * 2, f.base * 3, f.base + 2, f.base * 4} do
        if done < 2 then
          local shapes
          shapes, why = shapes_at(g, h, outputs, free, changed_sizes(free, root, size))
          if shapes then
            samples[#samples + 1] = {shapes = shapes, sizes = changed_sizes(free, root, size)}
            done = done + 1
          end
        end
      end
      if done < 2 then
        err.throw_code('unsupported', OP, "dimension %d of input '%s' is free, and the graph fails for other sizes: %s", f.dim, f.name, tostring(why))
      end
    end
  end
  for _, i in ipairs(outputs) do
    local v = values[i]
    for d, base in ipairs(v.shape) do
      local varies, same = false, {}
      for k, f in ipairs(free) do same[k] = f.root == k and f.base == base end
      for _, s in ipairs(samples) do
        varies = varies or s.shapes[i][d] ~= base
        for k in ipairs(free) do same[k] = same[k] and s.shapes[i][d] == s.sizes[k] end
      end
      if varies then
        v.free = v.free or {}
        v.free[d] = true
        for k, f in ipairs(free) do
          if same[k] then
            v.free[d] = {{numerator = 1, denominator = 1, more = 0, power = {[k - 1] = 1}}}
            v.params = v.params or {}
            v.params[d] = f.param
          end
        end
      end
    end
  end
end

local function mark_inputs(values, free, g)
  for k, f in ipairs(free) do
    local v = values[C.amp_graph_input(g.handle, f.input)]
    v.free, v.params = v.free or {}, v.params or {}
    v.free[f.dim] = {{numerator = 1, denominator = 1, more = 0, power = {[f.root - 1] = 1}}}
    v.params[f.dim] = f.param
    assert(k)
  end
end

-- -- Memory in common ---------------------------------------------------------------------------------------

local LAYOUT = {}
for _, name in ipairs {'reshape', 'flatten', 'contiguous', 't', 'movedim', 'positive', 'dropout1d', 'dropout2d', 'dropout3d', 'alpha_dropout',
  'feature_alpha_dropout', 'hstack', 'vstack', 'dstack', 'detach', 'cast', 'amp_cast', 'amp_multicast', 'to_device', 'cat', 'chain_matmul',
  'interpolate', 'repeat', 'diag', 'roll', 'rot90'} do LAYOUT[name] = true end

local Memory = {}
Memory.__index = Memory

function Memory:root(v)
  while self.up[v] do v = self.up[v] end
  return v
end

function Memory:join(a, b)
  a, b = self:root(a), self:root(b)
  if a ~= b then self.up[b] = a end
end

-- When each value is read last; outputs and what is not a result: never done.
local function read_uses(g, values)
  local last, count = {}, C.amp_graph_node_count(g.handle)
  for k = 0, count - 1 do
    local n = C.amp_graph_node_at(g.handle, k)
    for i = 0, n.nin - 1 do
      if n['in'][i] >= 0 then last[n['in'][i]] = k end
    end
  end
  for i = 0, C.amp_graph_outputs(g.handle) - 1 do last[C.amp_graph_output(g.handle, i)] = math.huge end
  return last, values
end

-- A node that writes a value: nothing else may see the change.
local function check_write(e, memory, values, last, target, k)
  local v = values[target]
  if v.kind ~= 'result' then
    e:fail(": it writes to %s '%s', and a model changes none of what it is given; work on a clone of it", v.kind, v.name)
  end
  local root = memory:root(target)
  for i, other in pairs(values) do
    if i ~= target and memory:root(i) == root then
      if other.kind ~= 'result' then
        e:fail(": it writes to memory of %s '%s', and a model changes none of what it is given; work on a clone of it", other.kind, other.name)
      end
      if (last[i] or -1) > k then
        e:fail(": it writes to '%s', whose memory '%s' shares and is read afterwards; write out of place", v.name, other.name)
      end
    end
  end
end

-- -- Nodes --------------------------------------------------------------------------------------------------

local function check_region(e, n)
  for d = 0, 1 do
    if bit.band(n.regions, 2 ^ d) ~= 0 and n.autocast[d].enabled ~= 0 then
      e:fail ': it runs in a region of autocast of its own; convert the graph (amp.convert_model), whose casts are nodes'
    end
  end
end

local function row_of(id) return id >= 0 and schema.get(ffi.string(C.amp_op_get(id).name)) or {name = 'detach', args = {}, kind = 'V'} end

-- The name of a value that is read: initializers come when they are.
local function bind(e, values, i)
  local v = values[i]
  if e.env[i] or v.number then return end
  e.initializers[#e.initializers + 1] = require('amp.io.onnx.tensor').message(v.name, handle_of(v.tensor):detach())
  e.env[i] = v.name
end

local function export_node(e, g, values, by_node, k, state)
  local raw = C.amp_graph_node_at(g.handle, k)
  local row = row_of(raw.op)
  local name = ffi.string(raw.name)
  e.node = {name = name, op = row.name}
  check_region(e, raw)
  local handler = handlers[row.name]
  if not handler then e:fail(": the op has no counterpart in ONNX's opset %d", e.opset) end
  local inputs, results = {}, {}
  for i = 0, raw.nin - 1 do
    inputs[i + 1] = raw['in'][i] >= 0 and values[raw['in'][i]] or false
    if inputs[i + 1] then bind(e, values, raw['in'][i]) end
  end
  for i = 0, raw.nout - 1 do results[i + 1] = raw.out[i] >= 0 and values[raw.out[i]] or nil end
  local writes = raw.flags ~= 0 and raw.out[0] or nil
  if writes then check_write(e, state.memory, values, state.last, writes, k) end
  local n = Node.new {e = e, name = name, op = row.name, row = row, slots = raw.attrs, terms = by_node[k] or {}, inputs = inputs, results = results,
    constant = constant}
  local from = #e.nodes + 1
  local made = {handler(e, n)}
  for i = 0, raw.nout - 1 do
    local v = raw.out[i] >= 0 and values[raw.out[i]]
    if v then
      if made[i + 1] == nil then
        if state.last[raw.out[i]] then e:fail(': its result %d has no counterpart', i + 1) end
      elseif i == 0 and writes then e.env[raw.out[0]] = made[1]
      else e.env[raw.out[i]] = e:rename(from, made[i + 1], v.name) and v.name or made[i + 1] end
      if (row.kind == 'V' or LAYOUT[row.name]) and inputs[1] then
        state.memory:join(inputs[1].index, raw.out[i])
      end
    end
  end
end

-- -- The model ----------------------------------------------------------------------------------------------

local function value_info(v, name)
  local dims = {}
  for d, s in ipairs(v.shape) do
    if v.free and v.free[d] then dims[d] = {dim_param = v.params and v.params[d] or nil}
    else dims[d] = {dim_value = s} end
  end
  return {name = name or v.name, type = {tensor_type = {elem_type = proto.number[v.dtype], shape = {dim = dims}}}}
end

local function outputs_of(e, g, values)
  local list, given = {}, {}
  for i = 0, C.amp_graph_outputs(g.handle) - 1 do
    local at = C.amp_graph_output(g.handle, i)
    local v = values[at]
    e.node = {name = v.name, op = 'output'}
    bind(e, values, at)
    local name = e.env[at] or e:scalar(v.number, v.dtype)
    if name ~= v.name or v.kind ~= 'result' or given[name] then
      local own = (v.kind == 'result' and not given[v.name] and name ~= v.name and not e.bound[v.name]) and v.name or e:name(v.name .. '_output')
      local last = e:emit('Identity', {name})
      e:rename(#e.nodes, last, own)
      name = own
    end
    given[name] = true
    list[i + 1] = value_info(v, name)
  end
  return list
end

local function model_of(g, opset)
  local values = read_values(g)
  local free, by_node = read_sizes(g, values)
  local e = Writer.new(opset)
  e.free, e.bound = free, {}
  for i = 0, #values do
    if values[i] and not values[i].number then e.taken[values[i].name] = true end
  end
  mark_inputs(values, free, g)
  find_free(g, values, free)
  local inputs = {}
  for i = 0, C.amp_graph_inputs(g.handle) - 1 do
    local at = C.amp_graph_input(g.handle, i)
    e.env[at] = values[at].name
    inputs[i + 1] = value_info(values[at])
  end
  local state = {memory = setmetatable({up = {}}, Memory), last = read_uses(g, values)}
  for k = 0, C.amp_graph_node_count(g.handle) - 1 do export_node(e, g, values, by_node, k, state) end
  for _, node in ipairs(e.nodes) do
    for _, name in ipairs(node.output) do e.bound[name] = true end
  end
  local outputs, infos, is_output = outputs_of(e, g, values), {}, {}
  for _, o in ipairs(outputs) do is_output[o.name] = true end
  for i = 0, #values do
    local v = values[i]
    if v and v.kind == 'result' and e.env[i] == v.name and not is_output[v.name] then infos[#infos + 1] = value_info(v) end
  end
  return {ir_version = 8, producer_name = 'amp', producer_version = ffi.string(C.amp_version()), opset_import = {{domain = '', version = opset}},
    graph = {name = 'amp', node = e.nodes, initializer = e.initializers, input = inputs, output = outputs, value_info = infos}}
end

--- Write the graph as an ONNX model, which appears whole or not at all.
-- @tparam Graph g
-- @tparam string path
-- @tparam ?table given opset (17; 14 to 17)
-- @usage net:eval(); amp.trace(net, x):export_onnx('net.onnx')
function M.export_onnx(g, path, given)
  if type(path) ~= 'string' then err.throw(OP, 'a path expected, got %s', util.show(path)) end
  local opset = options.read(OP, given, {'opset'}, {opset = USUAL}).opset
  if type(opset) ~= 'number' or opset % 1 ~= 0 or opset < FIRST or opset > LAST then
    err.throw(OP, "option 'opset' must be %d to %d, got %s", FIRST, LAST, util.show(opset))
  end
  if C.amp_graph_refresh(core.S, g.handle) < 0 then err.raise(OP) end
  local model = model_of(g, opset)
  local rope = wire.encode(model, proto.model)
  if rope.n >= 2 ^ 31 then err.throw_code('unsupported', OP, 'a model of %.1f GB is more than the 2 GB that one file may have', rope.n / 1e9) end
  local ok, why = file.replace(path, function(put) wire.put(rope, put) end)
  if not ok then err.throw(OP, "cannot write '%s': %s", path, why) end
end

return M

--- ONNX models as graphs: amp.io.onnx.load. (Graphs are written by g:export_onnx, amp/graph/onnx.lua.)
--
-- The file is decoded (onnx/wire.lua, onnx/proto.lua); its nodes are called one after the other, each by a function of its op
-- (onnx/elementwise.lua, shape.lua, index.lua, layers.lua, pool.lua, recurrent.lua, quantized.lua, control.lua), for inputs of its sizes, while amp records the
-- ops that run (amp.graph.trace). What is known without the inputs' values, shapes above all, is computed as lists of numbers
-- (onnx/host.lua) and becomes attributes; where sizes are free, recordings of several sizes tell how these follow them
-- (amp.graph.dynamic).
-- @module amp.io.onnx
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local file = require 'amp.io.file'
local host = require 'amp.io.onnx.host'
local kind = require 'amp.io.kind'
local limit = require 'amp.io.limit'
local memory = require 'amp.io.memory'
local Node = require 'amp.io.onnx.node'
local ops = require 'amp.ops'
local options = require 'amp.options'
local proto = require 'amp.io.onnx.proto'
local tensors = require 'amp.io.onnx.tensor'
local util = require 'amp.util'
local wire = require 'amp.io.onnx.wire'
local C, S = core.C, core.S
local broken = wire.broken

local M = {}

local OP = Node.OP
local FIRST, LAST = 7, 28 -- opsets
local MOST_RESULTS = 4000 -- that Lua's stack holds

local handlers = {}
for _, name in ipairs {'elementwise', 'shape', 'index', 'layers', 'pool', 'recurrent', 'quantized', 'control'} do
  for op, f in pairs(require('amp.io.onnx.' .. name)) do
    if op:find '^%u' then handlers[op] = f end
  end
end
M.handlers = handlers

local Model = {}
Model.__index = Model

-- -- Values -------------------------------------------------------------------------------------------------

local ctypes = {float32 = 'float', float64 = 'double', int64 = 'int64_t', int32 = 'int32_t', int16 = 'int16_t', int8 = 'int8_t', uint8 = 'uint8_t',
  bool = 'uint8_t'}

local function tensor_of(list, dtype, shape)
  local exact = ctypes[dtype] and dtype or 'float32'
  local room = ffi.new(ctypes[exact] .. '[?]', math.max(#list, 1))
  for i = 1, #list do room[i - 1] = list[i] end
  local t = memory.tensor(room, #list * ffi.sizeof(ctypes[exact]), shape, exact)
  return exact == dtype and t or t:to(dtype)
end

--- A value as a tensor.
function Model.tensor(_, v)
  if v.t == nil then v.t = tensor_of(v.h, v.dtype, v.shape) end
  return v.t
end

-- -- Reading ------------------------------------------------------------------------------------------------

local function check_opset(model, message)
  for _, import in ipairs(message.opset_import) do
    local domain = import.domain or ''
    if domain == '' or domain == 'ai.onnx' then model.opset = import.version or 0 end
  end
  if not model.opset then broken 'it names no opset of the standard domain' end
  if model.opset < FIRST or model.opset > LAST then
    err.throw_code('unsupported', OP, "'%s': it has opset %s; %d to %d are known (onnx.version_converter makes others of it)", model.path,
      tostring(model.opset), FIRST, LAST)
  end
end

local read_body

local function read_attributes(model, n, p)
  for _, a in pairs(n.attrs) do
    if a.field == 't' then a.v = tensors.read(a.v, p, model.folder, model.hold)
    elseif a.field == 'g' then a.v = read_body(model, a.v, p) end
  end
end

local function read_nodes(model, graph, p)
  model.nodes, model.used, model.last = {}, {}, {}
  for k, message in ipairs(graph.node) do
    local n = Node.new(model, message)
    n.opset = model.opset
    if #n.outputs > MOST_RESULTS then n:fail('has %d results; %d are supported', #n.outputs, MOST_RESULTS) end
    read_attributes(model, n, p)
    model.nodes[k] = n
    for _, name in ipairs(n.inputs) do model.used[name], model.last[name] = true, k end
    for _, a in pairs(n.attrs) do -- what bodies read of what is around them
      for name in pairs(a.field == 'g' and a.v.used or {}) do model.used[name], model.last[name] = true, k end
    end
  end
  for _, out in ipairs(graph.output) do
    if not out.name or out.name == '' then broken 'an output has no name' end
    model.used[out.name], model.last[out.name] = true, nil
  end
end

-- Operands that are asked for as numbers while a model is read; weights are none of these.
local settings = {Resize = {[2] = true, [3] = true, [4] = true}, Upsample = {[2] = true}, Pad = {[2] = true, [3] = true}, Clip = {[2] = true, [3] = true},
  Range = {true, true, true}, OneHot = {[2] = true, [3] = true}, Dropout = {[2] = true, [3] = true}, Slice = {[2] = true, [3] = true, [4] = true},
  DFT = {[2] = true, [3] = true}, NonMaxSuppression = {[3] = true, [4] = true, [5] = true},
  QuantizeLinear = {[2] = true}, DequantizeLinear = {[2] = true}, QLinearConv = {[2] = true, [5] = true, [7] = true},
  QLinearMatMul = {[2] = true, [5] = true, [7] = true}}
local statistics = {BatchNormalization = {[4] = true, [5] = true}}

-- Names that hold sizes and what is computed of them, or constants; numbers beside sizes are no weights.
local function sizes_of(model)
  local sizes, known = {}, {['']=true}
  for _, n in ipairs(model.nodes) do
    local all, some = host.ops[n.op] ~= nil, n.op == 'Shape' or n.op == 'Size'
    for _, name in ipairs(n.inputs) do
      all = all and (sizes[name] or known[name] or model.initial[name] ~= nil)
      some = some or sizes[name]
    end
    for _, name in ipairs(n.outputs) do
      sizes[name] = (n.op == 'Shape' or n.op == 'Size' or all and some) and true or nil
      known[name] = n.op == 'Constant' and true or nil
    end
    n.of_sizes = all and some
  end
end

local function roles(model)
  local weight, buffer = {}, {}
  sizes_of(model)
  for _, n in ipairs(model.nodes) do
    for i, name in ipairs(n.of_sizes and {} or n.inputs) do
      if statistics[n.op] and statistics[n.op][i] then buffer[name] = true
      elseif not (settings[n.op] and settings[n.op][i]) then weight[name] = true end
    end
  end
  for name, v in pairs(model.initial) do
    if proto.floats[v.dtype] and #v.shape > 0 and weight[name] and not buffer[name] then
      v.param = true
      v.t.requires_grad = true
    elseif buffer[name] then v.param, v.buffer = true, true end
  end
end

local function read_initializers(model, graph, p)
  model.initial, model.order = {}, {}
  if #graph.sparse_initializer > 0 then broken 'it has sparse initializers, which are not supported' end
  for _, t in ipairs(graph.initializer) do
    local name = t.name or ''
    if name == '' or model.initial[name] then broken("it has the initializer '%s' twice, or without a name", memory.show(name)) end
    if model.used[name] then
      model.initial[name] = tensors.read(t, p, model.folder, model.hold)
      model.order[#model.order + 1] = name
    end
  end
end

-- Sizes of an input: numbers, names of free ones, false for free ones without a name.
local function read_input(model, v)
  local name = v.name or ''
  if name == '' then broken 'an input has no name' end
  local t = v.type and v.type.tensor_type
  if not t then err.throw_code('unsupported', OP, "'%s': input '%s' is no tensor", model.path, memory.show(name)) end
  local dtype = proto.dtypes[t.elem_type or 0]
  if not proto.known[dtype] then
    err.throw_code('unsupported', OP, "'%s': input '%s' has the dtype %s, which amp has not", model.path, memory.show(name), dtype or '?')
  end
  local given = model.shapes[name]
  local input = {name = name, dtype = dtype, sizes = {}}
  if given then
    for d, s in ipairs(given) do input.sizes[d] = s end
  elseif not t.shape then
    err.throw_code('unsupported', OP, "'%s': input '%s' has no shape; give it: {shapes = {['%s'] = {2, 3}}}", model.path, memory.show(name), memory.show(name))
  else
    for d, dim in ipairs(t.shape.dim) do
      if dim.dim_value then input.sizes[d] = dim.dim_value
      else input.sizes[d] = dim.dim_param and dim.dim_param ~= '' and dim.dim_param or false end
    end
  end
  if #input.sizes > 8 then broken("input '%s' has %d dimensions; at most 8 are possible", memory.show(name), #input.sizes) end
  for _, s in ipairs(input.sizes) do
    if type(s) == 'number' and (s < 0 or s % 1 ~= 0) then broken("input '%s' has the size %s", memory.show(name), tostring(s)) end
  end
  return input
end

local function check_names(model, graph, around)
  local known = setmetatable({['']=true}, {__index = around})
  for name in pairs(model.initial) do known[name] = true end
  for _, input in ipairs(model.inputs) do
    if known[input.name] then broken("it has the input '%s' twice", memory.show(input.name)) end
    known[input.name] = true
  end
  for _, n in ipairs(model.nodes) do
    for _, name in ipairs(n.inputs) do
      if not known[name] then broken("%s reads '%s', which nothing before it gives", n:who(), memory.show(name)) end
    end
    for _, a in pairs(n.attrs) do
      if a.field == 'g' then check_names(a.v, a.v.message, known) end
    end
    for _, name in ipairs(n.outputs) do
      if name ~= '' and known[name] then broken("%s gives '%s', which is there already", n:who(), memory.show(name)) end
      known[name] = true
    end
  end
  for _, out in ipairs(graph.output) do
    if not known[out.name] then broken("nothing gives its output '%s'", memory.show(out.name)) end
  end
end

local function check_nodes(model)
  for _, n in ipairs(model.nodes) do
    if n.domain ~= '' and n.domain ~= 'ai.onnx' then n:fail("is of the domain '%s'; only the standard one is known", memory.show(n.domain)) end
    if not handlers[n.op] then n:fail("amp has no counterpart of the op '%s'", memory.show(n.op)) end
  end
end

-- A graph that is an attribute: its nodes see the names around it, too.
function read_body(model, message, p)
  local body = setmetatable({message = message, inputs = {}, outputs = {}, named = {}}, {__index = model})
  read_nodes(body, message, p)
  read_initializers(body, message, p)
  for i, v in ipairs(message.input) do body.inputs[i] = {name = v.name or ''} end
  for i, out in ipairs(message.output) do body.outputs[i] = out.name end
  roles(body)
  return body
end

local function read_model(path, f, given)
  local bound = limit.new(given.max_bytes, f.size)
  local model = setmetatable({nodes = {}, path = path, folder = path:match '^(.*/)[^/]*$' or '', shapes = given.shapes or {}}, Model)
  model.root = model
  function model.take(bytes)
    if bytes > bound.most then broken('it makes a tensor of %.3g bytes; {max_bytes = %.0f} would allow it', bytes, bytes) end
  end
  function model.hold(bytes)
    local ok, why = bound:take(bytes)
    if not ok then broken('%s', why) end
  end
  if f.size < 2 then broken('it has %d bytes', f.size) end
  local p = ffi.new('uint8_t[?]', f.size)
  local ok, why = f:read(p, f.size, 0)
  if not ok then broken('%s', why) end
  local message = wire.decode(p, f.size, proto.model)
  local graph = message.graph
  if not graph or not message.ir_version then broken 'it is no ONNX model: it has no graph' end
  check_opset(model, message)
  read_nodes(model, graph, p)
  read_initializers(model, graph, p)
  model.inputs = {}
  for _, v in ipairs(graph.input) do
    if not model.initial[v.name or ''] then model.inputs[#model.inputs + 1] = read_input(model, v) end
  end
  for name in pairs(model.shapes) do
    local found = false
    for _, input in ipairs(model.inputs) do found = found or input.name == name end
    if not found then err.throw(OP, "option 'shapes' names the input '%s', which '%s' has not", tostring(name), path) end
  end
  model.outputs, model.named = {}, {} -- nodes that give an output are called as it is
  local makers = {}
  for _, n in ipairs(model.nodes) do
    if n.outputs[1] then makers[n.outputs[1]] = n end
  end
  for i, out in ipairs(graph.output) do
    model.outputs[i] = out.name
    if makers[out.name] then model.named[makers[out.name]] = out.name end
  end
  if #model.outputs == 0 or #model.outputs > MOST_RESULTS then broken('it has %d outputs', #model.outputs) end
  check_names(model, graph)
  check_nodes(model)
  roles(model)
  return model
end

-- -- Recording ----------------------------------------------------------------------------------------------

local function know(model)
  local handle = require('amp.nn.module').watched().handle
  for _, name in ipairs(model.order) do
    local v = model.initial[name]
    if v.param then call.check(C.amp_graph_know(S, handle, v.t, v.buffer and C.AMP_G_BUFFER or C.AMP_G_PARAMETER, name), OP)
    elseif v.t then call.check(C.amp_graph_know(S, handle, v.t, C.AMP_G_CONSTANT, name), OP) end
  end
  return handle
end

-- The values of a node by host.lua, where all its operands are known.
local function folded(n)
  local f = host.ops[n.op]
  if not f or n.op == 'Shape' or n.op == 'Size' then return nil end
  if n.op == 'Expand' and n.values[2] and n.values[2].sized then return nil end
  local list = {}
  for i = 1, #n.inputs do
    local v = n.values[i]
    if v and (v.param or not v.h or #v.h ~= host.count(v.shape or {})) then return nil end
    list[i] = v
  end
  if #n.inputs == 0 or list[1] == nil then return nil end
  local ok, v = pcall(f, n, list)
  if not ok and err.is(v) then error(v, 0) end
  return ok and v or nil -- of what else is wrong the op itself tells
end

-- A node of a file may have operands and attributes of any kind; what an op did not expect is the file's fault.
local function blame(n, e)
  if type(e) == 'string' and (e:find('attempt to', 1, true) or e:find('bad argument', 1, true) or e:find('cannot convert', 1, true)) then
    n:fail('has an attribute or an operand of a kind that it can\'t have (%s)', (e:gsub('^.*:%d+: ', ''):sub(1, 100)))
  end
  error(e, 0)
end

local function value_of(result)
  if Node.is_tensor(result) then return {t = result, dtype = result.dtype} end
  return result
end

-- Numbers that follow free sizes are marked; a tensor of so many elements is made by an op, which follows them.
local function mark_sizes(model, n, results)
  if not model.has_free then return end
  local measures = n.op == 'Shape' or n.op == 'Size'
  local sized = measures and not n.values[1].h
  for i = 1, measures and 0 or #n.inputs do sized = sized or n.values[i] and n.values[i].sized end
  if not sized then return end
  for _, v in ipairs(results) do
    if not Node.is_tensor(v) then
      v.sized = true
      if n.op == 'Range' or n.op == 'ConstantOfShape' then v.h = nil end
    end
  end
end

local function run_node(model, n, env)
  n.values, n.read, n.env = {}, {}, env
  for i, name in ipairs(n.inputs) do n.values[i] = name ~= '' and env[name] or nil end
  local results
  local known = folded(n)
  if known then results = {known}
  else
    local packed = util.pack(pcall(handlers[n.op], n))
    if not packed[1] then
      local e = packed[2]
      if err.is(e) and (e.op ~= OP or not tostring(e.message):find(n.op, 1, true)) and e.code ~= 'memory' and e.code ~= 'interrupted' then
        err.throw_code(e.code, OP, "'%s': %s: %s%s", model.path, n:who(), e.op and e.op ~= OP and e.op .. ': ' or '', e.message)
      end
      blame(n, e)
    end
    results = {unpack(packed, 2, packed.n)}
  end
  for name in pairs(n.attrs) do
    if not n.read[name] then n:fail("attribute '%s' is not known", memory.show(name)) end
  end
  mark_sizes(model, n, results)
  for i, name in ipairs(n.outputs) do
    if name ~= '' then
      if results[i] == nil then
        if model.used[name] then n:fail('result %d is not supported', i) end
      else
        local v = value_of(results[i])
        if v.t then model.take(tonumber(v.t.ptr_.numel) * memory.width(v.t.dtype)) end -- views of few elements can be large
        env[name] = v
      end
    end
  end
end

-- Of free sizes that are 0 nothing is told: what starts or ends beyond nothing would be another graph.
local function check_empty(model, t, input)
  if not model.has_free then return end
  for d, s in ipairs(input.sizes) do
    if type(s) ~= 'number' and t:size(d) == 0 then err.throw_code('shape', OP, "input '%s' is empty", memory.show(input.name)) end
  end
end

-- The nodes one after the other, from what env has; names of the graph's nodes begin with a prefix.
local function run_nodes(model, env, handle, prefix)
  for k, n in ipairs(model.nodes) do
    local name = prefix .. (model.named[n] or n.name ~= '' and n.name or n.outputs[1] or n.op)
    call.check(C.amp_graph_at(S, handle, name:sub(1, 400), 1), OP)
    run_node(model, n, env)
    for _, input in ipairs(n.inputs) do
      if model.last[input] == k then env[input] = nil end
    end
  end
end

--- The values that a body gives for these, called from node n.
function Model.run_body(_, n, body, given, turn)
  check_nodes(body)
  local handle, env = know(body), setmetatable({}, {__index = n.env})
  for name, v in pairs(body.initial) do env[name] = v end
  for i, input in ipairs(body.inputs) do env[input.name] = given[i] end
  run_nodes(body, env, handle, ('%s.%s.'):format(n.name ~= '' and n.name or n.outputs[1] or n.op, turn))
  local out = {}
  for i, name in ipairs(body.outputs) do out[i] = env[name] or n:fail("nothing gives the output '%s' of its body", memory.show(name)) end
  return out
end

local function runner(model)
  return function(...)
    local handle, env = know(model), {}
    model.turned = 0
    for i, input in ipairs(model.inputs) do check_empty(model, (select(i, ...)), input) end
    for name, v in pairs(model.initial) do env[name] = v end
    for i, input in ipairs(model.inputs) do env[input.name] = {t = (select(i, ...)), dtype = input.dtype} end
    run_nodes(model, env, handle, '')
    local out = {}
    for i, name in ipairs(model.outputs) do out[i] = model:tensor(env[name]) end
    return unpack(out, 1, #out)
  end
end

-- Free dimensions by input, and names that several share.
local function free_dims(model)
  local free, any = {}, false
  for _, input in ipairs(model.inputs) do
    local dims = {}
    for d, s in ipairs(input.sizes) do
      if type(s) ~= 'number' then dims[#dims + 1] = d end
    end
    if #dims > 0 then
      free[input.name] = dims
      any = true
    end
  end
  return any and free or nil
end

-- Inputs of the file's sizes, free ones as given for the first dimension and for others; apart: each name's is another one.
local function examples(model, batch, other, whole, apart)
  local args, named, more = {n = #model.inputs}, {}, {[true] = 0, [false] = 0}
  for i, input in ipairs(model.inputs) do
    local shape, total = {}, 1
    for d, s in ipairs(input.sizes) do
      if type(s) == 'string' then
        if not named[s] then
          named[s] = (d == 1 and batch or other) + more[d == 1]
          if apart then more[d == 1] = more[d == 1] + 1 end
        end
        s = named[s]
      end
      shape[d] = s or (d == 1 and batch or other)
      total = total * shape[d]
    end
    model.take(8 * total)
    args[i] = ops.get 'full'(shape, proto.floats[input.dtype] and 1 or whole, input.dtype, 'cpu')
  end
  return args
end

-- Sizes of free first dimensions and of others, what stands in inputs of whole numbers (0 is an index, 1 a divisor, too), and whether
-- sizes of several names are several: what is equal at first may be taken to be so for ever.
local attempts = {{2, 4, 0, true}, {2, 4, 0}, {2, 4, 1}, {2, 2, 0}, {3, 16, 0}, {2, 64, 0}, {2, 224, 0}, {1, 1, 0}}

-- Has the file several names of free first dimensions, or of others?
local function several(model)
  local first, other = {}, {}
  for _, input in ipairs(model.inputs) do
    for d, s in ipairs(input.sizes) do
      if type(s) == 'string' then (d == 1 and first or other)[s] = true end
    end
  end
  return #util.keys(first) > 1 or #util.keys(other) > 1
end

local function fix_sizes(free) return ("; if it is for some sizes only, fix them: {shapes = {['%s'] = {...}}}"):format(memory.show(next_key(free))) end

local function record(model)
  local trace, names, first = require 'amp.graph.trace', {}, nil
  for i, input in ipairs(model.inputs) do names[i] = input.name end
  local fn, free = runner(model), free_dims(model)
  model.has_free = free ~= nil
  local list, from = free and attempts or {{1, 1, 0}, {1, 1, 1}}, free and not several(model) and 2 or 1
  for k = from, #list do
    local try = list[k]
    local args = examples(model, unpack(try, 1, 4))
    local ok, r = pcall(trace.record, OP, fn, args, names)
    if ok then return r, fn, args, names, free, try end
    if free and err.is(r) and not r.message:find('{shapes', 1, true) then r.message = r.message .. fix_sizes(free) end
    if not err.is(r) or r.code == 'memory' or r.code == 'interrupted' or r.code == 'unsupported' and not try[4] then error(r, 0) end
    if not try[4] then first = first or r end
  end
  error(first, 0)
end

-- Do recordings of other sizes give the same graph, all numbers included? Then nothing follows a size, and most models of images
-- are such: a few small recordings tell.
local function same_everywhere(model, g, fn, names, try)
  local signature, trace = require 'amp.graph.signature', require 'amp.graph.trace'
  local first = signature.of(g.handle)
  local numbers = signature.numbers(first)
  for _, sizes in ipairs {{1, try[2] * 2}, {try[1] + 1, try[2] * 3}} do
    local ok, r = pcall(trace.record, OP, fn, examples(model, sizes[1], sizes[2], try[3]), names)
    if not ok and not (err.is(r) and r.code ~= 'interrupted' and r.code ~= 'memory') then error(r, 0) end
    if ok then
      local other = signature.of(r.handle)
      if signature.difference(first, other) then return false end
      for i, n in ipairs(signature.numbers(other)) do
        if n.value ~= numbers[i].value and n.value == n.value then return false end
      end
    else return false end
  end
  return true
end

local function free_all(g, free, names)
  for i, name in ipairs(names) do
    local mask = 0
    for _, d in ipairs(free[name] or {}) do mask = mask + 2 ^ (d - 1) end
    call.check(C.amp_graph_free_dims(S, g.handle, i - 1, mask), OP)
  end
end

local function graph_of(model)
  local r, fn, args, names, free, try = record(model)
  local g = require('amp.graph.graph').new(r)
  if free and same_everywhere(model, g, fn, names, try) then free_all(g, free, names)
  elseif free then
    local ok, e = pcall(require('amp.graph.dynamic'), g, fn, args, names, free)
    if not ok then
      if err.is(e) and e.code == 'unsupported' then
        err.throw_code(e.code, OP, "'%s': %s; or fix its sizes: {shapes = {['%s'] = {...}}}", model.path, e.message, memory.show(next_key(free)))
      end
      error(e, 0)
    end
  end
  return g
end

local function check_shapes(shapes)
  if shapes == nil then return end
  if type(shapes) ~= 'table' then err.throw(OP, "option 'shapes' is a table of lists of sizes by input, got %s", util.show(shapes)) end
  for name, list in pairs(shapes) do
    if type(name) ~= 'string' or type(list) ~= 'table' then err.throw(OP, "option 'shapes' is a table of lists of sizes by input") end
    for _, s in ipairs(list) do
      if type(s) ~= 'number' or s < 0 or s % 1 ~= 0 then err.throw(OP, "option 'shapes': '%s' has the size %s", name, util.show(s)) end
    end
  end
end

--- Read an ONNX model as a graph. It takes and gives the file's numbers: indices from 0. Its float initializers are parameters that
-- require grad, running statistics buffers.
-- @tparam string path
-- @tparam ?table given shapes (sizes of inputs whose sizes are free or unknown in the file, by name), max_bytes (the most that a tensor
-- may take)
-- @treturn Graph
-- @usage local g = amp.io.onnx.load('net.onnx'); print(g(x))
function M.load(path, given)
  if type(path) ~= 'string' then err.throw(OP, 'a path expected, got %s', util.show(path)) end
  local o = options.read(OP, given, {'shapes', 'max_bytes'})
  limit.check(OP, o.max_bytes)
  check_shapes(o.shapes)
  local f, why = file.open(path)
  if not f then err.throw(OP, "cannot read '%s': %s", path, why) end
  local ok, g = pcall(function()
    local model = read_model(path, f, o)
    f:close()
    return graph_of(model)
  end)
  if ok then return g end
  local hint = type(g) == 'table' and g.damaged and f.fd and kind.hint(f, 'onnx') or ''
  f:close()
  if type(g) == 'table' and g.damaged then err.throw(OP, "'%s': %s%s", path, g.damaged, hint) end
  if err.is(g) and not tostring(g.message):find(path, 1, true) then err.throw_code(g.code, OP, "'%s': %s", path, g.message) end
  error(g, 0)
end

return M

--- A graph: what a module or a function does, as calls of ops that run without it.
--
-- The graph itself is C's (src/graph); this object holds its handle and how tensors nest in arguments and results. Parameters
-- and buffers are the module's own tensors.
-- @module amp.graph.graph
local ffi = require 'ffi'
local bit = require 'bit'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local options = require 'amp.options'
local schema = require 'amp.ops.schema'
local structure = require 'amp.graph.structure'
local types = require 'amp.types'
local util = require 'amp.util'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

local slots_type = ffi.typeof 'amp_tensor *[?]'

local FEW = 4 -- tensors in or out that a call takes without a loop
local methods = {}
local Graph = {__name = 'Graph'}
Graph.methods = methods

-- Tensors that a conversion stores in 16 bits, by id, wherever they are used.
Graph.low_ids = {}

local Methods = methods -- what the prompt completes
-- Fields of the object itself that are not always there: names of parameters that a conversion lowered, what it was before passes,
-- which passes ran.
local own = {lowered = true, before = true, passes = true, again = true}

function Graph.__index(_, key)
  local f = Methods[key]
  if f ~= nil then return f end
  if type(key) == 'string' and not own[key] and key:sub(1, 1) ~= '_' then
    local habits = require 'amp.core.habits'
    err.throw_code('name', nil, "a graph has no '%s'%s", key, habits.hint(habits.graph, key, util.keys(Methods)))
  end
end

--- An object of what amp.graph.trace.record gives, or a file holds.
-- @tparam table made handle, inputs and outputs (plans), names of arguments, places of input tensors, training
function Graph.new(made)
  local g = {handle = made.handle, plan = made.inputs, results = made.outputs, names = made.names, places = made.places, training = made.training,
    again = made.again or false}
  local n, m = C.amp_graph_inputs(g.handle), C.amp_graph_outputs(g.handle)
  g.n, g.m = n, m
  g.given, g.made = slots_type(math.max(n, 1)), slots_type(math.max(m, 1)) -- no run is in another
  g.flat = n > 0 and n == g.plan.n -- the arguments are tensors and nothing else
  for i = 1, n do g.flat = g.flat and g.plan.list[i].tensor == i end
  g.single = m == 1 and g.results.n == 1 and g.results.list[1].tensor == 1 -- so is the result
  g.plain = g.flat and n == 1 and g.single
  g.few = g.flat and n >= 1 and n <= FEW and m >= 1 and m <= FEW and g.results.n == m
  for i = 1, g.few and m or 0 do g.few = g.few and g.results.list[i].tensor == i end
  return setmetatable(g, Graph)
end

local function check(g, op)
  if getmetatable(g) ~= Graph then err.throw(op, 'is a method of graphs and is called as g:%s(...), got %s first', op:match '[%w_]+$', util.show(g)) end
  return g.handle
end

-- -- Running --------------------------------------------------------------------------------

local refs = ffi.typeof 'amp_ref *'

local paused = ffi.new 'amp_graph_paused *[1]'

local function execute(g)
  local made = g.made
  for i = 0, g.m - 1 do made[i] = nil end
  return C.amp_graph_run_on(g.handle, ffi.cast(refs, g.given), g.n, ffi.cast(refs, made), g.m, paused)
end

-- A run failed. After a lack of memory it goes on from there: what it wrote and drew it does not do again.
-- An input that is given along is alive meanwhile: compiled code forgets what it does not need any more.
local function go_on(g, rc, ...) -- luacheck: no unused args
  if call.again(rc) then rc = execute(g) end
  if paused[0] ~= nil then
    C.amp_graph_drop(paused[0])
    paused[0] = nil
  end
  if rc < 0 then err.raise 'graph.run' end
end

-- Arguments that are tensors and no tables. False: the slow way says what is wrong.
local function take(given, n, a, b, ...)
  for i = 0, n - 1 do
    if not istype(ref_t, a) then return false end
    given[i] = a.ptr_
    if i + 1 < n then
      if i == 0 then a = b
      else a = (select(i, ...)) end
    end
  end
  return true
end

-- The usual case, few tensors in and out. It has no loop: one that is left after a turn keeps LuaJIT from compiling who calls
-- this, and a server's handler is called from no loop of Lua's.
local function result(p)
  local o = ref_t()
  o.ptr_ = p
  return o
end

local function run_plain(g, x)
  local given, made = g.given, g.made
  given[0], made[0] = x.ptr_, nil
  call.here()
  C.amp_state_use(S)
  local rc = C.amp_graph_run_on(g.handle, ffi.cast(refs, given), 1, ffi.cast(refs, made), 1, paused)
  if rc < 0 then go_on(g, rc, x) end
  local o = result(made[0])
  if S.attention ~= 0 then call.attend(o) end
  return o
end

local function are_tensors(n, a, b, c, d)
  return istype(ref_t, a) and (n < 2 or istype(ref_t, b)) and (n < 3 or istype(ref_t, c)) and (n < 4 or istype(ref_t, d))
end

local function run_few(g, a, b, c, d)
  local given, made, n, m = g.given, g.made, g.n, g.m
  given[0], made[0] = a.ptr_, nil
  if n > 1 then given[1] = b.ptr_ end
  if n > 2 then given[2] = c.ptr_ end
  if n > 3 then given[3] = d.ptr_ end
  if m > 1 then made[1] = nil end
  if m > 2 then made[2] = nil end
  if m > 3 then made[3] = nil end
  call.here()
  C.amp_state_use(S)
  local rc = C.amp_graph_run_on(g.handle, ffi.cast(refs, given), n, ffi.cast(refs, made), m, paused)
  if rc < 0 then go_on(g, rc, a, b, c, d) end
  local first = result(made[0])
  local second, third, fourth = m > 1 and result(made[1]), m > 2 and result(made[2]), m > 3 and result(made[3])
  if S.attention ~= 0 then
    call.attend(first)
    if second then call.attend(second) end
    if third then call.attend(third) end
    if fourth then call.attend(fourth) end
  end
  if m == 1 then return first elseif m == 2 then return first, second elseif m == 3 then return first, second, third end
  return first, second, third, fourth
end

--- Run it: the values that the function gives for these arguments; g(...) is the same. One differentiable function.
-- @param ... what the function takes: tensors of the sizes and dtypes it was traced for (free sizes aside), nested the same way, on the
-- device of the parameters
-- @return what the function gives
-- @raise an input of another size, dtype or device, by its name; what an op in it raises, with the node
-- @usage local y = g(x); y:sum():backward()
function methods.run(g, ...)
  check(g, 'graph.run')
  if g.again then -- in another region it is another graph
    local other = g.again:of(g, ...)
    if other ~= g then return methods.run(other, ...) end
  end
  if g.plain and select('#', ...) == 1 and istype(ref_t, (...)) then return run_plain(g, (...)) end
  if g.few and select('#', ...) == g.n and are_tensors(g.n, ...) then return run_few(g, ...) end
  if not (g.flat and select('#', ...) == g.n and take(g.given, g.n, ...)) then
    local flat = structure.collect('graph.run', g.plan, util.pack(...), g.names)
    for i = 1, #flat do g.given[i - 1] = flat[i].ptr_ end
  end
  call.here()
  C.amp_state_use(S)
  local rc, m, made = execute(g), g.m, g.made
  if rc < 0 then go_on(g, rc) end
  if g.single then
    local o = ref_t()
    o.ptr_ = made[0]
    if S.attention ~= 0 then call.attend(o) end
    return o
  end
  local results = {}
  for i = 1, m do
    local o = ref_t()
    o.ptr_ = made[i - 1]
    results[i] = o
  end
  if S.attention ~= 0 then
    for i = 1, m do call.attend(results[i]) end
    if m == 0 then call.attend() end
  end
  return structure.unflatten(g.results, results)
end
Graph.__call = function(g, ...) return methods.run(g, ...) end

-- -- Asking ---------------------------------------------------------------------------------

local function value_name(g, i)
  if i < 0 then return nil end
  return ffi.string(C.amp_graph_value_at(g.handle, i).name)
end

local function sizes_of(v)
  local s = {}
  for d = 0, v.ndim - 1 do s[d + 1] = tonumber(v.size[d]) end
  return s
end

local NONE = core.NONE

-- An attribute of a node as Lua has it: numbers, booleans, words, lists; nil where it is absent.
local function attribute(a, slots)
  local at = slots + a.slot
  local integer = at[0].i
  if a.optional and tonumber(integer) == NONE then return nil end
  local kind = a.kind
  if kind == 'f' then return tonumber(at[0].f)
  elseif kind == 'b' then return integer ~= 0
  elseif kind == 't' then return types.dtype_name[tonumber(integer)]
  elseif kind == 'e' then return a.word_list[tonumber(integer) + 1]
  elseif kind == 'v' then
    local number = tonumber(integer)
    local device = math.floor(number / 256) == 0 and 'cpu' or 'cuda'
    return device == 'cpu' and device or device .. ':' .. (number % 256 + 1)
  elseif kind == 'N' then
    local list = {}
    for i = 1, a.count do list[i] = tonumber(at[i - 1].i) end
    return list
  elseif kind == 'I' or kind == 'D' or kind == 'F' then
    if tonumber(integer) == NONE then return nil end
    local list = {}
    for i = 1, tonumber(integer) do list[i] = tonumber(kind == 'F' and at[i].f or at[i].i) end
    return list
  end
  return tonumber(integer)
end

local function row_of(id) return id >= 0 and schema.get(ffi.string(C.amp_op_get(id).name)) or {name = 'detach', args = {}} end

local function attributes(row, node)
  local attrs = {}
  for _, a in ipairs(row.args) do
    if a.slot then attrs[a.name] = attribute(a, node.attrs) end
  end
  return attrs
end

local function described(g, i)
  local v = C.amp_graph_value_at(g.handle, i)
  return {name = ffi.string(v.name), shape = sizes_of(v), dtype = types.dtype_name[v.dtype]}
end

--- Its nodes, in the order in which they run; attributes have the values of the recording.
-- @treturn table list of {name, op, inputs = {names}, attrs = {by name}, outputs = {{name, shape, dtype}}}
-- @usage for _, n in ipairs(g:nodes()) do print(n.name, n.op) end
function methods.nodes(g)
  local handle = check(g, 'graph.nodes')
  local list = {}
  for k = 0, C.amp_graph_node_count(handle) - 1 do
    local n = C.amp_graph_node_at(handle, k)
    local row = row_of(n.op)
    local node = {name = ffi.string(n.name), op = row.name, inputs = {}, attrs = attributes(row, n), outputs = {}}
    if bit.band(n.flags, C.AMP_INPLACE) ~= 0 then node.op = node.op .. '_' end
    for i = 0, n.nin - 1 do node.inputs[#node.inputs + 1] = value_name(g, n['in'][i]) end
    for i = 0, n.nout - 1 do
      if n.out[i] >= 0 then node.outputs[#node.outputs + 1] = described(g, n.out[i]) end
    end
    list[k + 1] = node
  end
  return list
end

--- Names of its inputs, a list.
-- @treturn table
function methods.inputs(g)
  local list = {}
  for i = 0, C.amp_graph_inputs(check(g, 'graph.inputs')) - 1 do list[i + 1] = value_name(g, C.amp_graph_input(g.handle, i)) end
  return list
end

--- Names of its outputs, a list.
-- @treturn table
function methods.outputs(g)
  local list = {}
  for i = 0, C.amp_graph_outputs(check(g, 'graph.outputs')) - 1 do list[i + 1] = value_name(g, C.amp_graph_output(g.handle, i)) end
  return list
end

-- Names and tensors of a kind of value.
local function tensors(g, kind)
  local names, list = {}, {}
  for i = 0, C.amp_graph_value_count(g.handle) - 1 do
    local v = C.amp_graph_value_at(g.handle, i)
    if v.kind == kind then
      local from, o = slots_type(1, v.tensor), ref_t()
      C.amp_retain(o, ffi.cast('amp_ref *', from))
      names[#names + 1], list[#list + 1] = ffi.string(v.name), o
    end
  end
  return names, list
end
Graph.tensors = tensors

--- Names of parameters that a conversion lowered, which a graph then has.
function Graph.lower(g, names)
  g.lowered = names
  for name, t in methods.named_parameters(g) do
    if names and names[name] then Graph.low_ids[t:id()] = true end
  end
end

local function pairs_of(names, values)
  local i = 0
  return function()
    i = i + 1
    if i <= #names then return names[i], values[i] end
  end
end

--- Its parameters, a list; they are the module's.
-- @treturn table
-- @usage local opt = amp.optim.SGD(g:parameters(), {lr = 0.1})
function methods.parameters(g) check(g, 'graph.parameters') return (select(2, tensors(g, C.AMP_G_PARAMETER))) end
--- Iterate over names and parameters.
-- @usage for name, p in g:named_parameters() do print(name, p:size()) end
function methods.named_parameters(g) check(g, 'graph.named_parameters') return pairs_of(tensors(g, C.AMP_G_PARAMETER)) end
--- Its buffers (running statistics and the like), a list.
function methods.buffers(g) check(g, 'graph.buffers') return (select(2, tensors(g, C.AMP_G_BUFFER))) end
--- Iterate over names and buffers.
function methods.named_buffers(g) check(g, 'graph.named_buffers') return pairs_of(tensors(g, C.AMP_G_BUFFER)) end

-- -- Showing --------------------------------------------------------------------------------

function Graph.__tostring(g) return require('amp.graph.show').text(g) end

--- Draw it for Graphviz (https://graphviz.org): a text in its language, at exactly this path. Casts are orange, parameters, inputs and
-- outputs have their own shapes, and modules are boxes around their nodes. amp.plot.graph draws a picture without Graphviz.
-- @tparam string path
-- @treturn Graph itself
-- @raise a path that cannot be written
-- @usage g:save_dot 'net.dot'    -- dot -Tsvg net.dot > net.svg
function methods.save_dot(g, path, excess)
  check(g, 'graph.save_dot')
  options.none('graph.save_dot', excess)
  return require('amp.graph.dot').save(g, path)
end

-- -- Elsewhere ------------------------------------------------------------------------------

--- Write it to a safetensors file at exactly this path: parameters, buffers and constants as tensors, the ops as JSON in its metadata.
-- amp.load_graph reads it without the Lua that made it, amp_graph_load (amp.h) without any.
-- @tparam string path
-- @tparam ?table given remove_amp_cast (false): write the plain float32 graph of a converted one
-- @raise a path that cannot be written; what a file cannot hold, such as a constant on a meta device
-- @usage g:save 'net.safetensors'
function methods.save(g, path, given)
  check(g, 'graph.save')
  return require('amp.graph.file').save(g, path, given)
end

--- Write it as an ONNX model at exactly this path.
-- @tparam string path
-- @tparam ?table given opset (17): 14 to 17
-- @raise a node that ONNX has no counterpart for, by its name; no file is left then
-- @usage g:export_onnx 'net.onnx'
function methods.export_onnx(g, path, given)
  check(g, 'graph.export_onnx')
  return require('amp.graph.onnx').export_onnx(g, path, given)
end

--- Change it into a graph that does the same in less. Results and gradients agree with those before within rounding, and it goes on
-- seeing changed parameters.
-- @tparam ?table given passes, each true unless it is false here: dead (what changes nothing and is not used goes), common (equal
-- nodes become one), constants (nodes of constants are computed), fold (batch norm in eval mode goes into the product before it),
-- joins (nodes that one op does together), chains (elementwise nodes pass over memory together), layout
-- (for compiled functions: channels last on a CPU), fuse (joins and chains); keep_weights (true): products on a CPU keep their weights in
-- the form of their kernels, a second copy that goes where memory is short
-- @treturn Graph itself
-- @raise an unknown option, or one that is no boolean
-- @usage g:optimize(); print(amp.summary(g))    -- what was fused, and what not and why
function methods.optimize(g, given)
  check(g, 'graph.optimize')
  return require('amp.graph.optimize').optimize(g, given)
end

--- Move its parameters and buffers, which stay the module's, and its constants to a device. Inputs are expected there from then on.
-- @tparam string device 'cpu', 'cuda', 'cuda:2'
-- @treturn Graph itself
-- @usage g:to 'cuda'
function methods.to(g, device, excess)
  local handle = check(g, 'graph.to')
  options.none('graph.to', excess)
  return require('amp.graph.device')(g, handle, device)
end

return Graph

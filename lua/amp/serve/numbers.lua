--- From the numbers in a request's text to the numbers of its answer, by a graph of one input and one output.
--
--   local bump = amp.serve.numbers(amp.load_graph 'bump.safetensors', {1, 8})
--   local p = bump '[0, 1, 0, 0, 0, 0, 0, 0]'              -- {0.97, 0.02, 0.01}
--
-- For networks so small that handles and their collection cost more than the network: none is made here.
local call = require 'amp.core.call'
local core = require 'amp.ffi'
local err = require 'amp.error'
local ffi = require 'ffi'
local options = require 'amp.options'
local types = require 'amp.types'
local util = require 'amp.util'
local C, S = core.C, core.S

local OP = 'serve.numbers'

-- Lets the two tensors go. Handles in an array are not the collector's.
local function let_go(given, made)
  C.amp_release(made)
  C.amp_release(given)
end

-- A call failed with this status; after a lack of memory the next request finds more.
local function fail(rc, op, given, made)
  let_go(given, made)
  if rc == tonumber(C.AMP_E_MEMORY) then collectgarbage() end
  err.raise(op)
end

-- The first n of data as a list. Few ones without a loop, which would keep LuaJIT from compiling who calls this.
local function list_of(data, n)
  if n == 1 then return { data[0] } end
  if n == 2 then return { data[0], data[1] } end
  if n == 3 then return { data[0], data[1], data[2] } end
  if n == 4 then return { data[0], data[1], data[2], data[3] } end
  local list = {}
  for i = 1, n do list[i] = data[i - 1] end
  return list
end

-- A graph that is another one in other regions: by way of tensors.
local function again(graph, text, shape, dtype, bytes)
  local from = require 'amp.tensor.from_values'
  return graph((bytes and from.from_string or from.from_text)(text, shape, dtype)):reshape(-1):tolist()
end

--- Makes a function from a text to a list of numbers.
-- @tparam Graph graph of one tensor that gives one tensor, on the CPU
-- @tparam table shape of its input, with the dimension of the batch: {1, 8}
-- @tparam ?table given dtype of its input (the default dtype); bytes = false: true takes the elements themselves, as amp.from_string does
-- @treturn function of a text as amp.from_text reads it; gives all numbers of the result in C order, a list; raises what amp.from_text
-- and graph:run raise
-- @raise a graph of other inputs or outputs
-- @usage local net = amp.nn.Linear(8, 3):eval()
-- local bump = amp.serve.numbers(amp.graph.trace(net, {amp.zeros(1, 8)}), {1, 8})
-- local scores = bump '[0, 1, 0, 0, 0, 0, 0, 0]'
return function(graph, shape, given)
  local o = options.read(OP, given, { 'dtype', 'bytes' }, { bytes = false })
  if type(graph) ~= 'table' or type(graph.handle) ~= 'cdata' then err.throw(OP, 'argument 1 must be a graph, got %s', util.show(graph)) end
  if not graph.plain then err.throw(OP, 'a graph of one tensor that gives one tensor is expected: see graph:inputs() and graph:outputs()') end
  if type(shape) ~= 'table' then err.throw(OP, 'argument 2 must be a list of sizes, got %s', util.show(shape)) end
  require('amp.tensor.creation_arguments').size_check(OP, shape)
  if type(o.bytes) ~= 'boolean' then err.throw(OP, 'bytes is true or false, got %s', util.show(o.bytes)) end
  local code, ndim, sizes, bytes = o.dtype and types.dtype(o.dtype, OP) or types.default_dtype(), #shape, ffi.new 'int64_t[8]', o.bytes
  for i = 1, ndim do sizes[i - 1] = shape[i] end
  local from, made = ffi.new 'amp_ref[1]', ffi.new 'amp_ref[1]'
  local room, data = 64, ffi.new('double[?]', 64)

  return function(text, more)
    options.none(OP, more)
    if type(text) ~= 'string' then err.throw(OP, 'a text expected, got %s', util.show(text)) end
    if graph.again then return again(graph, text, shape, types.dtype_name[code], bytes) end
    call.here()
    local rc
    if bytes then rc = C.amp_from_bytes(S, from, text, #text, ndim, sizes, code)
    else rc = C.amp_from_text(S, from, text, #text, ndim, sizes, code) end
    if rc < 0 then fail(rc, bytes and 'from_string' or 'from_text', from, made) end
    rc = C.amp_graph_run(graph.handle, from, 1, made, 1)
    if rc < 0 then fail(rc, 'graph.run', from, made) end
    local n = tonumber(made[0].ptr_.numel)
    if n > room then room, data = n, ffi.new('double[?]', n) end
    rc = C.amp_read(S, made, data, n)
    if rc < 0 then fail(rc, OP, from, made) end
    let_go(from, made)
    local list = list_of(data, n)
    if S.attention ~= 0 then call.attend() end
    return list -- no tail call: LuaJIT compiles no return from it to a pcall
  end
end

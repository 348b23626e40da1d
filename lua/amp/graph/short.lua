--- amp.trace, amp.load_graph, amp.compile: the short forms of amp.graph.
-- @module amp.graph.short
local ffi = require 'ffi'
local core = require 'amp.ffi'
local next_key = require('amp.core.keys').next
local err = require 'amp.error'
local ops = require 'amp.ops'

local M = {}

local trace_of_matrix

--- A module or a function as a graph: it runs once for these inputs, and the ops that it calls are recorded. With a tensor first it
-- is the sum of a matrix's diagonal, as ever. amp.graph.trace is the long form, with options.
-- @tparam function|nn.Module|Tensor first
-- @param ... its arguments: tensors, tables of tensors, plain values (which the graph takes for fixed)
-- @treturn Graph
-- @raise what a graph can't hold, at its line: item, tolist, backward, an amp.Function, a field of a module that is set
-- @usage local g = amp.trace(net, x); print(g)
function M.trace(first, ...)
  if type(first) ~= 'function' and (type(first) ~= 'table' or getmetatable(first) == nil) or ffi.istype(core.ref_t, first) then
    local second = ...
    if type(second) == 'function' or type(second) == 'table' and require('amp.nn.module').is_module(second) then
      err.throw('trace', 'the module or function comes first, then its inputs: amp.trace(net, x)')
    end
    trace_of_matrix = trace_of_matrix or ops.public 'trace'
    return trace_of_matrix(first, ...)
  end
  local n = select('#', ...)
  local inputs = {...}
  while n > 0 and inputs[n] == nil do n = n - 1 end
  local last = inputs[n]
  if n > 1 and type(last) == 'table' and getmetatable(last) == nil then
    local key = next_key(last)
    if (key == 'dynamic' or key == 'names') and (next_key(last, key) == nil or last.dynamic and last.names) then
      err.throw('trace', "'%s' is an option of the long form: amp.graph.trace(net, {x}, {%s = ...})", key, key)
    end
  end
  return require('amp.graph.trace').trace(first, inputs)
end

--- Read a graph from a file that g:save, net:export or save_checkpoint wrote. The Lua that made it is not needed.
-- @tparam string path
-- @tparam ?table given map_location ('cpu'): the device it comes to
-- @treturn Graph
-- @raise a file that is no graph, is damaged, or was written by a newer amp
-- @usage local g = amp.load_graph 'net.safetensors'; print(g(x))
function M.load_graph(path, given) return require('amp.graph.file').load(path, given) end

--- A function that runs as a graph: the first call for a set of shapes, dtypes, devices, modes and regions traces and optimizes, later
-- calls run that graph. Values, gradients, dtypes, draws and errors are those of plain calls. What can't be a graph runs as it is,
-- after one warning that says which line and why. A graph is made anew where modules' fields, upvalues or globals that the function
-- sees hold something else than when it was traced.
-- @tparam function|nn.Module fn
-- @tparam ?table given dynamic (false): one graph for sizes that differ
-- @treturn function
-- @usage local step = amp.compile(function(x, y) return F.cross_entropy(net(x), y) end)
function M.compile(fn, given) return require 'amp.graph.compile'(fn, given) end

return M

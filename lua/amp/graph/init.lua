--- amp.graph: a module or a function as a graph of op calls, recorded while it runs once.
--
--   local g = amp.graph.trace(net, {x})      -- amp.trace(net, x) is the short form
--   print(g)                                 -- a line a node
--   g:optimize():save 'net.safetensors'      -- amp.load_graph, or amp_graph_load of C, reads it
--
-- A graph is called as the function is, is differentiable, and has the methods run, nodes, inputs, outputs, parameters,
-- named_parameters, buffers, named_buffers, optimize, to, save, save_dot and export_onnx.
-- @module amp.graph
local M = {}

--- Record what a module or a function does for these inputs. It runs once, and what the run changed is put back.
-- @tparam function|nn.Module fn
-- @tparam table inputs a list of its arguments: tensors, tables of tensors, plain values (which the graph takes for fixed)
-- @tparam ?table given names (of the inputs, a list; by default those of the parameters), dynamic: sizes that are free at run time, as
-- {1} (that dimension of every input) or {x = {1, 3}}
-- @treturn Graph
-- @raise what a graph can't hold, at its line: item, tolist, backward, an amp.Function, a field of a module that is set, a size that
-- depends on values; a size that is to be free and that the function needs fixed
-- @usage local g = amp.graph.trace(net, {x}, {dynamic = {1}, names = {'image'}})
function M.trace(fn, inputs, given) return require('amp.graph.trace').trace(fn, inputs, given) end

--- Read a graph from a file that g:save wrote; the same as amp.load_graph.
-- @tparam string path
-- @tparam ?table given map_location ('cpu'): the device it comes to
-- @treturn Graph
-- @raise a file that is no graph, is damaged, or was written by a newer amp
-- @usage local g = amp.graph.load('net.safetensors', {map_location = 'cuda'})
function M.load(path, given) return require('amp.graph.file').load(path, given) end

--- A copy of a graph in mixed precision; amp.convert_model, which takes modules as well, says more.
-- @tparam Graph graph
-- @tparam ?table given target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_names, cast_optional_params
-- @treturn Graph
-- @raise lists that overlap, or name unknown ops
-- @usage local low = amp.graph.convert(g, {target_dtype = 'bfloat16'})
function M.convert(graph, given, excess) return require('amp.graph.convert').convert(graph, given, excess) end

--- Whether a value is a graph.
-- @return boolean
function M.is(v) return getmetatable(v) == require 'amp.graph.graph' end

local known = {'trace', 'load', 'convert', 'is'}

return setmetatable(M, {__index = function(_, name)
  if type(name) ~= 'string' or name:sub(1, 1) == '_' then return nil end
  local habits = require 'amp.core.habits'
  require('amp.error').throw_code('name', nil, "amp.graph has no '%s'%s", name, habits.hint(habits.graph_space, name, known))
end})

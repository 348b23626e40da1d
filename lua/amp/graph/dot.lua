--- A graph in Graphviz' language: g:save_dot(path).
-- @module amp.graph.dot
local err = require 'amp.error'
local look = require 'amp.graph.look'
local show = require 'amp.graph.show'
local util = require 'amp.util'

local M = {}

-- A text between quotes; a backslash or a quote in a name stands for itself.
local function quote(text) return '"' .. text:gsub('[\\"]', '\\%0'):gsub('[%z\1-\9\11-\31]', ' '):gsub('\n', '\\n') .. '"' end

local STYLES = {
  input = 'shape=invhouse, style=filled, fillcolor="#cfe2f3"', output = 'shape=house, style=filled, fillcolor="#d9ead3"',
  parameter = 'shape=box, style="rounded,filled", fillcolor="#eeeeee", fontsize=9',
  buffer = 'shape=box, style="rounded,filled,dashed", fillcolor="#eeeeee", fontsize=9',
  constant = 'shape=box, style="rounded,filled,dotted", fillcolor="#f7f7f7", fontsize=9',
  cast = 'shape=box, style=filled, fillcolor="#f6b26b"', node = 'shape=box, style=filled, fillcolor="#ffffff"',
  joined = 'shape=box, style=filled, fillcolor="#d9d2e9"', chain = 'shape=box, style=filled, fillcolor="#fff2cc"',
  kept = 'shape=box, style=filled, fillcolor="#e0e0e0"',
}

--- How a node is drawn: cast, joined, chain, kept, node.
function M.style_of(node)
  return node.cast and 'cast' or node.kept and 'kept' or node.joined and #node.joined > 1 and 'joined' or node.chain and 'chain' or 'node'
end

--- The module that a node belongs to: its name without the last part, as a list of names.
function M.path_of(node)
  local path = {}
  for part in node.name:gmatch '[^.]+' do path[#path + 1] = part end
  path[#path] = nil
  return path
end

local function attributes_text(node)
  local list = {}
  for i, a in ipairs(node.attrs) do list[i] = a[1] .. ' = ' .. a[2] end
  for _, v in ipairs(node.inputs) do
    if v and v.kind == 'number' then table.insert(list, 1, v.text) end
  end
  return table.concat(list, ', ')
end

--- Lines of a node's box.
function M.label(node)
  local lines = {node.op}
  if node.name ~= node.op then lines[1] = node.op .. '  ' .. node.name end
  local text = attributes_text(node)
  if text ~= '' then lines[#lines + 1] = text end
  local first = node.outputs[1]
  if first then lines[#lines + 1] = first.dtype .. ' ' .. first.shape end
  for _, mark in ipairs(show.marks(node)) do lines[#lines + 1] = mark end
  return lines
end

-- Nodes by module, each module a cluster in that around it.
local function tree_of(nodes)
  local root = {children = {}, order = {}, nodes = {}}
  for i, node in ipairs(nodes) do
    local at = root
    for _, name in ipairs(M.path_of(node)) do
      if not at.children[name] then
        at.children[name] = {children = {}, order = {}, nodes = {}, path = at.path and at.path .. '.' .. name or name}
        at.order[#at.order + 1] = name
      end
      at = at.children[name]
    end
    at.nodes[#at.nodes + 1] = i
  end
  return root
end

local function write_tree(tree, nodes, out, indent, count)
  for _, i in ipairs(tree.nodes) do
    out[#out + 1] = ('%sn%d [label=%s, %s];'):format(indent, i, quote(table.concat(M.label(nodes[i]), '\n')), STYLES[M.style_of(nodes[i])])
  end
  for _, name in ipairs(tree.order) do
    local child = tree.children[name]
    count = count + 1
    out[#out + 1] = ('%ssubgraph cluster_%d {'):format(indent, count)
    out[#out + 1] = ('%s  label=%s; color="#999999"; fontcolor="#666666";'):format(indent, quote(child.path))
    count = write_tree(child, nodes, out, indent .. '  ', count)
    out[#out + 1] = indent .. '}'
  end
  return count
end

-- Edges to a node from what made its operands; a write goes on from the node that wrote last.
local function write_edges(seen, out)
  local from = {}
  for i, v in ipairs(seen.values) do
    if v.kind ~= 'result' then from[v] = 'v' .. i end
  end
  for i, node in ipairs(seen.nodes) do
    for _, v in ipairs(node.inputs) do
      if v and v.kind ~= 'number' and from[v] then out[#out + 1] = ('  %s -> n%d;'):format(from[v], i) end
    end
    for _, v in ipairs(node.outputs) do from[v] = 'n' .. i end
  end
  for i, v in ipairs(seen.outputs) do
    out[#out + 1] = ('  o%d [label=%s, %s];'):format(i, quote('output ' .. i .. '\n' .. v.dtype .. ' ' .. v.shape), STYLES.output)
    if from[v] then out[#out + 1] = ('  %s -> o%d;'):format(from[v], i) end
  end
end

--- The text.
function M.text(g)
  local seen = look.at(g)
  local out = {'digraph amp {', '  rankdir=TB; fontname="Helvetica";', '  node [fontname="Helvetica", fontsize=10]; edge [arrowsize=0.7];'}
  for i, v in ipairs(seen.values) do
    if STYLES[v.kind] then
      out[#out + 1] = ('  v%d [label=%s, %s];'):format(i, quote(('%s\n%s %s'):format(v.name, v.dtype, v.shape)), STYLES[v.kind])
    end
  end
  write_tree(tree_of(seen.nodes), seen.nodes, out, '  ', 0)
  write_edges(seen, out)
  out[#out + 1] = '}'
  return table.concat(out, '\n') .. '\n'
end

--- Write it, whole or not at all.
function M.save(g, path)
  local op = 'graph.save_dot'
  if type(path) ~= 'string' then err.throw(op, "a path is expected, got %s: g:save_dot 'net.dot'", util.show(path)) end
  local text = M.text(g)
  local ok, why = require('amp.io.file').replace(path, function(put) put(text) end)
  if not ok then err.throw(op, "cannot write '%s': %s", path, why) end
  return g
end

return M

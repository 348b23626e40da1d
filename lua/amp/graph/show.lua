--- A graph as text: a head line, and a line a node.
-- @module amp.graph.show
local look = require 'amp.graph.look'

local M = {}

local function typed(v) return ('%s: %s %s'):format(v.name, v.dtype, v.shape) end

local function operand(v) return v and (v.text or v.name) or 'nil' end

--- Operands and attributes, as they stand between the brackets of a call.
function M.arguments(node)
  local list, last = {}, #node.inputs
  while last > 0 and not node.inputs[last] do last = last - 1 end
  for i = 1, last do list[i] = operand(node.inputs[i]) end
  for _, a in ipairs(node.attrs) do list[#list + 1] = a[1] .. ' = ' .. a[2] end
  return table.concat(list, ', ')
end

--- What is said of a node besides its call: modes of its own, what passes did.
function M.marks(node)
  local list = {}
  for _, mode in ipairs(node.modes) do list[#list + 1] = mode end
  if node.kept then list[#list + 1] = 'kept between runs' end
  if node.joined and #node.joined > 1 then list[#list + 1] = 'joined: ' .. table.concat(node.joined, ', ') end
  if node.chain then list[#list + 1] = 'chain ' .. node.chain end
  return list
end

local function line_of(node)
  local made = {}
  for i, v in ipairs(node.outputs) do made[i] = typed(v) end
  local marks = M.marks(node)
  return ('  %s = %s(%s)%s'):format(#made > 0 and table.concat(made, ', ') or node.name, node.op, M.arguments(node),
    #marks > 0 and '  [' .. table.concat(marks, '; ') .. ']' or '')
end

--- The text of print(g).
function M.text(g)
  local seen = look.at(g)
  local inputs, outputs, free = {}, {}, {}
  for i, v in ipairs(seen.inputs) do inputs[i] = typed(v) end
  for i, v in ipairs(seen.outputs) do outputs[i] = operand(v) end
  for _, f in ipairs(seen.free) do
    if f.own then free[#free + 1] = ('%s was %d'):format(f.name, f.traced) end
  end
  local lines = {('Graph(%s) -> %s%s'):format(table.concat(inputs, ', '), table.concat(outputs, ', '),
    #free > 0 and ('  [free sizes, as recorded: %s]'):format(table.concat(free, ', ')) or '')}
  for _, node in ipairs(seen.nodes) do lines[#lines + 1] = line_of(node) end
  return table.concat(lines, '\n')
end

return M

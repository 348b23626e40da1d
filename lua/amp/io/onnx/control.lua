--- Control flow of ONNX, where it is known when the file is read: the taken branch of If, the turns of Loop and Scan one after the
-- other. A condition or a count that depends on the inputs' values can't be in a graph, and is refused.
-- @module amp.io.onnx.control
local ops = require 'amp.ops'
local get = ops.get

local M = {}

local TURNS = 1024 -- of a loop
local NODES = 65536 -- that all turns have

-- Nodes that run in turns, counted over the file; a turn of none is one, too.
local function count(n, turns, body)
  local nodes = turns * math.max(1, #body.nodes)
  local root = n.model.root
  root.turned = (root.turned or 0) + nodes
  if turns <= TURNS and root.turned > NODES then
    n:fail('and the loops before it have %d nodes in all their turns, which is too much to be written out', root.turned)
  end
  if turns > TURNS then n:fail('has %d turns of %d nodes, which is too much to be written out', turns, #body.nodes) end
end

local function body_of(n, name)
  local body = n:attr(name)
  if type(body) ~= 'table' or not body.nodes then n:fail("attribute '%s' is no graph", name) end
  return body
end

local function known(n, i, what)
  local v = n:value(i)
  if not v.h then
    n:fail("%s depends on the inputs' values; a graph holds what is known when the file is read (shapes and constants)", what)
  end
  if #v.h ~= 1 then n:fail('%s has %d elements, not one', what, #v.h) end
  return v.h[1]
end

function M.If(n)
  local yes, no = body_of(n, 'then_branch'), body_of(n, 'else_branch')
  local body = known(n, 1, 'its condition') ~= 0 and yes or no
  local results = n.model:run_body(n, body, {}, body == yes and 'then' or 'else')
  if #results ~= #n.outputs and #results < #n.outputs then n:fail('has %d results, its branch %d', #n.outputs, #results) end
  return unpack(results, 1, #n.outputs)
end

local function stacked(n, lists, i, what, axis)
  if #lists[i] == 0 then n:fail('%s %d has no turn, and so no shape', what, i) end
  for k, v in ipairs(lists[i]) do lists[i][k] = n.model:tensor(v) end
  n:room(lists[i][1]:numel() * #lists[i])
  return get 'stack'(lists[i], axis)
end

-- Carried values first, then what each turn adds to.
local function gathered(n, carried, lists, axes)
  local results = {unpack(carried)}
  for i = 1, #lists do
    local used = n.outputs[#carried + i]
    results[#carried + i] = used and used ~= '' and stacked(n, lists, i, 'list', axes and axes[i] or 1) or nil
  end
  return unpack(results, 1, #carried + #lists)
end

function M.Loop(n)
  local body, carried, lists = body_of(n, 'body'), {}, {}
  local most = n:has(1) and known(n, 1, 'its count') or math.huge
  local going = not n:has(2) or known(n, 2, 'its condition') ~= 0
  for i = 3, #n.inputs do carried[i - 2] = n:value(i) end
  local kept = #carried
  if #body.inputs ~= kept + 2 or #body.outputs < kept + 1 then n:fail 'its body has other inputs or outputs than it needs' end
  for i = 1, #body.outputs - kept - 1 do lists[i] = {} end
  local turn = 0
  while going and turn < most do
    count(n, 1, body)
    if turn >= TURNS then n:fail('has more than %d turns, which is too much to be written out', TURNS) end
    local given = {{h = {turn}, dtype = 'int64', shape = {}}, {h = {1}, dtype = 'bool', shape = {}}}
    for i = 1, kept do given[i + 2] = carried[i] end
    local results = n.model:run_body(n, body, given, tostring(turn))
    for i = 1, kept do carried[i] = results[i + 1] end
    for i = 1, #lists do lists[i][turn + 1] = results[kept + 1 + i] end
    if not results[1].h then n:fail "its condition depends on the inputs' values; a graph holds what is known when the file is read" end
    going = results[1].h[1] ~= 0
    turn = turn + 1
  end
  return gathered(n, carried, lists)
end

local function dims_of(n, name, tensors_)
  local axes, list = n:ints(name), {}
  for i, t in ipairs(tensors_) do list[i] = n:dim(axes and axes[i] or 0, t:dim()) end
  return list
end

function M.Scan(n)
  local body, scans = body_of(n, 'body'), n:attr('num_scan_inputs', 0)
  if n.opset < 9 then n:fail 'is that of opset 8, which is not supported' end
  local kept = #n.inputs - scans
  if scans < 1 or kept < 0 or #body.inputs ~= #n.inputs or #body.outputs < kept then n:fail 'its body has other inputs or outputs than it needs' end
  local carried, given, lists = {}, {}, {}
  for i = 1, kept do carried[i] = n:value(i) end
  for i = 1, scans do given[i] = n:tensor(kept + i) end
  for i = 1, #body.outputs - kept do lists[i] = {} end
  local axes = dims_of(n, 'scan_input_axes', given)
  local back, back_out = n:ints 'scan_input_directions' or {}, n:ints 'scan_output_directions' or {}
  local out_axes, turns = n:ints 'scan_output_axes' or {}, given[1]:size(axes[1])
  for i = 1, scans do
    if given[i]:size(axes[i]) ~= turns then n:fail('its inputs have %d and %d turns', turns, given[i]:size(axes[i])) end
  end
  count(n, turns, body)
  for turn = 1, turns do
    local values = {unpack(carried)}
    for i = 1, scans do
      local part = get 'select'(given[i], axes[i], back[i] == 1 and turns + 1 - turn or turn)
      values[kept + i] = {t = part, dtype = part.dtype}
    end
    local results = n.model:run_body(n, body, values, tostring(turn - 1))
    for i = 1, kept do carried[i] = results[i] end
    for i = 1, #lists do table.insert(lists[i], back_out[i] == 1 and 1 or #lists[i] + 1, results[kept + i]) end
  end
  local dims = {}
  for i = 1, #lists do
    local rank = lists[i][1] and n.model:tensor(lists[i][1]):dim() + 1 or 1
    dims[i] = n:dim(out_axes[i] or 0, rank)
  end
  return gathered(n, carried, lists, dims)
end

return M

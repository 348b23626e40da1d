--- Nodes that could have been one and are not, and why, as far as the graph itself tells.
-- The passes keep no account; this looks at what they left. Where no rule below speaks, the reason is unknown.
-- @module amp.graph.missed
local bit = require 'bit'
local core = require 'amp.ffi'
local C = core.C

local PRODUCTS = {linear = true, matmul = true, conv1d = true, conv2d = true, conv3d = true}
local CONVOLUTIONS = {linear = true, conv1d = true, conv2d = true, conv3d = true}
local LINEAR, NORM, ADD, SOFTMAX = {linear = true}, {batch_norm = true}, {add = true}, {softmax = true, dropout = true}

local LEAN = {linear_act = true, batch_norm_act = true} -- JOIN_LEAN (src/graph/pass_join.h)

local function on_gpu_only(what)
  return function(_, _, device)
    return device == 'cpu' and what
  end
end

local function training_norm(node)
  for _, a in ipairs(node.attrs) do
    if a[1] == 'training' then return 'batch norm in training mode takes the statistics of the batch; net:eval() before tracing lets it be folded' end
  end
end

local function bias_only(node)
  local b = node.inputs[2]
  return not (b and (b.kind == 'parameter' or b.kind == 'constant'))
end

-- second op -> {ops of the maker of its first operand, what they would be, the rule's own reason, when it is no candidate}
local PAIRS = {
  relu = {{LINEAR, 'linear_act'}, {NORM, 'batch_norm_act'}},
  gelu = {{LINEAR, 'linear_act'}},
  batch_norm = {{CONVOLUTIONS, 'a folded batch norm', training_norm}},
  layer_norm = {{ADD, 'add_layer_norm', on_gpu_only 'joined on a GPU alone: a CPU runs the two kernels one after the other'}},
  nll_loss = {{{log_softmax = true}, 'cross_entropy'}},
  add = {{PRODUCTS, 'a product with a bias', nil, bias_only}},
  matmul = {{SOFTMAX, 'attention', on_gpu_only 'joined on a GPU alone: on a CPU the matrix of scores is quicker'}},
}

local function same_modes(a, b) return table.concat(a.modes, ';') == table.concat(b.modes, ';') end

local function without_underscore(op) return (op:gsub('_$', '')) end

-- What keeps two nodes apart, whatever they are.
local function apart(first, second, value, uses, outputs)
  if outputs[value] then return ("'%s' is an output"):format(value.name) end
  local users = uses[value]
  if #users > 1 then
    local others = {}
    for _, user in ipairs(users) do if user ~= second then others[#others + 1] = user.name end end
    return ("'%s' is read by %s as well"):format(value.name, table.concat(others, ', '))
  end
  if not same_modes(first, second) then return 'they are in different modes or regions' end
  if first.inplace or first.out then return ('%s writes what others may read'):format(first.op) end
end

local function reason(g, first, second, value, rule, context)
  local own = rule[3] and rule[3](second, first, context.device)
  if own then return own end
  local why = apart(first, second, value, context.uses, context.outputs)
  if why then return why end
  if not rawget(g, 'before') then return 'no pass has run here: g:optimize()' end
  if not g.passes[rule[2] == 'a folded batch norm' and 'fold' or 'joins'] then return 'this pass was switched off' end
  if g.passes.trains and context.device == 'cpu' and LEAN[rule[2]] then
    return 'left apart on a CPU in steps that train: backward of the joined op needs more memory and is no quicker'
  end
  return 'unknown: shapes, dtypes or attributes are not those of the join'
end

local function elementwise(node)
  return not node.inplace and not node.out and bit.band(node.row.flags or 0, C.AMP_F_ELEMENTWISE) ~= 0 and not node.kept and #node.outputs == 1
end

local LEAST = 16384 -- elements (CHAIN_LEAST, src/graph/graph.h)

local function chain_reason(g, first, second, value, context)
  local why = apart(first, second, value, context.uses, context.outputs)
  if why then return why end
  if value.shape ~= second.outputs[1].shape then return 'their shapes differ' end
  if context.device == 'cpu' and value.elements < LEAST and not context.free then return 'few elements: they stay in the cache as they are' end
  if not rawget(g, 'before') then return 'no pass has run here: g:optimize()' end
  if not g.passes.chains then return 'this pass was switched off' end
  return 'unknown'
end

local function context_of(seen)
  local context = {uses = {}, outputs = {}, maker = {}, free = #seen.free > 0, device = seen.device}
  for _, node in ipairs(seen.nodes) do
    for _, v in ipairs(node.inputs) do
      if v then
        local users = context.uses[v] or {}
        context.uses[v] = users
        if users[#users] ~= node then users[#users + 1] = node end
      end
    end
    for _, v in ipairs(node.outputs) do context.maker[v] = node end
  end
  for _, v in ipairs(seen.outputs) do context.outputs[v] = true end
  return context
end

--- The list of them.
-- @tparam Graph g
-- @tparam table seen what amp.graph.look gives
-- @treturn table list of {first, second (names of nodes), as, why}
return function(g, seen)
  local context, list = context_of(seen), {}
  local maker = context.maker
  for _, node in ipairs(seen.nodes) do
    local found
    for _, rule in ipairs(PAIRS[without_underscore(node.op)] or {}) do
      local value = node.inputs[1]
      local first = value and maker[value]
      if first and first ~= node and rule[1][without_underscore(first.op)] and not (rule[4] and rule[4](node)) then
        list[#list + 1] = {first = first.name, second = node.name, as = rule[2], why = reason(g, first, node, value, rule, context)}
        found = true
      end
    end
    if not found and elementwise(node) and not node.chain then
      for _, value in ipairs(node.inputs) do
        local first = value and maker[value]
        if first and elementwise(first) then
          list[#list + 1] = {first = first.name, second = node.name, as = 'a chain', why = chain_reason(g, first, node, value, context)}
          break
        end
      end
    end
  end
  return list
end

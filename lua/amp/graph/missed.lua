--- Nodes that could have been one and are not, and why.
-- The passes keep no account. What their table of joins would have made one, but for a reason, C finds in what they left
-- (amp_graph_missed); folded norms and chains are looked at here.
-- @module amp.graph.missed
local bit = require 'bit'
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local C, S = core.C, core.S

local CONVOLUTIONS = {linear = true, conv1d = true, conv2d = true, conv3d = true}

local function training_norm(node)
  for _, a in ipairs(node.attrs) do
    if a[1] == 'training' then return 'batch norm in training mode takes the statistics of the batch; net:eval() before tracing lets it be folded' end
  end
end

-- In enum amp_graph_why's words; {name} is the first node's, {other} who reads it as well.
local WORDS = {
  [tonumber(C.AMP_G_WHY_OUTPUT)] = "'{name}' is an output",
  [tonumber(C.AMP_G_WHY_WRITTEN)] = 'what lies between is written by others',
  [tonumber(C.AMP_G_WHY_MODES)] = 'they are in different modes or regions',
  [tonumber(C.AMP_G_WHY_ATTRIBUTES)] = 'attributes are not those of the join',
  [tonumber(C.AMP_G_WHY_SHAPES)] = 'shapes or dtypes are not those of the join',
  [tonumber(C.AMP_G_WHY_DEVICE)] = 'joined on a GPU alone: on a CPU the parts are as quick or quicker',
  [tonumber(C.AMP_G_WHY_REGION)] = 'dtypes would be others in a region: joined where a graph runs in the region of its recording (amp.compile)',
  [tonumber(C.AMP_G_WHY_TRAINS)] = 'left apart on a CPU in steps that train: backward of the joined op needs more memory and is no quicker',
  [tonumber(C.AMP_G_WHY_CLASS)] = 'a class was set for one of the ops: amp.set_policy',
  [tonumber(C.AMP_G_WHY_ORDER)] = 'random draws or statistics between them would change their order',
}

local function same_modes(a, b) return table.concat(a.modes, ';') == table.concat(b.modes, ';') end

local function not_run(g, pass)
  if not rawget(g, 'before') then return 'no pass has run here: g:optimize()' end
  if not g.passes[pass] then return 'this pass was switched off' end
end

local room = ffi.typeof 'amp_graph_miss[?]'

-- What C's joins leave, by the second node: {first, as, why}.
local function joins(g, seen)
  local of, count = {}, #seen.nodes
  local passes, list = rawget(g, 'before') and g.passes or {}, room(math.max(count, 1))
  local flags = (passes.here and C.AMP_G_REGION or 0) + (passes.trains and C.AMP_G_TRAINS or 0)
  local n = C.amp_graph_missed(S, g.handle, flags, list, count)
  if n < 0 then err.raise 'summary' end
  for i = 0, n - 1 do
    local m = list[i]
    local first, second = seen.nodes[m.first + 1], seen.nodes[m.second + 1]
    local why
    if m.why == C.AMP_G_WHY_READ then
      why = m.other >= 0 and ("'%s' is read by %s as well"):format(first.name, seen.nodes[m.other + 1].name) or ("'%s' has other uses"):format(first.name)
    elseif m.why == C.AMP_G_WHY_NOTHING then why = not_run(g, 'joins') or 'no pass has run since it changed'
    else why = WORDS[tonumber(m.why)]:gsub('{name}', (first.name:gsub('%%', '%%%%'))) end
    of[second] = {first = first.name, second = second.name, as = ffi.string(C.amp_op_get(m.op).name), why = why}
  end
  return of
end

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

-- A batch norm behind a product, which is no join: the pass folds it into the product's weights.
local function fold(g, node, context)
  local value = node.op == 'batch_norm' and node.inputs[1]
  local first = value and context.maker[value]
  if not first or not CONVOLUTIONS[first.op] then return nil end
  local why = training_norm(node) or apart(first, node, value, context.uses, context.outputs) or not_run(g, 'fold')
    or 'shapes, dtypes or attributes are not those of the fold'
  return {first = first.name, second = node.name, as = 'a folded batch norm', why = why}
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
  return not_run(g, 'chains') or 'another node comes between and may not be moved'
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
  local joined, maker = joins(g, seen), context.maker
  for _, node in ipairs(seen.nodes) do
    local found = joined[node] or fold(g, node, context)
    if found then list[#list + 1] = found
    elseif elementwise(node) and not node.chain then
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

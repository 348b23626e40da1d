--- What there is to see of a graph, for its printed form, its pictures and its summary.
-- Everything is read from the graph's own form; nothing runs.
-- @module amp.graph.look
local bit = require 'bit'
local ffi = require 'ffi'
local core = require 'amp.ffi'
local schema = require 'amp.ops.schema'
local types = require 'amp.types'
local C, ref_t = core.C, core.ref_t
local band, rshift = bit.band, bit.rshift

local M = {}

local KINDS = {[tonumber(C.AMP_G_INPUT)] = 'input', [tonumber(C.AMP_G_PARAMETER)] = 'parameter', [tonumber(C.AMP_G_BUFFER)] = 'buffer',
  [tonumber(C.AMP_G_CONSTANT)] = 'constant', [tonumber(C.AMP_G_NUMBER)] = 'number', [tonumber(C.AMP_G_RESULT)] = 'result'}
-- Ops of views: of what is contiguous they move nothing.
local VIEWS = {flatten = true, reshape = true, contiguous = true, t = true, movedim = true, positive = true}
local CASTS = {amp_cast = true, amp_multicast = true, cast = true}

--- A number as a script writes it.
function M.number(v)
  if v ~= v then return 'nan' elseif v == math.huge then return 'inf' elseif v == -math.huge then return '-inf' end
  for digits = 6, 17 do
    local text = ('%.' .. digits .. 'g'):format(v)
    if tonumber(text) == v then return text end
  end
end

-- The value as its dtype holds it: a float32 of 0.1 is shown as 0.1.
local function short(v, dtype)
  if dtype == 'float32' or dtype == 'float16' or dtype == 'bfloat16' then
    local float = ffi.new('float', v)
    for digits = 1, 9 do
      local text = ('%.' .. digits .. 'g'):format(v)
      if ffi.new('float', tonumber(text)) == float then return text end
    end
  end
  return M.number(v)
end

-- -- Free sizes -----------------------------------------------------------------------------

local LETTERS = {'n', 'm', 'k'}

-- Each free size has a letter; those that are tied to another one have that one's.
local function free_names(handle)
  local list, tied = {}, {}
  for i = 0, C.amp_graph_size_count(handle) - 1 do
    local s = C.amp_graph_size_at(handle, i)
    if s.node == -2 then tied[s.slot + 1] = s end
  end
  local letters = 0
  for i = 0, C.amp_graph_inputs(handle) - 1 do
    local v = C.amp_graph_value_at(handle, C.amp_graph_input(handle, i))
    for d = 0, v.ndim - 1 do
      if band(rshift(v.free_dims, d), 1) == 1 then
        local free = {input = i + 1, dim = d + 1, traced = tonumber(v.size[d])}
        list[#list + 1] = free
        if not tied[#list] then
          letters = letters + 1
          free.name = LETTERS[letters] or 'n' .. letters
          free.own = true
        end
      end
    end
  end
  for k, s in pairs(tied) do list[k].name = M.term(s, list) end
  return list
end

-- One term: 2*n*m/3 + 1.
function M.term(s, free)
  local factors = {}
  for k, f in ipairs(free) do
    local power = s.power[k - 1]
    if power ~= 0 then factors[#factors + 1] = power == 1 and f.name or ('%s^%d'):format(f.name, power) end
  end
  local text = table.concat(factors, '*')
  if text == '' then return M.number(s.numerator / s.denominator + s.more) end
  if s.numerator ~= 1 then text = (s.numerator == -1 and '-' or M.number(s.numerator) .. '*') .. text end
  if s.denominator ~= 1 then text = text .. '/' .. M.number(s.denominator) end
  if s.more ~= 0 then text = text .. (s.more < 0 and ' - ' or ' + ') .. M.number(math.abs(s.more)) end
  return text
end

-- Attributes and numbers that follow free sizes: [node][slot], and [-1][value], as text.
local function followers(handle, free)
  local of = {}
  for i = 0, C.amp_graph_size_count(handle) - 1 do
    local s = C.amp_graph_size_at(handle, i)
    if s.node >= -1 then
      of[s.node] = of[s.node] or {}
      local before = of[s.node][s.slot]
      of[s.node][s.slot] = before and before .. ' + ' .. M.term(s, free) or M.term(s, free)
    end
  end
  return of
end

-- -- Attributes -------------------------------------------------------------------------------

local NONE = core.NONE

local function one(a, slot)
  local kind = a.kind
  if kind == 'f' or kind == 'F' then return M.number(tonumber(slot.f)) end
  if kind == 'b' then return tostring(slot.i ~= 0) end
  local integer = tonumber(slot.i)
  if kind == 't' then return types.dtype_name[integer] or tostring(integer) end
  if kind == 'e' then return a.word_list[integer + 1] or tostring(integer) end
  if kind == 'v' then return types.device_string(math.floor(integer / 256), integer % 256) end
  return ('%.0f'):format(integer)
end

local function is_default(a, text)
  local default = a.default
  if default == nil then return false end
  if text == default or tonumber(text) and tonumber(text) == tonumber(default) then return true end
  if a.kind == 'b' then return text == tostring(default ~= '0' and default ~= 'false') end
  if a.kind == 'N' or a.kind == 'I' or a.kind == 'D' or a.kind == 'F' then
    for word in text:sub(2, -2):gmatch '[^, ]+' do
      if word ~= default and tonumber(word) ~= tonumber(default) then return false end
    end
    return text ~= '{}'
  end
  return false
end

-- An attribute as text; nil where it is absent or the row's default.
local function attribute(a, slots, follow)
  local at = slots + a.slot
  local absent = tonumber(at[0].i) == NONE
  local kind = a.kind
  local text
  if kind == 'N' or kind == 'I' or kind == 'D' or kind == 'F' then
    if kind ~= 'N' and absent then return nil end
    local first, count = a.slot + (kind == 'N' and 0 or 1), kind == 'N' and a.count or tonumber(at[0].i)
    local list, follows = {}, false
    for i = 1, count do
      follows = follows or follow[first + i - 1] ~= nil
      list[i] = follow[first + i - 1] or one(a, slots[first + i - 1])
    end
    text = '{' .. table.concat(list, ', ') .. '}'
    if follows then return text end
  else
    if follow[a.slot] then return follow[a.slot] end
    if a.optional and absent then return nil end
    text = one(a, at[0])
  end
  return not is_default(a, text) and text or nil
end

local NOTHING = {}

local function attributes(row, node, follow)
  local list = {}
  for _, a in ipairs(row.args) do
    local text = a.slot and attribute(a, node.attrs, follow or NOTHING)
    if text then list[#list + 1] = {a.name, text} end
  end
  return list
end

-- -- Values -------------------------------------------------------------------------------------

local function shape_of(v, free)
  if v.ndim == 0 then return 'scalar' end
  local list = {}
  for d = 0, v.ndim - 1 do list[d + 1] = free and free[d + 1] or ('%.0f'):format(tonumber(v.size[d])) end
  return table.concat(list, 'x')
end

local function tensor_of(v)
  if v.tensor == nil then return nil end
  local from, t = ffi.new('amp_tensor *[1]', v.tensor), ref_t()
  C.amp_retain(t, ffi.cast('amp_ref *', from))
  return t
end

local function number_text(v, dtype) return type(v) == 'number' and short(v, dtype) or tostring(v) end

local function described(v, free, follows)
  local out = {name = ffi.string(v.name), kind = KINDS[tonumber(v.kind)], dtype = types.dtype_name[v.dtype], node = v.node >= 0 and v.node + 1 or nil,
    shape = shape_of(v, free)}
  local n = 1
  for d = 0, v.ndim - 1 do n = n * tonumber(v.size[d]) end
  out.elements, out.bytes = n, n * C.amp_dtype_size(v.dtype)
  local scalar = out.kind == 'constant' and v.ndim == 0 and v.device == C.AMP_CPU and v.tensor ~= nil
  if scalar then out.text = number_text(tensor_of(v):item(), out.dtype) end
  if out.kind == 'number' then
    local t = tensor_of(v)
    local number = follows or t and t:item()
    out.text = number_text(number, t and t.dtype)
    out.bytes = 0
  end
  return out
end

-- -- Nodes --------------------------------------------------------------------------------------

local DETACH = {name = 'detach', kind = 'V', args = {}}

local function row_of(id) return id >= 0 and schema.get(ffi.string(C.amp_op_get(id).name)) or DETACH end

local DEVICES = {[0] = 'cpu', 'cuda'}

-- What the function set itself: grad mode, regions.
local function modes(n)
  local list = {}
  if n.grad >= 0 then list[1] = n.grad == 1 and 'enable_grad' or 'no_grad' end
  for d = 0, 1 do
    if band(rshift(n.regions, d), 1) == 1 then
      local state = n.autocast[d]
      local dtype = band(state.cache, 12) ~= 0 and 'float8' or types.dtype_name[state.dtype]
      list[#list + 1] = state.enabled ~= 0 and ('autocast %s on %s'):format(dtype, DEVICES[d])
        or ('no autocast on %s'):format(DEVICES[d])
    end
  end
  return list
end

local function node_of(handle, k, values, follow)
  local n = C.amp_graph_node_at(handle, k)
  local row = row_of(n.op)
  local inplace, out = band(n.flags, C.AMP_INPLACE) ~= 0, band(n.flags, C.AMP_OUT) ~= 0
  local node = {name = ffi.string(n.name), row = row, op = row.name .. (inplace and '_' or ''), inputs = {}, outputs = {}, modes = modes(n),
    attrs = attributes(row, n, follow), inplace = inplace, out = out, view = row.kind == 'V' or VIEWS[row.name] or false,
    cast = CASTS[row.name] or false}
  for i = 0, n.nin - 1 do node.inputs[i + 1] = values[n['in'][i]] or false end
  for i = 0, n.nout - 1 do
    if n.out[i] >= 0 then node.outputs[#node.outputs + 1] = values[n.out[i]] end
  end
  node.aux = not (inplace or out) and band(row.flags or 0, C.AMP_F_AUX) ~= 0
  local group = C.amp_graph_group(handle, k)
  node.kept, node.chain = group < 0, group > 0 and group or nil
  return node
end

-- Which nodes were there before the passes and are done by others now: by the names of these.
local function joined(g, nodes)
  local before = rawget(g, 'before')
  if not before then return end
  local after = {}
  for _, node in ipairs(nodes) do after[node.name] = node end
  local maker = {}
  for _, old in ipairs(before) do
    for _, name in ipairs(old.outputs) do maker[name] = old end
  end
  local function collect(old, into)
    for _, name in ipairs(old.inputs) do
      local from = maker[name]
      if from and from ~= old and not after[from.name] then
        collect(from, into)
        into[#into + 1] = from.op
      end
    end
  end
  local was = {}
  for _, old in ipairs(before) do was[old.name] = old end
  for _, node in ipairs(nodes) do
    local old = was[node.name]
    if not old then node.new = true
    elseif old.op ~= node.op then
      node.joined = {}
      collect(old, node.joined)
      node.joined[#node.joined + 1] = old.op
    end
  end
end

-- -- The whole ------------------------------------------------------------------------------------

--- Bytes that a node reads and writes at the sizes of the recording; a view moves none, and inside a chain values stay in the cache.
local function count_bytes(nodes, outputs)
  local uses = {}
  for _, node in ipairs(nodes) do
    for _, v in ipairs(node.inputs) do
      if v then uses[v] = uses[v] or {}; uses[v][node.chain or node] = true end
    end
  end
  for _, v in ipairs(outputs) do uses[v] = uses[v] or {}; uses[v].output = true end
  local made = {}
  for _, node in ipairs(nodes) do
    local bytes = 0
    if not node.view then
      for _, v in ipairs(node.inputs) do
        if v and not (node.chain and made[v] == node.chain) then bytes = bytes + v.bytes end
      end
      for _, v in ipairs(node.outputs) do
        local inside = node.chain ~= nil and not node.inplace
        for user in pairs(uses[v] or {}) do inside = inside and user == node.chain end
        if not inside then bytes = bytes + v.bytes end
        made[v] = node.chain
      end
    end
    node.bytes = bytes
    if node.aux then -- results for backward alone: of no interest unless something reads them
      for i = #node.outputs, 2, -1 do
        if not uses[node.outputs[i]] then table.remove(node.outputs, i) end
      end
    end
  end
end

--- All there is to see.
-- @tparam Graph g
-- @treturn table inputs, outputs, values (lists of {name, kind, dtype, shape, bytes, text}), nodes (list of {name, op, inputs, outputs,
-- attrs, modes, inplace, view, cast, kept, chain, joined, bytes}), free (list of {name, input, dim, traced})
function M.at(g)
  local handle = g.handle
  local free = free_names(handle)
  local follow = followers(handle, free)
  local free_of = {}
  for _, f in ipairs(free) do
    local i = C.amp_graph_input(handle, f.input - 1)
    free_of[i] = free_of[i] or {}
    free_of[i][f.dim] = f.name
  end
  local values, list = {}, {}
  for i = 0, C.amp_graph_value_count(handle) - 1 do
    values[i] = described(C.amp_graph_value_at(handle, i), free_of[i], follow[-1] and follow[-1][i])
    list[i + 1] = values[i]
  end
  local seen = {values = list, nodes = {}, inputs = {}, outputs = {}, free = free}
  for i = 0, C.amp_graph_value_count(handle) - 1 do
    local v = C.amp_graph_value_at(handle, i)
    if v.kind == C.AMP_G_RESULT or seen.device == nil then seen.device = DEVICES[v.device] end
  end
  for k = 0, C.amp_graph_node_count(handle) - 1 do seen.nodes[k + 1] = node_of(handle, k, values, follow[k]) end
  for i = 0, C.amp_graph_inputs(handle) - 1 do seen.inputs[i + 1] = values[C.amp_graph_input(handle, i)] end
  for i = 0, C.amp_graph_outputs(handle) - 1 do seen.outputs[i + 1] = values[C.amp_graph_output(handle, i)] end
  joined(g, seen.nodes)
  count_bytes(seen.nodes, seen.outputs)
  return seen
end

--- What is to be remembered of a graph before passes change it.
function M.names(g)
  local handle, list = g.handle, {}
  local function name(i) return i >= 0 and ffi.string(C.amp_graph_value_at(handle, i).name) or nil end
  for k = 0, C.amp_graph_node_count(handle) - 1 do
    local n = C.amp_graph_node_at(handle, k)
    local node = {name = ffi.string(n.name), op = row_of(n.op).name .. (band(n.flags, C.AMP_INPLACE) ~= 0 and '_' or ''), inputs = {}, outputs = {}}
    for i = 0, n.nin - 1 do node.inputs[#node.inputs + 1] = name(n['in'][i]) end
    for i = 0, n.nout - 1 do node.outputs[#node.outputs + 1] = name(n.out[i]) end
    list[k + 1] = node
  end
  return list
end

return M

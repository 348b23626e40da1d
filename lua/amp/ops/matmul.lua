--- Products whose arguments are not those of their row: einsum's text, lists of matrices or
-- of dimensions, and multi_head_attention's many optional tensors. Each also takes the row's
-- own form, a list of tensors with attributes by name, which is what C programs call.
-- @module amp.ops.matmul
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local ops = require 'amp.ops'
local util = require 'amp.util'
local istype, ref_t = ffi.istype, core.ref_t

local M = {}

local function is_tensor(v) return istype(ref_t, v) end

local function list_of_tensors(op, list, first)
  for i = 1, #list do
    if not is_tensor(list[i]) then err.throw(op, 'argument %d must be a tensor, got %s', i + (first or 0), util.show(list[i])) end
  end
  return list
end

-- -- einsum --------------------------------------------------------------------------------

local ELLIPSIS_END = 60 -- label of the last dimension of an ellipsis; those before it count down

local function label_of(c)
  local b = c:byte()
  if b >= 97 and b <= 122 then return b - 96 end
  if b >= 65 and b <= 90 then return b - 38 end
end

-- 'i...j' into letters before and after the ellipsis; dots: there is one
local function subscript(text, what)
  local before, after = text:match '^(.-)%.%.%.(.*)$'
  local dots = before ~= nil
  before, after = before or text, after or ''
  local bad = (before .. after):match '[^%a]'
  if bad == '.' then err.throw('einsum', "%s '%s': dots stand as one ellipsis '...' only", what, text) end
  if bad then err.throw('einsum', "%s '%s': a subscript is a letter, got '%s'", what, text, bad) end
  return { text = text, before = before, after = after, dots = dots }
end

local function parse(equation)
  local text = equation:gsub('%s+', '')
  local left, right = text:match '^(.-)%->(.*)$'
  left = left or text
  local inputs = {}
  for s in (left .. ','):gmatch '([^,]*),' do
    inputs[#inputs + 1] = subscript(s, 'operand ' .. #inputs + 1)
  end
  return inputs, right and subscript(right, 'the output')
end

-- Letters that stand once in all operands, capitals first: the output where none is written.
local function implicit(inputs)
  local count, once = {}, {}
  for _, s in ipairs(inputs) do
    for c in (s.before .. s.after):gmatch '.' do count[c] = (count[c] or 0) + 1 end
  end
  for c, n in pairs(count) do
    if n == 1 then once[#once + 1] = c end
  end
  table.sort(once)
  return { text = '', before = '', after = table.concat(once), dots = true }
end

-- Labels in one integer, 6 bits each; n dimensions for the ellipsis
local function pack(s, n, what)
  local packed, unit, count = 0, 1, 0
  local function put(label)
    count = count + 1
    packed, unit = packed + label * unit, unit * 64
  end
  for c in s.before:gmatch '.' do put(label_of(c)) end
  if s.dots then
    for k = n - 1, 0, -1 do put(ELLIPSIS_END - k) end
  end
  for c in s.after:gmatch '.' do put(label_of(c)) end
  if count > 8 then err.throw('einsum', "%s '%s' has %d dimensions; tensors have at most 8", what, s.text, count) end
  return packed
end

local parsed, kept = {}, 0

local function plan(equation)
  local p = parsed[equation]
  if p then return p end
  local inputs, output = parse(equation)
  p = { inputs = inputs, output = output or implicit(inputs) }
  if kept >= 256 then parsed, kept = {}, 0 end
  parsed[equation], kept = p, kept + 1
  return p
end

--- Sum of products in Einstein's notation.
-- A letter names a dimension; a letter in several operands (or twice in one: a diagonal) runs
-- through them together; what the output lacks is summed over. `...` stands for any number of
-- dimensions, which broadcast. Without `->` the output has the letters that stand once, sorted.
-- Pairs of operands are multiplied in the order that is cheapest.
-- @tparam string equation
-- @tparam Tensor ... up to 8 operands, or a list of them
-- @treturn Tensor
-- @raise letters and dimensions that don't match, with both sizes
-- @usage amp.einsum('bij,bjk->bik', a, b)
function M.einsum(equation, ...)
  local row = ops.get 'einsum'
  if type(equation) ~= 'string' then
    if type(equation) == 'table' then return row(equation, ...) end
    err.throw('einsum', "argument 1 'equation' must be a string like 'ij,jk->ik', got %s", is_tensor(equation) and 'a tensor' or util.show(equation))
  end
  local list = { ... }
  if select('#', ...) == 1 and type(list[1]) == 'table' then list = list[1] end
  list_of_tensors('einsum', list, 1)
  local p = plan(equation)
  local inputs = p.inputs
  if #list ~= #inputs then
    err.throw('einsum', "'%s' has subscripts for %d operand%s, got %d", equation, #inputs, #inputs == 1 and '' or 's', #list)
  end
  local packed, most = {}, 0
  for i, t in ipairs(list) do
    local s, nd = inputs[i], t:dim()
    local n = nd - #s.before - #s.after
    if n < 0 or (n > 0 and not s.dots) then
      err.throw_code('shape', 'einsum', "subscripts '%s' name %d dimension%s, operand %d has %d (shape %s)", s.text, #s.before + #s.after,
        #s.before + #s.after == 1 and '' or 's', i, nd, tostring(t:size()))
    end
    if n > most then most = n end
    packed[i] = pack(s, n, 'operand ' .. i)
  end
  return row(list, packed, pack(p.output, most, 'the output'))
end

-- -- tensordot ---------------------------------------------------------------------------------

--- Product summed over dimensions of both tensors.
-- @tparam Tensor input
-- @tparam Tensor other
-- @tparam ?number|table dims how many: input's last, other's first (default 2); or
-- {dimensions of input, dimensions of other}
-- @treturn Tensor input's other dimensions, then other's
-- @usage amp.tensordot(a, b, {{2, 3}, {1, 2}})
function M.tensordot(input, other, dims, ...)
  local row = ops.get 'tensordot'
  if type(dims) == 'table' and (dims[1] ~= nil or dims.dims ~= nil) then
    local d = dims[1] ~= nil and dims or dims.dims
    if type(d) == 'table' then
      if #d ~= 2 then err.throw('tensordot', 'dims must be a number or two lists of dimensions, got a list of %d', #d) end
      local a, b = d[1], d[2]
      a, b = type(a) == 'number' and { a } or a, type(b) == 'number' and { b } or b
      if type(a) == 'table' and type(b) == 'table' and #a == 0 and #b == 0 then return row(input, other, 0) end
      return row(input, other, nil, a, b)
    end
  end
  return row(input, other, dims, ...)
end

-- -- chain_matmul ----------------------------------------------------------------------------------

--- Product of several matrices, multiplied in the order that takes the fewest operations.
-- The first and the last may be vectors.
-- @tparam Tensor ... or a list of them
-- @usage amp.chain_matmul(a, b, c)
function M.chain_matmul(first, ...)
  local row = ops.get 'chain_matmul'
  if is_tensor(first) then return row(list_of_tensors('chain_matmul', { first, ... })) end
  return row(first, ...)
end
M.multi_dot = M.chain_matmul

-- -- multi_head_attention ------------------------------------------------------------------------------

local parts = { 'in_proj_weight', 'q_proj_weight', 'k_proj_weight', 'v_proj_weight', 'in_proj_bias', 'bias_k', 'bias_v',
  'out_proj_weight', 'out_proj_bias', 'attn_mask', 'key_padding_mask' }
local place = {}
for i, name in ipairs(parts) do place[name] = 2 ^ (i - 1) end
local settings = { 'add_zero_attn', 'dropout_p', 'training', 'need_weights', 'average_attn_weights', 'is_causal', 'batch_first' }
local positions = { 'in_proj_weight', 'in_proj_bias', 'out_proj_weight', 'out_proj_bias' }
local known, is_known = {}, {}
for _, list in ipairs { parts, settings } do
  for _, name in ipairs(list) do
    known[#known + 1] = name
    is_known[name] = true
  end
end

--- Attention of several heads between projections, as F.multi_head_attention_forward.
-- Masks: a bool is true where a key takes no part, a float is added to the scores.
-- @tparam Tensor query length x batch x size (or batch x length x size with `batch_first`, or length x size)
-- @tparam Tensor key keys' length x batch x size
-- @tparam Tensor value as key
-- @tparam number num_heads
-- @tparam ?Tensor in_proj_weight 3 size x size; nil with q_proj_weight, k_proj_weight, v_proj_weight
-- @tparam ?Tensor in_proj_bias 3 size
-- @tparam Tensor out_proj_weight size x size
-- @tparam ?Tensor out_proj_bias size
-- @tparam ?table options the tensors above by name, q_proj_weight, k_proj_weight, v_proj_weight, bias_k, bias_v,
-- attn_mask (length x keys, or batch * heads x length x keys), key_padding_mask (batch x keys), add_zero_attn (false),
-- dropout_p (0), training (true), need_weights (true), average_attn_weights (true), is_causal (false), batch_first (false)
-- @treturn Tensor query's shape
-- @treturn ?Tensor weights, batch x length x keys (batch x heads x length x keys if not averaged), with need_weights
function M.multi_head_attention(query, key, value, num_heads, ...)
  local op, row = 'multi_head_attention', ops.get 'multi_head_attention'
  if type(num_heads) == 'table' then return row(query, key, value, num_heads, ...) end
  local n, given, options = select('#', ...), { ... }, {}
  if n > 0 and type(given[n]) == 'table' then
    for k, v in pairs(given[n]) do
      if not is_known[k] then
        err.throw(op, 'unknown option %s%s (there are %s)', util.show(k), util.hint(k, known), table.concat(known, ', '))
      end
      options[k] = v
    end
    n = n - 1
  end
  if n > #positions then err.throw(op, 'takes at most %d arguments and options, got %d', #positions + 4, n + 4) end
  for i = 1, n do
    if given[i] ~= nil then
      if options[positions[i]] ~= nil then err.throw(op, "'%s' is given twice, in place %d and as an option", positions[i], i + 4) end
      options[positions[i]] = given[i]
    end
  end
  local list, bits = {}, 0
  local attributes = { num_heads = num_heads }
  for _, name in ipairs(parts) do
    local t = options[name]
    if t ~= nil and t ~= false then
      if not is_tensor(t) then err.throw(op, "'%s' must be a tensor, got %s", name, util.show(t)) end
      list[#list + 1] = t
      bits = bits + place[name]
    end
  end
  for k, v in pairs(options) do
    if not place[k] then attributes[k] = v end
  end
  attributes.parts = bits
  return row(query, key, value, list, attributes)
end

return M

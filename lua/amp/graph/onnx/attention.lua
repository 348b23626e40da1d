--- Attention in ONNX: functions of the writer and a node that give the names of their results.
-- @module amp.graph.onnx.attention
local layers = require 'amp.graph.onnx.layers'

local X = {}

local INF = math.huge

-- Size of a dimension as a list of one.
local function size_of(e, name, rank, d)
  return e:emit('Gather', {e:emit('Shape', {name}), e:ints {d < 0 and rank + d or d}}, {axis = 0})
end

-- true where a key takes part: rows x keys.
local function causal_mask(e, q, k, rank)
  local sizes = e:emit('Concat', {size_of(e, q, rank, -2), size_of(e, k, rank, -2)}, {axis = 0})
  local ones = e:emit('Expand', {e:scalar(1, 'int32'), sizes})
  return e:cast(e:emit('Trilu', {ones}, {upper = 0}), 'int32', 'bool')
end

-- softmax(q k^T scale + mask), rows without a key 0 where there is a mask.
local function weights_of(e, q, k, o)
  local perm = {}
  for d = 1, o.rank do perm[d] = d - 1 end
  perm[o.rank - 1], perm[o.rank] = o.rank - 1, o.rank - 2
  local function number(v) return e:scalar(v, o.dtype) end
  local s = e:emit('MatMul', {e:emit('Mul', {q, number(o.scale)}), e:emit('Transpose', {k}, {perm = perm})})
  if o.causal then s = e:emit('Where', {causal_mask(e, q, k, o.rank), s, number(-INF)}) end
  if o.mask then
    if o.mask_is_bool then s = e:emit('Where', {o.mask, s, number(-INF)})
    else s = e:emit('Add', {s, o.mask}) end
    local none = e:emit('Equal', {e:emit('ReduceMax', {s}, {axes = {-1}, keepdims = 1}), number(-INF)})
    local p = e:emit('Softmax', {e:emit('Where', {none, number(0), s})}, {axis = -1})
    return e:emit('Where', {none, number(0), p})
  end
  return e:emit('Softmax', {s}, {axis = -1})
end

-- Heads of keys or values, each as often as queries share it.
local function repeated(e, n, name, i)
  if n:rank(i) ~= 4 then n:fail 'has a counterpart with enable_gqa for 4 dimensions only' end
  local heads, size = n:size(1, 2), n:size(i, 4)
  local times = heads / n:size(i, 2)
  if times == 1 then return name end
  local many = e:emit('Tile', {e:emit('Unsqueeze', {name, e:ints {2}}), e:ints {1, 1, times, 1, 1}})
  return e:emit('Reshape', {many, e:ints {0, heads, -1, size}})
end

local function attend(e, n, scale)
  local dtype, rank = n:result().dtype, n:rank(1)
  for i = 2, 3 do
    if n:rank(i) ~= rank then n:fail 'has a counterpart for query, key and value of one number of dimensions' end
  end
  local bool = n:has(4) and n:dtype(4) == 'bool'
  local o = {rank = rank, dtype = dtype, scale = scale, causal = n:attr 'is_causal', mask_is_bool = bool}
  o.mask = n:has(4) and n:input(4, bool and 'bool' or dtype)
  local k, v = n:input(2, dtype), n:input(3, dtype)
  if n.op ~= 'attention' and n:attr 'enable_gqa' then k, v = repeated(e, n, k, 2), repeated(e, n, v, 3) end
  return e:emit('MatMul', {weights_of(e, n:input(1, dtype), k, o), v})
end

function X.scaled_dot_product_attention(e, n)
  if n:attr 'dropout_p' ~= 0 then n:fail 'has dropout; call net:eval() before the graph is traced' end
  return attend(e, n, n:attr 'scale' or 1 / math.sqrt(n:size(1, n:rank(1))))
end

function X.attention(e, n)
  if n:attr 'dropout_p' ~= 0 then n:fail 'has dropout; call net:eval() before the graph is traced' end
  if n:result(2) then n:fail 'keeps what its gradient needs; export the graph before it is optimized' end
  return attend(e, n, n:attr 'scale')
end

local PARTS = {'in_w', 'q_w', 'k_w', 'v_w', 'in_b', 'bias_k', 'bias_v', 'out_w', 'out_b', 'mask', 'padding'}

local function parts_of(n)
  local bits, parts, at = n:attr 'parts', {}, 4
  for i, name in ipairs(PARTS) do
    if math.floor(bits / 2 ^ (i - 1)) % 2 == 1 then
      parts[name], at = at, at + 1
    end
  end
  return parts
end

-- The three projections, as names.
local function project(e, n, parts, dtype)
  local size = parts.in_w and n:shape(parts.in_w)[1] / 3 or n:shape(parts.q_w)[1]
  local biases = {'', '', ''}
  local weights = parts.in_w and {e:emit('Split', {n:input(parts.in_w, dtype)}, {axis = 0}, 3)}
    or {n:input(parts.q_w, dtype), n:input(parts.k_w, dtype), n:input(parts.v_w, dtype)}
  if parts.in_b then biases = {e:emit('Split', {n:input(parts.in_b, dtype)}, {axis = 0}, 3)} end
  local data = {}
  for i = 1, 3 do data[i] = layers.linear_of(e, n:input(i, dtype), weights[i], biases[i], n:rank(1)) end
  return data, size
end

local function additive(e, name, from, dtype)
  if from ~= 'bool' then return e:cast(name, from, dtype) end
  return e:emit('Where', {name, e:scalar(-INF, dtype), e:scalar(0, dtype)})
end

local function masks(e, n, parts, heads, dtype)
  local mask
  if parts.mask then
    mask = additive(e, n:input(parts.mask), n:dtype(parts.mask), dtype)
    if n:rank(parts.mask) == 3 then -- batch * heads x rows x keys
      local whole = e:emit('Shape', {mask})
      local tail = e:emit('Slice', {whole, e:ints {1}, e:ints {3}, e:ints {0}})
      mask = e:emit('Reshape', {mask, e:emit('Concat', {e:ints {-1, heads}, tail}, {axis = 0})})
    end
  end
  if parts.padding then
    local padding = additive(e, n:input(parts.padding), n:dtype(parts.padding), dtype)
    padding = e:emit('Unsqueeze', {padding, e:ints(n:rank(parts.padding) == 1 and {0, 1, 2} or {1, 2})})
    mask = mask and e:emit('Add', {mask, padding}) or padding
  end
  return mask
end

function X.multi_head_attention(e, n)
  local dtype, parts, heads = n:result().dtype, parts_of(n), n:attr 'num_heads'
  if n:attr 'training' and n:attr 'dropout_p' > 0 then n:fail 'has dropout; call net:eval() before the graph is traced' end
  if parts.bias_k or n:attr 'add_zero_attn' then n:fail 'has no counterpart with bias_k, bias_v or add_zero_attn' end
  local single, first = n:rank(1) == 2, n:attr 'batch_first'
  local data, size = project(e, n, parts, dtype)
  local perm = first and {0, 2, 1, 3} or {1, 2, 0, 3}
  if single then perm = {0, 2, 1, 3} end
  for i = 1, 3 do -- batch x heads x length x size of a head
    if single then data[i] = e:emit('Unsqueeze', {data[i], e:ints {0}}) end
    data[i] = e:emit('Transpose', {e:emit('Reshape', {data[i], e:ints {0, 0, heads, size / heads}})}, {perm = perm})
  end
  local o = {rank = 4, dtype = dtype, scale = 1 / math.sqrt(size / heads), causal = n:attr 'is_causal' and not parts.mask}
  o.mask = masks(e, n, parts, heads, dtype)
  local p = weights_of(e, data[1], data[2], o)
  local out = e:emit('Transpose', {e:emit('MatMul', {p, data[3]})}, {perm = (first or single) and {0, 2, 1, 3} or {2, 0, 1, 3}})
  out = e:emit('Reshape', {out, e:ints {0, 0, size}})
  if single then out = e:emit('Squeeze', {out, e:ints {0}}) end
  out = layers.linear_of(e, out, n:input(parts.out_w, dtype), parts.out_b and n:input(parts.out_b, dtype) or '', n:rank(1))
  if not n:result(2) then return out end
  if n:attr 'average_attn_weights' then p = e:emit('ReduceMean', {p}, {axes = {1}, keepdims = 0}) end
  return out, single and e:emit('Squeeze', {p, e:ints {0}}) or p
end

return X

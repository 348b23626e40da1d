--- Indexing, sorting and reductions in ONNX: functions of the writer and a node that give the names of its results.
-- Indices count from 1 in amp and from 0 in ONNX: operands are lowered, results raised.
-- @module amp.graph.onnx.index
local floats = require('amp.graph.onnx.node').floats

local X = {}

-- -- Indices -----------------------------------------------------------------------------------------------

-- Operand i from 0; negative ones are from the end in both.
local function lowered(e, n, i)
  local v = n.inputs[i]
  local known = v.tensor ~= nil and not v.number and n.constant(v)
  if known then
    local list = {}
    for k, x in ipairs(known.list) do list[k] = x > 0 and x - 1 or x end
    return e:const(list, 'int64', known.shape)
  end
  local x = n:input(i, 'int64')
  return e:emit('Sub', {x, e:cast(e:emit('Greater', {x, e:scalar(0, 'int64')}), 'bool', 'int64')})
end

local function raised(e, n, name, i)
  return e:cast(e:emit('Add', {name, e:scalar(1, 'int64')}), 'int64', n:result(i).dtype)
end

function X.index_select(e, n)
  return e:emit('Gather', {n:input(1), lowered(e, n, 2)}, {axis = n:dim('dim', n:rank(1))})
end

function X.embedding(e, n) return e:emit('Gather', {n:input(2), lowered(e, n, 1)}, {axis = 0}) end

function X.take(e, n)
  return e:emit('Gather', {e:emit('Reshape', {n:input(1), e:ints {-1}}), lowered(e, n, 2)}, {axis = 0})
end

function X.gather(e, n)
  return e:emit('GatherElements', {n:input(1), lowered(e, n, 2)}, {axis = n:dim('dim', n:rank(1))})
end

function X.scatter(e, n)
  local dtype = n:result().dtype
  local index = lowered(e, n, 2)
  local values
  if n:number(3) then values = e:emit('Expand', {n:input(3, dtype), e:emit('Shape', {index})})
  else
    values = n:input(3, dtype)
    for d, s in ipairs(n:shape(2)) do
      if n:shape(3)[d] ~= s then n:fail 'has a counterpart for src of the index\'s shape only' end
    end
  end
  return e:emit('ScatterElements', {n:input(1, dtype), index, values}, {axis = n:dim('dim', n:rank(1))})
end

function X.scatter_add(e, n)
  if e.opset < 16 then n:fail 'has a counterpart from opset 16 on' end
  local dtype = n:result().dtype
  for d, s in ipairs(n:shape(2)) do
    if n:shape(3)[d] ~= s then n:fail 'has a counterpart for src of the index\'s shape only' end
  end
  return e:emit('ScatterElements', {n:input(1, dtype), lowered(e, n, 2), n:input(3, dtype)}, {axis = n:dim('dim', n:rank(1)), reduction = 'add'})
end

-- Index tensors as the last dimension of one, broadcast together; dims must be consecutive.
local function joined(e, n, from)
  local dims = n:dims('dims', n:rank(1))
  for k = 2, #dims do
    if dims[k] ~= dims[1] + k - 1 then n:fail 'has a counterpart for neighbouring dimensions only' end
  end
  local names, wide = {}, nil
  for k = 1, #dims do
    if n:dtype(from + k) == 'bool' then n:fail 'has no counterpart for masks; use masked_select or where' end
    names[k] = lowered(e, n, from + k)
    wide = wide and e:emit('Add', {wide, names[k]}) or names[k]
  end
  local full = e:emit('Shape', {wide})
  for k = 1, #names do
    local x = #names > 1 and e:emit('Expand', {names[k], full}) or names[k]
    names[k] = e:emit('Unsqueeze', {x, e:ints {-1}})
  end
  return #names == 1 and names[1] or e:emit('Concat', names, {axis = -1}), dims
end

function X.index(e, n)
  local rank = n:rank(1)
  local dims = n:dims('dims', rank)
  if #dims == 1 and n:dtype(2) ~= 'bool' then return e:emit('Gather', {n:input(1), lowered(e, n, 2)}, {axis = dims[1]}) end
  local index
  index, dims = joined(e, n, 1)
  local first, count = dims[1], #dims
  if first == 0 then return e:emit('GatherND', {n:input(1), index}) end
  local perm, back = {}, {}
  for k = 0, count - 1 do perm[#perm + 1] = first + k end
  for d = 0, rank - 1 do
    if d < first or d >= first + count then perm[#perm + 1] = d end
  end
  local out = e:emit('GatherND', {e:emit('Transpose', {n:input(1)}, {perm = perm}), index})
  local width = #n:result().shape - (rank - count)
  for d = 0, first - 1 do back[#back + 1] = width + d end
  for d = 0, width - 1 do back[#back + 1] = d end
  for d = width + first, #n:result().shape - 1 do back[#back + 1] = d end
  return e:emit('Transpose', {out}, {perm = back})
end

function X.index_put(e, n)
  local dtype, add = n:result().dtype, n:attr 'accumulate'
  if add and e.opset < 16 then n:fail 'adds, which has a counterpart from opset 16 on' end
  local index, dims = joined(e, n, 2)
  if dims[1] ~= 0 then n:fail 'has a counterpart for the first dimensions only' end
  local wanted = e:emit('Shape', {e:emit('GatherND', {n:input(1), index})})
  local values = e:emit('Expand', {n:input(2, dtype), wanted})
  return e:emit('ScatterND', {n:input(1, dtype), index, values}, add and {reduction = 'add'} or nil)
end

function X.masked_select(e, n)
  local x, mask = n:input(1), n:input(2, 'bool')
  local full = e:emit('Shape', {e:emit('Where', {mask, x, x})})
  local function flat(name) return e:emit('Reshape', {e:emit('Expand', {name, full}), e:ints {-1}}) end
  return e:emit('Compress', {flat(x), flat(mask)}, {axis = 0})
end

function X.nonzero(e, n)
  return raised(e, n, e:emit('Transpose', {e:emit('NonZero', {n:input(1)})}, {perm = {1, 0}}))
end

function X.one_hot(e, n)
  local classes = n:attr 'num_classes'
  if classes < 1 then n:fail 'takes its number of classes from the labels; give it' end
  return e:cast(e:emit('OneHot', {lowered(e, n, 1), e:scalar(classes, 'int64'), e:const({0, 1}, 'int64')}, {axis = -1}), 'int64', n:result().dtype)
end

-- -- Sorting -----------------------------------------------------------------------------------------------

-- Size of dimension `axis` of operand 1 as a list of one.
local function size_of(e, n, axis)
  if n:fixed(1, axis + 1) then return e:ints {n:shape(1)[axis + 1]} end
  return e:emit('Gather', {e:emit('Shape', {n:input(1)}), e:ints {axis}}, {axis = 0})
end

local function sorted(e, n)
  if n:rank(1) == 0 then n:fail 'has no counterpart for scalars' end
  local axis, dtype = n:dim('dim', n:rank(1)), n:dtype(1)
  local wide = dtype == 'bool' and 'int32' or dtype
  local values, index = e:emit('TopK', {n:input(1, wide), size_of(e, n, axis)}, {axis = axis, largest = n:attr 'descending' and 1 or 0, sorted = 1}, 2)
  return e:cast(values, wide, dtype), index
end
function X.sort(e, n)
  local values, index = sorted(e, n)
  return values, n:result(2) and raised(e, n, index, 2)
end
function X.argsort(e, n)
  local _, index = sorted(e, n)
  return raised(e, n, index, 1)
end
function X.topk(e, n)
  if n:rank(1) == 0 then n:fail 'has no counterpart for scalars' end
  local k = n:free 'k'
  local values, index = e:emit('TopK', {n:input(1), e:shape {k}},
    {axis = n:dim('dim', n:rank(1)), largest = n:attr 'largest' and 1 or 0, sorted = n:attr 'sorted' and 1 or 0}, 2)
  return values, n:result(2) and raised(e, n, index, 2)
end

-- -- Reductions --------------------------------------------------------------------------------------------

local function axes_of(n) return n:rank(1) > 0 and n:dims('dim', n:rank(1)) or nil end

local function reduce(e, op, x, axes, keep)
  if axes and #axes == 0 then axes = nil end
  if op == 'ReduceSum' then return e:emit(op, {x, axes and e:ints(axes) or ''}, {keepdims = keep}) end
  return e:emit(op, {x}, {keepdims = keep, axes = axes})
end
X.reduce_by = reduce

for name, op in pairs {sum = 'ReduceSum', mean = 'ReduceMean', amax = 'ReduceMax', amin = 'ReduceMin', logsumexp = 'ReduceLogSumExp'} do
  X[name] = function(e, n)
    local dtype = n:result().dtype
    return e:cast(reduce(e, op, n:input(1, dtype == 'bool' and 'int32' or dtype), axes_of(n), n:attr 'keepdim'), dtype == 'bool' and 'int32' or dtype, dtype)
  end
end

local function one_axis(n)
  local d = n:rank(1) > 0 and n:dim('dim', n:rank(1)) or nil
  return d and {d} or nil
end

function X.prod(e, n) return reduce(e, 'ReduceProd', n:input(1, n:result().dtype), one_axis(n), n:attr 'keepdim') end

local function place(e, n, op, axes, keep)
  local x = n:input(1, n:dtype(1) == 'bool' and 'int32' or nil)
  if axes then return e:emit(op, {x}, {axis = axes[1], keepdims = keep}) end
  local flat = e:emit(op, {e:emit('Reshape', {x, e:ints {-1}})}, {axis = 0, keepdims = 0})
  if not keep then return flat end
  local ones = {}
  for d = 1, n:rank(1) do ones[d] = 1 end
  return #ones > 0 and e:emit('Reshape', {flat, e:ints(ones)}) or flat
end

for name, op in pairs {max = 'Max', min = 'Min'} do
  X[name] = function(e, n)
    local axes, keep, dtype = one_axis(n), n:attr 'keepdim', n:dtype(1)
    local wide = dtype == 'bool' and 'int32' or dtype
    local values = e:cast(reduce(e, 'Reduce' .. op, n:input(1, wide), axes, keep), wide, dtype)
    return values, n:result(2) and raised(e, n, place(e, n, 'Arg' .. op, axes, keep), 2)
  end
  X['arg' .. name] = function(e, n) return raised(e, n, place(e, n, 'Arg' .. op, one_axis(n), n:attr 'keepdim'), 1) end
end

local function nonzero(e, n, x)
  return e:cast(reduce(e, 'ReduceSum', e:cast(x, 'bool', 'int64'), axes_of(n), n:attr 'keepdim'), 'int64', 'bool')
end
function X.any(e, n) return nonzero(e, n, n:input(1, 'bool')) end
function X.all(e, n) return e:emit('Not', {nonzero(e, n, e:emit('Not', {n:input(1, 'bool')}))}) end

function X.count_nonzero(e, n)
  local x = e:cast(n:input(1, 'bool'), 'bool', 'int64')
  return reduce(e, 'ReduceSum', x, axes_of(n), false)
end

local function variance(e, n)
  local dtype, axes, keep, correction = n:result().dtype, axes_of(n), n:attr 'keepdim', n:attr 'correction'
  local x = n:input(1, dtype)
  local off = e:emit('Sub', {x, reduce(e, 'ReduceMean', x, axes, true)})
  local squares = e:emit('Mul', {off, off})
  if correction == 0 then return reduce(e, 'ReduceMean', squares, axes, keep) end
  local list, count = axes, 1
  if not list then
    list = {}
    for d = 1, n:rank(1) do list[d] = d - 1 end
  end
  for _, a in ipairs(list) do count = n:fixed(1, a + 1) and count and count * n:shape(1)[a + 1] or nil end
  local divisor
  if count then divisor = e:scalar(count - correction, dtype)
  else
    local sizes = e:emit('Gather', {e:emit('Shape', {x}), e:ints(list)}, {axis = 0})
    divisor = e:emit('Sub', {e:cast(e:emit('ReduceProd', {sizes}, {keepdims = 0}), 'int64', dtype), e:scalar(correction, dtype)})
  end
  return e:emit('Div', {reduce(e, 'ReduceSum', squares, axes, keep), divisor})
end
X.var = variance
function X.std(e, n) return e:emit('Sqrt', {variance(e, n)}) end

local function norm_of(e, x, p, axes, keep, dtype)
  if p == 2 then return reduce(e, 'ReduceL2', x, axes, keep) end
  if p == 1 then return reduce(e, 'ReduceL1', x, axes, keep) end
  local size = e:emit('Abs', {x})
  if p == math.huge then return reduce(e, 'ReduceMax', size, axes, keep) end
  if p == -math.huge then return reduce(e, 'ReduceMin', size, axes, keep) end
  if p == 0 then
    local some = e:emit('Not', {e:emit('Equal', {x, e:scalar(0, dtype)})})
    return reduce(e, 'ReduceSum', e:cast(some, 'bool', dtype), axes, keep)
  end
  local sum = reduce(e, 'ReduceSum', e:emit('Pow', {size, e:scalar(p, dtype)}), axes, keep)
  return e:emit('Pow', {sum, e:scalar(1 / p, dtype)})
end

for name, p in pairs {norm = 'p', vector_norm = 'ord', lp_norm = 'p'} do
  X[name] = function(e, n)
    local dtype = n:result().dtype
    return norm_of(e, n:input(1, dtype), n:attr(p), axes_of(n), n:attr 'keepdim', dtype)
  end
end

function X.normalize(e, n)
  local dtype = n:result().dtype
  local wide = dtype == 'float64' and dtype or 'float32' -- eps is nothing in half precision
  local x = n:input(1, wide)
  local size = norm_of(e, x, n:attr 'p', one_axis(n), true, wide)
  return e:cast(e:emit('Div', {x, e:emit('Max', {size, e:scalar(n:attr 'eps', wide)})}), wide, dtype)
end

function X.cumsum(e, n)
  local dtype = n:result().dtype
  if n:rank(1) == 0 then return n:input(1, dtype) end
  local wide = floats[dtype] and dtype or dtype == 'int32' and dtype or 'int64'
  return e:cast(e:emit('CumSum', {n:input(1, wide), e:scalar(n:dim('dim', n:rank(1)), 'int64')}), wide, dtype)
end

X.lowered_index, X.raised_index, X.norm_of = lowered, raised, norm_of

return X

--- Ops that ONNX has no op for but several that make it: functions of the writer and a node that give the names of its results.
-- @module amp.graph.onnx.compose
local index = require 'amp.graph.onnx.index'
local floats = require('amp.graph.onnx.node').floats

local X = {}

-- o(op, a, b) for a node, c(v) for a number of the result's dtype.
local function tools(e, n)
  local dtype = n:result().dtype
  return dtype, function(op, ...) return e:emit(op, {...}) end, function(v) return e:scalar(v, dtype) end
end

-- -- Losses ------------------------------------------------------------------------------------------------

local function reduced(e, n, loss)
  local how = n:attr 'reduction'
  if how == 'none' then return loss end
  return e:emit(how == 'mean' and 'ReduceMean' or 'ReduceSum', {loss}, {keepdims = 0})
end

function X.bce_with_logits(e, n)
  local dtype, o, c = tools(e, n)
  local x, t = n:input(1, dtype), n:input(2, dtype)
  local beyond = o('Softplus', o('Neg', x))
  if n:has(4) then beyond = o('Mul', beyond, o('Add', o('Mul', o('Sub', n:input(4, dtype), c(1)), t), c(1))) end
  local loss = o('Add', o('Mul', o('Sub', c(1), t), x), beyond)
  if n:has(3) then loss = o('Mul', loss, n:input(3, dtype)) end
  return reduced(e, n, loss)
end

function X.smooth_l1_loss(e, n)
  local dtype, o, c = tools(e, n)
  local beta = n:attr 'beta'
  local off = o('Abs', o('Sub', n:input(1, dtype), n:input(2, dtype)))
  if beta == 0 then return reduced(e, n, off) end
  local near = o('Mul', o('Mul', off, off), c(0.5 / beta))
  return reduced(e, n, o('Where', o('Less', off, c(beta)), near, o('Sub', off, c(beta / 2))))
end

function X.huber_loss(e, n)
  local dtype, o, c = tools(e, n)
  local delta = n:attr 'delta'
  local off = o('Abs', o('Sub', n:input(1, dtype), n:input(2, dtype)))
  local near, far = o('Mul', o('Mul', off, off), c(0.5)), o('Mul', o('Sub', off, c(delta / 2)), c(delta))
  return reduced(e, n, o('Where', o('LessOrEqual', off, c(delta)), near, far))
end

-- -- Distances ---------------------------------------------------------------------------------------------

function X.cosine_similarity(e, n)
  local made = n:result().dtype
  local dtype = made == 'float64' and made or 'float32' -- eps is nothing in half precision
  local function o(op, ...) return e:emit(op, {...}) end
  local rank = math.max(n:rank(1), n:rank(2))
  local same = n:rank(1) == n:rank(2)
  for d, s in ipairs(n:shape(1)) do same = same and n:shape(2)[d] == s end
  if not same then n:fail 'has a counterpart for operands of one shape only' end
  local a, b, axes = n:input(1, dtype), n:input(2, dtype), {n:dim('dim', rank)}
  local function length(x) return o('Max', index.reduce_by(e, 'ReduceL2', x, axes, false), e:scalar(n:attr 'eps', dtype)) end
  local cosine = o('Div', index.reduce_by(e, 'ReduceSum', o('Mul', a, b), axes, false), o('Mul', length(a), length(b)))
  return e:cast(cosine, dtype, made)
end

function X.pairwise_distance(e, n)
  local dtype, o, c = tools(e, n)
  local off = o('Add', o('Sub', n:input(1, dtype), n:input(2, dtype)), c(n:attr 'eps'))
  return index.norm_of(e, off, n:attr 'p', {-1}, n:attr 'keepdim', dtype)
end

function X.isclose(e, n)
  local dtype = n:meeting()
  if n:attr 'equal_nan' or not floats[dtype] then n:fail 'has a counterpart for floats without equal_nan only' end
  local function o(op, ...) return e:emit(op, {...}) end
  local a, b = n:input(1, dtype), n:input(2, dtype)
  local bound = o('Add', o('Mul', o('Abs', b), e:scalar(n:attr 'rtol', dtype)), e:scalar(n:attr 'atol', dtype))
  local off = o('Abs', o('Sub', a, b))
  local near = o('And', o('LessOrEqual', off, bound), o('Less', off, e:scalar(math.huge, dtype)))
  return o('Or', near, o('Equal', a, b))
end

-- -- Reductions --------------------------------------------------------------------------------------------

function X.aminmax(e, n)
  local dtype = n:dtype(1)
  local wide = dtype == 'bool' and 'int32' or dtype
  local x, d = n:input(1, wide), n:rank(1) > 0 and n:dim('dim', n:rank(1)) or nil
  local function one(op) return e:cast(index.reduce_by(e, op, x, d and {d}, n:attr 'keepdim'), wide, dtype) end
  return one 'ReduceMin', one 'ReduceMax'
end

function X.nansum(e, n)
  local dtype, o, c = tools(e, n)
  local x = n:input(1, dtype)
  if floats[dtype] then x = o('Where', o('IsNaN', x), c(0), x) end
  return index.reduce_by(e, 'ReduceSum', x, n:rank(1) > 0 and n:dims('dim', n:rank(1)) or nil, n:attr 'keepdim')
end

function X.trace(e, n)
  local dtype, o = tools(e, n)
  local x = n:input(1, dtype)
  return e:emit('ReduceSum', {o('Mul', x, e:emit('EyeLike', {x}))}, {keepdims = 0})
end

function X.kthvalue(e, n)
  if n:rank(1) == 0 then n:fail 'has no counterpart for scalars' end
  local axis, k = n:dim('dim', n:rank(1)), n:attr 'k'
  local values, places = e:emit('TopK', {n:input(1), e:ints {k}}, {axis = axis, largest = 0, sorted = 1}, 2)
  local at = n:attr 'keepdim' and e:ints {k - 1} or e:scalar(k - 1, 'int64')
  local out = e:emit('Gather', {values, at}, {axis = axis})
  return out, n:result(2) and index.raised_index(e, n, e:emit('Gather', {places, at}, {axis = axis}), 2)
end

-- -- Products ----------------------------------------------------------------------------------------------

local function scaled(e, name, by, dtype) return by == 1 and name or e:emit('Mul', {name, e:scalar(by, dtype)}) end

local function plus(e, n, product, dtype)
  product = scaled(e, product, n:attr 'alpha', dtype)
  if n:attr 'beta' == 0 then return product end
  return e:emit('Add', {scaled(e, n:input(1, dtype), n:attr 'beta', dtype), product})
end

function X.addr(e, n)
  local dtype = n:result().dtype
  return plus(e, n, e:emit('Mul', {e:emit('Unsqueeze', {n:input(2, dtype), e:ints {1}}), n:input(3, dtype)}), dtype)
end

function X.addbmm(e, n)
  local dtype = n:result().dtype
  return plus(e, n, index.reduce_by(e, 'ReduceSum', e:emit('MatMul', {n:input(2, dtype), n:input(3, dtype)}), {0}, false), dtype)
end

function X.inner(e, n)
  local dtype = n:result().dtype
  if n:rank(1) == 0 or n:rank(2) == 0 or n:rank(2) > 2 then n:fail 'has a counterpart for a second operand of 1 or 2 dimensions only' end
  local other = n:input(2, dtype)
  if n:rank(2) == 2 then other = e:emit('Transpose', {other}, {perm = {1, 0}}) end
  return e:emit('MatMul', {n:input(1, dtype), other})
end

-- -- Writing at indices ------------------------------------------------------------------------------------

-- The vector of indices of a dimension as one for each element, and the shape that the elements have.
local function places(e, n, axis)
  local rank, at = n:rank(1), index.lowered_index(e, n, 2)
  if n:rank(2) ~= 1 or rank == 0 then n:fail 'has a counterpart for a vector of indices only' end
  local full, wide = e:emit('Shape', {e:emit('Gather', {n:input(1), at}, {axis = axis})}), {}
  for d = 1, rank do wide[d] = d == axis + 1 and -1 or 1 end
  return e:emit('Expand', {e:emit('Reshape', {at, e:ints(wide)}), full}), full
end

function X.index_copy(e, n)
  local axis, dtype = n:dim('dim', n:rank(1)), n:result().dtype
  return e:emit('ScatterElements', {n:input(1, dtype), places(e, n, axis), n:input(3, dtype)}, {axis = axis})
end

function X.index_fill(e, n)
  local axis, dtype = n:dim('dim', n:rank(1)), n:result().dtype
  local at, full = places(e, n, axis)
  return e:emit('ScatterElements', {n:input(1), at, e:emit('Expand', {e:scalar(n:attr 'value', dtype), full})}, {axis = axis})
end

function X.index_add(e, n)
  if e.opset < 16 then n:fail 'has a counterpart from opset 16 on' end
  local axis, dtype = n:dim('dim', n:rank(1)), n:result().dtype
  local source = scaled(e, n:input(3, dtype), n:attr 'alpha', dtype)
  local at = places(e, n, axis)
  return e:emit('ScatterElements', {n:input(1, dtype), at, source}, {axis = axis, reduction = 'add'})
end

local reductions = {sum = 'add', prod = 'mul'}

function X.scatter_reduce(e, n)
  local how = reductions[n:attr 'reduce']
  if not how or not n:attr 'include_self' or e.opset < 16 then n:fail 'has a counterpart for sum and prod with include_self, from opset 16 on' end
  for d, s in ipairs(n:shape(2)) do
    if n:shape(3)[d] ~= s then n:fail 'has a counterpart for src of the index\'s shape only' end
  end
  return e:emit('ScatterElements', {n:input(1), index.lowered_index(e, n, 2), n:input(3)}, {axis = n:dim('dim', n:rank(1)), reduction = how})
end

return X

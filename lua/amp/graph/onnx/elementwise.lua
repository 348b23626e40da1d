--- Element-wise ops in ONNX: functions of the writer and a node that give the names of its results, in its result's dtype.
-- @module amp.graph.onnx.elementwise
local X = {}

local floats = require('amp.graph.onnx.node').floats

for name, onnx in pairs {abs = 'Abs', neg = 'Neg', sign = 'Sign', exp = 'Exp', log = 'Log', sqrt = 'Sqrt', reciprocal = 'Reciprocal', sin = 'Sin',
  cos = 'Cos', tan = 'Tan', asin = 'Asin', acos = 'Acos', atan = 'Atan', sinh = 'Sinh', cosh = 'Cosh', asinh = 'Asinh', acosh = 'Acosh',
  atanh = 'Atanh', tanh = 'Tanh', sigmoid = 'Sigmoid', erf = 'Erf', relu = 'Relu', softsign = 'Softsign', hardswish = 'HardSwish'} do
  X[name] = function(e, n) return e:emit(onnx, {n:input(1, n:result().dtype)}) end
end

-- Of whole numbers these are the numbers themselves.
for name, onnx in pairs {floor = 'Floor', ceil = 'Ceil', round = 'Round'} do
  X[name] = function(e, n)
    if not floats[n:dtype(1)] then return n:input(1) end
    return e:emit(onnx, {n:input(1)})
  end
end

-- -- Formulas -----------------------------------------------------------------------------------------------

-- Formulas of x (in the result's dtype), with o(op, a, b) for a node and c(v) for a number.
local function formula(f)
  return function(e, n)
    local dtype = n:result().dtype
    local function o(op, ...) return e:emit(op, {...}) end
    local function c(v) return e:scalar(v, dtype) end
    return f(n:input(1, dtype), o, c, n, e)
  end
end

local function truncated(x, o) return o('Mul', o('Sign', x), o('Floor', o('Abs', x))) end

X.trunc = formula(function(x, o, _, n) return floats[n:dtype(1)] and truncated(x, o) or x end)
X.frac = formula(function(x, o) return o('Sub', x, truncated(x, o)) end)
X.exp2 = formula(function(x, o, c) return o('Pow', c(2), x) end)
X.log2 = formula(function(x, o, c) return o('Mul', o('Log', x), c(1 / math.log(2))) end)
X.log10 = formula(function(x, o, c) return o('Mul', o('Log', x), c(1 / math.log(10))) end)
X.rsqrt = formula(function(x, o) return o('Reciprocal', o('Sqrt', x)) end)
X.square = formula(function(x, o) return o('Mul', x, x) end)
X.erfc = formula(function(x, o, c) return o('Sub', c(1), o('Erf', x)) end)
X.silu = formula(function(x, o) return o('Mul', x, o('Sigmoid', x)) end)
X.mish = formula(function(x, o) return o('Mul', x, o('Tanh', o('Softplus', x))) end)
X.log_sigmoid = formula(function(x, o) return o('Neg', o('Softplus', o('Neg', x))) end)
X.tanhshrink = formula(function(x, o) return o('Sub', x, o('Tanh', x)) end)
X.cbrt = formula(function(x, o, c) return o('Mul', o('Sign', x), o('Pow', o('Abs', x), c(1 / 3))) end)
X.sinc = formula(function(x, o, c)
  local y = o('Mul', x, c(math.pi))
  return o('Where', o('Equal', x, c(0)), c(1), o('Div', o('Sin', y), y))
end)
-- exact near 0, too: expm1(x) = tanh(x / 2) * (exp(x) + 1)
X.expm1 = formula(function(x, o, c)
  local near = o('Mul', o('Tanh', o('Mul', x, c(0.5))), o('Add', o('Exp', x), c(1)))
  return o('Where', o('Less', o('Abs', x), c(1)), near, o('Sub', o('Exp', x), c(1)))
end)
-- and log1p(x) = 2 atanh(x / (2 + x))
X.log1p = formula(function(x, o, c)
  local near = o('Mul', c(2), o('Atanh', o('Div', x, o('Add', x, c(2)))))
  return o('Where', o('Less', o('Abs', x), c(0.5)), near, o('Log', o('Add', x, c(1))))
end)
local function gelu(approximate, x, o, c)
  if approximate == 'tanh' then
    local cube = o('Mul', o('Mul', x, o('Mul', x, x)), c(0.044715))
    local inner = o('Mul', o('Add', x, cube), c(math.sqrt(2 / math.pi)))
    return o('Mul', o('Mul', x, c(0.5)), o('Add', o('Tanh', inner), c(1)))
  end
  return o('Mul', o('Mul', x, c(0.5)), o('Add', o('Erf', o('Mul', x, c(1 / math.sqrt(2)))), c(1)))
end
X.gelu_of = gelu
X.gelu = formula(function(x, o, c, n) return gelu(n:attr 'approximate', x, o, c) end)
X.softplus = formula(function(x, o, c, n)
  local beta, threshold = n:attr 'beta', n:attr 'threshold'
  local y = beta == 1 and x or o('Mul', x, c(beta))
  local plus = o('Softplus', y)
  if beta ~= 1 then plus = o('Div', plus, c(beta)) end
  return o('Where', o('Greater', y, c(threshold)), x, plus)
end)
X.hardshrink = formula(function(x, o, c, n) return o('Where', o('LessOrEqual', o('Abs', x), c(n:attr 'lambd')), c(0), x) end)
X.threshold = formula(function(x, o, c, n) return o('Where', o('LessOrEqual', x, c(n:attr 'threshold')), c(n:attr 'value'), x) end)
X.rpow = formula(function(x, o, c, n) return o('Pow', c(n:attr 'number'), x) end)
X.rdiv = formula(function(x, o, c, n) return o('Div', c(n:attr 'number'), x) end)
X.logit = formula(function(x, o, c, n)
  local eps = n:attr 'eps'
  if eps then x = o('Clip', x, c(eps), c(1 - eps)) end
  return o('Log', o('Div', x, o('Sub', c(1), x)))
end)
X.nan_to_num = formula(function(x, o, c, n)
  if not floats[n:result().dtype] then return x end
  local largest = ({float32 = 3.4028234663852886e38, float64 = 1.7976931348623157e308, float16 = 65504})[n:result().dtype]
  if not largest then n:fail 'has no counterpart for %s' end
  local y = o('Where', o('IsNaN', x), c(n:attr 'nan' or 0), x)
  y = o('Where', o('Equal', y, c(math.huge)), c(n:attr 'posinf' or largest), y)
  return o('Where', o('Equal', y, c(-math.huge)), c(n:attr 'neginf' or -largest), y)
end)
X.positive = formula(function(x) return x end)
X.relu6 = formula(function(x, o, c) return o('Clip', x, c(0), c(6)) end)
X.hardtanh = formula(function(x, o, c, n) return o('Clip', x, c(n:attr 'min_val'), c(n:attr 'max_val')) end)
X.clamp = formula(function(x, o, c, n)
  local low, high = n:attr 'min', n:attr 'max'
  return o('Clip', x, low and c(low) or '', high and c(high) or '')
end)
X.clamp_min = formula(function(x, o, c, n) return o('Clip', x, c(n:attr 'min'), '') end)
X.clamp_max = formula(function(x, o, c, n) return o('Clip', x, '', c(n:attr 'max')) end)

local function with(op, attrs)
  return formula(function(x, _, _, n, e)
    local given = {}
    for onnx, v in pairs(attrs) do given[onnx] = e.float(type(v) == 'string' and n:attr(v) or v) end
    return e:emit(op, {x}, given)
  end)
end
X.leaky_relu = with('LeakyRelu', {alpha = 'negative_slope'})
X.elu = with('Elu', {alpha = 'alpha'})
X.celu = formula(function(x, o, c, n) -- Celu itself is for float32 alone
  local alpha = n:attr 'alpha'
  return o('Mul', o('Elu', o('Div', x, c(alpha))), c(alpha))
end)
X.selu = with('Selu', {})
X.softshrink = with('Shrink', {lambd = 'lambd', bias = 'lambd'})
X.hardsigmoid = with('HardSigmoid', {alpha = 1 / 6, beta = 0.5})

function X.prelu(e, n)
  local slope, rank = n:input(2), n:rank(1)
  if #n:shape(2) == 1 and n:shape(2)[1] > 1 and rank > 2 then
    local axes = {}
    for d = 1, rank - 2 do axes[d] = d end
    slope = e:emit('Unsqueeze', {slope, e:ints(axes)})
  end
  return e:emit('PRelu', {n:input(1), slope})
end

function X.glu(e, n)
  local a, b = e:emit('Split', {n:input(1)}, {axis = n:dim('dim', n:rank(1))}, 2)
  return e:emit('Mul', {a, e:emit('Sigmoid', {b})})
end

-- -- Two operands -------------------------------------------------------------------------------------------

local logic = {add = 'Or', mul = 'And', maximum = 'Or', minimum = 'And'}

for name, onnx in pairs {add = 'Add', sub = 'Sub', mul = 'Mul', maximum = 'Max', minimum = 'Min'} do
  X[name] = function(e, n)
    local dtype = n:result().dtype
    if dtype == 'bool' then return e:emit(logic[name], {n:input(1, 'bool'), n:input(2, 'bool')}) end
    local a, b = n:input(1, dtype), n:input(2, dtype)
    local alpha = (name == 'add' or name == 'sub') and n:attr 'alpha' or 1
    if alpha ~= 1 then b = e:emit('Mul', {b, e:scalar(alpha, dtype)}) end
    return e:emit(onnx, {a, b})
  end
end

local function pair(f)
  return function(e, n)
    local dtype = n:result().dtype
    local function o(op, ...) return e:emit(op, {...}) end
    return f(n:input(1, dtype), n:input(2, dtype), o, function(v) return e:scalar(v, dtype) end, n, e, dtype)
  end
end

X.div = pair(function(a, b, o) return o('Div', a, b) end)
X.mod = pair(function(a, b, o, _, _, e, dtype)
  if not floats[dtype] then return e:emit('Mod', {a, b}, {fmod = 0}) end
  return o('Sub', a, o('Mul', b, o('Floor', o('Div', a, b))))
end)
X.fmod = pair(function(a, b, _, _, _, e) return e:emit('Mod', {a, b}, {fmod = 1}) end)
X.floor_divide = pair(function(a, b, o, _, _, e, dtype)
  if floats[dtype] then return o('Floor', o('Div', a, b)) end
  return o('Div', o('Sub', a, e:emit('Mod', {a, b}, {fmod = 0})), b)
end)
X.pow = pair(function(a, b, o) return o('Pow', a, b) end)
X.hypot = pair(function(a, b, o, c) -- over the larger one, so that squares don't overflow
  a, b = o('Abs', a), o('Abs', b)
  local large = o('Max', a, b)
  local ratio = o('Div', o('Min', a, b), large)
  local size = o('Where', o('Equal', large, c(0)), large, o('Mul', large, o('Sqrt', o('Add', o('Mul', ratio, ratio), c(1)))))
  return o('Where', o('Or', o('Equal', a, c(math.huge)), o('Equal', b, c(math.huge))), c(math.huge), size)
end)
X.logaddexp = pair(function(a, b, o, c)
  local sum = o('Add', o('Max', a, b), o('Softplus', o('Neg', o('Abs', o('Sub', a, b)))))
  return o('Where', o('Equal', a, b), o('Add', a, c(math.log(2))), sum)
end)
X.xlogy = pair(function(a, b, o, c)
  return o('Where', o('And', o('Equal', a, c(0)), o('Not', o('IsNaN', b))), c(0), o('Mul', a, o('Log', b)))
end)

for name, onnx in pairs {eq = 'Equal', lt = 'Less', le = 'LessOrEqual', gt = 'Greater', ge = 'GreaterOrEqual', ne = 'Equal'} do
  X[name] = function(e, n)
    local dtype = n:meeting()
    if dtype == 'bool' and onnx ~= 'Equal' then dtype = 'int32' end
    local out = e:emit(onnx, {n:input(1, dtype), n:input(2, dtype)})
    return name == 'ne' and e:emit('Not', {out}) or out
  end
end

for name, onnx in pairs {logical_and = 'And', logical_or = 'Or', logical_xor = 'Xor'} do
  X[name] = function(e, n) return e:emit(onnx, {n:input(1, 'bool'), n:input(2, 'bool')}) end
end
function X.logical_not(e, n) return e:emit('Not', {n:input(1, 'bool')}) end

for name, onnx in pairs {bitwise_and = 'And', bitwise_or = 'Or', bitwise_xor = 'Xor'} do
  X[name] = function(e, n)
    if n:result().dtype ~= 'bool' then n:fail('has a counterpart for bool only in opset %d', e.opset) end
    return e:emit(onnx, {n:input(1, 'bool'), n:input(2, 'bool')})
  end
end
function X.bitwise_not(e, n)
  if n:result().dtype ~= 'bool' then n:fail('has a counterpart for bool only in opset %d', e.opset) end
  return e:emit('Not', {n:input(1)})
end

local function never(e, n) -- false everywhere, of operand 1's shape
  return e:emit('Not', {e:emit('Equal', {n:input(1), n:input(1)})})
end

function X.isnan(e, n)
  if not floats[n:dtype(1)] then return never(e, n) end
  return e:emit('IsNaN', {n:input(1)})
end
function X.isinf(e, n)
  if not floats[n:dtype(1)] then return never(e, n) end
  local x = n:input(1)
  return e:emit('Equal', {e:emit('Abs', {x}), e:scalar(math.huge, n:dtype(1))})
end
function X.isfinite(e, n)
  if not floats[n:dtype(1)] then return e:emit('Equal', {n:input(1), n:input(1)}) end
  return e:emit('Less', {e:emit('Abs', {n:input(1)}), e:scalar(math.huge, n:dtype(1))})
end

function X.where(e, n)
  local dtype = n:result().dtype
  return e:emit('Where', {n:input(1, 'bool'), n:input(2, dtype), n:input(3, dtype)})
end

function X.masked_fill(e, n)
  local dtype = n:result().dtype
  return e:emit('Where', {n:input(2, 'bool'), e:scalar(n:attr 'value', dtype), n:input(1, dtype)})
end

local function fused(op)
  return function(e, n)
    local dtype = n:result().dtype
    local product, value = e:emit(op, {n:input(2, dtype), n:input(3, dtype)}), n:attr 'value'
    if value ~= 1 then
      product = op == 'Mul' and e:emit('Mul', {product, e:scalar(value, dtype)})
        or e:emit('Div', {e:emit('Mul', {n:input(2, dtype), e:scalar(value, dtype)}), n:input(3, dtype)})
    end
    return e:emit('Add', {n:input(1, dtype), product})
  end
end
X.addcmul, X.addcdiv = fused 'Mul', fused 'Div'

function X.lerp(e, n)
  local dtype = n:result().dtype
  local a, b = n:input(1, dtype), n:input(2, dtype)
  return e:emit('Add', {a, e:emit('Mul', {n:input(3, dtype), e:emit('Sub', {b, a})})})
end

-- -- Dtypes and dropout --------------------------------------------------------------------------------------

local function same(e, n) return e.env[n.inputs[1].index] end
for _, name in ipairs {'alias', 'clone', 'contiguous', 'to_device', 'detach'} do X[name] = same end
for _, name in ipairs {'cast', 'amp_cast'} do
  X[name] = function(_, n) return n:input(1, n:result().dtype) end
end
function X.amp_multicast(_, n)
  local names = {}
  for i = 1, #n.inputs do names[i] = n:input(i, n:result(i).dtype) end
  return unpack(names)
end

local function eval_only(e, n)
  if n:attr 'training' and n:attr 'p' > 0 then n:fail 'is in training mode; call net:eval() before the graph is traced' end
  return same(e, n)
end
for _, name in ipairs {'dropout', 'dropout1d', 'dropout2d', 'dropout3d', 'alpha_dropout', 'feature_alpha_dropout'} do X[name] = eval_only end

return X

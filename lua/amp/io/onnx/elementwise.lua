--- Element-wise ops of ONNX by amp's: functions of a node that give its results.
-- @module amp.io.onnx.elementwise
local Node = require 'amp.io.onnx.node'
local ops = require 'amp.ops'
local proto = require 'amp.io.onnx.proto'
local get, cast = ops.get, Node.cast

local M = {}

for onnx, name in pairs {Abs = 'abs', Neg = 'neg', Sign = 'sign', Floor = 'floor', Ceil = 'ceil', Round = 'round', Exp = 'exp', Log = 'log',
  Sqrt = 'sqrt', Reciprocal = 'reciprocal', Sin = 'sin', Cos = 'cos', Tan = 'tan', Asin = 'asin', Acos = 'acos', Atan = 'atan', Sinh = 'sinh',
  Cosh = 'cosh', Asinh = 'asinh', Acosh = 'acosh', Atanh = 'atanh', Tanh = 'tanh', Sigmoid = 'sigmoid', Erf = 'erf', Relu = 'relu',
  Softsign = 'softsign', Mish = 'mish', IsNaN = 'isnan', Not = 'logical_not', BitwiseNot = 'bitwise_not', HardSwish = 'hardswish'} do
  M[onnx] = function(n) return get(name)(n:tensor(1)) end
end

-- The size of a broadcast result is known before it is made.
local function room(n, a, b)
  if type(a) == 'number' or type(b) == 'number' then return end
  local p, q = a.ptr_, b.ptr_
  local total = 1
  for d = 1, math.max(p.ndim, q.ndim) do
    local x = d <= p.ndim and tonumber(p.size[p.ndim - d]) or 1
    local y = d <= q.ndim and tonumber(q.size[q.ndim - d]) or 1
    total = total * math.max(x, y)
  end
  n:room(total)
end

local function two(n)
  local x, y = n:value(1), n:value(2)
  local a, b = n:operand(1, y), n:operand(2, x)
  if type(a) == 'number' and type(b) == 'number' then a = n:tensor(1) end
  room(n, a, b)
  return a, b
end

for onnx, name in pairs {Add = 'add', Sub = 'sub', Mul = 'mul', Equal = 'eq', Less = 'lt', LessOrEqual = 'le', Greater = 'gt', GreaterOrEqual = 'ge',
  BitwiseAnd = 'bitwise_and', BitwiseOr = 'bitwise_or', BitwiseXor = 'bitwise_xor'} do
  M[onnx] = function(n) return get(name)(two(n)) end
end

for onnx, name in pairs {And = 'logical_and', Or = 'logical_or', Xor = 'logical_xor'} do
  M[onnx] = function(n)
    local a, b = n:tensor(1), n:tensor(2)
    room(n, a, b)
    return get(name)(a, b)
  end
end

-- Whole numbers are divided toward zero.
function M.Div(n)
  local a, b = two(n)
  local dtype = n:value(1).dtype or n:tensor(1).dtype
  if proto.floats[dtype] then return get 'div'(a, b) end
  return cast(get 'floor_divide'(get 'sub'(a, get 'fmod'(a, b)), b), dtype)
end

function M.Mod(n)
  local name = n:attr('fmod', 0) == 1 and 'fmod' or 'mod'
  return get(name)(two(n))
end

function M.Pow(n)
  local x, y = n:value(1), n:value(2)
  local a, b = n:operand(1, y), n:operand(2, x)
  if type(a) == 'number' then a = n:tensor(1) end
  if type(b) ~= 'number' and b.dtype ~= a.dtype and not proto.floats[b.dtype] then b = cast(b, a.dtype) end
  room(n, a, b)
  if type(b) == 'number' and b == 2 and proto.floats[a.dtype] then return get 'square'(a) end
  local dtype = a.dtype
  if not proto.floats[dtype] and type(b) ~= 'number' and proto.floats[b.dtype] then a = cast(a, 'float64') end
  if not proto.floats[dtype] and type(b) == 'number' and b % 1 ~= 0 then a = cast(a, 'float64') end
  return cast(get 'pow'(a, b), dtype)
end

local function chain(name)
  return function(n)
    local result = n:tensor(1)
    for i = 2, #n.inputs do
      local other = n:tensor(i)
      room(n, result, other)
      result = get(name)(result, other)
    end
    return result
  end
end
M.Max, M.Min, M.Sum = chain 'maximum', chain 'minimum', chain 'add'

function M.Mean(n) return get 'div'(M.Sum(n), #n.inputs) end

function M.Where(n)
  local x, y = n:value(2), n:value(3)
  local a, b = n:operand(2, y), n:operand(3, x)
  if type(a) == 'number' and type(b) == 'number' then a = n:tensor(2) end
  local condition = n:tensor(1)
  room(n, condition, type(a) ~= 'number' and a or b)
  if type(a) ~= 'number' then room(n, a, b) end
  local result = get 'where'(condition, a, b)
  return cast(result, x.dtype or n:tensor(2).dtype)
end

function M.BitShift(n)
  local direction = n:attr('direction', '')
  if direction ~= 'LEFT' and direction ~= 'RIGHT' then n:fail("attribute 'direction' is '%s'", direction) end
  return get(direction == 'LEFT' and 'bitwise_left_shift' or 'bitwise_right_shift')(n:tensor(1), n:tensor(2))
end

function M.IsInf(n)
  local x = n:tensor(1)
  local low, high = n:attr('detect_negative', 1) == 1, n:attr('detect_positive', 1) == 1
  if low and high then return get 'isinf'(x) end
  if low then return get 'eq'(x, -math.huge) end
  if high then return get 'eq'(x, math.huge) end
  return get 'ne'(get 'isinf'(x), get 'isinf'(x))
end

function M.Identity(n)
  local v = n:value(1)
  if v.h and not v.param then return v end
  return v.param and v or n:tensor(1)
end

function M.Cast(n)
  local to = n:attr('to', 0)
  local dtype = proto.dtypes[to]
  n:attr('saturate', 1)
  n:attr 'round_mode'
  if not proto.known[dtype] then n:fail("attribute 'to' is %s, a dtype that amp has not", dtype or tostring(to)) end
  local x = n:tensor(1)
  if x.dtype == dtype then return x end
  if dtype == 'bool' then return get 'ne'(x, 0) end
  return cast(x, dtype)
end

function M.CastLike(n) return cast(n:tensor(1), n:tensor(2).dtype) end

function M.Clip(n)
  local x = n:tensor(1)
  local function bound(i, name)
    if not n:has(i) then return n:attr(name) end
    local v = n:value(i)
    return v.h and not v.param and v.h[1] or n:tensor(i)
  end
  local low, high = bound(2, 'min'), bound(3, 'max')
  if type(low) ~= 'cdata' and type(high) ~= 'cdata' then
    if low and high and low > high then return get 'minimum'(get 'maximum'(x, low), high) end
    if low == nil and high == nil then return x end
    return get 'clamp'(x, low, high)
  end
  if low then x = get 'maximum'(x, low) end
  if high then x = get 'minimum'(x, high) end
  return x
end

-- -- Activations -------------------------------------------------------------------------------------------

function M.LeakyRelu(n) return get 'leaky_relu'(n:tensor(1), n:attr('alpha', 0.01)) end
function M.Elu(n) return get 'elu'(n:tensor(1), n:attr('alpha', 1)) end
function M.Celu(n) return get 'celu'(n:tensor(1), n:attr('alpha', 1)) end
function M.ThresholdedRelu(n) return get 'threshold'(n:tensor(1), n:attr('alpha', 1), 0) end

-- Where exp(x) is beyond float32, the result is x itself.
function M.Softplus(n) return get 'softplus'(n:tensor(1), 1, 40) end

function M.Selu(n)
  local alpha, gamma = n:attr('alpha', 1.67326319217681884765625), n:attr('gamma', 1.05070102214813232421875)
  if math.abs(alpha - 1.6732632) < 1e-6 and math.abs(gamma - 1.0507010) < 1e-6 then return get 'selu'(n:tensor(1)) end
  return get 'mul'(get 'elu'(n:tensor(1), alpha), gamma)
end

function M.HardSigmoid(n)
  local x, alpha, beta = n:tensor(1), n:attr('alpha', 0.2), n:attr('beta', 0.5)
  return get 'clamp'(get 'add'(get 'mul'(x, alpha), beta), 0, 1)
end

function M.Gelu(n)
  local approximate = n:attr('approximate', 'none')
  if approximate ~= 'none' and approximate ~= 'tanh' then n:fail("attribute 'approximate' is '%s'", approximate) end
  return get 'gelu'(n:tensor(1), approximate)
end

function M.Swish(n)
  local alpha, x = n:attr('alpha', 1), n:tensor(1)
  if alpha == 1 then return get 'silu'(x) end
  return get 'mul'(x, get 'sigmoid'(get 'mul'(x, alpha)))
end

function M.Shrink(n)
  local x, lambd, bias = n:tensor(1), n:attr('lambd', 0.5), n:attr('bias', 0)
  local dtype = x.dtype
  local below = get 'where'(get 'lt'(x, -lambd), get 'add'(x, bias), 0)
  return cast(get 'where'(get 'gt'(x, lambd), get 'sub'(x, bias), below), dtype)
end

function M.PRelu(n)
  local x, slope = n:tensor(1), n:tensor(2)
  room(n, x, slope)
  return get 'where'(get 'lt'(x, 0), get 'mul'(x, slope), x)
end

local function softmax(name)
  return function(n)
    local x = n:tensor(1)
    local rank = x:dim()
    local d = n:dim(n:attr('axis', n.opset < 13 and 1 or -1), rank)
    if n.opset >= 13 or d == rank then return get(name)(x, d) end
    local shape = {unpack(x:size())} -- of all dimensions from the axis on
    return get 'reshape'(get(name)(get 'flatten'(x, d, rank), -1), shape)
  end
end
M.Softmax, M.LogSoftmax = softmax 'softmax', softmax 'log_softmax'

function M.Hardmax(n)
  local x = n:tensor(1)
  local d = n:dim(n:attr('axis', n.opset < 13 and 1 or -1), x:dim())
  if n.opset < 13 and d ~= x:dim() then n:fail 'is known from opset 13 on, or along the last axis' end
  return get 'scatter'(get 'mul'(x, 0), d, get 'argmax'(x, d, true), 1)
end

function M.Dropout(n)
  n:attr('ratio', 0.5)
  n:attr('seed', 0)
  n:attr('is_test', 0)
  if n:has(3) and n:scalar(3, 'training_mode') ~= 0 then n:fail 'is in training mode; only inference is supported' end
  local x = n:tensor(1)
  if n:results() < 2 then return x end
  return x, get 'eq'(get 'mul'(get 'isnan'(x), 0), 0)
end

return M

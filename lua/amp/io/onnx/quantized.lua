--- Quantised ops of ONNX by float arithmetic: functions of a node that give their results.
--
-- A quantised tensor is (q - zero) * scale, q whole numbers of 8, 16 or 32 bits. What the operator set defines is computed as it
-- stands there: products of whole numbers exactly, in float64; scales in float32; rounding to nearest, ties to even; then saturation.
-- @module amp.io.onnx.quantized
local Node = require 'amp.io.onnx.node'
local layers = require 'amp.io.onnx.layers'
local ops = require 'amp.ops'
local proto = require 'amp.io.onnx.proto'
local get, cast = ops.get, Node.cast

local M = {}

local ranges = {uint8 = {0, 255}, int8 = {-128, 127}, int16 = {-32768, 32767}, int32 = {-2 ^ 31, 2 ^ 31 - 1}}

-- A scale or zero point of one number, or of one for each place of dimension d of a tensor of so many dimensions.
local function beside(n, t, rank, d, what)
  if t:numel() == 1 then return get 'reshape'(t, {}) end
  if rank > 1 and t:dim() == rank then return t end
  if t:dim() ~= 1 then n:fail('takes %s of one number or one for each place of an axis, not of shape %s', what, tostring(t:size())) end
  local shape = {}
  for k = 1, rank do shape[k] = k == d and t:size(1) or 1 end
  return get 'view'(t, shape)
end

-- t less its zero point, in a float dtype.
local function centred(n, t, zero, d, dtype)
  local wide = cast(t, dtype)
  if not zero then return wide end
  return get 'sub'(wide, beside(n, cast(zero, dtype), t:dim(), d, 'a zero point'))
end

-- Floats as whole numbers of a dtype: y, already divided by its scale.
local function quantised(n, y, zero, d, dtype)
  local range = ranges[dtype]
  if not range then n:fail("gives '%s', which it can't here", dtype) end
  y = get 'round'(y)
  if zero then y = get 'add'(y, beside(n, cast(zero, y.dtype), y:dim(), d, 'a zero point')) end
  return cast(get 'clamp'(y, range[1], range[2]), dtype)
end

-- The dimension of scales; scales and zero points of blocks, one for each piece of a dimension, become as large as x.
local function along(n, x, scale, zero)
  local axis, block = n:attr('axis', 1), n:attr('block_size', 0)
  local d = (block > 0 or scale:numel() > 1) and n:dim(axis, x:dim()) or 1
  if block == 0 then return d, scale, zero end
  if scale:dim() ~= x:dim() or scale:size(d) ~= math.ceil(x:size(d) / block) then n:fail 'has scales of another shape than its blocks' end
  local function whole(t)
    return t and get 'narrow'(get 'repeat_interleave'(t, block, d), d, 1, x:size(d))
  end
  return d, whole(scale), whole(zero)
end

function M.QuantizeLinear(n)
  local x, scale, zero = n:tensor(1), n:tensor(2), n:tensor(3, true)
  n:attr('saturate', 1)
  n:attr('precision', 0)
  local to = n:attr('output_dtype', 0)
  local dtype = zero and zero.dtype or to ~= 0 and (proto.dtypes[to] or '?') or 'uint8'
  local wide = x.dtype == 'float64' and 'float64' or 'float32'
  local d, s, z = along(n, x, scale, zero)
  return quantised(n, get 'div'(cast(x, wide), beside(n, cast(s, wide), x:dim(), d, 'a scale')), z, d, dtype)
end

function M.DequantizeLinear(n)
  local x, scale, zero = n:tensor(1), n:tensor(2), n:tensor(3, true)
  local to = n:attr('output_dtype', 0)
  local d, s, z = along(n, x, scale, zero)
  local wide = x.dtype == 'int32' and 'float64' or 'float32'
  local y = get 'mul'(centred(n, x, z, d, wide), beside(n, cast(s, wide), x:dim(), d, 'a scale'))
  return cast(y, to ~= 0 and (proto.known[proto.dtypes[to]] and proto.dtypes[to] or n:fail 'gives a dtype that amp has not') or scale.dtype)
end

function M.DynamicQuantizeLinear(n)
  local x = n:tensor(1)
  local least, most = get 'clamp'(get 'amin'(x), nil, 0), get 'clamp'(get 'amax'(x), 0)
  local scale = get 'div'(get 'sub'(most, least), 255)
  local divisor = get 'where'(get 'eq'(scale, 0), 1, scale)
  local zero = get 'round'(get 'clamp'(get 'div'(get 'neg'(least), divisor), 0, 255))
  return quantised(n, get 'div'(x, divisor), zero, 1, 'uint8'), scale, cast(zero, 'uint8')
end

-- -- Products -------------------------------------------------------------------------------------------------

-- Scales and zero points of products: one number, one for each row or column, or as the operand has dimensions.
local function side(t, rank, columns)
  if not t or t:numel() == 1 then return t and get 'reshape'(t, {}) end
  if t:dim() > 1 or rank < 2 then return t end
  return columns and t or get 'unsqueeze'(t, 2)
end

local function whole_product(a, a_zero, b, b_zero)
  local x, y = cast(a, 'float64'), cast(b, 'float64')
  if a_zero then x = get 'sub'(x, cast(side(a_zero, a:dim(), false), 'float64')) end
  if b_zero then y = get 'sub'(y, cast(side(b_zero, b:dim(), true), 'float64')) end
  return get 'matmul'(x, y)
end

function M.MatMulInteger(n) return cast(whole_product(n:tensor(1), n:tensor(3, true), n:tensor(2), n:tensor(4, true)), 'int32') end

function M.QLinearMatMul(n)
  local a, b, zero = n:tensor(1), n:tensor(4), n:tensor(8)
  local function scale(t, rank, columns) return cast(side(t, rank, columns), 'float32') end
  local factor = get 'div'(get 'mul'(scale(n:tensor(2), a:dim(), false), scale(n:tensor(5), b:dim(), true)), scale(n:tensor(7), a:dim(), false))
  local y = get 'mul'(whole_product(a, n:tensor(3), b, n:tensor(6)), cast(factor, 'float64'))
  y = get 'add'(get 'round'(y), cast(side(zero, a:dim(), false), 'float64'))
  local range = ranges[zero.dtype]
  return cast(get 'clamp'(y, range[1], range[2]), zero.dtype)
end

function M.ConvInteger(n)
  local x, w = n:tensor(1), n:tensor(2)
  return cast(layers.convolve(n, centred(n, x, n:tensor(3, true), 2, 'float64'), centred(n, w, n:tensor(4, true), 1, 'float64')), 'int32')
end

function M.QLinearConv(n)
  local x, w, bias = n:tensor(1), n:tensor(4), n:tensor(9, true)
  local zero = n:tensor(8)
  local x_scale, w_scale, y_scale = n:tensor(2), n:tensor(5), n:tensor(7)
  local y = layers.convolve(n, centred(n, x, n:tensor(3), 2, 'float64'), centred(n, w, n:tensor(6), 1, 'float64'), bias and cast(bias, 'float64'))
  local factor = get 'div'(get 'mul'(cast(get 'reshape'(x_scale, {}), 'float32'), cast(w_scale, 'float32')), cast(get 'reshape'(y_scale, {}), 'float32'))
  return quantised(n, get 'mul'(y, beside(n, cast(factor, 'float64'), x:dim(), 2, 'a scale')), zero, 2, zero.dtype)
end

return M

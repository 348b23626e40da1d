--- amp.torch7.convert: a module of nn read from a .t7 file as a network of amp, with its weights.
--
-- Made again from its fields, class by class; parameters come in the dtype that they have in the file. Classes of cudnn
-- are those of nn with the same name. A class that is not known is an error that names it.
local amp = require 'amp'
local util = require 'amp.util'
local raise = require('amp.error').throw
local nn = require 'amp.torch7.nn'

local OP = 'torch7.convert'

local function like(name, t, shape)
  if not amp.is_tensor(t) then raise(OP, "%s has no '%s'", name, shape) end
  return t
end

-- Put a file's tensor into a parameter or buffer.
local function put(to, t)
  amp.no_grad(function()
    if to.dtype ~= t.dtype then to:set_data(to:detach():to(t.dtype)) end
    to:copy_(t:reshape(to:size()))
  end)
end

local function weights(m, f, ...)
  for _, name in ipairs {...} do
    if amp.is_tensor(f[name]) and m[name] then put(m[name], f[name]) end
  end
  if m.bias and not amp.is_tensor(f.bias) then
    if f.weight and m.weight then m.bias = nil end
  end
  return m
end

local convert

local function children(m, f)
  for _, child in ipairs(f.modules or {}) do m:add(convert(child)) end
  return m
end

-- With the last two arguments that some convolutions have, by their fields' names.
local function conv(make, w, h)
  return function(f)
    local padW, padH = f.padW or f.padding or 0, f.padH or f.padding or 0
    local m
    if w then m = make(f.nInputPlane, f.nOutputPlane, f.kW, f.kH, f.dW, f.dH, padW, padH, f[w], f[h])
    else m = make(f.nInputPlane, f.nOutputPlane, f.kW, f.kH, f.dW, f.dH, padW, padH) end
    return weights(m, f, 'weight', 'bias')
  end
end
local function norm(make)
  return function(f)
    local n = like('a batch normalisation', f.running_mean, 'running_mean'):numel()
    local m = make(n, f.eps, f.momentum, amp.is_tensor(f.weight))
    weights(m, f, 'weight', 'bias', 'running_mean', 'running_var')
    if amp.is_tensor(f.running_std) then put(m.running_var, f.running_std:pow(-2) - (f.eps or 1e-5)) end -- of old files
    return m
  end
end
local function container(name, field)
  return function(f)
    local m
    if field then m = nn[name](f[field]) else m = nn[name]() end
    return children(m, f)
  end
end

local classes = {
  Sequential = container 'Sequential', ConcatTable = container 'ConcatTable', ParallelTable = container 'ParallelTable',
  Concat = container('Concat', 'dimension'), DepthConcat = container('DepthConcat', 'dimension'),
  SpatialConvolution = conv(nn.SpatialConvolution), SpatialConvolutionMM = conv(nn.SpatialConvolution),
  SpatialDilatedConvolution = conv(nn.SpatialDilatedConvolution, 'dilationW', 'dilationH'),
  SpatialFullConvolution = conv(nn.SpatialFullConvolution, 'adjW', 'adjH'),
  BatchNormalization = norm(nn.BatchNormalization), SpatialBatchNormalization = norm(nn.SpatialBatchNormalization),
  VolumetricBatchNormalization = norm(nn.VolumetricBatchNormalization),
  Linear = function(f)
    local w = like('nn.Linear', f.weight, 'weight')
    return weights(nn.Linear(w:size(2), w:size(1), amp.is_tensor(f.bias)), f, 'weight', 'bias')
  end,
  Parallel = function(f) return children(nn.Parallel(f.inputDimension, f.outputDimension), f) end,
  MapTable = function(f) return children(nn.MapTable(), {modules = {(f.modules or {})[1]}}) end,
}
for _, name in ipairs {'ReLU', 'Tanh', 'Sigmoid', 'Identity'} do
  classes[name] = function() return nn[name]() end
end

-- Layers whose definitions have Torch7's fields take them as they are.
local function from_fields(name, f)
  local class = nn.from_fields[name]
  return class and function() return class(f) end
end

--- A network of amp from a module of nn.
-- @tparam table object what amp.torch7.load gave, with __typename 'nn.Sequential' or the like
-- @treturn nn.Module
-- @raise naming a class that is not known
convert = function(object)
  if type(object) ~= 'table' or type(object.__typename) ~= 'string' then
    raise(OP, 'a module of nn as amp.torch7.load gives it expected, got %s', util.show(object))
  end
  local name = object.__typename:match '^nn%.(%w+)$' or object.__typename:match '^cudnn%.(%w+)$'
  local make = name and (classes[name] or from_fields(name, object))
  if not make then raise(OP, "there is no such layer here as '%s'; the file's fields are a plain table, to be put together by hand", object.__typename) end
  local m = make(object)
  if object.train == false then m:eval() end
  return m
end

return convert

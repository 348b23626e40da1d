--- Torch7's methods of tensors: those whose meaning is the same under another name, and those that changed their
-- receiver. The latter do so where the name has no other meaning in amp (zero, fill, copy, ...); where amp's method
-- of a like name gives a new tensor, or a shape would change in place, they are errors that say what to write.
local amp = require 'amp'
local ops = require 'amp.ops'
local tensor = require 'amp.tensor'
local C = require('amp.ffi').C
local mark_mask = require('amp.tensor.index').mark_mask
local raise = require('amp.error').throw

local methods = tensor.methods

local function define(name, f)
  if methods[name] == nil and tensor.properties[name] == nil and not ops.method(name) then methods[name] = f end
end

-- -- The same under another name ---------------------------------------------------------------------

function methods.nElement(t) return t:numel() end
function methods.nDimension(t) return t:dim() end
function methods.isContiguous(t) return t:is_contiguous() end
function methods.isTensor() return true end
function methods.expandAs(t, u) return t:expand(u:size()) end
function methods.viewAs(t, u) return t:view(u:size()) end

local plain_type = methods.type
local function is_mask(t) return bit.band(t.ptr_.flags, C.AMP_T_MASK) ~= 0 end
-- A tensor as a ByteTensor: x[it] picks by a mask. What was asked for may be x itself, which stays as it is.
local function as_mask(t, x) return mark_mask(t == x and not is_mask(x) and x:detach() or t) end
function methods.typeAs(t, u)
  local out = t:to(u.dtype):to(u.device)
  return is_mask(u) and as_mask(out, t) or out
end
--- x:type() is 'torch.FloatTensor'; x:type 'torch.DoubleTensor' converts, as x:type 'float64' does.
function methods.type(t, name)
  local types = require 'amp.torch7.torch'
  if name == nil then return types.type(t) end
  local dtype, device = types.of_type(name)
  if dtype then
    local out = t:to(dtype):to(device)
    return dtype == 'uint8' and as_mask(out, t) or out
  end
  return plain_type(t, name)
end
-- x.new(...) makes a tensor of x's type.
tensor.properties.new = function(t)
  return function(first, ...)
    local make = require('amp.torch7.torch').constructor(t.dtype, t.device, is_mask(t))
    if first == t then return make(...) end -- x:new(...)
    if first == nil and select('#', ...) == 0 then return make() end
    return make(first, ...)
  end
end
-- Sizes have what a LongStorage has.
local sizes = getmetatable(amp.zeros(1):size()).methods
sizes.totable = sizes.totable or function(s) return { unpack(s) } end
sizes.size = sizes.size or function(s) return #s end
function methods.isSameSizeAs(t, u) return t:size() == u:size() end
function methods.totable(t) return t:tolist() end
function methods.storageOffset(t) return t:storage_offset() + 1 end
function methods.repeatTensor(t, ...) return t:tile(...) end
function methods.index(t, d, i) return t:index_select(d, i:long()) end
local function mask(m) return m.dtype == 'bool' and m or m:ne(0) end
function methods.maskedSelect(t, m) return t:masked_select(mask(m)) end
for name, dtype in pairs {byte = 'uint8', char = 'int8', short = 'int16'} do
  define(name, function(t) return t:to(dtype) end)
end
-- -- In place, as they were -----------------------------------------------------------------------------

-- A parameter may be filled in place outside amp.no_grad, as its net's weights always were.
local function quietly(t, f, ...)
  if t.requires_grad and t.is_leaf then return amp.no_grad(f, t, ...) end
  return f(t, ...)
end
--- Call f on every element, in place.
function methods.apply(t, f)
  if type(f) ~= 'function' then raise('apply', 'argument 1: a function is expected, got %s', type(f)) end
  local flat = t:reshape(-1):tolist()
  for i, v in ipairs(flat) do
    local w = f(v)
    if w ~= nil then flat[i] = w end
  end
  return quietly(t, function(u) return u:copy_(amp.tensor(flat, {dtype = 'float64'}):reshape(u:size())) end)
end

for name, real in pairs {zero = 'zero_', fill = 'fill_', copy = 'copy_', indexFill = 'index_fill_', indexCopy = 'index_copy_', indexAdd = 'index_add_'} do
  define(name, function(t, first, ...)
    if name == 'copy' and first:numel() == t:numel() and first:size() ~= t:size() then first = first:reshape(t:size()) end
    local function work(u, ...) return u[real](u, ...) end
    if first == nil then return quietly(t, work) end
    return quietly(t, work, first, ...)
  end)
end
define('maskedFill', function(t, m, v) return quietly(t, function(u) return u:masked_fill_(mask(m), v) end) end)
define('maskedCopy', function(t, m, source)
  return quietly(t, function(u) return u:copy_(amp.masked_scatter(u:detach(), mask(m), source)) end)
end)
define('uniform', function(t, low, high)
  for i, v in pairs {low, high} do
    if type(v) ~= 'number' then raise('uniform', 'argument %d: a number is expected, got %s', i, type(v)) end
  end
  low = low or 0
  return quietly(t, function(u) return u:copy_(amp.rand_like(u:detach()) * ((high or 1) - low) + low) end)
end)
methods.normal = function(t, mean, std)
  return quietly(t, function(u) return u:copy_(amp.randn_like(u:detach()) * (std or 1) + (mean or 0)) end)
end

-- Those that take a tensor in a place say so where another value stands there.
for name, place in pairs {expandAs = 1, viewAs = 1, typeAs = 1, isSameSizeAs = 1, copy = 1, maskedSelect = 1, maskedFill = 1, maskedCopy = 1, index = 2} do
  local f = methods[name]
  if f then
    methods[name] = function(t, ...)
      local u = select(place, ...)
      if not amp.is_tensor(u) then raise(name, 'argument %d: a tensor is expected, got %s', place, type(u)) end
      return f(t, ...)
    end
  end
end
-- -- What is written otherwise -----------------------------------------------------------------------------

for name, cure in pairs {
  cmul = 'x:mul_(y) in place, or x:mul(y)', cdiv = 'x:div_(y) in place, or x:div(y)', cpow = 'x:pow_(y) in place, or x:pow(y)',
  csub = 'x:sub_(y) in place, or x:sub(y)', cadd = 'x:add_(y, {alpha = s}) in place, or x:add(y, {alpha = s})',
  cmax = 'amp.maximum(x, y)', cmin = 'amp.minimum(x, y)', cinv = 'x:reciprocal()',
  resize = 'x = x:reshape(...), or a new tensor: shapes don\'t change in place',
  resizeAs = 'x = x:reshape(y:size()), or amp.empty_like(y): shapes don\'t change in place',
  set = 'x = y: what a handle refers to does not change in place',
  storage = 'x:view(-1)', map = 'an expression of x and y', conv2 = 'amp.conv2d',
} do
  define(name, function()
    raise('torch7.' .. name, "Torch7's x:%s(...) is written otherwise in amp: %s", name, cure)
  end)
end

return methods

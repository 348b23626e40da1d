--- A node of a model while it is read: its attributes and operands, and errors that name it.
-- @module amp.io.onnx.node
local amp = require 'amp'
local err = require 'amp.error'
local memory = require 'amp.io.memory'
local ops = require 'amp.ops'
local proto = require 'amp.io.onnx.proto'

local Node = {}
Node.__index = Node

local OP = 'io.onnx.load'
Node.OP = OP

function Node:who()
  local name = self.name ~= '' and self.name or self.outputs[1] or ''
  return ("node '%s' (%s)"):format(memory.show(name), memory.show(self.op))
end

function Node:fail(fmt, ...) err.throw_code('unsupported', OP, "'%s': %s: %s", self.model.path, self:who(), fmt:format(...)) end

--- A node of a NodeProto.
function Node.new(model, message)
  local n = setmetatable({model = model, op = message.op_type or '', name = message.name or '', domain = message.domain or '', inputs = message.input,
    outputs = message.output, attrs = {}, read = {}}, Node)
  while #n.outputs > 0 and n.outputs[#n.outputs] == '' do n.outputs[#n.outputs] = nil end
  for _, a in ipairs(message.attribute) do
    local field = proto.attribute_field[a.type or 0]
    if a.ref_attr_name and a.ref_attr_name ~= '' then n:fail("attribute '%s' refers to a function's", memory.show(a.name)) end
    if not field then -- files of the first versions give no type
      for _, k in ipairs {'i', 'f', 's', 't', 'g'} do
        if a[k] ~= nil then field = k end
      end
      for _, k in ipairs {'ints', 'floats', 'strings'} do
        if #a[k] > 0 then field = k end
      end
    end
    local v = field and a[field]
    if v == nil then v = field == 'i' and 0 or field == 'f' and 0 or field == 's' and '' or nil end
    if v ~= nil and a.name then n.attrs[a.name] = {field = field, v = v} end
  end
  return n
end

local kinds = {number = {i = true, f = true}, string = {s = true}, table = {ints = true, floats = true, strings = true, t = true, g = true}}

--- The value of an attribute: numbers, texts, lists; a tensor is {dtype, shape, t, h}.
function Node:attr(name, default)
  self.read[name] = true
  local a = self.attrs[name]
  if a == nil then return default end
  if default ~= nil and not kinds[type(default)][a.field] then self:fail("attribute '%s' is of the wrong kind", name) end
  return a.v
end

--- An attribute that is a list of whole numbers, nil where it is absent.
function Node:ints(name, count)
  local list = self:attr(name)
  if list == nil then return nil end
  if self.attrs[name].field ~= 'ints' or count and #list ~= count then
    self:fail("attribute '%s' must be a list of %s whole numbers", name, count and tostring(count) or 'some')
  end
  return list
end

--- Is operand i there?
function Node:has(i) return self.values[i] ~= nil end

--- Operand i, {t, h, dtype, shape}.
function Node:value(i)
  local v = self.values[i]
  if v == nil then self:fail('operand %d is missing', i) end
  return v
end

--- Operand i as a tensor; nil where it is absent and may be.
function Node:tensor(i, optional)
  local v = self.values[i]
  if v == nil then
    if optional then return nil end
    self:fail('operand %d is missing', i)
  end
  return self.model:tensor(v)
end

--- Operand i as a list of numbers that is known now; nil where it is absent.
function Node:list(i, what)
  local v = self.values[i]
  if v == nil then return nil end
  if not v.h then self:fail("operand %d (%s) depends on the inputs' values; it must be known when the file is read", i, what) end
  return v.h
end

--- Its only element.
function Node:scalar(i, what)
  local list = self:list(i, what)
  if list == nil then return nil end
  if #list ~= 1 then self:fail('operand %d (%s) has %d elements, not one', i, what, #list) end
  return list[1]
end

--- The operand of an element-wise op: a number where it is known, has one element and adds no dimension.
function Node:operand(i, other)
  local v = self:value(i)
  if v.h and #v.h == 1 and not v.param and other.t and not other.h and #v.shape <= other.t:dim() and proto.known[v.dtype] and v.dtype ~= 'bool' then
    return v.h[1]
  end
  return self.model:tensor(v)
end

--- A dimension from 1 of an axis from 0.
function Node:dim(axis, rank)
  local d = axis < 0 and axis + rank or axis
  if d % 1 ~= 0 or d < 0 or d >= math.max(rank, 1) then self:fail('axis %s of %d dimensions', tostring(axis), rank) end
  return d + 1
end

--- Dimensions of the attribute `axes` or of operand i, sorted; nil: all.
function Node:axes(i, rank)
  local list = self:has(i) and self:list(i, 'axes') or self:ints 'axes'
  if not list then return nil end
  local dims, seen = {}, {}
  for _, a in ipairs(list) do
    local d = self:dim(a, rank)
    if seen[d] then self:fail('axis %d twice', a) end
    seen[d] = true
    dims[#dims + 1] = d
  end
  table.sort(dims)
  return dims
end

--- How many of its results are used.
function Node:results()
  local n = 0
  for i, name in ipairs(self.outputs) do
    if name ~= '' and self.model.used[name] then n = i end
  end
  return n
end

--- Refuse what would take more than the file may.
function Node:room(elements)
  self.model.take(elements * 8)
end

--- A float tensor of a value.
function Node:full(shape, value, dtype)
  local n = 1
  for _, s in ipairs(shape) do n = n * s end
  self:room(n)
  return ops.get 'full'(shape, value, dtype, 'cpu')
end

Node.cast = function(t, dtype) return t.dtype == dtype and t or ops.get 'cast'(t, dtype) end
Node.is_tensor = amp.is_tensor

return Node

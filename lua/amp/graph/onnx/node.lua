--- A node of the graph while it is exported: its operands as names, its attributes as numbers or as what follows free sizes.
-- @module amp.graph.onnx.node
local core = require 'amp.ffi'
local types = require 'amp.types'

local Node = {}
Node.__index = Node

local NONE = core.NONE

--- @tparam table n e (the writer), name, op, row, slots, terms (by slot), inputs (infos, false: absent), results (infos)
function Node.new(n) return setmetatable(n, Node) end

function Node:fail(fmt, ...) self.e:fail(': ' .. fmt, ...) end

local function row_argument(n, name)
  for _, a in ipairs(n.row.args) do
    if a.name == name and a.slot then return a end
  end
  error('no attribute ' .. name .. ' of ' .. n.op)
end

local function one(n, a, slot)
  local at = n.slots[slot]
  if n.terms[slot] then return n.terms[slot] end
  if (a.kind == 'f' or a.kind == 'F') and not (a.optional and tonumber(at.i) == NONE) then return tonumber(at.f) end
  if tonumber(at.i) == NONE then return nil end
  return tonumber(at.i)
end

--- An attribute: a number, a boolean, a word, a dtype; nil where it is absent. What follows free sizes is an error.
function Node:attr(name)
  local a = row_argument(self, name)
  local v = one(self, a, a.slot)
  if type(v) == 'table' then self:fail("its '%s' follows a free size, which ONNX can't say; export a graph of fixed sizes", name) end
  if v == nil then return nil end
  if a.kind == 'b' then return v ~= 0 end
  if a.kind == 'e' then return a.word_list[v + 1] end
  if a.kind == 't' then return types.dtype_name[v] end
  return v
end

--- The same; what follows free sizes is its terms.
function Node:free(name)
  local a = row_argument(self, name)
  return one(self, a, a.slot)
end

--- A list attribute: numbers, or terms where they are free.
function Node:list(name)
  local a = row_argument(self, name)
  local list, from, count = {}, a.slot, a.count
  if a.kind ~= 'N' then
    count = tonumber(self.slots[a.slot].i)
    if count == NONE then return nil end
    from = a.slot + 1
  elseif a.optional and tonumber(self.slots[a.slot].i) == NONE then return nil end
  for i = 1, count do list[i] = one(self, a, from + i - 1) end
  return list
end

--- The same, of numbers only.
function Node:numbers(name)
  local list = self:list(name)
  for _, v in ipairs(list or {}) do
    if type(v) ~= 'number' then self:fail("its '%s' follows a free size, which ONNX can't say; export a graph of fixed sizes", name) end
  end
  return list
end

--- A dimension from 0.
function Node:dim(name, rank)
  local d = self:attr(name)
  if d == nil then return nil end
  return d < 0 and d + rank or d - 1
end

--- Dimensions from 0, sorted; nil: all.
function Node:dims(name, rank)
  local list = self:numbers(name)
  if list == nil then return nil end
  for i, d in ipairs(list) do list[i] = d < 0 and d + rank or d - 1 end
  return list
end

function Node:has(i) return self.inputs[i] and true or false end
function Node:shape(i) return self.inputs[i].shape end
function Node:rank(i) return #self.inputs[i].shape end
function Node:dtype(i) return self.inputs[i].dtype end
function Node:result(i) return self.results[i or 1] end

--- Is size d (from 1) of operand i the same in every run?
function Node:fixed(i, d) return not (self.inputs[i].free and self.inputs[i].free[d]) end

--- Size d of operand i, which must be the same in every run.
function Node:size(i, d)
  if not self:fixed(i, d) then self:fail("dimension %d of '%s' is free, and this op has a counterpart for fixed sizes only", d, self.inputs[i].name) end
  return self.inputs[i].shape[d]
end

--- Is operand i a plain number?
function Node:number(i) return self.inputs[i] and self.inputs[i].number end

--- Operand i as a name, in a dtype.
function Node:input(i, dtype)
  local v = self.inputs[i]
  if not v then return '' end
  local e = self.e
  if v.number then
    dtype = dtype or v.dtype
    if v.terms then return e:to_scalar(e:expression(v.terms, dtype)) end
    return e:scalar(v.number, dtype)
  end
  return e:cast(e.env[v.index], v.dtype, dtype or v.dtype)
end

local rank = {bool = 0, uint8 = 1, int8 = 2, int16 = 3, int32 = 4, int64 = 5, float16 = 6, bfloat16 = 7, float32 = 8, float64 = 9}
local floats = {float16 = true, bfloat16 = true, float32 = true, float64 = true}
Node.floats = floats

--- The dtype in which operands meet.
function Node:meeting()
  local best, fraction
  for _, v in ipairs(self.inputs) do
    if v and v.number then fraction = fraction or v.number % 1 ~= 0 or v.terms
    elseif v and not best then best = v.dtype
    elseif v and v.dtype ~= best then
      local a, b = best, v.dtype
      if a == 'uint8' and b == 'int8' or a == 'int8' and b == 'uint8' then best = 'int16'
      elseif a == 'float16' and b == 'bfloat16' or a == 'bfloat16' and b == 'float16' then best = 'float32'
      else best = rank[a] > rank[b] and a or b end
    end
  end
  best = best or 'float32'
  return fraction and not floats[best] and 'float32' or best
end

return Node

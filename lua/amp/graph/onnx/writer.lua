--- What an exported graph is made of: ONNX nodes, constants and names; how sizes that are free at run time are computed.
-- @module amp.graph.onnx.writer
local amp = require 'amp'
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local proto = require 'amp.io.onnx.proto'
local tensors = require 'amp.io.onnx.tensor'
local C = core.C

local Writer = {}
Writer.__index = Writer

local OP = 'graph.export_onnx'
Writer.OP = OP
Writer.LAST = 2 ^ 53 -- an end that is as far as can be
Writer.FIRST = -2 ^ 53

function Writer.new(opset)
  return setmetatable({opset = opset, nodes = {}, initializers = {}, known = {}, env = {}, taken = {}, fresh = 0, sizes = {}}, Writer)
end

--- A float among a node's attributes; plain numbers are integers.
function Writer.float(v) return {f = v} end

function Writer:fail(fmt, ...)
  local n = self.node
  err.throw_code('unsupported', OP, "node '%s' (%s)%s", n and n.name or '?', n and n.op or '?', fmt:format(...))
end

-- -- Names and nodes ---------------------------------------------------------------------------------------

--- A name that is not taken.
function Writer:name(base)
  local name, k = base, 1
  while self.taken[name] do
    k = k + 1
    name = base .. '_' .. k
  end
  self.taken[name] = true
  return name
end

local function attribute(name, v)
  local a = {name = name}
  if type(v) == 'number' then a.i, a.type = v, 2
  elseif type(v) == 'boolean' then a.i, a.type = v and 1 or 0, 2
  elseif type(v) == 'string' then a.s, a.type = v, 3
  elseif v.f then a.f, a.type = v.f, 1
  elseif v.data_type then a.t, a.type = v, 4
  elseif type(v[1]) == 'string' then a.strings, a.type = v, 8
  else a.ints, a.type = v, 7 end
  return a
end

--- A node; gives the names of its results.
-- @tparam string op
-- @tparam table inputs names, '' where one is absent
-- @tparam ?table attrs
-- @tparam ?number results (1)
function Writer:emit(op, inputs, attrs, results)
  local node = {op_type = op, input = {}, output = {}, attribute = {}}
  for i = 1, #inputs do node.input[i] = inputs[i] end
  while #node.input > 0 and node.input[#node.input] == '' do node.input[#node.input] = nil end
  local base = self.node and self.node.name or 'node'
  node.name = self:name(base .. '/' .. op)
  for i = 1, results or 1 do node.output[i] = self:name(i == 1 and node.name .. ':0' or node.name .. ':' .. (i - 1)) end
  local keys = {}
  for k in pairs(attrs or {}) do keys[#keys + 1] = k end
  table.sort(keys)
  for i, k in ipairs(keys) do node.attribute[i] = attribute(k, attrs[k]) end
  self.nodes[#self.nodes + 1] = node
  return unpack(node.output)
end

--- Give a result of the nodes since `from` the name of the graph's value.
function Writer:rename(from, old, new)
  local found = false
  for k = from, #self.nodes do
    for i, name in ipairs(self.nodes[k].output) do
      if name == old then
        self.nodes[k].output[i] = new
        found = true
      end
    end
  end
  if not found then return false end
  for k = from, #self.nodes do
    for i, name in ipairs(self.nodes[k].input) do
      if name == old then self.nodes[k].input[i] = new end
    end
  end
  return true
end

-- -- Constants ---------------------------------------------------------------------------------------------

--- An initializer of numbers; equal ones are one. Shape {} is a scalar.
function Writer:const(list, dtype, shape)
  local key = dtype .. ':' .. table.concat(shape or {#list}, 'x') .. ':'
  local texts = {}
  for i, v in ipairs(list) do texts[i] = ('%.17g'):format(v) end
  key = key .. table.concat(texts, ',')
  if not self.known[key] then
    if dtype == 'float16' or dtype == 'bfloat16' then
      local t = amp.tensor(list, {dtype = 'float32'}):reshape(shape or {#list}):to(dtype)
      self.known[key] = self:tensor(t, 'constant')
    else
      local name = self:name 'constant'
      self.initializers[#self.initializers + 1] = tensors.numbers(name, list, dtype, shape)
      self.known[key] = name
    end
  end
  return self.known[key]
end

function Writer:scalar(v, dtype)
  if dtype == 'bool' then v = v ~= 0 and v ~= false and 1 or 0 end
  return self:const({v}, dtype, {})
end

function Writer:ints(list) return self:const(list, 'int64') end

--- A tensor as an initializer.
function Writer:tensor(t, base)
  local name = self:name(base)
  self.initializers[#self.initializers + 1] = tensors.message(name, t:detach())
  return name
end

function Writer:cast(name, from, to)
  if from == to then return name end
  return self:emit('Cast', {name}, {to = proto.number[to]})
end

-- -- Sizes that are free -----------------------------------------------------------------------------------

-- Free size i (from 0) as a list of one int64.
function Writer:free_size(i)
  if not self.sizes[i] then
    local free, node = self.free[i + 1], self.node
    self.node = {name = free.name .. '.size', op = 'size'}
    self.sizes[i] = self:emit('Gather', {self:emit('Shape', {free.name}), self:ints {free.dim - 1}}, {axis = 0})
    self.node = node
  end
  return self.sizes[i]
end

local function gcd(a, b)
  while b ~= 0 do a, b = b, a % b end
  return a
end

local function power(e, name, i, p)
  for _ = 1, p do name = name and e:emit('Mul', {name, e:free_size(i)}) or e:free_size(i) end
  return name
end

-- A sum of terms as a list of one int64.
local function whole(e, terms)
  local common, sum, more = 1, nil, 0
  for _, t in ipairs(terms) do
    if t.denominator % 1 ~= 0 or t.numerator % 1 ~= 0 or t.denominator == 0 then e:fail(': a size follows no ratio of whole numbers') end
    common = common * math.abs(t.denominator) / gcd(common, math.abs(t.denominator))
  end
  for _, t in ipairs(terms) do
    local product, below
    for i, p in pairs(t.power) do
      if p > 0 then product = power(e, product, i, p) else below = power(e, below, i, -p) end
    end
    if below and (#terms > 1 or common ~= 1) then e:fail(': a size follows a sum of ratios, which has no exact counterpart') end
    local factor = t.numerator * common / t.denominator
    if not product then product = e:ints {factor}
    elseif factor ~= 1 then product = e:emit('Mul', {product, e:ints {factor}}) end
    if below then product = e:emit('Div', {product, below}) end
    sum = sum and e:emit('Add', {sum, product}) or product
    more = more + t.more * common
  end
  if more ~= 0 then sum = e:emit('Add', {sum, e:ints {more}}) end
  if common ~= 1 then sum = e:emit('Div', {sum, e:ints {common}}) end
  return sum
end

--- The expression of a number that follows free sizes, as a list of one element of a dtype; float: computed in float64.
function Writer:expression(terms, dtype)
  if dtype == 'int64' then return whole(self, terms) end
  local sum
  local function const(v) return self:const({v}, 'float64') end
  local function factor(product, i, p)
    for _ = 1, math.abs(p) do
      local size = self:cast(self:free_size(i), 'int64', 'float64')
      product = self:emit(p > 0 and 'Mul' or 'Div', {product, size})
    end
    return product
  end
  for _, t in ipairs(terms) do
    local product = const(t.numerator / t.denominator)
    for i, p in pairs(t.power) do product = factor(product, i, p) end
    if t.more ~= 0 then product = self:emit('Add', {product, const(t.more)}) end
    sum = sum and self:emit('Add', {sum, product}) or product
  end
  return self:cast(sum, 'float64', dtype)
end

--- A list of numbers and of terms as a tensor of int64.
function Writer:shape(list)
  local fixed = true
  for _, v in ipairs(list) do fixed = fixed and type(v) == 'number' end
  if fixed then return self:ints(list) end
  local parts, run = {}, {}
  local function flush()
    if #run > 0 then parts[#parts + 1] = self:ints(run) end
    run = {}
  end
  for _, v in ipairs(list) do
    if type(v) == 'number' then run[#run + 1] = v
    else
      flush()
      parts[#parts + 1] = whole(self, v)
    end
  end
  flush()
  return #parts == 1 and parts[1] or self:emit('Concat', parts, {axis = 0})
end

--- x as a list of one becomes a scalar.
function Writer:to_scalar(name) return self:emit('Reshape', {name, self:const({}, 'int64', {0})}) end

-- -- Reading the graph -------------------------------------------------------------------------------------

function Writer.info(handle, i)
  local v = C.amp_graph_value_at(handle, i)
  local shape = {}
  for d = 0, v.ndim - 1 do shape[d + 1] = tonumber(v.size[d]) end
  return {name = ffi.string(v.name), kind = v.kind, dtype = require('amp.types').dtype_name[v.dtype], shape = shape, index = i, tensor = v.tensor}
end

return Writer

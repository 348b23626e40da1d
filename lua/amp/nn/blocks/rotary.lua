--- nn.RotaryEmbedding: positions as rotations of pairs of a head's elements (Su et al., 2021), in the half-rotated form of
-- transformers: element i goes with element i + dim / 2.
--
-- Scaling for longer texts than those of the training: 'linear' (angles over factor), 'dynamic' (the base grows with the length
-- beyond max_positions), 'llama3' (low frequencies over factor, high ones kept, a ramp between).
local amp = require 'amp'
local options = require 'amp.options'
local util = require 'amp.util'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw
local core = require 'amp.ffi'
local lasting = require('amp.core.scope').lasting -- tables outlive the scope that first needs them

local RotaryEmbedding = Module:extend('nn.RotaryEmbedding')

local kinds = {}

function kinds.default() end

function kinds.linear(frequency, s)
  for i = 1, #frequency do frequency[i] = frequency[i] / s.factor end
end

-- Its base depends on the length: see frequencies.
function kinds.dynamic() end
kinds.ntk = kinds.dynamic

function kinds.llama3(frequency, s)
  local old, low, high = s.original_max_position_embeddings, s.low_freq_factor, s.high_freq_factor
  for i = 1, #frequency do
    local length = 2 * math.pi / frequency[i]
    if length > old / low then
      frequency[i] = frequency[i] / s.factor
    elseif length >= old / high then
      local smooth = (old / length - low) / (high - low)
      frequency[i] = (1 - smooth) * frequency[i] / s.factor + smooth * frequency[i]
    end
  end
end

local needs = {
  linear = {'factor'}, dynamic = {'factor'}, ntk = {'factor'},
  llama3 = {'factor', 'low_freq_factor', 'high_freq_factor', 'original_max_position_embeddings'},
}

local function check_scaling(op, s)
  if s == nil then return nil end
  if type(s) ~= 'table' then raise(op, 'scaling is a table, as {type = \'linear\', factor = 2}, got %s', util.show(s)) end
  local kind = s.rope_type or s.type or 'default'
  if not kinds[kind] then
    raise(op, 'there is no scaling of kind %s%s (there are %s)', util.show(kind), util.hint(kind, util.keys(kinds)), table.concat(util.keys(kinds), ', '))
  end
  local own = {kind = kind}
  for _, name in ipairs(needs[kind] or {}) do own[name] = options.number(op, 'scaling.' .. name, s[name], 0) end
  own.original_max_position_embeddings = own.original_max_position_embeddings or s.original_max_position_embeddings
  return kind ~= 'default' and own or nil
end

--- Make it.
-- @tparam number dim elements of a head, even
-- @tparam ?table given max_positions (2048; a first guess, tables grow; where 'dynamic' scaling begins), base (10000; also `theta`),
-- scaling (nil, or {type = 'linear' | 'dynamic' | 'llama3', factor, ...} with the names of config.json's rope_scaling)
-- @usage nn.RotaryEmbedding(64, {base = 500000})
function RotaryEmbedding:init(dim, ...)
  local op = self.__name
  self.dim = options.integer(op, 'dim', dim, 2)
  if dim % 2 ~= 0 then raise(op, 'dim must be even, got %d', dim) end
  local o = options.arguments(op, {'max_positions', 'base', 'scaling', 'theta', 'max_position_embeddings'}, 0, {}, ...)
  self.max_positions = options.integer(op, 'max_positions', o.max_positions or o.max_position_embeddings or 2048, 1)
  self.base = options.number(op, 'base', o.base or o.theta or 10000, 0)
  self.scaling = check_scaling(op, o.scaling)
  self.tables = {}
end

-- Radians a position turns each pair by.
local function frequencies(self, length)
  local base, dim, s = self.base, self.dim, self.scaling
  if s and (s.kind == 'dynamic' or s.kind == 'ntk') and length > self.max_positions then
    base = base * (s.factor * length / self.max_positions - (s.factor - 1)) ^ (dim / (dim - 2))
  end
  local list = {}
  for i = 1, dim / 2 do list[i] = 1 / base ^ (2 * (i - 1) / dim) end
  if s then kinds[s.kind](list, s) end
  return list
end

local function recording() return core.C.amp_graph_recording(core.S) ~= 0 end

-- cos and sin of positions 0 .. length - 1, each length x dim in float32, on a device. Longer ones serve all shorter ones, but
-- where the base depends on the length. A graph that is recorded has them for all positions, whatever ran before.
local function tables(self, length, device)
  local noted = recording()
  if noted then length = math.max(length, self.max_positions) end
  local s = self.scaling
  local dynamic = s and (s.kind == 'dynamic' or s.kind == 'ntk') and length > self.max_positions
  local key = dynamic and device .. ' of ' .. length or device
  local have = self.tables[key]
  if have and have.length >= length then return have end
  local n = length
  if not dynamic then
    n = 64
    while n < length do n = n * 2 end
    if n > self.max_positions and length <= self.max_positions then n = self.max_positions end
  end
  have = lasting(amp.autocast, {enabled = false}, amp.no_grad, function()
    local f = amp.tensor(frequencies(self, length), {device = device, dtype = 'float32'})
    local angle = amp.arange(0, n, {dtype = 'float32', device = device}):unsqueeze(2) * f:unsqueeze(1)
    angle = amp.cat({angle, angle}, 2)
    return {length = n, cos = angle:cos(), sin = angle:sin()}
  end)
  if dynamic and not noted then
    for k in pairs(self.tables) do
      if k:find(' of ', 1, true) then self.tables[k] = nil end
    end
  end
  if not noted then self.tables[key] = have end
  return have
end

--- cos and sin of positions.
-- @tparam number length how many; or, with `positions`, more than the largest of them
-- @tparam ?table given device, dtype (float32), offset (0: the first position), positions (int tensor, from 1; offset is not looked at)
-- @treturn Tensor length x dim (positions' shape x dim)
-- @treturn Tensor
function RotaryEmbedding:cos_sin(length, given)
  local o = options.read(self.__name, given, {'device', 'dtype', 'offset', 'positions'}, {offset = 0})
  local p = o.positions
  local device = o.device or p and p.device or amp.get_default_device()
  local all = tables(self, p and length or length + o.offset, device)
  local cos, sin
  if p then
    cos, sin = amp.embedding(p, all.cos), amp.embedding(p, all.sin)
  else
    cos, sin = all.cos:narrow(1, o.offset + 1, length), all.sin:narrow(1, o.offset + 1, length)
  end
  if o.dtype and o.dtype ~= 'float32' then cos, sin = cos:to(o.dtype), sin:to(o.dtype) end
  return cos, sin
end

--- x turned by cos and sin, which broadcast to it.
-- @tparam Tensor x ... x dim
function RotaryEmbedding.rotate(x, cos, sin)
  local half = x:size(-1) / 2
  local turned = amp.cat({-x:narrow(-1, half + 1, half), x:narrow(-1, 1, half)}, -1)
  return x * cos + turned * sin
end

local inputs = {'offset', 'positions'}

--- Turn queries, or queries and keys, by their positions.
-- @tparam Tensor x ... x length x dim, as batch x heads x length x dim
-- @tparam ?Tensor k the keys: ... x length x dim
-- @tparam ?table given offset (0: positions begin there), or positions (int tensor from 1, length, or batch x length where x is
-- batch x heads x length x dim)
-- @treturn Tensor x's shape
-- @treturn ?Tensor
-- @usage q, k = rope(q, k, {offset = past})
function RotaryEmbedding:forward(x, k, given)
  local op = self.__name
  if k ~= nil and not amp.is_tensor(k) then k, given = nil, k end
  if not amp.is_tensor(x) then raise(op, 'a tensor expected, got %s', util.show(x)) end
  if x:dim() < 2 or x:size(-1) ~= self.dim then raise(op, '... x length x %d expected, got shape %s', self.dim, tostring(x:size())) end
  local o = options.read(op, given, inputs, {offset = 0})
  local p, cos, sin = o.positions
  if p then
    if not amp.is_tensor(p) then raise(op, 'positions are an int tensor, got %s', util.show(p)) end
    if p:numel() == 0 and not recording() then return x, k end
    cos, sin = self:cos_sin(recording() and self.max_positions or p:max():item(), {positions = p, device = x.device, dtype = x.dtype})
    if p:dim() == 2 and x:dim() > 3 then cos, sin = cos:unsqueeze(2), sin:unsqueeze(2) end
  else
    options.integer(op, 'offset', o.offset, 0)
    cos, sin = self:cos_sin(x:size(-2), {offset = o.offset, device = x.device, dtype = x.dtype})
  end
  if k then return self.rotate(x, cos, sin), self.rotate(k, cos, sin) end
  return self.rotate(x, cos, sin)
end

function RotaryEmbedding:extra_repr()
  return ('%d, base %g%s'):format(self.dim, self.base, self.scaling and ', ' .. self.scaling.kind .. ' scaling' or '')
end

return RotaryEmbedding

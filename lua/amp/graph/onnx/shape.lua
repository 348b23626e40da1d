--- Views, joins and makers in ONNX: functions of the writer and a node that give the names of its results.
-- @module amp.graph.onnx.shape
local X = {}

local function is_free(v) return type(v) == 'table' end

--- x in a shape: numbers and terms; one that is free stands as -1, where none does.
local function reshape(e, x, list)
  local free, open, zero = 0, false, false
  for _, v in ipairs(list) do
    if is_free(v) then free = free + 1
    elseif v == -1 then open = true
    elseif v == 0 then zero = true end
  end
  if free == 1 and not open and not zero then
    local copy = {}
    for i, v in ipairs(list) do copy[i] = is_free(v) and -1 or v end
    list = copy
  end
  return e:emit('Reshape', {x, e:shape(list)}, zero and not open and {allowzero = 1} or nil)
end
X.reshape_to = reshape

-- The shape of result 1, where sizes may be free: at most one of them.
local function result_shape(n)
  local out, list, open = n:result(), {}, false
  for d, s in ipairs(out.shape) do
    if out.free and out.free[d] then
      if out.free[d] ~= true then s = out.free[d]
      elseif open then n:fail 'gives several sizes that are free, which its counterpart can\'t'
      else s, open = -1, true end
    end
    list[d] = s
  end
  return list
end
X.result_shape = result_shape

function X.reshape(e, n) return reshape(e, n:input(1), n:list 'shape') end
X.view = X.reshape

function X.flatten(e, n)
  local rank = n:rank(1)
  local first, last = n:dim('start_dim', rank), n:dim('end_dim', rank)
  if first == 1 and last == rank - 1 and rank >= 2 then return e:emit('Flatten', {n:input(1)}, {axis = 1}) end
  return reshape(e, n:input(1), result_shape(n))
end

local function order(rank)
  local perm = {}
  for d = 1, rank do perm[d] = d - 1 end
  return perm
end

function X.transpose(e, n)
  local perm, a, b = order(n:rank(1)), n:dim('dim0', n:rank(1)), n:dim('dim1', n:rank(1))
  if n:rank(1) == 0 or a == b then return e.env[n.inputs[1].index] end
  perm[a + 1], perm[b + 1] = perm[b + 1], perm[a + 1]
  return e:emit('Transpose', {n:input(1)}, {perm = perm})
end

function X.t(e, n)
  if n:rank(1) < 2 then return e.env[n.inputs[1].index] end
  return e:emit('Transpose', {n:input(1)}, {perm = {1, 0}})
end

function X.permute(e, n) return e:emit('Transpose', {n:input(1)}, {perm = n:dims('dims', n:rank(1))}) end

function X.movedim(e, n)
  local rank = n:rank(1)
  local from, to, perm, moved = n:dims('source', rank), n:dims('destination', rank), {}, {}
  for i, d in ipairs(from) do perm[to[i] + 1], moved[d] = d, true end
  local at = 1
  for d = 0, rank - 1 do
    if not moved[d] then
      while perm[at] do at = at + 1 end
      perm[at] = d
    end
  end
  return e:emit('Transpose', {n:input(1)}, {perm = perm})
end

function X.expand(e, n)
  local list = n:list 'shape'
  for d, v in ipairs(list) do
    if v == -1 then list[d] = 1 end
  end
  return e:emit('Expand', {n:input(1), e:shape(list)})
end

-- A start from 1 (or from the end) as one from 0, for Slice.
local function start_of(e, v)
  if not is_free(v) then return e:ints {v > 0 and v - 1 or v} end
  return e:emit('Sub', {e:shape {v}, e:ints {1}})
end

function X.narrow(e, n)
  local axis, from, length = n:dim('dim', n:rank(1)), n:free 'start', n:free 'length'
  local starts = start_of(e, from)
  local ends
  if not is_free(from) and not is_free(length) then
    local last = from > 0 and from - 1 + length or from + length
    ends = e:ints {from < 0 and last == 0 and e.LAST or last}
  else
    if not is_free(from) and from < 0 then n:fail 'has no counterpart for a start from the end with a free length' end
    ends = e:emit('Add', {starts, e:shape {length}})
  end
  return e:emit('Slice', {n:input(1), starts, ends, e:ints {axis}})
end

function X.slice(e, n)
  local axis, from, to, step = n:dim('dim', n:rank(1)), n:free 'start', n:free 'stop', n:attr 'step'
  local ends
  if to == nil then ends = e:ints {e.LAST}
  elseif is_free(to) then ends = e:shape {to}
  elseif to >= 0 then ends = e:ints {to}
  else ends = e:ints {to == -1 and e.LAST or to + 1} end
  return e:emit('Slice', {n:input(1), from == nil and e:ints {0} or start_of(e, from), ends, e:ints {axis}, e:ints {step}})
end

function X.select(e, n)
  local axis, at = n:dim('dim', n:rank(1)), n:free 'index'
  local index
  if is_free(at) then index = e:emit('Sub', {e:to_scalar(e:shape {at}), e:scalar(1, 'int64')})
  else index = e:scalar(at > 0 and at - 1 or at, 'int64') end
  return e:emit('Gather', {n:input(1), index}, {axis = axis})
end

function X.unbind(e, n)
  local axis, names = n:dim('dim', n:rank(1)), {}
  for i = 1, n:size(1, axis + 1) do names[i] = e:emit('Gather', {n:input(1), e:scalar(i - 1, 'int64')}, {axis = axis}) end
  return unpack(names)
end

function X.squeeze(e, n)
  local d, axes = n:dim('dim', n:rank(1)), {}
  if d then
    if n:rank(1) == 0 then return e.env[n.inputs[1].index] end
    if n:size(1, d + 1) ~= 1 then return e.env[n.inputs[1].index] end
    axes[1] = d
  else
    for k, s in ipairs(n:shape(1)) do
      if n:fixed(1, k) and s == 1 then axes[#axes + 1] = k - 1 end
    end
    if #axes == 0 then return e.env[n.inputs[1].index] end
  end
  return e:emit('Squeeze', {n:input(1), e:ints(axes)})
end

function X.unsqueeze(e, n) return e:emit('Unsqueeze', {n:input(1), e:ints {n:dim('dim', n:rank(1) + 1)}}) end

function X.unfold(e, n)
  local rank = n:rank(1)
  local axis, size, step = n:dim('dim', rank), n:attr 'size', n:attr 'step'
  local count, list = math.floor((n:size(1, axis + 1) - size) / step) + 1, {}
  for w = 0, count - 1 do
    for k = 0, size - 1 do list[#list + 1] = w * step + k end
  end
  local out, perm = e:emit('Gather', {n:input(1), e:const(list, 'int64', {count, size})}, {axis = axis}), {}
  for d = 0, rank do
    if d ~= axis + 1 then perm[#perm + 1] = d end
  end
  perm[#perm + 1] = axis + 1
  return e:emit('Transpose', {out}, {perm = perm})
end

-- -- Joining -----------------------------------------------------------------------------------------------

local function all(n)
  local names, dtype = {}, n:result().dtype
  for i = 1, #n.inputs do names[i] = n:input(i, dtype) end
  return names
end

local function concat(e, names, axis) return #names == 1 and names[1] or e:emit('Concat', names, {axis = axis}) end

-- amp leaves out vectors of size 0 beside others.
function X.cat(e, n)
  local rank = 0
  for i = 1, #n.inputs do rank = math.max(rank, n:rank(i)) end
  return concat(e, all(n), n:dim('dim', rank))
end

function X.stack(e, n)
  local names, axis = all(n), n:dim('dim', n:rank(1) + 1)
  for i, name in ipairs(names) do names[i] = e:emit('Unsqueeze', {name, e:ints {axis}}) end
  return concat(e, names, axis)
end

function X.hstack(e, n)
  if n:rank(1) == 0 then n:fail 'has no counterpart for scalars' end
  return concat(e, all(n), n:rank(1) == 1 and 0 or 1)
end

function X.vstack(e, n)
  local names = all(n)
  for i, name in ipairs(names) do
    if n:rank(i) == 0 then n:fail 'has no counterpart for scalars' end
    if n:rank(i) == 1 then names[i] = e:emit('Unsqueeze', {name, e:ints {0}}) end
  end
  return concat(e, names, 0)
end

X['repeat'] = function(e, n)
  local x, list = n:input(1), n:list 'repeats'
  local axes = {}
  for d = 1, #list - n:rank(1) do axes[d] = d - 1 end
  if #axes > 0 then x = e:emit('Unsqueeze', {x, e:ints(axes)}) end
  return e:emit('Tile', {x, e:shape(list)})
end

function X.repeat_interleave(e, n)
  local count = n:number(2)
  local axis = n:dim('dim', n:rank(1))
  if not count or n.inputs[2].terms or not axis then n:fail 'has a counterpart for a number of repeats and a dimension only' end
  local x = e:emit('Unsqueeze', {n:input(1), e:ints {axis + 1}})
  local repeats = {}
  for d = 1, n:rank(1) + 1 do repeats[d] = d == axis + 2 and count or 1 end
  return reshape(e, e:emit('Tile', {x, e:ints(repeats)}), result_shape(n))
end

for name, upper in pairs {tril = 0, triu = 1} do
  X[name] = function(e, n)
    local dtype = n:dtype(1)
    local x = n:input(1, dtype == 'bool' and 'int32' or dtype)
    local out = e:emit('Trilu', {x, e:scalar(n:attr 'diagonal', 'int64')}, {upper = upper})
    return dtype == 'bool' and e:cast(out, 'int32', 'bool') or out
  end
end

local function reversed(e, x, axes)
  local starts, ends, steps = {}, {}, {}
  for i = 1, #axes do starts[i], ends[i], steps[i] = -1, e.FIRST, -1 end
  return e:emit('Slice', {x, e:ints(starts), e:ints(ends), e:ints(axes), e:ints(steps)})
end
function X.flip(e, n) return reversed(e, n:input(1), n:dims('dims', n:rank(1))) end
function X.flipud(e, n) return reversed(e, n:input(1), {0}) end
function X.fliplr(e, n) return reversed(e, n:input(1), {1}) end

function X.roll(e, n)
  local shifts, dims, x = n:numbers 'shifts', n:dims('dims', n:rank(1)), n:input(1)
  if not dims then n:fail 'has a counterpart with dims only' end
  for i, axis in ipairs(dims) do
    local size = n:size(1, axis + 1)
    local by = size > 0 and shifts[i] % size or 0
    if by ~= 0 then
      local head = e:emit('Slice', {x, e:ints {0}, e:ints {size - by}, e:ints {axis}})
      local tail = e:emit('Slice', {x, e:ints {size - by}, e:ints {size}, e:ints {axis}})
      x = e:emit('Concat', {tail, head}, {axis = axis})
    end
  end
  return x
end

-- -- Making ------------------------------------------------------------------------------------------------

local function filled(e, list, value, dtype)
  local free = false
  for _, v in ipairs(list) do free = free or is_free(v) end
  local wide = dtype == 'bool' and 'int32' or dtype
  local out = e:emit('ConstantOfShape', {#list == 0 and e:const({}, 'int64', {0}) or e:shape(list)},
    {value = require('amp.io.onnx.tensor').numbers('value', {value}, ({float16 = 'float32', bfloat16 = 'float32'})[wide] or wide)})
  return e:cast(out, ({float16 = 'float32', bfloat16 = 'float32'})[wide] or wide, dtype)
end

function X.full(e, n)
  local value = n:attr 'value'
  if n:result().dtype == 'bool' then value = value ~= 0 and 1 or 0 end
  return filled(e, n:list 'shape', value, n:result().dtype)
end
function X.empty(e, n) return filled(e, n:list 'shape', 0, n:result().dtype) end

function X.arange(e, n)
  local dtype, names = n:result().dtype, {}
  local wide = ({float16 = 'float32', bfloat16 = 'float32', int8 = 'int64', uint8 = 'int64', int16 = 'int64'})[dtype] or dtype
  for i, key in ipairs {'start', 'end', 'step'} do
    local v = n:free(key)
    names[i] = is_free(v) and e:to_scalar(e:expression(v, wide)) or e:scalar(v, wide)
  end
  return e:cast(e:emit('Range', names), wide, dtype)
end

-- Element-wise fillings in place.
function X.fill(e, n)
  local dtype = n:dtype(1)
  return e:emit('Expand', {e:scalar(n:attr 'value', dtype), e:emit('Shape', {n:input(1)})})
end

function X.copy(e, n)
  return e:emit('Expand', {n:input(2, n:dtype(1)), e:emit('Shape', {n:input(1)})})
end

return X

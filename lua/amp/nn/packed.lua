--- nn.utils.rnn: sequences of different lengths in one batch, packed without padding.
--
-- A PackedSequence holds the rows of all steps, step after step: `data` (rows x ...), and
-- `batch_sizes` (int64), how many sequences have each step. Longer sequences stand first; where
-- they came in another order, `sorted_indices` (from 1) says which sequence stands in each place
-- and `unsorted_indices` in which place each sequence stands.
-- @module amp.nn.utils.rnn
local amp = require 'amp'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local is_tensor = amp.is_tensor
local M = {}

-- -- PackedSequence -----------------------------------------------------------

local methods = {}
local PackedSequence = {is_packed_sequence = true, __index = methods}

function PackedSequence.__tostring(s)
  local n, steps = s.batch_sizes[1]:item(), s.batch_sizes:size(1)
  return ('nn.utils.rnn.PackedSequence(%d sequences, %d steps, data %s)'):format(n, steps, util.shape(s.data:size()))
end

local function make(data, batch_sizes, sorted, unsorted)
  return setmetatable({data = data, batch_sizes = batch_sizes, sorted_indices = sorted, unsorted_indices = unsorted}, PackedSequence)
end

local function int64(list) return amp.tensor(list, {dtype = 'int64'}) end

-- place of each element of a permutation
local function inverse(list)
  local out = {}
  for place, i in ipairs(list) do out[i] = place end
  return out
end

--- Make one of its parts (pack_padded_sequence and pack_sequence do).
-- @tparam Tensor data rows x ...
-- @tparam Tensor batch_sizes int64, never growing
-- @tparam ?Tensor sorted_indices int64
-- @tparam ?Tensor unsorted_indices int64; made of the other if it is nil
function M.PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices)
  local op = 'nn.utils.rnn.PackedSequence'
  if not is_tensor(data) or not is_tensor(batch_sizes) then
    raise(op, 'data and batch_sizes must be tensors, got %s and %s', util.show(data), util.show(batch_sizes))
  end
  if batch_sizes.dtype ~= 'int64' then raise(op, 'batch_sizes must be int64, got %s', batch_sizes.dtype) end
  if sorted_indices and not unsorted_indices then unsorted_indices = int64(inverse(sorted_indices:tolist())) end
  return make(data, batch_sizes, sorted_indices, unsorted_indices)
end

--- Is v a PackedSequence?
function M.is_packed(v)
  local mt = type(v) == 'table' and getmetatable(v)
  return type(mt) == 'table' and mt.is_packed_sequence == true
end

--- The same with other data (as many rows).
function methods:with(data) return make(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices) end

--- The same with data in another dtype or on another device; its indices move along.
function methods:to(...)
  local data = self.data:to(...)
  local sorted, unsorted = self.sorted_indices, self.unsorted_indices
  if sorted then sorted, unsorted = sorted:to(data.device), unsorted:to(data.device) end
  return make(data, self.batch_sizes, sorted, unsorted)
end
for name, what in pairs {half = 'float16', float = 'float32', double = 'float64', bfloat16 = 'bfloat16', cpu = 'cpu', cuda = 'cuda'} do
  methods[name] = function(self) return self:to(what) end
end

local function check_packed(op, s)
  if not M.is_packed(s) then raise(op, 'a PackedSequence expected, got %s', is_tensor(s) and 'a tensor' or util.show(s)) end
  return s
end

-- -- Lengths --------------------------------------------------------------------

-- Lengths as a list of n whole numbers from 1 to steps.
local function read_lengths(op, lengths, n, steps)
  if is_tensor(lengths) then
    lengths = lengths:dim() == 1 and lengths:tolist() or raise(op, 'lengths must have one dimension, got shape %s', util.shape(lengths:size()))
  end
  if type(lengths) ~= 'table' then raise(op, 'lengths must be a list of integers or a tensor, got %s', util.show(lengths)) end
  if #lengths ~= n then raise(op, '%d lengths are given for a batch of %d sequences', #lengths, n) end
  if n == 0 then raise(op, 'a batch without sequences can\'t be packed') end
  for i, v in ipairs(lengths) do
    if type(v) ~= 'number' or v % 1 ~= 0 then raise(op, 'length %d must be an integer, got %s', i, util.show(v)) end
    if v < 1 then raise(op, 'length %d is %d; a sequence has at least one step', i, v) end
    if v > steps then raise(op, 'length %d is %d, longer than the input of %d steps', i, v, steps) end
  end
  return lengths
end

-- Lengths sorted, the longest first (equal ones in their order), and which is which; nil if they came so.
local function sort(op, lengths, enforce)
  local order, sorted = {}, true
  for i = 1, #lengths do
    order[i] = i
    if i > 1 and lengths[i] > lengths[i - 1] then
      if enforce then
        raise(op, 'lengths must not grow, but length %d is %d after %d; {enforce_sorted = false} sorts them', i, lengths[i], lengths[i - 1])
      end
      sorted = false
    end
  end
  if enforce then return lengths end
  if not sorted then table.sort(order, function(a, b) return lengths[a] > lengths[b] or (lengths[a] == lengths[b] and a < b) end) end
  local out = {}
  for place, i in ipairs(order) do out[place] = lengths[i] end
  return out, order
end

-- Runs of steps with as many sequences: f(first step from 0, steps, sequences). Lengths are sorted.
local function runs(lengths, f)
  local from = 0
  for n = #lengths, 1, -1 do
    if lengths[n] > from then
      f(from, lengths[n] - from, n)
      from = lengths[n]
    end
  end
end

local function lengths_of(batch_sizes)
  local sizes, lengths = batch_sizes:tolist(), {}
  for t = 1, #sizes do
    for n = 1, sizes[t] do lengths[n] = t end
  end
  return lengths
end

local function rest(t, first) -- sizes of the dimensions from `first` on
  local out = {}
  for d = first, t:dim() do out[#out + 1] = t:size(d) end
  return out
end

local function join(list, dim) return #list == 1 and list[1] or amp.cat(list, dim) end

-- -- Packing --------------------------------------------------------------------

--- Pack a padded batch.
-- @tparam Tensor input steps x batch x ... (batch x steps x ... with `batch_first`)
-- @tparam table|Tensor lengths a list of integers
-- @tparam ?table options batch_first (false), enforce_sorted (true: an error where lengths grow; false: sequences are sorted)
-- @treturn PackedSequence
-- @raise lengths that are 0, too long or too many
-- @usage packed = nn.utils.rnn.pack_padded_sequence(x, {3, 2, 1}); y = nn.utils.rnn.pad_packed_sequence((net(packed)))
function M.pack_padded_sequence(...)
  local op = 'nn.utils.rnn.pack_padded_sequence'
  local names = {'input', 'lengths', 'batch_first', 'enforce_sorted'}
  local o = options.arguments(op, names, 2, {batch_first = false, enforce_sorted = true}, ...)
  local x = o.input
  options.boolean(op, 'batch_first', o.batch_first)
  options.boolean(op, 'enforce_sorted', o.enforce_sorted)
  if not is_tensor(x) then raise(op, 'input must be a tensor, got %s', util.show(x)) end
  if x:dim() < 2 then raise(op, 'input must have at least 2 dimensions, got shape %s', util.shape(x:size())) end
  if o.batch_first then x = x:transpose(1, 2) end
  local lengths, order = sort(op, read_lengths(op, o.lengths, x:size(2), x:size(1)), o.enforce_sorted)
  local sorted, unsorted
  if order then
    sorted, unsorted = int64(order):to(x.device), int64(inverse(order)):to(x.device)
    x = x:index_select(2, sorted)
  end
  local pieces, sizes, tail = {}, {}, rest(x, 3)
  runs(lengths, function(from, steps, n)
    pieces[#pieces + 1] = x:narrow(1, from + 1, steps):narrow(2, 1, n):reshape {steps * n, unpack(tail)}
    for t = from + 1, from + steps do sizes[t] = n end
  end)
  return make(join(pieces, 1), int64(sizes), sorted, unsorted)
end

--- Unpack into a padded batch, the sequences in their first order.
-- @tparam PackedSequence sequence
-- @tparam ?table options batch_first (false), padding_value (0), total_length (steps of the result; default: the longest)
-- @treturn Tensor steps x batch x ... (batch x steps x ... with `batch_first`)
-- @treturn Tensor lengths, int64
function M.pad_packed_sequence(...)
  local op = 'nn.utils.rnn.pad_packed_sequence'
  local names = {'sequence', 'batch_first', 'padding_value', 'total_length'}
  local o = options.arguments(op, names, 1, {batch_first = false, padding_value = 0}, ...)
  local s = check_packed(op, o.sequence)
  options.boolean(op, 'batch_first', o.batch_first)
  options.number(op, 'padding_value', o.padding_value)
  local lengths, data = lengths_of(s.batch_sizes), s.data
  local total = lengths[1]
  if o.total_length ~= nil then
    options.integer(op, 'total_length', o.total_length, 1)
    if o.total_length < total then raise(op, 'total_length %d is shorter than the longest sequence of %d steps', o.total_length, total) end
    total = o.total_length
  end
  local tail, batch, pieces, row = rest(data, 2), #lengths, {}, 1
  local function padding(steps, n)
    return amp.full({steps, n, unpack(tail)}, o.padding_value, {dtype = data.dtype, device = data.device})
  end
  runs(lengths, function(_, steps, n)
    local piece = data:narrow(1, row, steps * n):reshape {steps, n, unpack(tail)}
    row = row + steps * n
    pieces[#pieces + 1] = n == batch and piece or amp.cat({piece, padding(steps, batch - n)}, 2)
  end)
  if total > lengths[1] then pieces[#pieces + 1] = padding(total - lengths[1], batch) end
  local y, list = join(pieces, 1), int64(lengths)
  if s.unsorted_indices then
    y = y:index_select(2, s.unsorted_indices)
    list = list:index_select(1, s.unsorted_indices:to 'cpu')
  end
  if o.batch_first then y = y:transpose(1, 2) end
  return y, list
end

-- -- Lists of sequences -------------------------------------------------------------

local function check_list(op, list)
  if type(list) ~= 'table' or #list == 0 then raise(op, 'sequences must be a list of tensors, got %s', type(list) == 'table'
    and 'an empty one' or util.show(list)) end
  local shape
  for i, t in ipairs(list) do
    if not is_tensor(t) then raise(op, 'sequence %d must be a tensor, got %s', i, util.show(t)) end
    if t:dim() < 1 then raise(op, 'sequence %d is a scalar, expected length x ...', i) end
    local tail = table.concat(rest(t, 2), 'x')
    if i > 1 and tail ~= shape then
      raise(op, 'sequence %d has shape %s, sequence 1 %s; they may differ in their first dimension only', i, util.shape(t:size()), util.shape(list[1]:size()))
    end
    shape = tail
  end
  return list
end

--- Sequences of different lengths as one tensor, filled up.
-- @tparam table sequences tensors, length x ... each
-- @tparam ?table options batch_first (false), padding_value (0), padding_side ('right' or 'left')
-- @treturn Tensor longest x number x ... (number x longest x ... with `batch_first`)
function M.pad_sequence(...)
  local op = 'nn.utils.rnn.pad_sequence'
  local names = {'sequences', 'batch_first', 'padding_value', 'padding_side'}
  local o = options.arguments(op, names, 1, {batch_first = false, padding_value = 0, padding_side = 'right'}, ...)
  local list = check_list(op, o.sequences)
  options.boolean(op, 'batch_first', o.batch_first)
  options.number(op, 'padding_value', o.padding_value)
  if o.padding_side ~= 'right' and o.padding_side ~= 'left' then
    raise(op, "padding_side must be 'right' or 'left', got %s", util.show(o.padding_side))
  end
  local longest, out = 0, {}
  for _, t in ipairs(list) do longest = math.max(longest, t:size(1)) end
  for i, t in ipairs(list) do
    local more = longest - t:size(1)
    if more > 0 then
      local fill = amp.full({more, unpack(rest(t, 2))}, o.padding_value, {dtype = t.dtype, device = t.device})
      t = amp.cat(o.padding_side == 'right' and {t, fill} or {fill, t}, 1)
    end
    out[i] = t
  end
  return amp.stack(out, o.batch_first and 1 or 2)
end

--- Pack sequences of different lengths.
-- @tparam table sequences tensors, length x ... each
-- @tparam ?table options enforce_sorted (true: the longest must come first)
-- @treturn PackedSequence
function M.pack_sequence(...)
  local op = 'nn.utils.rnn.pack_sequence'
  local names = {'sequences', 'enforce_sorted'}
  local o = options.arguments(op, names, 1, {enforce_sorted = true}, ...)
  local list, lengths = check_list(op, o.sequences), {}
  for i, t in ipairs(list) do lengths[i] = t:size(1) end
  return M.pack_padded_sequence(M.pad_sequence(list), lengths, {enforce_sorted = o.enforce_sorted})
end

--- The sequences of a padded batch, each in its own length: a list.
-- @tparam Tensor padded steps x batch x ...
-- @tparam table|Tensor lengths
-- @tparam ?table options batch_first (false)
function M.unpad_sequence(...)
  local op = 'nn.utils.rnn.unpad_sequence'
  local names = {'padded', 'lengths', 'batch_first'}
  local o = options.arguments(op, names, 2, {batch_first = false}, ...)
  local x, out = o.padded, {}
  if not is_tensor(x) or x:dim() < 2 then
    raise(op, 'a tensor of at least 2 dimensions expected, got %s', is_tensor(x) and 'shape ' .. util.shape(x:size()) or util.show(x))
  end
  if o.batch_first then x = x:transpose(1, 2) end
  for i, n in ipairs(read_lengths(op, o.lengths, x:size(2), x:size(1))) do out[i] = x:select(2, i):narrow(1, 1, n) end
  return out
end

--- The sequences in a PackedSequence: a list.
function M.unpack_sequence(sequence)
  return M.unpad_sequence(M.pad_packed_sequence(check_packed('nn.utils.rnn.unpack_sequence', sequence)))
end

require('amp.core.class').guard(methods, 'nn.utils.rnn.PackedSequence', 'packed', PackedSequence)

return M

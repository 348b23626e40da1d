--- What is plotted, read into plain numbers.
--
-- Of a long series only what can be seen is copied from its device: the smallest and largest value of each
-- of LIMIT runs of neighbours. NaN and infinities are gaps.
local amp = require 'amp'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

local LIMIT = 4000 -- runs of a long line
local POINTS = 100000 -- of a scatter

local function finite(v) return v == v and v ~= math.huge and v ~= -math.huge end
M.finite = finite

-- A list of numbers, or of tensors of one element: plain numbers.
local function list_of(op, name, list)
  local out = {}
  for i = 1, #list do
    local v = list[i]
    if amp.is_tensor(v) and v:numel() == 1 then v = v:item() end
    if type(v) == 'boolean' then v = v and 1 or 0 end
    if type(v) ~= 'number' then
      raise(op, '%s: a tensor or a list of numbers expected, but element %d is %s', name, i,
        amp.is_tensor(v) and 'a tensor of shape ' .. tostring(v:size()) or util.show(v))
    end
    out[i] = v
  end
  return out
end

local function flat(t)
  t = t:detach()
  return t:dim() == 1 and t or t:reshape(-1)
end

--- All values of a tensor or a list, in order.
-- @tparam string op who asks
-- @tparam string name what for
function M.values(op, name, v)
  if amp.is_tensor(v) then return flat(v):to('cpu'):double():tolist() end
  if type(v) ~= 'table' then raise(op, '%s: a tensor or a list of numbers expected, got %s', name, util.show(v)) end
  return list_of(op, name, v)
end

--- How many values something has.
function M.count(op, name, v)
  if amp.is_tensor(v) then return v:numel() end
  if type(v) ~= 'table' then raise(op, '%s: a tensor or a list of numbers expected, got %s', name, util.show(v)) end
  return #v
end

-- Smallest and largest of runs of k neighbours of a vector, computed where it is.
local function extremes(t, k)
  local n = t:numel()
  local m = math.floor(n / k)
  if t.dtype ~= 'float64' then t = t:float() end
  local runs = t:narrow(1, 1, m * k):reshape(m, k)
  local low, high = runs:amin(2), runs:amax(2)
  local both = amp.stack({low, high}, 1):to('cpu'):tolist()
  if m * k < n then
    local rest = t:narrow(1, m * k + 1, n - m * k)
    both[1][m + 1], both[2][m + 1] = rest:min():item(), rest:max():item()
  end
  return both[1], both[2]
end

-- Runs of a list of points, each by its first, smallest, largest and last, in order.
local function thin(xs, ys)
  local n = #ys
  if n <= 4 * LIMIT then return xs, ys end
  local ox, oy, k = {}, {}, math.ceil(n / LIMIT)
  for from = 1, n, k do
    local last = math.min(from + k - 1, n)
    local low, high = from, from
    for i = from, last do
      if ys[i] < ys[low] or not finite(ys[low]) then low = i end
      if ys[i] > ys[high] or not finite(ys[high]) then high = i end
    end
    local at = {from, math.min(low, high), math.max(low, high), last}
    for j = 1, 4 do
      if j == 1 or at[j] ~= at[j - 1] then ox[#ox + 1], oy[#oy + 1] = xs[at[j]], ys[at[j]] end
    end
  end
  return ox, oy
end

--- The points of a line.
-- @param x tensor, list or nil (1, 2, 3, ...)
-- @param y tensor or list
-- @treturn table xs
-- @treturn table ys
function M.line(op, x, y)
  local n = M.count(op, 'y', y)
  if x == nil then
    if amp.is_tensor(y) and n > 8 * LIMIT then
      local k = math.ceil(n / LIMIT)
      local low, high = extremes(flat(y), k)
      local xs, ys = {}, {}
      for i = 1, #low do
        local first = (i - 1) * k
        local last = math.min(first + k, n)
        -- up in one run and down in the next, so that the line between is short
        local a, b = low[i], high[i]
        if i % 2 == 0 then a, b = b, a end
        xs[2 * i - 1], ys[2 * i - 1] = first + 1, a
        xs[2 * i], ys[2 * i] = last, b
      end
      return xs, ys
    end
    local ys, xs = M.values(op, 'y', y), {}
    for i = 1, n do xs[i] = i end
    return thin(xs, ys)
  end
  local m = M.count(op, 'x', x)
  if m ~= n then raise(op, 'x has %d values, y has %d', m, n) end
  return thin(M.values(op, 'x', x), M.values(op, 'y', y))
end

--- The points of a scatter; of very many every k-th, k being the third result.
function M.points(op, x, y)
  local n, m = M.count(op, 'y', y), M.count(op, 'x', x)
  if m ~= n then raise(op, 'x has %d values, y has %d', m, n) end
  local k = math.ceil(n / POINTS)
  local function every(v)
    if k <= 1 then return v end
    if amp.is_tensor(v) then return flat(v)[{{1, n, k}}] end
    local out = {}
    for i = 1, n, k do out[#out + 1] = v[i] end
    return out
  end
  return M.values(op, 'x', every(x)), M.values(op, 'y', every(y)), math.max(k, 1)
end

--- An exponential moving average that begins at the first value, as of a run that began long ago.
-- @tparam number weight of what was before, from 0 to below 1
function M.smooth(ys, weight)
  local out, mean, total = {}, 0, 0
  for i, y in ipairs(ys) do
    if finite(y) then
      mean = mean * weight + y * (1 - weight)
      total = total * weight + 1 - weight
    end
    out[i] = finite(y) and mean / total or y
  end
  return out
end

--- Counts of values in equal bins; what is not finite is counted apart.
-- @treturn table edges bins + 1 numbers
-- @treturn table counts
-- @treturn number how many were not finite
function M.histogram(op, v, bins, low, high)
  local t = v
  if not amp.is_tensor(t) then t = amp.tensor(M.values(op, 'values', v), {dtype = 'float64'}) end
  t = flat(t)
  if t.dtype ~= 'float64' then t = t:float() end
  local n = t:numel()
  local good = n > 0 and t:isfinite() or nil
  local bad = n > 0 and n - good:sum():item() or 0
  if bad > 0 then t = t:masked_select(good) end
  if t:numel() == 0 then raise(op, n == 0 and 'there are no values' or 'none of the %d values is finite', n) end
  if low == nil or high == nil then
    local least, most = t:min():item(), t:max():item()
    low, high = low or least, high or most
    if low == high then low, high = low - 0.5, high + 0.5 end
  end
  local ordered = low < high
  if not ordered then raise(op, 'the range from %g to %g is empty', low, high) end
  local counts = t:histc(bins, low, high):to('cpu'):tolist()
  local edges = {}
  for i = 0, bins do edges[i + 1] = low + (high - low) * i / bins end
  return edges, counts, bad
end

return M

--- Tensors as text: aligned columns, edges of large ones, dtype and device in the last line.
--     1  2  3
--     4  5  6
--    [amp.Tensor of size 2x3, float32, cpu]
-- Only what is shown is copied from the device.
-- @module amp.tensor.print
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local ffi = require 'ffi'
local ops = require 'amp.ops'
local C, S = core.C, core.S

local M = {}

local LIMIT, EDGE, WIDTH = 1000, 3, 80 -- elements shown whole; positions at each end; columns of text
local SLICES = 36                      -- matrices shown of a large tensor
local MOST = 2LL ^ 53                  -- the integers below are Lua numbers

-- -- Elements -------------------------------------------------------------------------------

-- How many positions are shown at each end of each dimension; false: all of it. A large tensor shows
-- EDGE of each, and of leading dimensions fewer where there would be too many slices.
local function edges(size, nd, n)
  local list = {}
  for d = 1, nd do list[d] = n > LIMIT and size[d] > 2 * EDGE and EDGE end
  if n <= LIMIT then return list end
  for edge = EDGE, 1, -1 do
    local slices = 1
    for d = 1, nd - 2 do
      if size[d] > 2 * edge then list[d] = edge end
      slices = slices * (list[d] and 2 * list[d] or size[d])
    end
    if slices <= SLICES then break end
  end
  return list
end

-- Positions of a dimension that are shown; false stands for the gap.
local function shown(size, edge)
  local list = {}
  if not edge then
    for i = 1, size do list[i] = i end
  else
    for i = 1, edge do list[i] = i end
    list[edge + 1] = false
    for i = size - edge + 1, size do list[#list + 1] = i end
  end
  return list
end

-- What is shown of a large tensor, as a small one. The two ends of a dimension are windows of it, so
-- what comes out is a view; only where 8 dimensions don't hold it are some ends joined by a copy.
local function cut(t, size, edge)
  local order, shape = {}, {}
  for d = 1, #size do
    shape[d] = edge[d] and 2 * edge[d] or size[d]
    if edge[d] then order[#order + 1] = d end
  end
  if #order == 0 then return t end
  table.sort(order, function(a, b) return size[a] > size[b] end)
  local at = {} -- at[d]: where dimension d stands in the view
  for d = 1, #size do at[d] = d end
  for _, d in ipairs(order) do
    local n, e, here = size[d], edge[d], at[d]
    if t:dim() < 8 then
      t = t:unfold(here, e, n - e):movedim(-1, here + 1)
      for k = d + 1, #size do at[k] = at[k] + 1 end
    else
      t = ops.get 'cat'({ t:narrow(here, 1, e), t:narrow(here, n - e + 1, e) }, here)
    end
  end
  return t:reshape(shape)
end

-- A reader of the shown elements (index: a table, from 1) of a detached tensor, which it reads at once.
local function reader(t, size, edge, places)
  local nd, at = #places, {} -- at[d][i]: place of index i among those shown, from 0
  t = cut(t, size, edge)
  local shape, n = t.shape, t:numel()
  for d = 1, nd do
    local k = 0
    at[d] = {}
    for _, i in ipairs(places[d]) do
      if i then
        at[d][i] = k
        k = k + 1
      end
    end
  end
  local data
  if t.dtype == 'int64' then -- large ones have more digits than a Lua number
    local copy = t:to('cpu'):contiguous()
    local from = copy:data_ptr()
    data = ffi.new('int64_t[?]', math.max(n, 1))
    ffi.copy(data, from, 8 * n)
  else
    data = ffi.new('double[?]', math.max(n, 1))
    call.try('tostring', C.amp_read, S, t, data, n)
  end
  return function(index)
    local p = 0
    for d = 1, nd do p = p * shape[d] + at[d][index[d]] end
    local v = data[p]
    if type(v) == 'cdata' and v > -MOST and v < MOST then v = tonumber(v) end
    return v
  end
end

-- -- Numbers ---------------------------------------------------------------------------------

local function special(v)
  if type(v) == 'cdata' then return (tostring(v):gsub('LL$', '')) end
  if v ~= v then return 'nan' end
  if v == math.huge then return 'inf' end
  if v == -math.huge then return '-inf' end
end

-- How all numbers of one tensor are written: a function from value to text.
local function format_of(values, dtype)
  if dtype == 'bool' then return function(v) return v ~= 0 and 'true' or 'false' end end
  local integral, lo, hi = true, math.huge, 0
  for i = 1, #values do
    local v = values[i]
    if not special(v) then
      local a = math.abs(v)
      if v % 1 ~= 0 then integral = false end
      if a > 0 and a < lo then lo = a end
      if a > hi then hi = a end
    end
  end
  local fmt
  if integral and (hi < 1e8 or not dtype:find 'float') then
    fmt = '%.0f'
  elseif hi >= 1e6 or (hi > 0 and hi < 1e-4) or (lo < 1e-4 and hi / lo > 1e4) then
    fmt = '%.4e'
  else
    fmt = '%.4f'
  end
  return function(v) return special(v) or fmt:format(v) end
end

local function pad(s, width) return (' '):rep(width - #s) .. s end

-- -- Layout -----------------------------------------------------------------------------------

-- Lines of a matrix of texts; wide ones in blocks of columns.
local function matrix(lines, rows, columns, text, head)
  local width = 1
  local cell = {}
  for r = 1, #rows do
    cell[r] = {}
    for c = 1, #columns do
      local s = (rows[r] and columns[c]) and text(rows[r], columns[c]) or '...'
      cell[r][c] = s
      if #s > width then width = #s end
    end
  end
  local per = math.max(1, math.floor(WIDTH / (width + 2)))
  local first = 1
  repeat
    local last = math.min(first + per - 1, #columns)
    if #columns > per then
      local a, b = columns[first] or columns[first + 1], columns[last] or columns[last - 1]
      lines[#lines + 1] = ('%sColumns %d to %d'):format(head or '', a or 1, b or 1)
    end
    for r = 1, #rows do
      local parts = {}
      for c = first, last do parts[#parts + 1] = '  ' .. pad(cell[r][c], width) end
      lines[#lines + 1] = table.concat(parts)
    end
    if last < #columns then lines[#lines + 1] = '' end
    first = last + 1
  until first > #columns
end

--- The text of a tensor.
-- @tparam Tensor t
-- @treturn string several lines
function M.tostring(t)
  if t.ptr_ == nil then return '[amp.Tensor, freed]' end
  local flags = t.is_leaf and (t.requires_grad and ', requires_grad' or '')
    or (', grad_fn=' .. ffi.string(C.amp_node_name(t)))
  local size, nd, n = t.shape, t:dim(), t:numel()
  local trailer = ('[amp.Tensor of size %s, %s, %s%s]'):format(t:size(), t.dtype, t.device, flags)
  if n == 0 then return trailer end
  local plain = t:detach()
  local edge = edges(size, nd, n)
  local places, index, values, count = {}, {}, {}, 0
  for d = 1, nd do places[d] = shown(size[d], edge[d]) end
  local read = reader(plain, size, edge, places)
  if nd == 0 then return ' ' .. format_of({ read {} }, t.dtype)(read {}) .. '\n' .. trailer end

  local function gather(d)
    for _, i in ipairs(places[d]) do
      if i then
        index[d] = i
        if d == nd then
          count = count + 1
          values[count] = read(index)
        else
          gather(d + 1)
        end
      end
    end
  end
  gather(1)
  local text = format_of(values, t.dtype)
  local lines = {}
  if nd == 1 then
    local width = 1
    for i = 1, count do width = math.max(width, #text(values[i])) end
    local per, line = math.max(1, math.floor(WIDTH / (width + 2))), {}
    for _, i in ipairs(places[1]) do
      line[#line + 1] = '  ' .. pad(i and text(read { i }) or '...', width)
      if #line == per then
        lines[#lines + 1] = table.concat(line)
        line = {}
      end
    end
    if #line > 0 then lines[#lines + 1] = table.concat(line) end
  else
    local function slices(d)
      if d == nd - 1 then
        if nd > 2 then
          local head = {}
          for k = 1, nd - 2 do head[k] = tostring(index[k]) end
          if #lines > 0 then lines[#lines + 1] = '' end
          lines[#lines + 1] = '(' .. table.concat(head, ',') .. ',.,.) ='
        end
        matrix(lines, places[nd - 1], places[nd], function(r, c)
          index[nd - 1], index[nd] = r, c
          return text(read(index))
        end)
        return
      end
      local list = places[d]
      for k = 1, #list do
        if list[k] then
          index[d] = list[k]
          slices(d + 1)
        else
          lines[#lines + 1] = '...'
        end
      end
    end
    slices(1)
  end
  lines[#lines + 1] = trailer
  return table.concat(lines, '\n')
end

return M

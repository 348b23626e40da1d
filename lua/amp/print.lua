--- Tensors as text: aligned columns, edges of large ones, dtype and device in the last line.
--     1  2  3
--     4  5  6
--    [amp.Tensor of size 2x3, float32, cpu]
-- Only what is shown is copied from the device.
-- @module amp.print
local core = require 'amp.ffi'
local call = require 'amp.call'
local ffi = require 'ffi'
local C, S = core.C, core.S

local M = {}

local LIMIT, EDGE, WIDTH = 1000, 3, 80

-- -- Elements -------------------------------------------------------------------------------

-- Positions of a dimension that are shown; false stands for the gap.
local function shown(size, all)
  local list = {}
  if all or size <= 2 * EDGE then
    for i = 1, size do list[i] = i end
  else
    for i = 1, EDGE do list[i] = i end
    list[EDGE + 1] = false
    for i = size - EDGE + 1, size do list[#list + 1] = i end
  end
  return list
end

-- What is shown of a large tensor, as a small one.
local function cut(t, places)
  local ops, create = require 'amp.ops', require 'amp.create'
  for d = 1, #places do
    local list = {}
    for _, i in ipairs(places[d]) do list[#list + 1] = i or nil end
    if #list < t:size(d) then t = ops.get 'index_select'(t, d, create.tensor(list, { dtype = 'int64', device = t.device })) end
  end
  return t
end

-- A reader of the shown elements (index: a table, from 1) of a detached tensor, which it reads at once.
local function reader(t, places)
  local nd, at = #places, {} -- at[d][i]: place of index i among those shown, from 0
  t = cut(t, places)
  local size, n = t.shape, t:numel()
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
  local data = ffi.new('double[?]', math.max(n, 1))
  call.check(C.amp_read(S, t, data, n), 'tostring')
  return function(index)
    local p = 0
    for d = 1, nd do p = p * size[d] + at[d][index[d]] end
    return data[p]
  end
end

-- -- Numbers ---------------------------------------------------------------------------------

local function special(v)
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
  local all = n <= LIMIT
  local places, index, values, count = {}, {}, {}, 0
  for d = 1, nd do places[d] = shown(size[d], all) end
  local read = reader(plain, places)
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

--- Products in 8 bits as the specification of regions says, in float64 and plain Lua: what specs compare with.
-- Matrices are lists of rows. Each operand's rows lie along the dimension that is summed.
local M = {}

local FORMATS = { float8_e4m3 = { digits = 3, least = -6, most = 448 }, float8_e5m2 = { digits = 2, least = -14, most = 57344 } }

--- The nearest value of a format, ties to even; what is too large becomes the largest, what is no finite number NaN.
function M.round(v, format)
  local f = FORMATS[format]
  if v ~= v or v == math.huge or v == -math.huge then return 0 / 0 end
  if v == 0 then return v end
  local _, e = math.frexp(math.abs(v))
  local unit = 2 ^ (math.max(e - 1, f.least) - f.digits)
  local q = math.abs(v) / unit
  local r = math.floor(q)
  if q - r > 0.5 or q - r == 0.5 and r % 2 == 1 then r = r + 1 end
  r = math.min(r * unit, f.most)
  return v < 0 and -r or r
end

--- The largest finite |x| of rows.
function M.largest(rows)
  local most = 0
  for _, row in ipairs(rows) do
    for _, v in ipairs(row) do
      local size = math.abs(v)
      if size > most and size < math.huge then most = size end
    end
  end
  return most
end

function M.transposed(rows)
  local out = {}
  for j = 1, #rows[1] do
    out[j] = {}
    for i = 1, #rows do out[j][i] = rows[i][j] end
  end
  return out
end

--- Rows in 8 bits, divided by their scales again.
-- @tparam ?number largest of earlier steps, for the recipe `delayed`
function M.quantised(rows, format, recipe, largest)
  local most, out = FORMATS[format].most, {}
  local own = M.largest(rows)
  if recipe ~= 'delayed' or not largest or largest == 0 then largest = own end
  for i, row in ipairs(rows) do
    out[i] = {}
    for first = 1, #row, 128 do
      local last = math.min(first + 127, #row)
      local a = largest
      if recipe == 'block' then a = M.largest { { unpack(row, first, last) } } end
      local scale = a > 0 and most / a or 1
      for k = first, last do out[i][k] = M.round(row[k] * scale, format) / scale end
    end
  end
  return out
end

--- a[M][K] and b[N][K]: a b^T.
function M.product(a, b)
  local out = {}
  for i = 1, #a do
    out[i] = {}
    for j = 1, #b do
      local sum = 0
      for k = 1, #a[i] do sum = sum + a[i][k] * b[j][k] end
      out[i][j] = sum
    end
  end
  return out
end

--- y = x w^T and the gradients in x and w of a gradient in y.
-- @tparam ?table o {recipe, input = largest of earlier steps, gradient}
function M.linear(x, w, dy, o)
  local r = o.recipe or 'current'
  local t = M.transposed
  local function q(rows, format, largest) return M.quantised(rows, format, r, largest) end
  local y = M.product(q(x, 'float8_e4m3', o.input), q(w, 'float8_e4m3'))
  if not dy then return y end
  local dx = M.product(q(dy, 'float8_e5m2', o.gradient), q(t(w), 'float8_e4m3'))
  local dw = M.product(q(t(dy), 'float8_e5m2', o.gradient), q(t(x), 'float8_e4m3', o.input))
  return y, dx, dw
end

return M

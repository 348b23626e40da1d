--- Axes: round numbers between two limits, and how they are written.
local floor, ceil, log10, abs = math.floor, math.ceil, math.log10, math.abs

local M = {}

-- 1, 2 or 5 times a power of ten, not below v.
local function round_up(v)
  local power = 10 ^ floor(log10(v))
  for _, m in ipairs {1, 2, 5, 10} do
    if m * power >= v * (1 - 1e-9) then return m * power end
  end
  return 10 * power
end

-- A tick as text; `step` says how many digits tell neighbours apart.
local function label(v, step, largest)
  if v == 0 then return '0' end
  if largest >= 1e6 or largest < 1e-3 then
    local digits = math.max(0, floor(log10(abs(v)) + 1e-9) - floor(log10(step) + 1e-9))
    return (('%%.%de'):format(math.min(digits, 12)):format(v):gsub('e([+-])0*(%d)', 'e%1%2'):gsub('e%+', 'e'))
  end
  local digits = math.max(0, ceil(-log10(step) - 1e-9))
  return ('%%.%df'):format(math.min(digits, 12)):format(v)
end

--- Ticks of a linear axis.
-- @tparam number low
-- @tparam number high above low
-- @tparam number count about how many
-- @treturn table list of {at, text}
function M.linear(low, high, count)
  local step = round_up((high - low) / math.max(count, 1))
  local list, largest = {}, math.max(abs(low), abs(high))
  for i = ceil(low / step - 1e-9), floor(high / step + 1e-9) do
    local v = i * step
    list[#list + 1] = {v, label(v, step, largest)}
  end
  return list
end

--- Ticks of a logarithmic axis: powers of ten, and twice and five times these where there are few.
function M.log(low, high, count)
  local list, first, last = {}, floor(log10(low) + 1e-9), ceil(log10(high) - 1e-9)
  local every = math.max(1, ceil((last - first) / math.max(count, 1)))
  for e = first, last do
    if (e - first) % every == 0 then
      for _, m in ipairs(last - first <= 3 and {1, 2, 5} or {1}) do
        local v = m * 10 ^ e
        if v >= low * (1 - 1e-9) and v <= high * (1 + 1e-9) then
          local text = (v >= 1e-3 and v < 1e5) and ('%.12g'):format(v) or ('%de%d'):format(m, e)
          list[#list + 1] = {v, text}
        end
      end
    end
  end
  if #list < 2 then return M.linear(low, high, count) end
  return list
end

--- Limits a little wider than the values, never empty.
function M.widen(low, high, logarithmic)
  if logarithmic then
    if low == high then return low / 2, high * 2 end
    local margin = (high / low) ^ 0.04
    return low / margin, high * margin
  end
  if low == high then
    local d = low == 0 and 1 or abs(low) * 0.1
    return low - d, high + d
  end
  local margin = (high - low) * 0.04
  return low - margin, high + margin
end

return M

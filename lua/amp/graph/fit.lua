--- Numbers as expressions of sizes: sums of products of their powers with rational factors.
-- A number was seen at several sizes; found is the simplest expression that gives it at all of them. There are always more
-- samples than factors, so that a number that is no such expression is not mistaken for one.
-- @module amp.graph.fit
local M = {}

local MOST = 360 -- the greatest denominator
local SPARE = 2 -- different samples beyond the count of factors

-- v as a fraction of whole numbers, nil: it is none with a small denominator.
local function fraction(v)
  local before_n, before_d, n, d = 0, 1, 1, 0
  local rest = v
  for _ = 1, 24 do
    local whole = math.floor(rest)
    before_n, before_d, n, d = n, d, whole * n + before_n, whole * d + before_d
    if d > MOST or math.abs(n) > 2 ^ 52 then return nil end
    if math.abs(n / d - v) <= 1e-12 * math.max(1, math.abs(v)) then return n, d end
    rest = 1 / (rest - whole)
  end
end

-- Value of a term for these sizes, as the library computes it.
local function term_value(term, sizes)
  local above, below = term.numerator, term.denominator
  for i, p in pairs(term.power) do
    for _ = 1, math.abs(p) do
      if p > 0 then above = above * sizes[i] else below = below * sizes[i] end
    end
  end
  return above / below
end

--- Value of an expression for these sizes.
function M.value(terms, sizes)
  local sum = 0
  for _, term in ipairs(terms) do sum = sum + (term_value(term, sizes) + term.more) end
  return sum
end

-- The factors of these powers (and of 1, where `constant`) that give all samples; nil: there are none.
local function solve(powers, constant, samples, values)
  local n = #powers + (constant and 1 or 0)
  local rows, seen, different = {}, {}, 0
  for k, sizes in ipairs(samples) do
    local row = {}
    for t, power in ipairs(powers) do row[t] = term_value({numerator = 1, denominator = 1, power = power}, sizes) end
    if constant then row[n] = 1 end
    local text = table.concat(row, ' ')
    if not seen[text] then seen[text], different = true, different + 1 end
    row[n + 1] = values[k]
    rows[k] = row
  end
  if different < n + SPARE then return nil end
  for c = 1, n do
    local best = c
    for k = c + 1, #rows do
      if math.abs(rows[k][c]) > math.abs(rows[best][c]) then best = k end
    end
    local pivot = rows[best]
    if math.abs(pivot[c]) < 1e-9 then return nil end
    rows[c], rows[best] = pivot, rows[c]
    for k = 1, #rows do
      local f = k ~= c and rows[k][c] / pivot[c] or 0
      if f ~= 0 then
        for j = c, n + 1 do rows[k][j] = rows[k][j] - f * pivot[j] end
      end
    end
  end
  local factors = {}
  for c = 1, n do factors[c] = rows[c][n + 1] / rows[c][c] end
  return factors
end

local function same(a, b, real)
  if a == b or a ~= a and b ~= b then return true end
  if real then return math.abs(a - b) <= 1e-13 * math.abs(b) end
  return math.abs(a - b) <= 1e-6 and b % 1 == 0
end

local function fits(terms, samples, values, real)
  for k, sizes in ipairs(samples) do
    if not same(M.value(terms, sizes), values[k], real) then return false end
  end
  return true
end
M.fits = fits

-- An expression of these powers; nil: it isn't the samples'.
local function expression(powers, constant, samples, values, real)
  local factors = solve(powers, constant, samples, values)
  if not factors then return nil end
  local terms = {}
  for t, power in ipairs(powers) do
    local n, d = fraction(factors[t])
    if not n then
      if not real or #powers > 1 then return nil end
      n, d = factors[t], 1
    end
    if n == 0 then return nil end -- a simpler one would do
    terms[t] = {numerator = n, denominator = d, power = power, more = 0}
  end
  if constant then
    local n, d = fraction(factors[#powers + 1])
    if not n and not (real and #powers == 1) then return nil end
    terms[#terms].more = n and n / d or factors[#powers + 1]
  end
  return fits(terms, samples, values, real) and terms or nil
end

-- All products of up to three sizes with powers -1, 1, 2 (of one size all, of more -1 and 1 come first).
local function products(n)
  local list = {}
  local function extend(from, power, depth)
    for i = from, n do
      for _, p in ipairs {1, -1, 2} do
        local wider = {}
        for k, v in pairs(power) do wider[k] = v end
        wider[i] = p
        list[#list + 1] = wider
        if depth > 1 then extend(i + 1, wider, depth - 1) end
      end
    end
  end
  extend(1, {}, 3)
  local function weight(power)
    local w = 0
    for _, p in pairs(power) do w = w + (p == 1 and 10 or p == 2 and 21 or 22) end
    return w
  end
  local order = {}
  for i, power in ipairs(list) do order[power] = i end
  table.sort(list, function(a, b)
    local u, v = weight(a), weight(b)
    if u ~= v then return u < v end
    return order[a] < order[b]
  end)
  return list
end

local known = {}
local function products_of(n)
  known[n] = known[n] or products(n)
  return known[n]
end

-- Each size once, and 1.
local function linear(n)
  local powers = {}
  for i = 1, n do powers[i] = {[i] = 1} end
  return powers
end

-- Sums of some of the sizes: those whose factor is not 0.
local function sum_of_sizes(n, samples, values, real)
  local factors = solve(linear(n), true, samples, values)
  if not factors then return nil end
  local powers = {}
  for i = 1, n do
    if math.abs(factors[i]) > 1e-9 then powers[#powers + 1] = {[i] = 1} end
  end
  if #powers == 0 then return nil end
  return expression(powers, math.abs(factors[n + 1]) > 1e-9, samples, values, real) or expression(powers, true, samples, values, real)
end

-- Three of the simplest products and a constant, as of (a - 1) * (b - 1).
local function triples(list, samples, values, real)
  local most = math.min(#list, 9)
  for i = 1, most do
    for j = i + 1, most do
      for k = j + 1, most do
        local found = expression({list[i], list[j], list[k]}, true, samples, values, real)
        if found then return found end
      end
    end
  end
end

--- The expression of a number.
-- @tparam number n how many sizes there are
-- @tparam table samples lists of their values
-- @tparam table values of the number, one for each sample
-- @tparam boolean real it need not be whole
-- @treturn ?table terms {numerator, denominator, power = {[size] = power}, more}, nil: there is none
function M.find(n, samples, values, real)
  local list = products_of(n)
  for _, constant in ipairs {false, true} do
    for _, power in ipairs(list) do
      local terms = expression({power}, constant, samples, values, real)
      if terms then return terms end
    end
  end
  local terms = sum_of_sizes(n, samples, values, real)
  if terms then return terms end
  local most = math.min(#list, 60)
  for i = 1, most do
    for j = i + 1, most do
      local pair = {list[i], list[j]}
      local found = expression(pair, false, samples, values, real) or expression(pair, true, samples, values, real)
      if found then return found end
    end
  end
  return triples(list, samples, values, real)
end

local function shown(v) return ('%.14g'):format(v) end

--- An expression as text, of sizes by these names.
function M.show(terms, names)
  local sums, more = {}, 0
  for _, term in ipairs(terms) do
    local text = shown(term.numerator)
    for i, p in pairs(term.power) do
      for _ = 1, math.abs(p) do text = text .. (p > 0 and ' * ' or ' / ') .. names[i] end
    end
    if term.denominator ~= 1 then text = text .. ' / ' .. shown(term.denominator) end
    sums[#sums + 1] = (text:gsub('^1 %* ', ''))
    more = more + term.more
  end
  if more ~= 0 then sums[#sums + 1] = shown(more) end
  return (table.concat(sums, ' + '):gsub('%+ %-', '- '))
end

return M

--- Tensors as Torch7 prints them: a format for all elements, matrices in blocks of columns, the type and sizes last.
local amp = require 'amp'
local core = require 'amp.torch7.own.core'

local function digits(v) return v ~= 0 and math.floor(math.log10(v)) + 1 or 1 end

-- A format, a factor before all and a width that suit the numbers.
local function format_of(values)
  local whole, low, high, odd = true, math.huge, 0, false
  for _, v in ipairs(values) do
    if v ~= v or v == math.huge or v == -math.huge then odd = true
    else
      if v % 1 ~= 0 then whole = false end
      v = math.abs(v)
      low, high = math.min(low, v), math.max(high, v)
    end
  end
  if low == math.huge then low = 0 end
  local small, large = digits(low), digits(high)
  if odd then whole = false end
  if whole then
    if large > 9 then return '%11.4e', 1, 11 end
    return ('%%%dd'):format(large + 1), 1, large + 1
  end
  if large - small > 4 then
    local n = (math.abs(large) > 99 or math.abs(small) > 99) and 12 or 11
    return ('%%%d.4e'):format(n), 1, n
  end
  if large > 5 or large < 0 then return '%7.4f', 10 ^ (large - 1), 7 end
  local n = large == 0 and 7 or large + 6
  return ('%%%d.4f'):format(n), 1, n
end

local function matrix(rows, columns, indent, out)
  local all = {}
  for _, r in ipairs(rows) do
    for _, v in ipairs(r) do all[#all + 1] = v end
  end
  local format, scale, width = format_of(all)
  local fit = math.max(math.floor((80 - #indent) / (width + 1)), 1)
  for first = 1, columns, fit do
    local last = math.min(first + fit - 1, columns)
    if fit < columns then out[#out + 1] = ('%sColumns %d to %d'):format(first > 1 and '\n' or '', first, last) end
    if scale ~= 1 then out[#out + 1] = ('%s%g *'):format(indent, scale) end
    for _, r in ipairs(rows) do
      local cells = {}
      for c = first, last do cells[#cells + 1] = format:format(r[c] / scale) end
      out[#out + 1] = indent .. (scale ~= 1 and ' ' or '') .. table.concat(cells, ' ')
    end
  end
end

local function text(u)
  local h = core.amp_of(u)
  local n, s, out = core.dim(h), core.sizes(h), {}
  local name = getmetatable(u).__typename
  if n == 0 then return ('[%s with no dimension]\n'):format(name) end
  local values = h:is_floating_point() and h:double():tolist() or h:tolist()
  if n == 1 then
    local format, scale = format_of(values)
    if scale ~= 1 then out[1] = ('%g *'):format(scale) end
    for _, v in ipairs(values) do out[#out + 1] = (scale ~= 1 and ' ' or '') .. format:format(v / scale) end
  elseif n == 2 then
    matrix(values, s[2], '', out)
  else
    local function go(v, depth, prefix)
      if depth == n - 1 then
        if #out > 0 then out[#out + 1] = '' end
        out[#out + 1] = ('(%s.,.) = '):format(prefix)
        return matrix(v, s[n], ' ', out)
      end
      for i, w in ipairs(v) do go(w, depth + 1, prefix .. i .. ',') end
    end
    go(values, 1, '')
  end
  out[#out + 1] = ('[%s of size %s]\n'):format(name, n == 1 and tostring(s[1]) or core.show(s))
  return table.concat(out, '\n')
end

for _, t in pairs(core.types) do t.mt.__tostring = text end

return amp and text

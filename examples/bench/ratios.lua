-- Joins lines "name value unit" of both sides by name (medians over the runs) and prints theirs / ours.
-- Lines "note text" pass through. A line "name value unit <= limit" (or >=) is a claim without a peer.
local claim, ours_path, theirs_path = arg[1], arg[2], arg[3]

local function median(list)
  table.sort(list)
  local n = #list
  return n % 2 == 1 and list[(n + 1) / 2] or (list[n / 2] + list[n / 2 + 1]) / 2
end

local function read(path)
  local rows, order = {}, {}
  for line in io.lines(path) do
    local name, value, unit, rest = line:match('^(%S+)%s+([%d.eE+-]+)%s+(%S+)%s*(.*)$')
    if name == 'note' or not name then print('  ' .. line)
    else
      if not rows[name] then rows[name] = {unit = unit, rest = rest}; order[#order + 1] = name end
      table.insert(rows[name], tonumber(value))
    end
  end
  return rows, order
end

print('== ' .. claim)
local ratios = {} -- {ratio, name}
local ours, order = read(ours_path)
local theirs = read(theirs_path)
for _, name in ipairs(order) do
  local o, t = ours[name], theirs[name]
  local mine = median(o)
  local text = ('  %-34s %12.4g %-8s'):format(name, mine, o.unit)
  if t then
    local peer = median(t)
    local ratio = o.unit:match('/s$') and mine / peer or peer / mine
    text = text .. (' theirs %12.4g   ratio %6.2f'):format(peer, ratio)
    ratios[#ratios + 1] = { ratio, name }
  end
  local sign, limit = o.rest:match('^([<>]=)%s*([%d.]+)')
  if sign then
    local held = sign == '<=' and mine <= tonumber(limit) or sign == '>=' and mine >= tonumber(limit)
    text = text .. ('   %s %s: %s'):format(sign, limit, held and 'held' or 'NOT held')
  end
  print(text)
end

-- Many rows: their geometric mean, and the ten worst.
if #ratios >= 20 then
  local sum = 0
  for _, r in ipairs(ratios) do sum = sum + math.log(r[1]) end
  table.sort(ratios, function(a, b) return a[1] < b[1] end)
  print(('  geometric mean of %d ratios: %.2f'):format(#ratios, math.exp(sum / #ratios)))
  local worst = {}
  for i = 1, 10 do worst[i] = ('%s %.2f'):format(ratios[i][2], ratios[i][1]) end
  print('  ten worst: ' .. table.concat(worst, ', '))
end

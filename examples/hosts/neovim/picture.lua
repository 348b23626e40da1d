--- A terminal's content as an SVG: tmux capture-pane -e -p | luajit picture.lua >out.svg. Colours of the 16 and 256 of a terminal.
local WIDE, HIGH, PAPER, INK = 8.4, 18, '#15171f', '#d5d8e0'
local base = {'#2a2d38', '#e06c75', '#8bbf7a', '#d9b26a', '#6ea3df', '#b98bd6', '#5fb3b3', '#c5c8d0'}
local bright = {'#6b7080', '#f08a92', '#a5d696', '#efcf8c', '#8fbdf2', '#d0a8ea', '#80cece', '#ffffff'}

local function colour(n)
  if n < 8 then return base[n + 1] elseif n < 16 then return bright[n - 7] end
  if n > 231 then return ('#%02x%02x%02x'):format(8 + (n - 232) * 10, 8 + (n - 232) * 10, 8 + (n - 232) * 10) end
  local function part(v) return v == 0 and 0 or 55 + v * 40 end
  n = n - 16
  return ('#%02x%02x%02x'):format(part(math.floor(n / 36)), part(math.floor(n / 6) % 6), part(n % 6))
end

-- What an escape's numbers change
local function apply(style, numbers)
  local list = {}
  for n in (numbers == '' and '0' or numbers):gmatch '%d+' do list[#list + 1] = tonumber(n) end
  local i = 1
  while i <= #list do
    local n = list[i]
    if n == 0 then style.ink, style.paper, style.swapped = nil, nil, nil
    elseif n == 7 then style.swapped = true
    elseif n == 27 then style.swapped = nil
    elseif n == 38 or n == 48 then
      if list[i + 1] == 5 then style[n == 38 and 'ink' or 'paper'] = colour(list[i + 2] or 7) end
      i = i + (list[i + 1] == 5 and 2 or 4)
    elseif n == 39 then style.ink = nil
    elseif n == 49 then style.paper = nil
    elseif n >= 30 and n <= 37 then style.ink = colour(n - 30)
    elseif n >= 40 and n <= 47 then style.paper = colour(n - 40)
    elseif n >= 90 and n <= 97 then style.ink = colour(n - 82)
    elseif n >= 100 and n <= 107 then style.paper = colour(n - 92) end
    i = i + 1
  end
end

local body, row, widest, style = {}, 0, 0, {}
local function put(text, column)
  local ink, paper = style.ink or INK, style.paper
  if style.swapped then ink, paper = paper or PAPER, ink end
  local n = #text:gsub('[\128-\191]', '')
  local x, y = 12 + column * WIDE, 10 + row * HIGH
  if paper then body[#body + 1] = ('<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>'):format(x, y, n * WIDE, HIGH, paper) end
  if text:find '%S' then
    text = text:gsub('[&<>]', {['&'] = '&amp;', ['<'] = '&lt;', ['>'] = '&gt;'})
    body[#body + 1] = ('<text x="%.1f" y="%d" fill="%s" textLength="%.1f" xml:space="preserve">%s</text>'):format(x, y + 13, ink, n * WIDE, text)
  end
  return column + n
end

for line in io.lines() do
  local column, at = 0, 1
  while at <= #line do
    local from, to, numbers = line:find('\27%[([%d;]*)m', at)
    if (from or #line + 1) > at then column = put(line:sub(at, (from or #line + 1) - 1), column) end
    if not from then break end
    apply(style, numbers)
    at = to + 1
  end
  widest, row = math.max(widest, column), row + 1
end
print(('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="monospace" font-size="14">'):format(24 + widest * WIDE, 20 + row * HIGH))
print(('<rect width="100%%" height="100%%" rx="6" fill="%s"/>'):format(PAPER))
print(table.concat(body, '\n'))
print '</svg>'

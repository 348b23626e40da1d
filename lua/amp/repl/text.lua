--- How help lays out its lines.
-- @module amp.repl.text
local M = {}

local WIDTH = 78
M.WIDTH = WIDTH

--- Lines of at most WIDTH columns, all but the first indented by n
function M.wrap(text, n)
  local lines, line = {}, ''
  for word in text:gmatch '%S+' do
    if line ~= '' and #line + 1 + #word > WIDTH - n then
      lines[#lines + 1] = line
      line = word
    else
      line = line == '' and word or line .. ' ' .. word
    end
  end
  lines[#lines + 1] = line
  return table.concat(lines, '\n' .. (' '):rep(n))
end

--- A line of help: what it is about, then text.
function M.field(out, head, text) out[#out + 1] = ('  %-10s %s'):format(head, M.wrap(text, 13)) end

--- A default as it would be written.
function M.shown(v)
  if type(v) == 'table' then
    local list = {}
    for i = 1, #v do list[i] = M.shown(v[i]) end
    return '{' .. table.concat(list, ', ') .. '}'
  end
  return type(v) == 'string' and "'" .. v .. "'" or tostring(v)
end

return M

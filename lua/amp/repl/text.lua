--- How help lays out its lines.
-- @module amp.repl.text
local M = {}

local USUAL, LEAST = 78, 20 -- columns where there is no terminal, and how narrow lines get

--- Columns of the terminal that is written to.
function M.width()
  local core = require 'amp.ffi'
  if core.C.amp_tty_is(1) ~= 1 then return USUAL end
  local _, columns = require('amp.repl.screen').size()
  return math.max(columns, LEAST)
end

--- Lines that fit into the terminal, all but the first indented by n
function M.wrap(text, n)
  local lines, line = {}, ''
  local most = math.max(M.width() - n, LEAST / 2)
  for word in text:gmatch '%S+' do
    if line ~= '' and #line + 1 + #word > most then
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

--- Comment lines as paragraphs: what is written on in the next line is joined, and wrapped; what is indented, empty or begins
-- with a mark stays a line.
function M.paragraphs(lines, indent)
  local out, held = {}, nil
  local function flush()
    if held then out[#out + 1] = (' '):rep(indent) .. M.wrap(held, indent) end
    held = nil
  end
  for i = 1, #lines do
    local line = lines[i]
    if not line:find '%S' or line:find '^%s%s' or line:find '^[%-%*|]' then
      flush()
      out[#out + 1] = line:find '%S' and (' '):rep(indent) .. line or ''
    else
      held = held and held .. ' ' .. line or line
    end
  end
  flush()
  return out
end

--- Text none of whose lines is wider than the terminal, where there are gaps; what goes on is indented.
function M.fit(text)
  local out, most = {}, M.width()
  for line in (text .. '\n'):gmatch '(.-)\n' do
    local indent = #(line:match '^%s%s+%a+%s%s+' or line:match '^%s*' .. '  ')
    while #line > most do
      local at = line:sub(1, most + 1):match '^.*%S()%s+%S*$' -- the last gap that fits
      if not at or at <= indent + 1 then break end
      out[#out + 1] = line:sub(1, at - 1)
      line = (' '):rep(indent) .. line:sub(at):match '^%s*(.*)$'
    end
    out[#out + 1] = line
  end
  return table.concat(out, '\n')
end

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

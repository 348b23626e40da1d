--- Lua source as tokens, for a prompt: whatever was typed so far is understood as far as it goes.
-- Nothing here raises: a string or comment without an end is a token that says so.
-- @module amp.repl.lexer
local M = {}

local keywords = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true
  until while]]):gmatch '%S+' do keywords[word] = true end
M.keywords = keywords

-- The end of a long bracket that opens at `at`, or nil if none opens there; and whether it is closed.
local function long(text, at)
  local level = text:match('^%[(=*)%[', at)
  if not level then return nil end
  local _, e = text:find(']' .. level .. ']', at + #level + 2, true)
  return e or #text, e ~= nil
end

-- The end of a quoted string that opens at `at`: of its line, if it has none.
local function quoted(text, at)
  local quote, i = text:sub(at, at), at + 1
  while true do
    local c = text:sub(i, i)
    if c == quote then return i, true end
    if c == '' or c == '\n' then return i - 1, false end
    i = i + (c == '\\' and 2 or 1)
    if i > #text + 1 then return #text, false end
  end
end

local pairs_of = { ['=='] = true, ['~='] = true, ['<='] = true, ['>='] = true, ['..'] = true, ['::'] = true }

local function one(text, at)
  local c = text:sub(at, at)
  if c:find '[%a_\128-\255]' then
    local _, e = text:find('^[%w_\128-\255]+', at)
    return keywords[text:sub(at, e)] and 'keyword' or 'name', e, true
  end
  if c:find '%d' or text:find('^%.%d', at) then
    local _, e = text:find('^0[xX][%x.]*[pP]?[%w]*', at)
    if not e then _, e = text:find('^[%d.]*[eE]?[%w]*', at) end
    local sign = text:match('^[eE]?[+-]%d+', e + 1)
    if sign and text:sub(e, e):find '[eEpP]' then e = e + #sign end
    return 'number', e, true
  end
  if c == '"' or c == "'" then return 'string', quoted(text, at) end
  if c == '[' then
    local e, closed = long(text, at)
    if e then return 'string', e, closed end
  end
  if text:find('^%-%-', at) then
    local e, closed = long(text, at + 2)
    if e then return 'comment', e, closed end
    e = text:find('\n', at, true)
    return 'comment', e and e - 1 or #text, true
  end
  if text:sub(at, at + 2) == '...' then return 'operator', at + 2, true end
  if pairs_of[text:sub(at, at + 1)] then return 'operator', at + 1, true end
  return 'operator', at, true
end

--- Tokens of a text, comments included.
-- @tparam string text
-- @treturn table list of {kind, text, from, to, closed}; kinds: name, keyword, number, string, comment, operator
-- @usage lexer.tokens 'x = 1' --> 3 tokens
function M.tokens(text)
  local list, at = {}, 1
  while true do
    at = text:find('%S', at)
    if not at then return list end
    local kind, e, closed = one(text, at)
    list[#list + 1] = { kind = kind, text = text:sub(at, e), from = at, to = e, closed = closed }
    at = e + 1
  end
end

local opens = { ['function'] = true, ['do'] = true, ['if'] = true, ['repeat'] = true }
local closes = { ['end'] = true, ['until'] = true }

--- The same text with the locals of its outermost level made variables of the chunk's
-- environment; lines stay where they are. A prompt reads chunk after chunk, and each
-- would have its own locals.
-- @tparam string text
-- @treturn string text
-- @treturn table names list of the variables
-- @usage lexer.hoist 'local a, b = 1, 2' --> 'a, b = 1, 2', {'a', 'b'}
function M.hoist(text)
  local tokens, code = M.tokens(text), {}
  for i = 1, #tokens do
    if tokens[i].kind ~= 'comment' then code[#code + 1] = tokens[i] end
  end
  local out, names, at, depth = {}, {}, 1, 0
  local i = 1
  while i <= #code do
    local t = code[i]
    local word = t.kind == 'keyword' and t.text
    if opens[word] then depth = depth + 1
    elseif closes[word] then depth = depth - 1
    elseif word == 'local' and depth == 0 and code[i + 1] then
      local first = code[i + 1]
      if first.text == 'function' and code[i + 2] then
        names[#names + 1] = code[i + 2].text
        out[#out + 1] = text:sub(at, t.from - 1)
        at = t.to + 1
      elseif first.kind == 'name' then
        local k = i + 1
        names[#names + 1] = first.text
        while code[k + 1] and code[k + 1].text == ',' and code[k + 2] and code[k + 2].kind == 'name' do
          k = k + 2
          names[#names + 1] = code[k].text
        end
        out[#out + 1] = text:sub(at, t.from - 1)
        local last = code[k].to
        local given = code[k + 1] and code[k + 1].text == '='
        out[#out + 1] = ' ' .. text:sub(t.to + 1, last) .. (given and '' or ' = nil')
        at = last + 1
        i = k
      end
    end
    i = i + 1
  end
  out[#out + 1] = text:sub(at)
  return table.concat(out), names
end

return M

--- JSON, as much as file headers need: strict, with a depth limit, no code.
--
-- decode gives tables, strings, numbers, booleans and json.null. Objects with
-- a repeated key, trailing text, unfinished input and anything outside the
-- standard are refused with the place (a byte, from 1) and what stood there.
-- encode writes strings, finite numbers, booleans, arrays and objects with
-- their keys sorted, so equal tables give equal text.
local M = {}

local byte, sub, char, find, format = string.byte, string.sub, string.char, string.find, string.format

M.null = setmetatable({}, {__tostring = function() return 'null' end})
--- Metatable of arrays: decode sets it, and an empty table that has it is written as [].
M.array = {}
M.max_depth = 64

local escapes = {['"'] = '"', ['\\'] = '\\', ['/'] = '/', b = '\b', f = '\f', n = '\n', r = '\r', t = '\t'}

-- Errors travel as tables, so that decode can tell its own from others.
local Bad = {}
local function bad(at, fmt, ...)
  error(setmetatable({text = format(fmt, ...) .. format(' at byte %d', at)}, Bad), 0)
end

local function shown(s, i)
  local c = sub(s, i, i)
  if c == '' then return 'the end of the text' end
  if find(c, '^[%g ]$') then return "'" .. c .. "'" end
  return format('byte 0x%02x', byte(c))
end

local function blank(s, i) return find(s, '[^ \t\r\n]', i) or #s + 1 end

-- Where a string is no longer UTF-8, nil if it is all through.
local function not_utf8(s)
  local i = find(s, '[\128-\255]')
  while i do
    if find(s, '^[\194-\223][\128-\191]', i) then i = i + 2
    elseif find(s, '^\224[\160-\191][\128-\191]', i) or find(s, '^\237[\128-\159][\128-\191]', i)
      or find(s, '^[\225-\236\238\239][\128-\191][\128-\191]', i) then i = i + 3
    elseif find(s, '^\240[\144-\191][\128-\191][\128-\191]', i) or find(s, '^\244[\128-\143][\128-\191][\128-\191]', i)
      or find(s, '^[\241-\243][\128-\191][\128-\191][\128-\191]', i) then i = i + 4
    else return i end
    i = find(s, '[\128-\255]', i)
  end
end

local function utf8(c)
  if c < 0x80 then return char(c) end
  if c < 0x800 then return char(0xC0 + math.floor(c / 64), 0x80 + c % 64) end
  if c < 0x10000 then
    return char(0xE0 + math.floor(c / 4096), 0x80 + math.floor(c / 64) % 64, 0x80 + c % 64)
  end
  return char(0xF0 + math.floor(c / 262144), 0x80 + math.floor(c / 4096) % 64, 0x80 + math.floor(c / 64) % 64, 0x80 + c % 64)
end

local function unicode(s, i) -- i at the first hex digit; gives the code point and the place after
  local hex = sub(s, i, i + 3)
  if not find(hex, '^%x%x%x%x$') then bad(i, 'four hexadecimal digits expected after \\u') end
  local c = tonumber(hex, 16)
  if c >= 0xDC00 and c <= 0xDFFF then bad(i, 'a lone low surrogate') end
  if c < 0xD800 or c > 0xDBFF then return c, i + 4 end
  local low = s:match('^\\u([Dd][C-Fc-f]%x%x)', i + 4)
  if not low then bad(i, 'a lone high surrogate') end
  return 0x10000 + (c - 0xD800) * 1024 + tonumber(low, 16) - 0xDC00, i + 10
end

local function text(s, i) -- i after the opening quote
  local parts, n = {}, 0
  while true do
    local j = find(s, '["\\%c]', i)
    if not j then bad(#s + 1, 'a string without its closing quote') end
    n = n + 1
    parts[n] = sub(s, i, j - 1)
    local c = sub(s, j, j)
    if c == '"' then return table.concat(parts), j + 1 end
    if c ~= '\\' then
      if byte(c) ~= 127 then bad(j, 'a control character in a string') end
      n = n + 1
      parts[n] = c
      i = j + 1
    else
      local e = sub(s, j + 1, j + 1)
      n = n + 1
      if e == 'u' then
        local code
        code, i = unicode(s, j + 2)
        parts[n] = utf8(code)
      else
        parts[n] = escapes[e] or bad(j + 1, 'an unknown escape %s', shown(s, j + 1))
        i = j + 2
      end
    end
  end
end

local value

local function array(s, i, depth)
  local list, n = setmetatable({}, M.array), 0
  i = blank(s, i)
  if sub(s, i, i) == ']' then return list, i + 1 end
  while true do
    n = n + 1
    list[n], i = value(s, i, depth)
    i = blank(s, i)
    local c = sub(s, i, i)
    if c == ']' then return list, i + 1 end
    if c ~= ',' then bad(i, "',' or ']' expected, %s found", shown(s, i)) end
    i = i + 1
  end
end

local function object(s, i, depth)
  local map = {}
  i = blank(s, i)
  if sub(s, i, i) == '}' then return map, i + 1 end
  while true do
    i = blank(s, i)
    if sub(s, i, i) ~= '"' then bad(i, 'a key in quotes expected, %s found', shown(s, i)) end
    local at = i
    local key, after = text(s, i + 1)
    if map[key] ~= nil then bad(at, "the key '%s' a second time", #key > 80 and key:sub(1, 77) .. '...' or key) end
    i = blank(s, after)
    if sub(s, i, i) ~= ':' then bad(i, "':' expected, %s found", shown(s, i)) end
    map[key], i = value(s, i + 1, depth)
    i = blank(s, i)
    local c = sub(s, i, i)
    if c == '}' then return map, i + 1 end
    if c ~= ',' then bad(i, "',' or '}' expected, %s found", shown(s, i)) end
    i = i + 1
  end
end

local words = {t = {'true', true}, f = {'false', false}, n = {'null', M.null}}

-- A number whose exponent LuaJIT does not read: 0 or infinite, with its sign.
local function far_number(word)
  local digits, exponent = word:match '^([^eE]+)[eE](.*)$'
  local far = (exponent:sub(1, 1) == '-' or not digits:find '[1-9]') and 0 or math.huge
  return word:sub(1, 1) == '-' and -far or far
end

function value(s, i, depth)
  if depth > M.max_depth then bad(i, 'more than %d levels of nesting', M.max_depth) end
  i = blank(s, i)
  local c = sub(s, i, i)
  if c == '{' then return object(s, i + 1, depth + 1) end
  if c == '[' then return array(s, i + 1, depth + 1) end
  if c == '"' then return text(s, i + 1) end
  local w = words[c]
  if w and sub(s, i, i + #w[1] - 1) == w[1] then return w[2], i + #w[1] end
  local _, e = find(s, '^%-?%d+', i)
  if e and not find(s, '^%-?0%d', i) then
    local _, f = find(s, '^%.%d+', e + 1)
    e = f or e
    _, f = find(s, '^[eE][+-]?%d+', e + 1)
    e = f or e
    local word = sub(s, i, e)
    return tonumber(word) or far_number(word), e + 1
  end
  bad(i, 'a value expected, %s found', shown(s, i))
end

--- Read one JSON value.
-- @tparam string s the text
-- @return the value, or nil and what is wrong with the text
function M.decode(s)
  local wrong = not_utf8(s)
  if wrong then return nil, format('what is not UTF-8 at byte %d', wrong) end
  local ok, v, i = pcall(value, s, 1, 1)
  if ok then
    i = blank(s, i)
    if i <= #s then ok, v = false, setmetatable({text = format('text after the value at byte %d', i)}, Bad) end
  end
  if ok then return v end
  if getmetatable(v) == Bad then return nil, v.text end
  error(v, 0)
end

local function quoted(s)
  local wrong = not_utf8(s)
  if wrong then error(format("JSON has UTF-8 only, and '%s' is not at byte %d", s:sub(1, 80), wrong), 0) end
  return '"' .. s:gsub('[%c"\\]', function(c)
    if c == '"' or c == '\\' then return '\\' .. c end
    return format('\\u%04x', byte(c))
  end) .. '"'
end

local function encode(v, depth)
  local kind = type(v)
  if v == M.null then return 'null' end
  if kind == 'string' then return quoted(v) end
  if kind == 'boolean' then return tostring(v) end
  if kind == 'number' then
    if v ~= v or v == math.huge or v == -math.huge then error('JSON has no number ' .. tostring(v), 0) end
    if v % 1 == 0 and math.abs(v) < 2 ^ 53 then return format('%d', v) end
    return format('%.17g', v)
  end
  if kind ~= 'table' then error('JSON has no ' .. kind, 0) end
  if depth > M.max_depth then error(format('more than %d levels of nesting', M.max_depth), 0) end
  local parts = {}
  if #v > 0 then
    for i = 1, #v do parts[i] = encode(v[i], depth + 1) end
    return '[' .. table.concat(parts, ',') .. ']'
  end
  if getmetatable(v) == M.array then return '[]' end
  local keys = {}
  for k in pairs(v) do
    if type(k) ~= 'string' then error('JSON keys are strings, got a ' .. type(k), 0) end
    keys[#keys + 1] = k
  end
  table.sort(keys)
  for i, k in ipairs(keys) do parts[i] = quoted(k) .. ':' .. encode(v[k], depth + 1) end
  return '{' .. table.concat(parts, ',') .. '}'
end

--- Write a value as JSON.
-- @param v string, number, boolean, json.null, array or table with string keys
-- @treturn string the text; raises on what JSON can't say
function M.encode(v) return encode(v, 1) end

return M

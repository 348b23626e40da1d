--- Regular expressions of tokenizers: alternatives, groups (?: (?i: (?! (?=, classes, \p{..} \s \d \w, ? * + {m,n}. Other syntax is an error.
local unicode = require 'amp.text.unicode'
local M = {}

local function prop(name)
  local set = unicode.set(name)
  if not set then error(('\\p{%s} is not known'):format(name), 0) end
  return function(c) return set[c] end
end
local function negate(f) return function(c) return not f(c) end end
local escapes = { n = 10, r = 13, t = 9, f = 12, v = 11 }

-- A test of one character after a backslash at p[i]; and the place after it.
local function escape(p, i)
  local c = p[i] and unicode.char(p[i])
  if c == 'p' or c == 'P' then
    local name = {}
    if p[i + 1] ~= 123 then error('\\p needs {name}', 0) end
    i = i + 2
    while p[i] and p[i] ~= 125 do
      name[#name + 1] = unicode.char(p[i])
      i = i + 1
    end
    local f = prop(table.concat(name))
    return c == 'P' and negate(f) or f, i + 1
  end
  local f
  if c == 's' or c == 'S' then f = function(x) return unicode.white[x] end
  elseif c == 'd' or c == 'D' then f = prop 'Nd'
  elseif c == 'w' or c == 'W' then
    f = unicode.word
  end
  if f then return c:find '%u' and negate(f) or f, i + 1 end
  if escapes[c] then return escapes[c], i + 1 end
  if not c or c:find '^%w$' then error(('\\%s is not known'):format(c or ''), 0) end
  return p[i], i + 1
end

local function class(p, i)
  local tests, inverse = {}, false
  if p[i] == 94 then inverse, i = true, i + 1 end
  local first = true
  while p[i] ~= 93 or first do
    if not p[i] then error('a [ without ]', 0) end
    local a = p[i]
    first = false
    if a == 91 then error('a class in a class is not known', 0) end
    if a == 92 then a, i = escape(p, i + 1) else i = i + 1 end
    if type(a) == 'number' and p[i] == 45 and p[i + 1] and p[i + 1] ~= 93 then
      local b
      if p[i + 1] == 92 then b, i = escape(p, i + 2) else b, i = p[i + 1], i + 2 end
      local low = a
      tests[#tests + 1] = function(c) return c >= low and c <= b end
    else
      local want = a
      tests[#tests + 1] = type(a) == 'number' and function(c) return c == want end or a
    end
  end
  local function f(c)
    for k = 1, #tests do if tests[k](c) then return true end end
    return false
  end
  return inverse and negate(f) or f, i + 1
end

local alternatives, depth

local function swapped(c)
  return c >= 65 and c < 91 and c + 32 or c >= 97 and c < 123 and c - 32 or c
end

-- One atom: node (test = one character, or match = function(t, i, k)), and the place after it.
local function atom(p, i, fold)
  local c = p[i]
  if c == 40 then
    local look, inner = nil, fold
    i = i + 1
    if p[i] == 63 then
      local d = unicode.char(p[i + 1] or 63)
      if d == ':' then i = i + 2
      elseif d == '!' or d == '=' then look, i = d, i + 2
      elseif d == 'i' and p[i + 2] == 58 then inner, i = true, i + 3
      else error(('(?%s is not known'):format(d), 0) end
    end
    local m
    depth = depth + 1
    if depth > 50 then error('groups nested too deeply', 0) end
    m, i = alternatives(p, i, inner)
    depth = depth - 1
    if p[i] ~= 41 then error('a ( without )', 0) end
    local function yes(j) return j end
    if look == '!' then return { match = function(t, j, k) if m(t, j, yes) then return nil end return k(j) end }, i + 1 end
    if look then return { match = function(t, j, k) return m(t, j, yes) and k(j) end }, i + 1 end
    return { match = m }, i + 1
  end
  if c == 91 then
    local f
    f, i = class(p, i + 1)
    return { test = fold and function(x) return f(x) or x < 128 and (f(swapped(x))) end or f }, i
  end
  if c == 46 then return { test = function(x) return x ~= 10 end }, i + 1 end
  if c == 94 then return { match = function(_, j, k) return j == 1 and k(j) end }, i + 1 end
  if c == 36 then return { match = function(t, j, k) return t[j] == nil and k(j) end }, i + 1 end
  local f = c
  if c == 92 then f, i = escape(p, i + 1) else i = i + 1 end
  if type(f) == 'function' then return { test = f }, i end
  local want = f
  if fold and want < 128 then
    local low = unicode.char(want):lower():byte()
    return { test = function(x) return x < 128 and unicode.char(x):lower():byte() == low or x == 0x17F and low == 115 or x == 0x212A and low == 107 end }, i
  end
  return { test = function(x) return x == want end }, i
end

local function repeated(node, low, high, lazy)
  local f = node.test
  if f and not lazy then
    return function(t, i, k)
      local n = 0
      while n < high and t[i + n] and f(t[i + n]) do n = n + 1 end
      for m = n, low, -1 do
        local e = k(i + m)
        if e then return e end
      end
    end
  end
  if node.match and low == 1 and high == 1 then return node.match end
  local m = node.match or function(t, i, k) return t[i] and f(t[i]) and k(i + 1) end
  local function step(t, i, k, n)
    if lazy and n >= low then local e = k(i) if e then return e end end
    local e = n < high and m(t, i, function(j) if j == i then return nil end return step(t, j, k, n + 1) end)
    if e then return e end
    return not lazy and n >= low and k(i) or nil
  end
  return function(t, i, k) return step(t, i, k, 0) end
end

-- A possessive repeat: what it took it keeps.
local function kept(m)
  local function yes(j) return j end
  return function(t, j, k)
    local e = m(t, j, yes)
    return e and k(e)
  end
end

local function sequence(p, i, fold)
  local list = {}
  while p[i] and p[i] ~= 124 and p[i] ~= 41 do
    local node
    node, i = atom(p, i, fold)
    local low, high = 1, 1
    if p[i] == 63 then low, high, i = 0, 1, i + 1
    elseif p[i] == 42 then low, high, i = 0, math.huge, i + 1
    elseif p[i] == 43 then low, high, i = 1, math.huge, i + 1
    elseif p[i] == 123 then
      local j, text = i + 1, ''
      while p[j] and p[j] ~= 125 do text, j = text .. unicode.char(p[j]), j + 1 end
      local a, comma, b = text:match '^(%d*)(,?)(%d*)$'
      if not a then error('{' .. text .. '} is not known', 0) end
      low = tonumber(a) or 0
      high, i = comma == '' and low or tonumber(b) or math.huge, j + 1
    end
    local lazy = p[i] == 63
    if lazy then i = i + 1 end
    local fixed = not lazy and p[i] == 43
    if fixed then i = i + 1 end
    local m = repeated(node, low, high, lazy)
    list[#list + 1] = fixed and kept(m) or m
  end
  return function(t, at, k)
    local function go(n, j)
      local m = list[n]
      if not m then return k(j) end
      return m(t, j, function(e) return go(n + 1, e) end)
    end
    return go(1, at)
  end, i
end

function alternatives(p, i, fold)
  local list = {}
  while true do
    list[#list + 1], i = sequence(p, i, fold)
    if p[i] ~= 124 then break end
    i = i + 1
  end
  return function(t, at, k)
    for n = 1, #list do
      local e = list[n](t, at, k)
      if e then return e end
    end
  end, i
end

--- Compile: find(codes, from) gives first and the place after the next match that is not empty.
-- @raise a text that says what is not known
function M.compile(pattern)
  local p = unicode.codes(pattern)
  depth = 0
  local m, i = alternatives(p, 1, false)
  if p[i] then error('a ) without (', 0) end
  local function done(j) return j end
  return function(t, from)
    for at = from, #t do
      local e = m(t, at, done)
      if e and e > at then return at, e end
    end
  end
end

return M

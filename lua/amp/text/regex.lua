--- Regular expressions of tokenizers: alternatives, groups (?: (?i: (?! (?=, classes, \p{..} \s \d \w, ? * + {m,n}, lazy and
-- possessive. Other syntax is an error.
--
-- A pattern becomes Lua source, a function for each of its parts, which LuaJIT compiles: part(t, i) gives the place behind the
-- whole match, if the part fits at i and what follows it fits behind it. A repeat of single characters is a loop, and tries
-- what follows from its longest fit on. What all this may cost is bounded (allow).
local unicode = require 'amp.text.unicode'
local M = {}

local PARTS = 180 -- most functions of a pattern: those of a chunk's locals
local work = { left = math.huge }

--- The steps that patterns and models may take until this is called again; no number: any.
function M.allow(steps) work.left = steps or math.huge end

--- Takes steps.
-- @raise when none are left
function M.spend(steps)
  local left = work.left - steps
  work.left = left
  if left < 0 then error('the parts of the tokenizer take too many steps on this text: its file is damaged, or the text has to be cut', 0) end
end

-- -- Tests of one character: functions from a variable's name to an expression ---------------------------------

local function of_mask(mask) return function(v) return ('band(class[%s], %d) ~= 0'):format(v, mask) end end
local function negate(f) return function(v) return 'not (' .. f(v) .. ')' end end
local function equal(code) return function(v) return ('%s == %d'):format(v, code) end end
local escapes = { n = 10, r = 13, t = 9, f = 12, v = 11 }
local named = { s = 'white', d = 'Nd', w = 'word' }

-- A test of one character after a backslash at p[i], or its code; and the place after it.
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
    name = table.concat(name)
    local f = of_mask(unicode.mask(name) or error(('\\p{%s} is not known'):format(name), 0))
    return c == 'P' and negate(f) or f, i + 1
  end
  if c and named[c:lower()] then
    local f = of_mask(unicode.mask(named[c:lower()]))
    return c:find '%u' and negate(f) or f, i + 1
  end
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
      if type(b) ~= 'number' then error('a range that ends in a class', 0) end
      local low, high = a, b
      tests[#tests + 1] = function(v) return ('%s >= %d and %s <= %d'):format(v, low, v, high) end
    else
      tests[#tests + 1] = type(a) == 'number' and equal(a) or a
    end
    if #tests > 1000 then error('a class of too many parts', 0) end
  end
  local function f(v)
    local out = {}
    for k = 1, #tests do out[k] = '(' .. tests[k](v) .. ')' end
    return table.concat(out, ' or ')
  end
  return inverse and negate(f) or f, i + 1
end

-- The same of either case.
local function folded(f)
  return function(v)
    return ('(%s) or %s >= 65 and %s < 91 and (%s) or %s >= 97 and %s < 123 and (%s)'):format(f(v), v, v, f('(' .. v .. ' + 32)'), v, v,
      f('(' .. v .. ' - 32)'))
  end
end

local function folded_letter(code)
  local low = unicode.char(code):lower():byte()
  local also = low == 115 and 0x17F or low == 107 and 0x212A
  local up = unicode.char(code):upper():byte()
  return function(v) return ('%s == %d or %s == %d%s'):format(v, low, v, up, also and (' or %s == %d'):format(v, also) or '') end
end

-- -- A pattern as a tree ----------------------------------------------------------------------------------------

local alternatives, depth

-- One atom, and the place after it: {test}, {group}, {look, group}, {begin} or {finish}.
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
    depth = depth + 1
    if depth > 50 then error('groups nested too deeply', 0) end
    local group
    group, i = alternatives(p, i, inner)
    depth = depth - 1
    if p[i] ~= 41 then error('a ( without )', 0) end
    return { group = group, look = look }, i + 1
  end
  if c == 91 then
    local f
    f, i = class(p, i + 1)
    return { test = fold and folded(f) or f }, i
  end
  if c == 46 then return { test = function(v) return v .. ' ~= 10' end }, i + 1 end
  if c == 94 then return { place = 'i == 1' }, i + 1 end
  if c == 36 then return { place = 't[i] == nil' }, i + 1 end
  if c == 42 or c == 43 or c == 63 then error(('a %s with nothing before it'):format(string.char(c)), 0) end
  local f = c
  if c == 92 then f, i = escape(p, i + 1) else i = i + 1 end
  if type(f) == 'function' then return { test = f }, i end
  return { test = fold and f < 128 and folded_letter(f) or equal(f) }, i
end

-- How often: low, high, and the place after; nil: once.
local function times(p, i)
  local c = p[i]
  if c == 63 then return 0, 1, i + 1 elseif c == 42 then return 0, math.huge, i + 1 elseif c == 43 then return 1, math.huge, i + 1 end
  if c ~= 123 then return nil end
  local j, text = i + 1, ''
  while p[j] and p[j] ~= 125 and #text < 20 do text, j = text .. unicode.char(p[j]), j + 1 end
  local a, comma, b = text:match '^(%d*)(,?)(%d*)$'
  if not a or p[j] ~= 125 or a == '' and b == '' then error('{' .. text .. '} is not known', 0) end
  local low = tonumber(a) or 0
  local high = comma == '' and low or tonumber(b) or math.huge
  if high < low then error('{' .. text .. '} is not known', 0) end
  return low, high, j + 1
end

local function sequence(p, i, fold)
  local list = {}
  while p[i] and p[i] ~= 124 and p[i] ~= 41 do
    local node
    node, i = atom(p, i, fold)
    local low, high, j = times(p, i)
    if low then
      i = j
      local how = p[i] == 63 and 'lazy' or p[i] == 43 and 'kept' or nil
      if how then i = i + 1 end
      node = { body = node, low = low, high = high, how = how }
    end
    list[#list + 1] = node
  end
  return list, i
end

function alternatives(p, i, fold)
  local list = {}
  while true do
    list[#list + 1], i = sequence(p, i, fold)
    if p[i] ~= 124 then return list, i end
    i = i + 1
  end
end

-- -- A tree as source -------------------------------------------------------------------------------------------

local Source = {}
Source.__index = Source

-- A new function of t and i; gives its name.
function Source:put(body)
  local k = self.n + 1
  self.n = k
  if k > PARTS then error('a pattern of too many parts', 0) end
  self[k] = ('function f%d(t, i)\n%s\nend'):format(k, body)
  return 'f' .. k
end

function Source:test(f, following)
  return self:put(('local c = t[i]\nif not c or not (%s) then return nil end\nreturn %s(t, i + 1)'):format(f 'c', following))
end

-- Single characters, again and again.
function Source:run(f, low, high, how, following)
  local bound = high < math.huge and (' and j < i + %d'):format(high) or ''
  local count = ('local j, c = i, t[i]\nwhile c and (%s)%s do\n j = j + 1\n c = t[j]\nend\nspend(j - i + 1)\n'):format(f 'c', bound)
  if how == 'lazy' then
    return self:put(count .. ('for m = i + %d, j do\n local e = %s(t, m)\n if e then return e end\nend'):format(low, following))
  elseif how == 'kept' or following == 'done' then
    return self:put(count .. ('if j >= i + %d then return %s(t, j) end'):format(low, following))
  end
  return self:put(count .. ('for m = j, i + %d, -1 do\n local e = %s(t, m)\n if e then return e end\nend'):format(low, following))
end

-- A group, again and again: a loop of functions, in which a turn that takes nothing is none.
function Source:turns(body, lazy, following)
  local loop = self:put ''
  local k = tonumber(loop:sub(2))
  local after = self:put(('local s = start%d\nif i == s then return nil end\nlocal e = %s(t, i)\nstart%d = s\nreturn e'):format(k, loop, k))
  self.starts[#self.starts + 1] = ('local start%d = 0'):format(k)
  local turn = self:node(body, after)
  local go, leave = ('local s = start%d\nstart%d = i\nlocal e = %s(t, i)\nstart%d = s\n'):format(k, k, turn, k), following .. '(t, i)'
  self[k] = ('function %s(t, i)\nspend(1)\n%s\nend'):format(loop, lazy and ('local e0 = %s\nif e0 then return e0 end\n%sreturn e'):format(leave, go)
    or ('%sif e then return e end\nreturn %s'):format(go, leave))
  return loop
end

function Source:repeated(node, following)
  local body, low, high, how = node.body, node.low, node.high, node.how
  if body.test then return self:run(body.test, low, high, how, following) end
  if body.look or body.place then return low == 0 and following or self:node(body, following) end
  local behind = how == 'kept' and 'done' or following
  local name = behind
  if high == math.huge then name = self:turns(body, how == 'lazy', behind)
  else
    for _ = low + 1, high do
      local one, two = self:node(body, name), behind
      if how == 'lazy' then one, two = two, one end
      name = self:put(('spend(1)\nlocal e = %s(t, i)\nif e then return e end\nreturn %s(t, i)'):format(one, two))
    end
  end
  for _ = 1, low do name = self:node(body, name) end
  if how ~= 'kept' then return name end
  return self:put(('local e = %s(t, i)\nif e then return %s(t, e) end'):format(name, following))
end

function Source:node(node, following)
  if node.test then return self:test(node.test, following) end
  if node.place then return self:put(('if %s then return %s(t, i) end'):format(node.place, following)) end
  if node.body then return self:repeated(node, following) end
  if not node.look then return self:choice(node.group, following) end
  local seen = self:choice(node.group, 'done')
  return self:put(('if %s%s(t, i) then return %s(t, i) end'):format(node.look == '!' and 'not ' or '', seen, following))
end

function Source:choice(list, following)
  local names = {}
  for k, items in ipairs(list) do
    local name = following
    for n = #items, 1, -1 do name = self:node(items[n], name) end
    names[k] = name
  end
  local at = #names
  while at > 1 do -- a function sees 60 others at most
    local some, first = {}, math.max(1, at - 40)
    some[1] = 'spend(1)' -- alternatives behind one another are tried in every order
    for k = first, at do some[#some + 1] = ('local e%d = %s(t, i)\nif e%d then return e%d end'):format(k, names[k], k, k) end
    names[first], at = self:put(table.concat(some, '\n')), first
  end
  return names[1]
end

--- Compile: find(codes, from) gives first and the place after the next match that is not empty.
-- @raise a text that says what is not known
function M.compile(pattern)
  local p = unicode.codes(pattern)
  depth = 0
  local tree, i = alternatives(p, 1, false)
  if p[i] then error('a ) without (', 0) end
  local source = setmetatable({ n = 0, starts = {} }, Source)
  local top = source:choice(tree, 'done')
  local names = {}
  for k = 1, source.n do names[k] = 'f' .. k end
  local text = ('local class, band, spend = ...\nlocal function done(_, i) return i end\n%s\n%s\n%s\n'):format(
    #names > 0 and 'local ' .. table.concat(names, ', ') or '', table.concat(source.starts, '\n'), table.concat(source, '\n')) .. ([[
return function(t, from)
  local at = from
  while t[at] do
    local e = TOP(t, at)
    if e and e > at then return at, e end
    at = at + 1
  end
  spend(at - from)
end]]):gsub('TOP', top)
  local chunk, why = loadstring(text, '=(pattern)')
  if not chunk then error('a pattern that is too long: ' .. tostring(why), 0) end
  return chunk(unicode.class, require('bit').band, M.spend)
end

return M

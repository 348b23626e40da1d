--- Completion at the prompt: what may stand where the cursor is. Given the text before it,
-- one of: a file name in quotes, an option in a call's table, a member after `.` or `:`,
-- a name; after `?` anything that help knows, after `:` a command.
-- @module amp.repl.complete
local calls = require 'amp.repl.calls'
local classes = require 'amp.repl.classes'
local eval = require 'amp.repl.eval'
local files = require 'amp.repl.files'
local lexer = require 'amp.repl.lexer'
local names = require 'amp.repl.names'

-- Words of a set that begin so, sorted; names with an underscore in front only when asked for
local function matching(set, prefix)
  local list = {}
  for k in next, set do
    if k:sub(1, #prefix) == prefix and (prefix:sub(1, 1) == '_' or k:sub(1, 1) ~= '_') then list[#list + 1] = k end
  end
  if #list == 0 and #prefix >= 3 then -- with the wrong case
    local lower = prefix:lower()
    for k in next, set do
      if k:sub(1, #prefix):lower() == lower then list[#list + 1] = k end
    end
  end
  table.sort(list)
  return list
end

-- -- Files ------------------------------------------------------------------------------------------

local function file(text, from, quote)
  local folder, name = text:match '^(.*/)([^/]*)$'
  folder, name = folder or '', name or text
  local where = folder == '' and '.' or folder
  if where:sub(1, 2) == '~/' then
    where = (os.getenv 'HOME' or '~') .. where:sub(2)
    folder = where -- Lua's io knows no ~
  end
  local found, shown, suffix = files.list(where, name), {}, {}
  local words = {}
  for i = 1, #found do
    if name ~= '' or found[i]:sub(1, 1) ~= '.' then
      words[#words + 1] = folder .. found[i]
      shown[#shown + 1] = found[i]
      if found[i]:sub(-1) ~= '/' then suffix[words[#words]] = quote end
    end
  end
  return { from = from, words = words, shown = shown, suffix = suffix }
end

-- -- Tokens before the cursor ----------------------------------------------------------------------------

-- The path that ends with token i (a name or a closing bracket): its text, and the token it begins with
local function path_to(tokens, i)
  local last = i
  while i >= 1 do
    local t = tokens[i]
    if t.kind == 'name' then
      local before = tokens[i - 1]
      if before and (before.text == '.' or before.text == ':') then i = i - 2 else break end
    elseif t.text == ']' and tokens[i - 1] and tokens[i - 2] and tokens[i - 2].text == '[' then
      i = i - 3
    else
      return nil
    end
  end
  if i < 1 then return nil end
  local parts = {}
  for k = i, last do parts[#parts + 1] = tokens[k].text end
  return table.concat(parts), i
end

-- What the call that ends with token i gives, as far as that can be known without calling: ops and tensors'
-- methods give tensors, classes their instances
local function result_of(tokens, i)
  local depth = 0
  while i >= 1 do
    local text = tokens[i].kind ~= 'string' and tokens[i].text
    if text == ')' then depth = depth + 1
    elseif text == '(' then
      depth = depth - 1
      if depth == 0 then break end
    end
    i = i - 1
  end
  local before = tokens[i - 1]
  if i < 1 or not before then return tokens[i + 1] and tokens[i + 1].kind == 'string' and 'text' or nil end
  if before.kind ~= 'name' then return tokens[i + 1].kind == 'string' and 'text' or nil end
  local path, first = path_to(tokens, i - 1)
  local f = path and names.value(path)
  if f == nil and tokens[i - 2] and tokens[i - 2].text == ':' then -- x:relu():...
    local v = tokens[i - 3] and tokens[i - 3].text == ')' and result_of(tokens, i - 3)
    f = v and names.field(v, before.text)
  end
  if type(f) == 'table' and type(f.init) == 'function' and first then return f end
  return names.gives_tensor(f) and names.sample() or nil
end

-- The value that the tokens up to i name
local function value_of(tokens, i)
  local t = tokens[i]
  if not t then return nil end
  if t.kind == 'string' then return 'text' end
  if t.text == ')' then return result_of(tokens, i) end
  local path = path_to(tokens, i)
  return path and names.value(path)
end

-- Inside the {} of a call: the function or class called; nil elsewhere
local function called(tokens)
  local depth, i = 0, #tokens
  while i >= 1 do -- out to the brace
    local text = tokens[i].kind ~= 'string' and tokens[i].text
    if text == '}' or text == ')' or text == ']' then depth = depth + 1
    elseif text == '{' or text == '(' or text == '[' then
      if depth == 0 then break end
      depth = depth - 1
    end
    i = i - 1
  end
  if i < 1 or tokens[i].text ~= '{' then return nil end
  local before = tokens[#tokens].text -- a key begins after { , or ;
  if not (#tokens == i or before == ',' or before == ';') then return nil end
  local given = {}
  for k = i + 1, #tokens - 1 do
    if tokens[k].kind == 'name' and tokens[k + 1].text == '=' then given[tokens[k].text] = true end
  end
  i = i - 1
  if tokens[i] and (tokens[i].kind == 'name' or tokens[i].text == ']') then return value_of(tokens, i), given end -- f{...}
  depth = 0
  while i >= 1 do -- out to the parenthesis
    local text = tokens[i].kind ~= 'string' and tokens[i].text
    if text == '}' or text == ')' or text == ']' then depth = depth + 1
    elseif text == '{' or text == '[' then
      if depth == 0 then return nil end
      depth = depth - 1
    elseif text == '(' then
      if depth == 0 then break end
      depth = depth - 1
    end
    i = i - 1
  end
  if i < 2 then return nil end
  return value_of(tokens, i - 1), given
end

-- -- Names ---------------------------------------------------------------------------------------------------

local function globals()
  local set = {}
  for k in next, _G do set[k] = true end
  for k in next, eval.env do set[k] = true end
  for k in next, lexer.keywords do set[k] = true end
  return set
end

local function callable(v)
  local mt = type(v) == 'table' and getmetatable(v)
  return type(v) == 'function' or (type(mt) == 'table' and rawget(mt, '__call') ~= nil)
end

local function help_names(prefix, from)
  local set = {}
  local path, sep, last = prefix:match '^(.-)([.:])([%w_]*)$'
  if path and path ~= '' then
    local v = path == 'Tensor' and names.sample() or names.meant(path)
    if sep == ':' and type(v) == 'table' and calls.constructor(v) then v = classes.methods(v) end
    if v ~= nil then return { from = from + #path + 1, words = matching(names.members(v, sep == ':'), last) } end
  end
  for _, name in ipairs(names.all()) do set[name] = true end
  for _, head in ipairs { 'nn', 'optim', 'data', 'Tensor' } do set[head] = true end
  for k in next, eval.env do set[k] = true end
  return { from = from, words = matching(set, prefix) }
end

--- Complete.
-- @tparam string before the text before the cursor
-- @treturn ?table {from = where the word begins, words = list of what may stand there, suffix = word -> what follows
-- if it is the only one, shown = how to list them}
return function(before)
  local at, word = before:match '^%s*%?%??%s*()([%w_.:]*)$'
  if at then return help_names(word, at) end
  at, word = before:match '^%s*:()(%a*)$'
  if at then return { from = at, words = matching({ help = 1, quit = 1, time = 1, who = 1, load = 1, locals = 1, jit = 1 }, word) } end
  at, word = before:match '^%s*:load%s+()(%S*)$'
  if at then return file(word, at, '') end
  local tokens = {}
  for _, t in ipairs(lexer.tokens(before)) do
    if t.kind ~= 'comment' then tokens[#tokens + 1] = t elseif not t.closed or t.to == #before then return nil end
  end
  local last = tokens[#tokens]
  if not last then return nil end
  if last.kind == 'string' and not last.closed then
    local quote = last.text:match '^["\']'
    return quote and file(before:sub(last.from + 1), last.from + 1, quote)
  end
  -- the word at the cursor
  word, at = '', #before + 1
  if (last.kind == 'name' or last.kind == 'keyword') and last.to == #before then
    word, at = last.text, last.from
    tokens[#tokens] = nil
    last = tokens[#tokens]
  end
  if last and (last.text == '.' or last.text == ':') then
    local v = value_of(tokens, #tokens - 1)
    if v == nil then return nil end
    return { from = at, words = matching(names.members(v, last.text == ':'), word) }
  end
  if last then
    local f, given = called(tokens)
    if f ~= nil then
      local set, suffix = {}, {}
      for k in next, calls.options(f) do
        if not given[k] then set[k], suffix[k] = true, ' = ' end
      end
      local words = matching(set, word)
      if #words > 0 then return { from = at, words = words, suffix = suffix } end
    end
  end
  if word == '' then return nil end
  local words, suffix = matching(globals(), word), {}
  if #words == 1 and callable(names.value(words[1])) then suffix[words[1]] = '(' end
  return { from = at, words = words, suffix = suffix }
end

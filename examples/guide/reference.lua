-- Writes the manual's reference of the Lua library, from the comments above its functions:
--   lua/bin/amp examples/guide/reference.lua > examples/guide/reference.md
-- Ops have a page of their own (ops.lua), as has C (c_api.lua). A public function without a
-- comment is an error.
package.path = (arg[0]:match '^(.*/)' or './') .. '?.lua;' .. package.path
local library = require 'library'

local missing = {}

local function say(...) io.write(...) io.write '\n' end

-- Text of comments is Markdown but for what the renderer would take for signs of its own.
local signs = { ['<'] = '&lt;', ['*'] = '\\*', ['|'] = '\\|' }
local function escape(text)
  local out, code = {}, false
  for part, mark in text:gmatch '([^`]*)(`?)' do
    out[#out + 1] = (code and part or part:gsub('[<*|]', signs)) .. mark
    if mark == '`' then code = not code end
  end
  return table.concat(out)
end

-- Lines that are indented stand as code, the others as paragraphs.
local function prose(lines)
  local out, code = {}, false
  for _, line in ipairs(lines) do
    if line:find '^%s*@' then break end
    local indented = line:find '^%s%s+%S' ~= nil
    if indented ~= code then out[#out + 1] = '' end
    code = indented
    out[#out + 1] = indented and '    ' .. line:gsub('^%s%s?%s?', '') or escape(line)
  end
  while out[1] and not out[1]:find '%S' do table.remove(out, 1) end
  return table.concat(out, '\n'):gsub('%s+$', '')
end

local function kind_of(kind) return (kind:gsub('^%?', ''):gsub('|', ' or ')) end

local function details(doc)
  if not doc then return end
  for _, p in ipairs(doc.params) do
    local kind = kind_of(p.kind) .. (p.kind:find '^%?' and ', may be left out' or '')
    say('- `', p.name:gsub('^%?', ''), '`', kind ~= '' and ' (' .. escape(kind) .. ')' or '', p[1] ~= '' and ': ' .. escape(p[1]) or '')
  end
  for _, r in ipairs(doc.returns) do say('- gives ', escape(r)) end
  for _, r in ipairs(doc.raises) do say('- error: ', escape(r)) end
  if #doc.params + #doc.returns + #doc.raises > 0 then say() end
  if #doc.usage > 0 then
    for _, line in ipairs(doc.usage) do say('    ', line) end
    say()
  end
end

local function shown(v)
  if type(v) == 'string' then return "'" .. v .. "'" end
  if type(v) == 'table' then
    local list = {}
    for i = 1, #v do list[i] = shown(v[i]) end
    return '{' .. table.concat(list, ', ') .. '}'
  end
  return tostring(v)
end

local function signature(list, path)
  local out = {}
  local function named(a) return a.default ~= nil and a.name .. ' = ' .. shown(a.default) or a.name end
  for i, a in ipairs(list) do
    local options = {}
    for k, o in ipairs(a.kind and a.kind:find '^%??table$' and a.options or {}) do options[k] = named(o) end
    local names = a.name == 'options' and a.text ~= '' and not a.text:find '%s%w+%s' -- only the options' names
    out[i] = #options > 0 and '{' .. table.concat(options, ', ') .. '}' or names and '{' .. a.text .. '}' or named(a)
  end
  local first = path:find '^amp%.optim%.lr_scheduler%.' and 'opt' or path:find '^amp%.optim%.%u' and 'params'
  if first and not (list[1] and list[1].kind) then -- options by name, after what they are for
    return ('(%s, {%s})'):format(first, table.concat(out, ', '))
  end
  return '(' .. table.concat(out, ', ') .. ')'
end

local function documented(path, doc)
  if doc and (#doc.text > 0 or #doc.params > 0 or #doc.returns > 0) then return true end
  missing[#missing + 1] = path
end

local function method_list(title, list)
  if #list == 0 then return end
  if title then say(title, '\n') end
  for _, m in ipairs(list) do
    say('**`:', m.name, m.signature or '(...)', '`** ', prose(m.doc.text), '\n')
    details(m.doc)
  end
end

-- -- The page ------------------------------------------------------------------------------------

say [[
# Reference of the Lua library

Everything that `require 'amp'` offers beside its ops: made by `examples/guide/reference.lua` from the comments above the
functions. [Every op](ops.md) lists the ops, which are functions of `amp`, most of them methods of tensors as well, and
functions of `amp.nn.functional`. At the prompt, `?name` shows the same. What a name means in Torch7's terms stands in
[Coming from Torch7](coming_from_torch7.md).

Arguments go by their places, or by name in a table at the end. Indices and dimensions count from 1, negative ones from
the end. Errors name the caller's line, what was asked and what was got.
]]

local items = library.items()
local sections, order = {}, {}
for _, item in ipairs(items) do
  local head = item.kind == 'namespace' and item.path or item.path:match '^(.*)%.[^.]+$'
  if not sections[head] then
    sections[head] = {}
    order[#order + 1] = head
  end
  if item.kind ~= 'namespace' then table.insert(sections[head], item) end
end

local function one(item, files)
  local name = item.path
  if item.kind == 'alias' then
    say('### ', name, '\n\nThe same as `', item.of, '`.\n')
  elseif item.kind == 'function' then
    documented(name, item.doc)
    say('### ', name, '\n\n`', name, item.signature or '(...)', '`\n')
    if item.doc then
      local text = prose(item.doc.text)
      if text ~= '' then say(text, '\n') end
      details(item.doc)
    end
  else
    say('### ', name, '\n\n`', name, signature(item.arguments, name), '`\n')
    if item.head and not files[item.file] then
      say(prose(item.head.text), '\n')
      details(item.head)
      files[item.file] = name
    elseif item.head then
      say('See `', files[item.file], '`.\n')
    else
      documented(name, item.doc)
    end
    if item.doc then
      local text = prose(item.doc.text)
      if text ~= '' then say(text, '\n') end
      details(item.doc)
    end
    if not files[item.file .. ' methods'] then
      method_list(nil, item.methods)
      files[item.file .. ' methods'] = true
    end
  end
end

for _, head in ipairs(order) do
  if #sections[head] > 0 then
    say('## ', head, '\n')
    local files = {}
    for _, item in ipairs(sections[head]) do one(item, files) end
    if head == 'amp.graph' then
      local list = library.graph()
      for _, m in ipairs(list) do documented('g:' .. m.name, m.doc) end
      method_list('### Methods of graphs', list)
    end
    if head == 'amp.optim' then method_list('### Every optimizer', (library.shared())) end
    if head == 'amp.optim.lr_scheduler' then method_list('### Every schedule', select(2, library.shared())) end
  end
end

local methods, properties = library.tensor()
say('## Tensors\n\nBeside the ops that are methods ([Every op](ops.md)): properties `', table.concat(properties, '`, `'), '`, and these methods.\n')
for _, m in ipairs(methods) do
  if m.of then
    say('### t:', m.name, '\n\nThe same as `t:', m.of, '`.\n')
  elseif documented('t:' .. m.name, m.doc) then
    say('### t:', m.name, '\n\n`t:', m.name, (m.signature or '(...)'):gsub('^%(%s*[%w_]+,?%s*', '('), '`\n\n', prose(m.doc.text), '\n')
    details(m.doc)
  end
end

if #missing > 0 then
  io.stderr:write('no comment stands above: ', table.concat(missing, ', '), '\n')
  os.exit(1)
end

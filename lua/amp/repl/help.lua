--- Help: of an op from the library's table, of everything else from the comments above it.
-- @module amp.repl.help
local core = require 'amp.ffi'
local calls = require 'amp.repl.calls'
local classes = require 'amp.repl.classes'
local help_op = require 'amp.repl.help_op'
local ldoc = require 'amp.repl.ldoc'
local names = require 'amp.repl.names'
local ops = require 'amp.ops'
local text_of = require 'amp.repl.text'
local util = require 'amp.util'
local band = require('bit').band
local raw = require('amp.core.class').raw
local wrap, field, shown = text_of.wrap, text_of.field, text_of.shown

local M = {}

local PRIVATE = core.C.AMP_F_PRIVATE

-- -- Comments -------------------------------------------------------------------------------------

local function paragraph(out, doc)
  local text = doc.text
  while text[1] and not text[1]:find '%S' do table.remove(text, 1) end
  local plain = {}
  for i = 1, #text do
    if not text[i]:find '^%s*@' then plain[#plain + 1] = (text[i]:gsub('%s+$', '')) end
  end
  for _, line in ipairs(text_of.paragraphs(plain, 2)) do out[#out + 1] = line end
end

-- What a comment says of its parameters, but for the one of that name
local function tags(out, doc, but)
  local width, list = 0, {}
  for _, p in ipairs(doc.params) do
    local name, optional = p.name:gsub('^%?', '')
    if name ~= but then
      local kind = p.kind:gsub('^%?', ''):gsub('|', ' or ')
      if optional > 0 or p.kind:find '^%?' then kind = kind .. (kind ~= '' and ' ' or '') .. '(may be left out)' end
      list[#list + 1] = { name, kind .. (kind ~= '' and p[1] ~= '' and ': ' or '') .. p[1] }
      width = math.max(width, #name)
    end
  end
  for i, p in ipairs(list) do
    out[#out + 1] = (('  %-10s %-' .. width .. 's  %s'):format(i == 1 and 'arguments' or '', p[1], wrap(p[2], 15 + width)):gsub('%s+$', ''))
  end
  for i, r in ipairs(doc.returns) do field(out, i == 1 and 'gives' or '', r) end
  for i, r in ipairs(doc.raises) do field(out, i == 1 and 'errors' or '', r) end
  for i = 1, #doc.usage do out[#out + 1] = (i == 1 and '  example    ' or '             ') .. doc.usage[i] end
end

-- A function's name and parameters as a call has them, and the parameter left out: a method stands after a colon, and
-- what it belongs to is no argument. It is one by its definition, or by where it was found.
local function call_of(name, f)
  local list, method = ldoc.signature(f)
  if not list then return name .. '(...)' end
  local first = list:match '^%(%s*([%a_][%w_]*)'
  if not method and first and (first == 'self' and name:find '[.:]' or name:find(':', 1, true)) then
    list, method = list:gsub('^%(%s*[%w_]+%s*,?%s*', '('), true
  else
    first = nil
  end
  if method then name = name:gsub('%.([%w_]+)$', ':%1') end
  return name .. list, first
end

local function func(name, f, out)
  local info = debug.getinfo(raw(f), 'S')
  local head, but = call_of(name, f)
  out[#out + 1] = head
  local doc = ldoc.of_function(f)
  if doc then
    paragraph(out, doc)
    tags(out, doc, but)
  elseif info.what == 'C' then
    out[#out + 1] = '  a function of Lua\'s own library'
  else
    out[#out + 1] = '  (no comment stands above it)'
  end
  if info.what ~= 'C' and info.source:sub(1, 1) == '@' then field(out, 'source', ('%s:%d'):format(info.short_src, info.linedefined)) end
end

-- The file that a table of amp's is made in
local function file_of(v)
  for name, module in pairs(package.loaded) do
    if module == v and type(name) == 'string' and name:find '^amp' then
      local path = package.searchpath(name, package.path)
      if path then return path end
    end
  end
  local f = calls.constructor(v)
  local info = f and debug.getinfo(raw(f), 'S')
  if info and info.source:sub(1, 1) == '@' then return info.source:sub(2) end
  for _, g in next, v do
    info = type(g) == 'function' and debug.getinfo(raw(g), 'S')
    if info and info.source:sub(1, 1) == '@' then return info.source:sub(2) end
  end
end

-- First sentence of a comment
local function summary(doc)
  local text = table.concat(doc.text, ' '):gsub('%s+', ' ')
  return (text:match '^%s*(.-[%.;])%s' or text):gsub(';$', '.')
end

-- The same; of a comment that has tags alone, what it takes and gives
local function about(doc)
  local text = summary(doc)
  if text:find '%S' then return text end
  local parts = {}
  for _, p in ipairs(doc.params) do parts[#parts + 1] = p.name .. (p[1] ~= '' and ' (' .. p[1] .. ')' or '') end
  return 'of ' .. table.concat(parts, ', ') .. (doc.returns[1] and '; gives ' .. doc.returns[1] or '')
end

local hidden = { init = true, extra_repr = true, transient = true, describe = true }

local function functions(title, v, out)
  local set = {}
  local mt = getmetatable(v)
  local parent = type(mt) == 'table' and not rawget(v, '__name') and rawget(mt, '__index') -- of a module ?nn.Module tells
  for _, t in ipairs { v, type(parent) == 'table' and parent or nil } do
    for k, f in next, t do
      if type(k) == 'string' and type(f) == 'function' and not k:find '^_' and not hidden[k] then set[k] = set[k] or f end
    end
  end
  local list = util.keys(set)
  local width = 0
  for i = 1, #list do width = math.max(width, #list[i]) end
  local first = true
  for _, k in ipairs(list) do
    local doc = ldoc.of_function(set[k])
    if doc then
      out[#out + 1] = ('  %-10s %-' .. width .. 's  %s'):format(first and title or '', k, wrap(about(doc), 15 + width))
      first = false
    end
  end
end

-- The op of a class's name: CrossEntropyLoss is cross_entropy, ReLU is relu
local function op_of(class)
  local snake = class:gsub('^.*%.', ''):gsub('(%l)(%u)', '%1_%2'):gsub('(%u)(%u%l)', '%1_%2'):lower()
  for _, name in ipairs { snake, (snake:gsub('_loss$', '')), (snake:gsub('_', '')), (snake:gsub('_?with_', '_with_'):gsub('_loss$', '')) } do
    local r = ops.row(name)
    if r and band(r.flags, PRIVATE) == 0 then return name end
  end
end

-- Names of a part of amp: what is its own, then ops, without their in-place forms
local function members(v, out)
  local own, of_table = {}, {}
  for k in next, names.members(v) do
    if ops.row((k:gsub('_$', ''))) and not rawget(v, k) or (v == require 'amp' and ops.row((k:gsub('_$', '')))) then
      if ops.row(k) then of_table[#of_table + 1] = k end
    elseif not k:find '^_' then
      own[#own + 1] = k
    end
  end
  table.sort(own)
  table.sort(of_table)
  if #own > 0 then field(out, 'has', table.concat(own, '  ')) end
  if #of_table > 0 then field(out, #own > 0 and 'and ops' or 'ops', table.concat(of_table, '  ')) end
end

local function class(name, v, out)
  local f = calls.constructor(v)
  local doc = f and ldoc.of_function(f)
  local list = {}
  for i, p in ipairs(doc and doc.params or {}) do list[i] = p.name:gsub('^%?', '') end
  if #list > 0 then out[#out + 1] = name .. '(' .. table.concat(list, ', ') .. ')'
  else out[#out + 1] = name .. (f and (ldoc.signature(f) or '(...)'):gsub('^%(_,?%s*', '('):gsub('%f[%w]given%f[%W]', 'options') or '') end
  local path = file_of(v)
  local head = path and ldoc.of_file(path)
  if head then paragraph(out, head) end
  if doc then
    if head and #doc.text > 0 then out[#out + 1] = '' end
    paragraph(out, doc)
    tags(out, doc)
  elseif head then
    tags(out, head)
  end
  list = {}
  for k, o in next, calls.options(v) do list[#list + 1] = k .. (o.default ~= nil and ' = ' .. shown(o.default) or '') end
  table.sort(list)
  if #list > 0 then field(out, 'options', table.concat(list, ', ')) end
  local of_instances = f and classes.methods(v)
  if not f then
    members(v, out)
  elseif of_instances ~= v then
    functions('methods', of_instances, out)
    functions('functions', v, out)
  else -- of itself, or of what it is an instance of, as amp.autocast
    functions((rawget(v, '__name') or rawget(v, '__index') == v) and 'methods' or 'functions', v, out)
  end
  if rawget(v, '__name') and v.super then
    field(out, '', 'and those of every module: ?nn.Module')
    local same = op_of(v.__name)
    if same then field(out, 'function', '?' .. same) end
  end
  if path then field(out, 'source', path) end
end

local function whole_tensor(out)
  out[#out + 1] = 'Tensor: an array of numbers with a shape, a dtype and a device'
  local tensor = require 'amp.tensor'
  local properties = util.keys(tensor.properties)
  field(out, 'properties', table.concat(properties, '  '))
  local list = ops.names(true)
  for k in next, tensor.methods do list[#list + 1] = k end
  table.sort(list)
  for i = #list, 2, -1 do
    if list[i] == list[i - 1] then table.remove(list, i) end
  end
  field(out, 'methods', table.concat(list, '  '))
  field(out, '', '?view and the like explain one')
end

-- -- Asking -------------------------------------------------------------------------------------------

local function nearest(name)
  local all, list = names.all(), {}
  local last = name:match '([%w_]+)$' or name
  local scored = {}
  for _, n in ipairs(all) do
    local short = n:match '[^.]+$'
    local d = util.edits(last:lower(), short:lower())
    if short:lower():find(last:lower(), 1, true) and #last >= 3 then d = math.min(d, 1 + (#short - #last) / 10) end
    if d <= math.max(1, #last / 2.5) then scored[#scored + 1] = { d, n } end
  end
  table.sort(scored, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
  for i = 1, math.min(6, #scored) do list[i] = scored[i][2] end
  return list
end

--- Text of the help on a name.
-- @tparam string name 'matmul', 't:view', 'nn.Linear', 'net' ...
-- @treturn ?string text; nil: nothing is known
-- @treturn string what to say then
function M.text(name)
  ldoc.forget()
  name = name:gsub('%b()$', ''):gsub('^:', 't:')
  local lexer = require 'amp.repl.lexer'
  local out = {}
  if name == 'Tensor' or name == 'amp.Tensor' or name == 't' then
    whole_tensor(out)
    return table.concat(out, '\n')
  end
  local v, full = names.meant(name)
  if v == nil then
    if lexer.keywords[name] then return name .. ' is a word of Lua\'s grammar' end
    local near = nearest(name)
    return nil, ("nothing is called '%s'%s"):format(name, #near > 0 and '; near it: ' .. table.concat(near, ', ')
      or '; ??' .. (name:match '^[%w_]+$' or 'words') .. ' looks through all help')
  end
  if type(v) == 'function' then
    local spec = ops.specs[v]
    if spec then
      local row = ops.row(spec.name)
      if not row or band(row.flags, PRIVATE) ~= 0 then return nil, name .. ' is a part of other ops' end
      help_op.append(row, out)
    else
      func(full, v, out)
    end
  elseif type(v) == 'table' then
    local mt = getmetatable(v)
    if type(mt) == 'table' and rawget(mt, 'is_module') then -- a network
      class(mt.class.__name, mt.class, out)
    elseif type(rawget(v, 'class')) == 'table' and not (type(mt) == 'table' and rawget(mt, '__call')) then -- an optimizer and its like
      class(v.class.op or full, v.class, out)
    else
      class(full, v, out)
    end
  elseif names.is_tensor(v) then
    out[1] = full .. ' = ' .. require('amp.repl.show').value({ v }):match '^{%s*(.-)%s*}$'
    whole_tensor(out)
  else
    out[1] = full .. ' = ' .. require('amp.repl.show').value(v)
  end
  return table.concat(out, '\n')
end

--- Show help on a name.
-- @tparam string name
-- @tparam function say
-- @treturn boolean whether there was some
function M.show(name, say)
  local text, why = M.text(name)
  say(text_of.fit(text or why))
  return text ~= nil
end

--- Show one line for everything whose name or help has all of some words.
-- @tparam string words
-- @tparam function say
function M.search(words, say)
  ldoc.forget()
  local wanted = {}
  for w in words:lower():gmatch '%S+' do wanted[#wanted + 1] = w end
  local list = {}
  local function look(name, text)
    local all = (name .. ' ' .. text):lower()
    for i = 1, #wanted do
      if not all:find(wanted[i], 1, true) then return end
    end
    list[#list + 1] = { name, text }
  end
  for _, name in ipairs(util.keys(ops.by_name)) do
    local r = ops.row(name)
    if band(r.flags, PRIVATE) == 0 then look(name, r.doc) end
  end
  for _, path in ipairs(ldoc.sources()) do
    local module = path:sub(#core.here + 1):gsub('%.lua$', ''):gsub('/init$', ''):gsub('/', '.')
    local head = ldoc.of_file(path)
    if head then look('(' .. module .. ')', summary(head)) end
    for _, f in ipairs(ldoc.functions(path)) do look((f[1]:gsub('^M%.', module .. '.')), summary(f[2])) end
  end
  if #list == 0 then
    say("no help has the words '", words, "'")
    return false
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  local width = 0
  for i = 1, math.min(#list, 40) do width = math.min(math.max(width, #list[i][1]), 32) end
  for i = 1, math.min(#list, 40) do say(('%-' .. width .. 's  %s'):format(list[i][1], wrap(list[i][2], width + 2))) end
  if #list > 40 then say(('... %d in all'):format(#list)) end
  return true
end

return M

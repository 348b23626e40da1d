-- Writes the stub that editors complete from (LuaLS, the Lua language server): types and
-- comments of everything public, ops from the op table, the rest from the sources' comments.
--   lua/bin/amp examples/guide/meta.lua > examples/guide/amp.meta.lua
-- It is never run. Point the editor's setting for libraries of the workspace at this folder.
package.path = (arg[0]:match '^(.*/)' or './') .. '?.lua;' .. package.path
local amp = require 'amp'
local bit = require 'bit'
local library = require 'library'
local ops = require 'amp.ops'
local types = require 'amp.types'

local INPLACE, ONLY_INPLACE, CREATE = 1, 512, 32

local function say(...) io.write(...) io.write '\n' end

-- -- Types ------------------------------------------------------------------------------------

local slot_types = {
  i = 'integer', f = 'number', b = 'boolean', d = 'integer', t = 'amp.dtype', v = 'string', I = 'integer|integer[]', D = 'integer|integer[]',
  F = 'number[]', N = 'integer|integer[]',
}

local function type_of(a)
  if a.kind == 'T' then return a.list and 'amp.Tensor[]' or a.number and 'amp.Tensor|number' or 'amp.Tensor' end
  if a.kind == 'e' then return "'" .. table.concat(a.word_list, "'|'") .. "'" end
  return slot_types[a.kind] or 'any'
end

local words = {
  Tensor = 'amp.Tensor', tensor = 'amp.Tensor', number = 'number', integer = 'integer', string = 'string', boolean = 'boolean', table = 'table',
  ['function'] = 'function', ['nil'] = 'nil', list = 'table', module = 'amp.nn.Module', Module = 'amp.nn.Module', dtype = 'amp.dtype', any = 'any',
  Graph = 'amp.Graph',
}

-- "?Tensor|table" of a comment -> a type the server knows; any, where it is none
local function comment_type(kind)
  local list = {}
  for part in kind:gsub('^%?', ''):gmatch '[^|]+' do
    if not words[part] then return 'any' end
    list[#list + 1] = words[part]
  end
  return #list > 0 and table.concat(list, '|') or 'any'
end

local reserved = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true until while]]):gmatch '%a+' do
  reserved[word] = true
end
local function identifier(name) return reserved[name] and name .. '_' or name end

-- -- Comments -----------------------------------------------------------------------------------

local function comment(lines)
  for _, line in ipairs(lines or {}) do
    if line:find '^%s*@' then return end
    say('---', line)
  end
end

-- Parameters that a definition names, described by its comment
local function parameters(signature, doc, method)
  local described = {}
  for _, p in ipairs(doc and doc.params or {}) do described[p.name:gsub('^%?', '')] = p end
  local list = {}
  for name in (signature or '(...)'):sub(2, -2):gmatch '[%w_.]+' do list[#list + 1] = name end
  if method == 'first' then table.remove(list, 1) end
  for i, name in ipairs(list) do
    local p = described[name]
    if name ~= '...' then
      list[i] = identifier(name)
      say('---@param ', list[i], p and p.kind:find '^%?' and '? ' or ' ', p and comment_type(p.kind) or 'any', p and p[1] ~= '' and ' ' .. p[1] or '')
    elseif p then
      say('---@param ... any ', p[1])
    end
  end
  return '(' .. table.concat(list, ', ') .. ')'
end

local function returns(doc)
  for _, r in ipairs(doc and doc.returns or {}) do
    local kind, text = r:match '^(%S+)%s*(.*)$'
    local known = kind and comment_type(kind) or 'any'
    say('---@return ', known, ' # ', known == 'any' and r or text)
  end
end

local option_types = { dtype = 'amp.dtype', device = 'string', name = 'string', verbose = 'boolean' }

-- "{lr?: number, name?: any}" of options
local function fields(list)
  local out = {}
  for i, a in ipairs(list) do
    out[i] = a.name .. '?: ' .. (a.default ~= nil and type(a.default) or option_types[a.name] or 'any')
  end
  return '{' .. table.concat(out, ', ') .. '}'
end

-- A type of a comment, its table by its fields where they are known
local function argument_type(a)
  local known = comment_type(a.kind)
  return a.options and known:gsub('table', function() return fields(a.options) end) or known
end

-- How a table that has functions besides can be called
local function overloads(item, result)
  local list, others = {}, {}
  for i, a in ipairs(item.arguments) do
    local name = a.name:gsub('^%?', '')
    local kind = a.kind and argument_type(a) or 'any'
    local text = name == '...' and '...: any' or identifier(name) .. (a.optional and '?: ' or ': ') .. kind
    if a.text and a.text ~= '' and name ~= '...' then say('---', name, ': ', a.text) end
    list[i] = text
    if not a.optional then others[#others + 1] = text end
  end
  local first = item.arguments[1]
  if first and first.optional and #others > 0 then -- it may be left out although others follow
    list[1] = list[1]:gsub('%?: ', ': ', 1)
    say('---@class ', item.path, '.module')
    say('---@overload fun(', table.concat(others, ', '), '): ', result)
  else
    say('---@class ', item.path, '.module')
  end
  say('---@overload fun(', #list > 0 and table.concat(list, ', ') or '', '): ', result)
end

local function constructor(item, name, result)
  comment(item.head and item.head.text)
  comment(item.doc and item.doc.text)
  local list = {}
  if item.path:find '^amp%.optim%.' and not (item.arguments[1] and item.arguments[1].kind) then
    list = { item.path:find 'lr_scheduler' and 'opt' or 'params', 'options' }
    say('---@param ', list[1], ' any')
    say('---@param options? ', #item.arguments > 0 and fields(item.arguments) or 'table')
  else
    for _, a in ipairs(item.arguments) do
      local known = a.kind and argument_type(a) or a.default ~= nil and type(a.default) or 'any'
      local argument = identifier((a.name:gsub('^%?', '')))
      list[#list + 1] = argument
      if argument ~= '...' then
        say('---@param ', argument, (a.optional or a.default ~= nil) and '? ' or ' ', known, a.text and a.text ~= '' and ' ' .. a.text or '')
      end
    end
  end
  say('---@return ', result)
  say('function ', name, '(', table.concat(list, ', '), ') end\n')
end

-- -- Ops --------------------------------------------------------------------------------------------

local function op(row, head, name, method)
  say('---', row.doc)
  local list, options = {}, {}
  for i = method and 2 or 1, #row.args do
    local a = row.args[i]
    list[#list + 1] = identifier(a.name)
    say('---@param ', list[#list], a.required and ' ' or '? ', type_of(a), a.default and ' default ' .. a.default or '')
    if not a.required or a.kind ~= 'T' then options[#options + 1] = a.name end
  end
  if #options > 0 then say('---@param options? table or by name: ', table.concat(options, ', ')) end
  if #options > 0 then list[#list + 1] = 'options' end
  local results = {}
  for i = 1, math.max(row.nout, 1) do results[i] = 'amp.Tensor' end
  say('---@return ', table.concat(results, ', '))
  if reserved[name] then -- amp['repeat'](...)
    if method then table.insert(list, 1, 'self') end
    say(head:sub(1, -2), "['", name, "'] = function(", table.concat(list, ', '), ') end\n')
  else
    say('function ', head, name, '(', table.concat(list, ', '), ') end\n')
  end
end

-- -- The stub -----------------------------------------------------------------------------------------

say '---@meta amp'
say '-- Made by examples/guide/meta.lua; never run. In .luarc.json: "workspace": { "library": ["examples/guide"] }, "runtime.version": "LuaJIT".\n'
say("---@alias amp.dtype '", table.concat(types.dtype_names, "'|'"), "'\n")

local methods, properties = library.tensor()
say '---@class amp.Tensor'
local property_types = { shape = 'integer[]', ndim = 'integer', dtype = 'amp.dtype', device = 'string', requires_grad = 'boolean', is_leaf = 'boolean',
  is_cuda = 'boolean', grad = 'amp.Tensor?' }
for _, name in ipairs(properties) do say('---@field ', name, ' ', property_types[name] or 'any') end
for _, operator in ipairs { 'add', 'sub', 'mul', 'div', 'pow', 'mod' } do say('---@operator ', operator, '(amp.Tensor|number): amp.Tensor') end
say '---@operator unm: amp.Tensor'
say 'local Tensor = {}\n'
local rows = library.ops()
for _, row in ipairs(rows) do
  if bit.band(row.flags, ONLY_INPLACE) == 0 and ops.method(row.name) then op(row, 'Tensor:', row.name, true) end
  if bit.band(row.flags, INPLACE) ~= 0 and ops.method(row.name .. '_') then op(row, 'Tensor:', row.name .. '_', true) end
end
for _, m in ipairs(methods) do
  if m.of then say('---The same as `', m.of, '`.') else comment(m.doc and m.doc.text) end
  local list = parameters(m.signature, m.doc, 'first')
  returns(m.doc)
  say('function Tensor:', m.name, list, ' end\n')
end

say '---@class amp.Graph'
say '---@field training boolean'
say '---@overload fun(...: any): any'
say 'local Graph = {}\n'
for _, m in ipairs(library.graph()) do
  comment(m.doc and m.doc.text)
  local list = parameters(m.signature, m.doc)
  returns(m.doc)
  say('function Graph:', m.name, list, ' end\n')
end

local items = library.items()
local function method_block(class, variable, list)
  for _, m in ipairs(list) do
    comment(m.doc.text)
    local signature = parameters(m.signature, m.doc)
    returns(m.doc)
    say('function ', variable, ':', m.name, signature, ' end\n')
  end
  return class
end

local optimizer, schedule = library.shared()
say '---@class amp.optim.Optimizer\n---@field param_groups table[]\nlocal Optimizer = {}\n'
method_block('amp.optim.Optimizer', 'Optimizer', optimizer)
say '---@class amp.optim.Schedule\nlocal Schedule = {}\n'
method_block('amp.optim.Schedule', 'Schedule', schedule)

-- Classes whose instances have methods of their own; LuaJIT allows 200 locals, so each stands in a block
for _, item in ipairs(items) do
  if item.kind == 'class' and (#item.methods > 0 or item.path == 'amp.nn.Module') then
    local parent = item.path ~= 'amp.nn.Module' and item.path:find '^amp%.nn%.' and ': amp.nn.Module' or ''
    say('do\n---@class ', item.path, parent)
    if item.path == 'amp.nn.Module' then say '---@operator call: amp.Tensor' end
    say 'local Class = {}\n'
    method_block(item.path, 'Class', item.methods)
    say 'end\n'
  end
end

say '---@class amp\nlocal amp = {}\n'
for _, name in ipairs(types.dtype_names) do say("amp.", name, " = '", name, "'") end
say 'amp.enabled = true\n'
for _, row in ipairs(rows) do
  if bit.band(row.flags, ONLY_INPLACE) == 0 and (bit.band(row.flags, CREATE) == 0 or ops.specs[amp[row.name]]) then op(row, 'amp.', row.name) end
  if bit.band(row.flags, INPLACE) ~= 0 then op(row, 'amp.', row.name .. '_') end
end
local both = {} -- what can be called and has functions besides
for _, item in ipairs(items) do both[item.path:match '^(.*)%.[^.]+$'] = true end
for _, item in ipairs(items) do
  if item.kind == 'namespace' then
    say(item.path, ' = {}\n')
  elseif item.kind == 'function' then
    comment(item.doc and item.doc.text)
    local list = parameters(item.signature, item.doc)
    returns(item.doc)
    say('function ', item.path, list, ' end\n')
  elseif item.kind == 'alias' then
    say(item.path, ' = ', item.of, '\n')
  else
    local result = item.path:find '^amp%.optim%.lr_scheduler%.' and 'amp.optim.Schedule' or item.path:find '^amp%.optim%.%u' and 'amp.optim.Optimizer'
      or #item.methods > 0 and item.path or item.path:find '^amp%.nn%.' and 'amp.nn.Module' or 'any'
    if both[item.path] then -- a table that can be called
      comment(item.head and item.head.text)
      comment(item.doc and item.doc.text)
      overloads(item, result)
      say(item.path, ' = {}\n')
    else
      constructor(item, item.path, result)
    end
  end
end
say 'return amp'

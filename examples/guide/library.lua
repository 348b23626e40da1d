-- What the Lua library offers, read from the running library and the comments above its
-- functions: namespaces, functions, classes with their constructors' arguments and methods.
-- reference.lua writes the manual's page of it, meta.lua the stub for editors.
local amp = require 'amp'
local ops = require 'amp.ops'
local core = require 'amp.ffi'
local ldoc = require 'amp.repl.ldoc'
local calls = require 'amp.repl.calls'
local names = require 'amp.repl.names'

local M = {}

-- Of these only the page on them tells: Torch7's names, what amp itself is made with.
local left_out = { ['amp.torch7'] = true, ['amp.util'] = true, ['amp.Error'] = true, ['amp.Tensor'] = true, ['amp.lazy'] = true,
  ['amp.nn.functional'] = true, ['amp.io.onnx.handlers'] = true }

local function sorted(set)
  local list = {}
  for k in pairs(set) do list[#list + 1] = k end
  table.sort(list)
  return list
end

local function relative(path) return path:sub(#core.here + 1) end

local function source_of(f)
  local info = debug.getinfo(f, 'S')
  return info.what ~= 'C' and info.source:sub(1, 1) == '@' and info.source:sub(2) or nil
end

local function upvalue(f, wanted)
  for i = 1, 60 do
    local name, v = debug.getupvalue(f, i)
    if not name then return nil end
    if name == wanted then return v end
  end
end

-- Names and defaults that a constructor checks its arguments against: what it hands to amp.options first.
local function checked(v)
  local options = require 'amp.options'
  local real, seen = options.arguments, nil
  options.arguments = function(_, list, _, defaults)
    seen = { list, defaults or {} }
    error(seen)
  end
  pcall(v)
  options.arguments = real
  if seen then return seen[1], seen[2] end
end

-- The function that makes an instance: through wrappers that only hand on.
local function maker(v)
  local f = calls.constructor(v)
  if f and not ldoc.of_function(f) then
    local inner = upvalue(f, 'new') or upvalue(f, 'run')
    if type(inner) == 'function' and ldoc.of_function(inner) then return inner end
  end
  return f
end

-- Options of a constructor, as arguments; nil: none are known
local function by_name(v)
  local options, list = calls.options(v), {}
  for i, name in ipairs(sorted(options)) do list[i] = { name = name, default = options[name].default } end
  return #list > 0 and list or nil
end

-- Arguments of a constructor, in order, with defaults where they are known: from the list that it checks them against,
-- else from its comment, else from its definition.
local function arguments(v, f)
  local list, doc = {}, ldoc.of_function(f)
  local signature = ldoc.signature(f) or '()'
  local defaults = type(rawget(v, 'defaults')) == 'table' and v.defaults or {}
  local known, known_defaults
  if rawget(v, '__name') and signature:find('...', 1, true) then known, known_defaults = checked(v) end
  if known then
    for i, name in ipairs(known) do list[i] = { name = name, default = known_defaults[name] } end
  elseif doc and #doc.params > 0 then
    for i, p in ipairs(doc.params) do
      list[i] = { name = p.name, kind = p.kind, optional = p.kind:find '^%?' ~= nil, text = p[1], options = calls.takes_options(p) and by_name(v) or nil }
    end
  elseif next(defaults) then
    list = by_name(v)
  elseif signature:find('...', 1, true) then
    list = by_name(v) or { { name = '...' } }
  elseif signature:find '%f[%w]given%f[%W]' then -- options alone, as the losses take them
    list[1] = { name = 'options', kind = '?table', optional = true, text = table.concat(sorted(calls.options(v)), ', ') }
  end
  return list
end

-- Parameters of definitions in a file: name as it stands there -> "(a, b)"
local function signatures(path)
  local map = {}
  for line in io.lines(path) do
    local name, list = line:match '^%s*function ([%w_.:]+)%s*(%b())'
    if name then map[name] = ldoc.shown(list) end
  end
  return map
end

-- The comment of a function that another one made: above its assignment in the module's file.
local function assigned(path)
  local module, name = path:match '^(.*)%.([^.]+)$'
  local file = package.searchpath(module, package.path)
  for _, entry in ipairs(file and ldoc.functions(file) or {}) do
    if entry[1] == 'M.' .. name then return entry[2] end
  end
end

-- Methods that stand in files, as `function Name:method`.
local function methods_in(files)
  local list, seen = {}, {}
  for _, file in ipairs(files) do
    local parameters = signatures(core.here .. file)
    for _, entry in ipairs(ldoc.functions(core.here .. file)) do
      local name = entry[1]:match '^%u[%w_]*:([%a][%w_]*)$'
      if name and not seen[name] then
        seen[name] = true
        list[#list + 1] = { name = name, doc = entry[2], signature = parameters[entry[1]] }
      end
    end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

-- Files that hold methods of a class, where they are not the constructor's alone.
local more = {
  ['amp.GradScaler'] = { 'precision/scaler.lua', 'precision/scaler_auto.lua', 'precision/scaler_block.lua', 'precision/scaler_state.lua' },
  ['amp.nn.Module'] = { 'nn/module.lua', 'nn/core/tree.lua', 'nn/core/hybrid.lua' },
}
local base = { init = true, forward = true, extra_repr = true, transient = true, describe = true }

local function class_of(path, v)
  local f = maker(v)
  local file = source_of(f) and relative(source_of(f))
  local c = { path = path, value = v, kind = 'class', arguments = arguments(v, f), doc = ldoc.of_function(f), file = file, methods = {} }
  local own = file and ldoc.of_file(core.here .. file)
  if path:find '^amp%.optim%.%u' then -- made by one function for all: their own files say what they are
    local name = path:match '[^.]+$'
    own = ldoc.of_file(core.here .. 'optim/' .. name:lower() .. '.lua') or own
    c.file = 'optim/' .. name:lower() .. '.lua'
  elseif path:find '^amp%.optim%.lr_scheduler%.' then
    c.doc = nil
  elseif file then
    for _, m in ipairs(methods_in(more[path] or { file })) do
      if path == 'amp.nn.Module' or not base[m.name] then c.methods[#c.methods + 1] = m end
    end
  end
  c.head = own
  return c
end

local function visit(path, v, into, seen)
  for _, k in ipairs(sorted(names.members(v))) do
    local full = path .. '.' .. k
    if not k:find '^_' and not left_out[full] then
      local x = names.field(v, k)
      if type(x) == 'function' then
        if not ops.specs[x] then
          local doc = ldoc.of_function(x)
          into[#into + 1] = { path = full, kind = 'function', value = x, doc = doc or assigned(full), signature = doc and ldoc.signature(x) }
        end
      elseif type(x) == 'table' and not seen[x] then
        seen[x] = full
        if calls.constructor(x) then
          into[#into + 1] = class_of(full, x)
          if path == 'amp' then -- autocast and the like have functions, too
            for _, name in ipairs(sorted(x)) do
              local g = rawget(x, name)
              if type(g) == 'function' and not name:find '^_' and ldoc.of_function(g) then
                into[#into + 1] = { path = full .. '.' .. name, kind = 'function', value = g, doc = ldoc.of_function(g), signature = ldoc.signature(g) }
              end
            end
          end
        elseif next(names.members(x)) then
          into[#into + 1] = { path = full, kind = 'namespace', value = x }
          visit(full, x, into, seen)
        end
      elseif type(x) == 'table' then
        into[#into + 1] = { path = full, kind = 'alias', of = seen[x] }
      end
    end
  end
end

--- Everything public but ops.
-- @treturn table list of {path, kind = 'namespace'|'function'|'class'|'alias', doc, signature, arguments, methods, head, file}
function M.items()
  local into = {}
  visit('amp', amp, into, {})
  return into
end

local same = { swapaxes = 'transpose', swapdims = 'transpose', moveaxis = 'movedim', broadcast_to = 'expand', argwhere = 'nonzero' }

--- Methods of tensors that are no ops, and properties.
-- @treturn table methods list of {name, doc, signature, of}
-- @treturn table properties names
function M.tensor()
  local tensor, list = require 'amp.tensor', {}
  local autograd = require('amp.autograd').methods -- loaded when first called
  for _, name in ipairs(sorted(tensor.methods)) do
    local f = autograd[name] or tensor.methods[name]
    if not name:find '^_' and not ops.specs[f] then
      list[#list + 1] = { name = name, doc = ldoc.of_function(f), signature = ldoc.signature(f), of = same[name] }
    end
  end
  return list, sorted(tensor.properties)
end

--- Methods of graphs.
-- @treturn table list of {name, doc, signature}
function M.graph()
  local list = {}
  for _, name in ipairs(sorted(require('amp.graph.graph').methods)) do
    local f = require('amp.graph.graph').methods[name]
    list[#list + 1] = { name = name, doc = ldoc.of_function(f), signature = (ldoc.signature(f) or '(...)'):gsub('^%(g,?%s*', '(') }
  end
  return list
end

--- What all optimizers, and all schedules, can do.
function M.shared()
  return methods_in { 'optim/optimizer.lua' }, methods_in { 'optim/lr_scheduler.lua' }
end

--- Rows of the op table that users call, by name.
-- @treturn table list of rows (name, args, doc, flags, kind, nout)
function M.ops()
  local list = {}
  for name in pairs(ops.by_name) do
    if ops.public(name) or ops.public(name .. '_') then list[#list + 1] = ops.row(name) end
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

return M

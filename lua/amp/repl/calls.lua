--- What can be given to a function or class: names of its options, with defaults where
-- they are known. They come from the op table, from the lists that the code itself checks
-- options against, and from the comments.
-- @module amp.repl.calls
local checked = require 'amp.options'
local core = require 'amp.ffi'
local ldoc = require 'amp.repl.ldoc'
local ops = require 'amp.ops'
local keywords = require('amp.repl.lexer').keywords
local raw = require('amp.core.class').raw

local M = {}

--- The function that runs when a value is called: itself, a class's `init`, or what __call is.
-- @return ?function
function M.constructor(v)
  if type(v) == 'function' then return v end
  if type(v) ~= 'table' then return nil end
  local mt = getmetatable(v)
  local call = type(mt) == 'table' and rawget(mt, '__call')
  local init = type(rawget(v, '__name')) == 'string' and v.init
  if type(init) == 'function' then return init end
  if type(call) ~= 'function' then return nil end
  if not ldoc.of_function(call) then -- one that only hands on
    for i = 1, 60 do
      local name, f = debug.getupvalue(call, i)
      if not name then break end
      if name == 'new' and type(f) == 'function' then return f end
    end
  end
  return call
end

local lists = { names = true, known = true, option_names = true, keys = true, options = true }

local function strings(t)
  if type(t) ~= 'table' or type(t[1]) ~= 'string' then return false end
  for i = 1, #t do
    if type(t[i]) ~= 'string' or not t[i]:find '^[%a_][%w_]*$' then return false end
  end
  return true
end

-- From the upvalues of a function: lists of names, tables of defaults
local function from_upvalues(f, into)
  for i = 1, 60 do
    local name, t = debug.getupvalue(f, i)
    if not name then return end
    if lists[name] and strings(t) then
      for k = 1, #t do into[t[k]] = into[t[k]] or {} end
    elseif name == 'extra' and type(t) == 'table' then -- what has no default
      for k in next, t do
        if k ~= 'params' then into[k] = into[k] or {} end
      end
    elseif name == 'defaults' and type(t) == 'table' then
      for k, v in next, t do
        if type(k) == 'string' then into[k] = { default = v } end
      end
    end
  end
end

-- The options that a module of amp's own checks what it is given against: its constructor is
-- run up to that check, which no module is past before it has made anything.
local function from_module(class)
  local info = debug.getinfo(raw(class.init), 'S')
  if info.source:sub(1, 1) ~= '@' or info.source:sub(2, #core.here + 1) ~= core.here then return nil end
  local read, found = checked.read
  checked.read = function(_, _, known, defaults)
    found = { known = known, defaults = defaults or {} }
    error(found)
  end
  for _, first in ipairs { {}, 1 } do -- the first argument may be wanted before the options
    if not found then pcall(class.init, setmetatable({ __name = class.__name }, { __index = class }), first) end
  end
  checked.read = read
  if not found then return nil end
  local into = {}
  for _, k in ipairs(found.known) do into[k] = { default = found.defaults[k] } end
  return into
end

-- "true", "2000", "'nearest'" of a comment
local function literal(text)
  if text == 'true' or text == 'false' then return text == 'true' end
  return text and (tonumber(text) or text:match "^'([^']*)'$")
end

-- Options that a comment names: "batch_size (1), shuffle (false: ...)" or "{dtype, eps = 1e-8}"
local function from_text(text, into)
  local function note(name, value)
    if keywords[name] then return end
    local o = into[name] or {}
    into[name] = o
    if o.default == nil then o.default = literal(value) end
  end
  for name, inner in text:gmatch '([%a_][%w_]*)%s*(%b())' do note(name, inner:match '^%(%s*([^%s:;,)]+)%s*[:;,)]') end
  for inner in text:gsub('%b()', ''):gmatch '%b{}' do
    for name, mark, at in inner:gmatch '([%a_][%w_]*)%s*([,}=])()' do
      note(name, mark == '=' and inner:match('^%s*([^%s,}]+)', at) or nil)
    end
  end
end

--- Whether a parameter of a comment is a table of options.
function M.takes_options(p) return p.kind:find 'table' ~= nil and (p.name:find '^options?$' ~= nil or p.name == 'given' or p.name == 'o') end

--- Options of what is called.
-- @param v function or class
-- @treturn table name -> {default =}
function M.options(v)
  local into = {}
  local spec = type(v) == 'function' and ops.specs[v]
  if spec then
    for _, a in ipairs(spec.args) do
      if a.kind ~= 'T' or not a.required then into[a.name] = { default = a.default } end
    end
    return into
  end
  if type(v) == 'table' and type(rawget(v, 'defaults')) == 'table' then -- an optimizer
    for k, d in next, v.defaults do into[k] = { default = d } end
    into.name = into.name or {}
  end
  local f = M.constructor(v)
  if not f then return into end
  if type(v) == 'table' and f == v.init then
    local exact = from_module(v)
    if exact then return exact end
  end
  from_upvalues(f, into)
  local doc = ldoc.of_function(f)
  for _, p in ipairs(doc and doc.params or {}) do
    if M.takes_options(p) then
      from_text(p[1], into)
    elseif type(v) == 'table' and f == v.init and p.kind ~= '' and p.name:find '^[%a_][%w_]*$' then -- a module's arguments may be given by name
      into[p.name] = into[p.name] or {}
    end
  end
  return into
end

return M

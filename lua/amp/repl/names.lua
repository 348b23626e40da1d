--- What a name stands for, and which names a value has: for completion and for help.
-- Looking never calls the user's functions; it may load parts of amp, as naming them does.
-- @module amp.repl.names
local ffi = require 'ffi'
local amp = require 'amp'
local calls = require 'amp.repl.calls'
local classes = require 'amp.repl.classes'
local core = require 'amp.ffi'
local eval = require 'amp.repl.eval'
local ops = require 'amp.ops'
local tensor = require 'amp.tensor'

local M = {}

local function is_tensor(v) return ffi.istype(core.ref_t, v) end
M.is_tensor = is_tensor

-- -- Looking ------------------------------------------------------------------------------------

-- Whether a function belongs to amp: it may be called to see what it gives
local function ours(f)
  local info = type(f) == 'function' and debug.getinfo(require('amp.core.class').raw(f), 'S')
  return info and (info.what == 'C' or info.source:sub(2, #core.here + 1) == core.here)
end

--- The table of a loader or dataset, which its user sees as a cdata; anything else as it is.
function M.opened(v)
  local proxy = package.loaded['amp.data.proxy']
  return proxy and proxy.open(v) or v
end

--- A field of a value, without calling what is not amp's; nil where it has none.
function M.field(v, k)
  v = M.opened(v)
  if type(v) == 'table' then
    local raw = rawget(v, k)
    if raw ~= nil then return raw end
    local mt = getmetatable(v)
    local index = type(mt) == 'table' and rawget(mt, '__index')
    if type(index) == 'table' then return M.field(index, k) end
    if not ours(index) then return nil end
    local ok, got = pcall(index, v, k)
    if ok then return got end
    return nil
  end
  if is_tensor(v) then
    if v.ptr_ == nil then return nil end
    if type(k) == 'string' and not (tensor.methods[k] or tensor.properties[k] or ops.method(k)) then return nil end
    local ok, got = pcall(function() return v[k] end)
    if ok then return got end
  elseif type(v) == 'string' then
    return string[k]
  elseif type(v) == 'userdata' then
    local mt = debug.getmetatable(v)
    local index = mt and mt.__index
    return type(index) == 'table' and rawget(index, k) or nil
  end
end

-- -- Members ----------------------------------------------------------------------------------------

local function add(into, k)
  if type(k) == 'string' and k:find '^[%a_][%w_]*$' then into[k] = true end
end

-- Names that a part of amp loads at need, and methods: they are in tables that its __index looks into.
local function lazy(into, index)
  if not ours(index) or debug.getinfo(index, 'S').what == 'C' then return end
  for i = 1, 60 do
    local name, t = debug.getupvalue(index, i)
    if not name then break end
    if type(t) == 'table' and getmetatable(t) == nil then
      for k, v in next, t do
        if type(v) == 'string' or (name:find '^%u%w' and type(v) == 'function') then add(into, k) end
      end
    end
  end
end

local function gather(into, v, seen)
  if seen[v] then return end
  seen[v] = true
  for k in next, v do add(into, k) end
  local mt = getmetatable(v)
  if type(mt) ~= 'table' then return end
  local index = rawget(mt, '__index')
  if type(index) == 'table' then gather(into, index, seen)
  elseif rawget(mt, 'is_module') then -- a network: its fields, its parts, its class's methods
    for k in next, rawget(v, '.values') or rawget(mt, '.values') or {} do add(into, k) end
    local class = rawget(mt, 'class')
    if type(class) == 'table' then gather(into, class, seen) end
    for name in ([[assign call_frames check_holes check_name container describe extend extra_repr .family get_from init inside is_module items
      parts put raw_key shell super transient word]]):gmatch '%S+' do into[name] = nil end
  else
    lazy(into, index)
  end
end

-- A field that is there without asking anybody: parts of amp are not loaded for being listed
local function there(v, k)
  for _ = 1, 20 do
    local raw = rawget(v, k)
    if raw ~= nil then return raw end
    local mt = getmetatable(v)
    if type(mt) == 'table' and rawget(mt, 'is_module') and (rawget(v, '.values') or rawget(mt, '.values')) then
      raw = rawget(rawget(v, '.values') or mt['.values'], k)
      if raw ~= nil then return raw end
      v = rawget(mt, 'class')
    else
      v = type(mt) == 'table' and rawget(mt, '__index')
    end
    if type(v) ~= 'table' then return nil end
  end
end

--- The names that a value has.
-- @param v any value
-- @tparam ?boolean methods only what may stand after a colon
-- @treturn table name -> true
function M.members(v, methods)
  local into = {}
  v = M.opened(v)
  if v == amp then
    for _, name in ipairs(amp.names()) do into[name] = true end
    into.Tensor, into.names, into.lazy = nil, nil, nil
  elseif is_tensor(v) then
    for _, name in ipairs(ops.names(true)) do into[name] = true end
    for k in next, tensor.methods do add(into, k) end
    if not methods then
      for k in next, tensor.properties do add(into, k) end
    end
    return into
  elseif type(v) == 'string' then
    for k in next, string do into[k] = true end
  elseif type(v) == 'userdata' then
    local mt = debug.getmetatable(v)
    if mt and type(mt.__index) == 'table' then
      for k in next, mt.__index do add(into, k) end
    end
  elseif type(v) == 'table' and package.loaded['amp.graph.graph'] and require('amp.graph').is(v) then
    for k in next, require('amp.graph.graph').methods do add(into, k) end
    if not methods then into.training = true end
    return into
  elseif type(v) == 'table' then
    gather(into, v, {})
    if v == amp.nn.functional then
      for _, name in ipairs(ops.names()) do into[name] = true end
    end
  end
  if methods and type(v) == 'table' then
    for k in next, into do
      local f = there(v, k)
      local mt = getmetatable(f)
      if f ~= nil and type(f) ~= 'function' and not (type(f) == 'table' and type(mt) == 'table' and rawget(mt, '__call')) then into[k] = nil end
    end
  end
  return into
end

-- -- Tensors ---------------------------------------------------------------------------------------

local sample

--- Some tensor, for asking what tensors have.
function M.sample()
  sample = sample or amp.zeros()
  return sample
end

--- Whether calling a function gives a tensor, as far as is known.
function M.gives_tensor(f)
  if type(f) ~= 'function' then return false end
  if ops.specs[f] then return true end
  for _, name in ipairs { 'zeros', 'ones', 'rand', 'randn', 'tensor', 'full', 'eye', 'arange', 'linspace', 'randint' } do
    if rawget(amp, name) == f then return true end
  end
  return false
end

-- -- Paths -------------------------------------------------------------------------------------------------

--- Split 'net.layer[1]:forward' into its steps.
-- @tparam string path
-- @treturn ?table list of names and numbers; nil if it is no such path
function M.steps(path)
  local first, at = path:match '^([%a_][%w_]*)()'
  if not first then return nil end
  local list = { first }
  while at <= #path do
    local name, after = path:match('^%s*[.:]%s*([%a_][%w_]*)()', at)
    if not name then
      name, after = path:match('^%[%s*(%d+)%s*%]()', at)
      if name then name = tonumber(name) else name, after = path:match('^%[%s*["\']([^"\']*)["\']%s*%]()', at) end
    end
    if not name then return nil end
    list[#list + 1], at = name, after
  end
  return list
end

--- What a path stands for at the prompt.
-- @tparam string path
-- @return value, nil if there is none
function M.value(path)
  local steps = M.steps(path)
  if not steps then return nil end
  local v = rawget(eval.env, steps[1])
  if v == nil then v = rawget(_G, steps[1]) end
  for i = 2, #steps do
    if v == nil then return nil end
    v = M.field(v, steps[i])
  end
  return v
end

-- Where a bare name is looked for, the first that has it
local places = { 'amp', 'amp.nn', 'amp.optim', 'amp.optim.lr_scheduler', 'amp.data', 'amp.metric', 'amp.nn.utils', 'amp.nn.init', 'amp.io', 'amp.cuda',
  'amp.autocast' }

-- What a class makes has methods that the class itself has not: GradManager:record
local function of_instance(steps)
  local last = steps[#steps]
  if #steps < 2 or type(last) ~= 'string' then return nil end
  local class, full = M.meant(table.concat(steps, '.', 1, #steps - 1))
  local methods = type(class) == 'table' and calls.constructor(class) and classes.methods(class)
  local f = methods and methods ~= class and M.field(methods, last)
  if type(f) == 'function' then return f, full .. ':' .. last end
end

local function place(path)
  local v = amp
  for name in path:gmatch '%.([%w_]+)' do v = v and M.field(v, name) end
  return v
end

--- Parts and classes of amp that are loaded.
-- @treturn table table -> its name as help takes it, which is '' for amp itself
function M.parts()
  local of, modules, loaded = {}, {}, {}
  for name, v in next, package.loaded do
    if type(name) == 'string' and name:find '^amp%.' and type(v) == 'table' then modules[v] = true end
  end
  for i, head in ipairs(places) do
    local v = amp
    for name in head:gmatch '%.([%w_]+)' do v = type(v) == 'table' and rawget(v, name) or nil end
    if type(v) == 'table' then of[v], loaded[i] = head:sub(5), v end
  end
  for i, head in ipairs(places) do
    for k, x in next, loaded[i] or {} do
      local mt = type(k) == 'string' and type(x) == 'table' and not k:find '^_' and of[x] == nil and (getmetatable(x) or {})
      if mt and (modules[x] or type(mt) == 'table' and rawget(mt, '__call')) then of[x] = (head .. '.' .. k):sub(5) end
    end
  end
  return of
end

--- What somebody means who asks for help on a name: the session's own path, amp's path, or
-- the last part of one ('Linear', 'StepLR').
-- @tparam string name
-- @return value, nil if there is none
-- @treturn ?string full name
function M.meant(name)
  local steps = M.steps(name)
  if not steps then return nil end
  if steps[1] == 'F' and #steps > 1 and M.value 'F' == nil then table.remove(steps, 1) end -- as nn.functional is often called
  local path = table.concat(steps, '.')
  local own = M.value(name)
  if own ~= nil and (#steps > 1 or rawget(eval.env, name) ~= nil) and type(own) ~= 'number' and type(own) ~= 'boolean' then
    local holder, last = name:match '^(.*)[.:]%s*([%a_][%w_]*)$'
    if not holder then return own, name end
    if type(own) ~= 'function' or not is_tensor(M.value(holder)) then return own, holder .. '.' .. last end
    return require('amp.autograd').methods[last] or own, holder .. ':' .. last
  end
  for _, head in ipairs(places) do
    local v = place(head)
    for i = 1, #steps do
      if v == nil then break end
      v = M.field(v, steps[i])
    end
    if v ~= nil then return v, head .. '.' .. path end
  end
  local method, of = of_instance(steps)
  if method then return method, of end
  local last = steps[#steps]
  if #steps == 1 or steps[1] == 'Tensor' or steps[1] == 't' then
    local m = require('amp.autograd').methods[last] or tensor.methods[last] or ops.method(last)
    if m then return m, 't:' .. last end
    if tensor.properties[last] then return tensor.properties[last], 't.' .. last end
  end
  if own ~= nil then return own, path end
end

--- Every public name that help knows, short ones for what has a place of its own.
-- @treturn table list
function M.all()
  local set = {}
  for _, head in ipairs(places) do
    local v = place(head)
    if type(v) == 'table' then
      local short = head:gsub('^amp%.?', '')
      for k in next, M.members(v) do
        if not k:find '^_' then set[(short == '' and '' or short .. '.') .. k] = true end
      end
    end
  end
  for k in next, tensor.methods do set[k] = true end
  for k in next, tensor.properties do set[k] = true end
  local list = {}
  for k in next, set do list[#list + 1] = k end
  table.sort(list)
  return list
end

return M

--- What a function can see of Lua's world besides its arguments: upvalues, globals, and the tables and functions in them.
--
-- A graph holds what was read when it was recorded, so all of it is noted before, and looked at again before each run:
-- numbers, texts and booleans by value, tensors by identity and whether they require grad, tables by their contents and their
-- metatable too, arrays and structs of C by their bytes.
-- The library's own functions and objects are known by identity alone.
-- @module amp.graph.seen
local ffi = require 'ffi'
local bit = require 'bit'
local core = require 'amp.ffi'
local next_key = require('amp.core.keys').next
local classes = require 'amp.core.class'
local code = require 'jit.util'
local C, ref_t = core.C, core.ref_t
local istype, band = ffi.istype, bit.band

local M = {}

local MOST = 1024 -- values that are watched
local TRACKED = 3 -- flags: requires grad, has a history

local HOME = debug.getinfo(1, 'S').source:match '^(.*[/\\]amp[/\\])graph[/\\]'

-- Is a function the library's, or none of Lua?
local function ours(f)
  local info = debug.getinfo(f, 'S')
  local source = info.source
  return info.what == 'C' or HOME ~= nil and source:sub(1, #HOME) == HOME or source:sub(1, 5) == '=amp.'
end

-- -- Marks ----------------------------------------------------------------------------------

local Mark = {} -- of a tensor, which is not kept alive
local Bytes = {} -- of an array or a struct of C
local MOST_BYTES = 4096

-- What lies in an array or a struct, behind its type's name; nil: v is none. Of what is large its size alone.
local function content(v)
  local ctype = tostring(ffi.typeof(v))
  if ctype:find('[*&)]>$') then return nil end -- a pointer, whose target has no known size
  local size = ffi.sizeof(v)
  if not size or size > MOST_BYTES then return nil, size end
  local ok, bytes = pcall(ffi.string, v, size)
  return ok and ctype .. bytes or nil
end

local function is_tensor(v) return istype(ref_t, v) and not rawequal(v, ref_t) end

-- Has the tensor the dtype, the device and the sizes that it had? A script may have read them.
local function same_form(m, p)
  local ndim = p.ndim
  if m.dtype ~= p.dtype or m.device ~= p.device or m.index ~= p.device_index or m.ndim ~= ndim then return false end
  local a, b, c, d = m[1], m[2], m[3], m[4] -- without a loop: without_loop says why
  if a and a ~= tonumber(p.size[0]) or b and b ~= tonumber(p.size[1]) or c and c ~= tonumber(p.size[2]) or d and d ~= tonumber(p.size[3]) then return false end
  for more = 5, ndim do
    if m[more] ~= tonumber(p.size[more - 1]) then return false end
  end
  return true
end

local function mark(v)
  if type(v) ~= 'cdata' then return v end
  if not is_tensor(v) then
    local bytes = content(v)
    return bytes and setmetatable({bytes = bytes}, Bytes) or v
  end
  local p = v.ptr_
  if p == nil then return setmetatable({id = 0}, Mark) end
  local m = {id = tonumber(p.id), flags = band(C.amp_tensor_flags(v), TRACKED), dtype = p.dtype, device = p.device, index = p.device_index, ndim = p.ndim}
  for d = 1, p.ndim do m[d] = tonumber(p.size[d - 1]) end
  return setmetatable(m, Mark)
end

local function same(m, v)
  if is_tensor(v) then
    if getmetatable(m) ~= Mark then return false end
    local p = v.ptr_
    if p == nil then return m.id == 0 end
    return m.id == tonumber(p.id) and m.flags == band(C.amp_tensor_flags(v), TRACKED) and same_form(m, p)
  end
  if getmetatable(m) == Bytes then return type(v) == 'cdata' and content(v) == m.bytes end
  return rawequal(m, v) or m ~= m and v ~= v
end
M.mark, M.same = mark, same

-- -- Code -----------------------------------------------------------------------------------

local LOAD = band(code.funcbc(loadstring 'local a = 5', 1), 0xff)
local GET, SET = band(code.funcbc(loadstring 'return a', 1), 0xff), band(code.funcbc(loadstring 'a = 1', 2), 0xff)

-- Names of globals that a function reads or sets, all texts and numbers in it, with those of the functions in it.
local function names_in(f, globals, texts, numbers)
  local i = 1
  while true do
    local k = code.funck(f, -i)
    if k == nil then break end
    if type(k) == 'string' then texts[k] = true
    elseif type(k) == 'proto' then names_in(k, globals, texts, numbers) end
    i = i + 1
  end
  i = 0
  while true do
    local k = code.funck(f, i)
    if k == nil then break end
    numbers[k] = true
    i = i + 1
  end
  local pc = 1
  while true do
    local ins = code.funcbc(f, pc)
    if ins == nil then break end
    local op = band(ins, 0xff)
    if op == GET or op == SET then globals[code.funck(f, -bit.rshift(ins, 16) - 1)] = true end
    if op == LOAD then numbers[bit.arshift(ins, 16)] = true end
    pc = pc + 1
  end
end

-- -- Looking --------------------------------------------------------------------------------

local standard = {}
for _, name in ipairs {'_G', 'string', 'table', 'math', 'os', 'io', 'debug', 'jit', 'bit', 'ffi', 'coroutine', 'package', 'jit.util'} do
  standard[name] = true
end

-- Tables that are known by identity alone, and those that other files are: only fields that the code names are watched.
local function loaded()
  local known, files = {}, {}
  for name, v in pairs(package.loaded) do
    if type(v) == 'table' then
      if standard[name] or name == 'amp' or type(name) == 'string' and name:sub(1, 4) == 'amp.' then known[v] = true
      else files[v] = true end
    end
  end
  return known, files
end

local Look = {}
Look.__index = Look

local function module_class() return package.loaded['amp.nn.module'] end

-- An object of the library: one of its classes, or a metatable with a name and functions of its own.
local function object(mt)
  if type(mt) ~= 'table' or type(rawget(mt, 'class')) == 'table' then return true end
  if rawget(mt, '__name') == nil then return false end
  local methods = rawget(mt, '__index')
  for _, t in ipairs {mt, type(methods) == 'table' and methods or nil} do
    for _, v in next, t do
      if type(v) == 'function' then return ours(classes.raw(v)) end
    end
  end
  return false
end

-- What a metatable does to its tables, by name.
local function metamethods(mt)
  local list = {}
  for k, v in next, mt do
    if type(k) == 'string' and k:sub(1, 2) == '__' then list[k] = v end
  end
  return list
end

function Look:count(name, weight)
  self.values = self.values + (weight or 1)
  if self.values > MOST then self.over = self.over or name end
  return self.over == nil
end

function Look:value(v, name)
  if self.over then return end
  local kind = type(v)
  if kind == 'number' then if v == v then self.numbers[v] = true end
  elseif kind == 'function' then self:func(classes.raw(v), name)
  elseif kind == 'table' then self:table(v, name)
  elseif kind == 'cdata' and not is_tensor(v) then
    local _, size = content(v)
    if size then self.over = self.over or name end
  end
end

-- Functions of C whose values are others at each call, or that leave the function: what they gave would be frozen.
local fresh = {}
for field, t in pairs {random = math, time = os, clock = os, date = os, yield = coroutine} do
  fresh[t[field]] = ('%s.%s'):format(t == math and 'math' or t == os and 'os' or 'coroutine', field)
end
local holders = {[math] = {'random'}, [os] = {'time', 'clock', 'date'}, [coroutine] = {'yield'}}

-- A standard table of which the code may name such a function, or that function itself.
function Look:standard(v, texts)
  local name = fresh[v]
  for _, field in ipairs(holders[v] or {}) do name = name or texts[field] and fresh[v[field]] end
  if name then self.fresh = self.fresh or ('%s: the function calls %s'):format(self.where, name) end
end

-- What the library made of a function, as amp.compile(fn) or amp.autocast.wrap(fn): the function.
function Look:made_of(f, name)
  for i = 1, 60 do
    local upvalue, v = debug.getupvalue(f, i)
    if upvalue == nil then break end
    if type(v) == 'table' and getmetatable(v) and not self.known[v] then v = rawget(v, 'fn') end
    if type(v) == 'function' and not ours(v) then self:func(v, name) end
    local Module = module_class()
    if Module and Module.is_module(v) then self:value(v, name) end
  end
end

function Look:func(f, name)
  if self.met[f] then return end
  self.met[f] = true
  if ours(f) then return self:made_of(f, name) end
  local info, outer = debug.getinfo(f, 'S'), self.where
  self.where = ('%s:%d'):format(info.short_src, info.linedefined)
  self:code(f)
  self.where = outer
end

-- The table in which a global of this environment is found.
local function holder_of(env, key)
  local holder = env
  for _ = 1, 8 do
    if rawget(holder, key) ~= nil then return holder end
    local mt = getmetatable(holder)
    holder = type(mt) == 'table' and rawget(mt, '__index')
    if type(holder) ~= 'table' then break end
  end
  return env
end

function Look:note(env, key, v)
  self.globals[#self.globals + 1] = {env = env, name = key, is = mark(v), value = v, where = self.where}
  return self:count(key)
end

function Look:global(env, key)
  local v = rawget(env, key)
  if self:note(env, key, v) then self:value(v, key) end
end

-- Upvalues and globals of a function.
function Look:code(f)
  local first = #self.upvalues + 1
  for i = 1, 255 do
    local upvalue, v = debug.getupvalue(f, i)
    if upvalue == nil then break end
    if not self:count(upvalue) then return end
    local list = self.upvalues
    list[#list + 1] = {fn = f, index = i, name = upvalue, is = mark(v), value = v, where = self.where}
  end
  local last = #self.upvalues
  local globals, texts, env = {}, {}, getfenv(f)
  names_in(f, globals, texts, self.numbers)
  for text in pairs(texts) do self.texts[text] = true end
  for i = first, last do
    local e = self.upvalues[i]
    self:standard(e.value, texts)
    self:value(e.value, e.name)
  end
  for key in pairs(globals) do
    self:standard(env[key], texts)
    self:global(env, key)
    local holder = holder_of(env, key)
    if holder ~= env then self:global(holder, key) end
    if self.over then return end
  end
  local requires = globals.require
  for i = first, last do requires = requires or rawequal(self.upvalues[i].value, require) end
  if requires then self:required(texts) end
end

-- Files that a function may ask for by name.
function Look:required(texts)
  for text in pairs(texts) do
    local v = package.loaded[text]
    if v ~= nil and not self.known[v] and not standard[text] then self:global(package.loaded, text) end
  end
end

function Look:contents(entry)
  local name = entry.name
  for k, v in next, entry.table do
    if not self:count(name) then return end
    entry.is[k], entry.value[k] = mark(v), v
  end
  for k, v in next, entry.value do self:value(v, ('%s.%s'):format(name, tostring(k))) end
end

-- Of a table that may hold much, the fields that the code names, and numbered ones. True: some are new.
function Look:named_contents(entry)
  local t, again = entry.table, false
  local function add(k)
    local v = rawget(t, k)
    if entry.named[k] or not self:count(entry.name, v == nil and 0.25) then return end
    entry.named[k], entry.is[k], entry.value[k], again = true, mark(v), v, true
    self:value(v, ('%s.%s'):format(entry.name, tostring(k)))
  end
  local texts = {}
  for text in pairs(self.texts) do texts[#texts + 1] = text end -- more may come
  for _, text in ipairs(texts) do add(text) end
  if not entry.numbered then
    entry.numbered = true
    for k in next, t do
      if type(k) ~= 'string' then add(k) end
    end
  end
  return again
end

function Look:late_tables()
  repeat
    local again = false
    for i = 1, #self.late do again = self:named_contents(self.late[i]) or again end
    self:methods()
  until not again or self.over
end

function Look:table(t, name)
  if self.met[t] or self.known[t] then return end
  self.met[t] = true
  local Module, mt = module_class(), getmetatable(t)
  if Module and Module.is_module(t) then return self:modules(t) end
  if mt ~= nil and object(mt) then return end
  local entry = {table = t, name = name, is = {}, value = {}, where = self.where, meta = mt}
  self.tables[#self.tables + 1] = entry
  if self.narrow or self.files[t] then
    entry.named, entry.numbered = {}, self.files[t] ~= nil
    self.late[#self.late + 1] = entry
  else self:contents(entry) end
  if mt then
    entry.methods = metamethods(mt)
    for _, v in next, entry.methods do self:value(v, name) end
  end
end

-- Methods of classes that the code names, up to those of the library.
function Look:methods()
  local again
  repeat
    again = false
    local list = {}
    for class in pairs(self.classes) do list[#list + 1] = class end
    for _, class in ipairs(list) do
      for key, v in next, class do
        local f = type(v) == 'function' and classes.raw(v)
        if f and not self.met[f] and (key == 'forward' or self.texts[key]) then
          again = true
          if not ours(f) then self:note(class, key, v) end
          self:func(f, rawget(class, '__name') or key)
        end
      end
    end
  until not again
end

function Look:class(class)
  while class and not self.classes[class] do
    self.classes[class] = true
    class = rawget(class, 'super')
  end
end

function Look:modules(root)
  local Module = module_class()
  for name, m in root:named_modules() do
    if self.over then return end
    self.met[m] = true
    self.modules_met[#self.modules_met + 1] = m
    self:class(getmetatable(m).class)
    local library = ours(classes.raw(m.forward)) -- its numbers make no branches that a trace would not follow
    for field, v in next, rawget(Module.inside(m), '.values') do
      local watched = type(v) == 'function' or type(v) == 'table' and not Module.is_module(v)
      if watched or not library then self:value(v, tostring(field)) end
    end
    for _, hook in ipairs(rawget(Module.inside(m), '.hooks') or {}) do self:value(hook.fn, name) end
  end
end

local function look(narrow, ...)
  local known, files = loaded()
  local self = setmetatable({modules_met = {}, met = {}, classes = {}, known = known, files = files, texts = {}, numbers = {}, values = 0,
    narrow = narrow, late = {}, upvalues = {}, globals = {}, tables = {}}, Look)
  for i = 1, select('#', ...) do self:value((select(i, ...)), 'the function') end
  self:methods()
  self:late_tables() -- by now all texts are known
  self.classes, self.met, self.known, self.files, self.late = nil, nil, nil, nil, nil
  return self
end

--- Note what functions, modules and objects see. Where that is much, of tables only fields that the code names.
-- @param ... they
-- @treturn table its `modules_met` are the modules among it; its `numbers` (a set) are those in its code, too; `over`: a name of
-- what holds too much; `fresh`: a function that gives another value each time
function M.look(...)
  local all = look(false, ...)
  return all.over and look(true, ...) or all
end

-- -- Asking ---------------------------------------------------------------------------------

local NONE = {}

-- The content of a small table, or its named part, without a loop: LuaJIT compiles no call of one of few turns in another trace,
-- and this is asked in each run of a graph. Keys come in the same order as long as none is added.
local FEW = 8
local function without_loop(e)
  local t, keys, whole = e.table, {}, not e.named
  for k in next, e.named or t do keys[#keys + 1] = k end
  if #keys > FEW then return false end
  local lines = {'local t, is, keys, same, next_key, rawget, rawequal = ... local k return function()'}
  for i = 1, #keys do
    if whole then lines[#lines + 1] = ('k = next_key(t%s) if not rawequal(k, keys[%d]) then return true end'):format(i > 1 and ', k' or '', i)
    else lines[#lines + 1] = ('k = keys[%d]'):format(i) end
    lines[#lines + 1] = 'if not same(is[k], rawget(t, k)) then return true end'
  end
  lines[#lines + 1] = whole and ('return next_key(t%s) ~= nil end'):format(#keys > 0 and ', k' or '') or 'return false end'
  return assert(loadstring(table.concat(lines, '\n'), '=(what a table holds)'))(t, e.is, keys, same, next_key, rawget, rawequal)
end

local changed_content
local function changed_table(e)
  local t, mt = e.table, e.meta
  if getmetatable(t) ~= mt then return true end
  for k, v in next, e.methods or NONE do
    if not rawequal(rawget(mt, k), v) then return true end
  end
  if e.walk then return e.walk() end
  local changed = changed_content(e)
  if not changed and e.walk == nil then e.walk = without_loop(e) end
  return changed
end

function changed_content(e)
  local t, is, n = e.table, e.is, 0
  if e.named then
    for k in next, e.named do
      if not same(is[k], rawget(t, k)) then return true end
    end
    return false
  end
  for k, v in next, t do
    if not same(is[k], v) then return true end
    n = n + 1
  end
  if e.n == nil then
    e.n = 0
    for _ in next, is do e.n = e.n + 1 end
  end
  return n ~= e.n
end

-- All that is looked at, without a loop, nil: too much. An upvalue is read by sharing it, as LuaJIT does not compile
-- debug.getupvalue.
local AT_ONCE = 40
local function without_loops(self)
  local upvalues, globals, tables = self.upvalues, self.globals, self.tables
  if #upvalues > AT_ONCE or #globals > AT_ONCE or #tables > AT_ONCE or debug.upvaluejoin == nil then return nil end
  local lines, names = {}, {}
  for i = 1, #upvalues do
    names[i] = 'u' .. i
    lines[#lines + 1] = ('if not same(upvalues[%d].is, u%d) then return true end'):format(i, i)
  end
  for i = 1, #globals do
    lines[#lines + 1] = ('e = globals[%d] if not same(e.is, rawget(e.env, e.name)) then return true end'):format(i)
  end
  for i = 1, #tables do lines[#lines + 1] = ('if changed_table(tables[%d]) then return true end'):format(i) end
  local source = ('%s local upvalues, globals, tables, same, changed_table, rawget = ... return function() local e %s return false end'):format(
    #names > 0 and 'local ' .. table.concat(names, ', ') or '', table.concat(lines, ' '))
  local check = assert(loadstring(source, '=(what a function sees)'))(upvalues, globals, tables, same, changed_table, rawget)
  local at = 1
  repeat
    local name = debug.getupvalue(check, at)
    local e = name and upvalues[tonumber(name:match '^u(%d+)$') or 0]
    if e then debug.upvaluejoin(check, at, e.fn, e.index) end
    at = at + 1
  until name == nil
  return check
end

--- Is anything not as it was noted?
function M.any_changed(self)
  local check = self.check
  if check then return check() end
  local changed = M.changed(self) ~= nil
  if not changed and check == nil then self.check = without_loops(self) or false end
  return changed
end

--- The first thing that is not as it was noted: its name, its kind and the function that sees it.
function M.changed(self)
  local list = self.upvalues
  for i = 1, #list do
    local e = list[i]
    local _, v = debug.getupvalue(e.fn, e.index)
    if not same(e.is, v) then return e.name, 'its upvalue', e.where end
  end
  list = self.globals
  for i = 1, #list do
    local e = list[i]
    if not same(e.is, rawget(e.env, e.name)) then return e.name, 'the global', e.where end
  end
  list = self.tables
  for i = 1, #list do
    if changed_table(list[i]) then return list[i].name, 'the table', list[i].where end
  end
end

--- Put everything back as it was noted. Only once, and before `settle`.
function M.restore(self)
  for _, e in ipairs(self.upvalues) do debug.setupvalue(e.fn, e.index, e.value) end
  for _, e in ipairs(self.globals) do rawset(e.env, e.name, e.value) end
  for _, e in ipairs(self.tables) do
    for k in next, e.named or e.table do
      if e.value[k] == nil then rawset(e.table, k, nil) end
    end
    for k, v in next, e.value do rawset(e.table, k, v) end
    for k, v in next, e.methods or NONE do rawset(e.meta, k, v) end
    if getmetatable(e.table) ~= e.meta then debug.setmetatable(e.table, e.meta) end
  end
end

--- From now on nothing is kept alive for `restore`.
function M.settle(self)
  for _, list in ipairs {self.upvalues, self.globals, self.tables} do
    for _, e in ipairs(list) do e.value = nil end
  end
end

return M

--- Error objects: what went wrong, where in the caller's code, and the trace.
-- An error is a table whose tostring is "script.lua:12: amp.matmul: shapes ...". It joins
-- with strings and has their methods, so scripts that expect string errors work.
-- Fields: `code` ('shape', 'dtype', ...), `op`, `message`, `where`, `context` (lines for the
-- modules it was raised in), `traceback`.
-- @module amp.error
local ffi = require 'ffi'
local core = require 'amp.ffi'
local S = core.S

local M = {}

local codes = {
  [-1] = 'argument', [-2] = 'shape', [-3] = 'dtype', [-4] = 'device', [-5] = 'index', [-6] = 'memory',
  [-7] = 'autograd', [-8] = 'state', [-9] = 'unsupported', [-10] = 'value', [-11] = 'interrupted', [-12] = 'internal',
}
M.codes = codes

local Error = { class = 'amp.Error' }
M.Error = Error

-- string methods on the object: err:match 'shape'
local stringlike = setmetatable({}, {
  __index = function(t, k)
    local f = string[k]
    if f == nil then return nil end
    local method = function(self, ...) return f(tostring(self), ...) end
    t[k] = method
    return method
  end,
})

local mt = {
  __index = function(_, k)
    local v = Error[k]
    if v ~= nil then return v end
    return stringlike[k]
  end,
  __tostring = function(e)
    local who = e.op and ('amp.' .. e.op .. ': ') or 'amp: '
    local text = (e.where and e.where .. ': ' or '') .. who .. e.message
    return #e.context == 0 and text or text .. '\n  ' .. table.concat(e.context, '\n  ')
  end,
  __concat = function(a, b) return tostring(a) .. tostring(b) end,
}
M.metatable = mt

--- Set by nn: a function that lists the modules running on this stack, a line each.
M.context = nil

--- Whether a value is one of amp's errors.
function M.is(e) return getmetatable(e) == mt end

-- -- Where ------------------------------------------------------------------

local root = '@' .. core.here

local function own(source)
  return source:sub(1, #root) == root or source:sub(1, 5) == '=amp.' or source:sub(1, 2) == '=['
end

M.own = own -- whether a chunk of that source is amp's

--- "file.lua:12" of the nearest frame outside amp, nil if this coroutine has none (a
-- region further out fills it in then).
-- @treturn ?string place
function M.where()
  local level = 2
  while true do
    local info = debug.getinfo(level, 'Sl')
    if info == nil then return nil end
    if info.what ~= 'C' and not own(info.source) then
      return info.currentline > 0 and info.short_src .. ':' .. info.currentline or info.short_src
    end
    level = level + 1
  end
end

-- -- The line that the user wrote -----------------------------------------------------

-- Text of a line of a chunk, nil where it can't be had.
local function line_of(source, n)
  if source:sub(1, 1) == '=' then return nil end
  local text = source
  if source:sub(1, 1) == '@' then
    local f = io.open(source:sub(2), 'rb')
    if not f then return nil end
    text = f:read(2 ^ 20) or ''
    f:close()
  end
  local at = 0
  for line in (text .. '\n'):gmatch '(.-)\r?\n' do
    at = at + 1
    if at == n then return line end
  end
end

--- The source line of the nearest frame outside amp.
-- @treturn ?string line
function M.line()
  for level = 2, 200 do
    local info = debug.getinfo(level, 'Sl')
    if info == nil then return nil end
    if info.what ~= 'C' and not own(info.source) then return line_of(info.source, info.currentline) end
  end
end

--- What stands before `.name` or `:name` in that line: "net" of "net.step()".
-- @tparam string name
-- @tparam string mark '.' or ':'
-- @treturn ?string
function M.receiver(name, mark)
  local line = M.line()
  return line and line:match('([%a_][%w_.]*)%s*%' .. mark .. '%s*' .. name:gsub('%W', '%%%0') .. '%f[^%w_]')
end

--- Value of a variable in the nearest function outside amp: a local or what the function knows, or a global.
-- @tparam string name
function M.variable(name)
  for level = 2, 200 do
    local info = debug.getinfo(level, 'Sf')
    if info == nil then return nil end
    if info.what ~= 'C' and not own(info.source) then
      local found, value = false, nil
      for i = 1, 200 do
        local n, v = debug.getlocal(level, i)
        if not n then break end
        if n == name then found, value = true, v end
      end
      for i = 1, found and 0 or 200 do
        local n, v = debug.getupvalue(info.func, i)
        if not n then break end
        if n == name then return v end
      end
      if found then return value end
      return rawget(getfenv(info.func), name)
    end
  end
end

-- Tables of functions, which are called with a dot -> how they are written.
local spaces = setmetatable({}, { __mode = 'k' })

--- Note a table of functions, so that `space:f(x)` is told that it wants a dot.
function M.space(t, name) spaces[t] = name end

--- Note a table of functions all of which are there, and make a name that is not there an error.
-- @tparam table t
-- @tparam string name as one writes it
-- @treturn table t
function M.room(t, name)
  spaces[t] = name
  if getmetatable(t) ~= nil then return t end
  return setmetatable(t, { __index = function(_, k)
    if type(k) ~= 'string' or k:sub(1, 1) == '_' then return nil end
    local habits = require 'amp.core.habits'
    M.throw_code('name', nil, "%s has no '%s'%s", name, k, habits.hint(habits.rooms[name], k, require('amp.util').keys(t)))
  end })
end

--- Whether a value is such a table.
function M.is_space(v) return spaces[v] ~= nil end

-- Was one of them handed to amp as a first argument? Gives its name, and what was called.
local function colon()
  local level, found = 3, nil
  while true do
    local info = debug.getinfo(level, 'Su')
    if info == nil then return nil end
    if info.what ~= 'C' and not own(info.source) then break end
    for _, i in ipairs { 1, 2, 3, 4, -1, -2 } do
      local name, v = nil, nil
      if i <= info.nparams then name, v = debug.getlocal(level, i) end
      if name and type(v) == 'table' and spaces[v] then found = found or spaces[v] end
    end
    level = level + 1
  end
  if not found then return nil end
  local line = M.line()
  if not line then return nil end
  local holder, name
  for h, n in line:gmatch '([%a_][%w_.]*)%s*:%s*([%a_][%w_]*)%s*[%(%{"\'%[]' do
    local wanted = found:match '([%w_]+)$'
    if not holder or h:match '([%w_]+)$' == wanted and holder:match '([%w_]+)$' ~= wanted then holder, name = h, n end
  end
  if holder then return found, holder, name end
end

-- -- Errors as strings -------------------------------------------------------------------

local as_text = false
local last -- the error raised last

--- What an error is to those who catch it: 'object' (the default) or 'string', for hosts that take
-- an error's text with lua_tostring, which gives nothing for an object.
-- @tparam ?string kind nil: only ask
-- @treturn string the kind in force before
-- @usage amp.errors 'string'
function M.errors(kind)
  local before = as_text and 'string' or 'object'
  if kind == nil then return before end
  if kind ~= 'object' and kind ~= 'string' then
    M.throw('errors', "must be 'object' or 'string', got %s", require('amp.util').show(kind))
  end
  as_text = kind == 'string'
  return before
end

--- The error object that amp raised last, with its fields; nil before the first.
-- @treturn ?amp.Error
function M.last_error() return last end

--- The object of a caught error: itself, or what its text was made of. nil: none of amp's.
function M.of(e)
  if M.is(e) then return e end
  if type(e) == 'string' and last and last.text == e then return last end
end

--- An error of amp with other words in its message; any other is given back as it is.
-- @param e as it was raised
-- @tparam string pattern as of string.gsub
-- @param words as of string.gsub
function M.reworded(e, pattern, words)
  local object = M.of(e)
  if object == nil then return e end
  object.message = object.message:gsub(pattern, words)
  if type(e) ~= 'string' then return e end
  object.text = tostring(object)
  return object.text
end

local last_traceback

--- Traceback of the place where the last error that amp saw was raised.
-- @treturn ?string traceback
function M.traceback() return last_traceback end

-- What a trace begins with. (Without a text debug.traceback gives back what it got.)
local function heading(e) return type(e) == 'string' and e or '(an error that is ' .. (type(e) == 'nil' and 'nil' or 'a ' .. type(e)) .. ')' end

--- Note the trace of an error that is on its way through a region, whose handler calls this, and place it.
-- Gives the error to go on with: the same one, but a text that had no place yet gets it.
function M.note(e)
  local text = type(e) == 'string' and last and last.text == e
  if text and last.where == nil then
    last.where = M.where()
    last.text = tostring(last)
    return last.text
  end
  if text then return e end
  if getmetatable(e) == mt then
    if e.where == nil then e.where = M.where() end
    last_traceback = e.traceback
  else
    last_traceback = debug.traceback(heading(e), 3)
  end
  return e
end

--- Note the trace of an error at the place where it is raised; gives the error. (A handler of xpcall.)
function M.note_here(e)
  if getmetatable(e) == mt then last_traceback = e.traceback
  else last_traceback = debug.traceback(heading(e), 2) end
  return e
end

-- -- Raising ----------------------------------------------------------------

-- A function that lists the modules on the stack, innermost first (amp.nn sets it).
M.context = nil

--- Make an error object.
-- @tparam ?string op name of the function, without "amp."
-- @tparam string message
-- @tparam ?number|string code
function M.new(op, message, code)
  local space, holder, name = nil, nil, nil
  if code ~= 'name' and not (op and op:find '^register_') then space, holder, name = colon() end
  if space then
    op, code = nil, 'argument'
    message = ("%s:%s(...) was written; functions of %s are called with a dot: %s.%s(...)"):format(holder, name, space, holder, name)
  end
  local e = setmetatable({
    code = codes[code] or code or 'argument', op = op, message = message, where = M.where(),
    context = M.context and M.context() or {},
  }, mt)
  if M.context then e.modules = M.context() end
  e.traceback = debug.traceback(tostring(e), 2)
  last_traceback, last = e.traceback, e
  return e
end

-- Raise it, or its text.
local function raise(e)
  if not as_text then error(e, 0) end
  e.text = tostring(e)
  error(e.text, 0)
end

--- Raise an error at the nearest frame outside amp.
-- @tparam ?string op
-- @tparam string message a format
-- @param ... its values
function M.throw(op, message, ...)
  if select('#', ...) > 0 then message = message:format(...) end
  raise(M.new(op, message, 'argument'))
end

--- As `throw`, with a code word first.
function M.throw_code(code, op, message, ...)
  if select('#', ...) > 0 then message = message:format(...) end
  raise(M.new(op, message, code))
end

--- A table that stands for a list has no hole and no names: an error that says which (`what`: of whom).
-- @tparam ?string op
-- @tparam table list
-- @tparam ?string what begins the sentence
-- @treturn table list
function M.list(op, list, what)
  local flaw = require('amp.util').flaw(list)
  if flaw then M.throw(op, '%s%s', what and what .. ': ' or '', flaw) end
  return list
end

--- Raise what the library left in S.err.
-- @tparam ?string op overrides the name that the library gave
function M.raise(op)
  local err = S.err
  local name = ffi.string(err.op)
  err.op[0] = 0 -- calls that are no ops leave it as it was
  raise(M.new(op or (name ~= '' and name or nil), ffi.string(err.message), tonumber(err.code)))
end

return M

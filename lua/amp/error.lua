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
-- region on the way out fills it in then).
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

local last_traceback

--- Traceback of the place where the last error that amp saw was raised.
-- @treturn ?string traceback
function M.traceback() return last_traceback end

--- Note the trace of an error that left coroutine co, and place it. (For region.lua.)
function M.note(co, e)
  if getmetatable(e) == mt then
    if e.where == nil then e.where = M.where() end
    if M.context then
      for _, line in ipairs(M.context()) do e.context[#e.context + 1] = line end
    end
    last_traceback = e.traceback
  else
    last_traceback = debug.traceback(co, type(e) == 'string' and e or nil)
  end
end

--- Note the trace of an error at the place where it is raised; gives the error. (A handler of xpcall.)
function M.note_here(e)
  if getmetatable(e) == mt then last_traceback = e.traceback
  else last_traceback = debug.traceback(type(e) == 'string' and e or nil, 2) end
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
  local e = setmetatable({
    code = codes[code] or code or 'argument', op = op, message = message, where = M.where(),
    context = M.context and M.context() or {},
  }, mt)
  if M.context then e.modules = M.context() end
  e.traceback = debug.traceback(tostring(e), 2)
  last_traceback = e.traceback
  return e
end

--- Raise an error at the nearest frame outside amp.
-- @tparam ?string op
-- @tparam string message a format
-- @param ... its values
function M.throw(op, message, ...)
  if select('#', ...) > 0 then message = message:format(...) end
  error(M.new(op, message, 'argument'), 0)
end

--- As `throw`, with a code word first.
function M.throw_code(code, op, message, ...)
  if select('#', ...) > 0 then message = message:format(...) end
  error(M.new(op, message, code), 0)
end

--- Raise what the library left in S.err.
-- @tparam ?string op overrides the name that the library gave
function M.raise(op)
  local err = S.err
  local name = ffi.string(err.op)
  err.op[0] = 0 -- calls that are no ops leave it as it was
  error(M.new(op or (name ~= '' and name or nil), ffi.string(err.message), tonumber(err.code)), 0)
end

return M

--- Functions for every row of the op table, made when first asked for.
-- A row's schema becomes Lua source: a straight path for arguments in their places and of
-- the right types, with one call into the library; whatever else comes (an options table,
-- a missing argument, a wrong type) goes to `amp.args`, which sorts it out or raises.
-- Forms: name(...), and name_(...) where the row says so. Nothing here knows an op by name
-- but the few aliases at the end.
-- @module amp.ops
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local codegen = require 'amp.ops.codegen'
local rows = require 'amp.ops.schema'
local types = require 'amp.types'
local C, S = core.C, core.S
local band = require('bit').band

local M = {}

local INPLACE, ONLY_INPLACE, PRIVATE = C.AMP_F_INPLACE, C.AMP_F_ONLY_INPLACE, C.AMP_F_PRIVATE
local CREATE, LIST = C.AMP_F_CREATE, C.AMP_F_LIST

local by_name = rows.by_name
M.by_name = by_name -- name -> number
M.row = rows.get

-- In the place after the last argument: an `out` tensor is waiting in outbox.
local TOKEN = {}
local outbox = {}

-- -- What wrappers see ---------------------------------------------------------------

local buffer_t = ffi.typeof 'amp_tensor *[?]'
local buffer, capacity = buffer_t(64), 64
local function list_buffer(n)
  if n > capacity then
    capacity = n * 2
    buffer = buffer_t(capacity)
  end
  return buffer
end

local function number(v)
  local o = core.ref_t()
  call.try(nil, C.amp_number, S, o, v)
  return o
end

local function freed(name, place) err.throw(name, 'argument %d is a tensor that was freed', place) end

local env = {
  C = C, S = S, ref = core.ref_t, istype = ffi.istype, type = type, next_key = require('amp.core.keys').next, select = select,
  number = number, release = C.amp_release, list_buffer = list_buffer, freed = freed, again = call.again, raise = err.raise,
  attend = call.attend, dtype_code = types.dtype_code, device_code = types.device_code, NONE = core.NONE,
  TOKEN = TOKEN, outbox = outbox,
  slow = function(...) return require('amp.core.args')(M, TOKEN, outbox, ...) end,
}
env.__index = env

local functions = {}

local function build(name)
  local r, inplace = M.row(name), false
  if r == nil or band(r.flags, ONLY_INPLACE) ~= 0 then
    if name:sub(-1) ~= '_' then return nil end
    r, inplace = M.row(name:sub(1, -2)), true
    if r == nil or band(r.flags, INPLACE) == 0 then return nil end
  end
  local words = {}
  for i = 1, #r.args do
    if r.args[i].words then words[r.args[i].slot] = r.args[i].words end
  end
  local slots = core.slots()
  local spec = setmetatable({ inplace = inplace, form = name }, { __index = r })
  local e = setmetatable({
    spec = spec, words = words, slots = slots, bi = ffi.cast('int64_t *', slots), bf = ffi.cast('double *', slots),
  }, env)
  if name == 'div' then r.number_first, e.number_first = true, M.get 'rdiv' end
  if name == 'pow' then r.number_first, e.number_first = true, M.get 'rpow' end
  local chunk, message = loadstring(codegen.source(r, inplace), '=amp.' .. name)
  if chunk == nil then error(message) end
  local f = chunk(e)
  spec.f = f
  M.specs[f] = spec
  return f
end

--- Spec (row and form) of a wrapper; for help and for `amp.policy`.
M.specs = setmetatable({}, { __mode = 'k' })

--- Function of an op or of its in-place form name_, private ones too; nil: no such op.
-- @tparam string name
-- @treturn ?function
function M.get(name)
  local f = functions[name]
  if f == nil then
    f = build(name)
    functions[name] = f
  end
  return f
end

--- Public function form: not private and no creation.
function M.public(name)
  local f = functions[name] or (type(name) == 'string' and M.get(name))
  if not f then return nil end
  if band(M.specs[f].flags, PRIVATE) ~= 0 then return nil end
  return f
end

--- Method form: public, and the first argument is a tensor.
function M.method(name)
  local f = M.public(name)
  if f == nil then return nil end
  local spec = M.specs[f]
  local first = spec.args[1]
  if first == nil or first.kind ~= 'T' or first.list or band(spec.flags, CREATE) ~= 0 then return nil end
  return f
end

--- Names of public forms ("add", "add_", ...), sorted; with `methods` those with a method form.
function M.names(methods)
  local out = {}
  for name, id in pairs(by_name) do
    local flags = tonumber(C.amp_op_get(id).flags)
    if band(flags, PRIVATE) == 0 and not (methods and band(flags, CREATE + LIST) ~= 0) then
      if band(flags, ONLY_INPLACE) == 0 then out[#out + 1] = name end
      if band(flags, INPLACE) ~= 0 then out[#out + 1] = name .. '_' end
    end
  end
  table.sort(out)
  return out
end

return M

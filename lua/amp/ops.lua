--- Functions for every row of the op table, made when first asked for.
-- A row's schema becomes Lua source: a straight path for arguments in their places and of
-- the right types, with one call into the library; whatever else comes (an options table,
-- a missing argument, a wrong type) goes to `amp.args`, which sorts it out or raises.
-- Forms: name(...), and name_(...) where the row says so. Nothing here knows an op by name
-- but the few aliases at the end.
-- @module amp.ops
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.call'
local err = require 'amp.error'
local types = require 'amp.types'
local C, S = core.C, core.S

local M = {}

-- -- Rows ------------------------------------------------------------------------

local INPLACE, PRIVATE, CREATE, LIST, ONLY_INPLACE, AUX = 1, 4, 32, 128, 512, 1024
local band = require('bit').band

local numeric = { i = true, f = true, d = true }

-- "dim:d=1" and the like, into a table
local function parse_arg(word, slot)
  local name, type_ = word:match '^([%w_]+):(.*)$'
  if name == nil then
    local base, mark = word:match '^([%w_]+)([?#*]?)$'
    return { name = base, kind = 'T', optional = mark == '?', number = mark == '#', list = mark == '*' }, 0
  end
  local default = type_:match '=(.*)$'
  type_ = type_:gsub('=.*$', '')
  local optional = type_:sub(-1) == '?'
  if optional then type_ = type_:sub(1, -2) end
  local a = { name = name, kind = type_:sub(1, 1), slot = slot, optional = optional, default = default }
  local count = 1
  if a.kind == 'e' then
    a.words, a.word_list = {}, {}
    for w in type_:sub(2):gmatch '[^,]+' do
      a.words[w] = #a.word_list
      a.word_list[#a.word_list + 1] = w
    end
  elseif a.kind == 'I' or a.kind == 'D' then
    count = 9
  elseif a.kind == 'i' and #type_ > 1 then
    a.kind, count = 'N', tonumber(type_:sub(2))
    a.count = count
  end
  return a, count
end

local rows, by_name = {}, {}

local function row(id)
  local info = C.amp_op_get(id)
  local r = {
    id = id, name = ffi.string(info.name), schema = ffi.string(info.schema), doc = ffi.string(info.doc),
    flags = tonumber(info.flags), kind = string.char(info.kind), nin = info.nin, nout = info.nout, args = {},
  }
  local slot = 0
  for word in r.schema:gmatch '%S+' do
    local a, n = parse_arg(word, slot)
    r.args[#r.args + 1] = a
    slot = slot + n
  end
  if slot ~= info.nslot then
    err.throw(r.name, "the library counts %d slots in the schema '%s', this Lua tree %d: the two differ in version",
      info.nslot, r.schema, slot)
  end
  for i = 1, #r.args do
    local a, after = r.args[i], r.args[i + 1]
    -- numbers in a row: t:view(2, 3); not where the next argument is a number itself
    a.run = (a.kind == 'I' or a.kind == 'D') and not (after and numeric[after.kind]) and not (after and after.number)
    a.required = not a.optional and a.default == nil
  end
  if band(r.flags, AUX) ~= 0 then r.nout = 1 end
  return r
end

for id = 0, C.amp_op_count() - 1 do by_name[ffi.string(C.amp_op_get(id).name)] = id end
M.by_name = by_name

--- The row of a name (without a trailing _), parsed, or nil.
function M.row(name)
  local id = by_name[name]
  if id == nil then return nil end
  local r = rows[id]
  if r == nil then
    r = row(id)
    rows[id] = r
  end
  return r
end

-- -- Source of a wrapper ------------------------------------------------------------

local TOKEN = {} -- in the place after the last argument: an `out` tensor is waiting in outbox
local outbox = {}

local function number_literal(v) return ('%.17g'):format(v) end

-- Lines that put argument p (a Lua expression) of attribute a into its slots.
local function attribute(a, p, slow)
  local s = a.slot
  local out = {}
  local function w(fmt, ...) out[#out + 1] = fmt:format(...) end
  local function absent(write)
    if a.required then return slow end
    return write
  end
  local none = ('bi[%d] = NONE'):format(s)
  if a.kind == 'i' or a.kind == 'd' then
    w("if type(%s) == 'number' then if %s %% 1 ~= 0 or %s > 9e15 or %s < -9e15 then %s end bi[%d] = %s", p, p, p, p, slow, s, p)
    w('elseif %s == nil then %s', p, absent(a.optional and none or ('bi[%d] = %s'):format(s, a.default or '0')))
    w('else %s end', slow)
  elseif a.kind == 'f' then
    w("if type(%s) == 'number' then bf[%d] = %s", p, s, a.optional and ('%s ~= 0 and %s or 0'):format(p, p) or p)
    w('elseif %s == nil then %s', p, absent(a.optional and none or ('bf[%d] = %s'):format(s, a.default or '0')))
    w('else %s end', slow)
  elseif a.kind == 'b' then
    w('if %s == nil then %s elseif %s == true then bi[%d] = 1 elseif %s == false then bi[%d] = 0 else %s end', p,
      absent(a.optional and none or ('bi[%d] = %s'):format(s, a.default or '0')), p, s, p, s, slow)
  elseif a.kind == 't' or a.kind == 'v' or a.kind == 'e' then
    local map = a.kind == 't' and 'dtype_code' or a.kind == 'v' and 'device_code' or ('words[%d]'):format(a.slot)
    w('if %s == nil then %s else local c = %s[%s] if c == nil then %s end bi[%d] = c end', p,
      absent(a.optional and none or ('bi[%d] = %s'):format(s, a.default or '0')), map, p, slow, s)
  elseif a.kind == 'N' then
    local fill = {}
    for i = 0, a.count - 1 do fill[#fill + 1] = ('bi[%d] = %s'):format(s + i, '%s') end
    local all = table.concat(fill, ' ')
    w("if type(%s) == 'number' then if %s %% 1 ~= 0 or %s > 9e15 or %s < -9e15 then %s end %s", p, p, p, p, slow, (all:gsub('%%s', p)))
    w('elseif %s == nil then %s', p, absent(all:gsub('%%s', a.optional and 'NONE' or a.default or '0')))
    w("elseif type(%s) == 'table' and #%s == %d then", p, p, a.count)
    for i = 0, a.count - 1 do
      w("local v%d = %s[%d] if type(v%d) ~= 'number' or v%d %% 1 ~= 0 or v%d > 9e15 or v%d < -9e15 then %s end bi[%d] = v%d",
        i, p, i + 1, i, i, i, i, slow, s + i, i)
    end
    w('else %s end', slow)
  elseif a.kind == 'I' or a.kind == 'D' then
    w("if type(%s) == 'table' then local n = #%s if n > 8 or n == 0 and next(%s) ~= nil then %s end bi[%d] = n", p, p, p, slow, s)
    w("for i = 1, n do local v = %s[i] if type(v) ~= 'number' or v %% 1 ~= 0 or v > 9e15 or v < -9e15 then %s end bi[%d + i] = v end", p, slow, s)
    w("elseif type(%s) == 'number' then if %s %% 1 ~= 0 or %s > 9e15 or %s < -9e15 then %s end bi[%d] = 1 bi[%d] = %s", p, p, p, p, slow, s, s + 1, p)
    w('elseif %s == nil then %s else %s end', p, absent(none), slow)
  end
  return table.concat(out, ' ')
end

-- A call with retry and tail; `outs` names the handles made, `result` what is returned.
local function emit(w, expr, name, outs, result)
  w('local rc = %s', expr)
  w('if rc ~= 0 then if again(rc) then rc = %s end if rc ~= 0 then raise(%q) end end', expr, name)
  w('if S.attention ~= 0 then attend(%s) end', outs)
  w('return %s', result)
end

local header = [[
local E = ...
local S, ref, istype, type, next, select = E.S, E.ref, E.istype, E.type, E.next, E.select
local op1, op2, op2n, opx, opl, number, release, list_buffer = E.C.amp_op1, E.C.amp_op2, E.C.amp_op2n, E.C.amp_opx, E.C.amp_opl, E.number, E.release, E.list_buffer
local again, raise, attend, slow, dtype_code, device_code = E.again, E.raise, E.attend, E.slow, E.dtype_code, E.device_code
local NONE, TOKEN, outbox, spec, words, bi, bf, slots, number_first = E.NONE, E.TOKEN, E.outbox, E.spec, E.words, E.bi, E.bf, E.slots, E.number_first
]]

--- Lua source of the wrapper of a row.
-- @tparam table r row
-- @tparam boolean inplace the form name_
-- @treturn string source
local function source(r, inplace)
  local lines = { header }
  local function w(fmt, ...) lines[#lines + 1] = select('#', ...) > 0 and fmt:format(...) or fmt end
  local name = r.name .. (inplace and '_' or '')
  local n = #r.args
  local p, tensors, attrs = {}, {}, {}
  local list
  for i = 1, n do
    local a = r.args[i]
    p[i] = 'p' .. i
    if a.list then list = i
    elseif a.kind == 'T' then tensors[#tensors + 1] = i
    else attrs[#attrs + 1] = i end
  end
  local vararg = n > 0 and r.args[n].run -- the last argument takes numbers in a row
  local params = table.concat(p, ', ') .. (vararg and ', ...' or n > 0 and ', x' or 'x')
  local slow = ('return slow(spec, %s)'):format(params)
  local id = r.id + (inplace and 0x10000 or 0)
  w('return function(%s)', params)

  -- the hot path: one or two tensors, attributes all at their defaults
  local plain = #tensors <= 2 and #tensors >= 1 and not list and r.nout == 1 and not vararg
  for i = 1, #attrs do plain = plain and not r.args[attrs[i]].required end
  for i = 1, #tensors do plain = plain and tensors[i] == i and not r.args[i].optional end
  if plain then
    local cond = { 'x == nil' }
    for i = 1, #attrs do cond[#cond + 1] = p[attrs[i]] .. ' == nil' end
    w('if %s then', table.concat(cond, ' and '))
    w('if istype(ref, p1) then')
    local o, outs, result = 'o', 'o', 'o'
    if inplace then o, outs, result = 'nil', '', 'p1' else w('local o = ref()') end
    if #tensors == 1 then
      emit(w, ('op1(S, %d, %s, p1)'):format(id, o), name, outs, result)
    else
      w('if istype(ref, p2) then')
      emit(w, ('op2(S, %d, %s, p1, p2)'):format(id, o), name, outs, result)
      if r.args[2].number then
        w("elseif type(p2) == 'number' then")
        emit(w, ('op2n(S, %d, %s, p1, p2, 0)'):format(id, o), name, outs, result)
      end
      w('end')
    end
    if #tensors == 2 and r.args[1].number and not inplace then
      w("elseif type(p1) == 'number' and istype(ref, p2) then")
      if r.number_first then
        w('return number_first(p2, p1)')
      else
        w('local o = ref()')
        emit(w, ('op2n(S, %d, o, p2, p1, 1)'):format(id), name, 'o', 'o')
      end
    end
    w('end')
    w('end')
  end

  -- the general path
  if vararg then
    w("if type(%s) == 'number' then", p[n])
    w("local n = select('#', ...) if n > 7 then %s end", slow)
    local s = r.args[n].slot
    w('if %s %% 1 ~= 0 or %s > 9e15 or %s < -9e15 then %s end bi[%d] = n + 1 bi[%d] = %s', p[n], p[n], p[n], slow, s, s + 1, p[n])
    w("for i = 1, n do local v = select(i, ...) if type(v) ~= 'number' or v %% 1 ~= 0 or v > 9e15 or v < -9e15 then %s end bi[%d + i] = v end", slow, s + 1)
    w("elseif select('#', ...) > 0 then %s else", slow)
    w(attribute(r.args[n], p[n], slow))
    w('end')
  end
  for i = 1, #attrs do
    local k = attrs[i]
    if not (vararg and k == n) then w(attribute(r.args[k], p[k], slow)) end
  end
  for i = 1, #tensors do
    local k = tensors[i]
    local a = r.args[k]
    if a.number and not (inplace and k == 1) then
      w("local n%d if not istype(ref, %s) then if type(%s) ~= 'number' then %s end n%d = %s end", k, p[k], p[k], slow, k, p[k])
    elseif a.optional then
      w('if not istype(ref, %s) and %s ~= nil then %s end', p[k], p[k], slow)
    else
      w('if not istype(ref, %s) then %s end', p[k], slow)
    end
  end
  if list then
    w("if type(%s) ~= 'table' then %s end", p[list], slow)
    w('for i = 1, #%s do if not istype(ref, %s[i]) then %s end end', p[list], p[list], slow)
  end
  w('local id = %d', id)
  local handles, outs
  if inplace then
    w('local o1, o2, o3')
    if not vararg then w('if x ~= nil then %s end', slow) end
    handles, outs = 'nil, nil, nil', ''
  else
    w('local o1')
    local names = { 'o1', 'nil', 'nil' }
    if r.nout >= 2 then w('local o2 = ref()') names[2] = 'o2' end
    if r.nout >= 3 then w('local o3 = ref()') names[3] = 'o3' end
    if vararg then
      w('o1 = ref()')
    else
      w('if x == nil then o1 = ref()')
      w('elseif x == TOKEN then o1 = outbox[1] outbox[1] = nil id = %d', r.id + 0x20000)
      w('else %s end', slow)
    end
    handles = table.concat(names, ', ')
    outs = table.concat(names, ', ', 1, math.min(r.nout, 3))
  end
  -- numbers become tensors for the time of the call
  for i = 1, #tensors do
    local k = tensors[i]
    if r.args[k].number and not (inplace and k == 1) then
      w('if n%d then %s = number(n%d) end', k, p[k], k)
    end
  end
  local expr
  if list then
    w('local count = #%s', p[list])
    w('local buffer = list_buffer(count + %d)', #tensors)
    for i = 1, #tensors do w('buffer[%d] = %s.ptr_', i - 1, p[tensors[i]]) end
    w('for i = 1, count do buffer[%d + i] = %s[i].ptr_ end', #tensors - 1, p[list])
    expr = ('opl(S, id, %s, buffer, count + %d, %s)'):format(handles, #tensors, #attrs > 0 and 'slots' or 'nil')
  else
    local in_ = {}
    for i = 1, 5 do in_[i] = tensors[i] and p[tensors[i]] or 'nil' end
    expr = ('opx(S, id, %s, %s, %s)'):format(handles, table.concat(in_, ', '), #attrs > 0 and 'slots' or 'nil')
  end
  w('local rc = %s', expr)
  w('if rc ~= 0 and again(rc) then rc = %s end', expr)
  for i = 1, #tensors do
    local k = tensors[i]
    if r.args[k].number and not (inplace and k == 1) then w('if n%d then release(%s) end', k, p[k]) end
  end
  w('if rc ~= 0 then raise(%q) end', name)
  w('if S.attention ~= 0 then attend(%s) end', outs)
  if inplace then w('return p1')
  elseif r.nout == 1 then w('return o1')
  else
    w('if o2.ptr_ == nil then return o1 end')
    w('return %s', outs)
  end
  w('end')
  return table.concat(lines, '\n')
end
M.source = source

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
  if C.amp_number(S, o, v) < 0 then err.raise() end
  return o
end

local env = {
  C = C, S = S, ref = core.ref_t, istype = ffi.istype, type = type, next = next, select = select,
  number = number, release = C.amp_release, list_buffer = list_buffer, again = call.again, raise = err.raise,
  attend = call.attend, dtype_code = types.dtype_code, device_code = types.device_code, NONE = core.NONE,
  TOKEN = TOKEN, outbox = outbox,
  slow = function(...) return require('amp.args')(M, TOKEN, outbox, ...) end,
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
  local tensors = 0
  for i = 1, #r.args do tensors = tensors + (r.args[i].kind == 'T' and 1 or 0) end
  if tensors > 5 then return nil end
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
  local chunk, message = loadstring(source(r, inplace), '=amp.' .. name)
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

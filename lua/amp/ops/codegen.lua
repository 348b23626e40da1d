--- Lua source of an op's wrapper, made of its row.
-- A wrapper takes the arguments in their places and of the right types, puts attributes into
-- the call's slots and makes one call into the library. Anything else goes to `slow`
-- (amp.args). The hot path, one or two tensors and no attributes, makes no detour at all.
-- @module amp.ops.codegen
local INPLACE = require('amp.ffi').C.AMP_INPLACE

local M = {}

-- Condition under which a number is no integer that the library can take.
local function unfit(v) return (('$ % 1 ~= 0 or $ > 9e15 or $ < -9e15'):gsub('%$', v)) end

-- Lines that put argument p (a Lua expression) of attribute a into its slots. `slow` is the
-- statement for what does not fit.
local function attribute(a, p, slow)
  local s, kind = a.slot, a.kind
  local lines = {}
  local function w(text, first, second)
    local words = { p = p, s = s, slow = slow, unfit = unfit(p), a = first, b = second }
    lines[#lines + 1] = text:gsub('<(%w+)>', words)
  end
  -- what stands in the slot if the argument is nil
  local function absent(array)
    if a.required then return slow end
    if a.optional then return ('bi[%d] = NONE'):format(s) end
    return ('%s[%d] = %s'):format(array, s, a.default)
  end
  if kind == 'i' or kind == 'd' then
    w("if type(<p>) == 'number' then if <unfit> then <slow> end bi[<s>] = <p>")
    w('elseif <p> == nil then <a> else <slow> end', absent 'bi')
  elseif kind == 'f' then
    -- an absent number has the bits of -0.0
    w("if type(<p>) == 'number' then bf[<s>] = <a>", a.optional and ('%s ~= 0 and %s or 0'):format(p, p) or p)
    w('elseif <p> == nil then <a> else <slow> end', absent 'bf')
  elseif kind == 'b' then
    w('if <p> == nil then <a> elseif <p> == true then bi[<s>] = 1 elseif <p> == false then bi[<s>] = 0 else <slow> end', absent 'bi')
  elseif kind == 't' or kind == 'v' or kind == 'e' then
    local map = kind == 't' and 'dtype_code' or kind == 'v' and 'device_code' or ('words[%d]'):format(s)
    w('if <p> == nil then <a> else local c = <b>[<p>] if c == nil then <slow> end bi[<s>] = c end', absent 'bi', map)
  elseif kind == 'N' then
    local function fill(v)
      local sets = {}
      for i = 0, a.count - 1 do sets[i + 1] = ('bi[%d] = %s'):format(s + i, v) end
      return table.concat(sets, ' ')
    end
    w("if type(<p>) == 'number' then if <unfit> then <slow> end <a>", fill(p))
    w('elseif <p> == nil then <a>', a.required and slow or fill(a.optional and 'NONE' or a.default))
    w("elseif type(<p>) == 'table' and #<p> == <a> and next_key(<p>, <a>) == nil then", a.count)
    for i = 1, a.count do
      w("do local v = <p>[<a>] if type(v) ~= 'number' or <b> then <slow> end", i, unfit 'v')
      w('bi[<a>] = v end', s + i - 1)
    end
    w('else <slow> end')
  else -- I, D, F: a count, then the values
    -- (an empty list of dimensions means: none given)
    local array = kind == 'F' and 'bf' or 'bi'
    local function check(v) return kind == 'F' and '' or (' or ' .. unfit(v)) end
    -- (what lies beyond the elements is a hole or a name: amp.args says which)
    w("if type(<p>) == 'table' then local n = #<p> if n > <a> then <slow> end", a.most)
    w('if n > 0 then if next_key(<p>, n) ~= nil then <slow> end elseif <a> then <slow> end bi[<s>] = n',
      kind == 'D' and a.optional and 'true' or ('next_key(%s) ~= nil'):format(p))
    w("for i = 1, n do local v = <p>[i] if type(v) ~= 'number'<a> then <slow> end <b>[<s> + i] = v end", check 'v', array)
    w("elseif type(<p>) == 'number' then if false<a> then <slow> end bi[<s>] = 1 <b> = <p>", check(p), ('%s[%d]'):format(array, s + 1))
    w('elseif <p> == nil then <a> else <slow> end', a.required and slow or ('bi[%d] = NONE'):format(s))
  end
  return table.concat(lines, ' ')
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
local S, ref, istype, type, next_key, select = E.S, E.ref, E.istype, E.type, E.next_key, E.select
local op1, op2, op2n, opx, opl = E.C.amp_op1, E.C.amp_op2, E.C.amp_op2n, E.C.amp_opx, E.C.amp_opl
local number, release, list_buffer, freed = E.number, E.release, E.list_buffer, E.freed
local again, raise, attend, slow, dtype_code, device_code = E.again, E.raise, E.attend, E.slow, E.dtype_code, E.device_code
local NONE, TOKEN, outbox, spec, words = E.NONE, E.TOKEN, E.outbox, E.spec, E.words
local bi, bf, slots, number_first = E.bi, E.bf, E.slots, E.number_first
]]

--- Lua source of the wrapper of a row.
-- @tparam table r row
-- @tparam boolean inplace the form name_
-- @treturn string source
function M.source(r, inplace)
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
  local id = r.id + (inplace and INPLACE or 0)
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
    w('if %s then %s end bi[%d] = n + 1 bi[%d] = %s', unfit(p[n]), slow, s, s + 1, p[n])
    w("for i = 1, n do local v = select(i, ...) if type(v) ~= 'number' or %s then %s end bi[%d + i] = v end", unfit 'v', slow, s + 1)
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
  if #tensors == 2 and r.args[tensors[1]].number and r.args[tensors[2]].number and not inplace then
    w('if n%d and n%d then %s end', tensors[1], tensors[2], slow)
  end
  if list then
    w("if type(%s) ~= 'table' then %s end", p[list], slow)
    w('for i = 1, #%s do if not istype(ref, %s[i]) then %s end end', p[list], p[list], slow)
    w('local last = #%s if last == 0 then last = nil end', p[list])
    w('if next_key(%s, last) ~= nil then %s end', p[list], slow)
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
  elseif #tensors > 5 then
    w('local buffer = list_buffer(%d)', #tensors)
    for i = 1, #tensors do
      local v = p[tensors[i]]
      if r.args[tensors[i]].optional then w('if %s == nil then buffer[%d] = nil else', v, i - 1) else w('do') end
      w('if %s.ptr_ == nil then freed(%q, %d) end buffer[%d] = %s.ptr_ end', v, name, tensors[i], i - 1, v)
    end
    expr = ('opl(S, id, %s, buffer, %d, %s)'):format(handles, #tensors, #attrs > 0 and 'slots' or 'nil')
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
    if r.nout >= 3 then w('if o3.ptr_ == nil then return o1, o2 end') end
    w('return %s', outs)
  end
  w('end')
  return table.concat(lines, '\n')
end

return M

--- Arguments that are not simply in their places: options tables, numbers in a row, wrong
-- types. Gives the wrapper what it takes, or raises an error that says what was expected.
-- @module amp.core.args
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local err = require 'amp.error'
local types = require 'amp.types'
local util = require 'amp.util'
local istype, ref_t = ffi.istype, core.ref_t

local what = {
  i = 'an integer', d = 'a dimension (an integer, counted from 1)', f = 'a number', b = 'true or false',
  t = 'a dtype', v = 'a device', I = 'a list of integers', F = 'a number or a list of numbers', D = 'a dimension or a list of them',
}

local function describe(a)
  if a.list then return 'a list of tensors' end
  if a.kind == 'T' then return a.number and 'a tensor or a number' or 'a tensor' end
  if a.kind == 'e' then return "'" .. table.concat(a.word_list, "' or '") .. "'" end
  if a.kind == 'N' then return ('an integer or a list of %d'):format(a.count) end
  return what[a.kind]
end

local function show(v)
  if istype(ref_t, v) then return 'a tensor' end
  if type(v) == 'cdata' and (istype('int64_t', v) or istype('uint64_t', v)) then return tostring(v) .. ', which is too large to be exact' end
  return util.show(v)
end

-- "sum(input, dim, keepdim, dtype)"
local function usage(spec)
  local names = {}
  for i = 1, #spec.args do
    local a = spec.args[i]
    names[i] = a.required and a.name or '[' .. a.name .. ']'
  end
  return spec.form .. '(' .. table.concat(names, ', ') .. ')'
end

local function integer(v)
  if type(v) == 'number' then return v % 1 == 0 and v <= 9e15 and v >= -9e15 and v or nil end
  if type(v) == 'cdata' and (istype('int64_t', v) or istype('uint64_t', v)) then
    local n = tonumber(v)
    if n > -2 ^ 53 and n < 2 ^ 53 then return n end -- a larger one may not be what the number says
  end
end

local function fail(spec, a, i, v)
  if i == 1 and a.kind == 'T' and not a.list then -- x.sum() for x:sum()
    local holder = err.receiver(spec.form, '.')
    if holder and not holder:find('.', 1, true) and istype(ref_t, err.variable(holder)) then
      err.throw(spec.form, "'%s' is a method and is called with a colon, not a dot: %s:%s(...) (its first argument was %s)",
        spec.form, holder, spec.form, show(v))
    end
  end
  if a.list and istype(ref_t, v) then
    err.throw(spec.form, "argument %d '%s' must be %s, got a tensor; write amp.%s({a, b}, ...)", i, a.name, describe(a), spec.form)
  end
  if v == nil then
    err.throw(spec.form, "argument %d '%s' is missing: %s is expected; call it as %s", i, a.name, describe(a), usage(spec))
  end
  if i == 3 and a.name == 'alpha' and istype(ref_t, v) then
    err.throw(spec.form, "argument 3 'alpha' must be a number, got a tensor; x + s * y is x:add(y, {alpha = s})")
  end
  local got = show(v)
  if type(v) == 'number' and (a.kind == 'i' or a.kind == 'd' or a.kind == 'I' or a.kind == 'D' or a.kind == 'N') then
    got = got .. (v % 1 == 0 and ', which is too large to be exact' or ', which is not integral')
  end
  err.throw(spec.form, "argument %d '%s' must be %s, got %s", i, a.name, describe(a), got)
end

local function integers(spec, a, i, v)
  local single = integer(v)
  if single then return { single } end
  if type(v) ~= 'table' then fail(spec, a, i, v) end
  local list = {}
  for k = 1, #v do
    if type(v[k]) == 'nil' then break end
    list[k] = integer(v[k])
    if list[k] == nil then
      err.throw(spec.form, "argument %d '%s': element %d must be an integer, got %s", i, a.name, k, show(v[k]))
    end
  end
  for k in pairs(v) do
    if type(k) ~= 'number' then
      err.throw(spec.form, "argument %d '%s' must be %s, got a table with the key %s", i, a.name, describe(a), util.show(k))
    end
  end
  err.list(spec.form, v, ("argument %d '%s'"):format(i, a.name))
  if a.most and #list > a.most then
    err.throw(spec.form, "argument %d '%s' has %d elements, at most %d are possible: tensors have at most 8 dimensions", i, a.name, #list, a.most)
  end
  return list
end

-- What the wrapper takes in place i, or an error.
local function check(spec, a, i, v)
  if v == nil then
    if a.required then fail(spec, a, i, nil) end
    return nil
  end
  local k = a.kind
  if k == 'T' then
    if a.list then
      if type(v) ~= 'table' then fail(spec, a, i, v) end
      for j = 1, #v do
        if not istype(ref_t, v[j]) and type(v[j]) ~= 'nil' then
          err.throw(spec.form, "argument %d '%s': element %d must be a tensor, got %s", i, a.name, j, show(v[j]))
        end
      end
      return err.list(spec.form, v, ("argument %d '%s'"):format(i, a.name))
    end
    if istype(ref_t, v) then return v end
    if a.number and not (spec.inplace and i == 1) then
      if type(v) == 'number' then return v end
      local n = integer(v)
      if n then return n end
      if type(v) == 'boolean' then return v and 1 or 0 end
    end
    fail(spec, a, i, v)
  elseif k == 'i' or k == 'd' then
    local n = integer(v)
    if n == nil then fail(spec, a, i, v) end
    return n
  elseif k == 'f' then
    local n = type(v) == 'number' and v or integer(v)
    if n == nil and type(v) == 'boolean' and a.name == 'value' then n = v and 1 or 0 end
    if n == nil then fail(spec, a, i, v) end
    return n
  elseif k == 'b' then
    if type(v) ~= 'boolean' then fail(spec, a, i, v) end
    return v
  elseif k == 't' then
    types.dtype(v, spec.form)
    return v
  elseif k == 'v' then
    types.device(v, spec.form)
    return v
  elseif k == 'e' then
    if a.words[v] == nil then
      err.throw(spec.form, "argument %d '%s' must be %s, got %s%s", i, a.name, describe(a), show(v), util.hint(v, a.word_list))
    end
    return v
  elseif k == 'F' then
    if type(v) == 'number' then return v end
    if type(v) ~= 'table' or #v == 0 then fail(spec, a, i, v) end
    err.list(spec.form, v, ("argument %d '%s'"):format(i, a.name))
    for j = 1, #v do
      if type(v[j]) ~= 'number' then err.throw(spec.form, "argument %d '%s': element %d must be a number, got %s", i, a.name, j, show(v[j])) end
    end
    if #v > a.most then err.throw(spec.form, "argument %d '%s' has %d elements, at most %d are possible", i, a.name, #v, a.most) end
    return v
  elseif k == 'N' then
    local n = integer(v)
    if n then return n end
    local list = integers(spec, a, i, v)
    if #list == 1 then return list[1] end
    if #list ~= a.count then
      err.throw(spec.form, "argument %d '%s' must be %s, got a list of %d", i, a.name, describe(a), #list)
    end
    return list
  end
  local list = integers(spec, a, i, v)
  if #list == 0 and k == 'D' and a.optional then return nil end
  return list
end

local function is_options(v, a)
  if type(v) ~= 'table' or v[1] ~= nil then return false end
  if next_key(v) == nil then -- an empty list where a list may stand
    return not (a and (a.kind == 'I' or a.kind == 'D' or a.list))
  end
  return true
end

local aliases = require('amp.ops.schema').aliases -- PyTorch's names of arguments

local takes_value = { fill = true, masked_fill = true, index_fill = true } -- a number, or a tensor without dimensions (amp.ops.written)

local norms = { norm = true, vector_norm = true, matrix_norm = true } -- whose kind may be a name (amp.norms)

--- Sort out the arguments and call the wrapper.
return function(ops, TOKEN, outbox, spec, ...)
  local args = spec.args
  local given, n = { ... }, select('#', ...)
  while n > 0 and type(given[n]) == 'nil' do n = n - 1 end
  if (spec.name == 'max' or spec.name == 'min') and istype(ref_t, given[2]) then
    return ops.get(spec.name .. 'imum')(...)
  end

  -- torch.polygamma(n, input); the method is t:polygamma(n)
  if spec.name == 'polygamma' and integer(given[1]) and istype(ref_t, given[2]) then given[1], given[2] = given[2], given[1] end

  local options
  if n > 0 and is_options(given[n], args[n]) then
    options = given[n]
    n = n - 1
  end

  -- places
  local value, i, j = {}, 1, 1
  while j <= n do
    local v = given[j]
    -- a tensor where an attribute stands: it is for the next place of a tensor, if there is one
    if istype(ref_t, v) and args[i] and args[i].kind ~= 'T' then
      local k = i
      while args[k] and args[k].kind ~= 'T' do k = k + 1 end
      if args[k] then i = k end
    end
    local a = args[i]
    if a == nil then
      err.throw(spec.form, 'takes at most %d arguments, got %d; call it as %s, or with options in one table last',
        #args, n, usage(spec))
    end
    if (a.kind == 'I' or a.kind == 'D') and integer(v) then
      local list = { integer(v) }
      if a.run then
        while j < n and integer(given[j + 1]) do
          j = j + 1
          list[#list + 1] = integer(given[j])
        end
      end
      v = list
    end
    value[i] = v
    i, j = i + 1, j + 1
  end

  -- names
  local out
  if options then
    local names, known = {}, {}
    for k = 1, #args do
      names[k] = args[k].name
      known[args[k].name] = k
    end
    local may_out = not spec.inplace and (spec.kind == 'K' or spec.kind == 'N')
    for key, v in pairs(options) do
      local place = known[key] or known[aliases[key]]
      if place then
        if value[place] ~= nil then
          err.throw(spec.form, "'%s' is given twice, in place %d and as an option", key, place)
        end
        value[place] = v
      elseif key == 'inplace' and not spec.inplace and ops.get(spec.name .. '_') then -- F.relu(x, {inplace = true})
        if type(v) ~= 'boolean' then err.throw(spec.form, "option 'inplace' must be true or false, got %s", show(v)) end
        if v then spec = ops.specs[ops.get(spec.name .. '_')] end
      elseif key == 'out' and (may_out or require('amp.ops.written').may_out(spec)) then
        if not istype(ref_t, v) then err.throw(spec.form, "option 'out' must be a tensor, got %s", show(v)) end
        out = v
      else
        if may_out then names[#names + 1] = 'out' end
        if key == 'out' then err.throw(spec.form, "takes no option 'out'") end
        err.throw(spec.form, 'unknown option %s%s (there are %s)', util.show(key), util.hint(key, names),
          table.concat(names, ', ', 2))
      end
    end
  end

  if norms[spec.name] then
    local other = require('amp.ops.norm').named(ops, spec, value)
    if other then return other(unpack(value, 1, #args)) end
  end
  if type(value[5]) == 'string' and spec.name:match '^conv%dd$' then require('amp.ops.conv').named(ops, spec, value) end
  if spec.name == 'index_put' and value[5] == nil and type(value[2]) == 'table' then -- dims: the first ones
    value[5] = {}
    for k = 1, #value[2] do value[5][k] = k end
  end
  if takes_value[spec.name] then
    local y = require('amp.ops.written').filled(ops, spec, value)
    if y ~= nil then return y end
  end
  for k = 1, #args do value[k] = check(spec, args[k], k, value[k]) end
  if spec.nin > 0 and spec.args[1].number and spec.args[2] and spec.args[2].number
    and type(value[1]) == 'number' and type(value[2]) == 'number' and spec.nin == 2 then
    err.throw(spec.form, 'one of the two arguments must be a tensor, got two numbers')
  end
  if out then
    if spec.kind == 'C' then return require('amp.ops.written').into(spec, out, value) end
    outbox[1] = out
    value[#args + 1] = TOKEN
    return spec.f(unpack(value, 1, #args + 1))
  end
  return spec.f(unpack(value, 1, #args))
end

--- How Torch7's functions take their arguments. An operation has patterns of operands, T a tensor, N a number:
--
--   torch.f(operands)           a new tensor          x:f(operands without x)   changes x
--   torch.f(result, operands)   into result           r:f(operands)             into r
--
-- A reduction's method gives something new instead of changing x. Called by own/maths.lua and own/linear.lua.
local amp = require 'amp'
local core = require 'amp.torch7.own.core'
local raise = require('amp.error').throw
local is_tensor, amp_of, wrap = core.is_tensor, core.amp_of, core.wrap
local concat, type = table.concat, type

local M = {functions = {}}

local letters = {number = 'N', string = 'S', boolean = 'B', table = 'L'}
local function letter(v)
  if is_tensor(v) then return 'T' end
  return letters[type(v)] or (core.is_storage(v) and 'Z') or '?'
end

local function signature(args, from)
  local n = #args - from + 1
  if n == 1 then return letter(args[from]) end
  if n == 2 then return letter(args[from]) .. letter(args[from + 1]) end
  local s = {}
  for i = from, #args do s[i - from + 1] = letter(args[i]) end
  return concat(s)
end

local function operands(args, from)
  local out = {}
  for i = from, #args do
    local v = args[i]
    out[i - from + 1] = is_tensor(v) and amp_of(v) or v
  end
  return out
end

local function unknown(name, args)
  local s = {}
  for i = 1, #args do
    local v = args[i]
    s[i] = is_tensor(v) and v:type() .. ' of ' .. core.show(core.sizes(amp_of(v))) or type(v)
  end
  raise('torch7.' .. name, 'such arguments are not known: %s', #s > 0 and concat(s, ', ') or 'none')
end

-- Results into the tensors that were given for them; the others new.
local function deliver(given, results, keep_number)
  local out = {}
  for i = 1, #results do
    local r = results[i]
    if given[i] then
      out[i] = core.assign(given[i], amp.is_tensor(r) and r or amp.tensor({r}))
    elseif amp.is_tensor(r) and not (keep_number and r.ptr_.ndim == 0) then
      out[i] = wrap(r.ptr_.ndim == 0 and r:view(1) or r)
    else
      out[i] = amp.is_tensor(r) and r:item() or r
    end
  end
  return unpack(out, 1, #out)
end

--- Define an operation.
-- @tparam string name
-- @tparam table patterns signature -> function(operands...), which gets amp tensors and numbers and gives amp tensors or numbers
-- @tparam ?table o fresh = true: the method gives something new; results: how many (1); inplace: signature -> function(h, ...) that
-- changes h itself, for the form x:f(...)
function M.define(name, patterns, o)
  o = o or {}
  local results = o.results or 1
  local function call(f, args, from, given)
    return deliver(given, {f(unpack(operands(args, from), 1, #args - from + 1))}, true)
  end
  local function method(u, ...)
    local args = {...}
    local sig = signature(args, 1)
    -- into u, and into more results before the operands
    local f = patterns[sig]
    if f and (#args > 0) then
      if not (o.fresh and o.own and o.own[sig]) then return call(f, args, 1, {u}) end
    end
    if results > 1 then
      for k = 1, results - 1 do
        local rest = signature(args, k + 1)
        if #args > k and patterns[rest] and is_tensor(args[k]) then
          local given = {u}
          for i = 1, k do given[i + 1] = args[i] end
          return call(patterns[rest], args, k + 1, given)
        end
      end
    end
    local full = 'T' .. sig
    local quick = o.inplace and o.inplace[full]
    if quick then
      quick(amp_of(u), unpack(operands(args, 1), 1, #args))
      return u
    end
    f = patterns[full]
    if not f then unknown(name, {u, ...}) end
    local r = {f(amp_of(u), unpack(operands(args, 1), 1, #args))}
    if o.fresh then return deliver({}, r, true) end
    core.assign(u, r[1])
    return u
  end
  local function func(...)
    local args = {...}
    local f = patterns[signature(args, 1)]
    if f then return call(f, args, 1, {}) end
    for k = 1, results do
      local rest = patterns[signature(args, k + 1)]
      if rest and #args > k - 1 then
        local given, fine = {}, true
        for i = 1, k do
          given[i] = args[i]
          fine = fine and is_tensor(args[i])
        end
        if fine then return call(rest, args, k + 1, given) end
      end
    end
    unknown(name, args)
  end
  core.methods[name], M.functions[name] = method, func
end

--- Two operands of as many elements, the second in the first's sizes; Torch7 does not broadcast.
function M.pair(name, a, b)
  if a.ptr_.numel ~= b.ptr_.numel then
    raise('torch7.' .. name, 'tensors of one number of elements expected, got %s and %s', core.show(core.sizes(a)), core.show(core.sizes(b)))
  end
  if a.ptr_.ndim ~= b.ptr_.ndim or not core.same_sizes(b, core.sizes(a)) then b = b:reshape(a:size()) end
  if b.dtype ~= a.dtype then b = b:to(a.dtype) end
  return b
end

--- A number as a tensor of that dtype would hold it.
function M.number(h, v)
  if not h:is_floating_point() and v % 1 ~= 0 and v == v then return v < 0 and math.ceil(v) or math.floor(v) end
  return v
end

return M

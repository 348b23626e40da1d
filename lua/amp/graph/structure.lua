--- Tensors in nested tables as a list and a plan of the nesting, which is plain data that a file can hold.
-- A plan is {tensor = i}, {list = {plans}, n = count}, {map = {[key] = plan}, keys = {keys in order}}, {value = v} or
-- {none = true} (nil).
-- @module amp.graph.structure
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local util = require 'amp.util'
local ref_t = core.ref_t
local istype = ffi.istype

local M = {}

local function before(a, b)
  if type(a) == type(b) then return a < b end
  return type(a) == 'number'
end

local function keys_of(t, op, where)
  local keys = {}
  for k in pairs(t) do
    if type(k) ~= 'string' and type(k) ~= 'number' then
      err.throw(op, '%s has a key that is no number or text: %s', where, util.show(k))
    end
    keys[#keys + 1] = k
  end
  table.sort(keys, before)
  return keys
end

-- Objects are what their class makes of them; the sizes of a tensor are a list.
local function is_plain(v)
  local mt = getmetatable(v)
  return mt == nil or type(mt) == 'table' and mt.is_sizes == true
end

-- plan of v; tensors are appended to flat, their places' names to names
local function plan_of(v, op, where, flat, names, seen)
  if istype(ref_t, v) then
    if v.ptr_ == nil then err.throw(op, '%s is a tensor that was freed', where) end
    flat[#flat + 1], names[#names + 1] = v, where
    return {tensor = #flat}
  end
  local kind = type(v)
  if v == nil then return {none = true} end
  if kind == 'number' or kind == 'string' or kind == 'boolean' then return {value = v} end
  if kind ~= 'table' or not is_plain(v) then
    err.throw(op, '%s is %s, which a graph can\'t take or give: tensors, numbers, texts, true, false and tables of these', where, util.show(v))
  end
  if seen[v] then err.throw(op, '%s is a table that holds itself', where) end
  seen[v] = true
  local keys = keys_of(v, op, where)
  local plan
  if #keys == #v then
    plan = {list = {}, n = #v}
    for i = 1, #v do plan.list[i] = plan_of(v[i], op, ('%s[%d]'):format(where, i), flat, names, seen) end
  else
    plan = {map = {}, keys = keys}
    for _, k in ipairs(keys) do
      local name = type(k) == 'string' and ('%s.%s'):format(where, k) or ('%s[%s]'):format(where, tostring(k))
      plan.map[k] = plan_of(v[k], op, name, flat, names, seen)
    end
  end
  seen[v] = nil
  return plan
end

--- The plan of a list of values, the tensors in it and where they stand.
-- @tparam table values with n
-- @tparam table named name of each value
-- @treturn table plan
-- @treturn table tensors
-- @treturn table their names, as 'state[1]'
function M.flatten(op, values, named)
  local plan, flat, names = {list = {}, n = values.n}, {}, {}
  for i = 1, values.n do plan.list[i] = plan_of(values[i], op, named[i] or ('argument %d'):format(i), flat, names, {}) end
  return plan, flat, names
end

--- Do two plans say the same?
function M.equal(a, b)
  if a.tensor or b.tensor then return a.tensor == b.tensor end
  if a.value ~= nil or b.value ~= nil then return a.value == b.value or a.value ~= a.value and b.value ~= b.value end
  local x, y = a.list or a.map or {}, b.list or b.map or {}
  if (a.list == nil) ~= (b.list == nil) or (a.map == nil) ~= (b.map == nil) then return false end
  for k, inner in pairs(x) do
    if not y[k] or not M.equal(inner, y[k]) then return false end
  end
  for k in pairs(y) do
    if not x[k] then return false end
  end
  return true
end

local function fill(plan, v, op, where, flat)
  if plan.tensor then
    if not istype(ref_t, v) then err.throw(op, 'input %s is a tensor, got %s', where, util.show(v)) end
    flat[plan.tensor] = v
  elseif plan.list or plan.map then
    if type(v) ~= 'table' then err.throw(op, 'input %s is a table, got %s', where, util.show(v)) end
    local count = 0
    for k in pairs(v) do
      count = count + 1
      local inner = plan.list and plan.list[k] or plan.map and plan.map[k]
      if not inner then err.throw(op, 'input %s: the graph knows no %s in it', where, tostring(k)) end
      fill(inner, v[k], op, ('%s[%s]'):format(where, tostring(k)), flat)
    end
    if count ~= (plan.n or #plan.keys) then
      err.throw(op, 'input %s holds %d values, got %d', where, plan.n or #plan.keys, count)
    end
  elseif plan.none then
    if v ~= nil then err.throw(op, 'input %s was nil when the graph was traced, got %s', where, util.show(v)) end
  elseif v ~= plan.value then
    err.throw(op, 'input %s was %s when the graph was traced, and stays so; got %s', where, util.show(plan.value), util.show(v))
  end
end

--- The tensors of values that have the nesting of a plan, in its order.
function M.collect(op, plan, values, named)
  local flat = {}
  local most = plan.n
  while most > 0 and plan.list[most].none do most = most - 1 end
  if values.n > plan.n or values.n < most then
    local list = {}
    for i = 1, plan.n do list[i] = named[i] or tostring(i) end
    err.throw(op, 'the graph takes %d argument%s, got %d%s', plan.n, plan.n == 1 and '' or 's', values.n,
      plan.n > 0 and (': it is called as g(%s)'):format(table.concat(list, ', ')) or '')
  end
  for i = 1, plan.n do
    if plan.list[i].tensor and type(values[i]) == 'nil' then
      err.throw(op, "input '%s' is missing", named[i] or tostring(i))
    end
    fill(plan.list[i], values[i], op, "'" .. (named[i] or tostring(i)) .. "'", flat)
  end
  return flat
end

local function build(plan, flat)
  if plan.tensor then return flat[plan.tensor] end
  if plan.none then return nil end
  if plan.list then
    local t = {}
    for i = 1, plan.n do t[i] = build(plan.list[i], flat) end
    return t
  elseif plan.map then
    local t = {}
    for k, inner in pairs(plan.map) do t[k] = build(inner, flat) end
    return t
  end
  return plan.value
end

--- The values of a plan, unpacked, with tensors from a list.
function M.unflatten(plan, flat)
  if plan.n == 1 then return build(plan.list[1], flat) end
  local values = {}
  for i = 1, plan.n do values[i] = build(plan.list[i], flat) end
  return unpack(values, 1, plan.n)
end

return M

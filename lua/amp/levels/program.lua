--- What is in force for the whole program: one of amp.init and amp.initialize, or nothing.
-- It sets the state outside of regions (autocast, allow_banned) and the classes of listed ops;
-- what takes its place, or its end, puts all of that back. Nothing here knows what a handle or
-- a level is.
-- @module amp.levels.program
local ffi = require 'ffi'
local core = require 'amp.ffi'
local autocast = require 'amp.precision.autocast'
local err = require 'amp.error'
local op_names = require 'amp.ops.names'
local policies = require 'amp.precision.policy'
local here = require('amp.core.region').here
local rows = require 'amp.ops.schema'
local types = require 'amp.types'
local util = require 'amp.util'
local C, S, band = core.C, core.S, require('bit').band

local M = {}

M.current = nil -- what `start` gave

-- -- Lists of ops -----------------------------------------------------------------------------

local slots = ffi.new 'amp_slot[8]'

-- The attribute of an op and the slots of the values it is compared with.
local function condition(op, place, entry, name)
  local row = rows.get(name)
  local names, arg = {}, nil
  for _, a in ipairs(row.args) do
    if a.kind ~= 'T' then
      names[#names + 1] = a.name
      if a.name == entry[2] then arg = a end
    end
  end
  if not arg then
    err.throw(op, "%s: %s has no attribute '%s'%s (there %s %s)", place, name, entry[2], util.hint(entry[2], names),
      #names == 1 and 'is' or 'are', #names == 0 and 'none' or table.concat(names, ', '))
  end
  if #entry[3] > 8 then err.throw(op, '%s: at most 8 values are possible, got %d', place, #entry[3]) end
  local values = {}
  for k, v in ipairs(entry[3]) do
    local code
    if arg.kind == 'e' then code = arg.words[v]
    elseif arg.kind == 'b' then code = type(v) == 'boolean' and (v and 1 or 0) or nil
    elseif arg.kind == 't' then code = types.dtype_code[v]
    elseif (arg.kind == 'i' or arg.kind == 'd' or arg.kind == 'f') and type(v) == 'number' then code = v end
    if code == nil then
      err.throw(op, "%s: %s is no value of %s's attribute '%s'%s", place, util.show(v), name, entry[2],
        arg.word_list and (' (there are %s)'):format(table.concat(arg.word_list, ', ')) or '')
    end
    values[k] = code
  end
  return { slot = arg.slot, real = arg.kind == 'f', values = values }
end

local list_class = { target_precision_ops = 'lower', target_dtype_ops = 'lower', fp32_ops = 'fp32' }

-- The ops of an entry of conditional_fp32_ops: name -> item. A value that is an op of its own here is in float32 as a whole.
local function conditional(op, list, i)
  local entry = list[i]
  local place = ('conditional_fp32_ops[%d]'):format(i)
  if type(entry) == 'table' and type(entry[3]) ~= 'table' and entry[3] ~= nil then entry = { entry[1], entry[2], { entry[3] } } end
  if type(entry) ~= 'table' or type(entry[1]) ~= 'string' or type(entry[2]) ~= 'string' or type(entry[3]) ~= 'table' or #entry[3] == 0 then
    err.throw(op, "%s must be {op, attribute, {values}}, as {'gelu', 'approximate', {'tanh'}}; got %s", place, util.show(entry))
  end
  local items = {}
  local found = op_names.need(op, entry[1], place)
  local _, by_value = op_names.of_value(entry[1], entry[2])
  if by_value then
    for _, v in ipairs(entry[3]) do
      local name = by_value[v]
      if not name then
        err.throw(op, "%s: %s is no value of %s's attribute '%s'%s (there are %s)", place, util.show(v), entry[1], entry[2],
          util.hint(v, util.keys(by_value)), table.concat(util.keys(by_value), ', '))
      end
      items[name] = { class = policies.classes.fp32 }
    end
  else
    for _, name in ipairs(found) do items[name] = { condition = condition(op, place, entry, name) } end
  end
  return items, { entry[1], entry[2], { unpack(entry[3]) } }
end

--- Check lists of ops; nothing changes. Names may be those of other systems, one of which may stand for several ops.
-- @tparam string op who asks
-- @tparam table o with target_precision_ops, fp32_ops (names), conditional_fp32_ops ({name, attribute, values})
-- @tparam ?string low what the list of the low dtype is called, if not target_precision_ops
-- @treturn table {items = id -> {class, condition}, conditions as they were given, replaced = list's name -> true}
function M.read_lists(op, o, low)
  local out, where = { items = {}, conditions = {}, replaced = {} }, {}
  local function put(list_name, given, name, item)
    local id = rows.by_name[name]
    if where[id] == list_name and given ~= name and not item.condition then return end -- named twice, as parts of what others call one op
    if where[id] then
      err.throw(op, where[id] == list_name and '%s has %s twice' or "%s has %s, which is in %s as well; an op is in one list", list_name,
        given == name and name or ('%s (%s)'):format(given, name), where[id])
    end
    where[id], out.items[id] = list_name, item
  end
  for _, list_name in ipairs { low or 'target_precision_ops', 'fp32_ops', 'conditional_fp32_ops' } do
    local list = o[list_name]
    if list ~= nil then
      if type(list) ~= 'table' then err.throw(op, '%s must be a list of ops, got %s', list_name, util.show(list)) end
      for k in pairs(list) do
        if type(k) ~= 'number' then err.throw(op, '%s must be a list of ops, but it has the key %s', list_name, util.show(k)) end
      end
      err.list(op, list, list_name)
      out.replaced[list_name] = true
      for i = 1, #list do
        if list_class[list_name] then
          for _, name in ipairs(op_names.need(op, list[i], list_name)) do put(list_name, list[i], name, { class = policies.classes[list_class[list_name]] }) end
        else
          local items, entry = conditional(op, list, i)
          for name, item in pairs(items) do put(list_name, entry[1], name, item) end
          out.conditions[#out.conditions + 1] = entry
        end
      end
    end
  end
  return out
end

local PRIVATE = C.AMP_F_PRIVATE -- rows that other ops are made of
local recurrent = { rnn = true, lstm = true, gru = true }

-- The list that has an op by default, if it is one of the two.
local function default_list(name, class)
  if class == 'lower' or class == 'special' and recurrent[name] then return 'target_precision_ops' end
  if class == 'fp32' or class == 'fp32_unless_dtype' then return 'fp32_ops' end
end

-- What was in force before, and what is now, by id. A list takes the place of the default one of its kind: ops of that
-- one which are in no list run in what comes. Those that the user gave a class by itself keep it.
local function apply(lists)
  local before, after = {}, {}
  local function note(id) before[id], after[id] = before[id] or policies.get(id), false end
  for name, id in pairs(rows.by_name) do
    local kind = band(tonumber(C.amp_op_get(id).flags), PRIVATE) == 0 and default_list(name, policies.name(id))
    if kind and lists.replaced[kind] and not lists.items[id] and not policies.is_chosen(id) then
      note(id)
      policies.set(id, policies.classes.passthrough)
    end
  end
  for id, item in pairs(lists.items) do
    note(id)
    local c = item.condition
    if c then
      for i, v in ipairs(c.values) do
        if c.real then slots[i - 1].f = v else slots[i - 1].i = v end
      end
      policies.condition(id, c.slot, slots, #c.values)
    else
      policies.set(id, item.class)
    end
  end
  for id in pairs(after) do after[id] = policies.get(id) end
  return before, after
end

-- -- Start and end ---------------------------------------------------------------------------------

local function outside(op)
  here()
  if S.autocast_depth > 0 then
    err.throw_code('state', op, 'it changes autocast for the whole program and was called inside a region, whose end would undo it; call it outside')
  end
end

--- Put back what was before the present one, if `which` is that or nil.
-- @treturn boolean whether it was in force
function M.stop(op, which)
  local c = M.current
  if c == nil or (which and which ~= c) then return false end
  outside(op)
  M.current = nil
  for id, class in pairs(c.classes) do
    if policies.get(id) == c.set[id] then policies.set(id, class) end -- what was given another one since keeps that
  end
  autocast.restore(c.state)
  S.allow_banned = c.allow_banned
  return true
end

--- Take the place of what is in force.
-- @tparam string op who asks
-- @tparam ?table region options of autocast; nil: autocast stays as it is
-- @tparam ?table o {allow_banned, lists (of read_lists)}
-- @treturn table what is in force now, for `stop`; the caller's fields may go into it
function M.start(op, region, o)
  outside(op)
  M.stop(op)
  local c = { state = autocast.snapshot(), allow_banned = S.allow_banned, lists = o and o.lists or { items = {}, conditions = {}, replaced = {} } }
  if region then autocast.set_program(op, region) end
  if o and o.allow_banned ~= nil then S.allow_banned = o.allow_banned and 1 or 0 end
  c.classes, c.set = apply(c.lists)
  M.current = c
  return c
end

return M

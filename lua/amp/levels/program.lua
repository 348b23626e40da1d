--- What is in force for the whole program: one of amp.init and amp.initialize, or nothing.
-- It sets the state outside of regions (autocast, allow_banned) and the classes of listed ops;
-- what takes its place, or its end, puts all of that back. Nothing here knows what a handle or
-- a level is.
-- @module amp.levels.program
local ffi = require 'ffi'
local core = require 'amp.ffi'
local autocast = require 'amp.autocast'
local err = require 'amp.error'
local here = require('amp.region').here
local rows = require 'amp.rows'
local types = require 'amp.types'
local util = require 'amp.util'
local C, S = core.C, core.S

local M = {}

M.current = nil -- what `start` gave

-- -- Lists of ops -----------------------------------------------------------------------------

local classes = {}
for i = 0, tonumber(C.AMP_POLICY_COUNT) - 1 do classes[ffi.string(C.amp_policy_name(i))] = i end

local slots = ffi.new 'amp_slot[8]'

-- The attribute of an op and the slots of the values it is compared with.
local function condition(op, list, i)
  local entry = list[i]
  local place = ('conditional_fp32_ops[%d]'):format(i)
  if type(entry) ~= 'table' or type(entry[1]) ~= 'string' or type(entry[2]) ~= 'string' or type(entry[3]) ~= 'table' or #entry[3] == 0 then
    err.throw(op, "%s must be {op, attribute, {values}}, as {'gelu', 'approximate', {'tanh'}}; got %s", place, util.show(entry))
  end
  local row = rows.get(entry[1])
  if not row then return end -- the caller names it
  local names, arg = {}, nil
  for _, a in ipairs(row.args) do
    if a.kind ~= 'T' then
      names[#names + 1] = a.name
      if a.name == entry[2] then arg = a end
    end
  end
  if not arg then
    err.throw(op, "%s: %s has no attribute '%s'%s (there %s %s)", place, entry[1], entry[2], util.hint(entry[2], names),
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
      err.throw(op, "%s: %s is no value of %s's attribute '%s'%s", place, util.show(v), entry[1], entry[2],
        arg.word_list and (' (there are %s)'):format(table.concat(arg.word_list, ', ')) or '')
    end
    values[k] = code
  end
  return { slot = arg.slot, real = arg.kind == 'f', values = values, entry = entry }
end

local list_class = { target_precision_ops = 'lower', fp32_ops = 'fp32' }

--- Check lists of ops; nothing changes.
-- @tparam string op who asks
-- @tparam table o with target_precision_ops, fp32_ops (names), conditional_fp32_ops ({name, attribute, values})
-- @treturn table id -> {class, condition}
function M.read_lists(op, o)
  local out, where = {}, {}
  local function put(list_name, name, item)
    local id = type(name) == 'string' and rows.by_name[name]
    if not id then
      err.throw(op, '%s: there is no op %s%s', list_name, util.show(name), util.hint(name, util.keys(rows.by_name)))
    end
    if where[id] then
      err.throw(op, where[id] == list_name and '%s has %s twice' or "%s has %s, which is in %s as well; an op is in one list", list_name, name, where[id])
    end
    where[id], out[id] = list_name, item
  end
  for _, list_name in ipairs { 'target_precision_ops', 'fp32_ops', 'conditional_fp32_ops' } do
    local list = o[list_name]
    if list ~= nil then
      if type(list) ~= 'table' then err.throw(op, '%s must be a list of ops, got %s', list_name, util.show(list)) end
      for i = 1, #list do
        if list_class[list_name] then
          put(list_name, list[i], { class = classes[list_class[list_name]] })
        else
          local c = condition(op, list, i)
          put(list_name, list[i][1], { condition = c })
        end
      end
    end
  end
  return out
end

local function apply(lists)
  local before = {}
  for id, item in pairs(lists) do
    before[id] = C.amp_policy_get(id)
    local c = item.condition
    if c then
      for i, v in ipairs(c.values) do
        if c.real then slots[i - 1].f = v else slots[i - 1].i = v end
      end
      C.amp_policy_condition(id, c.slot, slots, #c.values)
    else
      C.amp_policy_set(id, item.class)
    end
  end
  return before
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
  for id, class in pairs(c.classes) do C.amp_policy_set(id, class) end
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
  local c = { state = autocast.snapshot(), allow_banned = S.allow_banned, lists = o and o.lists or {} }
  if region then autocast.set_program(op, region) end
  if o and o.allow_banned ~= nil then S.allow_banned = o.allow_banned and 1 or 0 end
  c.classes = apply(c.lists)
  M.current = c
  return c
end

return M

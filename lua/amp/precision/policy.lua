--- The autocast classes of ops, as they are set from Lua: one place that writes them, so that it is known which
-- ones are not as built. Layers that do two ops in one kernel ask here whether both are: else each runs by itself.
-- @module amp.precision.policy
local ffi = require 'ffi'
local core = require 'amp.ffi'
local rows = require 'amp.ops.schema'
local C = core.C

local M = {}

--- name -> number and number -> name of each class
M.classes = {}
for i = 0, tonumber(C.AMP_POLICY_COUNT) - 1 do
  local name = ffi.string(C.amp_policy_name(i))
  M.classes[name], M.classes[i] = i, name
end

local conditional = {} -- op's number -> true
local chosen = {}      -- op's number -> true: by the user, for this op

--- The number of the class in force for an op's number.
function M.get(id) return C.amp_policy_get(id) end

--- The same, by name.
function M.name(id) return M.classes[C.amp_policy_get(id)] end

--- Give an op a class; -1: the one it was built with.
-- @tparam ?boolean by_user true: it was asked for by itself, and lists that replace the defaults leave it alone; false: no longer
function M.set(id, class, by_user)
  conditional[id] = nil
  if by_user ~= nil then chosen[id] = by_user and class >= 0 or nil end
  C.amp_policy_set(id, class)
end

--- float32 where the attribute in a slot has one of n values.
function M.condition(id, slot, values, n)
  conditional[id] = true
  C.amp_policy_condition(id, slot, values, n)
end

--- Whether the user gave this op its class by amp.set_policy or a registration.
function M.is_chosen(id) return chosen[id] == true end

--- Whether the classes of ops are those they were built with.
-- @tparam string ... names
function M.as_built(...)
  for i = 1, select('#', ...) do
    local id = rows.by_name[(select(i, ...))]
    if conditional[id] or C.amp_policy_get(id) ~= C.amp_op_get(id).policy then return false end
  end
  return true
end

return M

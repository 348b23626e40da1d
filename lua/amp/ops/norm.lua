--- Names of norms where a number would stand: 'fro', 'nuc', 'inf', '-inf'.
-- amp.args hands over the sorted arguments of norm, vector_norm and matrix_norm; in
-- all three the second is the norm's kind.
-- @module amp.ops.norm
local err = require 'amp.error'
local util = require 'amp.util'

local M = {}

local words = { 'fro', 'nuc', 'inf', '-inf' }
local NUCLEAR = 0 -- what the row matrix_norm calls it

--- Replace the name in value[2].
-- @treturn ?function another op's wrapper that is to be called instead
function M.named(ops, spec, value)
  local name = value[2]
  if type(name) ~= 'string' then return nil end
  local matrix = spec.name == 'matrix_norm'
  if name == 'inf' then value[2] = math.huge
  elseif name == '-inf' then value[2] = -math.huge
  elseif name == 'fro' and spec.name ~= 'vector_norm' then
    if matrix then value[2] = nil else value[2] = 2 end
  elseif name == 'nuc' and spec.name ~= 'vector_norm' then
    value[2] = NUCLEAR
    if matrix then return nil end
    if value[3] == nil and value[1]:dim() ~= 2 then
      err.throw_code('shape', 'norm', "p 'nuc' is a norm of a matrix: input has shape %s; name two dimensions in dim", tostring(value[1]:size()))
    end
    return ops.get 'matrix_norm'
  else
    local known = spec.name == 'vector_norm' and { 'inf', '-inf' } or words
    err.throw(spec.form, "argument 2 '%s' must be a number or one of '%s', got '%s'%s", spec.args[2].name,
      table.concat(known, "', '"), name, util.hint(name, known))
  end
end

return M

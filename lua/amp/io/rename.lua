--- amp.io.rename: a state dict under other names, for files of other libraries.
local amp = require 'amp'
local raise = require('amp.error').throw
local util = require 'amp.util'

local op = 'io.rename'

local function check(rules)
  if type(rules) ~= 'table' then raise(op, 'a list of pairs {pattern, replacement} expected, got %s', util.show(rules)) end
  for key in pairs(rules) do
    if type(key) ~= 'number' or key % 1 ~= 0 or key < 1 or key > #rules then
      raise(op, 'rules are a list of pairs {pattern, replacement}, got the key %s', util.show(key))
    end
  end
  for i, rule in ipairs(rules) do
    if type(rule) ~= 'table' or #rule ~= 2 or type(rule[1]) ~= 'string' or (type(rule[2]) ~= 'string' and type(rule[2]) ~= 'function') then
      raise(op, 'rule %d must be {pattern, replacement}, got %s', i, util.show(rule))
    end
    local fine, why = pcall(string.gsub, '', rule[1], rule[2])
    if not fine and type(rule[2]) == 'string' then raise(op, "rule %d, '%s': %s", i, rule[1], (tostring(why):gsub('^.-:%d+: ', ''))) end
  end
end

--- The same tensors under new names.
-- @tparam table state name -> tensor; it is left as it is
-- @tparam table rules pairs of a Lua pattern and what stands for it (a string with %1, or a function), applied to every
-- name, one after the other
-- @treturn table name -> tensor
-- @raise two names that become one; a pattern that is none
-- @usage state = amp.io.rename(state, {{'^module%.', ''}, {'%.gamma$', '.weight'}, {'%.beta$', '.bias'}})
return function(state, rules)
  if type(state) ~= 'table' then raise(op, 'a table of tensors by name expected, got %s', util.show(state)) end
  check(rules)
  local out, from = {}, {}
  for name, value in pairs(state) do
    if type(name) ~= 'string' then raise(op, 'names are strings, got %s', util.show(name)) end
    if not amp.is_tensor(value) then raise(op, "'%s' is %s, not a tensor", name, util.show(value)) end
    local new = name
    for _, rule in ipairs(rules) do new = new:gsub(rule[1], rule[2]) end
    if out[new] ~= nil then
      local a, b = from[new], name
      if b < a then a, b = b, a end
      raise(op, "'%s' and '%s' both become '%s'", a, b, new)
    end
    out[new], from[new] = value, name
  end
  return out
end

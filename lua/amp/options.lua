--- Arguments and option tables: unknown names are errors that say what is known.
local core = require 'amp.ffi'
local next_key = require('amp.core.keys').next
local util = require 'amp.util'
local raise, plain_list = require('amp.error').throw, require('amp.error').list

local M = {}

local function unknown(op, key, known)
  if known.refused and known.refused[key] then raise(op, string.format("there is no option '%s': %s", key, known.refused[key])) end
  local list = {unpack(known)}
  table.sort(list)
  raise(op, string.format("unknown option '%s'%s (known: %s)", tostring(key), util.hint(key, known), table.concat(list, ', ')))
end

-- nn.ReLU(x): a tensor where a layer is made. (Lists of names with a field `tensors` are of what a layer is called with.)
local function check_tensor(op, known, v)
  if type(v) ~= 'cdata' or known.tensors or not core.is_ref(v) or not op:find '^nn%.%u%w*$' then return end
  raise(op, 'a tensor was given where the layer is made; the layer is called with it: local layer = %s(...), then layer(x)', op)
end

--- Options with defaults filled in.
-- @tparam string op who asks, for the error
-- @tparam ?table given what the user gave, or nil
-- @tparam table known list of names; its field refused, if any: names that are not offered -> why
-- @tparam table defaults name -> value; a name without one stays nil
-- @treturn table a new table
-- @raise an unknown name; something that is not a table
function M.read(op, given, known, defaults)
  local out = {}
  for k, v in pairs(defaults or {}) do out[k] = v end
  if given == nil then return out end
  check_tensor(op, known, given)
  if type(given) ~= 'table' then
    local plain = type(given) == 'number' or type(given) == 'string' or type(given) == 'boolean'
    raise(op, ('options are a table, got %s%s'):format(plain and 'the ' .. type(given) .. ' ' or '', util.show(given)))
  end
  local set = {}
  for _, k in ipairs(known) do set[k] = true end
  for k, v in pairs(given) do
    local name = k
    if not set[k] then
      name = require('amp.precision.spelling').same(k, known)
      if name == nil then unknown(op, k, known) end
      if given[name] ~= nil then raise(op, string.format("'%s' and '%s' are one option; give one of them", k, name)) end
    end
    out[name] = v
  end
  return out
end

--- Whether the table that stands behind a function holds the options of who calls it, not the function's first argument:
-- a plain one, not empty, all of whose keys are options; or any with names in it where the function takes no argument.
-- @tparam function fn
-- @param t what stands behind it
-- @tparam table known list of names
function M.meant(fn, t, known)
  if type(t) ~= 'table' or getmetatable(t) ~= nil or next_key(t) == nil then return false end
  local all, named = true, false
  for k in pairs(t) do
    local found = require('amp.precision.spelling').near(k, known) ~= nil
    for i = 1, #known do found = found or known[i] == k end
    all, named = all and found, named or type(k) == 'string'
  end
  if all then return true end
  if not named or type(fn) ~= 'function' then return false end
  local info = debug.getinfo(fn, 'u')
  return info.nparams == 0 and not info.isvararg and debug.getinfo(fn, 'S').what ~= 'C'
end

--- Positional arguments, then options: f(8, 16, 3, {padding = 1}) or f(8, 16, 3, 1, 1).
-- The last argument is the option table if it is a table without a first element.
-- @tparam string op who asks
-- @tparam table names of the positions; each is also an option's name
-- @tparam number required how many of them must be given
-- @tparam table defaults name -> value
-- @param ... what the user gave
function M.arguments(op, names, required, defaults, ...)
  local n, given = select('#', ...), nil
  local last = n > 0 and (select(n, ...)) or nil
  if type(last) == 'table' and last[1] == nil and getmetatable(last) == nil then
    given = last
    n = n - 1
  end
  local out = M.read(op, given, names, defaults)
  if n > #names then raise(op, string.format('%d arguments at most (%s), got %d', #names, table.concat(names, ', '), n)) end
  for i = 1, n do
    local v = (select(i, ...))
    check_tensor(op, names, v)
    if v ~= nil then
      if given and given[names[i]] ~= nil then raise(op, string.format("'%s' is given twice, as argument %d and as an option", names[i], i)) end
      out[names[i]] = v
    end
  end
  for i = 1, required do
    if out[names[i]] == nil then raise(op, string.format("argument %d (%s) is missing", i, names[i])) end
  end
  return out
end

--- An option table given to a function that has no options (more of them than it has): an error that names a key.
-- @tparam string op
-- @param extra what was given beyond the arguments: a last parameter `excess`, which help and manual don't show
function M.none(op, extra)
  if type(extra) ~= 'table' or getmetatable(extra) ~= nil then return end
  local key = next_key(extra)
  raise(op, key == nil and 'takes no options, got an empty table' or ("takes no options, got '%s'"):format(tostring(key)))
end

--- A whole number of at least `low` (which may be nil), or an error that names it.
function M.integer(op, name, value, low)
  if type(value) ~= 'number' or value % 1 ~= 0 or value < (low or -2 ^ 53) or value >= 2 ^ 53 then
    raise(op, string.format('%s must be an integer%s, got %s', name, low and ' of at least ' .. low or '', util.show(value)))
  end
  return value
end

--- A number from low to high (either may be nil), or an error that names it.
function M.number(op, name, value, low, high)
  if type(value) ~= 'number' or value ~= value or (low and value < low) or (high and value > high) then
    local range = low and high and string.format(' from %g to %g', low, high) or low and string.format(' of at least %g', low) or ''
    raise(op, string.format('%s must be a number%s, got %s', name, range, util.show(value)))
  end
  return value
end

--- true or false, or an error that names it.
function M.boolean(op, name, value)
  if type(value) ~= 'boolean' then raise(op, string.format('%s must be true or false, got %s', name, util.show(value))) end
  return value
end

--- Two whole numbers from one or a pair: 3 -> {3, 3}.
function M.pair(op, name, value, low)
  if type(value) == 'number' then value = {value, value} end
  if type(value) == 'table' then plain_list(op, value, name) end
  if type(value) ~= 'table' or #value ~= 2 then
    raise(op, string.format('%s must be a number or {height, width}, got %s', name, util.show(value)))
  end
  return {M.integer(op, name, value[1], low), M.integer(op, name, value[2], low)}
end

--- n whole numbers from one or a list of n: 3 -> {3, 3, 3}.
function M.list(op, name, value, n, low)
  if type(value) == 'number' then
    local v = M.integer(op, name, value, low)
    value = {}
    for i = 1, n do value[i] = v end
    return value
  end
  if type(value) == 'table' then plain_list(op, value, name) end
  if type(value) ~= 'table' or #value ~= n then
    local got = type(value) == 'table' and 'a list of ' .. #value or util.show(value)
    raise(op, string.format(n == 1 and '%s must be an integer, got %s' or '%s must be an integer or a list of %d, got %s', name, n == 1 and got or n, got))
  end
  local list = {}
  for i = 1, n do list[i] = M.integer(op, name, value[i], low) end
  return list
end

--- "3x3" of a pair.
function M.show_pair(pair) return pair[1] .. 'x' .. pair[2] end

return M

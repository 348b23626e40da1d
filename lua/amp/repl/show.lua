--- Values as the prompt shows them: tensors whole, tables sorted and cut short, the
-- tensors in them in a line each.
-- @module amp.repl.show
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local raw = require('amp.core.class').raw

local M = {}

local DEPTH, ENTRIES, WIDTH = 4, 40, 78

local function pointer(v) return v.ptr_ end
local function is_tensor(v) return ffi.istype(core.ref_t, v) and (pcall(pointer, v)) end -- the C type itself is of its own kind

-- tostring that can't fail and gives a string
local function text_of(v)
  local ok, text = pcall(tostring, v)
  if ok and type(text) == 'string' then return text end
  return ('(%s that can not be shown)'):format(type(v))
end

local escapes = { ['\n'] = '\\n', ['\t'] = '\\t', ['\r'] = '\\r', ['\\'] = '\\\\', ['\0'] = '\\0' }
local function quote(s)
  local mark = s:find("'", 1, true) and not s:find('"', 1, true) and '"' or "'"
  s = s:gsub('[%c\\]', function(c) return escapes[c] or ('\\%d'):format(c:byte()) end)
  if mark == "'" then s = s:gsub("'", "\\'") end
  return mark .. s .. mark
end

local function number(v)
  if v ~= v then return 'nan' end
  if v == math.huge then return 'inf' elseif v == -math.huge then return '-inf' end
  if v % 1 == 0 and math.abs(v) < 1e15 then return ('%.0f'):format(v) end
  return ('%.14g'):format(v)
end

local function func(f)
  local specs = require('amp.ops').specs
  if specs[f] then return ('function: amp.%s (?%s explains it)'):format(specs[f].form, specs[f].form) end
  local info = debug.getinfo(raw(f), 'S')
  if info.what == 'C' then return text_of(f) end
  return ('function: %s:%d'):format(info.short_src, info.linedefined)
end

local function key(k)
  if type(k) == 'string' then
    if k:find '^[%a_][%w_]*$' and not require('amp.repl.lexer').keywords[k] then return k end
    return '[' .. quote(k) .. ']'
  end
  return '[' .. (type(k) == 'number' and number(k) or text_of(k)) .. ']'
end

local function order(a, b)
  local ta, tb = type(a), type(b)
  if ta ~= tb then return ta < tb end
  if ta == 'number' or ta == 'string' then return a < b end
  return text_of(a) < text_of(b)
end

local value

local function tensor_line(t)
  if t.ptr_ == nil then return '[amp.Tensor, freed]' end
  if t:dim() == 0 then return text_of(t):match '^%s*(%S+)' end
  return text_of(t):match '(%[amp%.Tensor[^\n]*%])%s*$' or text_of(t)
end

-- Entries of a table, in the order they are shown: a list of texts, and whether some were left out
local function entries(t, depth, path)
  local list, n = {}, 0
  while rawget(t, n + 1) ~= nil and n < ENTRIES do
    n = n + 1
    list[n] = value(rawget(t, n), depth + 1, path)
  end
  local total, keys = 0, {}
  for k in next, t do
    total = total + 1
    if not (type(k) == 'number' and k >= 1 and k <= n and k % 1 == 0) then
      if #keys < 2000 then keys[#keys + 1] = k end
    end
  end
  table.sort(keys, order)
  for i = 1, math.min(#keys, ENTRIES - n) do list[#list + 1] = key(keys[i]) .. ' = ' .. value(rawget(t, keys[i]), depth + 1, path) end
  if total > #list then list[#list + 1] = ('... (%d in all)'):format(total) end
  return list
end

-- Short entries, as many in a line as there is room for
local function filled(list, width)
  local lines, line = {}, nil
  for i = 1, #list do
    local e = list[i]
    if e:find '\n' or #e > 24 then
      if line then lines[#lines + 1] = line end
      lines[#lines + 1], line = e, nil
    elseif line and #line + #e + 2 <= width then line = line .. ', ' .. e
    else
      if line then lines[#lines + 1] = line end
      line = e
    end
  end
  if line then lines[#lines + 1] = line end
  return lines
end

-- A part or a class of amp: where to read of it. Its fields are of no use to anybody.
local function part(t, path)
  path.parts = path.parts or require('amp.repl.names').parts()
  local name = path.parts[t]
  if not name then return nil end
  local callable = t ~= require('amp').Tensor and require('amp.repl.calls').constructor(t) -- (amp.Tensor(...) only says what to write)
  return ('amp%s%s (?%s %s)'):format(name ~= '' and '.' or '', name, name ~= '' and name or 'amp', callable and 'explains it' or 'lists what it has')
end

local function table_text(t, depth, path)
  local mt = getmetatable(t)
  if type(mt) == 'table' and rawget(mt, '__tostring') then
    local text = text_of(t)
    return depth > 0 and (text:gsub('\n', '\n' .. ('  '):rep(depth))) or text
  end
  local known = part(t, path)
  if known then return known end
  if next_key(t) == nil then return '{}' end
  if path[t] then return '{...} (a table around this one)' end
  if depth >= DEPTH then return '{...}' end
  path[t] = true
  local list = entries(t, depth, path)
  path[t] = nil
  if #list > 8 then list = filled(list, WIDTH - 2 * depth - 3) end
  local one = table.concat(list, ', ')
  local indent = ('  '):rep(depth + 1)
  if #one + #indent <= WIDTH and not one:find '\n' then return '{' .. one .. '}' end
  return '{\n' .. indent .. table.concat(list, ',\n' .. indent) .. '\n' .. ('  '):rep(depth) .. '}'
end

value = function(v, depth, path)
  local t = type(v)
  if t == 'string' then return (depth > 0 or not v:find '\n') and quote(v) or v end
  if t == 'number' then return number(v) end
  if t == 'function' then return func(v) end
  if t == 'table' then return table_text(v, depth, path) end
  if is_tensor(v) then return depth > 0 and tensor_line(v) or text_of(v) end
  return text_of(v)
end

--- Text of a value.
-- @param v any value
-- @treturn string one or more lines
-- @usage show.value {1, x = 'a'} --> "{1, x = 'a'}"
function M.value(v) return value(v, 0, {}) end

--- Text of several results, short ones in a line.
-- @tparam table results with field n
-- @treturn ?string nil if there is nothing to show
function M.results(results)
  if results.n == 0 then return nil end
  if results.n == 1 and io.type(results[1]) then return nil end -- what io.write and file:write give
  local list, long = {}, false
  for i = 1, results.n do
    list[i] = M.value(results[i])
    long = long or list[i]:find '\n' ~= nil
  end
  return table.concat(list, long and '\n' or '  ')
end

return M

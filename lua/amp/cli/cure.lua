--- What may have been meant, after an error of Lua's own: `amp script.lua` and the prompt add it to the message.
-- LuaJIT says which name was nil, or which argument was wrong; here the running function's line is read, what stands in
-- it is looked up among the variables of that function, and a habit from elsewhere or the closest name is told.
-- Plain luajit shows the message as it is.
-- @module amp.cli.cure
local habits = require 'amp.core.habits'
local util = require 'amp.util'

local M = {}

--- Text of what was typed at the prompt, by the chunk's name: it is in no file.
M.inputs = setmetatable({}, { __mode = 'v' })
local kept = {}

--- Remember an input.
function M.remember(name, text)
  M.inputs[name] = { text = text }
  kept[#kept + 1] = M.inputs[name]
  if #kept > 50 then table.remove(kept, 1) end
end

-- -- Where the error was raised ------------------------------------------------------------

local function own(source)
  local core = package.loaded['amp.ffi']
  return source:find 'amp/cli/' or source:find 'amp/repl/' or source:find 'bin/amp$' or source:sub(1, 5) == '=amp.'
    or core and source:sub(2, #core.here + 1) == core.here
end

-- The function of the user's that was running: {level, info}; nil where it was amp's own code that failed.
local function raised()
  local level = 2
  while true do
    local info = debug.getinfo(level, 'Slfn')
    if not info then return nil end
    local handler = own(info.source) and (info.source:find 'amp/cli/' or info.source:find 'amp/repl/')
    if not handler and info.what ~= 'C' then
      if own(info.source) then return nil end
      return { level = level, func = info.func, source = info.source, line = info.currentline }
    end
    level = level + 1
  end
end

local function line_of(at)
  local text
  if at.source:sub(1, 1) == '@' then
    local f = io.open(at.source:sub(2), 'rb')
    text = f and f:read(2 ^ 20)
    if f then f:close() end
  elseif at.source:sub(1, 1) == '=' then
    local input = M.inputs[at.source:sub(2)]
    text = input and input.text
  else
    text = at.source
  end
  local n = 0
  for line in ((text or '') .. '\n'):gmatch '(.-)\r?\n' do
    n = n + 1
    if n == at.line then return line end
  end
  return ''
end

-- Variables of the function: names -> {value}
local function variables(at)
  local set = {}
  for i = 1, 200 do
    local name, v = debug.getupvalue(at.func, i)
    if not name then break end
    set[name] = { v }
  end
  for i = 1, 200 do
    local name, v = debug.getlocal(at.level + 1, i) -- one more: this function
    if not name then break end
    if name:find '^[%a_]' then set[name] = { v } end
  end
  return set
end

local function globals(at)
  local ok, env = pcall(getfenv, at.func)
  return ok and env or _G
end

-- Value of a path like a.b.c; nothing of the user's is called for it.
local function value_of(path, set, env)
  local names = package.loaded.amp and require 'amp.repl.names'
  local v
  for name in path:gmatch '[%a_][%w_]*' do
    if v == nil then
      if set[name] then v = set[name][1] else v = rawget(env, name) end
      if v == nil then v = rawget(_G, name) end
    elseif names then
      v = names.field(v, name)
    else
      v = type(v) == 'table' and rawget(v, name) or nil
    end
    if v == nil then return nil end
  end
  return v
end

local function names_in_sight(set, env)
  local list = util.keys(set)
  for level = 4, 40 do -- locals of the functions around, which a function that does not name them has not
    local info = debug.getinfo(level, 'S')
    if not info then break end
    if info.what ~= 'C' and not own(info.source) then
      for i = 1, 200 do
        local name = debug.getlocal(level, i)
        if not name then break end
        if name:find '^[%a_]' then list[#list + 1] = name end
      end
    end
  end
  for _, t in ipairs { env, _G } do
    for k in next, t do
      if type(k) == 'string' then list[#list + 1] = k end
    end
  end
  return list
end

-- -- Cures -------------------------------------------------------------------------------------

local NO_GRADIENT = '; a gradient is nil until backward has reached the tensor, loss:backward(), and only leaves that require grad have one, ' ..
  'not what ops make of them'

local function global(name, set, env)
  local amp = package.loaded.amp
  for _, known in ipairs(amp and amp.names() or {}) do
    if known == name and name ~= 'amp' then return (', did you mean amp.%s?'):format(name) end
  end
  return habits.hint(habits.globals, name, names_in_sight(set, env))
end

-- A field or method that is nil, of something that the line names with it
local function field(name, line, set, env)
  if not package.loaded.amp then return '' end
  local names = require 'amp.repl.names'
  for path, mark in line:gmatch('([%a_][%w_.]*)%s*([.:])%s*' .. name .. '%f[^%w_]') do
    local holder = names.opened(value_of(path, set, env))
    if type(holder) == 'table' and names.field(holder, name) == nil then
      local class = rawget(holder, 'class')
      if mark == ':' and type(class) == 'table' and type(class[name]) == 'function' and getmetatable(holder) and getmetatable(holder).__call then
        return ('; %s is a class: %s(...) makes what has the method %s'):format(path, path, name)
      end
      local known = util.keys(names.members(holder, mark == ':'))
      local part = names.parts()[holder]
      local near = util.hint(name, known)
      if near ~= '' then return near end
      if part then return ('; ?%s lists what it has'):format(part ~= '' and part or 'amp') end
      if name == 'parameters' then return ('; %s has none: the module itself has, net:parameters()'):format(path) end
    end
  end
  if name == 'grad' then return NO_GRADIENT end
  return ''
end

local properties = { shape = true, dtype = true, device = true, grad = true, requires_grad = true, is_leaf = true, ndim = true, T = true, data = true }

-- Something was called that is no function, or indexed that is no table
local function wrong_kind(verb, kind, what, name, line)
  if name == 'Function' and verb == 'index' then
    return '; a function with a derivative of its own is amp.Function{forward = function(ctx, x) ... end, backward = function(ctx, dy) ... end}'
  end
  if name == 'Module' and verb == 'call' then return "; a class of networks is made by nn.Module:extend 'Net'" end
  if what == 'function' and verb == 'index' then
    return ("; '%s' is a function and wants to be called first: %s(...), or of an object obj:%s(...)"):format(name, name, name)
  end
  if what == 'function' and (verb == 'perform arithmetic on' or verb == 'concatenate' or verb == 'get length of') then
    return ("; '%s' is a function, its value comes from a call: x:%s()"):format(name, name)
  end
  if verb == 'call' and properties[name] and (kind == 'method' or kind == 'field') then
    return ("; '%s' is a property and is not called: x.%s"):format(name, name)
  end
  if verb == 'call' and line:find '%f[%w_]for%f[^%w_].-%f[%w_]in%f[^%w_]' then
    return '; a for loop over a table is written for i, v in ipairs(list) do, or for k, v in pairs(t) do; over a DataLoader for x, y in loader:iter() do'
  end
  if what == 'table' and verb == 'perform arithmetic on' then
    return ("; '%s' is a table: one of its elements is %s[1]"):format(name, name)
  end
  return ''
end

local maths = { max = 't:max()', min = 't:min()', floor = 't:floor()', ceil = 't:ceil()', abs = 't:abs()', exp = 't:exp()', log = 't:log()', sqrt = 't:sqrt()',
  sin = 't:sin()', cos = 't:cos()', tan = 't:tan()', pow = 't ^ n', fmod = 't:fmod(n)', log10 = 't:log10()' }

-- An argument of one of Lua's functions is a tensor
local function argument(n, name, got, line)
  local list = got == 'function' and line:match '([%a_][%w_.]*:named_[%a_]+%(%))'
  if list then return ('; %s is what a loop goes through: for name, p in %s do'):format(list, list) end
  if got ~= 'cdata' then return '' end
  if maths[name] then return ('; of a tensor it is %s, of its single value t:item()'):format(maths[name]) end
  if name == 'format' then return "; a tensor's value is t:item(): ('%.3f'):format(t:item()); tostring(t) is its text" end
  if name == 'insert' or name == 'remove' or name == 'sort' or name == 'concat' or name == 'unpack' or name == 'next' or name == 'getn' then
    return '; t:tolist() makes a Lua table of a tensor, t:unbind() a list of its rows'
  end
  if name == 'ipairs' or name == 'pairs' then return '; t:unbind() is a list of its rows' end
  return ("; argument %s may be t:item(), a tensor's single value as a number"):format(n)
end

local function nothing(name, kind, set, env, line)
  if name == 'grad' then return NO_GRADIENT end
  if kind == 'global' then return global(name, set, env) end
  if name == 'self' then return '; a method is defined and called with a colon: function Net:forward(x), net:forward(x)' end
  if kind == 'field' and line then return field(name, line, set, env) end
  return ''
end

--- What to add to a message of Lua's.
-- Called in the handler of an xpcall, while what raised is still on the stack.
-- @tparam string message
-- @treturn string '' where nothing is known
function M.of(message)
  local at = raised()
  if not at then return '' end
  local line = line_of(at)
  at.level = at.level - 1 -- as seen from here
  local set, env = variables(at), globals(at)
  local first = message:match '^[^\n]*'
  local verb, kind, name, what = first:match "attempt to ([%a ]-) (%a+) '([^']*)' %(an? (%a+) value%)"
  if verb then
    if what == 'nil' then
      if kind == 'global' then return global(name, set, env) end
      if verb == 'call' then return field(name, line, set, env) end
      return nothing(name, kind, set, env, line)
    end
    return wrong_kind(verb, kind, what, name, line)
  end
  if first:find 'attempt to index a boolean value' and line:find '[=~]=' then
    return '; a == b says whether two handles are one tensor; a:eq(b) compares element by element'
  end
  what = first:match "attempt to call an? (%a+) value"
  if what then return wrong_kind('call', '', what, '', line) end
  local n, called, got = first:match "bad argument #(%d+) to '([%w_]+)' %([^)]*got (%a+)%)"
  if n then return argument(n, called, got, line) end
  if first:find "invalid value %(cdata%) at index" or first:find 'invalid value %(userdata%) at index' then
    return '; table.concat takes strings and numbers: tostring(t) is the text of a tensor, t:item() its single value'
  end
  local part = first:match "'for' (%a+) value must be a number" or first:match "'for' (%a+) must be a number"
  if part then return '; the size of a dimension is x:size(1), the length of a list #list, the value of a tensor t:item()' end
  if first:find 'attempt to compare' and first:find 'nil' then return '; one of the two was never set' end
  return ''
end

return M

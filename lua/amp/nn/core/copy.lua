--- A copy of a module with everything in it: modules and tensors anew, a part that is
-- reached twice once, so that tied parameters stay tied. Mode, flags and plain tables are
-- copied; hooks are the same functions; gradients are not copied. Float32 masters of 16-bit parameters are copied with them.
local Module = require 'amp.nn.module'
local amp = require 'amp'
local masters = require 'amp.nn.core.masters'

local is_tensor = amp.is_tensor

local function tensor(t, seen)
  local id = t:id()
  if not seen[id] then
    local u = t:detach():clone()
    u.requires_grad = t.requires_grad
    -- what a layer remembers for regions of 8 bits comes along
    if package.loaded['amp.precision.float8_region'] or package.loaded['amp.precision.float8_state'] then
      require('amp.precision.float8_state').copy(t, u)
    end
    seen[id] = u
  end
  return seen[id]
end

local copy

-- A plain table with everything in it; an object of another class, a function, a string is the same one.
local function value(v, seen)
  if is_tensor(v) then return tensor(v, seen) end
  if type(v) ~= 'table' then return v end
  if Module.is_module(v) then return copy(v, seen) end
  if seen[v] then return seen[v] end
  if getmetatable(v) ~= nil then return v end
  local out = {}
  seen[v] = out
  for k, x in next, v do out[k] = value(x, seen) end
  return out
end

local function plain(t)
  local out = {}
  for k, v in next, t do out[k] = v end
  return out
end

copy = function(m, seen)
  if seen[m] then return seen[m] end
  local new, at = Module.shell(getmetatable(m).class)
  seen[m] = new
  local old = Module.inside(m)
  for _, key in ipairs {'.kinds', '.names', '.hooks', '.passing', '.order'} do -- hooks are the same functions
    local list = rawget(old, key)
    if list then rawset(at, key, plain(list)) end
  end
  local values = at['.values']
  for name, v in next, rawget(old, '.values') do values[name] = value(v, seen) end
  if old ~= m then -- what a container contains
    local labels = rawget(old, '.labels')
    if labels then at['.labels'] = setmetatable({}, getmetatable(labels)) end
    for k, v in next, m do
      local c = value(v, seen)
      rawset(new, k, c)
      if labels and labels[v] then at['.labels'][c] = labels[v] end
    end
  end
  masters.copy(old, at, seen)
  local casts = rawget(old, '.casts')
  if casts then -- of a level, around its forward
    values.forward = value(casts.forward, seen)
    require('amp.levels.model').wrap(new, casts.input, casts.output)
  end
  if new.copied then new:copied(m) end -- what else its class keeps
  return new
end

--- A copy of a module.
-- @tparam nn.Module m
-- @treturn nn.Module
return function(m) return copy(m, {}) end

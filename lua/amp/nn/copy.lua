--- A copy of a module with everything in it: modules and tensors anew, a part that is
-- reached twice once; hooks and plain values are the same ones.
local Module = require 'amp.nn.module'
local amp = require 'amp'

local is_tensor = amp.is_tensor

local function tensor(t, seen)
  local id = t:id()
  if not seen[id] then
    local u = t:detach():clone()
    u.requires_grad = t.requires_grad
    seen[id] = u
  end
  return seen[id]
end

local function plain(t)
  local out = {}
  for k, v in next, t do out[k] = v end
  return out
end

local function copy(m, seen)
  if seen[m] then return seen[m] end
  local new = {}
  seen[m] = new
  for key, v in next, m do new[key] = type(v) == 'table' and plain(v) or v end -- names, kinds, values
  local values = new['.values']
  for name, v in next, rawget(m, '.values') do
    if Module.is_module(v) then values[name] = copy(v, seen)
    elseif is_tensor(v) then values[name] = tensor(v, seen) end
  end
  return setmetatable(new, getmetatable(m))
end

--- @tparam nn.Module m
-- @treturn nn.Module
return function(m) return copy(m, {}) end

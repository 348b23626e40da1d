--- nn.Sequential: modules in a row, each fed with what the one before gives.
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw

local Sequential = Module:extend('nn.Sequential')

--- Make a sequence.
-- @tparam nn.Module ... modules (or one list of them); children are counted from 1
-- @usage local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
function Sequential:init(...)
  rawset(self, '_count', 0)
  local list = {...}
  if #list == 1 and not Module.is_module(list[1]) and type(list[1]) == 'table' then list = list[1] end
  for i = 1, select('#', ...) > 1 and select('#', ...) or #list do self:add(list[i]) end
end

--- Append a module. Chainable.
function Sequential:add(module)
  if not Module.is_module(module) then
    raise('nn.Sequential', 'module %d: an nn.Module expected, got %s', rawget(self, '_count') + 1,
      type(module) == 'table' and module.__instance and 'the class ' .. module.__name .. ' (call it to make an instance)'
      or type(module))
  end
  local n = rawget(self, '_count') + 1
  rawset(self, '_count', n)
  self[n] = module
  return self
end

Sequential.append = Sequential.add

--- Module i, negative from the end.
function Sequential:get(i)
  local n = rawget(self, '_count')
  local at = type(i) == 'number' and i < 0 and n + 1 + i or i
  if type(at) ~= 'number' or at % 1 ~= 0 or at < 1 or at > n then
    raise('nn.Sequential', 'index %s, but it has %d modules', tostring(i), n)
  end
  return self[at]
end

--- Number of modules.
function Sequential:size() return rawget(self, '_count') end

--- @tparam Tensor ... for the first module
-- @return what the last one gives
function Sequential:forward(...)
  local n, values = rawget(self, '_count'), rawget(self, '_values')
  if n == 0 then return ... end
  if n == 1 then return values[1](...) end
  if select('#', ...) == 1 then -- the common case, without passing through varargs
    local x = ...
    for i = 1, n - 1 do
      local y, more = values[i](x)
      if more ~= nil then return self:rest(i + 1, values[i](x)) end
      x = y
    end
    return values[n](x)
  end
  return self:rest(2, values[1](...))
end

return Sequential

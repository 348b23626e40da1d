--- nn.Sequential: modules in a row, each fed with what the one before gives.
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw
local core = require 'amp.ffi'
local ops = require 'amp.ops'
local as_built = require('amp.policies').as_built
local release, ref_t = core.C.amp_release, core.ref_t
local istype = require('ffi').istype

local Sequential = Module:extend('nn.Sequential')

--- Make a sequence.
-- @tparam nn.Module ... modules (or one list of them); children are counted from 1
-- @usage local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
function Sequential:init(...)
  rawset(self, '.count', 0)
  local list, n = {...}, select('#', ...)
  if n == 1 and type(list[1]) == 'table' and not Module.is_module(list[1]) and not list[1].__instance then
    list = list[1]
    n = #list
  end
  for i = 1, n do self:add(list[i]) end
end

--- Append a module. Chainable.
function Sequential:add(module)
  if not Module.is_module(module) then
    raise('nn.Sequential', 'module %d: an nn.Module expected, got %s', rawget(self, '.count') + 1,
      type(module) == 'table' and module.__instance and 'the class ' .. module.__name .. ' (call it to make an instance)'
      or type(module))
  end
  local n = rawget(self, '.count') + 1
  rawset(self, '.count', n)
  self[n] = module
  return self
end

Sequential.append = Sequential.add

--- Module i, negative from the end.
function Sequential:get(i)
  local n = rawget(self, '.count')
  local at = type(i) == 'number' and i < 0 and n + 1 + i or i
  if type(at) ~= 'number' or at % 1 ~= 0 or at < 1 or at > n then
    raise('nn.Sequential', 'index %s, but it has %d modules', tostring(i), n)
  end
  return self[at]
end

--- Number of modules.
function Sequential:size() return rawget(self, '.count') end

-- On a GPU a Linear and the ReLU or GELU after it are one op, row linear_act: one launch forward, and in backward the
-- bias's gradient comes with the activation's. The values are those of the two. A BatchNorm and the ReLU after it are
-- one op as well. Gives row linear_act's number of the activation, or nil.
local function activation(m, next)
  if m.__name ~= 'nn.Linear' and m.forward_relu == nil then return nil end
  if type(next) ~= 'table' or next.transient == nil or next.transient ~= next.forward or rawget(next, '.hooks') then
    return nil
  end
  if next.__name == 'nn.ReLU' then return 0 end
  if next.__name == 'nn.GELU' and m.forward_relu == nil then return next.settings.approximate == 'tanh' and 2 or 1 end
end

local linear_act

-- A built-in layer keeps no handle of what it is given or gives (`transient` is its own forward), so what passes
-- between two of them is released at once: the tape holds what backward needs, and the collector, which can't see
-- tensor memory, has nothing to do. `mine`: the value was made in this chain and nobody else has it.
local function chain(values, i, n, mine, ...)
  local m = values[i]
  if type(m) ~= 'table' then raise('nn.Sequential', 'place %d of %d holds no module any more, but %s', i, n, type(m)) end
  local transient = m.transient
  if transient == nil or transient ~= m.forward or rawget(m, '.hooks') then
    if i == n then return m(...) end
    return chain(values, i + 1, n, false, m(...))
  end
  local x = ...
  local y
  if i < n and istype(ref_t, x) and x.ptr_ ~= nil and x.ptr_.device ~= 0 then
    local act = activation(m, values[i + 1])
    if act and not as_built(m.forward_relu and 'batch_norm' or 'linear', act == 0 and 'relu' or 'gelu') then act = nil end
    if act and m.forward_relu then
      y = m:forward_relu(x)
      i = i + 1
    elseif act then
      linear_act = linear_act or ops.get 'linear_act'
      y = linear_act(x, m.weight, m.bias, act == 0 and 'relu' or act == 1 and 'gelu' or 'gelu_tanh')
      i = i + 1
    end
  end
  y = y or m(x)
  local fresh = not rawequal(x, y)
  if mine and fresh then release(x) end
  if i == n then return y end
  return chain(values, i + 1, n, mine or fresh, y)
end

--- Run the modules in order.
-- @param ... for the first module
-- @return what the last one gives; the arguments if there is none
function Sequential:forward(...)
  local n = rawget(self, '.count')
  if n == 0 then return ... end
  return chain(rawget(self, '.values'), 1, n, false, ...)
end

return Sequential

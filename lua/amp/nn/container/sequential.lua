--- nn.Sequential: modules in a row, each fed with what the one before gives.
local List = require 'amp.nn.container.list'
local next_key = require('amp.core.keys').next
local raise = require('amp.error').throw
local util = require 'amp.util'
local core = require 'amp.ffi'
local ops = require 'amp.ops'
local as_built = require('amp.precision.policy').as_built
local release, ref_t = core.C.amp_release, core.ref_t
local istype = require('ffi').istype
local layer_takes_one = require('amp.nn.module').takes_one
local watched = require('amp.nn.module').watched -- a graph has one node for each module
local words = require 'amp.precision.autocast_state' -- exclude: a region decides for each module

--- Make a sequence.
-- @tparam nn.Module ... modules, or one list of them, or of pairs {'name', module}; children are counted from 1
-- @usage local net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
local Sequential = List:extend('nn.Sequential')

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

-- Does a module want one argument? A sequence wants what its first module wants.
local function takes_one(m)
  while type(m) == 'table' and getmetatable(m).class == Sequential do m = rawget(m, 1) end
  return layer_takes_one(m)
end

-- A built-in layer keeps no handle of what it is given or gives (`transient` is its own forward), so what passes
-- between two of them is released at once: the tape holds what backward needs, and the collector, which can't see
-- tensor memory, has nothing to do. `mine`: the value was made in this chain and nobody else has it.
local function chain(list, i, n, mine, ...)
  local m = list[i]
  local mt = getmetatable(m)
  if type(m) ~= 'table' or mt == nil or not mt.is_module then
    raise('nn.Sequential', 'place %d of %d holds no module any more, but %s', i, n, util.show(m))
  end
  local values, class = rawget(m, '.values'), mt.class
  local transient = values and values.transient -- a container has no raw keys of its own, and is none of these layers
  if transient == nil then transient = class.transient end
  if not transient or not values or rawget(m, '.hooks') or transient ~= (values.forward or class.forward) or i == 1 and select('#', ...) > 1 then
    if i > 1 and takes_one(m) then -- of what an LSTM gives, outputs and state, a layer takes the outputs
      if i == n then return m((...)) end
      return chain(list, i + 1, n, false, m((...)))
    end
    if i == n then return m(...) end
    return chain(list, i + 1, n, false, m(...))
  end
  local x = ...
  local y
  if i < n and istype(ref_t, x) and x.ptr_ ~= nil and x.ptr_.device ~= 0 then
    local act = not watched() and not words.exclude and activation(m, list[i + 1])
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
  return chain(list, i + 1, n, mine or fresh, y)
end

--- Run the modules in order.
-- @param ... for the first module
-- @return what the last one gives; the arguments if there is none
function Sequential:forward(...)
  local n = #self
  if rawget(self, n + 2) ~= nil or n == 0 and next_key(self) ~= nil then List.check_holes(self) end
  if n == 0 then return ... end
  return chain(self, 1, n, false, ...)
end

return Sequential

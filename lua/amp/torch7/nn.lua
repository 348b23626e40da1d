--- amp.torch7.nn: Torch7's layers and criteria by name, amp's own for all others; and what old scripts call on modules.
--
-- Loading this adds methods to all modules: getParameters, backward, zeroGradParameters, updateParameters, clearState,
-- type, findModules. `net:training()` works too: `training` being a flag, a call of a boolean with a module as its
-- argument puts it into training mode.
local amp = require 'amp'
local Module = require 'amp.nn.module'
local inside = Module.inside
local util = require 'amp.util'
local err = require 'amp.error'
local raise = err.throw
local nn = amp.nn

local M = {}
require 'amp.torch7.amp_layers'(M)
require 'amp.torch7.amp_criteria'(M)

-- -- One flat vector of parameters ------------------------------------------------------------------

--- All parameters as one vector, and all gradients as another; both share memory with the network from then on.
-- Call it once, after net:to(...). The network remembers its last output, which net:backward needs.
-- @treturn Tensor parameters
-- @treturn Tensor gradients, zeros
function Module:getParameters()
  local op = 'torch7.getParameters'
  local list, n = self:parameters(), 0
  if #list == 0 then raise(op, 'the module has no parameters') end
  local first = list[1]
  for i, p in ipairs(list) do
    if p.dtype ~= first.dtype or p.device ~= first.device then
      raise(op, 'parameter %d is %s on %s, the first is %s on %s: one vector holds one kind', i, p.dtype, p.device, first.dtype, first.device)
    end
    n = n + p:numel()
  end
  local flat = amp.empty(n, {dtype = first.dtype, device = first.device})
  local grads = amp.zeros(n, {dtype = first.dtype, device = first.device})
  local at = 1
  amp.no_grad(function()
    for _, p in ipairs(list) do
      local k = p:numel()
      local part = flat:narrow(1, at, k):view(p:size())
      part:copy_(p:detach())
      p:set_data(part)
      p.grad = grads:narrow(1, at, k):view(p:size())
      at = at + k
    end
  end)
  if not rawget(inside(self), '.torch7') then
    rawset(inside(self), '.torch7', true)
    local class = getmetatable(self).class
    self.forward = function(m, ...)
      local out = class.forward(m, ...)
      m.output = out
      return out
    end
  end
  return flat, grads
end

--- Gradients of the parameters from the gradient in the last output, added to what is there.
-- @param input what the network was called with
-- @param gradient in the output, as criterion:backward gives it
-- @return the gradient in the input, if that requires one
function Module:backward(input, gradient, scale)
  local op = 'torch7.backward'
  if scale ~= nil and scale ~= 1 then raise(op, 'a scale of 1 only, got %s: multiply the rate, or the gradient', tostring(scale)) end
  local out = self.output
  if not amp.is_tensor(out) then
    raise(op, 'the last output is not known: call net:getParameters() first, or loss:backward() instead of net:backward(input, gradient)')
  end
  if not amp.is_tensor(gradient) then raise(op, 'the gradient in the output expected, a tensor, got %s', util.show(gradient)) end
  amp.backward({out}, {grad_tensors = {gradient}})
  return amp.is_tensor(input) and input.grad or nil
end

function Module:zeroGradParameters()
  self:zero_grad {set_to_none = false}
end

--- One step down the gradients.
function Module:updateParameters(rate)
  amp.no_grad(function()
    for _, p in ipairs(self:parameters()) do
      if p.grad then p:add_(p.grad, {alpha = -rate}) end
    end
  end)
end

function Module:clearState()
  if rawget(inside(self), '.torch7') then self.output = nil end
  return self
end

--- net:type('torch.FloatTensor'); without an argument, the type of its first parameter.
function Module:type(name)
  local types = require 'amp.torch7.torch'
  if name == nil then
    local p = self:parameters()[1]
    return type(p) ~= 'nil' and types.type(p) or nil
  end
  local dtype, device = types.of_type(name)
  if not dtype then raise('torch7.type', "no type '%s'", tostring(name)) end
  return device == 'cuda' and self:to(dtype, 'cuda') or self:to(dtype)
end

--- Modules of a class, by name ('nn.Linear') or as it is: a list.
function Module:findModules(name)
  local list = {}
  for _, m in ipairs(Module.modules(self)) do
    if m.__name == name then list[#list + 1] = m end
  end
  return list
end

--- Another module with copies of everything; net:clone('weight', 'bias') shares those parameters with the copy.
function Module:clone(...)
  local out = require 'amp.nn.core.copy'(self)
  for _, m in ipairs(Module.modules(out)) do
    if m.relist then m:relist() end
  end
  if select('#', ...) > 0 then out:share(self, ...) end
  return out
end

--- The parameters of those names from another module of the same make, shared from then on.
function Module:share(other, ...)
  local names = {}
  for _, n in ipairs {...} do names[n] = true end
  local mine, its = Module.modules(self), Module.modules(other)
  if #mine ~= #its then raise('torch7.share', 'a module of %d parts expected, got one of %d', #mine, #its) end
  for i, m in ipairs(mine) do
    for n in pairs(names) do
      local p, q = m[n], its[i][n]
      if amp.is_tensor(p) and amp.is_tensor(q) then m[n] = q end
    end
  end
  return self
end

function Module:updateOutput(...) return self:forward(...) end

-- -- net:training() -----------------------------------------------------------------------------------

if debug.getmetatable(true) == nil then
  debug.setmetatable(true, {__call = function(_, m)
    if Module.is_module(m) then return m:train() end
    error('attempt to call a boolean value', 2)
  end})
end

-- The loss of criterion:forward is a number, as it was; scripts written for a tensor say loss:item(). Of #x, which is the first
-- size here, scripts ask (#x)[1].
if debug.getmetatable(0) == nil then
  local methods = {item = function(n) return n end}
  debug.setmetatable(0, {__index = function(n, key)
    local f = methods[key]
    if f then return f end
    if key == 1 then return n end -- (#x)[1]
    if key == 2 or key == 3 or key == 4 then error(("#x is the first size here, a number: write x:size(%d) for (#x)[%d]"):format(key, key), 2) end
    if key == 'backward' then
      error('a loss from criterion:forward is a number: call criterion:backward and net:backward, or differentiate criterion(output, target)', 2)
    end
    error('attempt to index a number value', 2)
  end})
end

return setmetatable(M, {__index = function(_, name) return nn[name] end})

--- Criteria under Torch7's names, over amp's tensors. criterion:forward(x, y) gives the loss as a Lua number, as it did, and
-- keeps nothing of the graph; criterion:backward(x, y) gives the gradient in the input, for net:backward; criterion(x, y)
-- gives the loss as a tensor, which loss:backward() differentiates.
--
--   local criterion = nn.ClassNLLCriterion()
--   local loss = criterion:forward(net:forward(x), y)
-- Called by amp.torch7.nn with its module table.
local amp = require 'amp'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw
local definitions = require 'amp.torch7.layers'

return function(M)
  local Criterion = Module:extend 'nn.Criterion'
  M.Criterion = Criterion

  -- A copy of an input to differentiate in, tables too; `leaves` lists its tensors.
  local function fresh(v, leaves)
    if amp.is_tensor(v) then
      local t = v:detach()
      t.requires_grad = true
      leaves[#leaves + 1] = t
      return t
    end
    local out = {}
    for i, x in ipairs(v) do out[i] = fresh(x, leaves) end
    return out
  end
  local function refill(v, grads, at)
    if amp.is_tensor(v) then
      at[1] = at[1] + 1
      return grads[at[1]]
    end
    local out = {}
    for i, x in ipairs(v) do out[i] = refill(x, grads, at) end
    return out
  end

  --- The gradient of the loss in its input.
  function Criterion:backward(input, target)
    local leaves = {}
    local copy = fresh(input, leaves)
    local loss = amp.enable_grad(function() return self:loss(copy, target) end)
    local grads = amp.grad({loss}, leaves, {allow_unused = true})
    for i, leaf in ipairs(leaves) do grads[i] = grads[i] or amp.zeros_like(leaf) end
    self.gradInput = refill(input, grads, {0})
    return self.gradInput
  end
  Criterion.updateGradInput = Criterion.backward

  --- The loss, a number.
  function Criterion:forward(input, target)
    self.output = amp.no_grad(function() return self:loss(input, target) end):item()
    return self.output
  end
  Criterion.updateOutput = function(self, input, target) return self:forward(input, target) end

  -- criterion(input, target): the loss, a tensor
  local function extend(name)
    local C = Criterion:extend(name)
    local mt = rawget(C, '__instance')
    mt.__call = function(self, input, target) return self:loss(input, target) end
    return C
  end

  for name, spec in pairs(definitions.losses) do
    local C = extend(spec.name)
    function C:init(...)
      definitions.check_count(spec, select('#', ...))
      spec.init(self, ...)
      for _, field in ipairs(spec.tensors or {}) do
        if amp.is_tensor(self[field]) then self:register_buffer(field, self[field]) elseif self[field] ~= nil then
          raise(spec.name, '%s must be a tensor, got %s', field, type(self[field]))
        end
      end
    end
    C.new_tensor = function(_, rows) return amp.tensor(rows, {dtype = 'float64'}) end
    function C:loss(input, target) return (spec.compute(self, input, target, self)) end
    M[name] = C
  end

  -- -- Sums of criteria ------------------------------------------------------------------------------

  local function several(name, init, pick)
    local C = extend('nn.' .. name)
    function C:init(...)
      definitions.check_count({name = 'nn.' .. name, most = init and 1 or 0}, select('#', ...))
      self.criterions, self.weights = {}, {}
      if init then init(self, ...) end
    end
    function C:add(criterion, weight)
      local n = #self.criterions + 1
      self.criterions[n], self.weights[n] = criterion, weight or 1
      self['criterion' .. n] = criterion
      return self
    end
    function C:loss(input, target)
      if #self.criterions == 0 then raise('nn.' .. name, 'no criterion was added') end
      local sum
      for i = 1, #self.criterions do
        local criterion = self['criterion' .. i]
        local x, y = pick(self, i, input, target)
        local loss = criterion:loss(x, y) * self.weights[i]
        sum = sum and sum + loss or loss
      end
      return sum
    end
    M[name] = C
  end
  several('MultiCriterion', nil, function(_, _, x, y) return x, y end)
  several('ParallelCriterion', function(self, repeat_target) self.repeat_target = repeat_target end,
    function(self, i, x, y) return x[i], self.repeat_target and y or y[i] end)
end

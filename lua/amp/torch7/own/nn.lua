--- The table `nn` on Torch7's own tensors: modules, containers, criteria, nn.utils.
local core = require 'amp.torch7.own.core'
local classes = require 'amp.torch7.class'
local torch = require 'amp.torch7.own.torch'
local is_tensor = core.is_tensor

local nn = {utils = {}, tables = {}}
classes.roots.nn = nn
local utils = nn.utils

-- -- nn.utils -----------------------------------------------------------------------------------------------

--- Tensors of nested tables and modules in another type; what shared memory shares it still.
function utils.recursiveType(v, name, cache)
  cache = cache or {}
  if is_tensor(v) then
    local t = core.types[name]
    local of = getmetatable(v).__type
    -- only floats follow
    if of.kind ~= 'Float' and of.kind ~= 'Double' and of.kind ~= 'Half' then return v end
    if cache[v] then return cache[v] end
    local u = nn.copy_tensor(v, cache, function(h) return h:to(t.dtype):to(t.device) end)
    cache[v] = u
    return u
  end
  if type(v) ~= 'table' then return v end
  if torch.isTypeOf(v, 'nn.Module') or torch.isTypeOf(v, 'nn.Criterion') then
    if not cache[v] then
      cache[v] = true
      v:type(name, cache)
    end
    return v
  end
  if getmetatable(v) ~= nil then return v end
  for k, x in pairs(v) do v[k] = utils.recursiveType(x, name, cache) end
  return v
end
local function walk(f)
  local function go(a, b, ...)
    if type(b) == 'table' then
      a = type(a) == 'table' and a or {a}
      for k in pairs(b) do a[k] = go(a[k], b[k], ...) end
      for k in pairs(a) do
        if b[k] == nil then a[k] = nil end
      end
      return a, b
    end
    return f(a, b, ...), b
  end
  return go
end
utils.recursiveResizeAs = walk(function(a, b)
  a = is_tensor(a) and a or b.new()
  return a:resize(b:size())
end)
utils.recursiveCopy = walk(function(a, b)
  a = is_tensor(a) and a or b.new()
  return a:resize(b:size()):copy(b)
end)
function utils.recursiveFill(a, v)
  if type(a) == 'table' then
    for _, x in pairs(a) do utils.recursiveFill(x, v) end
    return a
  end
  return a:fill(v)
end
function utils.recursiveAdd(a, scale, b)
  if b == nil then scale, b = 1, scale end
  if type(b) == 'table' then
    a = type(a) == 'table' and a or {a}
    for k in pairs(b) do a[k] = utils.recursiveAdd(a[k], scale, b[k]) end
    return a, b
  end
  return a:add(scale, b), b
end
function utils.addSingletonDimension(first, second, third)
  local view, t, d
  if third ~= nil or is_tensor(second) then view, t, d = first, second, third else t, d = first, second end
  local out = core.wrap(core.amp_of(t):unsqueeze(d or 1))
  return view and view:set(out) or out
end
function utils.contiguousView(out, t, ...)
  out = out or t.new()
  if t:isContiguous() then out:view(t, ...) else
    out:resize(t:size()):copy(t)
    out:view(out, ...)
  end
  return out
end
--- Empty fields: tensors without dimensions, tables without elements.
function utils.clear(self, ...)
  local names = {...}
  if type(names[1]) == 'table' then names = names[1] end
  for _, name in ipairs(names) do
    local v = self[name]
    if is_tensor(v) then self[name] = v.new() elseif type(v) == 'table' then self[name] = {} elseif v ~= nil then self[name] = nil end
  end
  nn.records[self] = nil
  return self
end
--- Gradients cut to a norm, given by clipping scripts of old: the norm that was.
function utils.clipgrads(grads, most)
  local norm = grads:norm()
  if norm > most then grads:mul(most / norm) end
  return norm
end

require 'amp.torch7.own.module'(nn, torch)
require 'amp.torch7.own.containers'(nn, torch)
require 'amp.torch7.own.composed'(nn, torch)
require 'amp.torch7.own.criteria'(nn, torch)
require 'amp.torch7.own.index_linear'(nn, torch)
require 'amp.torch7.own.kmeans'(nn, torch)
require 'amp.torch7.own.hessian'(nn, torch)
require 'amp.torch7.own.jacobian'(nn, torch)

torch.find_class = function(name) return nn[name] end

--- Tables of connections of planes for SpatialConvolutionMap.
function nn.tables.full(nin, nout)
  local t = torch.Tensor(nin * nout, 2)
  for o = 1, nout do
    for i = 1, nin do
      t[(o - 1) * nin + i][1], t[(o - 1) * nin + i][2] = i, o
    end
  end
  return t
end
function nn.tables.oneToOne(n)
  local t = torch.Tensor(n, 2)
  for i = 1, n do t[i]:fill(i) end
  return t
end
function nn.tables.random(nin, nout, nto)
  local t = torch.Tensor(nto * nout, 2)
  local order, at = torch.randperm(nin), 0
  for o = 1, nout do
    for k = 1, nto do
      at = at + 1
      if at > nin then order, at = torch.randperm(nin), 1 end
      t[(o - 1) * nto + k][1], t[(o - 1) * nto + k][2] = order[at], o
    end
  end
  return t
end

--- The old trainer: plain stochastic gradient descent over a table of {input, target}.
local SGD = classes.class('nn.StochasticGradient', nil, nn)
function SGD:__init(module, criterion)
  self.learningRate, self.learningRateDecay, self.maxIteration, self.shuffleIndices = 0.01, 0, 25, true
  self.module, self.criterion, self.verbose = module, criterion, true
end
function SGD:train(dataset)
  local iteration, rate, module, criterion = 1, self.learningRate, self.module, self.criterion
  local order = torch.randperm(dataset:size())
  if not self.shuffleIndices then order = torch.range(1, dataset:size()) end
  print '# StochasticGradient: training'
  while true do
    local sum = 0
    for t = 1, dataset:size() do
      local example = dataset[order[t]]
      local input, target = example[1], example[2]
      sum = sum + criterion:forward(module:forward(input), target)
      module:updateGradInput(input, criterion:updateGradInput(module.output, target))
      module:accUpdateGradParameters(input, criterion.gradInput, rate)
      if self.hookExample then self.hookExample(self, example) end
    end
    sum = sum / dataset:size()
    if self.hookIteration then self.hookIteration(self, iteration, sum) end
    if self.verbose then print('# current error = ' .. sum) end
    iteration = iteration + 1
    rate = self.learningRate / (1 + iteration * self.learningRateDecay)
    if self.maxIteration > 0 and iteration > self.maxIteration then
      print '# StochasticGradient: you have reached the maximum number of iterations'
      print('# training error = ' .. sum)
      break
    end
  end
end

return nn

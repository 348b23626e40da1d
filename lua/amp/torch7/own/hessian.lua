--- nn.hessian: the diagonal of the second derivatives, sent backward as gradients are (after Y. LeCun, "Efficient BackProp").
--
--   nn.hessian.enable()                                   -- once
--   net:initDiagHessianParameters()
--   net:forward(x)
--   net:updateDiagHessianInput(x, criterion:updateDiagHessianInput(net.output, y))
--   net:accDiagHessianParameters(x, criterion.diagHessianInput)        -- into diagHessianWeight, diagHessianBias
--
-- y = W x has d2E/dx2 = W^2 d2E/dy2 and d2E/dW2 = d2E/dy2 x^2: the gradients of the layer with its weight, or its input, squared. Of
-- a function of single elements the derivative is squared; its own second derivative is left out, as there.
local raise = require('amp.error').throw

local linear = {'Linear', 'SpatialConvolution', 'SpatialConvolutionMM', 'SpatialConvolutionLocal', 'SpatialFullConvolution', 'SpatialConvolutionMap',
  'SpatialFullConvolutionMap'}
local pointwise = {'Tanh', 'TanhShrink', 'Square', 'Sqrt', 'Sigmoid', 'ReLU', 'HardTanh', 'SoftPlus', 'SoftSign', 'Abs', 'Exp', 'Log'}

-- A layer like m that shares what m has, apart from its results.
local function twin(m)
  local t = setmetatable({}, getmetatable(m))
  for k, v in pairs(m) do t[k] = v end
  t.output, t.gradInput = m.output.new(), m.output.new()
  return t
end

return function(nn, torch)
  local hessian = {}
  nn.hessian = hessian

  local function add_linear(L)
    function L:initDiagHessianParameters()
      for _, name in ipairs {'Weight', 'Bias'} do
        local p = self[name:lower()]
        if p then self['diagHessian' .. name] = p.new():resizeAs(p):zero() end
      end
    end
    function L:updateDiagHessianInput(input, diagHessianOutput)
      local t = twin(self)
      t.weight = self.weight:clone():pow(2)
      self.diagHessianInput = t:updateGradInput(input, diagHessianOutput):clone()
      return self.diagHessianInput
    end
    function L:accDiagHessianParameters(input, diagHessianOutput)
      if not self.diagHessianWeight then raise('nn.hessian', '%s: call initDiagHessianParameters() first', torch.type(self)) end
      local t = twin(self)
      t.gradWeight, t.gradBias = self.diagHessianWeight, self.diagHessianBias
      t:accGradParameters(input:clone():pow(2), diagHessianOutput, 1)
    end
  end
  local function add_pointwise(L)
    function L:updateDiagHessianInput(input, diagHessianOutput)
      local t = twin(self)
      t.inplace = nil
      local slope = t:updateGradInput(input, diagHessianOutput.new():resizeAs(diagHessianOutput):fill(1))
      self.diagHessianInput = slope:clone():pow(2):cmul(diagHessianOutput)
      return self.diagHessianInput
    end
  end
  local function add_containers()
    local Module, Container, Sequential = nn.Module, nn.Container, nn.Sequential
    function Module:updateDiagHessianInput() raise('nn.hessian', '%s has no second derivatives', torch.type(self)) end
    function Module.accDiagHessianParameters() end
    function Module.initDiagHessianParameters() end
    function Container:initDiagHessianParameters()
      for _, m in ipairs(self.modules) do m:initDiagHessianParameters() end
    end
    -- f(module, its input, what comes to it), from the last module to the first
    local function backward(self, input, h, f)
      for i = #self.modules, 1, -1 do h = f(self.modules[i], i > 1 and self.modules[i - 1].output or input, h) end
      return h
    end
    function Sequential:updateDiagHessianInput(input, diagHessianOutput)
      self.diagHessianInput = backward(self, input, diagHessianOutput, function(m, x, h) return m:updateDiagHessianInput(x, h) end)
      return self.diagHessianInput
    end
    function Sequential:accDiagHessianParameters(input, diagHessianOutput)
      backward(self, input, diagHessianOutput, function(m, x, h)
        m:accDiagHessianParameters(x, h)
        return m.diagHessianInput
      end)
    end
    for _, name in ipairs {'Reshape', 'View', 'Identity'} do
      nn[name].updateDiagHessianInput = function(self, input, h)
        self.diagHessianInput = h:contiguous():viewAs(input)
        return self.diagHessianInput
      end
    end
  end
  local function add_criteria()
    function nn.Criterion:updateDiagHessianInput() raise('nn.hessian', '%s has no second derivatives', torch.type(self)) end
    local function squares(self, input)
      self.diagHessianInput = input.new():resizeAs(input):fill(self.sizeAverage and 2 / input:nElement() or 2)
      return self.diagHessianInput
    end
    nn.MSECriterion.updateDiagHessianInput, nn.WeightedMSECriterion.updateDiagHessianInput = squares, squares
    function nn.L1Cost:updateDiagHessianInput(input)
      self.diagHessianInput = input:ne(0):typeAs(input)
      return self.diagHessianInput
    end
  end
  -- parameters() and getParameters() give the second derivatives as a third result, where they were made.
  local function add_parameters()
    local Module, Container = nn.Module, nn.Container
    local function with_second(parameters)
      return function(self)
        local params, grads = parameters(self)
        if not params then return end
        return params, grads, self.diagHessianWeight and {self.diagHessianWeight, self.diagHessianBias} or nil
      end
    end
    for _, name in ipairs(linear) do nn[name].parameters = with_second(nn[name].parameters) end
    function Container:parameters()
      local params, grads, second = {}, {}, {}
      for _, m in ipairs(self.modules) do
        local p, g, s = m:parameters()
        for i = 1, #(p or {}) do params[#params + 1], grads[#grads + 1], second[#second + 1] = p[i], g[i], s and s[i] end
      end
      return params, grads, #second == #params and second or nil
    end
    local flat = Module.getParameters
    function Module:getParameters()
      local _, _, second = self:parameters()
      local params, grads = flat(self)
      if second and second[1] then return params, grads, Module.flatten(second) end
      return params, grads
    end
  end

  function hessian.enable()
    if hessian.enabled then return end
    hessian.enabled = true
    add_containers()
    for _, name in ipairs(linear) do add_linear(nn[name]) end
    for _, name in ipairs(pointwise) do add_pointwise(nn[name]) end
    add_criteria()
    add_parameters()
  end
end

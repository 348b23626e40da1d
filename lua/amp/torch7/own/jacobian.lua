--- nn.Jacobian: gradients of modules against differences, for tests of layers.
return function(nn, torch)
  local J = {}
  nn.Jacobian = J

  -- column i: the gradient of output i in the input, or in a parameter
  function J.backward(module, input, param, dparam)
    local out = module:forward(input)
    local g = out.new():resize(out:size()):zero()
    local flat = g:view(-1)
    local matrix = torch.zeros((param or input):nElement(), flat:nElement())
    for i = 1, flat:nElement() do
      g:zero()
      flat[i] = 1
      module:zeroGradParameters()
      local din = module:updateGradInput(input, g)
      module:accGradParameters(input, g)
      matrix:select(2, i):copy(param and dparam or din)
    end
    return matrix
  end
  function J.forward(module, input, param, step)
    step = step or 1e-6
    local p = param or input
    local flat = p.new(p):resize(p:nElement())
    local matrix
    for i = 1, flat:nElement() do
      local was = flat[i]
      flat[i] = was - step
      local low = module:forward(input):clone()
      flat[i] = was + step
      local high = module:forward(input):clone()
      flat[i] = was
      matrix = matrix or torch.zeros(flat:nElement(), low:nElement())
      matrix:select(1, i):copy(high:add(-1, low):div(2 * step))
    end
    return matrix
  end
  local function randomise(t, low, high) t:copy(torch.rand(t:nElement()):mul((high or 2) - (low or -2)):add(low or -2)) end
  --- The largest difference between the gradient in the input and the one by differences.
  function J.testJacobian(module, input, low, high, step)
    randomise(input, low, high)
    return (J.forward(module, input, nil, step) - J.backward(module, input)):abs():max()
  end
  function J.testJacobianParameters(module, input, param, dparam, low, high, step)
    randomise(input, low, high)
    randomise(param, low, high)
    return (J.forward(module, input, param, step) - J.backward(module, input, param, dparam)):abs():max()
  end
  --- As testJacobianParameters, of the parameters that accUpdateGradParameters changes with a rate of 1.
  function J.testJacobianUpdateParameters(module, input, param, low, high, step)
    randomise(input, low, high)
    randomise(param, low, high)
    local out = module:forward(input)
    local g = out.new():resize(out:size()):zero()
    local flat, start = g:view(-1), param:clone()
    local updated = torch.zeros(param:nElement(), flat:nElement())
    for i = 1, flat:nElement() do
      param:copy(start)
      g:zero()
      flat[i] = 1
      module:forward(input)
      module:updateGradInput(input, g)
      module:accUpdateGradParameters(input, g, 1)
      updated:select(2, i):copy(param)
    end
    param:copy(start)
    local slopes = J.forward(module, input, param, step)
    local want = slopes:mul(-1)
    for i = 1, want:size(1) do want:select(1, i):add(start:view(-1)[i]) end
    return (updated - want):abs():max()
  end
  --- What comes back from a file gives the same: the errors of the output and of the gradient.
  function J.testIO(module, input, low, high)
    local go = module:forward(input):clone()
    randomise(go, low, high)
    module:zeroGradParameters()
    module:updateGradInput(input, go)
    local out, grad = module.output:clone(), module.gradInput:clone()
    local again = torch.deserialize(torch.serialize(module:clearState()))
    again:forward(input)
    again:zeroGradParameters()
    again:updateGradInput(input, go)
    return (out - again.output):abs():max(), grad:nElement() == 0 and 0 or (grad - again.gradInput):abs():max()
  end
end

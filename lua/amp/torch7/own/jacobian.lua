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
  -- -- Sparse inputs, whose second column holds the values --------------------------------------------------

  local sparse = {testJacobianParameters = J.testJacobianParameters, testJacobianUpdateParameters = J.testJacobianUpdateParameters}
  nn.SparseJacobian = sparse
  local function second_column(t) return (torch.isTensor(t) and t or t[1]):select(2, 2) end
  function sparse.testJacobian(module, input, low, high)
    local column, step, worst = second_column(input), 1e-6, 0
    local values = torch.Tensor(column:size(1))
    randomise(values, low, high)
    column:copy(values)
    local g = module:forward(input):clone()
    local flat = g:view(-1)
    for k = 1, flat:nElement() do
      g:zero()
      flat[k] = 1
      module:forward(input)
      module:zeroGradParameters()
      local got = second_column(module:updateGradInput(input, g)):clone()
      for i = 1, column:size(1) do
        local was = column[i]
        column[i] = was - step
        local below = module:forward(input):clone():view(-1)[k]
        column[i] = was + step
        local slope = (module:forward(input):clone():view(-1)[k] - below) / (2 * step)
        column[i] = was
        local place = got:size(1) == column:size(1) and i or input[i][1] -- a gradient of all places
        worst = math.max(worst, math.abs(slope - got[place]))
      end
    end
    return worst
  end
  function sparse.testIO(...) return J.testIO(...) end

  -- -- All ways to change a parameter ---------------------------------------------------------------------

  -- n modules that share one parameter, after forward and backward of each by `change`.
  local function shared_twice(module, input, gradOutput, weight, change)
    local a, b = module:clone(), module:clone()
    b:share(a, weight)
    for _, m in ipairs {a, b} do
      m:forward(input)
      m:zeroGradParameters()
    end
    for _, m in ipairs {a, b} do m:updateGradInput(input, gradOutput) end
    for _, m in ipairs {a, b} do change(m) end
    return a, b
  end
  --- Errors by the way in which a step of a random rate was taken: by gradients or at once, alone or shared by two.
  function J.testAllUpdate(module, input, weight, gradWeight)
    local rate, errors = torch.uniform(0.1, 1), {}
    local plain = module:clone()
    local gradOutput = torch.rand(plain:forward(input):size()):typeAs(plain.output)
    local start = plain[weight]:clone()
    plain:zeroGradParameters()
    plain:backward(input, gradOutput)
    local function want(steps) return start - plain[gradWeight] * (rate * steps) end
    local function off(m, steps) return (want(steps) - m[weight]):norm() end
    plain:updateParameters(rate)
    errors.accGradParameters = off(plain, 1)
    local at_once = module:clone()
    at_once:forward(input)
    at_once:updateGradInput(input, gradOutput)
    at_once:accUpdateGradParameters(input, gradOutput, rate)
    errors.accUpdateGradParameters = off(at_once, 1)
    local a, b = shared_twice(module, input, gradOutput, weight, function(m) m:accGradParameters(input, gradOutput) end)
    a:updateParameters(rate)
    b:updateParameters(rate)
    errors['accGradParameters [shared]'] = off(a, 2) + off(b, 2)
    a, b = shared_twice(module, input, gradOutput, weight, function(m) m:accUpdateGradParameters(input, gradOutput, rate) end)
    errors['accUpdateGradParameters [shared]'] = off(a, 2) + off(b, 2)
    return errors
  end

  -- -- Second derivatives (own/hessian.lua) ---------------------------------------------------------------

  -- A layer that is linear in `of` has the sum of its gradients' squares as the diagonal.
  local function diagonal(name, of)
    J['testDiagHessian' .. name] = function(module, input, low, high)
      randomise(input, low, high)
      module:initDiagHessianParameters()
      local out = module:forward(input)
      local ones = out.new():resizeAs(out):fill(1)
      module:updateDiagHessianInput(input, ones)
      module:accDiagHessianParameters(input, ones)
      local got = module['diagHessian' .. name]
      local want, g = got.new():resizeAs(got):zero(), out.new():resizeAs(out)
      local flat = g:view(-1)
      for i = 1, flat:nElement() do
        g:zero()
        flat[i] = 1
        module:zeroGradParameters()
        module:updateGradInput(input, g)
        module:accGradParameters(input, g)
        want:addcmul(module[of], module[of])
      end
      return (got - want):abs():max()
    end
  end
  diagonal('Input', 'gradInput')
  diagonal('Weight', 'gradWeight')
  diagonal('Bias', 'gradBias')

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

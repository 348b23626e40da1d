--- Modules of nn that stand on others: Bottle, WeightNorm, Maxout, Constant, Copy, OneHot and their kind.
local amp = require 'amp'
local core = require 'amp.torch7.own.core'
local classes = require 'amp.torch7.class'
local raise = require('amp.error').throw
local is_tensor, amp_of, wrap = core.is_tensor, core.amp_of, core.wrap

return function(nn, torch)
  local function class(name, parent) return classes.class('nn.' .. name, parent or 'nn.Module', nn) end

  -- -- Around one module ----------------------------------------------------------------------------

  local Bottle, Decorator = class('Bottle', 'nn.Decorator')
  function Bottle:__init(module, nInputDim, nOutputDim)
    Decorator.__init(self, module)
    self.nInputDim = nInputDim or 2
    self.nOutputDim = nOutputDim or self.nInputDim
  end
  -- The leading dimensions as one.
  local function joined(t, dims)
    local s = t:size():totable()
    local extra, lead = #s - dims, 1
    for i = 1, extra + 1 do lead = lead * s[i] end
    local shape = {lead}
    for i = extra + 2, #s do shape[#shape + 1] = s[i] end
    return t:contiguous():view(unpack(shape)), extra
  end
  function Bottle:updateOutput(input)
    local x, extra = input, 0
    if input:dim() > self.nInputDim then x, extra = joined(input, self.nInputDim) end
    local y = self.modules[1]:updateOutput(x)
    self.inner_input = x
    if extra > 0 then
      local s, lead = y:size():totable(), {}
      if #s ~= self.nOutputDim then raise('nn.Bottle', 'an output of %d dimensions expected, got %d', self.nOutputDim, #s) end
      local before = 1
      for i = 1, extra do
        lead[i] = input:size(i)
        before = before * lead[i]
      end
      lead[extra + 1] = s[1] / before
      for i = 2, #s do lead[#lead + 1] = s[i] end
      y = y:contiguous():view(unpack(lead))
    end
    self.output = y
    return y
  end
  local function inner(self, input, gradOutput)
    if input:dim() <= self.nInputDim then return input, gradOutput end
    return self.inner_input or joined(input, self.nInputDim), joined(gradOutput, self.nOutputDim)
  end
  function Bottle:updateGradInput(input, gradOutput)
    local x, g = inner(self, input, gradOutput)
    local r = self.modules[1]:updateGradInput(x, g)
    self.gradInput = r and r:contiguous():viewAs(input)
    return self.gradInput
  end
  function Bottle:accGradParameters(input, gradOutput, scale)
    local x, g = inner(self, input, gradOutput)
    self.modules[1]:accGradParameters(x, g, scale)
  end
  function Bottle:accUpdateGradParameters(input, gradOutput, lr)
    local x, g = inner(self, input, gradOutput)
    self.modules[1]:accUpdateGradParameters(x, g, lr)
  end

  --- The weight of a module as g * v / |v|, g and v being the parameters.
  local WeightNorm = class('WeightNorm', 'nn.Decorator')
  function WeightNorm:__init(module, outputDim)
    Decorator.__init(self, module)
    if not is_tensor(module.weight) then raise('nn.WeightNorm', 'a module with a weight expected, got %s', torch.type(module)) end
    self.outputDim = outputDim or 1
    self.weight, self.gradWeight, self.bias, self.gradBias = module.weight, module.gradWeight, module.bias, module.gradBias
    local n = self.weight:size(self.outputDim)
    local rest = self.weight:nElement() / n
    self.v, self.gradV = torch.Tensor(n, rest), torch.Tensor(n, rest):zero()
    self.g, self.gradG = torch.Tensor(n), torch.Tensor(n):zero()
    self:resetInit()
  end
  function WeightNorm:resetInit()
    self.v:normal(0, math.sqrt(2 / self.v:size(2)))
    self.g:copy(self.v:norm(2, 2))
    if self.bias then self.bias:zero() end
    self:updateWeight()
  end
  -- The weight from v and g, amp tensors.
  local function weight_of(self, v, g)
    local w = v * (g:unsqueeze(2) / ((v * v):sum(2, true) + 1e-4):sqrt())
    local size = self.weight:size():totable()
    local first = table.remove(size, self.outputDim)
    table.insert(size, 1, first)
    w = w:reshape(unpack(size))
    if self.outputDim == 1 then return w end
    local order = {}
    for d = 1, #size do order[d] = d < self.outputDim and d + 1 or d == self.outputDim and 1 or d end
    return w:permute(unpack(order))
  end
  function WeightNorm:updateWeight() self.weight:copy(wrap(weight_of(self, amp_of(self.v), amp_of(self.g)))) end
  function WeightNorm:evaluate()
    if self.train ~= false then
      self:updateWeight()
      Decorator.evaluate(self)
    end
  end
  function WeightNorm:updateOutput(input)
    if self.train ~= false then self:updateWeight() end
    self.output = self.modules[1]:updateOutput(input)
    return self.output
  end
  function WeightNorm:accGradParameters(input, gradOutput, scale)
    self.modules[1]:accGradParameters(input, gradOutput, scale)
    local v, g = amp_of(self.v):detach(), amp_of(self.g):detach()
    v.requires_grad, g.requires_grad = true, true
    local w = amp.enable_grad(weight_of, self, v, g)
    local grads = amp.grad({w}, {v, g}, {grad_outputs = {amp_of(self.gradWeight):reshape(w:size())}})
    self.gradV:copy(wrap(grads[1]))
    self.gradG:copy(wrap(grads[2]))
  end
  function WeightNorm:backward(input, gradOutput, scale)
    self:updateGradInput(input, gradOutput)
    self:accGradParameters(input, gradOutput, scale)
    return self.gradInput
  end
  function WeightNorm:zeroGradParameters()
    self.modules[1]:zeroGradParameters()
    self.gradV:zero()
    self.gradG:zero()
  end
  function WeightNorm:updateParameters(rate)
    local params, grads = self:parameters()
    for i, p in ipairs(params) do p:add(-rate, grads[i]) end
  end
  function WeightNorm:parameters()
    if self.bias then return {self.v, self.g, self.bias}, {self.gradV, self.gradG, self.gradBias} end
    return {self.v, self.g}, {self.gradV, self.gradG}
  end

  local Maxout, Sequential = class('Maxout', 'nn.Sequential')
  function Maxout:__init(inputSize, outputSize, maxoutNumber, preprocess)
    Sequential.__init(self)
    self:add(nn.Linear(inputSize, outputSize * maxoutNumber))
    self:add(nn.View(maxoutNumber, outputSize):setNumInputDims(1))
    if preprocess then self:add(preprocess) end
    self:add(nn.Max(1, 2))
  end
  nn.LinearWeightNorm.initFromWeight = function(self, weight)
    weight = weight or self.weight
    self.g:copy(weight:norm(2, 2))
    self.v:copy(weight)
    return self
  end
  nn.LinearWeightNorm.updateWeightMatrix = function(self)
    local v = amp_of(self.v)
    self.weight = wrap(v * (amp_of(self.g) / amp.clamp_min((v * v):sum(2, true):sqrt(), self.eps)))
  end
  nn.LinearWeightNorm.fromLinear = function(linear)
    local m = nn.LinearWeightNorm(linear.weight:size(2), linear.weight:size(1), linear.bias ~= nil)
    m:initFromWeight(linear.weight)
    m:updateWeightMatrix()
    if linear.bias then m.bias:copy(linear.bias) end
    return m
  end
  nn.LinearWeightNorm.toLinear = function(self)
    self:updateWeightMatrix()
    local m = nn.Linear(self.inputSize, self.outputSize, self.bias ~= nil)
    m.weight:copy(self.weight)
    if self.bias then m.bias:copy(self.bias) end
    return m
  end

  --- A module whose tensors keep their type when the net's change.
  local DontCast = class('DontCast', 'nn.Decorator')
  local function cast_tree(v, name)
    if is_tensor(v) then return v:type(name) end
    if type(v) ~= 'table' then return v end
    local out = {}
    for k, x in pairs(v) do out[k] = cast_tree(x, name) end
    return out
  end
  local function type_in(v)
    if is_tensor(v) then return v:type() end
    for _, x in pairs(type(v) == 'table' and v or {}) do
      local t = type_in(x)
      if t then return t end
    end
  end
  function DontCast:__init(module, castin, castout, moduleType)
    Decorator.__init(self, module)
    self.castin = castin
    if castout == nil then castout = castin end
    self.castout = castout
    self.moduleType = moduleType or type_in(module.output) or type_in((module:parameters()))
    self.outer = torch.getdefaulttensortype()
  end
  function DontCast:updateOutput(input)
    if self.castin then input = cast_tree(input, self.moduleType) end
    self.inner = input
    local y = self.modules[1]:updateOutput(input)
    self.output = self.castout and cast_tree(y, self.outer) or y
    return self.output
  end
  function DontCast:updateGradInput(input, gradOutput)
    local g = self.modules[1]:updateGradInput(self.inner or input, self.castout and cast_tree(gradOutput, self.moduleType) or gradOutput)
    self.gradInput = self.castin and cast_tree(g, type_in(input)) or g
    return self.gradInput
  end
  for _, name in ipairs {'accGradParameters', 'accUpdateGradParameters'} do
    DontCast[name] = function(self, input, gradOutput, scale)
      self.modules[1][name](self.modules[1], self.inner or input, self.castout and cast_tree(gradOutput, self.moduleType) or gradOutput, scale)
    end
  end
  function DontCast:type(name)
    if name == nil then return self.moduleType end
    self.outer = name
    return self
  end

  -- -- Small ones -----------------------------------------------------------------------------------------

  local Constant, Module = class 'Constant'
  function Constant:__init(value, nInputDim)
    Module.__init(self)
    self.value = type(value) == 'number' and torch.Tensor {value} or value
    if not is_tensor(self.value) then raise('nn.Constant', 'a number or a tensor expected, got %s', type(value)) end
    self.nInputDim = nInputDim
  end
  function Constant:updateOutput(input)
    if self.nInputDim and input:dim() > self.nInputDim then
      local s = self.value:size():totable()
      self.output = self.value:view(1, unpack(s)):expand(input:size(1), unpack(s)):clone()
    else
      self.output = self.value:clone()
    end
    return self.output
  end
  function Constant:updateGradInput(input)
    self.gradInput = input.new():resize(input:size()):zero()
    return self.gradInput
  end

  --- From one type to another.
  local Copy = class 'Copy'
  function Copy:__init(intype, outtype, forceCopy, dontCast)
    Module.__init(self)
    self.intype, self.outtype = intype or torch.getdefaulttensortype(), outtype or torch.getdefaulttensortype()
    self.forceCopy, self.dontCast = forceCopy, dontCast
  end
  function Copy:updateOutput(input)
    self.output = input:type(self.outtype)
    if self.forceCopy and self.output == input then self.output = input:clone() end
    return self.output
  end
  function Copy:updateGradInput(input, gradOutput)
    self.gradInput = gradOutput:type(input:type())
    return self.gradInput
  end
  function Copy:type(name, cache)
    if name and self.dontCast then return self end
    return Module.type(self, name, cache)
  end

  local OneHot = class 'OneHot'
  function OneHot:__init(outputSize)
    Module.__init(self)
    self.outputSize = outputSize
  end
  function OneHot:updateOutput(input)
    local at = type(input) == 'number' and amp.tensor({input}, {dtype = 'int64'}) or amp_of(input):long()
    local y = amp.one_hot(at, {num_classes = self.outputSize}):to(core.types[self._type].dtype)
    self.output = wrap(type(input) == 'number' and y:reshape(-1) or y)
    return self.output
  end
  function OneHot:updateGradInput(input)
    if type(input) == 'number' then return 0 end
    self.gradInput = self.gradInput.new():resize(input:size()):zero()
    return self.gradInput
  end

  local ZeroGrad = class 'ZeroGrad'
  function ZeroGrad:updateOutput(input)
    self.output = input
    return input
  end
  function ZeroGrad:updateGradInput(input)
    self.gradInput = nn.zeros_like(input)
    return self.gradInput
  end

  local PrintSize = class 'PrintSize'
  function PrintSize:__init(prefix)
    Module.__init(self)
    self.prefix = prefix or 'PrintSize'
  end
  function PrintSize:updateOutput(input)
    print(self.prefix .. ':input\n', is_tensor(input) and input:size() or torch.type(input))
    self.output = input
    return input
  end
  function PrintSize:updateGradInput(_, gradOutput)
    print(self.prefix .. ':gradOutput\n', is_tensor(gradOutput) and gradOutput:size() or torch.type(gradOutput))
    self.gradInput = gradOutput
    return gradOutput
  end

  --- An error where a module's values are not numbers.
  local NaN = class('NaN', 'nn.Decorator')
  local ids = 0
  function NaN.newId()
    ids = ids + 1
    return ids
  end
  function NaN:__init(module, id)
    Decorator.__init(self, module)
    self.id = id or NaN.newId()
  end
  function NaN:recursiveIsNaN(v)
    if is_tensor(v) then return v:nElement() > 0 and amp_of(v):isnan():any():item() end
    for _, x in pairs(type(v) == 'table' and v or {}) do
      if self:recursiveIsNaN(x) then return true end
    end
    return false
  end
  local function check_nan(self, what, v)
    if self:recursiveIsNaN(v) then error(('NaN found in %s of module :\n%s'):format(what, tostring(self)), 0) end
  end
  function NaN:updateOutput(input)
    self.output = self.modules[1]:updateOutput(input)
    if self:recursiveIsNaN(self.output) then
      check_nan(self, 'parameters', (self:parameters()))
      check_nan(self, 'input', input)
      check_nan(self, 'output', self.output)
    end
    return self.output
  end
  function NaN:updateGradInput(input, gradOutput)
    self.gradInput = self.modules[1]:updateGradInput(input, gradOutput)
    if self:recursiveIsNaN(self.gradInput) then
      check_nan(self, 'gradOutput', gradOutput)
      check_nan(self, 'gradInput', self.gradInput)
    end
    return self.gradInput
  end
  function NaN:accGradParameters(input, gradOutput, scale)
    self.modules[1]:accGradParameters(input, gradOutput, scale)
    local _, grads = self:parameters()
    check_nan(self, 'gradParameters', grads)
  end
  function NaN:__tostring__() return torch.type(self) .. '(' .. self.id .. ') @ ' .. tostring(self.modules[1]) end

  --- A module on a GPU of its own: here all are on one, so the module as it is.
  local GPU = class('GPU', 'nn.Decorator')
  function GPU:__init(module, device, outdevice)
    Decorator.__init(self, module)
    self.device, self.outdevice = device, outdevice or device
  end

  --- From one layout to another, by letters: b batch, c channel, h height, w width, f features, t classes.
  local Convert = class 'Convert'
  function Convert:__init(inputShape, outputShape)
    Module.__init(self)
    inputShape = inputShape or 'b*'
    outputShape = outputShape or inputShape
    self.inputShape = inputShape:find 'b' and inputShape or 'b' .. inputShape
    self.outputShape = outputShape:find 'b' and outputShape or 'b' .. outputShape
  end
  -- The converted tensor; all else that it does is a permutation and a view.
  local function converted(self, h)
    local from, to = self.inputShape, self.outputShape
    if from == 'b*' then return h end
    local bare = h:dim() == #from - 1
    if bare then h = h:unsqueeze((from:find 'b')) end
    if h:dim() ~= #from then raise('nn.Convert', "an input of layout '%s' expected, got %s", from, tostring(h:size())) end
    local y
    if to == 'bf' or to == 'b' and h:dim() == 2 then
      local order = {(from:find 'b')}
      for i = 1, #from do
        if i ~= order[1] then order[#order + 1] = i end
      end
      h = h:permute(unpack(order))
      y = to == 'b' and h:select(2, 1) or h:reshape(h:size(1), -1)
    elseif #to == #from then
      local order = {}
      for letter in to:gmatch '.' do
        local at = from:find(letter, 1, true)
        if not at then raise('nn.Convert', "'%s' cannot be made of '%s'", to, from) end
        order[#order + 1] = at
      end
      y = h:permute(unpack(order))
    else
      raise('nn.Convert', "'%s' cannot be made of '%s'", to, from)
    end
    return bare and y:squeeze((to:find 'b')) or y
  end
  function Convert:updateOutput(input)
    self.output = wrap(converted(self, amp_of(input:type(self._type))):contiguous())
    return self.output
  end
  function Convert:updateGradInput(input, gradOutput)
    local x = amp_of(input):to(amp_of(gradOutput).dtype):detach()
    x.requires_grad = true
    local y = amp.enable_grad(converted, self, x)
    self.gradInput = wrap(amp.grad({y}, {x}, {grad_outputs = {amp_of(gradOutput):reshape(y:size())}})[1]):type(input:type())
    return self.gradInput
  end

  --- The same elements in a row: in its input's memory where they lie so.
  local Contiguous = class 'Contiguous'
  local function in_a_row(self, field, t)
    local u = self[field]
    if t:isContiguous() then
      u:set(t)
    else
      if amp_of(u):is_floating_point() and core.address(amp_of(u)) == core.address(amp_of(t)) then u:set() end
      u:resizeAs(t):copy(t)
    end
    return u
  end
  function Contiguous:updateOutput(input) return in_a_row(self, 'output', input) end
  function Contiguous:updateGradInput(_, gradOutput) return in_a_row(self, 'gradInput', gradOutput) end

  --- Nested tables as one list, of the tensors themselves. The list is another only where the input has others.
  local FlattenTable = class 'FlattenTable'
  function FlattenTable:updateOutput(input)
    local flat = {}
    local function go(v)
      if type(v) ~= 'table' then
        flat[#flat + 1] = v
        return #flat
      end
      local at = {}
      for i, x in ipairs(v) do at[i] = go(x) end
      return at
    end
    local map = go(input)
    local same = type(self.output) == 'table' and #self.output == #flat and self.input_map ~= nil
    for i = 1, #flat do same = same and self.output[i] == flat[i] end
    if not same then self.output, self.input_map = flat, map end
    return self.output
  end
  function FlattenTable:updateGradInput(_, gradOutput)
    local function go(at)
      if type(at) ~= 'table' then return gradOutput[at] end
      local out = {}
      for i, x in ipairs(at) do out[i] = go(x) end
      return out
    end
    self.gradInput = go(self.input_map)
    return self.gradInput
  end
  function FlattenTable:clearState()
    self.input_map = nil
    return Module.clearState(self)
  end

  --- A linear layer of which setPartition chooses outputs. `network` holds the weight, the bias lies beside it, as in its files.
  local PartialLinear = class 'PartialLinear'
  function PartialLinear:__init(inputsize, outputsize, bias)
    Module.__init(self)
    local pair = nn.ParallelTable():add(nn.Identity()):add(nn.LookupTable(outputsize, inputsize))
    self.network = nn.Sequential():add(pair):add(nn.MM(false, true))
    if bias ~= false then self.bias, self.gradBias = torch.zeros(1, outputsize), torch.zeros(1, outputsize) end
    self.inputsize, self.outputsize, self.allcolumns = inputsize, outputsize, torch.range(1, outputsize)
    self:resetPartition()
  end
  function PartialLinear:setPartition(indices) self.partition = indices:typeAs(self.allcolumns) end
  function PartialLinear:resetPartition() self.partition = self.allcolumns end
  function PartialLinear:parameters()
    local lookup = self.network:get(1):get(2)
    return {lookup.weight, self.bias}, {lookup.gradWeight, self.gradBias}
  end
  function PartialLinear:updateOutput(input)
    local y = self.network:forward {input, self.partition}
    self.output = self.bias and y + self.bias:index(2, self.partition:long()):expandAs(y) or y
    return self.output
  end
  function PartialLinear:updateGradInput(input, gradOutput)
    self.gradInput = self.network:updateGradInput({input, self.partition}, gradOutput)[1]
    return self.gradInput
  end
  local function add_to_bias(self, bias, gradOutput, scale)
    if bias then bias:indexAdd(2, self.partition:long(), gradOutput:sum(1):view(1, -1):mul(scale)) end
  end
  function PartialLinear:accGradParameters(input, gradOutput, scale)
    self.network:accGradParameters({input, self.partition}, gradOutput, scale)
    add_to_bias(self, self.gradBias, gradOutput, scale or 1)
  end
  function PartialLinear:accUpdateGradParameters(input, gradOutput, rate)
    self.network:accUpdateGradParameters({input, self.partition}, gradOutput, rate)
    add_to_bias(self, self.bias, gradOutput, -rate)
  end
  function PartialLinear:reset(stdv) self.network:reset(stdv) end

  -- The gradient of a sparse example has all places, n x 2; a list's is a list, one example's a list of one.
  function nn.SparseLinear:updateGradInput(input, gradOutput)
    if not self.doGradInput then return self.gradInput end
    local n = self.weight:size(2)
    local g = gradOutput:view(-1, self.weight:size(1)) * self.weight
    local list = {}
    for i = 1, g:size(1) do
      list[i] = g.new(n, 2)
      list[i]:select(2, 1):copy(torch.range(1, n))
      list[i]:select(2, 2):copy(g[i])
    end
    local batch = is_tensor(input) and input:dim() == 3
    self.gradInput = batch and wrap(amp.stack(core.unwrap_all(list), 1)) or list
    return self.gradInput
  end
  nn.SparseLinear.backward = Module.backward

  --- The time that a module takes, printed now and then.
  local Profile = class('Profile', 'nn.Decorator')
  function Profile:__init(module, interval, name)
    Decorator.__init(self, module)
    self.print_interval, self.module_name = interval or 100, name or torch.type(module)
    self.seconds, self.calls = {updateOutput = 0, updateGradInput = 0}, {updateOutput = 0, updateGradInput = 0}
  end
  for _, name in ipairs {'updateOutput', 'updateGradInput'} do
    Profile[name] = function(self, ...)
      local began = amp.clock()
      local r = Decorator[name](self, ...)
      self.seconds[name] = self.seconds[name] + amp.clock() - began
      self.calls[name] = self.calls[name] + 1
      if self.calls[name] % self.print_interval == 0 then
        print(('%s took %.3f seconds for %d calls of %s'):format(self.module_name, self.seconds[name], self.print_interval, name))
        self.seconds[name] = 0
      end
      return r
    end
  end
end

--- Containers of nn on Torch7's own tensors: what is in `modules` does the work, forward in order and backward in reverse.
local core = require 'amp.torch7.own.core'
local classes = require 'amp.torch7.class'
local raise = require('amp.error').throw
local is_tensor = core.is_tensor

return function(nn, torch)
  local function class(name, parent) return classes.class('nn.' .. name, parent or 'nn.Container', nn) end
  local Container, Module = class('Container', 'nn.Module')

  function Container:__init()
    Module.__init(self)
    self.modules = {}
  end
  function Container:add(module)
    if not torch.isTypeOf(module, 'nn.Module') then raise(torch.type(self), 'a module expected, got %s', torch.type(module)) end
    table.insert(self.modules, module)
    return self
  end
  function Container:get(i) return self.modules[i] end
  function Container:size() return #self.modules end
  function Container:applyToModules(f)
    for _, m in ipairs(self.modules) do f(m) end
  end
  for _, name in ipairs {'zeroGradParameters', 'updateParameters', 'reset'} do
    Container[name] = function(self, ...)
      for _, m in ipairs(self.modules) do m[name](m, ...) end
    end
  end
  function Container:training()
    for _, m in ipairs(self.modules) do m:training() end
    Module.training(self)
  end
  function Container:evaluate()
    for _, m in ipairs(self.modules) do m:evaluate() end
    Module.evaluate(self)
  end
  function Container:share(other, ...)
    for i, m in ipairs(self.modules) do m:share(other.modules[i], ...) end
    return self
  end
  function Container:parameters()
    local params, grads = {}, {}
    for _, m in ipairs(self.modules) do
      local p, g = m:parameters()
      for i = 1, #(p or {}) do params[#params + 1], grads[#grads + 1] = p[i], g[i] end
    end
    return params, grads
  end
  function Container:clearState()
    nn.utils.clear(self, 'output', 'gradInput')
    for _, m in ipairs(self.modules) do m:clearState() end
    return self
  end
  --- Call a method of a module; an error says which module it was.
  local function failed(self, i, e) error(('In %d module of %s:\n%s'):format(i, torch.type(self), tostring(e)), 0) end
  function Container:rethrowErrors(module, i, name, ...)
    local ok, v = pcall(module[name], module, ...)
    if ok then return v end
    failed(self, i, v)
  end
  -- The same with three arguments or fewer, which the compiler takes.
  local rethrow = Container.rethrowErrors
  local function called(self, m, i, name, a, b, c)
    if self.rethrowErrors ~= rethrow then return self:rethrowErrors(m, i, name, a, b, c) end -- a script's own
    local ok, v = pcall(m[name], m, a, b, c)
    if ok then return v end
    failed(self, i, v)
  end
  local function show(self, lines)
    local text = torch.type(self) .. ' {\n' .. table.concat(lines, '\n') .. '\n}'
    return text
  end
  local function indented(m, by) return (tostring(m):gsub('\n', '\n' .. by)) end
  local function branches(self)
    local lines = {'  input'}
    for i, m in ipairs(self.modules) do
      local last = i == #self.modules
      lines[#lines + 1] = ('    %s (%d): %s'):format(last and '`->' or '|`->', i, indented(m, last and '         ' or '    |    '))
    end
    lines[#lines + 1] = '     ... -> output'
    return show(self, lines)
  end
  Container.__tostring__ = branches

  -- -- In a row -----------------------------------------------------------------------------------------

  local Sequential = class 'Sequential'
  function Sequential:add(module)
    Container.add(self, module)
    if #self.modules == 1 then self.gradInput = module.gradInput end
    self.output = module.output
    return self
  end
  function Sequential:insert(module, index)
    index = index or #self.modules + 1
    if index < 1 or index > #self.modules + 1 then raise('nn.Sequential', 'a place from 1 to %d expected, got %s', #self.modules + 1, tostring(index)) end
    table.insert(self.modules, index, module)
    return self
  end
  function Sequential:remove(index)
    index = index or #self.modules
    if index < 1 or index > #self.modules then raise('nn.Sequential', 'there is no module %s of %d', tostring(index), #self.modules) end
    return table.remove(self.modules, index)
  end
  function Sequential:updateOutput(input)
    local x = input
    for i, m in ipairs(self.modules) do x = called(self, m, i, 'updateOutput', x) end
    self.output = x
    return x
  end
  -- the method of each module, the last first, with its input and the gradient in its output
  local function backward_through(name)
    return function(self, input, gradOutput, scale)
      local g = gradOutput
      for i = #self.modules, 1, -1 do
        local m = self.modules[i]
        local x = i > 1 and self.modules[i - 1].output or input
        local r = called(self, m, i, name, x, g, scale)
        if name == 'accGradParameters' or name == 'accUpdateGradParameters' then g = m.gradInput else g = r end
        if name == 'backward' then m.gradInput = g end
      end
      if name == 'updateGradInput' or name == 'backward' then self.gradInput = g end
      return g
    end
  end
  for _, name in ipairs {'updateGradInput', 'backward', 'accGradParameters', 'accUpdateGradParameters'} do Sequential[name] = backward_through(name) end
  function Sequential:__len() return #self.modules end
  function Sequential:__tostring__()
    local chain, lines = {'input'}, {}
    for i, m in ipairs(self.modules) do
      chain[#chain + 1] = ('(%d)'):format(i)
      lines[i] = ('  (%d): %s'):format(i, indented(m, '  '))
    end
    chain[#chain + 1] = 'output'
    table.insert(lines, 1, '  [' .. table.concat(chain, ' -> ') .. ']')
    return show(self, lines)
  end

  -- -- Side by side ---------------------------------------------------------------------------------------

  local add_into
  -- a becomes the sum of a and b, trees of tensors
  add_into = function(a, b)
    if b == nil then return a end
    if a == nil then return nn.deep_copy(b, {}, {}, {}) end
    if type(b) == 'table' then
      for k, v in pairs(b) do a[k] = add_into(a[k], v) end
      return a
    end
    return a:add(b)
  end
  local function zeros_like(v)
    if is_tensor(v) then return v:clone():zero() end
    if type(v) ~= 'table' then return nil end
    local out = {}
    for k, x in pairs(v) do out[k] = zeros_like(x) end
    return out
  end
  nn.add_into, nn.zeros_like = add_into, zeros_like

  -- Containers whose module i has an input and a gradient of its own: input_of(self, i, input), grad_of(self, i, gradOutput),
  -- join(self, input, grads) makes the gradient in the input.
  local function parallel(C, input_of, grad_of, join)
    local function run(name)
      return function(self, input, gradOutput, ...)
        local grads = {}
        for i, m in ipairs(self.modules) do
          if self.slices and not self.slices[i] then break end
          grads[i] = self:rethrowErrors(m, i, name, input_of(self, i, input), grad_of(self, i, gradOutput, m), ...)
        end
        if name == 'updateGradInput' or name == 'backward' then
          self.gradInput = join(self, input, grads)
          return self.gradInput
        end
      end
    end
    for _, name in ipairs {'updateGradInput', 'backward', 'accGradParameters', 'accUpdateGradParameters'} do C[name] = run(name) end
  end
  local function whole(_, _, input) return input end
  local function ith(_, i, t) return t[i] end
  local function summed(_, input, grads)
    local sum
    for i = 1, #grads do sum = add_into(sum, grads[i]) end
    return sum or zeros_like(input)
  end

  local ConcatTable = class 'ConcatTable'
  function ConcatTable:__init()
    Container.__init(self)
    self.output = {}
  end
  function ConcatTable:updateOutput(input)
    local out = {}
    for i, m in ipairs(self.modules) do out[i] = self:rethrowErrors(m, i, 'updateOutput', input) end
    self.output = out
    return out
  end
  parallel(ConcatTable, whole, ith, summed)

  local ParallelTable = class 'ParallelTable'
  function ParallelTable:__init()
    Container.__init(self)
    self.output, self.gradInput = {}, {}
  end
  function ParallelTable:updateOutput(input)
    local out = {}
    for i, m in ipairs(self.modules) do out[i] = self:rethrowErrors(m, i, 'updateOutput', input[i]) end
    self.output = out
    return out
  end
  parallel(ParallelTable, ith, ith, function(_, _, grads) return grads end)

  -- Where output i lies in the joined one.
  local function starts(self, d)
    local at, list = 1, {}
    for i, m in ipairs(self.modules) do
      if self.slices and not self.slices[i] then break end
      list[i] = at
      at = at + m.output:size(d)
    end
    return list
  end
  local Concat = class 'Concat'
  function Concat:__init(dimension)
    Container.__init(self)
    self.dimension = dimension
    self.outputSize = torch.LongStorage()
  end
  function Concat:updateOutput(input)
    local outs = {}
    for i, m in ipairs(self.modules) do outs[i] = self:rethrowErrors(m, i, 'updateOutput', input) end
    self.output = torch.cat(outs, self.dimension)
    self.outputSize = self.output:size()
    return self.output
  end
  parallel(Concat, whole, function(self, i, g, m)
    return g:narrow(self.dimension, starts(self, self.dimension)[i], m.output:size(self.dimension)):contiguous()
  end, summed)

  local DepthConcat = class('DepthConcat', 'nn.Concat')
  -- Output m's place in the joined one, in the middle of its other dimensions.
  local function window(self, whole_one, m, start)
    local w = whole_one:narrow(self.dimension, start, m.output:size(self.dimension))
    for d = 1, m.output:dim() do
      if d ~= self.dimension and w:size(d) ~= m.output:size(d) then
        w = w:narrow(d, math.floor((w:size(d) - m.output:size(d)) / 2) + 1, m.output:size(d))
      end
    end
    return w
  end
  function DepthConcat:updateOutput(input)
    local outs, size = {}, nil
    for i, m in ipairs(self.modules) do
      outs[i] = self:rethrowErrors(m, i, 'updateOutput', input)
      local s = outs[i]:size():totable()
      if size then
        for d = 1, #s do size[d] = d == self.dimension and size[d] + s[d] or math.max(size[d], s[d]) end
      else
        size = s
      end
    end
    self.outputSize = torch.LongStorage(size)
    self.output = outs[1].new():resize(self.outputSize):zero()
    local at = starts(self, self.dimension)
    for i, m in ipairs(self.modules) do window(self, self.output, m, at[i]):copy(outs[i]) end
    return self.output
  end
  parallel(DepthConcat, whole, function(self, i, g, m) return window(self, g, m, starts(self, self.dimension)[i]):contiguous() end, summed)

  local Parallel = class 'Parallel'
  function Parallel:__init(inputDimension, outputDimension)
    Container.__init(self)
    self.inputDimension, self.outputDimension = inputDimension, outputDimension
  end
  function Parallel:updateOutput(input)
    local n = input:size(self.inputDimension)
    if n > #self.modules then raise('nn.Parallel', '%d modules for %d slices', #self.modules, n) end
    local outs = {}
    self.slices = {} -- each module is asked about the slice that it was given
    for i = 1, n do
      local m = self.modules[i]
      self.slices[i] = input:select(self.inputDimension, i)
      outs[i] = self:rethrowErrors(m, i, 'updateOutput', self.slices[i])
    end
    self.output = torch.cat(outs, self.outputDimension)
    return self.output
  end
  parallel(Parallel, function(self, i) return self.slices[i] end, function(self, i, g, m)
    return g:narrow(self.outputDimension, starts(self, self.outputDimension)[i], m.output:size(self.outputDimension)):contiguous()
  end, function(self, input, grads)
    local out = input.new():resize(input:size()):zero()
    for i, g in ipairs(grads) do out:select(self.inputDimension, i):copy(g) end
    return out
  end)

  -- -- One module for all elements -------------------------------------------------------------------------------

  local MapTable = class 'MapTable'
  function MapTable:__init(module, shared)
    Container.__init(self)
    self.shared = shared ~= false
    self.sharedparams = {'weight', 'bias', 'gradWeight', 'gradBias'}
    self.output, self.gradInput = {}, {}
    if module then self:add(module) end
  end
  function MapTable:add(module)
    if self.module then raise('nn.MapTable', 'it has its module already') end
    self.module, self.modules[1] = module, module
    return self
  end
  function MapTable:_extend(n)
    self.modules[1] = self.module
    for i = #self.modules + 1, n do
      self.modules[i] = self.shared and self.module:clone(unpack(self.sharedparams)) or self.module:clone()
    end
  end
  function MapTable:resize(n)
    self:_extend(n)
    for i = #self.modules, n + 1, -1 do self.modules[i] = nil end
  end
  function MapTable:updateOutput(input)
    self:_extend(#input)
    self.output = {}
    for i = 1, #input do self.output[i] = self:rethrowErrors(self.modules[i], i, 'updateOutput', input[i]) end
    return self.output
  end
  for _, name in ipairs {'updateGradInput', 'backward', 'accGradParameters', 'accUpdateGradParameters'} do
    MapTable[name] = function(self, input, gradOutput, ...)
      self:_extend(#input)
      local grads = {}
      for i = 1, #input do grads[i] = self:rethrowErrors(self.modules[i], i, name, input[i], gradOutput[i], ...) end
      if name == 'updateGradInput' or name == 'backward' then
        self.gradInput = grads
        return grads
      end
    end
  end
  for _, name in ipairs {'zeroGradParameters', 'updateParameters'} do
    MapTable[name] = function(self, ...)
      if not self.module then return end
      if self.shared then return self.module[name](self.module, ...) end
      return Container[name](self, ...)
    end
  end
  function MapTable:parameters()
    if self.shared and self.module then return self.module:parameters() end
    return Container.parameters(self)
  end
  function MapTable:clearState()
    for i = #self.modules, 2, -1 do self.modules[i] = nil end
    return Container.clearState(self)
  end
  function MapTable:__tostring__()
    return self.module and torch.type(self) .. ' {\n  ' .. indented(self.module, '  ') .. '\n}' or torch.type(self) .. ' { }'
  end

  local Decorator = class 'Decorator'
  function Decorator:__init(module)
    Container.__init(self)
    self.modules[1] = module
  end
  function Decorator:updateOutput(input)
    self.output = self.modules[1]:updateOutput(input)
    return self.output
  end
  function Decorator:updateGradInput(input, gradOutput)
    self.gradInput = self.modules[1]:updateGradInput(input, gradOutput)
    return self.gradInput
  end
  for _, name in ipairs {'accGradParameters', 'accUpdateGradParameters', 'sharedAccUpdateGradParameters'} do
    Decorator[name] = function(self, ...) self.modules[1][name](self.modules[1], ...) end
  end
  function Decorator:__tostring__() return torch.type(self) .. ' @ ' .. tostring(self.modules[1]) end
  function Decorator.decorate(c)
    local all = {'updateOutput', 'updateGradInput', 'accGradParameters', 'accUpdateGradParameters', 'sharedAccUpdateGradParameters', '__tostring__'}
    for _, name in ipairs(all) do
      c[name] = Decorator[name]
    end
  end
end

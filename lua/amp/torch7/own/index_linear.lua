--- nn.IndexLinear: a linear layer over sparse examples, keys and their values. An example's output is the sum of its keys' rows of
-- `weight` (input x output) times their values, and the bias.
--
--   {keys, values}                        one example
--   {{keys, ...}, {values, ...}}          a batch
--   {keys, values, sizes}                 a batch, joined
-- There is no gradWeight: what accGradParameters was given waits in `running`, and updateParameters changes the keys' rows alone.
local amp = require 'amp'
local core = require 'amp.torch7.own.core'
local classes = require 'amp.torch7.class'
local raise = require('amp.error').throw
local is_tensor, amp_of, wrap = core.is_tensor, core.amp_of, core.wrap

local CHUNK = 2 ^ 20 -- elements of the rows that are gathered at a time

-- Examples of an input: their keys, from 1, and values as amp tensors in the layer's dtype and on its device.
local function examples_of(self, input)
  if type(input) ~= 'table' or #input < 2 or #input > 3 then raise('nn.IndexLinear', 'a table of keys, values and maybe sizes expected') end
  local w = amp_of(self.weight)
  local keys, values, sizes = input[1], input[2], input[3]
  local form = sizes ~= nil and 'joined' or is_tensor(keys) and 'one' or 'list'
  local out = {form = form}
  local function add(k, v)
    k, v = amp_of(k), amp_of(v)
    if k.ptr_.ndim ~= 1 or v.ptr_.ndim ~= 1 or k.ptr_.numel ~= v.ptr_.numel then
      raise('nn.IndexLinear', 'keys of %s and values of %s: both are vectors, of one length', core.show(core.sizes(k)), core.show(core.sizes(v)))
    end
    k, v = k:long():to(w.device), v:to(w.dtype):to(w.device)
    if self.offset ~= -1 then k = k + (self.offset + 1) end
    return k, v
  end
  if form == 'list' then
    if type(keys) ~= 'table' or type(values) ~= 'table' or #keys ~= #values then raise('nn.IndexLinear', 'lists of as many keys as values expected') end
    for i = 1, #keys do out[i] = {add(keys[i], values[i])} end
    return out
  end
  local k, v = add(keys, values)
  if form == 'one' then
    out[1] = {k, v}
    return out
  end
  local list = is_tensor(sizes) and amp_of(sizes):long():tolist() or {sizes}
  local at, total = 1, tonumber(k.ptr_.numel)
  for i, n in ipairs(list) do
    if at + n - 1 > total then break end
    out[i] = {k:narrow(1, at, n), v:narrow(1, at, n)}
    at = at + n
  end
  if at ~= total + 1 then raise('nn.IndexLinear', 'sizes of %d examples for %d keys', #list, total) end
  return out
end

-- f(keys, values) for all of an example, few rows at a time.
local function chunks(example, width, f)
  local n, most = tonumber(example[1].ptr_.numel), math.max(1, math.floor(CHUNK / width))
  for at = 1, n, most do
    local count = math.min(most, n - at + 1)
    f(example[1]:narrow(1, at, count), example[2]:narrow(1, at, count))
  end
end

return function(nn, torch)
  local IndexLinear, parent = classes.class('nn.IndexLinear', 'nn.Module', nn)
  function IndexLinear:__init(inputSize, outputSize, doGradInput, keysOffset, weight, bias, normalize)
    parent.__init(self)
    if normalize then raise('nn.IndexLinear', 'normalize is not offered here') end
    self.normalize, self.weightDecay = 0, 0
    self.weight = weight or torch.zeros(inputSize, outputSize)
    self.bias = bias or torch.zeros(outputSize)
    self.inputSize, self.outputSize = self.weight:size(1), self.weight:size(2)
    self.gradWeight, self.gradBias = torch.Tensor(), torch.zeros(self.outputSize)
    self.running = {}
    self.doGradInput = doGradInput or false
    self.offset = keysOffset and keysOffset - 1 or -1
  end
  function IndexLinear:reset(stdv)
    stdv = stdv and stdv * math.sqrt(3) or 1 / math.sqrt(self.weight:size(2))
    self.weight:uniform(-stdv, stdv)
    self.bias:uniform(-stdv, stdv):mul(1e-6)
  end
  function IndexLinear:updateOutput(input)
    local examples, w = examples_of(self, input), amp_of(self.weight)
    local y = amp.zeros({#examples, self.outputSize}, {dtype = w.dtype, device = w.device})
    for i, e in ipairs(examples) do
      local row = y:select(1, i)
      chunks(e, self.outputSize, function(k, v) row:add_(v:matmul(w:index_select(1, k))) end)
    end
    y:add_(amp_of(self.bias))
    self.output = wrap(examples.form == 'one' and y:squeeze(1) or y)
    return self.output
  end
  function IndexLinear:updateGradInput(input, gradOutput)
    self.gradInput = {}
    if not self.doGradInput then return self.gradInput end
    local n = self.inputSize
    local g = gradOutput:view(-1, self.outputSize) * self.weight:t()
    local keys = torch.range(1, n):typeAs(is_tensor(input[1]) and input[1] or input[1][1])
    if #input == 3 then
      self.gradInput = {torch.repeatTensor(keys, g:size(1), 1), g}
    elseif is_tensor(input[1]) then
      self.gradInput = {keys, g:view(n)}
    else
      self.gradInput = {{}, {}}
      for i = 1, g:size(1) do self.gradInput[1][i], self.gradInput[2][i] = keys:clone(), g[i] end
    end
    return self.gradInput
  end
  -- weight[key] -= rate * (value * gradient of the example + decay * weight[key])
  local function step(self, examples, g, rate)
    local w = amp_of(self.weight)
    for i, e in ipairs(examples) do
      chunks(e, self.outputSize, function(k, v)
        local change = v:unsqueeze(2) * g:select(1, i):unsqueeze(1)
        if self.weightDecay ~= 0 then change:add_(w:index_select(1, k), {alpha = self.weightDecay}) end
        w:index_add_(1, k, change:mul_(-rate))
      end)
    end
  end
  local function gradient_of(self, gradOutput) return amp_of(gradOutput):reshape(-1, self.outputSize) end
  function IndexLinear:accGradParameters(input, gradOutput, scale)
    local g = gradient_of(self, gradOutput) * (scale or 1)
    local examples = examples_of(self, input)
    for _, e in ipairs(examples) do e[1], e[2] = e[1]:clone(), e[2]:clone() end -- the script may fill its own anew
    table.insert(self.running, {examples, g})
    amp_of(self.gradBias):add_(g:sum(1))
  end
  function IndexLinear:accUpdateGradParameters(input, gradOutput, rate)
    local g = gradient_of(self, gradOutput)
    step(self, examples_of(self, input), g, rate)
    local b = amp_of(self.bias)
    b:add_(g:sum(1) + b * self.weightDecay, {alpha = -rate})
  end
  function IndexLinear:updateParameters(rate)
    if not rate then raise('nn.IndexLinear', 'a learning rate expected') end
    for _, r in ipairs(self.running) do step(self, r[1], r[2], rate) end
    local b = amp_of(self.bias)
    b:add_(amp_of(self.gradBias) + b * self.weightDecay, {alpha = -rate})
  end
  function IndexLinear:zeroGradParameters()
    self.gradBias:zero()
    self.running = {}
  end
  function IndexLinear:parameters() return {self.weight, self.bias}, {self.running, self.gradBias} end
  function IndexLinear:clearState()
    self.running = {}
    return parent.clearState(self)
  end
end

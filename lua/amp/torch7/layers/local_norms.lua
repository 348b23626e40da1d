--- Layers that normalise by their neighbourhood, and linear layers whose weights are made of others.
local amp = require 'amp'
local H = require 'amp.torch7.layers.help'
local raise = require('amp.error').throw

return function(define)
  -- -- Local means and deviations ------------------------------------------------------------------

  local function set_kernel(self, nInputPlane, kernel)
    self.nInputPlane = H.number(self, 'nInputPlane', nInputPlane, 1)
    if kernel == nil then
      local rows = {}
      for i = 1, 9 do rows[i] = {1, 1, 1, 1, 1, 1, 1, 1, 1} end
      kernel = self:new_tensor(rows)
    end
    if kernel:dim() ~= 1 and kernel:dim() ~= 2 then raise(self.__name, 'a kernel of 1 or 2 dimensions expected, got %d', kernel:dim()) end
    for d = 1, kernel:dim() do
      if kernel:size(d) % 2 == 0 then raise(self.__name, 'a kernel of odd sizes expected, size %d is %d', d, kernel:size(d)) end
    end
    self.kernel = kernel
  end
  -- The kernel as one of C x k x k whose sum is 1.
  local function kernel_of(self, x, p)
    local k = (p.amp_of and p.amp_of(self.kernel) or self.kernel):to(x.dtype)
    if k:dim() == 1 then k = amp.outer(k, k) end
    k = k / (k:sum() * self.nInputPlane)
    return k:reshape(1, 1, k:size(1), k:size(2)):expand(1, self.nInputPlane, k:size(1), k:size(2)):contiguous()
  end
  -- Sums over the neighbourhood of all planes, zeros around.
  local function around(x, k)
    return amp.conv2d(x, k, {padding = {(k:size(3) - 1) / 2, (k:size(4) - 1) / 2}})
  end
  local function subtract(x, k)
    return x - around(x, k) / around(amp.ones_like(x:detach()), k)
  end
  local function divide(self, x, k)
    local deviation = H.safe_sqrt(around(x * x, k)) / around(amp.ones_like(x:detach()), k)
    return x / amp.threshold(deviation, self.threshold, self.thresval)
  end
  local function set_threshold(self, threshold, thresval)
    self.threshold = H.number(self, 'threshold', threshold, 1e-4)
    self.thresval = H.number(self, 'thresval', thresval, self.threshold)
  end
  define('SpatialSubtractiveNormalization', {
    init = set_kernel,
    compute = function(self, x, p) return H.batched(self, x, 4, function(v) return subtract(v, kernel_of(self, v, p)) end) end,
  })
  define('SpatialDivisiveNormalization', {
    init = function(self, nInputPlane, kernel, threshold, thresval)
      set_kernel(self, nInputPlane, kernel)
      set_threshold(self, threshold, thresval)
    end,
    compute = function(self, x, p) return H.batched(self, x, 4, function(v) return divide(self, v, kernel_of(self, v, p)) end) end,
  })
  define('SpatialContrastiveNormalization', {
    init = function(self, nInputPlane, kernel, threshold, thresval)
      set_kernel(self, nInputPlane, kernel)
      set_threshold(self, threshold, thresval)
    end,
    compute = function(self, x, p)
      return H.batched(self, x, 4, function(v)
        local k = kernel_of(self, v, p)
        return divide(self, subtract(v, k), k)
      end)
    end,
  })
  --- Mean 0 and deviation 1 over the features of each example; with affine a gain and a bias.
  define('LayerNormalization', {
    init = function(self, nOutput, bias, eps, affine)
      self.nOutput, self.first_bias, self.eps = H.number(self, 'nOutput', nOutput), H.number(self, 'bias', bias, 0), H.number(self, 'eps', eps, 1e-10)
      self.affine = H.flag(self, 'affine', affine, true)
    end,
    params = function(self) return self.affine and {{'weight', self.nOutput}, {'bias', self.nOutput}} or {} end,
    after_reset = function(self)
      if not self.affine then return end
      self.weight:fill(1)
      self.bias:fill(self.first_bias)
    end,
    compute = function(self, x, p)
      local v = x:dim() == 1 and x:unsqueeze(1) or x
      local d = v - v:mean(2, true)
      local y = d / ((d * d):sum(2, true) + self.eps):sqrt() * math.sqrt(self.nOutput)
      if p.weight then y = y * p.weight + p.bias end
      return x:dim() == 1 and y:squeeze(1) or y
    end,
  })

  -- -- Linear, otherwise -------------------------------------------------------------------------------

  define('LinearWeightNorm', {
    init = function(self, inputSize, outputSize, bias, eps)
      self.inputSize, self.outputSize = H.number(self, 'inputSize', inputSize), H.number(self, 'outputSize', outputSize)
      self.has_bias, self.eps = H.flag(self, 'bias', bias, true), H.number(self, 'eps', eps, 1e-16)
    end,
    param_names = {'v', 'g', 'bias'},
    params = function(self)
      return {{'v', self.outputSize, self.inputSize}, {'g', self.outputSize, 1}, self.has_bias and {'bias', self.outputSize} or nil}
    end,
    after_reset = function(self, stdv)
      local s = stdv and stdv * math.sqrt(3) or 1 / math.sqrt(self.inputSize)
      self.v:uniform(-s, s)
      self.g:copy(self.v:clone():norm(2, 2):reshape(self.outputSize, 1))
      if self.bias then self.bias:uniform(-s, s) end
    end,
    compute = function(self, x, p)
      local norm = amp.clamp_min(H.safe_sqrt((p.v * p.v):sum(2, true)), self.eps)
      return amp.linear(x, p.v * (p.g / norm), p.bias)
    end,
  })
  --- A linear layer of which only some outputs are computed: setPartition(indices), resetPartition().
  define('PartialLinear', {
    init = function(self, inputsize, outputsize, bias)
      self.inputsize, self.outputsize = H.number(self, 'inputsize', inputsize), H.number(self, 'outputsize', outputsize)
      self.has_bias = H.flag(self, 'bias', bias, true)
    end,
    params = function(self) return {{'weight', self.outputsize, self.inputsize}, self.has_bias and {'bias', 1, self.outputsize} or nil} end,
    after_reset = function(self, stdv)
      self.weight:normal(0, stdv or 1)
      if self.bias then self.bias:zero() end
    end,
    compute = function(self, x, p)
      local w, b = p.weight, p.bias
      if self.partition then
        local at = (p.amp_of and p.amp_of(self.partition) or self.partition):long():reshape(-1)
        w, b = w:index_select(1, at), b and b:index_select(2, at)
      end
      return amp.linear(x, w, b and b:reshape(-1))
    end,
    methods = {
      setPartition = function(self, indices) self.partition = indices end,
      resetPartition = function(self) self.partition = nil end,
    },
  })
  --- The input is {index, value} pairs: n x 2 of one example, or a list of them.
  define('SparseLinear', {
    init = function(self, inputSize, outputSize, doGradInput)
      self.sizes_ = {H.number(self, 'outputSize', outputSize), H.number(self, 'inputSize', inputSize)}
      self.doGradInput, self.weightDecay = H.flag(self, 'doGradInput', doGradInput, false), 0
    end,
    params = function(self) return {{'weight', unpack(self.sizes_)}, {'bias', self.sizes_[1]}} end,
    after_reset = function(self, stdv)
      local s = stdv and stdv * math.sqrt(3) or 1 / math.sqrt(self.weight:size(2))
      self.weight:uniform(-s, s)
      self.bias:uniform(-s * 1e-6, s * 1e-6)
    end,
    compute = function(self, x, p)
      local one = amp.is_tensor(x) and x:dim() == 2
      local examples = amp.is_tensor(x) and (one and {x} or x:unbind(1)) or x
      local rows = {}
      for i, e in ipairs(examples) do
        local at, values = e:detach():select(2, 1):long(), e:select(2, 2)
        if self.doGradInput == false then values = values:detach() end
        rows[i] = p.weight:index_select(2, at):matmul(values) + p.bias
      end
      local y = amp.stack(rows, 1)
      return one and y:squeeze(1) or y
    end,
  })
end

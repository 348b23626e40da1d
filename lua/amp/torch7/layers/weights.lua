--- Layers with parameters. `params(self)` lists their names and sizes; `stdv(self)` bounds their first values.
local amp = require 'amp'
local H = require 'amp.torch7.layers.help'
local raise = require('amp.error').throw
local sqrt = math.sqrt

return function(define)
  local function num(self, name, v, default) return H.number(self, name, v, default) end
  local function int(self, name, v, default)
    v = H.number(self, name, v, default)
    if v % 1 ~= 0 then raise(self.__name, '%s must be a whole number, got %g', name, v) end
    return v
  end
  local function weight_and_bias(...)
    local sizes = {...}
    return function(self)
      local list = {}
      for i, f in ipairs(sizes) do list[i] = f(self) end
      return list
    end
  end
  local function no_bias(self)
    self.bias, self.gradBias = nil, nil
    return self
  end

  -- -- Products ----------------------------------------------------------------------------------------

  define('Linear', {
    init = function(self, inputSize, outputSize, bias)
      self.inputSize_, self.outputSize_ = int(self, 'inputSize', inputSize), int(self, 'outputSize', outputSize)
      self.has_bias = H.flag(self, 'bias', bias, true)
    end,
    params = function(self)
      return {{'weight', self.outputSize_, self.inputSize_}, self.has_bias and {'bias', self.outputSize_} or nil}
    end,
    stdv = function(self) return 1 / sqrt(self.weight:size(2)) end,
    compute = function(self, x, p)
      local n = x:dim()
      if n ~= 1 and n ~= 2 then raise(self.__name, 'a vector or a matrix expected, got %s', tostring(x:size())) end
      if x:size(n) ~= p.weight:size(2) then raise(self.__name, 'size mismatch: an input of %s, %d features expected', tostring(x:size()), p.weight:size(2)) end
      return amp.linear(x, p.weight, p.bias)
    end,
    methods = {noBias = no_bias},
    repr = function(self) return ('%d -> %d%s'):format(self.weight:size(2), self.weight:size(1), self.bias == nil and ' without bias' or '') end,
  })
  define('Bilinear', {
    init = function(self, inputSize1, inputSize2, outputSize, bias)
      self.sizes_ = {int(self, 'outputSize', outputSize), int(self, 'inputSize1', inputSize1), int(self, 'inputSize2', inputSize2)}
      self.has_bias = H.flag(self, 'bias', bias, true)
    end,
    params = function(self) return {{'weight', unpack(self.sizes_)}, self.has_bias and {'bias', self.sizes_[1]} or nil} end,
    stdv = function(self) return 1 / sqrt(self.weight:size(2)) end,
    compute = function(self, t, p)
      local a, b = H.list(self, t)[1], t[2]
      if #t ~= 2 or a:dim() ~= 2 or b:dim() ~= 2 or a:size(1) ~= b:size(1) then
        raise(self.__name, 'two matrices of as many rows expected, got %s and %s', tostring(a:size()), b and tostring(b:size()) or 'nothing')
      end
      return amp.bilinear(a, b, p.weight, p.bias)
    end,
    methods = {noBias = no_bias},
  })
  define('Add', {
    init = function(self, inputSize, scalar, _)
      self.scalar = scalar
      self.size_ = scalar and 1 or int(self, 'inputSize', inputSize)
    end,
    params = function(self) return {{'bias', self.size_}} end,
    stdv = function(self) return 1 / sqrt(self.bias:size(1)) end,
    compute = function(self, x, p)
      if self.scalar or x:numel() == p.bias:numel() and x:dim() == 1 then return x + p.bias end
      return (x:reshape(x:size(1), -1) + p.bias):reshape(x:size())
    end,
  })
  define('Mul', {
    init = function() end,
    params = function() return {{'weight', 1}} end,
    stdv = function() return 1 end,
    compute = function(_, x, p) return x * p.weight end,
  })
  -- A tensor that is added or multiplied, spread over the batch or over its sizes of 1.
  local function spread(name, key, f)
    define(name, {
      init = function(self, ...) self.size = H.sizes(...) end,
      params = function(self) return {{key, unpack(H.sizes(self.size))}} end,
      stdv = function(self) return 1 / sqrt(self[key]:numel()) end,
      compute = function(_, x, p)
        local w = p[key]
        if x:numel() == w:numel() then return f(x, w:reshape(x:size())) end
        if w:dim() == x:dim() then return f(x, w:expand(x:size())) end
        return f(x:reshape(x:size(1), -1), w:reshape(1, -1)):reshape(x:size())
      end,
    })
  end
  spread('CMul', 'weight', function(a, b) return a * b end)
  spread('CAdd', 'bias', function(a, b) return a + b end)
  define('Cosine', {
    init = function(self, inputSize, outputSize) self.sizes_ = {int(self, 'outputSize', outputSize), int(self, 'inputSize', inputSize)} end,
    params = function(self) return {{'weight', unpack(self.sizes_)}} end,
    stdv = function(self) return 1 / sqrt(self.weight:size(1)) end,
    compute = function(_, x, p)
      local v = x:dim() == 1 and x:unsqueeze(1) or x
      local y = v:matmul(p.weight:t()) / (H.safe_sqrt((v * v):sum(2, true)) + 1e-12) / (H.safe_sqrt((p.weight * p.weight):sum(2)) + 1e-12)
      return x:dim() == 1 and y:squeeze(1) or y
    end,
  })
  local function euclidean(self, x, p, scale)
    if x:dim() > 2 then raise(self.__name, 'a vector or a matrix expected, got %s', tostring(x:size())) end
    local v = x:dim() == 1 and x:unsqueeze(1) or x
    local d = v:unsqueeze(3) - p.weight
    if scale then d = d * scale end
    local y = H.safe_sqrt((d * d):sum(2))
    return x:dim() == 1 and y:squeeze(1) or y
  end
  define('Euclidean', {
    init = function(self, inputSize, outputSize) self.sizes_ = {int(self, 'inputSize', inputSize), int(self, 'outputSize', outputSize)} end,
    params = function(self) return {{'weight', unpack(self.sizes_)}} end,
    stdv = function(self) return 1 / sqrt(self.weight:size(1)) end,
    compute = function(self, x, p) return euclidean(self, x, p) end,
  })
  define('WeightedEuclidean', {
    init = function(self, inputSize, outputSize) self.sizes_ = {int(self, 'inputSize', inputSize), int(self, 'outputSize', outputSize)} end,
    params = function(self) return {{'weight', unpack(self.sizes_)}, {'diagCov', unpack(self.sizes_)}} end,
    stdv = function(self) return 1 / sqrt(self.weight:size(1)) end,
    after_reset = function(self) self.diagCov:fill(1) end,
    compute = function(self, x, p) return euclidean(self, x, p, p.diagCov) end,
  })
  define('PReLU', {
    init = function(self, nOutputPlane) self.nOutputPlane = int(self, 'nOutputPlane', nOutputPlane, 0) end,
    params = function(self) return {{'weight', self.nOutputPlane > 0 and self.nOutputPlane or 1}} end,
    after_reset = function(self) self.weight:fill(0.25) end,
    compute = function(self, x, p)
      local w = p.weight
      if self.nOutputPlane > 0 then
        local at = ({1, 2, 1, 2, 2})[x:dim()]
        local shape = {}
        for d = 1, x:dim() do shape[d] = d == at and self.nOutputPlane or 1 end
        w = w:reshape(unpack(shape))
      end
      return amp.where(x:gt(0), x, x * w)
    end,
  })
  define('LookupTable', {
    init = function(self, nIndex, nOutput, paddingValue, maxNorm, normType)
      self.sizes_ = {int(self, 'nIndex', nIndex), int(self, 'nOutput', nOutput)}
      self.paddingValue, self.maxNorm, self.normType = int(self, 'paddingValue', paddingValue, 0), maxNorm, normType
    end,
    params = function(self) return {{'weight', unpack(self.sizes_)}} end,
    after_reset = function(self, stdv) self.weight:normal(0, stdv or 1) end,
    no_input_grad = true,
    before = function(self, x, weight)
      if not self.maxNorm then return end
      local rows = amp.unique(x:reshape(-1):long())
      local w = weight:index_select(1, rows)
      local norm = amp.norm(w, {p = self.normType or 2, dim = 2, keepdim = true})
      weight:index_copy_(1, rows, w * amp.where(norm:gt(self.maxNorm), self.maxNorm / (norm + 1e-7), amp.ones_like(norm)))
    end,
    compute = function(self, x, p, ctx)
      if x:dim() > 2 then raise(self.__name, 'a vector or a matrix of indices expected, got %s', tostring(x:size())) end
      local at = x:long()
      local pad = self.paddingValue or 0
      local y = p.weight:index_select(1, at:reshape(-1))
      local flat = at:reshape(-1)
      if pad ~= 0 then -- its row gets no gradient
        local out = flat:eq(pad):unsqueeze(2)
        y = amp.where(out, y:detach(), y)
      end
      if self.shouldScaleGradByFreq then
        ctx.share = ctx.share or 1 / flat:unsqueeze(2):eq(flat:unsqueeze(1)):to(y.dtype):sum(2, true)
        y = y * ctx.share + y:detach() * (1 - ctx.share)
      end
      local shape = at:size()
      shape[#shape + 1] = p.weight:size(2)
      return y:reshape(shape)
    end,
    methods = {
      setPadding = function(self, v)
        self.paddingValue = v
        return self
      end,
      setMaxNorm = function(self, v)
        self.maxNorm = v
        return self
      end,
      setNormType = function(self, v)
        self.normType = v
        return self
      end,
      accUpdateOnly = function(self)
        self.gradWeight = nil
        return self
      end,
      scaleGradByFreq = function(self)
        self.shouldScaleGradByFreq = true
        return self
      end,
    },
  })

  -- -- Normalisation ------------------------------------------------------------------------------------

  local function ones(dims)
    local list = {}
    for i = 3, dims do list[i - 2] = 1 end
    return list
  end
  local function batch_norm(name, dims)
    define(name, {
      init = function(self, nOutput, eps, momentum, affine)
        self.n_ = int(self, 'nOutput', nOutput)
        self.eps, self.momentum, self.affine = num(self, 'eps', eps, 1e-5), num(self, 'momentum', momentum, 0.1), H.flag(self, 'affine', affine, true)
        self.nDim = dims
      end,
      params = function(self) return self.affine and {{'weight', self.n_}, {'bias', self.n_}} or {} end,
      buffers = function(self) return {{'running_mean', self.n_}, {'running_var', self.n_}} end,
      after_reset = function(self)
        if self.weight then self.weight:uniform(0, 1) end
        if self.bias then self.bias:zero() end
        self.running_mean:zero()
        self.running_var:fill(1)
      end,
      compute = function(self, x, p, ctx)
        local n = x:dim()
        if n ~= dims and not (n == dims - 1 and not ctx.train) then
          raise(self.__name, 'a batch of %d dimensions expected%s, got %s', dims, ctx.train and ' in training' or ', or one example', tostring(x:size()))
        end
        return H.batched(self, x, dims, function(v)
          if v:size(2) ~= self.running_mean:size(1) then
            raise(self.__name, 'an input of %d features expected, got %s', self.running_mean:size(1), tostring(x:size()))
          end
          local mean, var = p.running_mean, p.running_var
          if ctx.train and v:numel() == v:size(2) then -- one value a channel: it is its mean
            local zero = v * 0
            return p.weight and zero * p.weight:reshape(1, -1, unpack(ones(dims))) + p.bias:reshape(1, -1, unpack(ones(dims))) or zero
          end
          if ctx.train and ctx.again then mean, var = mean:clone(), var:clone() end -- the running values moved at the first time
          return (amp.batch_norm(v, {running_mean = mean, running_var = var, weight = p.weight, bias = p.bias, training = ctx.train,
            momentum = self.momentum, eps = self.eps}))
        end)
      end,
    })
  end
  batch_norm('BatchNormalization', 2)
  batch_norm('SpatialBatchNormalization', 4)
  batch_norm('VolumetricBatchNormalization', 5)

  -- -- Convolutions ----------------------------------------------------------------------------------------

  local function window(self, nin, nout, kW, kH, dW, dH, padW, padH)
    self.nInputPlane, self.nOutputPlane = int(self, 'nInputPlane', nin), int(self, 'nOutputPlane', nout)
    self.kW, self.kH, self.dW, self.dH = int(self, 'kW', kW), int(self, 'kH', kH), int(self, 'dW', dW, 1), int(self, 'dH', dH, 1)
    self.padW = int(self, 'padW', padW, 0)
    self.padH = int(self, 'padH', padH, self.padW)
  end
  local function window_repr(self)
    return ('%d -> %d, %dx%d, %d,%d, %d,%d'):format(self.nInputPlane, self.nOutputPlane, self.kW, self.kH, self.dW, self.dH, self.padW, self.padH)
  end
  local function fan_in(self) return 1 / sqrt(self.kW * self.kH * self.nInputPlane) end
  local function full_bias(self) return {'bias', self.nOutputPlane} end
  local function conv2(self, x, p, w)
    local padW, padH = self.padding or self.padW or 0, self.padding or self.padH or 0
    return H.batched(self, x, 4, function(v)
      return amp.conv2d(v, w or p.weight, p.bias, {stride = {self.dH, self.dW}, padding = {padH, padW}, dilation = {self.dilationH or 1, self.dilationW or 1}})
    end)
  end
  local plain_weight = weight_and_bias(function(self) return {'weight', self.nOutputPlane, self.nInputPlane, self.kH, self.kW} end, full_bias)
  define('SpatialConvolution', {
    init = window, params = plain_weight, stdv = fan_in, compute = function(self, x, p)
      local w = p.weight
      if w:dim() == 2 then w = w:reshape(self.nOutputPlane, self.nInputPlane, self.kH, self.kW) end
      return conv2(self, x, p, w)
    end, methods = {noBias = no_bias}, repr = window_repr,
  })
  define('SpatialConvolutionMM', {
    init = window, stdv = fan_in, repr = window_repr, methods = {noBias = no_bias},
    params = weight_and_bias(function(self) return {'weight', self.nOutputPlane, self.nInputPlane * self.kH * self.kW} end, full_bias),
    compute = function(self, x, p) return conv2(self, x, p, p.weight:reshape(self.nOutputPlane, self.nInputPlane, self.kH, self.kW)) end,
  })
  define('SpatialDilatedConvolution', {
    init = function(self, nin, nout, kW, kH, dW, dH, padW, padH, dilationW, dilationH)
      window(self, nin, nout, kW, kH, dW, dH, padW, padH)
      self.dilationW = int(self, 'dilationW', dilationW, 1)
      self.dilationH = int(self, 'dilationH', dilationH, self.dilationW)
    end,
    params = plain_weight, stdv = fan_in, compute = function(self, x, p) return conv2(self, x, p) end, methods = {noBias = no_bias}, repr = window_repr,
  })
  define('SpatialDepthWiseConvolution', {
    init = window, stdv = fan_in, repr = window_repr, methods = {noBias = no_bias},
    params = weight_and_bias(function(self) return {'weight', self.nOutputPlane, self.nInputPlane * self.kH * self.kW} end,
      function(self) return {'bias', self.nOutputPlane, self.nInputPlane} end),
    compute = function(self, x, p)
      local o, i = self.nOutputPlane, self.nInputPlane
      local w = p.weight:reshape(o, i, self.kH, self.kW):transpose(1, 2):reshape(i * o, 1, self.kH, self.kW)
      return H.batched(self, x, 4, function(v)
        return amp.conv2d(v, w, p.bias and p.bias:t():reshape(-1), {stride = {self.dH, self.dW}, padding = {self.padH, self.padW}, groups = i})
      end)
    end,
  })
  -- The extra rows that make an output as large as a second input.
  local function adjust(target, k, pad, step) return (target + 2 * pad - k) % step end
  define('SpatialFullConvolution', {
    thin_zeros = true, -- the gradient in the second input, which only gives its size
    init = function(self, nin, nout, kW, kH, dW, dH, padW, padH, adjW, adjH)
      window(self, nin, nout, kW, kH, dW, dH, padW, padH or 0)
      self.adjW, self.adjH = int(self, 'adjW', adjW, 0), int(self, 'adjH', adjH, 0)
      if self.adjW > self.dW - 1 or self.adjH > self.dH - 1 then raise(self.__name, 'adjW and adjH must be below dW and dH') end
    end,
    params = weight_and_bias(function(self) return {'weight', self.nInputPlane, self.nOutputPlane, self.kH, self.kW} end, full_bias),
    stdv = function(self) return 1 / sqrt(self.kW * self.kH * self.nInputPlane) end,
    compute = function(self, x, p)
      local adjW, adjH = self.adjW or 0, self.adjH or 0
      local sizes
      if type(x) == 'table' then
        x, sizes = x[1], x[2]
        adjW = adjust(sizes:size(sizes:dim()), self.kW, self.padW, self.dW)
        adjH = adjust(sizes:size(sizes:dim() - 1), self.kH, self.padH, self.dH)
      end
      return H.batched(self, x, 4, function(v)
        return amp.conv_transpose2d(v, p.weight, p.bias, {stride = {self.dH, self.dW}, padding = {self.padH, self.padW}, output_padding = {adjH, adjW}})
      end)
    end,
    methods = {noBias = no_bias}, repr = window_repr,
  })
  local function window3(self, nin, nout, kT, kW, kH, dT, dW, dH, padT, padW, padH)
    self.nInputPlane, self.nOutputPlane = int(self, 'nInputPlane', nin), int(self, 'nOutputPlane', nout)
    self.kT, self.kW, self.kH = int(self, 'kT', kT), int(self, 'kW', kW), int(self, 'kH', kH)
    self.dT, self.dW, self.dH = int(self, 'dT', dT, 1), int(self, 'dW', dW, 1), int(self, 'dH', dH, 1)
    self.padT = int(self, 'padT', padT, 0)
    self.padW = int(self, 'padW', padW, self.padT)
    self.padH = int(self, 'padH', padH, self.padW)
  end
  local function fan_in3(self) return 1 / sqrt(self.kT * self.kW * self.kH * self.nInputPlane) end
  local function conv3(self, x, p)
    return H.batched(self, x, 5, function(v)
      return amp.conv3d(v, p.weight, p.bias, {stride = {self.dT, self.dH, self.dW}, padding = {self.padT, self.padH, self.padW},
        dilation = {self.dilationT or 1, self.dilationH or 1, self.dilationW or 1}})
    end)
  end
  local weight3 = weight_and_bias(function(self) return {'weight', self.nOutputPlane, self.nInputPlane, self.kT, self.kH, self.kW} end, full_bias)
  define('VolumetricConvolution', {init = window3, params = weight3, stdv = fan_in3, compute = conv3, methods = {noBias = no_bias}})
  define('VolumetricDilatedConvolution', {
    init = function(self, nin, nout, kT, kW, kH, dT, dW, dH, padT, padW, padH, dilationT, dilationW, dilationH)
      window3(self, nin, nout, kT, kW, kH, dT, dW, dH, padT, padW, padH)
      self.dilationT, self.dilationW = int(self, 'dilationT', dilationT, 1), int(self, 'dilationW', dilationW, 1)
      self.dilationH = int(self, 'dilationH', dilationH, 1)
    end,
    params = weight3, stdv = fan_in3, compute = conv3, methods = {noBias = no_bias},
  })
  define('VolumetricFullConvolution', {
    thin_zeros = true,
    init = function(self, nin, nout, kT, kW, kH, dT, dW, dH, padT, padW, padH, adjT, adjW, adjH)
      window3(self, nin, nout, kT, kW, kH, dT, dW, dH, padT, padW or 0, padH or 0)
      self.adjT, self.adjW, self.adjH = int(self, 'adjT', adjT, 0), int(self, 'adjW', adjW, 0), int(self, 'adjH', adjH, 0)
    end,
    params = weight_and_bias(function(self) return {'weight', self.nInputPlane, self.nOutputPlane, self.kT, self.kH, self.kW} end, full_bias),
    stdv = function(self) return 1 / sqrt(self.kT * self.kW * self.kH * self.nInputPlane) end,
    compute = function(self, x, p)
      local adj = {self.adjT or 0, self.adjH or 0, self.adjW or 0}
      if type(x) == 'table' then
        local s = x[2]
        local n = s:dim()
        adj = {adjust(s:size(n - 2), self.kT, self.padT, self.dT), adjust(s:size(n - 1), self.kH, self.padH, self.dH),
          adjust(s:size(n), self.kW, self.padW, self.dW)}
        x = x[1]
      end
      return H.batched(self, x, 5, function(v)
        return amp.conv_transpose3d(v, p.weight, p.bias, {stride = {self.dT, self.dH, self.dW}, padding = {self.padT, self.padH, self.padW},
          output_padding = adj})
      end)
    end,
    methods = {noBias = no_bias},
  })
  define('SpatialConvolutionLocal', {
    init = function(self, nin, nout, iW, iH, kW, kH, dW, dH, padW, padH)
      window(self, nin, nout, kW, kH, dW, dH, padW, padH)
      self.iW, self.iH = int(self, 'iW', iW), int(self, 'iH', iH)
      self.oW = math.floor((self.padW * 2 + iW - kW) / self.dW) + 1
      self.oH = math.floor((self.padH * 2 + iH - kH) / self.dH) + 1
      if self.oW < 1 or self.oH < 1 then raise(self.__name, 'the output would be %dx%d', self.oH, self.oW) end
    end,
    params = function(self)
      return {{'weight', self.oH, self.oW, self.nOutputPlane, self.nInputPlane, self.kH, self.kW}, {'bias', self.nOutputPlane, self.oH, self.oW}}
    end,
    stdv = fan_in,
    compute = function(self, x, p)
      return H.batched(self, x, 4, function(v)
        if v:size(2) ~= self.nInputPlane or v:size(3) ~= self.iH or v:size(4) ~= self.iW then
          raise(self.__name, 'an input of %dx%dx%d expected, got %s', self.nInputPlane, self.iH, self.iW, tostring(x:size()))
        end
        local n, l, k = v:size(1), self.oH * self.oW, self.nInputPlane * self.kH * self.kW
        local cols = amp.im2col(v, {kernel_size = {self.kH, self.kW}, padding = {self.padH, self.padW}, stride = {self.dH, self.dW}}) -- n x k x l
        local w = p.weight:reshape(l, self.nOutputPlane, k)
        local y = w:matmul(cols:permute(3, 2, 1)) -- l x out x n
        return y:permute(3, 2, 1):reshape(n, self.nOutputPlane, self.oH, self.oW) + p.bias
      end)
    end,
  })
  -- Planes joined by a table of pairs {from, to}: a full convolution whose other weights are 0.
  local function connections(self, t)
    local rows = t.tolist and t:tolist() or t:totable()
    local nin, nout = 0, 0
    for _, r in ipairs(rows) do nin, nout = math.max(nin, r[1]), math.max(nout, r[2]) end
    self.nInputPlane, self.nOutputPlane, self.rows_ = nin, nout, rows
  end
  local function mapped(self, p, full)
    local i = self.nInputPlane
    local at, k = {}, self.kH * self.kW
    for n, r in ipairs(self.rows_) do at[n] = full and (r[1] - 1) * self.nOutputPlane + r[2] or (r[2] - 1) * i + r[1] end
    local index = amp.tensor(at, {dtype = 'int64', device = p.weight.device})
    local w = amp.zeros({self.nOutputPlane * i, k}, {dtype = p.weight.dtype, device = p.weight.device}):index_add(1, index, p.weight:reshape(#at, k))
    if full then return w:reshape(i, self.nOutputPlane, self.kH, self.kW) end
    return w:reshape(self.nOutputPlane, i, self.kH, self.kW)
  end
  local function map_reset(self, stdv)
    local count = {}
    for _, r in ipairs(self.rows_) do count[r[2]] = (count[r[2]] or 0) + 1 end
    for n, r in ipairs(self.rows_) do
      local s = stdv and stdv * sqrt(3) or 1 / sqrt(self.kW * self.kH * count[r[2]])
      self.weight:select(1, n):uniform(-s, s)
    end
    for o = 1, self.nOutputPlane do
      local s = stdv and stdv * sqrt(3) or 1 / sqrt(self.kW * self.kH * (count[o] or 1))
      self.bias:narrow(1, o, 1):uniform(-s, s)
    end
  end
  local function map_init(self, conMatrix, kW, kH, dW, dH)
    connections(self, conMatrix)
    self.connTable = conMatrix
    self.kW, self.kH, self.dW, self.dH = int(self, 'kW', kW), int(self, 'kH', kH), int(self, 'dW', dW, 1), int(self, 'dH', dH, 1)
    self.padW, self.padH = 0, 0
  end
  local map_params = weight_and_bias(function(self) return {'weight', #self.rows_, self.kH, self.kW} end, full_bias)
  define('SpatialConvolutionMap', {
    init = map_init, params = map_params, after_reset = map_reset,
    after_fields = function(self) connections(self, self.connTable) end,
    compute = function(self, x, p) return conv2(self, x, p, mapped(self, p)) end,
  })
  define('SpatialFullConvolutionMap', {
    init = map_init, params = map_params, after_reset = map_reset,
    after_fields = function(self) connections(self, self.connTable) end,
    compute = function(self, x, p)
      return H.batched(self, x, 4, function(v) return amp.conv_transpose2d(v, mapped(self, p, true), p.bias, {stride = {self.dH, self.dW}}) end)
    end,
  })
  -- Sums of a window, times a weight a plane.
  define('SpatialSubSampling', {
    init = function(self, nInputPlane, kW, kH, dW, dH) window(self, nInputPlane, nInputPlane, kW, kH, dW, dH) end,
    params = function(self) return {{'weight', self.nInputPlane}, {'bias', self.nInputPlane}} end,
    stdv = function(self) return 1 / sqrt(self.kW * self.kH) end,
    compute = function(self, x, p)
      return H.batched(self, x, 4, function(v)
        local y = amp.avg_pool2d(v, {kernel_size = {self.kH, self.kW}, stride = {self.dH, self.dW}}) * (self.kH * self.kW)
        return y * p.weight:reshape(-1, 1, 1) + p.bias:reshape(-1, 1, 1)
      end)
    end,
  })

  -- -- Sequences, N x T x C or T x C ----------------------------------------------------------------------------

  define('TemporalConvolution', {
    init = function(self, inputFrameSize, outputFrameSize, kW, dW)
      self.inputFrameSize, self.outputFrameSize = int(self, 'inputFrameSize', inputFrameSize), int(self, 'outputFrameSize', outputFrameSize)
      self.kW, self.dW = int(self, 'kW', kW), int(self, 'dW', dW, 1)
    end,
    params = function(self) return {{'weight', self.outputFrameSize, self.inputFrameSize * self.kW}, {'bias', self.outputFrameSize}} end,
    stdv = function(self) return 1 / sqrt(self.kW * self.inputFrameSize) end,
    compute = function(self, x, p)
      local w = p.weight:reshape(self.outputFrameSize, self.kW, self.inputFrameSize):transpose(2, 3) -- a row holds frame after frame
      return H.batched(self, x, 3, function(v) return amp.conv1d(v:transpose(2, 3), w, p.bias, {stride = self.dW}):transpose(2, 3) end)
    end,
  })
  define('TemporalSubSampling', {
    init = function(self, inputFrameSize, kW, dW)
      self.inputFrameSize, self.kW, self.dW = int(self, 'inputFrameSize', inputFrameSize), int(self, 'kW', kW), int(self, 'dW', dW, 1)
    end,
    params = function(self) return {{'weight', self.inputFrameSize}, {'bias', self.inputFrameSize}} end,
    stdv = function(self) return 1 / sqrt(self.kW) end,
    compute = function(self, x, p)
      return H.batched(self, x, 3, function(v)
        local y = amp.avg_pool1d(v:transpose(2, 3), {kernel_size = self.kW, stride = self.dW}):transpose(2, 3) * self.kW
        return y * p.weight + p.bias
      end)
    end,
  })
  define('TemporalRowConvolution', {
    init = function(self, inputFrameSize, kW, dW, featFirst)
      self.inputFrameSize, self.kW, self.dW = int(self, 'inputFrameSize', inputFrameSize), int(self, 'kW', kW), int(self, 'dW', dW, 1)
      self.featFirst = H.flag(self, 'featFirst', featFirst, false)
    end,
    params = function(self) return {{'weight', self.inputFrameSize, 1, self.kW}, {'bias', self.inputFrameSize}} end,
    stdv = function(self) return 1 / sqrt(self.kW * self.inputFrameSize) end,
    compute = function(self, x, p)
      return H.batched(self, x, 3, function(v)
        if not self.featFirst then v = v:transpose(2, 3) end
        local y = amp.conv1d(v, p.weight, p.bias, {stride = self.dW, groups = self.inputFrameSize})
        return self.featFirst and y or y:transpose(2, 3)
      end)
    end,
    methods = {noBias = no_bias},
  })
end

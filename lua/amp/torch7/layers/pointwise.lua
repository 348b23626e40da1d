--- Layers that work element by element. Where a function has no derivative the gradient is Torch7's.
local amp = require 'amp'
local H = require 'amp.torch7.layers.help'
local raise = require('amp.error').throw

return function(define)
  local function simple(name, f)
    define(name, {init = function() end, compute = function(_, x) return f(x) end})
  end
  simple('Abs', function(x) return amp.where(x:ge(0), x, -x) end)
  simple('Square', function(x) return x:square() end)
  simple('Exp', function(x) return x:exp() end)
  simple('Log', function(x) return x:log() end)
  simple('Tanh', function(x) return x:tanh() end)
  simple('Sigmoid', function(x) return x:sigmoid() end)
  simple('LogSigmoid', amp.log_sigmoid)
  simple('SoftSign', amp.softsign)
  simple('TanhShrink', amp.tanhshrink)
  simple('Identity', function(x) return x end)
  simple('Contiguous', function(x) return x:contiguous() end)

  define('Sqrt', {
    init = function(self, b)
      if b ~= nil and b ~= 0 then raise(self.__name, 'takes no argument, got %s', tostring(b)) end
    end,
    compute = function(_, x) return H.safe_sqrt(x) end,
  })
  local function inplace(self, ip) self.inplace = H.flag(self, 'inplace', ip, false) end
  define('ReLU', {init = inplace, compute = function(_, x) return x:relu() end})
  define('ReLU6', {init = inplace, compute = function(_, x) return amp.hardtanh(x, 0, 6) end})
  define('Threshold', {
    init = function(self, th, v, ip)
      self.threshold, self.val = H.number(self, 'threshold', th, 1e-6), H.number(self, 'val', v, 0)
      inplace(self, ip)
    end,
    compute = function(self, x) return amp.threshold(x, self.threshold, self.val) end,
  })
  define('LeakyReLU', {
    init = function(self, negval, ip)
      if type(negval) == 'boolean' then negval, ip = nil, negval end
      self.negval = H.number(self, 'negval', negval, 1 / 100)
      inplace(self, ip)
    end,
    compute = function(self, x) return amp.where(x:gt(0), x, x * self.negval) end,
  })
  define('ELU', {
    init = function(self, alpha, ip)
      self.alpha = H.number(self, 'alpha', alpha, 1)
      inplace(self, ip)
    end,
    compute = function(self, x) return amp.elu(x, {alpha = self.alpha}) end,
  })
  local function clamp(self, low, high, ip)
    self.min_val, self.max_val = H.number(self, 'min_value', low, -1), H.number(self, 'max_value', high, 1)
    if self.max_val <= self.min_val then raise(self.__name, 'max_value must be above min_value, got %g and %g', self.max_val, self.min_val) end
    inplace(self, ip)
  end
  local function clamped(self, x) return amp.hardtanh(x, self.min_val, self.max_val) end
  define('HardTanh', {init = clamp, compute = clamped})
  define('Clamp', {init = function(self, low, high) clamp(self, low, high) end, compute = clamped})
  define('HardShrink', {
    init = function(self, lambda) self.lambda = H.number(self, 'lambda', lambda, 0.5) end,
    compute = function(self, x) return amp.hardshrink(x, {lambd = self.lambda}) end,
  })
  define('SoftShrink', {
    init = function(self, lambda) self.lambda = H.number(self, 'lambda', lambda, 0.5) end,
    compute = function(self, x) return amp.softshrink(x, {lambd = self.lambda}) end,
  })
  define('SoftPlus', {
    init = function(self, beta) self.beta, self.threshold = H.number(self, 'beta', beta, 1), 20 end,
    compute = function(self, x) return amp.softplus(x, {beta = self.beta, threshold = self.threshold}) end,
  })
  define('Power', {
    init = function(self, p) self.pow = H.number(self, 'p', p) end,
    compute = function(self, x) return x:pow(self.pow) end,
  })
  local function constant(name, f)
    define(name, {
      init = function(self, c, ip)
        if type(c) ~= 'number' and not amp.is_tensor(c) and type(c) ~= 'userdata' then raise(self.__name, 'a number expected, got %s', tostring(c)) end
        self.constant_scalar = c
        inplace(self, ip)
      end,
      compute = function(self, x, p) return f(x, p.amp_of and p.amp_of(self.constant_scalar) or self.constant_scalar) end,
    })
  end
  constant('AddConstant', function(x, c) return x + c end)
  constant('MulConstant', function(x, c) return x * c end)

  define('RReLU', {
    init = function(self, l, u, ip)
      self.lower, self.upper = H.number(self, 'l', l, 1 / 8), H.number(self, 'u', u, 1 / 3)
      if self.lower > self.upper or self.lower < 0 then raise(self.__name, '0 <= l <= u expected, got %g and %g', self.lower, self.upper) end
      inplace(self, ip)
    end,
    random = true,
    compute = function(self, x, _, ctx)
      local slope = (self.lower + self.upper) / 2
      if ctx.train then
        if not ctx.noise then
          local d = x:detach()
          ctx.noise = amp.where(d:gt(0), amp.ones_like(d), amp.rand_like(d) * (self.upper - self.lower) + self.lower)
        end
        return x * ctx.noise
      end
      return amp.where(x:gt(0), x, x * slope)
    end,
  })
  define('GradientReversal', {
    init = function(self, lambda) self.lambda = H.number(self, 'lambda', lambda, 1) end,
    compute = function(self, x) return x * -self.lambda + x:detach() * (1 + self.lambda) end,
    methods = {setLambda = function(self, lambda)
      self.lambda = lambda or 1
      return self
    end},
  })
  define('GatedLinearUnit', {
    init = function(self, dim) self.dim = dim end,
    compute = function(self, x) return amp.glu(x, {dim = self.dim or x:dim()}) end,
  })
  define('CReLU', {
    init = function(self, nInputDims, ip)
      self.nInputDims = nInputDims
      inplace(self, ip)
    end,
    compute = function(self, x)
      local d = self.nInputDims and x:dim() == self.nInputDims + 1 and 2 or 1
      return amp.cat({x:relu(), (-x):relu()}, d)
    end,
  })

  -- -- Over classes ------------------------------------------------------------------------------

  -- The dimension of classes: the only one, the second of N x C, the first of C x H x W, the second of N x C x H x W.
  local function classes(self, x)
    local d = x:dim()
    if d < 1 or d > 4 then raise(self.__name, 'an input of 1 to 4 dimensions expected, got %s', tostring(x:size())) end
    return ({1, 2, 1, 2})[d]
  end
  local function spatial(self, x)
    if x:dim() ~= 3 and x:dim() ~= 4 then raise(self.__name, 'an input of 3 or 4 dimensions expected, got %s', tostring(x:size())) end
    return x:dim() - 2
  end
  local none = function() end
  define('SoftMax', {init = none, compute = function(self, x) return amp.softmax(x, classes(self, x)) end})
  define('LogSoftMax', {init = none, compute = function(self, x) return amp.log_softmax(x, classes(self, x)) end})
  define('SoftMin', {init = none, compute = function(self, x) return amp.softmax(-x, classes(self, x)) end})
  define('SpatialSoftMax', {init = none, compute = function(self, x) return amp.softmax(x, spatial(self, x)) end})
  define('SpatialLogSoftMax', {init = none, compute = function(self, x) return amp.log_softmax(x, spatial(self, x)) end})

  -- -- Noise ----------------------------------------------------------------------------------------

  -- Zeros and ones of a shape like `like`, drawn once a forward pass.
  local function mask(ctx, x, shape, p)
    if not ctx.noise then ctx.noise = amp.bernoulli(amp.empty(shape, {dtype = x.dtype, device = x.device}), {p = 1 - p}) end
    return ctx.noise
  end
  local function rate(self, p)
    self.p = H.number(self, 'p', p, 0.5)
    if self.p < 0 or self.p >= 1 then raise(self.__name, 'p must be at least 0 and below 1, got %g', self.p) end
  end
  local methods = {setp = function(self, p) rate(self, p) end}
  local function show(self) return tostring(self.p) end
  define('Dropout', {
    init = function(self, p, v1, ip, stochasticInference)
      rate(self, p)
      self.v2 = not H.flag(self, 'v1', v1, false)
      inplace(self, ip)
      self.stochastic_inference = H.flag(self, 'stochasticInference', stochasticInference, false)
    end,
    random = true,
    compute = function(self, x, _, ctx)
      if self.p == 0 then return x end
      if not (ctx.train or self.stochastic_inference) then return self.v2 and x or x * (1 - self.p) end
      local y = x * mask(ctx, x, x:size(), self.p)
      return self.v2 and y / (1 - self.p) or y
    end,
    methods = methods, repr = show,
  })
  -- Whole planes: zeros in training, times 1 - p in evaluation.
  local function planes(name, dims)
    define(name, {
      init = function(self, p, stochasticInference)
        rate(self, p)
        self.stochastic_inference = H.flag(self, 'stochasticInference', stochasticInference, false)
      end,
      random = true,
      compute = function(self, x, _, ctx)
        local n = x:dim()
        if n ~= dims and n ~= dims - 1 then raise(self.__name, 'an input of %d or %d dimensions expected, got %s', dims - 1, dims, tostring(x:size())) end
        if not (ctx.train or self.stochastic_inference) then return x * (1 - self.p) end
        local shape = {}
        for d = 1, n do shape[d] = d <= n - dims + 2 and x:size(d) or 1 end
        return x * mask(ctx, x, shape, self.p)
      end,
      methods = methods, repr = show,
    })
  end
  planes('SpatialDropout', 4)
  planes('VolumetricDropout', 5)
  define('WhiteNoise', {
    init = function(self, mean, std) self.mean, self.std = H.number(self, 'mean', mean, 0), H.number(self, 'std', std, 0.1) end,
    random = true,
    compute = function(self, x, _, ctx)
      if not ctx.train then return self.mean ~= 0 and x + self.mean or x end
      ctx.noise = ctx.noise or amp.randn_like(x:detach()) * self.std + self.mean
      return x + ctx.noise
    end,
  })
end

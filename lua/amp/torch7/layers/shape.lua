--- Layers that change shapes, choose parts and reduce.
local amp = require 'amp'
local H = require 'amp.torch7.layers.help'
local raise = require('amp.error').throw

return function(define)
  local dims_method = {setNumInputDims = function(self, n)
    self.numInputDims = n
    return self
  end}
  local function show_size(self) return table.concat(H.sizes(self.size), ', ') end

  -- How many examples of `n` elements an input holds, nil: one without a batch's dimension.
  local function batch_of(self, x, n, free)
    local nd, inner = x:dim(), 1
    local depth = self.numInputDims or nd
    for d = nd, math.max(nd - depth + 1, 1), -1 do inner = inner * x:size(d) end
    if inner % n ~= 0 then raise(self.__name, 'an input of %s cannot be seen as %s', tostring(x:size()), show_size(self)) end
    local count = free and 1 or inner / n
    for d = nd - depth, 1, -1 do count = count * x:size(d) end
    if count == 1 and (not self.numInputDims or nd <= self.numInputDims) then return nil end
    return count
  end
  local function set_size(self, ...)
    self.size = H.sizes(...)
    self.numElements = 1
    local free = 0
    for _, s in ipairs(self.size) do
      if s == -1 then free = free + 1
      elseif type(s) ~= 'number' or s < 0 or s % 1 ~= 0 then raise(self.__name, 'sizes are whole numbers or -1, got %s', tostring(s))
      else self.numElements = self.numElements * s end
    end
    if free > 1 then raise(self.__name, 'only one size can be -1, got %s', show_size(self)) end
    return self
  end
  define('View', {
    init = function(self, ...) set_size(self, ...) end,
    compute = function(self, x)
      local size, free, count = H.sizes(self.size), false, 1
      for _, s in ipairs(size) do
        if s == -1 then free = true else count = count * s end
      end
      local n = batch_of(self, x, count, free)
      if n then return x:reshape(n, unpack(size)) end
      return x:reshape(unpack(size))
    end,
    methods = {setNumInputDims = dims_method.setNumInputDims, resetSize = set_size}, repr = show_size,
  })
  define('Reshape', {
    init = function(self, ...)
      local list = {...}
      self.batchMode = nil
      if type(list[#list]) == 'boolean' then self.batchMode = table.remove(list) end
      self.size, self.nelement = H.sizes(unpack(list)), 1
      for _, s in ipairs(self.size) do self.nelement = self.nelement * s end
    end,
    compute = function(self, x)
      local size, n = H.sizes(self.size), 1
      for _, s in ipairs(size) do n = n * s end
      if self.batchMode == false or self.batchMode == nil and x:numel() == n and x:size(1) ~= 1 then return x:reshape(unpack(size)) end
      return x:reshape(x:size(1), unpack(size))
    end,
    repr = show_size,
  })
  define('Collapse', {
    init = function(self, nInputDim) self.nInputDim = H.number(self, 'nInputDim', nInputDim) end,
    compute = function(self, x)
      if x:dim() > self.nInputDim then return x:reshape(x:size(1), -1) end
      return x:reshape(-1)
    end,
  })
  define('Transpose', {
    init = function(self, ...)
      self.permutations = {...}
      for _, s in ipairs(self.permutations) do
        if type(s) ~= 'table' or #s ~= 2 then raise(self.__name, 'pairs of dimensions expected, {1, 2}, got %s', tostring(s)) end
      end
    end,
    compute = function(self, x)
      local offset = self.numInputDims and x:dim() - self.numInputDims or 0
      for _, s in ipairs(self.permutations) do x = x:transpose(s[1] < 0 and s[1] or s[1] + offset, s[2] < 0 and s[2] or s[2] + offset) end
      return x:contiguous()
    end,
    methods = dims_method,
  })
  define('Squeeze', {
    init = function(self, dim, numInputDims) self.dim, self.numInputDims = dim, numInputDims end,
    compute = function(self, x)
      local batch = self.numInputDims and x:dim() == self.numInputDims + 1
      local d = self.dim
      if d then
        if d < 0 then d = d + x:dim() + 1 elseif batch then d = d + 1 end
        if x:dim() == 1 then return x end
        return x:squeeze(d)
      end
      local size = {}
      for i = 1, x:dim() do
        if x:size(i) ~= 1 or batch and i == 1 then size[#size + 1] = x:size(i) end
      end
      if #size == 0 then size[1] = 1 end
      return x:reshape(unpack(size))
    end,
    methods = dims_method,
  })
  define('Unsqueeze', {
    init = function(self, pos, numInputDims)
      self.pos, self.numInputDims = H.number(self, 'pos', pos), numInputDims
    end,
    compute = function(self, x)
      local offset = x:dim() - (self.numInputDims or x:dim())
      if offset < 0 then raise(self.__name, 'an input of at least %d dimensions expected, got %s', self.numInputDims, tostring(x:size())) end
      local pos = self.pos < 0 and self.pos or self.pos + offset
      return x:unsqueeze(pos)
    end,
    methods = dims_method,
    repr = function(self) return 'dim ' .. self.pos end,
  })
  define('Select', {
    init = function(self, dimension, index) self.dimension, self.index = H.number(self, 'dimension', dimension), H.number(self, 'index', index) end,
    compute = function(self, x) return x:select(self.dimension, self.index) end,
  })
  define('Narrow', {
    init = function(self, dimension, offset, length)
      self.dimension, self.index, self.length = H.number(self, 'dimension', dimension), H.number(self, 'offset', offset), H.number(self, 'length', length, 1)
    end,
    compute = function(self, x)
      local d = self.dimension < 0 and x:dim() + self.dimension + 1 or self.dimension
      local n, index = self.length, self.index
      if n < 0 then n = x:size(d) - index + n + 2 end
      if index < 0 then index, n = 1, x:size(d) - n end
      return x:narrow(d, index, n)
    end,
  })
  define('Replicate', {
    init = function(self, nf, dim, ndim)
      self.nfeatures, self.dim, self.ndim = H.number(self, 'nFeature', nf, nil, 1), H.number(self, 'dim', dim, 1, 1), ndim
    end,
    compute = function(self, x)
      local d = self.dim + (self.ndim and x:dim() > self.ndim and 1 or 0)
      if d > x:dim() + 1 then raise(self.__name, 'dimension %d of an input of %s', self.dim, tostring(x:size())) end
      local y = x:unsqueeze(d)
      local shape = y:size()
      shape[d] = self.nfeatures
      return y:expand(shape)
    end,
  })
  define('Padding', {
    init = function(self, dim, pad, nInputDim, value, index)
      self.dim, self.pad, self.nInputDim = H.number(self, 'dim', dim), H.number(self, 'pad', pad), nInputDim
      self.value, self.index = H.number(self, 'value', value, 0), H.number(self, 'index', index, 1)
    end,
    compute = function(self, x)
      local d = self.dim
      if d < 0 then d = x:dim() + d + 1
      elseif self.nInputDim and x:dim() ~= self.nInputDim then d = d + 1 end
      local n, index, size = math.abs(self.pad), self.index, x:size()
      if self.pad > 0 then index = x:size(d) - index + 2 end
      if n == 0 then return x end
      size[d] = n
      local extra = amp.full(size, self.value, {dtype = x.dtype, device = x.device})
      if index == 1 then return amp.cat({extra, x}, d) end
      if index == x:size(d) + 1 then return amp.cat({x, extra}, d) end
      return amp.cat({x:narrow(d, 1, index - 1), extra, x:narrow(d, index, x:size(d) - index + 1)}, d)
    end,
  })

  -- -- Reductions --------------------------------------------------------------------------------------

  local function reduction(self, dimension, nInputDims)
    self.dimension, self.nInputDims = H.number(self, 'dimension', dimension, 1), nInputDims
  end
  -- The only dimension of a vector stays, with one element.
  local function reduce(op)
    return function(self, x)
      local d = H.dimension(self, x, self.dimension)
      if d > x:dim() or d < 1 then raise(self.__name, 'dimension %d of an input of %s', self.dimension, tostring(x:size())) end
      return (x[op](x, d, x:dim() == 1 or self.squeeze == false))
    end
  end
  local sum, mean = reduce 'sum', reduce 'mean'
  define('Sum', {
    init = function(self, dimension, nInputDims, sizeAverage, squeeze)
      reduction(self, dimension, nInputDims)
      self.sizeAverage, self.squeeze = H.flag(self, 'sizeAverage', sizeAverage, false), H.flag(self, 'squeeze', squeeze, true)
    end,
    compute = function(self, x) return self.sizeAverage and mean(self, x) or sum(self, x) end,
  })
  define('Mean', {
    init = function(self, dimension, nInputDims)
      reduction(self, dimension, nInputDims)
      self.sizeAverage, self.squeeze = true, true
    end,
    compute = mean,
  })
  define('Max', {init = reduction, compute = reduce 'max'})
  define('Min', {init = reduction, compute = reduce 'min'})

  define('Normalize', {
    init = function(self, p, eps)
      self.p, self.eps = H.number(self, 'p', p), H.number(self, 'eps', eps, 1e-10)
      if self.p <= 0 then raise(self.__name, 'p must be above 0, got %g', self.p) end
    end,
    compute = function(self, x)
      if x:dim() > 2 then raise(self.__name, 'an input of 1 or 2 dimensions expected, got %s', tostring(x:size())) end
      local v = x:dim() == 1 and x:unsqueeze(1) or x
      local norm
      if self.p == math.huge then norm = (v:abs():max(2, true)) + self.eps
      else
        local a = self.p % 2 == 0 and v or v:abs()
        norm = (a:pow(self.p):sum(2, true) + self.eps):pow(1 / self.p)
      end
      return (v / norm):reshape(x:size())
    end,
  })
  define('PixelShuffle', {
    init = function(self, upscaleFactor) self.upscaleFactor = H.number(self, 'upscaleFactor', upscaleFactor, nil, 1) end,
    compute = function(self, x) return H.batched(self, x, 4, function(v) return amp.pixel_shuffle(v, self.upscaleFactor) end) end,
  })
  define('L1Penalty', {
    init = function(self, l1weight, sizeAverage, provideOutput)
      self.l1weight, self.sizeAverage = H.number(self, 'l1weight', l1weight), H.flag(self, 'sizeAverage', sizeAverage, false)
      self.provideOutput = H.flag(self, 'provideOutput', provideOutput, true)
    end,
    compute = function(self, x)
      local m = self.l1weight / (self.sizeAverage and x:numel() or 1)
      self.loss = m * x:detach():abs():sum():item()
      return self.penalty_output(x, m, self.provideOutput)
    end,
    fields = {penalty_output = amp.Function {
      forward = function(ctx, x, m, provide)
        ctx.m, ctx.provide = m, provide
        ctx:save_for_backward(x)
        return x:clone()
      end,
      backward = function(ctx, g)
        local x = unpack(ctx.saved_tensors)
        local d = x:sign() * ctx.m
        return ctx.provide and d + g or d
      end,
    }},
  })
end

--- Layers under Torch7's names and arguments. Those that amp has are made as amp's, with the arguments put into
-- their places; the small ones it has no need of (nn.View, nn.CAddTable, ...) are classes here.
-- Called by amp.torch7.nn with its module table.
local amp = require 'amp'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw
local nn = amp.nn

return function(M)
  -- -- Layers that amp has ---------------------------------------------------------------------

  local function pair(h, w) return {h, w} end

  --- nn.SpatialConvolution(nInputPlane, nOutputPlane, kW, kH, [dW, dH, padW, padH]): width first, as it was.
  function M.SpatialConvolution(nin, nout, kw, kh, dw, dh, pw, ph)
    return nn.Conv2d(nin, nout, pair(kh, kw), {stride = pair(dh or 1, dw or 1), padding = pair(ph or pw or 0, pw or 0)})
  end
  M.SpatialConvolutionMM = M.SpatialConvolution

  function M.SpatialDilatedConvolution(nin, nout, kw, kh, dw, dh, pw, ph, dilw, dilh)
    return nn.Conv2d(nin, nout, pair(kh, kw), {stride = pair(dh or 1, dw or 1), padding = pair(ph or pw or 0, pw or 0),
      dilation = pair(dilh or 1, dilw or 1)})
  end

  function M.SpatialFullConvolution(nin, nout, kw, kh, dw, dh, pw, ph, aw, ah)
    return nn.ConvTranspose2d(nin, nout, pair(kh, kw), {stride = pair(dh or 1, dw or 1), padding = pair(ph or pw or 0, pw or 0),
      output_padding = pair(ah or aw or 0, aw or 0)})
  end

  function M.VolumetricConvolution(nin, nout, kt, kw, kh, dt, dw, dh, pt, pw, ph)
    return nn.Conv3d(nin, nout, {kt, kh, kw}, {stride = {dt or 1, dh or 1, dw or 1}, padding = {pt or 0, ph or pw or 0, pw or 0}})
  end

  -- A layer that can be told to round sizes up: pool:ceil(), pool:floor().
  local function rounding(m)
    m.ceil = function(self)
      self.ceil_mode = true
      return self
    end
    m.floor = function(self)
      self.ceil_mode = false
      return self
    end
    return m
  end

  function M.SpatialMaxPooling(kw, kh, dw, dh, pw, ph)
    return rounding(nn.MaxPool2d(pair(kh, kw), {stride = pair(dh or kh, dw or kw), padding = pair(ph or pw or 0, pw or 0)}))
  end

  --- Steps of 1 where none are given, as it was.
  function M.SpatialAveragePooling(kw, kh, dw, dh, pw, ph)
    return rounding(nn.AvgPool2d(pair(kh, kw), {stride = pair(dh or 1, dw or 1), padding = pair(ph or pw or 0, pw or 0)}))
  end

  function M.VolumetricMaxPooling(kt, kw, kh, dt, dw, dh, pt, pw, ph)
    return rounding(nn.MaxPool3d({kt, kh, kw}, {stride = {dt or kt, dh or kh, dw or kw}, padding = {pt or 0, ph or pw or 0, pw or 0}}))
  end

  function M.SpatialAdaptiveMaxPooling(w, h) return nn.AdaptiveMaxPool2d(pair(h, w)) end
  function M.SpatialAdaptiveAveragePooling(w, h) return nn.AdaptiveAvgPool2d(pair(h, w)) end

  for name, class in pairs {BatchNormalization = 'BatchNorm1d', SpatialBatchNormalization = 'BatchNorm2d', VolumetricBatchNormalization = 'BatchNorm3d'} do
    M[name] = function(n, eps, momentum, affine) return nn[class](n, {eps = eps or 1e-5, momentum = momentum or 0.1, affine = affine ~= false}) end
  end

  function M.SpatialCrossMapLRN(size, alpha, beta, k) return nn.LocalResponseNorm(size, {alpha = alpha or 1e-4, beta = beta or 0.75, k = k or 1}) end
  function M.SpatialZeroPadding(l, r, t, b) return nn.ZeroPad2d {l, r or l, t or l, b or l} end
  function M.SpatialReflectionPadding(l, r, t, b) return nn.ReflectionPad2d {l, r or l, t or l, b or l} end
  function M.SpatialReplicationPadding(l, r, t, b) return nn.ReplicationPad2d {l, r or l, t or l, b or l} end
  function M.SpatialUpSamplingNearest(scale) return nn.Upsample {scale_factor = scale} end
  function M.SpatialUpSamplingBilinear(scale) return nn.Upsample {scale_factor = scale, mode = 'bilinear', align_corners = true} end
  function M.SpatialDropout(p) return nn.Dropout2d(p or 0.5) end
  function M.Dropout(p, _, inplace) return nn.Dropout(p or 0.5, inplace == true) end
  function M.LookupTable(n, d, padding) return nn.Embedding(n, d, {padding_idx = padding ~= 0 and padding or nil}) end
  function M.PReLU(n) return nn.PReLU(n and n > 0 and n or 1) end
  function M.SoftPlus(beta) return nn.Softplus(beta or 1) end
  function M.HardTanh(low, high) return nn.Hardtanh(low or -1, high or 1) end
  function M.HardShrink(lambda) return nn.Hardshrink(lambda or 0.5) end
  function M.SoftShrink(lambda) return nn.Softshrink(lambda or 0.5) end
  function M.LeakyReLU(slope) return nn.LeakyReLU(slope or 0.01) end
  function M.Threshold(threshold, value) return nn.Threshold(threshold or 1e-6, value or 0) end
  function M.ELU(alpha) return nn.ELU(alpha or 1) end
  function M.SoftSign() return nn.Softsign() end
  function M.TanhShrink() return nn.Tanhshrink() end
  function M.LogSigmoid() return nn.LogSigmoid() end

  -- -- Layers of their own ------------------------------------------------------------------------

  local function layer(name, init, forward, repr)
    local L = Module:extend('nn.' .. name)
    if init then L.init = init end
    L.forward = forward
    if repr then L.extra_repr = repr end
    M[name] = L
    return L
  end

  -- The dimension of classes: the only one, the second of N x C, the first of C x H x W, the second of N x C x H x W.
  local function classes(x) return ({1, 2, 1, 2})[x:dim()] or -1 end
  layer('SoftMax', nil, function(_, x) return amp.softmax(x, classes(x)) end)
  layer('LogSoftMax', nil, function(_, x) return amp.log_softmax(x, classes(x)) end)
  layer('SpatialSoftMax', nil, function(_, x) return amp.softmax(x, x:dim() - 2) end)
  layer('SpatialLogSoftMax', nil, function(_, x) return amp.log_softmax(x, x:dim() - 2) end)

  for name, op in pairs {Abs = 'abs', Sqrt = 'sqrt', Square = 'square', Exp = 'exp', Log = 'log', Contiguous = 'contiguous'} do
    layer(name, nil, function(_, x) return x[op](x) end)
  end
  layer('Power', function(self, p) self.power = p end, function(self, x) return x:pow(self.power) end)
  layer('AddConstant', function(self, c) self.constant = c end, function(self, x) return x + self.constant end)
  layer('MulConstant', function(self, c) self.constant = c end, function(self, x) return x * self.constant end)

  -- Sizes given as numbers, one list or a storage.
  local function sizes(...)
    local first = ...
    if amp.is_tensor(first) then return first:tolist() end
    if type(first) == 'table' then return {unpack(first)} end
    return {...}
  end
  local function show_size(self) return table.concat(self.size, ', ') end

  --- nn.View(sizes): the batch's dimension is kept where the sizes hold one example's elements; at most one is -1.
  local View = layer('View', function(self, ...)
    self.size = sizes(...)
    self.input_dims = false
  end, function(self, x)
    local n, free = 1, false
    for _, s in ipairs(self.size) do
      if s == -1 then free = true else n = n * s end
    end
    local batched
    if self.input_dims then batched = x:dim() > self.input_dims
    elseif free then batched = false
    else batched = x:numel() ~= n end
    if batched then return x:reshape(x:size(1), unpack(self.size)) end
    return x:reshape(unpack(self.size))
  end, show_size)
  function View:setNumInputDims(n)
    self.input_dims = n
    return self
  end

  --- nn.Reshape(sizes, [batchMode]): with a batch unless the first dimension is the last that is needed.
  layer('Reshape', function(self, ...)
    local list = {...}
    self.batch = nil
    if type(list[#list]) == 'boolean' then self.batch = table.remove(list) end
    self.size = sizes(unpack(list))
  end, function(self, x)
    local n = 1
    for _, s in ipairs(self.size) do n = n * s end
    if self.batch == false or self.batch == nil and x:numel() == n and x:size(1) ~= 1 then return x:reshape(unpack(self.size)) end
    return x:reshape(x:size(1), unpack(self.size))
  end, show_size)

  layer('Transpose', function(self, ...) self.swaps = {...} end, function(self, x)
    for _, s in ipairs(self.swaps) do x = x:transpose(s[1], s[2]) end
    return x
  end)
  layer('Squeeze', function(self, d) self.dim = d end, function(self, x)
    if self.dim then return x:squeeze(self.dim) end
    return x:squeeze()
  end)
  layer('Unsqueeze', function(self, d) self.dim = d end, function(self, x) return x:unsqueeze(self.dim) end)
  layer('Select', function(self, d, i) self.dim, self.index = d, i end, function(self, x) return x:select(self.dim, self.index) end)
  layer('Narrow', function(self, d, offset, n) self.dim, self.offset, self.length = d, offset, n or 1 end, function(self, x)
    local n = self.length
    if n < 0 then n = x:size(self.dim) - self.offset + n + 2 end
    return x:narrow(self.dim, self.offset, n)
  end)
  layer('Replicate', function(self, n, d) self.n, self.dim = n, d or 1 end, function(self, x)
    local shape = x:unsqueeze(self.dim):size()
    shape[self.dim] = self.n
    return x:unsqueeze(self.dim):expand(shape)
  end)
  for name, op in pairs {Mean = 'mean', Sum = 'sum', Max = 'max', Min = 'min'} do
    layer(name, function(self, d, input_dims) self.dim, self.input_dims = d or 1, input_dims end, function(self, x)
      local d = self.dim
      if self.input_dims and d > 0 and x:dim() > self.input_dims then d = d + 1 end
      return (x[op](x, d))
    end)
  end

  --- nn.TemporalConvolution(inputFrameSize, outputFrameSize, kW, [dW]): N x T x C, or T x C.
  layer('TemporalConvolution', function(self, nin, nout, kw, dw) self.conv = nn.Conv1d(nin, nout, kw, {stride = dw or 1}) end,
    function(self, x) return self.conv(x:transpose(-1, -2)):transpose(-1, -2) end)
  layer('TemporalMaxPooling', function(self, kw, dw) self.pool = nn.MaxPool1d(kw, {stride = dw or kw}) end,
    function(self, x) return self.pool(x:transpose(-1, -2)):transpose(-1, -2) end)

  -- -- Tables of tensors ---------------------------------------------------------------------------

  local function list_of(self, t)
    if type(t) ~= 'table' or t[1] == nil then raise(self.__name, 'a list of tensors expected, got %s', amp.is_tensor(t) and 'one tensor' or type(t)) end
    return t
  end
  local function fold(name, f)
    layer(name, nil, function(self, t)
      list_of(self, t)
      local out = t[1]
      for i = 2, #t do out = f(out, t[i]) end
      return out
    end)
  end
  fold('CAddTable', function(a, b) return a + b end)
  fold('CMulTable', function(a, b) return a * b end)
  fold('CSubTable', function(a, b) return a - b end)
  fold('CDivTable', function(a, b) return a / b end)
  fold('CMaxTable', function(a, b) return amp.maximum(a, b) end)
  fold('CMinTable', function(a, b) return amp.minimum(a, b) end)

  layer('JoinTable', function(self, d, input_dims) self.dim, self.input_dims = d, input_dims end, function(self, t)
    local d = self.dim
    if self.input_dims and list_of(self, t)[1]:dim() > self.input_dims then d = d + 1 end
    return amp.cat(list_of(self, t), d)
  end)
  layer('SplitTable', function(self, d, input_dims) self.dim, self.input_dims = d, input_dims end, function(self, x)
    local d = self.dim
    if self.input_dims and x:dim() > self.input_dims then d = d + 1 end
    local out = {}
    for i = 1, x:size(d) do out[i] = x:select(d, i) end
    return out
  end)
  layer('SelectTable', function(self, i) self.index = i end, function(self, t)
    return list_of(self, t)[self.index < 0 and #t + 1 + self.index or self.index]
  end)
  layer('NarrowTable', function(self, offset, n) self.offset, self.length = offset, n or 1 end, function(self, t)
    return {unpack(list_of(self, t), self.offset, self.offset + self.length - 1)}
  end)
  layer('FlattenTable', nil, function(_, t)
    local out = {}
    local function go(x)
      if amp.is_tensor(x) then out[#out + 1] = x else for _, y in ipairs(x) do go(y) end end
    end
    go(t)
    return out
  end)
  layer('MM', function(self, a, b) self.trans_a, self.trans_b = a, b end, function(self, t)
    local a, b = list_of(self, t)[1], t[2]
    if self.trans_a then a = a:transpose(-1, -2) end
    if self.trans_b then b = b:transpose(-1, -2) end
    return a:matmul(b)
  end)
  layer('DotProduct', nil, function(self, t) return (list_of(self, t)[1] * t[2]):sum(-1) end)
  layer('CosineDistance', nil, function(self, t) return amp.cosine_similarity(list_of(self, t)[1], t[2], -1) end)

  -- -- Containers ---------------------------------------------------------------------------------------

  local function container(name, init, forward)
    local C = nn.Sequential:extend('nn.' .. name)
    C.init = function(self, ...)
      nn.Sequential.init(self)
      if init then init(self, ...) end
    end
    C.forward = forward
    M[name] = C
  end
  --- Each of its modules gets the input; gives the list of what they give.
  container('ConcatTable', nil, function(self, x)
    local out = {}
    for i = 1, self:size() do out[i] = self:get(i)(x) end
    return out
  end)
  --- Module i gets input i.
  container('ParallelTable', nil, function(self, t)
    local out = {}
    for i = 1, self:size() do out[i] = self:get(i)(list_of(self, t)[i]) end
    return out
  end)
  --- As ConcatTable, joined along a dimension.
  container('Concat', function(self, d) self.dim = d end, function(self, x)
    local out = {}
    for i = 1, self:size() do out[i] = self:get(i)(x) end
    return amp.cat(out, self.dim)
  end)
end

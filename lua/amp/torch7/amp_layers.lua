--- Layers under Torch7's names and arguments, as modules of amp. Where amp has the same layer it is made as amp's, with the
-- arguments put into their places; all others are made from the definitions in torch7/layers.
-- Called by amp.torch7.nn with its module table.
local amp = require 'amp'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw
local definitions = require 'amp.torch7.layers'
local H = require 'amp.torch7.layers.help'
local nn = amp.nn

return function(M)
  -- -- From definitions -------------------------------------------------------------------------------

  local function reset(self, spec, stdv)
    amp.no_grad(function()
      if spec.after_reset then return spec.after_reset(self, stdv) end
      if not spec.params then return end
      local s = stdv and stdv * math.sqrt(3) or spec.stdv(self)
      for _, p in ipairs(spec.params(self)) do self[p[1]]:uniform_(-s, s) end
    end)
    return self
  end

  local function new_tensor(_, rows) return amp.tensor(rows, {dtype = 'float64'}) end

  -- Fields of tensors that scripts gave, which a definition finds in p: buffers here.
  local function keep_tensors(self, spec)
    for _, name in ipairs(spec.tensors or {}) do
      local t = self[name]
      if amp.is_tensor(t) then self:register_buffer(name, t) end
    end
  end

  -- A layer with the fields that one has in a file.
  local transient = {output = true, gradInput = true, gradWeight = true, gradBias = true, noise = true, finput = true, fgradInput = true, train = true,
    _type = true, __typename = true, indices = true, modules = true}
  local function filled(L, spec, fields)
    local self = setmetatable({['.values'] = {training = true}, ['.kinds'] = {}, ['.names'] = {}}, L.__instance)
    local params, stored = {}, {}
    for k, v in pairs(fields) do
      if not transient[k] and not (type(k) == 'string' and k:match '^_') then
        if amp.is_tensor(v) then stored[k] = v:clone() else self[k] = v end
      end
    end
    for k, v in pairs(spec.missing or {}) do
      if self[k] == nil then self[k] = v end
    end
    if spec.params then
      for _, name in ipairs(spec.param_names) do params[name] = true end
    end
    for k, v in pairs(stored) do
      if params[k] then self:register_parameter(k, v) elseif k == 'size' or k == 'connTable' then self[k] = v else self:register_buffer(k, v) end
    end
    if spec.after_fields then spec.after_fields(self) end
    return self
  end

  M.from_fields = {}
  local function from_definition(name, spec)
    local L = Module:extend(spec.name)
    function L:init(...)
      definitions.check_count(spec, select('#', ...))
      spec.init(self, ...)
      for _, p in ipairs(spec.params and spec.params(self) or {}) do self:register_parameter(p[1], amp.empty({unpack(p, 2)})) end
      for _, b in ipairs(spec.buffers and spec.buffers(self) or {}) do self:register_buffer(b[1], amp.zeros({unpack(b, 2)})) end
      keep_tensors(self, spec)
      reset(self, spec)
    end
    function L:forward(x, y)
      if y ~= nil then x = {x, y} end
      if spec.before then amp.no_grad(spec.before, self, x, self.weight:detach()) end
      return spec.compute(self, x, self, {train = self.training})
    end
    L.reset = function(self, stdv) return reset(self, spec, stdv) end
    L.new_tensor = new_tensor
    if spec.repr then L.extra_repr = spec.repr end
    for k, f in pairs(spec.methods or {}) do L[k] = f end
    for k, v in pairs(spec.fields or {}) do L[k] = v end
    M[name] = L
    M.from_fields[name] = function(fields) return filled(L, spec, fields) end
  end
  for name, spec in pairs(definitions.layers) do from_definition(name, spec) end
  M.Linear, M.Identity = nn.Linear, nn.Identity
  M.ReLU, M.Tanh, M.Sigmoid = nn.ReLU, nn.Tanh, nn.Sigmoid

  -- -- Layers that amp has ---------------------------------------------------------------------

  -- A constructor of so many arguments at most.
  local function make(name, most, f)
    M[name] = function(...)
      definitions.check_count({name = 'nn.' .. name, most = most}, select('#', ...))
      return f(...)
    end
  end
  local function pair(h, w) return {h, w} end

  --- nn.SpatialConvolution(nInputPlane, nOutputPlane, kW, kH, [dW, dH, padW, padH]): width first, as it was.
  local function convolution(nin, nout, kw, kh, dw, dh, pw, ph)
    return nn.Conv2d(nin, nout, pair(kh, kw), {stride = pair(dh or 1, dw or 1), padding = pair(ph or pw or 0, pw or 0)})
  end
  make('SpatialConvolution', 8, convolution)
  make('SpatialConvolutionMM', 8, convolution)
  make('SpatialDilatedConvolution', 10, function(nin, nout, kw, kh, dw, dh, pw, ph, dilw, dilh)
    return nn.Conv2d(nin, nout, pair(kh, kw), {stride = pair(dh or 1, dw or 1), padding = pair(ph or pw or 0, pw or 0),
      dilation = pair(dilh or dilw or 1, dilw or 1)})
  end)
  make('VolumetricConvolution', 11, function(nin, nout, kt, kw, kh, dt, dw, dh, pt, pw, ph)
    pt = pt or 0
    pw = pw or pt
    return nn.Conv3d(nin, nout, {kt, kh, kw}, {stride = {dt or 1, dh or 1, dw or 1}, padding = {pt, ph or pw, pw}})
  end)

  --- One example is a batch of one, in evaluation.
  for name, class in pairs {BatchNormalization = 'BatchNorm1d', SpatialBatchNormalization = 'BatchNorm2d', VolumetricBatchNormalization = 'BatchNorm3d'} do
    local base = nn[class]
    local dims = ({BatchNorm1d = 2, BatchNorm2d = 4, BatchNorm3d = 5})[class]
    local L = base:extend('nn.' .. name)
    function L:init(n, eps, momentum, affine, ...)
      definitions.check_count({name = self.__name, most = 4}, 4 + select('#', ...))
      if type(affine) ~= 'boolean' and affine ~= nil then raise(self.__name, 'affine must be true or false, got %s', tostring(affine)) end
      base.init(self, n, {eps = eps or 1e-5, momentum = momentum or 0.1, affine = affine ~= false})
    end
    function L:forward(x)
      if x:dim() ~= dims - 1 or dims == 2 and x:dim() ~= 1 then return base.forward(self, x) end
      if self.training and dims ~= 4 then raise(self.__name, 'a batch of %d dimensions expected in training, got %s', dims, tostring(x:size())) end
      return base.forward(self, x:unsqueeze(1)):squeeze(1)
    end
    M[name] = L
  end

  --- Biases away: layer:noBias().
  function Module:noBias()
    self.bias = nil
    return self
  end

  -- -- Containers ---------------------------------------------------------------------------------------

  -- Tensors of several sizes, in the middle of the largest one's, zeros around.
  local function padded(list, join)
    local n, largest, out = list[1]:dim(), {}, {}
    for d = 1, n do
      largest[d] = 0
      for _, t in ipairs(list) do largest[d] = math.max(largest[d], t:size(d)) end
    end
    for i, t in ipairs(list) do
      local pad = {}
      for d = n, 1, -1 do
        local free = d == join and 0 or largest[d] - t:size(d)
        pad[#pad + 1] = math.floor(free / 2)
        pad[#pad + 1] = free - math.floor(free / 2)
      end
      out[i] = amp.pad(t, pad)
    end
    return out
  end

  -- `net.modules` is the list of a container's modules, and net:modules() amp's list of all.
  local function listed(self)
    self.modules = setmetatable({}, {
      __index = function(_, i) return type(i) == 'number' and rawget(self, '.values')[i] or nil end,
      __len = function() return self:size() end,
      __call = function(_, m, ...) return Module.modules(m, ...) end,
    })
  end
  local function container(name, init, forward)
    local C = nn.Sequential:extend('nn.' .. name)
    C.init = function(self, ...)
      nn.Sequential.init(self)
      listed(self)
      if init then init(self, ...) end
    end
    if forward then C.forward = forward end
    C.relist = listed
    M[name] = C
    return C
  end
  local Sequential = container 'Sequential'
  function Sequential:init(...)
    nn.Sequential.init(self, ...)
    listed(self)
  end
  function Sequential:insert(module, index)
    local all = {}
    for i = 1, self:size() do all[i] = self:get(i) end
    index = index or #all + 1
    if index < 1 or index > #all + 1 then raise('nn.Sequential', 'a place from 1 to %d expected, got %s', #all + 1, tostring(index)) end
    table.insert(all, index, module)
    rawset(self, '.count', 0)
    for _, m in ipairs(all) do self:add(m) end
    return self
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
    for i = 1, self:size() do out[i] = self:get(i)(H.list(self, t)[i]) end
    return out
  end)
  --- As ConcatTable, joined along a dimension.
  container('Concat', function(self, d, ...)
    definitions.check_count({name = 'nn.Concat', most = 1}, 1 + select('#', ...))
    self.dimension = H.number(self, 'dimension', d)
  end, function(self, x)
    local out = {}
    for i = 1, self:size() do out[i] = self:get(i)(x) end
    return amp.cat(out, self.dimension)
  end)
  --- As Concat, where what they give may differ in its other sizes: the smaller ones stand in the middle, zeros around.
  container('DepthConcat', function(self, d, ...)
    definitions.check_count({name = 'nn.DepthConcat', most = 1}, 1 + select('#', ...))
    self.dimension = H.number(self, 'dimension', d)
  end, function(self, x)
    local out = {}
    for i = 1, self:size() do out[i] = self:get(i)(x) end
    return amp.cat(padded(out, self.dimension), self.dimension)
  end)
  --- Module i gets slice i of the input along one dimension; what they give is joined along another.
  container('Parallel', function(self, input_dim, output_dim, ...)
    definitions.check_count({name = 'nn.Parallel', most = 2}, 2 + select('#', ...))
    self.inputDimension, self.outputDimension = H.number(self, 'inputDimension', input_dim), H.number(self, 'outputDimension', output_dim)
  end, function(self, x)
    local out = {}
    if x:size(self.inputDimension) ~= self:size() then
      raise('nn.Parallel', '%d modules for %d slices', self:size(), x:size(self.inputDimension))
    end
    for i = 1, self:size() do out[i] = self:get(i)(x:select(self.inputDimension, i)) end
    return amp.cat(out, self.outputDimension)
  end)
  --- One module for each element of a table.
  container('MapTable', function(self, module)
    if module then self:add(module) end
  end, function(self, t)
    local out = {}
    for i, x in ipairs(H.list(self, t)) do out[i] = self:get(1)(x) end
    return out
  end)
end

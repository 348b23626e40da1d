--- Layers of images and volumes without parameters: pooling, padding, scaling, local normalisation.
-- Each takes one image, C x H x W, or a batch of them.
local amp = require 'amp'
local H = require 'amp.torch7.layers.help'
local raise = require('amp.error').throw

local floor = math.floor

return function(define)
  -- -- Pooling -------------------------------------------------------------------------------------

  local rounding = {
    ceil = function(self)
      self.ceil_mode = true
      return self
    end,
    floor = function(self)
      self.ceil_mode = false
      return self
    end,
  }
  local function set_count_include_pad(self)
    self.count_include_pad = true
    return self
  end
  local function set_count_exclude_pad(self)
    self.count_include_pad = false
    return self
  end
  local averaging = {ceil = rounding.ceil, floor = rounding.floor, setCountIncludePad = set_count_include_pad, setCountExcludePad = set_count_exclude_pad}

  local function num(self, name, v, default) return H.number(self, name, v, default) end
  local function sizes2(self, kW, kH, dW, dH, padW, padH)
    self.kW, self.kH = num(self, 'kW', kW), num(self, 'kH', kH)
    self.dW, self.dH = num(self, 'dW', dW), num(self, 'dH', dH)
    self.padW, self.padH = num(self, 'padW', padW, 0), num(self, 'padH', padH, 0)
    self.ceil_mode = false
  end
  local function sizes3(self, kT, kW, kH, dT, dW, dH, padT, padW, padH)
    sizes2(self, kW, kH, dW or kW, dH or kH, padW, padH)
    self.kT, self.dT, self.padT = num(self, 'kT', kT), num(self, 'dT', dT, kT), num(self, 'padT', padT, 0)
  end
  local function max2(self, x)
    return H.batched(self, x, 4, function(v)
      local o = {padding = {self.padH or 0, self.padW or 0}, dilation = {self.dilationH or 1, self.dilationW or 1}, return_indices = true}
      o.ceil_mode = self.ceil_mode or false
      o.kernel_size, o.stride = {self.kH, self.kW}, {self.dH, self.dW}
      local y, at = amp.max_pool2d(v, o)
      self.pool_indices, self.pool_input = at, v:size()
      return y
    end)
  end
  local function max3(self, x)
    return H.batched(self, x, 5, function(v)
      local y, at = amp.max_pool3d(v, {kernel_size = {self.kT, self.kH, self.kW}, stride = {self.dT, self.dH, self.dW},
        padding = {self.padT or 0, self.padH or 0, self.padW or 0}, dilation = {self.dilationT or 1, self.dilationH or 1, self.dilationW or 1},
        ceil_mode = self.ceil_mode or false, return_indices = true})
      self.pool_indices, self.pool_input = at, v:size()
      return y
    end)
  end
  define('SpatialMaxPooling', {
    init = function(self, kW, kH, dW, dH, padW, padH) sizes2(self, kW, kH, dW or kW, dH or kH, padW, padH) end,
    compute = max2, methods = rounding,
  })
  define('SpatialDilatedMaxPooling', {
    init = function(self, kW, kH, dW, dH, padW, padH, dilationW, dilationH)
      sizes2(self, kW, kH, dW or kW, dH or kH, padW, padH)
      self.dilationW, self.dilationH = num(self, 'dilationW', dilationW, 1), num(self, 'dilationH', dilationH, 1)
    end,
    compute = max2, methods = rounding,
  })
  define('SpatialAveragePooling', {
    init = function(self, kW, kH, dW, dH, padW, padH)
      sizes2(self, kW, kH, dW or 1, dH or 1, padW, padH)
      self.count_include_pad, self.divide = true, true
    end,
    compute = function(self, x)
      return H.batched(self, x, 4, function(v)
        local y = amp.avg_pool2d(v, {kernel_size = {self.kH, self.kW}, stride = {self.dH, self.dW}, padding = {self.padH or 0, self.padW or 0},
          ceil_mode = self.ceil_mode or false, count_include_pad = self.count_include_pad ~= false})
        return self.divide == false and y * (self.kH * self.kW) or y
      end)
    end,
    methods = averaging,
  })
  define('VolumetricMaxPooling', {
    init = sizes3, compute = max3, methods = rounding,
  })
  define('VolumetricDilatedMaxPooling', {
    init = function(self, kT, kW, kH, dT, dW, dH, padT, padW, padH, dilationT, dilationW, dilationH)
      sizes3(self, kT, kW, kH, dT, dW, dH, padT, padW, padH)
      self.dilationT = num(self, 'dilationT', dilationT, 1)
      self.dilationW, self.dilationH = num(self, 'dilationW', dilationW, 1), num(self, 'dilationH', dilationH, 1)
    end,
    compute = max3, methods = rounding,
  })
  define('VolumetricAveragePooling', {
    init = function(self, kT, kW, kH, dT, dW, dH, padT, padW, padH)
      sizes3(self, kT, kW, kH, dT, dW, dH, padT, padW, padH)
      self.count_include_pad = true
    end,
    compute = function(self, x)
      return H.batched(self, x, 5, function(v)
        return amp.avg_pool3d(v, {kernel_size = {self.kT, self.kH, self.kW}, stride = {self.dT, self.dH, self.dW},
          padding = {self.padT or 0, self.padH or 0, self.padW or 0}, ceil_mode = self.ceil_mode or false, count_include_pad = self.count_include_pad ~= false})
      end)
    end,
    methods = averaging,
  })
  local function adaptive(op)
    return {
      init = function(self, W, H_) self.W, self.H = num(self, 'W', W), num(self, 'H', H_) end,
      compute = function(self, x) return H.batched(self, x, 4, function(v) return (op(v, {self.H, self.W})) end) end,
    }
  end
  define('SpatialAdaptiveMaxPooling', adaptive(amp.adaptive_max_pool2d))
  define('SpatialAdaptiveAveragePooling', adaptive(amp.adaptive_avg_pool2d))

  -- A pooling layer's places, undone.
  local function unpooling(dims, op)
    return {
      init = function(self, pooling)
        if type(pooling) ~= 'table' or not pooling.kW then raise(self.__name, 'the pooling layer expected, got %s', type(pooling)) end
        self.pooling = pooling
      end,
      compute = function(self, x, q)
        local p = self.pooling
        if not p.pool_indices then raise(self.__name, 'the pooling layer has not been called yet') end
        return H.batched(self, x, dims, function(v)
          local size = {}
          for d = 3, dims do size[d - 2] = p.pool_input[d] end
          local three = dims == 5
          local at = q.amp_of and q.amp_of(p.pool_indices) or p.pool_indices
          return op(v, at, {kernel_size = three and {p.kT, p.kH, p.kW} or {p.kH, p.kW}, stride = three and {p.dT, p.dH, p.dW} or {p.dH, p.dW},
            padding = three and {p.padT, p.padH, p.padW} or {p.padH, p.padW}, output_size = size})
        end)
      end,
    }
  end
  define('SpatialMaxUnpooling', unpooling(4, amp.max_unpool2d))
  define('VolumetricMaxUnpooling', unpooling(5, amp.max_unpool3d))

  -- Starts of the regions of fractional pooling along one side.
  local function starts(sample, n, out, k)
    local list, alpha = {}, out > 1 and (n - k) / (out - 1) or 0
    for i = 0, out - 2 do list[i + 1] = floor((i + sample) * alpha) - floor(sample * alpha) + 1 end
    list[out] = n - k + 1
    return list
  end
  -- sides: names of the sides' fields (last dimension first: 'W', 'H', 'T'); dims: of a batch
  local function fractional(self, x, ctx, dims, sides)
    return H.batched(self, x, dims, function(v)
      if not ctx.samples then
        ctx.samples = self.fixed_samples or amp.rand({v:size(1), v:size(2), #sides}, {dtype = 'float64'}):tolist()
        if self.fixed_samples == true then
          self.fixed_samples = amp.rand({v:size(1), v:size(2), #sides}, {dtype = 'float64'}):tolist()
          ctx.samples = self.fixed_samples
        end
      end
      local rows = {}
      for b = 1, v:size(1) do
        local planes = {}
        for c = 1, v:size(2) do
          local p = v[b][c]
          for i, side in ipairs(sides) do
            local n, k = p:size(-1), self['poolSize' .. side]
            local out = self['out' .. side] or floor(n * self['ratio' .. side])
            if out < 1 or n < k then raise(self.__name, 'an input of %s is too small', tostring(x:size())) end
            local pieces = {}
            for j, at in ipairs(starts(ctx.samples[b][c][i], n, out, k)) do pieces[j] = (p:narrow(p:dim(), at, k):max(p:dim(), true)) end
            p = amp.cat(pieces, p:dim())
            -- the next side comes last, so that all are treated alike
            local order = {p:dim()}
            for d = 1, p:dim() - 1 do order[d + 1] = d end
            p = p:permute(unpack(order))
          end
          planes[c] = p
        end
        rows[b] = amp.stack(planes, 1)
      end
      return amp.stack(rows, 1)
    end)
  end
  local function set_ratio(self, side, v)
    if v < 1 then self['ratio' .. side] = v else self['out' .. side] = v end
  end
  local fixing = {fixPoolingRegions = function(self, v)
    self.fixed_samples = v ~= false or nil
    return self
  end}
  define('SpatialFractionalMaxPooling', {
    init = function(self, poolSizeW, poolSizeH, arg1, arg2)
      self.poolSizeW, self.poolSizeH = num(self, 'poolSizeW', poolSizeW), num(self, 'poolSizeH', poolSizeH)
      set_ratio(self, 'W', num(self, 'outW', arg1))
      set_ratio(self, 'H', num(self, 'outH', arg2))
    end,
    random = true,
    compute = function(self, x, _, ctx) return fractional(self, x, ctx, 4, {'W', 'H'}) end,
    methods = fixing,
  })
  define('VolumetricFractionalMaxPooling', {
    init = function(self, poolSizeT, poolSizeW, poolSizeH, arg1, arg2, arg3)
      self.poolSizeT, self.poolSizeW, self.poolSizeH = num(self, 'poolSizeT', poolSizeT), num(self, 'poolSizeW', poolSizeW), num(self, 'poolSizeH', poolSizeH)
      set_ratio(self, 'T', num(self, 'outT', arg1))
      set_ratio(self, 'W', num(self, 'outW', arg2))
      set_ratio(self, 'H', num(self, 'outH', arg3))
    end,
    random = true,
    compute = function(self, x, _, ctx) return fractional(self, x, ctx, 5, {'T', 'W', 'H'}) end, -- H x W x T lie the sides
    methods = fixing,
  })
  define('SpatialLPPooling', {
    init = function(self, nInputPlane, pnorm, kW, kH, dW, dH)
      self.nInputPlane, self.pnorm = num(self, 'nInputPlane', nInputPlane), num(self, 'pnorm', pnorm)
      sizes2(self, kW, kH, dW or kW, dH or kH)
    end,
    compute = function(self, x)
      return H.batched(self, x, 4, function(v)
        local y = self.pnorm == 2 and v:square() or v:pow(self.pnorm)
        y = amp.avg_pool2d(y, {kernel_size = {self.kH, self.kW}, stride = {self.dH, self.dW}}) * (self.kW * self.kH)
        return self.pnorm == 2 and H.safe_sqrt(y) or y:pow(1 / self.pnorm)
      end)
    end,
  })
  define('FeatureLPPooling', {
    init = function(self, width, stride, power, batch_mode)
      self.width, self.stride = H.number(self, 'width', width, nil, 2, 16), H.number(self, 'stride', stride, nil, 1, 4)
      self.power, self.batch_mode = H.number(self, 'power', power), H.flag(self, 'batch_mode', batch_mode, false)
    end,
    compute = function(self, x)
      local d = self.batch_mode and 2 or 1
      local s = (self.power == 2 and x:square() or x:pow(self.power)):unfold(d, self.width, self.stride):sum(-1)
      return self.power == 2 and H.safe_sqrt(s) or s:pow(1 / self.power)
    end,
  })

  -- -- Padding and scaling ------------------------------------------------------------------------------

  local function padding2(name, mode)
    define(name, {
      init = function(self, pad_l, pad_r, pad_t, pad_b)
        self.pad_l = num(self, 'pad_l', pad_l)
        self.pad_r, self.pad_t, self.pad_b = num(self, 'pad_r', pad_r, pad_l), num(self, 'pad_t', pad_t, pad_l), num(self, 'pad_b', pad_b, pad_l)
      end,
      compute = function(self, x)
        return H.batched(self, x, 4, function(v) return amp.pad(v, {self.pad_l, self.pad_r, self.pad_t, self.pad_b}, {mode = mode}) end)
      end,
      repr = function(self) return ('l=%g, r=%g, t=%g, b=%g'):format(self.pad_l, self.pad_r, self.pad_t, self.pad_b) end,
    })
  end
  padding2('SpatialZeroPadding', 'constant')
  padding2('SpatialReflectionPadding', 'reflect')
  padding2('SpatialReplicationPadding', 'replicate')
  define('VolumetricReplicationPadding', {
    init = function(self, pleft, pright, ptop, pbottom, pfront, pback)
      self.pleft = num(self, 'pleft', pleft)
      self.pright, self.ptop, self.pbottom = num(self, 'pright', pright, pleft), num(self, 'ptop', ptop, pleft), num(self, 'pbottom', pbottom, pleft)
      self.pfront, self.pback = num(self, 'pfront', pfront, pleft), num(self, 'pback', pback, pleft)
    end,
    compute = function(self, x)
      return H.batched(self, x, 5, function(v)
        return amp.pad(v, {self.pleft, self.pright, self.ptop, self.pbottom, self.pfront, self.pback}, {mode = 'replicate'})
      end)
    end,
  })
  define('SpatialUpSamplingNearest', {
    init = function(self, scale)
      self.scale_factor = H.number(self, 'scale', scale, nil, 1)
      if scale % 1 ~= 0 then raise(self.__name, 'scale must be a whole number, got %g', scale) end
    end,
    compute = function(self, x)
      return H.batched(self, x, 4, function(v)
        return amp.interpolate(v, {size = {v:size(3) * self.scale_factor, v:size(4) * self.scale_factor}, mode = 'nearest'})
      end)
    end,
  })
  -- {scale} or {owidth =, oheight =, odepth =}, as fields
  local function scaling(self, params)
    if type(params) == 'table' then
      for k in pairs(params) do
        if k ~= 'owidth' and k ~= 'oheight' and k ~= 'odepth' then raise(self.__name, "unknown option '%s' (known: odepth, oheight, owidth)", tostring(k)) end
      end
      self.odepth, self.owidth, self.oheight = params.odepth, num(self, 'owidth', params.owidth), num(self, 'oheight', params.oheight)
    else
      self.scale_factor = H.number(self, 'scale_factor', params, nil, 1)
      if params % 1 ~= 0 then raise(self.__name, 'scale_factor must be a whole number, got %g', params) end
    end
  end
  define('SpatialUpSamplingBilinear', {
    init = scaling,
    compute = function(self, x)
      return H.batched(self, x, 4, function(v)
        local s = self.scale_factor
        return amp.interpolate(v, {size = {s and v:size(3) * s or self.oheight, s and v:size(4) * s or self.owidth}, mode = 'bilinear', align_corners = true})
      end)
    end,
  })
  define('UpSampling', {
    init = function(self, params, mode)
      self.mode = mode or 'nearest'
      if self.mode ~= 'nearest' and self.mode ~= 'linear' then raise(self.__name, "mode must be 'nearest' or 'linear', got %s", tostring(mode)) end
      scaling(self, params)
      if self.mode == 'nearest' and not self.scale_factor then raise(self.__name, "mode 'nearest' takes a scale factor") end
    end,
    compute = function(self, x)
      local n, s = x:dim(), self.scale_factor
      if n ~= 4 and n ~= 5 then raise(self.__name, 'an input of 4 or 5 dimensions expected, got %s', tostring(x:size())) end
      local size = {s and x:size(n - 1) * s or self.oheight, s and x:size(n) * s or self.owidth}
      if n == 5 then table.insert(size, 1, s and x:size(3) * s or self.odepth or raise(self.__name, 'odepth is missing')) end
      local linear = n == 5 and 'trilinear' or 'bilinear'
      if self.mode == 'nearest' then return amp.interpolate(x, {size = size, mode = 'nearest'}) end
      return amp.interpolate(x, {size = size, mode = linear, align_corners = true})
    end,
  })
  define('SpatialCrossMapLRN', {
    init = function(self, size, alpha, beta, k)
      self.size, self.alpha, self.beta, self.k = num(self, 'size', size), num(self, 'alpha', alpha, 0.0001), num(self, 'beta', beta, 0.75), num(self, 'k', k, 1)
    end,
    compute = function(self, x)
      return H.batched(self, x, 4, function(v)
        return amp.local_response_norm(v, {size = self.size, alpha = self.alpha, beta = self.beta, k = self.k})
      end)
    end,
  })

  -- -- Sequences, N x T x C or T x C -------------------------------------------------------------------------

  define('TemporalMaxPooling', {
    init = function(self, kW, dW) self.kW, self.dW = num(self, 'kW', kW), num(self, 'dW', dW, kW) end,
    compute = function(self, x)
      return H.batched(self, x, 3, function(v)
        return (amp.max_pool1d(v:transpose(2, 3), {kernel_size = self.kW, stride = self.dW})):transpose(2, 3)
      end)
    end,
  })
  define('TemporalDynamicKMaxPooling', {
    init = function(self, minK, factor) self.minK, self.factor = num(self, 'minK', minK), num(self, 'factor', factor, 0) end,
    compute = function(self, x)
      if x:dim() ~= 2 and x:dim() ~= 3 then raise(self.__name, 'an input of 2 or 3 dimensions expected, got %s', tostring(x:size())) end
      local d = x:dim() - 1
      local k = math.max(self.minK, math.ceil(self.factor * x:size(d)))
      if x:size(d) < k then raise(self.__name, 'a sequence of %d steps is shorter than %d', x:size(d), k) end
      local _, at = amp.sort(x:detach(), {dim = d, descending = true})
      at = amp.sort(at:narrow(d, 1, k), {dim = d})
      return x:gather(d, at)
    end,
  })
end

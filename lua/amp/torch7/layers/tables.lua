--- Layers whose inputs or outputs are tables of tensors.
local amp = require 'amp'
local H = require 'amp.torch7.layers.help'
local raise = require('amp.error').throw
local list = H.list

return function(define)
  local none = function() end
  local function fold(name, f, two)
    define(name, {
      init = two and none or function(self, ip) self.inplace = H.flag(self, 'inplace', ip, false) end,
      compute = function(self, t)
        list(self, t)
        if two and #t ~= 2 then raise(self.__name, 'two tensors expected, got %d', #t) end
        local out = t[1]
        for i = 2, #t do
          if t[i]:numel() ~= t[1]:numel() then
            raise(self.__name, 'tensors of one size expected, got %s and %s', tostring(t[1]:size()), tostring(t[i]:size()))
          end
          out = f(out, t[i]:dim() == out:dim() and t[i] or t[i]:reshape(out:size()))
        end
        return out
      end,
    })
  end
  fold('CAddTable', function(a, b) return a + b end)
  fold('CMulTable', function(a, b) return a * b end)
  fold('CSubTable', function(a, b) return a - b end, true)
  fold('CDivTable', function(a, b) return a / b end, true)
  -- Of equal elements the first gets the gradient.
  fold('CMaxTable', function(a, b) return amp.where(b:gt(a), b, a) end)
  fold('CMinTable', function(a, b) return amp.where(b:lt(a), b, a) end)

  define('CAddTensorTable', {init = none, compute = function(self, t)
    local out = {}
    for i, x in ipairs(list(self, t)[2]) do out[i] = x + t[1] end
    return out
  end})
  local function dims(self, dimension, nInputDims) self.dimension, self.nInputDims = H.number(self, 'dimension', dimension), nInputDims end
  define('JoinTable', {init = dims, compute = function(self, t)
    return amp.cat({unpack(list(self, t))}, H.dimension(self, t[1], self.dimension))
  end})
  define('SplitTable', {init = dims, compute = function(self, x)
    local d, out = H.dimension(self, x, self.dimension), {}
    for i = 1, x:size(d) do out[i] = x:select(d, i) end
    return out
  end})
  define('SelectTable', {
    init = function(self, index) self.index = index end,
    compute = function(self, t)
      if type(t) ~= 'table' then raise(self.__name, 'a table of tensors expected, got %s', amp.is_tensor(t) and 'one tensor' or type(t)) end
      local i = self.index
      if type(i) == 'number' and i < 0 then i = #t + i + 1 end
      if t[i] == nil then raise(self.__name, 'the input table has no element %s', tostring(self.index)) end
      return t[i]
    end,
  })
  define('NarrowTable', {
    init = function(self, offset, length) self.offset, self.length = H.number(self, 'offset', offset, nil, 1), H.number(self, 'length', length, 1) end,
    compute = function(self, t)
      if self.offset + self.length - 1 > #list(self, t) then
        raise(self.__name, 'elements %d to %d of a table of %d', self.offset, self.offset + self.length - 1, #t)
      end
      return {unpack(t, self.offset, self.offset + self.length - 1)}
    end,
  })
  define('FlattenTable', {init = none, compute = function(_, t)
    local out = {}
    local function go(x)
      if amp.is_tensor(x) then out[#out + 1] = x else for _, y in ipairs(x) do go(y) end end
    end
    go(t)
    return out
  end})
  define('ZipTable', {init = none, compute = function(self, t)
    local out = {}
    for i, row in ipairs(list(self, t)) do
      for j, x in ipairs(row) do
        out[j] = out[j] or {}
        out[j][i] = x
      end
    end
    return out
  end})
  define('ZipTableOneToMany', {init = none, compute = function(self, t)
    if #list(self, t) ~= 2 then raise(self.__name, 'an element and a table expected, got %d elements', #t) end
    local out = {}
    for i, x in ipairs(t[2]) do out[i] = {t[1], x} end
    return out
  end})

  -- -- Products -------------------------------------------------------------------------------------------

  define('MM', {
    init = function(self, transA, transB) self.transA, self.transB = H.flag(self, 'transA', transA, false), H.flag(self, 'transB', transB, false) end,
    compute = function(self, t)
      if #list(self, t) ~= 2 then raise(self.__name, 'two matrices expected, got %d tensors', #t) end
      local a, b = t[1], t[2]
      if a:dim() ~= b:dim() or a:dim() < 2 or a:dim() > 3 then
        raise(self.__name, 'two matrices or two batches of them expected, got %s and %s', tostring(a:size()), tostring(b:size()))
      end
      if self.transA then a = a:transpose(-1, -2) end
      if self.transB then b = b:transpose(-1, -2) end
      return a:matmul(b)
    end,
  })
  define('MV', {
    init = function(self, trans) self.trans = H.flag(self, 'trans', trans, false) end,
    compute = function(self, t)
      if #list(self, t) ~= 2 then raise(self.__name, 'a matrix and a vector expected, got %d tensors', #t) end
      local m, v = t[1], t[2]
      if m:dim() ~= v:dim() + 1 or m:dim() < 2 or m:dim() > 3 then
        raise(self.__name, 'a matrix and a vector, or a batch of each, expected, got %s and %s', tostring(m:size()), tostring(v:size()))
      end
      if self.trans then m = m:transpose(-1, -2) end
      return m:matmul(v:unsqueeze(-1)):squeeze(-1)
    end,
  })
  -- f(a, b) of two batches of vectors, n results; vectors are batches of one.
  local function pairwise(name, init, f)
    define(name, {init = init, compute = function(self, t)
      if #list(self, t) ~= 2 then raise(self.__name, 'two tensors expected, got %d', #t) end
      local a, b = t[1], t[2]
      if a:dim() > 2 or a:dim() ~= b:dim() then
        raise(self.__name, 'two vectors or matrices expected, got %s and %s', tostring(a:size()), tostring(b:size()))
      end
      if a:dim() == 1 then a, b = a:unsqueeze(1), b:unsqueeze(1) end
      return f(self, a, b)
    end})
  end
  pairwise('DotProduct', none, function(_, a, b) return (a * b):sum(2) end)
  pairwise('CosineDistance', none, function(_, a, b)
    local eps = 1e-12
    return (a * b):sum(2) / ((a * a):sum(2) + eps):sqrt() / ((b * b):sum(2) + eps):sqrt()
  end)
  pairwise('PairwiseDistance', function(self, p) self.norm = H.number(self, 'p', p, 2) end, function(self, a, b)
    local d = a - b
    if self.norm == 1 then return d:abs():sum(2) end
    if self.norm == 2 then return H.safe_sqrt((d * d):sum(2)) end
    local s = d:abs():pow(self.norm):sum(2)
    local zero = s:eq(0)
    return s:masked_fill(zero, 1):pow(1 / self.norm):masked_fill(zero, 0)
  end)
  define('MixtureTable', {
    init = function(self, dim) self.dim = dim end,
    compute = function(self, t)
      local gate, experts = list(self, t)[1], t[2]
      local batch = gate:dim() == 2
      local d = self.dim or (batch and 2 or 1)
      local n = type(experts) == 'table' and #experts or experts:size(d)
      if gate:size(gate:dim()) ~= n then raise(self.__name, '%d experts for a gate of %s', n, tostring(gate:size())) end
      local out
      for i = 1, n do
        local e = type(experts) == 'table' and experts[i] or experts:select(d, i)
        local g = gate:select(gate:dim(), i)
        if batch then
          local shape = {g:size(1)}
          for k = 2, e:dim() do shape[k] = 1 end
          g = g:reshape(unpack(shape))
        end
        out = out and out + e * g or e * g
      end
      return out
    end,
  })
  define('Index', {
    init = function(self, dimension) self.dimension = H.number(self, 'dimension', dimension) end,
    compute = function(self, t)
      if #list(self, t) ~= 2 then raise(self.__name, 'a tensor and indices expected, got %d tensors', #t) end
      return t[1]:index_select(self.dimension, t[2]:long())
    end,
  })
  define('MaskedSelect', {init = none, compute = function(self, t)
    if #list(self, t) ~= 2 then raise(self.__name, 'a tensor and a mask expected, got %d tensors', #t) end
    return t[1]:masked_select(t[2]:ne(0))
  end})
end

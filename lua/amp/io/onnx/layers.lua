--- Products, convolutions and normalisations of ONNX by amp's: functions of a node that give its results.
-- @module amp.io.onnx.layers
local Node = require 'amp.io.onnx.node'
local amp = require 'amp'
local ops = require 'amp.ops'
local proto = require 'amp.io.onnx.proto'
local shape = require 'amp.io.onnx.shape'
local get, cast = ops.get, Node.cast

local M = {}

-- -- Products ----------------------------------------------------------------------------------------------

function M.MatMul(n)
  return get 'matmul'(n:tensor(1), n:tensor(2))
end

function M.Gemm(n)
  local a, b, c = n:tensor(1), n:tensor(2), n:tensor(3, true)
  local alpha, beta = n:attr('alpha', 1), n:attr('beta', 1)
  local turn_a, turn_b = n:attr('transA', 0) == 1, n:attr('transB', 0) == 1
  n:attr 'broadcast'
  if a:dim() ~= 2 or b:dim() ~= 2 then n:fail('takes matrices, not tensors of %d and %d dimensions', a:dim(), b:dim()) end
  if turn_a then a = get 't'(a) end
  local vector = c and c:dim() == 1 and c:size(1) == b:size(turn_b and 1 or 2)
  if alpha == 1 and (not c or beta == 1 and vector) and proto.floats[a.dtype] then
    return get 'linear'(a, turn_b and b or get 't'(b), c)
  end
  local out = get 'matmul'(a, turn_b and get 't'(b) or b)
  if alpha ~= 1 then out = get 'mul'(out, alpha) end
  if not c or beta == 0 then return out end
  return get 'add'(out, beta ~= 1 and get 'mul'(c, beta) or c)
end

function M.Einsum(n)
  local list = {}
  for i = 1, #n.inputs do list[i] = n:tensor(i) end
  local equation = n:attr('equation', ''):gsub('%s', '')
  return amp.einsum(equation, list)
end

function M.Det(n) return get 'det'(n:tensor(1)) end

-- Labels count from 0 in files; a class that is ignored keeps its number.
local function loss(n, scores)
  local reduction, ignored = n:attr('reduction', 'mean'), n:attr('ignore_index')
  local target = get 'add'(cast(n:tensor(2), 'int64'), 1)
  if ignored == nil then ignored = -101 end
  return (get 'nll_loss'(scores, target, n:tensor(3, true), ignored + 1, reduction))
end

function M.NegativeLogLikelihoodLoss(n) return loss(n, n:tensor(1)) end

function M.SoftmaxCrossEntropyLoss(n)
  local scores = get 'log_softmax'(n:tensor(1), 2)
  return loss(n, scores), scores
end

-- -- Windows -----------------------------------------------------------------------------------------------

--- What the window attributes of a node say, for so many spatial dimensions.
-- @treturn table kernel, stride, dilation, before, after (pads), ceil
function M.window(n, x, kernel, spatial)
  local w = {kernel = kernel, stride = n:ints('strides', spatial) or {}, dilation = n:ints('dilations', spatial) or {}, before = {}, after = {}}
  local pads, auto = n:ints('pads', 2 * spatial), n:attr('auto_pad', 'NOTSET')
  for k = 1, spatial do
    w.stride[k], w.dilation[k] = w.stride[k] or 1, w.dilation[k] or 1
    if kernel[k] < 1 or w.stride[k] < 1 or w.dilation[k] < 1 then n:fail 'has a kernel, stride or dilation below 1' end
    if auto == 'NOTSET' or auto == '' then w.before[k], w.after[k] = pads and pads[k] or 0, pads and pads[k + spatial] or 0
    elseif auto == 'VALID' then w.before[k], w.after[k] = 0, 0
    elseif auto == 'SAME_UPPER' or auto == 'SAME_LOWER' then
      local size = x:size(k + 2)
      local all = math.max(0, (math.ceil(size / w.stride[k]) - 1) * w.stride[k] + (kernel[k] - 1) * w.dilation[k] + 1 - size)
      local less = math.floor(all / 2)
      w.before[k], w.after[k] = auto == 'SAME_UPPER' and less or all - less, auto == 'SAME_UPPER' and all - less or less
    else n:fail("attribute 'auto_pad' is '%s'", auto) end
  end
  w.auto = auto
  local reach = 1
  for k = 1, spatial do reach = reach * (x:size(k + 2) + math.abs(w.before[k]) + math.abs(w.after[k])) end
  n:room(reach)
  w.equal = true
  for k = 1, spatial do w.equal = w.equal and w.before[k] == w.after[k] and w.before[k] >= 0 end
  return w
end

--- x with pads in its spatial dimensions.
function M.spatially(n, x, before, after, value)
  local b, a = {0, 0}, {0, 0}
  for k = 1, #before do b[k + 2], a[k + 2] = before[k], after[k] end
  return shape.padded(n, x, b, a, 'constant', value)
end

local function rank_of(n, x, w)
  local spatial = x:dim() - 2
  if spatial < 1 or spatial > 3 then n:fail('takes data of 1 to 3 spatial dimensions, not %d', spatial) end
  if w and w:dim() ~= x:dim() then n:fail('its weight has %d dimensions, its data %d', w:dim(), x:dim()) end
  return spatial
end
M.rank_of = rank_of

local function kernel_of(n, w, spatial)
  local kernel, given = {}, n:ints('kernel_shape', spatial)
  for k = 1, spatial do
    kernel[k] = w:size(k + 2)
    if given and given[k] ~= kernel[k] then n:fail("attribute 'kernel_shape' has %d where the weight has %d", given[k], kernel[k]) end
  end
  return kernel
end

--- The convolution of a node's attributes.
function M.convolve(n, x, weight, bias)
  local spatial = rank_of(n, x, weight)
  local w, groups = M.window(n, x, kernel_of(n, weight, spatial), spatial), n:attr('group', 1)
  local padding = w.before
  if not w.equal then
    x = M.spatially(n, x, w.before, w.after, 0)
    padding = 0
  end
  return get('conv' .. spatial .. 'd')(x, weight, bias, w.stride, padding, w.dilation, groups)
end

function M.Conv(n) return M.convolve(n, n:tensor(1), n:tensor(2), n:tensor(3, true)) end

local function transposed_pads(n, w, x, extra, spatial)
  local wanted = n:ints 'output_shape'
  if wanted and #wanted == spatial + 2 then wanted = {unpack(wanted, 3)} end
  if not wanted and w.auto ~= 'SAME_UPPER' and w.auto ~= 'SAME_LOWER' then return end
  for k = 1, spatial do
    local size = wanted and wanted[k] or x:size(k + 2) * w.stride[k]
    local all = w.stride[k] * (x:size(k + 2) - 1) + extra[k] + (w.kernel[k] - 1) * w.dilation[k] + 1 - size
    local less = math.floor(all / 2)
    if w.auto == 'SAME_UPPER' then w.before[k], w.after[k] = less, all - less
    else w.before[k], w.after[k] = all - less, less end
  end
  w.equal = false
end

function M.ConvTranspose(n)
  local x, weight, bias = n:tensor(1), n:tensor(2), n:tensor(3, true)
  local spatial = rank_of(n, x, weight)
  local w, groups = M.window(n, x, kernel_of(n, weight, spatial), spatial), n:attr('group', 1)
  local extra = n:ints('output_padding', spatial) or {0, 0, 0}
  transposed_pads(n, w, x, extra, spatial)
  local f, direct, total = get('conv_transpose' .. spatial .. 'd'), w.equal, 1
  for k = 1, spatial do total = total * (x:size(k + 2) * w.stride[k] + w.kernel[k] * w.dilation[k] + extra[k]) end
  n:room(total)
  for k = 1, spatial do direct = direct and extra[k] < math.max(w.stride[k], w.dilation[k]) end
  if direct then return f(x, weight, bias, w.stride, w.before, {unpack(extra, 1, spatial)}, groups, w.dilation) end
  local out = f(x, weight, nil, w.stride, 0, 0, groups, w.dilation)
  local before, after = {}, {}
  for k = 1, spatial do before[k], after[k] = -w.before[k], extra[k] - w.after[k] end
  out = M.spatially(n, out, before, after, 0)
  if not bias then return out end
  local sizes = {1, -1}
  for k = 1, spatial do sizes[k + 2] = 1 end
  return get 'add'(out, get 'reshape'(bias, sizes))
end

-- -- Normalisations ----------------------------------------------------------------------------------------

function M.BatchNormalization(n)
  local x = n:tensor(1)
  n:attr('spatial', 1)
  if n:attr('spatial', 1) ~= 1 then n:fail "attribute 'spatial' is 0, which is not supported" end
  if n:attr('training_mode', 0) ~= 0 or n:results() > 1 then n:fail "is in training mode; export the model in eval mode" end
  n:attr('is_test', 1)
  return get 'batch_norm'(x, n:tensor(4), n:tensor(5), n:tensor(2), n:tensor(3), false, n:attr('momentum', 0.9) and 0.1, n:attr('epsilon', 1e-5))
end

function M.InstanceNormalization(n)
  return get 'instance_norm'(n:tensor(1), nil, nil, n:tensor(2), n:tensor(3), true, 0.1, n:attr('epsilon', 1e-5))
end

function M.GroupNormalization(n)
  local x, weight, bias = n:tensor(1), n:tensor(2), n:tensor(3)
  local groups, eps = n:attr('num_groups', 0), n:attr('epsilon', 1e-5)
  n:attr('stash_type', 1)
  if groups < 1 or x:dim() < 2 then n:fail("attribute 'num_groups' is %d", groups) end
  local channels = x:size(2)
  if weight:numel() == groups and groups ~= channels then -- one a group, before opset 21
    local function spread(t) return get 'reshape'(get 'expand'(get 'reshape'(t, {groups, 1}), {groups, channels / groups}), {channels}) end
    weight, bias = spread(weight), spread(bias)
  end
  return (get 'group_norm'(x, groups, weight, bias, eps))
end

local function last_sizes(x, d)
  local sizes = {}
  for k = d, x:dim() do sizes[#sizes + 1] = x:size(k) end
  return sizes
end

local function fits(t, sizes)
  if t == nil then return true end
  if t:dim() ~= #sizes then return false end
  for k = 1, #sizes do
    if t:size(k) ~= sizes[k] then return false end
  end
  return true
end

local function scaled(out, weight, bias)
  if weight then out = get 'mul'(out, weight) end
  return bias and get 'add'(out, bias) or out
end

function M.LayerNormalization(n)
  local x, weight, bias = n:tensor(1), n:tensor(2), n:tensor(3, true)
  local d, eps = n:dim(n:attr('axis', -1), x:dim()), n:attr('epsilon', 1e-5)
  if n:attr('stash_type', 1) ~= 1 then n:fail "attribute 'stash_type' is not 1" end
  local sizes = last_sizes(x, d)
  local out
  if fits(weight, sizes) and fits(bias, sizes) then out = get 'layer_norm'(x, sizes, weight, bias, eps)
  else out = scaled((get 'layer_norm'(x, sizes, nil, nil, eps)), weight, bias) end
  if n:results() < 2 then return out end
  local dims = {}
  for k = d, x:dim() do dims[#dims + 1] = k end
  local wide = proto.floats[x.dtype] and cast(x, x.dtype == 'float64' and 'float64' or 'float32') or x
  local mean = get 'mean'(wide, dims, true)
  return out, mean, get 'rsqrt'(get 'add'(get 'var'(wide, dims, 0, true), eps))
end

function M.RMSNormalization(n)
  local x, weight = n:tensor(1), n:tensor(2)
  local d, eps = n:dim(n:attr('axis', -1), x:dim()), n:attr('epsilon', 1e-5)
  n:attr('stash_type', 1)
  local sizes = last_sizes(x, d)
  if fits(weight, sizes) then return (get 'rms_norm'(x, sizes, weight, eps)) end
  return get 'mul'((get 'rms_norm'(x, sizes, nil, eps)), weight)
end

function M.MeanVarianceNormalization(n)
  local x, dims = n:tensor(1), {}
  for _, a in ipairs(n:ints 'axes' or {0, 2, 3}) do dims[#dims + 1] = n:dim(a, x:dim()) end
  table.sort(dims)
  local mean = get 'mean'(x, dims, true)
  local deviation = get 'std'(x, dims, 0, true)
  return get 'div'(get 'sub'(x, mean), get 'add'(deviation, 1e-9))
end

function M.LRN(n)
  local x, size = n:tensor(1), n:attr('size', 0)
  local alpha, beta, bias = n:attr('alpha', 1e-4), n:attr('beta', 0.75), n:attr('bias', 1)
  if size < 1 or x:dim() < 2 then n:fail("attribute 'size' is %d", size) end
  n:room(size * x:numel() / math.max(1, x:size(2)))
  if size % 2 == 1 and x:dim() > 2 then return get 'local_response_norm'(x, size, alpha, beta, bias) end
  local before, after = {}, {}
  for d = 1, x:dim() do before[d], after[d] = 0, 0 end
  before[2], after[2] = math.floor((size - 1) / 2), math.ceil((size - 1) / 2)
  local squares = shape.padded(n, get 'square'(x), before, after, 'constant', 0)
  local sum = get 'sum'(get 'unfold'(squares, 2, size, 1), {x:dim() + 1}, false)
  return get 'div'(x, get 'pow'(get 'add'(get 'mul'(sum, alpha / size), bias), beta))
end

-- -- Fourier transforms ------------------------------------------------------------------------------------

-- cos and sin of 2 pi j k / length, length x count.
local function turns(n, length, count, dtype)
  n:room(2 * length * count)
  local cos, sin = {}, {}
  for j = 0, length - 1 do
    for k = 0, count - 1 do
      local angle = 2 * math.pi * (j * k % length) / length
      cos[#cos + 1], sin[#sin + 1] = math.cos(angle), math.sin(angle)
    end
  end
  local sizes = {length, count}
  return n.model:tensor {h = cos, dtype = dtype, shape = sizes}, n.model:tensor {h = sin, dtype = dtype, shape = sizes}
end

-- By products with a matrix of the axis' length, which is known when the file is read.
function M.DFT(n)
  local x = n:tensor(1)
  local rank, parts = x:dim(), x:size(-1)
  if rank < 2 or parts > 2 then n:fail('takes real or complex values in a last dimension of 1 or 2, got %s', tostring(x:size())) end
  local axis = n.opset >= 20 and (n:has(3) and n:scalar(3, 'axis') or -2) or n:attr('axis', 1)
  local d, inverse, half = n:dim(axis, rank), n:attr('inverse', 0) == 1, n:attr('onesided', 0) == 1
  if d == rank then n:fail 'can\'t go along the dimension of real and imaginary parts' end
  if half and (inverse or parts == 2) then n:fail "attribute 'onesided' is for real values and the forward transform" end
  local length = n:has(2) and n:scalar(2, 'dft_length') or x:size(d)
  if length < 1 then n:fail('has the length %d', length) end
  if length < x:size(d) then x = get 'narrow'(x, d, 1, length)
  elseif length > x:size(d) then
    local pads = {}
    for k = rank, d, -1 do pads[#pads + 1], pads[#pads + 2] = 0, k == d and length - x:size(d) or 0 end
    x = get 'pad'(x, pads, 'constant', 0)
  end
  local cos, sin = turns(n, length, half and math.floor(length / 2) + 1 or length, x.dtype)
  local function part(k) -- the axis last
    local t = get 'select'(x, rank, k)
    return d == rank - 1 and t or get 'transpose'(t, d, rank - 1)
  end
  local real = part(1)
  local re, im = get 'matmul'(real, cos), get 'neg'(get 'matmul'(real, sin))
  if inverse then im = get 'neg'(im) end
  if parts == 2 then
    local i = part(2)
    local a, b = get 'matmul'(i, sin), get 'matmul'(i, cos)
    re, im = get(inverse and 'sub' or 'add')(re, a), get 'add'(im, b)
  end
  local out = get 'stack'({re, im}, rank)
  if d ~= rank - 1 then out = get 'transpose'(out, d, rank - 1) end
  return inverse and get 'div'(out, length) or out
end

return M

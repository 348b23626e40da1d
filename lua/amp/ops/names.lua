--- Ops by the names that other systems give them: PyTorch's functions, methods and autocast lists, Apex's,
-- MXNet's operators, MegEngine's functions. One name may stand for several of amp's ops (`Convolution`), and
-- then means all of them. amp.policy, amp.set_policy, the lists of amp.init and registered functions ask here,
-- so that an op which exists under another name is never silently without effect.
-- @module amp.ops.names
local core = require 'amp.ffi'
local err = require 'amp.error'
local rows = require 'amp.ops.schema'
local util = require 'amp.util'
local band = require('bit').band
local C = core.C

local M = {}

local PRIVATE = C.AMP_F_PRIVATE

-- -- Names ---------------------------------------------------------------------------------------------

-- ours = names of others, in words; a name may stand in several lines.
local theirs = {
  -- products
  conv1d = 'Convolution convolution _convolution Conv1D conv cudnn_convolution mkldnn_convolution',
  conv2d = 'Convolution convolution _convolution Conv2D conv cudnn_convolution mkldnn_convolution local_conv2d deformable_conv2d'
    .. ' _contrib_DeformableConvolution batch_conv_bias_activation SpatialConvolution',
  conv3d = 'Convolution convolution _convolution Conv3D conv cudnn_convolution mkldnn_convolution',
  conv_transpose1d = 'Deconvolution Conv1DTranspose conv_transpose convolution_transpose cudnn_convolution_transpose deconvolution',
  conv_transpose2d = 'Deconvolution Conv2DTranspose conv_transpose convolution_transpose cudnn_convolution_transpose deconvolution',
  conv_transpose3d = 'Deconvolution Conv3DTranspose conv_transpose convolution_transpose cudnn_convolution_transpose deconvolution',
  linear = 'FullyConnected Dense dense fully_connected Linear _sparse_FullyConnected',
  matmul = '__matmul__ batch_dot linalg_matmul linalg_gemm2 _linalg_gemm2 batched_matrix_mul batch_matmul matrix_mul',
  bmm = 'batch_dot',
  mm = '_linalg_gemm linalg_gemm',
  chain_matmul = 'multi_dot linalg_multi_dot',
  vecdot = 'linalg_vecdot',
  scaled_dot_product_attention = 'sdpa _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention',
  multi_head_attention = 'multi_head_attention_forward MultiHeadAttention MultiheadAttention',
  gru_cell = 'GRUCell _thnn_fused_gru_cell', lstm_cell = 'LSTMCell _thnn_fused_lstm_cell',
  rnn_tanh_cell = 'RNNCell rnn_cell RNNTanhCell', rnn_relu_cell = 'RNNCell rnn_cell RNNReLUCell',
  rnn = 'RNN rnn_tanh rnn_relu', lstm = 'RNN LSTM', gru = 'RNN GRU',
  outer = 'ger', einsum = 'Einsum',
  -- activations
  relu = 'ReLU Activation relu_', sigmoid = 'Sigmoid Activation expit', tanh = 'Tanh Activation', softplus = 'SoftPlus Softplus softrelu Activation',
  softsign = 'Softsign SoftSign Activation', log_sigmoid = 'logsigmoid LogSigmoid Activation', mish = 'Mish Activation',
  leaky_relu = 'LeakyReLU rrelu RReLU', elu = 'ELU LeakyReLU', selu = 'SELU LeakyReLU', gelu = 'GELU LeakyReLU', prelu = 'PReLU LeakyReLU',
  silu = 'SiLU swish Swish', hardsigmoid = 'hard_sigmoid Hardsigmoid HardSigmoid', hardswish = 'hard_swish Hardswish hswish',
  hardtanh = 'Hardtanh', relu6 = 'ReLU6', celu = 'CELU', softmax = 'Softmax SoftmaxActivation SoftmaxOutput gumbel_softmax',
  log_softmax = 'LogSoftmax logsoftmax', softmin = 'Softmin', glu = 'GLU',
  -- losses
  bce_with_logits = 'binary_cross_entropy_with_logits BCEWithLogitsLoss SigmoidBCELoss SigmoidBinaryCrossEntropyLoss LogisticRegressionOutput'
    .. ' sigmoid_focal_loss',
  binary_cross_entropy = 'bce BCELoss', cross_entropy = 'cross_entropy_loss CrossEntropyLoss SoftmaxCELoss SoftmaxCrossEntropyLoss softmax_cross_entropy',
  nll_loss = 'NLLLoss nll_loss2d nll_loss_nd', mse_loss = 'MSELoss L2Loss square_loss LinearRegressionOutput',
  l1_loss = 'L1Loss MAERegressionOutput', smooth_l1_loss = 'SmoothL1Loss smooth_l1', huber_loss = 'HuberLoss', kl_div = 'KLDivLoss kl_div_loss',
  ctc_loss = 'CTCLoss _contrib_CTCLoss _contrib_ctc_loss', cosine_embedding_loss = 'CosineEmbeddingLoss',
  hinge_embedding_loss = 'HingeEmbeddingLoss', margin_ranking_loss = 'MarginRankingLoss', multi_margin_loss = 'MultiMarginLoss SVMOutput',
  multilabel_margin_loss = 'MultiLabelMarginLoss', multilabel_soft_margin_loss = 'MultiLabelSoftMarginLoss',
  soft_margin_loss = 'SoftMarginLoss', triplet_margin_loss = 'TripletMarginLoss TripletLoss triplet_margin_with_distance_loss',
  poisson_nll_loss = 'PoissonNLLLoss',
  gaussian_nll_loss = 'GaussianNLLLoss',
  -- normalisation
  batch_norm = 'BatchNorm BatchNorm1d BatchNorm2d BatchNorm3d BatchNorm_v1 native_batch_norm cudnn_batch_norm _contrib_BatchNormWithReLU',
  sync_batch_norm = 'SyncBatchNorm _contrib_SyncBatchNorm', layer_norm = 'LayerNorm native_layer_norm', group_norm = 'GroupNorm native_group_norm',
  instance_norm = 'InstanceNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d', rms_norm = 'RMSNorm', local_response_norm = 'LRN LocalResponseNorm',
  normalize = 'L2Normalization', norm = 'frobenius_norm nuclear_norm linalg_norm native_norm', vector_norm = 'linalg_vector_norm',
  matrix_norm = 'linalg_matrix_norm', std = 'std_mean', var = 'var_mean moments', mean = '_mean moments', renorm = '_renorm',
  -- pooling, shapes
  max_pool1d = 'Pooling MaxPool1d MaxPool1D max_pool', max_pool2d = 'Pooling MaxPool2d MaxPool2D max_pool',
  max_pool3d = 'Pooling MaxPool3d MaxPool3D max_pool', avg_pool1d = 'Pooling AvgPool1d AvgPool1D avg_pool',
  avg_pool2d = 'Pooling AvgPool2d AvgPool2D avg_pool', avg_pool3d = 'Pooling AvgPool3d AvgPool3D avg_pool',
  adaptive_avg_pool2d = '_contrib_AdaptiveAvgPooling2D', interpolate = 'upsample Upsample UpSampling upsample_nearest1d upsample_nearest2d'
    .. ' upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d upsample_nearest upsample_bilinear'
    .. ' _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa UpsamplingBilinear2d UpsamplingNearest2d'
    .. ' _contrib_BilinearResize2D vision_interpolate resize',
  grid_sample = 'grid_sampler grid_sampler_2d grid_sampler_3d BilinearSampler SpatialTransformer remap', dropout = 'Dropout',
  embedding = 'Embedding _sparse_Embedding', cat = 'concat Concat concatenate', stack = 'Stack', reshape = 'Reshape', flatten = 'Flatten',
  pad = 'Pad reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d constant_pad_nd',
  index_put = 'index_put_ _index_put_impl_ __setitem__ scatter_nd', scatter_add = 'scatter_add_', index_copy = 'index_copy_',
  where = 'Where', expand = 'broadcast_to broadcast_like BroadcastTo', transpose = 'SwapAxis swapaxes', repeat_interleave = 'RepeatInterleave',
  squeeze = 'Squeeze', unsqueeze = 'expand_dims', select = 'unstack', ['repeat'] = 'tile Tile repeatTensor',
  narrow = 'split chunk tensor_split slice slice_axis slice_like SliceChannel SequenceLast Crop', flip = 'reverse SequenceReverse',
  pixel_shuffle = 'depth_to_space', pixel_unshuffle = 'space_to_depth', affine_grid = 'GridGenerator', gather = 'pick', isclose = 'allclose',
  -- arithmetic
  add = '__add__ __radd__ elemwise_add broadcast_add _plus _add _Plus _PlusScalar cadd add_n ElementWiseSum elemwise_sum _plus_scalar',
  sub = '__sub__ __rsub__ subtract elemwise_sub broadcast_sub broadcast_minus _minus _sub _minus_scalar _MinusScalar _rminus_scalar rsub csub',
  mul = '__mul__ __rmul__ multiply elemwise_mul broadcast_mul _mul _mul_scalar _MulScalar cmul',
  div = '__div__ __truediv__ divide true_divide elemwise_div broadcast_div _div _div_scalar _DivScalar cdiv',
  mod = '__mod__ remainder broadcast_mod _mod _mod_scalar',
  rdiv = '__rdiv__ __rtruediv__ _rdiv_scalar', pow = '__pow__ __ipow__ power broadcast_power _power _power_scalar _PowerScalar cpow',
  rpow = '__rpow__ _rpower_scalar',
  neg = '__neg__ negative', maximum = 'broadcast_maximum _maximum _maximum_scalar cmax',
  minimum = 'broadcast_minimum _minimum _minimum_scalar cmin', logical_and = 'broadcast_logical_and', logical_or = 'broadcast_logical_or',
  logical_xor = 'broadcast_logical_xor',
  hypot = 'broadcast_hypot _hypot _hypot_scalar', eq = '__eq__ broadcast_equal _equal', ne = '__ne__ broadcast_not_equal _not_equal not_equal',
  lt = '__lt__ broadcast_lesser _lesser less', le = '__le__ broadcast_lesser_equal _lesser_equal less_equal',
  gt = '__gt__ broadcast_greater _greater greater', ge = '__ge__ broadcast_greater_equal _greater_equal greater_equal',
  clamp = 'clip', gamma = '_gamma_fn', lgamma = 'gammaln', digamma = 'psi', abs = 'absolute', trunc = 'fix', round = 'rint',
  acos = 'arccos', asin = 'arcsin', atan = 'arctan', atan2 = 'arctan2', acosh = 'arccosh', asinh = 'arcsinh', atanh = 'arctanh',
  square = 'Square', sum = 'sum_axis nansum_ _sum', prod = '_prod', reciprocal = '_reciprocal cinv', erf = '_erf',
  index_select = 'take_rows batch_take',
  dist = '_dist', cumsum = '_cumsum', cumprod = '_cumprod', inverse = 'linalg_inv inv linalg_inverse _linalg_inverse linalg_inv_ex',
  det = 'linalg_det _linalg_det', slogdet = 'linalg_slogdet _linalg_slogdet', cholesky = 'linalg_cholesky linalg_cholesky_ex _linalg_potrf',
  svd = 'linalg_svd', svdvals = 'linalg_svdvals', qr = 'linalg_qr', solve = 'linalg_solve', lstsq = 'linalg_lstsq',
  eigh = 'linalg_eigh _linalg_syevd symeig', eigvalsh = 'linalg_eigvalsh', cond = 'linalg_cond', matrix_rank = 'linalg_matrix_rank',
  matrix_power = 'linalg_matrix_power', pinverse = 'linalg_pinv pinv', matrix_exp = 'linalg_matrix_exp', triangular_solve = '_linalg_trsm',
  cross = 'linalg_cross', fft = 'fft_fft', ifft = 'fft_ifft', fft2 = 'fft_fft2', ifft2 = 'fft_ifft2', fftn = 'fft_fftn', ifftn = 'fft_ifftn',
  rfft = 'fft_rfft', irfft = 'fft_irfft', rfft2 = 'fft_rfft2', irfft2 = 'fft_irfft2', rfftn = 'fft_rfftn', irfftn = 'fft_irfftn',
  box_suppress = '_contrib_box_nms box_nms', nms_places = 'nms batched_nms', box_overlaps = 'box_iou _contrib_box_iou',
  multibox_detections = '_contrib_MultiBoxDetection MultiBoxDetection multibox_detection',
  multibox_targets = '_contrib_MultiBoxTarget MultiBoxTarget multibox_target', roi_pool_places = 'ROIPooling roi_pooling roi_pool',
  roi_align = 'roi_align _contrib_ROIAlign',
  topk = 'TopK', argsort = 'ArgSort', one_hot = 'onehot', col2im = 'fold Fold', im2col = 'Unfold sliding_window',
}

local by_alias = {} -- name -> list of ours that there are
for ours, words in pairs(theirs) do
  if rows.by_name[ours] then
    for word in words:gmatch '%S+' do
      by_alias[word] = by_alias[word] or {}
      table.insert(by_alias[word], ours)
    end
  end
end
for _, list in pairs(by_alias) do table.sort(list) end

-- MXNet's ops of an attribute, each of whose values is an op of its own here.
local by_value = {
  Activation = { act_type = { relu = 'relu', sigmoid = 'sigmoid', tanh = 'tanh', softrelu = 'softplus', softsign = 'softsign',
    log_sigmoid = 'log_sigmoid', mish = 'mish' } },
  LeakyReLU = { act_type = { leaky = 'leaky_relu', rrelu = 'leaky_relu', elu = 'elu', selu = 'selu', gelu = 'gelu', prelu = 'prelu' } },
  Pooling = {}, RNN = { mode = { rnn_relu = 'rnn', rnn_tanh = 'rnn', lstm = 'lstm', gru = 'gru' } },
}

-- -- Finding -------------------------------------------------------------------------------------------

local function is_private(name)
  return band(tonumber(C.amp_op_get(rows.by_name[name]).flags), PRIVATE) ~= 0 and require('amp.core.lookup').find(name) == nil
end

-- 'AdaptiveAvgPool2d' -> 'adaptive_avg_pool2d', as layers are called after their functions; those that pad have one.
local function snake(name)
  if name:find '^%u%a+Pad[123]d$' then return 'pad' end
  return (name:gsub('(%l)(%u)', '%1_%2'):gsub('(%u)(%u%l)', '%1_%2'):lower())
end

local function own(name)
  return rows.by_name[name] ~= nil and not is_private(name) and { name } or nil
end

--- The ops that a name means: amp's own, another system's, or either with a trailing _; nil: there is none.
-- @tparam string name
-- @treturn ?table list of names
function M.find(name)
  if type(name) ~= 'string' then return nil end
  local bare = name:match '^(.-[^_])_$'
  local last = name:match '^[%w_]+%.([%w_.]+)$' -- torch.nn.functional.linear, F.silu
  return own(name) or by_alias[name] or bare and not name:match '^__' and (own(bare) or by_alias[bare]) or name:find '^%u%w*%l' and own(snake(name))
    or last and M.find(last:match '([%w_]+)$') or nil
end

--- The same, or an error that names the closest ones.
-- @tparam string op who asks
-- @tparam ?string where the list that has it
function M.need(op, name, where)
  local found = M.find(name)
  if found then return found end
  local known = {}
  for k in pairs(rows.by_name) do if not is_private(k) then known[#known + 1] = k end end
  for k in pairs(by_alias) do known[#known + 1] = k end
  table.sort(known)
  if rows.by_name[name] then
    err.throw(op, "%s'%s' is a part of other ops, which decide for it: name those", where and where .. ': ' or '', name)
  end
  err.throw(op, '%sthere is no op %s%s', where and where .. ': ' or '', util.show(name), util.hint(name, known))
end

--- The op that one value of another system's attribute means: ('Activation', 'act_type', 'softrelu') is softplus.
-- @treturn ?string name
-- @treturn ?table name by value, where the op has that attribute
function M.of_value(name, attribute, value)
  local values = by_value[name] and by_value[name][attribute]
  return values and values[value], values
end

M.aliases = by_alias

return M

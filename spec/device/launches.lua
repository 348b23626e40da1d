--- Rows of the op table that launch more than one kernel, or one a gradient, by reason: name = { launches of the result,
-- launches backward beyond one a gradient }. spec/device/launches_spec.lua holds them to it, both ways.
return {
  ['second derivatives, which few need: made of recorded ops'] = {
    gelu_backward = { 1, 20 }, silu_backward = { 1, 9 }, sigmoid_backward = { 1, 3 }, tanh_backward = { 1, 2 },
    mse_loss_backward = { 1, 3 }, pair_loss_backward = { 1, 9 }, softmax_backward = { 1, 7 }, log_softmax_backward = { 1, 5 },
    multilabel_margin_loss_backward = { 1, 3 },
  },
  ['sums of 16-bit values at indices: zeros, a copy in float32, additions there, the copy back'] = {
    index_add = { 3, 0 }, scatter_add = { 3, 0 }, index_put = { 3, 2 }, put = { 3, 1 }, index_select = { 1, 3 }, gather = { 1, 3 },
    index = { 1, 3 }, take = { 1, 3 }, take_along_dim = { 1, 4 }, embedding = { 1, 3 }, embedding_sum = { 2, 7 }, embedding_bag = { 7, 6 },
    cummax = { 1, 3 }, cummin = { 1, 3 }, grid_sample = { 1, 1 }, grid_sample_backward = { 2, 0 }, unfold = { 1, 2 }, as_strided = { 1, 2 },
    as_strided_sum = { 3, 0 }, bincount = { 4, 0 }, repeat_interleave = { 2, 3 }, masked_select = { 6, 3 }, masked_scatter = { 4, 8 },
    roi_align = { 4, 4 }, roi_align_backward = { 5, 3 }, scatter_reduce = { 4, 23 },
  },
  ['zeros first, then what is not zero'] = {
    select = { 1, 1 }, slice = { 1, 1 }, diagonal = { 1, 1 }, diag = { 2, 1 }, diag_embed = { 2, 0 }, max_unpool1d = { 2, 0 },
    max_unpool2d = { 2, 0 }, max_unpool3d = { 2, 0 }, unpool = { 2, 0 }, scatter = { 1, 1 },
  },
  ['the gradients of both parts of a tensor: zeros, each part copied to its place, and their sum'] = {
    glu = { 1, 6 }, diff = { 2, 6 }, roll = { 3, 5 }, fftshift = { 3, 5 }, ifftshift = { 3, 5 }, rot90 = { 2, 1 }, ['repeat'] = { 2, 1 },
  },
  ['sorting takes three: keys, tiles, what is written; the gradient goes to the chosen places of zeros'] = {
    sort = { 3, 1 }, topk = { 3, 1 }, kthvalue = { 3, 1 }, mode = { 3, 1 }, median = { 3, 9 }, nanmedian = { 3, 9 }, unique = { 10, 1 },
    unique_consecutive = { 7, 0 },
  },
  ['statistics first, then what they normalise; backward sums of columns are taken in parts'] = {
    batch_norm = { 3, 0 }, sync_batch_norm = { 3, 0 }, layer_norm = { 1, 2 }, add_layer_norm = { 2, 1 }, rms_norm = { 1, 2 },
    group_norm = { 1, 2 }, instance_norm = { 16, 2 },
  },
  ['a mean first, in double, and its two halves in float32'] = {
    var = { 1, 5 }, std = { 1, 6 },
  },
  ['equal extremes share their gradient: they are compared, counted and masked'] = {
    max = { 1, 5 }, min = { 1, 5 }, amax = { 1, 3 }, amin = { 1, 3 }, aminmax = { 2, 8 },
  },
  ['exact where an element is zero or no number: made of several ops'] = {
    prod = { 1, 10 }, cumprod = { 1, 3 }, logcumsumexp = { 1, 39 }, logsumexp = { 1, 9 },
  },
  ['p-norms of other p than 1 and 2: powers, and 0 where there is none'] = {
    norm = { 1, 12 }, normalize = { 4, 16 }, renorm = { 3, 30 }, dist = { 3, 16 }, pairwise_distance = { 4, 16 }, lp_pool1d = { 9, 7 },
    lp_pool2d = { 9, 7 }, lp_pool3d = { 9, 7 }, local_response_norm = { 18, 18 },
  },
  ['tables of places and weights first, one a dimension'] = {
    interpolate = { 4, 6 }, resample = { 4, 6 }, resample_backward = { 7, 3 },
  },
  ['rows of loss first, then their sum or count; a weight takes the ops that it is made of'] = {
    cross_entropy = { 2, 1 }, cross_entropy_index = { 2, 1 }, nll_loss = { 1, 1 }, ctc = { 2, 1 }, ctc_loss = { 10, 6 },
    bce_with_logits = { 15, 13 }, binary_cross_entropy = { 7, 6 }, multilabel_margin_loss = { 2, 0 },
  },
  ['losses of several tensors, made of ops'] = {
    cosine_embedding_loss = { 24, 18 }, gaussian_nll_loss = { 15, 10 }, margin_ranking_loss = { 9, 5 }, multi_margin_loss = { 17, 12 },
    multilabel_soft_margin_loss = { 8, 7 }, poisson_nll_loss = { 16, 3 }, triplet_margin_loss = { 18, 39 },
  },
  ['selections and statistics made of ops'] = {
    quantile = { 31, 18 }, nanquantile = { 32, 17 }, nanmean = { 9, 3 }, nansum = { 3, 0 },
  },
  ['one operand is broadcast: its gradient is summed'] = {
    prelu = { 1, 1 }, cross = { 1, 1 },
  },
  ['another op before it'] = {
    softmin = { 2, 1 }, affine_grid = { 11, 2 },
  },
}

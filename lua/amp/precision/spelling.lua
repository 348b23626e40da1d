--- How other systems spell amp's options: PyTorch, Apex, MXNet, MegEngine, Torch7.
-- One table for every function: an option of theirs that means the same is taken where the function has amp's
-- own, one that is near is named in the error, one that has no meaning here is refused with the reason.
-- Nothing here knows which function has which options; amp.options and amp.util ask.
-- @module amp.precision.spelling
local M = {}

-- Words of theirs with the same meaning and the same values: taken.
local same = {
  -- regions: PyTorch, MegEngine
  device_type = { 'device' }, low_prec_type = { 'dtype' }, amp_dtype = { 'dtype' }, autocast_dtype = { 'dtype' },
  -- lists of ops: MXNet
  target_dtype_ops = { 'target_precision_ops' }, target_precision_ops = { 'target_dtype_ops' }, lp16_ops = { 'target_precision_ops', 'target_dtype_ops' },
  excluded_sym_names = { 'excluded_names' }, cast_params_offline = { 'cast_optional_params' }, data_example = { 'example_inputs' },
  -- scalers: Apex, MXNet
  init_loss_scale = { 'init_scale' }, initial_scale = { 'init_scale' }, initial_loss_scale = { 'init_scale' },
  scale_window = { 'growth_interval' }, min_loss_scale = { 'min_scale' }, max_loss_scale = { 'max_scale' },
  -- autograd: MXNet, older PyTorch
  retain_variables = { 'retain_graph' }, head_grads = { 'grad_tensors', 'grad_outputs' }, grad_variables = { 'grad_tensors' },
  -- clipping
  max_grad_norm = { 'max_norm' }, clip_norm = { 'max_norm' },
}

-- Words of amp's own for another function, and those of others that are near: named.
local near = {
  cache_enabled = { 'enable_caching' }, enable_caching = { 'cache_enabled' }, cache = { 'cache_enabled', 'enable_caching' },
  dtype = { 'target_dtype', 'cast_model_type', 'cast_inputs' }, target_dtype = { 'dtype', 'cast_model_type' }, cast_dtype = { 'cast_inputs' },
  scale_factor = { 'growth_factor', 'init_scale' }, loss_scale = { 'init_scale' }, dynamic = { 'growth_interval', 'loss_scale' },
  init_scale = { 'loss_scale' }, min_scale = { 'min_loss_scale' }, max_scale = { 'max_loss_scale' }, num_losses = { 'num_loss' }, num_loss = { 'num_losses' },
  unskipped = { 'growth_tracker' }, cast_model_output = { 'cast_model_outputs' }, patch_torch_functions = { 'opt_level' },
  level = { 'opt_level' }, precision = { 'dtype', 'opt_level' }, keep_batchnorm_float32 = { 'keep_batchnorm_fp32' },
  keep_bn_fp32 = { 'keep_batchnorm_fp32' }, fp32_ops = { 'keep_fp32' },
  gradient = { 'grad_tensors', 'dy' }, grad_outputs = { 'grad_tensors' }, grad_tensors = { 'grad_outputs' }, grad_output = { 'dy' },
  callback = { 'callbacks' }, ord = { 'norm_type' }, use_cuda = { 'device' },
  optimizers = { 'optimizer' }, models = { 'model' }, model = { 'net' }, module = { 'net' }, modules = { 'net' },
  with_stack = { 'by' }, group_by = { 'by' }, profile_memory = { 'memory' }, row_limit = { 'limit' }, num_steps = { 'steps' },
  iterations = { 'steps' }, loss_scaler = { 'scaler' }, grad_scaler = { 'scaler' },
  learning_rate = { 'lr' }, learningRate = { 'lr' }, wd = { 'weight_decay' }, weightDecay = { 'weight_decay' }, epsilon = { 'eps' },
}

-- No meaning here: refused, with the reason.
local none = {
  foreach = 'every step and clip goes over all tensors at once anyhow',
  fused = 'the steps are fused anyhow',
  capturable = 'every step can be captured anyhow',
  differentiable = 'steps are not recorded; write a differentiable step with amp.grad and create_graph = true',
  high_prec_type = 'the other ops of a region run in float32',
  high_prec_dtype = 'the other ops of a region run in float32',
  check_nan = 'it is amp.detect_anomaly(fn) that looks for NaN',
  layout_optimization = 'layouts are chosen per op',
  train_mode = 'layers know it: net:train(), net:eval()',
}

local function among(list, known)
  for i = 1, list and #list or 0 do
    for k = 1, #known do
      if known[k] == list[i] then return list[i] end
    end
  end
end

--- The known option that a foreign one means, or nil.
-- @param key as given
-- @tparam table known list of names
function M.same(key, known) return among(same[key], known) end

--- The known name that is to be used instead, or nil.
function M.near(key, known) return among(same[key], known) or among(near[key], known) end

--- Why there is no such option, or nil.
function M.none(key) return none[key] end

return M

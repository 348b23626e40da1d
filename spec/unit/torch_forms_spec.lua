--- Function forms take their arguments in PyTorch's order, and options have its names.
-- spec/fixtures/torch_forms.lua holds the names and orders of PyTorch's functions; what differs here is listed with its reason.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local forms = require 'spec.fixtures.torch_forms'
local rows = require 'amp.ops.schema'
local F, nn = amp.nn.functional, amp.nn

-- Functions of which another one of the same name is meant, or that PyTorch has in two forms.
local different = {
  solve = 'torch.linalg.solve(A, B, left)', lstsq = 'torch.linalg.lstsq(A, B, rcond)', cond = 'torch.linalg.cond(A, p)',
  qr = 'torch.linalg.qr(A, mode)', matrix_rank = 'torch.linalg.matrix_rank(A, atol, rtol, hermitian)', det = 'torch.linalg.det(A)',
  unfold = 'Tensor.unfold(dimension, size, step); F.unfold is im2col', polygamma = 'both orders, by the kinds of the arguments',
  rnn = 'a row behind nn.RNN', gru = 'a row behind nn.GRU', lstm = 'a row behind nn.LSTM', lstm_cell = 'amp.lstm_cell(input, {h, c}, ...)',
  einsum = 'amp.einsum(equation, tensors...)', tensordot = 'amp.tensordot(a, b, dims)', cross = 'torch.cross(input, other, dim)',
  chain_matmul = 'amp.chain_matmul(a, b, ...)', multi_dot = 'amp.multi_dot(a, b, ...)', randint = 'both forms, with and without low',
  norm = 'torch.norm(input, p, dim, keepdim)', embedding = 'F.embedding(input, weight, padding_idx)',
}

-- Arguments of PyTorch's that are not there, by reason.
local absent = {}
local function lacks(why, names)
  for name in names:gmatch '%S+' do absent[name] = why end
end
lacks('indices are int64', 'out_int32')
lacks('the two of right say the same', 'side sorter')
lacks('a gradient is dense', 'sparse sparse_grad scale_grad_by_freq')
lacks('nn.Embedding renormalises its table', 'max_norm norm_type')
lacks('the size is worked out', 'output_size')
lacks('an option of a backend', 'antialias recompute_scale_factor non_blocking path implicit compute_uv enable_gqa')
lacks('weights of single elements: multiply the unreduced losses', 'weight')
lacks('one dimension at a time, or flattened', 'dim')

describe('function forms', function()
  local names = {}
  for name in pairs(forms) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    if not different[name] then
      it(name .. ' takes them in the order of ' .. forms[name], function()
        local row = rows.get(name)
        local mine, place = {}, {}
        for _, a in ipairs(row.args) do
          if a.name ~= 'dtype' and a.name ~= 'device' and a.name ~= 'memory_format' then
            mine[#mine + 1] = a.name
            place[a.name] = #mine
          end
        end
        local last, shared = 0, 0
        for theirs in forms[name]:gmatch '%S+' do
          local here = place[theirs] or place[rows.aliases[theirs]] or theirs == 'self' and place.input
          if shared == 0 and not here then here = 1 end -- the first one's name is no option's
          if here then
            assert.is_true(here > last, ("'%s' stands at place %d: %s"):format(theirs, here, table.concat(mine, ', ')))
            last, shared = here, shared + 1
          else
            assert.is_truthy(absent[theirs], ("there is no '%s': %s"):format(theirs, table.concat(mine, ', ')))
          end
        end
        assert.is_true(last == shared, 'what PyTorch has not comes after what it has: ' .. table.concat(mine, ', '))
      end)
    end
  end
  it('covers hundreds', function() assert.is_true(#names > 250, #names) end)
end)

describe('the same in numbers', function()
  local x, y = amp.tensor { { 1, 2, 3 }, { 3, 1, 0.5 } }, amp.tensor({ 3, 1 }, { dtype = 'int64' })
  local w = amp.tensor { 1, 2, 3 }
  it('cross_entropy and nll_loss: weight, ignore_index, reduction, label_smoothing', function()
    H.close(amp.cross_entropy(x, y, w, 1, 'sum', 0.1), amp.cross_entropy(x, y, { weight = w, ignore_index = 1, reduction = 'sum', label_smoothing = 0.1 }))
    H.close(F.nll_loss(x, y, w, 1, 'sum'), F.nll_loss(x, y, { weight = w, ignore_index = 1, reduction = 'sum' }))
  end)
  it('multi_margin_loss: p, margin, weight, reduction', function()
    H.close(F.multi_margin_loss(x, y, 2, 0.5, w, 'sum'), F.multi_margin_loss(x, y, { p = 2, margin = 0.5, weight = w, reduction = 'sum' }))
  end)
  it('bce_with_logits: weight, reduction, pos_weight', function()
    local t = amp.tensor { { 1, 0, 1 }, { 0, 1, 1 } }
    H.close(F.binary_cross_entropy_with_logits(x, t, w, 'sum', w), F.bce_with_logits(x, t, { weight = w, reduction = 'sum', pos_weight = w }))
    H.close(F.bce_with_logits(x, t, w, w), F.bce_with_logits(x, t, { weight = w, pos_weight = w })) -- a tensor goes where one is taken
  end)
  it('embedding_bag: offsets, mode, per_sample_weights', function()
    local ids, at = amp.tensor({ 1, 2, 2 }, { dtype = 'int64' }), amp.tensor({ 1, 3 }, { dtype = 'int64' })
    local scale = amp.tensor { 1, 2, 3 }
    H.close(F.embedding_bag(ids, x, at, 'sum', scale), F.embedding_bag(ids, x, { offsets = at, mode = 'sum', per_sample_weights = scale }))
  end)
  it('index_put(input, {indices}, values, accumulate)', function()
    local i, j = amp.tensor({ 1, 2 }, { dtype = 'int64' }), amp.tensor({ 3, 3 }, { dtype = 'int64' })
    H.close(amp.index_put(amp.zeros(2, 3), { i, j }, amp.tensor { 5, 6 }), { 0, 0, 5, 0, 0, 6 })
    H.close(amp.index_put(x, { i, j }, amp.tensor { 5, 6 }, true), { 1, 2, 8, 3, 1, 6.5 })
    H.close(amp.index_put(amp.zeros(2, 3), { i }, amp.tensor { 5, 6, 7 }), { 5, 6, 7, 5, 6, 7 })
    local t = amp.zeros(2, 3)
    amp.index_put_(t, { i, j }, amp.tensor { 1, 1 })
    H.close(t, { 0, 0, 1, 0, 0, 1 })
    H.fails_here(function() local r = amp.index_put(t, amp.ones(2), { i, j }) return r end, 'indices', 'list')
  end)
  it('polygamma(n, input), and t:polygamma(n)', function()
    H.close(amp.polygamma(1, amp.tensor { 1, 2 }), amp.tensor({ 1, 2 }):polygamma(1))
  end)
  it('functions that are no rows', function()
    local r = amp.arange(6):view(2, 3)
    H.close(amp.full({ 2 }, 7), { 7, 7 })
    H.close(amp.linspace(0, 1, 3), { 0, 0.5, 1 })
    H.close(amp.logspace(0, 2, 3, 10), { 1, 10, 100 })
    assert.equal(3, #amp.chunk(r, 3, 2))
    assert.equal(2, #amp.split(r, 2, 2))
    assert.equal(2, #amp.tensor_split(r, 2, 1))
    H.close(amp.tile(amp.tensor { 1, 2 }, { 2 }), { 1, 2, 1, 2 })
    H.close(amp.einsum('ij,ij->i', r, r), { 5, 50 })
    H.close(amp.tensordot(r, r, { { 2 }, { 2 } }), { 5, 14, 14, 50 })
    assert.is_true(amp.allclose(r, r + 1e-9, 1e-5, 1e-8))
    assert.same({ 2, 3 }, amp.normal(0, 1, { 2, 3 }):size())
    assert.same({ 4 }, amp.randint(3, 9, { 4 }):size())
  end)
  it('inplace is an option where there is an in-place form', function()
    local t = amp.tensor { -1, 2 }
    assert.is_true(F.relu(t, { inplace = true }) == t)
    H.close(t, { 0, 2 })
    assert.is_false(F.relu(t, { inplace = false }) == t)
  end)
  it('options may have the names of PyTorch\'s arguments', function()
    H.close(F.layer_norm(x, { normalized_shape = { 3 } }), F.layer_norm(x, { 3 }))
    H.close(amp.sum(x, { axis = 2 }), amp.sum(x, 2))
    H.close(amp.index_add(x, 1, y:clamp(1, 2), { source = x }), amp.index_add(x, 1, y:clamp(1, 2), x))
  end)
end)

-- PyTorch's constructors: names in the order of their places. What is not taken: devices and dtypes (net:to), and
-- scale_grad_by_freq, sparse (said where they are given), process_group, enable_nested_tensor, mask_check (there is no such choice).
local constructors = {
  Linear = 'in_features out_features bias', Bilinear = 'in1_features in2_features out_features bias',
  Conv2d = 'in_channels out_channels kernel_size stride padding dilation groups bias padding_mode',
  ConvTranspose2d = 'in_channels out_channels kernel_size stride padding output_padding groups bias dilation padding_mode',
  MaxPool2d = 'kernel_size stride padding dilation return_indices ceil_mode',
  AvgPool2d = 'kernel_size stride padding ceil_mode count_include_pad divisor_override',
  BatchNorm2d = 'num_features eps momentum affine track_running_stats bias',
  InstanceNorm2d = 'num_features eps momentum affine track_running_stats bias',
  GroupNorm = 'num_groups num_channels eps affine bias', LayerNorm = 'normalized_shape eps elementwise_affine bias',
  RMSNorm = 'normalized_shape eps elementwise_affine', LocalResponseNorm = 'size alpha beta k',
  Embedding = 'num_embeddings embedding_dim padding_idx max_norm norm_type', Dropout = 'p inplace', Flatten = 'start_dim end_dim',
  LSTM = 'input_size hidden_size num_layers bias batch_first dropout bidirectional proj_size',
  MultiheadAttention = 'embed_dim num_heads dropout bias add_bias_kv add_zero_attn kdim vdim batch_first',
  TransformerEncoderLayer = 'd_model nhead dim_feedforward dropout activation layer_norm_eps batch_first norm_first bias',
  Upsample = 'size scale_factor mode align_corners recompute_scale_factor', PReLU = 'num_parameters init', Softplus = 'beta threshold',
  ELU = 'alpha inplace',
  CELU = 'alpha inplace', LeakyReLU = 'negative_slope inplace', Hardtanh = 'min_val max_val inplace', ReLU6 = 'inplace',
  ReLU = 'inplace',  SELU = 'inplace',
  SiLU = 'inplace', Mish = 'inplace', Hardswish = 'inplace', Hardsigmoid = 'inplace', Threshold = 'threshold value inplace',
  GELU = 'approximate',
}
describe('constructors', function()
  local options = require 'amp.options'
  for class, names in pairs(constructors) do
    it(class .. ' takes ' .. names, function()
      local read, arguments, found = options.read, options.arguments, nil
      options.arguments = function(_, known) found = known error('enough', 0) end
      pcall(nn[class].init, setmetatable({}, { __index = nn[class], __newindex = function() end }), 1, 1, 1)
      options.read, options.arguments = read, arguments
      local list = table.concat(found, ' ')
      assert.equal((names:gsub('^normalized_shape ', '')), (list:gsub('^normalized_shape ', '')))
    end)
  end
  it('activations change their input with inplace = true', function()
    for _, name in ipairs { 'CELU', 'ELU', 'Hardsigmoid', 'Hardswish', 'Hardtanh', 'LeakyReLU', 'Mish', 'ReLU6', 'SELU', 'SiLU', 'ReLU' } do
      local x = amp.randn(5)
      local want, z = nn[name]()(x:clone()), x:clone()
      assert.is_true(nn[name] { inplace = true }(z) == z)
      H.same(z, want)
    end
  end)
  it('norms without a bias have a weight', function()
    for _, m in ipairs { nn.BatchNorm2d(3, { bias = false }), nn.GroupNorm(1, 3, { bias = false }), nn.InstanceNorm2d(3, { affine = true, bias = false }) } do
      assert.is_nil(m.bias)
      assert.is_truthy(m.weight)
      assert.is_true(math.abs(m(amp.randn(2, 3, 4, 4)):mean():item()) < 1e-5)
    end
  end)
end)

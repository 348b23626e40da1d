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

-- -- Constructors ---------------------------------------------------------------------
-- spec/fixtures/torch_constructors.lua holds PyTorch's; what is not so here is listed with its reason.

local theirs = require 'spec.fixtures.torch_constructors'
local options = require 'amp.options'

local not_there = {}
local function missing(why, names)
  for name in names:gmatch '%S+' do not_there[name] = why end
end
missing('bases, and names that PyTorch keeps for old scripts', 'Container CrossMapLRN2d NLLLoss2d RNNBase RNNCellBase DataParallel')
missing('sizes are given', [[LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d
  LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear]])
missing('not in the contract', [[AdaptiveLogSoftmaxWithLoss FractionalMaxPool2d FractionalMaxPool3d LinearCrossEntropyLoss ParameterDict ParameterList
  Softmax2d Unflatten]])
missing('not in the contract', 'ASGD Rprop SparseAdam')
missing('takes modules, no options', 'ModuleDict ModuleList')

local left_out = {}
local function without(why, names)
  for name in names:gmatch '%S+' do left_out[name] = why end
end
without('gradients are dense, and not scaled', 'scale_grad_by_freq sparse')
without('private in PyTorch', '_weight _freeze')
without('groups are those of the process', 'process_group')
without('there is no such choice', 'enable_nested_tensor mask_check foreach capturable differentiable fused')
without('old names of min_val and max_val', 'min_value max_value')
without('it draws, so it makes a new tensor', 'RReLU.inplace')
without('optim.AdamW', 'Adam.decoupled_weight_decay')
without('minimise its negative', 'LBFGS.maximize')
without('the first place, checked by itself', 'normalized_shape params')

local counted = { 'Flatten.start_dim', 'CosineSimilarity.dim', 'CTCLoss.blank' } -- dimensions and classes count from 1
local other = { ['Softmax.dim'] = '-1', ['LogSoftmax.dim'] = '-1', ['Softmin.dim'] = '-1' } -- where PyTorch warns of None
other['Muon.adjust_lr_fn'] = 'original' -- which None means
for _, key in ipairs(counted) do other[key] = true end

local function shown(v)
  if type(v) == 'table' then
    local list = {}
    for i = 1, #v do list[i] = shown(v[i]) end
    return '(' .. table.concat(list, ',') .. ')'
  end
  if type(v) == 'boolean' then return v and 'True' or 'False' end
  return v == nil and 'None' or tostring(v)
end

-- A list of {name, default's text or nil} of a line of the table
local function wanted(class, line)
  local list = {}
  for word in line:gmatch '%S+' do
    local name, default = word:match '^([^=]+)=?(.*)$'
    if not left_out[name] and not left_out[class .. '.' .. name] then
      if other[class .. '.' .. name] == true then default = tostring(tonumber(default) + 1) end
      list[#list + 1] = { name, type(other[class .. '.' .. name]) == 'string' and other[class .. '.' .. name] or default }
    end
  end
  return list
end

local function same_default(want, value)
  if want == '' then return value == nil end -- must be given
  local number = tonumber(want)
  if number then return type(value) == 'number' and math.abs(value - number) <= 1e-12 * math.abs(number) end
  return (want:gsub('%(None,', '(False,')) == shown(value)
end

describe('constructors', function()
  local checked = 0
  for class, line in pairs(theirs.nn) do
    if not not_there[class] then
      checked = checked + 1
      it('nn.' .. class .. ' takes ' .. line, function()
        local kind, arguments, read, found, defaults, required = nn[class], options.arguments, options.read, nil, nil, 0
        options.arguments = function(_, known, n, values) found, required, defaults = known, n, values or {} error('enough', 0) end
        options.read = function(_, _, known, values) found, defaults = known, values or {} error('enough', 0) end
        pcall(kind.init, setmetatable({}, { __index = kind, __newindex = function() end }), 1, 1, 1, 1)
        options.arguments, options.read = arguments, read
        local list = wanted(class, line)
        if not found then return assert.equal(0, #list) end
        local mine = {}
        for _, name in ipairs(found) do if not left_out[name] then mine[#mine + 1] = name end end
        for i, want in ipairs(list) do
          assert.equal(want[1], mine[i])
          local default = defaults[want[1]]
          assert.is_true(same_default(want[2], default), ('%s is %s, there %s'):format(want[1], shown(default), want[2]))
          if want[2] == '' and not line:find '^normalized_shape' and required > 0 then assert.is_true(i <= required, want[1] .. ' must be given') end
        end
        assert.equal(#list, #mine, table.concat(mine, ' '))
      end)
    end
  end
  for class, line in pairs(theirs.optim) do
    if not not_there[class] then
      it('optim.' .. class .. ' takes ' .. line, function()
        local p = amp.ones(2, 2, { requires_grad = true })
        local group = amp.optim[class]({ p }).param_groups[1]
        for _, want in ipairs(wanted(class, line)) do
          assert.is_true(same_default(want[2], group[want[1]]), ('%s is %s, there %s'):format(want[1], shown(group[want[1]]), want[2]))
        end
      end)
    end
  end
  it('are all looked at', function() assert.is_true(checked > 120, checked) end)
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
